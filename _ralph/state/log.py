"""progress.txt as a file: records appended durably and never rewritten."""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.model import Json
from _ralph.state.records import KINDS, VERSION, Record, from_json, to_json

_RECORD = re.compile(rb"<!-- ralph (\{.*\}) -->\r?\n?")
_HEADER = re.compile(rb"## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\|")
_CUT_OFF = b"    | (the record above was cut off)\n"


class Journal:
    """progress.txt. People may edit it; agents only see a copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed = False
        """Whether an `append` could not be finished: only the next `open` knows what stands where."""

    def open(self) -> list[str]:
        """Terminate a record that was cut off; a line about it. BadInput if it is no file."""
        self.require_file()
        torn = False
        for line in self._lines():
            if _HEADER.match(line):
                torn = True
            elif line == _CUT_OFF or _RECORD.fullmatch(line):
                torn = False
        if torn:
            files.append(self._target, b"\n" + _CUT_OFF)
        return ["a record in progress.txt was cut off; its text was kept"] * torn

    def require_file(self) -> None:
        """BadInput if there is something that is no file."""
        if os.path.lexists(self._target) and files.read_regular(self._target, 0) is None:
            raise BadInput(f"{self.path} is not a regular file; move it away")

    def records(self, plan: str) -> Iterator[Record]:
        """The records of the plan with this key, oldest first, as they are read: the file can be larger than
        the memory. Other text is ignored; BadInput for a damaged record."""
        return (from_json(entry) for entry in parse(self._lines()) if entry.get("plan") == plan)

    def _lines(self) -> Iterator[bytes]:
        """The lines of the file, with their ends."""
        if file := files.open_regular(self._target):
            with file:
                yield from file

    def append(self, record: Record, headline: str, lines: Sequence[str] = ()) -> Record:
        """Append a record with the current time, in one write, and fsync it; the record as it will be read.
        OSError if it could not be made durable; BadInput, before anything is written, if it could not be
        read again."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S %z")
        head = f"## {stamp[:-2]}:{stamp[-2:]} | {text.one_line(headline, 300)}"
        machine = json.dumps(to_json(replace(record, time=round(time.time(), 3))), ensure_ascii=True)
        read = from_json(json.loads(machine))
        lines = [line.replace("\n", " ").replace("\r", " ") for line in lines]
        shown = machine.replace("<", "\\u003c").replace(">", "\\u003e")
        block = "\n".join(["", head, *lines, f"<!-- ralph {shown} -->", ""]).encode("utf-8", "replace")
        self.failed = True
        files.append(self._target, block)
        self.failed = False
        return read

    @property
    def _target(self) -> Path:
        """The file itself: `path` may be a person's link to it."""
        return Path(os.path.realpath(self.path))


def parse(lines: Iterable[bytes]) -> Iterator[Json]:
    """The machine lines with a known event, oldest first, as JSON objects."""
    for line in lines:
        if match := _RECORD.fullmatch(line):
            with contextlib.suppress(ValueError, RecursionError):
                record = json.loads(match[1].decode())
                if record.get("v") in (1, VERSION) and str(record.get("event")) in KINDS:
                    yield record
