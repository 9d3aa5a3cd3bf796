"""prd.json: read in any of its dialects, its tasks in order."""

from __future__ import annotations

import graphlib
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

from _ralph import files, gone, text
from _ralph.errors import BadInput
from _ralph.git.patterns import normal
from _ralph.model import Check, Json, Plan, Setup, Task, TaskLimits
from _ralph.state import schema

_DIALECTS = files.table("dialects.json")
ALIASES: dict[str, list[str]] = _DIALECTS["keys"]
"""Each meaning and its keys in files from real repositories, ours first."""
DONE_WORDS: list[str] = _DIALECTS["done"]
HELD_WORDS: list[str] = _DIALECTS["held"]
PRIORITY_WORDS: dict[str, int] = _DIALECTS["priority"]
SETTINGS = {
    *("agent", "agents", "allowOverage", "budget", "commit", "fallback", "judge"),
    *("keep", "limits", "planner", "prompt", "protect", "setup", "wrap"),
}
STATE_KEYS = {
    *ALIASES["passed"],
    *ALIASES["skip"],
    *ALIASES["blocked_reason"],
    "blocked",
    "status",
}
_NOT_FOR_AGENTS = {
    *SETTINGS,
    *ALIASES["tasks"],
    *gone.KEYS,
    "$schema",
    "branchName",
    "checks",
    "project",
}
_CONFLICT = re.compile(r"^<{7} ", re.MULTILINE)
_WAY_ON = "; `ralph plan FILE` makes a plan of anything else"


def load(path: Path) -> Plan:
    """The plan at `path`. BadInput says what is wrong, where, and what was expected."""
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise BadInput(f"{path} cannot be read: it is not a regular file; move it away")
    try:
        source = path.read_bytes().decode("utf-8")
    except UnicodeDecodeError as error:
        what = f"byte {error.start} is not UTF-8"
        raise BadInput(f"{path.name}: {what}; expected a JSON file in UTF-8") from None
    except FileNotFoundError:
        ways = "cd to your project, name its plan with --prd, or start one here: ralph init"
        if above := plan_above(path):
            ways = f"the plan is {above}: go there, or use --prd"
        raise BadInput(f"there is no {path}; {ways}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    return read(source, path)


def plan_above(path: Path) -> Path | None:
    """The plan of this name in a folder further up, for a person in a subfolder."""
    for folder in path.absolute().parent.parents:
        if (folder / path.name).is_file():
            return folder / path.name
    return None


def read(source: str, path: Path) -> Plan:
    """The plan in `source`, as if it were the file `path`; without a name it is called
    like its folder. BadInput as for `load`."""
    data = _document(source, path)
    try:
        return _plan(data, source, path)
    except _WrongType:  # only then: to validate 20,000 tasks takes many seconds
        schema.validate(data, path.name)
        raise


def _plan(data: Any, source: str, path: Path) -> Plan:
    list_key, entries = _task_list(data, path)
    where = f"{path.name}: {list_key or 'document'}"
    tasks = [_task(entry, i, f"{where}[{i}]") for i, entry in enumerate(entries)]
    tasks = _with_ids(tasks, path.name)
    _check_dependencies(tasks, path.name)
    top = data if isinstance(data, dict) else {}
    settings = {}
    for key in sorted(SETTINGS):
        kinds = [dict] if key in ("agents", "budget", "limits") else []
        value = _get(top, key, *kinds)
        if key in ("protect", "keep"):
            value = list(_patterns(top, key, f"{path.name}: "))
        if value not in (None, []):
            settings[key] = value
    project = str(_get(top, "project") or path.resolve().parent.name)
    return Plan(
        path=path,
        text=source,
        data=data,
        list_key=list_key,
        tasks=tuple(tasks),
        project=text.one_line(project, 80),
        branch=_get(top, "branchName", str) or None,
        checks=parse_checks(_get(top, "checks", list) or [], f"{path.name}: checks"),
        setup=_setup(settings.get("setup")),
        settings=settings,
    )


def validate(plan: Plan) -> None:
    """Hold a plan against the schema. BadInput names the first wrong places, or a key
    that is nearly a known one."""
    if lines := misspelt(plan):
        raise BadInput("\n".join(lines))
    schema.validate(plan.data, plan.path.name)


def misspelt(plan: Plan) -> list[str]:
    """A line for each object of a plan with a key that is nearly a known one."""
    in_plan, in_task = schema.known_keys()
    known = [("", plan.top, in_plan)]
    for task in plan.tasks:
        known.append((f" {text.one_line(task.id, 60)}:", task.raw, in_task))
    lines = []
    for where, entry, keys in known:
        if wrong := schema.misspelt(entry, keys):
            lines.append(f"{plan.path.name}:{where} {wrong}")
    return lines


class _WrongType(BadInput):
    """A value of a type that has no meaning under its key."""


# ---------------------------------------------------------------- what follows from it


def ready_tasks(plan: Plan) -> list[Task]:
    """The tasks that are not passed, not blocked and whose dependencies passed, the
    next one first."""
    ready = []
    for task in plan.tasks:
        is_open = not task.passed and task.blocked is None
        if is_open and plan.passed_ids.issuperset(task.depends_on):
            ready.append(task)
    return sorted(ready, key=lambda task: (task.priority, task.index))


def unproved(plan: Plan) -> list[str]:
    """The ids of the tasks to do that nothing would prove: without a check of their own
    or of the plan, and without a judge."""
    if plan.checks or plan.settings.get("judge"):
        return []
    return [task.id for task in plan.tasks if not task.passed and not task.checks]


def constraints(plan: Plan) -> Json:
    """What the plan says beside its tasks and ralph's own settings: rules, goals,
    context. `notes` come first, as the prompt clips the rest."""
    return {
        key: value
        for key, value in {"notes": None, **plan.top}.items()
        if key not in _NOT_FOR_AGENTS and value not in ("", [], {}, None)
    }


def open_questions(plan: Plan) -> list[tuple[str, str]]:
    """The planner's questions, each with the answer that is assumed until a person
    gives one."""
    asked = []
    entries = plan.top.get("openQuestions")
    for entry in entries if isinstance(entries, list) else []:
        parts = entry if isinstance(entry, dict) else {"question": entry}
        if question := parts.get("question"):
            proposal = text.one_line(str(parts.get("proposal") or ""), 500)
            asked.append((text.one_line(str(question), 500), proposal))
    return asked


# ---------------------------------------------------------------- how it is read


def _document(source: str, path: Path) -> Any:
    """JSON in which no object has a key twice, and no number is NaN or infinite."""
    name = path.name
    if not source.strip():
        raise BadInput(f"{name} is empty; expected a JSON object with a list of tasks")
    source = source.removeprefix("\ufeff")
    try:
        return json.loads(
            source, object_pairs_hook=_unique_keys, parse_constant=_refuse_constant
        )
    except json.JSONDecodeError as error:
        why = f"{error.msg}{_WAY_ON}"
        if _CONFLICT.search(source):
            why = "git's conflict markers; resolve the conflict first"
        place = f"line {error.lineno}, column {error.colno}"
        raise BadInput(f"{name}, {place}: {why}") from None
    except RecursionError:
        raise BadInput(f"{name}: nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"{name}: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> Json:
    members: Json = {}
    for key, value in pairs:
        if key in members:
            raise ValueError(f"the key {key!r} appears twice in one object")
        members[key] = value
    return members


def _refuse_constant(word: str) -> None:
    raise ValueError(f"{word} is not JSON; expected a number or null")


def _task_list(data: Any, path: Path) -> tuple[str | None, list[Any]]:
    """The key of the list of tasks in a document, None if it is the document; and the
    list."""
    list_key, entries = None, data
    for key in ALIASES["tasks"]:
        if isinstance(data, dict) and key in data:
            list_key, entries = key, data[key]
            break
    if not isinstance(entries, list):
        found = json.dumps(entries)
        if isinstance(entries, dict):
            found = f"an object with {', '.join([*entries][:12])}"
        raise BadInput(
            f"{path.name}: expected a list of tasks under one of "
            f"{', '.join(ALIASES['tasks'])}, or as the whole document, found "
            f"{text.one_line(found)}{_WAY_ON}"
        )
    return list_key, entries


def _task(raw: Any, index: int, where: str) -> Task:
    if not isinstance(raw, dict):
        raise _WrongType(where)
    own = _get(raw, "id", int, str)
    given = "" if own is None else str(own)
    title = title_of(raw) or text.one_line(given, 120)
    if not title:
        raise BadInput(
            f"{where}: expected a title, a name or a description, found none"
        )
    passed, status = _get(raw, "passed", bool), _get(raw, "status", str)
    if passed is None:
        passed = status is not None and status_of(raw) in DONE_WORDS
    given_limits = _get(raw, "limits", dict) or {}
    limits = {
        name: value
        for name, value in given_limits.items()
        if name in TaskLimits._fields and type(value) in (int, float)
    }  # the schema refuses anything else
    return Task(
        id=given,
        title=title,
        index=index,
        raw=raw,
        criteria=_texts(raw, "criteria"),
        priority=_priority(raw, where),
        depends_on=_texts(raw, "depends_on"),
        passed=passed,
        blocked=_blocked(raw),
        checks=parse_checks(_get(raw, "checks", list) or [], f"{where}.checks"),
        allow=_patterns(raw, "allow", f"{where}."),
        agents=commands(_get(raw, "agent", list, str)),
        limits=TaskLimits(**limits),
    )


def status_of(raw: Json) -> str:
    """A raw task's status word, in small letters and without blanks around it."""
    return str(raw.get("status")).strip().lower()


def commands(given: list[Any] | str | None) -> tuple[str, ...]:
    """Agent commands, from one or from a list: a ladder."""
    listed = [given] if isinstance(given, str) else given or []
    return tuple(filter(None, listed))


def title_of(raw: Json) -> str:
    """A raw task's title: the first line of the first of its texts that is not
    blank."""
    for key in ALIASES["title"]:
        value = raw.get(key)
        if isinstance(value, str) and value.strip():
            return text.one_line(value.strip().splitlines()[0], 120)
    return ""


def _blocked(raw: Json) -> str | None:
    """Why a task is blocked, or None."""
    reason = _get(raw, "blocked", str, bool)
    if not isinstance(reason, str) or not reason:
        held = [key for key in ("blocked", *ALIASES["skip"]) if raw.get(key) is True]
        if status_of(raw) in HELD_WORDS:
            held.append(raw["status"])
        if not held:
            return None
        reason = _get(raw, "blocked_reason") or f"marked {held[0]}"
    return text.one_line(str(reason), 500) or "marked blocked"


def _priority(raw: Json, where: str) -> float:
    value = _get(raw, "priority", int, float, str)
    if value is None:
        return float("inf")
    if isinstance(value, (int, float)):
        return value
    word = value.strip().lower()
    if match := re.fullmatch(r"p?(\d{1,4})", word):
        return int(match[1])
    if word not in PRIORITY_WORDS:
        wanted = f"a number, P0 to P3, or {', '.join(PRIORITY_WORDS)}"
        raise BadInput(f"{where}.priority: expected {wanted}: {value!r}")
    return PRIORITY_WORDS[word]


def parse_checks(entries: list[Any], where: str) -> tuple[Check, ...]:
    """Checks from strings (run by the shell), lists (executed) and objects with
    `run`."""
    return tuple(_check(entry, f"{where}[{i}]") for i, entry in enumerate(entries))


def _check(value: Any, where: str) -> Check:
    entry = value if isinstance(value, dict) else {"run": value}
    command = _get(entry, "run", str, list) or ""
    run = command if isinstance(command, str) else _texts(entry, "run")
    if not "".join(run).strip():
        blank = "a blank one would always be green and prove nothing"
        raise BadInput(f"{where}: expected a command; {blank}")
    check = Check(
        name="",
        run=run,
        timeout=text.seconds(entry.get("timeout", 600), f"{where}.timeout"),
        once=_get(entry, "once", bool) or False,
        results=_get(entry, "results", str) or "",
        starts_red=_get(entry, "startsRed", bool) or False,
    )
    name = _get(entry, "name", str) or check.command
    return check._replace(name=text.one_line(name, 60))


def _setup(value: Any) -> Setup | None:
    """The command that makes a checkout ready: a text, or an object with `run` and
    `when`."""
    entry = value if isinstance(value, dict) else {"run": value}
    run = _get(entry, "run", str) or ""
    if run.strip():
        return Setup(run, _texts(entry, "when"))
    if isinstance(value, dict):
        raise _WrongType("setup")
    return None


def _with_ids(tasks: list[Task], where: str) -> list[Task]:
    """Give tasks without an id one made from their title; BadInput if two have the
    same."""
    taken: set[str] = set()
    for task in tasks:
        if task.id and task.id in taken:
            wanted = "expected ids that differ"
            raise BadInput(f"{where}: two tasks have the id {task.id!r}; {wanted}")
        taken.add(task.id)
    found = []
    for task in tasks:
        if not task.id:
            task = replace(task, id=free_name(task.title, taken))
            taken.add(task.id)
        found.append(task)
    return found


def free_name(title: str, taken: set[str]) -> str:
    """An id made from a title that is not `taken`."""
    free = name = text.slug(title).lower()
    number = 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _check_dependencies(tasks: list[Task], where: str) -> None:
    needs = {task.id: task.depends_on for task in tasks}
    for task_id, depends_on in needs.items():
        for other in depends_on:
            if other not in needs:
                what = f"{task_id} depends on {other!r}, and there is no such task"
                raise BadInput(f"{where}: {what}")
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        circle = " -> ".join(error.args[1][:8])
        what = "these tasks depend on each other in a circle"
        raise BadInput(f"{where}: {what}: {circle}") from None


def _get(raw: Json, meaning: str, *kinds: type) -> Any:
    """What stands in an object under the first key of this meaning, or None; _WrongType
    if it is none of `kinds`, where any are given."""
    for key in ALIASES.get(meaning, [meaning]):
        value = raw.get(key)
        if value is not None:
            if kinds and type(value) not in kinds:
                raise _WrongType(meaning)
            return value
    return None


def _texts(raw: Json, meaning: str) -> tuple[str, ...]:
    """A list of texts, numbers or objects with `text`; one text may stand alone."""
    value = _get(raw, meaning, list, str) or []
    texts = []
    for entry in [value] if isinstance(value, str) else value:
        if isinstance(entry, dict):
            entry = entry.get("text")
        if type(entry) not in (str, int):
            raise _WrongType(meaning)
        texts.append(str(entry))
    return tuple(texts)


def _patterns(raw: Json, meaning: str, where: str) -> tuple[str, ...]:
    """Patterns of files, normalized."""
    found = []
    for i, pattern in enumerate(_texts(raw, meaning)):
        found.append(normal(pattern, f"{where}{meaning}[{i}]"))
    return tuple(found)
