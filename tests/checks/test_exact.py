"""The list of a room: whatever a check or hook did to what setup made is undone, or
seen."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from _ralph.checks import exact

TRACKED = {"a.py", "pkg/b.py", "pkg/inner/c.py"}


def keeps(name: str) -> bool:
    return name == "target" or name.startswith("target/")


@pytest.fixture
def room(tmp_path: Path) -> Path:
    for name in (
        *TRACKED,
        "deps/x.js",
        "deps/bin/tool",
        "pkg/made.txt",
        "target/old",
        ".git/HEAD",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{name}\n")
    (tmp_path / "deps/link").symlink_to("x.js")
    (tmp_path / "deps/empty").mkdir()
    for cache in (
        "__pycache__/a.pyc",
        "pkg/__pycache__/b.pyc",
        "deps/__pycache__/x.pyc",
    ):
        (tmp_path / cache).parent.mkdir()
        (tmp_path / cache).write_text("made by setup\n")
    return tmp_path


def listed(room: Path) -> exact.Listing:
    return exact.listing(room, TRACKED, keeps)


def test_a_list_has_all_that_git_does_not_track(room: Path) -> None:
    assert sorted(listed(room)) == [
        "deps", "deps/__pycache__", "deps/__pycache__/x.pyc", "deps/bin", "deps/bin/tool", "deps/empty",
        "deps/link", "deps/x.js", "pkg/made.txt",
    ]  # fmt: skip


def in_place_edit(room: Path) -> None:
    path = room / "deps/x.js"
    before = path.stat()
    path.write_text("evil/x.js\n"[: before.st_size])
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


def replaced_by(kind: str) -> Callable[[Path], None]:
    def deed(room: Path) -> None:
        path = room / "deps/bin"
        shutil.rmtree(path)
        if kind == "file":
            path.write_text("x")
        elif kind == "link":
            path.symlink_to("/usr/bin")
        elif kind == "fifo":
            os.mkfifo(path)

    return deed


def another_link(room: Path) -> None:
    (room / "deps/link").unlink()
    (room / "deps/link").symlink_to("other")


SPOILS: dict[str, Callable[[Path], object]] = {
    "edited in place, times put back": in_place_edit,
    "removed": lambda room: (room / "deps/x.js").unlink(),
    "made executable": lambda room: (room / "deps/x.js").chmod(0o755),
    "another link": another_link,
    "a folder that is gone": replaced_by(""),
    "a file for a folder": replaced_by("file"),
    "a link for a folder": replaced_by("link"),
    "a fifo for a folder": replaced_by("fifo"),
    "an empty folder that is gone": lambda room: (room / "deps/empty").rmdir(),
    "beside tracked files": lambda room: (room / "pkg/made.txt").write_text("other"),
}


@pytest.mark.parametrize("deed", SPOILS)
def test_what_setup_made_is_not_changed_unseen(room: Path, deed: str) -> None:
    wanted = listed(room)
    SPOILS[deed](room)
    assert exact.restore(room, TRACKED, keeps, wanted)


UNDONE: dict[str, Callable[[Path], object]] = {
    "a new file": lambda room: (room / "new").write_text("x"),
    "a new file beside setup's": lambda room: (room / "deps/new.js").write_text("x"),
    "a new folder": lambda room: shutil.copytree(
        room / "deps", room / "pkg/copy", symlinks=True
    ),
    "a newline in its name": lambda room: (room / "a\nb").write_text("x"),
    "a name that is no text": lambda room: (room / os.fsdecode(b"\xff")).write_text(
        "x"
    ),
    "a fifo": lambda room: os.mkfifo(room / "pipe"),
    "a nested repository": lambda room: (room / "pkg/.git").mkdir(),
    "a folder that nobody may enter": lambda room: (room / "locked").mkdir(mode=0),
    "another cache of Python": lambda room: (room / "pkg/__pycache__/b.pyc").write_text(
        "evil"
    ),
}


@pytest.mark.parametrize("deed", UNDONE)
def test_what_is_new_goes(room: Path, deed: str) -> None:
    wanted = listed(room)
    UNDONE[deed](room)
    assert exact.restore(room, TRACKED, keeps, wanted) == []
    assert (
        listed(room).keys() == wanted.keys() and not (room / "pkg/__pycache__").exists()
    )


def test_the_same_bytes_under_another_time_are_the_same(room: Path) -> None:
    wanted = listed(room)
    other = room / "deps/other"
    other.write_text("deps/x.js\n")
    other.replace(room / "deps/x.js")
    (room / "deps/bin/tool").touch()
    assert exact.restore(room, TRACKED, keeps, wanted) == []
    assert wanted == listed(room)


def test_what_is_kept_and_git_s_own_folder_are_nobody_s_business(room: Path) -> None:
    wanted = listed(room)
    (room / "target/new").write_text("x")
    (room / ".git/new").write_text("x")
    assert exact.restore(room, TRACKED, keeps, wanted) == []
    assert (room / "target/new").exists() and (room / ".git/new").exists()


def test_files_with_several_names_get_copies_of_their_own(tmp_path: Path) -> None:
    cache, place = tmp_path / "cache", tmp_path / "place"
    (place / "deps").mkdir(parents=True)
    cache.write_text("x\n")
    cache.chmod(0o755)
    os.link(cache, place / "deps/one")
    os.link(cache, place / "deps/two")
    (place / "deps/link").symlink_to("one")
    exact.unshare(place)
    (place / "deps/one").write_text("edited\n")
    assert (cache.read_text(), (place / "deps/two").read_text()) == ("x\n", "x\n")
    assert stat.S_IMODE((place / "deps/one").stat().st_mode) == 0o755
    assert os.readlink(place / "deps/link") == "one"
    assert sorted(os.listdir(place / "deps")) == ["link", "one", "two"]
