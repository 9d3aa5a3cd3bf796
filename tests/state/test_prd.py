"""prd.json: every dialect read, every corruption refused, and one field's bytes
changed."""

from __future__ import annotations

import copy
import difflib
import functools
import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from _ralph.errors import BadInput, Exit
from _ralph.model import Plan, Setup, Task
from _ralph.state import edit, prd
from tests.conftest import ROOT, steps

SHAPED = ROOT / "tests/plans"
"""Plans as people have them, with other words."""
SCHEMA = ROOT / "prd.schema.json"


def write(folder: Path, source: str | bytes) -> Path:
    path = folder / "prd.json"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path


def load(folder: Path, source: str | bytes) -> Plan:
    return prd.load(write(folder, source))


def one(folder: Path, **fields: Any) -> Task:
    """The task that these fields make, with a title if they have none."""
    return load(folder, json.dumps([{"title": "a task", **fields}])).tasks[0]


# ---------------------------------------------------------------- files from the wild

# The file, how many tasks it has, how many passed, the next one; or what the refusal
# says.
WILD: dict[str, tuple[int, int, str | None] | tuple[str, ...]] = {
    "0d745d.json": (12, 0, "SETUP-001"),
    "36b03a.json": (19, 19, None),
    "573fcb.json": (1, 1, None),
    "7fde73.json": (23, 23, None),
    "87a6f4.json": (7, 6, None),  # the last one is skipped
    "92ea65.json": (2, 2, None),
    "97cd46.json": (25, 24, "rust-git-open-repo"),
    "9cfac3.json": (8, 8, None),
    "b24cf1.json": (8, 8, None),
    "c8f10e.json": (1, 0, "task-1"),
    "cb25d2.json": (55, 55, None),
    "cf8615.json": (
        "found an object with title, phases, notes",
        "userStories, stories, tasks, features",
    ),
    "ed1ec9.json": ("features is an empty list", "expected at least one task"),
}


@pytest.mark.parametrize("name", WILD)
def test_a_file_from_the_wild(name: str) -> None:
    wanted = WILD[name]
    if isinstance(wanted[0], int):
        plan = prd.load(SHAPED / name)
        prd.validate(plan)
        upcoming = prd.next_task(plan)
        passed = sum(task.passed for task in plan.tasks)
        assert (len(plan.tasks), passed, upcoming.id if upcoming else None) == wanted
    else:
        assert_refused(SHAPED / name, *(str(fragment) for fragment in wanted))


def test_every_file_from_the_wild_has_its_line() -> None:
    assert sorted(path.name for path in SHAPED.glob("*.json")) == sorted(WILD)


# ---------------------------------------------------------------- keys that are nearly known


# One line a case: keys of the plan, keys of its task, and what is said; nothing for a
# key that is shown to the agent as it stands.
@pytest.mark.parametrize(("top", "task", "said"), [
    ({"cheks": ["x"]}, {}, "prd.json: 'cheks' is unknown; is 'checks' meant?"),
    ({"protects": ["x"]}, {}, "'protects' is unknown; is 'protect' meant?"),
    ({"budgets": {"usd": 1}}, {}, "'budgets' is unknown; is 'budget' meant?"),
    ({"limits": {"iteration": 1}}, {}, "prd.json: limits: 'iteration' is unknown; is 'iterations' meant?"),
    ({"budget": {"token": 1}}, {}, "prd.json: budget: 'token' is unknown; is 'tokens' meant?"),
    ({"checks": ["x", {"run": "x", "timeouts": 5}]}, {}, "prd.json: checks: 'timeouts' is unknown; is 'timeout' meant?"),
    ({}, {"cheks": ["x"]}, "prd.json: T1: 'cheks' is unknown; is 'checks' meant?"),
    ({}, {"dependson": []}, "is 'depends_on' meant?"),
    ({}, {"acceptanceCriterion": []}, "is 'acceptanceCriteria' meant?"),
    ({}, {"acceptance_criterias": []}, "is 'acceptance_criteria' meant?"),
    ({}, {"limits": {"minute": 5}}, "prd.json: T1: limits: 'minute' is unknown; is 'minutes' meant?"),
    ({}, {"checks": [{"run": "x", "result": "junit"}]}, "prd.json: T1: checks: 'result' is unknown; is 'results' meant?"),
    ({"rules": "x", "phases": [], "maxUsd": 5, "project_id": 1}, {}, ""),
    ({}, {"blockedBy": [], "completed_at": "x", "completedAt": "x", "tests": "x", "estimate": 3}, ""),
    ({}, {"usd": 5, "setup": "x", "attempts": 2}, ""),  # known, but not here
])  # fmt: skip
def test_a_key_that_is_nearly_a_known_one_is_an_error(
    tmp_path: Path, top: dict[str, Any], task: dict[str, Any], said: str
) -> None:
    tasks = [{"id": "T1", "title": "x", **task}]
    plan = load(tmp_path, json.dumps({**top, "tasks": tasks}))
    if not said:
        prd.validate(plan)
        return
    with pytest.raises(BadInput, match=re.escape(said)):
        prd.validate(plan)


def test_many_strange_keys_are_looked_at_once(tmp_path: Path) -> None:
    def work(number: int) -> int:
        tasks = [{"id": i, "title": "x", "strange": i} for i in range(number)]
        plan = load(tmp_path, json.dumps(tasks))
        return steps(lambda: prd._refuse_misspelt(plan))

    work(1)
    assert work(400) < 400 * 40


# ---------------------------------------------------------------- words for the same thing


@pytest.mark.parametrize("key", ["userStories", "stories", "tasks", "features"])
def test_the_list_has_four_names(tmp_path: Path, key: str) -> None:
    plan = load(tmp_path, json.dumps({key: [{"id": 1, "title": "a"}], "phases": []}))
    assert (plan.list_key, [task.id for task in plan.tasks]) == (key, ["1"])


def test_the_list_may_be_the_document(tmp_path: Path) -> None:
    plan = load(tmp_path, '[{"id": "a", "title": "x"}]')
    assert (plan.list_key, plan.tasks[0].id, plan.project) == (None, "a", tmp_path.name)


@pytest.mark.parametrize(("fields", "wanted"), [
    ({"title": "T", "name": "N", "description": "D"}, "T"),
    ({"title": None, "name": "N", "description": "D"}, "N"),
    ({"title": None, "description": "first line\nsecond"}, "first line"),
    ({"title": "\n  two lines\nof it "}, "two lines"),
    ({"title": "\x1b[31mred\x1b[0m"}, "red"),
    ({"title": "x" * 200}, "x" * 117 + "..."),
    ({"title": None, "id": 7}, "7"),
    ({"title": "", "description": "D"}, "D"),
    ({"title": " ", "name": None, "description": "\n D\nE", "id": 7}, "D"),
])  # fmt: skip
def test_title(tmp_path: Path, fields: dict[str, Any], wanted: str) -> None:
    assert one(tmp_path, **fields).title == wanted


@pytest.mark.parametrize(
    "key",
    [
        "acceptanceCriteria",
        "acceptance_criteria",
        "acceptance",
        "steps",
        "verification",
    ],
)
@pytest.mark.parametrize(("value", "wanted"), [
    ("one", ("one",)), (["one", "two"], ("one", "two")), ([{"text": "one", "met": False}, "two"], ("one", "two")),
    ([], ()), (None, ()),
])  # fmt: skip
def test_criteria(
    tmp_path: Path, key: str, value: object, wanted: tuple[str, ...]
) -> None:
    assert one(tmp_path, **{key: value}).criteria == wanted


@pytest.mark.parametrize("key", ["dependsOn", "depends_on", "dependencies"])
@pytest.mark.parametrize(
    ("value", "wanted"),
    [(["1"], ("1",)), ([1], ("1",)), ("1", ("1",)), ([], ()), (None, ())],
)
def test_dependencies(
    tmp_path: Path, key: str, value: object, wanted: tuple[str, ...]
) -> None:
    plan = load(
        tmp_path, json.dumps([{"id": 1, "title": "a"}, {"title": "b", key: value}])
    )
    assert plan.tasks[1].depends_on == wanted
    assert [task.id for task in in_order(plan)] == ["1", "b"]


@pytest.mark.parametrize("key", ["passes", "passed", "completed", "complete", "done"])
@pytest.mark.parametrize(
    ("value", "wanted"), [(True, True), (False, False), (None, False)]
)
def test_done_fields(tmp_path: Path, key: str, value: object, wanted: bool) -> None:
    assert one(tmp_path, **{key: value}).passed is wanted


@pytest.mark.parametrize(("fields", "wanted"), [
    *[({"status": word}, (True, None)) for word in (
        "done", "passing", "passed", "passes", "complete", "completed", "finished", "verified", "closed",
        "Done", "COMPLETED", "DONE ")],
    *[({"status": word}, (False, None)) for word in (
        "open", "pending", "todo", "in_progress", "not_started", "failing", "failed", "", None, "undone")],
    *[({"status": word}, (False, f"marked {word}")) for word in (
        "blocked", "skipped", "cancelled", "canceled", "deferred", "on_hold", "wontfix", "Blocked")],
    ({"status": " Blocked\n"}, (False, "marked Blocked")),
    ({"skip": True}, (False, "marked skip")),
    ({"skipped": True}, (False, "marked skipped")),
    ({"skip": False, "skipped": None}, (False, None)),
    ({"skip": True, "skipReason": "later"}, (False, "later")),
    ({"status": "blocked", "blocked_reason": "no key"}, (False, "no key")),
    ({"blocked": "why"}, (False, "why")),
    ({"blocked": "two\nlines"}, (False, "two lines")),
    ({"blocked": True}, (False, "marked blocked")),
    ({"blocked": True, "blockedReason": "no key"}, (False, "no key")),
    ({"blocked": False}, (False, None)),
    ({"blocked": ""}, (False, None)),
    ({"blocked": None, "blocked_reason": "it was once"}, (False, None)),
    ({"passes": False, "status": "done"}, (False, None)),  # the flag decides
    ({"passes": True, "status": "todo"}, (True, None)),
    ({"passes": None, "status": "done"}, (True, None)),
    ({"passes": False, "done": "a text of its own"}, (False, None)),
    ({"passes": None, "done": True}, (True, None)),
    ({"passes": False, "done": True}, (False, None)),  # the first one decides
])  # fmt: skip
def test_passed_and_blocked(
    tmp_path: Path, fields: dict[str, Any], wanted: tuple[bool, str | None]
) -> None:
    task = one(tmp_path, **fields)
    assert (task.passed, task.blocked) == wanted


@pytest.mark.parametrize(("value", "wanted"), [
    (1, 1), (0, 0), (-1, -1), (2.5, 2.5), ("1", 1), (" 2 ", 2), ("P0", 0), ("p3", 3), ("critical", 0),
    ("highest", 0), ("high", 1), ("High", 1), ("medium", 2), ("normal", 2), ("low", 3), ("lowest", 4),
    (None, float("inf")),
    (10**400, 10**400),
])  # fmt: skip
def test_priority(tmp_path: Path, value: object, wanted: float) -> None:
    assert one(tmp_path, priority=value).priority == wanted


def in_order(plan: Plan) -> Iterator[Task]:
    """The tasks in the order in which they would be worked, each one passing."""
    while (task := prd.next_task(plan)) is not None:
        yield task
        tasks = tuple(
            replace(t, passed=True) if t.id == task.id else t for t in plan.tasks
        )
        plan = replace(plan, tasks=tasks)


# The tasks of a plan as `id priority dependencies state`, and the order in which they
# are worked.
@pytest.mark.parametrize(("tasks", "wanted"), [
    (["a", "b", "c"], "a b c"),
    (["a 3", "b 1", "c 2"], "b c a"),
    (["a 1", "b 1", "c 1"], "a b c"),
    (["a", "b 9"], "b a"),  # no priority comes last
    (["a low", "b high", "c P0", "d 2", "e medium"], "c b d e a"),
    (["a 1 c", "b 2", "c 3"], "b c a"),
    (["a - b", "b - c", "c"], "c b a"),
    (["a 1 b", "b 9 - blocked"], ""),
    (["a 1 b", "b 9 - blocked", "c 9"], "c"),
    (["a 1 - passed", "b 2 a"], "b"),
    (["a - - passed"], ""),
    (["a - - skip", "b"], "b"),
])  # fmt: skip
def test_the_order_of_work(tmp_path: Path, tasks: list[str], wanted: str) -> None:
    states: dict[str, dict[str, Any]] = {
        "passed": {"passes": True},
        "blocked": {"blocked": "x"},
        "skip": {"skip": True},
    }
    entries = []
    for words in tasks:
        name, priority, needs, state = [*words.split(), "-", "-", "-"][:4]
        entry: dict[str, Any] = {
            "id": name,
            "title": f"task {name}",
            "dependsOn": needs.strip("-").split(),
        }
        entry |= (
            {}
            if priority == "-"
            else {"priority": int(priority) if priority.isdigit() else priority}
        )
        entry |= states.get(state, {})
        entries.append(entry)
    plan = load(tmp_path, json.dumps(entries))
    assert " ".join(task.id for task in in_order(plan)) == wanted


@pytest.mark.parametrize(("tasks", "wanted"), [
    ([{"title": "Add a field"}], ["add-a-field"]),
    ([{"title": "Same"}, {"title": "Same"}, {"title": "same!"}], ["same", "same-2", "same-3"]),
    ([{"title": "Same"}, {"id": "same", "title": "x"}], ["same-2", "same"]),
    ([{"title": "日本語"}, {"title": "にほん"}], ["task-77710aed", "task-f22e5896"]),
    ([{"title": "にほん"}, {"title": "日本語"}], ["task-f22e5896", "task-77710aed"]),
    ([{"title": "日本語"}, {"title": "日本語"}], ["task-77710aed", "task-77710aed-2"]),
    ([{"title": "日本 API"}, {"title": "API"}], ["api", "api-2"]),
    ([{"title": "Straße über Łódź"}, {"title": "Größe"}], ["strae-uber-odz", "groe"]),
    ([{"title": "🚀"}, {"title": "🎉"}, {"title": "Task"}], ["task-ebbc0b28", "task-6146299c", "task"]),
    ([{"id": 7, "title": "x"}, {"id": None, "title": "7"}], ["7", "7-2"]),
    ([{"id": 0, "title": "x"}, {"id": "", "title": "y"}], ["0", "y"]),
    ([{"name": "by name"}, {"description": "by description\nmore"}], ["by-name", "by-description"]),
])  # fmt: skip
def test_missing_ids_are_made_from_titles_and_stay(
    tmp_path: Path, tasks: list[dict[str, Any]], wanted: list[str]
) -> None:
    plan = load(tmp_path, json.dumps(tasks))
    assert [task.id for task in plan.tasks] == wanted
    for name in wanted:  # through every write, whichever task it is for
        plan = write_over(plan, edit.set_passed(plan, plan.task(name), True))
        plan = write_over(plan, edit.set_blocked(plan, plan.task(name), "why"))
        assert [task.id for task in plan.tasks] == wanted
    more = [{"title": "Something else"}, *tasks, {"title": "Same"}]
    assert [task.id for task in load(tmp_path, json.dumps(more)).tasks][
        1 : 1 + len(tasks)
    ] == wanted


@pytest.mark.parametrize(("top", "project", "branch"), [
    ({"project": "p", "branchName": "b"}, "p", "b"),
    ({"projectName": "p", "branchName": "b"}, "p", "b"),
    ({"projectName": "p", "branch": "b"}, "p", None),  # gone, and named at the start
    ({"productName": "p", "name": "n", "title": "t", "repo": "r"}, "p", None),
    ({"project": None, "title": "t", "branchName": None}, "t", None),
    ({"repo": "r", "branchName": ""}, "r", None),
    ({"project": "two\nlines"}, "two lines", None),
])  # fmt: skip
def test_project_and_branch(
    tmp_path: Path, top: dict[str, Any], project: str, branch: str | None
) -> None:
    plan = load(tmp_path, json.dumps({**top, "tasks": [{"title": "a"}]}))
    assert (plan.project, plan.branch, plan.key) == (
        project,
        branch,
        f"prd.json@{branch or ''}",
    )


@pytest.mark.parametrize(("check", "wanted"), [
    ("npm test", ("npm test", "npm test", 600.0, False)),
    (["npm", "run", "a b"], (("npm", "run", "a b"), "npm run 'a b'", 600.0, False)),
    ({"run": "x"}, ("x", "x", 600.0, False)),
    ({"name": "n", "run": ["x", "y"], "timeout": "10m", "once": True}, (("x", "y"), "n", 600.0, True)),
    ({"run": "x", "timeout": 90}, ("x", "x", 90.0, False)),
    ({"run": "x", "name": None}, ("x", "x", 600.0, False)),
    ("a\nb", ("a\nb", "a b", 600.0, False)),
])  # fmt: skip
def test_checks(tmp_path: Path, check: object, wanted: tuple[object, ...]) -> None:
    found = one(tmp_path, checks=[check]).checks[0]
    assert (found.run, found.name, found.timeout, found.once) == wanted


def test_the_name_of_a_long_check_is_short(tmp_path: Path) -> None:
    found = one(tmp_path, checks=["x" * 1000 + "\n" + "y" * 1000]).checks[0]
    assert re.fullmatch(r"x{20,30}\.\.\.y{20,30}", found.name)
    assert len(found.name) <= 60
    assert found.command == "x" * 1000 + "\n" + "y" * 1000


@pytest.mark.parametrize(("said", "wanted"), [
    (None, None),
    ("", None),
    ("npm ci", Setup("npm ci")),
    ({"run": "npm ci"}, Setup("npm ci")),
    ({"run": "npm ci", "when": "package-lock.json"}, Setup("npm ci", ("package-lock.json",))),
    ({"run": "x", "when": ["a", "b/*"]}, Setup("x", ("a", "b/*"))),
])  # fmt: skip
def test_setup(tmp_path: Path, said: object, wanted: Setup | None) -> None:
    plan = load(tmp_path, json.dumps({"tasks": [{"title": "x"}], "setup": said}))
    prd.validate(plan)
    assert plan.setup == wanted


def test_what_the_plan_says_beside_its_tasks(tmp_path: Path) -> None:
    top = {
        "project": "p", "branchName": "b", "description": "d", "rules": ["r"], "agent": "claude", "limits": {"usd": 1},
        "checks": ["x"], "qualityGates": ["npm test", 5], "version": 1, "judge": None,
    }  # fmt: skip
    plan = load(tmp_path, json.dumps({**top, "features": [{"title": "a"}]}))
    assert prd.constraints(plan) == {"description": "d", "rules": ["r"], "version": 1}
    assert plan.settings == {"agent": "claude", "limits": {"usd": 1}}
    assert prd.foreign_gates(plan) == ["npm test"]


# ---------------------------------------------------------------- refusals


def write_over(plan: Plan, new_text: str) -> Plan:
    """The plan once `new_text` stands in its place."""
    return edit.apply(plan, lambda _: new_text)


def assert_refused(path: Path, *fragments: str) -> None:
    """By the reader, or by the schema, without which no plan is worked."""
    with pytest.raises(BadInput) as refused:
        prd.validate(prd.load(path))
    message = str(refused.value)
    assert refused.value.exit is Exit.USAGE
    assert path.name in message
    assert "\n" not in message
    assert len(message) < 500
    for fragment in fragments:
        assert fragment in message


WHOLE = '{\n  "tasks": [\n    {"id": "a", "title": "x"},\n    {"id": "b", "title": "y"}\n  ]\n}\n'
DEEP = "nested too deeply"

# What is in the file, and what the message says: the place, what was found, what was
# expected.
REFUSED: dict[str, tuple[str | bytes, tuple[str, ...]]] = {
    "empty": ("", ("is empty", "expected a JSON object")),
    "blank": (" \n\t\n", ("is empty",)),
    "only a BOM": ("\ufeff", ("line 1, column 1",)),
    "cut in half": (WHOLE[: len(WHOLE) // 2], ("line 3, column",)),
    "cut at the end": (WHOLE[:-3], ("line 5, column",)),
    "two documents": (WHOLE + WHOLE, ("line 7, column 1", "Extra data")),
    "a trailing comma": ('{"tasks": [{"title": "a"},]}', ("line 1, column",)),
    "a comment": ('// x\n{"tasks": []}', ("line 1, column 1",)),
    "not UTF-8": (b'[{"title": "\xff"}]', ("byte 12 is not UTF-8", "expected a JSON file in UTF-8")),
    "UTF-16": ('[{"title": "a"}]'.encode("utf-16"), ("byte 0 is not UTF-8",)),
    "a control character": ('[{"title": "a\0"}]', ("line 1, column",)),
    "an empty list": ("[]", ("document is an empty list", "at least one task")),
    "an empty object": ("{}", ("found an object", "expected a list of tasks")),
    "an empty task list": ('{"tasks": []}', ("tasks is an empty list",)),
    "a text": ('"tasks"', ('found tasks', "expected a list of tasks")),
    "null": ("null", ("found None",)),
    "other keys": ('{"phases": [], "goal": 1}', ("found an object with phases, goal",)),
    "tasks as an object": ('{"tasks": {"a": 1}}', ("tasks: expected a list", "found an object with a")),
    "a task as a text": ('{"tasks": [{"title": "a"}, "b"]}', ("tasks[1]: 'b' is not of type 'object'",)),
    "a task without words": ('[{"passes": false}]', ("document[0]: expected a title", "found none")),
    "a blank title": ('[{"title": " "}]', ("document[0]: expected a title",)),
    "nested lists": ("[" * 100_000, (DEEP,)),
    "nested objects": ('{"a":' * 100_000, (DEEP,)),
    "nested and whole": ('{"tasks": [{"title": "a", "x": ' + "[" * 100_000 + "]" * 100_000 + "}]}", (DEEP,)),
    "two ids": ('[{"id": "a", "title": "x"}, {"id": "a", "title": "y"}]', ("two tasks have the id 'a'",)),
    "two ids, text and number": ('[{"id": 1, "title": "x"}, {"id": "1", "title": "y"}]', ("two tasks have the id '1'",)),
    "a key twice": ('[{"id": "US-9", "title": "x", "passes": false, "passes": true}]', ("'passes' appears twice", "at US-9")),
    "a top key twice": ('{"tasks": [{"title": "x"}], "tasks": []}', ("'tasks' appears twice", "the document")),
    "an unknown dependency": ('[{"id": "a", "title": "x", "dependsOn": ["z"]}]', ("a depends on 'z'", "no such task")),
    "itself": ('[{"id": "a", "title": "x", "dependsOn": ["a"]}]', ("in a circle: a",)),
    "a circle": (
        '[{"id": "one", "title": "x", "dependsOn": ["three"]}, {"id": "two", "title": "x", "dependsOn": ["one"]},'
        ' {"id": "three", "title": "x", "dependsOn": ["two"]}, {"id": "d", "title": "free"}]',
        ("in a circle: ", "one", "two", "three"),
    ),
    "a number of 5000 digits": (f'[{{"title": "x", "y": {"9" * 5000}}}]', ("5000 digits",)),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_corruption_is_refused(tmp_path: Path, name: str) -> None:
    source, fragments = REFUSED[name]
    assert_refused(write(tmp_path, source), *fragments)


TAGGED = '{"master": {"tasks": [{"id": 1, "title": "x", "status": "done", "dependencies": []}]}}'
WAY = "to have an agent make a plan of it: ralph plan {}"


@pytest.mark.parametrize(
    ("name", "source", "way"),
    [
        ("tasks.json", TAGGED, "tasks.json"),
        ("tasks.md", "- [ ] T001 Create the project\n", "tasks.md"),
        ("issues.jsonl", '{"id": "a-1"}\n{"id": "a-2"}\n', "issues.jsonl"),
        ("prd.json", TAGGED, "prd.json --prd plan.json"),
        ("prd.json", "<<<<<<< HEAD\n", ""),
    ],
)
def test_a_file_that_is_no_plan_is_one_for_the_planner(
    tmp_path: Path, name: str, source: str, way: str
) -> None:
    path = tmp_path / name
    path.write_text(source)
    with pytest.raises(BadInput) as refused:
        prd.load(path)
    assert str(refused.value).endswith(WAY.format(f"{tmp_path}/{way}")) is bool(way)
    assert ("ralph plan" in str(refused.value)) is bool(way)


@pytest.mark.parametrize("cut", range(len(WHOLE.rstrip()) - 1))
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, cut: int) -> None:
    assert_refused(write(tmp_path, WHOLE[:cut]))


BLANK = "expected a command; a blank one would always be green and prove nothing"
# A field, a wrong value, and what the message says behind the place.
WRONG = [
    ("id", 1.0, "id: 1.0 is not of type 'string', 'integer'"),
    ("id", True, "id: True is not of type 'string', 'integer'"),
    ("id", ["a"], "id: ['a'] is not of type 'string', 'integer'"),
    ("title", 5, "title: 5 is not of type 'string', 'null'"),
    ("title", ["a"], "title: ['a'] is not of type 'string', 'null'"),
    ("name", {}, "name: {} is not of type 'string', 'null'"),
    ("description", [1], "description: [1] is not of type 'string', 'null'"),
    ("passes", "yes", "passes: 'yes' is not of type 'boolean', 'null'"),
    ("passes", 1, "passes: 1 is not of type 'boolean', 'null'"),
    ("passed", "true", "passed: 'true' is not of type 'boolean', 'null'"),
    ("completed", "2026-01-01", "completed: '2026-01-01' is not of type 'boolean', 'null'"),
    ("done", [], "done: [] is not of type 'boolean', 'null'"),
    ("status", 5, "status: 5 is not of type 'string', 'null'"),
    ("status", True, "status: True is not of type 'string', 'null'"),
    ("blocked", 5, "blocked: 5 is not of type 'string', 'boolean', 'null'"),
    ("blocked", ["a"], "blocked: ['a'] is not of type 'string', 'boolean', 'null'"),
    ("priority", "urgent", "priority: expected a number, P0 to P3, or critical, highest, high, medium, normal, low, lowest: 'urgent'"),
    ("priority", True, "priority: True is not of type 'number', 'string', 'null'"),
    ("priority", [1], "priority: [1] is not of type 'number', 'string', 'null'"),
    ("acceptanceCriteria", 5, "acceptanceCriteria: 5 is not of type 'string', 'array', 'null'"),
    ("acceptance_criteria", {}, "acceptance_criteria: {} is not of type 'string', 'array', 'null'"),
    ("steps", ["a", 5], "steps[1]: 5 is not of type 'string', 'object'"),
    ("verification", [{"txt": 1}], "verification[0]: 'text' is a required property"),
    ("dependsOn", 5, "dependsOn: 5 is not of type 'string', 'array', 'null'"),
    ("depends_on", [True], "depends_on[0]: True is not of type 'string', 'integer'"),
    ("dependsOn", [1.0], "dependsOn[0]: 1.0 is not of type 'string', 'integer'"),
    ("dependencies", [["a"]], "dependencies[0]: ['a'] is not of type 'string', 'integer'"),
    ("allow", [None], "allow[0]: None is not of type 'string', 'integer'"),
    ("agent", 5, "agent: 5 is not of type 'string', 'array', 'null'"),
    ("checks", "npm test", "checks: 'npm test' is not of type 'array', 'null'"),
    ("checks", {}, "checks: {} is not of type 'array', 'null'"),
    ("checks", ["x", ""], f"checks[1]: {BLANK}"),
    *[("checks", [blank], f"checks[0]: {BLANK}") for blank in (
        [], {}, None, " ", "\n", [" "], {"run": "\t"}, [""])],
    ("checks", [["x", 5]], "checks[0][1]: 5 is not of type 'string'"),
    ("checks", [{"run": 5}], "checks[0].run: 5 is not of type 'string', 'array'"),
    ("checks", [{"run": "x", "cmd": "y"}], "checks[0]: Additional properties are not allowed ('cmd' was unexpected)"),
    ("checks", [{"run": "x", "once": "yes"}], "checks[0].once: 'yes' is not of type 'boolean'"),
    ("checks", [{"run": "x", "timeout": "soon"}], "checks[0].timeout: expected a duration such as 90s, 10m or 2h, found 'soon'"),
    ("checks", [{"run": "x", "timeout": 0}], "checks[0].timeout: expected a duration such as 90s, 10m or 2h, found 0"),
    ("checks", [{"run": "x", "name": 5}], "checks[0].name: 5 is not of type 'string'"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("key", "value", "said"), WRONG, ids=lambda part: json.dumps(part)[:40]
)
def test_a_wrong_type_in_a_task_is_refused(
    tmp_path: Path, key: str, value: object, said: str
) -> None:
    task = {
        "id": "b",
        **({} if key in ("title", "name") else {"title": "x"}),
        key: value,
    }
    source = json.dumps({"userStories": [{"id": "a", "title": "a"}, task]})
    assert_refused(write(tmp_path, source), f"prd.json: userStories[1].{said}")


@pytest.mark.parametrize(("key", "value", "said"), [
    ("branchName", 5, "branchName: 5 is not of type 'string', 'null'"),
    ("agent", ["claude", 5], "agent[1]: 5 is not of type 'string'"),
    ("agent", [["claude"]], "agent[0]: ['claude'] is not of type 'string'"),
    ("agent", {"run": "claude"}, "agent: {'run': 'claude'} is not of type 'string'"),
    ("judge", True, "judge: True is not of type 'string', 'null'"),
    ("prompt", {}, "prompt: {} is not of type 'string', 'null'"),
    ("setup", ["npm", "ci"], "setup: ['npm', 'ci'] is not of type 'string', 'object', 'null'"),
    ("setup", {"run": 5}, "setup.run: 5 is not of type 'string'"),
    ("setup", {"run": "x", "when": [1.5]}, "setup.when[0]: 1.5 is not of type 'string', 'integer'"),
    ("keep", 5, "keep: 5 is not of type 'string', 'array', 'null'"),
    ("commit", 1, "commit: 1 is not of type 'string', 'null'"),
    ("protect", {"a": 1}, "protect: {'a': 1} is not of type 'string', 'array', 'null'"),
    ("protect", [1.5], "protect[0]: 1.5 is not of type 'string', 'integer'"),
    ("limits", [], "limits: [] is not of type 'object'"),
    ("budget", 100, "budget: 100 is not of type 'object'"),
    ("agents", "claude", "agents: 'claude' is not of type 'object'"),
    ("checks", "npm test", "checks: 'npm test' is not of type 'array', 'null'"),
    ("checks", [5], "checks[0]: 5 is not of type 'string', 'array', 'object'"),
])  # fmt: skip
def test_a_wrong_type_at_the_top_is_refused(
    tmp_path: Path, key: str, value: object, said: str
) -> None:
    source = json.dumps({"tasks": [{"title": "a"}], key: value})
    assert_refused(write(tmp_path, source), f"prd.json: {said}")


@pytest.mark.parametrize("place", ["prd.json", "sub/prd.json"])
def test_a_missing_file_is_refused(tmp_path: Path, place: str) -> None:
    assert_refused(tmp_path / place, "there is no", "ralph init")


@pytest.mark.parametrize("trap", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_fifo_in_its_place_is_refused(
    tmp_path: Path, trap: Callable[[Path], None]
) -> None:
    trap(tmp_path / "prd.json")
    assert_refused(tmp_path / "prd.json", "cannot be read")


def test_an_unknown_id_is_answered_with_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no task 'z'; the tasks are a, b"):
        load(tmp_path, WHOLE).task("z")


def test_a_long_chain_of_dependencies_costs_little(tmp_path: Path) -> None:
    def cost(many: int) -> int:
        tasks = [
            {"id": f"t{i}", "title": "x", "dependsOn": [f"t{i - 1}"] * (i > 0)}
            for i in range(many)
        ]
        path = write(tmp_path, json.dumps(tasks))
        return steps(lambda: prd.load(path))

    assert cost(2000) < 12 * cost(200)


# ---------------------------------------------------------------- one field's bytes

# Every way to write a plan down that has to survive a write.
SHAPES: dict[str, str] = {
    "native": json.dumps({"project": "p", "userStories": [
        {"id": "a", "title": "x", "passes": False, "notes": ""}, {"id": "b", "title": "y", "passes": True},
        {"id": "c", "title": "z"}]}, indent=2) + "\n",
    "compact": '{"tasks":[{"id":"a","title":"x","passes":false},{"id":"b","title":"y"},{"id":"c","title":"z","done":true}]}',
    "one line": '[{"id": "a", "title": "x", "passed": false}, {"id": "b", "title": "y", "passed": true}]',
    "one task a line": '{"stories": [\n  {"id": 1, "title": "x", "passes": false},\n  {"id": 2, "title": "y"}\n]}\n',
    "one-line lists": '{\n  "tasks": [\n    {\n      "id": "a",\n      "steps": ["one", "two"],\n      "title": "x"\n    }\n  ]\n}\n',
    "CRLF": '{\r\n  "tasks": [\r\n    {\r\n      "id": "a",\r\n      "title": "x"\r\n    },\r\n    {\r\n      "title": "y",\r\n      "passes": false\r\n    }\r\n  ]\r\n}\r\n',
    "BOM": '\ufeff{\n  "tasks": [\n    {\n      "title": "x",\n      "complete": false\n    }\n  ]\n}',
    "BOM and CRLF": '\ufeff[\r\n\t{\r\n\t\t"title": "x"\r\n\t}\r\n]\r\n',
    "tabs": '{\n\t"tasks": [\n\t\t{\n\t\t\t"title": "x",\n\t\t\t"passes": false\n\t\t}\n\t]\n}\n',
    "mixed indentation": '{\n "tasks":\n   [ {"title" : "x" , "passes" : false },\n\t{ "title":"y","passes":false} ] }',
    "unicode escapes": '[{"title": "\\u00e9 \\ud83c\\udf89 \\/ \\u0022", "x": "\\u0000", "passes": false}, {"title": "é 🎉"}]',
    "a lone surrogate": '[{"title": "x", "y": "\\ud800", "passes": false}]',
    "numbers as written": '[{"title": "x", "y": [1.0, 1e2, 1E-2, -0, 0.10, 12345678901234567890], "passes": false}]',
    "empty objects": '{"a": {}, "b": [], "tasks": [{"title": "x", "meta": {}, "list": []}, {"title": "y", "meta": { }}]}',
    "one field alone": '[{"title": "x"}, {\n  "title": "y"\n}, { "title": "z" }]',
    "the field first": '[{"passes": false, "title": "x"}, {\n  "passes": false,\n  "title": "y"\n}]',
    "null in its place": '[{"title": "x", "passes": null, "blocked": null}, {"title": "y", "passes": false}]',
    "status words": '[{"title": "x", "status": "todo"}, {"title": "y", "status": "Completed"}, {"title": "z", "status": "todo"}]',
    "status without a done": '{"features": [{"name": "x", "status": "not_started", "n": 1}, {"name": "y", "status": "in_progress"}]}',
    "flag and status": '[{"title": "x", "passes": false, "notes": "n", "status": "open"}, {"title": "y", "passes": true, "status": "finished"}]',
    "held back": '[{"title": "x", "skip": true, "blocked": "why"}, {"title": "y", "status": "blocked"}, {"title": "z", "status": "open", "blocked": "why"}]',
    "the same words elsewhere": '{"passes": false, "tasks": [{"title": "\\"passes\\": false", "sub": {"passes": false, "tasks": [{"passes": false}]}, "passes": false}], "also": [{"passes": false}]}',
    "lists before the list": '{"x": [{"title": "no task", "passes": false}], "tasks": [{"title": "x", "passes": false}]}',
    "braces in texts": '[{"title": "}]{[,:", "y": "\\\\\\"", "passes": false}, {"title": "\\\\", "passes": false}]',
    "blank lines": '\n\n[\n\n{\n\n"title": "x"\n\n,"y": 1}\n\n]\n\n',
    "no final newline": '{\n  "tasks": [\n    {\n      "title": "x",\n      "passes": false\n    }\n  ]\n}',
    "many final newlines": '[{"title": "x", "passes": false}]\n\n\n',
    "comma first": '[\n  { "id": "a"\n  , "title": "x"\n  }\n, { "id": "b"\n  , "title": "y"\n  , "passes": false\n  }\n]\n',
    "space before the comma": '[{"id": "a" ,\n  "title": "x"}, {"id": "b" , "title": "y"}]',
}  # fmt: skip

Write = Callable[[Plan, Task], str]
PASS: Write = lambda plan, task: edit.set_passed(plan, task, True)  # noqa: E731
FAIL: Write = lambda plan, task: edit.set_passed(plan, task, False)  # noqa: E731
BLOCK: Write = lambda plan, task: edit.set_blocked(  # noqa: E731
    plan, task, 'über "quoted" \\ \ud800'
)
OPEN: Write = edit.set_open
WRITES = {
    "set_passed": PASS,
    "take the pass back": FAIL,
    "set_blocked": BLOCK,
    "set_open": OPEN,
}

TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"{}\[\],:]+|\s+|.', re.DOTALL)


GONE = object()


@functools.lru_cache(maxsize=4)
def tokens(source: str) -> list[str]:
    found = TOKEN.findall(source)
    assert "".join(found) == source
    return found


def alike(old: list[str], new: list[str]) -> int:
    """How many tokens at the beginning are the same."""
    pairs = enumerate(zip(old, new, strict=False))
    return next(
        (i for i, (one, other) in pairs if one != other), min(len(old), len(new))
    )


def edits(before: str, after: str) -> list[tuple[list[str], list[str]]]:
    """The places where two texts differ, as the JSON tokens taken out and put in."""
    old, new = tokens(before), tokens(after)
    head = alike(old, new)
    old, new = old[head:], new[head:]
    tail = alike(old[::-1], new[::-1])
    old, new = old[: len(old) - tail], new[: len(new) - tail]
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    return [
        (old[a:b], new[c:d])
        for word, a, b, c, d in matcher.get_opcodes()
        if word != "equal"
    ]


def changed_fields(
    before: Any, after: Any, path: str = ""
) -> dict[str, tuple[Any, Any]]:
    """The values that differ between two documents, by their path; GONE where there is
    none."""
    if type(before) is type(after) and before == after:
        return {}
    if isinstance(before, dict) and isinstance(after, dict):
        pairs = [
            (f"{path}.{key}", before.get(key, GONE), after.get(key, GONE))
            for key in {**before, **after}
        ]
        assert [key for key in after if key in before] == [
            key for key in before if key in after
        ]
    elif (
        isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after)
    ):
        pairs = [
            (f"{path}[{i}]", *pair)
            for i, pair in enumerate(zip(before, after, strict=True))
        ]
    else:
        return {path: (before, after)}
    return {k: v for name, a, b in pairs for k, v in changed_fields(a, b, name).items()}


DONE_KEYS = ("passes", "passed", "completed", "complete", "done", "status")
HELD_KEYS = ("blocked", "skip", "skipped", "status")


def assert_one_field(plan: Plan, task: Task, after: str, keys: tuple[str, ...]) -> None:
    """Only fields named in `keys` of this one task differ, and nothing else was written
    anew."""
    assert after.startswith("\ufeff") == plan.text.startswith("\ufeff")
    changed = changed_fields(plan.data, json.loads(after.removeprefix("\ufeff")))
    prefix = f"{'.' + plan.list_key if plan.list_key else ''}[{task.index}]."
    assert all(
        path.startswith(prefix) and path.removeprefix(prefix) in keys
        for path in changed
    ), changed
    assert len(changed) <= 2
    found = edits(plan.text, after)
    assert len(found) <= len(changed)
    # A value for a value; else a comma, a key, a colon and a value, with the gaps
    # between them.
    out = sum(
        0 if before is GONE else 4 if now is GONE else 1
        for before, now in changed.values()
    )
    put = sum(
        4 if before is GONE else 0 if now is GONE else 1
        for before, now in changed.values()
    )
    assert sum(not token.isspace() for removed, _ in found for token in removed) <= out
    assert sum(not token.isspace() for _, added in found for token in added) <= put


def assert_written(plan: Plan, task: Task, word: str) -> None:
    """A write of `word` changes one field, is read back, and is harmless once more."""
    after = WRITES[word](plan, task)
    assert_one_field(plan, task, after, DONE_KEYS if "pass" in word else HELD_KEYS)
    again = write_over(plan, after)
    assert plan.path.read_bytes() == after.encode()
    now = again.tasks[task.index]
    assert {
        "set_passed": now.passed,
        "take the pass back": not now.passed,
        "set_blocked": now.blocked == 'über "quoted" \\',
        "set_open": now.blocked is None,
    }[word]
    assert WRITES[word](again, now) == after
    assert [other.id for other in again.tasks] == [other.id for other in plan.tasks]


@pytest.mark.parametrize("word", WRITES)
@pytest.mark.parametrize("name", SHAPES)
def test_a_write_changes_one_field_and_no_other_byte(
    tmp_path: Path, name: str, word: str
) -> None:
    plan = load(tmp_path, SHAPES[name])
    for task in plan.tasks:
        assert_written(plan, task, word)


@pytest.mark.parametrize(
    "name", [name for name, wanted in WILD.items() if isinstance(wanted[0], int)]
)
def test_a_write_to_a_file_from_the_wild_changes_one_field(name: str) -> None:
    plan = prd.load(SHAPED / name)
    for task in plan.tasks:
        for word, write_ in WRITES.items():
            assert_one_field(
                plan,
                task,
                write_(plan, task),
                DONE_KEYS if "pass" in word else HELD_KEYS,
            )


@pytest.mark.parametrize("name", SHAPES)
def test_a_block_that_is_taken_away_leaves_the_original(
    tmp_path: Path, name: str
) -> None:
    plan = load(tmp_path, SHAPES[name])
    tried = 0
    for task in plan.tasks:
        if "blocked" not in task.raw and task.blocked is None:
            blocked = load(tmp_path, edit.set_blocked(plan, task, "why"))
            assert blocked.tasks[task.index].blocked == "why"
            assert edit.set_open(blocked, blocked.tasks[task.index]) == plan.text
            tried += 1
    assert tried or name == "held back"


# What most loops do: load, set, dump. The last one takes some care.
DUMPS: dict[str, Callable[[Any, str], str]] = {
    "as it comes": lambda data, _: json.dumps(data),
    "on one line, unescaped": lambda data, _: json.dumps(data, ensure_ascii=False),
    "compact": lambda data, _: json.dumps(data, separators=(",", ":")),
    "indented": lambda data, _: json.dumps(data, indent=2),
    "indented with four": lambda data, _: (
        json.dumps(data, indent=4, ensure_ascii=False) + "\n"
    ),
    "with care": lambda data, source: (
        json.dumps(
            data,
            ensure_ascii=False,
            indent=(re.findall(r"\n([ \t]+)", source) or [None])[0],
        )
        + source[len(source.rstrip()) :]
    ),
}
TELLING = {
    "CRLF", "BOM", "BOM and CRLF", "mixed indentation", "unicode escapes", "numbers as written", "empty objects",
    "one field alone", "comma first", "one task a line",
}  # fmt: skip


@pytest.mark.parametrize("mutant", DUMPS)
def test_a_writer_that_dumps_anew_is_caught(tmp_path: Path, mutant: str) -> None:
    caught = set()
    for name, source in SHAPES.items():
        plan = load(tmp_path, source)
        for task in plan.tasks:
            data = copy.deepcopy(plan.data)
            (data if plan.list_key is None else data[plan.list_key])[task.index][
                "passes"
            ] = True
            try:
                assert_one_field(plan, task, DUMPS[mutant](data, source), DONE_KEYS)
            except AssertionError:
                caught.add(name)
    assert caught >= TELLING


@pytest.mark.parametrize(("source", "wanted"), [
    ('[{"title": "x", "passes": false}]', '[{"title": "x", "passes": true}]'),
    ('[{"title": "x"}]', '[{"title": "x", "passes": true}]'),
    ('[{"title": "x"}, {"title": "y", "done": true}]', '[{"title": "x", "done": true}, {"title": "y", "done": true}]'),
    ('[{"title": "x", "status": "todo"}]', '[{"title": "x", "status": "done"}]'),
    ('[{"title": "x", "status": "todo"}, {"title": "y", "status": "Verified"}]',
     '[{"title": "x", "status": "Verified"}, {"title": "y", "status": "Verified"}]'),
    ('[{"title": "x", "status": "todo", "passes": false}]', '[{"title": "x", "status": "done", "passes": true}]'),
    ('[{"title": "x", "passes": false, "done": "a text"}]', '[{"title": "x", "passes": true, "done": "a text"}]'),
    ('[{"title": "x", "passes": false, "done": false}]', '[{"title": "x", "passes": true, "done": true}]'),
    ('[{"title": "x", "passes": null}]', '[{"title": "x", "passes": true}]'),
    ('[\n  {\n    "title": "x"\n  }\n]', '[\n  {\n    "title": "x",\n    "passes": true\n  }\n]'),
    ('[\r\n\t{\r\n\t\t"title": "x"\r\n\t}\r\n]', '[\r\n\t{\r\n\t\t"title": "x",\r\n\t\t"passes": true\r\n\t}\r\n]'),
])  # fmt: skip
def test_a_pass_in_the_words_of_the_file(
    tmp_path: Path, source: str, wanted: str
) -> None:
    plan = load(tmp_path, source)
    assert edit.set_passed(plan, plan.tasks[0], True) == wanted


@pytest.mark.parametrize(("source", "wanted"), [
    ('[{"title": "x", "status": "done"}, {"title": "y", "status": "todo"}]',
     '[{"title": "x", "status": "todo"}, {"title": "y", "status": "todo"}]'),
    ('[{"title": "x", "status": "done"}]', '[{"title": "x", "status": "open"}]'),
    ('[{"title": "x", "passes": true}]', '[{"title": "x", "passes": false}]'),
])  # fmt: skip
def test_a_pass_taken_back_in_the_words_of_the_file(
    tmp_path: Path, source: str, wanted: str
) -> None:
    plan = load(tmp_path, source)
    assert edit.set_passed(plan, plan.tasks[0], False) == wanted


@pytest.mark.parametrize(("source", "wanted"), [
    ('[{"title": "x", "blocked": "why"}]', '[{"title": "x"}]'),
    ('[{"blocked": "why", "title": "x"}]', '[{"title": "x"}]'),
    ('[{"title": "x", "blocked": "why", "y": 1}]', '[{"title": "x", "y": 1}]'),
    ('[{"title": "x", "skip": true}]', '[{"title": "x", "skip": false}]'),
    ('[{"title": "x", "status": "blocked"}]', '[{"title": "x", "status": "open"}]'),
    ('[{"title": "x", "status": "in_progress", "blocked": "why"}]', '[{"title": "x", "status": "in_progress"}]'),
    ('[{"title": "x", "passes": false}]', '[{"title": "x", "passes": false}]'),
])  # fmt: skip
def test_set_open(tmp_path: Path, source: str, wanted: str) -> None:
    plan = load(tmp_path, source)
    assert edit.set_open(plan, plan.tasks[0]) == wanted


def test_set_members_writes_those_fields_alone(tmp_path: Path) -> None:
    plan = load(tmp_path, SHAPES["native"])
    after = edit.set_members(plan, {"setup": "npm ci", "checks": ["npm test", "é"]})
    assert changed_fields(json.loads(plan.text), json.loads(after)).keys() == {
        ".setup",
        ".checks",
    }
    assert (
        after.replace(',\n  "setup": "npm ci",\n  "checks": ["npm test", "é"]', "")
        == plan.text
    )
    assert [check.run for check in edit.apply(plan, lambda _: after).checks] == [
        "npm test",
        "é",
    ]


def test_a_rewrite_keeps_the_mode_and_a_symlink(tmp_path: Path) -> None:
    (tmp_path / "real.json").write_text(SHAPES["native"])
    (tmp_path / "real.json").chmod(0o640)
    (tmp_path / "prd.json").symlink_to("real.json")
    plan = prd.load(tmp_path / "prd.json")
    assert edit.apply(plan, lambda _: PASS(plan, plan.tasks[0])).tasks[0].passed
    assert os.readlink(tmp_path / "prd.json") == "real.json"
    assert (tmp_path / "real.json").stat().st_mode & 0o777 == 0o640


def test_a_text_that_is_no_plan_is_not_written(tmp_path: Path) -> None:
    plan = load(tmp_path, SHAPES["native"])
    with pytest.raises(BadInput):
        edit.apply(plan, lambda _: plan.text.replace(",", ",,", 1))
    assert plan.path.read_text() == SHAPES["native"]


def test_a_word_that_is_only_an_escape_can_be_written(tmp_path: Path) -> None:
    plan = load(
        tmp_path,
        '[{"title": "x", "status": "done"}, {"title": "y", "status": "\\ud800"}]',
    )
    assert not edit.apply(plan, lambda _: FAIL(plan, plan.tasks[0])).tasks[0].passed


def test_an_edit_of_ten_times_the_tasks_costs_ten_times_as_much(tmp_path: Path) -> None:
    def cost(many: int) -> int:
        tasks = [
            {
                "id": f"US-{i}",
                "title": "x",
                "description": "d" * 300,
                "steps": ["a", "b"],
                "passes": False,
            }
            for i in range(many)
        ]
        plan = load(tmp_path, json.dumps({"userStories": tasks}, indent=2))
        counted = steps(lambda: edit.set_passed(plan, plan.tasks[-1], True))
        counted += steps(lambda: edit.set_blocked(plan, plan.tasks[many // 2], "why"))
        after = edit.set_passed(plan, plan.tasks[-1], True)
        assert after == '"passes": true'.join(plan.text.rsplit('"passes": false', 1))
        blocked = edit.set_blocked(plan, plan.tasks[many // 2], "why")
        assert len(blocked) == len(plan.text) + len(',\n      "blocked": "why"')
        return counted

    assert cost(2000) < 12 * cost(200)


# ---------------------------------------------------------------- the schema


def walk(schema: Any, path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Every property of a schema, wherever it stands; those of an `if` are no more than
    a condition."""
    if isinstance(schema, dict):
        for pattern, found in {
            **schema.get("properties", {}),
            **schema.get("patternProperties", {}),
        }.items():
            yield from (
                (f"{path}.{name}", found) for name in re.findall(r"\w+", pattern)
            )
        for key, value in schema.items():
            if key != "if":
                yield from walk(value, f"{path}.{key}")
    elif isinstance(schema, list):
        for i, value in enumerate(schema):
            yield from walk(value, f"{path}[{i}]")


def test_every_property_of_the_schema_is_described() -> None:
    schema = json.loads(SCHEMA.read_text("utf-8"))
    properties = dict(walk(schema))
    assert [
        name
        for name, found in properties.items()
        if len(found.get("description", "")) < 4
    ] == []
    named = {name.rsplit(".", 1)[1] for name in properties}
    known = {
        key
        for meaning, keys in prd.ALIASES.items()
        for key in keys
        if meaning not in UNNAMED
    }
    assert named >= known | set(prd.SETTINGS) | {
        "id", "priority", "status", "blocked", "checks", "allow", "agent",
    }  # fmt: skip


UNNAMED = {"project", "blocked_reason", "gates"}
"""Words of other tools that the schema does not ask for."""


def test_the_schema_is_a_schema() -> None:
    import jsonschema

    jsonschema.Draft202012Validator.check_schema(json.loads(SCHEMA.read_text("utf-8")))


@pytest.mark.parametrize("name", SHAPES)
def test_every_shape_is_valid(tmp_path: Path, name: str) -> None:
    prd.validate(load(tmp_path, SHAPES[name]))


def test_what_init_writes_is_valid() -> None:
    prd.validate(prd.load(ROOT / "templates" / "prd.json"))


GOOD = {"id": "a", "title": "x"}


@pytest.mark.parametrize(("document", "said"), [
    ({"tasks": [GOOD], "limits": {"iteration": 5}}, "limits: "),
    ({"tasks": [GOOD], "limits": {"iterations": 2.5}}, "limits.iterations: 2.5 "),
    ({"tasks": [GOOD], "limits": {"iterations": 0}}, "limits.iterations: 0 "),
    ({"tasks": [GOOD], "limits": {"iterations": True}}, "limits.iterations: True "),
    ({"tasks": [GOOD], "limits": {"hours": -1}}, "limits.hours: -1 "),
    ({"tasks": [GOOD], "limits": {"tokens": None}}, "limits.tokens: None "),
    ({"tasks": [GOOD], "budget": {"usd": [1]}}, "budget.usd: [1] "),
    ({"tasks": [GOOD], "limits": {"usd": "20"}}, "limits.usd: '20' "),
    ({"tasks": [GOOD], "budget": {"usd": -1}}, "budget.usd: -1 "),
    ({"tasks": [GOOD], "budget": {"hours": 1}}, "budget: "),
    ({"tasks": [GOOD], "limits": {"jobs": 0}}, "limits.jobs: 0 "),
    ({"tasks": [GOOD], "limits": {"jobs": 1.5}}, "limits.jobs: 1.5 "),
    ({"tasks": [GOOD], "limits": {"jobs": "four"}}, "limits.jobs: 'four' "),
    ({"tasks": [GOOD], "setup": {"when": ["x"]}}, "setup: 'run' is a required property"),
    ({"tasks": [GOOD], "setup": {"run": " "}}, "setup.run: ' ' "),
    ({"tasks": [GOOD], "setup": {"run": "x", "whenever": []}}, "setup: "),
    ({"tasks": [GOOD], "project": 5}, "project: 5 "),
    (["a"], "document[0]: 'a' "),
    ([], "document: [] "),
    ({"tasks": []}, "tasks: [] "),
    ({"phases": []}, "document: "),
    (5, "document: 5 "),
], ids=lambda part: json.dumps(part)[:60])  # fmt: skip
def test_a_refusal_by_the_schema_names_the_path(
    tmp_path: Path, document: Any, said: str
) -> None:
    plan = replace(load(tmp_path, WHOLE), data=document)
    with pytest.raises(BadInput) as refused:
        prd.validate(plan)
    assert str(refused.value).startswith(f"prd.json: {said}")
    assert len(str(refused.value)) < 400


def test_what_is_wrong_is_told_at_once_and_no_more_than_three_of_it(
    tmp_path: Path,
) -> None:
    odd = [
        {"id": "A", "title": "a", key: 3}
        for key in ("passes", "description", "dependsOn", "allow")
    ]
    source = json.dumps({"userStories": odd})
    with pytest.raises(BadInput) as told:
        prd.read(source, tmp_path / "prd.json")
    *places, more = str(told.value).splitlines()
    assert [place.split(": ")[1] for place in places] == [
        "userStories[0].passes", "userStories[1].description", "userStories[2].dependsOn",
    ]  # fmt: skip
    assert more == "and 1 more"
