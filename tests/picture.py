"""docs/night.svg and docs/report.png: a run on a terminal and its report, with a
scripted agent.

`python -m tests.picture` makes both; the second one needs Chromium.
"""

from __future__ import annotations

import fcntl
import json
import os
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
from html import escape
from itertools import groupby
from pathlib import Path
from xml.etree import ElementTree

import pyte

from tests import transcript

NBSP = "\u00a0"  # a viewer of SVG makes one blank of many
DOCS = transcript.ROOT / "docs"
COLUMNS, ROWS = 104, 80
CELL, LINE = 8.4, 19  # of a letter, in pixels
COLOURS = {
    "default": "#d6deeb", "red": "#ef6b73", "green": "#8bd649", "brown": "#e5c07b", "cyan": "#56b6c2",
}  # fmt: skip
"""By pyte's names: what it calls brown is yellow."""
SHOWN = "ralph run --max-usd 5"

AGENT = f"""\
import contextlib, io, json, os, pathlib, sys
task, first = os.environ["RALPH_TASK_ID"], os.environ["RALPH_ATTEMPT"] == "1"
def tell(**event): print(json.dumps(event), flush=True)
if task == "US-003":
    tell(type="say", text="The brief says nothing about other currencies.")
    question = "Which rate: daily or fixed?"
    pathlib.Path(os.environ["RALPH_HANDOFF"]).write_text(f"blocked on: {{question}}\\n")
else:
    tell(type="say", text="I write the function and a test for it." if first else "A cent needs two digits: 5 is 0.05.")
    with contextlib.redirect_stdout(io.StringIO()):
        exec({transcript.AGENT!r})
    tell(type="tool", name="Bash", command=f"python3 -m unittest -q test_{{'total' if task == 'US-001' else 'show'}}")
    tell(type="say", text="COMPLETE. Every test passes.")
tell(type="end", usd=0.12 if first else 0.05, input=31000, output=1900)
"""

PLAN = {
    "project": "shop",
    "description": transcript.PLAN["description"],
    "agent": "my-agent",
    "agents": {"my-agent": {
        "argv": ["my-agent", "{permissions}"], "permissions": {"edit": [], "full": []}, "reports": ["dollars", "tokens"],
        "events": [
            {"when": {"type": "say"}, "say": "text"},
            {"when": {"type": "tool"}, "tool": ["", "name", "command"]},
            {"when": {"type": "end"}, "final": "done", "add": {name: [name] for name in ("usd", "input", "output")}},
        ],
    }},
    "userStories": [
        {"id": id, "title": title, "checks": [{"name": f"test {name}", "run": f"python3 -m unittest -q test_{name}"}]}
        for id, title, name in (
            ("US-001", "Add up prices in cents", "total"),
            ("US-002", "Show cents as euros", "show"),
            ("US-003", "Show prices in dollars", "dollars"),
        )
    ],
}  # fmt: skip


def play(folder: Path) -> tuple[pyte.Screen, Path]:
    """A run on a terminal, as it stands there at the end; the folder of the project."""
    env = transcript.stage(folder, {"my-agent": AGENT})
    shop = folder / "shop"
    shop.mkdir()
    (shop / "prd.json").write_text(json.dumps(PLAN, indent=2))
    for words in ("init -q", "add -A", "commit -qm plan"):
        subprocess.run(["git", *words.split()], cwd=shop, env=env, check=True)
    screen = pyte.Screen(COLUMNS, ROWS)
    stream = pyte.ByteStream(screen)
    stream.feed(f"\x1b[1m$ {SHOWN}\x1b[0m\r\n".encode())
    for piece in on_a_terminal(SHOWN, shop, {**env, "TERM": "xterm"}):
        stream.feed(piece)
    return screen, shop


def on_a_terminal(command: str, cwd: Path, env: dict[str, str]) -> list[bytes]:
    """What `command` writes to a terminal of its own."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    own = {key: value for key, value in env.items() if key != "COLUMNS"}
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        cwd=cwd,
        env=own,
        stdin=slave,
        stdout=slave,
        stderr=slave,
    )
    os.close(slave)
    pieces = []
    try:
        while piece := os.read(master, 1 << 16):
            pieces.append(piece)
    except OSError:  # its last process has gone
        pass
    os.close(master)
    process.wait(60)
    return pieces


def svg(screen: pyte.Screen, folder: Path) -> str:
    """The screen as a picture; a piece of text for each run of letters in one
    colour."""
    lines: list[list[tuple[str, str, bool]]] = []
    for row in range(screen.cursor.y):
        letters = [screen.buffer[row][column] for column in range(COLUMNS)]
        runs = groupby(letters, key=lambda letter: (letter.fg, letter.bold))
        lines.append(
            [
                (
                    "".join(letter.data for letter in run).replace(str(folder), "~"),
                    fg,
                    bold,
                )
                for (fg, bold), run in runs
            ]
        )
    drawn = []
    for number, runs_of_line in enumerate(lines):
        column, y = 0, 52 + number * LINE
        for words, fg, bold in runs_of_line:
            shown = words.rstrip()
            if shown:
                weight = ' font-weight="bold"' if bold else ""
                drawn.append(
                    f'<text x="{16 + column * CELL:.1f}" y="{y}" textLength="{len(shown) * CELL:.1f}" '
                    f'fill="{COLOURS.get(fg, COLOURS["default"])}"{weight}>{escape(shown).replace(" ", NBSP)}</text>'
                )
            column += len(words)
    width, height = round(32 + COLUMNS * CELL), 60 + len(lines) * LINE
    dots = "".join(
        f'<circle cx="{22 + 18 * i}" cy="18" r="5.5" fill="{colour}"/>'
        for i, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
    )
    body = "\n".join(drawn)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        f'font-family="ui-monospace, Menlo, Consolas, monospace" font-size="14">\n'
        f'<rect width="{width}" height="{height}" rx="10" fill="#141b24"/>{dots}\n{body}\n</svg>\n'
    )


def words(picture: str) -> list[str]:
    """The lines of text in a picture, without what is another in every run."""
    found: dict[str, str] = {}
    for element in ElementTree.fromstring(picture).iter(
        "{http://www.w3.org/2000/svg}text"
    ):
        found[element.attrib["y"]] = (
            f"{found.get(element.attrib['y'], '')} {element.text}"
        )
    lines = (" ".join(line.split()) for line in found.values())
    lines = (re.sub(r"^\d\d:\d\d:\d\d", "22:30:00", line) for line in lines)
    lines = (re.sub(r"(?<=/parked/)\w+", "1f0c3a2b", line) for line in lines)
    return [transcript.alike(line, Path("/nowhere")) for line in lines]


def photograph(shop: Path, env: dict[str, str], target: Path) -> None:
    """The upper part of the project's report in Chromium, as a PNG."""
    chromium = next(
        filter(
            None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))
        )
    )
    subprocess.run(
        ["/bin/sh", "-c", "ralph report"],
        cwd=shop,
        env=env,
        check=True,
        stdout=subprocess.DEVNULL,
    )
    page = shop / ".ralph" / "report.html"
    page.write_text(page.read_text("utf-8").replace(env["HOME"], "~"), "utf-8")
    with tempfile.TemporaryDirectory() as profile:
        subprocess.run(
            [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
             f"--user-data-dir={profile}", "--window-size=900,660", f"--screenshot={target}",
             page.as_uri()],
            check=True, capture_output=True, timeout=120,
        )  # fmt: skip


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(
        dir="/tmp"
    ) as scratch:  # a short name, for it breaks lines
        place = Path(scratch).resolve()
        at_the_end, project = play(place)
        (DOCS / "night.svg").write_text(svg(at_the_end, place), "utf-8")
        if "--svg" not in sys.argv:
            photograph(project, transcript.environment(place), DOCS / "report.png")
