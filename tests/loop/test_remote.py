"""`ralph worker`, piece by piece: what it lays out, what it sends, how it ends. The loop's end is played here."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from _ralph import __version__
from _ralph.git.git import Git
from _ralph.loop import remote
from _ralph.loop.run import Run
from _ralph.loop.wire import PROTOCOL, Wire
from _ralph.process.process import Control
from tests.conftest import ROOT, Repo
from tests.git.test_branch import work_on
from tests.git.test_workspace import head

Opened = Callable[..., Run]


@pytest.fixture
def pipe() -> Iterator[tuple[Wire, int]]:
    """A wire to write into, and the descriptor from which the other end would read."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    os.set_blocking(read, False)
    yield Wire(0, write, Control()), read
    os.close(read)
    os.close(write)


def sent(read: int) -> list[dict[str, Any]]:
    try:
        return [json.loads(line) for line in os.read(read, 1 << 16).splitlines()]
    except BlockingIOError:
        return []


def job(repo: Repo, **more: Any) -> dict[str, Any]:
    """What every job has."""
    plan = base64.b64encode(repo.read("prd.json").encode()).decode()
    return {
        "files": {"prd.json": plan, "sub/x": ""},
        "refs": {},
        "branch": "ralph/p",
        "base": head(repo),
        **more,
    }


def test_a_job_is_laid_out_and_what_an_older_one_needed_goes(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    base, copy = head(repo), Git.at(repo.path)
    work = work_on(repo, base)
    first = job(repo, refs={"refs/ralph/known/old": work, "refs/tags/v1": base})
    remote._lay_out(first, copy)
    remote._lay_out({**first, "refs": {"refs/ralph/known/new": work}}, copy)
    refs = repo.git(
        "for-each-ref", "--format=%(refname)", "refs/ralph", "refs/tags", "refs/heads/ralph"
    ).split()
    assert refs == ["refs/heads/ralph/p", "refs/ralph/known/new", "refs/tags/v1"]
    assert repo.git("rev-parse", "ralph/p").strip() == base and repo.read("sub/x") == ""
    assert repo.git("symbolic-ref", "HEAD").strip() == "refs/heads/none", "no branch may be checked out there"


def test_logs_are_sent_as_they_grow_and_each_byte_once(tmp_path: Path, pipe: tuple[Wire, int]) -> None:
    wire, read = pipe
    logs = remote._Logs(tmp_path, "0001", wire)
    log = tmp_path / "0001-T1.out"
    (tmp_path / "0002-T2.out").write_text("of another")
    parts = []
    for words in ("one", "one two", "one two"):
        log.write_text(words)
        logs.send()
        parts += [one for one in sent(read) if one["event"] == "log"]
    assert [(one["name"], one["at"], base64.b64decode(one["data"])) for one in parts] == [
        ("0001-T1.out", 0, b"one"), ("0001-T1.out", 3, b" two"),
    ]  # fmt: skip


def test_a_sign_of_life_comes_now_and_then(tmp_path: Path, pipe: tuple[Wire, int]) -> None:
    wire, read = pipe
    logs = remote._Logs(tmp_path, "0001", wire)
    for _ in range(3):
        logs.send()
    assert [one["event"] for one in sent(read)] == ["alive"]


def test_the_attempt_of_a_job(repo: Repo, opened: Opened) -> None:
    repo.plan({"checks": ["true"]}, agent="sh")
    run = opened()
    left = work_on(repo, run.tip)
    given = {
        "task": "T1", "agent": "claude --model x", "left": left, "share": {"usd": 1.5, "tokens": None},
        "number": 2, "iteration": 7, "worker": 1, "base": run.tip, "clean": False, "earlier": "", "baseline": {},
    }  # fmt: skip
    one = remote._attempt_of(given, run)
    assert (one.name, one.command, one.share.usd, one.number) == ("0007-T1", "claude --model x", 1.5, 2)
    assert one.left == run.git.tree(left)
    assert remote._attempt_of({**given, "left": ""}, run).left == ""


def test_what_an_agent_left_is_a_commit_on_its_base(repo: Repo, opened: Opened) -> None:
    repo.write(".gitignore", "made\n")
    repo.commit("ignore")
    repo.plan({"checks": ["true"]}, agent=str(repo.program("../agent", "echo x > work.txt; echo x > made")))
    run = opened()
    given = {"task": "T1", "agent": str(repo.outside / "agent"), "left": "", "share": {}, "number": 1}
    one = remote._attempt_of({**given, "iteration": 1, "base": run.tip}, run)
    found = remote._attempt(run, one)
    assert repo.git("rev-parse", f"{found.left}^").strip() == run.tip
    assert repo.git("show", f"{found.left}:work.txt") == "x\n" and found.ignored == ["made"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"project": "p-1", "prd": "prd.json"}, "unknown kind of job: 'dance'"),
        ({"project": "p-1"}, "unexpected error: KeyError"),
    ],
)
def test_a_job_that_cannot_be_done_is_answered(repo: Repo, asked: dict[str, str], said: str) -> None:
    """By a worker as `--launch` starts it."""
    repo.plan({"checks": ["true"]})
    repo.git("bundle", "create", "-q", "../b", "main")
    bundle = (repo.outside / "b").read_bytes()
    asked_for = {
        **job(repo), "file": len(bundle), "kind": "dance", "prd": "prd.json", "carries": [], "hooks": "", "stays": False,
        "options": {"prompt": None, "verbose": False, "limits": {}},
    }  # fmt: skip
    lines = b"".join(json.dumps(one).encode() + b"\n" for one in (asked, asked_for))
    done = subprocess.run(
        [sys.executable, ROOT / "ralph.py", "worker"], input=lines + bundle, env=repo.env,
        capture_output=True, timeout=60,
    )  # fmt: skip
    hello, *_, answer = [json.loads(line) for line in done.stdout.splitlines()]
    assert (hello["ralph"], hello["protocol"]) == (__version__, PROTOCOL)
    assert (answer["event"], done.returncode) == ("error", 0) and said in answer["said"], done.stderr
    assert repo.alive() == []


def test_without_a_loop_a_worker_ends(repo: Repo) -> None:
    done = subprocess.run(
        [sys.executable, ROOT / "ralph.py", "worker"], stdin=subprocess.DEVNULL, env=repo.env,
        capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (1, "ralph worker: it ended\n")
