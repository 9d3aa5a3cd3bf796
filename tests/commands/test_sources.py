"""What `ralph plan` reads: tasks as people have them in other tools, and what a brief
can look like."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from _ralph.commands.sources import LARGEST, read_sources
from _ralph.errors import BadInput
from tests.commands.test_plan import planner, says, stories
from tests.conftest import ROOT, Repo

SPEC = """\
# Tasks: Prices

## Phase 1: Setup
- [X] T001 Create the project structure per implementation plan

## Phase 2: Foundational (blocking)
- [ ] T002 [P] Add Price in src/price.py
- [ ] T003 [US1] Show the price (depends on T002)
"""
CHANGE = """\
## 1. Database
- [x] 1.1 Add the column `price`
- [ ] 1.2 Fill it

## 2. Page
- [ ] 2.1 Show the price
"""
BOXES = "# To do\n\n- [x] read prices\n- [ ] sort prices\n- [ ] show prices\n"


def master(number: int, title: str, status: str, needs: list[int]) -> dict[str, Any]:
    return {
        "id": number, "title": title, "description": title, "details": "", "testStrategy": "Unit tests",
        "status": status, "dependencies": needs, "priority": "high", "subtasks": [],
    }  # fmt: skip


MASTER = [
    master(1, "Read prices", "done", []),
    master(2, "Sort prices", "pending", [1]),
    master(3, "Show prices", "pending", [1, 2]),
]
ISSUES = [
    {
        "number": 12,
        "title": "Sort prices",
        "body": "EUR first",
        "labels": [{"name": "ready"}],
    },
    {
        "number": 15,
        "title": "Show prices",
        "body": "Blocked by #12",
        "labels": [{"name": "ready"}],
    },
]
BEADS = [
    {"id": "shop-a1f", "title": "Read prices", "status": "closed", "priority": 1, "issue_type": "task"},
    {"id": "shop-b22", "title": "Sort prices", "status": "open", "priority": 1, "issue_type": "task", "dependencies": [
        {"issue_id": "shop-b22", "depends_on_id": "shop-a1f", "type": "blocks"},
    ]},
]  # fmt: skip


class Recipe(NamedTuple):
    """What somebody has: `files`, and what a `program` of theirs prints. The tasks that
    it is, by id: the ids that they depend on; and those that are done."""

    files: dict[str, str]
    tasks: dict[str, list[str]]
    done: list[str]
    program: str = ""

    def lay(self, repo: Repo) -> None:
        for name, words in self.files.items():
            if self.program:
                printed = repo.write(f"../{name}", words)
                repo.tool(self.program, f"cat {printed}")
            else:
                repo.write(name, words)

    @property
    def answer(self) -> dict[str, Any]:
        """What a planner makes of it: with a `passes`, which is none of its
        business."""
        return {"questions": [], "description": "Prices.", "userStories": [
            {
                "id": name, "title": f"task {name}", "acceptanceCriteria": ["it is seen"], "dependsOn": needs,
                "checks": ["test -f a.txt" if name in self.done else f"test -f {name}.txt"], "passes": True,
                **({"done": True} if name in self.done else {}),
            }
            for name, needs in self.tasks.items()
        ]}  # fmt: skip


def lines_of(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CHAIN = {"1": [], "2": ["1"], "3": ["1", "2"]}
RECIPES = {
    "ralph plan specs/001-prices": Recipe(
        {"specs/001-prices/tasks.md": SPEC, "specs/001-prices/spec.md": "# Prices\nCents.\n"},
        {"T001": [], "T002": ["T001"], "T003": ["T002"]}, ["T001"],
    ),
    "ralph plan openspec/changes/add-prices": Recipe(
        {f"openspec/changes/add-prices/{name}": words for name, words in {
            "proposal.md": "## Why\nNo prices.\n", "tasks.md": CHANGE, "specs/prices/spec.md": "## ADDED Requirements\n",
        }.items()},
        {"1.1": [], "1.2": ["1.1"], "2.1": ["1.2"]}, ["1.1"],
    ),
    "ralph plan .taskmaster/tasks/tasks.json": Recipe(
        {".taskmaster/tasks/tasks.json": json.dumps({"master": {"tasks": MASTER, "metadata": {}}})}, CHAIN, ["1"],
    ),
    "ralph plan TODO.md docs/prices.md": Recipe(
        {"TODO.md": BOXES, "docs/prices.md": "In cents.\n"}, {"read": [], "sort": [], "show": ["sort"]}, ["read"],
    ),
    "gh issue list --label ready --json number,title,body,labels | ralph plan -": Recipe(
        {"issues.json": json.dumps(ISSUES)}, {"12": [], "15": ["12"]}, [], "gh",
    ),
    "bd export | ralph plan -": Recipe({"issues.jsonl": lines_of(BEADS)}, {"shop-a1f": [], "shop-b22": ["shop-a1f"]}, ["shop-a1f"], "bd"),
}  # fmt: skip
"""The commands of docs/plan.md."""
UNTAGGED = Recipe(
    {"tasks.json": json.dumps({"tasks": MASTER, "metadata": {}})}, CHAIN, ["1"]
)
EVERY = {**RECIPES, "ralph plan tasks.json": UNTAGGED}


def shell(repo: Repo, command: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A command as somebody types it."""
    repo.tool("ralph", f'exec {sys.executable} -m ralph "$@"')
    return subprocess.run(
        ["/bin/sh", "-c", command], cwd=repo.path, env={**repo.env, **env}, capture_output=True, text=True,
        timeout=180, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_the_recipes_of_the_page_are_those_that_are_tried() -> None:
    page = (
        (ROOT / "docs/plan.md")
        .read_text("utf-8")
        .partition("## From what you have")[2]
        .partition("\n## ")[0]
    )
    shown = [
        line.partition(" #")[0].strip()
        for line in re.findall(r"^    (.*)$", page, re.MULTILINE)
    ]
    assert shown == [*RECIPES]


@pytest.mark.parametrize("command", EVERY)
def test_what_people_have_becomes_a_plan_that_is_worked(
    repo: Repo, command: str
) -> None:
    """The planner sees all of it; ids and dependencies stay; what is done and green
    passes, and nothing that the planner marks does."""
    recipe = EVERY[command]
    recipe.lay(repo)
    done = shell(repo, f"{command} --planner '{planner(repo, says(recipe.answer))}'")
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (repo.outside / "asked").read_text()
    for name, words in recipe.files.items():
        assert words.strip() in asked and (bool(recipe.program) or name in asked)
    assert (repo.outside / "turns").read_text() == "x" and '"done"' not in repo.read(
        "prd.json"
    )
    assert {task["id"]: task["dependsOn"] for task in stories(repo)} == recipe.tasks
    assert repo.passed() == recipe.done
    assert done.stdout.count("(done: its checks are green)") == len(recipe.done)
    code, summary, said = repo.run(repo.agent("P(f'{task}.txt').touch()"))
    assert (code, summary["passed"]) == (0, len(recipe.tasks)), said
    assert summary["iterations"] == len(recipe.tasks) - len(recipe.done)


# ---------------------------------------------------------------- what the clean room says


def answer(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    full = [
        {"id": f"T{i}", "title": "x", "acceptanceCriteria": ["y"], **t}
        for i, t in enumerate(tasks, 1)
    ]
    return {"description": "d", "userStories": full, **more}


RED, GREEN = ["test -f new.txt"], ["test -f a.txt"]
JUDGED: dict[str, tuple[dict[str, Any], str, list[str]]] = {
    "green before the work": ({"checks": GREEN}, "T1: its own check is green already, so it proves nothing", []),
    "green whatever happens": ({"checks": ["false || true"]}, "`|| true` makes it green whatever happens", []),
    "done, and red": ({"checks": RED, "done": True}, "T1 is done, says the brief, but its check is red: test -f new.txt", []),
    "done, and partly red": ({"checks": GREEN + RED, "done": True}, "its check is red: test -f new.txt", []),
    "done in a word": ({"checks": RED, "done": "yes"}, "", []),
    "red": ({"checks": RED}, "", []),
    "red and green": ({"checks": GREEN + RED}, "", []),
    "done": ({"checks": GREEN, "done": True}, "", ["T1"]),
}  # fmt: skip


@pytest.mark.parametrize("case", JUDGED)
def test_the_clean_room_says_what_a_check_is_worth_and_who_is_done(
    repo: Repo, case: str
) -> None:
    """What is wrong the planner is told once; then it is said, and the plan is there
    all the same."""
    task, wrong, passed = JUDGED[case]
    command = planner(repo, says(answer(task)))
    repo.write("../brief.md", "x")
    done = repo.ralph("plan", "../brief.md", "--planner", command)
    assert done.returncode == 0, done.stderr
    assert (repo.outside / "turns").read_text() == ("xx" if wrong else "x")
    assert repo.passed() == passed and done.stdout.count(wrong or "never") == (
        2 if wrong else 0
    )
    assert wrong in (repo.outside / "asked").read_text()


def test_the_checks_see_what_setup_made_and_are_one_program(repo: Repo) -> None:
    repo.ralph("init")
    own = {
        "setup": "echo made > made.txt",
        "checks": ["cp made.txt built.txt"],
        "protect": [],
    }
    repo.write("prd.json", json.dumps({**json.loads(repo.read("prd.json")), **own}))
    repo.write("../brief.md", "x")
    seen = answer({"checks": ["test -f built.txt"], "done": True}, {"checks": RED})
    done = repo.ralph("plan", "../brief.md", "--planner", planner(repo, says(seen)))
    assert done.returncode == 0 and repo.passed() == ["T1"], done.stdout + done.stderr
    assert (
        not (repo.path / "made.txt").exists() and not (repo.path / "built.txt").exists()
    )


@pytest.mark.parametrize(
    ("whose", "turns"), [("the plan's", "x"), ("the planner's", "xx")]
)
def test_a_red_setup_is_told_the_planner_if_it_is_its_own(
    repo: Repo, whose: str, turns: str
) -> None:
    repo.ralph("init")
    setup = {"setup": "echo no such package; exit 3"}
    if whose == "the plan's":
        repo.write(
            "prd.json", json.dumps({**json.loads(repo.read("prd.json")), **setup})
        )
    repo.write("../brief.md", "x")
    said = answer(
        {"checks": GREEN, "done": True}, **({} if whose == "the plan's" else setup)
    )
    done = repo.ralph("plan", "../brief.md", "--planner", planner(repo, says(said)))
    assert done.returncode == 0 and (repo.outside / "turns").read_text() == turns, (
        done.stderr
    )
    assert "no such package" in done.stdout and "so no check was tried" in done.stdout
    assert repo.passed() == []


def test_a_second_turn_that_comes_to_nothing_costs_no_plan(repo: Repo) -> None:
    command = planner(
        repo,
        says(
            answer({"checks": GREEN}), "no", then="if n.stat().st_size > 1: sys.exit(3)"
        ),
    )
    repo.write("../brief.md", "x")
    for _ in ("fails", "says nothing of use"):
        done = repo.ralph("plan", "../brief.md", "--planner", command)
        assert done.returncode == 0 and stories(repo)[0]["checks"] == GREEN, (
            done.stdout + done.stderr
        )
        assert "proves nothing" in done.stdout
        command = planner(repo, says(answer({"checks": GREEN}), "no"))
        (repo.outside / "turns").unlink()


def test_a_plan_with_passes_of_its_own_may_be_made_again(repo: Repo) -> None:
    command = planner(
        repo, says(answer({"checks": GREEN, "done": True}, {"checks": RED}))
    )
    repo.write("../brief.md", "x")
    for _ in range(2):
        done = repo.ralph("plan", "../brief.md", "--planner", command)
        assert done.returncode == 0 and repo.passed() == ["T1"], done.stderr
    repo.write(
        "prd.json",
        repo.read("prd.json").replace("Prices", "prices").replace('"d"', '"mine"'),
    )
    assert repo.ralph("plan", "../brief.md", "--planner", command).returncode == 2


# ---------------------------------------------------------------- what is read


def test_files_and_folders_are_read_without_what_is_hidden(tmp_path: Path) -> None:
    names = [
        "b/two.md",
        "b/one.md",
        "b/.hidden.md",
        "b/.git/config",
        "a.md",
        "b/c/three.md",
        "b/empty.md",
    ]
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("" if "empty" in name else f"\x1b[1m{name}\n")
    (tmp_path / "b/picture.png").write_bytes(b"\x89PNG\xff")
    os.mkfifo(tmp_path / "b/pipe")
    (tmp_path / "b/loop").symlink_to(tmp_path / "b")
    found = read_sources([str(tmp_path / "a.md"), str(tmp_path / "b")])
    assert {os.path.relpath(name, tmp_path): words for name, words in found.items()} == {
        "a.md": "a.md", "b/one.md": "b/one.md", "b/picture.png": "(not a text)", "b/two.md": "b/two.md",
        "b/c/three.md": "b/c/three.md",
    }  # fmt: skip
    assert [os.path.relpath(name, tmp_path) for name in found][:2] == [
        "a.md",
        "b/one.md",
    ]


BAD: dict[str, tuple[bytes | None, str]] = {
    "10 MB": (
        b"- [ ] one more\n" * 700_000,
        "the brief is larger than 256 KB at tasks.md",
    ),
    "no UTF-8": (b"- \xff", "tasks.md: byte 2 is not UTF-8"),
    "blank": (b" \n", "the brief tasks.md is empty"),
    "missing": (None, "tasks.md cannot be read (No such file or directory)"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_brief_is_one_sentence_and_nothing_is_written(
    repo: Repo, case: str
) -> None:
    data, said = BAD[case]
    if data is not None:
        (repo.path / "tasks.md").write_bytes(data)
    done = repo.ralph("plan", "tasks.md", "--planner", "false")
    assert (
        done.returncode == 2
        and said in done.stderr
        and len(done.stderr.splitlines()) == 1
    ), done.stderr
    assert not (repo.path / "prd.json").exists() and not done.stdout


def test_all_of_a_brief_together_has_a_limit(tmp_path: Path) -> None:
    for name in "ab":
        (tmp_path / name).write_text("x" * (LARGEST // 2))
    assert len(read_sources([str(tmp_path)])) == 2
    (tmp_path / "c").write_text("x")
    with pytest.raises(BadInput, match=f"larger than 256 KB at {tmp_path}/c, "):
        read_sources([str(tmp_path)])
