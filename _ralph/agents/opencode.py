"""OpenCode: its facts, and its events."""

from __future__ import annotations

import re

from _ralph.agents.cli import Cli, words
from _ralph.agents.turn import Turn, get, string
from _ralph.model import Json, Outcome

_DENIED = re.compile(r"rejected permission|specified a rule which prevents")
_UNKNOWN = "Unexpected server error"


def read(turn: Turn, event: Json) -> None:
    """Read one event."""
    kind, part = event.get("type"), event.get("part")
    if kind == "step_start":
        turn.session = string(event, "sessionID")
        turn.final = None
        turn.quiet = True
    elif kind == "text":
        turn.text = string(part, "text")
        turn.say(turn.text)
    elif kind == "tool_use":
        tool, given = string(part, "tool"), get(part, "state", "input")
        turn.use(tool, given)
        if _DENIED.search(string(part, "state", "error")):
            turn.deny(tool, given)
    elif kind == "step_finish":
        _step(turn, part)
    elif kind == "error":
        turn.session = string(event, "sessionID")
        _error(turn, event.get("error"))


def _step(turn: Turn, part: object) -> None:
    """The end of one request, with what it cost."""
    used = get(part, "tokens")
    cached = get(used, "cache", "read")
    sent = [get(used, "input"), cached, get(used, "cache", "write")]
    received = [get(used, "output"), get(used, "reasoning")]
    turn.count((sent, received, cached))
    turn.pay(get(part, "cost"))
    if get(part, "reason") == "stop":
        turn.end(Outcome.DONE)
    nothing = get(used, "input") == 0 and get(used, "output") == 0
    if get(part, "reason") == "unknown" and nothing:  # it would try forever
        turn.cannot_succeed(Outcome.LIMITED, "the answer was empty")


def _error(turn: Turn, error: object) -> None:
    """The last event of a run that failed."""
    data = get(error, "data")
    turn.reason = string(data, "message") or string(error, "name")
    unknown = get(error, "name") == "UnknownError" and turn.reason.startswith(_UNKNOWN)
    if unknown:
        turn.reason = f"no login or no such model, as far as opencode tells: {_UNKNOWN}"
    if unknown or get(data, "statusCode") in (401, 403, 404, 407):
        turn.end(Outcome.UNAVAILABLE)
    elif get(data, "isRetryable") is True:
        turn.end(Outcome.LIMITED)
        turn.reset = get(data, "responseHeaders", "retry-after")
    else:
        turn.end(Outcome.FAILED)


CLI = Cli(
    argv=words("opencode run --format json {permissions} {args}"),
    version="opencode --version",
    permissions={"read": words("--agent plan"), "full": words("--auto")},
    read=read,
    reports=("dollars", "tokens"),
    reads_rulebook=True,
    logins=(".local/share/opencode/auth.json",),
    resume="opencode --session {session}",
)
