"""A plan that breaks while a run is under way is waited for: nothing new starts, and
nothing is lost."""

from __future__ import annotations

import json
import time

import pytest

from tests.conftest import Repo, sample
from tests.scripts import COUNTS, LOOKS_OFTEN, own, wait_for_records
from tests.whole.test_night import MAKES
from tests.whole.test_own_branch import sh

SEES = (
    "(OUT / f'on-{task}').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)\n"
)


# How a person leaves the plan, `whole` being how it was.
BREAKS = {
    "cut off": "head -c 100 ../whole > prd.json",
    "gone": "rm prd.json",
    "a FIFO": "rm prd.json; mkfifo prd.json",
    "a merge under way": "{ echo '<<<<<<< HEAD'; cat ../whole; echo =======; cat ../whole; } > prd.json",
    "two tasks with one id": "sed s/T3/T1/ ../whole > prd.json",
}


@pytest.mark.parametrize(
    ("how", "mended"), [("cut off", False), *((how, True) for how in sample(BREAKS, 4))]
)
def test_a_plan_that_breaks_at_night_is_waited_for(
    repo: Repo, how: str, mended: bool
) -> None:
    repo.plan(*map(own, ("T1", "T2", "T3")))
    limit = [] if mended else ["--max-hours", "0.0025"]
    words = ("run", "--jobs", "2", "--agent", repo.agent(f"{SEES}{COUNTS}"), *limit)
    night = repo.start(
        *words, "--notify", f"cat >> {repo.outside}/told", first=LOOKS_OFTEN
    )
    for task in ("T1", "T2"):
        repo.wait_for(f"../on-{task}")
    sh(repo, f"cp prd.json ../whole; {BREAKS[how]}")
    repo.write("../go", "")
    repo.wait_for("../told")
    until = time.monotonic() + 20
    while len(repo.commits()) < 2:  # those under way land
        assert time.monotonic() < until
        time.sleep(0.02)
    status = repo.ralph("status")
    assert status.returncode == 2 and "prd.json" in status.stderr
    assert not (repo.outside / "on-T3").exists()
    if mended:
        sh(repo, "rm -f prd.json; mv ../whole prd.json")
    said, _ = night.communicate(timeout=60)
    assert "prd.json" in said and "Traceback" not in said
    assert night.returncode == (0 if mended else 3), said
    if not mended:
        assert repo.read("prd.json") == repo.read("../whole")[:100]
        assert repo.ralph("run", "--agent", "true").returncode == 2
        sh(repo, "mv ../whole prd.json")
        assert repo.run(repo.agent(COUNTS))[0] == 0
    assert (
        repo.passed() == ["T1", "T2", "T3"]
        and sorted(repo.read("../ran").split()) == repo.passed()
    )


def saves(repo: Repo, *deeds: str) -> str:
    """Python for an agent: a person's editor writes prd.json at home."""
    return (
        f"HOME = P({str(repo.path)!r}, 'prd.json'); whole = HOME.read_text()\n"
        + "\n".join(deeds)
        + "\n"
    )


def test_a_plan_half_saved_in_the_middle_of_a_run_is_waited_for(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    half = saves(repo, "if task == 'T1': HOME.write_text(whole[:60])")
    agent = repo.agent(
        f"{half}(OUT / f'{{task}}-prompt').write_text(prompt)\n{MAKES}\n(OUT / f'{{task}}-did').touch()"
    )
    whole = repo.read("prd.json")
    process = repo.start("run", "--agent", agent, first=LOOKS_OFTEN)
    wait_for_records(repo, "start", 1)
    repo.wait_for("../T1-did")
    repo.write("prd.json", whole[:80])  # an editor writes on
    (room_log,) = [repo.path / ".ralph/log/0001-T1-check1.log"]
    repo.wait_for(str(room_log))
    repo.write("prd.json", whole.replace("task 2", "words of mine"))
    said, _ = process.communicate(timeout=30)
    assert process.returncode == 0, said
    assert repo.passed() == ["T1", "T2"]
    assert "words of mine" in repo.read(
        "../T2-prompt"
    ) and "words of mine" in repo.read("prd.json")


def test_what_passed_while_the_plan_was_broken_is_not_worked_again_after_a_kill(
    repo: Repo,
) -> None:
    repo.plan(*map(own, ("T1", "T2")))
    whole = repo.read("prd.json")
    agent = repo.agent(
        saves(repo, "if task == 'T1': HOME.write_text(whole[:60])") + MAKES
    )
    process = repo.start("run", "--agent", agent, first=LOOKS_OFTEN)
    wait_for_records(repo, "verdict", 1)
    process.kill()
    process.wait()
    assert repo.gone_within(5) and repo.verdicts() == ["T1 passed"]
    repo.write("prd.json", whole)
    assert repo.run(agent)[0] == 0 and repo.passed() == ["T1", "T2"]
    assert repo.verdicts() == ["T1 passed", "T2 passed"]


def test_what_was_blocked_while_the_plan_was_broken_is_not_worked_again(
    repo: Repo,
) -> None:
    repo.plan({"checks": ["test -e nothing"]}, own("T2"), limits={"attempts": 1})
    whole = repo.read("prd.json")
    agent = repo.agent(
        saves(repo, "if task == 'T1': HOME.write_text(whole[:60])") + MAKES
    )
    notify = ("--notify", f"cat >> {repo.outside}/told")
    process = repo.start("run", "--agent", agent, *notify, first=LOOKS_OFTEN)
    repo.wait_for("../told")  # what blocks waits for the plan
    process.terminate()
    process.wait()
    assert repo.verdicts() == []
    repo.write("prd.json", whole)
    agent = repo.agent(MAKES)
    for _ in range(2):
        assert repo.run(agent)[0] == 4 and repo.verdicts() == ["T1 failed", "T2 passed"]
    assert json.loads(repo.read("prd.json"))["userStories"][0]["blocked"]
    repo.ralph("retry", "T1")
    assert repo.run(agent)[0] == 4 and repo.verdicts() == [
        "T1 failed",
        "T2 passed",
        "T1 failed",
    ]
