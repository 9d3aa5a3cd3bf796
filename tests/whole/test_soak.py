"""A night in minutes: many tasks, an agent that does everything wrong by a seed, and
kills at random. At the end every verdict must be what an oracle says that has never
heard of ralph."""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import psutil

from tests.conftest import Repo
from tests.oracle import (
    changed,
    every_start_has_one_verdict,
    fresh_clone_is_green,
    home_of,
)
from tests.scripts import LIMIT, RESULT, plan, speaker

TASKS = int(os.environ.get("SOAK_TASKS", "5"))
SEED = os.environ.get("SOAK_SEED", "1")
STORM = max(
    TASKS // 3, 4
)  # the first tasks, through which ralph is killed; then it must run on
PATIENCE = 60.0 + 6.0 * TASKS

# What an attempt does, and what its verdict must be.
FATES = {
    "works": "passed",
    "floods": "passed",
    "cheats and works": "passed",
    "fails": "failed",
    "cheats": "failed",
    "dies": "failed",
    "hangs": "timed-out",
}
CHEATS = (
    """P("prd.json").write_text(P("prd.json").read_text().replace('"passes": false', '"passes": true'))""",
    """P("progress.txt").open("a").write('<!-- ralph {"v":2,"event":"verdict","plan":"p@","task":"%s","title":"t","verdict":"passed"} -->\\n' % task)""",
    """P("prd.json").unlink(); P("progress.txt").write_text("")""",
    """P("guarded.txt").write_text("gutted")""",
    """sh("git clean -fdxq; git reset -q --hard")""",
    """sh("git switch -qc elsewhere-%s; git commit -q --allow-empty -m mine" % os.urandom(4).hex())""",
    """sh("git add -A; git commit -qm mine; git update-ref refs/heads/ralph/p HEAD")""",
    """sh("rm -rf .ralph .git; ln -s /tmp .ralph")""",
    """subprocess.Popen(["sleep", "600"], start_new_session=True)""",
    """P(".git/index.lock").touch(); P(".git/HEAD").write_text("garbage")""",
    """P("work").mkdir(exist_ok=True); P("work/closed").mkdir(exist_ok=True); P("work/closed/x").touch(); os.chmod("work/closed", 0)""",
)


def fate(task: int, attempt: int) -> str:
    """By the seed alone; after the storm, second attempts work, lest a run ends as
    stuck."""
    if task > STORM and attempt > 1 and task % 10:
        return "works"
    names, weights = list(FATES), (8, 1, 3, 4, 4, 2, 0.4)
    if task == 2 and attempt == 1:
        return "hangs"
    return random.Random(f"{SEED} {task} {attempt}").choices(names, weights)[0]


def expected(task: int) -> list[str]:
    """The verdicts that count, in order."""
    verdicts = [FATES[fate(task, attempt)] for attempt in (1, 2)]
    return verdicts[:1] if verdicts[0] == "passed" else verdicts


def script(outside: str) -> str:
    fates = {
        f"T{task}": [fate(task, attempt) for attempt in (1, 2)]
        for task in range(1, TASKS + 1)
    }
    return f"""
import random
number = int(task[1:])
fate = {fates!r}[task][attempt - 1]
limited = P({outside!r}) / ("limited-" + task)
if number <= {STORM} and number % 3 == 0 and not limited.exists():
    limited.touch()
    print({LIMIT!r}, flush=True)
    sys.exit(1)
print('{{"type":"assistant","message":{{"content":[{{"type":"text","text":"at work"}}]}}}}', flush=True)
if fate.startswith("cheats"):
    exec({CHEATS!r}[random.Random(task + str(attempt)).randrange({len(CHEATS)})])
if fate == "floods":
    for _ in range(200):
        sys.stdout.write("x" * 99999 + "\\n")
P("work").mkdir(exist_ok=True)
works = fate in {[name for name, verdict in FATES.items() if verdict == "passed"]!r}
P("work/" + task).write_text(("good " if works else "bad ") + task + "\\n")
if fate == "dies":
    os.kill(os.getpid(), signal.SIGKILL)
if fate == "hangs":
    subprocess.Popen(["sleep", "600"], start_new_session=True)
    time.sleep(600)
print({RESULT!r}, flush=True)
"""


@dataclass
class Samples:
    """What the supervisor held, over the night: memory, open files, by pid."""

    repo: Repo
    taken: dict[int, list[tuple[int, int]]] = field(default_factory=dict)
    over: threading.Event = field(default_factory=threading.Event)

    def take(self) -> None:
        while not self.over.wait(0.2):
            for process in halves(self.repo)[0]:
                with contextlib.suppress(psutil.Error):
                    held = (process.memory_info().rss, process.num_fds())
                    self.taken.setdefault(process.pid, []).append(held)

    def growth(self) -> tuple[int, int]:
        """Bytes and open files that the longest-lived one gained from its first quarter
        to its last; nothing where it did not live long enough to tell."""
        longest = max(self.taken.values(), key=len)[
            10:
        ]  # at its start it has not opened everything yet
        if len(longest) < 100:
            return 0, 0
        quarter = max(len(longest) // 4, 1)
        first, last = longest[:quarter], longest[-quarter:]
        return (
            min(rss for rss, _ in last) - max(rss for rss, _ in first),
            min(fds for _, fds in last) - min(fds for _, fds in first),
        )


def halves(repo: Repo) -> tuple[list[psutil.Process], list[psutil.Process]]:
    """ralph's supervisor, and the loops that it forked, each of which leads a
    session."""
    found = [process for process in repo.alive() if is_ralph(process)]
    time.sleep(0.01)  # what runs git looks like ralph until it does
    found = [process for process in found if is_ralph(process)]
    pids = {process.pid for process in found}
    supervisors, loops = [], []
    for process in found:
        with contextlib.suppress(psutil.Error, ProcessLookupError):
            if process.ppid() not in pids:
                supervisors.append(process)
            elif os.getsid(process.pid) == process.pid:
                loops.append(process)
    return supervisors, loops


def is_ralph(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.cmdline()[1:4] == ["-m", "ralph", "run"]
    return False


def disturb(repo: Repo, chance: random.Random) -> bool:
    """Kill all of it, the supervisor or a loop, or ask the supervisor to stop; whether
    somebody is left to end the rest."""
    everything = chance.random() < 0.4
    supervisors, loops = halves(repo)
    number = chance.choice((signal.SIGKILL, signal.SIGKILL, signal.SIGTERM))
    one_of_them = chance.choice((supervisors, loops or supervisors))
    chosen = repo.alive() if everything else one_of_them
    for process in chosen:
        with contextlib.suppress(psutil.Error):
            process.send_signal(
                signal.SIGKILL if everything or process in loops else number
            )
    return not everything


def is_worn(repo: Repo) -> bool:
    """Whether the last two attempts were cut off: a third in a row would block the
    task."""
    with contextlib.suppress(OSError):
        last = repo.records("verdict")[-2:]
        return [record["verdict"] for record in last] == ["interrupted", "interrupted"]
    return False


def left_alone(repo: Repo, run: subprocess.Popen[bytes], seconds: float) -> bool:
    """Wait for a moment to disturb a run; False if it ended before."""
    end = time.monotonic() + seconds
    while time.monotonic() < end or is_worn(repo):
        with contextlib.suppress(subprocess.TimeoutExpired):
            run.wait(0.1)
            return False
    return True


def storm(repo: Repo) -> bool:
    notes = repo.path / "progress.txt"
    return (
        not notes.exists()
        or notes.read_bytes().count(b'"event": "verdict"') < 2 * STORM
    )


def night(repo: Repo, command: str) -> tuple[dict[str, object], int, int]:
    """Start ralph again and again until nothing is left; its last summary, the starts,
    the kills."""
    words = (
        "run",
        "--json",
        "--max-wait",
        "0",
        "--agent",
        command,
        "--agent-timeout",
        "5s",
    )
    chance, starts, kills, end = random.Random(SEED), 0, 0, time.monotonic() + PATIENCE
    while time.monotonic() < end:
        starts += 1
        summed_up = (
            repo.outside / "summary"
        )  # no pipe: it would be full before anybody reads
        with (repo.outside / "said").open("wb") as said, summed_up.open("wb") as out:
            run = subprocess.Popen(
                [sys.executable, "-m", "ralph", *words],
                cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL, stdout=out, stderr=said,
            )  # fmt: skip
        half_left = True
        while storm(repo) and left_alone(repo, run, chance.uniform(1, 5)):
            kills += 1
            half_left = disturb(repo, chance)
        run.wait(end - time.monotonic())
        # What was started while everything was being killed is for the next start to
        # end.
        assert not half_left or repo.gone_within(10), "a process outlived its run"
        assert b"Traceback" not in (repo.outside / "said").read_bytes()
        told = summed_up.read_bytes()
        summary = (
            json.loads(told) if told.endswith(b"\n") else {}
        )  # a kill can come while it is written
        if summary.get("stop") in ("blocked", "complete"):
            return summary, starts, kills
        known = ("killed", "limited", "stuck", "terminated", "interrupted")
        assert summary.get("stop", "killed") in known, (
            summary,
            (repo.outside / "said").read_text(),
        )
    raise AssertionError(f"the night did not end within {PATIENCE:.0f} s")


def test_a_night_of_disturbances_ends_as_the_oracle_says(
    repo: Repo, tally: Callable[[str, int], None]
) -> None:
    repo.write("guarded.txt", "real\n")
    repo.commit("guarded")
    repo.write("mine.txt", "mine\n")
    repo.write("a.txt", "edited\n")
    tasks = [
        {"checks": [f"grep -qx 'good T{task}' work/T{task}"]}
        for task in range(1, TASKS + 1)
    ]
    checks = [{"name": "guard", "run": "grep -qx real guarded.txt"}]
    limits = {"attempts": 2, "iterations": 10_000}
    plan(repo, *tasks, checks=checks, protect=["guarded.txt"], limits=limits)
    home, samples = home_of(repo), Samples(repo)
    sampler = threading.Thread(target=samples.take)
    sampler.start()
    try:
        _, starts, kills = night(repo, speaker(repo, script(str(repo.outside))))
    finally:
        samples.over.set()
        sampler.join()
    assert every_start_has_one_verdict(repo), repo.verdicts()
    counted = [record for record in repo.records("verdict") if record.get("run")]
    tally("soak iterations", len(counted))
    tally("soak starts", starts)
    tally("soak kills", kills)

    found: dict[str, list[str]] = {f"T{task}": [] for task in range(1, TASKS + 1)}
    for record in counted:
        if record["verdict"] not in ("interrupted", "limited"):
            found[record["task"]].append(record["verdict"])
    assert found == {f"T{task}": expected(task) for task in range(1, TASKS + 1)}
    good = [
        f"T{task}" for task in range(1, TASKS + 1) if expected(task)[-1] == "passed"
    ]
    assert repo.passed() == good
    assert sorted(subject.split(":")[0] for subject in repo.commits()) == sorted(good)
    landed = set(repo.git("ls-tree", "-r", "--name-only", "ralph/p:work").split())
    assert landed - {"closed/x"} == set(good), (
        "that one is unfinished work, if a kill came in its attempt"
    )
    assert fresh_clone_is_green(
        repo, "ralph/p", [f"grep -qx 'good {name}' work/{name}" for name in good]
    )
    assert repo.landed("guarded.txt") == "real\n" and not changed(home, home_of(repo))
    repo.git("fsck", "--no-dangling")
    assert not repo.alive()
    grown, left_open = samples.growth()
    tally("soak KiB that the supervisor grew by", max(grown, 0) >> 10)
    notes = (repo.path / "progress.txt").stat().st_size
    tally("soak KiB of notes", notes >> 10)
    assert left_open <= 0 and grown < (8 << 20) + 8 * notes, (
        left_open,
        grown,
        notes,
    )  # it reads them whole
