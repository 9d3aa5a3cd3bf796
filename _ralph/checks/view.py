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
            said += f" (weak: {'; '.join(record.not_run) or 'nothing turned green'})"
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
        self._unsent = b""  # of the newest line
        self._agent: Stream | None = None
        self._doing = ""
        self._began = time.monotonic()
        self._said = self._began  # when the last sign of life was given

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
        if not self.verbose and self.stays:
            agent.listen = self._heard
        if self.verbose and agent.cli.read is not None:
            agent.listen = self._heard
        if self.verbose:
            agent.raw = self._printed

    def tick(self) -> None:
        """Where no status stays, tell now and then what goes on."""
        now = time.monotonic()
        if now - self._said >= _SIGN_OF_LIFE:
            self._said = now
            parts = [self._doing, text.duration(now - self._began)]
            agent = self._agent
            if agent is not None:
                heard = text.duration(now - agent.heard)
                said = text.one_line(text.redact(agent.doing), 120)
                parts += [dollars(agent.turn.usd), thousands(agent.turn.used)]
                parts.append(f"{heard} ago: {said or 'nothing yet'}")
            if not self.stays:
                self.line(" | ".join(part for part in parts if part), "  ")

    def _printed(self, line: str) -> None:
        """Send a line that the agent printed, but for events: their words come by
        themselves."""
        if not line.startswith("{"):
            self.tell("heard", "raw", [line[:100_000]])

    def _heard(self, kind: str, words: str) -> None:
        """Send the first lines of each message; with `verbose` all of them."""
        lines = words.strip().splitlines()
        if not self.verbose:
            lines = [line[:1000] for line in lines[:3]]
        self.tell("heard", kind, lines)

    def tell(self, name: str, *args: object) -> None:
        """Write one event. It is dropped where the last one is not written yet."""
        with contextlib.suppress(OSError):
            self._flush()
            self._unsent = json.dumps({"name": name, "args": args}).encode() + b"\n"
            self._flush()

    def _flush(self) -> None:
        """Write what is left of a line. BlockingIOError if the pipe has no room."""
        while self._unsent:
            self._unsent = self._unsent[os.write(self._pipe, self._unsent) :]

    def last_word(self, stop: Stop) -> None:
        """Write why the loop ended, and wait until that is read."""
        event = {"name": "stop", "args": [stop.word, stop.reason, int(stop.exit)]}
        self._unsent += json.dumps(event).encode() + b"\n"
        end = time.monotonic() + _LAST_WORD
        with contextlib.suppress(OSError):
            while self._unsent and time.monotonic() < end:
                select.select([], [self._pipe], [], 1.0)
                with contextlib.suppress(BlockingIOError):
                    self._flush()
