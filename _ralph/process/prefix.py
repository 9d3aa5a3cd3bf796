"""A prefix: words before every command that runs in a place, such as those of a container or a cluster. The
other side sees the place under the same path, and needs no ralph and no identity of git."""

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

_BRACES = re.compile(r"\{([^{}]*)\}")
_FILLED_IN = ("place", "objects", "id")
_END_DEADLINE = 60.0


@dataclass(frozen=True)
class Prefix:
    """The words, and those of the command that ends what they started, if there is one. `objects` is home's
    object store, without which no git works on the other side. Every process has an id, noted in the folder
    `noted` with the pid of who started it, until its `end` has run."""

    words: tuple[str, ...]
    end: tuple[str, ...]
    objects: Path
    noted: Path

    @contextlib.contextmanager
    def started(self, place: Path) -> Iterator[str]:
        """An id for one process in `place`. When the process has ended, whatever of it is still on the other
        side is ended, too."""
        own = f"ralph-{uuid.uuid4().hex[:12]}"
        if self.end:
            self.end_left(lambda pid: not alive([pid]))  # of a worker that was killed
            self.noted.mkdir(parents=True, exist_ok=True)
            (self.noted / own).write_text(f"{os.getpid()}\n{place}")
        try:
            yield own
        finally:
            self._end(own, place)  # its words are nobody's business: the process may have ended it itself

    def command(self, argv: Sequence[str], place: Path, env: Mapping[str, str], own: str) -> list[str]:
        """`argv` behind the prefix, with the variables of `env` that the other side must have."""
        told = [f"{name}={value}" for name, value in env.items()]
        return [*self._filled(self.words, place, own), "env", *told, *argv]

    def end_left(self, of: Callable[[int], bool] = lambda _: True) -> list[str]:
        """End what is left on the other side of processes whose starter was killed, `of` its pid; a line for
        each that could not be ended."""
        lines = []
        for note in sorted(self.noted.glob("ralph-*")):
            said = (files.read_regular(note, 1 << 16) or b"").decode("utf-8", "surrogateescape")
            pid, _, place = said.partition("\n")
            if of(int(pid) if pid.isdecimal() else 0) and (failed := self._end(note.name, Path(place))):
                lines.append(f"what a killed run left behind the prefix could not be ended: {failed}")
        return lines

    def _end(self, own: str, place: Path) -> str:
        """Run the command that ends a process, and forget its id; what went wrong, if anything did."""
        if not self.end:
            return ""
        words = self._filled(self.end, place, own)
        done = run_process(words, cwd=Path("/"), env=os.environ, timeout=_END_DEADLINE, control=Control())
        files.clear(self.noted / own)
        ended = {"deadline": f"it took over {_END_DEADLINE:g} s", "missing": done.tail}.get(done.ended)
        failed = ended or (done.exit and f"exit {done.exit}: {text.last_line(done.tail)}")
        return f"{shlex.join(words)}: {failed}" if failed else ""

    def _filled(self, words: Sequence[str], place: Path, own: str) -> list[str]:
        values = {"place": str(place), "objects": str(self.objects), "id": own}
        return [_BRACES.sub(lambda found: values[found[1]], word) for word in words]


def words_of(value: str, where: str) -> tuple[str, ...]:
    """The words of a prefix. BadInput, with the place `where` it stands, for one that nobody can run."""
    try:
        words = tuple(shlex.split(value))
    except ValueError as error:
        raise BadInput(f"{where}: {error}: {value}") from None
    unknown = [name for word in words for name in _BRACES.findall(word) if name not in _FILLED_IN]
    if unknown:
        known = ", ".join(f"{{{name}}}" for name in _FILLED_IN)
        raise BadInput(f"{where}: {{{unknown[0]}}} is unknown; {known} are filled in")
    if not words:
        raise BadInput(f"{where}: expected words that go before a command, such as: srun -N1 -n1")
    return words
