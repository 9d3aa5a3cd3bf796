"""What is asked before an agent is paid: the program of a task, and whether the commit
hooks let ralph's message pass."""

from __future__ import annotations

from _ralph.checks import hooks
from _ralph.checks.places import MESSAGE_HOOKS
from _ralph.checks.results import Results
from _ralph.checks.room import Room
from _ralph.checks.running import Checked, require_setup
from _ralph.loop.loop import Loop
from _ralph.model import Check, Task


def program_of(loop: Loop, task: Task) -> list[Check]:
    """The checks of a task: the plan's, then its own. A task that was set back once
    must keep the own checks of all passed tasks, too."""
    kept: list[Check] = []
    if loop.history.of(task).set_back:
        for other in loop.plan.tasks:
            if other.passed:
                kept += [check for check in other.checks if not check.once]
    return loop.plan.checks_for(task, kept)


def refused(loop: Loop, results: Results, task: Task, said: str, tip: str) -> str:
    """Why the commit hooks refuse this message of a task on the files of `tip`; nothing
    if they let it pass. SetupFailed if `setup` is red there."""
    if said in results.accepted or not loop.places.has_hooks(MESSAGE_HOOKS):
        return ""
    room = Room.at(loop.places, loop.paths.room)
    if not (results.built == loop.git.tree(tip) and room.go_on(tip)):
        results.built = ""
        results.save()
        setup = room.prepare(tip, "message")
        if setup:
            require_setup(Checked([setup]))
    why, _ = hooks.refused_message(loop.places, room, task, said)
    if not why:
        results.accepted.add(said)
        results.save()
    return why


def own_key(loop: Loop, task: Task) -> str:
    """By what it is known what a task's own checks said before its work: anew after a
    person opened the task again."""
    return f"{task.key}\n{loop.history.of(task).reopened}"
