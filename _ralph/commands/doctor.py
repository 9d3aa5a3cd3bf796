"""`ralph doctor`: everything that a run needs, looked at before it begins."""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from _ralph import text
from _ralph.agents import registry, running
from _ralph.agents.cli import Agent
from _ralph.checks import missing, opening
from _ralph.checks.hooks import message_for
from _ralph.checks.places import setup_failed
from _ralph.checks.results import Results
from _ralph.checks.running import Checked, Job, run_checks
from _ralph.checks.view import View
from _ralph.commands import detect, init
from _ralph.errors import Exit, RalphError, StopNow, translate
from _ralph.files import resource
from _ralph.git.git import freeze_settings, in_folder
from _ralph.loop.before import cannot_start, refused
from _ralph.loop.loop import Loop
from _ralph.loop.start import made, untrusted
from _ralph.model import (
    AgentResult,
    Check,
    CheckResult,
    Finding,
    Findings,
    Outcome,
    Plan,
    Task,
)
from _ralph.process.process import Command, Control, run_process
from _ralph.show.live import Terminal
from _ralph.state import layout, limits, lock, prd, summary
from _ralph.state.history import RunHistory
from _ralph.state.options import Options, load_plan, validated

_TEE = "import subprocess_tee, sys; print(subprocess_tee.run(sys.argv[1], tee=False, quiet=True).stdout)"
"""Python that prints what a command does. subprocess-tee has no deadline, so its
process has one."""
_PATIENCE = 30.0
"""Seconds that an agent may take to say its version."""
_DOCTORS_OWN = ("--probe", "-v", "--verbose")
_TURN = 120.0
"""Seconds that an agent may take for one cheap turn."""


def examine(
    options: Options,
    control: Control,
    view: Terminal,
    echo: Callable[[str], object],
    try_agents: bool = False,
) -> int:
    """Print each finding as it is found, what is fine only if `verbose`, then how to go
    on; the exit status. BadInput outside of a repository."""
    loop = _look(options, control)
    parts = dict(_PARTS)
    if try_agents:
        parts["probe"] = _probe
    errors = warnings = 0
    for name, part in parts.items():
        view.doing(name)
        for level, line in _caught(part(loop)):
            errors += level == "error"
            warnings += level == "warning"
            if level != "ok" or options.verbose:
                view.clear()
                lines = text.clean(f"{name}: {line}").strip().splitlines()
                echo(f"{level:7} " + "\n        ".join(lines))
        if control.stop_now or control.interrupts:
            return 128 + (control.stop_signal or signal.SIGINT)
    view.clear()
    if errors:
        found = text.count(errors, "error")
        echo(f"\n{found}; fix that, then run `ralph doctor` again")
        return Exit.USAGE
    echo(f"\nno errors, {text.count(warnings, 'warning')} (-v says what is fine)")
    echo(f"to start it: {shlex.join(['ralph', 'run', *_given()])}")
    echo(f"every night: `crontab -e`, with this line\n{crontab_line(options)}")
    return Exit.COMPLETE


def crontab_line(options: Options) -> str:
    """The line with which cron runs this plan on working days, with the options that
    doctor got."""
    program = os.path.abspath(sys.argv[0])
    words = [program, "run"]
    if program.endswith(".py"):
        words.insert(0, sys.executable)
    if not options.until:
        words += ["--until", "07:00"]
    words += _given()
    folder = os.getcwd()
    path = os.environ.get("PATH", os.defpath)
    log = f"~/ralph-{text.slug(os.path.basename(folder))}.log"
    line = (
        f"cd {shlex.quote(folder)} && PATH={shlex.quote(path)} "
        f"{shlex.join(words)} >> {log} 2>&1"
    )
    # In a crontab, a bare % ends the line.
    return "30 22 * * 1-5 " + line.replace("%", r"\%")


def _given() -> list[str]:
    """The options that doctor got and `ralph run` has, too."""
    return [word for word in sys.argv[2:] if word not in _DOCTORS_OWN]


def _look(options: Options, control: Control) -> Loop:
    """A run to look at; where the plan cannot be read, with none."""
    paths = layout.locate(options.prd)
    plan = Plan(paths.prd, "", None, None, (), paths.root.name)
    with contextlib.suppress(RalphError, OSError):
        plan = validated(prd.load(paths.prd), options)
    return made(options, paths, plan, control, None, "")


def _caught(part: Findings) -> Findings:
    """The findings of one part. An exception in it is an error; the other parts go
    on."""
    try:
        yield from part
    except StopNow:
        return
    except Exception as error:
        yield "error", str(translate(error))


def _warnings(lines: Iterable[str]) -> Findings:
    for line in lines:
        yield "warning", line


# ---------------------------------------------------------------- plan, limits, machine


def _plan(loop: Loop) -> Findings:
    plan = load_plan(loop.paths, loop.options)
    passed = sum(task.passed for task in plan.tasks)
    tasks = text.count(len(plan.tasks), "task")
    yield "ok", f"{plan.project}, {passed} of {tasks} passed"
    if asked := prd.open_questions(plan):
        open = text.count(len(asked), "open question")
        more = "a run follows the planner's proposals"
        yield "warning", f"{open}, the first: {asked[0][0]}; {more}"
    bare = [task.id for task in _open_tasks(plan) if not task.checks]
    if bare:
        advice = "any change passes them, so add one to each"
        yield "warning", f"no check of their own: {text.few(bare)}; {advice}"
    if loop.places.keep and plan.setup and not plan.setup.when:
        anew = "setup has no `when`, so the clean room is made anew for each candidate"
        yield "warning", f"`keep` has no effect: {anew}"
    yield from _warnings(opening.require_plan(loop.settings))
    loop.log.require_file()


def _open_tasks(plan: Plan) -> list[Task]:
    return [task for task in plan.tasks if not task.passed]


def _limits(loop: Loop) -> Findings:
    """What a run could use now, and whether it could begin at all."""
    if loop.history.run is None:  # one that was cut off goes on with what it has used
        loop.history.this_run = RunHistory()
    yield "ok", summary.limits_words(limits.used(loop.limits, loop.history), "a run")
    seconds = loop.history.this_run.seconds
    if stop := limits.spent(loop.limits, loop.history, seconds, time.time()):
        yield "error" if stop.exit == Exit.PERSON else "warning", stop.reason


def _lock(loop: Loop) -> Findings:
    if holder := layout.running(loop.paths):
        who = f"`ralph {holder.what}` is at work here (pid {holder.pid})"
        ends = "`ralph stop` ends a loop"
        yield "warning", f"{who}, so setup and checks were not run; {ends}"
    else:
        yield "ok", "free"


def _git(loop: Loop) -> Findings:
    opening.require_branch(loop.git, loop.branch)
    yield from _warnings(opening.unseen(loop.places, loop.agents))
    yield from _warnings(opening.uncopied(loop.places))
    version = ".".join(map(str, opening.version_of(loop.git)))
    hooks = loop.places.hooks(loop.paths.root)
    more = f", commit hooks: {', '.join(hooks)}" if hooks else ""
    yield "ok", f"{version}, verified work lands on {loop.branch.name}{more}"


def _protect(loop: Loop) -> Findings:
    return _warnings(opening.unprotected(loop.plan, loop.git))


def _python(loop: Loop) -> Findings:
    """Which Python checks and agents use."""
    opening.require_own_files(loop.places)
    if own := registry.own_venv(loop.paths.root):
        without = f"without ralph's own virtual environment, {own}"
        yield "ok", f"setup, checks and agents run {without}"


def _wrap(loop: Loop) -> Findings:
    opening.open_prefix(loop.places)
    if loop.places.prefix:
        yield "ok", f"setup, agents, hooks and checks run behind {loop.places.prefix}"


def _settings(loop: Loop) -> Findings:
    """Files that checks may need and no checkout has."""
    if ignored := init.local_settings(loop.paths.root):
        unseen = (
            f"git ignores {text.few(ignored)}, so agents and checks do not see them"
        )
        advice = f"name in {init.INCLUDE} what they need"
        yield "warning", f"{unseen}; {advice}"
    yield from _warnings(missing.above(loop.paths.places))
    yield from _warnings(untrusted(loop))


def _disk(loop: Loop) -> Findings:
    free = shutil.disk_usage(loop.paths.root).free / 1e9
    if free < 1:
        advice = "make room, a run stops when the disk is full"
        yield "warning", f"{free:.1f} GB free; {advice}"
    else:
        yield "ok", f"{free:.1f} GB free"
    for folder in (loop.paths.root, loop.paths.prd.parent):
        if not os.access(folder, os.W_OK):
            yield "error", f"{folder} is read-only, and ralph must write there"


# ---------------------------------------------------------------- setup and checks


def try_checks(loop: Loop, plan: Plan) -> Checked:
    """What `setup`, the checks of a plan and those of its open tasks say on the commit
    that its first attempt starts from, in the clean room. Only under the lock."""
    checks: dict[str, Check] = {}
    own = [check for task in _open_tasks(plan) for check in task.checks]
    for check in [*plan.every_check, *own]:
        checks[check.command] = check
    commit = loop.branch.beginning()
    job = Job(commit, [*checks.values()], "doctor")
    before, view = loop.settings, loop.view
    loop.use(replace(before, plan=plan))
    loop.places.view = View()
    try:
        return run_checks(loop.places, loop.paths.room, job)
    finally:
        loop.use(before)
        loop.places.view = view


def _places(loop: Loop) -> Findings:
    """Setup and every check in the clean room, as a run does them."""
    if layout.running(loop.paths):
        return  # they would disturb the loop
    yield "trying", "setup and every check, as a run would; that can take minutes"
    commit = loop.branch.beginning()
    with lock.alone(loop.paths, "doctor") as loop.run_id:
        layout.note_plan(loop.paths)
        freeze_settings(loop.git, loop.paths.private)
        left = opening.end_left(loop.places)
        checked = try_checks(loop, loop.plan)
        why, red = "", checked.red_setup
        if not red:
            why = loop.places.missing_hook(loop.paths.room)
            why = why or _refused(loop, commit)
    if red:
        yield "error", setup_failed(red)
        return
    if loop.plan.setup and (
        shared := opening.shared_python(loop.places, loop.plan, loop.paths.room)
    ):
        yield "error", shared
    green = "; setup is green there" if loop.plan.setup else ""
    yield "ok", f"checks run in {loop.paths.room}{green}"
    for result in checked.checks:
        yield _judged(loop, result)
    yield from _warnings(no_proofs(loop.plan, checked))
    if checked.checks:
        said = f"{text.count(len(checked.checks) - len(checked.red), 'check')} green"
        if checked.red:
            names = text.few([result.name for result in checked.red])
            said += f", {len(checked.red)} red: {names}"
        yield "now", said
    if why:
        yield "error", why
    yield from _warnings([*left, *checked.notices])


def _refused(loop: Loop, commit: str) -> str:
    """Why the commit hooks refuse the message of an open task; nothing if they let all
    of them pass."""
    results = Results(loop.paths.private / "doctor.json", "", "", loop.git.tree)
    try:
        for task in _open_tasks(loop.plan):
            said = message_for(loop.places, task, 1, 1)
            if why := refused(loop, results, task, said, commit):
                return why
    finally:
        results.path.unlink(missing_ok=True)
    return ""


def no_proofs(plan: Plan, checked: Checked) -> list[str]:
    """A warning of tasks whose own checks are all green before the work."""
    green = {result.command for result in checked.checks if result.ok}
    ids = []
    for task in _open_tasks(plan):
        commands = {check.command for check in task.checks}
        if commands and commands <= green:
            ids.append(task.id)
    if ids:
        names = text.few(ids)
        return [f"own checks are green already, so they prove nothing: {names}"]
    return []


def _judged(loop: Loop, result: CheckResult) -> Finding:
    """What the result of a check means before any work. One that lacks a program, or a
    module that `setup` would install, says nothing about the work; any other module may
    be what a task is to make."""
    name, took = f"check {result.name}", f"({result.seconds:.1f} s)"
    if result.ok:
        return "ok", f"{name}: green now {took}"
    why = result.said or text.last_line(result.tail)
    red = f"{name}: red now {took}: {why}"
    lacks = f"{name} cannot run here: {why}"
    if not loop.plan.setup:
        hint = detect.setup_hint(result.tail, result.exit, loop.paths.root)
        if hint:
            return hint[0], f"{lacks}; {hint[1]}"
    for_all = result.command in {check.command for check in loop.plan.checks}
    if result.missing:
        return "error" if for_all else "warning", cannot_start(result)
    if not for_all:
        return "ok", red
    if result.exit in (126, 127):
        advice = "a program is missing: install it, or let `setup` do it"
        return "error", f"{lacks}; {advice}"
    if result.is_sound and result.tests:
        return "now", f"{name}: {result.said} before the work"
    weak = "it blocks no task, but passes beside it are weak, and runs end with 4"
    return "warning", f"{red}; {weak}"


# ---------------------------------------------------------------- agents


def _team(loop: Loop) -> list[Agent]:
    """Every agent that the tasks may need, and the judge."""
    workers = loop.agents.workers or [loop.agents.named(loop.agents.commands()[0])]
    return [agent for agent in (*workers, loop.agents.judge) if agent]


def _agents(loop: Loop) -> Findings:
    for agent in _team(loop):
        yield from _caught(_agent(loop, agent))
        yield from _caught(_permissions(loop, agent))


def _agent(loop: Loop, agent: Agent) -> Findings:
    yield from _warnings(
        opening.require_agent(loop.settings, loop.agents, loop.places, agent)
    )
    names = [Path(word).name for word in agent.words]
    named = [name for name in names if name in loop.agents.clis]
    if agent.name == "plain" and named:
        sees = "ralph sees the exit status alone, no limit and no cost"
        first = f"{named[0]} is not its first word (`env NAME=VALUE` may precede it)"
        yield "warning", f"of {agent.command} {sees}: {first}"
    if loop.places.here:
        program = shutil.which(agent.program)
        yield "ok", f"{agent.command} at {program}{_version(loop, agent)}"
        yield from _billed(loop, agent, *registry.credentials(agent, os.environ))


def _billed(loop: Loop, agent: Agent, key: str, login: str) -> Findings:
    """Who pays, with the name of a key or of a login that an agent has."""
    if key and login:
        advice = "unset it to use the subscription"
        yield (
            "warning",
            f"{key} is billed instead of the subscription ({login}); {advice}",
        )
    elif key:
        yield "ok", f"{key} is set and is billed"
    elif login:
        yield "ok", f"logged in ({login}), and no key in the environment overrides it"
    elif agent.cli.keys:
        wanted = registry.known_credentials(agent)
        advice = "log in, unless it has one elsewhere"
        yield "warning", f"no login found ({wanted}); {advice}"
    if not key or loop.limits.in_dollars or loop.limits.in_tokens:
        return
    for unit, option in (("dollars", "--max-usd"), ("tokens", "--max-tokens")):
        if unit in agent.cli.reports:
            advice = f"set {option}, or a budget in the plan"
            yield "warning", f"nothing limits what {key} is billed; {advice}"
            return


def _version(loop: Loop, agent: Agent) -> str:
    if not agent.cli.version:
        return ""
    words = shlex.join([agent.program, *agent.cli.version.split()[1:]])
    # Behind a pipe of its own: what it leaves running cannot hold ours.
    command = f"{words} < /dev/null 2> /dev/null | head -n 1"
    argv = [sys.executable, "-P", "-c", _TEE, command]
    asked = Command(argv, loop.paths.root, os.environ, _PATIENCE)
    said = run_process(asked, loop.control)
    version = said.tail.strip() if said.exit == 0 else ""
    return ", " + text.one_line(version or "no version", 60)


def _permissions(loop: Loop, agent: Agent) -> Findings:
    if agent.name in loop.plan.settings.get("agents", {}):
        runs = shlex.join(agent.cli.argv)
        yield "warning", f"the plan itself defines it; read what it runs: {runs}"
        return
    if agent.name == "plain":
        yield "ok", "your own command; it runs as given, and can do all that you can"
    elif agent.permissions == "full":
        yield "warning", "permissions: full; it can do all that you can"
    elif agent.permissions == "read":
        yield "ok", "permissions: read only"
    else:
        yield "ok", f"permissions: edit; {agent.cli.edit_means}"


# ---------------------------------------------------------------- cron


def _probe(loop: Loop) -> Findings:
    """One turn of each agent with nothing but HOME and PATH, as cron starts it."""
    path = registry.agent_env(loop.paths.root).get("PATH", os.defpath)
    env = {"HOME": os.path.expanduser("~"), "PATH": path}
    for agent in _team(loop):
        if not loop.places.here or shutil.which(agent.program):
            yield _probed(agent, _turn(loop, agent, env))


def _turn(loop: Loop, agent: Agent, env: Mapping[str, str]) -> AgentResult:
    """One turn of an agent, in an empty repository."""
    loop.paths.places.mkdir(parents=True, exist_ok=True, mode=0o700)
    level = "read" if "read" in agent.cli.permissions else agent.permissions
    with tempfile.TemporaryDirectory(
        prefix="ralph-probe-", dir=loop.paths.places
    ) as name:
        folder = Path(name).resolve()
        in_folder(folder)("init", "-q")
        names = {
            "RALPH_TASK_ID": "probe",
            "RALPH_ATTEMPT": "0",
            "RALPH_RUN_ID": "doctor",
            "RALPH_HANDOFF": str(folder / "handoff.md"),
        }
        with loop.places.inside(folder) as wrap:
            given = running.Assignment(
                prompt=resource("templates/probe.md").read_text("utf-8"),
                log=lambda ending: folder / f"probe{ending}",
                cwd=folder,
                env={**env, **names},
                timeout=_TURN,
                idle=_TURN,
                wrap=wrap,
                here=loop.places.here,
            )
            agent = replace(agent, permissions=level)
            return running.run_agent(agent, given, loop.control)


def _probed(agent: Agent, result: AgentResult) -> Finding:
    """What came of one turn of an agent."""
    who = f"{agent.command}, as cron starts it"
    if result.outcome is Outcome.DONE:
        said = f"{who}, answered: {summary.spent(result)}"
        if result.overage:
            return "warning", f"{said}, and the provider bills extra usage"
        return "ok", said
    if result.outcome is Outcome.LIMITED:
        return "warning", f"{who}, is limited: {result.reason}; a run waits until then"
    advice = "log it in as this user, or fix what it says, then try again"
    for key in agent.cli.keys:
        if key in os.environ:
            advice = f"write {key}=... above ralph's line in your crontab"
            break
    return "error", f"{who}: {result.reason or result.outcome}; {advice}"


_PARTS: Mapping[str, Callable[[Loop], Findings]] = {
    "plan": _plan,
    "limits": _limits,
    "lock": _lock,
    "agent": _agents,
    "git": _git,
    "protect": _protect,
    "python": _python,
    "wrap": _wrap,
    "settings": _settings,
    "disk": _disk,
    "places": _places,
}
"""What is looked at, part by part: what a run requires at its start, and what that does
not say."""
