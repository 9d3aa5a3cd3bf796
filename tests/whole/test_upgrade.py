"""A plan that version 0.1 has begun is finished by this version."""

from __future__ import annotations

import shutil

from tests.conftest import ROOT, Repo

BEGUN = ROOT / "tests" / "whole" / "begun_with_0_1"
"""The plan and the log of version 0.1 after two tasks that passed and two attempts at the third."""


def begun_in_place(repo: Repo) -> None:
    """As 0.1 left it: its branch checked out, with its commits, the last of which has the plan and the log."""
    repo.git("switch", "-qc", "ralph/shop")
    for task in ("T1", "T2"):
        repo.write(task, "")
        repo.commit(f"{task}: done")
    for name in ("prd.json", "progress.txt"):
        shutil.copy(BEGUN / name, repo.path)
    repo.git("add", "-f", "prd.json", "progress.txt")
    repo.git("commit", "-qm", "ralph: notes")


def test_a_plan_in_place_asks_for_another_branch(repo: Repo) -> None:
    begun_in_place(repo)
    done = repo.ralph("run", "--agent", repo.agent("P(task).touch()"))
    assert (
        done.returncode == 2 and "ralph/shop is checked out" in done.stderr and "git switch -" in done.stderr
    )


def test_status_and_report_read_what_0_1_wrote(repo: Repo) -> None:
    begun_in_place(repo)
    shown = repo.ralph("status").stdout
    assert "2 of 4 passed" in shown and "failed 2 of 3" in shown
    done = repo.ralph("report")
    assert done.returncode == 0, done.stderr


def test_back_to_ones_own_branch_as_the_changelog_says(repo: Repo) -> None:
    begun_in_place(repo)
    repo.git("rm", "-q", "--cached", "prd.json", "progress.txt")
    repo.git("commit", "-qm", "Untrack the plan")
    repo.git("switch", "-q", "main")
    code, summary, printed = repo.run(repo.agent("P(task).touch()"))
    assert (code, summary["passed"]) == (0, 4), printed
    assert repo.git("status", "--porcelain", "--untracked-files=no") == ""
