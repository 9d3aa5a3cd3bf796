"""Runs ralph once a tracer is attached to this process: calls are counted from its own
first one."""

from __future__ import annotations

import sys
import time
from pathlib import Path


def wait_for_tracer(seconds: float) -> None:
    end = time.monotonic() + seconds
    while "TracerPid:\t0\n" in Path("/proc/self/status").read_text():
        if time.monotonic() > end:
            sys.exit("no tracer came")
        time.sleep(0.01)


if __name__ == "__main__":
    wait_for_tracer(20)
    import ralph

    sys.argv[0] = "ralph"
    ralph.main()
