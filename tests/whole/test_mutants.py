"""Mutants: ralph with one safeguard taken out. Each must be caught by what the other
tests assert."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.agents.test_costs import night, wrong
from tests.conftest import Repo, sample
from tests.loop.test_ladder import MODELS, calls
from tests.scripts import MEET, ROW, speaker
from tests.whole.test_side_by_side_model import CHECKS, NO_CLAIM_TWICE, red_commits

# name -> the sabotage (run before ralph's own code) and what is then wrong in a run
# that must not pass.
SABOTAGE = {
    "none": "",
    "believes the agent": """
from _ralph.checks.verdict import Decision
from _ralph.loop import examine
from _ralph.model import Verdict
examine.decide = lambda case: Decision(Verdict.PASSED)
""",
    "no evidence rule": """
from dataclasses import replace
from _ralph.loop import examine
examine.decide = lambda case, real=examine.decide: real(replace(case, changed=True))
""",
    "works at home": """
from _ralph.model import Paths
Paths.workspace = lambda self, worker=1: self.root
""",
    "home's own git in the workspace": """
from _ralph import files
from _ralph.checks import places
def write_git(checkout, *_):
    files.clear(checkout.root / ".git").write_text(f"gitdir: {checkout.home.dir}")
places.write_git = write_git
""",
    "no protection": """
from _ralph.loop import work
work.restore = lambda git, before, after, *_: (after, {}, [])
""",
    "ignored files go unnamed": """
from _ralph.loop import examine
examine.ignored_since = lambda *_: []
""",
    "no sweep": """
from _ralph.process import process
process.sweep = lambda *_a, **_k: []
""",
    "no lock": """
import os
from _ralph.state import lock
lock.acquire = lambda paths: os.open(paths.private / "nobody", os.O_RDWR | os.O_CREAT)
""",
}
CHEAT = """
for name in ("prd.json", "progress.txt"):
    if P(name).exists(): P(name).write_text(P(name).read_text().replace('"passes": false', '"passes": true') + "EVIL")
P("guarded.txt").write_text("gutted")
P("ignored").mkdir(exist_ok=True); P("ignored/result").touch()
subprocess.Popen(["sleep", "600"], start_new_session=True)
sh("git branch -qD other; git commit -qam mine")
"""


def symptoms(repo: Repo, sabotage: str) -> set[str]:
    """Run a cheating agent under a sabotaged ralph; every promise that was broken."""
    repo.write("guarded.txt", "real\n")
    repo.write(".gitignore", "ignored/\n")
    repo.commit("guarded")
    repo.git("branch", "other")
    checks = ["test -f ignored/result || test ! -f started", "grep -q real guarded.txt"]
    repo.plan({}, checks=checks, protect=["guarded.txt"])
    plan, tip = repo.read("prd.json"), repo.git("rev-parse", "HEAD")
    done = repo.ralph(
        "run",
        "-q",
        "--max-iterations",
        "1",
        "--agent",
        repo.agent(CHEAT),
        first=sabotage,
    )
    if not (repo.path / "prd.json").exists():
        return {"state"}
    found = set()
    if done.returncode != 3:
        found.add("exit")
    if "T1" in repo.passed():
        found.add("passed")
    if (repo.path / "progress.txt").exists():
        told = [one.get("reason", "") for one in repo.records("verdict")]
        if len(told) != 1 or not told[0].startswith(
            "all that it changed is left out: guarded.txt"
        ):
            found.add("records")
    if repo.read("prd.json") != plan or "EVIL" in repo.read("progress.txt"):
        found.add("state")
    if repo.read("guarded.txt") != "real\n" or repo.git("rev-parse", "HEAD") != tip:
        found.add("home")
    if not repo.git("branch", "--list", "other"):
        found.add("branch")
    if "ignored is ignored by git" not in repo.read("progress.txt"):
        found.add("not named")
    if any(p.name() == "sleep" for p in repo.alive()):
        found.add("process left")
    return found


@pytest.mark.parametrize(
    ("mutant", "symptom"),
    sample(
        [
            ("none", None),
            ("believes the agent", "passed"),
            ("no evidence rule", "passed"),
            ("works at home", "state"),
            ("home's own git in the workspace", "exit"),
            ("no protection", "records"),
            ("ignored files go unnamed", "not named"),
            ("no sweep", "process left"),
        ],
        2,
    ),
)
def test_every_safeguard_is_needed(
    repo: Repo, mutant: str, symptom: str | None
) -> None:
    found = symptoms(repo, SABOTAGE[mutant])
    assert (symptom in found) if symptom else not found, found


def test_a_room_where_the_agent_was_lets_a_faked_build_pass(repo: Repo) -> None:
    repo.write(".gitignore", "build/\n")
    repo.commit("ignore")
    repo.plan({"checks": ["test -f build/made"]})
    agent = repo.agent(
        "P('build').mkdir(exist_ok=True); P('build/made').touch(); P('x').touch()"
    )
    words = ("run", "-q", "--once", "--agent", agent)
    assert repo.ralph(*words).returncode == 3 and repo.passed() == []
    # no room of its own, and what is ignored stays where it lies
    sabotage = """
from _ralph.model import Paths
from _ralph.checks import exact
from _ralph.checks.room import Room
Paths.room = property(Paths.workspace)
Room._stamp = lambda *_: "no setup"  # as a workspace has it
exact.restore = lambda *_: []
"""
    repo.ralph(*words, first=sabotage)
    assert repo.verdicts()[-1] == "T1 passed"
    assert repo.passed() == []  # a fresh checkout at the end finds it all the same


@pytest.mark.parametrize(
    "line",
    ["LC_ALL=POSIX PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 exec RALPH", "exec RALPH >&-"],
)
def test_without_preparation_it_fails_on_a_bare_machine(repo: Repo, line: str) -> None:
    repo.plan({"title": "caf\u00e9", "checks": ["test -f T1.txt"]})
    script = repo.outside / "sabotaged.py"
    script.write_text(
        "import ralph\nralph.prepare_interpreter = lambda: None\nralph.main()\n"
    )
    agent = repo.agent("P('T1.txt').touch()")
    words = line.replace("RALPH", f"{sys.executable} {script} run -q --agent '{agent}'")
    done = subprocess.run(
        words,
        shell=True,
        cwd=repo.path,
        env=repo.env,
        stderr=subprocess.DEVNULL,
        timeout=60,
    )
    assert done.returncode == 1


def test_without_the_lock_two_runs_are_at_work_at_once(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("(OUT / 'started').touch(); time.sleep(3); P('T1.txt').touch()")
    first = repo.start("run", "--agent", agent)
    repo.wait_for("../started")
    second = repo.ralph(
        "run",
        "--json",
        "--agent",
        repo.agent("pass", "second"),
        first=SABOTAGE["no lock"],
    )
    assert json.loads(second.stdout)["exit"] != 75
    first.wait(30)


BOOKS = {
    "all that was left": (
        """
from _ralph.agents import running
def booked(result, *_):
    if result.at_least:
        result.usd = 1.0
    return result
running.booked = booked
""",
        "twice what it was",
    ),
    "nothing": (
        "from _ralph.agents import running\nrunning.booked = lambda result, *_: result",
        "below what it was",
    ),
    "forgets what a killed one reported": (
        "from _ralph.agents import running\nrunning.replay = lambda *_: None",
        "not marked",
    ),
}


@pytest.mark.parametrize("booked", sample(BOOKS, 3))
def test_what_a_cut_off_attempt_can_have_cost_must_be_booked_and_no_more(
    repo: Repo, booked: str
) -> None:
    sabotage, symptom = BOOKS[booked]
    found = night(
        repo, ["kill", "deadline", "worker"], "--max-usd", "1", first=sabotage
    )
    assert symptom in wrong(*found, wanted=3)


# ---------------------------------------------------------------- who works, and who waits

# name -> the sabotage, and what a night then does that it must not: see `broken_turns`.
TURNS = {
    "none": ("", set()),
    "a login is waited for": (
        """
from _ralph.agents import turn
from _ralph.model import Outcome
def end(self, outcome, real=turn.Turn.end):
    real(self, Outcome.LIMITED if outcome is Outcome.UNAVAILABLE else outcome)
turn.Turn.end = end
""",
        {"who is not logged in was taken for limited"},
    ),
    "no fallback": (
        """
from _ralph.agents.team import Agents
Agents.fallback = property(lambda self: None)
""",
        {"the fallback did not work"},
    ),
    "the fallback for work that failed": (
        """
from _ralph.agents.team import Agents
def back_at(self, agent):
    return float(self.history.iteration > 0 and agent.command != self.fallback.command)
Agents.back_at = back_at
""",
        {"the fallback worked what had failed"},
    ),
    "one rung for all": (
        """
from _ralph.agents.team import Agents
def ladder(self, task=None, real=Agents.ladder):
    return real(self, task)[:1]
Agents.ladder = ladder
""",
        {"the second rung was never asked"},
    ),
}


def broken_turns(repo: Repo, sabotage: str) -> set[str]:
    """What went wrong in three short nights: one without a login, one with a ladder,
    one with a limit."""
    say, broken = speaker(repo, MODELS), set()

    def worked(project: str, *checks: str, **more: Any) -> list[str]:
        before = len(calls(repo)) if (repo.outside / "calls").exists() else 0
        tasks = [{"id": "T1", "checks": list(checks)}]
        repo.plan(
            *tasks,
            agents={"speaker": ROW},
            project=project,
            limits={"attempts": 2},
            **more,
        )
        codes.append(repo.ralph("run", "--max-wait", "0", first=sabotage).returncode)
        return [line.split()[1] for line in calls(repo)[before:]]

    codes: list[int] = []
    worked("login", "test -f T1.txt", agent=f"{say} refused")
    if codes[-1] != 5:
        broken.add("who is not logged in was taken for limited")
    rungs = worked(
        "ladder",
        "test -f no",
        agent=[f"{say} haiku", f"{say} sonnet"],
        fallback=f"{say} other",
    )
    if "other" in rungs:
        broken.add("the fallback worked what had failed")
    elif rungs != ["haiku", "sonnet"]:
        broken.add("the second rung was never asked")
    if worked(
        "limit", "test -f T1.txt", agent=f"{say} limited", fallback=f"{say} other"
    ) != [
        "limited",
        "other",
    ]:
        broken.add("the fallback did not work")
    return broken


@pytest.mark.parametrize("mutant", sample(TURNS, 3))
def test_every_rule_of_who_works_is_needed(repo: Repo, mutant: str) -> None:
    sabotage, wanted = TURNS[mutant]
    found = broken_turns(repo, sabotage)
    assert wanted <= found if wanted else not found, found


# ---------------------------------------------------------------- several at once

# name -> the sabotage, and what is then seen of it: see `broken_lanes`.
LANES = {
    "none": ("", None),
    "landing without a check on the new tip": (
        """
from _ralph.loop import examine
def results_of(places, results, job, real=examine.results_of):
    if job.before:  # the candidate: as it was alone, on its own base
        job = examine.replace(job, commit=alone[0])
    return real(places, results, job)
def evidence_on(loop, results, candidate, *given, real=examine.evidence_on):
    worked = candidate.worked
    alone[:] = [loop.branch.commit(worked.tree, worked.begun.base, "alone")]
    return real(loop, results, candidate, *given)
alone = []
examine.results_of, examine.evidence_on = results_of, evidence_on
""",
        "a red commit",
    ),
    "two candidates in the room at once": (
        """
import contextlib, os
from _ralph import model
from _ralph.loop.loop import Loop
@contextlib.contextmanager
def in_room(self, ends=0.0):
    self.read()
    yield self._results()
Loop.in_room = in_room
model.Paths.room = property(lambda self: self.places / f"room-{os.getpid()}")
""",
        "two in the room",
    ),
}
CLAIMS = f"""
import subprocess
{MEET}
begun("T1", "T2", "T3")
P("claims").mkdir(exist_ok=True)
others = [int(claim.read_text()) for claim in P("claims").iterdir() if claim.name != task]
P("claims", task).write_text(f"{{max(others, default=0) + 1}}\\n")
"""


def broken_lanes(repo: Repo, sabotage: str) -> set[str]:
    """Three tasks at once, each green alone and red beside another one that claims the
    same: what is broken."""
    room, twice = (repo.outside / name for name in ("in-the-room", "twice"))
    alone = f"mkdir {room} || {{ touch {twice}; exit 1; }}; sleep 0.2; rmdir {room}"
    checks = {f"T{n}": CHECKS["claims"].format(task=f"T{n}") for n in (1, 2, 3)}
    repo.plan(
        *({"checks": [check]} for check in checks.values()),
        checks=[NO_CLAIM_TWICE, alone],
    )
    words = (
        "run",
        "-q",
        "--jobs",
        "3",
        "--max-iterations",
        "9",
        "--agent",
        repo.agent(CLAIMS),
    )
    repo.ralph(*words, first=sabotage)
    found = {
        "a red commit": bool(red_commits(repo, checks)),
        "two in the room": twice.exists(),
        "not all passed": repo.passed() != list(checks),
    }
    return {what for what, is_so in found.items() if is_so}


@pytest.mark.parametrize("mutant", sample(LANES, 3))
def test_every_rule_of_several_at_once_is_needed(repo: Repo, mutant: str) -> None:
    sabotage, symptom = LANES[mutant]
    found = broken_lanes(repo, sabotage)
    assert (symptom in found) if symptom else not found, found
