"""What `ralph plan` gives its planner to read: files, folders and standard input, as
they are."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from _ralph import text
from _ralph.errors import BadInput

LARGEST = 256 * 1024
"""Bytes of a whole brief, some 64,000 tokens: more fills a planner's context before it
has seen the code."""


def read_sources(named: Sequence[str]) -> dict[str, str]:
    """The texts of these files, of the files in these folders but hidden ones, and of
    standard input (`-`), by name. Of what is no UTF-8, such as a picture in a folder,
    the name alone. BadInput for what cannot be read, and if all of it is empty or too
    large."""
    found: dict[str, str] = {}
    left = LARGEST
    for name, inside in _files(named):
        data = _read(name, left + 1)
        left -= len(data)
        if left < 0:
            raise BadInput(
                f"the brief is larger than {LARGEST // 1024} KB at {name}, too much for one session of a "
                f"planner; give it the part that comes next"
            )
        try:
            found[name] = text.clean(data.decode("utf-8")).strip()
        except UnicodeDecodeError as error:
            if not inside:
                raise BadInput(f"{name}: byte {error.start} is not UTF-8") from None
            found[name] = "(not a text)"
    if not any(found.values()):
        raise BadInput(
            f"the brief {text.few(named)} is empty; describe what to build, and why"
        )
    return {name: words for name, words in found.items() if words}


def _files(named: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """Each file to read, and whether it was found in a folder."""
    for name in named:
        if not os.path.isdir(name):
            yield name, False
            continue
        for folder, inside, files in os.walk(name):
            inside[:] = sorted(one for one in inside if not one.startswith("."))
            paths = [
                os.path.join(folder, one)
                for one in sorted(files)
                if not one.startswith(".")
            ]
            yield from ((path, True) for path in paths if os.path.isfile(path))


def _read(name: str, most: int) -> bytes:
    """The first `most` bytes of a file, or of standard input."""
    try:
        with (
            contextlib.nullcontext(sys.stdin.buffer)
            if name == "-"
            else Path(name).open("rb") as file
        ):
            return file.read(most)
    except OSError as error:
        raise BadInput(
            f"{name} cannot be read ({error.strerror}); - reads standard input"
        ) from None
