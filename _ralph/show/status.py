"""`ralph status`: the plan as a table for people, as Markdown to paste, as an object
for machines."""

from __future__ import annotations

import functools
import json
import os
import re
import shutil
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from click import style

from _ralph import text
from _ralph.errors import BadInput, Exit
from _ralph.model import Json, Paths, Plan, Tokens
from _ralph.state import layout, limits, prd
from _ralph.state.facts import (
    Fact,
    TaskFacts,
    agents_summary,
    agents_words,
    command_line,
    dollars,
    last_stop,
    limits_words,
    summary,
    task_facts,
    thousands,
)  # fmt: skip
from _ralph.state.history import History
from _ralph.state.records import AttemptBegan, Stopped

_COLORS = {
    "passed": "green",
    "failed": "yellow",
    "blocked": "red",
    "running": "cyan",
    "next": "cyan",
}
_NARROW = 60
FINAL_CHECK_DUE = "final check due: what landed has not been checked again; the next run starts with that"
_BAR = 24
_STAMP = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True)
class Status:
    """What a plan, its log and its places say, read once."""

    plan: Plan
    history: History
    running: Json | None = None  # the loop: `pid`, `since`, its `workers`
    places: Json | None = None  # the folders in which agents and checks work
    prd: Path = Path("prd.json")  # the plan's path as it was given
    to_land: str = ""  # the branch of a plan that is done, if HEAD lacks its work
    trouble: str = ""  # why prd.json cannot be read now

    @property
    def workers(self) -> list[Json]:
        """What is worked on now."""
        return list(self.running["workers"]) if self.running else []

    @functools.cached_property
    def tasks(self) -> list[TaskFacts]:
        """The facts of each task; one that is worked on now is `running`."""
        now = {worker["task"]: _attempt_words(worker) for worker in self.workers}
        return [
            replace(facts, state="running", remark=now[facts.task.id])
            if facts.task.id in now
            else facts
            for facts in task_facts(self.plan, self.history)
        ]

    @functools.cached_property
    def facts(self) -> list[Fact]:
        """All that is known, in the order in which people read it: what they are shown,
        and what `--json` prints."""
        history, usage, branch = self.history, _usage(self), self.history.branch
        due = bool(history.unchecked and self.plan.every_check and not history.run)
        upcoming = prd.next_task(self.plan)
        limited = limits_words(
            usage if history.run else replace(usage, run={}), "this run"
        )
        flaky, steps = (
            text.few(history.flaky),
            "; ".join(next_steps(self, history.stopped)),
        )
        return [
            *(
                Fact(name, value)
                for name, value in summary(
                    self.plan, history, None, history.seconds
                ).items()
            ),
            Fact("trouble", self.trouble or None),
            Fact("agents", agents_summary(history), agents_words(history)),
            Fact("limits", asdict(usage), [limited] * bool(limited)),
            Fact(
                "running",
                self.running,
                _loop(self) if self.running else [_last_run(self.plan, history)],
            ),
            Fact("final_check_due", due, [FINAL_CHECK_DUE] * due),
            Fact(
                "flaky",
                history.flaky,
                [f"flaky in the last final check: {flaky}"] * bool(flaky),
            ),
            Fact(
                "branch",
                branch or None,
                [f"verified work lands on branch {branch}"] * bool(branch),
            ),
            Fact("places", self.places, _where(self)),
            Fact(
                "next",
                upcoming.id if upcoming else None,
                [f"next: {steps}"] * bool(steps),
            ),
        ]

    @property
    def sentences(self) -> list[str]:
        """What people are shown beside the tasks."""
        return [line for fact in self.facts for line in fact.lines]


def read(prd_path: Path, weigh: bool = True) -> Status:
    """The state of a plan: nothing is written, no lock is taken. BadInput if it cannot
    be read; while a loop waits for that, the state is that of the plan as it last could
    read it. To `weigh` the places takes a look at each of their files."""
    paths, plan, history, trouble = layout.read_state_or_last(prd_path)
    loop = layout.loop_at_work(paths)
    done = history.branch and all(
        task.passed for task in plan.tasks
    )  # else nobody asks git for it
    ahead = history.branch if done and _is_ahead(paths, history.branch) else ""
    places = _places(paths) if weigh else None
    status = Status(plan, history, None, places, prd_path, ahead, trouble)
    if loop is None:
        return status
    under_way = sorted(history.open_starts.values(), key=lambda start: start.worker)
    running: Json = {
        "pid": loop.pid,
        "since": loop.since,
        "stopping": layout.stop_is_asked(paths, loop.run_id),
        "rechecking": len(paths.rooms) > 1,
        "workers": [_worker(paths, start) for start in under_way],
        "queue": [
            {"task": task, "room": room or None}
            for task, room in layout.queue_of(paths)
        ],
    }
    return replace(status, running=running)


def _is_ahead(paths: Paths, branch: str) -> bool:
    """Whether HEAD lacks work of this branch."""
    from _ralph.git.branch import Branch  # only when all is done
    from _ralph.git.git import Git

    return Branch(Git.at(paths.root), branch, "").is_ahead


def _worker(paths: Paths, start: AttemptBegan) -> Json:
    """What a worker does now, since when, where, and what its agent has used so far."""
    from _ralph.agents import sums  # only while a loop runs

    name, workspace = (
        layout.log_name(start.iteration, start.task),
        paths.workspace(start.worker or 1),
    )
    so_far = sums.read(paths.logs / name) or sums.SoFar()
    used = so_far.result
    return {
        "worker": start.worker or 1,
        "task": start.task,
        "attempt": start.attempt,
        "agent": start.command,
        "since": time.strftime(_STAMP, time.localtime(start.time)),
        "launch": None,  # of version 0.2
        "workspace": str(workspace),
        "usd": round(used.usd or 0.0, 6),
        "usd_estimated": 0.0,
        "tokens": asdict(used.tokens),
        "doing": so_far.doing,
    }


def _places(paths: Paths) -> Json | None:
    """Where agents and checks work, and the bytes on disk; None before the first
    run."""
    if not paths.places.is_dir():
        return None
    return {
        "folder": str(paths.places),
        "workspace": str(paths.workspace()),
        "room": str(paths.room),
        "rooms": {str(room): layout.weight(room) for room in _rooms(paths)},
        "bytes": layout.weight(paths.places),
    }


def _rooms(paths: Paths) -> list[Path]:
    """The clean rooms, the first one first."""
    others = sorted(
        paths.places.glob("room[0-9]*"), key=lambda room: (len(room.name), room.name)
    )
    return [paths.room, *others]


def _usage(status: Status) -> limits.Usage:
    """What is used of each limit of the plan and of its last run, up to now."""
    history = status.history
    try:
        usage = limits.used(
            limits.resolve(status.plan.settings, history.limits), history
        )
    except BadInput:  # no run would take it
        return limits.Usage()
    if status.running and history.run and history.last:
        usage.run["seconds"].used += max(round(time.time() - history.last.time, 1), 0.0)
    return usage


def show(status: Status, form: str) -> str:
    """The state as `text`, `md` or `json`; color and width are those of the
    terminal."""
    if form == "json":
        return json.dumps(as_object(status))
    if form == "md":
        return markdown(status)
    trouble = (
        [f"! {status.trouble}; this is the plan as the loop last read it"]
        if status.trouble
        else []
    )
    color = (
        sys.stdout.isatty()
        and os.environ.get("TERM") != "dumb"
        and not os.environ.get("NO_COLOR")
    )
    width = max(shutil.get_terminal_size((120, 24)).columns, 40)
    return "\n".join([*trouble, *lines(status, width, color)])


def as_object(status: Status) -> Json:
    """What `--json` prints: the shape of `run --json`, and what is only seen from
    outside."""
    return {fact.name: fact.value for fact in status.facts}


# ---------------------------------------------------------------- a terminal


def lines(status: Status, width: int, color: bool) -> list[str]:
    """The table, a task each, in `width` columns; then what is going on, and the count
    last, where the eye is."""
    rows = _rows(status)
    passed, total = len(status.plan.passed_ids), len(rows)
    headline = f"{text.cut(status.plan.project, width // 2)}: {_counts(status)}"
    bar = "#" * (_BAR * passed // total)
    paint = (
        "green"
        if passed == total
        else "red"
        if any(row.state == "blocked" for row in rows)
        else "cyan"
    )
    sentences = [
        line
        for sentence in status.sentences
        for line in text.wrap(text.one_line(sentence, 600), width)
    ]
    last = text.wrap(f"{headline}  [{bar:.<{_BAR}}]", width)
    return [
        *_table(rows, width, color),
        "",
        *sentences,
        *(_paint(line, paint, color) for line in last),
    ]


def _table(rows: list[TaskFacts], width: int, color: bool) -> list[str]:
    """Columns as wide as their content, but for the title, which gets what is left; a
    narrow terminal does not show what was spent."""
    states = max(len(row.state) for row in rows)
    ids = min(max(text.cells(row.id) for row in rows), width // 3)
    asides = [
        f" ({row.remark.removeprefix('waits ')})" if row.remark else "" for row in rows
    ]
    spent = [f"  {row.spent}" if row.spent and width >= _NARROW else "" for row in rows]
    ends = max(map(len, spent))
    left = width - states - ids - 4 - ends
    titles = min(
        max(
            text.cells(row.title + aside)
            for row, aside in zip(rows, asides, strict=True)
        ),
        left,
    )
    table = []
    for row, aside, end in zip(rows, asides, spent, strict=True):
        state = _paint(f"{row.state:{states}}", _COLORS.get(row.state, ""), color)
        aside = text.cut(aside, max(titles * 2 // 3, titles - text.cells(row.title)))
        title = text.pad(
            text.cut(row.title, titles - text.cells(aside)) + aside, titles
        )
        table.append(f"{state}  {text.pad(row.id, ids)}  {title}{end:>{ends}}".rstrip())
        for warning in row.warnings:
            table += [
                " " * (states + 2) + line
                for line in text.wrap(warning, width - states - 2)
            ]
    return table


def _paint(words: str, name: str, color: bool) -> str:
    return style(words, fg=name) if color and name else words


# ---------------------------------------------------------------- Markdown


def markdown(status: Status) -> str:
    """The same to paste into an issue or a pull request. Foreign text in it is text and
    nothing else."""
    parts = [
        f"## {escape(status.plan.project)}: {_counts(status)}\n",
        "| state | task | title | notes | spent |\n|---|---|---|---|---:|",
    ]
    for row in _rows(status):
        notes = "; ".join([row.remark] * bool(row.remark) + row.warnings)
        cells = (
            escape(cell, 1000)
            for cell in (row.state, row.id, row.title, notes, row.spent)
        )
        parts.append(f"| {' | '.join(cells)} |")
    parts += ["", *(f"{escape(sentence, 500)}  " for sentence in status.sentences)]
    return "\n".join(parts)


def escape(words: str, width: int = 300) -> str:
    """`words` on one line, as Markdown that shows just them: no markup, HTML, link,
    image, mention of a person or number of an issue. GitHub looks for those after the
    markup is gone, so an invisible space parts what would be one."""
    line = re.sub(r"([\\`*_\[\]<>|~&!$])", r"\\\1", text.one_line(words, width))
    return re.sub(
        r"(@|#|:(?=//)|\b(?:www|gh|mailto|xmpp)(?=[.:-]))",
        r"\1&#8203;",
        line,
        flags=re.IGNORECASE,
    )


# ---------------------------------------------------------------- the words


def _rows(status: Status) -> list[TaskFacts]:
    """The tasks as a table shows them: where no loop is at work, the next one says
    so."""
    upcoming = None if status.running else prd.next_task(status.plan)
    return [
        replace(row, state="next") if upcoming and row.task.id == upcoming.id else row
        for row in status.tasks
    ]


def _counts(status: Status) -> str:
    """`55 of 100 passed (3 weak), 1 running, 2 failed, 1 blocked, 40 waiting`."""
    rows = status.tasks
    states = Counter(row.state for row in rows)
    weak = sum(row.task.passed and row.known.weak for row in rows)
    passed = f"{len(status.plan.passed_ids)} of {len(rows)} passed{f' ({weak} weak)' if weak else ''}"
    words = ("running", "failed", "blocked", "waiting", "open")
    return ", ".join(
        [passed, *(f"{states[state]} {state}" for state in words if states[state])]
    )


def _where(status: Status) -> list[str]:
    """Where agents and checks work."""
    if status.places is None:
        return []
    last = max([1, *(worker["worker"] for worker in status.workers)])
    more, weight = (
        f" to work-{last}" if last > 1 else "",
        text.megabytes(status.places["bytes"]),
    )
    rooms = status.places["rooms"]
    others = ", ".join(Path(room).name for room in list(rooms)[1:])
    others = (
        f" and {others} (together {text.megabytes(sum(rooms.values()))})"
        if others
        else ""
    )
    return [
        f"the agent works in {status.places['workspace']}{more}",
        f"checks run in {status.places['room']}{others}; all places take {weight}",
    ]


def next_steps(status: Status, stopped: Stopped | None) -> list[str]:
    """The commands with which a person goes on after a run that `stopped` so. None
    where nothing is to be done, also while a loop runs."""
    plan, history, path = status.plan, status.history, status.prd
    run = history.this_run
    asked = sorted(
        (task for task in plan.tasks if task.is_blocked),
        key=lambda t: not history.of(t).question,
    )
    again = text.one_line(command_line("run", path), 1000)
    if stopped and not status.running and (first := _before_any_task(stopped, path)):
        return [*first, again]
    if asked:
        questions = [task.id for task in asked if history.of(task).question]
        opened = questions[:1] or [task.id for task in asked]
        fix = [] if questions else [f"fix what blocks {text.few(opened)}"]
        answer = " --answer '...'" if questions else ""
        more = (
            [f"{len(asked) - 1} more blocked"] if questions and len(asked) > 1 else []
        )
        retry = text.one_line(command_line("retry", path, opened), 1000) + answer
        return [*fix, retry, *more, *([] if status.running else [again])]
    if status.running:
        return []
    if unproved := prd.unproved(plan):
        check = command_line("run", path, ["--check"])
        return [
            f"nothing proves {text.few(unproved)}; name a check: {check} 'YOUR TEST COMMAND'"
        ]
    if all(task.passed for task in plan.tasks):
        land = command_line("land", path, [status.to_land])
        return [command_line("report", path), land] if status.to_land else []
    if stopped and stopped.stop == "limit" and run.iterations == 1 and not run.passed:
        for option in ("--max-usd", "--max-tokens"):
            if option in stopped.reason:
                took = dollars(run.usd) or thousands(run.tokens)
                return [f"raise {option}: one attempt took {took}"]
    return [again]


def _before_any_task(stopped: Stopped, path: Path) -> list[str]:
    """What to do first where a run `stopped` for something that no task can go on
    without."""
    if stopped.stop == "red-checks":
        task = command_line("add", path)
        return [
            f"fix it yourself, or let a task do it: {task} 'TITLE' --check 'THE RED ONE'"
        ]
    if stopped.stop == "budget":
        return [f"raise `budget` in {path}"]
    if stopped.exit == Exit.AGENT:
        return [
            "fix it",
            text.one_line(command_line("doctor", path, ["--probe"]), 1000),
        ]
    return []


def _last_run(plan: Plan, history: History) -> str:
    """How the last run ended."""
    if stopped := last_stop(plan, history):
        at = time.strftime("%Y-%m-%d %H:%M", time.localtime(stopped.time))
        return f"the last run stopped at {at}: {text.one_line(stopped.reason, 300)}"
    if history.stopped or not history.iteration:
        return "no run yet"
    return "the last run was cut off; the next one goes on from there"


def _loop(status: Status) -> list[str]:
    """Since when a loop runs; a line for each of its workers, and for an agent that it
    waits for."""
    loop = status.running or {}
    running = f"a loop is running since {loop['since']} (pid {loop['pid']})"
    running += ", stopping as asked" if loop.get("stopping") else ""
    running += (
        ", checking everything once more in a fresh checkout"
        if loop.get("rechecking")
        else ""
    )
    several = len(status.workers) > 1
    workers = [
        (f"worker {worker['worker']}: " if several else "") + _worker_words(worker)
        for worker in status.workers
    ]
    if queue := loop.get("queue"):
        turns = [
            f"{turn['task']} in {turn['room']}" if turn["room"] else turn["task"]
            for turn in queue
        ]
        workers.append(f"in line to land: {', then '.join(turns)}")
    waited = status.history.this_run.waited
    until, who = (
        text.clock(waited.until, time.time()),
        text.one_line(waited.command, 40) or "the agent",
    )
    waiting = [f"{who} waits until {until} for its provider's limit"] * (
        waited.until > time.time()
    )
    return [running, *workers, *waiting]


def _worker_words(worker: Json) -> str:
    """`US-001, attempt 1, 2 min 5 s, claude, $0.12, 20.3k tokens; Bash pytest`."""
    cost = dollars(worker["usd"]), thousands(Tokens(**worker["tokens"]))
    parts = [worker["task"], _attempt_words(worker), worker["agent"], *cost]
    return ", ".join(part for part in parts if part) + (
        f"; {worker['doing']}" if worker["doing"] else ""
    )


def _attempt_words(worker: Json) -> str:
    """Which attempt is under way, and for how long."""
    began = time.mktime(time.strptime(worker["since"], _STAMP))
    lasted = text.duration(max(time.time() - began, 0), short=True)
    return f"attempt {worker['attempt'] or 1}, {lasted}"
