"""The facts of an agent CLI, and the command that a person made of it."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from string import Template

from _ralph.agents.turn import Turn
from _ralph.model import NO_LIMIT, Json


def words(command: str) -> tuple[str, ...]:
    """The words of a command without quotes."""
    return tuple(command.split())


@dataclass(frozen=True, kw_only=True)
class Trust:
    """What an agent does with the settings of a project that it was told to trust.

    `files` carry them. `home` says whether a person trusts a project, given its folder
    and the environment; `words` are added to the command where the agent is to trust
    some of them in the place that it works in.
    """

    files: tuple[str, ...]
    home: Callable[[Path, Mapping[str, str]], bool]
    words: Callable[[Sequence[Path]], list[str]]


@dataclass(frozen=True, kw_only=True)
class Cli:
    """The facts of one agent CLI.

    `argv` is the command. {args} takes the words that a person added, {permissions}
    those of the level, {trust} those of `trust`, {budget} those of `budget`, where {usd}
    is what is left; {prompt_file} is a file with the prompt, {log} one that the agent
    writes its events into. `read` reads an event into a turn; without it, only the exit
    status counts. With `text`, every printed line is the event `{"line": "..."}`, and
    only the log is JSON: what it prints could be anything. Lines that begin with one of
    `skips` need no reading. Credentials are variables ($NAME) and files below the home
    folder.
    """

    argv: Sequence[str] = ()
    version: str = ""  # the command that prints it
    prompt: str = "stdin"  # or file
    env: Mapping[str, str] = field(default_factory=dict)  # $NAME is a person's variable
    permissions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    sandbox_needs: tuple[str, ...] = ()  # programs, on Linux
    trust: Trust | None = None
    budget: tuple[str, ...] = ()
    read: Callable[[Turn, Json], None] | None = None
    skips: tuple[bytes, ...] = ()
    text: bool = False
    reports: tuple[str, ...] = ()  # dollars, tokens
    reports_late: bool = False  # at its end, and it has no limit of its own
    reads_rulebook: bool = False  # AGENTS.md, by itself
    keys: tuple[str, ...] = ()  # variables with an API key, which is billed
    logins: tuple[str, ...] = ()
    resume: str = ""  # the command that reopens a {session}
    hints: Mapping[str, str] = field(default_factory=dict)  # for words on stderr


@dataclass(frozen=True)
class Agent:
    """A command that a person named (`claude --model haiku`), and what is known of its
    program."""

    name: str
    words: tuple[str, ...]
    cli: Cli
    permissions: str = "edit"

    @property
    def streams(self) -> bool:
        """Whether it prints events as it works, so that silence means something."""
        return self.cli.read is not None and not self.cli.text

    @property
    def command(self) -> str:
        """The command as the person named it."""
        return shlex.join(self.words)

    @property
    def program(self) -> str:
        """What is started: an agent may be called otherwise than its program, a person
        may name a path."""
        if self.cli.argv and self.words[0] == self.name:
            return self.cli.argv[0]
        return self.words[0]

    def reopen(self, session: str | None) -> str:
        """The command that resumes a session; empty if there is none."""
        if not session:
            return ""
        return self.cli.resume.replace("{session}", shlex.quote(session))

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables that it is given; `$NAME` in one is that of `env`."""
        given = {}
        for name, value in self.cli.env.items():
            given[name] = Template(value).safe_substitute(env)
        return given

    def missing(self, env: Mapping[str, str]) -> list[str]:
        """The variables that its own need, and that `env` does not have."""
        needed: set[str] = set()
        for value in self.cli.env.values():
            needed.update(Template(value).get_identifiers())
        return sorted(name for name in needed if not env.get(name))

    def argv(
        self,
        prompt_file: Path,
        log: Path,
        usd_left: float = NO_LIMIT,
        trusted: Sequence[Path] = (),
    ) -> list[str]:
        """The command to run. `usd_left` is in dollars, for an agent with a limit of
        its own; `log` for one that writes its events to a file; `trusted` are the
        files of its settings that it is told to trust."""
        if not self.cli.argv:
            return [*self.words]
        filled = {
            "{args}": [*self.words[1:]],
            "{permissions}": [*self.cli.permissions.get(self.permissions, ())],
            "{budget}": [],
            "{trust}": [],
            "{prompt_file}": [str(prompt_file)],
            "{log}": [str(log)],
        }
        if usd_left < NO_LIMIT:
            usd = f"{usd_left:.2f}"
            filled["{budget}"] = [w.replace("{usd}", usd) for w in self.cli.budget]
        if trusted and self.cli.trust:
            filled["{trust}"] = self.cli.trust.words(trusted)
        argv = [self.program]
        for word in self.cli.argv[1:]:
            argv += filled.get(word, [word])
        return argv


PLAIN = Cli()
"""A command of which nothing is known."""
