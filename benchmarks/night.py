"""The same bad night, worked by the shell loop that most people use and by ralph: `make
night`. An oracle that has heard of neither says what of each claim is true in a fresh
clone."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
AGENT = Path(__file__).resolve().parent / "night_agent.py"
PAGE = ROOT / "docs/proof.md"
MARKS = ("<!-- night -->", "<!-- /night -->")
TASKS = {
    "honest": "does the work at once",
    "liar": "says that it is done, for ever",
    "second": "gets it right the second time",
    "server": "does the work, and leaves a server running",
    "floods": "does the work, and prints 100 MB",
    "marks": "marks itself done in the plan",
    "breaks": "does the work, and breaks the first task's",
    "hangs": "hangs once",
    "limited": "meets the provider's limit twice",
    "dies": "dies half way, once",
    "ignored": "leaves its work where git ignores it",
    "resets": "resets the repository to its first commit, once",
    "guts": "replaces the test",
    "stash": "pops a person's stash",
}
TEST = 'import sys\nsys.path[:0] = [".", "build"]\nfrom {0} import answer\nassert answer() == 42\n'
PERSONS = {
    "idea.txt": "an untracked file\n",
    ".env": "KEY=1\n",
    "README.md": "an edit of mine\n",
}
SILENCE, PATIENCE = 20.0, 300.0
"""Seconds without a call of the agent, and seconds in all, after which somebody ends a
loop."""
KILLED_AT = 6
"""The call of the agent at which the loop is killed, to be started again."""
PROMPT = "Work on the first open task of prd.json. Say COMPLETE when every task passes."
SHELL = 'while :; do {0}claude -p "$(cat PROMPT.md)" > out.log 2>&1; grep -q COMPLETE out.log && break; done'
RALPH = "ralph run -q --agent claude --full-permissions --agent-timeout 5s --no-awake --jobs {0}"
LOOPS = {
    "shell loop": SHELL.format(""),
    "shell loop with `timeout`": SHELL.format("timeout -k 1 5 "),
    "ralph": RALPH.format(1),
    "ralph `--jobs 4`": RALPH.format(4),
}


@dataclass
class Night:
    """What came of one loop: tasks by their names, seconds."""

    claimed: set[str]
    true: set[str]
    calls: list[str]
    seconds: float
    left: int
    lost: list[str]
    ended: str

    @property
    def cells(self) -> list[str]:
        refused = self.calls.count("limited") - 1
        return [
            str(len(self.claimed)), str(len(self.claimed & self.true)), str(len(self.claimed - self.true)),
            f"{len(self.calls)}, {max(refused, 0)} of them refused", f"{self.seconds:.0f} s", str(self.left),
            ", ".join(self.lost) or "nothing", self.ended,
        ]  # fmt: skip


HEADS = (
    "tasks marked as done", "of these, green in a fresh clone", "of these, red in a fresh clone",
    "calls of the agent", "time", "processes left running", "lost of a person's", "it ended",
)  # fmt: skip


def sh(cwd: Path, words: str, env: dict[str, str]) -> str:
    done = subprocess.run(
        ["sh", "-c", words],
        cwd=cwd,
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    return done.stdout if done.returncode == 0 else ""


def environment(top: Path) -> dict[str, str]:
    """For the loop and all that it starts: nothing of the person's who runs this, and a
    mark."""
    clean = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith(("RALPH", "GIT_", "CLAUDE", "ANTHROPIC"))
    }
    return clean | {
        "PATH": f"{top}/bin:{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(top), "XDG_STATE_HOME": f"{top}/state", "NIGHT": str(top), "IS_SANDBOX": "1",
        "GIT_CONFIG_SYSTEM": os.devnull, "GIT_CONFIG_GLOBAL": f"{top}/gitconfig",
        "ANTHROPIC_API_KEY": "none", "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def build(top: Path, env: dict[str, str]) -> Path:
    """A repository with the plan, a test for each task, and a person's files; the agent
    as `claude`."""
    home, program = top / "home", top / "bin/claude"
    for folder in (home / "tests", program.parent):
        folder.mkdir(parents=True)
    program.write_text(f"#!{sys.executable}\n{AGENT.read_text()}")
    program.chmod(0o755)
    (top / "gitconfig").write_text(
        "[user]\nname = A Person\nemail = person@example.invalid\n"
    )
    for name in TASKS:
        (home / f"tests/test_{name}.py").write_text(TEST.format(name))
    tasks = [
        {"id": name, "title": f"{name}.py answers 42", "priority": i, "passes": False,
         "checks": [f"python3 tests/test_{name}.py"]}
        for i, name in enumerate(TASKS)
    ]  # fmt: skip
    plan = {
        "project": "night",
        "branchName": "ralph/night",
        "protect": ["tests/**"],
        "userStories": tasks,
    }
    (home / "prd.json").write_text(json.dumps(plan, indent=2))
    (home / "PROMPT.md").write_text(PROMPT)
    (home / ".gitignore").write_text("build/\n.env\n.ralph/\nout.log\n__pycache__/\n")
    (home / "README.md").write_text("night\n")
    sh(
        home,
        "git init -qb main && git add -A && git commit -qm start && git tag start",
        env,
    )
    sh(home, "echo mine >> PROMPT.md && git stash -q", env)
    for name, content in PERSONS.items():
        (home / name).write_text(content)
    return home


def play(name: str, command: str, top: Path) -> Night:
    """Let one loop work, kill it once, start it again, and wait for its end."""
    env = environment(top)
    home, started = build(top, env), time.monotonic()
    loop = start(command, home, env)
    while len(calls(top)) < KILLED_AT and loop.poll() is None:
        time.sleep(0.02)
    loop.kill()
    loop.wait()
    while (
        code := ends(loop := start(command, home, env), top)
    ) == 75:  # what the kill left is being ended
        time.sleep(0.2)
    ended = (
        f"by itself, with {code}"
        if code is not None
        else "never: nothing happened any more"
    )
    seconds = time.monotonic() - started
    left = [one for one in psutil.process_iter() if marked(one, top)]
    branch = "ralph/night" if "ralph" in name else "main"
    found = Night(
        claimed(home),
        true(home, top, branch, env),
        calls(top),
        seconds,
        len(left),
        lost(home, env),
        ended,
    )
    for one in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            one.kill()
    return found


def ends(loop: subprocess.Popen[bytes], top: Path) -> int | None:
    """The exit status of a loop; None where it was ended, for it got nowhere."""
    began = last = time.monotonic()
    seen = 0
    while loop.poll() is None:
        now, count = time.monotonic(), len(calls(top))
        if count != seen:
            last, seen = now, count
        if now - last > SILENCE or now - began > PATIENCE:
            loop.kill()
            loop.wait()
            return None
        time.sleep(0.05)
    return loop.returncode


def start(command: str, home: Path, env: dict[str, str]) -> subprocess.Popen[bytes]:
    words = (
        ["bash", "-c", command] if command.startswith("while") else shlex.split(command)
    )
    log = (home.parent / "loop.log").open("ab")
    return subprocess.Popen(
        words,
        cwd=home,
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
        start_new_session=True,
    )


# ---------------------------------------------------------------- the oracle


def calls(top: Path) -> list[str]:
    """The task of each call of the agent, in their order."""
    log = top / "calls"
    return log.read_text().split() if log.exists() else []


def claimed(home: Path) -> set[str]:
    try:
        tasks = json.loads((home / "prd.json").read_text())["userStories"]
    except (OSError, ValueError):
        return set()
    return {task["id"] for task in tasks if task["passes"]}


def true(home: Path, top: Path, branch: str, env: dict[str, str]) -> set[str]:
    """The tasks whose test, as it was in the evening, is green in a fresh clone of the
    branch."""
    clone = top / "clone"
    sh(
        top,
        f"git clone -q -b {branch} {home} {clone} && git -C {clone} checkout -q start -- tests",
        env,
    )
    return {
        name
        for name in TASKS
        if sh(clone, f"python3 tests/test_{name}.py && echo yes", env)
    }


def lost(home: Path, env: dict[str, str]) -> list[str]:
    """What of a person's is not as it was in the evening."""
    gone = [name for name, content in PERSONS.items() if read(home / name) != content]
    return gone + ["the stash"] * ("mine" not in sh(home, "git stash show -p", env))


def read(path: Path) -> str:
    return path.read_text() if path.exists() else ""


def marked(one: psutil.Process, top: Path) -> bool:
    try:
        return (
            one.environ().get("NIGHT") == str(top)
            and one.status() != psutil.STATUS_ZOMBIE
        )
    except psutil.Error:
        return False


# ---------------------------------------------------------------- the table


def table(nights: dict[str, Night]) -> str:
    lines = [f"| | {' | '.join(nights)} |", f"|---|{'---|' * len(nights)}"]
    columns = [night.cells for night in nights.values()]
    lines += [
        f"| {head} | {' | '.join(row)} |"
        for head, row in zip(HEADS, zip(*columns, strict=True), strict=True)
    ]
    return "\n".join(lines)


def main() -> int:
    """Print the table; with `--write`, put it into docs/proof.md. 1 where a claim of
    ralph's is false."""
    wanted = [word for word in sys.argv[1:] if not word.startswith("-")] or list(LOOPS)
    nights = {}
    for name in wanted:
        with tempfile.TemporaryDirectory(
            prefix="night-", ignore_cleanup_errors=True
        ) as top:
            nights[name] = play(name, LOOPS[name], Path(top).resolve())
            print(f"{name}: {' | '.join(nights[name].cells)}", flush=True)
            if "--log" in sys.argv:
                print(read(Path(top, "home/progress.txt")))
    print(table(nights))
    if "--write" in sys.argv:
        put = f"{MARKS[0]}\n{table(nights)}\n{MARKS[1]}"
        old = re.compile(rf"{MARKS[0]}.*{MARKS[1]}", re.DOTALL)
        PAGE.write_text(old.sub(lambda _: put, PAGE.read_text()))
    ours = [night for name, night in nights.items() if "ralph" in name]
    return int(
        any(night.claimed - night.true or night.left or night.lost for night in ours)
    )


if __name__ == "__main__":
    sys.exit(main())
