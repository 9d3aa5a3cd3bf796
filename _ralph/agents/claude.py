"""Claude Code: its facts, and its stream-json."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from _ralph import files
from _ralph.agents.cli import Cli, Trust, words
from _ralph.agents.turn import Turn, Usage, get, objects, string, tokens
from _ralph.model import Json, Outcome, Tokens

_SANDBOX = (
    '{"sandbox":{"enabled":true,"autoAllowBashIfSandboxed":true,'
    '"allowUnsandboxedCommands":false,"failIfUnavailable":true}}'
)
_SETTINGS = (".claude/settings.json", ".claude/settings.local.json")
_LARGEST = 8 << 20
_CANNOT_RUN = (
    "authentication_failed",
    "oauth_org_not_allowed",
    "account_on_hold",
    "verification_required",
    "billing_error",
    "model_not_found",
    "cloud_credential_error",
)
_STOP_HOOK = "Stop hook feedback"
_MOST_STOP_HOOKS = 10


def read(turn: Turn, event: Json) -> None:
    """Read one event."""
    kind = event.get("type")
    if kind == "assistant":
        _answer(turn, event)
    elif kind == "user":
        _feedback(turn, event)
    elif kind == "system":
        _system(turn, event)
    elif kind == "rate_limit_event":
        _limit(turn, event)
    elif kind == "result":
        _result(turn, event)


def _answer(turn: Turn, event: Json) -> None:
    """A part of a message. The whole message comes once for each of its parts."""
    message = event.get("message")
    for part in objects(message, "content"):
        if "text" in part:
            turn.text = string(part, "text")
            turn.say(turn.text)
        elif part.get("type") == "tool_use":
            turn.use(string(part, "name"), part.get("input"))
    turn.request(get(message, "id"), _usage(message))
    if event.get("error") in _CANNOT_RUN:
        turn.end(Outcome.UNAVAILABLE)


def _feedback(turn: Turn, event: Json) -> None:
    """What is said to the model, of which only a Stop hook's words matter: one that
    never lets it end costs a request each time."""
    for part in objects(event, "message", "content"):
        feedback = string(part, "text")
        turn.stop_hooks += feedback.startswith(_STOP_HOOK)
        if turn.stop_hooks >= _MOST_STOP_HOOKS:
            said = feedback.removeprefix(_STOP_HOOK).strip(": \n")
            turn.never = f"a Stop hook of Claude Code does not let it end: {said}"
            turn.cannot_succeed(Outcome.FAILED, turn.never)


def _system(turn: Turn, event: Json) -> None:
    """An event of the program itself."""
    kind = event.get("subtype")
    task = string(event, "task_id")
    if kind == "init":
        turn.session = string(event, "session_id")
        turn.final = None
        turn.quiet = True
    elif kind == "task_started":
        turn.background.add(task)
    elif kind == "task_notification":
        turn.background.discard(task)
    elif kind == "api_retry":
        turn.quiet = True
        if event.get("error_status") in (401, 403):
            turn.refuse_login()
        else:
            turn.retry = f"attempt {event.get('attempt')} of {event.get('max_retries')}"


def _limit(turn: Turn, event: Json) -> None:
    """What is left of a subscription."""
    limit = event.get("rate_limit_info")
    billed = (get(limit, "isUsingOverage"), get(limit, "overageInUse"))
    turn.overage = True in billed
    rejected = get(limit, "status") == "rejected"
    if rejected:
        turn.presumed = Outcome.LIMITED
        turn.reason = "the provider's usage limit is reached"
    if turn.overage or rejected:
        turn.reset = get(limit, "resetsAt")


def _result(turn: Turn, event: Json) -> None:
    """The end of a turn. A background task that ends later brings another one."""
    outcome = _outcome(event)
    if outcome:
        turn.end(outcome)
    turn.reason = string(event, "result")
    turn.text = turn.reason or turn.text
    turn.session = string(event, "session_id") or turn.session
    errors = event.get("errors")
    if errors and isinstance(errors, list):
        turn.reason = " ".join(map(str, errors))
    turn.denials = []
    for denied in objects(event, "permission_denials"):
        turn.deny(string(denied, "tool_name"), denied.get("tool_input"))
    turn.pay(event.get("total_cost_usd"), total=True)
    turn.count(_usage(event))
    _count_models(turn, objects(event, "modelUsage"))


def _outcome(event: Json) -> Outcome | None:
    failed = event.get("is_error")
    status = event.get("api_error_status")
    if failed is True and status in (401, 403, 404, 407):
        return Outcome.UNAVAILABLE
    if failed is True and status == 400:
        return Outcome.FAILED
    if event.get("terminal_reason") == "api_error":
        return Outcome.LIMITED
    if failed is True:
        return Outcome.FAILED
    return Outcome.DONE if failed is False else None


def _count_models(turn: Turn, models: list[Json]) -> None:
    """Count the running totals of all models, subagents' too."""
    whole = Tokens()
    for model in models:
        cached = model.get("cacheReadInputTokens")
        new = [model.get("inputTokens"), model.get("cacheCreationInputTokens")]
        whole.add(tokens(([*new, cached], [model.get("outputTokens")], cached)))
    if whole.total > turn.tokens.total:
        turn.tokens = whole


def _usage(value: object) -> Usage:
    """The tokens that a message or a result tells: sent, received, and cached of those
    sent."""
    usage = get(value, "usage")
    cached = get(usage, "cache_read_input_tokens")
    new = [get(usage, "input_tokens"), get(usage, "cache_creation_input_tokens")]
    return [*new, cached], [get(usage, "output_tokens")], cached


def _is_trusted(project: Path, env: Mapping[str, str]) -> bool:
    """Whether a person accepted Claude Code's question about this project."""
    folder = env.get("CLAUDE_CONFIG_DIR") or env.get("HOME", "")
    config = _read(Path(folder) / ".claude.json")
    answer = get(config, "projects", str(project), "hasTrustDialogAccepted")
    return answer is True


def _allowed(settings: Sequence[Path]) -> list[str]:
    """What the settings of a place allow, as words of the command: without a person's
    answer for the place itself, Claude Code leaves that out."""
    allowed = []
    for path in settings:
        rules = get(_read(path), "permissions", "allow")
        for rule in rules if isinstance(rules, list) else []:
            if isinstance(rule, str):
                allowed.append(rule)
    return ["--allowedTools", *allowed] if allowed else []


def _read(path: Path) -> object:
    """A file of JSON; None where there is none."""
    data = files.read_regular(path, _LARGEST) or b""
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


CLI = Cli(
    argv=words(
        "claude -p --output-format stream-json --verbose "
        "{permissions} {budget} {trust} {args}"
    ),
    version="claude --version",
    permissions={
        "read": words("--permission-mode plan"),
        "edit": (*words("--permission-mode acceptEdits --settings"), _SANDBOX),
        "full": words("--dangerously-skip-permissions"),
    },
    sandbox_needs=("bwrap", "socat"),
    trust=Trust(
        files=_SETTINGS,
        home=_is_trusted,
        words=_allowed,
    ),
    budget=words("--max-budget-usd {usd}"),
    read=read,
    # What tools gave, which is most of the output.
    skips=(
        b'{"type":"user","message":{"role":"user","content":[{"tool_use_id"',
        b'{"type":"user","message":{"role":"user","content":[{"type":"tool_result"',
    ),
    reports=("dollars", "tokens"),
    keys=("ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN"),
    logins=("$CLAUDE_CODE_OAUTH_TOKEN", ".claude/.credentials.json"),
    resume="claude --resume {session}",
    hints={
        "cannot be used with root": "as root, Claude Code takes full permissions only "
        "with IS_SANDBOX=1 in the environment"
    },
)
