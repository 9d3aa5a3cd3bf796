"""git: every call has a deadline, and settings that no agent can change."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO

from _ralph import files, text
from _ralph.errors import BadInput, RalphError, StopNow, TryLater
from _ralph.process.process import Control, await_end, buffer

QUICK, BULK = 30.0, 180.0
"""Deadlines in seconds: of calls that read or move refs, and of those that read or
write many files."""
WHOLE = ("-c", "core.sparseCheckout=false")
"""Words of a call that heeds all files, even in a sparse checkout."""
_HURRY = 5.0
_LOOK = 0.1
"""Seconds after which a call under way asks whether ralph must stop."""
_QUIET = (
    "core.hooksPath=/dev/null", "core.fsmonitor=false", "core.splitIndex=false", "core.untrackedCache=false",
    "core.safecrlf=false", "core.quotePath=false", "gc.auto=0", "maintenance.auto=false",
    # else a file's time can be set back unseen
    "core.trustctime=true", "core.checkStat=default",
    # objects are synced all at once, before a verdict names them
    "core.fsync=reference",
    # an agent is to remove two kinds of markers, which are known again
    "merge.conflictStyle=merge",
    # by default, a new file in a folder that was renamed is a conflict
    "merge.directoryRenames=true",
    "advice.detachedHead=false", "submodule.recurse=false", "diff.ignoreSubmodules=all",
    # a repository from another machine may say otherwise, and git then loses a file
    # that is renamed in case
    *(("core.ignorecase=false",) if sys.platform == "linux" else ()),
)  # fmt: skip
_FLUSH = """import ctypes, os, sys
flush = getattr(ctypes.CDLL(None), "sync_volume_np", lambda *_: -1)
if flush(os.fsencode(sys.argv[1]), 3) != 0: os.sync()"""
_SYNC = ["sync", "-f"] if sys.platform == "linux" else [sys.executable, "-ISc", _FLUSH]
"""The command that makes a disk durable. On macOS, `sync` returns before all is
written; that call waits for it (2), and has the drive empty its cache (1)."""
_BROKEN = (
    "not a git repository", "dubious ownership", "bad config", "config value", "repo version",
    "must be run in a work tree",
)  # fmt: skip
_KINDS = files.table("files.json")
CACHES: list[str] = _KINDS["caches"]
LEFT_BY_AGENTS: list[str] = _KINDS["left by agents"]
_LITTLE = (
    1 << 16
)  # bytes: git does not say that the disk is full if it cannot write a ref
_FULL = ("No space left on device", "Out of diskspace", "Disk quota exceeded")
_IDENTITY = tuple(
    f"GIT_{who}_{what}"
    for who in ("AUTHOR", "COMMITTER")
    for what in ("NAME", "EMAIL", "DATE")
)


class Late(RalphError):
    """A git call did not end within its deadline."""


@dataclass
class Calls:
    """What the calls of a run have in common."""

    control: Control = field(
        default_factory=Control
    )  # once it says stop, a call has five seconds left
    frozen: dict[str, str] = field(
        default_factory=dict
    )  # the environment since settings were frozen

    @property
    def env(self) -> dict[str, str]:
        """The environment of each call."""
        return self.frozen or environment()


@dataclass(frozen=True)
class Git:
    """git in one working tree."""

    root: Path
    dir: Path  # its git folder
    common: Path  # the one that all worktrees of the repository share
    env: dict[str, str] = field(
        default_factory=dict
    )  # added to the environment of each call
    calls: Calls = field(default_factory=Calls, repr=False, compare=False)
    _trees: dict[str, str] = field(default_factory=dict, repr=False, compare=False)
    _differences: dict[tuple[str, str], list[str]] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def at(cls, root: Path) -> Git:
        """git in the working tree whose top folder is `root`."""
        own, common = _paths(root, "--absolute-git-dir", "--git-common-dir")
        return cls(root, own, common)

    def __call__(
        self,
        *words: str,
        stdin: bytes = b"",
        check: bool = True,
        timeout: float = QUICK,
        **env: str,
    ) -> str:
        """The output. If the call fails: RalphError with git's own words, or "" without
        `check`."""
        code, out, err = self.tried(*words, stdin=stdin, timeout=timeout, **env)
        if check and code != 0:
            raise _error(self.root, words, code, err)
        return out if code == 0 else ""

    def tried(
        self, *words: str, stdin: bytes = b"", timeout: float = QUICK, **env: str
    ) -> tuple[int, str, str]:
        """The exit status, output and error text of a call that may fail. One that
        somebody else killed, as the kernel does for want of memory, is done once more,
        without the locks that it left on ralph's own files."""
        env = {**self.env, **env}
        code, out, err = self._run(words, stdin, env, timeout)
        if code == -signal.SIGKILL:
            taken = [self.common / word for word in words if word.startswith("refs/")]
            taken += [Path(env["GIT_INDEX_FILE"])] if "GIT_INDEX_FILE" in env else []
            for path in taken:
                files.clear(path.with_name(f"{path.name}.lock"))
            code, out, err = self._run(words, stdin, env, timeout)
        return code, out, err

    def _run(
        self, words: Sequence[str], stdin: bytes, env: Mapping[str, str], timeout: float
    ) -> tuple[int, str, str]:
        with buffer(stdin) as given, buffer() as out, buffer() as err:
            try:
                process = subprocess.Popen(
                    _quiet(words), cwd=self.root, env={**self.calls.env, **env}, start_new_session=True,
                    stdin=given, stdout=out, stderr=err,
                )  # fmt: skip
            except FileNotFoundError:
                missing = (
                    "git is not installed"
                    if self.root.is_dir()
                    else f"the folder {self.root} is gone"
                )
                raise BadInput(missing) from None
            with process:
                _wait(process, f"git {_verb(words)}", timeout, self.calls.control)
            out.seek(0)
            err.seek(0)
            return (
                process.returncode,
                os.fsdecode(out.read()),
                err.read().decode("utf-8", "replace"),
            )

    def names(
        self,
        *words: str,
        stdin: bytes = b"",
        check: bool = True,
        timeout: float = QUICK,
    ) -> list[str]:
        """The output of a call with -z."""
        return [
            name
            for name in self(*words, stdin=stdin, check=check, timeout=timeout).split(
                "\0"
            )
            if name
        ]

    @contextlib.contextmanager
    def stream(self, *words: str, timeout: float = BULK) -> Iterator[IO[bytes]]:
        """The output of a call as a stream, which may be large. It ends with the call
        or at `timeout`; there is no error."""
        with subprocess.Popen(
            _quiet(words), cwd=self.root, env={**self.calls.env, **self.env},
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

    def sync(self) -> None:
        """Make all objects durable: agents sync nothing, and git little. In a child, as
        a disk that does not answer holds who waits for it: Late then, and StopNow if
        ralph must stop."""
        words = [*_SYNC, str(self.common)]
        with subprocess.Popen(
            words, stdin=subprocess.DEVNULL, start_new_session=True
        ) as process:
            _wait(process, "sync", BULK, self.calls.control)
        if process.returncode:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(self.common))

    def note_tree(self, commit: str, tree: str) -> None:
        """Remember the tree of a commit that was just made."""
        self._trees[commit] = tree

    def tree(self, commit: str) -> str:
        """The tree of a commit, or of a tree; git is asked once for each object id, as
        it never changes."""
        if found := self._trees.get(commit):
            return found
        found = self("rev-parse", f"{commit}^{{tree}}").strip()
        if re.fullmatch(rf"[0-9a-f]{{{len(found)}}}", commit):  # no ref, which moves
            self._trees[commit] = found
        return found

    def differences(self, before: str, after: str) -> tuple[list[str], list[str]]:
        """How two trees differ: mode and blob in both, then the name, of each entry;
        and its lines that were added and removed, with the name. git is asked once for
        each pair."""
        if (before, after) not in self._differences:
            how = (
                "-r",
                "-z",
                "--raw",
                "--numstat",
                "--no-renames",
                "--ignore-submodules=none",
            )
            self._differences[before, after] = self.names(
                "diff-tree", *how, before, after, timeout=BULK
            )
        fields, end = self._differences[before, after], 0
        while end < len(fields) and fields[end].startswith(":"):
            end += 2
        return fields[:end], fields[end:]

    def entries(self, tree: str, check: bool = True) -> dict[str, str]:
        """What a tree or commit holds: mode, kind and id of each file, by name."""
        listed = self.names("ls-tree", "-r", "-z", tree, check=check, timeout=BULK)
        return {
            name: meta for meta, _, name in (entry.partition("\t") for entry in listed)
        }

    def name_of(self, path: Path) -> str:
        """What git calls this file; nothing if it lies elsewhere."""
        try:
            return path.absolute().relative_to(self.root).as_posix()
        except ValueError:
            return ""

    def edited(self, tree: str, lines: Iterable[str]) -> str:
        """`tree` with other entries, a line each as `update-index --index-info` takes
        them: mode, blob, a tab and the name; the mode of what is removed is zeros."""
        import tempfile  # 5 ms, and rarely wanted

        ordered = sorted(
            lines, key=lambda line: bool(line.split(" ")[0].strip("0"))
        )  # removals first
        with tempfile.TemporaryDirectory() as folder:
            look = self.seen_at(self.root, Path(folder) / "index")
            look("read-tree", tree, timeout=BULK)
            look("update-index", "-z", "--index-info", stdin=nul(ordered), timeout=BULK)
            return look("write-tree", timeout=BULK).strip()

    def seen_at(self, root: Path, index: Path) -> Git:
        """The same repository, with another folder for its working tree and an index of
        its own."""
        env = {
            "GIT_DIR": str(self.dir),
            "GIT_WORK_TREE": str(root),
            "GIT_INDEX_FILE": str(index),
        }
        return replace(self, root=root, env={**self.env, **env})


def git(
    folder: Path, *words: str, check: bool = True, env: Mapping[str, str] | None = None
) -> str:
    """The output of one call in a folder that need not be in a repository; errors as
    those of a `Git`."""
    return Git(folder, folder, folder, dict(env or {}))(*words, check=check)


def _wait(
    process: subprocess.Popen[bytes], what: str, timeout: float, control: Control
) -> None:
    """Wait for a call. Late if it does not end within `timeout` seconds; StopNow if it
    had to be killed because ralph must stop."""
    asked, end = False, time.monotonic() + timeout
    while process.poll() is None:
        await_end(process.pid, _LOOK)
        # A merge would leave a person's files half done.
        if control.stop_now and not asked and what != "git merge":
            asked, end = True, min(end, time.monotonic() + _HURRY)
        if time.monotonic() >= end:
            with contextlib.suppress(
                ProcessLookupError
            ):  # a filter that hangs is a child of it
                os.killpg(process.pid, signal.SIGKILL)
            late = Late(f"{what} did not end within {text.duration(timeout)}")
            raise StopNow if asked else late


def _verb(words: Iterable[str]) -> str:
    return next(word for word in words if word != "-c" and "=" not in word)


def _error(cwd: Path, words: Iterable[str], code: int, err: str) -> RalphError:
    """The error of a failed call, with what a person can do about it."""
    said, what = text.one_line(err, 300), _verb(words)
    if any(word in said for word in _BROKEN):
        return BadInput(
            f"git cannot work here: {said}; see .git/HEAD and .git/config, then run it again"
        )
    if code == -signal.SIGXFSZ:
        return TryLater(
            "git may not write a file as large as it needs; raise `ulimit -f`"
        )
    return no_space(cwd, what, said) or RalphError(
        f"git {what} failed: {said or f'exit {code}'}"
    )


def no_space(folder: Path, what: str, said: str) -> TryLater | None:
    """The error for a git call that failed in `folder` because its disk is full; None
    if it is not."""
    disk = os.statvfs(folder) if folder.exists() else None
    if any(word in said for word in _FULL) or (
        disk and disk.f_bavail * disk.f_frsize < _LITTLE
    ):
        return TryLater(
            f"the disk is full (git {what}: {text.one_line(said)}); run the same command again"
        )
    return None


def git_places(folder: Path) -> tuple[Path, Path] | None:
    """The root of the git working tree around `folder` and the repository's common
    folder, or None; BadInput if git cannot read it, or there is no working tree."""
    try:
        top, common = _paths(folder, "--show-toplevel", "--git-common-dir")
        return top, common
    except BadInput:
        if git(folder, "rev-parse", "--is-bare-repository", check=False) == "true\n":
            bare = f"{folder} is in a bare repository; make a worktree of it: git worktree add ../work"
            raise BadInput(bare) from None
        if any((parent / ".git").exists() for parent in (folder, *folder.parents)):
            raise
        return None


def _paths(folder: Path, *asked: str) -> list[Path]:
    """The paths that `git rev-parse` prints, one call each if one of them contains a
    line feed."""
    output = git(folder, "rev-parse", "--path-format=absolute", *asked).removesuffix(
        "\n"
    )
    lines = output.split("\n") if len(asked) > 1 else [output]
    if len(lines) != len(asked):
        return [path for question in asked for path in _paths(folder, question)]
    return [Path(line) for line in lines]


def top_level(folder: Path) -> Path | None:
    """The root of the git working tree around `folder`, or None; BadInput if git cannot
    read it."""
    places = git_places(folder)
    return places[0] if places else None


def freeze_settings(home: Git, folder: Path) -> None:
    """Copy this user's git settings, ignore rules and attributes into `folder`. Later
    calls of `home`, and of all that is made from it, read the copies: an agent can
    change the originals."""
    home.calls.frozen = {}
    listed = home.names("config", "--global", "--includes", "--list", "-z", check=False)
    config = folder / "gitconfig"
    files.clear(config).write_bytes(os.fsencode("".join(map(setting, listed))))
    base = Path(
        os.environ.get("XDG_CONFIG_HOME")
        or f"{os.environ.get('HOME') or os.devnull}/.config",
        "git",
    )
    copies = {"GIT_CONFIG_GLOBAL": str(config)}
    left_behind = [
        *(f"{name}/" for name in CACHES),
        *_KINDS["left by tools"],
        *LEFT_BY_AGENTS,
    ]
    for number, (key, name) in enumerate(
        (("excludesFile", "ignore"), ("attributesFile", "attributes"))
    ):
        named = home(
            "config", "--path", "--get", f"core.{key}", check=False
        ).removesuffix("\n")
        source, copy = home.root / named if named else base / name, folder / name
        files.clear(copy).write_bytes(
            (b"" if number else "".join(f"{name}\n" for name in left_behind).encode())
            + (files.read_regular(Path(os.path.realpath(source))) or b"")
        )
        copies |= {
            f"GIT_CONFIG_KEY_{number}": f"core.{key}",
            f"GIT_CONFIG_VALUE_{number}": str(copy),
        }
    home.calls.frozen = {**environment(), **copies, "GIT_CONFIG_COUNT": "2"}


def setting(entry: str) -> str:
    """One entry of `config --list -z` as lines of a configuration file."""
    key, has, value = entry.partition("\n")
    section, _, name = key.rpartition(".")
    section, dot, sub = section.partition(".")
    head = f'[{section} "{escaped(sub)}"]' if dot else f"[{section}]"
    return f'{head}\n\t{name} = "{escaped(value)}"\n' if has else f"{head}\n\t{name}\n"


def escaped(value: str) -> str:
    """A value as git reads it between double quotes."""
    return value.translate({92: "\\\\", 34: '\\"', 10: "\\n", 9: "\\t", 8: "\\b"})


def nul(names: Iterable[str]) -> bytes:
    """Names as a call with -z and --stdin takes them."""
    return os.fsencode("\0".join(names) + "\0")


def environment() -> dict[str, str]:
    """The environment of git calls, without variables that say where a repository
    is."""
    kept = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM", *_IDENTITY)
    clean = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith("GIT_") or key in kept
    }
    ours = {"GIT_TERMINAL_PROMPT": "0", "GIT_NO_REPLACE_OBJECTS": "1", "LC_ALL": "C"}
    ours["GIT_OPTIONAL_LOCKS"] = "0"  # to look at home must not write its index
    return {**clean, **ours}


def _quiet(words: Iterable[str]) -> list[str]:
    return ["git", *(word for setting in _QUIET for word in ("-c", setting)), *words]
