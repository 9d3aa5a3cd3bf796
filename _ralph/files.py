"""Files: written atomically and durably, read without following a trap."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import itertools
import os
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

TEMPORARY = ".ralph-tmp"
"""How the names of files end that are being written; one that a kill left behind is nobody's."""


def resource(name: str) -> Path:
    """A file of templates/ or the schema, in a checkout as in an installed wheel."""
    package = Path(__file__).resolve().parent
    inside = package / name
    return inside if inside.exists() else package.parent / name


def digest(data: bytes) -> str:
    """A short fingerprint, for telling two versions of a file apart."""
    return hashlib.sha256(data).hexdigest()[:16]


def fsync_dir(folder: Path) -> None:
    """Make a rename or a new name in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def sync_all(folder: Path) -> None:
    """Make everything durable that was written on this file system: agents and git sync little."""
    import ctypes

    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        if sys.platform != "linux":
            os.sync()
        elif ctypes.CDLL(None, use_errno=True).syncfs(fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(folder))
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; a short write (a full disk) goes on until the error shows."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def atomic_write(path: Path, data: bytes, mode: int | None = None) -> None:
    """Replace `path` by `data`: readers see the old file or the new one, also after a power cut.

    A symlink stays a symlink (its target is replaced); the old file's mode is kept unless
    `mode` says otherwise. OSError leaves the old file as it was.
    """
    path = Path(os.path.realpath(path))
    if mode is None and path.exists():
        mode = stat.S_IMODE(path.stat().st_mode)
    with _temporary(path, data, mode) as temporary:
        os.replace(temporary, path)
    fsync_dir(path.parent)


def exchange(path: Path, data: bytes, expected: bytes) -> bytes | None:
    """Replace `path` by `data` if it holds `expected`, as `atomic_write` does, and never lose what
    somebody saved in between: None; or the newer bytes, which then stand there (half of them, if they
    are still being written). FileNotFoundError if the file was deleted: it is not made again.
    """
    path = Path(os.path.realpath(path))
    with _temporary(path, data, stat.S_IMODE(path.stat().st_mode)) as temporary:
        stands = _at_rest(path)
        if stands == expected != data:
            newer = _change_places(temporary, path, data, expected)
            fsync_dir(path.parent)
            return newer
        path.lstat()  # is it gone?
        temporary.unlink()
    return None if stands == data else stands


def _change_places(temporary: Path, path: Path, data: bytes, expected: bytes) -> bytes | None:
    """Let the two files change places, and look only then at the one that came out: were it looked at
    before, a save could come in between. What nobody expected is newer, and goes back in its turn."""
    put, out = data, expected
    while swapped(temporary, path):
        found = _at_rest(temporary)
        if found == out:
            temporary.unlink()
            return None if put is data else put
        put, out = found, put
    os.replace(temporary, path)  # this file system cannot do it; what stood there was read right before
    return None if put is data else put


def swapped(one: Path, other: Path) -> bool:
    """Let two files change places in one step; whether this system can. FileNotFoundError if one is gone."""
    import ctypes

    names, exchange = (os.fsencode(one), os.fsencode(other)), 2  # RENAME_EXCHANGE, and RENAME_SWAP
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if sys.platform == "darwin":
            failed = libc.renamex_np(*names, exchange)
        else:
            here = -100  # AT_FDCWD
            failed = libc.renameat2(here, names[0], here, names[1], exchange)
    except AttributeError:  # a C library from before it
        return False
    if failed and ctypes.get_errno() == errno.ENOENT:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(other))
    return not failed


def _at_rest(path: Path, patience: float = 0.1) -> bytes:
    """The bytes of a file once nobody has it open for writing, or after `patience` seconds."""
    end = time.monotonic() + patience
    while _is_written(path) and time.monotonic() < end:
        time.sleep(0.001)
    return read_regular(path) or b""


def _is_written(path: Path) -> bool:
    """Whether somebody has a file open for writing; only Linux tells, by refusing a lease on it."""
    if sys.platform != "linux":
        return False
    import fcntl
    import signal

    fd = -1
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        fcntl.fcntl(fd, fcntl.F_SETSIG, signal.SIGURG)  # who breaks it sends a signal: not one that kills
        fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_RDLCK)
    except OSError as error:
        return error.errno == errno.EAGAIN
    finally:
        if fd >= 0:
            os.close(fd)  # and the lease with it
    return False


@contextlib.contextmanager
def _temporary(path: Path, data: bytes, mode: int | None) -> Iterator[Path]:
    """A new file beside `path` that holds `data`, synced, to be put in its place; removed on an error,
    but not if it has changed places with a file that is still wanted."""
    name = path.with_name(f".{path.name}.{os.urandom(6).hex()}{TEMPORARY}")
    fd = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600 if mode else 0o666)
    made = os.fstat(fd).st_ino
    try:
        try:
            write_all(fd, data)
            if mode is not None:
                os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        yield name
    except BaseException as error:
        with contextlib.suppress(OSError):
            if isinstance(error, FileNotFoundError) or os.lstat(name).st_ino == made:
                os.unlink(name)
        raise


def append(path: Path, data: bytes) -> None:
    """Add `data` at the end of `path` with one write, durably; a new file's name too."""
    new = not path.exists()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o666)
    try:
        written = os.write(fd, data)
        if written < len(data):
            write_all(fd, data[written:])
        os.fsync(fd)
    finally:
        os.close(fd)
    if new:
        fsync_dir(path.parent)


def read_regular(path: Path, limit: int = -1) -> bytes | None:
    """The bytes of `path` if it is a regular file (not a link, FIFO or folder), else None.

    Never blocks: what an agent put in a state file's place may be a FIFO. At most `limit` bytes
    are read, for it may be huge too.
    """
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        return None
    with os.fdopen(fd, "rb") as file:
        return file.read(limit)


def signature(path: Path) -> tuple[int, ...] | None:
    """Changes whenever the file does: the kernel sets ctime, and no user can set it back."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


def clear(path: Path) -> Path:
    """`path`, with nothing standing there any more: for files that ralph is about to make anew."""
    if path.is_dir() and not path.is_symlink():
        try:
            shutil.rmtree(path, ignore_errors=True)
            if path.exists():  # a folder in it is closed to us
                open_up(path)
                shutil.rmtree(path, ignore_errors=True)
        except RecursionError:  # thousands of folders, one in the other
            subprocess.run(["rm", "-rf", "--", path], stderr=subprocess.DEVNULL, timeout=60)
    path.unlink(missing_ok=True)
    return path


def open_up(folder: Path, since: float = 0.0) -> bool:
    """Open to their owner the folders, and for reading the files, in `folder` that were closed to him
    since then (unix seconds); whether there was one. Tools leave caches that way, and agents anything."""
    opened = _open_one(str(folder), since)
    for path, folders, names in os.walk(folder):  # goes into a folder after it was opened
        for name in (*folders, *names):
            opened = _open_one(os.path.join(path, name), since) or opened
    return opened


def walk(folder: Path) -> Iterator[Path]:
    """Every file and link below `folder`; links are not followed."""
    for path, folders, names in os.walk(folder):
        links = [name for name in folders if os.path.islink(os.path.join(path, name))]
        yield from (Path(path, name) for name in (*names, *links))


def _open_one(entry: str, since: float) -> bool:
    with contextlib.suppress(OSError):  # gone meanwhile, or another user's
        found = os.lstat(entry)
        needed = {stat.S_IFDIR: 0o700, stat.S_IFREG: 0o400}.get(stat.S_IFMT(found.st_mode), 0)
        if needed & ~found.st_mode and found.st_ctime >= since:
            os.chmod(entry, stat.S_IMODE(found.st_mode) | needed)
            return True
    return False


def move_aside(path: Path, folder: Path, label: str) -> Path:
    """Move a file into `folder` under a free name."""
    folder.mkdir(parents=True, exist_ok=True)
    names = (folder / f"{label}-{number}" for number in itertools.count(1))
    target = next(name for name in names if not os.path.lexists(name))
    shutil.move(path, target)
    return target
