"""Waiting for what nothing can pass without, such as a registry that `setup` needs: red
on the branch's own files, and nothing can be done but wait."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable
from typing import TypeVar

from _ralph import text
from _ralph.errors import SetupFailed, TryLater
from _ralph.loop.loop import Loop
from _ralph.state.limits import BACKOFF

Found = TypeVar("Found")


def when_setup_works(loop: Loop, task: str, step: Callable[[], Found]) -> Found:
    """What `step` returns. While it raises SetupFailed, that is said, and it is tried
    again, later and later. TryLater where nobody wants to wait; StopNow and Stop as for
    `Loop.stand_by`."""
    for seconds in itertools.chain(BACKOFF, itertools.repeat(BACKOFF[-1])):
        try:
            return step()
        except SetupFailed as error:
            if not loop.settings.waits:
                raise TryLater(str(error)) from None
            why = str(error)
        until = time.time() + seconds
        when = text.clock(min(until, loop.ends), time.time(), seconds=True)
        loop.view.doing(f"waiting to try again until {when}")
        said = f"{why}; it is tried again, waiting until {when}"
        loop.stand_by(said, lambda at=until: time.time() >= at, task)  # type: ignore[misc]
    raise AssertionError  # the pauses have no end
