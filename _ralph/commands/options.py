"""The options of the command line: what several commands share, and their types. Quick
to import, as `--help` is: all but click is imported where it is used."""

from __future__ import annotations

import functools
import math
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from _ralph.errors import BadInput

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _ralph.model import Json
    from _ralph.state.options import Options


class AboveZero(click.FloatRange):
    """A number above zero: `nan` is none, though it compares with nothing."""

    def convert(self, value: Any, *where: Any) -> float:
        number = super().convert(value, *where)
        if math.isnan(number):
            self.fail(f"{value!r} is not a valid float range.", *where)
        return float(number)


POSITIVE = click.IntRange(min=1)
ABOVE_ZERO = AboveZero(min=0, min_open=True)
# The options that are limits, and what each is called in `Limits`.
_LIMITS = {
    "jobs": "jobs",
    "max_iterations": "iterations",
    "max_attempts": "attempts",
    "max_hours": "hours",
    "max_usd": "usd",
    "max_tokens": "tokens",
    "max_wait": "max_wait",
}


# ---------------------------------------------------------------- types


def duration(value: str) -> float:
    """Seconds: the type of options that are durations."""
    from _ralph import text

    try:
        return text.seconds(value)
    except BadInput as error:
        raise click.BadParameter(str(error)) from None


def patience(value: str) -> float:
    """Seconds, or 0 not to wait at all: the type of --max-wait."""
    return 0.0 if value == "0" else duration(value)


class Command(click.types.StringParamType):
    """A command. A program that is named by a path is the one that a person sees from
    where they stand, and not what the agent finds there in its checkout."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
        program, blank, rest = str(super().convert(value, param, ctx)).partition(" ")
        if "/" in program and os.path.isfile(program):
            program = shlex.quote(os.path.abspath(program))
        return f"{program}{blank}{rest}"


# ---------------------------------------------------------------- options


PRD = click.option(
    "--prd",
    type=click.Path(dir_okay=False, path_type=Path),
    default="prd.json",
    show_default=True,
    help="The plan. progress.txt is next to it.",
)
AGENT = click.option(
    "--agent",
    metavar="CMD",
    type=Command(),
    multiple=True,
    help="The agent: claude, 'aider --model sonnet', or any command that reads a prompt. "
    "Repeat it to move to the next one after each failed attempt.",
)
CHECK = click.option(
    "--check",
    "checks",
    metavar="CMD",
    multiple=True,
    help="A check: a command that must exit with 0. Can be repeated.",
)
TASK = click.option("--task", metavar="ID", help="Only this task.")
PROMPT = click.option(
    "--prompt",
    type=click.Path(exists=True, dir_okay=False, resolve_path=True, path_type=Path),
    help="Use your own prompt template.",
)
TIMEOUT = click.option(
    "--agent-timeout",
    type=duration,
    default="60m",
    show_default=True,
    help="End an agent after this time.",
)
WRAP = click.option(
    "--wrap",
    metavar="WORDS",
    help="Put these words before agents, checks, hooks and setup: a container, a cluster. "
    "{place}, {objects} and {id} are filled in.",
)
JSON = click.option(
    "--json",
    is_flag=True,
    help="Print one JSON object on stdout; everything else goes to stderr.",
)
RUN_OPTIONS = (
    click.option(
        "--once",
        is_flag=True,
        help="Make one attempt; do not wait for a provider or for setup.",
    ),
    TASK,
    click.option(
        "-j",
        "--jobs",
        metavar="N",
        type=click.IntRange(1, 64),
        help="Work on up to N tasks at once.  [default: 1]",
    ),
    AGENT,
    click.option(
        "--fallback",
        metavar="CMD",
        type=Command(),
        help="The agent to use while the first one's provider is not available.",
    ),
    click.option(
        "--judge",
        metavar="CMD",
        type=Command(),
        help="A second agent that must approve the work before a task passes.",
    ),
    CHECK,
    PROMPT,
    click.option(
        "--max-iterations",
        metavar="N",
        type=POSITIVE,
        help="Stop after N attempts.  [default: 50]",
    ),
    click.option(
        "--max-attempts",
        metavar="N",
        type=POSITIVE,
        help="Block a task after N failed attempts.  [default: 3]",
    ),
    click.option(
        "--max-hours",
        metavar="HOURS",
        type=ABOVE_ZERO,
        help="Stop after this many hours.  [default: 12]",
    ),
    click.option(
        "--until", metavar="HH:MM", help="Stop at this time of day, such as 07:00."
    ),
    click.option(
        "--max-usd",
        metavar="USD",
        type=ABOVE_ZERO,
        help="Stop after this many dollars.",
    ),
    click.option(
        "--max-tokens",
        metavar="N",
        type=POSITIVE,
        help="Stop after this many tokens, input and output.",
    ),
    click.option(
        "--max-wait",
        metavar="DURATION",
        type=patience,
        help="Exit with 75 instead of waiting longer for a provider's limit; with 0, "
        "instead of waiting at all, for setup too.  [default: 6h]",
    ),
    TIMEOUT,
    click.option(
        "--idle-timeout",
        type=duration,
        default="20m",
        show_default=True,
        help="End an agent that streams events after this much silence.",
    ),
    click.option("--branch", metavar="NAME", help="Land the work on this branch."),
    click.option(
        "--allow-overage",
        is_flag=True,
        help="Continue when a subscription starts to bill extra usage.",
    ),
    click.option(
        "--full-permissions",
        is_flag=True,
        help="Let the agent do anything that you can do.",
    ),
    click.option(
        "--starts-red",
        is_flag=True,
        help="Begin although no check of the plan is green, or a commit hook refuses.",
    ),
    WRAP,
    click.option(
        "--no-awake", is_flag=True, help="Let the machine sleep during the run."
    ),
    click.option(
        "--notify",
        metavar="CMD",
        help="A command that gets JSON on stdin when a task passes or is blocked, and "
        "when the run waits or ends.",
    ),
    JSON,
    click.option("-q", "--quiet", is_flag=True, help="Print only errors."),
    click.option(
        "-v", "--verbose", is_flag=True, help="Print everything that the agent prints."
    ),
    # Gone, and harmless: they are named, and the run goes on.
    click.option("--no-wait", is_flag=True, hidden=True),
    click.option("--notify-on", multiple=True, hidden=True),
)
"""What `ralph run` takes, and `ralph doctor` with it."""
FORMAT = click.option(
    "--format",
    type=click.Choice(["text", "md", "json"]),
    default="text",
    show_default=True,
    help="text for a terminal, md to paste into an issue, json for programs.",
)
OUTPUT = click.option(
    "-o",
    "--output",
    metavar="FILE",
    type=click.File("wb", lazy=True),
    help="Where to write it; - for stdout.  [default: .ralph/report.html]",
)
NOTE = click.argument(
    "note",
    metavar="[ID] TEXT",
    nargs=-1,
    required=True,
)
FOLDER = click.argument(
    "folder",
    required=False,
    type=click.Path(file_okay=False, path_type=Path),
)
EJECT = click.option(
    "--eject",
    is_flag=True,
    help="Write ralph's prompt template as PROMPT.md, to change it.",
)
PROBE = click.option(
    "--probe",
    is_flag=True,
    help="Run one cheap turn of each agent with nothing but HOME and PATH, as cron does.",
)
PLAN_OPTIONS = (
    click.argument(
        "briefs",
        metavar="BRIEF...",
        nargs=-1,
        required=True,
        type=click.Path(path_type=str, allow_dash=True),
    ),
    click.option(
        "--planner",
        metavar="CMD",
        type=Command(),
        help="The agent that plans. Default: the plan's planner, or its agent.",
    ),
    click.option(
        "--force",
        is_flag=True,
        help="Replace a plan with open tasks, or whose work HEAD lacks; the old one is kept.",
    ),
)
"""What `ralph plan` takes."""
RETRY_OPTIONS = (
    click.argument("ids", metavar="ID...", nargs=-1, required=True),
    click.option(
        "--answer",
        default="",
        metavar="TEXT",
        help="Your answer. The next prompt shows it.",
    ),
)
"""What `ralph retry` takes."""
FORCE = click.option("--force", is_flag=True, help="Also where an attempt was cut off.")
TASK_FIELDS = (
    CHECK,
    click.option(
        "--criterion",
        "acceptanceCriteria",
        metavar="TEXT",
        multiple=True,
        help="What must be true when the task is done. Can be repeated.",
    ),
    click.option("--description", metavar="TEXT", help="What to build, and why."),
    click.option("--priority", metavar="N", type=int, help="1 comes first."),
    click.option(
        "--depends-on",
        "dependsOn",
        metavar="ID",
        multiple=True,
        help="A task that must pass first. Can be repeated.",
    ),
)
"""What `ralph add` takes of a task."""


def takes(options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A decorator that gives all of these options to a command, in this order."""

    def decorate(command: Callable[..., Any]) -> Callable[..., Any]:
        for option in reversed(options):
            command = option(command)
        return command

    return decorate


# ---------------------------------------------------------------- what was given


def chosen(given: Json) -> Options:
    """What was given on the command line, as the loop wants it. A usage error for a
    variable of an option, which is not read any more."""
    from _ralph import gone
    from _ralph.state.options import Options

    try:
        gone.refuse_variables(os.environ)
    except BadInput as error:
        raise click.UsageError(str(error)) from None
    return Options(**given)


def chosen_for_run(given: Json) -> Options:
    """The same, of a command that takes what `run` takes."""
    from _ralph import gone

    limits: Json = {}
    for option, limit in _LIMITS.items():
        limits[limit] = given.pop(option)
    warnings = []
    if given.pop("no_wait"):
        limits["max_wait"] = 0.0
        warnings.append(gone.instead_of("--no-wait"))
    if given.pop("notify_on"):
        warnings.append(gone.instead_of("--notify-on"))
    return chosen({**given, "limits": limits, "warnings": tuple(warnings)})


def was_given(name: str) -> bool:
    """Whether an option was given."""
    source = click.get_current_context().get_parameter_source(name)
    return source is not ParameterSource.DEFAULT


def for_people(command: Callable[..., Any]) -> Callable[..., Any]:
    """A command that is refused inside an attempt: an agent may not steer the loop that
    runs it."""

    @functools.wraps(command)
    def called(**given: Any) -> Any:
        if os.environ.get("RALPH_RUN_ID"):
            name = click.get_current_context().info_name
            raise BadInput(
                f"`ralph {name}` is for people: it is refused inside an attempt"
            )
        return command(**given)

    return called


def with_advice(error: click.ClickException) -> click.ClickException:
    """The error, with what to do instead of an option that is gone."""
    from _ralph import gone

    if isinstance(error, click.NoSuchOption) and error.option_name in gone.OPTIONS:
        return click.UsageError(gone.instead_of(error.option_name), error.ctx)
    return error
