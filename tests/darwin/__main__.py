"""`python -m tests.darwin COMMAND...`: run a command as on macOS, in namespaces of its
own. Needs root; on a Mac it just runs the command.

In them the `.pth` file by which this environment finds ralph has a line more, so every
Python of it is that of `emulation`, also where a test clears its variables; programs
that macOS lacks cannot be run; orphans belong to a process that only reaps them, as
launchd does. Outside, nothing changes.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parents[2]
LINUX_ONLY = (
    "setsid",
    "timeout",
    "bwrap",
    "systemd-inhibit",
    "systemd-analyze",
    "prlimit",
    "taskset",
)
NAMESPACES = ["unshare", "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]


def why_not() -> str:
    """Why there can be no emulation here; nothing if there can."""
    if not shutil.which("unshare"):
        return "there is no `unshare` (util-linux)"
    tried = subprocess.run(
        [*NAMESPACES, "mount", "--version"], capture_output=True, text=True
    )
    return tried.stderr.strip() or "no namespaces" if tried.returncode else ""


def enter(command: list[str]) -> None:
    """Run a command on the emulated macOS, or on macOS itself, in place of this
    process; or say why not."""
    if sys.platform == "darwin":
        os.execvp(command[0], command)
    if reason := why_not():
        print(
            f"skipped: macOS is emulated in namespaces that root can make, and {reason}"
        )
        return
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    os.execvpe(
        NAMESPACES[0],
        [*NAMESPACES, sys.executable, "-m", "tests.darwin", "--inside", *command],
        env,
    )


def inside(command: list[str]) -> int:
    """Be the first process of the namespace: reap all orphans until the command has
    ended."""
    with tempfile.NamedTemporaryFile("w", suffix=".pth") as longer:
        (found,) = Path(sysconfig.get_path("purelib")).glob("*ralph_prd.pth")
        longer.write(f"{found.read_text().strip()}\nimport tests.darwin.emulation\n")
        longer.flush()
        hide(longer.name, found)
        for program in filter(None, map(shutil.which, LINUX_ONLY)):
            hide(os.devnull, Path(program))
    pid = subprocess.Popen(command).pid
    ended, status = os.wait()
    while ended != pid:
        ended, status = os.wait()
    for left in psutil.process_iter(["cmdline"]):
        if left.pid != os.getpid():
            print(
                "still running:", left.pid, *left.info["cmdline"] or (), file=sys.stderr
            )
    return os.waitstatus_to_exitcode(status) & 0xFF


def hide(what: str, path: Path) -> None:
    """Let `what` stand where `path` is, in this namespace."""
    subprocess.run(["mount", "--bind", what, path], check=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        sys.exit(inside(sys.argv[2:]))
    enter(sys.argv[1:])
