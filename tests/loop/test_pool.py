"""The pool: who works what, and one candidate at a time in the clean room, first come, first served."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from _ralph.agents.registry import PLAIN, Agent
from _ralph.loop.jobs import Attempt
from _ralph.loop.pool import Look, Pool
from _ralph.model import Task, Verdict
from _ralph.process.process import Control


def attempt(number: int, worker: int) -> Attempt:
    return Attempt(Task(f"T{number}", "", 0, {}), 1, number, Agent("plain", ("agent",), PLAIN), worker)


async def ends(one: Attempt, verdict: Verdict = Verdict.PASSED) -> None:
    one.verdict = verdict


def test_the_first_worker_without_a_task_gets_the_next_one() -> None:
    pool, control = Pool(), Control()
    for number in (1, 2, 3):
        assert pool.free_worker == number
        pool.add(one := attempt(number, worker=number), ends(one))
    assert [pool.next(control, 0) for _ in range(2)] and [one.worker for one in pool.attempts] == [3]
    assert pool.free_worker == 1
    pool.close()


class Soon:
    """What an attempt waits for, and what is there when somebody asks again."""

    asked = 0

    @property
    def ready(self) -> bool:
        self.asked += 1
        return self.asked > 1

    def __await__(self) -> Generator[Soon, None, None]:
        yield self


def test_one_is_in_the_room_at_a_time_and_the_first_to_come_is_first() -> None:
    pool, control, seen = Pool(), Control(), list[str]()

    async def works(one: Attempt) -> None:
        async with pool.turn(one):
            seen.append(f"{one.task.id} in")
            await Soon()
            seen.append(f"{one.task.id} out")

    for worker in (2, 1, 3):
        one = attempt(worker, worker)
        pool.add(one, works(one))
    while pool.lanes:
        pool.next(control, 0.01)
    assert seen == ["T2 in", "T2 out", "T1 in", "T1 out", "T3 in", "T3 out"] and pool.line == []


def test_an_attempt_that_raises_leaves_the_room_and_the_pool_to_the_others() -> None:
    pool, control = Pool(), Control()

    async def fails(one: Attempt) -> None:
        async with pool.turn(one):
            raise OverflowError

    first, second = attempt(1, 1), attempt(2, 2)
    pool.add(first, fails(first))
    pool.add(second, ends(second))
    with pytest.raises(OverflowError):
        pool.next(control, 0)
    assert pool.line == [] and pool.attempts == [second]
    assert pool.next(control, 0) is second


def test_what_nobody_reports_is_looked_for_again_and_holds_nobody_up() -> None:
    pool, control, seen = Pool(), Control(), iter([False, False, True])

    async def looks() -> None:
        await Look(lambda: next(seen))

    first, second = attempt(1, 1), attempt(2, 2)
    pool.add(first, looks())
    pool.add(second, ends(second))
    assert pool.next(control, 10) is second
    assert pool.next(control, 0) is None and pool.attempts == [first]
    assert pool.next(control, 10) is first


def test_to_wait_for_nobody_takes_no_longer_than_it_may() -> None:
    assert Pool().next(Control(), 0.01) is None
