"""`ralph demo` keeps what it promises, also for a user with the oddest of settings."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import psutil

from tests.conftest import ROOT, captured

SAID = (
    "The agent is a script",
    "not committed, so the agent will not see them: todo.py",
    "and it is green",  # for the agent; in the clean room it fails
    "out is ignored by git and not part of the work",
    "Act 3.",
    "the agent is still running",
    "todo: 4 of 5 passed, 1 blocked",
    "Processes left of all that: 0.",
    "In a project of your own",
)
"""What the demo shows, in this order."""
VERDICTS = "T-1 failed, T-1 passed, T-2 failed, T-2 passed, T-3 passed, T-4 interrupted, T-4 passed, T-5 failed, T-5 failed"


def demo(folder: Path, mark: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the demo with no home, no locale and with variables that would lead it
    astray."""
    env |= {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "DEMO_TEST": mark}
    for odd in ("HOME", "GIT_DIR", "RALPH_PLACES"):
        env[odd] = "/nonexistent"
    env |= {"LC_ALL": "C", "RALPH_RUN_ID": "of another run"}
    words = [sys.executable, "-m", "ralph", "demo", str(folder)]
    return captured(words, folder.parent, env)


def git(folder: Path, *words: str) -> list[str]:
    done = captured(["git", *words], folder)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def left_with(mark: str) -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("DEMO_TEST") == mark:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def test_the_demo_keeps_its_promises(tmp_path: Path) -> None:
    folder, mark = tmp_path / "my demo", uuid.uuid4().hex
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    done = demo(folder, mark, TMPDIR=str(scratch))
    assert done.returncode == 0, done.stdout + done.stderr
    assert left_with(mark) == []
    assert list(scratch.iterdir()) == []

    said = " ".join(done.stdout.split())
    position = 0
    for shown in SAID:
        position = said.index(shown, position)
    assert (folder / ".ralph/report.html").exists()
    assert "\x1b" not in done.stdout

    tasks = json.loads((folder / "prd.json").read_text("utf-8"))["userStories"]
    assert [task["passes"] for task in tasks] == [True] * 4 + [False]
    assert git(folder, "log", "--format=%s", "HEAD") == ["A to-do list"]
    landed = git(folder, "log", "--reverse", "--format=%s", "main..ralph/todo")
    assert landed == [f"{task['id']}: {task['title']}" for task in tasks[:4]]
    assert git(folder, "diff", "--name-only", "main", "ralph/todo") == ["todo.py"]
    status = ", ".join(git(folder, "status", "--porcelain"))
    assert status == " M prd.json,  M todo.py, ?? progress.txt"

    notes = (folder / "progress.txt").read_text("utf-8")
    verdicts = re.findall(r"\| (T-\d) .* \| (failed|passed|interrupted)", notes)
    assert ", ".join(map(" ".join, verdicts)) == VERDICTS

    # what it ends with can be typed
    env = {"PATH": os.environ["PATH"], "HOME": str(scratch), "GIT_PAGER": "cat"}
    env["RALPH_PLACES"] = str(scratch)
    typed = done.stdout.partition("Answer the question")[2].partition("\n")[2]
    done = captured(["sh", "-ec", typed.partition("\n\n")[0]], tmp_path, env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every task passes" in done.stdout


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    done = demo(tmp_path)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]
