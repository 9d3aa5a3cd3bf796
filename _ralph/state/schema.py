"""prd.json held against its schema: wrong types, and keys that are nearly known ones."""

from __future__ import annotations

import functools
import json
from typing import Any

from _ralph import files, gone, text
from _ralph.errors import BadInput
from _ralph.model import Json

_SHOWN = 3
"""The errors that are shown at once."""


def validate(data: object, name: str) -> None:
    """Hold a whole document against prd.schema.json; BadInput names the first wrong
    places."""
    import jsonschema

    errors = [*_validator().iter_errors(data)]
    lines = []
    for error in errors[:_SHOWN]:
        best = jsonschema.exceptions.best_match([error])
        place = best.json_path.removeprefix("$").removeprefix(".") or "document"
        said = best.message
        if best.validator == "pattern":
            said = f"found {best.instance!r}, expected: {best.schema['description']}"
        lines.append(f"{name}: {place}: {text.one_line(said, 300)}")
    if len(errors) > _SHOWN:
        lines.append(f"and {len(errors) - _SHOWN} more")
    if lines:
        raise BadInput("\n".join(lines))


@functools.cache
def _validator() -> Any:
    import jsonschema

    standard = jsonschema.Draft202012Validator
    strict = standard.TYPE_CHECKER.redefine(
        "integer", lambda _, value: type(value) is int
    )  # 1.0 is no id
    validator: Any = jsonschema.validators.extend(standard, type_checker=strict)  # type: ignore[no-untyped-call]
    return validator(_schema(), format_checker=jsonschema.FormatChecker(["regex"]))


@functools.cache
def _schema() -> Json:
    schema: Json = json.loads(files.resource("prd.schema.json").read_text("utf-8"))
    return schema


def misspelt(entry: Json, known: frozenset[str]) -> str:
    """Which key is nearly a known one, in words."""
    for key in entry:
        if meant := _nearest(key, known):
            return f"{text.one_line(repr(key), 60)} is unknown; is {meant!r} meant?"
    return ""


def known_keys() -> tuple[frozenset[str], frozenset[str]]:
    """The keys that are known in a plan and in a task, in all dialects."""
    of_plan = {*_schema()["properties"], *gone.KEYS}
    of_task = {*_schema()["$defs"]["task"]["properties"]}
    for meaning, names in files.table("dialects.json")["keys"].items():
        if meaning in ("tasks", "project"):
            of_plan.update(names)
        else:
            of_task.update(names)
    return frozenset(of_plan), frozenset(of_task)


@functools.cache  # a long plan has the same few keys in each task
def _nearest(key: str, known: frozenset[str]) -> str:
    """The known key that `key` is nearly; empty if it is one, or there is none, and for
    a word that goes on after it (`blockedBy`, `completed_at`): that means another
    thing."""
    if key in known:
        return ""
    import difflib  # 5 ms, and hardly ever

    found = difflib.get_close_matches(key, known, 3, 0.85)
    for close in sorted(found, key=lambda name: "_" in name):  # as documented first
        rest = key.removeprefix(close)
        if rest == key or rest[0].islower():
            return close
    return ""
