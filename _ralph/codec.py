"""Dataclasses as JSON objects without the fields that have their default, and back;
what is read is checked field by field, as anybody may have written it."""

from __future__ import annotations

import enum
import functools
import json
from collections.abc import Callable
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

from _ralph import files
from _ralph.model import Json

MOST = 10**12
"""Larger numbers are refused: none of them is a time, a price or a count."""
Kind = TypeVar("Kind")


def load(kind: type[Kind], path: Path) -> Kind | None:
    """The dataclass in a JSON file; None where nothing can be read."""
    try:
        return from_json(kind, json.loads(files.read_regular(path) or b""))
    except (OSError, ValueError, RecursionError):
        return None


def dumped(value: object) -> bytes:
    """A dataclass for `load`."""
    return json.dumps(to_json(value)).encode()


def from_json(kind: type[Kind], value: object) -> Kind:
    """The dataclass `kind` of a JSON object. Unknown fields are ignored, and null is as
    if the field were missing. ValueError names the field that is wrong."""
    readers, _ = _fields(kind)  # type: ignore[arg-type]  # a class can be hashed
    given: Json = {}
    for name, part in _exactly(dict, value).items():
        if name in readers and part is not None:
            try:
                given[name] = readers[name](part)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None
    try:
        return kind(**given)
    except TypeError as error:  # it names the fields that are missing
        raise ValueError(str(error).partition("() ")[2]) from None


def to_json(value: Any) -> Any:
    """A value as JSON for `from_json`. Numbers are capped: some come from agents."""
    if type(value) in (str, bool):  # mostly
        return value
    if is_dataclass(value):
        found = {}
        for name, default in _fields(value.__class__)[1].items():
            part = getattr(value, name)
            if part != default:
                found[name] = to_json(part)
        return found
    if isinstance(value, list):
        return [to_json(entry) for entry in value]
    if isinstance(value, dict):
        return {key: to_json(entry) for key, entry in value.items()}
    if type(value) in (int, float):
        return min(value, MOST)
    return str(value) if isinstance(value, Path) else value


@functools.cache
def _fields(kind: Any) -> tuple[dict[str, Callable[[Any], Any]], Json]:
    """A reader and the default for each field."""
    hints = get_type_hints(kind)
    readers, defaults = {}, {}
    for field in fields(kind):
        readers[field.name] = _reader(hints[field.name])
        defaults[field.name] = field.default
        if field.default_factory is not MISSING:
            defaults[field.name] = field.default_factory()
    return readers, defaults


def _reader(hint: Any) -> Callable[[Any], Any]:
    """Makes a value of this type from its JSON; ValueError for any other."""
    kinds = get_args(hint)
    if type(None) in kinds:
        return _reader(kinds[0])
    if get_origin(hint) is list:
        entry = _reader(kinds[0])
        return lambda value: [entry(part) for part in _exactly(list, value)]
    if get_origin(hint) is dict:
        entry = _reader(kinds[1])
        return lambda value: {
            key: entry(part)
            for key, part in _exactly(dict, value).items()
            if part is not None
        }
    if isinstance(hint, type) and is_dataclass(hint):
        return functools.partial(from_json, hint)
    if issubclass(hint, (enum.Enum, Path)):
        return lambda value: hint(_exactly(str, value))
    return functools.partial(_number if hint in (int, float) else _exactly, hint)


def _exactly(kind: type[Kind], value: object) -> Kind:
    if not isinstance(value, kind):
        raise ValueError(f"expected {kind.__name__}, found {type(value).__name__}")
    return value


def _number(kind: Any, value: Any) -> Any:
    least = -MOST if kind is int else 0  # an exit status can be below zero
    if type(value) not in (kind, int) or not least <= value <= MOST:
        raise ValueError(f"expected a number from {least} to {MOST}")
    return value
