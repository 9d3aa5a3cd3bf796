"""The emulation of macOS: what it shows is there, and where there can be none it says
why."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT, captured
from tests.darwin.__main__ import LINUX_ONLY, why_not

pytestmark = pytest.mark.skipif(sys.platform == "darwin", reason="this is macOS")


def emulated(
    *words: str, path: str = os.environ["PATH"]
) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "tests.darwin", *words]
    return captured(command, ROOT, {**os.environ, "PATH": path})


@pytest.mark.skipif(bool(why_not()), reason=why_not())
def test_every_python_inside_is_one_on_macos() -> None:
    """Also where the environment was cleared; and what is left running is named."""
    is_mac = "import ctypes, os, sys; assert not hasattr(os, 'pidfd_open'); ctypes.CDLL(None).renamex_np; print(sys.platform)"
    lacks = f"for program in {' '.join(LINUX_ONLY)}; do command -v $program; done"
    inside = f'env -i "$0" -c "$1"; {lacks}; sleep 60 & exit 7'
    done = emulated("sh", "-c", inside, sys.executable, is_mac)
    assert (done.returncode, done.stdout) == (7, "darwin\n"), done
    assert done.stderr.startswith("still running: ")
    assert " sleep 60" in done.stderr  # or its shell, with these words


def test_where_there_can_be_no_namespaces_that_is_said(tmp_path: Path) -> None:
    unshare = tmp_path / "unshare"
    for why in ("there is no `unshare` (util-linux)", "unshare: not permitted"):
        done = emulated("false", path=str(tmp_path))
        assert done.returncode == 0
        assert re.fullmatch(rf"skipped: .*{re.escape(why)}\n", done.stdout)
        unshare.write_text("#!/bin/sh\necho unshare: not permitted >&2; exit 1\n")
        unshare.chmod(0o755)
