"""What a person asks for on the command line, and which plans a run accepts with it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _ralph import gone
from _ralph.errors import BadInput
from _ralph.files import resource
from _ralph.model import Json, Paths, Plan
from _ralph.state import prd
from _ralph.state.summary import command_line


@dataclass(frozen=True)
class Options:
    """The command line; None and empty mean that prd.json or the default decides."""

    prd: Path = Path("prd.json")
    once: bool = False
    task: str | None = None
    agent: tuple[str, ...] = ()
    fallback: str | None = None
    checks: tuple[str, ...] = ()
    judge: str | None = None
    planner: str | None = None
    prompt: Path | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    until: str | None = None
    agent_timeout: float = 3600.0
    idle_timeout: float = 1200.0
    branch: str | None = None
    allow_overage: bool = False
    full_permissions: bool = False
    starts_red: bool = False
    wrap: str | None = None
    no_awake: bool = False
    notify: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False
    warnings: tuple[str, ...] = ()
    """Of options that are gone."""


def load_plan(paths: Paths, options: Options) -> Plan:
    """The plan of a run, as `admit` returns it; BadInput if --task names none of its
    tasks."""
    plan = admit(prd.load(paths.prd), paths, options)
    if options.task is not None:
        plan.task(options.task)
    return plan


def admit(plan: Plan, paths: Paths, options: Options) -> Plan:
    """The plan, validated, with the checks of the command line. BadInput if nothing
    could prove a task."""
    plan = validated(plan, options)
    if is_starter(plan):
        raise BadInput(
            f"{paths.prd.name} has only the example that `ralph init` wrote; edit it, or: "
            f"ralph plan brief.md, or: ralph add 'TITLE' --check 'COMMAND'"
        )
    if (unproved := prd.unproved(plan)) and not options.judge:
        raise BadInput(_no_checks(unproved[0], options.prd))
    return plan


def validated(plan: Plan, options: Options) -> Plan:
    """The plan, validated against the schema, with the checks of the command line.
    BadInput for a key that is gone and confined agents."""
    prd.validate(plan)
    gone.keys_in(plan)
    return replace(
        plan, checks=plan.checks + prd.parse_checks(list(options.checks), "--check")
    )


def is_starter(plan: Plan) -> bool:
    """Whether its tasks are still the example that `ralph init` wrote."""
    return bool([task.raw for task in plan.tasks] == starter()["userStories"])


def starter() -> Json:
    """The plan that `ralph init` writes, before it is filled in."""
    found: Json = json.loads(resource("templates/prd.json").read_text("utf-8"))
    return found


def _no_checks(unchecked: str, given: Path) -> str:
    words = ["--check", "YOUR TEST COMMAND"]
    return (
        f"{given.name}: there are no checks, so nothing could prove that {unchecked} is "
        f"done. `{command_line('init', given)}` adds those that it finds; or name them:\n\n"
        f"    {command_line('run', given, words)}\n\n"
        f'or write them under "checks" in {given.name}'
    )
