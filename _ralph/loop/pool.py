"""The pool: attempts side by side, each of which waits for its jobs, and for its turn in the clean room.
One process, no threads; the jobs are done by workers (see `worker`)."""

from __future__ import annotations

import time
from collections.abc import Coroutine, Generator
from dataclasses import dataclass, field
from typing import Any, Protocol

from _ralph.loop import worker
from _ralph.loop.jobs import Attempt
from _ralph.loop.worker import Hear, Job, Result, Work
from _ralph.model import Verdict
from _ralph.process.process import Control

_LONGEST_WAIT = 60.0


class Awaited(Protocol):
    """What an attempt can wait for: a job, or its turn."""

    @property
    def ready(self) -> bool: ...


Steps = Coroutine[Awaited, None, None]
"""An attempt under way: it stops wherever it waits."""


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
class Lane:
    """One attempt of the pool, and what it waits for."""

    attempt: Attempt
    steps: Steps
    awaited: Awaited | None = None

    @property
    def ready(self) -> bool:
        return self.awaited is None or self.awaited.ready

    def advance(self) -> bool:
        """Go on to where it waits again; False if it has ended. Raises what the attempt raises."""
        try:
            self.awaited = self.steps.send(None)
        except StopIteration:
            return False
        return True


@dataclass(eq=False)
class Pool:
    """The attempts and jobs under way. `spare` are pids of children that are none of them; `last` says
    which worker has a task that is not done, by the task's key."""

    lanes: dict[int, Lane] = field(default_factory=dict)
    jobs: list[Job[Any]] = field(default_factory=list)
    line: list[Turn] = field(default_factory=list)
    spare: frozenset[int] = frozenset()
    last: dict[str, int] = field(default_factory=dict)

    @property
    def attempts(self) -> list[Attempt]:
        """The attempts under way."""
        return [lane.attempt for lane in self.lanes.values()]

    @property
    def children(self) -> frozenset[int]:
        """All children of this process that are to live."""
        return self.spare | {job.pid for job in self.jobs}

    def free_worker(self, key: str, size: int) -> int:
        """The worker that takes up a task: the one that had it before, whose caches are warm, else one
        that has none."""
        free = [number for number in range(1, size + 1) if number not in self.lanes]
        own = self.last.get(key, 0)
        return own if own in free else min(free, key=lambda number: (number in self.last.values(), number))

    def add(self, attempt: Attempt, steps: Steps) -> None:
        """Let an attempt go its way beside the others."""
        self.last = {key: number for key, number in self.last.items() if number != attempt.worker}
        self.last[attempt.task.key] = attempt.worker
        self.lanes[attempt.worker] = Lane(attempt, steps)

    def turn(self, attempt: Attempt) -> Turn:
        """Stand in line for the clean room: candidates are checked in the order in which they come."""
        self.line.append(Turn(self.line, attempt.task.id))
        return self.line[-1]

    def next(self, control: Control, patience: float) -> Attempt | None:
        """The next attempt that ends; None after `patience` seconds without one. Raises what an attempt
        raises; the others can go on."""
        end = time.monotonic() + patience
        while True:
            ready = [lane for lane in self.lanes.values() if lane.ready]
            for lane in ready:
                try:
                    advance = lane.advance()
                except BaseException:
                    del self.lanes[lane.attempt.worker]
                    raise
                if not advance:
                    return self._ended(lane.attempt)
            left = end - time.monotonic()
            if not ready and left <= 0:
                return None
            if not ready:
                self.serve(control, left)

    def start(self, work: Work[Result], kind: type[Result], hear: Hear) -> Job[Result]:
        """Begin a job in a process of its own, beside the others."""
        job = worker.start(work, kind, hear, self.jobs)
        self.jobs.append(job)
        return job

    def wait(self, control: Control, job: Job[Result]) -> Result:
        """The result of a job; meanwhile the other jobs go on, and no attempt does."""
        while not job.ready:
            self.serve(control, _LONGEST_WAIT)
        return job.value

    def serve(self, control: Control, seconds: float) -> None:
        """Take in what the jobs tell, at most `seconds` long; take down those that have ended."""
        longest = 1.0 if control.stop_now else _LONGEST_WAIT
        readable = control.wait(min(seconds, longest), [job.pipe for job in self.jobs])
        for job in list(self.jobs):
            if job.pipe in readable:
                job.receive()
            if control.stop_now:
                job.stop()
            job.kill_if_stopped()
            if not job.open or job.result is not None:
                self._end(job)

    def close(self) -> None:
        """End all that is under way, now; what it was is in no record."""
        for job in self.jobs:
            job.stop()
        for job in list(self.jobs):
            self._end(job)
        for lane in self.lanes.values():
            lane.steps.close()
        self.lanes.clear()

    def _ended(self, attempt: Attempt) -> Attempt:
        """Note that an attempt has ended: its worker keeps the task until it passes or is blocked."""
        del self.lanes[attempt.worker]
        if attempt.verdict is Verdict.PASSED or attempt.blocked:
            self.last.pop(attempt.task.key, None)
        return attempt

    def _end(self, job: Job[Any]) -> None:
        self.jobs.remove(job)
        job.end(self.children)
