"""Record plans of version 0.2 in the middle, for test_upgrade.py: `python -m
tests.upgrade.record VENV`.

VENV is a virtual environment with the last commit of 0.2: git archive 4697285, pip
install. Everything that was on the disk is kept, git folder and checkouts too, one
archive for each night below.
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

HERE = Path("/opt/ralph-0.2")
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


class Night:
    """A repository in which 0.2 works."""

    def __init__(self, venv: Path, name: str) -> None:
        self.name, self.folder, self.venv = name, HERE / name, venv
        self.repo, self.agent = self.folder / "repo", self.folder / "speaker"
        shutil.rmtree(self.folder, ignore_errors=True)
        self.repo.mkdir(parents=True)
        self.env = {
            "PATH": f"{venv}/bin:/usr/bin:/bin", "HOME": str(self.folder / "no-home"), "LC_ALL": "C",
            "GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_SYSTEM": "/dev/null",
            "XDG_STATE_HOME": str(self.folder / "state"), "RALPH_RUN_NO_AWAKE": "1",
        }  # fmt: skip
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
        rows = next(self.venv.rglob("templates/agents.json")).read_text()
        row = json.loads(rows)["claude"] | {
            "argv": ["speaker", "{args}"],
            "edit_needs": {},
        }
        entries = [
            {
                "id": task,
                "title": f"make {task}",
                "passes": False,
                **({} if task in weak else own(task)),
            }
            for task in tasks
        ]
        top = {
            "project": "p",
            "checks": ["sh suite.sh"],
            "agents": {"speaker": row},
            **top,
        }
        (self.repo / "prd.json").write_text(
            json.dumps({**top, "userStories": entries}, indent=2) + "\n"
        )

    def run(self, *words: str) -> None:
        self.start("ralph", "run", "--agent", str(self.agent), *words).wait(120)

    def start(self, *words: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            words, cwd=self.repo, env=self.env, start_new_session=True
        )

    def kill(self, loop: subprocess.Popen[bytes], *seen: str) -> None:
        """Kill a loop once its agents have made these files."""
        while not all((self.folder / name).exists() for name in seen):
            time.sleep(0.1)
        time.sleep(0.5)
        loop.send_signal(signal.SIGKILL)
        loop.wait()
        time.sleep(1)

    def keep(self) -> None:
        shutil.rmtree(self.repo / ".git/hooks", ignore_errors=True)
        (self.folder / "agent.py").unlink()
        with tarfile.open(RECORDED / f"{self.name}.tar.xz", "w:xz") as archive:
            for path in sorted(self.folder.rglob("*")):
                if path.is_dir() or path.name.startswith("hangs-"):
                    continue
                entry = archive.gettarinfo(path, str(path.relative_to(self.folder)))
                entry.uid = entry.gid = 0
                entry.uname = entry.gname = ""
                archive.addfile(entry, io.BytesIO(path.read_bytes()))


def middle(night: Night) -> None:
    """Tasks in every state, on main."""
    night.plan("one", "weak", "stuck", "half", "asks", "open", "waits", weak=("weak",))
    night.run("--task", "waits", "--no-wait")
    night.run("--max-iterations", "7")
    night.run("--task", "asks", "--max-iterations", "1")


def feature(night: Night) -> None:
    """Two jobs on a feature branch that somebody sits on: 0.2 landed there."""
    night.git("switch", "-qc", "feature")
    night.plan("one", "two", "half", "open")
    night.run("--jobs", "2", "--max-iterations", "4")


def killed(night: Night) -> None:
    """Killed while two agents were at work that was finished."""
    night.plan("one", "cut", "cut-too", "open", setup="echo made > made.txt")
    night.run("--max-iterations", "1")
    loop = night.start("ralph", "run", "--agent", str(night.agent), "--jobs", "2")
    night.kill(loop, "hangs-cut", "hangs-cut-too")


def verified(night: Night) -> None:
    """Killed between the verdict and the landing, which came after it."""
    night.plan("one", "two", "open")
    script = f"""
import os, sys
from _ralph.git.branch import Branch
real = Branch.land
Branch.land = lambda *given: os.kill(os.getpid(), 9) if "two" in given[-1] else real(*given)
import ralph
sys.argv = ["ralph", "run", "--agent", {str(night.agent)!r}]
ralph.main()
"""
    night.start(f"{night.venv}/bin/python", "-c", script).wait(120)


def in_the_way(night: Night) -> None:
    """Verified work that waits to land, because of an edit in a tree on a feature
    branch."""
    night.git("switch", "-qc", "feature")
    night.plan("one", "weak", "open", weak=("weak",))
    (night.repo / "weak.txt").write_text("mine\n")
    night.run()


def launched(night: Night) -> None:
    """`launch` in the plan."""
    night.plan("one", "half", "open", launch="env")
    night.run("--max-iterations", "2")


def sandbox(night: Night) -> None:
    """In bubblewrap."""
    night.plan("one", "half", "open", setup="echo made > made.txt")
    night.run("--sandbox", "bwrap", "--max-iterations", "2")


def red(night: Night) -> None:
    """A suite that is red before the work: it blocked everybody."""
    (night.repo / "red.txt").touch()
    night.git("add", "-A")
    night.git("commit", "-qm", "red")
    night.plan("one", "two", checks=["sh suite.sh", "true"])
    night.run("--max-iterations", "1")


NIGHTS: dict[str, Callable[[Night], None]] = {
    work.__name__: work
    for work in (middle, feature, killed, verified, in_the_way, launched, sandbox, red)
}


if __name__ == "__main__":
    RECORDED.mkdir(exist_ok=True)
    for name in sys.argv[2:] or NIGHTS:
        night = Night(Path(os.path.realpath(sys.argv[1])), name)
        NIGHTS[name](night)
        night.keep()
