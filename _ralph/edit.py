"""prd.json changed: one field of one task, or new tasks, and no other byte."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

from _ralph import jsontext
from _ralph.files import atomic_write
from _ralph.model import Plan, Task
from _ralph.prd import ALIASES, DONE_WORDS, HELD_WORDS, STATE_KEYS, free_name, read, title_of


def set_passed(plan: Plan, task: Task, passed: bool) -> str:
    """The plan's text with this task's done fields set, in the file's own words.

    Every boolean done field that stands in the task is set, and its status word; where
    neither stands, the field that other tasks use (else `passes`) is inserted.
    """
    flags = [key for key in ALIASES["passed"] if isinstance(task.raw.get(key), bool)]
    edits: dict[str, Any] = dict.fromkeys(flags, passed)
    if isinstance(task.raw.get("status"), str):
        edits["status"] = _status(plan, passed)
    return _edit(plan, task, edits or {_done_field(plan): passed})


def set_blocked(plan: Plan, task: Task, reason: str) -> str:
    """The plan's text with this task's `blocked` field set to `reason`."""
    return _edit(plan, task, {"blocked": reason})


def set_open(plan: Plan, task: Task) -> str:
    """The plan's text with whatever held this task back taken away."""
    edits: dict[str, Any] = {key: False for key in ALIASES["skip"] if task.raw.get(key) is True}
    if str(task.raw.get("status")).lower() in HELD_WORDS:
        edits["status"] = _status(plan, False)
    source = _edit(plan, task, edits)
    if "blocked" in task.raw:
        source = jsontext.remove_member(source, _place(plan, task.index), "blocked")
    return source


def add_checks(plan: Plan, commands: list[str]) -> str:
    """The plan's text with `checks` set at its top level."""
    return jsontext.set_member(plan.text, jsontext.place(plan.text), "checks", commands)


def add_tasks(plan: Plan, entries: list[dict[str, Any]], in_place_of_all: bool = False) -> str:
    """The plan's text with open tasks at the end of its list, in the form of those that stand there;
    or `in_place_of_all` of them. What `entries` say about being done or held does not count."""
    taken = set() if in_place_of_all else {task.id for task in plan.tasks}
    shaped = []
    for entry in entries:
        new = {key: value for key, value in entry.items() if key not in STATE_KEYS}
        if "id" not in new and any("id" in task.raw for task in plan.tasks):
            new = {"id": _next_id(plan, taken, title_of(new)), **new}
        taken.add(str(new.get("id", "")))
        shaped.append(new | {_done_field(plan): False})
    return jsontext.add_entries(plan.text, _place(plan), shaped, in_place_of_all)


def rewrite(plan: Plan, new_text: str) -> Plan:
    """Write `new_text` in the plan's place, atomically; BadInput before anything is written if it
    is no plan."""
    new = read(new_text, plan.path, plan.tasks)
    atomic_write(plan.path, new_text.encode("utf-8"))
    return new


def _edit(plan: Plan, task: Task, edits: dict[str, Any]) -> str:
    """The plan's text with fields of one task set, every other byte kept."""
    source, at = plan.text, _place(plan, task.index)
    for key, value in edits.items():
        source = jsontext.set_member(source, at, key, value)
    return source


def _place(plan: Plan, *index: int) -> int:
    """Where the list of tasks begins, or one of them."""
    return jsontext.place(plan.text, *([plan.list_key] if plan.list_key else []), *index)


def _status(plan: Plan, done: bool) -> str:
    """The plan's own status word for a task that is done, or is open."""
    words = [task.raw["status"] for task in plan.tasks if isinstance(task.raw.get("status"), str)]
    if done:
        return _most_used((word for word in words if word.lower() in DONE_WORDS), "done")
    return _most_used((word for word in words if word.lower() not in (*DONE_WORDS, *HELD_WORDS)), "open")


def _done_field(plan: Plan) -> str:
    """The boolean done field that the plan's own tasks use."""
    return _most_used((key for task in plan.tasks for key in ALIASES["passed"] if key in task.raw), "passes")


def _most_used(words: Iterable[str], default: str) -> str:
    return next((word for word, _ in Counter(words).most_common(1)), default)


def _next_id(plan: Plan, taken: set[str], title: str) -> str | int:
    """The id after the last one, if ids here end in numbers (US-007, 7), else one from the title."""
    last = plan.tasks[-1]
    match = re.fullmatch(r"(.*?)(\d+)", last.id, re.DOTALL)
    if not match:
        return free_name(title, taken)
    prefix, width = match[1], len(match[2])
    alike = (re.fullmatch(re.escape(prefix) + r"(\d{1,9})", task_id) for task_id in taken)
    following = f"{prefix}{max((int(m[1]) for m in alike if m), default=0) + 1:0{width}}"
    return int(following) if isinstance(last.raw.get("id"), int) else following
