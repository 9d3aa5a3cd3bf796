"""What kind of project this is, seen from the files in it: checks to propose, never to run unasked."""

from __future__ import annotations

import json
import re
from pathlib import Path


def detect_checks(root: Path) -> list[str]:
    """Commands that check the project at `root`, best guess first; empty if nothing is known."""
    found = [*_python(root), *_node(root)]
    if (root / "Cargo.toml").exists():
        found.append("cargo test")
    if (root / "go.mod").exists():
        found.append("go test ./...")
    if not found and re.search(r"^test\s*:", _read(root / "Makefile"), re.MULTILINE):
        found.append("make test")
    return found


def _python(root: Path) -> list[str]:
    config = _read(root / "pyproject.toml") + _read(root / "setup.cfg") + _read(root / "tox.ini")
    tests = any((root / name).exists() for name in ("pytest.ini", "conftest.py")) or "pytest" in config
    tests = tests or any(root.glob("tests/**/test_*.py")) or any(root.glob("test_*.py"))
    return ["python3 -m pytest -q"] * tests + [
        command
        for word, command in (("[tool.ruff", "ruff check ."), ("[tool.mypy", "mypy ."))
        if word in config
    ]


def _node(root: Path) -> list[str]:
    try:
        scripts = json.loads(_read(root / "package.json") or "{}").get("scripts", {})
    except (ValueError, AttributeError):
        return []
    known = [name for name in ("typecheck", "lint", "test") if isinstance(scripts, dict) and name in scripts]
    real = [name for name in known if "no test specified" not in str(scripts[name])]
    return ["npm test" if name == "test" else f"npm run {name}" for name in real]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
