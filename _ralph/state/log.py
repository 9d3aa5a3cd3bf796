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
from _ralph.model import Json, Plan
from _ralph.state.records import KINDS, VERSION, Record, from_json, to_json

_RECORD = re.compile(rb"<!-- ralph (\{.*\}) -->\r?\n?")
_PLAN = re.compile(rb'^<!-- ralph .*?"plan": ("(?:[^"\\]|\\.)*")')
_HEADER = re.compile(rb"## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\|")
_CUT_OFF = b"    | (the record above was cut off)\n"


class Journal:
    """progress.txt. People may edit it; agents only see a copy."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.failed = False
        """Whether an `append` could not be finished: only the next `open` knows what stands where."""
        self._read = 0

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

    def records(self, plan: Plan) -> Iterator[Record]:
        """The records of a plan, oldest first, as they are read: the file can be larger than the memory.
        Other text is ignored; BadInput for a damaged record."""
        keys = self._keys_of(plan)
        for entry in parse(self._lines()):
            if entry.get("plan") in keys:
                yield from_json(entry)

    def news(self, plan: Plan, run: str) -> Iterator[Record]:
        """The records that others than this run appended since the file was last read."""
        for entry in parse(self._lines(self._read)):
            if entry.get("plan") == plan.key and entry.get("run") != run:
                yield from_json(entry)

    def others(self, plan: Plan) -> list[str]:
        """The branches of other features that were worked with this file, if `plan` has no record yet."""
        names = self._names(plan) if plan.branch else []
        return [] if plan.branch in names else [name for name in names if name]

    def _keys_of(self, plan: Plan) -> set[str]:
        """The keys under which a plan's records stand. Version 0.2 wrote the project's name in place of the
        file's. What was worked before a plan had a branchName belongs to the first that it got."""
        named = [name for name in self._names(plan) if name] if plan.branch else []
        branches = {plan.branch or "", *([""] if named[:1] in ([], [plan.branch]) else [])}
        return {f"{file}@{name}" for file in (plan.path.name, plan.project) for name in branches}

    def _names(self, plan: Plan) -> list[str]:
        """The branchNames under which records of this file stand, in the order of their first records."""
        found: dict[str, None] = {}
        for line in self._lines():
            if match := _PLAN.search(line):
                with contextlib.suppress(ValueError):
                    file, _, name = str(json.loads(match[1])).rpartition("@")
                    found |= dict.fromkeys([name] if file in (plan.path.name, plan.project) else [])
        return [*found]

    def _lines(self, start: int | None = None) -> Iterator[bytes]:
        """The lines of the file with their ends; with `start` those from that byte on, as far as whoever
        writes them has come."""
        if file := files.open_regular(self._target):
            with file:
                self._read = file.seek(start or 0)
                for line in file:
                    if start is not None and not line.endswith(b"\n"):
                        return
                    self._read += len(line)
                    yield line

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
