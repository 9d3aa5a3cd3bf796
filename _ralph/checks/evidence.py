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

FURTHEST = 10
"""Ancestors of the tip on which a suite is looked for that did not run whole there."""
AGAIN = "once more: "
"""What stands before checks that are shown, where they run again."""


RunChecks = Callable[[str, Sequence[Check], str, bool], list[CheckResult]]
"""Runs checks on a commit in the clean room, in order, and remembers what they said, so
that `Question.runs` knows it; given the commit, the checks, what stands before them
where they are shown, and whether to run them again. Else only those run that have no
result yet. What it returns: the results of the checks, remembered ones marked as
recalled; and what else is red in the room, such as `setup`, then alone."""


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
    runs: Callable[[str, str], Sequence[CheckResult]]  # `Results.runs`
    ancestors: Callable[[str, int], Sequence[str]]  # `Branch.ancestors`


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
        """Whether it, or a single test of it, was known to be green and is still
        looked at."""
        if self.tests and self.tests.names(Kind.GREEN):
            return True
        return self.own or self.base is True

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


@dataclass(frozen=True)
class Step:
    """Checks to run, where, and why, as it is shown."""

    commit: str
    checks: tuple[Check, ...]
    label: str
    again: bool = True


def gather(question: Question) -> list[Evidence]:
    """The evidence for each check of the program, in order; or what was found, if
    `setup` is red or git did not end. Where a check did not run, nothing runs again."""
    found = question.run(question.candidate, question.program, "", False)
    results = {result.command: result for result in found}
    commands = {check.command for check in question.program}
    if results.keys() - commands:
        return [Evidence(result) for result in found]
    if commands - results.keys():  # it was cut short, and is red
        return [_measured(question, check, results) for check in question.program]
    if question.candidate != question.tip and question.plan:
        question.run(question.tip, question.plan, BEFORE, False)
    steps: list[Step] = []
    while True:
        evidence = [_measured(question, check, results) for check in question.program]
        step = next_step(question, evidence, steps)
        if step is None:
            return evidence
        steps.append(step)
        again = question.run(step.commit, step.checks, step.label, step.again)
        if step.commit == question.candidate:
            # what is green in either run is green
            for result in again:
                first = results.get(result.command)
                if first and not first.ok:
                    results[result.command] = result


def next_step(
    question: Question, evidence: Sequence[Evidence], steps: Sequence[Step]
) -> Step | None:
    """What must run before the evidence can be judged, after these steps, and why.

    An ancestor of the tip, where a suite did not run whole there. The candidate once
    more, where it is red by single tests alone, or by anything and the task would be
    given up; then the tip, for tests that are gone, or for all that is left of the
    plan, as what is red there now does not bind. The tip also for what turned green, if
    it must speak for an agent that did not end well.
    """
    red = [one for one in evidence if one.red]
    by_tests = all(one.tests and one.tests.breaks for one in red)
    if by_tests:  # else it is red whatever an ancestor says
        back = _further_back(question, evidence, steps)
        if back:
            return back
    if not red:
        turned = [one for one in evidence if one.turned]
        if turned and question.outcome is not Outcome.DONE:
            return _on_tip(question, turned, steps)
        return None
    counts = question.outcome in (Outcome.DONE, Outcome.FAILED, Outcome.TIMED_OUT)
    gives_up = question.gives_up and counts
    if not (by_tests or gives_up):
        return None
    if not any(step.commit == question.candidate for step in steps):
        commands = [one.result.command for one in red]
        checks = up_to(question.program, commands)
        return Step(question.candidate, checks, AGAIN)
    left = []
    for one in red:
        gone = one.tests and one.tests.names(Kind.GONE)
        if gone or (gives_up and not one.own):
            left.append(one)
    return _on_tip(question, left, steps)


def _on_tip(
    question: Question, evidence: Sequence[Evidence], steps: Sequence[Step]
) -> Step | None:
    """The program up to these checks on the tip, once."""
    if question.candidate == question.tip or not evidence:
        return None
    if any(step.commit == question.tip for step in steps):
        return None
    commands = [one.result.command for one in evidence]
    return Step(question.tip, up_to(question.program, commands), BEFORE)


def _further_back(
    question: Question, evidence: Sequence[Evidence], steps: Sequence[Step]
) -> Step | None:
    """The next ancestor of the tip that must say what was green: for a suite that did
    not run whole on the tip, and reports something now."""
    for one in evidence:
        command = one.result.command
        if one.tests is None or not one.tests.kinds:
            continue
        if ran(question.runs(question.tip, command)):
            continue
        checks = up_to(question.program, [command])
        for commit in question.ancestors(question.tip, FURTHEST):
            runs = question.runs(commit, command)
            step = Step(commit, checks, f"at {commit[:12]}: ", again=False)
            if ran(runs):
                break
            if not runs and step not in steps:
                return step
    return None


def _measured(
    question: Question, check: Check, results: Mapping[str, CheckResult]
) -> Evidence:
    """What is known of a check, by all its runs on the candidate, on the tip and before
    the work."""
    own = check.command in question.own
    result = results.get(check.command)
    if result is None:
        # an examination that was cut short is never green
        result = CheckResult(check.name, check.command, ok=False, said="did not run")
        return Evidence(result, own)
    on_tip = question.runs(question.tip, check.command)
    now = question.runs(question.candidate, check.command)
    let_go, files = _removal(question)
    if check.results and not own:
        base = on_tip[-1].is_sound if on_tip else None
        earlier = [] if ran(on_tip) else _earlier(question, check.command)
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


def _earlier(question: Question, command: str) -> Sequence[CheckResult]:
    """The runs of a suite on the newest ancestor of the tip where it ran whole."""
    for commit in question.ancestors(question.tip, FURTHEST):
        runs = question.runs(commit, command)
        if ran(runs):
            return runs
    return []


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
