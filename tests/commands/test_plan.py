"""`ralph plan` and `ralph add`: new tasks, from a brief, a list that people have, or in
a person's words, and nothing lost by them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from _ralph.commands.plan import LARGEST, read_brief
from _ralph.errors import BadInput
from _ralph.state import edit, prd
from tests.commands.test_doctor import everything_at_home
from tests.conftest import ROOT, Repo, sample

TASKS: list[dict[str, Any]] = [
    {"id": "US-001", "title": "greet", "acceptanceCriteria": ["prints hello"], "checks": ["test -f hello"], "priority": 1},
    {"id": "US-002", "title": "by name", "acceptanceCriteria": ["prints the name"], "checks": ["test -f name"], "dependsOn": ["US-001"]},
]  # fmt: skip
GOOD: dict[str, Any] = {
    "questions": [],
    "description": "It greets.",
    "userStories": TASKS,
}
ASKS: dict[str, Any] = {
    **GOOD,
    "questions": [{"question": "In which language?", "proposal": "English"}],
}


def says(*answers: object, then: str = "") -> str:
    """A planner that gives one answer a turn, the last one again and again."""
    texts = [
        answer if isinstance(answer, str) else f"I looked.\n{json.dumps(answer)}"
        for answer in answers
    ]
    return (
        "n = OUT / 'turns'; n.open('a').write('x'); (OUT / 'asked').write_text(prompt)\n"
        f"answers = {texts!r}\n{then}\nprint(answers[min(n.stat().st_size, len(answers)) - 1])"
    )


def plan(
    repo: Repo, script: str, *words: str, brief: str = "A program that greets."
) -> subprocess.CompletedProcess[str]:
    repo.write("../brief.md", brief)
    return repo.ralph("plan", "../brief.md", "--planner", planner(repo, script), *words)


def planner(repo: Repo, script: str) -> str:
    """A scripted planner; it knows where the workspace lies (REAL), though it works in
    a copy."""
    command, path = repo.agent("", "planner"), repo.outside / "planner.py"
    head = "import os\nos.environ.update(RALPH_TASK_ID='', RALPH_ATTEMPT='0')\n"
    names = f"OUT, REAL = P({str(repo.outside)!r}), P({str(repo.path)!r})\n"
    path.write_text(head + path.read_text() + names + script)
    return command


def stories(repo: Repo) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(repo.read("prd.json"))["userStories"]
    return found


# ---------------------------------------------------------------- plan


def test_a_brief_becomes_a_plan_that_can_be_run(repo: Repo) -> None:
    done = plan(repo, says(GOOD))
    assert done.returncode == 0, done.stderr + done.stdout
    assert stories(repo) == [{**task, "passes": False} for task in TASKS]
    asked = (repo.outside / "asked").read_text()
    assert "A program that greets." in asked and "prd.json has no checks yet" in asked
    for told in (
        "US-002  by name",
        "after US-001",
        "proved by test -f name",
        "ralph run",
    ):
        assert told in done.stdout
    code, summary, printed = repo.run(
        repo.agent("P({'US-001': 'hello', 'US-002': 'name'}[task]).touch()")
    )
    assert (code, summary["passed"]) == (0, 2), printed


def test_open_questions_end_with_4_and_stand_in_the_plan(repo: Repo) -> None:
    done = plan(repo, says(ASKS))
    assert done.returncode == 4, done.stderr
    assert "1. In which language?\n   proposed, and planned so: English" in done.stdout
    assert json.loads(repo.read("prd.json"))["openQuestions"] == ASKS["questions"]
    answered = plan(
        repo, says(GOOD), brief="It greets in Frisian."
    )  # nothing was worked: no --force is needed
    assert answered.returncode == 0 and "openQuestions" not in repo.read("prd.json")


def test_what_a_person_had_said_at_the_top_of_the_plan_stays(repo: Repo) -> None:
    repo.ralph("init")
    own = {
        "checks": ["true"],
        "protect": ["a.txt"],
        "agent": "mine",
        "limits": {"iterations": 5},
    }
    repo.write("prd.json", json.dumps({**json.loads(repo.read("prd.json")), **own}))
    evil = {"checks": ["rm -rf /"], "agents": {}, "agent": "sh", "setup": "evil", "limits": {"iterations": 99}}  # fmt: skip
    sly = {**GOOD, **evil}
    sly["userStories"] = [
        {**TASKS[0], "passes": True, "agent": "evil", "blocked": "no", "status": "done"}
    ]
    done = plan(repo, says(sly))
    assert done.returncode == 0, done.stderr
    made = json.loads(repo.read("prd.json"))
    assert {key: made[key] for key in own} == own
    assert "setup" not in made and "evil" not in repo.read("prd.json")
    assert made["userStories"] == [{**TASKS[0], "passes": False}]
    assert "- `true`" in (repo.outside / "asked").read_text()


UNUSABLE: dict[str, tuple[object, str]] = {
    "no object": ("That is my plan.", "no JSON object with a list `userStories`"),
    "cut off": (json.dumps(GOOD)[:-1], "no JSON object"),
    "no tasks": ({**GOOD, "userStories": []}, "empty list"),
    "texts": ({**GOOD, "userStories": ["greet"]}, "expected task objects"),
    "no criteria": ({**GOOD, "userStories": [{"title": "x", "checks": ["true"]}]}, "no acceptanceCriteria"),
    "no checks": ({**GOOD, "userStories": [{"title": "x", "acceptanceCriteria": ["y"]}]}, "has no checks"),
    "a circle": ({**GOOD, "userStories": [{**TASKS[0], "dependsOn": ["US-001"]}]}, "circle"),
    "unknown": ({**GOOD, "userStories": [{**TASKS[0], "dependsOn": ["US-9"]}]}, "no such task"),
    "twice": ({**GOOD, "userStories": [TASKS[0], TASKS[0]]}, "two tasks have the id"),
    "blank check": ({**GOOD, "userStories": [{**TASKS[0], "checks": [" "]}]}, "blank"),
    "nonsense": ({**GOOD, "userStories": [{**TASKS[0], "priority": {}}]}, "priority"),
}  # fmt: skip


@pytest.mark.parametrize("case", sample(UNUSABLE, 3))
def test_an_answer_that_cannot_be_used_is_told_the_planner_once(
    repo: Repo, case: str
) -> None:
    answer, wrong = UNUSABLE[case]
    done = plan(repo, says(answer, GOOD))
    assert done.returncode == 0, done.stderr
    asked = (repo.outside / "asked").read_text()
    assert "What was wrong with your last answer" in asked and wrong in asked
    assert (repo.outside / "turns").read_text() == "xx"


def test_two_answers_that_cannot_be_used_leave_everything_as_it_was(repo: Repo) -> None:
    repo.ralph("init")
    before = repo.read("prd.json")
    done = plan(repo, says("no"))
    assert (
        done.returncode == 1
        and "twice" in done.stderr
        and "plan-again.out" in done.stderr
    )
    assert repo.read("prd.json") == before and not (repo.path / "progress.txt").exists()
    assert (repo.path / ".ralph/log/plan-again.out").read_text().strip() == "no"


VANDAL = """
P('a.txt').write_text('vandal'); P('new.txt').write_text('new'); P('prd.json').write_text('{}')
P('AGENTS.md').write_text('obey'); P('progress.txt').write_text('## forged'); P('.gitignore').write_text('*')
sh('git checkout -q -b elsewhere; git add -A; git commit -qm vandal; git config core.hooksPath /tmp; git tag x')
sh('git stash; git gc -q --prune=now; git branch -D main; git update-ref -d refs/heads/main; rm -rf .git')
"""


def test_the_planner_works_in_a_place_of_its_own(repo: Repo) -> None:
    repo.ralph("init")
    repo.write("b.txt", "b\n")
    repo.commit("plan")
    repo.write("mine.txt", "mine\n")
    repo.write("a.txt", "staged\n")
    repo.git("add", "a.txt")
    repo.write("a.txt", "staged, and edited\n")
    before = everything_at_home(repo)
    look = "assert P('a.txt').read_text() == 'a\\n' and P('b.txt').exists() and P.cwd() != REAL\n"
    done = plan(repo, says(GOOD, then=look + VANDAL))
    assert done.returncode == 0, done.stderr + done.stdout
    after = everything_at_home(repo)
    assert (
        after.pop("prd.json") != before.pop("prd.json")
        and stories(repo)[0]["id"] == "US-001"
    )
    assert b"forged" not in after.pop("progress.txt", b"")
    assert after == before


def test_a_plan_with_open_tasks_is_replaced_only_with_force(repo: Repo) -> None:
    """What git has not is kept."""
    repo.plan({"checks": ["test -f T1"]}, {"checks": ["test -f T2"]})
    refused = plan(repo, says(GOOD))
    assert refused.returncode == 2 and "--force" in refused.stderr
    assert "prd.json has 2 open tasks; `ralph add` adds to them" in refused.stderr
    assert repo.run(repo.agent("P(task).touch()"), "--once")[0] == 0
    worked = repo.read("prd.json")
    assert "has 1 open task;" in plan(repo, says(GOOD)).stderr
    assert repo.read("prd.json") == worked and not (repo.outside / "asked").exists()
    done = plan(repo, says(GOOD), "--force")
    assert done.returncode == 0, done.stderr
    kept = done.stdout.split("is kept at ")[1].splitlines()[0]
    assert Path(kept).read_text() == worked
    assert "- T1: task 1" in (repo.outside / "asked").read_text()
    repo.commit("plan")
    done = plan(repo, says(ASKS), "--force")
    assert done.returncode == 4 and "is kept at" not in done.stdout


def test_the_next_feature_begins_once_everything_passed_and_landed(repo: Repo) -> None:
    """On a branch of its own, with a history of its own."""
    repo.plan({"id": "US-001", "checks": ["test -f US-001"]}, limits={"attempts": 5})
    repo.commit("plan")
    assert repo.run(repo.agent("P(task).touch()"))[0] == 0
    refused = plan(repo, says(GOOD))
    assert refused.returncode == 2, refused.stdout
    assert "HEAD lacks the work on ralph/p; `ralph land` merges it" in refused.stderr
    assert repo.ralph("land").returncode == 0
    for number in (2, 3):
        done = plan(repo, says(GOOD))
        assert done.returncode == 0, done.stderr
        made = json.loads(repo.read("prd.json"))
        assert (
            made["branchName"] == f"ralph/p-{number}"
            and made["limits"]["attempts"] == 5
        )
        assert json.loads(repo.ralph("status", "--json").stdout)["iterations"] == 0
        done = repo.ralph("prompt")
        assert "US-001" in done.stdout and done.returncode == 0
        names = "{'US-001': 'hello', 'US-002': 'name'}"
        work = f"P({names}[task]).write_text('{number}')"
        code, _, printed = repo.run(repo.agent(work))
        if number == 3:  # its checks are green before the work
            break
        assert (code, repo.passed()) == (0, ["US-001", "US-002"]), printed
        assert repo.ralph("land").returncode == 0


def test_what_a_person_saves_while_the_planner_is_at_work_is_kept(repo: Repo) -> None:
    repo.ralph("init")
    start = json.loads(repo.read("prd.json"))
    own = {
        **start,
        "limits": {"iterations": 7},
        "userStories": [*start["userStories"], {"title": "my own"}],
    }
    saved = json.dumps(own)
    done = plan(repo, says(GOOD, then=f"(REAL / 'prd.json').write_text({saved!r})"))
    assert done.returncode == 0, done.stderr
    kept = done.stdout.split("is kept at ")[1].splitlines()[0]
    assert Path(kept).read_text() == saved
    assert [task["id"] for task in stories(repo)] == ["US-001", "US-002"]
    assert json.loads(repo.read("prd.json"))["limits"] == {"iterations": 7}


def plan_for_a_quarter(repo: Repo, answer: object) -> subprocess.CompletedProcess[str]:
    """`ralph plan` with a planner that says what it cost: $0.25 a turn."""
    row = {"like": "claude", "argv": ["teller"], "permissions": {"read": []}}
    told = {"type": "result", "is_error": False, "total_cost_usd": 0.25}
    event = json.dumps({**told, "result": json.dumps(answer)})
    teller = repo.write("../bin/teller", f"#!{sys.executable}\nprint({event!r})\n")
    teller.chmod(0o755)
    repo.ralph("init")
    repo.write(
        "prd.json",
        json.dumps(
            {
                **json.loads(repo.read("prd.json")),
                "agents": {"teller": row},
                "planner": "teller",
            }
        ),
    )
    repo.write("../brief.md", "greet")
    return repo.ralph(
        "plan", "../brief.md", PATH=f"{repo.outside / 'bin'}:{repo.env['PATH']}"
    )


def test_what_planning_cost_counts_for_the_plan(repo: Repo) -> None:
    done = plan_for_a_quarter(repo, GOOD)
    assert done.returncode == 0, done.stderr
    assert "2 tasks planned" in done.stdout and "$0.25" in done.stdout
    assert json.loads(repo.ralph("status", "--json").stdout)["usd"] == 0.25
    (record,) = repo.records("add")
    assert record["usd"] == 0.25 and "- planner: teller" in repo.read("progress.txt")


def test_a_spent_budget_pays_for_no_planner(repo: Repo) -> None:
    plan_for_a_quarter(repo, GOOD)
    repo.write(
        "prd.json",
        json.dumps({**json.loads(repo.read("prd.json")), "budget": {"usd": 0.2}}),
    )
    path = f"{repo.outside / 'bin'}:{repo.env['PATH']}"
    done = repo.ralph("plan", "../brief.md", "--force", PATH=path)
    assert (
        done.returncode == 4 and "the plan's budget in dollars is spent" in done.stderr
    )
    assert json.loads(repo.ralph("status", "--json").stdout)["usd"] == 0.25


REFUSED: dict[str, tuple[str, int, str]] = {
    "no git": ("plan a.txt --prd ../prd.json", 2, "not in a git repository; cd to your project, or start one: git init"),
    "no planner": ("plan a.txt --planner not-here", 5, "not on PATH"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_refused_in_one_message(repo: Repo, case: str) -> None:
    words, code, said = REFUSED[case]
    done = repo.ralph(*words.split())
    assert done.returncode == code and said in done.stderr, done.stderr


def test_a_planner_can_be_stopped_and_leaves_nothing(repo: Repo) -> None:
    repo.ralph("init")
    before = repo.read("prd.json")
    script = "subprocess.Popen(['sleep', '60'], start_new_session=True); P('a.txt').write_text('x')"
    slow = planner(repo, f"import subprocess\n{script}\n{until(repo, 'never')}")
    repo.write("../brief.md", "greet")
    process = repo.start("plan", "../brief.md", "--planner", slow)
    repo.wait_for("../on")
    assert repo.ralph("run").returncode == 75  # one at a time
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143 and repo.gone_within(5)
    assert (repo.read("prd.json"), repo.read("a.txt")) == (before, "a\n")


def test_the_example_of_init_is_never_worked(repo: Repo) -> None:
    repo.ralph("init")
    repo.commit("plan")
    code, _, printed = repo.run(repo.agent("P('x').touch()"), "--check", "true")
    assert (
        code == 2
        and "ralph plan brief.md" in printed
        and not (repo.path / "x").exists()
    )


# ---------------------------------------------------------------- what the clean room says


def answer(*tasks: dict[str, Any], **more: Any) -> dict[str, Any]:
    full = [
        {"id": f"T{i}", "title": "x", "acceptanceCriteria": ["y"], **t}
        for i, t in enumerate(tasks, 1)
    ]
    return {"description": "d", "userStories": full, **more}


RED, GREEN = ["test -f new.txt"], ["test -f a.txt"]
PROVES_NOTHING = "own checks are green already, so they prove nothing: T1"


@pytest.mark.parametrize(
    ("checks", "wrong"),
    [(GREEN, True), (["false || true"], True), (RED, False), (GREEN + RED, False)],
)
def test_a_check_that_is_green_before_the_work_is_told_the_planner_once(
    repo: Repo, checks: list[str], wrong: bool
) -> None:
    """Then it is said, and the plan is there all the same."""
    done = plan(repo, says(answer({"checks": checks})))
    assert done.returncode == 0, done.stderr
    assert (repo.outside / "turns").read_text() == ("xx" if wrong else "x")
    assert done.stdout.count(PROVES_NOTHING) == (2 if wrong else 0)
    assert (PROVES_NOTHING in (repo.outside / "asked").read_text()) == wrong
    assert stories(repo)[0]["checks"] == checks


def test_a_check_that_the_plan_is_to_mend_is_marked(repo: Repo) -> None:
    """Not one that is red for a reason of the place."""
    checks = ["test -f fixed", ["test", "-f", "b"], "no-such-tool", "true"]
    repo.plan({"passes": True}, checks=checks)
    assert plan(repo, says(GOOD), "--force").returncode == 0
    marked = json.loads(repo.read("prd.json"))["checks"]
    assert marked == [
        {"run": "test -f fixed", "startsRed": True},
        {"run": ["test", "-f", "b"], "startsRed": True},
        "no-such-tool",
        "true",
    ]


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
        assert PROVES_NOTHING in done.stdout
        command = planner(repo, says(answer({"checks": GREEN}), "no"))
        (repo.outside / "turns").unlink()


# ---------------------------------------------------------------- the brief


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
    found = read_brief([str(tmp_path / "a.md"), str(tmp_path / "b")])
    assert {os.path.relpath(name, tmp_path): words for name, words in found.items()} == {
        "a.md": "a.md", "b/one.md": "b/one.md", "b/two.md": "b/two.md",
        "b/c/three.md": "b/c/three.md",
    }  # fmt: skip


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
    assert len(read_brief([str(tmp_path)])) == 2
    (tmp_path / "c").write_text("x")
    with pytest.raises(BadInput, match=f"larger than 256 KB at {tmp_path}/c, "):
        read_brief([str(tmp_path)])


# ---------------------------------------------------------------- from what people have

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
    """What somebody has: `files`, and what a `program` of theirs prints. The open tasks
    of it, by id: the ids that they depend on."""

    files: dict[str, str]
    tasks: dict[str, list[str]]
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
                "checks": [f"test -f {name}.txt"], "passes": True,
            }
            for name, needs in self.tasks.items()
        ]}  # fmt: skip


def lines_of(rows: list[dict[str, Any]]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


CHAIN = {"2": [], "3": ["2"]}
RECIPES = {
    "ralph plan specs/001-prices": Recipe(
        {"specs/001-prices/tasks.md": SPEC, "specs/001-prices/spec.md": "# Prices\nCents.\n"},
        {"T002": [], "T003": ["T002"]},
    ),
    "ralph plan openspec/changes/add-prices": Recipe(
        {f"openspec/changes/add-prices/{name}": words for name, words in {
            "proposal.md": "## Why\nNo prices.\n", "tasks.md": CHANGE, "specs/prices/spec.md": "## ADDED Requirements\n",
        }.items()},
        {"1.2": [], "2.1": ["1.2"]},
    ),
    "ralph plan .taskmaster/tasks/tasks.json": Recipe(
        {".taskmaster/tasks/tasks.json": json.dumps({"master": {"tasks": MASTER, "metadata": {}}})}, CHAIN,
    ),
    "ralph plan TODO.md docs/prices.md": Recipe(
        {"TODO.md": BOXES, "docs/prices.md": "In cents.\n"}, {"sort": [], "show": ["sort"]},
    ),
    "gh issue list --label ready --json number,title,body,labels | ralph plan -": Recipe(
        {"issues.json": json.dumps(ISSUES)}, {"12": [], "15": ["12"]}, "gh",
    ),
    "bd export | ralph plan -": Recipe({"issues.jsonl": lines_of(BEADS)}, {"shop-b22": []}, "bd"),
}  # fmt: skip
"""The commands of docs/plan.md."""
UNTAGGED = Recipe({"tasks.json": json.dumps({"tasks": MASTER, "metadata": {}})}, CHAIN)
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


@pytest.mark.parametrize("command", sample(EVERY, 2))
def test_what_people_have_becomes_a_plan_that_is_worked(
    repo: Repo, command: str
) -> None:
    """The planner sees all of it; ids and dependencies stay; nothing that it marks is
    marked."""
    recipe = EVERY[command]
    recipe.lay(repo)
    done = shell(repo, f"{command} --planner '{planner(repo, says(recipe.answer))}'")
    assert done.returncode == 0, done.stdout + done.stderr
    asked = (repo.outside / "asked").read_text()
    for name, words in recipe.files.items():
        assert words.strip() in asked and (bool(recipe.program) or name in asked)
    assert (repo.outside / "turns").read_text() == "x"
    assert {task["id"]: task["dependsOn"] for task in stories(repo)} == recipe.tasks
    assert repo.passed() == []
    code, summary, said = repo.run(repo.agent("P(f'{task}.txt').touch()"))
    assert (code, summary["passed"]) == (0, len(recipe.tasks)), said


# ---------------------------------------------------------------- add

# What stands in the file, what is added, and what the file is then: bytes around it
# stay.
FORMS = {
    "indented": ('{\n  "tasks": [\n    {\n      "id": "US-001",\n      "title": "a"\n    }\n  ]\n}\n',
                 '{\n  "tasks": [\n    {\n      "id": "US-001",\n      "title": "a"\n    },\n    {\n      "id": "US-002",\n      "title": "new",\n      "passes": false\n    }\n  ]\n}\n'),
    "one line": ('{"tasks": [{"id": "A-09", "title": "a", "done": true}]}', '{"tasks": [{"id": "A-09", "title": "a", "done": true}, {"id": "A-10", "title": "new", "done": false}]}'),
    "a line each": ('[\n {"id": 7, "title": "a", "passes": true}\n]', '[\n {"id": 7, "title": "a", "passes": true},\n {"id": 8, "title": "new", "passes": false}\n]'),
    "tabs": ('{\n\t"stories": [\n\t\t{\n\t\t\t"id": "x",\n\t\t\t"title": "a"\n\t\t}\n\t]\n}', '{\n\t"stories": [\n\t\t{\n\t\t\t"id": "x",\n\t\t\t"title": "a"\n\t\t},\n\t\t{\n\t\t\t"id": "new",\n\t\t\t"title": "new",\n\t\t\t"passes": false\n\t\t}\n\t]\n}'),
    "no ids": ('[{"title": "a"}]', '[{"title": "a"}, {"title": "new", "passes": false}]'),
    "brackets in texts": ('{"a": "[", "tasks": [{"title": "] [ }"}], "z": "]"}', '{"a": "[", "tasks": [{"title": "] [ }"}, {"title": "new", "passes": false}], "z": "]"}'),
}  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_a_task_is_added_in_the_form_of_the_file(tmp_path: Path, form: str) -> None:
    before, after = FORMS[form]
    path = tmp_path / "prd.json"
    path.write_text(before)
    given = {"title": "new", "passes": True, "status": "done", "blocked": "x"}
    assert edit.add_tasks(prd.load(path), [given]) == after


def test_add_with_all_that_can_be_said(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    done = repo.ralph("add", "Sort prices", "--check", "test -f s", "--criterion", "EUR first", "--criterion", "USD last",
                      "--description", "why", "--priority", "1", "--depends-on", "T1")  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == "added T2: Sort prices\n"
    assert stories(repo)[1] == {
        "id": "T2", "title": "Sort prices", "checks": ["test -f s"], "acceptanceCriteria": ["EUR first", "USD last"],
        "description": "why", "priority": 1, "dependsOn": ["T1"], "passes": False,
    }  # fmt: skip
    assert not (repo.path / "progress.txt").exists(), "the plan itself says it"


NOT_ADDED = {
    "no such dependency": (
        ["x", "--check", "true", "--depends-on", "T9"],
        "no such task",
    ),
    "blank": ([" "], "title"),
    "nothing that proves it": (["x"], "nothing would prove 'x'"),
    "blank check": (["x", "--check", " "], "blank"),
}


@pytest.mark.parametrize("case", NOT_ADDED)
def test_what_cannot_be_added_changes_nothing(repo: Repo, case: str) -> None:
    repo.plan({"checks": ["true"]})
    before = repo.read("prd.json")
    words, said = NOT_ADDED[case]
    done = repo.ralph("add", *words)
    assert (
        done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    ), done.stderr
    assert repo.read("prd.json") == before and not (repo.path / "progress.txt").exists()


def until(repo: Repo, name: str) -> str:
    """A line of an agent that says so in `../on`, and waits for the file `../NAME`."""
    out = str(repo.outside)
    return f"P({out!r}, 'on').touch()\nwhile not P({out!r}, {name!r}).exists(): time.sleep(0.02)\n"


def test_what_is_added_during_the_last_checks_is_worked_too(repo: Repo) -> None:
    out = repo.outside
    wait = f"touch {out}/on; while ! test -f {out}/added; do sleep 0.02; done"
    repo.plan(
        {
            "checks": [
                f"test -f T1 || exit 1; case $(pwd) in */room-[2-9]) {wait};; esac"
            ]
        }
    )
    process = repo.start("run", "--agent", repo.agent("P(task).touch()"))
    repo.wait_for("../on")  # the attempt's own check is over, the last ones run
    assert repo.ralph("add", "late", "--check", "test -f T2").returncode == 0
    repo.write("../added", "")
    said, _ = process.communicate(timeout=60)
    assert process.returncode == 0 and repo.passed() == ["T1", "T2"], said


# ---------------------------------------------------------------- found by attacking it


def test_a_killed_planner_leaves_home_as_it_was(repo: Repo) -> None:
    repo.ralph("init")
    repo.commit("plan")
    repo.write("../brief.md", "x")
    before = everything_at_home(repo)
    vandal = planner(repo, f"{VANDAL}\n{until(repo, 'never')}")
    process = repo.start("plan", "../brief.md", "--planner", vandal)
    repo.wait_for("../on")
    repo.kill()
    process.communicate(timeout=30)
    assert everything_at_home(repo) == before
    assert plan(repo, says(GOOD)).returncode == 0
