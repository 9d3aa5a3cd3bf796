"""Whatever an agent, a row of agents.json or a template says: no traceback, and nothing
that is no number is counted."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from _ralph.agents.events import StreamParser
from _ralph.agents.prompt import render_message, render_prompt
from _ralph.agents.registry import find_agent, load_rows, require
from _ralph.errors import AgentUnavailable, BadInput
from _ralph.model import Outcome
from _ralph.state import prd
from _ralph.state.history import Unavailable, parse_handoff
from _ralph.state.limits import Limits, back
from _ralph.text import moment
from tests.conftest import ROOT
from tests.hostile import EXAMPLES, hostile, names, numbers, values


@pytest.fixture(autouse=True)
def counted(tally: Callable[[str, int], None]) -> Iterator[None]:
    yield
    tally("hostile inputs", EXAMPLES)


ROWS = load_rows(ROOT / "templates/agents.json", {})


def _fill(event: Any, steps: list[str], value: Any) -> Any:
    """`event` with `value` where a rule's dotted path points."""
    if not steps:
        return value
    if steps[0] == "*":
        return [
            _fill(
                event[0] if isinstance(event, list) and event else None,
                steps[1:],
                value,
            )
        ]
    inner = event if isinstance(event, dict) else {}
    return {**inner, steps[0]: _fill(inner.get(steps[0]), steps[1:], value)}


def _paths(rule: Any) -> list[str]:
    """Every path that a rule reads."""
    if isinstance(rule, str):
        return [rule] if re.fullmatch(r"[\w*]+(\.[\w*]+)*", rule) else []
    entries = (
        rule.values()
        if isinstance(rule, dict)
        else rule
        if isinstance(rule, list)
        else []
    )
    return [path for entry in entries for path in _paths(entry)]


RULES = [
    rule for row in ROWS.values() if isinstance(row, dict) for rule in row["events"]
]


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """An event that a rule looks at, with anything in the places that it reads."""
    rule = draw(st.sampled_from(RULES))
    event: Any = {}
    for path, wanted in rule["when"].items():
        event = _fill(
            event, path.split("."), wanted[0] if isinstance(wanted, list) else wanted
        )
    for path in _paths({key: value for key, value in rule.items() if key != "when"}):
        if draw(st.booleans()):
            event = _fill(event, path.split("."), draw(numbers | values))
    return json.dumps(event).encode()


_lines = st.lists(
    events()
    | st.binary(max_size=60)
    | values.map(lambda value: json.dumps(value).encode()),
    max_size=8,
)


@pytest.mark.parametrize(
    "row", sorted(name for name, row in ROWS.items() if isinstance(row, dict))
)
@hostile
@given(lines=_lines)
def test_any_output_of_an_agent(row: str, lines: list[bytes]) -> None:
    heard: list[str] = []
    parser = StreamParser(
        ROWS[row]["events"], ROWS[row].get("output") == "text", usd_left=1.0, tokens_left=1000,
        listen=lambda kind, words: heard.append(f"{kind}: {words}"), raw=heard.append,
    )  # fmt: skip
    for line in lines:
        assert parser.line(line) in ("stop", "quiet", None)
    for name in ("text", "reason", "session", "denials", "reset"):
        assert isinstance(parser.fact(name), str)
    moment(parser.fact("reset"), 0.0)
    json.dumps({"tokens": vars(parser.tokens()), "usd": parser.usd}, allow_nan=False)
    assert all(number >= 0 for number in vars(parser.tokens()).values())
    assert parser.final is None or parser.final in list(Outcome)


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


@hostile
@given(
    words=st.text(max_size=80)
    | st.lists(st.sampled_from(["Status: done\n", "ruled out:", "# files\n", "x"])).map(
        "".join
    )
)
def test_any_handoff(words: str) -> None:
    assert all(isinstance(part, str) for part in parse_handoff(words).values())


_row_parts = st.dictionaries(
    st.sampled_from(sorted(ROWS["claude"])), values, max_size=3
)
_rules = st.fixed_dictionaries(
    {"when": st.dictionaries(names, values, max_size=2)},
    optional=dict.fromkeys(
        sorted({key for rule in RULES for key in rule} - {"when"}), values
    ),
)


@hostile
@given(parts=_row_parts, rules=st.none() | st.lists(_rules, max_size=2), line=events())
def test_any_row_of_an_agent_in_a_plan(
    scratch: Path, parts: dict[str, Any], rules: list[Any] | None, line: bytes
) -> None:
    row = {**ROWS["claude"], **parts, **({} if rules is None else {"events": rules})}
    task = {"id": "T1", "title": "t", "checks": ["true"]}
    (scratch / "prd.json").write_text(
        json.dumps({"tasks": [task], "agents": {"x": row}})
    )
    try:
        plan = prd.load(scratch / "prd.json")
        prd.validate(plan)
        agent = find_agent("x --flag", {**ROWS, **plan.settings["agents"]}, "edit")
        require(agent)
    except (BadInput, AgentUnavailable) as error:
        assert str(error)
        return
    assert all(
        isinstance(word, str)
        for word in agent.argv(scratch / "prompt", scratch / "log", 1.0)
    )
    StreamParser(agent.row["events"], agent.row["output"] == "text", 1.0, 1).line(line)


@hostile
@given(source=st.binary(max_size=40) | st.lists(st.sampled_from(
    ["{{ task.id }}", "{{ task.nothing }}", "{% for t in task %}", "{% endfor %}", "{{", "}}", "{%", "x", "{{ 1 / 0 }}"]
)).map(lambda words: "".join(words).encode()))  # fmt: skip
def test_any_template(scratch: Path, source: bytes) -> None:
    (scratch / "PROMPT.md").write_bytes(source)
    try:
        assert render_prompt(scratch / "PROMPT.md", {"task": {"id": "T1"}}).strip()
        assert "\r" not in render_message(
            source.decode(), {"task": {"id": "T1"}}, "prd.json: commit"
        )
    except BadInput as error:
        assert str(error)
