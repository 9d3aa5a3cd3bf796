"""Python projects: the tools that check one, and the setup that installs what they need."""

from __future__ import annotations

import contextlib
import json
import re
import shlex
import subprocess
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from _ralph.files import resource
from _ralph.model import Json

TABLE: Json = json.loads(resource("templates/detect.json").read_text("utf-8"))
LOCKS: Json = TABLE["python"]
"""For each lock file: what runs its tools, what installs them, and what adds another one."""

PIP = ".venv/bin/pip install -q"
FILES: dict[str, list[str]] = TABLE["python files"]
_DEVELOPMENT = re.compile("dev|test|lint|typ", re.IGNORECASE)
_REQUIRES = re.compile(
    r"^dependencies\s*=|[\"']dependencies[\"']|poetry\.dependencies|install_requires", re.MULTILINE
)


def checks(root: Path, setup: str) -> list[str]:
    """The commands that check the project, in the environment that `setup` makes."""
    return [_command(root, tool, words, setup) for tool, words in _tools(root).items()]


def setup(root: Path) -> str | None:
    """The command that installs the project and the tools of its checks; None if it needs none."""
    tools = [tool for tool in _tools(root) if tool in ("pytest", "ruff", "mypy")]
    data, lock = _toml(root / "pyproject.toml"), _lock(root)
    return _sync(root, lock, data, tools) if lock else _pip(root, data, tools)


def when(root: Path) -> list[str]:
    """Patterns of the files that this command depends on; none where the project builds something of its own
    sources."""
    manifests = "".join(read_text(root / name) for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    if re.search(TABLE["reads sources"]["python"], manifests):
        return []
    lock = _lock(root)
    return list(LOCKS[lock]["when"] if lock else FILES["when"])


def _command(root: Path, tool: str, words: str, setup: str) -> str:
    module = tool if tool == "manage.py" else f"-m {tool}"
    lock, optional = _lock(root), tool in ("ruff", "mypy")
    if lock and (not optional or f'"{tool}"' in read_text(root / lock)):
        start = f"{LOCKS[lock]['run']} python {module}"
    elif ".venv" in setup:  # cron activates none
        start = f".venv/bin/python {module}"
    else:
        start = tool if optional else f"python3 {module}"
    return f"{start} {words}".rstrip()


def _tools(root: Path) -> dict[str, str]:
    """The tools that check this project, with their arguments."""
    names = [name for name in FILES["config"] if (root / name).exists()] + _requirements(root)
    config = "".join(f"[{name}]\n{read_text(root / name)}\n" for name in names)
    found = {}
    if re.search("pytest|conftest", config):
        found["pytest"] = "-q"
    elif (root / "manage.py").exists():
        found["manage.py"] = "test"
    elif tests := [path for pattern in FILES["tests"] for path in root.glob(pattern)][:100]:
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


def _sync(root: Path, lock: str, data: Json, tools: list[str]) -> str:
    """The command that installs from the lock file, with the extras and groups for development."""
    row, held = LOCKS[lock], read_text(root / lock)
    words = [f"{row[kind]} {name}" for kind, name in _for_development(data) if kind in row]
    if lock == "uv.lock" and _table(data, "tool", "uv", "workspace"):
        words.insert(0, "--all-packages")
    add = [f"{row['add']} pytest"] if "pytest" in tools and '"pytest"' not in held else []
    return " && ".join([" ".join([row["install"], *words]), *add])


def _pip(root: Path, data: Json, tools: list[str]) -> str | None:
    """The command that makes a .venv with the project, its requirements and the tools; None if it requires
    nothing."""
    manifests = "".join(read_text(root / name) for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    required, files, parts = _REQUIRES.search(manifests), _requirements(root), _for_development(data)
    layout = any(root.glob("src/*/__init__.py")) or any(root.glob("src/*.py"))
    if not (required or files or layout or "pytest" in tools):
        return None
    extras, groups = ([name for kind, name in parts if kind == wanted] for wanted in ("extra", "group"))
    words = [word for name in files for word in ("-r", name)]
    words += [word for name in groups for word in ("--group", name)]
    can_be_installed = "project" in data or "build-system" in data or (root / "setup.py").is_file()
    if can_be_installed and (required or layout or extras):
        words = ["-e", f".[{','.join(extras)}]" if extras else ".", *words]
    newer = [f"{PIP} 'pip>=25.1'"] if groups else []  # the first that knows --group
    held = "\n".join(read_text(root / name) for name in files)
    words += [tool for tool in tools if not re.search(rf"^{tool}\b", held, re.MULTILINE)]
    return " && ".join(["python3 -m venv .venv", *newer, f"{PIP} {shlex.join(words)}"]) if words else None


def _requirements(root: Path) -> list[str]:
    """The requirements files for development: requirements.txt, and those for tests."""
    paths = {path for pattern in FILES["requirements"] for path in root.glob(pattern) if path.is_file()}
    names = sorted(path.relative_to(root).as_posix() for path in paths)
    return [name for name in names if name == "requirements.txt" or _DEVELOPMENT.search(name)]


def _for_development(data: Json) -> list[tuple[str, str]]:
    """The extras and groups in pyproject.toml that are for development by their names, as `("extra", name)`
    and `("group", name)`."""
    groups = {**_table(data, "dependency-groups"), **_table(data, "tool", "poetry", "group")}
    named = {"extra": _table(data, "project", "optional-dependencies"), "group": groups}
    return [(kind, name) for kind, table in named.items() for name in table if _DEVELOPMENT.search(name)]


# ---------------------------------------------------------------- how it is read


def _lock(root: Path) -> str:
    """The name of the project's lock file; nothing if it has none."""
    for name in LOCKS:
        project = root / ("Pipfile" if name == "Pipfile.lock" else "pyproject.toml")
        if (root / name).is_file() and project.is_file():
            return name
    return ""


def _toml(path: Path) -> Json:
    try:
        return tomllib.loads(read_text(path))
    except (ValueError, RecursionError):
        return {}


def _table(data: Json, *keys: str) -> Json:
    """The nested table at these keys; an empty one if there is none."""
    for key in keys:
        found = data.get(key)
        data = found if isinstance(found, dict) else {}
    return data


def read_text(path: Path) -> str:
    """The content of a file; nothing if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


# ---------------------------------------------------------------- what is installed already

_PLACES = "import json, site; print(json.dumps([*site.getsitepackages(), site.getusersitepackages()]))"
_BARE = re.compile(r"(?:^|[;&|(]\s*|\b\w+=\S*\s+)(?:python[\d.]*|pytest)\b")


def led_back(root: Path, commands: Iterable[str], sets_up: bool, env: Mapping[str, str]) -> str:
    """A file of the Python on the PATH of `env` that leads into `root`, as an editable install does; nothing
    if the project `sets_up` its own and none of `commands` starts that Python."""
    project = any((root / name).exists() for name in ("pyproject.toml", "setup.py", "setup.cfg"))
    if not project or (sets_up and not any(_BARE.search(command) for command in commands)):
        return ""
    sites = [site for program in ("python3", "python") for site in _sites(program, env)]
    return str(next((path for site in sites for path in _links(site, root)), ""))


def _sites(program: str, env: Mapping[str, str]) -> list[Path]:
    """The folders of a Python's installed packages."""
    with contextlib.suppress(OSError, ValueError, subprocess.TimeoutExpired):
        words = [program, "-c", _PLACES]
        done = subprocess.run(
            words, cwd="/", env=env, stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
        return [Path(name) for name in json.loads(done.stdout)]
    return []


def _links(site: Path, root: Path) -> Iterator[Path]:
    """The files in a folder of installed packages that lead into `root`."""
    for pattern in ("*.pth", "__editable__*", "*.egg-link", "*.dist-info/direct_url.json"):
        for path in sorted(site.glob(pattern)):
            source = read_text(path)
            copied = path.name == "direct_url.json" and '"editable": true' not in source
            if not copied and re.search(rf"(?<![\w.-]){re.escape(str(root))}(?![\w.-])(?!/\.venv)", source):
                yield path
