"""Roles: one function runs the agent of each. The judge reads work whose checks are
green, and can only reject it."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from _ralph import text
from _ralph.agents import registry, sums
from _ralph.agents.prompt import render_prompt, task_values
from _ralph.agents.registry import Agent
from _ralph.files import resource
from _ralph.git.workspace import Place
from _ralph.loop.jobs import Attempt
from _ralph.loop.run import Run
from _ralph.loop.verdict import weigh_judge
from _ralph.loop.worker import WorkerDied
from _ralph.model import AgentResult, Json, Judgement, Outcome, Share, Task, spent_on
from _ralph.state.layout import new_log

_DIFF = 24 * 1024
_ANSWER = 1 << 16


async def ask_judge(run: Run, attempt: Attempt, judge: Agent) -> None:
    """Ask `judge` about an attempt that passes by evidence; the verdict is put into the
    attempt. If the judge is limited or cannot run, the work is kept and judged
    later."""
    run.view.line(f"asking the judge: {judge.command}", "  ")
    try:
        job = run.in_worker(
            lambda inside: _judge(inside, attempt, judge), AgentResult, attempt.worker
        )
        result = await job
    except WorkerDied as error:
        result = cut_off(run, judge, f"{attempt.name}-judge", str(error))
    unmet, before = objections(attempt.task, result.text), attempt.judgement
    attempt.judgement = Judgement(
        **vars(spent_on([result])), agent=judge.command, agrees=not unmet, objections=unmet[:20],
        session=result.session or "", row=judge.name, overage=result.overage, reset=result.reset or 0.0,
    )  # fmt: skip
    if before:  # it was asked before the branch moved
        attempt.judgement.add(before)
    attempt.result.no_price = attempt.result.no_price or result.no_price
    weigh_judge(attempt, result, unmet)


def _judge(run: Run, attempt: Attempt, judge: Agent) -> AgentResult:
    """Run the judge on a checkout of the candidate."""
    run.view.doing("judge")
    place = place_of_role(run, attempt.commit)
    prompt, env = _judge_prompt(run, attempt), run.places.env(place.root)
    share = attempt.share.without(spent_on([attempt.result]))
    env |= attempt.variables(run.paths)
    return run_role(run, judge, prompt, f"{attempt.name}-judge", env, share, place.root)


def place_of_role(run: Run, commit: str) -> Place:
    """A clean checkout of `commit` for a judge or a planner."""
    place = run.places.place(run.paths.role)
    place.remove_unusable(commit)
    place.reset(commit)
    place.clean(commit, "-ffdx")
    run.places.furnish(place, commit)
    return place


def objections(task: Task, said: str) -> list[str]:
    """The judge's objections; none if it found every criterion met. An answer that
    cannot be read, or more than one, is an objection."""
    answers = [
        found
        for found in json_objects(said[-_ANSWER:])
        if isinstance(found.get("criteria"), list)
    ]
    if len(answers) != 1:
        return [
            f"its answer cannot be read: {len(answers)} objects with `criteria` instead of one"
        ]
    entries = [entry for entry in answers[0]["criteria"] if isinstance(entry, dict)]
    unmet = [entry for entry in entries if entry.get("met") is not True]
    found = [
        f"{_line(entry.get('criterion')) or 'a criterion'}: {_line(entry.get('reason')) or 'no reason given'}"
        for entry in unmet
    ]
    if len(entries) < len(criteria_of(task)):
        found.append(f"it judged {len(entries)} of {len(criteria_of(task))} criteria")
    return found


def criteria_of(task: Task) -> list[str]:
    """What must be met: the task's criteria, else its title."""
    return list(task.criteria) or [task.title]


def run_role(
    run: Run,
    agent: Agent,
    prompt: str,
    name: str,
    env: Mapping[str, str],
    share: Share,
    cwd: Path,
) -> AgentResult:
    """Run the agent of any role in `cwd`, at most until the run's time is up; its logs are
    called `name`, and it may spend `share`."""
    left, allowed = (
        max(run.ends - time.time(), 1.0),
        min(run.options.agent_timeout, share.seconds),
    )
    with run.places.entered(cwd) as wrap:
        result = registry.run_agent(
            agent,
            prompt,
            log=lambda ending: new_log(run.paths, name + ending),
            cwd=cwd,
            env=env,
            timeout=min(allowed, left),
            idle=run.options.idle_timeout,
            control=run.control,
            usd_left=share.usd,
            tokens_left=share.tokens,
            dearest=run.history.dearest[agent.command],
            watch=run.view.watch,
            wrap=wrap,
            here=run.places.here,
        )
    if result.outcome in (Outcome.FAILED, Outcome.UNAVAILABLE) and (
        why := run.places.unanswered()
    ):
        result = replace(result, outcome=Outcome.LIMITED, reason=why)
    if result.reset is not None and result.reset <= time.time():
        result.reset = None  # a reset in the past is none
    if (
        result.outcome is Outcome.TIMED_OUT
        and left < allowed
        and result.seconds >= left - 0.1
    ):
        result = replace(
            result, outcome=Outcome.INTERRUPTED, reason="the run's time was up"
        )
    return result


def cut_off(run: Run, agent: Agent, name: str, reason: str) -> AgentResult:
    """The result of an agent that died with its worker or with ralph, for `reason`, as
    far as it had reported it; `name` is as for `run_role`."""
    return sums.recovered(
        run.paths.logs / name, run.history.dearest[agent.command], reason
    )


def _judge_prompt(run: Run, attempt: Attempt) -> str:
    before, after = attempt.tip, attempt.commit
    values = {
        **task_values(attempt.task),
        "criteria": criteria_of(attempt.task),
        "checks": [f"{check.name}: {check.outcome}" for check in attempt.checks],
        "diff": text.redact(text.clean(run.branch.diff(before, after, _DIFF))),
        "diff_command": f"git diff {before} {after}",
    }
    return render_prompt(resource("templates/judge.md"), values)


def json_objects(said: str) -> list[Json]:
    """Every top-level JSON object in a text."""
    decoder, found, at = json.JSONDecoder(), [], said.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(said, at)
            found.append(value)
        except (ValueError, RecursionError):
            end = at + 1
        at = said.find("{", end)
    return found


def _line(value: object) -> str:
    return text.one_line(str(value or ""), 300)
