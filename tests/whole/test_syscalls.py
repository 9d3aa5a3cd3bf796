"""kill -9, a full disk and a failing disk at the system calls on the state files,
through strace. Only the loop makes them; what happens to its workers is in
tests/whole/test_crash.py."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import ROOT, Repo
from tests.whole.test_crash import audit, prepare

pytestmark = pytest.mark.crash
STEP = int(
    os.environ.get("STRACE_STEP", "9")
)  # each takes seconds: every 9th call; 1 is every one
SHARDS = 3
CALLS = (
    *(
        "open",
        "openat",
        "creat",
        "write",
        "writev",
        "pwrite64",
        "fsync",
        "fdatasync",
        "rename",
        "renameat",
    ),
    *(
        "renameat2",
        "unlink",
        "unlinkat",
        "ftruncate",
        "truncate",
        "chmod",
        "fchmod",
        "fchmodat",
        "link",
    ),
    *("linkat", "symlink", "symlinkat", "mkdir", "mkdirat"),
)
# prd.json, progress.txt, the files that become one of them, and the plan's private
# folder.
STATE = re.compile(r"prd\.json|progress\.txt|\.git/ralph/")
READS = re.compile(r"open(at)?\(.*O_RDONLY|<pipe:")
_CALL = re.compile(r"^(\w+)\(")


@dataclass(frozen=True)
class Point:
    """The loop's `number`-th call of this name."""

    name: str
    number: int


@pytest.fixture(scope="module")
def points(tmp_path_factory: pytest.TempPathFactory) -> list[Point]:
    """Every call on a state file of a run that goes well."""
    if shutil.which("strace") is None:
        pytest.skip("strace is not installed")
    repo = Repo(tmp_path_factory.mktemp("points"))
    agent = prepare(repo)
    code, said, log = traced(
        repo, agent, "-e", f"trace={','.join('?' + name for name in CALLS)}"
    )
    if code is None:
        pytest.skip(f"strace may not trace here: {said}")
    assert code == 4, said
    found = state_calls(log)
    assert len(found) > 80, "the calls could not be read from what strace wrote"
    return found


def traced(repo: Repo, agent: str, *words: str) -> tuple[int | None, str, str]:
    """Run ralph under strace, and nothing that it starts: the exit status (None where
    tracing is not permitted), what was said, what strace wrote."""
    log = repo.outside / "strace"
    ralph = subprocess.Popen(
        [sys.executable, str(ROOT / "tests/traced_driver.py"), "run", "-q", "--agent", agent],
        cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    strace = subprocess.Popen(
        ["strace", "-y", "-o", str(log), *words, "-p", str(ralph.pid)],
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        said = ralph.communicate(timeout=120)[1]
        code = ralph.returncode
        complaint = strace.communicate(timeout=30)[1]
    finally:
        for process in (ralph, strace):
            process.kill()
            process.wait(30)
    refused = "Operation not permitted" in complaint or "no tracer came" in said
    return (
        (None if refused else code),
        complaint if refused else said,
        log.read_text(errors="replace"),
    )


def state_calls(log: str) -> list[Point]:
    seen: Counter[str] = Counter()
    found = []
    for line in log.splitlines():
        match = _CALL.match(line)
        if match is None:
            continue
        seen[match[1]] += 1
        if STATE.search(line) and not READS.search(line):
            found.append(Point(match[1], seen[match[1]]))
    return found


def inject(
    tmp_path: Path, point: Point, what: str
) -> tuple[Repo, str, int | None, str, bool | None]:
    """A run in which `what` happens at `point`; whether it did. None if this time
    another call had that number, which is nothing of ours: how often a process is
    waited for is not the same in every run."""
    repo = Repo(tmp_path / f"{point.name}-{point.number}")
    agent = prepare(repo)
    rule = f"inject={point.name}:{what}:when={point.number}"
    code, said, log = traced(repo, agent, "-e", f"trace={point.name}", "-e", rule)
    came: bool | None = "killed by SIGKILL" in log or "(INJECTED)" in log
    if error := next((line for line in log.splitlines() if "(INJECTED)" in line), ""):
        came = True if STATE.search(error) and not READS.search(error) else None
    return repo, agent, code, said, came


# What happens at a call: the exit codes that are allowed then (None is any), and where
# the sweep begins, so that with a step the three of them see different calls.
FAULTS = {
    "signal=SIGKILL": (None, 0),
    "error=ENOSPC": ((4, 75), 1),
    "error=EIO": ((1, 4), 2),
}


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("fault", FAULTS)
def test_a_system_call_that_kills_or_fails_loses_nothing_and_invents_nothing(
    tmp_path: Path,
    points: list[Point],
    fault: str,
    shard: int,
    tally: Callable[[str, int], None],
) -> None:
    exits, third = FAULTS[fault]
    wrong = []
    for point in points[third * STEP // 3 + shard * STEP :: SHARDS * STEP]:
        repo, agent, code, said, came = inject(tmp_path, point, fault)
        try:
            if exits and came is not None:
                assert "Traceback" not in said, said
                assert code in exits, (code, said)
                assert code == 4 or len(said.splitlines()) == 1, said
            audit(repo, agent)
            tally(f"system calls with {fault}", int(came is True))
        except AssertionError as error:
            wrong.append(f"{point}, exit {code}: {str(error)[:600]}")
        shutil.rmtree(repo.outside)
    assert not wrong, "\n".join([f"{len(wrong)} are wrong", *wrong])
