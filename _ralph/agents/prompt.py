"""Templates: the prompt of an attempt, within its size limit."""

from __future__ import annotations

import contextlib
import functools
import json
import os
import re
import traceback
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from _ralph import files, text
from _ralph.errors import BadInput
from _ralph.model import Check, Conflict, Json, Paths, Plan, Task
from _ralph.state import prd
from _ralph.state.history import History, newest

TYPE_CHECKING = False
if TYPE_CHECKING:
    import jinja2

BOUND = 48 * 1024
"""Bytes of a whole prompt, at most."""
VARIABLES = (
    "project",
    "task",
    "task_json",
    "attempt",
    "attempts",
    "constraints",
    "rulebook",
    "checks",
    "protect",
    "setup",
    "prd",
    "progress",
    "handoff",
    "notes",
    "last",
)
"""What a prompt template can use."""


@dataclass(frozen=True, kw_only=True)
class Briefing:
    """What the prompt of one attempt is made of. `recent` are commits, `beside` the
    tasks that other loops have now, `red_before` the commands of checks and
    `failing_before` the single tests that failed before the work, `parked` the commit
    of earlier work that is not in the workspace, `trusted` files that are protected
    beside the plan's, as tools decide by them what is run, `conflict` what
    conflicts with what landed meanwhile."""

    plan: Plan
    task: Task
    history: History
    paths: Paths
    checks: Sequence[Check]
    attempts: int
    handoff: Path
    reads_rulebook: bool = False
    trusted: Sequence[str] = ()
    recent: Sequence[str] = ()
    beside: Sequence[str] = ()
    red_before: Sequence[str] = ()
    failing_before: Sequence[str] = ()
    clean_start: bool = False
    parked: str = ""
    conflict: Conflict | None = None


def prompt_values(given: Briefing) -> Json:
    """The VARIABLES of a prompt template, each clipped to its share of BOUND."""
    plan, paths, task = given.plan, given.paths, given.task
    known = given.history.of(task)
    checks = "\n".join(check.command for check in given.checks)
    constraints = prd.constraints(plan)
    values = {
        "project": plan.project,
        **task_values(task),
        "attempt": known.attempts + 1,
        "attempts": given.attempts,
        "constraints": _json(constraints, 3000) if constraints else "",
        "rulebook": _rulebook(given),
        "checks": text.clip(checks, 2500),
        "protect": _protected_words(given),
        "setup": text.one_line(plan.setup.run, 300) if plan.setup else "",
        "prd": _seen(paths, paths.prd),
        "progress": _seen(paths, paths.progress),
        "handoff": str(given.handoff),
    }
    for name in ("notes", "last"):  # parts by ralph's own templates
        template = files.resource(f"templates/{name}.md")
        part = _compiled(template.read_text("utf-8"))
        values[name] = part.render(**values, given=given, known=known).strip()
    return values


def task_values(task: Task) -> Json:
    """The task itself, as every template gets it."""
    shown = {
        "id": text.one_line(task.id, 80),
        "title": task.title,
        "criteria": list(task.criteria),
    }
    return {"task": shown, "task_json": _json(task.raw, 11_000)}


def _rulebook(given: Briefing) -> str:
    """The rules of the repository, or where an agent that reads them by itself finds
    them."""
    rules = text.clean(rules_of(given.paths.rulebook)).strip()
    if rules and given.reads_rulebook:
        return "They stand in AGENTS.md. Follow them."
    return text.clip(rules, 6000, "cut; read AGENTS.md for the rest")


def _protected_words(given: Briefing) -> str:
    """The patterns that are protected from a task, and what it may change in spite of
    them."""
    words = ", ".join([*given.plan.protected, *given.trusted])
    if words and given.task.allow:
        words += f"; except {', '.join(given.task.allow)}"
    return text.clip(words, 600)


def rules_of(rulebook: Path) -> str:
    """What a rulebook says, without its comments."""
    source = rulebook.read_text("utf-8", "replace") if rulebook.is_file() else ""
    end = source.rfind("-->") + len("-->\n")  # a rule may name what opens a comment
    return re.sub(r"<!--.*?-->\n?", "", source[:end], flags=re.DOTALL) + source[end:]


def compile_prompt(template: Path) -> None:
    """BadInput where a person's prompt template is wrong, cannot be read, or uses what
    no prompt has."""
    source = _source(template)
    with _located(str(template)):
        _compiled(source)
        unknown = _unknown(source)
    if unknown:
        name = min(unknown)
        has = ", ".join(VARIABLES)
        raise BadInput(f"{template}: {name!r} is unknown; a prompt has {has}")


def render_prompt(template: Path, values: Json) -> str:
    """The prompt: `template` with `values`, which are not rendered themselves, in at
    most BOUND bytes. BadInput names the line of a mistake in the template."""
    source = _source(template)
    with _located(str(template)):
        rendered = _compiled(source).render(**values)
    if not rendered.strip():
        raise BadInput(f"{template}: the rendered prompt is empty")
    return text.clip(rendered, BOUND, "cut at 48 KB; the whole task stands in prd.json")


def render_message(source: str, values: Json, where: str) -> str:
    """A commit message from a template of prd.json, rendered: its first line, and the
    others as its body; BadInput where it is wrong."""
    with _located(where):
        message = text.clean(_compiled(source).render(**values)).strip()
    subject, _, rest = message.partition("\n")
    body = "\n".join(line.rstrip() for line in rest.strip().splitlines())
    return "\n\n".join(filter(None, [text.one_line(subject), body]))


def _source(template: Path) -> str:
    """A template's text; BadInput where it cannot be read."""
    try:  # an agent can put a FIFO there
        data = files.read_regular(Path(os.path.realpath(template)))
        if data is not None:
            return data.decode("utf-8")
    except ValueError:
        pass
    raise BadInput(
        f"the prompt template {template} cannot be read: expected a file in UTF-8"
    )


@contextlib.contextmanager
def _located(where: str) -> Iterator[None]:
    """Errors of a template as BadInput with its line: an expression can raise
    anything."""
    try:
        yield
    except Exception as error:
        line = getattr(error, "lineno", None)
        for frame in traceback.extract_tb(error.__traceback__):
            if frame.filename in ("<template>", "<unknown>"):
                line = line or frame.lineno
        at = f", line {line}" if line else ""
        raise BadInput(f"{where}{at}: {error}") from None


@functools.lru_cache(maxsize=8)
def _compiled(source: str) -> jinja2.Template:
    """A template, compiled once: loops inherit it from the supervisor."""
    return _environment().from_string(source)


@functools.lru_cache(maxsize=8)
def _unknown(source: str) -> set[str]:
    """What a template uses that no prompt has."""
    from jinja2 import meta

    parsed = _environment().parse(source)
    return meta.find_undeclared_variables(parsed).difference(VARIABLES)


@functools.cache
def _environment() -> jinja2.Environment:
    """How templates are read, with the filters that they have."""
    import jinja2

    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "fenced": text.fenced,
        "clip": _clip,
        "line": text.one_line,
        "few": _few,
        "newest": newest,
        "tail": text.tail,
    }
    return environment


def _seen(paths: Paths, path: Path) -> str:
    """The name of a file of home in the workspace."""
    return text.one_line(path.relative_to(paths.root).as_posix(), 300)


def _clip(words: str, size: int) -> str:
    """Words of strangers, cleaned, in at most `size` bytes."""
    return text.clip(text.clean(words), size)


def _few(entries: Sequence[str], size: int) -> list[str]:
    """The first entries that fit in `size` bytes, each on one line."""
    lines = [text.one_line(entry) for entry in entries]
    return newest(lines[::-1], size)[::-1]


def _json(value: object, size: int) -> str:
    dumped = json.dumps(value, ensure_ascii=False, indent=2)
    return text.clip(text.clean(dumped), size, "cut; the whole stands in prd.json")
