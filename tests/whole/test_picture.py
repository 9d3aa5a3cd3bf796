"""The picture in the README is what a terminal shows."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

from tests import picture


def test_the_picture_of_a_run_is_what_a_terminal_shows() -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as scratch:
        folder = Path(scratch).resolve()
        drawn = picture.svg(picture.play(folder)[0], folder)
    shown = picture.words((picture.DOCS / "night.svg").read_text("utf-8"))
    assert shown == picture.words(drawn), "run: python -m tests.picture"
    told = "\n".join(shown)
    for event in ("iteration 1 |", "before the work: check", "passed |", "failed: ", "blocked: ", "$0.12"):
        assert event in told
    assert drawn.count(picture.COLOURS["green"]) > 3 and drawn.count(picture.COLOURS["red"]) > 3


def test_the_picture_of_the_report_is_small() -> None:
    data = (picture.DOCS / "report.png").read_bytes()
    width, height = struct.unpack(">II", data[16:24])
    assert data.startswith(b"\x89PNG") and len(data) < 150_000
    assert (width, height) == (900, 660)
