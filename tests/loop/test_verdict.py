"""What an attempt is worth: the table of DESIGN section 7, one line a case, and what breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from _ralph.agents.registry import PLAIN, Agent
from _ralph.loop.jobs import Attempt
from _ralph.loop.verdict import decide, fixed_checks
from _ralph.model import AgentResult, CheckResult, Outcome, Task, Verdict
from _ralph.state.prd import load

GLOBAL, OWN = "make test", "test -f own"

# The agent's outcome and whether it said or used anything; the binding checks: `none`, `green`,
# `red`, `own red`, `own missing` (stopped before it ran); the task's own check: `-` (it has
# none), `was green`, `fixed` (red before the first attempt, green now); whether the tree changed.
TABLE = """
done         active  green        -          changed    passed
done         active  green        -          same       no-op
done         active  green        was-green  changed    passed
done         active  green        was-green  same       no-op
done         active  green        fixed      changed    passed
done         active  green        fixed      same       passed
done         active  red          -          changed    failed
done         active  red          -          same       failed
done         active  red          fixed      changed    failed
done         active  own-red      was-green  changed    failed
done         active  own-red      was-green  same       failed
done         active  own-missing  was-green  changed    not-passed
done         active  own-missing  fixed      changed    not-passed
done         active  none         -          changed    failed
done         active  none         -          same       failed
done         silent  green        -          changed    passed
done         silent  green        -          same       no-op
done         silent  green        fixed      same       passed
done         silent  red          -          same       failed

failed       active  green        -          changed    failed
failed       active  green        -          same       failed
failed       active  green        was-green  changed    failed
failed       active  green        fixed      changed    passed
failed       active  green        fixed      same       passed
failed       active  red          -          changed    failed
failed       active  red          fixed      changed    failed
failed       silent  green        -          same       failed
failed       active  none         -          changed    failed

timed-out    active  green        -          changed    timed-out
timed-out    active  green        -          same       timed-out
timed-out    active  green        was-green  changed    timed-out
timed-out    active  green        fixed      changed    passed
timed-out    silent  green        fixed      same       passed
timed-out    active  red          -          changed    timed-out
timed-out    active  red          fixed      changed    timed-out
timed-out    silent  green        -          changed    timed-out
timed-out    silent  green        -          same       limited
timed-out    silent  red          -          same       limited
timed-out    silent  red          fixed      same       limited
timed-out    active  none         -          changed    timed-out

limited      active  green        -          changed    limited
limited      active  green        was-green  changed    limited
limited      active  green        fixed      changed    passed
limited      active  red          -          changed    limited
limited      silent  none         -          same       limited

unavailable  silent  none         -          same       unavailable
unavailable  active  green        -          changed    unavailable
unavailable  active  green        fixed      changed    passed
unavailable  active  red          -          changed    unavailable

interrupted  active  none         -          changed    interrupted
interrupted  active  green        -          changed    interrupted
interrupted  active  green        was-green  changed    interrupted
interrupted  active  green        fixed      changed    passed
interrupted  active  red          fixed      changed    interrupted
"""
ROWS = [line.split() for line in TABLE.splitlines() if line]
GREEN, RED = True, False

Decide = Callable[[Attempt, set[str], set[str]], tuple[Verdict, str]]


def result(command: str, ok: bool) -> CheckResult:
    return CheckResult(name=command, command=command, ok=ok, exit=0 if ok else 1, seconds=0.1)


def case(outcome: str, active: str, checks: str, own: str, tree: str) -> tuple[Attempt, set[str], set[str]]:
    """The attempt that a row describes, the task's own checks and the binding ones."""
    ran = {
        "none": [],
        "green": [result(OWN, GREEN), result(GLOBAL, GREEN)],
        "red": [result(OWN, GREEN), result(GLOBAL, RED)],
        "own-red": [result(OWN, RED), result(GLOBAL, GREEN)],
        "own-missing": [result(GLOBAL, GREEN)],
    }[checks]
    has_own = own != "-"
    attempt = Attempt(
        Task("T1", "a task", 0, {}),
        number=1,
        iteration=1,
        agent=Agent("plain", ("agent",), PLAIN),
        tip="before",
        commit="after" if tree == "changed" else "before",
        result=AgentResult(Outcome(outcome), reason="why", active=active == "active"),
        checks=[one for one in ran if has_own or one.command != OWN],
        fixed=own == "fixed",
    )
    return attempt, {OWN} if has_own else set(), {GLOBAL, OWN} if has_own else {GLOBAL}


def disagreements(decider: Decide) -> list[str]:
    """The rows for which `decider` says something else than the table."""
    wrong = []
    for row in ROWS:
        *given, wanted = row
        attempt, own, binding = case(*given)
        verdict, _ = decider(attempt, own, binding)
        agrees = verdict is not Verdict.PASSED if wanted == "not-passed" else verdict == wanted
        if not agrees:
            wrong.append(f"{' '.join(row)}: {verdict}")
    return wrong


def test_the_table() -> None:
    assert disagreements(decide) == []


@pytest.mark.parametrize("row", [row for row in ROWS if row[-1] != "passed"], ids=" ".join)
def test_what_does_not_pass_has_a_reason(row: list[str]) -> None:
    attempt, own, binding = case(*row[:-1])
    assert decide(attempt, own, binding)[1]


def test_the_table_has_every_outcome_and_every_verdict() -> None:
    assert {row[0] for row in ROWS} == set(Outcome)
    of_a_merge = {Verdict.CONFLICT}  # known before there is anything to weigh
    assert {row[-1] for row in ROWS} == (set(Verdict) - of_a_merge) | {"not-passed"}
    assert len({tuple(row[:-1]) for row in ROWS}) == len(ROWS)


# Implementations that somebody could write; the table must tell each from the right one.
def believes_the_agent(attempt: Attempt, *_: object) -> tuple[Verdict, str]:
    done = attempt.result.outcome is Outcome.DONE
    return (Verdict.PASSED, "") if done else decide_like(attempt)


def believes_green_checks(attempt: Attempt, *_: object) -> tuple[Verdict, str]:
    green = bool(attempt.checks) and all(check.ok for check in attempt.checks)
    return (Verdict.PASSED, "") if green else decide_like(attempt)


def believes_a_changed_tree(attempt: Attempt, own: set[str], binding: set[str]) -> tuple[Verdict, str]:
    green = bool(attempt.checks) and all(check.ok for check in attempt.checks)
    changed = attempt.commit != attempt.tip
    return (Verdict.PASSED, "") if green and changed else decide(attempt, own, binding)


def believes_a_fixed_check(attempt: Attempt, own: set[str], binding: set[str]) -> tuple[Verdict, str]:
    return (Verdict.PASSED, "") if attempt.fixed else decide(attempt, own, binding)


def distrusts_killed_agents(attempt: Attempt, own: set[str], binding: set[str]) -> tuple[Verdict, str]:
    if attempt.result.outcome is not Outcome.DONE:
        attempt = replace(attempt, fixed=False)
    return decide(attempt, own, binding)


def forgets_the_own_check(attempt: Attempt, _: set[str], binding: set[str]) -> tuple[Verdict, str]:
    return decide(attempt, set(), binding - {OWN})


def decide_like(attempt: Attempt) -> tuple[Verdict, str]:
    return decide(attempt, set(), {GLOBAL, OWN})


@pytest.mark.parametrize(
    "mutant",
    [
        believes_the_agent, believes_green_checks, believes_a_changed_tree, believes_a_fixed_check,
        distrusts_killed_agents, forgets_the_own_check,
    ],
)  # fmt: skip
def test_the_table_catches(mutant: Decide) -> None:
    assert disagreements(mutant)


@pytest.mark.parametrize(
    ("tree", "checks", "own", "wanted"),
    [
        ("same", "green", "-", "failed"),
        ("same", "red", "-", "failed"),
        ("changed", "green", "-", "passed"),
        ("changed", "red", "-", "failed"),
        ("same", "green", "fixed", "passed"),
    ],
)
def test_denied_commands_are_the_reason_only_where_nothing_was_done(
    tree: str, checks: str, own: str, wanted: str
) -> None:
    attempt, mine, binding = case("done", "active", checks, own, tree)
    attempt.result.denials = ["npm test"]
    verdict, reason = decide(attempt, mine, binding)
    assert verdict == wanted
    assert ("npm test" in reason) == (tree == "same" and own == "-")


def test_a_check_that_does_not_bind_is_not_asked() -> None:
    attempt, _, _ = case("done", "active", "red", "-", "changed")
    attempt.checks.append(result("lint", GREEN))
    assert decide(attempt, set(), {"lint"})[0] is Verdict.PASSED
    assert decide(attempt, set(), {"lint", GLOBAL})[0] is Verdict.FAILED


@pytest.mark.parametrize(
    ("checks", "tree", "judge", "wanted"),
    [
        ("none", "changed", True, "passed"),
        ("none", "changed", False, "failed"),
        ("none", "same", True, "no-op"),
        ("red", "changed", True, "failed"),
    ],
)
def test_only_where_a_judge_comes_after_it_may_a_plan_have_no_checks(
    checks: str, tree: str, judge: bool, wanted: str
) -> None:
    attempt, own, binding = case("done", "active", checks, "-", tree)
    assert decide(attempt, own, binding, judge)[0] == wanted


def test_what_is_red_and_does_not_bind_is_no_proof_even_with_a_judge() -> None:
    attempt, _, _ = case("done", "active", "red", "-", "changed")
    verdict, reason = decide(attempt, set(), set(), True)
    assert (verdict, "nothing proves it" in reason) == (Verdict.FAILED, True)


def test_the_reason_names_the_first_red_check() -> None:
    attempt, own, binding = case("done", "active", "own-red", "was-green", "changed")
    assert decide(attempt, own, binding) == (Verdict.FAILED, f"{OWN} failed with exit 1 (0.1 s)")


@pytest.mark.parametrize(
    ("before", "now", "own", "wanted"),
    [
        ({OWN: RED}, GREEN, {OWN}, True),
        ({OWN: RED}, RED, {OWN}, False),
        ({OWN: GREEN}, GREEN, {OWN}, False),
        ({}, GREEN, {OWN}, False),  # never seen red
        ({OWN: RED}, GREEN, {GLOBAL}, False),  # of another task
    ],
)
def test_fixed_checks(before: dict[str, bool], now: bool, own: set[str], wanted: bool) -> None:
    assert fixed_checks([result(OWN, now), result(GLOBAL, GREEN)], own, before) is wanted


PLAN = """{"checks": ["make", "make test"], "tasks": [
  {"id": "a", "title": "a", "checks": ["test -f a", "make test", {"run": "test ! -e b", "once": true}]},
  {"id": "b", "title": "b", "checks": ["make test", ["make", "test"], {"name": "x", "run": "test -f a"}]},
  {"id": "c", "title": "c"}]}"""


@pytest.mark.parametrize(
    ("task", "wanted"),
    [
        ("a", ["test -f a", "make test", "test ! -e b", "make"]),
        ("b", ["make test", "test -f a", "make"]),
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
