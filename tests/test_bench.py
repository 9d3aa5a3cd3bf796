"""The benchmarks still run; what they say is for `make bench`, on a quiet machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.conftest import ROOT

# As `python benchmarks/bench.py`, with one round of few attempts: nobody looks at the
# figures here.
FEW = "from benchmarks import bench; bench.MANY, bench.TASKS, bench.ROUNDS = 1, 4, -3; bench.main()"


def measure(*figures: str) -> list[tuple[str, float]]:
    """What these figures are of, and their values, quickly."""
    words = [sys.executable, "-c", FEW, *figures]
    env = {**os.environ, "BENCH_SCALE": "0.01"}
    printed = subprocess.check_output(words, cwd=ROOT, env=env, text=True, timeout=120)
    found = []
    for line in printed.splitlines():
        if " | at most " in line:
            what, _, _, _, value, *_ = line.removeprefix("| ").split(" | ")
            found.append((what, float(value.split()[0])))
    return found


def test_a_figure_makes_a_row() -> None:
    ((what, value),) = measure("help")
    assert what == "ralph --help" and value > 0


@pytest.mark.crash
@pytest.mark.skipif(sys.platform != "linux", reason="they look into /proc")
def test_figures_of_attempts_and_loops() -> None:
    jobs, git, idle = measure("jobs", "git", "idle")
    assert git[0] == "an attempt that passes"
    assert 1 < jobs[1] < 16
    assert 0 < idle[1] < 1000
