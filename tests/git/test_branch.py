"""ralph's own branch: where it begins, how verified work lands on it, and what is parked beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from _ralph.errors import BadInput, NeedsPerson, StopNow
from _ralph.git import branch as branching
from _ralph.git import git as git_module
from _ralph.git.branch import Branch, Moved
from _ralph.git.git import Git
from tests.conftest import Repo
from tests.git.test_workspace import head, listing, on_disk
from tests.test_files import within


@pytest.fixture(autouse=True)
def no_settings_of_this_user(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", "/dev/null")
    monkeypatch.setenv("GIT_CONFIG_SYSTEM", "/dev/null")
    monkeypatch.setattr(git_module, "_FROZEN", {})
    with within(60):
        yield


def branch_of(repo: Repo, name: str = "ralph/p") -> Branch:
    (repo.path / ".git/ralph/plan").mkdir(parents=True, exist_ok=True)  # made with the lock of a run
    return Branch(Git.at(repo.path), name, "plan")


def work_on(repo: Repo, tip: str, name: str = "work.txt", content: str = "work\n") -> str:
    """A commit on `tip` with one more file, made beside every working tree."""
    blob = repo.path.parent / "blob"
    blob.write_text(content)
    made = repo.git("hash-object", "-w", str(blob)).strip()
    index = {"GIT_INDEX_FILE": str(repo.outside / "index")}
    before, repo.env = repo.env, {**repo.env, **index}
    try:
        repo.git("read-tree", tip)
        repo.git("update-index", "--add", "--cacheinfo", f"100644,{made},{name}")
        return repo.git("commit-tree", repo.git("write-tree").strip(), "-p", tip, "-m", f"add {name}").strip()
    finally:
        repo.env = before


# ---------------------------------------------------------------- open


def test_a_branch_begins_at_head_and_home_is_not_switched(repo: Repo) -> None:
    branch = branch_of(repo)
    assert branch.tip() == ""
    assert branch.open() == (head(repo), ["made branch ralph/p"])
    assert (branch.tip(), branch.open()) == (head(repo), (head(repo), []))
    assert repo.git("symbolic-ref", "HEAD").strip() == "refs/heads/main"


def test_a_branch_that_was_merged_is_carried_forward(repo: Repo) -> None:
    branch = branch_of(repo)
    old, _ = branch.open()
    repo.write("a.txt", "b\n")
    repo.commit("of a person")
    said = "branch ralph/p was merged; carried forward to HEAD"
    assert branch.open() == (head(repo), [said])
    assert branch.tip() == head(repo) != old


def test_a_branch_that_diverged_goes_on_from_its_tip(repo: Repo) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    work = work_on(repo, tip)
    branch.land(work, tip, "x")
    for number in range(2):
        repo.write("a.txt", f"{number}\n")
        repo.commit("of a person")
    found, (said,) = branch.open()
    assert (found, branch.tip()) == (work, work)
    assert "continues from its tip; it lacks 2 commits of HEAD" in said


def test_a_repository_without_a_commit_is_refused(tmp_path: Path) -> None:
    repo = Repo(tmp_path, git=False)
    repo.git("init", "-q", "-b", "main")
    with pytest.raises(BadInput, match="this repository has no commit yet"):
        branch_of(repo).open()


def test_a_name_that_cannot_be_a_branch_here_is_refused(repo: Repo) -> None:
    repo.git("branch", "ralph")
    with pytest.raises(BadInput, match="the branch ralph/p cannot be made"):
        branch_of(repo).open()


# ---------------------------------------------------------------- land


def test_work_lands_where_no_one_looks_and_again_is_harmless(repo: Repo) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    work = work_on(repo, tip)
    for _ in range(2):
        branch.land(work, tip, "T1: title")
        assert (branch.tip(), head(repo)) == (work, tip)
    assert repo.git("reflog", "-1", "--format=%gs", "ralph/p").strip() == "ralph: T1: title"
    branch.land(work_on(repo, work, "more"), work, "x")
    branch.land(work, tip, "x")  # it is in there
    assert branch.tip() != work and not (repo.path / "work.txt").exists()


@pytest.mark.parametrize("checked_out", [False, True])
def test_a_branch_that_somebody_moved_is_not_moved_back(repo: Repo, checked_out: bool) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    if checked_out:
        repo.git("switch", "-q", "ralph/p")
    theirs = work_on(repo, tip, "theirs")
    repo.git(*(("reset", "-q", "--hard", theirs) if checked_out else ("update-ref", branch.ref, theirs)))
    with pytest.raises(Moved):
        branch.land(work_on(repo, tip), tip, "x")
    assert branch.tip() == theirs


def test_a_landing_without_compare_and_swap_is_caught(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    real = git_module.attempted

    def blind(git: Git, *words: str, **given: Any) -> tuple[int, str, str]:
        return real(git, *(words[:-1] if words[0] == "update-ref" else words), **given)

    monkeypatch.setattr(branching, "attempted", blind)
    with pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"):
        test_a_branch_that_somebody_moved_is_not_moved_back(repo, False)


@pytest.mark.parametrize("where", ["home", "a linked worktree"])
def test_a_working_tree_that_has_it_checked_out_follows_and_keeps_its_edits(repo: Repo, where: str) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    tree = repo.path if where == "home" else repo.outside / "linked"
    repo.git(
        *(("switch", "-q", "ralph/p") if where == "home" else ("worktree", "add", "-q", str(tree), "ralph/p"))
    )
    (tree / "a.txt").write_text("an edit of a person\n")
    (tree / "mine.txt").write_text("mine\n")
    branch.land(work_on(repo, tip), tip, "x")
    assert (tree / "work.txt").read_text() == "work\n"
    assert (tree / "a.txt").read_text() == "an edit of a person\n"
    status = repo.git("-C", str(tree), "status", "--porcelain")
    assert status.splitlines() == [" M a.txt", "?? mine.txt"]
    assert not branch.mark.exists()


@pytest.mark.parametrize("way", ["edited", "staged", "untracked"])
def test_edits_in_the_way_need_a_person_and_nothing_is_lost(
    repo: Repo, way: str, setting: tuple[str, str] = ("merge.ff", "false")
) -> None:
    repo.git("config", *setting)
    branch = branch_of(repo)
    tip, _ = branch.open()
    repo.git("switch", "-q", "ralph/p")
    name = "new.txt" if way == "untracked" else "a.txt"
    repo.write(name, "of a person\n")
    if way == "staged":
        repo.git("add", "-A")
    before, work = repo.git("status", "--porcelain"), work_on(repo, tip, name)
    with pytest.raises(NeedsPerson, match=rf"checked out in .*{name}.*commit or move what is in the way"):
        branch.land(work, tip, "x")
    assert (repo.read(name), branch.tip(), repo.git("status", "--porcelain")) == (
        "of a person\n",
        tip,
        before,
    )
    (repo.path / name).unlink()
    repo.git("reset", "-q", "--hard")
    branch.land(work, tip, "x")
    assert (branch.tip(), repo.read(name)) == (work, "work\n")


@pytest.mark.parametrize(
    "setting",
    [
        ("merge.autoStash", "true"), ("branch.ralph/p.mergeOptions", "--squash"),
        ("branch.ralph/p.mergeOptions", "-s ours"),
    ],
)  # fmt: skip
def test_settings_for_a_person_s_own_merges_change_no_landing(repo: Repo, setting: tuple[str, str]) -> None:
    test_edits_in_the_way_need_a_person_and_nothing_is_lost(repo, "edited", setting)


def before_merge(monkeypatch: pytest.MonkeyPatch, happens: Callable[[], object]) -> None:
    """Something happens right before the first merge."""
    real, todo = git_module.attempted, [happens]

    def first(git: Git, *words: str, **given: Any) -> tuple[int, str, str]:
        if "merge" in words and todo:
            todo.pop()()
        return real(git, *words, **given)

    monkeypatch.setattr(branching, "attempted", first)


@pytest.mark.parametrize("words", [("main",), ("--detach", "main"), ("-c", "new", "main")])
def test_a_person_who_switches_meanwhile_finds_nothing_moved(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    branch, main = branch_of(repo), head(repo)
    repo.git("switch", "-q", "-c", "ralph/p")
    repo.write("a.txt", "of the branch\n")
    repo.commit("a")
    repo.write("mine.txt", "mine\n")
    before_merge(monkeypatch, lambda: repo.git("switch", "-q", *words))
    branch.land(work := work_on(repo, tip := branch.tip()), tip, "x")
    assert (branch.tip(), head(repo), head(repo, "main")) == (work, main, main)
    assert repo.git("status", "--porcelain") == "?? mine.txt\n" and repo.read("a.txt") == "a\n"


def test_a_person_who_begins_an_orphan_branch_meanwhile_finds_it_empty(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    repo.git("switch", "-q", "ralph/p")
    repo.write("mine.txt", "mine\n")
    before_merge(monkeypatch, lambda: repo.git("switch", "-q", "--orphan", "new"))
    branch.land(work := work_on(repo, tip), tip, "x")
    assert branch.tip() == work and repo.git("branch", "--show-current") == "new\n"
    assert repo.git("status", "--porcelain") == "?? mine.txt\n"


def test_a_merge_that_does_not_move_the_branch_is_no_landing(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    repo.git("switch", "-q", "ralph/p")
    real = git_module.attempted
    monkeypatch.setattr(
        branching, "attempted", lambda *all, **how: (0, "", "") if "merge" in all else real(*all, **how)
    )
    with pytest.raises(NeedsPerson, match=r"no error, but ralph/p did not move"):
        branch.land(work_on(repo, tip), tip, "x")


def test_a_rebase_under_way_needs_a_person(repo: Repo) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    repo.git("switch", "-q", "ralph/p")
    repo.write("a.txt", "b\n")
    repo.commit("to rebase")
    tip = head(repo)
    repo.env["GIT_SEQUENCE_EDITOR"] = "sed -i s/^pick/edit/"
    repo.git("rebase", "-i", "HEAD~1")
    with pytest.raises(NeedsPerson, match="a rebase of ralph/p is under way"):
        branch.land(work_on(repo, tip), tip, "x")
    assert branch.tip() == tip
    repo.git("rebase", "--abort")
    branch.land(work := work_on(repo, tip), tip, "x")
    assert branch.tip() == head(repo) == work


def test_a_lock_of_somebody_s_git_is_waited_for(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
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
    branch.recover()
    assert not lock.exists()


def test_an_index_lock_is_removed_only_where_ralph_left_it(repo: Repo) -> None:
    branch, lock = branch_of(repo), repo.path / ".git/index.lock"
    lock.touch()
    branch.recover()
    assert lock.exists()
    branch.mark.parent.mkdir(parents=True, exist_ok=True)
    branch.mark.write_text("\0".join((str(repo.path), head(repo), head(repo))))
    branch.recover()
    assert not lock.exists() and not branch.mark.exists()


def test_a_fast_forward_is_not_cut_off_by_an_interrupt(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    repo.git("switch", "-q", "ralph/p")
    repo.git("config", "filter.slow.smudge", "sleep 3; cat")
    repo.write(".git/info/attributes", "work.txt filter=slow\n")
    monkeypatch.setattr(git_module, "hurry", lambda: True)
    monkeypatch.setattr(git_module, "_HURRY", 1.5)
    branch.land(work_on(repo, tip), tip, "x")
    assert repo.read("work.txt") == "work\n" and git_module.hurry()


@pytest.mark.parametrize("reached", range(1, 6))
def test_a_fast_forward_that_was_killed_half_way_is_undone(repo: Repo, reached: int) -> None:
    """git writes the files first, then its index, then the branch: any of it can have been done."""
    for name in ("changed", "deleted", "kept", "edited"):
        repo.write(f"{name}.txt", "old\n")
    repo.commit("old")
    tip = head(repo)
    repo.git("switch", "-q", "-c", "ralph/p")
    repo.write("changed.txt", "new\n")
    repo.git("rm", "-q", "deleted.txt")
    repo.write("folder/added.txt", "new\n")
    repo.commit("new")
    commit = head(repo)
    repo.git("reset", "-q", "--hard", tip)
    repo.write("edited.txt", "of a person\n")
    repo.write("mine.txt", "mine\n")
    repo.git("add", "edited.txt")
    before = on_disk(repo.path), repo.git("status", "--porcelain", "-uall")
    branch = branch_of(repo)
    branch.mark.write_text("\0".join((str(repo.path), tip, commit)))
    (repo.path / ".git/index.lock").touch()
    if reached >= 1:
        (repo.path / "deleted.txt").unlink()
    if reached == 2:
        (repo.path / "changed.txt").unlink()  # git removes a file before it writes it
    if reached >= 3:
        repo.write("changed.txt", "new\n")
    if reached >= 4:
        repo.write("folder/added.txt", "new\n")
    if reached == 5:
        (repo.path / ".git/index.lock").unlink()
        repo.git("add", "-A", "changed.txt", "deleted.txt", "folder")
    branch.recover()
    assert (on_disk(repo.path), repo.git("status", "--porcelain", "-uall")) == before
    branch.land(commit, tip, "x")
    assert repo.git("status", "--porcelain", "-uall").splitlines() == ["M  edited.txt", "?? mine.txt"]
    assert repo.read("changed.txt") == "new\n" and not (repo.path / "deleted.txt").exists()


def slow_git(repo: Repo, monkeypatch: pytest.MonkeyPatch, what: str) -> None:
    """Put a git on PATH that takes a minute for `what`."""
    git = repo.outside / "bin/git"
    git.parent.mkdir(parents=True)
    real = shutil.which("git")
    git.write_text(f'#!/bin/sh\ncase " $* " in *" {what} "*) sleep 60;; esac\nexec {real} "$@"\n')
    git.chmod(0o755)
    monkeypatch.setenv("PATH", f"{git.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("stopping", [False, True])
def test_a_repack_that_takes_too_long_ends_no_run(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, stopping: bool
) -> None:
    branch, loose = branch_of(repo), repo.path / ".git/objects/17"
    loose.mkdir(exist_ok=True)
    for number in range(30):
        (loose / f"{number:038}").touch()
    slow_git(repo, monkeypatch, "repack")
    monkeypatch.setattr(branching, "BULK", 30.0 if stopping else 0.3)
    monkeypatch.setattr(git_module, "_HURRY", 0.3)
    monkeypatch.setattr(git_module, "hurry", lambda: stopping)
    branch.repack()
    assert not branch.repacks


def test_a_stop_while_the_branch_is_made_is_no_bad_name(repo: Repo, monkeypatch: pytest.MonkeyPatch) -> None:
    slow_git(repo, monkeypatch, "update-ref")
    monkeypatch.setattr(git_module, "hurry", lambda: True)
    monkeypatch.setattr(git_module, "_HURRY", 3.0)
    with pytest.raises(StopNow):
        branch_of(repo).open()


# ---------------------------------------------------------------- commits, parked work


def test_a_commit_is_exactly_its_tree_and_none_where_nothing_changed(repo: Repo) -> None:
    branch = branch_of(repo)
    tip, _ = branch.open()
    work = work_on(repo, tip)
    made = branch.commit(head(repo, f"{work}^{{tree}}"), tip, "T1: é\n\nRalph-Iteration: 3\n")
    assert listing(repo, made) == listing(repo, work)
    assert repo.git("log", "-1", "--format=%B %P", made).split() == ["T1:", "é", "Ralph-Iteration:", "3", tip]
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
    assert branch.git.tree(made) == tree and "gpgsig" not in repo.git("cat-file", "-p", made)


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
    assert repo.git("show", f"{parked}:one") == "work\n" and head(repo, f"{parked}~1") == tip


def test_the_newest_fifty_of_a_plan_are_kept_and_another_plan_s_stay(repo: Repo) -> None:
    branch, other = branch_of(repo), Branch(Git.at(repo.path), "ralph/p", "other")
    other.park(head(repo), "theirs")
    tree, tip = head(repo, "HEAD^{tree}"), head(repo)
    for number in range(53):
        repo.env["GIT_COMMITTER_DATE"] = f"{1_700_000_000 + number} +0000"
        branch.park(repo.git("commit-tree", tree, "-p", tip, "-m", str(number)).strip(), f"{number:04}-T1")
    kept = repo.git("for-each-ref", "--format=%(refname:lstrip=3)", "refs/ralph/parked").split()
    assert kept == ["other/theirs", *(f"plan/{number:04}-T1" for number in range(3, 53))]


# ---------------------------------------------------------------- a whole run


def test_what_a_blocked_task_s_every_way_came_to_is_parked(repo: Repo) -> None:
    """The last attempt starts clean: the work before it is kept, and its own is, too."""
    repo.plan({"checks": ["test -f T1.txt"]}, limits={"attempts": 3})
    agent = repo.agent(
        "(OUT / f'prompt{attempt}').write_text(prompt); P(f'way{attempt}').touch(); P('seen').write_text(str(sorted(p.name for p in P('.').glob('way*'))))"
    )
    assert repo.run(agent)[0] == 4
    last = repo.records("verdict")[-1]
    assert repo.git("show", f"{last['parked']}:seen") == "['way3']"
    (earlier,) = [note.split(" ")[-1] for note in last["notices"] if "earlier work is parked at" in note]
    assert repo.git("show", f"{earlier}:seen") == "['way1', 'way2']"
    prompt = (repo.outside / "prompt3").read_text()
    assert f"`git show {head(repo, earlier)}`" in prompt and "starts clean" in prompt
    assert "git show" not in (repo.outside / "prompt2").read_text()
