"""The inbox: what people ask of a loop while it runs, one small file each."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.model import Paths


def leave(paths: Paths, message: dict[str, Any]) -> None:
    """Leave `message` for the loop, which takes it between attempts."""
    folder = _folder(paths)
    folder.mkdir(parents=True, exist_ok=True)
    files.atomic_write(folder / f"{time.time_ns()}.json", json.dumps(message).encode())


def waiting(paths: Paths) -> int:
    """How many messages wait."""
    return len(_messages(paths))


def take(paths: Paths) -> Iterator[dict[str, Any]]:
    """The messages that wait, oldest first; each leaves the inbox once it has been dealt with."""
    for path in _messages(paths):
        if message := _read(path):
            yield message
        path.unlink(missing_ok=True)


def peek(paths: Paths) -> list[dict[str, Any]]:
    """The messages that wait, oldest first; they stay."""
    return [message for path in _messages(paths) if (message := _read(path))]


def _read(path: Path) -> dict[str, Any] | None:
    try:
        message = json.loads(files.read_regular(path) or b"")
    except ValueError:
        return None
    return message if isinstance(message, dict) else None


def _messages(paths: Paths) -> list[Path]:
    folder = _folder(paths)
    return sorted(folder.glob("[0-9]*.json")) if folder.is_dir() else []


def _folder(paths: Paths) -> Path:
    return paths.private / "inbox"
