"""The transcripts in docs/walkthrough.md: from an empty folder to the morning, with a
scripted planner and agent, and a suite that is partly red.

`python -m tests.transcript` prints it, with what differs from day to day made alike;
`--write` puts it into that page.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "walkthrough.md"
BLOCK = re.compile(r"(?<=<!-- transcript -->\n```console\n).*?(?=```\n)", re.DOTALL)

BRIEF = """\
A module `prices` for a shop: `total(items)` adds up prices in cents, and `show(cents)` prints them
as euros: 1234 becomes 12.34. Tests for both.
"""

PLAN: dict[str, Any] = {
    "questions": [],
    "description": "Prices of a shop, in cents. No floats anywhere.",
    "checks": ["python3 -m compileall -q ."],
    "userStories": [
        {
            "id": "US-001",
            "title": "Add up prices in cents",
            "description": "total(items) in prices.py; items are pairs of a name and cents.",
            "acceptanceCriteria": [
                "total of tea 250 and milk 120 is 370",
                "total of nothing is 0",
            ],
            "checks": ["python3 -m unittest -q test_total"],
            "priority": 1,
        },
        {
            "id": "US-002",
            "title": "Show cents as euros",
            "description": "show(cents) in prices.py.",
            "acceptanceCriteria": ["1234 is shown as 12.34", "5 is shown as 0.05"],
            "checks": ["python3 -m unittest -q test_show"],
            "priority": 2,
            "dependsOn": ["US-001"],
        },
    ],
}

PLANNER = f"""\
import json, sys
assert "1234 becomes 12.34" in sys.stdin.read()
print("I looked at the folder; it is empty.")
print(json.dumps({PLAN!r}))
"""

# US-002 is done wrong at first and called complete all the same; told of the red check,
# the second attempt does it right.
AGENT = r"""
import os, pathlib, sys, time
P, prompt, task = pathlib.Path, sys.stdin.read(), os.environ["RALPH_TASK_ID"]
time.sleep(0.1)  # what takes no time is shown without any
if task == "SALE":  # the first time it breaks what was right; told of that, it does not
    part = "" if "newly red" in prompt else "[:1]"
    P("prices.py").write_text(f"def total(cents):\n    return sum(cents{part})\n\n\ndef sale(cents):\n    return total(cents) * 9 // 10\n")
elif task == "US-001":
    P("prices.py").write_text("def total(items):\n    return sum(cents for _, cents in items)\n")
    P("test_total.py").write_text(
        "import unittest, prices\n\nclass Total(unittest.TestCase):\n    def test_total(self):\n"
        "        self.assertEqual(prices.total([('tea', 250), ('milk', 120)]), 370)\n"
        "        self.assertEqual(prices.total([]), 0)\n")
else:
    good = "AssertionError" in prompt
    cents = "{cents % 100:02}" if good else "{cents % 100}"
    P("prices.py").write_text(P("prices.py").read_text().partition("\n\n")[0].rstrip() +
        f"\n\n\ndef show(cents):\n    return f'{{cents // 100}}.{cents}'\n")
    P("test_show.py").write_text(
        "import unittest, prices\n\nclass Show(unittest.TestCase):\n    def test_show(self):\n"
        "        self.assertEqual(prices.show(1234), '12.34')\n"
        "        self.assertEqual(prices.show(5), '0.05')\n")
P(os.environ["RALPH_HANDOFF"]).write_text("learned: prices are whole cents everywhere\n")
print("COMPLETE. Every test passes.")
"""

STORY = [
    "mkdir shop && cd shop && git init -q",
    "ralph init",
    "git add -A && git commit -qm start",
    "cat ../brief.md",
    "ralph plan ../brief.md --planner my-planner",
    "git add -A && git commit -qm plan",
    "ralph doctor -v --agent my-agent | grep -E 'plan:|git:|check |errors'",
    "ralph run --agent my-agent",
    "ralph status",
    "git log --oneline ralph/shop",
    "ralph report",
]


# Runs functions called test_*, as pytest does, and reports them as JUnit XML.
TESTS = r"""
import os, pathlib, runpy, sys
sys.path.insert(0, "")
cases = []
for file in sorted(pathlib.Path().glob(sys.argv[1] if sys.argv[1:] else "test_*.py")):
    try:
        tests = [pair for pair in runpy.run_path(str(file)).items() if pair[0].startswith("test_")]
    except ImportError as error:
        cases.append((file.stem, "import", str(error)))
        continue
    for name, test in tests:
        try:
            test()
            cases.append((file.stem, name, ""))
        except AssertionError as error:
            cases.append((file.stem, name, str(error) or "wrong"))
red = sum(bool(said) for _, _, said in cases)
print(f"{len(cases) - red} passed, {red} failed")
with open(os.environ["RALPH_RESULTS"], "w") as file:
    rows = (f'<testcase classname="{of}" name="{name}">{said and f"<failure>{said}</failure>"}</testcase>' for of, name, said in cases)
    file.write(f"<testsuite>{''.join(rows)}</testsuite>")
sys.exit(bool(red))
"""

OLD_SHOP = {
    "prices.py": "def total(cents):\n    return sum(cents)\n",
    "test_prices.py": """\
from prices import total

def test_total():
    assert total([250, 120]) == 370, "tea and milk are 3.70"

def test_of_nothing():
    assert total([]) == 0

def test_refund():
    assert total([100, -50]) == 51
""",
    "test_sale.py": """\
from prices import sale

def test_sale():
    assert sale([1000]) == 900
""",
    "prd.json": """\
{
  "checks": [{"run": "my-tests", "results": "junit"}],
  "protect": ["test_*.py"],
  "userStories": [
    {"id": "SALE", "title": "Ten percent off", "checks": [{"run": "my-tests test_sale.py", "results": "junit"}], "passes": false}
  ]
}
""",
}
OLD_STORY = [
    "cd old-shop && cat prd.json",
    "ralph doctor --agent my-agent | grep places",
    "ralph run --agent my-agent",
    "grep -E '^- (checks|reason)' progress.txt",
]


def stage(folder: Path, programs: dict[str, str]) -> dict[str, str]:
    """Put `ralph` and these Python programs on a PATH of their own below `folder`; the
    environment with it."""
    tools = folder / "bin"
    tools.mkdir()
    for name, words in programs.items():
        (tools / name).write_text(f"#!{sys.executable}\n{words}")
    (tools / "ralph").write_text(
        f'#!/bin/sh\nexec {sys.executable} {ROOT / "ralph.py"} "$@"\n'
    )
    for tool in tools.iterdir():
        tool.chmod(0o755)
    (folder / "gitconfig").write_text(
        "[user]\n\tname = You\n\temail = you@example.invalid\n[init]\n\tdefaultBranch = main\n"
    )
    return environment(folder)


def environment(folder: Path) -> dict[str, str]:
    """What the commands of a stage in `folder` are told: nothing of this user's own."""
    return {
        "PATH": f"{folder / 'bin'}:{os.environ['PATH']}", "HOME": str(folder), "LC_ALL": "C.UTF-8", "COLUMNS": "400",
        "GIT_CONFIG_GLOBAL": str(folder / "gitconfig"), "GIT_CONFIG_SYSTEM": os.devnull,
        "XDG_STATE_HOME": str(folder / "state"), "PYTHONDONTWRITEBYTECODE": "1",
    }  # fmt: skip


def play(folder: Path) -> list[str]:
    """The commands of both stories and what they print, run one after another in an
    empty `folder`."""
    env = stage(folder, {"my-planner": PLANNER, "my-agent": AGENT, "my-tests": TESTS})
    (folder / "brief.md").write_text(BRIEF)
    old = folder / "old-shop"
    old.mkdir()
    for name, words in OLD_SHOP.items():
        (old / name).write_text(words)
    begin = "git init -q && git add -A && git commit -qm start"
    subprocess.run(["/bin/sh", "-c", begin], cwd=old, env=env, check=True, timeout=60)
    return [alike(tell(story, folder, env), folder) for story in (STORY, OLD_STORY)]


def tell(story: list[str], folder: Path, env: dict[str, str]) -> str:
    """The commands of a story that begins in `folder`, and what they print."""
    told, where = "", folder
    for line in story:
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=where, env=env, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=120,
        )  # fmt: skip
        told += f"$ {line}\n{done.stdout}"
        for name in ("shop", "old-shop"):
            where = folder / name if f"cd {name} " in line else where
    return told


def alike(told: str, folder: Path) -> str:
    """`told` without what is another on every machine and at every hour."""
    told = told.replace(f"{folder}/bin/", "").replace(str(folder), "~")
    told = re.sub(
        r"\d{4}-\d\d-\d\d \d\d:\d\d(:\d\d)?",
        lambda m: "2026-11-21 22:30" + (":00" if m[1] else ""),
        told,
    )
    told = re.sub(r"\d+\.\d s\b", "0.2 s", told)
    told = re.sub(
        r"^[0-9a-f]{7,}(?= )|(?<=, at )[0-9a-f]{12}\b",
        "c0ffee1",
        told,
        flags=re.MULTILINE,
    )
    told = re.sub(r"(?<=/shop-)[0-9a-f]{8}\b", "1f0c3a2b", told)
    told = re.sub(r"\d+\.\d MB", "0.2 MB", told)
    return re.sub(r"(?<=git: )\d+\.\d+\b", "2.47", told)


def written() -> list[str]:
    """The transcripts that the page has."""
    return BLOCK.findall(PAGE.read_text("utf-8"))


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        transcripts = play(Path(scratch).resolve())
    print(*transcripts, sep="\n", end="")
    if "--write" in sys.argv:
        left = iter(transcripts)
        PAGE.write_text(
            BLOCK.sub(lambda _: next(left), PAGE.read_text("utf-8")), "utf-8"
        )
