"""Record plans of version 0.3 in the middle, for test_upgrade.py: `python -m
tests.upgrade.record VENV`.

VENV is a virtual environment with version 0.3.0: git archive afd8ca0, pip install. All
that was on the disk is kept, git folder and checkouts too, one archive for each night
below.
"""

from __future__ import annotations

import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.scripts import own

HERE = Path("/opt/ralph-0.3")
"""Where the nights are; whoever lays one down replaces it."""
RECORDED = Path(__file__).with_name("recorded")
AGENT = """
import json, os, sys, time
sys.stdin.read()
task = os.environ["RALPH_TASK_ID"]
def said(label, words): open(os.environ["RALPH_HANDOFF"], "a").write(f"{label}: {words}\\n")
def prints(**event): print(json.dumps(event), flush=True)
if task in ("half", "stuck"):
    open(f"{task}.part", "w").write("half\\n")
    said("next step", "write the other half")
elif task == "asks":
    open(f"{task}.part", "w").write("half\\n")
    said("blocked on", "which rate?")
elif task == "waits":
    prints(type="rate_limit_event", rate_limit_info={"status": "rejected", "resetsAt": int(time.time()) + 3600})
    prints(type="result", is_error=True, terminal_reason="api_error", api_error_status=429, result="limited",
           total_cost_usd=0, usage={})
    sys.exit(1)
else:
    open(f"{task}.txt", "w").write("good\\n")
    said("learned", f"{task} is done")
    while task.startswith("cut"):
        open(f"{os.path.dirname(__file__)}/hangs-{task}", "w").close()
        time.sleep(1)
prints(type="result", subtype="success", is_error=False, result="ok", session_id="s", total_cost_usd=0.25,
       usage={"input_tokens": 10, "output_tokens": 5})
"""
KILLED = """
import os, sys
import ralph
from _ralph.git.branch import Branch

def land(branch, commit, tip, why, forward=True, move=Branch.land):
    move(branch, commit, tip, why, forward)
    if why.startswith("two"):
        os.kill(os.getpid(), 9)

Branch.land = land
ralph.main()
"""
"""A ralph that is killed right after the task `two` has landed."""


class Night:
    """A repository in which 0.3 works."""

    def __init__(self, venv: Path, name: str) -> None:
        self.name, self.folder, self.venv = name, HERE / name, venv
        self.repo, self.agent = self.folder / "repo", self.folder / "speaker"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.repo.mkdir(parents=True)
        self.env = {
            "PATH": f"{venv}/bin:/usr/bin:/bin",
            "HOME": str(self.folder / "no-home"),
            "LC_ALL": "C",
            "GIT_CONFIG_SYSTEM": "/dev/null",
            "XDG_STATE_HOME": str(self.folder / "state"),
        }
        (self.folder / "agent.py").write_text(AGENT)
        self.agent.write_text(f"#!/bin/sh\nexec python3 -IS {self.folder}/agent.py\n")
        self.agent.chmod(0o755)
        self.git("init", "-q", "-b", "main", "--template=")
        self.git("config", "user.email", "test@example.invalid")
        self.git("config", "user.name", "Test")
        (self.repo / "suite.sh").write_text("test ! -e red.txt\n")
        self.git("add", "-A")
        self.git("commit", "-qm", "start")

    def git(self, *words: str) -> None:
        subprocess.run(["git", *words], cwd=self.repo, env=self.env, check=True)

    def plan(self, *tasks: str, weak: tuple[str, ...] = (), **top: Any) -> None:
        stories = []
        for task in tasks:
            story = {"id": task, "title": f"make {task}", "passes": False}
            if task not in weak:
                story |= own(task)
            stories.append(story)
        plan = {
            "project": "p",
            "checks": ["sh suite.sh"],
            "agents": {"speaker": {"like": "claude", "argv": ["speaker", "{args}"]}},
            **top,
            "userStories": stories,
        }
        (self.repo / "prd.json").write_text(json.dumps(plan, indent=2) + "\n")

    def start(self, *words: str, program: tuple[str, ...] = ("ralph",)) -> Any:
        options = ("run", "--agent", str(self.agent), "--full-permissions")
        return subprocess.Popen(
            [*program, *options, "--no-awake", *words],
            cwd=self.repo,
            env=self.env,
            start_new_session=True,
        )

    def run(self, *words: str) -> None:
        self.start(*words).wait(120)

    def keep(self) -> None:
        shutil.rmtree(self.repo / ".git/hooks", ignore_errors=True)
        (self.folder / "agent.py").unlink()
        with tarfile.open(RECORDED / f"{self.name}.tar.xz", "w:xz") as archive:
            for path in sorted(self.folder.rglob("*")):
                if path.is_dir() or path.name.startswith("hangs-"):
                    continue
                if path.name.endswith("prompt.md"):  # it names the VENV
                    continue
                entry = archive.gettarinfo(path, str(path.relative_to(self.folder)))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                archive.addfile(entry, io.BytesIO(path.read_bytes()))


def middle(night: Night) -> None:
    """Tasks in every state; two are blocked, one of them with a question."""
    tasks = ("one", "weak", "stuck", "half", "asks", "open", "waits")
    night.plan(*tasks, weak=("weak",))
    night.run("--task", "waits", "--no-wait")
    night.run("--max-iterations", "7")
    night.run("--task", "asks")


def killed(night: Night) -> None:
    """Killed while two agents were at work that was finished."""
    night.plan("one", "cut", "cut-too", "open", setup="echo made > made.txt")
    night.run("--max-iterations", "1")
    loop = night.start("--jobs", "2")
    for task in ("cut", "cut-too"):
        while not (night.folder / f"hangs-{task}").exists():
            time.sleep(0.1)
    time.sleep(0.5)
    loop.send_signal(signal.SIGKILL)
    loop.wait()
    time.sleep(1)


def landed(night: Night) -> None:
    """Killed after the branch had moved, and before the verdict was noted."""
    night.plan("one", "two", "open")
    python = f"{night.venv}/bin/python"
    night.start(program=(python, "-c", KILLED)).wait(120)


def keys(night: Night) -> None:
    """A plan with what 0.3 knew and 0.4 does not, in a sandbox for `network`."""
    table = next(night.venv.rglob("templates/agents.json"))
    row = json.loads(table.read_text())["claude"]
    row["argv"] = ["speaker", "{args}"]
    night.plan(
        "one",
        "half",
        "open",
        branch="ralph/keys",
        network=False,
        notifyOn=["blocked"],
        limits={"rooms": 2, "stuck": 4},
        agents={"speaker": row},
    )
    night.run("--max-iterations", "2", "--sandbox", "bwrap")


NIGHTS: list[Callable[[Night], None]] = [middle, killed, landed, keys]


if __name__ == "__main__":
    RECORDED.mkdir(exist_ok=True)
    for play in NIGHTS:
        if play.__name__ in sys.argv[2:] or not sys.argv[2:]:
            recorded = Night(Path(os.path.realpath(sys.argv[1])), play.__name__)
            play(recorded)
            recorded.keep()
