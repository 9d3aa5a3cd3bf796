"""Agents: facts to commands, streams to results, and scripted processes."""

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

from _ralph.agents import stream as module
from _ralph.agents.cli import Agent
from _ralph.agents.registry import (
    BUILTIN,
    agent_env,
    credentials,
    find_agent,
    require,
    with_own,
)
from _ralph.agents.running import NESTED, Assignment, conclude, run_agent
from _ralph.agents.stream import Stream
from _ralph.errors import AgentUnavailable, BadInput
from _ralph.model import AgentResult, Outcome, Plan, Tokens
from _ralph.process.process import Control, Ended, ProcessResult
from _ralph.state import prd
from tests.conftest import ROOT, Repo, within
from tests.scripts import own, plan, speaker

RECORDED = ROOT / "tests/recordings/claude"
CLAUDE = find_agent("claude", BUILTIN, "edit")
PROMPT, LOG = Path("/run/prompt.md"), Path("/run/own.log")


def feed(
    lines: list[bytes], process: ProcessResult | None = None, **left: Any
) -> AgentResult:
    """What comes of these lines of Claude Code's, as `run_agent` hands them over."""
    stream = Stream(CLAUDE.cli, **left)
    for line in lines:
        if stream.line(line) == "stop":
            process = process or ProcessResult(exit=-15, ended=Ended.STOPPED)
    return conclude(CLAUDE, stream, process or ProcessResult(exit=0), "")


def lines_of(*events: dict[str, Any]) -> list[bytes]:
    return [json.dumps(event).encode() for event in events]


CUT = "its output ended without a final event"


@pytest.mark.parametrize("name", ["hang", "429_noheader", "ok"])
@pytest.mark.parametrize(
    "ended", [Ended.DEADLINE, Ended.IDLE, Ended.INTERRUPTED, Ended.MISSING]
)
def test_how_a_process_ended_comes_before_what_it_said(name: str, ended: Ended) -> None:
    lines = (RECORDED / f"{name}.txt").read_bytes().split(b"\n")
    process = ProcessResult(exit=-9, ended=ended, seconds=3600, tail="no such file")
    result = feed(lines, process)
    late = "timed-out", "stopped at its time limit after 1 h 0 min"
    idle = "timed-out", "stopped at its idle limit after 1 h 0 min"
    if name == "ok":  # it had said its result, and did not exit
        late = idle = "done", ""
    wanted = {
        Ended.DEADLINE: late,
        Ended.IDLE: idle,
        Ended.INTERRUPTED: ("interrupted", "ralph was stopped"),
        Ended.MISSING: ("unavailable", "no such file"),
    }
    assert (str(result.outcome), result.reason) == wanted[ended]
    assert result.active == (name != "hang")


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


TASK = {"type": "system", "task_id": "b1"}
EVENTS: dict[str, Any] = {
    "init": INIT,
    "says": says("HTTP 429 Too Many Requests: rate limit"),
    "uses": says("", "Bash"),
    "echo": REPLAY,
    "retry": RETRY,
    "text": RETRY | {"error_status": "401"},
    "warned": WARNED,
    "rejected": REJECTED,
    "opens": TASK | {"subtype": "task_started"},
    "closes": TASK | {"subtype": "task_notification"},
    "done": ends("I fixed the 429 handling; 401 too"),
    "odd": ends() | {"is_error": None},
    "fails": fails("429 in a text, but no API error"),
    "turns": fails("x", errors=["Reached maximum number of turns (3)"]),
}
for status in (400, 401, 403, 404, 429, 529):
    more = {"terminal_reason": "api_error", "api_error_status": status}
    EVENTS[str(status)] = fails(f"an API error {status}", **more)
    EVENTS[f"retry-{status}"] = RETRY | {"error_status": status}


def named(events: str) -> list[bytes]:
    return lines_of(*(EVENTS[name] for name in events.split()))


OUTCOMES = """\
init says done            done
init echo says done       done
init retry retry done     done
init warned says done     done
init rejected 429         limited      an API error 429
init rejected             limited      the provider's usage limit is reached
init rejected says done   done
init fails                failed       429 in a text, but no API error
init turns                failed       Reached maximum number of turns (3)
init 529                  limited      an API error 529
init 401                  unavailable  an API error 401
init 403                  unavailable  an API error 403
init 404                  unavailable  an API error 404
init 400                  failed       an API error 400
init retry-401            unavailable  not logged in: the provider answered 401 or 403
init retry-403            unavailable  not logged in: the provider answered 401 or 403
init text done            done
init says                 failed       its output ended without a final event (exit 0)
init says odd             failed       its output ended without a final event (exit 0)
init done says fails      failed       429 in a text, but no API error
init fails says done      done
"""


@pytest.mark.parametrize("line", OUTCOMES.splitlines())
def test_the_outcome_of_a_stream(line: str) -> None:
    outcome, _, reason = line[26:].partition(" ")
    result = feed(named(line[:26]))
    assert (str(result.outcome), result.reason) == (outcome, reason.strip())
    limited = outcome == "limited" and "rejected" in line
    assert result.reset == (1795299183 if limited else None)


def test_two_results_are_paid_once() -> None:
    """A background task that ends later brings a second one: dollars are a running
    total there."""
    two = ends("started it"), says("y"), ends("it ended", total=2)
    result = feed(lines_of(INIT, says("x"), *two))
    assert (result.text, result.usd, result.session) == ("it ended", 0.5, "s1")
    assert result.tokens == Tokens(input=230, output=14, cached=200)


def test_denials_of_the_last_result_are_named() -> None:
    def denied(tool: str, **given: object) -> dict[str, Any]:
        return {"tool_name": tool, "tool_input": given}

    first = ends(permission_denials=[denied("Bash", command="npm test")])
    others = [
        denied("Bash", command="make\nx"),
        denied("Edit", file_path="a\x1b[1mb"),
        denied("Odd"),
    ]
    last = ends(permission_denials=others)
    named = ["Bash: make x", "Edit: ab", "Odd"]
    assert feed(lines_of(INIT, first, last)).denials == named
    assert feed(lines_of(INIT, first, ends())).denials == []


@pytest.mark.parametrize(
    "noise",
    [b"", b"plain words", b"{", b'{"type": "result"', b"[1]", b"null", b"\xff\xfe", b'{"a":' * 100_000,
     b'{"type": ["result"], "is_error": false}', b'{"type": "assistant", "message": {"content": 5}}',
     b'{"type": "result", "is_error": 0}', b'{"type": "system", "subtype": "api_retry", "error_status": {"a": 1}}'],
    ids=lambda line: repr(line[:40]),
)  # fmt: skip
def test_lines_that_mean_nothing(noise: bytes) -> None:
    lines = [noise, *lines_of(INIT), noise, *lines_of(says("x")), noise]
    assert feed(lines).outcome is Outcome.FAILED
    assert feed([*lines, *lines_of(ends()), noise]) == feed(
        lines_of(INIT, says("x"), ends())
    )


@pytest.mark.parametrize(
    "odd", [b"\xff\xfe", b"\x00", b"\x01\t\x1b[1m", b"\xed\xa0\x80"]
)
def test_bytes_that_no_json_has_cost_nothing(odd: bytes) -> None:
    (line,) = lines_of(ends("so it ends"))
    result = feed([*lines_of(INIT), line.replace(b"so it", b"so" + odd + b"it")])
    assert (result.outcome, result.usd, result.tokens.total) == ("done", 0.25, 122)


@pytest.mark.parametrize(("left", "unit"), [
    ({"usd_left": 5.0}, "dollars"), ({"tokens_left": 5000}, "tokens"), ({}, ""),
])  # fmt: skip
def test_a_result_that_cannot_be_read_leaves_the_price_unknown(
    left: dict[str, Any], unit: str
) -> None:
    torn = b'{"usage":{},"type":"result","total_cost_usd":12,"result":"x'
    result = feed([*lines_of(INIT, says("x")), torn], **left)
    assert result.outcome is Outcome.FAILED
    assert (f"reported no {unit}" in result.no_price) == bool(unit)
    echoed = lines_of(INIT, says(torn.decode()), ends())
    assert not feed(echoed, **left).no_price


@pytest.mark.parametrize("usd", [None, "0.25", True, float("nan"), float("inf")])
def test_a_price_that_is_no_number_is_none(usd: object) -> None:
    result = feed(lines_of(INIT, ends(total_cost_usd=usd)))
    assert (result.usd, result.tokens) == (None, Tokens(115, 7, 100))


@pytest.mark.parametrize("sent", [None, "many", float("inf")])
def test_tokens_that_are_no_number_are_none(sent: object) -> None:
    usage = {"input_tokens": sent, "output_tokens": 7}
    result = feed(lines_of(INIT, ends(usage=usage, modelUsage={})))
    assert (result.usd, result.tokens) == (0.25, Tokens(0, 7, 0))


@pytest.mark.parametrize(("event", "answer", "active"), [
    ("noise", "quiet", False), ("init", "quiet", False), ("retry", "quiet", False), ("retry-401", "stop", False),
    ("uses", None, True), ("echo", None, False), ("done", None, True),
])  # fmt: skip
def test_what_counts_as_a_sign_of_life(
    event: str, answer: str | None, active: bool
) -> None:
    stream = Stream(CLAUDE.cli)
    (line,) = [b"npm WARN deprecated"] if event == "noise" else named(event)
    assert stream.line(line) == answer
    assert stream.turn.active is active


def fed(name: str, *events: dict[str, Any], **more: Any) -> Stream:
    stream = Stream(BUILTIN[name], **more)
    for line in lines_of(*events):
        stream.line(line)
    return stream


def piece(words: str) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": words, "delta": True}


TOOL = {"type": "tool_use", "parameters": {"command": "npm test"}}


@pytest.mark.parametrize(("name", "events", "heard"), [
    ("claude", [INIT, says("I begin", "Edit"), says("  "), ends("the end")], ["say I begin", "tool Edit"]),
    ("gemini", [piece("I be"), piece("gin\nand "), piece("go on"), TOOL, piece("the e"), piece("nd")],
     ["say I begin", "say and go on", "tool npm test"]),
])  # fmt: skip
def test_a_listener_hears_words_and_tools_in_whole_lines(
    name: str, events: list[dict[str, Any]], heard: list[str]
) -> None:
    told: list[str] = []
    stream = fed(name, *events, listen=lambda *said: told.append(" ".join(said)))
    assert told == heard
    assert stream.turn.text == "the end"


def test_a_message_is_counted_once_and_a_result_counts_them_all() -> None:
    first, second = says("x"), says("y")
    second["message"]["id"] = "m2"
    stream = fed("claude", INIT, first, first, second)
    assert stream.turn.used == Tokens(230, 2, 200)
    stream.line(json.dumps(ends()).encode())
    assert stream.turn.used == Tokens(115, 7, 100)


STEP = {"type": "step_finish", "part": {"tokens": {"input": 9, "output": 1}, "cost": 0.5}}  # fmt: skip


@pytest.mark.parametrize(("left", "unit"), [
    ({}, ""), ({"tokens_left": 30}, ""), ({"usd_left": 1.2}, "dollars"), ({"tokens_left": 25}, "tokens"),
])  # fmt: skip
def test_an_attempt_stops_where_its_running_totals_pass_what_is_left(
    left: dict[str, Any], unit: str
) -> None:
    stream = Stream(BUILTIN["opencode"], **left)
    answers = [stream.line(line) for line in lines_of(STEP, STEP, STEP)]
    assert answers == [None, None, "stop" if unit else None]
    opencode = find_agent("opencode", BUILTIN, "full")
    process = ProcessResult(exit=-15, ended=Ended.STOPPED)
    result = conclude(opencode, stream, process, "")
    said = f"it used up what was left of the limit in {unit}"
    assert (result.reason == said) == bool(unit)


ASKED = '{"event": "message_send_starting", "properties": {}}'
SENT = '{"event": "message_send", "properties": {"prompt_tokens": 100, "completion_tokens": 5, "total_cost": 0.01}}'


@pytest.mark.parametrize(("printed", "log", "outcome", "usd"), [
    ([], [ASKED, SENT], "done", 0.01),
    # retried, or only said
    (["litellm.RateLimitError: slow down"], [ASKED, SENT], "done", 0.01),
    (["litellm.RateLimitError: slow down"], [ASKED, SENT, ASKED], "limited", 0.01),
    (["litellm.RateLimitError: x", "litellm.AuthenticationError: y"], [ASKED], "unavailable", None),
    (["I would handle litellm.RateLimitError here"], [ASKED], "failed", None),
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
    assert result.tokens.input == 100 * log.count(SENT)


# ---------------------------------------------------------------- commands

SANDBOX = BUILTIN["claude"].permissions["edit"][-1]
STREAM = ["-p", "--output-format", "stream-json", "--verbose"]
AIDER = ["--message-file", "/run/prompt.md", "--yes-always", "--no-auto-commits", "--no-pretty", "--no-stream",
         "--no-fancy-input", "--no-check-update", "--no-show-release-notes", "--no-analytics", "--analytics-log", "/run/own.log",
         "--no-show-model-warnings", "--no-gitignore"]  # fmt: skip


@pytest.mark.parametrize(("command", "permissions", "left", "wanted"), [
    ("claude", "full", None, ["claude", *STREAM, "--dangerously-skip-permissions"]),
    ("claude", "edit", None, ["claude", *STREAM, "--permission-mode", "acceptEdits", "--settings", SANDBOX]),
    ("claude --append-system-prompt 'two words'", "read", 0.01, ["claude", *STREAM, "--permission-mode", "plan", "--max-budget-usd", "0.01", "--append-system-prompt", "two words"]),
    ("aider", "edit", 5.0, ["aider", *AIDER]),
    ("my-tool --flag 'a b' {args} {permissions}", "edit", 1.0, ["my-tool", "--flag", "a b", "{args}", "{permissions}"]),
])  # fmt: skip
def test_the_command_that_is_run(
    command: str, permissions: str, left: float | None, wanted: list[str]
) -> None:
    assert find_agent(command, BUILTIN, permissions).argv(PROMPT, LOG, left) == wanted


def test_claude_s_own_sandbox_is_on_and_cannot_be_left() -> None:
    sandbox = json.loads(SANDBOX)["sandbox"]
    assert sandbox["enabled"] and sandbox["failIfUnavailable"]
    assert sandbox["allowUnsandboxedCommands"] is False


@pytest.mark.parametrize(("command", "name", "streams", "prompt"), [
    ("claude --model x", "claude", True, "stdin"),
    ("aider", "aider", False, "file"),
    ("my-claude", "plain", False, "stdin"),
    ("/", "plain", False, "stdin"),
])  # fmt: skip
def test_the_first_word_decides(
    command: str, name: str, streams: bool, prompt: str
) -> None:
    agent = find_agent(command, BUILTIN, "edit")
    assert (agent.name, agent.streams, agent.cli.prompt) == (name, streams, prompt)


@pytest.mark.parametrize(
    ("command", "said"),
    [("claude 'x", "cannot be split"), ("  ", "is empty")],
)
def test_a_command_that_is_none_is_refused(command: str, said: str) -> None:
    with pytest.raises(BadInput, match=said):
        find_agent(command, BUILTIN, "edit")


def test_a_place_is_trusted_by_each_agent_s_own_word(tmp_path: Path) -> None:
    settings = tmp_path / ".claude/settings.json"
    settings.parent.mkdir()
    settings.write_text('{"permissions": {"allow": ["Bash(make *)", 5]}}')
    allowed = ["--allowedTools", "Bash(make *)"]
    for name, words in ("claude", allowed), ("codex", ["--trust"]), ("pi", []):
        agent = find_agent(name, BUILTIN, "full")
        without = agent.argv(PROMPT, LOG)
        argv = agent.argv(PROMPT, LOG, trusted=[settings])
        assert [word for word in argv if word not in without] == words
    settings.write_text("{")
    assert CLAUDE.argv(PROMPT, LOG, trusted=[settings]) == CLAUDE.argv(PROMPT, LOG)


@pytest.mark.parametrize(("name", "file", "content", "trusted"), [
    ("claude", ".claude.json", '{"projects": {"/p": {"hasTrustDialogAccepted": true}}}', True),
    ("claude", ".claude.json", '{"projects": {"/p": {"hasTrustDialogAccepted": false}}}', False),
    ("claude", ".claude.json", '{"projects": {"/other": {"hasTrustDialogAccepted": true}}}', False),
    ("codex", ".codex/config.toml", '[projects."/p"]\ntrust_level = "trusted"\n', True),
    ("codex", ".codex/config.toml", '[projects."/p"]\ntrust_level = "untrusted"\n', False),
])  # fmt: skip
def test_whether_a_person_trusts_a_project(
    tmp_path: Path, name: str, file: str, content: str, trusted: bool
) -> None:
    path = tmp_path / file
    path.parent.mkdir(exist_ok=True)
    path.write_text(content)
    trust = BUILTIN[name].trust
    assert trust and trust.home(Path("/p"), {"HOME": str(tmp_path)}) is trusted


# The rows of a plan, a command, what is then run, and the variables that it gets where
# KEY is k.
LIKE: dict[str, Any] = {
    "claude": {"like": "claude", "argv+": ["--model", "opus"]},
    "glm": {
        "like": "claude",
        "env": {"URL": "http://x", "TOKEN": "$KEY"},
        "argv+": ["--model", "glm"],
    },
    "mine": {"like": "claude", "argv": ["my-claude", "{args}", "--end"]},
    "haiku": {"argv": ["claude", "--model", "haiku", "{prompt_file}", "--at={log}"]},
}
OPUS = ["claude", *STREAM, "--dangerously-skip-permissions", "--model", "opus"]


@pytest.mark.parametrize(("command", "argv", "env"), [
    ("glm", [*OPUS, "--model", "glm"], {"URL": "http://x", "TOKEN": "k"}),
    ("/opt/glm", ["/opt/glm", *OPUS[1:], "--model", "glm"], {"URL": "http://x", "TOKEN": "k"}),
    ("claude", OPUS, {}),
    ("mine -x", ["my-claude", "-x", "--end"], {}),
    ("haiku", ["claude", "--model", "haiku", "/run/prompt.md", "--at={log}"], {}),
])  # fmt: skip
def test_a_row_that_is_like_another(
    tmp_path: Path, command: str, argv: list[str], env: dict[str, str]
) -> None:
    plan = a_plan(tmp_path, LIKE)
    prd.validate(plan)
    clis = with_own(plan.settings["agents"])
    agent = find_agent(command, clis, "full")
    assert (agent.argv(PROMPT, LOG), agent.variables({"KEY": "k"})) == (argv, env)
    assert shlex.split(agent.command) == shlex.split(command)
    assert find_agent(agent.command, clis, "full") == agent, "records have its command"
    assert agent.cli.read is (None if command == "haiku" else CLAUDE.cli.read)


@pytest.mark.parametrize(("rows", "said"), [
    ({"a": {"like": "a"}}, "agents.a: `like` names no agent above it: a; expected one of claude, "),
    ({"a": {"like": "b"}, "b": {"like": "claude"}}, "agents.a: `like` names no agent above it: b; "),
])  # fmt: skip
def test_a_row_that_is_like_itself_or_like_none_is_refused(
    tmp_path: Path, rows: dict[str, Any], said: str
) -> None:
    plan = a_plan(tmp_path, rows)
    prd.validate(plan)
    with pytest.raises(BadInput, match=f"^{re.escape(said)}[^.\\n]*$"):
        with_own(plan.settings["agents"])


@pytest.mark.parametrize(
    "row",
    ["claude", {}, {"argv": []}, {"argv": [5]}, {"argv": ["x"], "permissions": {"all": []}},
     {"argv": ["x"], "prompt": "argument"}, {"argv": ["x", "{model}"]}],
    ids=json.dumps,
)  # fmt: skip
def test_a_row_that_is_none_is_refused(tmp_path: Path, row: object) -> None:
    with pytest.raises(BadInput, match=r"agents\.mine"):
        prd.validate(a_plan(tmp_path, {"mine": row}))


def a_plan(folder: Path, rows: dict[str, Any]) -> Plan:
    path = folder / "prd.json"
    tasks = [{"id": "1", "title": "t", "passes": False}]
    path.write_text(json.dumps({"agents": rows, "userStories": tasks}))
    return prd.load(path)


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
        require(find_agent(name, BUILTIN, "edit"))
    require(find_agent(name, BUILTIN, "full"))


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
    agent = find_agent("claude", BUILTIN, permissions)
    if said is None:
        require(agent)
    else:
        with pytest.raises(AgentUnavailable) as refused:
            require(agent)
        assert said in str(refused.value)
        assert permissions == "full" or "--full-permissions" in str(refused.value)


@pytest.mark.parametrize(("command", "env", "paid"), [
    ("claude", {}, ("", "")),
    ("claude", {"ANTHROPIC_AUTH_TOKEN": "t", "ANTHROPIC_API_KEY": "k"}, ("ANTHROPIC_API_KEY", "")),
    ("claude", {"CLAUDE_CODE_OAUTH_TOKEN": "t"}, ("", "$CLAUDE_CODE_OAUTH_TOKEN")),
    ("codex", {"CODEX_API_KEY": "k"}, ("CODEX_API_KEY", ".codex/auth.json")),
    ("true", {"ANTHROPIC_API_KEY": "k"}, ("", "")),
])  # fmt: skip
def test_who_pays(
    tmp_path: Path, command: str, env: dict[str, str], paid: tuple[str, str]
) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/auth.json").touch()
    agent = find_agent(command, BUILTIN, "edit")
    assert credentials(agent, {**env, "HOME": str(tmp_path)}) == paid


# ---------------------------------------------------------------- real processes


def program(path: Path, script: str) -> Path:
    """A program at `path`, in Python."""
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(script)}")
    path.chmod(0o755)
    return path


def run(
    folder: Path,
    agent: Agent,
    prompt: str = "the prompt",
    watch: Callable[[Stream], None] = lambda _: None,
    **more: Any,
) -> AgentResult:
    given: dict[str, Any] = {
        "log": lambda ending: folder / f"0001{ending}", "cwd": folder,
        "env": dict(os.environ), "timeout": 20.0, "idle": 10.0,
    }  # fmt: skip
    assignment = Assignment(prompt=prompt, **{**given, **more})
    return run_agent(agent, assignment, Control(), watch)


def listener(heard: list[tuple[str, str]]) -> Callable[[Stream], None]:
    def watch(stream: Stream) -> None:
        stream.listen = lambda kind, words: heard.append((kind, words))

    return watch


def plain(command: str) -> Agent:
    return find_agent(command, BUILTIN, "edit")


@pytest.mark.parametrize(("command", "outcome", "reason"), [
    ("sh -c 'exit 0'", "done", ""),
    ("sh -c 'echo rate limit 429 >&2; echo done'", "done", ""),
    ("sh -c 'echo one; echo bad flag >&2; exit 2'", "failed", "exit 2: bad flag"),
    ("sh -c 'exit 127'", "unavailable", "exit 127: no output"),
    ("sh -c 'kill -9 $$'", "failed", "exit -9: no output"),
    ("/no/such-program --x", "unavailable", "/no/such-program"),
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


@pytest.mark.parametrize("trap", ["mkfifo 0001.err", "ln -s /dev/zero 0001.err"])
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
    agent = find_agent(f"{claude} --model haiku", BUILTIN, "full")
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
    ("while True: print(json.dumps({'type': 'system', 'subtype': 'api_retry', 'error_status': 529}), flush=True); time.sleep(0.05)",
     "timed-out", "stopped at its idle limit"),
    ("while True: print(json.dumps({'type': 'x'}), flush=True); time.sleep(0.05)", "timed-out", "stopped at its time limit"),
    ("print(json.dumps({'type': 'system', 'subtype': 'api_retry', 'error_status': 401}), flush=True); time.sleep(60)",
     "unavailable", "not logged in"),
    ("os.kill(os.getpid(), 9)", "failed", f"{CUT} (exit -9)"),
])  # fmt: skip
def test_a_stream_that_ends_otherwise(
    tmp_path: Path, script: str, outcome: str, reason: str
) -> None:
    claude = program(tmp_path / "claude", textwrap.dedent(FAKE) + script)
    result = run(
        tmp_path, find_agent(str(claude), BUILTIN, "full"), idle=0.4, timeout=1.0
    )
    assert result.outcome == outcome
    assert result.reason.startswith(reason)


@pytest.mark.parametrize(("events", "seconds"), [
    ("", 1200), ("init says", 1200), ("init says done", 60), ("init says fails", 60),
    ("init rejected 429", 1200),  # it may wait for its provider
    ("init opens done", 660), ("init opens closes done", 60), ("init done init says", 1200),
])  # fmt: skip
def test_how_long_an_agent_may_be_silent(events: str, seconds: float) -> None:
    stream = Stream(CLAUDE.cli)
    for line in named(events):
        stream.line(line)
    assert (stream.silence(1200), stream.silence(5)) == (seconds, 5)


@pytest.mark.parametrize(
    ("word", "timeout"), [("LAST_WORD", 60.0), ("BACKGROUND", 60.0), ("", 1.5)]
)
def test_an_agent_that_said_its_result_and_does_not_exit_is_ended_and_has_not_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, timeout: float
) -> None:
    if word:
        monkeypatch.setattr(module, word, 0.4)
    task = {**TASK, "subtype": "task_started"} if word == "BACKGROUND" else {}
    hangs = f"{textwrap.dedent(FAKE)}print(json.dumps({task})){textwrap.dedent(RESULT)}"
    claude = program(tmp_path / "claude", f"{hangs}sys.stdout.flush(); time.sleep(600)")
    result = run(
        tmp_path, find_agent(str(claude), BUILTIN, "full"), idle=60.0, timeout=timeout
    )
    assert (result.outcome, result.usd) == (
        Outcome.DONE,
        0.5,
    ) and 0.4 < result.seconds < 20
    assert not result.at_least


@pytest.mark.parametrize(("script", "outcome", "reason"), [
    ("sys.exit('--dangerously-skip-permissions cannot be used with root')", "unavailable", "IS_SANDBOX=1"),
    ("sys.exit('unknown option --nope')", "unavailable", "exit 1: unknown option --nope"),
    ("os.kill(os.getpid(), 9)", "failed", "exit -9"),
])  # fmt: skip
def test_a_stream_that_never_began(
    tmp_path: Path, script: str, outcome: str, reason: str
) -> None:
    claude = program(tmp_path / "claude", f"import os, sys\n{script}")
    result = run(tmp_path, find_agent(str(claude), BUILTIN, "full"))
    assert result.outcome == outcome
    assert reason in result.reason


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
    program(tmp_path / "mine", "import os\nprint(os.environ.get('A'))")
    row = {"argv": [str(tmp_path / "mine")], "env": {"A": "$KEY"}}
    agent = find_agent("mine", with_own({"mine": row}), "full")
    path = dict(os.environ) | {"KEY": "k"}
    apart = (
        (lambda argv, _: [*argv]) if here else (lambda argv, _: ["env", "-i", *argv])
    )
    assert run(tmp_path, agent, env=path, here=here, wrap=apart).text.strip() == "k"


def test_text_in_fragments_takes_linear_time() -> None:
    line = json.dumps(piece("word " * 2000)).encode()
    stream = Stream(BUILTIN["gemini"])
    with within(20):
        for _ in range(6000):
            stream.line(line)
    assert stream.turn.text.endswith("word word ")
    assert 100_000 < len(stream.turn.text) < 1_000_000


# ---------------------------------------------------------------- a night


def test_what_was_denied_and_what_an_agent_asked_stand_in_the_next_prompt(
    repo: Repo,
) -> None:
    plan(repo, own("T1"), limits={"attempts": 3})
    denied = [{"tool_name": "Write", "tool_input": {"file_path": ".claude/a.md"}}]
    words = [ends("", permission_denials=denied), ends("Shall I use red?"), ends()]
    script = f"""
(OUT / f'prompt-{{attempt}}').write_text(prompt)
print(json.dumps({words!r}[attempt - 1]))
"""
    assert repo.run(speaker(repo, script))[0] == 4
    second, third = repo.read("../prompt-2"), repo.read("../prompt-3")
    assert "denied; find another way:\n- `Write: .claude/a.md`" in second
    assert "its last words: Shall I use red?" in third
    first = repo.records("verdict")[0]
    assert first["denied"] and "--full-permissions" in first["reason"]
