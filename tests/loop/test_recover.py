"""What a loop does with what the last one of its number left: a pass is noted, work is
judged, and what had not begun costs nothing."""

from __future__ import annotations

import uuid
from collections.abc import Callable

from _ralph.loop.claim import id_of_task
from _ralph.loop.loop import Loop
from _ralph.loop.recover import recover
from _ralph.loop.work import first_snapshot, run_agent
from _ralph.model import Outcome
from tests.conftest import Repo, cases
from tests.git.support import head, listing
from tests.git.test_branch import work_on
from tests.loop.test_claim import begins, claimed
from tests.scripts import NEVER_STUCK, RESULT, plan, speaker

Opened = Callable[..., Loop]


def land(loop: Loop, repo: Repo, attempt: str, name: str) -> str:
    """Let the branch move to the work of an attempt."""
    tip = loop.branch.tip()
    tree = loop.git.tree(work_on(repo, tip, name))
    commit = loop.branch.commit(tree, tip, f"{name}\n\nRalph-Attempt: {attempt}\n")
    loop.branch.land(commit, tip, name)
    return commit


def ids(loop: Loop) -> dict[str, str]:
    return {
        task.id: uuid.uuid4().hex + id_of_task(loop, task) for task in loop.plan.tasks
    }


def test_an_attempt_whose_agent_had_started_goes_on_with_one_verdict(
    repo: Repo, opened: Opened
) -> None:
    agent = repo.program("../agent", "echo good > work.txt; echo x >> $0.paid")
    repo.plan({"checks": ["true"]}, agent=str(agent))
    loop = opened()
    begun = claimed(loop)
    first_snapshot(loop, begun)
    run_agent(loop, begun)
    (worked,) = recover(opened())
    assert "work.txt" in listing(repo, worked.tree)
    assert (worked.begun.id, worked.begun.number) == (begun.id, 1)
    # as it was noted, and not as one that was cut off
    assert worked.result.outcome is Outcome.DONE
    assert not (repo.path / "../agent.paid").read_text().count("x") > 1
    assert not repo.records("verdict")
    assert [*opened().history.open_starts] == [1]


@cases("""
number  mine
1       T1 T3
2       T2
""")
def test_each_loop_takes_up_its_own_and_the_first_those_of_numbers_that_no_longer_run(
    repo: Repo, opened: Opened, number: str, mine: str
) -> None:
    repo.plan(*[{"checks": ["true"]}] * 3)
    loop = opened(int(number), limits={"jobs": 2})
    own = ids(loop)
    for worker, (name, attempt) in enumerate(own.items(), 1):
        begins(loop, name, worker, id=attempt, base=head(repo))
    recover(loop)
    assert repo.verdicts() == [f"{name} interrupted" for name in mine.split()]


# ---------------------------------------------------------------- whole nights

DIES = """
import os
from _ralph.loop import {module} as module
real = module.{name}
def dies(*given, **named):
    found = real(*given, **named)
    if not os.path.exists({once!r}):
        open({once!r}, "w").close()
        os.kill(os.getpid(), 9)
    return found
module.{name} = dies
"""


def dies_once_after(repo: Repo, module: str, name: str) -> str:
    """Python that kills the loop which first returns from a function."""
    once = str(repo.outside / f"died-in-{name}")
    return DIES.format(module=module, name=name, once=once)


@cases("""
module   name
work     first_snapshot
work     run_agent
examine  examine
landing  advance
landing  mark_passed
""")
def test_a_loop_that_dies_anywhere_goes_on_and_nothing_is_lost_or_done_twice(
    repo: Repo, module: str, name: str
) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    deeds = f"(OUT / 'paid').open('a').write(task)\nP(f'{{task}}.txt').touch()\nprint({RESULT!r})"
    first = dies_once_after(repo, module, name)
    code, summary, printed = repo.run(speaker(repo, deeds), first=first)
    assert code == 0, printed
    assert printed.count("it is started again") == 1
    # one that died before its agent had started began anew
    again = ["T1 interrupted"] * (name == "first_snapshot")
    assert repo.verdicts() == [*again, "T1 passed", "T2 passed"]
    assert repo.commits() == ["T2: task 2", "T1: task 1"]
    assert repo.read("../paid") == "T1T2"
    assert summary["usd"] == 0.5
    assert not any(record.get("weak") for record in repo.records("verdict"))


def test_a_killed_run_that_went_on_has_ended_and_the_next_one_begins_anew(
    repo: Repo,
) -> None:
    """What the killed one used of its limits counts for the one that goes on, and not
    for the next."""
    plan(repo, *[{"checks": ["false"]}] * 9, limits={"attempts": 1})
    say = speaker(repo, f"P('x').write_text(task)\nprint({RESULT!r}, flush=True)\nif task == 'T2': (OUT / 'there').touch(); time.sleep(60)")  # fmt: skip
    process = repo.start("run", "--agent", say, "--task", "T2")
    repo.wait_for("../there")
    process.kill()
    process.wait()
    assert repo.gone_within(10)
    quick = speaker(repo, f"P('x').write_text(task)\nprint({RESULT!r})")
    words = ("--max-usd", "0.5")
    for number in (1, 2):
        code, summary, printed = repo.run(quick, *words, first=NEVER_STUCK)
        assert (code, summary["stop"], summary["usd"]) == (3, "limit", 0.5), printed
        assert len(repo.records("stop")) == number
    begun = [record.get("continues", False) for record in repo.records("run")]
    assert begun == [False, True, False]
