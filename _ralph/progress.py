"""What the records of progress.txt say: the state of a plan, its tasks and its run, and the handoffs."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from _ralph import text
from _ralph.ends import BadInput
from _ralph.model import COUNTED, Task, Tokens, Verdict, task_key

_TEXTS = (
    "task", "title", "tree", "left", "base", "tip", "commit", "branch", "reason", "overload", "parked",
    "answer", "message", "stop", "agent", "name", "tail", "log", "leftover",
)  # fmt: skip
_NUMBERS = ("time", "reset", "iteration", "attempt", "seconds", "usd", "until")
_NO_RESET = 1800.0  # seconds, where no reset was told
_LISTS = ("denials", "restored", "notices", "broken", "others", "objections")
LABELS = (
    "status", "files", "decisions", "ruled out", "learned",
    "re-read", "risks", "blocked on", "found", "next step",
)  # fmt: skip
_LABEL = re.compile(
    rf"^(?:[\s>*`-]|\d+\.)*(?P<heading>\#+\s*)?[*`]*(?P<label>{'|'.join(LABELS)})[\s*`]*"
    rf"(?P<colon>:[\s*`]*)?(?P<rest>.*)$",
    re.IGNORECASE,
)


@dataclass(kw_only=True)
class Spent:
    """What was spent: dollars as far as they were told, tokens, seconds of agents and checks."""

    usd: float = 0.0
    tokens: Tokens = field(default_factory=Tokens)
    seconds: float = 0.0

    def add(self, record: dict[str, Any]) -> None:
        self.usd += record.get("usd") or 0.0
        self.tokens.add(Tokens(**record.get("tokens", {})))
        self.seconds += record.get("seconds", 0.0)


@dataclass
class RunHistory(Spent):
    """What is counted for one run; `seconds` holds its waits, too."""

    iterations: int = 0
    passed: int = 0
    blocked_in_a_row: int = 0
    fruitless_waits: int = 0
    denied: list[str] = field(default_factory=list)


@dataclass
class TaskHistory(Spent):
    """What the records say of one task. `attempts` are those that count against its limit since
    the last `retry` or pass, `last` the record of the newest of them, `tried` all that ended with a
    verdict on its work; `left` is the tree of its unfinished work, made from the commit `base`, and
    `lacks` says what is missing before it is worked on: `checks`, `judge` or nothing."""

    attempts: int = 0
    tried: int = 0
    baseline: dict[str, bool] = field(default_factory=dict)
    last: dict[str, Any] = field(default_factory=dict)
    ruled_out: list[str] = field(default_factory=list)
    answer: str = ""
    passed_at: int | None = None
    weak: bool = False
    set_back: int = 0
    parked: str = ""
    left: str = ""
    base: str = ""
    lacks: str = ""
    interrupted: int = 0
    conflicts: int = 0
    overload: str = ""
    denials: list[str] = field(default_factory=list)

    @property
    def blocked(self) -> bool:
        """Whether its last attempt was the last for now."""
        return bool(self.last.get("blocked"))

    @property
    def question(self) -> str:
        """What its last attempt asked a person; empty if nothing."""
        return str(self.last.get("handoff", {}).get("blocked on", ""))

    def start_anew(self) -> None:
        """Attempts begin at zero; what was spent and what was ruled out stay."""
        self.attempts, self.last, self.baseline, self.answer = 0, {}, {}, ""
        self.left, self.base, self.lacks, self.interrupted, self.conflicts = "", "", "", 0, 0


@dataclass
class History(Spent):
    """The state of a plan, folded from its records alone: `apply` is called once for each.

    `red` are checks of the plan that were red before the work and have not been green since;
    `planned` is what prd.json was when `ralph plan` had written it; `overage` are the unix times until
    which the providers of agents bill extra usage, by the names of their rows;
    `pending` is a verdict whose consequences may not have been carried out yet.
    """

    plan: str
    iteration: int = 0
    tasks: dict[str, TaskHistory] = field(default_factory=dict)
    learned: list[str] = field(default_factory=list)
    red: set[str] = field(default_factory=set)
    baselined: bool = False
    planned: str = ""
    branch: str = ""
    worked: str = ""
    broken: list[str] = field(default_factory=list)
    pending: dict[str, Any] | None = None
    open_start: dict[str, Any] | None = None
    run: dict[str, Any] | None = None
    stopped: dict[str, Any] | None = None
    this_run: RunHistory = field(default_factory=RunHistory)
    waiting: dict[str, Any] | None = None
    rechecked: tuple[str, str] | None = None
    passes_since_recheck: int = 0
    overage: dict[str, float] = field(default_factory=dict)

    def apply(self, record: dict[str, Any]) -> None:
        """Take in one record; those of other plans are passed over."""
        if record.get("plan") != self.plan:
            return
        waited, self.waiting = self.waiting, None
        try:
            _require_kinds(record)
            if waited:
                until = min(record.get("time", 0.0), waited.get("until", 0.0))
                self.this_run.seconds += max(until - waited.get("time", until), 0.0)
            getattr(self, f"_{record['event']}")(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{record['event']} of iteration {record.get('iteration', '?')}"
            raise BadInput(
                f"progress.txt: the record {what} is damaged ({error!r}); move the file away"
            ) from None
        self.branch = (record.get("branch") or self.branch).removeprefix("refs/heads/")
        if record["event"] in ("run", "start", "verdict", "recheck", "land", "stop"):
            if not record.get("unlanded"):
                self.pending = record if record["event"] == "verdict" else None
            self.broken = record.get("broken", [])

    def of(self, task: Task) -> TaskHistory:
        return self.tasks.setdefault(task.key, TaskHistory())

    def proved(self, task: Task) -> bool:
        """Whether a verdict says that it passed; a pass without one is a person's word."""
        known = self.tasks.get(task.key)
        return known is not None and known.passed_at is not None

    def _task(self, record: dict[str, Any]) -> TaskHistory:
        return self.tasks.setdefault(task_key(record.get("task"), record.get("title")), TaskHistory())

    def _run(self, record: dict[str, Any]) -> None:
        if record.get("baselined") or record.get("baseline"):
            self.red = {key for key, ok in record.get("baseline", {}).items() if not ok}
            self.baselined = True
        if not record.get("continues"):
            self.run, self.stopped, self.this_run = record, None, RunHistory()

    def _start(self, record: dict[str, Any]) -> None:
        self.open_start = record
        self.worked = task_key(record["task"], record["title"])
        self.iteration = record["iteration"]
        self.this_run.iterations += 1

    def _verdict(self, record: dict[str, Any]) -> None:
        self.open_start = None
        task, verdict = self._task(record), Verdict(record["verdict"])
        for spent in (self, self.this_run, task):
            spent.add(record)
        ends = record.get("reset") or (record.get("time") or 0.0) + _NO_RESET
        self.overage[record.get("agent", "")] = ends if record.get("overage") else 0.0
        self.red.difference_update(key for key, ok in record.get("checks", {}).items() if ok)
        task.baseline = {**record.get("baseline", {}), **task.baseline}
        self._work_left(task, record, verdict)
        task.overload = record.get("overload") or task.overload
        task.denials = record.get("denials", [])
        handoff = record.get("handoff", {})
        self.learned += [handoff[key] for key in ("decisions", "learned") if handoff.get(key)]
        if handoff.get("ruled out"):
            task.ruled_out.append(handoff["ruled out"])
        task.tried += verdict in COUNTED or verdict is Verdict.PASSED
        task.conflicts += verdict is Verdict.CONFLICT
        if verdict in COUNTED or task.conflicts > 1:
            task.conflicts = 0
            task.attempts += 1
            task.last = record
            task.parked = record.get("parked") or ""
        if verdict is Verdict.PASSED:
            task.start_anew()
            task.passed_at, task.weak = record["iteration"], bool(record.get("weak"))
            self.passes_since_recheck += 1
        elif verdict is Verdict.CONFLICT or record.get("blocked"):
            task.last, task.parked = record, record.get("parked") or task.parked
        self._in_a_row(record, verdict)

    def _work_left(self, task: TaskHistory, record: dict[str, Any], verdict: Verdict) -> None:
        """What the next attempt at this task finds in its workspace."""
        goes_on = record.get("base") and not record.get("parked") and verdict is not Verdict.PASSED
        task.left = record.get("left", "") if goes_on else ""
        task.base = record.get("base", "") if goes_on else ""
        interrupted = verdict is Verdict.INTERRUPTED
        unchecked = interrupted and task.left and not record.get("leftover") and not record.get("checks")
        task.lacks = "judge" if record.get("unjudged") else "checks" if unchecked else ""
        if interrupted:
            task.interrupted += not record.get("leftover")
        elif verdict not in (Verdict.LIMITED, Verdict.UNAVAILABLE):
            task.interrupted = 0

    def _in_a_row(self, record: dict[str, Any], verdict: Verdict) -> None:
        """What ends a run early: tasks blocked in a row, waits that brought nothing."""
        run = self.this_run
        run.blocked_in_a_row += bool(record.get("blocked"))
        if verdict is Verdict.PASSED:
            run.blocked_in_a_row, run.passed = 0, run.passed + 1
        key = task_key(record.get("task"), record.get("title"))
        if record.get("denied"):
            run.denied = [*(one for one in run.denied if one != key), key]
        elif verdict in COUNTED or verdict is Verdict.PASSED:
            run.denied = []
        worked = record.get("tokens", {}).get("output", 0) > 0
        if worked or verdict not in (Verdict.LIMITED, Verdict.UNAVAILABLE, Verdict.INTERRUPTED):
            run.fruitless_waits = 0

    def _wait(self, record: dict[str, Any]) -> None:
        self.this_run.fruitless_waits += bool(record.get("backoff"))
        self.waiting = record

    def _recheck(self, record: dict[str, Any]) -> None:
        self.passes_since_recheck = 0
        if record.get("ok"):
            self.rechecked = (record.get("commit", ""), record["checks_digest"])
        for key in record.get("broken", []):
            task = self.tasks.setdefault(key, TaskHistory())
            task.start_anew()
            task.set_back += 1
            since = "; ".join(record.get("since", {}).get(key, []))
            task.last = {
                "verdict": "passed and broken since",
                "reason": f"it passed at iteration {task.passed_at}, and later work broke it: {since}",
                "blocked": task.set_back > 1,
            }

    def _retry(self, record: dict[str, Any]) -> None:
        task = self._task(record)
        answer = record.get("answer") or task.answer
        task.start_anew()
        task.answer, task.set_back, self.this_run.blocked_in_a_row = answer, 0, 0
        if self.pending and self.pending.get("blocked") and self.pending["task"] == record["task"]:
            self.pending = None  # a person opened what was about to be blocked

    def _add(self, record: dict[str, Any]) -> None:
        """The tasks themselves stand in prd.json; what their planner cost is the plan's."""
        self.add(record)
        self.planned = record.get("prd") or self.planned

    def _land(self, record: dict[str, Any]) -> None:
        """The branch had moved: what passed was checked again on the new tip, and landed."""

    def _stop(self, record: dict[str, Any]) -> None:
        self.run, self.stopped = None, record


def _require_kinds(record: dict[str, Any]) -> None:
    """TypeError where a record, edited by hand or forged, holds what nobody could print or add up."""
    handoff = record.get("handoff") or {}
    if not _are_texts([words for words in handoff.values() if words is not None]):
        raise TypeError("handoff")
    for part in (record, record.get("failure") or {}, record.get("judge") or {}):
        for key, value in part.items():
            if value is not None and key in _KINDS and not _KINDS[key](value):
                raise TypeError(key)


def _is_text(value: Any) -> bool:
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:
    return not value or (isinstance(value, list) and all(map(_is_text, value)))


def _is_sensible(value: Any) -> bool:
    return isinstance(value, (int, float)) and 0 <= value < 10**12


_KINDS: dict[str, Callable[[Any], bool]] = {
    **dict.fromkeys(_TEXTS, _is_text),
    **dict.fromkeys(_NUMBERS, _is_sensible),
    **dict.fromkeys(_LISTS, _are_texts),
}


def replay(records: list[dict[str, Any]], plan: str) -> History:
    """The state of the plan with the key `plan` after these records."""
    history = History(plan)
    for record in records:
        history.apply(record)
    return history


def parse_handoff(source: str) -> dict[str, str]:
    """The labelled parts of a handoff, each clipped to 1,500 bytes; `none` counts as nothing."""
    parts: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in text.clean(source).splitlines()[:400]:
        match = _LABEL.match(line[:200])
        if match and (match["colon"] or (match["heading"] and not match["rest"])):
            current = parts.setdefault(match["label"].lower(), [])
            line = match["rest"] + line[200:]
            if line.startswith("(") and line.endswith(")"):
                continue  # the template's own words
        if current is not None and line.strip():
            current.append(line.strip())
    cut = {label: text.clip("\n".join(lines), 1500) for label, lines in parts.items()}
    return {
        label: body
        for label, body in cut.items()
        if body.strip(" .-*").lower() not in ("", "none", "nothing", "n/a")
    }


def newest(entries: list[str], size: int) -> list[str]:
    """The newest distinct entries that fit in `size` bytes, oldest first."""
    kept: list[str] = []
    for entry in reversed(entries):
        if entry in kept:
            continue
        size -= len(entry.encode("utf-8", "replace"))
        if size < 0:
            break
        kept.append(entry)
    return kept[::-1]
