"""From the command line to what a loop works with."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

from _ralph import text
from _ralph.agents import registry
from _ralph.agents.team import Agents
from _ralph.checks import elsewhere, opening, trust
from _ralph.checks.places import Places
from _ralph.checks.view import View
from _ralph.git.branch import Branch
from _ralph.git.git import Git, freeze_settings
from _ralph.loop.loop import Loop
from _ralph.model import Finding, Findings, Paths, Plan
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
) -> tuple[Loop, list[Finding]]:
    """What the loops of a run work with: plan and history read, all that can be known
    before the first check looked at, the branch made; and what a person should know.
    Under the run's lock."""
    paths = locate(options.prd)
    plan = load_plan(paths, options)
    notices = Log(paths.progress, plan).close_torn_record()
    edit.remove_half_written(paths)
    loop = made(options, paths, plan, control, view, run_id)
    history = loop.history
    if loop.log.has_other_plans and history.last is None:
        what = f"the notes in {paths.progress.name} are another plan's"
        notices.append(f"a new plan on branch {loop.branch.name}; {what}")
    freeze_settings(loop.git, paths.private)
    warnings = require_all(loop)
    # Before git: by it the locks are known that a power cut leaves
    note_plan(paths, loop.branch.name)
    loop.first_tip, said = loop.branch.open()
    found = [*notes([*notices, *said], "say"), *warnings]
    if history.run is None:  # one that crashed continues with its own limits
        history.this_run = RunHistory()
    history.this_run.commit = ""  # where the branch is now was looked at
    loop.carried = history.this_run.seconds
    return loop, found


def requirements(loop: Loop) -> dict[str, Callable[[], Findings]]:
    """What a run needs before its first check, part by part: each raises where it is
    not there. A run says the findings `say` and `note`; `ralph doctor` all of them."""
    return {
        "plan": lambda: notes(opening.require_plan(loop.settings)),
        "git": lambda: _git(loop),
        "files": lambda: _files(loop),
        "wrap": lambda: notes(opening.open_prefix(loop.places)),
        "agent": lambda: _agents(loop),
    }


def require_all(loop: Loop) -> list[Finding]:
    """Everything that a run needs before its first check: RalphError where it is not
    there; what a person should know."""
    found = []
    for part in requirements(loop).values():
        found += [one for one in part() if one[0] in ("note", "say")]
    if loop.settings.jobs > 1 and not loop.history.largest.usd:
        if loop.limits.in_dollars or loop.limits.in_tokens:
            line = "one at a time until the price of an attempt is known"
            found.append(("say", line))
    return [*dict.fromkeys(found)]


def notes(lines: Iterable[str], level: str = "note") -> Findings:
    """Findings of one level."""
    return [(level, line) for line in lines]


def _git(loop: Loop) -> Findings:
    opening.require_branch(loop.git, loop.branch)
    yield from notes(opening.unseen(loop.places, loop.agents))
    yield from notes(opening.absent_submodules(loop.git))


def _files(loop: Loop) -> Findings:
    """Files that decide what checks test, and what agents may change."""
    opening.require_own_files(loop.places)
    yield from notes(opening.unprotected(loop.plan, loop.git), "warning")
    yield from notes(elsewhere.above(loop.paths.places))


def _agents(loop: Loop) -> Findings:
    """Whether each agent can work, who pays, and what it is trusted with."""
    agents = loop.agents.needed
    for agent in agents:
        late = opening.require_agent(loop.settings, loop.places, agent)
        yield from notes(late)
        if loop.places.here:
            yield from opening.who_pays(loop.limits, agent)
        denied = opening.denied_paths(loop.plan, agent)
        if denied:
            who = f"{agent.name} may not write {text.few(denied)} by itself"
            yield "note", f"{who}, and a task names that: --full-permissions lets it"
    told = [agent.cli.trust for agent in agents]
    yield from notes(trust.warnings(loop.places.from_home.trust, told))


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
        agents=Agents(settings, clis, log),
        control=control,
        view=view,
    )
