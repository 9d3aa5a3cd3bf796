"""Makes of the Python that imports this one on macOS, as far as ralph can see.

What macOS lacks is gone: subreapers, /proc, memfd, pidfd, syncfs, and the environment
of system programs, which System Integrity Protection hides. What it has instead is
there: renamex_np, the id of a boot, /dev/fd as a copy of the descriptor. Not shown:
that protection itself, the Keychain, guarded folders, F_FULLFSYNC, chflags,
sandbox-exec, a file system that tells neither cases nor Unicode forms apart, BSD's sed
and date.
"""

from __future__ import annotations

# Imported first: these choose what they use by the platform.
import ctypes
import os
import platform
import resource
import select
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import tempfile
import types
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

LINUX_ONLY = {
    os: """memfd_create pidfd_open eventfd copy_file_range splice getrandom sched_getaffinity sched_setaffinity
        sched_setscheduler posix_fallocate posix_fadvise pipe2 fdatasync getxattr setxattr listxattr removexattr
        O_TMPFILE O_PATH O_DIRECT O_NOATIME getresuid getresgid setresuid setresgid waitid preadv2""",
    resource: """RLIMIT_RTTIME RLIMIT_RTPRIO RLIMIT_NICE RLIMIT_SIGPENDING RLIMIT_MSGQUEUE RLIMIT_OFILE prlimit
        RUSAGE_THREAD""",
    select: "epoll",
    signal: "sigwaitinfo sigtimedwait pidfd_send_signal SIGSTKFLT SIGPWR SIGPOLL SIGRTMIN SIGRTMAX SIGCLD",
    socket: "SOCK_CLOEXEC SOCK_NONBLOCK AF_NETLINK AF_VSOCK",
}
FUNCTIONS = ("prctl", "syncfs", "renameat2", "memfd_create", "sync_file_range")
"""Functions of the C library that macOS lacks."""
PROTECTED = ("/bin/", "/sbin/", "/usr/bin/", "/usr/sbin/")
_AT_FDCWD = -100
_BOOT = Path("/proc/sys/kernel/random/boot_id")


class Library:
    """The C library of macOS."""

    def __init__(self, real: Any, boot: bytes) -> None:
        self._real, self._boot = real, boot

    def __getattr__(self, name: str) -> Any:
        if name in FUNCTIONS:
            raise AttributeError(name)
        return getattr(self._real, name)

    def renamex_np(self, one: bytes, other: bytes, flags: int) -> int:
        done: int = self._real.renameat2(_AT_FDCWD, one, _AT_FDCWD, other, flags)
        return done

    def sysctlbyname(self, name: bytes, value: Any, *_: object) -> int:
        if name != b"kern.bootsessionuuid":
            return -1
        value.value = self._boot
        return 0


def _opened(real: Callable[..., int]) -> Callable[..., int]:
    def opened(
        path: Any, flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> int:
        said = os.fsdecode(path) if isinstance(path, str | bytes | os.PathLike) else ""
        if said.startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", said)
        if said.startswith("/dev/fd/"):
            return os.dup(int(said.removeprefix("/dev/fd/")))
        return real(path, flags, mode, dir_fd=dir_fd)

    return opened


def _hidden(
    real: Callable[[psutil.Process], dict[str, str]],
) -> Callable[[psutil.Process], dict[str, str]]:
    def environ(process: psutil.Process) -> dict[str, str]:
        if process.pid != os.getpid():
            exe = process.exe()
            if exe.startswith(PROTECTED) and "python" not in exe:
                return {}
        return real(process)

    return environ


def begin() -> None:
    boot, real = _BOOT.read_bytes().strip(), ctypes.CDLL
    platform.platform()
    sysconfig.get_config_vars()
    subprocess.run(["true"], check=True)
    shutil.which("true")
    uuid.uuid4()
    proxies = types.ModuleType("_scproxy")
    vars(proxies).update(_get_proxies=dict, _get_proxy_settings=dict)
    sys.modules["_scproxy"] = proxies
    sys.platform = "darwin"
    for module, names in LINUX_ONLY.items():
        for name in names.split():
            vars(module).pop(name, None)
    vars(tempfile)["_O_TMPFILE_WORKS"] = False
    vars(shutil)["_copyxattr"] = lambda *_, **__: None
    vars(psutil).update(LINUX=False, MACOS=True, OSX=True)
    vars(os)["open"] = _opened(os.open)
    vars(ctypes)["CDLL"] = lambda name=None, **given: Library(real(name, **given), boot)
    setattr(psutil.Process, "environ", _hidden(psutil.Process.environ))  # noqa: B010


begin()
