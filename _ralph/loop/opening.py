"""The opening of a run: recover from one that died, require what a run needs, open the
branch."""

from __future__ import annotations

import contextlib
import glob
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from _ralph import files, text
from _ralph.agents import registry
from _ralph.agents.prompt import compile_prompt, render_message
from _ralph.agents.registry import Agent
from _ralph.errors import BadInput
from _ralph.files import resource, table
from _ralph.git import patterns
from _ralph.git.branch import Branch
from _ralph.git.git import BULK, Git, freeze_settings
from _ralph.loop import elsewhere
from _ralph.loop.options import Options, load_plan, validated
from _ralph.loop.places import Places
from _ralph.loop.run import Run
from _ralph.loop.settings import Settings
from _ralph.loop.supply import Supply
from _ralph.loop.train import Train
from _ralph.loop.view import View
from _ralph.model import Paths, Plan
from _ralph.process.prefix import Given, words_of
from _ralph.process.process import Control
from _ralph.process.sandbox import Bubblewrap, bubblewrap
from _ralph.state import edit, limits, prd
from _ralph.state.history import History, RunHistory, replay
from _ralph.state.layout import (
    locate,
    note_plan,
    own_branch,
    read_state,
    state_folder,
)
from _ralph.state.records import Journal

OLDEST = (2, 38)
"""The first git with `merge-tree --write-tree`."""
RUNNER_FILES = {
    name for row in table("detect.json")["runners"] for name in row.get("protect", [])
}
"""Patterns of files that decide what a runner does. They are protected before there are
any."""
_ALTERNATE = "alternate: "


def open_run(options: Options, control: Control, view: View, run_id: str) -> Run:
    """A run, ready to loop: plan and history read, all that it needs checked, the
    branch made."""
    paths = locate(options.prd)
    journal = Journal(paths.progress)
    notices = journal.open()
    plan = load_plan(paths, options)
    remove_half_written(paths)
    run = build_run(
        options, paths, plan, replay(journal.records(plan)), control, view, run_id
    )
    if journal.foreign:
        notices.append(
            f"a new plan on branch {run.branch.name}; the notes in {paths.progress.name} are another plan's"
        )
    run.journal, run.notices = journal, notices
    freeze_settings(run.git, paths.private)
    warnings = [
        warning for agent in agents_of(run) for warning in require_agent(run, agent)
    ]
    warnings += [warning for part in PARTS.values() for warning in part(run)]
    warnings += end_left(run)
    # before git: by it the locks are known that a power cut leaves
    note_plan(paths, run.branch.name, options.words)
    run.tip, said = run.branch.open(run.history.branch)
    run.notices += [*said, *(f"! {warning}" for warning in dict.fromkeys(warnings))]
    if run.history.run is None:  # one that crashed continues with its own limits
        run.history.this_run = RunHistory()
    run.carried = run.history.this_run.seconds
    return run


def remove_half_written(paths: Paths) -> None:
    """Remove the new plan that an edit which was killed had not put in place yet."""
    real = Path(os.path.realpath(paths.prd))
    # as files.py names them
    ours = f".{glob.escape(real.name)}.{'[0-9a-f]' * 12}{files.TEMPORARY}"
    if left := [*real.parent.glob(ours)]:
        with edit.lock(paths.private):  # so that no edit is under way
            for name in left:
                files.clear(name)


def agents_of(run: Run) -> list[Agent]:
    """The agents of the open tasks, and the judge."""
    return [agent for agent in (*run.agents.workers, run.agents.judge) if agent]


def require_agent(run: Run, agent: Agent) -> list[str]:
    """A warning if an agent reports only after the attempt what is limited. BadInput or
    AgentUnavailable if it is missing, lacks permissions, or does not report that at
    all."""
    registry.require(agent, run.places.here)
    in_dollars = run.limits.in_dollars or run.agents.is_limited(agent)
    limited = {"dollars": in_dollars, "tokens": run.limits.in_tokens}
    for unit in limited:
        if limited[unit] and unit not in agent.row.get("reports", []):
            raise BadInput(
                f"a limit in {unit} cannot be enforced: {agent.command} does not report {unit}; "
                f"use --max-hours or --max-iterations, or an agent that reports them"
            )
    which = "one attempt of each worker" if run.settings.jobs > 1 else "one attempt"
    late = f"{agent.name} reports usage only when it exits, so {which} can exceed the limit"
    return [late] if any(limited.values()) and agent.tells_late else []


def try_plan(run: Run) -> list[str]:
    """Warnings of keys that are misspelt, or stand in the wrong place. BadInput for a
    template of prompts or commit messages that cannot be rendered."""
    where = f"{run.paths.prd.name}: commit"
    for task in run.plan.tasks:
        if not task.passed:
            values = {"task": task, "iteration": 1, "attempt": 1}
            render_message(run.settings.commit, values, f"{where}, for {task.id}")
    template = run.settings.prompt
    if not template.is_file():
        raise BadInput(
            f"there is no prompt template {template}; `ralph init --eject` writes one to start from"
        )
    compile_prompt(template)
    said = [*prd.misspelt(run.plan)]
    jobs, rooms = run.settings.jobs, run.limits.rooms
    if rooms > jobs and not run.options.once:
        tasks = (
            f"{text.count(jobs, 'task')} {'is' if jobs == 1 else 'are'} worked at once"
        )
        said.append(
            f"of {rooms} clean rooms {jobs} can be used, as {tasks}; --jobs says how many"
        )
    return said


def require_repository(run: Run) -> list[str]:
    """Warnings of files that agents will not see. BadInput if git cannot work here, or
    nothing could land on a branch of this name."""
    require_git(run.git)
    name, valid = run.branch.name, ""
    with contextlib.suppress(ValueError):  # a NUL, or half a surrogate pair
        valid = run.git("check-ref-format", "--branch", name, check=False)
    if not valid:
        raise BadInput(
            f"{name!r} is not a valid branch name; use another with --branch or branchName"
        )
    if seat := run.branch.seat:
        raise BadInput(
            f"{name} is checked out in {seat}, where it would change under somebody's hands; "
            f"switch away: git switch - (or git switch --detach)"
        )
    if rival := run.branch.rival:
        raise BadInput(
            f"git cannot make a branch {name} beside the branch {rival}; "
            f"use another with --branch or branchName"
        )
    return [*unseen(run), *uncopied(run)]


def require_git(git: Git) -> None:
    """BadInput if git has no identity or is too old."""
    if not git("var", "GIT_COMMITTER_IDENT", check=False):
        raise BadInput(
            "git does not know who commits here; set git config user.name and user.email"
        )
    version = version_of(git)
    if version < OLDEST:
        raise BadInput(
            f"git {'.'.join(map(str, version))} is too old; {'.'.join(map(str, OLDEST))} is needed"
        )


def version_of(git: Git) -> tuple[int, ...]:
    """The version of git, as two numbers."""
    words = git("--version").split()
    return tuple(int(part) for part in words[2].split(".")[:2])


def unseen(run: Run) -> list[str]:
    """A warning of uncommitted files, which the agent will not see; those first that a
    check names."""
    entries = run.git.names(
        "status", "--porcelain", "-z", "-uall", "--no-renames", timeout=BULK
    )
    own = {*run.places.state(), ".gitignore", ".worktreeinclude"}
    words = [word for command in run.agents.ladder() for word in command.split()]
    own |= {run.git.name_of(Path(word)) for word in words}  # agents run from here
    names = [entry[3:] for entry in entries if entry[3:] not in own]
    if not names:
        return []
    commands = " ".join(check.command for check in run.plan.every_check)
    bases = {name: re.escape(os.path.basename(name)) for name in names}
    named = [
        name
        for name in names
        if re.search(rf"(?<![\w.-]){bases[name]}(?![\w-])", commands)
    ]
    rest = [name for name in names if name not in named]
    said = f"not committed, so the agent will not see them: {text.few([*named, *rest])}"
    return [said + (f"; a check names {text.few(named)}: commit it" if named else "")]


def uncopied(run: Run) -> list[str]:
    """A warning of what `.worktreeinclude` names and cannot be copied, as links to
    folders are, or links that lead nowhere."""
    found = ((name, run.paths.root / name) for name in run.places.gear.carried)
    names = [
        name
        for name, path in found
        if not (files.regular(path) and os.access(path, os.R_OK))
    ]
    return (
        [f".worktreeinclude names what is no file to copy: {text.few(names)}"]
        if names
        else []
    )


def unprotected(run: Run) -> list[str]:
    """Warnings of `protect` patterns that match nothing, of tests that none covers, and
    of a single file of tests that one covers."""
    if not run.plan.tasks:
        return []
    protect = list(run.plan.settings.get("protect", []))
    names = run.git.names(
        "ls-files", "-c", "-o", "--exclude-standard", "-z", timeout=BULK
    )
    loose = patterns.unmatched(
        set(protect) - patterns.plain_names(protect) - RUNNER_FILES, names
    )
    tests = patterns.uncovered_tests(protect, names)
    said = (
        [f"`protect` has patterns that match no file: {text.few(sorted(loose))}"]
        if loose
        else []
    )
    if tests:
        said.append(f"not protected, so an agent may change them: {text.few(tests)}")
    (*others, only) = patterns.uncovered_tests([], names) or [""]
    allowed = (pattern for task in run.plan.tasks for pattern in task.allow)
    if not (tests or others or patterns.matching(allowed, [only])) and re.fullmatch(
        r"tests?\.\w+", only
    ):
        said.append(
            f"all tests are in {only}, which is protected, so no task can add to it without `allow`"
        )
    return said


def require_own_files(run: Run) -> list[str]:
    """BadInput where checks would test something else than the work: files of home, or
    a Python in use that has the project installed from there. What `setup` makes is
    looked at when it has run."""
    if not run.places.here:
        return []
    elsewhere.require_own_files(
        run.plan, run.paths.root, registry.agent_env(run.paths.root)
    )
    if not run.plan.setup and (shared := shared_python(run, run.paths.room)):
        raise BadInput(shared)
    return []


def shared_python(run: Run, place: Path) -> str:
    """What is wrong with the Python that checks use in a place; nothing if that is its
    own."""
    commands = (
        [check.command for check in run.plan.every_check] if run.places.here else []
    )
    return elsewhere.shared_python(
        run.places.env(place), run.paths.places, run.paths.root, commands
    )


def end_left(run: Run) -> list[str]:
    """End what a killed run left behind the prefix; lines about what could not be
    ended. Only under the lock."""
    return run.places.prefix.end_left() if run.places.prefix else []


def open_prefix(run: Run) -> list[str]:
    """Make what stands before each command, if anything does. BadInput for words that
    nobody can run."""
    words, end = run.settings.wrap
    noted, git = run.paths.private / "behind", run.git
    if words and run.options.sandbox:
        raise BadInput(
            "--sandbox bwrap and --wrap exclude each other: choose one; a prefix can be a sandbox"
        )
    if words:
        ending = words_of(end, "wrap.end") if end else ()
        run.places.prefix = Given(
            noted, words_of(words, "wrap"), ending, git.common / "objects"
        )
    if run.options.sandbox:
        run.places.prefix = sandbox(run)
    return []


def sandbox(run: Run) -> Bubblewrap:
    """The sandbox of a run. BadInput without bubblewrap."""
    run.paths.places.mkdir(parents=True, exist_ok=True, mode=0o700)
    hidden = (run.paths.root, run.git.common, state_folder(), run.paths.places)
    counted = run.git("count-objects", "-v").splitlines()
    others = [
        Path(line[len(_ALTERNATE) :]) for line in counted if line.startswith(_ALTERNATE)
    ]
    objects = (
        run.git.common / "objects",
        *run.git.common.glob("modules/**/objects"),
        *others,
    )
    network = run.plan.settings.get("network") is not False
    return bubblewrap(hidden, objects, run.agents.rows, run.paths.private, network)


PARTS: Mapping[str, Callable[[Run], list[str]]] = {
    "plan": try_plan,
    "git": require_repository,
    "protect": unprotected,
    "python": require_own_files,
    "sandbox": open_prefix,
}
"""What a run needs beside its agents, part by part: each raises what is wrong, and
returns warnings."""


def branch_of(options: Options, plan: Plan, before: str) -> str:
    """The branch that the work lands on: the one named, else that of the run `before`,
    else the plan's own."""
    return options.branch or plan.branch or before or own_branch(plan)


def read_run(
    options: Options,
    control: Control | None = None,
    view: View | None = None,
    run_id: str = "",
) -> Run:
    """A run of the plan and the notes as they are; nothing is locked, written or
    made."""
    paths, plan, history = read_state(options.prd)
    return build_run(
        options, paths, validated(plan, options), history, control, view, run_id
    )


def build_run(
    options: Options,
    paths: Paths,
    plan: Plan,
    history: History,
    control: Control | None = None,
    view: View | None = None,
    run_id: str = "",
) -> Run:
    """A run, from a plan and a history; nothing is locked, written or made."""
    allowed = limits.resolve(plan.settings, options.limits)
    if options.until:
        allowed = replace(allowed, until=limits.next_time(options.until, time.time()))
    git, control, view = Git.at(paths.root), control or Control(), view or View()
    branch = Branch(git, branch_of(options, plan, history.branch), paths.private.name)
    settings = Settings(options, paths, plan, allowed)
    rows = registry.load_rows(
        resource("templates/agents.json"), plan.settings.get("agents", {})
    )
    agents = Supply(settings, rows, history)
    places = Places(
        settings, git, branch.name, registry.config_variables(rows), control, view
    )
    journal = Journal(paths.progress)
    run = Run(
        settings, agents, places, git, branch, journal, history, run_id, control, view
    )
    run.pool.train = Train(settings.rooms, fits=run.places.fits)
    return run
