"""Agents: rows of agents.json become commands, their output streams become results."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _ralph import files, text
from _ralph.model import AgentResult, AgentUnavailable, BadInput, Outcome, Tokens
from _ralph.process import Control, ProcessResult, run_process

PLAIN: dict[str, Any] = {"argv": [], "prompt": "stdin", "permissions": {}, "events": []}
# With these an agent takes itself for nested in another one and refuses to start.
NESTED = ("CLAUDECODE", "CLAUDE_CODE_ENTRYPOINT", "CLAUDE_CODE_SSE_PORT", "CLAUDE_CODE_SESSION_ID")

Listener = Callable[[str, str], None]
"""Hears what the agent does as it does it: a kind (`say`, `tool`, `raw`) and one line."""


@dataclass(frozen=True)
class Agent:
    """A command a person named (`claude --model haiku`) joined with its row of agents.json."""

    name: str
    words: tuple[str, ...]
    row: Mapping[str, Any]
    permissions: str = "edit"

    @property
    def streams(self) -> bool:
        """Whether its output is JSON events, so that silence and cost can be seen."""
        return bool(self.row.get("events"))

    @property
    def command(self) -> str:
        """The command as the person wrote it."""
        return shlex.join(self.words)

    @property
    def program(self) -> str:
        return self.words[0]

    def argv(self, prompt_file: Path, usd_left: float | None = None) -> list[str]:
        """The command as it is run; `usd_left` in dollars, where the row has a limit for it."""
        if not self.row["argv"]:
            return list(self.words)
        budget = self.row.get("budget", []) if usd_left is not None else []
        spread = {
            "{args}": list(self.words[1:]),
            "{permissions}": list(self.row["permissions"].get(self.permissions, [])),
            "{budget}": [word.replace("{usd}", f"{usd_left:.2f}") for word in budget],
            "{prompt_file}": [str(prompt_file)],
        }
        rest = [w for word in self.row["argv"][1:] for w in spread.get(word, [word])]
        return [self.program, *rest]


def find_agent(command: str, rows: Mapping[str, Any], permissions: str) -> Agent:
    """The agent for `command`, its first word looked up among `rows`; anything else is plain."""
    try:
        words = tuple(shlex.split(command))
    except ValueError as error:
        raise BadInput(f"the agent command {command!r} cannot be split into words: {error}") from None
    if not words:
        raise BadInput("the agent command is empty")
    name = Path(words[0]).name
    known = name in rows and isinstance(rows[name], dict)
    if known and words[0] == name:
        words = (rows[name]["argv"][0], *words[1:])
    return Agent(name if known else "plain", words, {**PLAIN, **rows[name]} if known else PLAIN, permissions)


def load_rows(builtin: Path, own: Mapping[str, Any]) -> dict[str, Any]:
    """The rows of templates/agents.json, with those of the plan's `agents` over them."""
    rows: dict[str, Any] = {**json.loads(builtin.read_text(encoding="utf-8")), **own}
    for name, row in own.items():
        if wrong := _wrong_in_row(row):
            raise BadInput(f"agents.{name}: expected {wrong}")
    return rows


def _wrong_in_row(row: Any) -> str | None:
    """What a row of the plan's own should have been, or None if it can be used."""
    if not isinstance(row, dict) or not row.get("argv") or not _is_words(row["argv"]):
        return "an object with `argv`, a list of words"
    permissions, events = row.get("permissions", {}), row.get("events", [])
    if not isinstance(permissions, dict) or not all(map(_is_words, permissions.values())):
        return "`permissions` to name lists of words"
    if row.get("prompt", "stdin") not in ("stdin", "file") or not _is_words(row.get("budget", [])):
        return "`prompt` to be stdin or file, and `budget` a list of words"
    if not isinstance(events, list) or not all(isinstance(rule, dict) for rule in events):
        return "`events` to be a list of rules"
    outcomes = {None, *map(str, Outcome)}
    if any(not isinstance(rule.get("when"), dict) or rule.get("outcome") not in outcomes for rule in events):
        return "every rule of `events` to have `when`, and an outcome that is known"
    return None


def _is_words(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


def require(agent: Agent) -> None:
    """Refuse an agent that is missing, or that could not be held to its permissions."""
    if shutil.which(agent.program) is None:
        raise AgentUnavailable(
            f"the agent {agent.program!r} is not on PATH; install it or name another with --agent"
        )
    needs = agent.row.get("edit_needs", {}).get(sys.platform, []) if agent.permissions == "edit" else []
    missing = [program for program in needs if shutil.which(program) is None]
    if missing:
        raise AgentUnavailable(
            f"{agent.name} cannot keep to the workspace here: its own sandbox needs {' and '.join(missing)}. "
            f"Two ways on: install {' and '.join(missing)}, or give it everything with --full-permissions"
        )


def run_agent(
    agent: Agent,
    prompt: str,
    *,
    prompt_file: Path,
    cwd: Path,
    env: Mapping[str, str],
    timeout: float,
    idle: float,
    control: Control,
    out: Path,
    err: Path,
    usd_left: float | None = None,
    listen: Listener | None = None,
) -> AgentResult:
    """Run one agent process to its end; times in seconds, money in dollars.

    The outcome comes from its final event, for a plain command from its exit status, never
    from words that it prints.
    """
    by_file = agent.row["prompt"] == "file"
    prompt_file.write_bytes(prompt.encode("utf-8", "replace"))
    parser = StreamParser(agent.row["events"], listen)
    process = run_process(
        agent.argv(prompt_file, usd_left),
        cwd=cwd,
        env={key: value for key, value in env.items() if key not in NESTED},
        timeout=timeout,
        idle=idle if agent.streams else None,
        control=control,
        stdin=b"" if by_file else prompt.encode("utf-8", "replace"),
        out=out,
        err=err,
        on_line=parser.line,
    )
    result = conclude(agent, parser, process, _stderr_tail(err))
    if result.usd is None and usd_left is not None and result.tokens.total:
        result.usd = usd_left  # cut off before it named its price: all that it was allowed counts
    return result


@dataclass
class StreamParser:
    """Applies a row's rules to each JSON line; what the last matching rule says stands.

    `ended` is whether a final event came. With no rules (a plain command) lines are only heard.
    """

    rules: list[dict[str, Any]]
    listen: Listener | None = None
    facts: dict[str, Any] = field(default_factory=dict)
    sums: dict[str, int] = field(default_factory=dict)
    meanwhile: dict[str, dict[str, int]] = field(default_factory=dict)
    outcome: str | None = None
    ended: bool = False
    events: int = 0
    active: bool = False

    def line(self, raw: bytes) -> str | None:
        """Take in one line; the answer is as `run_process` expects it."""
        if not self.rules:
            self.active = self.active or bool(raw.strip())
            self._hear("say", raw[:2000].decode("utf-8", "replace"))
            return None
        event = _event(raw)
        if event is None:
            return "quiet"
        self.events += 1
        answer = None
        for rule in self.rules:
            if all(_matches(pick(event, path), wanted) for path, wanted in rule["when"].items()):
                answer = self._apply(rule, event) or answer
        return answer

    def _apply(self, rule: dict[str, Any], event: dict[str, Any]) -> str | None:
        for name, paths in rule.get("set", {}).items():
            values = [found for path in _listed(paths) if (found := pick(event, path))]
            if values or name in ("denials",):
                self.facts[name] = values[0] if values else []
        for kind in ("add", "total"):
            for name, paths in rule.get(kind, {}).items():
                numbers = [n for path in _listed(paths) for n in pick(event, path) if _is_amount(n)]
                before = self.sums.get(name, 0) if kind == "add" or not numbers else 0
                self.sums[name] = before + int(sum(numbers))
        if "add" in rule:
            self.meanwhile.clear()
        elif spent := rule.get("meanwhile"):  # until a result counts it, each message once
            message = str(pick(event, spent["of"]))
            self.meanwhile[message] = {
                name: int(sum(n for path in paths for n in pick(event, path) if _is_amount(n)))
                for name, paths in spent.items()
                if name != "of"
            }
        if "outcome" in rule:
            self.outcome = rule["outcome"]
        if "reason" in rule:
            self.facts["reason"] = [rule["reason"]]
        self.ended = self.ended or bool(rule.get("final"))
        for kind in ("say", "tool"):
            for words in pick(event, rule[kind]) if kind in rule else []:
                self.active = True
                self._hear(kind, str(words))
        return "stop" if rule.get("stop") else "quiet" if rule.get("quiet") else None

    def _hear(self, kind: str, words: str) -> None:
        if self.listen is not None and words.strip():
            self.listen(kind, words)

    def text(self, name: str) -> str:
        return " ".join(str(value) for value in self.facts.get(name, []) if value is not None)

    def tokens(self) -> Tokens:
        """What the results say, and what was used since the last of them, or without any."""
        counted = [self.sums, *self.meanwhile.values()]
        return Tokens(**{key: sum(one.get(key, 0) for one in counted) for key in Tokens().as_dict()})

    def number(self, name: str) -> float | None:
        value = next(iter(self.facts.get(name, [])), None)
        return float(value) if _is_amount(value) and value is not None else None


def conclude(agent: Agent, parser: StreamParser, process: ProcessResult, stderr: str) -> AgentResult:
    """The result of an agent process, from its events and from how it ended."""
    outcome, reason = _outcome(agent, parser, process, stderr)
    return AgentResult(
        outcome=outcome,
        reason=text.one_line(reason, 300),
        text=parser.text("text") if agent.streams else process.tail,
        session=parser.text("session") or None,
        usd=parser.number("usd"),
        tokens=parser.tokens(),
        reset=parser.number("reset") if outcome is Outcome.LIMITED else None,
        denials=[text.one_line(str(denied)) for denied in parser.facts.get("denials", [])],
        seconds=process.seconds,
        exit=process.exit,
        active=parser.active,
        survivors=process.survivors,
    )


def pick(event: Any, path: str) -> list[Any]:
    """The values at a dotted path; `*` stands for every entry of a list or an object."""
    found = [event]
    for step in path.split("."):
        if step == "*":
            found = [entry for value in found for entry in _entries(value)]
        else:
            found = [value[step] for value in found if isinstance(value, dict) and step in value]
    return found


def _outcome(agent: Agent, parser: StreamParser, process: ProcessResult, stderr: str) -> tuple[Outcome, str]:
    if process.ended == "missing":
        return Outcome.UNAVAILABLE, process.error
    if process.ended == "interrupted":
        return Outcome.INTERRUPTED, "ralph was stopped"
    if process.ended in ("deadline", "idle"):
        return (
            Outcome.TIMED_OUT,
            f"stopped at its {process.ended} limit after {text.duration(process.seconds)}",
        )
    if not agent.streams:
        if process.exit == 0:
            return Outcome.DONE, ""
        words = stderr or process.tail
        if process.exit in (126, 127):
            return Outcome.UNAVAILABLE, f"exit {process.exit}: {text.last_line(words)}"
        return Outcome.FAILED, f"exit {process.exit}: {text.last_line(words)}"
    if parser.outcome is not None and (parser.ended or parser.outcome != "done"):
        return Outcome(parser.outcome), parser.text("reason") if parser.outcome != "done" else ""
    if not parser.events and (process.exit or 0) > 0:
        hints = [hint for words, hint in agent.row.get("hints", {}).items() if words in stderr]
        return Outcome.UNAVAILABLE, "; ".join([f"exit {process.exit}: {text.last_line(stderr)}", *hints])
    return Outcome.FAILED, f"its output ended without a final event (exit {process.exit})"


def agent_env(extra: Mapping[str, str]) -> dict[str, str]:
    """The environment of agents, checks and hooks: ours, what names the attempt, no prompts."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    return {**env, "GIT_TERMINAL_PROMPT": "0", **extra}


def _event(raw: bytes) -> dict[str, Any] | None:
    if not raw.lstrip().startswith(b"{"):
        return None
    try:
        event = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


def _matches(found: list[Any], wanted: Any) -> bool:
    options = _listed(wanted)
    return any(value == option and type(value) is type(option) for value in found for option in options)


def _is_amount(value: Any) -> bool:
    """Whether it can be counted: NaN would be below every limit for good."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")


def _entries(value: Any) -> list[Any]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _stderr_tail(path: Path) -> str:
    return text.tail((files.read_regular(path) or b"")[-8192:].decode("utf-8", "replace"), 4096)
