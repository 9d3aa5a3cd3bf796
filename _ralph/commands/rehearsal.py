"""What a run finds that cron starts, and a turn of each agent in that environment."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from _ralph.agents import registry
from _ralph.agents.registry import Agent
from _ralph.commands.job import search_path
from _ralph.errors import BadInput
from _ralph.files import resource
from _ralph.git.git import git
from _ralph.loop.run import Run
from _ralph.model import AgentResult, Finding, Findings, Outcome
from _ralph.state import wording

_CRON_PATH = "/usr/bin:/bin"  # unless the crontab names another
_OBEYED = re.compile(
    r"HOME|(ANTHROPIC|CLAUDE|AWS|OPENAI|GEMINI)_.*|.*_PROXY|XDG_(CONFIG|STATE)_HOME|RALPH_PLACES",
    re.IGNORECASE,
)
"""Variables that ralph, git and agents obey, beside those that the agents' rows name."""
_TURN = 120.0


def cron_environment(path: str) -> dict[str, str]:
    """The environment of a program that cron starts with the PATH `path`. BadInput for an unknown user."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        raise BadInput(f"cron has no user {os.getuid()}: there is none in the password file") from None
    own = {"HOME": user.pw_dir, "LOGNAME": user.pw_name, "SHELL": "/bin/sh"}
    return {**own, **_assigned(), "PATH": path}


def _assigned() -> Mapping[str, str]:
    """The variables that this user's crontab sets."""
    found = re.findall(
        r"""^[ \t]*(["']?)(\w+)\1[ \t]*=[ \t]*(["']?)(.*?)\3[ \t]*$""", _crontab(), re.MULTILINE
    )
    return {name: value for _, name, _, value in found}


def _crontab() -> str:
    """This user's crontab; empty if there is none."""
    try:
        done = subprocess.run(
            ["crontab", "-l"], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
            errors="replace", timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout


def surroundings(team: Sequence[Agent], probe: bool) -> Findings:
    """What the agents of `team` find and miss where cron starts this run; without a `probe`, only for a user
    whose crontab starts ralph."""
    if not probe and "ralph" not in _crontab():
        yield "ok", "your crontab does not start ralph; --probe shows what agents would find there"
        return
    env = cron_environment(search_path())
    yield "ok", f"its PATH is {_CRON_PATH}; the line of `ralph job cron` sets your current PATH"
    if lost := _lost(team, env):
        yield "warning", f"set here and not there: {', '.join(lost)}; {_how_to_set(lost)}"
    if other := [name for name in _obeyed(team, env) if os.environ.get(name, "") != env[name]]:
        yield (
            "warning",
            f"not the same there as here: {', '.join(other)}; log the agent in with what cron sets",
        )
    for agent in team:
        key, login = registry.credentials(agent, env)
        if key or login:
            yield "ok", f"{agent.name} finds {key or login} there"
        elif any(registry.credentials(agent, os.environ)):  # else it was said already
            wanted = registry.known_credentials(agent)
            yield "warning", f"no login of {agent.name} found there ({wanted}); --probe tries it"


def _obeyed(team: Sequence[Agent], env: Mapping[str, str]) -> list[str]:
    """The variables of an environment that decide what ralph, git and these agents do."""
    names = {str(agent.row.get("root_needs", "")) for agent in team if agent.permissions == "full"}
    for agent in team:
        places = [*agent.row.get("login", []), *agent.row.get("config", [])]
        names |= {*agent.row.get("keys", []), *(place[1:] for place in places if place[0] == "$")}
    return sorted(name for name in env if env[name] and (name in names or _OBEYED.fullmatch(name)))


def _lost(team: Sequence[Agent], env: Mapping[str, str]) -> list[str]:
    """Those that are set here and not in `env`."""
    return [name for name in _obeyed(team, os.environ) if name not in env]


def _how_to_set(names: Sequence[str]) -> str:
    """How to give cron these variables; their values may be secrets."""
    what = f"{names[0]}=..." if len(names) == 1 else "each as NAME=..."
    return f"write {what} above the line in the crontab (for systemd: Environment={names[0]}=...)"


def turns(run: Run, team: Sequence[Agent]) -> Findings:
    """One turn of each agent, as cron would start it, in an empty repository."""
    env = cron_environment(search_path())
    for agent in team:
        if shutil.which(agent.program):
            keys = [name for name in _lost([agent], env) if name in agent.row.get("keys", [])]
            yield _told(agent, _turn(run, agent, env), keys)


def _turn(run: Run, agent: Agent, env: Mapping[str, str]) -> AgentResult:
    with tempfile.TemporaryDirectory(prefix="ralph-probe-") as name:
        folder = Path(name).resolve()
        git(folder, "init", "-q")
        box = run.box
        level = "read" if "read" in agent.row["permissions"] else agent.permissions
        names = {"RALPH_TASK_ID": "probe", "RALPH_ITERATION": "0", "RALPH_ATTEMPT": "0"}
        return registry.run_agent(
            replace(agent, permissions=level),
            resource("templates/probe.md").read_text("utf-8"),
            log=lambda ending: folder / f"probe{ending}",
            cwd=folder,
            env={**env, **names, "RALPH_RUN_ID": "doctor", "RALPH_HANDOFF": str(folder / "handoff.md")},
            timeout=_TURN,
            idle=_TURN,
            control=run.control,
            wrap=lambda argv: box.wrap(argv, folder) if box else argv,
        )


def _told(agent: Agent, result: AgentResult, lost: Sequence[str]) -> Finding:
    """What came of one turn of an agent; `lost` are keys that are set here and were not for it."""
    said = f"{agent.command}, as cron starts it"
    if result.outcome is Outcome.DONE and result.overage:
        return "warning", f"{said}, answered, and the provider bills extra usage; a run waits until that ends"
    if result.outcome is Outcome.DONE:
        return "ok", f"{said}, answered: {wording.spent(result)}"
    if result.outcome is Outcome.LIMITED:
        until = time.strftime(" until %Y-%m-%d %H:%M", time.localtime(result.reset)) if result.reset else ""
        return "warning", f"{said}, is limited{until}: {result.reason}; a run waits until then"
    advice = _how_to_set(lost) if lost else "log it in as this user, or fix what it says, then try again"
    return "error", f"{said}: {result.reason or result.outcome}; {advice}"
