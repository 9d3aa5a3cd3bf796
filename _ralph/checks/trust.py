"""Trust: some tools heed a project's files only where a person said so. A place has
what home trusts: what stands in history, and what tasks with an `allow` made of it."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from _ralph import text
from _ralph.agents import registry
from _ralph.agents.cli import Trust as AgentTrust
from _ralph.git import patterns
from _ralph.git.checkout import Checkout
from _ralph.git.git import Git
from _ralph.process.process import ask

Environment = Mapping[str, str]
Grants = dict[str, list[Path]]
"""The files that a tool, by its name, is to trust."""


@dataclass(frozen=True)
class Tool:
    """A tool that heeds its `files`, patterns from the top, only where it trusts them.
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

    def tracked(self, git: Git) -> list[str]:
        """Its files that git tracks."""
        pathspecs = [f":(top,glob){one}" for one in self.files]
        return git.names("ls-files", "-z", "--", *pathspecs)


def _mise(path: Path, env: Environment) -> bool:
    best, trusted = Path("/"), False
    said = ask(["mise", "trust", "--show"], path.parent, env)
    for line in said.splitlines():
        where, _, state = line.rpartition(": ")
        at = Path(re.sub("^~(?=/|$)", env.get("HOME", ""), where))
        # The files of one folder are trusted as one, but in its paranoid mode
        if path.is_relative_to(at) and at.is_relative_to(best):
            best, trusted = at, state == "trusted"
    return trusted


def _direnv(path: Path, env: Environment) -> bool:
    said = ask(["direnv", "status"], path.parent, env)
    return re.search(r"^Found RC allowed (true|0)$", said, re.MULTILINE) is not None


TOOLS = [
    Tool(
        "mise",
        (
            "**/mise.toml", "**/.mise.toml", "**/mise.*.toml", "**/.mise.*.toml",
            "**/.tool-versions", "**/mise/config.toml", "**/mise/config.*.toml", "**/mise/conf.d/*.toml",
            "**/.mise/config.toml", "**/.mise/config.*.toml", "**/.mise/conf.d/*.toml",
        ),
        "mise trust",
        _mise,
        variable="MISE_TRUSTED_CONFIG_PATHS",
    ),
    Tool("direnv", ("**/.envrc",), "direnv allow", _direnv, allow=("direnv", "allow")),
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
    trusted: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)


def ask_home(home: Git, copied: Collection[str], env: Environment) -> list[Answer]:
    """Ask each tool that is here what it trusts of the files at home, of which `copied`
    are not tracked."""
    answers = []
    for tool in TOOLS:
        if not (tool.agent or shutil.which(tool.name, path=env.get("PATH"))):
            continue
        answer = Answer(tool)
        for name in [*tool.tracked(home), *patterns.matching(tool.files, copied)]:
            path = home.root / name
            if path.is_file():
                is_trusted = tool.trusts(home.root, path, env)
                (answer.trusted if is_trusted else answer.refused).append(name)
        if answer.trusted or answer.refused:
            answers.append(answer)
    return answers


def trusted_files(answers: Collection[Answer]) -> list[str]:
    """The files at home that tools trust."""
    return [name for answer in answers for name in answer.trusted]


def trusted_kinds(answers: Collection[Answer], names: Collection[str]) -> set[str]:
    """Those of `names` by which a tool that trusts home decides what is run, also where
    home has no such file."""
    found: set[str] = set()
    for answer in answers:
        if answer.trusted:
            found |= patterns.matching(answer.tool.files, names)
    return found


def granted(answers: Collection[Answer], place: Checkout) -> Grants:
    """The files that each tool is to trust in a place, as it was checked out. Without a
    yes at home, there are none."""
    found: Grants = {}
    for answer in answers:
        if answer.trusted:
            copied = [name for name in answer.trusted if name in place.carried]
            names = {*answer.tool.tracked(place.git), *copied} - {*answer.refused}
            found[answer.tool.name] = [place.root / name for name in sorted(names)]
    return found


def warnings(
    answers: Collection[Answer], agents: Collection[AgentTrust | None]
) -> list[str]:
    """Lines about what no place will trust, as far as it is of use to these agents."""
    said = []
    for answer in answers:
        tool = answer.tool
        if answer.refused and (not tool.agent or tool.agent in agents):
            names = text.few(answer.refused)
            no = f"{tool.name} does not trust {names} at home, so no checkout does"
            said.append(f"{no}; to change that: {tool.advice}")
    return said


def variables(env: Environment, granted: Grants) -> dict[str, str]:
    """The variables that make tools trust these files."""
    told = {}
    for tool in TOOLS:
        paths = [str(path) for path in granted.get(tool.name, [])]
        if tool.variable and paths:
            named = [env[tool.variable]] if env.get(tool.variable) else []
            told[tool.variable] = os.pathsep.join([*paths, *named])
    return told
