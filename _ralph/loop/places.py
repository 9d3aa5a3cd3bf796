"""Places: the checkouts of ralph's own in which agents, setup, hooks and checks run,
and what they get from home."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import shutil
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from _ralph import files, text
from _ralph.agents import registry
from _ralph.agents.surroundings import in_place, shared_caches, told_far
from _ralph.git import patterns
from _ralph.git.git import BULK, Git, nul
from _ralph.git.throwaway import ANYBODY_S, throwaway_git
from _ralph.git.workspace import Place
from _ralph.loop import exact
from _ralph.loop.junit import read
from _ralph.loop.settings import Settings
from _ralph.loop.suite import with_tests
from _ralph.loop.view import View
from _ralph.model import Check, CheckResult, Paths, Setup
from _ralph.process.prefix import Prefix, Wrap
from _ralph.process.process import Control, run_process
from _ralph.state.layout import new_log, weight

SETUP_TIMEOUT = 1800.0
"""Seconds that `setup` may take in a place."""
_ANSWER = 60.0
"""Seconds in which a prefix that cannot work says so."""
CHECK_RESULTS = ".git/ralph-results"
"""Where a check reports single tests: in a throwaway `.git`, so it is no file of the
project."""
TAIL = 6000
"""Bytes of a red check's output that the next prompt shows."""
MESSAGE_HOOKS = {"prepare-commit-msg": ("message",), "commit-msg": ()}
"""The hooks that see the message of a commit, with what git gives them beside its
file."""
HOOKS = ("pre-commit", *MESSAGE_HOOKS)
"""The commit hooks, in the order of `git commit`."""


@dataclass(frozen=True)
class Gear:
    """What every place gets from home: the files of its `git`, and those that
    `.worktreeinclude` names. `hooks` is the folder of the commit hooks."""

    git: Mapping[str, str]
    carried: list[str]
    hooks: str


def gear_of(home: Git) -> Gear:
    """Ask git for it."""
    scopes = home(
        "config", "--show-scope", "--path", "--get-all", "core.hooksPath", check=False
    )
    own = [
        line.split("\t", 1)[1]
        for line in scopes.splitlines()
        if not line.startswith("command\t")
    ]
    hooks = own[-1] if own else str(home.common / "hooks")
    carried = carried_names(home, home.root / ".worktreeinclude")
    return Gear(throwaway_git(home), carried, hooks)


@dataclass
class Places:
    """The places of a plan: how each is furnished, and how a command runs there. `prefix`
    stands before each; a worker has its own `control` and `view`."""

    settings: Settings
    home: Git
    branch: str
    own_variables: frozenset[
        str
    ]  # name the configuration of agents, which is home's in a place, too
    control: Control
    view: View
    prefix: Prefix | None = None

    @functools.cached_property
    def gear(self) -> Gear:
        """What places get from home."""
        return gear_of(self.home)

    @property
    def paths(self) -> Paths:
        return self.settings.paths

    @property
    def setup(self) -> Setup | None:
        return self.settings.plan.setup

    @property
    def keep(self) -> list[str]:
        """Patterns of what stays in the clean room from one candidate to the next."""
        return list(self.settings.plan.settings.get("keep", ()))

    def state(self, allow: Collection[str] = ()) -> tuple[str, ...]:
        """What git calls the files that no work may change: the plan, the notes and,
        unless `allow` has it, the rulebook; for a link, also what it leads to."""
        *always, rulebook = map(
            self._names_of, (self.paths.prd, self.paths.progress, self.paths.rulebook)
        )
        kept = always if patterns.matching(allow, rulebook) else [*always, rulebook]
        return tuple(dict.fromkeys(name for names in kept for name in names))

    def _names_of(self, path: Path) -> list[str]:
        names = (self.home.name_of(one) for one in (path, Path(os.path.realpath(path))))
        return [name for name in names if name]

    def place(self, folder: Path, allow: Collection[str] = ()) -> Place:
        """The place at `folder`, with its index in the private folder. A rulebook that
        `allow` has is a file like any other there."""
        return Place(
            self.home,
            folder,
            self.paths.private / f"{folder.name}.index",
            self.state(allow),
        )

    def workspace(self, worker: int, allow: Collection[str] = ()) -> Place:
        """Where an agent works, at a task that may change what `allow` has."""
        place = self.place(self.paths.workspace(worker), allow)
        place.carried = self.gear.carried
        return place

    def fits(self, room: int) -> bool:
        """Whether there is space for the clean room of this number, if it is to be
        made: twice that of the first. If there is not, that is said."""
        if self.paths.room_of(room).is_dir():
            return True
        needed, free = (
            2 * weight(self.paths.room),
            shutil.disk_usage(self.paths.places).free,
        )
        if free < needed:
            beside = f"beside the {room - 1} that {'is' if room == 2 else 'are'} there"
            space = f"it needs {text.megabytes(needed)}, and {text.megabytes(free)} are free"
            self.view.line(
                f"! the disk has no space for a clean room {beside}: {space}",
                color="yellow",
            )
        return free >= needed

    def env(self, place: Path) -> dict[str, str]:
        """The environment of agents, setup, checks and hooks in a place."""
        here = registry.agent_env(self.paths.root)
        return in_place(here, self.paths.root, place, self.own_variables)

    @property
    def here(self) -> bool:
        """Whether commands find their programs on this side, and not behind a
        prefix."""
        return not self.settings.wrap[0]

    @contextlib.contextmanager
    def entered(self, place: Path) -> Iterator[Wrap]:
        """What makes of a command the one that runs it in a place: behind the prefix,
        if there is one. For one process: what it leaves there is ended."""
        if self.prefix is None:
            yield lambda argv, _: [*argv]
            return
        with self.prefix.started(place) as wrap:
            safe = {"GIT_CONFIG_SYSTEM": str(place / ".git" / ANYBODY_S)}
            yield lambda argv, env: wrap(argv, told_far(env) | safe)

    def unanswered(self) -> str:
        """Why nothing runs behind the prefix now, if so: what is red then says nothing
        of the work. One that takes long may only be busy."""
        place = self.paths.role
        if self.prefix is None or not place.is_dir():
            return ""
        with self.entered(place) as wrap:
            done = run_process(
                wrap(["true"], {}),
                cwd=place,
                env=self.env(place),
                timeout=_ANSWER,
                control=self.control,
            )
        refused = done.ended == "missing" or (done.ended == "itself" and done.exit != 0)
        return (
            f"{self.prefix} does not answer: {text.last_line(done.tail)}"
            if refused
            else ""
        )

    def hooks(self, place: Path) -> list[str]:
        """The names of the commit hooks in a place. With a relative `core.hooksPath`
        they are its own."""
        return [
            name for name in HOOKS if os.access(place / self.gear.hooks / name, os.X_OK)
        ]

    def hooked(self, names: Collection[str] = HOOKS) -> bool:
        """Whether a candidate may have one of these commit hooks: as home has, or its
        own."""
        return not os.path.isabs(self.gear.hooks) or not {*names}.isdisjoint(
            self.hooks(self.home.root)
        )

    def furnish(self, place: Place, head: str) -> None:
        """Give a place its throwaway `.git`, with HEAD at `head`, and what
        `.worktreeinclude` names."""
        place.carry(self.gear.carried)
        place.renew_git(head, self.branch, self.gear.git)

    def run(
        self,
        check: Check,
        cwd: Path,
        name: str,
        label: str = "",
        env: Mapping[str, str] | None = None,
        stdin: bytes = b"",
    ) -> CheckResult | None:
        """Run a command in a place, its log called `name`; its result, None if ralph
        was stopped."""
        argv = (
            ["/bin/sh", "-c", check.run]
            if isinstance(check.run, str)
            else list(check.run)
        )
        log = new_log(self.paths, f"{name}.log")
        env, results = {**self.env(cwd), **(env or {})}, cwd / CHECK_RESULTS
        if check.results:
            files.clear(results).parent.mkdir(parents=True, exist_ok=True)
            env["RALPH_RESULTS"] = str(results)
        with self.entered(cwd) as wrap:
            done = run_process(
                wrap(argv, env), cwd=cwd, env=env, timeout=check.timeout, control=self.control, stdin=stdin,
                out=log,
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
        if check.results:
            result = with_tests(result, read(results, cwd))
        self.view.check(replace(result, tests=None), label)
        return result

    def _missing(self, check: Check, cwd: Path, log: Path) -> str:
        """The program that a check begins with, if it is a bare name that the shell
        does not know in this place. Another one may be what a task is to make."""
        word = first_word(check)
        if not word or "/" in word:
            return ""
        asked, env = ["/bin/sh", "-c", 'command -v -- "$1"', "sh", word], self.env(cwd)
        with self.entered(cwd) as wrap:
            told = run_process(
                wrap(asked, env), cwd=cwd, env=env, timeout=60, control=self.control,
                out=log.with_suffix(".which"),
            )  # fmt: skip
        return word if told.ended == "itself" and told.exit != 0 else ""

    def stamp(self, tree: str, entries: Mapping[str, str] | None = None) -> str:
        """What a place that holds `tree`, with these `entries`, belongs to: `setup`,
        and the files that its `when` names, or all of them. A place with another stamp
        is made anew."""
        if self.setup is None:
            return "no setup"
        found = [self.home.tree(tree)]
        if self.setup.when:
            entries = self.home.entries(tree) if entries is None else entries
            found = [
                f"{entries[name]} {name}"
                for name in sorted(patterns.matching(self.setup.when, entries))
            ]
        return files.digest(
            "\0".join([self.setup.run, *found]).encode("utf-8", "surrogatepass")
        )

    def set_up(
        self, place: Place, name: str, env: Mapping[str, str] | None = None
    ) -> CheckResult | None:
        """Run the plan's `setup` in a place, once more if it is red; its result, None
        without a setup or if ralph was stopped. Files that it took from a cache of
        others are the place's own afterwards."""
        if self.setup is None:
            return None
        check = Check("setup", self.setup.run, SETUP_TIMEOUT)
        env = {**(env or {}), **shared_caches(os.environ)}
        result = self.run(check, place.root, f"{name}-setup", env=env)
        if result and not result.ok:
            result = self.run(check, place.root, f"{name}-setup-again", env=env)
        if result and result.ok:
            exact.unshare(place.root)
        return result


def first_word(check: Check) -> str:
    """The word that a check begins with, if it is a plain one: no variable, no operator
    of the shell."""
    try:
        words = shlex.split(check.run) if isinstance(check.run, str) else check.run
    except ValueError:
        return ""
    return words[0] if words and re.fullmatch(r"[\w.+/-]+", words[0]) else ""


def carried_names(home: Git, include: Path) -> list[str]:
    """The files at home that git ignores and that match the patterns in the file
    `include`."""
    if not include.is_file():
        return []
    words = ("ls-files", "-o", "-i", f"--exclude-from={include}", "-z")
    named = home.names(*words, timeout=BULK)
    hidden = set(
        home.names("check-ignore", "-z", "--stdin", stdin=nul(named), check=False)
    )
    return [name for name in named if name in hidden]
