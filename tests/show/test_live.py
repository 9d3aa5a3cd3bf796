"""The run as people see it: on a terminal (an emulated one), under cron, with nobody
reading."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Callable
from typing import Any

import psutil
import pyte
import pytest

from _ralph.show.live import Row, send, unblocked
from tests.conftest import Repo, within
from tests.scripts import plan, speaker

TEXTS = [
    "I look around first.",
    "\x1b[31mred\x1b[0m, a bell \x07, \x1b]0;title\x07 and \u202eright to left",
    "日本語の長い説明がここに入りますので端末の幅を超えることになります。" * 3,
    "one\ntwo\nthree\nfour",
    "x" * 5000,
]


def says(number: int, words: str, tool: str = "") -> str:
    """An event of claude's with these words, a tool, and 1000 tokens for each message
    so far."""
    content: list[dict[str, Any]] = [{"type": "text", "text": words}]
    if tool:
        content.append({"type": "tool_use", "name": "Bash", "input": {"command": tool}})
    usage = {"input_tokens": 1000, "output_tokens": 10}
    return json.dumps(
        {
            "type": "assistant",
            "message": {"id": f"m{number}", "content": content, "usage": usage},
        }
    )


class Terminal:
    """ralph on a terminal of its own; `screen` is what a person sees, `bytes` what was
    sent."""

    def __init__(self, repo: Repo, *words: str, columns: int = 60, **env: str) -> None:
        self.screen = pyte.Screen(columns, 200)
        self._stream = pyte.ByteStream(self.screen)
        self.bytes = b""
        master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0))
        self._fd = master
        self.process = subprocess.Popen(
            [sys.executable, "-m", "ralph", "run", *words], cwd=repo.path, stdin=slave, stdout=slave, stderr=slave,
            env={**repo.env, "TERM": "xterm", "PYTHONUTF8": "1", **env}, start_new_session=True,
        )  # fmt: skip
        os.close(slave)

    def resize(self, columns: int) -> None:
        fcntl.ioctl(
            self._fd, termios.TIOCSWINSZ, struct.pack("HHHH", 200, columns, 0, 0)
        )

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

    def lines(self) -> list[str]:
        return [line.rstrip() for line in self.screen.display if line.strip()]


def talker(repo: Repo, script: str = "") -> str:
    said = "\n".join(
        f"print({says(i, words, f'pytest {i}')!r}, flush=True)"
        for i, words in enumerate(TEXTS)
    )
    result = '{"type":"result","is_error":false,"result":"ok","total_cost_usd":0.25,"usage":{"input_tokens":5}}'
    return speaker(repo, f"{said}\n{script}\nP('T1.txt').touch(); print({result!r})")


def test_a_terminal_shows_words_tools_and_a_line_that_stays(repo: Repo) -> None:
    plan(
        repo,
        {"checks": ["test -f T1.txt"]},
        {"checks": ["test -f T1.txt"], "dependsOn": ["T1"]},
    )
    wait = "while not (OUT / 'go').exists(): time.sleep(0.05)"
    seen = Terminal(repo, "--agent", talker(repo, wait), "--once")
    seen.read(lambda: re.search(r"idle [2-5] s", "\n".join(seen.lines())) is not None)
    lines = seen.lines()
    assert re.fullmatch(
        r"T1( task 1)? \| attempt 1 of 3 \| \d s \| idle \d s \| 5\.0k tokens",
        lines[-2],
    ), lines[-2]
    assert re.fullmatch(r"0 of 2 passed \| \d s, limit \d\d:\d\d", lines[-1]), lines[-1]
    assert "  | I look around first." in lines
    assert "  $ Bash pytest 0" in lines
    assert "  | red, a bell , and right to left" in lines
    assert "  | three" in lines and "  | four" not in lines
    assert [line[-3:] for line in lines if "x" * 40 in line] == ["..."]
    (repo.outside / "go").touch()
    assert seen.finish() == 0
    lines = seen.lines()
    assert not any("idle" in line for line in lines)
    assert "passed | " in "\n".join(lines) and "1 of 2 passed, on b" in "\n".join(lines)


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        (60, "US-001 Sort all prices by currency | agent | 2 min 5 s"),
        (50, "US-001 Sort all prices by c... | agent | 2 min 5 s"),
        (35, "US-001 | agent | 2 min 5 s"),
    ],
)
def test_the_row_of_a_worker_has_as_much_of_the_title_as_fits(
    columns: int, row: str
) -> None:
    since = time.monotonic() - 125
    assert (
        Row("US-001", "Sort all prices by currency", "agent", since).words(columns)
        == row
    )


def waiter(repo: Repo) -> str:
    """An agent that says a word, waits until it may go on, and does its task."""
    result = json.dumps(
        {"type": "result", "is_error": False, "total_cost_usd": 0.25, "usage": {}}
    )
    return speaker(
        repo,
        f"print({says(1, 'hm')!r}, flush=True)\nwhile not (OUT / 'go').exists(): time.sleep(0.05)\n"
        f"P(f'{{task}}.txt').touch(); print({result!r})",
    )


def test_several_workers_have_a_row_each_and_a_stop_is_seen(repo: Repo) -> None:
    plan(
        repo,
        *[{"checks": [f"sleep 0.3; test -f T{n}.txt"]} for n in (1, 2, 3, 4)],
        checks=["true"],
    )
    agent, go = waiter(repo), repo.outside / "go"
    go.touch()
    assert (
        repo.run(agent, "--once", "--task", "T4")[0] == 0
    )  # else nobody knows what an attempt costs
    go.unlink()
    seen = Terminal(repo, "--jobs", "3", "--max-usd", "5", "--agent", agent)
    seen.read(lambda: sum("1.0k tokens" in line for line in seen.lines()) == 3)
    *above, _, _, _, _ = seen.lines()
    for number, row in enumerate(seen.lines()[-4:-1], 1):
        assert re.fullmatch(
            rf"T{number}( task \d)? \| attempt 1 of 3 \| \d+ s \| idle \d+ s \| 1\.0k tokens",
            row,
        ), row
    assert re.fullmatch(
        r"1 of 4 passed \| \$0\.00 of \$5\.00 \| \d+ s, limit \d\d:\d\d",
        seen.lines()[-1],
    )
    assert b"T3 task 3 | in line for a clean room | 0 s" in seen.bytes
    assert "  | T2: hm" in above and not any(
        " s" in line and "idle" in line for line in above
    )
    assert not any(
        line.startswith("running checks") for line in seen.lines()
    )  # those before the work
    seen.process.send_signal(signal.SIGINT)
    seen.read(
        lambda: seen.lines()[-1].startswith(
            "stopping | 1 of 4 passed | $0.00 of $5.00"
        ),
        timeout=5,
    )
    assert seen.lines()[-1].startswith("stopping | ")
    go.touch()
    assert seen.finish() == 130
    assert sorted(repo.verdicts()) == [
        "T1 passed",
        "T2 passed",
        "T3 passed",
        "T4 passed",
    ]
    assert not any(
        " | idle" in line or line.startswith("stopping |") for line in seen.lines()
    )


def test_ralph_stop_is_seen_too(repo: Repo) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    seen = Terminal(repo, "--agent", waiter(repo), columns=40)
    seen.read(lambda: "idle" in "\n".join(seen.lines()))
    assert repo.ralph("stop").returncode == 0
    seen.read(lambda: seen.lines()[-1].startswith("stopping | "), timeout=5)
    assert re.fullmatch(r"stopping \| 0 of 1 passed( \| \d+ s)?", seen.lines()[-1]), (
        seen.lines()[-1]
    )
    (repo.outside / "go").touch()
    assert seen.finish() == 3


def test_lines_that_a_narrower_terminal_has_broken_are_taken_away(repo: Repo) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    seen = Terminal(repo, "--agent", waiter(repo), columns=100)
    seen.read(
        lambda: (
            re.search(r"idle \d s \| 1.0k tokens", "\n".join(seen.lines())) is not None
        )
    )
    rows, before = seen.lines()[-2:], len(seen.bytes)
    seen.resize(30)
    seen.read(lambda: b"A\x1b[J" in seen.bytes[before:], timeout=5)
    ups = [int(up) for up in re.findall(rb"\r\x1b\[(\d+)A\x1b\[J", seen.bytes[before:])]
    assert sum(-(-len(row) // 30) for row in rows) - 1 == 3 in ups
    (repo.outside / "go").touch()
    assert seen.finish() == 0


@pytest.mark.parametrize(
    ("no_color", "allowed"),
    [("", rb"\x1b\[([JK]|\d+[Am])"), ("1", rb"\x1b\[([JK]|\d+A)")],
)
def test_nothing_but_its_own_escapes_reaches_the_terminal(
    repo: Repo, no_color: str, allowed: bytes
) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    seen = Terminal(repo, "--agent", talker(repo), NO_COLOR=no_color)
    seen.finish()
    assert b"look around" in seen.bytes
    assert b"\x1b" not in re.sub(allowed, b"", seen.bytes)
    assert b"\x07" not in seen.bytes and "\u202e".encode() not in seen.bytes


@pytest.mark.parametrize("columns", [20, 60, 200])
def test_no_line_of_the_agent_is_wider_than_the_terminal(
    repo: Repo, columns: int
) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    seen = Terminal(repo, "--agent", talker(repo), columns=columns)
    seen.finish()
    shown = [line for line in seen.lines() if line.startswith(("  | ", "  $ "))]
    assert len(shown) == 12  # two of them of three lines: the others are cut


def test_a_flood_of_words_does_not_drown_the_terminal(repo: Repo) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    flood = f"for i in range(20000): print({says(1, 'again and again')!r})"
    seen = Terminal(repo, "--agent", talker(repo, flood))
    assert seen.finish() == 0
    assert 0 < seen.bytes.count(b"again and again") < 2000


@pytest.mark.parametrize(("words", "shown"), [(["-q"], 0), ([], 0), (["-v"], 20)])
def test_what_a_log_file_gets(repo: Repo, words: list[str], shown: int) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    done = repo.ralph("run", "--agent", talker(repo), *words)
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert "\x1b" not in done.stdout and "idle" not in done.stdout
    assert sum('"type": "assistant"' in line for line in lines) == (
        len(TEXTS) if shown else 0
    )
    assert len(lines) == 0 if words == ["-q"] else 5 <= len(lines) <= 10 + shown
    assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d |\{", line) for line in lines)


def test_a_terminal_that_goes_away_stops_nothing(repo: Repo) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    wait = "while not (OUT / 'go').exists(): time.sleep(0.05)"
    seen = Terminal(repo, "--agent", talker(repo, wait))
    seen.read(lambda: "idle" in "\n".join(seen.lines()))
    with contextlib.suppress(OSError):
        os.close(seen._fd)
    (repo.outside / "go").touch()
    seen.process.wait(20)
    assert repo.passed() == ["T1"]


def test_a_wait_is_shown_with_the_time_that_it_ends(repo: Repo) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    limit = '{"type":"result","is_error":true,"terminal_reason":"api_error","result":"limited","usage":{}}'
    seen = Terminal(repo, "--agent", speaker(repo, f"print({limit!r})"), columns=100)
    seen.read(
        lambda: bool(
            re.search(r"waiting until \d\d:\d\d:\d\d \| \d+ s", "\n".join(seen.lines()))
        )
    )
    assert re.match(r"waiting until \d\d:\d\d:\d\d \| \d+ s$", seen.lines()[-2])
    assert re.match(r"0 of 1 passed \| \d+ s, limit \d\d:\d\d$", seen.lines()[-1])
    seen.process.send_signal(signal.SIGINT)
    assert seen.finish() == 130


def test_a_killed_worker_costs_its_attempt_and_the_terminal_goes_on(repo: Repo) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    hangs_once = "if not (OUT / 'on').exists(): (OUT / 'on').touch(); time.sleep(60)"
    seen = Terminal(repo, "--no-awake", "--agent", talker(repo, hangs_once))
    seen.read(
        lambda: (repo.outside / "on").exists() and "idle" in "\n".join(seen.lines())
    )
    (worker,) = psutil.Process(seen.process.pid).children()
    worker.kill()
    assert seen.finish() == 0
    assert repo.verdicts() == ["T1 interrupted", "T1 passed"]
    lines = "".join(seen.lines())
    assert "the worker of this attempt was killed" in lines and "idle" not in lines


@pytest.mark.parametrize("kind", ["terminal", "pipe"])
def test_who_stops_reading_holds_nobody_where_dev_fd_is_a_copy(
    monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """As on macOS, where its flags are not heeded."""
    real = os.open

    def copied(path: Any, flags: int) -> int:
        return (
            os.dup(int(path[8:])) if path.startswith("/dev/fd/") else real(path, flags)
        )

    read, write = pty.openpty() if kind == "terminal" else os.pipe()
    monkeypatch.setattr(os, "open", copied)
    with os.fdopen(write, "w") as stream, within(5):
        own = unblocked(stream)
        assert not send(own, b"x" * 1_000_000, 0.3)
        assert os.get_blocking(write), "the shell's own is as it was"
    os.close(own)
    os.close(read)
