"""Codex: its facts, and its events."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

from _ralph import files
from _ralph.agents.cli import Cli, Trust, words
from _ralph.agents.turn import Turn, get, objects, string
from _ralph.model import Json, Outcome

_LARGEST = 1 << 20
_LIMITED = re.compile(
    r"429 Too Many Requests|(status|error) 5\d\d |^rate limit exceeded"
    r"|^Selected model is at capacity|usage limit|^Quota exceeded|high demand"
    r"|stream disconnected|idle timeout|error sending request"
)
_CANNOT_RUN = re.compile(
    r"unexpected status 40[1347] |^The model .* does not exist"
    r"|^Missing environment variable|log out and sign in again"
)
_REFUSED = re.compile(r"^Reconnecting.*unexpected status 40[13] ")
_NO_SANDBOX = "bwrap: execvp codex-linux-sandbox: No such file or directory\n"


def read(turn: Turn, event: Json) -> None:
    """Read one event."""
    kind, item = event.get("type"), event.get("item")
    if kind == "thread.started":
        turn.session = string(event, "thread_id")
        turn.quiet = True
    elif kind == "turn.started":
        turn.quiet = True
    elif kind == "error":
        _error(turn, string(event, "message"))
    elif kind == "item.started":
        if get(item, "type") in ("command_execution", "mcp_tool_call", "web_search"):
            turn.use(string(item, "tool"), item)
    elif kind == "item.completed" and isinstance(item, dict):
        _completed(turn, item)
    elif kind == "turn.completed":
        turn.end(Outcome.DONE)
        usage = event.get("usage")
        cached = get(usage, "cached_input_tokens")
        sent, received = get(usage, "input_tokens"), get(usage, "output_tokens")
        turn.count(([sent], [received], cached))
    elif kind == "turn.failed":
        turn.fail(string(event, "error", "message"), _CANNOT_RUN, _LIMITED)


def _error(turn: Turn, message: str) -> None:
    """Something went wrong, of which it may recover."""
    turn.quiet = True
    if _REFUSED.search(message):
        turn.refuse_login()
    elif message.startswith("Reconnecting"):
        turn.retry = message


def _completed(turn: Turn, item: Json) -> None:
    """Words, changes or a command."""
    kind, status = item.get("type"), item.get("status")
    if kind == "agent_message":
        turn.text = string(item, "text")
        turn.say(turn.text)
    if kind == "file_change":
        for change in objects(item, "changes"):
            turn.use(string(change, "kind"), change)
    without_sandbox = item.get("aggregated_output") == _NO_SANDBOX
    if status == "declined" or (status == "failed" and without_sandbox):
        turn.deny("", item)


def _is_trusted(project: Path, env: Mapping[str, str]) -> bool:
    """Whether a person trusts this project."""
    folder = Path(env.get("CODEX_HOME") or Path(env.get("HOME", ""), ".codex"))
    data = files.read_regular(folder / "config.toml", _LARGEST) or b""
    try:
        config = tomllib.loads(data.decode("utf-8"))
    except ValueError:
        return False
    return bool(get(config, "projects", str(project), "trust_level") == "trusted")


CLI = Cli(
    argv=words(
        "codex exec --json --skip-git-repo-check {permissions} {trust} {args} -"
    ),
    version="codex --version",
    permissions={
        "read": words("--sandbox read-only"),
        "edit": words("--sandbox workspace-write"),
        "full": words("--dangerously-bypass-approvals-and-sandbox"),
    },
    trust=Trust(
        files=(".codex/config.toml",),
        home=_is_trusted,
        words=lambda _: ["--trust"],
    ),
    read=read,
    reports=("tokens",),
    reports_late=True,
    reads_rulebook=True,
    keys=("CODEX_API_KEY",),
    logins=(".codex/auth.json",),
    resume="codex resume {session}",
)
