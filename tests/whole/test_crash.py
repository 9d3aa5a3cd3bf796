"""kill -9, or a full disk, at every state-changing call of a whole run, of the
supervisor and of its loops; then the same command again, and an audit."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Iterator
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
    env: dict[str, Any] = {
        "CRASH_COUNT": str(repo.outside / "count"),
        "CRASH_AT": str(at),
    }
    env |= {"CRASH_HOW": how, "CRASH_WHO": who}
    driven = f"import tests.crash_driver\n{first}"
    words = ("run", "-q", "--agent", agent, "--jobs", str(jobs))
    done = repo.ralph(*words, first=driven, **env)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def paid_for(repo: Repo, what: str = "T") -> list[str]:
    """The tasks of the attempts that agents began; with `good`, a word for each that
    did its work."""
    path = Path(repo.env["PAID"])
    return (
        [word for word in path.read_text().split() if word.startswith(what)]
        if path.exists()
        else []
    )


def finished_tasks(repo: Repo) -> set[str]:
    """The tasks that the records call passed."""
    if not (repo.path / "progress.txt").exists():
        return set()
    return {
        record["task"]
        for record in repo.records("verdict")
        if record["verdict"] == "passed"
    }


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
    recorded = finished_tasks(repo)
    assert set(repo.passed()) <= recorded, "a pass is marked that no record has"
    branch = repo.git("for-each-ref", "refs/heads/ralph/p")
    landed = {line.split(":")[0] for line in repo.commits()} if branch else set()
    assert recorded <= landed or known is not None, (
        "a pass is recorded whose work has not landed"
    )
    assert set(repo.passed()) <= landed, "a pass is marked whose work has not landed"
    finished = landed if known is None else known
    before = paid_for(repo)
    words = ("run", "-q", "--agent", agent, "--jobs", str(jobs))
    done = repo.ralph(*words, first=first)
    assert done.returncode == 4, done.stderr
    assert repo.passed() == ["T1", "T2"]
    again = paid_for(repo)[len(before) :]
    assert not finished & set(again), f"finished tasks were worked again: {again}"
    lost = (
        0 if known is None else 1
    )  # work that was red is worked again; what was green is not
    assert len(paid_for(repo, "good")) <= 2 + lost, (
        f"green work was paid for again: {before} {again}"
    )
    assert len(before + again) <= PAID + jobs, (
        f"more than was under way was paid for twice: {before} {again}"
    )
    plan = json.loads(repo.read("prd.json"))
    assert "2 failed attempts" in plan["userStories"][2]["blocked"]
    verdicts = repo.verdicts()
    assert verdicts.count("T1 passed") == verdicts.count("T2 passed") == 1, verdicts
    assert "T3 passed" not in verdicts and verdicts.count("T3 failed") == 2, verdicts
    assert every_start_has_one_verdict(repo), verdicts
    commits = repo.commits()
    assert sorted(commits) == ["T1: task 1", "T2: task 2"]
    assert jobs > 1 or commits == ["T2: task 2", "T1: task 1"]
    assert repo.git("ls-tree", "-r", "--name-only", "ralph/p").split() == [
        *("T1.txt", "T2.txt", "a.txt", "guarded_test.txt"),
    ]
    for record in repo.records("verdict"):
        if record["verdict"] == "passed":
            repo.git("merge-base", "--is-ancestor", record["commit"], "ralph/p")
    home = json.loads((repo.outside / "home").read_text())
    assert not changed(home, home_of(repo)), changed(home, home_of(repo))
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
    lines = (repo.outside / "count.calls").read_text().splitlines()
    return [
        Call(int(number), who, label)
        for number, who, label in (line.split(" ", 2) for line in lines)
    ]


def test_the_run_that_is_swept_is_whole_without_a_crash(repo: Repo) -> None:
    agent = prepare(repo)
    calls = count(repo, agent)
    by_name = {
        name: sum(call.label.startswith(name) for call in calls)
        for name in ("git", "write", "clear")
    }
    assert len(calls) > 100 and all(by_name.values()), by_name
    assert {call.who for call in calls} == {"supervisor", "loop"}
    audit(repo, agent)
    assert (
        paid_for(repo) == ["T1", "T1", "T2", "T3", "T3"] and len(paid_for(repo)) == PAID
    )


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


def points(calls: list[Call], shard: int) -> Iterator[tuple[Call, str, str]]:
    for call in calls[shard * STEP :: SHARDS * STEP]:
        how, who = WAYS[(call.number // STEP + TURN) % len(WAYS)]
        yield call, how, who


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
    for call, how, who in points(calls(jobs), shard):
        repo = Repo(tmp_path / f"{call.number}-{how}-{who}")
        agent = prepare(repo)
        code = crash(repo, agent, call.number, how, who, jobs=jobs)
        try:
            # side by side another one may make the call of this number
            alone = who == "caller" and (call.who == "loop" or jobs > 1)
            allowed = {-9}
            if how == "full":
                allowed = {4, 75}
            elif alone:
                allowed = {4} if jobs == 1 else {4, -9}
            made = int((repo.outside / "count").read_text())
            if made < call.number:
                allowed = {4}  # side by side a run can end with fewer calls
            assert code in allowed, f"exit {code} after {made} calls"
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
from _ralph.loop import landing
from _ralph.loop.loop import Loop
later = []
def write(loop, *given, real=Loop.write, block=landing.block):
    real(loop, *given)
    while later:
        block(*later.pop())
Loop.write, landing.block = write, lambda *given: later.append(given)
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


CUT_OFF_AT_THE_BRANCH = """
import os
from _ralph.git import branch
def _make(own, *given):
    lock = own.git.common / f"{own.ref}.lock"
    lock.parent.mkdir(parents=True, exist_ok=True)
    lock.touch()
    os.kill(os.getpid(), 9)
branch.Branch._make = _make
"""


def test_a_lock_that_git_left_where_the_branch_was_to_be_made_ends_no_later_run(
    repo: Repo,
) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('T1.txt').touch()")
    assert (
        repo.ralph(
            "run", "-q", "--agent", agent, first=CUT_OFF_AT_THE_BRANCH
        ).returncode
        == -9
    )
    assert repo.run(agent)[0] == 0
