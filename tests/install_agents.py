"""Install the agents' own programs for `make test-agents`, with npm and pip, each once.

    python -m tests.install_agents [NAME...]

They go to ~/.local/share/ralph-agents, or where RALPH_TEST_AGENTS says; not below a
cache folder or /tmp, for inside the sandbox these are others. One that cannot be had is
named with the reason and left out: this never fails.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NPM = {
    "claude": "@anthropic-ai/claude-code@2.1.330",
    "codex": "@openai/codex@0.169.0",
    "gemini": "@google/gemini-cli@0.61.0",
    "opencode": "opencode-ai@1.18.33",
    "pi": "@mariozechner/pi-coding-agent@0.73.1",
}
AIDER = "aider-chat==0.86.2"
AIDER_NEEDS = (
    "import sys, venv, ensurepip; sys.exit(not (3, 10) <= sys.version_info < (3, 13))"
)
NPM_OPTIONS = (
    "--no-audit", "--no-fund", "--prefer-offline", "--fetch-retries=1", "--fetch-retry-mintimeout=2000",
)  # fmt: skip
NAMES = (*NPM, "aider")
DEADLINE = 300.0


class CannotBeHad(Exception):
    pass


def folder(name: str) -> Path:
    """Where the agent is installed; another version gets another folder."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local/share"
    version = NPM[name].rpartition("@")[2] if name in NPM else AIDER.rpartition("=")[2]
    return (
        Path(os.environ.get("RALPH_TEST_AGENTS") or Path(data) / "ralph-agents")
        / f"{name}-{version}"
    )


def programs(name: str) -> Path:
    """The folder that belongs on PATH for this agent."""
    return folder(name) / ("node_modules/.bin" if name in NPM else "bin")


def is_installed(name: str) -> bool:
    return (folder(name) / "installed").exists()


def install(name: str) -> None:
    home = folder(name)
    shutil.rmtree(home, ignore_errors=True)  # what an interrupted install left
    home.mkdir(parents=True)
    if name in NPM:
        if shutil.which("npm") is None:
            raise CannotBeHad("npm is not on PATH")
        call(home, "npm", "install", "--prefix", str(home), *NPM_OPTIONS, NPM[name])
    else:
        call(home, python_for_aider(), "-m", "venv", str(home))
        call(home, str(home / "bin/python"), "-m", "pip", "install", "-q", AIDER)
    call(home, "env", f"HOME={home}", str(programs(name) / name), "--version")
    (home / "installed").touch()


def python_for_aider() -> str:
    for python in (sys.executable, "python3.12", "python3.11", "python3.10"):
        words = [shutil.which(python) or "false", "-c", AIDER_NEEDS]
        if subprocess.run(words, capture_output=True).returncode == 0:
            return python
    raise CannotBeHad("it needs Python 3.10 to 3.12")


def call(home: Path, *words: str) -> None:
    log = home / "install.log"
    try:
        with log.open(
            "ab"
        ) as out:  # a pipe would be waited for while any grandchild holds it
            done = subprocess.run(
                words,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=subprocess.STDOUT,
                timeout=DEADLINE,
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CannotBeHad(str(error)) from None
    if done.returncode != 0:
        said = [
            line
            for line in log.read_text("utf-8", "replace").splitlines()
            if line.strip()
        ]
        raise CannotBeHad(
            f"{' '.join(words)} ended with {done.returncode}: {' | '.join(said[-3:])}"
        )


def main(names: list[str]) -> None:
    for name in names or NAMES:
        if name not in NAMES:
            sys.exit(f"{name}: expected one of {', '.join(NAMES)}")
        try:
            if not is_installed(name):
                print(f"{name}: installing into {folder(name)}", flush=True)
                install(name)
            print(f"{name}: ready", flush=True)
        except (CannotBeHad, OSError) as error:
            print(f"{name}: skipped, {error}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
