"""The next task: which one, with which agent and which share of the money; and what must
be known before its agent is paid."""

from __future__ import annotations

import math
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace

from _ralph import files, text
from _ralph.agents.prompt import compile_prompt
from _ralph.agents.registry import Agent
from _ralph.checks import hooks
from _ralph.checks.opening import require_agent
from _ralph.checks.results import Own, Results
from _ralph.errors import Stop
from _ralph.git.merge import merge
from _ralph.loop.before import is_last, own_checks, own_key, program_of, refused
from _ralph.loop.branch import tip_of
from _ralph.loop.final import final_check, finished, may_check
from _ralph.loop.landing import block, restore_marks
from _ralph.loop.loop import Loop
from _ralph.loop.opening import ensure_open, is_open
from _ralph.loop.setup import when_setup_works
from _ralph.loop.stages import Begun
from _ralph.model import Conflict, Share, Task, Verdict
from _ralph.state import limits, prd
from _ralph.state.history import NEVER, Unavailable
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
        if loop.check_is_due:  # the last run was cut short of it
            loop.check_is_due = False
            final_check(loop, results)
        with loop.plan_locked():
            heed_people(loop)
            stop = reason_to_stop(loop)
            task = None if stop else next_task(loop)
        if task and ensure_open(loop, results, task):
            continue  # that took a while
        if task:
            begun = begin(loop, task)
            if begun and prepare(loop, results, begun):
                return with_red_checks(loop, results, begun)
            continue
        if loop.others_at_work:
            if stop:
                raise stop
            if ensure_open(loop, results, None):
                continue  # the others start by it: they bring these to a verdict
            return None
        waits = not stop and (loop.trouble or wait_for_agent(loop))
        if isinstance(waits, Stop):
            stop = waits
        if stop:
            raise end_with(loop, results, stop)
        if waits:
            return None
        finish(loop, results)


def heed_people(loop: Loop) -> None:
    """Note what people did to the plan: a task whose `blocked` was removed starts over;
    a pass that the plan no longer has is marked again. Under the plan's lock."""
    if loop.trouble:
        return
    restore_marks(loop)
    for opened in loop.history.opened(loop.plan):
        loop.write(opened, f"{opened.task} {opened.title} | unblocked in prd.json")


# ---------------------------------------------------------------- which task


def next_task(loop: Loop) -> Task | None:
    """The first task that is ready, that nobody works on, and whose agent is available;
    the one that this loop worked last comes first. None, too, if the others may need
    the money that is left."""
    history, under_way = loop.history, loop.history.open_starts.values()
    if loop.trouble or share_of_budget(loop) is None:
        return None
    taken = {start.task for start in under_way}
    # Side by side, each of two conflicts would conflict with the other again.
    resolving = any(history.of(start).conflicted for start in under_way)
    found = None
    for task in ready(loop):
        if not taken.isdisjoint((task.id, *task.depends_on)):
            continue
        known = history.of(task)
        if task.key in history.this_run.set_aside or (resolving and known.conflicted):
            continue
        if back_at(loop, task) or is_tried(loop, loop.agents.agent(task)):
            continue
        if known.worker == loop.number and known.attempts:
            return task
        found = found or task
    return found


def ready(loop: Loop) -> list[Task]:
    """The tasks that can be worked, in order; with --task, only that one."""
    only = loop.options.task
    if only is None:
        return prd.ready_tasks(loop.plan)
    loop.plan.task(only)
    some = tuple(task for task in loop.plan.tasks if task.id == only or task.passed)
    return prd.ready_tasks(replace(loop.plan, tasks=some))


def back_at(loop: Loop, task: Task) -> float:
    """When (unix time) a task's agent and judge are available; 0 is now."""
    at = loop.agents.back_at(loop.agents.agent(task))
    if loop.agents.judge:
        at = max(at, loop.agents.back_at(loop.agents.judge))
    return at


def is_tried(loop: Loop, agent: Agent) -> bool:
    """Whether another loop tries an agent first that was not available before."""
    unavailable = loop.history.this_run.away.get(agent.command, Unavailable())
    if not unavailable.since:
        return False
    for start in loop.others_at_work:
        if start.command == agent.command and start.time >= unavailable.since:
            return True
    return False


def share_of_budget(loop: Loop) -> Share | None:
    """What another attempt may spend beside those under way; None if nothing is left
    for it."""
    shares = [
        Share(start.share_usd, start.share_tokens) for start in loop.others_at_work
    ]
    return limits.share(loop.limits, loop.history, shares, loop.settings.jobs)


# ---------------------------------------------------------------- the start record


def new_id(loop: Loop, task: Task) -> str:
    """The id of an attempt: random, and what it is an attempt at."""
    return f"{uuid.uuid4().hex}{id_of_task(loop, task)}"


def id_of_task(loop: Loop, task: Task) -> str:
    """The end of the ids of all attempts at a task: it is the same in a clone, and no
    other plan's."""
    plan = loop.git.name_of(loop.paths.prd) or loop.paths.prd.name
    source = f"{plan}@{loop.plan.branch}\n{task.key}"
    return files.digest(source.encode("utf-8", "surrogatepass"))


def begin(loop: Loop, task: Task) -> Begun | None:
    """Decide which agent works the next attempt at `task`, where it starts and what it
    may spend; write the `start` record. None if somebody was faster."""
    compile_prompt(loop.settings.prompt)
    tip = tip_of(loop)
    recent = loop.branch.recent(tip)
    with loop.plan_locked():
        now = next_task(loop)
        share = share_of_budget(loop)
        if now is None or share is None or now.key != task.key:
            return None
        history = loop.history.of(now)
        agent = loop.agents.agent(now)
        require_agent(loop.settings, loop.agents, loop.places, agent)
        begun = Begun(
            task=now,
            agent=agent,
            number=history.attempts + 1,
            iteration=loop.history.iteration + 1,
            id=new_id(loop, now),
            worker=loop.number,
            share=share.within(share_of(now, history)),
            base=tip,
            recent=recent,
        )
        loop.write(
            AttemptBegan(
                iteration=begun.iteration,
                id=begun.id,
                attempt=begun.number,
                task=now.id,
                title=now.title,
                command=agent.command,
                worker=loop.number if loop.number > 1 else 0,
                base=tip,
                share_usd=begun.share.usd,
                share_tokens=begun.share.tokens,
            ),
            f"{begun.headline} | attempt {begun.number} begins",
        )
    under_way = [start.iteration for start in loop.history.open_starts.values()]
    trim_logs(loop.paths, under_way)
    for old in loop.paths.logs.glob(f"{begun.name}[.-]*"):
        files.clear(old)  # an older run's would be counted as spent
    begun = with_unfinished_work(loop, begun)
    say_begun(loop, begun)
    return begun


def say_begun(loop: Loop, begun: Begun) -> None:
    """Say which attempt begins."""
    task = begun.task
    loop.view.task(task.id)
    title = text.one_line(f"{task.id} {task.title}", 100)
    number = f"attempt {begun.number} of {attempts_at(loop.limits, task)}"
    if begun.clean:
        number += ", from a clean start"
    line = f"iteration {begun.iteration} | {title} | {number} | {begun.agent.command}"
    loop.view.line(line, color="cyan")


def with_unfinished_work(loop: Loop, begun: Begun) -> Begun:
    """The attempt, starting from what earlier ones at its task left, merged with the
    tip, with git's markers where that conflicts; clean in the last attempt, and if the
    work is built on commits that are no longer there."""
    history, branch = loop.history.of(begun.task), loop.branch
    if not (history.left and have_objects(loop, history.left, history.base)):
        return begun
    work = branch.commit(history.left, history.base, "ralph: unfinished work\n")
    gone = history.base != begun.base and not branch.contains(history.base, begun.base)
    if gone or (is_last(loop, begun) and not history.conflicted):
        if work == history.base:
            return replace(begun, clean=True)
        ref = branch.park(work, f"{begun.name}-before")
        notice = f"it started clean; earlier work is parked at {ref}"
        return replace(begun, clean=True, earlier=ref, notices=[notice])
    merged = merge(loop.git, begun.base, work)
    conflict = history.conflict
    if merged.conflicts:
        marked = [*dict.fromkeys([*history.conflict.marked, *merged.marked])]
        conflict = Conflict(marked=marked, kept=merged.kept, own=work)
    return replace(begun, left=merged.tree, conflict=conflict)


def have_objects(loop: Loop, *objects: str) -> bool:
    """Whether the repository has these objects: a clone gets the log, and of git only
    what branches lead to."""
    asked = "".join(f"{name}\n" for name in objects).encode("utf-8", "replace")
    return "missing" not in loop.git("cat-file", "--batch-check", stdin=asked)


# ---------------------------------------------------------------- before it is paid


def prepare(loop: Loop, results: Results, begun: Begun) -> bool:
    """Learn what must be known before an agent is paid: whether the commit hooks let
    ralph's message pass and, before the task's first attempt in this run, what its own
    checks say. A task that cannot pass is blocked, or set aside for this run: False."""

    def learn() -> tuple[Verdict, str] | None:
        refused = refused_message(loop, results, begun)
        if refused:
            return Verdict.FAILED, refused
        return own_checks(loop, results, begun, begun.base)

    cannot = when_setup_works(loop, begun.task.id, learn)
    if cannot is None:
        return True
    verdict, reason = cannot
    set_aside(loop, begun, verdict, reason)
    return False


def with_red_checks(loop: Loop, results: Results, begun: Begun) -> Begun:
    """The attempt, with what is known to be red before its work."""
    red, failing = [], []
    own = results.own.get(own_key(loop, begun.task), Own())
    for check in program_of(loop, begun.task):
        known = results.newest(begun.base, check.command)
        if (known and not known.ok) or own.green.get(check.command) is False:
            red.append(check.command)
        if known and known.tests and known.tests.failed:
            failing.append(", ".join(known.tests.failed))
    return replace(begun, red=red, failing=failing)


def set_aside(loop: Loop, begun: Begun, verdict: Verdict, reason: str) -> None:
    """Close the start of a task for which no agent is paid: blocked where the verdict
    is `failed`, else set aside for this run."""
    blocked = reason if verdict is Verdict.FAILED else ""
    record = replace(
        begun.ended(verdict, reason),
        blocked=blocked,
        uncounted=True,
        base=begun.base if begun.left else "",
        left=begun.left,
        conflict=begun.conflict,
    )
    headline = f"{begun.headline} | {'blocked' if blocked else 'set aside'}"
    with loop.plan_locked():
        if blocked:
            block(loop, begun.task, reason)
        loop.write(record, headline, [f"- reason: {text.one_line(reason, 500)}"])
    said = "blocked" if blocked else "set aside for this run"
    loop.view.line(f"{begun.task.id}: {said}: {reason}", color="red")
    if blocked:
        loop.pending.append(("blocked", reason, begun.task.id))


def refused_message(loop: Loop, results: Results, begun: Begun) -> str:
    """Why the commit hooks refuse the message of an attempt, on the files of the tip;
    nothing if they let it pass. SetupFailed if `setup` is red there."""
    task = begun.task
    said = hooks.message_for(loop.places, task, begun.iteration, begun.number)
    return refused(loop, results, task, said, begun.base)


# ---------------------------------------------------------------- nothing to claim


def reason_to_stop(loop: Loop) -> Stop | None:
    """Why no other attempt may begin in this run, if so."""
    asked = loop.last_stop or loop.asked_to_stop()
    if asked:
        return asked
    denied = loop.history.this_run.denied
    if len(denied) >= DENIED:
        last = text.few(loop.history.tasks[denied[-1]].denials)
        reason = f"{DENIED} tasks in a row were denied what they needed, at last {last}"
        return Stop("unavailable", f"{reason}; see --full-permissions")
    reached = limits.spent(loop.limits, loop.history, loop.seconds, time.time())
    if reached and (loop.trouble or waiting_tasks(loop)):
        return reached
    return None


def waiting_tasks(loop: Loop) -> list[Task]:
    """The tasks that can be worked in this run, some time."""
    aside = loop.history.this_run.set_aside
    return [task for task in ready(loop) if task.key not in aside]


def end_with(loop: Loop, results: Results, stop: Stop) -> Stop:
    """Make the final check before the run ends for this reason, if that is possible;
    the stop."""
    if may_check(loop, stop) and is_open(loop):
        final_check(loop, results)
    return stop


def finish(loop: Loop, results: Results) -> None:
    """No task is left to try, and nobody else is at work: make the final check. Stop,
    unless that or a person opened a task."""
    before = loop.plan.text
    if not final_check(loop, results):
        return
    loop.read()
    if loop.plan.text == before or not waiting_tasks(loop):
        raise finished(loop)


def wait_for_agent(loop: Loop) -> bool | Stop:
    """Whether a task waits for its agent to be available again; that is noted and said,
    once. The stop where it is not to be waited for."""
    waiting = waiting_tasks(loop)
    if not waiting:
        return False
    task = min(waiting, key=lambda task: back_at(loop, task))
    needed = [loop.agents.agent(task)]
    if loop.agents.judge:
        needed.append(loop.agents.judge)
    agent = max(needed, key=loop.agents.back_at)
    if not loop.agents.back_at(agent):
        return True  # it is back by now
    try:
        note_wait(loop, agent)
    except Stop as stop:
        return stop
    return True


def note_wait(loop: Loop, agent: Agent) -> None:
    """Note, and say once, until when an agent is waited for. Stop where it is not to be
    waited for."""
    unavailable = loop.agents.unavailable(agent)
    if unavailable.reset == NEVER:
        raise Stop("unavailable", f"the agent cannot run: {unavailable.reason}")
    if not loop.settings.waits:
        raise Stop("limited", f"no attempt can be made now: {unavailable.reason}")
    now, waited = time.time(), loop.history.this_run.waited
    at = min(loop.agents.back_at(agent), loop.ends)
    if waited.command == agent.command and waited.until >= math.floor(at):
        return
    vain = loop.history.this_run.vain
    until = limits.wait_for(loop.limits, unavailable, vain, now)
    until = math.ceil(min(until, loop.ends))
    when = f"until {text.clock(until, now, seconds=True)}"
    with loop.plan_locked():
        backoff = not unavailable.reset
        record = Waited(until=until, backoff=backoff, command=agent.command)
        loop.write(record, f"waiting {when} for the provider")
    said = f"waiting for the provider {when}: {unavailable.reason}"
    loop.view.line(said)
    loop.pending.append(("waiting", said, ""))


def wait_for_task(loop: Loop) -> None:
    """Wait until there may be a task to claim: the plan or the log changed, an agent is
    back, a person asked to stop, or the time is up. In no lock."""
    if loop.has_told:
        return
    if loop.trouble:
        loop.say_trouble()
    seen = signatures(loop)
    end = min(next_moment(loop), loop.ends)
    if end > time.time() + 1:
        loop.view.doing(f"waiting until {text.clock(end, time.time(), seconds=True)}")
    loop.control.sleep(
        end,
        lambda: bool(
            loop.control.stop_now or loop.asked_to_stop() or signatures(loop) != seen
        ),
        0.2,
    )
    loop.view.doing("")


def next_moment(loop: Loop) -> float:
    """When (unix time) to look again, if nothing happens before."""
    now = time.time()
    if loop.others_at_work or loop.trouble:
        return now + _LOOK
    return max(loop.history.this_run.waited.until, now)


def signatures(loop: Loop) -> Sequence[object]:
    """What changes when somebody writes the plan or the log."""
    return [files.signature(path) for path in (loop.paths.prd, loop.paths.progress)]
