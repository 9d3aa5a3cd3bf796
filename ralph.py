# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "click>=8.1",
#   "defusedxml>=0.7.1",
#   "filelock>=4",
#   "jinja2>=3.1",
#   "jsonschema>=4.18",
#   "pathspec>=0.12",
#   "psutil>=5.9",
#   "subprocess-tee>=0.4.2",
# ]
# ///
"""ralph: picks the next failing task from prd.json, hands it to an agent, checks the
work itself.

Read it from the top: `run_loop` is the life of a loop, of which a run has one or
several under a supervisor; the commands follow. What happens before and after is told in
_ralph/loop (supervisor, recover, claim, final), what passes in _ralph/checks.
"""

from __future__ import annotations

import os
import sys
from typing import IO, Any

from _ralph import __version__
from _ralph.errors import Exit, translate

try:
    import click

    from _ralph.commands import options
except ModuleNotFoundError as error:  # a vendored copy
    sys.exit(f"ralph: {translate(error)}")

TYPE_CHECKING = False
if TYPE_CHECKING:  # everything but click is imported where it is used
    from pathlib import Path

    from _ralph.checks.results import Results
    from _ralph.loop.loop import Loop
    from _ralph.loop.stages import Begun, Worked


# ---------------------------------------------------------------- the loop


def run_loop(loop: Loop) -> None:
    """The life of a loop, until a Stop is raised. All state is on disk: what a loop
    that was killed left, the next one of its number takes up."""
    from _ralph.loop.claim import claim, wait_for_task
    from _ralph.loop.recover import recover

    worked = recover(loop)
    while True:
        with loop.in_room(loop.ends) as results:  # who is in the clean room is alone
            for one in worked:
                bring_to_verdict(loop, results, one)
            begun = claim(loop, results)
        if begun:
            worked = [attempt(loop, begun)]
        else:
            worked = []
            wait_for_task(loop)


def attempt(loop: Loop, begun: Begun) -> Worked:
    """An agent at work. What differs between the two snapshots is its work."""
    from _ralph.loop.work import first_snapshot, run_agent, second_snapshot

    start = first_snapshot(loop, begun)  # of a workspace that holds the tip
    result = run_agent(loop, begun)  # all that it started has ended, too
    return second_snapshot(loop, begun, start, result)


def bring_to_verdict(loop: Loop, results: Results, worked: Worked) -> None:
    """From work to a commit on ralph's branch, if it passes, and to a verdict in any
    case."""
    from _ralph.loop.examine import examine, make_candidate
    from _ralph.loop.landing import advance, note

    while True:
        candidate = make_candidate(loop, worked)  # a commit on the tip of the branch
        examined = examine(loop, results, candidate)  # by hooks, checks and the judge
        if not examined.passed or advance(loop, examined):
            break  # else the branch has moved: once more, on its new tip
    note(loop, examined)  # in progress.txt, and in prd.json


# ---------------------------------------------------------------- the command line


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="ralph")
def cli() -> None:
    """Work through prd.json with any coding agent, and trust only the checks.

    \b
    ralph init            write prd.json, AGENTS.md and a line of .gitignore
    ralph plan brief.md   have an agent write the tasks from your brief
    ralph doctor          find problems before the run
    ralph run             work until every task passes or a limit is reached
    ralph status          show what passed, what is next, what is blocked
    ralph report          write the same as an HTML page, with diffs
    ralph land            merge the work into your branch if all checks pass
    """


@cli.command()
@options.PRD
@options.takes(options.RUN_OPTIONS)
def run(**given: Any) -> int:
    """Work until every task passes or a limit is reached.

    Stops early when every task that is left needs a person, and says why.

    \b
    ralph run --agent claude --max-usd 20 --until 07:00
    ralph run --once --task US-003 --agent 'aider --model sonnet'
    """
    from _ralph.commands.run import run_plan

    return run_plan(options.chosen_for_run(given), run_loop)


@cli.command()
@options.PRD
@options.FORMAT
@options.JSON
def status(prd: Path, format: str, json: bool) -> None:
    """Show what passed, what is next, what is blocked.

    Reads only, and works during a run.

    \b
    ralph status --json | jq '.tasks[] | select(.state == "blocked")'
    ralph status --format md | gh issue create --title 'ralph: where it is' --body-file -
    """
    from _ralph.show.status import read, show

    click.echo(show(read(prd), "json" if json else format))


@cli.command()
@options.PRD
@options.OUTPUT
def report(prd: Path, output: IO[bytes] | None) -> None:
    """Write an HTML report.

    One page: what needs you; what passed, with diffs; what is open; what was put back,
    noticed, denied and learned; each attempt and its cost.

    \b
    ralph report && xdg-open .ralph/report.html
    """
    from _ralph.show.report import page, save

    if output is None:
        click.echo(os.fsencode(save(prd)))  # a path need not be text
        return
    made = page(prd).encode()  # before the file is opened, and so emptied
    output.write(made)


@cli.command()
@options.PRD
@options.TASK
@options.AGENT
@options.PROMPT
def prompt(**given: Any) -> None:
    """Print the prompt of the next attempt.

    Runs nothing, so the checks that fail before a first attempt are not in it yet.

    \b
    ralph prompt --task US-003 | less
    """
    from _ralph.commands import requests
    from _ralph.state.options import Options

    click.echo(requests.prompt(Options(**given)), nl=False)


@cli.command()
@options.PRD
@options.takes(options.PLAN_OPTIONS)
@options.TIMEOUT
@options.WRAP
@options.for_people
def plan(briefs: tuple[str, ...], force: bool, **given: Any) -> int:
    """Have an agent write the tasks from a brief, or from a list of tasks in any form.

    BRIEF is a file, or - for stdin. The agent works read-only in its own
    checkout. Then the checks run in the clean room, and must fail before the work.
    Exits with 4 while the plan has open questions. Once every task passes and HEAD has
    the work, begins the next feature.

    \b
    ralph plan brief.md --planner 'claude --model opus'
    ralph plan specs/001-prices/*.md
    gh issue list --label ready --json number,title,body,labels | ralph plan -
    """
    from _ralph.commands.plan import plan_from

    return plan_from(briefs, options.chosen(given), force)


@cli.command()
@options.PRD
@click.argument("title")
@options.takes(options.TASK_FIELDS)
@options.for_people
def add(prd: Path, title: str, **fields: Any) -> None:
    """Add a task to the plan, also during a run.

    \b
    ralph add 'Sort prices by currency' --check 'npm test -- sort' --criterion 'EUR before USD'
    """
    from _ralph.commands import requests

    click.echo(requests.add(prd, title, fields))


@cli.command()
@options.PRD
@options.takes(options.RETRY_OPTIONS)
@options.for_people
def retry(prd: Path, ids: tuple[str, ...], answer: str) -> None:
    """Open blocked or passed tasks again, also during a run.

    Their attempts are counted from zero again. The answer goes into their notes.

    \b
    ralph retry US-003 --answer 'use the existing price table'
    """
    from _ralph.commands import requests

    click.echo(requests.retry(prd, ids, answer))


@cli.command()
@options.PRD
@options.NOTE
@options.for_people
def tell(prd: Path, note: tuple[str, ...]) -> None:
    """Add a note to a task or, without ID, to the plan.

    Every later attempt reads it. Works during a run.

    \b
    ralph tell US-003 'the price table is in src/prices.py'
    ralph tell 'no new dependencies, please'
    """
    from _ralph.commands import requests

    *task, words = note
    if len(task) > 1:
        raise click.UsageError("expected [ID] TEXT; put the text in quotes")
    click.echo(requests.tell(prd, words, *task))


@cli.command()
@options.PRD
@options.for_people
def stop(prd: Path) -> None:
    """Stop the run after the current attempt.

    \b
    ralph stop && tail -f progress.txt
    """
    from _ralph.commands import requests

    click.echo(requests.stop(prd))


@cli.command()
@options.PRD
@options.EJECT
def init(prd: Path, eject: bool) -> None:
    """Write prd.json, AGENTS.md and a line of .gitignore.

    Finds setup, checks, caches to keep, files to protect, and local settings that
    checkouts need (.worktreeinclude). Overwrites nothing; an existing plan gets only
    the keys that it lacks.

    \b
    cd my-project && ralph init
    """
    from _ralph.commands import init

    if eject:
        lines = init.eject_prompt(prd)
    else:
        lines = init.write_starters(prd) + init.next_steps(prd)
    click.echo("\n".join(lines))


@cli.command()
@options.PRD
@options.takes(options.RUN_OPTIONS)
@options.PROBE
def doctor(probe: bool, **given: Any) -> int:
    """Find problems before the run.

    Takes every option of `ralph run`. Looks at the plan, limits, git, agents
    and permissions, then runs setup, commit hooks and every check, as a
    run would. Exits with 2 if it finds an error.

    \b
    ralph doctor --agent claude --full-permissions --probe
    """
    from _ralph.commands.doctor import examine
    from _ralph.commands.run import with_signals
    from _ralph.show.live import Terminal

    chosen = options.chosen_for_run(given)
    view = Terminal()
    return with_signals(
        lambda control: examine(chosen, control, view, click.echo, probe), view
    )


@cli.command()
@options.PRD
@options.CHECK
@options.WRAP
@options.for_people
def land(**given: Any) -> int:
    """Merge finished work into the current branch.

    Merges the branch of the plan with the branch that you are on, and runs all checks
    of the plan on the result in a new checkout. If they pass, or fail on your branch,
    too, your branch moves there and your uncommitted edits stay. Otherwise nothing
    changes, and the exit status is 4.

    \b
    git switch main && ralph land --prd prices/prd.json
    """
    from _ralph.commands.land import land_branch

    return land_branch(options.chosen(given))


@cli.command()
@options.PRD
@options.FORCE
@options.for_people
def clean(prd: Path, force: bool) -> int:
    """Remove the checkouts in which agents and checks worked.

    Those of all plans of this repository, or of --prd. The next run makes new ones, and
    all work is in git. They stay while a command is at work, and where an attempt was
    cut off, as the next run goes on with it.

    \b
    ralph clean --prd prices/prd.json
    """
    from _ralph.commands.clean import clean_places

    named = prd if options.was_given("prd") else None
    return clean_places(named, force, click.echo)


@cli.command()
@options.FOLDER
def demo(folder: Path | None) -> int:
    """Watch ralph at work for 15 seconds.

    On a small real repository, with a scripted agent: no key, no network.

    \b
    ralph demo             in a new temporary folder
    ralph demo my-demo     in a folder of your choice
    """
    from _ralph.commands.demo import run_demo

    return run_demo(folder)


def main() -> None:
    """The entry point of `ralph`, and the one place where errors become messages and
    exit codes."""
    prepare_interpreter()
    try:
        sys.exit(cli.main(prog_name="ralph", standalone_mode=False))
    except click.ClickException as error:
        error = options.with_advice(error)
        error.show()
        sys.exit(Exit.USAGE)
    except click.Abort:
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        from _ralph.show.live import complain

        failed = translate(error)
        complain(str(failed))
        sys.exit(failed.exit)


def prepare_interpreter() -> None:
    """UTF-8 for names and messages in any locale, and three open streams, also where
    cron has none."""
    if sys.getfilesystemencoding() != "utf-8":
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:  # the next file opened would take its number
            null = os.open(os.devnull, os.O_RDWR)
            setattr(sys, name, os.fdopen(null, mode))


if __name__ == "__main__":
    main()
