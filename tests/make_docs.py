"""docs/prd.md from prd.schema.json and the table of aliases, docs/cli.md from click:
`python -m tests.make_docs` writes both."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import ralph
from _ralph.state import prd

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "prd.schema.json").read_text("utf-8"))
DEFINITIONS = SCHEMA["$defs"]

HEAD = """\
# prd.json reference

This page is generated from `prd.schema.json` (`python -m tests.make_docs`). `ralph init` puts a copy into `.ralph/` and names it in the plan, `"$schema": ".ralph/prd.schema.json"`: editors that support JSON Schema complete and validate the plan. In a clone, or after an upgrade, `ralph init` writes that copy again.

A plan needs only a list of tasks and, for each open task, a check: its own or one of the plan. Unknown keys are kept and shown to the agent; one that is nearly a known key (`cheks`) is refused. An invalid plan is refused with the location of the error and what was expected. [plan.md](plan.md) has examples.
"""

ALIASES = """\
## Other formats

Plans in the formats of other tools work unchanged, and ralph marks a pass with the file's own key. If a file has several of these keys, the first one in the list is used.

| meaning | keys |
|---|---|
"""

MEANINGS = {
    "tasks": "the list of tasks (the whole document may also be the list)",
    "project": "the name of the project",
    "title": "a task's title",
    "criteria": "its acceptance criteria",
    "depends_on": "its dependencies",
    "passed": "whether it is done",
    "skip": "whether it is on hold",
    "blocked_reason": "why it is on hold",
    "gates": "commands of other tools: ralph suggests them as checks, and never runs them unasked",
}

KINDS = {
    "string": "string",
    "integer": "number",
    "number": "number",
    "boolean": "boolean",
    "array": "list",
    "object": "object",
    "anything": "anything",
}


def document() -> str:
    """The whole text of docs/prd.md."""
    plan, task, check = (
        part["properties"]
        for part in (SCHEMA, DEFINITIONS["task"], DEFINITIONS["check"])
    )
    words = [
        ("a `status` that means done", prd.DONE_WORDS),
        ("a `status` that means on hold", prd.HELD_WORDS),
        (
            "a `priority`, most urgent first",
            sorted(prd.PRIORITY_WORDS, key=lambda w: prd.PRIORITY_WORDS[w]),
        ),
    ]
    parts = [
        HEAD,
        section("The plan", plan),
        section("`setup` as an object", DEFINITIONS["setup"]["properties"]),
        section("`limits`: for each run", plan["limits"]["properties"]),
        section("`budget`: for all runs of the plan", plan["budget"]["properties"]),
        section("A task", task),
        section("`limits`: for one task", task["limits"]["properties"]),
        section(
            "A check",
            check,
            "A plain string or list of words is a check that has only `run`.\n\n",
        ),
        ALIASES
        + "".join(
            f"| {MEANINGS[name]} | {code(keys)} |\n"
            for name, keys in prd.ALIASES.items()
        ),
        "| value | words |\n|---|---|\n"
        + "".join(f"| {name} | {code(found)} |\n" for name, found in words),
        "[agents.md](agents.md#adding-an-agent) describes the rows of `agents`.\n",
    ]
    return "\n".join(parts)


def section(title: str, fields: dict[str, Any], said: str = "") -> str:
    return f"## {title}\n\n{said}| key | value | meaning |\n|---|---|---|\n" + "".join(
        rows(fields)
    )


def rows(fields: dict[str, Any]) -> Iterator[str]:
    """A line for every key, but for those that are gone, and those that are only other
    words: they have a table of their own."""
    for name, field in fields.items():
        if "deprecated" in field:
            continue
        if not field["description"].startswith("Another word"):
            meaning = re.sub(r"(\{\{.*\}\})", r"`\1`", field["description"])
            yield f"| `{name}` | {kinds(field)} | {meaning} |\n"


def kinds(field: dict[str, Any]) -> str:
    """What may stand there, in words; `null`, which is the same as nothing, is left
    out."""
    name = field.get("$ref", "").rpartition("/")[2]
    types = DEFINITIONS.get(name, field).get("type", "anything")
    words = [
        KINDS[word]
        for word in ([types] if isinstance(types, str) else types)
        if word != "null"
    ]
    return "list of checks" if name == "checks" else " or ".join(dict.fromkeys(words))


def code(words: Any) -> str:
    return ", ".join(f"`{word}`" for word in words)


CLI_HEAD = """\
# Command line reference

This page is generated from ralph's own help (`python -m tests.make_docs`). `ralph COMMAND --help` prints the same for one command.

An option takes precedence over prd.json, and prd.json over the default. Durations are written as `90s`, `10m`, `2h` or plain seconds. The [README](../README.md#exit-codes) lists the exit codes.

There are three variables, and none for options: `RALPH_PLACES` is the folder for checkouts, `RALPH_DEBUG=1` prints the traceback of an unexpected error, and `NO_COLOR=1` turns colors off.

Shell completion: put `eval "$(_RALPH_COMPLETE=bash_source ralph)"` into `~/.bashrc`. For other shells use `zsh_source` or `fish_source`. It completes commands, options and task ids.
"""


def command_line() -> str:
    """The whole text of docs/cli.md."""
    context = click.Context(ralph.cli, info_name="ralph", **ralph.cli.context_settings)
    shared = {param.name for param in ralph.cli.commands["run"].params}
    parts = [CLI_HEAD]
    for name, command in ralph.cli.commands.items():
        if not command.hidden:
            inner = click.Context(
                command, info_name=name, parent=context, **command.context_settings
            )
            own = [
                param
                for param in command.params
                if isinstance(param, click.Option) and not param.hidden
            ]
            whole = name != "run" and shared <= {param.name for param in command.params}
            shown = [param for param in own if not whole or param.name not in shared]
            parts.append(command_section(inner, shown, whole))
    return "\n".join(parts)


def command_section(
    context: click.Context, options: list[click.Option], as_run: bool
) -> str:
    """What a command does, an example, and a table of `options`; `as_run` if it takes
    those of run, too."""
    usage = " ".join(context.command.collect_usage_pieces(context)[1:])
    words, _, example = (context.command.help or "").partition("\b\n")
    said = "\n\n".join(" ".join(part.split()) for part in words.strip().split("\n\n"))
    blocks = [f"## `ralph {f'{context.info_name} {usage}'.strip()}`", said]
    blocks.append(
        "\n".join(
            f"    {line}" for line in textwrap.dedent(example).rstrip().splitlines()
        )
    )
    if options:
        head = "| option | default | meaning |\n|---|---|---|\n"
        blocks.append(
            head + "\n".join(option_row(context, option) for option in options)
        )
    if as_run:
        blocks.append("Also takes every option of [`ralph run`](#ralph-run).")
    return "\n\n".join(blocks) + "\n"


def _shown(default: object) -> str:
    """A default, as a person would type it."""
    words = default if isinstance(default, (list, tuple)) else [default]
    return " ".join(map(str, words))


def option_row(context: click.Context, option: click.Option) -> str:
    """One option: its names, its default and what it does."""
    takes = "" if option.is_flag else f" {option.make_metavar(context)}"
    names = ", ".join(f"`{name}`" for name in option.opts[:-1]) + ", " * (
        len(option.opts) > 1
    )
    said, _, default = (option.help or "").partition("  [default: ")
    default = default.rstrip("]") or (
        _shown(option.default) if option.show_default else ""
    )
    cells = (
        f"{names}`{option.opts[-1]}{takes}`",
        default,
        said,
    )
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


if __name__ == "__main__":
    for page, content in (("prd.md", document()), ("cli.md", command_line())):
        (ROOT / "docs" / page).write_text(content, "utf-8")
