"""What runs beside the agent: setup, checks and commit hooks, with the state files held meanwhile."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from pathlib import Path

from _ralph import text
from _ralph.checks import checks_for, run_checks
from _ralph.ends import NeedsPerson, StopNow
from _ralph.model import Attempt, Check, CheckResult
from _ralph.prompt import render_line
from _ralph.refusals import commit_values
from _ralph.run import Run


def run_setup(run: Run) -> None:
    """The plan's `setup` command; NeedsPerson if it fails. What it writes is not work."""
    command = run.plan.settings.get("setup")
    if not command:
        return
    results, said = run_outside(run, [Check("setup", command, timeout=1800)], "setup", installs=True)
    run.view.lines(said)
    if not results[0].ok:
        raise NeedsPerson(f"setup {results[0].outcome}: {command}; its output is in {results[0].log}")


def run_outside(
    run: Run,
    checks: list[Check],
    name: str,
    label: str = "",
    tree: str | None = None,
    installs: bool = False,
) -> tuple[list[CheckResult], list[str]]:
    """Run checks outside of an attempt: the state files, HEAD, all refs and the tree, else as it is now,
    are put back, for what checks run can be an agent's code; git's hooks and config too, but for what
    `installs` them. The results, and what had to be put back.

    StopNow if ralph was told to stop.
    """
    if not checks:
        return [], []
    tree = run.tree.snapshot() if tree is None else tree
    head = run.tree.remember()
    with held(run, [] if installs else run.tree.vital()):
        results = run_all(run, checks, name, label)
    if run.control.orphaned:
        raise StopNow
    said = run.tree.settle(run.branch, head, name, tree) + run.tree.tidy(tree)
    if run.control.stop_now:
        run.view.lines(said)
        raise StopNow
    return results, said


@contextlib.contextmanager
def held(run: Run, more: Sequence[Path] = ()) -> Iterator[None]:
    """Let a stranger's program run outside of an attempt: what it does to the state files, and to
    `more`, is undone."""
    already = run.guard.holds
    hold(run, more)
    notes = run.journal.signature()
    try:
        yield
    finally:
        if not run.control.check_supervisor():  # else another run may be at work: it puts them back
            for path, kept in run.guard.restore().items():
                run.view.line(f"! {path.name} had been changed, and was put back; kept at {kept}")
            if run.journal.signature() != notes:
                run.view.lines([line.split("\n")[0] for line in run.journal.guard()])
            if not already:
                run.guard.release()


def hold(run: Run, more: Sequence[Path] = ()) -> None:
    """Safety copies of what no agent and no check may change; `more` is what no agent may."""
    if not run.paths.prd.is_file():
        run.read_plan()  # ends the run: that the plan is gone is never the good state
    run.guard.take([*run.guarded(), *more])


def run_all(
    run: Run, checks: list[Check], name: str, label: str = "", attempt: Attempt | None = None
) -> list[CheckResult]:
    """Run checks with their logs in the scratch folder; fewer come back if ralph was stopped."""
    run.view.doing("running checks" if checks else "")
    return run_checks(
        checks,
        cwd=run.paths.root,
        env=run.env(attempt),
        control=run.control,
        log=lambda i: run.log(f"{name}-check{i + 1}.log"),
        told=lambda result: run.view.check(result, label),
        wrap=run.wrap,
    )


def run_hooks(run: Run, attempt: Attempt) -> None:
    """The repository's commit hooks as the last check; if they rewrote files, the checks again."""
    if not run.tree.with_git or run.control.stop_now or not all(check.ok for check in attempt.checks):
        return
    names = run.git_tree.hooks()
    if not names:
        return
    for name in run.tree.changes(attempt.tree_before, attempt.tree_after)[0]:
        if Path(name).name in ("pre-commit", "commit-msg", ".pre-commit-config.yaml"):
            attempt.notices.append(f"{name} decides what the commit hooks do, and the attempt changed it")
    message = run.paths.private / "COMMIT_EDITMSG"
    message.write_text(commit_message(run, attempt), encoding="utf-8")
    hooks: list[CheckResult] = []
    for _ in range(2):  # a hook that rewrites files often fails as well: it has a second chance
        hooks = []
        for hook in names:
            words = ("git", "hook", "run", hook, *(("--", str(message)) if hook == "commit-msg" else ()))
            hooks += run_hook(run, attempt, Check(hook, words))
        rewritten = run.tree.snapshot()
        if rewritten == attempt.tree_after:
            break
        attempt.tree_after = rewritten
        run.git_tree.hold(attempt.tree_before, rewritten)
        again = f"{attempt.iteration:04}-again"
        attempt.checks = run_all(run, checks_for(run.plan, attempt.task), again, attempt=attempt)
        attempt.notices += run.tree.tidy(rewritten)
        if all(hook.ok for hook in hooks):
            break
    attempt.checks += hooks
    attempt.message = message.read_text("utf-8", "replace")


def run_hook(run: Run, attempt: Attempt, hook: Check) -> list[CheckResult]:
    return run_checks(
        [hook], cwd=run.paths.root, env=run.env(attempt, **run.git_tree.hook_env()), control=run.control,
        log=lambda _: run.log(f"{attempt.iteration:04}-{hook.name}.log"), told=run.view.check,
        wrap=lambda argv: run.wrap(argv, run.git_tree.hook_folders()),
    )  # fmt: skip


def commit_message(run: Run, attempt: Attempt) -> str:
    """The message of a passed task's commit: the plan's template, and two trailers."""
    subject = render_line(run.commit_template(), commit_values(attempt), f"{run.paths.prd.name}: commit")
    agent = text.one_line(run.agent(attempt.task).command, 100)
    return f"{subject}\n\nRalph-Iteration: {attempt.iteration}\nRalph-Agent: {agent}\n"
