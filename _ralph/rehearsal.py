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
from _ralph.ends import BadInput
from _ralph.git import git
from _ralph.model import AgentResult, Finding, Findings, Outcome
from _ralph.prompt import resource
from _ralph.schedule import CRON_PATH, cron_environment, schedule_for, search_path
from _ralph.session import Run

_TURN = 120.0
_LONGEST = 998  # bytes of a command that every cron takes
_OURS = ("RALPH_RUN_", "RALPH_PRD", "XDG_CONFIG_", "XDG_STATE_")  # what ralph and git obey


def surroundings(run: Run, team: Sequence[Agent]) -> Findings:
    """What is there and what is not, where cron starts this run, for the agents of `team`."""
    try:
        line = schedule_for(run).crontab()
    except BadInput as error:
        yield "warning", f"no line for it can be written: {error}"
        return
    env = cron_environment(search_path())
    missing = [name for name in _programs(run, team) if not shutil.which(name, path=CRON_PATH)]
    note = f", without {text.few(missing)}; doctor's line has the PATH of now" if missing else ""
    yield "ok", f"its PATH is {CRON_PATH}{note}"
    there, here = env["HOME"], os.environ.get("HOME", "not set")
    if os.path.realpath(there) != os.path.realpath(here):
        yield "warning", f"HOME is {there} there, and {here} here; log the agent in with HOME={there}"
    own = {name for name in os.environ if name.startswith(_OURS)}
    if lost := _lost(_obeyed(team) | own, env):
        yield "warning", f"set here and not there: {text.few(lost)}; {_how_to_set(lost[0])}"
    for agent in team:
        key, login = agents.purse(agent, env)
        if key or login:
            yield "ok", f"{agent.name} finds {key or login} there"
        elif agent.row.get("keys"):
            wanted = agents.known_logins(agent)
            yield "warning", f"no login of {agent.name} found there ({wanted}); --probe tries it"
    if len(line.encode()) > _LONGEST:
        yield "warning", "the line is longer than some crons read; shorten your PATH, or use systemd"


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


def turns(run: Run, team: Sequence[Agent]) -> Findings:
    """One turn of each agent, as cron would start it, in an empty repository."""
    env = cron_environment(search_path())
    for agent in team:
        if shutil.which(agent.program):
            yield _told(agent, _turn(run, agent, env), env)


def _turn(run: Run, agent: Agent, env: Mapping[str, str]) -> AgentResult:
    with tempfile.TemporaryDirectory(prefix="ralph-probe-") as name:
        folder = Path(name).resolve()
        if run.options.git:
            git(folder, "init", "-q")
        box = replace(run.box, root=folder, frozen=(run.paths.root,)) if run.box else None
        level = "read" if "read" in agent.row["permissions"] else agent.permissions
        names = {"RALPH_TASK_ID": "probe", "RALPH_ITERATION": "0", "RALPH_ATTEMPT": "0"}
        return agents.run_agent(
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


def _told(agent: Agent, result: AgentResult, env: Mapping[str, str]) -> Finding:
    said = f"{agent.command}, as cron starts it"
    if result.outcome is Outcome.DONE:
        return "ok", f"{said}, answered: {views.spent_words(result)}"
    if result.outcome is Outcome.LIMITED:
        until = time.strftime(" until %Y-%m-%d %H:%M", time.localtime(result.reset)) if result.reset else ""
        return "warning", f"{said}, is limited{until}: {result.reason}; a run waits for that"
    lost = _lost(_obeyed([agent]), env)
    advice = _how_to_set(lost[0]) if lost else "log it in as this user, then try again"
    return "error", f"{said}: {result.reason or result.outcome}; {advice}"
