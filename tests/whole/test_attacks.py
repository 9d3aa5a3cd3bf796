"""What an attacker found in the new core, a test each: red before it was mended."""

from __future__ import annotations

import json
import os
import shlex
import time
from pathlib import Path

import pytest

from _ralph import files
from _ralph.model import Check
from _ralph.process import process
from _ralph.state.layout import logs_folder
from tests.conftest import Repo, sample
from tests.git.test_workspace import head, leave_filter, listing, place_of, seen, with_lib
from tests.loop.test_room import room_of, shell
from tests.loop.test_waits import LIMIT, RESULT, overage, plan, speaker


@pytest.mark.parametrize(
    ("ignored", "mine"), [(".env\ndata/\n", (".env", "data/a.csv")), ("", (".venv/notes.txt",))]
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
    theirs += (
        "; P('.gitignore').write_text('!.venv/'); P('.venv').mkdir(); P('.venv/notes.txt').write_text('x')"
    )
    repo.run(repo.agent(theirs))
    done = repo.ralph("land")
    assert done.returncode in (0, 4), done.stderr
    assert [repo.read(name) for name in mine] == ["the only copy"] * len(mine)


@pytest.mark.parametrize("name", ["/evil", "../evil", "a/../../evil", "linked"])
def test_the_name_of_a_submodule_leads_nowhere_else(repo: Repo, name: str) -> None:
    evil = repo.outside / "evil"
    (evil / "objects").mkdir(parents=True)
    modules = repo.path / ".git/modules"
    modules.mkdir()
    (modules / "linked").symlink_to(evil)
    (modules / "lib/objects").mkdir(parents=True)
    place = place_of(repo)
    assert place.modules.copy_of(str(evil) if name == "/evil" else name, "lib") is None
    assert place.modules.copy_of("lib", "lib") == modules / "lib"


@pytest.mark.parametrize("git", ["status", "add"])
def test_ralph_runs_no_filter_that_a_check_or_a_hook_left_in_a_submodule(repo: Repo, git: str) -> None:
    room, ran = room_of(with_lib(repo)), repo.outside / "ran"
    assert room.prepare(head(repo), "0001") is None
    repo.git("config", "-f", str(room.path / ".gitmodules"), "submodule.the lib.ignore", "none")
    leave_filter(room.path / "vendor/lib", "lib.txt", ran)
    if git == "status":
        assert room.place.dirt(head(repo)) == ([".gitmodules"], ["vendor/lib/.gitattributes"])
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
def test_a_submodule_that_is_replaced_leads_nowhere_and_is_put_back(repo: Repo, deed: str) -> None:
    room, deed = room_of(with_lib(repo)), deed.replace("HOME", shlex.quote(str(repo.path)))
    logs_folder(room.places.paths)
    before = seen(repo)
    assert room.prepare(head(repo), "0001") is None
    assert shell(room, deed, "test -f vendor/lib/lib.txt && test ! -L vendor && test ! -L vendor/lib") == [
        True,
        True,
    ]
    room.run([Check("as a hook does", deed)], "0001", "a label")
    room.places.furnish(room.place, head(repo))
    assert (room.path / "vendor/lib/.git").is_file() and seen(repo) == before


def test_nothing_is_removed_through_a_link_that_is_put_back(repo: Repo) -> None:
    mine = repo.write("../out/mine", "mine\n")
    (repo.path / "link").symlink_to(mine.parent)
    repo.commit("link")
    room = room_of(repo)
    assert room.prepare(head(repo), "0001") is None
    assert shell(room, "rm link; mkdir link; touch link/mine", "test -L link") == [True, True]
    assert mine.exists()


@pytest.mark.parametrize("said", [RESULT, LIMIT, json.dumps({**json.loads(RESULT), "total_cost_usd": 5000})])
def test_a_log_that_an_agent_does_not_keep_is_no_word_of_its_own(repo: Repo, said: str) -> None:
    plan(repo, {"checks": ["test -f x"]}, budget={"usd": 100})
    say = speaker(
        repo, f"P('x').touch(); P('.git/ralph/agent.log').write_text('''{said}''' + chr(10)); sys.exit(1)"
    )
    _code, summary, _ = repo.run(say, "--max-iterations", "1")
    record = repo.records("verdict")[0]
    assert summary["usd"] < 1 and record["verdict"] == "passed" and not record.get("reset")


def test_a_reset_that_is_over_is_none(repo: Repo) -> None:
    past = json.dumps(
        {
            "type": "rate_limit_event",
            "rate_limit_info": {"status": "rejected", "resetsAt": int(time.time()) - 5},
        }
    )
    plan(repo, {"checks": ["test -f x"]})
    say = speaker(repo, f"print('''{past}'''); print('''{LIMIT}'''); sys.exit(1)")
    done = repo.ralph("run", "--agent", say, "--no-wait")
    assert (done.returncode, len(repo.records("verdict"))) == (75, 1) and "takes over" not in done.stdout


def test_paid_extra_usage_with_a_reset_that_is_over_still_counts(repo: Repo) -> None:
    plan(repo, {"checks": ["false"]})
    say = speaker(repo, f"print('''{overage(-5)}'''); print('''{RESULT}''')")
    assert repo.run(say, "--no-wait")[0] == 75
    assert len(repo.records("verdict")) == 1


def nest(folder: Path, depth: int, fifo: bool = True) -> None:
    folder.mkdir(exist_ok=True)
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    if fifo:
        os.mkfifo(".gitignore", dir_fd=here)
    os.close(here)


@pytest.mark.parametrize("where", sample([".ralph", ".git", "deep", "node_modules"], 2))
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


def test_a_folder_of_any_depth_is_removed(repo: Repo) -> None:
    nest(repo.outside / "nested", 1500)
    assert not files.clear(repo.outside / "nested").exists()


@pytest.mark.parametrize(
    "deed", ['rm -rf "$PWD"', 'mv "$PWD" ../gone', 'mv "$PWD" ../gone; ln -s PERSON "$PWD"']
)
def test_a_check_that_moves_the_room_is_red_and_the_next_one_has_a_room(repo: Repo, deed: str) -> None:
    person = repo.outside / "person"
    person.mkdir()
    os.mkfifo(person / "pipe")
    room = room_of(repo)
    assert room.prepare(head(repo), "0001") is None
    assert shell(room, deed.replace("PERSON", str(person)), "test -f a.txt && test -d .git") == [False, True]
    assert (person / "pipe").exists() and room.place.exists


@pytest.mark.parametrize(
    "deed", ['rm "$1"', 'rm "$1"; mkfifo "$1"', "rm -rf .git", 'ln -sf /etc/passwd "$1"']
)
def test_a_hook_of_the_candidate_s_own_that_spoils_its_message_is_red(repo: Repo, deed: str) -> None:
    repo.program(".husky/commit-msg", f"test -e x || exit 0\n{deed}")  # not on the branch's own files
    repo.commit("hooks")
    repo.git("config", "core.hooksPath", ".husky")
    repo.plan({"checks": ["test -f x"]}, limits={"attempts": 1})
    code, _, printed = repo.run(repo.agent("P('x').touch()"))
    assert (code, repo.passed()) == (4, []) and "root:" not in repo.git("log", "--all"), printed


def test_one_task_that_passes_is_no_success_where_a_check_of_the_plan_is_red(repo: Repo) -> None:
    repo.plan({"checks": ["test -f x"]}, {"checks": ["false"]}, checks=["false"])
    code, summary, _ = repo.run(repo.agent("P('x').touch()"), "--task", "T1")
    assert (code, summary["stop"]) == (4, "red-checks")


def test_a_transcript_of_another_night_is_not_paid_for(repo: Repo) -> None:
    plan(repo, {"checks": ["test -f x"]})
    repo.write(".ralph/log/0001-T1.out", json.dumps({**json.loads(RESULT), "total_cost_usd": 5000}) + "\n")
    _code, summary, _ = repo.run(speaker(repo, "os.kill(os.getppid(), 9)"), "--max-iterations", "1")
    assert summary["usd"] < 10


def test_without_memory_files_it_works(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(*_: object) -> int:
        raise OSError(38, "Function not implemented")

    monkeypatch.setattr(os, "memfd_create", missing)
    with process.buffer(b"said") as file:
        assert file.read() == b"said"


def test_a_child_is_reaped_once_and_its_status_told() -> None:
    pid = os.fork()
    if pid == 0:
        time.sleep(0.3)
        os._exit(7)
    assert process.reap(pid, 0.01) is None
    ended = process.reap(pid, 10)
    assert ended is not None and os.waitstatus_to_exitcode(ended) == 7
    assert process.reap(pid, 10) == 0


@pytest.mark.parametrize(
    ("hook", "script", "said"),
    sample(
        [
            ("commit-msg", 'printf "x\\000y" > "$1"', "a commit message that git refuses"),
            ("commit-msg", ': > "$1"', "a commit message that git refuses"),
            ("pre-commit", "rm -f .gitattributes; mkfifo .gitattributes", ""),
        ],
        2,
    ),
)
def test_what_a_hook_leaves_costs_its_attempt_and_not_the_run(
    repo: Repo, hook: str, script: str, said: str
) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]}, limits={"attempts": 1})
    path = repo.path / ".git/hooks" / hook
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\ntest -f T1.txt || exit 0\n{script}\n")
    path.chmod(0o755)
    code, summary, printed = repo.run(repo.agent("P(f'{task}.txt').touch()"), timeout=100)
    assert code == (4 if said else 0), printed
    assert summary["passed"] == (1 if said else 2)
    assert said in repo.records("verdict")[0].get("failure", {}).get("tail", "")


@pytest.mark.parametrize("what", ["half a surrogate", "a folder"])
def test_damage_to_files_of_ralphs_own_ends_nothing(repo: Repo, what: str) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent("P(f'{task}.txt').touch()")
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    (words,) = repo.path.glob(".git/ralph/*/words")
    for damaged in (words, words.with_name("running.json")):
        damaged.unlink(missing_ok=True)
        if what == "a folder":
            (damaged / "x").mkdir(parents=True)
        else:
            damaged.write_text('{"pid": 1, "created": 1, "run_id": "\\ud800"}')
    assert repo.ralph("status").returncode == 0
    code, summary, printed = repo.run(agent)
    assert (code, summary["passed"]) == (0, 2), printed


def test_names_of_tests_that_git_would_take_for_patterns_cost_nothing(repo: Repo) -> None:
    repo.write("tests/test_old.py", "old\n")
    repo.commit("tests")
    repo.plan({"checks": ["test -f T1.txt"]})
    deeds = "P('T1.txt').touch(); os.makedirs(':(nosuch)x'); P(':(nosuch)x/test_a.py').write_text('x')"
    code, _, printed = repo.run(repo.agent(f"{deeds}; P('tests/test_old.py').write_text('new')"))
    assert code == 0, printed
    assert repo.records("verdict")[0]["tests"] == ["tests/test_old.py"]
