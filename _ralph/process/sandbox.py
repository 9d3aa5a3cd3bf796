"""The sandbox that ralph brings along: a prefix whose words are bubblewrap's."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import pwd
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.errors import BadInput
from _ralph.process.prefix import Prefix

CACHE = "cache"
"""The folder in a plan's private one in which each place has caches of its own, by the
place's name."""
_TABLE = files.table("files.json")["sandbox"]
_ANEW = (Path("/tmp"), Path("/run"))
_LARGEST_LOGIN = 1 << 20


@dataclass(frozen=True)
class Bubblewrap(Prefix):
    """All but a command's place is read-only; /tmp, the home folder and processes are
    its own, and end with it. Of the person's home only what is `shown` is seen. An
    agent has a copy of its configuration there, of which only its login is written
    back."""

    homes: tuple[Path, ...]  # of the person; the first is HOME
    hidden: tuple[Path, ...]  # folders
    shown: tuple[Path, ...]  # files and folders
    logins: tuple[Path, ...]  # files, of all agents
    private: Path
    network: bool

    def __str__(self) -> str:
        return "--sandbox bwrap"

    def words(self, place: Path, own: str, config: Sequence[str] | None) -> list[str]:
        copies = self._copies(own) / ("checks" if config is None else "agent")
        binds = {path: ["--tmpfs"] for path in (*_ANEW, *self.homes, *self.hidden)}
        binds |= {path: ["--ro-bind", str(path)] for path in self.shown}
        owned = dict.fromkeys(
            (*self.homes[:1], *self._copy(config or (), copies)), copies
        )
        owned |= dict.fromkeys(self._kept(), self.private / CACHE / place.name)
        for path, folder in owned.items():
            _within(folder, path).mkdir(parents=True, exist_ok=True)
            binds[path] = ["--bind", str(_within(folder, path))]
        binds[place] = ["--bind", str(place)]
        words = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
        words += [] if self.network else ["--unshare-net"]
        words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
        for path in sorted(
            binds, key=lambda path: len(path.parts)
        ):  # what lies in another comes after it
            words += [*binds[path], str(path)]
        for name in _TABLE["doors"]:
            words += ["--unsetenv", name]
        words += [
            "--setenv",
            "TMPDIR",
            "/tmp",
            "--setenv",
            "IS_SANDBOX",
            "1",
        ]  # Claude Code as root asks
        return [*words, "--chdir", str(place), "--"]

    def end(self, place: Path, own: str) -> str:
        """Its processes have ended; write back a login that its agent renewed, and
        remove its home folder."""
        for login in self.logins:
            copy = _within(self._copies(own) / "agent", login)
            new, old = files.regular(copy, follow=False), files.regular(login)
            renewed = (
                new
                and old
                and new.st_mtime_ns > old.st_mtime_ns
                and copy.resolve() == copy
            )
            if renewed and (data := files.read_regular(copy, _LARGEST_LOGIN)):
                files.atomic_write(login, data)
        files.clear(self._copies(own))
        return ""

    def _copies(self, own: str) -> Path:
        """Where the home folder of a process lies, and what else it has copies of,
        below their paths."""
        return self.private / "homes" / own

    def _kept(self) -> Iterator[Path]:
        """The caches in HOME of which each place has its own. One in a folder that is
        shown can only be where there is one."""
        for path in _named(_TABLE["kept"], self.homes[:1]):
            if path.is_dir() or not any(map(path.is_relative_to, self.shown)):
                yield path

    def _copy(self, config: Iterable[str], copies: Path) -> Iterator[Path]:
        """Copy an agent's configuration without its past sessions; the folders of it
        that are not in HOME."""
        for path in _named(config, self.homes[:1]):
            copy = _within(copies, path)
            copy.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(
                OSError
            ):  # of shutil, too: what cannot be read is not there
                if path.is_dir():
                    shutil.copytree(path, copy, ignore=_unwanted)
                elif path.is_file():
                    shutil.copy2(path, copy)
            if path.is_dir() and not any(map(path.is_relative_to, self.homes[:1])):
                yield path


def bubblewrap(
    hidden: Sequence[Path],
    shown: Sequence[Path],
    rows: Mapping[str, Any],
    private: Path,
    network: bool,
) -> Bubblewrap:
    """The sandbox of a plan with this `private` folder, for the agents of `rows`. What
    is `shown` can be read even where it is `hidden`. BadInput without bubblewrap."""
    if shutil.which("bwrap") is None:
        raise BadInput(
            "--sandbox bwrap needs bubblewrap, on Linux, and bwrap is not on PATH; install it or run without"
        )
    homes, private = _homes(), Path(os.path.realpath(private))
    empty = tuple(path.resolve() for path in hidden if path.is_dir())
    tools = (
        *_named(_TABLE["shown"], homes),
        *(_placed(path, homes) for path in _on_path()),
    )
    seen = [
        path
        for path in tools
        if any(map(path.is_relative_to, (*homes, *_ANEW)))
        and not any(map(path.is_relative_to, empty))
        if not any(home.is_relative_to(path) for home in homes)
    ]
    seen += [path.resolve() for path in shown]
    logins = []
    for row in rows.values():
        files_of = [name for name in row.get("login", []) if name[0] != "$"]
        folders = [name for name in row.get("config", []) if name[0] == "$"]
        logins += [
            *files_of,
            *(f"{name}/{Path(file).name}" for name in folders for file in files_of),
        ]
    return Bubblewrap(
        noted=private / "behind",
        homes=homes,
        hidden=empty,
        shown=tuple(path for path in dict.fromkeys(seen) if path.exists()),
        logins=tuple(_named(logins, homes[:1])),
        private=private,
        network=network,
    )


def _homes() -> tuple[Path, ...]:
    """The person's home folders: HOME, and that of the user, if it is another."""
    homes = [Path.home()]
    with contextlib.suppress(KeyError):  # a user without an entry
        homes.append(Path(pwd.getpwuid(os.getuid()).pw_dir))
    real = dict.fromkeys(home.resolve() for home in homes if home.is_dir())
    return tuple(home for home in real if home != Path("/"))


def _named(names: Iterable[str], homes: Sequence[Path]) -> Iterator[Path]:
    """The paths below home folders that `names` are; one that begins with $ begins with
    the value of that variable."""
    for name in names:
        first, _, rest = name.partition("/")
        if first[:1] != "$":
            yield from (home / name for home in homes)
        elif value := os.environ.get(first[1:]):
            yield _placed(Path(value, rest), homes)


def _placed(path: Path, homes: Sequence[Path]) -> Path:
    """A path where it is in the sandbox: links to home folders and outside of them are
    resolved, those in them lead to what is shown under their own name."""
    written = Path.home()
    if path.is_relative_to(written):
        return written.resolve() / path.relative_to(written)
    return path if any(map(path.is_relative_to, homes)) else path.resolve()


def _on_path() -> Iterator[Path]:
    """The folders on PATH, with what programs in them need beside them."""
    for entry in filter(os.path.isabs, os.environ.get("PATH", "").split(os.pathsep)):
        folder = Path(os.path.normpath(entry))
        if folder.name == ".bin":  # links to packages of node_modules
            yield folder.parent
        else:
            yield folder
        if folder.name == "bin":
            yield from (folder.with_name(name) for name in _TABLE["beside bin"])


def _within(folder: Path, path: Path) -> Path:
    """Where a path lies below a folder that holds copies."""
    return folder / path.relative_to("/")


def _unwanted(folder: str, names: list[str]) -> set[str]:
    """What is not copied of a folder of an agent's configuration."""
    sessions = {
        name
        for name in names
        for pattern in _TABLE["sessions"]
        if fnmatch.fnmatch(name, pattern)
    }
    return sessions | {name for name in names if not os.path.exists(f"{folder}/{name}")}
