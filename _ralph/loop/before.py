"""What must be known before an agent is paid: whether commit hooks accept ralph's
message, and which of the task's checks are red before the work."""

from __future__ import annotations

from _ralph import text
from _ralph.errors import BadInput
from _ralph.loop.checking import baseline
from _ralph.loop.commit import message_for, message_of, try_messages
from _ralph.loop.jobs import Attempt, Checked
from _ralph.loop.places import MESSAGE_HOOKS
from _ralph.loop.run import Run
from _ralph.loop.setup import require_setup
from _ralph.loop.verdict import Before
from _ralph.loop.worker import Job
from _ralph.model import Check, CheckResult, Task


def checks_of(run: Run, task: Task) -> list[Check]:
    """The program of a task: the plan's checks, then its own. A task that was set back
    once must keep the own checks of all passed tasks, too."""
    others = run.plan.tasks if run.history.of(task).set_back else ()
    kept = [
        check
        for other in others
        if other.passed
        for check in other.checks
        if not check.once
    ]
    return run.plan.checks_for(task, kept)


async def know_before(run: Run, attempt: Attempt) -> None:
    """Learn, on the tip as it is when the room is free, what must be known before an
    agent is paid: whether the commit hooks let ralph's message pass, and, before the
    first attempt in this run, what the task's own checks say behind the plan's.
    SetupFailed if `setup` is red."""
    commands = {check.command for check in attempt.task.checks}
    own_known = run.results.before.get(attempt.task.key, {}).keys() >= commands
    message = message_of(run, attempt)
    if own_known and is_accepted(run, message):
        return
    async with run.turn(attempt, only_looks=True):
        attempt.cannot_pass = await refusal(
            run, attempt.task, message, run.tip, attempt
        )
        if not (own_known or attempt.cannot_pass):
            await _know_own(run, attempt, run.tip)


def is_accepted(run: Run, message: str) -> bool:
    """Whether the commit hooks have let this message pass in this run, or there are
    none that see it."""
    return message in run.results.accepted or not run.places.hooked(MESSAGE_HOOKS)


async def refusal(
    run: Run, task: Task, message: str, commit: str, attempt: Attempt | None = None
) -> str:
    """Why the commit hooks refuse the message of an `attempt` at `task` on the files of
    `commit`; nothing if they let it pass. SetupFailed if `setup` is red there."""
    if is_accepted(run, message):
        return ""
    checked = require_setup(await trying(run, commit, [(task, message)], attempt))
    if not checked.refused:
        run.results.accepted.add(message)
    return checked.refused


def require_message(run: Run, task: Task, commit: str) -> None:
    """BadInput if the commit hooks refuse the message that the next attempt at `task`
    would have."""
    message = message_for(
        run, task, run.history.iteration + 1, run.history.of(task).attempts + 1
    )
    if refused := run.wait(refusal(run, task, message, commit)):
        raise BadInput(refused)


def trying(
    run: Run,
    commit: str,
    messages: list[tuple[Task, str]],
    attempt: Attempt | None = None,
) -> Job[Checked]:
    """Begin to try messages in a worker, in the room as the plan's checks left it if it
    holds `commit`."""
    room, worker = (attempt.room, attempt.worker) if attempt else (1, 0)
    if not (held := run.results.holds(room, commit)):
        run.results.built.pop(room, None)
    return run.in_worker(
        lambda inside: try_messages(inside, commit, messages, room, held),
        Checked,
        worker,
    )


async def _know_own(run: Run, attempt: Attempt, tip: str) -> None:
    """Run the task's own checks behind the plan's. The attempt cannot pass if one of
    them can only be red."""
    before, own = run.results.before.get(attempt.task.key, {}), attempt.task.checks
    checks, name = run.plan.checks_for(attempt.task), f"{attempt.name}-before"
    checked = await baseline(
        run, tip, checks, name, attempt.variables(run.paths), attempt
    )
    by_command = {result.command: result for result in checked.checks}
    results = [
        by_command[check.command] for check in own if check.command in by_command
    ]
    attempt.notices += checked.notices
    attempt.cannot_pass = next(
        (cannot_start(result) for result in results if result.missing), ""
    )
    if not attempt.cannot_pass:
        run.results.before[attempt.task.key] = {
            result.command: result.ok for result in results
        } | before
        run.results.before_at[attempt.task.key] = tip


def before_work(run: Run, attempt: Attempt) -> Before:
    """What is known of the attempt's checks from before its work."""
    results, commands = (
        run.results,
        [check.command for check in checks_of(run, attempt.task)],
    )
    tip = {command: results.newest(attempt.tip, command) for command in commands}
    own = {check.command for check in attempt.task.checks}
    return Before(
        own=results.before.get(attempt.task.key, {}),
        tip={
            command: result.ok if command in own else result.is_sound
            for command, result in tip.items()
            if result
        },
        flaky={
            command
            for command in {*commands} - attempt.suites.keys()
            for commit in (attempt.base, attempt.tip, attempt.commit)
            if results.is_flaky(commit, command)
        },
        suites=attempt.suites,
    )


def cannot_start(result: CheckResult) -> str:
    """The sentence about a check whose program is missing."""
    why = text.last_line(result.tail)
    return f"check {result.name} cannot run here: {why}; a program is missing: install it, or let `setup` do it"
