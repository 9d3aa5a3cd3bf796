"""What tests of single functions of the loop share: a loop of a run that is open, in
this process."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from _ralph.loop.loop import Loop
from _ralph.loop.start import look
from _ralph.state.options import Options
from tests.conftest import Repo


@pytest.fixture(autouse=True)
def alone(
    no_settings_of_this_user: None, nothing_hangs: None, own_places: None
) -> None: ...


@pytest.fixture
def opened(repo: Repo) -> Callable[..., Loop]:
    """Makes a loop for the plan in `repo`, with its number and options, on a branch
    that begins at HEAD."""

    def made(number: int = 1, **options: object) -> Loop:
        loop = look(Options(prd=repo.path / "prd.json", **options))  # type: ignore[arg-type]
        loop.paths.private.mkdir(parents=True, exist_ok=True)
        loop.first_tip, _ = loop.branch.open()
        loop.number, loop.run_id = number, "id"
        return loop

    return made
