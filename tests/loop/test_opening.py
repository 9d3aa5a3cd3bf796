"""What a run says before it begins, and what it finds that a killed one left."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from _ralph import files
from _ralph.errors import BadInput
from _ralph.git import git as git_module
from _ralph.loop.opening import branch_of, peek, uncopied, unprotected, unseen
from _ralph.loop.run import Options, Run
from tests.conftest import Repo
from tests.git.test_branch import work_on
from tests.git.test_workspace import head


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.setenv("RALPH_PLACES", str(tmp_path / "places"))
    monkeypatch.setattr(git_module, "_FROZEN", {})
    yield


def run_of(repo: Repo, **options: str) -> Run:
    return peek(Options(prd=repo.path / "prd.json", **options))  # type: ignore[arg-type]


def test_a_look_writes_nothing(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    before = sorted(files.walk(repo.path))
    run_of(repo)
    assert sorted(files.walk(repo.path)) == before


def test_what_a_killed_edit_of_the_plan_left_half_written_goes(repo: Repo) -> None:
    repo.plan({"passes": True}, checks=["true"])
    mine = [
        repo.write(name, "mine\n")
        for name in (".prd.json.bak", ".prd.json.mine.ralph-tmp", ".other.json.0f.ralph-tmp")
    ]
    left = repo.write(".prd.json.0123456789ab.ralph-tmp", "{")
    assert repo.run(repo.agent("pass"))[0] == 0
    assert not left.exists() and all(path.exists() for path in mine)


def test_what_is_not_committed_is_named_and_first_what_a_check_needs(repo: Repo) -> None:
    repo.plan({"checks": ["sh tools/check.sh"]})
    repo.write("AGENTS.md", "rules\n")
    assert unseen(run_of(repo)) == []
    repo.write("a/new.txt", "x")
    repo.write("tools/check.sh", "true")
    (said,) = unseen(run_of(repo))
    assert "tools/check.sh, a/new.txt" in said and said.endswith("a check names tools/check.sh: commit it")


def test_what_worktreeinclude_names_and_is_no_file_is_named(repo: Repo) -> None:
    repo.write(".gitignore", "conf*\n")
    repo.write(".worktreeinclude", "conf*\n")
    repo.commit("ignore")
    repo.plan({"checks": ["true"]})
    repo.write("conf", "x")
    (repo.path / "conf-link").symlink_to("conf")
    assert uncopied(run_of(repo)) == []
    (repo.path / "conf.d").symlink_to("..")
    (repo.path / "conf-gone").symlink_to("nothing")
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as server:
        server.bind(str(repo.path / "conf-socket"))
        (repo.path / "conf-door").symlink_to("conf-socket")
    (said,) = uncopied(run_of(repo))
    assert said == ".worktreeinclude names what is no file to copy: conf-door, conf-gone, conf.d"


def test_patterns_that_protect_nothing_and_tests_that_none_covers_are_named(repo: Repo) -> None:
    repo.write("tests/test_a.py", "x")
    repo.commit("test")
    repo.plan({"checks": ["true"]}, protect=["spec/**", "conftest.py"])
    loose, tests = unprotected(run_of(repo))
    assert "spec/**" in loose and "conftest.py" not in loose and "tests/test_a.py" in tests
    repo.plan({"checks": ["true"]}, protect=["tests/**"])
    assert unprotected(run_of(repo)) == []


@pytest.mark.parametrize(
    ("option", "named", "before", "sits", "wanted"),
    [
        ("mine", "plans", "ralph/old", "main", "mine"),
        (None, "plans", "ralph/old", "main", "plans"),
        (None, None, "ralph/old", "main", "ralph/old"),
        (None, None, "", "main", "ralph/p"),
        (None, None, "", "feature", "ralph/p"),  # never the one that a person is on
        (None, None, "feature", "main", "feature"),  # named in the run before
        (None, None, "feature", "feature", "ralph/p"),  # of 0.2, which landed where people sit
        (None, None, "ralph/old", "ralph/old", "ralph/old"),  # said to whoever sits there
    ],
)
def test_the_branch_is_the_one_named_else_that_of_the_run_before_else_its_own(
    repo: Repo, option: str | None, named: str | None, before: str, sits: str, wanted: str
) -> None:
    repo.plan({"checks": ["true"]}, **({"branchName": named} if named else {}))
    repo.git("checkout", "-q", "-B", sits)
    run = run_of(repo)
    assert branch_of(Options(branch=option), run.plan, run.git, before) == wanted


def test_a_run_goes_on_where_its_passes_are_and_the_person_s_branch_stays(repo: Repo) -> None:
    repo.git("switch", "-qc", "feature")
    before = head(repo)
    repo.plan({"checks": ["test -f T1"]}, {"checks": ["test -f T2"]}, {"checks": ["test -f T3"]})
    agent = repo.agent("P(task).touch()")
    assert repo.ralph("run", "--agent", agent, "--max-iterations", "2").returncode == 3
    repo.git("switch", "-q", "main")
    assert repo.ralph("run", "--agent", agent).returncode == 0
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T3 passed"]
    assert head(repo, "feature") == head(repo, "main") == before
    assert "next: ralph report; ralph land ralph/p" in repo.ralph("status").stdout
    assert repo.ralph("land").returncode == 0
    assert "next: " not in repo.ralph("status").stdout


def test_a_run_begins_at_the_tip_or_at_head_that_contains_it(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    base = head(repo)
    assert run_of(repo).branch.beginning() == base
    tip = work_on(repo, base)
    repo.git("branch", "ralph/p", tip)
    assert run_of(repo).branch.beginning() == tip
    repo.git("reset", "-q", "--hard", work_on(repo, tip, "merged.txt"))
    assert run_of(repo).branch.beginning() == head(repo)


def test_without_a_commit_there_is_no_beginning(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    repo.git("update-ref", "-d", "HEAD")
    with pytest.raises(BadInput, match="no commit yet"):
        run_of(repo).branch.beginning()
