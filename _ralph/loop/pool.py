"""The pool: attempts side by side, each waiting for its jobs and for its turn in a
clean room. One process, no threads; workers do the jobs."""

from __future__ import annotations

import itertools
import signal
import time
from collections.abc import Coroutine
from dataclasses import dataclass, field
from typing import Any

from _ralph.loop.jobs import Attempt
from _ralph.loop.train import Look, Overtaken, Train
from _ralph.loop.worker import Job
from _ralph.process.process import Control

LONGEST_WAIT = 60.0
Steps = Coroutine[Job[Any] | Look, None, None]
"""An attempt under way, as a coroutine that stops where it waits."""


@dataclass(eq=False)
class Lane:
    """An attempt under way, and what it waits for."""

    attempt: Attempt
    steps: Steps
    awaited: Job[Any] | Look | None = None

    @property
    def ready(self) -> bool:
        return self.awaited is None or self.awaited.ready

    @property
    def working(self) -> bool:
        """Whether a job of it is under way."""
        return isinstance(self.awaited, Job) and not self.awaited.ready

    def stop(self) -> None:
        """Stop the job that is under way, if one is."""
        if isinstance(self.awaited, Job) and not self.awaited.ready:
            self.awaited.stop()

    def advance(self, overtaken: bool = False) -> bool:
        """Run it until it waits again; False if it has ended. Raises what the attempt
        raises."""
        try:
            self.awaited = (
                self.steps.throw(Overtaken()) if overtaken else self.steps.send(None)
            )
        except StopIteration:
            return False
        return True


@dataclass(eq=False)
class Pool:
    """The attempts and jobs under way. `spare` are pids of other children, which are
    never killed."""

    lanes: dict[int, Lane] = field(default_factory=dict)
    jobs: list[Job[Any]] = field(default_factory=list)
    train: Train = field(default_factory=Train)
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

    def next(self, control: Control, patience: float) -> Attempt | None:
        """Wait for an attempt to end; None after `patience` seconds. Raises what an
        attempt raises; the others stay in the pool."""
        end = time.monotonic() + patience
        while True:
            late = self._overtaken(control)
            ready = [
                lane
                for lane in self.lanes.values()
                if lane.ready or (lane in late and not lane.working)
            ]
            for lane in ready:
                del self.lanes[lane.attempt.worker]
                if not lane.advance(overtaken=lane in late):
                    return lane.attempt
                self.lanes[lane.attempt.worker] = lane
            left = end - time.monotonic()
            if not ready and left <= 0:
                return None
            if not ready:
                looks = any(
                    isinstance(lane.awaited, Look) and lane.awaited.pause
                    for lane in self.lanes.values()
                )
                self.serve(control, min(left, 1.0) if looks else left)

    def _overtaken(self, control: Control) -> list[Lane]:
        """The attempts whose candidate is to be made again; what still runs for one is
        stopped. When ralph stops, all that is under way ends as it is."""
        if control.stop_now:
            return []
        turns = [turn for turn in self.train.line if turn.is_overtaken]
        late = [
            lane
            for lane in self.lanes.values()
            if self.train.turn_of(lane.attempt) in turns
        ]
        for lane in late:
            lane.stop()
        return late

    def serve(self, control: Control, seconds: float) -> None:
        """Receive events of the jobs for at most `seconds`, and end those whose workers
        have gone."""
        seconds = min(seconds, 1.0 if control.stop_now else LONGEST_WAIT)
        readable = control.wait(seconds, [job.pipe for job in self.jobs])
        for job in list(self.jobs):
            if job.pipe in readable:
                job.receive()
            job.send(
                signal.SIGCONT
            )  # its agent may have stopped it, and it could not end the agent
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
