"""The options of the command line: what several commands share, and their types. Quick
to import, as `--help` is: all but click is imported where it is used."""

from __future__ import annotations

import contextlib
import functools
import os
import re
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from typing import Any

import click
from click.core import ParameterSource

from _ralph.errors import BadInput, RalphError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from pathlib import Path

    from _ralph.loop.options import Options
    from _ralph.model import Json

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
    try:
        return duration(value if value.strip()[-1:].isalpha() else f"{value}h") / 3600
    except click.BadParameter:
        raise click.BadParameter(
            f"expected hours, such as 8, 8h or 90m, found {value!r}"
        ) from None


def known_tasks(
    ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[str]:
    """Ids that a shell may complete; none if there is no plan that can be read."""
    from pathlib import Path

    from _ralph.state import prd

    with contextlib.suppress(RalphError, OSError):
        plan = prd.load(ctx.params.get("prd") or Path("prd.json"))
        return [task.id for task in plan.tasks if task.id.startswith(incomplete)]
    return []


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


def with_meant(error: click.ClickException) -> click.ClickException:
    """The error, with the option that was meant where somebody named a task or a plan
    without it."""
    found = re.search(r"unexpected extra arguments? \((\S+)", error.message)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if found and context:
        name = found[1].rstrip(")")
        option = "--prd" if os.path.isfile(name) else "--task"
        if any(option in one.opts for one in context.command.params):
            return click.UsageError(
                f"{error.message}; is `{option} {name}` meant?", context
            )
    return error


def was_given(name: str) -> bool:
    """Whether an option was given, by hand or by a variable."""
    return (
        click.get_current_context().get_parameter_source(name)
        is not ParameterSource.DEFAULT
    )


class FilePath(click.Path):
    """A `pathlib.Path`, which takes 3 ms to import: `--help` does without."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> Path:
        from pathlib import Path

        return Path(os.fsdecode(super().convert(value, param, ctx)))


PRD = click.option(
    "--prd",
    envvar="RALPH_PRD",
    type=FilePath(dir_okay=False),
    default="prd.json",
    show_default=True,
    help="The plan. progress.txt is next to it.",
)


class Command(click.types.StringParamType):
    """A command; a variable holds one, with its blanks. A program that is named by a
    path is the one that a person sees from where they stand, and not what the agent
    finds there in its checkout."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> str:
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
    help="The agent: claude, 'aider --model sonnet', or any command that reads a prompt. Repeat it to "
    "move to the next one after each failed attempt.",
)
CHECK = click.option(
    "--check",
    "checks",
    metavar="CMD",
    multiple=True,
    allow_from_autoenv=False,
    help="A check: a command that must exit with 0. Can be repeated.",
)
TASK = click.option(
    "--task", metavar="ID", shell_complete=known_tasks, help="Only this task."
)
PROMPT = click.option(
    "--prompt",
    type=FilePath(exists=True, dir_okay=False, resolve_path=True),
    help="Use your own prompt template.",
)
TIMEOUT = click.option(
    "--agent-timeout",
    type=duration,
    default="60m",
    show_default=True,
    help="End an agent after this time.",
)
SANDBOX = click.option(
    "--sandbox",
    type=click.Choice(["bwrap"]),
    help="Run agents, checks, hooks and setup in bubblewrap.",
)
WRAP = click.option(
    "--wrap",
    metavar="WORDS",
    help="Put these words before agents, checks, hooks and setup: a container, a cluster. {place}, {objects} "
    "and {id} are filled in.",
)
JSON = click.option(
    "--json",
    is_flag=True,
    help="Print one JSON object on stdout; everything else goes to stderr.",
)


def _gone(_ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    if value is not None:
        from _ralph.loop.options import GONE

        raise BadInput(f"{param.opts[0]} {GONE}")


RUN_OPTIONS = (
    *(  # also as variables: without a word, agents would work here
        click.option(
            name, hidden=True, help="Gone.", expose_value=False, callback=_gone
        )
        for name in ("--launch", "--launch-checks")
    ),
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
    click.option(
        "--rooms",
        metavar="N",
        type=click.IntRange(1, 64),
        help="Check up to N candidates at once.  [default: 1]",
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
        type=hours,
        help="Stop after this time: a number of hours, or a duration such as 90m.  [default: 12]",
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
        type=duration,
        help="Exit instead of waiting longer for a provider's limit.  [default: 6h]",
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
        "--no-wait",
        is_flag=True,
        help="Exit with 75 instead of waiting for a provider or for setup.",
    ),
    click.option(
        "--full-permissions",
        is_flag=True,
        help="Let the agent do anything that you can do.",
    ),
    SANDBOX,
    WRAP,
    click.option(
        "--no-awake", is_flag=True, help="Let the machine sleep during the run."
    ),
    click.option(
        "--notify",
        metavar="CMD",
        help="A command that gets JSON on stdin when a task is blocked, and when the run waits or ends.",
    ),
    click.option(
        "--notify-on",
        type=click.Choice(["passed", "blocked", "waiting", "stopped"]),
        multiple=True,
        help="The events of which it is told instead; repeat it for several.",
    ),
    JSON,
    click.option("-q", "--quiet", is_flag=True, help="Print only errors."),
    click.option(
        "-v", "--verbose", is_flag=True, help="Print everything that the agent prints."
    ),
)
"""What `ralph run` takes, and `ralph doctor` with it."""
TASK_FIELDS = (
    CHECK,
    click.option(
        "--criterion",
        "acceptanceCriteria",
        metavar="TEXT",
        multiple=True,
        allow_from_autoenv=False,
        help="What must be true when the task is done. Can be repeated.",
    ),
    click.option("--description", metavar="TEXT", help="What to build, and why."),
    click.option("--priority", metavar="N", type=int, help="1 comes first."),
    click.option(
        "--depends-on",
        "dependsOn",
        metavar="ID",
        multiple=True,
        allow_from_autoenv=False,
        shell_complete=known_tasks,
        help="A task that must pass first. Can be repeated.",
    ),
)
"""What `ralph add` takes of a task."""


def takes(options: Sequence[Callable[..., Any]]) -> Callable[..., Any]:
    """A decorator that gives all of these options to a command, in this order."""
    return lambda command: functools.reduce(
        lambda inner, option: option(inner), reversed(options), command
    )


def run_options(given: Json, *own: str) -> Options:
    """The command line of `run` or `doctor` as the loop wants it; `own` are the
    parameters of that command alone."""
    from _ralph.loop.options import Options

    limits = {
        name: given.pop(f"max_{name}")
        for name in ("iterations", "attempts", "hours", "usd", "tokens")
    }
    limits |= {name: given.pop(name) for name in ("jobs", "rooms", "max_wait")}
    words = words_typed(click.get_current_context(), sys.argv[2:], {"prd", *own})
    return Options(limits=limits, words=words, **given)


def words_typed(
    context: click.Context, args: Sequence[str], leave_out: Collection[str]
) -> tuple[str, ...]:
    """The options among `args` as a person typed them, then those that a variable gave,
    without those that set the parameters `leave_out`. They may be used from another
    folder, so a path is absolute."""
    typed, _, order = context.command.make_parser(context).parse_args([*args])
    words: list[str] = []
    for option in dict.fromkeys([*order, *context.command.params]):
        name, source = str(option.name), context.get_parameter_source(str(option.name))
        if (
            name in leave_out
            or source is ParameterSource.DEFAULT
            or not isinstance(option, click.Option)
        ):
            continue
        flag = next((flag for flag in option.opts if flag in args), option.opts[-1])
        if option.is_flag:
            words += [flag] * bool(context.params[name])
            continue
        given = typed[name] if name in typed else option.value_from_envvar(context)
        for value in given if isinstance(given, list) else [given]:
            has_path = isinstance(option.type, (Command, click.Path))
            words += [
                flag,
                str(option.type.convert(value, option, context) if has_path else value),
            ]
    return tuple(words)
