"""`ralph run`: its options, its first and last lines, and the script that is told."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.conftest import Repo
from tests.scripts import MAKES, own


def test_once_task_and_limits(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), own("T3"))
    agent = repo.agent(MAKES + '\nif task == "T3": P("T3.txt").write_text("bad")')
    assert repo.run(agent, "--once", "--task", "T2")[0] == 0
    assert repo.passed() == ["T2"]
    assert repo.run(agent, "--once")[0] == 0
    assert repo.run(agent, "--once")[0] == 3
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    assert repo.run(agent, "--task", "nope")[0] == 2
    assert repo.run(agent, "--task", "T1")[0] == 0
    assert repo.passed() == ["T1", "T2"]


def test_notify_gets_the_summary(repo: Repo) -> None:
    repo.plan(own("T1"))
    repo.run(repo.agent(MAKES), "--notify", "cat > ../told.json")
    told = json.loads((repo.outside / "told.json").read_text())
    assert (told["stop"], told["exit"], told["passed"]) == ("complete", 0, 1)


def test_the_last_lines_say_how_to_go_on_with_the_same_options(repo: Repo) -> None:
    repo.plan({"checks": ["test -f x"]}, limits={"attempts": 1})
    agent = repo.agent("P(task).touch()")
    done = repo.ralph("run", "--agent", agent, "--max-iterations", "1")
    assert f"ralph run --agent '{agent}' --max-iterations 1" in done.stdout
    works = repo.agent("P('x').touch()", "works")
    assert repo.ralph("retry", "T1").returncode == 0
    assert "next: ralph report; ralph land ralph/p" in repo.ralph("run", "--agent", works).stdout


def test_the_first_line_says_what_is_to_come_and_every_stop_how_to_go_on(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent("P(f'{task}.txt').touch()")
    words = ["--max-iterations", "1", "--max-hours", "2", "--agent", agent]
    del repo.env["RALPH_RUN_NO_AWAKE"]
    first, *_, last = repo.ralph("run", *words).stdout.splitlines()
    assert first[20:] == (
        f"2 of 2 tasks to do on branch ralph/p | {agent} | this run: 0 of 1 iterations, 0 s of 2 h 0 min"
    )
    again = f"ralph run --max-iterations 1 --max-hours 2 --agent {shlex.quote(agent)}"
    assert last[20:] == f"next: {again}"
    assert f"next: {again}\n" in repo.ralph("status", COLUMNS="300").stdout
    waits = repo.start("run", "--agent", repo.agent("P(OUT / 'up').touch(); time.sleep(60)", "sleeper"))
    repo.wait_for("../up")
    waits.terminate()
    said, _ = waits.communicate(timeout=30)
    assert waits.returncode == 143 and said.splitlines()[-1][20:].startswith("next: ralph run --agent ")


def test_a_stop_that_came_too_late_does_not_stop_the_next_run(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    assert repo.run(repo.agent(MAKES), "--once")[0] == 0
    (private,) = (repo.path / ".git/ralph").iterdir()
    (private / "stop").write_text(repo.records("run")[0]["run"])
    assert repo.run(repo.agent(MAKES))[0] == 0


@pytest.mark.parametrize(
    ("words", "code", "seen"),
    [
        ("tell 'hello from afar'", 4, "hello from afar"),
        ("retry T1 --answer 'once more'", 4, "once more"),
        ("stop", 3, "stop"),
    ],
)
def test_a_notify_script_may_steer_the_run(repo: Repo, words: str, code: int, seen: str) -> None:
    """It does so once, when T1 is blocked."""
    repo.plan({"checks": ["false"]}, own("T2"), limits={"attempts": 1})
    ralph = f"{sys.executable} -m ralph {words} >> {repo.outside}/heard 2>&1"
    script = repo.program(
        "../notify",
        f"test -e {repo.outside}/heard || {{ {ralph}; echo ended with $?; }} >> {repo.outside}/heard 2>&1",
    )
    agent = repo.agent(f"(OUT / f'prompt-{{task}}-{{attempt}}').write_text(prompt)\n{MAKES}")
    ended, summary, said = repo.run(agent, "--notify", str(script))
    assert "ended with 0" in repo.read("../heard"), repo.read("../heard")
    assert ended == code, said
    assert seen in repo.read("progress.txt") + repo.read("prd.json") + said + json.dumps(summary)
