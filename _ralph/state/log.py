"""progress.txt: records are appended durably, nothing is ever rewritten, and everybody
who writes reads first: nobody knows more than what stands in the file."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.model import Plan
from _ralph.state.history import History
from _ralph.state.records import MACHINE_LINE, Record, from_json, parse, to_json

_HEADER = re.compile(rb"## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d .*\|")
_CUT_OFF = b"    | (the record above was cut off)\n"


class Log:
    """The records of one plan, folded into a `history` as far as they were read. People
    may edit the file, and others append to it at any time; it is folded anew if it
    shrank or was replaced. Agents only see a copy."""

    def __init__(self, path: Path, plan: Plan) -> None:
        self.path = path
        self.key = plan.key
        self.history = History()
        self.has_other_plans = False
        self._position = 0
        self._file = (0, 0)

    @property
    def target(self) -> Path:
        """The file itself: `path` may be a person's link to it."""
        return Path(os.path.realpath(self.path))

    def require_file(self) -> None:
        """BadInput if there is something that is no file."""
        if os.path.lexists(self.target) and files.read_regular(self.target, 0) is None:
            raise BadInput(f"{self.path} is not a regular file; move it away")

    def close_torn_record(self) -> list[str]:
        """Terminate a record that was cut off; a line about it. BadInput if it is no
        file."""
        self.require_file()
        torn = False
        if file := files.open_regular(self.target):
            with file:
                for line in file:
                    if _HEADER.match(line):
                        torn = True
                    elif line == _CUT_OFF or MACHINE_LINE.fullmatch(line):
                        torn = False
        if not torn:
            return []
        files.append(self.target, b"\n" + _CUT_OFF)
        return ["a record in progress.txt was cut off; its text was kept"]

    def records(self) -> Iterator[Record]:
        """All records of the plan, oldest first, as they are read: the file can be
        larger than the memory. Other text is ignored; BadInput for a damaged record."""
        if file := files.open_regular(self.target):
            with file:
                for line in file:
                    if record := self._record(line):
                        yield record

    def read(self) -> History:
        """Take in what was appended since; the history. BadInput, also the next time, for
        a damaged record."""
        file = files.open_regular(self.target)
        if file is None:
            self._begin_anew((0, 0))
            return self.history
        with file:
            about = os.fstat(file.fileno())
            self._begin_anew((about.st_dev, about.st_ino), about.st_size)
            file.seek(self._position)
            for line in file:
                if not line.endswith(b"\n"):  # it is still being written
                    break
                if record := self._record(line):
                    self.history.apply(record)
                self._position += len(line)
        return self.history

    def _begin_anew(self, file: tuple[int, int], size: int = 0) -> None:
        """Forget what was read, if it was another file, or this one shrank."""
        if file != self._file or size < self._position:
            self.history, self._position, self._file = History(), 0, file

    def _record(self, line: bytes) -> Record | None:
        """The record of this plan in a line, if there is one."""
        for entry in parse([line]):
            if entry.get("plan") == self.key:
                return from_json(entry)
            self.has_other_plans = True
        return None

    def write(
        self, record: Record, run_id: str, headline: str, lines: Sequence[str] = ()
    ) -> None:
        """Append a record, of a run if it has an id, and read it back with what others
        wrote. Under the plan's lock. OSError if it could not be made durable; BadInput,
        before anything is written, if it could not be read again."""
        now = round(time.time(), 3)
        record = replace(record, plan=self.key, run=run_id, time=now)
        machine = json.dumps(to_json(record), ensure_ascii=True)
        from_json(json.loads(machine))
        machine = machine.replace("<", "\\u003c").replace(">", "\\u003e")
        stamp = time.strftime("%Y-%m-%d %H:%M:%S %z")
        block = ["", f"## {stamp[:-2]}:{stamp[-2:]} | {text.one_line(headline, 300)}"]
        for line in lines:
            block.append(line.replace("\n", " ").replace("\r", " "))
        block += [f"<!-- ralph {machine} -->", ""]
        files.append(self.target, "\n".join(block).encode("utf-8", "replace"))
        self.read()
