"""The opening of a run, by loop 1: setup and the plan's checks at the tip, and the
message of the first commit; then the `run` record."""

from __future__ import annotations

from _ralph import text
from _ralph.checks import hooks
from _ralph.checks.opening import shared_python
from _ralph.checks.results import Results
from _ralph.checks.running import baseline
from _ralph.errors import BadInput, SetupFailed
from _ralph.loop.before import refused
from _ralph.loop.branch import tip_of
from _ralph.loop.loop import Loop
from _ralph.model import CheckResult, Task
from _ralph.state.records import RunBegan


def is_open(loop: Loop) -> bool:
    """Whether this run has its `run` record."""
    return loop.run_id in loop.history.opened_runs


def ensure_open(loop: Loop, results: Results, task: Task | None) -> bool:
    """Open the run if that is not done: whether it was done now. `task` is the one that
    is tried first. BadInput where nothing could pass, before an agent is paid. In the
    room."""
    if is_open(loop):
        loop.tell("opened")
        return False
    tip = tip_of(loop)
    try:
        lines = look(loop, results, tip)
        if why := loop.places.missing_hook(loop.paths.room):
            raise BadInput(why)
        if task:
            require_message(loop, results, task, tip)
    except SetupFailed as error:
        raise BadInput(str(error)) from None
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
        loop.write(record, headline, [f"- {line}" for line in lines])
    loop.tell("opened")
    return True


def look(loop: Loop, results: Results, tip: str) -> list[str]:
    """What the plan's checks say before the work: lines for the log. `setup` runs, if
    there is one: BadInput where it installs into a Python that all places share."""
    plan = loop.plan
    if not (plan.checks or plan.setup):
        return []
    loop.view.doing("running checks")
    found = baseline(loop.places, results, tip, plan.checks, "baseline")
    if plan.setup:
        led = shared_python(loop.places, plan, loop.paths.room)
        if led:
            raise BadInput(led)
    return [*map(red_before, found.red), *found.notices]


def red_before(result: CheckResult) -> str:
    """The line about a check that is red before the work."""
    if not (result.is_sound and result.tests):
        return f"red before the work: {result.name}"
    failed = text.few([*result.tests.failed])
    return f"{result.name} before the work: {result.said}: {failed}"


def require_message(loop: Loop, results: Results, task: Task, tip: str) -> None:
    """BadInput if the commit hooks refuse the message that the next attempt at `task`
    would have."""
    number = loop.history.of(task).attempts + 1
    iteration = loop.history.iteration + 1
    said = hooks.message_for(loop.places, task, iteration, number)
    if why := refused(loop, results, task, said, tip):
        raise BadInput(why)
