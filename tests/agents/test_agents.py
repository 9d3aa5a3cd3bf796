"""Agents: rows to commands, streams to results; recorded runs of the real ones, and
scripted ones."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from _ralph.agents import events
from _ralph.agents.events import StreamParser, pick
from _ralph.agents.registry import (
    NESTED,
    Agent,
    agent_env,
    conclude,
    find_agent,
    load_rows,
    require,
    run_agent,
)
from _ralph.errors import AgentUnavailable, BadInput
from _ralph.model import AgentResult, Outcome, Plan, Tokens
from _ralph.process.process import Control, Ended, ProcessResult
from _ralph.state import prd
from tests.conftest import ROOT, within

BUILTIN = ROOT / "templates" / "agents.json"
RECORDED = ROOT / "tests/recordings/claude"
ROWS = load_rows(BUILTIN, {})
CLAUDE = find_agent("claude", ROWS, "edit")
PROMPT, LOG = Path("/run/prompt.md"), Path("/run/own.log")


def feed(
    lines: list[bytes], process: ProcessResult | None = None, stderr: str = ""
) -> AgentResult:
    """What claude's row makes of these lines, as `run_agent` hands them over."""
    parser = StreamParser(CLAUDE.row["events"])
    stopped = any(parser.line(line) == "stop" for line in lines)
    process = process or ProcessResult(
        exit=-15 if stopped else 0, ended=Ended("stop" if stopped else "itself")
    )
    return conclude(CLAUDE, parser, process, stderr)


def stream(*events: dict[str, Any]) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


CUT = "its output ended without a final event"


@pytest.mark.parametrize("name", ["hang", "sigterm", "429_noheader", "ok"])
@pytest.mark.parametrize("ended", ["deadline", "idle", "interrupted", "missing"])
def test_how_a_process_ended_comes_before_what_it_said(name: str, ended: str) -> None:
    lines = (RECORDED / f"{name}.txt").read_bytes().split(b"\n")
    result = feed(
        lines,
        ProcessResult(exit=-9, ended=Ended(ended), seconds=3600, tail="no such file"),
    )
    timed_out = (
        Outcome.TIMED_OUT,
        f"stopped at its {ended.replace('deadline', 'time')} limit after 1 h 0 min",
    )
    late = (
        (Outcome.DONE, "") if name == "ok" else timed_out
    )  # it had said its result, and did not exit
    assert (result.outcome, result.reason) == {
        "deadline": late,
        "idle": late,
        "interrupted": (Outcome.INTERRUPTED, "ralph was stopped"),
        "missing": (Outcome.UNAVAILABLE, "no such file"),
    }[ended]
    assert result.active == (name in ("sigterm", "429_noheader", "ok"))


# ---------------------------------------------------------------- small streams of our own

INIT = {"type": "system", "subtype": "init", "session_id": "s1", "tools": ["Bash"]}
RETRY = {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": 429}
REJECTED = {
    "type": "rate_limit_event",
    "rate_limit_info": {"status": "rejected", "resetsAt": 1795299183},
}
WARNED = {
    "type": "rate_limit_event",
    "rate_limit_info": {"status": "allowed_warning", "resetsAt": 5},
}
REPLAY = {"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": json.dumps(REJECTED)}]}}  # fmt: skip


USED = {
    "input_tokens": 10,
    "cache_creation_input_tokens": 5,
    "cache_read_input_tokens": 100,
}


def says(words: str, tool: str = "") -> dict[str, Any]:
    content: list[dict[str, Any]] = [{"type": "text", "text": words}]
    if tool:
        content.append({"type": "tool_use", "name": tool, "input": {}})
    message = {
        "id": "m1",
        "role": "assistant",
        "content": content,
        "usage": {**USED, "output_tokens": 1},
    }
    return {"type": "assistant", "message": message}


def ends(words: str = "done", total: int = 1, **fields: Any) -> dict[str, Any]:
    """A final event; `total` results have come, each with 115 tokens in, 7 out and a
    quarter dollar."""
    return {
        "type": "result", "subtype": "success", "is_error": False, "result": words, "session_id": "s1",
        "total_cost_usd": 0.25 * total, "permission_denials": [],
        "usage": {**USED, "output_tokens": 7},
        "modelUsage": {"m": {"inputTokens": 10 * total, "cacheCreationInputTokens": 5 * total,
                             "cacheReadInputTokens": 100 * total, "outputTokens": 7 * total}},
        **fields,
    }  # fmt: skip


def fails(words: str, **fields: Any) -> dict[str, Any]:
    return ends(words, is_error=True, **fields)


@pytest.mark.parametrize(("events", "outcome", "reason"), [
    ([INIT, says("x"), ends()], "done", ""),
    ([INIT, says("HTTP 429 Too Many Requests: rate limit"), ends("I fixed the 429 handling; 401 too")], "done", ""),
    ([INIT, REPLAY, says("x"), ends('{"type":"rate_limit_event"}')], "done", ""),
    ([INIT, RETRY, RETRY, says("x"), ends()], "done", ""),
    ([INIT, WARNED, says("x"), ends()], "done", ""),
    ([INIT, REJECTED, fails("limit", api_error_status=429, terminal_reason="api_error")], "limited", "limit"),
    ([INIT, REJECTED], "limited", "the provider's usage limit is reached"),
    ([INIT, REJECTED, says("a new window"), ends()], "done", ""),
    ([INIT, fails("429 in a text, but no API error")], "failed", "429 in a text, but no API error"),
    ([INIT, fails("x", subtype="error_max_turns", errors=["Reached maximum number of turns (3)"])], "failed", "Reached maximum number of turns (3)"),
    ([INIT, fails("overloaded", terminal_reason="api_error", api_error_status=529)], "limited", "overloaded"),
    ([INIT, fails("bad key", terminal_reason="api_error", api_error_status=401)], "unavailable", "bad key"),
    ([INIT, fails("forbidden", terminal_reason="api_error", api_error_status=403)], "unavailable", "forbidden"),
    ([INIT, fails("no such model", terminal_reason="api_error", api_error_status=404)], "unavailable", "no such model"),
    ([INIT, fails("too long", terminal_reason="api_error", api_error_status=400)], "failed", "too long"),
    ([INIT, RETRY | {"error_status": 401}], "unavailable", "not logged in: the provider answered 401 or 403"),
    ([INIT, RETRY | {"error_status": 403}], "unavailable", "not logged in: the provider answered 401 or 403"),
    # a text is not the number
    ([INIT, RETRY | {"error_status": "401"}, ends()], "done", ""),
    ([INIT, says("x")], "failed", f"{CUT} (exit 0)"),
    ([INIT, says("x"), ends() | {"is_error": None}], "failed", f"{CUT} (exit 0)"),
    ([], "failed", f"{CUT} (exit 0)"),
    ([INIT, ends("first"), says("y"), fails("second")], "failed", "second"),
    ([INIT, fails("first"), says("y"), ends("second")], "done", ""),
])  # fmt: skip
def test_the_outcome_of_a_stream(
    events: list[dict[str, Any]], outcome: str, reason: str
) -> None:
    result = feed(stream(*events))
    assert (result.outcome, result.reason) == (outcome, reason)
    assert result.reset == (
        1795299183 if outcome == "limited" and REJECTED in events else None
    )


@pytest.mark.parametrize("code", [0, 1, 143, -9])
def test_a_success_and_an_error_are_such_whatever_the_exit(code: int) -> None:
    assert feed(stream(INIT, ends()), ProcessResult(exit=code)).outcome is Outcome.DONE
    result = feed(stream(INIT, fails("it broke")), ProcessResult(exit=code))
    assert (result.outcome, result.reason, result.exit) == ("failed", "it broke", code)


def test_two_results_are_paid_once() -> None:
    """A background task that ends later brings a second one: dollars are a running
    total there."""
    result = feed(
        stream(
            INIT, says("x"), ends("started it"), says("y"), ends("it ended", total=2)
        )
    )
    assert (result.text, result.usd, result.session) == ("it ended", 0.5, "s1")
    assert result.tokens == Tokens(input=230, output=14, cached=200)


def test_a_stream_that_was_cut_off_was_paid_for_too() -> None:
    result = feed(
        stream(INIT, says("x"), says("y")),
        ProcessResult(exit=-9, ended=Ended.DEADLINE, seconds=60),
    )
    assert result.tokens.input >= 115


def test_denied_commands_of_the_last_result_are_named() -> None:
    def denied(*commands: str) -> list[dict[str, Any]]:
        return [
            {"tool_name": "Bash", "tool_input": {"command": command}}
            for command in commands
        ]

    first = ends(permission_denials=denied("npm test"))
    last = ends(permission_denials=denied("make\nx", "a\x1b[1mb"))
    assert feed(stream(INIT, first, last)).denials == ["make x", "ab"]
    assert feed(stream(INIT, first, ends())).denials == []


@pytest.mark.parametrize(
    "noise",
    [b"", b"   ", b"plain words", b"{", b'{"type": "result"', b"[1]", b"null", b'"x"', b"\xff\xfe", b"[" * 100_000, b'{"a":' * 100_000,
     b'{"type": ["result"], "is_error": false}', b'{"type": "assistant", "message": "x"}', b'{"type": "assistant", "message": {"content": 5}}',
     b'{"type": "result", "is_error": 0}', b'{"type": "system", "subtype": "api_retry", "error_status": {"a": 1}}'],
    ids=lambda line: repr(line[:40]),
)  # fmt: skip
def test_lines_that_mean_nothing(noise: bytes) -> None:
    lines = [noise, *stream(INIT), noise, *stream(says("x")), noise]
    assert feed(lines).outcome is Outcome.FAILED
    assert feed([*lines, *stream(ends()), noise]) == feed(
        stream(INIT, says("x"), ends())
    )


@pytest.mark.parametrize(("fields", "usd", "tokens"), [
    ({}, 0.25, Tokens(115, 7, 100)),
    ({"total_cost_usd": None}, None, Tokens(115, 7, 100)),
    ({"total_cost_usd": "0.25"}, None, Tokens(115, 7, 100)),
    ({"total_cost_usd": True}, None, Tokens(115, 7, 100)),
    ({"total_cost_usd": 0}, 0.0, Tokens(115, 7, 100)),
    ({"usage": None, "modelUsage": {}}, 0.25, Tokens()),
    ({"usage": {"input_tokens": "many"}, "modelUsage": {}}, 0.25, Tokens()),
    ({"total_cost_usd": float("nan")}, None, Tokens(115, 7, 100)),
    ({"total_cost_usd": float("inf")}, None, Tokens(115, 7, 100)),
    ({"usage": {"input_tokens": float("inf"), "output_tokens": 7}, "modelUsage": {}}, 0.25, Tokens(0, 7, 0)),
])  # fmt: skip
def test_numbers_of_a_result(
    fields: dict[str, Any], usd: float | None, tokens: Tokens
) -> None:
    result = feed(stream(INIT, ends(**fields)))
    assert (result.usd, result.tokens) == (usd, tokens)


@pytest.mark.parametrize(("event", "answer", "active"), [
    ("npm WARN deprecated", "quiet", False),
    (INIT, "quiet", False),
    (RETRY, "quiet", False),
    (RETRY | {"error_status": 401}, "stop", False),
    (RETRY | {"error_status": 529}, "quiet", False),
    (says("x"), None, True),
    (says("", "Bash"), None, True),
    (REPLAY, None, False),
    (ends(), None, True),
])  # fmt: skip
def test_what_counts_as_a_sign_of_life(
    event: object, answer: str | None, active: bool
) -> None:
    parser = StreamParser(CLAUDE.row["events"])
    assert (
        parser.line((event if isinstance(event, str) else json.dumps(event)).encode())
        == answer
    )
    assert parser.active is active


def test_a_listener_hears_words_and_tools() -> None:
    heard: list[tuple[str, str]] = []
    parser = StreamParser(
        CLAUDE.row["events"], listen=lambda kind, words: heard.append((kind, words))
    )
    for line in stream(INIT, says("I begin", "Edit"), says("  "), ends("the end")):
        parser.line(line)
    assert heard == [("say", "I begin"), ("tool", "Edit")]


def fed(
    rules: list[dict[str, Any]], *events: dict[str, Any], **more: Any
) -> StreamParser:
    parser = StreamParser(rules, **more)
    for line in stream(*events):
        parser.line(line)
    return parser


def test_an_agent_that_speaks_in_fragments_is_heard_in_lines() -> None:
    heard: list[tuple[str, str]] = []

    def piece(words: str) -> dict[str, Any]:
        return {"type": "message", "role": "assistant", "content": words, "delta": True}

    tool = {"type": "tool_use", "parameters": {"command": "npm test"}}
    events = [
        piece("I be"),
        piece("gin\nand "),
        piece("go on"),
        tool,
        piece("the e"),
        piece("nd"),
    ]
    parser = fed(
        ROWS["gemini"]["events"],
        *events,
        listen=lambda kind, words: heard.append((kind, words)),
    )
    assert heard == [("say", "I begin"), ("say", "and go on"), ("tool", "npm test")]
    assert parser.fact("text") == "the end"


def test_each_step_counts() -> None:
    def used(tokens: int) -> dict[str, Any]:
        part = {"tokens": {"input": tokens, "cache": {"read": 7}}, "cost": 0.5}
        return {"type": "step_finish", "part": part}

    parser = fed(ROWS["opencode"]["events"], used(10), used(100_000), used(20))
    assert (parser.tokens().input, parser.usd) == (100_051, 1.5)


@pytest.mark.parametrize(("left", "answers"), [
    ({}, [None, None, None]),
    ({"usd_left": 1.2}, [None, None, "stop"]),
    ({"usd_left": 0.4}, ["stop", "stop", "stop"]),
    ({"tokens_left": 25}, [None, None, "stop"]),
    ({"tokens_left": 30}, [None, None, None]),
])  # fmt: skip
def test_an_attempt_stops_where_its_running_totals_pass_what_is_left(
    left: dict[str, Any], answers: list[Any]
) -> None:
    step = {
        "type": "step_finish",
        "part": {"tokens": {"input": 9, "output": 1}, "cost": 0.5},
    }
    parser = StreamParser(ROWS["opencode"]["events"], **left)
    assert [parser.line(line) for line in stream(step, step, step)] == answers
    result = conclude(
        find_agent("opencode", ROWS, "full"),
        parser,
        ProcessResult(exit=-15, ended=Ended.STOPPED),
        "",
    )
    if "stop" in answers:
        said = f"it used up what was left of the limit in {'dollars' if 'usd_left' in left else 'tokens'}"
        assert (result.outcome, result.reason) == (Outcome.INTERRUPTED, said)


ASKED = '{"event": "message_send_starting", "properties": {}}'
SENT = '{"event": "message_send", "properties": {"prompt_tokens": 100, "completion_tokens": 5, "total_cost": 0.01}}'
SENT_TWICE = SENT.replace("0.01", "0.02")


@pytest.mark.parametrize(("printed", "log", "outcome", "usd"), [
    ([], [ASKED, SENT], "done", 0.01),
    ([], [ASKED, SENT, ASKED, SENT_TWICE], "done", 0.02),
    # retried, or only said
    (["litellm.RateLimitError: slow down"], [ASKED, SENT], "done", 0.01),
    (["litellm.RateLimitError: slow down"], [ASKED, SENT, ASKED], "limited", 0.01),
    (["litellm.RateLimitError: x", "litellm.AuthenticationError: y"], [ASKED], "unavailable", None),
    (["I would handle litellm.RateLimitError here"], [ASKED], "failed", None),
    (["litellm.ContextWindowExceededError: x"], [ASKED], "failed", None),
    (["litellm.ServiceUnavailableError: x"], [ASKED], "limited", None),
    (["litellm.NotFoundError: no such model"], [ASKED], "unavailable", None),
    ([], [ASKED], "failed", None),
    (["fine"], [], "failed", None),
    (["fine"], ["{", "[]", "null"], "failed", None),
])  # fmt: skip
def test_aider_is_judged_by_its_log(
    tmp_path: Path, printed: list[str], log: list[str], outcome: str, usd: float | None
) -> None:
    aider = program(tmp_path / "aider", f"""
        import sys
        print("Aider v0.86.2")
        print({chr(10).join(printed)!r})
        open(sys.argv[sys.argv.index("--analytics-log") + 1], "a").write({chr(10).join(log)!r} + "\\n")
        """)  # fmt: skip
    result = run(tmp_path, plain(str(aider)))
    assert (result.outcome, result.usd) == (outcome, usd)
    assert result.tokens.input == 100 * sum(
        entry != ASKED for entry in log if "message_send" in entry
    )


@pytest.mark.parametrize(("path", "found"), [
    ("a", [{"b": [{"c": 1}, {"c": 2}, {"d": 3}]}]),
    ("a.b.*.c", [1, 2]),
    ("a.b", [[{"c": 1}, {"c": 2}, {"d": 3}]]),
    ("a.x", []),
    ("a.b.c", []),
    ("x.y.z", []),
    ("n", [None]),
])  # fmt: skip
def test_pick(path: str, found: list[Any]) -> None:
    assert pick({"a": {"b": [{"c": 1}, {"c": 2}, {"d": 3}]}, "n": None}, path) == found


# ---------------------------------------------------------------- commands

SANDBOX = ROWS["claude"]["permissions"]["edit"][-1]
STREAM = ["-p", "--output-format", "stream-json", "--verbose"]
AIDER = ["--message-file", "/run/prompt.md", "--yes-always", "--no-auto-commits", "--no-pretty", "--no-stream",
         "--no-fancy-input", "--no-check-update", "--no-show-release-notes", "--no-analytics", "--analytics-log", "/run/own.log",
         "--no-show-model-warnings", "--no-gitignore"]  # fmt: skip


@pytest.mark.parametrize(("command", "permissions", "left", "wanted"), [
    ("claude", "full", None, ["claude", *STREAM, "--dangerously-skip-permissions"]),
    ("claude", "edit", None, ["claude", *STREAM, "--permission-mode", "acceptEdits", "--settings", SANDBOX]),
    ("claude", "read", None, ["claude", *STREAM, "--permission-mode", "plan"]),
    ("claude --model haiku", "full", 1.5, ["claude", *STREAM, "--dangerously-skip-permissions", "--max-budget-usd", "1.50", "--model", "haiku"]),
    ("claude --append-system-prompt 'two words'", "read", 0.01, ["claude", *STREAM, "--permission-mode", "plan", "--max-budget-usd", "0.01", "--append-system-prompt", "two words"]),
    ("/opt/bin/claude", "full", None, ["/opt/bin/claude", *STREAM, "--dangerously-skip-permissions"]),
    ("aider", "edit", 5.0, ["aider", *AIDER]),
    ("aider --model sonnet", "full", None, ["aider", *AIDER, "--model", "sonnet"]),
    ("aider", "read", None, ["aider", *AIDER, "--dry-run"]),
    ("my-tool --flag 'a b' {args} {permissions}", "edit", 1.0, ["my-tool", "--flag", "a b", "{args}", "{permissions}"]),
    ("sh -c 'cat; exit 3'", "full", None, ["sh", "-c", "cat; exit 3"]),
])  # fmt: skip
def test_the_command_that_is_run(
    command: str, permissions: str, left: float | None, wanted: list[str]
) -> None:
    assert find_agent(command, ROWS, permissions).argv(PROMPT, LOG, left) == wanted


def test_claude_s_own_sandbox_is_on_and_cannot_be_left() -> None:
    assert json.loads(SANDBOX) == {
        "sandbox": {
            "enabled": True, "autoAllowBashIfSandboxed": True, "allowUnsandboxedCommands": False,
            "failIfUnavailable": True,
        }
    }  # fmt: skip


@pytest.mark.parametrize(("command", "name", "streams", "prompt"), [
    ("claude --model x", "claude", True, "stdin"),
    ("aider", "aider", False, "file"),
    ("my-claude", "plain", False, "stdin"),
    ("/", "plain", False, "stdin"),
    ("sh -c claude", "plain", False, "stdin"),
    ("env A=1 B= /opt/claude --model x", "claude", True, "stdin"),
    ("env claude", "plain", False, "stdin"),
    ("env A=1", "plain", False, "stdin"),
    ("env -u A claude", "plain", False, "stdin"),
    ("env A=1 my-claude", "plain", False, "stdin"),
])  # fmt: skip
def test_the_first_word_decides(
    command: str, name: str, streams: bool, prompt: str
) -> None:
    agent = find_agent(command, ROWS, "edit")
    assert (agent.name, agent.streams, agent.row["prompt"]) == (name, streams, prompt)


@pytest.mark.parametrize(
    ("command", "said"),
    [("claude 'x", "cannot be split"), ("", "is empty"), ("  ", "is empty")],
)
def test_a_command_that_is_none_is_refused(command: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        find_agent(command, ROWS, "edit")


OWN: dict[str, Any] = {
    "argv": [
        "mine",
        "go",
        "{permissions}",
        "{budget}",
        "--file={prompt_file}",
        "{prompt_file}",
        "{args}",
    ],
    "permissions": {"edit": ["--careful"], "full": []},
    "budget": ["--dollars={usd}"],
}


def test_a_row_of_one_s_own_is_data() -> None:
    rows = load_rows(BUILTIN, {"mine": OWN})
    agent, files = (
        find_agent("mine -x", rows, "edit"),
        ["--file={prompt_file}", str(PROMPT)],
    )
    assert agent.argv(PROMPT, LOG, 2) == [
        "mine",
        "go",
        "--careful",
        "--dollars=2.00",
        *files,
        "-x",
    ]
    assert find_agent("mine", rows, "full").argv(PROMPT, LOG) == ["mine", "go", *files]
    assert (agent.name, agent.streams, agent.row["prompt"]) == ("mine", False, "stdin")
    assert find_agent("claude", rows, "full").argv(PROMPT, LOG)[1:5] == STREAM


def test_a_row_may_be_called_otherwise_than_its_program() -> None:
    rows = load_rows(
        BUILTIN, {"haiku": {"argv": ["claude", "--model", "haiku", "{args}"]}}
    )
    assert find_agent("haiku -x", rows, "edit").argv(PROMPT, LOG) == [
        "claude",
        "--model",
        "haiku",
        "-x",
    ]
    agent = find_agent("haiku -x", rows, "edit")
    assert (agent.program, agent.command) == ("claude", "haiku -x")
    assert find_agent(agent.command, rows, "edit") == agent, (
        "its command is in the records"
    )


# The rows of a plan, a command, what is then run, and the variables that it gets where
# KEY is k.
LIKE = {
    "glm": {
        "like": "claude",
        "env": {"URL": "http://x", "TOKEN": "$KEY"},
        "argv+": ["--model", "glm"],
    },
    "glm-max": {
        "like": "glm",
        "env": {"URL": "http://y"},
        "argv+": ["--effort", "max"],
    },
    "coder": {
        "like": "codex",
        "argv+": ["-m", "small"],
        "permissions": {"edit": ["--safe"]},
    },
    "claude": {"like": "claude", "argv+": ["--model", "opus"]},
    "cheap": {"like": "aider", "env": {"X": "1"}},
    "mine": {"like": "claude", "argv": ["my-claude", "{args}", "--end"]},
}
OPUS = ["claude", *STREAM, "--dangerously-skip-permissions", "--model", "opus"]


@pytest.mark.parametrize(("command", "argv", "env"), [
    ("glm", [*OPUS, "--model", "glm"], {"URL": "http://x", "TOKEN": "k"}),
    ("glm --x", [*OPUS, "--model", "glm", "--x"], {"URL": "http://x", "TOKEN": "k"}),
    ("/opt/glm", ["/opt/glm", *OPUS[1:], "--model", "glm"], {"URL": "http://x", "TOKEN": "k"}),
    ("glm-max", [*OPUS, "--model", "glm", "--effort", "max"], {"URL": "http://y", "TOKEN": "k"}),
    ("env TOKEN=t-$KEY glm", [*OPUS, "--model", "glm"], {"URL": "http://x", "TOKEN": "t-k"}),
    ("claude", OPUS, {}),
    ("env 'A=b c' claude", OPUS, {"A": "b c"}),
    ("cheap", ["aider", *AIDER], {"COLUMNS": "1000000", "X": "1"}),
    ("mine -x", ["my-claude", "-x", "--end"], {}),
])  # fmt: skip
def test_a_row_that_is_like_another(
    tmp_path: Path, command: str, argv: list[str], env: dict[str, str]
) -> None:
    plan = a_plan(tmp_path, LIKE)
    prd.validate(plan)
    agent = find_agent(command, load_rows(BUILTIN, plan.settings["agents"]), "full")
    assert (agent.argv(PROMPT, LOG), agent.variables({"KEY": "k"})) == (argv, env)
    assert (
        agent.row["events"]
        == ROWS["aider" if command == "cheap" else "claude"]["events"]
    )
    assert shlex.split(agent.command) == shlex.split(command) and agent.streams == (
        command != "cheap"
    )


def test_what_a_row_says_otherwise_is_said_once() -> None:
    coder = find_agent("coder", load_rows(BUILTIN, LIKE), "edit")
    assert coder.argv(PROMPT, LOG)[3:] == [
        "--skip-git-repo-check",
        "--safe",
        "-m",
        "small",
        "-",
    ]


@pytest.mark.parametrize(("rows", "said"), [
    ({"a": {"like": "a"}}, "agents.a: `like` leads to itself: a -> a; "),
    ({"a": {"like": "b"}, "b": {"like": "a"}}, "agents.a: `like` leads to itself: a -> b -> a; "),
    ({"a": {"like": "clode"}}, "agents.a: `like` names no known agent: a -> clode; known are claude, codex, "),
    ({"a": {"like": "b"}, "b": {"like": "c"}}, "agents.a: `like` names no known agent: a -> b -> c; "),
])  # fmt: skip
def test_a_row_that_is_like_itself_or_like_none_is_refused(
    tmp_path: Path, rows: dict[str, Any], said: str
) -> None:
    plan = a_plan(tmp_path, rows)
    prd.validate(plan)
    with pytest.raises(BadInput, match=f"^{re.escape(said)}[^.\\n]*$"):
        load_rows(BUILTIN, plan.settings["agents"])


@pytest.mark.parametrize(
    "row",
    ["claude", [], {}, {"argv": []}, {"argv": "mine"}, {"argv": None},
         {"argv": [5]}, {"argv": ["x"], "permissions": []}, {"argv": ["x"], "permissions": {"edit": "-y"}},
         {"argv": ["x"], "events": "all"}, {"argv": ["x"], "events": [{"final": "done"}]},
         {"argv": ["x"], "events": [{"when": {}, "final": "great"}]}, {"argv": ["x"], "prompt": "argument"},
         {"argv": ["x"], "events": [{"when": {}, "outcom": "done"}]}, {"argv": ["x"], "budget": "--usd {usd}"},
         {"argv": ["x"], "events": [{"when": {"a": {"match": "("}}}]}, {"argv": ["x"], "output": "xml"}],
    ids=json.dumps,
)  # fmt: skip
def test_a_row_that_is_none_is_refused(tmp_path: Path, row: object) -> None:
    with pytest.raises(BadInput, match=r"agents\.mine"):
        prd.validate(a_plan(tmp_path, {"mine": row}))


def a_plan(folder: Path, rows: dict[str, Any]) -> Plan:
    path = folder / "prd.json"
    path.write_text(
        json.dumps(
            {
                "agents": rows,
                "userStories": [{"id": "1", "title": "t", "passes": False}],
            }
        )
    )
    return prd.load(path)


def test_the_rows_that_come_along_are_whole(tmp_path: Path) -> None:
    rows = {name: row for name, row in ROWS.items() if name}
    prd.validate(a_plan(tmp_path, rows))
    assert list(rows) == ["claude", "codex", "aider", "gemini", "opencode", "pi"]
    for name, row in rows.items():
        assert row["argv"][0] == name
        assert {"read", "full"} <= set(row["permissions"]) <= {"read", "edit", "full"}
        assert row["tested"]


@pytest.mark.parametrize("name", ["opencode", "pi"])
def test_an_agent_without_a_sandbox_is_refused_with_two_ways_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program(tmp_path / name, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(
        AgentUnavailable,
        match=r"no sandbox of its own.*--wrap.*bwrap.sh.*--full-permissions",
    ):
        require(find_agent(name, ROWS, "edit"))
    require(find_agent(name, ROWS, "full"))


@pytest.mark.parametrize(("tools", "permissions", "said"), [
    (["claude", "bwrap", "socat"], "edit", None),
    (["claude"], "full", None),
    (["claude"], "edit", "bwrap and socat"),
    (["claude", "socat"], "edit", "its own sandbox needs bwrap"),
    ([], "full", "'claude' is not on PATH"),
])  # fmt: skip
def test_an_agent_that_could_not_be_held_to_its_permissions_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tools: list[str],
    permissions: str,
    said: str | None,
) -> None:
    if permissions == "edit" and sys.platform != "linux":
        pytest.skip("only Linux needs other programs for it")
    for tool in tools:
        program(tmp_path / tool, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    agent = find_agent("claude", ROWS, permissions)
    if said is None:
        require(agent)
    else:
        with pytest.raises(AgentUnavailable) as refused:
            require(agent)
        assert said in str(refused.value)
        assert permissions == "full" or "--full-permissions" in str(refused.value)


# ---------------------------------------------------------------- real processes


def program(path: Path, script: str) -> Path:
    """A program at `path`, in Python."""
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(script)}")
    path.chmod(0o755)
    return path


def run(
    folder: Path, agent: Agent, prompt: str = "the prompt", **more: Any
) -> AgentResult:
    given: dict[str, Any] = {
        "log": lambda ending: folder / f"0001{ending}", "cwd": folder, "env": dict(os.environ),
        "timeout": 20.0, "idle": 10.0, "control": Control(),
    }  # fmt: skip
    return run_agent(agent, prompt, **{**given, **more})


def listener(heard: list[tuple[str, str]]) -> Callable[[StreamParser], None]:
    def watch(parser: StreamParser) -> None:
        parser.listen = lambda kind, words: heard.append((kind, words))

    return watch


def plain(command: str) -> Agent:
    return find_agent(command, ROWS, "edit")


@pytest.mark.parametrize(("command", "outcome", "reason"), [
    ("sh -c 'exit 0'", "done", ""),
    ("sh -c 'echo rate limit 429 >&2; echo done'", "done", ""),
    ("sh -c 'exit 1'", "failed", "exit 1: no output"),
    ("sh -c 'echo one; echo two; exit 3'", "failed", "exit 3: two"),
    ("sh -c 'echo one; echo bad flag >&2; exit 2'", "failed", "exit 2: bad flag"),
    ("sh -c 'exit 127'", "unavailable", "exit 127: no output"),
    ("sh -c 'exit 126'", "unavailable", "exit 126: no output"),
    ("sh -c 'kill -9 $$'", "failed", "exit -9: no output"),
    ("/no/such-program --x", "unavailable", "/no/such-program"),
    ("/etc/passwd", "unavailable", "/etc/passwd"),
    ("sh -c 'printf \"\\033[31mred\\033[0m\" >&2; exit 1'", "failed", "exit 1: red"),
])  # fmt: skip
def test_a_plain_command(
    tmp_path: Path, command: str, outcome: str, reason: str
) -> None:
    result = run(tmp_path, plain(command))
    assert result.outcome == outcome
    assert (
        reason in result.reason if outcome == "unavailable" else result.reason == reason
    )
    assert (result.usd, result.tokens, result.session) == (None, Tokens(), None)


def test_a_plain_command_gets_the_prompt_on_stdin_and_its_words_are_heard(
    tmp_path: Path,
) -> None:
    heard: list[tuple[str, str]] = []
    prompt = "é \ud800\n" * 50_000
    result = run(tmp_path, plain("cat"), prompt, watch=listener(heard))
    sent = prompt.encode("utf-8", "replace")
    assert (tmp_path / "0001.out").read_bytes() == sent
    assert (tmp_path / "0001.prompt.md").read_bytes() == sent
    assert result.text.endswith("é ?\n")
    assert (result.active, heard[0]) == (True, ("say", "é ?"))


@pytest.mark.parametrize(
    "trap",
    [
        "mkfifo 0001.err",
        "mkdir 0001.err",
        "ln -s nowhere 0001.err",
        "ln -s /dev/zero 0001.err",
    ],
)
def test_a_trap_in_the_place_of_its_transcript_is_not_read(
    tmp_path: Path, trap: str
) -> None:
    script = tmp_path / "agent"
    script.write_text(f"rm 0001.err 0001.out; {trap}; exit 1\n")
    with within(1.5):
        assert run(tmp_path, plain(f"sh {script}")).reason == "exit 1: no output"


def test_its_program_is_the_person_s_and_not_one_that_was_left_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for place in ("mine", "left"):
        (tmp_path / place).mkdir()
        program(tmp_path / place / "some-agent", f"print({place!r})")
    monkeypatch.setenv("PATH", f"{tmp_path / 'mine'}:{os.environ['PATH']}")
    env = {**os.environ, "PATH": f"{tmp_path / 'left'}:{os.environ['PATH']}"}
    assert run(tmp_path, plain("some-agent"), env=env).text == "mine\n"


def test_a_silent_command_is_not_active(tmp_path: Path) -> None:
    assert not run(tmp_path, plain("sh -c 'sleep 0.05; echo >&2'")).active


def test_an_agent_that_takes_a_file_gets_no_stdin(tmp_path: Path) -> None:
    aider = program(
        tmp_path / "aider",
        "import sys; print(sys.argv[2], repr(sys.stdin.read()), open(sys.argv[2]).read())",
    )
    result = run(tmp_path, plain(str(aider)))
    assert result.text == f"{tmp_path / '.git/ralph/prompt.md'} '' the prompt\n"


FAKE = """
    import json, os, sys, time
    prompt = sys.stdin.read()
    print(json.dumps({"type": "system", "subtype": "init", "session_id": "s9"}), flush=True)
    print(json.dumps({"type": "assistant", "message": {"content": [{"type": "text", "text": prompt}]}}), flush=True)
"""
RESULT = """
    print(json.dumps({"type": "result", "is_error": False, "result": " ".join(sys.argv[1:]), "session_id": "s9",
                      "total_cost_usd": 0.5, "usage": {"input_tokens": 3, "output_tokens": 2}}))
"""


def test_a_stream_from_a_real_process(tmp_path: Path) -> None:
    claude = program(
        tmp_path / "claude", textwrap.dedent(FAKE) + textwrap.dedent(RESULT)
    )
    agent = find_agent(f"{claude} --model haiku", ROWS, "full")
    heard: list[tuple[str, str]] = []
    result = run(tmp_path, agent, usd_left=2.0, watch=listener(heard))
    assert (result.outcome, result.exit, result.session, result.usd) == (
        Outcome.DONE,
        0,
        "s9",
        0.5,
    )
    assert result.text.endswith(
        "--dangerously-skip-permissions --max-budget-usd 2.00 --model haiku"
    )
    assert (result.tokens, result.active, heard) == (
        Tokens(3, 2, 0),
        True,
        [("say", "the prompt")],
    )


@pytest.mark.parametrize(("script", "outcome", "reason"), [
    ("time.sleep(60)", "timed-out", "stopped at its idle limit"),
    ("print('noise', flush=True)\n" * 3 + "time.sleep(60)", "timed-out", "stopped at its idle limit"),
    ("while True: print(json.dumps({'type': 'system', 'subtype': 'api_retry', 'error_status': 529}), flush=True); time.sleep(0.05)",
     "timed-out", "stopped at its idle limit"),
    ("while True: print(json.dumps({'type': 'x'}), flush=True); time.sleep(0.05)", "timed-out", "stopped at its time limit"),
    ("print(json.dumps({'type': 'system', 'subtype': 'api_retry', 'error_status': 401}), flush=True); time.sleep(60)",
     "unavailable", "not logged in"),
    ("sys.exit(1)", "failed", CUT),
    ("os.kill(os.getpid(), 9)", "failed", f"{CUT} (exit -9)"),
])  # fmt: skip
def test_a_stream_that_ends_otherwise(
    tmp_path: Path, script: str, outcome: str, reason: str
) -> None:
    claude = program(tmp_path / "claude", textwrap.dedent(FAKE) + script)
    result = run(tmp_path, find_agent(str(claude), ROWS, "full"), idle=0.4, timeout=1.0)
    assert result.outcome == outcome
    assert result.reason.startswith(reason)


TASK = {"type": "system", "task_id": "b1"}


@pytest.mark.parametrize(("events", "seconds"), [
    ([], 1200),
    ([INIT, says("x")], 1200),
    ([INIT, says("x"), ends()], 60),
    ([INIT, says("x"), fails("no")], 60),
    # it may wait for its provider
    ([INIT, REJECTED, fails("x", terminal_reason="api_error")], 1200),
    ([INIT, TASK | {"subtype": "task_started"}, ends()], 660),
    ([INIT, TASK | {"subtype": "task_started"}, TASK | {"subtype": "task_notification"}, ends()], 60),
    ([INIT, ends("first"), INIT, says("y")], 1200),
])  # fmt: skip
def test_how_long_an_agent_may_be_silent(
    events: list[dict[str, Any]], seconds: float
) -> None:
    parser = fed(CLAUDE.row["events"], *events)
    assert parser.silence(1200) == seconds
    assert parser.silence(5) == 5


def test_the_silence_that_a_recorded_background_task_is_given() -> None:
    parser = StreamParser(CLAUDE.row["events"])
    allowed = []
    for line in (RECORDED / "bg_tool.txt").read_bytes().splitlines():
        parser.line(line)
        allowed.append(parser.silence(1200))
    first = allowed.index(
        660
    )  # the first result, while its task runs; the last is the second result
    assert allowed == [1200] * first + [660, 660, 60, 60, 1200, 1200, 60]


@pytest.mark.parametrize(
    ("word", "timeout"), [("LAST_WORD", 60.0), ("BACKGROUND", 60.0), ("", 1.5)]
)
def test_an_agent_that_said_its_result_and_does_not_exit_is_ended_and_has_not_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, timeout: float
) -> None:
    if word:
        monkeypatch.setattr(events, word, 0.4)
    task = {**TASK, "subtype": "task_started"} if word == "BACKGROUND" else {}
    hangs = f"{textwrap.dedent(FAKE)}print(json.dumps({task})){textwrap.dedent(RESULT)}"
    claude = program(tmp_path / "claude", f"{hangs}sys.stdout.flush(); time.sleep(600)")
    result = run(
        tmp_path, find_agent(str(claude), ROWS, "full"), idle=60.0, timeout=timeout
    )
    assert (result.outcome, result.usd) == (
        Outcome.DONE,
        0.5,
    ) and 0.4 < result.seconds < 20
    assert not result.at_least


@pytest.mark.parametrize(("script", "outcome", "reason"), [
    ("sys.exit('--dangerously-skip-permissions cannot be used with root')", "unavailable", "IS_SANDBOX=1"),
    ("sys.exit('unknown option --nope')", "unavailable", "exit 1: unknown option --nope"),
    ("sys.exit(0)", "failed", CUT),
    ("os.kill(os.getpid(), 9)", "failed", "exit -9"),
])  # fmt: skip
def test_a_stream_that_never_began(
    tmp_path: Path, script: str, outcome: str, reason: str
) -> None:
    claude = program(tmp_path / "claude", f"import os, sys\n{script}")
    result = run(tmp_path, find_agent(str(claude), ROWS, "full"))
    assert result.outcome == outcome
    assert reason in result.reason


def test_a_row_of_one_s_own_is_parsed_without_code(tmp_path: Path) -> None:
    mine = program(tmp_path / "mine", """
        import sys, json
        print(json.dumps({"kind": "note", "body": {"words": ["a", "b"]}}))
        print(json.dumps({"kind": "end", "ok": sys.argv[1] == "good", "why": "as asked", "cost": 0.125,
                          "n": [{"in": 5}, {"in": 6}], "until": 1795299183}))
        """)  # fmt: skip
    row = {
        "argv": ["mine", "{args}"],
        "events": [
            {"when": {"kind": "note"}, "say": "body.words.*"},
            {"when": {"kind": "end", "ok": True}, "final": "done"},
            {"when": {"kind": "end", "ok": False}, "final": "limited"},
            {"when": {"kind": "end"}, "set": {"text": "why", "reason": "why", "reset": "until"}, "add": {"usd": ["cost"], "input": ["n.*.in"]}},
        ],
    }  # fmt: skip
    rows = load_rows(BUILTIN, {"mine": row})
    good, bad = (
        run(tmp_path, find_agent(f"{mine} {word}", rows, "edit"))
        for word in ("good", "bad")
    )
    assert (good.outcome, good.text, good.reset) == ("done", "as asked", None)
    assert (good.usd, good.tokens.input) == (0.125, 11)
    assert (bad.outcome, bad.reason, bad.reset, bad.active) == (
        "limited",
        "as asked",
        1795299183,
        True,
    )


def test_nothing_tells_an_agent_that_it_is_nested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_RUN_ID", "r1")
    env = agent_env(tmp_path) | dict.fromkeys(NESTED, "1")
    result = run(tmp_path, plain("env"), env=env)
    found = dict(line.split("=", 1) for line in result.text.splitlines() if "=" in line)
    assert not set(NESTED) & set(found)
    assert (found["RALPH_RUN_ID"], found["GIT_TERMINAL_PROMPT"]) == ("r1", "0")


@pytest.mark.parametrize("here", [True, False])
def test_what_a_row_sets_reaches_the_agent_behind_a_prefix_too(
    tmp_path: Path, here: bool
) -> None:
    program(
        tmp_path / "mine", "import os\nprint(os.environ.get('A'), os.environ.get('B'))"
    )
    rows = {"mine": {"argv": [str(tmp_path / "mine")], "env": {"A": "$KEY"}}}
    agent = find_agent("env B=2 mine", rows, "full")
    path = dict(os.environ) | {"KEY": "k"}
    apart = (
        (lambda argv, _: [*argv]) if here else (lambda argv, _: ["env", "-i", *argv])
    )
    assert run(tmp_path, agent, env=path, here=here, wrap=apart).text.strip() == "k 2"


def test_the_environment_has_nothing_of_git_s(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_DIR", "/elsewhere")
    monkeypatch.setenv("GIT_INDEX_FILE", "/elsewhere")
    assert [key for key in agent_env(tmp_path) if key.startswith("GIT_")] == [
        "GIT_TERMINAL_PROMPT"
    ]


def test_text_in_fragments_takes_linear_time() -> None:
    parser = StreamParser(ROWS["gemini"]["events"])
    line = json.dumps(
        {
            "type": "message",
            "role": "assistant",
            "delta": True,
            "content": "word " * 2000,
        }
    )
    with within(20):
        for _ in range(6000):
            parser.line(line.encode())
    assert (
        parser.fact("text").endswith("word word ")
        and len(parser.fact("text")) > 100_000
    )
