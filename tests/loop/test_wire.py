"""The wire: messages and files come whole, and nothing that the other end sends hangs or fills this one."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from _ralph.loop import wire as module
from _ralph.loop.wire import Broken, Wire
from _ralph.process.process import Control
from tests.test_files import within


@pytest.fixture
def ends() -> Iterator[tuple[Wire, Wire]]:
    """The two ends of a wire."""
    pairs = [os.pipe(), os.pipe()]
    for fd in (pairs[0][1], pairs[1][1]):
        os.set_blocking(fd, False)
    with within(30):
        yield Wire(pairs[0][0], pairs[1][1], Control()), Wire(pairs[1][0], pairs[0][1], Control())


def test_messages_and_their_files_come_whole(ends: tuple[Wire, Wire], tmp_path: Path) -> None:
    here, there = ends
    data = os.urandom(30_000)
    (tmp_path / "sent").write_bytes(data)
    there.send({"event": "done", "said": "\u00e9\n"}, tmp_path / "sent")
    there.send({"event": "next"})
    message = here.message(5)
    assert message == {"event": "done", "said": "\u00e9\n", "file": 30_000}
    assert here.file(message, tmp_path / "got", 5).read_bytes() == data
    assert here.message(5)["event"] == "next"


def test_a_banner_is_skipped_only_before_the_first_message(ends: tuple[Wire, Wire]) -> None:
    here, there = ends
    os.write(there.write, b'Welcome\n\n{"not": "ours"}\n{"event": "hello"}\nWelcome\n')
    assert here.message(5, begins="event") == {"event": "hello"}
    with pytest.raises(Broken, match="not a message"):
        here.message(5)


@pytest.mark.parametrize("size", [-1, 1 << 40, "7", None])
def test_a_file_of_no_size_is_not_taken(ends: tuple[Wire, Wire], tmp_path: Path, size: object) -> None:
    with pytest.raises(Broken, match="wants to send"):
        ends[0].file({"file": size}, tmp_path / "got", 5)


def test_every_wait_has_an_end(ends: tuple[Wire, Wire], monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = ends
    with pytest.raises(Broken, match="in time"):
        here.message(0.05)
    monkeypatch.setattr(module, "_SENDING", 0.3)
    with pytest.raises(Broken, match="in time"):  # nobody reads
        there.send({"event": "x" * 1_000_000})
    here.control.stop_signal = 15
    with pytest.raises(Broken, match="stopped"):
        here.message(60)


def test_a_line_without_an_end_and_an_end_without_a_line(
    ends: tuple[Wire, Wire], monkeypatch: pytest.MonkeyPatch
) -> None:
    here, there = ends
    monkeypatch.setattr(module, "LONGEST_LINE", 1000)
    os.write(there.write, b"x" * 3000)
    with pytest.raises(Broken, match="without an end"):
        here.message(5)
    os.close(there.write)
    here.rest.clear()
    with pytest.raises(Broken, match="it ended"):
        here.message(5)


def test_the_last_line_of_stderr_is_kept(ends: tuple[Wire, Wire]) -> None:
    here, _ = ends
    here.err, write = os.pipe()
    assert here.stderr_tail() == ""
    os.write(write, b"x" * 10_000 + b"\nno route to host\n\n")
    os.close(write)
    assert here.stderr_tail() == "no route to host"
