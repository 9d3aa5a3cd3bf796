"""The verdict: what binds, what is evidence of work, and when a task is blocked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from _ralph.checks.evidence import Evidence
from _ralph.checks.judge import Answer
from _ralph.model import AgentResult, Check, Verdict

INTERRUPTIONS = 3
"""Interrupted attempts in a row that block a task: it may never fit into the time it
gets."""


@dataclass(frozen=True, kw_only=True)
class Case:
    """All that a verdict rests on. `changed` says that the candidate's files differ
    from those of the commit that it is made on. `program` are the checks that must have
    run, `evidence` what is known of them and of commit hooks. `naming` are files that
    name a place of ralph's. `left_out` is what was changed and is no part of the work,
    `protected` those of it that an `allow` could let in; `ignored` what was made and git
    ignores. `judge` says that a judge must agree to a pass."""

    result: AgentResult
    changed: bool
    program: Sequence[Check]
    evidence: Sequence[Evidence]
    naming: Sequence[str] = ()
    left_out: Sequence[str] = ()
    protected: Sequence[str] = ()
    ignored: Sequence[str] = ()
    judge: bool = False


@dataclass(frozen=True)
class Decision:
    """What ralph says of an attempt. `weak`: nothing turned green for it. `beside`: the
    plan's checks that are red and do not bind. `flaky`: checks and tests that were red
    and green on the same files. `denied`: the agent was denied what it needed, and did
    nothing."""

    verdict: Verdict
    reason: str = ""
    weak: bool = False
    beside: list[str] = field(default_factory=list)
    flaky: list[str] = field(default_factory=list)
    denied: bool = False
    notices: list[str] = field(default_factory=list)


def kept_away(result: AgentResult, changed: bool = False) -> Verdict | None:
    """The verdict if an agent of any role could not do its part, which is no failure. A
    timeout without any output or change is a provider that did not answer."""
    raise NotImplementedError


def decide(case: Case) -> Decision:
    """The verdict on an attempt, before its judge."""
    raise NotImplementedError


def after_judge(decision: Decision, result: AgentResult, answer: Answer) -> Decision:
    """The verdict on an attempt that passes by `decision`, once its judge ended with
    `result` and said `answer`."""
    raise NotImplementedError


def reason_to_block(
    verdict: Verdict,
    reason: str,
    *,
    never: str = "",
    spent: str = "",
    interruptions: int = 0,
    asks: str = "",
    no_op_before: bool = False,
    attempts: int = 1,
    most: int = 3,
) -> str:
    """Why an attempt with this verdict and reason blocks its task, or nothing.

    `never` is why no work of any agent could pass. `spent` is the task's own limit that
    is reached, as `limits.spent_by` says. `interruptions` counts them in a row, with
    this one; 0, where a person stopped it or its agent had not started. `asks` is a
    question that it asked in the attempt before, too. `no_op_before` says that the
    attempt before was one. `attempts` are those that counted since it was opened, with
    this one, of at `most`.
    """
    raise NotImplementedError
