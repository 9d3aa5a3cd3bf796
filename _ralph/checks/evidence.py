"""From checks to evidence: what the room says of a candidate, what runs again and why,
and one record for each check, which the verdict rests on."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Protocol

from _ralph.checks.results import Own
from _ralph.checks.suite import Comparison
from _ralph.model import Check, CheckResult, Outcome

FURTHEST = 10
"""Ancestors of the tip on which a suite is looked for that did not run whole there."""
BEFORE = "before the work: "
"""Stands before what is shown of checks on the tip."""
AGAIN = "once more: "


class RunChecks(Protocol):
    """Runs checks on a commit in the clean room, in order, and remembers what they
    said, so that `Question.runs` knows it. Without `again`, only those run that have no
    result yet. What it returns: the results of `checks`, remembered ones marked as
    recalled; or a red `setup`, alone."""

    def __call__(
        self, commit: str, checks: Sequence[Check], label: str, again: bool
    ) -> list[CheckResult]: ...


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
    began: Own = Own()
    allow: Sequence[str] = ()
    changed: Sequence[str] = ()  # its files
    tests: Sequence[str] = ()  # those of them that `changed_tests` names
    gives_up: bool = False
    outcome: Outcome = Outcome.DONE  # how the agent ended
    run: RunChecks
    runs: Callable[[str, str], Sequence[CheckResult]]  # `Results.runs`
    ancestors: Callable[[str], Sequence[str]]  # by the first parent, newest first


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


def gather(question: Question) -> list[Evidence]:
    """The evidence for each check of the program, in order; or for a red `setup`
    alone."""
    raise NotImplementedError


def up_to(program: Sequence[Check], commands: Collection[str]) -> list[Check]:
    """The program up to the last of these checks."""
    raise NotImplementedError
