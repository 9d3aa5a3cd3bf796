"""A plan is its file beside its log, and the branch that it names: under any other name
nothing is worked again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Repo, cases
from tests.scripts import COUNTS, MAKES, own
from tests.whole.test_own_branch import tip

Plan = dict[str, Any]


def edit(repo: Repo, change: Callable[[Plan], object]) -> None:
    plan = json.loads(repo.read("prd.json"))
    change(plan)
    repo.write("prd.json", json.dumps(plan, indent=2) + "\n")


def paid(repo: Repo) -> list[str]:
    """The tasks that an agent was started for, in their order."""
    return (repo.outside / "ran").read_text().split()


def branch_of(repo: Repo) -> str:
    """The branch of the last run."""
    return str(repo.records("run")[-1]["branch"])


@pytest.fixture
def half_done(repo: Repo) -> Repo:
    """T1 has passed, T2 has failed once of twice."""
    repo.plan(own("T1"), "test -e nothing", limits={"attempts": 2})
    agent = repo.agent(COUNTS)
    repo.judges("3: T1 passed, T2 failed", agent, "--max-iterations", "2")
    return repo


def rewrite(plan: Plan) -> None:
    plan["userStories"].reverse()
    plan |= {"project": "another", "description": "more words"}


def retitle(plan: Plan) -> None:
    del plan["project"]
    for task in plan["userStories"]:
        task["title"] += ", in other words"


# Attempts count while the title stays
@pytest.mark.parametrize(
    ("change", "paid_for"), [(rewrite, "T1 T2 T2"), (retitle, "T1 T2 T2 T2")]
)
def test_a_plan_with_another_name_goes_on_where_it_was(
    half_done: Repo, change: Callable[[Plan], None], paid_for: str
) -> None:
    before = tip(half_done)
    edit(half_done, change)
    half_done.ends("4: T1", half_done.agent(COUNTS))
    assert paid(half_done) == paid_for.split()
    assert branch_of(half_done) == "ralph/p"
    assert tip(half_done) == before


def cloned(repo: Repo) -> None:
    """Be in a clone in a folder of another name, with a state of its own."""
    other = repo.outside / "elsewhere/another-name"
    repo.git("clone", "-q", ".", str(other))
    repo.env["XDG_STATE_HOME"] = str(repo.outside / "elsewhere/state")
    repo.path = other
    repo.sh("git config user.email x@example.org; git config user.name x")


@pytest.mark.parametrize(
    "top", [{}, {"branchName": "ralph/mine"}], ids=["no branch", "a branch"]
)
def test_a_plan_without_a_name_goes_on_in_a_clone_of_another_name(
    repo: Repo, top: Plan
) -> None:
    repo.plan(own("T1"), own("T2"), **top)
    edit(repo, lambda plan: plan.pop("project"))
    agent = repo.agent(COUNTS)
    repo.ends("3: T1", agent, "--max-iterations", "1")
    branch = branch_of(repo)
    cloned(repo)
    repo.sh(f"cp {repo.outside}/repo/prd.json {repo.outside}/repo/progress.txt .")
    repo.ends("0: T1 T2", agent)
    assert branch_of(repo) == branch
    assert paid(repo) == ["T1", "T2"] and len(repo.commits(branch)) == 2


def test_the_next_feature_in_the_same_file_is_new(repo: Repo) -> None:
    """With its own branch and the same ids and titles; the start says so."""
    repo.plan(own("T1"), branchName="feature-1")
    agent = repo.agent(COUNTS)
    repo.ends("0: T1", agent)
    repo.plan("grep -q good T1.txt && test ! -e no", branchName="feature-2")
    said = repo.ends("0: T1", agent).printed
    assert branch_of(repo) == "feature-2"
    assert paid(repo) == ["T1", "T1"]
    for branch in ("feature-1", "feature-2"):
        assert repo.commits(branch) == ["T1: task 1"]
    assert "a new plan on branch feature-2" in said


def test_two_features_in_turn_keep_their_own_attempts(repo: Repo) -> None:
    """What T1 of the first feature has failed counts for the first alone."""
    agent = repo.agent(COUNTS)

    def works(branch: str, *words: str) -> int:
        repo.plan("false", branchName=branch, limits={"attempts": 2})
        return repo.run(agent, *words)[0]

    assert works("feature-1", "--max-iterations", "1") == 3
    assert works("feature-2") == 4
    assert len(paid(repo)) == 3
    assert works("feature-1") == 4
    assert len(paid(repo)) == 4


# How git takes back the marks and what the log says of them: both are tracked here.
@cases(
    """
line
git checkout -q .
git stash -q; git merge -q --ff-only ralph/p
git stash -q; git merge -q --squash ralph/p; git commit -qm squashed
""",
    of=2,
)
def test_what_landed_stays_passed_where_git_takes_plan_and_log_back(
    repo: Repo, line: str
) -> None:
    repo.plan(own("T1"), own("T2"), "test -e nothing", limits={"attempts": 1})
    repo.write("progress.txt", "# notes\n")
    repo.commit("plan")
    agent = repo.agent(COUNTS)
    repo.ends("4: T1 T2", agent)
    repo.sh(line)
    assert not repo.passed() and not repo.records()
    said = repo.ends("4: T1 T2", agent).printed
    assert paid(repo) == ["T1", "T2", "T3", "T3"]
    assert said.count("already on the branch; marked as passed") == 2
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T3 failed"]


def test_the_same_tasks_of_another_plan_are_not_passed_by_what_landed(
    repo: Repo,
) -> None:
    agent = repo.agent(COUNTS)
    for name in ("web", "api"):
        check = f"test -e {name}/done || test -e T1.txt"
        task = {"id": "T1", "title": "one", "checks": [check]}
        plan = {"project": name, "tasks": [task]}
        repo.write(f"{name}/prd.json", json.dumps(plan))
        assert repo.run(agent, "--prd", f"{name}/prd.json")[0] in (0, 4)
        repo.sh(f"git merge -q --ff-only ralph/{name}")
    assert paid(repo)[:2] == ["T1", "T1"]


def test_a_clone_goes_on_where_the_remotes_branch_is(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(MAKES)
    repo.ends("0: T1", agent, "--once", "--branch", "ralph/shop")
    repo.sh("git add -f prd.json progress.txt; git commit -qm 'the plan'")
    cloned(repo)
    verdicts = "0: T1 passed, T2 passed"
    printed = repo.judges(verdicts, agent, "--branch", "ralph/shop").printed
    assert "made branch ralph/shop, where the remote's is" in printed
    assert repo.passed() == ["T1", "T2"]
