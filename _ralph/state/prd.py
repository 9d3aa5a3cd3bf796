"""prd.json: read in any of its dialects, validated, its tasks in order."""

from __future__ import annotations

import functools
import graphlib
import json
import re
import shlex
import unicodedata
from collections import Counter
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from _ralph import files, gone, text
from _ralph.errors import BadInput
from _ralph.git.patterns import normal
from _ralph.model import Check, Json, Plan, Setup, Task, TaskLimits

_DIALECTS = files.table("dialects.json")
ALIASES: dict[str, list[str]] = _DIALECTS["keys"]
"""Each meaning and its keys in files from real repositories, ours first."""
DONE_WORDS: list[str] = _DIALECTS["done"]
HELD_WORDS: list[str] = _DIALECTS["held"]
PRIORITY_WORDS: dict[str, int] = _DIALECTS["priority"]
SETTINGS: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("fallback", "judge", "planner", "prompt", "commit"), (str,)),
    **dict.fromkeys(("limits", "budget", "agents"), (dict,)),
    **dict.fromkeys(("agent", "protect", "keep"), (list, str)),
    **dict.fromkeys(("setup", "wrap"), (str, dict)),
    "allowOverage": (bool,),
}

STATE_KEYS = {
    *ALIASES["passed"],
    *ALIASES["skip"],
    *ALIASES["blocked_reason"],
    "blocked",
    "status",
}
_PLAN_KEYS = {
    *SETTINGS,
    *ALIASES["tasks"],
    "branchName",
    *gone.KEYS,
    "checks",
    "project",
    "description",
}
_TASK_KEYS = {
    *STATE_KEYS,
    *ALIASES["title"],
    *ALIASES["criteria"],
    *ALIASES["depends_on"],
}
_TASK_KEYS |= {
    "id",
    "checks",
    "priority",
    "allow",
    "agent",
    "limits",
    "notes",
}
_SETTINGS_ONLY = _PLAN_KEYS - {"description"} | {*ALIASES["gates"], "$schema"}
TASK_LIMITS = tuple(field.name for field in fields(TaskLimits))
_KNOWN: dict[str, set[str]] = {
    "plan": _PLAN_KEYS | {*ALIASES["project"], *ALIASES["gates"], "$schema", "notes"},
    "task": _TASK_KEYS,
    "check": {"name", "run", "timeout", "once", "results"},
    "limits": {*_DIALECTS["limits"]},
    "budget": {"usd", "tokens"},
    "task limits": {*TASK_LIMITS},
}
"""The keys that are known, by where they stand."""


def load(path: Path) -> Plan:
    """The plan at `path`. BadInput says what is wrong, where, and what was expected."""
    if path.exists() and not path.is_file():  # a FIFO would be waited for
        raise BadInput(f"{path} cannot be read: it is not a regular file; move it away")
    try:
        return read(_decoded(path.read_bytes(), path.name), path)
    except FileNotFoundError:
        ways = "cd to your project, name its plan with --prd, or start one here: ralph init"
        if above := plan_above(path):
            ways = f"the plan is {above}: go there, or use --prd"
        raise BadInput(f"there is no {path}; {ways}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None


def plan_above(path: Path) -> Path | None:
    """The plan of this name in a folder further up, for a person in a subfolder."""
    folders = path.absolute().parent.parents
    return next(
        (folder / path.name for folder in folders if (folder / path.name).is_file()),
        None,
    )


def read(source: str, path: Path) -> Plan:
    """The plan in `source`, as if it were the file `path`; without a name it is called
    like its folder. BadInput as for `load`."""
    data = _document(source, path)
    try:
        return _plan(data, source, path)
    except _WrongType:  # only then: to validate 20,000 tasks takes many seconds
        _validate(data, path.name)
        raise


def _plan(data: Any, source: str, path: Path) -> Plan:
    list_key, tasks = _tasks(data, path)
    tasks = _named(tasks, path.name)
    _check_dependencies(tasks, path.name)
    top = data if isinstance(data, dict) else {}
    settings = {key: _get(top, key, *kinds) for key, kinds in SETTINGS.items()}
    for key in ("protect", "keep"):
        settings[key] = list(_patterns(top, key, f"{path.name}: ")) or None
    return Plan(
        path=path,
        text=source,
        data=data,
        list_key=list_key,
        tasks=tuple(tasks),
        project=text.one_line(
            str(_get(top, "project") or path.resolve().parent.name), 80
        ),
        branch=_get(top, "branchName", str) or None,
        checks=parse_checks(_get(top, "checks", list) or [], f"{path.name}: checks"),
        setup=_setup(settings["setup"]),
        settings={key: value for key, value in settings.items() if value is not None},
    )


def validate(plan: Plan) -> None:
    """Check the whole document against prd.schema.json; BadInput names the first wrong
    places, or a key that is nearly a known one."""
    _refuse_misspelt(plan)
    _validate(plan.data, plan.path.name)


def _validate(data: Any, name: str) -> None:
    import jsonschema

    standard = jsonschema.Draft202012Validator
    strict = standard.TYPE_CHECKER.redefine(
        "integer", lambda _, value: type(value) is int
    )  # 1.0 is no id
    validator: Any = jsonschema.validators.extend(standard, type_checker=strict)  # type: ignore[no-untyped-call]
    schema = json.loads(files.resource("prd.schema.json").read_text("utf-8"))
    errors = list(
        validator(
            schema, format_checker=jsonschema.FormatChecker(["regex"])
        ).iter_errors(data)
    )
    lines = []
    for error in [jsonschema.exceptions.best_match([one]) for one in errors[:3]]:
        place = "".join(
            f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path
        )
        place = place.removeprefix(".") if place.startswith(".") else f"document{place}"
        lines.append(f"{name}: {place}: {text.one_line(error.message, 300)}")
    if errors:
        more = f"\nand {len(errors) - 3} more" if len(errors) > 3 else ""
        raise BadInput("\n".join(lines) + more)


def _refuse_misspelt(plan: Plan) -> None:
    """BadInput for a key that is nearly one that is known where it stands."""
    name = plan.path.name
    _check_keys(plan.top, "plan", name)
    _check_keys(plan.top.get("limits"), "limits", f"{name}: limits")
    _check_keys(plan.top.get("budget"), "budget", f"{name}: budget")
    for check in plan.top.get("checks") or []:
        _check_keys(check, "check", f"{name}: checks")
    for task in plan.tasks:
        where = f"{name}: {text.one_line(task.id, 60)}"
        _check_keys(task.raw, "task", where)
        _check_keys(task.raw.get("limits"), "task limits", f"{where}: limits")
        for check in task.raw.get("checks") or []:
            _check_keys(check, "check", f"{where}: checks")


def _check_keys(entry: Any, kind: str, where: str) -> None:
    for key in entry if isinstance(entry, dict) else []:
        if meant := _meant(key, kind):
            found = text.one_line(repr(key), 60)
            raise BadInput(f"{where}: {found} is unknown; is {meant!r} meant?")


@functools.cache  # a long plan has the same few keys in each task
def _meant(key: str, kind: str) -> str:
    """The known key that `key` is nearly; empty if it is one, or there is none, and for
    a word that goes on after it (`blockedBy`, `completed_at`): that means another
    thing."""
    import difflib

    known = _KNOWN[kind]
    if key in known:
        return ""
    for close in difflib.get_close_matches(key, known, 1, 0.85):
        rest = key.removeprefix(close)
        if rest == key or rest[0].islower():
            return close
    return ""


class _WrongType(BadInput):
    """A value of a type that has no meaning under its key."""


# ---------------------------------------------------------------- what follows from it


def ready_tasks(plan: Plan) -> list[Task]:
    """The tasks that are not passed, not blocked and whose dependencies passed, the
    next one first."""
    open_tasks = [
        task for task in plan.tasks if not task.passed and task.blocked is None
    ]
    ready = [task for task in open_tasks if plan.passed_ids.issuperset(task.depends_on)]
    return sorted(ready, key=lambda task: (task.priority, task.index))


def next_task(plan: Plan) -> Task | None:
    """The first of the tasks that are ready."""
    return next(iter(ready_tasks(plan)), None)


def unproved(plan: Plan) -> list[str]:
    """The ids of the tasks to do that nothing would prove: without a check of their own
    or of the plan, and without a judge."""
    if plan.checks or plan.settings.get("judge"):
        return []
    return [task.id for task in plan.tasks if not task.passed and not task.checks]


def constraints(plan: Plan) -> Json:
    """What the plan says beside its tasks and ralph's own settings: rules, goals,
    context. `notes` come first, as the prompt clips the rest."""
    top = {"notes": plan.top.get("notes"), **plan.top}
    return {
        key: value
        for key, value in top.items()
        if key not in _SETTINGS_ONLY and value not in ("", [], {}, None)
    }


def foreign_gates(plan: Plan) -> list[str]:
    """Commands under keys of other tools: offered in a message, never run unasked."""
    gates = _get(plan.top, "gates")
    return [
        gate
        for gate in (gates if isinstance(gates, list) else [gates])
        if isinstance(gate, str)
    ]


def open_questions(plan: Plan) -> list[tuple[str, str]]:
    """The planner's questions, each with the answer that is assumed until a person
    gives one."""
    asked = []
    entries = plan.top.get("openQuestions")
    for entry in entries if isinstance(entries, list) else []:
        parts = entry if isinstance(entry, dict) else {"question": entry}
        if question := text.one_line(str(parts.get("question") or ""), 500):
            asked.append(
                (question, text.one_line(str(parts.get("proposal") or ""), 500))
            )
    return asked


# ---------------------------------------------------------------- how it is read


def _decoded(raw: bytes, name: str) -> str:
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{name}: byte {error.start} is not UTF-8; expected a JSON file in UTF-8"
        ) from None


def _document(source: str, path: Path) -> Any:
    """JSON in which no object has a key twice."""
    name = path.name
    if not source.strip():
        raise BadInput(f"{name} is empty; expected a JSON object with a list of tasks")
    source = source.removeprefix("\ufeff")

    try:
        return json.loads(source, object_pairs_hook=_unique_keys)
    except json.JSONDecodeError as error:
        way = "" if path.suffix == ".json" else _way_on(path)
        raise BadInput(
            f"{name}, line {error.lineno}, column {error.colno}: {error.msg}{way}"
        ) from None
    except RecursionError:
        raise BadInput(f"{name}: nested too deeply") from None
    except ValueError as error:
        raise BadInput(f"{name}: {error}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> Json:
    members = dict(pairs)
    if len(members) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        near = next(
            (str(v) for k, v in pairs if k in ("id", "title") and isinstance(v, str)),
            "the document",
        )
        raise ValueError(
            f"the key {key!r} appears twice in one object (at {text.one_line(near, 60)})"
        )
    return members


def _way_on(path: Path) -> str:
    """What a person can do with a file that is no plan in any form that is read
    here."""
    into = " --prd plan.json" if path.name == "prd.json" else ""
    return f"; to have an agent make a plan of it: ralph plan {shlex.quote(str(path))}{into}"


def _tasks(data: Any, path: Path) -> tuple[str | None, list[Task]]:
    """The key of the list of tasks in a document, None if it is the document; and the
    tasks."""
    keys = [key for key in ALIASES["tasks"] if isinstance(data, dict) and key in data]
    list_key, entries = (keys[0], data[keys[0]]) if keys else (None, data)
    where = f"{path.name}: {list_key or 'document'}"
    if entries == []:
        raise BadInput(f"{where} is an empty list; expected at least one task")
    if not isinstance(entries, list):
        found = (
            f"an object with {', '.join([*entries][:12])}"
            if isinstance(entries, dict)
            else str(entries)
        )
        raise BadInput(
            f"{where}: expected a list of tasks under one of {', '.join(ALIASES['tasks'])}, or as the whole "
            f"document, found {text.one_line(found)}{_way_on(path)}"
        )
    return list_key, [
        _task(entry, i, f"{where}[{i}]") for i, entry in enumerate(entries)
    ]


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
    flag, _ = _get(raw, "passed", bool), _get(raw, "status", str)
    return Task(
        id=given,
        title=title,
        index=index,
        raw=raw,
        criteria=_texts(raw, "criteria"),
        priority=_priority(raw, where),
        depends_on=_texts(raw, "depends_on"),
        passed=flag if flag is not None else status_of(raw) in DONE_WORDS,
        blocked=_blocked(raw),
        checks=parse_checks(_get(raw, "checks", list) or [], f"{where}.checks"),
        allow=_patterns(raw, "allow", f"{where}."),
        agents=commands(_get(raw, "agent", list, str)),
        limits=_task_limits(_get(raw, "limits", dict) or {}, f"{where}.limits"),
    )


def _task_limits(entry: Json, where: str) -> TaskLimits:
    """A task's own limits. What the schema refuses is no limit."""
    values = {
        key: entry[key] for key in TASK_LIMITS if type(entry.get(key)) in (int, float)
    }
    for key, value in values.items():
        if not 0 < value < 10**12:
            raise BadInput(
                f"{where}.{key}: expected a number above 0 and below 1e12, found {value}"
            )
    return TaskLimits(**values)


def status_of(raw: Json) -> str:
    """A raw task's status word, in small letters and without blanks around it."""
    return str(raw.get("status")).strip().lower()


def commands(given: list[Any] | str | None) -> tuple[str, ...]:
    """Agent commands, from one or from a list: a ladder."""
    return tuple(filter(None, [given] if isinstance(given, str) else given or []))


def title_of(raw: Json) -> str:
    """A raw task's title: the first line of the first of its texts that is not
    blank."""
    texts = [
        value.strip()
        for key in ALIASES["title"]
        if isinstance(value := raw.get(key), str)
    ]
    return text.one_line(
        next((line.splitlines()[0] for line in texts if line), ""), 120
    )


def _blocked(raw: Json) -> str | None:
    """Why a task is blocked, or None."""
    reason = _get(raw, "blocked", str, bool)
    held = [key for key in ("blocked", *ALIASES["skip"]) if raw.get(key) is True]
    held += [raw["status"].strip()] if status_of(raw) in HELD_WORDS else []
    if held and reason in (True, False, "", None):
        reason = _get(raw, "blocked_reason") or f"marked {held[0]}"
    return text.one_line(str(reason), 500) or "marked blocked" if reason else None


def _priority(raw: Json, where: str) -> float:
    value = _get(raw, "priority", int, float, str)
    if not isinstance(value, str):
        return float("inf") if value is None else value
    word = value.strip().lower()
    if match := re.fullmatch(r"p?(\d{1,4})", word):
        return int(match[1])
    if word not in PRIORITY_WORDS:
        raise BadInput(
            f"{where}.priority: expected a number, P0 to P3, or {', '.join(PRIORITY_WORDS)}: {value!r}"
        )
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
        raise BadInput(
            f"{where}: expected a command; a blank one would always be green and prove nothing"
        )
    check = Check(
        name="",
        run=run,
        timeout=text.seconds(entry.get("timeout", 600), f"{where}.timeout"),
        once=_get(entry, "once", bool) or False,
        results=_get(entry, "results", str) or "",
    )
    return replace(
        check, name=text.middle(_get(entry, "name", str) or check.command, 60)
    )


def _setup(value: Any) -> Setup | None:
    """The command that makes a checkout ready: a text, or an object with `run` and
    `when`."""
    entry = value if isinstance(value, dict) else {"run": value}
    run = _get(entry, "run", str) or ""
    if isinstance(value, dict) and not run.strip():
        raise _WrongType("setup")
    return Setup(run, _texts(entry, "when")) if run.strip() else None


def _named(tasks: list[Task], where: str) -> list[Task]:
    """Give tasks without an id one made from their title; BadInput if two have the
    same."""
    used = Counter(task.id for task in tasks if task.id)
    for task_id, times in used.items():
        if times > 1:
            raise BadInput(
                f"{where}: two tasks have the id {task_id!r}; expected ids that differ"
            )
    taken, named = set(used), []
    for task in tasks:
        named.append(
            task if task.id else replace(task, id=free_name(task.title, taken))
        )
        taken.add(named[-1].id)
    return named


def free_name(title: str, taken: set[str]) -> str:
    """An id made from a title that is not `taken`: its letters, else a digest."""
    plain = unicodedata.normalize("NFKD", title)
    name = text.slug(title).lower()
    if not re.search("[A-Za-z0-9]", plain):
        normal_form = unicodedata.normalize("NFC", title).encode("utf-8", "replace")
        name = f"task-{files.digest(normal_form)[:8]}"
    free, number = name, 1
    while free in taken:
        number += 1
        free = f"{name}-{number}"
    return free


def _check_dependencies(tasks: list[Task], where: str) -> None:
    needs = {task.id: task.depends_on for task in tasks}
    for task_id, depends_on in needs.items():
        for other in depends_on:
            if other not in needs:
                raise BadInput(
                    f"{where}: {task_id} depends on {other!r}, and there is no such task"
                )
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        circle = " -> ".join(error.args[1][:8])
        raise BadInput(
            f"{where}: these tasks depend on each other in a circle: {circle}"
        ) from None


def _get(raw: Json, meaning: str, *kinds: type) -> Any:
    """What stands in an object under the first key of this meaning, or None; _WrongType
    if it is none of `kinds`, where any are given."""
    for key in ALIASES.get(meaning, (meaning,)):
        value = raw.get(key)
        if value is not None:
            if kinds and type(value) not in kinds:
                raise _WrongType(meaning)
            return value
    return None


def _texts(raw: Json, meaning: str) -> tuple[str, ...]:
    """A list of texts, numbers or objects with `text`; one text may stand alone."""
    value = _get(raw, meaning, list, str) or []
    entries = [value] if isinstance(value, str) else value
    texts = [
        entry.get("text") if isinstance(entry, dict) else entry for entry in entries
    ]
    if not all(type(entry) in (str, int) for entry in texts):
        raise _WrongType(meaning)
    return tuple(str(entry) for entry in texts)


def _patterns(raw: Json, meaning: str, where: str) -> tuple[str, ...]:
    """Patterns of files, normalized."""
    return tuple(
        normal(pattern, f"{where}{meaning}[{i}]")
        for i, pattern in enumerate(_texts(raw, meaning))
    )
