"""`ralph land`: what lands on a person's branch was green there, and all else stays as it was."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo
from tests.oracle import nothing_runs_within, still_running

WORK = "P(f'{task}.txt').write_text('good')"


def plan(repo: Repo, name: str, *checks: str, **top: Any) -> str:
    """Write plans/`name`/prd.json with one task called `name`; the path."""
    task = {"id": name, "title": f"add {name}", "passes": False, "checks": [f"grep -q good {name}.txt"]}
    tasks = {"project": name, "checks": list(checks), **top, "userStories": [task]}
    repo.write(f"plans/{name}/prd.json", json.dumps(tasks, indent=2) + "\n")
    return f"plans/{name}/prd.json"


def night(repo: Repo, name: str, *checks: str, work: str = WORK, **top: Any) -> None:
    """A plan that is worked to its end, on branch ralph/`name`."""
    path = plan(repo, name, *checks, **top)
    done = repo.ralph("run", "-q", "--prd", path, "--agent", repo.agent(work))
    assert done.returncode == 0, done.stdout + done.stderr


def land(repo: Repo, *words: str, first: str = "") -> tuple[int, str]:
    done = repo.ralph("land", *words, first=first)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def tip(repo: Repo, name: str = "main") -> str:
    return repo.git("rev-parse", name).strip()


@pytest.fixture
def two(repo: Repo) -> Repo:
    """A repository on main, and two branches that merge with it and with each other."""
    for name in ("x", "y"):
        night(repo, name)
    return repo


# ---------------------------------------------------------------- what lands


def test_several_branches_land_in_turn_and_again_is_done(two: Repo) -> None:
    code, said = land(two, "ralph/x", "ralph/y")
    assert code == 0, said
    assert (two.read("x.txt"), two.read("y.txt")) == ("good", "good")
    assert two.git("log", "--first-parent", "--format=%s").splitlines() == [
        "Merge branch 'ralph/y'", "x: add x", "start",
    ]  # fmt: skip
    assert two.git("log", "-1", "--format=%an <%ae>, %cn").strip() == "Test <test@example.invalid>, Test"
    assert two.git("status", "--porcelain", "-uno") == ""
    assert tip(two, "HEAD^2") == tip(two, "ralph/y")
    assert said.splitlines()[-1].endswith("on main: ralph/x, ralph/y")
    before = tip(two)
    code, said = land(two, "ralph/y", "ralph/x")
    assert code == 0 and "ralph/x is in main already" in said and tip(two) == before
    assert nothing_runs_within(two, 0.5), still_running(two)


def test_a_branch_of_which_main_is_a_part_lands_as_the_very_commit_that_was_checked(repo: Repo) -> None:
    night(repo, "x")
    assert land(repo, "--prd", "plans/x/prd.json")[0] == 0
    assert tip(repo) == tip(repo, "ralph/x")
    assert repo.git("reflog", "-1", "--format=%gs").startswith("merge")


def test_two_that_are_green_alone_and_red_together(repo: Repo) -> None:
    """The second is refused, and stays where it was; what comes after it is tried all the same."""
    at_most_two = "test $(ls *.txt | wc -l) -le 2"
    for name in ("x", "y"):
        night(repo, name, at_most_two)
    night(repo, "z")
    code, said = land(repo, "ralph/x", "ralph/y", "ralph/z")
    assert code == 4
    assert (repo.read("x.txt"), repo.read("z.txt"), (repo.path / "y.txt").exists()) == ("good", "good", False)
    (line,) = [line for line in said.splitlines() if "! ralph/y did not land on main" in line]
    assert "failed with exit 1" in line and Path(line.rpartition(" ")[2]).is_file()
    assert said.splitlines()[-1].endswith("on main: ralph/x, ralph/z | not on main: ralph/y")
    assert repo.git("status", "--porcelain", "-uno") == ""


def test_a_conflict_is_named_and_changes_nothing(two: Repo) -> None:
    two.write("x.txt", "of a person\n")
    two.commit("mine")
    before = tip(two), two.git("status", "--porcelain")
    code, said = land(two, "ralph/x", "ralph/y")
    assert code == 4 and "ralph/x did not land on main: it does not merge: x.txt" in said
    assert "git merge ralph/x" in said and two.read("x.txt") == "of a person\n"
    assert two.read("y.txt") == "good" and tip(two, "HEAD^1") == before[0]


def test_the_message_is_gits_own(two: Repo) -> None:
    two.git("switch", "-q", "-c", "release")
    assert land(two, "ralph/x", "ralph/y")[0] == 0
    assert two.git("log", "-1", "--format=%B").strip() == "Merge branch 'ralph/y' into release"
    assert tip(two, "main") != tip(two, "release")
