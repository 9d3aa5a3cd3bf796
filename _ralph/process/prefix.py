"""A prefix: words before every command that runs in a place, such as those of a
container or a cluster. The other side sees the place under the same path, and needs no
ralph and no identity of git."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.process.process import Control, alive, run_process

Wrap = Callable[[Sequence[str], Mapping[str, str]], list[str]]
"""Makes of a command, and the variables that it must have, the command that runs it in
a place."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_FILLED_IN = ("place", "objects", "id")
_END_DEADLINE = 60.0
_GIVE_BACK = 'set -- "$1" $(ls -nd "$1"); chown -Rh "$4" "$1"'
"""For a shell: files made by another user are given to the owner of the place."""


@dataclass(frozen=True)
class Prefix:
    """What stands before a command: the words `run`, and those of `ending`, which end
    what is left of a process, if there are any. `objects` is home's object store,
    without which no git works on the other side. Every process has an id, noted in the
    folder `noted` with the pid of who started it, until it is ended. `foreign` says
    that what it makes may be another user's."""

    noted: Path
    run: tuple[str, ...]
    ending: tuple[str, ...]
    objects: Path
    foreign: bool = True

    def __str__(self) -> str:
        return f"the prefix {shlex.join(self.run)!r}"

    @contextlib.contextmanager
    def started(self, place: Path) -> Iterator[Wrap]:
        """For one process in `place`. When it has ended, whatever of it is still on the
        other side is ended, too."""
        own = f"ralph-{uuid.uuid4().hex[:12]}"
        self.end_left(lambda pid: not alive([pid]))  # of a worker that was killed
        self.noted.mkdir(parents=True, exist_ok=True)
        (self.noted / own).write_bytes(os.fsencode(f"{os.getpid()}\n{place}"))
        try:
            yield lambda argv, env: [
                *self._filled(self.run, place, own), "env", *(f"{key}={env[key]}" for key in env), *argv
            ]  # fmt: skip
        finally:
            self._end(
                own, place
            )  # its words are nobody's business: the process may have ended it itself

    def end_left(self, of: Callable[[int], bool] = lambda _: True) -> list[str]:
        """End what is left on the other side of processes whose starter was killed,
        `of` its pid; a line for each that could not be ended."""
        lines = []
        for note in sorted(self.noted.glob("ralph-*")):
            said = (files.read_regular(note, 1 << 16) or b"").decode(
                "utf-8", "surrogateescape"
            )
            pid, whole, place = said.partition(
                "\n"
            )  # else its process has not been started yet
            if not (whole and of(int(pid))) or not self._end(note.name, Path(place)):
                continue
            if failed := self._end(
                note.name, Path(place)
            ):  # podman needs two if its own helper was killed
                lines.append(
                    f"what a killed run left behind the prefix could not be ended: {failed}"
                )
        return lines

    def _end(self, own: str, place: Path) -> str:
        """End what is left of a process on the other side; what went wrong, if anything
        did."""
        failed = (
            self._call(self._filled(self.ending, place, own)) if self.ending else ""
        )
        if self.foreign and os.getuid() and _has_foreign(place):
            give = ("/bin/sh", "-c", _GIVE_BACK, "sh", str(place))
            failed = self._call([*self._filled(self.run, place, own), *give]) or failed
        files.clear(self.noted / own)
        return failed

    def _call(self, words: Sequence[str]) -> str:
        """Run a command; what went wrong, if anything did."""
        done = run_process(
            words,
            cwd=Path("/"),
            env=os.environ,
            timeout=_END_DEADLINE,
            control=Control(),
        )
        ended = {
            "deadline": f"it took over {_END_DEADLINE:g} s",
            "missing": done.tail,
        }.get(done.ended)
        failed = ended or (
            done.exit and f"exit {done.exit}: {text.last_line(done.tail)}"
        )
        return f"{shlex.join(words)}: {failed}" if failed else ""

    def _filled(self, words: Sequence[str], place: Path, own: str) -> list[str]:
        values = {"place": str(place), "objects": str(self.objects), "id": own}
        return [_BRACES.sub(lambda found: values[found[1]], word) for word in words]


def _has_foreign(place: Path) -> bool:
    """Whether anything in a place belongs to another user."""
    for path, folders, names in os.walk(place):
        for name in (*folders, *names):
            with contextlib.suppress(FileNotFoundError):
                if os.lstat(os.path.join(path, name)).st_uid != os.getuid():
                    return True
    return False


def words_of(value: str, where: str) -> tuple[str, ...]:
    """The words of a prefix. BadInput, with the place `where` it stands, for one that
    nobody can run."""
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise BadInput(f"{where}: {error}: {value}") from None
    unknown = [
        name
        for word in words
        for name in _BRACES.findall(word)
        if name not in _FILLED_IN
    ]
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in _FILLED_IN)
        raise BadInput(f"{where}: {{{unknown[0]}}} is unknown; {known} are filled in")
    if not words:
        raise BadInput(
            f"{where}: expected words that go before a command, such as: srun -N1 -n1"
        )
    return words
