"""The lock of a plan: one process at a time, and what is done after one that was
killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys

import psutil
import pytest

from _ralph import files
from _ralph.errors import TryLater
from _ralph.model import Paths
from _ralph.state import layout, lock
from tests.conftest import ROOT, Repo

HOLDER = """
import functools, os, subprocess, sys
from pathlib import Path
from _ralph.process.leftovers import note
from _ralph.state import layout, lock
with lock.alone(layout.locate(Path("prd.json")), sys.argv[1]):
    noted = functools.partial(note, os.getpid())
    child = subprocess.Popen(
        ["sleep", "60"], start_new_session=True, stdout=subprocess.DEVNULL, preexec_fn=noted
    )
    print(child.pid, flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def paths(repo: Repo, own_places: None) -> Paths:
    repo.plan({"checks": ["true"]})
    return layout.locate(repo.path / "prd.json")


def start(paths: Paths, what: str) -> tuple[subprocess.Popen[bytes], psutil.Process]:
    """A process that holds the lock as `what`, and one that it has started."""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    words = [sys.executable, "-c", HOLDER, what]
    holder = subprocess.Popen(
        words, cwd=paths.root, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    return holder, psutil.Process(int(holder.stdout.readline()))


@pytest.mark.parametrize("what", ["run", "plan"])
def test_a_second_process_is_refused_with_the_name_of_the_first(
    paths: Paths, what: str
) -> None:
    holder, child = start(paths, what)
    refused = rf"`ralph {what}` is at work on this plan \(pid {holder.pid}, since 20"
    for _ in range(2):
        with pytest.raises(TryLater, match=refused):
            lock.acquire(paths)
    loop = layout.loop_at_work(paths)
    assert (loop.pid if loop else None) == (holder.pid if what == "run" else None)
    holder.communicate(b"")
    child.kill()
    assert layout.running(paths) is layout.last_holder(paths) is None
    os.close(lock.acquire(paths))


def kill(holder: subprocess.Popen[bytes]) -> None:
    holder.send_signal(signal.SIGKILL)
    holder.communicate()


def test_what_a_killed_run_left_is_ended_by_the_next(paths: Paths) -> None:
    holder, child = start(paths, "run")
    refs, plan = paths.root / ".git/refs/ralph", paths.private.name
    layout.note_plan(paths, "ralph/p")
    heads = paths.root / ".git/refs/heads"
    locks = [paths.private / "work-1.index.lock", heads / "ralph/p.lock"]
    locks += [refs / f"parked/{plan}/x.lock", refs / f"candidate/{plan}.lock"]
    locks.append(paths.private / f".words.0a1b{files.TEMPORARY}")
    # of edits now, of another plan, of a person's git
    others = [paths.private / "prd.lock", refs / "parked/other/x.lock"]
    others.append(heads / "main.lock")
    for path in (*locks, *others):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    kill(holder)
    assert layout.running(paths) is None and layout.last_holder(paths)
    assert child.is_running()
    lock.end_killed_run(paths)
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE
    assert all(other.exists() for other in others)
    assert not any(left.exists() for left in locks)


def test_a_second_run_ends_at_once_with_75_and_status_works_meanwhile(
    repo: Repo,
) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("""(OUT / 'hanging').touch()
while not (OUT / 'go').exists(): time.sleep(0.05)
P('T1.txt').touch()""")
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../hanging")
    code, summary, printed = repo.run("true")
    assert (code, summary["exit"]) == (75, 75)
    assert str(process.pid) in printed
    running = json.loads(repo.ralph("status", "--json").stdout)["running"]
    assert (running["pid"], running["workers"][0]["task"]) == (process.pid, "T1")
    assert f"pid {process.pid}" in repo.ralph("status").stdout
    assert repo.ralph("stop").returncode == 0
    (repo.path.parent / "go").touch()
    assert process.wait(20) in (0, 3)
    assert json.loads(repo.ralph("status", "--json").stdout)["running"] is None
    assert repo.ralph("stop").returncode == 2
