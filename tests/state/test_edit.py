"""Edits of a plan: no other byte changes, nothing that somebody else saves at the same
time is lost, and the mark stands."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from _ralph import files
from _ralph.errors import BadInput, TryLater
from _ralph.model import Plan, Task
from _ralph.state import edit, prd
from tests.conftest import cases
from tests.state.test_jsontext import written
from tests.state.test_prd import load

# ---------------------------------------------------------------- one field's bytes

BLOCKED = 'über "quoted" \\ \ud800'
# What a write may change.
DONE_KEYS = ("passes", "passed", "completed", "complete", "done", "status")
HELD_KEYS = ("blocked", "skip", "skipped", "status")
TOKEN = re.compile(r'"(?:[^"\\]|\\.)*"|[^\s"{}\[\],:]+|\s+|.', re.DOTALL)


def changed(plan: Plan, task: Task, word: str) -> str:
    """The plan's text after a write of `word`."""
    if word == "open":
        return edit.set_open(plan, task)
    if word == "block":
        return edit.set_blocked(plan, task, BLOCKED)
    return edit.set_passed(plan, task, word == "pass")


def assert_written(plan: Plan, task: Task, word: str) -> None:
    """A write of `word` changes one field of one task, is read back, and is harmless
    once more."""
    after = changed(plan, task, word)
    again = edit.apply(plan, lambda _: after)
    assert plan.path.read_bytes() == after.encode()
    now = again.tasks[task.index]
    if word in ("pass", "fail"):
        assert now.passed is (word == "pass")
    else:
        assert (now.blocked or "") == (BLOCKED[:-2] if word == "block" else "")
    assert changed(again, now, word) == after
    keys = DONE_KEYS if word in ("pass", "fail") else HELD_KEYS
    for key in (task.raw.keys() | now.raw.keys()) - {*keys}:
        assert now.raw[key] == task.raw[key]
    for before, later in zip(plan.tasks, again.tasks, strict=True):
        assert before.index == task.index or before.raw == later.raw
        assert before.id == later.id
    fields = {key for key in keys if task.raw.get(key, "") != now.raw.get(key, "")}
    assert_little_changed(plan.text, after, len(fields))


def assert_little_changed(before: str, after: str, fields: int) -> None:
    """No more of the text differs than so many fields have: a comma, a key, a colon and
    a value each, with the gaps between them, in one place."""
    old, new = TOKEN.findall(before), TOKEN.findall(after)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    places = [code for code in matcher.get_opcodes() if code[0] != "equal"]
    assert len(places) <= fields
    for _, a, b, c, d in places:
        for tokens in (old[a:b], new[c:d]):
            assert sum(not token.isspace() for token in tokens) <= 4 * fields


# Every way to write a plan down that has to survive a write.
@pytest.mark.parametrize("word", ["pass", "fail", "block", "open"])
@cases(r"""
name -> source
native -> {\n  "project": "p",\n  "userStories": [\n    {\n      "id": "a",\n      "title": "x",\n      "passes": false,\n      "notes": ""\n    },\n    {\n      "id": "b",\n      "title": "y",\n      "passes": true\n    },\n    {\n      "id": "c",\n      "title": "z"\n    }\n  ]\n}\n
compact -> {"tasks":[{"id":"a","title":"x","passes":false},{"id":"b","title":"y"},{"id":"c","title":"z","done":true}]}
one line -> [{"id": "a", "title": "x", "passed": false}, {"id": "b", "title": "y", "passed": true}]
one task a line -> {"stories": [\n  {"id": 1, "title": "x", "passes": false},\n  {"id": 2, "title": "y"}\n]}\n
one-line lists -> {\n  "tasks": [\n    {\n      "id": "a",\n      "steps": ["one", "two"],\n      "title": "x"\n    }\n  ]\n}\n
CRLF -> {\r\n  "tasks": [\r\n    {\r\n      "id": "a",\r\n      "title": "x"\r\n    },\r\n    {\r\n      "title": "y",\r\n      "passes": false\r\n    }\r\n  ]\r\n}\r\n
BOM -> BOM{\n  "tasks": [\n    {\n      "title": "x",\n      "complete": false\n    }\n  ]\n}
BOM and CRLF -> BOM[\r\n\t{\r\n\t\t"title": "x"\r\n\t}\r\n]\r\n
tabs -> {\n\t"tasks": [\n\t\t{\n\t\t\t"title": "x",\n\t\t\t"passes": false\n\t\t}\n\t]\n}\n
mixed indentation -> {\n "tasks":\n   [ {"title" : "x" , "passes" : false },\n\t{ "title":"y","passes":false} ] }
unicode escapes -> [{"title": "\u00e9 \ud83c\udf89 \/ \u0022", "x": "\u0000", "passes": false}, {"title": "é 🎉"}]
a lone surrogate -> [{"title": "x", "y": "\ud800", "passes": false}]
numbers as written -> [{"title": "x", "y": [1.0, 1e2, 1E-2, -0, 0.10, 12345678901234567890], "passes": false}]
empty objects -> {"a": {}, "b": [], "tasks": [{"title": "x", "meta": {}, "list": []}, {"title": "y", "meta": { }}]}
one field alone -> [{"title": "x"}, {\n  "title": "y"\n}, { "title": "z" }]
the field first -> [{"passes": false, "title": "x"}, {\n  "passes": false,\n  "title": "y"\n}]
null in its place -> [{"title": "x", "passes": null, "blocked": null}, {"title": "y", "passes": false}]
status words -> [{"title": "x", "status": "todo"}, {"title": "y", "status": "Completed"}, {"title": "z", "status": "todo"}]
status without a done -> {"features": [{"name": "x", "status": "not_started", "n": 1}, {"name": "y", "status": "in_progress"}]}
flag and status -> [{"title": "x", "passes": false, "notes": "n", "status": "open"}, {"title": "y", "passes": true, "status": "finished"}]
held back -> [{"title": "x", "skip": true, "blocked": "why"}, {"title": "y", "status": "blocked"}, {"title": "z", "status": "open", "blocked": "why"}]
the same words elsewhere -> {"passes": false, "tasks": [{"title": "\"passes\": false", "sub": {"passes": false, "tasks": [{"passes": false}]}, "passes": false}], "also": [{"passes": false}]}
lists before the list -> {"x": [{"title": "no task", "passes": false}], "tasks": [{"title": "x", "passes": false}]}
braces in texts -> [{"title": "}]{[,:", "y": "\\\"", "passes": false}, {"title": "\\", "passes": false}]
blank lines -> \n\n[\n\n{\n\n"title": "x"\n\n,"y": 1}\n\n]\n\n
no final newline -> {\n  "tasks": [\n    {\n      "title": "x",\n      "passes": false\n    }\n  ]\n}
many final newlines -> [{"title": "x", "passes": false}]\n\n\n
comma first -> [\n  { "id": "a"\n  , "title": "x"\n  }\n, { "id": "b"\n  , "title": "y"\n  , "passes": false\n  }\n]\n
space before the comma -> [{"id": "a" ,\n  "title": "x"}, {"id": "b" , "title": "y"}]
""")
def test_a_write_changes_one_field_and_no_other_byte(
    tmp_path: Path, name: str, source: str, word: str
) -> None:
    source = written(source)
    plan = load(tmp_path, source)
    prd.validate(plan)
    for task in plan.tasks:
        assert_written(load(tmp_path, source), task, word)


# In the words of the file.
@cases("""
word -> source -> wanted
pass -> [{"title": "x", "passes": false}] -> [{"title": "x", "passes": true}]
pass -> [{"title": "x"}] -> [{"title": "x", "passes": true}]
pass -> [{"title": "x"}, {"title": "y", "done": true}] -> [{"title": "x", "done": true}, {"title": "y", "done": true}]
pass -> [{"title": "x", "status": "todo"}] -> [{"title": "x", "status": "done"}]
pass -> [{"title": "x", "status": "todo"}, {"title": "y", "status": "Verified"}] -> [{"title": "x", "status": "Verified"}, {"title": "y", "status": "Verified"}]
pass -> [{"title": "x", "status": "todo", "passes": false}] -> [{"title": "x", "status": "done", "passes": true}]
pass -> [{"title": "x", "passes": false, "done": "a text"}] -> [{"title": "x", "passes": true, "done": "a text"}]
pass -> [{"title": "x", "passes": false, "done": false}] -> [{"title": "x", "passes": true, "done": true}]
pass -> [{"title": "x", "passes": null}] -> [{"title": "x", "passes": true}]
fail -> [{"title": "x", "status": "done"}, {"title": "y", "status": "todo"}] -> [{"title": "x", "status": "todo"}, {"title": "y", "status": "todo"}]
fail -> [{"title": "x", "status": "done"}] -> [{"title": "x", "status": "open"}]
fail -> [{"title": "x", "passes": true}] -> [{"title": "x", "passes": false}]
open -> [{"title": "x", "blocked": "why", "y": 1}] -> [{"title": "x", "blocked": false, "y": 1}]
open -> [{"title": "x", "skip": true}] -> [{"title": "x", "skip": false}]
open -> [{"title": "x", "status": "blocked"}] -> [{"title": "x", "status": "open"}]
open -> [{"title": "x", "status": "in_progress", "blocked": true}] -> [{"title": "x", "status": "in_progress", "blocked": false}]
open -> [{"title": "x", "passes": false}] -> [{"title": "x", "passes": false}]
""")
def test_a_write_is_in_the_words_of_the_file(
    tmp_path: Path, word: str, source: str, wanted: str
) -> None:
    plan = load(tmp_path, source)
    assert changed(plan, plan.tasks[0], word) == wanted


def plan_of(folder: Path, many: int = 3, **top: Any) -> Plan:
    path = folder / "prd.json"
    tasks: list[Any] = []
    for i in range(many):
        tasks.append({"id": f"T{i}", "title": f"task {i}", "passes": False})
    path.write_text(json.dumps({**top, "tasks": tasks}, indent=2))
    return prd.load(path)


def mark(*names: str, passed: bool = True) -> Callable[[Plan], str]:
    def change(plan: Plan) -> str:
        named = [task for task in plan.tasks if task.id in names]
        return edit.set_passed(plan, named, passed)

    return change


def passed(path: Path) -> set[str]:
    return {task.id for task in prd.load(path).tasks if task.passed}


# ---------------------------------------------------------------- a newer plan


@pytest.mark.parametrize(
    "broken", ["", "{", '{"tasks": {}}', '{"tasks": [{"title": 5}]}']
)
def test_a_plan_that_is_broken_is_never_written_over(
    tmp_path: Path, broken: str
) -> None:
    plan = plan_of(tmp_path)
    plan.path.write_text(broken)
    with pytest.raises(BadInput, match=r"prd\.json"):
        edit.apply(plan, mark("T1"))
    assert plan.path.read_text() == broken


def test_who_saves_without_end_is_given_way(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    saved: list[str] = []

    def change(now: Plan) -> str:
        saved.append(f'{{"n": {len(saved)}, "tasks": [{{"id": "T1", "title": "x"}}]}}')
        plan.path.write_text(saved[-1])
        return mark("T1")(now)

    with pytest.raises(TryLater, match=r"prd\.json keeps changing"):
        edit.apply(plan, change)
    assert plan.path.read_text() == saved[-1]
    assert 4 <= len(saved) < 12


# ---------------------------------------------------------------- a person with an editor


def in_place(path: Path, data: bytes) -> None:
    path.write_bytes(data)


def by_rename(path: Path, data: bytes) -> None:
    other = path.with_name("4913")
    other.write_bytes(data)
    os.replace(other, path)


def moved_away_first(path: Path, data: bytes) -> None:
    os.rename(path, path.with_name("prd.json~"))
    path.write_bytes(data)


@pytest.mark.parametrize("save", [in_place, by_rename, moved_away_first])
def test_what_a_person_saves_meanwhile_stands_beside_the_mark(
    tmp_path: Path, save: Callable[[Path, bytes], None]
) -> None:
    plan, seen = plan_of(tmp_path, 5, mine=[]), list[Plan]()

    def change(now: Plan) -> str:
        seen.append(now)
        if len(seen) == 1:  # after it was read, before it is written
            save(plan.path, json.dumps({**now.top, "mine": ["my words"]}).encode())
        return mark("T1", "T3")(now)

    edit.apply(plan, change)
    assert json.loads(plan.path.read_bytes())["mine"] == ["my words"]
    assert passed(plan.path) == {"T1", "T3"} and len(seen) == 2
    assert not list(tmp_path.glob(f"*{files.TEMPORARY}"))
