"""A model of nights with one loop, three and eight: random plans, agents that do everything wrong
by a seed, kills at random moments. At the end a model that has never heard of ralph
says what must have passed, and a fresh clone of every single commit that landed must be
green."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.conftest import Repo, is_ralph, sample
from tests.oracle import BRANCH, changed, every_start_has_one_verdict, home_of

COUNT = int(os.environ.get("JOBS_SEEDS", "0"))
SEEDS = range(1, COUNT + 1) if COUNT else (3, 8)
JOBS = (3, 1, 8)
PATIENCE = 240.0
ATTEMPTS = 3

# What the agent of a task does, how often in a plan at most, and how likely. Each
# conflict and each claim that is lost needs another one that landed meanwhile: so few
# of them pass within their attempts, in any order.
KINDS = {
    "works": (12, 5),
    "fails": (12, 2),  # so many times, and then it works
    "lies": (
        12,
        2,
    ),  # the same, with words and a changed copy of the plan instead of work
    "conflicts": (4, 4),  # all of these edit one line
    "claims": (
        3,
        4,
    ),  # each is green alone, and two of them side by side are red together
    "hangs": (1, 1),
    "kills early": (2, 1),
    "kills late": (2, 1),
    "never": (2, 2),
    "floods": (1, 1),
    "tampers": (2, 2),  # with the workspace's git, and its copies of plan and notes
}
CHECKS = {"conflicts": "grep -qw {task} line.txt", "claims": "test -s claims/{task}"}
OWN_CHECK = "grep -qx good {task}.txt"
NO_CLAIM_TWICE = 'test -z "$(cat claims/* 2>/dev/null | sort | uniq -d)"'

AGENT = """
kind, fails = FATES[task]
def once():
    mark = OUT / f"killed-{task}"
    return not mark.exists() and not mark.touch()
print("at work", flush=True)
time.sleep(PAUSES[task])
good = kind != "never" and attempt > fails
if kind == "hangs" and attempt == 1:
    P(f"{task}.part").touch()
    time.sleep(600)
if kind == "kills early" and once():
    os.kill(os.getppid(), 9)
    time.sleep(600)
if kind == "floods":
    for _ in range(200): sys.stdout.write("x" * 99_999 + "\\n")
if kind == "tampers":
    sh("rm -rf .git; rm prd.json; echo > progress.txt; sleep 600 &")
if kind == "lies" and not good:
    P("prd.json").write_text(P("prd.json").read_text().replace('"passes": false', '"passes": true'))
    sys.exit(print("All done: every check is green."))
if kind == "conflicts":
    line = P("line.txt").read_text().strip()
    (OUT / task).write_text(f"{line} {task}\\n")
    os.replace(OUT / task, "line.txt")  # a kill in the middle of a write would leave it empty
elif kind == "claims":
    P("claims").mkdir(exist_ok=True)
    others = [int(claim.read_text()) for claim in P("claims").iterdir() if claim.name != task]
    P("claims", task).write_text(f"{max(others, default=0) + 1}\\n")
else:
    P(f"{task}.txt").write_text("good\\n" if good else f"bad {attempt}\\n")
if kind == "kills late" and once():
    os.kill(os.getppid(), 9)
    time.sleep(600)
"""


@dataclass(frozen=True)
class Made:
    """One task of a random plan: what its agent does, how often that fails, how long it
    takes (seconds)."""

    id: str
    kind: str
    fails: int
    pause: float
    needs: tuple[str, ...]

    @property
    def check(self) -> str:
        return CHECKS.get(self.kind, OWN_CHECK).format(task=self.id)


def random_plan(chance: random.Random) -> list[Made]:
    """3 to 12 tasks, each of which may need some that stand before it."""
    made: list[Made] = []
    for number in range(1, chance.randint(3, 12) + 1):
        count = Counter(task.kind for task in made)
        left = [kind for kind, (most, _) in KINDS.items() if count[kind] < most]
        kind = chance.choices(left, [KINDS[kind][1] for kind in left])[0]
        fails = chance.randint(1, ATTEMPTS - 1) if kind in ("fails", "lies") else 0
        earlier = [task.id for task in made]
        few = min(len(earlier), chance.choice((0, 0, 0, 1, 2)))
        needs = tuple(sorted(chance.sample(earlier, few)))
        pause = chance.uniform(0, 0.5)
        made.append(Made(f"T{number}", kind, fails, pause, needs))
    return made


def can_pass(plan: list[Made]) -> set[str]:
    """The tasks whose agent succeeds within its attempts, and all that they need
    does."""
    passed: set[str] = set()
    for task in plan:  # what a task needs stands before it
        succeeds = task.kind != "never" and task.fails < ATTEMPTS
        if succeeds and passed.issuperset(task.needs):
            passed.add(task.id)
    return passed


def set_up(repo: Repo, plan: list[Made]) -> str:
    """The plan at home, beside edits of a person; the agent's command."""
    repo.write("line.txt", "all:\n")
    repo.commit("line")
    repo.write("a.txt", "edited\n")
    repo.write("mine.txt", "mine\n")
    tasks, fates, pauses = [], {}, {}
    for task in plan:
        needs = list(task.needs)
        tasks.append({"id": task.id, "checks": [task.check], "dependsOn": needs})
        fates[task.id] = (task.kind, task.fails)
        pauses[task.id] = task.pause
    alone = "true"
    if shutil.which("flock"):
        alone = f"flock -n {repo.outside}/in-$RALPH_PLACE sleep 0.02"
    checks = [NO_CLAIM_TWICE, {"name": "alone", "run": alone}]
    limits = {"attempts": ATTEMPTS, "iterations": 10_000}
    repo.plan(*tasks, checks=checks, limits=limits)
    return repo.agent(f"FATES, PAUSES = {fates!r}, {pauses!r}\n{AGENT}")


def halves(repo: Repo) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """ralph's supervisor, and the loops that it forked, each of which leads a
    session."""
    supervisors, loops = [], []
    there = repo.alive()
    time.sleep(0.05)  # what runs git looks like ralph until it does
    for process in there:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if is_ralph(process) and os.getsid(process.pid) == process.pid:
                loops.append(process)
            elif is_ralph(process) and process.ppid() == os.getpid():
                supervisors.append(process)
    return supervisors, loops


def is_worn(repo: Repo, plan: list[Made]) -> bool:
    """Whether one more kill, and that of its own agent, could be the third in a row for
    a task."""
    rows = {task.id: 1 + task.kind.startswith("kills") for task in plan}
    with contextlib.suppress(OSError):
        for record in repo.records("verdict"):
            task = record["task"]
            if record.get("uncounted"):
                continue
            interrupted = record["verdict"] == "interrupted"
            rows[task] = rows.get(task, 0) + 1 if interrupted else 1
    return max(rows.values()) > 2


def kill(repo: Repo, plan: list[Made], chance: random.Random) -> None:
    """kill -9 of everything, of the supervisor, of all of ralph, or of one loop."""
    supervisors, loops = halves(repo)
    whom = ("everything", "everything", "supervisor", "all of ralph", "loop")
    who = chance.choice(whom)
    chosen: list[psutil.Process] = []
    if who == "everything":
        repo.kill()
    elif who == "supervisor":
        chosen = supervisors
    elif who == "all of ralph":
        chosen = supervisors + loops
    else:
        chosen = chance.sample(loops, min(len(loops), 1))
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for process in chosen:
            with contextlib.suppress(psutil.Error):
                process.send_signal(number)
    # where an agent kills its loop, both can be gone
    if who == "supervisor" and not any(task.kind.startswith("kills") for task in plan):
        left = f"the supervisor is gone, and these are not: {repo.alive()}"
        assert repo.gone_within(5), left


def started(repo: Repo, words: tuple[str, ...], said: Path) -> subprocess.Popen[bytes]:
    """ralph as a person starts it; what it says beside its summary goes to a file."""
    argv = [sys.executable, "-m", "ralph", *words]
    with said.open("wb") as file:
        return subprocess.Popen(
            argv, cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=file
        )  # fmt: skip


def night(
    repo: Repo, agent: str, jobs: int, plan: list[Made], chance: random.Random
) -> int:
    """Start ralph again and again, then with any number of loops, until it ends by
    itself; how often it was killed."""
    kills, most, last = 0, chance.randint(1, 3), time.monotonic() + PATIENCE
    told = repo.outside / "said"
    while time.monotonic() < last:
        words = ("run", "--json", "--agent", agent, "--agent-timeout", "4s")
        process = started(repo, (*words, "--jobs", str(jobs)), told)
        at = time.monotonic() + chance.uniform(0.5, 5)
        while process.poll() is None and time.monotonic() < last:
            if kills < most and time.monotonic() > at and not is_worn(repo, plan):
                kill(repo, plan, chance)
                kills += 1
                at = time.monotonic() + chance.uniform(0.5, 5)
            time.sleep(0.02)
        out = process.communicate(timeout=10)[0]
        said = told.read_text()
        assert "Traceback" not in said, said
        if process.returncode != -signal.SIGKILL:
            stop = json.loads(out)["stop"]
            ended = f"{process.returncode} {stop}"
            assert ended in ("0 complete", "4 blocked"), said
            return kills
        jobs = chance.choice(JOBS)
    raise AssertionError(f"the night did not end within {PATIENCE:.0f} s")


def landed(repo: Repo) -> list[tuple[str, str]]:
    """What is on the branch, oldest first: commit, and the task of its subject."""
    log = repo.git("log", "--reverse", "--format=%H %s", f"main..{BRANCH}")
    found = []
    for line in log.splitlines():
        commit, subject = line.split(" ", 1)
        found.append((commit, subject.partition(":")[0]))
    return found


def red_commits(repo: Repo, checks: dict[str, str]) -> list[str]:
    """The commits that are red in a fresh clone, by the checks of all that had passed
    by then."""
    found, passed = [], [NO_CLAIM_TWICE]
    env = {**repo.env, "HOME": os.devnull}
    for commit, task in landed(repo):
        passed.append(checks[task])
        with tempfile.TemporaryDirectory() as top:
            clone = ["git", "clone", "-qn", str(repo.path), top]
            subprocess.run(clone, env=env, check=True)
            checkout = ["git", "-C", top, "checkout", "-q", "--detach", commit]
            subprocess.run(checkout, env=env, check=True)
            for check in passed:
                if subprocess.run(["sh", "-c", check], cwd=top).returncode:
                    found.append(f"{task} ({commit[:8]}): {check}")
    return found


@pytest.mark.parametrize(("seed", "jobs"), sample(itertools.product(SEEDS, JOBS), 6))
def test_a_night_ends_as_the_model_says_with_any_number_of_loops(
    repo: Repo, seed: int, jobs: int, tally: Callable[[str, int], None]
) -> None:
    """The plan goes by the seed alone: one loop and eight end with the same passes."""
    plan = random_plan(random.Random(seed))
    agent = set_up(repo, plan)
    home = home_of(repo)
    told = f"seed {seed}, --jobs {jobs}: {plan}"
    try:
        kills = night(repo, agent, jobs, plan, random.Random(f"{seed} {jobs}"))
    except AssertionError as error:
        raise AssertionError(f"{told}\n{error}") from error
    tally("model nights", 1)
    tally("model kills", kills)
    tally("model attempts", len(repo.records("start")))
    told += f"\n{repo.verdicts()}"
    assert every_start_has_one_verdict(repo), told
    wanted = sorted(can_pass(plan))
    assert sorted(repo.passed()) == wanted, told
    assert sorted(task for _, task in landed(repo)) == wanted, told
    passes = [one for one in repo.verdicts() if one.endswith(" passed")]
    assert sorted(passes) == [f"{task} passed" for task in wanted], told
    red = red_commits(repo, {task.id: task.check for task in plan})
    assert not red, f"{told}\n{red}"
    assert repo.gone_within(3), f"{told}\n{repo.alive()}"
    differs = changed(home, home_of(repo))
    assert not differs, f"{told}\n{differs}"
    for record in repo.records("recheck"):
        assert not record.get("broken"), told
    repo.git("fsck", "--no-dangling")
