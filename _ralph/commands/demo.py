"""`ralph demo`: the promises, shown on a small real repository. The agent's script in
`templates/demo` does the misdeeds and says what there is to see, between `first.txt`
and `last.txt`; here is the stage for it."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import psutil

from _ralph.errors import BadInput, Exit
from _ralph.files import resource
from _ralph.git.git import in_folder

LIMIT = 60.0
"""Seconds after which a command of the demo is taken for stuck, and all is ended."""
_RUN = ("run", "-v", "--agent-timeout", "3s")
_RALPH = [sys.executable, str(Path(__file__).resolve().parents[2] / "ralph.py")]
_NO_GIT_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def run_demo(folder: Path | None) -> int:
    """Play it in `folder`, or in a temporary one; 0 if all went as it should, with
    nothing left running. BadInput for a folder that is not empty."""
    if folder is None:
        folder = Path(tempfile.mkdtemp(prefix="ralph-demo-"))
    elif folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; name a folder that is new or empty")
    stage = folder.resolve()
    with tempfile.TemporaryDirectory(
        prefix="ralph-demo-places-", ignore_cleanup_errors=True
    ) as places:
        try:
            build(stage)
            trouble = play(stage, environment(stage, places))
        finally:
            left = end_all(stage)
    say(f"-> Processes left of all that: {left}.")
    command = "ralph" if shutil.which("ralph") else shlex.join(_RALPH)
    last = resource("templates/demo/last.txt").read_text("utf-8")
    say(last.format(folder=shlex.quote(str(stage)), ralph=command).rstrip())
    if left:
        trouble = "something is left running"
    if trouble:
        print(f"ralph: the demo failed: {trouble}", file=sys.stderr)
        return Exit.ERROR
    return Exit.COMPLETE


def build(stage: Path) -> None:
    """A small repository with a history of its own, and a plan whose checks run this
    Python."""
    props = resource("templates/demo")
    script = str(props / "agent.py")
    first = (props / "first.txt").read_text("utf-8")
    say(first.format(folder=stage, script=script).rstrip())
    shutil.copytree(props / "project", stage, dirs_exist_ok=True)
    plan = (stage / "prd.json").read_text("utf-8")
    plan = plan.replace('"{python}"', json.dumps(sys.executable))
    plan = plan.replace('"{script}"', json.dumps(script))
    (stage / "prd.json").write_text(plan, "utf-8")

    git = in_folder(stage, _NO_GIT_CONFIG)
    git("init", "-q", "-b", "main", "--template=")
    settings = {
        "user.name": "ralph demo",
        "user.email": "demo@localhost",
        # Git reads this user's ignore file even where it reads no settings of theirs.
        "core.excludesFile": os.devnull,
    }
    for key, value in settings.items():
        git("config", key, value)
    git("add", "-A")
    git("commit", "-q", "-m", "A to-do list")
    with (stage / "todo.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef colours(  # half of an idea of mine")


def play(stage: Path, env: dict[str, str]) -> str:
    """The same command twice, as the agent kills the first one; then what a person does
    next. What went wrong, or nothing."""
    first = ralph(stage, env, *_RUN)
    say("\n-> kill -9: ralph is dead, and the agent is still running.")
    say("-> The same command goes on:")
    second = ralph(stage, env, *_RUN)
    say("-> It asked the same question twice, so the task is blocked until you answer.")
    status = ralph(stage, env, "status")
    ralph(stage, env, "report")
    ended = [first.returncode, second.returncode]
    if ended != [-9, Exit.PERSON]:
        return f"its runs ended with {ended}"
    if "4 of 5 passed" not in status.stdout:
        return "not four of five tasks passed"
    return ""


def ralph(
    stage: Path, env: dict[str, str], *words: str
) -> subprocess.CompletedProcess[str]:
    """Run ralph, and show what it prints as it comes; that is kept, too. What is stuck
    is ended: subprocess-tee has no deadline of its own."""
    import subprocess_tee

    say(f"\n$ ralph {shlex.join(words)}")
    deadline = threading.Timer(LIMIT, end_all, [stage])
    deadline.start()
    try:
        done: subprocess.CompletedProcess[str] = subprocess_tee.run(
            [*_RALPH, *words], cwd=stage, env=env, stdin=subprocess.DEVNULL
        )
    finally:
        deadline.cancel()
    return done


def end_all(stage: Path) -> int:
    """Kill whatever has the demo's mark in its environment; how many that were."""
    killed = 0
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("RALPH_DEMO") == str(stage):
                process.kill()
                killed += 1
    return killed


def environment(stage: Path, places: str) -> dict[str, str]:
    """One that owes nothing to this user's settings, with the demo's own mark."""
    env = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("RALPH_", "GIT_"))
    }
    env.update(
        _NO_GIT_CONFIG,
        PYTHONDONTWRITEBYTECODE="1",
        PYTHONUTF8="1",
        LC_ALL="C.UTF-8",
        RALPH_DEMO=str(stage),
        RALPH_PLACES=os.path.realpath(places),
    )
    return env


def say(words: str) -> None:
    print(words, flush=True)
