"""`ralph demo`: the promises, shown on a small real repository with scripted agents."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import textwrap
import threading
import uuid
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from _ralph.ends import BadInput
from _ralph.files import read_regular, resource
from _ralph.git import git
from _ralph.journal import parse

if TYPE_CHECKING:
    import psutil

LIMIT = 60.0
"""Seconds after which a `ralph run` of the demo is taken for stuck and ended."""
AGENT_TIMEOUT = "3s"
_NO_GIT_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def run_demo(folder: Path | None) -> int:
    """Play the acts in `folder`, or in a temporary one; 0 if every promise was seen to hold."""
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; name a folder that is new or empty")
    stage = _Stage((folder or Path(tempfile.mkdtemp(prefix="ralph-demo-"))).resolve())
    try:
        stage.build()
        stage.play()
        broken = stage.broken_claims()
    finally:
        stage.clear()
    if folder is None and not broken:
        shutil.rmtree(stage.folder, ignore_errors=True)
        _say("\n`ralph demo FOLDER` keeps the repository, to look around in it.")
    else:
        _say(f"\nTo look around: cd {shlex.quote(str(stage.folder))}")
        _say("git log --stat; ralph status; less progress.txt")
    if broken:
        print(f"ralph: the demo failed: {broken} of its claims did not hold", file=sys.stderr)
    return int(bool(broken))


class _Stage:
    """The repository, the processes around it, and what was seen so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._props = resource("templates/demo")
        self._mark = uuid.uuid4().hex
        self._env = _environment(self._mark)
        self._acts: list[dict[str, str]] = json.loads((self._props / "acts.json").read_text("utf-8"))
        self._exits: list[int] = []
        self._counted: dict[str, int] = {}

    def build(self) -> None:
        """A small repository with a history of its own, and a plan whose checks run this Python."""
        _say(
            f"A small to-do program with tests and a plan of three tasks, in {self.folder}.\n"
            f"The agents are scripted ({self._props / 'agent.py'}): no model, no key, nothing is sent "
            f"anywhere. The rest is real: ralph, git, the files, the checks."
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        python = json.dumps(shlex.quote(sys.executable))[1:-1]
        for source in filter(Path.is_file, (self._props / "project").iterdir()):
            content = source.read_text("utf-8").replace("{python}", python)
            (self.folder / source.name).write_text(content, "utf-8")
        self._git("init", "-q", "-b", "main", "--template=")
        self._git("config", "user.name", "ralph demo")
        self._git("config", "user.email", "demo@localhost")
        # git reads this user's ignore file even where it reads no configuration of theirs.
        self._git("config", "core.excludesFile", os.devnull)
        self._git("add", "-A")
        self._git("commit", "-q", "-m", "A to-do list")

    def play(self) -> None:
        """The same command twice: the first one is killed in act 3."""
        for again in ("", "   # once more"):
            _say(f"\n$ ralph run -v --agent 'python agent.py' --agent-timeout {AGENT_TIMEOUT}{again}")
            if not again:
                _say(f"\n{self._acts[0]['heading']}")
            self._exits.append(self._follow())

    def broken_claims(self) -> int:
        """Say of everything that the demo promised whether it holds; how much does not."""
        _say("\nLooked up in git, in the files and among the processes:")
        found = self._claims()
        for claim, holds in found.items():
            _say(f"[x] {claim}" if holds else f"[!] {claim}  <- DOES NOT HOLD")
        return list(found.values()).count(False)

    def _claims(self) -> dict[str, bool]:
        """What the demo promised, each looked up where it can be seen."""
        tasks = json.loads((self.folder / "prd.json").read_text("utf-8"))["userStories"]
        commits = {f"{task['id']}: {task['title']}" for task in tasks} | {"ralph: notes"}
        records = parse(read_regular(self.folder / "progress.txt") or b"")
        verdicts = [f"{entry['task']} {entry['verdict']}" for entry in records if entry["event"] == "verdict"]
        starts = Counter(entry["task"] for entry in records if entry["event"] == "start")
        made = self._git("log", "--format=%s", "main..ralph/todo").split("\n")
        main = self._git("log", "--format=%s", "main")
        return {
            "ralph was killed once, and the second run ended with exit 0": self._exits == [-9, 0],
            "every task passes": all(task["passes"] for task in tasks),
            "all tests of the program pass": self._tests_pass(),
            "the tests are those that it began with": not self._git("diff", "main", "--", "test_todo.py"),
            "T-1 failed when it cheated, then passed": verdicts[:2] == ["T-1 failed", "T-1 passed"],
            "what the killed attempt left did not count": verdicts[-2:] == ["T-3 interrupted", "T-3 passed"],
            "no finished task was worked again": starts == {"T-1": 2, "T-2": 1, "T-3": 2},
            "one commit a task on the branch ralph/todo": {*made} == commits and len(made) == len(commits),
            "main is as it was, and the tree is clean": main + self._git("status", "-s") == "A to-do list",
            "no act left a process behind, not even the server": not self._processes()
            and self._counted == {"served": 2, "T-1": 0, "T-2": 0, "T-3": 0},
        }

    def clear(self) -> None:
        """Kill whatever the demo started and did not see the end of."""
        import psutil

        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                process.kill()

    def _follow(self) -> int:
        """Show one `ralph run` as it goes and act on the cues in it; its exit status."""
        agent = shlex.join([sys.executable, str(self._props / "agent.py")])
        program = Path(__file__).resolve().parent.parent / "ralph.py"
        words = [sys.executable, str(program), "run", "-v", "--agent", agent]
        process = subprocess.Popen(
            [*words, "--agent-timeout", AGENT_TIMEOUT], cwd=self.folder, env=self._env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        watchdog = threading.Timer(LIMIT, self.clear)
        watchdog.start()
        try:
            for line in process.stdout or ():
                short = line.replace(agent, "python agent.py").replace(f"{self.folder}/", "")
                self._hear(re.sub(r"^[\d-]+ [\d:]+ ", "", short.rstrip()), process)
            return process.wait(LIMIT)
        finally:
            watchdog.cancel()

    def _hear(self, line: str, process: subprocess.Popen[str]) -> None:
        """Show one line of ralph's. The cues are words of agent.py, and of ralph for a pass."""
        _say(line, "  ")
        act = self._acts[0]
        if "Starting a server" in line:
            self._counted["served"] = len(self._processes("T-2"))
            _say(f"-> {self._counted['served']} processes run for it now: the agent and its server.")
        elif "Half of it is written" in line:
            self._kill(process)
        elif line.startswith("  passed") and act["task"]:
            self._counted[act["task"]] = left = len(self._processes(act["task"]))
            _say(f"-> {act['meaning']} Processes left: {left}.")
            self._acts.pop(0)
            _say(f"\n{self._acts[0]['heading']}")

    def _kill(self, process: subprocess.Popen[str]) -> None:
        """-9 for the whole of ralph at one moment: nobody is left to clean up."""
        import psutil

        whole = [*psutil.Process(process.pid).children(), psutil.Process(process.pid)]
        for one in whole:
            one.suspend()
        for one in whole:
            one.kill()
        left = len(self._processes("T-3"))
        _say(f"-> kill -9: ralph and its supervisor are dead; the agent runs on ({left} process).")

    def _processes(self, task: str | None = None) -> list[psutil.Process]:
        """What runs with the demo's mark in its environment; with `task`, that task's agents."""
        import psutil

        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                env = process.environ()
                if env.get("RALPH_DEMO") == self._mark and task in (None, env.get("RALPH_TASK_ID")):
                    found.append(process)
        return found

    def _tests_pass(self) -> bool:
        words = [sys.executable, "-m", "unittest", "-q"]
        done = subprocess.run(words, cwd=self.folder, env=self._env, capture_output=True, timeout=LIMIT)
        return done.returncode == 0

    def _git(self, *words: str) -> str:
        return os.fsdecode(git(self.folder, *words, env=_NO_GIT_CONFIG)).strip()


def _environment(mark: str) -> dict[str, str]:
    """One that owes nothing to this user's settings and can be told from all others."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RALPH_", "GIT_"))}
    ours = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "RALPH_DEMO": mark}
    return {**kept, **_NO_GIT_CONFIG, **ours}


def _say(words: str, indent: str = "") -> None:
    """Print `words` wrapped to the terminal, the rest of a long line a little further in."""
    width = max(40, min(shutil.get_terminal_size().columns, 100))
    further = f"{indent}   "
    wrapper = textwrap.TextWrapper(width, indent, further, break_long_words=False, break_on_hyphens=False)
    for line in words.split("\n"):
        print(wrapper.fill(line), flush=True)
