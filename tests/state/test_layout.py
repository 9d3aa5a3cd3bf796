"""Where everything of a plan lies, and who is at work on it; nothing here writes but a
note."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from _ralph.errors import BadInput
from _ralph.model import Paths, Verdict
from _ralph.state import layout, prd
from _ralph.state.log import Log
from _ralph.state.records import AttemptEnded
from tests.conftest import Repo, cases


@pytest.fixture
def paths(repo: Repo, own_places: None) -> Paths:
    repo.plan({"checks": ["true"]})
    return layout.locate(repo.path / "prd.json")


def test_outside_of_a_repository_and_in_no_folder_there_is_no_plan(
    tmp_path: Path,
) -> None:
    with pytest.raises(BadInput, match="not in a git repository"):
        layout.locate(tmp_path / "prd.json")
    with pytest.raises(BadInput, match="there is no folder"):
        layout.locate(tmp_path / "gone/prd.json")


@cases("""
places  state  folder
/p      -      /p
-       /s     /s/ralph
-       -      /h/.local/state/ralph
~/p     -      /h/p
""")
def test_the_folder_of_all_places(
    monkeypatch: pytest.MonkeyPatch, places: str, state: str, folder: str
) -> None:
    monkeypatch.setenv("RALPH_PLACES", places)
    monkeypatch.setenv("XDG_STATE_HOME", state)
    monkeypatch.setenv("HOME", "/h")
    assert layout.places_folder() == Path(folder)


def test_a_task_that_a_person_unblocked_starts_over(paths: Paths) -> None:
    plan = prd.load(paths.prd)
    record = AttemptEnded(
        task="T1", title="task 1", iteration=1, verdict=Verdict.FAILED, blocked="why"
    )
    Log(paths.progress, plan).write(record, "", "T1 failed")
    task = plan.tasks[0]
    assert layout.history_of(paths, plan).of(task).attempts == 0
    held = replace(plan, tasks=(replace(task, blocked="why"),))
    assert layout.history_of(paths, held).of(task).attempts == 1


# ---------------------------------------------------------------- the folder of logs


def test_the_folder_of_logs_is_ignored_and_holds_the_newest_attempts(
    repo: Repo,
) -> None:
    paths = layout.locate(repo.path / "prd.json")
    for number in range(1, 52):
        layout.new_log(paths, f"{number:04}-T1.out").touch()
    for name in ("notify.log", "0052-T1.out", "0052-T1-check1.log"):
        layout.new_log(paths, name).touch()
    layout.trim_logs(paths, under_way=[1], new="0052-T1")
    left = sorted(path.name for path in paths.logs.iterdir())
    kept = [f"{number:04}-T1.out" for number in range(3, 52)]
    assert left == ["0001-T1.out", *kept, "notify.log"]
    assert ".ralph" not in repo.git("status", "--porcelain")
