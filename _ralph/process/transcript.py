"""A file with the beginning and the end of what a process prints."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import BinaryIO

_CUT = b"\n[cut here]\n"


class Transcript:
    """Writes to `path`, if there is one; beyond `cap` bytes the middle is cut out. A
    full disk stops the transcript, never the process."""

    def __init__(self, path: Path | None, cap: int) -> None:
        self._cap = cap
        self._file: BinaryIO | None = None
        if path is not None:
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
                fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
                self._file = os.fdopen(fd, "r+b", buffering=0)

    def __enter__(self) -> Transcript:
        return self

    def write(self, chunk: bytes) -> None:
        if self._file is None:
            return
        try:
            self._file.write(chunk)
            if self._file.tell() > self._cap:
                self._shorten(self._file)
        except OSError:
            self.__exit__()

    def _shorten(self, file: BinaryIO) -> None:
        """Move the last eighth behind the first, and continue there."""
        part = self._cap // 8
        file.seek(-part, os.SEEK_CUR)
        end = file.read(part)
        file.truncate(part)
        file.seek(part)
        file.write(_CUT + end)

    def __exit__(self, *_: object) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None
