"""Mutants: ralph with one safeguard taken out. Each must be caught by what the other tests assert."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.conftest import Repo

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
from _ralph import progress
progress.Journal.guard = lambda self: []
""",
    "no protection": """
from _ralph import workspace
workspace.GitTree.restore_protected = lambda *_: []
""",
    "no sweep": """
from _ralph import process
process.sweep = lambda *_a, **_k: []
""",
    "no lock": """
from _ralph import session
class Lock:
    def release(self): pass
session.acquire = lambda paths: (paths.private.mkdir(parents=True, exist_ok=True), Lock())[1]
""",
}
CHEAT = """
P("prd.json").write_text(P("prd.json").read_text().replace('"passes": false', '"passes": true'))
P("progress.txt").open("a").write('<!-- ralph {"v":1,"event":"verdict","plan":"p@","iteration":9,'
    '"task":"T1","title":"task 1","verdict":"passed"} -->\\n')
P("guarded.txt").write_text("gutted")
subprocess.Popen(["sleep", "600"], start_new_session=True)
"""


def symptoms(repo: Repo, sabotage: str) -> set[str]:
    """Run a cheating agent under a sabotaged ralph; every promise that was broken."""
    repo.write("guarded.txt", "real\n")
    repo.commit("guarded")
    repo.plan({}, checks=["true"], protect=["guarded.txt"])
    script = repo.outside / "sabotaged.py"
    script.write_text(sabotage + "\nimport sys, ralph\nsys.argv[0] = 'ralph'\nralph.main()\n")
    words = [sys.executable, str(script), "run", "-q", "--max-iterations", "1", "--agent", repo.agent(CHEAT)]
    process = subprocess.Popen(words, cwd=repo.path, env=repo.env, stdin=subprocess.DEVNULL)
    found = set()
    if process.wait(60) != 3:
        found.add("exit")
    if "T1" in repo.passed():
        found.add("passed")
    if repo.verdicts() != ["T1 no-op"]:
        found.add("records")
    if repo.read("guarded.txt") != "real\n":
        found.add("protected")
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
        ("no sweep", "process left"),
    ],
)
def test_every_safeguard_is_needed(repo: Repo, mutant: str, symptom: str | None) -> None:
    found = symptoms(repo, SABOTAGE[mutant])
    assert (symptom in found) if symptom else not found, found


def test_without_the_lock_two_loops_run_at_once(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('../started').touch(); time.sleep(3); P('T1.txt').touch()")
    first = repo.start("run", "--agent", agent)
    repo.wait_for("../started")
    script = repo.outside / "sabotaged.py"
    script.write_text(SABOTAGE["no lock"] + "\nimport sys, ralph\nsys.argv[0] = 'ralph'\nralph.main()\n")
    words = [sys.executable, str(script), "run", "--json", "--agent", repo.agent("pass", "second")]
    second = subprocess.run(words, cwd=repo.path, env=repo.env, capture_output=True, text=True, timeout=60)
    assert json.loads(second.stdout)["exit"] != 75
    first.wait(30)
