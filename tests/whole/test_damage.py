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
    repo.plan("test -f T1", "test -f T2")
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
        repo.ends("0: T1 T2", repo.agent(deed))
    finally:
        files.clear(repo.places)  # pytest could not


KINDS = ("a FIFO", "a folder", "2,000 folders", "other words")


@pytest.mark.parametrize("kind", sample(KINDS, 4))
def test_what_stands_in_place_of_ralphs_own_files(repo: Repo, kind: str) -> None:
    repo.plan(own("T1"), own("T2"), setup="true")
    agent = repo.agent(MAKES)
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    (private,) = (repo.path / ".git/ralph").iterdir()
    names = ("plan.json", "running.json", "stop", "room.holder", "room.lock")
    every = [
        private / name for name in (*names, "gitconfig", f"{repo.room.name}.setup")
    ]
    if kind in ("a FIFO", "a folder"):
        for folder in (private, repo.path / ".ralph/log"):
            every += [path for path in folder.iterdir() if path.is_file()]
    for path in every[:2] if kind == "other words" else every:
        files.clear(path)
        if kind == "a FIFO":
            os.mkfifo(path)
        elif kind == "a folder":
            (path / "x").mkdir(parents=True)
        elif kind == "2,000 folders":
            nest(path, 2000)
        else:
            path.write_text('{"pid": 1, "created": 1, "run_id": "\\ud800"}')
    try:
        assert repo.ralph("status").returncode == 0
        repo.ends("0: T1 T2", agent)
    finally:
        files.clear(repo.path)  # pytest could not
