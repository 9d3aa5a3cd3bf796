"""The next task: which one, with which agent and which share of the money; and what must
be known before its agent is paid."""

from __future__ import annotations

import math
import time
import uuid
from dataclasses import replace

from _ralph import files, text
from _ralph.agents.cli import Agent
from _ralph.agents.prompt import compile_prompt
from _ralph.checks.opening import require_agent
from _ralph.checks.results import Own, Results
from _ralph.checks.running import baseline
from _ralph.errors import Stop
from _ralph.git.merge import merge
from _ralph.loop.final import final_check, finished, may_check
from _ralph.loop.landing import restore_marks
from _ralph.loop.loop import Loop
from _ralph.loop.opening import cannot_run, ensure_open, is_open
from _ralph.loop.stages import Begun
from _ralph.model import Check, Conflict, Share, Task, Verdict
from _ralph.state import limits, prd
from _ralph.state.history import NEVER
from _ralph.state.layout import trim_logs
from _ralph.state.limits import attempts_at, share_of
from _ralph.state.records import AttemptBegan, Waited

RANDOM = 32
"""Letters of an attempt's id that are random; what it is an attempt at follows."""
DENIED = 3
"""Tasks in a row that were denied what they needed before a run ends: the next would
be, too."""
_LOOK = 30.0
"""Seconds after which a loop that waits looks again, whatever it has heard."""


def claim(loop: Loop, results: Results) -> Begun | None:
    """Claim the next task by its `start` record, and learn what must be known before
    its agent is paid. None where nothing can be claimed now. Stop where the loop must
    end; the last one makes the final check before. In the room."""
    if loop.pending and loop.options.notify:
        return None  # people are told first: they may stop the run, or add a task
    while True:
        history = loop.history
        if history.unchecked and not history.this_run.iterations:
            final_check(loop, results)  # the last run was cut short of it
        with loop.plan_locked():
            heed_people(loop)
            stop = reason_to_stop(loop)
            task = None if stop else next_task(loop)
        if task:
            if ensure_open(loop, results, task):
                continue  # that took a while
            begun = begin(loop)
            prepared = prepare(loop, results, begun) if begun else None
            if prepared:
                return prepared
            continue
        if loop.others_at_work:
            if stop:
                raise stop
            if ensure_open(loop, results, None):
                continue  # the others start by it: they bring these to a verdict
            return None
        try:
            if stop:
                raise stop
            if loop.trouble or wait_for_agent(loop):
                return None
        except Stop as found:
            if may_check(loop, found) and is_open(loop):
                final_check(loop, results)
            raise
        # No task is left to try: finished, unless this or a person opens one.
        before = loop.plan.text
        final_check(loop, results)
        if loop.plan.text == before or not waiting_tasks(loop):
            raise finished(loop)


def heed_people(loop: Loop) -> None:
    """Note what people did to the plan: a task whose `blocked` was removed starts over;
    a pass that the plan no longer has is marked again. Under the plan's lock."""
    restore_marks(loop)
    for opened in loop.history.opened(loop.plan):
        loop.write(opened, f"{opened.task} {opened.title} | unblocked in prd.json")


# ---------------------------------------------------------------- which task


def next_task(loop: Loop) -> Task | None:
    """The first task that is ready, that nobody works on, and whose agent is available.
    None, too, if the others may need the money that is left."""
    history = loop.history
    under_way = history.open_starts.values()
    if loop.trouble or share_of_budget(loop) is None:
        return None
    taken = {start.task for start in under_way}
    # Side by side, each of two conflicts would conflict with the other again.
    resolving = any(history.of(start).conflicted for start in under_way)
    for task in waiting_tasks(loop):
        is_free = taken.isdisjoint((task.id, *task.depends_on))
        waits = resolving and history.of(task).conflicted
        if is_free and not waits and not back_at(loop, task):
            return task
    return None


def waiting_tasks(loop: Loop) -> list[Task]:
    """The tasks that can be worked in this run, in order; with --task, only that
    one."""
    only = loop.options.task
    plan = loop.plan
    if only is not None:
        plan.task(only)
        some = [task for task in plan.tasks if task.id == only or task.passed]
        plan = replace(plan, tasks=tuple(some))
    aside = loop.history.this_run.set_aside
    return [task for task in prd.ready_tasks(plan) if task.key not in aside]


def needed(loop: Loop, task: Task) -> list[Agent]:
    """The agents without which a task cannot pass: its own, and the judge."""
    agents = [loop.agents.agent(task)]
    if loop.agents.judge:
        agents.append(loop.agents.judge)
    return agents


def back_at(loop: Loop, task: Task) -> float:
    """When (unix time) a task's agent and judge are available; 0 is now."""
    return max(map(loop.agents.back_at, needed(loop, task)))


def share_of_budget(loop: Loop) -> Share | None:
    """What another attempt may spend beside those under way; None if nothing is left
    for it."""
    shares = [
        Share(start.share_usd, start.share_tokens) for start in loop.others_at_work
    ]
    return limits.share(loop.limits, loop.history, shares, loop.settings.jobs)


# ---------------------------------------------------------------- the start record


def id_of_task(loop: Loop, task: Task) -> str:
    """The end of the ids of all attempts at a task: it is the same in a clone, and no
    other plan's. What stands before is random."""
    plan = loop.git.name_of(loop.paths.prd) or loop.paths.prd.name
    source = f"{plan}@{loop.plan.branch}\n{task.key}"
    return files.digest(source.encode("utf-8", "surrogatepass"))


def begin(loop: Loop) -> Begun | None:
    """Decide which agent works the next task, where it starts and what it may spend;
    write the `start` record. None if there is nothing to work on any more."""
    compile_prompt(loop.settings.prompt)
    tip = loop.tip()
    with loop.plan_locked():
        now = next_task(loop)
        share = share_of_budget(loop)
        if now is None or share is None:
            return None
        history = loop.history.of(now)
        agent = loop.agents.agent(now)
        require_agent(loop.settings, loop.places, agent)
        begun = Begun(
            task=now,
            agent=agent,
            number=history.attempts + 1,
            iteration=loop.history.iteration + 1,
            id=f"{uuid.uuid4().hex}{id_of_task(loop, now)}",
            worker=loop.number,
            share=share_of(now, history, share),
            base=tip,
        )
        loop.write(
            AttemptBegan(
                iteration=begun.iteration,
                id=begun.id,
                attempt=begun.number,
                task=now.id,
                title=now.title,
                command=agent.command,
                worker=loop.number,
                base=tip,
                share_usd=begun.share.usd,
                share_tokens=begun.share.tokens,
            ),
            f"{begun.headline} | attempt {begun.number} begins",
        )
    under_way = [start.iteration for start in loop.history.open_starts.values()]
    trim_logs(loop.paths, under_way, begun.name)
    begun = with_unfinished_work(loop, begun)
    loop.view.task(now.id)
    title = text.one_line(f"{now.id} {now.title}", 100)
    number = f"attempt {begun.number} of {attempts_at(loop.limits, now)}"
    line = f"iteration {begun.iteration} | {title} | {number} | {agent.command}"
    loop.view.line(line, color="cyan")
    return begun


def is_last(loop: Loop, begun: Begun) -> bool:
    """Whether it is the task's last attempt, which starts clean."""
    return 1 < begun.number >= attempts_at(loop.limits, begun.task)


def with_unfinished_work(loop: Loop, begun: Begun) -> Begun:
    """The attempt, starting from what earlier ones at its task left, merged with the
    tip, with git's markers where that conflicts; clean in the last attempt, and if the
    work is built on commits that are no longer there."""
    history = loop.history.of(begun.task)
    branch = loop.branch
    earlier = history.unfinished
    if not earlier.left:
        return begun
    # a clone gets the log, and of git only what branches lead to
    asked = f"{earlier.left}\n{earlier.base}\n".encode("utf-8", "replace")
    if "missing" in loop.git("cat-file", "--batch-check", stdin=asked):
        return begun
    work = branch.commit(earlier.left, earlier.base, "ralph: unfinished work\n")
    gone = earlier.base != begun.base and not branch.contains(earlier.base, begun.base)
    if gone or (is_last(loop, begun) and not history.conflicted):
        if work == earlier.base:
            return replace(begun, clean=True)
        ref = branch.park(work, f"{begun.name}-before")
        notice = f"it started clean; earlier work is parked at {ref}"
        return replace(begun, clean=True, earlier=ref, notices=[notice])
    merged = merge(loop.git, begun.base, work)
    conflict = earlier.conflict
    if merged.conflicts:
        marked = [*dict.fromkeys([*conflict.marked, *merged.marked])]
        conflict = Conflict(marked=marked, kept=merged.kept, own=work)
    begun = replace(begun, left=merged.tree, conflict=conflict)
    if merged.kept:  # of these files the tree has nothing of the work
        ref = branch.park(work, f"{begun.name}-before")
        notice = f"{text.few(merged.kept)} stand as on the branch; its work is at {ref}"
        begun = replace(begun, earlier=ref, notices=[notice])
    return begun


# ---------------------------------------------------------------- before it is paid


def prepare(loop: Loop, results: Results, begun: Begun) -> Begun | None:
    """The attempt, with what is known to be red before its work: before the task's
    first attempt in this run its own checks run. None for a task that cannot pass: it
    is set aside for this run."""
    task = begun.task
    cannot = loop.when_setup_works(task.id, lambda: own_checks(loop, results, begun))
    if cannot:
        said = f"{task.id}: set aside for this run: {cannot}"
        loop.view.line(said, color="red")
        close(loop, begun, Verdict.SET_ASIDE, cannot)
        return None
    if time.time() >= loop.ends:
        why = "the run's time was up before its agent started"
        close(loop, begun, Verdict.INTERRUPTED, why)
        return None
    red = []
    failing = []
    own = results.known.own.get(own_key(loop, task), Own())
    for check in program_of(loop, task):
        known = results.newest(begun.base, check.command)
        if (known and not known.ok) or own.green.get(check.command) is False:
            red.append(check.command)
        if known and known.tests and known.tests.failed:
            failing.append(", ".join(known.tests.failed))
    return replace(begun, red=red, failing=failing)


def program_of(loop: Loop, task: Task) -> list[Check]:
    """The checks of a task: the plan's, then its own. A task that was set back once
    must keep the own checks of all passed tasks, too."""
    kept: list[Check] = []
    if loop.history.of(task).set_back:
        for other in loop.plan.tasks:
            if other.passed:
                kept += [check for check in other.checks if not check.once]
    return loop.plan.checks_for(task, kept)


def own_key(loop: Loop, task: Task) -> str:
    """By what it is known what a task's own checks said before its work: anew after a
    person opened the task again."""
    return f"{task.key}\n{loop.history.of(task).reopened}"


def own_checks(loop: Loop, results: Results, begun: Begun, tip: str = "") -> str:
    """Run the task's own checks behind the plan's on the tip of the branch, unless that
    is known. Why the task cannot pass, if one of them cannot start. SetupFailed if
    `setup` is red."""
    own = {check.command for check in begun.task.checks}
    key = own_key(loop, begun.task)
    if own <= results.known.own.get(key, Own()).green.keys():
        return ""
    program = loop.plan.checks_for(begun.task)
    name = f"{begun.name}-before"
    env = begun.variables(loop.paths)
    tip = tip or begun.base
    found = baseline(loop.places, results, tip, program, name, env)
    green = {}
    for result in found.checks:
        if result.command in own:
            if why := cannot_run(loop, begun.task, result):
                return why
            green[result.command] = result.ok
    results.known.own[key] = Own(tip, green, loop.git.tree(tip))
    loop.view.lines(found.notices)
    return ""


def close(loop: Loop, begun: Begun, verdict: Verdict, reason: str) -> None:
    """Close the start of an attempt whose agent had not started, with a verdict that
    counts nothing. Earlier work on its task stays."""
    known = loop.history.of(begun.task).unfinished
    record = replace(
        begun.ended(verdict, reason),
        uncounted=True,
        base=known.base,
        left=known.left,
        conflict=known.conflict,
    )
    said = f"- reason: {text.one_line(reason, 500)}"
    with loop.plan_locked():
        loop.write(record, f"{begun.headline} | {verdict}", [said])


# ---------------------------------------------------------------- nothing to claim


def reason_to_stop(loop: Loop) -> Stop | None:
    """Why no other attempt may begin in this run, if so."""
    asked = loop.last_stop or loop.asked_to_stop()
    if asked:
        return asked
    denied = loop.history.this_run.denied
    if len(denied) >= DENIED:
        last = text.few(loop.history.tasks[denied[-1]].newest.denials)
        reason = f"{DENIED} tasks in a row were denied what they needed, at last {last}"
        return Stop("unavailable", f"{reason}; see --full-permissions")
    reached = limits.spent(loop.limits, loop.history, loop.seconds, time.time())
    if reached and (loop.trouble or waiting_tasks(loop)):
        return reached
    return None


def wait_for_agent(loop: Loop) -> bool:
    """Whether a task waits for its agent to be available again; that is noted and said,
    once. Stop where it is not to be waited for."""
    waiting = waiting_tasks(loop)
    if not waiting:
        return False
    task = min(waiting, key=lambda task: back_at(loop, task))
    agent = max(needed(loop, task), key=loop.agents.back_at)
    back = loop.agents.back_at(agent)
    if not back:
        return True  # it is back by now
    unavailable = loop.agents.unavailable(agent)
    if unavailable.reset == NEVER:
        raise Stop("unavailable", f"the agent cannot run: {unavailable.reason}")
    if not loop.settings.waits:
        raise Stop("limited", f"no attempt can be made now: {unavailable.reason}")
    now = time.time()
    run = loop.history.this_run
    noted = run.waited.until if run.waited.command == agent.command else 0.0
    if noted >= math.floor(min(back, loop.ends)):
        return True
    until = limits.wait_for(loop.limits, unavailable, run.vain, now)
    until = math.ceil(min(until, loop.ends))
    when = f"until {text.clock(until, now, seconds=True)}"
    with loop.plan_locked():
        backoff = not unavailable.reset
        record = Waited(until=until, backoff=backoff, command=agent.command)
        loop.write(record, f"waiting {when} for the provider")
    said = f"waiting for the provider {when}: {unavailable.reason}"
    loop.view.line(said)
    loop.pending.append(("waiting", said, ""))
    return True


def wait_for_task(loop: Loop) -> None:
    """Wait until there may be a task to claim: the plan or the log changed, an agent is
    back, a person asked to stop, or the time is up. In no lock."""
    if loop.trouble:
        loop.wait_for_plan()
        return

    end = loop.history.this_run.waited.until
    if loop.others_at_work:
        end = time.time() + _LOOK
    end = min(end, loop.ends)
    loop.view.doing("waiting")
    while time.time() < end and loop.stamps == loop.seen:
        if loop.control.stop_now or loop.asked_to_stop():
            break
        loop.control.wait(0.2)
    loop.view.doing("")
