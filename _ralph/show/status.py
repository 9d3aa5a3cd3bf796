"""`ralph status`: a plan as text for people, or as an object for programs."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from click import style

from _ralph import text
from _ralph.errors import BadInput, Exit
from _ralph.model import Json, Paths, Plan, Task
from _ralph.state import layout, limits, prd
from _ralph.state.history import History
from _ralph.state.records import AttemptBegan, Failure, Stopped
from _ralph.state.summary import (
    Running,
    Summary,
    TaskFacts,
    Worker,
    command_line,
    limits_words,
    spent,
    summarize,
)

WEAK = "weak: nothing that was red turned green for it, or some tests did not run"
FINAL_CHECK_DUE = "final check due: the next run begins by checking all passes again"
_COLORS = {
    "passed": "green",
    "failed": "yellow",
    "blocked": "red",
    "running": "cyan",
    "next": "cyan",
}
_WIDTH = 120
"""Columns where there is no terminal, and the fewest of one."""
_USD = 20.0
"""Dollars for a night, where nobody has said how many."""
_STATE = len("running")
_LEAST = 60


class Status(NamedTuple):
    """What a plan, its log and its places say, read once."""

    plan: Plan
    history: History
    prd: Path = Path("prd.json")  # as it was given
    running: Running | None = None  # the loop at work
    places: Path | None = None  # the folder in which agents and checks work
    to_land: bool = False  # the plan is done, and HEAD lacks its work


def read(prd_path: Path) -> Status:
    """The state of a plan: nothing is written, no lock is taken. BadInput if it cannot
    be read."""
    paths = layout.locate(prd_path)
    plan = prd.load(paths.prd)
    history = layout.history_of(paths, plan)
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
        places=paths.places if paths.places.is_dir() else None,
        to_land=to_land,
    )


def _running(paths: Paths, history: History) -> Running | None:
    """The loop at work on a plan, if there is one."""
    loop = layout.loop_at_work(paths)
    if loop is None:
        return None
    starts = sorted(history.open_starts.values(), key=lambda start: start.worker)
    return Running(
        pid=loop.pid,
        since=loop.since,
        stopping=layout.stop_is_asked(paths, loop.run_id),
        rechecking=len(paths.rooms) > 1,
        workers=[_worker(paths, start) for start in starts],
    )


def _worker(paths: Paths, start: AttemptBegan) -> Worker:
    """What a loop does now, since when, and where."""
    number = start.worker or 1
    return Worker(
        worker=number,
        task=start.task,
        attempt=start.attempt or 1,
        agent=start.command,
        since=time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(start.time)),
        seconds=round(max(time.time() - start.time, 0.0), 1),
        workspace=str(paths.workspace(number)),
    )


def show(status: Status, form: str) -> str:
    """The state as `text`, `md` or `json`; color and width are those of the
    terminal."""
    if form == "json":
        return json.dumps(as_object(status))
    terminal = sys.stdout.isatty() and os.environ.get("TERM") != "dumb"
    color = terminal and not os.environ.get("NO_COLOR")
    width = _WIDTH
    if sys.stdout.isatty():
        import shutil  # 5 ms, and only there

        width = shutil.get_terminal_size().columns
    if form == "md":
        return text.fenced("\n".join(lines(status, _WIDTH, color=False)), "text")
    return "\n".join(lines(status, width, color))


def as_object(status: Status) -> Json:
    """What `--json` prints."""
    return _summary(status).as_object()


def _summary(status: Status) -> Summary:
    return summarize(status.plan, status.history, running=status.running)


# ---------------------------------------------------------------- the text


def lines(status: Status, width: int, color: bool) -> list[str]:
    """The tasks, a line each in `width` columns, and below one what a person should
    know of it; then how many passed, and what is going on."""
    known = _summary(status)
    rows = _rows(known)
    width = max(width, _LEAST)
    upcoming = "" if known.running else known.next
    id_width = min(max((len(row.id) for row in rows), default=0), width // 3)
    spent_width = max((len(row.spent) for row in rows), default=0)
    printed = []
    for row in rows:
        columns = f"  {text.one_line(row.id, id_width):{id_width}}  "
        if spent_width:
            columns += f"{row.spent:>{spent_width}}  "
        title = f"({row.remark}) {row.title}" if row.remark else row.title
        title = text.one_line(title, width - _STATE - len(columns))
        state = "next" if row.task.id == upcoming else row.state
        word = f"{state:{_STATE}}"
        if color:
            word = style(word, fg=_COLORS.get(state))
        printed.append(word + columns + title)
        below = list(row.warnings)
        if row.known.last and row.state not in ("passed", "running"):
            below += _end_of(row.known.last.failure)
        printed += [" " * (_STATE + 2) + line for line in below]
    sentences = [_count(status.plan, known, rows), *_sentences(status, known)]
    return [*printed, "", *(text.one_line(words, 1000) for words in sentences)]


def _rows(known: Summary) -> list[TaskFacts]:
    """The tasks; one that a loop has is `running`, with what is done there."""
    workers = {}
    if known.running:
        workers = {worker.task: worker for worker in known.running.workers}
    rows = []
    for facts in known.tasks:
        if worker := workers.get(facts.task.id):
            lasted = text.duration(worker.seconds, short=True)
            where = text.one_line(f"{Path(worker.workspace).name}: {worker.agent}")
            facts = facts._replace(
                state="running",
                remark=f"attempt {worker.attempt}, {lasted}",
                warnings=[where, *facts.warnings],
            )
        rows.append(facts)
    return rows


def _end_of(failure: Failure) -> list[str]:
    """The last lines of a red check, and where all of it is."""
    if not failure.log:
        return []
    return [*last_lines(failure.tail), f"all: {failure.log}"]


def last_lines(printed: str) -> list[str]:
    """The last lines of what a check printed."""
    lines = text.last_lines(text.redact(text.clean(printed)))
    return [f"| {text.one_line(line)}" for line in lines]


def _count(plan: Plan, known: Summary, rows: list[TaskFacts]) -> str:
    """`shop: 55 of 100 passed (3 weak), 1 running, 2 failed, 42 waiting; 60 iterations,
    5 h 2 min, $20.30`."""
    words = f"{plan.project}: {known.passed} of {len(rows)} passed"
    if weak := sum(row.weak for row in rows):
        words += f" ({weak} weak)"
    states = Counter(row.state for row in rows)
    for state in ("running", "failed", "blocked", "waiting", "open"):
        if states[state]:
            words += f", {states[state]} {state}"
    if known.iterations:
        words += f"; {text.count(known.iterations, 'iteration')}, {spent(known.spent)}"
    return words


def _sentences(status: Status, known: Summary) -> Iterator[str]:
    """What runs or how the last run ended, what is used of the limits, whether a final
    check is due, where passes are, and what to do next."""
    if any(row.weak for row in known.tasks):
        yield WEAK
    yield ending(status)
    last, recheck = status.history.stopped, status.history.recheck
    if last and last.stop == "red-checks" and recheck and "" in recheck.failures:
        yield from _end_of(recheck.failures[""])
    usage = known.usage
    if not status.history.run:
        usage = replace(usage, run={})
    if limited := limits_words(usage, "this run"):
        yield limited
    if known.final_check_due:
        yield FINAL_CHECK_DUE
    if known.branch:
        where = f"passes are committed on branch {known.branch}"
        if status.places:
            where += f"; agents and checks work in {status.places}"
        yield where
    if steps := next_steps(status, status.history.stopped):
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
        who = text.one_line(waited.command, 40) or "the agent"
        until = text.clock(waited.until, now)
        words += f"; {who} waits until {until} for its provider's limit"
    return words


# ---------------------------------------------------------------- what to do next


def next_steps(status: Status, stopped: Stopped | None) -> list[str]:
    """The commands with which a person goes on after a run that `stopped` so: those of
    the first rule that fits. None where nothing is to be done."""
    plan = status.plan
    path = status.prd
    again = run_command(plan, path, status.history.limits.get("usd", _USD))
    blocked = [task for task in plan.tasks if task.is_blocked]
    # a run goes on by itself
    if status.running:
        return _unblock(status, blocked)
    # what no task can go on without comes first
    if wrong := prd.misspelt(plan):
        return [*wrong, again]
    if stopped and stopped.stop == "red-checks":
        return [*(_mend(status) or ["mend what is red"]), again]
    if stopped and stopped.stop == "budget":
        return [f"raise `budget` in {path}", again]
    if stopped and stopped.exit == Exit.AGENT:
        if status.history.this_run.denied:
            return [f"{again} --full-permissions"]
        return ["fix it", command_line("doctor", path, ["--probe"]), again]
    # tasks that need a person
    if blocked:
        return [*_mend(status), *_unblock(status, blocked), again]
    if aside := status.history.this_run.set_aside:
        names = [task.id for task in plan.tasks if task.key in aside]
        return [f"mend what set {text.few(names)} aside", again]
    # tasks that nothing proves
    if unproved := prd.unproved(plan):
        check = command_line("run", path, ["--check"])
        return [
            f"nothing proves {text.few(unproved)}; name a check: "
            f"{check} 'YOUR TEST COMMAND'"
        ]
    # all is done
    if all(task.passed for task in plan.tasks):
        if not status.to_land:
            return []
        return [command_line("report", path), command_line("land", path)]
    return [again]


def run_command(plan: Plan, path: Path, usd: float = _USD) -> str:
    """The command that runs a plan; with a limit of so many dollars where an API key
    pays for its agent, and the plan has none."""
    command = command_line("run", path)
    if not any(name.endswith(("_API_KEY", "_AUTH_TOKEN")) for name in os.environ):
        return command
    from _ralph.agents import registry  # 10 ms, and only where there is a key

    with contextlib.suppress(BadInput):
        allowed = limits.resolve(plan.settings, {})
        if allowed.in_dollars or allowed.in_tokens:
            return command
        name = [*prd.commands(plan.settings.get("agent")), "claude"][0]
        clis = registry.with_own(plan.settings.get("agents", {}))
        agent = registry.find_agent(name, clis, "edit")
        key, _ = registry.credentials(agent, os.environ)
        if key and "dollars" in agent.cli.reports:
            return f"{command} --max-usd {usd:g}"
    return command


def _mend(status: Status) -> list[str]:
    """How to go on where checks of the plan are red: where each stands, and a task of
    its own for it."""
    from _ralph.checks.guard import where_in  # only then

    recheck = status.history.recheck
    red = recheck.red if recheck else []
    steps = []
    for check in status.plan.checks:
        if any(line.startswith(f"{check.name} ") for line in red):
            words = [f"Mend {check.name}", "--check", check.command]
            add = command_line("add", status.prd, words)
            where = where_in(status.plan, check)
            steps.append(f"mend {check.name} ({where}), or let a task do it: {add}")
    return steps


def _unblock(status: Status, blocked: list[Task]) -> list[str]:
    """How to open blocked tasks: one that asks something first."""
    if not blocked:
        return []
    for task in blocked:
        if status.history.of(task).question:
            retry = command_line("retry", status.prd, [task.id])
            return [f"{retry} --answer '...'"]
    names = [task.id for task in blocked]
    retry = command_line("retry", status.prd, names)
    return [f"fix what blocks {text.few(names)}", retry]
