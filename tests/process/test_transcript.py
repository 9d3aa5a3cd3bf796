"""A transcript holds the beginning and the end, and no disk that fails stops what it
follows."""

from __future__ import annotations

from pathlib import Path

import pytest

from _ralph.process.transcript import Transcript


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_below_the_cap_all_is_kept(tmp_path: Path, piece: int) -> None:
    data = bytes(range(200)) * 5
    with Transcript(tmp_path / "log", 1000) as log:
        for at in range(0, len(data), piece):
            log.write(data[at : at + piece])
    assert (tmp_path / "log").read_bytes() == data
    assert (tmp_path / "log").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("size", [1001, 5000, 100_000])
def test_beyond_it_the_middle_is_cut(tmp_path: Path, size: int) -> None:
    data = bytes(97 + number % 26 for number in range(size))
    with Transcript(tmp_path / "log", 1000) as log:
        for at in range(0, size, 100):
            log.write(data[at : at + 100])
    found = (tmp_path / "log").read_bytes()
    head, _, rest = found.partition(b"\n[")
    end = rest.removeprefix(b"cut here]\n")
    assert head == data[:125] and data.endswith(end)
    assert len(end) >= 125 and len(found) < 1200


def test_what_stands_in_its_place_is_no_way_out(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    (tmp_path / "log").symlink_to(tmp_path / "mine")
    with Transcript(tmp_path / "log", 1000) as log:
        log.write(b"theirs")
    assert (tmp_path / "mine").read_text() == "mine"
    assert (tmp_path / "log").read_text() == "theirs"
