"""Several at once: workers side by side, one room, one branch."""

from __future__ import annotations

import time

from tests.conftest import Repo
from tests.oracle import BRANCH, fresh_clone_is_green

WORKS = "P(f'{task}.txt').write_text('good')"


def tasks(count: int, **top: object) -> list[dict[str, object]]:
    return [{"checks": [f"grep -q good T{n}.txt"], **top} for n in range(1, count + 1)]


def test_tasks_are_worked_side_by_side_and_land_one_after_the_other(repo: Repo) -> None:
    repo.plan(*tasks(6))
    began = time.time()
    code, summary, printed = repo.run(repo.agent(f"time.sleep(1); {WORKS}"), "--jobs", "3")
    assert (code, summary["passed"]) == (0, 6), printed
    assert time.time() - began < 5
    assert sorted(repo.verdicts()) == [f"T{n} passed" for n in range(1, 7)]
    assert {start.get("worker", 0) for start in repo.records("start")} == {0, 2, 3}
    assert fresh_clone_is_green(repo, BRANCH, [f"grep -q good T{n}.txt" for n in range(1, 7)])
