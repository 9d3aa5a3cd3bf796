"""The inbox: what people ask of a loop while it runs, one small file each."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.ends import TryLater
from _ralph.model import Paths


def leave(paths: Paths, message: dict[str, Any]) -> None:
    """Leave `message` for the loop, which takes it between attempts."""
    folder = paths.private / "inbox"
    folder.mkdir(parents=True, exist_ok=True)
    files.atomic_write(folder / f"{time.time_ns()}.json", json.dumps(message).encode())


@contextlib.contextmanager
def turn(paths: Paths) -> Iterator[None]:
    """One at a time, of those that look at what waits before they leave more; TryLater after 10 seconds."""
    import filelock

    folder = paths.private / "inbox"
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(folder / "lock", timeout=10.0):
            yield
    except filelock.Timeout:
        raise TryLater("another ralph leaves tasks for the loop; try again in a moment") from None


def waiting(paths: Paths) -> int:
    """How many messages wait."""
    return len(_files(paths))


def peek(paths: Paths) -> list[dict[str, Any]]:
    """The messages that wait, oldest first; they stay."""
    return [_read(path) for path in _files(paths)]


def take(paths: Paths) -> Iterator[dict[str, Any]]:
    """The same; each leaves the inbox once it has been dealt with."""
    for path in _files(paths):
        yield _read(path)
        path.unlink(missing_ok=True)


def _read(path: Path) -> dict[str, Any]:
    """The message in a file; an empty one if it is none."""
    try:
        message = json.loads(files.read_regular(path) or b"")
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _files(paths: Paths) -> list[Path]:
    return sorted((paths.private / "inbox").glob("[0-9]*.json"))
