"""Files that survive: atomic writes, reads that follow no trap, safety copies put back."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from _ralph import files
from _ralph.ends import BadInput
from _ralph.guard import Guard
from _ralph.workspace import GitTree
from tests.conftest import ROOT, Repo


class Hangs(AssertionError):
    """No OSError, which the code under test may catch."""


@contextlib.contextmanager
def within(seconds: float) -> Iterator[None]:
    """A failure instead of a test that hangs, on a FIFO for instance."""

    def ring(_number: int, _frame: FrameType | None) -> None:
        raise Hangs(f"not done within {seconds} s")

    before = signal.signal(signal.SIGALRM, ring)
    outer, _ = signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, outer)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture(autouse=True)
def nothing_hangs() -> Iterator[None]:
    with within(20):
        yield


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def python(code: str, *words: str) -> subprocess.CompletedProcess[str]:
    """`code` in a process of its own, with ralph's parts at hand."""
    head = "import os, resource, signal, sys; from pathlib import Path; from _ralph import files\n"
    return subprocess.run(
        [sys.executable, "-c", head + code, *words],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)},
        capture_output=True, text=True, timeout=20,
    )  # fmt: skip


# ---------------------------------------------------------------- atomic_write, append


@pytest.mark.parametrize("bits", [0o644, 0o600, 0o755, 0o400, 0o666])
def test_an_atomic_write_keeps_the_mode(tmp_path: Path, bits: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    path.chmod(bits)
    files.atomic_write(path, b"new")
    assert (path.read_bytes(), mode(path)) == (b"new", bits)
    files.atomic_write(path, b"newer", 0o640)
    assert (path.read_bytes(), mode(path)) == (b"newer", 0o640)
    assert os.listdir(tmp_path) == ["f"]


@pytest.mark.parametrize(("umask", "wanted"), [("022", 0o644), ("077", 0o600), ("002", 0o664)])
def test_a_new_file_gets_the_mode_that_open_would_give_it(tmp_path: Path, umask: str, wanted: int) -> None:
    done = python(
        f"os.umask(0o{umask})\n"
        "files.atomic_write(Path(sys.argv[1]), b'new')\n"
        f"assert os.umask(0) == 0o{umask}",
        str(tmp_path / "f"),
    )
    assert done.returncode == 0, done.stderr
    assert mode(tmp_path / "f") == wanted


@pytest.mark.parametrize("link", ["real/f", "absolute", "chain"])
def test_a_symlink_stays_a_symlink(tmp_path: Path, link: str) -> None:
    (tmp_path / "real").mkdir()
    target = tmp_path / "real" / "f"
    target.write_bytes(b"old")
    (tmp_path / "chained").symlink_to("real/f")
    said = {"absolute": str(target), "chain": "chained"}.get(link, link)
    (tmp_path / "link").symlink_to(said)
    files.atomic_write(tmp_path / "link", b"new")
    assert os.readlink(tmp_path / "link") == said
    assert target.read_bytes() == b"new"
    assert os.listdir(tmp_path / "real") == ["f"]


@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 200_000])
def test_a_failed_write_leaves_the_old_file_whole(tmp_path: Path, size: int) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old" * 100)
    path.chmod(0o640)
    done = python(
        "resource.setrlimit(resource.RLIMIT_FSIZE, (int(sys.argv[2]),) * 2)\n"
        "try: files.atomic_write(Path(sys.argv[1]), b'x' * 250_000)\n"
        "except OSError as error: print(error.errno)",
        str(path), str(size),
    )  # fmt: skip
    assert done.stdout.strip() == "27", done.stderr  # EFBIG
    assert (path.read_bytes(), mode(path)) == (b"old" * 100, 0o640)
    assert os.listdir(tmp_path) == ["f"]


KILLED = (
    "os.replace = lambda *_: os.kill(os.getpid(), signal.SIGKILL)\n"
    "files.atomic_write(Path(sys.argv[1]), b'new' * 1000)"
)


def test_a_write_that_is_killed_leaves_the_old_file_whole(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"old")
    assert python(KILLED, str(path)).returncode == -signal.SIGKILL
    assert path.read_bytes() == b"old"


def test_what_a_killed_write_leaves_is_not_taken_for_work(repo: Repo, tmp_path: Path) -> None:
    repo.plan({})
    repo.commit("plan")
    state = [repo.path / "prd.json", repo.path / "progress.txt"]
    (tmp_path / "private").mkdir()
    tree = GitTree(repo.path, tmp_path / "private", state)
    tree.begin(resuming=False)
    before = tree.snapshot()
    for path in state:
        assert python(KILLED, str(path)).returncode == -signal.SIGKILL
    assert len(list(repo.path.glob(".p*"))) == 2
    again = GitTree(repo.path, tmp_path / "private", state)
    again.begin(resuming=True)
    assert again.snapshot() == before
    assert not list(repo.path.glob(".p*"))


def test_append_adds_and_makes(tmp_path: Path) -> None:
    path = tmp_path / "f"
    files.append(path, b"one\n")
    files.append(path, b"two\n")
    assert path.read_bytes() == b"one\ntwo\n"


@pytest.mark.parametrize(
    "trap",
    ["symlink", "directory",
     "fifo"],
)  # fmt: skip
def test_append_refuses_a_trap(tmp_path: Path, trap: str) -> None:
    path = tmp_path / "f"
    (tmp_path / "elsewhere").write_bytes(b"")
    lay(trap, path, tmp_path / "elsewhere")
    with within(0.5), pytest.raises(OSError):
        files.append(path, b"x")
    assert (tmp_path / "elsewhere").read_bytes() == b""


# ---------------------------------------------------------------- read_regular, move_aside


def lay(trap: str, path: Path, elsewhere: Path) -> None:
    """Put a trap where a file is expected."""
    if trap == "fifo":
        os.mkfifo(path)
    elif trap == "directory":
        path.mkdir()
        (path / "inside").write_bytes(b"EVIL")
    elif trap != "missing":
        named = {"symlink": str(elsewhere), "loop": path.name, "device": "/dev/zero", "dangling": "nowhere"}
        path.symlink_to(named[trap])


@pytest.mark.parametrize("trap", ["fifo", "directory", "symlink", "dangling", "loop", "device", "missing"])
def test_read_regular_reads_no_trap(tmp_path: Path, trap: str) -> None:
    (tmp_path / "elsewhere").write_bytes(b"secret")
    lay(trap, tmp_path / "f", tmp_path / "elsewhere")
    with within(2):
        assert files.read_regular(tmp_path / "f") is None


@pytest.mark.parametrize("data", [b"", b"text\n", bytes(range(256)) * 1000])
def test_read_regular_reads_a_file(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "f").write_bytes(data)
    assert files.read_regular(tmp_path / "f") == data


@pytest.mark.parametrize("trap", ["fifo", "directory", "symlink", "dangling", "loop"])
def test_move_aside_moves_the_thing_itself(tmp_path: Path, trap: str) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.write_bytes(b"stays")
    kinds = []
    for number in (1, 2, 3):
        lay(trap, tmp_path / "f", elsewhere)
        before = (tmp_path / "f").lstat()
        with within(2):
            kept = files.move_aside(tmp_path / "f", tmp_path / "a" / "side", "f")
        assert kept == tmp_path / "a" / "side" / f"f-{number}"
        assert kept.lstat().st_ino == before.st_ino
        kinds.append(stat.S_IFMT(kept.lstat().st_mode))
        assert not os.path.lexists(tmp_path / "f")
    assert len(set(kinds)) == 1
    assert elsewhere.read_bytes() == b"stays"


def test_move_aside_of_nothing_is_nothing(tmp_path: Path) -> None:
    assert files.move_aside(tmp_path / "f", tmp_path / "aside", "f") is None
    assert not (tmp_path / "aside").exists()


@pytest.mark.parametrize("trap", ["fifo", "directory", "symlink", "dangling", "loop", "device", "missing"])
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


@pytest.mark.parametrize(
    ("limit", "wanted"), [(-1, b"12345"), (0, b""), (3, b"123"), (5, b"12345"), (9, b"12345")]
)
def test_read_regular_reads_no_more_than_asked(tmp_path: Path, limit: int, wanted: bytes) -> None:
    (tmp_path / "f").write_bytes(b"12345")
    assert files.read_regular(tmp_path / "f", limit) == wanted


@pytest.fixture
def other_disk(tmp_path: Path) -> Iterator[Path]:
    """A folder on another file system than `tmp_path`, as the state directory of --no-git may be."""
    import shutil
    import tempfile

    shared = Path("/dev/shm")
    if not shared.is_dir() or shared.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system here")
    made = Path(tempfile.mkdtemp(dir=shared))
    yield made
    shutil.rmtree(made)


@pytest.mark.parametrize(
    "trap",
    ["fifo", "symlink", "dangling",
     "directory"],
)  # fmt: skip
def test_move_aside_to_another_disk(tmp_path: Path, other_disk: Path, trap: str) -> None:
    (tmp_path / "elsewhere").write_bytes(b"stays")
    lay(trap, tmp_path / "f", tmp_path / "elsewhere")
    with within(2):
        files.move_aside(tmp_path / "f", other_disk, "f")
    assert not os.path.lexists(tmp_path / "f")
    assert (tmp_path / "elsewhere").read_bytes() == b"stays"


def test_a_file_moved_to_another_disk_is_kept(tmp_path: Path, other_disk: Path) -> None:
    (tmp_path / "f").write_bytes(b"found")
    kept = files.move_aside(tmp_path / "f", other_disk / "aside", "f")
    assert kept is not None
    assert kept.read_bytes() == b"found"


def test_a_folder_moved_to_another_disk_is_kept(tmp_path: Path, other_disk: Path) -> None:
    (tmp_path / "d/e").mkdir(parents=True)
    (tmp_path / "d/e/f").write_bytes(b"found")
    os.mkfifo(tmp_path / "d/fifo")
    with within(2):
        kept = files.move_aside(tmp_path / "d", other_disk / "aside", "d")
    assert kept is not None and not (tmp_path / "d").exists()
    assert (kept / "e/f").read_bytes() == b"found"


# ---------------------------------------------------------------- Guard: safety copies


class Kept:
    """A guarded file, plain or reached through a symlink, and what an agent could do to it."""

    def __init__(self, folder: Path, linked: bool) -> None:
        self.folder = folder
        self.path = folder / "prd.json"
        self.target = folder / "plans" / "real.json" if linked else self.path
        self.link = "plans/real.json" if linked else None
        self.target.parent.mkdir(exist_ok=True)
        self.target.write_bytes(b"ours")
        self.target.chmod(0o640)
        if self.link:
            self.path.symlink_to(self.link)
        self.elsewhere = folder / "elsewhere"
        self.elsewhere.write_bytes(b"EVIL")

    def guard(self) -> Guard:
        return Guard(self.folder / "safety", self.folder / "aside")

    def whole(self) -> bool:
        link = os.readlink(self.path) if self.path.is_symlink() else None
        if files.read_regular(self.target) != b"ours":
            return False
        return (link, mode(self.target)) == (self.link, 0o640)


def replace_by(trap: str) -> Callable[[Path, Path], None]:
    def change(path: Path, elsewhere: Path) -> None:
        path.unlink()
        lay(trap, path, elsewhere)

    return change


def hard_link(path: Path, other: Path) -> None:
    path.unlink()
    os.link(other, path)


def rewritten(path: Path, _: Path) -> None:
    path.unlink()
    path.write_bytes(b"ours")


def same_time(path: Path, _: Path) -> None:
    """An edit of the same size that sets the times back."""
    before = path.stat()
    path.write_bytes(b"EVIL")
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


CHANGES: dict[str, Callable[[Path, Path], object]] = {
    "edited": lambda path, _: path.write_bytes(b"EVIL"),
    "edited, times set back": same_time,
    "appended": lambda path, _: path.write_bytes(b"oursEVIL"),
    "emptied": lambda path, _: path.write_bytes(b""),
    "deleted": lambda path, _: path.unlink(),
    "symlink": replace_by("symlink"),
    "dangling symlink": replace_by("dangling"),
    "symlink to itself": replace_by("loop"),
    "device": replace_by("device"),
    "fifo": replace_by("fifo"),
    "directory": replace_by("directory"),
    "hard link to another": hard_link,
    "hard link made": lambda path, other: os.link(path, other.with_name("second")),
    "replaced": lambda path, other: os.replace(other, path),
    "chmod 000": lambda path, _: path.chmod(0),
    "made executable": lambda path, _: path.chmod(0o755),
}


@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize("linked", [False, True], ids=["plain", "linked"])
@pytest.mark.parametrize("change", CHANGES)
def test_every_change_is_put_back(tmp_path: Path, change: str, linked: bool, fresh: bool) -> None:
    kept = Kept(tmp_path, linked)
    guard = kept.guard()
    guard.take([kept.path])
    CHANGES[change](kept.target, kept.elsewhere)
    assert not kept.whole() or change == "hard link made"
    guard = kept.guard() if fresh else guard
    with within(2):
        assert list(guard.restore()) == [kept.path]
    assert kept.whole()
    assert kept.target.stat().st_nlink == 1
    assert change == "replaced" or kept.elsewhere.read_bytes() == b"EVIL"
    with within(2):
        assert guard.restore() == {}  # once is enough
        assert kept.guard().restore() == {}


RETARGETED: dict[str, Callable[[Path, Path], object]] = {
    "deleted": lambda path, _: path.unlink(),
    "pointed elsewhere": replace_by("symlink"),
    "a file of its own": rewritten,
    "fifo": replace_by("fifo"),
    "directory": replace_by("directory"),
}


@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize("change", RETARGETED)
def test_a_link_is_put_back_too(tmp_path: Path, change: str, fresh: bool) -> None:
    kept = Kept(tmp_path, linked=True)
    guard = kept.guard()
    guard.take([kept.path])
    RETARGETED[change](kept.path, kept.elsewhere)
    with within(2):
        assert list((kept.guard() if fresh else guard).restore()) == [kept.path]
    assert kept.whole()
    assert kept.elsewhere.read_bytes() == b"EVIL"


@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize("linked", [False, True], ids=["plain", "linked"])
def test_the_version_that_was_found_is_kept(tmp_path: Path, linked: bool, fresh: bool) -> None:
    kept = Kept(tmp_path, linked)
    guard = kept.guard()
    guard.take([kept.path])
    for number in (1, 2):
        kept.target.write_bytes(b"found %d" % number)
        found = (kept.guard() if fresh else guard).restore()[kept.path]
        assert found is not None
        assert found.read_bytes() == b"found %d" % number


@pytest.mark.parametrize("fresh", [False, True], ids=["same process", "after a restart"])
@pytest.mark.parametrize("trap", ["file", "fifo", "directory", "symlink", "dangling", "loop"])
def test_what_was_not_there_goes_again(tmp_path: Path, trap: str, fresh: bool) -> None:
    there, absent = Kept(tmp_path, linked=False), tmp_path / "AGENTS.md"
    guard = there.guard()
    guard.take([there.path, absent])
    if trap == "file":
        absent.write_bytes(b"EVIL")
    else:
        lay(trap, absent, there.elsewhere)
    with within(2):
        assert list((there.guard() if fresh else guard).restore()) == [absent]
    assert not os.path.lexists(absent)
    assert there.elsewhere.read_bytes() == b"EVIL"


def test_the_folder_may_go_with_the_file(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    kept = Kept(tmp_path / "sub", linked=False)
    guard = Guard(tmp_path / "safety", tmp_path / "aside")
    guard.take([kept.path])
    os.rename(tmp_path / "sub", tmp_path / "moved")
    assert guard.restore() == {kept.path: None}
    assert kept.whole()


def test_a_file_in_the_place_of_the_folder_is_moved_off(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    kept = Kept(tmp_path / "sub", linked=False)
    guard = Guard(tmp_path / "safety", tmp_path / "aside")
    guard.take([kept.path])
    os.rename(tmp_path / "sub", tmp_path / "moved")
    (tmp_path / "sub").write_bytes(b"EVIL")
    guard.restore()
    assert kept.whole()


def test_a_link_in_the_place_of_a_folder_is_moved_off(tmp_path: Path) -> None:
    folder = tmp_path / "top" / "sub"
    folder.mkdir(parents=True)
    kept = Kept(folder, linked=False)
    guard = Guard(tmp_path / "safety", tmp_path / "aside")
    guard.take([kept.path])
    os.rename(tmp_path / "top", tmp_path / "moved")
    (tmp_path / "top").symlink_to("moved")
    assert list(guard.restore()) == [kept.path]
    assert kept.whole() and not (tmp_path / "top").is_symlink()
    assert (tmp_path / "moved/sub/prd.json").read_bytes() == b"ours"


@pytest.mark.parametrize("trap", [b"gitdir: ../real\n", None])
def test_git_s_folder_that_was_moved_is_left_where_it_is(tmp_path: Path, trap: bytes | None) -> None:
    git = tmp_path / ".git"
    git.mkdir()
    kept = Kept(git, linked=False)
    Guard(git / "safety", git / "aside").take([kept.path])
    os.rename(git, tmp_path / "real")
    guard = Guard(tmp_path / "real/safety", tmp_path / "real/aside")
    if trap is None:
        git.symlink_to("real")
        guard.restore()
        assert kept.whole() and git.is_symlink()
        return
    git.write_bytes(trap)
    with pytest.raises(BadInput, match=r"\.git \(gitdir: \.\./real\); move that away"):
        guard.restore()
    assert git.read_bytes() == trap


@pytest.mark.parametrize("linked", [False, True])
def test_what_nobody_touched_is_left_alone(tmp_path: Path, linked: bool) -> None:
    kept = Kept(tmp_path, linked)
    guard = kept.guard()
    guard.take([kept.path, tmp_path / "absent"])
    before = kept.target.stat().st_ino
    assert guard.restore() == {}
    assert kept.guard().restore() == {}
    assert kept.target.stat().st_ino == before
    assert not (tmp_path / "aside").exists()


def test_the_last_copies_taken_are_the_ones_put_back(tmp_path: Path) -> None:
    kept = Kept(tmp_path, linked=False)
    guard = kept.guard()
    guard.take([kept.path])
    files.atomic_write(kept.path, b"ours, marked")
    guard.take([kept.path])
    kept.path.write_bytes(b"EVIL")
    kept.guard().restore()
    assert kept.path.read_bytes() == b"ours, marked"


def test_a_hard_link_from_before_is_no_change(tmp_path: Path) -> None:
    kept = Kept(tmp_path, linked=False)
    os.link(kept.path, tmp_path / "second")
    kept.guard().take([kept.path])
    assert kept.guard().restore() == {}


@pytest.mark.parametrize("lost", ["manifest.json", "."])
def test_lost_safety_copies_do_not_let_a_change_pass(tmp_path: Path, lost: str) -> None:
    import shutil

    kept = Kept(tmp_path, linked=False)
    guard = kept.guard()
    guard.take([kept.path])
    if lost == ".":
        shutil.rmtree(tmp_path / "safety")
    else:
        (tmp_path / "safety" / lost).unlink()
    kept.path.write_bytes(b"EVIL")
    with contextlib.suppress(OSError):  # an error that ends the run is as good as a restored file
        guard.restore()
        assert kept.whole()


def test_copies_of_what_was_are_not_hoarded(tmp_path: Path) -> None:
    guard, path = Guard(tmp_path / "safety", tmp_path / "aside"), tmp_path / "prd.json"
    for number in range(3):
        path.write_text(f"version {number}")
        guard.take([path])
        guard.release()
    assert [copy.read_text() for copy in (tmp_path / "safety").iterdir()] == ["version 2"]
    assert list(guard._data.values()) == [b"version 2"]


def test_nothing_to_copy_is_fine(tmp_path: Path) -> None:
    guard = Guard(tmp_path / "private" / "safety", tmp_path / "aside")
    guard.take([tmp_path / "AGENTS.md"])
    (tmp_path / "AGENTS.md").write_bytes(b"EVIL")
    assert list(guard.restore()) == [tmp_path / "AGENTS.md"]


def test_a_copy_that_cannot_be_made_stops_the_attempt(tmp_path: Path) -> None:
    kept = Kept(tmp_path, linked=False)
    (tmp_path / "safety").write_bytes(b"a file where the folder should be")
    with pytest.raises(OSError):
        kept.guard().take([kept.path])


def test_the_manifest_is_for_the_next_process(tmp_path: Path) -> None:
    kept = Kept(tmp_path, linked=False)
    kept.guard().take([kept.path])
    manifest = json.loads((tmp_path / "safety" / "manifest.json").read_bytes())
    assert list(manifest) == [str(kept.path)]
    copy = tmp_path / "safety" / manifest[str(kept.path)]["copy"]
    assert (copy.read_bytes(), mode(copy)) == (b"ours", 0o600)
