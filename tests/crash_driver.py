"""Imported by ralph in its process, it kills that at state-changing call number CRASH_AT.

CRASH_HOW is `before`, `after` or, for writes, `half`; `full` kills nothing, but lets the call fail as
on a full disk. Without CRASH_AT it counts the calls into
the file CRASH_COUNT. The counter is shared by supervisor and loop through a file.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import signal
import subprocess
from collections.abc import Callable
from typing import Any

COUNTER = os.environ["CRASH_COUNT"]
AT = int(os.environ.get("CRASH_AT", "0"))
HOW = os.environ.get("CRASH_HOW", "before")
_real_write, _real_open = os.write, os.open


def _next() -> int:
    fd = _real_open(COUNTER, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    number = int(os.read(fd, 20) or b"0") + 1
    os.lseek(fd, 0, os.SEEK_SET)
    _real_write(fd, str(number).encode())
    os.close(fd)
    return number


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _wrap(
    call: Callable[..., Any], counts: Callable[..., bool] = lambda *_a, **_k: True
) -> Callable[..., Any]:
    @functools.wraps(call)
    def wrapped(*args: Any, **given: Any) -> Any:
        if not counts(*args, **given):
            return call(*args, **given)
        number = _next()
        if number == AT and HOW == "before":
            _die()
        if number == AT and HOW == "full":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        if number == AT and HOW == "half" and call is _real_write:
            call(args[0], bytes(args[1])[: len(args[1]) // 2])
            _die()
        try:
            return call(*args, **given)
        finally:
            if number == AT:
                _die()

    return wrapped


def _for_writing(_path: Any, flags: int = 0, *_a: Any, **_k: Any) -> bool:
    return bool(flags & (os.O_WRONLY | os.O_RDWR))


for name in ("write", "fsync", "replace", "rename", "unlink"):
    setattr(os, name, _wrap(getattr(os, name), lambda *a, **_k: not (a and a[0] in (1, 2))))
os.open = _wrap(os.open, _for_writing)
subprocess.run = _wrap(subprocess.run)
