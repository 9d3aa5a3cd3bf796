"""Exit codes, errors, and why a run stopped. Apart from `model`, so that `--help`
imports little."""

from __future__ import annotations

import enum
import errno
import os
import re

SHORTAGES = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.ENOMEM,
    errno.EAGAIN,
    errno.EMFILE,
    errno.ENFILE,
    errno.EFBIG,
)
"""Errors that mean that the system is out of something for now."""

UNWRITABLE = (errno.EROFS, errno.EACCES, errno.EPERM, errno.ENOTDIR, errno.EEXIST)
"""Errors that mean that a person has to make room for a file: by rights, or as another
file is in its way."""


class Exit(enum.IntEnum):
    """Every exit status of the `ralph` command; the README's table lists the same."""

    COMPLETE = 0
    ERROR = 1
    USAGE = 2
    LEFT = 3
    PERSON = 4
    AGENT = 5
    LATER = 75
    HANGUP = 129
    INTERRUPTED = 130
    TERMINATED = 143


class RalphError(Exception):
    """Something that ends the command with one message; `exit` is its status."""

    exit = Exit.ERROR


class StopNow(RalphError):
    """ralph must stop, and the step under way has no result."""


class BadInput(RalphError):
    """The command line, prd.json or the working tree is not as ralph needs it."""

    exit = Exit.USAGE


class NeedsPerson(RalphError):
    """A person has to decide before anything can go on."""

    exit = Exit.PERSON


class SetupFailed(NeedsPerson):
    """What nothing can pass without is not there for now: `setup` on the branch's own
    files, a prefix, the judge. `reset` is when (unix time) it is, if that is known."""

    def __init__(self, why: str, reset: float = 0.0) -> None:
        super().__init__(why)
        self.reset = reset


class AgentUnavailable(RalphError):
    """The agent cannot run at all: missing, not logged in, not permitted."""

    exit = Exit.AGENT


class TryLater(RalphError):
    """The same command can succeed later."""

    exit = Exit.LATER


STOPS = {
    "complete": Exit.COMPLETE,
    "once": Exit.LEFT,
    "asked": Exit.LEFT,
    "limit": Exit.LEFT,
    "blocked": Exit.PERSON,
    "stuck": Exit.PERSON,
    "red-checks": Exit.PERSON,
    "budget": Exit.PERSON,
    "no-price": Exit.PERSON,
    "unavailable": Exit.AGENT,
    "limited": Exit.LATER,
    "hung-up": Exit.HANGUP,
    "interrupted": Exit.INTERRUPTED,
    "terminated": Exit.TERMINATED,
    "error": Exit.ERROR,
}
"""Every way in which a run ends: its word in `--json`, and the exit status."""


class Stop(Exception):
    """Why a run ends, raised where that is known: one of `STOPS`, and a sentence for
    people. `other` is the exit status where it is not that of the table: an error has
    its own, and an attempt with --once may have passed."""

    def __init__(self, word: str, reason: str, other: Exit | None = None) -> None:
        super().__init__(reason)
        self.word, self.reason, self.other = word, reason, other

    @property
    def exit(self) -> Exit:
        return STOPS[self.word] if self.other is None else self.other


def stop_for(error: Exception) -> Stop:
    """The end of a run by an error."""
    failed = translate(error)
    return Stop("error", str(failed), failed.exit)


def translate(error: Exception) -> RalphError:
    """Any error as one of ours. With RALPH_DEBUG set, the traceback of an unexpected
    one is printed."""
    if isinstance(error, RalphError):
        return error
    if isinstance(error, ModuleNotFoundError):
        way = (
            "install what the head of ralph.py lists, or start it with: uv run ralph.py"
        )
        return RalphError(f"{error}; {way}")
    if not isinstance(error, OSError):
        if os.environ.get("RALPH_DEBUG"):
            import traceback

            traceback.print_exception(error)
        return RalphError(
            f"unexpected error: {type(error).__name__}: {error}; RALPH_DEBUG=1 shows where"
        )
    problem = str(error.strerror or error)
    if error.filename:  # of a file while it is written, its folder says more
        name = re.sub(r"/\.[^/]*\.ralph-tmp$", "", os.fsdecode(error.filename))
        problem += f": {name}"
    if error.errno == errno.ENOENT and not error.filename:
        return BadInput("the folder that you are in is gone; cd to your project")
    if error.errno in SHORTAGES:
        return TryLater(
            f"{problem}; nothing was lost; fix this, and run the same command again"
        )
    if error.errno in UNWRITABLE:
        return BadInput(f"{problem}; ralph must be able to write there")
    return RalphError(problem)
