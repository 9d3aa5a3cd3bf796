"""The lock: one ralph at a time on a plan; what one that was killed left behind is
ended by the next."""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import glob
import os
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

from _ralph import codec, files
from _ralph.errors import RalphError, TryLater
from _ralph.model import Paths
from _ralph.process.leftovers import left_by_run, mark_run
from _ralph.process.process import alive, sweep
from _ralph.state.layout import RUNNING, Holder, last_holder, noted

_SESSIONS = "sessions"
"""The folder that has a note on each process of the run, where orphans are not
adopted."""

_ENDING = 10.0
"""Seconds that the loops of a run that was killed may take to end."""
_DYING = 0.2
"""Seconds after which a process that still runs was not just killed."""


def acquire(paths: Paths) -> int:
    """The lock on this plan: a plain flock, which loops inherit, so that a start after a
    kill waits until they have ended. The descriptor that holds it; TryLater names the
    one who does."""
    paths.private.mkdir(parents=True, exist_ok=True)
    path = paths.private / RUNNING
    files.make_way(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    began = time.monotonic()
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except BlockingIOError:
            holder = last_holder(paths)
        waited = time.monotonic() - began
        runs = holder is not None and bool(alive([holder.pid]))
        if waited > (_DYING if runs else _ENDING):
            os.close(fd)
            raise TryLater(f"{_at_work(holder)}; wait for its end, or see `ralph stop`")
        time.sleep(0.05)


def _at_work(holder: Holder | None) -> str:
    """Who is at work on a plan, in words."""
    if holder is None:
        return "another ralph is at work on this plan"
    since = f"(pid {holder.pid}, since {holder.since})"
    return f"`ralph {holder.what}` is at work on this plan {since}"


@contextlib.contextmanager
def alone(paths: Paths, what: str) -> Iterator[str]:
    """Be the only ralph at work on this plan, as `what`; the mark that all that is
    started here carries. TryLater if another one is."""
    run_id, fd = uuid.uuid4().hex, acquire(paths)
    try:
        end_killed_run(paths)
        # So that every child can be told from a stranger
        mark_run(run_id, paths.private / _SESSIONS)
        since = time.strftime("%Y-%m-%d %H:%M:%S")
        holder = Holder(os.getpid(), run_id, since, what, boot())
        os.ftruncate(fd, 0)
        os.pwrite(fd, codec.dumped(holder), 0)
        files.fsync(fd)  # or nobody knows after a power cut that there was a run
        try:
            yield run_id
        except RalphError:  # an end like any other
            os.ftruncate(fd, 0)
            raise
        os.ftruncate(fd, 0)
    finally:
        os.environ.pop("RALPH_RUN_ID", None)
        os.close(fd)


def end_killed_run(paths: Paths) -> None:
    """Kill what a run that was killed left running, and remove its temporary files and
    the locks of its git calls."""
    for left in paths.private.glob(f".*{files.TEMPORARY}"):
        files.clear(left)
    notes = paths.private / _SESSIONS
    if holder := last_holder(paths):
        if rebooted := holder.boot != boot():
            files.clear(notes)  # other processes have these ids now
        sweep(0.0, left=left_by_run(holder.run_id, notes))
        note = noted(paths.private)
        remove_git_locks(paths, note.branch if note else "")
        if rebooted:
            discard_unsynced(paths)
    files.clear(notes)


def remove_git_locks(
    paths: Paths, branch: str, loop: int | None = None, in_room: bool = True
) -> None:
    """Remove the locks of git calls of ours that were killed, on files of ralph's: of
    all, or of the `loop` with this number and, if it died `in_room`, those of the room.
    Other loops may be at work."""
    plan, common = paths.private.name, paths.private.parent.parent
    names = [
        f"ralph/{plan}/*.index*",
        f"refs/ralph/*/{plan}",
        f"refs/ralph/*/{plan}/**/*",
    ]
    if branch:
        names.append(f"refs/heads/{glob.escape(branch)}")
    for name in names:
        for left in [*common.glob(f"{name}.lock")]:
            is_loop_s = left.name.startswith("work-") or "attempt" in left.parts
            mine = left.name == f"{loop}.lock" or left.name.startswith(f"work-{loop}.")
            if loop is None or (mine if is_loop_s else in_room):
                files.clear(left)


def discard_unsynced(paths: Paths) -> None:
    """After a power cut, give up what was never synced: the places, which are made anew
    where their index is gone, the refs of attempts and candidates, and git's objects
    that are empty, which it would take for written."""
    common = paths.private.parent.parent
    for stale in (*paths.private.glob("*.index*"), *paths.private.glob("*.start")):
        files.clear(stale)
    for kind in ("attempt", "candidate"):
        files.clear(common / "refs/ralph" / kind / paths.private.name)
    for written in common.glob("objects/[0-9a-f][0-9a-f]/*"):
        if written.stat().st_size == 0:
            files.clear(written)


def boot() -> str:
    """Tells one start of this machine from another. Both systems give each an id; the
    time of the start moves when the clock is set."""
    if found := files.read_regular(Path("/proc/sys/kernel/random/boot_id")):
        return found.decode().strip()
    value, size = ctypes.create_string_buffer(100), ctypes.c_size_t(100)
    with contextlib.suppress(AttributeError):  # only macOS has this function
        ask = ctypes.CDLL(None).sysctlbyname
        ask(b"kern.bootsessionuuid", value, ctypes.byref(size), None, ctypes.c_size_t())
    return value.value.decode()
