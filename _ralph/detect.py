"""What kind of project this is, seen from the files in it: setup, checks and protection to propose."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from _ralph import detect_python, patterns
from _ralph.detect_python import read_text
from _ralph.git import git, top_level

MANAGERS = (
    ("pnpm-lock.yaml", "pnpm"), ("yarn.lock", "yarn"), ("bun.lock", "bun"), ("bun.lockb", "bun"),
    ("package-lock.json", "npm"), ("npm-shrinkwrap.json", "npm"),
)  # fmt: skip
"""JavaScript: a lock file, and whose it is; without one, npm."""

INSTALLS = {
    "npm": ("npm ci", "npm install --no-package-lock"),
    "pnpm": ("pnpm install --frozen-lockfile", "pnpm install --no-lockfile"),
    "yarn": ("yarn install --immutable", "yarn install"),
    "bun": ("bun install --frozen-lockfile", "bun install --no-save"),
}
"""What installs by a lock file, and without one: a lock that setup writes would be taken for work."""

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

SETUPS = (
    ("Gemfile", r"^\s*gem", "bundle install"),
    ("composer.json", r'"(require|require-dev|autoload|autoload-dev)"', "composer install"),
    ("mix.exs", r"\{\s*:\w+,", "mix deps.get"),
    ("go.mod", r"^require\b", "go mod download"),
    ("Cargo.toml", r"^\[(.*dependencies|workspace)\b", "cargo fetch"),
)
"""Of these: a manifest, how it looks when it needs something, and what brings that."""

SETUP_INPUTS = (
    "package.json", "package-lock.json", "npm-shrinkwrap.json", "pnpm-lock.yaml", "pnpm-workspace.yaml",
    ".pnpmfile.cjs", "yarn.lock", ".yarnrc", ".yarnrc.yml", "bun.lock", "bun.lockb", "bunfig.toml", ".npmrc",
    "**/patches/*.patch", "deno.json", "deno.jsonc", "deno.lock",
    "pyproject.toml", "setup.py", "setup.cfg", "requirements*.txt", "*[-_]requirements.txt",
    "**/requirements/*.txt", "constraints*.txt", "uv.lock", "uv.toml", "poetry.lock", "poetry.toml",
    "pdm.lock", "pdm.toml", "Pipfile", "Pipfile.lock", "environment.yml",
    "Cargo.toml", "Cargo.lock", "rust-toolchain", "rust-toolchain.toml", "go.mod", "go.sum", "go.work",
    "go.work.sum", "Gemfile", "Gemfile.lock", "*.gemspec", "composer.json", "composer.lock", "mix.exs",
    "mix.lock", "build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts",
    "gradle.lockfile", "pom.xml", "*.csproj", "packages.lock.json", "Package.swift", "Package.resolved",
    ".python-version", ".nvmrc", ".node-version", ".ruby-version", ".tool-versions", "mise.toml",
    ".mise.toml",
)  # fmt: skip
"""Manifests and lock files, as patterns: where one changed, setup runs again."""

KEEPS = (
    ("Cargo.toml", "target/"), ("gradlew", ".gradle/"), ("build.gradle*", ".gradle/"), ("mix.exs", "_build/"),
    ("Package.swift", ".build/"),
)  # fmt: skip
"""A file of a project, and where its tools keep what they built, told by content from what is stale."""

PROTECTABLE = (
    "tests/**", "test/**", "spec/**", "**/__tests__/**", "**/tests/**", "**/test/**", "e2e/**", "cypress/**",
    "**/e2e/**", "**/cypress/**", "*.test.*", "*.spec.*", "*.cy.*", "test_*.py", "*_test.*", "*_spec.rb",
    "**/tests.py", "*Test.*", "*Tests.*", "conftest.py", "pytest.ini", "jest.config.*", "vitest.config.*",
    "package-lock.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "poetry.lock", "uv.lock", "pdm.lock",
    "Pipfile.lock", "Cargo.lock", "go.sum", ".github/**", ".gitlab-ci.yml",
    ".pre-commit-config.yaml", ".husky/**", ".githooks/**", "lefthook.yml", "lefthook.yaml",
)  # fmt: skip
"""What an agent could make a check green with, or run later with: tests, their configuration, locks, CI,
hooks. Those of tests are proposed for tests alone that none before them covers."""

_NOT_OURS = frozenset({"node_modules", ".venv", "venv", "vendor", "target", ".git"})

_CONFIGURATION = PROTECTABLE.index("conftest.py")

_MISSING = re.compile(
    r"""No\ module\ named | command\ not\ found | :\ not\ found\s*$ | No\ such\ command
    | Cannot\ find\ (module|package)\ ['"](?![./]) | ERR_MODULE_NOT_FOUND\](?!:\ Cannot\ find\ module)
    | Could\ not\ find\ (gem|\S+\ in) | no\ required\ module\ provides\ package
    """,
    re.VERBOSE | re.MULTILINE,
)


def detect_setup(root: Path) -> str | None:
    """The command that installs what the project at `root` needs; None where it needs nothing."""
    found = [detect_python.setup(root), _node_setup(root)]
    for name, needy, command in SETUPS:
        found += [command] if re.search(needy, read_text(root / name), re.MULTILINE) else []
    return " && ".join(filter(None, found)) or None


def detect_checks(root: Path, setup: str | None = None) -> list[str]:
    """Commands that check the project at `root`, in what its `setup` makes (None: the one that would be
    proposed); empty if nothing is known."""
    found = detect_python.checks(root, (detect_setup(root) or "") if setup is None else setup)
    found += _node(root)
    for kind in KINDS:
        found += [command for pattern, command in kind if any(root.glob(pattern))][:1]
    return found + _make(root, found)


def detect_keep(root: Path) -> list[str]:
    """Patterns of caches that may stay when the room is made clean."""
    return list(dict.fromkeys(folder for name, folder in KEEPS if any(root.glob(name))))


def is_missing(output: str, exit_status: int | None) -> bool:
    """Whether a red check lacks a program or a module: that says nothing of the work."""
    return exit_status in (126, 127) or bool(_MISSING.search(output))


def setup_hint(output: str, exit_status: int | None, root: Path) -> str | None:
    """What to say of a red check that lacks a program or a module, if there is a setup that brings them."""
    command = detect_setup(root) if is_missing(output, exit_status) else None
    if command is None:
        return None
    wanted = f'"setup": {json.dumps(command, ensure_ascii=False)}'
    return f"a program or a module is missing; {wanted} in the plan installs what this project names"


def detect_protected(root: Path) -> list[str]:
    """Patterns of `protect` that fit this project. Pytest obeys a new conftest.py anywhere, so that
    name is proposed wherever it is used."""
    names = files_of(root)
    tests = set(patterns.uncovered_tests([], names))
    found = []
    for number, pattern in enumerate(PROTECTABLE):
        covers = patterns.matching([pattern], tests if number < _CONFIGURATION else names)
        if covers or (pattern == "conftest.py" and "pytest" in " ".join(detect_python.checks(root, ""))):
            found.append(pattern)
        tests -= covers
    return found


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
    """What package.json holds, and the package manager of the project."""
    try:
        package = json.loads(read_text(root / "package.json") or "{}")
    except (ValueError, RecursionError):
        package = {}
    package = package if isinstance(package, dict) else {}
    manager = str(package.get("packageManager", "")).partition("@")[0]
    manager = manager or next((name for lock, name in MANAGERS if (root / lock).exists()), "npm")
    return package, manager if manager in INSTALLS else "npm"


def _node_setup(root: Path) -> str | None:
    """What installs what package.json asks for."""
    package, manager = _package(root)
    kinds = ("dependencies", "devDependencies", "optionalDependencies", "peerDependencies", "workspaces")
    if not any(package.get(kind) for kind in kinds):
        return None
    locked, unlocked = INSTALLS[manager]
    if not any((root / lock).is_file() for lock, name in MANAGERS if name == manager):
        return unlocked
    old = "yarn lockfile v1" in read_text(root / "yarn.lock")
    return locked.replace("immutable", "frozen-lockfile") if old else locked


def _node(root: Path) -> list[str]:
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
    rules = read_text(root / "Makefile") or read_text(root / "makefile")
    here = [name for name, said in PURPOSES.items() if not re.search(said, "\n".join(found), re.MULTILINE)]
    here += [] if found else ["check"]
    targets = [
        name for name in here if re.search(rf"^([\w -]+ )?{name}( [\w -]+)?\s*::?(?!=)", rules, re.MULTILINE)
    ]
    return [f"make {name}" for name in targets if name != "check" or targets == ["check"]]
