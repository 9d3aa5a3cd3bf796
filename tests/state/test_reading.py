"""The history of a plan as it is read from the file, which others write."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from _ralph.model import Plan, Verdict
from _ralph.state import prd
from _ralph.state.history import replay
from _ralph.state.log import Log
from _ralph.state.records import AttemptBegan, AttemptEnded, Journal

PLAN = '{"project": "p", "userStories": [{"id": "T1", "title": "task 1"}]}'


@pytest.fixture
def plan(tmp_path: Path) -> Plan:
    return prd.read(PLAN, tmp_path / "prd.json")


@pytest.fixture
def log(tmp_path: Path, plan: Plan) -> Callable[[], Log]:
    """Another process that reads the log from its beginning."""
    return lambda: Log(Journal(tmp_path / "progress.txt"), plan)


def begun(number: int) -> AttemptBegan:
    return AttemptBegan(task="T1", title="task 1", iteration=number, id=f"id{number}")


def failed(number: int) -> AttemptEnded:
    return AttemptEnded(
        task="T1", title="task 1", iteration=number, verdict=Verdict.FAILED
    )


def test_who_reads_knows_what_others_wrote_and_each_record_counts_once(
    log: Callable[[], Log],
) -> None:
    first, second = log(), log()
    assert second.read().iteration == 0
    for number in range(1, 4):
        first.write(begun(number), "one", "begins")
        assert second.read().open_starts.keys() == {number}
        second.write(failed(number), "two", "ended")
        assert first.read().open_starts == {}
    for one in (first, second, log()):
        known = one.read().tasks["T1\ntask 1"]
        assert known.attempts == 3
    assert first.read() is first.read()  # nothing is folded again


def test_a_history_as_it_is_read_is_the_fold_of_the_whole_file(
    log: Callable[[], Log], plan: Plan
) -> None:
    reader, writer = log(), log()
    for number in range(1, 6):
        writer.write(begun(number), "one", "begins")
        if number % 2:
            reader.read()
        writer.write(failed(number), "one", "ended")
    assert reader.read() == replay(Journal(reader.journal.path).records(plan))


@pytest.mark.parametrize("deed", ["shrinks", "is replaced", "is removed", "is emptied"])
def test_a_file_that_shrinks_or_is_replaced_is_folded_anew(
    log: Callable[[], Log], deed: str
) -> None:
    one = log()
    one.write(begun(1), "one", "begins")
    before = one.journal.path.read_bytes()
    one.write(failed(1), "one", "ended")
    path = one.journal.path
    match deed:
        case "shrinks":  # git checkout of an older one, in place
            path.write_bytes(before)
        case "is replaced":  # as an editor saves it, and it is longer
            other = path.with_name("other")
            other.write_bytes(b"my notes\n" * 500 + before)
            other.replace(path)
        case "is removed":
            path.unlink()
        case "is emptied":
            os.truncate(path, 0)
    left = [] if deed in ("is removed", "is emptied") else [1]
    assert [*one.read().open_starts] == left
    one.write(begun(7), "one", "begins")
    assert [*one.read().open_starts] == [*left, 7]


def test_a_record_counts_once_its_line_is_whole(log: Callable[[], Log]) -> None:
    one = log()
    one.write(begun(1), "one", "begins")
    whole = one.journal.path.read_bytes()
    for end in range(0, len(whole), 7):
        one.journal.path.write_bytes(whole[:end])
        reader = log()
        assert reader.read().open_starts == {}
        with one.journal.path.open("ab") as file:
            file.write(whole[end:])
        assert [*reader.read().open_starts] == [1]


def test_records_of_another_plan_are_no_matter(
    log: Callable[[], Log], tmp_path: Path
) -> None:
    other = prd.read(PLAN, tmp_path / "other.json")
    one, two = log(), Log(Journal(tmp_path / "progress.txt"), other)
    two.write(begun(1), "two", "begins")
    assert one.read().iteration == 0
    one.write(begun(1), "one", "begins")
    assert two.read().iteration == one.read().iteration == 1


def test_text_of_a_person_between_records_is_no_matter(log: Callable[[], Log]) -> None:
    one = log()
    one.write(begun(1), "one", "begins")
    with one.journal.path.open("ab") as file:
        file.write(b'\xff a note\n<!-- ralph {} -->\n<!-- ralph {"v": 2} -->\nno end')
    assert [*one.read().open_starts] == [1]
    one.write(failed(1), "one", "ended")
    assert one.read().open_starts == {}
