"""`ralph add`, `retry`, `tell`, `stop` and `prompt`. The first three edit prd.json under
its lock, also while a loop runs, which reads it before every attempt."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.model import Json, Plan
from _ralph.state import edit, layout, prd
from _ralph.state.log import Log
from _ralph.state.options import Options, is_starter
from _ralph.state.records import Retried


def add(prd_path: Path, title: str, given: Json) -> str:
    """Add a task with this title and the other fields that were `given`; what was
    done. BadInput if nothing would prove it."""
    title = title.strip()
    if not title:
        raise BadInput("the title is empty; say what to do")

    def change(plan: Plan) -> str:
        if not (given.get("checks") or plan.checks or plan.settings.get("judge")):
            raise BadInput(
                f"nothing would prove {title!r}: the plan has no checks; name one with --check 'COMMAND'"
            )
        for other in given.get("dependsOn") or ():
            plan.task(other)
        said = {k: value for k, value in given.items() if value not in (None, ())}
        entry = {"title": title, **said}
        return edit.add_tasks(plan, [entry], in_place_of_all=is_starter(plan))

    task = _change(prd_path, change).tasks[-1]
    said = f"added {task.id}: {task.title}"
    if not task.checks:
        said += "; no check of its own proves it (--check)"
    return text.one_line(said, 400)


def retry(prd_path: Path, ids: Sequence[str], answer: str) -> str:
    """Open tasks again, with a person's answer in their notes; what was done. BadInput,
    and nothing is done, if one of them is not there."""
    answer = answer.strip()
    paths = layout.locate(prd_path)
    said = []
    with edit.lock(paths.private):
        plan = prd.load(prd_path)
        tasks = [plan.task(task_id) for task_id in dict.fromkeys(ids)]
        for task in tasks:
            opened = partial(_opened, task_id=task.id, answer=answer)
            plan = edit.apply(plan, opened)
            line = f"{task.id} was not blocked and stays open"
            # The plan first: what is open there and not in the log, a run notes itself.
            if task.passed or task.is_blocked:
                line = f"{task.id} is open again"
                record = Retried(task=task.id, title=task.title, answer=answer)
                headline = f"{task.id} {task.title} | opened again"
                Log(paths.progress, plan).write(record, "", headline)
            if answer:
                line += "; your answer is in its notes"
            said.append(line)
    return "\n".join(said)


def _opened(plan: Plan, task_id: str, answer: str) -> str:
    """The text of a plan with this task open, and an answer in its notes."""
    task = plan.task(task_id)
    plan = prd.read(edit.set_open(plan, task), plan.path)
    if task.passed:
        plan = prd.read(edit.set_passed(plan, task, False), plan.path)
    return edit.add_note(plan, task, answer) if answer else plan.text


def tell(prd_path: Path, note: str, task_id: str | None = None) -> str:
    """Put a person's note into a task, or into the plan; what was done. BadInput for a
    task that has passed."""
    note = note.strip()
    if not note:
        raise BadInput("the note is empty; write what the agent should know")

    def change(plan: Plan) -> str:
        if task_id is None:
            if any(task.id == note for task in plan.tasks):
                raise BadInput(f"the note on {note} is empty: ralph tell {note} TEXT")
            return edit.add_plan_note(plan, note)
        task = plan.task(task_id)
        if task.passed:
            raise BadInput(
                f"{task_id} has passed; to work it again: ralph retry {task_id}"
            )
        return edit.add_note(plan, task, note)

    _change(prd_path, change)
    if task_id is None:
        return "noted in the plan; every new attempt reads it"
    return f"{task_id}: noted; its next attempt reads it"


def prompt(options: Options) -> str:
    """The prompt that an agent would get now for the task of --task, else for the next
    one. BadInput where there is none."""
    from _ralph.loop.claim import next_task
    from _ralph.loop.start import look
    from _ralph.loop.work import preview

    loop = look(options)
    task = loop.plan.task(options.task) if options.task else next_task(loop)
    if task is None:
        raise BadInput(
            "there is no task to work on: every task has passed, is blocked, or waits"
        )
    return preview(loop, task)


def stop(prd_path: Path) -> str:
    """Let the running loop stop after the attempts under way; what was done."""
    paths = layout.locate(prd_path)
    holder = layout.loop_at_work(paths)
    if holder is None:
        raise BadInput("no run of this plan is at work")
    files.atomic_write(layout.stop_file(paths), holder.run_id.encode())
    return f"the run (pid {holder.pid}) will stop after the attempts under way"


def _change(prd_path: Path, change: Callable[[Plan], str]) -> Plan:
    """Change a plan under its lock; the new plan. BadInput, and nothing is written, if
    it would be none any more."""
    with edit.lock(layout.locate(prd_path).private):
        return edit.apply(prd.load(prd_path), change)
