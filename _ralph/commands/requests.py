"""`ralph add`, `retry`, `tell` and `stop`. The first three edit prd.json under its lock, also while a loop
runs, which reads it before every attempt."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Callable
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.loop.options import Options, is_starter
from _ralph.model import Json, Plan, Task
from _ralph.state import edit, layout, prd
from _ralph.state.records import Journal, Retried

_LARGEST = 16 << 20


def add(prd_path: Path, title: str, given: Json) -> str:
    """Add a task with this title; `given` is what else was said of it. What was done."""
    if not title.strip():
        raise BadInput("the title is empty; say what to do")
    entry = {"title": title.strip(), **given}

    def change(plan: Plan) -> str:
        if not (given.get("checks") or plan.checks or plan.settings.get("judge")):
            raise BadInput(
                f"nothing would prove {title!r}: the plan has no checks; --check 'COMMAND' names one"
            )
        return edit.add_tasks(plan, [entry], in_place_of_all=is_starter(plan))

    task = _change(prd_path, change).tasks[-1]
    weak = "" if task.checks else "; no check of its own proves it (--check)"
    return text.one_line(f"added {task.id}: {task.title}{weak}", 400)


def retry(prd_path: Path, task_id: str, answer: str) -> str:
    """Open a task again, with a person's answer in its notes; what was done. The record comes first: a loop
    at work marks a task again that has passed, unless the log says that a person opened it."""
    paths, said = layout.locate(prd_path), answer.strip()
    before = prd.load(prd_path)
    task = before.task(task_id)
    record = Retried(plan=before.key, task=task.id, title=task.title, answer=said)

    def change(plan: Plan) -> str:
        now = plan.task(task_id)
        opened = prd.read(edit.set_open(plan, now), plan.path)
        if now.passed:
            opened = prd.read(edit.set_passed(opened, now, False), plan.path)
        return edit.add_note(opened, now, said) if said else opened.text

    if task.passed or task.is_blocked:
        Journal(paths.progress).append(record, f"{task.id} {task.title} | opened again")
    _change(prd_path, change)
    opened = "is open again" if task.passed or task.is_blocked else "was not blocked; its turn will come"
    return f"{task_id} {opened}{'; your answer is in its notes' if said else ''}"


def tell(prd_path: Path, said: str, task_id: str | None = None) -> str:
    """Put a person's words into the notes of a task, or of the plan; what was done."""
    words = said.strip()
    if not words:
        raise BadInput("there is nothing to tell; say what the agent should know")
    if task_id is None:
        _change(prd_path, lambda plan: _noted(plan, words))
        return "noted in the plan; every new attempt reads it"
    _change(prd_path, lambda plan: edit.add_note(plan, _unpassed(plan, task_id), words))
    return f"{task_id}: noted; its next attempt reads it"


def _unpassed(plan: Plan, task_id: str) -> Task:
    task = plan.task(task_id)
    if task.passed:
        raise BadInput(f"{task_id} has passed; to work it again: ralph retry {task_id}")
    return task


def _noted(plan: Plan, words: str) -> str:
    """The plan's text with `words` in its notes. BadInput if they begin with a task's id."""
    if named := next((task.id for task in plan.tasks if task.id == words.split()[0]), None):
        raise BadInput(f"is this for {named}? ralph tell {shlex.quote(named)} 'TEXT'")
    return edit.add_plan_note(plan, words)


def prompt(options: Options) -> str:
    """What the agent would be sent now for the task that is asked for, else for the next one. BadInput where
    there is none."""
    from _ralph.loop.attempt import preview
    from _ralph.loop.opening import peek
    from _ralph.loop.rounds import next_task

    run = peek(options)
    task = run.plan.task(options.task) if options.task else next_task(run)
    if task is None:
        raise BadInput("there is no task to work on: every task has passed, is blocked, or waits")
    return preview(run, task)


def stop(prd_path: Path) -> str:
    """Let the running loop stop after its attempt; what was done."""
    paths = layout.locate(prd_path)
    holder = layout.loop_at_work(paths)
    if holder is None:
        raise BadInput("no loop is running on this plan")
    files.atomic_write(layout.stop_file(paths), holder.run_id.encode())
    return f"the loop (pid {holder.pid}) will stop after what is under way"


def _change(prd_path: Path, change: Callable[[Plan], str]) -> Plan:
    """Change a plan under its lock; BadInput, and nothing is written, if it would be none any more."""
    with edit.lock(layout.locate(prd_path).private):
        return edit.apply(prd.load(prd_path), change)


def read_file(what: str) -> str:
    """The text of a file that a person named, or of stdin for `-`; BadInput if it is none."""
    try:
        with contextlib.nullcontext(sys.stdin.buffer) if what == "-" else Path(what).open("rb") as file:
            data = file.read(_LARGEST + 1)
    except OSError as error:
        raise BadInput(f"{what} cannot be read ({error.strerror}); - reads standard input") from None
    if len(data) > _LARGEST:
        raise BadInput(f"{what} is larger than 16 MB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(f"{what}: byte {error.start} is not UTF-8") from None
