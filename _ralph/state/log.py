"""The history of a plan, read from progress.txt as it grows: everybody who writes reads
first, and nobody knows more than what stands in the file."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace

from _ralph.model import Plan
from _ralph.state.history import History
from _ralph.state.records import Journal, Record, from_json, parse


class Log:
    """The records of one plan, folded into a `history` as far as they were read. The
    file may be appended to by others at any time; it is folded anew if it shrank or was
    replaced."""

    def __init__(self, journal: Journal, plan: Plan) -> None:
        self.journal = journal
        self.key = plan.key
        self.history = History()
        self.others: set[str] = set()  # the keys of other plans that it has records of
        self._position = 0
        self._file = (0, 0)

    def read(self) -> History:
        """Take in what was appended since; the history. BadInput, also the next time,
        for a damaged record; then none of them is taken in."""
        try:
            about = os.stat(self.journal.target)
        except FileNotFoundError:
            about = None
        file = (about.st_dev, about.st_ino) if about else (0, 0)
        size = about.st_size if about else 0
        if file != self._file or size < self._position:
            self.history, self._position, self._file = History(), 0, file
        if size > self._position:
            lines, end = self.journal.whole_lines(self._position)
            new = []
            for entry in parse(lines):
                if entry.get("plan") == self.key:
                    new.append(from_json(entry))
                else:
                    self.others.add(str(entry.get("plan")))
            self._position = end  # nothing before is damaged
            for record in new:
                self.history.apply(record)
        return self.history

    def write(
        self, record: Record, run_id: str, headline: str, lines: Sequence[str] = ()
    ) -> None:
        """Append a record of a run, and read it back with what others wrote. Under the
        plan's lock. OSError if it could not be made durable."""
        record = replace(record, plan=self.key, run=run_id)
        self.journal.append(record, headline, lines)
        self.read()
