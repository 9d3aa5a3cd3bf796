"""How single tests changed: a table, one line a case, and what breaks it; the words for
it."""

from __future__ import annotations

from pathlib import Path

import pytest
from _ralph.loop.suite import Change, compare, judged, undone, with_tests

from _ralph.loop import suite
from _ralph.model import CheckResult, SingleTests

# Runs before, now and earlier: `;` between two runs on the same files, a letter for
# each test with + (passed), - (failed) or o (skipped); nothing where the check gave no
# results.
TABLE = """
a+ b-          | a+ b-          |            -> old b
a+ b-          | a+ b+          |            -> turned b, recovered
a+ b-          | a+             |            ->
p-             | a+ c+          |            -> recovered
p-             | a+ c+          | a+         -> recovered
p-; a+         | a+ c+          |            -> flaky p a
p-             | a+; a-         |            -> flaky a
a+ b-          | a- b-          |            -> failed a, old b
a+ b-          | a- b+          |            -> failed a, turned b
a+ b-          | ao b-          |            -> skipped a, old b
a+ b-          | b-             |            -> gone a, old b
a+ bo          | a+ b-          |            -> old b
a+ bo          | a+ b+          |            ->
a+             | a+ c+          |            ->
a+             | a+ c-          |            -> failed c
a+             | a+ c-; a+ c+   |            -> flaky c
a+ b-          | a+ c-          |            -> new c
a+ b-          | a+ b- c-       |            -> new c, old b
a+             | a-; a+         |            -> flaky a
a+             | a; a+          |            -> flaky a
a+             | a-; a-         |            -> failed a
a+; a-         | a-             |            -> old a, flaky a
a+ t1+; a+ t2+ | a+ t3+         |            -> flaky t1 t2
a+ t1+; a+ t2+ | t3+            |            -> gone a, flaky t1 t2
               | a+ c-          |            -> new c
               | a+ c-          | a+         -> new c
               | a-             | a+         -> failed a
               | a-             | a-         -> old a
               | a+             | a+ b+      ->
               | ao             | a+         ->
p-             | a- c+          | a+ b+      -> failed a
p-             | a+ c-          | a+         -> new c
a-             | a-             | a+         -> old a
a+             |                |            -> silent
a-             |                |            ->
               |                |            ->
"""
CASES = [line for line in TABLE.strip().splitlines() if line]
SIGNS = {"+": "passed", "-": "failed", "o": "skipped"}


def run(words: str) -> CheckResult:
    """The result of a check in which these tests ran."""
    by_state: dict[str, list[str]] = {state: [] for state in SIGNS.values()}
    for word in words.split():
        if word[-1] in SIGNS:
            by_state[SIGNS[word[-1]]].append(word[:-1])
    failed = {name: f"{name} is wrong" for name in by_state["failed"]}
    tests = SingleTests(by_state["passed"], failed, by_state["skipped"])
    plain = CheckResult("suite", "make test", not failed, int(bool(failed)))
    return with_tests(plain, tests)


def runs(words: str) -> list[CheckResult]:
    return [run(part) for part in words.split(";")] if words.strip() else []


def words(change: Change) -> str:
    kinds = ("failed", "skipped", "gone", "new", "old", "turned", "flaky")
    said = [
        f"{kind} {' '.join(names)}"
        for kind in kinds
        if (names := [*getattr(change, kind)])
    ]
    return ", ".join(
        [*said, *["silent"] * change.silent, *["recovered"] * change.recovered]
    )


def told(line: str) -> bool:
    """Whether a line of the table is right."""
    given, _, wanted = line.partition("->")
    before, now, earlier = map(runs, given.split("|"))
    change = compare(before, now, earlier)
    order = (
        "failed",
        "skipped",
        "gone",
        "new",
        "old",
        "turned",
        "flaky",
        "silent",
        "recovered",
    )
    parts = sorted(
        filter(None, map(str.strip, wanted.split(","))),
        key=lambda part: order.index(part.split()[0]),
    )
    return words(change) == ", ".join(parts)


@pytest.mark.parametrize("line", CASES)
def test_how_single_tests_changed(line: str) -> None:
    assert told(line), line


# Runs of a task's own check before the work and now, and what of it is not done.
UNDONE = """
a+ b- | a+ b+ ->
a+ b- | a+ bo -> b
a+ b- | a+    -> b
a+ b- | a+ c+ ->
f-    | a+    ->
f- b- | a+ bo -> b
bo    | bo    ->
      | a+    ->
"""


@pytest.mark.parametrize("line", UNDONE.strip("\n").splitlines())
def test_what_was_red_in_a_task_s_own_check_must_run(line: str) -> None:
    given, _, wanted = line.partition("->")
    assert undone(*map(runs, given.split("|"))) == wanted.split()


MUTANTS = {
    "silence is no sign": (
        "silent=bool(green and not states and _states(before[-1:]))",
        "silent=False",
    ),
    "what failed before binds": ('seen == {"passed"}]\n    lost', "seen]\n    lost"),
    "skipped is as good as passed": (
        '"passed" not in seen}',
        '"passed" not in seen and "skipped" not in seen}',
    ),
    "gone is as good as passed": (
        'states.get(name, {"gone"})',
        'states.get(name, {"passed"})',
    ),
    "the last run counts": ('if "passed" not in seen}', "}"),
    "nothing earlier counts": (
        "then, states = _states(before), _states(earlier)",
        "then, states = _states(before), {}",
    ),
    "what is gone since an earlier commit binds": (
        'and "failed" in states.get(name, ())',
        "",
    ),
    "what is new may fail": ("new = []\n    gone", "pass\n    gone"),
    "a test that was dropped is a check that recovered": (
        " and not undone(before, now)",
        "",
    ),
    "one green run is a check that recovered": (
        "all(run.ok for run in now)",
        "now[0].ok",
    ),
    "one red run is one that failed": (
        "not any(run.ok for run in before)",
        "not before[0].ok",
    ),
    "one run before is as good as two": ('states[name].add("gone")', "pass"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_the_table_sees(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    source = Path(suite.__file__).read_text()
    old, new = MUTANTS[name]
    assert source.count(old) == 1, name
    changed: dict[str, object] = {"__name__": "_ralph.loop.suite"}
    exec(compile(source.replace(old, new), "suite.py", "exec"), changed)
    monkeypatch.setitem(globals(), "compare", changed["compare"])
    broken = 0
    for line in CASES:
        try:
            broken += not told(line)
        except KeyError:
            broken += 1
    assert broken, name


# ---------------------------------------------------------------- the result of one run


def green(
    passed: int = 0,
    failed: int = 0,
    skipped: int = 0,
    unread: str = "",
    exit: int = 0,
    late: bool = False,
) -> CheckResult:
    names = [
        [f"{kind}{i}" for i in range(number)]
        for kind, number in (("p", passed), ("f", failed), ("s", skipped))
    ]
    plain = CheckResult(
        "suite",
        "make test",
        exit == 0 and not late,
        exit,
        tail="output",
        timed_out=late,
    )
    return with_tests(
        plain, SingleTests(names[0], dict.fromkeys(names[1], ""), names[2], unread)
    )


@pytest.mark.parametrize(
    "result, ok, sound, said",
    [
        (green(2), True, True, "2 passed"),
        (green(2, skipped=1), True, True, "2 passed, 1 skipped"),
        (green(2, 1, exit=1), False, True, "2 passed, 1 failed"),
        (green(2, 1), False, True, "2 passed, 1 failed"),
        (green(0, 1, exit=1), False, True, "1 failed"),
        (
            green(2, exit=3),
            False,
            False,
            "failed with exit 3, and no test failed: 2 passed",
        ),
        (green(skipped=2), False, False, "failed: no test passed, 2 skipped"),
        (
            green(unread="it wrote no results"),
            False,
            False,
            "failed: it wrote no results",
        ),
        (
            green(unread="it wrote no results", exit=2),
            False,
            False,
            "failed with exit 2",
        ),
        (green(2, 1, late=True), False, False, "timed out"),
    ],
)
def test_what_a_check_is_by_its_tests(
    result: CheckResult, ok: bool, sound: bool, said: str
) -> None:
    assert (result.ok, result.is_sound) == (ok, sound)
    assert result.outcome == f"{said} (0.0 s)"


def test_the_words_for_a_change_name_the_tests_and_what_they_say() -> None:
    change = compare(
        [run("a+ b+ c+ d- e+")], [run("a- b- co d- new-")], files=["tests/test_e.py"]
    )
    result = judged(run("a- b- co d- new-"), change)
    assert not result.ok
    assert str(change) == (
        "2 newly red: a, b; 1 newly skipped: c; 1 gone: e; a task that removes tests says so: "
        '"allow": ["tests/test_e.py"]; 1 new and red: new; 1 old failure'
    )
    assert result.outcome == f"failed: {change} (0.0 s)"
    assert (
        "a:\na is wrong" in result.tail
        and "b is wrong" in result.tail
        and "d is wrong" not in result.tail
    )


def test_old_failures_are_green_and_named() -> None:
    now = run("a+ d- e-")
    result = judged(now, compare([now], [now]))
    assert result.ok and result.outcome == "1 passed; 2 old failures (0.0 s)"


def test_what_is_gone_is_let_go_by_allow() -> None:
    change = compare([run("a+ b+")], [run("a+")], let_go=True)
    assert not change.breaks and [*change.let_go] == ["b"]
