"""`ralph plan`: new tasks, from a brief or from a list that people have, and nothing lost
by them."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

from tests.conftest import ROOT, Repo, cases, sample
from tests.oracle import home_of
from tests.scripts import ROW, cost

TASKS: list[dict[str, Any]] = json.loads("""[
{"id": "US-001", "title": "greet", "acceptanceCriteria": ["prints hello"], "checks": ["test -f hello"], "priority": 1},
{"id": "US-002", "title": "by name", "acceptanceCriteria": ["prints the name"], "checks": ["test -f name"], "dependsOn": ["US-001"]}
]""")
GOOD: dict[str, Any] = {"questions": [], "description": "d", "userStories": TASKS}
QUESTION = {"question": "In which language?", "proposal": "English"}
ASKS: dict[str, Any] = {**GOOD, "questions": [QUESTION]}
NAMES = "{'US-001': 'hello', 'US-002': 'name'}"
"""The file that proves each task."""


def says(*answers: object, then: str = "") -> str:
    """A planner that gives one answer a turn, the last one again and again."""
    texts = []
    for answer in answers:
        is_text = isinstance(answer, str)
        texts.append(answer if is_text else f"I looked.\n{json.dumps(answer)}")
    notes = (
        "n = OUT / 'turns'; n.open('a').write('x'); (OUT / 'asked').write_text(prompt)"
    )
    prints = "print(answers[min(n.stat().st_size, len(answers)) - 1])"
    return f"{notes}\nanswers = {texts!r}\n{then}\n{prints}"


def plan(
    repo: Repo, script: str, *words: str, brief: str = "It greets.", exit: int = 0
) -> str:
    """What `ralph plan` of a brief prints with this planner, and ends with `exit`."""
    repo.write("../brief.md", brief)
    return planned(repo, "../brief.md", "--planner", planner(repo, script), *words, exit=exit)  # fmt: skip


def planned(repo: Repo, *words: str, exit: int = 0) -> str:
    done = repo.ralph("plan", *words)
    printed = done.stdout + done.stderr
    assert done.returncode == exit, printed
    assert "Traceback" not in printed
    return printed


def planner(repo: Repo, script: str) -> str:
    """A scripted planner; it knows where the workspace lies (REAL), though it works in
    a copy."""
    command, path = repo.agent("", "planner"), repo.outside / "planner.py"
    head = "import os\nos.environ.update(RALPH_TASK_ID='', RALPH_ATTEMPT='0')\n"
    names = f"OUT, REAL = P({str(repo.outside)!r}), P({str(repo.path)!r})\n"
    path.write_text(head + path.read_text() + names + script)
    return command


def whole(repo: Repo) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(repo.read("prd.json"))
    return found


def change(repo: Repo, **top: Any) -> None:
    """Change the plan at its top level, as a person does."""
    repo.write("prd.json", json.dumps({**whole(repo), **top}))


# ---------------------------------------------------------------- plan


def test_a_brief_becomes_a_plan_that_can_be_run(repo: Repo) -> None:
    said = plan(repo, says(GOOD), brief="A program that greets.")
    assert whole(repo)["userStories"] == [{**task, "passes": False} for task in TASKS]
    asked = repo.read("../asked")
    assert "A program that greets." in asked
    assert "prd.json has no checks yet" in asked
    for words in ("by name", "after US-001", "proved by test -f name", "ralph run"):
        assert words in said
    repo.ends("0: US-001 US-002", repo.agent(f"P({NAMES}[task]).touch()"))


def test_open_questions_end_with_4_and_stand_in_the_plan(repo: Repo) -> None:
    said = plan(repo, says(ASKS), exit=4)
    assert "1. In which language?\n   proposed, and planned so: English" in said
    assert whole(repo)["openQuestions"] == ASKS["questions"]
    # it waits for answers: no --force is needed
    plan(repo, says(GOOD), brief="It greets in Frisian.")
    assert "openQuestions" not in whole(repo)


EVIL = '{"checks": ["rm -rf /"], "agent": "sh", "setup": "evil", "limits": {"iterations": 99}}'


def test_what_a_person_had_said_at_the_top_of_the_plan_stays(repo: Repo) -> None:
    repo.ralph("init")
    own = json.loads(
        '{"checks": ["true"], "protect": ["a.txt"], "limits": {"iterations": 5}}'
    )
    change(repo, **own)
    answer = task(passes=True, agent="evil", blocked="no")
    answer |= json.loads(EVIL)
    plan(repo, says(answer))
    made = whole(repo)
    assert own.items() <= made.items()
    assert made.keys().isdisjoint({"setup", "agent"})
    assert made["userStories"] == [{**TASKS[0], "passes": False}]
    assert "- `true`" in repo.read("../asked")


def task(**changes: Any) -> dict[str, Any]:
    """A plan of the first task alone, with these changes."""
    return {**GOOD, "userStories": [{**TASKS[0], **changes}]}


@cases(
    """
    answer                                     wrong
    "That is my plan."                         no JSON object with a list `userStories`
    {"userStories": ["greet"]}                 expected task objects
    {"acceptanceCriteria": []}                 no acceptanceCriteria
    {"checks": []}                             has no checks
    {"dependsOn": ["US-001"]}                  circle
    {"priority": {}}                           priority
    """,
    of=3,
)
def test_an_answer_that_cannot_be_used_is_told_the_planner_once(
    repo: Repo, answer: str, wrong: str
) -> None:
    """`answer` is a text, a plan, or what its first task says."""
    first = json.loads(answer)
    if isinstance(first, dict) and "userStories" not in first:
        first = task(**first)
    plan(repo, says(first, GOOD))
    asked = repo.read("../asked")
    assert "What was wrong with your last answer" in asked
    assert wrong in asked
    assert repo.read("../turns") == "xx"


def test_two_answers_that_cannot_be_used_leave_everything_as_it_was(repo: Repo) -> None:
    repo.ralph("init")
    before = repo.read("prd.json")
    said = plan(repo, says("no"), exit=1)
    assert "twice" in said
    assert "plan-again.out" in said
    assert repo.read("prd.json") == before
    assert not (repo.path / "progress.txt").exists()
    assert repo.read(".ralph/log/plan-again.out").strip() == "no"


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
    before = home_of(repo)
    look = "assert P('a.txt').read_text() == 'a\\n' and P('b.txt').exists() and P.cwd() != REAL\n"
    plan(repo, says(GOOD, then=look + VANDAL))
    assert home_of(repo) == before
    assert len(whole(repo)["userStories"]) == 2
    assert "forged" not in repo.read("progress.txt")


def test_a_plan_with_open_tasks_is_replaced_only_with_force(repo: Repo) -> None:
    repo.plan("test -f T1", "test -f T2")
    said = plan(repo, says(GOOD), exit=2)
    assert "--force" in said
    assert "prd.json has 2 open tasks; `ralph add` adds to them" in said
    assert repo.run(repo.agent("P(task).touch()"), "--once")[0] == 0
    worked = repo.read("prd.json")
    assert "has 1 open task;" in plan(repo, says(GOOD), exit=2)
    assert repo.read("prd.json") == worked
    assert not (repo.outside / "asked").exists()
    assert kept(plan(repo, says(GOOD), "--force")) == worked
    assert "- T1: task 1" in repo.read("../asked")


def kept(said: str) -> str:
    """The plan that was replaced."""
    return Path(said.split("is kept at ")[1].splitlines()[0]).read_text()


def test_the_next_feature_begins_once_everything_passed_and_landed(repo: Repo) -> None:
    """On a branch of its own, with a history of its own."""
    repo.plan({"id": "US-001", "checks": ["test -f US-001"]}, limits={"attempts": 5})
    repo.commit("plan")
    assert repo.run(repo.agent("P(task).touch()"))[0] == 0
    said = plan(repo, says(GOOD), exit=2)
    assert "HEAD lacks the work on ralph/p; `ralph land` merges it" in said
    for number in (2, 3):
        assert repo.ralph("land").returncode == 0
        plan(repo, says(GOOD))
        made = whole(repo)
        assert made["branchName"] == f"ralph/p-{number}"
        assert made["limits"]["attempts"] == 5
        assert json.loads(repo.ralph("status", "--json").stdout)["iterations"] == 0
        if number == 2:
            repo.ends("0: US-001 US-002", repo.agent(f"P({NAMES}[task]).touch()"))


def test_what_a_person_saves_while_the_planner_is_at_work_is_kept(repo: Repo) -> None:
    repo.ralph("init")
    mine = whole(repo)
    mine["limits"] = {"iterations": 7}
    mine["userStories"].append({"title": "my own"})
    saved = json.dumps(mine)
    then = f"(REAL / 'prd.json').write_text({saved!r})"
    assert kept(plan(repo, says(GOOD, then=then))) == saved
    made = whole(repo)
    assert [task["id"] for task in made["userStories"]] == ["US-001", "US-002"]
    assert made["limits"] == {"iterations": 7}


def test_what_planning_cost_counts_for_the_plan_and_its_budget(repo: Repo) -> None:
    event = cost(0.25, result=json.dumps(GOOD))
    repo.tool("speaker", f"cat << 'end'\n{event}\nend")
    repo.ralph("init")
    change(repo, agents={"speaker": ROW}, planner="speaker")
    repo.write("../brief.md", "greet")
    said = planned(repo, "../brief.md")
    assert "2 tasks planned" in said
    assert "$0.25" in said
    (record,) = repo.records("add")
    assert record["usd"] == 0.25
    assert "- planner: speaker" in repo.read("progress.txt")
    change(repo, budget={"usd": 0.2})
    said = planned(repo, "../brief.md", "--force", exit=4)
    assert "budget in dollars is spent" in said
    assert json.loads(repo.ralph("status", "--json").stdout)["usd"] == 0.25


@cases("""
    words                 exit  said
    --prd ../prd.json     2     not in a git repository; cd to your project, or start one: git init
    --planner not-here    5     not on PATH
""")
def test_what_is_refused_in_one_message(
    repo: Repo, words: str, exit: str, said: str
) -> None:
    assert said in planned(repo, "a.txt", *words.split(), exit=int(exit))


def test_a_planner_that_is_stopped_leaves_home_as_it_was(repo: Repo) -> None:
    repo.ralph("init")
    repo.commit("plan")
    before = home_of(repo), repo.read("prd.json")
    leaves = "subprocess.Popen(['sleep', '60'], start_new_session=True)"
    slow = planner(repo, f"{leaves}\n{VANDAL}\n(OUT / 'on').touch(); time.sleep(60)")
    repo.write("../brief.md", "greet")
    process = repo.start("plan", "../brief.md", "--planner", slow)
    repo.wait_for("../on")
    assert repo.ralph("run").returncode == 75  # one at a time
    process.terminate()
    process.communicate(timeout=30)
    assert process.returncode == 143
    assert repo.gone_within(5)
    assert (home_of(repo), repo.read("prd.json")) == before
    plan(repo, says(GOOD))


def test_the_example_of_init_is_never_worked(repo: Repo) -> None:
    repo.ralph("init")
    repo.commit("plan")
    ran = repo.ends("2:", repo.agent("P('x').touch()"), "--check", "true")
    assert "ralph plan brief.md" in ran.printed
    assert not (repo.path / "x").exists()


# ---------------------------------------------------------------- what the clean room says


PROVES_NOTHING = "own checks are green already, so they prove nothing: US-001"


@cases("""
    checks                               told
    ["test -f a.txt"]                    yes
    ["test -f new.txt"]                  -
    ["test -f a.txt", "test -f new.txt"]  -
""")
def test_a_check_that_is_green_before_the_work_is_told_the_planner_once(
    repo: Repo, checks: str, told: str
) -> None:
    """Then it is said, and the plan is there all the same."""
    own = json.loads(checks)
    said = plan(repo, says(task(checks=own)))
    assert repo.read("../turns") == ("xx" if told else "x")
    for words in (said, repo.read("../asked")):
        assert (PROVES_NOTHING in words) == bool(told)
    assert whole(repo)["userStories"][0]["checks"] == own


MENDED = """[
{"run": "test -f fixed", "startsRed": true}, {"run": ["test", "-f", "b"], "startsRed": true}, "no-such-tool", "true"]"""


def test_a_check_that_the_plan_is_to_mend_is_marked(repo: Repo) -> None:
    """Not one that is red for a reason of the place."""
    checks = ["test -f fixed", ["test", "-f", "b"], "no-such-tool", "true"]
    repo.plan({"passes": True}, checks=checks)
    plan(repo, says(GOOD), "--force")
    assert whole(repo)["checks"] == json.loads(MENDED)


def test_a_red_setup_is_told_the_planner(repo: Repo) -> None:
    repo.ralph("init")
    setup = {"setup": "echo no such package; exit 3"}
    said = plan(repo, says(task(checks=["test -f a.txt"]) | setup))
    assert repo.read("../turns") == "xx"
    assert "no such package" in said
    assert "so no check was tried" in said


# ---------------------------------------------------------------- the brief


@cases("""
    prepare                             said
    yes task | head -c 300000 > tasks.md  the brief is larger than 256 KB, too much
    printf '\\377' > tasks.md           tasks.md cannot be read: 'utf-8' codec can't decode byte 0xff in position 0
    echo > tasks.md                     the brief tasks.md is empty
    true                                tasks.md cannot be read: [Errno 2] No such file
""")
def test_a_bad_brief_is_one_sentence_and_nothing_is_written(
    repo: Repo, prepare: str, said: str
) -> None:
    repo.sh(prepare)
    done = repo.ralph("plan", "tasks.md", "--planner", "false")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (repo.path / "prd.json").exists()


# The commands of docs/plan.md, and what they read.
RECIPES = {
    "ralph plan specs/001-prices/*.md": "specs/001-prices/tasks.md specs/001-prices/spec.md",
    "ralph plan openspec/changes/add-prices/*.md": "openspec/changes/add-prices/tasks.md",
    "ralph plan .taskmaster/tasks/tasks.json": ".taskmaster/tasks/tasks.json",
    "ralph plan TODO.md docs/prices.md": "TODO.md docs/prices.md",
    "gh issue list --label ready --json number,title,body,labels | ralph plan -": "gh",
    "bd export | ralph plan -": "bd",
}


def test_the_planner_reads_what_people_have(repo: Repo) -> None:
    """By the commands of the page, as somebody types them."""
    page = (ROOT / "docs/plan.md").read_text("utf-8")
    page = page.partition("## From what you have")[2].partition("\n## ")[0]
    shown = re.findall(r"^    (.*?)(?: +#.*)?$", page, re.MULTILINE)
    assert shown == [*RECIPES]
    repo.tool("ralph", f'exec {sys.executable} -m ralph "$@"')
    command = planner(repo, says(GOOD))
    for line, names in sample(RECIPES.items(), 3):
        for name in names.split():
            if line.endswith(" -"):
                repo.tool(name, f"echo the words of {name}")
            else:
                repo.write(name, f"\x1b[1mthe words of {name}\n")
        repo.sh(f"{line} --force --planner '{command}'")
        for name in names.split():
            assert f"the words of {name}" in repo.read("../asked")
