"""The candidate: the work as a commit on the tip of the branch, and what the clean room says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from _ralph import files, text
from _ralph.agents.prompt import render_line
from _ralph.errors import NeedsPerson, StopNow
from _ralph.git.workspace import restore
from _ralph.loop.checks import checks_for
from _ralph.loop.launch import checks_elsewhere, verify_elsewhere
from _ralph.loop.preflight import commit_values
from _ralph.loop.room import Room, merged, run_hook
from _ralph.loop.run import Run
from _ralph.loop.verdict import binding_of
from _ralph.loop.worker import WorkerDied
from _ralph.model import Attempt, Check, CheckResult, Outcome, Verdict

_MESSAGE = 1 << 16


def make_candidate(run: Run, attempt: Attempt) -> bool:
    """Put the work on the tip of the branch; False where they conflict, which is the verdict."""
    attempt.tip = tip_of(run)
    if not attempt.tree:
        attempt.commit = attempt.tip
        return True
    message = attempt.message = commit_message(run, attempt)
    made = attempt.apart = run.branch.commit(attempt.tree, attempt.base, message)
    run.branch.pin_candidate(made)
    if made == attempt.base:
        attempt.commit = attempt.tip
    elif attempt.tip == attempt.base:
        attempt.commit = made
    else:
        tree, conflicts = merged(run.git, attempt.tip, made)
        if not tree:
            attempt.verdict = Verdict.CONFLICT
            attempt.reason = f"it does not merge with what was committed meanwhile: {text.few(conflicts)}"
            attempt.parked = run.branch.park(made, attempt.name)
            return False
        attempt.tree = tree
        attempt.commit = run.branch.commit(tree, attempt.tip, message)
    return True


def tip_of(run: Run) -> str:
    """The commit that the branch is at. NeedsPerson where a person deleted or rewrote it during the run."""
    tip = run.branch.tip()
    if tip == run.tip or (tip and not run.tip) or (tip and run.branch.contains(run.tip, tip)):
        run.tip = tip
        return tip
    kept = run.branch.park(run.tip, "verified")
    what = "rewritten" if tip else "deleted"
    raise NeedsPerson(
        f"the branch {run.branch.name} was {what} while ralph worked; its verified work is kept at {kept}; "
        f"put the branch where it should go on, then run it again"
    )


async def check_candidate(run: Run, attempt: Attempt) -> None:
    """Checks and commit hooks in the clean room, in a worker."""
    try:
        check = verify_elsewhere if run.options.launch_checks else verify
        told = await run.in_worker(lambda inside: check(inside, attempt), number=attempt.worker)
    except WorkerDied as error:
        attempt.result = replace(attempt.result, outcome=Outcome.INTERRUPTED, reason=str(error))
        return
    except StopNow:
        attempt.result = replace(attempt.result, outcome=Outcome.INTERRUPTED, reason="ralph was stopped")
        return
    attempt.checks = [CheckResult(**check) for check in told.pop("checks")]
    attempt.notices += told.pop("notices")
    attempt.take(told)


def verify(run: Run, attempt: Attempt) -> dict[str, Any]:
    """What the worker does: the candidate in the clean room, its checks first, then the commit hooks."""
    room, commit, tree, message = run.room(attempt=attempt), attempt.commit, attempt.tree, attempt.message
    results = run_candidate(run, attempt, room, commit, "")
    hooked: list[CheckResult] = []
    for turn in ("-again", "-last"):  # one that rewrites files and fails has a second chance
        if commit == attempt.tip or is_red(run, attempt, results):
            break
        hooked, new, message = run_hooks(run, attempt, room)
        if new in ("", tree):
            break
        tree, commit = new, run.branch.commit(new, attempt.tip, message)
        results = run_candidate(run, attempt, room, commit, turn)
        if all(result.ok for result in hooked):
            break
    fits = attempt.tip in (attempt.base, commit) or not is_red(run, attempt, results)
    results += hooked
    if message != attempt.message and commit != attempt.tip:
        commit = run.branch.commit(tree, attempt.tip, message)
    unseen = commit == attempt.tip or any(not result.ok for result in results)  # what git ignores may be why
    notices = room.notices + deciding_hooks(attempt)
    if not fits:
        notices += green_apart(run, attempt, room)
    return {
        "checks": [result.as_dict() for result in results],
        "notices": notices,
        "ignored": (ignored_by(run, attempt) or attempt.ignored) if unseen else [],
        "commit": commit,
        "tree": tree,
        "message": message,
    }


def green_apart(run: Run, attempt: Attempt, room: Room) -> list[str]:
    """A notice where work that is red on the branch's tip is green on its own base: what came between."""
    run.view.line("red on what was committed meanwhile; once more where it began", "  ")
    if is_red(run, attempt, run_candidate(run, attempt, room, attempt.apart, "-apart")):
        return []
    between = "; ".join(run.branch.log(f"{attempt.base}..{attempt.tip}"))
    return [f"green where it began, red on what was committed meanwhile: {between}"]


def run_candidate(run: Run, attempt: Attempt, room: Room, commit: str, turn: str) -> list[CheckResult]:
    """All checks of the attempt's task and of the plan on `commit`."""
    checks = checks_for(run.plan, attempt.task)
    return run_checks_on(run, room, commit, checks, attempt.name + turn)


def is_red(run: Run, attempt: Attempt, results: list[CheckResult]) -> bool:
    """Whether a check that binds is red."""
    return bool(binding_of(run, attempt.task, [result for result in results if not result.ok]))


def ignored_by(run: Run, attempt: Attempt) -> list[str]:
    """What the attempt made in the workspace and git ignores."""
    place = run.workspace(attempt)
    found = place.ignored_since(attempt.began) if attempt.began and place.exists else []
    return [text.one_line(name) for name in found[:20]]


def deciding_hooks(attempt: Attempt) -> list[str]:
    """A notice for each file that decides what the commit hooks do, and that the attempt changed."""
    names = ("pre-commit", "commit-msg", ".pre-commit-config.yaml")
    changed = [name for name in attempt.changed if Path(name).name in names]
    return [f"{name} decides what the commit hooks do, and the attempt changed it" for name in changed]


def run_checks_on(
    run: Run, room: Room, commit: str, checks: list[Check], name: str, label: str = ""
) -> list[CheckResult]:
    """All `checks` on `commit` in a room; a red `setup` stands for them. StopNow if ralph was stopped."""
    run.view.doing("running checks")
    if run.options.launch_checks:
        results, said = checks_elsewhere(run, commit, checks, name, room.path.name, label)
        room.notices += said
        return results
    with run.workspaces_away():
        failed = room.prepare(commit, name)
        results = [failed] if failed else room.run(checks, name, label)
    if run.control.stop_now:
        raise StopNow
    return results


def green_on(
    run: Run, commit: str, checks: list[Check], name: str, attempt: Attempt | None = None
) -> dict[str, bool]:
    """Which of `checks` are green on a commit of the branch, in the clean room, by their commands.
    NeedsPerson if `setup` fails on it."""
    label = "before the work: "
    results = run_checks_on(run, run.room(attempt=attempt), commit, checks, name, label)
    if results and results[0].name == "setup" and not results[0].ok:
        raise NeedsPerson(setup_failed(run, results[0]))
    return {result.command: result.ok for result in results}


def setup_failed(run: Run, result: CheckResult) -> str:
    """What a person is told where `setup` fails on the branch's own files."""
    command = run.plan.setup.run if run.plan.setup else ""
    return f"setup {result.outcome}: {command}; its output is in {result.log}"


def run_hooks(run: Run, attempt: Attempt, room: Room) -> tuple[list[CheckResult], str, str]:
    """Run the commit hooks in the room: their results, the tree as they left it (nothing, where there is no
    hook), and the message."""
    names, folder = room.site.hooks(room.path)
    if not names:
        return [], "", attempt.message
    results: list[CheckResult] = []
    with run.workspaces_away(), room.at(attempt.tip):
        path = room.path / ".git/COMMIT_EDITMSG"
        path.write_text(attempt.message, encoding="utf-8")
        for hook in names:
            results += run_hook(hook, folder, room, path, attempt.name)
        said = files.read_regular(path, _MESSAGE) if room.place.exists else None
        if said is None:  # the hook is the candidate's own, and removed the room or the message
            ended = "it removed what it was given"
            return [replace(result, ok=False, tail=ended) for result in results], "", attempt.message
        message, tree = said.decode("utf-8", "replace"), room.rewritten()
    tree, _, _ = restore(room.place.git, attempt.tip, tree, *run.protection(attempt.task), run.state)
    return results, tree, message


def commit_message(run: Run, attempt: Attempt) -> str:
    """The message of a passed task's commit: the plan's template, and two trailers."""
    subject = render_line(run.commit_template(), commit_values(attempt), f"{run.paths.prd.name}: commit")
    agent = text.one_line(attempt.command, 100)
    return f"{subject}\n\nRalph-Iteration: {attempt.iteration}\nRalph-Agent: {agent}\n"
