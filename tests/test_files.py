"""Files that survive: atomic writes, and reads that follow no trap."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from _ralph import files
from tests.conftest import ROOT, Repo, captured, cases, within

pytestmark = pytest.mark.usefixtures("nothing_hangs")
TRAPS = ["fifo", "directory", "symlink", "dangling", "loop", "device", "missing"]


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`code` in a process of its own, with ralph's parts at hand."""
    head = "import os, resource, signal, sys; from pathlib import Path; from _ralph import files\n"
    head += "path = Path(sys.argv[1])\n"
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}
    return captured([sys.executable, "-c", head + code, *words], ROOT, env)


def lay(trap: str, path: Path, elsewhere: Path) -> None:
    """Put a trap where a file is expected."""
    if trap == "fifo":
        os.mkfifo(path)
    elif trap == "directory":
        path.mkdir()
        (path / "inside").write_bytes(b"EVIL")
    elif trap != "missing":
        named = {"loop": path.name, "device": "/dev/zero", "dangling": "nowhere"}
        path.symlink_to(named.get(trap, elsewhere))


# ---------------------------------------------------------------- writes


@cases("""
    umask  wanted
    022    0o644
    077    0o600
    002    0o664
""")
def test_a_new_file_gets_the_mode_that_open_would_give_it(
    tmp_path: Path, umask: str, wanted: str
) -> None:
    code = f"os.umask(0o{umask}); files.atomic_write(path, b'new')"
    done = python(code, str(tmp_path / "f"))
    assert done.returncode == 0, done.stderr
    assert oct(mode(tmp_path / "f")) == wanted


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can own the files of others")
def test_a_file_keeps_its_owner_and_a_new_one_takes_that_of_its_folder(
    tmp_path: Path,
) -> None:
    os.chown(tmp_path, 1234, 2345)
    for name in ("old", "new"):
        path = tmp_path / name
        if name == "old":
            path.write_bytes(b"old")
            path.chmod(0o640)
            os.chown(path, 3456, 4567)
        files.atomic_write(path, b"first")
        files.replace_if(path, b"second", b"first")
        files.append(path, b"third")
    files.append(tmp_path / "log", b"new")
    owners = {}
    for path in tmp_path.iterdir():
        about = path.stat()
        owners[path.name] = f"{about.st_uid} {about.st_gid}"
    assert owners == {"old": "3456 4567", "new": "1234 2345", "log": "1234 2345"}
    assert mode(tmp_path / "old") == 0o640


@pytest.mark.parametrize("stands", [b"new", b"", b"ol"])
def test_what_somebody_saved_is_not_replaced(tmp_path: Path, stands: bytes) -> None:
    path = tmp_path / "f"
    path.write_bytes(stands)
    when = path.stat().st_mtime_ns
    assert not files.replace_if(path, b"ours", b"old")
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (stands, when)
    assert os.listdir(tmp_path) == ["f"]


WRITES: dict[str, tuple[bytes, ...]] = {"atomic_write": (), "replace_if": (b"old",)}
"""What each is told beside the path and the new bytes."""


@pytest.mark.parametrize("link", ["real/f", "absolute", "chain"])
@pytest.mark.parametrize("write", WRITES)
def test_a_replaced_file_keeps_its_mode_and_its_link(
    tmp_path: Path, link: str, write: str
) -> None:
    target, path = tmp_path / "real/f", tmp_path / "link"
    target.parent.mkdir()
    target.write_bytes(b"old")
    target.chmod(0o640)
    (tmp_path / "chained").symlink_to("real/f")
    said = {"absolute": str(target), "chain": "chained"}.get(link, link)
    path.symlink_to(said)
    getattr(files, write)(path, b"new", *WRITES[write])
    assert not files.replace_if(path, b"newer", b"old")
    assert os.readlink(path) == said
    assert os.listdir(target.parent) == ["f"]
    assert target.read_bytes() == b"new"
    assert mode(target) == 0o640


@pytest.mark.parametrize("size", [0, 1, 4095, 200_000])
@pytest.mark.parametrize("write", WRITES)
def test_a_failed_write_leaves_the_old_file_whole(
    tmp_path: Path, size: int, write: str
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(0o640)
    code = f"""
resource.setrlimit(resource.RLIMIT_FSIZE, ({size}, {size}))
try: files.{write}(path, b'x' * 250_000, *{WRITES[write]})
except OSError as error: print(error.errno)
"""
    done = python(code, str(path))
    assert done.stdout.strip() == str(errno.EFBIG), done.stderr
    assert path.read_bytes() == b"old"
    assert mode(path) == 0o640
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize("trap", ["symlink", "directory", "fifo"])
def test_append_refuses_a_trap(tmp_path: Path, trap: str) -> None:
    path = tmp_path / "f"
    (tmp_path / "elsewhere").write_bytes(b"")
    lay(trap, path, tmp_path / "elsewhere")
    with within(0.5), pytest.raises(OSError):
        files.append(path, b"x")
    assert (tmp_path / "elsewhere").read_bytes() == b""


@pytest.mark.parametrize("can", [True, False])
def test_what_is_written_stays_in_no_cache_of_the_drive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, can: bool
) -> None:
    """macOS has a call for that, which not every file system takes."""
    full: list[int] = []
    plain: list[int] = []

    def control(_fd: int, call: int) -> None:
        full.append(call)
        if not can:
            raise OSError(errno.ENOTSUP, "not supported")

    monkeypatch.setattr(fcntl, "F_FULLFSYNC", 51, raising=False)
    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "fsync", plain.append)
    files.atomic_write(tmp_path / "f", b"new")
    files.append(tmp_path / "g", b"new")
    # Each file, and the name of each
    assert full == [51] * 4
    assert len(plain) == (0 if can else 4)


# ---------------------------------------------------------------- reads


@pytest.mark.parametrize("trap", TRAPS)
def test_read_regular_reads_no_trap(tmp_path: Path, trap: str) -> None:
    (tmp_path / "elsewhere").write_bytes(b"secret")
    lay(trap, tmp_path / "f", tmp_path / "elsewhere")
    with within(2):
        assert files.read_regular(tmp_path / "f") is None


# ---------------------------------------------------------------- what goes


@pytest.mark.parametrize("trap", TRAPS)
def test_a_cleared_path_is_free_for_a_new_file(tmp_path: Path, trap: str) -> None:
    (tmp_path / "elsewhere").write_bytes(b"stays")
    lay(trap, tmp_path / "f", tmp_path / "elsewhere")
    with within(2):
        files.clear(tmp_path / "f").write_bytes(b"new")
    assert files.read_regular(tmp_path / "f") == b"new"
    assert (tmp_path / "elsewhere").read_bytes() == b"stays"


def test_a_link_to_a_folder_is_cleared_and_the_folder_stays(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "inside").write_bytes(b"stays")
    (tmp_path / "f").symlink_to("folder")
    assert not os.path.lexists(files.clear(tmp_path / "f"))
    assert (tmp_path / "folder" / "inside").read_bytes() == b"stays"


def nest(folder: Path, depth: int) -> None:
    folder.mkdir()
    here = os.open(folder, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir("d", dir_fd=here)
        below = os.open("d", os.O_RDONLY, dir_fd=here)
        os.close(here)
        here = below
    os.mkfifo(".gitignore", dir_fd=here)
    os.close(here)


def test_a_folder_of_any_depth_is_removed(repo: Repo) -> None:
    nest(repo.outside / "nested", 1500)
    assert not files.clear(repo.outside / "nested").exists()
