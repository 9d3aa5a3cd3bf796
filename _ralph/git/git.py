"""git: every call has a deadline, and settings that no agent can change."""

from __future__ import annotations

import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput, RalphError, StopNow, TryLater
from _ralph.git import settings_env
from _ralph.process.process import Control, await_end, buffer

QUICK, BULK = 30.0, 180.0
"""Deadlines in seconds: of calls that read or move refs, and of those that read or
write many files."""
WHOLE = ("-c", "core.sparseCheckout=false")
"""Words of a call that heeds all files, even in a sparse checkout."""
_HURRY = 5.0
"""Seconds that a call under way has left once ralph must stop."""
_LOOK = 0.1
"""Seconds after which a call under way asks whether ralph must stop."""
_REMEMBERED = 16
"""How many answers about objects are remembered: those never change."""
_SETTINGS = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    "core.splitIndex=false",
    "core.untrackedCache=false",
    "core.safecrlf=false",
    "core.quotePath=false",
    "gc.auto=0",
    "maintenance.auto=false",
    # else a file's time can be set back unseen
    "core.trustctime=true",
    "core.checkStat=default",
    "core.ignoreStat=false",
    # objects are synced all at once, before a verdict names them
    "core.fsync=reference",
    # an agent is to remove two kinds of markers, which are known again
    "merge.conflictStyle=merge",
    # by default, a new file in a folder that was renamed is a conflict
    "merge.directoryRenames=true",
    "advice.detachedHead=false",
    "submodule.recurse=false",
    "diff.ignoreSubmodules=all",
]
if sys.platform == "linux":
    # a repository from another machine may say otherwise, and git then loses a file
    # that is renamed in case
    _SETTINGS.append("core.ignorecase=false")
_FLUSH = """import ctypes, os, sys
flush = getattr(ctypes.CDLL(None), "sync_volume_np", lambda *_: -1)
if flush(os.fsencode(sys.argv[1]), 3) != 0: os.sync()"""
_SYNC = ["sync", "-f"] if sys.platform == "linux" else [sys.executable, "-ISc", _FLUSH]
"""The command that makes a disk durable. On macOS, `sync` returns before all is
written; that call waits for it (2), and has the drive empty its cache (1)."""
_UNUSABLE = re.compile(
    "not a git repository|dubious ownership|bad config|config value|repo version"
    "|must be run in a work tree|not found"
)
"""What git says of a repository that it cannot read, or whose filter is missing."""
_FULL = re.compile("No space left on device|Out of diskspace|Disk quota exceeded")
_LITTLE = 1 << 16
"""Bytes: git does not say that the disk is full if it cannot write a ref."""
_KINDS = files.table("files.json")
CACHES: list[str] = _KINDS["caches"]
LEFT_BY_AGENTS: list[str] = _KINDS["left by agents"]


class Late(RalphError):
    """A git call did not end within its deadline."""


@dataclass
class Calls:
    """What the calls of a run have in common."""

    control: Control = field(default_factory=Control)
    frozen: Path | None = None
    """The folder that holds the settings since they were frozen."""
    user_env: dict[str, str] = field(default_factory=settings_env)
    program: str = field(default_factory=lambda: _on_path("git"))

    @property
    def env(self) -> dict[str, str]:
        """The environment of each call."""
        env = dict(self.user_env)
        env["LC_ALL"] = "C"
        env["GIT_TERMINAL_PROMPT"] = "0"
        env["GIT_NO_REPLACE_OBJECTS"] = "1"
        env["GIT_OPTIONAL_LOCKS"] = "0"  # to look at home must not write its index
        if self.frozen:
            env["GIT_CONFIG_GLOBAL"] = str(self.frozen / "gitconfig")
        return env

    def command(self, words: Iterable[str]) -> list[str]:
        """A whole command, with the settings that hold for each."""
        settings = list(_SETTINGS)
        if self.frozen:
            settings.append(f"core.excludesFile={self.frozen / 'ignore'}")
            settings.append(f"core.attributesFile={self.frozen / 'attributes'}")
        command = [self.program]
        for setting in settings:
            command += ["-c", setting]
        return [*command, *words]


@dataclass(frozen=True)
class Done:
    """How a call ended: its exit status, its output, and what it said of errors."""

    code: int
    output: str
    error: str


@dataclass(frozen=True)
class Entry:
    """What a tree has under a name: mode and blob, as git writes them; the mode of
    nothing is zeros."""

    mode: str
    blob: str

    @property
    def exists(self) -> bool:
        return self.mode != "000000"

    @property
    def is_file(self) -> bool:
        return self.mode.startswith("100")

    @property
    def is_link(self) -> bool:
        return self.mode == "120000"


Changed = Mapping[str, tuple[Entry, Entry]]
"""The entries that differ between two trees, as they are in both."""


@dataclass(frozen=True)
class Git:
    """git in one working tree. `dir` is its git folder, `common` the one that all
    worktrees of the repository share; `env` is added to the environment of each
    call."""

    root: Path
    dir: Path
    common: Path
    env: dict[str, str] = field(default_factory=dict)
    calls: Calls = field(default_factory=Calls, repr=False, compare=False)
    _known: dict[tuple[str, ...], str] = field(
        default_factory=dict, repr=False, compare=False
    )

    @classmethod
    def at(cls, root: Path) -> Git:
        """git in the working tree whose top folder is `root`."""
        own, common = _paths(root, "--absolute-git-dir", "--git-common-dir")
        return cls(root, own, common)

    def __call__(self, *words: str, stdin: bytes = b"", timeout: float = QUICK) -> str:
        """The output. RalphError, with git's own words, if the call fails."""
        done = self.run(*words, stdin=stdin, timeout=timeout)
        if done.code != 0:
            raise _error(self.root, words, done)
        return done.output

    def maybe(
        self, *words: str, stdin: bytes = b"", timeout: float = QUICK
    ) -> str | None:
        """The output; None if the call fails. RalphError if a signal ended it, which is
        no answer."""
        done = self.run(*words, stdin=stdin, timeout=timeout)
        if done.code < 0:
            raise _error(self.root, words, done)
        return done.output if done.code == 0 else None

    def names(self, *words: str, timeout: float = QUICK) -> list[str]:
        """The output of a call with -z. RalphError if it fails."""
        return names_in(self(*words, timeout=timeout))

    def run(self, *words: str, stdin: bytes = b"", timeout: float = QUICK) -> Done:
        """How a call that may fail ended."""
        with buffer(stdin) as given, buffer() as out, buffer() as err:
            try:
                process = subprocess.Popen(
                    self.calls.command(words),
                    cwd=self.root,
                    env={**self.calls.env, **self.env},
                    start_new_session=True,
                    stdin=given,
                    stdout=out,
                    stderr=err,
                )
            except FileNotFoundError:
                why = f"git is not installed, or {self.root} is gone"
                raise BadInput(why) from None
            with process:
                _wait(process, f"git {_verb(words)}", timeout, self.calls.control)
            out.seek(0)
            err.seek(0)
            said = err.read().decode("utf-8", "replace")
            return Done(process.returncode, os.fsdecode(out.read()), said)

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

    def remember_tree(self, commit: str, tree: str) -> None:
        """Take note of the tree of a commit, for which git need not be asked."""
        self._known["rev-parse", f"{commit}^{{tree}}"] = tree

    def _tree_of(self, object: str) -> str:
        """The tree of a commit, if that is known, else the object itself: what was
        asked of one holds for the other."""
        return self._known.get(("rev-parse", f"{object}^{{tree}}"), object).strip()

    def _once(self, *words: str) -> str:
        """The output of a call about objects, for which git is asked once."""
        if words not in self._known:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            self._known[words] = self(*words, timeout=BULK)
        return self._known[words]

    def tree(self, commit: str) -> str:
        """The tree of a commit, or of a tree, by its id."""
        return self._once("rev-parse", f"{commit}^{{tree}}").strip()

    def difference(self, before: str, after: str) -> Changed:
        """How two trees or commits differ."""
        before, after = self._tree_of(before), self._tree_of(after)
        if before == after:
            return {}
        words = ("diff-tree", "-r", "-z", "--no-renames", "--ignore-submodules=none")
        listed = names_in(self._once(*words, before, after))
        found = {}
        for about, name in zip(listed[::2], listed[1::2], strict=True):
            old_mode, mode, old, blob, _ = about.removeprefix(":").split(" ")
            found[name] = (Entry(old_mode, old), Entry(mode, blob))
        return found

    def entries(self, tree: str) -> dict[str, str]:
        """What a tree or commit holds: mode, kind and id of each file, by name."""
        listed = names_in(self._once("ls-tree", "-r", "-z", self._tree_of(tree)))
        parts = (entry.partition("\t") for entry in listed)
        return {name: about for about, _, name in parts}

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

        stdin = nul(sorted(lines))  # removals first, as they begin with a zero
        with tempfile.TemporaryDirectory() as folder:
            look = self.seen_at(self.root, Path(folder) / "index")
            look("read-tree", tree, timeout=BULK)
            look("update-index", "-z", "--index-info", stdin=stdin, timeout=BULK)
            return look("write-tree", timeout=BULK).strip()

    def seen_at(self, root: Path, index: Path) -> Git:
        """The same repository, with another folder for its working tree and an index of
        its own."""
        env = dict(self.env)
        env["GIT_DIR"] = str(self.dir)
        env["GIT_WORK_TREE"] = str(root)
        env["GIT_INDEX_FILE"] = str(index)
        return replace(self, root=root, env=env)


def in_folder(folder: Path, env: Mapping[str, str] | None = None) -> Git:
    """git in a folder that need not be in a repository."""
    return Git(folder, folder, folder, dict(env or {}))


def uncommitted(home: Git) -> list[str]:
    """The files of a person's tree that are not as in HEAD, new ones that git does not
    ignore among them."""
    words = ("status", "--porcelain", "-z", "-uall", "--no-renames")
    return [entry[3:] for entry in home.names(*words, timeout=BULK)]


def names_in(output: str | None) -> list[str]:
    """What the output of a call with -z lists; nothing if it failed."""
    return [name for name in (output or "").split("\0") if name]


def nul(names: Iterable[str]) -> bytes:
    """Names as a call with -z and --stdin takes them."""
    return os.fsencode("\0".join(names) + "\0")


def _wait(
    process: subprocess.Popen[bytes], what: str, timeout: float, control: Control
) -> None:
    """Wait for a call. Late if it does not end within `timeout` seconds; StopNow if it
    had to be killed because ralph must stop."""
    end = time.monotonic() + timeout
    stopping = False
    while process.poll() is None:
        await_end(process.pid, _LOOK)
        # A merge would leave a person's files half done.
        if control.stop_now and not stopping and what != "git merge":
            stopping = True
            end = min(end, time.monotonic() + _HURRY)
        if time.monotonic() < end:
            continue
        with suppress(ProcessLookupError):  # a filter that hangs is a child of it
            os.killpg(process.pid, signal.SIGKILL)
        if stopping:
            raise StopNow
        raise Late(f"{what} did not end within {text.duration(timeout)}")


def _on_path(program: str) -> str:
    """Where a program is, so that no call looks for it again."""
    found = shutil.which(program)
    return os.path.abspath(found) if found else program


def _verb(words: Iterable[str]) -> str:
    """The command among the words of a call."""
    for word in words:
        if word != "-c" and "=" not in word:
            return word
    return ""


def _error(folder: Path, words: Iterable[str], done: Done) -> RalphError:
    """The error of a failed call in `folder`, with what a person can do about it."""
    said, verb = text.one_line(done.error, 300), _verb(words)
    if _UNUSABLE.search(said):
        return BadInput(f"git cannot work here; mend it, then run it again: {said}")
    failed = RalphError(f"git {verb} failed: {said or f'exit {done.code}'}")
    return no_space(folder, verb, said) or failed


def no_space(folder: Path, what: str, said: str) -> TryLater | None:
    """The error for a git call that failed in `folder` because its disk is full; None
    if it is not."""
    is_full = _FULL.search(said) is not None
    if not is_full and folder.exists():
        disk = os.statvfs(folder)
        is_full = disk.f_bavail * disk.f_frsize < _LITTLE
    if not is_full:
        return None
    return TryLater(
        f"the disk is full (git {what}: {text.one_line(said)}); run the same command "
        f"again"
    )


def git_places(folder: Path) -> tuple[Path, Path] | None:
    """The root of the git working tree around `folder` and the repository's common
    folder, or None; BadInput if git cannot read it."""
    try:
        return _paths(folder, "--show-toplevel", "--git-common-dir")
    except BadInput:
        if any((parent / ".git").exists() for parent in (folder, *folder.parents)):
            raise
        return None


def _paths(folder: Path, one: str, other: str) -> tuple[Path, Path]:
    """Two paths that `git rev-parse` prints."""
    words = ("rev-parse", "--path-format=absolute", one, other)
    first, second = in_folder(folder)(*words).splitlines()
    return Path(first), Path(second)


# ---------------------------------------------------------------- settings


def freeze_settings(home: Git, folder: Path) -> None:
    """Copy this user's git settings, ignore rules and attributes into `folder`. Later
    calls of `home`, and of all that is made from it, read the copies: an agent can
    change the originals."""
    home.calls.frozen = None
    listed = home.maybe("config", "--global", "--includes", "--list", "-z")
    lines = [setting(entry) for entry in names_in(listed)]
    left_behind = [f"{name}/" for name in CACHES]
    left_behind += [*_KINDS["left by tools"], *LEFT_BY_AGENTS, ""]
    ignored = "\n".join(left_behind).encode()
    frozen = {
        "gitconfig": os.fsencode("".join(lines)),
        "ignore": ignored + _setting_file(home, "core.excludesFile", "ignore"),
        "attributes": _setting_file(home, "core.attributesFile", "attributes"),
    }
    for name, data in frozen.items():
        files.clear(folder / name).write_bytes(data)
    home.calls.frozen = folder


def _setting_file(home: Git, key: str, default: str) -> bytes:
    """What the file holds that this setting names, or the one of the name `default`
    that git reads without it."""
    named = home.maybe("config", "--path", "--get", key)
    if named:
        path = home.root / named.removesuffix("\n")
    else:
        own = f"{os.environ.get('HOME') or os.devnull}/.config"
        path = Path(os.environ.get("XDG_CONFIG_HOME") or own, "git", default)
    return files.read_regular(Path(os.path.realpath(path))) or b""


def setting(entry: str) -> str:
    """One entry of `config --list -z` as lines of a configuration file."""
    key, has_value, value = entry.partition("\n")
    section, _, name = key.rpartition(".")
    section, has_sub, sub = section.partition(".")
    head = f'[{section} "{escaped(sub)}"]' if has_sub else f"[{section}]"
    line = f'{name} = "{escaped(value)}"' if has_value else name
    return f"{head}\n\t{line}\n"


def escaped(value: str) -> str:
    """A value as git reads it between double quotes."""
    return value.translate({92: "\\\\", 34: '\\"', 10: "\\n", 9: "\\t", 8: "\\b"})
