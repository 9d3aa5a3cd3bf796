"""Marks and notes: all that a run started is found by them, and nothing else."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from _ralph.process import leftovers, process
from _ralph.process.process import Command, Control, run_process


@pytest.fixture
def stack(monkeypatch: pytest.MonkeyPatch) -> Iterator[ExitStack]:
    monkeypatch.setattr(leftovers, "_notes", None)
    with ExitStack() as made:
        made.callback(os.environ.pop, "RALPH_RUN_ID", None)
        yield made


@pytest.fixture
def as_on_macos(monkeypatch: pytest.MonkeyPatch) -> None:
    """Orphans are not adopted, and no environment can be read."""
    monkeypatch.setattr(leftovers, "ADOPTS", False)
    monkeypatch.setattr(psutil.Process, "environ", lambda _: {})


def start(
    stack: ExitStack, then: str, env: dict[str, str] | None = None
) -> psutil.Process:
    """A process in a session of its own that does `then`; it has said a word when it is
    ready."""
    words = [sys.executable, "-c", f"import subprocess, sys, time\n{then}"]
    given: Any = {"stdout": subprocess.PIPE, "text": True, "env": env}
    child = subprocess.Popen(words, start_new_session=True, **given)
    stack.enter_context(child)
    stack.callback(kill_group, child.pid)
    assert child.stdout is not None and child.stdout.readline()
    return psutil.Process(child.pid)


def kill_group(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(pid, signal.SIGKILL)


def marked(stack: ExitStack, run_id: str, notes: Path, then: str) -> psutil.Process:
    """The same, as a part of a run."""
    leftovers.mark_run(run_id, notes)
    return start(stack, then)


def end(run_id: str, notes: Path) -> None:
    """What the next start does."""
    assert process.sweep(0.0, left=leftovers.left_by_run(run_id, notes)) == []


def is_gone(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() == psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


SLEEPS = "print('ready', flush=True); time.sleep(600)"
IN_A_SHELL = "subprocess.run(['sh', '-c', 'echo ready; sleep 600; true'], env={env})"


@pytest.mark.parametrize(
    "then", [SLEEPS, IN_A_SHELL.format(env=None), IN_A_SHELL.format(env={})]
)
def test_what_carries_the_mark_is_killed_with_its_children(
    stack: ExitStack, tmp_path: Path, then: str
) -> None:
    run_id = uuid.uuid4().hex
    one = marked(stack, run_id, tmp_path, then)
    family = [one.pid, *(child.pid for child in one.children(recursive=True))]
    other = marked(stack, uuid.uuid4().hex, tmp_path, SLEEPS)
    end(run_id, tmp_path / "none")
    assert all(map(is_gone, family)) and not is_gone(other.pid)


# What the leader of a session does, with a sleeping child whose output is not its own.
CHILD = "subprocess.Popen(['sleep', '600'], stdout=subprocess.DEVNULL).pid"
GROUP = CHILD.replace("stdout", "process_group=0, stdout")
RUNS_ON = f"print({CHILD}, flush=True); time.sleep(600)"


@pytest.mark.parametrize(
    "then", [RUNS_ON, f"print({CHILD}, flush=True)", f"print({GROUP}, flush=True)"]
)
@pytest.mark.usefixtures("as_on_macos")
def test_a_session_that_was_noted_is_ended(
    stack: ExitStack, tmp_path: Path, then: str
) -> None:
    """Also where its leader has ended, and no environment says whose it is."""
    leftovers.mark_run("first", tmp_path)
    words = [sys.executable, "-c", f"import subprocess, time\n{then}"]
    noted = partial(leftovers.note, os.getpid())
    given: Any = {"stdout": subprocess.PIPE, "preexec_fn": noted}
    with subprocess.Popen(words, start_new_session=True, **given) as leader:
        assert leader.stdout
        child = int(leader.stdout.readline())
        if then is not RUNS_ON:
            leader.wait()
        other = start(stack, SLEEPS)
        end("first", tmp_path)
        assert is_gone(child) and not is_gone(other.pid) and not [*tmp_path.iterdir()]


@pytest.mark.usefixtures("as_on_macos")
def test_a_later_process_with_the_same_id_is_let_be(
    stack: ExitStack, tmp_path: Path
) -> None:
    leftovers.mark_run("first", tmp_path)
    (tmp_path / "a name that nobody gave").touch()
    other = start(stack, SLEEPS)
    noted = tmp_path / f"{os.getpid()}-{other.pid}-"
    noted.touch()
    os.utime(noted, times=(0, other.create_time() - 3600))
    end("first", tmp_path)
    assert not is_gone(other.pid)


def test_a_mark_that_can_be_read_is_enough(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stack: ExitStack
) -> None:
    """It has left its session and its parents; another start of the same command is
    another's."""
    monkeypatch.setattr(leftovers, "ADOPTS", False)
    leaves = "subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'], start_new_session=True, stdout=subprocess.DEVNULL).pid"
    other = start(stack, SLEEPS, {**os.environ, leftovers.START: "another"})
    words = [sys.executable, "-c", f"import subprocess, sys\nprint({leaves})"]
    done = run_process(Command(words, tmp_path, os.environ, 60), Control())
    assert is_gone(int(done.tail)) and not is_gone(other.pid)
