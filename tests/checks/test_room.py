"""The clean room: `setup` runs when it must and not else, and what checks leave does not
reach the next candidate."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from _ralph import files
from _ralph.checks.room import Room
from _ralph.model import Check, Setup
from tests.conftest import Repo, cases
from tests.git.support import (
    head,
    listing,
    on_disk,
    places_of,
)
from tests.git.test_branch import work_on

SETUP = "mkdir -p deps && echo one >> deps/made && echo x >> ../setups"


def room_of(repo: Repo, setup: str | Setup = "", *keep: str) -> Room:
    """The room as a new run finds it."""
    places = places_of(repo, setup, *keep)
    return Room.at(places, places.paths.room)


def prepared(repo: Repo, setup: str | Setup = "", *keep: str) -> Room:
    """The room with the files of HEAD."""
    room = room_of(repo, setup, *keep)
    assert room.prepare(head(repo), "0001") is None
    return room


@pytest.fixture
def project(repo: Repo) -> Repo:
    repo.write(".gitignore", "deps/\nout/\ncache/\n*.log\n.env\n")
    repo.write(".worktreeinclude", ".env\n")
    repo.write(".env", "KEY=1\n")
    repo.write("package-lock.json", "{}\n")
    repo.write("src/a", "a\n")
    repo.commit("project")
    return repo


def setups(room: Room) -> int:
    """How often `setup` ran."""
    log = room.path.parent / "setups"
    return len(log.read_text().split()) if log.exists() else 0


def shell(room: Room, *commands: str) -> list[bool]:
    checks = [Check(one, one) for one in commands]
    return [result.ok for result in room.run(checks, "0001")]


# ---------------------------------------------------------------- setup


@cases("""
what                     times
nothing                  1
the message              1
another file             2
the command              2
the folder is gone       2
the note is damaged      2
a file to carry over     2
no file to carry over    2
""")
def test_a_room_is_made_anew_for_another_tree(
    project: Repo, what: str, times: str
) -> None:
    commit, setup = head(project), SETUP
    room = prepared(project, setup)
    if what == "the message":
        project.git("commit", "-q", "--amend", "-m", "x")
        commit = head(project)
    if what == "another file":
        commit = work_on(project, commit, "src.js")
    if what == "the command":
        setup = f"{SETUP} && true"
    if what == "the folder is gone":
        files.clear(room.path)
    if what == "the note is damaged":
        room.place.beside("setup").write_text("{")
    if what == "a file to carry over":
        project.write(".env", "KEY=2\n")
    if what == "no file to carry over":
        project.write(".worktreeinclude", "")
    again = room_of(project, setup)
    assert again.prepare(commit, "0002") is None
    assert (again.path / "deps/made").read_text() == "one\n"  # from nothing, each time
    assert setups(again) == int(times)
    assert (again.path / ".env").exists() == (what != "no file to carry over")


def test_with_when_only_the_files_that_it_names_make_another_room(
    project: Repo,
) -> None:
    """And nothing that a refused candidate had setup make stays."""
    setup = Setup(f"{SETUP} && cp *.lock deps; true", ("versions/*.txt", "*.lock"))
    first = head(project)
    lock = work_on(project, first, "yarn.lock")
    version = work_on(project, lock, "versions/a.txt")
    other = work_on(project, version, "src/b", content="other\n")
    commits = [(first, 1), (lock, 2), (version, 3), (other, 3), (lock, 4), (first, 5)]
    for commit, times in commits:
        room = room_of(project, setup)
        assert room.prepare(commit, "0001") is None
        assert setups(room) == times
        assert (room.path / "deps/yarn.lock").exists() is (commit != first)


def test_a_red_setup_runs_once_more_and_is_said(project: Repo) -> None:
    room = room_of(project, f"{SETUP}; exit 3")
    result = room.prepare(head(project), "0001")
    assert result
    assert (result.name, result.exit, result.ok) == ("setup", 3, False)
    assert setups(room) == 2
    red_once = "test -e ../again || { touch ../again; exit 3; }"
    assert setups(prepared(project, f"{SETUP}; {red_once}")) == 4


def test_what_setup_does_to_tracked_files_is_put_back(project: Repo) -> None:
    setup = f"{SETUP} && echo changed > package-lock.json && touch loose"
    room = prepared(project, setup)
    assert on_disk(room.path)["package-lock.json"][1] == "{}\n"
    assert (room.path / "deps/made").exists()
    assert (room.path / "loose").exists()


# At the start, for candidates and agents, and for the final check.
@cases("""
when    most
-       room-1 4, work-1 3, room-2 1
*.lock  room-1 2, work-1 2, room-2 1
""")
def test_how_often_setup_runs_in_a_night(repo: Repo, when: str, most: str) -> None:
    """One of them changes the lock file."""
    repo.write("a.lock", "1\n")
    repo.commit("lock")
    log = repo.outside / "setups"
    setup: dict[str, Any] = {"run": f"basename $PWD >> {log}"}
    if when:
        setup["when"] = [when]
    tasks = [{"checks": [f"test -f T{number}"]} for number in range(1, 4)]
    repo.plan(*tasks, setup=setup, checks=["true"])
    agent = repo.agent("P('a.lock' if task == 'T2' else task).write_text('2'); P(task).touch()")  # fmt: skip
    code, _, printed = repo.run(agent)
    assert (code, len(repo.passed())) == (0, 3), printed
    ran = Counter(log.read_text().split())
    for words in most.split(", "):
        name, times = words.split()
        assert ran.pop(name) == int(times)
    assert not ran


# ---------------------------------------------------------------- what checks leave

LEAVES = "mkdir -p out && echo x > out/result && echo x > y.log && echo x > new.txt && echo edited > a.txt && rm package-lock.json"
BUILT = "test -f out/result && test -f new.txt && grep -qx a a.txt"


@pytest.mark.parametrize("setup", ["", SETUP])
def test_each_check_begins_with_the_candidate_s_files_and_the_next_candidate_with_those_of_setup_alone(
    project: Repo, setup: str
) -> None:
    room = prepared(project, setup)
    begun = on_disk(room.path)
    looks = "test -e package-lock.json && git diff --quiet HEAD"
    # checks are one program: what one builds, the next uses
    left = f"{LEAVES} && mkdir -p deps && echo x > deps/extra"
    assert shell(room, left, looks, BUILT) == [True] * 3
    (notice,) = room.notices
    assert "a.txt, package-lock.json; put back" in notice
    # also in the next step on the same files, which goes on there
    again = room_of(project, setup)
    assert again.go_on(head(project))
    assert shell(again, BUILT) == [True]
    assert again.prepare(head(project), "0002") is None
    assert on_disk(room.path) == begun
    assert setups(room) == bool(setup)
    files.clear(room.path)
    assert not room_of(project, setup).go_on(head(project))


def everything(room: Room) -> set[tuple[str, bool, bool]]:
    """What is in the room, and whether it is a folder or a link."""
    own = room.path / ".git"
    found = set()
    for path in room.path.rglob("*"):
        if path != own and own not in path.parents:
            found.add((str(path), path.is_dir(), path.is_symlink()))
    return found


@cases("""
deed
touch vendor/sub/x
rmdir vendor/sub && ln -s $OUT vendor/sub
rm -r vendor && ln -s $OUT vendor
mkdir -p deps/a/b
git init -q nested && touch nested/x
mkdir .GIT && touch .GIT/x
touch '? x' 'H x'
mkdir src/.git && touch src/.git/x
git init -q src && touch src/x
rm src/a && mkdir src/a && touch src/a/x
rm -r src; ln -s . src
rm -r src; touch src
""")
def test_what_a_check_leaves_anywhere_does_not_reach_the_next_candidate(
    project: Repo, deed: str
) -> None:
    outside = beside_a_submodule(project)
    room = prepared(project)
    begun = everything(room)
    assert shell(room, deed.replace("$OUT", str(outside.parent))) == [True]
    assert room.prepare(head(project), "0002") is None
    assert everything(room) == begun
    assert (outside / "mine").read_text() == "mine\n"


def beside_a_submodule(repo: Repo) -> Path:
    """`vendor/sub` becomes a submodule that home has no copy of; a folder of the same
    name elsewhere."""
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head(repo)},vendor/sub")
    repo.git("commit", "-qm", "submodule")
    return repo.write("../out/sub/mine", "mine\n").parent


def test_kept_paths_stay(project: Repo) -> None:
    room = prepared(project, "", "cache/", "out/*.bin")
    deed = "mkdir cache out && touch cache/x out/y.bin out/z x.log"
    assert shell(room, deed) == [True]
    room.prepare(head(project), "0002")
    left = on_disk(room.path).keys() - listing(project, "HEAD").keys()
    assert left == {"cache/x", "out/y.bin", ".env"}


@cases("""
deed                           times
echo EVIL > deps/made          2
rm -r deps                     2
rm -r deps && ln -s /etc deps  2
touch -d 2001-01-01 deps/made  1
""")
def test_a_check_that_changes_what_setup_made_leads_to_another_room(
    project: Repo, deed: str, times: str
) -> None:
    room = prepared(project, SETUP)
    assert shell(room, deed) == [True]
    assert room.prepare(head(project), "0002") is None
    assert setups(room) == int(times)
    assert (room.path / "deps/made").read_text() == "one\n"
    said = "".join(room.notices)
    assert ("the room is made again: deps" in said) is (times == "2")


# ---------------------------------------------------------------- submodules
