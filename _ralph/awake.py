"""Awake: while a run goes on, the machine does not fall asleep by itself."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
import sys

# Where nobody is logged in, as under cron, a user may hold off only `idle`.
_LOCKS = ("idle:sleep", "idle")
_INHIBIT = ["systemd-inhibit", "--who=ralph", "--why=a run goes on", "--mode=block"]


def keep_awake(pid: int) -> frozenset[int]:
    """Hold off sleep until process `pid` ends, killed or not; the process that does it, none where that
    cannot be done."""
    if sys.platform == "darwin":
        command = ["caffeinate", "-i", "-w", str(pid)]
    elif shutil.which("systemd-inhibit"):
        hold = [
            shlex.join([*_INHIBIT, f"--what={what}", "tail", f"--pid={pid}", "-f", "/dev/null"])
            for what in _LOCKS
        ]
        command = ["/bin/sh", "-c", " || ".join(hold)]
    else:
        return frozenset()
    with contextlib.suppress(OSError):
        helper = subprocess.Popen(
            command,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return frozenset({helper.pid})
    return frozenset()


def let_sleep(helpers: frozenset[int]) -> None:
    """End what `keep_awake` began, and collect it."""
    for pid in helpers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def cannot_stay_awake() -> str:
    """Why this machine may fall asleep during a run, or nothing."""
    if sys.platform == "darwin":
        return "" if shutil.which("caffeinate") else "there is no caffeinate"
    if not shutil.which("systemd-inhibit"):
        return "there is no systemd-inhibit"
    said = b""
    for what in _LOCKS:
        try:
            tried = subprocess.run(
                [*_INHIBIT, f"--what={what}", "true"],
                stdin=subprocess.DEVNULL,
                capture_output=True,
                timeout=10,
            )
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if tried.returncode == 0:
            return ""
        said = tried.stderr
    return said.decode("utf-8", "replace").strip() or "systemd-inhibit fails"
