"""Detect the kind of a project from its files, to propose setup, checks, caches and protection. The facts of
each kind are in templates/detect.json."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import shlex
import shutil
import tomllib
from collections.abc import Mapping
from pathlib import Path

from _ralph.files import resource
from _ralph.git import patterns
from _ralph.git.git import git, top_level
from _ralph.model import Finding, Json, Setup

TABLE: Json = json.loads(resource("templates/detect.json").read_text("utf-8"))
RUNNER_FILES: list[str] = [name for row in TABLE["runners"] for name in row.get("protect", [])]
"""Patterns of files that decide what a runner does. They are protected before there are any."""

_MANIFESTS = {name for row in [*TABLE["kinds"], *TABLE["tools"].values()] for name in row.get("when", [])}
_NO_SCRIPTS = {*TABLE["dependencies"], "version"}
_MISSING = re.compile("|".join(TABLE["missing"]), re.MULTILINE)
_MODULE = re.compile(r"""(?:No module named|Cannot find (?:module|package)) ['"]?([\w@/-]+)""")
_DEVELOPMENT = re.compile("dev|test|lint|typ", re.IGNORECASE)
_REQUIRES = re.compile(
    r"^dependencies\s*=|[\"']dependencies[\"']|poetry\.dependencies|install_requires", re.MULTILINE
)
_GROUPS: dict[str, str] = TABLE["python groups"]
_WITH_PYTHON = ("manage.py", "unittest")
_PIP = ".venv/bin/pip install -q"


class Project:
    """A project in a `folder` of the repository at `root`, or all of it. Its files are those that git does
    not ignore: no checkout has others."""

    def __init__(self, root: Path, folder: str = "") -> None:
        self.folder, self.root = folder, root / folder
        self.names = set(files_of(self.root))
        self.whole = Project(root) if folder else self

    # ------------------------------------------------------------ what is there

    def files(self, *globs: str) -> list[str]:
        """Those of its files that these globs find."""
        paths = {path.relative_to(self.root).as_posix() for one in globs for path in self.root.glob(one)}
        return sorted(paths & self.names)

    def text(self, *globs: str) -> str:
        """The content of these files."""
        return "\n".join(read_text(self.root / name) for name in self.files(*globs))

    def says(self, wanted: Mapping[str, str]) -> bool:
        """Whether each of these files has what its regular expression finds."""
        return all(re.search(words, self.text(name), re.MULTILINE) for name, words in wanted.items())

    @functools.cached_property
    def kinds(self) -> dict[str, Json]:
        """The row that counts for each tool. A member of a workspace has its lock file at the top."""
        found: dict[str, Json] = {}
        for row in TABLE["kinds"]:
            if row["tool"] not in found and self.files(*row["file"].split()) and self.says(row.get("if", {})):
                common = TABLE["tools"].get(row["tool"], {})
                found[row["tool"]] = {**common, **row, "when": row.get("when", []) + common.get("when", [])}
        above = self.whole.kinds if self.folder else {}
        return found | {
            tool: row
            for tool, row in above.items()
            if _is_locked(row) and not _is_locked(found.get(tool, row))
        }

    # ------------------------------------------------------------ what a plan says of it

    @functools.cached_property
    def setup(self) -> Setup | None:
        """The command that installs what it needs, and the files that the result depends on, if it depends on
        no others; None if it needs nothing."""
        if self.folder and any(self.kinds.get(tool) is row for tool, row in self.whole.kinds.items()):
            return self.whole.setup
        found = [(command, row) for row in self.kinds.values() if (command := self._installs(row))]
        if not found:
            return None
        run = self._here(" && ".join(command for command, _ in found))
        if any(self._runs_code(row) for _, row in found):
            return Setup(run)
        when = [self._from_top(name) for _, row in found for name in self._depends_on(row)]
        return Setup(run, tuple(dict.fromkeys(when)))

    def checks(self, setup: str) -> list[str]:
        """Commands that check it, in the environment that `setup` makes."""
        found = [self._in_python(setup, *tool) for tool in self.tools]
        found += self._scripts()
        found += [check for row in self.kinds.values() for check in row.get("checks", [])]
        return [self._here(check) for check in dict.fromkeys(found + self._make(found))]

    @property
    def keep(self) -> list[str]:
        """Patterns of caches that may stay in the clean room, as they go by content."""
        return [self._from_top(row["keep"]) for row in self._runners if "keep" in row]

    @property
    def protect(self) -> list[str]:
        """Patterns of its tests, and of files that could make a check green or run code later. A pattern is
        proposed if it covers tests that no earlier one does."""
        tests, found = set(patterns.uncovered_tests([], self.names)), []
        for pattern in TABLE["tests"]:
            covered = patterns.matching([pattern], tests)
            found += [pattern] if covered else []
            tests -= covered
        beside = [*RUNNER_FILES, *TABLE["beside tests"]]
        wanted = set(beside) - set(patterns.unmatched(beside, self.names))
        wanted |= {name for row in self._runners for name in row.get("protect", [])}
        return [self._from_top(pattern) for pattern in (*found, *(one for one in beside if one in wanted))]

    @functools.cached_property
    def _runners(self) -> list[Json]:
        """The rows of the programs that its checks start."""
        known = "\n".join([*self.checks(""), self.text("package.json")])
        return [row for row in TABLE["runners"] if re.search(rf"(?<![\w-])({row['name']})\b", known)]

    def _here(self, command: str) -> str:
        """A command as it runs from the top of a checkout."""
        return f"cd {shlex.quote(self.folder)} && {command}" if self.folder else command

    def _from_top(self, pattern: str) -> str:
        """A pattern as it reads from the top; one without a slash holds everywhere."""
        return f"{self.folder}/{pattern}" if self.folder and "/" in pattern.rstrip("/") else pattern

    def _installs(self, row: Json) -> str | None:
        """The command of a row that installs what is needed; nothing, where nothing is."""
        program = row.get("program")
        if (program and shutil.which(program) is None) or not self.says(row.get("needs", {})):
            return None
        if row["tool"] == "python":
            return self._sync(row) if _is_locked(row) else self._pip(row)
        return row.get("setup")

    def _depends_on(self, row: Json) -> list[str]:
        """The files that decide what a row installs, as patterns."""
        return [*row["when"]] + [name for name, wanted in row.get("also", {}).items() if self.says(wanted)]

    def _runs_code(self, row: Json) -> bool:
        """Whether what a setup makes depends on more than manifests: it runs code of the project, too."""
        return any(
            re.search(words, read_text(self.root / name), re.MULTILINE)
            for pattern, words in row.get("unless", {}).items()
            for name in patterns.matching([pattern], self.names)
        )

    # ------------------------------------------------------------ Python

    @functools.cached_property
    def tools(self) -> list[tuple[str, str, str]]:
        """The Python tools that check it: the project's own way to start each, the tool, its arguments."""
        named = self.files(*TABLE["python files"]["config"])
        config = "\n".join([*named, self.text(*named, *self.requirements)])
        if re.search("pytest|conftest", config):
            return [("", "pytest", "-q"), *self._linters]
        if "manage.py" in self.names:
            return [("", "manage.py", "test"), *self._linters]
        tests = self.files(*TABLE["python files"]["tests"])[:100]
        sources = [read_text(self.root / name) for name in tests]
        plain = all(re.search(r"^\s*(import|from) unittest", source, re.MULTILINE) for source in sources)
        if not tests or not plain or any("pytest" in source for source in sources):
            return [("", "pytest", "-q") for _ in tests[:1]] + self._linters
        folder, inside, _ = tests[0].partition("/")
        where = f" -s {folder}" if inside and f"{folder}/__init__.py" not in self.names else ""
        return [("", "unittest", f"discover{where}"), *self._linters]

    @functools.cached_property
    def _linters(self) -> list[tuple[str, str, str]]:
        """The linters, in the form in which the project itself runs them."""
        if named := re.findall(TABLE["linters"]["tox"], self.text("tox.ini"), re.MULTILINE):
            return [("", "tox", f"-e {','.join(named)}")]
        if ".pre-commit-config.yaml" in self.names:
            return [("", "pre-commit", "run --all-files")]
        jobs = self.text(".github/workflows/*.y*ml")
        return [*dict.fromkeys(re.findall(TABLE["linters"]["workflows"], jobs, re.MULTILINE))]

    def _in_python(self, setup: str, started: str, tool: str, words: str) -> str:
        """The command of a tool, in the environment that `setup` makes."""
        row, linter = self.kinds.get("python", {}), (started, tool, words) in self._linters
        module = tool if tool == "manage.py" else f"-m {tool.replace('-', '_')}"
        if started:
            start = f"{started}{tool}"
        elif _is_locked(row) and (not linter or f'"{tool}"' in self._lock(row)):
            start = f"{row['run']} python {module}"
        elif ".venv" in setup:  # cron activates none
            start = f".venv/bin/python {module}"
        else:
            start = tool if linter else f"python3 {module}"
        return f"{start} {words}".rstrip()

    def _sync(self, row: Json) -> str:
        """The command that installs from a lock file, with the extras and groups for development."""
        words = [row["setup"], *(word for word, wanted in row.get("more", {}).items() if self.says(wanted))]
        words += [f"{row[kind]} {name}" for kind in _GROUPS if kind in row for name in self._groups(kind)]
        lacks = ("", "pytest", "-q") in self.tools and '"pytest"' not in self._lock(row)
        return " ".join(words) + (f" && {row['add']} pytest" if lacks else "")

    def _lock(self, row: Json) -> str:
        """The content of a row's lock file."""
        return self.text(row["file"]) or self.whole.text(row["file"])

    def _pip(self, row: Json) -> str | None:
        """The command that makes a .venv with the project, its requirements and the tools, if it has any."""
        required = _REQUIRES.search(self.text("pyproject.toml", "setup.py", "setup.cfg"))
        layout = self.files("src/*/__init__.py", "src/*.py")
        tools = [tool for started, tool, _ in self.tools if not started and tool not in _WITH_PYTHON]
        if not (required or self.requirements or layout or "pytest" in tools):
            return None
        extras, groups = self._groups("extra"), self._groups("group")
        words = [word for name in self.requirements for word in ("-r", name)]
        words += [word for name in groups for word in ("--group", name)]
        described = self.says({"pyproject.toml": r"^\[(project|build-system)\]"})
        installable = described or "setup.py" in self.names
        if installable and (required or layout or extras):
            words = ["-e", f".[{','.join(extras)}]" if extras else ".", *words]
        held = self.text(*self.requirements)
        words += [tool for tool in dict.fromkeys(tools) if not re.search(rf"^{tool}\b", held, re.MULTILINE)]
        newer = [f"{_PIP} 'pip>=25.1'"] if groups else []  # the first that knows --group
        made = ["python3 -m venv .venv", *newer, f"{_PIP} {shlex.join(words)}"]
        return " && ".join(made) if words else None

    @functools.cached_property
    def requirements(self) -> list[str]:
        """The requirements files for development: requirements.txt, and those for tests."""
        names = self.files(*TABLE["python files"]["requirements"])
        return [name for name in names if name == "requirements.txt" or _DEVELOPMENT.search(name)]

    def _groups(self, kind: str) -> list[str]:
        """The extras or groups in pyproject.toml that are for development by their names."""
        found = "\n".join(re.findall(_GROUPS[kind], self.text("pyproject.toml"), re.MULTILINE))
        names = re.findall(r"^([\w-]+)(?=\s*=|$)", found, re.MULTILINE)
        return [name for name in dict.fromkeys(names) if _DEVELOPMENT.search(name)]

    # ------------------------------------------------------------ JavaScript, and make

    def _scripts(self) -> list[str]:
        """The scripts of package.json that check it, a build that they need before them."""
        try:
            package = json.loads(self.text("package.json") or "{}")
        except (ValueError, RecursionError):
            return []
        scripts = package.get("scripts") if isinstance(package, dict) else None
        named = {name: str(words) for name, words in scripts.items()} if isinstance(scripts, dict) else {}
        manager, found = self.kinds.get("node", {}).get("run", "npm"), []
        for name, wanted in TABLE["node scripts"].items():
            words = named.get(name, "no test specified")
            again = name == "check" and re.search("test|lint", words)  # it runs the others
            endless = re.search("no test specified|--watch(?!=false)", words)
            if re.search(wanted, words) and not again and not endless:
                ask = "test" if name == "test" and manager != "bun" else f"run {name}"
                found.append(f"{'CI=true ' * ('react-scripts test' in words)}{manager} {ask}")
        return found

    def _make(self, found: list[str]) -> list[str]:
        """Targets of a Makefile for what nothing else checks; `check` often runs all of them."""
        rules, known = self.text("Makefile") or self.text("makefile"), "\n".join(found)
        here = [name for name, said in TABLE["make"].items() if not re.search(said, known, re.MULTILINE)]
        here += [] if found else ["check"]
        targets = [
            name
            for name in here
            if re.search(rf"^([\w -]+ )?{name}( [\w -]+)?\s*::?(?!=)", rules, re.MULTILINE)
        ]
        return [f"make {name}" for name in targets if name != "check" or targets == ["check"]]


def setup_hint(output: str, exit_status: int | None, root: Path) -> Finding | None:
    """A finding if a red check lacks what a setup could install: a warning if it lacks a module that neither
    the setup nor a manifest names, as a task may be about to make it, else an error."""
    lacks = exit_status in (126, 127) or _MISSING.search(output)
    setup = Project(root).setup if lacks else None
    if setup is None:
        return None
    module = _MODULE.search(output) if exit_status not in (126, 127) else None
    manifests = [read_text(root / name) for name in patterns.matching(_MANIFESTS, os.listdir(root))]
    words = re.findall(r"[\w@/-]+", " ".join([setup.run, *manifests]).replace("_", "-").lower())
    level = "error" if module is None or module[1].replace("_", "-").lower() in words else "warning"
    wanted = f'"setup": {json.dumps(setup.run, ensure_ascii=False)}'
    return level, f"a program or a module is missing; {wanted} in the plan installs what this project names"


def as_json(setup: Setup) -> str | Json:
    """A setup as a plan has it."""
    return {"run": setup.run, "when": [*setup.when]} if setup.when else setup.run


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


def read_text(path: Path) -> str:
    """The content of a file; nothing if it cannot be read."""
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""


def _is_locked(row: Json) -> bool:
    """Whether a row's setup installs from a lock file."""
    return "setup" in row and "unlocked" not in row
