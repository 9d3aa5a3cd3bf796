"""A run as it goes: a line for each event and, on a terminal, a status line below
them."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Callable
from typing import TextIO

from click import style

from _ralph import text
from _ralph.checks.view import View
from _ralph.model import Json

_PATIENCE = 2.0
"""Seconds for a reader that is slow."""
_SIGNS = {"say": "  | ", "tool": "  $ ", "raw": ""}
_CLEAR = "\r\x1b[K"
_CUT = "\x1b[?7l{} \x1b[?7h"
"""A line that the terminal itself cuts at its width, however wide the letters are. What
is cut off ends up in the last column, so it ends with a blank."""


class Terminal(View):
    """Prints a run, a line for each event; on a terminal also what agents say, and
    below it one status line for the whole run.

    `level` is -1 for nothing but errors, 0, or 1 for all that an agent prints. A closed
    pipe, a full disk or a reader that stops reading never stops the run.
    """

    def __init__(self, stream: TextIO | None = None, level: int = 0) -> None:
        self._stream = stream or sys.stdout
        self._level = level
        self._patience = _PATIENCE
        self._tasks: dict[int, str] = {}  # by the numbers of loops
        self._doing: dict[int, tuple[str, float]] = {}  # and since when
        self.named = False  # with several loops each line names its task
        self.sums: Callable[[], str] = lambda: ""  # what to say of the whole run
        self.verbose = level > 0
        dumb = os.environ.get("TERM", "dumb") == "dumb"
        self.stays = level >= 0 and not dumb and self._stream.isatty()
        self._colored = self.stays and not os.environ.get("NO_COLOR")

    def line(self, words: str, indent: str = "", color: str = "") -> None:
        """Print one line with the time; `words` is cleaned of anything but text."""
        if self._level < 0:
            return
        stamp = time.strftime("%H:%M:%S" if self.stays else "%Y-%m-%d %H:%M:%S")
        line = text.one_line(words, 400)
        if color and self._colored:
            line = style(line, fg=color)
        self._put(f"{stamp} {indent}{line}\n")

    def last(self, words: str, failed: bool) -> None:
        """Print the line that a run ends with; a failure in any case."""
        self.clear()
        self._patience = _PATIENCE
        self.line(words, color="yellow" if failed else "green")
        if failed and self._level < 0:
            complain(words)

    def ended(self, number: int) -> None:
        """Forget a loop that has ended."""
        self._doing.pop(number, None)
        self.tick()

    def hear(self, event: Json, number: int) -> None:
        """Show one event of the `Reporter` of a loop."""
        name, args = event["name"], event["args"]
        task = self._tasks.get(number)
        speaker = f"{task}: " if self.named and task else ""
        if name == "line":
            words, indent, color = args
            self.line(speaker + words, indent, color)
        elif name == "task":
            self._tasks[number] = text.one_line(args[0], 30)
        elif name == "doing":
            self._doing[number] = text.one_line(args[0], 60), time.monotonic()
            self.tick()
        elif name == "heard":
            kind, lines = args
            for line in lines:
                line = _SIGNS[kind] + speaker + text.one_line(line, 100_000)
                if self.stays and not self.verbose:
                    line = _CUT.format(line)
                self._put(f"{line}\n")

    def clear(self) -> None:
        """Remove the status line."""
        self._doing.clear()
        self.tick()

    def tick(self) -> None:
        """Draw the status line again."""
        if self.stays:
            self._put("")

    def _status(self) -> str:
        """`4 of 9 passed | $0.42 of $5.00 | 1 h 2 min | US-003 agent 2 min 5 s`, or
        nothing where nothing runs."""
        busy = []
        for number, (words, since) in sorted(self._doing.items()):
            if words:
                lasted = text.duration(time.monotonic() - since, short=True)
                busy.append(f"{self._tasks.get(number, '')} {words} {lasted}".strip())
        if not busy:
            return ""
        return _CUT.format(f"{self.sums()} | {', '.join(busy)}".strip(" |"))

    def _put(self, words: str) -> None:
        """Write whole lines, above the status line."""
        if self.stays:
            words = f"{_CLEAR}{words}{self._status()}"
        try:
            whole = send(self._stream, words, self._patience)
        except (OSError, ValueError):  # it is closed, or the disk is full
            self._level = -1
            self.stays = False
        else:
            # where nobody reads, the next lines wait for nobody
            self._patience = _PATIENCE if whole else 0.0


def complain(words: str) -> None:
    """Print one message on stderr, cleaned, because it may quote any file."""
    with contextlib.suppress(OSError, ValueError):  # nobody can be told
        send(sys.stderr, f"ralph: {text.clean(words)}\n", _PATIENCE)


def send(stream: TextIO, words: str, patience: float) -> bool:
    """Write `words` at once; whether all was written. If a terminal or a pipe has no
    room for `patience` seconds, the rest is dropped. OSError if nothing can be written.

    Whoever started us shares the descriptor, so it blocks again after each write.
    """
    fd = stream.fileno()
    data = words.encode("utf-8", "replace")
    end = time.monotonic() + patience
    blocking = os.get_blocking(fd)
    os.set_blocking(fd, False)
    try:
        while data:
            try:
                data = data[os.write(fd, data) :]
            except BlockingIOError:
                if time.monotonic() >= end:
                    return False
                time.sleep(0.01)
    finally:
        os.set_blocking(fd, blocking)
    return True
