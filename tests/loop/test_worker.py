"""What a worker sends through its pipe becomes a result, an error, or its death."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from _ralph.loop.jobs import Checked, Worked
from _ralph.loop.worker import Job, WorkerDied, start

from _ralph.codec import MOST, as_json, made
from _ralph.errors import (
    AgentUnavailable,
    BadInput,
    NeedsPerson,
    RalphError,
    StopNow,
    TryLater,
)
from _ralph.model import AgentResult, CheckResult, Outcome, Tokens

Pipe = tuple[Job[Checked], int]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A job, and the end of the pipe that its worker writes to."""
    read, write = os.pipe()
    yield Job(pid=0, pipe=read, alive=-1, kind=Checked), write
    os.close(read)
    os.close(write)


def sent(pipe: Pipe, *events: Any) -> Job[Checked]:
    job, write = pipe
    for event in events:
        os.write(write, json.dumps(event).encode() + b"\n")
        job.receive()
    return job


def test_events_are_heard_and_the_last_one_is_the_result(pipe: Pipe) -> None:
    heard: list[Any] = []
    job, write = pipe
    job.hear = heard.append
    green = CheckResult("test", "make test", True, 0, 1.5)
    line = json.dumps(
        {"event": "done", "value": as_json(Checked(checks=[green], commit="c0"))}
    ).encode()
    sent(pipe, {"event": "view", "name": "line"})
    for piece in (line[:7], line[7:] + b"\n"):
        os.write(write, piece)
        job.receive()
    assert heard == [{"event": "view", "name": "line"}]
    assert job.value == Checked(checks=[green], commit="c0")


@pytest.mark.parametrize(
    ("raised", "error"),
    [
        (RalphError, RalphError), (BadInput, BadInput), (NeedsPerson, NeedsPerson), (StopNow, StopNow),
        (AgentUnavailable, AgentUnavailable), (TryLater, TryLater), (WorkerDied, WorkerDied),
        (ZeroDivisionError, RalphError),
    ],
)  # fmt: skip
def test_an_error_is_raised_as_what_it_was(
    raised: type[Exception], error: type[Exception]
) -> None:
    def work(*_: object) -> Checked:
        raise raised("why")

    job = start(work, Checked, lambda _: None, [])
    while job.open:
        time.sleep(0.01)
        job.receive()
    job.end(frozenset())
    with pytest.raises(error, match="why") as found:
        assert job.value
    assert type(found.value) is error


def test_a_worker_that_raises_anything_else_dies_and_is_no_second_loop(
    tmp_path: Path,
) -> None:
    loop = os.getpid()

    def work(*_: object) -> Checked:
        raise SystemExit

    try:
        job = start(work, Checked, lambda _: None, [])
    finally:
        if os.getpid() != loop:
            (tmp_path / "second").touch()
            os._exit(1)
    while job.open:
        time.sleep(0.01)
        job.receive()
    job.end(frozenset())
    with pytest.raises(WorkerDied):
        assert job.value
    assert not (tmp_path / "second").exists()


def test_a_result_survives_the_pipe_and_numbers_that_an_agent_made_up_are_cut() -> None:
    result = AgentResult(
        Outcome.FAILED,
        "why",
        usd=1e15,
        tokens=Tokens(10**15, 2, 3),
        exit=0,
        denials=["x"],
    )
    found = made(
        Worked,
        json.loads(
            json.dumps(as_json(Worked(result=result, left="tree", notices=["n"])))
        ),
    )
    assert (found.result.usd, found.result.tokens.input) == (MOST, MOST)
    assert (found.result.exit, found.result.denials, found.left, found.notices) == (
        0,
        ["x"],
        "tree",
        ["n"],
    )
