"""`ralph report`: plan, records and commits as values for templates/report.html, which
has the words."""

from __future__ import annotations

import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING

from _ralph import files, text
from _ralph.files import resource
from _ralph.git import diffs
from _ralph.git.git import Git, git
from _ralph.model import Json, Paths, Plan
from _ralph.show import status, timeline
from _ralph.state import layout
from _ralph.state.history import History
from _ralph.state.layout import logs_folder
from _ralph.state.records import (
    Added,
    AttemptBegan,
    AttemptEnded,
    Journal,
    Record,
    Stopped,
)
from _ralph.state.summary import STATES, TaskFacts, command_words, spent, task_facts

if TYPE_CHECKING:
    import jinja2

_LONGEST = 4000
"""Bytes of a text on the page."""
_CHART = 20
"""Tasks in the chart of costs."""
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+", re.MULTILINE)


def save(prd_path: Path) -> Path:
    """Write the page into `.ralph`; where it is. BadInput as for `page`."""
    source, paths = page(prd_path), layout.locate(prd_path)
    logs_folder(paths)
    target = paths.report
    if files.read_regular(target, 0) is None:
        files.clear(
            target
        )  # a link that an agent made there must not be written through
    files.atomic_write(target, source.encode())
    return target


def page(prd_path: Path) -> str:
    """The whole page; only reads. BadInput if plan or records cannot be read."""
    shown, paths = status.read(prd_path), layout.locate(prd_path)
    plan, history = shown.plan, shown.history
    records = list(Journal(paths.progress).records(plan))
    verdicts = [record for record in records if isinstance(record, AttemptEnded)]
    groups = _tasks(plan, history)
    return _template().render(
        ralph=lambda name, *words: _command([*command_words(name, prd_path), *words]),
        ending=status.ending(shown),
        summary=status.as_object(shown),
        steps=status.next_steps(shown, history.stopped),
        now=time.time(),
        project=plan.project,
        folder=str(paths.root),
        history=history,
        groups=groups,
        costs=_costs([facts for tasks in groups.values() for facts in tasks]),
        verdicts={record.iteration: record for record in verdicts},
        commits=_commits(paths, history, records),
        ahead=_ahead(paths, history),
        proved=sum(task.passed and history.proved(task) for task in plan.tasks),
        unpriced=sum(not record.usd for record in verdicts),
        restored=[record for record in verdicts if record.restored],
        denied=[record for record in verdicts if record.denials],
        noticed=[record for record in verdicts if record.notices],
        learned=_learned(paths, verdicts),
        planning=sum(record.seconds for record in records if isinstance(record, Added)),
        **_timeline(plan, history, records, shown.running is not None),
    )


def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=lambda value: _safe(value) if type(value) is str else value,
    )
    environment.filters.update(
        line=_line, tail=_tail, counted=text.count, duration=text.duration, when=_when, command=_command,
        spent=spent,
    )  # fmt: skip
    return environment.from_string(resource("templates/report.html").read_text("utf-8"))


def _tasks(plan: Plan, history: History) -> dict[str, list[TaskFacts]]:
    """The tasks by state; the newest passes first."""
    groups: dict[str, list[TaskFacts]] = {state: [] for state in STATES}
    for facts in task_facts(plan, history):
        groups[facts.state].append(facts)
    groups["passed"].sort(key=lambda facts: facts.known.passed_at or -1, reverse=True)
    return groups


def _costs(tasks: list[TaskFacts]) -> list[tuple[TaskFacts, float]]:
    """The tasks that cost most, each with its part of the dearest one: in dollars, else
    in tokens, else in seconds."""
    amounts = [
        (facts, (facts.known.usd, facts.known.tokens.total, facts.known.seconds))
        for facts in tasks
    ]
    unit = next((i for i in range(3) if any(spent[i] for _, spent in amounts)), 2)
    dearest = sorted(amounts, key=lambda amount: -amount[1][unit])[:_CHART]
    return [
        (facts, spent[unit] / dearest[0][1][unit])
        for facts, spent in dearest
        if spent[unit]
    ]


def _commits(
    paths: Paths, history: History, records: list[Record]
) -> dict[str, diffs.Change]:
    since = next(
        (record.base for record in records if isinstance(record, AttemptBegan)), ""
    )
    found = diffs.passes(
        Git.at(paths.root),
        f"refs/heads/{history.branch}" if history.branch else "",
        since,
    )
    return {
        str(record.iteration): found[record.id]
        for record in records
        if isinstance(record, AttemptBegan) and record.id in found
    }


def _ahead(paths: Paths, history: History) -> int:
    """How many commits of verified work are not in what is checked out."""
    span = f"HEAD..refs/heads/{history.branch}"
    return int(git(paths.root, "rev-list", "--count", span, "--", check=False) or 0)


def _timeline(
    plan: Plan, history: History, records: list[Record], running: bool
) -> Json:
    if running and records:
        now = Stopped(time=time.time(), run=records[-1].run, reason="still running")
        records = [*records, now]
    places = timeline.axis(records)
    attempts = timeline.attempts(places, history.open_starts if running else {})
    tried: dict[str, list[int]] = {}
    for record in records:
        if isinstance(record, AttemptBegan):
            tried.setdefault(record.key, []).append(record.iteration)
    return {
        "tried": tried,
        "seconds": places[-1][0] if places else 0.0,
        "runs": timeline.runs(places),
        "attempts": attempts,
        "workers": sorted({attempt.worker for attempt in attempts}),
        "waits": timeline.waits(places),
        "passes": timeline.passes(places, {task.key for task in plan.tasks}),
    }


def _learned(paths: Paths, verdicts: list[AttemptEnded]) -> list[str]:
    """Lines that a person may add to AGENTS.md: those that it does not have yet."""
    rulebook = (files.read_regular(paths.rulebook, 1 << 20) or b"").decode(
        "utf-8", "replace"
    )
    learned = [line for record in verdicts for line in _entries(record, "learned")]
    return [line for line in dict.fromkeys(learned) if line not in rulebook]


def _entries(record: AttemptEnded, part: str, width: int = 500) -> list[str]:
    """The entries of a part of a handoff: its bullets with what belongs to them, else
    its lines."""
    written = _safe(record.handoff.get(part, ""))
    entries = (
        _BULLET.split(written) if _BULLET.search(written) else written.splitlines()
    )
    return [text.one_line(entry, width) for entry in entries if entry.strip()]


def _safe(words: str) -> str:
    """Every text on the page goes through this."""
    return text.clip(text.redact(text.clean(words)), _LONGEST)


def _line(words: str, width: int = 200) -> str:
    return text.one_line(_safe(words), width)


def _tail(words: str) -> str:
    return text.tail(text.redact(text.clean(words)), _LONGEST)


def _command(words: list[str]) -> str:
    """A line to copy; never half of one."""
    line = shlex.join(_line(word, 1000) for word in words)
    return line if len(line) < 500 else "(the command is too long to show)"


def _when(moment: float) -> str:
    return time.strftime("%a %d %b, %H:%M", time.localtime(moment))
