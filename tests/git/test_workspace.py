# mypy: disable-error-code="func-returns-value"
"""A place of ralph's own: whatever was done in it, its files are those of a commit
again, what it holds becomes a tree, and home is as it was."""

from __future__ import annotations

import copy
import filecmp
import json
import os
import shutil
import signal
import socket
import subprocess
import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from _ralph import files
from _ralph.checks import places as places_module
from _ralph.checks.places import Places
from _ralph.checks.view import View
from _ralph.errors import BadInput, StopNow
from _ralph.git import checkout as checkouts
from _ralph.git import patterns, snapshot
from _ralph.git.checkout import Checkout, hide, remove_unusable
from _ralph.git.git import Git, freeze_settings
from _ralph.git.litter import ignored_since, litter
from _ralph.git.notes import Start, noted_setup
from _ralph.git.snapshot import Entry, changes, restore, settle, with_work, work
from _ralph.git.submodules import copy_of
from _ralph.git.throwaway import NO_PUSH, copy_state, write_git
from _ralph.model import Setup
from _ralph.process.process import Control
from _ralph.state import layout, limits, prd
from _ralph.state.options import Options
from _ralph.state.settings import Settings
from tests.conftest import Repo, within


@pytest.fixture(autouse=True)
def settings_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """git here reads settings of the test."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    for module in (
        checkouts,
        snapshot,
    ):  # a git that waits for a FIFO is killed by then
        monkeypatch.setattr(module, "BULK", 20.0)


def place_of(repo: Repo, *state: str, name: str = "work-1") -> Checkout:
    git = Git.at(repo.path)
    return Checkout(
        git,
        repo.outside / "places" / name,
        git.common / "ralph/plan" / f"{name}.index",
        state,
    )


def places_of(
    repo: Repo, setup: str | Setup = "", *keep: str, branch: str = "ralph/p"
) -> Places:
    """The places of a plan with this `setup` and `keep`."""
    made = Setup(setup) if isinstance(setup, str) and setup else setup or None
    assert not isinstance(made, str)
    home, path = Git.at(repo.path), repo.path / "prd.json"
    plan = prd.read(json.dumps({"keep": keep, "userStories": [{"title": "T1"}]}), path)
    paths = layout.paths_of(repo.path, home.common, path)
    settings = Settings(
        Options(), paths, replace(plan, setup=made), limits.resolve({}, {})
    )
    return Places(settings, home, branch, frozenset(), Control(), View())


def checked_out(repo: Repo, *state: str) -> Checkout:
    """A place with the files of HEAD."""
    place = place_of(repo, *state)
    place.reset(head(repo))
    return place


def furnished(repo: Repo, **more: Any) -> Checkout:
    """The same, made ready for an agent, with a throwaway `.git`."""
    place = checked_out(repo)
    places_of(repo, **more).add_git_and_settings(place, head(repo))
    return place


def in_it(place: Checkout, *words: str, check: bool = True) -> str:
    """git as an agent runs it in a place: with its throwaway `.git`, and with no
    help."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": "/nowhere",
        "GIT_CONFIG_GLOBAL": "/dev/null",
        "LC_ALL": "C",
    }
    done = subprocess.run(
        ["git", *words], cwd=place.root, env=env, capture_output=True, timeout=60
    )
    assert done.returncode == 0 or not check, (words, done.stderr)
    return done.stdout.decode("utf-8", "surrogateescape")


def head(repo: Repo, name: str = "HEAD") -> str:
    return repo.git("rev-parse", name).strip()


def tree_of(repo: Repo, commit: str = "HEAD") -> str:
    return head(repo, f"{commit}^{{tree}}")


def listing(repo: Repo, tree: str) -> dict[str, tuple[str, str]]:
    """What a tree holds: mode and content by name."""
    found = {}
    for entry in repo.git("ls-tree", "-r", "-z", tree).split("\0")[:-1]:
        meta, name = entry.split("\t", 1)
        mode, kind, blob = meta.split(" ")
        found[name] = (
            mode,
            repo.git("cat-file", "-p", blob) if kind == "blob" else blob,
        )
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
        else:
            found[name] = (
                "100755" if path.stat().st_mode & 0o100 else "100644",
                path.read_text(),
            )
    return found


def seen(repo: Repo) -> dict[str, bytes]:
    """Home, byte for byte, but for git's objects, ralph's private folder, and its
    logs."""
    skipped = [
        repo.path / name for name in (".git/objects", ".git/ralph", ".ralph/log")
    ]
    return {
        str(path): os.fsencode(os.readlink(path))
        if path.is_symlink()
        else path.read_bytes()
        for path in files.walk(repo.path)
        if not any(path.is_relative_to(folder) for folder in skipped)
    }


@pytest.fixture
def project(repo: Repo) -> Repo:
    """A few files of every kind that git knows."""
    repo.write("src/main.py", "print(1)\n")
    repo.write("src/deep/er/x.txt", "x\n")
    repo.program("run.sh", "true")
    (repo.path / "link").symlink_to("src/main.py")
    repo.write(".gitignore", "*.log\nbuild/\n/kept\n")
    repo.commit("project")
    return repo


# ---------------------------------------------------------------- reset


def same_size(place: Checkout) -> None:
    """An edit of the same size that sets the times back."""
    path = place.root / "a.txt"
    before = path.stat()
    path.write_text("b\n")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_by_link(place: Checkout) -> None:
    """A folder that leads out of the place: what is written there would land
    elsewhere."""
    files.clear(place.root / "src")
    (place.root / "src").symlink_to(place.root.parent / "elsewhere")


DEEDS: dict[str, Callable[[Checkout], object]] = {
    "edited": lambda p: (p.root / "a.txt").write_text("EVIL\n"),
    "edited, same size, times set back": same_size,
    "deleted": lambda p: (p.root / "a.txt").unlink(),
    "all deleted": lambda p: [files.clear(path) for path in p.root.iterdir()],
    "the folder deleted": lambda p: files.clear(p.root),
    "the folder moved": lambda p: p.root.rename(p.root.parent / "moved"),
    "mode": lambda p: (p.root / "run.sh").chmod(0o644),
    "new file": lambda p: (p.root / "new.txt").write_text("new\n"),
    "new file deep": lambda p: ((p.root / "n/e/w").mkdir(parents=True), (p.root / "n/e/w/x").write_text("x")),
    "a folder in the place of a file": lambda p: (files.clear(p.root / "a.txt"), (p.root / "a.txt/x").mkdir(parents=True)),
    "a file in the place of a folder": lambda p: (files.clear(p.root / "src"), (p.root / "src").write_text("EVIL")),
    "a link in the place of a folder": replaced_by_link,
    "a link elsewhere": lambda p: ((p.root / "link").unlink(), (p.root / "link").symlink_to("/etc/passwd")),
    "a FIFO in the place of a file": lambda p: ((p.root / "a.txt").unlink(), os.mkfifo(p.root / "a.txt")),
    "a FIFO that git would read": lambda p: ((p.root / ".gitignore").unlink(), os.mkfifo(p.root / ".gitignore")),
    "a FIFO among the attributes": lambda p: os.mkfifo(p.root / "src/.gitattributes"),
    "a repository inside": lambda p: subprocess.run(["git", "init", "-q", "sub"], cwd=p.root, check=True),
    "closed folder": lambda p: (p.root / "src").chmod(0),
    ".git deleted": lambda p: files.clear(p.root / ".git"),
    ".git that leads elsewhere": lambda p: files.clear(p.root / ".git").write_text("gitdir: /tmp"),
    "files hidden from the index": lambda p: (in_it(p, "update-index", "--assume-unchanged", "a.txt"), (p.root / "a.txt").write_text("EVIL\n")),
    "an exclude rule": lambda p: ((p.root / ".git/info/exclude").write_text("*\n"), (p.root / "new").write_text("new")),
    "a filter of its own": lambda p: (in_it(p, "config", "filter.x.smudge", "echo EVIL"), (p.root / ".git/info/attributes").write_text("* filter=x\n")),
    "history rewritten": lambda p: (in_it(p, "rm", "-rq", "src"), in_it(p, "commit", "-qam", "x"), in_it(p, "gc", "-q", "--prune=now")),
    "a lock left": lambda p: p.index.with_name(f"{p.index.name}.lock").touch(),
    "a merge under way": lambda p: (p.root / ".git/MERGE_HEAD").write_text("0" * 40),
}  # fmt: skip


def begin(place: Checkout, tree: str) -> None:
    """What is done in a place before an agent comes."""
    remove_unusable(place, tree)
    place.reset(tree)
    assert settle(place, tree) == tree


@pytest.mark.parametrize("deed", DEEDS)
def test_whatever_was_done_the_files_are_those_of_the_commit_again(
    project: Repo, deed: str
) -> None:
    place, places = place_of(project), places_of(project)
    (place.root.parent / "elsewhere").mkdir(parents=True)
    (place.root.parent / "elsewhere/main.py").write_text("theirs")
    before, wanted = seen(project), listing(project, "HEAD")
    place.reset(head(project))
    places.add_git_and_settings(place, head(project))
    assert on_disk(place.root) == wanted
    DEEDS[deed](place)
    begin(place, tree_of(project))
    places.add_git_and_settings(place, head(project))
    assert on_disk(place.root) == wanted
    assert in_it(place, "status", "--porcelain") == ""
    assert (place.root.parent / "elsewhere/main.py").read_text() == "theirs"
    assert seen(project) == before


@pytest.mark.parametrize(
    ("flags", "left"),
    [
        ("-ffd", ["a.log", "build/x", "kept"]),
        ("-ffdx", []),
        ("", ["a.log", "build/x", "kept", "new.txt"]),
    ],
)
def test_what_git_ignores_stays_where_it_may(
    project: Repo, flags: str, left: list[str]
) -> None:
    place = checked_out(project)
    for name in ("a.log", "build/x", "kept", "new.txt"):
        path = place.root / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    place.reset(head(project))
    if flags:
        place.clean(head(project), flags)
    assert sorted(on_disk(place.root).keys() - listing(project, "HEAD").keys()) == left


def test_the_lock_of_a_first_checkout_that_was_killed_is_in_nobody_s_way(
    project: Repo,
) -> None:
    place = place_of(project)
    place.open()
    place.index.with_name(f"{place.index.name}.lock").write_bytes(b"DIRC")
    place.reset(head(project))
    assert on_disk(place.root) == listing(project, "HEAD")


def test_a_place_goes_from_one_commit_to_another(project: Repo) -> None:
    place, first = place_of(project), head(project)
    place.reset(first)
    project.git("rm", "-rq", "src")
    project.write("src", "a file now\n")
    project.commit("another")
    for commit in (head(project), first, tree_of(project)):
        place.reset(commit)
        assert on_disk(place.root) == listing(project, commit)


@pytest.mark.parametrize("which", ["root", "parent"])
def test_a_link_in_the_place_of_a_place_is_not_followed(
    project: Repo, which: str
) -> None:
    place = checked_out(project)
    target = project.outside / "target"
    target.mkdir()
    (target / "precious").write_text("theirs")
    link = place.root if which == "root" else place.root.parent
    files.clear(link)
    link.symlink_to(target)
    place.reset(head(project))
    assert os.listdir(target) == ["precious"]
    assert on_disk(place.root) == listing(project, "HEAD")
    assert place.root.parent.stat().st_mode & 0o777 == 0o700


# ---------------------------------------------------------------- snapshot


def nested(place: Checkout, name: str) -> None:
    """A repository of its own with a commit, as `git clone` leaves it."""
    folder = place.root / name
    folder.mkdir(parents=True)
    subprocess.run(["git", "init", "-q", "."], cwd=folder, check=True)
    (folder / "inner.txt").write_text("inner\n")
    who = ["-c", "user.name=x", "-c", "user.email=x@x.invalid"]
    subprocess.run(["git", "add", "-A"], cwd=folder, check=True)
    subprocess.run(["git", *who, "commit", "-qm", "x"], cwd=folder, check=True)


def listens(place: Checkout) -> None:
    with socket.socket(socket.AF_UNIX) as one:
        here = os.getcwd()
        os.chdir(place.root)  # the path of a socket is short
        try:
            one.bind("s")
        finally:
            os.chdir(here)


def write(place: Checkout, name: str, content: str = "new\n") -> None:
    path = place.root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)


FILE, LINK, PROGRAM = "100644", "120000", "100755"
# What is done, how the tree differs from the commit's, and a word of what is said.
WORK: dict[str, tuple[Callable[[Checkout], object], dict[str, tuple[str, str] | None], str]] = {
    "nothing": (lambda p: None, {}, ""),
    "edited": (lambda p: write(p, "a.txt"), {"a.txt": (FILE, "new\n")}, ""),
    "edited, same size, times set back": (same_size, {"a.txt": (FILE, "b\n")}, ""),
    "new": (lambda p: write(p, "n/e/w"), {"n/e/w": (FILE, "new\n")}, ""),
    "deleted": (lambda p: (p.root / "a.txt").unlink(), {"a.txt": None}, ""),
    "made a program": (lambda p: (p.root / "a.txt").chmod(0o755), {"a.txt": (PROGRAM, "a\n")}, ""),
    "a link that leads outside": (lambda p: (p.root / "out").symlink_to("/etc/passwd"), {"out": (LINK, "/etc/passwd")}, ""),
    "a file for a folder": (lambda p: (files.clear(p.root / "src"), write(p, "src")), {"src": (FILE, "new\n"), "src/main.py": None, "src/deep/er/x.txt": None}, ""),
    "a strange name": (lambda p: write(p, "-x :(top)*\n\"é"), {"-x :(top)*\n\"é": (FILE, "new\n")}, ""),
    "ignored": (lambda p: (write(p, "x.log"), write(p, "build/x")), {}, ""),
    "ignored no more": (lambda p: (write(p, ".gitignore", "build/\n"), write(p, "x.log")), {".gitignore": (FILE, "build/\n"), "x.log": (FILE, "new\n")}, ""),
    "a FIFO": (lambda p: os.mkfifo(p.root / "src/fifo"), {}, "git cannot add src/fifo; it was removed"),
    "a FIFO that git would read": (lambda p: (files.clear(p.root / ".gitignore"), os.mkfifo(p.root / ".gitignore")), {".gitignore": None}, "git cannot add .gitignore"),
    "a FIFO among the attributes": (lambda p: os.mkfifo(p.root / "src/.gitattributes"), {}, "git cannot add src/.gitattributes"),
    "a FIFO in an ignored folder": (lambda p: (write(p, "build/x"), os.mkfifo(p.root / "build/fifo")), {}, "git cannot add build/fifo"),
    "a socket": (listens, {}, "git cannot add s"),
    "a repository inside": (lambda p: nested(p, "lib/sub"), {"lib/sub/inner.txt": (FILE, "inner\n")}, "lib/sub was a git repository of its own; its files are part of the work"),
    "an empty repository inside": (lambda p: subprocess.run(["git", "init", "-q", "sub"], cwd=p.root, check=True), {}, "sub was a git repository"),
    "a repository named .GIT": (lambda p: (nested(p, "sub"), (p.root / "sub/.git").rename(p.root / "sub/.GIT")), {"sub/inner.txt": (FILE, "inner\n")}, "sub was a git repository"),
    "a repository in an ignored folder": (lambda p: nested(p, "build/sub"), {}, ""),
    "a closed folder": (lambda p: (write(p, "n/x"), (p.root / "n").chmod(0)), {"n/x": (FILE, "new\n")}, ""),
    "hidden from the index": (lambda p: (in_it(p, "update-index", "--assume-unchanged", "a.txt"), write(p, "a.txt")), {"a.txt": (FILE, "new\n")}, ""),
    "taken out of the index": (lambda p: in_it(p, "rm", "-q", "--cached", "a.txt"), {}, ""),
    "hidden by its own exclude rules": (lambda p: (write(p, ".git/info/exclude", "*\n"), write(p, "x")), {"x": (FILE, "new\n")}, ""),
    "hidden by its own settings": (lambda p: (in_it(p, "config", "core.excludesFile", "/dev/null"), write(p, "x.log")), {}, ""),
    "a filter of its own": (lambda p: (in_it(p, "config", "filter.x.clean", "echo EVIL"), write(p, ".git/info/attributes", "* filter=x\n"), write(p, "a.txt")), {"a.txt": (FILE, "new\n")}, ""),
    "committed": (lambda p: (write(p, "a.txt"), in_it(p, "commit", "-qam", "mine")), {"a.txt": (FILE, "new\n")}, ""),
    "committed and reset": (lambda p: (write(p, "a.txt"), in_it(p, "commit", "-qam", "mine"), in_it(p, "reset", "-q", "--hard", "HEAD~1")), {}, ""),
    "stashed": (lambda p: (write(p, "a.txt"), in_it(p, "stash", "-q")), {}, ""),
    "another branch": (lambda p: (in_it(p, "switch", "-qc", "other"), write(p, "a.txt")), {"a.txt": (FILE, "new\n")}, ""),
    "its .git deleted": (lambda p: (files.clear(p.root / ".git"), write(p, "a.txt")), {"a.txt": (FILE, "new\n")}, ""),
    "objects pruned": (lambda p: (write(p, "a.txt"), in_it(p, "add", "-A"), in_it(p, "gc", "-q", "--prune=now"), files.clear(p.root / ".git/objects")), {"a.txt": (FILE, "new\n")}, ""),
}  # fmt: skip


def begun(repo: Repo, place: Checkout, commit: str = "HEAD") -> Start:
    """A place with the files of a commit, as an agent finds it."""
    tree = tree_of(repo, commit)
    place.reset(tree)
    places_of(repo).add_git_and_settings(place, head(repo, commit))
    hide(place, [])
    return Start("x", tree, snapshot.snapshot(place, tree)[0])


def left_in(place: Checkout, start: Start) -> tuple[str, list[str]]:
    """The tree that an agent left, and what is said."""
    removed = remove_unusable(place, start.tree)
    after, said = snapshot.snapshot(place, start.tree)
    found = work(place, start.tree, start.snapshot, after)
    names, lines = litter(place, start.tree, found)
    kept = {name: pair for name, pair in found.items() if name not in names}
    tree = with_work(place, start.tree, start.snapshot, after, kept)
    return tree, [*removed, *said, *lines]


def taken(
    repo: Repo, place: Checkout, work: Callable[[Checkout], object]
) -> tuple[dict[str, object], list[str]]:
    """What becomes of a piece of work: how it differs from HEAD, and what is said."""
    start = begun(repo, place)
    work(place)
    tree, said = left_in(place, start)
    base, found = listing(repo, "HEAD"), listing(repo, tree)
    return {
        name: found.get(name)
        for name in base.keys() | found.keys()
        if base.get(name) != found.get(name)
    }, said


@pytest.mark.parametrize("name", WORK)
def test_a_snapshot_is_what_stands_there_and_git_does_not_ignore(
    project: Repo, name: str
) -> None:
    work, wanted, word = WORK[name]
    before = seen(project)
    found, said = taken(project, place_of(project), work)
    assert found == wanted
    assert len(said) == bool(word) and word in "".join(said)
    assert seen(project) == before


def believing(self: Checkout, tree: str) -> tuple[str, list[str]]:
    """A snapshot that goes by the `.git` that the agent had."""
    in_it(self, "add", "-A")
    found = in_it(self, "write-tree").strip()
    own = self.root / ".git/objects"
    for path in files.walk(own):
        target = self.home.common / "objects" / path.relative_to(own)
        if not target.exists():
            target.parent.mkdir(exist_ok=True)
            target.write_bytes(path.read_bytes())
    return found, []


@pytest.mark.parametrize(
    "name", ["hidden from the index", "hidden by its own exclude rules"]
)
def test_a_snapshot_that_believes_the_agent_s_git_is_caught(
    project: Repo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    work, wanted, _ = WORK[name]
    monkeypatch.setattr(snapshot, "snapshot", believing)
    assert taken(project, place_of(project), work)[0] != wanted


def test_a_snapshot_that_does_not_look_for_fifos_is_caught(
    project: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checkouts, "_look", lambda root: ([], []))
    monkeypatch.setattr(snapshot, "BULK", 1.0)
    _, said = taken(project, place_of(project), WORK["a FIFO that git would read"][0])
    assert any(
        "git could not add the work: git add did not end within 1" in line
        for line in said
    )


def test_a_filter_may_take_long_in_a_checkout(
    project: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of LFS does, which downloads files."""
    project.write(".gitattributes", "*.big filter=slow\n")
    project.write("a.big", "all of it\n")
    project.commit("a large file")
    project.git("config", "filter.slow.smudge", "sleep 1; cat")
    monkeypatch.setattr(checkouts, "BULK", 0.5)
    place = checked_out(project)
    assert (place.root / "a.big").read_text() == "all of it\n"


def test_copies_of_the_plan_are_read_and_are_no_part_of_the_work(project: Repo) -> None:
    project.plan({})
    project.commit("a tracked plan")
    project.write("progress.txt", "notes\n")
    place = checked_out(project, "prd.json", "progress.txt", "AGENTS.md")
    project.write("prd.json", '{"newer": 1}')
    copied = copy_state(place)
    assert copied == {"prd.json": b'{"newer": 1}', "progress.txt": b"notes\n"}
    assert on_disk(place.root)["prd.json"][1] == '{"newer": 1}'
    write(place, "prd.json", "EVIL")
    write(place, "progress.txt", "EVIL")
    write(place, "AGENTS.md", "EVIL")
    write(place, ".ralph-handoff.md", "status: done")
    write(place, "new.txt")
    tree, _ = snapshot.snapshot(place, head(project))
    assert listing(project, tree) == {
        **listing(project, "HEAD"),
        "new.txt": (FILE, "new\n"),
    }
    assert (
        project.read("prd.json") == '{"newer": 1}'
        and not (project.path / "AGENTS.md").exists()
    )


def test_a_link_in_the_place_of_a_copy_leads_nowhere(project: Repo) -> None:
    project.plan({})
    place = checked_out(project, "prd.json")
    (project.outside / "theirs").write_text("theirs")
    (place.root / "prd.json").symlink_to(project.outside / "theirs")
    copy_state(place)
    assert (project.outside / "theirs").read_text() == "theirs"
    assert (place.root / "prd.json").read_text() == project.read("prd.json")


def test_what_known_tools_leave_beside_the_work_is_no_part_of_it(
    project: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    project.write("tracked.egg-info/x", "theirs\n")
    project.git("add", "-f", "tracked.egg-info")
    project.git("commit", "-qm", "tracked all the same")
    private = project.path / ".git/ralph/plan"
    private.mkdir(parents=True)
    freeze_settings(Git.at(project.path), private)

    def work(place: Checkout) -> None:
        for name in (
            "src/__pycache__/m.pyc",
            "node_modules/x/i.js",
            ".venv/bin/x",
            ".DS_Store",
            "m.pyc",
        ):
            write(place, name)
        write(place, "tracked.egg-info/x")
        write(place, "src/new.py")

    found, _ = taken(project, place_of(project), work)
    assert found == {
        "src/new.py": (FILE, "new\n"),
        "tracked.egg-info/x": (FILE, "new\n"),
    }


def test_a_person_s_settings_are_read_once_and_an_agent_s_edit_of_them_never(
    project: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ignore, config = tmp_path / "ignore", tmp_path / "gitconfig"
    ignore.write_text("*.mine\n")
    config.write_text(f"[core]\n\texcludesFile = {ignore}\n[user]\n\tname = Me\n")
    private = project.path / ".git/ralph/plan"
    private.mkdir(parents=True)
    freeze_settings(Git.at(project.path), private)

    def work(place: Checkout) -> None:
        ignore.write_text("*\n")
        config.write_text("[core]\n\texcludesFile = /dev/null\n\tworktree = /nowhere\n")
        write(place, "x.mine")
        write(place, "x.txt")

    found, _ = taken(project, place_of(project), work)
    assert found == {"x.txt": (FILE, "new\n")}


def test_a_snapshot_is_made_again_where_gc_took_what_only_the_index_named(
    project: Repo,
) -> None:
    place = checked_out(project)
    write(place, "x.txt", "new\n")
    os.utime(place.root / "x.txt", (0, 0))  # else git would read it again anyway
    tree, _ = snapshot.snapshot(place, head(project))
    project.git("gc", "-q", "--prune=now")
    assert snapshot.snapshot(place, head(project)) == (tree, [])
    assert project.git("show", f"{tree}:x.txt") == "new\n"


def test_a_file_of_the_branch_is_not_replaced_by_one_that_is_ignored_at_home(
    project: Repo,
) -> None:
    project.write(".env", "the branch's\n")
    project.git("add", "-f", ".env")
    project.commit("with it")
    branch = head(project)
    project.git("rm", "-q", "--cached", ".env")
    project.write(".gitignore", ".env\n")
    project.write(".worktreeinclude", ".env\n")
    project.write(".env", "mine\n")
    place = place_of(project)
    place.reset(branch)
    places_of(project).add_git_and_settings(place, branch)
    assert (place.root / ".env").read_text() == "the branch's\n"
    assert (
        snapshot.snapshot(place, branch)[0]
        == project.git("rev-parse", f"{branch}^{{tree}}").strip()
    )


def test_files_to_carry_over_are_copied_and_never_committed(project: Repo) -> None:
    project.write(".gitignore", ".env*\n/secrets/\n*.log\nbuild/\n/kept\n")
    project.commit("ignore")
    project.write(".env", "KEY=1\n").chmod(0o600)
    project.write("secrets/deep/key", "k\n")
    project.write(".env.prod", "no\n")
    project.write("loose.txt", "not ignored\n")
    project.write("../shared/env", "LINKED=1\n")
    (project.path / ".env.link").symlink_to("../shared/env")
    (project.path / ".env.folder").symlink_to("../shared")
    project.write(".worktreeinclude", ".env*\n!.env.prod\nsecrets/\nloose.txt\na.txt\n")
    place, places = place_of(project), places_of(project)
    start = begun(project, place)
    assert place.carried == [".env", ".env.link", "secrets/deep/key"]
    copy = place.root / ".env.link"
    assert not copy.is_symlink() and copy.read_text() == "LINKED=1\n"
    copy = place.root / ".env"
    assert (copy.read_text(), copy.stat().st_mode & 0o777, copy.is_symlink()) == (
        "KEY=1\n",
        0o600,
        False,
    )
    copy.write_text("EVIL")
    write(place, ".gitignore", "")
    write(place, "a.txt", "KEY=1\n")
    (place.root / "moved").write_text("k\n")
    tree, said = left_in(place, start)
    assert listing(project, tree) == {
        **listing(project, "HEAD"),
        ".gitignore": (FILE, ""),
    }
    assert said == [
        "a.txt (a copy of .env, which git ignores; left out)",
        "moved (a copy of secrets/deep/key, which git ignores; left out)",
    ]
    assert project.read(".env") == "KEY=1\n"
    place.reset(head(project))
    places.add_git_and_settings(place, head(project))
    assert copy.read_text() == "KEY=1\n"


def test_a_large_file_is_copied_in_pieces_once_and_holes_stay_holes(
    project: Repo,
) -> None:
    project.write(".gitignore", "data/\n")
    project.write(".worktreeinclude", "data/\n")
    project.commit("ignore")
    large = project.write("data/large", "")
    with large.open("r+b") as file:
        for at in (0, 3 << 20, 32 << 20):
            file.seek(at)
            file.write(b"x")
        file.truncate(40 << 20)
    large.chmod(0o440)
    before = large.stat()
    place, places = place_of(project), places_of(project)
    tracemalloc.start()
    start = begun(project, place)
    copy = place.root / "data/large"
    shutil.copyfile(copy, place.root / "mine")
    _, said = left_in(place, start)
    assert said == ["mine (a copy of data/large, which git ignores; left out)"]
    assert tracemalloc.get_traced_memory()[1] < 20 << 20
    tracemalloc.stop()
    after = copy.stat()
    assert (after.st_mtime_ns, after.st_mode, after.st_nlink) == (
        before.st_mtime_ns,
        before.st_mode,
        1,
    )
    assert filecmp.cmp(copy, large, shallow=False) and after.st_blocks * 512 < 8 << 20
    copied = copy.stat().st_ctime_ns
    places.add_git_and_settings(place, head(project))
    assert copy.stat().st_ctime_ns == copied
    os.utime(large, ns=(0, before.st_mtime_ns + 1))
    places.add_git_and_settings(place, head(project))
    assert copy.stat().st_ctime_ns > copied


def test_what_is_ignored_and_new_is_named_and_caches_are_not(project: Repo) -> None:
    project.write(
        ".gitignore",
        "build/\nnode_modules/\n*.log\n__pycache__/\n.aider*\n.opencode/.gitignore\n",
    )
    project.commit("ignore")
    place = checked_out(project)
    write(place, "build/old")
    write(place, "node_modules/old/x")
    moment = (place.root / "node_modules/old/x").stat().st_ctime + 0.001
    while True:  # until the clock of this file system has gone on
        write(place, "x.log")
        if (place.root / "x.log").stat().st_ctime >= moment:
            break
    habits = (
        ".aider.chat.history.md",
        ".aider.tags.cache.v4/cache.db",
        ".opencode/.gitignore",
    )
    for name in (
        "build/new",
        "src/__pycache__/m.pyc",
        "build/.cache/x",
        "dist.log",
        *habits,
    ):
        write(place, name)
    write(place, "node_modules/mine/y")
    assert sorted(ignored_since(place, moment)) == [
        "build",
        "dist.log",
        "node_modules",
        "x.log",
    ]


# ---------------------------------------------------------------- protected files

# protect, allow, the work, what is put back, what is new, and how the tree differs at
# the end.
EDITS: dict[str, tuple[list[str], list[str], dict[str, str | None], list[str], list[str], dict[str, str | None]]] = {
    "nothing protected": ([], [], {"tests/a.py": "x"}, [], [], {"tests/a.py": "x"}),
    "an existing file": (["tests/**"], [], {"tests/a.py": "x", "a.txt": "y"}, ["tests/a.py"], [], {"a.txt": "y"}),
    "a deleted file": (["tests/**"], [], {"tests/a.py": None}, ["tests/a.py"], [], {}),
    "a file that became a folder": (["tests/**"], [], {"tests/a.py": None, "tests/a.py/x": "x"}, ["tests/a.py"], ["tests/a.py/x"], {}),
    "a folder that became a file": (["tests/**"], [], {"tests": "x"}, ["tests/a.py", "tests/deep/b.py"], [], {}),
    "a new file": (["tests/**"], [], {"tests/new.py": "x"}, [], ["tests/new.py"], {"tests/new.py": "x"}),
    "a new file with a plain name": (["conftest.py"], [], {"sub/conftest.py": "x"}, ["sub/conftest.py"], [], {}),
    "a new file whose path is a pattern": (["/.cargo/config.toml"], [], {".cargo/config.toml": "x", ".cargo/audit.toml": "x"}, [".cargo/config.toml"], [], {".cargo/audit.toml": "x"}),
    "new files in a folder that is a pattern": (["tests/deep"], [], {"tests/deep/c.py": "x"}, [], ["tests/deep/c.py"], {"tests/deep/c.py": "x"}),
    "lifted for all": (["tests/**"], ["tests/**"], {"tests/a.py": "x"}, [], [], {"tests/a.py": "x"}),
    "lifted for one": (["tests/**"], ["tests/a.py"], {"tests/a.py": "x", "tests/deep/b.py": "x"}, ["tests/deep/b.py"], [], {"tests/a.py": "x"}),
    "a plain name, lifted": (["conftest.py"], ["conftest.py"], {"conftest.py": "x"}, [], [], {"conftest.py": "x"}),
    "a strange name": (["odd*"], [], {"odd é\n.txt": "x"}, ["odd é\n.txt"], [], {}),
    "a state file": ([], ["prd.json"], {"prd.json": "x"}, ["prd.json"], [], {}),
    "a new state file": ([], [], {"progress.txt": "x"}, ["progress.txt"], [], {}),
    "a state file elsewhere": ([], [], {"sub/prd.json": "x"}, [], [], {"sub/prd.json": "x"}),
}  # fmt: skip


def edited(repo: Repo, name: str) -> tuple[list[str], list[str], dict[str, str | None]]:
    protect, allow, work, *_ = EDITS[name]
    for path in ("tests/a.py", "tests/deep/b.py", "odd é\n.txt", "prd.json"):
        repo.write(path, "real\n")
    repo.commit("files")
    place = checked_out(repo)
    for path, content in work.items():
        files.clear(place.root / path)
        if content is not None:
            if not (place.root / path).parent.is_dir():
                files.clear((place.root / path).parent)
            write(place, path, content)
    left, _ = snapshot.snapshot(place, head(repo))
    tree, back, new = restore(
        place.git, head(repo), left, protect, allow, ["prd.json", "progress.txt"]
    )
    base, found = listing(repo, "HEAD"), listing(repo, tree)
    changed = {
        one: found[one][1] if one in found else None
        for one in base.keys() | found.keys()
        if base.get(one) != found.get(one)
    }
    return sorted(back), sorted(new), changed


@pytest.mark.parametrize("name", EDITS)
def test_protected_files_are_put_back_as_an_edit_of_the_tree(
    repo: Repo, name: str
) -> None:
    *_, back, new, tree = EDITS[name]
    assert edited(repo, name) == (back, new, tree)


CAFE = "caf\u00e9"
# The same for names that the disk does not tell apart: protect, allow, a new file, and
# whether it stays out.
BLIND: dict[str, tuple[str, str, str, bool]] = {
    "another case": ("conftest.py", "", "Conftest.py", True),
    "a folder's": ("/.config/nextest.toml", "", ".Config/nextest.toml", True),
    "another form": (f"{CAFE}.py", "", "cafe\u0301.py", True),
    "a pattern in another form": ("cafe\u0301.py", "", f"{CAFE}.py", True),
    "one of ralph's own": ("", "", "PRD.json", True),
    "lifted": ("conftest.py", "CONFTEST.py", "Conftest.py", False),
    "another file": ("conftest.py", "", "conftest.pyi", False),
}


@pytest.mark.parametrize("blind", [True, False])
@pytest.mark.parametrize("name", BLIND)
def test_names_that_the_disk_does_not_tell_apart_are_protected_as_one(
    repo: Repo, name: str, blind: bool
) -> None:
    """Where this disk tells them apart, one that does not is played: HEAD is there in
    small letters, too."""
    if (repo.path / ".git/head").exists() != blind:
        if not blind:
            pytest.skip("this disk does not")
        (repo.path / ".git/head").touch()
    protect, allow, new, out = BLIND[name]
    line = f"100644 {repo.git('hash-object', 'a.txt').strip()}\t{new}"
    tree = Git.at(repo.path).edited(head(repo), [line])
    words = (
        ["tests/**", *([protect] if protect else [])],
        [allow] if allow else [],
        ["prd.json"],
    )
    _, back, _ = restore(Git.at(repo.path), head(repo), tree, *words)
    assert [*back] == [new] * (out and blind)


@pytest.mark.parametrize(
    "mutant", ["no patterns", "plain names allowed", "modes forgotten"]
)
def test_a_restore_that_forgets_something_is_caught(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    if mutant == "no patterns":
        monkeypatch.setattr(patterns, "matching", lambda *_: set())
        assert "tests/a.py" in edited(repo, "an existing file")[2]
    elif mutant == "plain names allowed":
        monkeypatch.setattr(patterns, "plain_names", lambda protect: set())
        assert "sub/conftest.py" in edited(repo, "a new file with a plain name")[2]
    else:
        real = Entry.__init__
        monkeypatch.setattr(
            Entry, "__init__", lambda self, mode, blob: real(self, "100755", blob)
        )
        assert "tests/a.py" in edited(repo, "an existing file")[2]


def test_the_mode_of_a_protected_file_is_put_back_too(repo: Repo) -> None:
    repo.program("tests/run.sh", "true")
    repo.commit("a program")
    place = checked_out(repo)
    (place.root / "tests/run.sh").chmod(0o644)
    left, _ = snapshot.snapshot(place, head(repo))
    tree, back, _ = restore(place.git, head(repo), left, ["tests/**"], [], [])
    assert (tree, [*back]) == (tree_of(repo), ["tests/run.sh"])


def test_changes_name_the_files_and_count_the_lines(repo: Repo) -> None:
    before = head(repo)
    repo.write("a.txt", "b\nc\n")
    repo.write("é\n", "x\n")
    (repo.path / "blob").write_bytes(b"\0\1")
    repo.commit("work")
    git = Git.at(repo.path)
    assert changes(git, before, head(repo)) == (
        ["a.txt", "blob", "é\n"],
        "3 files, +3 -1",
    )
    assert changes(git, before, before) == ([], "")


# ---------------------------------------------------------------- kinds of repository


@pytest.fixture
def modular(repo: Repo) -> Repo:
    return with_lib(repo)


def with_lib(repo: Repo) -> Repo:
    """A repository with a submodule, which has one itself; where they came from is
    gone."""
    allow = ("-c", "protocol.file.allow=always", "submodule")
    for name, inner in (("leaf", ""), ("lib", "leaf")):
        other = repo.copy(repo.outside / f"from-{name}")
        other.write(f"{name}.txt", f"{name}\n")
        other.commit(name)
        if inner:
            other.git(
                *allow,
                "add",
                "-q",
                f"{repo.outside}/from-{inner}/repo",
                f"deps/{inner}",
            )
            other.commit(f"with {inner}")
    repo.git(
        *allow,
        "add",
        "-q",
        "--name",
        "the lib",
        f"{repo.outside}/from-lib/repo",
        "vendor/lib",
    )
    repo.git(*allow, "update", "-q", "--init", "--recursive")
    repo.commit("with lib")
    for name in ("leaf", "lib"):
        files.clear(repo.outside / f"from-{name}")
    return repo


def test_submodules_come_from_home_s_own_copies_the_nested_ones_too(
    modular: Repo,
) -> None:
    place = place_of(modular)
    for _ in range(2):
        place.reset(head(modular))
        found = on_disk(place.root)
        assert found["vendor/lib/lib.txt"] == (FILE, "lib\n")
        assert found["vendor/lib/deps/leaf/leaf.txt"] == (FILE, "leaf\n")
        write(place, "vendor/lib/deps/leaf/leaf.txt", "EVIL")
        write(place, "vendor/lib/new.txt")
        files.clear(place.root / "vendor/lib/lib.txt")
    assert modular.git("status", "--porcelain", "--ignore-submodules=none") == ""


def test_an_agent_s_edit_of_a_person_s_settings_is_not_read_in_a_submodule(
    modular: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    config, place = tmp_path / "gitconfig", place_of(modular)
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    freeze_settings(place.home, tmp_path)
    config.write_text(
        f'[core]\n\tattributesFile = {tmp_path}/own\n[filter "evil"]\n\tsmudge = echo EVIL\n'
    )
    (tmp_path / "own").write_text("* filter=evil\n")
    place.reset(head(modular))
    assert (place.root / "vendor/lib/lib.txt").read_text() == "lib\n"


def test_a_submodule_s_filter_that_hangs_ends_when_ralph_must_stop(
    modular: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("_ralph.git.git._HURRY", 0.2)
    place, control = place_of(modular), Control()
    lib = modular.path / ".git/modules/the lib"
    (lib / "info").mkdir(exist_ok=True)
    (lib / "info/attributes").write_text("* filter=slow\n")
    modular.git("--git-dir", str(lib), "config", "filter.slow.smudge", "sleep 60; cat")
    place.home.calls.control, control.stop_signal = control, signal.SIGTERM
    with within(10), pytest.raises(StopNow):
        place.reset(head(modular))


def test_what_is_changed_in_a_submodule_is_named_and_is_no_part_of_the_work(
    modular: Repo,
) -> None:
    place = checked_out(modular)
    assert snapshot.snapshot(place, head(modular)) == (tree_of(modular), [])
    write(place, "vendor/lib/lib.txt", "EVIL")
    write(place, "a.txt", "work\n")
    tree, said = snapshot.snapshot(place, head(modular))
    assert said == [
        "vendor/lib is a submodule; what was changed in it is not part of the work"
    ]
    assert changes(place.home, head(modular), tree)[0] == ["a.txt"]
    files.clear(place.root / "vendor")
    assert changes(
        place.home, head(modular), snapshot.snapshot(place, head(modular))[0]
    )[0] == ["a.txt"]


@pytest.mark.parametrize("deed", ["edited", "removed", "a folder"])
def test_where_submodules_are_is_no_part_of_the_work(modular: Repo, deed: str) -> None:
    """An edit that led to another copy, which lacks the commit, ended every run."""
    place = checked_out(modular)
    words = (place.root / ".gitmodules").read_text()
    files.clear(place.root / ".gitmodules")
    if deed != "removed":
        name = ".gitmodules/x" if deed == "a folder" else ".gitmodules"
        write(place, name, words.replace("path = vendor/lib", "path = elsewhere"))
    write(place, "a.txt", "work\n")
    tree, said = snapshot.snapshot(place, head(modular))
    assert changes(place.home, head(modular), tree)[0] == ["a.txt"]
    assert said == [
        ".gitmodules says where the submodules are; what was changed in it is not part of the work"
    ]


@pytest.mark.parametrize("link", ["vendor", "vendor/lib"])
def test_a_link_in_the_place_of_a_submodule_is_no_part_of_the_work(
    modular: Repo, link: str
) -> None:
    place, before = place_of(modular), seen(modular)
    for taken_first in (True, False):
        place.reset(head(modular))
        files.clear(place.root / link).symlink_to(modular.path / link)
        write(place, "new.txt")
        if taken_first:
            tree, said = snapshot.snapshot(place, head(modular))
            assert changes(place.home, head(modular), tree)[0] == ["new.txt"]
            assert said == [
                "vendor/lib is a submodule; what was changed in it is not part of the work"
            ]
    assert place.reset(head(modular)) is False
    assert on_disk(place.root)["vendor/lib/lib.txt"] == (FILE, "lib\n")
    assert seen(modular) == before


def test_a_copy_of_the_plan_behind_a_link_keeps_no_work_out(project: Repo) -> None:
    project.write("plans/prd.json", "{}")
    place = checked_out(project, "plans/prd.json")
    (place.root / "plans").symlink_to("src")
    write(place, "new.txt")
    tree, said = snapshot.snapshot(place, head(project))
    assert (changes(place.home, head(project), tree)[0], said) == (
        ["new.txt", "plans"],
        [],
    )


def test_a_place_that_git_cannot_read_is_made_anew(project: Repo) -> None:
    place = checked_out(project)
    place.index.write_bytes(b"garbage")
    assert place.reset(head(project)) is True
    assert snapshot.snapshot(place, head(project)) == (tree_of(project), [])


def test_no_filter_runs_in_an_ignored_repository_that_the_index_has(
    project: Repo,
) -> None:
    project.git(
        "update-index", "--add", "--cacheinfo", f"160000,{head(project)},vendor/sub"
    )
    project.git("commit", "-qm", "a repository without .gitmodules")
    place, ran = place_of(project), project.outside / "ran"
    place.reset(head(project))
    write(place, ".gitignore", "vendor/\n")
    inside = place.root / "vendor/sub"
    project.git("clone", "-q", str(project.path), str(inside))
    project.git("-C", str(inside), "checkout", "-q", "HEAD~1")
    leave_filter(inside, "a.txt", ran)
    tree, _ = left_in(place, Start("x", tree_of(project), tree_of(project)))
    assert changes(place.home, head(project), tree)[0] == [".gitignore"]
    assert not ran.exists()


def leave_filter(inside: Path, name: str, ran: Path) -> None:
    """What a `git status` would run in the repository `inside`."""
    subprocess.run(
        ["git", "config", "filter.evil.clean", f"touch '{ran}'; cat"],
        cwd=inside,
        check=True,
    )
    (inside / ".gitattributes").write_text("* filter=evil\n")
    os.utime(inside / name, (1, 1))


def test_a_linked_worktree_has_submodules_of_its_own(modular: Repo) -> None:
    modular.git("worktree", "add", "-q", str(modular.outside / "tree"))
    modular.git(
        "config", "submodule.the lib.url", f"{modular.path}/.git/modules/the lib"
    )
    update = ("-c", "protocol.file.allow=always", "submodule", "update", "-q", "--init")
    modular.git("-C", str(modular.outside / "tree"), *update)
    files.clear(modular.path / ".git/modules")
    home = Git.at(modular.outside / "tree")
    place = Checkout(
        home, modular.outside / "places/work-1", home.common / "ralph/plan/work-1.index"
    )
    place.reset(head(modular))
    assert on_disk(place.root)["vendor/lib/lib.txt"] == (FILE, "lib\n")
    assert snapshot.snapshot(place, head(modular))[0] == tree_of(modular)


def test_a_submodule_that_home_has_no_copy_of_is_an_empty_folder(modular: Repo) -> None:
    files.clear(modular.path / ".git/modules")
    files.clear(modular.path / "vendor/lib")
    place = checked_out(modular)
    assert os.listdir(place.root / "vendor/lib") == []
    assert snapshot.snapshot(place, head(modular))[0] == tree_of(modular)


def test_a_submodule_without_its_commit_at_home_is_said(modular: Repo) -> None:
    modular.git("update-index", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    modular.git("commit", "-qm", "pulled")
    with pytest.raises(BadInput, match="vendor/lib has no commit 111111111111 here"):
        place_of(modular).reset(head(modular))


def test_a_sparse_home_has_sparse_places_and_all_work_counts(project: Repo) -> None:
    project.write("other/big.txt", "big\n")
    project.commit("other")
    project.git("sparse-checkout", "set", "--cone", "src")
    assert not (project.path / "other").exists()
    place = furnished(project)
    assert not (place.root / "other").exists() and (place.root / "src/main.py").exists()
    assert in_it(place, "status", "--porcelain") == ""
    assert snapshot.snapshot(place, head(project)) == (tree_of(project), [])
    write(place, "other/new.txt")
    write(place, "other/big.txt", "edited\n")
    write(place, "src/main.py", "edited\n")
    tree, _ = snapshot.snapshot(place, head(project))
    assert changes(place.home, head(project), tree)[0] == [
        "other/big.txt",
        "other/new.txt",
        "src/main.py",
    ]


@pytest.mark.parametrize("flag", ["--skip-worktree", "--assume-unchanged"])
def test_a_file_that_home_s_index_hides_is_work_all_the_same(
    project: Repo, flag: str
) -> None:
    project.git("update-index", flag, "a.txt")
    found, _ = taken(project, place_of(project), lambda p: write(p, "a.txt"))
    assert found == {"a.txt": (FILE, "new\n")}


def test_a_repository_with_sha256(tmp_path: Path) -> None:
    made = Repo(tmp_path / "new", git=False)
    made.git("init", "-q", "-b", "main", "--object-format=sha256", "--template=")
    made.git("config", "user.email", "test@example.invalid")
    made.git("config", "user.name", "Test")
    made.commit("start")
    place = furnished(made)
    assert in_it(place, "log", "--format=%H").strip() == head(made)
    write(place, "a.txt", "b\n")
    in_it(place, "commit", "-qam", "of an agent")
    tree, said = snapshot.snapshot(place, head(made))
    assert (len(tree), said, listing(made, tree)["a.txt"]) == (64, [], (FILE, "b\n"))


def at(repo: Repo, name: str) -> Repo:
    """The worktree or clone of this name beside a repository."""
    made = copy.copy(repo)
    made.path = repo.outside / name
    return made


def test_a_linked_worktree(project: Repo) -> None:
    project.git("worktree", "add", "-q", "-b", "side", str(project.outside / "linked"))
    linked = at(project, "linked")
    linked.write("a.txt", "of the side\n")
    linked.commit("side")
    found, _ = taken(linked, place_of(linked), lambda p: write(p, "new.txt"))
    assert found == {"new.txt": (FILE, "new\n")}
    place = place_of(linked)
    assert (place.root / "a.txt").read_text() == "of the side\n"
    assert in_it(place, "log", "-1", "--format=%s").strip() == "side"
    assert project.git("worktree", "list").count("\n") == 2


def test_a_shallow_clone(project: Repo) -> None:
    project.write("a.txt", "b\n")
    project.commit("second")
    project.git(
        "clone",
        "-q",
        "--depth=1",
        f"file://{project.path}",
        str(project.outside / "shallow"),
    )
    shallow = at(project, "shallow")
    place = furnished(shallow)
    assert in_it(place, "log", "--format=%s").split() == ["second"]
    assert in_it(place, "fsck", "--connectivity-only") == ""
    write(place, "new.txt")
    tree, _ = snapshot.snapshot(place, head(shallow))
    assert changes(place.home, head(shallow), tree)[0] == ["new.txt"]


# ---------------------------------------------------------------- the throwaway .git


def test_the_throwaway_git_is_as_if_somebody_had_cloned(project: Repo) -> None:
    project.git("tag", "v1.0", "HEAD~1")
    project.git("tag", "-a", "v1.1", "-m", "annotated")
    project.git("remote", "add", "origin", "https://example.invalid/x.git")
    project.git("config", "credential.helper", "store")
    project.git("config", "alias.x", "!touch /tmp/x")
    project.program(".git/hooks/pre-commit", "exit 1")
    place = furnished(project, branch="feature/é x".replace(" ", "-"))
    assert in_it(place, "describe").strip() == "v1.1"
    assert in_it(place, "rev-parse", "v1.0^{commit}", "v1.1^{commit}").split() == [
        head(project, "HEAD~1"),
        head(project),
    ]
    assert in_it(place, "symbolic-ref", "HEAD").strip() == "refs/heads/feature/é-x"
    assert in_it(place, "branch", "--format=%(refname:short)").split() == [
        "feature/é-x"
    ]
    assert in_it(place, "log", "--format=%s").splitlines() == ["project", "start"]
    assert os.listdir(place.root / ".git/hooks") == []
    asked = ("remote", "get-url", "origin")
    assert in_it(place, *asked).strip() == "https://example.invalid/x.git"
    assert in_it(place, *asked, "--push").strip() == NO_PUSH
    settings = in_it(place, "config", "--list", "--local")
    assert "user.email=test@example.invalid" in settings
    assert not any(word in settings for word in ("credential.", "alias.", "hookspath"))
    assert in_it(place, "fsck", "--full") == ""


def test_a_place_has_home_s_remote_tracking_branches_and_of_local_ones_ralph_s_own(
    project: Repo,
) -> None:
    project.git("branch", "main-of-mine")
    project.git("tag", "-a", "v1", "-m", "annotated", "HEAD~1")
    project.git("tag", "ralph/p", "HEAD~1")
    for name in ("origin/main", "origin/a\u2028b", "up/ralph/p", "ralph/p"):
        project.git("update-ref", f"refs/remotes/{name}", "HEAD~1")
    project.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    project.git("symbolic-ref", "refs/remotes/up/HEAD", "refs/remotes/up/unborn")
    project.git("symbolic-ref", "refs/remotes/ours/HEAD", "refs/heads/main-of-mine")
    place = furnished(project)
    there = in_it(place, "for-each-ref", "--format=%(refname) %(symref)").split("\n")[
        :-1
    ]
    assert there == [
        "refs/heads/ralph/p ", "refs/remotes/origin/HEAD refs/remotes/origin/main",
        "refs/remotes/origin/a\u2028b ", "refs/remotes/origin/main ", "refs/remotes/ours/HEAD ",
        "refs/remotes/ralph/p ", "refs/remotes/up/ralph/p ", "refs/tags/ralph/p ", "refs/tags/v1 ",
    ]  # fmt: skip
    changed = [".gitignore", "link", "run.sh", "src/deep/er/x.txt", "src/main.py"]
    for base in ("origin/main...", "origin", "v1"):  # as turbo, nx and diff-cover ask
        assert in_it(place, "diff", "--name-only", base).split() == changed
    assert in_it(place, "merge-base", "origin/main", "HEAD").strip() == head(
        project, "HEAD~1"
    )
    assert (
        in_it(place, "rev-parse", "--abbrev-ref", "origin/HEAD").strip()
        == "origin/main"
    )
    assert (
        in_it(place, "rev-parse", "--verify", "-q", "main-of-mine", check=False) == ""
    )
    in_it(place, "checkout", "-q", "main-of-mine", check=False)
    assert in_it(place, "symbolic-ref", "HEAD").strip() == "refs/heads/ralph/p"
    assert in_it(place, "fsck", "--full") == ""


@pytest.mark.parametrize("where", ["the environment", "a person's settings"])
def test_an_agent_commits_under_the_person_s_name(
    project: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, where: str
) -> None:
    for name in ("user.name", "user.email"):
        project.git("config", "--unset", name)
    project.git("config", "user.signingkey", "ABC")
    if where == "the environment":
        for who in ("AUTHOR", "COMMITTER"):
            monkeypatch.setenv(f"GIT_{who}_NAME", 'Zo\u00eb "Z" O\'Neill')
            monkeypatch.setenv(f"GIT_{who}_EMAIL", "zoe@example.invalid")
    else:
        settings = '[user]\n\tname = "Zo\u00eb \\"Z\\" O\'Neill"\n\temail = zoe@example.invalid\n'
        (tmp_path / "gitconfig").write_text(settings)
    place = furnished(project)
    in_it(place, "commit", "-q", "--allow-empty", "-m", "x")
    who = in_it(place, "log", "-1", "--format=%an <%ae>, %cn <%ce>").strip()
    assert who == ", ".join(['Zo\u00eb "Z" O\'Neill <zoe@example.invalid>'] * 2)


def test_nothing_that_is_done_to_the_throwaway_git_reaches_home(project: Repo) -> None:
    project.git("tag", "v1")
    project.git("branch", "mine")
    place, places = place_of(project), places_of(project)
    place.reset(head(project))
    places.add_git_and_settings(place, head(project))
    before, objects = (
        seen(project),
        len(list(files.walk(project.path / ".git/objects"))),
    )
    for words in (
        ("commit", "-q", "--allow-empty", "-m", "x"), ("tag", "-d", "v1"), ("tag", "v9"), ("branch", "other"),
        ("update-ref", "refs/heads/mine", "HEAD"), ("config", "core.hooksPath", "/tmp"), ("stash", "-qu"),
        ("reflog", "expire", "--expire=now", "--all"), ("gc", "-q", "--prune=now"), ("repack", "-adq"),
        ("worktree", "add", "-q", str(project.outside / "wt")), ("checkout", "-q", "--orphan", "new"),
    ):  # fmt: skip
        in_it(place, *words)
    assert seen(project) == before
    assert len(list(files.walk(project.path / ".git/objects"))) == objects
    place.reset(head(project))
    places.add_git_and_settings(place, head(project))
    assert in_it(place, "tag").split() == ["v1"]
    assert in_it(place, "branch", "--format=%(refname:short)").split() == ["ralph/p"]
    assert in_it(place, "stash", "list") == ""


@pytest.mark.parametrize("kept", ["shared .git", "objects written through"])
def test_a_place_that_shares_home_s_git_is_caught(
    project: Repo, monkeypatch: pytest.MonkeyPatch, kept: str
) -> None:
    """The two short cuts that somebody could take instead of a throwaway `.git`."""

    def shared(self: Checkout, at: str, branch: str, common: Mapping[str, str]) -> None:
        own = files.clear(self.root / ".git")
        if kept == "shared .git":
            own.write_text(f"gitdir: {self.home.dir}\n")
            return
        real(self, at, branch, common)
        files.clear(own / "objects")
        (own / "objects").symlink_to(self.home.common / "objects")

    real = write_git
    monkeypatch.setattr(places_module, "write_git", shared)
    with pytest.raises(AssertionError):
        test_nothing_that_is_done_to_the_throwaway_git_reaches_home(project)


def test_filters_work_in_a_place_as_they_do_at_home(project: Repo) -> None:
    project.git("config", "filter.up.clean", "tr a-z A-Z")
    project.git("config", "filter.up.smudge", "tr A-Z a-z")
    project.write(".gitattributes", "*.up filter=up\n*.crlf text eol=crlf\n")
    project.write("x.up", "hello\n")
    project.write("y.crlf", "one\r\n")
    project.commit("filtered")
    assert project.git("show", "HEAD:x.up") == "HELLO\n"
    place = furnished(project)
    assert (place.root / "x.up").read_text() == "hello\n"
    assert (place.root / "y.crlf").read_bytes() == b"one\r\n"
    assert in_it(place, "status", "--porcelain") == ""
    write(place, "x.up", "world\n")
    tree, _ = snapshot.snapshot(place, head(project))
    assert listing(project, tree)["x.up"] == (FILE, "WORLD\n")
    assert listing(project, tree)["y.crlf"] == (FILE, "one\n")


@pytest.mark.parametrize(
    "name", ["made", "[id].ts", "a*?", "\\x", " of two ", "#1", "!"]
)
def test_a_reset_keeps_what_setup_made_whatever_its_name(
    project: Repo, name: str
) -> None:
    place = place_of(project)
    place.reset(tree_of(project))
    write(place, name)
    assert place.untracked() == [name]
    hide(place, [name])
    write(place, "left")
    begin(place, tree_of(project))
    assert (place.root / name).exists() and not (place.root / "left").exists()


@pytest.mark.parametrize(("note", "made"), [
    ('{"stamp": "x", "made": {"a": null}}', ["a"]), ('{"stamp": "x", "made": 5}', []), ('{"stamp": "x"}', []),
    ("[]", []), ("[" * 100_000, []), ("{", []), ('{"inputs": "x", "made": {"a": [1]}}', []),
])  # fmt: skip
def test_a_note_of_setup_is_read_whoever_wrote_it(
    repo: Repo, note: str, made: list[str]
) -> None:
    place = place_of(repo)
    place.beside("setup").parent.mkdir(parents=True, exist_ok=True)
    place.beside("setup").write_text(note)
    assert [*noted_setup(place)[1]] == made


@pytest.mark.parametrize("name", ["/evil", "../evil", "a/../../evil", "linked"])
def test_the_name_of_a_submodule_leads_nowhere_else(repo: Repo, name: str) -> None:
    evil = repo.outside / "evil"
    (evil / "objects").mkdir(parents=True)
    modules = repo.path / ".git/modules"
    modules.mkdir()
    (modules / "linked").symlink_to(evil)
    (modules / "lib/objects").mkdir(parents=True)
    place = place_of(repo)
    assert copy_of(place.home, str(evil) if name == "/evil" else name, "lib") is None
    assert copy_of(place.home, "lib", "lib") == modules / "lib"
