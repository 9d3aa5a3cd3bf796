"""The agents of a plan: who works a task, and when each can be used."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from _ralph.agents import registry
from _ralph.agents.cli import Agent
from _ralph.agents.registry import Clis
from _ralph.model import Task
from _ralph.state import limits, prd
from _ralph.state.history import Unavailable
from _ralph.state.log import Log
from _ralph.state.settings import Settings


@dataclass
class Agents:
    """The agents that the settings name, by the facts of all known ones, and
    what the `log` knows of them."""

    settings: Settings
    clis: Clis
    log: Log

    def commands(self, task: Task | None = None) -> tuple[str, ...]:
        """The agent commands of `task`, one for each failed attempt: those given, else
        its own, else the plan's, else claude."""
        own = task.agents if task else ()
        plan = prd.commands(self.settings.plan.settings.get("agent"))
        return self.settings.options.agent or own or plan or ("claude",)

    def agent(self, task: Task) -> Agent:
        """The agent of the next attempt at `task`: one further for each that failed,
        or the fallback while that one is unavailable."""
        commands = self.commands(task)[: self.log.history.of(task).attempts + 1]
        agent = self.named(commands[-1])
        fallback = self.fallback
        if fallback and self.back_at(fallback) < self.back_at(agent):
            return fallback
        return agent

    def named(self, command: str) -> Agent:
        """The agent of a command, with the permissions of this run. One that cannot be
        kept to editing has all of them behind a prefix, which confines it."""
        agent = registry.find_agent(command, self.clis, self.settings.permissions)
        if self.settings.wrap[0] and agent.permissions not in agent.cli.permissions:
            return replace(agent, permissions="full")
        return agent

    def _role(self, role: str) -> str:
        """The command of a role: the one given, else the plan's; empty without one."""
        given = getattr(self.settings.options, role)
        return given or self.settings.plan.settings.get(role) or ""

    @property
    def fallback(self) -> Agent | None:
        """The agent that works while another one is unavailable, if there is one."""
        command = self._role("fallback")
        return self.named(command) if command else None

    @property
    def judge(self) -> Agent | None:
        """The agent that must agree before a task passes, if there is one."""
        command = self._role("judge")
        return registry.find_agent(command, self.clis, "read") if command else None

    @property
    def planner(self) -> Agent:
        """The agent that writes a plan: the one given, the plan's planner, its agent,
        or claude."""
        command = self._role("planner")
        return registry.find_agent(command or self.commands()[0], self.clis, "read")

    @property
    def needed(self) -> list[Agent]:
        """The agents of all open tasks, each once, the fallback, and the judge."""
        found: dict[str, Agent] = {}
        for task in self.settings.plan.tasks:
            if not task.passed:
                for command in self.commands(task):
                    found[command] = self.named(command)
        if found and self.fallback:
            found[self.fallback.command] = self.fallback
        return [*found.values(), *filter(None, [self.judge])]

    def back_at(self, agent: Agent) -> float:
        """When (unix time) an agent can be used again: 0 is now, NEVER not in this
        run."""
        at = limits.back(self.settings.limits, self.unavailable(agent))
        return at if at > time.time() else 0.0

    def unavailable(self, agent: Agent) -> Unavailable:
        """Why it cannot be used: what was said of it last, or its provider bills extra
        usage."""
        limited = self.log.history.this_run.away.get(agent.command, Unavailable())
        billed = self.log.history.overage.get(agent.name, Unavailable())
        plan = self.settings.plan.settings
        if self.settings.options.allow_overage or plan.get("allowOverage"):
            return limited
        both = (limited, billed)
        return max(both, key=lambda away: limits.back(self.settings.limits, away))
