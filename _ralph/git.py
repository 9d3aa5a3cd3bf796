"""git: every call of it, in an environment that nobody else decides on."""

from __future__ import annotations

import contextlib
import functools
import os
import subprocess
import threading
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

from _ralph import files, text
from _ralph.ends import BadInput, RalphError, TryLater

GIT_TIMEOUT = 600.0
_QUIET = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.splitIndex=false", "core.untrackedCache=false",
    "core.safecrlf=false", "core.quotePath=false", "gc.auto=0",
    "core.trustctime=true", "core.checkStat=default",  # else a file's time can be set back unseen
    "core.fsync=all",  # by itself git syncs a ref, but not the commit that it names
)  # fmt: skip
_BROKEN = (
    "not a git repository", "dubious ownership", "bad config", "config value", "repo version",
    "must be run in a work tree",
)  # fmt: skip
_LITTLE = 1 << 16  # where git could not write a ref, it does not say that the disk is full
_FULL = ("No space left on device", "Out of diskspace", "Disk quota exceeded")
_IDENTITY = tuple(
    f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL", "DATE")
)


class Git:
    """git in one working tree: call it for its output as text. `dir` is where git keeps this tree,
    `common` what it shares with other worktrees of the repository."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.mend: Callable[[], bool] | None = None
        """Called when files or folders are closed to git; whether it is to be asked again."""
        self.dir = git_dir(root)
        self.common = _common_dir(self.dir)

    def __call__(
        self,
        *words: str,
        stdin: bytes = b"",
        env: dict[str, str] | None = None,
        check: bool = True,
        timeout: float = GIT_TIMEOUT,
    ) -> str:
        """RalphError with git's words where it fails, or nothing without `check`."""
        said = git(self.root, *words, stdin=stdin, env=env, check=check, timeout=timeout, mend=self.mend)
        return os.fsdecode(said)

    def names(
        self, *words: str, stdin: bytes = b"", env: dict[str, str] | None = None, check: bool = True
    ) -> list[str]:
        """The output of a call with -z."""
        return [name for name in self(*words, stdin=stdin, env=env, check=check).split("\0") if name]

    def name_of(self, path: Path) -> str:
        """What git calls this file; nothing if it lies elsewhere."""
        try:
            return path.absolute().relative_to(self.root).as_posix()
        except ValueError:
            return ""


def git(
    cwd: Path,
    *words: str,
    stdin: bytes = b"",
    env: dict[str, str] | None = None,
    check: bool = True,
    timeout: float = GIT_TIMEOUT,
    mend: Callable[[], bool] | None = None,
) -> bytes:
    """One git call with hooks, fsmonitor and prompts off; RalphError if it fails and `check`. `mend` is
    as in `Git`."""
    try:
        done = subprocess.run(
            _quiet(words),
            cwd=cwd,
            input=stdin,
            capture_output=True,
            timeout=timeout,
            env={**environment(), **(env or {})},
        )
    except FileNotFoundError:
        raise BadInput("git is not installed, or the folder is gone; --no-git works without it") from None
    except subprocess.TimeoutExpired:
        raise RalphError(f"git {words[0]} did not end within {text.duration(timeout)}") from None
    if mend and b"Permission denied" in done.stderr and mend():
        return git(cwd, *words, stdin=stdin, env=env, check=check, timeout=timeout)
    if check and done.returncode != 0:
        said = text.one_line(done.stderr.decode("utf-8", "replace"), 300)
        if any(word in said for word in _BROKEN):
            raise BadInput(
                f"git cannot work here: {said}; mend that (see .git/HEAD and .git/config), then run it again"
            )
        disk = os.statvfs(cwd)
        if any(word in said for word in _FULL) or disk.f_bavail * disk.f_frsize < _LITTLE:
            raise TryLater(f"the disk is full (git {words[0]}: {said}); run the same command again")
        raise RalphError(f"git {words[0]} failed: {said or f'exit {done.returncode}'}")
    return done.stdout if done.returncode == 0 else b""


@contextlib.contextmanager
def git_output(cwd: Path, *words: str, timeout: float = GIT_TIMEOUT) -> Iterator[IO[bytes]]:
    """The output of one git call as it comes, for what may be too large to hold. It ends with the
    call, at `timeout`, or when nobody reads on; no error tells which."""
    with subprocess.Popen(
        _quiet(words), cwd=cwd, env=environment(),
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    ) as process:  # fmt: skip
        assert process.stdout is not None
        timer = threading.Timer(timeout, process.kill)
        timer.start()
        try:
            yield process.stdout
        finally:
            timer.cancel()
            process.kill()


def top_level(folder: Path) -> Path | None:
    """The root of the git working tree around `folder`, or None; BadInput if git cannot read it."""
    found = git_places(folder)
    return found[0] if found else None


def git_places(folder: Path) -> tuple[Path, Path] | None:
    """The root of the git working tree around `folder` and its git directory (a worktree has one of
    its own), or None; BadInput if git cannot read it."""
    there = any((parent / ".git").exists() for parent in (folder, *folder.parents))
    asked = ("--show-toplevel", "--is-inside-work-tree", "--absolute-git-dir")
    found = os.fsdecode(git(folder, "rev-parse", *asked, check=there))
    root, _, git_dir = found.rstrip("\n").partition("\ntrue\n")  # names may have newlines
    return (Path(root), Path(git_dir)) if found else None


@functools.cache
def git_dir(root: Path) -> Path:
    """Where git keeps the working tree at `root`."""
    return Path(os.fsdecode(git(root, "rev-parse", "--absolute-git-dir")).removesuffix("\n"))


def remove_locks(git_dir: Path) -> None:
    """Remove the lock files of git calls that died with an agent or with a run."""
    names = ("index.lock", "HEAD.lock", "ralph/index.lock")
    locks = [*(git_dir / name for name in names), *git_dir.glob("refs/**/*.lock")]
    branch = os.fsdecode(files.read_regular(git_dir / "HEAD") or b"").removeprefix("ref: ").strip()
    if branch.startswith("refs/heads/") and ".." not in branch:  # an agent may have written it
        locks.append(_common_dir(git_dir) / f"{branch}.lock")  # of the others there, people may hold some
    for lock in locks:
        files.clear(lock)


def nul(names: Iterable[str]) -> bytes:
    """Names as a call with -z and --stdin takes them."""
    return os.fsencode("\0".join(names) + "\0")


def environment() -> dict[str, str]:
    """The environment of git calls: where git was told to look from outside does not count."""
    kept = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", *_IDENTITY)
    clean = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in kept}
    return {**clean, "GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C"}


def _quiet(words: Iterable[str]) -> list[str]:
    return ["git", *(word for setting in _QUIET for word in ("-c", setting)), *words]


def _common_dir(git_dir: Path) -> Path:
    """Where a linked worktree finds what it shares with the others, by gitrepository-layout."""
    shared = files.read_regular(git_dir / "commondir")
    return Path(os.path.realpath(git_dir / os.fsdecode(shared).rstrip("\n"))) if shared else git_dir
