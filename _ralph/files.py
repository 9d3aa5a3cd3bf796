"""Files: written atomically and durably, read without following a trap."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
import sys
from pathlib import Path

TEMPORARY = ".ralph-tmp"
"""How the names of files end that are being written; one that a kill left behind is nobody's."""
Signature = tuple[int, ...]


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
    import tempfile

    path = Path(os.path.realpath(path))
    if mode is None:
        mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else 0o666 & ~_umask()
    fd, temporary = tempfile.mkstemp(prefix=f".{path.name}.", suffix=TEMPORARY, dir=path.parent)
    try:
        try:
            write_all(fd, data)
            os.fchmod(fd, mode)
            os.fsync(fd)
        finally:
            os.close(fd)
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise
    fsync_dir(path.parent)


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


def signature(path: Path) -> Signature | None:
    """Changes whenever the file does: the kernel sets ctime, and no user can set it back."""
    try:
        found = path.lstat()
    except OSError:
        return None
    return (
        found.st_ino, found.st_dev, found.st_mode, found.st_nlink,
        found.st_size, found.st_mtime_ns, found.st_ctime_ns,
    )  # fmt: skip


def clear(path: Path) -> Path:
    """`path`, with nothing standing there any more: for files that ralph is about to make anew."""
    if path.is_dir() and not path.is_symlink():
        open_up(path)
        shutil.rmtree(path, ignore_errors=True)
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


def _open_one(entry: str, since: float) -> bool:
    with contextlib.suppress(OSError):  # gone meanwhile, or another user's
        found = os.lstat(entry)
        needed = {stat.S_IFDIR: 0o700, stat.S_IFREG: 0o400}.get(stat.S_IFMT(found.st_mode), 0)
        if needed & ~found.st_mode and found.st_ctime >= since:
            os.chmod(entry, stat.S_IMODE(found.st_mode) | needed)
            return True
    return False


def move_aside(path: Path, folder: Path, label: str) -> Path | None:
    """Move whatever stands at `path` into `folder` under a free name; None if nothing stands there."""
    if not os.path.lexists(path):
        return None
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(1, 10_000):
        target = folder / f"{label}-{number}"
        if not os.path.lexists(target):
            break
    try:
        os.rename(path, target)
    except OSError:  # another file system: a copy of a regular file or a folder is what can be kept
        if path.is_dir() and not path.is_symlink():
            with contextlib.suppress(shutil.Error):  # a FIFO in it cannot be kept, all else is
                shutil.copytree(path, target, symlinks=True)
        else:
            target.write_bytes(read_regular(path) or b"")
        clear(path)
    return target


def _umask() -> int:
    mask = os.umask(0o022)
    os.umask(mask)
    return mask
