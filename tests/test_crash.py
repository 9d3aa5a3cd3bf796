"""kill -9, or a full disk, at every state-changing call of a whole run; then the same command again, and an audit."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo

# Cheats before it works: what it flips and forges must not count, wherever the kill falls.
AGENT = """
P("../runs").open("a").write(task + "\\n")
plan = P("prd.json")
plan.write_text(plan.read_text().replace('"passes": false', '"passes": true'))
P("progress.txt").open("a").write('<!-- ralph {"v":1,"event":"verdict","plan":"p@","iteration":1,'
    '"task":"T3","title":"task 3","verdict":"passed","tree":"","head":"","message":"x","prd_before":"","prd_after":""} -->\\n')
P("guarded_test.txt").write_text("gutted")
if task == "T3" or (task == "T1" and attempt == 1):
    P(f"{task}.txt").write_text(f"bad {attempt}")
else:
    P(f"{task}.txt").write_text("good")
"""


def prepare(repo: Repo) -> str:
    repo.write("guarded_test.txt", "real\n")
    repo.commit("test")
    tasks = [{"checks": [f"grep -q good T{i}.txt"]} for i in (1, 2, 3)]
    repo.plan(
        *tasks, checks=["grep -q real guarded_test.txt"], protect=["guarded_test.txt"], limits={"attempts": 2}
    )
    return repo.agent(AGENT)


def crash(repo: Repo, agent: str, at: int, how: str) -> int:
    env: dict[str, Any] = {"CRASH_COUNT": str(repo.outside / "count"), "CRASH_AT": str(at), "CRASH_HOW": how}
    done = repo.ralph("run", "-q", "--agent", agent, first="import tests.crash_driver", **env)
    assert "Traceback" not in done.stderr, done.stderr
    return done.returncode


def runs_of(repo: Repo) -> list[str]:
    path = repo.outside / "runs"
    return path.read_text().split() if path.exists() else []


def finished_tasks(repo: Repo) -> set[str]:
    """The tasks that the records call passed, those apart that the agent forged."""
    if not (repo.path / "progress.txt").exists():
        return set()
    return {r["task"] for r in repo.records("verdict") if r["verdict"] == "passed" and r.get("run")}


def audit(repo: Repo, agent: str, known: set[str] | None = None) -> None:
    """Go on, and hold the end against what must be true however it came about; `known` are the
    tasks that are finished, if not only the records say so."""
    assert repo.gone_within(2.0), "a process outlived the kill"
    finished = finished_tasks(repo) if known is None else known
    before = runs_of(repo)
    code, _, printed = repo.run(agent)
    assert code == 4, printed
    assert repo.passed() == ["T1", "T2"]
    again = runs_of(repo)[len(before) :]
    assert not finished & set(again), f"finished tasks were worked again: {again}"
    plan = json.loads(repo.read("prd.json"))
    assert "2 failed attempts" in plan["userStories"][2]["blocked"]
    verdicts = repo.verdicts()
    assert verdicts.count("T1 passed") == verdicts.count("T2 passed") == 1
    assert "T3 passed" not in verdicts and verdicts.count("T3 failed") == 2
    assert repo.read("guarded_test.txt") == "real\n"
    subjects = repo.git("log", "--format=%s", "main..ralph/p").splitlines()
    assert [s for s in subjects if s.startswith("T")] == ["T2: task 2", "T1: task 1"]
    for task in ("T1", "T2"):
        record = next(r for r in repo.records("verdict") if r["task"] == task and r["verdict"] == "passed")
        commit = repo.git("log", "--format=%H", f"--grep=^{task}: ", "ralph/p").strip()
        names = set(repo.git("ls-tree", "-r", "--name-only", commit).split())
        assert names - {"prd.json", "progress.txt"} == set(
            repo.git("ls-tree", "-r", "--name-only", record["tree"]).split()
        )
    assert repo.git("status", "--porcelain") == ""
    assert not (repo.path / "T3.txt").exists()
    assert not repo.alive()


def count(repo: Repo, agent: str) -> int:
    assert crash(repo, agent, 0, "count") == 4
    return int((repo.outside / "count").read_text())


def test_the_run_that_is_swept_is_whole_without_a_crash(repo: Repo) -> None:
    agent = prepare(repo)
    calls = count(repo, agent)
    print(f"{calls} state-changing calls")
    assert calls > 100
    audit(repo, agent)


STEP = int(os.environ.get("CRASH_STEP", "41"))
SHARDS = 6
HOWS = ("before", "half", "after", "full")


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> int:
    counted = Repo(tmp_path_factory.mktemp("count"))
    return count(counted, prepare(counted))


@pytest.mark.parametrize("shard", range(SHARDS))
def test_kill_9_at_a_call_loses_nothing_and_invents_nothing(
    tmp_path: Path, calls: int, shard: int, tally: Callable[[str, int], None]
) -> None:
    """Every STEP-th call of a whole run, each with another way to die; CRASH_STEP=1 is every one."""
    for number in range(1 + shard * STEP, calls + 1, SHARDS * STEP):
        how = HOWS[(number // STEP) % 4]
        repo = Repo(tmp_path / f"{number}-{how}")
        agent = prepare(repo)
        code = crash(repo, agent, number, how)
        try:
            expected = code in (4, 75) if how == "full" else code != 4 or number > calls - 5
            assert expected, f"exit {code} at call {number} of {calls}"
            audit(repo, agent)
            tally("crash points", 1)
        except AssertionError as error:
            raise AssertionError(f"call {number} of {calls}, {how}: {error}") from None
