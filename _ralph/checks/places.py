"""Places: the checkouts of ralph's own in which agents, setup, hooks and checks run,
and what they get from home."""

from __future__ import annotations

import contextlib
import functools
import os
import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import files, text
from _ralph.agents import registry
from _ralph.agents.cli import Agent
from _ralph.agents.surroundings import forwarded_env, in_place, shared_caches
from _ralph.checks import exact, trust
from _ralph.checks.junit import read
from _ralph.checks.suite import with_tests
from _ralph.checks.trust import Answer, Grants
from _ralph.checks.view import View
from _ralph.errors import StopNow
from _ralph.git import patterns
from _ralph.git.checkout import Checkout, hide, remove_unusable
from _ralph.git.git import BULK, Entry, Git, names_in, nul
from _ralph.git.notes import note_setup, noted_setup
from _ralph.git.snapshot import restore
from _ralph.git.throwaway import ANYBODY_S, carry, throwaway_git, write_git
from _ralph.model import Check, CheckResult, Paths, Setup
from _ralph.process.prefix import Prefix, Wrap
from _ralph.process.process import Command, Control, Ended, ProcessResult, run_process
from _ralph.state.layout import new_log
from _ralph.state.settings import Settings

SETUP_TIMEOUT = 1800.0
"""Seconds that `setup` may take in a place."""
CHECK_RESULTS = ".git/ralph-results"
"""Where a check reports single tests: in a throwaway `.git`, so it is no file of the
project."""
_SHORT = 60.0
"""Seconds that a tool may take to note that it trusts a place."""
TAIL = 6000
"""Bytes of a red check's output that the next prompt shows."""
MESSAGE_HOOKS = {"prepare-commit-msg": ("message",), "commit-msg": ()}
"""The hooks that see the message of a commit, with what git gives them beside its
file."""
HOOKS = ("pre-commit", *MESSAGE_HOOKS)
"""The commit hooks, in the order of `git commit`."""


@dataclass(frozen=True)
class HomeFiles:
    """What every place gets from home: the files of its `git`, those that
    `.worktreeinclude` names, and what tools say of the files that they trust. `hooks`
    is the folder of the commit hooks: an absolute path where they are home's, a
    relative one where each place has its own."""

    git: Mapping[str, str]
    copied: list[str]
    hooks: str
    trust: list[Answer]


def hooks_folder(home: Git) -> str:
    """Where the commit hooks stand, as in `HomeFiles`. A path in the working tree is
    the place's own, one inside `.git` is home's."""
    named = str(home.common / "hooks")
    words = ("config", "--type=path", "--get-all", "core.hooksPath")
    for line in (home.maybe(*words) or "").splitlines():
        if line != os.devnull:  # ralph's own setting
            named = line
    folder = Path(os.path.normpath(home.root / named))
    in_git = folder.is_relative_to(home.dir) or folder.is_relative_to(home.common)
    if in_git or not folder.is_relative_to(home.root):
        return str(folder)
    return str(folder.relative_to(home.root))


def copied_names(home: Git) -> list[str]:
    """The files at home that git ignores and that match `.worktreeinclude`."""
    include = home.root / ".worktreeinclude"
    if not include.is_file():
        return []
    words = ("ls-files", "-o", "-i", f"--exclude-from={include}", "-z")
    named = home.names(*words, timeout=BULK)
    ignored = home.maybe("check-ignore", "-z", "--stdin", stdin=nul(named))
    return names_in(ignored)


@dataclass
class Places:
    """The places of a plan: what each gets from home, and how a command runs there.
    `prefix` stands before each command. `settings` are those of the plan as it was
    read last."""

    settings: Settings
    home: Git
    branch: str
    control: Control
    view: View
    prefix: Prefix | None = None
    trusted: dict[Path, Grants] = field(default_factory=dict)
    _envs: dict[tuple[Path, bool], dict[str, str]] = field(default_factory=dict)

    @functools.cached_property
    def from_home(self) -> HomeFiles:
        """What places get from home, as git says, and the tools that trust files."""
        home = self.home
        copied = copied_names(home)
        trusts = trust.ask_home(home, copied, os.environ)
        return HomeFiles(throwaway_git(home), copied, hooks_folder(home), trusts)

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

    @property
    def here(self) -> bool:
        """Whether commands find their programs on this side, and not behind a
        prefix."""
        return not self.settings.wrap[0]

    def state(self, allow: Collection[str] = ()) -> tuple[str, ...]:
        """What git calls the files that no work may change: the plan, the notes and,
        unless `allow` has it, the rulebook; for a link, also what it leads to."""
        names = [*self._names_of(self.paths.prd), *self._names_of(self.paths.progress)]
        rulebook = self._names_of(self.paths.rulebook)
        if not patterns.matching(allow, rulebook):
            names += rulebook
        return tuple(dict.fromkeys(names))

    def _names_of(self, path: Path) -> list[str]:
        real = Path(os.path.realpath(path))
        return [*filter(None, map(self.home.name_of, (path, real)))]

    def place(self, folder: Path, allow: Collection[str] = ()) -> Checkout:
        """The place at `folder`, with its index in the private folder. A rulebook that
        `allow` has is a file like any other there."""
        index = self.paths.index_of(folder)
        return Checkout(self.home, folder, index, self.state(allow))

    def workspace(self, number: int, allow: Collection[str] = ()) -> Checkout:
        """Where the agent of a loop works, at a task that may change what `allow`
        has."""
        place = self.place(self.paths.workspace(number), allow)
        place.carried = self.from_home.copied
        return place

    def of_role(self, commit: str) -> Checkout:
        """A clean checkout of `commit` for a judge or a planner."""
        place = self.place(self.paths.role)
        remove_unusable(place, commit)
        place.reset(commit)
        place.clean(commit, "-ffdx")
        self.add_git_and_settings(place, commit)
        return place

    def env(self, place: Path) -> dict[str, str]:
        """The environment of agents, setup, checks and hooks in a place."""
        # Noted once it is green, so setup itself sees no half of what it makes
        made = self.paths.index_of(place).with_suffix(".setup")
        venv = self.setup is not None and made.is_file()
        if (place, venv) not in self._envs:
            here = registry.agent_env(self.paths.root)
            self._envs[place, venv] = in_place(here, self.paths.root, place, venv)
        env = self._envs[place, venv]
        return env | trust.variables(env, self.trusted.get(place, {}))

    @contextlib.contextmanager
    def inside(self, place: Path) -> Iterator[Wrap]:
        """What makes of a command the one that runs it in a place: behind the prefix,
        if there is one. For one process: what it leaves there is ended."""
        if self.prefix is None:
            yield lambda argv, _: [*argv]
            return
        with self.prefix.started(place) as wrap:

            def behind(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
                told = forwarded_env(env, [tool.variable for tool in trust.TOOLS])
                told["GIT_CONFIG_SYSTEM"] = str(place / ".git" / ANYBODY_S)
                return wrap(argv, told)

            yield behind

    def hooks(self, place: Path) -> list[str]:
        """The names of the commit hooks in a place."""
        folder = place / self.from_home.hooks
        return [name for name in HOOKS if os.access(folder / name, os.X_OK)]

    def missing_hook(self, room: Path) -> str:
        """The sentence about a commit hook that home has and a clean room that was set
        up does not, where git does not track it: what it refuses would land."""
        there = self.hooks(room)
        for hook in self.hooks(self.home.root):
            name = f"{self.from_home.hooks}/{hook}"
            if hook in there or name in self.from_home.copied:
                continue
            tracked = self.home.maybe("ls-files", "--", f":(literal){name}")
            if not tracked:
                return (
                    f"home has {name}, and a new checkout has not, so what it refuses "
                    f"would land; let `setup` make it"
                )
        return ""

    def has_hooks(self, names: Collection[str] = HOOKS) -> bool:
        """Whether a candidate may have one of these commit hooks: as home has, or its
        own."""
        if not os.path.isabs(self.from_home.hooks):
            return True
        return not {*names}.isdisjoint(self.hooks(self.home.root))

    def add_git_and_settings(self, place: Checkout, head: str) -> None:
        """Give a place its throwaway `.git`, with HEAD at `head`, and what
        `.worktreeinclude` names."""
        copied = self.from_home.copied
        carry(place, copied)
        write_git(place, head, self.branch, self.from_home.git, copied)
        self.let_tools_trust(place)

    def let_tools_trust(self, place: Checkout) -> None:
        """Let tools trust a place, as it was checked out, as far as they trust home."""
        granted = trust.granted(self.from_home.trust, place)
        self.trusted[place.root] = granted
        for tool in trust.TOOLS:
            for path in granted.get(tool.name, []) if tool.allow else []:
                words = [*tool.allow, str(path)]
                self.start(words, place.root, self.env(place.root), _SHORT)

    def trusted_settings(self, agent: Agent, place: Path) -> list[Path]:
        """The files of its settings that an agent is to trust in a place."""
        for tool in trust.TOOLS:
            if tool.agent and tool.agent is agent.cli.trust:
                return self.trusted.get(place, {}).get(tool.name, [])
        return []

    def restored(
        self, before: str, after: str, allow: Sequence[str]
    ) -> tuple[str, dict[str, Entry], list[str]]:
        """As `snapshot.restore`, with all that a task that may change what `allow` has
        must leave as it was: what the plan protects, ralph's own files, and those by
        which tools decide what to run, of which no new one stays, either."""
        changed = self.home.difference(before, after)
        trusted = trust.trusted_kinds(self.from_home.trust, changed)
        trusted -= patterns.matching(allow, trusted)
        left = (*self.state(allow), *trusted)
        protected = self.settings.plan.protected
        return restore(self.home, before, after, protected, allow, left)

    def start(
        self,
        argv: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        timeout: float,
        log: Path | None = None,
    ) -> ProcessResult:
        """Run a program in a place, for at most so many seconds."""
        with self.inside(cwd) as wrap:
            command = Command(wrap(argv, env), cwd, env, timeout, out=log)
            return run_process(command, self.control)

    def run(
        self,
        check: Check,
        cwd: Path,
        name: str,
        label: str = "",
        env: Mapping[str, str] | None = None,
    ) -> CheckResult:
        """Run a command in a place, its log called `name`; its result. StopNow if ralph
        must stop."""
        argv = list(check.run)
        if isinstance(check.run, str):
            argv = ["/bin/sh", "-c", check.run]
        log = new_log(self.paths, f"{name}.log")
        env = {**self.env(cwd), **(env or {})}
        results = cwd / CHECK_RESULTS
        if check.results:
            files.clear(results).parent.mkdir(parents=True, exist_ok=True)
            env["RALPH_RESULTS"] = str(results)
        done = self.start(argv, cwd, env, check.timeout, log)
        if done.ended is Ended.INTERRUPTED:
            raise StopNow
        result = CheckResult(
            name=check.name,
            command=check.command,
            ok=done.succeeded,
            exit=done.exit,
            seconds=round(done.seconds, 1),
            tail=text.tail(text.redact(text.clean(done.tail)), TAIL),
            log=str(log),
            timed_out=done.ended is Ended.DEADLINE,
        )
        if check.results:
            result = with_tests(result, read(results, cwd))
        self.view.check(result, label)
        return result

    def stamp(self, tree: str) -> str:
        """What a place that holds `tree` belongs to: `setup`, the files that its `when`
        names, or all of them, and the names of what home's `.worktreeinclude` brings. A
        place with another stamp is made anew."""
        source = ["no setup"]
        if self.setup and not self.setup.when:
            source = [self.setup.run, self.home.tree(tree)]
        elif self.setup:
            entries = self.home.entries(tree)
            names = sorted(patterns.matching(self.setup.when, entries))
            source = [self.setup.run, *(f"{entries[name]} {name}" for name in names)]
        words = "\0".join([*source, *sorted(self.from_home.copied)])
        return files.digest(words.encode("utf-8", "surrogatepass"))

    def set_up(
        self, place: Checkout, name: str, env: Mapping[str, str] | None = None
    ) -> CheckResult | None:
        """Run the plan's `setup` in a place, once more if it is red; its result, None
        without a setup. Files that it took from a cache of others are the place's own
        afterwards."""
        if self.setup is None:
            return None
        check = Check("setup", self.setup.run, SETUP_TIMEOUT)
        env = {**(env or {}), **shared_caches(os.environ)}
        for log in (f"{name}-setup", f"{name}-setup-again"):
            result = self.run(check, place.root, log, env=env)
            if result.ok:
                exact.unshare(place.root)
                break
        return result


def prepare_workspace(
    places: Places, place: Checkout, tree: str, head: str, name: str
) -> CheckResult | None:
    """Check out `tree` in a workspace, with HEAD at `head`. One that belongs to another
    stamp is made anew, with `setup`; the result of that if it is red. Nothing that
    setup made is work."""
    stamp = places.stamp(tree)
    noted, made_before = noted_setup(place)
    if noted != stamp:
        place.remove()
    new = place.reset(tree)
    places.add_git_and_settings(place, head)
    if not new:
        hide(place, made_before)
        return None
    result = places.set_up(place, name)
    made = place.untracked() if result else []
    hide(place, made)
    if result:
        remove_unusable(place, tree)
        if not result.ok:
            return result
    note_setup(place, stamp, dict.fromkeys(made))
    return None


def setup_failed(result: CheckResult) -> str:
    """The message for a `setup` that fails on the branch's own files: its output from
    the first line that speaks of an error, else its last lines."""
    error = r"^[^\n]*\berror\b.*"
    said = re.search(error, result.tail, re.IGNORECASE | re.MULTILINE | re.DOTALL)
    cause = said[0] if said else text.tail(result.tail, 240)
    why = text.one_line(cause, 250) or "it printed nothing"
    if "Could not find an activated virtualenv" in result.tail:  # what pip says
        why += " Make one in the checkout: "
        why += "python3 -m venv .venv && .venv/bin/pip install ..."
    command = text.one_line(result.command, 100)
    return f"setup {result.outcome}: {command}: {why}; all of it: {result.log}"
