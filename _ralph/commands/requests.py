"""`ralph add`, `retry`, `tell` and `stop`. The first three edit prd.json under its
lock, also while a loop runs, which reads it before every attempt."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.model import Json, Plan, Task
from _ralph.state import edit, layout, prd
from _ralph.state.options import Options, is_starter
from _ralph.state.records import Journal, Retried


def add(prd_path: Path, title: str, given: Json) -> str:
    """Add a task with this title and the other fields that were `given`; what was
    done."""
    if not title.strip():
        raise BadInput("the title is empty; say what to do")
    entry = {"title": title.strip(), **given}

    def change(plan: Plan) -> str:
        if not (given.get("checks") or plan.checks or plan.settings.get("judge")):
            raise BadInput(
                f"nothing would prove {title!r}: the plan has no checks; name one with --check 'COMMAND'"
            )
        return edit.add_tasks(plan, [entry], in_place_of_all=is_starter(plan))

    task = _change(prd_path, change).tasks[-1]
    weak = "" if task.checks else "; no check of its own proves it (--check)"
    return text.one_line(f"added {task.id}: {task.title}{weak}", 400)


def retry(prd_path: Path, ids: Sequence[str], answer: str) -> str:
    """Open tasks again, with a person's answer in their notes; what was done. BadInput,
    and nothing is done, if one of them is not there."""
    before = prd.load(prd_path)
    tasks = [before.task(task_id) for task_id in dict.fromkeys(ids)]
    return "\n".join(
        _retry(prd_path, before.key, task, answer.strip()) for task in tasks
    )


def _retry(prd_path: Path, plan_key: str, task: Task, answer: str) -> str:
    """The record comes first: a loop at work marks a task again that has passed, unless
    the log says that a person opened it."""
    record = Retried(plan=plan_key, task=task.id, title=task.title, answer=answer)

    def change(plan: Plan) -> str:
        now = plan.task(task.id)
        opened = prd.read(edit.set_open(plan, now), plan.path)
        if now.passed:
            opened = prd.read(edit.set_passed(opened, now, False), plan.path)
        return edit.add_note(opened, now, answer) if answer else opened.text

    if task.passed or task.is_blocked:
        journal = Journal(layout.locate(prd_path).progress)
        journal.append(record, f"{task.id} {task.title} | opened again")
    _change(prd_path, change)
    state = (
        "is open again"
        if task.passed or task.is_blocked
        else "was not blocked and stays open"
    )
    return f"{task.id} {state}{'; your answer is in its notes' if answer else ''}"


def tell(prd_path: Path, note: str, task_id: str | None = None) -> str:
    """Put a person's note into a task, or into the plan; what was done."""
    note = note.strip()
    if not note:
        raise BadInput("the note is empty; write what the agent should know")
    if task_id is None:
        _change(prd_path, lambda plan: _noted(plan, note))
        return "noted in the plan; every new attempt reads it"
    _change(prd_path, lambda plan: edit.add_note(plan, _unpassed(plan, task_id), note))
    return f"{task_id}: noted; its next attempt reads it"


def _unpassed(plan: Plan, task_id: str) -> Task:
    task = plan.task(task_id)
    if task.passed:
        raise BadInput(f"{task_id} has passed; to work it again: ralph retry {task_id}")
    return task


def _noted(plan: Plan, note: str) -> str:
    """The plan's text with `note` in its notes. BadInput if that begins with a task's
    id."""
    first = note.split()[0]
    if any(task.id == first for task in plan.tasks):
        raise BadInput(f"is this for {first}? ralph tell {shlex.quote(first)} 'TEXT'")
    return edit.add_plan_note(plan, note)


def prompt(options: Options) -> str:
    """The prompt that an agent would get now for the task of --task, else for the next
    one. BadInput where there is none."""
    from _ralph.loop.attempt import preview
    from _ralph.loop.opening import read_run
    from _ralph.loop.rounds import next_task

    run = read_run(options)
    task = run.plan.task(options.task) if options.task else next_task(run)
    if task is None:
        raise BadInput(
            "there is no task to work on: every task has passed, is blocked, or waits"
        )
    return preview(run, task)


def stop(prd_path: Path) -> str:
    """Let the running loop stop after the attempts under way; what was done."""
    paths = layout.locate(prd_path)
    holder = layout.loop_at_work(paths)
    if holder is None:
        raise BadInput("no loop is running on this plan")
    files.atomic_write(layout.stop_file(paths), holder.run_id.encode())
    return f"the loop (pid {holder.pid}) will stop after the attempts under way"


def _change(prd_path: Path, change: Callable[[Plan], str]) -> Plan:
    """Change a plan under its lock; BadInput, and nothing is written, if it would be
    none any more."""
    with edit.lock(layout.locate(prd_path).private):
        return edit.apply(prd.load(prd_path), change)
