"""Agents: the commands of rows in agents.json, run, and the results of what they
print."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from string import Template
from typing import Any

from _ralph import files, text
from _ralph.agents import sums
from _ralph.agents.events import StreamParser
from _ralph.agents.surroundings import path_without
from _ralph.errors import AgentUnavailable, BadInput
from _ralph.git import settings_env
from _ralph.model import AgentResult, Json, Outcome
from _ralph.process.prefix import Wrap
from _ralph.process.process import Command, Control, ProcessResult, run_process

PLAIN: Json = {
    "argv": [],
    "prompt": "stdin",
    "permissions": {},
    "events": [],
    "output": "json",
}
_LARGEST_LOG = 4 << 20
_PATIENCE = 10.0
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*=")
_INSIDE, _LOG = ".git/ralph", "agent.log"
# With these, Claude Code thinks that it runs inside itself, and refuses to start.
NESTED = (
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_SESSION_ID",
)


@dataclass(frozen=True)
class Agent:
    """A command that a person named (`claude --model haiku`), and its row of
    agents.json."""

    name: str
    words: tuple[str, ...]
    row: Mapping[str, Any]
    permissions: str = "edit"
    prefix: tuple[str, ...] = ()  # `env` and what it sets, which is in the row

    @property
    def streams(self) -> bool:
        """Whether it prints events as it works, so that silence means something."""
        return bool(self.row["events"]) and self.row["output"] == "json"

    @property
    def tells_late(self) -> bool:
        """Whether it tells what it used only at its end, and has no limit of its
        own."""
        rules = self.row["events"]
        as_it_goes = any(
            "meanwhile" in rule or "usd" in rule.get("add", {}) for rule in rules
        )
        return bool(rules) and not as_it_goes and "budget" not in self.row

    @property
    def command(self) -> str:
        """The command as the person named it."""
        return shlex.join((*self.prefix, *self.words))

    @property
    def program(self) -> str:
        """What is started: the row may be called otherwise than its program, a person
        may name a path."""
        by_row = self.row["argv"] and self.words[0] == self.name
        return str(self.row["argv"][0] if by_row else self.words[0])

    def reopen(self, session: str | None) -> str:
        """The command that resumes a session; empty if the row has none."""
        return (
            str(self.row.get("resume", "")).replace("{session}", shlex.quote(session))
            if session
            else ""
        )

    def variables(self, env: Mapping[str, str]) -> dict[str, str]:
        """The variables that it is given; `$NAME` in one is that of `env`."""
        own = self.row.get("env", {})
        return {
            name: Template(value).safe_substitute(env) for name, value in own.items()
        }

    def missing(self, env: Mapping[str, str]) -> list[str]:
        """The variables that its own need, and that `env` does not have."""
        needed = (
            name
            for value in self.row.get("env", {}).values()
            for name in Template(value).get_identifiers()
        )
        return sorted({name for name in needed if not env.get(name)})

    def argv(
        self, prompt_file: Path, log: Path, usd_left: float | None = None
    ) -> list[str]:
        """The command to run. `usd_left` is in dollars, for an agent with a limit of
        its own; `log` for one that writes its events to a file."""
        if not self.row["argv"]:
            return list(self.words)
        budget = self.row.get("budget", []) if usd_left is not None else []
        spread = {
            "{args}": self.words[1:],
            "{permissions}": self.row["permissions"].get(self.permissions, []),
            "{budget}": [word.replace("{usd}", f"{usd_left:.2f}") for word in budget],
            "{prompt_file}": [str(prompt_file)],
            "{log}": [str(log)],
        }
        return [
            self.program,
            *(w for word in self.row["argv"][1:] for w in spread.get(word, [word])),
        ]


def find_agent(command: str, rows: Mapping[str, Any], permissions: str) -> Agent:
    """The agent for `command`: with the row of its first word after `env NAME=VALUE`,
    else plain."""
    words = _split(command)
    given = list(takewhile(_ASSIGNMENT.match, words[1:])) if words[0] == "env" else []
    prefix = words[: len(given) + 1] if given else ()
    argv = words[len(prefix) :]
    name = Path(argv[0]).name if argv else ""
    if name not in rows:
        return Agent("plain", words, PLAIN, permissions)
    env = {**rows[name].get("env", {}), **dict(word.split("=", 1) for word in given)}
    return Agent(name, argv, {**PLAIN, **rows[name], "env": env}, permissions, prefix)


def _split(command: str) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise BadInput(
            f"the agent command {command!r} cannot be split into words: {error}"
        ) from None
    if not words:
        raise BadInput("the agent command is empty")
    return words


def load_rows(builtin: Path, own: Mapping[str, Any]) -> Json:
    """The rows of templates/agents.json, with those of the plan's `agents` over them.
    BadInput for a row that is like itself, or like none."""
    known: Json = json.loads(builtin.read_text(encoding="utf-8"))
    known.pop("", None)  # a note to the reader of the file
    return {**known, **{name: _filled(name, own, known) for name in own}}


def _filled(
    name: str, own: Mapping[str, Any], known: Json, above: tuple[str, ...] = ()
) -> Json:
    """The row `name` with all that it has from the one that it is `like`; `above` are
    the rows that are like this one. A row may be like the one of its own name that
    ralph brings along."""
    row = known.get(name) if name in above else own.get(name, known.get(name))
    if row is None:
        end = "leads to itself" if name in above else "names no known agent"
        way = " -> ".join((*above, name))
        raise BadInput(
            f"agents.{above[0]}: `like` {end}: {way}; known are {', '.join({**known, **own})}"
        )
    if "like" not in row:
        return dict(row)
    base = _filled(row["like"], own, known, (*above, name))
    argv = list(row.get("argv", base["argv"]))
    at = argv.index("{args}") if "{args}" in argv else len(argv)
    filled = {**base, **row, "argv": argv[:at] + row.get("argv+", []) + argv[at:]}
    filled["env"] = {**base.get("env", {}), **row.get("env", {})}
    return {key: value for key, value in filled.items() if key not in ("like", "argv+")}


def config_variables(rows: Mapping[str, Any]) -> frozenset[str]:
    """The variables that name the configuration of an agent."""
    places = (
        place
        for row in rows.values()
        for kind in ("config", "login")
        for place in row.get(kind, [])
    )
    return frozenset(place[1:] for place in places if place.startswith("$"))


def require(agent: Agent, here: bool = True) -> None:
    """AgentUnavailable if an agent is missing, or cannot be confined to its
    permissions; what is not `here` but behind a prefix, that will say."""
    if here and shutil.which(agent.program) is None:
        there = os.path.isfile(agent.program) and "/" in agent.program
        how = f"chmod +x {agent.program}" if there else "install it or name another"
        what = "cannot be executed" if there else "is not on PATH"
        raise AgentUnavailable(f"the agent {agent.program!r} {what}; {how}")
    if unset := agent.missing(os.environ):
        raise AgentUnavailable(
            f"the agent {agent.name!r} needs {' and '.join(unset)}, which is not set; export it"
        )
    if agent.name == "plain" or agent.permissions == "full":
        return
    if agent.permissions not in agent.row["permissions"]:
        raise AgentUnavailable(
            f"{agent.name} has no sandbox of its own that would keep it to this folder; "
            f"use --wrap with a container or examples/bwrap.sh, or --full-permissions"
            if agent.permissions == "edit"
            else f"{agent.name} cannot be judge or planner: its row has no `read` permissions"
        )
    if agent.permissions == "read" or not here:
        return
    needs = agent.row.get("edit_needs", {}).get(sys.platform, [])
    if missing := " and ".join(
        program for program in needs if shutil.which(program) is None
    ):
        raise AgentUnavailable(
            f"{agent.name} cannot keep to the workspace here: its own sandbox needs {missing}; "
            f"install that, or use --full-permissions (behind --wrap, if you like)"
        )


def credentials(agent: Agent, env: Mapping[str, str]) -> tuple[str | None, str | None]:
    """What is billed in an environment: the name of an API key, which takes precedence,
    and the place of a login. Neither is known of an agent that keeps its login
    elsewhere."""
    home = env.get("HOME") or os.path.expanduser("~")
    key, login = billed(
        agent,
        {
            name
            for name in credential_names(agent)
            if (
                env.get(name[1:])
                if name[0] == "$"
                else os.path.isfile(os.path.join(home, name))
            )
        },
    )
    kept = agent.row.get(f"login_{sys.platform}", {}).items()
    return key, login or next(
        (place for place, ask in kept if _succeeds(ask, env)), None
    )


def billed(agent: Agent, there: Collection[str]) -> tuple[str | None, str | None]:
    """The same, where `there` are those of `credential_names` that are found, beside
    what its row sets."""
    own = {f"${name}": value for name, value in agent.row.get("env", {}).items()}
    there = {name for name in {*there, *own} if own.get(name, name)}
    key = next(
        (name for name in agent.row.get("keys", []) if f"${name}" in there), None
    )
    return key, next(
        (name for name in agent.row.get("login", []) if name in there), None
    )


def credential_names(agent: Agent) -> list[str]:
    """The keys and logins of an agent: variables, after a $, and files below the home
    folder."""
    return [
        *(f"${name}" for name in agent.row.get("keys", [])),
        *agent.row.get("login", []),
    ]


def _succeeds(words: Sequence[str], env: Mapping[str, str]) -> bool:
    """Whether a command that asks nobody ends well, and soon."""
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        subprocess.run(
            words,
            env=env,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=True,
        )
        return True
    return False


def known_credentials(agent: Agent) -> str:
    """What `credentials` looks for, in words."""
    return " or ".join(name.removeprefix("$") for name in credential_names(agent))


def run_agent(
    agent: Agent,
    prompt: str,
    *,
    log: Callable[[str], Path],
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    idle: float,
    control: Control,
    usd_left: float | None = None,
    tokens_left: int | None = None,
    dearest: float = 0.0,
    watch: Callable[[StreamParser], None] = lambda _: None,
    wrap: Wrap = lambda argv, _: [*argv],
    here: bool = True,
) -> AgentResult:
    """Run one agent process to its end; times in seconds, money in dollars.

    `log(suffix)` is a new path for a transcript (`.out`, `.err`), its sums, or a copy
    of the prompt, for people; the agent's own files are in `.git/ralph` below `cwd`.
    `dearest` is what an attempt with it cost at most so far. `watch` gets the parser
    before the first line, `wrap` puts the command behind a prefix, and `here` says that
    its program is on this side. The outcome comes from the agent's final event or, for
    a plain command, its exit status, never from words that it prints.
    """
    inside, err = cwd / _INSIDE, log(".err")
    inside.mkdir(parents=True, exist_ok=True)
    prompt_file, own_log, sent = (
        inside / "prompt.md",
        inside / _LOG,
        prompt.encode("utf-8", "replace"),
    )
    for path in (prompt_file, log(".prompt.md")):
        path.write_bytes(sent)
    row = agent.row
    parser = StreamParser(row["events"], row["output"] == "text", usd_left, tokens_left)
    saver = sums.Saver(log(sums.SUFFIX), parser)
    saver.save()
    watch(parser)
    program, *rest = agent.argv(prompt_file, own_log, usd_left)
    own = agent.variables(env)
    env = {key: value for key, value in env.items() if key not in NESTED} | own
    far = ["env", *(f"{key}={value}" for key, value in own.items()), program]
    command = Command(
        argv=wrap([*([found(program)] if here else far), *rest], env),
        cwd=cwd,
        env=env,
        timeout=timeout,
        idle=lambda: parser.silence(idle if agent.streams else None),
        stdin=b"" if row["prompt"] == "file" else sent,
        out=log(".out"),
        err=err,
    )
    process = run_process(command, control, saver.line, parser.reads_lines)
    _read_log(row, parser, own_log)
    saver.save()
    stderr = text.redact(
        (files.read_regular(err) or b"")[-4096:].decode("utf-8", "replace")
    )
    return sums.booked(conclude(agent, parser, process, stderr), dearest)


def found(program: str) -> str:
    """The path of an agent's program, as the person's PATH finds it: that of a place
    leads to programs that an agent can have left there."""
    on_path = shutil.which(program)
    return os.path.abspath(on_path) if on_path else program


def _read_log(row: Mapping[str, Any], parser: StreamParser, log: Path) -> None:
    """Parse the log of an agent that has one; for any other, an attempt could make up
    such a file."""
    if "{log}" not in row["argv"]:
        return
    for line in (files.read_regular(log, _LARGEST_LOG) or b"").splitlines():
        parser.line(line, printed=False)


def conclude(
    agent: Agent, parser: StreamParser, process: ProcessResult, stderr: str
) -> AgentResult:
    """The result of an agent process, from its events and from how it ended."""
    outcome, reason = _outcome(agent, parser, process, stderr)
    unit = parser.unreported(outcome)
    unlimited = (
        f"{agent.command} reported no {unit}, so the limit in {unit} cannot be enforced"
    )
    return AgentResult(
        outcome=outcome,
        reason=text.one_line(text.redact(reason), 300),
        text=text.redact(parser.fact("text") if agent.streams else process.tail),
        session=parser.session,
        usd=parser.usd,
        at_least=parser.was_cut_off(outcome),
        no_price=unlimited if unit else "",
        tokens=parser.tokens(),
        reset=parser.reset if outcome is Outcome.LIMITED or parser.overage else None,
        overage=parser.overage,
        denials=[
            text.one_line(text.redact(str(denied)))
            for denied in parser.facts.get("denials", [])
        ],
        seconds=process.seconds,
        exit=process.exit,
        active=parser.active,
        survivors=process.survivors,
    )


def _outcome(
    agent: Agent, parser: StreamParser, process: ProcessResult, stderr: str
) -> tuple[Outcome, str]:
    """How it ended, and why if it did not end well."""
    if process.ended == "missing":
        return Outcome.UNAVAILABLE, process.tail
    if process.ended == "interrupted":
        return Outcome.INTERRUPTED, "ralph was stopped"
    if process.ended in ("deadline", "idle") and not parser.has_ended:
        after = text.duration(process.seconds)
        reason = f"stopped at its {'time' if process.ended == 'deadline' else 'idle'} limit after {after}"
        return (
            Outcome.TIMED_OUT,
            f"{reason}; {parser.unanswered}" if parser.unanswered else reason,
        )
    if parser.overspent and parser.final != "done":
        return (
            Outcome.INTERRUPTED,
            f"it used up what was left of the limit in {parser.overspent}",
        )
    if not parser.rules and process.exit == 0:
        return Outcome.DONE, ""
    if not parser.rules:  # a command that prints no events
        plain = Outcome.UNAVAILABLE if process.exit in (126, 127) else Outcome.FAILED
        return (
            plain,
            f"exit {process.exit}: {text.last_line(stderr or text.redact(process.tail))}",
        )
    if outcome := parser.final or (
        parser.outcome if parser.outcome != "done" else None
    ):
        return Outcome(outcome), parser.fact("reason") if outcome != "done" else ""
    hints = {
        words: hint
        for words, hint in agent.row.get("hints", {}).items()
        if words in stderr
    }
    if (process.exit or 0) > 0 and (hints or not parser.events):
        lines = (
            line for line in stderr.splitlines() for words in hints if words in line
        )
        reason = f"exit {process.exit}: {next(lines, '') or text.last_line(stderr)}"
        return Outcome.UNAVAILABLE, "; ".join([reason, *hints.values()])
    return (
        Outcome.FAILED,
        f"its output ended without a final event (exit {process.exit})",
    )


def own_venv(home: Path) -> str:
    """The virtual environment that ralph runs in; empty if there is none, or if it is
    part of the project at `home`."""
    prefix = os.path.realpath(sys.prefix)
    return (
        ""
        if sys.prefix == sys.base_prefix or Path(prefix).is_relative_to(home)
        else prefix
    )


def agent_env(home: Path) -> dict[str, str]:
    """The environment of agents, checks and hooks of the project at `home`: ralph's
    own, without git's variables for a repository and ralph's own virtual
    environment."""
    env = settings_env()
    env.pop("OLDPWD", None)
    if venv := own_venv(home):
        env["PATH"] = path_without(f"{venv}/bin", env.get("PATH", os.defpath), home)
    return {**env, "GIT_TERMINAL_PROMPT": "0"}
