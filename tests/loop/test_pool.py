"""The pool: who works what, and what each waits for."""

from __future__ import annotations

from _ralph.loop.jobs import Attempt
from _ralph.loop.pool import Pool
from _ralph.loop.train import Look

from _ralph.agents.registry import PLAIN, Agent
from _ralph.model import Task, Verdict
from _ralph.process.process import Control


def attempt(number: int, worker: int) -> Attempt:
    return Attempt(
        Task(f"T{number}", "", 0, {}),
        1,
        number,
        Agent("plain", ("agent",), PLAIN),
        worker,
    )


async def ends(one: Attempt, verdict: Verdict = Verdict.PASSED) -> None:
    one.verdict = verdict


def test_the_first_worker_without_a_task_gets_the_next_one() -> None:
    pool, control = Pool(), Control()
    for number in (1, 2, 3):
        assert pool.free_worker == number
        pool.add(one := attempt(number, worker=number), ends(one))
    assert [pool.next(control, 0) for _ in range(2)] and [
        one.worker for one in pool.attempts
    ] == [3]
    assert pool.free_worker == 1
    pool.close()


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
