"""`ralph land`: what lands on a person's branch was green there, and all else stays as
it was."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from _ralph.state import layout, lock
from tests.conftest import Repo, cases, sample
from tests.whole.test_machines import can_unshare

WORK = "P(f'{task}.txt').write_text('good')"


def plan(repo: Repo, name: str, check: str = "true") -> str:
    """Write plans/`name`/prd.json with one task called `name`, whose check is the same
    for all, and one of the plan; the path."""
    path = f"plans/{name}/prd.json"
    task = {"id": name, "title": f"add {name}", "checks": [f"grep -q good {name}.txt"]}
    repo.plan(task, project=name, checks=[check])
    (repo.path / path).parent.mkdir(parents=True)
    (repo.path / "prd.json").rename(repo.path / path)
    return path


def night(repo: Repo, name: str, check: str = "true") -> None:
    """A plan that is worked to its end, on branch ralph/`name`."""
    path = plan(repo, name, check)
    done = repo.ralph("run", "-q", "--prd", path, "--agent", repo.agent(WORK))
    assert done.returncode == 0, done.stdout + done.stderr


def land(repo: Repo, name: str = "", first: str = "") -> tuple[int, str]:
    """Land the plan in plans/`name`, else the one at the top."""
    words = ["land"]
    if name:
        words += ["--prd", f"plans/{name}/prd.json"]
    done = repo.ralph(*words, first=first)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def state(repo: Repo) -> str:
    """The commit of main, all edits, and what is in a file."""
    return tip(repo) + repo.git("status", "--porcelain") + repo.read("a.txt")


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


def test_two_plans_land_in_turn_and_again_is_done(two: Repo) -> None:
    """The first is the very commit that was checked; the second a merge, signed as the
    person signs, with a stand-in for gpg. No hook runs, as nobody would have checked
    what it did."""
    script = "cat > /dev/null\necho '[GNUPG:] SIG_CREATED ' >&2\necho '-----BEGIN PGP SIGNATURE-----'"
    two.git("config", "gpg.program", str(two.program("../gpg", script)))
    two.git("config", "commit.gpgSign", "true")
    hooks = "pre-merge-commit pre-commit commit-msg post-merge reference-transaction"
    for hook in hooks.split():
        two.program(f".git/hooks/{hook}", f"echo {hook} >> {two.outside}/hooked; false")
    for name in ("x", "y"):
        code, said = land(two, name)
        assert code == 0, said
        assert f"ralph/{name} landed on main" in said
        assert two.read(f"{name}.txt") == "good"
        assert '"event": "land"' in two.read(f"plans/{name}/progress.txt")
    assert not (two.outside / "hooked").exists()
    assert tip(two, "HEAD^1") == tip(two, "ralph/x")
    assert tip(two, "HEAD^2") == tip(two, "ralph/y")
    subjects = two.git("log", "--first-parent", "--format=%s").splitlines()
    assert subjects == ["Merge branch 'ralph/y'", "x: add x", "start"]
    assert "BEGIN PGP SIGNATURE" in two.git("cat-file", "commit", "main")
    assert two.git("status", "--porcelain", "-uno") == ""
    before = tip(two)
    code, said = land(two, "x")
    assert (code, tip(two)) == (0, before)
    assert "ralph/x is in main already" in said
    assert two.gone_within(0.5), two.alive()


def test_those_that_are_green_alone_and_red_together(repo: Repo) -> None:
    """The second is refused, and all stays as it was."""
    night(repo, "x")
    night(repo, "y", "test ! -e x.txt -o ! -e y.txt")
    assert land(repo, "x")[0] == 0
    before = tip(repo)
    code, said = land(repo, "y")
    line = said.splitlines()[-1]
    assert code == 4
    assert "ralph/y did not land on main: test ! -e x.txt" in line
    assert "failed with exit 1" in line
    assert Path(line.rpartition(" ")[2]).is_file()
    assert tip(repo) == before
    assert not (repo.path / "y.txt").exists()
    assert repo.git("status", "--porcelain", "-uno") == ""


def test_a_conflict_is_named_and_changes_nothing(two: Repo) -> None:
    two.write("x.txt", "of a person\n")
    two.commit("mine")
    before = state(two)
    code, said = land(two, "x")
    assert code == 4
    assert "ralph/x does not merge with main: x.txt" in said
    assert "git merge ralph/x" in said
    assert two.read("x.txt") == "of a person\n"
    assert state(two) == before


def test_edits_of_the_person_are_kept(two: Repo) -> None:
    two.write("a.txt", "edited\n")
    two.write("staged.txt", "staged\n")
    two.git("add", "staged.txt")
    two.write("mine.txt", "mine\n")
    two.git("config", "branch.main.mergeOptions", "--squash")
    for name in ("x", "y"):
        assert land(two, name)[0] == 0
    assert two.read("y.txt") == "good"
    status = two.git("status", "--porcelain", "--", "./*.txt", ":!plans").splitlines()
    assert status == [" M a.txt", "A  staged.txt", "?? mine.txt"]


@pytest.mark.parametrize("way", ["untracked", "staged", "edited"])
def test_edits_in_the_way_are_named_and_nothing_moves(two: Repo, way: str) -> None:
    two.git("switch", "-q", "ralph/x")
    two.write("a.txt", "new")
    two.git("commit", "-qam", "more")
    two.git("switch", "-q", "main")
    name = "a.txt" if way == "edited" else "x.txt"
    two.write(name, "of a person\n")
    if way == "staged":
        two.git("add", name)
    before = state(two)
    code, said = land(two, "x")
    assert code == 4
    assert name in said
    assert "git cannot move main" in said and "check" not in said
    assert state(two) == before
    assert two.read(name) == "of a person\n"


# root may write everywhere, but not in a user namespace of its own
NO_ROOT = "import ctypes; ctypes.CDLL(None).unshare(0x10000000)"


@pytest.mark.skipif(not can_unshare(), reason="needs user namespaces")
def test_a_folder_that_nobody_may_write_to_is_named_and_nothing_moves(
    repo: Repo,
) -> None:
    repo.write("sub/a.txt", "x\n")
    repo.commit("sub")
    repo.plan({"checks": ["test -f sub/T1.txt"]})
    assert repo.run(repo.agent("P('sub/T1.txt').touch()"))[0] == 0
    before = state(repo)
    (repo.path / "sub").chmod(0o555)
    code, said = land(repo, first=NO_ROOT)
    (repo.path / "sub").chmod(0o755)
    assert code == 4 and "you may not write to" in said and "check" not in said
    assert state(repo) == before


def test_what_was_red_before_on_the_current_branch_is_named_and_stops_nothing(
    repo: Repo,
) -> None:
    """A check that a person broke on their own branch. Those of open tasks do not
    count, nor those that are to hold but once."""
    once = {"run": "test ! -e broken.txt", "once": True, "name": "once"}
    tasks = {"checks": ["test -f T1.txt", once]}, {"checks": ["false"]}
    checks = ["test ! -e broken.txt", "true"]
    repo.plan(*tasks, checks=checks, limits={"attempts": 1})
    assert repo.run(repo.agent("P(f'{task}.txt').touch()"))[0] == 4
    repo.write("broken.txt", "")
    repo.git("add", "broken.txt")
    repo.git("commit", "-qm", "broken")
    code, said = land(repo)
    assert code == 0 and (repo.path / "T1.txt").exists(), said
    assert "ralph/p on main: 1 of 2 tasks passed" in said
    assert "! red before, too: test ! -e broken.txt" in said
    assert "main without it: check test ! -e broken.txt: failed" in said
    assert "check false" not in said and "check once" not in said


# ---------------------------------------------------------------- what is refused


@cases("""
    prepare                    name             line
    git switch -q --detach     x                no branch of yours with a commit is checked out; switch to
    git switch -q --orphan n   x                no branch of yours with a commit
    git switch -q ralph/y      x                no branch of yours with a commit
    git branch -qD ralph/x     x                there is no branch ralph/x yet
    true                       -                prd.json; cd to your project, name its plan with --prd, or start one here: ralph init
    cp -r . ../b               ../../b/plans/x  is a plan of another repository
    mv .git ../gone            x                there is no git repository here; cd to the working tree that should get the work
""")
def test_what_cannot_be_tried_is_one_clear_line(
    two: Repo, prepare: str, name: str, line: str
) -> None:
    two.sh(prepare)
    before = [*two.path.glob(".git/refs/heads/*")]
    code, said = land(two, name)
    assert code == 2, said
    assert line in said
    assert [*two.path.glob(".git/refs/heads/*")] == before


def test_a_plan_with_a_loop_at_work_is_left_alone(two: Repo) -> None:
    with lock.alone(layout.locate(two.path / "plans/x/prd.json"), "run"):
        code, said = land(two, "x")
    assert code == 75
    assert "`ralph run` is at work on this plan" in said


# ---------------------------------------------------------------- somebody else, and kills


def test_a_branch_that_a_person_moves_meanwhile_is_left_where_it_is(
    repo: Repo,
) -> None:
    """In the first check of `ralph land` a person commits on main."""
    out, git = repo.outside, f"git -C {repo.path}"
    commit = f"touch {out}/moved; {git} commit -q --allow-empty -m mine"
    once = f"test -e {out}/moved || {{ {repo.program('../person', commit)}; }}"
    check = f"test -e {out}/landing || exit 0; echo x >> {out}/checked; {once}"
    night(repo, "x", check)
    repo.write("../landing", "")
    code, said = land(repo, "x")
    assert code == 4
    assert "main moved meanwhile; call `ralph land` again" in said
    assert land(repo, "x")[0] == 0
    assert len(repo.read("../checked").split()) == 2
    subjects = repo.git("log", "--first-parent", "--format=%s").splitlines()
    assert subjects == ["Merge branch 'ralph/x'", "mine", "start"]


def test_a_kill_at_any_call_leaves_the_old_state_or_the_new(
    two: Repo, tally: Callable[[str, int], None]
) -> None:
    """The person stands on main with edits; the branch is a true merge."""
    assert land(two, "x")[0] == 0
    two.write("a.txt", "edited\n")
    old = tip(two)
    count = two.outside / "count"

    def driven(at: int, how: str) -> int:
        two.env |= {"CRASH_COUNT": str(count), "CRASH_AT": str(at), "CRASH_HOW": how}
        return land(two, "y", first="import tests.crash_driver")[0]

    assert driven(0, "count") == 0
    calls = (two.outside / "count.calls").read_text().splitlines()
    made = re.findall(r"git [\w-]+", str(calls))
    assert {"git merge", "git commit-tree"} <= set(made)
    ways = [(at, how) for at in range(1, len(calls)) for how in ("before", "after")]
    points = sample(ways, 14)
    killed = 0
    for at, how in points:
        two.git("reset", "-q", "--keep", old)
        count.unlink()
        killed += driven(at, how) == -signal.SIGKILL
        assert two.gone_within(5), (calls[at - 1], two.alive())
        assert (tip(two) == old) != (two.path / "y.txt").exists(), calls[at - 1]
        code, said = land(two, "y")
        assert code == 0, (calls[at - 1], said)
        assert two.read("y.txt") == "good"
        assert two.git("status", "--porcelain", "-uno") == " M a.txt\n", calls[at - 1]
    assert killed > 0.8 * len(points)  # a run after a kill makes a call more or less
    tally("kills of `ralph land`", killed)


# ---------------------------------------------------------------- what git ignores

THEIRS = """
P('.env').write_text('theirs'); P('data').write_text('a file now'); P('.gitignore').write_text('!.venv/')
P('.venv').mkdir(); P('.venv/notes.txt').write_text('x')
"""


@cases("""
    ignored         mine
    .env\\ndata/\\n  .env data/a.csv
    -               .venv/notes.txt
""")
def test_what_a_person_s_git_ignores_is_not_landed_upon(
    repo: Repo, ignored: str, mine: str
) -> None:
    """Nor what is untracked, and only in ralph's own list of caches."""
    repo.write(".gitignore", f"{ignored}.ralph/\nprd.json\nprogress.txt\n")
    repo.commit("ignore")
    for name in mine.split():
        repo.write(name, "the only copy")
    repo.plan("true")
    repo.run(repo.agent(THEIRS))
    done = repo.ralph("land")
    assert done.returncode in (0, 4), done.stderr
    for name in mine.split():
        assert repo.read(name) == "the only copy"
