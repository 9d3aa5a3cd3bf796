"""`ralph doctor`: what the opening of a run looks at, all of it, and with a line for
each thing that is found."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace

from _ralph import text
from _ralph.agents import registry
from _ralph.agents.cli import Agent
from _ralph.checks.view import View
from _ralph.commands import init
from _ralph.errors import Exit, Stop, StopNow, translate
from _ralph.files import resource
from _ralph.git.git import freeze_settings
from _ralph.loop.loop import Loop
from _ralph.loop.opening import trial
from _ralph.loop.roles import run_role
from _ralph.loop.start import look, notes, requirements
from _ralph.model import AgentResult, Finding, Findings, Outcome, Share
from _ralph.process.process import Command, Control, run_process
from _ralph.show.live import Terminal
from _ralph.state import layout, limits, lock, prd, summary
from _ralph.state.history import RunHistory
from _ralph.state.options import Options, load_plan

_TEE = "import subprocess_tee, sys; print(subprocess_tee.run(sys.argv[1], tee=False, quiet=True).stdout)"
"""Python that prints what a command does. subprocess-tee has no deadline, so its
process has one."""
_PATIENCE = 30.0
"""Seconds that an agent may take to say its version."""
_DOCTORS_OWN = ("--probe", "-v", "--verbose")
_TURN = 120.0
"""Seconds that an agent may take for one cheap turn."""
_SHOWN = {"say": "ok", "note": "warning", "way": "now"}
"""What a finding that a run says, too, is called here."""


def examine(
    options: Options,
    control: Control,
    view: Terminal,
    echo: Callable[[str], object],
    try_agents: bool = False,
) -> int:
    """Print each finding as it is found, what is fine only if `verbose`, then how to go
    on; the exit status. BadInput outside of a repository, and without a plan."""
    loop = look(options, control)
    parts: dict[str, Callable[[], Findings]] = {
        "tasks": lambda: _tasks(loop),
        **requirements(loop),
        "agents": lambda: _agents(loop),
        "limits": lambda: _limits(loop),
        "ignored files": lambda: _ignored(loop),
        "checks": lambda: _checks(loop, try_agents),
    }
    counts: Counter[str] = Counter()
    for name, part in parts.items():
        view.doing(name)
        for level, line in _caught(part):
            level = _SHOWN.get(level, level)
            counts[level] += 1
            if level != "ok" or options.verbose:
                view.clear()
                lines = text.clean(f"{name}: {line}").strip().splitlines()
                echo(f"{level:7} " + "\n        ".join(lines))
        if control.stop_now or control.interrupts:
            return 128 + (control.stop_signal or signal.SIGINT)
    view.clear()
    if counts["error"]:
        found = text.count(counts["error"], "error")
        echo(f"\n{found}; fix that, then run `ralph doctor` again")
        return Exit.USAGE
    echo(
        f"\nno errors, {text.count(counts['warning'], 'warning')} (-v says what is fine)"
    )
    echo(f"to start it: {shlex.join(['ralph', 'run', *_given()])}")
    echo(f"every night: `crontab -e`, with this line\n{crontab_line(options)}")
    if not try_agents:
        echo("login not tried: ralph doctor --probe")
    return Exit.COMPLETE


def crontab_line(options: Options) -> str:
    """The line with which cron runs this plan on working days, with the options that
    doctor got."""
    words = [sys.executable, os.path.abspath(sys.argv[0]), "run"]
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


def _caught(part: Callable[[], Findings]) -> Findings:
    """The findings of one part. An exception in it is an error; the other parts go
    on."""
    try:
        yield from part()
    except StopNow:
        return
    except Stop as stop:
        yield "error", stop.reason
    except Exception as error:
        yield "error", str(translate(error))


# ---------------------------------------------------------------- plan, limits, machine


def _tasks(loop: Loop) -> Findings:
    plan = load_plan(loop.paths, loop.options)
    passed = sum(task.passed for task in plan.tasks)
    tasks = text.count(len(plan.tasks), "task")
    yield "ok", f"{plan.project}, {passed} of {tasks} passed"
    asked = prd.open_questions(plan)
    if asked:
        open = text.count(len(asked), "open question")
        more = "a run follows the planner's proposals"
        yield "warning", f"{open}, the first: {asked[0][0]}; {more}"
    bare = [task.id for task in plan.tasks if not (task.passed or task.checks)]
    if bare:
        advice = "any change passes them, so add one to each"
        yield "warning", f"no check of their own: {text.few(bare)}; {advice}"


def _limits(loop: Loop) -> Findings:
    """What a run could use now, and whether it could begin at all."""
    if loop.history.run is None:  # one that was cut off goes on with what it has used
        loop.history.this_run = RunHistory()
    yield "ok", summary.limits_words(limits.used(loop.limits, loop.history), "a run")
    seconds = loop.history.this_run.seconds
    stop = limits.spent(loop.limits, loop.history, seconds, time.time())
    if stop:
        yield "error" if stop.exit == Exit.PERSON else "warning", stop.reason


def _ignored(loop: Loop) -> Findings:
    """Files that checks may need and no checkout has."""
    ignored = init.local_settings(loop.paths.root)
    if ignored:
        unseen = f"git ignores {text.few(ignored)}, so no checkout has them"
        yield "warning", f"{unseen}; name in {init.INCLUDE} what they need"
    loop.log.require_file()


def _checks(loop: Loop, try_agents: bool) -> Findings:
    """One turn of each agent, if that is asked for; then setup, every check and the
    commit hooks, as a run does them at its start."""
    yield "trying", "setup and every check, as a run would"
    loop.places.view = View()
    # alone, as they would disturb a run
    with lock.alone(loop.paths, "doctor") as loop.run_id:
        layout.note_plan(loop.paths)
        freeze_settings(loop.git, loop.paths.private)
        if try_agents:
            yield from _probe(loop)
        with trial(loop, loop.plan) as tried:
            yield from tried.checks()  # what follows needs a room that is set up
            green = "; setup is green there" if loop.plan.setup else ""
            yield "ok", f"checks run in {loop.paths.room}{green}"
            for step in (tried.guarded, tried.own, tried.messages, tried.commits):
                yield from _caught(step)
            yield from notes(tried.no_proofs(), "warning")
            red = []
            for result in tried.found:
                if not result.ok:
                    said = f" ({result.said})" if result.said else ""
                    red.append(f"{result.name}{said}")
            green = text.count(len(tried.found) - len(red), "check")
            words = f", {len(red)} red before the work: {text.few(red)}" if red else ""
            yield "now", f"{green} green{words}"


# ---------------------------------------------------------------- agents


def _agents(loop: Loop) -> Findings:
    """Where each agent is, and what it may do."""
    for agent in loop.agents.needed:
        program = shutil.which(agent.program)
        if loop.places.here and program:
            version = _version(loop, agent) if agent.cli.version else "any version"
            yield "ok", f"{agent.command} at {program}, {version}"
        if agent.name in loop.plan.settings.get("agents", {}):
            runs = shlex.join(agent.cli.argv)
            yield "warning", f"the plan itself defines it; read what it runs: {runs}"
        elif agent.name == "plain":
            yield "ok", "your own command; it can do all that you can"
        else:
            level = "warning" if agent.permissions == "full" else "ok"
            yield level, f"permissions: {agent.permissions}"


def _version(loop: Loop, agent: Agent) -> str:
    """What it says of its version, in no more than a moment."""
    words = shlex.join([agent.program, *agent.cli.version.split()[1:]])
    # Behind a pipe of its own: what it leaves running cannot hold ours.
    command = f"{words} < /dev/null 2> /dev/null | head -n 1"
    argv = [sys.executable, "-P", "-c", _TEE, command]
    asked = Command(argv, loop.paths.root, os.environ, _PATIENCE)
    said = run_process(asked, loop.control)
    return text.one_line(said.tail, 60) or "no version"


# ---------------------------------------------------------------- cron


def _probe(loop: Loop) -> Findings:
    """One turn of each agent with nothing but HOME and PATH, as cron starts it."""
    path = registry.agent_env(loop.paths.root).get("PATH", os.defpath)
    place = loop.places.of_role(loop.branch.beginning())
    env = {
        "HOME": os.path.expanduser("~"),
        "PATH": path,
        "RALPH_TASK_ID": "probe",
        "RALPH_ATTEMPT": "0",
        "RALPH_RUN_ID": "doctor",
        "RALPH_HANDOFF": str(place.root / ".ralph-handoff.md"),
    }
    prompt = resource("templates/probe.md").read_text("utf-8")
    for agent in loop.agents.needed:
        level = "read" if "read" in agent.cli.permissions else agent.permissions
        agent = replace(agent, permissions=level)
        share = Share(seconds=_TURN)
        turn = run_role(loop, agent, prompt, "probe", env, share, place.root)
        yield _probed(agent, turn)


def _probed(agent: Agent, result: AgentResult) -> Finding:
    """What came of one turn of an agent."""
    who = f"{agent.command}, as cron starts it"
    if result.outcome is Outcome.DONE:
        return "ok", f"{who}, answered: {summary.spent(result)}"
    if result.outcome is Outcome.LIMITED:
        return "warning", f"{who}, is limited: {result.reason}; a run waits until then"
    advice = (
        "log it in as this user; cron has only the keys that stand above ralph's line, "
        "as NAME=value"
    )
    return "error", f"{who}: {result.reason or result.outcome}; {advice}"
