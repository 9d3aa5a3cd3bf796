"""The rehearsal: a night as cron will start it, with its surroundings and one real turn of an agent."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from _ralph import agents, text, views
from _ralph.agents import Agent
from _ralph.checks import every_check
from _ralph.files import resource
from _ralph.git import git
from _ralph.model import AgentResult, Finding, Findings, Outcome
from _ralph.schedule import CRON_PATH, Schedule, cron_environment
from _ralph.session import Run

_TURN = 120.0
_OURS = ("RALPH_RUN_", "RALPH_PRD", "XDG_CONFIG_", "XDG_STATE_")  # what ralph and git obey


def surroundings(run: Run, schedule: Schedule, team: Sequence[tuple[str, Agent]]) -> Findings:
    """What is there and what is not, where cron starts `schedule`; `team` are roles and their agents."""
    agents_here = [agent for _, agent in team]
    env = cron_environment(schedule.path)
    missing = [name for name in _programs(run, agents_here) if not shutil.which(name, path=CRON_PATH)]
    note = f", without {text.few(missing)}; doctor's line has the PATH of now" if missing else ""
    yield "ok", f"cron: its PATH is {CRON_PATH}{note}"
    there, here = env["HOME"], os.environ.get("HOME", "not set")
    if os.path.realpath(there) == os.path.realpath(here):
        yield "ok", f"cron: HOME is {there} there, too"
    else:
        yield "warning", f"cron: HOME is {there} there, and {here} here; log the agent in with HOME={there}"
    own = {name for name in os.environ if name.startswith(_OURS)}
    if lost := _lost(_obeyed(agents_here) | own, env):
        yield "warning", f"cron: set here and not there: {text.few(lost)}; {_how_to_set(lost[0])}"
    for agent in agents_here:
        key, login = agents.purse(agent, env)
        if key or login:
            yield "ok", f"cron: {agent.name} finds {key or login} there"
        elif agent.row.get("keys"):
            wanted = agents.known_logins(agent)
            yield "warning", f"cron: no login of {agent.name} found there ({wanted}); --probe tries it"
    if schedule.too_long():
        yield "warning", "cron: the line is longer than some crons read; shorten your PATH, or use systemd"
    if why := schedule.refused():
        yield "warning", f"systemd: it would not take the units: {why}; use cron"


def _programs(run: Run, team: Sequence[Agent]) -> list[str]:
    """What a night starts by name and finds here: git, ralph, agents, the first words of checks."""
    names = ["git", "ralph", *(agent.program for agent in team)]
    for check in every_check(run.plan):
        words = check.run.split() if isinstance(check.run, str) else list(check.run)
        names += [word for word in words if "=" not in word][:1]
    return [name for name in dict.fromkeys(names) if "/" not in name and shutil.which(name)]


def _obeyed(team: Sequence[Agent]) -> set[str]:
    """Variables that decide how these agents log in, and where their settings lie."""
    names = {str(agent.row.get("root_needs", "")) for agent in team if agent.permissions == "full"}
    for agent in team:
        places = [*agent.row.get("login", []), *agent.row.get("config", [])]
        names |= {*agent.row.get("keys", []), *(place[1:] for place in places if place[0] == "$")}
    return names


def _lost(names: Iterable[str], env: Mapping[str, str]) -> list[str]:
    """Those of `names` that are set here, and that cron does not have."""
    return sorted(name for name in names if os.environ.get(name) and name not in env)


def _how_to_set(name: str) -> str:
    return f"write {name}=... above the line in the crontab (for systemd: Environment={name}=...)"


def turns(run: Run, schedule: Schedule, team: Sequence[tuple[str, Agent]]) -> Findings:
    for _, agent in team:
        if shutil.which(agent.program):
            yield from _turn(run, agent, schedule)


def _turn(run: Run, agent: Agent, schedule: Schedule) -> Findings:
    """One turn of `agent`, as cron would start it, in an empty repository."""
    env = cron_environment(schedule.path)
    with tempfile.TemporaryDirectory(prefix="ralph-probe-") as name:
        folder = Path(name).resolve()
        if run.options.git:
            git(folder, "init", "-q")
        box = replace(run.box, root=folder, frozen=(run.paths.root,)) if run.box else None
        level = "read" if "read" in agent.row["permissions"] else agent.permissions
        names = {"RALPH_TASK_ID": "probe", "RALPH_ITERATION": "0", "RALPH_ATTEMPT": "0"}
        result = agents.run_agent(
            replace(agent, permissions=level),
            resource("templates/probe.md").read_text("utf-8"),
            log=lambda ending: folder / f"probe{ending}",
            cwd=folder,
            env={**env, **names, "RALPH_RUN_ID": "doctor", "RALPH_HANDOFF": str(folder / "handoff.md")},
            timeout=_TURN,
            idle=_TURN,
            control=run.control,
            wrap=box.wrap if box else lambda argv: argv,
        )
    if result.outcome is not Outcome.INTERRUPTED:
        yield _ended(agent, result, env)


def _ended(agent: Agent, result: AgentResult, env: Mapping[str, str]) -> Finding:
    said = f"probe: {agent.command}, as cron starts it"
    if result.outcome is Outcome.DONE:
        return "ok", f"{said}, answered: {views.spent_words(result)}"
    if result.outcome is Outcome.LIMITED:
        until = time.strftime(" until %Y-%m-%d %H:%M", time.localtime(result.reset)) if result.reset else ""
        return "warning", f"{said}, is limited{until}: {result.reason}; a run waits for that"
    if result.outcome is Outcome.TIMED_OUT:
        return "error", f"{said}: {result.reason}; it may be limited, or without network: try it by hand"
    lost = _lost(_obeyed([agent]), env)
    advice = _how_to_set(lost[0]) if lost else "log it in as this user, then try again"
    return "error", f"{said}: {result.reason or result.outcome}; {advice}"
