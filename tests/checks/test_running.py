"""Checks on a commit in the clean room: what this run knows of some files does not run
on them again, as long as nothing else can have changed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from _ralph.checks.places import Places
from _ralph.checks.results import Results
from _ralph.checks.running import (
    Checked,
    Job,
    baseline,
    results_of,
    valid_for,
)
from _ralph.errors import SetupFailed
from _ralph.model import Check, Setup
from tests.conftest import Repo
from tests.git.support import head, places_of
from tests.git.test_branch import work_on


class Runs:
    """Checks of a run in its clean room."""

    def __init__(self, repo: Repo, setup: str | Setup = "") -> None:
        self.repo = repo
        self.places = places_of(repo, setup)
        self.results = results(self.places)

    def job(self, commit: str, *commands: str, **more: object) -> Job:
        checks = [Check(one, one) for one in commands]
        return Job(commit, checks, "0001", **more)  # type: ignore[arg-type]

    def run(self, commit: str, *commands: str, **more: object) -> Checked:
        job = self.job(commit, *commands, **more)
        return results_of(self.places, self.results, job)

    def notes(self, name: str) -> str:
        """A command that notes that it ran, and leaves something in the room."""
        return f"echo {name} >> {self.repo.outside}/ran && touch {name}"

    @property
    def ran(self) -> list[str]:
        return self.repo.read("../ran").split()


def results(places: Places) -> Results:
    """What a run knows, as who enters the room reads it."""
    valid = valid_for(places, places.settings.plan, "run", 0)
    places.paths.private.mkdir(parents=True, exist_ok=True)
    path = places.paths.private / "results.json"
    return Results.read(path, valid, places.home.tree)


@pytest.fixture
def runs(repo: Repo) -> Runs:
    return Runs(repo)


def green(found: Checked) -> list[bool]:
    return [result.ok for result in found.checks]


def test_what_ran_on_these_files_does_not_run_again(repo: Repo, runs: Runs) -> None:
    suite = runs.notes("suite")
    for number in range(3):
        assert green(runs.run(head(repo), suite, "false")) == [True, False]
        repo.git("commit", "-q", "--allow-empty", "-m", f"the same files {number}")
        runs.results.save()
        runs.results = results(runs.places)  # another loop reads it
    assert runs.ran == ["suite"]
    runs.run(work_on(repo, head(repo)), suite)
    runs.run(head(repo), suite, again=True)
    assert runs.ran == ["suite"] * 3


def test_where_the_room_holds_the_files_only_what_is_new_runs(
    repo: Repo, runs: Runs
) -> None:
    tip, suite = head(repo), runs.notes("suite")
    runs.run(tip, suite)
    for name in ("one", "two"):
        found = runs.run(tip, suite, f"test -e suite && {runs.notes(name)}")
        assert green(found) == [True, True]
        assert found.checks[0].recalled
    assert runs.ran == ["suite", "one", "two"]
    runs.run(work_on(repo, tip), suite)
    runs.run(tip, suite, "test -e suite")  # the room held the other's files
    assert runs.ran == ["suite", "one", "two", "suite", "suite"]


def test_a_room_that_did_not_come_to_the_end_holds_nothing(repo: Repo) -> None:
    runs = Runs(repo, "test ! -e ../away")
    tip, suite = head(repo), runs.notes("suite")
    runs.run(tip, suite)
    (runs.places.paths.places / "away").touch()
    found = runs.run(work_on(repo, tip), suite)
    assert [one.name for one in found.checks] == ["setup"]
    assert found.red_setup
    (runs.places.paths.places / "away").unlink()
    runs.run(tip, suite, "true")
    assert runs.ran == ["suite", "suite"]


def test_a_red_setup_is_the_only_result_and_on_the_branch_s_own_files_an_error(
    repo: Repo,
) -> None:
    runs = Runs(repo, "exit 3")
    found = runs.run(head(repo), "true")
    assert [(one.name, one.exit) for one in found.checks] == [("setup", 3)]
    with pytest.raises(SetupFailed, match="setup failed with exit 3"):
        baseline(runs.places, runs.results, head(repo), [], "tip")


def test_it_holds_as_long_as_all_that_checks_see_beside_the_tree(repo: Repo) -> None:
    repo.write(".gitignore", ".env\n")
    repo.write(".worktreeinclude", ".env\n")
    repo.commit("copies")
    repo.write(".env", "KEY=1\n")
    places = places_of(repo)
    plan = places.settings.plan
    seen = [
        valid_for(places, plan, "run", 0),
        valid_for(places, replace(plan, setup=Setup("true")), "run", 0),
        valid_for(places_of(repo, "", "target/"), plan, "run", 0),
        valid_for(places, plan, "run", 1),
        valid_for(places, plan, "next", 0),
    ]
    assert valid_for(places_of(repo), plan, "run", 0) == seen[0]
    repo.write(".env", "KEY=2\n")
    seen.append(valid_for(places, plan, "run", 0))
    assert len(set(seen)) == len(seen)
