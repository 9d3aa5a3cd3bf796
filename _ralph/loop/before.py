"""What is asked before an agent is paid: the program of a task, whether the attempt is
its last, and whether the commit hooks let ralph's message pass."""

from __future__ import annotations

import json

from _ralph.checks import hooks
from _ralph.checks.guard import fault_of
from _ralph.checks.places import MESSAGE_HOOKS, setup_failed
from _ralph.checks.results import Own, Results
from _ralph.checks.room import Room
from _ralph.checks.running import baseline
from _ralph.errors import SetupFailed
from _ralph.loop.loop import Loop
from _ralph.loop.stages import Begun
from _ralph.model import Check, CheckResult, Task, Verdict
from _ralph.state.limits import attempts_at


def program_of(loop: Loop, task: Task) -> list[Check]:
    """The checks of a task: the plan's, then its own. A task that was set back once
    must keep the own checks of all passed tasks, too."""
    kept: list[Check] = []
    if loop.history.of(task).set_back:
        for other in loop.plan.tasks:
            if other.passed:
                kept += [check for check in other.checks if not check.once]
    return loop.plan.checks_for(task, kept)


def is_last(loop: Loop, begun: Begun) -> bool:
    """Whether it is the task's last attempt, which starts clean."""
    return 1 < begun.number >= attempts_at(loop.limits, begun.task)


def refused(loop: Loop, results: Results, task: Task, said: str, tip: str) -> str:
    """Why the commit hooks refuse this message of a task on the files of `tip`; nothing
    if they let it pass. SetupFailed if `setup` is red there."""
    if said in results.accepted or not loop.places.has_hooks(MESSAGE_HOOKS):
        return ""
    room = Room.at(loop.places, loop.paths.room)
    if not (results.built == loop.git.tree(tip) and room.go_on(tip)):
        results.room_changes()
        setup = room.prepare(tip, "message")
        if setup:
            raise SetupFailed(setup_failed(setup))
    why = hooks.refused_message(loop.places, room, task, said)
    if not why:
        results.accepted.add(said)
    return why


def own_key(loop: Loop, task: Task) -> str:
    """By what it is known what a task's own checks said before its work: anew after a
    person opened the task again."""
    return f"{task.key}\n{loop.history.of(task).reopened}"


def own_checks(
    loop: Loop, results: Results, begun: Begun, tip: str
) -> tuple[Verdict, str] | None:
    """Run the task's own checks behind the plan's on `tip`, unless that is known. Why the task
    is set aside, if one of them cannot start. SetupFailed if `setup` is red."""
    own = [check.command for check in begun.task.checks]
    known = results.own.get(own_key(loop, begun.task))
    if known and set(own) <= known.green.keys():
        return None
    found = baseline(
        loop.places,
        results,
        tip,
        loop.plan.checks_for(begun.task),
        f"{begun.name}-before",
        begun.variables(loop.paths),
    )
    green = dict(known.green) if known else {}
    for result in found.checks:
        if result.command not in own:
            continue
        why = cannot_run(loop, begun.task, result)
        if why:
            return Verdict.SET_ASIDE, why
        green.setdefault(result.command, result.ok)
    results.own[own_key(loop, begun.task)] = Own(tip, green)
    loop.view.lines(found.notices)
    return None


def cannot_run(loop: Loop, task: Task, result: CheckResult) -> str:
    """Why a task's own check cannot run here, if it is red for a reason of the place.
    What the task's words name beside its checks it may be to make."""
    lacks = None if result.ok else fault_of(loop.places, result)
    said = {key: value for key, value in task.raw.items() if key != "checks"}
    if lacks is None or lacks.is_named_in(json.dumps(said, ensure_ascii=False)):
        return ""
    return f"check {result.name} cannot run here: {lacks.sentence}"
