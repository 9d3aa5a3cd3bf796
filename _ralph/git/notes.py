"""What is noted of a checkout, in files beside its index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from _ralph import files
from _ralph.codec import from_json, to_json
from _ralph.git.checkout import Checkout


@dataclass(frozen=True)
class Start:
    """What an attempt, by its id, began with in a checkout: the tree that was checked
    out there, and the snapshot of what stood there when its agent came."""

    attempt: str
    tree: str
    snapshot: str


def note_start(checkout: Checkout, start: Start) -> None:
    """Note what an attempt begins with here."""
    data = json.dumps(to_json(start)).encode()
    files.atomic_write(checkout.beside("start"), data)


def noted_start(checkout: Checkout) -> Start | None:
    """What `note_start` wrote last; None if nothing can be read."""
    try:
        return from_json(Start, json.loads(_read(checkout, "start")))
    except (ValueError, RecursionError):
        return None


def note_setup(checkout: Checkout, stamp: str, made: Mapping[str, Any]) -> None:
    """Note the stamp that this checkout belongs to and, by name, what `setup` made
    here: without a note it is made anew."""
    data = json.dumps({"stamp": stamp, "made": made}).encode()
    files.atomic_write(checkout.beside("setup"), data)


def noted_setup(checkout: Checkout) -> tuple[str, dict[str, Any]]:
    """What `note_setup` last wrote; nothing where that cannot be read."""
    try:
        found = json.loads(_read(checkout, "setup"))
        return str(found["stamp"]), dict(found["made"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return "", {}


def _read(checkout: Checkout, kind: str) -> bytes:
    return files.read_regular(checkout.beside(kind)) or b""
