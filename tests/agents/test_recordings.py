"""What comes of recorded runs of the real agents: one line a recording."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

from _ralph import text
from _ralph.agents.registry import find_agent, with_own
from _ralph.agents.running import conclude
from _ralph.agents.stream import Stream
from _ralph.model import AgentResult, Outcome, Tokens
from _ralph.process.process import Ended, ProcessResult
from tests.conftest import ROOT, cases

CURSOR = json.loads((ROOT / "examples/agents/cursor.json").read_text())
CLIS = with_own(CURSOR["agents"])
OWN = Path(__file__).parent.parent / "recordings"

# The agent, the recording and its exit status; the outcome, tokens in, out and cached,
# dollars, whether the session is known, the reset, whether it worked, and how the
# reason, or after a success the last message, begins. That of cursor-agent is not
# recorded: it was written after Cursor's documentation.
TABLE = """\
claude   400                       1    failed           0     0     0  0.00000 s -          act  Prompt is too long · the request is ~250000
claude   401                       1    unavailable      0     0     0  -       s -          -    not logged in: the provider answered 401 or
claude   401_retries0              1    unavailable      0     0     0  0.00000 s -          act  Invalid API key · Fix external API key
claude   429_noheader              1    limited          0     0     0  0.00000 s -          act  API Error: Request rejected (429) · This req
claude   bg_tool                   0    done         6750   102  3000  0.01779 s -          act  The background task has ended.
claude   budget                    1    failed        4500    68  2000  0.01186 s -          act  Reached maximum budget ($0.01)
claude   denied                    0    done         6600   102  3000  0.01704 s -          act  done
claude   expired                   1    unavailable     0     0     0  -       s -          -    not logged in: the provider answered 401 or
claude   hang                      143  failed           0     0     0  -       s -          -    its output ended without a final event (exit
claude   hang_timeout5             1    limited          0     0     0  0.00000 s -          act  Request timed out. If the API is slow to ans
claude   html_200                  1    limited         0     0     0  0.00000 s -          act  API Error: API returned an empty or malforme
claude   json_429                  1    limited          0     0     0  0.00000 s -          -    API Error: Request rejected (429) · This req
claude   maxturns                  1    failed        6750   102  3000  0.01779 s -          act  Reached maximum number of turns (3)
claude   no_credit                 1    unavailable     0     0     0  0.00000 s -          act  Credit balance is too low
claude   no_dns                    1    limited         0     0     0  0.00000 s -          act  API Error: Can't reach the API server — chec
claude   no_key                    1    unavailable     0     0     0  0.00000 s -          act  Not logged in · Please run /login
claude   no_model                  1    unavailable     0     0     0  0.00000 s -          act  There's an issue with the selected model (cl
claude   not_found                 1    unavailable     0     0     0  0.00000 s -          act  There's an issue with the selected model (cl
claude   ok                        0    done          4500    68  2000  0.01186 s -          act  Done: hello.txt is written.
claude   overage                   0    done         2200    34  1000  0.00284 s 1795393023 act  Nothing to do.
claude   overage_in_use            0    done         2200    34  1000  0.00284 s 1795393023 act  Nothing to do.
claude   root_refused              1    unavailable      0     0     0  -       - -          -    exit 1: --dangerously-skip-permissions canno
claude   sigint                    0    failed        2250    34  1000  0.00593 s -          act  [ede_diagnostic] result_type=user last_conte
claude   sigterm                   143  failed        2250     1  1000  -       s -          act  its output ended without a final event (exit
claude   stdin_12mb                1    unavailable      0     0     0  -       - -          -    exit 1: Error: piped stdin input exceeds 10M
claude   stop_hook                 143  failed      22000   340 10000  -       s -          act  a Stop hook of Claude Code does not let it end: [echo 'run the tests first' >&2; exit 2]
claude   sub_limit                 1    limited          0     0     0  0.00000 s 1795299183 act  You've hit your 5-hour limit · resets 10:13p
claude   text_429                  1    unavailable      0     0     0  -       - -          -    exit 1: no output
claude   untrusted                 0    done         4400    68  2000  0.01136 s -          act  done
codex    400                       1    failed           0     0     0  -       s -          -    {"error": {"message": "prompt is too long: 2
codex    401                       1    unavailable      0     0     0  -       s -          -    not logged in: the provider answered 401 or
codex    429_long_noretry          1    limited          0     0     0  -       s -          -    exceeded retry limit, last status: 429 Too M
codex    500                       1    limited          0     0     0  -       s -          -    We’re currently experiencing high demand, wh
codex    529                       1    limited          0     0     0  -       s -          -    unexpected status 529 <unknown status code>:
codex    expired                   1    unavailable     0     0     0  -       s -          -    Your access token could not be refreshed bec
codex    html_200                  1    limited         0     0     0  -       s -          -    stream disconnected before completion: strea
codex    html_407                  1    unavailable     0     0     0  -       s -          -    unexpected status 407 Proxy Authentication R
codex    no_dns                    -15  failed          0     0     0  -       s -          -    its output ended without a final event (exit
codex    no_key                    1    unavailable     0     0     0  -       s -          -    Missing environment variable: `SCRIPTED_KEY`
codex    no_login                  1    unavailable     0     0     0  -       s -          -    not logged in: the provider answered 401 or
codex    no_model                  1    unavailable     0     0     0  -       s -          -    The model `gpt-nope` does not exist or you d
codex    no_sandbox                0    done          4400    68  2000  -       s -          act  done
codex    not_found                 1    unavailable     0     0     0  -       s -          -    unexpected status 404 Not Found: <html> <hea
codex    ok                        0    done          4400    68  2000  -       s -          act  Done: hello.txt is written.
codex    overloaded_stream         1    limited         0     0     0  -       s -          -    Selected model is at capacity. Please try a
codex    quota_stream              1    limited          0     0     0  -       s -          act  Quota exceeded. Check your plan and billing
codex    rate_limit_stream         1    limited         0     0     0  -       s +11s       -    rate limit exceeded: Rate limit reached for
codex    sigkill                   -9   failed           0     0     0  -       s -          act  its output ended without a final event (exit
codex    untrusted                 0    done         2200    34  1000  -       s -          act  done
codex    usage_limit               1    limited          0     0     0  -       s 22:26      -    You’ve hit your usage limit. Upgrade to Pro
gemini   400                       144  failed           0     0     0  -       s -          -    [API Error: {"error":{"code":400,"message":"
gemini   401                       145  unavailable      0     0     0  -       s -          -    [API Error: {"error":{"code":401,"message":"
gemini   429_long                  173  limited          0     0     0  -       s +1h        -    [API Error: This request would exceed your o
gemini   expired                   41   unavailable     0     0     0  -       - -          -    exit 41: Manual authorization is required bu
gemini   html_200                  1    limited         0     0     0  -       s -          -    [API Error: Incomplete JSON segment at the e
gemini   no_dns                    -15  failed          0     0     0  -       s -          -    its output ended without a final event (exit
gemini   no_key                    41   unavailable     0     0     0  -       - -          -    exit 41: When using Gemini API, you must spe
gemini   no_login                  41   unavailable     0     0     0  -       - -          -    exit 41: Invalid auth method selected.; set
gemini   no_model                  1    unavailable     0     0     0  -       s -          -    [API Error: models/gemini-nope is not found
gemini   not_found                 1    unavailable     0     0     0  -       s -          -    [API Error: <html> <head><title>404 Not Foun
gemini   ok                        0    done          4400    68  2000  -       s -          act  Done: hello.txt is written.
gemini   sigint                    0    failed           0     0     0  -       s -          act  its output ended without a final event (exit
gemini   wrong_key                 144  unavailable     0     0     0  -       s -          -    [API Error: {"error":{"code":400,"message":"
opencode 400                       1    failed           0     0     0  -       s -          -    prompt is too long: 250000 tokens > 200000 m
opencode 401                       1    unavailable      0     0     0  -       s -          -    invalid x-api-key
opencode 429_long                  -15  failed           0     0     0  -       - -          -    its output ended without a final event (exit
opencode 429_noheader              1    limited          0     0     0  -       s -          -    This request would exceed your organization'
opencode 529                       1    limited          0     0     0  -       s -          -    Overloaded
opencode bad_json                  1    failed           0     0     0  -       s -          -    JSON parsing failed: Text: {"id": "chatcmpl-
opencode denied                    0    failed        2200    34  1000  0.00334 s -          act  its output ended without a final event (exit
opencode expired                   1    unavailable     0     0     0  -       s -          -    Provided authentication token is expired. Pl
opencode html_200                  -15  limited         0     0     0  0.00000 s -          -    the answer was empty
opencode no_dns                    1    limited         0     0     0  -       s -          -    Cannot connect to API: Unable to connect. Is
opencode no_key                    1    unavailable     0     0     0  -       s -          -    no key
opencode no_login                  1    unavailable     0     0     0  -       s -          -    no login or no such model, as far as opencod
opencode no_model                  1    unavailable     0     0     0  -       s -          -    The model `gpt-nope` does not exist or you d
opencode no_such_model             1    unavailable     0     0     0  -       s -          -    no login or no such model, as far as opencod
opencode not_found                 1    unavailable     0     0     0  -       s -          -    Not Found
opencode ok                        0    done          4400    68  2000  0.00918 s -          act  Done: hello.txt is written.
pi       400                       0    failed           0     0     0  0.00000 s -          -    400 prompt is too long: 250000 tokens > 2000
pi       401                       0    unavailable      0     0     0  0.00000 s -          -    401 invalid x-api-key
pi       429_noheader              0    limited          0     0     0  0.00000 s -          -    429 This request would exceed your organizat
pi       529                       0    limited          0     0     0  0.00000 s -          -    529 Overloaded
pi       expired                   0    unavailable     0     0     0  0.00000 s -          -    No API key for provider: anthropic
pi       html_200                  0    limited         0     0     0  0.00000 s -          act  the answer was empty
pi       no_dns                    0    limited         0     0     0  0.00000 s -          -    Connection error.
pi       no_key                    1    unavailable     0     0     0  -       s -          -    exit 1: No API key found for anthropic.; log
pi       no_login                  1    unavailable     0     0     0  -       s -          -    exit 1: No API key found for the selected mo
pi       no_model                  0    unavailable     0     0     0  0.00000 s -          -    404 The model `gpt-nope` does not exist or y
pi       not_found                 0    unavailable     0     0     0  0.00000 s -          -    404 <html> <head><title>404 Not Found</title
pi       ok                        0    done          4400    68  2000  0.00918 s -          act  Done: hello.txt is written.
pi       text_401                  1    unavailable      0     0     0  -       - -          -    exit 1: 401 invalid x-api-key
pi       text_ok                   0    failed           0     0     0  -       - -          -    its output ended without a final event (exit
aider    400                       0    failed           0     0     0  -       - -          -    litellm.BadRequestError: OpenAIException - p
aider    401                       0    unavailable      0     0     0  -       - -          -    litellm.AuthenticationError: AuthenticationE
aider    429_long                  0    limited          0     0     0  -       - -          -    litellm.RateLimitError: RateLimitError: Open
aider    bad_flag                  2    unavailable      0     0     0  -       - -          -    exit 2: aider: error: unrecognized arguments
aider    hang_timeout5             -15  limited          0     0     0  -       - -          -    litellm.Timeout: APITimeoutError - Request t
aider    html_200                  0    limited         0     0     0  -       - -          -    litellm.InternalServerError: InternalServerE
aider    length                    0    failed           0     0     0  -       - -          -    Model openai/gpt-4o has hit a token limit!
aider    no_dns                    0    limited         0     0     0  -       - -          -    litellm.InternalServerError: InternalServerE
aider    no_key                    0    unavailable     0     0     0  -       - -          -    litellm.AuthenticationError: AuthenticationE
aider    no_model                  0    unavailable     0     0     0  -       - -          -    litellm.NotFoundError: OpenAIException - The
aider    no_permission             0    limited         0     0     0  -       - -          -    litellm.APIError: APIError: OpenAIException
aider    not_found                 0    unavailable     0     0     0  -       - -          -    litellm.NotFoundError: NotFoundError: OpenAI
aider    ok                        0    done          2200    34     0  0.00459 - -          act  
aider    sigterm_wait              -15  failed           0     0     0  -       - -          -    its output ended without a final event (exit
cursor-agent documented            0    done             0     0     0  -       s -          act  I write it.Done: hello.txt is written.
"""
CASES = [tuple(line.split(None, 2)) for line in TABLE.splitlines()]


def played(name: str, case: str, code: int, lines: int | None = None) -> AgentResult:
    """The result of a recorded run, cut off after so many `lines`."""
    folder = OWN / name
    agent = find_agent(name, CLIS, "full")
    limits: dict[str, Any] = {}
    if "dollars" in agent.cli.reports and name != "cursor-agent":
        limits["usd_left"] = 1e6
    if "tokens" in agent.cli.reports and name != "cursor-agent":
        limits["tokens_left"] = 10**9
    stream = Stream(agent.cli, **limits)
    said = (folder / f"{case}.txt").read_bytes().split(b"\n")[:lines]
    stopped = any(stream.line(line) == "stop" for line in said)
    log, stderr = folder / f"{case}.analytics.jsonl", folder / f"{case}.stderr.txt"
    if log.exists() and lines is None:
        for line in log.read_bytes().splitlines():
            stream.line(line, printed=False)
    ended = Ended.STOPPED if stopped else Ended.ITSELF
    process = ProcessResult(exit=code, ended=ended, tail=said[-1].decode())
    said_on_stderr = stderr.read_text() if stderr.exists() else ""
    return conclude(agent, stream, process, said_on_stderr)


@pytest.mark.parametrize(
    ("name", "case", "wanted"), CASES, ids=[f"{a}-{c}" for a, c, _ in CASES]
)
def test_a_recorded_run(name: str, case: str, wanted: str) -> None:
    code, outcome, sent, received, cached, usd, session, reset, worked, *said = (
        wanted.split()
    )
    result = played(name, case, int(code))
    assert result.outcome == outcome
    assert result.tokens == Tokens(int(sent), int(received), int(cached))
    assert result.usd == (None if usd == "-" else pytest.approx(float(usd), abs=1e-5))
    assert bool(result.session) == (session == "s")
    assert told(result.reset, reset) == reset
    assert ("act" if result.active else "-") == worked
    assert " ".join((result.reason or result.text).split()).startswith(" ".join(said))
    assert bool(result.reason) == (outcome != "done")
    assert not result.no_price, "it reports what its row says"


def told(reset: float, form: str) -> str:
    """A reset as the table writes it: in an hour (`+1h`), by local clocks, or as unix
    time."""
    if not reset:
        return "-"
    if form.startswith("+"):
        ahead = text.seconds(form[1:])
        return form if abs(reset - time.time() - ahead) < 3 else str(reset)
    if ":" in form:
        return time.strftime("%H:%M", time.localtime(reset))
    return str(int(reset))


def test_every_recording_has_its_line() -> None:
    recorded = set()
    for path in OWN.glob("*/*.txt"):
        recorded.add((path.parent.name, path.name.split(".")[0]))
    assert recorded == {(name, case) for name, case, _ in CASES}


@pytest.mark.parametrize("name", ["claude", "codex", "gemini", "opencode", "pi"])
def test_a_recording_cut_off_before_its_last_word_is_never_done(name: str) -> None:
    said = (OWN / name / "ok.txt").read_text()
    whole = said.rstrip("\n").count("\n") + 1
    outcomes = [played(name, "ok", 0, lines).outcome for lines in range(1, whole + 1)]
    first = outcomes.index(Outcome.DONE)
    assert set(outcomes[:first]) == {Outcome.FAILED}
    assert first >= whole - 3  # pi says two things more behind its last message


def test_a_recording_of_aider_without_its_log_is_not_done() -> None:
    assert played("aider", "ok", 0, 1000).outcome is Outcome.FAILED


@cases("""
name      case        denied
claude    denied      Write: /repo/.claude/skills/x.md; Bash: curl http://x.y
codex     no_sandbox  /bin/bash -lc 'touch x'
opencode  denied      bash: touch x
""")
def test_denials_that_were_recorded(name: str, case: str, denied: str) -> None:
    assert played(name, case, 0).denials == denied.split("; ")
