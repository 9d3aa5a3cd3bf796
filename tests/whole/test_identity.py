"""A plan is its file beside its log, and the branch that it names: under any other name
nothing is worked again."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo, sample
from tests.scripts import COUNTS, MAKES, own
from tests.whole.test_own_branch import sh, tip

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
    repo.plan(own("T1"), {"checks": ["test -e nothing"]}, limits={"attempts": 2})
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


def cloned(repo: Repo, branch: str, *files: str) -> Repo:
    """A clone in a folder of another name, with its branch and these files of home's,
    and a state of its own."""
    other = repo.outside / "elsewhere/another-name"
    repo.git("clone", "-q", str(repo.path), str(other))
    for name in files:
        shutil.copy(repo.path / name, other / name)
    repo.env["XDG_STATE_HOME"] = str(repo.outside / "elsewhere/state")
    repo.path = Path(other)
    repo.git("config", "user.email", "test@example.invalid")
    repo.git("config", "user.name", "Test")
    assert repo.git("rev-parse", f"origin/{branch}")
    return repo


@pytest.mark.parametrize(
    "top", [{}, {"branchName": "ralph/mine"}], ids=["no branch", "a branch"]
)
def test_a_plan_without_a_name_goes_on_in_a_clone_of_another_name(
    repo: Repo, top: Plan
) -> None:
    repo.plan(own("T1"), own("T2"), **top)
    edit(repo, lambda plan: plan.pop("project"))
    agent = repo.agent(COUNTS)
    code, _, _ = repo.run(agent, "--max-iterations", "1")
    assert (code, repo.passed()) == (3, ["T1"])
    branch = branch_of(repo)
    clone = cloned(repo, branch, "prd.json", "progress.txt")
    code, _, said = clone.run(agent)
    assert (code, branch_of(repo), clone.passed(), paid(clone)) == (
        0,
        branch,
        ["T1", "T2"],
        ["T1", "T2"],
    ), said
    assert clone.has_landed("T1.txt", branch) and clone.has_landed("T2.txt", branch)


def test_a_clone_of_a_finished_plan_has_nothing_to_do(repo: Repo) -> None:
    repo.plan(own("T1"))
    edit(repo, lambda plan: plan.pop("project"))
    sh(repo, "git add prd.json; git commit -qm plan")  # without its marks
    agent = repo.agent(COUNTS)
    repo.run(agent)
    clone = cloned(repo, branch_of(repo), "progress.txt")
    assert clone.passed() == []
    code, _, said = clone.run(agent)
    assert (code, clone.passed(), paid(clone)) == (0, ["T1"], ["T1"]), said


def test_the_next_feature_in_the_same_file_is_new(repo: Repo) -> None:
    """With its own branch and the same ids and titles; the start says so."""
    repo.plan(own("T1"), branchName="feature-1")
    agent = repo.agent(COUNTS)
    assert repo.run(agent)[0] == 0
    repo.plan(
        {"checks": ["grep -q good T1.txt", "test ! -e no"]}, branchName="feature-2"
    )
    code, _, said = repo.run(agent)
    assert (code, branch_of(repo), paid(repo)) == (0, "feature-2", ["T1", "T1"]), said
    assert repo.commits("feature-2", "feature-2^") == ["T1: task 1"]
    assert tip(repo, "feature-2^") == tip(repo, "main") and tip(
        repo, "feature-1^"
    ) == tip(repo, "main")
    assert "a new plan on branch feature-2" in said, said


def test_two_features_in_turn_keep_their_own_attempts(repo: Repo) -> None:
    """What T1 of the first feature has failed counts for the first alone."""
    repo.plan({"checks": ["false"]}, branchName="feature-1", limits={"attempts": 2})
    agent = repo.agent(COUNTS)
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    for branch, attempts in (("feature-2", 2), ("feature-1", 1)):
        repo.plan({"checks": ["false"]}, branchName=branch, limits={"attempts": 2})
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
    repo.plan(
        own("T1"), own("T2"), {"checks": ["test -e nothing"]}, limits={"attempts": 1}
    )
    repo.write("progress.txt", "# notes\n")
    sh(repo, "git add prd.json progress.txt; git commit -qm plan")
    agent = repo.agent(COUNTS)
    assert (repo.run(agent)[0], repo.passed()) == (4, ["T1", "T2"])
    sh(repo, TAKEN_BACK[how])
    assert (repo.passed(), repo.records()) == ([], [])
    code, _, said = repo.run(agent)
    assert (code, repo.passed(), paid(repo)) == (
        4,
        ["T1", "T2"],
        ["T1", "T2", "T3", "T3"],
    ), said
    assert said.count("already on the branch; marked as passed") == 2
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T3 failed"]


def test_the_same_tasks_of_another_plan_are_not_passed_by_what_landed(
    repo: Repo,
) -> None:
    agent = repo.agent(COUNTS)
    for folder in ("web", "api"):
        tasks = [
            {
                "id": "T1",
                "title": "one",
                "checks": [f"test -e {folder}/done || test -e T1.txt"],
            }
        ]
        repo.write(
            f"{folder}/prd.json", json.dumps({"project": folder, "userStories": tasks})
        )
        assert repo.run(agent, "--prd", f"{folder}/prd.json")[0] in (0, 4)
        sh(repo, f"git merge -q --ff-only ralph/{folder}")
    assert paid(repo)[:2] == ["T1", "T1"]


def test_a_clone_goes_on_where_the_remotes_branch_is(
    repo: Repo, tmp_path: Path
) -> None:
    repo.plan(own("T1"), own("T2"))
    assert repo.run(repo.agent(MAKES), "--once", "--branch", "ralph/shop")[0] == 0
    repo.git("add", "-f", "prd.json", "progress.txt")
    repo.commit("the plan")
    repo.git("clone", "-q", ".", str(tmp_path / "clone"))
    for name in ("user.name", "user.email"):
        repo.git("-C", str(tmp_path / "clone"), "config", name, "somebody")
    repo.path = tmp_path / "clone"
    code, summary, printed = repo.run(repo.agent(MAKES), "--branch", "ralph/shop")
    assert code == 0 and "made branch ralph/shop, where the remote's is" in printed
    assert (summary["passed"], repo.verdicts()) == (2, ["T1 passed", "T2 passed"])
