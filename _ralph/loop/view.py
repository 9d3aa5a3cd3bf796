"""What a run shows while it goes on: the interface that `show` draws, and its end in a
worker."""

from __future__ import annotations

import time
from collections.abc import Callable

from _ralph import text
from _ralph.agents.events import StreamParser
from _ralph.loop.jobs import Attempt
from _ralph.model import CheckResult, Json
from _ralph.state.summary import dollars, thousands

_SIGN_OF_LIFE = 300.0
"""Seconds between the lines that say what goes on, where no status stays."""
_LINES_A_SECOND = 40
_RETRY_LINES = 5.0  # seconds between them


class View:
    """A view that shows nothing. With `stays`, a terminal shows a status that stays;
    with `verbose`, all that an agent prints; `named` puts the task before each line of
    a worker. `sums` makes what the status says of the whole run."""

    stays = False
    verbose = False
    named = False
    sums: Callable[[], str] = staticmethod(lambda: "")

    def line(self, words: str, indent: str = "", color: str = "") -> None:
        """One line."""

    def lines(self, notices: list[str]) -> None:
        """Notices, a line each."""
        for notice in notices:
            self.line(f"! {notice}", "  ", "yellow")

    def check(self, result: CheckResult, label: str = "") -> None:
        """The result of a check, as a line; with a `label`, one from before the
        work."""
        name = result.name if result.name == "setup" else f"check {result.name}"
        words, color = f"{label}{name}: {result.outcome}", ""
        if not label:
            color = "green" if result.ok else "red"
            if not result.ok and not result.said:
                words += f": {text.last_line(result.tail)}"
        self.line(words, "  ", color)

    def doing(self, words: str, worker: int = 0) -> None:
        """What a worker, or the loop itself (0), does from now on; nothing to clear
        it."""

    def started(self, attempt: Attempt, of: int) -> None:
        """An attempt begins, one `of` those that its task has."""

    def ended(self, attempt: Attempt) -> None:
        """An attempt has its verdict."""

    def last(self, words: str, failed: bool) -> None:
        """The last line of a run."""

    def watch(self, agent: StreamParser) -> None:
        """Follow an agent that starts, in a worker."""

    def hear(self, event: Json, worker: int = 0) -> None:
        """Show an event of a worker's `Reporter`."""


class Reporter(View):
    """The view of a worker: sends all that happens as events to the view of the
    loop."""

    def __init__(
        self, report: Callable[[Json], object], stays: bool, verbose: bool
    ) -> None:
        self._report, self.stays, self.verbose = report, stays, verbose
        self._agent: StreamParser | None = None
        self._doing, self._began = "", time.monotonic()
        self._said = self._began  # when the last sign of life was given
        self._second, self._lines = 0, 0
        self._retry = "", float("-inf")

    def line(self, words: str, indent: str = "", color: str = "") -> None:
        self._tell("line", words, indent, color)

    def doing(self, words: str, _worker: int = 0) -> None:
        self._agent, self._doing, self._began = None, words, time.monotonic()
        self._tell("doing", words)

    def watch(self, agent: StreamParser) -> None:
        """Follow an agent that starts: its words, and what it has used so far."""
        self._agent = agent
        if self.verbose:
            agent.raw = lambda line: self._tell("heard", "raw", [line[:100_000]])
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
        """Where no status stays, print now and then what goes on; in how many seconds
        to call this again."""
        now, agent = time.monotonic(), self._agent
        if self.stays:
            return _SIGN_OF_LIFE
        if now - self._said >= _SIGN_OF_LIFE:
            self._said, parts = now, [self._doing, text.duration(now - self._began)]
            if agent is not None:
                heard = f"{text.duration(now - agent.heard)} ago"
                said = text.one_line(text.redact(agent.doing), 120)
                parts += [dollars(agent.usd), thousands(agent.tokens())]
                parts += [f"{heard}: {said}" if said else f"last heard {heard}"]
            self.line(" | ".join(part for part in parts if part), "  ")
        return max(self._said + _SIGN_OF_LIFE - now, 1.0)

    def _heard(self, kind: str, words: str) -> None:
        """Send a few lines of each message, and no more a second than a person can
        read."""
        if int(time.monotonic()) != self._second:
            self._second, self._lines = int(time.monotonic()), 0
        lines = words.strip().splitlines()[:3]
        self._lines += len(lines)
        if self._lines <= _LINES_A_SECOND:
            self._tell("heard", kind, [line[:1000] for line in lines])

    def _tell(self, name: str, *args: object) -> None:
        self._report({"event": "view", "name": name, "args": args})
