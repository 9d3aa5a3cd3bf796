"""Aider: its facts, what it prints, and its own log."""

from __future__ import annotations

import re

from _ralph.agents.cli import Cli, words
from _ralph.agents.turn import Turn, get, string
from _ralph.model import Json, Outcome

_ERRORS = {
    Outcome.LIMITED: re.compile(
        r"^litellm\.(\w*(RateLimit|API|APIConnection|InternalServer"
        r"|ServiceUnavailable|BadGateway)Error|Timeout)"
    ),
    Outcome.UNAVAILABLE: re.compile(
        r"^litellm\.\w*(Authentication|PermissionDenied|NotFound)\w*Error"
    ),
    Outcome.FAILED: re.compile(
        r"^litellm\.\w*(BadRequest|ContextWindowExceeded|ContentPolicyViolation"
        r"|UnprocessableEntity)\w*Error|has hit a token limit"
    ),
}


def read(turn: Turn, event: Json) -> None:
    """Read a printed line, or an event of its log."""
    if "line" in event:
        _line(turn, string(event, "line"))
    elif event.get("event") == "message_send_starting":
        turn.final = None  # it fails where no `message_send` follows
    elif event.get("event") == "message_send":
        turn.end(Outcome.DONE)
        told = event.get("properties")
        sent, received = get(told, "prompt_tokens"), get(told, "completion_tokens")
        turn.count(([sent], [received], None))
        turn.pay(get(told, "total_cost"), total=True)


def _line(turn: Turn, line: str) -> None:
    """A printed line, which is shown: the model's words, or the program's own."""
    turn.words.append(("say", line))
    if line.startswith("Retrying in "):
        turn.retry = line
    for outcome, error in _ERRORS.items():
        if error.search(line):
            turn.presumed = outcome
            turn.reason = line


CLI = Cli(
    argv=words(
        "aider --message-file {prompt_file} --yes-always --no-auto-commits "
        "--no-pretty --no-stream --no-fancy-input --no-check-update "
        "--no-show-release-notes --no-analytics --analytics-log {log} "
        "--no-show-model-warnings --no-gitignore {permissions} {args}"
    ),
    version="aider --version",
    env={"COLUMNS": "1000000"},  # where it would break its lines, and JSON in them
    prompt="file",
    text=True,
    permissions={"read": ("--dry-run",), "edit": (), "full": ()},
    read=read,
    reports=("dollars", "tokens"),
    reports_late=True,
)
