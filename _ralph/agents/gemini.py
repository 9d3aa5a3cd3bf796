"""Gemini CLI: its facts, and its events."""

from __future__ import annotations

import re

from _ralph.agents.cli import Cli, words
from _ralph.agents.turn import Turn, get, string
from _ralph.model import Json, Outcome

_MOST = 1 << 17
"""Characters that are kept of a message."""
_LONGEST_LINE = 10_000
_LIMITED = re.compile(
    r'Please wait and try again later|Suggested retry after|"code":(429|5\d\d)'
    r"|fetch failed|Incomplete JSON segment|API Error: *<"
)
_CANNOT_RUN = re.compile(
    r'"code":40[1347]|API key (not valid|expired)|is not found for API version'
    r"|<title>40[1347]"
)
_DENIED = re.compile(r"^Tool .*(denied by policy|not found in registry)")


def read(turn: Turn, event: Json) -> None:
    """Read one event."""
    kind = event.get("type")
    if kind == "message" and event.get("role") == "assistant":
        _fragment(turn, string(event, "content"))
        return
    if turn.unfinished is not None:  # the message is complete
        turn.say(turn.unfinished)
        turn.unfinished = None
    if kind == "init":
        turn.session = string(event, "session_id")
        turn.quiet = True
    elif kind == "message":
        turn.quiet = event.get("role") == "user"
    elif kind == "tool_use":
        turn.use("", event.get("parameters"))
    elif kind == "tool_result":
        message = string(event, "error", "message")
        if event.get("status") == "error" and _DENIED.search(message):
            turn.deny(message, None)
    elif kind == "result":
        _result(turn, event)


def _fragment(turn: Turn, words: str) -> None:
    """A piece of a message. It is heard in whole lines."""
    if turn.unfinished is None:
        turn.text = turn.unfinished = ""
    turn.active = True
    turn.text = (turn.text + words)[-_MOST:]
    lines = (turn.unfinished + words).split("\n")
    turn.unfinished = lines.pop()[:_LONGEST_LINE]
    if lines:
        turn.say("\n".join(lines))


def _result(turn: Turn, event: Json) -> None:
    """The last event."""
    stats = event.get("stats")
    cached = get(stats, "cached")
    sent, received = get(stats, "input_tokens"), get(stats, "output_tokens")
    turn.count(([sent], [received], cached))
    if event.get("status") == "success":
        turn.end(Outcome.DONE)
    elif event.get("status") == "error":
        turn.fail(string(event, "error", "message"), _CANNOT_RUN, _LIMITED)


CLI = Cli(
    argv=words("gemini --output-format stream-json --skip-trust {permissions} {args}"),
    version="gemini --version",
    permissions={
        "read": words("--approval-mode plan"),
        "edit": words("--approval-mode auto_edit"),
        "full": words("--yolo"),
    },
    read=read,
    reports=("tokens",),
    reports_late=True,
    keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
    logins=(".gemini/oauth_creds.json",),
    hints={
        "you must specify the GEMINI_API_KEY": "or log gemini in",
        "Invalid auth method selected": "set GEMINI_API_KEY, or log gemini in",
    },
)
