"""Power cuts: copies of a small disk, taken while a run goes on and without a sync,
each mounted and audited. What was never fsynced is not in them: nothing else shows that
an fsync is missing."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from _ralph.state.records import parse
from tests.conftest import Repo
from tests.whole.test_crash import audit, prepare

pytestmark = pytest.mark.crash
CUTS = int(os.environ.get("POWER_CUTS", "24"))
# The journal is written only where somebody asks for it, and renames wait for no data:
# the worst that a disk may do. With ext4's defaults a missing fsync would show only now
# and then.
OPTIONS = "loop,commit=300,noauto_da_alloc,noatime"
# A missing fsync of a folder cannot show: ext4 writes names in order.
# tests/whole/test_mutants.py has it.
FAULTS = {
    "none": "",
    "no fsync": "import os\nos.fsync = lambda fd: None",
    "no sync of the tree": "from _ralph.git import git\ngit.Git.sync = lambda self: None",
    "no sync by git": "from _ralph.git import git\ngit._SETTINGS.append('core.fsync=none')",
}


@dataclass
class Cut:
    """A disk as the power cut left it, and the notes as they stood at that moment."""

    image: Path
    notes: bytes

    @property
    def durable(self) -> bytes:
        """The notes without the last record: it may have been under way."""
        end = self.notes.rstrip().rfind(b"\n## ")
        return self.notes[: max(end, 0)]


def call(*words: str | Path) -> None:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, timeout=60
    )
    if done.returncode != 0:
        raise OSError(f"{words[0]}: {done.stderr}")


@contextlib.contextmanager
def mounted(image: Path, point: Path) -> Iterator[None]:
    call("mount", "-o", OPTIONS, image, point)
    try:
        yield
    finally:
        for _ in range(50):
            if (
                subprocess.run(
                    ["umount", str(point)], capture_output=True, timeout=60
                ).returncode
                == 0
            ):
                break
            time.sleep(0.1)
        else:
            call("umount", "-l", point)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Path]]:
    """An image with a file system, and where it is mounted."""
    if os.geteuid() != 0 or shutil.which("mkfs.ext4") is None:
        pytest.skip("needs root and mkfs.ext4, for a disk of its own")
    image, point = tmp_path / "image", tmp_path / "disk"
    point.mkdir()
    with image.open("wb") as file:
        file.truncate(64 << 20)
    call("mkfs.ext4", "-q", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
    try:
        with mounted(image, point):
            pass
    except OSError as error:
        pytest.skip(f"no loop device can be mounted here: {error}")
    yield image, point


def cut_power(repo: Repo, image: Path, driver: Path, agent: str) -> Iterator[Cut]:
    """Copies of the disk while a run goes on. It is held for the moment of a copy, so
    that this is one moment, and nothing is flushed for it."""
    run = subprocess.Popen(
        [sys.executable, str(driver), "run", "-q", "--agent", agent],
        cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        for number in range(CUTS):
            time.sleep(0.06 + 0.02 * (number % 3))
            if run.poll() is not None:
                break
            with held(repo):
                copy = image.with_name(f"cut-{number}")
                shutil.copyfile(image, copy)
                notes = repo.path / "progress.txt"
                cut = Cut(copy, notes.read_bytes() if notes.exists() else b"")
            yield cut
    finally:
        repo.kill()
        run.wait(30)
        repo.gone_within(5)


@contextlib.contextmanager
def held(repo: Repo) -> Iterator[None]:
    processes = repo.alive()
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.send_signal(signal.SIGSTOP)
    end = time.monotonic() + 5
    while time.monotonic() < end and not all(map(_stands, processes)):
        time.sleep(0.005)
    try:
        yield
    finally:
        for process in processes:
            with contextlib.suppress(psutil.Error):
                process.send_signal(signal.SIGCONT)


def _stands(process: psutil.Process) -> bool:
    with contextlib.suppress(psutil.Error):
        return process.status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    return True


def audit_cut(repo: Repo, cut: Cut, agent: str) -> None:
    """What had been written down is there; the same command again ends as if nothing
    had happened."""
    notes = repo.path / "progress.txt"
    found = notes.read_bytes() if notes.exists() else b""
    assert found.startswith(cut.durable), (
        "a record that was followed by another one is lost"
    )
    verdicts = [
        r
        for r in parse(cut.durable.splitlines())
        if r["event"] == "verdict" and r.get("run")
    ]
    finished = {r["task"] for r in verdicts if r["verdict"] == "passed"}
    for running in repo.path.glob(
        ".git/ralph/*/running.json"
    ):  # the machine starts again
        running.write_text(running.read_text().replace('"boot": "', '"boot": "not '))
    audit(repo, agent, finished)
    repo.git("log", "-p", "--all")


def notes_of(repo: Repo) -> str:
    notes = repo.path / "progress.txt"
    return notes.read_text(errors="replace") if notes.exists() else ""


def power_cuts(
    disk: tuple[Path, Path], fault: str, name: str = "work"
) -> tuple[int, list[str]]:
    """How many copies were audited, and what was wrong with them."""
    image, point = disk
    wrong = []
    with mounted(image, point):
        repo = Repo(point / name)
        agent = prepare(repo)
        driver = point / "driver.py"
        driver.write_text(
            f"{FAULTS[fault]}\nimport sys, ralph\nsys.argv[0] = 'ralph'\nralph.main()\n"
        )
        call("sync", "-f", point)
        cuts = list(cut_power(repo, image, driver, agent))
    for cut in cuts:
        with mounted(cut.image, point):
            try:
                audit_cut(repo, cut, agent)
            except (AssertionError, OSError, ValueError) as error:
                heads = [
                    line
                    for line in notes_of(repo).splitlines()
                    if line.startswith(("## ", "- reason"))
                ]
                wrong.append(
                    "\n".join([f"{cut.image.name}: {str(error)[:600]}", *heads])
                )
            repo.kill()
            repo.gone_within(5)
        cut.image.unlink()
    return len(cuts), wrong


def test_a_power_cut_loses_nothing_that_was_written_down(
    disk: tuple[Path, Path], tally: Callable[[str, int], None]
) -> None:
    count, wrong = power_cuts(disk, "none")
    tally("power cuts", count)
    assert count > 5 and not wrong, "\n".join(
        [f"{len(wrong)} of {count} are wrong", *wrong]
    )


@pytest.mark.parametrize("fault", [fault for fault in FAULTS if fault != "none"])
def test_without_a_sync_a_power_cut_is_seen(
    disk: tuple[Path, Path], fault: str, tally: Callable[[str, int], None]
) -> None:
    count, wrong = power_cuts(disk, fault)
    for number in range(3):  # what else syncs all disks just then hides it
        if not wrong:
            more, wrong = power_cuts(disk, fault, f"work-{number}")
            count += more
    tally(f"power cuts that showed a mutant: {fault}", len(wrong))
    assert wrong, f"none of {count} copies shows it"
