"""The pool: attempts side by side, each waiting for its jobs and for its turn in the clean room. One process,
no threads; workers do the jobs."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Callable, Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any

from _ralph.loop.jobs import Attempt
from _ralph.loop.worker import Job
from _ralph.process.process import Control

LONGEST_WAIT = 60.0


@dataclass(eq=False)
class Turn:
    """The turn of a task in the clean room; the first one in `line` is there."""

    line: list[Turn]
    task: str

    @property
    def ready(self) -> bool:
        return self.line[0] is self

    def __await__(self) -> Generator[Turn, None, None]:
        if not self.ready:
            yield self

    async def __aenter__(self) -> None:
        await self

    async def __aexit__(self, *_: object) -> None:
        self.line.remove(self)


@dataclass(eq=False)
class Look:
    """Waits for what nobody reports, such as a person's working tree: `seen` is asked every second."""

    seen: Callable[[], bool]
    asked: float = 0.0

    @property
    def ready(self) -> bool:
        if time.monotonic() < self.asked + 1.0:
            return False
        self.asked = time.monotonic()
        return self.seen()

    def __await__(self) -> Generator[Look, None, None]:
        if not self.ready:
            yield self


Steps = Coroutine[Job[Any] | Turn | Look, None, None]
"""An attempt under way, as a coroutine that stops where it waits."""


@dataclass(eq=False)
class Lane:
    """An attempt under way, and what it waits for."""

    attempt: Attempt
    steps: Steps
    awaited: Job[Any] | Turn | Look | None = None

    @property
    def ready(self) -> bool:
        return self.awaited is None or self.awaited.ready

    def advance(self) -> bool:
        """Run it until it waits again; False if it has ended. Raises what the attempt raises."""
        try:
            self.awaited = self.steps.send(None)
        except StopIteration:
            return False
        return True


@dataclass(eq=False)
class Pool:
    """The attempts and jobs under way. `spare` are pids of other children, which are never killed."""

    lanes: dict[int, Lane] = field(default_factory=dict)
    jobs: list[Job[Any]] = field(default_factory=list)
    line: list[Turn] = field(default_factory=list)
    spare: frozenset[int] = frozenset()

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts under way."""
        return [lane.attempt for lane in self.lanes.values()]

    @property
    def children(self) -> frozenset[int]:
        """The children of this process that must live."""
        return self.spare | {job.pid for job in self.jobs}

    @property
    def free_worker(self) -> int:
        """The first worker without a task."""
        return next(number for number in itertools.count(1) if number not in self.lanes)

    def add(self, attempt: Attempt, steps: Steps) -> None:
        """Start an attempt beside the others."""
        self.lanes[attempt.worker] = Lane(attempt, steps)

    def turn(self, attempt: Attempt) -> Turn:
        """Queue for the clean room: first come, first served."""
        self.line.append(Turn(self.line, attempt.task.id))
        return self.line[-1]

    def next(self, control: Control, patience: float) -> Attempt | None:
        """Wait for an attempt to end; None after `patience` seconds. Raises what an attempt raises; the
        others stay in the pool."""
        end = time.monotonic() + patience
        while True:
            ready = [lane for lane in self.lanes.values() if lane.ready]
            for lane in ready:
                del self.lanes[lane.attempt.worker]
                if not lane.advance():
                    return lane.attempt
                self.lanes[lane.attempt.worker] = lane
            left = end - time.monotonic()
            if not ready and left <= 0:
                return None
            if not ready:
                looks = any(isinstance(lane.awaited, Look) for lane in self.lanes.values())
                self.serve(control, min(left, 1.0) if looks else left)

    def serve(self, control: Control, seconds: float) -> None:
        """Receive events of the jobs for at most `seconds`, and end those whose workers have gone."""
        seconds = min(seconds, 1.0 if control.stop_now else LONGEST_WAIT)
        readable = control.wait(seconds, [job.pipe for job in self.jobs])
        for job in list(self.jobs):
            if job.pipe in readable:
                job.receive()
            job.send(signal.SIGCONT)  # its agent may have stopped it, and it could not end the agent
            if control.stop_now:
                job.stop()
            if not job.open:
                self._end(job)

    def close(self) -> None:
        """End all that is under way, now, without a record."""
        for job in self.jobs:
            job.stop()
        for job in list(self.jobs):
            self._end(job)
        for lane in self.lanes.values():
            lane.steps.close()
        self.lanes.clear()

    def _end(self, job: Job[Any]) -> None:
        self.jobs.remove(job)
        job.end(self.children)
