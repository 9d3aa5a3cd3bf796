"""A run: its options, its state, and which plans it accepts."""

from __future__ import annotations

import functools
import json
import os
import signal
import time
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.agents import registry
from _ralph.agents.registry import Agent
from _ralph.agents.surroundings import in_place
from _ralph.errors import BadInput, Stop, StopNow
from _ralph.files import resource
from _ralph.git.branch import Branch
from _ralph.git.git import Git
from _ralph.git.patterns import matching
from _ralph.git.workspace import Place
from _ralph.loop.detect import Project
from _ralph.loop.jobs import Attempt
from _ralph.loop.pool import LONGEST_WAIT, Look, Pool, Turn
from _ralph.loop.results import Results
from _ralph.loop.room import Gear, Room, Site, gear_of
from _ralph.loop.view import Reporter, View
from _ralph.loop.worker import Hear, Job, Result, start
from _ralph.model import Json, Paths, Plan, Share, Task
from _ralph.process.process import Control, run_process
from _ralph.process.sandbox import Sandbox
from _ralph.state import edit, limits, prd
from _ralph.state.facts import command_line, summary
from _ralph.state.history import Away, History
from _ralph.state.layout import last_good, stop_is_asked
from _ralph.state.log import Journal
from _ralph.state.records import Record
from _ralph.text import last_line

DEFAULT_COMMIT = "{{ task.id }}: {{ task.title }}"
_NOTIFY_TIMEOUT = 30.0
"""Seconds that the command of --notify may take."""
_IGNORED = b"**/.ralph/log/\n**/.ralph/report.html\n"
PATIENCE = 2.0
"""Seconds that prd.json may be half saved before ralph says that it cannot be read."""
RANDOM = 32
"""Letters of an attempt's id that are random; what it is an attempt at follows."""
SetField = Callable[[Plan, list[Task], Any], str]


@dataclass(frozen=True)
class Options:
    """The command line; None and empty mean that prd.json or the default decides."""

    prd: Path = Path("prd.json")
    once: bool = False
    task: str | None = None
    agent: tuple[str, ...] = ()
    fallback: str | None = None
    checks: tuple[str, ...] = ()
    judge: str | None = None
    planner: str | None = None
    prompt: Path | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    until: str | None = None
    agent_timeout: float = 3600.0
    idle_timeout: float = 1200.0
    branch: str | None = None
    no_wait: bool = False
    allow_overage: bool = False
    full_permissions: bool = False
    sandbox: str | None = None
    no_awake: bool = False
    notify: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    words: tuple[str, ...] = ()
    """All of it, as a command line."""


@dataclass(frozen=True)
class Change:
    """A field of tasks in prd.json that is to be set."""

    set_field: SetField
    tasks: list[Task]
    value: bool | str

    def of(self, plan: Plan) -> str:
        """The text of `plan` with it."""
        return self.set_field(plan, self.tasks, self.value)


@dataclass
class Run:
    """All that the loop knows; everything can be read again from disk."""

    options: Options
    paths: Paths
    plan: Plan
    git: Git
    branch: Branch
    journal: Journal
    history: History
    limits: limits.Limits
    rows: Mapping[str, Any]
    control: Control
    view: View
    run_id: str
    started: float = field(default_factory=time.monotonic)
    carried: float = 0.0
    tip: str = ""
    notices: list[str] = field(default_factory=list)
    box: Sandbox | None = None
    pool: Pool = field(default_factory=Pool)
    recorded: bool = False
    trouble: str = ""
    unmade: list[Change] = field(default_factory=list)
    red: list[str] = field(default_factory=list)
    rechecked: tuple[str, str] | None = None
    results: Results = field(init=False)

    def __post_init__(self) -> None:
        self.results = Results(self.git)
        self.heed(self.control)

    def heed(self, control: Control) -> None:
        """Heed the signals that `control` gets, as do the calls of git."""
        self.control = self.git.calls.control = control

    @property
    def seconds(self) -> float:
        """How long the run has lasted, including processes before this one that crashed."""
        return self.carried + time.monotonic() - self.started

    @property
    def ends(self) -> float:
        """When (unix time) its time is up."""
        return limits.run_deadline(self.limits, self.seconds, time.time())

    @property
    def jobs(self) -> int:
        """How many tasks may be worked side by side."""
        return 1 if self.options.once else self.limits.jobs

    @property
    def share(self) -> Share | None:
        """What another attempt may spend beside those under way; None if nothing is left for it."""
        given = [attempt.share for attempt in self.pool.attempts]
        return limits.share(self.limits, self.history, given, self.jobs)

    @property
    def permissions(self) -> str:
        """What agents may do; inside ralph's own sandbox, all that it allows."""
        return "sandbox" if self.options.sandbox else "full" if self.options.full_permissions else "edit"

    def wrap(self, argv: list[str], place: Path) -> list[str]:
        """A command as it runs in a place: inside the sandbox, if there is one."""
        return self.box.wrap(argv, place) if self.box else argv

    def state(self, allow: Collection[str] = ()) -> tuple[str, ...]:
        """What git calls the files that no work may change: the plan, the notes and, unless `allow` has it,
        the rulebook; for a link, also what it leads to."""
        *always, rulebook = map(self._names_of, (self.paths.prd, self.paths.progress, self.paths.rulebook))
        kept = always if matching(allow, rulebook) else [*always, rulebook]
        return tuple(dict.fromkeys(name for names in kept for name in names))

    def _names_of(self, path: Path) -> list[str]:
        found = (self.git.name_of(one) for one in (path, Path(os.path.realpath(path))))
        return [name for name in found if name]

    @functools.cached_property
    def gear(self) -> Gear:
        """What places get from home."""
        return gear_of(self.git)

    @property
    def site(self) -> Site:
        """What all places of this plan have in common."""
        return Site(
            self.git, self.gear, self.branch.name, self.plan.setup, self.plan.settings.get("keep", ()),
            self.control, lambda place: self.env({}, place), self.log, self.view.check, self.wrap,
        )  # fmt: skip

    def place(self, folder: Path, allow: Collection[str] = ()) -> Place:
        """The place at `folder`, with its index in the private folder. A rulebook that `allow` has is a file
        like any other there."""
        return Place(self.git, folder, self.paths.private / f"{folder.name}.index", self.state(allow))

    def in_worker(self, work: Callable[[Run], Result], kind: type[Result], number: int = 0) -> Job[Result]:
        """Start `work(run)` in a process of its own, for the worker of this number: a job, whose result is
        the dataclass `kind` that it returns."""

        def job(control: Control, report: Hear) -> Result:
            view = Reporter(report, self.view.stays, self.view.verbose)
            control.on_tick = view.tick if view.stays else None
            self.view = view  # of this process alone
            self.heed(control)
            return work(self)

        assert self.gear  # found once, and not in each worker
        return start(job, kind, lambda event: self.view.hear(event, number), self.pool.jobs)

    def new_id(self, task: Task) -> str:
        """The id of an attempt: random, and what it is an attempt at."""
        return f"{uuid.uuid4().hex}{self.mark_of(task)}"

    def mark_of(self, task: Task) -> str:
        """The end of the ids of all attempts at a task: it is the same in a clone, and no other plan's."""
        plan = self.git.name_of(self.paths.prd) or self.paths.prd.name
        return files.digest(f"{plan}@{self.plan.branch}\n{task.key}".encode("utf-8", "surrogatepass"))

    def turn(self, attempt: Attempt) -> Turn:
        """Queue for the clean room."""
        self.view.doing("in line for the clean room", attempt.worker)
        return self.pool.turn(attempt)

    def wait(self, awaited: Awaitable[Result]) -> Result:
        """The result of a job, or of steps that wait for jobs alone. Other jobs go on meanwhile; attempts do
        not."""
        steps = awaited.__await__()
        try:
            while True:
                job = next(steps)
                while not job.ready:
                    self.pool.serve(self.control, LONGEST_WAIT)
                self.view.doing("")
        except StopIteration as done:
            found: Result = done.value
            return found

    def workspace(self, worker: int, allow: Collection[str] = ()) -> Place:
        """Where an agent works, at a task that may change what `allow` has."""
        place = self.place(self.paths.workspace(worker), allow)
        place.carried = self.gear.carried
        return place

    def room(self, folder: Path, env: Mapping[str, str] | None = None) -> Room:
        """The clean room at `folder`; `env` is added to the environment of its checks."""
        site = replace(self.site, env=lambda place: self.env(env, place))
        return Room(site, Place(self.git, folder, self.paths.private / f"{folder.name}.index", full=True))

    def ladder(self, task: Task | None = None) -> tuple[str, ...]:
        """The agents of `task`, one for each failed attempt: those given, else its own, else the plan's, else
        claude."""
        own = task.agents if task else ()
        return self.options.agent or own or prd.commands(self.plan.settings.get("agent")) or ("claude",)

    def agent(self, task: Task) -> Agent:
        """The agent of the next attempt at `task`: its rung of the ladder, or the fallback while that one is
        unavailable."""
        rungs = self.ladder(task)
        first, other = self.named(rungs[min(self.history.of(task).attempts, len(rungs) - 1)]), self.fallback
        return min((first, other), key=self.back_at) if other else first

    @property
    def fallback(self) -> Agent | None:
        """The agent that works while another one is unavailable, if there is one."""
        command = self.options.fallback or self.plan.settings.get("fallback")
        return self.named(command) if command else None

    def named(self, command: str) -> Agent:
        """The agent of a command, with the permissions of this run."""
        return registry.find_agent(command, self.rows, self.permissions)

    def back_at(self, agent: Agent) -> float:
        """When (unix time) an agent can be used again: 0 is now, NEVER not in this run."""
        at = limits.back(self.limits, self.away(agent))
        return at if at > time.time() else 0.0

    def away(self, agent: Agent) -> Away:
        """Why it cannot be used: what was said of it last, or its provider bills extra usage."""
        allowed = self.options.allow_overage or self.plan.settings.get("allowOverage")
        limited = self.history.this_run.away.get(agent.command, Away())
        billed = Away() if allowed else self.history.overage.get(agent.name, Away())
        return max(limited, billed, key=lambda one: limits.back(self.limits, one))

    @property
    def judge(self) -> Agent | None:
        """The agent that must agree before a task passes, if there is one."""
        command = self.options.judge or self.plan.settings.get("judge")
        return registry.find_agent(command, self.rows, "read") if command else None

    @property
    def planner(self) -> Agent:
        """The agent that writes a plan: the one given, the plan's planner, its agent, or claude."""
        settings = self.plan.settings
        command = self.options.planner or settings.get("planner") or self.ladder()[0]
        return registry.find_agent(command, self.rows, "read")

    def template(self) -> Path:
        """The template of prompts: the person's own, if there is one."""
        named = self.options.prompt or self.plan.settings.get("prompt")
        return self.paths.prd.parent / named if named else resource("templates/prompt.md")

    def commit_template(self) -> str:
        return str(self.plan.settings.get("commit") or DEFAULT_COMMIT)

    def env(self, extra: Mapping[str, str] | None, place: Path) -> dict[str, str]:
        """The environment of agents, setup, checks and hooks in a place."""
        found = registry.agent_env({"RALPH_RUN_ID": self.run_id, **(extra or {})}, self.paths.root)
        return in_place(found, self.paths.root, place, registry.config_variables(self.rows))

    def names(self, attempt: Attempt) -> dict[str, str]:
        """The environment variables of an attempt."""
        return {
            "RALPH_TASK_ID": attempt.task.id.replace("\0", "").encode("utf-8", "replace").decode(),
            "RALPH_ITERATION": str(attempt.iteration),
            "RALPH_ATTEMPT": str(attempt.number),
            "RALPH_HANDOFF": str(self.paths.handoff(attempt.worker)),
        }

    def log(self, name: str) -> Path:
        """The path of a new file in the folder of logs."""
        return files.clear(logs_folder(self.paths) / name)

    def write(self, record: Record, headline: str, lines: Sequence[str] = ()) -> None:
        """Append a record of this run, and apply it to the history."""
        record = replace(record, plan=self.plan.key, run=self.run_id)
        self.history.apply(self.journal.append(record, headline, lines))

    def read_plan(self) -> None:
        """Read prd.json if it changed. While it cannot be read, `trouble` says why, and nothing new
        starts."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                found = files.read_regular(Path(os.path.realpath(self.paths.prd)))
                if found != self.plan.text.encode():
                    self._take_over(prd.load(self.paths.prd))
                self.trouble = ""
                self._make_edits()
                files.clear(last_good(self.paths))
                return
            except BadInput as error:
                if self.trouble or time.monotonic() > end or self.control.stop_now:
                    self._wait_for_plan(str(error))
                    return
            self.pool.serve(self.control, 0.2)

    def edit(self, set_field: SetField, tasks: Task | Sequence[Task], value: bool | str) -> None:
        """Set a field of tasks in prd.json, as `edit.set_passed`; if it cannot be read, as soon as it can."""
        change = Change(set_field, [tasks] if isinstance(tasks, Task) else list(tasks), value)
        self.unmade.append(change)
        try:
            self._make_edits()
        except BadInput as error:
            self._wait_for_plan(str(error))
            changed = prd.read(change.of(self.plan), self.plan.path)
            self._use(replace(changed, checks=self.plan.checks))

    @property
    def unmarked(self) -> list[str]:
        """The keys of the tasks whose marks prd.json lacks, as it could not be written."""
        return [task.key for change in self.unmade for task in change.tasks]

    def _make_edits(self) -> None:
        """Make the changes that prd.json lacks. BadInput if it cannot be read."""
        while self.unmade:
            with edit.lock(self.paths.private):
                new = edit.apply(self.plan, self.unmade[0].of)
            ours = self.unmade.pop(0).of(self.plan)
            if new.text == ours:
                self._use(replace(new, checks=self.plan.checks))
            else:  # somebody saved it meanwhile
                self._take_over(new)

    def _wait_for_plan(self, trouble: str) -> None:
        """Note that prd.json cannot be read, and say it, once; `status` shows the last good one meanwhile."""
        if trouble != self.trouble:
            self.trouble = trouble
            self.view.line(f"! {trouble}; nothing new starts until it can be read", color="yellow")
            notify(self, None)
        files.write_own(last_good(self.paths), self.plan.text.encode())

    def _take_over(self, plan: Plan) -> None:
        """Use a plan that somebody saved. BadInput if no run could use it."""
        plan = admit(plan, self.paths, self.options)
        if plan.branch != self.plan.branch:
            said = "! branchName has changed: that is another plan, from the next run on"
            self.view.line(said, color="yellow")
        now = limits.resolve(plan.settings, self.options.limits)
        self.limits = replace(now, until=self.limits.until, jobs=self.limits.jobs)
        self._use(plan)

    def _use(self, plan: Plan) -> None:
        self.plan = replace(plan, branch=self.plan.branch)


def asked_to_stop(run: Run) -> Stop | None:
    """The stop that a signal or `ralph stop` asks for."""
    match run.control.stop_signal:
        case signal.SIGTERM:
            return Stop("terminated", "terminated")
        case signal.SIGHUP:
            return Stop("hung-up", "hung up")
    if run.control.interrupts:
        return Stop("interrupted", "interrupted")
    asked = stop_is_asked(run.paths, run.run_id)
    return Stop("asked", "stopped, as `ralph stop` asked") if asked else None


def notify(run: Run, stop: Stop | None) -> None:
    """Give the summary to --notify's command. Its failure changes nothing. It is the person's own, and not
    part of an attempt: it may call `ralph tell`, `retry` or `stop`."""
    if run.options.notify:
        payload = json.dumps(summary(run.plan, run.history, stop, run.seconds)).encode()
        env = {name: value for name, value in os.environ.items() if name != "RALPH_RUN_ID"}
        told = run_process(
            ["/bin/sh", "-c", run.options.notify], cwd=run.paths.root, env=env, timeout=_NOTIFY_TIMEOUT,
            control=run.control, stdin=payload, out=run.log("notify.log"), spare=run.pool.children,
        )  # fmt: skip
        if told.exit != 0:
            run.view.line(f"! --notify ended with exit {told.exit}: {last_line(told.tail)}")


async def stand_by(run: Run, attempt: Attempt, said: str, doing: str, is_over: Callable[[], bool]) -> bool:
    """Say why an attempt has to wait, and wait until `is_over`; False if the run's time is up before. StopNow
    when ralph must stop."""
    run.view.line(f"! {said}", color="yellow")
    run.view.doing(doing, attempt.worker)
    notify(run, None)
    await Look(lambda: is_over() or asked_to_stop(run) is not None or time.time() >= run.ends)
    if is_over():
        return True
    if asked_to_stop(run):
        raise StopNow
    return False


def logs_folder(paths: Paths) -> Path:
    """The folder `.ralph/log`, made if needed. Git is told to ignore it and the report; all else in `.ralph`
    is a person's."""
    for folder in (paths.logs.parent, paths.logs):
        if os.path.lexists(folder) and not folder.is_dir():
            raise BadInput(f"{folder} is not a folder, and ralph needs one there for its logs; move it away")
    paths.logs.mkdir(parents=True, exist_ok=True)
    ignore = paths.private.parents[1] / "info/exclude"
    there = ignore.read_bytes() if ignore.is_file() else b""
    if _IGNORED not in there:
        ignore.parent.mkdir(exist_ok=True)
        files.atomic_write(ignore, there + (b"" if there.endswith(b"\n") or not there else b"\n") + _IGNORED)
    return paths.logs


def trim_logs(paths: Paths, under_way: Collection[int] = (), keep: int = 49) -> None:
    """Delete the logs of all attempts but the newest `keep` and those `under_way`, by their iterations."""
    names = [(entry.name.partition("-")[0], entry) for entry in logs_folder(paths).iterdir()]
    numbered = [(int(number), entry) for number, entry in names if number.isdecimal()]
    newest = sorted({number for number, _ in numbered})[-keep:]
    for number, entry in numbered:
        if number not in newest and number not in under_way and entry.is_file():
            entry.unlink(missing_ok=True)


def load_plan(paths: Paths, options: Options) -> Plan:
    """The plan of a run, as `admit` returns it; BadInput if --task names none of its tasks."""
    plan = admit(prd.load(paths.prd), paths, options)
    if options.task is not None:
        plan.task(options.task)
    return plan


def admit(plan: Plan, paths: Paths, options: Options) -> Plan:
    """The plan, validated, with the checks of the command line. BadInput if nothing could prove a task."""
    plan = examined(plan, options)
    if "launch" in plan.top or any("launch" in task.raw for task in plan.tasks):  # else it would run here
        raise BadInput(
            f"{paths.prd.name}: `launch` is gone since version 0.3; remove it, and run the whole plan on the "
            f"other machine or in the container (see `ralph job --help`)"
        )
    if is_starter(plan):
        raise BadInput(
            f"{paths.prd.name} has only the example that `ralph init` wrote; edit it, or: "
            f"ralph plan brief.md, or: ralph add 'TITLE' --check 'COMMAND'"
        )
    require_network(plan, options)
    if (unproved := prd.unproved(plan)) and not options.judge:
        raise BadInput(_no_checks(paths, plan, unproved, options.prd))
    return plan


def require_network(plan: Plan, options: Options) -> None:
    """BadInput if the plan forbids the network and there is no sandbox to enforce it."""
    if plan.settings.get("network") is False and not options.sandbox:
        raise BadInput(f"{plan.path.name}: network: false needs --sandbox bwrap")


def examined(plan: Plan, options: Options) -> Plan:
    """The plan, validated against the schema, with the checks of the command line."""
    prd.validate(plan)
    return replace(plan, checks=plan.checks + prd.parse_checks(list(options.checks), "--check"))


def is_starter(plan: Plan) -> bool:
    """Whether its tasks are still the example that `ralph init` wrote."""
    return bool([task.raw for task in plan.tasks] == starter()["userStories"])


def starter() -> Json:
    """The plan that `ralph init` writes, before it is filled in."""
    found: Json = json.loads(resource("templates/prd.json").read_text("utf-8"))
    return found


def _no_checks(paths: Paths, plan: Plan, unchecked: list[str], given: Path) -> str:
    own = prd.foreign_gates(plan)
    commands = own or Project(paths.root).checks(plan.setup.run if plan.setup else "")
    words = [word for one in commands or ["your test command"] for word in ("--check", one)]
    source = "that stand in the plan" if own else "found in this project"
    init = f", as `{command_line('init', given)}` does" if commands and not own else ""
    which = "no task has any of its own" if len(unchecked) == len(plan.tasks) else f"{unchecked[0]} has none"
    hints = "".join(f"\n{hint}" for hint in prd.misspelt(plan))
    return (
        f"{paths.prd.name}: there are no checks, so nothing could prove that a task is done "
        f"({which}). With the checks {source if commands else 'that you name'}:\n\n"
        f"    {command_line('run', given, words)}\n\n"
        f'or write them under "checks" in {paths.prd.name}{init}{hints}'
    )
