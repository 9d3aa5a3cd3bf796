"""Notes what a process does to files, call by call, as lines of JSON in the file
ORDER_LOG."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from _ralph.git import branch, git

_open, _write = os.open, os.write


def install() -> None:
    """Wrap the calls of `os` that change files; what replaces them later is not
    noted."""
    log = _open(os.environ["ORDER_LOG"], os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    paths: dict[int, str] = {}
    written_to: set[int] = (
        set()
    )  # what is only read may be closed unseen, and a pipe get its number

    def note(call: str, path: Any, data: bytes = b"") -> None:
        line = {
            "call": call,
            "path": os.path.realpath(os.fspath(path)),
            "data": data.decode("latin-1"),
        }
        line["pid"] = str(os.getpid())
        _write(log, json.dumps(line).encode() + b"\n")

    def opened(path: Any, flags: int, *given: Any, **named: Any) -> int:
        fd = _open(path, flags, *given, **named)
        paths[fd] = os.fspath(path)
        if flags & (os.O_WRONLY | os.O_RDWR):
            written_to.add(fd)
        return fd

    def written(fd: int, data: Any) -> int:
        if fd in written_to:
            note("write", paths[fd], bytes(data))
        return _write(fd, data)

    def closed(fd: int, real: Any = os.close) -> None:
        paths.pop(fd, None)
        written_to.discard(fd)
        real(fd)

    def synced(fd: int, real: Any = os.fsync) -> None:
        real(fd)
        note("fsync", paths[fd])

    def replaced(source: Any, target: Any, real: Any = os.replace) -> None:
        data = Path(source).read_bytes()
        real(source, target)
        note("from", source)
        note("replace", target, data)

    def tree_synced(self: git.Git, real: Any = git.Git.sync) -> None:
        real(self)
        note("sync", self.common)

    def landed(
        self: branch.Branch, *given: Any, real: Any = branch.Branch.land, **named: Any
    ) -> None:
        note("land", self.git.root)
        real(self, *given, **named)

    git.Git.sync = tree_synced  # type: ignore[method-assign]
    branch.Branch.land = landed  # type: ignore[method-assign]
    os.open, os.write, os.close = opened, written, closed
    os.fsync, os.replace = synced, replaced  # type: ignore[assignment]
