"""The supervisor: it starts loops, starts one that died again, and ends them; one `stop`
record says why."""

from __future__ import annotations

import signal

from tests.conftest import LITTLE_GRACE, Repo
from tests.scripts import HANGS, MAKES, MEET, own

DIES = """
import os
from _ralph.loop import claim
claim.begin = lambda *_: os.kill(os.getpid(), 9)
"""


def stops(repo: Repo) -> list[str]:
    return [record["stop"] for record in repo.records("stop")]


def test_a_loop_that_dies_again_and_again_ends_the_run(repo: Repo) -> None:
    repo.plan(own("T1"))
    done = repo.ralph("run", "--agent", repo.agent(MAKES), first=DIES)
    assert done.returncode == 1, done.stdout
    assert "loop 1 was killed, 4 times" in done.stderr
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


STAYS = """
from pathlib import Path
real = Path.unlink
def unlink(path, *given, **more):
    if path.name == "room.holder" and not Path("../stays").exists():
        Path("../stays").touch()
        raise OSError(5, "Input/output error", str(path))
    real(path, *given, **more)
Path.unlink = unlink
"""


def test_a_loop_that_cannot_leave_the_room_keeps_no_other_out(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    words = ("run", "--jobs", "2", "--agent", repo.agent(MAKES))
    done = repo.ralph(*words, first=STAYS, timeout=60)
    assert done.returncode == 1, done.stdout
    assert "Input/output error" in done.stderr
    assert repo.run(repo.agent(MAKES))[0] == 0


def test_a_signal_ends_every_loop_and_one_record_says_so(repo: Repo) -> None:
    names = ("T1", "T2", "T3")
    repo.plan(*map(own, names))
    agent = repo.agent(f"(OUT / f'there-{{task}}').touch()\n{HANGS}")
    words = ("run", "--jobs", "3", "--agent", agent)
    process = repo.start(*words, first=LITTLE_GRACE)
    for name in names:
        repo.wait_for(f"../there-{name}")
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
