"""What a checkout gets from home: copies of files, and a `.git` as after a clone, which
is thrown away."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from pathlib import Path

from _ralph import files
from _ralph.git.checkout import Checkout, make_folders_real, only
from _ralph.git.git import BULK, Git, names_in, setting
from _ralph.model import LEFT_OUT

_KEYS = (
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.ignorecase",
    "core.symlinks",
    "core.precomposeunicode",
    "core.bigfilethreshold",
    "extensions.objectformat",
    "remote.origin.url",
)
_SECTIONS = ("user.", "filter.", "diff.", "merge.", "lfs.", "init.", "submodule.")
"""Settings of home that a checkout has: how files look, who commits, what filters and
submodules there are."""
NO_PUSH = "ralph pushes nothing, and nor does an agent"
"""What stands where a checkout's `origin` would be pushed to: git says that it is no
repository."""
ANYBODY_S = "ralph-system"
"""In a throwaway `.git`, settings for the other side of a prefix, where the checkout
can be another user's. git before 2.38 heeds `safe.directory` only in a file that stands
for the system's, or the user's."""
_ANYBODY_S = "[include]\n\tpath = /etc/gitconfig\n[safe]\n\tdirectory = *\n"


def throwaway_git(home: Git) -> dict[str, str]:
    """What the throwaway `.git` of every checkout has from home, as files of a git
    folder: what decides how files are checked out, the identity, `origin`, tags and
    remote-tracking branches. Local branches stay away: an agent that checks out `main`
    would seem to delete all that has landed."""
    form = "--format=%(objectname) %(refname) %(symref)"
    listed = home.maybe("for-each-ref", form, "refs/remotes", "refs/tags") or ""
    refs = [line.split(" ") for line in listed.split("\n")[:-1]]
    names = {name for _, name, target in refs if not target}
    found = {"config": _config(home), ANYBODY_S: _ANYBODY_S}
    packed = []
    for commit, name, target in refs:
        if target in names:
            found[name] = f"ref: {target}\n"
        else:
            packed.append(f"{commit} {name}\n")
    found["packed-refs"] = "".join(packed)
    return found


def _config(home: Git) -> str:
    """The configuration of a throwaway `.git`."""
    kept: dict[str, str] = {}
    for entry in names_in(home.maybe("config", "--includes", "--list", "-z")):
        key, _, value = entry.partition("\n")
        if key in _KEYS or key.startswith(_SECTIONS):
            kept[key] = value
    who = home.maybe("var", "GIT_COMMITTER_IDENT") or ""
    identity = re.match("(.*) <(.*)>", who)  # it may stand in the environment alone
    if identity:
        kept["user.name"], kept["user.email"] = identity.groups()
    if "remote.origin.url" in kept:
        kept["remote.origin.pushurl"] = NO_PUSH
        kept["remote.origin.fetch"] = "+refs/heads/*:refs/remotes/origin/*"
    kept["commit.gpgsign"] = "false"
    kept["core.bare"] = "false"
    version = "1" if "extensions.objectformat" in kept else "0"
    kept["core.repositoryformatversion"] = version
    return "".join(setting(f"{key}\n{value}") for key, value in kept.items())


def write_git(
    checkout: Checkout,
    head: str,
    branch: str,
    common: Mapping[str, str],
    copied: Collection[str] = (),
) -> None:
    """Write a new `.git`, as after a clone: HEAD on `branch` at the commit `head`, the
    files of `throwaway_git`, home's objects as alternates; no other branches, no
    hooks. What was `copied` from home it ignores, as home does."""
    home, own = checkout.home, checkout.root / ".git"
    written = {name: os.fsencode(content) for name, content in common.items()}
    written["HEAD"] = os.fsencode(f"ref: refs/heads/{branch}\n")
    # without a header: GitPython, which Aider has, refuses one without `peeled`
    own_ref = os.fsencode(f"{head} refs/heads/{branch}\n")
    written["packed-refs"] = own_ref + written["packed-refs"]
    for name in ("shallow", "info/attributes", "info/exclude"):
        data = files.read_regular(home.common / name)
        if data is not None:
            written[name] = data
    ignored = [only(name) for name in (*LEFT_OUT, *checkout.state, *copied)]
    lines = os.fsencode("\n".join(["", *ignored, ""]))
    written["info/exclude"] = written.get("info/exclude", b"") + lines
    _write(checkout, own, written)
    for path, (commit, module) in checkout.inner(head).items():
        make_folders_real(checkout.root, f"{path}/.git")
        module.root.mkdir(parents=True, exist_ok=True)
        inside = own / "modules" / files.digest(os.fsencode(path))[:8]
        there = os.path.relpath(module.root, inside)
        config = common["config"] + setting(f"core.worktree\n{there}")
        inner = {"HEAD": f"{commit}\n".encode(), "config": os.fsencode(config)}
        _write(module, inside, inner)
        link = f"gitdir: {os.path.relpath(inside, module.root)}\n"
        files.clear(module.root / ".git").write_text(link)


def _write(checkout: Checkout, own: Path, written: dict[str, bytes]) -> None:
    """Make a git folder new: the files `written`, this checkout's index, home's objects
    as alternates."""
    objects = checkout.home.common / "objects"
    written["objects/info/alternates"] = os.fsencode(f"{objects}\n")
    with suppress(RecursionError):  # an agent can nest thousands of folders
        shutil.rmtree(own, ignore_errors=True)  # mostly that is all, and no process
    files.clear(own)
    for name in ("hooks", "refs"):  # without `refs`, git sees no repository
        (own / name).mkdir(parents=True)
    for name, data in written.items():
        path = own / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    shutil.copyfile(checkout.index, own / "index")


def carry(checkout: Checkout, names: Iterable[str]) -> None:
    """Copy files that git ignores from home (`.worktreeinclude`), also those that links
    lead to, unless what is checked out here has files of these names; they are never
    committed."""
    checkout.carried = []
    wanted = [*names]
    if not wanted:
        return
    tracked = set(checkout.git.names("ls-files", "-z", timeout=BULK))
    for name in wanted:
        if name in tracked:
            continue
        make_folders_real(checkout.root, name)
        if files.copy(f"{checkout.home.root}/{name}", f"{checkout.root}/{name}"):
            checkout.carried.append(name)


def copy_state(checkout: Checkout) -> dict[str, str]:
    """Copy the plan, the notes and the rulebook, or what links lead to, for reading;
    the digests of those that are there, by name."""
    copies = {}
    for name in checkout.state:
        source = Path(os.path.realpath(checkout.home.root / name))
        data = files.read_regular(source)
        if data is not None:
            make_folders_real(checkout.root, name)
            target = files.clear(checkout.root / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(data)
            shutil.copymode(source, target)
            copies[name] = files.digest(data)
    return copies
