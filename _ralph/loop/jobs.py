"""What goes between the loop and its workers: an attempt, the jobs that it consists of,
and their results."""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from _ralph import text
from _ralph.agents.registry import Agent
from _ralph.loop.suite import Change
from _ralph.model import (
    AgentResult,
    Check,
    CheckResult,
    Judgement,
    Outcome,
    Paths,
    Share,
    Spent,
    Task,
    Verdict,
    Work,
    spent_on,
)  # fmt: skip
from _ralph.state.layout import log_name


@dataclass
class Attempt(Work):
    """One attempt at one task, from its `start` record to its verdict."""

    task: Task
    number: int
    iteration: int
    agent: Agent
    worker: int = 1
    id: str = ""  # random, and what it is an attempt at
    share: Share = field(default_factory=Share)  # what it may spend
    clean: bool = False  # it began without the work of earlier attempts
    earlier: str = ""  # the ref of that work
    cannot_pass: str = ""  # why no work of any agent could
    room: int = 0  # the clean room that it has
    noticed: list[str] = field(default_factory=list)  # before it was a candidate
    refused: str = ""  # why commit hooks let no message of ralph's pass
    recent: list[str] = field(default_factory=list)  # the last commits when it began
    tree: str = ""  # what the agent left, with all that is protected as before
    protected: list[str] = field(
        default_factory=list
    )  # put back, and `allow` could let it in
    result: AgentResult = field(
        default_factory=lambda: AgentResult(Outcome.INTERRUPTED)
    )
    checks: list[CheckResult] = field(default_factory=list)
    verdict: Verdict = Verdict.INTERRUPTED
    judgement: Judgement | None = None
    ignored: list[str] = field(
        default_factory=list
    )  # made in the workspace, and git ignores it
    began: float = 0.0  # when its agent started
    said: str = ""  # its handoff file
    changed: list[str] = field(default_factory=list)  # the files of the candidate
    changes: str = ""  # how many, and how many lines
    naming: list[str] = field(
        default_factory=list
    )  # files that name a checkout of ralph's
    suites: dict[str, Change] = field(
        default_factory=dict
    )  # how single tests changed, by their check
    ran_at: dict[str, str] = field(
        default_factory=dict
    )  # the ancestor where a check's tests ran whole

    def begin_candidate(self, tip: str) -> None:
        """Forget what was said of an earlier candidate: this one is made on the commit
        `tip`."""
        self.tip = self.commit = tip
        self.checks, self.naming, self.notices = [], [], [*self.noticed]
        self.suites, self.ran_at, self.refused = {}, {}, ""

    @property
    def passed(self) -> bool:
        return self.verdict is Verdict.PASSED

    @property
    def changes_tree(self) -> bool:
        """Whether the candidate's files differ from those of the commit that it is made
        on."""
        return self.commit != self.tip

    @property
    def left_out(self) -> str:
        """What the agent changed that is no part of the work, and the `allow` that lets
        in what can be."""
        names = json.dumps(self.protected[:5])
        allow = (
            f'; a task that has to change it says so: "allow": {names}'
            if self.protected
            else ""
        )
        return f"{text.few(self.restored)}{allow}" if self.restored else ""

    @property
    def command(self) -> str:
        """The agent that works it, as a person named it."""
        return self.agent.command

    @property
    def spent(self) -> Spent:
        """What its agent, its checks and its judge took."""
        total = spent_on([self.result], self.checks)
        if self.judgement:
            total.add(self.judgement)
        return total

    @property
    def handoff_text(self) -> str:
        """Its handoff as it was written: the file, else a <handoff> block in the last
        message, else where it left off."""
        if self.said.strip():
            return self.said
        _, begun, block = self.result.text[-65536:].rpartition("<handoff>")
        if begun and "</handoff>" in block:
            return block.partition("</handoff>")[0]
        red = [check.name for check in self.checks if not check.ok]
        return f"next step: make this check green: {red[0]}" if red else ""

    def variables(self, paths: Paths) -> dict[str, str]:
        """Its environment variables, in its workspace and in the clean room."""
        return {
            "RALPH_TASK_ID": self.task.id.replace("\0", "")
            .encode("utf-8", "replace")
            .decode(),
            "RALPH_ATTEMPT": str(self.number),
            "RALPH_HANDOFF": str(paths.handoff(self.worker)),
        }

    @property
    def name(self) -> str:
        """What its files in the folder of logs are called."""
        return log_name(self.iteration, self.task.id)


@dataclass(kw_only=True)
class Worked:
    """The result of an agent at work: what it left, by the names of an `Attempt`."""

    result: AgentResult
    left: str = ""
    tree: str = ""
    changed: list[str] = field(default_factory=list)
    changes: str = ""
    restored: list[str] = field(default_factory=list)
    protected: list[str] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    said: str = ""
    began: float = 0.0


@dataclass(kw_only=True)
class CheckJob:
    """Checks to be run on a commit in a clean room."""

    commit: str
    checks: list[Check]
    name: str  # what their logs are called
    room: int = 1  # its number
    label: str = ""  # stands before what is shown of them
    anew: bool = False  # in a room made anew, which then is the clean room
    landing: bool = False  # in a checkout that is removed afterwards
    env: dict[str, str] = field(default_factory=dict)  # added to their environment
    before: str = ""  # what the commit was before commit hooks rewrote it
    changed: list[str] = field(
        default_factory=list
    )  # the files that the commit changes
    again: bool = False  # run them, whatever is known of these files
    known: list[str] | None = (
        None  # commands that need not run where the room holds these files
    )


@dataclass(kw_only=True)
class Checked:
    """What checks, or commit hooks, say of `commit`: for hooks it is the one that they
    made. `refused` is why they would let no message of ralph's pass; `naming` are files
    that name a checkout of ralph's, for which no check ran: what follows the path would
    be green on this machine alone."""

    checks: list[CheckResult] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    naming: list[str] = field(default_factory=list)
    commit: str = ""
    refused: str = ""

    @property
    def red(self) -> list[CheckResult]:
        return [check for check in self.checks if not check.ok]
