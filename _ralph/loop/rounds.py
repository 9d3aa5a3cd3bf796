"""Between the attempts: recovery after a crash, the next task, waits, the re-check, the
stop."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import replace

from _ralph import files, text
from _ralph.agents.registry import Agent
from _ralph.errors import (
    BadInput,
    Exit,
    RalphError,
    SetupFailed,
    Stop,
    StopNow,
    TryLater,
)
from _ralph.files import digest
from _ralph.loop.attempt import salvage
from _ralph.loop.before import require_message
from _ralph.loop.behind import require_other_side
from _ralph.loop.candidate import tip_of
from _ralph.loop.checking import baseline, check_twice
from _ralph.loop.jobs import Attempt, CheckJob
from _ralph.loop.landing import (
    failure_of,
    note,
    note_landed,
    note_lost,
    redo_marks,
    restore_marks,
    set_back,
)
from _ralph.loop.opening import agents_of, shared_python
from _ralph.loop.roles import cut_off
from _ralph.loop.run import Run, asked_to_stop, notify
from _ralph.model import AgentResult, Check, CheckResult, Plan, Task, Verdict, spent_on
from _ralph.state import limits, prd
from _ralph.state.history import NEVER, Away
from _ralph.state.records import Rechecked, Retried, RunBegan, Stopped, Waited
from _ralph.text import clock, quote

_LOOK = 2.0
"""Seconds after which a free worker looks for a task again."""
DENIED = 3
"""Tasks in a row that were denied what they needed before a run ends: the next would
be, too."""


def resume(run: Run) -> None:
    """Recover from a run that died: note what had landed, keep what was under way, to
    be checked."""
    for notice in run.notices:
        run.view.line(notice, color="yellow" if notice.startswith("! ") else "")
    redo_marks(run)
    forget_lost_work(run)
    landed = run.branch.landed(run.tip)
    note_lost(run, landed)
    before = (
        run.history.stopped
    )  # by itself, with an error, or there would be no attempt under way
    why = f"its run ended: {before.reason}" if before else "the attempt was cut off"
    for start in list(run.history.open_starts.values()):
        task = run.plan.task_with(start.key)
        task = task or Task(
            id=start.task, title=start.title, index=0, raw={}, passed=True
        )
        agent = (
            run.agents.named(start.command) if start.command else run.agents.agent(task)
        )
        attempt = Attempt(
            task, start.attempt, start.iteration, agent, start.worker or 1, start.id
        )
        attempt.base, attempt.leftover, attempt.conflict = (
            start.base,
            start.leftover,
            start.conflict,
        )
        attempt.result = _recovered(run, attempt, why)
        attempt.reason = attempt.result.reason
        if commit := landed.get(start.id):
            note_landed(run, attempt, commit)
            continue
        run.view.line(
            f"{task.id}: an attempt was cut off; what it left will be checked first"
        )
        salvage(run, attempt)
        history = run.history.of(task)
        if (
            not attempt.left and history.left
        ):  # what stood there before, on the commit that it was made from
            attempt.left, attempt.base = history.left, history.base
        note(
            run,
            attempt,
            by_person=before is not None and before.exit in (Exit.PERSON, Exit.LATER),
        )
    restore_marks(run)
    if run.history.run is None and run.history.unchecked and not asked_to_stop(run):
        recheck(run)  # the last run came to its end without it


def forget_lost_work(run: Run) -> None:
    """Forget unfinished work that is not in this repository: a clone gets the log, and
    of git only what branches lead to."""
    for history in run.history.tasks.values():
        objects = f"{history.left}\n{history.base}\n".encode("utf-8", "replace")
        if history.left and "missing" in run.git(
            "cat-file", "--batch-check", stdin=objects
        ):
            history.left, history.base, history.lacks = "", "", ""


def _recovered(run: Run, attempt: Attempt, why: str) -> AgentResult:
    """What is known of an attempt that died with ralph: agent and judge together."""
    result = cut_off(run, attempt.agent, attempt.name, why)
    if run.agents.judge:
        both = spent_on(
            [result, cut_off(run, run.agents.judge, f"{attempt.name}-judge", why)]
        )
        result = replace(
            result, usd=both.usd, at_least=both.at_least, tokens=both.tokens
        )
    return result


def read_edits(run: Run) -> None:
    """Read prd.json if it changed, and what others wrote into the log. A task whose
    `blocked` was removed starts over; one that has passed and is not marked any more is
    marked again."""
    run.read_plan()
    for record in run.journal.news(run.plan, run.run_id):
        run.history.apply(record)
        if isinstance(record, Retried):
            run.results.forget(record.key)
    if run.settings.trouble:
        return
    restore_marks(run)
    for opened in run.history.opened(run.plan):
        run.write(opened, f"{opened.task} {opened.title} | unblocked in prd.json")
        run.results.forget(opened.key)


def next_task(run: Run) -> Task | None:
    """The next task for a free worker: the first that is ready and whose agent is
    available. None if no worker is free, if the run is to stop, or if the others may
    need the money that is left. A task under way has not passed, whatever the plan
    says, and is the same under another title. Conflicts are resolved one after another:
    side by side each would conflict with the others again."""
    under_way = {attempt.task.id for attempt in run.pool.attempts}
    if (
        len(under_way) >= run.settings.jobs
        or run.settings.trouble
        or asked_to_stop(run)
        or limit_reached(run)
    ):
        return None
    resolving = any(
        run.history.of(attempt.task).conflicted for attempt in run.pool.attempts
    )
    free = (
        task
        for task in ready(run)
        if under_way.isdisjoint((task.id, *task.depends_on))
        and not (resolving and run.history.of(task).conflicted)
    )
    task = next((task for task in free if not _back_at(run, task)), None)
    return task if task and run.share else None


def ready(run: Run) -> list[Task]:
    """The tasks that can be worked, in order; with --task, only that one."""
    only = run.options.task
    if only is None:
        return prd.ready_tasks(run.plan)
    run.plan.task(only)
    others = [task for task in run.plan.tasks if task.id == only or task.passed]
    return prd.ready_tasks(replace(run.plan, tasks=tuple(others)))


def _back_at(run: Run, task: Task) -> float:
    """When (unix time) a task's agent and judge are available; 0 is now."""
    return max(
        run.agents.back_at(agent)
        for agent in (run.agents.agent(task), run.agents.judge)
        if agent
    )


def open_run_record(run: Run) -> None:
    """Write the `run` record, once, before the first attempt, with the plan's checks
    that are red now. BadInput if the commit hooks refuse the message of that
    attempt."""
    if run.recorded:
        return
    run.recorded = True
    tip = tip_of(run)
    require_other_side(run, tip, agents_of(run))
    try:
        lines = _said_before(run, tip)
        if task := next_task(run):
            require_message(run, task, tip)
    except SetupFailed as error:
        raise BadInput(str(error)) from None
    continues = run.history.run is not None
    given = {
        name: value for name, value in run.options.limits.items() if value is not None
    }
    if run.options.until:
        given["until"] = run.limits.until
    run.write(
        RunBegan(continues=continues, branch=run.branch.name, base=tip, limits=given),
        f"iteration {run.history.iteration} | {'the run goes on' if continues else 'a run begins'}",
        [f"- {line}" for line in lines],
    )


def _said_before(run: Run, tip: str) -> list[str]:
    """What the plan's checks say before the work: which are red, and what they change.
    `setup` runs, if there is one: BadInput where it installs into a Python that all
    places share."""
    checks = run.plan.checks
    if not checks and not run.plan.setup:
        return []
    checked = run.wait(baseline(run, tip, checks, "baseline", {}))
    if run.plan.setup and (led := shared_python(run, run.paths.room)):
        raise BadInput(led)
    return [*map(_red_before, checked.red), *checked.notices]


def _red_before(result: CheckResult) -> str:
    if not (result.is_sound and result.tests):
        return f"red before the work: {result.name}"
    return f"{result.name} before the work: {result.said}: {text.few([*result.tests.failed])}"


def await_attempt(run: Run) -> Stop | None:
    """Wait for an attempt to end; the stop that it means, if any. Returns now and then
    without one, as a free worker may have a task now."""
    ended = run.pool.next(
        run.control, _LOOK if len(run.pool.lanes) < run.settings.jobs else 60.0
    )
    return after_attempt(run, ended) if ended else None


def after_attempt(run: Run, attempt: Attempt) -> Stop | None:
    """The stop that an attempt means for the run, if any."""
    if stop := asked_to_stop(run):
        return stop
    if attempt.result.no_price:
        return Stop("no-price", attempt.result.no_price)
    if attempt.verdict in (Verdict.LIMITED, Verdict.UNAVAILABLE):
        return after_unavailable(run, attempt)
    if len(run.history.this_run.denied) >= DENIED:
        reason = (
            f"{DENIED} tasks in a row were denied what they needed: {attempt.reason}"
        )
        return Stop("unavailable", f"{reason}; see --full-permissions")
    if run.options.once and (attempt.verdict is Verdict.PASSED or not attempt.leftover):
        passed = Exit.COMPLETE if attempt.verdict is Verdict.PASSED else None
        return Stop("once", f"one attempt, as asked: {attempt.verdict}", passed)
    return None


def stop_after_others(run: Run, error: RalphError) -> Stop:
    """The stop for an error; the attempts under way finish first. Raises it if there
    are none, or if the log cannot be written: then nothing more may be recorded."""
    if run.journal.failed or not run.pool.lanes:
        raise error
    if isinstance(error, StopNow) and (asked := asked_to_stop(run)):
        return asked
    run.view.line(f"! {error}; stopping after the attempts under way", color="yellow")
    return Stop("error", str(error), error.exit)


def after_unavailable(run: Run, attempt: Attempt) -> Stop | None:
    """Say which agent takes over from the one that this attempt could not get, if any;
    with --once, the stop."""
    if run.options.once:
        missing = (
            run.agents.judge if attempt.unjudged and run.agents.judge else attempt.agent
        )
        return not_now(run, run.agents.away(missing))
    other = run.agents.agent(attempt.task)
    if (
        not attempt.unjudged
        and other.command != attempt.command
        and not run.agents.back_at(other)
    ):
        run.view.line(
            f"{other.command} takes over from {attempt.command}", "  ", "yellow"
        )
    return None


def wait_or_finish(run: Run) -> Stop | None:
    """Nothing is under way and nothing can start: wait for an agent (None), or the
    stop."""
    if stop := asked_to_stop(run):
        return stop
    if run.settings.trouble:
        if not (stop := limit_reached(run)):
            wait(run, run.ends)
        return stop
    waiting = ready(run)
    if not waiting:
        return finish(run)
    if stop := limit_reached(run):
        return stop
    task = min(waiting, key=lambda task: _back_at(run, task))
    needed = [agent for agent in (run.agents.agent(task), run.agents.judge) if agent]
    agent = max(needed, key=run.agents.back_at)
    if not run.agents.back_at(agent):  # it is back by now
        return None
    return not_now(run, run.agents.away(agent)) or wait_for_agent(run, agent)


def not_now(run: Run, away: Away) -> Stop | None:
    """The stop for an agent that cannot be used now, if it is not to be waited for."""
    if away.reset == NEVER:
        return Stop("unavailable", f"the agent cannot run: {away.reason}")
    if run.options.no_wait or run.options.once:
        return Stop("limited", f"no attempt can be made now: {away.reason}")
    return None


def wait_for_agent(run: Run, agent: Agent) -> Stop | None:
    """Wait until an agent can be used again, and note that, once; the stop that ends
    the run instead, if any."""
    now, waited, away = time.time(), run.history.this_run.waited, run.agents.away(agent)
    if waited.command != agent.command or waited.until < min(
        run.agents.back_at(agent), run.ends
    ):
        until = limits.wait_for(run.limits, away, run.history.this_run.vain, now)
        if isinstance(until, Stop):
            return until
        until = math.ceil(min(until, run.ends))
        when = f"until {clock(until, now, seconds=True)}"
        waited = Waited(until=until, backoff=not away.reset, command=agent.command)
        run.write(waited, f"waiting {when} for the provider")
        said = f"waiting for the provider {when}: {away.reason}"
        run.view.line(said)
        notify(run, "waiting", said)
    wait(run, waited.until)
    return None


def wait(run: Run, until: float) -> None:
    """Wait until `until` (unix time), the end of the run's time, or a change of
    prd.json."""
    end = min(until, run.ends)
    seen = files.signature(run.paths.prd)
    run.view.doing(f"waiting until {clock(end, time.time(), seconds=True)}")
    run.control.sleep(
        end,
        lambda: (
            asked_to_stop(run) is not None or files.signature(run.paths.prd) != seen
        ),
    )
    run.view.doing("")


def finish(run: Run) -> Stop | None:
    """The stop where no task is left to try; None if the re-check or a person reopened
    one."""
    plan = run.plan.text
    if not recheck(run):
        return None
    run.read_plan()
    if run.plan.text != plan:  # a person added something while the last checks ran
        return None
    only = run.options.task
    left = [
        task for task in run.plan.tasks if not task.passed and only in (None, task.id)
    ]
    if left:
        blocked = [task for task in left if task.blocked]
        reasons = "; ".join(f"{task.id}: {task.blocked}" for task in blocked[:5])
        reasons = reasons or f"{left[0].id} waits for {', '.join(left[0].depends_on)}"
        if run.red:
            reasons = f"in a fresh checkout {', '.join(run.red)}; {reasons}"
        return Stop("blocked", f"{len(left)} left, and a person is needed: {reasons}")
    done = f"{only or 'every task'} passes"
    if run.red:
        return Stop(
            "red-checks", f"{done}, but not all checks are green: {', '.join(run.red)}"
        )
    green = (
        ", and all checks are green"
        if run.plan.every_check
        else "; the plan has no checks to run"
    )
    green += f", old failures apart ({'; '.join(run.old)})" if run.old else ""
    return Stop("complete", f"{done}{green}")


def limit_reached(run: Run) -> Stop | None:
    """The limit that forbids another attempt, if any."""
    return limits.spent(run.limits, run.history, run.seconds, time.time())


def recheck(run: Run) -> bool:
    """Check the branch again if it changed since the last time: new checkout, setup,
    all checks of the plan and of every passed task. False if a pass was set back."""
    passed = tuple(task for task in run.plan.tasks if task.passed)
    checks, names = _checks_of(run, passed)
    tip = run.branch.tip()
    if not checks or run.history.rechecked == (tip, names):
        run.red = []
    if (
        not checks
        or not tip
        or not passed
        or (tip, names) in (run.history.rechecked, run.rechecked)
    ):
        return True
    open_run_record(run)
    run.view.line("all checks once more, in a fresh checkout")
    try:
        results, flaky = check_twice(
            run, CheckJob(commit=tip, checks=checks, name="recheck", anew=True)
        )
    except SetupFailed as error:  # the prefix does not answer
        raise TryLater(str(error)) from None
    run.results.built.pop(1, None)  # that was another room
    red = {result.command: result for result in results if not result.ok}
    newest = [run.results.newest(tip, check.command) for check in run.plan.checks]
    green = {result.command for result in newest if result and result.is_sound}
    unlike = (green | {run.plan.setup.run if run.plan.setup else ""}) & red.keys()
    why = _why_unlike(run.plan)
    run.old = [
        f"{check.name}: {check.said}" for check in results if check.ok and check.exit
    ]
    run.red = [
        f"{check.name} {check.outcome}" + why * (check.command in unlike)
        for check in red.values()
    ]
    own = {
        task.key: [red[check.command] for check in task.checks if check.command in red]
        for task in passed
    }
    broken = [] if unlike else [task for task in passed if own[task.key]]
    record = Rechecked(
        ok=not red,
        commit=tip,
        checks_digest=names,
        broken=[task.key for task in broken],
        since={
            task.key: run.branch.recent(tip, run.history.of(task).commit)
            for task in broken
        },
        failures={task.key: failure_of(own[task.key]) for task in broken},
        flaky=flaky,
    )
    lines = [f"- flaky, red and green on the same files: {name}" for name in flaky]
    run.view.lines([line.removeprefix("- ") for line in lines])
    lines += [f"- {said}" for said in run.old]
    for task in broken:
        lines.append(f"- {task.id} {run.history.of(task).passed_words}, broken since")
        lines += quote("\n".join(record.since[task.key]))
    run.write(
        record, f"all checks once more | {', '.join(run.red) or 'all green'}", lines
    )
    set_back(run, record)
    run.rechecked = (
        tip,
        _checks_of(run, [task for task in passed if task not in broken])[1],
    )
    return not broken


def _why_unlike(plan: Plan) -> str:
    """Why a check can be red in a place made anew that is green in the room."""
    causes = ["something outside the checkout"]
    causes += ["what `keep` carried over"] if plan.settings.get("keep") else []
    if plan.setup and plan.setup.when:
        patterns = ", ".join(plan.setup.when)
        little = f"a `when` of setup that says too little ({patterns})"
        causes.append(f"{little}: name what else setup reads, or leave it out")
    return f": it passed in the clean room, and fails in a new checkout: {', or '.join(causes)}"


def _checks_of(run: Run, passed: Sequence[Task]) -> tuple[list[Check], str]:
    """The checks that must be green if these tasks have passed, and a digest of them
    and of `setup`."""
    checks = replace(run.plan, tasks=tuple(passed)).every_check
    setup = run.plan.setup.run if run.plan.setup else ""
    commands = "\0".join([setup, *(check.command for check in checks)])
    return checks, digest(commands.encode("utf-8", "surrogatepass"))


def _is_red_checks(run: Run, stop: Stop) -> bool:
    """Whether a run that would stop so ends for a red suite instead: another one would
    not mend it."""
    done = all(task.passed for task in run.plan.tasks)
    return done if stop.word == "once" else stop.exit == Exit.LEFT


def close_run(run: Run, stop: Stop) -> Stop:
    """The last re-check, the `stop` record, --notify; the stop, which the re-check may
    change."""
    if (
        stop.word not in ("error", "complete", "terminated", "hung-up", "interrupted")
        and run.recorded
    ):
        run.read_plan()
        holds = time.time() >= run.ends or recheck(run)
        if not holds and stop.word == "once":
            stop = Stop(
                "once",
                "one attempt, as asked, and a task that had passed no longer holds",
            )
        elif holds and run.red and _is_red_checks(run, stop):
            reason = (
                f"{stop.reason}, and not all checks are green: {', '.join(run.red)}"
            )
            stop = Stop("red-checks", reason)
    if run.recorded or run.history.run:
        run.write(
            Stopped(
                stop=stop.word,
                exit=int(stop.exit),
                reason=stop.reason,
                unmarked=run.settings.unmarked,
            ),
            f"iteration {run.history.iteration} | stopped: {stop.reason}",
        )
    if run.settings.unmade:
        run.view.line(
            f"! {run.settings.trouble}; the next run marks what passed", color="yellow"
        )
    run.control.stop_signal = None  # only another signal cuts --notify short
    notify(run, "stopped", stop.reason, stop=stop)
    return stop
