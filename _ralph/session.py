"""One run's opening: find the workspace, lock it, mend what a dead run left, read the state."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from _ralph import agents, files, limits, prd, text
from _ralph.agents import Agent
from _ralph.detect import detect_checks
from _ralph.ends import BadInput, TryLater
from _ralph.files import resource
from _ralph.git import remove_locks
from _ralph.guard import Guard
from _ralph.journal import Journal
from _ralph.live import View
from _ralph.model import Attempt, Paths, Plan, Task
from _ralph.place import (
    elsewhere,
    journal_of,
    locate,
    loop_at_work,
    own_branch,
    read_state,
    running,
    running_entry,
)
from _ralph.process import Control
from _ralph.progress import History, RunHistory, replay
from _ralph.prompt import render_line
from _ralph.sandbox import Sandbox, sandbox_for
from _ralph.supervisor import kill_run
from _ralph.workspace import Folder, GitTree

DEFAULT_COMMIT = "{{ task.id }}: {{ task.title }}"


@dataclass(frozen=True)
class Options:
    """What the command line said; None and empty mean that prd.json or the default decides."""

    prd: Path = Path("prd.json")
    once: bool = False
    task: str | None = None
    agent: str | None = None
    checks: tuple[str, ...] = ()
    judge: str | None = None
    planner: str | None = None
    prompt: Path | None = None
    limits: Mapping[str, Any] = field(default_factory=dict)
    until: str | None = None
    agent_timeout: float = 3600.0
    idle_timeout: float = 1200.0
    branch: str | None = None
    git: bool = True
    no_wait: bool = False
    full_permissions: bool = False
    sandbox: str | None = None
    no_awake: bool = False
    notify: str | None = None
    json: bool = False
    quiet: bool = False
    verbose: bool = False


@dataclass
class Run:
    """Everything the loop knows; all of it can be read again from disk."""

    options: Options
    paths: Paths
    plan: Plan
    tree: Folder
    branch: str
    journal: Journal
    guard: Guard
    history: History
    limits: limits.Limits
    rows: Mapping[str, Any]
    control: Control
    view: View
    run_id: str
    started: float = field(default_factory=time.monotonic)
    notices: list[str] = field(default_factory=list)
    box: Sandbox | None = None
    resuming: bool = False
    recorded: bool = False
    asked_to_stop: bool = False

    @property
    def seconds(self) -> float:
        """How long the run has gone, this process and those before it that crashed."""
        return self.carried + time.monotonic() - self.started

    carried: float = 0.0

    @property
    def git_tree(self) -> GitTree:
        """The tree, for what nobody asks of a plain folder."""
        assert isinstance(self.tree, GitTree)
        return self.tree

    @property
    def under_way(self) -> bool:
        """Whether something was begun or decided that is not done: the next start goes on with it,
        as after a kill, if nothing is written on top."""
        known = self.history
        return bool(known.open_start or known.pending or known.broken or self.journal.failed)

    @property
    def permissions(self) -> str:
        """What agents may do; inside ralph's own sandbox that is everything that it lets them."""
        return "sandbox" if self.options.sandbox else "full" if self.options.full_permissions else "edit"

    def wrap(self, argv: list[str], also: Sequence[Path] = ()) -> list[str]:
        """A command as it is run here: inside the sandbox, if there is one."""
        return self.box.wrap(argv, also) if self.box else argv

    def agent(self, task: Task | None = None) -> Agent:
        """The agent of `task`: its own, else the one given, else the plan's, else claude."""
        plan_wide = self.options.agent or self.plan.settings.get("agent") or "claude"
        command = (task.agent if task and not self.options.agent else None) or plan_wide
        return agents.find_agent(command, self.rows, self.permissions)

    @property
    def judge(self) -> Agent | None:
        """The agent that must agree before a task passes, if there is one."""
        command = self.options.judge or self.plan.settings.get("judge")
        return agents.find_agent(command, self.rows, "read") if command else None

    @property
    def planner(self) -> Agent:
        """The agent that writes a plan: the one given, the plan's planner, its agent, or claude."""
        settings = self.plan.settings
        command = self.options.planner or settings.get("planner") or settings.get("agent") or "claude"
        return agents.find_agent(command, self.rows, "read")

    def template(self) -> Path:
        own = self.options.prompt or self.plan.settings.get("prompt")
        return self.paths.prd.parent / own if own else resource("templates/prompt.md")

    def commit_template(self) -> str:
        return str(self.plan.settings.get("commit") or DEFAULT_COMMIT)

    def guarded(self) -> list[Path]:
        own = self.options.prompt or self.plan.settings.get("prompt")
        return [self.paths.prd, self.paths.rulebook, *([self.template()] if own else [])]

    def env(self, **extra: str) -> dict[str, str]:
        return agents.agent_env({"RALPH_RUN_ID": self.run_id, **extra})

    def log(self, name: str) -> Path:
        """The path of a new file in the scratch folder; the newest 50 attempts are kept."""
        return files.clear(scratch(self.paths) / name)

    def read_plan(self) -> None:
        """Take in what a person changed in prd.json since it was last read."""
        found = self.paths.prd.read_bytes() if self.paths.prd.is_file() else b""
        if found != self.plan.text.encode():
            key = self.plan.key
            self.plan = self.admitted(prd.load(self.paths.prd))
            if self.plan.key != key:
                self.history = replay(self.journal.records(), self.plan)

    def admitted(self, plan: Plan) -> Plan:
        """`plan` as it can be worked here; only a loop knows what checks and judge it was given."""
        return admit(plan, self.paths, self.options) if self.run_id else examined(plan, self.options)

    def rewrite(self, source: str) -> None:
        """Write prd.json anew, and take it in: what ralph itself changed needs no new validation."""
        self.plan = replace(prd.rewrite(self.plan, source), checks=self.plan.checks)


def scratch(paths: Paths) -> Path:
    """The folder for people, `.ralph/`, which hides itself from git."""
    if not paths.scratch.is_dir() or paths.scratch.is_symlink():
        files.move_aside(paths.scratch, paths.private / "aside", "scratch")
        paths.scratch.mkdir(exist_ok=True)
    ignore = paths.scratch / ".gitignore"
    if files.read_regular(ignore) != b"*\n":
        files.atomic_write(files.clear(ignore), b"*\n")
    return paths.scratch


def trim_scratch(paths: Paths, keep: int = 49) -> None:
    """Before an attempt, which makes the fiftieth: delete the logs of all but the newest `keep`."""
    names = [(entry.name.partition("-")[0], entry) for entry in scratch(paths).iterdir()]
    numbered = [(int(number), entry) for number, entry in names if number.isdecimal()]
    newest = sorted({number for number, _ in numbered})[-keep:]
    for number, entry in numbered:
        if number not in newest and entry.is_file():
            entry.unlink(missing_ok=True)


def guard_of(paths: Paths) -> Guard:
    return Guard(paths.private / "safety", paths.private / "aside")


def load_plan(paths: Paths, options: Options) -> Plan:
    """The plan of a run, as `admit` lets it in."""
    return admit(prd.load(paths.prd), paths, options)


def admit(plan: Plan, paths: Paths, options: Options) -> Plan:
    """The plan, validated, with the checks of the command line; refused if nothing could prove it."""
    plan = examined(plan, options)
    if is_starter(plan):
        raise BadInput(
            f"{paths.prd.name} holds nothing but the example that `ralph init` wrote; edit it, or: "
            f"ralph plan brief.md, or: ralph add 'TITLE' --check 'COMMAND'"
        )
    if plan.settings.get("network") is False and not options.sandbox:  # to go on would be a silent lie
        raise BadInput(f"{paths.prd.name}: network: false can only be kept with --sandbox bwrap")
    unchecked = [task.id for task in plan.tasks if not task.passed and not task.checks]
    if not plan.checks and unchecked and not (options.judge or plan.settings.get("judge")):
        raise BadInput(_no_checks(paths, plan, unchecked))
    return plan


def examined(plan: Plan, options: Options) -> Plan:
    """The plan held against the schema, with the checks of the command line."""
    prd.validate(plan)
    return replace(plan, checks=plan.checks + prd.parse_checks(list(options.checks), "--check"))


def is_starter(plan: Plan) -> bool:
    """Whether its tasks are still the example that `ralph init` wrote."""
    return len(plan.tasks) == 1 and bool([plan.tasks[0].raw] == starter()["userStories"])


def starter() -> dict[str, Any]:
    """The plan that `ralph init` writes, before it is filled in."""
    found: dict[str, Any] = json.loads(resource("templates/prd.json").read_text("utf-8"))
    return found


def acquire(paths: Paths, patience: float = 0.2) -> Any:
    """The lock on this workspace, held until the process ends; TryLater names its holder, after
    `patience` seconds."""
    import filelock

    paths.private.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(paths.private / "lock")
    try:
        lock.acquire(timeout=patience)
        if running(paths):  # its lock was deleted under it
            raise filelock.Timeout(lock.lock_file)
    except filelock.Timeout:
        holder = running(paths)
        if holder is None:
            raise TryLater("another ralph is at work in this workspace; try again in a moment") from None
        raise TryLater(
            f"`ralph {holder.get('what', 'run')}` is at work in this workspace "
            f"(pid {holder['pid']}, since {holder['since']}); wait for its end, or see `ralph stop`"
        ) from None
    return lock


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


def announce(paths: Paths, run_id: str, pid: int, what: str = "run") -> None:
    """Say which process runs here, and `what`, for `status` and for the next start after a crash."""
    import psutil

    entry = {
        "pid": pid,
        "created": psutil.Process(pid).create_time(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "run_id": run_id,
        "what": what,
    }
    files.atomic_write(paths.private / "running.json", json.dumps(entry).encode())


def announce_again(paths: Paths, run_id: str) -> list[str]:
    """The lock's file can be deleted by an agent: then this keeps other loops out."""
    if all((paths.private / name).is_file() for name in ("lock", "running.json")):
        return []
    paths.private.mkdir(parents=True, exist_ok=True)
    files.clear(paths.private / "lock").touch()
    announce(paths, run_id, os.getppid())
    return ["the loop's lock had been deleted, and was put back"]


def bury(paths: Paths) -> None:
    """After a run that died: kill what it left behind, remove the locks of its dead git calls."""
    if entry := running_entry(paths):
        kill_run(str(entry.get("run_id")))
        remove_locks(paths.private.parent)


def open_run(options: Options, control: Control, view: View, run_id: str) -> Run:
    """The run, ready to loop: state mended, branch switched, plan and history read."""
    paths = locate(options.prd, options.git)
    journal, guard = journal_of(paths), guard_of(paths)
    notices = _mend(paths, journal, guard)
    plan = load_plan(paths, options)
    records = journal.records()
    if told := _doubt_passes(plan, journal.attempt_is_open, records):
        plan, notices = load_plan(paths, options), notices + told
    rows = agents.load_rows(resource("templates/agents.json"), plan.settings.get("agents", {}))
    found = limits.resolve(plan.settings, options.limits)
    if options.until:
        found = replace(found, until=limits.next_time(options.until, time.time()))
    run = Run(
        options, paths, plan, Folder(), "", journal, guard, replay(records, plan), found, rows,
        control, view, run_id, notices=notices,
    )  # fmt: skip
    if options.git:
        _open_tree(run)
    else:
        refuse_without_git(run)
    run.notices += list(prd.misspelt(run.plan))
    _require_agents(run)
    open_sandbox(run)
    try_templates(run)
    if run.history.run is None:
        run.history.this_run = (
            RunHistory()
        )  # the last one ended; one that crashed goes on with its own limits
    run.carried = run.history.this_run.seconds
    return run


def _mend(paths: Paths, journal: Journal, guard: Guard) -> list[str]:
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
    history, told = History(str(start["plan"])), []
    for record in records:
        history.apply(record)
    for task in plan.tasks:
        believed = history.proved(task) != (task.key in start["by_hand"])
        if task.passed != believed:
            plan = prd.rewrite(plan, prd.set_passed(plan, plan.task(task.id), believed))
            told.append(f"{task.id} had been set to {'pass' if task.passed else 'open'}, and was set back")
    return told


def refuse_without_git(run: Run) -> None:
    """BadInput for what cannot be kept in a plain folder."""
    if run.judge:
        raise BadInput("a judge needs git to see the change; remove it or run without --no-git")
    if run.plan.settings.get("protect"):
        raise BadInput("protect needs git to put files back; remove it or run without --no-git")


def _require_agents(run: Run) -> None:
    """Every agent that this plan can need is there, is permitted, and tells what is limited."""
    for agent in _agents(run):
        require_agent(run, agent)


def _agents(run: Run) -> list[Agent]:
    """The agents of the open tasks, each once, however long the list; and the judge."""
    tasks = {task.agent: task for task in run.plan.tasks if not task.passed}
    return [agent for agent in [*map(run.agent, tasks.values()), run.judge] if agent]


def require_agent(run: Run, agent: Agent) -> None:
    """Refuse an agent that is missing, may not run as it would, or does not tell what is limited."""
    agents.require(agent)
    wanted = {"dollars": run.limits.in_dollars, "tokens": run.limits.in_tokens}
    for unit in wanted:
        if wanted[unit] and unit not in agent.row.get("reports", []):
            raise BadInput(
                f"a limit in {unit} cannot be kept: {agent.command} reports none; "
                f"use --max-hours or --max-iterations, or an agent that reports them"
            )


def open_sandbox(run: Run) -> None:
    """The sandbox that was asked for, if one was; BadInput if it cannot work, or hides an agent."""
    if run.options.sandbox:
        agents_here = _agents(run)
        names = {agent.name for agent in agents_here}
        git_folders = [run.git_tree.git.dir, run.git_tree.git.common] if run.options.git else []
        frozen = [run.paths.root / ".git", *git_folders, run.paths.progress, *run.guarded()]
        network = run.plan.settings.get("network") is not False
        run.box = sandbox_for(run.paths.root, run.paths.private, frozen, run.rows, names, network)
        for agent in agents_here:
            found = Path(shutil.which(agent.program) or agent.program)
            if not run.box.sees(found):
                raise BadInput(f"{found} is not there inside the sandbox; install {agent.program} elsewhere")


def try_templates(run: Run) -> None:
    """A template that is wrong is found now, not behind the night's first pass."""
    attempt = Attempt(run.plan.tasks[0], number=1, iteration=1)
    render_line(run.commit_template(), commit_values(attempt), f"{run.paths.prd.name}: commit")
    template = run.template()
    if not template.is_file():
        raise BadInput(
            f"there is no prompt template {template}; `ralph init --eject` writes one to start from"
        )


def commit_values(attempt: Attempt) -> dict[str, Any]:
    """What the template of a commit subject may use."""
    return {"task": attempt.task, "iteration": attempt.iteration, "attempt": attempt.number}


def _open_tree(run: Run) -> None:
    """Open the working tree, go to the run's branch, refuse what a person has not committed."""
    tree = GitTree(run.paths.root, run.paths.private, [run.paths.prd, run.paths.progress])
    run.tree, history = tree, run.history
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


def refuse_unfinished(tree: GitTree) -> None:
    """BadInput where a person has begun something and not committed it."""
    if word := tree.refs.halfway():
        raise BadInput(f"a {word} is under way in this repository; end it first: git {word} --abort")
    if modified := tree.modified():
        raise BadInput(
            f"modified tracked files: {text.few(modified)}; commit or stash them, "
            f"so that nothing of yours is mixed up with the work"
        )


def refuse_loose(run: Run) -> None:
    """BadInput where a protected file could not be put back."""
    if loose := run.git_tree.untracked_protected(list(run.plan.settings.get("protect", []))):
        raise BadInput(
            f"{loose[0]} is under a protected pattern but not in git, so it could not be put back; commit it"
        )


def refuse_other_plan(run: Run, branch: str) -> None:
    """BadInput where `branch` is there already, for another plan."""
    there = run.git_tree.refs.plan_on(branch, run.paths.prd)
    if there is not None and not same_plan(run, there):
        raise BadInput(
            f"the branch {branch} exists and its {run.paths.prd.name} holds another plan than the one here; "
            f"give this plan a branchName of its own, or delete that branch"
        )


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
    run.history = replay(run.journal.records(), run.plan)
    tree.begin(resuming=False, last_tree=run.history.tree)
    return f"refs/heads/{wanted}"


def same_plan(run: Run, source: str) -> bool:
    """Whether `source`, the text of a prd.json on another branch, is the plan of this run."""
    try:
        found = prd.read(source, run.paths.prd)
    except BadInput:
        return False
    names = {(task.id, task.title) for task in run.plan.tasks}
    common = {(task.id, task.title) for task in found.tasks} & names
    return bool(common) and found.project == run.plan.project


def unfinished(tree: Folder, history: History) -> bool:
    """Whether what lies in the tree is work that the last record left, and nothing else."""
    if not history.tree:
        return False
    now = tree.snapshot()
    return now in (history.tree, history.left) and now != tree.clean_tree()


def on_default_branch(tree: GitTree) -> bool:
    here = tree.branch().removeprefix("refs/heads/")
    return here in tree.refs.default_branches(here)


def _no_checks(paths: Paths, plan: Plan, unchecked: list[str]) -> str:
    commands = prd.foreign_gates(plan) or detect_checks(paths.root)
    import shlex

    words = " ".join(f"--check {shlex.quote(command)}" for command in commands or ["your test command"])
    source = "that stand in the plan" if prd.foreign_gates(plan) else "found in this project"
    which = "no task has any of its own" if len(unchecked) == len(plan.tasks) else f"{unchecked[0]} has none"
    return (
        f"{paths.prd.name}: there are no checks, so nothing could prove that a task is done "
        f"({which}). With the checks {source if commands else 'that you name'}:\n\n"
        f'    ralph run {words}\n\nor write them under "checks" in {paths.prd.name}'
    )


def peek(options: Options, writing: bool = False) -> Run:
    """A run to look at: as `open_run` makes one, but nothing is switched, locked or, unless
    `writing`, mended."""
    paths = locate(options.prd, options.git)
    notices = _mend(paths, journal_of(paths), guard_of(paths)) if writing else []
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
