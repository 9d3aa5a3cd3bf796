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
SHELL = re.compile(r"[&|;<>`$()]")
"""More than one command with its words."""
PROGRAMS = {"npm run": "npx", "pnpm run": "pnpm exec"}
"""What starts a program of the dependencies, if it is not the same as for a script."""


class Project:
    """The project at `root`, the top of a repository. Only files that git does not
    ignore count, because no checkout has others."""

    def __init__(self, root: Path) -> None:
        self.root = root
        listed = in_folder(root)("ls-files", "-coz", "--exclude-standard")
        self.names = listed.split("\0")
        self.manifest = self._text("/package.json")
        self.scripts = _members(json.loads, self.manifest, "scripts")
        self.ci = self._text(*TABLE["ci"])
        self.rows: dict[str, Json] = {}  # by kind
        self._absent: dict[str, Json] = {}
        # Of a kind the first row counts that fits and whose program is there; where
        # that of a lock file is not, nothing else takes its place
        for changes in TABLE["tools"]:
            row = TABLE["defaults"] | changes
            kind = row["kind"]
            other = self._absent.get(kind)
            if kind in self.rows or (other and other["lock"]) or not self._fits(row):
                continue
            if shutil.which(row["program"]):
                self.rows[kind] = row
                self._absent.pop(kind, None)
            else:
                self._absent[kind] = row

    @property
    def absent(self) -> list[str]:
        """The programs of rows that fit but for these."""
        return [row["program"] for row in self._absent.values()]

    def _fits(self, row: Json) -> bool:
        """Whether a row is about this project."""
        if not self._find(*row["files"]) or self._find(*row["without"]):
            return False
        if row["ci"] and not self._runs_in_ci(row["ci"]):
            return False
        text = self._text(*row["files"])
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
        run = " && ".join(commands)
        if _says(TABLE["runs code"], self._text(*TABLE["manifests"])):
            return run
        return {"run": run, "when": when}

    def _install_python(self, row: Json) -> str:
        """The command of a row, with the extras, groups and files of requirements whose
        names say that tests need them; nothing where there is nothing to install."""
        words = []
        for name in self._for_tests(row["groups"]):
            words += [row["group"], name]
        extras = self._for_tests("project.optional-dependencies")
        if row["lock"]:
            for name in extras if row["extra"] else ():
                words += [row["extra"], name]
            return shlex.join([*row["setup"].split(), *words])
        manifests = self._text("/pyproject.toml", "/setup.py", "/setup.cfg")
        if extras:
            words += ["-e", f".[{','.join(extras)}]"]
        elif _says(TABLE["package"], manifests):
            words += ["-e", "."]
        for name in self._find("/*requirements*.txt", "/requirements/*.txt"):
            if name == "requirements.txt" or _says(TABLE["development"], name):
                words += ["-r", name]
        if "pytest" in str(self.rows.get("tests", {}).get("checks")):
            words.append("pytest")
        return f"{row['setup']} {shlex.join(words)}" if words else ""

    def _for_tests(self, keys: str) -> list[str]:
        """The extras or groups at `keys` of pyproject.toml that tests need."""
        names = _members(tomllib.loads, self._text("/pyproject.toml"), keys)
        return [name for name in names if _says(TABLE["development"], name)]

    # ------------------------------------------------------------ checks

    def checks(self, setup: str) -> list[Any]:
        """What checks it, as a plan has it, in the environment that `setup` makes."""
        python = self.rows.get("python", {}).get("run", "")
        if ".venv" in setup and python == "python3":  # cron activates none
            python = ".venv/bin/python"
        found: list[Any] = []
        for kind, row in self.rows.items():
            if kind == "node":
                found += self._scripts(row["run"])
            elif not _says(row["unless"], str(found)) and (kind != "tests" or python):
                for command in row["checks"]:
                    command = command.replace("{python}", python)
                    found.append(self._check(command, command))
        return found

    def _scripts(self, run: str) -> list[Any]:
        """The scripts of package.json that are checks, and that CI runs."""
        checks = []
        for name, wanted in TABLE["scripts"].items():
            script = self.scripts.get(name, "")
            if _says(wanted, script) and (name == "test" or self._runs_in_ci(name)):
                steps = self._steps(name, run)
                checks += [step for step in steps if step not in checks]
        return checks

    def _steps(self, name: str, run: str, outer: tuple[str, ...] = ()) -> list[Any]:
        """A check for each command of a script, as a linter that is red would hide the
        suite behind it; one for all where they are no plain ones. `outer` are the
        scripts that start it."""
        script = self.scripts[name]
        whole = re.sub("npm run test$", "npm test", f"{run} {name}")
        found: list[Any] = []
        for step in script.split(" && "):
            called = CALL.fullmatch(step)
            program = step.split(" ")[0]
            package = program.replace("tsc", "typescript")
            if step == script:
                found.append(self._check(whole, script))
            elif called and called[1] in self.scripts and called[1] not in outer:
                found += self._steps(called[1], run, (*outer, name))
            elif program == "node" and not SHELL.search(step):
                found.append(self._check(step, step))
            elif SHELL.search(step) or f'"{package}":' not in self.manifest:
                return [self._check(whole, script)]
            else:
                found.append(self._check(f"{PROGRAMS.get(run, run)} {step}", step))
        return found

    def _check(self, command: str, starts: str) -> Any:
        """A check as a plan has it. If what it `starts` in the end, one command, can
        report single tests, its name is the command that does not."""
        run = "" if SHELL.search(starts) else reporting(command, starts, self.manifest)
        if not run:
            return command
        return {"name": command, "run": run, "results": "junit"}

    # ------------------------------------------------------------ files

    def _runners(self) -> list[Json]:
        """The rows of the programs that its checks start."""
        text = f"{self.checks('')}\n{self.manifest}"
        return [row for row in TABLE["runners"] if _says(row["words"], text)]

    @property
    def keep(self) -> list[str]:
        """Patterns of caches that may stay in the clean room, as they go by content."""
        return [row["keep"] for row in self._runners() if "keep" in row]

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
        return found


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
