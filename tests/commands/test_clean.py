"""`ralph clean`: places in which nothing is under way go, and nothing else."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Iterator

import pytest

from tests.conftest import Repo
from tests.scripts import MAKES

NOTHING = "there is nothing to remove\n"


def clean(repo: Repo, *words: str) -> tuple[int, str]:
    done = repo.ralph("clean", *words)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stdout + done.stderr


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = Repo(tmp_path_factory.mktemp("worked"))
    repo.plan("grep -q good T1.txt", "false")
    assert repo.run(repo.agent(MAKES), "--max-iterations", "2")[0] == 3
    repo.keep()
    return repo


@pytest.fixture
def worked(kept: Repo) -> Iterator[Repo]:
    """T1 has passed, T2 has failed once."""
    made = kept.again()
    yield made
    made.kill()


def test_the_places_go_and_nothing_else(worked: Repo) -> None:
    """The next run makes them again, with the unfinished work."""
    refs, plan = worked.git("for-each-ref"), worked.read("prd.json")
    assert clean(worked) == (0, f"removed {worked.places}\n")
    assert not worked.places.exists()
    assert (worked.git("for-each-ref"), worked.read("prd.json")) == (refs, plan)
    assert clean(worked) == (0, NOTHING)
    worked.plan({"passes": True}, "test -f T2.txt && test -f more")
    assert worked.run(worked.agent("P('more').touch()"))[0] == 0


def test_they_stay_while_a_run_is_at_work_and_once_it_was_killed(repo: Repo) -> None:
    """Until the next run goes on with what the attempt left, or `--force`."""
    repo.plan("false")
    slow = repo.agent("(OUT / 'on').touch(); time.sleep(60)")
    process = repo.start("run", "-q", "--agent", slow)
    repo.wait_for("../on")
    code, said = clean(repo, "--force")
    assert code == 0
    assert f"left {repo.places}: `ralph run` is at work there" in said
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert repo.gone_within(5)
    code, said = clean(repo)
    assert code == 0
    assert f"left {repo.places}: an attempt was cut off" in said
    assert repo.workspace.is_dir()
    assert clean(repo, "--force") == (0, f"removed {repo.places}\n")


def test_one_plan_of_several_and_no_other_repository(worked: Repo) -> None:
    task = '{"id": "x", "title": "x", "checks": ["test -f x.txt"]}'
    worked.write("plans/prd.json", f'{{"project": "x", "userStories": [{task}]}}')
    agent = worked.agent(MAKES)
    assert worked.run(agent, "--prd", "plans/prd.json")[0] == 0
    other = Repo(worked.outside / "other")
    other.env = worked.env
    assert clean(other) == (0, NOTHING)
    assert clean(worked, "--prd", "plans/prd.json")[1].startswith("removed ")
    assert worked.places.exists()
    assert clean(worked) == (0, f"removed {worked.places}\n")


@pytest.mark.parametrize("name", ["mine", "work-1"])
def test_what_ralph_did_not_make_stays_and_is_named(worked: Repo, name: str) -> None:
    """A folder of a person's, and a link in the place of a checkout."""
    precious = worked.outside / "precious"
    precious.mkdir()
    (precious / "file").write_text("mine")
    place = worked.places / name
    shutil.rmtree(place, ignore_errors=True)
    if name == "mine":
        shutil.move(precious, place)
    else:
        place.symlink_to(precious)
    code, said = clean(worked)
    assert code == 4
    assert f"left {worked.places}: ralph did not make {name}" in said
    assert os.listdir(worked.places) == [name]
    assert (place / "file").read_text() == "mine"


@pytest.mark.parametrize("note", ["[]", "", "a link"])
def test_a_folder_without_a_note_of_its_own_is_not_touched(
    worked: Repo, note: str
) -> None:
    if note == "a link":
        shutil.move(worked.places, worked.outside / "moved")
        worked.places.symlink_to(worked.outside / "moved")
    else:
        (path,) = worked.path.glob(".git/ralph/*/plan.json")
        path.write_text(note)
    assert clean(worked) == (0, NOTHING)
    assert worked.workspace.is_dir() and worked.room.is_dir()


def test_outside_of_a_repository(worked: Repo) -> None:
    worked.path = worked.outside
    code, said = clean(worked)
    assert code == 2
    assert "there is no git repository here" in said
