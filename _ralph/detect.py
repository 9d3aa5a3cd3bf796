"""What kind of project this is, seen from the files in it: checks and protection to propose."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

from _ralph.git import git, top_level

RUNNERS = (("uv.lock", "uv run"), ("poetry.lock", "poetry run"), ("pdm.lock", "pdm run"))
"""Python: a lock file, and what runs the tools that it names."""

MANAGERS = (("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"), ("bun.lockb", "bun"))
"""JavaScript: a lock file, and whose it is; without one, npm."""

PURPOSES = {"typecheck": r"mypy|type-?check|tsc", "lint": r"lint|ruff", "test": r"test|gradlew? check|verify"}
"""What targets of a Makefile are looked for, and the commands beside which they say nothing new."""

KINDS = (
    (("Cargo.toml", "cargo test"),),
    (("go.mod", "go test ./..."),),
    ((".golangci.y*ml", "golangci-lint run"),),
    (("gradlew", "./gradlew check"), ("build.gradle*", "gradle check")),
    (("mvnw", "./mvnw -q verify"), ("pom.xml", "mvn -q verify")),
    (("*.sln", "dotnet test"), ("*.csproj", "dotnet test")),
    (("mix.exs", "mix test"),),
    (("bin/rails", "bin/rails test"), (".rspec", "bundle exec rspec"), ("Rakefile", "bundle exec rake test")),
    (("phpunit.xml*", "vendor/bin/phpunit"),),
    (("Package.swift", "swift test"),),
    (("deno.json*", "deno test"),),
)
"""Other kinds: a file and the command that checks; of each kind, the first that is there."""


def detect_checks(root: Path) -> list[str]:
    """Commands that check the project at `root`; empty if nothing is known."""
    found = [*_python(root), *_node(root)]
    for kind in KINDS:
        found += [command for pattern, command in kind if any(root.glob(pattern))][:1]
    return found + _make(root, found)


PROTECTABLE = (
    "tests/**", "test/**", "spec/**", "**/__tests__/**", "conftest.py", "pytest.ini",
    "jest.config.*", "vitest.config.*", "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock",
    "poetry.lock", "uv.lock", "pdm.lock", "Cargo.lock", "go.sum", ".github/**", ".gitlab-ci.yml",
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
    names = ("pyproject.toml", "setup.cfg", "tox.ini", "pytest.ini", "conftest.py", "mypy.ini", "ruff.toml")
    config = "".join(f"[{name}]\n{_read(root / name)}\n" for name in names if (root / name).exists())
    has_tests = any(root.glob("tests/**/test_*.py")) or any(root.glob("test_*.py"))
    django = (root / "manage.py").exists() and "pytest" not in config
    found = [_tool(root, "python3", "manage.py test")] if django else []
    if "pytest" in config or "conftest" in config or (has_tests and not django):
        found.append(_tool(root, "pytest", "-q"))
    if "[tool.ruff" in config or "[ruff.toml" in config:
        found.append(_tool(root, "ruff", "check ."))
    if re.search(r"\[(tool\.)?mypy", config):
        named = re.search(r"^(files|packages)\s*=", config, re.MULTILINE)
        found.append(_tool(root, "mypy", "" if named else "."))
    return found


def _tool(root: Path, tool: str, words: str) -> str:
    """How a tool of Python is run here: by what locked it, from .venv (cron activates none), or as it is."""
    module = f"-m {tool} " if tool != "python3" else ""
    for lock, runner in RUNNERS:
        if f'"{tool}"' in _read(root / lock) or (not module and (root / lock).exists()):
            return f"{runner} python {module}{words}".rstrip()
    if (root / ".venv/bin" / tool).exists():
        return f".venv/bin/python {module}{words}".rstrip()
    return f"{tool} {words}".rstrip() if tool in ("ruff", "mypy") else f"python3 {module}{words}"


def _node(root: Path) -> list[str]:
    try:
        package = json.loads(_read(root / "package.json") or "{}")
        scripts = {name: str(words) for name, words in package.get("scripts", {}).items()}
        manager = str(package.get("packageManager", "")).partition("@")[0]
    except (ValueError, AttributeError):
        return []
    manager = manager or next((name for lock, name in MANAGERS if (root / lock).exists()), "npm")
    found = []
    for name in ("typecheck", "type-check", "check", "lint", "test"):
        words = scripts.get(name, "no test specified")
        again = name == "check" and re.search("test|lint", words)  # it stands for the others
        if not again and not re.search("no test specified|--watch(?!=false)", words):
            ask = "test" if name == "test" and manager != "bun" else f"run {name}"
            found.append(f"{'CI=true ' * ('react-scripts test' in words)}{manager} {ask}")
    return found


def _make(root: Path, found: list[str]) -> list[str]:
    """Targets of a Makefile for what nothing else checks; `check` often stands for all of them."""
    rules = _read(root / "Makefile") or _read(root / "makefile")
    here = [name for name, said in PURPOSES.items() if not re.search(said, "\n".join(found), re.MULTILINE)]
    here += [] if found else ["check"]
    targets = [
        name for name in here if re.search(rf"^([\w -]+ )?{name}( [\w -]+)?\s*::?(?!=)", rules, re.MULTILINE)
    ]
    return [f"make {name}" for name in targets if name != "check" or targets == ["check"]]


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
