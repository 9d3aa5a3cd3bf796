"""What git holds of passed tasks: their commits, and what these changed, cut to what a
page can hold."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from itertools import groupby

from _ralph import text
from _ralph.git.git import Git

_DEADLINE = 20.0
_LINES, _WIDTH, _TOTAL = 300, 400, 30_000
_KINDS = {b"+": "add", b"-": "del"}
_LOG = (
    "-c", "core.bigFileThreshold=1m",  # beyond that a file counts as binary
    "log", "-1000", "--grep=^Ralph-Attempt: ", "--ignore-missing", "--no-show-signature",
    # also a commit of nothing but files that are not shown
    "--full-history", "--sparse",
    "--format=%x00%H%x1f%(trailers:key=Ralph-Attempt,valueonly,unfold,separator=%x2C)%x1f%s",
    "--encoding=UTF-8", "-p", "--shortstat", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames",
    "--submodule=short", "--end-of-options",
)  # fmt: skip


@dataclass
class Change:
    """One commit."""

    commit: str
    subject: str
    stat: str = ""  # git's own count of what changed
    lines: list[tuple[str, str]] = field(
        default_factory=list
    )  # a kind (file, hunk, add, del, same), a line
    cut: int = 0  # the lines that are not among them
    room: int = _LINES
    _kind: str = ""

    @property
    def parts(self) -> list[tuple[str, str]]:
        """The same with all neighbours of one kind in one text."""
        runs = groupby(self.lines, key=lambda line: line[0])
        return [(kind, "\n".join(words for _, words in run)) for kind, run in runs]

    def take(self, raw: bytes) -> None:
        """One line of git's output; no line of a change begins with a letter."""
        if raw.startswith(b"diff --git "):
            self._kind = "file"
        elif raw.startswith(b"@@"):
            self._kind = "hunk"
        elif self._kind not in ("", "file"):
            self._kind = _KINDS.get(raw[:1], "same")
        elif not self._kind or raw.startswith((b"index ", b"--- ", b"+++ ")):
            self.stat = self.stat or raw.decode().strip()
            return
        if len(self.lines) >= self.room:
            self.cut += 1
            return
        said = text.redact(
            text.clean(raw.decode("utf-8", "replace").rstrip("\r\n"))
        ).replace("\n", " ")
        self.lines.append(
            (self._kind, said if len(said) <= _WIDTH else f"{said[:_WIDTH]} [cut]")
        )


def passes(git: Git, branch: str, since: str) -> dict[str, Change]:
    """What the newest passes on `branch`, or merged from it to HEAD, changed after the
    commit `since`, by the id of the attempt. One git call: what it does not tell in time is not
    there."""
    tips = [branch, "HEAD"] if branch.startswith("refs/heads/") else ["HEAD"]
    start = [f"^{since}"] if re.fullmatch(r"[0-9a-f]{40,64}", since) else []
    found: dict[str, Change] = {}
    change = Change("", "")
    words = (*_LOG, *tips, *start, "--")
    with git.stream(*words, timeout=_DEADLINE) as output:
        for raw in output:
            if raw.startswith(b"\0"):
                commit, attempt, subject = (
                    raw[1:].decode("utf-8", "replace").split("\x1f", 2)
                )
                left = _TOTAL - sum(len(one.lines) for one in found.values())
                change = Change(commit, subject, room=min(left, _LINES))
                found.setdefault(attempt.strip(), change)
            else:
                change.take(raw)
    return found
