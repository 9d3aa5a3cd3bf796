"""`ralph report`: a plan, its log and the commits of its passes on one page of HTML."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

from _ralph import files, text
from _ralph.git.git import Git, Late
from _ralph.show import status
from _ralph.state import layout, summary
from _ralph.state.log import Log
from _ralph.state.records import AttemptEnded

if TYPE_CHECKING:
    import jinja2

_LONGEST = 4000
"""Bytes of a text on the page."""
_LONGEST_DIFF = 20_000
_DEADLINE = 20.0
"""Seconds for all diffs together."""
_SHOW = (
    "-c", "core.bigFileThreshold=1m",  # beyond that a file counts as binary
    "show", "--format=%h %s", "--stat", "--patch", "--no-show-signature", "--no-color",
    "--no-textconv", "--end-of-options",
)  # fmt: skip


def save(prd_path: Path) -> Path:
    """Write the page to `.ralph/report.html`; its path. BadInput as for `page`."""
    source = page(prd_path)
    paths = layout.locate(prd_path)
    layout.logs_folder(paths)
    if paths.report.is_symlink():  # it must not be written through
        paths.report.unlink()
    files.atomic_write(paths.report, source.encode())
    return paths.report


def page(prd_path: Path) -> str:
    """The page; nothing is written. BadInput if the plan or its log cannot be read."""
    shown = status.read(prd_path)
    plan, history = shown.plan, shown.history
    paths = layout.locate(prd_path)
    tasks = summary.task_facts(plan, history)
    # the newest first
    passed = [task for task in tasks if task.task.passed]
    passed.sort(key=lambda task: task.known.passed.iteration, reverse=True)
    records = Log(paths.progress, plan).records()
    attempts = [record for record in records if isinstance(record, AttemptEnded)]
    attempts.reverse()
    values = {
        "project": plan.project,
        "history": history,
        "running": shown.running is not None,
        "stop": history.stopped,
        "steps": status.next_steps(shown, history.stopped),
        "total": len(tasks),
        "blocked": [task for task in tasks if task.state == "blocked"],
        "passed": passed,
        "open": [task for task in tasks if task.state not in ("passed", "blocked")],
        "diffs": _diffs(paths.root, [task.known.passed.commit for task in passed]),
        "attempts": attempts,
        "learned": _learned(paths.rulebook, attempts),
        "retry": lambda task: summary.command_line("retry", prd_path, [task.task.id]),
    }
    return _template().render(values)


def _template() -> jinja2.Template:
    import jinja2

    environment = jinja2.Environment(
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_safe,
    )
    environment.filters |= {
        "line": text.one_line,
        "count": text.count,
        "duration": text.duration,
        "dollars": summary.dollars,
        "thousands": summary.thousands,
        "spent": summary.spent,
        "when": _when,
    }
    source = files.resource("templates/report.html").read_text("utf-8")
    return environment.from_string(source)


def _safe(value: object) -> object:
    """Every text on the page goes through this, before it is escaped."""
    if type(value) is not str:
        return value
    return text.clip(text.redact(text.clean(value)), _LONGEST)


def _when(moment: float) -> str:
    return time.strftime("%a %d %b, %H:%M", time.localtime(moment))


def _diffs(root: Path, commits: list[str]) -> dict[str, list[str]]:
    """What each commit changed, as lines of `git show`, for as many as there is time
    for; those that git does not know are left out."""
    git = Git.at(root)
    end = time.monotonic() + _DEADLINE
    diffs = {}
    for commit in commits:
        if not commit:  # a person marked the task as passed
            continue
        left = end - time.monotonic()
        try:
            shown = git.maybe(*_SHOW, commit, "--", timeout=left) or ""
        except Late:
            break
        if shown:
            # a carriage return begins no line of a diff
            shown = text.redact(shown.replace("\r", " "))
            cut = f"cut here; all of it: git show {commit[:12]}"
            shown = text.clip(shown, _LONGEST_DIFF, cut)
            diffs[commit] = text.clean(shown).rstrip("\n").split("\n")
    return diffs


def _learned(rulebook: Path, attempts: list[AttemptEnded]) -> list[str]:
    """The lines that agents learned and AGENTS.md does not have yet, newest first."""
    known = (files.read_regular(rulebook, 1 << 20) or b"").decode("utf-8", "replace")
    learned = []
    for record in attempts:
        for line in text.clean(record.handoff.get("learned", "")).splitlines():
            line = line.strip().removeprefix("- ").removeprefix("* ")
            if line and line not in known and line not in learned:
                learned.append(line)
    return learned
