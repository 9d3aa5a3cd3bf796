"""The mark: all that a run started is found by it, and nothing else."""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import psutil
import pytest

from _ralph.process.mark import kill_run

MARKED = "import subprocess, sys\nfrom _ralph.process.mark import mark_run\nmark_run(sys.argv[1])\n"


@pytest.fixture
def started() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def start(stack: ExitStack, run_id: str, then: str) -> psutil.Process:
    """A process that carries a mark, and does `then`; it has said a word when it is ready."""
    words = [sys.executable, "-c", f"{MARKED}{then}", run_id]
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


@pytest.mark.skipif(sys.platform != "linux", reason="the mark that an environment cannot lose is Linux's")
def test_the_mark_outlives_a_cleared_environment(started: ExitStack) -> None:
    run_id = uuid.uuid4().hex
    again = "import os; os.execve('/bin/sh', ['sh', '-c', 'echo ready; exec sleep 600'], {})"
    one = start(started, run_id, again)
    kill_run(run_id)
    assert is_gone(one)
