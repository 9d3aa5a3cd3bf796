"""Python projects: the tools that check one, and the setup that brings what they need."""

from __future__ import annotations

import configparser
import contextlib
import json
import re
import shlex
import shutil
import subprocess
import tomllib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

LOCKS = {
    "uv.lock": ("uv run", "uv sync --locked", "uv pip install -q"),
    "poetry.lock": ("poetry run", "poetry install", "poetry run pip install -q"),
    "pdm.lock": ("pdm run", "pdm sync", "pdm run python -m ensurepip && pdm run python -m pip install -q"),
    "Pipfile.lock": ("pipenv run", "pipenv sync --dev", "pipenv run pip install -q"),
}
"""Of a lock file: what runs the tools that it names, what installs them, and what adds another one."""

PIP = ".venv/bin/pip install -q"
_CONFIG = (
    "pyproject.toml",
    "setup.cfg",
    "setup.py",
    "tox.ini",
    "pytest.ini",
    "conftest.py",
    "mypy.ini",
    "ruff.toml",
)
_LISTS = ("requirements*.txt", "*[-_]requirements.txt", "requirements/*.txt")
_TESTS = ("test_*.py", "tests/**/test_*.py", "test/**/test_*.py")


def checks(root: Path, setup: str) -> list[str]:
    """The commands that check the project, in the environment that `setup` makes."""
    return [_command(root, tool, words, setup) for tool, words in _tools(root).items()]


def setup(root: Path) -> str | None:
    """The command that installs the project and the tools of its checks; None if it needs none."""
    tools = [tool for tool in _tools(root) if tool in ("pytest", "ruff", "mypy")]
    lock = _lock(root)
    return _sync(root, lock, tools) if lock else _pip(root, tools)


def _command(root: Path, tool: str, words: str, setup: str) -> str:
    module = tool if tool == "manage.py" else f"-m {tool}"
    lock = _lock(root)
    if lock and (tool not in ("ruff", "mypy") or f'"{tool}"' in read_text(root / lock)):
        return f"{LOCKS[lock][0]} python {module} {words}".rstrip()
    if ".venv" in setup:  # cron activates none
        return f".venv/bin/python {module} {words}".rstrip()
    return (f"{tool} {words}" if tool in ("ruff", "mypy") else f"python3 {module} {words}").rstrip()


def _tools(root: Path) -> dict[str, str]:
    """The tools that check this project, each with its words."""
    names = [name for name in _CONFIG if (root / name).exists()] + _requirements(root)
    config = "".join(f"[{name}]\n{read_text(root / name)}\n" for name in names)
    found = {}
    if re.search("pytest|conftest", config):
        found["pytest"] = "-q"
    elif (root / "manage.py").exists():
        found["manage.py"] = "test"
    elif tests := [path for pattern in _TESTS for path in root.glob(pattern)][:100]:
        sources = [read_text(path) for path in tests]
        plain = all(re.search(r"^\s*(import|from) unittest", source, re.MULTILINE) for source in sources)
        if plain and not any("pytest" in source for source in sources):
            folder = tests[0].relative_to(root).parts[0]
            inside = (root / folder).is_dir() and not (root / folder / "__init__.py").exists()
            found["unittest"] = f"discover -s {folder}" if inside else "discover"
        else:
            found["pytest"] = "-q"
    if "[tool.ruff" in config or "[ruff.toml" in config:
        found["ruff"] = "check ."
    if re.search(r"\[(tool\.)?mypy", config):
        named = re.search(r"^(files|packages)\s*=", config, re.MULTILINE)
        found["mypy"] = "" if named else "."
    return found


# ---------------------------------------------------------------- what is to be installed


def _sync(root: Path, lock: str, tools: list[str]) -> str:
    """What the lock file names is installed; what holds tools and is not by itself, is asked for."""
    data, (_, command, add) = _toml(root / "pyproject.toml"), LOCKS[lock]
    options = {
        "uv.lock": ("--group", "--extra"), "poetry.lock": ("--with", "--extras"), "pdm.lock": ("", "-G")
    }.get(lock, ("", ""))  # fmt: skip
    groups, optional = _groups_of(lock, data)
    asked = {f"{options[0]} {name}": held for name, held in groups.items() if name in optional}
    asked |= {f"{options[1]} {name}": held for name, held in _extras(root, data).items() if options[1]}
    present = _lists(_table(data, "project")).get("dependencies", [])
    present += _table(data, "tool", "poetry", "dependencies")
    present += [entry for name, held in groups.items() if name not in optional for entry in held]
    words = _holding(asked, [tool for tool in tools if not _holds(present, tool)])
    if lock == "uv.lock" and _table(data, "tool", "uv", "workspace"):
        words = ["--all-packages", *words]
    missing = "pytest" in tools and '"pytest"' not in read_text(root / lock)
    return " ".join([command, *words]) + (f" && {add} pytest" if missing else "")


def _groups_of(lock: str, data: dict[str, Any]) -> tuple[dict[str, list[str]], set[str]]:
    """All groups of such a project, and the names of those that are only installed when asked for."""
    groups = _groups(data)
    if lock == "uv.lock":
        uv = _table(data, "tool", "uv")
        default = _lists(uv).get("default-groups", groups if uv.get("default-groups") == "all" else ["dev"])
        groups["dev"] = groups.get("dev", []) + _lists(uv).get("dev-dependencies", [])
        return groups, {name for name in groups if name not in default}
    tables = _table(data, "tool", "poetry", "group")
    optional = {name for name in tables if _table(tables, name).get("optional") is True}
    return groups | {name: [*_table(tables, name, "dependencies")] for name in tables}, optional


def _pip(root: Path, tools: list[str]) -> str | None:
    """A .venv with the project, what it requires and the tools; None where nothing is required."""
    data, files = _toml(root / "pyproject.toml"), _requirements(root)
    required, extras, groups = _required(root, data), _extras(root, data), _groups(data)
    layout = any(root.glob("src/*/__init__.py")) or any(root.glob("src/*.py"))
    if not (required or files or layout or "pytest" in tools):
        return None
    held = required + [line for name in files for line in read_text(root / name).splitlines()]
    chosen = _holding(extras, [tool for tool in tools if not _holds(held, tool)])
    held += [entry for name in chosen for entry in extras[name]]
    named = _holding(groups, [tool for tool in tools if not _holds(held, tool)])
    held += [entry for name in named for entry in groups[name]]
    words = [word for name in files for word in ("-r", name)]
    words += [word for name in named for word in ("--group", name)]
    words += [tool for tool in tools if not _holds(held, tool)]
    if _can_be_installed(root, data) and (required or layout or chosen):
        words = ["-e", f".[{','.join(chosen)}]" if chosen else ".", *words]
    newer = [f"{PIP} 'pip>=25.1'"] if named else []  # the first that knows --group
    return " && ".join(["python3 -m venv .venv", *newer, f"{PIP} {shlex.join(words)}"]) if words else None


def _required(root: Path, data: dict[str, Any]) -> list[str]:
    """What the project itself requires, as far as it can be seen."""
    project = _lists(_table(data, "project"))
    found = project.get("dependencies", [])
    found += [name for name in project.get("dynamic", []) if name == "dependencies"]
    found += [name for name in _table(data, "tool", "poetry", "dependencies") if name != "python"]
    older = read_text(root / "setup.py") + read_text(root / "setup.cfg")
    return found + re.findall(r"install_requires", older)


def _can_be_installed(root: Path, data: dict[str, Any]) -> bool:
    return "project" in data or "build-system" in data or (root / "setup.py").is_file()


def _requirements(root: Path) -> list[str]:
    """The lists of requirements for who works on it: the one of that name, and those for tests."""
    names = {
        path.relative_to(root).as_posix()
        for pattern in _LISTS
        for path in root.glob(pattern)
        if path.is_file()
    }
    return sorted(name for name in names if name == "requirements.txt" or re.search("dev|test", name))


def _extras(root: Path, data: dict[str, Any]) -> dict[str, list[str]]:
    """Its extras, each with what it holds."""
    found = _lists(_table(data, "project", "optional-dependencies"))
    older = configparser.ConfigParser(interpolation=None, strict=False)
    try:
        older.read_string(read_text(root / "setup.cfg"))
    except configparser.Error:
        older.clear()
    if older.has_section("options.extras_require"):
        found |= {name: held.splitlines() for name, held in older.items("options.extras_require")}
    script = read_text(root / "setup.py").partition("extras_require")[2]
    listed = re.findall(r"""["']?([\w-]+)["']?\s*[:=]\s*\[([^\]]*)\]""", script)
    return found | {name: re.findall(r"""["']([^"']+)["']""", held) for name, held in listed}


def _groups(data: dict[str, Any]) -> dict[str, list[str]]:
    """Its dependency groups, each with what it holds and what those hold that it includes."""
    table = _table(data, "dependency-groups")
    plain = _lists(table)

    def whole(name: str, above: tuple[str, ...] = ()) -> Iterator[str]:
        yield from plain.get(name, [])
        for entry in table[name] if isinstance(table.get(name), list) else []:
            other = entry.get("include-group") if isinstance(entry, dict) else None
            if isinstance(other, str) and other not in (*above, name):
                yield from whole(other, (*above, name))

    return {name: [*whole(name)] for name in plain}


def _holding(lists: dict[str, list[str]], tools: Iterable[str]) -> list[str]:
    """The first of `lists` for each of the tools that one of them holds."""
    found: list[str] = []
    for tool in tools:
        if not any(_holds(lists[name], tool) for name in found):
            found += [name for name, held in lists.items() if _holds(held, tool)][:1]
    return found


def _holds(entries: Iterable[str], tool: str) -> bool:
    """Whether one of these requirements is the tool; a plugin of pytest brings it."""
    plugin = "(-[a-z-]+)?" if tool == "pytest" else ""
    return any(re.match(rf"\s*{tool}{plugin}\s*([^\w.-]|$)", entry, re.IGNORECASE) for entry in entries)


# ---------------------------------------------------------------- how it is read


def _lock(root: Path) -> str:
    """The name of the lock file that is there, with its project."""
    projects = {name: "Pipfile" if name == "Pipfile.lock" else "pyproject.toml" for name in LOCKS}
    return next(
        (name for name, of in projects.items() if (root / name).is_file() and (root / of).is_file()), ""
    )


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError):
        return {}


def _table(data: dict[str, Any], *keys: str) -> dict[str, Any]:
    """The table to which these keys lead; an empty one if they lead to none."""
    for key in keys:
        found = data.get(key)
        data = found if isinstance(found, dict) else {}
    return data


def _lists(table: dict[str, Any]) -> dict[str, list[str]]:
    """Of what a table holds, the lists of texts."""
    lists = {name: held for name, held in table.items() if isinstance(held, list)}
    return {name: [entry for entry in held if isinstance(entry, str)] for name, held in lists.items()}


def read_text(path: Path) -> str:
    """What stands in a file of the project; nothing if it is none."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


# ---------------------------------------------------------------- what is installed already

_PLACES = "import json, site; print(json.dumps([*site.getsitepackages(), site.getusersitepackages()]))"
_BARE = re.compile(r"(?:^|[;&|(]\s*|\b\w+=\S*\s+)(?:python[\d.]*|pytest)\b")


def led_back(root: Path, commands: Iterable[str], sets_up: bool) -> str:
    """What the Python on PATH has installed that leads back into `root`, as an editable install does;
    nothing where `sets_up`, and none of `commands` starts that Python."""
    project = any((root / name).exists() for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    if not project or (sets_up and not any(_BARE.search(command) for command in commands)):
        return ""
    for name in ("python3", "python"):
        if program := shutil.which(name):
            found = next((path for site in _sites(program) for path in _links(site, root)), None)
            if found:
                return str(found)
    return ""


def _sites(program: str) -> list[Path]:
    """Where a Python finds what is installed."""
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        words = [program, "-c", _PLACES]
        done = subprocess.run(words, cwd="/", stdin=subprocess.DEVNULL, capture_output=True, timeout=10)
        return [Path(name) for name in json.loads(done.stdout)]
    return []


def _links(site: Path, root: Path) -> Iterator[Path]:
    """What stands in a folder of installed packages and leads into `root`."""
    for pattern in ("*.pth", "__editable__*", "*.egg-link", "*.dist-info/direct_url.json"):
        for path in sorted(site.glob(pattern)):
            source = read_text(path)
            copied = path.name == "direct_url.json" and '"editable": true' not in source
            if not copied and re.search(rf"(?<![\w.-]){re.escape(str(root))}(?![\w.-])(?!/\.venv)", source):
                yield path
