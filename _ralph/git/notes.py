"""What is noted of a checkout, in files beside its index."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from _ralph import codec, files
from _ralph.git.checkout import Checkout


@dataclass(frozen=True)
class Start:
    """What an attempt, by its id, began with in a checkout: the tree that was checked
    out there, and the snapshot of what stood there when its agent came."""

    attempt: str
    tree: str
    snapshot: str
    copies: dict[str, str] = field(default_factory=dict)  # digests, by ralph's files


def note_start(checkout: Checkout, start: Start) -> None:
    """Note what an attempt begins with here."""
    files.atomic_write(checkout.beside("start"), codec.dumped(start))


def noted_start(checkout: Checkout) -> Start | None:
    """What `note_start` wrote last; None if nothing can be read."""
    return codec.load(Start, checkout.beside("start"))


def note_setup(checkout: Checkout, stamp: str, made: Mapping[str, Any]) -> None:
    """Note the stamp that this checkout belongs to and, by name, what `setup` made
    here: without a note it is made anew."""
    data = json.dumps({"stamp": stamp, "made": made}).encode()
    files.atomic_write(checkout.beside("setup"), data)


def noted_setup(checkout: Checkout) -> tuple[str, dict[str, Any]]:
    """What `note_setup` last wrote; nothing where that cannot be read."""
    try:
        found = json.loads(files.read_regular(checkout.beside("setup")) or b"")
        return str(found["stamp"]), dict(found["made"])
    except (ValueError, TypeError, LookupError, RecursionError):
        return "", {}
