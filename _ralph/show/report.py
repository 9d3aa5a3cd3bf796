"""`ralph report`: a plan, its log and the commits of its passes on one page of HTML."""

from __future__ import annotations

import time
from pathlib import Path

from _ralph import files, text
from _ralph.git.git import Git, Late
from _ralph.show import status
from _ralph.state import layout, summary
from _ralph.state.log import Log
from _ralph.state.records import AttemptEnded

_LONGEST = 4000
"""Bytes of a text on the page."""
_LONGEST_DIFF = 20_000
_DEADLINE = 5.0
"""Seconds for a diff."""
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
    import jinja2

    shown = status.read(prd_path)
    history = shown.history
    paths = layout.locate(prd_path)
    git = Git.at(paths.root)
    records = Log(paths.progress, shown.plan).records()
    attempts = [record for record in records if isinstance(record, AttemptEnded)]
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
    return environment.from_string(source).render(
        project=shown.plan.project,
        history=history,
        running=shown.running,
        ending=status.ending(shown),
        steps=status.next_steps(shown, history.stopped),
        tasks=summary.task_facts(shown.plan, history),
        attempts=attempts[::-1],  # the newest first
        diff=lambda commit: _diff(git, commit),
        retry=lambda task: summary.command_line("retry", prd_path, [task.task.id]),
    )


def _safe(value: object) -> object:
    """Every text on the page goes through this, before it is escaped."""
    if type(value) is not str:
        return value
    return text.clip(text.redact(text.clean(value)), _LONGEST)


def _when(moment: float) -> str:
    return time.strftime("%a %d %b, %H:%M", time.localtime(moment))


def _diff(git: Git, commit: str) -> list[str]:
    """What a commit changed, as lines of `git show`; none if git does not know it, or
    takes too long."""
    try:
        shown = git.maybe(*_SHOW, commit, "--", timeout=_DEADLINE)
    except Late:
        shown = None
    if not shown:
        return []
    # a carriage return begins no line of a diff
    shown = text.redact(shown.replace("\r", " "))
    note = f"cut here; all of it: git show {commit[:12]}"
    return text.clip(shown, _LONGEST_DIFF, note).rstrip("\n").split("\n")
