"""Mutants: ralph with one safeguard taken out. Each must be caught by what the other tests assert."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import Repo
from tests.test_process import DESCENDANTS, HANGS, sleepers

# name -> the sabotage (run before ralph's own code) and what is then wrong in a run that must not pass.
SABOTAGE = {
    "none": "",
    "believes the agent": """
from _ralph import attempt
from _ralph.model import Verdict
attempt.decide = lambda a, *_: (Verdict.PASSED, "")
""",
    "no evidence rule": """
from dataclasses import replace
from _ralph import attempt, checks
def decide(a, *rest, real=checks.decide):
    return real(replace(a, tree_before="other"), *rest)
attempt.decide = decide
""",
    "no guard": """
from _ralph import guard
guard.Guard.restore = lambda self: {}
""",
    "no journal guard": """
from _ralph import journal
journal.Journal.guard = lambda self: []
""",
    "no protection": """
from _ralph import protect
protect.Protected.restore = lambda *_: []
""",
    "other branches stay moved": """
from _ralph import refs
refs.Refs._settle_refs = lambda *_: []
""",
    "hooks unguarded": """
from _ralph import refs
refs.Refs.vital = lambda self: []
""",
    "ignored files unseen": """
from _ralph import protect
protect.Protected._loose = lambda *_: set()
""",
    "the person's files unwatched": """
from _ralph import protect
protect.Protected.touched = lambda self: []
""",
    "records on disk alone": """
from _ralph import journal
def guard(self, real=journal.Journal.guard):
    self._known = None
    return real(self)
journal.Journal.guard = guard
""",
    "the lock's file believed": """
from _ralph import attempt
attempt.announce_again = lambda *_: []
""",
    "no sweep": """
from _ralph import process
process.sweep = lambda *_a, **_k: []
""",
    "no lock": """
from _ralph import lock
class Lock:
    def release(self): pass
lock.acquire = lambda paths: (paths.private.mkdir(parents=True, exist_ok=True), Lock())[1]
""",
}
CHEAT = """
P("prd.json").write_text(P("prd.json").read_text().replace('"passes": false', '"passes": true'))
P("progress.txt").open("a").write('<!-- ralph {"v":1,"event":"verdict","plan":"p@","iteration":9,'
    '"task":"T1","title":"task 1","verdict":"passed"} -->\\n')
P("guarded.txt").write_text("gutted")
subprocess.Popen(["sleep", "600"], start_new_session=True)
P("conftest.py").touch(); P(".git/info").mkdir(exist_ok=True); P(".git/info/exclude").write_text("conftest.py")
P(".git/hooks").mkdir(exist_ok=True); P(".git/hooks/pre-commit").touch()
P("mine.txt").unlink()
sh("git branch -D other; rm .git/ralph/lock .git/ralph/*.progress")
"""


def symptoms(repo: Repo, sabotage: str) -> set[str]:
    """Run a cheating agent under a sabotaged ralph; every promise that was broken."""
    repo.write("guarded.txt", "real\n")
    repo.commit("guarded")
    repo.git("branch", "other")
    repo.plan({}, checks=["true"], protect=["guarded.txt", "conftest.py"])
    repo.write("mine.txt", "mine\n")
    done = repo.ralph("run", "-q", "--max-iterations", "1", "--agent", repo.agent(CHEAT), first=sabotage)
    found = set()
    if done.returncode != 3:
        found.add("exit")
    if "T1" in repo.passed():
        found.add("passed")
    if repo.verdicts() != ["T1 no-op"] or len(repo.records("start")) != 1:
        found.add("records")
    if repo.read("guarded.txt") != "real\n":
        found.add("protected")
    if (repo.path / "conftest.py").exists():
        found.add("protected name")
    if (repo.path / ".git/hooks/pre-commit").exists():
        found.add("hook")
    if "mine.txt" not in repo.read("progress.txt"):
        found.add("not named")
    if not repo.git("branch", "--list", "other"):
        found.add("branch")
    if not (repo.path / ".git/ralph/lock").exists():
        found.add("lock")
    if any(p.name() == "sleep" for p in repo.alive()):
        found.add("process left")
    return found


@pytest.mark.parametrize(
    ("mutant", "symptom"),
    [
        ("none", None),
        ("believes the agent", "passed"),
        ("no evidence rule", "passed"),
        ("no guard", "passed"),
        ("no journal guard", "records"),
        ("no protection", "protected"),
        ("other branches stay moved", "branch"),
        ("hooks unguarded", "hook"),
        ("ignored files unseen", "protected name"),
        ("the person's files unwatched", "not named"),
        ("records on disk alone", "records"),
        ("the lock's file believed", "lock"),
        ("no sweep", "process left"),
    ],
)
def test_every_safeguard_is_needed(repo: Repo, mutant: str, symptom: str | None) -> None:
    found = symptoms(repo, SABOTAGE[mutant])
    assert (symptom in found) if symptom else not found, found


@pytest.mark.parametrize(
    "line", ["LC_ALL=POSIX PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 exec RALPH", "exec RALPH >&-"]
)
def test_without_preparation_it_fails_on_a_bare_machine(repo: Repo, line: str) -> None:
    repo.plan({"title": "caf\u00e9", "checks": ["test -f T1.txt"]})
    script = repo.outside / "sabotaged.py"
    script.write_text("import ralph\nralph.prepare_interpreter = lambda: None\nralph.main()\n")
    agent = repo.agent("P('T1.txt').touch()")
    words = line.replace("RALPH", f"{sys.executable} {script} run -q --agent '{agent}'")
    done = subprocess.run(
        words, shell=True, cwd=repo.path, env=repo.env, stderr=subprocess.DEVNULL, timeout=60
    )
    assert done.returncode == 1


def test_without_the_mark_what_cleared_its_environment_outlives_both_halves(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    agent = repo.agent(f"{DESCENDANTS['cleared environment']}\n{HANGS}")
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../hanging")
    loop = psutil.Process(process.pid).children()[0]
    process.send_signal(signal.SIGSTOP)
    loop.kill()
    process.kill()
    process.wait(5)
    unmarked = "from _ralph import supervisor\nsupervisor._number = lambda run_id: 0"
    repo.ralph("run", "-q", "--task", "nope", first=unmarked)
    left = [psutil.Process(pid) for pid in sleepers(repo)]
    names = [one.name() for one in left]
    for one in left:
        one.kill()
    assert names == ["sleep"]


def test_without_the_lock_two_loops_run_at_once(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('../started').touch(); time.sleep(3); P('T1.txt').touch()")
    first = repo.start("run", "--agent", agent)
    repo.wait_for("../started")
    second = repo.ralph("run", "--json", "--agent", repo.agent("pass", "second"), first=SABOTAGE["no lock"])
    assert json.loads(second.stdout)["exit"] != 75
    first.wait(30)


# The order of writes: what each mutant breaks in it.
ORDER = {
    "none": ("", None),
    "in-place write": (
        """
from _ralph import edit
def in_place(path, data, mode=None):
    fd = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CREAT)
    os.write(fd, data); os.fsync(fd); os.close(fd)
edit.atomic_write = in_place
""",
        "prd.json was written in place",
    ),
    "no fsync": ("os.fsync = lambda fd: None", "was not synced"),
    "no directory fsync": (
        "from _ralph import files\nfiles.fsync_dir = lambda folder: None",
        "its name was not synced",
    ),
    "prd.json before the verdict record": (
        """
from _ralph import edit, prd, run as room
def write(run, event, *given, real=room.Run.write, **fields):
    if fields.get("verdict") == "passed":
        run.guard.release()
        edit.rewrite(run.plan, edit.set_passed(run.plan, run.plan.task(fields["task"]), True))
    real(run, event, *given, **fields)
room.Run.write = write
""",
        "a pass before its record",
    ),
    "pass before the checks": (
        """
from _ralph import attempt, beside, edit, prd
def run_all(run, checks, name, label="", attempt=None, real=beside.run_all):
    if run.history.open_start:
        task = run.plan.task(run.history.open_start["task"])
        edit.rewrite(run.plan, edit.set_passed(run.plan, task, True))
    return real(run, checks, name, label, attempt)
attempt.run_all = beside.run_all = run_all
""",
        "a pass before its record",
    ),
    "no safety copies": (
        "from _ralph import guard\nguard.Guard.take = lambda self, paths: None",
        "an attempt without safety copies",
    ),
    "no sync of the tree": (
        "from _ralph import files\nfiles.sync_all = lambda folder: None",
        "a record before the tree was synced",
    ),
}


def broken_order(log: Path, repo: Repo) -> set[str]:
    """Which rules of the order of writes were broken, call by call."""
    calls: list[dict[str, Any]] = [json.loads(line) for line in log.read_text().splitlines()]
    plan, notes = str(repo.path / "prd.json"), str(repo.path / "progress.txt")
    broken, passes, held, tree = set(), 0, False, False
    for number, call in enumerate(calls):
        what, path, data = call["call"], call["path"], call["data"]
        following = [(c["call"], c["path"]) for c in calls[number + 1 : number + 3]]
        if what == "write" and path == plan:
            broken.add("prd.json was written in place")
        durable = path.endswith((".ralph-tmp", "progress.txt", ".progress"))
        if what == "write" and durable and following[:1] != [("fsync", path)]:
            broken.add("was not synced")
        if what == "replace" and following[:1] != [("fsync", str(Path(path).parent))]:
            broken.add("its name was not synced")
        tree = tree or what == "sync_all"
        held = held or (what == "replace" and path.endswith("manifest.json"))
        if what == "write" and path == notes:
            if '"event": "start"' in data and not held:
                broken.add("an attempt without safety copies")
            if '"event": "start"' in data or '"event": "verdict"' in data:
                if not tree:
                    broken.add("a record before the tree was synced")
                tree = False
            passes += '"verdict": "passed"' in data
        if what == "replace" and path == plan and data.count('"passes": true') > passes:
            broken.add("a pass before its record")
    return broken


@pytest.mark.parametrize("mutant", ORDER)
def test_the_order_of_writes_is_kept_and_every_step_of_it_is_needed(repo: Repo, mutant: str) -> None:
    sabotage, rule = ORDER[mutant]
    repo.plan({"checks": ["test -f T1.txt"]})
    log = repo.outside / "order"
    first = f"import os\nfrom tests import recorder\nrecorder.install()\n{sabotage}"
    words = ("run", "-q", "--agent", repo.agent("P('T1.txt').touch()"))
    assert repo.ralph(*words, first=first, ORDER_LOG=str(log)).returncode == 0
    found = broken_order(log, repo)
    assert (rule in found) if rule else not found, found
