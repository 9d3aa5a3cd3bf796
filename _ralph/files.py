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
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, BinaryIO

from _ralph.errors import SHORTAGES

if TYPE_CHECKING:
    import filelock

TEMPORARY = ".ralph-tmp"
"""The suffix of files that are being written; after a kill, one can be left behind."""
PIECE = 1 << 20
"""Bytes of a large file that are in memory at once."""
_PATIENCE = 600.0
"""Seconds that a copy of a file, or a look through a folder, may take."""


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


def atomic_write(
    path: Path, data: bytes, mode: int | None = None, *, durable: bool = True
) -> None:
    """Replace `path` by `data`: readers see the old file or the new one, and, if it is
    `durable`, also after a power cut.

    A symlink stays a symlink (its target is replaced); the old file's mode is kept
    unless `mode` says otherwise. OSError leaves the old file as it was.
    """
    path = Path(os.path.realpath(path))
    if mode is None and path.exists():
        mode = stat.S_IMODE(path.stat().st_mode)
    _replace(path, data, mode, lambda: True, durable)


def replace_if(path: Path, data: bytes, expected: bytes) -> bool:
    """Replace `path` by `data`, as `atomic_write` does, but only if it holds
    `expected`: whether it did. What somebody else saved is never overwritten.
    FileNotFoundError if the file was deleted; it is not made again.
    """
    path = Path(os.path.realpath(path))
    mode = stat.S_IMODE(path.stat().st_mode)
    if data == expected:
        return read_regular(path) == data
    return _replace(path, data, mode, lambda: read_regular(path) == expected)


def _replace(
    path: Path,
    data: bytes,
    mode: int | None,
    may: Callable[[], bool],
    durable: bool = True,
) -> bool:
    """Put a new file that holds `data` in the place of `path`, if it still may be:
    whether it was."""
    name = path.with_name(f".{path.name}.{os.urandom(6).hex()}{TEMPORARY}")
    fd = os.open(
        name,
        os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC,
        0o600 if mode else 0o666,
    )
    try:
        with os.fdopen(fd, "wb", buffering=0):
            write_all(fd, data)
            if mode is not None:
                os.fchmod(fd, mode)
            if durable:
                fsync(fd)
        if replaced := may():
            os.replace(name, path)
    finally:
        name.unlink(missing_ok=True)
    if replaced and durable:
        fsync_dir(path.parent)
    return replaced


def append(path: Path, data: bytes) -> None:
    """Add `data` at the end of `path` with one write, durably; a new file's name
    too."""
    new = not path.exists()
    flags = (
        os.O_WRONLY
        | os.O_APPEND
        | os.O_CREAT
        | os.O_NOFOLLOW
        | os.O_NONBLOCK
        | os.O_CLOEXEC
    )
    fd = os.open(path, flags, 0o666)
    try:
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
    unless `target` has its size and time already; whether there is one. `cp` keeps the
    holes of a sparse file. OSError if the system is out of something."""
    import subprocess

    wanted, there = regular(source), regular(target, follow=False)
    if wanted is None:
        return False
    if there and (there.st_size, there.st_mtime_ns) == (
        wanted.st_size,
        wanted.st_mtime_ns,
    ):
        return True
    os.makedirs(os.path.dirname(target), exist_ok=True)
    words, env = (
        ["cp", "-pL", "--", source, str(clear(Path(target)))],
        {**os.environ, "LC_ALL": "C"},
    )
    done = subprocess.run(words, stderr=subprocess.PIPE, timeout=_PATIENCE, env=env)
    for number in SHORTAGES:
        if os.strerror(number).encode() in done.stderr:
            raise OSError(number, os.strerror(number), target)
    return done.returncode == 0


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
        import shutil  # 5 ms with what it imports

        try:
            shutil.rmtree(path, ignore_errors=True)
            if path.exists():  # we may not write to a folder in it
                open_up(path)
                shutil.rmtree(path, ignore_errors=True)
        except RecursionError:  # thousands of folders, one in the other
            import subprocess

            subprocess.run(
                ["rm", "-rf", "--", path], stderr=subprocess.DEVNULL, timeout=_PATIENCE
            )
    with contextlib.suppress(
        FileNotFoundError, NotADirectoryError
    ):  # a folder on the way can be a file now
        try:
            path.unlink()
        except PermissionError:
            if not path.is_symlink():
                open_up(path)
            path.unlink()
    return path


def lock_at(path: Path) -> filelock.BaseFileLock:
    """The lock of which `path` is the file, not held yet. What is there and is no file
    is removed."""
    import filelock

    make_way(path)
    return filelock.FileLock(path)


def make_way(path: Path) -> None:
    """Remove what is at `path` and is no file, such as a FIFO."""
    if os.path.lexists(path) and not regular(path, follow=False):
        clear(path)


def fill(top: Path, wanted: Mapping[str, bytes], folders: Collection[str] = ()) -> None:
    """Make the folder `top` hold the files `wanted` and these `folders`, by their names
    in it, and nothing else. A file that is there already stays: to remove one that is
    on the disk takes longer than to read it.
    """
    real = {
        *folders,
        *(str(folder) for name in wanted for folder in PurePosixPath(name).parents),
    }
    missing = dict(wanted)
    if not _is_ours(top):
        clear(top)
    for path, below, names in os.walk(top):
        for entry in [Path(path, name) for name in (*below, *names)]:
            name = entry.relative_to(top).as_posix()
            if name in real and _is_ours(entry):
                continue
            if (
                name in wanted
                and read_regular(entry, len(wanted[name]) + 1) == wanted[name]
            ):
                del missing[name]
                continue
            clear(entry)
            if entry.name in below:
                below.remove(entry.name)
    for folder in real:
        (top / folder).mkdir(parents=True, exist_ok=True)
    for name, data in missing.items():
        (top / name).write_bytes(data)


def _is_ours(folder: Path) -> bool:
    """Whether it is a folder, and no link to one, in which we can do what we like."""
    return (
        folder.is_dir()
        and not folder.is_symlink()
        and os.access(folder, os.R_OK | os.W_OK | os.X_OK)
    )


def open_up(folder: Path) -> None:
    """Give its owner access to all in `folder`: some tools leave read-only caches, and
    agents anything. On macOS anybody can lock a file of their own."""
    import subprocess

    for words in (["chflags", "-R", "nouchg,nouappnd"], ["chmod", "-R", "u+rwX"]):
        with contextlib.suppress(
            FileNotFoundError, PermissionError
        ):  # Linux has no chflags
            subprocess.run(
                [*words, str(folder)], stderr=subprocess.DEVNULL, timeout=_PATIENCE
            )


def walk(top: Path) -> Iterator[Path]:
    """Every file and link below the folder `top`, or `top` itself if it is none; links
    are not followed."""
    if top.is_symlink() or not top.is_dir():
        yield top
        return
    for path, folders, names in os.walk(top):
        links = [name for name in folders if os.path.islink(os.path.join(path, name))]
        yield from (Path(path, name) for name in (*names, *links))
