"""What an agent prints, read line by line."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import files, text
from _ralph.agents.cli import Cli
from _ralph.agents.turn import Turn
from _ralph.model import NO_LIMIT, Json, Outcome

LAST_WORD, BACKGROUND = 60.0, 660.0
"""Seconds of silence in which an agent must exit after its final result; and with a
task of its own open, which Claude Code itself ends after 600, to go on with what that
said."""
_LARGEST = 32 << 20
_RESULT = re.compile(rb'"type": ?"result"')
_JSON = json.JSONDecoder(strict=False)
"""Reads control characters within a string as they are."""


@dataclass
class Stream:
    """Reads the output of one agent into its `turn`. The process is to be stopped once
    more than `usd_left` or `tokens_left` is used."""

    cli: Cli
    usd_left: float = NO_LIMIT
    tokens_left: float = NO_LIMIT
    turn: Turn = field(default_factory=Turn)
    listen: Callable[[str, str], None] | None = None  # gets words and tools
    raw: Callable[[str], None] | None = None  # gets every line
    heard: float = field(default_factory=time.monotonic)  # the last sign of life
    doing: str = ""  # what was said or done last
    events: int = 0
    unanswered: str = ""  # what the provider does not answer, until it does
    overspent: str = ""  # the limit that is used up

    @property
    def reset(self) -> float:
        """The unix time at which a limit ends, as it was told last; 0 if it was not."""
        return text.moment(self.turn.reset, time.time()) or 0.0

    @property
    def has_ended(self) -> bool:
        """Whether it said its final result, so that it only has to exit."""
        return self.turn.final in (Outcome.DONE, Outcome.FAILED)

    def silence(self, idle: float) -> float:
        """The seconds of silence after which it is ended, at most `idle`."""
        if not self.has_ended:
            return idle
        return min(idle, BACKGROUND if self.turn.background else LAST_WORD)

    def line(self, line: bytes, printed: bool = True) -> str | None:
        """Read one line, `printed` or from the agent's own log. The answer is for
        `run_process`: `stop`, `quiet` (no sign of life) or None."""
        if self.raw is not None and printed:
            self.raw(line.decode("utf-8", "replace"))
        if line.startswith(self.cli.skips):
            self.events += 1
            answer = None
        else:
            answer = self._line(line, printed)
        if answer != "quiet":
            self.heard = time.monotonic()
        return answer

    def _line(self, line: bytes, printed: bool) -> str | None:
        turn, read = self.turn, self.cli.read
        if read is None:
            turn.active = turn.active or bool(line.strip())
            self._hear("say", line[:2000].decode("utf-8", "replace"))
            return None
        event: Json | None
        if self.cli.text and printed:
            event = {"line": line[:2000].decode("utf-8", "replace")}
        else:
            event = event_of(line)
            self.events += event is not None
        if event is None:
            if _RESULT.search(line):
                turn.untold |= {"dollars", "tokens"}
            return "quiet"
        turn.words, turn.retry, turn.quiet = [], "", False
        read(turn, event)
        self._tell()
        if (turn.usd or 0) > self.usd_left:
            self.overspent = "dollars"
        elif turn.used.total > self.tokens_left:
            self.overspent = "tokens"
        if turn.stop or self.overspent:
            return "stop"
        return "quiet" if turn.quiet else None

    def _tell(self) -> None:
        """Tell what the event means to people."""
        turn = self.turn
        for kind, words in turn.words:
            self._hear(kind, words)
        if turn.retry:
            retry = text.one_line(text.redact(turn.retry), 200)
            self.unanswered = f"the provider does not answer, {retry}"
            self._hear("say", self.unanswered)
        elif turn.words or turn.final:
            self.unanswered = ""

    def _hear(self, kind: str, words: str) -> None:
        if words.strip():
            self.doing = words
            if self.listen is not None:
                self.listen(kind, words)

    def was_cut_off(self, outcome: Outcome) -> bool:
        """Whether an agent that ended so was cut off before it said what it had used.
        One that its provider did not answer has used nothing."""
        turn = self.turn
        if self.cli.read is None or turn.final is not None:
            return False
        if outcome is Outcome.INTERRUPTED:
            return turn.active or not self.unanswered
        ended_by_us = bool(turn.never)
        died = outcome is Outcome.FAILED and (turn.presumed is None or ended_by_us)
        return turn.active and (died or outcome is Outcome.TIMED_OUT)

    def unreported(self, outcome: Outcome) -> str:
        """The unit that is limited, and that an agent which ended so did not report;
        empty if there is none. An agent that does not know the price of its model
        reports zero, too."""
        if self.cli.read is None or outcome in (Outcome.LIMITED, Outcome.UNAVAILABLE):
            return ""
        told = {"dollars": self.turn.usd, "tokens": self.turn.used.total}
        limits = {"dollars": self.usd_left, "tokens": self.tokens_left}
        done = outcome is Outcome.DONE or any(told.values())
        for unit, limit in limits.items():
            nothing = self.turn.final is not None and done and not told[unit]
            if limit < NO_LIMIT and (nothing or unit in self.turn.untold):
                return unit
        return ""


def event_of(line: bytes) -> Json | None:
    """The object in a line of JSON; None if it has none. Bad UTF-8 and control
    characters cost nothing."""
    words = line.decode("utf-8", "replace").lstrip()
    if not words.startswith("{"):
        return None
    try:
        event: Json = _JSON.raw_decode(words)[0]
    except (ValueError, RecursionError):
        return None
    return event


def replay(cli: Cli, transcript: Path) -> Stream | None:
    """What an agent has said and used so far, from its transcript; None if it has not
    begun."""
    data = files.read_regular(transcript, _LARGEST)
    if data is None:
        return None
    stream = Stream(cli)
    for line in data.splitlines():
        stream.line(line)
    return stream
