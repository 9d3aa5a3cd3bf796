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

from _ralph.files import read_text, table
from _ralph.git import patterns
from _ralph.git.git import git
from _ralph.model import Check, Finding, Json, Setup

TABLE = table("detect.json")
CALL = re.compile(r"(?:npm|pnpm|yarn|bun)(?: run| -s| --silent)* ([\w:.-]+)")
"""A command that starts a script of package.json."""
PACKAGE = r"^\[(build-system|options)\]|^dependencies\s*=|\bsetup\("
"""What pip can install, in a file of Python's."""
PIP = ".venv/bin/pip install -q"


class Project:
    """A project in the `folder` of the repository at `root`, or all of it. Only files
    that git does not ignore count, because no checkout has others."""

    def __init__(self, root: Path, folder: str = "") -> None:
        self.root = root / folder
        self.folder = folder
        listed = git(self.root, "ls-files", "-coz", "--exclude-standard")
        self.names = listed.split("\0")
        self.absent: list[str] = []  # programs of rows that fit but for these
        self.rows: dict[str, Json] = {}  # by kind
        for changes in TABLE["tools"]:
            row = TABLE["defaults"] | changes
            if row["kind"] not in self.rows and self._fits(row):
                self.rows[row["kind"]] = row
        self.workspace: Project | None = None  # that has the lock file
        if folder:
            whole = Project(root)
            for kind, row in whole.rows.items():
                if row["lock"] and kind in self.rows and not self.rows[kind]["lock"]:
                    self.rows[kind] = row
                    self.workspace = whole
        self.manifest = self._text("/package.json")
        self.scripts = _members(json.loads, self.manifest, "scripts")

    def _find(self, *globs: str) -> list[str]:
        """Those of its files that match, as in .gitignore."""
        return sorted(patterns.matching(globs, self.names))

    def _text(self, *globs: str) -> str:
        """The content of these files, of a hundred at most."""
        names = self._find(*globs)[:100]
        return "\n".join(read_text(self.root / name) for name in names)

    def _fits(self, row: Json) -> bool:
        """Whether a row is about this project, and its program is there."""
        if not self._find(*row["files"]) or self._find(*row["without"]):
            return False
        text = self._text(*row["files"])
        if not _says(row["says"], text) or _says(row["lacks"], text):
            return False
        if not shutil.which(row["program"]):
            self.absent.append(row["program"])
            return False
        return True

    @functools.cached_property
    def setup(self) -> Setup | None:
        """The command that installs what it needs, and the files that the result
        depends on, if it depends on no others; None if it needs nothing."""
        if self.workspace:
            return self.workspace.setup
        commands: list[str] = []
        when: dict[str, None] = {}
        for kind, row in self.rows.items():
            command = row["setup"]
            if kind == "python":
                command = self._install_python(row)
            if command and _says(row["needs"], self._text(*row["files"])):
                commands.append(command)
                when |= dict.fromkeys(row["when"])
        if not commands:
            return None
        run = self._here(" && ".join(commands))
        for name, code in TABLE["runs code"].items():
            if _says(code, self._text(name)):
                return Setup(run)
        return Setup(run, tuple(self._from_top(pattern) for pattern in when))

    def _install_python(self, row: Json) -> str:
        """The command that installs from the lock file of a row, or else with pip;
        nothing where there is nothing to install."""
        manifests = self._text("/pyproject.toml", "/setup.py", "/setup.cfg")
        extras = self._for_tests("project", "optional-dependencies")
        extras += re.findall(TABLE["extras"], self._text("/setup.py", "/setup.cfg"))
        groups = self._for_tests(*row["groups"])
        words = []
        for name in groups:
            words += [row["group"], name]
        if row["lock"]:
            for name in extras:
                words += [row["extra"], name]
            if "[tool.uv.workspace]" in manifests:
                words.append("--all-packages")
            return shlex.join([*row["setup"].split(), *words])
        if extras:
            words += ["-e", f".[{','.join(extras)}]"]
        elif _says(PACKAGE, manifests):
            words += ["-e", "."]
        requirements = []
        for name in self._find("/*requirements*.txt", "/requirements/*.txt"):
            if name == "requirements.txt" or _says(TABLE["development"], name):
                words += ["-r", name]
                requirements.append(f"/{name}")
        tests = self.rows.get("tests", {}).get("checks")
        if "pytest" in str(tests) and not _says("^pytest", self._text(*requirements)):
            words.append("pytest")
        if not words:
            return ""
        newer = f"{PIP} 'pip>=25.1' && " if groups else ""  # it knows --group
        return f"{row['setup']} && {newer}{PIP} {shlex.join(words)}"

    def _for_tests(self, *keys: str) -> list[str]:
        """Those of the extras or groups at `keys` of pyproject.toml that tests need:
        their names say so, or tox or CI install them."""
        shown = self._text("/tox.ini", "/.github/workflows/*", "/.gitlab-ci.yml")
        names = []
        for name in _members(tomllib.loads, self._text("/pyproject.toml"), *keys):
            used = TABLE["used"].replace("NAME", re.escape(name))
            if _says(TABLE["development"], name) or _says(used, shown):
                names.append(name)
        return names

    def checks(self, setup: str) -> list[Check]:
        """What checks it, in the environment that `setup` makes. A check that reports
        single tests has the name of the command that does not."""
        python = self.rows.get("python", {}).get("run", "")
        if ".venv" in setup and python == "python3":  # cron activates none
            python = ".venv/bin/python"
        found: dict[str, Check] = {}
        for kind, row in self.rows.items():
            checks = []
            if kind == "node":
                for name, wanted in TABLE["scripts"].items():
                    if _says(wanted, self.scripts.get(name, "")):
                        checks += self._script(name, row)
            elif (kind != "tests" or python) and not _says(
                row["unless"], "\n".join(found)
            ):
                for command in row["checks"]:
                    command = command.replace("{python}", python)
                    checks.append(self._check(command, command))
            for check in checks:
                found[check.name] = check
        return list(found.values())

    def _script(self, name: str, row: Json, seen: tuple[str, ...] = ()) -> list[Check]:
        """The checks of a script of package.json: one for each of its commands, if
        these are scripts or programs of the project, else one for all."""
        whole = f"{row['run']} {name}"
        if whole == "npm run test":
            whole = "npm test"
        steps = []
        for script in (f"pre{name}", name, f"post{name}"):
            if script in self.scripts:
                steps += self.scripts[script].split(" && ")
        found = []
        for step in steps:
            program = step.partition(" ")[0]
            package = program.replace("tsc", "typescript")
            call = CALL.fullmatch(step)
            if call and call[1] in self.scripts and call[1] not in seen:
                found += self._script(call[1], row, (*seen, name))
            elif _says("[&|;<>`$()]", step):  # more than a command with words
                return [self._check(whole, "")]
            elif len(steps) == 1:
                found.append(self._check(whole, step))
            elif program == "node":
                found.append(self._check(step, step))
            elif f'{package}":' in self.manifest:
                found.append(self._check(f"{row['exec']} {step}", step))
            else:
                return [self._check(whole, "")]
        return found

    def _check(self, command: str, starts: str) -> Check:
        """A check. What it `starts` in the end says how it reports single tests."""
        name = self._here(command)
        if command.startswith("npm "):
            command += " --"
        for row in TABLE["reports"]:
            match = re.search(row["words"], starts)
            if match and row["needs"] in self.manifest:
                run = match.expand(row["run"]).replace("{command}", command)
                return Check(name, self._here(run), results="junit")
        return Check(name, name)

    def _runners(self) -> list[Json]:
        """The rows of the programs that its checks start."""
        commands = [check.command for check in self.checks("")]
        text = "\n".join([*commands, self.manifest])
        rows = TABLE["runners"]
        return [row for row in rows if _says(rf"(?<![\w-])({row['name']})\b", text)]

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
        return [self._from_top(pattern) for pattern in dict.fromkeys(found)]

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


def setup_hint(output: str, exit_status: int | None, root: Path) -> Finding | None:
    """A finding if a red check lacks what a setup could install: an error, but a
    warning for a module that no manifest names, as a task may be about to make it."""
    if exit_status not in (126, 127) and not _says(TABLE["missing"], output):
        return None
    project = Project(root)
    if not project.setup:
        return None
    level = "error"
    module = re.search(TABLE["missing module"], output)
    manifests = project._text(*project.setup.when).replace("_", "-").lower()
    if module and module[1].replace("_", "-").lower() not in manifests:
        level = "warning"
    adds = f'"setup": {json.dumps(project.setup.run, ensure_ascii=False)} in the plan'
    said = f"a program or a module is missing; {adds} installs what this project names"
    return level, said


def as_json(found: Setup | Check) -> Any:
    """A setup or a check as a plan has it."""
    if isinstance(found, Setup) and found.when:
        return {"run": found.run, "when": list(found.when)}
    if isinstance(found, Check) and found.results:
        return {"name": found.name, "run": found.run, "results": found.results}
    return found.run


def _says(expression: str, text: str) -> bool:
    """Whether an expression, which sees lines, finds something."""
    return re.search(expression, text, re.MULTILINE) is not None


def _members(read: Callable[[str], Json], text: str, *keys: str) -> dict[str, str]:
    """The object at `keys` of a JSON or TOML text; empty where there is none."""
    try:
        found = read(text)
        for key in keys:
            found = found[key]
        return {key: str(value) for key, value in found.items()}
    except (ValueError, RecursionError, LookupError, TypeError, AttributeError):
        return {}
