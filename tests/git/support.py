"""What tests of git share: checkouts of ralph's own, and what they and trees hold."""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

from _ralph import files
from _ralph.checks.places import Places
from _ralph.checks.view import View
from _ralph.git.checkout import Checkout, remove_unusable
from _ralph.git.git import Git
from _ralph.git.litter import litter
from _ralph.git.notes import Start
from _ralph.git.snapshot import snapshot, with_work, work
from _ralph.model import Setup
from _ralph.process.process import Control
from _ralph.state import layout, limits, prd
from _ralph.state.options import Options
from _ralph.state.settings import Settings
from tests.conftest import Repo


def place_of(repo: Repo, *state: str, name: str = "work-1") -> Checkout:
    git = Git.at(repo.path)
    index = git.common / "ralph/plan" / f"{name}.index"
    return Checkout(git, repo.outside / "places" / name, index, state)


def places_of(
    repo: Repo, setup: str | Setup = "", *keep: str, branch: str = "ralph/p"
) -> Places:
    """The places of a plan with this `setup` and `keep`."""
    home, path = Git.at(repo.path), repo.path / "prd.json"
    plan = prd.read(json.dumps({"keep": keep, "userStories": [{"title": "T1"}]}), path)
    if setup:
        made = setup if isinstance(setup, Setup) else Setup(setup)
        plan = replace(plan, setup=made)
    paths = layout.paths_of(repo.path, home.common, path)
    allowed = limits.resolve({}, {})
    settings = Settings(Options(), paths, plan, allowed)
    return Places(settings, home, branch, Control(), View())


def checked_out(repo: Repo, *state: str, branch: str = "ralph/p") -> Checkout:
    """A place with the files of HEAD, made ready for an agent."""
    place = place_of(repo, *state)
    place.reset(head(repo))
    places_of(repo, branch=branch).add_git_and_settings(place, head(repo))
    return place


def in_it(place: Checkout, *words: str, check: bool = True) -> str:
    """A command as an agent runs it in a place: with its throwaway `.git`, and with no
    help."""
    env = {"PATH": os.environ["PATH"], "HOME": "/nowhere", "LC_ALL": "C"}
    done = subprocess.run(
        words, cwd=place.root, env=env, capture_output=True, timeout=60
    )
    assert done.returncode == 0 or not check, (words, done.stderr)
    return done.stdout.decode("utf-8", "surrogateescape")


def taken(place: Checkout, start: Start) -> tuple[str, list[str]]:
    """The tree that an agent left, and what is said."""
    said = remove_unusable(place, start.tree)
    after, refused = snapshot(place, start.tree)
    found = work(place, start, after)
    left_out, lines = litter(place, start.tree, found)
    kept = {name: pair for name, pair in found.items() if name not in left_out}
    return with_work(place.git, start, after, kept), [*said, *refused, *lines]


def changed(repo: Repo, tree: str) -> list[str]:
    """The names of what differs from HEAD."""
    listed = repo.git("diff", "--name-only", "--no-renames", "-z", "HEAD", tree)
    return listed.split("\0")[:-1]


def head(repo: Repo, name: str = "HEAD") -> str:
    return repo.git("rev-parse", name).strip()


def tree_of(repo: Repo, commit: str = "HEAD") -> str:
    return head(repo, f"{commit}^{{tree}}")


def listing(repo: Repo, tree: str) -> dict[str, tuple[str, str]]:
    """What a tree holds: mode and content by name."""
    found = {}
    for entry in repo.git("ls-tree", "-r", "-z", tree).split("\0")[:-1]:
        about, name = entry.split("\t", 1)
        mode, kind, blob = about.split(" ")
        content = repo.git("cat-file", "-p", blob) if kind == "blob" else blob
        found[name] = (mode, content)
    return found


def on_disk(folder: Path) -> dict[str, tuple[str, str]]:
    """The same of a folder, without `.git`."""
    found = {}
    for path in files.walk(folder):
        name = path.relative_to(folder).as_posix()
        if name.split("/")[0] == ".git":
            continue
        if path.is_symlink():
            found[name] = ("120000", os.readlink(path))
            continue
        mode = "100755" if path.stat().st_mode & 0o100 else "100644"
        found[name] = (mode, path.read_text())
    return found


def seen(repo: Repo) -> dict[str, bytes]:
    """Home, byte for byte, but for git's objects, ralph's private folder, and its
    logs."""
    skipped = [repo.path / name for name in (".git/objects", ".git/ralph", ".ralph")]
    found = {}
    for path in files.walk(repo.path):
        if any(path.is_relative_to(folder) for folder in skipped):
            continue
        link = path.is_symlink()
        data = os.fsencode(os.readlink(path)) if link else path.read_bytes()
        found[str(path)] = data
    return found


def write(place: Checkout, name: str, content: str = "new\n") -> None:
    path = place.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


def with_lib(repo: Repo) -> Repo:
    """A repository with a submodule, which has one itself; where they came from is
    gone."""
    allow = ("-c", "protocol.file.allow=always", "submodule")
    leaf = repo.copy(repo.outside / "from-leaf")
    leaf.write("leaf.txt", "leaf\n")
    leaf.commit("leaf")
    lib = repo.copy(repo.outside / "from-lib")
    lib.write("lib.txt", "lib\n")
    lib.git(*allow, "add", "-q", f"{repo.outside}/from-leaf/repo", "deps/leaf")
    lib.commit("lib")
    source = f"{repo.outside}/from-lib/repo"
    repo.git(*allow, "add", "-q", "--name", "the lib", source, "vendor/lib")
    repo.git(*allow, "update", "-q", "--init", "--recursive")
    repo.commit("with lib")
    for name in ("leaf", "lib"):
        files.clear(repo.outside / f"from-{name}")
    return repo
