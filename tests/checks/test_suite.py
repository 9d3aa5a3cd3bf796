"""How single tests changed: a table, one line a case, and what breaks it; the words for
it."""

from __future__ import annotations

from _ralph.checks.suite import Comparison, Kind, compare, judged, with_tests
from _ralph.model import CheckResult, SingleTests
from tests.checks.scripted import run, runs
from tests.conftest import cases


# Runs before, now and earlier, as `scripted.run` reads them, and what became of each
# test; `other` is not said.
@cases("""
before | now | earlier -> wanted
a+ b-          | a+ b-          |            -> green a, old b
a+ b-          | a+ b+          |            -> green a, turned b, recovered
a+ b-          | a+ bo          |            -> green a, muted b, recovered
a+ b-          | a+             |            -> green a, dropped b, recovered
p-             | a+ c+          |            -> dropped p, added a c, recovered
p-; a+         | a+ c+          |            -> added c, flaky p a
p-             | a+; a-         |            -> dropped p, flaky a
a+ b-          | a- b-          |            -> failed a, old b
a+ b-          | a- b+          |            -> failed a, turned b
a+ b-          | ao b-          |            -> skipped a, old b
a+ b-          | b-             |            -> gone a, old b
a+ bo          | a+ b-          |            -> green a, old b
a+ bo          | a+ b+          |            -> green a, added b
a+             | a+ c+          |            -> green a, added c
a+             | a+ c-          |            -> failed c, green a
a+             | a+ c-; a+ c+   |            -> green a, flaky c
a+ b-          | a+ c-          |            -> green a, dropped b, new c
a+ b-          | a+ b- c-       |            -> green a, old b, new c
a+             | a-; a+         |            -> flaky a
a+             | b+; a+         |            -> flaky a b
a+             | a-; a-         |            -> failed a
a+             | a-; ao         |            -> failed a
a+; a-         | a-             |            -> flaky a
a+ t1+; a+ t2+ | a+ t3+         |            -> green a, added t3, flaky t1 t2
a+ t1+; a+ t2+ | t3+            |            -> gone a, added t3, flaky t1 t2
               | a+ c-          |            -> added a, new c
ao             | a-             | a+         -> old a
none           | a+ c-          | a+         -> green a, new c
none           | a-             | a+         -> failed a
none           | a-             | a-         -> old a
none           | a+             | a-         -> added a, recovered
none           | c+ ao          | a+ b+      -> lost a b, added c, recovered
p!             | a- c+          | a+ b+      -> failed a, lost b, dropped p, added c
a-             | a-             | a+         -> old a
a+ b+          | a+ x!          |            -> failed x, gone b, green a
a+             | none           |            -> silent
a+; none       | none           |            ->
a-             | none           |            ->
               |                |            ->
""")
def test_how_single_tests_changed(
    before: str, now: str, earlier: str, wanted: str
) -> None:
    change = compare(runs(before), runs(now), runs(earlier))
    said = set()
    for kind, names in change.kinds.items():
        if kind != Kind.OTHER:
            said.add(f"{kind} {' '.join(names)}")
    if change.silent:
        said.add("silent")
    if change.recovered:
        said.add("recovered")
    assert said == {*filter(None, wanted.split(", "))}


# Runs of a task's own check before the work and now, and what of it is not done.
@cases("""
before | now -> wanted
a+ b- | a+ b+ ->
a+ b- | a+ bo -> b
a+ b- | a+    -> b
a+ b- | a+ c+ ->
f-    | a+    ->
f- b- | a+ bo -> b
bo    | bo    ->
      | a+    ->
""")
def test_what_was_red_in_a_task_s_own_check_must_run(
    before: str, now: str, wanted: str
) -> None:
    assert compare(runs(before), runs(now)).undone == wanted.split()


# ---------------------------------------------------------------- the result of one run


# What a check reported; whether it is green; whether it is sound: green, or red by
# single tests that explain its exit status; and its outcome in words.
@cases("""
words | kind | said
a+ b+        | green       | 2 passed
a+ co        | green       | 1 passed, 1 skipped
a+ co b-     | red, sound  | 1 passed, 1 skipped, 1 failed: b
b-           | red         | 1 failed: b
a+ exit 3    | red         | failed with exit 3, and no test failed: 1 passed
ao bo        | red         | failed: no test passed, 2 skipped
none         | red         | failed: it wrote no results
none exit 3  | red         | failed with exit 3
""")
def test_what_a_check_is_by_its_tests(words: str, kind: str, said: str) -> None:
    result = run(words)
    assert (result.ok, result.is_sound) == (kind == "green", kind != "red")
    assert result.outcome == f"{said} (0.0 s)"


def test_a_failure_without_an_exit_status_is_red_and_a_deadline_is_no_test() -> None:
    tests = SingleTests(["a"], {"b": ""})
    assert not with_tests(CheckResult("s", "s", True, 0), tests).ok
    late = CheckResult("s", "s", False, tail="output", timed_out=True)
    late = with_tests(late, tests)
    assert not late.is_sound and late.outcome == "timed out (0.0 s)"


def test_the_words_for_a_change_name_the_tests_and_what_they_say() -> None:
    before, now = run("a+ b+ c+ d- e+"), run("a- b- co d- new-")
    result = judged(now, compare([before], [now]), ["tests/test_e.py"])
    assert not result.ok and result.tests is None
    said = (
        "2 newly red: a, b; 1 newly skipped: c; 1 gone: e; a task that removes tests says so: "
        '"allow": ["tests/test_e.py"]; 1 new and red: new; 1 old failure'
    )
    assert result.outcome == f"failed: {said} (0.0 s)"
    assert "a:\na is wrong" in result.tail and "b is wrong" in result.tail
    assert "d is wrong" not in result.tail
    assert "a is wrong" in now.tail  # of a task's own check, too


def test_old_failures_are_green_and_named_and_nothing_that_passed_is_not() -> None:
    now = run("a+ d- e-")
    result = judged(now, compare([now], [now]))
    assert result.ok and result.outcome == "1 passed; 2 old failures (0.0 s)"
    for words in ("d- e-", "a+ exit 3", "none"):
        assert not judged(run(words), compare(runs(words), runs(words))).ok


def test_what_is_gone_is_let_go_by_allow() -> None:
    change = compare(runs("a+ b+"), runs("a+"), let_go=True)
    assert not change.breaks and change.names(Kind.LET_GO) == ["b"]


def test_a_file_that_cannot_be_loaded_is_named() -> None:
    assert compare(runs("a+ x!"), runs("a+; a+ y!")).uncollected == ["y"]
    assert Comparison().uncollected == ()
    change = compare(runs("a+ x+"), runs("x!"))
    said = judged(run("x!"), change, ["src/a.py"]).outcome
    assert "failed: 1 newly red: x; 1 gone: a" in said and "allow" not in said
