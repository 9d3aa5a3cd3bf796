"""`ralph status`: a plan as text for people, or as an object for programs."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from click import style

from _ralph import text
from _ralph.errors import Exit
from _ralph.model import Paths, Plan, Task
from _ralph.state import layout, prd
from _ralph.state.history import History
from _ralph.state.limits import Usage
from _ralph.state.records import Failure, Stopped
from _ralph.state.summary import (
    Running,
    Worker,
    command_line,
    limits_words,
    spent,
    summarize,
)

_COLORS = {
    "passed": "green",
    "failed": "yellow",
    "blocked": "red",
    "running": "cyan",
    "next": "cyan",
}


class Status(NamedTuple):
    """What a plan, its log and its places say, read once."""

    plan: Plan
    history: History
    prd: Path = Path("prd.json")  # as it was given
    running: Running | None = None  # the loop at work
    places: Path = Path()  # the folder in which agents and checks work
    to_land: bool = False  # the plan is done, and HEAD lacks its work


def read(prd_path: Path) -> Status:
    """The state of a plan: nothing is written, no lock is taken. BadInput if it cannot
    be read."""
    paths, plan, history = layout.read_state(prd_path)
    to_land = False
    if history.branch and all(task.passed for task in plan.tasks):
        from _ralph.git.branch import Branch  # 10 ms, and only when all is done
        from _ralph.git.git import Git

        to_land = Branch(Git.at(paths.root), history.branch, "").is_ahead
    return Status(
        plan,
        history,
        prd=prd_path,
        running=_running(paths, history),
        places=paths.places,
        to_land=to_land,
    )


def _running(paths: Paths, history: History) -> Running | None:
    """The loop at work on a plan, if there is one, and what it does where."""
    loop = layout.loop_at_work(paths)
    if loop is None:
        return None
    workers = []
    for start in history.open_starts.values():
        worker = Worker(
            worker=start.worker,
            task=start.task,
            attempt=start.attempt or 1,
            agent=start.command,
            since=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(start.time)),
            seconds=round(max(time.time() - start.time, 0.0), 1),
            workspace=str(paths.workspace(start.worker)),
        )
        workers.append(worker)
    return Running(
        pid=loop.pid,
        since=loop.since,
        stopping=layout.stop_is_asked(paths, loop.run_id),
        rechecking=len(paths.rooms) > 1,
        workers=workers,
    )


def show(status: Status, form: str) -> str:
    """The state as `text`, `md` or `json`. Text is in color, which `click.echo` takes
    out where there is no terminal."""
    if form == "json":
        known = summarize(status.plan, status.history, running=status.running)
        return json.dumps(known.as_object())
    if form == "md":
        return text.fenced("\n".join(lines(status)), "text")
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return "\n".join(lines(status, color=not plain))


# ---------------------------------------------------------------- the text


def lines(status: Status, color: bool = False) -> list[str]:
    """The tasks, a line each, and below one what a person should know of it; then how
    many passed, and what is going on."""
    known = summarize(status.plan, status.history, running=status.running)
    workers = {}
    if known.running:
        workers = {worker.task: worker for worker in known.running.workers}
    id_width = max((len(facts.id) for facts in known.tasks), default=0)
    spent_width = max((len(facts.spent) for facts in known.tasks), default=0)
    printed = []
    states: Counter[str] = Counter()
    for facts in known.tasks:
        state = facts.state
        remark = facts.remark
        below = facts.warnings
        if worker := workers.get(facts.task.id):
            state = "running"
            lasted = text.duration(worker.seconds, short=True)
            remark = f"attempt {worker.attempt}, {lasted}"
            below = [f"{Path(worker.workspace).name}: {worker.agent}", *below]
        elif facts.known.last and not facts.task.passed:
            below = [*below, *_end_of(facts.known.last.failure)]
        states[state] += 1
        if facts.task.id == known.next and not known.running:
            state = "next"
        word = f"{state:7}"
        if color:
            word = style(word, fg=_COLORS.get(state))
        columns = f"{word}  {facts.id:{id_width}}  "
        if spent_width:
            columns += f"{facts.spent:>{spent_width}}  "
        title = facts.task.title
        if remark:
            title = f"({remark}) {title}"
        printed.append(columns + text.one_line(title, 80))
        printed += [f"{'':9}{text.one_line(line, 300)}" for line in below]
    # `shop: 55 of 100 passed, 2 failed, 43 waiting; 60 iterations, $20.30`
    words = f"{status.plan.project}: {known.passed} of {len(known.tasks)} passed"
    del states["passed"]
    for state, number in states.items():
        words += f", {number} {state}"
    if known.iterations:
        words += f"; {text.count(known.iterations, 'iteration')}, {spent(known.spent)}"
    sentences = [words, *_sentences(status, known.usage)]
    return [*printed, "", *(text.one_line(words, 1000) for words in sentences)]


def _end_of(failure: Failure) -> list[str]:
    """The last lines of a red check, and where all of it is."""
    if not failure.log:
        return []
    return [*last_lines(failure.tail), f"all: {failure.log}"]


def last_lines(printed: str) -> list[str]:
    """The last lines of what a check printed."""
    lines = text.last_lines(text.redact(text.clean(printed)))
    return [f"| {text.one_line(line)}" for line in lines]


def _sentences(status: Status, usage: Usage) -> Iterator[str]:
    """What runs or how the last run ended, what is used of the limits, where passes
    are, and what to do next."""
    history = status.history
    yield ending(status)
    if history.stopped and history.stopped.stop == "red-checks" and history.recheck:
        yield from _end_of(history.recheck.failures.get("", Failure()))
    if not history.run:
        usage = {**usage, "run": {}}
    if limited := limits_words(usage, "this run"):
        yield limited
    if history.branch:
        where = f"passes are committed on branch {history.branch}"
        yield f"{where}; agents and checks work in {status.places}"
    if steps := next_steps(status, history.stopped):
        yield f"next: {'; '.join(steps)}"


def ending(status: Status) -> str:
    """What runs, or how the last run ended."""
    history = status.history
    loop = status.running
    if loop is None:
        if last := history.stopped:
            at = time.strftime("%Y-%m-%d %H:%M", time.localtime(last.time))
            return f"the last run stopped at {at}: {text.one_line(last.reason, 300)}"
        if not history.iteration:
            return "no run yet"
        return "the last run was cut off; the next one goes on from there"
    words = f"a run is at work since {loop.since} (pid {loop.pid})"
    if loop.stopping:
        words += ", stopping as asked"
    if loop.rechecking:
        words += ", checking everything once more in a fresh checkout"
    waited = history.this_run.waited
    now = time.time()
    if waited.until > now:
        until = text.clock(waited.until, now)
        words += f"; {waited.command} waits until {until} for its provider's limit"
    return words


# ---------------------------------------------------------------- what to do next


def next_steps(status: Status, stopped: Stopped | None) -> list[str]:
    """The commands with which a person goes on after a run that `stopped` so: those of
    the first rule that fits. None where nothing is to be done."""
    plan = status.plan
    path = status.prd
    history = status.history
    stop = stopped or Stopped()
    again = command_line("run", path)
    blocked = [task for task in plan.tasks if task.is_blocked]
    aside = [task.id for task in plan.tasks if task.key in history.this_run.set_aside]
    # a run goes on by itself
    if status.running:
        return _unblock(status, blocked)
    # what no task can go on without comes first
    if wrong := prd.misspelt(plan):
        return [*wrong, again]
    if stop.stop == "budget":
        return [f"raise `budget` in {path}", again]
    if stop.exit == Exit.AGENT and history.this_run.denied:
        return [f"{again} --full-permissions"]
    if stop.exit == Exit.AGENT:
        return ["fix it", command_line("doctor", path, ["--probe"]), again]
    # then what needs a person
    if stop.stop == "red-checks" or blocked:
        steps = [*_mend(status), *_unblock(status, blocked)]
        return [*(steps or ["mend what is red"]), again]
    if aside:
        return [f"mend what set {text.few(aside)} aside", again]
    if unproved := prd.unproved(plan):
        check = command_line("run", path, ["--check"])
        add = f"name a check: {check} 'YOUR TEST COMMAND'"
        return [f"nothing proves {text.few(unproved)}; {add}"]
    if not all(task.passed for task in plan.tasks):
        return [again]
    if status.to_land:
        return [command_line("report", path), command_line("land", path)]
    return []


def _mend(status: Status) -> list[str]:
    """How to go on where checks of the plan are red: a task of its own for each."""
    recheck = status.history.recheck
    red = recheck.red if recheck else []
    steps = []
    for check in status.plan.checks:
        if any(line.startswith(f"{check.name} ") for line in red):
            words = [f"Mend {check.name}", "--check", check.command]
            add = command_line("add", status.prd, words)
            steps.append(f"mend {check.name}, or let a task do it: {add}")
    return steps


def _unblock(status: Status, blocked: list[Task]) -> list[str]:
    """How to open blocked tasks: one that asks something first."""
    for task in blocked:
        if status.history.of(task).question:
            return [command_line("retry", status.prd, [task.id]) + " --answer '...'"]
    names = [task.id for task in blocked]
    if not names:
        return []
    return [
        f"fix what blocks {text.few(names)}",
        command_line("retry", status.prd, names),
    ]
