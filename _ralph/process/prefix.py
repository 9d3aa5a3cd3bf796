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
from _ralph.process.process import Command, Control, alive, run_process

Wrap = Callable[[Sequence[str], Mapping[str, str]], list[str]]
"""Makes of a command, and the variables that it must have, the command that runs it in
a place."""
_BRACES = re.compile(r"\{([^{}]*)\}")
_FILLED_IN = ("place", "objects", "id")
_END_DEADLINE = 60.0


@dataclass(frozen=True)
class Prefix:
    """The words that a person gave, and those of the command that ends what they
    started, if there is one. Every process has an id, noted in the folder `noted` with
    the pid of who started it, until it is ended. `objects` is home's object store,
    without which no git works on the other side."""

    noted: Path
    run: tuple[str, ...]
    ending: tuple[str, ...]
    objects: Path

    def __str__(self) -> str:
        return f"the prefix {shlex.join(self.run)!r}"

    @contextlib.contextmanager
    def started(self, place: Path) -> Iterator[Wrap]:
        """For one process in `place`. When it has ended, whatever of it is still on the
        other side is ended, too."""
        own = f"ralph-{uuid.uuid4().hex[:12]}"
        self.end_left()  # of a loop that was killed
        self.noted.mkdir(parents=True, exist_ok=True)
        (self.noted / own).write_bytes(os.fsencode(f"{os.getpid()}\n{place}"))
        words = self._filled(self.run, place, own)

        def wrap(argv: Sequence[str], env: Mapping[str, str]) -> list[str]:
            told = [f"{key}={value}" for key, value in env.items()]
            return [*words, "env", *told, *argv]

        try:
            yield wrap
        finally:
            # What it says is nobody's business: the process may have ended it itself
            self._end(own, place)

    def end_left(self) -> list[str]:
        """End what is left on the other side of processes whose starter was killed; a
        line for each that could not be ended."""
        lines = []
        for note in sorted(self.noted.glob("ralph-*")):
            said = os.fsdecode(files.read_regular(note, 1 << 16) or b"")
            pid, whole, place = said.partition("\n")
            # Without a line end its process has not been started yet
            if not whole or alive([int(pid)]):
                continue
            failed = ""
            for _ in range(2):  # podman needs two if its own helper was killed
                failed = self._end(note.name, Path(place))
                if not failed:
                    break
            if failed:
                what = "what a killed run left behind the prefix could not be ended"
                lines.append(f"{what}: {failed}")
        return lines

    def _end(self, own: str, place: Path) -> str:
        """End what is left of a process; what went wrong, if anything did."""
        failed = ""
        if self.ending:
            failed = _call(self._filled(self.ending, place, own))
        files.clear(self.noted / own)
        return failed

    def _filled(self, words: Sequence[str], place: Path, own: str) -> list[str]:
        values = {"place": str(place), "objects": str(self.objects), "id": own}
        return [_BRACES.sub(lambda found: values[found[1]], word) for word in words]


def _call(words: Sequence[str]) -> str:
    """Run a command; what went wrong, if anything did."""
    command = Command(words, Path("/"), os.environ, _END_DEADLINE)
    done = run_process(command, Control())
    if not done.exit:
        return ""
    return f"{shlex.join(words)}: exit {done.exit}: {text.last_line(done.tail)}"


def words_of(value: str, where: str) -> tuple[str, ...]:
    """The words of a prefix. BadInput, with the place `where` it stands, for one that
    nobody can run."""
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise BadInput(f"{where}: {error}: {value}") from None
    if not words:
        wanted = "expected words that go before a command, such as: srun -N1 -n1"
        raise BadInput(f"{where}: {wanted}")
    for word in words:
        for name in _BRACES.findall(word):
            if name not in _FILLED_IN:
                known = ", ".join(f"{{{one}}}" for one in _FILLED_IN)
                what = f"{{{name}}} is unknown; {known} are filled in"
                raise BadInput(f"{where}: {what}")
    return words
