"""What a run needs before its first check: the plan, git, the branch, agents, a Python
of its own. `ralph doctor` looks at the same."""

from __future__ import annotations

import os
import re
from pathlib import Path

from _ralph import gone, text
from _ralph.agents import registry
from _ralph.agents.cli import Agent
from _ralph.agents.prompt import compile_prompt, render_message
from _ralph.agents.team import Agents
from _ralph.checks import elsewhere
from _ralph.checks.places import Places
from _ralph.errors import BadInput
from _ralph.files import table
from _ralph.git import patterns
from _ralph.git.branch import AWAY, Branch
from _ralph.git.git import BULK, Git, uncommitted
from _ralph.model import NO_LIMIT, Findings, Plan
from _ralph.process.prefix import Prefix, words_of
from _ralph.state.limits import Limits
from _ralph.state.settings import Settings

OLDEST = (2, 38)
"""The first git with `merge-tree --write-tree`."""
RUNNER_FILES = {
    name for row in table("detect.json")["runners"] for name in row.get("protect", [])
}
"""Patterns of files that decide what a runner does. They are protected before there are
any."""


def require_agent(settings: Settings, places: Places, agent: Agent) -> list[str]:
    """A warning if an agent reports only after the attempt what is limited. BadInput or
    AgentUnavailable if it is missing, lacks permissions, or does not report that at
    all."""
    registry.require(agent, places.here)
    own = [task.limits.usd for task in settings.plan.tasks if not task.passed]
    limited = []
    if settings.limits.in_dollars or min(own, default=NO_LIMIT) < NO_LIMIT:
        limited.append("dollars")
    if settings.limits.in_tokens:
        limited.append("tokens")
    for unit in limited:
        if unit not in agent.cli.reports:
            raise BadInput(
                f"a limit in {unit} cannot be enforced: {agent.command} does not "
                f"report {unit}; use --max-hours or --max-iterations, or an agent that "
                f"reports them"
            )
    if limited and agent.cli.reports_late:
        late = f"{agent.name} reports usage only when it exits"
        return [f"{late}, so an attempt can exceed the limit"]
    return []


def who_pays(allowed: Limits, agent: Agent) -> Findings:
    """Which key or login pays for an agent, and whether anything limits what a key is
    billed."""
    key, login = registry.credentials(agent, os.environ)
    if key and login:
        advice = "unset it to use the subscription"
        yield "note", f"{key} is billed instead of the subscription ({login}); {advice}"
    elif key:
        yield "say", f"{agent.name}: {key} is billed"
    elif login:
        yield "say", f"{agent.name}: the login in {login} pays"
    elif agent.cli.keys:
        wanted = registry.known_credentials(agent)
        advice = "log in, unless it has one elsewhere"
        yield "warning", f"no login found ({wanted}); {advice}"
    if key and agent.cli.reports and not (allowed.in_dollars or allowed.in_tokens):
        option = "--max-usd" if "dollars" in agent.cli.reports else "--max-tokens"
        advice = f"set {option}, or a budget in the plan"
        yield "note", f"nothing limits what {key} is billed; {advice}"


def denied_paths(plan: Plan, agent: Agent) -> list[str]:
    """What open tasks name in their checks and `allow`, and an agent may not write
    without full permissions."""
    if agent.name != "claude" or agent.permissions != "edit":
        return []
    found = []
    for task in plan.tasks:
        words = [*task.allow, *(check.command for check in task.checks)]
        if not task.passed:
            found += re.findall(r"\.claude/[\w./*-]*", " ".join(words))
    return [*dict.fromkeys(found)]


def absent_submodules(git: Git) -> list[str]:
    """A warning of submodules that are not there at home, so that no place has them."""
    if not (git.root / ".gitmodules").is_file():
        return []
    listed = git.maybe("submodule", "status") or ""
    names = [line.split()[1] for line in listed.splitlines() if line.startswith("-")]
    if not names:
        return []
    advice = "git submodule update --init --recursive"
    return [f"submodules that are not there: {text.few(names)}; {advice}"]


def require_plan(settings: Settings) -> list[str]:
    """Warnings of keys and options that are gone. BadInput for a template of prompts or
    commit messages that cannot be rendered, and where the plan or the notes cannot be
    written."""
    folder = Path(os.path.realpath(settings.paths.prd)).parent
    for path in (folder, settings.paths.progress):
        if path.exists() and not os.access(path, os.W_OK):
            raise BadInput(f"you may not write to {path}, where ralph keeps its state")
    where = f"{settings.paths.prd.name}: commit"
    for task in settings.plan.tasks:
        if not task.passed:
            values = {"task": task, "iteration": 1, "attempt": 1}
            render_message(settings.commit, values, f"{where}, for {task.id}")
    template = settings.prompt
    if not template.is_file():
        raise BadInput(
            f"there is no prompt template {template}; `ralph init --eject` writes one "
            f"to start from"
        )
    compile_prompt(template)
    return [*settings.options.warnings, *gone.keys_in(settings.plan)]


def require_branch(git: Git, branch: Branch) -> None:
    """BadInput if git cannot work here, or nothing could be committed on a branch of
    this name."""
    require_git(git)
    if not git.maybe("check-ref-format", "--branch", branch.name):
        raise BadInput(
            f"{branch.name!r} is not a valid branch name; use another with --branch or "
            f"branchName"
        )
    seat = branch.seat
    if seat:
        raise BadInput(
            f"{branch.name} is checked out in {seat}, where it would change under "
            f"somebody's hands; {AWAY}"
        )


def require_git(git: Git) -> None:
    """BadInput if git has no identity or is too old."""
    if not git.maybe("var", "GIT_COMMITTER_IDENT"):
        raise BadInput(
            "git does not know who commits here; set git config user.name and "
            "user.email"
        )
    version = git("--version").split()[2]
    major, minor = version.split(".")[:2]
    if (int(major), int(minor)) < OLDEST:
        raise BadInput(f"git {version} is too old; 2.38 is needed")


def unseen(places: Places, agents: Agents) -> list[str]:
    """A warning of uncommitted files, which the agent will not see, and of one that a
    check names."""
    git = places.home
    own = {*places.state(), ".gitignore", ".worktreeinclude"}
    for command in agents.commands():  # agents run from here
        own |= {git.name_of(Path(word)) for word in command.split()}
    names = [name for name in uncommitted(git) if name not in own]
    if not names:
        return []
    said = f"not committed, so the agent will not see them: {text.few(names)}"
    checks = places.settings.plan.every_check
    words = re.findall(r"[\w.-]+", " ".join(check.command for check in checks))
    for name in names:
        if os.path.basename(name) in words:
            return [f"{said}; a check names {name}: commit it"]
    return [said]


def unprotected(plan: Plan, git: Git) -> list[str]:
    """Warnings of `protect` patterns that match nothing, and of tests that none
    covers."""
    if not plan.tasks:
        return []
    protect = list(plan.settings.get("protect", []))
    words = ("ls-files", "-c", "-o", "--exclude-standard", "-z")
    names = git.names(*words, timeout=BULK)
    known = patterns.plain_names(protect) | RUNNER_FILES
    loose = [one for one in {*protect} - known if not patterns.matching([one], names)]
    said = []
    if loose:
        none = text.few(sorted(loose))
        said.append(f"`protect` has patterns that match no file: {none}")
    tests = patterns.uncovered_tests(protect, names)
    if tests:
        said.append(f"not protected, so an agent may change them: {text.few(tests)}")
    return said


def require_own_files(places: Places) -> None:
    """BadInput where checks would test something else than the work: files of home, or
    a Python in use that has the project installed from there. What `setup` makes is
    looked at when it has run."""
    if not places.here:
        return
    root, plan = places.paths.root, places.settings.plan
    elsewhere.require_own_files(plan, root, registry.agent_env(root))
    led = "" if plan.setup else shared_python(places, places.paths.room)
    if led:
        raise BadInput(led)


def shared_python(places: Places, place: Path) -> str:
    """What is wrong with the Python that checks use in a place; nothing if that is its
    own."""
    commands = []
    if places.here:
        commands = [check.command for check in places.settings.plan.every_check]
    env, paths = places.env(place), places.paths
    return elsewhere.shared_python(env, paths.places, paths.root, commands)


def open_prefix(places: Places) -> list[str]:
    """Make what stands before each command, if anything does, and end what a killed run
    left behind it; lines about what could not be ended. BadInput for words that nobody
    can run."""
    words, end = places.settings.wrap
    if not words:
        return []
    places.prefix = Prefix(
        places.paths.private / "behind",
        words_of(words, "wrap"),
        words_of(end, "wrap.end") if end else (),
        places.home.common / "objects",
    )
    return places.prefix.end_left()
