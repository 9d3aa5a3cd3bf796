"""ralph's own branch: where it begins, how verified work lands on it, and what is
parked beside it."""

from __future__ import annotations

import shutil
from types import SimpleNamespace

import pytest

from _ralph.errors import BadInput, NeedsPerson
from _ralph.git import branch as branching
from _ralph.git.branch import Branch, Moved
from _ralph.git.git import Git
from tests.conftest import Repo
from tests.git.support import head, listing


def branch_of(repo: Repo, name: str = "ralph/p") -> Branch:
    (repo.path / ".git/ralph/plan").mkdir(
        parents=True, exist_ok=True
    )  # made with the lock of a run
    return Branch(Git.at(repo.path), name, "plan")


def opened(repo: Repo) -> tuple[Branch, str]:
    """The branch as it begins, and its tip."""
    branch = branch_of(repo)
    return branch, branch.open()[0]


def work_on(
    repo: Repo, tip: str, name: str = "work.txt", content: str = "work\n"
) -> str:
    """A commit on `tip` with one more file, made beside every working tree."""
    blob = repo.path.parent / "blob"
    blob.write_text(content)
    made = repo.git("hash-object", "-w", str(blob)).strip()
    index = {"GIT_INDEX_FILE": str(repo.outside / "index")}
    before, repo.env = repo.env, {**repo.env, **index}
    try:
        repo.git("read-tree", tip)
        repo.git("update-index", "--add", "--cacheinfo", f"100644,{made},{name}")
        return repo.git(
            "commit-tree",
            repo.git("write-tree").strip(),
            "-p",
            tip,
            "-m",
            f"add {name}",
        ).strip()
    finally:
        repo.env = before


# ---------------------------------------------------------------- open


def test_a_branch_begins_at_head_and_home_is_not_switched(repo: Repo) -> None:
    branch = branch_of(repo)
    assert branch.tip() == ""
    assert branch.open() == (head(repo), ["made branch ralph/p"])
    assert (branch.tip(), branch.open()) == (head(repo), (head(repo), []))
    assert repo.git("symbolic-ref", "HEAD").strip() == "refs/heads/main"


def test_a_branch_that_was_merged_begins_again_at_head(repo: Repo) -> None:
    branch = branch_of(repo)
    old, _ = branch.open()
    repo.write("a.txt", "b\n")
    repo.commit("of a person")
    said = "ralph/p is merged; restarted from your HEAD"
    assert branch.open() == (head(repo), [said])
    assert branch.tip() == head(repo) != old


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
    assert branch_of(repo).open() == (
        work,
        ["made branch ralph/p, where the remote's is"],
    )
    for name, seen in (("ralph/both", work), ("ralph/merged", start)):
        repo.git("update-ref", f"refs/remotes/one/{name}", seen)
        repo.git(
            "update-ref", f"refs/remotes/two/{name}", start
        )  # git switch would not know which, either
        assert branch_of(repo, name).open()[0] == start


def test_a_commit_that_was_taken_off_the_branch_has_not_landed(repo: Repo) -> None:
    branch, tip = opened(repo)
    branch.land(work := work_on(repo, tip), tip, "x")
    branch.park(
        work_on(repo, work, "failed.txt"), "0002-T2"
    )  # what failed on top of it proves nothing
    assert branch.has_landed(work)
    repo.git("update-ref", branch.ref, tip)
    assert not branch.has_landed(work) and not branch.has_landed("0" * 40)


def test_attempts_are_found_by_the_ids_in_their_commits(repo: Repo) -> None:
    branch, tip = opened(repo)
    tree = branch.git.tree(work_on(repo, tip))
    one = branch.commit(tree, tip, "T1: a\n\nRalph-Attempt: abc\n")
    two = branch.commit(
        branch.git.tree(tip), one, "T2: Ralph-Attempt: def\n\nRalph-Attempt: fed\n"
    )
    three = branch.commit(
        tree, two, "T3: c\n\nRalph-Attempt: forged\nRalph-Attempt: own\n"
    )
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


def test_work_lands_where_no_one_looks_and_again_is_harmless(repo: Repo) -> None:
    branch, tip = opened(repo)
    work = work_on(repo, tip)
    for _ in range(2):
        branch.land(work, tip, "T1: title")
        assert (branch.tip(), head(repo)) == (work, tip)
    assert (
        repo.git("reflog", "-1", "--format=%gs", "ralph/p").strip()
        == "ralph: T1: title"
    )
    branch.land(work_on(repo, work, "more"), work, "x")
    branch.land(work, tip, "x")  # it is in there
    assert branch.tip() != work and not (repo.path / "work.txt").exists()


def test_a_branch_that_somebody_moved_is_not_moved_back(repo: Repo) -> None:
    branch, tip = opened(repo)
    theirs = work_on(repo, tip, "theirs")
    repo.git("update-ref", branch.ref, theirs)
    with pytest.raises(Moved):
        branch.land(work_on(repo, tip), tip, "x")
    assert branch.tip() == theirs


def test_who_sits_on_the_branch_is_seen(repo: Repo) -> None:
    branch, _ = opened(repo)
    assert branch.seat is None
    tree = repo.outside / "linked"
    repo.git("worktree", "add", "-q", str(tree), "ralph/p")
    assert branch.seat == tree
    shutil.rmtree(tree)
    assert branch.seat is None
    repo.git("worktree", "prune")
    repo.git("switch", "-q", "ralph/p")
    assert branch.seat == repo.path


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


def test_a_commit_is_exactly_its_tree_and_none_where_nothing_changed(
    repo: Repo,
) -> None:
    branch, tip = opened(repo)
    work = work_on(repo, tip)
    made = branch.commit(
        head(repo, f"{work}^{{tree}}"), tip, "T1: é\n\nRalph-Attempt: 3\n"
    )
    assert listing(repo, made) == listing(repo, work)
    assert repo.git("log", "-1", "--format=%B %P", made).split() == [
        "T1:",
        "é",
        "Ralph-Attempt:",
        "3",
        tip,
    ]
    assert branch.commit(head(repo, f"{tip}^{{tree}}"), tip, "x") == tip


@pytest.mark.parametrize("key", ["exit 1", "sleep 60"])
def test_a_key_that_cannot_sign_at_night_costs_only_the_signature(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setattr(branching, "_SIGNING", 0.5)
    repo.git("config", "gpg.program", str(repo.program("../gpg", key)))
    branch, tip = branch_of(repo), head(repo)
    tree = branch.git.tree(work_on(repo, tip))
    made = branch.commit(tree, tip, "x", sign=True)
    assert branch.git.tree(made) == tree and "gpgsig" not in repo.git(
        "cat-file", "-p", made
    )


def test_work_is_parked_under_a_name_that_holds_nothing_else(repo: Repo) -> None:
    branch, tip = branch_of(repo), head(repo)
    one, other = work_on(repo, tip, "one"), work_on(repo, tip, "other")
    ref = branch.park(one, "0001-T1")
    assert ref == "refs/ralph/parked/plan/0001-T1"
    assert branch.park(one, "0001-T1") == ref
    assert branch.park(other, "0001-T1") == f"{ref}-2"
    assert (branch.commit_at(ref), branch.commit_at(f"{ref}-2")) == (one, other)
    assert branch.commit_at("refs/ralph/parked/gone") == branch.commit_at("") == ""
    parked = branch.park_tree(head(repo, f"{one}^{{tree}}"), tip, "0002-T1")
    assert (
        repo.git("show", f"{parked}:one") == "work\n"
        and head(repo, f"{parked}~1") == tip
    )


def test_the_newest_fifty_of_a_plan_are_kept_and_another_plan_s_stay(
    repo: Repo,
) -> None:
    branch, other = branch_of(repo), Branch(Git.at(repo.path), "ralph/p", "other")
    other.park(head(repo), "theirs")
    tree, tip = head(repo, "HEAD^{tree}"), head(repo)
    for number in range(53):
        repo.env["GIT_COMMITTER_DATE"] = f"{1_700_000_000 + number} +0000"
        branch.park(
            repo.git("commit-tree", tree, "-p", tip, "-m", str(number)).strip(),
            f"{number:04}-T1",
        )
    kept = repo.git(
        "for-each-ref", "--format=%(refname:lstrip=3)", "refs/ralph/parked"
    ).split()
    assert kept == [
        "other/theirs",
        *(f"plan/{number:04}-T1" for number in range(3, 53)),
    ]
