"""Roles: one function runs the agent of each. The judge reads work whose checks are
green, and can only reject it."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from _ralph import text
from _ralph.agents import running
from _ralph.agents.cli import Agent
from _ralph.agents.prompt import render_prompt, task_values
from _ralph.checks.judge import Answer, criteria_of, read_answer
from _ralph.checks.running import prefix_fails
from _ralph.checks.verdict import after_judge, kept_away
from _ralph.errors import AgentUnavailable, SetupFailed, StopNow
from _ralph.files import resource
from _ralph.loop.loop import Loop, time_is_up
from _ralph.loop.stages import Examined
from _ralph.model import AgentResult, Judgement, Outcome, Share, Verdict, spent_on
from _ralph.state.layout import new_log

_DIFF = 24 * 1024
"""Bytes of the change that the judge's prompt shows."""


def run_role(
    loop: Loop,
    agent: Agent,
    prompt: str,
    name: str,
    env: Mapping[str, str],
    share: Share,
    cwd: Path,
) -> AgentResult:
    """Run the agent of any role in `cwd`, at most until the run's time is up; its logs
    are called `name`, and it may spend `share`."""
    left = max(loop.ends - time.time(), 1.0)
    allowed = min(loop.options.agent_timeout, share.seconds)
    with loop.places.inside(cwd) as wrap:
        given = running.Assignment(
            prompt=prompt,
            log=lambda ending: new_log(loop.paths, name + ending),
            cwd=cwd,
            env=env,
            timeout=min(allowed, left),
            idle=loop.options.idle_timeout,
            usd_left=share.usd,
            tokens_left=share.tokens,
            dearest=loop.history.dearest[agent.command],
            trusted=loop.places.trusted_settings(agent, cwd),
            wrap=wrap,
            here=loop.places.here,
        )
        result = running.run_agent(agent, given, loop.control, loop.view.watch)
    if result.reset <= time.time():
        result.reset = 0.0  # one in the past is none
    ran_out = left < allowed and result.seconds >= left - 0.1
    if result.outcome is Outcome.TIMED_OUT and ran_out:
        reason = "the run's time was up"
        result = replace(result, outcome=Outcome.INTERRUPTED, reason=reason)
    if result.outcome in (Outcome.FAILED, Outcome.UNAVAILABLE):
        why = prefix_fails(loop.places, cwd)
        if why:  # no agent can do anything about that
            result = replace(result, outcome=Outcome.LIMITED, reason=why, reset=0.0)
    return result


def cut_off(loop: Loop, agent: Agent, name: str, reason: str) -> AgentResult:
    """The result of an agent that died with its loop, for `reason`, as far as it had
    reported it; `name` is as for `run_role`."""
    transcript = loop.paths.logs / f"{name}.out"
    dearest = loop.history.dearest[agent.command]
    return running.cut_off(agent, transcript, dearest, reason)


def ask_judge(loop: Loop, examined: Examined, judge: Agent) -> Examined:
    """Ask the judge about work that passes by evidence. One that cannot answer now is
    waited for; an answer that cannot be read is asked for once more."""
    begun = examined.begun
    name = f"{begun.name}-judge"
    judgement = Judgement(agent=judge.command, row=judge.name)
    # What one used whose candidate a kill or another tip made stale
    judgement.add(spent_on([cut_off(loop, judge, name, "")]))
    prompt = _judge_prompt(loop, examined)

    def ask() -> AgentResult:
        loop.view.line(f"asking the judge: {judge.command}", "  ")
        loop.view.doing("judge")
        place = loop.places.of_role(examined.commit)
        env = loop.places.env(place.root) | begun.variables(loop.paths)
        share = begun.share.without(examined.spent).without(judgement)
        result = run_role(loop, judge, prompt, name, env, share, place.root)
        judgement.add(spent_on([result]))
        judgement.overage = result.overage
        judgement.reset = result.reset
        if loop.control.stop_now:
            raise StopNow
        match kept_away(result):
            case Verdict.INTERRUPTED if time.time() >= loop.ends - 1:
                raise time_is_up()
            case Verdict.UNAVAILABLE:
                raise AgentUnavailable(f"the judge cannot run: {result.reason}")
            case Verdict.LIMITED:
                why = f"the judge cannot answer now: {result.reason}"
                raise SetupFailed(why, judgement.reset)
        return result

    for _ in range(2):
        result = loop.when_setup_works(begun.task.id, ask)
        answer = Answer(unreadable=f"it did not finish: {result.reason}")
        if result.outcome is not Outcome.DONE:
            break
        answer = read_answer(result.text, criteria_of(begun.task))
        if not answer.unreadable:
            break
        loop.view.line(answer.unreadable, "  ")
    judgement.agrees = not (answer.objections or answer.unreadable)
    if not judgement.agrees:
        judgement.objections = (answer.objections or [answer.unreadable])[:20]
    no_price = examined.result.no_price or result.no_price
    return replace(
        examined,
        decision=after_judge(examined.decision, result, answer),
        judgement=judgement,
        result=replace(examined.result, no_price=no_price),
    )


def _judge_prompt(loop: Loop, examined: Examined) -> str:
    before = examined.candidate.tip
    after = examined.commit
    task = examined.begun.task
    values = {
        **task_values(task),
        "criteria": criteria_of(task),
        "checks": [f"{check.name}: {check.outcome}" for check in examined.checks],
        "diff": text.redact(text.clean(loop.branch.diff(before, after, _DIFF))),
        "diff_command": f"git diff {before} {after}",
    }
    return render_prompt(resource("templates/judge.md"), values)
