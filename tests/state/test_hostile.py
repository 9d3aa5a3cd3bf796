"""Whatever stands in prd.json and progress.txt: no traceback, no pass, and no byte lost
that was not ralph's."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _ralph.errors import BadInput
from _ralph.show import status
from _ralph.state import prd
from _ralph.state.log import Log
from _ralph.state.records import Added, parse
from tests.hostile import EXAMPLES, KNOWN, hostile, names, values
from tests.state.test_edit import WRITES, assert_written


@pytest.fixture(autouse=True)
def counted(tally: Callable[[str, int], None]) -> Iterator[None]:
    yield
    tally("hostile inputs", EXAMPLES)


def refused_or_open(path: Path) -> None:
    """A plan is refused with words, or read with no task passed that does not say
    so."""
    try:
        plan = prd.load(path)
        prd.validate(plan)
    except BadInput as error:
        assert str(error)
        return
    for task in plan.tasks:
        said = [task.raw.get(key) for key in prd.ALIASES["passed"]] + [
            task.raw.get("status")
        ]
        assert not task.passed or any(
            word is True or isinstance(word, str) for word in said
        )


@hostile
@given(
    data=st.binary(max_size=200)
    | st.text(max_size=100).map(lambda t: t.encode("utf-8", "surrogatepass"))
)
def test_any_bytes_as_prd_json(scratch: Path, data: bytes) -> None:
    (scratch / "prd.json").write_bytes(data)
    refused_or_open(scratch / "prd.json")


@hostile
@given(
    document=values,
    tasks=st.lists(st.dictionaries(names, values, max_size=5), max_size=3),
)
def test_any_json_as_prd_json(scratch: Path, document: Any, tasks: list[Any]) -> None:
    top = {**document, "tasks": tasks} if isinstance(document, dict) else document
    (scratch / "prd.json").write_text(json.dumps(top))
    refused_or_open(scratch / "prd.json")


_done = st.none() | st.tuples(st.sampled_from(prd.ALIASES["passed"]), st.booleans())
_status = st.tuples(
    st.just("status"), st.sampled_from(["todo", "done", "blocked", "In Progress"])
)
_extras = st.dictionaries(st.text(max_size=6), values, max_size=4)
_styles: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"indent": 2}, {"indent": "\t"}, {"indent": 0}, {}, {"separators": (",", ":")}, {"separators": (" ,", " : ")}]
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Valid plans in any formatting: a list or an object, any keys beside, in any
    order."""
    tasks = []
    for number in range(draw(st.integers(min_value=1, max_value=4))):
        own = [
            ("id", f"T{number}"),
            ("title", "t"),
            *filter(None, [draw(_done | _status)]),
        ]
        beside = [
            (key, value) for key, value in draw(_extras).items() if key not in KNOWN
        ]
        tasks.append(dict(draw(st.permutations([*own, *beside]))))
    document: Any = tasks
    if draw(st.booleans()):
        beside = [(f"x{key}", value) for key, value in draw(_extras).items()]
        document = dict(draw(st.permutations([("userStories", tasks), *beside])))
    source = json.dumps(document, ensure_ascii=draw(st.booleans()), **draw(_styles))
    source = (
        draw(st.sampled_from(["", "\ufeff"]))
        + source
        + draw(st.sampled_from(["", "\n", "\r\n\n"]))
    )
    return source.encode("utf-8", "replace")


@pytest.mark.parametrize("change", WRITES)
@hostile
@given(data=documents(), which=st.integers(min_value=0, max_value=3))
def test_a_write_changes_one_field_and_no_other_byte(
    scratch: Path, change: str, data: bytes, which: int
) -> None:
    path = scratch / "prd.json"
    path.write_bytes(data)
    plan = prd.load(path)
    assert_written(plan, plan.tasks[which % len(plan.tasks)], change)


_records = st.builds(
    lambda fields, event, version: json.dumps(
        {"v": version, "plan": "p@", "event": event, **fields}
    ),
    st.dictionaries(names, values, max_size=6),
    st.sampled_from(
        ["run", "start", "verdict", "wait", "recheck", "retry", "add", "land", "stop"]
    ),
    st.just(2),
)
_notes = st.lists(
    st.binary(max_size=40)
    | st.just(b"\n## 2026-11-21 03:14:07 +01:00 | iteration 1 | T1 t | passed\n")
    | _records.map(lambda line: f"<!-- ralph {line} -->\n".encode()),
    max_size=6,
).map(b"".join)


@hostile
@given(notes=_notes)
def test_any_bytes_as_progress_txt(scratch: Path, notes: bytes) -> None:
    """Read, shown and appended to, or refused with words; never a byte less, and never
    a pass in the plan."""
    plan_path, path = scratch / "prd.json", scratch / "progress.txt"
    plan_path.write_text(
        '{"project": "p", "tasks": [{"id": "T1", "title": "t", "passes": false}]}'
    )
    path.write_bytes(notes)
    plan = prd.load(plan_path)
    log = Log(path, plan)
    log.close_torn_record()
    assert log.close_torn_record() == []  # what was cut off is closed once
    try:
        log.write(Added(), "", "head", ["- line"])
        shown = status.Status(plan, log.read())
        assert status.lines(shown, 80, color=True)
        json.dumps(status.as_object(shown))
    except BadInput as error:
        assert "progress.txt" in str(error)
    data = path.read_bytes()
    assert data.startswith(notes)
    assert [*parse(data.split(b"\n"))][-1]["event"] == "add"
    assert not prd.load(plan_path).tasks[0].passed
