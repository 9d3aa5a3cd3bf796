"""Keep the machine from falling asleep during a run."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

_INHIBIT = ["systemd-inhibit", "--who=ralph", "--why=a run goes on", "--mode=block"]
# Without a login session, as under cron, a user may only inhibit `idle`.
_LINUX = ([*_INHIBIT, "--what=idle:sleep"], [*_INHIBIT, "--what=idle"])


@contextlib.contextmanager
def kept_awake(wanted: bool = True) -> Iterator[frozenset[int]]:
    """Inhibit sleep, if `wanted`, until this is left or this process ends, however it
    ends; the helper's pid, none if that cannot be done."""
    helper = _helper(os.getpid()) if wanted else None
    try:
        yield frozenset({helper.pid} if helper else ())
    finally:
        if helper:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(helper.pid, signal.SIGKILL)
            helper.wait()


def _helper(pid: int) -> subprocess.Popen[bytes] | None:
    if sys.platform == "darwin":
        ways = [["caffeinate", "-i", "-w", str(pid)]]
    else:
        ways = [[*way, "tail", f"--pid={pid}", "-f", "/dev/null"] for way in _LINUX]
    command, null = (
        ["/bin/sh", "-c", " || ".join(map(shlex.join, ways))],
        subprocess.DEVNULL,
    )
    with contextlib.suppress(OSError):
        return subprocess.Popen(
            command,
            cwd="/",
            stdin=null,
            stdout=null,
            stderr=null,
            start_new_session=True,
        )
    return None
