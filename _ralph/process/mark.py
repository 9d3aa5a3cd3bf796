"""What belongs to whom: how all that ralph started is found, whatever its parent is by
then.

On Linux orphans become children of the process of ralph's that started them. Elsewhere
a process and all that it started are its kin, and what runs is noted, so that what a
killed run left is found by the next.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

ADOPTS = sys.platform == "linux"
"""Whether this process can adopt orphans: then what has no parent but this one is all
that is left."""
START = "RALPH_PROCESS"
"""The variable that tells one start of a process from all others, where orphans are not
adopted."""
_RUN = "RALPH_RUN_ID"
_PR_SET_CHILD_SUBREAPER = 36
_LIBRARY = ctypes.CDLL(None)
_PAUSE = 0.1
_SLACK = 60.0
"""Seconds by which the beginning of one process may differ in two looks: clocks are
set. A process id comes again much later."""
_NOTE = re.compile(r"(?P<starter>\d+)-(?P<pid>\d+)-(?P<mark>\w*)")
_notes: Path | None = None


def become_subreaper() -> None:
    """Adopt orphaned descendants, where that can be."""
    if ADOPTS:
        _LIBRARY.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def mark_run(run_id: str, notes: Path) -> None:
    """Mark all that this process starts from now on with `run_id`, in its environment;
    the folder `notes` is for what runs."""
    global _notes
    os.environ[_RUN] = run_id
    _notes = notes
    if not ADOPTS:
        notes.mkdir(exist_ok=True)


def note(starter: int, mark: str = "") -> None:
    """Note this process, which leads a session, before it does anything: it was started
    by `starter`, with `mark`. Nothing where orphans are adopted."""
    if _notes and not ADOPTS:
        with contextlib.suppress(OSError):  # a disk that is full ends the run by itself
            (_notes / f"{starter}-{os.getpid()}-{mark}").touch()


def kin_of(pid: int, mark: str) -> Kin | None:
    """The kin of a process that this one started just now with `mark`, and that has
    noted itself. None where orphans are adopted."""
    if ADOPTS:
        return None
    notes = [_notes / f"{os.getpid()}-{pid}-{mark}"] if _notes else []
    return Kin({pid: time.time()}, frozenset({mark}), notes)


def left_by(worker: int) -> Kin | None:
    """The kin of a worker, and of all that it started and could not end. None where
    orphans are adopted."""
    return None if ADOPTS else _noted(_notes, worker)


def left_by_run(run_id: str, notes: Path) -> Kin:
    """All that a run has left, by its mark and its notes."""
    kin = _noted(notes)
    kin.marks |= {run_id}
    return kin


def _noted(notes: Path | None, worker: int | None = None) -> Kin:
    """The kin of all that is noted, or of what one worker started, and of itself."""
    kin = Kin()
    for path in notes.glob("*") if notes else ():
        said = _NOTE.fullmatch(path.name)
        if said and (worker is None or str(worker) in said.group("starter", "pid")):
            kin.leaders[int(said["pid"])] = path.stat().st_mtime
            kin.marks |= {said["mark"]} - {""}
            kin.notes.append(path)
    return kin


@dataclass
class Kin:
    """What belongs to processes that each lead a session: what is in those sessions,
    what is below that, and what carries one of the marks in an environment that can be
    read. What once belonged does so from then on; this process never does."""

    leaders: dict[int, float] = field(
        default_factory=dict
    )  # their pids, and when (unix time) they began
    marks: frozenset[str] = frozenset()
    notes: list[Path] = field(default_factory=list)
    _found: set[psutil.Process] = field(default_factory=set)
    _looked: float = field(default_factory=time.monotonic)

    def watch(self) -> None:
        """Look for what could not be found once its parent is gone. All processes are
        listed, so this does nothing within 0.1 s of the last look."""
        if time.monotonic() - self._looked >= _PAUSE:
            self._look(with_marks=False)

    def left(self) -> set[int]:
        """The pids of all that still runs. What forks and ends while all are listed is
        not found: where nothing else is, the leaders' groups are killed."""
        self._look(with_marks=True)
        if not self._found and self.kill_groups():
            self._look(with_marks=True)
        return {one.pid for one in self._found}

    def kill_groups(self) -> bool:
        """Kill what is in the leaders' own process groups, each at once: nothing of it
        can fork meanwhile. Whether there was anything."""
        any_left = False
        for pid in filter(self._leads, self.leaders.keys() - {os.getpid()}):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(pid, signal.SIGKILL)
                any_left = True
        return any_left

    def forget(self) -> None:
        """Remove the notes: all of it has ended."""
        for path in self.notes:
            path.unlink(missing_ok=True)

    def _look(self, with_marks: bool) -> None:
        import psutil

        own, listed = psutil.Process(), set[psutil.Process]()
        below: dict[int, set[psutil.Process]] = defaultdict(set)
        for (
            pid
        ) in psutil.pids():  # `process_iter` skips one whose id was another's before
            with contextlib.suppress(
                psutil.Error, OSError
            ):  # it has ended, or is none of our business
                one = psutil.Process(pid)
                below[one.ppid()].add(one)
                listed.add(one)
                if self._leads(os.getsid(pid)) or (with_marks and self._carries(one)):
                    self._found.add(one)
        self._found &= listed
        new = self._found
        while new := {child for one in new for child in below[one.pid]} - self._found:
            self._found |= new
        self._found = {one for one in self._found - {own} if not _is_zombie(one)}
        self._looked = time.monotonic()

    def _leads(self, pid: int) -> bool:
        """Whether it is one of the leaders, and no later process with its id."""
        import psutil

        if pid not in self.leaders:
            return False
        try:
            return abs(psutil.Process(pid).create_time() - self.leaders[pid]) < _SLACK
        except psutil.NoSuchProcess:  # it has ended, and its session has not
            return True

    def _carries(self, one: psutil.Process) -> bool:
        environ = one.environ()
        return not self.marks.isdisjoint((environ.get(_RUN), environ.get(START)))


def _is_zombie(one: psutil.Process) -> bool:
    """Whether it has only to be reaped. One that is gone may have forked before, and is
    looked for again."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(one.status() == psutil.STATUS_ZOMBIE)
    return False
