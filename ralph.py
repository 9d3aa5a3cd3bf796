# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "click>=8.1",
#   "filelock>=4",
#   "jinja2>=3.1",
#   "jsonschema>=4.18",
#   "psutil>=5.9",
#   "rich>=13",
#   "subprocess-tee>=0.4.2",
# ]
# ///
"""ralph: picks the next failing task from prd.json, hands it to an agent, checks the work itself.

Read this file from the top: `run_loop` is a night, `run_attempt` is one try at one task.
The parts stand in `_ralph/`, the command line at the end.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from _ralph import __version__
from _ralph.ends import BadInput, Exit, RalphError, Stop, TryLater

TYPE_CHECKING = False
if TYPE_CHECKING:  # everything but click is imported where it is used: `--help` stays quick
    from _ralph.live import View
    from _ralph.model import Attempt, Task
    from _ralph.process import Control
    from _ralph.session import Options, Run


# ---------------------------------------------------------------- the loop


def run_loop(run: Run) -> Stop:
    """Attempt after attempt until there is a reason to stop. All state is on disk between them."""
    from _ralph import inbox, limits, night
    from _ralph.attempt import record

    night.resume(run)
    while True:
        night.take_in_what_people_did(run)
        if stop := night.asked_to_stop(run):
            return stop
        task = night.choose(run)
        if task is None:
            if (stop := night.finish(run)) and not inbox.waiting(run.paths):
                return stop
            continue
        if stop := limits.spent(run.limits, run.history, run.seconds, time.time()):
            return stop
        night.open_run_record(run)
        attempt = run_attempt(run, task)
        record(run, attempt)
        if stop := night.after(run, attempt):
            return stop


def run_attempt(run: Run, task: Task) -> Attempt:
    """One try at one task: everything is judged on what is in the tree when the agent is gone."""
    from _ralph.attempt import begin, examine, prompt_for
    from _ralph.roles import environment, run_role

    attempt = begin(run, task)
    agent = run.agent(task)
    run.view.started(attempt, run.limits.attempts, agent.command, run.plan)
    if not attempt.unjudged:  # else the work is done already, and only the judge could not be asked
        prompt = prompt_for(run, task)
        attempt.result = run_role(run, agent, prompt, attempt.name, environment(run, attempt))
    examine(run, attempt)
    return attempt


# ---------------------------------------------------------------- the command line


class Commands(click.Group):
    """The one place where errors become messages and exit codes."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except (RalphError, OSError) as error:
            if isinstance(error, BrokenPipeError):
                raise
            failed = translate(error)
            complain(str(failed))
            ctx.exit(int(failed.exit))


def complain(words: str) -> None:
    """One message on stderr; what stands in it may come from a stranger's file."""
    from _ralph.live import send, unblocked
    from _ralph.text import clean

    with contextlib.suppress(OSError, ValueError):  # a full disk under the log changes nothing
        send(unblocked(sys.stderr), f"ralph: {clean(words)}\n".encode("utf-8", "replace"), 2.0)


def translate(error: Exception) -> RalphError:
    """An error of the system as one of ours: a full disk can be mended and tried again."""
    if isinstance(error, RalphError):
        return error
    if not isinstance(error, OSError):
        return RalphError(f"unexpected error: {type(error).__name__}: {error}; RALPH_DEBUG=1 shows where")
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        where = error.filename or "while writing"
        return TryLater(f"the disk is full ({where}); nothing was lost, run the same command again")
    from _ralph.process import SHORTAGES

    if error.errno in SHORTAGES:
        return TryLater(
            f"the system is short of something now ({error.strerror}); nothing was lost, try again"
        )
    if error.errno in (errno.EROFS, errno.EACCES, errno.EPERM):
        return BadInput(f"{error.strerror}: {error.filename or 'here'}; ralph must be able to write there")
    return RalphError(str(error))


def with_prd(command: Callable[..., Any]) -> Callable[..., Any]:
    """--prd and --no-git, which every command takes."""
    command = click.option(
        "--no-git", is_flag=True, help="Work in a plain folder: nothing is committed or put back."
    )(command)
    return click.option(
        "--prd", "prd_path",
        envvar="RALPH_PRD", type=click.Path(path_type=Path, dir_okay=False), default=Path("prd.json"),
        show_default=True, help="The plan; progress.txt lies beside it.",
    )(command)  # fmt: skip


class DurationType(click.ParamType[float]):
    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        from _ralph import text

        try:
            return text.seconds(value, "duration")
        except BadInput as error:
            self.fail(str(error), param, ctx)


def known_tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids that a shell may complete; none if there is no plan that can be read."""
    from _ralph import prd

    with contextlib.suppress(RalphError, OSError):
        plan = prd.load(ctx.params.get("prd_path") or Path("prd.json"))
        return [task.id for task in plan.tasks if task.id.startswith(incomplete)]
    return []


DURATION = DurationType()
POSITIVE = click.IntRange(min=1)
ABOVE_ZERO = click.FloatRange(min=0, min_open=True)
CHECK = click.option(
    "--check",
    "checks",
    metavar="CMD",
    multiple=True,
    allow_from_autoenv=False,
    help="A check for every task; may be given again.",
)
PROMPT = click.option(
    "--prompt", type=click.Path(path_type=Path, exists=True, dir_okay=False), help="Your own prompt template."
)


@click.group(
    cls=Commands, context_settings={"auto_envvar_prefix": "RALPH", "help_option_names": ["-h", "--help"]}
)
@click.version_option(__version__, prog_name="ralph")
def cli() -> None:
    """Work through prd.json with any coding agent, and believe only the checks.

    \b
    ralph init            write prd.json, AGENTS.md and the .gitignore line
    ralph plan brief.md   let an agent write the tasks from your brief
    ralph doctor          find tonight what would spoil the night
    ralph run             work until every task passes or a limit is reached
    ralph status          what passed, what is next, what is blocked
    ralph report          the same as a page for the morning
    """


@cli.command()
@with_prd
@click.option(
    "--once", is_flag=True, help="One attempt, no waiting; exit 0 if it passed or nothing was left."
)
@click.option("--task", metavar="ID", shell_complete=known_tasks, help="Work on this task only.")
@click.option(
    "--agent", metavar="CMD", help="Agent command, such as claude, 'claude --model haiku' or aider."
)
@click.option("--judge", metavar="CMD", help="A second agent that must agree before a task passes.")
@CHECK
@PROMPT
@click.option("--max-iterations", type=POSITIVE, help="Attempts in this run.  [default: 50]")
@click.option("--max-attempts", type=POSITIVE, help="Attempts for one task.  [default: 3]")
@click.option("--max-hours", type=ABOVE_ZERO, help="Hours for this run.  [default: 12]")
@click.option("--until", metavar="HH:MM", help="Start no attempt after this time of day.")
@click.option("--max-usd", type=ABOVE_ZERO, help="Dollars for this run.")
@click.option("--max-tokens", type=POSITIVE, help="Tokens for this run, in and out.")
@click.option("--max-wait", type=DURATION, help="Longest wait for a provider's limit.  [default: 6h]")
@click.option(
    "--agent-timeout", type=DURATION, default="60m", show_default=True, help="Deadline of one agent process."
)
@click.option(
    "--idle-timeout",
    type=DURATION,
    default="20m",
    show_default=True,
    help="Deadline of its silence, if it streams.",
)
@click.option("--branch", metavar="NAME", help="Work on this branch.")
@click.option("--no-wait", is_flag=True, help="End with 75 at a provider's limit instead of waiting.")
@click.option("--full-permissions", is_flag=True, help="Let the agent do anything this user may do.")
@click.option(
    "--sandbox", type=click.Choice(["bwrap"]), help="Run agents, checks, hooks and setup inside bubblewrap."
)
@click.option("--no-awake", is_flag=True, help="Let the machine fall asleep during the run.")
@click.option(
    "--notify", metavar="CMD", help="Command that gets a JSON summary on stdin at the stop and at a block."
)
@click.option(
    "--json",
    "as_json",
    envvar="RALPH_RUN_JSON",
    is_flag=True,
    help="Print one JSON summary on stdout; all else goes to stderr.",
)
@click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors.")
@click.option("-v", "--verbose", is_flag=True, help="Print all that the agent prints.")
@click.pass_context
def run(
    ctx: click.Context, /, as_json: bool, quiet: bool, verbose: bool, no_awake: bool, **given: Any
) -> None:
    """Work until all is done or a limit is reached.

    Ends early when nothing can go on without a person; says why, and what to do.

    \b
    ralph run --agent claude --max-usd 20 --until 07:00
    ralph run --once --task US-003 --agent 'aider --model sonnet'
    """
    from _ralph.awake import keep_awake
    from _ralph.live import View

    options = run_options(given)
    view = View(sys.stderr if as_json else sys.stdout, -1 if quiet else int(verbose))
    try:
        code = alone(
            options,
            "run",
            lambda control, run_id: loop_process(options, control, view, run_id, as_json),
            None if no_awake else keep_awake,
        )
    except (RalphError, OSError) as error:
        print_summary(as_json, options, Stop("error", translate(error).exit, str(error)), 0.0)
        raise
    if code is None:
        view.doing("")
        code = lost(options, as_json)
    ctx.exit(code)


def alone(
    options: Options,
    what: str,
    work: Callable[[Control, str], int],
    beside: Callable[[int], object] | None = None,
) -> int | None:
    """Do `work(control, run_id)` under a supervisor, as the only one in this workspace; its exit
    status, or None if it was killed. TryLater if somebody else is at work."""
    import uuid

    from _ralph.place import locate
    from _ralph.session import acquire, announce, bury
    from _ralph.supervisor import mark_run, supervise

    paths, run_id = locate(options.prd, options.git), uuid.uuid4().hex
    lock = acquire(paths)
    bury(paths)
    mark_run(run_id)  # so that every child can be told from a stranger
    announce(paths, run_id, os.getpid(), what)
    code = supervise(lambda control: work(control, run_id), beside=beside)
    if code is not None:  # else what it left is for the next start to bury
        (paths.private / "running.json").unlink(missing_ok=True)
    lock.release()
    return code


def run_options(given: dict[str, Any]) -> Options:
    """What was said on the command line of `ralph run`, by the names of its options."""
    from _ralph.session import Options

    prompt, names = given.pop("prompt"), ("iterations", "attempts", "hours", "usd", "tokens")
    limits = {name: given.pop(f"max_{name}") for name in names}
    return Options(
        prd=given.pop("prd_path"),
        prompt=prompt.resolve() if prompt else None,
        limits={**limits, "max_wait": given.pop("max_wait")},
        git=not given.pop("no_git"),
        wait=not (given.pop("no_wait") or given["once"]),
        **given,
    )


def loop_process(options: Options, control: Control, view: View, run_id: str, as_json: bool) -> int:
    """What the supervisor's child does: open, loop, close; its exit status."""
    from _ralph.night import close_run
    from _ralph.session import open_run

    opened: Run | None = None
    if view.stays:
        control.on_tick = view.tick
    control.on_interrupt = lambda: view.line("stopping after this attempt; interrupt again to stop now")
    try:
        opened = open_run(options, control, view, run_id)
        stop = run_loop(opened)
        close_run(opened, stop)
    except Exception as error:
        if os.environ.get("RALPH_DEBUG"):
            raise
        view.doing("")
        stop = ended_early(opened, control, error)
    if not control.orphaned:
        say_goodbye(view, opened, stop)
        print_summary(as_json, options, stop, opened.seconds if opened else 0.0, opened)
    return int(stop.exit)


def say_goodbye(view: View, opened: Run | None, stop: Stop) -> None:
    """The last lines: why it ended, where the work is, what a person can do next."""
    import shlex

    from _ralph.session import unfinished

    if stop.word == "error" or opened is None:
        return
    passed, total = sum(task.passed for task in opened.plan.tasks), len(opened.plan.tasks)
    branch = opened.branch.removeprefix("refs/heads/")
    where = f", on branch {branch}" if branch else ""
    view.last(f"{stop.reason} | {passed} of {total} passed{where}", failed=bool(stop.exit))
    with contextlib.suppress(RalphError, OSError):  # a full disk: the run has ended all the same
        if opened.tree.with_git and unfinished(opened.tree, opened.history):
            view.line("unfinished work lies in the tree; the next `ralph run` goes on with it")
    blocked = next((task.id for task in opened.plan.tasks if task.blocked and not task.passed), None)
    if blocked:
        view.line(f"next: ralph status; ralph retry {shlex.quote(blocked)} --answer '...'; ralph run")
    if stop.word == "red-checks":
        view.line("next: mend it yourself; or let a task do it: ralph add 'TITLE' --check 'THE RED ONE'")


def ended_early(opened: Run | None, control: Control, error: Exception) -> Stop:
    """The stop for an error: recorded if the run had begun, and nothing is left half done."""
    from _ralph.attempt import StopNow
    from _ralph.night import asked_to_stop, close_run, notify

    if control.orphaned:
        return Stop("killed", Exit.ERROR, "the supervisor was killed")
    if isinstance(error, StopNow) and opened:
        stop = asked_to_stop(opened) or Stop("interrupted", Exit.INTERRUPTED, "interrupted")
    else:
        failed = translate(error)
        stop = Stop("error", failed.exit, str(failed))
    if opened:
        try:
            (notify if opened.under_way else close_run)(opened, stop)
        except (RalphError, OSError) as again:
            complain(f"the last record could not be written: {again}")
    if stop.word == "error":
        complain(stop.reason)
    return stop


def lost(options: Options, as_json: bool) -> int:
    """What the supervisor says when the loop was killed."""
    stop = Stop("killed", Exit.ERROR, "the loop was killed; run the same command to go on")
    complain(stop.reason)
    print_summary(as_json, options, stop, 0.0)
    return int(stop.exit)


def print_summary(
    as_json: bool, options: Options, stop: Stop, seconds: float, opened: Run | None = None
) -> None:
    import json

    from _ralph.place import read_state
    from _ralph.views import summary

    if not as_json:
        return
    plan, history = (opened.plan, opened.history) if opened else (None, None)
    if opened is None:
        with contextlib.suppress(RalphError, OSError):
            _, plan, history = read_state(options.prd, options.git)
    try:
        click.echo(json.dumps(summary(plan, history, stop, seconds)))
    except OSError as error:  # a closed pipe, a full disk: the run ended as it did
        complain(f"the summary could not be printed: {error.strerror}")


@cli.command()
@with_prd
@click.option(
    "--format", "form",
    type=click.Choice(["text", "md", "json"]), default="text", show_default=True,
    help="For a terminal, to paste into an issue, for machines.",
)  # fmt: skip
@click.option(
    "--json", "as_json", envvar="RALPH_STATUS_JSON", is_flag=True, help="The same as --format json."
)
def status(prd_path: Path, no_git: bool, form: str, as_json: bool) -> None:
    """Show what passed, what is next, what is blocked.

    Only reads; also while a loop runs.

    \b
    ralph status --json | jq '.tasks[] | select(.state == "blocked")'
    ralph status --format md | gh issue create --title 'ralph: where it is' --body-file -
    """
    import json
    import shutil

    from _ralph import status as view

    found = view.read(prd_path, not no_git)
    if as_json or form == "json":
        click.echo(json.dumps(view.as_object(found)))
    elif form == "md":
        click.echo(view.markdown(found))
    else:
        color = sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")
        width = max(shutil.get_terminal_size((120, 24)).columns, 40)
        click.echo("\n".join(view.lines(found, width, color)))


@cli.command()
@with_prd
@click.option(
    "-o", "--output", metavar="FILE", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Where to write it; - is stdout.  [default: .ralph/report.html]",
)  # fmt: skip
def report(prd_path: Path, no_git: bool, output: Path | None) -> None:
    """Write a page for the morning.

    One HTML file: what passed, with diffs; what needs you, failed, was put back and learned.

    \b
    ralph report && xdg-open .ralph/report.html
    """
    from _ralph import files, place, session
    from _ralph.report import page

    paths, plan, history = place.read_state(prd_path, not no_git)
    options = ["--prd", str(prd_path)] if prd_path != Path("prd.json") else []
    html = page(
        paths, plan, history, place.journal_of(paths).records(), git=not no_git,
        running=place.running(paths), options=[*options, *(["--no-git"] if no_git else [])],
        elsewhere=None if no_git else place.elsewhere(paths, plan, history),
    )  # fmt: skip
    if output == Path("-"):
        click.echo(html, nl=False)
        return
    if output and not output.parent.is_dir():
        raise BadInput(f"there is no folder {output.parent}")
    target = output or session.scratch(paths) / "report.html"
    if output is None and files.read_regular(target, 0) is None:
        files.clear(target)  # a link that an agent made there must not be written through
    if target.exists() and not target.is_file():  # /dev/stdout, a pipe
        target.write_text(html, encoding="utf-8")
    else:
        files.atomic_write(target, html.encode())
    click.echo(target)


@cli.command()
@with_prd
@click.option(
    "--task",
    metavar="ID",
    shell_complete=known_tasks,
    help="The prompt for this task instead of the next one.",
)
@click.option("--agent", metavar="CMD", help="The agent that it is for.")
@PROMPT
def prompt(prd_path: Path, no_git: bool, task: str | None, agent: str | None, prompt: Path | None) -> None:
    """Print what the agent would be sent now.

    Nothing is run. What is red before a first attempt is known only then, and added.

    \b
    ralph prompt --task US-003 | less
    """
    from _ralph.attempt import prompt_for
    from _ralph.night import choose
    from _ralph.session import Options, peek

    options = Options(
        prd_path, task=task, agent=agent, git=not no_git, prompt=prompt.resolve() if prompt else None
    )
    peeked = peek(options)
    wanted = peeked.plan.task(task) if task else choose(peeked)
    if wanted is None:
        raise BadInput("there is no task to work on: everything has passed, is blocked, or waits")
    click.echo(prompt_for(peeked, wanted), nl=False)


@cli.command()
@with_prd
@click.argument("brief", type=click.Path(path_type=str, allow_dash=True))
@click.option("--planner", metavar="CMD", help="The agent that plans; else the plan's planner, or its agent.")
@click.option("--force", is_flag=True, help="Replace a plan with work in it; the old one is kept aside.")
@click.option(
    "--agent-timeout", type=DURATION, default="60m", show_default=True, help="Deadline of one agent process."
)
@click.pass_context
def plan(
    ctx: click.Context,
    prd_path: Path,
    no_git: bool,
    brief: str,
    planner: str | None,
    force: bool,
    agent_timeout: float,
) -> None:
    """Let an agent write the tasks from a brief.

    BRIEF is a file, or - for standard input. The agent only reads, in a clone of its own.
    You read the plan, and say go. Exit 4 while it has open questions.

    \b
    ralph plan brief.md --planner 'claude --model opus'
    """
    from _ralph.planner import read_brief, require_commit
    from _ralph.prd import plan_above
    from _ralph.session import Options
    from _ralph.setup import write_starters

    outside_attempts("plan")
    if no_git:
        raise BadInput("ralph plan needs git: the planner works in a clone")
    words = read_brief(brief)
    require_commit(prd_path)
    if not prd_path.exists() and not plan_above(prd_path):
        click.echo("\n".join(write_starters(prd_path)))
    options = Options(prd_path, planner=planner, agent_timeout=agent_timeout)
    code = alone(
        options, "plan", lambda control, run_id: plan_process(options, control, run_id, words, brief, force)
    )
    if code is None:
        complain("the planner was killed, and ralph with it; run the same command again")
    ctx.exit(int(Exit.ERROR) if code is None else code)


def plan_process(options: Options, control: Control, run_id: str, words: str, brief: str, force: bool) -> int:
    """What the supervisor's child does for `ralph plan`; its exit status."""
    from dataclasses import replace

    from _ralph import planner, prd
    from _ralph.live import View
    from _ralph.session import peek, require_agent

    view = View(sys.stdout)
    control.on_tick = view.tick if view.stays else None
    control.stop_at_interrupt()
    try:
        run = replace(peek(options, writing=True), control=control, view=view, run_id=run_id)
        if not force:
            planner.may_replace(run)
        require_agent(run, run.planner)
        view.line(f"planning with {run.planner.command}", color="cyan")
        view.doing("planning")
        planner.make_plan(run, words, brief)
        view.doing("")
        click.echo("\n".join(planner.told(run)))
        return int(Exit.PERSON if prd.open_questions(run.plan) else Exit.COMPLETE)
    except Exception as error:
        if os.environ.get("RALPH_DEBUG"):
            raise
        view.doing("")
        if control.stop_signal:
            return 128 + control.stop_signal
        complain(str(translate(error)))
        return int(translate(error).exit)


@cli.command()
@with_prd
@click.argument("what", metavar="TITLE|FILE")
@click.option(
    "--check",
    "checks",
    metavar="CMD",
    multiple=True,
    allow_from_autoenv=False,
    help="A command that proves it; may be given again.",
)
@click.option(
    "--criterion",
    "acceptanceCriteria",
    metavar="TEXT",
    multiple=True,
    help="What must be true when it is done; may be given again.",
)
@click.option("--description", metavar="TEXT", help="What is to be built, and why.")
@click.option("--priority", type=int, help="1 is worked first.")
@click.option(
    "--depends-on",
    "dependsOn",
    metavar="ID",
    multiple=True,
    shell_complete=known_tasks,
    help="Must pass first; may be given again.",
)
def add(prd_path: Path, no_git: bool, what: str, **said: Any) -> None:
    """Add a task to the plan, also while a loop runs.

    TITLE makes one. FILE (or - for standard input) is JSON: a task, a list of them, or another
    version of prd.json, of which the new tasks are taken.

    \b
    ralph add 'Sort prices by currency' --check 'npm test -- sort' --criterion 'EUR before USD'
    """
    from _ralph.planner import add_to_plan

    outside_attempts("add")
    given = {key: value for key, value in said.items() if value not in (None, ())}
    click.echo("\n".join(add_to_plan(prd_path, not no_git, what, given)))


@cli.command()
@with_prd
@click.argument("task_id", metavar="ID", shell_complete=known_tasks)
@click.option(
    "--answer", default="", metavar="TEXT", help="Your answer to its question; stands in the next prompt."
)
def retry(prd_path: Path, no_git: bool, task_id: str, answer: str) -> None:
    """Unblock a task, with an answer if you have one.

    Its attempts start at zero. Also while a loop runs.

    \b
    ralph retry US-003 --answer 'use the existing price table'
    """
    from _ralph import inbox, place, session
    from _ralph.night import retry_task

    outside_attempts("retry")
    with session.at_rest(session.Options(prd_path, git=not no_git)) as run:
        state = (run.paths, run.plan, run.history) if run else place.read_state(prd_path, not no_git)
        place.stay_on_branch(*state, use_git=not no_git)
        task = state[1].task(task_id)
        if task.passed:
            raise BadInput(f"{task_id} has passed; to work it again, take its pass back in {prd_path.name}")
        if run:
            retry_task(run, task_id, answer)
        else:
            inbox.leave(state[0], {"event": "retry", "task": task_id, "answer": answer})
    if run is None:
        click.echo(f"{task_id}: the running loop takes this up after its present attempt")
        return
    was = "is open again" if task.blocked else "was not blocked; its attempts start at zero"
    click.echo(f"{task_id} {was}{'; your answer is noted' if answer else ''}; `ralph run` goes on")


@cli.command()
@with_prd
def stop(prd_path: Path, no_git: bool) -> None:
    """Ask the running loop to stop after this attempt.

    \b
    ralph stop && tail -f progress.txt
    """
    from _ralph import inbox, place

    outside_attempts("stop")
    paths = place.locate(prd_path, not no_git)
    holder = place.loop_at_work(paths)
    if holder is None:
        raise BadInput("no loop is running in this workspace")
    inbox.leave(paths, {"event": "stop", "run": holder["run_id"]})
    click.echo(f"the loop (pid {holder['pid']}) will stop after this attempt")


@cli.command()
@with_prd
@click.option("--eject", is_flag=True, help="Write ralph's prompt template as PROMPT.md, to change it.")
def init(prd_path: Path, no_git: bool, eject: bool) -> None:
    """Write prd.json, AGENTS.md, the .gitignore line.

    Nothing is overwritten; a plan without checks gets those that were found.

    \b
    cd my-project && ralph init
    """
    from _ralph.setup import eject_prompt, init_workspace

    for line in eject_prompt(prd_path) if eject else init_workspace(prd_path, not no_git):
        click.echo(line)


@cli.command()
@with_prd
@click.option("--agent", metavar="CMD", help="As in `ralph run`: what is examined is what will run.")
@click.option("--judge", metavar="CMD", help="As in `ralph run`.")
@CHECK
@click.option("--full-permissions", is_flag=True, help="As in `ralph run`.")
@click.option(
    "--sandbox", type=click.Choice(["bwrap"]), help="As in `ralph run`; checks run in it here, too."
)
@click.option("--probe", is_flag=True, help="Let each agent do one cheap turn, as cron would start it.")
@click.pass_context
def doctor(ctx: click.Context, /, prd_path: Path, no_git: bool, probe: bool, **given: Any) -> None:
    """Find now what would spoil the night.

    Looks at plan, checks, agents, permissions, sandbox, git, lock, disk, and at what cron
    will see. Ends with 2 if something is wrong, else with a crontab line and systemd units.

    \b
    ralph doctor --agent claude --full-permissions --probe
    """
    from _ralph.doctor import examine
    from _ralph.session import Options
    from _ralph.supervisor import supervise

    options = Options(prd_path, git=not no_git, **given)

    def loop(control: Control) -> int:
        with contextlib.suppress(BrokenPipeError):  # `| head`
            return examine(options, control, click.echo, probe)
        return int(Exit.ERROR)

    code = supervise(loop)
    ctx.exit(int(Exit.ERROR) if code is None else code)


@cli.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
@click.pass_context
def demo(ctx: click.Context, folder: Path | None) -> None:
    """See the promises at work in under 20 seconds.

    On a small real repository, with scripted agents: no key, no network.

    \b
    ralph demo             in a temporary folder
    ralph demo my-demo     in a folder that you keep
    """
    from _ralph.demo import run_demo

    ctx.exit(run_demo(folder))


def outside_attempts(command: str) -> None:
    """An agent may not steer the loop that runs it."""
    if os.environ.get("RALPH_RUN_ID"):
        raise BadInput(f"`ralph {command}` is for people: it is refused inside an attempt")


def main() -> None:
    """The entry point of `ralph`. Unexpected errors end with one line and status 1."""
    prepare_interpreter()
    try:
        sys.exit(cli.main(prog_name="ralph", standalone_mode=False) or 0)
    except click.ClickException as error:
        error.show()
        if "--json" in sys.argv:
            import json

            from _ralph.views import summary

            stop = Stop("error", Exit.USAGE, error.format_message())
            click.echo(json.dumps(summary(None, None, stop, 0.0)))
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(int(Exit.INTERRUPTED))
    except Exception as error:
        if os.environ.get("RALPH_DEBUG"):
            raise
        complain(str(translate(error)))
        sys.exit(int(Exit.ERROR))


def prepare_interpreter() -> None:
    """UTF-8 for names and messages in any locale, and three open streams, also where cron has none."""
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # else the next file that is opened takes its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))


if __name__ == "__main__":
    main()
