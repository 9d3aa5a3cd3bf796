"""How things end: exit codes, errors, and why a run stopped. Apart from the other words of `model`,
for `--help` needs no more than these."""

from __future__ import annotations

import enum
from typing import NamedTuple


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


class BadInput(RalphError):
    """The command line, prd.json or the working tree is not as ralph needs it."""

    exit = Exit.USAGE


class NeedsPerson(RalphError):
    """Nothing can go on until a person decides."""

    exit = Exit.PERSON


class AgentUnavailable(RalphError):
    """The agent cannot run at all: missing, not logged in, not permitted."""

    exit = Exit.AGENT


class TryLater(RalphError):
    """A later call of the same command can succeed."""

    exit = Exit.LATER


class Stop(NamedTuple):
    """Why a run ended: a word for `--json`, the exit status, a sentence for people."""

    word: str
    exit: Exit
    reason: str
