"""What a loop that died left, by its number; and what the plan or the log lost."""

from __future__ import annotations

from dataclasses import replace

from _ralph.errors import Exit
from _ralph.loop.claim import RANDOM, close, id_of_task, with_unfinished_work
from _ralph.loop.landing import mark_passed, restore_marks
from _ralph.loop.loop import Loop
from _ralph.loop.roles import cut_off
from _ralph.loop.stages import Begun, Worked
from _ralph.loop.work import collect_again, noted_end
from _ralph.model import Share, Task, Verdict, spent_on
from _ralph.state import edit
from _ralph.state.records import AttemptBegan


def recover(loop: Loop) -> list[Worked]:
    """What the last loops of this number left: each attempt that has no verdict yet is
    noted as passed where its commit is on the branch, goes on where its agent had
    started, and is closed without counting otherwise. Loop 1 does it for numbers that
    no longer run, and looks for what plan and log lost."""
    edit.remove_half_written(loop.paths)
    loop.read()
    found = []
    landed = loop.branch.landed(loop.tip())
    by_person = stopped_by_person(loop)
    if loop.number == 1:
        note_lost(loop, landed)
    for start in list(loop.history.open_starts.values()):
        if not is_mine(loop, start):
            continue
        begun = begun_of(loop, start)
        if start.id in landed:
            note_passed(loop, begun, landed[start.id])
            continue
        worked = collect_again(loop, begun)
        if worked is None:
            why = "it was cut off before its agent started"
            close(loop, begun, Verdict.INTERRUPTED, why)
            continue
        said = "an attempt was cut off; what it left is checked first"
        loop.view.line(f"{begun.task.id}: {said}")
        found.append(replace(worked, by_person=by_person))
    if loop.number == 1:
        with loop.plan_locked():
            restore_marks(loop)
    return found


def is_mine(loop: Loop, start: AttemptBegan) -> bool:
    """Whether this loop recovers that attempt."""
    number = start.worker
    return number == loop.number or (loop.number == 1 and number > loop.settings.jobs)


def stopped_by_person(loop: Loop) -> bool:
    """Whether the run before ended because a person stopped it, or was needed: what was
    under way then was not interrupted by its own fault."""
    stopped = loop.history.stopped
    if stopped is None:
        return False
    needed = stopped.exit in (int(Exit.PERSON), int(Exit.LATER))
    return needed or stopped.stop in ("interrupted", "asked")


def begun_of(loop: Loop, start: AttemptBegan) -> Begun:
    """An attempt as its `start` record says; its task may be gone by now."""
    task = loop.plan.task_with(start.key)
    if task is None:
        task = Task(id=start.task, title=start.title, index=0, raw={}, passed=True)
    agent = loop.agents.agent(task)
    if start.command:
        agent = loop.agents.named(start.command)
    begun = Begun(
        task=task,
        agent=agent,
        number=start.attempt,
        iteration=start.iteration,
        id=start.id,
        worker=start.worker,
        share=Share(start.share_usd, start.share_tokens),
        base=start.base or loop.first_tip,
    )
    return with_unfinished_work(loop, begun)


def note_passed(loop: Loop, begun: Begun, commit: str) -> None:
    """Note the pass of an attempt whose commit is on the branch, and whose verdict the
    log lacks."""
    task = begun.task
    results = [noted_end(loop, begun)]
    if loop.agents.judge:
        name = f"{begun.name}-judge"
        results.append(cut_off(loop, loop.agents.judge, name, "it was cut off"))
    record = replace(
        begun.ended(Verdict.PASSED, "already on the branch; marked as passed"),
        **vars(spent_on(results)),
        commit=commit,
        base=begun.base,
        checks={check.command: True for check in task.checks},
    )
    with loop.plan_locked():
        loop.write(record, f"{begun.headline} | passed")
        if not loop.trouble:
            mark_passed(loop, record)
    loop.view.line(f"{task.id}: {record.reason}", color="green")
    loop.notify("passed", record.reason, task.id)


def note_lost(loop: Loop, landed: dict[str, str]) -> None:
    """Note what is on the branch (commits by the ids of attempts) and the log does not
    know: it was taken back with `git checkout` or `git stash`, or a clone has an older
    one."""
    if landed.keys() <= loop.history.begun:
        return
    newest: dict[str, str] = {}
    for own in reversed(landed):
        newest[own[RANDOM:]] = own
    for task in loop.plan.tasks:
        own = newest.get(id_of_task(loop, task), "")
        if not own or own in loop.history.begun:
            continue
        commit = landed[own][:12]
        with loop.plan_locked():
            number = loop.history.iteration + 1
            what = f"{commit} is on the branch, and these notes lack it"
            loop.write(
                AttemptBegan(
                    task=task.id, title=task.title, iteration=number, id=own, lost=True
                ),
                f"iteration {number} | {task.id} {task.title} | {what}",
            )
