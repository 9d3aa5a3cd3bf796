"""docs/prd.md from prd.schema.json and the table of aliases: `python -m tests.make_docs > docs/prd.md`."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from _ralph.state import prd

ROOT = Path(__file__).resolve().parent.parent
SCHEMA = json.loads((ROOT / "prd.schema.json").read_text("utf-8"))
DEFINITIONS = SCHEMA["$defs"]

HEAD = """\
# prd.json, field by field

Made from `prd.schema.json` by `python -m tests.make_docs > docs/prd.md`. An editor that knows JSON Schema completes and checks a plan with it: `"$schema": "./prd.schema.json"`, with the path to your copy.

Only a list of tasks and one check are required. Keys that are not named here are kept, and shown to the agent. What a plan may get wrong is refused with its place, and with what was expected. [checks.md](checks.md) is about writing criteria and checks.
"""

ALIASES = """\
## Other words for the same

Plans of other tools run as they are, and a pass is written in the file's own words. The first key that stands in the file is read.

| meaning | keys |
|---|---|
"""

MEANINGS = {
    "tasks": "the tasks; or the whole document is the list",
    "project": "the project",
    "branch": "the branch",
    "title": "a task's title",
    "criteria": "its criteria",
    "depends_on": "its dependencies",
    "passed": "done",
    "skip": "held back",
    "blocked_reason": "why it is held back",
    "gates": "commands of other tools: offered in a message, never run unasked",
}

KINDS = {
    "string": "text",
    "integer": "number",
    "number": "number",
    "boolean": "true or false",
    "array": "list",
    "object": "object",
    "anything": "anything",
}


def document() -> str:
    """The whole text of docs/prd.md."""
    plan, task, check = (part["properties"] for part in (SCHEMA, DEFINITIONS["task"], DEFINITIONS["check"]))
    words = [
        ("a status that means done", prd.DONE_WORDS),
        ("a status that holds back", prd.HELD_WORDS),
        ("a priority, the first ones first", sorted(prd.PRIORITY_WORDS, key=lambda w: prd.PRIORITY_WORDS[w])),
    ]
    parts = [
        HEAD,
        section("The plan", plan),
        section("`setup` as an object", DEFINITIONS["setup"]["properties"]),
        section("`limits`: for one run", plan["limits"]["properties"]),
        section("`budget`: for the plan's whole life", plan["budget"]["properties"]),
        section("A task", task),
        section(
            "A check", check, "A text alone, or a list of words alone, is a check with just its `run`.\n\n"
        ),
        ALIASES + "".join(f"| {MEANINGS[name]} | {code(keys)} |\n" for name, keys in prd.ALIASES.items()),
        "| words | |\n|---|---|\n" + "".join(f"| {name} | {code(found)} |\n" for name, found in words),
        "Rows of `agents` are described in [agents.md](agents.md).\n",
    ]
    return "\n".join(parts)


def section(title: str, fields: dict[str, Any], said: str = "") -> str:
    return f"## {title}\n\n{said}| key | value | meaning |\n|---|---|---|\n" + "".join(rows(fields))


def rows(fields: dict[str, Any]) -> Iterator[str]:
    """A line for every key, but for those that are only other words: they have a table of their own."""
    for name, field in fields.items():
        if not field["description"].startswith("Another word"):
            meaning = re.sub(r"(\{\{.*\}\})", r"`\1`", field["description"])
            yield f"| `{name}` | {kinds(field)} | {meaning} |\n"


def kinds(field: dict[str, Any]) -> str:
    """What may stand there, in words; `null`, which is the same as nothing, is left out."""
    name = field.get("$ref", "").rpartition("/")[2]
    types = DEFINITIONS.get(name, field).get("type", "anything")
    words = [KINDS[word] for word in ([types] if isinstance(types, str) else types) if word != "null"]
    return "list of checks" if name == "checks" else " or ".join(dict.fromkeys(words))


def code(words: Any) -> str:
    return ", ".join(f"`{word}`" for word in words)


if __name__ == "__main__":
    print(document(), end="")
