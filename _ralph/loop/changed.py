"""The tests that an attempt changed, and the files that decide what checks do.
`templates/detect.json` names them."""

from __future__ import annotations

import contextlib
import json
import re
import tomllib
from collections.abc import Iterable

from _ralph.files import table
from _ralph.git import patterns
from _ralph.loop.before import checks_of
from _ralph.loop.jobs import Attempt
from _ralph.loop.run import Run

_TABLE = table("detect.json")
_NO_SCRIPTS = {*_TABLE["dependencies"], "version"}
_TOOLS = ("pytest", "ruff", "mypy", "tox")


def changed_tests(run: Run, attempt: Attempt) -> list[str]:
    """The tests that were there before the attempt, and that it changed or removed; and
    what decides what its checks do, such as the scripts in package.json, if it changed
    that, or made it."""
    commands = " ".join(check.command for check in checks_of(run, attempt.task))
    if not (
        patterns.uncovered_tests([], attempt.changed)
        or _deciding(attempt.changed, commands)
    ):
        return []
    words = (
        "diff-tree",
        "-r",
        "-z",
        "--name-status",
        "--no-renames",
        attempt.tip,
        attempt.commit,
    )
    listed = run.git.names(*words)
    how = dict(zip(listed[1::2], listed[::2], strict=True))
    found = patterns.uncovered_tests(
        [], [name for name, status in how.items() if status != "A"]
    )
    for name in _deciding(how, commands):
        versions = (f"{commit}:{name}" for commit in (attempt.tip, attempt.commit))
        before, after = (
            run.git("cat-file", "blob", version, check=False) for version in versions
        )
        found += [name] if _decided_by(name, before) != _decided_by(name, after) else []
    return found


def _deciding(names: Iterable[str], commands: str) -> list[str]:
    """Those of `names` that decide what one of these check commands does."""
    decide = [
        pattern
        for pattern, tools in _TABLE["decides"].items()
        if re.search(rf"\b({tools})\b", commands)
    ]
    return sorted(patterns.matching(decide, names))


def _decided_by(name: str, content: str) -> object:
    """The part of such a file that decides it: a manifest also has dependencies."""
    with contextlib.suppress(
        ValueError, AttributeError, RecursionError
    ):  # then all of it counts
        if name.endswith("package.json"):
            return {
                key: value
                for key, value in json.loads(content).items()
                if key not in _NO_SCRIPTS
            }
        if name.endswith("pyproject.toml"):
            settings = tomllib.loads(content).get("tool", {})
            return {tool: settings[tool] for tool in _TOOLS if tool in settings}
    return content
