"""Mutants: ralph with one safeguard taken out, and the test that must then fail. That is
run by what stands in this table: ralph is forked from here."""

from __future__ import annotations

import contextlib
import importlib
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from _ralph import files
from _ralph.agents import team, turn
from _ralph.checks import running as checks_running
from _ralph.checks.judge import Answer
from _ralph.checks.results import Known, Results
from _ralph.checks.verdict import Case, Decision, decide
from _ralph.loop import examine
from _ralph.loop.loop import Loop
from _ralph.model import Check, Outcome, Paths, Plan, Task, Verdict
from tests.agents import test_costs
from tests.conftest import Repo, sample


def first_word(said: str, _: object) -> Answer:
    return Answer([] if "{" in said else ["no"])


def believes_the_agent(_case: Case) -> Decision:
    return Decision(Verdict.PASSED)


def no_evidence_rule(case: Case) -> Decision:
    return decide(replace(case, changed=True))


def git_of_home(checkout: Any, *_: Any) -> None:
    git = files.clear(checkout.root / ".git")
    git.write_text(f"gitdir: {checkout.home.dir}")


def test_work_that_an_agent_commits_is_no_commit_of_home(repo: Repo) -> None:
    repo.plan("test -f T1.txt")
    before = repo.git("for-each-ref", "refs/heads")
    agent = repo.agent("P('T1.txt').touch(); sh('git add -A; git commit -qm mine; git branch mine')")  # fmt: skip
    code, _, printed = repo.run(agent)
    assert (code, repo.commits()) == (0, ["T1: task 1"]), printed
    after = repo.git("for-each-ref", "refs/heads").splitlines()
    assert [line for line in after if "ralph/p" not in line] == before.splitlines()


def nobody_s_lock(paths: Paths) -> int:
    return os.open(paths.private / "nobody", os.O_RDWR | os.O_CREAT)


def own_first(plan: Plan, task: Task, more: Iterable[Check] = ()) -> list[Check]:
    return [*task.checks, *more, *plan.checks]


def as_limited(self: Any, outcome: Outcome, real: Any = turn.Turn.end) -> None:
    real(self, Outcome.LIMITED if outcome is Outcome.UNAVAILABLE else outcome)


def is_back_after_work(agents: Any, agent: Any) -> float:
    others = agent.command != agents.fallback.command
    return float(agents.log.history.iteration > 0 and others)


def first_rung(self: Any, task: Any = None, real: Any = team.Agents.commands) -> Any:
    return real(self, task)[:1]


def valid_for_ever(places: Any, plan: Any, run_id: str, _reopened: int) -> str:
    return checks_running.valid_for(places, plan, run_id, 0)


def all_that_was_left(result: Any, *_: Any) -> Any:
    if result.at_least:
        result.usd = 1.0
    return result


def alone(
    loop: Any,
    results: Any,
    candidate: Any,
    *given: Any,
    real: Any = examine.gathered,
) -> Any:
    """What the checks say of the work on its own base."""
    worked = candidate.worked
    own = loop.branch.commit(worked.tree, worked.begun.base, "alone")
    found = real(loop, results, replace(candidate, commit=own), *given)
    return replace(found, commit=candidate.commit)


def books(repo: Repo) -> None:
    """A night in which every third attempt is cut off costs what it did."""
    ways = ["kill", "deadline", "worker"]
    found = test_costs.night(repo, ways, "--max-usd", "1")
    assert test_costs.wrong(*found, wanted=3) == set()


@contextlib.contextmanager
def nobody_waits(self: Loop, _ends: float = 0.0) -> Iterator[Results]:
    self.read()
    path = self.paths.private / "nobody-s.json"
    yield Results(path, self.git.tree, Known(""))


# A mutant is its name, what is taken out, the Python that stands there instead, and the
# test that must fail, with what it is given.
MUTANTS = r"""
the agent is believed :: loop.examine.decide :: believes_the_agent :: whole.test_evidence.test_what_a_check_of_the_plan_builds_an_own_check_may_use_and_is_no_work
no evidence is needed :: loop.examine.decide :: no_evidence_rule :: whole.test_evidence.test_what_a_check_of_the_plan_builds_an_own_check_may_use_and_is_no_work
nothing is protected :: checks.places.Places.restored :: lambda _places, _base, tree, *_: (tree, {}, []) :: whole.test_evidence.test_work_that_is_all_left_out_says_what_and_what_lets_it_in
own checks first :: model.Plan.checks_for :: own_first :: whole.test_evidence.test_what_a_check_of_the_plan_builds_an_own_check_may_use_and_is_no_work
flaky is evidence :: checks.evidence.Evidence.turned :: property(lambda one: one.own and one.first is False and one.result.ok) :: whole.test_evidence.test_a_flaky_check_and_a_change_of_a_dead_agent_are_no_pass
red is not looked at again :: checks.evidence.up_to :: lambda *_: () :: whole.test_evidence.test_a_database_that_dies_in_the_night_blocks_nobody
127 is red like any other :: checks.faults.find :: lambda *_: None :: whole.test_evidence.test_a_check_that_cannot_start_costs_no_agent
the judge's first word counts :: loop.roles.read_answer :: first_word :: loop.test_roles.test_an_answer_that_cannot_be_read_is_asked_for_once_more_on_the_same_work
nothing is remembered :: checks.results.Results.missing :: lambda _, commit, checks: list(checks) :: whole.test_evidence.test_a_tree_that_was_looked_at_goes_to_no_room_again
a baseline runs the suite :: checks.room.Room.go_on :: lambda *_: False :: whole.test_evidence.test_ten_tasks_that_pass_at_once_cost_ten_runs_of_the_suite_one_before_and_one_after :: 1
a retry forgets nothing :: loop.loop.valid_for :: valid_for_ever :: whole.test_evidence.test_what_a_person_mends_beside_the_tree_counts_after_a_retry
red once sets back :: loop.final.as_in_room :: lambda *given: [*given[-1][0]] :: whole.test_evidence.test_what_is_red_once_in_the_re_check_is_flaky
the room is not asked :: loop.final.red_here_alone :: lambda *_: set() :: whole.test_evidence.test_what_is_green_in_the_room_and_red_in_one_made_anew_sets_nobody_back
agents work at home :: model.Paths.workspace :: lambda self, worker=1: self.root :: whole.test_night.test_every_task_ends_as_one_commit_on_a_branch_and_home_stays_as_it_was
the workspace has home's own git :: checks.places.write_git :: git_of_home :: test_work_that_an_agent_commits_is_no_commit_of_home
nothing is swept :: process.process.sweep :: lambda *_given, **_named: [] :: process.test_process.test_after_a_normal_end_nothing_is_left_of_any_kind :: adopted
no lock :: state.lock.acquire :: nobody_s_lock :: state.test_lock.test_a_second_run_ends_at_once_with_75_and_status_works_meanwhile
a login is waited for :: agents.turn.Turn.end :: as_limited :: loop.test_ladder.test_which_agent_works_an_attempt :: neither comes back
no fallback :: agents.team.Agents.fallback :: property(lambda _: None) :: loop.test_ladder.test_which_agent_works_an_attempt :: a fallback while it is refused
the fallback for work that failed :: agents.team.Agents.back_at :: is_back_after_work :: loop.test_ladder.test_which_agent_works_an_attempt :: no fallback for work that failed
one rung for all :: agents.team.Agents.commands :: first_rung :: loop.test_ladder.test_which_agent_works_an_attempt :: one rung for each failed attempt, the last again
a cut off attempt cost all that was left :: agents.running.booked :: all_that_was_left :: books
a cut off attempt cost nothing :: agents.running.booked :: lambda result, *_: result :: books
what a killed one reported is forgotten :: agents.running.replay :: lambda *_: None :: books
what landed meanwhile is not looked at :: loop.examine.gathered :: alone :: whole.test_side_by_side.test_what_is_green_alone_and_red_together_does_not_land
two in the room at once :: loop.loop.Loop.in_room :: nobody_waits :: whole.test_side_by_side.test_a_check_may_hold_what_there_is_only_once
"""
ROWS = {row.split(" :: ")[0]: row for row in MUTANTS.strip().split("\n")}


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere ralph is not forked from here"
)
@pytest.mark.parametrize("name", sample(ROWS, 5))
def test_every_safeguard_is_needed(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    _, where, instead, path, *given = ROWS[name].split(" :: ")
    module, _, test = path.rpartition(".")
    tests = importlib.import_module(f"tests.{module}" if module else __name__)
    monkeypatch.setattr(f"_ralph.{where}", eval(instead))
    with pytest.raises((AssertionError, LookupError, OSError, ValueError)):
        getattr(tests, test)(repo, *given)


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
