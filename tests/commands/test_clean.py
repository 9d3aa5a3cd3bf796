"""`ralph clean`: places that nobody needs go, and nothing goes that is nowhere else."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo

WORK = "P(f'{task}.txt').write_text('good')"


def clean(repo: Repo, *words: str, first: str = "") -> tuple[int, str]:
    done = repo.ralph("clean", *words, first=first)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


def places(repo: Repo) -> list[str]:
    """What lies in the folder of the plan's places."""
    return sorted(os.listdir(repo.places)) if repo.places.exists() else []


def parked(repo: Repo) -> list[str]:
    return repo.git("for-each-ref", "--format=%(refname)", "refs/ralph/parked").split()


@pytest.fixture(scope="module")
def worked(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = Repo(tmp_path_factory.mktemp("done"))
    repo.plan({"checks": ["grep -q good T1.txt"]})
    assert repo.run(repo.agent(WORK))[0] == 0
    repo.git("merge", "-q", "--ff-only", "ralph/p")
    repo.keep()
    return repo


@pytest.fixture
def done(worked: Repo) -> Iterator[Repo]:
    """A plan that is done, and merged."""
    made = worked.again()
    made.git("status")  # the files are new to git's index
    yield made
    made.kill()


def test_a_plan_that_is_done_loses_its_places_and_nothing_else(done: Repo) -> None:
    before = (
        done.git("for-each-ref"),
        done.git("status", "--porcelain"),
        done.read("prd.json"),
    )
    assert places(done) == ["plan.json", done.room.name, "work-1"]
    code, said = clean(done, "-n")
    assert (
        code == 0
        and said.startswith(f"would remove {done.places}: ")
        and "it would free" in said
    )
    assert places(done) == ["plan.json", done.room.name, "work-1"]
    code, said = clean(done)
    first, last = said.splitlines()
    assert (
        code == 0
        and first.startswith(f"removed {done.places}: ")
        and first.endswith("prd.json is done")
    )
    assert last.startswith("freed ") and last.endswith(" MB")
    assert not done.places.exists()
    assert (
        done.git("for-each-ref"),
        done.git("status", "--porcelain"),
        done.read("prd.json"),
    ) == before
    assert clean(done) == (0, "freed 0.0 MB\n")
    done.plan({"passes": True}, {"checks": ["grep -q good T2.txt"]})
    assert done.run(done.agent(WORK))[0] == 0  # they are made again


def test_a_branch_that_was_squashed_into_head_is_merged(done: Repo) -> None:
    done.git("reset", "-q", "--keep", "HEAD~1")
    done.git("merge", "-q", "--squash", "ralph/p")
    done.git("commit", "-qm", "squashed")
    code, said = clean(done)
    assert (
        code == 0
        and said.startswith(f"removed {done.places}: ")
        and not done.places.exists()
    ), said


STAYS: dict[str, tuple[Callable[[Repo], object], str]] = {
    "a task is left": (lambda r: r.plan({"passes": True}, {}), "1 of 2 tasks to go in"),
    "it is blocked": (lambda r: r.plan({"passes": True}, {"blocked": "why"}), "1 of 2 tasks to go in"),
    "it is not merged": (lambda r: r.git("reset", "-q", "--keep", "HEAD~1"), "ralph/p is not merged into HEAD; see `ralph land`"),
    "it cannot be read": (lambda r: r.write("prd.json", "{"), "prd.json"),
}  # fmt: skip


@pytest.mark.parametrize("name", STAYS)
def test_a_plan_that_is_not_done_keeps_its_places(done: Repo, name: str) -> None:
    change, line = STAYS[name]
    change(done)
    code, said = clean(done)
    assert code == 0 and said.startswith(f"left {done.places}: ") and line in said, said
    assert said.endswith("freed 0.0 MB\n") and len(places(done)) == 3


def test_a_plan_with_a_loop_at_work_is_left_alone(done: Repo) -> None:
    hangs = (
        "(OUT / 'on').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)\n"
        + WORK
    )
    done.plan({"passes": True}, {"checks": ["test -f T2.txt"]})
    process = done.start("run", "-q", "--agent", done.agent(hangs))
    done.wait_for("../on")
    plan = done.read("prd.json")
    (done.path / "prd.json").unlink()
    code, said = clean(done)
    assert (
        code == 0 and f"left {done.places}: `ralph run` is at work on this plan" in said
    ), said
    done.write("prd.json", plan)
    done.write("../go", "")
    assert process.wait(30) == 0 and done.passed() == ["T1", "T2"]


# ---------------------------------------------------------------- what has not landed


def test_work_that_is_nowhere_else_is_parked(done: Repo) -> None:
    (done.workspace / "half.txt").write_text("half\n")
    (done.workspace / "a.txt").unlink()
    code, said = clean(done)
    (ref,) = parked(done)
    assert (
        code == 0
        and f"parked what was in {done.workspace} and nowhere else: {ref}" in said
    )
    assert done.git("diff", "--name-status", "main", ref).split() == [
        "D",
        "a.txt",
        "A",
        "half.txt",
    ]
    assert not done.places.exists()


@pytest.mark.parametrize("gone", ["plan", "plan and private folder", "worktree"])
def test_of_a_plan_that_is_gone_an_attempt_that_was_cut_off_is_parked(
    repo: Repo, gone: str
) -> None:
    """Its files are in the workspace alone: no verdict, no ref."""
    home = repo
    if gone == "worktree":
        repo.git("worktree", "add", "-q", "-b", "linked", "../repo-linked/repo")
        home = Repo.__new__(Repo)
        vars(home).update({**vars(repo), "path": repo.outside / "repo-linked/repo"})
    home.plan({"checks": ["false"]})
    process = home.start(
        "run",
        "-q",
        "--agent",
        home.agent("P('half.txt').touch(); (OUT / 'on').touch(); time.sleep(60)"),
    )
    repo.wait_for("../on")
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert repo.gone_within(5)
    if gone == "worktree":
        repo.git("worktree", "remove", "--force", str(home.path))
    else:
        (repo.path / "prd.json").unlink()
    if gone == "plan and private folder":
        shutil.rmtree(repo.path / ".git/ralph")
    code, said = clean(repo)
    assert code == 0 and "prd.json is gone" in said and not home.places.exists(), said
    (ref,) = parked(repo)
    assert "half.txt" in repo.git("ls-tree", "--name-only", ref).split()


def test_what_was_parked_already_is_not_parked_again(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, limits={"attempts": 1})
    assert repo.run(repo.agent("P('bad.txt').touch()"))[0] == 4
    before = parked(repo)
    (repo.path / "prd.json").unlink()
    assert clean(repo)[0] == 0 and parked(repo) == before and len(before) == 1


def test_secrets_that_were_copied_are_not_parked(done: Repo) -> None:
    done.write(".gitignore", ".env\n")
    done.write(".worktreeinclude", ".env\n")
    done.write(".env", "secret\n")
    (done.workspace / ".env").write_text("secret\n")
    (done.workspace / "half.txt").write_text("half\n")
    assert clean(done)[0] == 0
    (ref,) = parked(done)
    assert done.git("ls-tree", "-r", "--name-only", ref).split() == [
        "T1.txt",
        "a.txt",
        "half.txt",
    ]


def test_work_that_git_cannot_take_stays_and_is_named(done: Repo) -> None:
    os.mkfifo(done.workspace / "fifo")
    code, said = clean(done)
    assert (
        code == 4
        and f"left {done.places}: git cannot add fifo; it was removed; check" in said
    )
    assert places(done) == ["plan.json", done.room.name, "work-1"]
    assert clean(done)[0] == 0 and not done.places.exists()  # the FIFO is gone now


def test_a_kill_at_any_call_loses_nothing(done: Repo) -> None:
    """The work is parked once, whole, and the next clean goes on."""
    killed = 0
    for at in range(1, 25, int(os.environ.get("CRASH_STEP", "17"))):
        for how in ("before", "half"):
            if not done.workspace.exists():
                done.plan({"passes": True}, {"checks": [f"test -f {at}{how}.txt"]})
                assert done.run(done.agent(f"P('{at}{how}.txt').touch()"))[0] == 0
                done.git("merge", "-q", "ralph/p")
            (done.workspace / "half.txt").write_text(f"{at} {how}\n")
            given: Any = {
                "CRASH_COUNT": str(done.outside / "count"),
                "CRASH_AT": str(at),
                "CRASH_HOW": how,
            }
            (done.outside / "count").unlink(missing_ok=True)
            before = parked(done)
            killed += (
                done.ralph(
                    "clean", first="import tests.crash_driver", **given
                ).returncode
                < 0
            )
            assert clean(done)[0] == 0 and not done.places.exists()
            (ref,) = [ref for ref in parked(done) if ref not in before]
            assert done.git("show", f"{ref}:half.txt") == f"{at} {how}\n" and done.git(
                "ls-tree", ref, "a.txt"
            )
    assert killed >= 2


# ---------------------------------------------------------------- a repository that is gone


def other(repo: Repo) -> Repo:
    """Another repository of the same person, to stand in."""
    made = Repo(repo.outside / "other")
    made.env = repo.env
    return made


def test_the_places_of_a_repository_that_is_not_there_are_named_and_stay(
    done: Repo,
) -> None:
    """It may be gone, or on a disk that is not mounted now."""
    here = other(done)
    assert clean(here) == (0, "freed 0.0 MB\n")  # it is another repository's business
    shutil.rmtree(done.path)
    code, said = clean(here)
    assert (
        code == 0
        and f"left {done.places}: its repository {done.path}/.git is not there" in said
    )
    assert len(places(done)) == 3


def test_what_a_killed_clean_left_goes(done: Repo) -> None:
    assert clean(done)[0] == 0
    rest = done.places.with_name(f"{done.places.name}.removed")
    (rest / "work-1").mkdir(parents=True)
    assert clean(done, "-n")[0] == 0 and rest.exists()
    assert clean(done)[0] == 0 and not rest.exists() and not parked(done)


# ---------------------------------------------------------------- what ralph did not make


def link_elsewhere(repo: Repo) -> None:
    precious(repo)
    shutil.rmtree(repo.room)
    repo.room.symlink_to(repo.outside / "precious")


def precious(repo: Repo) -> Path:
    folder = repo.outside / "precious"
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text("mine")
    return folder


FOREIGN: dict[str, tuple[Callable[[Repo], object], str]] = {
    "a file": (lambda r: (r.places / "mine.txt").write_text("mine"), "mine.txt"),
    "a folder": (lambda r: shutil.copytree(precious(r), r.places / "mine"), "mine"),
    "a link for a place": (link_elsewhere, "room-1"),
    "a file for a place": (lambda r: (r.places / "role").write_text("mine"), "role"),
}  # fmt: skip


def test_a_folder_of_a_persons_that_ends_as_what_is_removed_stays(done: Repo) -> None:
    (mine := done.places.parent / "my-photos.removed").mkdir()
    clean(done)
    assert mine.exists()


@pytest.mark.parametrize("name", FOREIGN)
def test_what_ralph_did_not_make_stays(done: Repo, name: str) -> None:
    change, left = FOREIGN[name]
    change(done)
    precious(done)
    code, said = clean(done)
    assert (
        code == 4
        and f"left {done.places}: ralph did not make {done.places / left}; move it away"
        in said
    )
    assert left in places(done)
    assert (done.outside / "precious/file").read_text() == "mine"


NOTES: dict[str, Callable[[dict[str, Any]], object]] = {
    "none": lambda note: None,
    "no object": lambda note: [],
    "no text": lambda note: {**note, "prd": 5},
    "of another plan": lambda note: {**note, "prd": "/elsewhere/prd.json"},
    "with a zero byte": lambda note: {**note, "prd": "/x\0/prd.json"},
}


@pytest.mark.parametrize("name", NOTES)
def test_a_folder_with_a_note_that_is_not_its_own_is_not_touched(
    done: Repo, name: str
) -> None:
    note = done.places / "plan.json"
    said = NOTES[name](json.loads(note.read_text()))
    note.write_text(json.dumps(said)) if said is not None else note.unlink()
    (done.outside / "state/ralph/mine.txt").touch()
    (done.outside / "state/ralph/mine").mkdir()
    assert clean(done) == (0, "freed 0.0 MB\n")
    assert {done.room.name, "work-1"} <= {*places(done)} and (
        done.outside / "state/ralph/mine"
    ).is_dir()


def test_a_link_in_the_place_of_the_places(done: Repo) -> None:
    shutil.move(done.places, done.outside / "moved")
    done.places.symlink_to(done.outside / "moved")
    assert (
        clean(done) == (0, "freed 0.0 MB\n")
        and (done.outside / "moved/work-1").is_dir()
    )


def test_folders_that_are_closed_go_too(done: Repo) -> None:
    (done.workspace / "__pycache__/deep").mkdir(parents=True)
    (done.room / "closed").mkdir()
    for folder in (done.workspace / "__pycache__", done.room / "closed"):
        folder.chmod(0)
    assert clean(done)[0] == 0 and not done.places.exists()


def test_one_plan_of_several(done: Repo) -> None:
    task = {"id": "x", "title": "x", "passes": False, "checks": ["test -f x.txt"]}
    done.write("plans/prd.json", json.dumps({"project": "x", "userStories": [task]}))
    assert (
        done.ralph(
            "run", "-q", "--prd", "plans/prd.json", "--agent", done.agent(WORK)
        ).returncode
        == 0
    )
    done.git("merge", "-q", "ralph/x")
    code, said = clean(done, "--prd", "plans/prd.json")
    assert code == 0 and "plans/prd.json is done" in said and done.places.exists()
    assert clean(done)[0] == 0 and not done.places.exists()


def test_outside_of_a_repository(done: Repo) -> None:
    done.path = done.outside
    assert clean(done) == (
        2,
        "ralph: there is no git repository here; cd to the one whose plans are done\n",
    )


def test_a_clean_that_parks_nothing_is_caught(done: Repo) -> None:
    (done.workspace / "half.txt").write_text("half\n")
    clean(
        done, first="from _ralph.commands import clean\nclean._park = lambda *_: None"
    )
    assert (
        parked(done) == []
    )  # what test_work_that_is_nowhere_else_is_parked asserts is false now
