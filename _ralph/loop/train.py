"""The queue for the clean rooms is a train: each candidate is made on top of those
ahead of it, as if they passed, and is examined at once in a room of its own. What is
said of it counts in its turn, and only on the commit that is then the tip of the
branch."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Generator
from dataclasses import dataclass, field

from _ralph.loop.jobs import Attempt
from _ralph.model import Paths


class Overtaken(Exception):
    """What was ahead of a candidate does not land: the candidate is to be made and
    examined again."""


@dataclass(eq=False)
class Look:
    """Waits for what nobody reports, such as a person's working tree: `seen` is asked
    again after `pause` seconds. Without a pause it is asked whenever something else has
    come."""

    seen: Callable[[], bool]
    pause: float = 1.0
    asked: float = 0.0

    @property
    def ready(self) -> bool:
        if time.monotonic() < self.asked + self.pause:
            return False
        self.asked = time.monotonic()
        return self.seen()

    def __await__(self) -> Generator[Look, None, None]:
        if not self.ready:
            yield self


@dataclass(eq=False)
class Turn:
    """The turn of an attempt in a clean room. `tip` says where the branch is. `offers`
    is the commit that the one behind is made on, None until it is known: the candidate
    or, where that does not pass, what it was made on. One that `only_looks` makes
    none."""

    train: Train
    attempt: Attempt
    tip: Callable[[], str]
    only_looks: bool = False
    offers: str | None = None
    examined: bool = False
    lands: bool = False  # it is the first, and what was said of it counts
    late: bool = False  # it is known to be overtaken

    async def __aenter__(self) -> Turn:
        await Look(lambda: self.train.admits(self), pause=0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.train.line.remove(self)

    @property
    def ahead(self) -> Turn | None:
        """The next one ahead that makes a candidate."""
        before = self.train.line[: self.train.line.index(self)]
        return next((turn for turn in reversed(before) if not turn.only_looks), None)

    @property
    def base(self) -> str | None:
        """The commit that the candidate belongs on; None while the one ahead has none
        yet."""
        return self.ahead.offers if self.ahead else self.tip()

    @property
    def is_overtaken(self) -> bool:
        """Whether its candidate was made on what is neither ahead nor the tip any
        more."""
        made = not (self.only_looks or self.lands) and bool(self.attempt.tip)
        self.late = self.late or (made and self.base != self.attempt.tip)
        return self.late

    async def renewed(self) -> str:
        """Begin a candidate: the commit that it is to be made on, once that is
        known."""
        self.attempt.tip, self.offers = "", None
        self.examined = self.lands = self.late = False
        await Look(lambda: self.base is not None, pause=0)
        return self.base or ""

    def end(self) -> None:
        """Say that the candidate is examined: those behind go on without it if it did
        not pass."""
        self.examined = True
        self.offers = self.attempt.commit if self.attempt.passed else self.attempt.tip

    async def known_ahead(self) -> None:
        """Wait until the one ahead is examined: what its checks said tells what is
        newly red."""
        await Look(lambda: self.ahead is None or self.ahead.examined, pause=0)

    async def first(self) -> None:
        """Wait until no candidate is ahead. Overtaken if this one was not made on what
        is then the tip."""
        await Look(lambda: self.ahead is None, pause=0)
        if self.attempt.tip != self.tip():
            raise Overtaken
        self.lands = True


@dataclass(eq=False)
class Train:
    """All turns, in the order in which they came, and how many `rooms` there may be.
    `fits` says whether there is space on the disk for a room of this number."""

    rooms: int = 1
    line: list[Turn] = field(default_factory=list)
    fits: Callable[[int], bool] = lambda _: True

    def turn(
        self, attempt: Attempt, tip: Callable[[], str], only_looks: bool = False
    ) -> Turn:
        """Queue for a clean room: first come, first served."""
        attempt.room = 0
        self.line.append(Turn(self, attempt, tip, only_looks))
        return self.line[-1]

    def names(self, paths: Paths) -> list[tuple[str, str]]:
        """The tasks in the queue, in order, and the names of the rooms that they
        have."""
        rooms = [(turn.attempt.task.id, turn.attempt.room) for turn in self.line]
        return [
            (task, paths.room_of(room).name if room else "") for task, room in rooms
        ]

    def turn_of(self, attempt: Attempt) -> Turn | None:
        """The turn of an attempt, if it is in the queue."""
        return next((turn for turn in self.line if turn.attempt is attempt), None)

    def admits(self, turn: Turn) -> bool:
        """Give a turn a room, if one is free or can be made; whether it has one."""
        if turn.attempt.room or self.line.index(turn) >= self.rooms:
            return bool(turn.attempt.room)
        taken = {other.attempt.room for other in self.line}
        room = next(number for number in itertools.count(1) if number not in taken)
        if room > 1 and not self.fits(room):
            self.rooms = room - 1
            return False
        turn.attempt.room = room
        return True
