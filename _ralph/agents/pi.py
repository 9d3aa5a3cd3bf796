"""Pi: its facts, and its events."""

from __future__ import annotations

import re

from _ralph.agents.cli import Cli, words
from _ralph.agents.turn import Turn, get, objects, string
from _ralph.model import Json, Outcome

_LIMITED = re.compile(r"^(429|5\d\d) |^Connection error|timed? ?out|^terminated")
_CANNOT_RUN = re.compile(r"^40[1347] |^No API key")
_QUIET = (
    "session",
    "agent_start",
    "turn_start",
    "auto_retry_start",
    "message_start",
    "message_end",
)


def read(turn: Turn, event: Json) -> None:
    """Read one event."""
    kind = event.get("type")
    turn.quiet = kind in _QUIET
    if kind == "session":
        turn.session = string(event, "id")
    elif kind == "agent_start":
        turn.final = None
    elif kind == "auto_retry_start":
        turn.retry = f"attempt {event.get('attempt')} of {event.get('maxAttempts')}"
    elif kind == "tool_execution_start":
        turn.use(string(event, "toolName"), event.get("args"))
    elif kind == "message_end" and get(event, "message", "role") == "assistant":
        _message(turn, event["message"])


def _message(turn: Turn, message: Json) -> None:
    """A whole message, with what its request cost."""
    said = [string(part, "text") for part in objects(message, "content")]
    turn.text = " ".join(filter(None, said))
    if said:
        turn.say(turn.text)
    usage = message.get("usage")
    cached = get(usage, "cacheRead")
    sent = [get(usage, "input"), cached, get(usage, "cacheWrite")]
    received = [get(usage, "output")]
    turn.count((sent, received, cached))
    turn.pay(get(usage, "cost", "total"))
    _end(turn, message)


def _end(turn: Turn, message: Json) -> None:
    """How a message ended."""
    ended = message.get("stopReason")
    nothing = get(message, "usage", "totalTokens") == 0
    if ended in ("error", "length", "aborted"):
        turn.fail(string(message, "errorMessage"), _CANNOT_RUN, _LIMITED)
    elif ended == "stop" and message.get("content") == [] and nothing:
        turn.end(Outcome.LIMITED)
        turn.active = True
        turn.reason = "the answer was empty"
    elif ended == "stop":
        turn.end(Outcome.DONE)


CLI = Cli(
    argv=words("pi -p --mode json {permissions} {args}"),
    version="pi --version",
    permissions={"read": words("--tools read,grep,find,ls"), "full": ()},
    read=read,
    # They hold the whole message so far, each time.
    skips=(b'{"type":"message_update"', b'{"type":"tool_execution_update"'),
    reports=("dollars", "tokens"),
    reads_rulebook=True,
    logins=(".pi/agent/auth.json",),
    hints={"No API key found": "log pi in, or set the key of its provider"},
    resume="pi --session {session}",
)
