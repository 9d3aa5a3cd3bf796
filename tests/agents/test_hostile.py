"""Whatever an agent, a handoff or a template says: no traceback, and nothing that is no
number is counted."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _ralph.agents.cli import Agent
from _ralph.agents.prompt import render_message, render_prompt
from _ralph.agents.registry import BUILTIN
from _ralph.agents.running import conclude
from _ralph.agents.stream import Stream, event_of
from _ralph.errors import BadInput
from _ralph.process.process import ProcessResult
from _ralph.state.history import Unavailable, parse_handoff
from _ralph.state.limits import Limits, back
from _ralph.text import moment
from tests.conftest import ROOT
from tests.hostile import EXAMPLES, hostile, numbers, values


@pytest.fixture(autouse=True)
def counted(tally: Callable[[str, int], None]) -> Iterator[None]:
    yield
    tally("hostile inputs", EXAMPLES)


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
    items: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        items = [*value.items()]
    if isinstance(value, list):
        items = [*enumerate(value)]
    found = [(value, key) for key, _ in items]
    for _, inner in items:
        found += places(inner)
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
    stream = Stream(
        BUILTIN[name],
        usd_left=1.0,
        tokens_left=1000,
        listen=lambda *words: heard.append(": ".join(words)),
        raw=heard.append,
    )
    for one in data.draw(st.lists(line, max_size=8)):
        printed = b'"event"' not in one
        assert stream.line(one, printed) in ("stop", "quiet", None)
    agent = Agent(name, (name,), BUILTIN[name])
    result = conclude(agent, stream, ProcessResult(exit=1), "")
    numbers = [*vars(result.tokens).values(), result.usd or 0.0]
    json.dumps(numbers, allow_nan=False)
    assert min(numbers) >= 0
    for words in (result.text, result.reason, *result.denials):
        assert isinstance(words, str)


_digits = st.sampled_from(["1", "0", "99", "1e5", "9" * 20, "9" * 400, "-1", "1.5"])
_dates = st.tuples(
    st.sampled_from(["in {} hours", "after {}s", "{}", "at Nov {}, 2026 9:05 AM", "at {}:05 AM",
                     "Mon, {} Nov 2026 10:00:00 GMT", "Mon, 23 Nov {} 10:00:00 GMT", "Mon, 1 Jan 0001 0:0:0 +{}"]),
    _digits,
).map(lambda pair: pair[0].format(pair[1]))  # fmt: skip


@hostile
@given(words=st.text(max_size=80) | _dates)
def test_any_reset_time(words: str) -> None:
    away = Unavailable(1e9, moment(words, 1e9) or 0.0, tries=1)
    assert back(Limits(), away)


_lines = st.sampled_from(["Status: done\n", "ruled out:", "# files\n", "x"])


@hostile
@given(words=st.text(max_size=80) | st.lists(_lines).map("".join))
def test_any_handoff(words: str) -> None:
    assert all(isinstance(part, str) for part in parse_handoff(words).values())


_pieces = st.sampled_from(
    ["{{ task.id }}", "{{ task.nothing }}", "{% for t in task %}", "{% endfor %}", "{{", "}}", "{%", "x", "{{ 1 / 0 }}"]
)  # fmt: skip


@hostile
@given(source=st.binary(max_size=40) | st.lists(_pieces).map("".join).map(str.encode))
def test_any_template(scratch: Path, source: bytes) -> None:
    (scratch / "PROMPT.md").write_bytes(source)
    task = {"task": {"id": "T1"}}
    try:
        assert render_prompt(scratch / "PROMPT.md", task).strip()
        assert "\r" not in render_message(source.decode(), task, "prd.json: commit")
    except BadInput as error:
        assert str(error)
