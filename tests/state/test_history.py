"""The history of a plan: its records folded, one after the other; and the parts of a
handoff. A line a case: records as `told` reads them, and what is known then."""

from __future__ import annotations

import json
from dataclasses import replace

from _ralph.model import Check, Task, Tokens
from _ralph.state.history import NEVER, Unavailable, newest, parse_handoff
from tests.conftest import cases
from tests.state.test_log import fold

TASK = Task("T1", "t", 0, {})


# The attempts at T1 that count.
@cases(r"""
records -> wanted
failed -> 1
no-op -> 1
timed-out -> 1
failed; no-op; timed-out -> 3
limited; unavailable; interrupted -> 0
failed; limited; failed; interrupted -> 2
conflict; conflict -> 0
failed; conflict; failed -> 2
set-aside -> 0
passed -> 0
failed; failed; passed -> 0
passed; failed -> 1
failed; retry -> 0
failed; retry; failed -> 1
failed; recheck ok=true; failed -> 2
failed; recheck broken=["T1\nt"]; failed -> 1
failed; run; failed; stop; failed -> 3
""")
def test_attempts_that_count(records: str, wanted: str) -> None:
    assert fold(records).of(TASK).attempts == int(wanted)


def test_a_changed_title_and_another_task_start_from_zero() -> None:
    history = fold("start; failed usd=1")
    assert history.of(TASK).attempts == 1
    for other in (replace(TASK, title="t, but more"), replace(TASK, id="T2")):
        assert (history.of(other).attempts, history.of(other).usd) == (0, 0.0)


def test_a_retry_keeps_what_is_known_and_takes_the_answer() -> None:
    handoff = '{"ruled\\u0020out":"URL","learned":"make","question":"which?"}'
    failed = f'failed usd=1 seconds=5 blocked="why" handoff={handoff}'
    history = fold(f'start; {failed}; retry answer="old"')
    known = history.of(TASK)
    assert (known.attempts, known.blocked, known.last) == (0, False, None)
    assert (known.question, known.answered, known.answer) == ("", "which?", "old")
    assert (known.ruled_out, history.learned) == (["URL"], ["make"])
    assert (known.usd, known.seconds, history.usd) == (1.0, 5.0, 1.0)
    assert history.this_run.blocked_in_a_row == 0


@cases(r"""
records -> wanted
failed handoff={"question":"q1"}; retry answer="a1"; failed; retry -> q1 a1
failed handoff={"question":"q1"}; retry answer="a1"; failed handoff={"question":"q2"}; retry answer="a2" -> q2 a2
failed handoff={"question":"q1"}; retry; failed handoff={"question":"q2"}; retry answer="a2" -> q2 a2
failed handoff={"question":"q1"}; retry -> none none
""")
def test_an_answer_stays_with_the_question_that_it_answers(
    records: str, wanted: str
) -> None:
    task = fold(records).of(TASK)
    assert [task.answered or "none", task.answer or "none"] == wanted.split()


def test_money_for_the_task_the_run_and_the_plan() -> None:
    paid = 'usd=0.25 seconds=2 tokens={"input":100,"output":10,"cached":50}'
    # What did not count was paid for all the same
    first = f'run; failed {paid}; limited {paid}; passed {paid} task="T2"; stop'
    second = f"run; interrupted {paid}; failed; run continues=true; no-op {paid}"
    history = fold(f"{first}; {second}")
    run, known = history.this_run, history.of(TASK)
    assert (history.usd, history.tokens) == (1.25, Tokens(500, 50, 250))
    assert (run.usd, run.tokens.total) == (0.5, 220)
    assert (known.usd, known.tokens) == (1.0, Tokens(400, 40, 200))
    assert (known.seconds, known.attempts) == (8.0, 3)


def test_what_attempts_cost_at_most() -> None:
    judge = '{"agent":"b","usd":0.5}'
    first = 'failed command="a" usd=1 tokens={"input":5}'
    second = f'passed command="a" usd=2 judge={judge} tokens={{"input":9}}'
    known = fold(f'{first}; {second}; passed command="c" usd=1.75')
    assert known.dearest == {"a": 1.5, "b": 0.5, "c": 1.75, "": 0.0}
    assert (known.largest.usd, known.largest.tokens.total) == (2.0, 9)


# Of the run: its iterations, and how many tasks were blocked in a row.
@cases("""
records -> wanted
run; start; start iteration=2; stop; run; start iteration=3 -> 1 0
failed blocked="x" -> 0 1
failed blocked="x"; no-op blocked="y" task="T2" -> 0 2
failed blocked="x"; failed task="T2" -> 0 1
failed blocked="x"; passed task="T2" -> 0 0
failed blocked="x"; retry -> 0 0
failed blocked="x"; stop; run -> 0 0
run; start; set-aside uncounted=true -> 0 0
run; start; start iteration=2; interrupted uncounted=true -> 1 0
run; start; start iteration=2; stop; run; start iteration=3; interrupted uncounted=true -> 1 0
run; start; start iteration=2; run continues=true; start iteration=3; interrupted uncounted=true -> 2 0
""")
def test_what_is_counted_for_a_run(records: str, wanted: str) -> None:
    run = fold(records).this_run
    assert f"{run.iterations} {run.blocked_in_a_row}" == wanted


@cases(r"""
records -> wanted
failed ->
passed commit="c" checks={"own":true} -> holds
passed commit="c" checks={"other":true} ->
passed checks={"own":true} ->
passed commit="c" checks={"own":true}; retry ->
passed commit="c" checks={"own":true}; recheck broken=["T1\nt"] ->
passed commit="c" checks={"own":true}; recheck broken=["T2\nt"] -> holds
passed commit="c" checks={"own":true}; stop; run -> holds
retry; passed commit="c" checks={"own":true} -> holds
""")
def test_a_pass_holds_until_a_record_takes_it_away(records: str, wanted: str) -> None:
    task = replace(TASK, checks=(Check("own", "own"),))
    assert fold(records).holds(task) is bool(wanted)
    assert not fold(records).holds(replace(task, title="another"))


# The tree that the next attempt at T1 finds, and where its work is parked.
@cases(r"""
records -> left | parked
failed left="tree" base="tip" -> tree | -
timed-out left="tree" base="tip" -> tree | -
limited left="tree" base="tip" -> tree | -
interrupted left="tree" base="tip" -> tree | -
interrupted -> - | -
conflict left="tree" base="tip" -> tree | -
set-aside left="tree" base="tip" -> tree | -
failed left="tree" base="tip" parked="refs/x" -> - | refs/x
conflict left="tree" base="tip" parked="refs/x" -> - | refs/x
passed commit="c" -> - | -
failed left="tree" base="tip"; failed -> - | -
failed left="tree" base="tip"; retry -> - | -
failed left="tree" -> - | -
interrupted blocked="x" parked="refs/a" -> - | refs/a
conflict parked="refs/a"; limited -> - | refs/a
conflict parked="refs/a"; failed -> - | -
""")
def test_what_the_next_attempt_finds(records: str, left: str, parked: str) -> None:
    known = fold(records).of(TASK)
    assert (known.unfinished.left, known.parked) == (left, parked)
    assert known.unfinished.base == ("tip" if left else "")


@cases("""
records -> wanted
interrupted; interrupted -> 2
interrupted; limited; unavailable; interrupted -> 2
interrupted; failed; interrupted -> 1
interrupted; interrupted uncounted=true -> 1
interrupted; retry -> 0
""")
def test_interruptions_in_a_row(records: str, wanted: str) -> None:
    assert fold(records).of(TASK).interrupted == int(wanted)


# The tasks in a row that were denied what they needed.
@cases("""
records -> wanted
failed denied=true; failed denied=true; failed denied=true task="T2" -> T1 T2
failed denied=true; limited; failed denied=true task="T2" -> T1 T2
failed denied=true; failed ->
failed denied=true; passed ->
failed denied=true; no-op ->
failed denied=true; timed-out ->
failed denied=true; stop; run ->
""")
def test_tasks_in_a_row_that_were_denied(records: str, wanted: str) -> None:
    denied = fold(records).this_run.denied
    assert denied == [f"{name}\nt" for name in wanted.split()]


# What passed since everything was last checked; the waits in a row that brought nothing.
@cases("""
records -> wanted
passed; failed; passed -> 2 0
passed; recheck ok=true -> 0 0
recheck ok=true; run; passed -> 1 0
wait backoff=true; limited; wait backoff=true -> 0 2
wait backoff=true; wait -> 0 1
wait backoff=true; wait backoff=true; failed -> 0 0
wait backoff=true; limited tokens={"output":5} -> 0 0
wait backoff=true; run -> 0 0
""")
def test_checks_and_waits(records: str, wanted: str) -> None:
    history = fold(records)
    assert f"{history.unchecked} {history.this_run.vain}" == wanted


def used(words: str) -> str:
    """Records of the agent `a`, of `limited AT` (with its start), `refused AT` (its
    login), `answered`, or an event as it stands."""
    kind, *rest = words.split()
    at = rest.pop(0) if kind in ("limited", "refused") else "1"
    more = " ".join(rest)
    match kind:
        case "limited":
            began = more.partition("began=")[2].split(" ")[0] or at
            start = f"start iteration={at} time={began}"
            return f'{start}; limited iteration={at} time={at} command="a" reason="busy" {more}'
        case "refused":
            return f'unavailable time={at} command="a" reason="no_login" {more}'
        case "answered":
            return f'failed command="a" {more}'
    return words


# What became of the agent; since when it cannot be used, its reset, how often it was
# tried, and why. The same limit counts once, as do two loops that lost the same race;
# who has worked in this run is tried once more after a minute.
@cases("""
records -> wanted
limited 10 -> 10 0 1 busy
limited 10 reset=99 -> 10 99 0 busy
limited 10, limited 80 -> 80 0 2 busy
limited 10, limited 80 began=5 -> 10 0 1 busy
limited 10 reset=50, limited 20 reset=99 began=5 -> 20 99 0 busy
refused 10 -> 10 NEVER 0 no_login
answered time=1, refused 10 -> 10 70 0 no_login
answered time=1, refused 10, refused 80 -> 80 NEVER 0 no_login
answered time=1, refused 10, start iteration=9 time=5, refused 11 iteration=9 -> 10 70 0 no_login
limited 10, answered -> 10 0 0 busy
limited 10 reset=99, answered -> 10 99 0 busy
limited 10, run ->
limited 10, run continues=true -> 10 0 1 busy
""")
def test_why_an_agent_cannot_be_used(records: str, wanted: str) -> None:
    away = fold("; ".join(map(used, records.split(", ")))).this_run.away.get("a")
    if away is None:
        assert not wanted
        return
    at, reset, tries, reason = wanted.split()
    until = NEVER if reset == "NEVER" else float(reset)
    assert away == Unavailable(float(at), until, int(tries), reason)


def test_a_task_that_is_set_aside_is_so_in_this_run() -> None:
    aside = 'run; start; set-aside reason="no" uncounted=true'
    assert fold(aside).this_run.set_aside == {TASK.key: "no"}
    assert fold(f"{aside}; stop; run").this_run.set_aside == {}


def test_what_a_recovered_attempt_cost_counts_for_the_run_that_recovers_it() -> None:
    """Its verdict stands before that run's own record."""
    first = 'run run="a"; start run="a"; failed usd=4 run="a"'
    left = 'start iteration=2 run="a"; stop run="a"'
    both = f'{first}; {left}; passed iteration=2 usd=2 run="b"; run run="b"'
    known = fold(both)
    assert (known.this_run.usd, known.this_run.passed, known.usd) == (2.0, 1, 6.0)
    assert known.this_run.iterations == 0
    again = fold(f'{both}; stop; run run="c"').this_run
    assert (again.usd, again.passed) == (0.0, 0)


def test_extra_usage_is_billed_until_its_reset_whoever_ends_after_it() -> None:
    billed = 'passed agent="claude" overage=true reset=99 time=10'
    known = fold(f'{billed}; passed iteration=2 agent="claude"; run')
    assert known.overage["claude"].reset == 99
    of_judge = 'passed agent="a" judge={"row":"claude","overage":true} time=10'
    assert fold(of_judge).overage.keys() == {"claude"}


# How often later work broke T1, and whether that blocks it.
@cases(r"""
records -> wanted
passed; recheck broken=["T1\nt"] -> 1 False
passed; recheck broken=["T1\nt"]; passed; recheck broken=["T1\nt"] -> 2 True
passed; recheck broken=["T1\nt"]; retry; recheck broken=["T1\nt"] -> 1 False
""")
def test_a_pass_that_breaks_twice_is_blocked(records: str, wanted: str) -> None:
    known = fold(records).of(TASK)
    assert f"{known.set_back} {known.blocked}" == wanted


# Events, the run that wrote them and when; and how long that run has lasted.
@cases("""
records -> wanted
run a 0, start a 1, start a 2, failed a 62, failed a 82 -> 82
run a 0, start a 10, failed b 900, start b 905 -> 15
run a 0, start a 50, failed a 20 -> 50
""")
def test_how_long_a_run_has_lasted(records: str, wanted: str) -> None:
    """Of a process that was killed nobody knows what came after its last record; a
    clock can be set back."""
    line = []
    for words in records.split(", "):
        event, run, at = words.split()
        line.append(f'{event} run="{run}" time={at}')
    assert fold("; ".join(line)).this_run.seconds == float(wanted)


# ---------------------------------------------------------------- handoffs


@cases(r"""
source -> wanted
no label at all -> {}
learned: use make -> {"learned": "use make"}
LEARNED: Use make -> {"learned": "Use make"}
**Learned:** x -> {"learned": "x"}
**Learned**: x -> {"learned": "x"}
- **ruled out**: the URL -> {"ruled out": "the URL"}
* next step: x -> {"next step": "x"}
### Next step:\nf.py -> {"next step": "f.py"}
> learned : much -> {"learned": "much"}
learned:\n- one\n\n- two\nquestion: three -> {"learned": "- one\n- two", "question": "three"}
learned: first\nquestion: q\nlearned: second -> {"learned": "first\nsecond", "question": "q"}
question: none\nlearned: N/A\nnext step: -\nruled out: **nothing** -> {}
question: none of the tables fits? -> {"question": "none of the tables fits?"}
next step: \u001b[32mx\u001b[0m\r\nlearned: a\u2028b -> {"learned": "ab", "next step": "x"}
## Learned\nmuch\n\n## Next step\n- write it -> {"learned": "much", "next step": "- write it"}
1. learned: a\n2. `next step`: x -> {"learned": "a", "next step": "x"}
learned: (and why)\nquestion: (one for a person, and the answer you propose, or none) -> {}
""")
def test_parse_handoff(source: str, wanted: str) -> None:
    assert parse_handoff(json.loads(f'"{source}"')) == json.loads(wanted)


# Entries, the bytes that they may take, and the newest of them.
@cases("""
entries -> wanted
a b c 10 -> a b c
aaaa bbbb cccc 8 -> bbbb cccc
aaaa bbbb cccc 7 -> cccc
aaaa 3 ->
a b a 10 -> b a
éé b 4 -> b
old again again again 10 -> old again
""")
def test_newest(entries: str, wanted: str) -> None:
    *given, size = entries.split()
    assert newest(given, int(size)) == wanted.split()
