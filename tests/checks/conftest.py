"""What tests of the checks share."""

from __future__ import annotations

import pytest


@pytest.fixture(autouse=True)
def alone(
    no_settings_of_this_user: None, nothing_hangs: None, own_places: None
) -> None: ...
