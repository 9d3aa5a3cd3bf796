"""People: what they do to plan, notes and files while a plan is under way counts, and is not lost."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.conftest import Repo

WORKS = 'P(f"{task}.txt").write_text("good")'
EDIT = "import json, pathlib, shutil\nP = pathlib.Path\nd = json.loads(P('prd.json').read_text())\nt = d['userStories']\n"
SAVE = "\nP('prd.json').write_text(json.dumps(d))"

# T3 is blocked, T1 has passed, T2 has failed once and its half work lies in the tree. What a person
# then does, and the verdicts of a next run in which everything works.
BETWEEN_RUNS = {
    "nothing": ("", "T2 passed"),
    "takes a pass back": ("t[1].update(passes=False, checks=['grep -q again T1.txt'])" + SAVE, "T1 passed, T2 passed"),
    "gives a pass": ("t[2]['passes'] = True" + SAVE, ""),
    "takes a block away": ("del t[0]['blocked']" + SAVE, "T3 passed, T2 passed"),
    "adds a task": ("t.append({'id': 'T4', 'title': 'x', 'checks': ['test -f T4.txt']})" + SAVE, "T2 passed, T4 passed"),
    "deletes a task": ("del t[2]" + SAVE, ""),
    "turns the order": ("del t[0]['blocked']; t.reverse()" + SAVE, "T2 passed, T3 passed"),
    "writes another plan with the same ids": ("for n in t: n.update(title='new', passes=False, blocked=None, checks=['grep -q better ' + n['id'] + '.txt'])" + SAVE, "T3 failed, T3 passed, T1 failed, T1 passed, T2 failed, T2 passed"),
    "deletes progress.txt": ("P('progress.txt').unlink()", "T2 passed"),
    "adds to progress.txt": ("P('progress.txt').open('a').write('my own words\\n')", "T2 passed"),
    "deletes .ralph": ("shutil.rmtree('.ralph')", "T2 passed"),
    "deletes .git/ralph": ("shutil.rmtree('.git/ralph')", "T2 passed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def under_way(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = Repo(tmp_path_factory.mktemp("night"))
    tasks = [{"id": task, "checks": [f"grep -q good {task}.txt"]} for task in ("T3", "T1", "T2")]
    repo.plan(*tasks, limits={"attempts": 2})
    half = repo.agent("P(f'half-{task}.txt').touch()\nif task == 'T1': " + WORKS)
    assert repo.run(half, "--max-iterations", "4")[0] == 3
    assert repo.verdicts() == ["T3 failed", "T3 failed", "T1 passed", "T2 failed"]
    repo.write("mine.txt", "mine\n")
    return repo


@pytest.mark.parametrize("deed", BETWEEN_RUNS)
def test_what_a_person_does_between_runs_counts(under_way: Repo, tmp_path: Path, deed: str) -> None:
    code, wanted = BETWEEN_RUNS[deed]
    repo = under_way.copy(tmp_path)
    repo.write("../deed.py", EDIT + code)
    assert repo.python("../deed.py") == 0
    already = len(repo.records("verdict")) if (repo.path / "progress.txt").exists() else 0
    works = "P(f'{task}.txt').write_text('good again' + ' and better' * (attempt == 2))"
    ended = repo.ralph("run", "-q", "--agent", repo.agent(works, "works"))
    assert ended.returncode in (0, 4), ended.stderr
    assert ", ".join(repo.verdicts()[already:]) == wanted, ended.stderr
    left = [task for task in json.loads(repo.read("prd.json"))["userStories"] if not task["passes"]]
    assert [task["id"] for task in left] == (["T3"] if ended.returncode else [])
    assert repo.read("mine.txt") == "mine\n"
    assert ("my own words" in repo.read("progress.txt")) == (deed == "adds to progress.txt")
    assert {"T1.txt", "prd.json"} <= set(repo.git("ls-tree", "--name-only", "HEAD").split())


def test_a_task_that_a_person_adds_while_the_loop_runs_is_worked(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, limits={"attempts": 1})
    added = "t.append({'id': 'T2', 'title': 'x', 'checks': ['test -f T2.txt']}) if len(t) == 1 else 0"
    repo.write("../deed.py", EDIT + added + SAVE)
    code, _, _ = repo.run(repo.agent(WORKS), "--notify", f"{sys.executable} ../deed.py")
    assert (code, repo.verdicts()) == (4, ["T1 failed", "T2 passed"])


def test_a_plan_that_a_person_edits_during_an_attempt_is_kept_aside_and_said(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    before = repo.read("prd.json")
    process = repo.start("run", "--agent", repo.agent("P('../on').touch(); time.sleep(1.5); " + WORKS))
    repo.wait_for("../on")
    repo.write("prd.json", before.replace('"task 1"', '"my new words"'))
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert repo.read("prd.json") == before.replace('"passes": false', '"passes": true')
    line = next(line for line in repo.read("progress.txt").splitlines() if line.startswith("- restored: prd"))
    assert "T1 had been rewritten" in line and "T1 had been rewritten" in said
    assert "my new words" in (repo.path / line.split("kept at ")[1].rstrip(")")).read_text()


@pytest.mark.parametrize("when", ["before the work", "after the agent"])
def test_a_file_that_a_person_edits_while_a_check_runs_is_put_back_named_and_kept(
    repo: Repo, when: str
) -> None:
    edit = "test -f T1.txt" if when == "after the agent" else "! test -f T1.txt"
    repo.plan({"checks": [f"{edit} && echo mine > a.txt; test -f T1.txt"]})
    code, _, printed = repo.run(repo.agent(WORKS), "--once")
    assert (code, repo.read("a.txt")) == (0, "a\n"), printed
    line = next(line for line in repo.read("progress.txt").splitlines() if "while checks ran" in line)
    assert line.startswith("- notice: a.txt had been changed")
    assert repo.git("show", f"{line.split('git show ')[1].split(':')[0]}:a.txt") == "mine\n"
    assert repo.git("show", "HEAD~1:a.txt") == "a\n"
