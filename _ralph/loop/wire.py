"""The wire between a loop and a worker elsewhere: JSON lines, with files between them. docs/worker.md has the
protocol."""

from __future__ import annotations

import contextlib
import json
import os
import select
import time
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import text
from _ralph.errors import RalphError
from _ralph.model import Json
from _ralph.process.process import Control

PROTOCOL = 2
BEAT = 10.0
"""Seconds between a worker's signs of life."""
LONGEST_LINE = 32 << 20
LARGEST_FILE = 1 << 30
"""The most bytes of a message, and of a file, that either end accepts."""
_SENDING = 3600.0
"""Seconds that it may take to send a message with its file."""
_CHUNK = 1 << 16
_BANNER = 1 << 16  # of a shell, of ssh: what stands before the first message


class Broken(RalphError):
    """The other end is gone, or sent something that is not a message."""


@dataclass
class Wire:
    """One end: `read` and `write` are descriptors that do not block, `err` is that of the other end's stderr,
    if it has one here. Every wait ends with `control`."""

    read: int
    write: int
    control: Control
    err: int | None = None
    rest: bytearray = field(default_factory=bytearray)
    said: bytes = b""

    def send(self, message: Json, file: Path | None = None) -> None:
        """Send a message, followed by the content of a file. Broken if the other end is gone."""
        size, end = file.stat().st_size if file else 0, time.monotonic() + _SENDING
        self._put(json.dumps({**message, "file": size}).encode() + b"\n", end)
        if file:
            with file.open("rb") as source:
                while chunk := source.read(_CHUNK):
                    self._put(chunk, end)

    def message(self, seconds: float, begins: str = "") -> Json:
        """The next message, within `seconds`. With `begins`, lines before the first object with that key are
        skipped, as a banner. Broken if none comes."""
        end, skipped = time.monotonic() + seconds, 0
        while True:
            line = self._line(end)
            with contextlib.suppress(ValueError, RecursionError):
                found = json.loads(line)
                if isinstance(found, dict) and begins in (*found, ""):
                    return found
            skipped += len(line)
            if not begins or skipped > _BANNER:
                raise Broken(f"it sent something that is not a message: {line[:60]!r}")

    def _line(self, end: float) -> bytes:
        looked = 0
        while (at := self.rest.find(b"\n", looked)) < 0:
            looked = len(self.rest)
            if looked > LONGEST_LINE:
                raise Broken("it sent a line without an end")
            self._more(end)
        line = bytes(self.rest[:at])
        del self.rest[: at + 1]
        return line

    def file(self, message: Json, target: Path, seconds: float) -> Path:
        """Save the file that follows a message. Broken if it is too large, or does not come."""
        size, end = message.get("file"), time.monotonic() + seconds
        if not isinstance(size, int) or not 0 <= size <= LARGEST_FILE:
            raise Broken(f"it wants to send a file of {size!r} bytes")
        with target.open("wb") as out:
            while size:
                if not self.rest:
                    self._more(end)
                chunk = self.rest[:size]
                del self.rest[: len(chunk)]
                out.write(chunk)
                size -= len(chunk)
        return target

    def stderr_tail(self) -> str:
        """The last line of the other end's stderr."""
        for _ in range(64):  # some never stop
            if self.err is None or not select.select([self.err], [], [], 0.2)[0]:
                break
            self._read_stderr(self.err)
        return text.last_line(self.said.decode("utf-8", "replace")) if self.said.strip() else ""

    def _read_stderr(self, fd: int) -> None:
        data = os.read(fd, _CHUNK)
        self.said = (self.said + data)[-4096:]
        self.err = fd if data else None

    def _more(self, end: float) -> None:
        self._wait(end)
        both = [fd for fd in (self.err, self.read) if fd is not None]
        for fd in self.control.wait(max(end - time.monotonic(), 0.01), both):
            if fd == self.err:
                self._read_stderr(fd)
            elif data := os.read(fd, _CHUNK):
                self.rest += data
            else:
                raise Broken("it ended")

    def _put(self, data: bytes, end: float) -> None:
        view = memoryview(data)
        while view:
            self._wait(end)
            if select.select([], [self.write], [], 0.2)[1]:
                try:
                    view = view[os.write(self.write, view[:4096]) :]
                except BlockingIOError:
                    continue
                except OSError as error:
                    raise Broken(f"it takes no more: {error.strerror}") from None

    def _wait(self, end: float) -> None:
        if self.control.stop_now:
            raise Broken("ralph was stopped")
        if time.monotonic() > end:
            raise Broken("it did not answer in time")
