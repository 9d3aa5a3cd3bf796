"""An agent process, run to its end, and what came of it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from _ralph import files, text
from _ralph.agents.cli import Agent
from _ralph.agents.stream import Stream, replay
from _ralph.model import NO_LIMIT, AgentResult, Outcome
from _ralph.process.prefix import Wrap
from _ralph.process.process import (
    Command,
    Control,
    Ended,
    ProcessResult,
    run_process,
)

# With these, Claude Code thinks that it runs inside itself, and refuses to start.
NESTED = (
    "CLAUDECODE",
    "CLAUDE_CODE_ENTRYPOINT",
    "CLAUDE_CODE_SSE_PORT",
    "CLAUDE_CODE_SESSION_ID",
)
_INSIDE = ".git/ralph"
_LARGEST_LOG = 4 << 20
_LARGEST_STDERR = 16 << 20


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What one agent process gets; times in seconds, money in dollars.

    `log(suffix)` is a new path for a transcript (`.out`, `.err`) or a copy of the
    prompt, for people. `dearest` is what an attempt with this agent cost at most so
    far. `wrap` puts the command behind a prefix, and `here` says that its program is on
    this side. `trusted` are the files of its settings that it
    is told to trust.
    """

    prompt: str
    cwd: Path
    env: Mapping[str, str]
    log: Callable[[str], Path]
    timeout: float
    idle: float
    usd_left: float = NO_LIMIT
    tokens_left: float = NO_LIMIT
    dearest: float = 0.0
    trusted: Sequence[Path] = ()
    wrap: Wrap = lambda argv, _: [*argv]
    here: bool = True


def run_agent(
    agent: Agent,
    given: Assignment,
    control: Control,
    watch: Callable[[Stream], None] = lambda _: None,
) -> AgentResult:
    """Run one agent process to its end. `watch` gets its stream before the first line.
    The outcome comes from the agent's final event or, for a plain command, its exit
    status, never from words that it prints. Its own files are in `.git/ralph`."""
    inside = given.cwd / _INSIDE
    inside.mkdir(parents=True, exist_ok=True)
    prompt_file, own_log = inside / "prompt.md", inside / "agent.log"
    prompt = given.prompt.encode("utf-8", "replace")
    for path in (prompt_file, given.log(".prompt.md")):
        path.write_bytes(prompt)

    stream = Stream(agent.cli, given.usd_left, given.tokens_left)
    watch(stream)
    program, *rest = agent.argv(prompt_file, own_log, given.usd_left, given.trusted)
    own = agent.variables(given.env)
    env = {**given.env, **own}
    for name in NESTED:
        env.pop(name, None)
    if given.here:
        command = [found(program)]
    else:  # what it is given must be told to the other side
        command = ["env", *(f"{name}={value}" for name, value in own.items()), program]

    err = given.log(".err")
    idle = given.idle if agent.streams else NO_LIMIT
    process = run_process(
        Command(
            given.wrap([*command, *rest], env),
            cwd=given.cwd,
            env=env,
            timeout=given.timeout,
            stdin=b"" if agent.cli.prompt == "file" else prompt,
            idle=lambda: stream.silence(idle),
            out=given.log(".out"),
            err=err,
        ),
        control,
        stream.line,
    )
    if "{log}" in agent.cli.argv:  # else, an attempt could make up such a file
        log = files.read_regular(own_log, _LARGEST_LOG) or b""
        for line in log.splitlines():
            stream.line(line, printed=False)
    said = files.read_regular(err, _LARGEST_STDERR) or b""
    stderr = text.redact(said.decode("utf-8", "replace"))
    return conclude(agent, stream, process, stderr, given.dearest)


def found(program: str) -> str:
    """The path of an agent's program, as the person's PATH finds it: that of a place
    leads to programs that an agent can have left there."""
    on_path = shutil.which(program)
    return os.path.abspath(on_path) if on_path else program


def cut_off(agent: Agent, transcript: Path, dearest: float, reason: str) -> AgentResult:
    """The result of an agent that ended together with its loop or all of ralph, because
    of `reason`; `dearest` as for `conclude`."""
    stream = replay(agent.cli, transcript)
    if stream is None:
        return AgentResult(Outcome.INTERRUPTED, reason)
    ended = ProcessResult(ended=Ended.INTERRUPTED)
    result = conclude(agent, stream, ended, "", dearest)
    result.reason = reason
    return result


def conclude(
    agent: Agent,
    stream: Stream,
    process: ProcessResult,
    stderr: str,
    dearest: float = 0.0,
) -> AgentResult:
    """The result of an agent process, from its events and from how it ended. One that
    was cut off costs at least as much as the `dearest` attempt so far with this agent,
    in dollars."""
    turn = stream.turn
    outcome, reason = _outcome(agent, stream, process, stderr)
    unit = stream.unreported(outcome)
    no_price = ""
    if unit:
        cannot = f"the limit in {unit} cannot be enforced"
        no_price = f"{agent.command} reported no {unit}, so {cannot}"
    usd = turn.usd
    at_least = stream.was_cut_off(outcome)
    if at_least and dearest > (usd or 0.0):
        usd = dearest
    is_limited = outcome is Outcome.LIMITED or turn.overage
    return AgentResult(
        outcome,
        _line(reason, 300),
        text=text.redact(turn.text if agent.streams else process.tail),
        session=text.one_line(turn.session, 100) or None,
        denials=[_line(denied, 200) for denied in turn.denials],
        never=_line(turn.never, 500),
        active=turn.active,
        usd=usd,
        tokens=turn.used,
        at_least=at_least,
        no_price=no_price,
        overage=turn.overage,
        reset=stream.reset if is_limited else 0.0,
        seconds=process.seconds,
        survivors=process.survivors,
    )


def _line(words: str, width: int) -> str:
    """Words of strangers on one line, without secrets."""
    return text.one_line(text.redact(words), width)


def _outcome(
    agent: Agent, stream: Stream, process: ProcessResult, stderr: str
) -> tuple[Outcome, str]:
    """How it ended, and why if it did not end well."""
    turn = stream.turn
    if process.ended is Ended.MISSING:
        return Outcome.UNAVAILABLE, process.tail
    if process.ended is Ended.INTERRUPTED:
        return Outcome.INTERRUPTED, "ralph was stopped"
    if process.ended in (Ended.DEADLINE, Ended.IDLE) and not stream.has_ended:
        limit = "time" if process.ended is Ended.DEADLINE else "idle"
        after = f"its {limit} limit after {text.duration(process.seconds)}"
        parts = [f"stopped at {after}", stream.unanswered]
        return Outcome.TIMED_OUT, "; ".join(filter(None, parts))
    if stream.overspent and turn.final is not Outcome.DONE:
        left = f"what was left of the limit in {stream.overspent}"
        return Outcome.INTERRUPTED, f"it used up {left}"
    if agent.cli.read is None:  # a command that prints no events
        return _by_exit(process, stderr)
    outcome = turn.final or turn.presumed
    if outcome is not None:
        return outcome, "" if outcome is Outcome.DONE else turn.reason
    return _by_stderr(agent, stream, process, stderr)


def _by_exit(process: ProcessResult, stderr: str) -> tuple[Outcome, str]:
    """How a plain command ended."""
    if process.exit == 0:
        return Outcome.DONE, ""
    said = text.last_line(stderr or text.redact(process.tail))
    cannot_run = process.exit in (126, 127)
    outcome = Outcome.UNAVAILABLE if cannot_run else Outcome.FAILED
    return outcome, f"exit {process.exit}: {said}"


def _by_stderr(
    agent: Agent, stream: Stream, process: ProcessResult, stderr: str
) -> tuple[Outcome, str]:
    """How an agent ended that said no last word: it could not begin, or died."""
    ended = f"exit {process.exit}"
    if (process.exit or 0) > 0:
        for words, hint in agent.cli.hints.items():
            for line in stderr.splitlines():
                if words in line:
                    return Outcome.UNAVAILABLE, f"{ended}: {line}; {hint}"
        if not stream.events:
            return Outcome.UNAVAILABLE, f"{ended}: {text.last_line(stderr)}"
    return Outcome.FAILED, f"its output ended without a final event ({ended})"
