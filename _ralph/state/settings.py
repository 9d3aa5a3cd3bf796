"""What a run may do: the plan as people last saved it, the command line, the limits."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from _ralph.files import resource
from _ralph.model import Paths, Plan
from _ralph.state.limits import Limits, resolve
from _ralph.state.options import Options, admit

DEFAULT_COMMIT = "{{ task.id }}: {{ task.title }}"


@dataclass(frozen=True)
class Settings:
    """The plan, with the checks of the command line, and what goes with it."""

    options: Options
    paths: Paths
    plan: Plan
    limits: Limits

    @property
    def jobs(self) -> int:
        """How many tasks may be worked side by side."""
        return 1 if self.options.once else self.limits.jobs

    @property
    def wrap(self) -> tuple[str, str]:
        """The words before every command in a place, and those that end what it left;
        empty without."""
        named = self.options.wrap or self.plan.settings.get("wrap") or ""
        if isinstance(named, dict):
            return named["run"], named.get("end", "")
        return str(named), ""

    @property
    def permissions(self) -> str:
        """What agents may do: `edit`, or `full`."""
        return "full" if self.options.full_permissions else "edit"

    @property
    def waits(self) -> bool:
        """Whether it waits at all for a provider, or for setup."""
        return self.limits.max_wait > 0 and not self.options.once

    @property
    def prompt(self) -> Path:
        """The template of prompts: the person's own, if there is one."""
        named = self.options.prompt or self.plan.settings.get("prompt")
        if named:
            return self.paths.prd.parent / named
        return resource("templates/prompt.md")

    @property
    def commit(self) -> str:
        """The template of commit messages."""
        return str(self.plan.settings.get("commit") or DEFAULT_COMMIT)

    def with_plan(self, saved: Plan) -> Settings:
        """The settings with a plan that somebody saved. BadInput if no run could use
        it. What a run began with stays: its branch, its end and its number of jobs."""
        plan = admit(saved, self.paths, self.options)
        limits = resolve(plan.settings, self.options.limits)
        return replace(
            self,
            plan=replace(plan, branch=self.plan.branch),
            limits=limits._replace(until=self.limits.until, jobs=self.limits.jobs),
        )
