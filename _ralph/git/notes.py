"""What is noted of a checkout, in files beside its index."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from _ralph import files
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
    words = f"{start.attempt} {start.tree} {start.snapshot}"
    files.atomic_write(checkout.beside("start"), words.encode())


def noted_start(checkout: Checkout) -> Start | None:
    """What `note_start`, or ralph 0.3, wrote last; None if nothing can be read."""
    words = _read(checkout, "start").decode("utf-8", "replace")
    found = re.fullmatch(r"(\w+) ([0-9a-f]{40,64}) ([0-9a-f]{40,64})", words)
    return Start(*found.groups()) if found else None


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
