"""The lock: one ralph at a time on a plan, announced by name, and buried if it died."""

from __future__ import annotations

import contextlib
import json
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.errors import TryLater
from _ralph.git.git import remove_locks
from _ralph.model import Paths
from _ralph.process.mark import kill_run, mark_run
from _ralph.state.layout import began, running, running_entry


def acquire(paths: Paths, patience: float = 0.2) -> Any:
    """The lock on this plan, held until the process ends; TryLater names its holder, after
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
            raise TryLater("another ralph is at work on this plan; try again in a moment") from None
        raise TryLater(
            f"`ralph {holder.get('what', 'run')}` is at work on this plan "
            f"(pid {holder['pid']}, since {holder['since']}); wait for its end, or see `ralph stop`"
        ) from None
    return lock


@contextlib.contextmanager
def alone(paths: Paths, what: str) -> Iterator[str]:
    """Be the only ralph at work on this plan, as `what`; the mark that all that is started here carries.
    TryLater if another one is."""
    run_id, held = uuid.uuid4().hex, acquire(paths)
    try:
        bury(paths)
        mark_run(run_id)  # so that every child can be told from a stranger
        announce(paths, run_id, os.getpid(), what)
        yield run_id
        (paths.private / "running.json").unlink(missing_ok=True)
    finally:
        os.environ.pop("RALPH_RUN_ID", None)
        held.release()


def announce(paths: Paths, run_id: str, pid: int, what: str = "run") -> None:
    """Say which process runs here, and `what`, for `status` and for the next start after a crash."""
    entry = {
        "pid": pid,
        "created": began(pid),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "run_id": run_id,
        "what": what,
        "boot": boot(),
    }
    files.atomic_write(paths.private / "running.json", json.dumps(entry).encode())


def bury(paths: Paths) -> None:
    """After a run that died: kill what it left behind, remove the locks of its own dead git calls."""
    if entry := running_entry(paths):
        kill_run(str(entry.get("run_id")))
        remove_locks(paths.private)
        if entry.get("boot") != boot():
            distrust(paths)
        files.atomic_write(paths.private / "died", b"")


def distrust(paths: Paths) -> None:
    """After a power cut, give up what was never synced: the places, which are made anew where their index
    is gone, the ref of a candidate, and git's objects that are empty, which it would take for written."""
    common = paths.private.parent.parent
    for stale in (*paths.private.glob("*.index*"), *paths.private.glob("*.ready")):
        files.clear(stale)
    files.clear(common / "refs/ralph/candidate" / paths.private.name)
    for written in common.glob("objects/[0-9a-f][0-9a-f]/*"):
        if written.stat().st_size == 0:
            files.clear(written)


def boot() -> str:
    """Tells one start of this machine from another."""
    import psutil

    found = files.read_regular(Path("/proc/sys/kernel/random/boot_id"))
    return found.decode().strip() if found else str(round(psutil.boot_time()))
