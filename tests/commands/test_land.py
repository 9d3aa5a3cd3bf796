"""`ralph land`: what lands on a person's branch was green there, and all else stays as
it was."""

from __future__ import annotations

import json
import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo, sample
from tests.oracle import nothing_runs_within, still_running

WORK = "P(f'{task}.txt').write_text('good')"


def plan(repo: Repo, name: str, *checks: str, **top: Any) -> str:
    """Write plans/`name`/prd.json with one task called `name`; the path."""
    task = {
        "id": name,
        "title": f"add {name}",
        "passes": False,
        "checks": [f"grep -q good {name}.txt"],
    }
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


def plans(*names: str) -> list[str]:
    """The options that name these plans."""
    return [word for name in names for word in ("--prd", f"plans/{name}/prd.json")]


def tip(repo: Repo, name: str = "main") -> str:
    return repo.git("rev-parse", name).strip()


@pytest.fixture(scope="module")
def nights(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """A repository on main, and two branches that merge with it and with each other."""
    made = Repo(tmp_path_factory.mktemp("two"))
    for name in ("x", "y"):
        night(made, name)
    made.keep()
    return made


@pytest.fixture
def two(nights: Repo) -> Iterator[Repo]:
    made = nights.again()
    yield made
    made.kill()


# ---------------------------------------------------------------- what lands


def test_several_branches_land_in_turn_and_again_is_done(two: Repo) -> None:
    code, said = land(two, *plans("x", "y"))
    assert code == 0, said
    assert (two.read("x.txt"), two.read("y.txt")) == ("good", "good")
    assert tip(two, "HEAD^1") == tip(two, "ralph/x"), "the very commit that was checked"
    assert '"onto": "main"' in two.read("plans/x/progress.txt")
    assert two.git("log", "--first-parent", "--format=%s").splitlines() == [
        "Merge branch 'ralph/y'", "x: add x", "start",
    ]  # fmt: skip
    assert two.git("status", "--porcelain", "-uno") == ""
    assert tip(two, "HEAD^2") == tip(two, "ralph/y")
    assert "ralph/x landed on main" in said and "ralph/y landed on main" in said
    before = tip(two)
    code, said = land(two, *plans("y", "x"))
    assert code == 0 and "ralph/x is in main already" in said and tip(two) == before
    assert nothing_runs_within(two, 0.5), still_running(two)


def test_those_that_are_green_alone_and_red_together(repo: Repo) -> None:
    """The second is refused, and stays where it was, also where only the checks of the
    first see it; what comes after it is tried all the same."""
    night(repo, "x", "test ! -e x.txt -o ! -e y.txt")  # sees y; and w sees x
    for name, *checks in (["y"], ["z"], ["w", "test ! -e x.txt -o ! -e w.txt"]):
        night(repo, name, *checks)
    code, said = land(repo, *plans("x", "y", "w", "z"))
    assert code == 4 and (repo.read("x.txt"), repo.read("z.txt")) == ("good", "good")
    for name in ("y", "w"):
        assert not (repo.path / f"{name}.txt").exists()
        (line,) = [
            line
            for line in said.splitlines()
            if f"! ralph/{name} did not land on main" in line
        ]
        assert "failed with exit 1" in line and Path(line.rpartition(" ")[2]).is_file()
    assert "ralph/x landed on main" in said and "ralph/z landed on main" in said
    assert repo.git("status", "--porcelain", "-uno") == ""


def test_a_conflict_is_named_and_changes_nothing(two: Repo) -> None:
    two.write("x.txt", "of a person\n")
    two.commit("mine")
    before = tip(two), two.git("status", "--porcelain")
    code, said = land(two, *plans("x", "y"))
    assert (
        code == 4 and "ralph/x did not land on main: it does not merge: x.txt" in said
    )
    assert "git merge ralph/x" in said and two.read("x.txt") == "of a person\n"
    assert two.read("y.txt") == "good" and tip(two, "HEAD^1") == before[0]


def test_edits_of_the_person_are_kept(two: Repo) -> None:
    two.write("a.txt", "edited\n")
    two.write("staged.txt", "staged\n")
    two.git("add", "staged.txt")
    two.write("mine.txt", "mine\n")
    assert land(two, *plans("x", "y"))[0] == 0
    assert two.read("y.txt") == "good"
    status = two.git("status", "--porcelain", "--", "./*.txt", ":!plans").splitlines()
    assert status == [" M a.txt", "A  staged.txt", "?? mine.txt"]


@pytest.mark.parametrize("way", ["untracked", "staged", "edited"])
def test_edits_in_the_way_are_named_and_nothing_moves(repo: Repo, way: str) -> None:
    name = "a.txt" if way == "edited" else "x.txt"
    night(repo, "x", work="P('x.txt').write_text('good'); P('a.txt').write_text('new')")
    repo.write(name, "of a person\n")
    if way == "staged":
        repo.git("add", name)
    before = tip(repo), repo.git("status", "--porcelain"), repo.read("a.txt")
    code, said = land(repo, *plans("x"))
    assert (
        code == 4 and name in said and "your uncommitted edits are in the way" in said
    )
    assert (tip(repo), repo.git("status", "--porcelain"), repo.read("a.txt")) == before
    assert repo.read(name) == "of a person\n"


def test_a_plan_of_another_worktree_lands_where_the_person_stands(repo: Repo) -> None:
    repo.git("worktree", "add", "-q", "-b", "linked", "../linked")
    linked = Repo.__new__(Repo)
    vars(linked).update({**vars(repo), "path": repo.outside / "linked"})
    linked.plan({"checks": ["test -f T1.txt"]})
    assert (
        linked.run(linked.agent("P('T1.txt').touch()"), "--branch", "ralph/x")[0] == 0
    )
    code, said = land(repo, "--prd", "../linked/prd.json")
    assert code == 0 and (repo.path / "T1.txt").exists(), said
    linked.git("switch", "-q", "ralph/x")
    code, said = land(linked)
    assert code == 2 and "the current branch ralph/x is ralph's own" in said


def test_what_was_red_before_on_the_current_branch_is_named_and_lets_the_rest_land(
    repo: Repo,
) -> None:
    """A check that a person broke on their own branch; one that the merge breaks is
    another thing."""
    night(repo, "x", "test ! -e broken.txt")
    repo.write("broken.txt", "")
    repo.git("add", "broken.txt")
    repo.git("commit", "-qm", "broken")
    code, said = land(repo, *plans("x"))
    assert code == 0 and repo.read("x.txt") == "good", said
    assert "! red before, too: test ! -e broken.txt" in said
    assert "main without it: check test ! -e broken.txt: failed" in said


def test_only_what_has_passed_and_still_means_something_is_checked(repo: Repo) -> None:
    once = {"run": "test ! -e z.txt", "once": True}
    repo.plan(
        {"checks": ["test -f T1.txt", once]},
        {"checks": ["false"]},
        limits={"attempts": 1},
    )
    assert repo.run(repo.agent("P(f'{task}.txt').touch()"))[0] == 4
    repo.write("z.txt", "")
    repo.git("add", "z.txt")
    repo.git("commit", "-qm", "of a person")
    code, said = land(repo)
    assert code == 0 and "ralph/p on main: 1 of 2 tasks passed" in said
    assert "check false" not in said and (repo.path / "T1.txt").exists()


def test_hooks_are_not_run(two: Repo) -> None:
    """As with what a run lands, the checks speak for the merge; what hooks did to it
    nobody would have checked."""
    names = "pre-merge-commit pre-commit commit-msg prepare-commit-msg post-merge reference-transaction"
    for name in names.split():
        two.program(
            f".git/hooks/{name}", f"echo {name} >> {two.outside}/hooked; exit 1"
        )
    assert land(two, *plans("x", "y"))[0] == 0
    assert not (two.outside / "hooked").exists()


def test_a_merge_is_signed_as_the_person_signs(two: Repo) -> None:
    """With a stand-in for gpg, which makes a signature of nothing."""
    script = "cat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'"
    two.git("config", "gpg.program", str(two.program("../gpg", script)))
    two.git("config", "commit.gpgSign", "true")
    assert land(two, *plans("x", "y"))[0] == 0
    assert "BEGIN PGP SIGNATURE" in two.git("cat-file", "commit", "main")


# ---------------------------------------------------------------- what is refused

DETACH: Callable[[Repo], object] = lambda r: r.git("switch", "-q", "--detach")  # noqa: E731
X = "--prd plans/x/prd.json"
REFUSED: dict[str, tuple[Callable[[Repo], object], str, str]] = {
    "HEAD is detached": (DETACH, X, "no branch is checked out here, HEAD is detached; switch to the branch"),
    "HEAD is unborn": (lambda r: r.git("switch", "-q", "--orphan", "new"), X, "the branch new has no commit yet"),
    "no such branch": (lambda r: None, f"ralph/x ralph/no {X}", "there is no branch ralph/no"),
    "no name of a branch": (lambda r: None, f"ralph/x a..b {X}", "there is no branch a..b"),
    "the current one": (lambda r: None, f"ralph/x main {X}", "main is the current branch"),
    "on ralph's own": (lambda r: r.git("switch", "-q", "ralph/y"), X, "the current branch ralph/y is ralph's own"),
    "branches of several plans": (lambda r: None, f"ralph/x {X} --prd plans/y/prd.json", "name branches of one plan, or several plans"),
    "no plan here": (lambda r: None, "", "prd.json; cd to your project, name its plan with --prd, or start one here: ralph init"),
    "another repository's": (lambda r: Repo(r.outside / "b").plan({}), "ralph/x --prd ../b/repo/prd.json", "is a plan of another repository"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_tried_is_one_clear_line(two: Repo, name: str) -> None:
    prepare, words, line = REFUSED[name]
    prepare(two)
    before = two.git("for-each-ref", "refs/heads")
    code, said = land(two, *words.split())
    assert code == 2 and line in said, said
    assert two.git("for-each-ref", "refs/heads") == before


def test_outside_of_a_repository(two: Repo) -> None:
    two.path = two.outside
    assert land(two, "ralph/x", "--prd", "repo/plans/x/prd.json") == (
        2, "ralph: there is no git repository here; cd to the working tree that should get the work\n",
    )  # fmt: skip


def test_a_branch_of_the_plan_is_named_or_its_plan(two: Repo) -> None:
    (two.path / "plans/x/prd.json").rename(two.path / "prd.json")
    (two.path / "plans/x/progress.txt").rename(two.path / "progress.txt")
    code, said = land(two, "ralph/y")
    assert code == 2 and "the branch of prd.json is ralph/x; for ralph/y" in said
    assert "name its plan: ralph land ralph/y --prd FILE" in said
    assert land(two, "ralph/y", *plans("y"))[0] == 0
    assert land(two, "ralph/x")[0] == 0 and (two.path / "x.txt").exists()


def test_a_branch_with_a_loop_at_work_is_left_alone_and_the_others_land(
    two: Repo,
) -> None:
    busy = plan(two, "z")
    hangs = (
        "(OUT / 'on').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)\n"
        + WORK
    )
    process = two.start("run", "-q", "--prd", busy, "--agent", two.agent(hangs))
    two.wait_for("../on")
    code, said = land(two, *plans("z", "x"))
    assert (
        code == 75
        and "ralph/z did not land on main: `ralph run` is at work on this plan" in said
    )
    assert (two.path / "x.txt").exists()
    two.write("../go", "")
    assert process.wait(30) == 0
    assert land(two, *plans("z"))[0] == 0


# ---------------------------------------------------------------- somebody else, and kills


def moves_main(repo: Repo) -> str:
    """A check in which a person commits on main, the first time that it is run by
    `ralph land`."""
    git = f"git -C {repo.path}"
    person = repo.program(
        "../person",
        f"echo mine > {repo.path}/mine.txt; {git} add mine.txt; {git} commit -qm mine",
    )
    return (
        f"test -e {repo.outside}/landing || exit 0; echo x >> {repo.outside}/checked; "
        f"test -e {repo.outside}/moved || {{ touch {repo.outside}/moved; {person}; }}"
    )


def moved_meanwhile(repo: Repo, first: str = "") -> None:
    night(repo, "x", moves_main(repo))
    repo.write("../landing", "")
    code, said = land(repo, *plans("x"), first=first)
    assert code == 0 and "main moved meanwhile; trying again on its new tip" in said, (
        said
    )
    assert len((repo.outside / "checked").read_text().split()) == 2
    assert repo.git("log", "-1", "--format=%s").strip() == "Merge branch 'ralph/x'"
    assert repo.git("log", "-1", "--format=%s", "main^1").strip() == "mine"
    assert (
        repo.git("status", "--porcelain", "-uno") == "" and repo.read("x.txt") == "good"
    )


def test_a_branch_that_a_person_moves_meanwhile_is_checked_again_on_its_new_tip(
    repo: Repo,
) -> None:
    moved_meanwhile(repo)


def test_an_interrupt_leaves_all_as_it_was(repo: Repo) -> None:
    night(
        repo,
        "x",
        f"test ! -e {repo.outside}/slow || {{ touch {repo.outside}/on; sleep 60; }}",
    )
    repo.write("../slow", "")
    before = tip(repo), repo.git("status", "--porcelain")
    process = repo.start("land", *plans("x"))
    repo.wait_for("../on")
    process.send_signal(signal.SIGINT)
    assert process.wait(15) == 130
    assert (tip(repo), repo.git("status", "--porcelain")) == before
    assert nothing_runs_within(repo, 0.5), still_running(repo)
    (repo.outside / "slow").unlink()
    assert land(repo, *plans("x"))[0] == 0


def test_a_kill_at_any_call_leaves_the_old_state_or_the_new(
    two: Repo, tally: Callable[[str, int], None]
) -> None:
    """The person stands on main with edits; the second branch is a true merge."""
    assert land(two, *plans("x"))[0] == 0
    two.write("a.txt", "edited\n")
    old = tip(two)
    count = two.outside / "count"

    def driven(at: int, how: str) -> int:
        two.env |= {"CRASH_COUNT": str(count), "CRASH_AT": str(at), "CRASH_HOW": how}
        done = two.ralph("land", *plans("y"), first="import tests.crash_driver")
        assert "Traceback" not in done.stderr, done.stderr
        return done.returncode

    assert driven(0, "count") == 0
    calls = (two.outside / "count.calls").read_text().splitlines()
    assert {"git merge", "git commit-tree"} <= set(
        re.findall(r"git [\w-]+", str(calls))
    )
    points = sample(
        [(at, how) for at in range(1, len(calls)) for how in ("before", "after")], 3
    )
    killed = 0
    for at, how in points:
        two.git("reset", "-q", "--keep", old)
        count.unlink()
        killed += driven(at, how) == -signal.SIGKILL
        assert nothing_runs_within(two, 5), (calls[at - 1], still_running(two))
        assert (tip(two) == old) != (two.path / "y.txt").exists(), calls[at - 1]
        code, said = land(two, *plans("y"))
        assert code == 0 and two.read("y.txt") == "good", (calls[at - 1], said)
        assert two.git("status", "--porcelain", "-uno") == " M a.txt\n", calls[at - 1]
    assert killed > 0.8 * len(points)  # a run after a kill makes a call more or less
    tally("kills of `ralph land`", killed)


# ---------------------------------------------------------------- mutants

MUTANTS: dict[str, tuple[str, Callable[[Repo, str], object]]] = {
    "lands unchecked": ("land._require_green = lambda *_: None", lambda repo, first: unchecked(repo, first)),
    "checks the branch and not the merge": ("land._require_green = lambda run, name, commit, real=land._require_green: real(run, name, name)", lambda repo, first: unchecked(repo, first)),
    "lands what was green elsewhere": ("land._fast_forward = lambda onto, commit, tip: bool(onto.git('reset', '-q', '--hard', commit)) or True", moved_meanwhile),
}  # fmt: skip


def unchecked(repo: Repo, first: str) -> None:
    for name in ("x", "y"):
        night(repo, name, "test $(ls *.txt | wc -l) -le 2")
    assert land(repo, *plans("x", "y"), first=first)[0] == 4


@pytest.mark.parametrize("mutant", MUTANTS)
def test_a_landing_without_a_safeguard_is_caught(repo: Repo, mutant: str) -> None:
    sabotage, caught = MUTANTS[mutant]
    with pytest.raises(AssertionError):
        caught(repo, f"from _ralph.commands import land\n{sabotage}")


@pytest.mark.parametrize(
    ("ignored", "mine"),
    [(".env\ndata/\n", (".env", "data/a.csv")), ("", (".venv/notes.txt",))],
)
def test_what_a_person_s_git_ignores_is_not_landed_upon(
    repo: Repo, ignored: str, mine: tuple[str, ...]
) -> None:
    """Nor what is untracked, and only in ralph's own list of caches."""
    repo.write(".gitignore", f"{ignored}.ralph/\nprd.json\nprogress.txt\n")
    repo.commit("ignore")
    for name in mine:
        repo.write(name, "the only copy")
    repo.plan({"checks": ["true"]})
    theirs = "P('.env').write_text('theirs'); P('data').write_text('a file now')"
    theirs += "; P('.gitignore').write_text('!.venv/'); P('.venv').mkdir(); P('.venv/notes.txt').write_text('x')"
    repo.run(repo.agent(theirs))
    done = repo.ralph("land")
    assert done.returncode in (0, 4), done.stderr
    assert [repo.read(name) for name in mine] == ["the only copy"] * len(mine)
