"""What a loop shows goes as JSON lines to the supervisor, which may have gone away."""

from __future__ import annotations

import json
import os
from typing import Any

from _ralph.checks.view import Reporter
from _ralph.errors import Stop
from _ralph.model import Verdict
from _ralph.state.records import AttemptEnded
from tests.conftest import cases, within


def test_a_pipe_that_nobody_reads_any_more_ends_no_loop() -> None:
    read, write = os.pipe()
    os.close(read)
    view = Reporter(write, stays=True, verbose=False)
    with within(5):
        view.line("words")
        view.last_word(Stop("once", "why"))
    os.close(write)


@cases("""
more                                                 said
{}                                                   passed | $1
{"weak": true}                                       passed (weak: nothing turned green) | $1
{"weak": true, "not_run": ["a.py cannot be loaded"]}  passed (weak: a.py cannot be loaded) | $1
{"beside": ["lint"]}                                 passed (beside red: lint) | $1
""")
def test_a_pass_says_what_to_look_at(more: str, said: str) -> None:
    given: dict[str, Any] = json.loads(more)
    record = AttemptEnded(verdict=Verdict.PASSED, task="T1", iteration=1, **given)
    read, write = os.pipe()
    Reporter(write, stays=True, verbose=False).verdict(record, "$1")
    sent = json.loads(os.read(read, 9999))
    assert sent == {"name": "line", "args": [said, "  ", "green"]}
    for end in read, write:
        os.close(end)
