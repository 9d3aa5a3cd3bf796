"""git: deadlines, errors with a way on, and settings that an agent cannot change."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import psutil
import pytest

from _ralph.errors import BadInput, RalphError, StopNow
from _ralph.git import git as module
from _ralph.git.git import Git, Late, freeze_settings, setting
from tests.conftest import Repo


@pytest.fixture
def slow(repo: Repo) -> Git:
    """A repository where `git add` takes a minute: a filter sleeps, in a process of its
    own."""
    repo.git("config", "filter.slow.clean", "echo $$ > .git/pid; exec sleep 60")
    repo.write(".gitattributes", "* filter=slow\n")
    repo.write("new.txt", "x")
    return Git.at(repo.path)


def test_a_call_ends_at_its_deadline_with_all_that_it_started(slow: Git) -> None:
    with pytest.raises(Late, match=r"git add did not end within 0\.5 s"):
        slow("add", "-A", timeout=0.5)
    end = time.monotonic() + 5
    while is_alive(int((slow.dir / "pid").read_text())):
        assert time.monotonic() < end
        time.sleep(0.05)


DRIVE = """
#include <stdio.h>
#include <stdlib.h>
int sync_volume_np(const char *path, int flags) {
    FILE *said = fopen(getenv("SAID"), "w");
    fprintf(said, "%s %d", path, flags);
    fclose(said);
    return REFUSED;
}
"""


@pytest.mark.skipif(
    sys.platform == "darwin", reason="it stands for a call that this system has"
)
@pytest.mark.parametrize("answer", ["0", "no such call"])
def test_objects_leave_the_cache_of_the_drive_too(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: str
) -> None:
    """The command of macOS, beside a library that has its call; without that call,
    too."""
    monkeypatch.setattr(module, "_SYNC", [sys.executable, "-ISc", module._FLUSH])
    monkeypatch.setenv("SAID", str(tmp_path / "said"))
    if answer != "no such call":
        if not shutil.which("cc"):
            pytest.skip("needs a C compiler")
        (tmp_path / "drive.c").write_text(DRIVE.replace("REFUSED", answer))
        words = ["cc", "-shared", "-fPIC", "-o", "drive.so", "drive.c"]
        subprocess.run(words, cwd=tmp_path, check=True)
        monkeypatch.setenv("LD_PRELOAD", str(tmp_path / "drive.so"))
    git = Git.at(repo.path)
    git.sync()
    if answer != "no such call":
        assert (tmp_path / "said").read_text() == f"{git.common} 3"


def is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_a_call_ends_soon_once_ralph_must_stop(
    slow: Git, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HURRY", 0.3)
    stop = (slow.calls.control, "stop_signal", signal.SIGTERM)
    threading.Timer(0.3, setattr, stop).start()
    with pytest.raises(StopNow):
        slow("add", "-A")


def test_a_merge_may_take_its_whole_time(
    repo: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_HURRY", 0.3)
    repo.git("checkout", "-q", "-b", "next")
    repo.write(".gitattributes", "* filter=slow\n")
    repo.commit("next")
    repo.git("checkout", "-q", "-")
    repo.git("config", "filter.slow.smudge", "exec sleep 60")
    git = Git.at(repo.path)
    git.calls.control.stop_signal = signal.SIGTERM
    with pytest.raises(Late):
        git("merge", "-q", "--ff-only", "next", timeout=1.5)


def test_an_error_has_the_words_of_git_and_a_way_on(repo: Repo) -> None:
    git = Git.at(repo.path)
    with pytest.raises(RalphError, match=r"git show failed: fatal: .*nothing"):
        git("show", "nothing")
    assert git.maybe("rev-parse", "--verify", "-q", "nothing") is None
    repo.write(".git/config", "[core\n")
    with pytest.raises(BadInput, match=r"git cannot work here; .*bad config"):
        git("status")


def test_a_call_that_a_signal_ended_is_no_answer(repo: Repo) -> None:
    git = Git.at(repo.path)
    git.calls.program = str(repo.tool("git", "kill -9 $$"))
    with pytest.raises(RalphError, match="git status failed: exit -9"):
        git.maybe("status")


def test_settings_in_the_environment_are_kept(
    repo: Repo, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As CI has them: a person's own come first, and the frozen files beside them."""
    monkeypatch.setenv("GIT_CONFIG_COUNT", "1")
    monkeypatch.setenv("GIT_CONFIG_KEY_0", "url.https://token@x.invalid/.insteadOf")
    monkeypatch.setenv("GIT_CONFIG_VALUE_0", "https://x.invalid/")
    monkeypatch.setenv("GIT_CONFIG_PARAMETERS", "'user.name'='Zoe'")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "zoe@example.invalid")
    monkeypatch.setenv("GIT_INDEX_FILE", "/nowhere")
    git = Git.at(repo.path)
    freeze_settings(git, tmp_path)
    repo.write("x.pyc", "x")
    assert git.names("ls-files", "-o", "--exclude-standard", "-z") == []
    assert git("var", "GIT_AUTHOR_IDENT").startswith("Zoe <zoe@example.invalid>")
    asked = git("ls-remote", "--get-url", "https://x.invalid/a.git")
    assert asked == "https://token@x.invalid/a.git\n"


@pytest.mark.parametrize("key", ["a.b", 'a.s"u\\b.c.b'])
def test_a_setting_is_read_back_as_it_was(tmp_path: Path, repo: Repo, key: str) -> None:
    value = ' a "quoted" \\ one,\ttab\nand line # ; no comment '
    (tmp_path / "config").write_text(setting(f"{key}\n{value}"))
    words = ("config", "--file", str(tmp_path / "config"), "-z", "--get", key)
    assert Git.at(repo.path)(*words) == f"{value}\0"
