"""The supervisor: it starts loops, starts one that died again, and ends them; one `stop`
record says why."""

from __future__ import annotations

import signal

import pytest

from tests.conftest import Repo
from tests.scripts import HANGS, MAKES, MEET, own

DIES = """
import os
from _ralph.loop import {module} as module
def dies(*given, **named):
    os.kill(os.getpid(), 9)
module.{name} = dies
"""


def stops(repo: Repo) -> list[str]:
    return [record["stop"] for record in repo.records("stop")]


@pytest.mark.parametrize(
    ("module", "name"), [("claim", "begin"), ("work", "first_snapshot"), ("examine", "make_candidate")]
)  # fmt: skip
def test_a_loop_that_dies_at_the_same_place_again_ends_the_run(
    repo: Repo, module: str, name: str
) -> None:
    repo.plan(own("T1"))
    first = DIES.format(module=module, name=name)
    done = repo.ralph("run", "--agent", repo.agent(MAKES), first=first)
    assert done.returncode == 1, done.stdout
    assert "loop 1 died" in done.stdout + done.stderr
    assert stops(repo) == ["error"]
    assert not repo.alive()
    assert repo.run(repo.agent(MAKES))[0] == 0


def test_the_first_that_ends_says_why_and_the_others_finish(repo: Repo) -> None:
    """T1's loop ends the run by an error; T2 is under way, and lands."""
    repo.plan(own("T1"), own("T2"), own("T3"))
    breaks = """
from _ralph.loop import work
real = work.second_snapshot
def snapshot(loop, begun, *given):
    if begun.task.id == "T1":
        raise ZeroDivisionError("no luck")
    return real(loop, begun, *given)
work.second_snapshot = snapshot
"""
    agent = repo.agent(f"{MEET}\nbegun('T1', 'T2')\nif task == 'T2': time.sleep(1)\n{MAKES}")  # fmt: skip
    done = repo.ralph("run", "--jobs", "2", "--agent", agent, first=breaks)
    assert done.returncode == 1, done.stdout
    assert "no luck" in done.stderr
    assert stops(repo) == ["error"]
    assert "T2 passed" in repo.verdicts()
    assert not (repo.outside / "begun-T3").exists()
    assert not repo.alive()


@pytest.mark.parametrize("jobs", [1, 3])
def test_a_signal_ends_every_loop_and_one_record_says_so(repo: Repo, jobs: int) -> None:
    repo.plan(*(own(f"T{number}") for number in range(1, jobs + 1)))
    agent = repo.agent(f"(OUT / f'there-{{task}}').touch()\n{HANGS}")
    process = repo.start("run", "--jobs", str(jobs), "--agent", agent)
    for number in range(1, jobs + 1):
        repo.wait_for(f"../there-T{number}")
    process.send_signal(signal.SIGTERM)
    assert process.wait(30) == 143
    assert stops(repo) == ["terminated"]
    assert not repo.alive()
    assert not [*repo.path.glob(".git/ralph/*/room.holder")]


def test_a_start_after_a_kill_waits_for_loops_that_are_still_ending(repo: Repo) -> None:
    """They hold the run's lock, which they inherited."""
    repo.plan(own("T1"))
    slow = """
from _ralph.process import process
real = process.sweep
def sweep(*given, **named):
    import time
    time.sleep(1.5)
    return real(*given, **named)
process.sweep = sweep
"""
    agent = repo.agent(f"(OUT / 'there').touch()\ntime.sleep(60)\n{MAKES}")
    process = repo.start("run", "--agent", agent, first=slow)
    repo.wait_for("../there")
    process.kill()
    process.wait()
    code, _, printed = repo.run(repo.agent(MAKES, "second"))
    assert (code, repo.passed()) == (0, ["T1"]), printed
