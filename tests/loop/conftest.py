"""What tests of single functions of the loop share: a run that is open, in this
process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from _ralph.loop.run import Run

from _ralph.loop.opening import read_run
from _ralph.process.process import Control
from _ralph.state.options import Options
from tests.conftest import Repo


@pytest.fixture(autouse=True)
def alone(
    no_settings_of_this_user: None,
    nothing_hangs: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("RALPH_PLACES", str(tmp_path / "places"))


@pytest.fixture
def opened(repo: Repo) -> Callable[..., Run]:
    """Makes a run of the plan in `repo`, with options, on a branch that begins at
    HEAD."""

    def run(**options: object) -> Run:
        made = read_run(Options(prd=repo.path / "prd.json", **options))  # type: ignore[arg-type]
        made.paths.private.mkdir(parents=True, exist_ok=True)
        made.tip, _ = made.branch.open()
        made.run_id, made.control = "id", Control()
        return made

    return run
