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
from pathlib import Path

import psutil

from _ralph.errors import BadInput
from _ralph.files import resource
from _ralph.git.git import git

LIMIT = 60.0
"""Seconds after which a `ralph run` of the demo is taken for stuck and ended."""
AGENT_TIMEOUT = "3s"
BRANCH = "ralph/todo"
EXITS = [-9, 4]
"""How its two runs end: the first is killed, the second needs a person."""
MINE = "\n\ndef colours(  # half of an idea of mine"
_LAST = """
Answer the question and go on (the folder is yours to delete):
  cd {folder}
  git log --stat {branch}
  {ralph} retry T-5 --answer 'delete it'
  {ralph} run

In a project of your own:{install}
  ralph init             # write prd.json with the checks that it finds
  ralph plan brief.md    # have the tasks written, or write them yourself
  ralph doctor           # try everything once
  ralph run --max-usd 20 --until 07:00"""
_RALPH = [sys.executable, str(Path(__file__).resolve().parent.parent.parent / "ralph.py")]
_BOLD, _PLAIN = "\x1b[1m", "\x1b[0m"
_COLOR = re.compile(r"\x1b\[\d+m")
_NO_GIT_CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_SYSTEM": os.devnull}


def run_demo(folder: Path | None) -> int:
    """Play the acts in `folder`, or in a temporary one; 0 if both runs ended as they should."""
    if folder is not None and folder.exists() and any(folder.iterdir()):
        raise BadInput(f"{folder} is not empty; name a folder that is new or empty")
    stage = _Stage((folder or Path(tempfile.mkdtemp(prefix="ralph-demo-"))).resolve())
    try:
        stage.build()
        stage.play()
        ended = stage.exits
    finally:
        stage.clear()
    installed = shutil.which("ralph") is not None
    ralph = "ralph" if installed else shlex.join(_RALPH)
    install = (
        ""
        if installed
        else f"\n  uv tool install {shlex.quote(str(Path(_RALPH[1]).parent))}    # or: pipx install"
    )
    print(_LAST.format(folder=shlex.quote(str(stage.folder)), branch=BRANCH, ralph=ralph, install=install))
    if ended != EXITS:
        print(f"ralph: the demo failed: its runs ended with {ended}, not {EXITS}", file=sys.stderr)
    return int(ended != EXITS)


class _Stage:
    """The repository, the processes around it, and how its runs ended."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._props = resource("templates/demo")
        self._places = Path(tempfile.mkdtemp(prefix="ralph-demo-places-")).resolve()
        self._mark = uuid.uuid4().hex
        self._env = {**_environment(self._mark), "RALPH_PLACES": str(self._places)}
        self._acts: list[dict[str, str]] = json.loads((self._props / "acts.json").read_text("utf-8"))
        self.exits: list[int] = []

    def build(self) -> None:
        """A small repository with a history of its own, and a plan whose checks run this Python."""
        _say(
            f"A small to-do program with tests and a plan of five tasks, in {self.folder}.\n"
            f"The agent is a script ({self._props / 'agent.py'}): no model, no key, nothing is sent "
            f"anywhere, and its prices are made up. The rest is real: ralph, git, the files, the checks.\n"
            f"You are in the middle of an edit of todo.py, which is not committed."
        )
        self.folder.mkdir(parents=True, exist_ok=True)
        agent = self.folder / "demo-agent"
        words = {"{python}": shlex.quote(sys.executable), "{agent}": str(agent)}
        words["{script}"] = shlex.quote(str(self._props / "agent.py"))
        for source in filter(Path.is_file, (self._props / "project").iterdir()):
            content = source.read_text("utf-8")
            for name, word in words.items():
                content = content.replace(name, json.dumps(word)[1:-1] if source.suffix == ".json" else word)
            (self.folder / source.name).write_text(content, "utf-8")
        agent.chmod(0o755)
        self._git("init", "-q", "-b", "main", "--template=")
        # git reads this user's ignore file even where it reads no configuration of theirs.
        own = {"user.name": "ralph demo", "user.email": "demo@localhost", "core.excludesFile": os.devnull}
        for key, value in own.items():
            self._git("config", key, value)
        self._git("add", "-A")
        self._git("commit", "-q", "-m", "A to-do list")
        self._edit_todo()

    def _edit_todo(self) -> None:
        """Do what a person does meanwhile: write a line that is no Python yet, and commit nothing."""
        with (self.folder / "todo.py").open("a", encoding="utf-8") as file:
            file.write(MINE)

    def play(self) -> None:
        """The same command twice, for the first one is killed in act 4; then what a person does next."""
        for again in ("", "   # once more"):
            _say(f"\n$ ralph run -v --agent-timeout {AGENT_TIMEOUT}{again}")
            if not again:
                _say(f"\n{self._acts[0]['heading']}", color=_BOLD)
            self.exits.append(self._follow())
        for name in ("status", "report"):
            _say(f"\n$ ralph {name}")
            env = {**self._env, "COLUMNS": str(_width())}
            subprocess.run([*_RALPH, name], cwd=self.folder, env=env, timeout=LIMIT, check=True)

    def clear(self) -> None:
        """Kill whatever the demo started and did not see the end of, and remove the places."""
        for process in self._processes():
            with contextlib.suppress(psutil.Error):
                process.kill()
        shutil.rmtree(self._places, ignore_errors=True)

    def _follow(self) -> int:
        """Show one `ralph run` as it goes and act on the cues in it; its exit status."""
        process = subprocess.Popen(
            [*_RALPH, "run", "-v", "--agent-timeout", AGENT_TIMEOUT], cwd=self.folder, env=self._env,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            encoding="utf-8", errors="replace",
        )  # fmt: skip
        watchdog = threading.Timer(LIMIT, self.clear)
        watchdog.start()
        try:
            for line in process.stdout or ():
                if not line.startswith("{"):  # an event of the agent
                    self._hear(line.rstrip().replace(f"{self.folder}/", ""), process)
            return process.wait(LIMIT)
        finally:
            watchdog.cancel()

    def _hear(self, said: str, process: subprocess.Popen[str]) -> None:
        """Show one line of ralph's. The cues are words of agent.py, and of ralph for the end of a task."""
        color = _COLOR.search(said)
        line = re.sub(r"^[\d-]+ [\d:]+ ", "", _COLOR.sub("", said))
        _say(line, "  ", color[0] if color else "")
        act = self._acts[0]
        if "Starting a server" in line:
            self._edit_todo()
            _say("-> Meanwhile you keep editing todo.py in your own tree.")
            served = len(self._processes("T-3"))
            _say(f"-> {served} processes are running for it: the agent and its server.")
        elif "Half of it is written" in line:
            self._kill(process)
        elif line.startswith(("  passed", "  blocked")) and act["task"]:
            _say(f"-> {act['meaning']} Processes left: {len(self._processes(act['task']))}.")
            self._acts.pop(0)
            _say(f"\n{self._acts[0]['heading']}", color=_BOLD)

    def _kill(self, process: subprocess.Popen[str]) -> None:
        """-9 for the whole of ralph at one moment: nobody is left to clean up."""
        whole = [*psutil.Process(process.pid).children(), psutil.Process(process.pid)]
        for one in whole:
            one.suspend()
        for one in whole:
            one.kill()
        left = len(self._processes("T-4"))
        _say(f"-> kill -9: ralph and its worker are dead; the agent is still running ({left} process).")

    def _processes(self, task: str | None = None) -> list[psutil.Process]:
        """What runs with the demo's mark in its environment; with `task`, that task's agents."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                env = process.environ()
                if env.get("RALPH_DEMO") == self._mark and task in (None, env.get("RALPH_TASK_ID")):
                    found.append(process)
        return found

    def _git(self, *words: str) -> None:
        git(self.folder, *words, env=_NO_GIT_CONFIG)


def _environment(mark: str) -> dict[str, str]:
    """One that owes nothing to this user's settings and can be told from all others."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("RALPH_", "GIT_"))}
    ours = {"PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "LC_ALL": "C.UTF-8", "RALPH_DEMO": mark}
    return {**kept, **_NO_GIT_CONFIG, **ours, **({"FORCE_COLOR": "1"} if _colored() else {})}


def _colored() -> bool:
    """Whether this is a terminal that is to show colours."""
    return sys.stdout.isatty() and os.environ.get("TERM") != "dumb" and not os.environ.get("NO_COLOR")


def _width() -> int:
    """Columns that the demo fills."""
    return max(40, min(shutil.get_terminal_size().columns, 100))


def _say(words: str, indent: str = "", color: str = "") -> None:
    """Print `words` wrapped to the terminal, the rest of a long line a little further in."""
    color = color if _colored() else ""
    for line in words.split("\n"):
        lines = textwrap.wrap(
            line, _width(), initial_indent=indent, subsequent_indent=f"{indent}   ", break_on_hyphens=False,
            break_long_words=False,
        )  # fmt: skip
        print("\n".join(f"{color}{one}{_PLAIN}" if color else one for one in lines), flush=True)
