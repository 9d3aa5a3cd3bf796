"""`ralph doctor`: what would spoil the night, found now, and how to start one every night."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any

from _ralph import agents, attempt, place, prd, rehearsal, session, text
from _ralph.agents import Agent
from _ralph.awake import cannot_stay_awake
from _ralph.checks import every_check
from _ralph.ends import Exit, RalphError
from _ralph.git import git
from _ralph.model import Finding, Findings, Plan, Task
from _ralph.process import Control
from _ralph.progress import replay
from _ralph.sandbox import sandbox_for
from _ralph.schedule import Schedule, schedule_for
from _ralph.session import Options, Run
from _ralph.workspace import GitTree


def examine(options: Options, control: Control, echo: Callable[[str], Any], probe: bool = False) -> int:
    """Print one line for every thing that a night needs, then its schedule; the exit status."""
    control.stop_at_interrupt()
    run, found = _look(options, control)
    schedule, more = _schedule(options, run)
    errors = warnings = 0
    for level, line in chain(found, more, _findings(options, run, schedule, probe) if run else ()):
        if control.stop_now or control.interrupts:
            return 128 + (control.stop_signal or signal.SIGINT)
        echo(f"{level:7} {text.one_line(line, 500)}")
        errors += level == "error"
        warnings += level == "warning"
    if errors:
        echo(f"\n{text.count(errors, 'error')}; once mended, `ralph doctor` says how to run it every night")
        return Exit.USAGE
    echo("\nno errors" + (f", {text.count(warnings, 'warning')} above" if warnings else ""))
    if schedule:
        echo("\n" + schedule.text())
    return Exit.COMPLETE


def _look(options: Options, control: Control) -> tuple[Run | None, list[Finding]]:
    """The workspace as far as it can be read: without git or without its plan, if need be."""
    found: list[Finding] = []
    for with_git in dict.fromkeys((options.git, False)):
        try:
            run = _read(replace(options, git=with_git), found)
        except Exception as error:
            found.append(_trouble("workspace", error))
        else:
            run.control = control
            return run, list(dict.fromkeys(found))
    return None, list(dict.fromkeys(found))


def _read(options: Options, found: list[Finding]) -> Run:
    paths = place.locate(options.prd, options.git)
    try:
        plan = session.load_plan(paths, options)
        passed = sum(task.passed for task in plan.tasks)
        found.append(
            ("ok", f"plan: {plan.project}, {passed} of {text.count(len(plan.tasks), 'task')} passed")
        )
    except (RalphError, OSError) as error:
        found.append(_trouble("plan", error))
        plan = Plan(paths.prd, "", None, None, (), paths.root.name)
    return session.glance(options, paths, plan, replay(place.journal_of(paths).records(), plan))


def _schedule(options: Options, run: Run | None) -> tuple[Schedule | None, list[Finding]]:
    try:
        return (schedule_for(options, run.paths.root) if run else None), []
    except Exception as error:
        return None, [_trouble("schedule", error, "warning")]


def _findings(options: Options, run: Run, schedule: Schedule | None, probe: bool) -> Findings:
    holder = place.running(run.paths)
    team: list[tuple[str, Agent]] = []
    parts: list[tuple[str, Findings]] = [
        ("plan", _plan_findings(run)),
        ("lock", _lock_findings(holder)),
        ("git", _git_findings(run) if run.options.git else [] if options.git else _folder_findings(run)),
        ("agent", _team_findings(run, team)),
        ("sandbox", _sandbox_findings(run)),
        ("machine", _machine_findings(run)),
        ("check", [] if holder else _check_findings(run)),
        ("cron", rehearsal.surroundings(run, schedule, team) if schedule else []),
        ("probe", rehearsal.turns(run, schedule, team) if probe and schedule else []),
    ]
    for name, part in parts:
        try:
            yield from part
        except Exception as error:
            yield _trouble(name, error)


def _trouble(part: str, error: Exception, level: str = "error") -> Finding:
    """What went wrong with one part of the examination; the others go on."""
    if os.environ.get("RALPH_DEBUG"):
        raise error
    if isinstance(error, RalphError):
        return level, f"{part}: {error}"
    if isinstance(error, OSError) and error.strerror:
        return level, f"{part}: {error.strerror}: {error.filename or 'here'}"
    return level, f"{part}: {type(error).__name__}: {error}; RALPH_DEBUG=1 shows where"


# ---------------------------------------------------------------- the workspace


def _plan_findings(run: Run) -> Findings:
    for said in prd.misspelt(run.plan):
        yield "warning", f"plan: {said}"
    if asked := prd.open_questions(run.plan):
        what = text.count(len(asked), "open question")
        yield "warning", f"plan: {what}, the first: {asked[0][0]}; a run follows what the planner proposed"
    bare = [task.id for task in run.plan.tasks if not task.passed and not task.checks]
    if bare:
        yield (
            "warning",
            f"plan: no check of their own: {text.few(bare)}; any change can pass them: give each one",
        )
    if run.plan.tasks:
        session.try_templates(run)


def _lock_findings(holder: Mapping[str, Any] | None) -> Findings:
    if holder:
        yield (
            "warning",
            f"lock: a loop runs here (pid {holder['pid']}), so no check was run; `ralph stop` ends it",
        )
    else:
        yield "ok", "lock: free"


def _folder_findings(run: Run) -> Findings:
    yield "warning", "git: off; only a task's own checks that go from red to green can prove work"
    for name in ("judge", "protect"):
        if run.judge if name == "judge" else run.plan.settings.get(name):
            yield "error", f"git: {name} needs it; remove {name}, or run without --no-git"


def _git_findings(run: Run) -> Findings:
    assert isinstance(run.tree, GitTree)
    version = os.fsdecode(git(run.paths.root, "--version")).split()[2]
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 36):
        yield "error", f"git: {version} is too old to run commit hooks; 2.36 or newer is needed"
    if not run.tree.head():
        yield "error", "git: no commit yet; git add -A && git commit -m start"
        return
    if not git(run.paths.root, "var", "GIT_COMMITTER_IDENT", check=False):
        yield "error", "git: user.name and user.email are not set; git config user.name and user.email"
        return
    if place.running(run.paths) is None:
        yield from _tree_findings(run, run.tree)
    if loose := run.tree.untracked_protected(list(run.plan.settings.get("protect", []))):
        yield "error", f"protect: {loose[0]} is not in git, so it could not be put back; commit it"
    here = run.branch.removeprefix("refs/heads/")
    there = (
        run.tree.refs.plan_on(run.plan.branch, run.paths.prd) if run.plan.branch not in (None, here) else None
    )
    if there and not session.same_plan(run, there):
        yield (
            "error",
            f"git: the branch {run.plan.branch} holds another plan; change branchName, or delete it",
        )
    fresh = not here or session.on_default_branch(run.tree)
    where = run.plan.branch or (place.own_branch(run.plan) if fresh else here)
    hooks = f", commit hooks: {', '.join(found)}" if (found := run.tree.hooks()) else ""
    yield "ok", f"git: {version}, work on {where}{hooks}"


def _tree_findings(run: Run, tree: GitTree) -> Findings:
    if (run.paths.private / "resetting").exists():
        yield (
            "warning",
            "git: a reset of the files was cut off; `ralph run` ends it and parks what stands here",
        )
        return
    tree.begin(resuming=True)
    if session.unfinished(tree, run.history):
        yield "ok", "git: unfinished work of the last attempt lies in the tree; `ralph run` goes on with it"
        return
    if word := tree.refs.halfway():
        yield "error", f"git: a {word} is under way; end it first: git {word} --abort"
    if modified := tree.modified():
        yield "error", f"git: modified tracked files ({text.few(modified)}); commit or stash them"


def _check_findings(run: Run) -> Findings:
    if run.options.sandbox and not run.box:
        return  # they would run outside of it
    if setup := run.plan.settings.get("setup"):
        yield "ok", f"setup: {setup!r} was not run; a run begins with it"
    for_all = {check.command for check in run.plan.checks}
    for result in attempt.run_all(run, every_check(run.plan), "doctor"):
        said = f"check: {result.name}: {'green' if result.ok else 'red'} now ({result.seconds:.1f} s)"
        why = "" if result.ok else f": {text.last_line(result.tail)}"
        if result.exit in (126, 127):
            yield "error", f"{said}{why}; it cannot run here, install what it needs"
        elif result.ok or result.command not in for_all:
            yield "ok", said
        else:
            yield "warning", f"{said}{why}; it does not count until it has been green once; mend it first"


# ---------------------------------------------------------------- agents


def _team_findings(run: Run, team: list[tuple[str, Agent]]) -> Findings:
    """Look at every agent that this plan can need, once in each role; they are added to `team`."""
    tasks: list[Task | None] = [task for task in run.plan.tasks if not task.passed] or [None]
    workers = {agent.command: agent for agent in map(run.agent, tasks)}
    team += [("agent", agent) for agent in workers.values()]
    team += [("judge", run.judge)] if run.judge else []
    for role, agent in team:
        try:
            yield from _agent_findings(run, role, agent)
        except RalphError as error:
            yield _trouble(role, error)
    yield "ok", f"agents that ralph knows: {_known_agents(run)}"


def _agent_findings(run: Run, role: str, agent: Agent) -> Findings:
    session.require_agent(run, agent)
    yield "ok", f"{role}: {agent.command} at {shutil.which(agent.program)}{_version(agent)}"
    if role == "agent":
        yield from _permission_findings(run, agent)
    key, login = agents.purse(agent, os.environ)
    if key and login:
        yield "warning", f"purse: {key} is billed, and not the subscription ({login}); unset it to use that"
    elif key:
        yield "ok", f"purse: {key} is set and is billed"
    elif login:
        yield "ok", f"purse: the login in {login}; no key in the environment takes its place"
    elif agent.row.get("keys"):
        wanted = agents.known_logins(agent)
        yield "warning", f"purse: no login found here ({wanted}); log in, unless it knows one of its own"


def _version(agent: Agent) -> str:
    if not agent.row.get("version"):
        return ""
    import subprocess_tee

    words = [agent.program, *agent.row["version"][1:]]
    command = f"timeout 30 {shlex.join(words)}" if shutil.which("timeout") else shlex.join(words)
    probe = subprocess_tee.run(command, shell=True, tee=False, quiet=True, check=False)
    return ", " + text.one_line((probe.stdout or probe.stderr or "no version told").strip(), 60)


def _permission_findings(run: Run, agent: Agent) -> Findings:
    loose = set(agent.words) & set(agent.row["permissions"].get("full", []))
    if agent.permissions != "full" and loose:
        word = " ".join(loose)
        yield "warning", f"permissions: {word} gives the agent everything; say so: --full-permissions"
    if agent.name in run.plan.settings.get("agents", {}):
        own = shlex.join(agent.row["argv"])
        yield "warning", f"permissions: the row {agent.name} is the plan's own; read it: {own}"
    elif agent.name == "plain":
        yield "ok", "permissions: a command of your own; it runs as given, with all that you may do"
    elif agent.permissions == "sandbox":
        yield "ok", "permissions: full, inside of ralph's sandbox"
    elif agent.permissions == "full":
        yield (
            "warning",
            "permissions: full; it may do anything that you may do, --sandbox bwrap would bound it",
        )
        needed = agent.row.get("root_needs")
        if needed and os.geteuid() == 0 and not os.environ.get(needed):
            yield "error", f"permissions: as root, {agent.name} refuses full permissions without {needed}=1"
    else:
        means = agent.row.get("edit_means", "it works in this folder, inside its own sandbox")
        yield "ok", f"permissions: edit; {means}"


def _known_agents(run: Run) -> str:
    """Every row, whether it is installed, and what it may do without full permissions."""
    told = []
    for name, row in run.rows.items():
        if name:
            means = row.get("edit_means", "nothing") if "edit" in row.get("permissions", {}) else "nothing"
            told.append(f"{name} ({means if shutil.which(row['argv'][0]) else 'not installed'})")
    return "; ".join(told)


# ---------------------------------------------------------------- the machine


def _sandbox_findings(run: Run) -> Findings:
    if run.options.sandbox:
        session.open_sandbox(run)
        network = "open" if run.box and run.box.network else "cut"
        yield "ok", f"sandbox: bubblewrap works, the network is {network}; checks run inside it here, too"
        return
    try:
        sandbox_for(run.paths.root, run.paths.private, [], run.rows, set(), True)
        yield "ok", "sandbox: off; --sandbox bwrap would work here"
    except RalphError as error:
        yield "ok", f"sandbox: off, and not possible here: {error}"


def _machine_findings(run: Run) -> Findings:
    free = shutil.disk_usage(run.paths.root).free / 1e9
    advice = "; make room, a run stops when the disk is full" if free < 1 else ""
    yield "warning" if advice else "ok", f"disk: {free:.1f} GB free{advice}"
    for folder in (run.paths.root, run.paths.prd.parent):
        if not os.access(folder, os.W_OK):
            yield "error", f"disk: {folder} may only be read; ralph must be able to write there"
    if why := cannot_stay_awake():
        yield "warning", f"awake: the machine may fall asleep during a run ({why}); see to its settings"
    else:
        yield "ok", "awake: the machine can be kept from falling asleep during a run"
