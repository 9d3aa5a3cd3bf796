"""progress.txt as a file: records appended durably, and put back where others changed it."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from pathlib import Path
from typing import IO, Any

from _ralph import files, text
from _ralph.ends import BadInput

_LARGEST_ADDITION = 1 << 20
_RECORD = re.compile(rb"^<!-- ralph (\{.*\}) -->\r?$", re.MULTILINE)
_HEADER = re.compile(rb"^## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [^\n]*\|", re.MULTILINE)
_EVENTS = frozenset({"run", "start", "verdict", "wait", "recheck", "retry", "add", "stop"})


class Journal:
    """The records of progress.txt, appended durably and never rewritten.

    Beside the file stands a mirror in git's own folder, written first. While an attempt runs,
    the mirror is the truth about what ralph wrote, so a forged or lost record is undone from
    it; between attempts the file is, so that a person may edit it. An agent may reach the mirror
    on disk: what it said when ralph last wrote it is known by a file without a name.
    """

    def __init__(self, path: Path, mirror: Path, aside: Path) -> None:
        self.path = path
        self._mirror = mirror
        self._aside = aside
        self._known: IO[bytes] | None = None
        self._seen: files.Signature | None = None
        self._mirror_seen: files.Signature | None = None
        self.attempt_is_open = False
        """Whether the last attempt has a `start` and no `verdict`."""
        self.failed = False
        """Whether an `append` could not be finished: only the next `open` knows what stands where."""

    def open(self, held: bool = False) -> list[str]:
        """Bring file and mirror together after whatever happened; what was done, in words.

        `held` says that checks ran when the last run died: as in an attempt, the mirror is the truth.
        """
        known = files.read_regular(self._mirror) or b""
        if (torn := _torn(known)) is not None:
            known = known[:torn]
            files.atomic_write(self._mirror, known)
        self._believe(known)
        held = attempt_open(known) or (held and known != b"")
        self._follow_link(trusted=not held)
        found = files.read_regular(self.path, len(known) + _LARGEST_ADDITION if held else -1)
        if found is None and os.path.lexists(self.path) and not held:
            raise BadInput(f"{self.path} is not a regular file; move it away")
        notices, lost = [], known[len(found or b"") :]
        if known.startswith(found or b"") and len(_RECORD.findall(lost)) <= 1:
            if found is None:
                files.move_aside(self.path, self._aside, "progress.txt")
            if lost:  # ralph died between the mirror and the file
                files.append(self.path, lost)
        elif held:
            notices = self.guard()
        else:
            if _torn(found or b"") is not None:
                files.append(self.path, b"\n    | (the record above was cut off)\n")
                notices = ["a record of progress.txt had been cut off; its text was kept"]
            self._adopt()
        self._seen = files.signature(self.path)
        self.attempt_is_open = attempt_open(self._whole())
        return notices

    def records(self) -> list[dict[str, Any]]:
        """Every record of the file, oldest first; text that is no record is passed over."""
        return parse(files.read_regular(Path(os.path.realpath(self.path))) or b"")

    def signature(self) -> files.Signature | None:
        """Changes whenever somebody touches the file."""
        return files.signature(self.path)

    def append(self, headline: str, lines: list[str], record: dict[str, Any]) -> None:
        """Write one record: mirror, then file, each with one write and an fsync. OSError if it
        could not be made durable."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S %z")
        head = f"## {stamp[:-2]}:{stamp[-2:]} | {text.one_line(headline, 300)}"
        machine = json.dumps({"v": 1, "time": round(time.time(), 3), **record}, ensure_ascii=True)
        machine = machine.replace("<", "\\u003c").replace(">", "\\u003e")
        lines = [line.replace("\n", " ").replace("\r", " ") for line in lines]
        block = "\n".join(["", head, *lines, f"<!-- ralph {machine} -->", ""]).encode("utf-8", "replace")
        if not self.attempt_is_open and self._seen != self.signature():
            self._adopt()
        known = self._mirrored()
        self.failed = True
        files.append(self._mirror, block)
        known.write(block)
        self._mirror_seen = files.signature(self._mirror)
        files.append(self.path, block)
        self.failed = False
        self._seen = self.signature()
        if record["event"] in ("start", "verdict"):
            self.attempt_is_open = record["event"] == "start"

    def guard(self) -> list[str]:
        """Put the file back to what ralph wrote; what others appended is kept, quoted.

        Returns lines for the record: what was found, and the text that had been added.
        """
        self._mirrored()
        if self._seen is not None and self._seen == self.signature():
            return []
        known = self._whole()
        limit = len(known) + _LARGEST_ADDITION
        found = files.read_regular(self.path, limit)
        said = []
        if found != known:
            kept = files.move_aside(self.path, self._aside, "progress.txt")
            where = f"; kept as {kept.name}" if kept else ""
            if found is not None and found.startswith(known) and len(found) < limit:
                added = text.redact(found[len(known) :].decode("utf-8", "replace"))
                said = [f"progress.txt (text had been added{where}):\n{added}"]
            else:
                said = [f"progress.txt (it had been rewritten or deleted{where})"]
            files.atomic_write(self.path, known, stat.S_IMODE(self._seen[2]) if self._seen else 0o644)
        self._seen = self.signature()
        return said

    def _adopt(self) -> None:
        """Between attempts a person may edit: the file is the truth, unless it is gone."""
        found = files.read_regular(self.path)
        if found is None and self._seen is not None:
            self.guard()
        else:
            files.atomic_write(self._mirror, found or b"")
            self._believe(found or b"")

    def _believe(self, known: bytes) -> None:
        """Take what stands in the mirror now for what ralph wrote."""
        import tempfile

        self._known = tempfile.TemporaryFile("a+b", dir=self._mirror.parent)  # noqa: SIM115
        self._known.write(known)
        self._mirror_seen = files.signature(self._mirror)

    def _whole(self) -> bytes:
        assert self._known is not None
        self._known.seek(0)
        return self._known.read()

    def _mirrored(self) -> IO[bytes]:
        """What ralph wrote; the mirror is made to say the same."""
        if self._known is None:
            self._believe(files.read_regular(self._mirror) or b"")
        elif self._mirror_seen != files.signature(self._mirror):
            files.clear(self._mirror).parent.mkdir(parents=True, exist_ok=True)
            files.atomic_write(self._mirror, self._whole())
            self._mirror_seen = files.signature(self._mirror)
        assert self._known is not None
        return self._known

    def _follow_link(self, trusted: bool) -> None:
        """Write through a link that a person made; one that an agent made is none of ours."""
        note, target = self._mirror.with_suffix(".link"), os.path.realpath(self.path)
        if self.path.is_symlink() and trusted:
            files.atomic_write(note, os.fsencode(target))
        if self.path.is_symlink() and files.read_regular(note) == os.fsencode(target):
            self.path = Path(target)


def parse(data: bytes) -> list[dict[str, Any]]:
    """The machine lines in `data` that are records of this version, oldest first."""
    return [record for match in _RECORD.finditer(data) if (record := _record(match))]


def attempt_open(data: bytes) -> bool:
    """Whether the last attempt in `data` has a `start` and no `verdict`."""
    for match in reversed(list(_RECORD.finditer(data))):
        if (record := _record(match)) and record["event"] in ("start", "verdict"):
            return bool(record["event"] == "start")
    return False


def _record(match: re.Match[bytes]) -> dict[str, Any] | None:
    try:
        record = json.loads(match[1])
    except (ValueError, RecursionError):
        return None
    return record if record.get("v") == 1 and str(record.get("event")) in _EVENTS else None


def _torn(data: bytes) -> int | None:
    """Where a last record begins that has no machine line, else None."""
    end = max((match.end() for match in _RECORD.finditer(data)), default=0)
    match = _HEADER.search(data, end)
    return match.start() if match else None
