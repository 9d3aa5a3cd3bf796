"""The benchmarks still run; what they say is for `make bench`, on a quiet machine."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

# As `python benchmarks/bench.py`, with one round of few attempts: nobody looks at the
# figures here.
FEW = "from benchmarks import bench; bench.MANY, bench.TASKS, bench.ROUNDS = 1, 4, -3; bench.main()"


def measure(table: Path, *figures: str) -> list[list[str]]:
    """The rows of these figures, and quickly."""
    done = subprocess.run(
        [sys.executable, "-c", FEW, *figures, "--markdown", str(table)], cwd=ROOT,
        env={**os.environ, "BENCH_SCALE": "0.01"}, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout == table.read_text()
    return [
        line.split(" | ") for line in done.stdout.splitlines() if " | at most " in line
    ]


def test_two_figures_make_a_table(tmp_path: Path) -> None:
    rows = measure(tmp_path / "table.md", "version", "git")
    names = ["| ralph --version", "| an attempt that passes"]
    assert [row[0] for row in rows] == names
    version, git = (float(row[4].removesuffix(" x")) for row in rows)
    assert version > 0
    assert math.isfinite(
        git
    )  # what one run took more than another: on a busy machine also less


@pytest.mark.crash
@pytest.mark.skipif(sys.platform != "linux", reason="they look into /proc")
def test_figures_of_several_loops(tmp_path: Path) -> None:
    jobs, loop = measure(tmp_path / "table.md", "jobs", "loop")
    assert (
        jobs[0] == "| 16 tasks of 5 s with 4 loops"
        and 1 < float(jobs[4].removesuffix(" x")) < 16
    )
    assert (
        0 < float(loop[4].removesuffix(" MB")) < 25
    )  # a figure that a busy machine does not change
