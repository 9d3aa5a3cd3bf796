"""A JSON text, edited where it stands: a member set, taken out or added, and no other byte changed."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping

from _ralph.model import Json

_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")


def dump(value: object, indent: str | None = None) -> str:
    """JSON in readable letters, where they can be written as UTF-8."""
    dumped = json.dumps(value, ensure_ascii=False, indent=indent)
    return json.dumps(value, indent=indent) if re.search("[\ud800-\udfff]", dumped) else dumped


def place(source: str, *path: str | int) -> int:
    """Where the value begins to which these keys and indexes lead."""
    at = _skip(source, int(source.startswith("\ufeff")))
    for step in path:
        at = next(start for key, _, start in _members(source, at) if key == step)
    return at


def set_member(source: str, at: int, key: str, value: object) -> str:
    """`source` with `key` set in the object at `at`, which has members; a new one comes last, set apart
    from the one before as that one is."""
    gap, end = "", at + 1
    for name, begin, start in _members(source, at):
        gap, end = source[end:begin].replace(",", ""), _end(source, start)
        if name == key:
            return source[:start] + dump(value) + source[end:]
    space = gap if "\n" in gap else " "
    return f"{source[:end]},{space}{dump(key)}: {dump(value)}{source[end:]}"


def remove_member(source: str, at: int, key: str) -> str:
    """`source` without `key` in the object at `at`, which has other members."""
    found = [*_members(source, at)]
    number = next(i for i, (name, _, _) in enumerate(found) if name == key)
    if number == 0:
        return source[: found[0][1]] + source[found[1][1] :]
    return source[: _end(source, found[number - 1][2])] + source[_end(source, found[number][2]) :]


def change_entries(source: str, at: int, changes: Mapping[int, Callable[[str], str]]) -> str:
    """`source` with entries of the list at `at` changed: what makes the new text of one, by its index."""
    parts, done = [], 0
    for number, (_, _, start) in enumerate(_members(source, at)):
        if number in changes:
            end = _end(source, start)
            parts += [source[done:start], changes[number](source[start:end])]
            done = end
    return "".join([*parts, source[done:]])


def add_entries(source: str, at: int, entries: list[Json], in_place_of_all: bool) -> str:
    """`source` with more entries at the end of the list at `at`, in the form of the objects that stand
    there; or `in_place_of_all` of them."""
    starts = [start for _, _, start in _members(source, at)]
    first, end = starts[0], _end(source, starts[-1])
    gap = source[at + 1 : first]
    inner = re.match(r"\{\s*\n([ \t]*)", source[first:])  # an entry over several lines, indented by so much
    outer, newline = gap.rpartition("\n")[2], "\r\n" if "\r\n" in gap else "\n"
    step = (inner[1].removeprefix(outer) or "  ") if inner else None
    parts = [dump(entry, step).replace("\n", f"{newline}{outer}") for entry in entries]
    kept = [] if in_place_of_all else [source[first:end]]
    return source[:first] + f",{gap or ' '}".join([*kept, *parts]) + source[end:]


def _members(source: str, at: int) -> Iterator[tuple[str | int, int, int]]:
    """Of every member of the object or list at `at`: its key or index, where it begins, and where its
    value does."""
    in_object, number, at = source[at] == "{", 0, _skip(source, at + 1)
    while source[at] not in "}]":
        key, begin = number, at
        if in_object:
            key, at = _DECODER.raw_decode(source, at)
            at = _skip(source, _skip(source, at) + 1)  # the colon
        yield key, begin, at
        at = _skip(source, _end(source, at))
        if source[at] == ",":
            at = _skip(source, at + 1)
        number += 1


def _end(source: str, start: int) -> int:
    """Where the value ends that begins at `start`."""
    return _DECODER.raw_decode(source, start)[1]


def _skip(source: str, at: int) -> int:
    """Where the white space at `at` ends."""
    match = _SPACE.match(source, at)
    assert match is not None
    return match.end()
