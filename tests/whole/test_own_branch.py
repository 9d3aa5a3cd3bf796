"""ralph's own branch, on which nobody sits: the landed commit is the commit point, log
and marks follow from it."""

from __future__ import annotations

import itertools
import subprocess
from collections.abc import Callable

import pytest

from tests.conftest import Repo, sample
from tests.oracle import changed, home_of
from tests.scripts import COUNTS, LOOKS_OFTEN, MAKES, own


def tip(repo: Repo, name: str = "ralph/p") -> str:
    return repo.git("rev-parse", name).strip()


# ---------------------------------------------------------------- a person at work


def test_on_a_feature_branch_files_branch_and_edits_of_a_person_stay_until_they_land_it(
    repo: Repo,
) -> None:
    repo.sh("git switch -qc feature; echo mine > a.txt; echo mine > T2.txt")
    repo.plan(*map(own, ("T1", "T2", "T3")))
    feature, before = tip(repo, "feature"), home_of(repo)
    edits = f"{MAKES}\nif task == 'T1': P('a.txt').write_text('theirs\\n')"
    repo.ends("0: T1 T2 T3", repo.agent(edits))
    assert repo.commits(since="feature") == ["T3: task 3", "T2: task 2", "T1: task 1"]
    assert (tip(repo, "feature"), changed(before, home_of(repo))) == (feature, [])
    refused = repo.ralph("land")
    assert (refused.returncode, tip(repo, "feature")) == (4, feature)
    assert "T2.txt" in refused.stderr
    assert [repo.read(name) for name in ("a.txt", "T2.txt")] == ["mine\n", "mine\n"]
    repo.sh("rm T2.txt; git checkout -q a.txt")
    landed = repo.ralph("land")
    assert landed.returncode == 0, landed.stderr
    assert tip(repo, "feature") == tip(repo) and repo.read("a.txt") == "theirs\n"


SEATS = {
    "the branch of an option": ("git switch -qc mine", ["--branch", "mine"], {}),
    "the branch of the plan": ("git switch -qc mine", [], {"branchName": "mine"}),
    "ralph's own branch": ("git switch -qc ralph/p", [], {}),
    "in another worktree": ("git worktree add -qb ralph/p ../tree", [], {}),
}


@pytest.mark.parametrize("seat", sample(SEATS, 2))
def test_a_branch_that_somebody_has_checked_out_is_refused_at_the_start(
    repo: Repo, seat: str
) -> None:
    script, words, top = SEATS[seat]
    repo.sh(script)
    repo.plan(own("T1"), **top)
    before = home_of(repo)
    done = repo.ralph("run", "--agent", repo.agent(COUNTS), *words)
    assert done.returncode == 2 and "git switch" in done.stderr, done.stderr
    assert not changed(before, home_of(repo)) and not (repo.outside / "ran").exists()


WAITS = (
    f"(OUT / 'on').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)\n{COUNTS}"
)


# What ends the wait for a free branch, and the run's exit status.
ENDS: dict[str, tuple[Callable[[Repo, subprocess.Popen[str]], object], int]] = {
    "they switch away": (lambda repo, night: repo.sh("git switch -q -"), 0),
    "the run's time is up": (lambda repo, night: None, 3),
    "ralph stop": (lambda repo, night: repo.ralph("stop"), 3),
    "a signal": (lambda repo, night: night.terminate(), 143),
    "kill -9": (lambda repo, night: repo.kill(), -9),
}


@pytest.mark.parametrize(
    ("how", "jobs"), sample(itertools.product(ENDS, ("1", "3")), 3)
)
def test_verified_work_waits_while_somebody_sits_on_the_branch(
    repo: Repo, how: str, jobs: str
) -> None:
    """Nothing lands under their hands, and nobody is paid twice for it, whatever ends
    the wait."""
    ends, exit = ENDS[how]
    repo.plan(*map(own, ("T1", "T2", "T3")))
    words = ["run", "--agent", repo.agent(WAITS), "--jobs", jobs]
    words += ["--notify", f"cat >> {repo.outside}/told"]
    if how == "the run's time is up":
        words += ["--max-hours", "0.0014"]
    night = repo.start(*words, first=LOOKS_OFTEN)
    repo.wait_for("../on")
    repo.sh("git switch -q ralph/p; echo mine > a.txt")
    repo.write("../go", "")
    repo.wait_for("../told")
    refs = "git for-each-ref --format='%(objectname)' refs/ralph"
    kept = repo.sh(f"for ref in $({refs}); do git ls-tree --name-only $ref; done")
    assert {"T1.txt", "T2.txt", "T3.txt"} & {*kept.split()}
    assert (tip(repo), repo.passed()) == (tip(repo, "main"), [])
    ends(repo, night)
    said, _ = night.communicate(timeout=60)
    assert night.returncode == exit and "git switch -" in said, said
    if exit:
        assert (tip(repo), repo.passed()) == (tip(repo, "main"), [])
        repo.sh("git switch -q -")
        code, _, said = repo.run(repo.agent(WAITS))
        assert code == 0, said
    assert (repo.passed(), repo.read("a.txt")) == (["T1", "T2", "T3"], "mine\n"), said
    assert sorted(repo.read("../ran").split()) == ["T1", "T2", "T3"], said


# What a person does on ralph's branch.
COMMITS = """
export GIT_DIR={0}/.git GIT_INDEX_FILE={0}/../index
git read-tree ralph/p
git update-index --add --cacheinfo 100644,$(echo x | git hash-object -w --stdin),person.txt
git update-ref refs/heads/ralph/p $(git commit-tree -p ralph/p -m person $(git write-tree))
"""


def test_what_was_green_before_somebody_moved_the_branch_must_be_green_again(
    repo: Repo,
) -> None:
    """Also where ralph is cut off while it checks the work on the new tip."""
    commits = repo.program("../commits", COMMITS.format(repo.path))
    looks = repo.outside / "looks"
    turn = f"1) {commits};; 2) kill -9 $PPID;; *) test -f person.txt;;"
    counts = f"echo x >> {looks}; case $(grep -c x {looks}) in {turn} esac"
    repo.plan(f"test -f T1.txt || exit 1; {counts}")
    repo.judges("0: T1 passed", repo.agent(MAKES + COUNTS))
    assert repo.commits() == ["T1: task 1", "person"]
    assert len(looks.read_text().split()) > 2
