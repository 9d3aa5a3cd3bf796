"""`ralph run`: its options, its first and last lines, and the script that is told."""

from __future__ import annotations

import json
import shlex
import sys

import pytest

from tests.conftest import Repo
from tests.scripts import MAKES, own


def test_notify_gets_the_summary(repo: Repo) -> None:
    repo.plan(own("T1"))
    repo.run(repo.agent(MAKES), "--notify", "cat > ../told.json")
    told = json.loads((repo.outside / "told.json").read_text())
    assert (told["stop"], told["exit"], told["passed"]) == ("complete", 0, 1)


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


@pytest.mark.parametrize(
    ("words", "meant"),
    [("run T1", "--task T1"), ("run plan.json", "--prd plan.json"), ("status plan.json", "--prd plan.json"), ("status T1", "")],
)  # fmt: skip
def test_a_task_or_a_plan_without_its_option_is_understood(repo: Repo, words: str, meant: str) -> None:
    repo.write("plan.json", "[]")
    done = repo.ralph(*words.split())
    assert done.returncode == 2 and "unexpected extra argument" in done.stderr
    assert (f"is `{meant}` meant?" in done.stderr) is bool(meant)


def test_the_attempt_that_starts_clean_says_so_when_it_begins(repo: Repo) -> None:
    repo.plan({"checks": ["false"]})
    said = repo.run(repo.agent("P('x').write_text(str(attempt))"), "--max-attempts", "2")[2]
    assert "attempt 1 of 2 | " in said and "attempt 2 of 2, from a clean start | " in said


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
