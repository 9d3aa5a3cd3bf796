"""kill -9 of a loop, of the supervisor, of both: what it costs, and what it does not."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time

import psutil
import pytest

from tests.conftest import LITTLE_GRACE, Repo, is_ralph, sample
from tests.oracle import BRANCH, fresh_clone_is_green
from tests.scripts import HANGS, kinds, loop_of, once, paid, runs
from tests.whole.deeds import source
from tests.whole.test_home import VANDALS

# What an agent leaves behind before something of ralph's is killed.
LEAVES = "\n".join(
    source(deed)
    for name, (deed, _) in VANDALS["processes"].items()
    if "kill" not in name
    and "group" not in name
    and not (sys.platform == "darwin" and "setsid" in source(deed))  # as `kinds` says
)


def ralphs(repo: Repo) -> list[psutil.Process]:
    """ralph's own processes, the oldest first: the one that was started, and those that
    it forked."""
    found = []
    for process in repo.alive():
        with contextlib.suppress(psutil.Error):
            if is_ralph(process):
                found.append(process)
    return sorted(found, key=lambda process: (process.create_time(), process.pid))


HUNG = "\nif {once}:\n    {leaves}\n    P({outside!r}, 'on').touch()\n    time.sleep(600)\nP(f'{{task}}.txt').write_text('good')"


@pytest.mark.parametrize(
    "how",
    sample(
        [
            "the supervisor",
            "a loop and the supervisor",
            "everything of ralph's, the youngest first",
        ],
        2,
    ),
)
def test_a_killed_supervisor_leaves_nothing_and_the_next_start_goes_on(
    repo: Repo, how: str
) -> None:
    repo.plan(
        *({"checks": [f"grep -q good T{n}.txt"]} for n in (1, 2)),
        limits={"attempts": 1},
    )
    leaves = (
        LEAVES if how == "the supervisor" else LEAVES.replace("env -i ", "")
    )  # as docs/isolation.md says
    leaves = leaves.replace("\n", "\n    ")
    first = f"task == 'T2' and {once(repo, 'hung')}"
    agent = repo.agent(
        runs(repo) + HUNG.format(once=first, leaves=leaves, outside=str(repo.outside))
    )
    process = repo.start("run", "-q", "--agent", agent)
    repo.wait_for("../on")
    halves = ralphs(repo)
    assert halves and halves[0].pid == process.pid
    doomed = halves[::-1]
    if how == "the supervisor":
        doomed = halves[:1]
    if how == "a loop and the supervisor":
        doomed = halves
    for half in doomed:
        half.suspend()
    for half in doomed:
        half.kill()
    process.communicate(timeout=10)
    if how == "the supervisor":  # what is left of ralph hears of it
        assert repo.gone_within(3), repo.alive()
    home = repo.read("prd.json"), repo.verdicts()
    time.sleep(0.3)
    assert (repo.read("prd.json"), repo.verdicts()) == home, (
        "the half that was left wrote into the state"
    )
    code, _, printed = repo.run(agent)
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    assert paid(repo) == ["T1", "T2", "T2"]
    assert repo.gone_within(0.5), repo.alive()
    assert fresh_clone_is_green(
        repo, BRANCH, ["grep -q good T1.txt", "grep -q good T2.txt"]
    )


@pytest.mark.parametrize("who", ["the supervisor", "everything"])
def test_a_supervisor_that_is_killed_while_checks_run(repo: Repo, who: str) -> None:
    """The agent had ended; its work is still there, and is checked first."""
    out = repo.outside
    away = "" if sys.platform == "darwin" else "setsid "  # as `kinds` says
    hangs = f"grep -q good T1.txt || exit 1; [ -e {out}/on ] || {{ ({away}sleep 600 &); touch {out}/on; sleep 600; }}"
    repo.plan({"checks": [hangs]})
    agent = repo.agent(f"{runs(repo)}P('T1.txt').write_text('good')")
    process = repo.start("run", "-q", "--agent", agent)
    repo.wait_for("../on")
    if who == "everything":
        repo.kill()
    else:
        process.kill()
    process.communicate(timeout=10)
    if (
        who == "the supervisor"
    ):  # else nobody is left to end what a check had begun; the next start finds it
        assert repo.gone_within(3), repo.alive()
    assert repo.passed() == [] and repo.verdicts() == []
    code, _, printed = repo.run(agent)
    assert (code, repo.passed(), paid(repo)) == (0, ["T1"], ["T1"]), printed
    assert repo.gone_within(3), repo.alive()


def test_a_loop_that_is_killed_by_a_check(repo: Repo) -> None:
    """A check is the agent's code too; twice in one examination is enough."""
    repo.plan(
        {"checks": ["test -f T1.txt && kill -9 $PPID; sleep 1; false"]},
        {"checks": ["test -f T2.txt"]},
        limits={"attempts": 2},
    )
    code, _, printed = repo.run(repo.agent("P(f'{task}.txt').touch()"), timeout=90)
    assert (code, repo.passed()) == (4, ["T2"]), printed
    assert repo.verdicts() == ["T1 failed", "T1 failed", "T2 passed"]
    assert repo.records("verdict")[0]["reason"] == "its checks killed ralph twice"
    assert "Traceback" not in printed and repo.gone_within(0.5)


def test_a_loop_that_is_killed_by_a_check_before_an_agent_is_paid(repo: Repo) -> None:
    repo.plan({"checks": ["kill -9 $PPID; sleep 1"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent(f"{runs(repo)}P(f'{{task}}.txt').touch()")
    code, summary, printed = repo.run(agent, timeout=90)
    assert (code, repo.passed(), paid(repo)) == (4, ["T2"], ["T2"]), printed
    assert "its checks killed ralph twice" in summary["reason"]
    assert repo.verdicts() == ["T1 interrupted", "T1 set-aside", "T2 passed"]


# The clock of a run that begins four seconds before seven: `--until` knows whole
# minutes only.
BEFORE_SEVEN = """
import time
began, real = time.time(), time.time
shown = time.mktime(time.strptime("2030-01-02 06:59:56", "%Y-%m-%d %H:%M:%S"))
time.time = lambda: real() - began + shown
"""


def test_the_runs_time_ends_an_agent_that_is_running(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, {"checks": ["false"]})
    agent = repo.agent("P('x').touch(); time.sleep(600)")
    began = time.monotonic()
    code, summary, printed = repo.run(
        agent, "--until", "07:00", first=BEFORE_SEVEN + LITTLE_GRACE
    )
    assert (code, summary["stop"]) == (3, "limit"), printed
    assert time.monotonic() - began < 15
    assert repo.verdicts() == ["T1 interrupted"]
    assert repo.gone_within(0.5), repo.alive()


def test_work_that_was_green_at_the_end_of_the_runs_time_is_kept(repo: Repo) -> None:
    """It passes, or the next start checks it before it pays for an agent."""
    repo.plan({"checks": ["grep -q good T1.txt"]})
    agent = repo.agent(f"{runs(repo)}P('T1.txt').write_text('good'); time.sleep(600)")
    assert repo.run(agent, "--max-hours", "0.0014")[0] in (0, 3)
    code, _, printed = repo.run(agent)
    assert (code, repo.passed(), paid(repo)) == (0, ["T1"], ["T1"]), printed


def test_what_a_kill_left_is_checked_for_nothing_and_then_the_agent_works(
    repo: Repo,
) -> None:
    """The check is no iteration, and no attempt of `--once`."""
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent(
        f"{runs(repo)}if {once(repo, 'first')}: P('half').touch(); (OUT / 'begun').touch(); time.sleep(600)\n"
        "P('T1.txt').touch()"
    )
    killed = repo.start("run", "--agent", agent)
    repo.wait_for("../begun")
    killed.kill()
    killed.wait(30)
    code, summary, printed = repo.run(agent, "--once")
    assert (code, repo.passed(), paid(repo)) == (0, ["T1"], ["T1", "T1"]), printed
    assert "T1: an attempt was cut off; what it left is checked first" in printed
    assert (
        summary["iterations"] == 2
    )  # the one that was cut off, and the one that was paid for now


def test_kill_9_of_a_loop_costs_the_attempt_and_the_night_goes_on(repo: Repo) -> None:
    """As a system does that is short of memory."""
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    first = "\n".join(kinds().values()) + f"\n{HANGS.strip()}"
    lines = "".join(f"    {line}\n" for line in first.splitlines())
    agent = repo.agent(
        f"if (task, attempt) == ('T1', 1) and not (OUT / 'hanging').exists():\n{lines}P(f'{{task}}.txt').touch()"
    )
    process = repo.start("run", "--no-awake", "--agent", agent)
    repo.wait_for("../hanging")
    os.kill(loop_of(process), signal.SIGKILL)
    printed, _ = process.communicate(timeout=30)
    assert process.returncode == 0, printed
    assert repo.alive() == []
    assert repo.verdicts() == ["T1 interrupted", "T1 passed", "T2 passed"]
    assert repo.records("verdict")[0]["reason"] == "the attempt was cut off"
    assert "! loop 1 was killed; it is started again" in printed


def test_a_loop_that_is_killed_three_times_in_a_row_blocks_its_task(
    repo: Repo,
) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent(
        "P('half').touch()\n"
        "if task == 'T1': os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)\n"
        "P(f'{task}.txt').touch()"
    )
    assert repo.run(agent)[0] == 4
    assert repo.verdicts() == ["T1 interrupted"] * 3 + ["T2 passed"]
    last = repo.records("verdict")[2]
    assert "interrupted 3 times in a row" in last["blocked"]
    assert repo.git("show", f"{last['parked']}:half") == ""
    assert repo.passed() == ["T2"]
