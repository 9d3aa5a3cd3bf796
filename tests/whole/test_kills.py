"""kill -9 of a loop, of the supervisor, of both: what it costs, and what it does not."""

from __future__ import annotations

import contextlib
import sys
import time

import psutil
import pytest

from tests.conftest import LITTLE_GRACE, Repo, is_ralph, sample
from tests.oracle import BRANCH, fresh_clone_is_green
from tests.scripts import MAKES, once, own, paid, runs
from tests.whole.test_home import GROUPS

# What an agent leaves behind before something of ralph's is killed.
LEAVES = ""
for name, (deed, _) in GROUPS["processes"].items():
    lost = sys.platform == "darwin" and "setsid" in deed  # as `kinds` says
    if "kill" not in name and "group" not in name and not lost:
        LEAVES += f"{deed}\n"
HOW = (
    "the supervisor",
    "a loop and the supervisor",
    "everything of ralph's, the youngest first",
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


HUNG = """
if task == 'T2' and FIRST:
    LEAVES
    (OUT / 'on').touch()
    time.sleep(600)
P(f'{task}.txt').write_text('good')
"""


@pytest.mark.parametrize("how", sample(HOW, 2))
def test_a_killed_supervisor_leaves_nothing_and_the_next_start_goes_on(
    repo: Repo, how: str
) -> None:
    repo.plan(own("T1"), own("T2"), limits={"attempts": 1})
    alone = how == "the supervisor"
    # as docs/isolation.md says
    leaves = LEAVES if alone else LEAVES.replace("env -i ", "")
    hung = HUNG.replace("LEAVES", leaves.replace("\n", "\n    "))
    agent = repo.agent(runs(repo) + hung.replace("FIRST", once(repo, "hung")))
    process = repo.start("run", "-q", "--agent", agent)
    repo.wait_for("../on")
    doomed = ralphs(repo)
    assert doomed[0].pid == process.pid
    if alone:
        del doomed[1:]
    if how == "everything of ralph's, the youngest first":
        doomed.reverse()
    for half in doomed:
        half.suspend()
    for half in doomed:
        half.kill()
    process.communicate(timeout=10)
    if alone:  # what is left of ralph hears of it
        assert repo.gone_within(3), repo.alive()
    home = repo.read("prd.json"), repo.verdicts()
    time.sleep(0.3)
    wrote = "the half that was left wrote into the state"
    assert (repo.read("prd.json"), repo.verdicts()) == home, wrote
    repo.ends("0: T1 T2", agent)
    assert paid(repo) == ["T1", "T2", "T2"]
    assert repo.gone_within(0.5), repo.alive()
    checks = ["grep -q good T1.txt", "grep -q good T2.txt"]
    assert fresh_clone_is_green(repo, BRANCH, checks)


@pytest.mark.parametrize("who", ["the supervisor", "everything"])
def test_a_supervisor_that_is_killed_while_checks_run(repo: Repo, who: str) -> None:
    """The agent had ended; its work is still there, and is checked first."""
    on = repo.outside / "on"
    away = "" if sys.platform == "darwin" else "setsid "  # as `kinds` says
    hangs = f"[ -e {on} ] || {{ ({away}sleep 600 &); touch {on}; sleep 600; }}"
    repo.plan(f"grep -q good T1.txt || exit 1; {hangs}")
    agent = repo.agent(runs(repo) + MAKES)
    process = repo.start("run", "-q", "--agent", agent)
    repo.wait_for("../on")
    if who == "everything":
        repo.kill()
    process.kill()
    process.communicate(timeout=10)
    # else nobody is left to end what a check had begun; the next start finds it
    assert who == "everything" or repo.gone_within(3), repo.alive()
    assert repo.passed() == [] and repo.verdicts() == []
    code, _, printed = repo.run(agent)
    assert (code, repo.passed(), paid(repo)) == (0, ["T1"], ["T1"]), printed
    assert repo.gone_within(3), repo.alive()


@pytest.mark.parametrize("before", ["test -f T1.txt && ", ""])
def test_checks_that_kill_ralph_again_and_again_end_the_run(
    repo: Repo, before: str
) -> None:
    """A check is the agent's code too. Its work is kept, and nobody is paid again."""
    repo.plan(f"{before}kill -9 $PPID; sleep 1; false")
    agent = repo.agent(f"{runs(repo)}P(f'{{task}}.txt').touch()")
    summary, printed = repo.ends("1:", agent, timeout=90)
    assert summary["reason"] == "loop 1 was killed at T1, 4 times"
    assert repo.verdicts() == ["T1 interrupted"] * (0 if before else 3)
    assert (repo.outside / "runs").exists() == bool(before)
    assert "Traceback" not in printed and repo.gone_within(0.5)


# The clock of a run that begins four seconds before seven: `--until` knows whole
# minutes only.
BEFORE_SEVEN = """
import time
began, real = time.time(), time.time
shown = time.mktime(time.strptime("2030-01-02 06:59:56", "%Y-%m-%d %H:%M:%S"))
time.time = lambda: real() - began + shown
"""


def test_the_runs_time_ends_an_agent_that_is_running(repo: Repo) -> None:
    repo.plan("false", "false")
    agent = repo.agent("P('x').touch(); time.sleep(600)")
    began, first = time.monotonic(), BEFORE_SEVEN + LITTLE_GRACE
    code, summary, printed = repo.run(agent, "--until", "07:00", first=first)
    assert (code, summary["stop"]) == (3, "limit"), printed
    assert time.monotonic() - began < 15 and repo.gone_within(0.5)
    assert repo.verdicts() == ["T1 interrupted"]


def test_work_that_was_green_at_the_end_of_the_runs_time_is_kept(repo: Repo) -> None:
    """It passes, or the next start checks it before it pays for an agent."""
    repo.plan(own("T1"))
    agent = repo.agent(f"{runs(repo)}{MAKES}; time.sleep(600)")
    assert repo.run(agent, "--max-hours", "0.0014")[0] in (0, 3)
    code, _, printed = repo.run(agent)
    assert (code, repo.passed(), paid(repo)) == (0, ["T1"], ["T1"]), printed


def test_a_loop_that_is_killed_three_times_in_a_row_blocks_its_task(
    repo: Repo,
) -> None:
    repo.plan(own("T1"), own("T2"))
    dies = "if task == 'T1': os.kill(os.getppid(), 9); time.sleep(600)"
    agent = repo.agent(f"P('half').touch()\n{dies}\n{MAKES}")
    printed = repo.ends("4: T2", agent).printed
    assert repo.verdicts() == ["T1 interrupted"] * 3 + ["T2 passed"]
    assert "! loop 1 was killed at T1; it is started again" in printed
    last = repo.records("verdict")[2]
    assert "interrupted 3 times in a row" in last["blocked"]
    assert repo.git("show", f"{last['parked']}:half") == ""
