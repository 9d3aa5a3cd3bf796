"""`ralph doctor --probe`: one turn of each agent, in the environment that cron gives
it."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import subprocess
import sys
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
from _ralph.state import facts

_TURN = 120.0


def cron_environment(path: str) -> dict[str, str]:
    """The environment of a program that cron starts with the PATH `path`, with what
    this user's crontab sets. BadInput for an unknown user."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        raise BadInput(
            f"cron has no user {os.getuid()}: there is none in the password file"
        ) from None
    own = {"HOME": user.pw_dir, "LOGNAME": user.pw_name, "SHELL": "/bin/sh"}
    assignment = r"""^[ \t]*(["']?)(\w+)\1[ \t]*=[ \t]*(["']?)(.*?)\3[ \t]*$"""
    table = re.findall(assignment, _crontab(), re.MULTILINE)
    return {**own, **{name: value for _, name, _, value in table}, "PATH": path}


def _crontab() -> str:
    """This user's crontab; empty if there is none."""
    words = ["crontab", "-l"]
    try:
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace")


def turns(run: Run, team: Sequence[Agent]) -> Findings:
    """One turn of each agent, as cron would start it, in an empty repository."""
    env = cron_environment(search_path())
    for agent in team:
        if not run.places.here or shutil.which(agent.program):
            unset = [
                key
                for key in agent.row.get("keys", [])
                if key in os.environ and key not in env
            ]
            level, said = _finding(agent, _turn(run, agent, env), unset)
            key, login = registry.credentials(agent, env)
            if (
                level == "ok"
                and not key
                and login in agent.row.get(f"login_{sys.platform}", {})
            ):
                level, said = "warning", f"{said}, by the login in {login}"
            yield level, said


def _turn(run: Run, agent: Agent, env: Mapping[str, str]) -> AgentResult:
    run.paths.places.mkdir(parents=True, exist_ok=True, mode=0o700)
    with tempfile.TemporaryDirectory(
        prefix="ralph-probe-", dir=run.paths.places
    ) as name:
        folder = Path(name).resolve()
        git(folder, "init", "-q")
        level = "read" if "read" in agent.row["permissions"] else agent.permissions
        names = {"RALPH_TASK_ID": "probe", "RALPH_ITERATION": "0", "RALPH_ATTEMPT": "0"}
        with run.places.entered(folder) as wrap:
            return registry.run_agent(
                replace(agent, permissions=level),
                resource("templates/probe.md").read_text("utf-8"),
                log=lambda ending: folder / f"probe{ending}",
                cwd=folder,
                env={
                    **env,
                    **names,
                    "RALPH_RUN_ID": "doctor",
                    "RALPH_HANDOFF": str(folder / "handoff.md"),
                },
                timeout=_TURN,
                idle=_TURN,
                control=run.control,
                wrap=wrap,
                here=run.places.here,
            )


def _finding(agent: Agent, result: AgentResult, unset: Sequence[str]) -> Finding:
    """What came of one turn of an agent; `unset` are keys that are set here, but not
    where cron starts it."""
    who = f"{agent.command}, as cron starts it"
    if result.outcome is Outcome.DONE and result.overage:
        return (
            "warning",
            f"{who}, answered, and the provider bills extra usage; a run waits until that ends",
        )
    if result.outcome is Outcome.DONE:
        return "ok", f"{who}, answered: {facts.spent(result)}"
    if result.outcome is Outcome.LIMITED:
        until = (
            time.strftime(" until %Y-%m-%d %H:%M", time.localtime(result.reset))
            if result.reset
            else ""
        )
        return (
            "warning",
            f"{who}, is limited{until}: {result.reason}; a run waits until then",
        )
    advice = "log it in as this user, or fix what it says, then try again"
    if unset:
        advice = f"write {unset[0]}=... above ralph's line in your crontab"
    return "error", f"{who}: {result.reason or result.outcome}; {advice}"
