"""`ralph run`, and what every command that works on a plan needs: the lock, signals,
one exit status."""

from __future__ import annotations

import contextlib
import functools
import gc
import json
import os
import sys
import time
from collections.abc import Callable

import click

from _ralph import text
from _ralph.errors import RalphError, Stop, StopNow, translate
from _ralph.loop import opening, rounds
from _ralph.loop.options import Options
from _ralph.loop.run import Run, asked_to_stop, notify
from _ralph.process import mark
from _ralph.process.awake import kept_awake
from _ralph.process.process import Control
from _ralph.show.live import Terminal, complain
from _ralph.show.status import Status, next_steps
from _ralph.state import layout, limits, lock
from _ralph.state.records import Stopped
from _ralph.state.summary import limits_words, summarize


def run_plan(options: Options, loop: Callable[[Run], Stop]) -> int:
    """`ralph run`: open the run, let `loop` take it to its stop, close it; the exit
    status."""
    view = Terminal(
        sys.stderr if options.json else sys.stdout,
        -1 if options.quiet else int(options.verbose),
    )
    try:
        return alone(
            options,
            "run",
            lambda control, run_id: _run(options, loop, control, view, run_id),
            view,
        )
    except Exception as error:
        stop = _stop_for(error)
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


def with_signals(work: Callable[[Control], int], view: Terminal | None = None) -> int:
    """Do `work` with signals handled, orphans adopted and `view` kept up to date; its
    exit status. The first interrupt ends at once what does not say otherwise."""
    control = Control()
    control.on_tick = view.tick if view and view.stays else None
    mark.become_subreaper()
    control.install()
    try:
        return work(control)
    except Exception as error:
        if control.stop_signal:
            return 128 + control.stop_signal
        if isinstance(error, BrokenPipeError):  # `| head` has seen enough
            os.dup2(
                os.open(os.devnull, os.O_WRONLY), 1
            )  # what is left over would be tried again at the end
        else:
            complain(str(translate(error)))
        return translate(error).exit
    finally:
        if view:
            view.clear()


def _run(
    options: Options,
    loop: Callable[[Run], Stop],
    control: Control,
    view: Terminal,
    run_id: str,
) -> int:
    """A run from its opening to its stop; its exit status."""
    run: Run | None = None
    control.on_interrupt = lambda: view.line(
        "stopping after the attempts under way; interrupt again to stop now"
    )
    try:
        run = opening.open_run(options, control, view, run_id)
        view.named, view.sums = run.settings.jobs > 1, functools.partial(_sums, run)
        view.line(_headline(run), color="cyan")
        with kept_awake(not options.no_awake) as run.pool.spare:
            # a collection in a forked worker would copy all that the loop knows
            gc.freeze()
            stop = rounds.close_run(run, loop(run))
    except Exception as error:
        view.clear()
        if run:
            run.pool.close()
        stop = _end_early(run, error)
    if stop.word == "error":
        complain(stop.reason)
    elif run:
        _say_goodbye(run, stop)
    _print_summary(options, stop, run)
    return stop.exit


def _sums(run: Run) -> str:
    """What the status line says of the whole run, short things first."""
    used, limit = run.history.this_run, min(run.limits.usd, run.limits.budget_usd)
    limited = limit < limits.NONE
    cost = (
        f"{'at least ' * used.at_least}${used.usd:.2f}" if used.usd or limited else ""
    )
    passed, now, queue = (
        len(run.plan.passed_ids),
        time.time(),
        run.pool.train.names(run.paths),
    )
    rooms = [text.one_line(task, 20) for task, room in queue if room]
    parts = [
        "stopping" if asked_to_stop(run) else "",
        f"{passed} of {len(run.plan.tasks)} passed",
        cost + (f" of ${limit:.2f}" if limited else ""),
        f"{text.duration(run.seconds, short=True)}, limit {text.clock(run.ends, now)}",
        f"room{'s' * (len(rooms) > 1)}: {text.few(rooms)}" if rooms else "",
        f"{len(queue) - len(rooms)} in line" if len(queue) > len(rooms) else "",
    ]
    return " | ".join(part for part in parts if part)


def _end_early(run: Run | None, error: Exception) -> Stop:
    """The stop for an error: recorded if the run had begun, and nothing is left half
    done."""
    if run is None:
        return _stop_for(error)
    stop = (asked_to_stop(run) if isinstance(error, StopNow) else None) or _stop_for(
        error
    )
    try:
        if run.journal.failed:
            notify(
                run, "stopped", stop.reason, stop=stop
            )  # the next start does it, if nothing is recorded after it
        else:
            stop = rounds.close_run(run, stop)
    except (RalphError, OSError) as again:
        complain(f"the last record could not be written: {again}")
    return stop


def _stop_for(error: Exception) -> Stop:
    failed = translate(error)
    return Stop("error", str(failed), failed.exit)


def _headline(run: Run) -> str:
    """What this run is about to do: how many tasks, where, with which agents, within
    which limits."""
    tasks, agents = (
        run.plan.tasks,
        [run.agents.named(command) for command in run.agents.ladder()],
    )
    to_do = f"{sum(not task.passed for task in tasks)} of {text.count(len(tasks), 'task')} to do"
    named = ", then ".join(text.one_line(agent.command, 160) for agent in agents)
    plain = all(agent.name == "plain" for agent in agents)
    permissions = run.settings.permissions.replace("sandbox", "full") + " permissions"
    may = (
        ""
        if plain
        else f" with {permissions}{' in a sandbox' * bool(run.options.sandbox)}"
    )
    used = limits_words(limits.used(run.limits, run.history), "this run")
    until = f", until {run.options.until}" if run.options.until else ""
    return f"{to_do} on branch {run.branch.name} | {named}{may} | {used}{until}"


def _say_goodbye(run: Run, stop: Stop) -> None:
    """The last lines: why it ended, where the work is, what a person can do next."""
    passed, total = sum(task.passed for task in run.plan.tasks), len(run.plan.tasks)
    where = f", on branch {run.branch.name}"
    why = text.one_line(stop.reason, 240)  # `status` says all of it
    run.view.last(f"{why} | {passed} of {total} passed{where}", failed=bool(stop.exit))
    ahead = run.branch.name if run.branch.is_ahead else ""
    known = Status(run.plan, run.history, run.options.prd, to_land=ahead)
    if steps := next_steps(known, Stopped(stop=stop.word, exit=int(stop.exit))):
        run.view.line(f"next: {'; '.join(steps)}")


def _print_summary(options: Options, stop: Stop, run: Run | None = None) -> None:
    """The object of --json, of a run or, where none was opened, of what can be read."""
    if not options.json:
        return
    plan, history = (run.plan, run.history) if run else (None, None)
    if run is None:
        with contextlib.suppress(RalphError, OSError):
            _, plan, history = layout.read_state(options.prd)
    try:
        seconds = run.seconds if run else 0.0
        click.echo(json.dumps(summarize(plan, history, stop, seconds).as_object()))
    except OSError as error:  # a closed pipe, a full disk: the run ended as it did
        os.dup2(
            os.open(os.devnull, os.O_WRONLY), 1
        )  # where what python still holds can go at its end
        complain(f"the summary could not be printed: {error.strerror}")
