"""Records: a stranger's bytes become a record or one clear message, and what is written
is read again."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from types import NoneType, UnionType
from typing import Any, get_args, get_origin, get_type_hints

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from _ralph.codec import MOST
from _ralph.errors import BadInput
from _ralph.model import Judgement, Tokens, Verdict
from _ralph.state import records
from _ralph.state.history import replay
from _ralph.state.records import (
    KINDS,
    AttemptEnded,
    Failure,
    Record,
    Stopped,
    Waited,
    from_json,
    parse,
    to_json,
)

ENDED = '"event": "verdict", "task": "T1", "iteration": 3, "verdict": "failed"'
DEEP = "[" * 400 + "]" * 400


def read(line: str) -> Record | str:
    """What becomes of a machine line: its record, nothing, or the message that a person
    gets."""
    found = [*parse([f'<!-- ralph {{"v": 2, {line}}} -->\n'.encode()])]
    try:
        return from_json(found[0]) if found else ""
    except BadInput as error:
        return str(error)


def ended(**fields: Any) -> AttemptEnded:
    return replace(
        AttemptEnded(task="T1", iteration=3, verdict=Verdict.FAILED), **fields
    )


@pytest.mark.parametrize(("line", "wanted"), [
    (ENDED, ended()),
    (f'{ENDED}, "seconds": 5, "usd": 0.5, "tokens": {{"input": 7}}', ended(seconds=5, usd=0.5, tokens=Tokens(input=7))),
    (f'{ENDED}, "exit": -9, "weak": true', ended(exit=-9, weak=True)),
    (f'{ENDED}, "usd": {MOST}', ended(usd=MOST)),
    (f'{ENDED}, "failure": {{"name": "npm", "others": ["a"]}}', ended(failure=Failure(name="npm", others=["a"]))),
    (f'{ENDED}, "judge": {{"agrees": true, "usd": 1}}', ended(judge=Judgement(agrees=True, usd=1))),
    ('"event": "wait", "until": 1e9, "backoff": true', Waited(until=1e9, backoff=True)),
    ('"event": "stop"', Stopped()),
    # an extra key, as of a newer ralph or of one that worked in place
    (f'{ENDED}, "head": {DEEP}, "tree": 5, "rung": 2', ended()),
    (f'{ENDED}, "tokens": {{"input": 7, "reasoning": "x"}}, "failure": {{"exit": []}}', ended(tokens=Tokens(input=7))),
    (f'{ENDED}, "event_": 1, "key": 2, "add": 3, "lands": 4', ended()),
    # null is as if it were not there
    (f'{ENDED}, "usd": null, "failure": null, "tokens": {{"input": null}}, "handoff": {{"a": "b", "c": null}}', ended(handoff={"a": "b"})),
    # an unknown event
    ('"event": "dance"', ""), ('"event": null', ""), ('"event": ["stop"]', ""), (f'"event": {DEEP}', ""), ('"task": "T1"', ""),
])  # fmt: skip
def test_what_a_line_says(line: str, wanted: Record | str) -> None:
    assert read(line) == wanted


@pytest.mark.parametrize(("line", "why"), [
    # a missing key
    ('"event": "verdict", "iteration": 3, "verdict": "failed"', "no task"),
    ('"event": "verdict", "task": "T1", "verdict": "failed"', "no iteration"),
    ('"event": "verdict", "task": "T1", "iteration": 3', "no verdict"),
    ('"event": "verdict", "task": "T1", "iteration": 3, "verdict": null', "no verdict"),
    ('"event": "start", "task": "T1"', "no iteration"), ('"event": "retry"', "no task"),
    # a wrong type
    (f'{ENDED}, "reason": 5', "reason: expected str, found int"), (f'{ENDED}, "left": ["x"]', "left: expected str, found list"),
    (f'{ENDED}, "weak": 1', "weak: expected bool, found int"), (f'{ENDED}, "weak": "yes"', "weak: expected bool, found str"),
    (f'{ENDED}, "usd": "a lot"', f"usd: expected a number from 0 to {MOST}"), (f'{ENDED}, "usd": true', "usd: expected a number"),
    (f'{ENDED}, "attempt": 1.5', f"attempt: expected a number from -{MOST} to {MOST}"), (f'{ENDED}, "time": "now"', "time: expected"),
    ('"event": "verdict", "task": 7, "iteration": 3, "verdict": "failed"', "task: expected str, found int"),
    ('"event": "verdict", "task": "T1", "iteration": 3, "verdict": "won"', "verdict: 'won' is not a valid Verdict"),
    ('"event": "verdict", "task": "T1", "iteration": 3, "verdict": ["failed"]', "verdict: expected str, found list"),
    ('"event": "recheck", "broken": "T1"', "broken: expected list, found str"), ('"event": "recheck", "since": {"T1": "x"}', "since: expected list"),
    ('"event": "recheck", "failures": {"T1": 5}', "failures: expected dict, found int"), ('"event": "run", "plan": 5', "plan: expected str"),
    # in a part
    (f'{ENDED}, "tokens": {{"output": "9"}}', "tokens: output: expected a number"), (f'{ENDED}, "failure": "npm"', "failure: expected dict, found str"),
    (f'{ENDED}, "failure": {{"others": [1]}}', "failure: others: expected str, found int"), (f'{ENDED}, "judge": ["no"]', "judge: expected dict, found list"),
    (f'{ENDED}, "judge": {{"tokens": {{"input": 0.5}}}}', "judge: tokens: input: expected a number"),
    (f'{ENDED}, "handoff": {{"learned": 3}}', "handoff: expected str, found int"), (f'{ENDED}, "notices": [null]', "notices: expected str, found NoneType"),
    # numbers that nobody can count, and garbage
    (f'{ENDED}, "usd": NaN', "usd: expected a number"), (f'{ENDED}, "usd": Infinity', "usd: expected"), (f'{ENDED}, "seconds": -1', "seconds: expected"),
    (f'{ENDED}, "tokens": {{"input": NaN}}', "tokens: input: expected"), ('"event": "wait", "until": 1e300', "until: expected"),
    (f'{ENDED}, "usd": 1{"0" * 400}', "usd: expected"), (f'"event": "start", "task": "T1", "iteration": 1{"0" * 400}', "iteration: expected"),
    (f'{ENDED}, "reason": {DEEP}', "reason: expected str, found list"), (f'"event": "start", "task": "T1", "iteration": {DEEP}', "iteration: expected"),
])  # fmt: skip
def test_a_damaged_line_is_one_clear_message(line: str, why: str) -> None:
    said = str(read(line))
    assert said.startswith("progress.txt: the record ") and "\n" not in said
    assert f"is damaged ({why}" in said and said.endswith("); move the file away")


def test_the_message_says_which_record() -> None:
    assert "the record verdict of iteration 3 is damaged" in str(
        read(f'{ENDED}, "usd": "x"')
    )
    assert "the record wait is damaged" in str(read('"event": "wait", "until": "x"'))


# ---------------------------------------------------------------- what is written


def test_a_line_says_only_what_is_not_empty() -> None:
    assert to_json(ended()) == {
        "v": 2,
        "event": "verdict",
        "task": "T1",
        "iteration": 3,
        "verdict": "failed",
    }
    assert list(to_json(ended(plan="p@", usd=1.0, time=5.0)))[:4] == [
        "v",
        "event",
        "time",
        "plan",
    ]
    assert to_json(ended(task="", tokens=Tokens(output=2), judge=Judgement(agent="a", objections=["x"]))) == {
        "v": 2, "event": "verdict", "task": "", "iteration": 3, "verdict": "failed", "tokens": {"output": 2},
        "judge": {"agent": "a", "objections": ["x"]},
    }  # fmt: skip


def test_what_an_agent_makes_up_can_be_read_again() -> None:
    """However much it says that it cost: a record that is written must never be a
    damaged one."""
    found = from_json(
        json.loads(json.dumps(to_json(ended(usd=1e15, tokens=Tokens(10**30, 1, 0)))))
    )
    assert found == ended(usd=MOST, tokens=Tokens(MOST, 1, 0))


_text = st.text(st.characters(codec=None), max_size=20)
_values: dict[Any, st.SearchStrategy[Any]] = {
    str: _text,
    bool: st.booleans(),
    int: st.integers(-MOST, MOST),
    float: st.floats(0, MOST),
    float | None: st.none() | st.floats(0, MOST),
    int | None: st.none() | st.integers(-MOST, MOST),
    list[str]: st.lists(_text, max_size=3),
    dict[str, str]: st.dictionaries(_text, _text, max_size=3),
    dict[str, float]: st.dictionaries(_text, st.floats(0, MOST), max_size=3),
    dict[str, bool]: st.dictionaries(_text, st.booleans(), max_size=3),
    dict[str, list[str]]: st.dictionaries(
        _text, st.lists(_text, max_size=2), max_size=2
    ),
    dict[str, Failure]: st.dictionaries(
        _text, st.builds(Failure, name=_text, tail=_text), max_size=2
    ),
    Verdict: st.sampled_from(Verdict),
    NoneType: st.none(),
}


SHARES = {"share_usd", "share_tokens"}  # 0 is not the same as no limit


def anything(kind: Any) -> st.SearchStrategy[Any]:
    """Any value of a type that a record may have."""
    if kind in _values:
        return _values[kind]
    if get_origin(kind) is UnionType:
        return st.one_of(*(anything(one) for one in get_args(kind)))
    hints = get_type_hints(kind)
    return st.builds(
        kind, **{one.name: anything(hints[one.name]) for one in fields(kind)}
    )


@pytest.mark.parametrize("event", KINDS)
@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(data=st.data())
def test_what_is_written_is_what_is_read(event: str, data: st.DataObject) -> None:
    record = data.draw(anything(KINDS[event]))
    line = json.dumps(to_json(record))
    (found,) = parse([f"<!-- ralph {line} -->\n".encode()])
    assert from_json(found) == record
    assert all(
        json.loads(line)[key] not in (None, "", [], {}, False)
        for key in found.keys() - {"task", "iteration", "verdict", *SHARES}
    )
    replay([record])  # whatever it holds


def test_every_kind_has_an_event() -> None:
    def below(kind: type[Record]) -> set[type[Record]]:
        return {kind}.union(*map(below, kind.__subclasses__()))

    assert below(Record) - {Record, records.OfTask} == set(KINDS.values())
    assert all(kind.event == event for event, kind in KINDS.items())
