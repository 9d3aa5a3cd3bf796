"""What kind of project this is, seen from the files in it: checks and protection to propose."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from _ralph.git import git, top_level


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


PROTECTABLE = (
    "tests/**", "test/**", "spec/**", "**/__tests__/**", "conftest.py", "pytest.ini",
    "jest.config.*", "vitest.config.*", "package-lock.json", "yarn.lock", "pnpm-lock.yaml",
    "poetry.lock", "uv.lock", "Cargo.lock", "go.sum", ".github/**", ".gitlab-ci.yml",
)  # fmt: skip
"""What an agent could make a check green with, or run later with: tests, their configuration, locks, CI."""


def detect_protected(root: Path) -> list[str]:
    """Patterns of `protect` that fit this project. Pytest obeys a new conftest.py anywhere, so that
    name is proposed wherever it is used."""
    tracked = git(root, "ls-files", "-z", check=False) if top_level(root) else b""
    names = [Path(os.fsdecode(name)) for name in tracked.split(b"\0") if name]
    pytest = "pytest" in " ".join(_python(root))

    def fits(pattern: str) -> bool:
        folder = pattern.removesuffix("/**")
        if folder != pattern:
            parts = folder.removeprefix("**/")
            return any(parts in (name.parts[:-1] if "**" in folder else name.parts[:1]) for name in names)
        return any(name.match(pattern) for name in names) or (pattern == "conftest.py" and pytest)

    return [pattern for pattern in PROTECTABLE if fits(pattern)]


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
