"""`ralph doctor`: what would spoil the night, found now, and how to start one every night."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import chain
from typing import Any

from _ralph import agents, beside, place, prd, refusals, schedule, session, text
from _ralph.agents import Agent
from _ralph.awake import cannot_stay_awake
from _ralph.checks import every_check
from _ralph.ends import BadInput, Exit, RalphError, translate
from _ralph.git import git
from _ralph.model import Findings, Plan
from _ralph.process import Control
from _ralph.progress import replay
from _ralph.run import Options, Run, load_plan
from _ralph.sandbox import sandbox_for


def examine(options: Options, control: Control, echo: Callable[[str], Any], probe: bool = False) -> int:
    """Print one line for every thing that a night needs, then its schedule; the exit status."""
    run, found = _look(options, control)
    parts = _parts(run, probe) if run else ()
    levels = []
    for level, line in chain(found, chain.from_iterable(_told(*part) for part in parts)):
        if control.stop_now or control.interrupts:
            return 128 + (control.stop_signal or signal.SIGINT)
        echo(f"{level:7} {text.one_line(line, 500)}")
        levels.append(level)
    errors, warnings = levels.count("error"), levels.count("warning")
    if errors:
        echo(f"\n{text.count(errors, 'error')}; once mended, `ralph doctor` says how to run it every night")
        return Exit.USAGE
    echo("\nno errors" + (f", {text.count(warnings, 'warning')} above" if warnings else ""))
    with contextlib.suppress(BadInput):  # it stands above
        echo("\n" + schedule.schedule_for(run).text() if run else "")
    return Exit.COMPLETE


def _look(options: Options, control: Control) -> tuple[Run | None, Findings]:
    """The workspace as far as it can be read, without git or without its plan, if need be; and what
    was in the way."""
    found: Findings = ()
    for with_git in dict.fromkeys((options.git, False)):
        try:
            run = _read(replace(options, git=with_git))
        except Exception as error:
            found = found or [("error", f"workspace: {translate(error)}")]
        else:
            run.control = control
            return run, found
    return None, found


def _read(options: Options) -> Run:
    paths = place.locate(options.prd, options.git)
    try:
        plan = load_plan(paths, options)
    except (RalphError, OSError):
        plan = Plan(paths.prd, "", None, None, (), paths.root.name)
    return session.glance(options, paths, plan, replay(place.journal_of(paths).records(), plan.key))


def _told(name: str, part: Findings) -> Findings:
    """What one part of the examination found, by its name. An error in it is one more; the others go on."""
    try:
        for level, line in part:
            yield level, f"{name}: {line}"
    except Exception as error:
        yield "error", f"{name}: {translate(error)}"


def _parts(run: Run, probe: bool) -> Iterator[tuple[str, Findings]]:
    """All that is looked at, part by part."""
    yield "plan", _plan(run)
    yield "lock", _lock(run)
    yield "git", _git(run) if run.options.git else _folder(run)
    team: list[Agent] = []
    yield "agent", _workers(run, team)
    yield "judge", _judge(run, team)
    yield "agents", _known_agents(run)
    yield "sandbox", _sandbox(run)
    yield "disk", _disk(run)
    yield "awake", _awake()
    yield "check", _checks(run)
    yield "cron", schedule.surroundings(run, team)
    if probe:
        yield "probe", schedule.turns(run, team)


# ---------------------------------------------------------------- the workspace


def _plan(run: Run) -> Findings:
    plan = load_plan(run.paths, run.options)
    passed = sum(task.passed for task in plan.tasks)
    yield "ok", f"{plan.project}, {passed} of {text.count(len(plan.tasks), 'task')} passed"
    for said in prd.misspelt(plan):
        yield "warning", said
    if asked := prd.open_questions(plan):
        what = text.count(len(asked), "open question")
        yield "warning", f"{what}, the first: {asked[0][0]}; a run follows what the planner proposed"
    if bare := [task.id for task in plan.tasks if not task.passed and not task.checks]:
        yield "warning", f"no check of their own: {text.few(bare)}; any change can pass them: give each one"
    refusals.try_templates(run)


def _lock(run: Run) -> Findings:
    if holder := place.running(run.paths):
        said = f"a loop runs here (pid {holder['pid']}), so no check was run; `ralph stop` ends it"
        yield "warning", said
    else:
        yield "ok", "free"


def _folder(run: Run) -> Findings:
    yield "warning", "off; only a task's own checks that go from red to green can prove work"


def _git(run: Run) -> Findings:
    version = os.fsdecode(git(run.paths.root, "--version")).split()[2]
    if tuple(int(part) for part in version.split(".")[:2]) < (2, 36):
        yield "error", f"{version} is too old to run commit hooks; 2.36 or newer is needed"
    if place.running(run.paths) is None:
        yield from _tree(run)
    refusals.refuse_loose(run)
    here = run.branch.removeprefix("refs/heads/")
    if run.plan.branch not in (None, here):
        refusals.refuse_other_plan(run, run.plan.branch)
    fresh = not here or refusals.on_default_branch(run.git_tree)
    where = run.plan.branch or (place.own_branch(run.plan) if fresh else here)
    hooks = f", commit hooks: {', '.join(found)}" if (found := run.git_tree.hooks()) else ""
    yield "ok", f"{version}, work on {where}{hooks}"


def _tree(run: Run) -> Findings:
    if (run.paths.private / "resetting").exists():
        yield "warning", "a reset of the files was cut off; `ralph run` ends it and parks what stands here"
        return
    run.git_tree.begin(resuming=True)
    if refusals.unfinished(run.tree, run.history):
        yield "ok", "unfinished work of the last attempt lies in the tree; `ralph run` goes on with it"
    else:
        refusals.refuse_unfinished(run.git_tree)


def _checks(run: Run) -> Findings:
    if place.running(run.paths) or (run.options.sandbox and not run.box):
        return  # they would disturb the loop, or run outside of the sandbox
    if setup := run.plan.settings.get("setup"):
        yield "ok", f"setup {setup!r} was not run; a run begins with it"
    for_all = {check.command for check in run.plan.checks}
    for result in beside.run_all(run, every_check(run.plan), "doctor"):
        said = f"{result.name}: {'green' if result.ok else 'red'} now ({result.seconds:.1f} s)"
        why = "" if result.ok else f": {text.last_line(result.tail)}"
        if result.exit in (126, 127):
            yield "error", f"{said}{why}; it cannot run here, install what it needs"
        elif result.ok or result.command not in for_all:
            yield "ok", said
        else:
            yield "warning", f"{said}{why}; it does not count until it has been green once; mend it first"


# ---------------------------------------------------------------- agents


def _workers(run: Run, team: list[Agent]) -> Findings:
    """Every agent that the tasks can need, once; they are put into `team`."""
    team += refusals.workers(run) or [run.agent()]
    for agent in team:
        try:
            yield from chain(_agent(run, agent), _permissions(run, agent))
        except RalphError as error:  # the next one is still looked at
            yield "error", str(error)


def _judge(run: Run, team: list[Agent]) -> Findings:
    if judge := run.judge:
        team.append(judge)
        yield from _agent(run, judge)


def _agent(run: Run, agent: Agent) -> Findings:
    refusals.require_agent(run, agent)
    yield "ok", f"{agent.command} at {shutil.which(agent.program)}{_version(agent)}"
    key, login = agents.purse(agent, os.environ)
    if key and login:
        yield "warning", f"{key} is billed, and not the subscription ({login}); unset it to use that"
    elif key:
        yield "ok", f"{key} is set and is billed"
    elif login:
        yield "ok", f"the login in {login} pays; no key in the environment takes its place"
    elif agent.row.get("keys"):
        wanted = agents.known_logins(agent)
        yield "warning", f"no login found here ({wanted}); log in, unless it knows one of its own"


def _version(agent: Agent) -> str:
    if not agent.row.get("version"):
        return ""
    import subprocess_tee

    words = [agent.program, *agent.row["version"][1:]]
    command = f"timeout 30 {shlex.join(words)}" if shutil.which("timeout") else shlex.join(words)
    probe = subprocess_tee.run(command, shell=True, tee=False, quiet=True, check=False)
    return ", " + text.one_line((probe.stdout or probe.stderr or "no version told").strip(), 60)


def _permissions(run: Run, agent: Agent) -> Findings:
    loose = set(agent.words) & set(agent.row["permissions"].get("full", []))
    if agent.permissions != "full" and loose:
        yield "warning", f"{' '.join(loose)} gives it everything; say so: --full-permissions"
    if agent.name in run.plan.settings.get("agents", {}):
        yield "warning", f"its row is the plan's own; read it: {shlex.join(agent.row['argv'])}"
    elif agent.name == "plain":
        yield "ok", "permissions: a command of your own; it runs as given, with all that you may do"
    elif agent.permissions == "sandbox":
        yield "ok", "permissions: full, inside of ralph's sandbox"
    elif agent.permissions == "full":
        yield "warning", "permissions: full; it may do all that you may, --sandbox bwrap would bound it"
        needed = agent.row.get("root_needs")
        if needed and os.geteuid() == 0 and not os.environ.get(needed):
            yield "error", f"as root, {agent.name} refuses full permissions without {needed}=1"
    else:
        means = agent.row.get("edit_means", "it works in this folder, inside its own sandbox")
        yield "ok", f"permissions: edit; {means}"


def _known_agents(run: Run) -> Findings:
    """Every row, whether it is installed, and what it may do without full permissions."""
    told = []
    for name, row in run.rows.items():
        if name:
            means = row.get("edit_means", "nothing") if "edit" in row.get("permissions", {}) else "nothing"
            told.append(f"{name} ({means if shutil.which(row['argv'][0]) else 'not installed'})")
    yield "ok", f"ralph knows {'; '.join(told)}"


# ---------------------------------------------------------------- the machine


def _sandbox(run: Run) -> Findings:
    if run.options.sandbox:
        session.open_sandbox(run)
        network = "open" if run.box and run.box.network else "cut"
        yield "ok", f"bubblewrap works, the network is {network}; checks run inside it here, too"
        return
    try:
        sandbox_for(run.paths.root, run.paths.private, [], run.rows, set(), True)
        yield "ok", "off; --sandbox bwrap would work here"
    except RalphError as error:
        yield "ok", f"off, and not possible here: {error}"


def _disk(run: Run) -> Findings:
    free = shutil.disk_usage(run.paths.root).free / 1e9
    advice = "; make room, a run stops when the disk is full" if free < 1 else ""
    yield "warning" if advice else "ok", f"{free:.1f} GB free{advice}"
    for folder in (run.paths.root, run.paths.prd.parent):
        if not os.access(folder, os.W_OK):
            yield "error", f"{folder} may only be read; ralph must be able to write there"


def _awake() -> Findings:
    if why := cannot_stay_awake():
        yield "warning", f"the machine may fall asleep during a run ({why}); see to its settings"
    else:
        yield "ok", "the machine can be kept from falling asleep during a run"
