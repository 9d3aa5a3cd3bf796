"""The agents that ralph knows, and those of a plan."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from _ralph.agents import aider, claude, codex, gemini, opencode, pi
from _ralph.agents.cli import PLAIN, Agent, Cli
from _ralph.agents.surroundings import path_without
from _ralph.errors import AgentUnavailable, BadInput
from _ralph.git import settings_env

Clis = Mapping[str, Cli]
BUILTIN: Clis = {
    "claude": claude.CLI,
    "codex": codex.CLI,
    "aider": aider.CLI,
    "gemini": gemini.CLI,
    "opencode": opencode.CLI,
    "pi": pi.CLI,
}


def find_agent(command: str, clis: Clis, permissions: str) -> Agent:
    """The agent for `command`, by its first word; else a plain one."""
    try:
        words = shlex.split(command)
    except ValueError as error:
        cannot = f"the agent command {command!r} cannot be split into words"
        raise BadInput(f"{cannot}: {error}") from None
    if not words:
        raise BadInput("the agent command is empty")
    program = Path(words[0]).name
    name = program if program in clis else "plain"
    return Agent(name, tuple(words), clis.get(program, PLAIN), permissions)


def with_own(rows: Mapping[str, Any]) -> Clis:
    """The agents that ralph knows, with the plan's `agents` over them. A row is `like`
    one of these, or like a row above it; BadInput where it is like none."""
    known = dict(BUILTIN)
    for name, row in rows.items():
        like = row.get("like")
        if like is not None and like not in known:
            raise BadInput(
                f"agents.{name}: `like` names no agent above it: {like}; expected one "
                f"of {', '.join(known)}"
            )
        known[name] = _with_row(known.get(like, PLAIN), row)
    return known


def _with_row(cli: Cli, row: Mapping[str, Any]) -> Cli:
    """An agent, but for what a row says otherwise."""
    argv = [*row.get("argv", cli.argv)]
    at = argv.index("{args}") if "{args}" in argv else len(argv)
    argv[at:at] = row.get("argv+", [])
    said = {key: row[key] for key in ("prompt", "permissions") if key in row}
    if "permissions" in row:  # whoever says them says what confines it
        said["sandbox_needs"] = ()
    if "version" in row:
        said["version"] = shlex.join(row["version"])
    return replace(cli, argv=argv, env={**cli.env, **row.get("env", {})}, **said)


def require(agent: Agent, here: bool = True) -> None:
    """AgentUnavailable if an agent is missing, or cannot be confined to its
    permissions; what is not `here` but behind a prefix, that will say."""
    cli = agent.cli
    if here and shutil.which(agent.program) is None:
        if "/" in agent.program and os.path.isfile(agent.program):
            why = f"cannot be executed; chmod +x {agent.program}"
        elif "/" in agent.program:
            why = "does not exist; name another with --agent"
        else:
            why = "is not on PATH; install it, or name another with --agent"
        raise AgentUnavailable(f"the agent {agent.program!r} {why}")
    unset = " and ".join(agent.missing(os.environ))
    if unset:
        needs = f"needs {unset}, which is not set; export it"
        raise AgentUnavailable(f"the agent {agent.name!r} {needs}")
    if agent.name == "plain" or agent.permissions == "full":
        return
    if agent.permissions not in cli.permissions:
        raise AgentUnavailable(
            f"{agent.name} has no sandbox of its own that would keep it to this folder; "
            f"use --wrap with a container or examples/bwrap.sh, or --full-permissions"
            if agent.permissions == "edit"
            else f"{agent.name} cannot be judge or planner: it has no `read` permissions"
        )
    if agent.permissions == "read" or not here or sys.platform != "linux":
        return
    lacking = [name for name in cli.sandbox_needs if shutil.which(name) is None]
    if lacking:
        missing = " and ".join(lacking)
        raise AgentUnavailable(
            f"{agent.name} cannot keep to the workspace here: its own sandbox needs "
            f"{missing}; install that, or use --full-permissions (behind --wrap, if you "
            f"like)"
        )


def credentials(agent: Agent, env: Mapping[str, str]) -> tuple[str, str]:
    """What is billed in an environment: the name of an API key, which takes precedence,
    and the place of a login; each empty if there is none. Neither is known of an agent
    that keeps its login elsewhere."""
    home = Path(env.get("HOME") or os.path.expanduser("~"))
    env = {**env, **agent.variables(env)}
    keys = [name for name in agent.cli.keys if env.get(name)]
    logins = []
    for name in agent.cli.logins:
        variable = name.removeprefix("$")
        if env.get(variable) or (home / name).is_file():
            logins.append(name)
    return "".join(keys[:1]), "".join(logins[:1])


def known_credentials(agent: Agent) -> str:
    """What `credentials` looks for, in words."""
    names = (*agent.cli.keys, *agent.cli.logins)
    return " or ".join(name.removeprefix("$") for name in names)


def agent_env(home: Path) -> dict[str, str]:
    """The environment of agents, checks and hooks of the project at `home`: ralph's
    own, without git's variables for a repository and ralph's own virtual
    environment."""
    env = settings_env()
    # Not whole files of settings: an agent's `git config --global` would write there.
    for name in ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "OLDPWD"):
        env.pop(name, None)
    venv = Path(os.path.realpath(sys.prefix))
    if sys.prefix != sys.base_prefix and not venv.is_relative_to(home):
        env["PATH"] = path_without(f"{venv}/bin", env.get("PATH", os.defpath), home)
    return {**env, "GIT_TERMINAL_PROMPT": "0"}
