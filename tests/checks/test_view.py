"""What a loop shows goes as JSON lines to the supervisor, never waits for who reads,
and is no more than a person can read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from _ralph.checks.view import Reporter
from _ralph.errors import Stop
from _ralph.model import Verdict
from _ralph.state.records import AttemptEnded
from tests.conftest import within


class Pipe:
    """The pipe of a loop, and what has come through it."""

    def __init__(self) -> None:
        self.read, self.write = os.pipe()
        os.set_blocking(self.read, False)
        self.data = b""

    def reporter(self, stays: bool = True, verbose: bool = False) -> Reporter:
        return Reporter(self.write, stays, verbose)

    def sent(self) -> list[tuple[Any, ...]]:
        """All events so far, by names and arguments."""
        try:
            while piece := os.read(self.read, 1 << 16):
                self.data += piece
        except BlockingIOError:
            pass
        events = [json.loads(line) for line in self.data.splitlines()]
        return [(event["name"], *event["args"]) for event in events]


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    made = Pipe()
    yield made
    os.close(made.read)
    os.close(made.write)


def test_a_pipe_that_nobody_reads_any_more_ends_no_loop(pipe: Pipe) -> None:
    view = pipe.reporter()
    os.close(pipe.read)
    with within(5):
        view.line("words")
        view.last_word(Stop("once", "why"))
    pipe.read = os.open(os.devnull, os.O_RDONLY)


RECORD = AttemptEnded(verdict=Verdict.PASSED, task="T1", iteration=1)


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({}, "passed | $1"),
        ({"weak": True}, "passed (weak: nothing turned green) | $1"),
        ({"weak": True, "not_run": ["a.py cannot be loaded"]}, "passed (weak: a.py cannot be loaded) | $1"),
        ({"beside": ["lint"]}, "passed (beside red: lint) | $1"),
    ],
)  # fmt: skip
def test_a_pass_says_what_to_look_at(
    pipe: Pipe, more: dict[str, Any], words: str
) -> None:
    pipe.reporter().verdict(replace(RECORD, **more), "$1")
    assert pipe.sent() == [("line", words, "  ", "green")]


LOOKS = '{"type":"assistant","message":{"content":[{"type":"text","text":"I look at prices"}]}}'
