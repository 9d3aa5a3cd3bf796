"""Single tests: what became of those that a check reports, between the commit that the
candidate is made on and the candidate. What was green there stays green; what failed
there is an old failure, which blocks nobody."""

from __future__ import annotations

import enum
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from _ralph import text
from _ralph.model import CheckResult, SingleTests

Runs = Sequence[CheckResult]
"""The results of one check on the same files, the newest last."""
_TOLD = 2
"""Failures of which the next prompt has the own message, whole."""


class Kind(enum.StrEnum):
    """What became of one test."""

    GREEN = "green"  # it was green, and is
    FAILED = "failed"  # it was green, and fails
    SKIPPED = "skipped"  # it was green, and is skipped
    GONE = "gone"  # it was green, and is not there
    LET_GO = "let go"  # the same, where the task may remove tests
    LOST = "lost"  # it was green on an earlier commit alone, and does not run
    TURNED = "turned"  # it failed, and passes
    OLD = "old"  # it failed or was skipped, and fails
    MUTED = "muted"  # it failed, and is skipped
    DROPPED = "dropped"  # it failed, and is not there
    NEW = "new"  # it did not run before, and fails
    ADDED = "added"  # it was skipped or not there, and passes
    FLAKY = "flaky"  # not the same in two runs on the same files
    OTHER = "other"  # it did not run before, and does not now


@dataclass(frozen=True)
class Comparison:
    """How the tests of a check differ between two commits: their names by kind.
    `uncollected` are the test files that could not be loaded. `silent` says that
    nothing is reported where something was green; `recovered`, that the check failed as
    a whole in each run before, and passes in each run now."""

    kinds: Mapping[Kind, list[str]] = field(default_factory=dict)
    uncollected: Sequence[str] = ()
    silent: bool = False
    recovered: bool = False

    def names(self, *kinds: Kind) -> list[str]:
        """The tests of these kinds."""
        return [name for kind in kinds for name in self.kinds.get(kind, [])]

    @property
    def breaks(self) -> bool:
        """Whether a test that was green is not so any more."""
        return bool(self.names(Kind.FAILED, Kind.SKIPPED, Kind.GONE))

    @property
    def undone(self) -> list[str]:
        """The tests that failed before the work and are now skipped; or gone, where
        none passes that did not before."""
        muted = self.names(Kind.MUTED)
        if muted or self.names(Kind.TURNED, Kind.ADDED):
            return muted
        return self.names(Kind.DROPPED)


_WORDS = {
    Kind.FAILED: "newly red",
    Kind.SKIPPED: "newly skipped",
    Kind.GONE: "gone",
    Kind.NEW: "new and red",
}
_WAS_GREEN = {
    "passed": Kind.GREEN,
    "failed": Kind.FAILED,
    "skipped": Kind.SKIPPED,
    "gone": Kind.GONE,
}
_WAS_RED = {
    "passed": Kind.TURNED,
    "failed": Kind.OLD,
    "skipped": Kind.MUTED,
    "gone": Kind.DROPPED,
}


def classify(
    before: Collection[str],
    now: Collection[str],
    earlier: Collection[str] = (),
    whole: bool = False,
) -> Kind:
    """What became of one test.

    `before`, `now` and `earlier` are what it was in all runs on the tip, on the
    candidate and on an earlier commit, of passed, failed, skipped and gone; empty where
    no run names it. The earlier commit counts for what did not run on the tip. `whole`
    says that all was green on the tip: then a new test must not fail, either.
    """
    if len(before) > 1 or (len(now) > 1 and "passed" in now):
        return Kind.FLAKY
    state = "gone"
    for worst in ("failed", "skipped", "passed"):
        if worst in now:
            state = worst
            break
    if "passed" in before:
        return _WAS_GREEN[state]
    if "failed" in before:
        return _WAS_RED[state]
    if not before and set(earlier) == {"passed"}:
        kind = _WAS_GREEN[state]
        return Kind.LOST if kind in (Kind.SKIPPED, Kind.GONE) else kind
    if state == "passed":
        return Kind.ADDED
    if state != "failed":
        return Kind.OTHER
    if before or earlier:
        return Kind.OLD
    return Kind.FAILED if whole else Kind.NEW


def compare(
    before: Runs, now: Runs, earlier: Runs = (), *, let_go: bool = False
) -> Comparison:
    """How the tests of a check changed from the runs `before` to those of `now`.
    `earlier` are runs on an earlier commit, where the suite did not run whole before;
    `let_go` says that tests may be gone."""
    was = _states(before)
    then = _states(earlier)
    states = _states(now)
    if not states:
        green = any(state == {"passed"} for state in was.values())
        return Comparison(silent=green and bool(_states(before[-1:])))
    whole = bool(before) and all(run.ok for run in before)
    kinds: dict[Kind, list[str]] = {}
    for name in {**was, **then, **states}:
        at_first = then.get(name, set())
        kind = classify(was.get(name, set()), states.get(name, set()), at_first, whole)
        if kind is Kind.GONE and let_go:
            kind = Kind.LET_GO
        kinds.setdefault(kind, []).append(name)
    newest = now[-1].tests
    uncollected = newest.uncollected if newest else []
    was_red = bool(before) and not any(run.ok for run in before)
    recovered = was_red and all(run.ok for run in now)
    return Comparison(kinds, uncollected, recovered=recovered)


def ran(runs: Runs) -> bool:
    """Whether a suite ran whole: a run reports a test that passed, and no file that
    could not be loaded."""
    for run in runs:
        if run.tests and run.tests.passed and not run.tests.uncollected:
            return True
    return False


def _states(runs: Runs) -> dict[str, set[str]]:
    """What each test was in these runs: passed, failed, skipped, or gone."""
    read = [run.tests for run in runs if run.tests and not run.tests.unread]
    states: dict[str, set[str]] = {}
    for tests in read:
        kinds = {
            "passed": tests.passed,
            "failed": tests.failed,
            "skipped": tests.skipped,
        }
        for state, names in kinds.items():
            for name in names:
                states.setdefault(name, set()).add(state)
    for tests in read:
        for name in states.keys() - set(tests.names):
            states[name].add("gone")
    return states


def with_tests(result: CheckResult, tests: SingleTests) -> CheckResult:
    """The result of a check with what it reported of single tests. It is green where it
    ended well, a test passed and none failed."""
    failed = [*tests.failed]
    ok = result.ok and bool(tests.passed) and not failed
    if tests.unread:
        said = f"failed: {tests.unread}" if result.ok else ""
        tail = f"{tests.unread}\n{result.tail}".strip()
        return replace(result, ok=False, tests=tests, said=said, tail=tail)
    parts = []
    for names, words in ((tests.passed, "passed"), (tests.skipped, "skipped")):
        if names:
            parts.append(f"{len(names)} {words}")
    if failed:
        parts.append(f"{len(failed)} failed: {text.few(failed)}")
    said = ", ".join(parts)
    if result.timed_out:
        said = ""
    elif not failed and not result.ok:
        said = f"failed with exit {result.exit}, and no test failed: {said}"
    elif not failed and not tests.passed:
        said = f"failed: no test passed, {said}"
    tail = _messages(tests, failed) or result.tail
    return replace(result, ok=ok, tests=tests, said=said, tail=tail)


def judged(
    result: CheckResult, change: Comparison, files: Sequence[str] = ()
) -> CheckResult:
    """The result of a plan's check as its single tests decide: red where one of them
    was green before; green where all that fails did so before. `files` are what an
    `allow` could name that lets tests go."""
    tests = result.tests or SingleTests()
    parts = []
    for kind, words in _WORDS.items():
        names = change.names(kind)
        if names:
            parts.append(f"{len(names)} {words}: {text.few(names)}")
        if names and kind is Kind.GONE and files and not change.uncollected:
            allow = json.dumps([*files][:5])
            parts.append(f'a task that removes tests says so: "allow": {allow}')
    old = change.names(Kind.OLD)
    if old:
        parts.append(text.count(len(old), "old failure"))
    if change.breaks:
        said = f"failed: {'; '.join(parts)}"
        tail = f"{said}\n\n{_messages(tests, change.names(Kind.FAILED))}".strip()
        return replace(result, ok=False, said=said, tail=tail, tests=None)
    if result.is_sound and tests.passed:
        said = "; ".join([f"{len(tests.passed)} passed", *parts])
        return replace(result, ok=True, said=said, tests=None)
    return replace(result, tests=None)


def _messages(tests: SingleTests, names: Sequence[str]) -> str:
    """What the first of these tests say of their failure."""
    told = []
    for name in names:
        if tests.failed.get(name):
            told.append(f"{name}:\n{tests.failed[name]}")
    return "\n\n".join(told[:_TOLD])
