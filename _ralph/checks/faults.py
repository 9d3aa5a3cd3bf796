"""What a tool says where the place is at fault, and not the work: a program is missing,
a file or module that home has, or trust; or there is nothing to test yet. Only a tool's
own whole line counts, as a test may be called "blocked user"."""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from _ralph.git.git import Git


def _any(*patterns: str) -> re.Pattern[str]:
    return re.compile("|".join(patterns))


_PROGRAM = _any(
    r"(?:npm (?:error|ERR!) )?\S+: (?:line )?(?:\d+: )?(?:exec: )?([\w.+-]+): (?:[Cc]ommand )?not found",
    r"\S+: command not found: ([\w.+-]+)",
    r"\S*(?:env|timeout|nice|nohup|time|xargs|stdbuf): (?:[a-z ]+ )?\W?([\w.+-]+)\W?: No such file or directory",
    r"make(?:\[\d+\])?: ([\w.+-]+): No such file or directory",
    r"\[Errno 2\] No such file or directory: '([\w+-]+)'",  # ralph's own words
)
_MODULE = _any(
    r"(?:E +)?ModuleNotFoundError: No module named '([\w.]+)'.*",
    r"\S*python[\d.]*: No module named ([\w.]+)",
    r"(?:.*[Ee]rror\b[^:]*: )?Cannot find (?:module|package) '([^']+)'.*",
    r"(?:Module not found: )?Error: Can't resolve '([^']+)' in .*",
    r"Error: Failed to resolve import \"([^\"]+)\" from .*",
    r".*cannot load such file -- (\S+) \(LoadError\)",
)
_FILE = _any(
    r"(?:E +)?FileNotFoundError: \[Errno 2\] No such file or directory: '([^']+)'",
    r"\S*python[\d.]*: can't open file '([^']+)': .*",
    r"(?:Uncaught )?Error: ENOENT: no such file or directory, \w+ '([^']+)'",
    r"\S+: (?:\d+: )?(?:can(?:no|')t (?:open|access|stat) )?[^\w.@/]?([\w@./+-]+)\W?: (?:No such file.*|not found)",
)
_TRUST = _any(
    r"mise (?:ERROR|WARN) .*not trusted.*",
    r"direnv: error .* is blocked\..*",
    r"fatal: detected dubious ownership in repository at .*",
)
_NOTHING_TO_TEST = _any(
    r"=* ?no tests (?:ran|collected).*",
    r"ERROR: file or directory not found: .*",
    r"Ran 0 tests in .*|NO TESTS RAN.*|ImportError: Start directory is not importable: .*",
    r"npm (?:error|ERR!) .*(?:Could not read package\.json|open '.*package\.json').*",
    r".*No package\.json \(or .*\) was found in .*",
    r"error Couldn't find a package\.json file in .*|.*No project found in .*",
    r"(?:.* )?(?:Missing script: .*|Script not found .*|Command \"\w+\" not found\..*)",
    r"error: could not find `Cargo\.toml` in .*",
    r"(?:go: )?(?:go\.mod file not found|cannot find main module).*",
    r"pattern \S+: directory prefix \S+ does not contain (?:main module|modules) .*",
    r"(?:go: warning: )?\"?\S+ matched no packages|no packages to test",
    r".*No test files? found.*|No tests found.*|.*No test modules found.*",
    r"There are no \.py\[i\] files in directory .*",
    r"error TS18003: No inputs were found in config file .*",
    r"make(?:\[\d+\])?: \*\*\* (?:No rule to make target|No targets).*",
    r".*there is no POM in this directory.*",
    r".*does not contain a Gradle build.*",
    r"No tests executed!",
)


@dataclass(frozen=True)
class Fault:
    """What is missing, by its name, and a sentence about it with a way on."""

    name: str
    sentence: str

    def is_named_in(self, words: str) -> bool:
        """Whether these words name it, as those of a task do that is to make it."""
        for name in {self.name, os.path.basename(self.name)} - {""}:
            if re.search(rf"(?<![\w-]){re.escape(name)}(?![\w-])", words):
                return True
        return False


def find(output: str, home: Git, place: Path) -> Fault | None:
    """What the output of a red check says of the `place` that it ran in. A module or a
    file counts only where `home` has it, and git ignores it there: another one may be
    what a task is to make."""
    for line in _lines(output):
        if _TRUST.fullmatch(line):
            return Fault("", f"it is not trusted there: {line[:200]}")
        program = _named(_PROGRAM, line)
        if program:
            said = f"{program} is not found there: install it, or let `setup` do it"
            return Fault(program, said)
        name = (_named(_MODULE, line) or _named(_FILE, line)).removeprefix(f"{place}/")
        for path in _meant(name, home.root):
            if _only_home_has(path, home, place):
                said = f"{path} is at home, git ignores it, and no place has it"
                advice = "let `setup` make it, or name it in .worktreeinclude"
                return Fault(name, f"{said}: {advice}")
    return None


def missing_module(said: str) -> str:
    """The module that the message of a failure says is missing; nothing if it says
    something else."""
    for line in _lines(said):
        module = _named(_MODULE, line)
        if module:
            return module
    return ""


def is_own(module: str, tracked: Collection[str], words: str) -> bool:
    """Whether a module is the project's own: by a relative name, by a `tracked` file or
    folder, or by `words`, those of tasks and tests that may be to make it."""
    if module.startswith((".", "/", "~", "@/", "#")):
        return True
    name = module.split(".")[0].split("/")[0]
    for path in tracked:
        parts = path.split("/")
        if name in parts or name == parts[-1].rpartition(".")[0]:
            return True
    return _plain(name) in _plain(words)


def _plain(words: str) -> str:
    return re.sub(r"[^a-z0-9]", "", words.lower())


def has_nothing_to_test(output: str) -> bool:
    """Whether a tool says that there is no project, or no test, yet."""
    return any(_NOTHING_TO_TEST.fullmatch(line) for line in _lines(output))


def _lines(output: str) -> list[str]:
    return [line.strip() for line in output.splitlines() if line.strip()]


def _named(pattern: re.Pattern[str], line: str) -> str:
    """What a line names that one of these patterns matches as a whole, or nothing."""
    match = pattern.fullmatch(line)
    return match[match.lastindex or 0] if match else ""


def _meant(name: str, root: Path) -> Iterator[str]:
    """The paths that a name can mean: a file, or a module of Python or Node."""
    name = re.sub(r"^(\.{1,2}/)+", "", name).rstrip("/.")
    if not name or name.startswith("/"):
        return
    names = [name]
    if "/" not in name:
        names.append(name.replace(".", "/"))
    folders = [root, root / "src", root / "node_modules"]
    folders += root.glob(".venv/lib/python*/site-packages")
    for folder in folders:
        for one in names:
            for suffix in ("", ".py", ".js", ".ts"):
                yield os.path.relpath(f"{folder}/{one}{suffix}", root)


def _only_home_has(path: str, home: Git, place: Path) -> bool:
    """Whether home has it, and a place has not, as git ignores it."""
    if not os.path.lexists(home.root / path) or os.path.lexists(place / path):
        return False
    return home.maybe("check-ignore", "-q", "--", path) is not None
