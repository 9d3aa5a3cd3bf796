"""examples/slurm.sh, as it stands, on a real Slurm of two nodes: `make test-slurm`."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Repo
from tests.scripts import named
from tests.slurm import Slurm, unpacked

pytestmark = pytest.mark.slurm
PLANS = ("prices", "search")


@pytest.fixture
def slurm(tmp_path: Path) -> Iterator[Slurm]:
    try:
        unpacked()
    except (OSError, subprocess.CalledProcessError) as error:
        pytest.skip(f"Debian's packages of Slurm cannot be had: {error}")
    made = Slurm(tmp_path / "cluster")
    try:
        made.start()
        yield made
    finally:
        made.kill()


def submit(slurm: Slurm, repo: Repo, agent: str) -> str:
    """Two plans of two tasks, which sbatch is told to run; the number of the array."""
    command = repo.agent(agent)
    for plan in PLANS:
        tasks = named({f"{plan}-{i}": f"test -f {plan}-{i}.txt" for i in (1, 2)})
        repo.plan(*tasks, project=plan, agent=command)
        (repo.path / f"plans/{plan}").mkdir(parents=True)
        repo.sh(f"mv prd.json plans/{plan}/")
    tool = repo.tool("ralph", f'exec {sys.executable} -m ralph "$@"')
    env = {**repo.env, **slurm.env, "PATH": f"{tool.parent}:{slurm.env['PATH']}"}
    words = ["sbatch", "--parsable", str(ROOT / "examples/slurm.sh")]
    return subprocess.check_output(words, cwd=repo.path, env=env, text=True).strip()


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
    repo.wait_for("../hung", 90)
    nodes = [repo.read(f"../{plan}-1.begun") for plan in PLANS]
    assert sorted(nodes) == ["n1", "n2"]
    slurm.kill(nodes[1])
    assert slurm.wait_for(f"{number}_0", "COMPLETED", 60)["Restarts"] == "0"
    assert slurm.wait_for(f"{number}_1", "COMPLETED", 120)["Restarts"] == "1"
    assert verdicts(repo, "prices") == ["prices-1 passed", "prices-2 passed"]
    assert verdicts(repo, "search")[0] == "search-1 passed"
    assert verdicts(repo, "search")[-1] == "search-2 passed"
    assert repo.has_landed("search-2.txt", "ralph/search")
