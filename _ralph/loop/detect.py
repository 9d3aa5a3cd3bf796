"""What kind of project this is, seen from the files in it: setup, checks and protection to propose.
What is known of each kind stands in templates/detect.json."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from _ralph.git import patterns
from _ralph.git.git import git, top_level
from _ralph.loop import detect_python
from _ralph.loop.detect_python import TABLE, read_text
from _ralph.model import Finding

SETUP_INPUTS: list[str] = TABLE["inputs"]
"""Manifests and lock files, as patterns: where one changed, setup runs again."""

_NOT_OURS = frozenset({"node_modules", ".venv", "venv", "vendor", "target", ".git"})

_MISSING = re.compile(
    r"""No\ module\ named | command\ not\ found | :\ not\ found\s*$ | No\ such\ command
    | Cannot\ find\ (module|package)\ ['"](?![./]) | ERR_MODULE_NOT_FOUND\](?!:\ Cannot\ find\ module)
    | Could\ not\ find\ (gem|\S+\ in) | no\ required\ module\ provides\ package
    """,
    re.VERBOSE | re.MULTILINE,
)

_MODULE = re.compile(r"""(?:No module named|Cannot find (?:module|package)) ['"]?([\w@/-]+)""")


def detect_setup(root: Path) -> str | None:
    """The command that installs what the project at `root` needs; None where it needs nothing."""
    found = [detect_python.setup(root), _node_setup(root)]
    for row in _kinds(root):
        needy = "needs" in row and re.search(row["needs"], read_text(root / row["file"]), re.MULTILINE)
        found += [row["setup"]] if needy else []
    return " && ".join(filter(None, found)) or None


def detect_checks(root: Path, setup: str | None = None) -> list[str]:
    """Commands that check the project at `root`, in what its `setup` makes (None: the one that would be
    proposed); empty if nothing is known."""
    found = detect_python.checks(root, (detect_setup(root) or "") if setup is None else setup)
    by_tool = {row["tool"]: row["check"] for row in reversed(_kinds(root)) if "check" in row}
    found += [*_node_checks(root), *reversed(by_tool.values())]
    return found + _make(root, found)


def detect_keep(root: Path) -> list[str]:
    """Patterns of caches, told by content from what is stale, that may stay when the room is made clean."""
    return list(dict.fromkeys(row["keep"] for row in _kinds(root) if "keep" in row))


def _kinds(root: Path) -> list[dict[str, str]]:
    """The rows whose file is there; of those with the same tool, the first one's check is meant."""
    return [row for row in TABLE["kinds"] if any(root.glob(row["file"]))]


def setup_hint(output: str, exit_status: int | None, root: Path) -> Finding | None:
    """What a red check lacks that a setup could bring, if there is one: an error, but a warning for a module
    that neither the setup nor a manifest names, for a task may be about to make it."""
    lacks = exit_status in (126, 127) or _MISSING.search(output)
    command = detect_setup(root) if lacks else None
    if command is None:
        return None
    module = _MODULE.search(output) if exit_status not in (126, 127) else None
    manifests = [read_text(root / name) for name in patterns.matching(SETUP_INPUTS, os.listdir(root))]
    words = re.findall(r"[\w@/-]+", " ".join([command, *manifests]).replace("_", "-").lower())
    level = "error" if module is None or module[1].replace("_", "-").lower() in words else "warning"
    wanted = f'"setup": {json.dumps(command, ensure_ascii=False)}'
    return level, f"a program or a module is missing; {wanted} in the plan installs what this project names"


def detect_protected(root: Path) -> list[str]:
    """Patterns of `protect` that fit this project: what an agent could make a check green with, or run
    later with. Those of tests are proposed for tests that none before them covers."""
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


def files_of(root: Path) -> list[str]:
    """The files of the project, whether git tracks them yet or not, without those that it ignores."""
    if top_level(root):
        listed = git(root, "ls-files", "-coz", "--exclude-standard", check=False)
        return [os.fsdecode(name) for name in listed.split(b"\0") if name and not name.endswith(b"/")]
    found = []
    for folder, inside, names in os.walk(root):
        inside[:] = [name for name in inside if name not in _NOT_OURS]
        found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
    return found


# ---------------------------------------------------------------- JavaScript, and make


def _package(root: Path) -> tuple[dict[str, Any], str]:
    """What package.json holds, and the package manager of the project: the one that it names, else that of
    its lock file, else npm."""
    try:
        package = json.loads(read_text(root / "package.json") or "{}")
    except (ValueError, RecursionError):
        package = {}
    package = package if isinstance(package, dict) else {}
    named = str(package.get("packageManager", "")).partition("@")[0]
    managers = TABLE["node"].items()
    locked = [name for name, row in managers if any((root / lock).exists() for lock in row["locks"])]
    return package, next((name for name in [named, *locked] if name in TABLE["node"]), "npm")


def _node_setup(root: Path) -> str | None:
    """What installs what package.json asks for, by the lock file if there is one; a lock that setup writes
    would be taken for work."""
    package, manager = _package(root)
    kinds = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "workspaces")
    if not any(package.get(kind) for kind in kinds):
        return None
    row = TABLE["node"][manager]
    if not any((root / lock).is_file() for lock in row["locks"]):
        return str(row["unlocked"])
    old = "yarn lockfile v1" in read_text(root / "yarn.lock")
    return str(row["locked"]).replace("immutable", "frozen-lockfile" if old else "immutable")


def _node_checks(root: Path) -> list[str]:
    package, manager = _package(root)
    scripts = package.get("scripts")
    named = {name: str(words) for name, words in scripts.items()} if isinstance(scripts, dict) else {}
    found = []
    for name in ("typecheck", "type-check", "check", "lint", "test"):
        words = named.get(name, "no test specified")
        again = name == "check" and re.search("test|lint", words)  # it stands for the others
        if not again and not re.search("no test specified|--watch(?!=false)", words):
            ask = "test" if name == "test" and manager != "bun" else f"run {name}"
            found.append(f"{'CI=true ' * ('react-scripts test' in words)}{manager} {ask}")
    return found


def _make(root: Path, found: list[str]) -> list[str]:
    """Targets of a Makefile for what nothing else checks; `check` often stands for all of them."""
    rules, known = read_text(root / "Makefile") or read_text(root / "makefile"), "\n".join(found)
    here = [name for name, said in TABLE["make"].items() if not re.search(said, known, re.MULTILINE)]
    here += [] if found else ["check"]
    targets = [
        name for name in here if re.search(rf"^([\w -]+ )?{name}( [\w -]+)?\s*::?(?!=)", rules, re.MULTILINE)
    ]
    return [f"make {name}" for name in targets if name != "check" or targets == ["check"]]
