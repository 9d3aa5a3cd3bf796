"""docs/prd.md from prd.schema.json and the table of aliases, docs/cli.md from click:
`python -m tests.make_docs` writes both."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

import ralph
from _ralph.state import prd

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "prd.schema.json").read_text("utf-8"))
DEFINITIONS = SCHEMA["$defs"]

PRD_HEAD = """\
# prd.json reference

Generated from `prd.schema.json` by `python -m tests.make_docs`. `ralph init` names that schema in the plan, so that editors complete and check it. [plan.md](plan.md) has an example.

A plan needs a list of tasks and, for each open task, a check: its own or one of the plan. Unknown keys are kept and shown to the agent; one that is nearly a known key (`cheks`) is refused. Patterns are those of .gitignore.
"""

ALIASES = """\
## Other formats

Plans of other tools work unchanged, and ralph marks a pass with the file's own key. Of several such keys, the first one counts.

"""

MEANINGS = {
    "tasks": "the list of tasks, which may also be the whole document",
    "project": "the name of the project",
    "title": "a task's title",
    "criteria": "its acceptance criteria",
    "depends_on": "its dependencies",
    "passed": "whether it is done",
    "skip": "whether it is on hold",
    "blocked_reason": "why it is on hold",
}

CLI_HEAD = """\
# Command line reference

Generated from `ralph --help` by `python -m tests.make_docs`. All commands but `demo` take `--prd FILE`; what several take is described under `ralph run`.

Options come before prd.json, and prd.json before defaults. Durations are `90s`, `10m`, `2h` or plain seconds. The README lists the [exit codes](../README.md#exit-codes).

`RALPH_PLACES` is the folder for checkouts, `RALPH_DEBUG=1` prints the traceback of an unexpected error, `NO_COLOR=1` turns colors off.

Shell completion: `eval "$(_RALPH_COMPLETE=bash_source ralph)"` in `~/.bashrc`; also `zsh_source` and `fish_source`.
"""


# ---------------------------------------------------------------- docs/prd.md


SECTIONS = """
The plan -> properties
`setup` as an object -> $defs setup properties
`limits`: for each run -> properties limits properties
`budget`: for all runs of the plan -> properties budget properties
A task -> $defs task properties
`limits`: for one task -> $defs task properties limits properties
A check: a string, a list of words, or an object -> $defs check properties
"""
"""The sections of docs/prd.md, and where their keys are in the schema."""


def plan_reference() -> str:
    """The whole text of docs/prd.md."""
    parts = [PRD_HEAD]
    for line in SECTIONS.strip().splitlines():
        title, _, path = line.partition(" -> ")
        fields = SCHEMA
        for name in path.split():
            fields = fields[name]
        parts.append(keys(title, fields))
    return "\n".join([*parts, ALIASES + other_words()])


def keys(title: str, fields: dict[str, Any]) -> str:
    """A section with a line for every key, but for those that are gone, and those that
    are only other words."""
    lines = [f"## {title}", ""]
    for name, field in fields.items():
        meaning = field["description"]
        if "deprecated" in field or meaning.startswith("Another word"):
            continue
        lines.append(f"- `{name}`, {kinds(field)}: {meaning}")
    return "\n".join(lines) + "\n"


def kinds(field: dict[str, Any]) -> str:
    """What may stand there, in words. `null`, which is the same as nothing, is left
    out."""
    name = field.get("$ref", "").rpartition("/")[2]
    if name == "checks":
        return "list of checks"
    types = DEFINITIONS.get(name, field).get("type", "anything")
    if isinstance(types, str):
        types = [types]
    words = {"integer": "number", "array": "list"}
    named = [words.get(kind, kind) for kind in types if kind != "null"]
    return " or ".join(dict.fromkeys(named))


def other_words() -> str:
    """The keys and values that plans of other tools have, a line for each meaning."""
    ranked = sorted(prd.PRIORITY_WORDS, key=lambda word: prd.PRIORITY_WORDS[word])
    words: dict[str, Iterable[str]] = {
        MEANINGS[meaning]: found for meaning, found in prd.ALIASES.items()
    }
    words["a `status` that means done"] = prd.DONE_WORDS
    words["a `status` that means on hold"] = prd.HELD_WORDS
    words["a `priority`, most urgent first"] = ranked
    lines = []
    for meaning, found in words.items():
        listed = ", ".join(f"`{word}`" for word in found)
        lines.append(f"- {meaning}: {listed}\n")
    return "".join(lines)


# ---------------------------------------------------------------- docs/cli.md


def command_reference() -> str:
    """The whole text of docs/cli.md. An option that run has, too, is described there
    alone."""
    parts = [CLI_HEAD]
    of_run: set[str] = set()
    for name, command in ralph.cli.commands.items():
        if not command.hidden:
            parts.append(command_section(name, command, of_run))
        if name == "run":
            of_run = {option.opts[-1] for option in options(command)}
    return "\n".join(parts)


def options(command: click.Command) -> list[click.Option]:
    """The options of a command that help shows."""
    return [
        param
        for param in command.params
        if isinstance(param, click.Option) and not param.hidden
    ]


def command_section(name: str, command: click.Command, of_run: set[str]) -> str:
    """What a command does, an example, and its options."""
    parent = click.Context(ralph.cli, info_name="ralph")
    context = click.Context(command, info_name=name, parent=parent)
    usage = " ".join(["ralph", name, *command.collect_usage_pieces(context)[1:]])
    words, _, example = (command.help or "").partition("\b\n")
    paragraphs = [" ".join(part.split()) for part in words.strip().split("\n\n")]
    code = textwrap.indent(textwrap.dedent(example).rstrip(), "    ")
    own = []
    shared = []
    for option in options(command):
        long = option.opts[-1]
        if long == "--prd" and of_run:
            continue  # as the head of the page says
        if long in of_run:
            shared.append(long)
        else:
            own.append(option_line(context, option))
    blocks = [f"## `{usage}`", *paragraphs, code]
    if own:
        blocks.append("\n".join(own))
    if shared:
        blocks.append(shared_line(shared, of_run))
    return "\n\n".join(blocks) + "\n"


def shared_line(shared: list[str], of_run: set[str]) -> str:
    """Which options of run a command takes, too."""
    if of_run <= {"--prd", *shared}:
        return "Takes every option of [`ralph run`](#ralph-run)."
    named = ", ".join(f"`{name}`" for name in shared)
    return f"Also: {named}."


def option_line(context: click.Context, option: click.Option) -> str:
    """One option: its names, what it does and its default."""
    names = [f"`{name}`" for name in option.opts]
    if not option.is_flag:
        names[-1] = f"`{option.opts[-1]} {option.make_metavar(context)}`"
    default = ""
    if option.show_default:
        words = option.default
        if isinstance(words, (list, tuple)):
            words = " ".join(map(str, words))
        default = f" Default: {words}."
    said = (option.help or "").replace("  [default: ", " Default: ").replace("]", ".")
    return f"- {', '.join(names)}: {said}{default}"


if __name__ == "__main__":
    (ROOT / "docs" / "prd.md").write_text(plan_reference(), "utf-8")
    (ROOT / "docs" / "cli.md").write_text(command_reference(), "utf-8")
