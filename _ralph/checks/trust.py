"""Trust: some tools heed a project's files only where a person said so. A place has
what home trusts, by the bytes: those of home's history, and those that tasks with an
`allow` made of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import text
from _ralph.agents import registry
from _ralph.agents.cli import Trust as AgentTrust
from _ralph.files import read_regular
from _ralph.git import patterns
from _ralph.git.checkout import Checkout
from _ralph.git.git import Git

Environment = Mapping[str, str]
_PATIENCE = 10.0
"""Seconds that a tool may take to say whom it trusts."""


@dataclass(frozen=True)
class Tool:
    """A tool that heeds its `files`, which are patterns, only where it trusts them.
    `asks` tells whether it does so at home: given a file there and the environment. Of
    a place it is told by a `variable` with the paths of the files, by the command
    `allow` and a path, or, an `agent`, by its own module."""

    name: str
    files: tuple[str, ...]
    advice: str  # for a person who wants it to trust the files at home
    asks: Callable[[Path, Environment], bool] | None = None
    variable: str = ""
    allow: tuple[str, ...] = ()
    agent: AgentTrust | None = None

    def trusts(self, home: Path, path: Path, env: Environment) -> bool:
        """Whether it trusts a file of the project at `home`."""
        if self.agent:
            return self.agent.home(home, env)
        return self.asks is not None and self.asks(path, env)

    def among(self, names: Iterable[str]) -> list[str]:
        """Those of `names` that are files of this tool, however a disk spells them."""
        is_one = patterns.matcher(self.files)
        return [name for name in names if is_one(patterns.folded(name))]

    @property
    def pathspecs(self) -> list[str]:
        """The same for git."""
        globs = [one if "/" in one else f"**/{one}" for one in self.files]
        return [f":(top,icase,glob){glob.lstrip('/')}" for glob in globs]


def _mise(path: Path, env: Environment) -> bool:
    said = _said(["mise", "trust", "--show"], path.parent, env)
    best = Path("/")
    trusted = False
    for line in said.splitlines():
        where, _, state = line.rpartition(": ")
        at = Path(re.sub("^~(?=/|$)", env.get("HOME", ""), where))
        # The files of one folder are trusted as one, but in its paranoid mode
        if path.is_relative_to(at) and at.is_relative_to(best):
            best, trusted = at, state == "trusted"
    return trusted


def _direnv(path: Path, env: Environment) -> bool:
    said = _said(["direnv", "status"], path.parent, env)
    return re.search(r"^Found RC allowed (true|0)$", said, re.MULTILINE) is not None


TOOLS = [
    Tool(
        "mise",
        (
            "mise.toml", ".mise.toml", "mise.*.toml", ".mise.*.toml", ".tool-versions",
            "**/mise/config.toml", "**/mise/config.*.toml", "**/mise/conf.d/*.toml",
            "**/.mise/config.toml", "**/.mise/config.*.toml", "**/.mise/conf.d/*.toml",
        ),
        "mise trust",
        _mise,
        variable="MISE_TRUSTED_CONFIG_PATHS",
    ),
    Tool("direnv", (".envrc",), "direnv allow", _direnv, allow=("direnv", "allow")),
]  # fmt: skip
TOOLS += [
    Tool(name, cli.trust.files, f"start {name} here and say yes", agent=cli.trust)
    for name, cli in registry.BUILTIN.items()
    if cli.trust
]
VARIABLES = [tool.variable for tool in TOOLS if tool.variable]


@dataclass(frozen=True)
class Trust:
    """What the tools trust at home, by their names; what is there and they do not; and
    the commit that home stood at."""

    head: str
    files: Mapping[str, list[str]]
    not_trusted: Mapping[str, list[str]]
    _foreign: dict[tuple[str, str], list[str]] = field(default_factory=dict)

    def among(self, names: Collection[str]) -> list[str]:
        """Those of `names` by which a tool that trusts home decides what is run, also
        where home has no such file."""
        found = []
        for tool in TOOLS:
            if tool.name in self.files:
                found += tool.among(names)
        return found

    def foreign(self, home: Git, commit: str, tool: Tool) -> list[str]:
        """The commits that lead to `commit`, changed files of a tool, and are neither
        part of home's history nor ralph's own, which are made under an `allow`."""
        if (tool.name, commit) in self._foreign:
            return self._foreign[tool.name, commit]
        form = "--format=%h%x09%(trailers:key=Ralph-Attempt,valueonly,separator=)"
        words = ["log", "--no-merges", form, f"{self.head}..{commit}", "--"]
        listed = home.maybe(*words, *tool.pathspecs) or ""
        found = []
        for line in listed.splitlines():
            short, _, attempt = line.partition("\t")
            if not attempt:
                found.append(short)
        self._foreign[tool.name, commit] = found
        return found

    def warnings(
        self, home: Git, tip: str, branch: str, agents: Collection[AgentTrust | None]
    ) -> list[str]:
        """Lines about what no place will trust, as far as it is of use to these
        agents."""
        said = []
        for tool in TOOLS:
            if tool.agent and tool.agent not in agents:
                continue
            if names := self.not_trusted.get(tool.name):
                here = f"{tool.name} does not trust {text.few(names)} at home"
                said.append(
                    f"{here}, so no checkout does; to change that: {tool.advice}"
                )
            if tool.name in self.files and (foreign := self.foreign(home, tip, tool)):
                files = f"the files of {tool.name} on {branch}"
                why = (
                    "which is not in your history; merge it before any checkout trusts"
                )
                said.append(f"{text.few(foreign)} changed {files}, {why} them")
        return said


def ask_home(home: Git, copied: Collection[str], env: Environment) -> Trust:
    """Ask each tool that is here what it trusts of the files at home."""
    pathspecs = [spec for tool in TOOLS for spec in tool.pathspecs]
    tracked = home.names("ls-files", "-z", "--", *pathspecs)
    names = [name for name in [*tracked, *copied] if (home.root / name).is_file()]
    files: dict[str, list[str]] = {}
    not_trusted: dict[str, list[str]] = {}
    for tool in TOOLS:
        if not (tool.agent or shutil.which(tool.name, path=env.get("PATH"))):
            continue
        for name in tool.among(names):
            yes = tool.trusts(home.root, home.root / name, env)
            (files if yes else not_trusted).setdefault(tool.name, []).append(name)
    head = home.maybe("rev-parse", "HEAD") or ""
    return Trust(head.strip(), files, not_trusted)


def granted(trust: Trust, place: Checkout, commit: str) -> dict[str, list[str]]:
    """The files in a place, made for `commit`, that each tool is to trust there, by the
    tool's name. Without a yes at home, there are none."""
    found: dict[str, list[str]] = {}
    for tool in TOOLS:
        if tool.name not in trust.files or trust.foreign(place.home, commit, tool):
            continue
        tracked = place.git.names("ls-files", "-z", "--", *tool.pathspecs)
        refused = trust.not_trusted.get(tool.name, [])
        found[tool.name] = [name for name in tracked if name not in refused]
        for name in trust.files[tool.name]:
            if name in place.carried and _is_home_s(place, name):
                found[tool.name].append(name)
    return found


def variables(
    env: Environment, place: Path, files: Mapping[str, list[str]]
) -> dict[str, str]:
    """The variables that make tools trust these files in `place`, and nothing else that
    stands there: what the person's own names are other folders."""
    told = {}
    for tool in TOOLS:
        if not tool.variable:
            continue
        paths = []
        for entry in env.get(tool.variable, "").split(os.pathsep):
            path = Path(entry)
            holds = place.is_relative_to(path) or path.is_relative_to(place)
            if entry and not holds:
                paths.append(entry)
        paths += [f"{place}/{name}" for name in files.get(tool.name, [])]
        if paths or tool.variable in env:
            told[tool.variable] = os.pathsep.join(paths)
    return told


def commands(files: Mapping[str, list[str]]) -> list[tuple[Sequence[str], str]]:
    """The words of the command, and the file that comes after them, for each of these
    files whose tool is told so."""
    found: list[tuple[Sequence[str], str]] = []
    for tool in TOOLS:
        if tool.allow:
            found += [(tool.allow, name) for name in files.get(tool.name, [])]
    return found


def _is_home_s(place: Checkout, name: str) -> bool:
    """Whether a copy still has home's bytes."""
    source = Path(os.path.realpath(place.home.root / name))
    there = read_regular(place.root / name)
    return there is not None and there == read_regular(source)


def _said(words: list[str], folder: Path, env: Environment) -> str:
    """What a tool prints; nothing if it fails or takes too long."""
    try:
        done = subprocess.run(
            words,
            cwd=folder,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(done.stdout)
