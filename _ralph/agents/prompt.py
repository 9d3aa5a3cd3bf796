"""Templates: the prompt of an attempt, within its size limit."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.model import Check, Conflict, Json, Paths, Plan, Task, Verdict
from _ralph.state import prd
from _ralph.state.history import History, TaskHistory, newest
from _ralph.state.records import AttemptEnded

TYPE_CHECKING = False
if TYPE_CHECKING:
    import jinja2

BOUND = 48 * 1024
"""Bytes of a whole prompt, at most."""
_UNCHANGED = re.compile(
    r"#.*|- (Set up a fresh checkout with|Before you end, run) `.*`\."
)
"""The lines of templates/AGENTS.md."""
_TASK, _RULES, _CONSTRAINTS, _CHECKS, _NOTES, _FAILURE = (
    11000,
    6000,
    3000,
    2500,
    2500,
    5000,
)


def prompt_values(
    plan: Plan,
    task: Task,
    history: History,
    paths: Paths,
    checks: list[Check],
    *,
    attempts: int,
    reads_rulebook: bool,
    recent: list[str],
    beside: list[str],
    red_before: list[str],
    clean_start: bool,
    handoff: Path,
    parked: str = "",
    setup_failed: str = "",
    conflict: Conflict | None = None,
    failing_before: Sequence[str] = (),
) -> Json:
    """Everything that a prompt template can use, each part clipped to its share of
    BOUND. `beside` are the tasks that other loops have now, `parked` is the commit of
    earlier work that is not in the workspace, `setup_failed` what `setup` said if it is
    red on the task's unfinished work alone, `conflict` what conflicts with what landed
    meanwhile, `failing_before` the single tests that failed before the work."""
    of_task = history.of(task)
    last = of_task.last
    rulebook = rules_of(paths.rulebook)
    constraints = prd.constraints(plan)
    return {
        "project": plan.project,
        **task_values(task),
        "attempt": of_task.attempts + 1,
        "attempts": attempts,
        "constraints": _json(constraints, _CONSTRAINTS) if constraints else "",
        "rulebook": text.clip(
            text.clean(rulebook), _RULES, "cut; read AGENTS.md for the rest"
        ),
        "rulebook_by_path": reads_rulebook and bool(rulebook),
        "checks": text.clip("\n".join(check.command for check in checks), _CHECKS),
        "protect": text.clip(_protected_words(plan, task), 600),
        "passed": sum(other.passed for other in plan.tasks),
        "total": len(plan.tasks),
        "setup": text.one_line(plan.setup.run, 300) if plan.setup else "",
        "prd": _seen(paths, paths.prd),
        "progress": _seen(paths, paths.progress),
        "handoff": str(handoff),
        "recent": recent,
        "beside": _few(beside, 1000),
        "learned": newest(history.learned, _NOTES),
        "ruled_out": newest(of_task.ruled_out, _NOTES),
        "question": text.one_line(of_task.answered, 1500),
        "answer": text.clip(text.clean(of_task.answer), 2000),
        "red_before": _few(red_before, 1000),
        "failing_before": _few([*failing_before], 2000),
        "setup_failed": text.clip(setup_failed, 2000),
        "clean_start": clean_start,
        "conflict": _conflict(conflict) if conflict and conflict.own else None,
        "retry": _retry(last, of_task, parked) if last else None,
    }


def _protected_words(plan: Plan, task: Task) -> str:
    """The patterns that are protected from a task, and what it may change in spite of
    them."""
    kept = ", ".join(pattern for pattern in plan.protected if pattern not in task.allow)
    return f"{kept}; except {', '.join(task.allow)}" if kept and task.allow else kept


def rules_of(rulebook: Path) -> str:
    """What a rulebook says, without its comments; empty if it is as `ralph init` wrote
    it, for a prompt has setup and checks from the plan."""
    source = rulebook.read_text("utf-8", "replace") if rulebook.is_file() else ""
    end = source.rfind("-->") + len("-->\n")  # a rule may name what opens a comment
    rules = re.sub(r"<!--.*?-->\n?", "", source[:end], flags=re.DOTALL) + source[end:]
    changed = any(
        line.strip() and not _UNCHANGED.fullmatch(line) for line in rules.splitlines()
    )
    return rules if changed else ""


def task_values(task: Task) -> Json:
    """The task itself, as every template gets it."""
    return {
        "task": {
            "id": text.one_line(task.id, 80),
            "title": task.title,
            "criteria": list(task.criteria),
        },
        "task_json": _json(task.raw, _TASK),
    }


def render_prompt(template: Path, values: Json) -> str:
    """The prompt: `template` with `values`, which are not rendered themselves, in at
    most BOUND bytes. BadInput names the line of a mistake in the template."""
    ready = compile_prompt(template)
    with _located(str(template)):
        rendered = ready.render(**values)
    if not rendered.strip():
        raise BadInput(f"{template}: the rendered prompt is empty")
    return text.clip(rendered, BOUND, "cut at 48 KB; the whole task stands in prd.json")


def compile_prompt(template: Path) -> jinja2.Template:
    """A prompt template, ready to render; BadInput where it is wrong or cannot be
    read."""
    try:
        data = files.read_regular(
            Path(os.path.realpath(template))
        )  # an agent can put a FIFO there
        if data is None:
            raise ValueError
        source = data.decode("utf-8")
    except ValueError:
        raise BadInput(
            f"the prompt template {template} cannot be read: expected a file in UTF-8"
        ) from None
    with _located(str(template)):
        return _compiled(
            source, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
        )


def render_message(source: str, values: Json, where: str) -> str:
    """A commit message from a template of prd.json, rendered: its first line, and the
    others as its body; BadInput where it is wrong."""
    with _located(where):
        subject, _, rest = (
            text.clean(_compiled(source).render(**values)).strip().partition("\n")
        )
    body = "\n".join(line.rstrip() for line in rest.strip().splitlines())
    return "\n\n".join(filter(None, [text.one_line(subject), body]))


@contextlib.contextmanager
def _located(where: str) -> Iterator[None]:
    """Errors of a template as BadInput with its line: an expression can raise
    anything."""
    try:
        yield
    except Exception as error:
        frames = traceback.extract_tb(error.__traceback__)
        lines = [
            frame.lineno
            for frame in frames
            if frame.filename in ("<template>", "<unknown>")
        ]
        line = getattr(error, "lineno", None) or next(reversed(lines), None)
        raise BadInput(f"{where}{f', line {line}' if line else ''}: {error}") from None


@functools.lru_cache(maxsize=4)
def _compiled(source: str, **options: Any) -> jinja2.Template:
    """A template, compiled once: loops inherit it from the supervisor."""
    import jinja2

    environment = jinja2.Environment(undefined=jinja2.StrictUndefined, **options)
    environment.filters["fenced"] = text.fenced
    return environment.from_string(source)


def _seen(paths: Paths, path: Path) -> str:
    """The name of a file of home in the workspace."""
    return text.one_line(path.relative_to(paths.root).as_posix(), 300)


def _conflict(conflict: Conflict) -> Json:
    return {
        "marked": _few(conflict.marked, 2000),
        "kept": _few(conflict.kept, 1000),
        "own": conflict.own[:12],
    }


def _retry(last: AttemptEnded, of_task: TaskHistory, parked: str) -> Json:
    return {
        "verdict": last.verdict,
        "reason": text.clip(last.reason, 400),
        "set_back": bool(of_task.set_back)
        and not of_task.attempts
        and last.verdict is Verdict.FAILED,
        "need_proof": last.verdict is Verdict.NO_OP,
        "check": last.failure.name,
        "tail": text.tail(last.failure.tail, _FAILURE),
        "others": _few(last.failure.others, 500),
        "restored": _few(last.restored, 1200),
        "log": "",  # for templates of version one: the file lies at home
        "notices": _few(last.notices, 1200),
        "parked": parked,
        "judge": _few(last.judge.objections, 2400),
        "denials": _few(last.denials, 1200),
        "next_step": text.one_line(last.handoff.get("next step", ""), 800),
    }


def _few(entries: list[str], size: int) -> list[str]:
    """The first entries that fit in `size` bytes, each on one line."""
    return newest([text.one_line(entry) for entry in reversed(entries)], size)[::-1]


def _json(value: object, size: int) -> str:
    dumped = json.dumps(value, ensure_ascii=False, indent=2)
    return text.clip(text.clean(dumped), size, "cut; the whole stands in prd.json")
