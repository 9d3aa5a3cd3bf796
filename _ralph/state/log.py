"""progress.txt as a file: records appended durably and never rewritten."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.model import Json
from _ralph.state.records import KINDS, VERSION, Record, from_json, to_json

_RECORD = re.compile(rb"^<!-- ralph (\{.*\}) -->\r?$", re.MULTILINE)
_HEADER = re.compile(rb"^## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [^\n]*\|", re.MULTILINE)
_CUT_OFF = b"\n    | (the record above was cut off)\n"


class Journal:
    """progress.txt. People may edit it; agents only see a copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed = False
        """Whether an `append` could not be finished: only the next `open` knows what stands where."""

    def open(self) -> list[str]:
        """Terminate a record that was cut off; a line about it. BadInput if it is no file."""
        self.require_file()
        found = files.read_regular(self._target)
        if not found or not _is_torn(found) or found.endswith(_CUT_OFF):
            return []
        files.append(self._target, _CUT_OFF)
        return ["a record in progress.txt was cut off; its text was kept"]

    def require_file(self) -> None:
        """BadInput if there is something that is no file."""
        if os.path.lexists(self._target) and files.read_regular(self._target, 0) is None:
            raise BadInput(f"{self.path} is not a regular file; move it away")

    def records(self, plan: str) -> list[Record]:
        """The records of the plan with this key, oldest first. Other text is ignored; BadInput for a damaged
        record."""
        found = parse(files.read_regular(self._target) or b"")
        return [from_json(entry) for entry in found if entry.get("plan") == plan]

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


def parse(data: bytes) -> list[Json]:
    """The machine lines in `data` with a known event, oldest first, as JSON objects."""
    return [record for match in _RECORD.finditer(data) if (record := _record(match))]


def _record(match: re.Match[bytes]) -> Json | None:
    try:
        record = json.loads(match[1])
    except (ValueError, RecursionError):
        return None
    return record if record.get("v") in (1, VERSION) and str(record.get("event")) in KINDS else None


def _is_torn(data: bytes) -> bool:
    """Whether the last record has no machine line."""
    end = max((match.end() for match in _RECORD.finditer(data)), default=0)
    return _HEADER.search(data, end) is not None
