"""What an attempt is worth: the table of what passes, one line a case, and what breaks
it; what binds, and what is evidence; what blocks a task."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from _ralph.checks.evidence import Evidence
from _ralph.checks.judge import Answer
from _ralph.checks.suite import Comparison, Kind
from _ralph.checks.verdict import Case, Decision, after_judge, decide, reason_to_block
from _ralph.model import AgentResult, CheckResult, Outcome, Verdict
from tests.conftest import cases

SIGNS = {"+": True, "-": False, "?": None}


def compared(flags: str) -> Comparison | None:
    """What became of single tests, by such words."""
    words = flags.split(",")
    kinds = {Kind(word): [f"t-{word}"] for word in words if word in {*Kind}}
    unloaded = ["t-unloaded"] if "unloaded" in words else []
    found = Comparison(kinds, uncollected=unloaded)
    found = replace(found, silent="silent" in words, recovered="recovered" in words)
    return found if flags else None


def known(word: str) -> Evidence:
    """What is known of a check, as a word of the tables says: its name; what it was on
    the tip and is now, for one of the task's own what it was before its first attempt,
    too: + green, - red, ? not known. `f` is flaky; behind a slash, what became of single
    tests."""
    name, _, rest = word.partition(":")
    signs, _, flags = rest.partition("/")
    flaky = signs.endswith("f")
    base, now = (SIGNS[sign] for sign in signs.rstrip("f")[-2:])
    first = SIGNS[signs[0]] if name == "own" else None
    result = CheckResult(name, name, bool(now), 0 if now else 1, 0.1)
    tests = compared(flags)
    return Evidence(result, name == "own", base, first, flaky, tests)


def decided(words: str, **more: Any) -> Decision:
    """What an agent gets that ended well and changed something."""
    evidence = [known(word) for word in words.split()]
    well = AgentResult(Outcome.DONE, active=True)
    given: dict[str, Any] = {"result": well, "changed": True, "evidence": evidence}
    return decide(Case(**given | more))


# How the agent ended (`silent`: without a word or a token); the candidate's files:
# `differ`, `same`, or `left-out` (all that was changed is no part of the work); the
# checks, as `CHECKS` has them: `turned` where one of its own was red before the work and
# is green now, `unproved` where nothing binds, and nothing turned green.
TABLE = """
agent            | files    | checks       -> verdict
done             | differ   | green        -> passed
done             | differ   | green turned -> passed
done             | differ   | red          -> failed
done             | differ   | red turned   -> failed
done             | differ   | unproved     -> failed
done             | differ   | empty        -> failed
done             | same     | green        -> no-op
done             | same     | green turned -> no-op
done             | same     | red          -> failed
done             | same     | red turned   -> failed
done             | same     | unproved     -> failed
done             | same     | empty        -> failed
done             | left-out | green        -> failed
done             | left-out | red          -> failed
done silent      | differ   | green        -> passed
done silent      | same     | green        -> no-op
done silent      | same     | red          -> failed
failed           | differ   | green        -> failed
failed           | differ   | green turned -> passed
failed           | differ   | red          -> failed
failed           | differ   | red turned   -> failed
failed           | differ   | unproved     -> failed
failed           | same     | green        -> failed
failed           | same     | green turned -> failed
failed           | same     | red          -> failed
failed           | left-out | green        -> failed
timed-out        | differ   | green        -> timed-out
timed-out        | differ   | green turned -> passed
timed-out        | differ   | red          -> timed-out
timed-out        | differ   | red turned   -> timed-out
timed-out        | differ   | unproved     -> timed-out
timed-out        | differ   | empty        -> timed-out
timed-out        | same     | green turned -> timed-out
timed-out        | same     | red          -> timed-out
timed-out        | left-out | green        -> timed-out
timed-out silent | differ   | green        -> timed-out
timed-out silent | differ   | green turned -> passed
timed-out silent | same     | green        -> limited
timed-out silent | same     | red          -> limited
limited          | differ   | green        -> limited
limited          | differ   | green turned -> passed
limited          | differ   | red turned   -> limited
limited          | same     | green        -> limited
limited          | same     | empty        -> limited
limited          | left-out | green        -> limited
unavailable      | differ   | green        -> unavailable
unavailable      | differ   | green turned -> passed
unavailable      | differ   | red          -> unavailable
unavailable      | same     | green        -> unavailable
interrupted      | differ   | green        -> interrupted
interrupted      | differ   | green turned -> passed
interrupted      | differ   | red turned   -> interrupted
interrupted      | same     | green turned -> interrupted
"""
CHECKS = {
    "green": "suite:++ own:+?+",
    "green turned": "suite:++ own:-?+",
    "red": "suite:+- own:+?+",
    "red turned": "suite:+- own:-?+",
    "unproved": "suite:--",
    "empty": "",
}


@cases(TABLE)
def test_what_an_attempt_is_worth(
    agent: str, files: str, checks: str, verdict: str
) -> None:
    outcome, *silent = agent.split()
    decision = decided(
        CHECKS[checks],
        result=AgentResult(Outcome(outcome), "why", active=not silent),
        changed=files == "differ",
        left_out=["a protected file"] if files == "left-out" else [],
    )
    assert decision.verdict == verdict
    assert bool(decision.reason) is (verdict != "passed")


def test_the_table_has_every_outcome_and_every_verdict() -> None:
    before_there_are_checks = {Verdict.CONFLICT, Verdict.SET_ASIDE}
    rows = [row.split() for row in TABLE.strip().splitlines()[1:]]
    assert {row[0] for row in rows} == {*Outcome}
    assert {row[-1] for row in rows} == {*Verdict} - before_there_are_checks


@cases("""
changed  left_out  checks    verdict
no       -         suite:++  failed
no       -         suite:+-  failed
no       a.py      suite:++  failed
yes      -         suite:++  passed
yes      -         suite:+-  failed
""")
def test_denied_commands_are_the_reason_only_where_nothing_was_done(
    changed: str, left_out: str, checks: str, verdict: str
) -> None:
    denied = AgentResult(Outcome.DONE, denials=["npm test"])
    given = {"changed": changed == "yes", "left_out": left_out.split()}
    decision = decided(checks, result=denied, **given)
    assert decision.verdict == verdict
    assert decision.denied is (changed == "no")
    assert ("npm test" in decision.reason) is (changed == "no")


# ---------------------------------------------------------------- what binds, and what is evidence


# The checks; then what an agent that ended well gets, what it gets if it was killed, and
# what is red beside a pass.
@cases("""
checks                        -> wanted
suite:++                      -> weak       timed-out
suite:+-                      -> failed     timed-out
suite:-+                      -> passed     timed-out
suite:--                      -> failed     timed-out
suite:?+                      -> failed     timed-out
suite:-+f                     -> failed     timed-out
suite:-- lint:-+              -> passed     timed-out  suite
suite:-- lint:++              -> weak       timed-out  suite
suite:++ own:-?+              -> passed     passed
suite:++ own:+?+              -> weak       timed-out
suite:++ own:??+              -> weak       timed-out
suite:++ own:-?-              -> failed     timed-out
suite:+- own:-?+              -> failed     timed-out
suite:?- own:-?+              -> failed     timed-out
suite:-- own:-?+              -> passed     passed     suite
suite:++ own:-++              -> weak       timed-out
suite:++ own:--+              -> passed     passed
suite:++ own:-+-              -> failed     timed-out
suite:-+ own:+?+              -> passed     timed-out
suite:++ own:-?+f             -> weak       timed-out
own:-?- hook:?+               -> failed     timed-out
own:-?+ hook:?-               -> failed     timed-out
setup:?-                      -> failed     timed-out
suite:-- hook:?+              -> failed     timed-out
suite:++/green                -> weak       timed-out
suite:++/green,old            -> weak       timed-out
suite:++/green,turned         -> passed     passed
suite:+-/green,failed         -> failed     timed-out
suite:--/skipped              -> failed     timed-out
suite:--/gone,turned          -> failed     timed-out
suite:--/silent               -> failed     timed-out
suite:--/green                -> weak       timed-out  suite
suite:--/turned               -> passed     passed     suite
suite:--/new                  -> failed     timed-out
suite:-+/new                  -> weak       timed-out
suite:-+/green,new            -> weak       timed-out
suite:-+/green                -> passed     timed-out
suite:++/recovered            -> passed     timed-out
suite:++/recovered,muted      -> weak       timed-out
suite:++/recovered,dropped    -> weak       timed-out
suite:++/recovered,dropped,added -> passed  timed-out
suite:++/green,flaky          -> weak       timed-out
suite:++/green,turned,lost    -> weak       weak
suite:++/green,turned,unloaded -> weak      weak
""")
def test_what_binds_and_what_is_evidence(checks: str, wanted: str) -> None:
    well = decided(checks)
    killed = decided(checks, result=AgentResult(Outcome.TIMED_OUT, active=True))
    said = ["weak" if one.weak else str(one.verdict) for one in (well, killed)]
    if well.verdict is Verdict.PASSED:
        said += well.beside
    assert said == wanted.split()


def test_what_a_person_should_know_is_said() -> None:
    told = {
        "own:-?+f": "flaky, red and green on the same files: own",
        "suite:++/green,flaky": "flaky, red and green on the same files: t-flaky",
        "suite:++/let go": "1 test gone, as `allow` lets it: t-let go",
        "suite:++/lost": "1 test green on an earlier commit, and not run: t-lost",
        "suite:++/unloaded": "cannot be loaded, and tests nothing: t-unloaded",
    }
    for words, notice in told.items():
        evidence = [known(words)]
        assert decided("", evidence=evidence).notices == [notice]
    assert decided("suite:++/green,flaky own:-?+f").flaky == ["t-flaky", "own"]
    ignored = "x is ignored by git and not part of the work"
    assert decided("suite:+-", ignored=["x"]).notices == [ignored]
    assert decided("suite:++", ignored=["x"]).notices == []


def test_where_nothing_binds_the_reason_says_what_helps() -> None:
    assert "(suite); add a check to this task" in decided("suite:--").reason
    assert "add a check to this task" in decided("").reason
    for words in ("suite:--", ""):
        judged = decided(words, judge=True)
        assert judged.verdict is Verdict.PASSED and judged.weak


def test_work_that_was_all_left_out_is_told_with_what_lets_it_in() -> None:
    left = ["tests/a.py", "conftest.py (new and protected)", "prd.json (a copy)"]
    given: Any = {"left_out": left, "protected": ["tests/a.py", "conftest.py"]}
    failed = decided("suite:++", changed=False, **given)
    assert failed.verdict is Verdict.FAILED and "prd.json" in failed.reason
    assert '"allow": ["tests/a.py", "conftest.py"]' in failed.reason
    copy = decided("suite:++", changed=False, left_out=left[2:])
    assert copy.verdict is Verdict.FAILED and "allow" not in copy.reason
    assert decided("suite:++", **given).verdict is Verdict.PASSED


def test_the_reason_names_the_first_red_check_or_the_files() -> None:
    assert decided("suite:+- own:-?-").reason == "suite failed with exit 1 (0.1 s)"
    idle = decided("suite:+-", changed=False)
    assert idle.reason == "it changed nothing: suite failed with exit 1 (0.1 s)"
    words = AgentResult(Outcome.DONE, text="I looked.\nIt is there already.\n")
    said = "; its last words: I looked. It is there already."
    for checks in "suite:++", "suite:+-":
        assert decided(checks, changed=False, result=words).reason.endswith(said)


# ---------------------------------------------------------------- the judge, and what blocks


ANSWERS = {"": Answer(), "no": Answer(["fast: no"]), "what?": Answer(unreadable="what?")}  # fmt: skip


# How the judge ended and what it said, and what an attempt gets that would pass.
@cases("""
outcome      | answer | wanted
done         |       | passed
done         | no    | failed: the judge says no: fast: no
done         | what? | failed: the judge says no: what?
failed       |       | failed: the judge did not finish: why
timed-out    |       | failed: the judge did not finish: why
limited      |       | limited: the judge: why
unavailable  |       | unavailable: the judge: why
interrupted  |       | interrupted: the judge: why
""")
def test_a_judge_can_only_take_a_pass_away(
    outcome: str, answer: str, wanted: str
) -> None:
    weak = Decision(Verdict.PASSED, weak=True, notices=["x"])
    judge = AgentResult(Outcome(outcome), "why", active=True)
    decision = after_judge(weak, judge, ANSWERS[answer])
    assert f"{decision.verdict}: {decision.reason}".removesuffix(": ") == wanted
    assert decision.weak is (wanted == "passed") and decision.notices == ["x"]


# The verdict, what else is known, and why that blocks the task, if it does.
@cases("""
verdict     | words                    | why
failed      |                          |
failed      | attempts=3               | 3 failed attempts, the last: red
timed-out   | attempts=1 most=1        | 1 failed attempt, the last: red
passed      | attempts=3 spent=limit   |
failed      | spent=limit              | limit, the last attempt: failed: red
limited     | spent=limit              | limit, the last attempt: limited: red
limited     | attempts=3               |
conflict    | attempts=3               |
interrupted | interruptions=2 attempts=3 |
interrupted | interruptions=3          | interrupted 3 times in a row, the last: red
failed      | asks=which? attempts=3   | it asks: which?
no-op       |                          |
no-op       | no_op_before=1           | already done? two attempts changed nothing
failed      | no_op_before=1           |
""")
def test_what_blocks_a_task(verdict: str, words: str, why: str) -> None:
    given: dict[str, Any] = {}
    for word in words.split():
        key, value = word.split("=")
        given[key] = int(value) if value.isdecimal() else value
    found = reason_to_block(Verdict(verdict), "red", **given)
    assert found.startswith(why) and bool(found) is bool(why)
