"""What git holds of passed tasks: their commits, and what these changed, cut to what a page can hold."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import text
from _ralph.git import git, git_lines

_DEADLINE = 20.0
_LINES, _BYTES, _WIDTH = 300, 24_000, 400
_KINDS = {b"+": "add", b"-": "del", b"@": "hunk"}
_LOG = ("--no-show-signature", "--encoding=UTF-8")
_DIFF = (
    "-p", "--numstat", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames", "--submodule=short",
)  # fmt: skip


@dataclass
class Diff:
    """The change of one commit. `parts` are runs of lines of one kind: file, hunk, add, del or
    same; `cut` counts the lines that are not among them, `size` is what it takes of a page."""

    commit: str
    files: int = 0
    added: int = 0
    removed: int = 0
    parts: list[tuple[str, str]] = field(default_factory=list)
    cut: int = 0
    size: int = 0
    lines: int = 0

    @property
    def full(self) -> bool:
        return self.lines >= _LINES or self.size >= _BYTES

    def add(self, kind: str, raw: bytes) -> None:
        line = text.redact(text.clean(raw.decode("utf-8", "replace"))).replace("\n", " ")
        if len(line) > _WIDTH:
            line = f"{line[:_WIDTH]} [{len(line) - _WIDTH} characters cut]"
        if self.parts and self.parts[-1][0] == kind:
            self.parts[-1] = (kind, f"{self.parts[-1][1]}\n{line}")
        else:
            self.parts.append((kind, line))
        self.lines, self.size = self.lines + 1, self.size + len(html.escape(line).encode()) + 1

    def count(self, raw: bytes) -> None:
        """One line of `--numstat`; `-` stands for a binary file."""
        numbers = raw.split(b"\t")[:2]
        if len(numbers) == 2:
            self.files += 1
            self.added += int(numbers[0]) if numbers[0].isdigit() else 0
            self.removed += int(numbers[1]) if numbers[1].isdigit() else 0


def commits_of(root: Path, branch: str, since: str) -> dict[str, tuple[str, str]]:
    """The passes on `branch`, or merged from it to HEAD, after the commit `since`: hash and
    subject by iteration."""
    tips = [branch, "HEAD"] if branch.startswith("refs/heads/") else ["HEAD"]
    start = [f"^{since}"] if re.fullmatch(r"[0-9a-f]{40,64}", since) else []
    form = "--format=%H%x1f%(trailers:key=Ralph-Iteration,valueonly,separator=%x2C)%x1f%s"
    words = ["log", "-z", *_LOG, form, "--grep=^Ralph-Iteration: ", "--ignore-missing", "--end-of-options"]
    listed = git(root, *words, *tips, *start, "--", check=False, timeout=_DEADLINE).decode("utf-8", "replace")
    entries = [entry.split("\x1f", 2) for entry in listed.split("\0") if entry.count("\x1f") > 1]
    return {number.strip(): (commit, subject) for commit, number, subject in reversed(entries)}


def changes_in(root: Path, commits: list[str], hidden: Iterable[str], size: int) -> dict[str, Diff]:
    """What each of `commits` changed, the files `hidden` apart, in one git call. What would make
    more than `size` bytes on a page, or take too long, is not there."""
    if not commits:
        return {}
    apart = [f":(top,exclude,literal){name}" for name in hidden]
    large = ("-c", "core.bigFileThreshold=1m")  # beyond that a file counts as binary
    words = (*large, "log", "--no-walk=unsorted", *_LOG, *_DIFF, "--format=%x00%H", *commits)
    found: dict[str, Diff] = {}
    for diff in _read(git_lines(root, *words, "--", ":(top)", *apart, timeout=_DEADLINE)):
        size -= diff.size
        if size < 0:
            break
        found[diff.commit] = diff
    return found


def _read(lines: Iterable[bytes]) -> Iterator[Diff]:
    """The changes in git's output. No line of a change begins with a NUL or with a letter."""
    diff, place = Diff(""), "numbers"
    for raw in lines:
        kind, line = "", raw.rstrip(b"\r\n")
        if raw.startswith(b"\0"):
            if diff.commit:
                yield diff
            diff, place = Diff(line[1:].decode()), "numbers"
        elif raw.startswith(b"diff --git "):
            kind, place = "file", "head"
        elif place == "numbers":
            diff.count(line)
        elif place == "body":
            kind = _KINDS.get(raw[:1], "same")
        elif raw.startswith(b"@@"):
            kind, place = "hunk", "body"
        elif raw.startswith((b"new file", b"deleted file", b"old mode", b"new mode", b"Binary files")):
            kind = "file"
        if kind and diff.full:
            diff.cut += 1
        elif kind:
            diff.add(kind, line)
    if diff.commit:
        yield diff
