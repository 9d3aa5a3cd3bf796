"""One attempt: a function from a commit to a commit. The agent works in a workspace, in a worker."""

from __future__ import annotations

import contextlib
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from _ralph import files, text
from _ralph.agents.prompt import compile_prompt, prompt_values, render_prompt
from _ralph.errors import NeedsPerson, StopNow
from _ralph.git import patterns
from _ralph.git.git import attempted
from _ralph.git.workspace import Place, changes, restore
from _ralph.loop.candidate import check_candidate, green_on, make_candidate, setup_failed, tip_of
from _ralph.loop.checks import checks_for
from _ralph.loop.launch import work_elsewhere
from _ralph.loop.preflight import require_agent
from _ralph.loop.roles import ask_judge, cut_off, run_role
from _ralph.loop.room import merged
from _ralph.loop.run import Run, trim_scratch
from _ralph.loop.verdict import weigh
from _ralph.loop.worker import WorkerDied
from _ralph.model import AgentResult, Attempt, Check, Outcome, Task, Verdict
from _ralph.state import prd
from _ralph.state.history import parse_handoff
from _ralph.state.records import AttemptBegan


def begin(run: Run, task: Task) -> Attempt:
    """The `start` record, and all that must be known before it: where the work begins, by whom, and with
    what."""
    known = run.history.of(task)
    agent = run.agent(task)
    require_agent(run, agent, here=not run.launch_of(task))  # the plan may have changed since the run began
    number, iteration = known.attempts + 1, run.history.iteration + 1
    attempt = Attempt(task, number, iteration, command=agent.command)
    attempt.worker = run.pool.free_worker(task.key, run.jobs)
    attempt.share = run.share_of(task) or attempt.share
    tip = tip_of(run)
    attempt.base, attempt.left = tip, ""
    if known.left and attempted(run.git, "cat-file", "-e", f"{known.left}^{{tree}}")[0] == 0:
        go_on(run, attempt, tip)
    trim_scratch(run.paths, [other.iteration for other in run.pool.attempts])
    for old in run.paths.scratch.glob(f"{attempt.name}[.-]*"):  # of another night: they tell what is spent
        files.clear(old)
    compile_prompt(run.template())
    run.write(
        AttemptBegan(
            iteration=attempt.iteration,
            attempt=attempt.number,
            task=task.id,
            title=task.title,
            command=attempt.command,
            worker=attempt.worker if attempt.worker > 1 else 0,
            launch="" if attempt.leftover else run.launch_of(task),
            base=attempt.base,
            leftover=attempt.leftover,
        ),
        f"iteration {attempt.iteration} | {task.id} {task.title} | attempt {attempt.number} begins",
    )
    return attempt


def go_on(run: Run, attempt: Attempt, tip: str) -> None:
    """Go on with what earlier attempts at this task left, on the tip if it merges; else begin clean."""
    known = run.history.of(attempt.task)
    before = run.branch.commit(known.left, known.base, "ralph: unfinished work\n")
    if known.lacks == "judge" or (known.lacks and before != known.base):
        attempt.leftover, attempt.base, attempt.left = known.lacks, known.base, known.left
        attempt.command = known.command or attempt.command
        ended = Outcome.DONE if known.lacks == "judge" else Outcome.INTERRUPTED
        attempt.result = AgentResult(ended, "an attempt was cut off, and what it left was checked")
        return
    tree, _ = (known.left, []) if known.base == tip else merged(run.git, tip, before)
    if is_last(run, attempt) or not tree:
        attempt.clean = True
        if before != known.base:
            attempt.earlier = run.branch.keep(before, f"{attempt.name}-before")
            attempt.notices.append(f"it started clean; earlier work is kept at {attempt.earlier}")
        return
    attempt.left = tree


def is_last(run: Run, attempt: Attempt) -> bool:
    """Whether it is the task's last attempt for now, which starts clean."""
    return attempt.number > 1 and attempt.number >= run.limits.attempts


async def work(run: Run, attempt: Attempt) -> None:
    """Let the agent work, in a worker; a worker that is killed costs this attempt and not the night."""
    unknown = unknown_checks(run, attempt)
    async with run.turn(attempt) if unknown else contextlib.nullcontext() as turn:

        def hear(event: dict[str, Any]) -> None:
            attempt.baseline = event["baseline"]
            if turn:
                turn.leave()  # the agent needs no clean room

        try:
            told = await run.in_worker(lambda inside: _work(inside, attempt, unknown), hear, attempt.worker)
        except WorkerDied as error:
            agent, place = run.named(attempt.command), run.paths.workspace(attempt.worker)
            attempt.result = cut_off(run, agent, attempt.name, place, str(error))
            with contextlib.suppress(WorkerDied):
                salvage(run, attempt)
            return
    attempt.result = AgentResult.from_dict(told.pop("result"))
    attempt.take(told)


def _work(run: Run, attempt: Attempt, unknown: list[Check]) -> dict[str, Any]:
    """What the worker does: the checks before the work, which a leftover needs, too, to pass by one that was
    red; then the work, here or elsewhere."""
    files.clear(ready_mark(run, attempt))
    attempt.baseline = baseline_of(run, attempt, unknown)
    elsewhere = run.launch_of(attempt.task) and not attempt.leftover
    told = work_elsewhere(run, attempt) if elsewhere else work_here(run, attempt)
    return {**told, "baseline": attempt.baseline}


def work_here(run: Run, attempt: Attempt) -> dict[str, Any]:
    """Let the agent work in the workspace, which nobody moves meanwhile; what it left."""
    place = run.workspace(attempt)
    with place.held():
        return _agent_at_work(run, attempt, place)


def _agent_at_work(run: Run, attempt: Attempt, place: Place) -> dict[str, Any]:
    """Make the workspace that of the attempt, let the agent work, and look at what stands there then."""
    run.view.doing("preparing the workspace")
    new = place.reset(attempt.left or attempt.base)
    if attempt.left and not attempt.leftover:
        put_back_protected(run, attempt, place)
    run.site.furnish(place, attempt.base)
    copies = place.copy_state()
    if attempt.leftover:
        found = _left_behind(run, attempt, place, {})
        return {**found, "result": attempt.result.as_dict()}
    set_up_workspace(run, attempt, place, new)
    scratch = files.clear(place.root / ".ralph")
    scratch.mkdir()
    prompt = prompt_for(run, attempt, attempt.baseline)
    files.atomic_write(ready_mark(run, attempt), str(attempt.iteration).encode())
    began = time.time()
    run.view.doing(f"attempt {attempt.number} of {run.limits.attempts}")
    agent = run.named(attempt.command)
    result = run_role(run, agent, prompt, attempt.name, run.env(attempt), attempt.share, place.root)
    if run.control.orphaned:
        raise StopNow
    found = _left_behind(run, attempt, place, copies)
    return {**found, "began": began, "result": result.as_dict()}


def ready_mark(run: Run, attempt: Attempt) -> Path:
    """The file that names the attempt whose agent has begun in the workspace of this worker."""
    return run.paths.private / f"work-{attempt.worker}.ready"


def put_back_protected(run: Run, attempt: Attempt, place: Place) -> None:
    """What an earlier attempt did to protected files is gone for the next one, as its prompt says."""
    tree, put_back, _ = restore(
        place.git, attempt.base, attempt.left, *run.protection(attempt.task), place.state
    )
    if put_back:
        place.reset(tree)


def _left_behind(run: Run, attempt: Attempt, place: Place, copies: dict[str, bytes]) -> dict[str, Any]:
    """The tree of what stands in the workspace, with everything protected as it was before."""
    if not place.exists:
        place.open()
        gone = "the workspace was removed or replaced, and all that stood in it is gone"
        return {"left": "", "tree": "", "notices": [*attempt.notices, gone]}
    said = files.read_regular(run.paths.handoff(attempt.worker), 65536) or b""
    changed = [name for name, data in copies.items() if not _is_same(place.root / name, data)]
    plan = run.git.name_of(run.paths.prd)
    how = {plan: prd.differences(run.plan, place.root / plan)} if plan in changed else {}
    left, notices = place.snapshot(attempt.base)
    tree, put_back, new = restore(place.git, attempt.base, left, *run.protection(attempt.task), place.state)
    put_back = [name for name in put_back if name not in place.state]
    put_back += [
        f"{text.one_line(name)} ({how.get(name) or 'a copy'}; what is changed in it does not count)"
        for name in changed
    ]
    notices += [f"{name} is new under a protected pattern" for name in new]
    return {
        "left": left,
        "tree": tree,
        "restored": put_back,
        "notices": [*attempt.notices, *notices],
        "said": text.redact(said.decode("utf-8", "replace")),
    }


def _is_same(path: Path, data: bytes) -> bool:
    return files.read_regular(path, len(data) + 1) == data


def salvage(run: Run, attempt: Attempt) -> None:
    """What stands in the workspace after an attempt that was cut off, if its agent had begun."""
    if files.read_regular(ready_mark(run, attempt)) != str(attempt.iteration).encode():
        return

    def look(inside: Run) -> dict[str, Any]:
        place = inside.workspace(attempt)
        with place.held():
            place.bring_back()  # the kill may have come while checks ran
            if not place.exists:
                return {}
            place.unlock()
            found = _left_behind(inside, attempt, place, {})
        baseline = baseline_of(inside, attempt, unknown_checks(run, attempt))
        return {**found, "baseline": {**attempt.baseline, **baseline}}

    attempt.take(run.wait(run.in_worker(look)))


def set_up_workspace(run: Run, attempt: Attempt, place: Place, new: bool) -> None:
    """Run the plan's `setup` in the workspace if it is new or a manifest changed. NeedsPerson if it fails
    on the branch's own files; on an agent's unfinished work, the agent will see."""
    inputs, known = run.site.inputs_of(place), place.noted_setup()
    if inputs == known.get("inputs", "") and not new:
        return
    result = run.site.set_up(place, attempt.name)
    if result and not result.ok and not attempt.left:
        raise NeedsPerson(setup_failed(run, result))
    if result and not result.ok:
        attempt.notices.append(f"setup {result.outcome} in the workspace")
    elif result:
        place.note_setup(inputs, place.note_made())


def unknown_checks(run: Run, attempt: Attempt) -> list[Check]:
    """The task's own checks of which nobody knows whether they were red before its first attempt."""
    known = {**run.history.of(attempt.task).baseline, **attempt.baseline}
    return [check for check in attempt.task.checks if check.command not in known]


def baseline_of(run: Run, attempt: Attempt, checks: list[Check]) -> dict[str, bool]:
    """Which of `checks` are green at the attempt's base, in the clean room; told at once, for the agent
    may kill this worker."""
    found = green_on(run, attempt.base, checks, f"{attempt.name}-before", attempt) if checks else {}
    if found and run.report:
        run.report({"event": "baseline", "baseline": found})
    return found


def prompt_for(run: Run, attempt: Attempt, baseline: dict[str, bool]) -> str:
    """Exactly what the agent is sent for this attempt now."""
    task, known = attempt.task, run.history.of(attempt.task)
    own = {**baseline, **known.baseline}
    checks = checks_for(run.plan, task)
    red = [c.command for c in checks if own.get(c.command) is False]
    red += [c.command for c in run.plan.checks if c.command in run.history.red]
    values = prompt_values(
        run.plan, task, run.history, run.paths, checks,
        handoff=run.paths.handoff(attempt.worker),
        attempts=run.limits.attempts,
        reads_rulebook="AGENTS.md" in run.named(attempt.command).row.get("reads", []),
        recent=run.branch.recent(attempt.base),
        beside=[f"{one.task.id}: {one.task.title}" for one in run.pool.attempts if one.task is not task],
        clean_start=attempt.clean or not attempt.left,
        red_before=red,
        parked=run.branch.commit_at(attempt.earlier or (known.last.parked if known.last else "")),
    )  # fmt: skip
    return render_prompt(run.template(), values)


def preview(run: Run, task: Task) -> str:
    """What the agent would be sent now, with nothing run."""
    attempt = Attempt(task, run.history.of(task).attempts + 1, run.history.iteration + 1)
    attempt.command = run.agent(task).command
    attempt.base, attempt.left = run.branch.tip() or "HEAD", run.history.of(task).left
    attempt.clean = is_last(run, attempt)
    return prompt_for(run, attempt, {})


async def examine(run: Run, attempt: Attempt) -> None:
    """Say what the attempt is worth: its work on the tip of the branch, in the clean room."""
    attempt.handoff = parse_handoff(handoff_text(attempt))
    if not make_candidate(run, attempt):
        return
    attempt.changed, attempt.changes = changes(run.git, attempt.tip, attempt.commit)
    attempt.tests = changed_tests(run, attempt)
    done = attempt.commit != attempt.tip
    away = attempt.result.outcome in (Outcome.LIMITED, Outcome.UNAVAILABLE) and not done
    if run.control.stop_now:
        attempt.result = replace(attempt.result, outcome=Outcome.INTERRUPTED, reason="ralph was stopped")
    elif not away and (done or attempt.result.outcome is not Outcome.INTERRUPTED or attempt.leftover):
        await check_candidate(run, attempt)
    if not attempt.handoff:
        attempt.handoff = parse_handoff(next_step(attempt))
    weigh(run, attempt)
    judge, attempt.unjudged = run.judge, False
    if attempt.verdict is Verdict.PASSED and judge:
        await ask_judge(run, attempt, judge)


def changed_tests(run: Run, attempt: Attempt) -> list[str]:
    """The tests that were there before the attempt, and that it changed or removed."""
    tests = patterns.uncovered_tests([], attempt.changed)
    return run.git.names("ls-tree", "-r", "-z", "--name-only", attempt.tip, "--", *tests) if tests else []


def handoff_text(attempt: Attempt) -> str:
    """The handoff file, else a <handoff> block in the last message."""
    if attempt.said.strip():
        return attempt.said
    _, begun, block = attempt.result.text[-65536:].rpartition("<handoff>")
    return block.partition("</handoff>")[0] if begun and "</handoff>" in block else ""


def next_step(attempt: Attempt) -> str:
    """What is known without a handoff."""
    red = [check.name for check in attempt.checks if not check.ok]
    left = f"files: {', '.join(attempt.changed[:20])}\n" if attempt.changed else ""
    return left + (f"next step: make this check green: {red[0]}" if red else "")
