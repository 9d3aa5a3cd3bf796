"""Trust: some tools heed a project's files only where a person said so. A place has
what home trusts, by the bytes: those of home's history, and those that tasks with an
`allow` made of them."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from _ralph import text
from _ralph.agents import registry
from _ralph.agents.cli import Trust as AgentTrust
from _ralph.files import read_regular
from _ralph.git import patterns
from _ralph.git.checkout import Checkout
from _ralph.git.git import Git

Environment = Mapping[str, str]
Grants = dict[str, list[Path]]
"""The files that a tool, by its name, is to trust."""
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
        how = ":(top,icase,glob)"
        return [how + ("" if "/" in one else "**/") + one for one in self.files]


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


@dataclass(frozen=True)
class Answer:
    """What a tool says of its files at home."""

    tool: Tool
    trusted: list[str]
    refused: list[str]

    def foreign(self, home: Git, base: str, commit: str) -> list[str]:
        """The commits that lead from `base`, where home stood, to `commit`, changed
        files of the tool, and are not ralph's, which are made under an `allow`."""
        form = "--format=%h %(trailers:key=Ralph-Attempt,valueonly,separator=)"
        words = ["log", "--no-merges", form, f"{base}..{commit}", "--"]
        listed = home.maybe(*words, *self.tool.pathspecs) or ""
        commits = [line.split(" ") for line in listed.splitlines()]
        return [short for short, attempt in commits if not attempt]


@dataclass(frozen=True)
class Trust:
    """What the tools say of their files at home, which stood at the commit `head`."""

    head: str
    answers: list[Answer]

    @property
    def files(self) -> list[str]:
        """The files at home that tools trust."""
        return [name for answer in self.answers for name in answer.trusted]

    def among(self, names: Collection[str]) -> list[str]:
        """Those of `names` by which a tool that trusts home decides what is run, also
        where home has no such file."""
        found = []
        for answer in self.answers:
            if answer.trusted:
                found += answer.tool.among(names)
        return found

    def granted(self, place: Checkout, commit: str) -> Grants:
        """The files that each tool is to trust in a place, which was made for `commit`.
        Without a yes at home, there are none."""
        found: Grants = {}
        for answer in self.answers:
            if not answer.trusted or answer.foreign(place.home, self.head, commit):
                continue
            tool = answer.tool
            names = place.git.names("ls-files", "-z", "--", *tool.pathspecs)
            for name in answer.trusted:
                if name in place.carried and _has_home_s_bytes(place, name):
                    names.append(name)
            kept = [name for name in names if name not in answer.refused]
            found[tool.name] = [place.root / name for name in kept]
        return found

    def warnings(
        self, home: Git, tip: str, branch: str, agents: Collection[AgentTrust | None]
    ) -> list[str]:
        """Lines about what no place will trust, as far as it is of use to these
        agents."""
        said = []
        for answer in self.answers:
            tool = answer.tool
            if tool.agent and tool.agent not in agents:
                continue
            if answer.refused:
                names = text.few(answer.refused)
                no = f"{tool.name} does not trust {names} at home, so no checkout does"
                said.append(f"{no}; to change that: {tool.advice}")
            foreign = answer.foreign(home, self.head, tip)
            if answer.trusted and foreign:
                what = (
                    f"{text.few(foreign)} changed the files of {tool.name} on {branch}"
                )
                why = (
                    "which is not in your history; merge it before any checkout trusts"
                )
                said.append(f"{what}, {why} them")
        return said


def ask_home(home: Git, copied: Collection[str], env: Environment) -> Trust:
    """Ask each tool that is here what it trusts of the files at home."""
    answers = []
    for tool in TOOLS:
        if not (tool.agent or shutil.which(tool.name, path=env.get("PATH"))):
            continue
        tracked = home.names("ls-files", "-z", "--", *tool.pathspecs)
        answer = Answer(tool, [], [])
        for name in [*tracked, *tool.among(copied)]:
            path = home.root / name
            if path.is_file():
                is_trusted = tool.trusts(home.root, path, env)
                found = answer.trusted if is_trusted else answer.refused
                found.append(name)
        if answer.trusted or answer.refused:
            answers.append(answer)
    head = home.maybe("rev-parse", "HEAD") or ""
    return Trust(head.strip(), answers)


def variables(env: Environment, place: Path, granted: Grants) -> dict[str, str]:
    """The variables that make tools trust these files in `place`, and nothing else
    there: what they named at home is left out."""
    told = {}
    for tool in TOOLS:
        if not tool.variable:
            continue
        paths = [str(path) for path in granted.get(tool.name, [])]
        for entry in env.get(tool.variable, "").split(os.pathsep):
            if entry and not Path(entry).is_relative_to(place):
                paths.append(entry)
        if paths or tool.variable in env:
            told[tool.variable] = os.pathsep.join(paths)
    return told


def _has_home_s_bytes(place: Checkout, name: str) -> bool:
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
