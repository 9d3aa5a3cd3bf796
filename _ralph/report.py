"""The morning page: plan, records and git turned into the values of templates/report.html."""

from __future__ import annotations

import html
import re
import shlex
import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from _ralph import diffs, files, text, views
from _ralph.files import resource
from _ralph.model import Paths, Plan, Tokens
from _ralph.progress import History, replay
from _ralph.timeline import Bar, Timeline, steps, ticks

_ROWS, _LINES, _BARS = 500, 200, 2000
"""Entries that one list of tasks or attempts shows, one of what was found or put back, and the chart."""
_SIZE, _DIFFS = 3_000_000, 1_600_000
"""Bytes of all texts on the page, and of the diffs among them."""
_TAIL, _PART, _SHORT = 4000, 1500, 24
"""Bytes of a check's tail, of a part of a handoff, and of any text once the page is full."""
_SHOWN = ("decisions", "risks", "ruled out", "next step")
_BULLET = re.compile(r"^\s*(?:[-*+•]|\d+[.)])\s+")


class _Room:
    """What every text passes on its way to the page: cleaned, redacted, and cut short once the
    page is full."""

    def __init__(self, size: int) -> None:
        self._left = size

    def __call__(self, value: Any) -> Any:
        if type(value) is not str:  # numbers, and what has passed already
            return value
        said = text.redact(text.clean(value))
        self._left -= len(html.escape(said).encode())
        return text.one_line(said, _SHORT) if self.full else said

    @property
    def full(self) -> bool:
        return self._left < 0


def page(
    paths: Paths,
    plan: Plan,
    records: list[dict[str, Any]],
    *,
    git: bool,
    running: dict[str, Any] | None,
    options: Sequence[str] = (),
    elsewhere: str | None = None,
) -> str:
    """The whole page. `running` is the loop at work, `options` stand in the commands that it shows,
    `elsewhere` is the branch to look at instead."""
    import jinja2

    room = _Room(_SIZE)
    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=room,
    )
    environment.filters.update(
        line=_line, counted=text.count, duration=text.duration, when=_when, command=_command
    )
    source = resource("templates/report.html").read_text("utf-8")
    values = page_values(paths, plan, records, git, running)
    return environment.from_string(source).render(
        **values, room=room, options=list(options), elsewhere=elsewhere
    )


def page_values(
    paths: Paths,
    plan: Plan,
    records: list[dict[str, Any]],
    git: bool,
    running: dict[str, Any] | None,
) -> dict[str, Any]:
    """Everything the template uses. BadInput names a record that is damaged."""
    from _ralph.prd import next_task

    history, now = replay(records, plan), time.time()
    own = [record for record in records if record.get("plan") == plan.key]
    verdicts = [record for record in own if record["event"] == "verdict"]
    times = Timeline(frozenset(task.key for task in plan.tasks))
    for record in own:
        times.take(record)
    if running:
        times.still_running(now)
    summary = views.summary(plan, history, None, history.seconds)
    upcoming = next_task(plan)
    return {
        "project": plan.project,
        "branch": (history.branch or "").removeprefix("refs/heads/"),
        "folder": str(paths.root),
        "now": now,
        "running": running,
        "summary": summary,
        "stopped": history.stopped,
        "next": upcoming.id if upcoming else None,
        **_yield(plan, history, times),
        **_tasks(paths, plan, history, own, git, summary),
        "restored": _restored(verdicts),
        "learned": _learned(paths, verdicts),
        "found": _found(plan, verdicts),
        **_figure(times, len(plan.tasks), history),
    }


def _yield(plan: Plan, history: History, times: Timeline) -> dict[str, Any]:
    """What came out for what went in; only what ralph itself has seen to pass counts."""
    proved = sum(task.passed and history.proved(task) for task in plan.tasks)
    unpriced = sum(not bar.record.get("usd") for bar in times.attempts if bar.record["event"] == "verdict")
    return {
        "proved": proved,
        "hours": times.seconds,
        "unpriced": unpriced if history.usd else 0,
        "per_usd": proved / history.usd if history.usd else None,
        "per_hour": proved * 3600 / times.seconds if times.seconds >= 60 else None,
    }


def _tasks(
    paths: Paths,
    plan: Plan,
    history: History,
    records: list[dict[str, Any]],
    git: bool,
    summary: dict[str, Any],
) -> dict[str, Any]:
    """The tasks by state, each with what a person needs to know of it; the newest passes first."""
    groups: dict[str, list[dict[str, Any]]] = {state: [] for state in views.STATES}
    for task, told in zip(plan.tasks, summary["tasks"], strict=True):
        known = history.of(task)
        tokens = Tokens() if known.usd else known.tokens  # dollars say it in fewer words
        spent = views.spent(known.seconds, known.usd or None, tokens) if known.iterations else ""
        notes = views.task_notes(plan, told, known)
        groups[told["state"]].append({**told, "known": known, "spent": spent, "notes": notes})
    groups["passed"].sort(key=lambda card: -_passed_at(card))
    more = {state: max(len(cards) - _ROWS, 0) for state, cards in groups.items()}
    groups = {state: cards[:_ROWS] for state, cards in groups.items()}
    for card in groups["blocked"] + groups["failed"]:
        card.update(_failure(card["known"].last or {}))
    passes = {(r["iteration"], r["task"]): r for r in records if r.get("verdict") == "passed"}
    for card in groups["passed"]:
        record = passes.get((card["known"].passed_at, card["id"]), {})
        card.update(handoff=_parts(record), commit="", diff=None)
    if git:
        _add_commits(paths, groups["passed"], history, records)
    return {"groups": groups, "more": more}


def _passed_at(card: dict[str, Any]) -> float:
    at = card["known"].passed_at
    return -1 if at is None else at


def _failure(last: dict[str, Any]) -> dict[str, Any]:
    """What the last attempt that counted left to read: question, first failure, objections."""
    failure, handoff = last.get("failure") or {}, last.get("handoff") or {}
    return {
        "question": _cut(handoff.get("blocked on"), _PART),
        "check": failure.get("name", ""),
        "tail": _cut(failure.get("tail"), _TAIL, text.tail),
        "log": failure.get("log", ""),
        "others": (failure.get("others") or [])[:20],
        "objections": [_cut(line, 400) for line in ((last.get("judge") or {}).get("objections") or [])[:20]],
        "handoff": _parts(last),
    }


def _parts(record: dict[str, Any]) -> list[tuple[str, str]]:
    """Those parts of a handoff that help to review the work."""
    handoff = record.get("handoff") or {}
    return [(label, _cut(handoff[label], _PART)) for label in _SHOWN if handoff.get(label)]


def _add_commits(
    paths: Paths, cards: list[dict[str, Any]], history: History, records: list[dict[str, Any]]
) -> None:
    """Give each pass its commit and, as far as the page has room, what it changed."""
    since = next((str(record.get("head")) for record in records if record["event"] == "start"), "")
    found = diffs.commits_of(paths.root, history.branch or "", since)
    for card in cards:
        card["commit"], card["subject"] = found.get(str(card["known"].passed_at), ("", ""))
    hidden = [
        path.relative_to(paths.root).as_posix()
        for path in (paths.prd, paths.progress)
        if path.is_relative_to(paths.root)
    ]
    changes = diffs.changes_in(
        paths.root, [card["commit"] for card in cards if card["commit"]], hidden, _DIFFS
    )
    for card in cards:
        card["diff"] = changes.get(card["commit"])


def _restored(verdicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The attempts after which something was put back, was noticed or had been denied, newest first."""
    kinds = ("restored", "notices", "denials")
    found = [record for record in verdicts if any(record.get(kind) for kind in kinds)]
    return [
        {**record, "lines": [(kind, line) for kind in kinds for line in (record.get(kind) or [])[:8]]}
        for record in found[: -_LINES - 1 : -1]
    ]


def _learned(paths: Paths, verdicts: list[dict[str, Any]]) -> str:
    """Lines that a person may add to AGENTS.md: those that do not stand there yet."""
    rulebook = (files.read_regular(paths.rulebook, 1 << 20) or b"").decode("utf-8", "replace")
    told = [line for record in verdicts for line in _entries((record.get("handoff") or {}).get("learned"))]
    new = [f"- {line}" for line in dict.fromkeys(told) if line not in rulebook]
    return _cut("\n".join(new), 32_000, text.tail)


def _found(plan: Plan, verdicts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The follow-up tasks that agents named and that the plan does not have, newest first."""
    seen = {task.title for task in plan.tasks}
    found = []
    for record in verdicts:
        for line in _entries((record.get("handoff") or {}).get("found")):
            title = text.one_line(line, 120)
            if title not in seen:
                seen.add(title)
                found.append({"title": title, "task": record["task"], "iteration": record["iteration"]})
    return found[: -_LINES - 1 : -1]


def _entries(words: str | None) -> list[str]:
    """The entries of a part of a handoff: its bullets with what belongs to them, else its lines."""
    lines = [line for line in _cut(words, _PART).splitlines() if line.strip()]
    bulleted = any(_BULLET.match(line) for line in lines)
    entries: list[str] = []
    for line in lines:
        said = text.one_line(_BULLET.sub("", line), 500)
        if bulleted and entries and not _BULLET.match(line):
            entries[-1] += f" {said}"
        else:
            entries.append(said)
    return entries


def _figure(times: Timeline, tasks: int, history: History) -> dict[str, Any]:
    """What the charts, the table of runs and the table of attempts show."""
    whole = times.seconds
    cost = times.usd or times.tokens
    top = cost[-1][1] if cost else 0.0
    bars = [_row(bar, whole) for bar in times.attempts[-_BARS:]]
    counts = Counter(bar.verdict for bar in times.attempts)
    if times.waits:
        counts["waiting"] = len(times.waits)
    return {
        "spans": times.spans[: -_ROWS - 1 : -1],
        "bars": bars,
        "hidden": len(times.attempts) - len(bars),
        "attempts": bars[: -_ROWS - 1 : -1],
        "waits": [{"at": bar.place(whole), "seconds": bar.end - bar.start} for bar in times.waits[-_ROWS:]],
        "counts": counts,
        "passed_line": steps(times.passed, whole, tasks),
        "cost_line": steps(cost, whole, top) if cost else "",
        "cost": (f"${history.usd:.2f}" if times.usd else f"{top:,.0f} tokens") if cost else "",
        "ticks": ticks(whole),
        "breaks": [round(1000 * span.offset / whole, 1) for span in times.spans[1:61]] if whole else [],
    }


def _row(bar: Bar, whole: float) -> dict[str, Any]:
    """One attempt as a bar and as a row of the table."""
    record = bar.record
    tokens = Tokens(**record.get("tokens", {}))
    return {
        "began": bar.began,
        "at": bar.place(whole),
        "verdict": bar.verdict,
        "iteration": record["iteration"],
        "task": record.get("task") or "",
        "reason": record.get("reason") or "",
        "seconds": record.get("seconds", bar.end - bar.start),
        "cost": f"${record['usd']:.2f}" if record.get("usd") else views.tokens_words(tokens),
    }


def _cut(words: str | None, size: int, cut: Callable[[str, int], str] = text.clip) -> str:
    return cut(text.redact(text.clean(words or "")), size)


def _line(words: str | None, width: int = 200) -> str:
    return text.one_line(text.redact(text.clean(words or "")), width)


def _command(words: list[str]) -> str:
    """A line to copy; never half of one."""
    line = shlex.join(_line(word, 1000) for word in words)
    return line if len(line) < 500 else "(the line is too long to stand here)"


def _when(moment: float) -> str:
    return time.strftime("%a %d %b, %H:%M", time.localtime(moment))
