"""From checks to evidence: what the room says of a candidate, what runs again and why,
and one record for each check, which the verdict rests on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from _ralph import text
from _ralph.checks.results import BEFORE, Own
from _ralph.checks.suite import Comparison, Kind, compare, judged, ran
from _ralph.git import patterns
from _ralph.model import Check, CheckResult, Outcome

AGAIN = "once more: "
"""What stands before checks that are shown, where they run again."""


RunChecks = Callable[[str, Sequence[Check], str, bool], list[CheckResult]]
"""Runs checks on a commit in the clean room, in order, and remembers what they said, so
that `Question.runs` knows it; given the commit, the checks, what stands before them
where they are shown, and whether to run them again. Else only those run that have no
result yet. What it returns: the results of the checks, remembered ones marked as
recalled; and what else is red in the room, such as `setup`, then alone."""
Runs = Callable[[str, str], Sequence[CheckResult]]
"""What a check said on a commit each time that it ran there, given both."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of a candidate, and of whom. `program` are the checks that must
    run: the plan's, those of passed tasks that must be kept, the task's own. `plan` are
    those of them whose results on the tip say whether they bind, `own` the commands of
    the task's own. `began` is what its own checks said before its first attempt in this
    run. `gives_up` says that a failure would be the task's last."""

    candidate: str
    tip: str  # the commit that it is made on
    program: Sequence[Check]
    plan: Sequence[Check] = ()
    own: Collection[str] = ()
    began: Own = field(default_factory=Own)
    allow: Sequence[str] = ()
    changed: Sequence[str] = ()  # its files
    tests: Sequence[str] = ()  # those of them that `changed_tests` names
    gives_up: bool = False
    outcome: Outcome = Outcome.DONE  # how the agent ended
    run: RunChecks
    runs: Runs  # `Results.runs`
    ancestors: Callable[[str], Sequence[str]]  # `Branch.ancestors`


@dataclass(frozen=True)
class Evidence:
    """What is known of one check, or of a commit hook. `base` says whether it is green
    on the tip (a plan's check also if it is red by single tests alone), `first` whether
    one of the task's own was so before its first attempt: None, if it did not run
    there. `flaky` says that it was red and green on the same files."""

    result: CheckResult  # on the candidate, as its single tests decide
    own: bool = False
    base: bool | None = None
    first: bool | None = None
    flaky: bool = False
    tests: Comparison | None = None  # where a check of the plan reports them

    @property
    def red(self) -> bool:
        """Whether it is red and binds."""
        return self.binds and not self.result.ok

    @property
    def binds(self) -> bool:
        """Whether it must be green: one of the task's own, one that is green on the
        tip, one of which single tests were, and what nobody knows from there."""
        if self.tests and (self.tests.breaks or self.tests.silent):
            return True
        return self.own or self.base is not False

    @property
    def guards(self) -> bool:
        """Whether it is green, not by chance, or a single test that was green is."""
        if self.tests and self.tests.names(Kind.GREEN):
            return True
        known = self.base is not None and not self.flaky
        return self.result.ok and (self.own or known)

    @property
    def turned(self) -> bool:
        """Whether it is evidence of work: one of the task's own, or a single test, was
        red before it and is green now."""
        if self.tests and self.tests.names(Kind.TURNED):
            return True
        was_red = self.first is False and not self.base
        return self.own and was_red and self.result.ok and not self.flaky

    @property
    def mended(self) -> bool:
        """Whether a check of the plan was red on the tip as a whole, and is green."""
        if self.own or self.flaky or not self.result.ok:
            return False
        recovered = self.tests and self.tests.recovered and not self.tests.undone
        return self.base is False or bool(recovered)


def gather(question: Question) -> list[Evidence]:
    """The evidence for each check of the program, in order; or what was found, if
    `setup` is red."""
    candidate, tip = question.candidate, question.tip
    found = question.run(candidate, question.program, "", False)
    results = {result.command: result for result in found}
    if results.keys() - {check.command for check in question.program}:
        return [Evidence(result) for result in found]
    earlier: dict[str, Sequence[CheckResult]] = {}

    def measured() -> list[Evidence]:
        evidence = []
        for check in question.program:
            before = earlier.get(check.command, ())
            evidence.append(_measured(question, check, results, before))
        return evidence

    if candidate != tip and question.plan:
        question.run(tip, question.plan, BEFORE, False)
    for check in question.plan:
        if check.results and not ran(question.runs(tip, check.command)):
            checks = up_to(question.program, [check.command])
            ancestors = question.ancestors(tip)
            ran_there = earlier_runs(checks, ancestors, question.run, question.runs)
            earlier[check.command] = ran_there
    evidence = measured()

    # Once more: what is red by single tests alone, or by anything and the task would be
    # given up. What is green in either run is green.
    unsure = []
    red = [one for one in evidence if one.red]
    by_tests = all(one.tests and one.tests.breaks for one in red)
    if red and (by_tests or question.gives_up):
        checks = up_to(question.program, [one.result.command for one in red])
        for result in question.run(candidate, checks, AGAIN, True):
            first = results.get(result.command)
            if first and not first.ok:  # else `setup` is red this time
                results[result.command] = result
        evidence = measured()
        red = [one for one in evidence if one.red]
        for one in red:
            gone = one.tests and one.tests.names(Kind.GONE)
            if gone or (question.gives_up and not one.own):
                unsure.append(one.result.command)
    # What turned green must be sure if it is to speak for an agent that did not end well.
    if not red and question.outcome is not Outcome.DONE:
        unsure = [one.result.command for one in evidence if one.turned]
    # On the tip once more: what is red there now does not bind.
    if unsure and candidate != tip:
        question.run(tip, up_to(question.program, unsure), BEFORE, True)
        evidence = measured()
    return evidence


def earlier_runs(
    checks: Sequence[Check], ancestors: Sequence[str], run: RunChecks, runs: Runs
) -> Sequence[CheckResult]:
    """What the last of these checks, a suite that did not run whole on the tip, said on
    the newest ancestor where it did."""
    for commit in ancestors:
        run(commit, checks, f"at {commit[:12]}: ", False)
        found = runs(commit, checks[-1].command)
        if ran(found):
            return found
    return []


def _measured(
    question: Question,
    check: Check,
    results: Mapping[str, CheckResult],
    earlier: Sequence[CheckResult],
) -> Evidence:
    """What is known of a check, by all its runs on the candidate, on the tip, before
    the work and, if it did not run whole on the tip, `earlier`."""
    own = check.command in question.own
    result = results[check.command]
    on_tip = question.runs(question.tip, check.command)
    now = question.runs(question.candidate, check.command)
    let_go, files = _removal(question)
    if check.results and not own:
        base = on_tip[-1].is_sound if on_tip else None
        change = compare(on_tip, now, earlier, let_go=let_go)
        return Evidence(judged(result, change, files), base=base, tests=change)
    base = on_tip[-1].ok if on_tip else None
    at_first: Sequence[CheckResult] = ()
    if own and question.began.commit:
        at_first = question.runs(question.began.commit, check.command)
    flaky = False
    for runs in (at_first, on_tip, now):
        flaky = flaky or len({run.ok for run in runs}) > 1
    left = compare(at_first, now).undone if own and not let_go else []
    if result.ok and left:
        said = f"failed: red before the work, and not run now: {text.few(left)}"
        result = replace(result, ok=False, said=said, tail=said)
    first = question.began.green.get(check.command) if own else None
    return Evidence(replace(result, tests=None), own, base, first, flaky)


def _removal(question: Question) -> tuple[bool, list[str]]:
    """Whether tests may be gone: the work changes what its task allows, and no settings
    of a runner by that; and the files that an `allow` can name for it, tests if it
    changes any."""
    tests = patterns.uncovered_tests([], question.tests)
    settings = set(question.tests) - set(tests)
    files = [name for name in question.changed if name not in settings]
    let_go = bool(patterns.matching(question.allow, files))
    return let_go, tests if question.tests else files


def up_to(program: Sequence[Check], commands: Collection[str]) -> tuple[Check, ...]:
    """The program up to the last of these checks."""
    end = 0
    for number, check in enumerate(program, 1):
        if check.command in commands:
            end = number
    return tuple(program[:end])
