"""What a run shows while it goes on: the interface that `show` draws, and its end in a
loop."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time

from _ralph import text
from _ralph.agents.stream import Stream
from _ralph.errors import Stop
from _ralph.model import CheckResult, Json, Verdict
from _ralph.state.records import AttemptEnded
from _ralph.state.summary import dollars, thousands

_SIGN_OF_LIFE = 300.0
"""Seconds between the lines that say what goes on, where no status stays."""
_LINES_A_SECOND = 40
_RETRY_LINES = 5.0
"""Seconds between two lines about retries."""
_PIECE = select.PIPE_BUF
_LAST_WORD = 60.0
"""Seconds that the last word of a loop waits for a full pipe."""


class View:
    """A view that shows nothing. With `stays`, a terminal shows a status that stays;
    with `verbose`, all that an agent prints."""

    stays = False
    verbose = False

    def line(self, words: str, indent: str = "", color: str = "") -> None:
        """One line."""

    def warn(self, words: str) -> None:
        """One line that a person should heed."""
        self.line(f"! {words}", color="yellow")

    def lines(self, notices: list[str]) -> None:
        """Notices, a line each."""
        for notice in notices:
            self.line(f"! {notice}", "  ", "yellow")

    def check(self, result: CheckResult, label: str = "") -> None:
        """The result of a check."""
        why = ""
        if not (result.ok or result.said or label):
            why = f": {text.last_line(result.tail)}"
        color = "green" if result.ok else "red"
        name = result.name if result.name == "setup" else f"check {result.name}"
        line = f"{label}{name}: {result.outcome}{why}"
        self.line(line, "  ", "" if label else color)

    def verdict(self, record: AttemptEnded, spent: str) -> None:
        """The verdict on an attempt, and what its agent took."""
        said = str(record.verdict)
        if record.beside:
            said += f" (beside red: {text.few(record.beside)})"
        if record.weak:
            said += " (weak: nothing turned green)"
        if record.reason:
            said += f": {record.reason}"
        passed = record.verdict is Verdict.PASSED
        self.line(f"{said} | {spent}", "  ", "green" if passed else "red")
        if record.blocked:
            self.line(f"blocked: {record.blocked}", "  ", "red")

    def doing(self, words: str) -> None:
        """What goes on from now on; nothing to clear it."""

    def task(self, name: str) -> None:
        """The task that is worked on from now on; nothing for none."""

    def last(self, words: str, failed: bool) -> None:
        """The last line of a run."""

    def watch(self, agent: Stream) -> None:
        """Follow an agent that starts."""

    def hear(self, event: Json, number: int) -> None:
        """Show an event of the `Reporter` of a loop."""

    def ended(self, number: int) -> None:
        """A loop has ended."""


class Reporter(View):
    """The view of a loop: writes all that happens to the supervisor, as JSON lines. A
    write never blocks; what does not fit is dropped, for the log is the truth. Only the
    last word is waited for."""

    def __init__(self, pipe: int, stays: bool, verbose: bool) -> None:
        os.set_blocking(pipe, False)
        self._pipe = pipe
        self.stays = stays
        self.verbose = verbose
        self._half = b""  # of a line that is partly written
        self._agent: Stream | None = None
        self._doing = ""
        self._began = time.monotonic()
        self._said = self._began  # when the last sign of life was given
        self._second = 0
        self._lines = 0
        self._retry = "", float("-inf")

    def line(self, words: str, indent: str = "", color: str = "") -> None:
        self.tell("line", words, indent, color)

    def task(self, name: str) -> None:
        self.tell("task", name)

    def doing(self, words: str) -> None:
        self._agent = None
        self._doing = words
        self._began = time.monotonic()
        self.tell("doing", words)

    def watch(self, agent: Stream) -> None:
        """Follow an agent that starts: its words, and what it has used so far."""
        self._agent = agent
        has_events = agent.reads_lines
        if self.verbose:
            agent.raw = self._printed
            if has_events:
                agent.listen = self._heard
        elif self.stays:
            agent.listen = self._heard
        agent.retry = self._retried

    def _retried(self, words: str) -> None:
        """The agent retries its provider, which some do many times a minute."""
        now = time.monotonic()
        if words != self._retry[0] and now - self._retry[1] > _RETRY_LINES:
            self._retry = words, now
            self.line(words, "  ", "yellow")

    def tick(self) -> float:
        """Where no status stays, tell now and then what goes on; in how many seconds to
        call this again."""
        now = time.monotonic()
        agent = self._agent
        if self.stays:
            return _SIGN_OF_LIFE
        if now - self._said >= _SIGN_OF_LIFE:
            self._said = now
            parts = [self._doing, text.duration(now - self._began)]
            if agent is not None:
                heard = f"{text.duration(now - agent.heard)} ago"
                said = text.one_line(text.redact(agent.doing), 120)
                parts += [dollars(agent.turn.usd), thousands(agent.turn.used)]
                parts.append(f"{heard}: {said}" if said else f"last heard {heard}")
            self.line(" | ".join(part for part in parts if part), "  ")
        return max(self._said + _SIGN_OF_LIFE - now, 1.0)

    def _printed(self, line: str) -> None:
        """Send a line that the agent printed, but for events: their words come by
        themselves."""
        if not line.startswith("{"):
            self.tell("heard", "raw", [line[:100_000]])

    def _heard(self, kind: str, words: str) -> None:
        """Send a few lines of each message, and no more a second than a person can
        read; with `verbose` all of them."""
        if self.verbose:
            self.tell("heard", kind, words.strip().splitlines())
            return
        if int(time.monotonic()) != self._second:
            self._second = int(time.monotonic())
            self._lines = 0
        lines = words.strip().splitlines()[:3]
        self._lines += len(lines)
        if self._lines <= _LINES_A_SECOND:
            self.tell("heard", kind, [line[:1000] for line in lines])

    def tell(self, name: str, *args: object) -> None:
        """Write one event, if the pipe has room for it."""
        with contextlib.suppress(OSError):
            self._flush()
            if not self._half:
                data = json.dumps({"name": name, "args": args}).encode() + b"\n"
                self._half = data
                self._flush()
                if self._half == data:
                    self._half = b""  # nothing of it was written: it is dropped

    def _flush(self) -> None:
        """Write what is left of a line, as far as the pipe has room."""
        with contextlib.suppress(BlockingIOError):
            while self._half:
                self._half = self._half[os.write(self._pipe, self._half[:_PIECE]) :]

    def last_word(self, stop: Stop) -> None:
        """Write why the loop ended, and wait until that is read."""
        event = {"name": "stop", "args": [stop.word, stop.reason, int(stop.exit)]}
        self._half += json.dumps(event).encode() + b"\n"
        end = time.monotonic() + _LAST_WORD
        with contextlib.suppress(OSError):
            while self._half and time.monotonic() < end:
                self._flush()
                if self._half:
                    select.select([], [self._pipe], [], 1.0)
