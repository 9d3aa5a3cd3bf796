"""The candidate: the work on the tip of the branch, and what the clean room makes of it
and says of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from _ralph.loop.candidate import make_candidate, tip_of
from _ralph.loop.checking import check_commit, check_twice
from _ralph.loop.commit import commit_in_room
from _ralph.loop.jobs import Attempt, Checked, CheckJob
from _ralph.loop.run import Run

from _ralph.errors import NeedsPerson
from _ralph.git import workspace
from _ralph.loop.opening import read_run
from _ralph.loop.setup import require_setup
from _ralph.model import Check, Conflict, Verdict
from _ralph.state.options import Options
from tests.conftest import Repo, within
from tests.git.test_branch import work_on
from tests.git.test_workspace import head, listing


def run_of(repo: Repo, **top: Any) -> Run:
    """A run whose branch begins at HEAD."""
    repo.plan({"checks": ["true"]}, **top)
    run = read_run(Options(prd=repo.path / "prd.json"))
    run.paths.private.mkdir(parents=True, exist_ok=True)
    run.tip, _ = run.branch.open()
    return run


def attempt_of(run: Run, base: str, tree: str) -> Attempt:
    task = run.plan.tasks[0]
    return Attempt(
        task, 1, 1, run.agents.agent(task), base=base, left=tree, tree=tree, room=1
    )


def made(run: Run, attempt: Attempt) -> bool:
    """Whether a candidate could be made, with nobody ahead."""
    turn = run.turn(attempt)
    try:
        return run.wait(make_candidate(run, turn))
    finally:
        run.pool.train.line.remove(turn)


def checked(run: Run, commit: str, *commands: str, **more: Any) -> Checked:
    checks = [Check(one, one) for one in commands]
    return check_commit(
        run, CheckJob(commit=commit, checks=checks, name="0001", **more)
    )


# ---------------------------------------------------------------- the commit


def test_a_candidate_is_the_work_on_the_tip(repo: Repo) -> None:
    run, base = run_of(repo), head(repo)
    one = attempt_of(run, base, run.git.tree(work_on(repo, base)))
    assert made(run, one)
    assert repo.git("rev-parse", f"{one.commit}^").strip() == one.tip == base
    run.branch.land(work_on(repo, base, "other.txt"), base, "somebody")
    assert tip_of(run) != base
    one = attempt_of(run, base, run.git.tree(work_on(repo, base)))
    assert made(run, one)
    assert repo.git("rev-parse", f"{one.commit}^").strip() == one.tip != base
    assert {"work.txt", "other.txt"} <= listing(repo, one.commit).keys()


def test_work_that_conflicts_with_the_tip_is_kept_for_the_next_attempt(
    repo: Repo,
) -> None:
    run, base = run_of(repo), head(repo)
    run.branch.land(work_on(repo, base, content="theirs\n"), base, "somebody")
    assert tip_of(run) != base
    one = attempt_of(run, base, run.git.tree(work_on(repo, base)))
    assert not made(run, one)
    assert (one.verdict, one.commit) == (
        Verdict.CONFLICT,
        one.tip,
    ) and "work.txt" in one.reason
    assert not one.parked


@pytest.mark.parametrize(
    ("content", "left"),
    [
        ("<<<<<<< {a}\nx\n=======\ny\n>>>>>>> {b}\n", True),
        ("x\n>>>>>>> {b}\n", True),
        ("x\n=======\ny\n", False),
        ("a text about <<<<<<< {a}\n", False),
        ("<<<<<<< HEAD\n", False),  # a test's own data
        ("resolved\n", False),
    ],
)
def test_conflict_markers_that_are_left_are_red_without_a_check(
    repo: Repo, content: str, left: bool
) -> None:
    run, base = run_of(repo), head(repo)
    work = work_on(repo, base, content=content.format(a="a" * 40, b="b" * 40))
    one = attempt_of(run, base, run.git.tree(work))
    one.conflict = Conflict(marked=["work.txt"], own=base)
    assert made(run, one) is not left
    if left:
        assert (
            one.verdict is Verdict.FAILED
            and one.reason == "conflict markers are left in work.txt"
        )
        assert repo.git("show", f"{one.parked}:work.txt").startswith(
            content[:1]
        )  # the next one starts clean


def test_no_work_is_no_commit(repo: Repo) -> None:
    run, base = run_of(repo), head(repo)
    for tree in ("", run.git.tree(base)):
        one = attempt_of(run, base, tree)
        assert made(run, one) and one.commit == one.tip == base


@pytest.mark.parametrize("deed", ["deleted", "rewritten"])
def test_a_branch_that_loses_verified_work_needs_a_person_and_the_work_is_kept(
    repo: Repo, deed: str
) -> None:
    run, base = run_of(repo), head(repo)
    run.branch.land(run_tip := work_on(repo, base), base, "ralph")
    assert tip_of(run) == run_tip
    if deed == "deleted":
        repo.git("branch", "-qD", run.branch.name)
    else:
        repo.git("branch", "-qf", run.branch.name, base)
    with pytest.raises(NeedsPerson, match=f"was {deed}"):
        tip_of(run)
    (kept,) = repo.git(
        "for-each-ref", "--format=%(objectname)", "refs/ralph/parked"
    ).split()
    assert kept == run_tip


# ---------------------------------------------------------------- what the room says


def committed(
    run: Run, commit: str, *commands: str, allow: tuple[str, ...] = ()
) -> Checked:
    """What the commit hooks make of a candidate, and what checks say of that, the
    hooks' words last."""
    base = run.branch.commit_at(f"{commit}^")
    one = attempt_of(run, base, run.git.tree(commit))
    one.tip, one.commit, one.task = base, commit, replace(one.task, allow=allow)
    made = commit_in_room(run, one)
    found = checked(run, made.commit, *commands, before=commit)
    return replace(found, checks=found.checks + made.checks)


def test_the_checks_see_what_the_hooks_made_and_the_commit_is_that(repo: Repo) -> None:
    repo.program(
        ".git/hooks/pre-commit", "echo formatted > work.txt; touch ignored-by-nobody"
    )
    repo.program(".git/hooks/commit-msg", 'echo "Change-Id: 1" >> "$1"')
    run, base = run_of(repo), head(repo)
    found = committed(
        run,
        work_on(repo, base),
        "grep -qx formatted work.txt",
        "test ! -e ignored-by-nobody",
    )
    assert [result.name for result in found.red] == []
    assert [result.name for result in found.checks][2:] == ["pre-commit", "commit-msg"]
    assert listing(repo, found.commit)["work.txt"][1] == "formatted\n"
    message = repo.git("log", "-1", "--format=%B", found.commit)
    assert message.startswith("T1: task 1\nChange-Id: 1\n\nRalph-Agent: ")
    assert repo.git("rev-parse", f"{found.commit}^").strip() == base


def test_hooks_are_for_candidates_alone_and_may_not_touch_protected_files(
    repo: Repo,
) -> None:
    repo.program(
        ".git/hooks/pre-commit", "echo gutted > a.txt; echo formatted > work.txt"
    )
    run, base = run_of(repo, protect=["a.txt"]), head(repo)
    assert checked(run, base, "true").checks[-1].name == "true"
    found = committed(
        run, work_on(repo, base), "grep -q gutted a.txt", "grep -q formatted work.txt"
    )
    assert [result.name for result in found.red] == ["grep -q gutted a.txt"]


def test_where_a_hook_is_red_the_checks_see_the_candidate_as_it_was(repo: Repo) -> None:
    repo.program(".git/hooks/pre-commit", "echo more >> work.txt; exit 1")
    run, base = run_of(repo), head(repo)
    commit = work_on(repo, base)
    found = committed(run, commit, "grep -q more work.txt")
    assert [result.name for result in found.red] == [
        "grep -q more work.txt",
        "pre-commit",
    ]
    assert found.commit == commit


def test_a_rulebook_that_the_task_may_change_is_so_after_the_hooks_too(
    repo: Repo,
) -> None:
    repo.program(".git/hooks/pre-commit", "true")
    repo.write("AGENTS.md", "old\n")
    repo.commit("rulebook")
    run, base = run_of(repo), head(repo)
    commit = work_on(repo, base, "AGENTS.md", "new\n")
    for allow, left in (((), "old\n"), (("AGENTS.md",), "new\n")):
        found = committed(run, commit, "true", allow=allow)
        assert repo.git("show", f"{found.commit}:AGENTS.md") == left


@pytest.mark.parametrize("when", [["*.lock"], []])
def test_setup_runs_once_for_a_candidate_whatever_hooks_rewrite(
    repo: Repo, when: list[str]
) -> None:
    repo.write(".gitignore", "deps/\n")
    repo.commit("ignored")
    repo.program(
        ".git/hooks/pre-commit",
        "echo 2 > some.lock; echo more >> work.txt; git add some.lock",
    )
    setup = {"run": "git init -q deps/lib; echo once >> ../setups"} | (
        {"when": when} if when else {}
    )
    run, base = run_of(repo, setup=setup), head(repo)
    found = committed(
        run, work_on(repo, base), "test -d deps/lib/.git && grep -q 2 some.lock"
    )
    assert not found.red
    assert (run.paths.places / "setups").read_text() == "once\n"
    assert not checked(
        run, found.commit, "true"
    ).red  # a room for these files is another one
    assert (run.paths.places / "setups").read_text() == "once\n" * 2


def test_what_a_hook_did_to_what_setup_made_is_undone(repo: Repo) -> None:
    repo.write(".gitignore", "deps\n")
    repo.commit("ignored")
    repo.program(".git/hooks/pre-commit", "echo worse > deps")
    run = run_of(repo, setup={"run": "echo good > deps", "when": ["*.lock"]})
    assert not committed(run, work_on(repo, head(repo)), "grep -q good deps").red


def test_what_is_signed_is_what_the_checks_see(repo: Repo) -> None:
    """With a stand-in for gpg, which makes a signature of nothing."""
    script = "cat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'"
    repo.git("config", "gpg.program", str(repo.program("../gpg", script)))
    repo.git("config", "commit.gpgSign", "true")
    repo.plan({"checks": ["test -f x"]}, {"checks": ["test -f y"]})
    agent = repo.agent("P('x' if task == 'T1' else 'y').touch()")
    for hook in (False, True):
        if hook:
            repo.program(".git/hooks/pre-commit", "echo formatted > y")
        repo.ralph("run", "-q", "--once", "--agent", agent)
    assert repo.verdicts() == ["T1 passed", "T2 passed"]
    for commit in repo.git("rev-list", "main..ralph/p").split():
        assert "BEGIN PGP SIGNATURE" in repo.git("cat-file", "commit", commit)
    pinned = repo.git(
        "for-each-ref", "--format=%(objectname)", "refs/ralph/candidate"
    ).split()
    assert pinned == [repo.git("rev-parse", "ralph/p").strip()]


def test_a_red_setup_is_the_only_result(repo: Repo) -> None:
    run = run_of(repo, setup="exit 3")
    found = checked(run, head(repo), "true")
    assert [(result.name, result.exit) for result in found.checks] == [("setup", 3)]
    with pytest.raises(NeedsPerson, match="setup failed with exit 3"):
        require_setup(found)


def once(repo: Repo, name: str) -> str:
    """A check that is red the first time that it runs."""
    return (
        f"test -e {repo.outside}/{name} || {{ touch {repo.outside}/{name}; exit 1; }}"
    )


def test_what_is_red_runs_once_more_behind_what_it_needs(repo: Repo) -> None:
    run, built = run_of(repo), f"touch built; echo x >> {repo.outside}/builds"
    flaky, needs, last = (
        once(repo, "flaky"),
        "test -f built",
        f"echo x >> {repo.outside}/last",
    )
    checks = [Check(one, one) for one in (built, flaky, needs, "exit 4", last)]
    results, told = check_twice(
        run, CheckJob(commit=head(repo), checks=checks, name="0001", anew=True)
    )
    assert [one.ok for one in results] == [True, True, True, False, True] and told == [
        flaky
    ]
    assert (repo.read("../builds"), repo.read("../last")) == ("x\nx\n", "x\n")


def test_a_room_made_anew_has_a_new_name_and_nothing_in_it_before_and_is_the_room_after(
    repo: Repo,
) -> None:
    repo.write(".gitignore", "built\n")
    repo.commit("ignore")
    run = run_of(repo)
    for number in (1, 2):
        assert not checked(
            run, head(repo), "test ! -e built && touch built", anew=True
        ).red
        assert (
            run.paths.rooms == [run.paths.room] == [run.paths.places / f"room-{number}"]
        )
    assert not checked(
        run, head(repo), "test ! -e built && touch built", landing=True
    ).red
    assert (
        run.paths.rooms == [run.paths.places / "room-2"]
        and not run.paths.landing.exists()
    )


def test_work_that_names_a_checkout_by_its_path_is_red(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    repo.run(
        repo.agent(f"P('run.sh').write_text('source {repo.places}/work-1/lib.sh\\n')"),
        "--once",
    )
    (verdict,) = repo.records("verdict")
    assert verdict["verdict"] == "failed"
    assert (
        verdict["reason"]
        == "run.sh names a checkout of ralph, which a clone does not have"
    )


@pytest.mark.parametrize("link", [True, False])
def test_files_and_links_that_lead_to_a_checkout_are_found_in_the_room(
    repo: Repo, link: bool
) -> None:
    run, base = run_of(repo), head(repo)
    there = f"{run.paths.places}/work-1/lib"
    if link:
        (repo.path / "lib").symlink_to(there)
    else:
        repo.write("lib", f"x\n{there}\n")
    repo.commit("lib")
    found = checked(run, head(repo), "true", changed=["lib", "a.txt", "gone"])
    assert (found.naming, found.checks) == (["lib"], [])
    assert not checked(run, base, "true", changed=["a.txt"]).naming


@pytest.mark.parametrize("name", [".gitignore", ".gitattributes"])
def test_a_fifo_that_a_check_leaves_under_a_name_that_git_reads_holds_nobody(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Where git waits for it, its deadline ends that, and the room is made anew."""
    monkeypatch.setattr(workspace, "BULK", 2.0)
    run = run_of(repo)
    left = checked(
        run, head(repo), f"mkfifo {name}", "touch -d 2001-01-01 a.txt", "true"
    )
    assert [result.name for result in left.red] == (
        ["git"] if name == ".gitattributes" else []
    )
    with within(30):
        assert not checked(run, head(repo), f"test ! -e {name}").red
