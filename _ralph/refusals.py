"""What a run refuses to begin with; `ralph doctor` asks the same beforehand."""

from __future__ import annotations

from typing import Any

from _ralph import agents, prd, text
from _ralph.agents import Agent
from _ralph.ends import BadInput
from _ralph.model import Attempt
from _ralph.progress import History
from _ralph.prompt import render_line
from _ralph.run import Run
from _ralph.workspace import Folder, GitTree


def require_agents(run: Run) -> None:
    """Every agent that this plan can need is there, is permitted, and tells what is limited."""
    for agent in agents_of(run):
        require_agent(run, agent)


def agents_of(run: Run) -> list[Agent]:
    """The agents of the open tasks, and the judge."""
    return [agent for agent in (*workers(run), run.judge) if agent]


def workers(run: Run) -> list[Agent]:
    """The agents of the open tasks, each once, however long the list."""
    tasks = {task.agent: task for task in run.plan.tasks if not task.passed}
    return list({agent.command: agent for agent in map(run.agent, tasks.values())}.values())


def require_agent(run: Run, agent: Agent) -> None:
    """Refuse an agent that is missing, may not run as it would, or does not tell what is limited."""
    agents.require(agent)
    wanted = {"dollars": run.limits.in_dollars, "tokens": run.limits.in_tokens}
    for unit in wanted:
        if wanted[unit] and unit not in agent.row.get("reports", []):
            raise BadInput(
                f"a limit in {unit} cannot be kept: {agent.command} reports none; "
                f"use --max-hours or --max-iterations, or an agent that reports them"
            )


def try_templates(run: Run) -> None:
    """A template that is wrong is found now, not behind the night's first pass."""
    for task in run.plan.tasks:
        if not task.passed:
            values = commit_values(Attempt(task, number=1, iteration=1))
            render_line(run.commit_template(), values, f"{run.paths.prd.name}: commit, for {task.id}")
    template = run.template()
    if not template.is_file():
        raise BadInput(
            f"there is no prompt template {template}; `ralph init --eject` writes one to start from"
        )


def commit_values(attempt: Attempt) -> dict[str, Any]:
    """What the template of a commit subject may use."""
    return {"task": attempt.task, "iteration": attempt.iteration, "attempt": attempt.number}


def refuse_unfinished(tree: GitTree) -> None:
    """BadInput where a person has begun something and not committed it."""
    if word := tree.refs.halfway():
        end = "reset" if word == "bisect" else "--abort"
        raise BadInput(f"a {word} is under way in this repository; end it first: git {word} {end}")
    if modified := tree.modified():
        raise BadInput(
            f"modified tracked files: {text.few(modified)}; commit or stash them, "
            f"so that nothing of yours is mixed up with the work"
        )


def refuse_loose(run: Run) -> None:
    """BadInput where a protected file could not be put back."""
    if loose := run.git_tree.untracked_protected(list(run.plan.settings.get("protect", []))):
        raise BadInput(
            f"{loose[0]} is under a protected pattern but not in git, so it could not be put back; commit it"
        )


def refuse_other_plan(run: Run, branch: str) -> None:
    """BadInput where `branch` is there already, for another plan."""
    there = run.git_tree.refs.plan_on(branch, run.paths.prd)
    if there is not None and not same_plan(run, there):
        raise BadInput(
            f"the branch {branch} exists and its {run.paths.prd.name} holds another plan than the one here; "
            f"give this plan a branchName of its own, or delete that branch"
        )


def same_plan(run: Run, source: str) -> bool:
    """Whether `source`, the text of a prd.json on another branch, is the plan of this run."""
    try:
        found = prd.read(source, run.paths.prd)
    except BadInput:
        return False
    names = {(task.id, task.title) for task in run.plan.tasks}
    common = {(task.id, task.title) for task in found.tasks} & names
    return bool(common) and found.project == run.plan.project


def unfinished(tree: Folder, history: History) -> bool:
    """Whether what lies in the tree is work that the last record left, and nothing else."""
    if not history.tree:
        return False
    now = tree.snapshot()
    return now in (history.tree, history.left) and now != tree.clean_tree()


def on_default_branch(tree: GitTree) -> bool:
    here = tree.branch().removeprefix("refs/heads/")
    return here in tree.refs.default_branches(here)
