"""The run as people see it: on a terminal (an emulated one), under cron, with nobody
reading."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from pathlib import Path

import pyte
import pytest

from _ralph.show.live import send
from tests.conftest import Repo, cases, within
from tests.scripts import MAKES, RESULT, own, plan, speaker

TEXTS = [
    "I look around first.",
    "\x1b[31mred\x1b[0m, a bell \x07, \x1b]0;title\x07 and \u202eright to left",
    "日本語の長い説明がここに入りますので端末の幅を超えることになります。" * 3,
    "one\ntwo\nthree\nfour",
    "x" * 5000,
]


EVENT = """
{"type": "assistant", "message": {"usage": {"input_tokens": 1000, "output_tokens": 10}, "content": [
    {"type": "text"}, {"type": "tool_use", "name": "Bash", "input": {}}]}}
"""


def says(number: int, words: str, tool: str = "") -> str:
    """Python that prints an event of claude's with these words, a tool, and 1000 tokens
    for each message so far."""
    event = json.loads(EVENT)
    message = event["message"]
    message["id"] = f"m{number}"
    message["content"][0]["text"] = words
    if tool:
        message["content"][1]["input"]["command"] = tool
    else:
        del message["content"][1]
    return f"print({json.dumps(event)!r}, flush=True)\n"


GOES_ON = "while not (OUT / 'go').exists(): time.sleep(0.05)\n"


WORKS = f"{MAKES}; print({RESULT!r})"


def talks(repo: Repo, script: str = "") -> str:
    """An agent that says all of it, runs `script`, and does its task."""
    said = [says(i, words, f"pytest {i}") for i, words in enumerate(TEXTS)]
    return speaker(repo, "".join(said) + script + WORKS)


class Terminal:
    """ralph on a terminal of its own; `screen` is what a person sees, `bytes` what was
    sent."""

    def __init__(self, repo: Repo, *words: str, columns: int = 60) -> None:
        self.screen = pyte.Screen(columns, 200)
        self._stream = pyte.ByteStream(self.screen)
        self.bytes = b""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
        self._fd = master
        argv = [sys.executable, "-m", "ralph", "run", *words]
        env = {"TERM": "xterm", "PYTHONUTF8": "1", **repo.env}
        self.process = subprocess.Popen(
            argv, cwd=repo.path, env=env, stdin=slave, stdout=slave, stderr=slave, start_new_session=True
        )  # fmt: skip
        os.close(slave)

    def read(self, until: Callable[[], bool], timeout: float = 20) -> None:
        end = time.monotonic() + timeout
        while not until() and time.monotonic() < end:
            if select.select([self._fd], [], [], 0.1)[0]:
                try:
                    chunk = os.read(self._fd, 65536)
                except OSError:
                    return
                self.bytes += chunk
                self._stream.feed(chunk)

    def finish(self) -> int:
        self.read(lambda: False, timeout=1 if self.process.poll() is not None else 30)
        os.close(self._fd)
        return self.process.wait(10)

    @property
    def status(self) -> str:
        """The last line."""
        lines = self.lines()
        return lines[-1] if lines else ""

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]


def test_a_terminal_shows_words_tools_and_a_line_that_stays(repo: Repo) -> None:
    plan(repo, own("T1"), {**own("T2"), "dependsOn": ["T1"]})
    waits = "while not (OUT / f'go-{task}').exists(): time.sleep(0.05)\n"
    words = ["--agent", talks(repo, waits), "--max-usd", "5"]
    seen = Terminal(repo, *words, columns=80)
    sums = r"0 of 2 passed \| \$0\.00 of \$5\.00 \| \d+ s, until \d\d:\d\d"
    line = rf"{sums} \| T1 attempt 1 of 3 [1-9]\d* s"
    seen.read(lambda: re.fullmatch(line, seen.status) is not None)
    assert re.fullmatch(line, seen.status), seen.status
    lines = seen.lines()
    assert str(lines).count("0 of 2 passed") == 1
    for said in ("I look around first.", "three", "red, a bell , and right to left"):
        assert f"  | {said}" in lines
    assert "  $ Bash pytest 0" in lines
    assert "  | four" not in lines
    repo.write("../go-T1", "")
    seen.read(lambda: "T2 attempt 1" in seen.status)
    assert seen.status.startswith("1 of 2 passed"), seen.status
    repo.write("../go-T2", "")
    assert seen.finish() == 0
    shown = "\n".join(seen.lines())
    assert "passed | " in shown
    assert "2 of 2 passed, on b" in shown
    assert ", until" not in shown


def test_every_line_that_an_agent_can_lengthen_takes_one_row(repo: Repo) -> None:
    plan(repo, {"id": "日本語の長い説明がここに入ります", "checks": ["true"]})
    seen = Terminal(repo, "--agent", talks(repo, GOES_ON), columns=30)
    seen.read(lambda: "  $ Bash pytest 4" in seen.lines())
    before = seen.lines()
    redrawn = seen.bytes.count(b"\r")
    seen.read(lambda: seen.bytes.count(b"\r") > redrawn + 1)
    assert seen.lines()[: len(before) - 1] == before[:-1]
    repo.write("../go", "")
    assert seen.finish() == 0
    said = [line for line in seen.lines() if line.startswith(("  | ", "  $ "))]
    assert len(said) == 12  # two of them of three lines: the others are cut
    assert f"  | {'x' * 25}" in said  # the last column stays blank


def test_with_several_workers_each_line_names_its_task(repo: Repo) -> None:
    plan(repo, *map(own, ("T1", "T2", "T3", "T4")), checks=["true"])
    agent = speaker(repo, says(1, "hm") + GOES_ON + WORKS)
    seen = Terminal(repo, "--jobs", "3", "--agent", agent, columns=160)
    said = {"  | T1: hm", "  | T2: hm", "  | T3: hm"}
    tasks = ", ".join([r"T[123] attempt 1 of 3 \d+ s"] * 3)
    line = rf"0 of 4 passed \| \d+ s, until \d\d:\d\d \| {tasks}"
    seen.read(lambda: bool(re.fullmatch(line, seen.status)) and said <= {*seen.lines()})
    assert re.fullmatch(line, seen.status), seen.status
    assert repo.ralph("stop").returncode == 0
    stopping = "stopping | 0 of 4 passed"
    seen.read(lambda: seen.status.startswith(stopping), timeout=5)
    assert seen.status.startswith(stopping)
    repo.write("../go", "")
    assert seen.finish() == 3
    lines = "\n".join(seen.lines())
    assert re.search(r"\d   T2: check true: passed", lines)
    assert re.search(r"\d   T3: passed \| [\d.]+ s, \$0.25", lines)
    assert "stopping | " not in lines


@cases(r"""
    name       value   allowed
    TERM       xterm   \x1b\[(K|\d+m|\?7[lh])
    NO_COLOR   1       \x1b\[(K|\?7[lh])
    TERM       dumb    (?!)
""")
def test_nothing_but_its_own_escapes_reaches_the_terminal(
    repo: Repo, name: str, value: str, allowed: str
) -> None:
    plan(repo, own("T1"))
    repo.env[name] = value
    seen = Terminal(repo, "--agent", talks(repo))
    assert seen.finish() == 0
    assert (b"look around" in seen.bytes) is (value != "dumb")
    left = re.sub(allowed.encode(), b"", seen.bytes)
    assert not re.search(b"\x1b|\x07|\xe2\x80\xae", left)


@cases("""
    option  least  most
    -q      0      0
    --once  5      10
    -v      20     30
""")
def test_what_a_log_file_gets(repo: Repo, option: str, least: str, most: str) -> None:
    plan(repo, own("T1"))
    noise = "print('no event', flush=True)\n"
    done = repo.ralph("run", "--agent", talks(repo, noise), option)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    lines = done.stdout.splitlines()
    assert int(least) <= len(lines) <= int(most)
    stamp = re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ")
    said = [line for line in lines if not stamp.match(line)]
    if option != "-v":
        assert said == []
        return
    # every word, no JSON
    assert said[:2] == ["  | I look around first.", "  $ Bash pytest 0"]
    assert "  | four" in said
    assert f"  | {'x' * 5000}" in said
    assert said[-1] == "no event"
    assert "{" not in done.stdout


def test_quiet_is_not_silent_about_a_failure(repo: Repo) -> None:
    plan(repo, "false")
    done = repo.ralph("run", "-q", "--once", "--agent", talks(repo))
    assert (done.returncode, done.stdout) == (3, "")
    assert re.fullmatch(r"ralph: .* \| 0 of 1 passed, on branch ralph/p\n", done.stderr)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_log_on_a_full_disk_stops_nothing(repo: Repo) -> None:
    plan(repo, own("T1"))
    ralph = "$PYTHON -m ralph run --no-awake --agent"
    repo.sh(f"{ralph} {talks(repo)} > /dev/full")
    assert repo.passed() == ["T1"]


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_who_stops_reading_holds_nobody_and_who_goes_on_loses_nothing(
    kind: str,
) -> None:
    read, write = pty.openpty() if kind == "terminal" else os.pipe()
    with os.fdopen(write, "w") as stream, within(5):
        assert not send(stream, "x" * 1_000_000, 0.3)
        assert not send(stream, "x" * 1_000_000, 0.0)
        assert os.get_blocking(write), "the shell's own is as it was"
        reader = subprocess.Popen(["sh", "-c", "sleep 0.3; cat"], stdin=read, stdout=-1)
        assert send(stream, "the last line\n", 2.0)
    os.close(read)
    out, _ = reader.communicate(timeout=10)
    assert b"the last line" in out
