"""What an agent has used so far: a small file beside its transcript, which outlives
whoever is killed."""

from __future__ import annotations

import contextlib
import json
import os
import time
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import files, text
from _ralph.agents.events import StreamParser
from _ralph.codec import from_json, to_json
from _ralph.model import AgentResult, Outcome

SUFFIX = ".sums.json"
_A_SECOND = 40
_LARGEST = 1 << 16


@dataclass(kw_only=True)
class SoFar:
    """The `result` if the agent were cut off now, and what it was `doing` last."""

    result: AgentResult = field(
        default_factory=lambda: AgentResult(Outcome.INTERRUPTED)
    )
    doing: str = ""


class Saver:
    """Writes the sums of one agent to `path` whenever they change, at most 40 times a
    second: an agent can print anything."""

    def __init__(self, path: Path, parser: StreamParser) -> None:
        self._path, self._parser = path, parser
        self._second, self._written = 0, 0

    def line(self, raw: bytes) -> str | None:
        """Have the parser read one line; its answer."""
        answer = self._parser.line(raw)
        if self._parser.news and self._may_write():
            self.save()
        return answer

    def _may_write(self) -> bool:
        second = int(time.monotonic())
        self._written = self._written + 1 if second == self._second else 1
        self._second = second
        return self._written <= _A_SECOND

    def save(self) -> None:
        """Write them now. A full disk stops no agent."""
        self._parser.news = False
        doing = text.one_line(text.redact(self._parser.doing), 100)
        data = json.dumps(
            to_json(SoFar(result=so_far(self._parser), doing=doing))
        ).encode()
        new = self._path.with_name(self._path.name + files.TEMPORARY)
        with contextlib.suppress(OSError):
            new.unlink(missing_ok=True)
            new.touch(0o600, exist_ok=False)
            new.write_bytes(data)
            os.replace(new, self._path)


def so_far(parser: StreamParser) -> AgentResult:
    """The result of an agent that is cut off now."""
    result = AgentResult(
        Outcome.INTERRUPTED, session=parser.session, usd=parser.usd, tokens=parser.tokens(),
        overage=parser.overage, reset=parser.reset if parser.overage else None,
    )  # fmt: skip
    return replace(result, at_least=parser.was_cut_off(Outcome.INTERRUPTED))


def read(transcript: Path) -> SoFar | None:
    """What was saved beside the transcript of this name, without its suffixes; None if
    its agent has not begun, or the file is damaged."""
    data = files.read_regular(transcript.with_name(transcript.name + SUFFIX), _LARGEST)
    with contextlib.suppress(ValueError, RecursionError):
        return from_json(SoFar, json.loads(data)) if data else None
    return None


def recovered(transcript: Path, dearest: float, reason: str) -> AgentResult:
    """The result of an agent that ended together with its worker or all of ralph,
    because of `reason`; `dearest` as for `booked`."""
    so_far = read(transcript) or SoFar()
    return booked(
        replace(so_far.result, outcome=Outcome.INTERRUPTED, reason=reason), dearest
    )


def booked(result: AgentResult, dearest: float) -> AgentResult:
    """`result` with what it costs: if it was cut off, at least as much as the `dearest`
    attempt so far with this agent, in dollars."""
    if result.at_least and dearest > (result.usd or 0.0):
        result.usd = dearest
    return result
