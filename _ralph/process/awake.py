"""Keep the machine from falling asleep during a run."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator

from _ralph.process.process import SPARED

_INHIBIT = ["systemd-inhibit", "--who=ralph", "--why=a run goes on", "--mode=block"]


@contextlib.contextmanager
def kept_awake(wanted: bool = True) -> Iterator[None]:
    """Inhibit sleep, if `wanted` and that can be done, until this is left or this
    process ends, however it ends."""
    helper = _helper(os.getpid()) if wanted else None
    if helper is None:
        yield
        return
    SPARED.add(helper.pid)
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(helper.pid, signal.SIGKILL)
        helper.wait()


def _helper(pid: int) -> subprocess.Popen[bytes] | None:
    if sys.platform == "darwin":
        script = f"caffeinate -i -w {pid}"
    else:
        ways = []
        # Without a login session, as under cron, a user may only inhibit `idle`
        for what in ("--what=idle:sleep", "--what=idle"):
            words = [*_INHIBIT, what, "tail", f"--pid={pid}", "-f", "/dev/null"]
            ways.append(shlex.join(words))
        script = " || ".join(ways)
    try:
        return subprocess.Popen(
            ["/bin/sh", "-c", script],
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError:
        return None
