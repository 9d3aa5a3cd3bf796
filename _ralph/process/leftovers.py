"""How all that ralph started is found, whatever its parent is by then.

On Linux orphans become children of the process of ralph's that started them. Elsewhere
they are found by their session, and by a mark in their environment where that can be
read. The sessions are noted in a folder, so that the next start finds what a killed run
left.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import signal
import sys
import time
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


@dataclass
class Leftovers:
    """Processes to end: those in a session that we started, their descendants, and
    those whose environment has our mark. A process stays in the set once it was found;
    we are never in it."""

    leaders: dict[int, float] = field(default_factory=dict)
    """The pids that lead a session, and when (unix time) they began."""
    marks: set[str] = field(default_factory=set)
    notes: list[Path] = field(default_factory=list)
    _found: set[psutil.Process] = field(default_factory=set)

    def left(self) -> set[int]:
        """The pids of all that still runs. What forks and ends while all are listed is
        not found: where nothing else is, the leaders' groups are killed."""
        self._look()
        if not self._found and self.kill_groups():
            self._look()
        return {process.pid for process in self._found}

    def kill_groups(self) -> bool:
        """Kill what is in the leaders' own process groups, each at once: nothing of it
        can fork meanwhile. Whether there was anything."""
        any_left = False
        for pid in self.leaders:
            if pid != os.getpid() and self._leads(pid):
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(pid, signal.SIGKILL)
                    any_left = True
        return any_left

    def forget(self) -> None:
        """Remove the notes: all of it has ended."""
        for path in self.notes:
            path.unlink(missing_ok=True)

    def _look(self) -> None:
        import psutil

        listed: set[psutil.Process] = set()
        children: dict[int, list[psutil.Process]] = {}
        # `process_iter` skips one whose id was another's before
        for pid in psutil.pids():
            # It can have ended, or be none of our business
            with contextlib.suppress(psutil.Error, OSError):
                process = psutil.Process(pid)
                children.setdefault(process.ppid(), []).append(process)
                listed.add(process)
                if self._leads(os.getsid(pid)) or self._is_marked(process):
                    self._found.add(process)
        self._found &= listed
        to_visit = list(self._found)
        while to_visit:
            for child in children.get(to_visit.pop().pid, []):
                if child not in self._found:
                    self._found.add(child)
                    to_visit.append(child)
        self._found.discard(psutil.Process())
        for process in [*self._found]:
            if _is_zombie(process):
                self._found.remove(process)

    def _leads(self, pid: int) -> bool:
        """Whether it is one of the leaders, and no later process with its id."""
        import psutil

        if pid not in self.leaders:
            return False
        try:
            return abs(psutil.Process(pid).create_time() - self.leaders[pid]) < _SLACK
        except psutil.NoSuchProcess:  # it has ended, and its session has not
            return True

    def _is_marked(self, process: psutil.Process) -> bool:
        environ = process.environ()
        return environ.get(_RUN) in self.marks or environ.get(START) in self.marks


def left_by_process(pid: int, mark: str) -> Leftovers | None:
    """A process that this one started just now with `mark`, and that has noted itself,
    and all that it starts. None where orphans are adopted."""
    if ADOPTS:
        return None
    notes = [_notes / f"{os.getpid()}-{pid}-{mark}"] if _notes else []
    return Leftovers({pid: time.time()}, {mark}, notes)


def left_by_loop(pid: int) -> Leftovers | None:
    """A loop, and all that it started and could not end. None where orphans are
    adopted."""
    return None if ADOPTS else _noted(_notes, pid)


def left_by_run(run_id: str, notes: Path) -> Leftovers:
    """All that a run has left, by its mark and its notes."""
    leftovers = _noted(notes)
    leftovers.marks.add(run_id)
    return leftovers


def _noted(notes: Path | None, loop: int | None = None) -> Leftovers:
    """All that is noted, or what one loop started, and itself."""
    leftovers = Leftovers()
    for path in notes.glob("*") if notes else ():
        said = _NOTE.fullmatch(path.name)
        if said is None:
            continue
        if loop is None or str(loop) in said.group("starter", "pid"):
            leftovers.leaders[int(said["pid"])] = path.stat().st_mtime
            leftovers.notes.append(path)
            if said["mark"]:
                leftovers.marks.add(said["mark"])
    return leftovers


def _is_zombie(process: psutil.Process) -> bool:
    """Whether it has only to be reaped. One that is gone may have forked before, and is
    looked for again."""
    import psutil

    with contextlib.suppress(psutil.Error):
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    return False
