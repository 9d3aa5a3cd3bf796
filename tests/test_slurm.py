"""examples/slurm.sh, as it stands, on a real Slurm of two nodes: `make test-slurm`."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, Repo
from tests.slurm import Slurm, unpacked

pytestmark = pytest.mark.slurm
PLANS = ("prices", "search")


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    try:
        unpacked()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"Debian's packages of Slurm cannot be had: {error}")
    (tmp_path / "cluster").mkdir()
    made = Slurm(tmp_path / "cluster")
    yield made
    made.kill()


def submit(slurm: Slurm, repo: Repo, agent: str, *slot: str, **top: Any) -> str:
    """Two plans of two tasks, which sbatch is told to run; the number of the array."""
    command = repo.agent(agent)
    for plan in PLANS:
        tasks = [
            {"id": f"{plan}-{i}", "title": "t", "checks": [f"test -f {plan}-{i}.txt"]}
            for i in (1, 2)
        ]
        content = {"project": plan, "agent": command, **top, "userStories": tasks}
        repo.write(f"plans/{plan}/prd.json", json.dumps(content))
    script = f'exec {sys.executable} -m ralph "$@"'
    repo.tool("ralph", script)
    bin = repo.env["PATH"].partition(":")[0]
    env = {**repo.env, **slurm.env, "PATH": f"{bin}:{slurm.env['PATH']}"}
    words = ["sbatch", "--parsable", *slot, str(ROOT / "examples/slurm.sh")]
    done = subprocess.run(words, cwd=repo.path, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def ended(slurm: Slurm, repo: Repo, job: str, state: str) -> dict[str, str]:
    """Wait for a job's state; what Slurm then says of it."""
    logs = [path.read_text() for path in repo.path.glob("ralph-?.log")]
    what = f"{job} to be {state}: {logs}"
    slurm.wait_until(lambda: slurm.job(job)["JobState"] == state, 200, what)
    return slurm.job(job)


def verdicts(repo: Repo, plan: str) -> list[str]:
    from _ralph.state.records import parse

    lines = (repo.path / f"plans/{plan}/progress.txt").read_bytes().split(b"\n")
    found = [record for record in parse(lines) if record["event"] == "verdict"]
    return [f"{record['task']} {record['verdict']}" for record in found]


def test_two_plans_on_two_nodes_one_of_which_dies(slurm: Slurm, repo: Repo) -> None:
    """Both are at work at once. What ran on the node goes on where it stopped."""
    agent = """
        node = os.environ["SLURMD_NODENAME"]
        other = {"prices-1": "search-1", "search-1": "prices-1"}.get(task)
        (OUT / f"{task}.begun").write_text(node)
        while other and not (OUT / f"{other}.begun").exists(): time.sleep(0.05)
        if task == "search-2" and not (OUT / "hung").exists():
            (OUT / "hung").write_text(node)
            time.sleep(600)
        P(f"{task}.txt").touch()
    """
    number = submit(slurm, repo, agent)
    slurm.wait_until((repo.outside / "hung").exists, 90, "search-2")
    nodes = [(repo.outside / f"{plan}-1.begun").read_text() for plan in PLANS]
    assert sorted(nodes) == ["n1", "n2"]
    slurm.kill(nodes[1])
    assert ended(slurm, repo, f"{number}_0", "COMPLETED")["Restarts"] == "0"
    slurm.start_node(nodes[1])
    assert ended(slurm, repo, f"{number}_1", "COMPLETED")["Restarts"] == "1"
    assert verdicts(repo, "prices") == ["prices-1 passed", "prices-2 passed"]
    assert verdicts(repo, "search")[0] == "search-1 passed"
    assert verdicts(repo, "search")[-1] == "search-2 passed"
    assert repo.has_landed("search-2.txt", "ralph/search")


def test_the_end_of_a_slot_and_a_plan_that_needs_a_person(
    slurm: Slurm, repo: Repo
) -> None:
    """ralph gets the signal, and goes on in the next slot; exit 4 ends the job."""
    agent = """
        if task == "prices-2" and not (OUT / "hung").exists():
            (OUT / "hung").touch()
            time.sleep(600)
        if task != "search-1": P(f"{task}.txt").touch()
    """
    # Slurm looks every 30 seconds for signals that are due within the next 30.
    slot = ["--time=2", "--signal=B:TERM@60"]
    number = submit(slurm, repo, agent, *slot, limits={"attempts": 1})
    told = ended(slurm, repo, f"{number}_1", "FAILED")
    assert (told["ExitCode"], told["Restarts"]) == ("4:0", "0")
    told = ended(slurm, repo, f"{number}_0", "COMPLETED")
    assert int(told["Restarts"]) >= 1
    assert "prices-2 interrupted" in verdicts(repo, "prices")
    assert verdicts(repo, "prices")[-1] == "prices-2 passed"
    assert "search-1 failed" in verdicts(repo, "search")
