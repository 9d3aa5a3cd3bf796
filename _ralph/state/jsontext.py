"""A JSON text, rewritten where its value changes: no other byte does."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_SCALAR = r'(?:"(?:[^"\\]|\\.)*"|[\w.+-]+)'
_LIST = re.compile(rf"^(.*)\[((?:\n\s*{_SCALAR},?)+\n\s*)\](,?)$", re.MULTILINE)
"""A list of strings and numbers, over several lines."""


def dump(value: object, indent: str | None = None, width: int = 80) -> str:
    """JSON in readable letters, where they can be written as UTF-8; with an `indent` as
    prettier writes it, in lines of at most `width` letters."""
    dumped = json.dumps(value, ensure_ascii=False, indent=indent)
    if re.search("[\ud800-\udfff]", dumped):
        dumped = json.dumps(value, indent=indent)

    def short(found: re.Match[str]) -> str:
        line = re.sub(r"\n\s*", " ", found[2]).strip()
        whole = f"{found[1]}[{line}]{found[3]}"
        return whole if len(whole) <= width else found[0]

    return _LIST.sub(short, dumped)


def rewrite(source: str, old: object, new: object) -> str:
    """`source`, which has the value `old`, with the value `new`. A new member of an
    object or a list comes last, set apart from the one before as that one is; a new
    entry of a list has the form of the last."""
    at = _skip(source, int(source.startswith("\ufeff")))
    end = _DECODER.raw_decode(source, at)[1]
    return source[:at] + _rewritten(source[at:end], old, new) + source[end:]


def _rewritten(source: str, old: object, new: object) -> str:
    # True is equal to 1
    if old is new or (old == new and json.dumps(old) == json.dumps(new)):
        return source
    was, now = _entries(old), _entries(new)
    is_more = type(old) is type(new) and was and was.keys() <= now.keys()
    if not is_more:
        return dump(new)
    parts: list[str] = []
    gap, last, done = "", "", 0
    for key, begin, start, end in _members(source):
        gap, last = source[done:begin], source[start:end]
        parts += [source[done:start], _rewritten(last, was[key], now[key])]
        done = end
    gap = gap.lstrip("{[").replace(",", "")
    space = gap if "\n" in gap else " "
    for key in now:
        if key not in was:
            added = f"{dump(key)}: {dump(now[key])}"
            if isinstance(new, list):
                added = _like(last, gap, now[key])
            parts.append(f",{space}{added}")
    return "".join([*parts, source[done:]])


def _entries(value: object) -> dict[str | int, object]:
    """The members of an object by their keys, or those of a list by their indices; else
    none."""
    if isinstance(value, dict):
        return value
    return dict(enumerate(value)) if isinstance(value, list) else {}


def _like(other: str, gap: str, value: object) -> str:
    """An entry of a list, over as many lines and indented as the `other`."""
    outer = gap.rpartition("\n")[2]
    step = None
    if inner := re.match(r"\{\s*\n([ \t]*)", other):
        step = inner[1].removeprefix(outer) or "  "
    text = dump(value, step, 80 - len(outer))
    newline = "\r\n" if "\r\n" in gap else "\n"
    return text.replace("\n", f"{newline}{outer}")


def _members(source: str) -> Iterator[tuple[str | int, int, int, int]]:
    """Of every member of an object or a list: its key or index, where it begins, and
    where its value starts and ends."""
    in_object = source[0] == "{"
    number, at = 0, _skip(source, 1)
    while source[at] not in "}]":
        key: str | int = number
        begin = at
        if in_object:
            key, at = _DECODER.raw_decode(source, at)
            at = _skip(source, _skip(source, at) + 1)  # the colon
        end = _DECODER.raw_decode(source, at)[1]
        yield key, begin, at, end
        at = _skip(source, end)
        if source[at] == ",":
            at = _skip(source, at + 1)
        number += 1


def _skip(source: str, at: int) -> int:
    """Where the white space at `at` ends."""
    match = _SPACE.match(source, at)
    assert match is not None
    return match.end()
