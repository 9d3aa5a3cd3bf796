"""Hostile bytes, made up by hypothesis: no traceback, no pass, and no byte lost that was not ralph's."""

from __future__ import annotations

import itertools
import json
import os
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from _ralph.agents.events import StreamParser
from _ralph.agents.prompt import compile_line, render_line, render_prompt
from _ralph.agents.registry import find_agent, load_rows, require
from _ralph.errors import AgentUnavailable, BadInput
from _ralph.model import Outcome, Plan, Task
from _ralph.show import status
from _ralph.state import edit, prd
from _ralph.state.history import Away, parse_handoff, replay
from _ralph.state.limits import Limits, wait_for
from _ralph.state.records import Added, Journal, parse
from _ralph.text import moment
from tests.conftest import ROOT, Repo

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "40"))
ROWS = load_rows(ROOT / "templates/agents.json", {})
hostile = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip

_KNOWN = {key for keys in prd.ALIASES.values() for key in keys}
_KNOWN |= {"id", "status", "priority", "blocked", "checks", "allow", "agent"}
_OTHERS = [
    "run",
    "timeout",
    "agents",
    "limits",
    "protect",
    "setup",
    "commit",
    "task",
    "tokens",
    "handoff",
    "left",
    "base",
    "broken",
    "keep",
    "when",
]
_names = st.sampled_from([*sorted(_KNOWN), *_OTHERS, "verdict", "iteration", "attempt"]) | st.text(max_size=5)
_numbers = st.sampled_from([0, -1, 1, 2**63, 10**400, -(10**400), 1e308, 5e-324, 0.5]) | st.floats(
    allow_nan=False, allow_infinity=False
)
_words = st.sampled_from(["T1", "passed", "done", "blocked", "true", "\ud800", "\x00", "\u2028", "P0", ""])
_leaves = st.none() | st.booleans() | _numbers | _words | st.text(max_size=8)
values = st.recursive(
    _leaves,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(_names, inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(autouse=True)
def counted(tally: Callable[[str, int], None]) -> Iterator[None]:
    yield
    tally("hostile inputs", EXAMPLES)


@pytest.fixture(scope="module")
def scratch() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


def refused_or_open(path: Path) -> None:
    """A plan is refused with words, or read with no task passed that does not say so."""
    try:
        plan = prd.load(path)
        prd.validate(plan)
    except BadInput as error:
        assert str(error)
        return
    for task in plan.tasks:
        said = [task.raw.get(key) for key in prd.ALIASES["passed"]] + [task.raw.get("status")]
        assert not task.passed or any(word is True or isinstance(word, str) for word in said)


@hostile
@given(data=st.binary(max_size=200) | st.text(max_size=100).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_any_bytes_as_prd_json(scratch: Path, data: bytes) -> None:
    (scratch / "prd.json").write_bytes(data)
    refused_or_open(scratch / "prd.json")


@hostile
@given(document=values, tasks=st.lists(st.dictionaries(_names, values, max_size=5), max_size=3))
def test_any_json_as_prd_json(scratch: Path, document: Any, tasks: list[Any]) -> None:
    top = {**document, "tasks": tasks} if isinstance(document, dict) else document
    (scratch / "prd.json").write_text(json.dumps(top))
    refused_or_open(scratch / "prd.json")


_done = st.none() | st.tuples(st.sampled_from(prd.ALIASES["passed"]), st.booleans())
_status = st.tuples(st.just("status"), st.sampled_from(["todo", "done", "blocked", "In Progress"]))
_extras = st.dictionaries(st.text(max_size=6), values, max_size=4)
_styles: st.SearchStrategy[dict[str, Any]] = st.sampled_from(
    [{"indent": 2}, {"indent": "\t"}, {"indent": 0}, {}, {"separators": (",", ":")}, {"separators": (" ,", " : ")}]
)  # fmt: skip


@st.composite
def documents(draw: st.DrawFn) -> bytes:
    """Valid plans in any formatting: a list or an object, any keys beside, in any order."""
    tasks = []
    for number in range(draw(st.integers(min_value=1, max_value=4))):
        own = [("id", f"T{number}"), ("title", "t"), *filter(None, [draw(_done | _status)])]
        beside = [(key, value) for key, value in draw(_extras).items() if key not in _KNOWN]
        tasks.append(dict(draw(st.permutations([*own, *beside]))))
    document: Any = tasks
    if draw(st.booleans()):
        beside = [(f"x{key}", value) for key, value in draw(_extras).items()]
        document = dict(draw(st.permutations([("userStories", tasks), *beside])))
    source = json.dumps(document, ensure_ascii=draw(st.booleans()), **draw(_styles))
    source = draw(st.sampled_from(["", "\ufeff"])) + source + draw(st.sampled_from(["", "\n", "\r\n\n"]))
    return source.encode("utf-8", "replace")


def _changed(before: str, after: str) -> tuple[str, str]:
    """What is left of both when their common head and tail are taken away."""
    for _ in range(2):
        head = sum(
            1 for _ in itertools.takewhile(lambda pair: pair[0] == pair[1], zip(before, after, strict=False))
        )
        before, after = before[head:][::-1], after[head:][::-1]
    return before, after


EDITS: dict[str, Callable[[Plan, Task], str]] = {
    "passes": lambda plan, task: edit.set_passed(plan, task, True),
    "opens again": lambda plan, task: edit.set_passed(plan, task, False),
    "blocks": lambda plan, task: edit.set_blocked(plan, task, 'why "\\ \ud800 é'),
    "unblocks": edit.set_open,
}
_OWN = {*prd.ALIASES["passed"], *prd.ALIASES["skip"], "status", "blocked"}


@pytest.mark.parametrize("change", EDITS)
@hostile
@given(data=documents(), which=st.integers(min_value=0, max_value=3))
def test_a_write_changes_one_field_and_no_other_byte(
    scratch: Path, change: str, data: bytes, which: int
) -> None:
    path = scratch / "prd.json"
    path.write_bytes(data)
    plan = prd.load(path)
    task = plan.tasks[which % len(plan.tasks)]
    new = EDITS[change](plan, task)
    after = edit.apply(plan, lambda _: new)
    edited = after.tasks[task.index]
    assert {"passes": edited.passed, "opens again": not edited.passed, "blocks": edited.blocked is not None,
            "unblocks": edited.blocked is None}[change]  # fmt: skip
    others = [[t.raw for t in version.tasks if t.index != task.index] for version in (plan, after)]
    assert others[0] == others[1]
    assert {k: v for k, v in edited.raw.items() if k not in _OWN} == {
        k: v for k, v in task.raw.items() if k not in _OWN
    }
    assert (
        list(edited.raw)[: len(task.raw) - 1] == list(task.raw)[: len(task.raw) - 1] or change == "unblocks"
    )
    gone, come = _changed(plan.text, new)
    assert len(gone) < 40 and len(come) < 80, (gone, come)
    if isinstance(plan.data, dict):
        rest = {k: v for k, v in plan.data.items() if k != plan.list_key}
        assert rest == {k: v for k, v in after.data.items() if k != plan.list_key}


_records = st.builds(
    lambda fields, event, version: json.dumps({"v": version, "plan": "p@", "event": event, **fields}),
    st.dictionaries(_names, values, max_size=6),
    st.sampled_from(["run", "start", "verdict", "wait", "recheck", "retry", "add", "land", "stop"]),
    st.sampled_from([1, 2]),
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
    """Read, shown and appended to, or refused with words; never a byte less, and never a pass in the plan."""
    plan_path, path = scratch / "prd.json", scratch / "progress.txt"
    plan_path.write_text('{"project": "p", "tasks": [{"id": "T1", "title": "t", "passes": false}]}')
    path.write_bytes(notes)
    plan = prd.load(plan_path)
    journal = Journal(path)
    journal.open()
    assert Journal(path).open() == []  # what was cut off is closed once
    journal.append(Added(plan="prd.json@"), "head", ["- line"])
    assert [*parse(path.read_bytes().split(b"\n"))][-1]["event"] == "add" and path.read_bytes().startswith(
        notes
    )
    try:
        history = replay(journal.records(plan))
        shown = status.Status(plan, history)
        assert status.lines(shown, 80, color=True) and status.markdown(shown)
        json.dumps(status.as_object(shown))
    except BadInput as error:
        assert "progress.txt" in str(error)
    assert not prd.load(plan_path).tasks[0].passed


def _fill(event: Any, steps: list[str], value: Any) -> Any:
    """`event` with `value` where a rule's dotted path points."""
    if not steps:
        return value
    if steps[0] == "*":
        return [_fill(event[0] if isinstance(event, list) and event else None, steps[1:], value)]
    inner = event if isinstance(event, dict) else {}
    return {**inner, steps[0]: _fill(inner.get(steps[0]), steps[1:], value)}


def _paths(rule: Any) -> list[str]:
    """Every path that a rule reads."""
    if isinstance(rule, str):
        return [rule] if re.fullmatch(r"[\w*]+(\.[\w*]+)*", rule) else []
    entries = rule.values() if isinstance(rule, dict) else rule if isinstance(rule, list) else []
    return [path for entry in entries for path in _paths(entry)]


RULES = [rule for row in ROWS.values() if isinstance(row, dict) for rule in row["events"]]


@st.composite
def events(draw: st.DrawFn) -> bytes:
    """An event that a rule looks at, with anything in the places that it reads."""
    rule = draw(st.sampled_from(RULES))
    event: Any = {}
    for path, wanted in rule["when"].items():
        event = _fill(event, path.split("."), wanted[0] if isinstance(wanted, list) else wanted)
    for path in _paths({key: value for key, value in rule.items() if key != "when"}):
        if draw(st.booleans()):
            event = _fill(event, path.split("."), draw(_numbers | values))
    return json.dumps(event).encode()


_lines = st.lists(
    events() | st.binary(max_size=60) | values.map(lambda value: json.dumps(value).encode()), max_size=8
)


@pytest.mark.parametrize("row", sorted(name for name, row in ROWS.items() if isinstance(row, dict)))
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
    away = Away(1e9, moment(words, 1e9) or 0.0, tries=1)
    assert wait_for(Limits(), away, 0, 1e9)


@hostile
@given(
    words=st.text(max_size=80)
    | st.lists(st.sampled_from(["Status: done\n", "ruled out:", "# files\n", "x"])).map("".join)
)
def test_any_handoff(words: str) -> None:
    assert all(isinstance(part, str) for part in parse_handoff(words).values())


_row_parts = st.dictionaries(st.sampled_from(sorted(ROWS["claude"])), values, max_size=3)
_rules = st.fixed_dictionaries(
    {"when": st.dictionaries(_names, values, max_size=2)},
    optional=dict.fromkeys(sorted({key for rule in RULES for key in rule} - {"when"}), values),
)


@hostile
@given(parts=_row_parts, rules=st.none() | st.lists(_rules, max_size=2), line=events())
def test_any_row_of_an_agent_in_a_plan(
    scratch: Path, parts: dict[str, Any], rules: list[Any] | None, line: bytes
) -> None:
    row = {**ROWS["claude"], **parts, **({} if rules is None else {"events": rules})}
    task = {"id": "T1", "title": "t", "checks": ["true"]}
    (scratch / "prd.json").write_text(json.dumps({"tasks": [task], "agents": {"x": row}}))
    try:
        plan = prd.load(scratch / "prd.json")
        prd.validate(plan)
        agent = find_agent("x --flag", {**ROWS, **plan.settings["agents"]}, "edit")
        require(agent)
    except (BadInput, AgentUnavailable) as error:
        assert str(error)
        return
    assert all(isinstance(word, str) for word in agent.argv(scratch / "prompt", scratch / "log", 1.0))
    StreamParser(agent.row["events"], agent.row["output"] == "text", 1.0, 1).line(line)


@hostile
@given(source=st.binary(max_size=40) | st.lists(st.sampled_from(
    ["{{ task.id }}", "{{ task.nothing }}", "{% for t in task %}", "{% endfor %}", "{{", "}}", "{%", "x", "{{ 1 / 0 }}"]
)).map(lambda words: "".join(words).encode()))  # fmt: skip
def test_any_template(scratch: Path, source: bytes) -> None:
    (scratch / "PROMPT.md").write_bytes(source)
    try:
        assert render_prompt(scratch / "PROMPT.md", {"task": {"id": "T1"}}).strip()
        line = compile_line(source.decode(), "prd.json: commit")
        assert "\n" not in render_line(line, {"task": {"id": "T1"}}, "prd.json: commit")
    except BadInput as error:
        assert str(error)


@pytest.mark.parametrize("odd", ["a\0b", "a\ud83d"], ids=["NUL", "half a pair"])
@pytest.mark.parametrize(("key", "exit"), [("branchName", 2), ("prompt", 2), ("setup", 2), ("checks", 4)])
def test_a_text_that_no_program_can_take_is_said(repo: Repo, key: str, exit: int, odd: str) -> None:
    repo.plan({"checks": ["true"]}, **{key: [odd] if key == "checks" else odd})
    code, summary, printed = repo.run(repo.agent("P('work').touch()"))
    assert (code, "unexpected" in printed) == (exit, False), (summary, printed)
    assert key == "branchName" or "unexpected" not in repo.ralph("prompt").stderr
