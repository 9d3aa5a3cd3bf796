"""The clean room: `setup` runs when it must and not else, what checks leave does not
reach the next one, and hooks have their say."""

from __future__ import annotations

import os
import shlex
import sys
from collections import Counter
from pathlib import Path

import pytest
from _ralph.loop.places import Places, first_word
from _ralph.loop.room import Room

from _ralph import files
from _ralph.loop import exact
from _ralph.model import Check, Setup
from _ralph.process.sandbox import CACHE
from _ralph.state.layout import logs_folder
from tests.conftest import Repo, sample, within
from tests.git.test_branch import work_on
from tests.git.test_workspace import (
    head,
    leave_filter,
    listing,
    on_disk,
    place_of,
    places_of,
    seen,
    with_lib,
)


def room_of(repo: Repo, setup: str | Setup = "", *keep: str) -> Room:
    """The room as a new run finds it."""
    return Room(places_of(repo, setup, *keep), place_of(repo, name="room"), {})


@pytest.fixture
def project(repo: Repo) -> Repo:
    repo.write(".gitignore", "deps/\nout/\ncache/\n*.log\n")
    repo.write("package-lock.json", "{}\n")
    repo.commit("project")
    return repo


SETUP = "mkdir -p deps && echo one >> deps/made && echo x >> ../setups"


def setups(repo: Repo) -> int:
    """How often `setup` ran."""
    log = repo.outside / "places/setups"
    return len(log.read_text().split()) if log.exists() else 0


def shell(made: Room, *commands: str) -> list[bool]:
    return [
        result.ok for result in made.run([Check(one, one) for one in commands], "0001")
    ]


# ---------------------------------------------------------------- setup


def test_setup_runs_in_a_new_room_and_not_in_one_that_it_made(project: Repo) -> None:
    for _ in range(3):
        made = room_of(project, SETUP)
        assert made.prepare(head(project), "0001") is None
        assert (made.path / "deps/made").read_text() == "one\n"
    assert setups(project) == 1


@pytest.mark.parametrize(
    ("what", "times"),
    [
        ("nothing", 1), ("another file", 2), ("the message", 1), ("the command", 2), ("the folder is gone", 2),
        ("the index is gone", 2), ("the note is damaged", 2), ("a file to carry over", 2),
    ],
)  # fmt: skip
def test_a_room_is_made_anew_for_another_tree(
    project: Repo, what: str, times: int
) -> None:
    project.write(".env", "KEY=1\n")
    project.write(".gitignore", "deps/\n.env\n")
    project.write(".worktreeinclude", ".env\n")
    project.commit("env")
    commit, setup = head(project), SETUP
    room_of(project, setup).prepare(commit, "0001")
    if what == "another file":
        commit = work_on(project, commit, "src.js")
    elif what == "the message":
        commit = project.git(
            "commit-tree", f"{commit}^{{tree}}", "-p", commit, "-m", "x"
        ).strip()
    elif what == "the command":
        setup = f"{SETUP} && true"
    elif what == "the folder is gone":
        files.clear(project.outside / "places/room")
    elif what == "the index is gone":
        files.clear(place_of(project, name="room").index)
    elif what == "the note is damaged":
        room_of(project, setup).place.stamp.write_text("{")
    elif what == "a file to carry over":
        project.write(".env", "KEY=2\n")
    made = room_of(project, setup)
    made.prepare(commit, "0002")
    assert (made.path / "deps/made").read_text() == "one\n"  # from nothing, each time
    assert setups(project) == times


def test_with_when_only_the_files_that_it_names_make_another_room(
    project: Repo,
) -> None:
    setup = Setup(SETUP, ("versions/*.txt",))
    first = head(project)
    room_of(project, setup).prepare(first, "0001")
    lock = work_on(project, first, "yarn.lock")
    room_of(project, setup).prepare(lock, "0002")
    assert setups(project) == 1
    version = work_on(project, lock, "versions/a.txt")
    other = work_on(project, version, "versions/a.txt", content="other\n")
    for number, (commit, times) in enumerate(
        [(version, 2), (version, 2), (other, 3), (lock, 4), (first, 4)]
    ):
        room_of(project, setup).prepare(commit, f"000{number}")
        assert setups(project) == times


def test_nothing_that_a_refused_candidate_had_setup_make_stays(project: Repo) -> None:
    setup = Setup("mkdir -p deps && cp *.lock deps", ("*.lock",))
    first = work_on(project, head(project), "one.lock")
    for commit, there in (
        (first, ["one.lock"]),
        (work_on(project, first, "two.lock"), ["one.lock", "two.lock"]),
        (first, ["one.lock"]),
    ):
        made = room_of(project, setup)
        assert made.prepare(commit, "0001") is None
        assert sorted(path.name for path in (made.path / "deps").iterdir()) == there


def test_the_cache_that_a_room_has_in_a_sandbox_goes_with_it(project: Repo) -> None:
    setup = Setup(SETUP, ("*.lock",))
    first = head(project)
    made = room_of(project, setup)
    made.prepare(first, "0001")
    marks = []
    for name in (made.path.name, "work-1"):
        cache = made.place.index.with_name(CACHE) / name  # as the sandbox makes it
        cache.mkdir(parents=True)
        marks.append(cache / "left by a check")
        marks[-1].touch()
    made.prepare(work_on(project, first, "src.js"), "0002")
    assert marks[0].exists()
    made.prepare(work_on(project, first, "yarn.lock"), "0003")
    assert [mark.exists() for mark in marks] == [False, True]


def test_a_setup_that_is_red_runs_once_more_and_is_said(project: Repo) -> None:
    for times in (2, 4):
        result = room_of(project, f"{SETUP}; exit 3").prepare(head(project), "0001")
        assert result is not None and (result.name, result.exit, result.ok) == (
            "setup",
            3,
            False,
        )
        assert setups(project) == times


def test_a_setup_that_is_red_for_a_moment_is_no_reason(project: Repo) -> None:
    made = room_of(
        project,
        f"{SETUP}; test -e $OLDPWD/../again || {{ touch ../again; exit 3; }}".replace(
            "$OLDPWD/", ""
        ),
    )
    assert made.prepare(head(project), "0001") is None and setups(project) == 2


def test_what_setup_does_to_tracked_files_is_put_back(project: Repo) -> None:
    made = room_of(
        project, f"{SETUP} && echo changed > package-lock.json && touch loose"
    )
    assert made.prepare(head(project), "0001") is None
    assert on_disk(made.path)["package-lock.json"][1] == "{}\n"
    assert (made.path / "deps/made").exists() and (made.path / "loose").exists()


# ---------------------------------------------------------------- what checks leave

LEAVES = "mkdir -p out deps && echo x > out/result && echo x > deps/extra && echo x > y.log && echo x > new.txt && echo edited > a.txt && rm package-lock.json"


@pytest.mark.parametrize("setup", ["", SETUP])
def test_each_check_begins_with_the_candidate_s_files_and_the_next_candidate_with_those_of_setup_alone(
    project: Repo, setup: str
) -> None:
    made = room_of(project, setup)
    made.prepare(head(project), "0001")
    begun = on_disk(made.path)
    looks = "test -e package-lock.json && grep -qx a a.txt && git diff --quiet HEAD"
    # checks are one program: what one builds, the next uses
    built = "test -f out/result && test -f new.txt"
    assert shell(made, LEAVES, looks, built) == [True] * 3
    assert (
        len(made.notices) == 1
        and "a.txt, package-lock.json; put back" in made.notices[0]
    )
    made.prepare(head(project), "0002")
    assert on_disk(made.path) == begun
    assert setups(project) == bool(setup)


def everything(made: Room) -> set[tuple[str, bool, bool]]:
    """What is in the room, and whether it is a folder or a link."""
    own = made.path / ".git"
    found = (
        path for path in made.path.rglob("*") if path != own and own not in path.parents
    )
    return {(str(path), path.is_dir(), path.is_symlink()) for path in found}


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
    project.write("src/a", "a\n")
    project.commit("a folder")
    outside = beside_a_submodule(project)
    made = room_of(project)
    made.prepare(head(project), "0001")
    begun = everything(made)
    assert shell(made, deed.replace("$OUT", str(outside.parent))) == [True]
    assert made.prepare(head(project), "0002") is None
    left = everything(made) - begun
    assert not left and (outside / "mine").read_text() == "mine\n"


def beside_a_submodule(repo: Repo) -> Path:
    """`vendor/sub` becomes a submodule that home has no copy of; a folder of the same
    name elsewhere."""
    repo.git("update-index", "--add", "--cacheinfo", f"160000,{head(repo)},vendor/sub")
    repo.git("commit", "-qm", "submodule")
    return repo.write("../out/sub/mine", "mine\n").parent


def test_a_link_that_setup_made_leads_nothing_out(project: Repo) -> None:
    outside = beside_a_submodule(project)
    for number in ("0001", "0002"):
        made = room_of(project, f"rm -r vendor && ln -s {outside.parent} vendor")
        assert made.prepare(head(project), number) is None
        (outside / number).touch()
    assert (made.path / "vendor").is_symlink() and len(list(outside.iterdir())) == 3


@pytest.mark.parametrize("deed", ["rm -r src; ln -s . src", "rm -r src; touch src"])
def test_what_was_put_in_the_place_of_a_folder_goes_and_the_folder_stays(
    project: Repo, deed: str
) -> None:
    project.write("src/a", "a\n")
    project.commit("a folder")
    made = room_of(project)
    made.prepare(head(project), "0001")
    assert shell(made, deed, "test ! -L src && test -f src/a") == [True, True]


def test_files_that_attributes_change_are_as_in_a_clone(project: Repo) -> None:
    project.write("x.t", "good\n")
    project.commit("x.t")
    made = room_of(project, SETUP)
    made.prepare(head(project), "0001")
    project.write(".gitattributes", "*.t text eol=crlf\n")
    project.commit("attributes")
    assert made.prepare(head(project), "0002") is None
    assert (made.path / "x.t").read_bytes() == b"good\r\n" and (
        made.path / "deps/made"
    ).exists()
    assert made.prepare(head(project), "0003") is None and setups(project) == 2


def test_kept_paths_stay(project: Repo) -> None:
    made = room_of(project, "", "cache/", "out/*.bin")
    made.prepare(head(project), "0001")
    assert shell(made, "mkdir cache out && touch cache/x out/y.bin out/z x.log") == [
        True
    ]
    made.prepare(head(project), "0002")
    assert sorted(on_disk(made.path).keys() - listing(project, "HEAD").keys()) == [
        "cache/x",
        "out/y.bin",
    ]


@pytest.mark.parametrize("deed", ["echo EVIL > deps/made", "rm deps/made", "rm -r deps", "chmod +x deps/made", "rm deps/made && ln -s /etc/passwd deps/made", "rm -r deps && ln -s /etc deps"])  # fmt: skip
def test_a_check_that_changes_what_setup_made_leads_to_another_room(
    project: Repo, deed: str
) -> None:
    made = room_of(project, SETUP)
    made.prepare(head(project), "0001")
    assert shell(made, deed) == [True] and setups(project) == 1
    assert made.prepare(head(project), "0002") is None and setups(project) == 2
    assert (made.path / "deps/made").read_text() == "one\n"
    (said,) = made.notices
    assert (
        said.startswith("the room is made again: deps")
        and "not as setup had left it" in said
    )


@pytest.mark.parametrize(
    "deed", ["touch -d 2001-01-01 deps/made", "cp deps/made x; mv x deps/made"]
)
def test_a_check_that_writes_the_same_bytes_costs_no_setup(
    project: Repo, deed: str
) -> None:
    made = room_of(project, SETUP)
    for number in ("0001", "0002", "0003"):
        made.prepare(head(project), number)
        assert shell(made, deed) == [True]
    assert setups(project) == 1 and made.notices == []


def test_a_program_goes_on_where_it_ended_on_the_same_files(project: Repo) -> None:
    made = room_of(project, SETUP)
    made.prepare(head(project), "0001")
    assert shell(made, LEAVES.replace("echo x > deps/extra && ", "")) == [True]
    again = room_of(project, SETUP)
    assert again.go_on(head(project))
    assert shell(
        again, "test -f out/result && test -f new.txt && grep -qx a a.txt"
    ) == [True]
    assert setups(project) == 1
    files.clear(again.path)
    assert not room_of(project, SETUP).go_on(head(project))


@pytest.mark.parametrize(
    ("command", "missing"),
    [
        ("no-such-tool --help", "no-such-tool"), ("./bin/tool --help", ""), ("bin/tool", ""), ("cd . && no-such-tool", ""),
        ("PATH=. no-such-tool", ""), ("exit 127", ""), ("sh -c no-such-tool", ""), ("no-such-tool; exit 1", ""),
        ("'no-such", ""),
    ],
)  # fmt: skip
def test_a_check_that_cannot_start_names_the_program(
    project: Repo, command: str, missing: str
) -> None:
    made = room_of(project)
    made.prepare(head(project), "0001")
    (result,) = made.run([Check("x", command)], "0001")
    assert (result.ok, result.missing) == (False, missing)


def test_a_check_of_words_that_cannot_start_names_the_program_too(
    project: Repo,
) -> None:
    made = room_of(project)
    made.prepare(head(project), "0001")
    results = made.run(
        [Check("x", ("no-such-tool", "-x")), Check("y", ("./no-such-tool",))], "0001"
    )
    assert [(one.exit, one.missing) for one in results] == [
        (127, "no-such-tool"),
        (127, ""),
    ]
    assert first_word(Check("x", ())) == first_word(Check("x", "")) == ""


@pytest.mark.parametrize(
    "mutant", ["nothing is put back", "the list is believed", "one stamp for all"]
)
def test_a_room_that_is_less_clean_is_caught(
    project: Repo, monkeypatch: pytest.MonkeyPatch, mutant: str
) -> None:
    if mutant == "nothing is put back":
        monkeypatch.setattr(Room, "_put_back", lambda *_: [])
        with pytest.raises(AssertionError):
            test_each_check_begins_with_the_candidate_s_files_and_the_next_candidate_with_those_of_setup_alone(
                project, SETUP
            )
    elif mutant == "the list is believed":
        monkeypatch.setattr(exact, "restore", lambda *_: [])
        with pytest.raises(AssertionError):
            test_a_check_that_changes_what_setup_made_leads_to_another_room(
                project, "echo EVIL > deps/made"
            )
    else:
        monkeypatch.setattr(Places, "stamp", lambda *_: "x")
        with pytest.raises(AssertionError):
            test_nothing_that_a_refused_candidate_had_setup_make_stays(project)


@pytest.mark.parametrize(
    ("when", "most"),
    [
        (
            (),
            {"room-1": 1 + 4, "work-1": 4, "room-2": 1},
        ),  # the start, candidates, agents, the re-check
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
    setup = {"run": f"basename $PWD >> {log}", **({"when": [*when]} if when else {})}
    repo.plan(
        *({"checks": [f"test -f T{n}"]} for n in range(1, 5)),
        setup=setup,
        checks=["true"],
    )
    code, _, printed = repo.run(
        repo.agent(
            "P('a.lock' if task == 'T2' else task).write_text('2'); P(task).touch()"
        )
    )
    assert (code, len(repo.passed())) == (0, 4), printed
    assert Counter(log.read_text().split()) == most


# ---------------------------------------------------------------- hooks


def hooked(repo: Repo, script: str, leaves: str = "a.txt") -> tuple[bool, str]:
    """Run the hook pre-commit on a candidate with `new.txt`: whether it is green, the
    tree it leaves."""
    repo.program(".git/hooks/pre-commit", script)
    commit = work_on(repo, head(repo), "new.txt")
    made = room_of(repo)
    made.prepare(commit, "0001")
    made.hold(repo.git("rev-parse", f"{commit}^{{tree}}").strip(), head(repo))
    result = made.hook("pre-commit", "0001")
    assert result is not None
    tree = made.staged()
    assert on_disk(made.path).keys() >= {leaves, "new.txt"}
    return result.ok, tree


def spoken(repo: Repo, message: str = "T1: é", **hooks: str) -> tuple[list[bool], str]:
    """What the hooks for messages make of one: their results, and the message that they
    leave."""
    for name, script in hooks.items():
        repo.program(f".git/hooks/{name.replace('_', '-')}", script)
    made = room_of(repo)
    made.prepare(head(repo), "0001")
    said, results = made.said(message, "0001")
    return [result.ok for result in results], said


def test_a_hook_sees_what_is_about_to_be_committed(project: Repo) -> None:
    sees = 'test "$(git diff --cached --name-only)" = new.txt && test -z "$(git diff --name-only)"'
    ok, tree = hooked(project, sees)
    assert ok and listing(project, tree).keys() == {
        *listing(project, "HEAD"),
        "new.txt",
    }
    assert hooked(project, "exit 1")[0] is False


def test_a_hook_that_rewrites_files_leaves_their_tree(project: Repo) -> None:
    ok, tree = hooked(
        project,
        "echo formatted > new.txt; git add new.txt; echo too > a.txt; touch loose",
    )
    assert ok
    found = listing(project, tree)
    assert (found["new.txt"][1], found["a.txt"][1], "loose" in found) == (
        "formatted\n",
        "too\n",
        False,
    )
    assert project.git("status", "--porcelain", "-uno") == ""


def test_a_hook_that_makes_a_repository_of_a_file_leaves_no_submodule(
    project: Repo,
) -> None:
    nested = "rm a.txt; unset GIT_DIR GIT_INDEX_FILE; git init -q a.txt; cd a.txt; "
    nested += (
        "git -c user.name=x -c user.email=x@x.invalid commit -nq --allow-empty -m x"
    )
    ok, tree = hooked(project, nested, leaves="new.txt")
    assert ok and listing(project, tree).keys() == {
        *listing(project, "HEAD"),
        "new.txt",
    } - {"a.txt"}


def test_what_a_hook_stages_beside_the_work_is_committed_and_what_it_leaves_is_not(
    project: Repo,
) -> None:
    script = "mkdir gen; echo 1 > gen/out.txt; echo 2 > '*'; touch loose; git add gen '*'; rm a.txt"
    ok, tree = hooked(project, script, leaves="new.txt")
    assert ok
    assert listing(project, tree).keys() - listing(project, "HEAD").keys() == {
        "new.txt",
        "gen/out.txt",
        "*",
    }
    assert "a.txt" not in listing(project, tree)


def test_a_hook_may_leave_an_index_that_nobody_can_read(project: Repo) -> None:
    with within(30):
        ok, tree = hooked(project, "echo 1 > a.txt; rm .git/index; mkfifo .git/index")
    assert ok and listing(project, tree).keys() == {
        *listing(project, "HEAD"),
        "new.txt",
    }


def test_hooks_for_messages_run_as_git_runs_them(project: Repo) -> None:
    """With the same words, on a message that ends with a line end: `echo >>` is a line
    of its own."""
    notes = f'echo "$0 $*" >> {project.outside}/words'
    both = {
        "prepare_commit_msg": f'{notes}; echo "Prepared: 1" >> "$1"',
        "commit_msg": f"{notes}; grep -q Prepared $1",
    }
    assert spoken(project, **both) == ([True, True], "T1: é\nPrepared: 1\n")
    project.git("commit", "-q", "--allow-empty", "-m", "T1: é")
    lines = project.read("../words").splitlines()
    ours, theirs = (
        [line.rpartition("hooks/")[2] for line in part]
        for part in (lines[:2], lines[2:])
    )
    assert (
        ours
        == theirs
        == [
            "prepare-commit-msg .git/COMMIT_EDITMSG message",
            "commit-msg .git/COMMIT_EDITMSG",
        ]
    )


def test_a_message_that_one_hook_refuses_no_other_sees(project: Repo) -> None:
    assert spoken(project, prepare_commit_msg="exit 1", commit_msg="true")[0] == [False]


def test_a_hook_in_the_tree_is_the_candidate_s(project: Repo) -> None:
    project.git("config", "core.hooksPath", ".husky")
    made = room_of(project)
    made.prepare(head(project), "0001")
    assert made.places.hooks(made.path) == [] and made.places.hooked()
    project.program(".husky/commit-msg", "true")
    project.commit("hooks")
    made.prepare(head(project), "0002")
    assert made.places.hooks(made.path) == ["commit-msg"]


@pytest.mark.parametrize(
    ("script", "left"),
    [
        ('echo "Change-Id: 1" >> "$1"', "T1: task 1\nChange-Id: 1\n\n"),
        (
            'printf "\nwords\n\nChange-Id: 1\n" >> "$1"',
            "T1: task 1\n\nwords\n\nChange-Id: 1\n",
        ),
        ('printf "other\n\n\n" > "$1"', "other\n\n"),
        ('printf "other" > "$1"', "other\n\n"),
        ('printf "\nRalph-Attempt: 7\nralph-agent: me\n" >> "$1"', "T1: task 1\n\n"),
        ("true", "T1: task 1\n\n"),
    ],
)
def test_a_commit_lands_with_the_message_of_its_hook_and_ralphs_trailers_behind_it(
    project: Repo, script: str, left: str
) -> None:
    project.program(
        ".git/hooks/commit-msg",
        f'cat "$1" >> ../seen\n{script}'.replace("../", f"{project.outside}/"),
    )
    project.plan({"checks": ["test -f new.txt"]})
    project.agent("P('new.txt').touch()")
    agent = project.tool(
        "worker", f"exec {sys.executable} {project.outside}/agent.py"
    ).name
    assert project.ralph("run", "-q", "--agent", agent).returncode == 0
    (start,) = project.records("start")
    trailers = f"Ralph-Agent: worker\nRalph-Attempt: {start['id']}\n"
    assert project.git("log", "-1", "--format=%B", "ralph/p") == f"{left}{trailers}\n"
    assert (
        project.read("../seen") == "T1: task 1\n" * 2
    )  # before an agent is paid, and then


@pytest.mark.parametrize("git", ["status", "add"])
def test_ralph_runs_no_filter_that_a_check_or_a_hook_left_in_a_submodule(
    repo: Repo, git: str
) -> None:
    room, ran = room_of(with_lib(repo)), repo.outside / "ran"
    assert room.prepare(head(repo), "0001") is None
    repo.git(
        "config",
        "-f",
        str(room.path / ".gitmodules"),
        "submodule.the lib.ignore",
        "none",
    )
    leave_filter(room.path / "vendor/lib", "lib.txt", ran)
    if git == "status":
        assert room.place.dirt(head(repo)) == (
            [".gitmodules"],
            ["vendor/lib/.gitattributes"],
        )
    else:
        assert listing(repo, room.staged()).keys() == listing(repo, "HEAD").keys()
    assert not ran.exists()


@pytest.mark.parametrize(
    "deed",
    sample([
        "rm -r vendor/lib; ln -s HOME vendor/lib", "rm -r vendor/lib; ln -s HOME/vendor/lib vendor/lib",
        "rm -r vendor; ln -s HOME/vendor vendor", "rm -r vendor/lib", "rm -r vendor; touch vendor",
    ], 2),
)  # fmt: skip
def test_a_submodule_that_is_replaced_leads_nowhere_and_is_put_back(
    repo: Repo, deed: str
) -> None:
    room, deed = (
        room_of(with_lib(repo)),
        deed.replace("HOME", shlex.quote(str(repo.path))),
    )
    logs_folder(room.places.paths)
    before = seen(repo)
    assert room.prepare(head(repo), "0001") is None
    there = "test -f vendor/lib/lib.txt && test ! -L vendor && test ! -L vendor/lib"
    assert shell(room, deed, there) == [True, True]
    room.run([Check("as a hook does", deed)], "0001", "a label")
    room.places.furnish(room.place, head(repo))
    assert (room.path / "vendor/lib/.git").is_file() and seen(repo) == before


def test_nothing_is_removed_through_a_link_that_is_put_back(repo: Repo) -> None:
    mine = repo.write("../out/mine", "mine\n")
    (repo.path / "link").symlink_to(mine.parent)
    repo.commit("link")
    room = room_of(repo)
    assert room.prepare(head(repo), "0001") is None
    assert shell(room, "rm link; mkdir link; touch link/mine", "test -L link") == [
        True,
        True,
    ]
    assert mine.exists()


@pytest.mark.parametrize(
    "deed",
    ['rm -rf "$PWD"', 'mv "$PWD" ../gone', 'mv "$PWD" ../gone; ln -s PERSON "$PWD"'],
)
def test_a_check_that_moves_the_room_is_red_and_the_next_one_has_a_room(
    repo: Repo, deed: str
) -> None:
    person = repo.outside / "person"
    person.mkdir()
    os.mkfifo(person / "pipe")
    room = room_of(repo)
    assert room.prepare(head(repo), "0001") is None
    assert shell(
        room, deed.replace("PERSON", str(person)), "test -f a.txt && test -d .git"
    ) == [False, True]
    assert (person / "pipe").exists() and room.place.exists
