"""The clean room: a checkout where no agent ever works. What is green here is what lands."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import files, text
from _ralph.git import patterns
from _ralph.git.git import BULK, Git, environment, nul
from _ralph.git.workspace import Place, Prepared, throwaway_config
from _ralph.loop.detect import SETUP_INPUTS
from _ralph.model import Check, CheckResult, Setup
from _ralph.process.process import Control, run_process

SETUP_TIMEOUT = 1800.0
"""Seconds that `setup` may take in a place."""
TAIL = 6000
"""Bytes of a red check's output that the next prompt shows."""
HOOKS = ("pre-commit", "commit-msg")
"""The commit hooks that count as checks."""


@dataclass(frozen=True)
class Gear:
    """What every place gets from home: git's configuration and tags, and the files that `.worktreeinclude`
    names. `hooks` is the folder of the commit hooks."""

    config: str
    tags: bytes
    carried: list[str]
    hooks: str


def gear_of(home: Git) -> Gear:
    """Ask git for it."""
    form = "--format=%(objectname) %(refname)%(if)%(*objectname)%(then)%0a^%(*objectname)%(end)"
    tags = home("for-each-ref", form, "refs/tags", check=False)
    scopes = home("config", "--show-scope", "--path", "--get-all", "core.hooksPath", check=False)
    own = [line.split("\t", 1)[1] for line in scopes.splitlines() if not line.startswith("command\t")]
    hooks = own[-1] if own else str(home.common / "hooks")
    carried = carried_names(home, home.root / ".worktreeinclude")
    return Gear(throwaway_config(home), os.fsencode(tags), carried, hooks)


@dataclass(frozen=True)
class Site:
    """What all places of a plan have in common: the repository, what they get from it, the branch, the plan's
    `setup`, and how a command is run."""

    home: Git
    gear: Gear
    branch: str
    setup: Setup | None
    keep: Sequence[str]
    control: Control
    env: dict[str, str]
    log: Callable[[str], Path]
    show: Callable[[CheckResult, str], None]
    wrap: Callable[[list[str], Path], list[str]]

    def hooks(self, room: Path) -> tuple[list[str], str]:
        """The names of this repository's commit hooks, and their folder. With a relative `core.hooksPath`
        they are the candidate's own."""
        folder = room / self.gear.hooks
        return [name for name in HOOKS if os.access(folder / name, os.X_OK)], str(folder)

    @property
    def hooked(self) -> bool:
        """Whether a candidate may have commit hooks: as home has, or its own."""
        return not os.path.isabs(self.gear.hooks) or bool(self.hooks(self.home.root)[0])

    def furnish(self, place: Place, head: str) -> None:
        """Give a place its throwaway `.git`, with HEAD at `head`, and what `.worktreeinclude` names."""
        place.carry(self.gear.carried)
        place.renew_git(head, self.branch, self.gear.config, self.gear.tags)

    def run(
        self, check: Check, cwd: Path, name: str, label: str = "", env: Mapping[str, str] | None = None
    ) -> CheckResult | None:
        """Run a command in a place, its log called `name`; its result, None if ralph was stopped."""
        argv = ["/bin/sh", "-c", check.run] if isinstance(check.run, str) else list(check.run)
        log = self.log(f"{name}.log")
        done = run_process(
            self.wrap(argv, cwd), cwd=cwd, env={**self.env, **(env or {})}, timeout=check.timeout,
            control=self.control, out=log,
        )  # fmt: skip
        if done.ended == "interrupted":
            return None
        result = CheckResult(
            name=check.name,
            command=check.command,
            ok=done.ended == "itself" and done.exit == 0,
            exit=done.exit,
            seconds=round(done.seconds, 1),
            tail=text.tail(text.redact(text.clean(done.tail)), TAIL),
            log=str(log),
            timed_out=done.ended == "deadline",
            missing=self._missing(check, cwd, log) if done.exit == 127 else "",
        )
        self.show(result, label)
        return result

    def _missing(self, check: Check, cwd: Path, log: Path) -> str:
        """The program that a check begins with, if it is a bare name that the shell does not know in this
        place. Another one may be what a task is to make."""
        word = first_word(check)
        if not word or "/" in word:
            return ""
        asked = self.wrap(["/bin/sh", "-c", 'command -v -- "$1"', "sh", word], cwd)
        told = run_process(
            asked, cwd=cwd, env=self.env, timeout=60, control=self.control, out=log.with_suffix(".which")
        )
        return word if told.ended == "itself" and told.exit != 0 else ""

    def inputs_of(self, place: Place) -> str:
        """A digest of all that `setup` depends on: the command, and the files that it reads."""
        if self.setup is None:
            return ""
        entries = [entry.split("\t", 1) for entry in place.git.names("ls-files", "-s", "-z", timeout=BULK)]
        wanted = patterns.matching(self.setup.when or SETUP_INPUTS, [name for _, name in entries])
        wanted |= {word.removeprefix("./") for word in re.findall(r"[\w./-]+", self.setup.run)}  # its scripts
        listed = "\0".join(f"{meta} {name}" for meta, name in entries if name in wanted)
        carried = [files.digest(files.read_regular(place.root / name) or b"") for name in place.carried]
        return files.digest("\0".join([self.setup.run, listed, *carried]).encode("utf-8", "surrogatepass"))

    def set_up(self, place: Place, name: str) -> CheckResult | None:
        """Run the plan's `setup` in a place; its result, None without a setup or if ralph was stopped."""
        if self.setup is None:
            return None
        check = Check("setup", self.setup.run, SETUP_TIMEOUT)
        return self.run(check, place.root, f"{name}-setup")


def first_word(check: Check) -> str:
    """The word that a check begins with, if it is a plain one: no variable, no operator of the shell."""
    try:
        words = shlex.split(check.run) if isinstance(check.run, str) else check.run
    except ValueError:
        return ""
    return words[0] if words and re.fullmatch(r"[\w.+/-]+", words[0]) else ""


@dataclass
class Room:
    """The clean room. `_made` are the files that `setup` made, with their signatures; all other untracked
    files are removed before the next candidate, except those that `keep` names."""

    site: Site
    place: Place
    notices: list[str] = field(default_factory=list)
    _tree: str = ""
    _inputs: str = ""
    _made: dict[str, list[int]] = field(default_factory=dict)

    @property
    def path(self) -> Path:
        """Where checks run."""
        return self.place.root

    def prepare(self, commit: str, name: str) -> CheckResult | None:
        """Make the room hold the files of `commit` and those that `setup` makes, nothing else. The result of
        `setup` if it ran and was red."""
        self._tree = commit
        if self.place.is_checked_out_otherwise(commit):
            files.clear(self.place.index)
        if self.place.reset(commit, ""):
            files.clear(self.place.stamp)
        noted = self.place.noted_setup()
        self._inputs, self._made = noted.inputs, noted.made
        self.site.furnish(self.place, commit)
        inputs = self.site.inputs_of(self.place)
        if inputs != self._inputs or self._is_spoiled():
            return self._set_up_anew(inputs, name)
        self._purge(self._made)
        return None

    def go_on(self, commit: str) -> bool:
        """Go on where earlier checks ended on these files: what they built stays, tracked files are put back.
        False if the room is not fit for it."""
        self._tree = commit
        noted = self.place.noted_setup()
        self._inputs, self._made = noted.inputs, noted.made
        if not self.place.exists or self._is_spoiled():
            return False
        self.place.reset(commit, "")
        self.site.furnish(self.place, commit)
        return self.site.inputs_of(self.place) == self._inputs

    def run(self, checks: list[Check], name: str, label: str = "") -> list[CheckResult]:
        """Run all checks as one program, each on the candidate's files: what one changes in them is named and
        put back, what it builds stays. With a `label` this is no candidate, and what the last check changed
        does not matter."""
        results: list[CheckResult] = []
        for number, check in enumerate(checks):
            result = self.site.run(check, self.path, f"{name}-check{number + 1}", label)
            if not result:
                break  # ralph was stopped
            results.append(result)
            if not self.place.exists:
                gone = "it removed or replaced the folder that it ran in"
                results[-1] = replace(result, ok=False, tail=gone)
                if failed := self.prepare(self._tree, f"{name}-again"):
                    return [*results, failed]
                continue
            if label and number + 1 == len(checks):
                break
            if said := self._put_back(check.name, f"{name}-again"):
                self.notices.append(said)
        return results

    @contextlib.contextmanager
    def at(self, head: str) -> Iterator[Git]:
        """The room's repository as it is just before the candidate is committed on `head`, for hooks."""
        self.site.furnish(self.place, head)
        try:
            yield Git(self.path, self.path / ".git", self.path / ".git")
        finally:
            if self.place.exists:  # a hook may have removed it
                self.site.furnish(self.place, self._tree)

    def rewritten(self) -> str:
        """The tree of the tracked files as they are now."""
        self.place.remove_repositories(self._tree)
        self.place.git("add", "-u", "--sparse", "--", ":/", check=False, timeout=BULK)
        return self.place.git("write-tree", timeout=BULK).strip()

    def _put_back(self, name: str, again: str) -> str:
        """Undo what a check did to the candidate's files and to those that setup made; a notice of it."""
        changed, _ = self.place.dirt(self._tree)
        spoiled = self._is_spoiled()
        if not (changed or spoiled):
            return ""
        spoiled = self.place.reset(self._tree, "") or spoiled
        self.site.furnish(self.place, self._tree)
        if spoiled:
            self._set_up_anew(self._inputs, again)
        what = changed or ["files that setup had made"]
        return f"check {name} changed {text.few(what)}; put back before the next check"

    def _set_up_anew(self, inputs: str, name: str) -> CheckResult | None:
        """Run `setup` from scratch, and note what it made; its result if it is red."""
        files.clear(self.place.stamp)
        self._made, self._inputs = {}, ""
        self._purge()
        result = self.site.set_up(self.place, name)
        if result and not result.ok:
            return result
        if result:
            if self.place.dirt(self._tree)[0]:
                self.place.reset(self._tree, "")
            self.site.furnish(self.place, self._tree)
        if result or self.site.setup is None:
            self._inputs, self._made = inputs, self._signatures() if result else {}
            self.place.note_setup(Prepared(inputs, self._made))
        return None

    def _signatures(self) -> dict[str, list[int]]:
        """All untracked files, with what changes whenever the file does."""
        names = self._files_in(self.place.untracked(self._tree))
        return {name: files.signature(self.path / name) for name in names}

    def _files_in(self, found: list[str]) -> list[str]:
        """The files of what git does not track, without ralph's own and those that `keep` names."""
        names = [os.path.relpath(path, self.path) for name in found for path in files.walk(self.path / name)]
        return self._not_kept([name for name in names if name not in self.place.carried])

    def _not_kept(self, names: list[str]) -> list[str]:
        """Those of `names` that `keep` does not name."""
        kept = patterns.matching(self.site.keep, names)
        return [name for name in names if name not in kept]

    def _is_spoiled(self) -> bool:
        """Whether a file that setup made was changed or removed since."""
        return any(files.signature(self.path / name) != was for name, was in self._made.items())

    def _purge(self, kept: Container[str] = ()) -> None:
        """Remove every file that is neither tracked nor in `kept`, and empty folders."""
        found = self.place.untracked(self._tree)
        for name in self._files_in(found):
            if name not in kept:
                self.place.clear(name)
        for top in (name for name in found if name.endswith("/")):
            for folder, _, _ in os.walk(self.path / top, topdown=False):
                with contextlib.suppress(OSError):  # it is not empty
                    os.rmdir(folder)


def carried_names(home: Git, include: Path) -> list[str]:
    """The files at home that git ignores and that match the patterns in the file `include`."""
    if not include.is_file():
        return []
    words = ("ls-files", "-o", "-i", f"--exclude-from={include}", "-z")
    named = home.names(*words, timeout=BULK)
    hidden = set(home.names("check-ignore", "-z", "--stdin", stdin=nul(named), check=False))
    return [name for name in named if name in hidden]


def run_hook(hook: str, folder: str, room: Room, message: Path, name: str) -> CheckResult | None:
    """Run a commit hook in the room, as git would; its result, None if ralph was stopped."""
    words = ("git", "-c", f"core.hooksPath={folder}", "hook", "run", hook)
    check = Check(hook, (*words, "--", str(message)) if hook == "commit-msg" else words)
    env = {"GIT_INDEX_FILE": str(room.path / ".git/index"), "GIT_EDITOR": ":", "GIT_PREFIX": ""}
    env |= {key: value for key, value in environment().items() if key == "GIT_CONFIG_GLOBAL"}
    return room.site.run(check, room.path, f"{name}-{hook}", env=env)
