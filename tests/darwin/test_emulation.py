"""The emulation of macOS: what it shows is there, and where there can be none it says
why."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT
from tests.darwin.__main__ import LINUX_ONLY, why_not

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="this is macOS")


def emulated(
    *words: str, path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.darwin", *words]
    env = {**os.environ, "PATH": path}
    return subprocess.run(
        command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=60
    )


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_every_python_inside_is_one_on_macos() -> None:
    """Also where the environment was cleared; and what is left running is named."""
    is_mac = "import ctypes, os, sys; assert not hasattr(os, 'pidfd_open'); ctypes.CDLL(None).renamex_np; print(sys.platform)"
    lacks = f"for program in {' '.join(LINUX_ONLY)}; do command -v $program; done"
    done = emulated(
        "sh",
        "-c",
        f'env -i "$0" -c "$1"; {lacks}; sleep 60 & exit 7',
        sys.executable,
        is_mac,
    )
    assert (done.returncode, done.stdout) == (7, "darwin\n"), done
    assert (
        done.stderr.startswith("still running: ") and " sleep 60" in done.stderr
    )  # or its shell, with these words


def test_where_there_can_be_no_namespaces_that_is_said(tmp_path: Path) -> None:
    missing = emulated("false", path=str(tmp_path))
    (tmp_path / "unshare").write_text(
        "#!/bin/sh\necho unshare: not permitted >&2; exit 1\n"
    )
    (tmp_path / "unshare").chmod(0o755)
    denied = emulated("false", path=str(tmp_path))
    for done, why in (
        (missing, "there is no `unshare` (util-linux)"),
        (denied, "unshare: not permitted"),
    ):
        assert (
            done.returncode == 0
            and done.stdout.startswith("skipped: ")
            and done.stdout.endswith(f"{why}\n")
        )
