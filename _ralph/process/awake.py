"""Keep the machine from falling asleep during a run."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys

_INHIBIT = ["systemd-inhibit", "--who=ralph", "--why=a run goes on", "--mode=block"]
# Without a login session, as under cron, a user may only inhibit `idle`.
_LINUX = ([*_INHIBIT, "--what=idle:sleep"], [*_INHIBIT, "--what=idle"])
_MACOS = (["caffeinate", "-i"],)


def keep_awake(pid: int) -> frozenset[int]:
    """Inhibit sleep until process `pid` ends, however it ends; the helper's pid, none if that cannot be
    done."""
    if sys.platform == "darwin":
        ways = [[*way, "-w", str(pid)] for way in _MACOS]
    else:
        ways = [[*way, "tail", f"--pid={pid}", "-f", "/dev/null"] for way in _LINUX]
    command = ["/bin/sh", "-c", " || ".join(map(shlex.join, ways))]
    null = subprocess.DEVNULL
    with contextlib.suppress(OSError):
        helper = subprocess.Popen(
            command, cwd="/", stdin=null, stdout=null, stderr=null, start_new_session=True
        )
        return frozenset({helper.pid})
    return frozenset()


def let_sleep(helpers: frozenset[int]) -> None:
    """End the helper of `keep_awake`."""
    for pid in helpers:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


def cannot_stay_awake() -> str:
    """Why this machine may fall asleep during a run; nothing if it cannot."""
    why = ""
    for way in _MACOS if sys.platform == "darwin" else _LINUX:
        try:
            tried = subprocess.run(
                [*way, "true"], stdin=subprocess.DEVNULL, capture_output=True, timeout=10, check=False
            )
        except FileNotFoundError:
            return f"there is no {way[0]}"
        except (OSError, subprocess.TimeoutExpired) as error:
            return str(error)
        if tried.returncode == 0:
            return ""
        why = tried.stderr.decode("utf-8", "replace").strip() or f"{way[0]} fails"
    return why
