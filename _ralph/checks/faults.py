"""What a tool says where the place is at fault, and not the work: a program or a file is
missing, a configuration is not trusted; or there is nothing to test yet. Only a tool's
own whole line counts, as a test may be called "blocked user"."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from pathlib import Path

from _ralph.checks.missing import UNCOMMITTED, at_home_only
from _ralph.git.git import Git

_PROGRAM = (
    r"(?:npm (?:error|ERR!) )?\S+: (?:line )?(?:\d+: )?([\w.+-]+): (?:[Cc]ommand )?not found",
    r"\S+: command not found: ([\w.+-]+)",
    r"\S*env: \W?([\w.+-]+)\W?: No such file or directory",
    r"make(?:\[\d+\])?: ([\w.+-]+): No such file or directory",
)
_MODULE = (
    r"(?:E +)?ModuleNotFoundError: No module named '([\w.]+)'.*",
    r"\S*python[\d.]*: No module named ([\w.]+)",
    r"(?:[\w ]*Error(?: \[\w+\])?: )?Cannot find (?:module|package) '([^']+)'.*",
    r"Error: Failed to resolve import \"([^\"]+)\" from .*",
    r".*cannot load such file -- (\S+) \(LoadError\)",
)
_FILE = (
    r"(?:E +)?FileNotFoundError: \[Errno 2\] No such file or directory: '([^']+)'",
    r"\S*python[\d.]*: can't open file '([^']+)': .*",
    r"(?:Uncaught )?Error: ENOENT: no such file or directory, \w+ '([^']+)'",
    r"\S+: (?:\d+: )?(?:can(?:no|')t (?:open|access|stat) )?\W?([\w@./+-]+)\W?: (?:No such file.*|not found)",
)
_TRUST = (
    r"mise (?:ERROR|WARN) .*not trusted.*",
    r"direnv: error .* is blocked\..*",
    r"fatal: detected dubious ownership in repository at .*",
)
_NOTHING_TO_TEST = (
    r"=* ?no tests (?:ran|collected).*",
    r"ERROR: file or directory not found: .*",
    r"Ran 0 tests in .*|NO TESTS RAN.*|ImportError: Start directory is not importable: .*",
    r"npm (?:error|ERR!) .*(?:Could not read package\.json|open '.*package\.json').*",
    r".*No package\.json \(or .*\) was found in .*",
    r"error Couldn't find a package\.json file in .*|.*No project found in .*",
    r"(?:.* )?(?:Missing script: .*|Script not found .*|Command \"\w+\" not found\..*)",
    r"error: could not find `Cargo\.toml` in .*",
    r"(?:go: )?(?:go\.mod file not found|cannot find main module).*",
    r"pattern \./\.\.\.: directory prefix .* does not contain main module.*",
    r"(?:go: warning: )?\"?\S+ matched no packages|no packages to test",
    r".*No test files? found.*|No tests found.*|.*No test modules found.*",
    r"There are no \.py\[i\] files in directory .*",
    r"error TS18003: No inputs were found in config file .*",
    r"make: \*\*\* (?:No rule to make target|No targets).*",
    r".*there is no POM in this directory.*",
    r".*does not contain a Gradle build.*",
    r"No tests executed!",
)


Tracked = Callable[[], Collection[str]]
"""The files that git tracks; asked only where a tool says that something is missing."""


@dataclass(frozen=True)
class Fault:
    """What is missing, by its name, and a sentence about it with a way on."""

    name: str
    sentence: str
    is_program: bool = False

    def is_named_in(self, words: str) -> bool:
        """Whether these words name it, as those of a task do that is to make it."""
        for name in {self.name, os.path.basename(self.name)} - {""}:
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", words):
                return True
        return False


def find(output: str, home: Git, place: Path) -> Fault | None:
    """What the output of a red check says of the `place` that it ran in. A module or a
    file counts only where `home` has it: another one may be what a task is to make."""
    for line in _lines(output):
        if _matched(_TRUST, line) is not None:
            return Fault("", f"it is not trusted there: {line[:200]}")
        program = _matched(_PROGRAM, line)
        if program:
            return missing_program(program)
        name = _matched(_MODULE + _FILE, line)
        sentence = at_home_only(line, home, place) if name else ""
        # A person's edits are no part of the work: a task may be to make the same file
        if name and sentence and UNCOMMITTED not in sentence:
            return Fault(name.removeprefix(f"{place}/"), sentence)
    return None


def missing_program(program: str) -> Fault:
    """What is to be said of a program that is not found."""
    said = f"{program} is not found there: install it, or let `setup` do it"
    return Fault(program, said, is_program=True)


def missing_module(said: str) -> str:
    """The module that the message of a failure says is missing; nothing if it says
    something else."""
    for line in _lines(said):
        found = _matched(_MODULE, line)
        if found:
            return found
    return ""


def has_nothing_to_test(output: str) -> bool:
    """Whether a tool says that there is no project, or no test, yet."""
    return any(_matched(_NOTHING_TO_TEST, line) is not None for line in _lines(output))


def is_own(module: str, tracked: Tracked, words: str) -> bool:
    """Whether a module is the project's own: by a relative name, by a file or folder
    that git tracks, or by `words`, those of tasks and tests that may be to make it."""
    if module.startswith((".", "/", "~", "@/", "#")):
        return True
    name = module.split(".")[0].split("/")[0]
    for path in tracked():
        parts = path.split("/")
        if name in parts or name == parts[-1].rpartition(".")[0]:
            return True
    return _plain(name) in _plain(words)


def _plain(words: str) -> str:
    return re.sub(r"[^a-z0-9]", "", words.lower())


def _lines(output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if line.strip()]


def _matched(patterns: Iterable[str], line: str) -> str | None:
    """What the first pattern that matches the whole line finds; empty if that names
    nothing, None if none matches."""
    for pattern in patterns:
        match = re.fullmatch(pattern, line)
        if match:
            return str(match[1]) if match.groups() else ""
    return None
