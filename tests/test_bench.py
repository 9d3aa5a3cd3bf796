"""The benchmarks still run; what they say is for `make bench`, on a quiet machine."""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, captured

# As `python benchmarks/bench.py`, with one round of few attempts: nobody looks at the
# figures here.
FEW = "from benchmarks import bench; bench.MANY, bench.TASKS, bench.ROUNDS = 1, 4, -3; bench.main()"


def measure(table: Path, *figures: str) -> list[tuple[str, float]]:
    """What was measured, row by row, and quickly."""
    words = [sys.executable, "-c", FEW, *figures, "--markdown", str(table)]
    done = captured(words, ROOT, {**os.environ, "BENCH_SCALE": "0.01"})
    assert done.returncode == 0, done.stderr
    assert done.stdout == table.read_text()
    rows = []
    for line in done.stdout.splitlines():
        if " | at most " in line:
            cells = line.split(" | ")
            rows.append((cells[0], float(cells[4].split()[0])))
    return rows


def test_two_figures_make_a_table(tmp_path: Path) -> None:
    version, git = measure(tmp_path / "table.md", "version", "git")
    assert version[0] == "| ralph --version"
    assert version[1] > 0
    assert git[0] == "| an attempt that passes"
    # what one run took more than another: on a busy machine also less
    assert math.isfinite(git[1])


@pytest.mark.crash
@pytest.mark.skipif(sys.platform != "linux", reason="they look into /proc")
def test_figures_of_several_loops(tmp_path: Path) -> None:
    jobs, loop = measure(tmp_path / "table.md", "jobs", "loop")
    assert jobs[0] == "| 16 tasks of 5 s with 4 loops"
    assert 1 < jobs[1] < 16
    assert 0 < loop[1] < 25  # MB; a figure that a busy machine does not change
