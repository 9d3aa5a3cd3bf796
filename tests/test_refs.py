"""Refs: listed again whenever one moved, whatever moved it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from _ralph.git import Git, remove_locks
from _ralph.refs import Refs
from tests.conftest import Repo

MOVES = {
    "a commit": "git commit -q --allow-empty -m more",
    "a write in place": "head=$(git rev-parse HEAD^) && echo $head > .git/refs/heads/main",
    "another branch": "git symbolic-ref HEAD refs/heads/other",
    "a detached HEAD": "git checkout -q --detach HEAD^",
    "a tag, packed": "git tag new && git pack-refs --all",
    "a packed branch deleted": "git pack-refs --all && git branch -q -D other",
    "a ref of another worktree": "git worktree add -q ../tree other && git -C ../tree commit -q --allow-empty -m x",
}


def listed(repo: Path) -> tuple[str, str, set[str]]:
    words = ("for-each-ref", "--format=%(refname) %(objectname)", "refs/heads", "refs/tags")
    said = [
        subprocess.run(["git", *call], cwd=repo, capture_output=True, text=True).stdout.strip()
        for call in (("rev-parse", "HEAD"), ("symbolic-ref", "-q", "HEAD"), words)
    ]
    return said[0], said[1], set(said[2].splitlines())


def known(refs: Refs) -> tuple[str, str, set[str]]:
    return refs.head(), refs.branch(), {f"{ref} {name}" for ref, name in refs._all()[0].items()}


@pytest.fixture
def refs(repo: Repo, tmp_path: Path) -> Refs:
    repo.git("commit", "-q", "--allow-empty", "-m", "second")
    repo.git("branch", "other")
    return Refs(Git(repo.path), tmp_path / "aside")


@pytest.mark.parametrize("move", MOVES.values(), ids=MOVES.keys())
def test_a_ref_that_moved_is_seen(repo: Repo, refs: Refs, move: str) -> None:
    before = known(refs)
    assert before == listed(repo.path)
    subprocess.run(["sh", "-ec", move], cwd=repo.path, check=True)
    assert known(refs) == listed(repo.path) != before


def test_git_is_asked_only_once_while_nothing_moves(refs: Refs, monkeypatch: pytest.MonkeyPatch) -> None:
    before = known(refs)
    monkeypatch.setenv("PATH", "")  # no git to ask
    assert known(refs) == before


def test_without_signatures_a_move_is_missed(repo: Repo, refs: Refs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Refs, "_signatures", lambda _: {"always": "the same"})
    assert known(refs) == listed(repo.path)
    repo.git("commit", "-q", "--allow-empty", "-m", "third")
    assert known(refs) != listed(repo.path)


def test_a_loop_in_another_worktree_is_no_business_of_this_one(repo: Repo) -> None:
    repo.git("worktree", "add", "-q", "../tree", "-b", "side")
    other = repo.outside / "tree"
    for folder in (repo.path, other):
        (folder / "prd.json").write_text(
            '{"userStories": [{"id": "T1", "title": "t", "checks": ["test -f T1"]}]}'
        )
    process = repo.start(
        "run",
        "--agent",
        repo.agent("P('../on').touch()\nwhile not P('../end').exists(): time.sleep(0.05)\nP(task).touch()"),
    )
    repo.wait_for("../on")
    words = [sys.executable, "-m", "ralph", "run", "-q", "--agent", repo.agent("P(task).touch()", "other")]
    (repo.path / ".git/refs/heads/side.lock").touch()  # as after kill -9 of a run there
    done = subprocess.run(words, cwd=other, env=repo.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    repo.write("../end", "")
    said = process.communicate(timeout=30)[0]
    assert process.returncode == 0 and repo.records("verdict")[0]["notices"] == [
        "heads/side had been moved forward"
    ], said
    assert repo.git("for-each-ref", "refs/ralph/parked") == ""


@pytest.mark.parametrize("head", ["ref: ../../yours", "ref: refs/heads/../../../yours", "{folder}/yours", ""])
def test_a_forged_head_removes_no_lock_elsewhere(tmp_path: Path, head: str) -> None:
    (tmp_path / "repo/.git/refs/heads").mkdir(parents=True)
    (tmp_path / "repo/.git/HEAD").write_text(head.format(folder=tmp_path))
    for name in ("yours.lock", "repo/yours.lock", "repo/.git/yours.lock"):
        (tmp_path / name).touch()
    remove_locks(tmp_path / "repo/.git")
    assert len([*tmp_path.rglob("yours.lock")]) == 3
