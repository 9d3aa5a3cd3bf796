"""A command at work: alone in its workspace, under a supervisor; however it ends, with one message
and one exit status."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import sys
import uuid
from collections.abc import Callable

import click

from _ralph import lock, night, place, refusals, session
from _ralph.awake import keep_awake
from _ralph.ends import Exit, RalphError, Stop, StopNow, translate
from _ralph.live import View, complain
from _ralph.process import Control
from _ralph.run import Options, Run
from _ralph.supervisor import mark_run, supervise
from _ralph.views import summary


class Killed(RalphError):
    """The process that did the work is dead, and its supervisor is left to say so."""


def spend_night(options: Options, loop: Callable[[Run], Stop]) -> int:
    """`ralph run`: open the run, let `loop` take it to its stop, close it; the exit status."""
    view = View(sys.stderr if options.json else sys.stdout, -1 if options.quiet else int(options.verbose))
    try:
        return alone(
            options,
            "run",
            lambda control, run_id: _child(options, loop, control, view, run_id),
            None if options.no_awake else keep_awake,
        )
    except Exception as error:
        view.doing("")
        stop = _stop_for(error)
    complain(stop.reason)
    _print_summary(options, stop)
    return stop.exit


def alone(
    options: Options,
    what: str,
    work: Callable[[Control, str], int],
    beside: Callable[[int], object] | None = None,
) -> int:
    """Do `work(control, run_id)` under a supervisor, as the only one in this workspace; its exit
    status. TryLater if somebody else is at work."""
    paths, run_id = place.locate(options.prd, options.git), uuid.uuid4().hex
    held = lock.acquire(paths)
    lock.bury(paths)
    mark_run(run_id)  # so that every child can be told from a stranger
    lock.announce(paths, run_id, os.getpid(), what)
    code = supervised(lambda control: work(control, run_id), beside)
    with contextlib.suppress(OSError):  # an attempt can have moved git's folder: then that was said
        (paths.private / "running.json").unlink(missing_ok=True)
    held.release()
    return code


def supervised(work: Callable[[Control], int], beside: Callable[[int], object] | None = None) -> int:
    """Do `work` under a supervisor; its exit status. The first interrupt ends at once what does not
    say otherwise. Killed if it was; what it left is for the next start to bury."""

    def child(control: Control) -> int:
        try:
            return work(control)
        except Exception as error:
            if control.stop_signal:
                return 128 + control.stop_signal
            if not isinstance(error, BrokenPipeError):  # `| head` has seen enough
                complain(str(translate(error)))
            return translate(error).exit

    code = supervise(child, beside=beside)
    if code is None:
        raise Killed("its work was killed; run the same command to go on")
    return code


def _child(options: Options, loop: Callable[[Run], Stop], control: Control, view: View, run_id: str) -> int:
    """What the supervisor's child does for a run; its exit status."""
    run: Run | None = None
    control.on_tick = view.tick if view.stays else None
    control.on_interrupt = lambda: view.line("stopping after this attempt; interrupt again to stop now")
    try:
        run = session.open_run(options, control, view, run_id)
        stop = loop(run)
        night.close_run(run, stop)
    except Exception as error:
        view.doing("")
        stop = _end_early(run, control, error)
    if control.orphaned:
        return Exit.ERROR
    if stop.word == "error":
        complain(stop.reason)
    elif run:
        _say_goodbye(run, stop)
    _print_summary(options, stop, run)
    return stop.exit


def _end_early(run: Run | None, control: Control, error: Exception) -> Stop:
    """The stop for an error: recorded if the run had begun, and nothing is left half done."""
    if run is None or control.orphaned:
        return _stop_for(error)
    stop = (night.asked_to_stop(run) if isinstance(error, StopNow) else None) or _stop_for(error)
    try:
        (night.notify if run.under_way else night.close_run)(run, stop)
    except (RalphError, OSError) as again:
        complain(f"the last record could not be written: {again}")
    return stop


def _stop_for(error: Exception) -> Stop:
    failed = translate(error)
    return Stop("killed" if isinstance(error, Killed) else "error", failed.exit, str(failed))


def _say_goodbye(run: Run, stop: Stop) -> None:
    """The last lines: why it ended, where the work is, what a person can do next."""
    passed, total = sum(task.passed for task in run.plan.tasks), len(run.plan.tasks)
    where = f", on branch {run.branch.removeprefix('refs/heads/')}" if run.branch else ""
    run.view.last(f"{stop.reason} | {passed} of {total} passed{where}", failed=bool(stop.exit))
    with contextlib.suppress(RalphError, OSError):  # a full disk: the run has ended all the same
        if refusals.unfinished(run.tree, run.history):
            run.view.line("unfinished work lies in the tree; the next `ralph run` goes on with it")
    blocked = next((task.id for task in run.plan.tasks if task.is_blocked), None)
    if blocked:
        run.view.line(f"next: ralph status; ralph retry {shlex.quote(blocked)} --answer '...'; ralph run")
    if stop.word == "red-checks":
        run.view.line("next: mend it yourself; or let a task do it: ralph add 'TITLE' --check 'THE RED ONE'")


def _print_summary(options: Options, stop: Stop, run: Run | None = None) -> None:
    """The object of --json, of a run or, where none was opened, of what can be read."""
    if not options.json:
        return
    plan, history = (run.plan, run.history) if run else (None, None)
    if run is None:
        with contextlib.suppress(RalphError, OSError):
            _, plan, history = place.read_state(options.prd, options.git)
    try:
        click.echo(json.dumps(summary(plan, history, stop, run.seconds if run else 0.0)))
    except OSError as error:  # a closed pipe, a full disk: the run ended as it did
        complain(f"the summary could not be printed: {error.strerror}")
