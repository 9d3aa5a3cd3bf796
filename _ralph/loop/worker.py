"""A worker: a process forked from the loop for one job. It reports through a pipe, in
JSON lines, and writes none of the three state files. Neither outlives the other."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from _ralph import errors, files
from _ralph.codec import as_json, made
from _ralph.errors import RalphError
from _ralph.model import Json
from _ralph.process import process
from _ralph.process.mark import become_subreaper, left_by, note
from _ralph.process.process import Control

_STOP_DEADLINE = 60.0

Hear = Callable[[Json], None]
"""Receives one event of a job."""
Result = TypeVar("Result")
Work = Callable[[Control, Hear], Result]
"""What a job does: it may report events, and returns a dataclass."""


class WorkerDied(RalphError):
    """A worker ended without a result: it was killed, perhaps for want of memory."""


_ERRORS = (
    errors.BadInput, errors.SetupFailed, errors.NeedsPerson, errors.AgentUnavailable, errors.TryLater,
    errors.StopNow, WorkerDied, RalphError,
)  # fmt: skip
"""What an error in a worker is to the loop: the first that it is an instance of."""


@dataclass(eq=False)
class Job(Generic[Result]):
    """A job under way: the worker's `pid`, the `pipe` that it reports through, and the
    one that stays open while the loop is `alive`; `hear` gets its events, and its
    result is a `kind`, which awaiting returns."""

    pid: int
    pipe: int
    alive: int
    kind: type[Result]
    hear: Hear = lambda _: None
    rest: bytes = b""
    result: Result | RalphError | None = None
    asked: float = 0.0
    open: bool = True
    ready: bool = False

    def __await__(self) -> Generator[Job[Result], None, Result]:
        if not self.ready:
            yield self
        return self.value

    @property
    def value(self) -> Result:
        """What its work returned. WorkerDied if there is no result."""
        if self.result is None:
            raise WorkerDied("the worker of this attempt was killed")
        if isinstance(self.result, RalphError):
            raise self.result
        return self.result

    def receive(self) -> None:
        """Handle the events that have come."""
        data = os.read(self.pipe, 1 << 16)
        *lines, self.rest = (self.rest + data).split(b"\n")
        self.open = bool(data)
        for event in map(json.loads, lines):
            match event["event"]:
                case "done":
                    self.result = made(self.kind, event["value"])
                case "error":
                    self.result = _ERRORS[event["kind"]](event["said"])
                case _:
                    self.hear(event)
        self.ready = (
            self.result is not None
        )  # it has ended all that it started, and will end itself

    def stop(self) -> None:
        """Terminate the worker; kill it if it was told so a minute ago."""
        self.asked = self.asked or time.monotonic()
        late = time.monotonic() - self.asked > _STOP_DEADLINE
        self.send(signal.SIGKILL if late else signal.SIGTERM)

    def send(self, number: signal.Signals) -> None:
        """Send the worker a signal, if it still runs."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, number)

    def end(self, spare: frozenset[int]) -> None:
        """Await the end of a worker that has said its result: it has ended all that it
        started. End any other, and all that it left but `spare`, our other children."""
        patience = 5.0 if self.result is None else _STOP_DEADLINE
        if self.result is None:
            self.send(signal.SIGTERM)
        while process.reap(self.pid, patience) is None:
            self.send(signal.SIGKILL)
            patience = 0.1
        if self.result is None:
            process.sweep(0.0, kin=left_by(self.pid), spare=spare)
        os.close(self.pipe)
        os.close(self.alive)
        self.ready = True


def start(
    work: Work[Result], kind: type[Result], hear: Hear, jobs: list[Job[Any]]
) -> Job[Result]:
    """Fork a worker that does `work(control, report)`: one more of `jobs`. Must be
    called while there are no threads."""
    pipe, write = os.pipe()
    alive_read, alive = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(pipe)
        os.close(alive)
        for other in jobs:  # else the others could not see that the loop is gone
            os.close(other.pipe)
            os.close(other.alive)
        try:
            _worker(work, alive_read, write)
        finally:
            os._exit(0)  # whatever was raised: it would go on as a second loop
    os.close(write)
    os.close(alive_read)
    jobs.append(Job(pid, pipe, alive, kind, hear))
    return jobs[-1]


def _worker(work: Work[Any], alive: int, pipe: int) -> None:
    """What the child does."""
    os.setsid()
    become_subreaper()
    note(
        os.getppid()
    )  # a worker that hangs when its loop is killed is ended by the next one
    control = Control(alive)
    control.install()

    def report(event: Json) -> None:
        with contextlib.suppress(
            BrokenPipeError
        ):  # the loop is gone, as `control` will say
            files.write_all(pipe, json.dumps(event).encode() + b"\n")

    try:
        value = work(control, report)
        process.sweep(0.0, kin=left_by(os.getpid()))
        if not control.orphaned:
            report({"event": "done", "value": as_json(value)})
    except Exception as error:
        process.sweep(0.0, kin=left_by(os.getpid()))
        failed = errors.translate(error)
        kind = [isinstance(failed, one) for one in _ERRORS].index(True)
        report({"event": "error", "kind": kind, "said": str(failed)})
