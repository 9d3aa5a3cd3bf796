"""The mark of a run, by which all that it started can be found, whatever its parent is by then."""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import psutil

_PR_SET_CHILD_SUBREAPER = 36
_LIBRARY = ctypes.CDLL(None)


def become_subreaper() -> None:
    """On Linux, adopt orphaned descendants."""
    if sys.platform == "linux":
        _LIBRARY.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def mark_run(run_id: str) -> None:
    """Mark all that this process starts from now on with `run_id`, in its environment."""
    os.environ["RALPH_RUN_ID"] = run_id


def kill_run(run_id: str) -> None:
    """Kill all that carries the mark `run_id`, with its descendants."""
    import psutil

    for _ in range(50):  # what is forked meanwhile is found the next time
        marked = {one for one in psutil.process_iter() if _carries(one, run_id)}
        for one in list(marked):
            with contextlib.suppress(psutil.Error):
                marked.update(one.children(recursive=True))
        marked.discard(psutil.Process())
        if not marked:
            return
        for one in marked:
            with contextlib.suppress(psutil.Error):
                one.kill()
        psutil.wait_procs(marked, timeout=2)


def _carries(one: psutil.Process, run_id: str) -> bool:
    import psutil

    with contextlib.suppress(psutil.Error, OSError):
        if one.status() != psutil.STATUS_ZOMBIE:
            return one.environ().get("RALPH_RUN_ID") == run_id
    return False
