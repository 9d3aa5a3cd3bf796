"""Detect the kind of a project from its files, to propose setup, checks and protection. The facts of each
kind are in templates/detect.json."""

from __future__ import annotations

import contextlib
import json
import os
import re
import tomllib
from pathlib import Path

from _ralph.git import patterns
from _ralph.git.git import git, top_level
from _ralph.loop import detect_python
from _ralph.loop.detect_python import TABLE, read_text
from _ralph.model import Finding, Json

_NO_SCRIPTS = {*TABLE["node needs"], "version"}
_MISSING = re.compile("|".join(TABLE["missing"]), re.MULTILINE)
_MODULE = re.compile(r"""(?:No module named|Cannot find (?:module|package)) ['"]?([\w@/-]+)""")


def detect_setup(root: Path) -> str | None:
    """The command that installs what the project at `root` needs; None if it needs nothing."""
    return " && ".join(command for command, _ in _setups(root)) or None


def detect_when(root: Path) -> list[str]:
    """Patterns of the files that this command depends on; empty if it depends on more than manifests."""
    found = [when for _, when in _setups(root)]
    return list(dict.fromkeys(pattern for when in found for pattern in when)) if all(found) else []


def _setups(root: Path) -> list[tuple[str, list[str]]]:
    """The command of each tool that installs something, with its patterns of `when`."""
    found = [(detect_python.setup(root), detect_python.when(root)), (_node_setup(root), _node_when(root))]
    for row in _kinds(root):
        said = read_text(root / row["file"])
        if "needs" in row and re.search(row["needs"], said, re.MULTILINE):
            when = [] if re.search(row.get("reads sources", "$^"), said) else row["when"]
            found.append((row["setup"], when))
    return [(command, when) for command, when in found if command]


def detect_checks(root: Path, setup: str | None = None) -> list[str]:
    """Commands that check the project at `root` after `setup` (None: the one that `detect_setup` proposes);
    empty if nothing is known."""
    found = detect_python.checks(root, (detect_setup(root) or "") if setup is None else setup)
    by_tool = {row["tool"]: row["check"] for row in reversed(_kinds(root)) if "check" in row}
    found += [*_node_checks(root), *reversed(by_tool.values())]
    return found + _make(root, found)


def detect_keep(root: Path) -> list[str]:
    """Patterns of caches that may stay in the clean room, as they go by content."""
    return list(dict.fromkeys(row["keep"] for row in _kinds(root) if "keep" in row))


def _kinds(root: Path) -> list[Json]:
    """The rows whose file exists. Of rows with the same tool, the check of the first one counts."""
    return [row for row in TABLE["kinds"] if any(root.glob(row["file"]))]


def setup_hint(output: str, exit_status: int | None, root: Path) -> Finding | None:
    """A finding if a red check lacks what a setup could install: a warning if it lacks a module that neither
    the setup nor a manifest names, as a task may be about to make it, else an error."""
    lacks = exit_status in (126, 127) or _MISSING.search(output)
    command = detect_setup(root) if lacks else None
    if command is None:
        return None
    module = _MODULE.search(output) if exit_status not in (126, 127) else None
    manifests = [read_text(root / name) for name in patterns.matching(detect_when(root), os.listdir(root))]
    words = re.findall(r"[\w@/-]+", " ".join([command, *manifests]).replace("_", "-").lower())
    level = "error" if module is None or module[1].replace("_", "-").lower() in words else "warning"
    wanted = f'"setup": {json.dumps(command, ensure_ascii=False)}'
    return level, f"a program or a module is missing; {wanted} in the plan installs what this project names"


def detect_protected(root: Path) -> list[str]:
    """Patterns of `protect` for this project: tests, and files that could make a check green or run code
    later. A pattern is proposed if it covers tests that no earlier one does."""
    names = files_of(root)
    tests, found = set(patterns.uncovered_tests([], names)), []
    for pattern in TABLE["tests"]:
        covered = patterns.matching([pattern], tests)
        found += [pattern] if covered else []
        tests -= covered
    beside = TABLE["beside tests"]
    wanted = set(beside) - set(patterns.unmatched(beside, names))
    if "pytest" in " ".join(detect_python.checks(root, "")):
        wanted.add("conftest.py")  # pytest obeys a new one anywhere
    return found + [pattern for pattern in beside if pattern in wanted]


def deciding(names: list[str], commands: str) -> list[str]:
    """Those of `names` that decide what one of these check commands does."""
    patterns_of = [
        pattern for pattern, tools in TABLE["decides"].items() if re.search(rf"\b({tools})\b", commands)
    ]
    return sorted(patterns.matching(patterns_of, names))


def decided_by(name: str, content: str) -> object:
    """The part of such a file that decides it: a manifest also has dependencies."""
    with contextlib.suppress(ValueError, AttributeError, RecursionError):  # then all of it counts
        if name.endswith("package.json"):
            return {key: value for key, value in json.loads(content).items() if key not in _NO_SCRIPTS}
        if name.endswith("pyproject.toml"):
            tools = tomllib.loads(content).get("tool", {})
            return {tool: said for tool, said in tools.items() if tool in ("pytest", "ruff", "mypy", "tox")}
    return content


def files_of(root: Path) -> list[str]:
    """The files of the project, tracked or not, without those that git ignores."""
    if top_level(root):
        listed = git(root, "ls-files", "-coz", "--exclude-standard", check=False)
        return [os.fsdecode(name) for name in listed.split(b"\0") if name and not name.endswith(b"/")]
    found = []
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if name not in TABLE["not ours"]]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return found


# ---------------------------------------------------------------- JavaScript, and make


def _package(root: Path) -> tuple[Json, str]:
    """The content of package.json, and the project's package manager: the one it names, else that of the lock
    file, else npm."""
    package = _json(root / "package.json")
    named = str(package.get("packageManager", "")).partition("@")[0]
    managers = TABLE["node"].items()
    locked = [name for name, row in managers if any((root / lock).exists() for lock in row["locks"])]
    return package, next((name for name in [named, *locked] if name in TABLE["node"]), "npm")


def _node_setup(root: Path) -> str | None:
    """The command that installs the dependencies in package.json. Without a lock file it writes none, as that
    would count as work."""
    package, manager = _package(root)
    if not any(package.get(kind) for kind in TABLE["node needs"]):
        return None
    row = TABLE["node"][manager]
    if not any((root / lock).is_file() for lock in row["locks"]):
        return str(row["unlocked"])
    old = "yarn lockfile v1" in read_text(root / "yarn.lock")
    return str(row["locked"]).replace("immutable", "frozen-lockfile" if old else "immutable")


def _node_when(root: Path) -> list[str]:
    """The patterns of `when` for what it installs; none where a script or a package makes something of the
    project's sources."""
    sources = TABLE["reads sources"]
    for name in files_of(root):
        if os.path.basename(name) == "package.json":
            package = _json(root / name)
            scripts = _words(package, "scripts")
            made = [
                words for script, words in scripts.items() if re.fullmatch(sources["node scripts"], script)
            ]
            needed = [one for kind in TABLE["node needs"] for one in _words(package, kind)]
            if any(re.match(sources["node packages"], one) for one in needed):
                return []
            if any(
                not re.fullmatch(sources["but"], part.strip()) for words in made for part in words.split("&&")
            ):
                return []
    return list(TABLE["node"][_package(root)[1]]["when"])


def _json(path: Path) -> Json:
    """The object in a file; empty if there is none."""
    try:
        found = json.loads(read_text(path) or "{}")
    except (ValueError, RecursionError):
        found = {}
    return found if isinstance(found, dict) else {}


def _words(package: Json, key: str) -> dict[str, str]:
    """An object of texts in package.json."""
    found = package.get(key)
    return {name: str(words) for name, words in found.items()} if isinstance(found, dict) else {}


def _node_checks(root: Path) -> list[str]:
    package, manager = _package(root)
    named, found = _words(package, "scripts"), []
    for name in TABLE["node scripts"]:
        words = named.get(name, "no test specified")
        again = name == "check" and re.search("test|lint", words)  # it runs the others
        if not again and not re.search("no test specified|--watch(?!=false)", words):
            ask = "test" if name == "test" and manager != "bun" else f"run {name}"
            found.append(f"{'CI=true ' * ('react-scripts test' in words)}{manager} {ask}")
    return found


def _make(root: Path, found: list[str]) -> list[str]:
    """Targets of a Makefile for what nothing else checks; `check` often runs all of them."""
    rules, known = read_text(root / "Makefile") or read_text(root / "makefile"), "\n".join(found)
    here = [name for name, said in TABLE["make"].items() if not re.search(said, known, re.MULTILINE)]
    here += [] if found else ["check"]
    targets = [
        name for name in here if re.search(rf"^([\w -]+ )?{name}( [\w -]+)?\s*::?(?!=)", rules, re.MULTILINE)
    ]
    return [f"make {name}" for name in targets if name != "check" or targets == ["check"]]
