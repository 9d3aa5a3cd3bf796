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
from typing import TYPE_CHECKING, Any, NamedTuple

from _ralph import workspace
from _ralph.model import BadInput
from _ralph.prompt import resource

if TYPE_CHECKING:
    import psutil

LIMIT = 60.0
"""Seconds after which a `ralph run` of the demo is taken for stuck and ended."""
AGENT_TIMEOUT = "3s"
_PLAIN_GIT = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


class _Act(NamedTuple):
    task: str
    heading: str
    meaning: str


_ACTS = (
    _Act(
        "T-1",
        "Act 1. The agent says COMPLETE, sets every task to passed and guts the tests.",
        "None of that counted: plan and tests were put back, ralph ran the check itself, and it was red. "
        "The second attempt did the work.",
    ),
    _Act(
        "T-2",
        "Act 2. The agent does the work, leaves a server in the background and hangs.",
        "It was stopped at its deadline. The task passes all the same: its check was red before and is "
        "green now.",
    ),
    _Act(
        "T-3",
        "Act 3. The agent sets a pass and writes half of the work; then ralph is killed.",
        "The pass that the agent had set was taken back, the half-written file was checked and found red, "
        "the two finished tasks were not worked again.",
    ),
    _Act("", "The end. Every task passes; ralph checks the whole once more.", ""),
)


def run_demo(folder: Path | None) -> int:
    """Play the acts in `folder`, or in a temporary one; 0 if every promise was seen to hold."""
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; name a folder that is new or empty")
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    stage = _Stage((folder or Path(tempfile.mkdtemp(prefix="ralph-demo-"))).resolve())
    try:
        stage.build()
        stage.play()
        broken = [claim for claim, holds in stage.claims() if not holds]
    finally:
        stage.clear()
    if folder is None and not broken:
        shutil.rmtree(stage.folder, ignore_errors=True)
    else:
        _say(f"\nLook around: cd {shlex.quote(str(stage.folder))}; git log --stat; less progress.txt")
    if broken:
        print(f"ralph: the demo failed: {len(broken)} of its claims did not hold", file=sys.stderr)
    return int(bool(broken))


class _Stage:
    """The repository, the processes around it, and what was seen so far."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._script = resource("templates/demo") / "agent.py"
        self._mark = uuid.uuid4().hex
        self._env = _environment(self._mark)
        self._acts = iter(_ACTS)
        self._act: _Act | None = None
        self._start = ""
        self._exits: list[int] = []
        self._counted: dict[str, int] = {}

    def build(self) -> None:
        """A small repository with a history of its own, and a plan whose checks run this Python."""
        _say(
            f"A small to-do program with tests and a plan of three tasks, in {self.folder}.\n"
            f"The agents are scripted ({self._script}): no model, no key, nothing is sent anywhere. "
            f"The rest is real: ralph, git, the files, the checks."
        )
        shutil.copytree(self._script.with_name("project"), self.folder, dirs_exist_ok=True)
        plan = self.folder / "prd.json"
        python = json.dumps(shlex.quote(sys.executable))[1:-1]
        plan.write_text(plan.read_text("utf-8").replace("{python}", python), "utf-8")
        self._git("init", "-q", "-b", "main")
        self._git("config", "user.name", "ralph demo")
        self._git("config", "user.email", "demo@localhost")
        self._git("add", "-A")
        self._git("commit", "-q", "-m", "A to-do list")
        self._start = self._git("rev-parse", "HEAD")

    def play(self) -> None:
        """The same command twice: the first one is killed in act 3."""
        shown = f"\n$ ralph run -v --agent 'python agent.py' --agent-timeout {AGENT_TIMEOUT}"
        for again in ("", "   # once more"):
            _say(shown + again)
            self._exits.append(self._follow())

    def claims(self) -> list[tuple[str, bool]]:
        """What the demo promised, each looked up in git, the files and the process table."""
        log = self._git("log", "--format=%s", "main..HEAD").split("\n")
        tasks = json.loads((self.folder / "prd.json").read_text("utf-8"))["userStories"]
        titles = [f"{task['id']}: {task['title']}" for task in tasks]
        records = _records(self.folder / "progress.txt")
        starts = Counter(entry["task"] for entry in records if entry["event"] == "start")
        first = [entry["verdict"] for entry in records if entry["event"] == "verdict"][:2]
        branch = self._git("symbolic-ref", "--short", "HEAD")
        tests = subprocess.run(
            [sys.executable, "-m", "unittest", "-q"], cwd=self.folder, env=self._env, timeout=LIMIT,
            capture_output=True,
        )  # fmt: skip
        found = [
            ("ralph was killed once, and the second run ended with exit 0", self._exits == [-9, 0]),
            ("every task passes, and so do all tests of the program",
             all(task["passes"] for task in tasks) and tests.returncode == 0),
            ("the tests are those that it began with", not self._git("diff", "main", "--", "test_todo.py")),
            ("T-1 failed when it cheated and passed at its second attempt", first == ["failed", "passed"]),
            ("no finished task was worked again", starts == {"T-1": 2, "T-2": 1, "T-3": 2}),
            (f"one commit a task on {branch}; main is as it was",
             branch == "ralph/todo" and self._git("rev-parse", "main") == self._start
             and sorted(log) == sorted([*titles, "ralph: notes"])),
            ("the tree is clean", not self._git("status", "--porcelain")),
            ("no act left a process behind, not even the server",
             self._counted == {"served": 2, "T-1": 0, "T-2": 0, "T-3": 0}),
            ("no process of the demo is left now", not self._processes()),
        ]  # fmt: skip
        _say("")
        for claim, holds in found:
            _say(f"[{'x' if holds else '!'}] {claim}{'' if holds else '  <- DOES NOT HOLD'}")
        return found

    def clear(self) -> None:
        """Kill whatever the demo started and did not see the end of."""
        for process in self._processes():
            with contextlib.suppress(ProcessLookupError):
                process.kill()

    def _follow(self) -> int:
        """Show one `ralph run` as it goes and act on the cues in it; its exit status."""
        agent = shlex.join([sys.executable, str(self._script)])
        short = {agent: "python agent.py", shlex.quote(agent): "'python agent.py'", f"{self.folder}/": ""}
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "ralph", "run", "-v",
             "--agent", agent, "--agent-timeout", AGENT_TIMEOUT],
            cwd=self.folder, env=self._env, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, encoding="utf-8", errors="replace",
        )  # fmt: skip
        watchdog = threading.Timer(LIMIT, self.clear)
        watchdog.start()
        try:
            for line in process.stdout or ():
                for long, brief in short.items():
                    line = line.replace(long, brief)
                self._hear(re.sub(r"^[\d-]+ [\d:]+ ", "", line.rstrip()), process)
            return process.wait(LIMIT)
        finally:
            watchdog.cancel()

    def _hear(self, line: str, process: subprocess.Popen[str]) -> None:
        """Show one line of ralph's; what a person would do at this moment, the demo does."""
        if self._act is None:
            self._act = next(self._acts, _ACTS[-1])
            _say(f"\n{self._act.heading}")
        _say(line, "  ")
        if "Starting a server" in line:
            self._counted["served"] = len(self._processes("T-2"))
            _say(f"-> {self._counted['served']} processes run for it now: the agent and its server.")
        elif "Half of it is written" in line:
            self._kill(process)
        elif line.startswith("  passed"):
            self._counted[self._act.task] = left = len(self._processes(self._act.task))
            _say(f"-> {self._act.meaning} Processes left: {left}.")
            self._act = None

    def _kill(self, process: subprocess.Popen[str]) -> None:
        """-9 for the whole of ralph at one moment: nobody is left to clean up."""
        import psutil

        whole = [*psutil.Process(process.pid).children(), psutil.Process(process.pid)]
        for one in whole:
            one.suspend()
        for one in whole:
            one.kill()
        left = len(self._processes("T-3"))
        _say(f"-> kill -9: ralph and its supervisor are dead, the agent is not ({left} process left).")

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

    def _git(self, *words: str) -> str:
        return os.fsdecode(workspace.git(self.folder, *words, env=_PLAIN_GIT)).strip()


def _environment(mark: str) -> dict[str, str]:
    """One that owes nothing to this user's settings and finds this very ralph."""
    home = str(Path(__file__).resolve().parent.parent)
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RALPH_", "GIT_"))}
    path = os.pathsep.join(filter(None, (home, kept.get("PYTHONPATH"))))
    ours = {"PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8"}
    return {**kept, **_PLAIN_GIT, **ours, "RALPH_DEMO": mark}


def _records(progress: Path) -> list[dict[str, Any]]:
    """The machine's half of progress.txt, read without ralph's own parser."""
    return [
        json.loads(found)
        for found in re.findall(r"^<!-- ralph (\{.*\}) -->$", progress.read_text("utf-8"), re.M)
    ]


def _say(words: str, indent: str = "") -> None:
    """Print `words` wrapped to the terminal, what follows a mark aligned behind it."""
    width = max(40, min(shutil.get_terminal_size().columns, 100))
    for line in words.split("\n"):
        lead = indent + re.match(r"\s*", line)[0]
        hang = re.match(r"\s*((->|\[.\]|[!|]) )?", line)[0]
        print(
            textwrap.fill(
                line.strip(),
                width,
                initial_indent=lead,
                subsequent_indent=indent + " " * len(hang),
                break_long_words=False,
                break_on_hyphens=False,
            ),
            flush=True,
        )
