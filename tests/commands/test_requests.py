"""Requests: what people ask of a plan is done at once, as an edit of prd.json and of
nothing else."""

from __future__ import annotations

import json
import multiprocessing
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from _ralph.commands import requests
from _ralph.errors import BadInput
from _ralph.state import edit, prd
from tests.conftest import Repo, cases
from tests.scripts import MAKES, own

pytestmark = pytest.mark.usefixtures("nothing_hangs")

GREEN = {"checks": ["true"]}


def plan(repo: Repo, *entries: dict[str, Any]) -> Path:
    repo.plan(*entries)
    return repo.path / "prd.json"


def tasks(path: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(path.read_text("utf-8"))["userStories"]
    return found


# What stands in the file, what is added, and what the file is then: bytes around it
# stay.
@cases(r"""
before -> after
{"a": "[", "tasks": [{"id": "A-09", "title": "] [ }", "done": true}], "z": "]"} -> {"a": "[", "tasks": [{"id": "A-09", "title": "] [ }", "done": true}, {"id": "A-10", "title": "new", "done": false}], "z": "]"}
[\n {"id": 7, "title": "a", "passes": true}\n] -> [\n {"id": 7, "title": "a", "passes": true},\n {"id": 8, "title": "new", "passes": false}\n]
[{"title": "a"}] -> [{"title": "a"}, {"title": "new", "passes": false}]
{\n  "tasks": [\n    {\n      "id": "US-001",\n      "title": "a"\n    }\n  ]\n}\n -> {\n  "tasks": [\n    {\n      "id": "US-001",\n      "title": "a"\n    },\n    {\n      "id": "US-002",\n      "title": "new",\n      "passes": false\n    }\n  ]\n}\n
""")
def test_a_task_is_added_in_the_form_of_the_file(
    tmp_path: Path, before: str, after: str
) -> None:
    path = tmp_path / "prd.json"
    path.write_text(before.replace(r"\n", "\n"))
    given = {"title": "new", "passes": True, "status": "done", "blocked": "x"}
    found = edit.add_tasks(prd.load(path), [given])
    assert found == after.replace(r"\n", "\n")


ADDED = """{
    "id": "T2", "title": "Sort prices", "checks": ["test -f s"], "acceptanceCriteria": ["EUR first", "USD last"],
    "description": "why", "priority": 1, "dependsOn": ["T1"], "passes": false}"""


def test_add_with_all_that_can_be_said(repo: Repo) -> None:
    path = plan(repo, GREEN)
    said = repo.sh("""
        $PYTHON -m ralph add 'Sort prices' --check 'test -f s' --criterion 'EUR first' --criterion 'USD last' \\
            --description why --priority 1 --depends-on T1
    """)
    assert said == "added T2: Sort prices\n"
    assert tasks(path)[1] == json.loads(ADDED)
    assert not (repo.path / "progress.txt").exists(), "the plan itself says it"


def test_a_task_takes_the_place_of_the_example(repo: Repo) -> None:
    repo.ralph("init")
    path = repo.path / "prd.json"
    assert requests.add(path, "a real task", GREEN) == "added US-001: a real task"
    assert [task["title"] for task in tasks(path)] == ["a real task"]


@cases("""
    notes                       answer    wanted
    {}                          -         {}
    {"notes": null}             blue      {"notes": "blue"}
    {"notes": "which?"}         blue      {"notes": "which?\\nblue"}
    {"notes": {"a": 1}}         blue      {"notes": [{"a": 1}, "blue"]}
""")
def test_a_task_is_opened_and_the_answer_stands_in_its_notes(
    repo: Repo, notes: str, answer: str, wanted: str
) -> None:
    path = plan(repo, {**json.loads(notes), "blocked": "which colour?", **GREEN}, GREEN)
    before = tasks(path)
    said = requests.retry(path, ["T1"], answer)
    assert said.startswith("T1 is open again")
    assert said.endswith("; your answer is in its notes") == bool(answer)
    after = before[0] | json.loads(wanted, strict=False) | {"blocked": False}
    assert tasks(path) == [after, before[1]]


def test_a_task_that_was_not_blocked_stays_as_it_is(repo: Repo) -> None:
    path = plan(repo, GREEN)
    when = path.stat().st_mtime_ns
    assert requests.retry(path, ["T1"], "") == "T1 was not blocked and stays open"
    assert path.stat().st_mtime_ns == when


def test_several_are_opened_at_once_or_none(repo: Repo) -> None:
    path = plan(repo, *[{"blocked": "why?", **GREEN}] * 3)
    said = requests.retry(path, ["T1", "T3"], "")
    assert said == "T1 is open again\nT3 is open again"
    assert [bool(task["blocked"]) for task in tasks(path)] == [False, True, False]
    before = path.read_bytes()
    with pytest.raises(BadInput, match="no task 'the'"):
        requests.retry(path, ["T2", "the", "blue", "one"], "")
    assert path.read_bytes() == before
    assert len(repo.records("retry")) == 2


WORKS = """
(OUT / f"on-{task}").touch()
while task == "T2" and not (OUT / "go").exists(): time.sleep(0.02)
with P(f"{task}.txt").open("a") as file: file.write("good")
(OUT / "prompts").open("a").write(f"{task} {'in blue, too' in prompt}\\n")
"""


def test_a_task_that_passed_is_opened_while_the_loop_works_another(repo: Repo) -> None:
    path = plan(repo, own("T1"), own("T2"))
    night = repo.start("run", "--agent", repo.agent(WORKS))
    repo.wait_for("../on-T2")
    assert repo.passed() == ["T1"]
    said = requests.retry(path, ["T1"], "in blue, too")
    assert said == "T1 is open again; your answer is in its notes"
    assert repo.records("retry")[0]["answer"] == "in blue, too"
    repo.write("../go", "")
    out, _ = night.communicate(timeout=40)
    assert night.returncode == 0, out
    assert "marked again" not in out
    assert repo.read("../prompts") == "T1 False\nT2 False\nT1 True\n"
    assert repo.landed("T1.txt") == "goodgood"
    assert repo.passed() == ["T1", "T2"]


@pytest.mark.parametrize("notes", [{}, {"notes": ["no tabs"]}, {"rules": "r" * 4000}])
def test_a_note_for_the_plan_stands_in_the_next_prompt(
    repo: Repo, notes: dict[str, Any]
) -> None:
    """Also where the plan says so much that not all of it fits."""
    repo.plan(GREEN, **notes)
    done = repo.ralph("tell", "no new dependencies")
    assert done.stdout == "noted in the plan; every new attempt reads it\n"
    assert "no new dependencies" in repo.ralph("prompt", "--task", "T1").stdout


@cases("""
    words                           said
    tell T9 x                       there is no task 'T9'; the tasks are T1
    tell T1 ' '                     the note is empty
    tell T1                         the note on T1 is empty: ralph tell T1 TEXT
    tell T1 x                       T1 has passed; to work it again: ralph retry T1
    add ' ' --check true            the title is empty
    add x --check ' '               blank
    add x --check true --depends-on T2  there is no task 'T2'
    add x                           nothing would prove 'x': the plan has no checks
    stop                            no run of this plan is at work
""")
def test_what_cannot_be_asked_is_refused(repo: Repo, words: str, said: str) -> None:
    path = plan(repo, {"passes": True, **GREEN})
    before = path.read_bytes()
    done = repo.ralph(*shlex.split(words))
    assert done.returncode == 2
    assert said in done.stderr
    assert path.read_bytes() == before


def _ask(path: Path, who: int) -> None:
    for number in range(10):
        requests.add(path, f"task {who} {number}", GREEN)
        requests.tell(path, f"word {who} {number}", "T1")


def test_what_several_people_ask_at_once_is_all_done(repo: Repo) -> None:
    path = plan(repo, GREEN)
    fork = multiprocessing.get_context("fork")
    people = [fork.Process(target=_ask, args=(path, who)) for who in range(3)]
    for one in people:
        one.start()
    for one in people:
        one.join(50)
    assert len(prd.load(path).tasks) == 31
    assert len(tasks(path)[0]["notes"].splitlines()) == 30


def test_an_attempt_cannot_steer_its_loop(repo: Repo) -> None:
    repo.plan(own("T1"))
    asked = [
        "stop",
        "retry T1",
        "tell x",
        "add x --check true",
        "plan a",
        "land",
        "clean",
    ]
    ralph = f"cd {repo.path} && {sys.executable} -m ralph"
    agent = f"""
        for words in {asked}: sh(f'{ralph} {{words}} >> {{OUT}}/said 2>&1')
        assert not sh('{ralph} add --help > /dev/null').returncode
        {MAKES}"""
    before = repo.read("prd.json")
    assert repo.run(repo.agent(agent))[0] == 0
    said = repo.read("../said").splitlines()
    assert len(said) == len(asked), said
    for line in said:
        assert line.endswith("refused inside an attempt")
    assert repo.read("prd.json") == before.replace("false", "true")
