"""The options of the command line: what several commands share, and their types. Quick to import, as
`--help` is: all but click is imported where it is used."""

from __future__ import annotations

import contextlib
import functools
import os
import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from _ralph.errors import BadInput, RalphError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from _ralph.loop.run import Options

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
    """A command; a variable holds one, with its blanks. A program that is named by a path is the one that a
    person sees from where they stand, and not what the agent finds there in its checkout."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        program, blank, rest = str(super().convert(value, param, ctx)).partition(" ")
        if "/" in program and os.path.isfile(program):
            program = shlex.quote(os.path.abspath(program))
        return f"{program}{blank}{rest}"

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
    click.option(
        "--fallback", metavar="CMD", type=Command(), help="Who works while the agent's provider is limited."
    ),
    click.option(
        "--judge", metavar="CMD", type=Command(), help="A second agent that must agree before a task passes."
    ),
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
TASK_FIELDS = (
    CHECK,
    click.option(
        "--criterion",
        "acceptanceCriteria",
        metavar="TEXT",
        multiple=True,
        help="What must be true when it is done; may be given again.",
    ),
    click.option("--description", metavar="TEXT", help="What is to be built, and why."),
    click.option("--priority", type=int, help="1 is worked first."),
    click.option(
        "--depends-on",
        "dependsOn",
        metavar="ID",
        multiple=True,
        shell_complete=known_tasks,
        help="Must pass first; may be given again.",
    ),
)
"""What `ralph add` takes of a task."""


def takes(options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A decorator that gives all of these options to a command, in this order."""
    return lambda command: functools.reduce(lambda inner, option: option(inner), reversed(options), command)


def run_options(given: dict[str, Any], *own: str) -> Options:
    """What the command line of `run`, `doctor` or `job` said, as the loop wants it; `own` are the parameters
    of that command alone."""
    from _ralph.commands.run import words_given
    from _ralph.loop.run import Options

    limits = {name: given.pop(f"max_{name}") for name in ("iterations", "attempts", "hours", "usd", "tokens")}
    limits |= {name: given.pop(name) for name in ("jobs", "max_wait")}
    words = words_given(click.get_current_context(), leave_out=("prd", *own))
    return Options(limits=limits, words=words, **given)
