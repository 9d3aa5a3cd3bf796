"""The end of an attempt: the branch moves, log and plan follow, and what follows can be
done twice."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from _ralph.checks.verdict import Decision
from _ralph.loop import landing
from _ralph.loop.landing import advance, mark_passed, note, restore_marks
from _ralph.loop.loop import Loop
from _ralph.loop.stages import Begun, Candidate, Examined, Worked
from _ralph.model import AgentResult, CheckResult, Outcome, Share, Task, Verdict
from _ralph.state.records import AttemptEnded, Rechecked, Retried
from tests.conftest import Repo, cases
from tests.git.support import head
from tests.git.test_branch import work_on

Opened = Callable[..., Loop]


@pytest.fixture
def loop(repo: Repo, opened: Opened) -> Loop:
    """A loop in a plan of two tasks, the second of which has passed."""
    repo.plan({"checks": ["true"]}, {"checks": ["true"], "passes": True})
    return opened()


def examined(loop: Loop, task: Task, verdict: Verdict, commit: str = "") -> Examined:
    """An attempt at a task with this verdict."""
    tip = loop.branch.tip()
    agent = loop.agents.named("sh")
    begun = Begun(task, agent, 1, 1, "id1", 1, Share(), tip)
    work = Worked(begun, AgentResult(Outcome.DONE), tree=loop.git.tree(tip))
    made = commit or tip
    green = CheckResult("true", "true", True, 0, 0.1)
    decision = Decision(verdict, "" if verdict is Verdict.PASSED else "why")
    candidate = Candidate(work, tip, made)
    return Examined(candidate, made, decision, work.result, [green])


def with_plan(repo: Repo, was: str, now: str) -> None:
    repo.write("prd.json", repo.read("prd.json").replace(was, now, 1))


# ---------------------------------------------------------------- the order of writes


def test_nothing_is_said_of_a_pass_whose_branch_somebody_moved(
    repo: Repo, loop: Loop
) -> None:
    one = examined(loop, loop.plan.tasks[0], Verdict.PASSED, work_on(repo, head(repo)))
    theirs = work_on(repo, head(repo), "theirs.txt")
    loop.branch.land(theirs, head(repo), "a person's")
    assert not advance(loop, one)
    assert loop.branch.tip() == theirs
    assert repo.passed() == ["T2"]
    assert not (repo.path / "progress.txt").exists()


class Killed(BaseException):
    """A kill -9 at this place."""


@pytest.mark.parametrize("gives", [True, False])
def test_a_kill_between_log_and_plan_never_looks_like_a_person_s_hand(
    repo: Repo, loop: Loop, monkeypatch: pytest.MonkeyPatch, gives: bool
) -> None:
    """What gives a mark goes into the log first; a block goes into the plan first."""
    order = []

    def write(*_given: object, **_named: object) -> None:
        order.append("log")
        raise Killed

    def mark(*_given: object) -> None:
        order.append("plan")
        raise Killed

    monkeypatch.setattr(Loop, "write", write)
    monkeypatch.setattr(Loop, "mark", mark)
    monkeypatch.setattr(landing, "why_blocked", lambda *_: "" if gives else "why")
    verdict = Verdict.PASSED if gives else Verdict.FAILED
    with pytest.raises(Killed):
        note(loop, examined(loop, loop.plan.tasks[0], verdict))
    assert order == ["log" if gives else "plan"]


# ---------------------------------------------------------------- marks


def passed_record(commit: str, **fields: Any) -> AttemptEnded:
    """The verdict that the first task passed with this commit."""
    given = {"task": "T1", "title": "task 1", "checks": {"true": True}, **fields}
    return AttemptEnded(iteration=1, verdict=Verdict.PASSED, commit=commit, **given)


# Another title is another task; a check that nobody ran is no pass.
@cases("""
was              now                               marked
nothing          nothing                           yes
task 2           another title                     yes
task 1           another title
"passes": false  "passes": false, "blocked": "no"  yes
"true"           "true", "false"
""")
def test_a_mark_follows_its_task_through_what_a_person_edits_meanwhile(
    repo: Repo, loop: Loop, was: str, now: str, marked: str
) -> None:
    verdict = passed_record(work_on(repo, head(repo)))
    with_plan(repo, was, now)
    for _ in range(2):
        with loop.plan_locked():
            mark_passed(loop, verdict)
        assert repo.passed() == (["T1", "T2"] if marked else ["T2"])


@cases("""
taken
nothing
a retry
a final check
another check
the branch
""")
def test_a_pass_whose_commit_is_on_the_branch_stays_one_until_a_record_takes_it_away(
    repo: Repo, loop: Loop, taken: str
) -> None:
    commit = work_on(repo, head(repo))
    loop.branch.land(commit, head(repo), "x")
    loop.write(passed_record(commit), "passed")
    match taken:
        case "a retry":
            loop.write(Retried(task="T1", title="task 1"), "x")
        case "a final check":
            loop.write(Rechecked(broken=[loop.plan.tasks[0].key]), "x")
        case "another check":
            with_plan(repo, '"true"', '"true", "false"')
        case "the branch":
            loop.git("update-ref", loop.branch.ref, "main")
    for _ in range(2):
        with loop.plan_locked():
            restore_marks(loop)
        assert repo.passed() == (["T1", "T2"] if taken == "nothing" else ["T2"])


# ---------------------------------------------------------------- the record


LINES = """\
- agent: worker, N s, ended well
- checks: test -f T1.txt passed (N s), ! grep -q bad b.txt failed with exit 1 (N s)
- changes: T1.txt, b.txt, test_a.py
- changed tests: test_a.py
- reason: ! grep -q bad b.txt failed with exit 1 (N s)
- restored: p.txt
- failure: ! grep -q bad b.txt
- handoff:
    | learned: use make
    | - agent: nobody
- blocked: 1 failed attempt, the last: ! grep -q bad b.txt failed with exit 1 (N s)
- parked: REF; back with: git cherry-pick REF
"""


def test_the_lines_of_a_verdict_for_people(repo: Repo) -> None:
    """Each part begins with a label; what an agent wrote is quoted."""
    for name in ("p.txt", "test_a.py"):
        repo.write(name, "x\n")
    repo.commit("files")
    checks = ["test -f T1.txt", "! grep -q bad b.txt"]
    repo.plan({"checks": checks}, protect=["p.txt"], limits={"attempts": 1})
    deeds = "for name in ('T1.txt', 'b.txt', 'p.txt', 'test_a.py'): P(name).write_text('bad\\n')\n"
    agent = repo.agent(deeds + "said('learned', 'use make\\n- agent: nobody')")
    worker = repo.tool("worker", f"exec {agent}").name
    assert repo.run(worker)[0] == 4
    said = repo.read("progress.txt").rpartition("| failed, attempt 1 of 1\n")[2]
    said = said.partition("<!-- ralph")[0]
    for pattern, word in ((r"\d+\.\d s", "N s"), (r"refs/\S+[0-9a-zA-Z]", "REF")):  # fmt: skip
        said = re.sub(pattern, word, said)
    assert said == LINES
