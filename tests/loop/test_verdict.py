"""What an attempt is worth: the table of DESIGN section 7, one line a case, and what
breaks it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from _ralph.loop.jobs import Attempt
from _ralph.loop.suite import Change
from _ralph.loop.verdict import Before, Facts, decide, weigh

from _ralph.agents.registry import PLAIN, Agent
from _ralph.model import AgentResult, Check, CheckResult, Outcome, Task, Verdict
from _ralph.state.prd import load

GLOBAL, OWN = "make test", "test -f own"

# How the agent ended (`silent`: without a word or a token); the candidate's files:
# `differ`, `same`, or `left-out` (all that was changed is no part of the work); the
# checks: `green`, `red`, `unproved` (nothing binds, and nothing turned green),
# `incomplete` (stopped before the last of its own); `turned` where one of its own was
# red before the work and is green now.
TABLE = """
done          differ    green                -> passed
done          differ    green       turned   -> passed
done          differ    red                  -> failed
done          differ    red         turned   -> failed
done          differ    unproved             -> failed
done          differ    incomplete           -> no-op
done          same      green                -> no-op
done          same      green       turned   -> no-op
done          same      red                  -> failed
done          same      red         turned   -> failed
done          same      unproved             -> failed
done          left-out  green                -> failed
done          left-out  red                  -> failed
done silent   differ    green                -> passed
done silent   same      green                -> no-op
done silent   same      red                  -> failed

failed        differ    green                -> failed
failed        differ    green       turned   -> passed
failed        differ    red                  -> failed
failed        differ    red         turned   -> failed
failed        differ    unproved             -> failed
failed        differ    incomplete  turned   -> failed
failed        same      green                -> failed
failed        same      green       turned   -> failed
failed        same      red                  -> failed
failed        left-out  green                -> failed

timed-out     differ    green                -> timed-out
timed-out     differ    green       turned   -> passed
timed-out     differ    red                  -> timed-out
timed-out     differ    red         turned   -> timed-out
timed-out     differ    unproved             -> timed-out
timed-out     same      green       turned   -> timed-out
timed-out     same      red                  -> timed-out
timed-out     left-out  green                -> timed-out
timed-out silent differ green                -> timed-out
timed-out silent differ green       turned   -> passed
timed-out silent same   green                -> limited
timed-out silent same   red                  -> limited

limited       differ    green                -> limited
limited       differ    green       turned   -> passed
limited       differ    red         turned   -> limited
limited       same      green                -> limited
limited       same      red                  -> limited
limited       left-out  green                -> limited

unavailable   differ    green                -> unavailable
unavailable   differ    green       turned   -> passed
unavailable   differ    red                  -> unavailable
unavailable   same      green                -> unavailable

interrupted   differ    green                -> interrupted
interrupted   differ    green       turned   -> passed
interrupted   differ    red         turned   -> interrupted
interrupted   differ    incomplete  turned   -> interrupted
interrupted   same      green       turned   -> interrupted
"""
ROWS = [line for line in TABLE.splitlines() if line]
GREEN, RED = True, False
Decide = Callable[[Facts], tuple[Verdict, str]]


def facts(row: str) -> Facts:
    """What a row of the table says."""
    words = row.partition("->")[0].split()
    return Facts(
        AgentResult(Outcome(words[0]), reason="why", active="silent" not in words),
        changed="differ" in words,
        proved="unproved" not in words,
        complete="incomplete" not in words,
        red="tests failed with exit 1" if "red" in words else "",
        turned="turned" in words,
        suite="lint",
        left_out="a protected file" if "left-out" in words else "",
    )


def disagreements(decider: Decide) -> list[str]:
    """The rows for which `decider` says something else than the table."""
    return [row for row in ROWS if decider(facts(row))[0] != row.rpartition(" ")[2]]


def test_the_table() -> None:
    assert disagreements(decide) == []


def test_the_table_has_every_outcome_and_every_verdict() -> None:
    assert {row.split()[0] for row in ROWS} == set(Outcome)
    said = {row.rpartition(" ")[2] for row in ROWS}
    assert said == set(Verdict) - {
        Verdict.CONFLICT
    }  # known before there is anything to weigh
    assert len({" ".join(row.split()) for row in ROWS}) == len(ROWS)


def test_only_a_pass_goes_without_a_reason() -> None:
    for row in ROWS:
        verdict, reason = decide(facts(row))
        assert bool(reason) == (verdict is not Verdict.PASSED), row


# Rules that somebody could write; the table must tell each from the right one.
MUTANTS: dict[str, Decide] = {
    "believes the agent": lambda one: decide(
        replace(one, red="", complete=True, proved=True)
    ),
    "believes a red check": lambda one: decide(replace(one, red="")),
    "a green check is enough": lambda one: decide(replace(one, changed=True)),
    "a check that turned is enough": lambda one: (
        (Verdict.PASSED, "") if one.turned else decide(one)
    ),
    "a killed agent is not trusted": lambda one: decide(replace(one, turned=False)),
    "a killed agent is trusted": lambda one: decide(replace(one, turned=True)),
    "nothing need bind": lambda one: decide(replace(one, proved=True)),
    "own checks may be missing": lambda one: decide(replace(one, complete=True)),
    "what is left out is nothing": lambda one: decide(replace(one, left_out="")),
}


@pytest.mark.parametrize("mutant", MUTANTS)
def test_the_table_catches(mutant: str) -> None:
    assert disagreements(MUTANTS[mutant])


@pytest.mark.parametrize(
    ("row", "wanted"),
    [
        ("done same green", "failed"),
        ("done same red", "failed"),
        ("done left-out green", "failed"),
        ("done differ green", "passed"),
        ("done differ red", "failed"),
    ],
)
def test_denied_commands_are_the_reason_only_where_nothing_was_done(
    row: str, wanted: str
) -> None:
    one = facts(row)
    one.result.denials = ["npm test"]
    verdict, reason = decide(one)
    assert verdict == wanted and ("npm test" in reason) == ("differ" not in row)


# ---------------------------------------------------------------- from an attempt to the facts

SUITE, OWN = "make test", "test -f own"


def result(command: str, ok: bool) -> CheckResult:
    return CheckResult(
        name=command, command=command, ok=ok, exit=0 if ok else 1, seconds=0.1
    )


def weighed(
    now: dict[str, bool],
    own: dict[str, bool] | None = None,
    tip: dict[str, bool] | None = None,
    flaky: Collection[str] = (),
    judge: bool = False,
    suites: Mapping[str, Change] | None = None,
    **more: Any,
) -> Attempt:
    """An attempt of an agent that ended well and changed something: its checks `now`,
    its own ones before the work (none where it has none), and the checks on the commit
    that the candidate is made on."""
    attempt = Attempt(
        Task(
            "T1", "a task", 0, {}, checks=(Check(OWN, OWN),) if own is not None else ()
        ),
        number=1,
        iteration=1,
        agent=Agent("plain", ("agent",), PLAIN),
        checks=[result(command, ok) for command, ok in now.items()],
        **{
            "tip": "before",
            "commit": "after",
            "result": AgentResult(Outcome.DONE, active=True),
            **more,
        },
    )
    weigh(attempt, Before(own or {}, tip or {}, flaky, suites or {}), judge)
    return attempt


@pytest.mark.parametrize(
    ("now", "own", "tip", "wanted"),
    [
        ({SUITE: GREEN}, None, {SUITE: GREEN}, "weak"),
        ({SUITE: RED}, None, {SUITE: GREEN}, "failed"),
        ({SUITE: GREEN}, None, {SUITE: RED}, "passed"),  # the plan's check turned green
        ({SUITE: RED}, None, {SUITE: RED}, "failed"),  # nothing binds
        (
            {SUITE: RED, "lint": GREEN},
            None,
            {SUITE: RED, "lint": RED},
            "weak",
        ),  # one of them turned
        ({SUITE: RED, "lint": GREEN}, None, {SUITE: RED, "lint": GREEN}, "weak"),
        ({SUITE: GREEN, OWN: GREEN}, {OWN: RED}, {SUITE: GREEN}, "passed"),
        ({SUITE: GREEN, OWN: GREEN}, {OWN: GREEN}, {SUITE: GREEN}, "weak"),
        ({SUITE: GREEN, OWN: GREEN}, {}, {SUITE: GREEN}, "weak"),  # nobody saw it red
        ({SUITE: GREEN, OWN: RED}, {OWN: RED}, {SUITE: GREEN}, "failed"),
        ({SUITE: RED, OWN: GREEN}, {OWN: RED}, {SUITE: GREEN}, "failed"),
        (
            {SUITE: RED, OWN: GREEN},
            {OWN: RED},
            {SUITE: RED},
            "weak",
        ),  # beside a red suite
        (
            {SUITE: GREEN, OWN: GREEN},
            {OWN: RED},
            {SUITE: GREEN, OWN: GREEN},
            "weak",
        ),  # by what landed
        (
            {SUITE: GREEN, OWN: RED},
            {OWN: RED},
            {SUITE: GREEN, OWN: RED},
            "failed",
        ),  # its own binds always
        ({OWN: RED, "pre-commit": GREEN}, {OWN: RED}, {}, "failed"),
        ({OWN: GREEN, "pre-commit": RED}, {OWN: RED}, {}, "failed"),
        ({"setup": RED}, {OWN: RED}, {SUITE: GREEN}, "failed"),
        (
            {SUITE: RED, "pre-commit": GREEN},
            None,
            {SUITE: RED},
            "failed",
        ),  # a hook proves nothing
    ],
)
def test_what_binds_and_what_is_evidence(
    now: dict[str, bool], own: dict[str, bool] | None, tip: dict[str, bool], wanted: str
) -> None:
    attempt = weighed(now, own, tip)
    assert ("weak" if attempt.weak else attempt.verdict) == wanted


def test_a_killed_agent_passes_only_by_a_check_of_its_own_that_turned_green() -> None:
    killed = AgentResult(Outcome.TIMED_OUT, active=True)
    both = {SUITE: GREEN, OWN: GREEN}
    assert (
        weighed(both, {OWN: RED}, {SUITE: GREEN}, result=killed).verdict
        is Verdict.PASSED
    )
    for own, tip in (
        ({OWN: GREEN}, {SUITE: RED}),
        ({OWN: RED}, {SUITE: GREEN, OWN: GREEN}),
    ):
        assert weighed(both, own, tip, result=killed).verdict is Verdict.TIMED_OUT


def test_what_is_flaky_is_named_and_no_evidence() -> None:
    killed = AgentResult(Outcome.FAILED, "exit 3")
    given: dict[str, Any] = {"now": {OWN: GREEN}, "own": {OWN: RED}}
    assert weighed(**given, result=killed).verdict is Verdict.PASSED
    flaky = weighed(**given, flaky={OWN}, result=killed)
    assert (flaky.verdict, flaky.flaky) == (Verdict.FAILED, [OWN])
    weak = weighed(**given, flaky={OWN})
    assert (
        weak.weak and f"flaky, red and green on the same files: {OWN}" in weak.notices
    )
    idle = weighed(**given, flaky={OWN}, commit="before")
    assert idle.verdict is Verdict.NO_OP


def test_a_suite_that_failed_as_a_whole_and_passes_is_evidence() -> None:
    """Such as one whose new tests could not be imported: none of them failed before
    under its own name."""
    given: dict[str, Any] = {"now": {SUITE: GREEN}, "own": None, "tip": {SUITE: GREEN}}
    assert weighed(**given, suites={SUITE: Change()}).weak
    assert not weighed(**given, suites={SUITE: Change(recovered=True)}).weak
    assert weighed(**given, suites={SUITE: Change(recovered=True)}, flaky={SUITE}).weak


def test_a_pass_beside_a_red_suite_says_so() -> None:
    attempt = weighed({SUITE: RED, OWN: GREEN}, {OWN: RED}, {SUITE: RED})
    assert attempt.weak and attempt.notices == [
        f"the suite is red: {SUITE}; it was so before the work"
    ]


def test_where_nothing_binds_the_reason_says_what_helps() -> None:
    attempt = weighed({SUITE: RED}, None, {SUITE: RED})
    assert f"({SUITE}); add a check to this task" in attempt.reason
    assert (
        weighed({SUITE: RED}, None, {SUITE: RED}, judge=True).verdict is Verdict.PASSED
    )
    assert weighed({}, None, judge=True).verdict is Verdict.PASSED
    assert weighed({}, None).verdict is Verdict.FAILED


def test_work_that_was_all_left_out_is_told_with_what_lets_it_in() -> None:
    new, copied = (
        "conftest.py (new and protected; left out)",
        "prd.json (a copy; what is changed ...)",
    )
    left = ["tests/a.py", new, copied]
    given: Any = {"restored": left, "protected": ["tests/a.py", "conftest.py"]}
    attempt = weighed({SUITE: GREEN}, None, {SUITE: GREEN}, commit="before", **given)
    assert (
        attempt.verdict is Verdict.FAILED
        and '"allow": ["tests/a.py", "conftest.py"]' in attempt.reason
    )
    assert "prd.json" in attempt.reason and "already done" not in attempt.reason
    copy = weighed(
        {SUITE: GREEN}, None, {SUITE: GREEN}, commit="before", restored=left[2:]
    )
    assert copy.verdict is Verdict.FAILED and "allow" not in copy.reason
    assert (
        weighed({SUITE: GREEN}, None, {SUITE: GREEN}, **given).verdict is Verdict.PASSED
    )


def test_the_reason_names_the_first_red_check() -> None:
    attempt = weighed({SUITE: RED, OWN: RED}, {OWN: RED}, {SUITE: GREEN})
    assert attempt.reason == f"{SUITE} failed with exit 1 (0.1 s)"
    assert (
        decide(facts("done same red"))[1]
        == "it changed nothing: tests failed with exit 1"
    )


# ---------------------------------------------------------------- the program

PLAN = """{"checks": ["make", "make test"], "tasks": [
  {"id": "a", "title": "a", "checks": ["test -f a", "make test", {"run": "test ! -e b", "once": true}]},
  {"id": "b", "title": "b", "checks": ["make test", ["make", "test"], {"name": "x", "run": "test -f a"}]},
  {"id": "c", "title": "c"}]}"""


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ("a", ["make", "make test", "test -f a", "test ! -e b"]),
        ("b", ["make", "make test", "test -f a"]),
        ("c", ["make", "make test"]),
        (None, ["make", "make test", "test -f a"]),
    ],
)
def test_identical_checks_run_once_and_a_once_is_not_run_at_the_end(
    tmp_path: Path, task: str | None, wanted: list[str]
) -> None:
    (tmp_path / "prd.json").write_text(PLAN)
    plan = load(tmp_path / "prd.json")
    found = plan.checks_for(plan.task(task)) if task else plan.every_check
    assert [check.command for check in found] == wanted


def test_a_once_holds_for_its_own_task_alone(tmp_path: Path) -> None:
    (tmp_path / "prd.json").write_text(
        '[{"title": "a", "checks": [{"run": "x", "once": true}]}, {"title": "b", "checks": ["x"]}]'
    )
    assert [check.command for check in load(tmp_path / "prd.json").every_check] == ["x"]


def test_a_check_of_both_is_the_task_s_in_the_plan_s_place(tmp_path: Path) -> None:
    (tmp_path / "prd.json").write_text(
        '{"checks": ["x", "y"], "tasks": [{"id": "a", "title": "a", "checks": [{"run": "x", "timeout": "1h"}]}]}'
    )
    plan = load(tmp_path / "prd.json")
    found = plan.checks_for(plan.tasks[0])
    assert [(check.command, check.timeout) for check in found] == [
        ("x", 3600.0),
        ("y", 600.0),
    ]
