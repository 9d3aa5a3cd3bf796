"""What a run says before it begins, and what it finds that a killed one left."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from _ralph import files
from _ralph.errors import BadInput
from _ralph.git import git as git_module
from _ralph.loop.opening import back_up_edits, branch_of, peek, unprotected, unseen
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


def test_what_is_not_committed_is_named_and_first_what_a_check_needs(repo: Repo) -> None:
    repo.plan({"checks": ["sh tools/check.sh"]})
    repo.write("AGENTS.md", "rules\n")
    assert unseen(run_of(repo)) == []
    repo.write("a/new.txt", "x")
    repo.write("tools/check.sh", "true")
    (said,) = unseen(run_of(repo))
    assert "tools/check.sh, a/new.txt" in said and said.endswith("a check names tools/check.sh: commit it")


def test_patterns_that_protect_nothing_and_tests_that_none_covers_are_named(repo: Repo) -> None:
    repo.write("tests/test_a.py", "x")
    repo.commit("test")
    repo.plan({"checks": ["true"]}, protect=["spec/**", "conftest.py"])
    loose, tests = unprotected(run_of(repo))
    assert "spec/**" in loose and "conftest.py" not in loose and "tests/test_a.py" in tests
    repo.plan({"checks": ["true"]}, protect=["tests/**"])
    assert unprotected(run_of(repo)) == []


@pytest.mark.parametrize(
    ("option", "named", "here", "wanted"),
    [
        ("mine", "plans", "work", "mine"), (None, "plans", "work", "plans"), (None, None, "work", "work"),
        (None, None, "main", "ralph/p"), (None, None, "", "ralph/p"),
    ],
)  # fmt: skip
def test_the_branch_is_the_one_named_else_the_current_one_else_its_own(
    repo: Repo, option: str | None, named: str | None, here: str, wanted: str
) -> None:
    repo.plan({"checks": ["true"]}, **({"branchName": named} if named else {}))
    repo.git("checkout", "-q", *(["-B", here] if here else ["--detach"]))
    run = run_of(repo)
    assert branch_of(Options(branch=option), run.plan, run.git, "") == wanted


def test_a_run_goes_on_where_its_passes_are_after_a_person_switched(repo: Repo) -> None:
    repo.git("switch", "-qc", "feature")
    repo.plan({"checks": ["test -f T1"]}, {"checks": ["test -f T2"]}, {"checks": ["test -f T3"]})
    agent = repo.agent("P(task).touch()")
    assert repo.ralph("run", "--agent", agent, "--max-iterations", "2").returncode == 3
    repo.git("switch", "-q", "main")
    assert repo.ralph("run", "--agent", agent).returncode == 0
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T3 passed"]
    assert "next: ralph report; ralph land feature" in repo.ralph("status").stdout
    assert repo.ralph("land").returncode == 0
    assert "next: " not in repo.ralph("status").stdout
    assert run_of(repo).branch.name == "ralph/p"  # HEAD has it all: nothing is to be gone on with
    repo.git("reset", "-q", "--hard", "HEAD~1")
    assert run_of(repo).branch.name == "feature"
    repo.plan({"checks": ["test -f T4"]})  # another plan, which nothing has passed of
    assert run_of(repo).branch.name == "ralph/p"


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


def test_what_a_killed_edit_left_is_kept_unless_it_is_the_plan(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    paths, plan = run_of(repo).paths, repo.read("prd.json")
    contents = {"same": plan, "empty": "", "edit": plan.replace("T1", "T9")}
    for name, content in contents.items():
        repo.write(f".prd.json.{name}{files.TEMPORARY}", content)
    (said,) = back_up_edits(paths)
    assert not list(repo.path.glob(f".prd.json.*{files.TEMPORARY}"))
    (kept,) = (paths.private / "aside").iterdir()
    assert kept.read_text() == contents["edit"] and str(kept) in said
