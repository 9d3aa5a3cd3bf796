"""After an attempt: only a verdict marks a task, what no longer holds is set back, and all of it can be done
twice."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from _ralph.git import git as git_module
from _ralph.loop.jobs import Attempt
from _ralph.loop.opening import peek
from _ralph.loop.record import apply_verdict, failure_of, set_back, set_back_claim
from _ralph.loop.run import Options, Run
from _ralph.model import CheckResult, Verdict
from _ralph.state.records import AttemptEnded, Landed
from tests.conftest import Repo
from tests.git.test_branch import work_on
from tests.git.test_workspace import head


@pytest.fixture
def run(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Run]:
    """A run of two tasks, the second of which has passed."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.setenv("RALPH_PLACES", str(tmp_path / "places"))
    monkeypatch.setattr(git_module, "_FROZEN", {})
    repo.plan({"checks": ["true"]}, {"checks": ["true"], "passes": True})
    made = peek(Options(prd=repo.path / "prd.json"))
    made.paths.private.mkdir(parents=True, exist_ok=True)
    made.tip, _ = made.branch.open()
    yield made


def attempt_of(run: Run, number: int, verdict: Verdict) -> Attempt:
    task = run.plan.tasks[number]
    return Attempt(task, 1, 1, run.agent(task), verdict=verdict)


def passes(repo: Repo, run: Run, commit: str) -> AttemptEnded:
    """The verdict that the first task passed with this commit."""
    return AttemptEnded(
        task="T1", title=run.plan.tasks[0].title, iteration=1, verdict=Verdict.PASSED, commit=commit,
        tip=head(repo), checks={"true": True}, prd_before=run.plan_digest,
    )  # fmt: skip


def test_a_pass_that_no_verdict_gave_is_set_back_and_named(repo: Repo, run: Run) -> None:
    for verdict, still in ((Verdict.PASSED, ["T2"]), (Verdict.FAILED, [])):
        one = attempt_of(run, 1, verdict)
        set_back_claim(run, one)
        assert repo.passed() == still and bool(one.restored) is not bool(still)


def test_a_verdict_marks_and_lands_and_does_so_once(repo: Repo, run: Run) -> None:
    commit = work_on(repo, head(repo))
    for _ in range(2):
        run.history.pending = passes(repo, run, commit)
        apply_verdict(run)
        assert repo.passed() == ["T1", "T2"] and run.branch.tip() == run.tip == commit
        assert run.history.pending is None


def test_what_landed_on_a_new_tip_before_a_crash_is_only_marked(repo: Repo, run: Run) -> None:
    run.history.pending = passes(repo, run, work_on(repo, head(repo)))
    landed = work_on(repo, head(repo), "other.txt")
    run.branch.land(landed, head(repo), "on a new tip")
    run.write(Landed(task="T1", title=run.plan.tasks[0].title, commit=landed), "landed")
    apply_verdict(run)
    assert repo.passed() == ["T1", "T2"] and run.branch.tip() == landed
    assert len(repo.records("land")) == 1


def test_after_a_crash_the_edit_of_a_person_stays(repo: Repo, run: Run) -> None:
    commit = work_on(repo, head(repo))
    run.history.pending = passes(repo, run, commit)
    run.history.pending.prd_before = "another"
    apply_verdict(run)
    assert repo.passed() == ["T2"] and run.branch.tip() == commit


def test_what_no_longer_holds_is_set_back_and_the_second_time_blocked(repo: Repo, run: Run) -> None:
    key = run.plan.tasks[1].key
    for again in (False, True):
        if again:
            known = run.history.of(run.plan.tasks[1])
            known.last = AttemptEnded(task="T2", iteration=1, verdict=Verdict.FAILED, blocked="conflicting")
            repo.write("prd.json", repo.read("prd.json").replace('"passes": false', '"passes": true'))
            run.read_plan()
        run.history.broken = [key]
        set_back(run)
        assert "T2" not in repo.passed() and run.plan.tasks[1].is_blocked is again
        set_back(run)
    assert "it passed twice" in repo.read("prd.json")


def test_the_failure_is_the_first_red_check(run: Run) -> None:
    one = attempt_of(run, 0, Verdict.FAILED)
    assert failure_of(one).name == ""
    one.checks = [CheckResult(name, name, name == "a", 1, 0.1, f"{name} fails", "log") for name in "abc"]
    found = failure_of(one)
    assert (found.name, found.tail, found.log, found.others) == ("b", "b fails", "log", ["c"])
