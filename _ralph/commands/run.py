"""`ralph run`, and what every command that works on a plan needs: the lock, signals, one
exit status."""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import time
from collections.abc import Callable

import click

from _ralph import text
from _ralph.errors import RalphError, Stop, StopNow, stop_for, translate
from _ralph.loop import start
from _ralph.loop.loop import Loop
from _ralph.loop.opening import say
from _ralph.loop.supervisor import RunLoop, clear_room, supervise
from _ralph.model import NO_LIMIT
from _ralph.process import leftovers
from _ralph.process.awake import kept_awake
from _ralph.process.process import Control
from _ralph.show.live import Terminal, complain
from _ralph.show.status import Status, next_steps
from _ralph.state import layout, limits, lock
from _ralph.state.options import Options
from _ralph.state.records import stopped_by
from _ralph.state.summary import limits_words, summarize


def run_plan(options: Options, run_loop: RunLoop) -> int:
    """`ralph run`: open the run, let loops of `run_loop` take it to its stop, close it;
    the exit status."""
    stream = sys.stderr if options.json else sys.stdout
    view = Terminal(stream, -1 if options.quiet else int(options.verbose))

    def work(control: Control, run_id: str) -> int:
        return _run(options, run_loop, control, view, run_id)

    try:
        return alone(options, "run", work, view)
    except Exception as error:
        stop = stop_for(error)
    complain(stop.reason)
    _print_summary(options, stop)
    return stop.exit


def alone(
    options: Options, what: str, work: Callable[[Control, str], int], view: Terminal
) -> int:
    """Do `work(control, run_id)` as the only one on this plan; its exit status.
    TryLater if another ralph is at work on it."""
    with lock.alone(layout.locate(options.prd), what) as run_id:
        return with_signals(lambda control: work(control, run_id), view)


def with_loop(options: Options, what: str, work: Callable[[Loop], int]) -> int:
    """The same, with what a loop of this plan works with."""
    view = Terminal()

    def begin(control: Control, run_id: str) -> int:
        loop = start.look(options, control, view)
        loop.run_id = run_id
        return work(loop)

    return alone(options, what, begin, view)


def with_signals(work: Callable[[Control], int], view: Terminal) -> int:
    """Do `work` with signals handled, orphans adopted and `view` kept up to date; its
    exit status. The first interrupt ends at once what does not say otherwise."""
    control = Control()
    if view.stays:
        control.on_tick = view.tick
    leftovers.become_subreaper()
    control.install()
    try:
        return work(control)
    except Exception as error:
        if control.stop_signal:
            return 128 + control.stop_signal
        if isinstance(error, BrokenPipeError):  # `| head` has seen enough
            _drop_output()
        else:
            complain(str(translate(error)))
        return translate(error).exit
    finally:
        view.clear()


def _run(
    options: Options, run_loop: RunLoop, control: Control, view: Terminal, run_id: str
) -> int:
    """A run from its opening to its stop; its exit status."""
    loop: Loop | None = None
    control.patient = True
    try:
        loop, found = start.begin(options, control, view, run_id)
        clear_room(loop)
        view.named, view.sums = loop.settings.jobs > 1, lambda: _sums(loop)
        view.line(_headline(loop), color="cyan")
        for level, line in found:
            say(loop, level, line)
        with kept_awake(not options.no_awake):
            gc.freeze()  # a collection in a loop would copy all that is known here
            stop = supervise(loop, run_loop)
    except Exception as error:
        view.clear()
        stop = stop_for(error)
        if loop and isinstance(error, StopNow):
            stop = loop.asked_to_stop() or stop
    if stop.word == "error":
        complain(stop.reason)
    elif loop:
        _say_goodbye(loop, stop)
    _print_summary(options, stop, loop)
    return stop.exit


def _sums(loop: Loop) -> str:
    """What the status line says of the whole run, short things first."""
    loop.log.read()
    used, limit = loop.history.this_run, min(loop.limits.usd, loop.limits.budget_usd)
    passed = 0
    for task in loop.plan.tasks:  # as the plan was when the run began
        known = loop.history.of(task)
        passed += known.holds or (task.passed and not known.passed.iteration)
    parts = [f"{passed} of {len(loop.plan.tasks)} passed"]
    if loop.asked_to_stop():
        parts.insert(0, "stopping")
    if used.usd or limit < NO_LIMIT:
        cost = f"{'at least ' if used.at_least else ''}${used.usd:.2f}"
        parts.append(cost + (f" of ${limit:.2f}" if limit < NO_LIMIT else ""))
    lasted = text.duration(loop.seconds, short=True)
    parts.append(f"{lasted}, until {text.clock(loop.ends, time.time())}")
    return " | ".join(parts)


def _headline(loop: Loop) -> str:
    """What this run is about to do: how many tasks, where, with which agents, within
    which limits."""
    tasks = loop.plan.tasks
    agents = [loop.agents.named(command) for command in loop.agents.commands()]
    open_tasks = sum(not task.passed for task in tasks)
    to_do = f"{open_tasks} of {text.count(len(tasks), 'task')} to do"
    named = ", then ".join(text.one_line(agent.command, 160) for agent in agents)
    if any(agent.name != "plain" for agent in agents):
        named += f" with {loop.settings.permissions} permissions"
    used = limits_words(limits.used(loop.limits, loop.history), "this run")
    until = f", until {loop.options.until}" if loop.options.until else ""
    return f"{to_do} on branch {loop.branch.name} | {named} | {used}{until}"


def _say_goodbye(loop: Loop, stop: Stop) -> None:
    """The last lines: why it ended, where the work is, what a person can do next."""
    tasks = loop.plan.tasks
    passed = sum(task.passed for task in tasks)
    why = text.one_line(stop.reason, 240)  # `status` says all of it
    where = f"{passed} of {len(tasks)} passed, on branch {loop.branch.name}"
    loop.view.last(f"{why} | {where}", failed=bool(stop.exit))
    ahead = loop.branch.is_ahead
    known = Status(loop.plan, loop.history, loop.options.prd, to_land=ahead)
    steps = next_steps(known, stopped_by(stop))
    if steps:
        loop.view.line(f"next: {'; '.join(steps)}")


def _print_summary(options: Options, stop: Stop, loop: Loop | None = None) -> None:
    """The object of --json, of a run or, where none was opened, of what can be read."""
    if not options.json:
        return
    plan = history = None
    seconds = 0.0
    if loop:
        plan, history, seconds = loop.plan, loop.history, loop.seconds
    else:
        with contextlib.suppress(RalphError, OSError):
            _, plan, history = layout.read_state(options.prd)
    try:
        click.echo(json.dumps(summarize(plan, history, stop, seconds).as_object()))
    except OSError as error:  # a closed pipe, a full disk: the run ended as it did
        _drop_output()
        complain(f"the summary could not be printed: {error.strerror}")


def _drop_output() -> None:
    """Let what Python still holds for stdout go nowhere at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
