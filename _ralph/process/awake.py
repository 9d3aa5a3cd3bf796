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
