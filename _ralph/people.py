"""What people ask of a plan: add, retry, stop. A loop that runs takes it up from its inbox, between
attempts; else it is done at once."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any

from _ralph import edit, inbox, place, prd, text
from _ralph.ends import BadInput
from _ralph.model import Plan, Task
from _ralph.night import add_tasks, new_entries, retry_task
from _ralph.run import Options, Run
from _ralph.session import at_rest

_LARGEST = 16 << 20


def add(prd_path: Path, use_git: bool, what: str, given: dict[str, Any]) -> list[str]:
    """Add one task with the title `what`, or those of the JSON file `what` (`-` is stdin); `given` is
    what else was said of it. What was done, in lines."""
    entries = _entries(what, given)
    with at_rest(Options(prd_path, git=use_git)) as (run, busy):
        there = {task.id for task in run.plan.tasks}
        known = [entry for entry in entries if str(entry.get("id", "")) in there]
        said = [f"{text.one_line(str(entry['id']))} is there already, and stays as it is" for entry in known]
        new = [entry for entry in entries if entry not in known]
        _refuse_what_nothing_proves(run.plan, new)
        tasks = _leave(run, new) if busy else add_tasks(run, new)
    when = ": the running loop takes it after its attempt" if busy else ""
    for task in tasks:
        weak = "" if task.checks else "; no check of its own proves it (--check)"
        said.append(text.one_line(f"added {task.id}: {task.title}{when}{weak}", 400))
    return said or ["nothing was new"]


def retry(prd_path: Path, use_git: bool, task_id: str, answer: str) -> str:
    """Open a task again, with a person's answer; what was done."""
    with at_rest(Options(prd_path, git=use_git)) as (run, busy):
        task = run.plan.task(task_id)
        if task.passed:
            raise BadInput(f"{task_id} has passed; to work it again, take its pass back in {prd_path.name}")
        if busy:
            inbox.leave(run.paths, {"event": "retry", "task": task_id, "answer": answer})
            return f"{task_id}: the running loop takes this up after its present attempt"
        retry_task(run, task_id, answer)
    was = "is open again" if task.is_blocked else "was not blocked; its attempts start at zero"
    return f"{task_id} {was}{'; your answer is noted' if answer else ''}; `ralph run` goes on"


def stop(prd_path: Path, use_git: bool) -> str:
    """Let the running loop stop after its attempt; what was done."""
    paths = place.locate(prd_path, use_git)
    holder = place.loop_at_work(paths)
    if holder is None:
        raise BadInput("no loop is running in this workspace")
    inbox.leave(paths, {"event": "stop", "run": holder["run_id"]})
    return f"the loop (pid {holder['pid']}) will stop after this attempt"


def _entries(what: str, given: dict[str, Any]) -> list[dict[str, Any]]:
    path = Path(what)
    if what == "-" or os.path.isfile(what) or (path.suffix == ".json" and len(what.split()) == 1):
        if given:
            raise BadInput(f"{what} is a file of tasks; what they are stands in it, and not in options")
        return prd.tasks_in(Path("stdin") if what == "-" else path, read_file(what))
    if not what.strip():
        raise BadInput("the title is empty; say what is to be done")
    return [{"title": what.strip(), **given}]


def _refuse_what_nothing_proves(plan: Plan, entries: list[dict[str, Any]]) -> None:
    """Where every task has checks of its own, one without any would stop the next run."""
    if plan.checks or plan.settings.get("judge") or not all(task.checks for task in plan.tasks):
        return
    if bare := [entry for entry in entries if not entry.get("checks")]:
        title = prd.title_of(bare[0])
        raise BadInput(f"nothing would prove {title!r}: the plan has no checks; --check 'COMMAND' names one")


def _leave(run: Run, entries: list[dict[str, Any]]) -> list[Task]:
    """Leave `entries` for the loop, as the tasks that they become in a plan in which others wait too."""
    if not entries:
        return []
    with inbox.turn(run.paths):
        messages = inbox.peek(run.paths)
        plan = prd.load(run.paths.prd)  # now: what the loop takes from the inbox meanwhile stands in it
        for message in messages:
            if waiting := new_entries(plan, message.get("tasks", [])):
                plan = prd.read(edit.add_tasks(plan, waiting), plan.path)
        plan = prd.read(edit.add_tasks(plan, entries), plan.path)
        prd.validate(plan)
        tasks = list(plan.tasks[-len(entries) :])
        inbox.leave(run.paths, {"event": "add", "tasks": [task.raw for task in tasks]})
    return tasks


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
