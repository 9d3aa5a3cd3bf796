"""A plan is its file beside its log, and the branch that it names: under any other name
nothing is worked again."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Repo, sample
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
    assert repo.run(repo.agent(COUNTS), "--max-iterations", "2")[0] == 3
    assert repo.verdicts() == ["T1 passed", "T2 failed"]
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
    ("change", "left"), [(rewrite, ["T2"]), (retitle, ["T2", "T2"])]
)
def test_a_plan_with_another_name_goes_on_where_it_was(
    half_done: Repo, change: Callable[[Plan], None], left: list[str]
) -> None:
    repo, before = half_done, tip(half_done)
    edit(repo, change)
    code, _, said = repo.run(repo.agent(COUNTS))
    assert (code, repo.passed(), paid(repo)) == (4, ["T1"], ["T1", "T2", *left]), said
    assert (branch_of(repo), tip(repo)) == ("ralph/p", before), said


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
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    branch = branch_of(repo)
    cloned(repo)
    repo.sh(f"cp {repo.outside}/repo/prd.json {repo.outside}/repo/progress.txt .")
    code, _, said = repo.run(agent)
    assert (code, branch_of(repo), repo.passed()) == (0, branch, ["T1", "T2"]), said
    assert paid(repo) == ["T1", "T2"] and len(repo.commits(branch)) == 2


def test_the_next_feature_in_the_same_file_is_new(repo: Repo) -> None:
    """With its own branch and the same ids and titles; the start says so."""
    repo.plan(own("T1"), branchName="feature-1")
    agent = repo.agent(COUNTS)
    assert repo.run(agent)[0] == 0
    other = {"checks": ["grep -q good T1.txt", "test ! -e no"]}
    repo.plan(other, branchName="feature-2")
    code, _, said = repo.run(agent)
    assert (code, branch_of(repo), paid(repo)) == (0, "feature-2", ["T1", "T1"]), said
    assert repo.commits("feature-2") == ["T1: task 1"] == repo.commits("feature-1")
    assert "a new plan on branch feature-2" in said, said


def test_two_features_in_turn_keep_their_own_attempts(repo: Repo) -> None:
    """What T1 of the first feature has failed counts for the first alone."""
    repo.plan("false", branchName="feature-1", limits={"attempts": 2})
    agent = repo.agent(COUNTS)
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    for branch, attempts in (("feature-2", 2), ("feature-1", 1)):
        repo.plan("false", branchName=branch, limits={"attempts": 2})
        before = len(paid(repo))
        assert (repo.run(agent)[0], len(paid(repo)) - before) == (4, attempts)


TAKEN_BACK = {
    "git checkout": "git checkout -q .",
    "after ralph land": "git stash -q; git merge -q --ff-only ralph/p",
    "after a squash merge": "git stash -q; git merge -q --squash ralph/p; git commit -qm squashed",
}


@pytest.mark.parametrize("how", sample(TAKEN_BACK, 2))
def test_what_landed_stays_passed_where_git_takes_plan_and_log_back(
    repo: Repo, how: str
) -> None:
    """Both are tracked here, so that git takes back the marks and what the log says of
    them."""
    nothing = {"checks": ["test -e nothing"]}
    repo.plan(own("T1"), own("T2"), nothing, limits={"attempts": 1})
    repo.write("progress.txt", "# notes\n")
    repo.commit("plan")
    agent = repo.agent(COUNTS)
    assert (repo.run(agent)[0], repo.passed()) == (4, ["T1", "T2"])
    repo.sh(TAKEN_BACK[how])
    assert (repo.passed(), repo.records()) == ([], [])
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
    assert repo.run(agent, "--once", "--branch", "ralph/shop")[0] == 0
    repo.sh("git add -f prd.json progress.txt; git commit -qm 'the plan'")
    cloned(repo)
    code, summary, printed = repo.run(agent, "--branch", "ralph/shop")
    assert code == 0 and "made branch ralph/shop, where the remote's is" in printed
    assert (summary["passed"], repo.verdicts()) == (2, ["T1 passed", "T2 passed"])
