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
    for name in ("a", "b"):
        night(repo, name)
    return repo


# ---------------------------------------------------------------- what lands


def test_several_branches_land_in_turn_and_again_is_done(two: Repo) -> None:
    code, said = land(two, "ralph/a", "ralph/b")
    assert code == 0, said
    assert (two.read("a.txt"), two.read("b.txt")) == ("good", "good")
    assert two.git("log", "--first-parent", "--format=%s").splitlines() == [
        "Merge branch 'ralph/b'", "a: add a", "start",
    ]  # fmt: skip
    assert two.git("log", "-1", "--format=%an <%ae>, %cn").strip() == "Test <test@example.invalid>, Test"
    assert two.git("status", "--porcelain", "-uno") == ""
    assert tip(two, "HEAD^2") == tip(two, "ralph/b")
    assert said.splitlines()[-1].endswith("on main: ralph/a, ralph/b")
    before = tip(two)
    code, said = land(two, "ralph/b", "ralph/a")
    assert code == 0 and "ralph/a is in main already" in said and tip(two) == before
    assert nothing_runs_within(two, 0.5), still_running(two)


def test_a_branch_of_which_main_is_a_part_lands_as_the_very_commit_that_was_checked(repo: Repo) -> None:
    night(repo, "a")
    assert land(repo, "--prd", "plans/a/prd.json")[0] == 0
    assert tip(repo) == tip(repo, "ralph/a")
    assert repo.git("reflog", "-1", "--format=%gs").startswith("merge")


def test_two_that_are_green_alone_and_red_together(repo: Repo) -> None:
    """The second is refused, and stays where it was; what comes after it is tried all the same."""
    at_most_two = "test $(ls *.txt | wc -l) -le 2"
    for name in ("a", "b"):
        night(repo, name, at_most_two)
    night(repo, "c")
    code, said = land(repo, "ralph/a", "ralph/b", "ralph/c")
    assert code == 4
    assert (repo.read("a.txt"), repo.read("c.txt"), (repo.path / "b.txt").exists()) == ("good", "good", False)
    (line,) = [line for line in said.splitlines() if "! ralph/b did not land on main" in line]
    assert "failed with exit 1" in line and Path(line.rpartition(" ")[2]).is_file()
    assert said.splitlines()[-1].endswith("on main: ralph/a, ralph/c | not on main: ralph/b")
    assert repo.git("status", "--porcelain", "-uno") == ""


def test_a_conflict_is_named_and_changes_nothing(two: Repo) -> None:
    two.write("a.txt", "of a person\n")
    two.commit("mine")
    before = tip(two), two.git("status", "--porcelain")
    code, said = land(two, "ralph/a", "ralph/b")
    assert code == 4 and "ralph/a did not land on main: it does not merge: a.txt" in said
    assert "git merge ralph/a" in said and two.read("a.txt") == "of a person\n"
    assert two.read("b.txt") == "good" and tip(two, "HEAD^1") == before[0]


def test_the_message_is_gits_own(two: Repo) -> None:
    two.git("switch", "-q", "-c", "release")
    assert land(two, "ralph/a", "ralph/b")[0] == 0
    assert two.git("log", "-1", "--format=%B").strip() == "Merge branch 'ralph/b' into release"
    assert tip(two, "main") != tip(two, "release")
