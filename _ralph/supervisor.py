"""The supervisor: the loop runs in a child of it, and neither of them outlives the other."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import signal
import sys
import zlib
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING

from _ralph import process
from _ralph.process import Control

if TYPE_CHECKING:
    import psutil

_STOP_DEADLINE = 120
_PR_SET_CHILD_SUBREAPER = 36


def supervise(loop: Callable[[Control], int], beside: Callable[[int], object] | None = None) -> int | None:
    """Run `loop` in a child; its exit status, or None if it was killed.

    Whatever it leaves behind is killed at once, however it ended. Must be called before any
    thread exists. The loop hears of this process's death through a pipe. Signals are handed on;
    the loop sits in its own session, so each arrives once. `beside` is called with our pid once the
    loop has begun: what it starts is no descendant of the loop, and ends with it.
    """
    _become_subreaper()
    alive_read, alive_write = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(alive_write)
        os._exit(_loop_process(loop, alive_read))
    os.close(alive_read)

    def hand_on(number: int, _frame: FrameType | None) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL if number == signal.SIGALRM else number)
        if number in (signal.SIGTERM, signal.SIGHUP):
            signal.alarm(_STOP_DEADLINE)  # a loop that hangs in a system call hears no TERM

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGALRM):
        if signal.getsignal(number) is not signal.SIG_IGN or number != signal.SIGHUP:  # nohup
            signal.signal(number, hand_on)
    if beside:
        beside(os.getpid())
    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    process.sweep(0.0)
    return code if code >= 0 else None


def _become_subreaper() -> None:
    """On Linux, let orphaned descendants become our children."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def _loop_process(loop: Callable[[Control], int], supervisor: int) -> int:
    os.setsid()
    _become_subreaper()
    control = Control(supervisor)
    control.install()
    code = 1
    try:
        code = loop(control)
    except BaseException:
        import traceback

        traceback.print_exc()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()
    return code


def mark_run(run_id: str) -> None:
    """Let this process, and so all that it starts, carry `run_id`: in the environment and, for that
    can be cleared, on Linux in a limit that nobody comes near (tens of thousands of years)."""
    os.environ["RALPH_RUN_ID"] = run_id
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError):
            hard = resource.getrlimit(resource.RLIMIT_RTTIME)[1]
            resource.setrlimit(resource.RLIMIT_RTTIME, (_number(run_id), hard))


def kill_run(run_id: str) -> None:
    """Kill what still carries `run_id`, and its descendants."""
    import psutil

    for _ in range(50):  # what was forked while they were looked for is found the next time
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
        if one.environ().get("RALPH_RUN_ID") == run_id:
            return True
        return sys.platform == "linux" and one.rlimit(resource.RLIMIT_RTTIME)[0] == _number(run_id)
    return False


def _number(run_id: str) -> int:
    return (1 << 60) + zlib.crc32(run_id.encode())
