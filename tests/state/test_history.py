"""The history of a plan: its records folded, one after the other; and the parts of a
handoff."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from _ralph.model import Check, Task, Tokens
from _ralph.state.history import (
    NEVER,
    History,
    Unavailable,
    newest,
    parse_handoff,
    replay,
)
from _ralph.state.records import Journal, from_json
from tests.state.test_log import OF_PLAN, journal, made, record, start, verdict

TASK = Task("T1", "t", 0, {})


def fold(*records: dict[str, Any]) -> History:
    return replay(made(*records))


@pytest.mark.parametrize(("words", "attempts"), [
    ("", 0),
    ("failed", 1),
    ("no-op", 1),
    ("timed-out", 1),
    ("failed no-op timed-out", 3),
    ("limited unavailable interrupted", 0),
    ("failed limited failed interrupted", 2),
    ("passed", 0),
    ("failed failed passed", 0),
    ("passed failed", 1),
    ("failed retry", 0),
    ("failed retry failed", 1),
    ("failed recheck failed", 2),
    ("failed broken failed", 1),
    ("failed run failed stop failed", 3),  # runs end, attempts belong to the task
])  # fmt: skip
def test_attempts_that_count(words: str, attempts: int) -> None:
    records = []
    for number, word in enumerate(words.split(), 1):
        if word in ("retry", "run", "stop"):
            records.append(record(word))
        elif word in ("recheck", "broken"):
            broken = [TASK.key] if word == "broken" else []
            records.append(
                record(
                    "recheck",
                    ok=not broken,
                    broken=broken,
                    commit="x",
                    checks_digest="y",
                )
            )
        else:
            records += [start(number), verdict(word, number)]
    known = fold(*records).of(TASK)
    assert known.attempts == attempts


@pytest.mark.parametrize(
    ("words", "last"),
    [("no-op", "no-op"), ("no-op failed", "failed"), ("no-op limited", "no-op"), ("no-op retry", None), ("", None)],
)  # fmt: skip
def test_the_last_attempt_that_counted(words: str, last: str | None) -> None:
    records = [
        record("retry") if word == "retry" else verdict(word) for word in words.split()
    ]
    found = fold(*records).of(TASK).last
    assert (found and found.verdict) == last


def test_a_changed_title_and_another_task_start_from_zero() -> None:
    history = fold(start(), verdict("failed", usd=1.0))
    assert history.of(TASK).attempts == 1
    for other in (Task("T1", "t, but more", 0, {}), Task("T2", "t", 0, {})):
        assert (history.of(other).attempts, history.of(other).usd) == (0, 0.0)


def test_a_retry_keeps_what_is_known_and_takes_the_answer() -> None:
    handoff = {
        "ruled out": "the URL",
        "learned": "use make",
        "question": "which table?",
    }
    history = fold(
        start(),
        verdict("failed", usd=1.0, handoff=handoff, blocked="why", seconds=5.0),
        record("retry", answer="the old one"),
    )
    known = history.of(TASK)
    assert (known.attempts, known.blocked, known.last, known.question) == (
        0,
        False,
        None,
        "",
    )
    assert (known.answer, known.ruled_out, known.usd, known.seconds) == (
        "the old one",
        ["the URL"],
        1.0,
        5.0,
    )
    assert (history.learned, history.usd, history.this_run.blocked_in_a_row) == (
        ["use make"],
        1.0,
        0,
    )


@pytest.mark.parametrize(
    ("answers", "known"),
    [(["a1", ""], ("q1", "a1")), (["a1", "a2"], ("q2", "a2")), (["", "a2"], ("q2", "a2")), (["", ""], ("", ""))],
)  # fmt: skip
def test_an_answer_stays_with_the_question_that_it_answers(
    answers: list[str], known: tuple[str, str]
) -> None:
    records = []
    for number, answer in enumerate(answers, 1):
        records += [
            verdict("failed", handoff={"blocked on": f"q{number}"}),
            record("retry", answer=answer),
        ]
    task = fold(*records).of(TASK)
    assert (task.answered, task.answer) == known


def test_money_for_the_task_the_run_and_the_plan() -> None:
    paid: dict[str, Any] = {
        "usd": 0.25,
        "tokens": {"input": 100, "output": 10, "cached": 50},
        "seconds": 2.0,
    }
    history = fold(
        record("run"),
        verdict("failed", **paid),
        verdict("limited", **paid),  # what did not count was paid for all the same
        verdict("passed", **paid) | {"task": "T2"},
        record("stop"),
        record("run"),
        verdict("interrupted", **paid),
        verdict("failed", usd=None),  # an agent that reports no dollars
        record("run", continues=True),
        verdict("no-op", **paid),
    )
    assert (history.usd, history.tokens) == (1.25, Tokens(500, 50, 250))
    assert (
        history.this_run.usd,
        history.this_run.tokens.total,
        history.of(TASK).seconds,
    ) == (0.5, 220, 8.0)
    assert (history.of(TASK).usd, history.of(TASK).tokens) == (
        1.0,
        Tokens(400, 40, 200),
    )
    assert history.of(TASK).attempts == 3


def test_iterations_for_the_plan_and_the_run() -> None:
    history = fold(
        record("run"), start(1), start(2), record("stop"), record("run"), start(3)
    )
    assert (history.iteration, history.this_run.iterations) == (3, 1)


def test_other_plans_are_passed_over(tmp_path: Path) -> None:
    others = [
        {"v": 2, **one, "plan": plan}
        for plan in ("other.json@b", "q@b", "prd.json@c", None)
        for one in (record("run"), start(9), verdict("damaged", 9, usd=5.0, tokens=5))
    ]
    lines = [
        f"<!-- ralph {json.dumps(one)} -->\n"
        for one in [*others, {"v": 2, **start(1)}, *others]
    ]
    (tmp_path / "progress.txt").write_text("".join(lines))
    assert [*Journal(tmp_path / "progress.txt").records(OF_PLAN)] == made(start(1))


@pytest.mark.parametrize(("records", "blocked", "row"), [
    ([verdict("failed", blocked="x")], True, 1),
    ([verdict("failed", blocked="x"), verdict("no-op", blocked="y") | {"task": "T2"}], True, 2),
    ([verdict("failed", blocked="x"), verdict("failed", blocked=None) | {"task": "T2"}], True, 1),
    ([verdict("failed", blocked="x"), verdict("passed") | {"task": "T2"}], True, 0),
    ([verdict("failed", blocked="x"), record("retry")], False, 0),
    ([verdict("failed", blocked="x"), record("stop"), record("run")], True, 0),
])  # fmt: skip
def test_blocked(records: list[dict[str, Any]], blocked: bool, row: int) -> None:
    history = fold(*records)
    assert (history.of(TASK).blocked, history.this_run.blocked_in_a_row) == (
        blocked,
        row,
    )


@pytest.mark.parametrize(("records", "is_open"), [
    ([start()], True),
    ([start(), verdict("passed")], False),
    ([start(), verdict("passed"), record("wait")], False),
    ([start(), verdict("passed"), record("retry"), record("add")], False),
    ([start(), verdict("passed"), start(2)], True),
    ([start(), verdict("passed"), record("stop")], False),
    ([start(), verdict("passed"), record("recheck", ok=True, commit="x", checks_digest="y")], False),
])  # fmt: skip
def test_an_attempt_is_open_until_its_verdict(
    records: list[dict[str, Any]], is_open: bool
) -> None:
    assert bool(fold(*records).open_starts) == is_open


@pytest.mark.parametrize(("records", "holds"), [
    ([], False),
    ([verdict("passed", commit="c", checks={"own": True})], True),
    # a person gave it another check
    ([verdict("passed", commit="c", checks={"other": True})], False),
    # of the first version: nothing landed
    ([verdict("passed", checks={"own": True})], False),
    ([verdict("passed", commit="c", checks={"own": True}), record("retry")], False),
    ([verdict("passed", commit="c", checks={"own": True}), record("recheck", broken=["T1\nt"])], False),
    ([verdict("passed", commit="c", checks={"own": True}), record("recheck", broken=["T2\nt"])], True),
    ([verdict("passed", commit="c", checks={"own": True}), record("stop"), record("run")], True),
    ([record("retry"), verdict("passed", commit="c", checks={"own": True})], True),
])  # fmt: skip
def test_a_pass_holds_until_a_record_takes_it_away(
    records: list[dict[str, Any]], holds: bool
) -> None:
    task = replace(TASK, checks=(Check("own", "own"),))
    assert fold(*records).holds(task) is holds
    assert not fold(*records).holds(replace(task, title="another"))


WORK: dict[str, Any] = {"left": "tree", "base": "tip"}


@pytest.mark.parametrize(("records", "left"), [
    ([verdict("failed", **WORK)], "tree"),
    ([verdict("timed-out", **WORK)], "tree"),
    ([verdict("limited", **WORK)], "tree"),
    ([verdict("interrupted", **WORK)], "tree"),
    ([verdict("interrupted")], ""),
    ([verdict("conflict", **WORK)], "tree"),
    ([verdict("set-aside", **WORK)], "tree"),
    ([verdict("failed", **WORK, parked="refs/x")], ""),
    ([verdict("conflict", **WORK, parked="refs/x")], ""),
    ([verdict("passed", **WORK)], ""),
    ([verdict("failed", **WORK), verdict("failed")], ""),
    ([verdict("failed", **WORK), record("retry")], ""),
    ([verdict("failed", left="tree")], ""),  # of a version that worked in place
])  # fmt: skip
def test_what_the_next_attempt_finds(records: list[dict[str, Any]], left: str) -> None:
    known = fold(*records).of(TASK)
    assert (known.left, known.base) == (left, "tip" if left else "")


@pytest.mark.parametrize(("words", "attempts", "interrupted"), [
    ("interrupted interrupted", 0, 2),
    ("interrupted limited unavailable interrupted", 0, 2),
    ("interrupted failed interrupted", 1, 1),
    ("interrupted uncounted", 0, 1),
    ("interrupted retry", 0, 0),
    # each needs a landing of another task, so they end
    ("conflict conflict conflict", 0, 0),
    ("failed conflict failed", 2, 0),
])  # fmt: skip
def test_interruptions_in_a_row_and_conflicts(
    words: str, attempts: int, interrupted: int
) -> None:
    records = []
    for word in words.split():
        if word == "uncounted":  # its agent had not started
            records.append(verdict("interrupted", uncounted=True))
        else:
            records.append(record("retry") if word == "retry" else verdict(word))
    known = fold(*records).of(TASK)
    assert (known.attempts, known.interrupted) == (attempts, interrupted)


@pytest.mark.parametrize(("records", "parked"), [
    ([verdict("failed", blocked="x", parked="refs/a")], "refs/a"),
    ([verdict("interrupted", blocked="x", parked="refs/a")], "refs/a"),
    ([verdict("conflict", parked="refs/a")], "refs/a"),
    ([verdict("conflict", parked="refs/a"), verdict("limited")], "refs/a"),
    ([verdict("conflict", parked="refs/a"), verdict("failed")], ""),
])  # fmt: skip
def test_where_its_work_is_parked(records: list[dict[str, Any]], parked: str) -> None:
    assert fold(*records).of(TASK).parked == parked


def test_tasks_in_a_row_that_were_denied_what_they_needed() -> None:
    def denied(name: str) -> dict[str, Any]:
        return verdict("failed", denied=True, denials=["npm"]) | {"task": name}

    assert fold(denied("T1"), denied("T1"), denied("T2")).this_run.denied == [
        "T1\nt",
        "T2\nt",
    ]
    assert fold(denied("T1"), verdict("limited"), denied("T2")).this_run.denied == [
        "T1\nt",
        "T2\nt",
    ]
    for word in ("failed", "passed", "no-op", "timed-out"):
        assert fold(denied("T1"), verdict(word)).this_run.denied == []
    assert fold(denied("T1"), record("stop"), record("run")).this_run.denied == []


def test_what_passed_since_everything_was_last_checked() -> None:
    ok = record("recheck", ok=True, commit="x", checks_digest="y")
    assert fold(verdict("passed"), verdict("failed"), verdict("passed")).unchecked == 2
    checked = fold(verdict("passed"), ok)
    assert checked.recheck and checked.recheck.commit == "x"
    assert checked.unchecked == 0
    assert fold(ok, record("run"), verdict("passed")).unchecked == 1


def test_waits_that_brought_nothing() -> None:
    wait = record("wait", backoff=True)
    assert fold(wait, verdict("limited"), wait).this_run.vain == 2
    assert fold(wait, record("wait", backoff=False)).this_run.vain == 1
    assert fold(wait, wait, verdict("failed")).this_run.vain == 0
    assert fold(wait, wait, verdict("limited", tokens={"output": 5})).this_run.vain == 0
    assert fold(wait, record("run")).this_run.vain == 0


def limited(
    at: float, number: int = 1, began: float = 0.0, **more: Any
) -> list[dict[str, Any]]:
    """An attempt with the agent `a` from `began` that its provider cut off."""
    ended = {"command": "a", "time": at, "reason": "busy", **more}
    return [start(number) | {"time": began or at}, verdict("limited", number, **ended)]


WORKED = verdict("failed", command="a", time=1.0)


def refused(*at: float, number: int = 1) -> list[dict[str, Any]]:
    """Attempts with the agent `a` whose login was refused."""
    ended = {"command": "a", "reason": "no login"}
    return [verdict("unavailable", number, time=time, **ended) for time in at]


@pytest.mark.parametrize(("records", "away"), [
    (limited(10), Unavailable(10, tries=1, reason="busy")),
    (limited(10, reset=99), Unavailable(10, reset=99, reason="busy")),
    (limited(10) + limited(80, 2), Unavailable(80, tries=2, reason="busy")),
    (limited(10) + limited(80, 2, tokens={"output": 5}), Unavailable(80, tries=1, reason="busy")),
    # the same limit
    (limited(10) + limited(80, 2, began=5), Unavailable(10, tries=1, reason="busy")),
    (limited(10, reset=99) + limited(20, 2, began=5), Unavailable(10, reset=99, reason="busy")),
    (limited(10, reset=99) + limited(20, 2, began=5, reset=50), Unavailable(20, reset=99, reason="busy")),
    (limited(10, reset=50) + limited(20, 2, began=5, reset=99), Unavailable(20, reset=99, reason="busy")),
    ([verdict("unavailable", command="a", time=10.0, reason="no login")], Unavailable(10, NEVER, 0, "no login")),
    # it has worked in this run: once more after a minute
    (refused(10, 80), Unavailable(80, NEVER, 0, "no login")),
    ([WORKED, *refused(10)], Unavailable(10, 70, 0, "no login")),
    ([WORKED, *refused(10, 80)], Unavailable(80, NEVER, 0, "no login")),
    ([WORKED, *refused(10), WORKED, *refused(80)], Unavailable(80, 140, 0, "no login")),
    ([WORKED, record("run"), *refused(10)], Unavailable(10, NEVER, 0, "no login")),
    # two loops that lost the same race
    ([WORKED, *refused(10), start(9) | {"time": 5.0}, *refused(11, number=9)], Unavailable(10, 70, 0, "no login")),
    # it has answered
    ([*limited(10), verdict("failed", command="a")], Unavailable(10, reason="busy")),
    # begun before
    ([*limited(10, reset=99), verdict("failed", command="a")], Unavailable(10, 99, reason="busy")),
    ([*limited(10), record("run")], None),
    ([*limited(10), record("run", continues=True)], Unavailable(10, tries=1, reason="busy")),
])  # fmt: skip
def test_why_an_agent_cannot_be_used(
    records: list[dict[str, Any]], away: Unavailable | None
) -> None:
    assert fold(*records).this_run.away.get("a") == away


def test_an_attempt_of_an_earlier_run_is_no_iteration_of_this_one() -> None:
    """It was closed late: no agent had worked."""
    closed = verdict("interrupted", 1, uncounted=True)
    first = [record("run"), start(1), start(2)]
    assert fold(*first, closed).this_run.iterations == 1
    then = [record("stop"), record("run"), start(3)]
    assert fold(*first, *then, closed).this_run.iterations == 1
    goes_on = [record("run", continues=True), start(3)]
    assert fold(*first, *goes_on, closed).this_run.iterations == 2


def test_a_task_that_is_set_aside_is_so_in_this_run() -> None:
    aside = [
        record("run"),
        start(),
        verdict("set-aside", reason="no tool", uncounted=True),
    ]
    known = fold(*aside)
    assert known.this_run.set_aside == {TASK.key: "no tool"}
    assert (known.of(TASK).attempts, known.this_run.iterations) == (0, 0)
    assert fold(*aside, record("stop"), record("run")).this_run.set_aside == {}


def test_what_a_recovered_attempt_cost_counts_for_the_run_that_recovers_it() -> None:
    """Its verdict stands before that run's own record."""
    first = [record("run", run="a"), start(1, run="a"), verdict("failed", usd=4.0, run="a")]  # fmt: skip
    left = [start(2, run="a"), record("stop", run="a")]
    late = verdict("passed", 2, usd=2.0, run="b")
    both = [*first, *left, late, record("run", run="b")]
    known = fold(*both)
    assert (known.this_run.usd, known.this_run.passed, known.usd) == (2.0, 1, 6.0)
    assert known.this_run.iterations == 0
    again = fold(*both, record("stop"), record("run", run="c"))
    assert (again.this_run.usd, again.this_run.passed) == (0.0, 0)


def test_extra_usage_is_billed_until_its_reset_whoever_ends_after_it() -> None:
    seen = verdict("passed", agent="claude", overage=True, reset=99.0, time=10.0)
    assert (
        fold(seen, verdict("passed", 2, agent="claude"), record("run"))
        .overage["claude"]
        .reset
        == 99
    )
    of_judge = verdict(
        "passed", agent="a", judge={"row": "claude", "overage": True}, time=10.0
    )
    assert fold(of_judge).overage.keys() == {"claude"}


def test_what_attempts_cost_at_most() -> None:
    judge = {"agent": "b", "usd": 0.5}
    known = fold(
        verdict("failed", command="a", usd=1.0, tokens={"input": 5}),
        verdict("passed", 2, command="a", usd=2.0, judge=judge, tokens={"input": 9}),
        verdict("passed", 3, command="c", usd=1.75),
    )
    assert known.dearest == {"a": 1.5, "b": 0.5, "c": 1.75, "": 0.0}
    assert (known.largest.usd, known.largest.tokens.total) == (2.0, 9)


def test_what_was_spent_at_least_stays_so_in_every_sum() -> None:
    cut = verdict("interrupted", usd=1.0, at_least=True)
    known = fold(cut, verdict("failed", 2, usd=1.0))
    assert known.at_least and known.this_run.at_least and known.of(TASK).at_least


def test_a_pass_that_breaks_twice_is_blocked() -> None:
    broken = record("recheck", ok=False, broken=[TASK.key])
    once = fold(verdict("passed", 3, weak=True), broken)
    assert (once.of(TASK).set_back, once.of(TASK).blocked, once.of(TASK).passed_at) == (
        1,
        False,
        3,
    )
    assert once.of(TASK).weak
    twice = fold(verdict("passed", 3), broken, verdict("passed", 5), broken)
    assert (twice.of(TASK).set_back, twice.of(TASK).blocked) == (2, True)
    assert (
        fold(verdict("passed"), broken, record("retry"), broken).of(TASK).set_back == 1
    )


def test_a_replay_is_the_fold_of_the_file(tmp_path: Path) -> None:
    notes, live = journal(tmp_path), History()
    written = [record("run"), start(), verdict("failed", usd=0.5)]
    for one in written:
        live.apply(notes.append(from_json(one), "x"))
    assert replay(notes.records(OF_PLAN)) == live
    assert live.of(TASK).usd == 0.5


# ---------------------------------------------------------------- handoffs


@pytest.mark.parametrize(("source", "wanted"), [
    ("", {}),
    ("no label at all", {}),
    ("learned: use make", {"learned": "use make"}),
    ("LEARNED: Use make", {"learned": "Use make"}),
    ("**Learned:** x", {"learned": "x"}),
    ("**Learned**: x", {"learned": "x"}),
    ("- **ruled out**: the URL", {"ruled out": "the URL"}),
    ("* next step: x", {"next step": "x"}),
    ("### Next step:\nf.py", {"next step": "f.py"}),
    ("> learned : much", {"learned": "much"}),
    ("learned:\n- one\n\n- two\nquestion: three", {"learned": "- one\n- two", "question": "three"}),
    ("learned: first\nrisks: r\nlearned: second", {"learned": "first\nsecond"}),  # another label ends a part
    ("blocked on: which?", {"question": "which?"}),  # as older templates ask
    ("status: done\npreface\nfiles: a.py, b.py", {}),
    ("question: none\nlearned: N/A\nnext step: -\nruled out: **nothing**", {}),
    ("question: none of the tables fits?", {"question": "none of the tables fits?"}),
    ("next step: \x1b[32mx\x1b[0m\r\nlearned: a\u2028b", {"learned": "ab", "next step": "x"}),
    ("learned: " + "x" * 2000, {"learned": "x" * 1489 + "\n[cut here]"}),
    ("\n" * 500 + "learned: x", {}),  # too long a handoff is read for 400 lines
    ("## Learned\nmuch\n\n## Next step\n- write it", {"learned": "much", "next step": "- write it"}),
    ("1. learned: a\n2. `next step`: x", {"learned": "a", "next step": "x"}),
    ("learned: (and why)\nquestion: (one for a person, and the answer you propose, or none)", {}),
])  # fmt: skip
def test_parse_handoff(source: str, wanted: dict[str, str]) -> None:
    assert parse_handoff(source) == wanted


@pytest.mark.parametrize(("entries", "size", "wanted"), [
    ([], 10, []),
    (["a", "b", "c"], 10, ["a", "b", "c"]),
    (["aaaa", "bbbb", "cccc"], 8, ["bbbb", "cccc"]),
    (["aaaa", "bbbb", "cccc"], 7, ["cccc"]),
    (["aaaa"], 3, []),
    (["a", "b", "a"], 10, ["b", "a"]),
    (["éé", "b"], 4, ["b"]),  # bytes, not letters
    (["old", "again", "again", "again"], 10, ["old", "again"]),
])  # fmt: skip
def test_newest(entries: list[str], size: int, wanted: list[str]) -> None:
    assert newest(entries, size) == wanted


@pytest.mark.parametrize(("records", "seconds"), [
    ([("run", "a", 0), ("start", "a", 1), ("start", "a", 2), ("verdict", "a", 62), ("verdict", "a", 82)], 82),
    # a process that was killed: what came after its last record nobody knows, but that
    # it waited
    ([("run", "a", 0), ("start", "a", 10), ("verdict", "b", 900), ("start", "b", 905)], 15),
    ([("run", "a", 0), ("wait", "a", 10), ("run again", "b", 900), ("start", "b", 905)], 75),
    # the clock was set back
    ([("run", "a", 0), ("start", "a", 50), ("verdict", "a", 20)], 50),
])  # fmt: skip
def test_how_long_a_run_has_lasted_with_any_number_of_workers(
    records: list[tuple[str, str, int]], seconds: float
) -> None:
    def made(event: str, run: str, at: int) -> dict[str, Any]:
        more: dict[str, Any] = {
            "wait": {"until": 70.0},
            "run again": {"continues": True},
            "start": {"iteration": 1},
        }
        fields = {"run": run, "time": float(at), **more.get(event, {})}
        return (
            verdict("failed", **fields)
            if event == "verdict"
            else record(event.split()[0], **fields)
        )

    assert fold(*(made(*one) for one in records)).this_run.seconds == seconds
