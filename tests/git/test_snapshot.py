"""What git converts, and what stood there before the agent came, is never work; what
the agent did is, and nothing else of the file. The odd repositories of
whole/test_ordinary say it of whole runs."""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

import pytest

from _ralph.git.checkout import Checkout, hide
from _ralph.git.notes import Start
from _ralph.git.snapshot import snapshot
from tests.conftest import Repo
from tests.git.support import changed, head, place_of, places_of, taken, tree_of, write

CRLF = b"one\r\ntwo\r\nthree\r\n"


def begun(repo: Repo, aged: bool = True, setup: str = "") -> tuple[Checkout, Start]:
    """A place as an agent finds it after a checkout and `setup`. If it is `aged`, that
    took more than a second: git then believes that what has the same times is the
    same."""
    place, tree = place_of(repo), tree_of(repo)
    place.reset(tree)
    places = places_of(repo, setup)
    places.add_git_and_settings(place, head(repo))
    places.set_up(place, "x")
    hide(place, place.untracked())
    if aged:
        later(place.index, 2)
    return place, Start("x", tree, snapshot(place, tree)[0])


def later(path: Path, seconds: float) -> None:
    moment = time.time() + seconds
    os.utime(path, (moment, moment), follow_symlinks=False)


def touch_all(place: Checkout) -> None:
    """Write every file again, with the same bytes."""
    for name in place.git.names("ls-files", "-z"):
        path = place.root / name
        if path.is_file() and not path.is_symlink():
            path.write_bytes(path.read_bytes())
            later(path, 5)


def with_crlf(repo: Repo, attributes: str) -> Repo:
    """A repository in which git would turn the line ends that are stored."""
    repo.git("config", "core.autocrlf", "false")
    for name in ("one.txt", "odd.txt"):
        (repo.path / name).write_bytes(CRLF)
    repo.commit("stored as they are")
    repo.write(".gitattributes", attributes)
    repo.git("add", ".gitattributes")
    repo.git("commit", "-qm", "attributes")
    return repo


def test_a_program_is_made_of_a_file_that_git_would_convert(repo: Repo) -> None:
    place, start = begun(with_crlf(repo, "odd.txt text\n"))
    touch_all(place)
    (place.root / "odd.txt").chmod(0o755)
    tree, _ = taken(place, start)
    assert repo.git("diff", "--raw", "HEAD", tree).startswith(":100644 100755")
    assert repo.git("diff", "--numstat", "HEAD", tree) == "0\t0\todd.txt\n"


@pytest.mark.parametrize("before", ["* -text\n", "* text\n"])
def test_an_agent_that_changes_the_attributes_changes_nothing_else(
    repo: Repo, before: str
) -> None:
    place, start = begun(with_crlf(repo, before))
    write(place, ".gitattributes", "* text\n" if "-" in before else "")
    touch_all(place)
    assert changed(repo, taken(place, start)[0]) == [".gitattributes"]


@pytest.mark.skipif(sys.platform != "linux", reason="the file system knows one case")
def test_a_file_that_is_renamed_in_case_alone_is_not_lost(repo: Repo) -> None:
    # as a repository has it that came from another machine
    repo.git("config", "core.ignorecase", "true")
    place, start = begun(repo)
    (place.root / "a.txt").rename(place.root / "A.txt")
    tree, _ = taken(place, start)
    assert repo.git("ls-tree", "--name-only", tree) == "A.txt\n"
