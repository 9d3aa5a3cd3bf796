"""A run as it goes: a line for each event, and on a terminal a status that stays below
them."""

from __future__ import annotations

import contextlib
import os
import select
import stat
import sys
import time
from dataclasses import dataclass, field
from typing import TextIO

from click import style

from _ralph import text
from _ralph.loop.jobs import Attempt
from _ralph.loop.view import View
from _ralph.model import CheckResult, Json, Tokens, Verdict
from _ralph.state.summary import dollars, ended_words, spent, thousands

_PATIENCE = 2.0
_PIECE = (
    select.PIPE_BUF
)  # what a pipe with room takes whole, so that a write to one never waits
_CLEAR = "\r\x1b[K"


@dataclass
class Row:
    """One worker in the status: its task, what it does and since when, what its agent
    has used."""

    task: str = ""
    title: str = ""
    doing: str = ""
    since: float = field(default_factory=time.monotonic)
    used: tuple[float, Tokens, float | None] | None = None

    def words(self, columns: int) -> str:
        """The row, what matters most first: a narrow terminal shows only the beginning.
        The title gets what the rest leaves of `columns`."""
        now = time.monotonic()
        parts = [self.doing, text.duration(now - self.since, short=True)]
        if self.used is not None:
            heard, tokens, usd = self.used
            parts += [
                f"idle {text.duration(now - heard, short=True)}",
                dollars(usd),
                thousands(tokens),
            ]
        state = " | ".join(part for part in parts if part)
        room = columns - text.cells(f"{self.task}  | {state}")
        name = (
            f"{self.task} {text.cut(self.title, room)}"
            if self.title and room > 9
            else self.task
        )
        return f"{name} | {state}" if name else state


class Terminal(View):
    """Prints a run, one line an event; on a terminal also what agents say, and below it
    the status: a row for each worker, and one for the whole run, which `sums` makes.

    `level` is -1 for nothing but errors, 0, or 1 for all that an agent prints; `named`
    puts its task before each line of a worker. A closed pipe, a full disk under the log
    or a reader that stops reading never stop the loop.
    """

    def __init__(self, stream: TextIO | None = None, level: int = 0) -> None:
        self._stream = stream or sys.stdout
        self._level = level
        self._patience = _PATIENCE
        self._rows: dict[int, Row] = {}
        self._speaker = ""
        self._drawn: list[int] = []
        self.verbose = level > 0
        try:
            terminal, self._fd = self._stream.isatty(), unblocked(self._stream)
        except (OSError, ValueError):
            terminal, self._fd = False, -1
        self.stays = (
            terminal and level >= 0 and os.environ.get("TERM", "dumb") != "dumb"
        )
        self._colored = self.stays and not os.environ.get("NO_COLOR")

    def line(self, words: str, indent: str = "", color: str = "") -> None:
        """One line, stamped with the time; `words` is cleaned of anything but text."""
        if self._level >= 0:
            stamp = time.strftime("%H:%M:%S" if self.stays else "%Y-%m-%d %H:%M:%S")
            line = text.one_line(words, 400)
            line = style(line, fg=color) if color and self._colored else line
            self._write(f"{stamp} {' ' * min(len(indent), 4)}{self._speaker}{line}")

    def last(self, words: str, failed: bool) -> None:
        """The line that a run ends with; after a failure also where nothing else is
        printed."""
        self.clear()
        if failed and self._level < 0:
            self._level, self._stream = 0, sys.stderr
            self._fd = unblocked(self._stream)
        self.line(words, color="yellow" if failed else "green")

    def doing(self, words: str, worker: int = 0) -> None:
        """What a worker (0: the loop) does from now on; an empty text removes its
        row."""
        row = self._rows.pop(worker, Row())
        if words:
            self._rows[worker] = Row(row.task, row.title, words)
        self.tick()

    def clear(self) -> None:
        """Remove the status."""
        self._rows.clear()
        self.tick()

    def hear(self, event: Json, worker: int = 0) -> None:
        """Take in one event of the `Reporter` of a worker."""
        row = self._rows.setdefault(worker, Row())
        self._speaker = f"{row.task}: " if self.named and row.task else ""
        match event["name"], event["args"]:
            case "doing", [words]:
                self.doing(text.one_line(words, 100), worker)
            case "used", [idle, tokens, usd]:
                counted = Tokens(**{name: int(count) for name, count in tokens.items()})
                row.used = (
                    time.monotonic() - float(idle),
                    counted,
                    None if usd is None else float(usd),
                )
            case "line", [words, indent, color]:
                self.line(words, indent, color)
            case "check", [result, label]:
                self.check(CheckResult(**result), label)
            case "heard", [kind, lines]:
                self.heard(kind, lines)
        self._speaker = ""

    def tick(self) -> float:
        """Draw the status again, once a second while something runs; in how many
        seconds to do it again."""
        if self.stays:
            self._put(self._above() + self._below())
        return 1.0

    def _above(self) -> str:
        """What moves the cursor to the start of the status, and clears it. A terminal
        that became narrower has wrapped the rows that no longer fit."""
        rows = sum(max(-(-width // self._size().columns), 1) for width in self._drawn)
        self._drawn = []
        return f"\r\x1b[{rows - 1}A\x1b[J" if rows > 1 else _CLEAR

    def _below(self) -> str:
        """The status, for a cursor at the start of an empty line."""
        columns = self._size().columns - 1
        rows = [
            row.words(columns) for _, row in sorted(self._rows.items()) if row.doing
        ]
        if not rows:
            return ""
        usd = sum(row.used[2] or 0.0 for row in self._rows.values() if row.used)
        rows = [
            self._fit(row)
            for row in (*rows[: self._size().lines - 2], self.sums(usd))
            if row
        ]
        self._drawn = [text.cells(row) for row in rows]
        return "\n".join(rows)

    def check(self, result: CheckResult, label: str = "") -> None:
        why = (
            ""
            if result.ok or result.said or label
            else f": {text.last_line(result.tail)}"
        )
        color = "" if label else "green" if result.ok else "red"
        name = result.name if result.name == "setup" else f"check {result.name}"
        self.line(f"{label}{name}: {result.outcome}{why}", "  ", color)

    def started(self, attempt: Attempt, of: int) -> None:
        name = text.one_line(attempt.task.id, 30)
        self._rows[attempt.worker] = Row(name, text.one_line(attempt.task.title, 200))
        if attempt.leftover:
            doing = "checking what the interrupted attempt left before starting the agent again"
            self.line(f"{attempt.task.id}: {doing}")
            return
        title = text.cut(attempt.task.title, 80)
        number = (
            f"attempt {attempt.number} of {of}{', from a clean start' * attempt.clean}"
        )
        task = f"{attempt.task.id} {title}"
        self.line(
            f"iteration {attempt.iteration} | {task} | {number} | {attempt.command}",
            color="cyan",
        )

    def ended(self, attempt: Attempt) -> None:
        row = self._rows.pop(attempt.worker, Row(text.one_line(attempt.task.id, 30)))
        self._speaker = f"{row.task}: " if self.named else ""
        self._say_end(attempt)
        self._speaker = ""
        self.tick()

    def _say_end(self, attempt: Attempt) -> None:
        result = attempt.result
        self.lines(
            [*(f"restored: {line}" for line in attempt.restored), *attempt.notices]
        )
        self.lines([f"denied: {line}" for line in result.denials])
        self.lines([f"changed tests: {text.few(attempt.tests)}"] * bool(attempt.tests))
        if attempt.leftover and attempt.verdict is Verdict.INTERRUPTED:
            self.line("not done yet; the agent goes on with it", "  ")
            return
        reason = attempt.reason or ended_words(result)
        verdict = f"{attempt.verdict}{' (weak)' * attempt.weak}{f': {reason}' if reason else ''}"
        passed = attempt.verdict is Verdict.PASSED
        self.line(f"{verdict} | {spent(result)}", "  ", "green" if passed else "red")
        if attempt.blocked:
            self.line(f"blocked: {attempt.blocked}", "  ", "red")

    def heard(self, kind: str, lines: list[str]) -> None:
        """What an agent says or does; `raw` as it came."""
        for line in lines:
            if kind == "raw":
                self._write(self._speaker + text.clean(line).replace("\n", " "))
            else:
                mark = "  $ " if kind == "tool" else "  | "
                self._write(self._cut(mark + self._speaker + text.one_line(line, 1000)))

    def _size(self) -> os.terminal_size:
        try:
            size = os.get_terminal_size(self._stream.fileno())
        except (OSError, ValueError):
            size = os.terminal_size((111, 24))
        return os.terminal_size((size.columns or 80, size.lines or 24))

    def _cut(self, line: str) -> str:
        """`line` in one row of the terminal, wide characters counted as two."""
        return text.cut(line, self._size().columns - 1)

    def _fit(self, row: str) -> str:
        """`row` without the parts at its end that do not fit."""
        while text.cells(row) >= self._size().columns and " | " in row:
            row = row.rpartition(" | ")[0]
        return self._cut(row)

    def _write(self, line: str) -> None:
        if self.stays:
            self._put(f"{self._above()}{line}\n{self._below()}")
        else:
            self._put(f"{line}\n")

    def _put(self, words: str) -> None:
        try:
            whole = send(self._fd, words.encode("utf-8", "replace"), self._patience)
            self._patience = (
                _PATIENCE if whole else 0.0
            )  # nobody reads: lines are lost, the loop goes on
        except (OSError, ValueError):
            self._level, self.stays = -1, False


def complain(words: str) -> None:
    """One message on stderr, cleaned, because it may quote any file."""
    with contextlib.suppress(
        OSError, ValueError
    ):  # a full disk under the log changes nothing
        send(
            unblocked(sys.stderr),
            f"ralph: {text.clean(words)}\n".encode("utf-8", "replace"),
            _PATIENCE,
        )


def unblocked(stream: TextIO) -> int:
    """A descriptor of our own for a stream, which does not block where that is a
    terminal or a pipe: the shell's own stays as it is. On macOS, /dev/fd gives a copy
    of that: a terminal is opened by its name."""
    fd = stream.fileno()
    kind = os.fstat(fd).st_mode
    for name in (
        (os.ttyname, "/dev/fd/{}".format)
        if stat.S_ISCHR(kind) or stat.S_ISFIFO(kind)
        else ()
    ):
        with contextlib.suppress(OSError):
            return os.open(
                name(fd), os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            )
    return fd


def send(fd: int, data: bytes, patience: float) -> bool:
    """Write `data`, waiting at most `patience` seconds for the reader; whether all was
    written."""
    end, view = time.monotonic() + patience, memoryview(data)
    while view and select.select([], [fd], [], max(end - time.monotonic(), 0.0))[1]:
        try:
            view = view[os.write(fd, view[:_PIECE]) :]
        except BlockingIOError:  # a terminal that says it has room, and has none
            if time.monotonic() >= end:
                break
            time.sleep(0.01)
    return not view
