"""Single tests: what became of those that a check reports, between the commit that the
candidate is made on and the candidate. What was green there stays green; what failed
there is an old failure, which blocks nobody."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

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
    `messages` is what those say that failed, `uncollected` the test files that could
    not be loaded. `silent` says that nothing is reported where something was green;
    `recovered`, that the check failed as a whole in each run before, and passes in each
    run now."""

    kinds: Mapping[Kind, list[str]] = field(default_factory=dict)
    messages: Mapping[str, str] = field(default_factory=dict)
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
    for one in ("failed", "skipped", "passed"):
        if one in now:
            state = one
            break
    if "passed" in before:
        was_green = {"passed": Kind.GREEN, "failed": Kind.FAILED}
        was_green |= {"skipped": Kind.SKIPPED, "gone": Kind.GONE}
        return was_green[state]
    if "failed" in before:
        was_red = {"passed": Kind.TURNED, "failed": Kind.OLD}
        was_red |= {"skipped": Kind.MUTED, "gone": Kind.DROPPED}
        return was_red[state]
    # it did not run on the tip, or was skipped there
    if not before and set(earlier) == {"passed"}:
        was_lost = {"passed": Kind.GREEN, "failed": Kind.FAILED}
        return was_lost.get(state, Kind.LOST)
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
    raise NotImplementedError


def ran(runs: Runs) -> bool:
    """Whether a suite ran whole: a run reports a test that passed, and no file that
    could not be loaded."""
    raise NotImplementedError


def with_tests(result: CheckResult, tests: SingleTests) -> CheckResult:
    """The result of a check with what it reported of single tests. It is green where it
    ended well, a test passed and none failed."""
    raise NotImplementedError


def judged(
    result: CheckResult, change: Comparison, files: Sequence[str] = ()
) -> CheckResult:
    """The result of a plan's check as its single tests decide: red where one of them
    was green before; green where all that fails did so before. `files` are what an
    `allow` could name that lets tests go."""
    raise NotImplementedError
