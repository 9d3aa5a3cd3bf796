"""Patterns of files, as in `protect`, `allow`, `keep` and `when`: those of .gitignore,
but for `!`."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable

from _ralph import text
from _ralph.errors import BadInput
from _ralph.files import table

_KINDS = table("files.json")


def normal(pattern: str, where: str) -> str:
    """A pattern as .gitignore has it, where `./` stands for the top folder; BadInput,
    with the form that is meant, for what would protect nothing."""
    said = re.sub(r"^(\./+)+", "/", pattern.strip())
    for wrong, why, meant in _KINDS["refused patterns"]:
        if re.search(wrong, said):
            shown = text.one_line(repr(pattern.strip()), 80)
            raise BadInput(f"{where}: {shown}: {why}; expected {meant}")
    return said


def folded(name: str) -> str:
    """What all spellings of a name share on a disk that tells neither cases nor Unicode
    forms apart."""
    return unicodedata.normalize("NFC", name).casefold()


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name lies under one of `patterns`, for names that come one by one."""
    import warnings

    from pathspec import GitIgnoreSpec  # 65 ms, and `ralph status` does not need it

    # Of Python's, about what [[ may mean some time
    warnings.simplefilter("ignore", FutureWarning)
    try:
        return GitIgnoreSpec.from_lines(patterns).match_file
    except re.error as error:
        raise BadInput(f"a pattern cannot be read: {error}") from None


def matching(patterns: Iterable[str], names: Iterable[str]) -> set[str]:
    """Those of `names` that lie under one of `patterns`."""
    known = [*patterns]
    return set(filter(matcher(known), names)) if known else set()


def plain_names(patterns: Iterable[str]) -> set[str]:
    """Those patterns that are a plain file name (`conftest.py`) or how one begins
    (`.mocharc.*`): no new file may have it."""
    plain = re.compile(r"[^*?\[\\/]+\*?")
    return {pattern for pattern in patterns if plain.fullmatch(pattern)}


def uncovered_tests(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those of `names` that are tests by their look, and under none of `patterns`."""
    look = re.compile(f"(.*/)?({'|'.join(_KINDS['tests'])})", re.DOTALL)
    tests = {name for name in names if look.fullmatch(name)}
    return sorted(tests - matching(patterns, tests))
