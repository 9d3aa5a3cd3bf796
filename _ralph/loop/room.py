"""The clean room: a checkout where no agent has ever been. What is green here is what lands."""

from __future__ import annotations

import contextlib
import os
import re
import stat
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import files, text
from _ralph.git import patterns
from _ralph.git.git import BULK, Git, attempted, environment, nul
from _ralph.git.workspace import Place, throwaway_config
from _ralph.loop.checks import run_checks
from _ralph.loop.detect import SETUP_INPUTS
from _ralph.model import Check, CheckResult, Setup
from _ralph.process.process import Control

SETUP_TIMEOUT = 1800.0
"""Seconds that `setup` may take in a place."""
Signature = list[int]


@dataclass
class Site:
    """What all places of a plan have in common: the repository, the branch, the plan's `setup`, the files
    to carry over from home (`carries`, once they are known), and how a command is run."""

    home: Git
    branch: str
    setup: Setup | None
    keep: Sequence[str]
    include: Path
    control: Control
    env: dict[str, str]
    log: Callable[[str], Path]
    told: Callable[[CheckResult, str], None]
    wrap: Callable[[list[str], Path], list[str]]
    _config: str = ""
    _packed: bytes | None = None
    carries: list[str] | None = None
    _hooks: str = ""

    def warm(self) -> None:
        """Ask git once, before workers are forked, for what every place gets."""
        if self._packed is None:
            self._config = throwaway_config(self.home)
            form = "--format=%(objectname) %(refname)%(if)%(*objectname)%(then)%0a^%(*objectname)%(end)"
            tags = self.home("for-each-ref", form, "refs/tags", check=False)
            self._packed = os.fsencode(tags)
            self.carried()
            scopes = self.home("config", "--show-scope", "--path", "--get-all", "core.hooksPath", check=False)
            own = [line.split("\t", 1)[1] for line in scopes.splitlines() if not line.startswith("command\t")]
            self._hooks = own[-1] if own else str(self.home.common / "hooks")

    def hooks(self, room: Path) -> tuple[list[str], str]:
        """The commit hooks that this repository has, as they are found in a place, and the folder they lie
        in. One that `core.hooksPath` leads to inside of the tree is the candidate's own."""
        self.warm()
        folder = room / self._hooks
        names = ("pre-commit", "commit-msg")
        return [name for name in names if os.access(folder / name, os.X_OK)], str(folder)

    def furnish(self, place: Place, head: str) -> None:
        """Give a place its throwaway `.git`, with HEAD at `head`, and what `.worktreeinclude` names."""
        self.warm()
        place.carry(self.carried())
        place.renew_git(head, self.branch, self._config, self._packed or b"")

    def carried(self) -> list[str]:
        """The files at home that `.worktreeinclude` names and git ignores."""
        if self.carries is None:
            self.carries = carried_names(self.home, self.include)
        return self.carries

    def run(self, checks: list[Check], cwd: Path, name: str, label: str = "") -> list[CheckResult]:
        """Run commands in a place, their logs called `name`; fewer come back if ralph was told to stop."""
        return run_checks(
            checks, cwd=cwd, env=self.env, control=self.control,
            log=lambda number: self.log(f"{name}{number + 1}.log"),
            told=lambda result: self.told(result, label),
            wrap=lambda argv: self.wrap(argv, cwd),
        )  # fmt: skip

    def inputs_of(self, place: Place) -> str:
        """A fingerprint of all that `setup` depends on: the command, and the files it reads."""
        if self.setup is None:
            return ""
        entries = [entry.split("\t", 1) for entry in place.git.names("ls-files", "-s", "-z", timeout=BULK)]
        wanted = patterns.matching(self.setup.when or SETUP_INPUTS, [name for _, name in entries])
        wanted |= {word.removeprefix("./") for word in re.findall(r"[\w./-]+", self.setup.run)}  # its scripts
        listed = "\0".join(f"{meta} {name}" for meta, name in entries if name in wanted)
        carried = [files.digest(files.read_regular(place.root / name) or b"") for name in place.carried]
        return files.digest(os.fsencode("\0".join([self.setup.run, listed, *carried])))

    def set_up(self, place: Place, name: str) -> CheckResult | None:
        """Run the plan's `setup` in a place; its result, None if there is no setup or ralph was stopped."""
        if self.setup is None:
            return None
        check = Check("setup", self.setup.run, SETUP_TIMEOUT)
        return next(iter(self.run([check], place.root, f"{name}-setup")), None)


@dataclass
class Room:
    """One clean room. `made` are the files that `setup` left, by name with their signatures: what else
    git does not track goes before the next candidate, but for `keep`."""

    site: Site
    place: Place
    notices: list[str] = field(default_factory=list)
    _tree: str = ""
    _head: str = ""
    _inputs: str = ""
    _made: dict[str, Signature] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where checks run."""
        return self.place.root

    def prepare(self, commit: str, name: str) -> CheckResult | None:
        """Make the room that of the candidate `commit`: its files, those that `setup` makes, nothing
        else. The result of `setup` where it ran and was red."""
        self._tree = self._head = commit
        bare = self.site.setup is None and not self.site.keep
        if self.place.reset(commit, "-ffdx" if bare else ""):
            files.clear(self.place.stamp)
        self._read_stamp()
        self.site.furnish(self.place, commit)
        if bare:
            return None
        inputs = self.site.inputs_of(self.place)
        if inputs != self._inputs or self._is_spoiled():
            return self._set_up_anew(inputs, name)
        self._purge(set(self._made))
        return None

    def run(self, checks: list[Check], name: str, label: str = "") -> list[CheckResult]:
        """Run all checks, each on the candidate's files; what one leaves behind is named and put back. What
        is no candidate has a `label`; there, nobody asks what the last check left."""
        results: list[CheckResult] = []
        for number, check in enumerate(checks):
            found = self.site.run([check], self.path, f"{name}-check{number + 1}-", label)
            if not found:
                break  # ralph was told to stop
            results += found
            if not self.place.exists:
                gone = "it removed or replaced the folder that it ran in"
                results[-1] = replace(found[0], ok=False, tail=gone)
                if failed := self.prepare(self._head, f"{name}-again"):
                    return [*results, failed]
                continue
            if label and number + 1 == len(checks):
                break
            if said := self._put_back(check.name, f"{name}-again"):
                self.notices.append(said)
        return results

    @contextlib.contextmanager
    def at(self, head: str) -> Iterator[Git]:
        """The room's repository as it is just before the candidate is committed on `head`: what hooks see."""
        self.site.furnish(self.place, head)
        try:
            yield Git(self.path, self.path / ".git", self.path / ".git")
        finally:
            if self.place.exists:  # what runs in it can remove it
                self.site.furnish(self.place, self._head)

    def rewritten(self) -> str:
        """The tree of the tracked files as they stand now; that of the candidate if none was changed."""
        self.place.git("add", "-u", "--sparse", "--", ":/", check=False, timeout=BULK)
        return self.place.git("write-tree", timeout=BULK).strip()

    def _put_back(self, name: str, again: str) -> str:
        """Undo what a check did to the candidate's files and to those that setup made; what it was."""
        changed, new = self.place.dirt(self._tree)
        new = self._strangers_in(new)
        spoiled = self._is_spoiled()
        if not (changed or new or spoiled):
            return ""
        self.place.reset(self._tree, "")
        hidden = self._strangers_in(self.place.dirt(self._tree)[1])  # by a .gitignore of its own
        for one in {*new, *hidden}:
            files.clear(self.path / one)
        self.site.furnish(self.place, self._head)
        if spoiled:
            self._set_up_anew(self._inputs, again)
        what = changed + new or ["files that setup had made"]
        return f"check {name} changed {text.few(what)}; put back before the next check"

    def _strangers_in(self, new: list[str]) -> list[str]:
        """Those of the files that git neither tracks nor ignores which `setup` did not make."""
        return [one for one in new if one not in self._made and not self._is_kept(one)]

    def _set_up_anew(self, inputs: str, name: str) -> CheckResult | None:
        """Run `setup` from nothing, and note what it made; its result if it is red."""
        files.clear(self.place.stamp)
        self._made, self._inputs = {}, ""
        self._purge(set())
        result = self.site.set_up(self.place, name)
        if result and not result.ok:
            return result
        if result:
            if self.place.dirt(self._tree)[0]:
                self.place.reset(self._tree, "")
            self.site.furnish(self.place, self._head)
        if result or self.site.setup is None:
            self._inputs, self._made = inputs, self._signatures() if result else {}
            self.place.note_setup(inputs, self._made)
        return None

    def _read_stamp(self) -> None:
        stamp = self.place.noted_setup()
        self._inputs, self._made = stamp.get("inputs", "-"), stamp.get("made", {})

    def _signatures(self) -> dict[str, Signature]:
        """Every file here that git does not track, with what changes whenever the file does."""
        tracked = self._tracked()
        found = {}
        for path in files.walk(self.path):
            name = os.path.relpath(path, self.path)
            if name not in tracked and not self._is_own(name) and not self._is_kept(name):
                found[name] = _signature(path)
        return found

    def _is_spoiled(self) -> bool:
        """Whether a file that setup made was changed or is gone since: no check may count on it."""
        try:
            return any(_signature(self.path / name) != was for name, was in self._made.items())
        except OSError:
            return True

    def _purge(self, kept: set[str]) -> None:
        """Remove every file that is neither tracked nor in `kept`, and the folders that get empty."""
        tracked = self._tracked()
        for folder, folders, names in os.walk(self.path, topdown=False):
            inside = os.path.relpath(folder, self.path)
            if inside.split(os.sep)[0] == ".git":
                continue
            links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
            for name in (*names, *links):
                full = os.path.normpath(os.path.join(inside, name))
                if (
                    full not in tracked
                    and full not in kept
                    and not self._is_own(full)
                    and not self._is_kept(full)
                ):
                    files.clear(self.path / full)
            if inside != "." and not self._is_kept(f"{inside}/x"):
                with contextlib.suppress(OSError):
                    os.rmdir(folder)

    def _tracked(self) -> set[str]:
        return self.place.tracked(self._tree)

    def _is_own(self, name: str) -> bool:
        return name.split("/", 1)[0] == ".git" or name in self.place.carried

    def _is_kept(self, name: str) -> bool:
        return bool(self.site.keep) and bool(patterns.matching(self.site.keep, [name]))


def carried_names(home: Git, include: Path) -> list[str]:
    """The files at home that git ignores and the file `include` names, as .gitignore would."""
    if not include.is_file():
        return []
    words = ("ls-files", "-o", "-i", f"--exclude-from={include}", "-z")
    named = home.names(*words, timeout=BULK)
    hidden = set(home.names("check-ignore", "-z", "--stdin", stdin=nul(named), check=False))
    return [name for name in named if name in hidden]


def run_hook(hook: str, folder: str, room: Room, message: Path, name: str) -> list[CheckResult]:
    """Run one commit hook in the room, as git would; its result, none if ralph was told to stop."""
    words = ("git", "-c", f"core.hooksPath={folder}", "hook", "run", hook)
    check = Check(hook, (*words, "--", str(message)) if hook == "commit-msg" else words)
    env = {"GIT_INDEX_FILE": str(room.path / ".git/index"), "GIT_EDITOR": ":", "GIT_PREFIX": ""}
    env |= {key: value for key, value in environment().items() if key == "GIT_CONFIG_GLOBAL"}
    before, room.site.env = room.site.env, {**room.site.env, **env}
    try:
        return room.site.run([check], room.path, f"{name}-{hook}")
    finally:
        room.site.env = before


def merged(git: Git, tip: str, commit: str) -> tuple[str, list[str]]:
    """The tree of `commit` put together with `tip`, or nothing and the files that conflict."""
    words = ("merge-tree", "--write-tree", "--name-only", "--no-messages", "-z", tip, commit)
    code, out, err = attempted(git, *words, timeout=BULK)
    tree, *names = out.split("\0")
    if code == 0:
        return tree.strip(), []
    if code == 1:
        return "", [text.one_line(name) for name in names if name]
    return "", [text.one_line(err or "git merge-tree failed")]


def _signature(path: Path) -> Signature:
    found = path.lstat()
    mode = stat.S_IFMT(found.st_mode)
    return [found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns, mode]
