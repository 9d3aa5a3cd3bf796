"""Suites: what the single tests of a check say of a commit, measured by one before it.
What was green there stays green; what failed there is an old failure, which blocks
nobody."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from _ralph import text
from _ralph.model import CheckResult, SingleTests

Runs = Sequence[CheckResult]
"""The results of one check on the same files."""
_TOLD = 2
"""Failures of which the next prompt has the own message, whole."""


@dataclass(frozen=True)
class Change:
    """How the tests of a check differ between two commits. `failed` (with what they
    say), `skipped` and `gone` were green before, or all of the suite was. `old` failed
    before, too; `new` fail, and did not run before, where the suite was red: it may not
    have run whole. `turned` failed before and pass now. `flaky` were not the same in
    two runs on the same files. `let_go` is what is gone and may be; `files` are those
    that the work changed, for what is gone and may not. `silent` says that nothing is
    reported of what was green; `recovered`, that the check failed as a whole before,
    passes now, without a test dropped for it."""

    failed: Mapping[str, str] = field(default_factory=dict)
    skipped: Sequence[str] = ()
    gone: Sequence[str] = ()
    old: Sequence[str] = ()
    new: Sequence[str] = ()
    turned: Sequence[str] = ()
    flaky: Sequence[str] = ()
    let_go: Sequence[str] = ()
    files: Sequence[str] = ()
    silent: bool = False
    recovered: bool = False

    @property
    def breaks(self) -> bool:
        """Whether a test that was green is not so any more."""
        return bool(self.failed or self.skipped or self.gone)

    def __str__(self) -> str:
        kinds = {
            "newly red": self.failed,
            "newly skipped": self.skipped,
            "gone": self.gone,
        }
        parts = [
            f"{len(names)} {kind}: {text.few([*names])}"
            for kind, names in kinds.items()
            if names
        ]
        if self.gone and self.files:
            parts.append(
                f'a task that removes tests says so: "allow": {json.dumps(self.files[:5])}'
            )
        if self.new:
            parts.append(f"{len(self.new)} new and red: {text.few(self.new)}")
        if self.old:
            parts.append(text.count(len(self.old), "old failure"))
        return "; ".join(parts)


def compare(
    before: Runs,
    now: Runs,
    earlier: Runs = (),
    *,
    let_go: bool = False,
    files: Sequence[str] = (),
) -> Change:
    """How the tests of a check changed from the runs `before` to those of `now`. A test
    was green if it passed in each run before, and is so if it passes in any. Of those
    that did not run before, the runs on an `earlier` commit say what was green, and
    then only failing binds. A suite that was green as a whole stays so: what is new
    must not fail, either. `let_go` says that tests may be gone, `files` which the work
    changed."""
    was, then, states = _states(before), _states(earlier), _states(now)
    green = [name for name, seen in was.items() if seen == {"passed"}]
    lost = {name: states.get(name, {"gone"}) for name in green}
    lost |= {
        name: states[name]
        for name, seen in then.items()
        if seen == {"passed"} and name not in was and "failed" in states.get(name, ())
    }
    lost = {name: seen for name, seen in lost.items() if "passed" not in seen}
    failing = [
        name
        for name, seen in states.items()
        if "failed" in seen and "passed" not in seen
    ]
    known = was.keys() | then.keys()
    new = [name for name in failing if name not in known]
    if before and all(run.ok for run in before):  # all of it was green, and stays so
        lost |= {name: states[name] for name in new}
        new = []
    gone = [name for name, seen in lost.items() if seen == {"gone"} and states]
    messages = {
        name: said
        for run in now
        if run.tests
        for name, said in run.tests.failed.items()
    }
    return Change(
        failed={
            name: messages[name] for name, seen in lost.items() if "failed" in seen
        },
        skipped=[
            name
            for name, seen in lost.items()
            if "skipped" in seen and "failed" not in seen
        ],
        gone=[] if let_go else gone,
        old=[name for name in failing if name in known and name not in lost],
        new=new,
        turned=[
            name
            for name, seen in was.items()
            if seen == {"failed"} and states.get(name) == {"passed"}
        ],
        flaky=[
            name
            for name in was | states
            if max(len(was.get(name, ())), len(states.get(name, ()))) > 1
        ],
        let_go=gone if let_go else [],
        files=files,
        silent=bool(green and not states and _states(before[-1:])),
        recovered=_recovered(before, now),
    )


def _recovered(before: Runs, now: Runs) -> bool:
    """Whether all of a check failed in each run before and passes in each now; a test
    that could not be imported has another name once it can."""
    red, green = (
        before and not any(run.ok for run in before),
        now and all(run.ok for run in now),
    )
    return bool(red and green and not undone(before, now))


def undone(before: Runs, now: Runs) -> list[str]:
    """The tests of a check that failed before the work and are now skipped; or gone,
    where none passes that did not before."""
    was, states = _states(before), _states(now)
    failed = [name for name, seen in was.items() if "failed" in seen]
    if skipped := [name for name in failed if states.get(name) == {"skipped"}]:
        return skipped
    if any(
        "passed" in seen and was.get(name) != {"passed"}
        for name, seen in states.items()
    ):
        return []
    return [name for name in failed if name not in states]


def ran(runs: Runs) -> set[str]:
    """The tests that these runs report."""
    return {*_states(runs)}


def _states(runs: Runs) -> dict[str, set[str]]:
    """What each test was in these runs: passed, failed, skipped, or gone."""
    read = [run.tests for run in runs if run.tests and not run.tests.unread]
    states: dict[str, set[str]] = {}
    for tests in read:
        for state, names in (
            ("passed", tests.passed),
            ("failed", tests.failed),
            ("skipped", tests.skipped),
        ):
            for name in names:
                states.setdefault(name, set()).add(state)
    if len(read) > 1:
        for tests in read:
            for name in states.keys() - {*tests.passed, *tests.failed, *tests.skipped}:
                states[name].add("gone")
    return states


def with_tests(result: CheckResult, tests: SingleTests) -> CheckResult:
    """The result of a check with what it reported of single tests. It is green where it
    ended well, a test passed and none failed."""
    ended_well, kinds = result.ok, ("passed", "failed", "skipped")
    counts = ", ".join(
        f"{number} {kind}" for kind in kinds if (number := len(getattr(tests, kind)))
    )
    result = replace(
        result, ok=ended_well and bool(tests.passed) and not tests.failed, tests=tests
    )
    if tests.unread and ended_well:
        return replace(result, said=f"failed: {tests.unread}")
    if tests.unread or result.timed_out:
        return replace(
            result, tail="\n".join(filter(None, [tests.unread, result.tail]))
        )
    if ended_well and not (tests.passed or tests.failed):
        return replace(result, said=f"failed: no test passed, {counts}")
    if not (ended_well or tests.failed):
        return replace(
            result, said=f"failed with exit {result.exit}, and no test failed: {counts}"
        )
    return replace(result, said=counts)


def judged(result: CheckResult, change: Change) -> CheckResult:
    """The result of a check as its single tests decide: red where one of them was green
    before; green where all that fails did so before."""
    if change.breaks:
        messages = [f"{name}:\n{said}" for name, said in change.failed.items() if said]
        tail = "\n\n".join([str(change), *messages[:_TOLD]])
        return replace(
            result, ok=False, said=f"failed: {change}", tail=tail, tests=None
        )
    if result.is_sound and result.tests:
        words = "; ".join(
            [f"{len(result.tests.passed)} passed", *filter(None, [str(change)])]
        )
        return replace(result, ok=True, said=words, tests=None)
    return replace(result, tests=None)
