"""A run: what the command line said, everything that the loop knows, and which plan it may work."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.agents import registry
from _ralph.agents.registry import Agent
from _ralph.errors import BadInput
from _ralph.files import resource
from _ralph.git.branch import Branch
from _ralph.git.git import Git
from _ralph.git.patterns import matching
from _ralph.git.workspace import Place
from _ralph.loop.detect import detect_checks
from _ralph.loop.pool import Pool, Turn
from _ralph.loop.room import Room, Site
from _ralph.loop.view import Reporter, View
from _ralph.loop.worker import Job, Report
from _ralph.model import Attempt, Paths, Plan, Share, Task
from _ralph.process.process import Control
from _ralph.process.sandbox import Sandbox
from _ralph.state import edit, limits, prd
from _ralph.state.history import History
from _ralph.state.log import Journal
from _ralph.state.records import AttemptEnded, Record

DEFAULT_COMMIT = "{{ task.id }}: {{ task.title }}"
PATIENCE = 30.0
"""Seconds that a prd.json which cannot be read is waited for in the middle of a run."""


@dataclass(frozen=True)
class Options:
    """What the command line said; None and empty mean that prd.json or the default decides."""

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
    launch: str | None = None
    launch_checks: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    words: tuple[str, ...] = ()
    """All of it as words of a command line."""


@dataclass
class Run:
    """Everything the loop knows; all of it can be read again from disk."""

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
    owed: list[Callable[[Plan], str]] = field(default_factory=list)
    red: list[str] = field(default_factory=list)
    rechecked: tuple[str, str] | None = None
    report: Report | None = None
    _site: Site | None = None

    @property
    def seconds(self) -> float:
        """How long the run has gone, this process and those before it that crashed."""
        return self.carried + time.monotonic() - self.started

    @property
    def ends(self) -> float:
        """When (unix time) its time is up."""
        return limits.run_deadline(self.limits, self.seconds, time.time())

    @property
    def time_left(self) -> float:
        """The seconds until then, at least one."""
        return max(self.ends - time.time(), 1.0)

    @property
    def under_way(self) -> bool:
        """Whether something was begun or decided that is not done: the next start goes on with it,
        as after a kill, if nothing is written on top."""
        known = self.history
        return bool(known.open_starts or known.pending or known.broken or self.journal.failed)

    @property
    def jobs(self) -> int:
        """How many tasks are worked side by side."""
        return 1 if self.options.once else self.limits.jobs

    def launch_of(self, task: Task) -> str:
        """The command behind which this task is worked, on another machine or in a container; nothing where
        it is worked here."""
        return self.options.launch or task.launch or str(self.plan.settings.get("launch") or "")

    @property
    def prefixes(self) -> list[str]:
        """The launch prefixes that the open tasks and the checks need."""
        open_tasks = (task for task in self.plan.tasks if not task.passed)
        return sorted({*map(self.launch_of, open_tasks), self.options.launch_checks or ""} - {""})

    def share_of(self, task: Task) -> Share | None:
        """What an attempt at this task may spend beside those under way; None if that is too little."""
        given = [attempt.share for attempt in self.pool.attempts]
        return limits.share(self.limits, self.history, given, self.jobs, self.history.of(task))

    @property
    def permissions(self) -> str:
        """What agents may do; inside ralph's own sandbox that is everything that it lets them."""
        return "sandbox" if self.options.sandbox else "full" if self.options.full_permissions else "edit"

    def wrap(self, argv: list[str], place: Path) -> list[str]:
        """A command as it is run in a place: inside the sandbox, if there is one."""
        return self.box.wrap(argv, place) if self.box else argv

    @property
    def state(self) -> tuple[str, ...]:
        """What git calls the files that no work changes: the plan, the notes, the rulebook."""
        places = (self.paths.prd, self.paths.progress, self.paths.rulebook)
        return tuple(name for place in places if (name := self.git.name_of(place)))

    @property
    def site(self) -> Site:
        """What all places of this plan have in common."""
        keep, setup = tuple(self.plan.settings.get("keep", ())), self.plan.setup
        if self._site is None or (self._site.keep, self._site.setup) != (keep, setup):
            self._site = Site(
                self.git, self.branch.name, setup, keep, self.paths.root / ".worktreeinclude", self.control,
                self.env(), self.log, self.view.check, self.wrap,
            )  # fmt: skip
        return self._site

    def place(self, folder: Path) -> Place:
        """The place at `folder`, with its index in the private folder."""
        return Place(self.git, folder, self.paths.private / f"{folder.name}.index", self.state)

    def in_worker(
        self,
        work: Callable[[Run], dict[str, Any]],
        hear: Callable[[dict[str, Any]], None] = lambda _: None,
        number: int = 0,
    ) -> Job:
        """Begin `work(run)` in a process of its own, for the worker of this number: a job, whose result is
        the JSON object that it returns. `hear` gets the facts that it tells on the way."""

        def job(control: Control, report: Report) -> dict[str, Any]:
            view = Reporter(report, self.view)
            control.on_tick = view.tick if view.stays else None
            site = replace(self.site, control=control, told=view.check)
            return work(replace(self, control=control, view=view, _site=site, report=report))

        def heard(event: dict[str, Any]) -> None:
            if event["event"] == "view":
                self.view.hear(event, number)
            else:
                hear(event)

        self.site.warm()
        return self.pool.start(job, heard)

    def turn(self, attempt: Attempt) -> Turn:
        """Stand in line for the clean room."""
        self.view.doing("in line for the clean room", attempt.worker)
        return self.pool.turn(attempt)

    def wait(self, job: Job) -> dict[str, Any]:
        """The result of a job, before anything else goes on."""
        try:
            return self.pool.wait(self.control, job)
        finally:
            self.view.doing("")  # what it said is over

    def workspace(self, attempt: Attempt) -> Place:
        """Where the agent works; a rulebook that the task may change is a file like any other there."""
        place = self.place(self.paths.workspace(attempt.worker))
        place.made = list(place.noted_setup().get("made", []))
        own = self.git.name_of(self.paths.rulebook)
        if matching(attempt.task.allow, [own]):
            place.state = tuple(name for name in place.state if name != own)
        return place

    @contextlib.contextmanager
    def workspaces_away(self) -> Iterator[None]:
        """Have the workspaces out of the way while checks run, but for those in which others are at work."""
        with contextlib.ExitStack() as stack:
            for folder in self.paths.places.glob("work-*"):
                stack.enter_context(self.place(folder).away())
            yield

    def protection(self, task: Task) -> tuple[list[str], list[str]]:
        """The patterns of files that an attempt may not change, and those that this task may all the same."""
        return list(self.plan.settings.get("protect", [])), list(task.allow)

    def room(self, folder: Path | None = None, attempt: Attempt | None = None) -> Room:
        """The clean room, or another one at `folder`."""
        site = replace(self.site, control=self.control, env=self.env(attempt), told=self.view.check)
        place = Place(
            self.git,
            folder or self.paths.room,
            self.paths.private / f"{(folder or self.paths.room).name}.index",
            full=True,  # a clone is
        )
        return Room(site, place)

    def ladder(self, task: Task | None = None) -> tuple[str, ...]:
        """The agents of `task`, a rung for each failed attempt: those given, else its own, else the plan's,
        else claude."""
        own = task.agents if task else ()
        return self.options.agent or own or prd.commands(self.plan.settings.get("agent")) or ("claude",)

    def agent(self, task: Task) -> Agent:
        """Who works the next attempt at `task`: its rung of the ladder, or the fallback while that one's
        provider is away."""
        rungs = self.ladder(task)
        first, other = self.named(rungs[min(self.history.of(task).attempts, len(rungs) - 1)]), self.fallback
        return min((first, other), key=self.back_at) if other else first

    @property
    def fallback(self) -> Agent | None:
        """The agent that works while the provider of another one is away, if there is one."""
        command = self.options.fallback or self.plan.settings.get("fallback")
        return self.named(command) if command else None

    def named(self, command: str) -> Agent:
        """The agent that a person named, as it may work here."""
        return registry.find_agent(command, self.rows, self.permissions)

    def back_at(self, agent: Agent) -> float:
        """When (unix time) an agent can be used again: 0 is now, NONE is not in this run."""
        known = self.history.this_run
        if agent.command in known.gone:
            return limits.NONE
        at = max(known.away.get(agent.command, 0.0), self.bills_extra_until(agent))
        return at if at > time.time() else 0.0

    def bills_extra_until(self, agent: Agent) -> float:
        """Until when (unix time) an agent's provider bills extra usage, which nobody allowed."""
        allowed = self.options.allow_overage or self.plan.settings.get("allowOverage")
        return 0.0 if allowed else self.history.overage.get(agent.name, 0.0)

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

    @property
    def own_prompt(self) -> Path | None:
        """The prompt template of a person's own, if there is one."""
        named = self.options.prompt or self.plan.settings.get("prompt")
        return self.paths.prd.parent / named if named else None

    def template(self) -> Path:
        return self.own_prompt or resource("templates/prompt.md")

    def commit_template(self) -> str:
        return str(self.plan.settings.get("commit") or DEFAULT_COMMIT)

    def env(self, attempt: Attempt | None = None, **extra: str) -> dict[str, str]:
        """The environment of agents, checks and hooks; inside an attempt they are told which."""
        names = {
            "RALPH_TASK_ID": attempt.task.id.replace("\0", ""),
            "RALPH_ITERATION": str(attempt.iteration),
            "RALPH_ATTEMPT": str(attempt.number),
            "RALPH_HANDOFF": str(self.paths.handoff(attempt.worker)),
        } if attempt else {}  # fmt: skip
        return registry.agent_env({"RALPH_RUN_ID": self.run_id, **names, **extra})

    def log(self, name: str) -> Path:
        """The path of a new file in the scratch folder; the newest 50 attempts are kept."""
        return files.clear(scratch(self.paths) / name)

    @property
    def plan_digest(self) -> str:
        return files.digest(self.plan.text.encode())

    def write(self, record: Record, headline: str, lines: Sequence[str] = ()) -> None:
        """Append one record of this run and take it into the history."""
        if isinstance(record, AttemptEnded):
            files.sync_all(self.git.common)  # the objects that it names must outlive a power cut, too
        record = replace(record, plan=self.plan.key, run=self.run_id)
        self.history.apply(self.journal.append(record, headline, lines))

    def read_plan(self) -> None:
        """Take in what a person changed in prd.json since it was last read. A file that cannot be read is
        waited for, a person may be saving it; then the last plan holds, and the trouble is said."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                found = self.paths.prd.read_bytes() if self.paths.prd.is_file() else b""
                if found != self.plan.text.encode():
                    plan = self.admitted(prd.load(self.paths.prd))
                    # another name is another plan for the notes: from the next run on
                    self.plan = replace(plan, project=self.plan.project, branch=self.plan.branch)
                self.trouble = ""
                self._pay()
                return
            except BadInput as error:
                if time.monotonic() > end or self.trouble or self.control.stop_now:
                    self.trouble = str(error)
                    self.view.line(f"! {error}; the plan as it was before is worked on", color="yellow")
                    return
            self.pool.serve(self.control, 0.5)

    def admitted(self, plan: Plan) -> Plan:
        """`plan` as it can be worked here; only a loop knows what checks and judge it was given."""
        return admit(plan, self.paths, self.options) if self.run_id else examined(plan, self.options)

    def edit(self, change: Callable[[Plan], str]) -> None:
        """Change prd.json, and take it in: what ralph itself changed needs no new validation. While the
        file cannot be read the change is owed, and made as soon as it can."""
        self.owed.append(change)
        try:
            self._pay()
        except BadInput as error:
            if not self.trouble:
                self.view.line(f"! {error}; what is to be changed there is not lost", color="yellow")
            self.trouble = str(error)
            new = prd.read(change(self.plan), self.plan.path)
            self.plan = replace(new, checks=self.plan.checks)

    def _pay(self) -> None:
        """Make the changes of prd.json that are owed. BadInput if it cannot be read still."""
        while self.owed:
            with edit.lock(self.paths.private):
                new = edit.apply(self.plan, self.owed[0], 0.5 if self.trouble else edit.PATIENCE)
            self.plan = replace(new, checks=self.plan.checks)
            del self.owed[0]


def scratch(paths: Paths) -> Path:
    """The folder for people, `.ralph/`, which hides itself from git."""
    if os.path.lexists(paths.scratch) and not paths.scratch.is_dir():
        raise BadInput(f"{paths.scratch} is no folder, and ralph keeps its logs there; move it away")
    paths.scratch.mkdir(exist_ok=True)
    ignore = paths.scratch / ".gitignore"
    if files.read_regular(ignore) != b"*\n":
        files.atomic_write(files.clear(ignore), b"*\n")
    return paths.scratch


def trim_scratch(paths: Paths, under_way: Collection[int] = (), keep: int = 49) -> None:
    """Before an attempt, which makes the fiftieth: delete the logs of all but the newest `keep`, and of
    those `under_way`, by their iterations."""
    names = [(entry.name.partition("-")[0], entry) for entry in scratch(paths).iterdir()]
    numbered = [(int(number), entry) for number, entry in names if number.isdecimal()]
    newest = sorted({number for number, _ in numbered})[-keep:]
    for number, entry in numbered:
        if number not in newest and number not in under_way and entry.is_file():
            entry.unlink(missing_ok=True)


def load_plan(paths: Paths, options: Options) -> Plan:
    """The plan of a run, as `admit` lets it in; BadInput without the one task that is asked for."""
    plan = admit(prd.load(paths.prd), paths, options)
    if options.task is not None:
        plan.task(options.task)
    return plan


def admit(plan: Plan, paths: Paths, options: Options) -> Plan:
    """The plan, validated, with the checks of the command line; refused if nothing could prove it."""
    plan = examined(plan, options)
    if is_starter(plan):
        raise BadInput(
            f"{paths.prd.name} holds nothing but the example that `ralph init` wrote; edit it, or: "
            f"ralph plan brief.md, or: ralph add 'TITLE' --check 'COMMAND'"
        )
    require_network(plan, options)
    judge = options.judge or plan.settings.get("judge")
    unchecked = [task.id for task in plan.tasks if not task.passed and not task.checks]
    if not plan.checks and unchecked and not judge:
        raise BadInput(_no_checks(paths, plan, unchecked))
    return plan


def require_network(plan: Plan, options: Options) -> None:
    """BadInput where a plan says that there is no network, and nothing could keep it: a silent lie."""
    if plan.settings.get("network") is False and not options.sandbox:
        raise BadInput(f"{plan.path.name}: network: false can only be kept with --sandbox bwrap")


def examined(plan: Plan, options: Options) -> Plan:
    """The plan held against the schema, with the checks of the command line."""
    prd.validate(plan)
    return replace(plan, checks=plan.checks + prd.parse_checks(list(options.checks), "--check"))


def is_starter(plan: Plan) -> bool:
    """Whether its tasks are still the example that `ralph init` wrote."""
    return len(plan.tasks) == 1 and bool([plan.tasks[0].raw] == starter()["userStories"])


def starter() -> dict[str, Any]:
    """The plan that `ralph init` writes, before it is filled in."""
    found: dict[str, Any] = json.loads(resource("templates/prd.json").read_text("utf-8"))
    return found


def _no_checks(paths: Paths, plan: Plan, unchecked: list[str]) -> str:
    commands = prd.foreign_gates(plan) or detect_checks(paths.root, plan.setup.run if plan.setup else "")
    words = " ".join(f"--check {shlex.quote(command)}" for command in commands or ["your test command"])
    source = "that stand in the plan" if prd.foreign_gates(plan) else "found in this project"
    which = "no task has any of its own" if len(unchecked) == len(plan.tasks) else f"{unchecked[0]} has none"
    return (
        f"{paths.prd.name}: there are no checks, so nothing could prove that a task is done "
        f"({which}). With the checks {source if commands else 'that you name'}:\n\n"
        f'    ralph run {words}\n\nor write them under "checks" in {paths.prd.name}, as `ralph init` does'
    )
