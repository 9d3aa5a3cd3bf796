"""Patterns of files, as in `protect`, `allow`, `keep` and `when`: read, and matched
with names.

Without a slash, a pattern matches in every folder; with one, it starts at the top of
the repository, as in .gitignore. `*` stays within a folder, `**` crosses folders, and a
folder means everything in it.
"""

from __future__ import annotations

import fnmatch
import re
import unicodedata
from collections.abc import Callable, Iterable

from _ralph import text
from _ralph.errors import BadInput
from _ralph.files import table

_CLASS = r"\[[!^]?+[^/][^\]/]*\]"
_KINDS = table("files.json")


def normal(pattern: str, where: str) -> str:
    """The one form of a pattern; BadInput, with the form that is meant, for what would
    protect nothing."""
    said = pattern.strip()
    for wrong, why, meant in _KINDS["refused patterns"]:
        if re.search(wrong, said):
            raise BadInput(
                f"{where}: {text.one_line(repr(pattern), 80)}: {why}; expected {meant}"
            )
    from_top = "/" in said.rstrip(
        "/"
    )  # as in .gitignore: a slash at the end says nothing of where
    parts = [part for part in said.split("/") if part not in ("", ".")]
    if not parts or said.endswith(("/", "/.")):
        parts = [*([] if from_top or not parts else ["**"]), *parts, "**"]
    whole = re.sub(r"(^|/)\*\*+(?=[^/*])", r"\1**/*", "/".join(parts))  # **.py
    whole = re.sub(r"(^|/)\*\*\*+(?=/|$)", r"\1**", whole)
    whole = re.sub(r"(?<![^/])\*\*(/\*\*)+(?![^/])", "**", whole)
    whole = re.sub(r"(?<![^/])\*\*/\*$", "**", whole)
    kept = re.match(
        r"(?!\*\*$)[^/]+$|[!:^~$'\"`\s]|\w:", whole
    )  # else it would read as something else
    return f"/{whole}" if from_top and kept else whole


def folded(name: str) -> str:
    """What all spellings of a name share on a disk that tells neither cases nor Unicode
    forms apart."""
    return unicodedata.normalize("NFC", name).casefold()


def matching(patterns: Iterable[str], names: Iterable[str]) -> set[str]:
    """Those of `names` that lie under one of `patterns`."""
    return set(filter(matcher(patterns), names))


def matcher(patterns: Iterable[str]) -> Callable[[str], bool]:
    """Whether a name lies under one of `patterns`, for names that come one by one."""
    known = set(patterns)
    plain = plain_names(known)
    rest = re.compile("|".join(map(_expression, known - plain)) or "(?!)", re.DOTALL)
    return lambda name: (
        not plain.isdisjoint(name.split("/")) or rest.fullmatch(name) is not None
    )


def unmatched(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those of `patterns` under which none of `names` lies."""
    known = list(names)
    return [pattern for pattern in patterns if not matching([pattern], known)]


def plain_names(patterns: Iterable[str]) -> set[str]:
    """Those patterns that are plain file names: no new file may have one."""
    return {pattern for pattern in patterns if not set(pattern) & set("*?[/")}


def uncovered_tests(patterns: Iterable[str], names: Iterable[str]) -> list[str]:
    """Those of `names` that are tests by their look, and under none of `patterns`."""
    look = re.compile(f"(.*/)?({'|'.join(_KINDS['tests'])})", re.DOTALL)
    tests = {name for name in names if look.fullmatch(name)}
    return sorted(tests - matching(patterns, tests))


def _expression(pattern: str) -> str:
    """A pattern as a regular expression. What is spelt the same matches, too, as
    [id].js does [id].js."""
    whole = pattern.strip("/") if "/" in pattern else f"**/{pattern}"
    glob = re.sub(rf"(?<![^/])\*\*(/|$)|{_CLASS}|.", _piece, whole, flags=re.DOTALL)
    return rf"(?:{re.escape(whole)}|{glob})(?:/.*)?"


def _piece(token: re.Match[str]) -> str:
    """The expression for one piece of a pattern; but for `**`, none stands for a
    slash."""
    known = {"**/": "(?:.*/)?", "**": ".*", "*": "[^/]*", "/": "/"}
    one = re.sub(r"^\[\^", "[!", token[0])
    return (
        known.get(one) or "(?!/)" + fnmatch.translate(one)[len("(?s:") : -len(r")\Z")]
    )
