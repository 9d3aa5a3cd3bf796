"""What people read is true: README, changelog, docs, help texts and metadata against
the code."""

from __future__ import annotations

import ast
import fnmatch
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from graphlib import TopologicalSorter
from pathlib import Path
from typing import Any

import click
import jinja2
import jinja2.meta
import pytest

import ralph
from _ralph import __version__, text
from _ralph.agents.prompt import prompt_values
from _ralph.agents.registry import load_rows
from _ralph.errors import Exit, Stop
from _ralph.files import resource
from _ralph.model import Paths, Plan, Tokens, Verdict
from _ralph.show import status
from _ralph.state import prd, summary
from _ralph.state.history import LABELS, History
from _ralph.state.limits import NONE, Limits
from _ralph.state.records import AttemptEnded
from _ralph.state.summary import Running, Worker
from tests import make_docs, transcript

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text("utf-8")
COMMANDS = sorted(
    (name, one) for name, one in ralph.cli.commands.items() if not one.hidden
)
FOREIGN_OPTIONS = {
    "--dangerously-skip-permissions", "--init", "--launch", "--launch-checks", "--no-git", "--no-wait", "--notify-on", "--resume-failed",
    "--sandbox", "--skip-trust", "--userns",
}  # fmt: skip
SKILLS = [
    f"skills/{path.parent.name}/SKILL.md"
    for path in sorted((ROOT / "skills").glob("*/SKILL.md"))
]
DOCUMENTS = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md"))),
]


def section(title: str, document: str = README) -> str:
    """The text under `## title`, up to the next heading of its kind."""
    parts = re.split(r"^## (.+)\n", document, flags=re.MULTILINE)
    return dict(zip(parts[1::2], parts[2::2], strict=True))[title]


def rows(source: str) -> dict[str, list[str]]:
    """The cells of every table row, by what the first cell says without backticks."""
    lines = [
        line.strip().strip("|").split(" | ")
        for line in source.splitlines()
        if line.startswith("| ")
    ]
    return {
        cells[0].replace("`", "").strip(): [cell.strip() for cell in cells[1:]]
        for cells in lines
    }


def options(command: click.Command) -> Iterator[str]:
    for param in command.params:
        if isinstance(param, click.Option) and not param.hidden:
            yield from param.opts


def names(source: str, word: str) -> bool:
    return re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", source) is not None


def page(name: str) -> str:
    """The text of a page of docs/."""
    return (ROOT / "docs" / name).read_text("utf-8")


def json_blocks(document: str) -> list[Any]:
    source = (ROOT / document).read_text("utf-8")
    return [
        json.loads(block)
        for block in re.findall(r"```json\n(.*?)```", source, re.DOTALL)
    ]


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan of one task, in a folder of its own."""
    return prd.read('{"tasks": [{"id": "A", "title": "a"}]}', tmp_path / "prd.json")


def is_plan(block: Any) -> bool:
    return isinstance(block, list) or any(
        key in block for key in ("userStories", "tasks")
    )


def repository_files() -> Iterator[Path]:
    """Every file that belongs to the repository: what .gitignore does not name."""
    ignored = [
        ".git",
        *(
            line.rstrip("/")
            for line in (ROOT / ".gitignore").read_text("utf-8").split()
        ),
    ]
    for folder, inner, files in os.walk(ROOT):
        inner[:] = [n for n in inner if not any(fnmatch.fnmatch(n, p) for p in ignored)]
        yield from (
            Path(folder, n)
            for n in files
            if not any(fnmatch.fnmatch(n, p) for p in ignored)
        )


# ---------------------------------------------------------------- commands and options


@pytest.mark.parametrize(
    ("page", "made"),
    [("prd.md", make_docs.document), ("cli.md", make_docs.command_line)],
)
def test_reference_pages_are_made_from_the_code(
    page: str, made: Callable[[], str]
) -> None:
    assert (ROOT / "docs" / page).read_text("utf-8") == made(), (
        "run: python -m tests.make_docs"
    )
    assert make_docs.MEANINGS.keys() == prd.ALIASES.keys()


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_the_reference_has_every_command_with_its_options(
    name: str, command: click.Command
) -> None:
    parts = re.split(
        r"^## `ralph (\S+?)[ `].*\n", make_docs.command_line(), flags=re.MULTILINE
    )
    sections = dict(zip(parts[1::2], parts[2::2], strict=True))
    where = sections[name] + sections["run"] * (
        "every option of [`ralph run`]" in sections[name]
    )
    assert [option for option in options(command) if not names(where, option)] == []


@pytest.mark.parametrize("document", sorted({*DOCUMENTS, *SKILLS} - {"CHANGELOG.md"}))
def test_no_command_and_no_option_is_named_that_is_not_there(document: str) -> None:
    source = (ROOT / document).read_text("utf-8")
    known = {
        name: {*options(command), "--help"}
        for name, command in ralph.cli.commands.items()
    }
    wrong = []
    for words in ralph_commands(source):
        name, *rest = words.split()
        used = [word.partition("=")[0] for word in rest if re.match(r"--?[a-z]", word)]
        if name.startswith("-"):
            wrong += [words] * (name not in ("--help", "--version", "-h"))
        else:
            wrong += [
                f"{name} {word}" for word in used if word not in known.get(name, {word})
            ]
            wrong += [name] * (name not in known)
    anywhere = set().union(*known.values()) | {"--version"} | FOREIGN_OPTIONS
    wrong += [
        word
        for word in re.findall(r"`(--[a-z][a-z-]*)", source)
        if word not in anywhere
    ]
    assert wrong == []


def ralph_commands(source: str) -> Iterator[str]:
    """Every `ralph ...` in the code of a document, without `ralph` and what is in
    quotes."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", source, re.DOTALL | re.MULTILINE)
    fenced = [code for kind, code in blocks if kind in ("", "sh")]
    rest = re.sub(r"^```.*?^```", "", source, flags=re.DOTALL | re.MULTILINE)
    indented = re.findall(r"^    (?!\|)(.*)$", rest, re.MULTILINE)
    inline = re.findall(r"`([^`\n]+)`", rest)
    for line in "\n".join([*fenced, *indented, *inline]).splitlines():
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "WORDS", line.partition(" #")[0])
        for found in re.finditer(r"(?:^|[\s(/])ralph (-?[a-z][^|;&<>()]*)", bare):
            yield found[1]


def test_commands_in_documents_are_found() -> None:
    shown = "a `ralph run --once` b\n\n    x/ralph status --json | jq --raw  # ralph no\n\n```sh\n(cd x && ralph stop)\n```\n"
    assert [words.strip() for words in ralph_commands(shown)] == [
        "stop",
        "status --json",
        "run --once",
    ]


@pytest.mark.parametrize(("name", "command"), COMMANDS)
def test_help_of_every_command_shows_an_example(
    name: str, command: click.Command
) -> None:
    with click.Context(command, info_name=f"ralph {name}") as context:
        usage, _, rest = command.get_help(context).partition("\n")
    assert usage.startswith(f"Usage: ralph {name}")
    assert re.search(rf"^  .*\bralph {name}\b", rest, re.MULTILINE)


def test_every_option_says_what_it_does() -> None:
    for name, command in COMMANDS:
        options = [param for param in command.params if isinstance(param, click.Option)]
        shown = [one for one in options if not one.hidden]
        assert [one.opts[0] for one in shown if not one.help] == [], name


def test_defaults_of_the_limits() -> None:
    table = section("Limits", page("limits.md"))
    defaults = {
        key.removeprefix("-j, ").split()[0]: cells[1]
        for key, cells in rows(table).items()
    }
    limits = Limits()
    assert int(defaults["--jobs"]) == limits.jobs
    assert int(defaults["--max-iterations"]) == limits.iterations
    assert int(defaults["--max-attempts"]) == limits.attempts
    assert float(defaults["--max-hours"]) == limits.hours
    assert text.seconds(defaults["--max-wait"]) == limits.max_wait
    assert {defaults[name] for name in ("--until", "--max-usd", "--max-tokens")} == {
        "none"
    }
    assert {limits.until, limits.usd, limits.tokens} == {NONE}
    by_name = {
        param.opts[0]: param.default for param in ralph.cli.commands["run"].params
    }
    for name in ("--agent-timeout", "--idle-timeout"):
        assert text.seconds(defaults[name]) == text.seconds(by_name[name])


# ---------------------------------------------------------------- tables and examples


def test_exit_codes() -> None:
    for table in (
        section("Exit codes"),
        section("What an engine needs to know", page("many.md")),
    ):
        cells = re.findall(r"^\| ([\d, ]+) \|", table, re.MULTILINE)
        assert sorted(map(int, ",".join(cells).split(","))) == sorted(
            int(code) for code in Exit
        )


def test_verdicts_and_states() -> None:
    listed = rows(section("Verdicts", page("verdicts.md")))
    assert {str(verdict) for verdict in Verdict} <= listed.keys()
    assert all(f"`{state}`" in page("status.md") for state in summary.STATES)


@pytest.mark.parametrize(
    ("document", "number"),
    [("docs/plan.md", 2), ("docs/checks.md", 1), ("docs/setup.md", 4)],
)
def test_examples_of_prd_json_load_and_validate(
    tmp_path: Path, document: str, number: int
) -> None:
    plans = [block for block in json_blocks(document) if is_plan(block)]
    assert len(plans) == number
    for block in plans:
        plan = prd.read(json.dumps(block), tmp_path / "prd.json")
        prd.validate(plan)
        assert plan.checks or all(task.checks for task in plan.tasks)
        assert prd.next_task(plan) is not None


def fields_of(found: dict[str, Any], above: str = "") -> Iterator[tuple[str, Any]]:
    """The fields of the object as docs/status.md writes them, with their values."""
    for name, value in found.items():
        path = f"{above}{name}"
        yield path, value
        if path in ("limits", "running"):
            yield from fields_of(value, f"{path}.")
        elif path in ("tasks", "running.workers"):
            yield from fields_of(value[0], f"{path}[].")


def test_every_field_of_the_object_is_described_once(plan: Plan) -> None:
    """The words for types are those of JSON."""
    at = "2026-11-21 22:00:05"
    worker = Worker(1, "A", 1, "claude", at, 5.0, "/s/work-1", 0.0, Tokens(), "")
    loop = Running(4711, at, False, False, [worker])
    whole = summary.summarize(plan, History(), Stop("complete", "done"), 1.0, loop)
    listed = rows(section("The object", page("status.md")))
    del listed["field"]
    real = dict(fields_of(whole.as_object()))
    told = summary.news("passed", "p", "A", "", whole)
    assert [*listed] == [*real, "event", "project", "task", "text"]
    assert [*told] == ["event", "project", "task", "text", *whole.as_object()]
    words = {
        str: "string", bool: "boolean", int: "number", float: "number", list: "list", dict: "object",
    }  # fmt: skip
    for name, value in {**real, "task": "A"}.items():
        kind = listed[name][0]
        assert value is None or words[type(value)] in kind.split(), name
    nothing = summary.summarize(None, None).as_object()
    nulls = [name for name, value in nothing.items() if value is None]
    assert [name for name in nulls if "null" not in listed[name][0]] == []
    assert [word for word in summary.STATES if f"`{word}`" not in listed["tasks[].state"][1]] == []  # fmt: skip


@pytest.mark.parametrize("document", DOCUMENTS)
def test_every_document_is_reached_from_the_readme(document: str) -> None:
    assert document in ("README.md", "CHANGELOG.md") or f"({document})" in README


def test_files_that_are_linked_or_named_exist() -> None:
    for document in DOCUMENTS:
        source = (ROOT / document).read_text("utf-8")
        linked = re.findall(r"\]\((?!https?:)([^)#]+)", source)
        tests = re.findall(r"\btests/\w+\.py", source)
        missing = [
            n for n in linked if not (ROOT / document).parent.joinpath(n).exists()
        ]
        assert missing + [n for n in tests if not (ROOT / n).exists()] == []


def test_anchors_that_are_linked_exist() -> None:
    for document in DOCUMENTS:
        source = (ROOT / document).read_text("utf-8")
        for target, anchor in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", source):
            linked = (ROOT / document).parent / target if target else ROOT / document
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.MULTILINE)
            slugs = [
                re.sub(r"[^\w\- ]", "", heading).lower().replace(" ", "-")
                for heading in headings
            ]
            assert anchor in slugs, f"{document}: {target}#{anchor}"


@pytest.mark.parametrize("document", [*DOCUMENTS, *SKILLS])
def test_documents_are_in_plain_words(document: str) -> None:
    source = (ROOT / document).read_text("utf-8")
    assert not re.search("[\u2013\u2014]", source)
    solemn = r"\b(purse|spoils?|mend(s|ed)?|whoever|strangers?('s)?|for ever|anew|heeded|the house|floors|what stands)\b"
    assert [
        m[0]
        for m in re.finditer(solemn, re.sub(r"```.*?```", "", source, flags=re.DOTALL))
    ] == []


def test_the_readme_is_one_page_and_begins_with_what_it_is() -> None:
    assert len(README.splitlines()) <= 160
    assert len(README.split()) <= 1800
    first_screen = "\n".join(README.splitlines()[:20])
    assert all(
        words in first_screen
        for words in ("docs/night.svg", "make demo", "make test", "uv tool install")
    )
    promises = [
        line
        for line in section("What it promises").splitlines()
        if line.startswith("| **")
    ]
    assert len(promises) == 6
    assert all("](tests/" in line for line in promises)


def test_the_changelog_keeps_its_form() -> None:
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")
    headings = re.findall(r"^## (.*)", changelog, re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert all(
        re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading)
        for heading in headings[1:]
    )
    assert headings[1].startswith(f"[{__version__}]")
    kinds = {
        "Upgrading",
        "Added",
        "Changed",
        "Deprecated",
        "Removed",
        "Fixed",
        "Security",
    }
    assert set(re.findall(r"^### (.*)", changelog, re.MULTILINE)) <= kinds


# ---------------------------------------------------------------- agents


@pytest.mark.parametrize("document", ["README.md", "docs/agents.md"])
def test_the_table_of_agents_is_what_the_rows_say(document: str) -> None:
    table = rows((ROOT / document).read_text("utf-8"))
    for name, row in load_rows(ROOT / "templates" / "agents.json", {}).items():
        if name:
            tried, default = table[name][:2]
            assert tried == row["tested"]
            assert ("edit" in row["permissions"]) == default.startswith("edit")
            told = " ".join(table[name][2:])
            assert document != "README.md" or told == ", ".join(
                sorted(row["reports"], reverse=True)
            )


def test_the_rows_of_agents_that_are_shown_can_be_used(tmp_path: Path) -> None:
    for shown in json_blocks("docs/agents.md"):
        document = {**shown, "tasks": [{"id": "A", "title": "a"}]}
        prd.validate(prd.read(json.dumps(document), tmp_path / "prd.json"))
        assert set(
            load_rows(ROOT / "templates" / "agents.json", shown["agents"])
        ) >= set(shown["agents"])


# ---------------------------------------------------------------- the prompt template


def test_documented_variables_are_those_of_the_prompt(
    tmp_path: Path, plan: Plan
) -> None:
    history = History()
    history.of(plan.tasks[0]).last = AttemptEnded(
        task="A", iteration=1, verdict=Verdict.FAILED
    )
    names = ("prd.json", "progress.txt", "AGENTS.md", ".ralph/log", "private", "p")
    paths = Paths(tmp_path, *(tmp_path / name for name in names))
    values = prompt_values(
        plan, plan.tasks[0], history, paths, [], attempts=3, handoff=paths.handoff(), reads_rulebook=False,
        recent=[], beside=[], red_before=[], clean_start=False,
    )  # fmt: skip
    listed = rows(page("templates.md").partition("## The handoff")[0]).keys() - {
        "variable"
    }
    documented = {name for row in listed for name in row.split(", ")}
    assert documented == {*values, *(f"retry.{part}" for part in values["retry"])}


def test_the_template_uses_only_documented_variables() -> None:
    source = resource("templates/prompt.md").read_text("utf-8")
    environment = jinja2.Environment()
    environment.filters["fenced"] = text.fenced
    used = jinja2.meta.find_undeclared_variables(environment.parse(source))
    assert used <= rows(page("templates.md")).keys()


def test_the_labels_of_the_handoff() -> None:
    documented = rows(section("The handoff", page("templates.md")))
    template = resource("templates/prompt.md").read_text("utf-8")
    assert [*documented][1:] == [*LABELS]
    assert [label for label in LABELS if f"\n{label}:" not in template] == []


# ---------------------------------------------------------------- metadata, Makefile, hygiene


def test_the_script_metadata_equals_the_package_metadata() -> None:
    source = (ROOT / "ralph.py").read_text("utf-8")
    block = re.search(
        r"^# /// script$\n((?:^#(?:| .*)$\n)+)^# ///$", source, re.MULTILINE
    )
    assert block is not None
    script = tomllib.loads(
        "".join(line[2:] for line in block[1].splitlines(keepends=True))
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    assert script["dependencies"] == project["dependencies"]
    assert script["requires-python"] == project["requires-python"]


def test_the_version_is_one() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "ralph.py"), "--version"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout == f"ralph, version {__version__}\n"
    hatch = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]
    assert hatch["version"]["path"] == "_ralph/__init__.py"


# ---------------------------------------------------------------- the plugin for Claude Code


def test_the_plugin_has_three_short_skills_that_know_each_other() -> None:
    assert [Path(name).parent.name for name in SKILLS] == ["morning", "night", "plan"]
    for name in [*SKILLS, "docs/plugin.md"]:
        source = (ROOT / name).read_text("utf-8")
        assert len(source.splitlines()) <= 80
        called = {
            f"skills/{called}/SKILL.md"
            for called in re.findall(r"/ralph:(\w+)", source)
        }
        assert called and called <= {*SKILLS}
    plugin = json.loads((ROOT / ".claude-plugin/plugin.json").read_text("utf-8"))
    (listed,) = json.loads(
        (ROOT / ".claude-plugin/marketplace.json").read_text("utf-8")
    )["plugins"]
    assert (plugin["name"], plugin["version"], listed["source"]) == (
        "ralph",
        __version__,
        "./",
    )
    assert plugin["description"] == listed["description"]


@pytest.mark.parametrize("skill", SKILLS)
def test_a_skill_says_one_sentence_where_ralph_is_missing(skill: str) -> None:
    head, body = (ROOT / skill).read_text("utf-8").split("\n---\n")
    assert head.startswith(f"---\nname: {Path(skill).parent.name}\ndescription: ")
    first = section("First", body).strip().splitlines()[0]
    assert first.startswith(
        "Run `ralph --version`. If there is no such command, say only this, and stop: "
    )


def test_the_fields_that_a_skill_reads_are_those_of_status(plan: Plan) -> None:
    shown = status.as_object(status.Status(plan, History()))
    fields = {*shown, *shown["tasks"][0], *summary.STATES}
    source = section(
        "How it went", (ROOT / "skills/morning/SKILL.md").read_text("utf-8")
    )
    named = set(re.findall(r"`(\w+)`", source))
    assert len(named) > 8 and named <= fields


def test_make_targets_that_documents_name_exist_and_all_explain_themselves() -> None:
    makefile = (ROOT / "Makefile").read_text("utf-8")
    explained = set(re.findall(r"^([a-z-]+):.* ## \S", makefile, re.MULTILINE))
    assert explained == set(re.findall(r"^([a-z-]+):", makefile, re.MULTILINE))
    phony = re.findall(r"^\.PHONY: ([a-z -]+)$", makefile, re.MULTILINE)
    assert [set(line.split()) for line in phony] == [explained]
    for document in (README, (ROOT / "CONTRIBUTING.md").read_text("utf-8")):
        named = set(re.findall(r"(?:`|^    )make ([a-z-]+)", document, re.MULTILINE))
        assert {"test"} <= named <= explained


def test_ci_runs_what_the_readme_names_and_the_tests_last() -> None:
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("an sdist has no .ci")
    assert os.access(script, os.X_OK)
    last = script.read_text("utf-8").splitlines()[-1]
    assert re.search(r" make --no-print-directory test( TESTS=--lf)?$", last)


def test_no_file_names_a_registry_or_somebodys_folder() -> None:
    registries = (
        r"\b(pypi\.org|pythonhosted\.org|registry\.npmjs\.org|registry\.yarnpkg\.com|deb\.debian\.org"
        r"|crates\.io|rubygems\.org|proxy\.golang\.org|conda\.anaconda\.org)"
    )
    folders = r"(?<![\w.~/-])/(?:work|root|home)/"
    found = []
    for path in repository_files():
        try:
            source = path.read_text("utf-8")
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}: {m[0]}"
            for m in re.finditer(f"{registries}|{folders}", source)
        ]
    assert found == []


# ---------------------------------------------------------------- the house


def imports_of(path: Path, everywhere: bool) -> set[str]:
    """The modules of `_ralph` that a module imports, by their dotted names; without
    `everywhere` those that it needs to be imported itself."""
    tree = ast.parse(path.read_text("utf-8"))
    found = set()
    for node in ast.walk(tree) if everywhere else tree.body:
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] in (
            "_ralph",
            "ralph",
        ):
            found |= {
                str(node.module),
                *(f"{node.module}.{name.name}" for name in node.names),
            }
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name == "ralph"}
    return found


def test_the_wings_are_what_the_imports_say() -> None:
    """A wing uses only the wings below it, and no module imports itself in a circle."""
    table = section("Layout", (ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    rows = [
        line.split("|")[1:4] for line in table.splitlines() if line.startswith("| ")
    ][1:]
    wings = {
        re.sub(r"[` ]|the ground", "", wing): re.findall(r"`(\w+)`", modules)
        for wing, _, modules in rows
    }
    house = ROOT / "_ralph"
    paths = {
        f"_ralph.{wing}.{name}".replace("..", "."): house / wing / f"{name}.py"
        for wing, names in wings.items()
        for name in names
    }
    assert sorted(paths.values()) == sorted(
        p for p in house.rglob("*.py") if p.name != "__init__.py"
    )
    order = [f"_ralph.{wing}.".replace("..", ".") for wing in wings]
    wing_of = {
        name: len(order)
        - next(i for i, wing in enumerate(order) if name.startswith(wing))
        for name in paths
    }
    for name, path in paths.items():
        used = imports_of(path, everywhere=True)
        assert "ralph" not in used
        assert [
            other for other in used if wing_of.get(other, 0) > wing_of[name]
        ] == [], name
        assert path.read_text("utf-8").startswith('"""')
    needs = {
        name: imports_of(path, everywhere=False) & set(paths)
        for name, path in paths.items()
    }
    assert len(list(TopologicalSorter(needs).static_order())) == len(paths)


def test_the_walkthrough_is_what_the_commands_print(tmp_path: Path) -> None:
    assert transcript.play(tmp_path.resolve()) == transcript.written()


def test_what_differs_from_day_to_day_is_made_alike() -> None:
    told = "2031-01-02 03:04:05 done | 7.3 s\n1234567 US-001: x\n~/shop-0a1b2c3d/b (1.3 MB), git: 2.39, 2031-01-02 03:04"
    alike = "2026-11-21 22:30:00 done | 0.2 s\nc0ffee1 US-001: x\n~/shop-1f0c3a2b/b (0.2 MB), git: 2.47, 2026-11-21 22:30"
    assert transcript.alike(told, Path("/nowhere")) == alike
