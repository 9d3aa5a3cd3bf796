"""What tests of the checks share."""

from __future__ import annotations

from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def alone(
    no_settings_of_this_user: None,
    nothing_hangs: None,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.setenv("RALPH_PLACES", str(tmp_path / "places"))
