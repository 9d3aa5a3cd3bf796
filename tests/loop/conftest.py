"""What tests of single functions of the loop share: a run that is open, in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from _ralph.loop.opening import read_run
from _ralph.loop.options import Options
from _ralph.loop.run import Run
from _ralph.process.process import Control
from tests.conftest import Repo
from tests.test_files import within


@pytest.fixture
def opened(repo: Repo, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Run]]:
    """Makes a run of the plan in `repo`, with options, on a branch that begins at HEAD."""
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM"):
        monkeypatch.setenv(name, "/dev/null")
    monkeypatch.setenv("RALPH_PLACES", str(tmp_path / "places"))

    def run(**options: object) -> Run:
        made = read_run(Options(prd=repo.path / "prd.json", **options))  # type: ignore[arg-type]
        made.paths.private.mkdir(parents=True, exist_ok=True)
        made.tip, _ = made.branch.open()
        made.run_id, made.control = "id", Control()
        return made

    with within(90):
        yield run
