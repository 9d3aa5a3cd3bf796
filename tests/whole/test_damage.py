"""Whatever stands in place of the files that are ralph's own, or however deep folders
are: the night goes on."""

from __future__ import annotations

import os

import pytest

from _ralph import files
from tests.conftest import Repo, sample
from tests.scripts import MAKES, own
from tests.test_files import nest


@pytest.mark.parametrize("where", sample(["deep", ".ralph", ".git", "node_modules"], 4))
def test_folders_below_folders_end_no_night(repo: Repo, where: str) -> None:
    repo.plan({"checks": ["test -f T1"]}, {"checks": ["test -f T2"]})
    deed = f"""
        P(task).touch()
        P({where!r}).mkdir(exist_ok=True)
        here = os.open({where!r}, os.O_RDONLY)
        for _ in range(1500):
            os.mkdir("ddd", dir_fd=here)
            above, here = here, os.open("ddd", os.O_RDONLY, dir_fd=here)
            os.close(above)
        os.mkfifo(".gitignore", dir_fd=here)
    """
    try:
        code, _, printed = repo.run(repo.agent(deed))
        assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    finally:
        files.clear(repo.places)  # pytest could not


def test_damage_to_files_of_ralphs_own_ends_nothing(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(MAKES)
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    (note,) = repo.path.glob(".git/ralph/*/plan.json")
    for damaged in (note, note.with_name("running.json")):
        damaged.write_text('{"pid": 1, "created": 1, "run_id": "\\ud800"}')
    assert repo.ralph("status").returncode == 0
    code, _, printed = repo.run(agent)
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed


@pytest.mark.parametrize("kind", sample(["a FIFO", "a folder", "2,000 folders"], 3))
def test_what_stands_in_place_of_ralphs_own_files(repo: Repo, kind: str) -> None:
    repo.plan(own("T1"), own("T2"), setup="true")
    assert repo.run(repo.agent(MAKES), "--max-iterations", "1")[0] == 3
    (private,) = (repo.path / ".git/ralph").iterdir()
    there = [
        path
        for folder in (private, repo.path / ".ralph/log")
        for path in folder.iterdir()
        if path.is_file()
    ]
    more = [private / name for name in ("stop", "running.json", "room.holder")]
    names = ("gitconfig", "room.lock", f"{repo.room.name}.setup")
    few = [private / name for name in names]
    assert {*few} <= {*there}
    for path in few if kind == "2,000 folders" else [*there, *more]:
        files.clear(path)
        if kind == "a FIFO":
            os.mkfifo(path)
        elif kind == "a folder":
            (path / "x").mkdir(parents=True)
        else:
            nest(path, 2000)
    try:
        code, _, printed = repo.run(repo.agent(MAKES))
        assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    finally:
        files.clear(repo.path)  # pytest could not


def test_a_file_called_as_ralphs_temporary_ones(repo: Repo) -> None:
    repo.plan(own("T1"))
    names = (
        "x.ralph-tmp",
        "prd.json.ralph-tmp",
        "docs/.x.ralph-tmp",
        ".prd.json.mine.ralph-tmp",
    )
    for name in names:
        repo.write(name, "mine")
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 0 and [repo.read(name) for name in names] == ["mine"] * 4, printed
