"""The opening of a run, by loop 1: setup and the plan's checks at the tip, the commit
hooks, and whether anything guards the run; then its `run` record. `ralph doctor` and
`ralph plan` look at the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

from _ralph import files, text
from _ralph.checks import faults, guard, hooks
from _ralph.checks.guard import Guard
from _ralph.checks.opening import shared_python
from _ralph.checks.places import MESSAGE_HOOKS, setup_failed
from _ralph.checks.results import Known, Results
from _ralph.checks.room import Room
from _ralph.checks.running import baseline, prefix_fails
from _ralph.errors import BadInput, SetupFailed, Stop, TryLater
from _ralph.git.submodules import lacking
from _ralph.loop.loop import Loop
from _ralph.model import Check, CheckResult, Findings, Plan, Task
from _ralph.state.records import RunBegan


def is_open(loop: Loop) -> bool:
    """Whether this run has its `run` record."""
    opened = loop.history.run
    return opened is not None and opened.run == loop.run_id


def ensure_open(loop: Loop, results: Results, task: Task | None) -> bool:
    """Open the run if that is not done: whether it was done now. `task` is the one that
    is worked first, if there is one. RalphError or Stop where nothing could pass,
    before an agent is paid. In the room."""
    # A run that goes on after a kill has begun, and is not asked what guards it.
    begun = bool(loop.history.this_run.iterations or loop.history.open_starts)
    opened = is_open(loop)
    if loop.is_opened or (opened and (begun or not task)):
        loop.tell("opened")
        return False
    open_tasks = [one for one in loop.plan.tasks if not (one.passed or one.blocked)]
    tasks = [task] if task and loop.options.task else open_tasks
    opening = Opening(loop, results, loop.tip(), tasks, waits=begun)
    steps = [opening.checks]
    if task and not begun:
        steps += [opening.guarded, opening.messages, opening.commits]
    lines: list[str] = []

    def take(step: Callable[[], Findings]) -> None:
        for level, line in step():
            say(loop, level, line)
            lines.append(f"- {line}")

    try:
        for step in steps:
            loop.when_setup_works("", partial(take, step))
    finally:
        if not (opened or loop.control.stop_now):
            write_run(loop, opening.tip, lines)
    loop.is_opened = task is not None
    loop.tell("opened")
    return True


def say(loop: Loop, level: str, line: str) -> None:
    """Show a finding."""
    first, *others = line.splitlines()
    if level in ("say", "way"):
        loop.view.line(first)
    else:
        loop.view.warn(first)
    for other in others:
        loop.view.line(other, "    ")


def write_run(loop: Loop, tip: str, lines: Sequence[str]) -> None:
    """Write the `run` record, with lines for people."""
    with loop.plan_locked():
        continues = loop.history.run is not None
        given = loop.options.limits.items()
        limits = {name: value for name, value in given if value is not None}
        if loop.options.until:
            limits["until"] = loop.limits.until
        record = RunBegan(
            continues=continues, branch=loop.branch.name, base=tip, limits=limits
        )
        what = "the run goes on" if continues else "a run begins"
        headline = f"iteration {loop.history.iteration} | {what}"
        shown = [part for line in lines for part in line.splitlines()]
        loop.write(record, headline, shown)


@dataclass
class Opening:
    """What must be found out on the commit `tip` before any work at `tasks`. `waits`: a
    `setup` that is red there is waited for. The steps come in order, in the room; each
    gives its findings, and raises where a run ends unpaid."""

    loop: Loop
    results: Results
    tip: str
    tasks: Sequence[Task]
    waits: bool = False
    guards: Sequence[Guard] = ()
    found: Sequence[CheckResult] = ()  # what every check said, once `own` has run

    def checks(self) -> Findings:
        """Setup, and every check of the plan. BadInput where commands cannot run here,
        or `setup` is red, or installs into a Python that all places share; TryLater
        where it was green on this very commit."""
        loop, places = self.loop, self.loop.places
        plan, folder = loop.plan, loop.paths.room
        loop.view.doing("running checks")
        wrong = ""
        absent = lacking(loop.git, self.tip)
        if absent:
            advice = "see `git submodule update --init`"
            raise BadInput(f"{text.few(absent)}: its commit is not here; {advice}")
        if places.prefix:
            room = Room.at(places, folder)
            room.hold(self.tip)
            wrong = prefix_fails(places, room.path)
        notices: list[str] = []
        if (plan.checks or plan.setup) and not wrong:
            try:
                found = guard.guards_at(places, loop.branch, self.results, self.tip)
            except SetupFailed as error:
                if self.waits:
                    raise
                if self.was_green:
                    raise TryLater(f"{error}; {WAS_GREEN}") from None
                raise BadInput(str(error)) from None
            self.guards = found[0]
            notices = found[1].notices
        if plan.setup and not wrong:
            wrong = shared_python(places, folder)
        if wrong:
            raise BadInput(wrong)
        for one in self.guards:
            yield from self.finding(one)
        for notice in notices:
            yield "note", notice
        unmade = places.missing_hook(folder)
        if unmade:
            raise BadInput(unmade)

    @property
    def was_green(self) -> bool:
        """Whether the last final check found setup and all checks green on this very
        commit."""
        last = self.loop.history.recheck
        if last is None or not last.ok or last.commit != self.tip:
            return False
        return last.checks_digest == digest_of(self.loop.plan)

    def finding(self, one: Guard) -> Findings:
        """What a person should know of a check of the plan."""
        unloaded = one.result.tests.uncollected if one.result.tests else []
        if unloaded and not one.unloaded:
            weak = "passes are weak until it can be loaded"
            yield (
                "note",
                f"{one.check.name}: {text.few(unloaded)} does not run, and {weak}",
            )
        if one.result.is_sound:  # it has old failures at most
            return
        said = f"red before the work: {one.check.name}: {one.why}"
        if one.starts_red:
            yield "say", said
            return
        lines = [said, *one.red_lines]
        if not guard.are_needed(self.guards):
            where = guard.where_in(self.loop.plan, one.check)
            ways = f"mend it, or delete it ({where})"
            lines.append(f"    it binds as soon as it is green; {ways}")
        yield "note", "\n".join(lines)

    def guarded(self) -> Findings:
        """Whether anything guards the run. Stop, with the ways on before it, where the
        plan has checks and nothing is green, or where tests cannot run for want of
        what the place lacks; TryLater where that was green on this very commit."""
        loop = self.loop
        unloaded = [line for one in self.guards for line in one.unloaded]
        if not (unloaded or guard.are_needed(self.guards)):
            return
        why = "; ".join(unloaded)
        if not why:
            first = self.guards[0]
            why = f"no check is green before the work: {first.check.name}: {first.why}"
        if self.was_green:
            raise TryLater(f"{why}; {WAS_GREEN}")
        ways = guard.ways_on(loop.plan, loop.paths.root, self.guards)
        yield "way", "\n".join(["to go on:", *(f"  - {way}" for way in ways)])
        raise Stop("red-checks", why)

    def messages(self) -> Findings:
        """BadInput where the commit hooks refuse the message of a task's next
        attempt."""
        places = self.loop.places
        if not places.has_hooks(MESSAGE_HOOKS):
            return []
        history = self.loop.history
        room = Room.at(places, self.loop.paths.room)
        self.results.room_changes()
        if setup := room.prepare(self.tip, "message"):
            raise SetupFailed(setup_failed(setup))
        for task in self.tasks:
            number = history.of(task).attempts + 1
            said = hooks.message_for(places, task, history.iteration + 1, number)
            if why := hooks.refused_message(room, task, said):
                raise BadInput(why)
        return []

    def commits(self) -> Findings:
        """BadInput where `pre-commit` refuses whatever is committed."""
        loop = self.loop
        if not loop.places.has_hooks(["pre-commit"]):
            return
        loop.view.doing("trying commit hooks")
        self.results.room_changes()
        red = hooks.refused_commits(loop.places, self.tip)
        if red is None:
            return
        tried = Guard(Check(red.name, red.command), red, holds=False)
        why = text.last_line(red.tail.replace(f"{loop.paths.room}/", ""))
        said = f"pre-commit refuses the newest commits, too: {why}"
        yield "note", "\n".join([said, *tried.red_lines])
        if not loop.options.starts_red:
            way = "mend it, or go on all the same: --starts-red"
            raise BadInput(f"{said}; {way}; all of it: {red.log}")

    def own(self) -> Findings:
        """What the own checks of the tasks say, behind the plan's. A run sets a task
        aside where one cannot run here."""
        loop = self.loop
        checks = {check.command: check for check in loop.plan.checks}
        for task in self.tasks:
            checks |= {check.command: check for check in task.checks}
        some = checks.values()
        found = baseline(loop.places, self.results, self.tip, some, "own")
        self.found = found.checks
        for task in self.tasks:
            own = {check.command for check in task.checks}
            for result in self.found:
                why = cannot_run(loop, task, result)
                if why and result.command in own:
                    yield "warning", f"a run sets {task.id} aside: {why}"
        for notice in found.notices:
            yield "note", notice

    def no_proofs(self) -> list[str]:
        """A warning of tasks whose own checks are all green before the work."""
        green = {result.command for result in self.found if result.ok}
        ids = []
        for task in self.tasks:
            commands = {check.command for check in task.checks}
            if commands and commands <= green:
                ids.append(task.id)
        if not ids:
            return []
        why = "own checks are green already, so they prove nothing"
        return [f"{why}: {text.few(ids)}"]


def cannot_run(loop: Loop, task: Task, result: CheckResult) -> str:
    """Why a task's own check cannot run here, if it is red for a reason of the place.
    What the task's words name beside its checks it may be to make."""
    if result.ok:
        return ""
    lacks = faults.find(result.tail, loop.git, loop.paths.room)
    said = {key: value for key, value in task.raw.items() if key != "checks"}
    if lacks is None or lacks.is_named_in(json.dumps(said, ensure_ascii=False)):
        return ""
    return f"check {result.name} cannot run here: {lacks.sentence}"


@contextmanager
def trial(loop: Loop, plan: Plan) -> Iterator[Opening]:
    """The opening of a run of this plan, for who only looks: nothing of it is
    remembered, and SetupFailed is raised as it comes. Under the plan's lock."""
    before = loop.settings
    loop.use(replace(before, plan=plan))
    path = loop.paths.private / "trial.json"
    results = Results(path, loop.git.tree, Known(""))
    tasks = [task for task in plan.tasks if not task.passed]
    try:
        yield Opening(loop, results, loop.branch.beginning(), tasks, waits=True)
    finally:
        path.unlink(missing_ok=True)
        loop.use(before)


WAS_GREEN = (
    "the last final check found it green on this very commit, so something here has "
    "changed; try again later"
)


def digest_of(plan: Plan) -> str:
    """What must be green if the tasks that are marked so have passed: `setup`, and the
    checks of the plan and of these tasks."""
    setup = plan.setup.run if plan.setup else ""
    commands = "\0".join([setup, *(check.command for check in plan.checks_of_passed)])
    return files.digest(commands.encode("utf-8", "surrogatepass"))
