"""The clean room: `setup` runs when it must and not else, and what checks leave does not
reach the next candidate."""

from __future__ import annotations

import os
import shlex
from collections import Counter
from pathlib import Path

import pytest

from _ralph import files
from _ralph.checks import exact
from _ralph.checks.places import Places, first_word
from _ralph.checks.room import Room
from _ralph.model import Check, Setup
from _ralph.state.layout import logs_folder
from tests.conftest import Repo, sample
from tests.git.support import (
    head,
    leave_filter,
    listing,
    on_disk,
    places_of,
    seen,
    with_lib,
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


def test_setup_runs_in_a_new_room_and_not_in_one_that_it_made(project: Repo) -> None:
    for _ in range(3):
        room = prepared(project, SETUP)
        assert (room.path / "deps/made").read_text() == "one\n"
    assert setups(room) == 1


@pytest.mark.parametrize(
    ("what", "times"),
    [
        ("nothing", 1),
        ("the message", 1),
        ("another file", 2),
        ("the command", 2),
        ("the folder is gone", 2),
        ("the index is gone", 2),
        ("the note is damaged", 2),
        ("a file to carry over", 2),
    ],
)
def test_a_room_is_made_anew_for_another_tree(
    project: Repo, what: str, times: int
) -> None:
    project.write(".env", "KEY=1\n")
    project.write(".worktreeinclude", ".env\n")
    project.commit("env")
    commit, setup = head(project), SETUP
    room = prepared(project, setup)
    match what:
        case "the message":
            words = ("commit-tree", f"{commit}^{{tree}}", "-p", commit, "-m", "x")
            commit = project.git(*words).strip()
        case "another file":
            commit = work_on(project, commit, "src.js")
        case "the command":
            setup = f"{SETUP} && true"
        case "the folder is gone":
            files.clear(room.path)
        case "the index is gone":
            files.clear(room.place.index)
        case "the note is damaged":
            room.place.beside("setup").write_text("{")
        case "a file to carry over":
            project.write(".env", "KEY=2\n")
    again = room_of(project, setup)
    assert again.prepare(commit, "0002") is None
    assert (again.path / "deps/made").read_text() == "one\n"  # from nothing, each time
    assert setups(again) == times


def test_with_when_only_the_files_that_it_names_make_another_room(
    project: Repo,
) -> None:
    setup = Setup(SETUP, ("versions/*.txt",))
    first = head(project)
    lock = work_on(project, first, "yarn.lock")
    version = work_on(project, lock, "versions/a.txt")
    other = work_on(project, version, "versions/a.txt", content="other\n")
    commits = [(first, 1), (lock, 1), (version, 2), (version, 2), (other, 3), (lock, 4), (first, 4)]  # fmt: skip
    for commit, times in commits:
        room = room_of(project, setup)
        room.prepare(commit, "0001")
        assert setups(room) == times


def test_nothing_that_a_refused_candidate_had_setup_make_stays(project: Repo) -> None:
    setup = Setup("mkdir -p deps && cp *.lock deps", ("*.lock",))
    first = work_on(project, head(project), "one.lock")
    second = work_on(project, first, "two.lock")
    both = ["one.lock", "two.lock"]
    for commit, there in ((first, both[:1]), (second, both), (first, both[:1])):
        room = room_of(project, setup)
        assert room.prepare(commit, "0001") is None
        assert sorted(path.name for path in (room.path / "deps").iterdir()) == there


def test_a_setup_that_is_red_runs_once_more_and_is_said(project: Repo) -> None:
    for times in (2, 4):
        room = room_of(project, f"{SETUP}; exit 3")
        result = room.prepare(head(project), "0001")
        assert result
        assert (result.name, result.exit, result.ok) == ("setup", 3, False)
        assert setups(room) == times


def test_a_setup_that_is_red_for_a_moment_is_no_reason(project: Repo) -> None:
    red_once = "test -e ../again || { touch ../again; exit 3; }"
    assert setups(prepared(project, f"{SETUP}; {red_once}")) == 2


def test_what_setup_does_to_tracked_files_is_put_back(project: Repo) -> None:
    setup = f"{SETUP} && echo changed > package-lock.json && touch loose"
    room = prepared(project, setup)
    assert on_disk(room.path)["package-lock.json"][1] == "{}\n"
    assert (room.path / "deps/made").exists()
    assert (room.path / "loose").exists()


@pytest.mark.parametrize(
    ("when", "most"),
    [
        # the start, candidates and agents, the final check
        ((), {"room-1": 1 + 4, "work-1": 4, "room-2": 1}),
        (("*.lock",), {"room-1": 1 + 1, "work-1": 1 + 1, "room-2": 1}),
    ],
)
def test_setup_runs_once_for_each_tree_that_a_place_gets_and_with_when_once_for_each_of_its_files(
    repo: Repo, when: tuple[str, ...], most: dict[str, int]
) -> None:
    """Four tasks, of which one changes the lock file."""
    repo.write("a.lock", "1\n")
    repo.commit("lock")
    log = repo.outside / "setups"
    setup = {"run": f"basename $PWD >> {log}"}
    if when:
        setup["when"] = [*when]  # type: ignore[assignment]
    tasks = [{"checks": [f"test -f T{number}"]} for number in range(1, 5)]
    repo.plan(*tasks, setup=setup, checks=["true"])
    agent = repo.agent("P('a.lock' if task == 'T2' else task).write_text('2'); P(task).touch()")  # fmt: skip
    code, _, printed = repo.run(agent)
    assert (code, len(repo.passed())) == (0, 4), printed
    assert Counter(log.read_text().split()) == most


# ---------------------------------------------------------------- what checks leave

LEAVES = "mkdir -p out && echo x > out/result && echo x > y.log && echo x > new.txt && echo edited > a.txt && rm package-lock.json"


@pytest.mark.parametrize("setup", ["", SETUP])
def test_each_check_begins_with_the_candidate_s_files_and_the_next_candidate_with_those_of_setup_alone(
    project: Repo, setup: str
) -> None:
    room = prepared(project, setup)
    begun = on_disk(room.path)
    looks = "test -e package-lock.json && grep -qx a a.txt && git diff --quiet HEAD"
    # checks are one program: what one builds, the next uses
    built = "test -f out/result && test -f new.txt"
    left = f"{LEAVES} && mkdir -p deps && echo x > deps/extra"
    assert shell(room, left, looks, built) == [True] * 3
    (notice,) = room.notices
    assert "a.txt, package-lock.json; put back" in notice
    room.prepare(head(project), "0002")
    assert on_disk(room.path) == begun
    assert setups(room) == bool(setup)


def everything(room: Room) -> set[tuple[str, bool, bool]]:
    """What is in the room, and whether it is a folder or a link."""
    own = room.path / ".git"
    found = set()
    for path in room.path.rglob("*"):
        if path != own and own not in path.parents:
            found.add((str(path), path.is_dir(), path.is_symlink()))
    return found


@pytest.mark.parametrize(
    "deed",
    [
        "touch vendor/sub/x", "mkdir -p vendor/sub/x/y", "rmdir vendor/sub && touch vendor/sub",
        "rmdir vendor/sub && ln -s $OUT vendor/sub", "rm -r vendor && ln -s $OUT vendor", "ln -s $OUT link",
        "mkdir -p deps/a/b", "git init -q nested && touch nested/x", "mkdir .GIT && touch .GIT/x", "touch '? x' 'H x'",
        "mkdir src/.git && touch src/.git/x", "touch src/.git", "git init -q src && touch src/x",
        "rm src/a && mkdir src/a && touch src/a/x",
    ],
)  # fmt: skip
def test_what_a_check_leaves_anywhere_does_not_reach_the_next_candidate(
    project: Repo, deed: str
) -> None:
    outside = beside_a_submodule(project)
    room = prepared(project)
    begun = everything(room)
    assert shell(room, deed.replace("$OUT", str(outside.parent))) == [True]
    assert room.prepare(head(project), "0002") is None
    assert not everything(room) - begun
    assert (outside / "mine").read_text() == "mine\n"


def beside_a_submodule(repo: Repo) -> Path:
    """`vendor/sub` becomes a submodule that home has no copy of; a folder of the same
    name elsewhere."""
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head(repo)},vendor/sub")
    repo.git("commit", "-qm", "submodule")
    return repo.write("../out/sub/mine", "mine\n").parent


def test_a_link_that_setup_made_leads_nothing_out(project: Repo) -> None:
    outside = beside_a_submodule(project)
    for number in ("0001", "0002"):
        room = room_of(project, f"rm -r vendor && ln -s {outside.parent} vendor")
        assert room.prepare(head(project), number) is None
        (outside / number).touch()
    assert (room.path / "vendor").is_symlink()
    assert len(list(outside.iterdir())) == 3


@pytest.mark.parametrize("deed", ["rm -r src; ln -s . src", "rm -r src; touch src"])
def test_what_was_put_in_the_place_of_a_folder_goes_and_the_folder_stays(
    project: Repo, deed: str
) -> None:
    room = prepared(project)
    assert shell(room, deed, "test ! -L src && test -f src/a") == [True, True]


def test_files_that_attributes_change_are_as_in_a_clone(project: Repo) -> None:
    project.write("x.t", "good\n")
    project.commit("x.t")
    room = prepared(project, SETUP)
    project.write(".gitattributes", "*.t text eol=crlf\n")
    project.commit("attributes")
    assert room.prepare(head(project), "0002") is None
    assert (room.path / "x.t").read_bytes() == b"good\r\n"
    assert (room.path / "deps/made").exists()
    assert room.prepare(head(project), "0003") is None
    assert setups(room) == 2


def test_kept_paths_stay(project: Repo) -> None:
    room = prepared(project, "", "cache/", "out/*.bin")
    deed = "mkdir cache out && touch cache/x out/y.bin out/z x.log"
    assert shell(room, deed) == [True]
    room.prepare(head(project), "0002")
    left = on_disk(room.path).keys() - listing(project, "HEAD").keys()
    assert left == {"cache/x", "out/y.bin"}


@pytest.mark.parametrize(
    "deed",
    [
        "echo EVIL > deps/made", "rm deps/made", "rm -r deps", "chmod +x deps/made",
        "rm deps/made && ln -s /etc/passwd deps/made", "rm -r deps && ln -s /etc deps",
    ],
)  # fmt: skip
def test_a_check_that_changes_what_setup_made_leads_to_another_room(
    project: Repo, deed: str
) -> None:
    room = prepared(project, SETUP)
    assert shell(room, deed) == [True]
    assert setups(room) == 1
    assert room.prepare(head(project), "0002") is None
    assert setups(room) == 2
    assert (room.path / "deps/made").read_text() == "one\n"
    (said,) = room.notices
    assert said.startswith("the room is made again: deps")
    assert "not as setup had left it" in said


@pytest.mark.parametrize(
    "deed", ["touch -d 2001-01-01 deps/made", "cp deps/made x; mv x deps/made"]
)
def test_a_check_that_writes_the_same_bytes_costs_no_setup(
    project: Repo, deed: str
) -> None:
    room = room_of(project, SETUP)
    for number in ("0001", "0002", "0003"):
        room.prepare(head(project), number)
        assert shell(room, deed) == [True]
    assert (setups(room), room.notices) == (1, [])


def test_a_program_goes_on_where_it_ended_on_the_same_files(project: Repo) -> None:
    assert shell(prepared(project, SETUP), LEAVES) == [True]
    room = room_of(project, SETUP)
    assert room.go_on(head(project))
    left = "test -f out/result && test -f new.txt && grep -qx a a.txt"
    assert shell(room, left) == [True]
    assert setups(room) == 1
    files.clear(room.path)
    assert not room_of(project, SETUP).go_on(head(project))


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("no-such-tool --help", "no-such-tool"), (("no-such-tool", "-x"), "no-such-tool"),
        ("./bin/tool --help", ""), ("bin/tool", ""), (("./no-such-tool",), ""), ("cd . && no-such-tool", ""),
        ("PATH=. no-such-tool", ""), ("exit 127", ""), ("sh -c no-such-tool", ""), ("no-such-tool; exit 1", ""),
        ("'no-such", ""),
    ],
)  # fmt: skip
def test_a_check_that_cannot_start_names_the_program(
    project: Repo, command: str | tuple[str, ...], missing: str
) -> None:
    (result,) = prepared(project).run([Check("x", command)], "0001")
    assert (result.ok, result.missing) == (False, missing)


def test_a_check_without_a_word_begins_with_none() -> None:
    assert first_word(Check("x", ())) == first_word(Check("x", "")) == ""


def test_nothing_is_removed_through_a_link_that_is_put_back(repo: Repo) -> None:
    mine = repo.write("../out/mine", "mine\n")
    (repo.path / "link").symlink_to(mine.parent)
    repo.commit("link")
    deed = "rm link; mkdir link; touch link/mine"
    assert shell(prepared(repo), deed, "test -L link") == [True, True]
    assert mine.exists()


MOVES = ['rm -rf "$PWD"', 'mv "$PWD" ../gone', 'mv "$PWD" ../gone; ln -s PERSON "$PWD"']


@pytest.mark.parametrize("deed", MOVES)
def test_a_check_that_moves_the_room_is_red_and_the_next_one_has_a_room(
    repo: Repo, deed: str
) -> None:
    person = repo.outside / "person"
    person.mkdir()
    os.mkfifo(person / "pipe")
    room = prepared(repo)
    deed = deed.replace("PERSON", str(person))
    assert shell(room, deed, "test -f a.txt && test -d .git") == [False, True]
    assert (person / "pipe").exists()
    assert room.place.exists


@pytest.mark.parametrize(
    "mutant", ["nothing is put back", "the list is believed", "one stamp for all"]
)
def test_a_room_that_is_less_clean_is_caught(
    project: Repo, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    match mutant:
        case "nothing is put back":
            monkeypatch.setattr(Room, "_put_back", lambda *_: [])
            with pytest.raises(AssertionError):
                test_each_check_begins_with_the_candidate_s_files_and_the_next_candidate_with_those_of_setup_alone(
                    project, SETUP
                )
        case "the list is believed":
            monkeypatch.setattr(exact, "restore", lambda *_: [])
            with pytest.raises(AssertionError):
                test_a_check_that_changes_what_setup_made_leads_to_another_room(
                    project, "echo EVIL > deps/made"
                )
        case "one stamp for all":
            monkeypatch.setattr(Places, "stamp", lambda *_: "x")
            with pytest.raises(AssertionError):
                test_nothing_that_a_refused_candidate_had_setup_make_stays(project)


# ---------------------------------------------------------------- submodules


@pytest.mark.parametrize("git", ["status", "add"])
def test_ralph_runs_no_filter_that_a_check_or_a_hook_left_in_a_submodule(
    repo: Repo, git: str
) -> None:
    room, ran = prepared(with_lib(repo)), repo.outside / "ran"
    ignore = ("submodule.the lib.ignore", "none")
    repo.git("config", "-f", str(room.path / ".gitmodules"), *ignore)
    leave_filter(room.path / "vendor/lib", "lib.txt", ran)
    if git == "status":
        changed = [".gitmodules"], ["vendor/lib/.gitattributes"]
        assert room.place.dirt(head(repo)) == changed
    else:
        assert listing(repo, room.staged()).keys() == listing(repo, "HEAD").keys()
    assert not ran.exists()


REPLACED = [
    "rm -r vendor/lib; ln -s HOME vendor/lib", "rm -r vendor/lib; ln -s HOME/vendor/lib vendor/lib",
    "rm -r vendor; ln -s HOME/vendor vendor", "rm -r vendor/lib", "rm -r vendor; touch vendor",
]  # fmt: skip


@pytest.mark.parametrize("deed", sample(REPLACED, 2))
def test_a_submodule_that_is_replaced_leads_nowhere_and_is_put_back(
    repo: Repo, deed: str
) -> None:
    room = room_of(with_lib(repo))
    deed = deed.replace("HOME", shlex.quote(str(repo.path)))
    logs_folder(room.places.paths)
    before = seen(repo)
    assert room.prepare(head(repo), "0001") is None
    there = "test -f vendor/lib/lib.txt && test ! -L vendor && test ! -L vendor/lib"
    assert shell(room, deed, there) == [True, True]
    assert shell(room, deed)  # as a hook does
    room.places.add_git_and_settings(room.place, head(repo))
    assert (room.path / "vendor/lib/.git").is_file()
    assert seen(repo) == before
