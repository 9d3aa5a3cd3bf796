"""Oracles that have never heard of ralph: what a fresh clone says, what stands at home,
what still runs."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import signal
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.conftest import MARK, Repo

BRANCH = "ralph/p"

# Below home, what is ralph's to write; objects are compared by what git has.
OWN = [
    "prd.json",
    "progress.txt",
    ".ralph",
    ".git/ralph",
    ".git/objects",
    ".git/info",
    ".git/refs/ralph",
    ".git/refs/heads/ralph",
    ".git/logs/refs/ralph",
    ".git/logs/refs/heads/ralph",
]


def subjects(repo: Repo, branch: str = BRANCH) -> list[str]:
    return repo.git("log", "--format=%s", branch).splitlines()


@contextlib.contextmanager
def hidden(repo: Repo) -> Iterator[Path]:
    """All that a test made lies elsewhere for a while, so that no path leads back to
    it; where home is then."""
    top = Path(tempfile.mkdtemp(dir=repo.outside.parent))
    away = top / "away"
    repo.outside.rename(away)
    try:
        yield away / repo.path.relative_to(repo.outside)
    finally:
        away.rename(repo.outside)
        top.rmdir()


def fresh_clone_is_green(
    repo: Repo, branch: str, commands: Sequence[str], setup: str = ""
) -> bool:
    """Whether every command is green in a fresh clone of `branch` in which `setup` has
    run; each begins with the branch's files, no untracked ones, and no process of the
    one before."""
    with hidden(repo) as home, tempfile.TemporaryDirectory() as top:
        clone = Path(top, "clone")
        env = {"PATH": os.environ["PATH"], "HOME": top, "LC_ALL": "C", "TMPDIR": top}
        env |= {"GIT_CONFIG_SYSTEM": os.devnull, MARK: repo.mark}

        def ends(folder: Path, *argv: str) -> bool:
            nothing = subprocess.DEVNULL
            process = subprocess.Popen(
                argv, cwd=folder, env=env, stdin=nothing, stdout=nothing, stderr=nothing, start_new_session=True
            )  # fmt: skip
            try:
                return process.wait(60) == 0
            finally:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                if argv[0] != "git":
                    repo.kill()

        moved = f"url.file://{home.parent}/.insteadOf=file://{repo.outside}/"
        words = ["git", "-c", moved, "-c", "protocol.file.allow=always", "clone", "-q"]
        # to ask for submodules that are not there takes long
        if ends(home, "git", "cat-file", "-e", f"{branch}:.gitmodules"):
            words.append("--recurse-submodules")
        if not ends(home, *words, "--branch", branch, str(home), str(clone)):
            return False
        if setup and not ends(clone, "sh", "-c", setup):
            return False
        for command in commands:
            for argv in ("git reset -q --hard", "git clean -ffdq"):
                if not ends(clone, *argv.split()):
                    return False
            if not ends(clone, "sh", "-c", command):
                return False
    return True


def home_of(repo: Repo) -> dict[str, str]:
    """Every file, link and folder at home but for what is ralph's: mode, bytes, and in
    the tree the time too."""
    found = {}
    for folder, folders, names in os.walk(repo.path):
        inside = os.path.relpath(folder, repo.path)
        for name in [*folders, *names]:
            relative = os.path.normpath(f"{inside}/{name}")
            if relative in OWN:
                if name in folders:
                    folders.remove(name)
                continue
            path = repo.path / relative
            known = path.lstat()
            what = f"{known.st_mode:o}"
            if stat.S_ISLNK(known.st_mode):
                what += f" -> {path.readlink()}"
            elif stat.S_ISREG(known.st_mode):
                what += f" {hashlib.sha256(path.read_bytes()).hexdigest()}"
                what += "" if relative.startswith(".git/") else f" {known.st_mtime_ns}"
            found[relative] = what
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> list[str]:
    """What differs between two looks at home, in words."""
    found = []
    for name in sorted(before.keys() | after.keys()):
        was = before.get(name, "nothing")
        now = after.get(name, "nothing")
        if was != now:
            found.append(f"{name}: {was} => {now}")
    return found


def objects(repo: Repo) -> set[str]:
    words = ("cat-file", "--batch-all-objects", "--batch-check=%(objectname)")
    return set(repo.git(*words).split())


def every_start_has_one_verdict(repo: Repo) -> bool:
    """Whether each attempt that began has come to a verdict, and to one only."""
    begun = [one["iteration"] for one in repo.records("start")]
    ended = [one["iteration"] for one in repo.records("verdict")]
    return len(set(begun)) == len(begun) and sorted(begun) == sorted(ended)


def told(repo: Repo, task: str) -> str:
    """All that the records of a task's verdicts say, as one text."""
    records = [record for record in repo.records("verdict") if record["task"] == task]
    return json.dumps(records, ensure_ascii=False, default=str)


def said_by_agents(repo: Repo) -> str:
    """What the transcripts hold."""
    words = ""
    for path in (repo.path / ".ralph").rglob("*"):
        if path.is_file() and path.stat().st_size < 1 << 20:
            if "prompt" not in path.name:
                words += path.read_text(errors="replace")
    return words
