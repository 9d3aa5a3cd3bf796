"""kill -9, or a full disk, at every state-changing call of a whole run, of the
supervisor and of its loops; then the same command again, and an audit."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo, sample
from tests.oracle import (
    changed,
    every_start_has_one_verdict,
    fresh_clone_is_green,
    home_of,
)

# Cheats before it works: what it flips and forges must not count, wherever the kill
# falls.
AGENT = """
import json
P(os.environ["PAID"]).open("a").write(task + "\\n")
plan = P("prd.json")
plan.write_text(plan.read_text().replace('"passes": false', '"passes": true'))
P("progress.txt").open("a").write('<!-- ralph {"v":2,"event":"verdict","plan":"p@","iteration":1,'
    '"task":"T3","title":"task 3","verdict":"passed","commit":"","tip":"","message":"x"} -->\\n')
P("guarded_test.txt").write_text("gutted")
if task == "T3" or (task == "T1" and attempt == 1):
    P(f"{task}.txt").write_text(f"bad {attempt}")
else:
    P(f"{task}.txt").write_text("good")
    P(os.environ["PAID"]).open("a").write("good\\n")
"""
CHECKS = ["grep -q good T1.txt", "grep -q good T2.txt", "grep -q real guarded_test.txt"]
PAID = 5  # attempts of a run that nothing disturbs
REST = ["T2 passed", "T3 failed", "T3 failed"]  # verdicts beside those of T1


def prepare(repo: Repo) -> str:
    """A home in which a person is at work: the plan of the sweep, and the agent's
    command."""
    repo.write("guarded_test.txt", "real\n")
    repo.commit("test")
    repo.write("a.txt", "stashed\n")
    repo.git("stash", "-q")
    repo.git("branch", "other")
    repo.write("a.txt", "edited\n")
    repo.write("mine.txt", "untracked\n")
    repo.write("staged.txt", "staged\n")
    repo.git("add", "staged.txt")
    tasks = [{"checks": [f"grep -q good T{i}.txt"]} for i in (1, 2, 3)]
    repo.plan(
        *tasks,
        checks=["grep -q real guarded_test.txt"],
        protect=["guarded_test.txt"],
        limits={"attempts": 2},
    )
    repo.git("status")  # git notes in its index what it has seen
    repo.env["PAID"] = str(repo.outside / "paid")
    (repo.outside / "home").write_text(json.dumps(home_of(repo)))
    return repo.agent(AGENT)


def crash(
    repo: Repo,
    agent: str,
    at: int,
    how: str,
    who: str = "both",
    first: str = "",
    jobs: int = 1,
) -> int:
    """The exit status of a run that dies so."""
    env: Any = {"CRASH_AT": str(at), "CRASH_HOW": how, "CRASH_WHO": who}
    env["CRASH_COUNT"] = str(repo.outside / "count")
    driven = f"import tests.crash_driver\n{first}"
    words = ("run", "-q", "--agent", agent, "--jobs", str(jobs))
    done = repo.ralph(*words, first=driven, **env)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def paid_for(repo: Repo, what: str = "T") -> list[str]:
    """The tasks of the attempts that agents began; with `good`, a word for each that
    did its work."""
    path = Path(repo.env["PAID"])
    words = path.read_text().split() if path.exists() else []
    return [word for word in words if word.startswith(what)]


def audit(
    repo: Repo,
    agent: str,
    known: set[str] | None = None,
    first: str = "",
    jobs: int = 1,
) -> None:
    """What is there after a kill, then go on, and hold the end against what must be
    true however it came about; after a power cut `known` are the tasks that are
    finished, and unsynced work may be gone."""
    assert repo.gone_within(3.0), f"a process outlived the kill: {repo.alive()}"
    recorded = set()
    if (repo.path / "progress.txt").exists():
        recorded = {word[:2] for word in repo.verdicts() if word.endswith(" passed")}
    assert set(repo.passed()) <= recorded, "a pass is marked that no record has"
    branch = repo.git("for-each-ref", "refs/heads/ralph/p")
    landed = {line[:2] for line in repo.commits()} if branch else set()
    not_landed = "a pass is recorded whose work has not landed"
    assert recorded <= landed or known is not None, not_landed
    assert set(repo.passed()) <= landed, "a pass is marked whose work has not landed"
    finished = landed if known is None else known
    before = paid_for(repo)
    words = ("run", "-q", "--agent", agent, "--jobs", str(jobs))
    done = repo.ralph(*words, first=first)
    assert done.returncode == 4, done.stderr
    assert repo.passed() == ["T1", "T2"]
    every = paid_for(repo)
    told = f"{every[: len(before)]} {every[len(before) :]}"
    again = finished & {*every[len(before) :]}
    assert not again, f"finished tasks were worked again: {told}"
    # work that was red is worked again; what was green is not
    most = 2 if known is None else 3
    assert len(paid_for(repo, "good")) <= most, f"green work was paid for again: {told}"
    twice = f"more than was under way was paid for twice: {told}"
    assert len(every) <= PAID + jobs, twice
    assert '"blocked": "2 failed attempts' in repo.read("prd.json")
    verdicts = sorted(repo.verdicts())
    final = [one for one in verdicts if one.endswith(("passed", "failed"))]
    assert [one for one in final if one[:2] != "T1"] == REST, verdicts
    assert final.count("T1 passed") == 1, verdicts
    assert every_start_has_one_verdict(repo), verdicts
    commits = repo.commits()
    assert sorted(commits) == ["T1: task 1", "T2: task 2"]
    assert jobs > 1 or commits == ["T2: task 2", "T1: task 1"]
    names = repo.git("ls-tree", "-r", "--name-only", "ralph/p").split()
    assert names == ["T1.txt", "T2.txt", "a.txt", "guarded_test.txt"]
    for record in repo.records("verdict"):
        if record["verdict"] == "passed":
            repo.git("merge-base", "--is-ancestor", record["commit"], "ralph/p")
    differs = changed(json.loads(repo.read("../home")), home_of(repo))
    assert not differs, differs
    repo.git("fsck", "--no-dangling")
    assert fresh_clone_is_green(repo, "ralph/p", CHECKS)
    assert not repo.alive()


@dataclass(frozen=True)
class Call:
    """One state-changing call of the run that is swept."""

    number: int
    who: str
    label: str


def count(repo: Repo, agent: str, first: str = "", jobs: int = 1) -> list[Call]:
    """The calls of a run in which nothing happens."""
    assert crash(repo, agent, 0, "count", first=first, jobs=jobs) == 4
    found = []
    for line in repo.read("../count.calls").splitlines():
        number, who, label = line.split(" ", 2)
        found.append(Call(int(number), who, label))
    return found


def test_the_run_that_is_swept_is_whole_without_a_crash(repo: Repo) -> None:
    agent = prepare(repo)
    calls = count(repo, agent)
    kinds = {call.label.split()[0] for call in calls}
    assert len(calls) > 100 and {"git", "write", "clear"} <= kinds, kinds
    assert {call.who for call in calls} == {"supervisor", "loop"}
    audit(repo, agent)
    assert paid_for(repo) == ["T1", "T1", "T2", "T3", "T3"]


def allowed(call: Call, how: str, who: str, jobs: int, made: int) -> set[int]:
    """How a run can end that is hit so, and has made so many calls."""
    if made < call.number:
        return {4}  # side by side a run can end with fewer calls
    if how == "full":
        return {4, 75}
    # side by side another one may make the call of this number
    if who == "caller" and (call.who == "loop" or jobs > 1):
        return {4} if jobs == 1 else {4, -9}
    return {-9}


STEP = int(os.environ.get("CRASH_STEP", "300"))
# with another one, every call has another way to die
TURN = int(os.environ.get("CRASH_TURN", "0"))
SHARDS = 2 if STEP < 100 else 1
JOBS = (1, 3)
# How it dies, and who.
WAYS = [
    (how, who)
    for who in ("both", "caller", "supervisor", "everything")
    for how in ("before", "half", "after")
]
WAYS.insert(4, ("full", "both"))


@pytest.fixture(scope="module")
def calls(
    tmp_path_factory: pytest.TempPathFactory,
) -> Callable[[int], list[Call]]:
    @functools.cache
    def of(jobs: int) -> list[Call]:
        counted = Repo(tmp_path_factory.mktemp(f"count-{jobs}"))
        return count(counted, prepare(counted), jobs=jobs)

    return of


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("jobs", JOBS)
def test_kill_9_at_a_call_loses_nothing_and_invents_nothing(
    tmp_path: Path,
    calls: Callable[[int], list[Call]],
    jobs: int,
    shard: int,
    tally: Callable[[str, int], None],
) -> None:
    """Every STEP-th call of a whole run, each with another way to die; CRASH_STEP=1 is
    every one."""
    wrong = []
    for call in calls(jobs)[shard * STEP :: SHARDS * STEP]:
        how, who = WAYS[(call.number // STEP + TURN) % len(WAYS)]
        repo = Repo(tmp_path / f"{call.number}-{how}-{who}")
        agent = prepare(repo)
        code = crash(repo, agent, call.number, how, who, jobs=jobs)
        try:
            made = int(repo.read("../count"))
            ends = allowed(call, how, who, jobs, made)
            assert code in ends, f"exit {code} after {made} calls"
            audit(repo, agent, jobs=jobs)
            tally("crash points", 1)
        except AssertionError as error:
            wrong.append(f"{call}, {how}, {who}: {str(error)[:600]}")
    assert not wrong, "\n".join([f"{len(wrong)} are wrong", *wrong])


# ralph with one safeguard taken out, the call at which it dies then (the second with
# this label, if WHICH says nothing else), and what the audit says of it.
MUTANTS = {
    "marks are not made at the next start": (
        """
from _ralph.loop import claim, recover
claim.restore_marks = recover.restore_marks = lambda loop: None
""",
        "replace prd.json",
        "['T1'] == ['T1', 'T2']",
    ),
    "nobody looks for what had landed": (
        "from _ralph.git import branch\nbranch.Branch.landed = lambda *_: {}",
        "write progress.txt verdict passed",
        "['T1'] == ['T1', 'T2']",
    ),
    "prd.json before the verdict record": (
        """
from _ralph.loop import landing
from _ralph.loop.loop import Loop
def write(loop, record, *given, real=Loop.write):
    if getattr(record, "verdict", "") == "passed":
        landing.mark_passed(loop, record)
    real(loop, record, *given)
Loop.write = write
""",
        "write progress.txt verdict passed",
        "a pass is marked that no record has",
    ),
    "the verdict record before the landing": (
        """
from _ralph.loop import landing
def advance(loop, examined, real=landing.advance, noted=landing.note):
    noted(loop, examined)
    return real(loop, examined)
def note(loop, examined, real=landing.note):
    if not examined.passed:
        real(loop, examined)
landing.advance, landing.note = advance, note
""",
        "git update-ref -m ralph: T",
        "a pass is recorded whose work has not landed",
    ),
    "what a cut-off attempt left is not checked before another agent is paid": (
        "from _ralph.loop import recover\nrecover.collect_again = lambda *_: None",
        "git add -A",
        "green work was paid for again",
    ),
    "the record before what is blocked in the plan": (
        """
from _ralph.loop.loop import Loop
from _ralph.state import edit
later = []
def set_blocked(plan, *given):
    later.append(given)
    return plan.text
def write(loop, *given, real=Loop.write, block=edit.set_blocked):
    real(loop, *given)
    while later:
        task = later.pop()
        loop.mark(lambda plan: block(plan, *task))
Loop.write, edit.set_blocked = write, set_blocked
""",
        "replace prd.json",
        "more than was under way was paid for twice",
    ),
    "none": ("", "write progress.txt verdict passed", ""),
}
WHICH = {"the record before what is blocked in the plan": 2}


@pytest.mark.parametrize("mutant", sample(MUTANTS, 6))
def test_every_step_of_going_on_is_needed(tmp_path: Path, mutant: str) -> None:
    sabotage, label, wrong = MUTANTS[mutant]
    counted = Repo(tmp_path / "count")
    calls = count(counted, prepare(counted), sabotage)
    which = WHICH.get(mutant, 1)
    call = [call for call in calls if call.label.startswith(label)][which]
    repo = Repo(tmp_path / "crash")
    agent = prepare(repo)
    assert crash(repo, agent, call.number, "before", first=sabotage) == -9
    said = ""
    try:
        audit(repo, agent, first=sabotage)
    except AssertionError as error:
        said = str(error)
    assert wrong in said if wrong else not said, said
