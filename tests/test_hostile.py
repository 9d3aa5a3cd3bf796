"""Hostile bytes, made up by hypothesis: as prd.json and progress.txt, as the output of an
agent, its handoff and a template. No traceback, no pass, and no byte lost that was not
ralph's."""

from __future__ import annotations

import copy
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from _ralph.agents.cli import Agent
from _ralph.agents.prompt import render_message, render_prompt
from _ralph.agents.registry import BUILTIN
from _ralph.agents.running import conclude
from _ralph.agents.stream import Stream, event_of
from _ralph.errors import BadInput
from _ralph.process.process import ProcessResult
from _ralph.show import status
from _ralph.state import prd
from _ralph.state.history import Unavailable, parse_handoff
from _ralph.state.limits import Limits, back
from _ralph.state.log import Log
from _ralph.state.records import Added, parse
from _ralph.text import clean, moment
from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("nothing_hangs")
EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "40"))
hostile = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


KNOWN = {key for keys in prd.ALIASES.values() for key in keys}
OTHERS = """id status priority blocked checks allow agent run timeout agents limits protect setup commit task
    tokens handoff left base broken keep when verdict iteration attempt"""
names = st.sampled_from(sorted({*KNOWN, *OTHERS.split()})) | st.text(max_size=5)
_extremes = [0, -1, 1, 2**63, 10**400, -(10**400), 1e308, 5e-324, 0.5]
_finite = st.floats(allow_nan=False, allow_infinity=False)
numbers = st.sampled_from(_extremes) | _finite
_words = [
    "T1",
    "passed",
    "done",
    "blocked",
    "true",
    "\ud800",
    "\x00",
    "\u2028",
    "P0",
    "",
]
texts = st.sampled_from(_words) | st.text(max_size=8)


def _around(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    lists = st.lists(inner, max_size=4)
    return lists | st.dictionaries(names, inner, max_size=4)


values = st.recursive(
    st.none() | st.booleans() | numbers | texts, _around, max_leaves=12
)


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
        words = [task.raw.get(key) for key in (*prd.ALIASES["passed"], "status")]
        says_so = any(word is True or isinstance(word, str) for word in words)
        assert says_so or not task.passed


@hostile
@given(data=st.binary(max_size=200) | st.text(max_size=100))
def test_any_bytes_as_prd_json(scratch: Path, data: bytes | str) -> None:
    if isinstance(data, str):
        data = data.encode("utf-8", "surrogatepass")
    (scratch / "prd.json").write_bytes(data)
    refused_or_open(scratch / "prd.json")


_tasks = st.lists(st.dictionaries(names, values, max_size=5), max_size=3)


@hostile
@given(document=values, tasks=_tasks)
def test_any_json_as_prd_json(scratch: Path, document: Any, tasks: list[Any]) -> None:
    if isinstance(document, dict):
        document = {**document, "tasks": tasks}
    (scratch / "prd.json").write_text(json.dumps(document))
    refused_or_open(scratch / "prd.json")


EVENTS = "run start verdict wait recheck retry add land stop"
TITLE = b"\n## 2026-11-21 03:14:07 +01:00 | iteration 1 | T1 t | passed\n"


@st.composite
def _record(draw: st.DrawFn) -> bytes:
    fields = draw(st.dictionaries(names, values, max_size=6))
    event = draw(st.sampled_from(EVENTS.split()))
    line = json.dumps({"v": 2, "plan": "p@", "event": event, **fields})
    return f"<!-- ralph {line} -->\n".encode()


_parts = st.binary(max_size=40) | st.just(TITLE) | _record()
_notes = st.lists(_parts, max_size=6).map(b"".join)


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
        assert status.lines(shown, color=True)
        status.show(shown, "json")
    except BadInput as error:
        assert "progress.txt" in str(error)
    data = path.read_bytes()
    assert data.startswith(notes)
    assert [*parse(data.split(b"\n"))][-1]["event"] == "add"
    assert not prd.load(plan_path).tasks[0].passed


# ---------------------------------------------------------------- agents


def recorded(name: str) -> list[Any]:
    """The events of an agent's recordings, one of each shape."""
    found = {}
    for path in sorted((ROOT / "tests/recordings" / name).glob("*.*")):
        for line in path.read_bytes().splitlines():
            event = event_of(line) or {"line": line.decode("utf-8", "replace")}
            found[str(event.get("type")), str(event.get("subtype")), len(event)] = event
    return [*found.values()]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every place in a value, as a container and a key of it."""
    keys: list[Any] = []
    if isinstance(value, dict):
        keys = [*value]
    if isinstance(value, list):
        keys = [*range(len(value))]
    found = []
    for key in keys:
        found += [(value, key), *places(value[key])]
    return found


@st.composite
def changed(draw: st.DrawFn, events: list[Any]) -> bytes:
    """A recorded event with anything in some of its places."""
    event = copy.deepcopy(draw(st.sampled_from(events)))
    for _ in range(draw(st.integers(0, 3))):
        container, key = draw(st.sampled_from(places(event)))
        container[key] = draw(numbers | values)
    return json.dumps(event).encode()


@pytest.mark.parametrize("name", BUILTIN)
@hostile
@given(data=st.data())
def test_any_output_of_an_agent(name: str, data: st.DataObject) -> None:
    made_up = values.map(lambda value: json.dumps(value).encode())
    line = changed(recorded(name)) | st.binary(max_size=60) | made_up
    heard: list[str] = []

    def listen(*words: str) -> None:
        heard.append(": ".join(words))

    cli = BUILTIN[name]
    stream = Stream(cli, usd_left=1.0, tokens_left=1000, listen=listen, raw=heard.append)  # fmt: skip
    for one in data.draw(st.lists(line, max_size=8)):
        printed = b'"event"' not in one
        assert stream.line(one, printed) in ("stop", "quiet", None)
    agent = Agent(name, (name,), cli)
    result = conclude(agent, stream, ProcessResult(exit=1), "")
    used = [*vars(result.tokens).values(), result.usd or 0.0]
    json.dumps(used, allow_nan=False)
    assert min(used) >= 0
    for words in (result.text, result.reason, *result.denials):
        assert isinstance(words, str)


_digits = ["1", "0", "99", "1e5", "9" * 20, "9" * 400, "-1", "1.5"]
DATES = """
in {} hours
after {}s
{}
at Nov {}, 2026 9:05 AM
at {}:05 AM
Mon, {} Nov 2026 10:00:00 GMT
Mon, 23 Nov {} 10:00:00 GMT
Mon, 1 Jan 0001 0:0:0 +{}
"""
_dates = st.builds(
    str.format, st.sampled_from(DATES.split("\n")), st.sampled_from(_digits)
)


@hostile
@given(words=st.text(max_size=80) | _dates)
def test_any_reset_time(words: str) -> None:
    away = Unavailable(1e9, moment(words, 1e9) or 0.0, tries=1)
    assert back(Limits(), away)


_lines = st.sampled_from(["Status: done\n", "ruled out:", "# files\n", "x"])


@hostile
@given(words=st.text(max_size=80) | st.lists(_lines).map("".join))
def test_any_handoff(words: str) -> None:
    for part in parse_handoff(words).values():
        assert isinstance(part, str)


PIECES = "{{ task.id }}|{{ task.nothing }}|{% for t in task %}|{% endfor %}|{{|}}|{%|x\n\x1b|x|{{ 1 / 0 }}"
_pieces = st.lists(st.sampled_from(PIECES.split("|"))).map("".join)


@hostile
@given(source=st.binary(max_size=40) | _pieces.map(str.encode))
def test_any_template(scratch: Path, source: bytes) -> None:
    (scratch / "PROMPT.md").write_bytes(source)
    task = {"task": {"id": "T1"}}
    try:
        assert render_prompt(scratch / "PROMPT.md", task).strip()
        message = render_message(source.decode(), task, "prd.json: commit")
        assert clean(message) == message
    except BadInput as error:
        assert str(error)
