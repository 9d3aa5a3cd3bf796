"""progress.txt: the lab notes people read and the log that ralph resumes from."""

from __future__ import annotations

import json
import os
import re
import stat
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from _ralph import files, text
from _ralph.ends import BadInput
from _ralph.model import COUNTED, Plan, Task, Tokens, Verdict

_LARGEST_ADDITION = 1 << 20
_RECORD = re.compile(rb"^<!-- ralph (\{.*\}) -->\r?$", re.MULTILINE)
_HEADER = re.compile(rb"^## \d{4}-\d\d-\d\d \d\d:\d\d:\d\d [^\n]*\|", re.MULTILINE)
_EVENTS = frozenset({"run", "start", "verdict", "wait", "recheck", "retry", "add", "stop"})
_TEXTS = (
    "task", "title", "tree", "left", "branch", "head", "reason", "overload",
    "parked", "answer", "message", "stop",
)  # fmt: skip
_NUMBERS = ("time", "iteration", "attempt", "seconds", "usd", "until")
_LISTS = ("denials", "restored", "notices", "broken")
LABELS = (
    "status", "files", "decisions", "ruled out", "learned",
    "re-read", "risks", "blocked on", "found", "next step",
)  # fmt: skip
_LABEL = re.compile(
    rf"^(?:[\s>*`-]|\d+\.)*(?P<heading>\#+\s*)?[*`]*(?P<label>{'|'.join(LABELS)})[\s*`]*"
    rf"(?P<colon>:[\s*`]*)?(?P<rest>.*)$",
    re.IGNORECASE,
)


class Journal:
    """The records of progress.txt, appended durably and never rewritten.

    Beside the file stands a mirror in git's own folder, written first. While an attempt runs,
    the mirror is the truth about what ralph wrote, so a forged or lost record is undone from
    it; between attempts the file is, so that a person may edit it.
    """

    def __init__(self, path: Path, mirror: Path, aside: Path) -> None:
        self.path = path
        self._mirror = mirror
        self._aside = aside
        self._seen: files.Signature | None = None
        self._open = False
        self._known: bytearray | None = None
        self._mirror_seen: files.Signature | None = None
        self.failed = False
        """Whether an `append` could not be finished: only the next `open` knows what stands where."""

    def open(self, held: bool = False) -> list[str]:
        """Bring file and mirror together after whatever happened; what was done, in words.

        `held` says that checks ran when the last run died: as in an attempt, the mirror is the truth.
        """
        self._known = None
        known = files.read_regular(self._mirror) or b""
        if (torn := _torn(known)) is not None:
            known = known[:torn]
            files.atomic_write(self._mirror, known)
        held = attempt_open(known) or (held and known != b"")
        self._follow_link(trusted=not held)
        limit = len(known) + _LARGEST_ADDITION if held else -1
        found = files.read_regular(self.path, limit)
        if found is None and os.path.lexists(self.path) and not held:
            raise BadInput(f"{self.path} is not a regular file; move it away")
        notices = []
        if known.startswith(found or b"") and len(_RECORD.findall(known[len(found or b"") :])) <= 1:
            if found is None:
                files.move_aside(self.path, self._aside, "progress.txt")
            if known != (found or b""):  # ralph died between the mirror and the file
                files.append(self.path, known[len(found or b"") :])
        elif held:
            notices = self.guard()
        else:
            if _torn(found or b"") is not None:
                files.append(self.path, b"\n    | (the record above was cut off)\n")
                notices = ["a record of progress.txt had been cut off; its text was kept"]
            self._adopt()
        self._seen = files.signature(self.path)
        self._believe(files.read_regular(self._mirror) or b"")
        self._open = attempt_open(files.read_regular(self.path) or b"")
        return notices

    def records(self) -> list[dict[str, Any]]:
        """Every record of the file, oldest first; text that is no record is passed over."""
        return parse(files.read_regular(Path(os.path.realpath(self.path))) or b"")

    def signature(self) -> files.Signature | None:
        """Changes whenever somebody touches the file."""
        return files.signature(self.path)

    @property
    def attempt_is_open(self) -> bool:
        """Whether the last attempt has a `start` and no `verdict`."""
        return self._open

    def append(self, headline: str, lines: list[str], record: dict[str, Any]) -> None:
        """Write one record: mirror, then file, each with one write and an fsync. OSError if it
        could not be made durable."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S %z")
        head = f"## {stamp[:-2]}:{stamp[-2:]} | {text.one_line(headline, 300)}"
        machine = json.dumps({"v": 1, "time": round(time.time(), 3), **record}, ensure_ascii=True)
        machine = machine.replace("<", "\\u003c").replace(">", "\\u003e")
        lines = [line.replace("\n", " ").replace("\r", " ") for line in lines]
        block = "\n".join(["", head, *lines, f"<!-- ralph {machine} -->", ""]).encode("utf-8", "replace")
        if not self._open and self._seen != files.signature(self.path):
            self._adopt()
        known = self._mirrored()
        self.failed = True
        files.append(self._mirror, block)
        known += block
        self._mirror_seen = files.signature(self._mirror)
        files.append(self.path, block)
        self.failed = False
        self._seen = files.signature(self.path)
        if record["event"] in ("start", "verdict"):
            self._open = record["event"] == "start"

    def _adopt(self) -> None:
        """Between attempts a person may edit: the file is the truth, unless it is gone."""
        found = files.read_regular(self.path)
        if found is None and self._seen is not None:
            self.guard()
        else:
            files.atomic_write(self._mirror, found or b"")
            self._believe(found or b"")

    def _believe(self, known: bytes) -> None:
        """Take what stands in the mirror now for what ralph wrote."""
        self._known, self._mirror_seen = bytearray(known), files.signature(self._mirror)

    def _mirrored(self) -> bytearray:
        """What ralph wrote; the mirror is made to say the same, for an agent may reach it on disk."""
        if self._known is None:
            self._believe(files.read_regular(self._mirror) or b"")
        elif self._mirror_seen is None or self._mirror_seen != files.signature(self._mirror):
            if self._known != (files.read_regular(self._mirror) or b""):
                files.clear(self._mirror).parent.mkdir(parents=True, exist_ok=True)
                files.atomic_write(self._mirror, bytes(self._known))
            self._mirror_seen = files.signature(self._mirror)
        assert self._known is not None
        return self._known

    def _follow_link(self, trusted: bool) -> None:
        """Write through a link that a person made; one that an agent made is none of ours."""
        note, target = self._mirror.with_suffix(".link"), os.path.realpath(self.path)
        if self.path.is_symlink() and trusted:
            files.atomic_write(note, os.fsencode(target))
        if self.path.is_symlink() and files.read_regular(note) == os.fsencode(target):
            self.path = Path(target)

    def guard(self) -> list[str]:
        """Put the file back to what ralph wrote; what others appended is kept, quoted.

        Returns lines for the record: what was found, and the text that had been added.
        """
        mirrored = self._mirrored()
        if self._seen is not None and self._seen == files.signature(self.path):
            return []
        known = bytes(mirrored)
        found = files.read_regular(self.path, len(known) + _LARGEST_ADDITION)
        if found == known:
            self._seen = files.signature(self.path)
            return []
        if found is not None and len(found) == len(known) + _LARGEST_ADDITION:
            found = None
        added = found[len(known) :] if found is not None and found.startswith(known) else None
        kept = files.move_aside(self.path, self._aside, "progress.txt")
        where = f"; kept as {kept.name}" if kept else ""
        if added is not None:
            said = f"progress.txt (text had been added{where}):\n" + text.redact(
                added.decode("utf-8", "replace")
            )
        else:
            said = f"progress.txt (it had been rewritten or deleted{where})"
        mode = stat.S_IMODE(self._seen[2]) if self._seen else 0o644
        files.atomic_write(self.path, known, mode)
        self._seen = files.signature(self.path)
        return [said]


def parse(data: bytes) -> list[dict[str, Any]]:
    """The machine lines in `data` that are records of this version, oldest first."""
    return [record for match in _RECORD.finditer(data) if (record := _record(match))]


def attempt_open(data: bytes) -> bool:
    """Whether the last attempt in `data` has a `start` and no `verdict`."""
    for match in reversed(list(_RECORD.finditer(data))):
        if (record := _record(match)) and record["event"] in ("start", "verdict"):
            return bool(record["event"] == "start")
    return False


def _record(match: re.Match[bytes]) -> dict[str, Any] | None:
    try:
        record = json.loads(match[1])
    except (ValueError, RecursionError):
        return None
    return record if record.get("v") == 1 and str(record.get("event")) in _EVENTS else None


@dataclass
class TaskHistory:
    """What the records say of one task. `attempts` are those that count against its limit since
    the last `retry` or pass, `tried` all that ended with a verdict on its work; `unjudged` is the
    tree that only lacks its judge, and the one before that work."""

    attempts: int = 0
    tried: int = 0
    iterations: list[int] = field(default_factory=list)
    seconds: float = 0.0
    usd: float = 0.0
    tokens: Tokens = field(default_factory=Tokens)
    baseline: dict[str, bool] = field(default_factory=dict)
    last: dict[str, Any] | None = None
    no_ops: int = 0
    questions: list[str] = field(default_factory=list)
    ruled_out: list[str] = field(default_factory=list)
    answer: str = ""
    passed_at: int | None = None
    weak: bool = False
    set_back: int = 0
    blocked: bool = False
    parked: str = ""
    unjudged: tuple[str, str] = ("", "")
    overload: str = ""
    denials: list[str] = field(default_factory=list)

    @property
    def question(self) -> str:
        """What its last attempt asked a person; empty if nothing."""
        return self.questions[-1] if self.questions else ""

    def start_anew(self, answer: str = "") -> None:
        """Attempts begin at zero; money spent and what was ruled out stay."""
        self.attempts = self.no_ops = 0
        self.blocked = False
        self.questions, self.last = [], None
        self.baseline = {}
        self.answer = answer


@dataclass
class History:
    """The state of a plan, folded from its records alone: `apply` is called once for each.

    `tree` is the snapshot that the last record says should stand, `left` the one that it found;
    `red` are checks of the plan that were red before the work and have not been green since;
    `planned` is what prd.json was when `ralph plan` had written it;
    `pending` is a verdict whose consequences may not have been carried out yet.
    """

    plan: str
    iteration: int = 0
    usd: float = 0.0
    tokens: Tokens = field(default_factory=Tokens)
    tasks: dict[str, TaskHistory] = field(default_factory=dict)
    learned: list[str] = field(default_factory=list)
    red: set[str] = field(default_factory=set)
    baselined: bool = False
    planned: str = ""
    tree: str = ""
    left: str = ""
    branch: str = ""
    worked: str = ""
    broken: list[str] = field(default_factory=list)
    pending: dict[str, Any] | None = None
    open_start: dict[str, Any] | None = None
    run: dict[str, Any] | None = None
    stopped: dict[str, Any] | None = None
    run_iterations: int = 0
    run_seconds: float = 0.0
    run_usd: float = 0.0
    run_tokens: Tokens = field(default_factory=Tokens)
    blocked_in_a_row: int = 0
    fruitless_waits: int = 0
    waiting: dict[str, Any] | None = None
    rechecked: tuple[str, str] | None = None

    def apply(self, record: dict[str, Any]) -> None:
        """Take in one record; those of other plans are passed over."""
        if record.get("plan") != self.plan:
            return
        waited, self.waiting = self.waiting, None
        try:
            _require_kinds(record)
            if waited:
                until = min(record.get("time", 0.0), waited.get("until", 0.0))
                self.run_seconds += max(until - waited.get("time", until), 0.0)
            getattr(self, f"_{record['event']}")(record)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            what = f"{record['event']} of iteration {record.get('iteration', '?')}"
            raise BadInput(
                f"progress.txt: the record {what} is damaged ({error!r}); move the file away"
            ) from None
        self.tree, self.left = record.get("tree", self.tree), record.get("left", self.left)
        self.branch = record.get("branch", self.branch)
        if record["event"] in ("run", "start", "verdict", "recheck", "stop"):
            self.pending = record if record["event"] == "verdict" else None
            self.broken = record.get("broken", [])

    @property
    def seconds(self) -> float:
        """What agents and checks took; waits are not in it."""
        return sum((task.seconds for task in self.tasks.values()), 0.0)

    def new_run(self) -> None:
        """What is counted for one run begins at zero."""
        self.run_iterations = self.blocked_in_a_row = self.fruitless_waits = 0
        self.run_tokens = Tokens()
        self.run_seconds = self.run_usd = 0.0

    def of(self, task: Task) -> TaskHistory:
        return self.tasks.setdefault(task.key, TaskHistory())

    def proved(self, task: Task) -> bool:
        """Whether a verdict says that it passed; a pass without one is a person's word."""
        known = self.tasks.get(task.key)
        return known is not None and known.passed_at is not None

    def _task(self, record: dict[str, Any]) -> TaskHistory:
        return self.tasks.setdefault(f"{record.get('task')}\n{record.get('title')}", TaskHistory())

    def _run(self, record: dict[str, Any]) -> None:
        if record.get("baseline") is not None:
            self.red = {key for key, ok in record["baseline"].items() if not ok}
            self.baselined = True
        if record.get("continues"):
            return
        self.run, self.stopped = record, None
        self.new_run()

    def _start(self, record: dict[str, Any]) -> None:
        self.open_start = record
        self.worked = f"{record['task']}\n{record['title']}"
        self.iteration = record["iteration"]
        self.run_iterations += 1
        task = self._task(record)
        task.baseline = {**record.get("baseline", {}), **task.baseline}
        task.iterations.append(record["iteration"])

    def _verdict(self, record: dict[str, Any]) -> None:
        start, self.open_start = self.open_start or {}, None
        task, verdict = self._task(record), Verdict(record["verdict"])
        self._money(record, task)
        task.seconds += record.get("seconds", 0.0)
        self.run_seconds += record.get("seconds", 0.0)
        self.red.difference_update(key for key, ok in record.get("checks", {}).items() if ok)
        task.unjudged = (record["left"], start.get("tree", "")) if record.get("unjudged") else ("", "")
        task.overload = record.get("overload") or task.overload
        task.denials = record.get("denials", [])
        handoff = record.get("handoff", {})
        self.learned += [handoff[key] for key in ("decisions", "learned") if handoff.get(key)]
        if handoff.get("ruled out"):
            task.ruled_out.append(handoff["ruled out"])
        task.tried += verdict in COUNTED or verdict is Verdict.PASSED
        if verdict in COUNTED:
            task.attempts += 1
            task.last = record
            task.no_ops = task.no_ops + 1 if verdict is Verdict.NO_OP else 0
            task.questions.append(handoff.get("blocked on", ""))
            task.blocked = bool(record.get("blocked"))
            task.parked = record.get("parked") or ""
        if verdict is Verdict.PASSED:
            set_back = task.set_back
            task.start_anew()
            task.set_back, task.passed_at, task.weak = set_back, record["iteration"], bool(record.get("weak"))
        worked = record.get("tokens", {}).get("output", 0) > 0
        if worked or verdict not in (Verdict.LIMITED, Verdict.UNAVAILABLE, Verdict.INTERRUPTED):
            self.fruitless_waits = 0
        self.blocked_in_a_row = (
            0 if verdict is Verdict.PASSED else self.blocked_in_a_row + bool(record.get("blocked"))
        )

    def _money(self, record: dict[str, Any], task: TaskHistory) -> None:
        tokens = Tokens(**record.get("tokens", {}))
        usd = record.get("usd") or 0.0
        self.usd += usd
        self.run_usd += usd
        task.usd += usd
        self.tokens.add(tokens)
        task.tokens.add(tokens)
        self.run_tokens.add(tokens)

    def _wait(self, record: dict[str, Any]) -> None:
        self.fruitless_waits += bool(record.get("backoff"))
        self.waiting = record

    def _recheck(self, record: dict[str, Any]) -> None:
        if record.get("ok"):
            self.rechecked = (record["tree"], record["checks_digest"])
        for key in record.get("broken", []):
            task = self.tasks.setdefault(key, TaskHistory())
            task.start_anew()
            since = "; ".join(record.get("since", {}).get(key, []))
            reason = f"it passed at iteration {task.passed_at}, and later work broke it: {since}"
            task.last = {"verdict": "passed and broken since", "reason": reason}
            task.set_back += 1
            task.blocked = task.set_back > 1

    def _retry(self, record: dict[str, Any]) -> None:
        task = self._task(record)
        task.start_anew(record.get("answer") or task.answer)
        if self.pending and self.pending.get("blocked") and self.pending["task"] == record["task"]:
            self.pending = None  # a person opened what was about to be blocked
        task.set_back = 0
        self.blocked_in_a_row = 0

    def _add(self, record: dict[str, Any]) -> None:
        """The tasks themselves stand in prd.json; what their planner cost is the plan's."""
        self._money(record, TaskHistory())
        self.planned = record.get("prd") or self.planned

    def _stop(self, record: dict[str, Any]) -> None:
        self.run, self.stopped = None, record


def _require_kinds(record: dict[str, Any]) -> None:
    """TypeError where a record, edited by hand or forged, holds what nobody could print or add up."""
    failure, judge = record.get("failure") or {}, record.get("judge") or {}
    texts = [record.get(key) for key in _TEXTS] + [failure.get(key) for key in ("name", "tail", "log")]
    texts += [judge.get("agent"), *(record.get("handoff") or {}).values()]
    entries = [entry for key in _LISTS for entry in record.get(key) or []]
    entries += [*(failure.get("others") or []), *(judge.get("objections") or [])]
    entries += [words for words in texts if words is not None]
    if not all(isinstance(entry, str) for entry in entries):
        raise TypeError("a text was expected")
    for value in (record.get(key) for key in _NUMBERS):
        if value is not None and not (isinstance(value, (int, float)) and 0 <= value < 10**12):
            raise TypeError("a sensible number was expected")


def replay(records: list[dict[str, Any]], plan: Plan) -> History:
    """The state of `plan` after these records."""
    history = History(plan.key)
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


def _torn(data: bytes) -> int | None:
    """Where a last record begins that has no machine line, else None."""
    end = max((match.end() for match in _RECORD.finditer(data)), default=0)
    match = _HEADER.search(data, end)
    return match.start() if match else None
