"""What one loop works with, and the two locks: the room's comes first, then the
plan's."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TypeVar

from _ralph import files, text
from _ralph.agents.team import Agents
from _ralph.checks.places import Places
from _ralph.checks.results import Results
from _ralph.checks.running import valid_for
from _ralph.checks.view import View
from _ralph.errors import BadInput, NeedsPerson, SetupFailed, Stop, StopNow, TryLater
from _ralph.git.branch import Branch
from _ralph.git.git import Git
from _ralph.model import Paths, Plan
from _ralph.process.process import Command, Control, Ended, run_process
from _ralph.state import edit, limits, prd
from _ralph.state.history import NEVER, History, Unavailable
from _ralph.state.layout import new_log, stop_is_asked
from _ralph.state.limits import Limits
from _ralph.state.log import Log
from _ralph.state.options import Options
from _ralph.state.records import AttemptBegan, Record
from _ralph.state.settings import Settings
from _ralph.state.summary import news, summarize

Found = TypeVar("Found")
_NOTIFY_TIMEOUT = 30.0
"""Seconds that the command of --notify may take."""
_PATIENCE = 2.0
"""Seconds that prd.json may be half saved before ralph says that it cannot be read."""
_POLL = 0.02
"""Seconds between two tries for the room: at a constant pace, so that nobody who waits
long falls behind."""


@dataclass
class Loop:
    """One of the loops of a run. `settings` and the log's history are what it read last:
    everything can be read again from disk. Everything else stays as it is."""

    number: int
    run_id: str
    settings: Settings
    log: Log
    git: Git
    branch: Branch
    places: Places
    agents: Agents
    control: Control
    view: View
    began: float = field(
        default_factory=time.monotonic
    )  # the run, as does what follows
    carried: float = 0.0  # seconds that it took before it was killed, and went on
    first_tip: str = ""  # where the branch was when it began
    trouble: str = ""  # why prd.json cannot be read now
    pending: list[tuple[str, str, str]] = field(default_factory=list)  # news to tell
    seen: list[object] = field(default_factory=list)  # plan and log, when it read them
    is_opened: bool = False  # it has looked at what must be known before any work
    last_stop: Stop | None = None  # what its last attempt means for the run
    tell: Callable[[str], object] = lambda _: None  # a word to the supervisor

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
        """The plan as it was read last."""
        return self.settings.plan

    @property
    def limits(self) -> Limits:
        """What plan and command line allow."""
        return self.settings.limits

    @property
    def history(self) -> History:
        """What the log says, as far as it was read."""
        return self.log.history

    @property
    def seconds(self) -> float:
        """How long the run has lasted."""
        return self.carried + time.monotonic() - self.began

    @property
    def ends(self) -> float:
        """When (unix time) its time is up."""
        left = self.limits.hours * 3600 - self.seconds
        return min(time.time() + left, self.limits.until)

    @property
    def others_at_work(self) -> list[AttemptBegan]:
        """The attempts under way of other loops."""
        starts = self.history.open_starts.values()
        return [start for start in starts if start.worker != self.number]

    @property
    def stamps(self) -> list[object]:
        """What changes with every write to the plan or the log."""
        return [files.signature(path) for path in (self.paths.prd, self.paths.progress)]

    def read(self) -> None:
        """Read what others wrote into the log, and the plan if it changed."""
        self.seen = self.stamps
        self.log.read()
        end = time.monotonic() + _PATIENCE
        while True:
            try:
                saved = files.read_regular(Path(os.path.realpath(self.paths.prd)))
                if saved != self.plan.text.encode():
                    self.use(self.settings.with_plan(prd.load(self.paths.prd)))
                self.trouble = ""
                return
            except BadInput as error:
                if self.trouble or time.monotonic() > end or self.control.stop_now:
                    self.trouble = str(error)
                    return
                self.control.wait(0.2)

    def use(self, settings: Settings) -> None:
        """Go on with these settings."""
        self.settings = self.places.settings = self.agents.settings = settings

    # ------------------------------------------------------------ the plan's lock

    @contextlib.contextmanager
    def plan_locked(self) -> Iterator[None]:
        """Hold the plan's lock, with everything read. Nobody waits in here."""
        with edit.lock(self.paths.private, lambda: self.control.stop_now):
            self.read()
            yield

    def write(self, record: Record, headline: str, lines: Sequence[str] = ()) -> None:
        """Append a record of this run to the log. Under the plan's lock."""
        self.log.write(record, self.run_id, headline, lines)

    def mark(self, change: Callable[[Plan], str]) -> None:
        """Change prd.json: `change` makes its new text. Under the plan's lock. BadInput
        if it cannot be read."""
        changed = []

        def noted(plan: Plan) -> str:
            changed.append(plan)
            return change(plan)

        new = edit.apply(self.plan, noted)
        if len(changed) == 1:  # to hold it against the schema again takes its time
            kept = replace(new, checks=self.plan.checks, branch=self.plan.branch)
            self.use(replace(self.settings, plan=kept))
        else:  # somebody saved it meanwhile
            self.use(self.settings.with_plan(new))

    # ------------------------------------------------------------ the room's lock

    @contextlib.contextmanager
    def in_room(self, ends: float = NEVER) -> Iterator[Results]:
        """Be alone in the clean room: what checks said in this run, which is saved on
        leaving. Stop if the time `ends` comes before, StopNow if ralph must stop."""
        with self._room_locked(ends):
            self.read()
            valid = valid_for(
                self.places, self.plan, self.run_id, self.history.reopened
            )
            path = self.paths.private / RESULTS
            results = Results.read(path, valid, self.git.tree)
            try:
                yield results
            finally:
                results.save()
        while self.pending:
            self.notify(*self.pending.pop(0))

    @contextlib.contextmanager
    def _room_locked(self, ends: float) -> Iterator[None]:
        """Hold the room's lock. A number in the holder's file says that a loop died
        there: the supervisor ends what it started first."""
        lock = files.lock_at(self.paths.private / "room.lock")
        holder = self.paths.private / HOLDER
        while True:
            if self.control.stop_now:
                raise StopNow
            with contextlib.suppress(TimeoutError):
                lock.acquire(timeout=0)
                if not os.path.lexists(holder):
                    break
                lock.release()
            if time.time() >= ends:
                raise time_is_up()
            self.control.wait(_POLL)
        try:
            holder.symlink_to(str(self.number))  # at once, as no file is written
            yield
        finally:
            holder.unlink(missing_ok=True)
            lock.release()

    # ------------------------------------------------------------ stops and news

    def asked_to_stop(self) -> Stop | None:
        """The stop that a signal or `ralph stop` asks for."""
        if self.control.stop_signal == signal.SIGTERM:
            return Stop("terminated", "terminated")
        if self.control.stop_signal == signal.SIGHUP:
            return Stop("hung-up", "hung up")
        if self.control.interrupts:
            return Stop("interrupted", "interrupted")
        if self.control.finishing:
            return Stop("asked", "another loop ended the run")
        if stop_is_asked(self.paths, self.run_id):
            return Stop("asked", "stopped, as `ralph stop` asked")
        return None

    def stand_by(self, said: str, is_over: Callable[[], bool], task: str = "") -> None:
        """Say why nothing can go on, and wait until `is_over`. StopNow when ralph must
        stop, Stop when it is asked to, or the run's time is up."""
        self.view.warn(said)
        self.notify("waiting", said, task)
        while not is_over():
            if self.control.stop_now:
                raise StopNow
            if stop := self.asked_to_stop():
                raise stop
            if time.time() >= self.ends:
                raise time_is_up()
            self.control.wait(1.0)

    def when_setup_works(self, task: str, step: Callable[[], Found]) -> Found:
        """What `step` returns. While it raises SetupFailed (a registry is away) that is
        said, and it is tried again, later and later. TryLater where nobody wants to
        wait; StopNow and Stop as for `stand_by`."""
        tries = 0
        while True:
            try:
                return step()
            except SetupFailed as error:
                if not self.settings.waits:
                    raise TryLater(str(error)) from None
                failed = error
            tries += 1
            now = time.time()
            away = Unavailable(now, failed.reset, tries)
            until = limits.wait_for(self.limits, away, 0, now)
            when = text.clock(min(until, self.ends), now, seconds=True)
            self.view.doing(f"waiting to try again until {when}")
            said = f"{failed}; it is tried again, waiting until {when}"
            self.stand_by(said, partial(is_past, until), task)

    # ------------------------------------------------------------ ralph's branch

    def tip(self) -> str:
        """The commit that the branch is at now. NeedsPerson if it was deleted or
        rewritten during the run: then it no longer contains what the run committed
        last."""
        branch = self.branch
        tip = branch.tip()
        last = self.history.this_run.commit or self.first_tip
        if last != tip and not branch.contains(self.first_tip, last):
            last = self.first_tip  # that was before the branch began again
        if last in ("", tip) or (tip and branch.contains(last, tip)):
            return tip
        kept = branch.park(last, "verified")
        what = "rewritten" if tip else "deleted"
        raise NeedsPerson(
            f"the branch {branch.name} was {what} during the run; its verified work is "
            f"at {kept}; set the branch to where ralph should continue, then run it again"
        )

    # ------------------------------------------------------------ news

    def notify(
        self,
        event: str,
        reason: str,
        task: str = "",
        stop: Stop | None = None,
    ) -> None:
        """Tell --notify's command of an event, if there is one. Its failure changes
        nothing. It is the person's own, and not part of an attempt. Never under the
        plan's lock: it may call `ralph tell`, `retry` or `stop`."""
        if not self.options.notify:
            return
        so_far = summarize(self.plan, self.history, stop, self.seconds)
        told = news(event, self.plan.project, task, reason, so_far)
        env = dict(os.environ)
        env.pop("RALPH_RUN_ID", None)
        notifier = Command(
            argv=["/bin/sh", "-c", self.options.notify],
            cwd=self.paths.root,
            env=env,
            timeout=_NOTIFY_TIMEOUT,
            stdin=f"{json.dumps(told)}\n".encode(),
            out=new_log(self.paths, "notify.log"),
        )
        done = run_process(notifier, self.control)
        if done.ended is Ended.DEADLINE:
            self.view.warn(f"--notify did not end within {_NOTIFY_TIMEOUT:.0f} seconds")
        elif not done.succeeded:
            why = text.last_line(done.tail)
            self.view.warn(f"--notify ended with exit {done.exit}: {why}")

    def wait_for_plan(self) -> None:
        """Say that prd.json cannot be read, and wait until it can be."""

        def is_readable() -> bool:
            self.read()
            return not self.trouble

        said = f"{self.trouble}; nothing new starts until it can be read"
        self.stand_by(said, is_readable)


HOLDER = "room.holder"
RESULTS = "results.json"
"""In the private folder: the number of the loop that is in the room, and what checks
said in this run."""


def is_past(at: float) -> bool:
    """Whether a unix time is over."""
    return time.time() >= at


def time_is_up() -> Stop:
    """The stop of a run whose time is up."""
    return Stop("limit", "limit reached: the run's time is up")
