"""ralph's own branch: where it begins, how verified work lands on it, and what is
parked beside it."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from _ralph.errors import BadInput, NeedsPerson
from _ralph.git import branch as branching
from _ralph.git.branch import Branch
from _ralph.git.git import Git
from tests.conftest import Repo
from tests.git.support import head, tree_of


def branch_of(repo: Repo, name: str = "ralph/p") -> Branch:
    private = repo.path / ".git/ralph/plan"  # made with the lock of a run
    private.mkdir(parents=True, exist_ok=True)
    return Branch(Git.at(repo.path), name, "plan")


def opened(repo: Repo) -> tuple[Branch, str]:
    """The branch as it begins, and its tip."""
    branch = branch_of(repo)
    return branch, branch.open()[0]


@contextlib.contextmanager
def index_beside(repo: Repo) -> Iterator[None]:
    """git of `repo` has another index meanwhile."""
    index = repo.outside / "index"
    index.unlink(missing_ok=True)
    repo.env["GIT_INDEX_FILE"] = str(index)
    try:
        yield
    finally:
        del repo.env["GIT_INDEX_FILE"]


def work_on(
    repo: Repo, tip: str, name: str = "work.txt", content: str = "work\n"
) -> str:
    """A commit on `tip` with one more file, made beside every working tree."""
    blob = repo.outside / "blob"
    blob.write_text(content)
    made = repo.git("hash-object", "-w", str(blob)).strip()
    with index_beside(repo):
        repo.git("read-tree", tip)
        repo.git("update-index", "--add", "--cacheinfo", f"100644,{made},{name}")
        tree = repo.git("write-tree").strip()
    return repo.git("commit-tree", tree, "-p", tip, "-m", f"add {name}").strip()


# ---------------------------------------------------------------- open


def test_a_branch_that_diverged_goes_on_from_its_tip(repo: Repo) -> None:
    branch, tip = opened(repo)
    work = work_on(repo, tip)
    branch.land(work, tip, "x")
    for number in range(2):
        repo.write("a.txt", f"{number}\n")
        repo.commit("of a person")
    found, (said,) = branch.open()
    assert (found, branch.tip()) == (work, work)
    assert "continues from its tip; it lacks 2 commits of HEAD" in said


def squashed(repo: Repo, branch: Branch) -> str:
    """Put the branch's content into one commit on main, as "squash and merge" does; the
    branch's tip."""
    tip, _ = branch.open()
    branch.land(work := work_on(repo, tip), tip, "x")
    repo.git("merge", "-q", "--squash", "ralph/p")
    repo.commit("squashed")
    repo.write("a.txt", "later\n")
    repo.commit("later")
    return work


def test_a_branch_that_was_squashed_begins_again_at_head_and_its_commits_stay(
    repo: Repo,
) -> None:
    branch = branch_of(repo)
    work = squashed(repo, branch)
    assert branch.has_landed(work) and not branch.is_ahead
    kept = "refs/ralph/parked/plan/merged"
    found, (said,) = branch.open()
    assert found == branch.tip() == head(repo) and kept in said
    assert head(repo, kept) == work and branch.has_landed(work)
    assert branch.open() == (head(repo), [])


def test_a_branch_that_a_remote_has_begins_there_as_after_git_switch(
    repo: Repo,
) -> None:
    work, start = work_on(repo, head(repo)), head(repo)
    for name in ("one", "two"):
        repo.git("update-ref", f"refs/remotes/{name}/ralph/p", work)
    said = "made branch ralph/p, where the remote's is"
    assert branch_of(repo).open() == (work, [said])
    for name, seen in (("ralph/both", work), ("ralph/merged", start)):
        repo.git("update-ref", f"refs/remotes/one/{name}", seen)
        # git switch would not know which, either
        repo.git("update-ref", f"refs/remotes/two/{name}", start)
        assert branch_of(repo, name).open()[0] == start


def test_a_commit_that_was_taken_off_the_branch_has_not_landed(repo: Repo) -> None:
    branch, tip = opened(repo)
    branch.land(work := work_on(repo, tip), tip, "x")
    # what failed on top of it proves nothing
    branch.park(work_on(repo, work, "failed.txt"), "0002-T2")
    assert branch.has_landed(work)
    repo.git("update-ref", branch.ref, tip)
    assert not branch.has_landed(work) and not branch.has_landed("0" * 40)


def test_attempts_are_found_by_the_ids_in_their_commits(repo: Repo) -> None:
    branch, tip = opened(repo)
    tree = branch.git.tree(work_on(repo, tip))
    empty = branch.git.tree(tip)
    one = branch.commit(tree, tip, "T1: a\n\nRalph-Attempt: abc\n")
    quoted = "T2: Ralph-Attempt: def\n\nRalph-Attempt: fed\n"
    two = branch.commit(empty, one, quoted)
    forged = "T3: c\n\nRalph-Attempt: forged\nRalph-Attempt: own\n"
    three = branch.commit(tree, two, forged)
    assert branch.landed(tip) == {}
    assert branch.landed(three) == {"own": three, "fed": two, "abc": one}
    repo.git("update-ref", "refs/ralph/parked/plan/merged-2", two)
    repo.git("update-ref", "refs/ralph/parked/plan/0001-T1", three)
    assert branch.landed(tip) == {"fed": two, "abc": one}


def test_a_name_that_cannot_be_a_branch_here_is_refused(repo: Repo) -> None:
    repo.git("branch", "ralph")
    with pytest.raises(BadInput, match="the branch ralph/p cannot be made"):
        branch_of(repo).open()


# ---------------------------------------------------------------- land


def test_a_lock_of_somebody_s_git_is_waited_for(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch, tip = opened(repo)
    lock = repo.path / f".git/{branch.ref}.lock"
    lock.touch()
    pauses: list[float] = []

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) == 3:
            lock.unlink()

    monkeypatch.setattr(branching, "time", SimpleNamespace(sleep=sleep))
    branch.land(work := work_on(repo, tip), tip, "x")
    assert (branch.tip(), len(pauses)) == (work, 3)
    lock.touch()
    with pytest.raises(NeedsPerson, match=r"cannot land on ralph/p.*lock"):
        branch.land(work_on(repo, work, "more"), work, "x")


# ---------------------------------------------------------------- commits, parked work


@pytest.mark.parametrize("key", ["exit 1", "sleep 60"])
def test_a_key_that_cannot_sign_at_night_costs_only_the_signature(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(branching, "_SIGNING", 0.5)
    repo.git("config", "gpg.program", str(repo.program("../gpg", key)))
    branch, tip = branch_of(repo), head(repo)
    tree = branch.git.tree(work_on(repo, tip))
    made = branch.commit(tree, tip, "x", sign=True)
    assert branch.git.tree(made) == tree
    assert "gpgsig" not in repo.git("cat-file", "-p", made)


def test_work_is_parked_under_a_name_that_holds_nothing_else(repo: Repo) -> None:
    branch, tip = branch_of(repo), head(repo)
    one, other = work_on(repo, tip, "one"), work_on(repo, tip, "other")
    ref = branch.park(one, "0001-T1")
    assert ref == "refs/ralph/parked/plan/0001-T1"
    assert branch.park(one, "0001-T1") == ref
    assert branch.park(other, "0001-T1") == f"{ref}-2"
    assert (head(repo, ref), head(repo, f"{ref}-2")) == (one, other)
    parked = branch.park_tree(tree_of(repo, one), tip, "0002-T1")
    assert tree_of(repo, parked) == tree_of(repo, one)
    assert head(repo, f"{parked}~1") == tip


def test_the_newest_fifty_of_a_plan_are_kept_and_another_plan_s_stay(
    repo: Repo,
) -> None:
    branch, other = branch_of(repo), Branch(Git.at(repo.path), "ralph/p", "other")
    other.park(head(repo), "theirs")
    tree, tip = tree_of(repo), head(repo)
    for number in range(53):
        repo.env["GIT_COMMITTER_DATE"] = f"{1_700_000_000 + number} +0000"
        made = repo.git("commit-tree", tree, "-p", tip, "-m", str(number)).strip()
        branch.park(made, f"{number:04}-T1")
    names = "--format=%(refname:lstrip=3)", "refs/ralph/parked"
    kept = repo.git("for-each-ref", *names).split()
    newest = [f"plan/{number:04}-T1" for number in range(3, 53)]
    assert kept == ["other/theirs", *newest]
