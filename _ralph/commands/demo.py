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
from collections.abc import Iterator
from pathlib import Path

import psutil

from _ralph.errors import BadInput
from _ralph.files import resource
from _ralph.git.git import git

LIMIT = 60.0
"""Seconds after which a command of the demo is taken for stuck and ended."""
EXITS = [-9, 4]
"""How its two runs end: the first is killed, the second needs a person."""
_RUN = ("run", "-v", "--agent-timeout", "3s")
_RALPH = [
    sys.executable,
    str(Path(__file__).resolve().parent.parent.parent / "ralph.py"),
]
_NO_GIT_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def run_demo(folder: Path | None) -> int:
    """Play it in `folder`, or in a temporary one; 0 if both runs ended as they should,
    with nothing left."""
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; name a folder that is new or empty")
    stage = (folder or Path(tempfile.mkdtemp(prefix="ralph-demo-"))).resolve()
    with tempfile.TemporaryDirectory(
        prefix="ralph-demo-places-", ignore_cleanup_errors=True
    ) as places:
        try:
            build(stage)
            ended = play(stage, environment(stage, places))
            left = len([*processes(stage)])
        finally:
            for process in processes(stage):
                with contextlib.suppress(psutil.Error):
                    process.kill()
    installed = shutil.which("ralph")
    ralph = "ralph" if installed else shlex.join(_RALPH)
    own = shlex.quote(str(Path(_RALPH[1]).parent))
    install = "" if installed else f"\n  uv tool install {own}    # or: pipx install"
    say(f"-> Processes left of all that: {left}.")
    last = resource("templates/demo/last.txt").read_text("utf-8")
    say(
        last.format(
            folder=shlex.quote(str(stage)), ralph=ralph, install=install
        ).rstrip()
    )
    if ended == EXITS and not left:
        return 0
    print(
        f"ralph: the demo failed: its runs ended with {ended}, not {EXITS}",
        file=sys.stderr,
    )
    return 1


def build(stage: Path) -> None:
    """A small repository with a history of its own, and a plan whose checks run this
    Python."""
    props = resource("templates/demo")
    say(
        (props / "first.txt")
        .read_text("utf-8")
        .format(folder=stage, script=props / "agent.py")
        .rstrip()
    )
    shutil.copytree(props / "project", stage, dirs_exist_ok=True)
    plan = (stage / "prd.json").read_text("utf-8")
    for name, path in {
        "{python}": sys.executable,
        "{script}": str(props / "agent.py"),
    }.items():
        plan = plan.replace(name, json.dumps(path)[1:-1])
    (stage / "prd.json").write_text(plan, "utf-8")
    git(stage, "init", "-q", "-b", "main", "--template=", env=_NO_GIT_CONFIG)
    # git reads this user's ignore file even where it reads no configuration of theirs.
    own = {
        "user.name": "ralph demo",
        "user.email": "demo@localhost",
        "core.excludesFile": os.devnull,
    }
    for key, value in own.items():
        git(stage, "config", key, value, env=_NO_GIT_CONFIG)
    git(stage, "add", "-A", env=_NO_GIT_CONFIG)
    git(stage, "commit", "-q", "-m", "A to-do list", env=_NO_GIT_CONFIG)
    with (stage / "todo.py").open("a", encoding="utf-8") as file:
        file.write("\n\ndef colours(  # half of an idea of mine")


def play(stage: Path, env: dict[str, str]) -> list[int]:
    """The same command twice, as the agent kills the first one; then what a person does
    next. How the runs ended."""

    def ralph(*words: str) -> int:
        say(f"\n$ ralph {shlex.join(words)}")
        done = subprocess.run(
            [*_RALPH, *words],
            cwd=stage,
            env=env,
            stdin=subprocess.DEVNULL,
            timeout=LIMIT,
        )
        return done.returncode

    ended = [ralph(*_RUN)]
    say("\n-> kill -9: ralph and its worker are dead, and the agent is still running.")
    say("-> The same command goes on:")
    ended.append(ralph(*_RUN))
    say("-> It asked the same question twice, so the task is blocked until you answer.")
    for name in ("status", "report"):
        ralph(name)
    return ended


def processes(stage: Path) -> Iterator[psutil.Process]:
    """What runs with the demo's mark in its environment."""
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.environ().get("RALPH_DEMO") == str(stage):
                yield process


def environment(stage: Path, places: str) -> dict[str, str]:
    """One that owes nothing to this user's settings, with the demo's own mark."""
    kept = {
        key: value
        for key, value in os.environ.items()
        if not key.startswith(("RALPH_", "GIT_"))
    }
    ours = {
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUTF8": "1",
        "LC_ALL": "C.UTF-8",
        "RALPH_DEMO": str(stage),
    }
    return {**kept, **_NO_GIT_CONFIG, **ours, "RALPH_PLACES": os.path.realpath(places)}


def say(words: str) -> None:
    print(words, flush=True)
