"""The clean room: a checkout where no agent ever works. What is green here is what lands."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import files, text
from _ralph.git import patterns
from _ralph.git.git import BULK, Git, environment, nul
from _ralph.git.workspace import Place, throwaway_config
from _ralph.loop import exact
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
    `setup`, and how a command is run: `env` is the environment in a place."""

    home: Git
    gear: Gear
    branch: str
    setup: Setup | None
    keep: Sequence[str]
    control: Control
    env: Callable[[Path], dict[str, str]]
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
            self.wrap(argv, cwd), cwd=cwd, env={**self.env(cwd), **(env or {})}, timeout=check.timeout,
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
            asked, cwd=cwd, env=self.env(cwd), timeout=60, control=self.control, out=log.with_suffix(".which")
        )
        return word if told.ended == "itself" and told.exit != 0 else ""

    def stamp(self, tree: str) -> str:
        """What a place that holds `tree` belongs to: `setup`, and the files that its `when` names, or all of
        them. A place with another stamp is made anew."""
        if self.setup is None:
            return "no setup"
        found = [self.home.tree(tree)]
        if self.setup.when:
            listed = self.home.names("ls-tree", "-r", "-z", tree, timeout=BULK)
            entries = {name: meta for meta, _, name in (entry.partition("\t") for entry in listed)}
            found = [
                f"{entries[name]} {name}" for name in sorted(patterns.matching(self.setup.when, entries))
            ]
        return files.digest("\0".join([self.setup.run, *found]).encode("utf-8", "surrogatepass"))

    def set_up(self, place: Place, name: str) -> CheckResult | None:
        """Run the plan's `setup` in a place, once more if it is red; its result, None without a setup or if
        ralph was stopped. Files that it took from a cache of others are the place's own afterwards."""
        if self.setup is None:
            return None
        check = Check("setup", self.setup.run, SETUP_TIMEOUT)
        result = self.run(check, place.root, f"{name}-setup")
        if result and not result.ok:
            result = self.run(check, place.root, f"{name}-setup-again")
        if result and result.ok:
            exact.unshare(place.root)
        return result


def first_word(check: Check) -> str:
    """The word that a check begins with, if it is a plain one: no variable, no operator of the shell."""
    try:
        words = shlex.split(check.run) if isinstance(check.run, str) else check.run
    except ValueError:
        return ""
    return words[0] if words and re.fullmatch(r"[\w.+/-]+", words[0]) else ""


@dataclass
class Room:
    """The clean room: it holds the files of one commit and what `setup` made, nothing else but what `keep`
    names. No agent ever works there."""

    site: Site
    place: Place
    notices: list[str] = field(default_factory=list)
    _tree: str = ""

    @property
    def path(self) -> Path:
        """Where checks run."""
        return self.place.root

    def prepare(self, commit: str, name: str) -> CheckResult | None:
        """Make the room hold `commit`: one look at all that is there, or a room made anew, where it belongs
        to another stamp or is not as `setup` left it. The result of `setup` if it is red."""
        stamp, (noted, made) = self.site.stamp(commit), self._noted()
        if stamp != noted:
            return self._make_anew(commit, stamp, name)
        self.hold(commit)
        if not self.place.stamp.exists():  # the room was not there any more
            return self._make_anew(commit, stamp, name)
        before = dict(made)
        spoiled = exact.restore(self.path, self.place.tracked(commit), self._is_kept, made)
        if spoiled:
            self.notices.append(f"the room is made again: {text.few(spoiled)} was not as setup had left it")
            return self._make_anew(commit, stamp, name)
        if made != before:
            self._note(stamp, made)
        return None

    def remove(self) -> None:
        """Remove it."""
        self.place.remove()

    def hold(self, commit: str) -> None:
        """Check out `commit`, and give the room its `.git`; nothing that git does not track is touched."""
        self._tree = commit
        if self.place.is_checked_out_otherwise(commit):
            files.clear(self.place.index)
        if self.place.reset(commit, ""):
            files.clear(self.place.stamp)
        self.site.furnish(self.place, commit)

    def go_on(self, commit: str) -> bool:
        """Go on where earlier checks ended on these files: what they built stays, tracked files are put back.
        False if the room is not fit for it."""
        if not self.place.exists or self._noted()[0] != self.site.stamp(commit):
            return False
        self.hold(commit)
        return self.place.stamp.exists()

    def run(self, checks: list[Check], name: str, label: str = "") -> list[CheckResult]:
        """Run all checks as one program: what one builds, the next can use; what one changes in tracked files
        is named and put back."""
        results: list[CheckResult] = []
        for number, check in enumerate(checks):
            if number and (changed := self._put_back()):
                what = f"check {checks[number - 1].name} changed {text.few(changed)}"
                self.notices.append(f"{what}; put back before the next check")
            result = self.site.run(check, self.path, f"{name}-check{number + 1}", label)
            if not result:
                break  # ralph was stopped
            results.append(result)
            if not self.place.exists:
                gone = "it removed or replaced the folder that it ran in"
                results[-1] = replace(result, ok=False, tail=gone)
                if failed := self.prepare(self._tree, f"{name}-again"):
                    return [*results, failed]
        return results

    @contextlib.contextmanager
    def at(self, head: str) -> Iterator[None]:
        """Have the room's repository as it is just before the candidate is committed on `head`, for hooks."""
        self.site.furnish(self.place, head)
        try:
            yield
        finally:
            if self.place.exists:  # a hook may have removed it
                self.site.furnish(self.place, self._tree)

    def rewritten(self) -> str:
        """The tree of the tracked files as they are now."""
        self.place.remove_repositories(self._tree)
        self.place.git("add", "-u", "--sparse", "--", ":/", check=False, timeout=BULK)
        return self.place.git("write-tree", timeout=BULK).strip()

    def _put_back(self) -> list[str]:
        """Undo what was done to tracked files; their names."""
        if changed := self.place.dirt(self._tree)[0]:
            self.hold(self._tree)
        return changed

    def _make_anew(self, commit: str, stamp: str, name: str) -> CheckResult | None:
        """Throw the room away, check out `commit`, run `setup`, once more if it is red, and list what it
        made; its result if it stays red."""
        self.remove()
        self.hold(commit)
        result = self.site.set_up(self.place, name)
        if result and not result.ok:
            return result
        if result:
            self._put_back()
            self.site.furnish(self.place, commit)
        self._note(stamp, exact.listing(self.path, self.place.tracked(commit), self._is_kept))
        return None

    @functools.cached_property
    def _is_kept(self) -> Callable[[str], bool]:
        kept = patterns.matcher(self.site.keep)
        return lambda name: kept(name) or kept(f"{name}/\0")

    def _note(self, stamp: str, made: exact.Listing) -> None:
        """Note what the room belongs to, and what it holds: without a note it is none."""
        files.write_own(self.place.stamp, json.dumps({"stamp": stamp, "made": made}).encode())

    def _noted(self) -> tuple[str, exact.Listing]:
        """What `_note` wrote; nothing where that cannot be read."""
        try:
            found = json.loads(files.read_regular(self.place.stamp) or b"{}")
            return str(found["stamp"]), dict(found["made"])
        except (ValueError, TypeError, LookupError, RecursionError):
            return "", {}


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
