"""The queue for the clean rooms: who has a room, what each candidate is made on, and
whose verdict counts."""

from __future__ import annotations

import random
from collections.abc import Generator

import pytest
from _ralph.loop.jobs import Attempt
from _ralph.loop.pool import Pool
from _ralph.loop.train import Look, Overtaken, Train, Turn

from _ralph.model import Verdict
from _ralph.process.process import Control
from tests.loop.test_pool import attempt


class Soon:
    """What an attempt waits for, and what is there when somebody has asked so often."""

    def __init__(self, often: int = 1) -> None:
        self.left = often

    @property
    def ready(self) -> bool:
        self.left -= 1
        return self.left < 0

    def __await__(self) -> Generator[Soon, None, None]:
        yield self


class Line:
    """A branch, a train of so many rooms before it, and all that happens there, in
    words. The commit of a task is called as what it stands on, and its own name."""

    def __init__(self, rooms: int = 1) -> None:
        self.pool = Pool(train=Train(rooms))
        self.tip = ""
        self.seen: list[str] = []
        self.red: set[str] = set()  # commits
        self.rejected: set[str] = set()  # by the judge, who reads only what is to land
        self.takes: dict[str, int] = {}

    async def lands(self, one: Attempt) -> None:
        """The way of an attempt through the queue, as `run_attempt` goes it."""
        async with self.pool.train.turn(one, lambda: self.tip or "0") as turn:
            while True:
                try:
                    await self.examine(turn)
                    await turn.first()
                    self.judge(one)
                    break
                except Overtaken:
                    self.seen.append(f"{one.task.id} again")

    async def examine(self, turn: Turn) -> None:
        one = turn.attempt
        one.begin_candidate(await turn.renewed())
        one.commit = turn.offers = f"{one.tip}+{one.task.id}"
        self.seen.append(f"{one.commit} in {one.room}")
        await Soon(self.takes.get(one.task.id, 1))
        one.verdict = Verdict.FAILED if one.commit in self.red else Verdict.PASSED
        turn.end()

    def judge(self, one: Attempt) -> None:
        assert one.tip == (self.tip or "0"), "what counts was said on the tip"
        if one.commit in self.rejected:
            one.verdict = Verdict.FAILED
        if one.passed:
            self.tip = one.commit
        self.seen.append(f"{one.task.id} {one.verdict}")

    def run(self, *tasks: int) -> list[str]:
        for worker, task in enumerate(tasks, 1):
            one = attempt(task, worker)
            self.pool.add(one, self.lands(one))
        for _ in range(1000):
            if not self.pool.lanes:
                break
            self.pool.next(Control(), 0)
        assert not self.pool.lanes and not self.pool.train.line
        return self.seen


def test_with_one_room_one_is_in_it_at_a_time_and_the_first_to_come_is_first() -> None:
    assert Line().run(2, 1, 3) == [
        "0+T2 in 1", "T2 passed", "0+T2+T1 in 1", "T1 passed", "0+T2+T1+T3 in 1", "T3 passed",
    ]  # fmt: skip


def test_each_is_examined_on_top_of_those_ahead_at_once_and_lands_in_order() -> None:
    line = Line(rooms=2)
    line.takes = {"T1": 9}
    assert line.run(1, 2, 3) == [
        "0+T1 in 1", "0+T1+T2 in 2", "T1 passed", "0+T1+T2+T3 in 1", "T2 passed", "T3 passed",
    ]  # fmt: skip


def test_those_behind_a_red_one_go_on_without_it_at_once() -> None:
    """While what is ahead of it is still examined."""
    line = Line(rooms=3)
    line.takes, line.red = {"T1": 9, "T3": 5}, {"0+T1+T2"}
    assert line.run(1, 2, 3) == [
        "0+T1 in 1", "0+T1+T2 in 2", "0+T1+T2+T3 in 3", "T3 again", "0+T1+T3 in 3",
        "T1 passed", "T2 failed", "T3 passed",
    ]  # fmt: skip


def test_a_verdict_on_what_does_not_land_counts_neither_way() -> None:
    """T2 is red on top of T1, which is red: alone, T2 is green. T3 was green on top of
    both."""
    line = Line(rooms=3)
    line.takes, line.red = {"T1": 9}, {"0+T1", "0+T1+T2"}
    assert [one for one in line.run(1, 2, 3) if one.endswith("ed")] == [
        "T1 failed",
        "T2 passed",
        "T3 passed",
    ]
    assert line.tip == "0+T2+T3"


def test_what_only_the_judge_turns_down_is_taken_from_under_those_behind() -> None:
    line = Line(rooms=2)
    line.rejected = {"0+T1"}
    line.run(1, 2)
    assert line.tip == "0+T2" and "T2 again" in line.seen


def test_who_only_looks_has_a_room_and_is_ahead_of_nobody() -> None:
    line = Line(rooms=2)

    async def looks(one: Attempt) -> None:
        async with line.pool.train.turn(one, lambda: line.tip, only_looks=True):
            line.seen.append(f"T9 in {one.room}")
            await Soon(9)
            line.seen.append("T9 out")

    nine = attempt(9, 9)
    line.pool.add(nine, looks(nine))
    assert line.run(1) == ["T9 in 1", "0+T1 in 2", "T1 passed", "T9 out"]


def test_one_that_raises_leaves_its_room_and_the_others_go_on_without_it() -> None:
    line = Line(rooms=2)

    async def fails(one: Attempt) -> None:
        async with line.pool.train.turn(one, lambda: line.tip or "0") as turn:
            one.begin_candidate(await turn.renewed())
            one.commit = turn.offers = "gone"
            await Soon(3)
            raise OverflowError

    nine = attempt(9, 9)
    line.pool.add(nine, fails(nine))
    with pytest.raises(OverflowError):
        line.run(1)
    assert line.run() == ["gone+T1 in 2", "T1 again", "0+T1 in 2", "T1 passed"]


def test_a_disk_without_space_for_another_room_has_the_queue_wait_for_those_that_are_there() -> (
    None
):
    line = Line(rooms=4)
    line.pool.train.fits = lambda room: room < 3
    assert {seen[-1] for seen in line.run(1, 2, 3, 4) if " in " in seen} == {"1", "2"}
    assert line.pool.train.rooms == 2 and line.tip == "0+T1+T2+T3+T4"


@pytest.mark.parametrize("seed", range(60))
def test_in_any_order_what_lands_was_green_on_the_tip_and_what_is_green_there_lands(
    seed: int,
) -> None:
    """Every candidate is red or green by the commits below it, and takes any time."""
    chance = random.Random(seed)
    line, tasks = Line(rooms=chance.randint(1, 4)), list(range(1, 9))
    line.takes = {f"T{task}": chance.randint(0, 9) for task in tasks}

    class Fate(set[str]):
        def __contains__(self, commit: object) -> bool:
            return random.Random(f"{seed} {commit}").random() < 0.3

    line.red = Fate()
    line.run(*tasks)
    expected, verdicts = "0", []
    for task in tasks:  # one after the other, in one room
        commit = f"{expected}+T{task}"
        verdicts.append(f"T{task} {'failed' if commit in line.red else 'passed'}")
        expected = expected if commit in line.red else commit
    assert [one for one in line.seen if one.endswith(("passed", "failed"))] == verdicts
    assert (line.tip or "0") == expected


@pytest.mark.parametrize("without", ["a look at what is ahead", "both looks"])
def test_without_a_look_at_what_is_ahead_a_verdict_counts_on_another_commit(
    monkeypatch: pytest.MonkeyPatch, without: str
) -> None:
    """The second look, before it lands, is there for what the first one cannot see:
    ralph is about to stop."""
    monkeypatch.setattr(Turn, "is_overtaken", False)

    async def first(turn: Turn) -> None:
        await Look(lambda: turn.ahead is None, pause=0)

    if without == "both looks":
        monkeypatch.setattr(Turn, "first", first)
    line = Line(rooms=2)
    line.red = {"0+T1"}
    if without == "both looks":
        with pytest.raises(AssertionError, match="what counts was said on the tip"):
            line.run(1, 2)
    else:
        assert line.run(1, 2)[-1] == "T2 passed" and line.tip == "0+T2"
