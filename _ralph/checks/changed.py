"""The tests that an attempt changed, and the files that decide what checks do.
`templates/detect.json` names them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterable

from _ralph.files import table
from _ralph.git import patterns
from _ralph.git.git import Git

_TOOLS = ("pytest", "ruff", "mypy", "tox")


def changed_tests(
    git: Git, tip: str, commit: str, commands: Iterable[str]
) -> list[str]:
    """The files that differ between `tip` and `commit`: tests that were there; and what
    decides what the check `commands` do, such as the scripts in package.json."""
    difference = git.difference(tip, commit)
    there = [name for name, (before, _) in difference.items() if before.exists]
    found = patterns.uncovered_tests([], there)
    known = []
    for pattern, tools in table("detect.json")["decides"].items():
        if re.search(rf"\b({tools})\b", " ".join(commands)):
            known.append(pattern)
    for name in sorted(patterns.matching(known, difference)):
        parts = []
        for at in (tip, commit):
            content = git.maybe("cat-file", "blob", f"{at}:{name}") or ""
            parts.append(_deciding_part(name, content))
        if parts[0] != parts[1]:
            found.append(name)
    return found


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
