"""What people read is true: README, changelog, docs, help texts and metadata against
the code."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
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
from _ralph.state import prd, summary
from _ralph.state.history import LABELS, History
from _ralph.state.limits import NONE, Limits
from _ralph.state.records import AttemptEnded
from _ralph.state.summary import Running, Worker
from tests import make_docs, transcript

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted(f"docs/{path.name}" for path in (ROOT / "docs").glob("*.md"))
DOCUMENTS = ["README.md", "CHANGELOG.md", "CONTRIBUTING.md", *PAGES]
SKILLS = [f"skills/{name}/SKILL.md" for name in ("morning", "night", "plan")]
COMMANDS = ralph.cli.commands
FOREIGN_OPTIONS = {"--dangerously-skip-permissions", "--user", "--userns"}


def read(document: str) -> str:
    return (ROOT / document).read_text("utf-8")


def section(document: str, title: str) -> str:
    """The text under a heading, up to the next one of its kind."""
    found = re.search(
        rf"^(#+) {re.escape(title)}\n(.*?)(?=^\1 |\Z)", read(document), re.M | re.S
    )
    assert found, f"{document} has no {title}"
    return found[2]


def named(source: str) -> list[str]:
    """What the rows of its tables and the points of its lists are about: the `words` in
    the first cell, or before the first colon."""
    found = []
    for begin in re.findall(r"^(?:\| (.*?) \||- (`.*?): )", source, re.M):
        cell, point = begin
        found += re.findall(r"`(.+?)`", cell or point)
    return found


# ---------------------------------------------------------------- the whole


def test_the_documentation_is_short() -> None:
    assert len(PAGES) <= 14
    assert sum(len(read(document).split()) for document in DOCUMENTS) <= 16_700
    assert sum(len(read(skill).split()) for skill in SKILLS) <= 1_400
    assert len(read("README.md").splitlines()) <= 150
    assert len(read("README.md").split()) <= 1_200


@pytest.mark.parametrize("document", DOCUMENTS)
def test_files_and_headings_that_are_linked_exist(document: str) -> None:
    for target, anchor in re.findall(
        r"\]\((?!https?:)([^)#]*)#?([^)]*)\)", read(document)
    ):
        linked = ROOT / document
        if target:
            linked = linked.parent / target
        assert linked.exists(), target
        if anchor:
            headings = re.findall(r"^#+ (.+)$", linked.read_text("utf-8"), re.M)
            plain = [re.sub(r"[^\w\- ]", "", title).lower() for title in headings]
            assert anchor in [title.replace(" ", "-") for title in plain], anchor


def test_the_readme_leads_to_every_page() -> None:
    assert [page for page in PAGES if f"({page})" not in read("README.md")] == []


@pytest.mark.parametrize("document", [*DOCUMENTS, *SKILLS])
def test_documents_are_in_plain_words(document: str) -> None:
    prose = re.sub(r"```.*?```", "", read(document), flags=re.S)
    assert not re.search("[\u2013\u2014]", prose)
    assert not re.search(
        r"\b(purse|spoils?|whoever|for ever|anew|heeded|the house|what stands)\b", prose
    )


def test_the_changelog_keeps_its_form() -> None:
    headings = re.findall(r"^## (.*)", read("CHANGELOG.md"), re.M)
    unreleased, newest, *_ = headings
    assert unreleased == "[Unreleased]"
    assert newest.startswith(f"[{__version__}]")
    for heading in headings[1:]:
        assert re.fullmatch(r"\[\d+\.\d+\.\d+\] - \d{4}-\d\d-\d\d", heading)
    kinds = {"Upgrading", "Added", "Changed", "Removed", "Fixed", "Security"}
    assert {*re.findall(r"^### (.*)", read("CHANGELOG.md"), re.M)} <= kinds


# ---------------------------------------------------------------- commands and options


def test_reference_pages_are_made_from_the_code() -> None:
    said = "run: python -m tests.make_docs"
    assert read("docs/prd.md") == make_docs.plan_reference(), said
    assert read("docs/cli.md") == make_docs.command_reference(), said


@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "board"])
def test_help_says_what_each_option_does_and_shows_an_example(name: str) -> None:
    command = COMMANDS[name]
    with click.Context(command, info_name=f"ralph {name}") as context:
        usage, _, rest = command.get_help(context).partition("\n")
    assert usage.startswith(f"Usage: ralph {name}")
    assert re.search(rf"^  .*\bralph {name}\b", rest, re.M)
    assert all(option.help for option in make_docs.options(command))
    assert f"## `ralph {name}" in read("docs/cli.md")
    for option in make_docs.options(command):
        assert f"`{option.opts[-1]}" in read("docs/cli.md")


@pytest.mark.parametrize("document", sorted({*DOCUMENTS, *SKILLS} - {"CHANGELOG.md"}))
def test_no_command_and_no_option_is_named_that_is_not_there(document: str) -> None:
    anywhere = FOREIGN_OPTIONS | {"--help", "--version"}
    for command in COMMANDS.values():
        for option in make_docs.options(command):
            anywhere |= {*option.opts}
    for words in ralph_commands(read(document)):
        name, *rest = words.split()
        if name in ("--version", "--help"):
            continue
        assert name in COMMANDS, words
        known = {"--help"}
        for option in make_docs.options(COMMANDS[name]):
            known |= {*option.opts}
        for word in rest:
            if re.match(r"--?[a-z]", word):
                assert word.partition("=")[0] in known, words
    for word in re.findall(r"`(--[a-z][a-z-]*)", read(document)):
        assert word in anywhere


def ralph_commands(source: str) -> Iterator[str]:
    """Every `ralph ...` in the code of a document, without `ralph` and what is in
    quotes."""
    blocks = re.findall(r"^```(\w*)\n(.*?)^```$", source, re.S | re.M)
    code = [inner for kind, inner in blocks if kind in ("", "sh")]
    rest = re.sub(r"^```.*?^```", "", source, flags=re.S | re.M)
    code += re.findall(r"^    (?!\|)(.*)$", rest, re.M)
    code += re.findall(r"`([^`\n]+)`", rest)
    for line in "\n".join(code).splitlines():
        bare = re.sub(r"'[^']*'|\"[^\"]*\"", "WORDS", line.partition(" #")[0])
        for found in re.finditer(r"(?:^|[\s(/])ralph (-?[a-z][^|;&<>()]*)", bare):
            yield found[1].strip()


def test_commands_in_documents_are_found() -> None:
    shown = (
        "a `ralph run --once` b\n\n    x/ralph status --json | jq --raw  # ralph no\n"
        "\n```sh\n(cd x && ralph stop)\n```\n"
    )
    found = [*ralph_commands(shown)]
    assert found == ["stop", "status --json", "run --once"]


def test_defaults_of_the_limits() -> None:
    defaults = {}
    for row in re.findall(r"^\| (.*) \|$", section("docs/night.md", "Limits"), re.M):
        option, _, default, _ = row.split(" | ")
        defaults[option.replace("`", "").removeprefix("-j, ").split()[0]] = default
    limits = Limits()
    assert int(defaults["--jobs"]) == limits.jobs
    assert int(defaults["--max-iterations"]) == limits.iterations
    assert int(defaults["--max-attempts"]) == limits.attempts
    assert float(defaults["--max-hours"]) == limits.hours
    assert text.seconds(defaults["--max-wait"]) == limits.max_wait
    assert {limits.until, limits.usd, limits.tokens} == {NONE}
    for name in ("--until", "--max-usd", "--max-tokens"):
        assert defaults[name] == "none"
    for option in make_docs.options(COMMANDS["run"]):
        if option.opts[-1] in ("--agent-timeout", "--idle-timeout"):
            default = text.seconds(defaults[option.opts[-1]])
            assert default == text.seconds(option.default)


# ---------------------------------------------------------------- tables and examples


def test_exit_codes_verdicts_and_states() -> None:
    for table in (
        section("README.md", "Exit codes"),
        section("docs/many.md", "Files to copy"),
    ):
        codes = re.findall(r"^\| ([\d, ]+) \|", table, re.M)
        assert sorted(map(int, ",".join(codes).split(","))) == sorted(map(int, Exit))
    verdicts = named(section("docs/concepts.md", "Verdicts"))
    assert sorted(verdicts) == sorted(map(str, Verdict))
    states = named(read("docs/status.md").partition("## The object")[0])
    assert {*states} == {*summary.STATES, "running", "next"}


def json_blocks(document: str) -> list[Any]:
    found = re.findall(r"```json\n(.*?)```", read(document), re.S)
    return [json.loads(block) for block in found]


@pytest.mark.parametrize(
    ("document", "number"), [("docs/plan.md", 1), ("docs/setup.md", 4)]
)
def test_plans_that_are_shown_are_good(
    tmp_path: Path, document: str, number: int
) -> None:
    shown = [block for block in json_blocks(document) if "checks" in block]
    assert len(shown) == number
    for block in shown:
        plan = prd.read(json.dumps(block), tmp_path / "prd.json")
        prd.validate(plan)
        assert plan.checks and prd.next_task(plan)


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    """A plan of one task, in a folder of its own."""
    return prd.read('{"tasks": [{"id": "A", "title": "a"}]}', tmp_path / "prd.json")


def fields_of(found: dict[str, Any], above: str = "") -> Iterator[str]:
    """The fields of the object as docs/status.md names them."""
    for name, value in found.items():
        path = f"{above}{name}"
        if path in ("limits", "running"):
            yield from fields_of(value, f"{path}.")
        if path in ("tasks", "running.workers"):
            yield from fields_of(value[0], f"{path}[].")
        if path != "limits":
            yield path


def test_every_field_of_the_object_is_described_once(plan: Plan) -> None:
    at = "2026-11-21 22:00:05"
    worker = Worker(1, "A", 1, "claude", at, 5.0, "/s/work-1", 0.0, Tokens(), "")
    run = Running(4711, at, False, False, [worker])
    whole = summary.summarize(plan, History(), Stop("complete", "done"), 1.0, run)
    news = summary.news("passed", "p", "A", "", whole)
    described = named(section("docs/status.md", "The object"))
    only_news = ["event", "project", "task", "text"]
    assert [*news] == [*only_news, *whole.as_object()]
    assert sorted(described) == sorted([*fields_of(whole.as_object()), *only_news])


# ---------------------------------------------------------------- agents, the prompt


def test_the_table_of_agents_is_what_the_rows_say() -> None:
    table = section("docs/agents.md", "Tested agents")
    for name, row in load_rows(ROOT / "templates" / "agents.json", {}).items():
        if name:
            (cells,) = re.findall(rf"^\| `{name}` \| (.*?) \| (.*?) \|", table, re.M)
            assert cells[0] == row["tested"]
            assert ("edit" in row["permissions"]) == cells[1].startswith("edit")


def test_the_rows_of_agents_that_are_shown_can_be_used(tmp_path: Path) -> None:
    for shown in json_blocks("docs/agents.md"):
        document = {**shown, "tasks": [{"id": "A", "title": "a"}]}
        prd.validate(prd.read(json.dumps(document), tmp_path / "prd.json"))
        rows = load_rows(ROOT / "templates" / "agents.json", shown["agents"])
        assert {*rows} >= {*shown["agents"]}


def test_variables_of_a_prompt(tmp_path: Path, plan: Plan) -> None:
    history = History()
    failed = AttemptEnded(task="A", iteration=1, verdict=Verdict.FAILED)
    history.of(plan.tasks[0]).last = failed
    names = ("prd.json", "progress.txt", "AGENTS.md", ".ralph/log", "private", "p")
    paths = Paths(tmp_path, *(tmp_path / name for name in names))
    values = prompt_values(
        plan,
        plan.tasks[0],
        history,
        paths,
        [],
        attempts=3,
        handoff=paths.handoff(),
        reads_rulebook=False,
        recent=[],
        beside=[],
        red_before=[],
        clean_start=False,
    )
    listed = named(read("docs/templates.md").partition("## The handoff")[0])
    there = {*values, *(f"retry.{part}" for part in values["retry"])}
    assert {*listed} == there
    source = resource("templates/prompt.md").read_text("utf-8")
    environment = jinja2.Environment()
    environment.filters["fenced"] = text.fenced
    used = jinja2.meta.find_undeclared_variables(environment.parse(source))
    assert used <= {*listed}


def test_labels_of_the_handoff() -> None:
    listed = named(section("docs/templates.md", "The handoff"))
    template = resource("templates/prompt.md").read_text("utf-8")
    assert listed == [*LABELS]
    assert all(f"\n{label}:" in template for label in LABELS)


# ---------------------------------------------------------------- the plugin


def test_the_skills_know_each_other_and_ralph() -> None:
    for name in [*SKILLS, "docs/walkthrough.md"]:
        called = {*re.findall(r"/ralph:(\w+)", read(name))}
        assert called and called <= {"plan", "night", "morning"}
    for name in SKILLS:
        head, body = read(name).split("\n---\n")
        assert head.startswith(f"---\nname: {name.split('/')[1]}\ndescription: ")
        assert len(body.splitlines()) <= 80
        assert "Run `ralph --version`. If there is no such command, say only" in body


def test_the_fields_that_a_skill_reads_are_those_of_status(plan: Plan) -> None:
    shown = summary.summarize(plan, History()).as_object()
    named = {*re.findall(r"`(\w+)`", section("skills/morning/SKILL.md", "How it went"))}
    assert len(named) > 8
    assert named <= {*shown, *shown["tasks"][0], *summary.STATES}


# ---------------------------------------------------------------- metadata, Makefile


def test_metadata_is_one() -> None:
    project = tomllib.loads(read("pyproject.toml"))
    block = re.search(r"^# /// script\n(.*?)^# ///$", read("ralph.py"), re.M | re.S)
    assert block
    script = tomllib.loads(re.sub("^# ?", "", block[1], flags=re.M))
    for key in ("dependencies", "requires-python"):
        assert script[key] == project["project"][key]
    assert project["tool"]["hatch"]["version"]["path"] == "_ralph/__init__.py"
    version = [sys.executable, str(ROOT / "ralph.py"), "--version"]
    printed = subprocess.run(version, capture_output=True, text=True, timeout=60).stdout
    assert printed == f"ralph, version {__version__}\n"
    plugin = json.loads(read(".claude-plugin/plugin.json"))
    (listed,) = json.loads(read(".claude-plugin/marketplace.json"))["plugins"]
    assert (plugin["name"], plugin["version"]) == ("ralph", __version__)
    assert plugin["description"] == listed["description"]
    assert listed["source"] == "./"


def test_make_targets_that_documents_name_exist_and_explain_themselves() -> None:
    explained = {*re.findall(r"^([a-z-]+):.* ## \S", read("Makefile"), re.M)}
    assert explained == {*re.findall(r"^([a-z-]+):", read("Makefile"), re.M)}
    (phony,) = re.findall(r"^\.PHONY: ([a-z -]+)$", read("Makefile"), re.M)
    assert {*phony.split()} == explained
    for document in ("README.md", "CONTRIBUTING.md", "docs/proof.md"):
        targets = {*re.findall(r"(?:`|^    )make ([a-z-]+)", read(document), re.M)}
        assert {"test"} <= targets <= explained


def test_ci_runs_the_tests_last() -> None:
    script = ROOT / ".ci" / "run"
    if not script.exists():
        pytest.skip("an sdist has no .ci")
    assert os.access(script, os.X_OK)
    last = script.read_text("utf-8").splitlines()[-1]
    assert re.search(r" make --no-print-directory test( TESTS=--lf)?$", last)


def test_no_file_names_a_registry_or_somebodys_folder() -> None:
    wrong = re.compile(
        r"\b(pypi\.org|pythonhosted\.org|registry\.npmjs\.org|registry\.yarnpkg\.com"
        r"|deb\.debian\.org|crates\.io|rubygems\.org|proxy\.golang\.org"
        r"|conda\.anaconda\.org)|(?<![\w.~/-])/(?:work|root|home)/"
    )
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True
    )
    if listed.returncode:
        pytest.skip("not a clone of the repository")
    for name in listed.stdout.splitlines():
        content = (ROOT / name).read_bytes().decode("utf-8", "ignore")
        assert not wrong.search(content), name


# ---------------------------------------------------------------- the code's folders


def test_folders_use_only_those_below_them() -> None:
    """As CONTRIBUTING says; and no module imports itself in a circle."""
    order = named(section("CONTRIBUTING.md", "Find your way"))
    package = ROOT / "_ralph"
    folders = [path.parent.name for path in package.glob("*/__init__.py")]
    assert sorted(order) == sorted([*folders, "_ralph"])
    needs = {}
    for path in package.rglob("*.py"):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        allowed = order[order.index(path.parent.name) :]
        for used in imports_of(path, everywhere=True):
            assert used != "ralph"
            assert folder_of(used) in allowed, f"{name} imports {used}"
        needs[name] = imports_of(path, everywhere=False) - {name}
        assert path.read_text("utf-8").startswith('"""')
    modules = {name: used & {*needs} for name, used in needs.items()}
    assert len([*TopologicalSorter(modules).static_order()]) == len(modules)


def folder_of(module: str) -> str:
    """The folder of a module, by its dotted name."""
    top, *inner = module.split(".")
    if inner and (ROOT / top / inner[0]).is_dir():
        return inner[0]
    return top


def imports_of(path: Path, everywhere: bool) -> set[str]:
    """The modules of ralph that a module imports, by their dotted names; without
    `everywhere` those that it needs to be imported itself."""
    tree = ast.parse(path.read_text("utf-8"))
    nodes = ast.walk(tree) if everywhere else iter(tree.body)
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names if name.name == "ralph"}
        elif isinstance(node, ast.ImportFrom) and node.module:
            for name in node.names:
                if node.module.split(".")[0] in ("_ralph", "ralph"):
                    found |= {node.module, f"{node.module}.{name.name}"}
    return found


# ---------------------------------------------------------------- the walkthrough


def test_the_walkthrough_is_what_the_commands_print(tmp_path: Path) -> None:
    assert transcript.play(tmp_path.resolve()) == transcript.written()


def test_what_differs_from_day_to_day_is_made_alike() -> None:
    printed = (
        "2031-01-02 03:04:05 done | 7.3 s\n1234567 US-001: x\n"
        "~/shop-0a1b2c3d/b, 2031-01-02 03:04: x"
    )
    assert transcript.alike(printed, Path("/nowhere")) == (
        "done | 0.2 s\nc0ffee1 US-001: x\n~/shop-1f0c3a2b/b, 2026-11-21 22:30: x"
    )
