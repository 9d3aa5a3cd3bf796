"""After an attempt: only a verdict marks a task, what no longer holds is set back, and all of it can be done
twice."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from _ralph.loop.record import apply_verdict, failure_of, set_back, set_back_claim

from _ralph.git import git as git_module
from _ralph.loop.jobs import Attempt
from _ralph.loop.opening import peek
from _ralph.loop.run import Options, Run
from _ralph.model import CheckResult, Verdict
from _ralph.state import edit
from _ralph.state.history import entry_digest
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
        tip=head(repo), checks={"true": True}, task_before=entry_digest(run.plan.tasks[0]),
    )  # fmt: skip


def test_a_pass_that_no_verdict_gave_is_set_back_and_named(repo: Repo, run: Run) -> None:
    for verdict, still in ((Verdict.PASSED, ["T2"]), (Verdict.FAILED, [])):
        one = attempt_of(run, 1, verdict)
        set_back_claim(run, one)
        assert repo.passed() == still and bool(one.restored) is not bool(still)


def test_a_verdict_marks_and_lands_and_does_so_once(repo: Repo, run: Run) -> None:
    commit = work_on(repo, head(repo))
    for _ in range(2):
        run.history.pending = [passes(repo, run, commit)]
        apply_verdict(run)
        assert repo.passed() == ["T1", "T2"] and run.branch.tip() == run.tip == commit
        assert run.history.pending == []


def test_what_landed_on_a_new_tip_before_a_crash_is_only_marked(repo: Repo, run: Run) -> None:
    run.history.pending = [passes(repo, run, work_on(repo, head(repo)))]
    landed = work_on(repo, head(repo), "other.txt")
    run.branch.land(landed, head(repo), "on a new tip")
    run.write(Landed(task="T1", title=run.plan.tasks[0].title, commit=landed), "landed")
    apply_verdict(run)
    assert repo.passed() == ["T1", "T2"] and run.branch.tip() == landed
    assert len(repo.records("land")) == 1


def test_what_lands_on_a_new_tip_is_signed_as_the_person_signs(repo: Repo, run: Run) -> None:
    """With a stand-in for gpg, which makes a signature of nothing."""
    script = "cat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'"
    repo.git("config", "gpg.program", str(repo.program("../gpg", script)))
    repo.git("config", "commit.gpgSign", "true")
    run.history.pending = [passes(repo, run, work_on(repo, head(repo)))]
    theirs = work_on(repo, head(repo), "theirs.txt")
    run.branch.land(theirs, head(repo), "a person's")
    apply_verdict(run)
    assert repo.passed() == ["T1", "T2"] and head(repo, f"{run.tip}^") == theirs
    assert "BEGIN PGP SIGNATURE" in repo.git("cat-file", "commit", run.branch.tip())


def test_after_a_crash_the_edit_of_a_person_stays(repo: Repo, run: Run) -> None:
    commit = work_on(repo, head(repo))
    run.history.pending = [passes(repo, run, commit)]
    run.history.pending[0].task_before = "another"
    apply_verdict(run)
    assert repo.passed() == ["T2"] and run.branch.tip() == commit


def test_what_a_person_edits_elsewhere_in_the_plan_takes_no_pass_away(repo: Repo, run: Run) -> None:
    run.history.pending = [passes(repo, run, work_on(repo, head(repo)))]
    repo.write("prd.json", repo.read("prd.json").replace("task 2", "another title"))
    run.read_plan()
    apply_verdict(run)
    assert repo.passed() == ["T1", "T2"]


def test_a_task_that_a_person_blocked_meanwhile_has_passed_if_its_work_landed(repo: Repo, run: Run) -> None:
    run.history.pending = [passes(repo, run, work_on(repo, head(repo)))]
    repo.write(
        "prd.json", repo.read("prd.json").replace('"passes": false', '"passes": false, "blocked": "no"')
    )
    run.read_plan()
    apply_verdict(run, live=True)
    assert repo.passed() == ["T1", "T2"]


@pytest.mark.parametrize(("key", "value", "known"), [("checks", ["false"], 1), ("network", False, 0)])
def test_a_plan_that_somebody_saves_during_an_edit_is_examined(
    repo: Repo, run: Run, key: str, value: object, known: int
) -> None:
    """The second one no run without a sandbox could use."""
    said: list[str] = []
    run.view.line = lambda words, *_, **__: said.append(words)  # type: ignore[method-assign]
    saved = {**json.loads(repo.read("prd.json")), "project": "renamed", key: value}
    repo.write("prd.json", json.dumps(saved))
    run.edit(lambda plan: edit.set_passed(plan, plan.tasks[0], True))
    assert repo.passed() == ["T1", "T2"] and run.plan.tasks[0].passed
    assert (len(run.plan.checks), run.plan.project) == (known, "p")
    assert "network" not in run.plan.settings and bool(run.trouble) is not bool(known)
    assert said == ([] if known else [f"! {run.trouble}; using the last good plan"])


@pytest.mark.parametrize("tip", ["", "2" * 40])
def test_a_pass_whose_commit_is_not_in_this_clone_is_worked_again(repo: Repo, run: Run, tip: str) -> None:
    before = run.branch.tip()
    run.write(replace(passes(repo, run, "1" * 40), tip=tip or before), "passed")
    apply_verdict(run)
    assert repo.passed() == ["T2"] and run.branch.tip() == before
    (found,) = repo.records("recheck")
    assert "its commit is not in this repository" in json.dumps(found["since"])


def test_a_pass_that_does_not_land_takes_no_earlier_mark_away(repo: Repo, run: Run) -> None:
    landed = passes(repo, run, work_on(repo, head(repo)))
    run.branch.land(landed.commit, landed.tip, "before the kill")
    gone = replace(landed, task="T2", title=run.plan.tasks[1].title, commit="1" * 40)
    run.history.pending = [landed, gone]
    apply_verdict(run)
    assert "T1" in repo.passed() and run.history.broken == [gone.key]


def test_any_id_lands(repo: Repo, run: Run) -> None:
    run.history.pending = [passes(repo, run, commit := work_on(repo, head(repo)))]
    run.history.pending[0].task = "\0\ud83d"
    apply_verdict(run)
    assert run.branch.tip() == commit


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
