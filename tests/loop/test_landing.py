"""The end of an attempt: the commit lands, log and plan follow, and what follows can be
done twice."""

from __future__ import annotations

import json
from collections.abc import Coroutine
from typing import Any

import pytest
from _ralph.loop.jobs import Attempt
from _ralph.loop.run import Run

from _ralph.loop.landing import (
    failure_of,
    land,
    mark,
    note,
    redo_marks,
    restore_marks,
    set_back,
    set_back_claim,
)
from _ralph.loop.opening import read_run
from _ralph.model import CheckResult, Task, Verdict
from _ralph.state import edit
from _ralph.state.options import Options
from _ralph.state.records import AttemptEnded, Rechecked, Retried
from tests.conftest import Repo
from tests.git.test_branch import work_on
from tests.git.test_workspace import head


@pytest.fixture
def run(repo: Repo) -> Run:
    """A run of two tasks, the second of which has passed."""
    repo.plan({"checks": ["true"]}, {"checks": ["true"], "passes": True})
    made = read_run(Options(prd=repo.path / "prd.json"))
    made.paths.private.mkdir(parents=True, exist_ok=True)
    made.tip, _ = made.branch.open()
    return made


def attempt_of(run: Run, number: int, verdict: Verdict) -> Attempt:
    task = run.plan.tasks[number]
    return Attempt(task, 1, 1, run.agents.agent(task), verdict=verdict)


def passed_record(run: Run, commit: str, **fields: Any) -> AttemptEnded:
    """The verdict that the first task passed with this commit."""
    given = {
        "task": "T1",
        "title": run.plan.tasks[0].title,
        "checks": {"true": True},
        **fields,
    }
    return AttemptEnded(iteration=1, verdict=Verdict.PASSED, commit=commit, **given)


def now(steps: Coroutine[Any, None, Any]) -> Any:
    """What a coroutine returns that has nothing to wait for."""
    with pytest.raises(StopIteration) as ended:
        steps.send(None)
    return ended.value.value


# ---------------------------------------------------------------- land, then note


def test_a_pass_lands_and_then_is_noted_and_marked(repo: Repo, run: Run) -> None:
    one = attempt_of(run, 0, Verdict.PASSED)
    one.tip, one.commit = head(repo), work_on(repo, head(repo))
    one.checks = [CheckResult("true", "true", True, 0, 0.1)]
    assert now(land(run, one)) is True
    assert run.branch.tip() == run.tip == one.commit and repo.passed() == ["T2"]
    note(run, one)
    (record,) = repo.records("verdict")
    assert repo.passed() == ["T1", "T2"] and record["commit"] == one.commit


def test_nothing_is_said_of_a_pass_whose_branch_somebody_moved(
    repo: Repo, run: Run
) -> None:
    one = attempt_of(run, 0, Verdict.PASSED)
    one.tip, one.commit = head(repo), work_on(repo, head(repo))
    run.branch.land(
        theirs := work_on(repo, head(repo), "theirs.txt"), head(repo), "a person's"
    )
    assert now(land(run, one)) is False
    assert run.branch.tip() == theirs and repo.passed() == ["T2"]


# ---------------------------------------------------------------- marks


def test_a_pass_that_no_verdict_gave_is_set_back_and_named(
    repo: Repo, run: Run
) -> None:
    for verdict, still in ((Verdict.PASSED, ["T2"]), (Verdict.FAILED, [])):
        one = attempt_of(run, 1, verdict)
        set_back_claim(run, one)
        assert repo.passed() == still and bool(one.restored) is not bool(still)


def with_plan(repo: Repo, run: Run, was: str, now: str) -> None:
    repo.write("prd.json", repo.read("prd.json").replace(was, now, 1))
    run.read_plan()


@pytest.mark.parametrize(
    ("was", "now", "marked"),
    [
        ("", "", True),
        ("task 2", "another title", True),
        ("task 1", "another title", True),  # the same id, and the checks that were run
        ('"id": "T1"', '"id": "T9"', True),
        ('"passes": false', '"passes": false, "blocked": "no"', True),
        ('"true"', '"true", "false"', False),  # a check that nobody ran
        ("task 1", "task 2", True),
    ],
)
def test_a_mark_follows_its_task_through_what_a_person_edits_meanwhile(
    repo: Repo, run: Run, was: str, now: str, marked: bool
) -> None:
    verdict = passed_record(run, work_on(repo, head(repo)))
    with_plan(repo, run, was, now)
    for _ in range(2):
        mark(run, verdict)
        assert len(repo.passed()) == 1 + marked


@pytest.mark.parametrize("saved", [("checks", ["false"]), ("network", False)])
def test_a_plan_that_somebody_saves_during_an_edit_is_examined(
    repo: Repo, run: Run, saved: tuple[str, object]
) -> None:
    """The second one no run without a sandbox could use."""
    key, value = saved
    theirs = {**json.loads(repo.read("prd.json")), "project": "renamed", key: value}
    repo.write("prd.json", json.dumps(theirs))
    run.edit(edit.set_passed, run.plan.tasks[0], True)
    assert (
        repo.passed() == ["T1", "T2"]
        and run.plan.tasks[0].passed
        and not run.settings.unmade
    )
    assert bool(run.settings.trouble) is (key == "network") and len(
        run.plan.checks
    ) == (key == "checks")


LOSES: dict[str, Any] = {
    "nothing": lambda run: None,
    "a retry": lambda run: run.write(Retried(task="T1", title="task 1"), "x"),
    "a re-check": lambda run: run.write(Rechecked(broken=[run.plan.tasks[0].key]), "x"),
    "another check": lambda run: None,
    "the branch": lambda run: run.git("update-ref", run.branch.ref, "main"),
}


@pytest.mark.parametrize("lost", LOSES)
def test_a_pass_whose_commit_is_on_the_branch_stays_one_until_a_record_takes_it_away(
    repo: Repo, run: Run, lost: str
) -> None:
    commit = work_on(repo, head(repo))
    run.branch.land(commit, head(repo), "x")
    run.write(passed_record(run, commit), "passed")
    if lost == "another check":
        with_plan(repo, run, '"true"', '"true", "false"')
    LOSES[lost](run)
    restore_marks(run)
    assert repo.passed() == (["T1", "T2"] if lost == "nothing" else ["T2"])


def test_marks_that_are_not_restored_are_missed(
    repo: Repo, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(run.history), "holds", lambda *_: False)
    with pytest.raises(AssertionError):
        test_a_pass_whose_commit_is_on_the_branch_stays_one_until_a_record_takes_it_away(
            repo, run, "nothing"
        )


def test_what_no_longer_holds_is_set_back_and_the_second_time_blocked(
    repo: Repo, run: Run
) -> None:
    found = Rechecked(broken=[run.plan.tasks[1].key])
    for again in (False, True):
        if again:
            with_plan(repo, run, '"passes": true', '"passes": true')
            repo.write(
                "prd.json",
                repo.read("prd.json").replace('"passes": false', '"passes": true'),
            )
            run.read_plan()
        run.write(found, "x")
        set_back(run, found)
        assert "T2" not in repo.passed() and run.plan.tasks[1].is_blocked is again
        set_back(run, found)
    assert "it passed twice" in repo.read("prd.json")


@pytest.mark.parametrize("kind", ["blocked", "set back"])
def test_a_mark_that_a_kill_prevented_is_made_at_the_next_start(
    repo: Repo, run: Run, kind: str
) -> None:
    if kind == "blocked":
        run.write(
            AttemptEnded(
                task="T1",
                title="task 1",
                iteration=1,
                verdict=Verdict.FAILED,
                blocked="why",
            ),
            "x",
        )
    else:
        run.write(Rechecked(broken=[run.plan.tasks[1].key]), "x")
    for _ in range(2):
        redo_marks(run)
        assert run.plan.tasks[0].blocked == ("why" if kind == "blocked" else None)
        assert repo.passed() == (["T2"] if kind == "blocked" else [])


def test_any_id_lands(repo: Repo, run: Run) -> None:
    one = attempt_of(run, 0, Verdict.PASSED)
    one.task = Task("\0\ud83d", "\0", 0, {})
    one.tip, one.commit = head(repo), work_on(repo, head(repo))
    assert now(land(run, one)) and run.branch.tip() == one.commit


def test_the_failure_is_the_first_red_check(run: Run) -> None:
    one = attempt_of(run, 0, Verdict.FAILED)
    assert failure_of(one.checks).name == ""
    one.checks = [
        CheckResult(name, name, name == "a", 1, 0.1, f"{name} fails", "log")
        for name in "abc"
    ]
    found = failure_of(one.checks)
    assert (found.name, found.tail, found.log, found.others) == (
        "b",
        "b fails",
        "log",
        ["c"],
    )
