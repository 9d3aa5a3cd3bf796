"""What is remembered of checks: by the files that they ran on, and only where nothing
else can have changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from _ralph.loop.checking import current_results, results_of
from _ralph.loop.jobs import Checked, CheckJob
from _ralph.loop.results import Results, up_to
from _ralph.loop.run import Run

from _ralph.git.git import Git
from _ralph.model import Check, CheckResult, Setup
from tests.conftest import Repo
from tests.git.test_branch import work_on
from tests.git.test_workspace import head

Opened = Callable[..., Run]


def job(commit: str, *names: str, again: bool = False) -> CheckJob:
    return CheckJob(
        commit=commit,
        checks=[Check(name, name) for name in names],
        name="0001",
        again=again,
    )


def said(commit: str, missing: str = "", **results: bool) -> Checked:
    checks = [
        CheckResult(name, name, ok, 0, 1.5, missing=missing)
        for name, ok in results.items()
    ]
    return Checked(checks=checks, commit=commit)


def is_red(results: Results, commit: str) -> bool:
    newest = results.newest(commit, "a")
    return newest is not None and not newest.ok


@pytest.fixture
def results(repo: Repo) -> Results:
    return Results(Git.at(repo.path))


def test_what_ran_on_a_tree_is_known_on_every_commit_of_it(
    repo: Repo, results: Results
) -> None:
    first = head(repo)
    results.end(job(first, "a", "b"), said(first, a=True, b=False))
    repo.git("commit", "-q", "--allow-empty", "-m", "the same files")
    found = results.recall(job(head(repo), "b", "a"))
    assert found is not None and [(one.name, one.ok, one.seconds) for one in found.checks] == [
        ("b", False, 0.0), ("a", True, 0.0)
    ]  # fmt: skip
    assert found.checks[0].outcome.endswith("(as before)")
    assert results.recall(job(work_on(repo, first), "a")) is None
    assert results.recall(job(first, "a", "c")) is None
    assert results.recall(job(first, "a", again=True)) is None


def test_red_and_green_on_one_tree_is_flaky_and_the_newest_counts(
    repo: Repo, results: Results
) -> None:
    tip = head(repo)
    for ok in (True, False):
        assert not results.is_flaky(tip, "a")
        results.end(job(tip, "a"), said(tip, a=ok))
    assert results.is_flaky(tip, "a") and is_red(results, tip)
    assert not results.is_flaky(work_on(repo, tip), "a")


def test_where_the_room_holds_the_files_only_what_is_new_runs(
    repo: Repo, results: Results
) -> None:
    tip = head(repo)
    assert results.begin(job(tip, "suite")).known is None
    results.end(job(tip, "suite"), said(tip, suite=True))
    for name in ("one", "two"):
        begun = results.begin(job(tip, "suite", name))
        assert begun.known == ["suite"]
        found = results.end(
            begun, Checked(checks=[CheckResult(name, name, False, 1, 0.1)], commit=tip)
        )
        assert [(one.name, one.ok) for one in found.checks] == [
            ("suite", True),
            (name, False),
        ]
    other = work_on(repo, tip)
    results.end(results.begin(job(other, "suite")), said(other, suite=True))
    assert (
        results.begin(job(tip, "suite", "three")).known is None
    )  # it holds the other's files


@pytest.mark.parametrize("last", ["it was stopped", "`setup` was red"])
def test_a_room_that_did_not_come_to_the_end_holds_nothing(
    repo: Repo, results: Results, last: str
) -> None:
    tip = head(repo)
    results.end(job(tip, "suite"), said(tip, suite=True))
    begun = results.begin(job(tip, "suite", "one"))
    if last == "`setup` was red":
        assert [
            one.name for one in results.end(begun, said(tip, setup=False)).checks
        ] == ["setup"]
    assert results.begin(job(tip, "suite", "two")).known is None


def test_a_program_that_was_missing_can_be_there_now(
    repo: Repo, results: Results
) -> None:
    results.end(job(head(repo), "a"), said(head(repo), missing="tool", a=False))
    assert results.recall(job(head(repo), "a")) is None and is_red(results, head(repo))
    results.end(job(head(repo), "a"), said(head(repo), a=True))
    assert results.recall(job(head(repo), "a")) and not results.is_flaky(
        head(repo), "a"
    )


def test_a_person_s_retry_forgets(repo: Repo, results: Results) -> None:
    results.before = {"T1": {"a": False}, "T2": {"b": False}}
    results.end(job(head(repo), "a"), said(head(repo), a=False))
    results.forget("T1")
    assert results.recall(job(head(repo), "a")) is None and results.before == {
        "T2": {"b": False}
    }


@pytest.mark.parametrize("what", ["setup", "keep", "a copied file", "nothing"])
def test_it_holds_as_long_as_all_that_checks_see_beside_the_tree(
    repo: Repo, opened: Opened, what: str
) -> None:
    repo.write(".gitignore", ".env\n")
    repo.write(".worktreeinclude", ".env\n")
    repo.commit("copies")
    repo.write(".env", "KEY=1\n")
    repo.plan({}, checks=["true"])
    run = opened()
    known = current_results(run)
    known.before = {"T1": {"a": False}}
    if what == "setup":
        object.__setattr__(run.plan, "setup", Setup("true"))
    elif what == "keep":
        run.plan.settings["keep"] = ["target/"]
    elif what == "a copied file":
        repo.write(".env", "KEY=2\n")
    assert (current_results(run) is known) == (what == "nothing") and current_results(
        run
    ).before == known.before


def test_a_job_goes_to_the_room_once(repo: Repo, opened: Opened) -> None:
    log = repo.outside / "ran"
    repo.plan({}, checks=["true"])
    run = opened()
    for _ in range(2):
        found = run.wait(results_of(run, job(run.tip, f"echo x >> {log}", "false")))
        assert [one.ok for one in found.checks] == [True, False]
    assert log.read_text() == "x\n"


@pytest.mark.parametrize(
    ("red", "program"),
    [
        ([], ""),
        (["a"], "a"),
        (["b"], "ab"),
        (["b", "a"], "ab"),
        (["c"], "abc"),
        (["setup"], "abc"),
    ],
)
def test_the_program_up_to_what_is_red(red: list[str], program: str) -> None:
    checks = [Check(name, name) for name in "abc"]
    last = [CheckResult(name, name, False, 1, 0.1) for name in red]
    assert "".join(check.name for check in up_to(checks, last)) == program
