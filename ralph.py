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
import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from _ralph import __version__
from _ralph.errors import BadInput, Exit, RalphError, Stop, translate

TYPE_CHECKING = False
if TYPE_CHECKING:  # everything but click is imported where it is used: `--help` stays quick
    from _ralph.loop.jobs import Attempt
    from _ralph.loop.run import Options, Run


# ---------------------------------------------------------------- the loop


def run_loop(run: Run) -> Stop:
    """Run attempts, side by side with --jobs, until there is a reason to stop and none is under way. All
    state is on disk."""
    from _ralph.loop import rounds
    from _ralph.loop.attempt import begin

    rounds.resume(run)
    stop: Stop | None = None
    while True:
        rounds.read_edits(run)
        end = stop or rounds.asked_to_stop(run)
        task = None if end else rounds.next_task(run)
        if task and not (end := rounds.limit_reached(run)):
            rounds.open_run_record(run)
            try:
                attempt = begin(run, task)
            except RalphError as error:
                stop = rounds.stop_after_others(run, error)
                continue
            run.pool.add(attempt, run_attempt(run, attempt))
        elif run.pool.lanes:
            stop = rounds.await_attempt(run) or stop
        elif end := end or rounds.wait_or_finish(run):
            return end


async def run_attempt(run: Run, attempt: Attempt) -> None:
    """One attempt at one task, a function from a commit to a commit: the agent works in a workspace, and the
    clean room checks the commit that would land. While this waits, other attempts go on; there is one at a
    time in the room."""
    from _ralph.loop.attempt import examine, work
    from _ralph.loop.record import record
    from _ralph.loop.rounds import recheck_now_and_then

    run.view.started(attempt, run.limits.attempts)
    await work(run, attempt)
    async with run.turn(attempt):
        await examine(run, attempt)
        record(run, attempt)
        recheck_now_and_then(run)


# ---------------------------------------------------------------- the command line

POSITIVE = click.IntRange(min=1)
ABOVE_ZERO = click.FloatRange(min=0, min_open=True)


def duration(value: str) -> float:
    """Seconds: the type of options that are durations."""
    from _ralph import text

    try:
        return text.seconds(value, "duration")
    except BadInput as error:
        raise click.BadParameter(str(error)) from None


def hours(value: str) -> float:
    """Hours, from a number of them or from a duration: the type of --max-hours."""
    return duration(value if value.strip()[-1:].isalpha() else f"{value}h") / 3600


def known_tasks(ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Ids that a shell may complete; none if there is no plan that can be read."""
    from _ralph.state import prd

    with contextlib.suppress(RalphError, OSError):
        plan = prd.load(ctx.params.get("prd") or Path("prd.json"))
        return [task.id for task in plan.tasks if task.id.startswith(incomplete)]
    return []


def known_engines(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Engines that a shell may complete."""
    from _ralph.commands.job import engines

    return [name for name in engines() if name.startswith(incomplete)]


def for_people(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that is refused inside an attempt: an agent may not steer the loop that runs it."""

    @functools.wraps(command)
    def called(**given: Any) -> Any:
        if os.environ.get("RALPH_RUN_ID"):
            name = click.get_current_context().info_name
            raise BadInput(f"`ralph {name}` is for people: it is refused inside an attempt")
        return command(**given)

    return called


def was_given(name: str) -> bool:
    """Whether an option was given, by hand or by a variable."""
    return click.get_current_context().get_parameter_source(name) is not click.core.ParameterSource.DEFAULT


PRD = click.option(
    "--prd",
    envvar="RALPH_PRD",
    type=click.Path(path_type=Path, dir_okay=False),
    default="prd.json",
    show_default=True,
    help="The plan; progress.txt lies beside it.",
)


class Command(click.types.StringParamType):
    """A command; a variable holds one, with its blanks."""

    def split_envvar_value(self, rv: str) -> list[str]:
        return [rv]


AGENT = click.option(
    "--agent",
    metavar="CMD",
    type=Command(),
    multiple=True,
    help="Such as claude or 'aider --model sonnet'; given again, the next one for each failed attempt.",
)
CHECK = click.option(
    "--check",
    "checks",
    metavar="CMD",
    multiple=True,
    allow_from_autoenv=False,
    help="A command that proves the work; may be given again.",
)
TASK = click.option("--task", metavar="ID", shell_complete=known_tasks, help="This task and no other.")
PROMPT = click.option(
    "--prompt",
    type=click.Path(path_type=Path, exists=True, dir_okay=False, resolve_path=True),
    help="Your own prompt template.",
)
TIMEOUT = click.option(
    "--agent-timeout", type=duration, default="60m", show_default=True, help="Deadline of an agent."
)
SANDBOX = click.option("--sandbox", type=click.Choice(["bwrap"]), help="Run all but ralph inside bubblewrap.")
JSON = click.option("--json", is_flag=True, help="Print one JSON object on stdout; all else goes to stderr.")
RUN_OPTIONS = (
    click.option("--once", is_flag=True, help="One attempt; exit 0 if it passed or nothing was left."),
    TASK,
    click.option("-j", "--jobs", type=click.IntRange(1, 64), help="Tasks worked side by side.  [default: 1]"),
    AGENT,
    click.option("--fallback", metavar="CMD", help="Who works while the agent's provider is limited."),
    click.option("--judge", metavar="CMD", help="A second agent that must agree before a task passes."),
    CHECK,
    PROMPT,
    click.option("--max-iterations", type=POSITIVE, help="Attempts in this run.  [default: 50]"),
    click.option("--max-attempts", type=POSITIVE, help="Attempts for one task.  [default: 3]"),
    click.option("--max-hours", type=hours, help="Hours for this run, or 90m.  [default: 12]"),
    click.option("--until", metavar="HH:MM", help="Start no attempt after this time of day."),
    click.option("--max-usd", type=ABOVE_ZERO, help="Dollars for this run."),
    click.option("--max-tokens", type=POSITIVE, help="Tokens for this run, in and out."),
    click.option("--max-wait", type=duration, help="Longest wait for a provider's limit.  [default: 6h]"),
    TIMEOUT,
    click.option(
        "--idle-timeout", type=duration, default="20m", show_default=True, help="Deadline of its silence."
    ),
    click.option("--branch", metavar="NAME", help="Work on this branch."),
    click.option("--allow-overage", is_flag=True, help="Go on where a subscription bills extra usage."),
    click.option("--no-wait", is_flag=True, help="End with 75 at a provider's limit instead of waiting."),
    click.option("--full-permissions", is_flag=True, help="Let the agent do anything this user may do."),
    SANDBOX,
    click.option("--launch", metavar="PREFIX", help="Work behind this command: 'ssh node7', 'srun -n1'."),
    click.option("--launch-checks", metavar="PREFIX", help="Run setup and checks behind this one."),
    click.option("--no-awake", is_flag=True, help="Let the machine fall asleep during the run."),
    click.option("--notify", metavar="CMD", help="Gets a JSON summary on stdin at the stop and at a block."),
    JSON,
    click.option("-q", "--quiet", is_flag=True, help="Print nothing but errors."),
    click.option("-v", "--verbose", is_flag=True, help="Print all that the agent prints."),
)
"""What `ralph run` takes, and `ralph doctor` and `ralph job` with it."""


def with_run_options(command: Callable[..., Any]) -> Callable[..., Any]:
    return functools.reduce(lambda inner, option: option(inner), reversed(RUN_OPTIONS), command)


def run_options(given: dict[str, Any], *own: str) -> Options:
    """What the command line of `run`, `doctor` or `job` said, as the loop wants it; `own` are the parameters
    of that command alone."""
    from _ralph.commands.run import words_given
    from _ralph.loop.run import Options

    limits = {name: given.pop(f"max_{name}") for name in ("iterations", "attempts", "hours", "usd", "tokens")}
    limits |= {name: given.pop(name) for name in ("jobs", "max_wait")}
    words = words_given(click.get_current_context(), leave_out=own)
    return Options(limits=limits, words=words, **given)


@click.group(context_settings={"auto_envvar_prefix": "RALPH", "help_option_names": ["-h", "--help"]})
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
    ralph land            merge the work with your branch, if all checks are green on that
    """


@cli.command()
@PRD
@with_run_options
def run(**given: Any) -> int:
    """Work until all is done or a limit is reached.

    Ends early when nothing can go on without a person; says why, and what to do.

    \b
    ralph run --agent claude --max-usd 20 --until 07:00
    ralph run --once --task US-003 --agent 'aider --model sonnet'
    """
    from _ralph.commands.run import spend_night

    return spend_night(run_options(given), run_loop)


@cli.command()
@PRD
@click.option(
    "--format",
    type=click.Choice(["text", "md", "json"]),
    default="text",
    show_default=True,
    help="For a terminal, to paste into an issue, for machines.",
)
@JSON
def status(prd: Path, format: str, json: bool) -> None:
    """Show what passed, what is next, what is blocked.

    Only reads; also while a loop runs.

    \b
    ralph status --json | jq '.tasks[] | select(.state == "blocked")'
    ralph status --format md | gh issue create --title 'ralph: where it is' --body-file -
    """
    from _ralph.show.status import read, show

    click.echo(show(read(prd), "json" if json else format))


@cli.command()
@PRD
@click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.Path(path_type=Path, dir_okay=False, allow_dash=True),
    help="Where to write it; - is stdout.  [default: .ralph/report.html]",
)
def report(prd: Path, output: Path | None) -> None:
    """Write a page for the morning.

    One HTML file: what passed, with diffs; what needs you, failed, was put back and learned.

    \b
    ralph report && xdg-open .ralph/report.html
    """
    from _ralph.show.report import page, save

    if output == Path("-"):
        click.echo(page(prd), nl=False)
    else:
        click.echo(os.fsencode(save(prd, output)))  # a path need not be text


@cli.command()
@PRD
@TASK
@AGENT
@PROMPT
def prompt(**given: Any) -> None:
    """Print what the agent would be sent now.

    Nothing is run. What is red before a first attempt is known only then, and added.

    \b
    ralph prompt --task US-003 | less
    """
    from _ralph.loop.attempt import preview
    from _ralph.loop.opening import peek
    from _ralph.loop.rounds import next_task
    from _ralph.loop.run import Options

    peeked = peek(Options(**given))
    wanted = peeked.plan.task(given["task"]) if given["task"] else next_task(peeked)
    if wanted is None:
        raise BadInput("there is no task to work on: everything has passed, is blocked, or waits")
    click.echo(preview(peeked, wanted), nl=False)


@cli.command()
@PRD
@click.argument("brief", type=click.Path(path_type=str, allow_dash=True))
@click.option("--planner", metavar="CMD", help="The agent that plans; else the plan's planner, or its agent.")
@click.option("--force", is_flag=True, help="Replace a plan with work in it; the old one is kept aside.")
@TIMEOUT
@for_people
def plan(brief: str, force: bool, **given: Any) -> int:
    """Let an agent write the tasks from a brief.

    BRIEF is a file, or - for standard input. The agent only reads, in a checkout of its own.
    You read the plan, and say go. Exit 4 while it has open questions.

    \b
    ralph plan brief.md --planner 'claude --model opus'
    """
    from _ralph.commands.plan import plan_from
    from _ralph.loop.run import Options

    return plan_from(brief, Options(**given), force)


@cli.command()
@PRD
@click.argument("what", metavar="TITLE|FILE")
@CHECK
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
@for_people
def add(prd: Path, what: str, **said: Any) -> None:
    """Add a task to the plan, also while a loop runs.

    TITLE makes one. FILE (or - for standard input) is JSON: a task, a list of them, or another
    version of prd.json, of which the new tasks are taken.

    \b
    ralph add 'Sort prices by currency' --check 'npm test -- sort' --criterion 'EUR before USD'
    """
    from _ralph.commands import requests

    given = {key: value for key, value in said.items() if value not in (None, ())}
    click.echo("\n".join(requests.add(prd, what, given)))


@cli.command()
@PRD
@click.argument("task_id", metavar="ID", shell_complete=known_tasks)
@click.option("--answer", default="", metavar="TEXT", help="What you answer; stands in the next prompt.")
@for_people
def retry(prd: Path, task_id: str, answer: str) -> None:
    """Unblock a task, with an answer if you have one.

    The answer goes into its notes, and its attempts start at zero. Also while a loop runs.

    \b
    ralph retry US-003 --answer 'use the existing price table'
    """
    from _ralph.commands import requests

    click.echo(requests.retry(prd, task_id, answer))


@cli.command()
@PRD
@click.argument("said", metavar="[ID] TEXT", nargs=-1, required=True, shell_complete=known_tasks)
@for_people
def tell(prd: Path, said: tuple[str, ...]) -> None:
    """Put a note into a task or, without ID, into the plan.

    Every attempt that begins later reads it; also while a loop runs.

    \b
    ralph tell US-003 'the price table is in src/prices.py'
    ralph tell 'no new dependencies, please'
    """
    from _ralph.commands import requests

    if len(said) > 2:
        raise click.UsageError("expected [ID] TEXT; put the text in quotes")
    click.echo(requests.tell(prd, said[-1], said[0] if len(said) == 2 else None))


@cli.command()
@PRD
@for_people
def stop(prd: Path) -> None:
    """Ask the running loop to stop after this attempt.

    \b
    ralph stop && tail -f progress.txt
    """
    from _ralph.commands import requests

    click.echo(requests.stop(prd))


@cli.command()
@PRD
@click.option("--eject", is_flag=True, help="Write ralph's prompt template as PROMPT.md, to change it.")
def init(prd: Path, eject: bool) -> None:
    """Write prd.json, AGENTS.md, the .gitignore line.

    Nothing is overwritten; a plan that lacks setup, checks or protect gets what was found.

    \b
    cd my-project && ralph init
    """
    from _ralph.commands import init

    said = init.eject_prompt(prd) if eject else init.write_starters(prd) + init.next_steps(prd)
    click.echo("\n".join(said))


@cli.command(context_settings={"auto_envvar_prefix": "RALPH_RUN"})
@PRD
@with_run_options
@click.option(
    "--probe",
    is_flag=True,
    allow_from_autoenv=False,
    help="Let each agent do one cheap turn, as cron would start it.",
)
def doctor(probe: bool, **given: Any) -> int:
    """Find now what would spoil the night.

    Takes every option of `ralph run`. Looks at plan, checks, agents, permissions, sandbox, git, lock,
    disk, and at what cron will see. Ends with 2 if something is wrong, else with the line that starts the
    run, and the one that prints a job file for it.

    \b
    ralph doctor --agent claude --full-permissions --probe
    """
    from _ralph.commands.doctor import examine
    from _ralph.commands.run import with_signals

    options = run_options(given, "probe")
    return with_signals(lambda control: examine(options, control, click.echo, probe))


@cli.command(context_settings={"auto_envvar_prefix": "RALPH_RUN"})
@PRD
@click.argument("engine", shell_complete=known_engines)
@click.argument("plans", metavar="[PLAN ...]", nargs=-1, type=click.Path(path_type=Path, dir_okay=False))
@with_run_options
def job(engine: str, plans: tuple[Path, ...], **given: Any) -> None:
    """Print a job file for an engine that you have.

    ENGINE is cron, systemd, slurm, kubernetes or github. Takes every option of `ralph run`, which the file
    then holds. It runs each PLAN, else that of --prd; says by exit code what is tried again and what
    waits for a person; and is yours to read, change and hand to the engine.

    \b
    ralph job cron --agent claude --full-permissions
    ralph job slurm plans/*/prd.json --max-usd 20 | sbatch
    """
    from _ralph.commands.job import job_file

    options = run_options(given, "engine", "plans", "prd")
    click.echo(job_file(engine, plans or (options.prd,), options), nl=False)


@cli.command(context_settings={"auto_envvar_prefix": "RALPH_RUN"})
@PRD
@click.argument("branches", metavar="[BRANCH ...]", nargs=-1)
@CHECK
@SANDBOX
@for_people
def land(branches: tuple[str, ...], **given: Any) -> int:
    """Put the work of the night on the current branch.

    Each BRANCH (else that of this plan) is merged with the branch that you are on. All checks of its
    plan run on the result in the clean room; if they are green, your branch moves there, and your
    edits stay. Else all is as it was, and the exit status is 4.

    \b
    git switch main && ralph land ralph/prices ralph/search
    """
    from _ralph.commands.land import land_branches
    from _ralph.loop.run import Options

    return land_branches(branches, Options(**given), was_given("prd") or not branches)


@cli.command()
@PRD
@click.option("-n", "--dry-run", is_flag=True, help="Only say what would be removed.")
@for_people
def clean(prd: Path, dry_run: bool) -> int:
    """Remove the places of plans that are done or gone.

    Done is a plan of which every task passes, and whose branch HEAD contains; gone is one without its
    prd.json or its repository. All plans of this repository are looked at, or the one of --prd. What a
    workspace holds and nothing else does is parked first.

    \b
    ralph clean -n
    """
    from _ralph.commands.clean import clean_places

    return clean_places(prd, was_given("prd"), dry_run, click.echo)


@cli.command(hidden=True)
def worker() -> int:
    """Do one job that comes on stdin: what `--launch` starts, and people do not."""
    from _ralph.loop.remote import serve

    return serve()


@cli.command()
@click.argument("folder", required=False, type=click.Path(path_type=Path, file_okay=False))
def demo(folder: Path | None) -> int:
    """See the promises at work in under 20 seconds.

    On a small real repository, with scripted agents: no key, no network.

    \b
    ralph demo             in a temporary folder
    ralph demo my-demo     in a folder that you keep
    """
    from _ralph.commands.demo import run_demo

    return run_demo(folder)


def main() -> None:
    """The entry point of `ralph`, and the one place where errors become messages and exit codes."""
    prepare_interpreter()
    try:
        sys.exit(cli.main(prog_name="ralph", standalone_mode=False))
    except click.ClickException as error:
        error.show()
        if "--json" in sys.argv:
            import json

            from _ralph.state.wording import summary

            stop = Stop("error", Exit.USAGE, error.format_message())
            click.echo(json.dumps(summary(None, None, stop, 0.0)))
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        from _ralph.show.live import complain

        failed = translate(error)
        complain(str(failed))
        sys.exit(failed.exit)


def prepare_interpreter() -> None:
    """UTF-8 for names and messages in any locale, and three open streams, also where cron has none."""
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # else the next file that is opened takes its number
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), "r" if name == "stdin" else "w"))


if __name__ == "__main__":
    main()
