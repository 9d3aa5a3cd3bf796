"""The tests that an attempt changed, and the files that decide what checks do.
`templates/detect.json` names them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable, Sequence

from _ralph.files import table
from _ralph.git import patterns
from _ralph.git.git import Git

_TOOLS = ("pytest", "ruff", "mypy", "tox")


def changed_tests(
    git: Git, tip: str, commit: str, changed: Sequence[str], commands: Iterable[str]
) -> list[str]:
    """Of the files `changed` from `tip` to `commit`: the tests that were there and were
    changed or removed; and what decides what the check `commands` do, such as the
    scripts in package.json, if that changed or is new."""
    deciding = _deciding(changed, " ".join(commands))
    if not (patterns.uncovered_tests([], changed) or deciding):
        return []
    words = ("diff-tree", "-r", "-z", "--name-status", "--no-renames", tip, commit)
    listed = git.names(*words)
    there = []
    for status, name in zip(listed[::2], listed[1::2], strict=True):
        if status != "A":
            there.append(name)
    found = patterns.uncovered_tests([], there)
    for name in deciding:
        before = git.maybe("cat-file", "blob", f"{tip}:{name}") or ""
        after = git.maybe("cat-file", "blob", f"{commit}:{name}") or ""
        if _deciding_part(name, before) != _deciding_part(name, after):
            found.append(name)
    return found


def _deciding(names: Iterable[str], commands: str) -> list[str]:
    """Those of `names` that decide what one of these commands does."""
    known = []
    for pattern, tools in table("detect.json")["decides"].items():
        if re.search(rf"\b({tools})\b", commands):
            known.append(pattern)
    return sorted(patterns.matching(known, names))


def _deciding_part(name: str, content: str) -> object:
    """The part of a file that decides it: a manifest also has dependencies."""
    try:
        if name.endswith("package.json"):
            package = json.loads(content)
            for key in (*table("detect.json")["dependencies"], "version"):
                package.pop(key, None)
            return package
        if name.endswith("pyproject.toml"):
            settings = tomllib.loads(content).get("tool", {})
            return {tool: settings[tool] for tool in _TOOLS if tool in settings}
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass  # it is not what its name says: then all of it counts
    return content
