"""What a run requires before it starts; `ralph doctor` checks the same."""

from __future__ import annotations

import contextlib

from _ralph.agents import registry
from _ralph.agents.prompt import compile_line, compile_prompt, render_line
from _ralph.agents.registry import Agent
from _ralph.errors import BadInput
from _ralph.git.git import Git
from _ralph.loop.run import Run

OLDEST = (2, 38)
"""The first git with `merge-tree --write-tree`."""


def agents_of(run: Run) -> list[Agent]:
    """The agents of the open tasks, and the judge."""
    return [agent for agent in (*workers(run), run.judge) if agent]


def workers(run: Run) -> list[Agent]:
    """The agents of the open tasks, each once, with every rung of their ladders; and the fallback."""
    ladders = {run.ladder(task) for task in run.plan.tasks if not task.passed}
    commands = dict.fromkeys(command for ladder in sorted(ladders) for command in ladder)
    other = [run.fallback] if commands and run.fallback else []
    return [*map(run.named, commands), *other]


def require_agent(run: Run, agent: Agent) -> None:
    """BadInput or AgentUnavailable for an agent that is missing, lacks permissions, or does not report what
    is limited."""
    registry.require(agent)
    wanted = {"dollars": run.limits.in_dollars, "tokens": run.limits.in_tokens}
    for unit in wanted:
        if wanted[unit] and unit not in agent.row.get("reports", []):
            raise BadInput(
                f"a limit in {unit} cannot be enforced: {agent.command} does not report {unit}; "
                f"use --max-hours or --max-iterations, or an agent that reports them"
            )


def try_templates(run: Run) -> None:
    """BadInput for a template of prompts or commit messages that cannot be rendered."""
    where = f"{run.paths.prd.name}: commit"
    commit = compile_line(run.commit_template(), where)
    for task in run.plan.tasks:
        if not task.passed:
            render_line(commit, {"task": task, "iteration": 1, "attempt": 1}, f"{where}, for {task.id}")
    template = run.template()
    if not template.is_file():
        raise BadInput(
            f"there is no prompt template {template}; `ralph init --eject` writes one to start from"
        )
    compile_prompt(template)


def require_repository(run: Run) -> None:
    """BadInput if git cannot work here, or nothing could land on a branch of this name."""
    require_git(run.git)
    name, valid = run.branch.name, ""
    with contextlib.suppress(ValueError):  # a NUL, or half a surrogate pair
        valid = run.git("check-ref-format", "--branch", name, check=False)
    if not valid:
        raise BadInput(f"{name!r} is not a valid branch name; use another with --branch or branchName")
    if seat := run.branch.seat:
        raise BadInput(
            f"{name} is checked out in {seat}, where it would change under somebody's hands; "
            f"switch away: git switch - (or git switch --detach)"
        )
    if rival := run.branch.rival:
        raise BadInput(
            f"git cannot make a branch {name} beside the branch {rival}; "
            f"use another with --branch or branchName"
        )


def require_git(git: Git) -> None:
    """BadInput if git has no identity or is too old."""
    if not git("var", "GIT_COMMITTER_IDENT", check=False):
        raise BadInput("git does not know who commits here; set git config user.name and user.email")
    version = version_of(git)
    if version < OLDEST:
        raise BadInput(
            f"git {'.'.join(map(str, version))} is too old; {'.'.join(map(str, OLDEST))} is needed"
        )


def version_of(git: Git) -> tuple[int, ...]:
    """The version of git, as two numbers."""
    words = git("--version").split()
    return tuple(int(part) for part in words[2].split(".")[:2])
