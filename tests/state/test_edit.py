"""Edits of a plan that somebody else saves at the same time: nothing of theirs is lost,
and the mark stands."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from _ralph import files
from _ralph.errors import BadInput, TryLater
from _ralph.model import Plan
from _ralph.state import edit, prd


def plan_of(folder: Path, many: int = 3, **top: Any) -> Plan:
    path = folder / "prd.json"
    tasks = [
        {"id": f"T{i}", "title": f"task {i}", "passes": False} for i in range(many)
    ]
    path.write_text(json.dumps({**top, "tasks": tasks}, indent=2))
    return prd.load(path)


def mark(*names: str) -> Callable[[Plan], str]:
    return lambda plan: edit.set_passed(
        plan, [task for task in plan.tasks if task.id in names], True
    )


def passed(path: Path) -> set[str]:
    return {task.id for task in prd.load(path).tasks if task.passed}


# ---------------------------------------------------------------- many marks, one write


def test_many_tasks_are_marked_in_one_write(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, 3000)
    before, began = plan.text, time.process_time()
    new = edit.apply(plan, lambda now: edit.set_passed(now, now.tasks[::2], True))
    assert (
        time.process_time() - began < 1.5
    )  # 0.1 here; with a walk for each of them, a minute
    assert [task.passed for task in new.tasks] == [True, False] * 1500
    assert new.text == plan.path.read_text() == prd.load(plan.path).text
    assert new.text.replace('"passes": true', '"passes": false') == before
    assert edit.set_passed(new, new.tasks, False) == before
    blocked = prd.read(edit.set_blocked(new, new.tasks, "why"), plan.path)
    assert edit.set_open(blocked, blocked.tasks) == new.text


def test_a_task_that_is_another_one_by_now_is_not_marked(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    newer = plan.text.replace("task 1", "something else").replace('"T2"', '"T9"')
    plan.path.write_text(newer)
    new = edit.apply(plan, lambda now: edit.set_passed(now, plan.tasks, True))
    assert new.passed_ids == passed(plan.path) == {"T0"}
    assert plan.path.read_text() == newer.replace("false", "true", 1)


# ---------------------------------------------------------------- a newer plan


def test_a_change_is_made_to_the_newer_plan(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    plan.path.write_text(plan.text.replace("task 2", "my words"))
    new = edit.apply(plan, mark("T1"))
    assert [task.title for task in new.tasks] == ["task 0", "task 1", "my words"]
    assert new.passed_ids == passed(plan.path) == {"T1"}
    assert os.listdir(tmp_path) == ["prd.json"]


@pytest.mark.parametrize(
    "broken", ["", "{", '{"tasks": []}', '{"tasks": [{"title": 5}]}']
)
def test_a_plan_that_is_broken_is_never_written_over(
    tmp_path: Path, broken: str
) -> None:
    plan = plan_of(tmp_path)
    plan.path.write_text(broken)
    with pytest.raises(BadInput, match=r"prd\.json"):
        edit.apply(plan, mark("T1"))
    assert plan.path.read_text() == broken


def test_a_plan_that_was_deleted_is_not_made_again(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    plan.path.unlink()
    with pytest.raises(BadInput, match=r"there is no .*prd\.json"):
        edit.apply(plan, mark("T1"))
    assert os.listdir(tmp_path) == []


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


def test_a_change_that_makes_no_plan_is_not_written(tmp_path: Path) -> None:
    plan = plan_of(tmp_path)
    with pytest.raises(BadInput):
        edit.apply(plan, lambda now: now.text[:-1])
    assert plan.path.read_text() == plan.text


def test_one_at_a_time_holds_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(edit, "LOCK_PATIENCE", 0.1)
    folder = tmp_path / "a" / "b"
    with edit.lock(folder), pytest.raises(TryLater), edit.lock(folder):
        raise AssertionError("two hold it")
    with edit.lock(folder):
        pass


# ---------------------------------------------------------------- a person with an editor

SAVES: dict[str, Callable[[Path, bytes], object]] = {}


def save(way: Callable[[Path, bytes], object]) -> Callable[[Path, bytes], object]:
    SAVES[way.__name__] = way
    return way


@save
def in_place(path: Path, data: bytes) -> None:
    path.write_bytes(data)


@save
def by_rename(path: Path, data: bytes) -> None:
    other = path.with_name("4913")
    other.write_bytes(data)
    os.replace(other, path)


@save
def moved_away_first(path: Path, data: bytes) -> None:
    os.rename(path, path.with_name("prd.json~"))
    path.write_bytes(data)


@save
def half_then_whole(path: Path, data: bytes) -> None:
    path.write_bytes(data[: len(data) // 2])
    time.sleep(random.uniform(0, 0.005))
    path.write_bytes(data)


@save
def slowly(path: Path, data: bytes) -> None:
    with path.open("wb", buffering=0) as file:
        file.write(data[:50])
        time.sleep(random.uniform(0, 0.005))
        file.write(data[50:])


@save
def over_it(path: Path, data: bytes) -> None:
    with path.open("r+b", buffering=0) as file:
        file.write(data)
        file.truncate()


@pytest.mark.parametrize("way", SAVES)
def test_what_a_person_saves_meanwhile_stands_beside_the_mark(
    tmp_path: Path, way: str
) -> None:
    plan, seen = plan_of(tmp_path, 5, mine=[]), list[Plan]()

    def change(now: Plan) -> str:
        seen.append(now)
        if len(seen) == 1:  # after it was read, before it is written
            SAVES[way](
                plan.path, json.dumps({**now.top, "mine": ["my words"]}).encode()
            )
        return mark("T1", "T3")(now)

    edit.apply(plan, change)
    assert json.loads(plan.path.read_bytes())["mine"] == ["my words"]
    assert passed(plan.path) == {"T1", "T3"} and len(seen) == 2
    assert not list(tmp_path.glob(f"*{files.TEMPORARY}"))


def test_a_mark_that_is_written_over_what_was_saved_is_caught(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def replaced(path: Path, data: bytes, expected: bytes) -> bool:
        files.atomic_write(path, data)
        return True

    monkeypatch.setattr(files, "replace_if", replaced)
    for way in SAVES:
        with pytest.raises(AssertionError):
            test_what_a_person_saves_meanwhile_stands_beside_the_mark(tmp_path, way)
