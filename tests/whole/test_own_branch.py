"""ralph's own branch, on which nobody sits: the landed commit is the commit point, log
and marks follow from it."""

from __future__ import annotations

import pytest

from tests.conftest import Repo, cases
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
    assert tip(repo, "feature") == feature
    assert not changed(before, home_of(repo))
    refused = repo.ralph("land")
    assert refused.returncode == 4 and "T2.txt" in refused.stderr
    assert tip(repo, "feature") == feature
    assert repo.sh("cat a.txt T2.txt") == "mine\nmine\n"
    repo.sh("rm T2.txt; git checkout -q a.txt")
    landed = repo.ralph("land")
    assert landed.returncode == 0, landed.stderr
    assert tip(repo, "feature") == tip(repo) and repo.read("a.txt") == "theirs\n"


@cases(
    """
line                                    words          branch
git switch -qc mine                     --branch mine  -
git switch -qc mine                     -              mine
git switch -qc ralph/p                  -              -
git worktree add -qb ralph/p ../tree    -              -
""",
    of=2,
)
def test_a_branch_that_somebody_has_checked_out_is_refused_at_the_start(
    repo: Repo, line: str, words: str, branch: str
) -> None:
    repo.sh(line)
    top = {"branchName": branch} if branch else {}
    repo.plan(own("T1"), **top)
    before = home_of(repo)
    done = repo.ralph("run", "--agent", repo.agent(COUNTS), *words.split())
    assert done.returncode == 2 and "git switch" in done.stderr, done.stderr
    assert not changed(before, home_of(repo)) and not (repo.outside / "ran").exists()


WAITS = (
    f"(OUT / 'on').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)\n{COUNTS}"
)


# What ends the wait for a free branch, and the run's exit status.
@cases(
    """
how                   exit  line
they switch away      0     git switch -q -
the run's time is up  3     -
ralph stop            3     $PYTHON -m ralph stop
kill -9               -9    -
a signal              143   kill $NIGHT
""",
    of=3,
)
@pytest.mark.parametrize("jobs", ["1", "3"])
def test_verified_work_waits_while_somebody_sits_on_the_branch(
    repo: Repo, how: str, exit: str, line: str, jobs: str
) -> None:
    """Nothing lands under their hands, and nobody is paid twice for it, whatever ends
    the wait."""
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
    main = tip(repo, "main")
    assert tip(repo) == main and not repo.passed()
    if how == "kill -9":
        repo.kill()
    repo.sh(line, NIGHT=str(night.pid))
    said, _ = night.communicate(timeout=60)
    assert night.returncode == int(exit) and "git switch -" in said, said
    if exit != "0":
        assert tip(repo) == main and not repo.passed()
        repo.sh("git switch -q -")
        repo.ends("0: T1 T2 T3", repo.agent(WAITS))
    assert repo.passed() == ["T1", "T2", "T3"], said
    assert repo.read("a.txt") == "mine\n"
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
