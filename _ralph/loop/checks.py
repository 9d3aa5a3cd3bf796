"""Which checks apply."""

from __future__ import annotations

from collections.abc import Iterable

from _ralph.model import Check, Plan, Task


def checks_for(plan: Plan, task: Task) -> list[Check]:
    """The task's own checks, then the plan's, without duplicates."""
    return _distinct([*task.checks, *plan.checks])


def every_check(plan: Plan) -> list[Check]:
    """All checks of a plan that must hold at its end (not `once`), without duplicates."""
    every = [*plan.checks, *(check for task in plan.tasks for check in task.checks)]
    return _distinct(check for check in every if not check.once)


def _distinct(checks: Iterable[Check]) -> list[Check]:
    kept: dict[str, Check] = {}
    for check in checks:
        kept.setdefault(check.command, check)
    return list(kept.values())
