"""What tests of the state share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def alone(nothing_hangs: None) -> None: ...
