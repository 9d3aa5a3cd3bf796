"""What a red `setup` means. Its result on the branch's own files decides: red there,
too, and nothing can be done but wait, as for a registry that is away; green there, and
it is the work's fault."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

from _ralph import text
from _ralph.errors import SetupFailed, TryLater
from _ralph.loop.jobs import Attempt, Checked
from _ralph.loop.run import Run, stand_by
from _ralph.model import CheckResult
from _ralph.state.limits import BACKOFF

Found = TypeVar("Found")


def red_setup(found: Checked) -> CheckResult | None:
    """The result of `setup`, if it was red: then it is the only one."""
    return found.checks[0] if found.red and found.checks[0].name == "setup" else None


def require_setup(found: Checked) -> Checked:
    """The results of a job on the branch's own files. SetupFailed if `setup` was
    red."""
    if red := red_setup(found):
        raise SetupFailed(setup_failed(red))
    return found


_NO_VENV = "Could not find an activated virtualenv"  # what pip says
_OWN_VENV = (
    " Make one in the checkout: python3 -m venv .venv && .venv/bin/pip install ..."
)


def setup_failed(result: CheckResult) -> str:
    """The message for a `setup` that fails on the branch's own files: its output from
    the first line that speaks of an error, else its last lines."""
    said = re.search(
        r"^[^\n]*\berror\b.*", result.tail, re.IGNORECASE | re.MULTILINE | re.DOTALL
    )
    why = (
        text.one_line(said[0] if said else text.tail(result.tail, 240), 250)
        or "it printed nothing"
    )
    why += _OWN_VENV if _NO_VENV in result.tail else ""
    return f"setup {result.outcome}: {text.one_line(result.command, 100)}: {why}; all of it: {result.log}"


async def retry_setup(
    run: Run, attempt: Attempt, step: Callable[[], Awaitable[Found]]
) -> Found:
    """What `step` returns. While it raises SetupFailed, that is said, and it is tried
    again, later and later. StopNow when ralph must stop, TryLater when the run's time
    is up, or where nobody wants to wait."""
    for seconds in itertools.chain(BACKOFF, itertools.repeat(BACKOFF[-1])):
        try:
            return await step()
        except SetupFailed as error:
            if not run.settings.waits:
                raise TryLater(str(error)) from None
            await _wait(run, attempt, str(error), time.time() + seconds)
    raise AssertionError  # the pauses have no end


async def _wait(run: Run, attempt: Attempt, why: str, until: float) -> None:
    """Wait until `until` (unix time). StopNow when ralph must stop, TryLater when the
    run's time is up."""
    when = f"until {text.clock(min(until, run.ends), time.time(), seconds=True)}"
    said, doing = (
        f"{why}; it is tried again, waiting {when}",
        f"waiting to try again {when}",
    )
    if not await stand_by(run, attempt, said, doing, lambda: time.time() >= until):
        raise TryLater(why)
