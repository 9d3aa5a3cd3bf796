"""The next task: which one a loop claims, what it begins with, and when it claims
none."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from _ralph.errors import NeedsPerson, Stop
from _ralph.loop.claim import (
    begin,
    next_task,
    wait_for_agent,
    waiting_tasks,
)
from _ralph.loop.final import finished
from _ralph.loop.loop import Loop
from _ralph.loop.stages import Begun
from _ralph.model import Verdict
from _ralph.state.history import NEVER
from _ralph.state.records import AttemptBegan, AttemptEnded, RunBegan
from tests.conftest import Repo, cases
from tests.git.support import head, listing
from tests.git.test_branch import work_on

Opened = Callable[..., Loop]
TWO = ({"checks": ["test -f work.txt"]}, {"checks": ["true"]})


def claimed(loop: Loop) -> Begun:
    """The next attempt that this loop begins."""
    begun = begin(loop)
    assert begun
    return begun


def begins(loop: Loop, task: str, worker: int = 1, **more: Any) -> None:
    """Let a loop have begun to work on a task, in a run that is open."""
    if not loop.history.run:
        loop.write(RunBegan(), "begins")
    number = loop.history.iteration + 1
    title = loop.plan.task(task).title
    given: dict[str, Any] = {"iteration": number, "time": time.time(), **more}
    record = AttemptBegan(task=task, title=title, worker=worker, **given)
    loop.write(record, "begins")


def ends(loop: Loop, task: str, verdict: Verdict, **more: Any) -> None:
    """Let the attempt at a task that began last end."""
    more |= {"title": loop.plan.task(task).title, "iteration": loop.history.iteration}
    loop.write(AttemptEnded(task=task, verdict=verdict, **more), "ended")


# ---------------------------------------------------------------- which task


@cases("""
tasks                                       busy  wanted
[{}, {}]                                    -     T1
[{"passes": true}, {}]                      -     T2
[{"blocked": "why"}, {}]                    -     T2
[{"dependsOn": ["T2"]}, {}]                 -     T2
[{"priority": 2}, {"priority": 1}]          -     T2
[{"agent": "gone"}, {}]                     -     T2
[{}, {}]                                    T1    T2
[{}, {"dependsOn": ["T1"]}, {}]             T1    T3
[{"passes": true}, {"dependsOn": ["T1"]}]   T1
[{}]                                        T1
""")
def test_the_next_task(
    repo: Repo, opened: Opened, tasks: str, busy: str, wanted: str
) -> None:
    """None behind one that is marked, while it is under way."""
    repo.plan(*json.loads(tasks), checks=["true"])
    loop = opened()
    for task in loop.plan.tasks:
        if task.agents:
            begins(loop, task.id)
            ends(loop, task.id, Verdict.UNAVAILABLE, command=task.agents[0])
    if busy:
        begins(loop, busy, worker=2)
    found = next_task(loop)
    assert (found.id if found else "") == wanted


def test_one_task_with_a_conflict_is_worked_at_a_time(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({}, {}, {}, checks=["true"])
    loop = opened(number=2, limits={"jobs": 3})
    for task in ("T1", "T2"):
        begins(loop, task)
        ends(loop, task, Verdict.CONFLICT)
    begins(loop, "T1")
    found = next_task(loop)
    assert found
    assert found.id == "T3"


def test_with_a_task_that_is_asked_for_no_other_is_worked(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({}, {"dependsOn": ["T1"]}, {}, checks=["true"])
    assert [task.id for task in waiting_tasks(opened(task="T3"))] == ["T3"]
    assert waiting_tasks(opened(task="T2")) == []


# ---------------------------------------------------------------- what it begins with


def left_behind(
    loop: Loop, commit: str, attempts: int = 1, verdict: Verdict = Verdict.FAILED
) -> None:
    """Let the first task have unfinished work, the tree of `commit`, after so many
    attempts, the last of them with this verdict."""
    base = loop.branch.commit_at(f"{commit}^")
    work = {"left": loop.git.tree(commit), "base": base, "command": "sh"}
    for number in range(attempts):
        begins(loop, "T1")
        last = number == attempts - 1
        ends(loop, "T1", verdict if last else Verdict.FAILED, **work)


@cases("""
attempts  verdict
1         failed
2         failed
3         conflict
""")
def test_an_attempt_goes_on_from_unfinished_work_but_the_last_one_starts_clean(
    repo: Repo, opened: Opened, attempts: str, verdict: str
) -> None:
    repo.plan(*TWO, agent="sh")
    loop, work = opened(), work_on(repo, head(repo))
    left_behind(loop, work, int(attempts), Verdict(verdict))
    begun = claimed(loop)
    assert begun.clean is (attempts == "2")
    if begun.clean:
        assert begun.left == ""
        assert "work.txt" in listing(repo, begun.earlier)
        assert "it started clean" in begun.notices[0]
    else:
        assert begun.left == loop.git.tree(work)


@pytest.mark.parametrize("name", ["other.txt", "work.txt"])
def test_unfinished_work_goes_on_from_the_new_tip_with_markers_where_that_conflicts(
    repo: Repo, opened: Opened, name: str
) -> None:
    repo.plan(*TWO, agent="sh")
    loop, base = opened(), head(repo)
    left_behind(loop, work_on(repo, base))
    theirs = work_on(repo, base, name, content="theirs\n")
    loop.branch.land(theirs, base, "somebody")
    begun = claimed(loop)
    assert not begun.clean
    assert {"work.txt", name} <= listing(repo, begun.left).keys()
    if name == "other.txt":
        assert not begun.conflict.marked and not begun.conflict.own
    else:
        assert begun.conflict.marked == ["work.txt"] and begun.conflict.own
        kept = listing(repo, begun.left)["work.txt"][1]
        for part in ("theirs\n", "work\n", "<<<<<<< "):
            assert part in kept


def test_unfinished_work_on_commits_that_a_person_dropped_starts_clean(
    repo: Repo, opened: Opened
) -> None:
    repo.plan(*TWO, agent="sh")
    loop, start = opened(), head(repo)
    dropped = work_on(repo, start, "dropped.txt")
    left_behind(loop, work_on(repo, dropped))
    begun = claimed(loop)
    assert begun.clean
    assert begun.left == ""
    assert "dropped.txt" in listing(repo, begun.earlier)


def test_a_clone_goes_on_without_the_work_that_it_lacks(
    repo: Repo, opened: Opened
) -> None:
    """A log from elsewhere names commits and trees that are not here."""
    repo.plan(*TWO, agent="sh")
    loop = opened()
    begins(loop, "T1")
    ends(loop, "T1", Verdict.FAILED, base=head(repo), left="1" * 40)
    assert claimed(loop).left == ""


# ---------------------------------------------------------------- what people did


def test_limits_that_a_person_lowers_during_the_run_hold_at_once(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, limits={"attempts": 9})
    home = str(repo.path / "prd.json")
    less = repo.read("prd.json").replace('"attempts": 9', '"attempts": 9, "iterations": 2')  # fmt: skip
    code, summary, _ = repo.run(repo.agent(f"P({home!r}).write_text({less!r})"))
    assert (code, summary["stop"], summary["iterations"]) == (3, "limit", 2)


# ---------------------------------------------------------------- no task


@cases("""
tasks                                       task  end         said
[{"passes": true}]                          -     complete 0  every task passes, and all checks are green
[{"passes": true}, {}]                      T1    complete 0  T1 passes, and all checks are green
[{"passes": true}, {"blocked": "why?"}]     -     blocked 4   1 left, and a person is needed: T2: why?
[{"blocked": "x"}, {"dependsOn": ["T1"]}]   -     blocked 4   2 left
""")
def test_where_nothing_is_left_to_try(
    repo: Repo, opened: Opened, tasks: str, task: str, end: str, said: str
) -> None:
    repo.plan(*json.loads(tasks), checks=["true"])
    stop = finished(opened(task=task or None))
    assert f"{stop.word} {stop.exit:d}" == end
    assert stop.reason.startswith(said)


def is_away(loop: Loop, reset: float, reason: str) -> None:
    """Let the agent have been limited until then, or not be there at all."""
    begins(loop, "T1")
    verdict = Verdict.LIMITED if reset < NEVER else Verdict.UNAVAILABLE
    at = reset if reset < NEVER else 0.0
    ends(loop, "T1", verdict, command="claude", reset=at, reason=reason)


@cases("""
reset  reason    options                        word         said
never  no login  {}                             unavailable  the agent cannot run: no login
4e9    busy      {"limits": {"max_wait": 0.0}}  limited      no attempt can be made now: busy
4e9    busy      {"once": true}                 limited      no attempt can be made now: busy
4e9    busy      {}                             limited      more than --max-wait allows
1      busy      {}
""")
def test_the_stop_for_an_agent_that_cannot_be_used(
    repo: Repo, opened: Opened, reset: str, reason: str, options: str, word: str, said: str
) -> None:  # fmt: skip
    repo.plan({}, checks=["true"])
    loop = opened(**json.loads(options))
    is_away(loop, NEVER if reset == "never" else float(reset), reason)
    if word:
        with pytest.raises(Stop, match=said) as found:
            wait_for_agent(loop)
        assert found.value.word == word
    else:  # it is back by now
        assert wait_for_agent(loop)
    assert not repo.records("wait")


@pytest.mark.parametrize("deed", ["deleted", "rewritten"])
def test_a_branch_that_loses_verified_work_needs_a_person_and_the_work_is_kept(
    repo: Repo, opened: Opened, deed: str
) -> None:
    repo.plan({}, checks=["true"])
    loop, base = opened(), head(repo)
    landed = work_on(repo, base)
    loop.branch.land(landed, base, "ralph")
    loop.history.this_run.commit = landed
    assert loop.tip() == landed
    if deed == "deleted":
        repo.git("branch", "-qD", loop.branch.name)
    else:
        repo.git("branch", "-qf", loop.branch.name, base)
    with pytest.raises(NeedsPerson, match=f"was {deed}"):
        loop.tip()
    words = ("for-each-ref", "--format=%(objectname)", "refs/ralph/parked")
    assert repo.git(*words).split() == [landed]
