"""Several clean rooms: candidates are checked at once, and what lands is what was
checked, in order."""

from __future__ import annotations

import json
from typing import Any

from tests.conftest import Repo
from tests.oracle import (
    BRANCH,
    fresh_clone_is_green,
    nothing_runs_within,
    still_running,
)
from tests.scripts import MEET, once

WORKS = "P(f'{task}.txt').write_text('good')"
SUITE = """
import os, pathlib, sys, time
ran = pathlib.Path({ran!r})
have = sorted(p.stem for p in pathlib.Path().glob("T*.txt"))
with (ran).open("a") as file:
    file.write(f"{{os.environ.get('RALPH_PLACE')}} {{os.environ.get('RALPH_TASK_ID', '-')}} {{' '.join(have)}}\\n")
{more}
"""


def set_up(repo: Repo, count: int, more: str = "", **top: Any) -> None:
    """A plan of so many tasks whose suite notes where it runs, for whom and on what."""
    repo.write("suite.py", SUITE.format(ran=str(repo.outside / "ran"), more=more))
    repo.commit("suite")
    repo.plan(*({} for _ in range(count)), checks=["python3 -IS suite.py"], **top)


def ran(repo: Repo) -> list[tuple[str, str, set[str]]]:
    """Where the suite ran, for which task, and which work stood there."""
    lines = (repo.outside / "ran").read_text().splitlines()
    return [(place, task, set(have)) for place, task, *have in map(str.split, lines)]


TOGETHER = f"{MEET}\nbegun('T1', 'T2', 'T3')\ntime.sleep(int(task[1]) / 5)\n{WORKS}"
"""Agents that come to the rooms one after the other, while the first still checks."""


def test_candidates_are_checked_at_once_on_top_of_those_ahead(repo: Repo) -> None:
    set_up(repo, 3, "time.sleep(1)")
    code, summary, printed = repo.run(
        repo.agent(TOGETHER), "--jobs", "3", "--rooms", "3"
    )
    assert (code, summary["passed"]) == (0, 3), printed
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T3 passed"]
    assert ran(repo)[1:4] == [
        ("room-1", "T1", {"T1"}),
        ("room2", "T2", {"T1", "T2"}),
        ("room3", "T3", {"T1", "T2", "T3"}),
    ]
    assert len(ran(repo)) == 5  # before the work, three candidates, and the last look
    assert repo.commits() == ["T3: task 3", "T2: task 2", "T1: task 1"]


def test_a_red_one_ahead_costs_those_behind_a_check_and_nothing_else(
    repo: Repo,
) -> None:
    """T1 is red once. T2 and T3 stood on it: they are checked again without it, and no
    agent works twice."""
    set_up(
        repo,
        3,
        "time.sleep(1)\nsys.exit(pathlib.Path('T1.txt').exists() and 'bad' in open('T1.txt').read())",
    )
    bad = f"{TOGETHER}\nif {once(repo, 'bad')} and task == 'T1': P('T1.txt').write_text('bad')"
    code, summary, printed = repo.run(repo.agent(bad), "--jobs", "3", "--rooms", "3")
    assert (code, summary["passed"]) == (0, 3), printed
    assert repo.verdicts() == ["T1 failed", "T2 passed", "T3 passed", "T1 passed"]
    assert (
        "T2: what it was checked on top of did not pass; it is checked again" in printed
    )
    assert [task for _, task, have in ran(repo) if have == {"T2"}] == ["T2"]
    assert [task for _, task, have in ran(repo) if have == {"T2", "T3"}] == ["T3"]
    assert {
        record["attempt"]
        for record in repo.records("verdict")
        if record["task"] != "T1"
    } == {1}
    assert fresh_clone_is_green(
        repo, BRANCH, [f"grep -q good T{number}.txt" for number in (1, 2, 3)]
    )


def test_what_is_red_on_top_of_what_does_not_land_has_not_failed(repo: Repo) -> None:
    """T2 is red only beside the work of T1, which itself is red."""
    set_up(
        repo,
        3,
        "time.sleep(1)\nsys.exit('T1' in have and 'bad' in open('T1.txt').read())",
    )
    bad = f"{TOGETHER}\nif task == 'T1': P('T1.txt').write_text('bad')"
    code, _, printed = repo.run(
        repo.agent(bad), "--jobs", "3", "--rooms", "3", "--max-attempts", "1"
    )
    assert code == 4, printed
    assert sorted(repo.verdicts()) == ["T1 failed", "T2 passed", "T3 passed"]


def test_what_conflicts_with_one_ahead_waits_for_its_verdict(repo: Repo) -> None:
    """And if that does not land, there was no conflict."""
    set_up(repo, 2, "time.sleep(1)\nsys.exit(pathlib.Path('one').read_text() == 'T1')")
    repo.write("one", "start")
    repo.commit("one")
    agent = repo.agent(
        f"{MEET}\nbegun('T1', 'T2')\ntime.sleep(int(task[1]) / 5)\nP('one').write_text(task)"
    )
    code, _, printed = repo.run(
        agent, "--jobs", "2", "--rooms", "2", "--max-attempts", "1"
    )
    assert code == 4, printed
    assert repo.verdicts() == ["T1 failed", "T2 passed"]
    assert repo.landed("one") == "T2"


def test_a_judge_reads_only_what_is_to_land_and_is_paid_once(repo: Repo) -> None:
    set_up(
        repo,
        3,
        "time.sleep(1)\nsys.exit('T1' in have and 'bad' in open('T1.txt').read())",
    )
    bad = f"{TOGETHER}\nif task == 'T1' and {once(repo, 'bad')}: P('T1.txt').write_text('bad')"
    answer = json.dumps({"criteria": [{"criterion": "c", "met": True, "reason": "r"}]})
    judge = repo.agent(
        f"(OUT / 'judged').open('a').write(task + ' ')\nprint({answer!r})", "judge"
    )
    code, _, printed = repo.run(
        repo.agent(bad), "--jobs", "3", "--rooms", "3", "--judge", judge
    )
    assert code == 0, printed
    assert (repo.outside / "judged").read_text().split() == ["T2", "T3", "T1"]


def test_hooks_make_the_candidate_that_others_stand_on(repo: Repo) -> None:
    set_up(repo, 3, "time.sleep(0.5)")
    repo.program(
        ".git/hooks/pre-commit",
        "for f in T*.txt; do echo formatted > $f.lock; git add $f.lock; done",
    )
    code, _, printed = repo.run(repo.agent(TOGETHER), "--jobs", "3", "--rooms", "3")
    assert code == 0, printed
    assert repo.verdicts() == ["T1 passed", "T2 passed", "T3 passed"]
    assert repo.landed("T3.txt.lock") == "formatted\n"
    assert len(ran(repo)) == 5


def test_each_room_has_its_own_setup_and_its_own_slot_and_is_kept(repo: Repo) -> None:
    slots = f"mkdir -p deps && echo $RALPH_PLACE $RALPH_SLOT >> {repo.outside}/slots"
    repo.write(".gitignore", "deps/\n")
    set_up(repo, 3, "time.sleep(1)", setup={"run": slots, "when": ["lock"]})
    assert repo.run(repo.agent(TOGETHER), "--jobs", "3", "--rooms", "3")[0] == 0
    made = dict(
        line.split() for line in (repo.outside / "slots").read_text().splitlines()
    )
    assert made.keys() == {
        "room-1",
        "room-2",
        "room2",
        "room3",
        "work-1",
        "work-2",
        "work-3",
    }
    assert (
        made["room-1"] == made["room-2"] == "0"
    )  # the first one, made anew at the end
    assert len({*made.values()}) == 6
    before = (repo.outside / "slots").read_text()
    repo.plan(
        *({} for _ in range(6)),
        checks=["python3 -IS suite.py"],
        setup={"run": slots, "when": ["lock"]},
    )
    later = f"{MEET}\nbegun('T4', 'T5', 'T6')\n{WORKS}"
    assert repo.run(repo.agent(later), "--jobs", "3", "--rooms", "3")[0] == 0
    again = (repo.outside / "slots").read_text().removeprefix(before)
    assert again == "room-3 0\n"  # only that of the last look


def test_more_rooms_than_workers_and_no_rooms_at_all(repo: Repo) -> None:
    set_up(repo, 1)
    code, _, printed = repo.run(repo.agent(WORKS), "--rooms", "3")
    assert (
        code == 0
        and "of 3 clean rooms 1 can be used, as 1 task is worked at once" in printed
    )
    assert [room.name for room in repo.places.glob("room*")] == ["room-2"]
    done = repo.ralph("run", "--agent", repo.agent(WORKS), "--rooms", "0")
    assert done.returncode == 2 and "--rooms" in done.stderr


def test_a_disk_with_space_for_one_room_is_one_room(repo: Repo) -> None:
    set_up(repo, 3, "time.sleep(1)")
    full = "import shutil\nshutil.disk_usage = lambda path: type('Usage', (), {'free': 1})\n"
    code, summary, printed = repo.run(
        repo.agent(TOGETHER), "--jobs", "3", "--rooms", "3", first=full
    )
    assert (code, summary["passed"]) == (0, 3), printed
    assert (
        printed.count(
            "the disk has no space for a clean room beside the 1 that is there"
        )
        == 1
    )
    assert {place for place, _, _ in ran(repo)} == {"room-1", "room-2"}


def test_a_suite_that_runs_for_nothing_is_ended_at_once(repo: Repo) -> None:
    """T2's suite would take a minute on top of T1, which turns out to be red."""
    slow = "time.sleep(60 if {'T1', 'T2'} <= {*have} else 1)\nsys.exit('T1' in have and 'bad' in open('T1.txt').read())"
    set_up(repo, 2, slow)
    agent = repo.agent(
        f"{MEET}\nbegun('T1', 'T2')\ntime.sleep(int(task[1]) / 5)\n"
        f"P(f'{{task}}.txt').write_text('bad' if task == 'T1' else 'good')"
    )
    code, _, printed = repo.run(
        agent, "--jobs", "2", "--rooms", "2", "--max-attempts", "1", timeout=30
    )
    assert code == 4 and repo.verdicts() == ["T1 failed", "T2 passed"], printed
    assert nothing_runs_within(repo, 3), still_running(repo)
