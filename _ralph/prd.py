"""prd.json: read strictly, whatever its dialect; order the tasks; change one field's bytes."""

from __future__ import annotations

import contextlib
import graphlib
import json
import re
import stat
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from _ralph import text
from _ralph.ends import BadInput
from _ralph.files import atomic_write
from _ralph.model import Check, Plan, Task

# Each meaning and the keys it has in files found in real repositories, ours first.
ALIASES: dict[str, tuple[str, ...]] = {
    "tasks": ("userStories", "stories", "tasks", "features"),
    "project": ("project", "projectName", "productName", "name", "title", "repo"),
    "branch": ("branchName", "branch"),
    "title": ("title", "name", "description"),
    "criteria": ("acceptanceCriteria", "acceptance_criteria", "acceptance", "steps", "verification"),
    "depends_on": ("dependsOn", "depends_on", "dependencies"),
    "passed": ("passes", "passed", "completed", "complete", "done"),
    "skip": ("skip", "skipped"),
    "blocked_reason": ("blocked_reason", "blockedReason", "skipReason", "skip_reason"),
    "gates": ("qualityGates", "verifyCommands", "verifyCommand", "quality_gates"),
}
DONE_WORDS = (
    "done",
    "passing",
    "passed",
    "passes",
    "complete",
    "completed",
    "finished",
    "verified",
    "closed",
)
HELD_WORDS = ("blocked", "skipped", "cancelled", "canceled", "deferred", "on_hold", "wontfix")
PRIORITY_WORDS = {"critical": 0, "highest": 0, "high": 1, "medium": 2, "normal": 2, "low": 3, "lowest": 4}
SETTINGS = (
    "agent", "judge", "planner", "prompt", "setup", "commit",
    "protect", "limits", "budget", "network", "agents",
)  # fmt: skip

_STATE_KEYS = {*ALIASES["passed"], *ALIASES["skip"], *ALIASES["blocked_reason"], "blocked", "status"}
_PLAN_KEYS = {*SETTINGS, *ALIASES["tasks"], *ALIASES["branch"], "checks", "project", "description"}
_TASK_KEYS = {name for names in ALIASES.values() for name in names}
_TASK_KEYS |= {"id", "checks", "priority", "allow", "agent", "notes", "blocked", "status"}
_NOTHING: tuple[Any, ...] = ("", [], {}, None)
_LARGEST = 64 << 20
_DECODER = json.JSONDecoder()
_SPACE = re.compile(r"[ \t\r\n]*")
_STRING_OR_WORD = re.compile(r'"(?:\\.|[^"\\])*"|NaN|-?Infinity')


def load(path: Path) -> Plan:
    """The plan at `path`. BadInput says what is wrong, where, and what was expected."""
    return read(_read(path), path)


def read(source: str, path: Path, known: tuple[Task, ...] = ()) -> Plan:
    """The plan that `source` is, as if it stood at `path`; one without a name is called like its
    folder. Tasks that `known` has at the same place are taken from there. BadInput as for `load`."""
    where = path.name
    data = _document(source, where)
    list_key, entries = _task_list(data, where)
    top = data if isinstance(data, dict) else {}
    tasks = [
        known[i]
        if i < len(known) and known[i].raw == entry
        else _task(entry, i, f"{where}: {_at(list_key, i)}")
        for i, entry in enumerate(entries)
    ]
    tasks = _with_ids(tasks, where)
    _check_dependencies(tasks, where)
    settings = {key: top[key] for key in SETTINGS if top.get(key) is not None}
    _check_settings(settings, where)
    if "protect" in settings:  # a single pattern may stand without a list
        settings["protect"] = list(_strings(settings["protect"], f"{where}: protect"))
    return Plan(
        path=path,
        text=source,
        data=data,
        list_key=list_key,
        tasks=tuple(tasks),
        project=text.one_line(str(_first(top, "project") or path.resolve().parent.name), 80),
        branch=_string(_first(top, "branch"), f"{where}: branchName"),
        checks=parse_checks(top.get("checks"), f"{where}: checks"),
        settings=settings,
    )


def validate(plan: Plan, schema: Path) -> None:
    """Hold the whole document against prd.schema.json; BadInput names the first wrong place."""
    import jsonschema

    validator = jsonschema.Draft202012Validator(
        json.loads(schema.read_text(encoding="utf-8")), format_checker=jsonschema.FormatChecker(["regex"])
    )
    error = jsonschema.exceptions.best_match(validator.iter_errors(plan.data))
    if error is not None:
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path).lstrip(".")
        raise BadInput(f"{plan.path.name}: {place or 'document'}: {text.one_line(error.message, 300)}")


def next_task(plan: Plan) -> Task | None:
    """The first task that is not passed, not blocked and whose dependencies passed."""
    open_tasks = [task for task in plan.tasks if not task.passed and task.blocked is None]
    ready = [task for task in open_tasks if plan.passed_ids.issuperset(task.depends_on)]
    return min(ready, key=lambda task: (task.priority, task.index), default=None)


def set_passed(plan: Plan, task: Task, passed: bool) -> str:
    """The plan's text with this task's done fields set, in the file's own words.

    Every boolean done field that stands in the task is set, and its status word; where
    neither stands, the field that other tasks use (else `passes`) is inserted.
    """
    flags = [key for key in ALIASES["passed"] if isinstance(task.raw.get(key), bool)]
    edits: dict[str, Any] = dict.fromkeys(flags, passed)
    if isinstance(task.raw.get("status"), str):
        edits["status"] = _own_word(plan, DONE_WORDS, "done") if passed else _open_word(plan)
    if not edits:
        edits[_done_field(plan)] = passed
    return _edit(plan, task, edits)


def set_blocked(plan: Plan, task: Task, reason: str) -> str:
    """The plan's text with this task's `blocked` field set to `reason`."""
    return _edit(plan, task, {"blocked": reason})


def set_open(plan: Plan, task: Task) -> str:
    """The plan's text with whatever held this task back taken away."""
    edits: dict[str, Any] = {key: False for key in ALIASES["skip"] if task.raw.get(key) is True}
    if isinstance(task.raw.get("status"), str) and task.raw["status"].lower() in HELD_WORDS:
        edits["status"] = _open_word(plan)
    return _edit(plan, task, edits, remove="blocked")


def tasks_in(path: Path, source: str) -> list[dict[str, Any]]:
    """The raw tasks in a JSON text: one task, a list of them, or a whole plan; BadInput if there are none."""
    data = _document(source, path.name)
    if isinstance(data, dict) and not any(key in data for key in ALIASES["tasks"]):
        data = [data]
    list_key, entries = _task_list(data, path.name)
    for number, entry in enumerate(entries):
        _task(entry, number, f"{path.name}: {_at(list_key, number)}")
    return entries


def add_tasks(plan: Plan, entries: list[dict[str, Any]], in_place_of_all: bool = False) -> str:
    """The plan's text with open tasks at the end of its list, in the form of those that stand there;
    or `in_place_of_all` of them. What `entries` say about being done or held does not count."""
    taken = set() if in_place_of_all else {task.id for task in plan.tasks}
    shaped = []
    for entry in entries:
        new = {key: value for key, value in entry.items() if key not in _STATE_KEYS}
        if "id" not in new and any("id" in task.raw for task in plan.tasks):
            new = {"id": _next_id(plan, taken, new), **new}
        taken.add(str(new.get("id", "")))
        shaped.append(new | {_done_field(plan): False})
    return _put_at_end(plan, shaped, in_place_of_all)


def title_of(raw: dict[str, Any]) -> str:
    """A raw task's title: the first of its texts that says anything, its first line."""
    texts = [value.strip() for key in ALIASES["title"] if isinstance(value := raw.get(key), str)]
    return text.one_line(next((said.splitlines()[0] for said in texts if said), ""), 120)


def add_checks(plan: Plan, commands: list[str]) -> str:
    """The plan's text with `checks` set at its top level."""
    start = _skip(plan.text, 1 if plan.text.startswith("\ufeff") else 0)
    return _set_member(plan.text, start, "checks", json.dumps(commands, ensure_ascii=False))


def rewrite(plan: Plan, new_text: str) -> Plan:
    """Write `new_text` in the plan's place, atomically; BadInput before anything is written if it
    is no plan."""
    new = read(new_text, plan.path, plan.tasks)
    atomic_write(plan.path, new_text.encode("utf-8"))
    return new


def parse_checks(value: object, where: str) -> tuple[Check, ...]:
    """Checks from strings (run by the shell), lists (executed) and objects with `run`."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise BadInput(f"{where}: expected a list of commands, found {_found(value)}")
    return tuple(_check(entry, f"{where}[{i}]") for i, entry in enumerate(value))


def differences(plan: Plan, found: Path) -> str:
    """How another version of prd.json differs from `plan`, in a few words."""
    size = found.lstat().st_size if stat.S_ISREG(found.lstat().st_mode) else -1
    if not 0 <= size <= _LARGEST:
        return "it was no regular file of a sensible size any more"
    try:
        other = load(found)
    except BadInput:
        return "it could not be read any more"
    before, now = ({task.id: task for task in version.tasks} for version in (plan, other))
    both = [task_id for task_id in before if task_id in now]
    groups = {
        "had been set to pass": [i for i in both if now[i].passed and not before[i].passed],
        "had lost their pass": [i for i in both if before[i].passed and not now[i].passed],
        "had been rewritten": [i for i in both if _words(now[i]) != _words(before[i])],
        "had been deleted": [i for i in before if i not in now],
        "had been added": [i for i in now if i not in before],
    }
    return text.one_line("; ".join(f"{text.few(ids)} {what}" for what, ids in groups.items() if ids), 300)


def foreign_gates(plan: Plan) -> list[str]:
    """Commands under keys of other tools: offered in a message, never run unasked."""
    value = _first(plan.data, "gates") if isinstance(plan.data, dict) else None
    gates = [value] if isinstance(value, str) else value
    return [gate for gate in gates if isinstance(gate, str)] if isinstance(gates, list) else []


def open_questions(plan: Plan) -> list[tuple[str, str]]:
    """What the planner could not know: each question, and the answer that holds until a person gives one."""
    found = plan.data.get("openQuestions") if isinstance(plan.data, dict) else None
    asked = []
    for entry in found if isinstance(found, list) else []:
        parts = entry if isinstance(entry, dict) else {"question": entry}
        question, proposal = (
            text.one_line(str(parts.get(key) or ""), 500) for key in ("question", "proposal")
        )
        asked += [(question, proposal)] if question else []
    return asked


def misspelt(plan: Plan) -> Iterator[str]:
    """Keys of the plan and of its tasks that look like another word for one that is read."""
    if isinstance(plan.data, dict):
        yield from _misspelt([("the plan", plan.data)], _PLAN_KEYS)
    yield from _misspelt([(task.id, task.raw) for task in plan.tasks], _TASK_KEYS)


def _misspelt(objects: list[tuple[str, dict[str, Any]]], known: set[str]) -> Iterator[str]:
    """A line for each such key of `objects`, which come with their names."""
    import difflib

    for key in dict.fromkeys(key for _, raw in objects for key in raw if key not in known):
        if near := difflib.get_close_matches(key, known, 1, 0.8):
            where = [name for name, raw in objects if key in raw]
            have, found = "has" if len(where) == 1 else "have", text.one_line(repr(key), 60)
            yield f"{text.few(where)} {have} {found}, which is not read; is {near[0]!r} meant?"


def constraints(plan: Plan) -> dict[str, Any]:
    """What the plan says beside its tasks and ralph's own settings: rules, goals, context."""
    if not isinstance(plan.data, dict):
        return {}
    own = {
        *SETTINGS,
        *ALIASES["tasks"],
        *ALIASES["branch"],
        *ALIASES["gates"],
        "checks",
        "project",
        "$schema",
    }
    return {
        key: value for key, value in plan.data.items() if key not in own and value not in ("", [], {}, None)
    }


def _read(path: Path) -> str:
    try:
        raw = path.read_bytes()
    except FileNotFoundError:
        above = plan_above(path)
        ways = (
            f"the plan is {above}: go there, or use --prd"
            if above
            else "`ralph init` writes one, --prd names another"
        )
        raise BadInput(f"there is no {path}; {ways}") from None
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from None
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInput(
            f"{path.name}: byte {error.start} is not UTF-8; expected a JSON file in UTF-8"
        ) from None


def plan_above(path: Path) -> Path | None:
    """The plan of this name in a folder further up, for who stands in a subfolder."""
    folders = path.absolute().parent.parents
    return next((folder / path.name for folder in folders if (folder / path.name).is_file()), None)


def _document(source: str, where: str) -> Any:
    if not source.strip():
        raise BadInput(f"{where} is empty; expected a JSON object with a list of tasks")
    try:
        return json.loads(
            source.removeprefix("\ufeff"), object_pairs_hook=_unique_keys, parse_constant=_no_constant
        )
    except json.JSONDecodeError as error:
        raise BadInput(f"{where}, line {error.lineno}, column {error.colno}: {error.msg}") from None
    except _NotANumber as error:
        outside = next(m for m in _STRING_OR_WORD.finditer(source) if m[0] == str(error))
        line = source.count("\n", 0, outside.start()) + 1
        raise BadInput(f"{where}, line {line}: {error} is not JSON; expected a number") from None
    except (ValueError, RecursionError) as error:
        reason = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise BadInput(f"{where}: {reason}") from None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        key = Counter(key for key, _ in pairs).most_common(1)[0][0]
        near = next((str(v) for k, v in pairs if k in ("id", "title") and isinstance(v, str)), "the document")
        raise ValueError(f"the key {key!r} stands twice in one object (at {text.one_line(near, 60)})")
    return found


class _NotANumber(Exception):
    """NaN or Infinity, which Python's parser would take."""


def _no_constant(name: str) -> Any:
    raise _NotANumber(name)


def _task_list(data: Any, where: str) -> tuple[str | None, list[Any]]:
    expected = (
        f"expected a list of tasks under one of {', '.join(ALIASES['tasks'])}, or as the whole document"
    )
    if isinstance(data, list):
        list_key, entries = None, data
    elif isinstance(data, dict):
        list_key = next((key for key in ALIASES["tasks"] if key in data), None)
        if list_key is None:
            keys = ", ".join(list(data)[:12]) or "no keys"
            raise BadInput(f"{where}: found an object with {text.one_line(keys)}; {expected}")
        entries = data[list_key]
    else:
        raise BadInput(f"{where}: found {_found(data)}; {expected}")
    if not isinstance(entries, list):
        raise BadInput(f"{where}: {list_key}: {expected}, found {_found(entries)}")
    if not entries:
        raise BadInput(f"{where}: {list_key or 'the document'} is an empty list; expected at least one task")
    return list_key, entries


def _task(raw: Any, index: int, where: str) -> Task:
    if not isinstance(raw, dict):
        raise BadInput(f"{where}: expected a task object, found {_found(raw)}")
    given = raw.get("id")
    if given is not None and (isinstance(given, bool) or not isinstance(given, (str, int)) or given == ""):
        raise BadInput(f"{where}.id: expected a text or a whole number, found {_found(given)}")
    for key in ALIASES["title"]:
        _string(raw.get(key), f"{where}.{key}")
    title = title_of(raw)
    if not title and given is None:
        raise BadInput(f"{where}: expected a title, a name or a description, found none")
    return Task(
        id="" if given is None else str(given),
        title=title or text.one_line(str(given), 120),
        index=index,
        raw=raw,
        criteria=_criteria(_first(raw, "criteria"), f"{where}.acceptanceCriteria"),
        priority=_priority(raw.get("priority"), f"{where}.priority"),
        depends_on=_strings(_first(raw, "depends_on"), f"{where}.dependsOn"),
        passed=_passed(raw, where),
        blocked=_blocked(raw, where),
        checks=parse_checks(raw.get("checks"), f"{where}.checks"),
        allow=_strings(raw.get("allow"), f"{where}.allow"),
        agent=_string(raw.get("agent"), f"{where}.agent"),
    )


def _passed(raw: dict[str, Any], where: str) -> bool:
    flags = [key for key in ALIASES["passed"] if raw.get(key) is not None]
    if flags:  # the first one decides; later ones may be texts of their own
        if not isinstance(raw[flags[0]], bool):
            raise BadInput(f"{where}.{flags[0]}: expected true or false, found {_found(raw[flags[0]])}")
        return bool(raw[flags[0]])
    status = _string(raw.get("status"), f"{where}.status")
    return status is not None and status.lower() in DONE_WORDS


def _blocked(raw: dict[str, Any], where: str) -> str | None:
    value = raw.get("blocked")
    if value is not None and not isinstance(value, (str, bool)):
        raise BadInput(f"{where}.blocked: expected a reason (text), found {_found(value)}")
    if value:
        return (
            text.one_line(value, 500)
            if isinstance(value, str)
            else str(_first(raw, "blocked_reason") or "blocked")
        )
    held = [key for key in ALIASES["skip"] if raw.get(key) is True]
    if isinstance(raw.get("status"), str) and raw["status"].lower() in HELD_WORDS:
        held.append(raw["status"])
    return text.one_line(str(_first(raw, "blocked_reason") or f"marked {held[0]}"), 500) if held else None


def _priority(value: Any, where: str) -> float:
    if value is None:
        return float("inf")
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        with contextlib.suppress(OverflowError):
            return float(value)
        return float("inf")
    if isinstance(value, str):
        if match := re.fullmatch(r"[Pp]?(\d{1,4})", value.strip()):
            return float(match[1])
        if value.strip().lower() in PRIORITY_WORDS:
            return float(PRIORITY_WORDS[value.strip().lower()])
    raise BadInput(f"{where}: expected a number, P0 to P3, or high, medium or low, found {_found(value)}")


def _criteria(value: Any, where: str) -> tuple[str, ...]:
    entries = [value] if isinstance(value, str) else value if value is not None else []
    if not isinstance(entries, list):
        raise BadInput(f"{where}: expected a list of texts, found {_found(value)}")
    texts = []
    for i, entry in enumerate(entries):
        criterion = entry.get("text") if isinstance(entry, dict) else entry
        if not isinstance(criterion, str):
            raise BadInput(f"{where}[{i}]: expected a text or an object with `text`, found {_found(entry)}")
        texts.append(criterion)
    return tuple(texts)


def _check(value: Any, where: str) -> Check:
    entry = {"run": value} if isinstance(value, (str, list)) else value
    if not isinstance(entry, dict) or not entry.get("run"):
        raise BadInput(f"{where}: expected a command or an object with `run`, found {_found(value)}")
    run = entry["run"]
    if isinstance(run, list) and all(isinstance(word, str) for word in run):
        run = tuple(run)
    elif not isinstance(run, str):
        raise BadInput(f"{where}.run: expected a text or a list of texts, found {_found(run)}")
    if not "".join(run).strip():
        raise BadInput(f"{where}: the command is blank; it would always be green and prove nothing")
    unknown = set(entry) - {"name", "run", "timeout", "once"}
    if unknown:
        raise BadInput(f"{where}: unknown key {sorted(unknown)[0]!r}; a check has name, run, timeout, once")
    once = entry.get("once", False)
    if not isinstance(once, bool):
        raise BadInput(f"{where}.once: expected true or false, found {_found(once)}")
    timeout = text.seconds(entry.get("timeout", 600), f"{where}.timeout")
    check = Check(name="", run=run, timeout=timeout, once=once)
    name = _string(entry.get("name"), f"{where}.name") or check.command
    return replace(check, name=text.middle(name, 60))


def _with_ids(tasks: list[Task], where: str) -> list[Task]:
    """Give tasks without an id one made from their title; refuse ids that stand twice."""
    taken: set[str] = set()
    for task in tasks:
        if task.id in taken:
            raise BadInput(f"{where}: two tasks have the id {task.id!r}; expected ids that differ")
        taken.update({task.id} - {""})
    named = []
    for task in tasks:
        if task.id:
            named.append(task)
            continue
        name, number = text.slug(task.title).lower(), 2
        while name in taken:
            name, number = f"{text.slug(task.title).lower()}-{number}", number + 1
        taken.add(name)
        named.append(replace(task, id=name))
    return named


def _check_dependencies(tasks: list[Task], where: str) -> None:
    needs = {task.id: task.depends_on for task in tasks}
    for task_id, depends_on in needs.items():
        for other in depends_on:
            if other not in needs:
                raise BadInput(f"{where}: {task_id} depends on {other!r}, and there is no such task")
    try:
        graphlib.TopologicalSorter(needs).prepare()
    except graphlib.CycleError as error:
        circle = " -> ".join(error.args[1][:8])
        raise BadInput(f"{where}: these tasks depend on each other in a circle: {circle}") from None


def _check_settings(settings: dict[str, Any], where: str) -> None:
    for key in ("agent", "judge", "planner", "prompt", "setup", "commit"):
        _string(settings.get(key), f"{where}: {key}")
    for key in ("limits", "budget", "agents"):
        if not isinstance(settings.get(key, {}), dict):
            raise BadInput(f"{where}: {key}: expected an object, found {_found(settings[key])}")


def _edit(plan: Plan, task: Task, edits: dict[str, Any], remove: str | None = None) -> str:
    """The plan's text with fields of one task set (and one removed), every other byte kept."""
    source = plan.text
    for key, value in edits.items():
        at = _task_start(source, plan.list_key, task.index)
        source = _set_member(source, at, key, dump(value))
    if remove is not None and remove in task.raw:
        source = _remove_member(source, _task_start(source, plan.list_key, task.index), remove)
    return source


def dump(value: Any, indent: str | None = None) -> str:
    """JSON in readable letters, where they can be written as UTF-8."""
    dumped = json.dumps(value, ensure_ascii=False, indent=indent)
    if dumped.isascii() or not re.search("[\ud800-\udfff]", dumped):
        return dumped
    return json.dumps(value, indent=indent)


def _task_start(source: str, list_key: str | None, index: int) -> int:
    at = _skip(source, 1 if source.startswith("\ufeff") else 0)
    if list_key is not None:
        at = next(start for key, _, start, _ in _members(source, at, list_key) if key == list_key)
    at = _skip(source, at + 1)
    for _ in range(index):
        at = _skip(source, _DECODER.raw_decode(source, at)[1])
        at = _skip(source, at + 1)  # the comma
    return at


def _members(source: str, at: int, last: str | None = None) -> Iterator[tuple[str, int, int, int]]:
    """Key, where the key starts, where its value starts and ends, for the object at `at`; the value of
    `last` is not read, and nothing comes after it."""
    at = _skip(source, at + 1)
    while source[at] != "}":
        key, end = _DECODER.raw_decode(source, at)
        start = _skip(source, _skip(source, end) + 1)
        if key == last:
            yield key, at, start, start
            return
        stop = _DECODER.raw_decode(source, start)[1]
        yield key, at, start, stop
        at = _skip(source, stop)
        if source[at] == ",":
            at = _skip(source, at + 1)


def _set_member(source: str, at: int, key: str, value: str) -> str:
    last: tuple[int, int] | None = None
    before = at + 1
    for name, key_start, start, stop in _members(source, at):
        if name == key:
            return source[:start] + value + source[stop:]
        gap = source[before:key_start].replace(",", "")  # the white space that sets members apart here
        last, before = (stop, len(gap)), stop
        space = gap
    member = f"{json.dumps(key)}: {value}"
    if last is None:
        return source[: at + 1] + member + source[at + 1 :]
    return source[: last[0]] + "," + (space if "\n" in space else " ") + member + source[last[0] :]


def _remove_member(source: str, at: int, key: str) -> str:
    previous: int | None = None
    for name, key_start, _, stop in _members(source, at):
        if name == key:
            if previous is not None:
                return source[:previous] + source[stop:]
            after = _skip(source, stop)
            return source[:key_start] + source[_skip(source, after + 1) if source[after] == "," else stop :]
        previous = stop
    return source


def _put_at_end(plan: Plan, entries: list[dict[str, Any]], in_place_of_all: bool) -> str:
    source = plan.text
    first = _task_start(source, plan.list_key, 0)
    last = _task_start(source, plan.list_key, len(plan.tasks) - 1)
    end = _DECODER.raw_decode(source, last)[1]
    gap = source[source.rindex("[", 0, first) + 1 : first]
    inner = re.match(r"\{\s*\n([ \t]*)", source[first:])  # a task over several lines, indented by so much
    outer, newline = gap.rpartition("\n")[2], "\r\n" if "\r\n" in gap else "\n"
    step = (inner[1].removeprefix(outer) or "  ") if inner else None
    dumped = [dump(entry, step).replace("\n", f"{newline}{outer}") for entry in entries]
    joined = f",{gap or ' '}".join(dumped)
    return (
        source[:first] + joined + source[end:]
        if in_place_of_all
        else f"{source[:end]},{gap or ' '}{joined}{source[end:]}"
    )


def _next_id(plan: Plan, taken: set[str], entry: dict[str, Any]) -> str | int:
    """The id after the last one, if ids here end in numbers (US-007, 7), else one from the title."""
    if match := re.fullmatch(r"(.*?)(\d+)", plan.tasks[-1].id, re.DOTALL):
        prefix, width = match[1], len(match[2])
        numbers = [
            int(task_id[len(prefix) :])
            for task_id in taken
            if re.fullmatch(re.escape(prefix) + r"\d{1,9}", task_id)
        ]
        following = f"{prefix}{max(numbers, default=0) + 1:0{width}}"
        return int(following) if isinstance(plan.tasks[-1].raw.get("id"), int) else following
    name = text.slug(title_of(entry)).lower()
    return next(free for n in range(1, 10_000) if (free := name if n == 1 else f"{name}-{n}") not in taken)


def _done_field(plan: Plan) -> str:
    """The boolean done field that this file's tasks use."""
    used = Counter(key for task in plan.tasks for key in ALIASES["passed"] if key in task.raw)
    return used.most_common(1)[0][0] if used else "passes"


def _skip(source: str, at: int) -> int:
    match = _SPACE.match(source, at)
    assert match is not None
    return match.end()


def _words(task: Task) -> dict[str, Any]:
    """What the person asked for: the task without its done fields."""
    flags = {*ALIASES["passed"], "status"}
    return {key: value for key, value in task.raw.items() if key not in flags}


def _own_word(plan: Plan, words: tuple[str, ...], default: str) -> str:
    """The status word of this kind that the file uses most."""
    used = Counter(str(t.raw["status"]) for t in plan.tasks if str(t.raw.get("status")).lower() in words)
    return used.most_common(1)[0][0] if used else default


def _open_word(plan: Plan) -> str:
    words = [str(task.raw["status"]) for task in plan.tasks if isinstance(task.raw.get("status"), str)]
    used = Counter(word for word in words if word.lower() not in (*DONE_WORDS, *HELD_WORDS))
    return used.most_common(1)[0][0] if used else "open"


def _first(raw: dict[str, Any], meaning: str) -> Any:
    return next((raw[key] for key in ALIASES[meaning] if raw.get(key) is not None), None)


def _string(value: Any, where: str) -> str | None:
    if value is not None and not isinstance(value, str):
        raise BadInput(f"{where}: expected a text, found {_found(value)}")
    return value or None


def _strings(value: Any, where: str) -> tuple[str, ...]:
    entries = [value] if isinstance(value, str) else [] if value is None else value
    if not isinstance(entries, list):
        raise BadInput(f"{where}: expected a list of texts, found {_found(value)}")
    for i, entry in enumerate(entries):
        if isinstance(entry, bool) or not isinstance(entry, (str, int)):
            raise BadInput(f"{where}[{i}]: expected a text, found {_found(entry)}")
    return tuple(str(entry) for entry in entries)


def _at(list_key: str | None, index: int) -> str:
    return f"{list_key or 'document'}[{index}]"


def _found(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "a list"
    return text.one_line(json.dumps(value, ensure_ascii=False, default=str), 60)
