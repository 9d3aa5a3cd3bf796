"""Awake: what holds off sleep begins with the run, never disturbs it, and always ends
with it."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import Repo, cases

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="macOS has caffeinate")
HANGS = "(OUT / 'hanging').touch()\ntime.sleep(600)"
HOLDS = 'while [ "$1" != tail ]; do shift; done; exec "$@"'
"""What the real one does: the command behind its options, here without a lock."""


@pytest.fixture
def repo(repo: Repo) -> Repo:
    """One whose runs hold off sleep, as they do where nobody says otherwise."""
    repo.awake = True
    return repo


def fake(repo: Repo, script: str, name: str = "systemd-inhibit") -> Path:
    """A program on PATH that notes its arguments, one line a call; where it notes
    them."""
    noted = repo.outside / "noted"
    repo.tool(name, f'echo "$@" >> {noted}\n{script}')
    return noted


def held(repo: Repo) -> list[psutil.Process]:
    """The processes that hold off sleep."""
    found = []
    for process in repo.alive():
        with contextlib.suppress(psutil.Error):  # one that ends meanwhile
            if process.cmdline()[:1] == ["tail"]:
                found.append(process)
    return found


def hanging(repo: Repo, *words: str) -> subprocess.Popen[str]:
    """A run whose agent hangs, once sleep is held off."""
    repo.plan({"checks": ["test -f T1.txt"]})
    process = repo.start("run", "--agent", repo.agent(HANGS), *words)
    repo.wait_for("../hanging")
    return process


def test_the_sweep_after_an_attempt_lets_it_be(repo: Repo) -> None:
    fake(repo, HOLDS)
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = """
        P(f"{task}.txt").touch()
        loop = P(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        held = sh(f"grep -zqsx -e '--pi[d]={loop}' /proc/[0-9]*/cmdline").returncode == 0
        (OUT / f"held-{task}").write_text(f"{held}, {(OUT / 'noted').read_text().count('tail')}")
    """
    assert repo.run(repo.agent(agent))[0] == 0
    assert [repo.read(f"../held-{task}") for task in ("T1", "T2")] == ["True, 1"] * 2
    assert repo.alive() == []


def test_kill_9_ends_it_too(repo: Repo) -> None:
    fake(repo, HOLDS)
    process = hanging(repo)
    process.kill()
    process.wait(5)
    end = time.monotonic() + 3
    while held(repo) and time.monotonic() < end:
        time.sleep(0.05)
    assert held(repo) == []


@cases("""
script
head -c 1000000 /dev/zero; exit 1
exec sleep 600
""")
def test_one_that_fails_hangs_or_floods_changes_nothing(
    repo: Repo, script: str
) -> None:
    fake(repo, script)
    repo.plan({"checks": ["test -f T1.txt"]})
    code, _, printed = repo.run(repo.agent("P('T1.txt').touch()"))
    assert (code, repo.verdicts()) == (0, ["T1 passed"])
    assert "inhibit" not in printed
    assert repo.alive() == []


def test_no_awake_lets_it_sleep(repo: Repo) -> None:
    noted = fake(repo, HOLDS)
    process = hanging(repo, "--no-awake")
    process.terminate()
    assert process.wait(20) == 143
    assert not noted.exists()


def test_macos_has_caffeinate(repo: Repo) -> None:
    """On a Linux that says it is a Mac: the words alone are tried."""
    noted = fake(repo, "exec tail --pid=$3 -f /dev/null", "caffeinate")
    script = """
        import os, subprocess, sys, time
        sys.platform = "darwin"
        from _ralph.process.awake import kept_awake
        with kept_awake():
            while not os.path.exists(sys.argv[1]):
                time.sleep(0.02)
        print(os.getpid())
    """
    words = [sys.executable, "-c", textwrap.dedent(script), str(noted)]
    done = subprocess.run(
        words, env=repo.env, check=True, timeout=20, capture_output=True, text=True
    )
    assert noted.read_text() == f"-i -w {done.stdout}"
    assert repo.gone_within(3)


NO_LOGIN = f'case "$*" in *idle:sleep*) exit 1;; esac; {HOLDS}'


@cases(f"""
script -> asked
{HOLDS} -> idle:sleep
{NO_LOGIN} -> idle:sleep idle
""")
def test_sleep_is_held_off_until_the_run_ends(
    repo: Repo, script: str, asked: str
) -> None:
    """Where nobody is logged in, idle alone."""
    noted = fake(repo, script)
    process = hanging(repo)
    wanted = "--who=ralph --why=a run goes on --mode=block --what={} tail --pid={} -f /dev/null"
    lines = [wanted.format(what, process.pid) for what in asked.split()]
    assert noted.read_text().splitlines() == lines
    assert held(repo)
    process.terminate()
    assert process.wait(20) == 143
    assert repo.alive() == []
