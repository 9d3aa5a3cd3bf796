"""The settings of a run: prd.json as people and ralph edit it meanwhile, and what it
and the command line allow together."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _ralph import files
from _ralph.errors import BadInput
from _ralph.files import resource
from _ralph.loop.options import Options, admit
from _ralph.model import Paths, Plan, Task
from _ralph.state import edit, prd
from _ralph.state.limits import Limits, resolve

DEFAULT_COMMIT = "{{ task.id }}: {{ task.title }}"
PATIENCE = 2.0
"""Seconds that prd.json may be half saved before ralph says that it cannot be read."""
SetField = Callable[[Plan, list[Task], Any], str]


@dataclass(frozen=True)
class Change:
    """A field of tasks in prd.json that is to be set."""

    set_field: SetField
    tasks: list[Task]
    value: bool | str

    def of(self, plan: Plan) -> str:
        """The text of `plan` with it."""
        return self.set_field(plan, self.tasks, self.value)


@dataclass
class Settings:
    """`plan` is the last one that could be read, with the checks of the command line;
    `trouble` says why it cannot be read now, and `unmade` are the edits that it lacks.
    `notices` are lines for people."""

    options: Options
    paths: Paths
    plan: Plan
    limits: Limits
    trouble: str = ""
    unmade: list[Change] = field(default_factory=list)
    notices: list[str] = field(default_factory=list)

    @property
    def jobs(self) -> int:
        """How many tasks may be worked side by side."""
        return 1 if self.options.once else self.limits.jobs

    @property
    def rooms(self) -> int:
        """How many candidates may be checked side by side: more than there are workers
        never are."""
        return min(self.limits.rooms, self.jobs)

    @property
    def permissions(self) -> str:
        """What agents may do; inside ralph's own sandbox, all that it allows."""
        return (
            "sandbox"
            if self.options.sandbox
            else "full"
            if self.options.full_permissions
            else "edit"
        )

    @property
    def wrap(self) -> tuple[str, str]:
        """The words before every command in a place, and those that end what it left;
        empty without."""
        named = self.options.wrap or self.plan.settings.get("wrap") or ""
        return (
            (named["run"], named.get("end", ""))
            if isinstance(named, dict)
            else (str(named), "")
        )

    @property
    def prompt(self) -> Path:
        """The template of prompts: the person's own, if there is one."""
        named = self.options.prompt or self.plan.settings.get("prompt")
        return (
            self.paths.prd.parent / named if named else resource("templates/prompt.md")
        )

    @property
    def commit(self) -> str:
        """The template of commit messages."""
        return str(self.plan.settings.get("commit") or DEFAULT_COMMIT)

    @property
    def notify_on(self) -> Sequence[str]:
        """The events of which --notify's command is told."""
        named = self.options.notify_on or self.plan.settings.get("notifyOn")
        return named or ("blocked", "waiting", "stopped")

    @property
    def unmarked(self) -> list[str]:
        """The keys of the tasks whose marks prd.json lacks, as it could not be
        written."""
        return [task.key for change in self.unmade for task in change.tasks]

    def read(self, pause: Callable[[float], bool]) -> None:
        """Read prd.json if it changed. While it cannot be read, `trouble` says why, and
        nothing new starts. `pause` waits some seconds, and is false when there is no
        time to wait."""
        end = time.monotonic() + PATIENCE
        while True:
            try:
                saved = files.read_regular(Path(os.path.realpath(self.paths.prd)))
                if saved != self.plan.text.encode():
                    self._take_over(prd.load(self.paths.prd))
                self.trouble = ""
                self._make_edits()
                return
            except BadInput as error:
                if self.trouble or time.monotonic() > end or not pause(0.2):
                    self._wait(str(error))
                    return

    def edit(
        self, set_field: SetField, tasks: Task | Sequence[Task], value: bool | str
    ) -> None:
        """Set a field of tasks in prd.json, as `edit.set_passed`; if it cannot be read,
        as soon as it can."""
        change = Change(
            set_field, [tasks] if isinstance(tasks, Task) else list(tasks), value
        )
        self.unmade.append(change)
        try:
            self._make_edits()
        except BadInput as error:
            self._wait(str(error))
            changed = prd.read(change.of(self.plan), self.plan.path)
            self._use(replace(changed, checks=self.plan.checks))

    def _make_edits(self) -> None:
        """Make the changes that prd.json lacks. BadInput if it cannot be read."""
        while self.unmade:
            with edit.lock(self.paths.private):
                new = edit.apply(self.plan, self.unmade[0].of)
            ours = self.unmade.pop(0).of(self.plan)
            if new.text == ours:
                self._use(replace(new, checks=self.plan.checks))
            else:  # somebody saved it meanwhile
                self._take_over(new)

    def _wait(self, trouble: str) -> None:
        """Note that prd.json cannot be read."""
        if trouble != self.trouble:
            self.trouble = trouble
            self.notices.append(f"! {trouble}; nothing new starts until it can be read")

    def _take_over(self, plan: Plan) -> None:
        """Use a plan that somebody saved. BadInput if no run could use it."""
        plan = admit(plan, self.paths, self.options)
        if plan.branch != self.plan.branch:
            self.notices.append(
                "! branchName has changed: that is another plan, from the next run on"
            )
        limits = resolve(plan.settings, self.options.limits)
        self.limits = replace(
            limits,
            until=self.limits.until,
            jobs=self.limits.jobs,
            rooms=self.limits.rooms,
        )
        self._use(plan)

    def _use(self, plan: Plan) -> None:
        self.plan = replace(plan, branch=self.plan.branch)
