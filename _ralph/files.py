"""Files: written atomically and durably, read without following links or waiting for
FIFOs."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import json
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from _ralph.errors import SHORTAGES

if TYPE_CHECKING:
    import filelock

TEMPORARY = ".ralph-tmp"
"""The suffix of files that are being written; after a kill, one can be left behind."""
PIECE = 1 << 20
"""Bytes of a large file that are in memory at once."""
_PATIENCE = 600.0
"""Seconds that it may take to remove a folder."""


def resource(name: str) -> Path:
    """A file of templates/ or the schema, in a checkout as in an installed wheel."""
    package = Path(__file__).resolve().parent
    inside = package / name
    return inside if inside.exists() else package.parent / name


@functools.cache
def table(name: str) -> dict[str, Any]:
    """What a JSON file of templates/ holds."""
    found: dict[str, Any] = json.loads(resource(f"templates/{name}").read_text("utf-8"))
    return found


def digest(data: bytes) -> str:
    """A short hash, to tell two versions of a file apart."""
    return hashlib.sha256(data).hexdigest()[:16]


def fsync(fd: int) -> None:
    """Have what was written to a file on the disk. On macOS, os.fsync leaves it in the
    drive's own cache."""
    with contextlib.suppress(AttributeError, OSError):
        fcntl.fcntl(fd, fcntl.F_FULLFSYNC)  # type: ignore[attr-defined,unused-ignore]
        return  # else it is not macOS, or the file system cannot
    os.fsync(fd)


def fsync_dir(folder: Path) -> None:
    """Make a rename or a new name in `folder` durable."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fsync(fd)
    finally:
        os.close(fd)


def write_all(fd: int, data: bytes) -> None:
    """Write all of `data`; after a short write (a full disk), go on until the error
    shows."""
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def atomic_write(path: Path, data: bytes, *, durable: bool = True) -> None:
    """Replace `path` by `data`: readers see the old file or the new one, and, if it is
    `durable`, also after a power cut.

    A symlink stays a symlink (its target is replaced); the old file's owner and mode
    are kept, and a new one takes the owner of its folder. OSError leaves the old file
    as it was.
    """
    _replace(Path(os.path.realpath(path)), data, durable=durable)


def replace_if(path: Path, data: bytes, expected: bytes) -> bool:
    """Replace `path` by `data`, as `atomic_write` does, but only if it holds
    `expected`: whether it did. What somebody else saved is never overwritten.
    FileNotFoundError if the file was deleted; it is not made again.
    """
    path = Path(os.path.realpath(path))
    path.stat()
    if data == expected:
        return read_regular(path) == data
    return _replace(path, data, expected)


def _replace(
    path: Path, data: bytes, expected: bytes | None = None, durable: bool = True
) -> bool:
    """Put a new file that holds `data` in the place of `path`, if that still holds what
    is expected: whether it was."""
    there = path.stat() if path.exists() else None
    name = path.with_name(f".{path.name}.{os.urandom(6).hex()}{TEMPORARY}")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    fd = os.open(name, flags, 0o600 if there else 0o666)
    try:
        with os.fdopen(fd, "wb", buffering=0):
            write_all(fd, data)
            _give_to_owner(fd, there or path.parent.stat())
            if there:
                os.fchmod(fd, stat.S_IMODE(there.st_mode))
            if durable:
                fsync(fd)
        if expected is not None and read_regular(path) != expected:
            return False
        os.replace(name, path)
    finally:
        name.unlink(missing_ok=True)
    if durable:
        fsync_dir(path.parent)
    return True


def _give_to_owner(fd: int, about: os.stat_result) -> None:
    """Give a new file to the owner of what is there: in a container, root may work in a
    folder of somebody else's."""
    # Root may, and a member of the group; EINVAL where the owner has no name here.
    with contextlib.suppress(OSError):
        os.fchown(fd, about.st_uid, about.st_gid)


def append(path: Path, data: bytes) -> None:
    """Add `data` at the end of `path` with one write, durably; a new file's name too,
    and it takes the owner of its folder."""
    new = not path.exists()
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    fd = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)
    try:
        if new:
            _give_to_owner(fd, path.parent.stat())
        write_all(fd, data)
        fsync(fd)
    finally:
        os.close(fd)
    if new:
        fsync_dir(path.parent)


def read_text(path: Path) -> str:
    """The content of a text file; nothing if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def read_regular(path: Path, limit: int = -1) -> bytes | None:
    """The bytes of `path`, at most `limit`, if it is a regular file (not a link, FIFO
    or folder), else None.

    Never blocks: an agent can put a FIFO in the place of any file.
    """
    file = open_regular(path)
    if file is None:
        return None
    with file:
        return file.read(limit)


def open_regular(path: Path) -> BinaryIO | None:
    """The same, opened for reading."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    if stat.S_ISREG(os.fstat(fd).st_mode):
        return os.fdopen(fd, "rb")
    os.close(fd)
    return None


def regular(path: str | Path, follow: bool = True) -> os.stat_result | None:
    """What a regular file is like, or, with `follow`, one that a link leads to; None if
    there is none."""
    try:
        about = os.stat(path, follow_symlinks=follow)
    except OSError:
        return None
    return about if stat.S_ISREG(about.st_mode) else None


def copy(source: str, target: str) -> bool:
    """Copy a regular file, or the one that a link leads to, with its mode and time,
    unless `target` has its size and time already; whether there is one. OSError if the
    system is out of something."""
    import shutil  # 5 ms with what it imports

    wanted, there = regular(source), regular(target, follow=False)
    if wanted is None:
        return False
    if there:
        found = (there.st_size, there.st_mtime_ns)
        if found == (wanted.st_size, wanted.st_mtime_ns):
            return True
    os.makedirs(os.path.dirname(target), exist_ok=True)
    try:
        shutil.copy2(source, clear(Path(target)))
    except OSError as error:
        if error.errno in SHORTAGES:
            raise
        return False
    return True


def signature(path: Path) -> list[int]:
    """What changes whenever the file does, as only the kernel sets ctime; empty if it
    is gone."""
    try:
        about = path.lstat()
    except OSError:
        return []
    return [about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns]


def clear(path: Path) -> Path:
    """Remove what is at `path`, a file or a folder with all in it; `path`."""
    if path.is_dir() and not path.is_symlink():
        _call("rm", "-rf", "--", path)
        if path.exists():  # we may not write to a folder in it
            open_up(path)
            _call("rm", "-rf", "--", path)
    # A folder on the way can be a file now
    with contextlib.suppress(FileNotFoundError, NotADirectoryError):
        path.unlink()
    return path


def lock_at(path: Path) -> filelock.BaseFileLock:
    """The lock of which `path` is the file, not held yet; who cannot have it gets a
    TimeoutError. What is there and is no file is removed."""
    import filelock  # 90 ms, as it brings asyncio

    make_way(path)
    return filelock.FileLock(path)


def make_way(path: Path) -> None:
    """Remove what is at `path` and is no file, such as a FIFO."""
    if os.path.lexists(path) and not regular(path, follow=False):
        clear(path)


def open_up(folder: Path) -> None:
    """Give its owner access to all in `folder`: some tools leave read-only caches, and
    agents anything."""
    _call("chmod", "-R", "u+rwX", folder)


def _call(*words: str | Path) -> None:
    import subprocess

    subprocess.run(words, stderr=subprocess.DEVNULL, timeout=_PATIENCE)


def walk(top: Path) -> Iterator[Path]:
    """Every file and link below the folder `top`, or `top` itself if it is none; links
    are not followed."""
    if top.is_symlink() or not top.is_dir():
        yield top
        return
    for path, folders, names in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(path, name))]
        yield from (Path(path, name) for name in (*names, *links))
