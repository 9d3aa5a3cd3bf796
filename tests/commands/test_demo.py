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

QUESTION = "Shall `remove` delete an item for good, or move it to an archive?"
ROOT = Path(__file__).resolve().parent.parent.parent


def demo(folder: Path, mark: str = "", **env: str) -> subprocess.CompletedProcess[str]:
    """Run the demo with no home, no locale and with variables that would lead it
    astray."""
    odd = {
        "HOME": "/nonexistent", "LC_ALL": "C", "PYTHONPATH": str(ROOT), "DEMO_TEST": mark,
        "GIT_DIR": "/nonexistent", "RALPH_PLACES": "/nonexistent", "RALPH_RUN_ID": "of another run",
    }  # fmt: skip
    return subprocess.run(
        [sys.executable, "-m", "ralph", "demo", str(folder)],
        cwd=folder.parent, env={"PATH": os.environ["PATH"], **odd, **env}, timeout=150,
        stdin=subprocess.DEVNULL, capture_output=True, text=True,
    )  # fmt: skip


def told_to_type(said: str) -> str:
    """The commands that the demo ends with, for its own repository."""
    return (
        said.partition("Answer the question")[2].partition("\n")[2].partition("\n\n")[0]
    )


def git(folder: Path, *words: str) -> list[str]:
    done = subprocess.run(
        ["git", *words], cwd=folder, capture_output=True, text=True, check=True
    )
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
    assert "The agent is a script" in said and "no model, no key" in said
    assert (
        "the agent is still running" in said
        and "Processes left of all that: 0." in said
    )
    green = [
        done.stdout.index(words)
        for words in ("and it is green", "! out is ignored", "Act 3.")
    ]
    assert green == sorted(green), (
        "T-2 passed for the agent, and failed in the clean room"
    )
    assert "passed | " in said and "$0.07" in said and "at least $0.07" in said
    assert f"it asks: {QUESTION}" in said and "todo: 4 of 5 passed, 1 blocked" in said
    assert f"$ ralph report {folder}/.ralph/report.html" in said
    assert (folder / ".ralph/report.html").exists() and "\x1b" not in done.stdout
    assert "ralph init" in said.partition("In a project of your own")[2]
    assert "not committed, so the agent will not see them: todo.py" in said
    assert "! out is ignored by git and not part of the work" in said

    tasks = json.loads((folder / "prd.json").read_text("utf-8"))["userStories"]
    assert [task["passes"] for task in tasks] == [True] * 4 + [False]
    assert git(folder, "branch", "--show-current") == ["main"]
    assert git(folder, "log", "--format=%s", "main") == ["A to-do list"]
    assert git(folder, "log", "--reverse", "--format=%s", "main..ralph/todo") == [
        f"{task['id']}: {task['title']}" for task in tasks[:4]
    ]
    assert git(folder, "diff", "--name-only", "main", "ralph/todo") == ["todo.py"]
    assert git(folder, "status", "--porcelain") == [
        " M prd.json",
        " M todo.py",
        "?? progress.txt",
    ]
    assert [line for line in git(folder, "diff", "todo.py") if line.startswith(("+", "-"))][2:] == [
        "+", "+", "+def colours(  # half of an idea of mine", "+", "+def colours(  # half of an idea of mine",
    ]  # fmt: skip

    clone = tmp_path / "clone"
    git(folder, "clone", "-q", "--branch", "ralph/todo", str(folder), str(clone))
    names = [
        f"test_todo.Test{name}"
        for name in ("Basics", "Urgent", "Count", "Done", "Find")
    ]
    subprocess.run(
        [sys.executable, "-m", "unittest", "-q", *names], cwd=clone, check=True
    )

    notes = (folder / "progress.txt").read_text("utf-8")
    verdicts = re.findall(r"\| (T-\d) .* \| (failed|passed|interrupted)", notes)
    assert verdicts == [
        ("T-1", "failed"), ("T-1", "passed"), ("T-2", "failed"), ("T-2", "passed"), ("T-3", "passed"),
        ("T-4", "interrupted"), ("T-4", "passed"), ("T-5", "failed"), ("T-5", "failed"),
    ]  # fmt: skip
    assert re.findall(
        r"^- restored: (.*)", notes, re.MULTILINE
    ) == [  # those of the first attempt alone
        "test_todo.py",
        "prd.json (a copy; what is changed in it does not count)",
    ]

    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(scratch),
        "RALPH_PLACES": str(scratch),
        "GIT_PAGER": "cat",
    }
    words = ["/bin/sh", "-e", "-c", told_to_type(done.stdout)]
    done = subprocess.run(words, env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "every task passes" in done.stdout


def test_a_folder_with_something_in_it_is_refused(tmp_path: Path) -> None:
    (tmp_path / "mine.txt").write_text("mine", "utf-8")
    done = demo(tmp_path)
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert [entry.name for entry in tmp_path.iterdir()] == ["mine.txt"]
