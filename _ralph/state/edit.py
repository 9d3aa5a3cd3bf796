"""Edits of prd.json: one field of one task, or new tasks, and no other byte."""

from __future__ import annotations

import contextlib
import glob
import os
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.errors import BadInput, StopNow, TryLater
from _ralph.model import Json, Paths, Plan, Task
from _ralph.state import jsontext, prd
from _ralph.state.prd import ALIASES, DONE_WORDS, HELD_WORDS, status_of

_TRIES = 10
LOCK_PATIENCE = 10.0
LOOP_PATIENCE = 600.0
"""Seconds: many loops on a slow disk wait for each other."""


def set_passed(plan: Plan, tasks: Task | Iterable[Task], passed: bool) -> str:
    """The plan's text with the done fields of these tasks set, in the file's own words.

    Every boolean done field that a task has is set, and its status word. If it has
    neither, the field that other tasks use (else `passes`) is inserted.
    """
    field, word = _done_field(plan), _status(plan, passed)

    def edits(task: Task) -> Json:
        fields: Json = {}
        for key in ALIASES["passed"]:
            if isinstance(task.raw.get(key), bool):
                fields[key] = passed
        if isinstance(task.raw.get("status"), str):
            fields["status"] = word
        return fields or {field: passed}

    return _edit(plan, tasks, edits)


def set_blocked(plan: Plan, tasks: Task | Iterable[Task], reason: str) -> str:
    """The plan's text with the `blocked` field of these tasks set to `reason`."""
    return _edit(plan, tasks, lambda _: {"blocked": reason})


def set_open(plan: Plan, tasks: Task | Iterable[Task]) -> str:
    """The plan's text with these tasks unblocked."""

    def edits(task: Task) -> Json:
        fields: Json = {}
        for key in ALIASES["skip"]:
            if task.raw.get(key) is True:
                fields[key] = False
        if status_of(task.raw) in HELD_WORDS:
            fields["status"] = _status(plan, False)
        if task.raw.get("blocked"):
            fields["blocked"] = False
        return fields

    return _edit(plan, tasks, edits)


def add_note(plan: Plan, tasks: Task | Iterable[Task], note: str) -> str:
    """The plan's text with `note` at the end of these tasks' `notes`."""

    def edits(task: Task) -> Json:
        return {"notes": _with_note(task.raw.get("notes"), note)}

    return _edit(plan, tasks, edits)


def add_plan_note(plan: Plan, note: str) -> str:
    """The plan's text with `note` at the end of its own `notes`. BadInput if it is only
    a list of tasks."""
    if not plan.top:
        raise BadInput(
            f"{plan.path.name} is a list of tasks with no place for a note; name a task"
        )
    return set_members(plan, {"notes": _with_note(plan.top.get("notes"), note)})


def _with_note(there: object, note: str) -> object:
    if there in (None, "", [], {}):
        return note
    if isinstance(there, str):
        return f"{there.rstrip()}\n{note}"
    return [*(there if isinstance(there, list) else [there]), note]


def set_members(plan: Plan, members: Json) -> str:
    """The plan's text with these set at its top level."""
    return jsontext.rewrite(plan.text, plan.top, {**plan.top, **members})


def add_tasks(plan: Plan, entries: list[Json], in_place_of_all: bool = False) -> str:
    """The plan's text with open tasks at the end of its list, formatted as those that
    are there, or `in_place_of_all` of them. `entries` are never done or blocked."""
    taken: set[str] = set()
    all_entries: list[Any] = []
    if not in_place_of_all:
        taken = {task.id for task in plan.tasks}
        all_entries = _entries(plan)
    have_ids = any("id" in task.raw for task in plan.tasks)
    for entry in entries:
        new = {key: value for key, value in entry.items() if key not in prd.STATE_KEYS}
        if "id" not in new and have_ids:
            new = {"id": _next_id(plan, taken, prd.title_of(new)), **new}
        taken.add(str(new.get("id", "")))
        all_entries.append(new | {_done_field(plan): False})
    return _with_entries(plan, all_entries)


def apply(plan: Plan, change: Callable[[Plan], str]) -> Plan:
    """Write the text that `change` makes of the plan; the new plan.

    If somebody saved the file since the plan was read, `change` is called again with
    the newer plan. BadInput, and nothing is written, if that cannot be read, or if the
    new text is no plan.
    """
    for _ in range(_TRIES):
        source = change(plan)
        new = prd.read(source, plan.path)
        with contextlib.suppress(FileNotFoundError):
            if files.replace_if(plan.path, source.encode(), plan.text.encode()):
                return new
        plan = prd.load(plan.path)
    raise TryLater(
        f"{plan.path.name} keeps changing; close other programs that write it, and try again"
    )


@contextlib.contextmanager
def lock(folder: Path, must_stop: Callable[[], bool] | None = None) -> Iterator[None]:
    """The lock for edits of the plan with this private folder, and for its log, among
    processes of ralph. TryLater after 10 seconds; where `must_stop` is given, StopNow
    once that is true, and TryLater after 10 minutes."""
    folder.mkdir(parents=True, exist_ok=True)
    patience = LOOP_PATIENCE if must_stop else LOCK_PATIENCE
    try:
        lock = files.lock_at(folder / "prd.lock").acquire(
            timeout=patience, poll_interval=0.01, cancel_check=must_stop
        )
    except TimeoutError:
        if must_stop and must_stop():
            raise StopNow from None
        raise TryLater(
            "another ralph is changing the plan; try again in a moment"
        ) from None
    with lock:
        yield


def _edit(
    plan: Plan, tasks: Task | Iterable[Task], edits: Callable[[Task], Json]
) -> str:
    """The plan's text with fields of these tasks set. A task that is not in the plan
    any more, or has another title, is left out."""
    if isinstance(tasks, Task):
        tasks = [tasks]
    wanted = {task.key for task in tasks}
    entries = _entries(plan)
    for task in plan.tasks:
        if task.key in wanted:
            entries[task.index] = {**task.raw, **edits(task)}
    return _with_entries(plan, entries)


def _entries(plan: Plan) -> list[Any]:
    return list(plan.data[plan.list_key] if plan.list_key else plan.data)


def _with_entries(plan: Plan, entries: list[Any]) -> str:
    """The plan's text with these tasks."""
    new = {**plan.data, plan.list_key: entries} if plan.list_key else entries
    return jsontext.rewrite(plan.text, plan.data, new)


def _status(plan: Plan, done: bool) -> str:
    """The status word that this plan uses for tasks that are done, or open."""
    words = []
    for task in plan.tasks:
        word, meaning = task.raw.get("status"), status_of(task.raw)
        fits = meaning not in HELD_WORDS and (meaning in DONE_WORDS) == done
        if isinstance(word, str) and fits:
            words.append(word)
    return _most_used(words, "done" if done else "open")


def _done_field(plan: Plan) -> str:
    """The boolean done field that the plan's own tasks use."""
    fields = []
    for task in plan.tasks:
        fields += [key for key in ALIASES["passed"] if key in task.raw]
    return _most_used(fields, "passes")


def _most_used(words: list[str], default: str) -> str:
    return Counter(words).most_common(1)[0][0] if words else default


def _next_id(plan: Plan, taken: set[str], title: str) -> str | int:
    """The id after the last one, if ids here end in numbers (US-007, 7), else one from
    the title."""
    last = plan.tasks[-1]
    match = re.fullmatch(r"(.*?)(\d{1,9})", last.id, re.DOTALL)
    if not match:
        return prd.free_name(title, taken)
    prefix, digits = match.groups()
    number = int(digits)
    while f"{prefix}{number:0{len(digits)}}" in taken:
        number += 1
    if isinstance(last.raw.get("id"), int):
        return number
    return f"{prefix}{number:0{len(digits)}}"


def remove_half_written(paths: Paths) -> None:
    """Remove the new plan that an edit which was killed had not put in place yet."""
    real = Path(os.path.realpath(paths.prd))
    # as files.py names them
    random = "[0-9a-f]" * 12
    ours = f".{glob.escape(real.name)}.{random}{files.TEMPORARY}"
    left = [*real.parent.glob(ours)]
    if left:
        with lock(paths.private):  # so that no edit is under way
            for name in left:
                files.clear(name)
