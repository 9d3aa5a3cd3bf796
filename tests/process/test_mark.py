"""The mark: all that a run started is found by it, and nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from _ralph.process.mark import kill_run, mark_run


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        stack.callback(os.environ.pop, "RALPH_RUN_ID", None)
        yield stack


def start(stack: ExitStack, run_id: str, then: str) -> psutil.Process:
    """A process that carries a mark, and does `then`; it has said a word when it is ready."""
    mark_run(run_id)
    words = [sys.executable, "-c", f"import subprocess\n{then}"]
    child = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE, text=True))
    stack.callback(child.kill)
    assert child.stdout is not None and child.stdout.readline()
    return psutil.Process(child.pid)


def is_gone(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


SLEEPS = "print('ready', flush=True); import time; time.sleep(600)"
IN_A_SHELL = "subprocess.run(['sh', '-c', 'echo ready; sleep 600; true'], env={env})"


@pytest.mark.parametrize("then", [SLEEPS, IN_A_SHELL.format(env=None), IN_A_SHELL.format(env={})])
def test_what_carries_the_mark_is_killed_with_its_children(started: ExitStack, then: str) -> None:
    run_id = uuid.uuid4().hex
    one = start(started, run_id, then)
    below = one.children(recursive=True)
    other = start(started, uuid.uuid4().hex, SLEEPS)
    kill_run(run_id)
    assert all(map(is_gone, [one, *below])) and not is_gone(other)
