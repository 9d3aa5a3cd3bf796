"""The stages of an attempt, each made from the one before: Begun, Worked, Candidate,
Examined. None of them changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from _ralph.agents.cli import Agent
from _ralph.checks.hooks import Message
from _ralph.checks.verdict import Decision
from _ralph.model import (
    AgentResult,
    CheckResult,
    Conflict,
    Judgement,
    Paths,
    Share,
    Spent,
    Task,
    Verdict,
    spent_on,
)
from _ralph.state.history import parse_handoff
from _ralph.state.layout import log_name
from _ralph.state.records import AttemptEnded


@dataclass(frozen=True)
class Begun:
    """An attempt that was claimed by its `start` record, and what must be known before
    its agent is paid."""

    task: Task
    agent: Agent
    number: int  # which of the task's attempts it is
    iteration: int
    id: str  # random, and what it is an attempt at
    worker: int  # the number of its loop, and of the workspace
    share: Share  # what it may spend
    base: str  # the tip of the branch
    left: str = ""  # the tree of unfinished work on that tip
    conflict: Conflict = field(default_factory=Conflict)  # what stands in that tree
    clean: bool = False  # it begins without the work of earlier attempts
    earlier: str = ""  # the ref of that work
    red: Sequence[str] = ()  # the commands of its checks that are red before the work
    failing: Sequence[str] = ()  # the single tests that are, of each check
    notices: Sequence[str] = ()

    @property
    def name(self) -> str:
        """What its files in the folder of logs are called."""
        return log_name(self.iteration, self.task.id)

    @property
    def headline(self) -> str:
        """How its records are headed in the log."""
        return f"iteration {self.iteration} | {self.task.id} {self.task.title}"

    def ended(self, verdict: Verdict, reason: str) -> AttemptEnded:
        """Its verdict record, with nothing but what every attempt has."""
        return AttemptEnded(
            iteration=self.iteration,
            attempt=self.number,
            task=self.task.id,
            title=self.task.title,
            command=self.agent.command,
            agent=self.agent.name,
            verdict=verdict,
            reason=reason,
        )

    def variables(self, paths: Paths) -> dict[str, str]:
        """Its environment variables, in its workspace and in the clean room."""
        task = self.task.id.replace("\0", "").encode("utf-8", "replace").decode()
        return {
            "RALPH_TASK_ID": task,
            "RALPH_ATTEMPT": str(self.number),
            "RALPH_HANDOFF": str(paths.handoff(self.worker)),
        }


@dataclass(frozen=True)
class Worked:
    """What an agent left in its workspace: `left` is the tree of all of it, `tree` the
    same with what is protected as before."""

    begun: Begun
    result: AgentResult
    left: str = ""
    tree: str = ""
    changed: Sequence[str] = ()  # names of files
    restored: Sequence[str] = ()  # lines: what was put back, or left out
    protected: Sequence[str] = ()  # of that, what `allow` could let in
    naming: Sequence[str] = ()  # lines: what would be green on this machine alone
    notices: Sequence[str] = ()
    handoff: str = ""  # its handoff file
    by_person: bool = False  # it was cut off because a person stopped the run


@dataclass(frozen=True)
class Candidate:
    """The work on the tip of the branch, as a commit with this message; the tip itself,
    without one, where nothing was changed. With a `decision`, it needs no
    examination."""

    worked: Worked
    tip: str
    commit: str
    decision: Decision | None = None
    parked: str = ""  # the ref of work that cannot go on
    message: Message | None = None

    @property
    def changes_tree(self) -> bool:
        """Whether its files differ from those of the commit that it is made on."""
        return self.commit != self.tip


@dataclass(frozen=True)
class Examined:
    """What hooks, checks and the judge say of a candidate. `commit` is what the hooks
    made of it."""

    candidate: Candidate
    commit: str
    decision: Decision
    result: AgentResult
    checks: Sequence[CheckResult] = ()
    tests: Sequence[str] = ()  # those that it changed
    judgement: Judgement | None = None
    notices: Sequence[str] = ()

    @property
    def worked(self) -> Worked:
        return self.candidate.worked

    @property
    def begun(self) -> Begun:
        return self.candidate.worked.begun

    @property
    def passed(self) -> bool:
        return self.decision.verdict is Verdict.PASSED

    @property
    def binding_first(self) -> list[CheckResult]:
        """What the checks say; what is red beside it, and not why it failed, last."""
        beside = self.decision.beside
        return sorted(self.checks, key=lambda check: check.name in beside)

    @property
    def spent(self) -> Spent:
        """What its agent, its checks and its judge took."""
        total = spent_on([self.result], self.checks)
        if self.judgement:
            total.add(self.judgement)
        return total

    @property
    def handoff(self) -> Mapping[str, str]:
        """The parts of the handoff that count, by their labels."""
        return parse_handoff(self.worked.handoff)
