"""From the command line to what a loop works with."""

from __future__ import annotations

import glob
import os
import time
from pathlib import Path

from _ralph import files
from _ralph.agents import registry
from _ralph.agents.team import Agents
from _ralph.checks import missing, opening
from _ralph.checks.places import Places
from _ralph.checks.view import View
from _ralph.git.branch import Branch
from _ralph.git.git import Git, freeze_settings
from _ralph.loop.loop import Loop
from _ralph.model import Paths, Plan
from _ralph.process.process import Control
from _ralph.state import edit, limits, prd
from _ralph.state.history import RunHistory
from _ralph.state.layout import locate, note_plan, own_branch
from _ralph.state.log import Log
from _ralph.state.options import Options, load_plan, validated
from _ralph.state.settings import Settings


def look(
    options: Options, control: Control | None = None, view: View | None = None
) -> Loop:
    """What a loop would work with, from the plan and the notes as they are; nothing is
    locked, written or made."""
    paths = locate(options.prd)
    plan = validated(prd.load(paths.prd), options)
    return made(options, paths, plan, control, view, "")


def begin(
    options: Options, control: Control, view: View, run_id: str
) -> tuple[Loop, list[str]]:
    """What the loops of a run work with: plan and history read, all that can be known
    before the first check looked at, the branch made; and lines for a person. Under
    the run's lock."""
    paths = locate(options.prd)
    plan = load_plan(paths, options)
    notices = Log(paths.progress, plan).close_torn_record()
    remove_half_written(paths)
    loop = made(options, paths, plan, control, view, run_id)
    history = loop.history
    if loop.log.has_other_plans and history.last is None:
        what = f"the notes in {paths.progress.name} are another plan's"
        notices.append(f"a new plan on branch {loop.branch.name}; {what}")
    freeze_settings(loop.git, paths.private)
    warnings = require_all(loop)
    # Before git: by it the locks are known that a power cut leaves
    note_plan(paths, loop.branch.name)
    loop.first_tip, said = loop.branch.open(history.branch)
    lines = [*notices, *said]
    lines += [f"! {warning}" for warning in dict.fromkeys(warnings)]
    if history.run is None:  # one that crashed continues with its own limits
        history.this_run = RunHistory()
        loop.check_is_due = history.unchecked > 0
    history.this_run.commit = ""  # where the branch is now was looked at
    loop.carried = history.this_run.seconds
    return loop, lines


def require_all(loop: Loop) -> list[str]:
    """Everything that a run needs before its first check: BadInput or AgentUnavailable
    where it is not there; warnings."""
    places, agents, settings = loop.places, loop.agents, loop.settings
    warnings = []
    for agent in opening.agents_of(agents):
        warnings += opening.require_agent(settings, agents, places, agent)
    warnings += opening.require_plan(settings)
    opening.require_branch(loop.git, loop.branch)
    warnings += opening.unseen(places, agents)
    warnings += opening.uncopied(places)
    warnings += opening.unprotected(loop.plan, loop.git)
    warnings += missing.above(loop.paths.places)
    warnings += untrusted(loop)
    opening.require_own_files(places)
    opening.open_prefix(places)
    warnings += opening.end_left(places)
    return warnings


def untrusted(loop: Loop) -> list[str]:
    """Warnings of what tools trust in no place."""
    trust, branch = loop.places.from_home.trust, loop.branch
    if not trust.answers:
        return []
    agents = [agent.cli.trust for agent in opening.agents_of(loop.agents)]
    return trust.warnings(loop.git, branch.beginning(), branch.name, agents)


def made(
    options: Options,
    paths: Paths,
    plan: Plan,
    control: Control | None,
    view: View | None,
    run_id: str,
) -> Loop:
    """What a loop works with; nothing is locked, written or made."""
    allowed = limits.resolve(plan.settings, options.limits)
    if options.until:
        until = limits.next_time(options.until, time.time())
        allowed = allowed._replace(until=until)
    git, control, view = Git.at(paths.root), control or Control(), view or View()
    git.calls.control = control
    settings = Settings(options, paths, plan, allowed)
    log = Log(paths.progress, plan)
    history = log.read()
    named = options.branch or plan.branch or history.branch or own_branch(plan)
    branch = Branch(git, named, paths.private.name)
    own_rows = plan.settings.get("agents", {})
    clis = registry.with_own(own_rows)
    return Loop(
        number=1,
        run_id=run_id,
        settings=settings,
        log=log,
        git=git,
        branch=branch,
        places=Places(settings, git, branch.name, control, view),
        agents=Agents(settings, clis, history),
        control=control,
        view=view,
    )


def remove_half_written(paths: Paths) -> None:
    """Remove the new plan that an edit which was killed had not put in place yet."""
    real = Path(os.path.realpath(paths.prd))
    # as files.py names them
    random = "[0-9a-f]" * 12
    ours = f".{glob.escape(real.name)}.{random}{files.TEMPORARY}"
    left = [*real.parent.glob(ours)]
    if left:
        with edit.lock(paths.private):  # so that no edit is under way
            for name in left:
                files.clear(name)
