"""The session in docs/walkthrough.md, with a scripted planner and agent.

`python -m tests.transcript` plays and prints it, with what differs from day to day made
alike; `--write` puts it into that page.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from pathlib import Path

from tests.conftest import captured

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "walkthrough.md"
BLOCK = re.compile(r"(?<=```console\n).*?(?=```\n)", re.DOTALL)

STORY = [
    "mkdir shop && cd shop && git init -q",
    "ralph init",
    "git add -A && git commit -qm start",
    "ralph plan ../brief.md --planner my-planner",
    "git add -A && git commit -qm plan",
    "ralph doctor --agent my-agent | grep -E '^(now|no) '",
    "ralph run --agent my-agent",
    "ralph status",
    "ralph land",
    "git add prd.json progress.txt && git commit -qm 'Plan and notes'",
    "git log --oneline",
]

SETTINGS = """
[user]
name = You
email = you@example.invalid
[init]
defaultBranch = main
"""

BRIEF = """\
A module `prices` for a shop: `total(items)` adds up prices in cents, and `show(cents)` prints them
as euros: 1234 becomes 12.34. Tests for both.
"""

PLANNER = """\
import json, sys
assert "1234 becomes 12.34" in sys.stdin.read()
print("I looked at the folder; it is empty.")
total = {
    "id": "US-001",
    "title": "Add up prices in cents",
    "acceptanceCriteria": ["total of tea 250 and milk 120 is 370"],
    "checks": [{"name": "total", "run": "python3 -m unittest -q test_total"}],
}
show = {
    "id": "US-002",
    "title": "Show cents as euros",
    "acceptanceCriteria": ["1234 is shown as 12.34", "5 is shown as 0.05"],
    "checks": [{"name": "show", "run": "python3 -m unittest -q test_show"}],
    "dependsOn": ["US-001"],
}
print(json.dumps({
    "questions": [],
    "description": "Prices of a shop, in cents. No floats anywhere.",
    "checks": [{"name": "syntax", "run": "python3 -m compileall -q ."}],
    "userStories": [total, show],
}))
"""

# US-002 is done wrong at first and called complete all the same. Told of the red check,
# the second attempt does it right.
AGENT = r'''
import os, pathlib, sys, time
prompt = sys.stdin.read()
time.sleep(0.1)  # what takes no time is shown without any
prices = pathlib.Path("prices.py")
TOTAL = """\
def total(items):
    return sum(cents for _, cents in items)
"""
TEST_TOTAL = """\
import unittest, prices

class Total(unittest.TestCase):
    def test_total(self):
        self.assertEqual(prices.total([("tea", 250), ("milk", 120)]), 370)
"""
SHOW = """\

def show(cents):
    return f"{cents // 100}.{cents % 100}"
"""
TEST_SHOW = """\
import unittest, prices

class Show(unittest.TestCase):
    def test_show(self):
        self.assertEqual(prices.show(1234), "12.34")
        self.assertEqual(prices.show(5), "0.05")
"""
if os.environ["RALPH_TASK_ID"] == "US-001":
    prices.write_text(TOTAL)
    pathlib.Path("test_total.py").write_text(TEST_TOTAL)
else:
    show = SHOW
    if "AssertionError" in prompt:
        show = show.replace("% 100}", "% 100:02}")
    prices.write_text(TOTAL + show)
    pathlib.Path("test_show.py").write_text(TEST_SHOW)
print("COMPLETE. Every test passes.")
'''

ALIKE = [
    (r"(?m)^\d{4}-\d\d-\d\d \d\d:\d\d:\d\d ", ""),
    (r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-21 22:30"),
    (r"\d+\.\d s\b", "0.2 s"),
    (r"(?m)^[0-9a-f]{7,}(?= )", "c0ffee1"),
    (r"(?<=, at )[0-9a-f]{12}\b", "c0ffee1c0ffe"),
    (r"(?<=/shop-)[0-9a-f]{8}\b", "1f0c3a2b"),
]
"""What is another on every machine and at every hour, and what stands in its place."""


def play(folder: Path) -> str:
    """Type the commands of the story in an empty `folder`; the whole session."""
    env = stage(folder)
    session = ""
    where = folder
    for line in STORY:
        done = captured(["sh", "-c", f"exec 2>&1; {line}"], where, env)
        session += f"$ {line}\n{done.stdout}"
        where = folder / "shop"
    return alike(session, folder)


def stage(folder: Path) -> dict[str, str]:
    """Put the brief, and `ralph`, planner and agent as programs, below `folder`; the
    environment in which they are found, and nothing of this user's own."""
    tools = folder / "bin"
    tools.mkdir()
    ralph = f'#!/bin/sh\nexec {sys.executable} {ROOT / "ralph.py"} "$@"\n'
    python = f"#!{sys.executable}\n"
    programs = {
        "ralph": ralph,
        "my-planner": python + PLANNER,
        "my-agent": python + AGENT,
    }
    for name, content in programs.items():
        (tools / name).write_text(content)
        (tools / name).chmod(0o755)
    settings = folder / "gitconfig"
    settings.write_text(SETTINGS)
    (folder / "brief.md").write_text(BRIEF)
    return {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LC_ALL": "C.UTF-8",
        "COLUMNS": "400",
        "GIT_CONFIG_GLOBAL": str(settings),
        "GIT_CONFIG_SYSTEM": os.devnull,
        "XDG_STATE_HOME": str(folder / "state"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }


def alike(session: str, folder: Path) -> str:
    """`session` without what is another on every machine and at every hour."""
    session = session.replace(f"{folder}/bin/", "").replace(str(folder), "~")
    for pattern, words in ALIKE:
        session = re.sub(pattern, words, session)
    return session


def written() -> str:
    """The session that the page has."""
    (session,) = BLOCK.findall(PAGE.read_text("utf-8"))
    return str(session)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        played = play(Path(scratch).resolve())
    print(played, end="")
    if "--write" in sys.argv:
        page = PAGE.read_text("utf-8")
        PAGE.write_text(BLOCK.sub(lambda _: played, page), "utf-8")
