"""One run's opening: find the workspace, mend what a dead run left, read the state, go to the branch."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from _ralph import agents, edit, limits, prd
from _ralph.ends import BadInput
from _ralph.files import resource
from _ralph.guard import Guard
from _ralph.journal import Journal
from _ralph.live import View
from _ralph.lock import acquire, bury
from _ralph.model import Paths, Plan
from _ralph.place import elsewhere, journal_of, locate, loop_at_work, own_branch, read_state
from _ralph.process import Control
from _ralph.progress import History, RunHistory, replay
from _ralph.refusals import (
    agents_of,
    refuse_loose,
    refuse_other_plan,
    refuse_unfinished,
    require_agents,
    same_plan,
    try_templates,
    unfinished,
)
from _ralph.run import Options, Run, examined, load_plan
from _ralph.sandbox import sandbox_for
from _ralph.workspace import Folder, GitTree


def open_run(options: Options, control: Control, view: View, run_id: str) -> Run:
    """The run, ready to loop: state mended, branch switched, plan and history read."""
    paths = locate(options.prd, options.git)
    journal, guard = journal_of(paths), guard_of(paths)
    notices = _mend(journal, guard)
    plan = load_plan(paths, options)
    records = journal.records()
    if told := _doubt_passes(plan, journal.attempt_is_open, records):
        plan, notices = load_plan(paths, options), notices + told
    run = glance(options, paths, plan, replay(records, plan.key), notices)
    run = replace(run, journal=journal, guard=guard, control=control, view=view, run_id=run_id)
    if options.until:
        run.limits = replace(run.limits, until=limits.next_time(options.until, time.time()))
    if options.git:
        _open_tree(run)
    run.notices += list(prd.misspelt(run.plan))
    require_agents(run)
    open_sandbox(run)
    try_templates(run)
    if run.history.run is None:  # the last one ended; one that crashed goes on with its own limits
        run.history.this_run = RunHistory()
    run.carried = run.history.this_run.seconds
    return run


def _mend(journal: Journal, guard: Guard) -> list[str]:
    """Undo what an attempt or a check of a dead run did to the state files, before they are believed."""
    notices = journal.open(held=guard.holds)
    for path, kept in guard.restore().items():
        where = f"; the version found is kept at {kept}" if kept else ""
        notices.append(f"{path.name} had been changed when ralph was cut off, and was put back{where}")
    if not journal.attempt_is_open:
        guard.release()
    return notices


def _doubt_passes(plan: Plan, attempt_is_open: bool, records: list[dict[str, Any]]) -> list[str]:
    """Set the passes back to what verdicts and people had said when the attempt began that was cut
    off: its safety copies can be lost, or an agent's own. What was done, in words."""
    start = next((record for record in reversed(records) if record["event"] == "start"), None)
    if start is None or not attempt_is_open or start.get("file") != plan.path.name:
        return []
    history, told = replay(records, str(start["plan"])), []
    for task in plan.tasks:
        believed = history.proved(task) != (task.key in start["by_hand"])
        if task.passed != believed:
            plan = edit.rewrite(plan, edit.set_passed(plan, plan.task(task.id), believed))
            told.append(f"{task.id} had been set to {'pass' if task.passed else 'open'}, and was set back")
    return told


def open_sandbox(run: Run) -> None:
    """The sandbox that was asked for, if one was; BadInput if it cannot work, or hides an agent."""
    if run.options.sandbox:
        agents_here = agents_of(run)
        names = {agent.name for agent in agents_here}
        git_folders = [run.git_tree.git.dir, run.git_tree.git.common] if run.options.git else []
        frozen = [run.paths.root / ".git", *git_folders, run.paths.progress, *run.guarded()]
        network = run.plan.settings.get("network") is not False
        run.box = sandbox_for(run.paths.root, run.paths.private, frozen, run.rows, names, network)
        for agent in agents_here:
            found = Path(shutil.which(agent.program) or agent.program)
            if not run.box.sees(found):
                raise BadInput(f"{found} is not there inside the sandbox; install {agent.program} elsewhere")


def _open_tree(run: Run) -> None:
    """Open the working tree, go to the run's branch, refuse what a person has not committed."""
    tree, history = run.git_tree, run.history
    start = history.open_start
    if start:
        run.notices += tree.settle(start["branch"], start["head"], f"{start['iteration']:04}-cut-off")
        tree.refs.reset_index()  # what the agent staged may be a person's untracked file
    run.notices += tree.begin(resuming=bool(start), last_tree=history.left or history.tree)
    branch = tree.branch()
    run.resuming = bool(start) or (branch == history.branch and unfinished(tree, history))
    if not run.resuming and history.tree and tree.snapshot() == history.tree == tree.clean_tree():
        tree.refs.reset_index()  # a commit may have been cut off before this
    if not run.resuming:
        refuse_unfinished(tree)
    run.branch = branch if run.resuming else _go_to_branch(run, tree, branch)
    refuse_loose(run)


def _go_to_branch(run: Run, tree: GitTree, branch: str) -> str:
    """Go from `branch` to the one that this plan is worked on; its full ref name."""
    prd_path, wanted = run.paths.prd, run.options.branch or run.plan.branch

    def same(source: str) -> bool:
        return same_plan(run, source)

    here = branch.removeprefix("refs/heads/")
    if wanted is None:
        if here and here not in tree.refs.default_branches(here):
            return branch
        wanted = tree.refs.free_branch(own_branch(run.plan), prd_path, same)
    if wanted == here:
        return branch
    if not tree.refs.has_branch(wanted):
        tree.refs.switch("-c", wanted)
        run.notices.append(f"made branch {wanted}")
        return f"refs/heads/{wanted}"
    refuse_other_plan(run, wanted)
    tree.refs.switch(wanted)
    run.notices.append(f"switched to branch {wanted}")
    run.journal.open()
    run.plan = load_plan(run.paths, run.options)
    run.history = replay(run.journal.records(), run.plan.key)
    tree.begin(resuming=False, last_tree=run.history.tree)
    return f"refs/heads/{wanted}"


def peek(options: Options, writing: bool = False) -> Run:
    """A run to look at: as `open_run` makes one, but nothing is switched, locked or, unless
    `writing`, mended."""
    paths = locate(options.prd, options.git)
    notices = _mend(journal_of(paths), guard_of(paths)) if writing else []
    paths, plan, history = read_state(options.prd, options.git)
    return glance(options, paths, examined(plan, options), history, notices)


def glance(options: Options, paths: Paths, plan: Plan, history: History, notices: Sequence[str] = ()) -> Run:
    """A run to look at, of what was read already."""
    found = limits.resolve(plan.settings, options.limits)
    rows = agents.load_rows(resource("templates/agents.json"), plan.settings.get("agents", {}))
    tree = GitTree(paths.root, paths.private, [paths.prd, paths.progress]) if options.git else Folder()
    return Run(
        options, paths, plan, tree, tree.branch(), journal_of(paths), guard_of(paths), history, found, rows,
        Control(), View(level=-1), "", notices=list(notices),
    )  # fmt: skip


@contextlib.contextmanager
def at_rest(options: Options) -> Iterator[tuple[Run, bool]]:
    """The workspace for one change that a person makes, locked and mended; or it is as it is and True,
    while a loop runs here, which takes messages instead. BadInput where the work is on another branch."""
    paths = locate(options.prd, options.git)
    busy = loop_at_work(paths) is not None
    lock = None if busy else acquire(paths, patience=10.0)
    try:
        if lock:
            bury(paths)
        run = peek(options, writing=not busy)
        branch = elsewhere(paths, run.plan, run.history) if options.git else None
        if branch:
            raise BadInput(f"the work on this plan is on branch {branch}; first: git switch {branch}")
        yield run, busy
    finally:
        if lock:
            lock.release()


def guard_of(paths: Paths) -> Guard:
    return Guard(paths.private / "safety", paths.private / "aside")
