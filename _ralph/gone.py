"""What version 0.3 had and this one has not, each with what to do instead: options,
keys of prd.json, and the variables of options."""

from __future__ import annotations

import re
from collections.abc import Mapping

from _ralph.errors import BadInput
from _ralph.model import Plan

_WRAP = "--wrap, or `wrap` in the plan, runs agents and checks in a container or on a cluster"
_BWRAP = "--wrap 'bwrap.sh {place}' does the same; the script is in examples/ of ralph's repository"
_ROOM = "there is one clean room; --jobs works on several tasks at once"
_EVENTS = "the command of --notify is told of every event, and can pick: jq 'select(.event == \"blocked\")'"

OPTIONS = {
    "--launch": _WRAP,
    "--launch-checks": _WRAP,
    "--no-wait": "use --max-wait 0",
    "--notify-on": _EVENTS,
    "--rooms": _ROOM,
    "--sandbox": _BWRAP,
}
KEYS = {
    "launch": _WRAP,
    "network": f"{_BWRAP}, and bwrap --unshare-net in it cuts the network",
    "notifyOn": _EVENTS,
    "branch": "use branchName",
    "limits.rooms": _ROOM,
    "limits.stuck": "six tasks blocked in a row end a run",
}
CONFINED = {"launch", "network"}
"""The keys that confined agents: without them a run must not begin."""

_VARIABLE = re.compile("RALPH_(RUN_(?!ID$).+|PLAN_.+|PRD)")
"""Stood for an option."""


def instead_of(option: str) -> str:
    """What to say of an option that is gone; nothing of any other."""
    return f"{option} is gone: {OPTIONS[option]}" if option in OPTIONS else ""


def keys_in(plan: Plan) -> list[str]:
    """A warning of each key of the plan that is gone. BadInput for one that confined
    agents."""
    keys = [*plan.top]
    limits = plan.top.get("limits")
    if isinstance(limits, dict):
        keys += [f"limits.{key}" for key in limits]
    for task in plan.tasks:
        keys += CONFINED.intersection(task.raw)
    warnings = []
    for key in dict.fromkeys(keys):
        if key in KEYS:
            warnings.append(f"{plan.path.name}: `{key}` is gone: {KEYS[key]}")
            if key in CONFINED:
                raise BadInput(warnings[-1])
    return warnings


def refuse_variables(env: Mapping[str, str]) -> None:
    """BadInput if a variable is set that stood for an option, as RALPH_RUN_MAX_USD did:
    it may have been a limit, or have confined an agent."""
    if found := ", ".join(filter(_VARIABLE.fullmatch, env)):
        raise BadInput(f"{found} is set, and not read any more: use the option")
