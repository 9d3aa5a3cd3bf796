"""Agents: facts to commands, streams to results, and scripted processes."""

from __future__ import annotations

import json
import os
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import replace
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
from tests.conftest import ROOT, Repo, cases, within
from tests.scripts import MAKES, own, plan, speaker

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


@cases("""
ended        outcome      reason
DEADLINE     timed-out    stopped at its time limit after 1 h 0 min
IDLE         timed-out    stopped at its idle limit after 1 h 0 min
INTERRUPTED  interrupted  ralph was stopped
MISSING      unavailable  no such file
""")
def test_how_a_process_ended_comes_before_what_it_said(
    ended: str, outcome: str, reason: str
) -> None:
    process = ProcessResult(
        exit=-9, ended=Ended[ended], seconds=3600, tail="no such file"
    )
    for name in "hang", "429_noheader", "ok":
        lines = (RECORDED / f"{name}.txt").read_bytes().split(b"\n")
        result = feed(lines, process)
        if name == "ok" and outcome == "timed-out":  # it had said its result, and hung
            outcome, reason = "done", ""
        assert (str(result.outcome), result.reason) == (outcome, reason)
        assert result.active == (name != "hang")


# ---------------------------------------------------------------- small streams of our own

LINES = r"""
init      {"type": "system", "subtype": "init", "session_id": "s1", "tools": ["Bash"]}
says      {"type": "assistant", "message": {"content": [{"type": "text", "text": "HTTP 429 Too Many Requests: rate limit"}], "usage": {"input_tokens": 10, "output_tokens": 1}}}
uses      {"type": "assistant", "message": {"content": [{"type": "tool_use", "name": "Bash", "input": {}}]}}
begins    {"type": "assistant", "message": {"content": [{"type": "text", "text": "I begin"}, {"type": "tool_use", "name": "Edit", "input": {}}]}}
blank     {"type": "assistant", "message": {"content": [{"type": "text", "text": "  "}]}}
hook      {"type": "user", "message": {"content": [{"type": "text", "text": "I saw: Stop hook feedback"}]}}
echo      {"type": "user", "message": {"content": [{"type": "tool_result", "content": "{\"type\": \"rate_limit_event\", \"rate_limit_info\": {\"status\": \"rejected\", \"resetsAt\": 1795299183}}"}]}}
rejected  {"type": "rate_limit_event", "rate_limit_info": {"status": "rejected", "resetsAt": 1795299183}}
warned    {"type": "rate_limit_event", "rate_limit_info": {"status": "allowed_warning", "resetsAt": 5}}
retry     {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": 429}
text      {"type": "system", "subtype": "api_retry", "attempt": 1, "error_status": "401"}
opens     {"type": "system", "task_id": "b1", "subtype": "task_started"}
closes    {"type": "system", "task_id": "b1", "subtype": "task_notification"}
done      {"type": "result", "is_error": false, "result": "done: 429 and 401, too", "session_id": "s1", "total_cost_usd": 0.25, "usage": {"input_tokens": 10, "cache_creation_input_tokens": 5, "cache_read_input_tokens": 100, "output_tokens": 7}}
fails     {"type": "result", "is_error": true, "result": "429 in a text, but no API error"}
odd       {"type": "result", "is_error": null, "result": "done"}
turns     {"type": "result", "is_error": true, "result": "x", "errors": ["Reached maximum number of turns (3)"]}
be        {"type": "message", "role": "assistant", "delta": true, "content": "I be"}
gin       {"type": "message", "role": "assistant", "delta": true, "content": "gin\nand "}
on        {"type": "message", "role": "assistant", "delta": true, "content": "go on"}
tool      {"type": "tool_use", "parameters": {"command": "npm test"}}
the       {"type": "message", "role": "assistant", "delta": true, "content": "the e"}
end       {"type": "message", "role": "assistant", "delta": true, "content": "nd"}
"""
EVENTS: dict[str, dict[str, Any]] = {}
for line in LINES.strip().splitlines():
    name, said = line.split(maxsplit=1)
    EVENTS[name] = json.loads(said)


def ends(words: str = "done", **fields: Any) -> dict[str, Any]:
    """A final event: 115 tokens in, 7 out and a quarter dollar."""
    return {**EVENTS["done"], "result": words, **fields}


def says(words: str, role: str = "assistant") -> dict[str, Any]:
    content = [{"type": "text", "text": words}]
    return {"type": role, "message": {"role": role, "content": content}}


for status in (400, 401, 403, 404, 429, 529):
    last = ends(f"an API error {status}", is_error=True, api_error_status=status)
    EVENTS[str(status)] = {**last, "terminal_reason": "api_error"}
    EVENTS[f"retry-{status}"] = {**EVENTS["retry"], "error_status": status}


def named(events: str) -> list[bytes]:
    return lines_of(*(EVENTS[name] for name in events.split()))


@cases("""
events                    outcome      reason
init says done            done
init echo says done       done
init retry retry done     done
init warned says done     done
init hook hook hook hook hook hook hook hook hook hook done  done
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
""")
def test_the_outcome_of_a_stream(events: str, outcome: str, reason: str) -> None:
    result = feed(named(events))
    assert (str(result.outcome), result.reason) == (outcome, reason)
    limited = outcome == "limited" and "rejected" in events
    assert result.reset == (1795299183 if limited else 0)


def test_denials_of_the_last_result_are_named() -> None:
    def denied(tool: str, **given: object) -> dict[str, Any]:
        return {"tool_name": tool, "tool_input": given}

    bash = denied("Bash", command="make\nx")
    edit = denied("Edit", file_path="a\x1b[1mb")
    last = ends(permission_denials=[bash, edit, denied("Odd")])
    assert feed(lines_of(last)).denials == ["Bash: make x", "Edit: ab", "Odd"]
    assert feed(lines_of(last, ends())).denials == []


NOISE = rb"""

plain words
{
{"type": "result"
[1]
null
{"type": ["result"], "is_error": false}
{"type": "assistant", "message": {"content": 5}}
{"type": "result", "is_error": 0}
{"type": "system", "subtype": "api_retry", "error_status": {"a": 1}}"""
NOISY = [*NOISE.splitlines(), b"\xff\xfe", b'{"a":' * 100_000]


@pytest.mark.parametrize("noise", NOISY, ids=lambda line: repr(line[:40]))
def test_lines_that_mean_nothing(noise: bytes) -> None:
    begins, speaks, last = named("init says done")
    lines = [noise, begins, noise, speaks, noise]
    assert feed(lines).outcome is Outcome.FAILED
    assert feed([*lines, last, noise]) == feed([begins, speaks, last])


@pytest.mark.parametrize("odd", [b"\xff\xfe", b"\0", b"\1\t\x1b[1m", b"\xed\xa0\x80"])
def test_bytes_that_no_json_has_cost_nothing(odd: bytes) -> None:
    begins, last = named("init done")
    result = feed([begins, last.replace(b"done", b"do" + odd + b"ne")])
    assert (result.outcome, result.usd, result.tokens.total) == ("done", 0.25, 122)


@cases("""
left         unit
usd_left     dollars
tokens_left  tokens
-            -
""")
def test_a_result_that_cannot_be_read_leaves_the_price_unknown(
    left: str, unit: str
) -> None:
    torn = b'{"usage":{},"type":"result","total_cost_usd":12,"result":"x'
    limits: dict[str, Any] = {left: 5000.0} if left else {}
    result = feed([*named("init says"), torn], **limits)
    assert result.outcome is Outcome.FAILED
    assert (f"reported no {unit}" in result.no_price) == bool(unit)
    echoed = lines_of(says(torn.decode()), ends())
    assert not feed(echoed, **limits).no_price


@cases("""
odd
null
"0.25"
true
NaN
Infinity
""")
def test_a_price_or_count_that_is_no_number_is_none(odd: str) -> None:
    number = json.loads(odd)
    unpriced = feed(lines_of(ends(total_cost_usd=number)))
    assert (unpriced.usd, unpriced.tokens) == (None, Tokens(115, 7, 100))
    usage = {"input_tokens": number, "output_tokens": 7}
    uncounted = feed(lines_of(ends(usage=usage)))
    assert (uncounted.usd, uncounted.tokens) == (0.25, Tokens(0, 7, 0))


@cases("""
event      answer  life
noise      quiet   no
init       quiet   no
retry      quiet   no
retry-401  stop    no
uses       -       yes
echo       -       no
done       -       yes
""")
def test_what_counts_as_a_sign_of_life(event: str, answer: str, life: str) -> None:
    stream = Stream(CLAUDE.cli)
    (line,) = [b"npm WARN deprecated"] if event == "noise" else named(event)
    assert (stream.line(line) or "") == answer
    assert stream.turn.active is (life == "yes")


@cases("""
name    events                  heard                                        text
claude  init begins blank done  say I begin, tool Edit                       done: 429 and 401, too
gemini  be gin on tool the end  say I begin, say and go on, tool npm test    the end
""")
def test_a_listener_hears_words_and_tools_in_whole_lines(
    name: str, events: str, heard: str, text: str
) -> None:
    told: list[str] = []
    stream = Stream(BUILTIN[name], listen=lambda *said: told.append(" ".join(said)))
    for line in named(events):
        stream.line(line)
    assert (", ".join(told), stream.turn.text) == (heard, text)


@cases("""
left         amount  unit
usd_left     5
tokens_left  30
usd_left     1.2     dollars
tokens_left  25      tokens
""")
def test_an_attempt_stops_where_its_running_totals_pass_what_is_left(
    left: str, amount: str, unit: str
) -> None:
    used = {"tokens": {"input": 9, "output": 1}, "cost": 0.5}
    (step,) = lines_of({"type": "step_finish", "part": used})
    limits: dict[str, Any] = {left: float(amount)}
    stream = Stream(BUILTIN["opencode"], **limits)
    assert [stream.line(step), stream.line(step)] == [None, None]
    assert stream.line(step) == ("stop" if unit else None)
    opencode = find_agent("opencode", BUILTIN, "full")
    process = ProcessResult(exit=-15, ended=Ended.STOPPED)
    reason = conclude(opencode, stream, process, "").reason
    said = f"it used up what was left of the limit in {unit}"
    assert (reason == said) == bool(unit)


ASKED = '{"event": "message_send_starting", "properties": {}}\n'
SENT = '{"event": "message_send", "properties": {"prompt_tokens": 100, "completion_tokens": 5, "total_cost": 0.01}}\n'


@cases("""
printed                               log              outcome
-                                     asked sent       done
litellm.RateLimitError: retried       asked sent       done
litellm.RateLimitError: slow down     asked sent asked  limited
litellm.RateLimitError: x\\nlitellm.AuthenticationError: y  asked  unavailable
I would handle litellm.RateLimitError here                  asked  failed
fine                                  odd              failed
""")
def test_aider_is_judged_by_its_log(
    tmp_path: Path, printed: str, log: str, outcome: str
) -> None:
    logged = {"asked": ASKED, "sent": SENT, "odd": "{\n[]\nnull\n"}
    written = "".join(logged[word] for word in log.split())
    script = f"""
        import sys
        print({printed!r})
        open(sys.argv[sys.argv.index("--analytics-log") + 1], "a").write({written!r})
        """
    result = run(tmp_path, plain(program(tmp_path / "aider", script)))
    sent = log.count("sent")
    assert (result.outcome, result.usd) == (outcome, 0.01 if sent else None)
    assert result.tokens.input == 100 * sent


# ---------------------------------------------------------------- commands

SANDBOX = BUILTIN["claude"].permissions["edit"][-1]
STREAM = "claude -p --output-format stream-json --verbose"


@cases("""
command | permissions | left -> wanted
claude | full | inf -> STREAM --dangerously-skip-permissions
claude | edit | inf -> STREAM --permission-mode acceptEdits --settings 'SANDBOX'
claude --x 'two words' | read | 0.01 -> STREAM --permission-mode plan --max-budget-usd 0.01 --x 'two words'
aider | edit | 5 -> aider --message-file /run/prompt.md --yes-always --no-auto-commits --no-pretty --no-stream --no-fancy-input --no-check-update --no-show-release-notes --no-analytics --analytics-log /run/own.log --no-show-model-warnings --no-gitignore
my-tool 'a b' {args} {permissions} | edit | 1 -> my-tool 'a b' {args} {permissions}
""")
def test_the_command_that_is_run(
    command: str, permissions: str, left: str, wanted: str
) -> None:
    wanted = wanted.replace("STREAM", STREAM).replace("SANDBOX", SANDBOX)
    agent = find_agent(command, BUILTIN, permissions)
    assert agent.argv(PROMPT, LOG, float(left)) == shlex.split(wanted)


def test_claude_s_own_sandbox_is_on_and_cannot_be_left() -> None:
    sandbox = json.loads(SANDBOX)["sandbox"]
    assert sandbox["enabled"] and sandbox["failIfUnavailable"]
    assert sandbox["allowUnsandboxedCommands"] is False


@cases("""
command           name    prompt
claude --model x  claude  stdin
aider             aider   file
my-claude         plain   stdin
/                 plain   stdin
""")
def test_the_first_word_decides(command: str, name: str, prompt: str) -> None:
    agent = find_agent(command, BUILTIN, "edit")
    assert (agent.name, agent.cli.prompt) == (name, prompt)
    assert agent.streams == (name == "claude")


@cases("""
command   said
claude 'x  cannot be split
-         is empty
""")
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


@cases(r"""
name    trusted  content
claude  yes      {"projects": {"/p": {"hasTrustDialogAccepted": true}}}
claude  no       {"projects": {"/p": {"hasTrustDialogAccepted": false}}}
claude  no       {"projects": {"/other": {"hasTrustDialogAccepted": true}}}
codex   yes      [projects."/p"]\ntrust_level = "trusted"
codex   no       [projects."/p"]\ntrust_level = "untrusted"
""")
def test_whether_a_person_trusts_a_project(
    tmp_path: Path, name: str, trusted: str, content: str
) -> None:
    (tmp_path / ".codex").mkdir()
    file = ".claude.json" if name == "claude" else ".codex/config.toml"
    (tmp_path / file).write_text(content)
    trust = BUILTIN[name].trust
    assert trust
    found = trust.home(Path("/p"), {"HOME": str(tmp_path)})
    assert found is (trusted == "yes")


# The rows of a plan; a command, and what is then run.
LIKE = """{
"claude": {"like": "claude", "argv+": ["--model", "opus"]},
"glm": {"like": "claude", "env": {"URL": "http://x", "TOKEN": "$KEY"}, "argv+": ["--model", "glm"]},
"mine": {"like": "claude", "argv": ["my-claude", "{args}", "--end"]},
"haiku": {"argv": ["claude", "--model", "haiku", "{prompt_file}", "--at={log}"]}
}"""


@cases("""
command   argv
glm       claude OPUS --model glm
/opt/glm  /opt/glm OPUS --model glm
claude    claude OPUS
mine -x   my-claude -x --end
haiku     claude --model haiku /run/prompt.md --at={log}
""")
def test_a_row_that_is_like_another(tmp_path: Path, command: str, argv: str) -> None:
    plan = a_plan(tmp_path, LIKE)
    prd.validate(plan)
    clis = with_own(plan.settings["agents"])
    agent = find_agent(command, clis, "full")
    opus = f"{STREAM[7:]} --dangerously-skip-permissions --model opus"
    assert " ".join(agent.argv(PROMPT, LOG)) == argv.replace("OPUS", opus)
    env = {"URL": "http://x", "TOKEN": "k"} if "glm" in command else {}
    assert agent.variables({"KEY": "k"}) == env
    assert find_agent(agent.command, clis, "full") == agent, "records have its command"
    assert agent.cli.read is (None if command == "haiku" else CLAUDE.cli.read)


@cases("""
rows                                       said
{"a": {"like": "a"}}                       a; expected one of claude,
{"a": {"like": "b"}, "b": {"like": "claude"}}  b;
""")
def test_a_row_that_is_like_itself_or_like_none_is_refused(
    tmp_path: Path, rows: str, said: str
) -> None:
    plan = a_plan(tmp_path, rows)
    prd.validate(plan)
    refused = f"agents.a: `like` names no agent above it: {said} "
    with pytest.raises(BadInput, match=f"^{re.escape(refused)}[^.\\n]*$"):
        with_own(plan.settings["agents"])


@cases("""
row
"claude"
{}
{"argv": []}
{"argv": [5]}
{"argv": ["x"], "permissions": {"all": []}}
{"argv": ["x"], "prompt": "argument"}
{"argv": ["x", "{model}"]}
""")
def test_a_row_that_is_none_is_refused(tmp_path: Path, row: str) -> None:
    with pytest.raises(BadInput, match=r"agents\.mine"):
        prd.validate(a_plan(tmp_path, f'{{"mine": {row}}}'))


def a_plan(folder: Path, rows: str) -> Plan:
    path = folder / "prd.json"
    tasks = '[{"id": "1", "title": "t", "passes": false}]'
    path.write_text(f'{{"agents": {rows}, "userStories": {tasks}}}')
    return prd.load(path)


@pytest.mark.parametrize("name", ["opencode", "pi"])
def test_an_agent_without_a_sandbox_is_refused_with_two_ways_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program(tmp_path / name, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    ways = r"no sandbox of its own.*--wrap.*bwrap.sh.*--full-permissions"
    with pytest.raises(AgentUnavailable, match=ways):
        require(find_agent(name, BUILTIN, "edit"))
    require(find_agent(name, BUILTIN, "full"))


@cases("""
tools               permissions  said
claude bwrap socat  edit
claude              full
claude              edit         bwrap and socat.*--full-permissions
claude socat        edit         its own sandbox needs bwrap
-                   full         'claude' is not on PATH
""")
def test_an_agent_that_could_not_be_held_to_its_permissions_is_refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    tools: str,
    permissions: str,
    said: str,
) -> None:
    if permissions == "edit" and sys.platform != "linux":
        pytest.skip("only Linux needs other programs for it")
    for tool in tools.split():
        program(tmp_path / tool, "")
    monkeypatch.setenv("PATH", str(tmp_path))
    agent = find_agent("claude", BUILTIN, permissions)
    if said:
        with pytest.raises(AgentUnavailable, match=said):
            require(agent)
    else:
        require(agent)


@cases("""
command  variables                               key                login
claude   -
claude   ANTHROPIC_AUTH_TOKEN ANTHROPIC_API_KEY  ANTHROPIC_API_KEY
claude   CLAUDE_CODE_OAUTH_TOKEN                 -                  $CLAUDE_CODE_OAUTH_TOKEN
codex    CODEX_API_KEY                           CODEX_API_KEY      .codex/auth.json
true     ANTHROPIC_API_KEY
""")
def test_who_pays(
    tmp_path: Path, command: str, variables: str, key: str, login: str
) -> None:
    (tmp_path / ".codex").mkdir()
    (tmp_path / ".codex/auth.json").touch()
    agent = find_agent(command, BUILTIN, "edit")
    env = dict.fromkeys(variables.split(), "x") | {"HOME": str(tmp_path)}
    assert credentials(agent, env) == (key, login)


# ---------------------------------------------------------------- real processes


def program(path: Path, script: str) -> str:
    """A program at `path`, in Python; its name."""
    path.write_text(f"#!{sys.executable}\n{textwrap.dedent(script)}")
    path.chmod(0o755)
    return str(path)


def run(
    folder: Path,
    agent: Agent,
    prompt: str = "the prompt",
    watch: Callable[[Stream], None] = lambda _: None,
    **more: Any,
) -> AgentResult:
    def log(ending: str) -> Path:
        return folder / f"0001{ending}"

    env = dict(os.environ)
    assignment = Assignment(
        prompt=prompt, cwd=folder, env=env, log=log, timeout=20.0, idle=10.0
    )
    return run_agent(agent, replace(assignment, **more), Control(), watch)


def listener(heard: list[tuple[str, str]]) -> Callable[[Stream], None]:
    def watch(stream: Stream) -> None:
        stream.listen = lambda kind, words: heard.append((kind, words))

    return watch


def plain(command: str) -> Agent:
    return find_agent(command, BUILTIN, "edit")


@cases(r"""
command                                         outcome      reason
sh -c 'exit 0'                                  done
sh -c 'echo rate limit 429 >&2; echo done'      done
sh -c 'echo one; echo bad flag >&2; exit 2'     failed       exit 2: bad flag
sh -c 'exit 127'                                unavailable  exit 127: no output
sh -c 'kill -9 $$'                              failed       exit -9: no output
/no/such-program --x                            unavailable  /no/such-program
sh -c 'printf "\033[31mred\033[0m" >&2; exit 1'  failed  exit 1: red
""")
def test_a_plain_command(
    tmp_path: Path, command: str, outcome: str, reason: str
) -> None:
    result = run(tmp_path, plain(command))
    assert result.outcome == outcome
    said = result.reason
    assert said == reason or (outcome == "unavailable" and reason in said)
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


def test_its_program_is_the_person_s_and_not_one_that_was_left_in_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.environ["PATH"]
    for place in "mine", "left":
        (tmp_path / place).mkdir()
        program(tmp_path / place / "some-agent", f"print({place!r})")
    monkeypatch.setenv("PATH", f"{tmp_path}/mine:{before}")
    env = dict(os.environ) | {"PATH": f"{tmp_path}/left:{before}"}
    assert run(tmp_path, plain("some-agent"), env=env).text == "mine\n"


def test_an_agent_that_takes_a_file_gets_no_stdin(tmp_path: Path) -> None:
    reads = "import sys; print(sys.argv[2], repr(sys.stdin.read()), open(sys.argv[2]).read())"
    result = run(tmp_path, plain(program(tmp_path / "aider", reads)))
    assert result.text == f"{tmp_path / '.git/ralph/prompt.md'} '' the prompt\n"


FAKE = """\
import json, os, sys, time
prompt = sys.stdin.read()
def tell(**event): print(json.dumps(event), flush=True)
def retry(status): tell(type="system", subtype="api_retry", error_status=status)
tell(type="system", subtype="init", session_id="s9")
tell(type="assistant", message={"content": [{"type": "text", "text": prompt}]})
"""
RESULT = """
tell(type="result", is_error=False, result=" ".join(sys.argv[1:]), session_id="s9",
     total_cost_usd=0.5, usage={"input_tokens": 3, "output_tokens": 2})
"""


def claude(folder: Path, script: str, words: str = "") -> Agent:
    name = program(folder / "claude", script)
    return find_agent(f"{name} {words}", BUILTIN, "full")


def test_a_stream_from_a_real_process(tmp_path: Path) -> None:
    agent = claude(tmp_path, FAKE + RESULT, "--model haiku")
    heard: list[tuple[str, str]] = []
    result = run(tmp_path, agent, usd_left=2.0, watch=listener(heard))
    assert (result.outcome, result.session) == ("done", "s9")
    argv = "--dangerously-skip-permissions --max-budget-usd 2.00 --model haiku"
    assert result.text.endswith(argv)
    assert (result.usd, result.tokens, result.active) == (0.5, Tokens(3, 2, 0), True)
    assert heard == [("say", "the prompt")]


@cases(f"""
script                                     outcome      reason
time.sleep(60)                             timed-out    stopped at its idle limit
while True: retry(529); time.sleep(0.05)   timed-out    stopped at its idle limit
while True: tell(type='x'); time.sleep(0.05)  timed-out  stopped at its time limit
retry(401); time.sleep(60)                 unavailable  not logged in
os.kill(os.getpid(), 9)                    failed       {CUT} (exit -9)
""")
def test_a_stream_that_ends_otherwise(
    tmp_path: Path, script: str, outcome: str, reason: str
) -> None:
    result = run(tmp_path, claude(tmp_path, FAKE + script), idle=0.4, timeout=1.0)
    assert result.outcome == outcome
    assert result.reason.startswith(reason)


@cases("""
events                 seconds
-                      1200
init says              1200
init says done         60
init says fails        60
init rejected 429      1200
init opens done        660
init opens closes done  60
init done init says    1200
""")
def test_how_long_an_agent_may_be_silent(events: str, seconds: str) -> None:
    """One that was refused may wait for its provider."""
    stream = Stream(CLAUDE.cli)
    for line in named(events):
        stream.line(line)
    assert (stream.silence(1200), stream.silence(5)) == (float(seconds), 5)


@cases("""
word        timeout
LAST_WORD   60
BACKGROUND  60
-           1.5
""")
def test_an_agent_that_said_its_result_and_does_not_exit_is_ended_and_has_not_timed_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, timeout: str
) -> None:
    opens = ""
    if word:
        monkeypatch.setattr(module, word, 0.4)
    if word == "BACKGROUND":
        opens = "tell(type='system', task_id='b1', subtype='task_started')"
    agent = claude(tmp_path, f"{FAKE}{opens}{RESULT}time.sleep(600)")
    result = run(tmp_path, agent, idle=60.0, timeout=float(timeout))
    assert (result.outcome, result.usd, result.at_least) == ("done", 0.5, False)
    assert 0.4 < result.seconds < 20


@cases("""
script                              outcome      reason
sys.exit('--dangerously-skip-permissions cannot be used with root')  unavailable  IS_SANDBOX=1
sys.exit('unknown option --nope')   unavailable  exit 1: unknown option --nope
os.kill(os.getpid(), 9)             failed       exit -9
""")
def test_a_stream_that_never_began(
    tmp_path: Path, script: str, outcome: str, reason: str
) -> None:
    result = run(tmp_path, claude(tmp_path, f"import os, sys\n{script}"))
    assert result.outcome == outcome
    assert reason in result.reason


def test_nothing_tells_an_agent_that_it_is_nested(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RALPH_RUN_ID", "r1")
    env = agent_env(tmp_path) | dict.fromkeys(NESTED, "1")
    found = run(tmp_path, plain("env"), env=env).text.splitlines()
    assert not {f"{name}=1" for name in NESTED} & {*found}
    assert {"RALPH_RUN_ID=r1", "GIT_TERMINAL_PROMPT=0"} <= {*found}


@pytest.mark.parametrize("prefix", ["", "env -i"])
def test_what_a_row_sets_reaches_the_agent_behind_a_prefix_too(
    tmp_path: Path, prefix: str
) -> None:
    def wrap(argv: Sequence[str], _: object) -> list[str]:
        return [*prefix.split(), *argv]

    mine = program(tmp_path / "mine", "import os\nprint(os.environ.get('A'))")
    row = {"argv": [mine], "env": {"A": "$KEY"}}
    agent = find_agent("mine", with_own({"mine": row}), "full")
    env = dict(os.environ) | {"KEY": "k"}
    result = run(tmp_path, agent, env=env, here=not prefix, wrap=wrap)
    assert result.text == "k\n"


def test_text_in_fragments_takes_linear_time() -> None:
    (line,) = lines_of({**EVENTS["end"], "content": "word " * 2000})
    stream = Stream(BUILTIN["gemini"])
    with within(20):
        for _ in range(6000):
            stream.line(line)
    assert stream.turn.text.endswith("word word ")
    assert 100_000 < len(stream.turn.text) < 1_000_000


# ---------------------------------------------------------------- a night


def test_a_stop_hook_that_never_lets_an_agent_end_blocks_the_task(repo: Repo) -> None:
    plan(repo, own("T1"), own("T2"))
    line = json.dumps(says("Stop hook feedback:\nrun the tests", "user"))
    script = f"""
(OUT / 'runs').open('a').write(task)
while task == 'T1': print({line!r}, flush=True)
{MAKES}
print({json.dumps(ends())!r})
"""
    code, summary, printed = repo.run(speaker(repo, script))
    assert (code, repo.passed()) == (4, ["T2"]), printed
    said = "a Stop hook of Claude Code does not let it end: run the tests"
    assert (summary["tasks"][0]["reason"], repo.read("../runs")) == (said, "T1T2")


def test_what_was_denied_and_what_an_agent_asked_stand_in_the_next_prompt(
    repo: Repo,
) -> None:
    plan(repo, own("T1"), limits={"attempts": 3})
    denied = {"tool_name": "Write", "tool_input": {"file_path": ".claude/a.md"}}
    refused = ends("", permission_denials=[denied])
    words = [refused, ends("Shall I use red?"), ends()]
    script = f"""
(OUT / f'prompt-{{attempt}}').write_text(prompt)
print(json.dumps({words!r}[attempt - 1]))
"""
    assert repo.run(speaker(repo, script))[0] == 4
    assert "denied; find another way:\n- `Write: .claude/a.md`" in repo.read(
        "../prompt-2"
    )
    assert "its last words: Shall I use red?" in repo.read("../prompt-3")
    first = repo.records("verdict")[0]
    assert first["denied"] and "--full-permissions" in first["reason"]
