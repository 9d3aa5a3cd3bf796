"""prd.json: every dialect read, every corruption refused."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from _ralph.errors import BadInput, Exit
from _ralph.model import Plan, Task
from _ralph.state import edit, prd
from tests.conftest import ROOT, cases

SHAPED = ROOT / "tests/plans"
"""Plans as people have them, with other words."""
SCHEMA = ROOT / "prd.schema.json"


def write(folder: Path, source: str | bytes) -> Path:
    path = folder / "prd.json"
    path.write_bytes(source if isinstance(source, bytes) else source.encode())
    return path


def load(folder: Path, source: str | bytes) -> Plan:
    return prd.load(write(folder, source))


# ---------------------------------------------------------------- files from the wild


@cases("""
name -> wanted
0d745d.json -> 12 tasks, 0 passed, next SETUP-001
36b03a.json -> 19 tasks, 19 passed, next None
573fcb.json -> 1 tasks, 1 passed, next None
7fde73.json -> 23 tasks, 23 passed, next None
87a6f4.json -> 7 tasks, 6 passed, next None
92ea65.json -> 2 tasks, 2 passed, next None
97cd46.json -> 25 tasks, 24 passed, next rust-git-open-repo
9cfac3.json -> 8 tasks, 8 passed, next None
b24cf1.json -> 8 tasks, 8 passed, next None
c8f10e.json -> 1 tasks, 0 passed, next task-1
cb25d2.json -> 55 tasks, 55 passed, next None
cf8615.json -> found an object with title, phases, notes
ed1ec9.json -> features: [] 
""")
def test_a_file_from_the_wild(name: str, wanted: str) -> None:
    try:
        plan = prd.load(SHAPED / name)
        prd.validate(plan)
    except BadInput as error:
        assert wanted in str(error)
        return
    ready = prd.ready_tasks(plan)
    found = f"{len(plan.tasks)} tasks, {len(plan.passed_ids)} passed"
    assert f"{found}, next {ready[0].id if ready else None}" == wanted


# ---------------------------------------------------------------- words for the same thing


@cases(r"""
fields -> wanted
{"title": "T", "name": "N", "description": "D"} -> {"title": "T"}
{"title": null, "name": "N", "description": "D"} -> {"title": "N"}
{"title": null, "description": "first line\nsecond"} -> {"title": "first line"}
{"title": "\n  two lines\nof it "} -> {"title": "two lines"}
{"title": "\u001b[31mred\u001b[0m"} -> {"title": "red"}
{"title": null, "id": 7} -> {"title": "7"}
{"title": "", "description": "D"} -> {"title": "D"}
{"title": " ", "name": null, "description": "\n D\nE", "id": 7} -> {"title": "D"}
{"acceptanceCriteria": ["one", "two"]} -> {"criteria": ["one", "two"]}
{"acceptance_criteria": ["one", "two"]} -> {"criteria": ["one", "two"]}
{"acceptance": ["one", "two"]} -> {"criteria": ["one", "two"]}
{"steps": ["one", "two"]} -> {"criteria": ["one", "two"]}
{"verification": ["one", "two"]} -> {"criteria": ["one", "two"]}
{"steps": "one"} -> {"criteria": ["one"]}
{"steps": [{"text": "one", "met": false}, "two"]} -> {"criteria": ["one", "two"]}
{"steps": []} -> {"criteria": []}
{"steps": null} -> {"criteria": []}
{"dependsOn": ["1"]} -> {"depends_on": ["1"]}
{"depends_on": [1]} -> {"depends_on": ["1"]}
{"dependencies": "1"} -> {"depends_on": ["1"]}
{"dependsOn": null} -> {"depends_on": []}
{"passes": true} -> {"passed": true}
{"passes": false} -> {"passed": false}
{"passed": true} -> {"passed": true}
{"passed": false} -> {"passed": false}
{"completed": true} -> {"passed": true}
{"completed": false} -> {"passed": false}
{"complete": true} -> {"passed": true}
{"complete": false} -> {"passed": false}
{"done": true} -> {"passed": true}
{"done": false} -> {"passed": false}
{"passes": null} -> {"passed": false}
{"status": "done"} -> {"passed": true, "blocked": null}
{"status": "passing"} -> {"passed": true, "blocked": null}
{"status": "passed"} -> {"passed": true, "blocked": null}
{"status": "passes"} -> {"passed": true, "blocked": null}
{"status": "complete"} -> {"passed": true, "blocked": null}
{"status": "completed"} -> {"passed": true, "blocked": null}
{"status": "finished"} -> {"passed": true, "blocked": null}
{"status": "verified"} -> {"passed": true, "blocked": null}
{"status": "closed"} -> {"passed": true, "blocked": null}
{"status": "Done"} -> {"passed": true, "blocked": null}
{"status": "COMPLETED"} -> {"passed": true, "blocked": null}
{"status": "DONE "} -> {"passed": true, "blocked": null}
{"status": "open"} -> {"passed": false, "blocked": null}
{"status": "pending"} -> {"passed": false, "blocked": null}
{"status": "todo"} -> {"passed": false, "blocked": null}
{"status": "in_progress"} -> {"passed": false, "blocked": null}
{"status": "not_started"} -> {"passed": false, "blocked": null}
{"status": "failing"} -> {"passed": false, "blocked": null}
{"status": "failed"} -> {"passed": false, "blocked": null}
{"status": ""} -> {"passed": false, "blocked": null}
{"status": null} -> {"passed": false, "blocked": null}
{"status": "undone"} -> {"passed": false, "blocked": null}
{"status": "blocked"} -> {"passed": false, "blocked": "marked blocked"}
{"status": "skipped"} -> {"passed": false, "blocked": "marked skipped"}
{"status": "cancelled"} -> {"passed": false, "blocked": "marked cancelled"}
{"status": "canceled"} -> {"passed": false, "blocked": "marked canceled"}
{"status": "deferred"} -> {"passed": false, "blocked": "marked deferred"}
{"status": "on_hold"} -> {"passed": false, "blocked": "marked on_hold"}
{"status": "wontfix"} -> {"passed": false, "blocked": "marked wontfix"}
{"status": "Blocked"} -> {"passed": false, "blocked": "marked Blocked"}
{"status": " Blocked\n"} -> {"passed": false, "blocked": "marked Blocked"}
{"skip": true} -> {"passed": false, "blocked": "marked skip"}
{"skipped": true} -> {"passed": false, "blocked": "marked skipped"}
{"skip": false, "skipped": null} -> {"passed": false, "blocked": null}
{"skip": true, "skipReason": "later"} -> {"passed": false, "blocked": "later"}
{"status": "blocked", "blocked_reason": "no key"} -> {"passed": false, "blocked": "no key"}
{"blocked": "why"} -> {"passed": false, "blocked": "why"}
{"blocked": "two\nlines"} -> {"passed": false, "blocked": "two lines"}
{"blocked": true} -> {"passed": false, "blocked": "marked blocked"}
{"blocked": true, "blockedReason": "no key"} -> {"passed": false, "blocked": "no key"}
{"blocked": false} -> {"passed": false, "blocked": null}
{"blocked": ""} -> {"passed": false, "blocked": null}
{"blocked": null, "blocked_reason": "it was once"} -> {"passed": false, "blocked": null}
{"passes": false, "status": "done"} -> {"passed": false, "blocked": null}
{"passes": true, "status": "todo"} -> {"passed": true, "blocked": null}
{"passes": null, "status": "done"} -> {"passed": true, "blocked": null}
{"passes": false, "done": "a text of its own"} -> {"passed": false, "blocked": null}
{"passes": null, "done": true} -> {"passed": true, "blocked": null}
{"passes": false, "done": true} -> {"passed": false, "blocked": null}
{"priority": 1} -> {"priority": 1}
{"priority": 0} -> {"priority": 0}
{"priority": -1} -> {"priority": -1}
{"priority": 2.5} -> {"priority": 2.5}
{"priority": "1"} -> {"priority": 1}
{"priority": " 2 "} -> {"priority": 2}
{"priority": "P0"} -> {"priority": 0}
{"priority": "p3"} -> {"priority": 3}
{"priority": "critical"} -> {"priority": 0}
{"priority": "highest"} -> {"priority": 0}
{"priority": "high"} -> {"priority": 1}
{"priority": "High"} -> {"priority": 1}
{"priority": "medium"} -> {"priority": 2}
{"priority": "normal"} -> {"priority": 2}
{"priority": "low"} -> {"priority": 3}
{"priority": "lowest"} -> {"priority": 4}
{"priority": null} -> {"priority": Infinity}
""")
def test_a_task(tmp_path: Path, fields: str, wanted: str) -> None:
    other = {"id": 1, "title": "another"}
    source = json.dumps([other, {"title": "a task", **json.loads(fields)}])
    task = load(tmp_path, source).tasks[1]
    for name, value in json.loads(wanted).items():
        found = getattr(task, name)
        assert (list(found) if isinstance(found, tuple) else found) == value


@pytest.mark.parametrize("key", ["userStories", "stories", "tasks", "features"])
def test_the_list_has_four_names(tmp_path: Path, key: str) -> None:
    source = '{"KEY": [{"id": 1, "title": "a"}], "phases": []}'
    plan = load(tmp_path, source.replace("KEY", key))
    assert plan.list_key == key
    assert plan.tasks[0].id == "1"


@cases(r"""
top -> wanted
{"project": "p", "branchName": "b"} -> ["p", "b"]
{"projectName": "p", "branchName": "b"} -> ["p", "b"]
{"projectName": "p", "branch": "b"} -> ["p", null]
{"productName": "p", "name": "n", "title": "t", "repo": "r"} -> ["p", null]
{"project": null, "title": "t", "branchName": null} -> ["t", null]
{"repo": "r", "branchName": ""} -> ["r", null]
{"project": "two\nlines"} -> ["two lines", null]
""")
def test_project_and_branch(tmp_path: Path, top: str, wanted: str) -> None:
    source = top.removesuffix("}") + ', "tasks": [{"title": "a"}]}'
    plan = load(tmp_path, source)
    assert [plan.project, plan.branch] == json.loads(wanted)
    assert plan.key == f"prd.json@{plan.branch or ''}"


@cases(r"""
check -> wanted
"npm test" -> ["npm test", "npm test", 600.0, false]
["npm", "run", "a b"] -> [["npm", "run", "a b"], "npm run 'a b'", 600.0, false]
{"run": "x"} -> ["x", "x", 600.0, false]
{"name": "n", "run": ["x", "y"], "timeout": "10m", "once": true} -> [["x", "y"], "n", 600.0, true]
{"run": "x", "timeout": 90} -> ["x", "x", 90.0, false]
{"run": "x", "name": null} -> ["x", "x", 600.0, false]
"a\nb" -> ["a\nb", "a b", 600.0, false]
""")
def test_checks(tmp_path: Path, check: str, wanted: str) -> None:
    source = '[{"title": "a", "checks": [CHECK]}]'
    plan = load(tmp_path, source.replace("CHECK", check))
    (found,) = plan.tasks[0].checks
    run = list(found.run) if isinstance(found.run, tuple) else found.run
    assert [run, found.name, found.timeout, found.once] == json.loads(wanted)


@cases("""
said -> wanted
null -> null
"" -> null
"npm ci" -> ["npm ci", []]
{"run": "npm ci"} -> ["npm ci", []]
{"run": "x", "when": "package-lock.json"} -> ["x", ["package-lock.json"]]
{"run": "x", "when": ["a", "b/*"]} -> ["x", ["a", "b/*"]]
""")
def test_setup(tmp_path: Path, said: str, wanted: str) -> None:
    plan = load(tmp_path, f'{{"tasks": [{{"title": "x"}}], "setup": {said}}}')
    prd.validate(plan)
    setup = plan.setup
    found = [setup.run, list(setup.when)] if setup else None
    assert found == json.loads(wanted)


def test_what_the_plan_says_beside_its_tasks(tmp_path: Path) -> None:
    top = """"project": "p", "branchName": "b", "description": "d", "rules": ["r"],
        "agent": "claude", "limits": {"usd": 1}, "checks": ["x"], "version": 1,
        "judge": null, "features": [{"title": "a"}]"""
    plan = load(tmp_path, f"{{{top}}}")
    assert prd.constraints(plan) == {"description": "d", "rules": ["r"], "version": 1}
    assert plan.settings == {"agent": "claude", "limits": {"usd": 1}}


# ---------------------------------------------------------------- order and ids


def in_order(plan: Plan) -> Iterator[Task]:
    """The tasks in the order in which they would be worked, each one passing."""
    while ready := prd.ready_tasks(plan):
        task = ready[0]
        yield task
        tasks = list(plan.tasks)
        tasks[task.index] = replace(task, passed=True)
        plan = replace(plan, tasks=tuple(tasks))


STATES = {"passed": "passes", "blocked": "blocked", "skip": "skip"}


# The tasks of a plan as `id priority dependencies state`, and the order in which they
# are worked.
@cases("""
tasks -> wanted
a, b, c -> a b c
a 3, b 1, c 2 -> b c a
a 1, b 1, c 1 -> a b c
a, b 9 -> b a
a low, b high, c P0, d 2, e medium -> c b d e a
a 1 c, b 2, c 3 -> b c a
a - b, b - c, c -> c b a
a 1 b, b 9 - blocked -> 
a 1 b, b 9 - blocked, c 9 -> c
a 1 - passed, b 2 a -> b
a - - passed -> 
a - - skip, b -> b
""")
def test_the_order_of_work(tmp_path: Path, tasks: str, wanted: str) -> None:
    entries = []
    for words in tasks.split(", "):
        name, priority, needs, state = [*words.split(), "-", "-", "-"][:4]
        entry: dict[str, Any] = {"id": name, "title": name}
        if priority != "-":
            entry["priority"] = priority
        if needs != "-":
            entry["dependsOn"] = [needs]
        if state != "-":
            entry[STATES[state]] = True
        entries.append(entry)
    plan = load(tmp_path, json.dumps(entries))
    assert " ".join(task.id for task in in_order(plan)) == wanted


@cases(r"""
tasks -> wanted
[{"title": "Add a field"}] -> add-a-field
[{"title": "Same"}, {"title": "Same"}, {"title": "same!"}] -> same same-2 same-3
[{"title": "Same"}, {"id": "same", "title": "x"}] -> same-2 same
[{"title": "日本語"}, {"title": "にほん"}] -> task task-2
[{"title": "日本 API"}, {"title": "API"}] -> api api-2
[{"title": "Straße über Łódź"}, {"title": "Größe"}] -> strae-uber-odz groe
[{"id": 7, "title": "x"}, {"id": null, "title": "7"}] -> 7 7-2
[{"id": 0, "title": "x"}, {"id": "", "title": "y"}] -> 0 y
[{"name": "by name"}, {"description": "by description\nmore"}] -> by-name by-description
""")
def test_missing_ids_are_made_from_titles_and_stay(
    tmp_path: Path, tasks: str, wanted: str
) -> None:
    plan = load(tmp_path, tasks)
    ids = wanted.split()
    assert [task.id for task in plan.tasks] == ids
    for name in ids:  # through every write, whichever task it is for
        task = plan.task(name)
        plan = edit.apply(plan, partial(edit.set_passed, tasks=task, passed=True))
        assert [task.id for task in plan.tasks] == ids
    more = [{"title": "Something else"}, *json.loads(tasks), {"title": "Same"}]
    longer = load(tmp_path, json.dumps(more))
    assert [task.id for task in longer.tasks][1:-1] == ids


# ---------------------------------------------------------------- refusals


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


# What is in the file, and parts of the message: the place, what was found, what was
# expected.
@cases(r"""
source -> said
- -> is empty; expected a JSON object
{\n  "tasks": [\n    {"id": "a", "ti -> line 3, column
WHOLEWHOLE -> line 7, column 1; Extra data
{"tasks": [{"title": "a"},]} -> line 1, column
[{"title": "\xff"}] -> byte 12 is not UTF-8; expected a JSON file in UTF-8
[] -> document: [] 
{} -> found an object; expected a list of tasks
{"tasks": []} -> tasks: [] 
"tasks" -> found "tasks"; expected a list of tasks
{"phases": [], "goal": 1} -> found an object with phases, goal
{"tasks": {"a": 1}} -> expected a list; found an object with a
{"tasks": [{"title": "a"}, "b"]} -> tasks[1]: 'b' is not of type 'object'
[{"passes": false}] -> document[0]: expected a title; found none
[{"title": " "}] -> document[0]: expected a title
{"tasks": [{"title": "a", "x": NESTED}]} -> nested too deeply
[{"id": "a", "title": "x"}, {"id": "a", "title": "y"}] -> two tasks have the id 'a'
[{"id": "US-9", "title": "x", "passes": false, "passes": true}] -> 'passes' appears twice
[{"id": "a", "title": "x", "dependsOn": ["z"]}] -> a depends on 'z'; no such task
[{"id": "one", "title": "x", "dependsOn": ["three"]}, {"id": "two", "title": "x", "dependsOn": ["one"]}, {"id": "three", "title": "x", "dependsOn": ["two"]}, {"id": "d", "title": "free"}] -> in a circle: ; one; two; three
[{"title": "a", "priority": NaN}] -> NaN is not JSON; expected a number or null
[\n<<<<<<< HEAD\n{"title": "a"}\n=======\n{"title": "b"}\n>>>>>>> ralph/p\n] -> line 2, column 1: git's conflict markers
[{"title": "x", "y": DIGITS}] -> 5000 digits
""")
def test_corruption_is_refused(tmp_path: Path, source: str, said: str) -> None:
    source = source.replace("WHOLE", WHOLE).replace(r"\n", "\n")
    source = source.replace("NESTED", "[" * 100_000 + "]" * 100_000)
    source = source.replace("DIGITS", "9" * 5000)
    data = source.encode().replace(rb"\xff", b"\xff")
    assert_refused(write(tmp_path, data), *said.split("; "))


@pytest.mark.parametrize("cut", range(len(WHOLE.rstrip()) - 1))
def test_a_file_cut_anywhere_is_refused(tmp_path: Path, cut: int) -> None:
    assert_refused(write(tmp_path, WHOLE[:cut]))


TAGGED = '{"master": {"tasks": [{"id": 1, "title": "x", "status": "done", "dependencies": []}]}}'


@cases(r"""
name          source
tasks.json    TAGGED
tasks.md      - [ ] T001 Create the project
issues.jsonl  {"id": "a-1"}\n{"id": "a-2"}
prd.json      TAGGED
""")
def test_a_file_that_is_no_plan_is_one_for_the_planner(
    tmp_path: Path, name: str, source: str
) -> None:
    path = tmp_path / name
    path.write_text(source.replace("TAGGED", TAGGED))
    with pytest.raises(BadInput) as refused:
        prd.load(path)
    assert "`ralph plan FILE` makes a plan" in str(refused.value)


# Fields of a task, and what the message says behind the place of the task.
@cases(r"""
fields -> said
{"id": 1.0} -> id: 1.0 is not of type 'string', 'integer'
{"id": true} -> id: True is not of type 'string', 'integer'
{"id": ["a"]} -> id: ['a'] is not of type 'string', 'integer'
{"title": 5} -> title: 5 is not of type 'string', 'null'
{"title": ["a"]} -> title: ['a'] is not of type 'string', 'null'
{"name": {}} -> name: {} is not of type 'string', 'null'
{"description": [1]} -> description: [1] is not of type 'string', 'null'
{"passes": "yes"} -> passes: 'yes' is not of type 'boolean', 'null'
{"passes": 1} -> passes: 1 is not of type 'boolean', 'null'
{"passed": "true"} -> passed: 'true' is not of type 'boolean', 'null'
{"completed": "2026-01-01"} -> completed: '2026-01-01' is not of type 'boolean', 'null'
{"done": []} -> done: [] is not of type 'boolean', 'null'
{"status": 5} -> status: 5 is not of type 'string', 'null'
{"status": true} -> status: True is not of type 'string', 'null'
{"blocked": 5} -> blocked: 5 is not of type 'string', 'boolean', 'null'
{"blocked": ["a"]} -> blocked: ['a'] is not of type 'string', 'boolean', 'null'
{"priority": "urgent"} -> priority: expected a number, P0 to P3, or critical, highest, high, medium, normal, low, lowest: 'urgent'
{"priority": true} -> priority: True is not of type 'number', 'string', 'null'
{"priority": [1]} -> priority: [1] is not of type 'number', 'string', 'null'
{"acceptanceCriteria": 5} -> acceptanceCriteria: 5 is not of type 'string', 'array', 'null'
{"acceptance_criteria": {}} -> acceptance_criteria: {} is not of type 'string', 'array', 'null'
{"steps": ["a", 5]} -> steps[1]: 5 is not of type 'string', 'object'
{"verification": [{"txt": 1}]} -> verification[0]: 'text' is a required property
{"dependsOn": 5} -> dependsOn: 5 is not of type 'string', 'array', 'null'
{"depends_on": [true]} -> depends_on[0]: True is not of type 'string', 'integer'
{"dependsOn": [1.0]} -> dependsOn[0]: 1.0 is not of type 'string', 'integer'
{"dependencies": [["a"]]} -> dependencies[0]: ['a'] is not of type 'string', 'integer'
{"allow": [null]} -> allow[0]: None is not of type 'string', 'integer'
{"agent": 5} -> agent: 5 is not of type 'string', 'array', 'null'
{"checks": "npm test"} -> checks: 'npm test' is not of type 'array', 'null'
{"checks": {}} -> checks: {} is not of type 'array', 'null'
{"checks": ["x", ""]} -> checks[1]: expected a command; a blank one would always be green and prove nothing
{"checks": [[]]} -> checks[0]: expected a command; a blank one would always be green and prove nothing
{"checks": [{}]} -> checks[0]: expected a command; a blank one would always be green and prove nothing
{"checks": [null]} -> checks[0]: expected a command; a blank one would always be green and prove nothing
{"checks": [" "]} -> checks[0]: expected a command; a blank one would always be green and prove nothing
{"checks": ["\n"]} -> checks[0]: expected a command; a blank one would always be green and prove nothing
{"checks": [[" "]]} -> checks[0]: expected a command; a blank one would always be green and prove nothing
{"checks": [{"run": "\t"}]} -> checks[0]: expected a command; a blank one would always be green and prove nothing
{"checks": [[""]]} -> checks[0]: expected a command; a blank one would always be green and prove nothing
{"checks": [["x", 5]]} -> checks[0][1]: 5 is not of type 'string'
{"checks": [{"run": 5}]} -> checks[0].run: 5 is not of type 'string', 'array'
{"checks": [{"run": "x", "cmd": "y"}]} -> checks[0]: Additional properties are not allowed ('cmd' was unexpected)
{"checks": [{"run": "x", "once": "yes"}]} -> checks[0].once: 'yes' is not of type 'boolean'
{"checks": [{"run": "x", "timeout": "soon"}]} -> checks[0].timeout: expected a duration such as 90s, 10m or 2h, found 'soon'
{"checks": [{"run": "x", "timeout": 0}]} -> checks[0].timeout: expected a duration such as 90s, 10m or 2h, found 0
{"checks": [{"run": "x", "name": 5}]} -> checks[0].name: 5 is not of type 'string'
""")
def test_a_wrong_type_in_a_task_is_refused(
    tmp_path: Path, fields: str, said: str
) -> None:
    task = {"id": "b", **json.loads(fields)}
    if not task.keys() & {"title", "name"}:
        task["title"] = "x"
    source = json.dumps({"userStories": [{"id": "a", "title": "a"}, task]})
    assert_refused(write(tmp_path, source), f"prd.json: userStories[1].{said}")


@cases(r"""
fields -> said
{"branchName": 5} -> branchName: 5 is not of type 'string', 'null'
{"agent": ["claude", 5]} -> agent[1]: 5 is not of type 'string'
{"agent": [["claude"]]} -> agent[0]: ['claude'] is not of type 'string'
{"agent": {"run": "claude"}} -> agent: {'run': 'claude'} is not of type 'string'
{"judge": true} -> judge: True is not of type 'string', 'null'
{"prompt": {}} -> prompt: {} is not of type 'string', 'null'
{"setup": ["npm", "ci"]} -> setup: ['npm', 'ci'] is not of type 'string', 'object', 'null'
{"setup": {"run": 5}} -> setup.run: 5 is not of type 'string'
{"setup": {"run": "x", "when": [1.5]}} -> setup.when[0]: 1.5 is not of type 'string', 'integer'
{"keep": 5} -> keep: 5 is not of type 'string', 'array', 'null'
{"commit": 1} -> commit: 1 is not of type 'string', 'null'
{"protect": {"a": 1}} -> protect: {'a': 1} is not of type 'string', 'array', 'null'
{"protect": [1.5]} -> protect[0]: 1.5 is not of type 'string', 'integer'
{"limits": []} -> limits: [] is not of type 'object'
{"budget": 100} -> budget: 100 is not of type 'object'
{"agents": "claude"} -> agents: 'claude' is not of type 'object'
{"checks": "npm test"} -> checks: 'npm test' is not of type 'array', 'null'
{"checks": [5]} -> checks[0]: 5 is not of type 'string', 'array', 'object'
{"limits": {"iteration": 5}} -> limits: 
{"limits": {"iterations": 2.5}} -> limits.iterations: 2.5 
{"limits": {"iterations": 0}} -> limits.iterations: 0 
{"limits": {"iterations": true}} -> limits.iterations: True 
{"limits": {"hours": -1}} -> limits.hours: -1 
{"limits": {"tokens": null}} -> limits.tokens: None 
{"budget": {"usd": [1]}} -> budget.usd: [1] 
{"limits": {"usd": "20"}} -> limits.usd: '20' 
{"budget": {"usd": -1}} -> budget.usd: -1 
{"budget": {"hours": 1}} -> budget: 
{"limits": {"jobs": 0}} -> limits.jobs: 0 
{"limits": {"jobs": 1.5}} -> limits.jobs: 1.5 
{"limits": {"jobs": "four"}} -> limits.jobs: 'four' 
{"setup": {"when": ["x"]}} -> setup: 'run' is a required property
{"setup": {"run": " "}} -> setup.run: found ' '
{"setup": {"run": "x", "whenever": []}} -> setup: 
{"project": 5} -> project: 5 
""")
def test_a_wrong_value_at_the_top_is_refused(
    tmp_path: Path, fields: str, said: str
) -> None:
    source = json.dumps({"tasks": [{"title": "a"}], **json.loads(fields)})
    assert_refused(write(tmp_path, source), f"prd.json: {said}")


# Keys of the plan, or behind `task` of its task; and what is said. Nothing for a key
# that is shown to the agent as it stands.
@cases(r"""
keys -> said
{"cheks": ["x"]} -> prd.json: 'cheks' is unknown; is 'checks' meant?
{"protects": ["x"]} -> prd.json: 'protects' is unknown; is 'protect' meant?
{"budgets": {"usd": 1}} -> prd.json: 'budgets' is unknown; is 'budget' meant?
{"limits": {"iteration": 1}} -> limits: Additional properties are not allowed ('iteration' was unexpected)
task {"cheks": ["x"]} -> prd.json: T1: 'cheks' is unknown; is 'checks' meant?
task {"dependson": []} -> is 'dependsOn' meant?
task {"acceptanceCriterion": []} -> is 'acceptanceCriteria' meant?
task {"acceptance_criterias": []} -> is 'acceptanceCriteria' meant?
{"rules": "x", "phases": [], "maxUsd": 5, "project_id": 1} ->
task {"blockedBy": [], "completed_at": "x", "completedAt": "x", "tests": "x", "estimate": 3} ->
task {"usd": 5, "setup": "x", "attempts": 2} ->
""")
def test_a_key_that_is_nearly_a_known_one_is_an_error(
    tmp_path: Path, keys: str, said: str
) -> None:
    task = {"id": "T1", "title": "x"}
    top: dict[str, Any] = {"tasks": [task]}
    if keys.startswith("task "):
        task.update(json.loads(keys.removeprefix("task ")))
    else:
        top.update(json.loads(keys))
    plan = load(tmp_path, json.dumps(top))
    if not said:
        prd.validate(plan)
        return
    with pytest.raises(BadInput, match=re.escape(said)):
        prd.validate(plan)


@pytest.mark.parametrize("place", ["prd.json", "sub/prd.json"])
def test_a_missing_file_is_refused(tmp_path: Path, place: str) -> None:
    assert_refused(tmp_path / place, "there is no", "ralph init")


@pytest.mark.parametrize("trap", [os.mkdir, os.mkfifo])
def test_a_folder_or_a_fifo_in_its_place_is_refused(
    tmp_path: Path, trap: Callable[[Path], None]
) -> None:
    trap(tmp_path / "prd.json")
    assert_refused(tmp_path / "prd.json", "cannot be read")


# ---------------------------------------------------------------- the schema


def properties(schema: Any) -> Iterator[tuple[str, Any]]:
    """Every property of a schema, wherever it stands; those of an `if` are no more than
    a condition."""
    if isinstance(schema, list):
        for entry in schema:
            yield from properties(entry)
    if isinstance(schema, dict):
        named = schema.get("properties", {}) | schema.get("patternProperties", {})
        for pattern, found in named.items():
            for name in re.findall(r"\w+", pattern):
                yield name, found
        for key, value in schema.items():
            if key != "if":
                yield from properties(value)


def test_every_property_of_the_schema_is_described_and_every_key_is_there() -> None:
    import jsonschema

    schema = json.loads(SCHEMA.read_text("utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    named = set()
    for name, found in properties(schema):
        assert len(found.get("description", "")) > 3, name
        named.add(name)
    for meaning, keys in prd.ALIASES.items():
        if meaning not in ("project", "blocked_reason"):
            assert named.issuperset(keys)
    assert named.issuperset(prd.SETTINGS)


def test_what_init_writes_is_valid() -> None:
    prd.validate(prd.load(ROOT / "templates" / "prd.json"))
