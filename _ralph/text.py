"""Text that ralph did not write: cleaned, clipped, quoted. Durations: read and
written."""

from __future__ import annotations

import functools
import os
import re
import time
import unicodedata
from collections.abc import Sequence

from _ralph.errors import BadInput

_ESCAPES = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[PX^_][^\x1b]*\x1b\\|[@-Z\\-_])"
)
_IN = r"(?i)\b(?:in|after)\s+((?:\d+(?:\.\d+)?\s*[a-z]+[\s,]*(?:and\s+)?)+)"
_PART = r"(?i)(\d+(?:\.\d+)?)\s*(s|secs?|seconds?|m|mins?|minutes?|h|hours?|d|days?)(?![a-z])"
_AT = r"\bat (?:([A-Z][a-z]{2}) (\d+)(?:st|nd|rd|th)?, (\d{4}) )?(\d+:\d\d [AP]M)"
_SECRET = re.compile(r"(_KEY|_TOKEN|_SECRET)$|PASSWORD", re.IGNORECASE)
_KEPT = "\n\t\u200c\u200d"
_UNPRINTABLE = ("Cc", "Cf", "Cs", "Zl", "Zp")
_FOREVER = 10**8
_UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def clean(text: str) -> str:
    """`text` without terminal escapes, control, bidirectional or surrogate characters.

    Newlines, tabs and the joiners that Persian, Hindi and emoji need stay. What comes
    out can be printed and encoded anywhere.
    """
    if text.isascii() and text.isprintable():
        return text
    text = _ESCAPES.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))
    kept = []
    for letter in text:
        if letter in _KEPT or unicodedata.category(letter) not in _UNPRINTABLE:
            kept.append(letter)
    return "".join(kept)


def redact(text: str) -> str:
    """`text` without the values of variables whose names look like secrets, 12
    characters and more.

    For what agents and checks print, before it goes into notes, prompts and pages.
    """
    for name, value in _secrets():
        text = text.replace(value, f"[{name}]")
    return text


@functools.cache
def _secrets() -> list[tuple[str, str]]:
    """Names and values, the longest first: one may be a part of another."""
    pairs = []
    for name, value in os.environ.items():
        if _SECRET.search(name) and len(value) >= 12:
            pairs.append((name, value))
    return sorted(pairs, key=lambda pair: -len(pair[1]))


def one_line(text: str, width: int = 200) -> str:
    """`text` cleaned, on one line, cut to `width` characters."""
    line = " ".join(clean(text).split())
    return line if len(line) <= width else line[: max(width - 3, 0)] + "..."


def lines_of(text: str) -> list[str]:
    """The lines of `text` that are not blank, cleaned."""
    return [line for line in clean(text).splitlines() if line.strip()]


def last_lines(text: str) -> list[str]:
    """The last eight of them: in all but one of 33 projects, those of a red check held
    the cause."""
    return lines_of(text)[-8:]


def last_line(text: str) -> str:
    """The last line of `text` that is not blank."""
    lines = lines_of(text)
    return one_line(lines[-1], 160) if lines else "no output"


def count(number: int, noun: str) -> str:
    """`1 task`, `2 tasks`."""
    return f"{number} {noun}{'s' * (number != 1)}"


def few(names: Sequence[str]) -> str:
    """The first few of `names`, and how many more there are."""
    more = f" and {len(names) - 4} more" if len(names) > 4 else ""
    return ", ".join(one_line(name) for name in names[:4]) + more


def clip(text: str, size: int, note: str = "cut here") -> str:
    """`text` in at most `size` bytes of UTF-8: its head, with a note where it was
    cut."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size:
        return raw.decode("utf-8")
    mark = f"\n[{note}]" if len(note) + 3 <= size else ""
    return raw[: max(size - len(mark), 0)].decode("utf-8", "ignore") + mark


def tail(text: str, size: int) -> str:
    """The last lines of `text` that fit in `size` bytes."""
    raw = text.encode("utf-8", "replace")
    if len(raw) <= size:
        return raw.decode("utf-8")
    kept = raw[-size:].decode("utf-8", "ignore")
    whole = kept.split("\n", 1)[-1]  # the first line is only a part
    return whole if whole.strip() else kept


def slug(text: str) -> str:
    """A name that is safe in file names, branch names and refs; never empty."""
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", plain).strip("-")[:40].strip("-")
    return name or "task"


def quote(text: str) -> list[str]:
    """`text` as indented lines, which no parser takes for a record."""
    return [f"    | {line}" for line in clip(clean(text), 4000).splitlines()]


def fenced(text: str, kind: str = "") -> str:
    """`text` as a block of Markdown that nothing in it can end."""
    runs = re.findall(r"^[ \t]*(`{3,})", text, re.MULTILINE)
    fence = "`" * (max(map(len, runs), default=2) + 1)
    return f"{fence}{kind}\n{text}\n{fence}"


def seconds(value: object, where: str = "duration") -> float:
    """Seconds in `90s`, `10m`, `2h`, `1.5h` or a plain number; BadInput for anything
    else."""
    unit = "s"
    number = value
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([smhd]?)\s*", value)
        if match:
            number, unit = float(match[1]), match[2] or "s"
    if isinstance(number, int | float) and not isinstance(number, bool):
        if 0 < number < _FOREVER:
            return float(number) * _UNITS[unit]
    found = one_line(repr(value), 40)
    wanted = "expected a duration such as 90s, 10m or 2h"
    raise BadInput(f"{where}: {wanted}, found {found}")


def duration(value: float, short: bool = False) -> str:
    """`value` seconds for people: `12.3 s`, `5 min 12 s`, `2 h 5 min`; no tenths if
    `short`."""
    if value < 60:
        return f"{int(value)} s" if short else f"{value:.1f} s"
    if value < 3600:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{int(value // 3600)} h {int(value % 3600 // 60)} min"


def clock(at: float, now: float, seconds: bool = False) -> str:
    """The unix time `at` for people: `07:00`, with `seconds` `07:00:12`, with its day
    if that is not the next time that clocks show it."""
    form = "%H:%M:%S" if seconds else "%H:%M"
    if at - now >= _UNITS["d"]:
        form = f"%a %d %b, {form}"
    return time.strftime(form, time.localtime(at))


def moment(value: object, now: float) -> float | None:
    """The unix time that a provider names: as such a number, as seconds from now
    (`3600`, `retry after 3600s`, `in 2 hours 5 minutes`) or by local clocks (`try again
    at 10:26 PM`, `at Nov 23rd, 2026 9:05 AM`). None for anything else; what lies years
    ahead is cut to three."""
    try:
        named = _moment(str(value).strip()[:500], now)
    except (ValueError, OverflowError):
        return None
    return None if named is None else min(named, now + _FOREVER)


def _moment(words: str, now: float) -> float | None:
    if re.fullmatch(r"\d{1,12}(\.\d+)?", words):
        number = float(words)
        return number if number > _FOREVER else now + number
    if match := re.search(_IN, words):
        left = 0.0
        for number, unit in re.findall(_PART, match[1]):
            left += float(number) * _UNITS[unit[0].lower()]
        return now + left if left else None
    if match := re.search(_AT, words):
        month, day, year, hour = match.groups()
        date = f"{month} {day} {year}" if month else ""
        return _by_local_clocks(date, hour, now)
    from email.utils import parsedate_to_datetime  # 10 ms, and rarely wanted

    # The other form of a retry-after header
    return parsedate_to_datetime(words).timestamp()


def _by_local_clocks(date: str, hour: str, now: float) -> float:
    """The unix time of a date and an hour; without a date, of the next such hour."""
    from datetime import datetime, timedelta  # 2 ms

    today = datetime.fromtimestamp(now)
    day = date or f"{today:%b %d %Y}"
    at = datetime.strptime(f"{day} {hour}", "%b %d %Y %I:%M %p")
    # There are no seconds in it: a few minutes ago means now, and not tomorrow
    if not date and at < today - timedelta(minutes=10):
        at += timedelta(days=1)
    return at.timestamp()
