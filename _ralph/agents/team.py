"""The agents of a plan: who works a task, and when each can be used."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from _ralph.agents import registry
from _ralph.agents.cli import Agent
from _ralph.agents.registry import Clis
from _ralph.model import Task
from _ralph.state import limits, prd
from _ralph.state.history import History, Unavailable
from _ralph.state.settings import Settings


@dataclass
class Agents:
    """The agents that the settings name, by the facts of all known ones, and
    what the `history` knows of them."""

    settings: Settings
    clis: Clis
    history: History

    def ladder(self, task: Task | None = None) -> tuple[str, ...]:
        """The agents of `task`, one for each failed attempt: those given, else its own,
        else the plan's, else claude."""
        own = task.agents if task else ()
        plan = self.settings.plan.settings.get("agent")
        return self.settings.options.agent or own or prd.commands(plan) or ("claude",)

    def agent(self, task: Task) -> Agent:
        """The agent of the next attempt at `task`: its rung of the ladder, or the
        fallback while that one is unavailable."""
        rungs = self.ladder(task)
        first = self.named(rungs[min(self.history.of(task).attempts, len(rungs) - 1)])
        return min((first, self.fallback), key=self.back_at) if self.fallback else first

    def named(self, command: str) -> Agent:
        """The agent of a command, with the permissions of this run. One that cannot be
        kept to editing has all of them behind a prefix, which confines it."""
        agent = registry.find_agent(command, self.clis, self.settings.permissions)
        if self.settings.wrap[0] and agent.permissions not in agent.cli.permissions:
            return replace(agent, permissions="full")
        return agent

    @property
    def fallback(self) -> Agent | None:
        """The agent that works while another one is unavailable, if there is one."""
        command = self.settings.options.fallback or self.settings.plan.settings.get(
            "fallback"
        )
        return self.named(command) if command else None

    @property
    def judge(self) -> Agent | None:
        """The agent that must agree before a task passes, if there is one."""
        command = self.settings.options.judge or self.settings.plan.settings.get(
            "judge"
        )
        return registry.find_agent(command, self.clis, "read") if command else None

    @property
    def planner(self) -> Agent:
        """The agent that writes a plan: the one given, the plan's planner, its agent,
        or claude."""
        command = self.settings.options.planner or self.settings.plan.settings.get(
            "planner"
        )
        return registry.find_agent(command or self.ladder()[0], self.clis, "read")

    @property
    def workers(self) -> list[Agent]:
        """The agents of the open tasks, each once, with every rung of their ladders;
        and the fallback."""
        ladders = {
            self.ladder(task) for task in self.settings.plan.tasks if not task.passed
        }
        commands = dict.fromkeys(
            command for ladder in sorted(ladders) for command in ladder
        )
        other = [self.fallback] if commands and self.fallback else []
        return [*map(self.named, commands), *other]

    def is_limited(self, agent: Agent) -> bool:
        """Whether a task that this agent may work on, or judge, has a limit in dollars
        of its own."""
        tasks = [task for task in self.settings.plan.tasks if not task.passed]
        tasks = [task for task in tasks if task.limits.usd < limits.NONE]
        commands = {
            self.named(command).command
            for task in tasks
            for command in self.ladder(task)
        }
        others = [other.command for other in (self.fallback, self.judge) if other]
        return bool(tasks) and agent.command in (*commands, *others)

    def back_at(self, agent: Agent) -> float:
        """When (unix time) an agent can be used again: 0 is now, NEVER not in this
        run."""
        at = limits.back(self.settings.limits, self.unavailable(agent))
        return at if at > time.time() else 0.0

    def unavailable(self, agent: Agent) -> Unavailable:
        """Why it cannot be used: what was said of it last, or its provider bills extra
        usage."""
        options, plan = self.settings.options, self.settings.plan
        allowed = options.allow_overage or plan.settings.get("allowOverage")
        limited = self.history.this_run.away.get(agent.command, Unavailable())
        billed = (
            Unavailable()
            if allowed
            else self.history.overage.get(agent.name, Unavailable())
        )
        return max(
            limited, billed, key=lambda away: limits.back(self.settings.limits, away)
        )
