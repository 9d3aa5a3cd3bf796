"""Imported by ralph in its process, it kills that, or a loop, at state-changing call
number CRASH_AT.

CRASH_HOW is `before`, `after` or `half` of it; `full` kills nothing, but lets the call
fail as on a full disk. CRASH_WHO says who dies: the `caller` alone, the `supervisor`
alone, `both`, or `everything`, which is all loops too. Without CRASH_AT it counts the
calls into the file CRASH_COUNT, with a line for each in CRASH_COUNT.calls. Supervisor
and loops share the counter.
"""

from __future__ import annotations

import errno
import fcntl
import functools
import os
import signal
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.git import git, throwaway
from _ralph.git.checkout import Checkout

COUNTER = os.environ["CRASH_COUNT"]
AT = int(os.environ.get("CRASH_AT", "0"))
HOW = os.environ.get("CRASH_HOW", "before")
WHO = os.environ.get("CRASH_WHO", "both")
SUPERVISOR = os.getpid()
_READS = [
    "rev-parse",
    "config",
    "ls-files",
    "check-ignore",
    "cat-file",
    "for-each-ref",
    "ls-tree",
    "status",
    "merge-base",
    "diff-tree",
    "rev-list",
    "log",
    "symbolic-ref",
    "worktree",
    "--version",
    "var",
    "check-ref-format",
    "merge-tree",
]
_write, _open = os.write, os.open
_inside = 0  # a call that is made of others counts as one


def _next(label: str) -> int:
    fd = _open(COUNTER, os.O_RDWR | os.O_CREAT)
    fcntl.flock(fd, fcntl.LOCK_EX)
    number = int(os.read(fd, 20) or b"0") + 1
    os.lseek(fd, 0, os.SEEK_SET)
    _write(fd, str(number).encode())
    if not AT:
        log = _open(f"{COUNTER}.calls", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        who = "supervisor" if os.getpid() == SUPERVISOR else "loop"
        _write(log, f"{number} {who} {label}\n".encode())
        os.close(log)
    os.close(fd)
    return number


def _die() -> None:
    doomed = {os.getpid()}
    if WHO == "supervisor":
        doomed = {SUPERVISOR}
    if WHO in ("both", "everything"):
        doomed.add(SUPERVISOR)
    if WHO == "everything":
        children = Path(f"/proc/{SUPERVISOR}/task/{SUPERVISOR}/children")
        doomed.update(map(int, children.read_text().split()))
    for pid in sorted(doomed, key=lambda pid: (pid == os.getpid(), pid)):
        os.kill(pid, signal.SIGKILL)


def _label(name: str, given: tuple[Any, ...]) -> str:
    if name == "git":
        return f"git {' '.join(_words(given[1:]))[:60]}"
    first = given[0]
    if isinstance(first, int):
        label = [name, os.path.basename(os.readlink(f"/proc/self/fd/{first}"))]
        data = bytes(given[1]) if name == "write" else b""
        for word in ("start", "verdict", "passed"):
            if f'"{word}"'.encode() in data:
                label.append(word)
        return " ".join(label)
    if name in ("replace", "rename"):
        first = given[1]
    if not isinstance(first, str | Path):
        first = first.root
    return f"{name} {os.path.basename(os.fspath(first))}"


def _words(given: Any) -> list[str]:
    """The words of a git call, without settings."""
    found = list(given)
    while found and found[0] in ("-c", "-C"):
        del found[:2]
    return found


def _wrap(
    name: str, call: Callable[..., Any], half: Callable[..., Any] | None = None
) -> Callable[..., Any]:
    @functools.wraps(call)
    def wrapped(*args: Any, **given: Any) -> Any:
        global _inside
        if _inside or not _counts(name, args):
            return call(*args, **given)
        number = _next("" if AT else _label(name, args))
        if number == AT and HOW == "before":
            _die()
        if number == AT and HOW == "full" and not _is_pipe(name, args):
            if name == "git":
                return git.Done(128, "", "fatal: cannot write: No space left on device")
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        # Who lives on after half a call would do the whole of it once more.
        if number == AT and HOW == "half" and half and WHO != "supervisor":
            half(*args, **given)
            _die()
        _inside += 1
        try:
            return call(*args, **given)
        finally:
            _inside -= 1
            if number == AT and HOW != "full":
                _die()

    return wrapped


def _counts(name: str, args: tuple[Any, ...]) -> bool:
    if name == "open":
        flags = args[1] if len(args) > 1 else 0
        for_writing = bool(flags & (os.O_WRONLY | os.O_RDWR))
        return for_writing and args[0] != os.devnull
    if name == "git":
        return _words(args[1:])[0] not in _READS
    # of nothing, or of what is there, these change nothing
    if name == "mkdir":
        return not os.path.lexists(args[0])
    if name in ("unlink", "clear"):
        return os.path.lexists(args[0])
    return bool(args) and args[0] not in (1, 2)


def _is_pipe(name: str, args: tuple[Any, ...]) -> bool:
    return name == "write" and stat.S_ISFIFO(os.fstat(args[0]).st_mode)


def _half_written(fd: int, data: Any) -> None:
    _write(fd, bytes(data)[: len(data) // 2])


def _half_file(path: Path, data: Any) -> None:
    """What a file holds of whose text half was written."""
    with path.open("wb") as file:
        file.write(os.fsencode(data)[: len(data) // 2])


def _half_cleared(path: Path) -> None:
    """Every second file of a folder gone."""
    global _inside
    _inside += 1
    if path.is_dir() and not path.is_symlink():
        for file in list(files.walk(path))[::2]:
            file.unlink()


def _half_renewed(place: Checkout, *_given: Any) -> None:
    """A `.git` that is not whole yet."""
    own = place.root / ".git"
    _half_cleared(own)
    (own / "refs/heads").mkdir(parents=True, exist_ok=True)
    (own / "HEAD").write_text("ref: refs/he")


def _half_git(
    repository: git.Git, *given: str, stdin: bytes = b"", timeout: float = 0, **env: str
) -> None:
    """What a git that was killed leaves: a lock on the index or on a ref, or a
    repository without HEAD."""
    cwd = repository.root
    word, *words = _words(given)
    env = {**repository.env, **env}
    index = env.get("GIT_INDEX_FILE")
    if index and word in ("read-tree", "add", "update-index", "write-tree"):
        Path(f"{index}.lock").write_bytes(b"DIRC")
    if word == "update-ref":
        told = [*stdin.decode().split(), *words]
        ref = next(one for one in told if one.startswith("refs/"))
        lock = Path(env.get("GIT_DIR") or cwd / ".git", f"{ref}.lock")
        lock.parent.mkdir(parents=True, exist_ok=True)
        lock.touch()
    if word == "init":
        (cwd / ".git" / "objects").mkdir(parents=True, exist_ok=True)


for name in ("fsync", "replace", "rename", "unlink", "open", "mkdir"):
    setattr(os, name, _wrap(name, getattr(os, name)))
os.write = _wrap("write", os.write, _half_written)
files.clear = _wrap("clear", files.clear, _half_cleared)
_path: Any = Path
for name in ("write_text", "write_bytes"):
    setattr(_path, name, _wrap(name, getattr(_path, name), _half_file))
throwaway.write_git = _wrap("write_git", throwaway.write_git, _half_renewed)
throwaway.copy_state = _wrap("copy_state", throwaway.copy_state)
_git: Any = git.Git
_git.run = _wrap("git", _git.run, _half_git)
_git.sync = _wrap("sync", _git.sync)
