"""Detect the kind of a project from its files, to propose setup, checks, caches and
protection. What is known about each tool is a row of templates/detect.json."""

from __future__ import annotations

import functools
import json
import re
import shlex
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _ralph.checks.guard import CALL, reporting
from _ralph.files import read_text, table
from _ralph.git import patterns
from _ralph.git.git import in_folder
from _ralph.model import Json

TABLE = table("detect.json")
STARTER = re.compile(r"^(npx|pnpm exec|pnpm|yarn|bunx) ")
"""What may stand before a program of the project."""
SHELL = re.compile(r"[&|;<>`$()]")
"""More than one command with its words."""


class Project:
    """A project in the `folder` of the repository at `root`, or all of it. Only files
    that git does not ignore count, because no checkout has others."""

    def __init__(self, root: Path, folder: str = "") -> None:
        self.root = root / folder
        self.folder = folder
        listed = in_folder(self.root)("ls-files", "-coz", "--exclude-standard")
        self.names = listed.split("\0")
        self.manifest = self._text("/package.json")
        self.scripts = _members(json.loads, self.manifest, "scripts")
        self.rows: dict[str, Json] = {}  # by kind
        self.absent: list[str] = []  # programs of rows that fit but for these
        self.above = Project(root) if folder else None
        top = self.above or self
        self.ci: str = top._text(*TABLE["ci"])
        self.workspace: Project | None = None  # that has the lock file
        self._choose_rows()

    def _choose_rows(self) -> None:
        """Choose the row of each kind: the first that fits and whose program is there,
        but nothing else in place of a lock file's, which may be that of the whole
        repository."""
        absent: dict[str, list[str]] = {}
        locked = set()  # kinds whose lock file's program is absent
        for changes in TABLE["tools"]:
            row = TABLE["defaults"] | changes
            kind, text = row["kind"], self._text(*row["files"])
            if kind in self.rows or kind in locked or not self._fits(row, text):
                continue
            programs = [row["program"], *re.findall(row["interpreters"], text)]
            absent[kind] = [name for name in programs if not shutil.which(name)]
            if not absent[kind]:
                self.rows[kind] = row
            elif row["lock"]:
                locked.add(kind)
        for programs in absent.values():
            self.absent += programs
        if not self.above:
            return
        for kind, row in self.above.rows.items():
            if row["lock"] and kind in self.rows and not self.rows[kind]["lock"]:
                self.rows[kind] = row
                self.workspace = self.above

    def _fits(self, row: Json, text: str) -> bool:
        """Whether a row is about this project, whose files say `text`."""
        if not self._find(*row["files"]) or self._find(*row["without"]):
            return False
        if row["ci"] and not self._runs_in_ci(row["ci"]):
            return False
        return _says(row["says"], text) and not _says(row["lacks"], text)

    def _find(self, *globs: str) -> list[str]:
        """Those of its files that match, as in .gitignore."""
        return sorted(patterns.matching(globs, self.names))

    def _text(self, *globs: str) -> str:
        """The content of these files, of a hundred at most."""
        names = self._find(*globs)[:100]
        return "\n".join(read_text(self.root / name) for name in names)

    def _runs_in_ci(self, name: str) -> bool:
        """Whether CI names a script or a tool; without CI, all count."""
        return not self.ci or _says(rf"(?<![\w:-])({name})(?!:?[\w-])", self.ci)

    # ------------------------------------------------------------ setup

    @functools.cached_property
    def setup(self) -> Any:
        """What installs all that it needs, as a plan has it: with `when`, unless the
        result depends on more than manifests. None if it needs nothing."""
        if self.workspace:
            return self.workspace.setup
        commands = []
        when: list[str] = []
        for kind, row in self.rows.items():
            command = row["setup"]
            if kind == "python":
                command = self._install_python(row)
            if command and _says(row["needs"], self._text(*row["files"])):
                commands.append(command)
            elif row["setup"]:
                continue
            when += row["when"]  # also of mise and direnv, which decide what it does
        if not commands:
            return None
        run = self._here(" && ".join(commands))
        if _says(TABLE["runs code"], self._text(*TABLE["manifests"])):
            return run
        return {"run": run, "when": [self._from_top(pattern) for pattern in when]}

    def _install_python(self, row: Json) -> str:
        """The command of a row, with the extras, groups and files of requirements that
        tests need; nothing where there is nothing to install."""
        extras = self._for_tests("project.optional-dependencies")
        old = self._text("/setup.py", "/setup.cfg")
        extras += re.findall(TABLE["extras"], old)
        words = []
        for name in self._for_tests(row["groups"]):
            words += [row["group"], name]
        if row["lock"]:
            for name in extras if row["extra"] else ():
                words += [row["extra"], name]
            return shlex.join([*row["setup"].split(), *words])
        if extras:
            words += ["-e", f".[{','.join(extras)}]"]
        elif _says(TABLE["package"], self._text("/pyproject.toml") + old):
            words += ["-e", "."]
        requirements = ""
        for name in self._find("/*requirements*.txt", "/requirements/*.txt"):
            if name == "requirements.txt" or _says(TABLE["development"], name):
                words += ["-r", name]
                requirements += self._text(f"/{name}")
        tests = self.rows.get("tests", {}).get("checks")
        if "pytest" in str(tests) and not _says("^pytest", requirements):
            words.append("pytest")
        return f"{row['setup']} {shlex.join(words)}" if words else ""

    def _for_tests(self, keys: str) -> list[str]:
        """Those of the extras or groups at `keys` of pyproject.toml that tests need:
        their names say so, or tox or CI install them."""
        names = []
        for name in _members(tomllib.loads, self._text("/pyproject.toml"), keys):
            used = TABLE["used"].replace("NAME", re.escape(name))
            if _says(TABLE["development"], name) or _says(used, self.ci):
                names.append(name)
        return names

    # ------------------------------------------------------------ checks

    def checks(self, setup: str) -> list[Any]:
        """What checks it, as a plan has it, in the environment that `setup` makes."""
        python = self.rows.get("python", {}).get("run", "")
        if ".venv" in setup and python == "python3":  # cron activates none
            python = ".venv/bin/python"
        found: list[Any] = []
        for kind, row in self.rows.items():
            if kind == "node":
                found += self._scripts(row)
            elif not _says(row["unless"], str(found)) and (kind != "tests" or python):
                for command in row["checks"]:
                    command = command.replace("{python}", python)
                    found.append(self._check(command, command))
        return found

    def _scripts(self, row: Json) -> list[Any]:
        """The scripts of package.json that are checks, and that CI runs."""
        checks: list[Any] = []
        for name, wanted in TABLE["scripts"].items():
            is_check = _says(wanted, self.scripts.get(name, ""))
            if is_check and (name == "test" or self._runs_in_ci(name)):
                for check in self._script(name, row):
                    if check not in checks:
                        checks.append(check)
        return checks

    def _script(self, name: str, row: Json, seen: tuple[str, ...] = ()) -> list[Any]:
        """The checks of a script: one for each of its commands, if these are scripts or
        programs of the project, else one for all."""
        steps = self.scripts[name].split(" && ")
        starts = ""  # what it starts in the end
        if len(steps) == 1 and not SHELL.search(steps[0]):
            starts = steps[0]
        command = f"{row['run']} {name}"
        if command == "npm run test":
            command = "npm test"
        whole = [self._check(command, starts)]
        if f"pre{name}" in self.scripts:
            return whole
        found = []
        for step in steps:
            call = CALL.fullmatch(step)
            if call and call[1] in self.scripts and call[1] not in seen:
                found += self._script(call[1], row, (*seen, name))
                continue
            command = STARTER.sub("", step)
            program = command.partition(" ")[0]
            package = program.replace("tsc", "typescript")
            bought = _says(rf'["/]{re.escape(package)}":', self.manifest)
            is_known = program == "node" or bought
            if starts or not is_known or SHELL.search(step):
                return whole
            if _says(TABLE["no checks"], program):
                continue
            if program != "node":
                step = f"{row['exec']} {command}"
            found.append(self._check(step, command))
        return found

    def _check(self, command: str, starts: str) -> Any:
        """A check as a plan has it. What it `starts` in the end says how it reports
        single tests; then its name is the command that does not."""
        name = self._here(command)
        run = reporting(command, starts, self.manifest)
        if not run:
            return name
        return {"name": name, "run": self._here(run), "results": "junit"}

    # ------------------------------------------------------------ files

    def _runners(self) -> list[Json]:
        """The rows of the programs that its checks start."""
        text = f"{self.checks('')}\n{self.manifest}"
        return [row for row in TABLE["runners"] if _says(row["words"], text)]

    @property
    def keep(self) -> list[str]:
        """Patterns of caches that may stay in the clean room, as they go by content."""
        return [self._from_top(row["keep"]) for row in self._runners() if "keep" in row]

    @property
    def protect(self) -> list[str]:
        """Patterns of its tests, of files that decide what their runners do, whether
        these are there or not, and of what else could make a check green."""
        found = []
        tests = set(patterns.uncovered_tests([], self.names))
        for pattern in TABLE["tests"]:
            covered = patterns.matching([pattern], tests)
            if covered:
                found.append(pattern)
                tests -= covered
        for row in self._runners():
            found += row.get("protect", [])
        found += [pattern for pattern in TABLE["beside tests"] if self._find(pattern)]
        return [self._from_top(pattern) for pattern in found]

    def _here(self, command: str) -> str:
        """A command as it runs from the top of a checkout."""
        if not self.folder:
            return command
        return f"cd {shlex.quote(self.folder)} && {command}"

    def _from_top(self, pattern: str) -> str:
        """A pattern as it reads from the top; one without a slash holds everywhere."""
        if self.folder and "/" in pattern.rstrip("/"):
            return f"{self.folder}/{pattern}"
        return pattern


def _says(expression: str, text: str) -> bool:
    """Whether an expression, which sees lines, finds something."""
    return re.search(expression, text, re.MULTILINE) is not None


def _members(read: Callable[[str], Json], text: str, keys: str) -> dict[str, str]:
    """The object at `keys`, with dots, of a JSON or TOML text; empty where there is
    none."""
    try:
        found = read(text)
        for key in keys.split("."):
            found = found[key]
        return {key: str(value) for key, value in found.items()}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}
