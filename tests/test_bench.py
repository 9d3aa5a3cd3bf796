"""The benchmarks still run; what they say is for `make bench`, on a quiet machine."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT

# As `python benchmarks/bench.py`, with one round of few attempts: nobody looks at the figures here.
FEW = "from benchmarks import bench; bench.MANY, bench.ROUNDS = 1, -3; bench.main()"


def test_three_figures_make_a_table(tmp_path: Path) -> None:
    table = tmp_path / "table.md"
    done = subprocess.run(
        [sys.executable, "-c", FEW, "version", "status", "git", "--markdown", str(table)],
        cwd=ROOT,
        env={**os.environ, "BENCH_SCALE": "0.01"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == table.read_text()
    rows = [line.split(" | ") for line in done.stdout.splitlines() if " x | at most " in line]
    names = ["| ralph --version", "| ralph status, 100 tasks", "| an attempt that passes"]
    assert [row[0] for row in rows] == names
    version, status, git = (float(row[4].removesuffix(" x")) for row in rows)
    assert version > 0 and status > 0
    assert math.isfinite(git)  # what one run took more than another: on a busy machine also less
