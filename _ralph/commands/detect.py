"""Detect the kind of a project from its files, to propose setup, checks, caches and
protection. What is known about each kind is in templates/detect.json."""

from __future__ import annotations

import functools
import json
import os
import re
import shlex
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from _ralph.files import read_text, table
from _ralph.git import patterns
from _ralph.git.git import git, top_level
from _ralph.model import Check, Finding, Json, Setup

TABLE: Json = table("detect.json")
_MANIFESTS = {
    name
    for row in [*TABLE["kinds"], *TABLE["tools"].values()]
    for name in row.get("when", [])
}
_MISSING = re.compile("|".join(TABLE["missing"]), re.MULTILINE)
_MODULE = re.compile(
    r"""(?:No module named|Cannot find (?:module|package)) ['"]?([\w@/-]+)"""
)
_NO_CHECK = re.compile("no test specified|--watch(?!=false)")
_DEVELOPMENT = re.compile("dev|test|lint|typ", re.IGNORECASE)
_REQUIRES = re.compile(
    r"^dependencies\s*=|[\"']dependencies[\"']|poetry\.dependencies|install_requires",
    re.MULTILINE,
)
_GROUPS: dict[str, str] = TABLE["python groups"]
_WITH_PYTHON = ("manage.py", "unittest")
_PIP = ".venv/bin/pip install -q"
_ENOUGH = 100
"""Files that are read to find a word in any of them."""


class Module(NamedTuple):
    """A Python module that checks a project."""

    prefix: str  # the project's own way to start it, if that is known
    name: str
    words: str
    reports: str = ""  # what to add, so that it reports single tests


class Project:
    """A project in a `folder` of the repository at `root`, or all of it. Its files are
    those that git does not ignore: no checkout has others."""

    def __init__(self, root: Path, folder: str = "") -> None:
        self.folder, self.root = folder, root / folder
        self.names = set(files_of(self.root))
        self.whole = Project(root) if folder else self

    # ------------------------------------------------------------ its files

    def files(self, *globs: str) -> list[str]:
        """Those of its files that these globs find."""
        paths = {
            path.relative_to(self.root).as_posix()
            for glob in globs
            for path in self.root.glob(glob)
        }
        return sorted(paths & self.names)

    def text(self, *globs: str) -> str:
        """The content of these files."""
        return "\n".join(
            read_text(self.root / name) for name in self.files(*globs)[:_ENOUGH]
        )

    def says(self, wanted: Mapping[str, str]) -> bool:
        """Whether each of these globs finds a file, and their content is what its
        expression finds."""
        return all(
            self.files(*globs.split())
            and re.search(expression, self.text(*globs.split()), re.MULTILINE)
            for globs, expression in wanted.items()
        )

    @functools.cached_property
    def kinds(self) -> dict[str, Json]:
        """The row that counts for each tool. A member of a workspace has its lock file
        at the top."""
        found: dict[str, Json] = {}
        for row in TABLE["kinds"]:
            if row["tool"] not in found and self._matches(row):
                common = TABLE["tools"].get(row["tool"], {})
                found[row["tool"]] = {
                    **common,
                    **row,
                    "when": row.get("when", []) + common.get("when", []),
                }
        above = self.whole.kinds if self.folder else {}
        return found | {
            tool: row
            for tool, row in above.items()
            if _is_locked(row) and not _is_locked(found.get(tool, row))
        }

    def _matches(self, row: Json) -> bool:
        """Whether a row is about this project."""
        wanted = {row["file"]: row.get("says", ""), **row.get("if", {})}
        unwanted = {row["file"]: row.get("lacks", "(?!)"), **row.get("not", {})}
        scripts = {name: self.scripts.get(name) for name in row.get("script", {})}
        return (
            ("program" not in row or shutil.which(row["program"]) is not None)
            and self.says(wanted)
            and not any(
                self.says({globs: expression}) for globs, expression in unwanted.items()
            )
            and all(
                words and re.search(row["script"][name], words)
                for name, words in scripts.items()
            )
        )

    @functools.cached_property
    def scripts(self) -> dict[str, str]:
        """The scripts of package.json that can be checks."""
        return {
            name: words
            for name, words in self._scripts.items()
            if not _NO_CHECK.search(words)
        }

    @property
    def watches(self) -> str:
        """The script `test` of package.json, where it is no check because it never
        ends."""
        words = self._scripts.get("test", "")
        return words if "--watch" in words and "test" not in self.scripts else ""

    @functools.cached_property
    def _scripts(self) -> dict[str, str]:
        try:
            scripts = json.loads(self.text("package.json"))["scripts"].items()
        except (ValueError, RecursionError, TypeError, KeyError, AttributeError):
            return {}
        return {name: str(words) for name, words in scripts}

    # ------------------------------------------------------------ what a plan says about it

    @functools.cached_property
    def setup(self) -> Setup | None:
        """The command that installs what it needs, and the files that the result
        depends on, if it depends on no others; None if it needs nothing."""
        if self.folder and any(
            self.kinds.get(tool) is row for tool, row in self.whole.kinds.items()
        ):
            return self.whole.setup
        needed = [
            (command, row)
            for row in self.kinds.values()
            if (command := self._installs(row))
        ]
        if not needed:
            return None
        run = self._here(" && ".join(command for command, _ in needed))
        if any(self._runs_code(row) for _, row in needed):
            return Setup(run)
        when = [
            self._from_top(name) for _, row in needed for name in self._depends_on(row)
        ]
        return Setup(run, tuple(dict.fromkeys(when)))

    def checks(self, setup: str) -> list[Check]:
        """What checks it, in the environment that `setup` makes. A check that reports
        single tests has the name of the command that does not."""
        found = [self._in_python(module, setup) for module in self.modules]
        for row in self.kinds.values():
            names = "\n".join(check.name for check in found)
            if not re.search(row.get("unless checked", "(?!)"), names, re.MULTILINE):
                found += self._checks_of(row)
        return list({check.name: check for check in found}.values())

    def _checks_of(self, row: Json) -> list[Check]:
        """The checks of a row, filled in: how the package manager starts scripts, and
        parts of a script."""
        said = {**TABLE["scripts"][self.kinds.get("node", {}).get("run", "npm")]}
        for name, expression in row.get("script", {}).items():
            if found := re.search(expression, self.scripts[name]):
                said |= found.groupdict("")

        def filled(command: str) -> str:
            return re.sub(r"\{(\w+)\}", lambda one: said.get(one[1], one[0]), command)

        return [
            self._check(filled(check), filled(row.get("reports", "")))
            for check in row.get("checks", [])
        ]

    @property
    def keep(self) -> list[str]:
        """Patterns of caches that may stay in the clean room, as they go by content."""
        return [self._from_top(row["keep"]) for row in self._runners if "keep" in row]

    @property
    def protect(self) -> list[str]:
        """Patterns of its tests, and of files that could make a check green or run code
        later. A pattern is proposed if it covers tests that no earlier one does."""
        tests, proposed = set(patterns.uncovered_tests([], self.names)), []
        for pattern in TABLE["tests"]:
            if covered := patterns.matching([pattern], tests):
                proposed.append(pattern)
                tests -= covered
        decide = [
            name for row in TABLE["runners"] for name in row.get("protect", [])
        ] + TABLE["beside tests"]
        missing = {*patterns.unmatched(decide, self.names)}
        missing -= {name for row in self._runners for name in row.get("protect", [])}
        proposed += [name for name in decide if name not in missing]
        return [self._from_top(pattern) for pattern in dict.fromkeys(proposed)]

    @functools.cached_property
    def _runners(self) -> list[Json]:
        """The rows of the programs that its checks start."""
        commands = "\n".join(
            [*(check.command for check in self.checks("")), self.text("package.json")]
        )
        return [
            row
            for row in TABLE["runners"]
            if re.search(rf"(?<![\w-])({row['name']})\b", commands)
        ]

    def _here(self, command: str) -> str:
        """A command as it runs from the top of a checkout."""
        return f"cd {shlex.quote(self.folder)} && {command}" if self.folder else command

    def _check(self, command: str, reports: str) -> Check:
        """A check; `reports`, if there is such a command, does the same and reports
        single tests."""
        return Check(
            self._here(command),
            self._here(reports or command),
            results="junit" if reports else "",
        )

    def _from_top(self, pattern: str) -> str:
        """A pattern as it reads from the top; one without a slash holds everywhere."""
        return (
            f"{self.folder}/{pattern}"
            if self.folder and "/" in pattern.rstrip("/")
            else pattern
        )

    def _installs(self, row: Json) -> str | None:
        """The command of a row that installs what is needed; nothing, where nothing
        is."""
        if not self.says(row.get("needs", {})):
            return None
        if row["tool"] == "python":
            return self._sync(row) if _is_locked(row) else self._pip()
        return row.get("setup")

    def _depends_on(self, row: Json) -> list[str]:
        """The files that decide what a row installs, as patterns."""
        return [
            *row["when"],
            *(
                name
                for name, wanted in row.get("also", {}).items()
                if self.says(wanted)
            ),
        ]

    def _runs_code(self, row: Json) -> bool:
        """Whether what a setup makes depends on more than manifests: it runs code of
        the project, too."""
        return any(
            re.search(expression, read_text(self.root / name), re.MULTILINE)
            for pattern, expression in row.get("unless", {}).items()
            for name in patterns.matching([pattern], self.names)
        )

    # ------------------------------------------------------------ Python

    @functools.cached_property
    def modules(self) -> list[Module]:
        """The Python modules that check it: its tests, then linters as the project
        itself runs them."""
        return [*self._modules("python tests"), *self._linters]

    @functools.cached_property
    def _linters(self) -> list[Module]:
        return self._modules("python linters")

    def _modules(self, tool: str) -> list[Module]:
        """The modules of the row that counts for `tool`."""
        row = self.kinds.get(tool, {"file": ""})
        text = self.text(*row["file"].split())
        if "found" in row:
            return [
                Module(*match)
                for match in dict.fromkeys(re.findall(row["found"], text, re.MULTILINE))
            ]
        name, _, words = row.get("module", "").partition(" ")
        if "{}" in words:
            words = words.format(",".join(re.findall(row["says"], text, re.MULTILINE)))
        return [Module("", name, words, row.get("reports", ""))] if name else []

    def _in_python(self, module: Module, setup: str) -> Check:
        """The check that a module makes, in the environment that `setup` makes."""
        row, linter = self.kinds.get("python", {}), module in self._linters
        argument = (
            module.name
            if module.name == "manage.py"
            else f"-m {module.name.replace('-', '_')}"
        )
        if module.prefix:
            start = f"{module.prefix}{module.name}"
        elif _is_locked(row) and (not linter or f'"{module.name}"' in self._lock(row)):
            start = f"{row['run']} python {argument}"
        elif ".venv" in setup:  # cron activates none
            start = f".venv/bin/python {argument}"
        else:
            start = module.name if linter else f"python3 {argument}"
        command = f"{start} {module.words}".rstrip()
        return self._check(
            command, f"{command} {module.reports}" if module.reports else ""
        )

    def _sync(self, row: Json) -> str:
        """The command that installs from a lock file, with the extras and groups for
        development."""
        words = [
            row["setup"],
            *(
                word
                for word, wanted in row.get("more", {}).items()
                if self.says(wanted)
            ),
        ]
        words += [
            f"{row[kind]} {name}"
            for kind in _GROUPS
            if kind in row
            for name in self._groups(kind)
        ]
        lacks = any(
            module.name == "pytest" for module in self.modules
        ) and '"pytest"' not in self._lock(row)
        return " ".join(words) + (f" && {row['add']} pytest" if lacks else "")

    def _lock(self, row: Json) -> str:
        """The content of a row's lock file."""
        return self.text(row["file"]) or self.whole.text(row["file"])

    def _pip(self) -> str | None:
        """The command that makes a .venv with the project, its requirements and
        modules, if it has any."""
        names = self.files(*TABLE["python requirements"])
        requirements = [
            name
            for name in names
            if name == "requirements.txt" or _DEVELOPMENT.search(name)
        ]
        modules = [
            one.name
            for one in self.modules
            if not one.prefix and one.name not in _WITH_PYTHON
        ]
        required = _REQUIRES.search(
            self.text("pyproject.toml", "setup.py", "setup.cfg")
        )
        layout = self.files("src/*/__init__.py", "src/*.py")
        if not (required or requirements or layout or "pytest" in modules):
            return None
        extras, groups = self._groups("extra"), self._groups("group")
        words = [word for name in requirements for word in ("-r", name)]
        words += [word for name in groups for word in ("--group", name)]
        described = (
            self.says({"pyproject.toml": r"^\[(project|build-system)\]"})
            or "setup.py" in self.names
        )
        if described and (required or layout or extras):
            words = ["-e", f".[{','.join(extras)}]" if extras else ".", *words]
        held = self.text(*requirements)
        words += [
            name
            for name in dict.fromkeys(modules)
            if not re.search(rf"^{name}\b", held, re.MULTILINE)
        ]
        newer = (
            [f"{_PIP} 'pip>=25.1'"] if groups else []
        )  # the first that knows --group
        made = ["python3 -m venv .venv", *newer, f"{_PIP} {shlex.join(words)}"]
        return " && ".join(made) if words else None

    def _groups(self, kind: str) -> list[str]:
        """The extras or groups in pyproject.toml that are for development by their
        names."""
        sections = "\n".join(
            re.findall(_GROUPS[kind], self.text("pyproject.toml"), re.MULTILINE)
        )
        names = re.findall(r"^([\w-]+)(?=\s*=|$)", sections, re.MULTILINE)
        return [name for name in dict.fromkeys(names) if _DEVELOPMENT.search(name)]


def setup_hint(output: str, exit_status: int | None, root: Path) -> Finding | None:
    """A finding if a red check lacks what a setup could install: a warning if it lacks
    a module that neither the setup nor a manifest names, as a task may be about to make
    it, else an error."""
    lacks = exit_status in (126, 127) or _MISSING.search(output)
    setup = Project(root).setup if lacks else None
    if setup is None:
        return None
    module = _MODULE.search(output) if exit_status not in (126, 127) else None
    manifests = [
        read_text(root / name)
        for name in patterns.matching(_MANIFESTS, os.listdir(root))
    ]
    words = re.findall(
        r"[\w@/-]+", " ".join([setup.run, *manifests]).replace("_", "-").lower()
    )
    level = (
        "error"
        if module is None or module[1].replace("_", "-").lower() in words
        else "warning"
    )
    wanted = f'"setup": {json.dumps(setup.run, ensure_ascii=False)}'
    return (
        level,
        f"a program or a module is missing; {wanted} in the plan installs what this project names",
    )


def as_json(found: Setup | Check) -> Any:
    """A setup or a check as a plan has it."""
    if isinstance(found, Setup):
        return {"run": found.run, "when": [*found.when]} if found.when else found.run
    return (
        {"name": found.name, "run": found.run, "results": found.results}
        if found.results
        else found.run
    )


def files_of(root: Path) -> list[str]:
    """The files of the project, tracked or not, without those that git ignores."""
    if top_level(root):
        listed = git(root, "ls-files", "-coz", "--exclude-standard", check=False)
        return [name for name in listed.split("\0") if name and not name.endswith("/")]
    names = []
    for folder, inside, files in os.walk(root):
        inside[:] = [name for name in inside if name not in TABLE["not ours"]]
        names += [os.path.relpath(os.path.join(folder, name), root) for name in files]
    return names


def _is_locked(row: Json) -> bool:
    """Whether a row's setup installs from a lock file."""
    return "setup" in row and "unlocked" not in row
