"""A run: its settings, its agents, its places, and what the loop knows of it."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace

from _ralph.errors import Stop, StopNow
from _ralph.git.branch import Branch
from _ralph.git.git import Git
from _ralph.loop.jobs import Attempt
from _ralph.loop.options import Options
from _ralph.loop.places import Places
from _ralph.loop.pool import LONGEST_WAIT, Pool
from _ralph.loop.results import Results
from _ralph.loop.settings import SetField, Settings
from _ralph.loop.supply import Supply
from _ralph.loop.train import Look, Turn
from _ralph.loop.view import Reporter, View
from _ralph.loop.worker import Hear, Job, Result, start
from _ralph.model import Paths, Plan, Share, Task
from _ralph.process.process import Control, run_process
from _ralph.state import limits
from _ralph.state.history import History
from _ralph.state.layout import new_log, stop_is_asked
from _ralph.state.records import Journal, Record
from _ralph.state.summary import news, summarize
from _ralph.text import last_line

_NOTIFY_TIMEOUT = 30.0
"""Seconds that the command of --notify may take."""


@dataclass
class Run:
    """All that the loop knows; everything can be read again from disk."""

    settings: Settings
    agents: Supply
    places: Places
    git: Git
    branch: Branch
    journal: Journal
    history: History
    run_id: str
    control: Control
    view: View
    started: float = field(default_factory=time.monotonic)
    carried: float = 0.0
    tip: str = ""
    notices: list[str] = field(default_factory=list)
    pool: Pool = field(default_factory=Pool)
    recorded: bool = False
    red: list[str] = field(default_factory=list)
    old: list[str] = field(default_factory=list)
    rechecked: tuple[str, str] | None = None
    results: Results = field(init=False)

    def __post_init__(self) -> None:
        self.results = Results(self.git)
        self.use(self.control, self.view)

    @property
    def options(self) -> Options:
        """The command line."""
        return self.settings.options

    @property
    def paths(self) -> Paths:
        """Where the files of the plan are."""
        return self.settings.paths

    @property
    def plan(self) -> Plan:
        """The plan as it could be read last."""
        return self.settings.plan

    @property
    def limits(self) -> limits.Limits:
        """What plan and command line allow now."""
        return self.settings.limits

    @property
    def seconds(self) -> float:
        """How long the run has lasted, including processes before this one that
        crashed."""
        return self.carried + time.monotonic() - self.started

    @property
    def ends(self) -> float:
        """When (unix time) its time is up."""
        return limits.run_deadline(self.limits, self.seconds, time.time())

    @property
    def share(self) -> Share | None:
        """What another attempt may spend beside those under way; None if nothing is
        left for it."""
        given = [attempt.share for attempt in self.pool.attempts]
        return limits.share(self.limits, self.history, given, self.settings.jobs)

    def use(self, control: Control, view: View) -> None:
        """Use this `control`, for calls of git, too, and this `view`."""
        self.control = self.places.control = self.git.calls.control = control
        self.view = self.places.view = view

    def in_worker(
        self, work: Callable[[Run], Result], kind: type[Result], number: int = 0
    ) -> Job[Result]:
        """Start `work(run)` in a process of its own, for the worker of this number: a
        job, whose result is the dataclass `kind` that it returns."""

        def job(control: Control, report: Hear) -> Result:
            view = Reporter(report, self.view.stays, self.view.verbose)
            control.on_tick = view.tick
            self.use(control, view)  # in this process alone
            return work(self)

        assert self.places.gear  # found once, and not in each worker
        return start(
            job, kind, lambda event: self.view.hear(event, number), self.pool.jobs
        )

    def turn(self, attempt: Attempt, only_looks: bool = False) -> Turn:
        """Queue for a clean room, for a candidate or only to look at the tip."""
        self.view.doing("in line for a clean room", attempt.worker)
        return self.pool.train.turn(attempt, lambda: self.tip, only_looks)

    def wait(self, awaited: Awaitable[Result]) -> Result:
        """The result of a job, or of steps that wait for jobs alone. Other jobs go on
        meanwhile; attempts do not."""
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

    def write(self, record: Record, headline: str, lines: Sequence[str] = ()) -> None:
        """Append a record of this run, and apply it to the history."""
        record = replace(record, plan=self.plan.key, run=self.run_id)
        self.history.apply(self.journal.append(record, headline, lines))

    def read_plan(self) -> None:
        """Read prd.json if it changed; `settings.trouble` says why it cannot be
        read."""

        def pause(seconds: float) -> bool:
            self.pool.serve(self.control, seconds)
            return not self.control.stop_now

        self._heed(lambda: self.settings.read(pause))

    def edit(
        self, set_field: SetField, tasks: Task | Sequence[Task], value: bool | str
    ) -> None:
        """Set a field of tasks in prd.json, as `edit.set_passed`; if it cannot be read,
        as soon as it can."""
        self._heed(lambda: self.settings.edit(set_field, tasks, value))

    def _heed(self, step: Callable[[], None]) -> None:
        """Do a step with prd.json, and say what came of it; new trouble is told to
        --notify, too."""
        before, notices = self.settings.trouble, self.settings.notices
        step()
        while notices:
            self.view.line(notices.pop(0), color="yellow")
        if self.settings.trouble not in ("", before):
            notify(self, "waiting", self.settings.trouble)


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


def notify(
    run: Run, event: str, reason: str, task: str = "", stop: Stop | None = None
) -> None:
    """Give an event, its `reason` and the summary to --notify's command, if that is
    told of such events. Its failure changes nothing. It is the person's own, and not
    part of an attempt: it may call `ralph tell`, `retry` or `stop`."""
    if not run.options.notify or event not in run.settings.notify_on:
        return
    so_far = summarize(run.plan, run.history, stop, run.seconds)
    told_of = news(event, run.plan.project, task, reason, so_far)
    payload = json.dumps(told_of) + "\n"
    env = {name: value for name, value in os.environ.items() if name != "RALPH_RUN_ID"}
    told = run_process(
        ["/bin/sh", "-c", run.options.notify], cwd=run.paths.root, env=env, timeout=_NOTIFY_TIMEOUT,
        control=run.control, stdin=payload.encode(), out=new_log(run.paths, "notify.log"),
        spare=run.pool.children,
    )  # fmt: skip
    if told.ended == "deadline":
        run.view.line(
            f"! --notify did not end within {_NOTIFY_TIMEOUT:.0f} seconds",
            color="yellow",
        )
    elif told.exit != 0:
        why = last_line(told.tail)
        run.view.line(f"! --notify ended with exit {told.exit}: {why}", color="yellow")


async def stand_by(
    run: Run, attempt: Attempt, said: str, doing: str, is_over: Callable[[], bool]
) -> bool:
    """Say why an attempt has to wait, and wait until `is_over`; False if the run's time
    is up before. StopNow when ralph must stop."""
    run.view.line(f"! {said}", color="yellow")
    run.view.doing(doing, attempt.worker)
    notify(run, "waiting", said, attempt.task.id)
    await Look(
        lambda: is_over() or asked_to_stop(run) is not None or time.time() >= run.ends
    )
    if is_over():
        return True
    if asked_to_stop(run):
        raise StopNow
    return False
