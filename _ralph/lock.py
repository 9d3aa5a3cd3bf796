"""The lock: one ralph at a time in a workspace, announced by name, and buried if it died."""

from __future__ import annotations

import json
import os
import time
from typing import Any

from _ralph import files
from _ralph.ends import TryLater
from _ralph.git import remove_locks
from _ralph.model import Paths
from _ralph.place import began, running, running_entry
from _ralph.supervisor import kill_run


def acquire(paths: Paths, patience: float = 0.2) -> Any:
    """The lock on this workspace, held until the process ends; TryLater names its holder, after
    `patience` seconds."""
    import filelock

    paths.private.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(paths.private / "lock")
    try:
        lock.acquire(timeout=patience)
        if running(paths):  # its lock was deleted under it
            raise filelock.Timeout(lock.lock_file)
    except filelock.Timeout:
        holder = running(paths)
        if holder is None:
            raise TryLater("another ralph is at work in this workspace; try again in a moment") from None
        raise TryLater(
            f"`ralph {holder.get('what', 'run')}` is at work in this workspace "
            f"(pid {holder['pid']}, since {holder['since']}); wait for its end, or see `ralph stop`"
        ) from None
    return lock


def announce(paths: Paths, run_id: str, pid: int, what: str = "run") -> None:
    """Say which process runs here, and `what`, for `status` and for the next start after a crash."""
    entry = {
        "pid": pid,
        "created": began(pid),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "run_id": run_id,
        "what": what,
    }
    files.atomic_write(paths.private / "running.json", json.dumps(entry).encode())


def announce_again(paths: Paths, run_id: str) -> list[str]:
    """The lock's file can be deleted by an agent: then this keeps other loops out."""
    if all((paths.private / name).is_file() for name in ("lock", "running.json")):
        return []
    paths.private.mkdir(parents=True, exist_ok=True)
    files.clear(paths.private / "lock").touch()
    announce(paths, run_id, os.getppid())
    return ["the loop's lock had been deleted, and was put back"]


def bury(paths: Paths) -> None:
    """After a run that died: kill what it left behind, remove the locks of its dead git calls."""
    if entry := running_entry(paths):
        kill_run(str(entry.get("run_id")))
        remove_locks(paths.private.parent)
