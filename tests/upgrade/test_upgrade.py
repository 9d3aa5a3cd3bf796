"""A plan that version 0.3 has begun goes on with this one: no task is worked again that
was finished, and nothing is lost. The plans were recorded with it: all that was on the
disk, below /opt/ralph-0.3."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

from _ralph import files
from _ralph.state.lock import boot
from tests.conftest import Repo
from tests.scripts import COUNTS, RESULT

HERE = Path("/opt/ralph-0.3")
"""Where the nights were; whoever lays one down replaces it."""
RECORDED = Path(__file__).with_name("recorded")

FINISHES = f"""{COUNTS}
(OUT / f"prompt-{{task}}").write_text(prompt)
print({RESULT!r})"""
"""An agent that finishes every task, and notes for which it was paid."""


def laid_down(name: str, folder: Path) -> Repo:
    """A recorded plan of 0.3, as if it had been worked in `folder` since this machine
    started; its agent is one that `FINISHES`."""
    recorded = folder / "recorded"
    shutil.unpack_archive(RECORDED / f"{name}.tar.xz", recorded)
    was = files.digest(os.fsencode(HERE / name / "repo/prd.json"))
    now = files.digest(os.fsencode(folder.resolve() / "repo/prd.json"))
    words = {
        str(HERE / name): str(folder.resolve()),
        was: now,
        was[:8]: now[:8],
    }
    for path in sorted(recorded.rglob("*"), reverse=True):
        if path.is_file() and "objects" not in path.parts and path.suffix != ".index":
            content = path.read_bytes()
            for before, after in words.items():
                content = content.replace(before.encode(), after.encode())
            path.write_bytes(content)
        if was[:8] in path.name:
            renamed = path.name.replace(was, now).replace(was[:8], now[:8])
            path.rename(path.with_name(renamed))
    for path in recorded.glob("repo/.git/ralph/*/running.json"):
        holder = json.loads(path.read_text())
        path.write_text(json.dumps({**holder, "boot": boot()}))
    (recorded / "repo/.git/refs/heads").mkdir(parents=True, exist_ok=True)
    repo = Repo(folder, like=recorded / "repo")
    shutil.move(recorded / "state", folder / "state")
    shutil.move(recorded / "speaker", folder / "speaker")
    repo.agent(FINISHES)
    return repo


def go_on(repo: Repo, *words: str) -> tuple[int, str, list[str]]:
    """Run with this version: the exit status, what was printed, and the tasks for which
    an agent was paid, sorted."""
    ran = repo.outside / "ran"
    ran.write_text("")
    agent = str(repo.outside / "speaker")
    done = repo.ralph("run", "--agent", agent, "--full-permissions", *words)
    return done.returncode, done.stdout + done.stderr, sorted(ran.read_text().split())


def test_a_plan_in_the_middle_goes_on(tmp_path: Path) -> None:
    """What has passed stays so, also where the plan no longer marks it, and what is
    blocked until `retry`; attempts and money are counted on."""
    repo = laid_down("middle", tmp_path)
    before = json.loads(repo.ralph("status", "--json").stdout)
    states = {task["id"]: (task["state"], task["attempts"]) for task in before["tasks"]}
    assert states["one"][0] == states["weak"][0] == "passed"
    assert states["stuck"] == ("blocked", 3) and states["asks"] == ("blocked", 2)
    assert states["half"] == ("failed", 2) and states["waits"][1] == 0
    plan = repo.read("prd.json")
    repo.write("prd.json", plan.replace('"passes": true', '"passes": false'))
    log, tip = repo.read("progress.txt"), repo.git("rev-parse", "ralph/p").strip()

    code, said, paid = go_on(repo)

    assert (code, paid) == (4, ["half", "open", "waits"]), said
    assert repo.read("progress.txt").startswith(log) and "attempt 3 of 3" in said
    assert repo.passed() == ["one", "weak", "half", "open", "waits"]
    repo.git("merge-base", "--is-ancestor", tip, "ralph/p")
    after = json.loads(repo.ralph("status", "--json").stdout)
    assert after["usd"] == before["usd"] + 3 * 0.25 == 3.0
    parked = repo.git("log", "--glob=refs/ralph", "--name-only", "--format=")
    assert {"asks.part", "half.part", "stuck.part"} <= {*parked.split()}

    repo.ralph("retry", "stuck")
    repo.ralph("retry", "asks", "--answer", "five percent")
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, ["asks", "stuck"]), said
    assert "five percent" in (tmp_path / "prompt-asks").read_text()
    assert repo.ralph("land").returncode == 0 and repo.read("waits.txt") == "good\n"
    assert go_on(repo)[::2] == (0, [])


def test_what_landed_without_a_verdict_is_a_pass(tmp_path: Path) -> None:
    """0.3 was killed between the two."""
    repo = laid_down("landed", tmp_path)
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, ["open"]), said
    assert repo.passed() == ["one", "two", "open"]
    assert [record["task"] for record in repo.records("verdict")] == repo.passed()


def test_a_plan_with_keys_that_went_goes_on(tmp_path: Path) -> None:
    """Once a person has taken out `network`, which confined agents and must not vanish
    by a warning, and how to read an agent, and has renamed `branch`."""
    repo = laid_down("keys", tmp_path)
    code, said, paid = go_on(repo)
    assert (code, paid) == (2, []) and "agents.speaker: Additional properties" in said
    plan = json.loads(repo.read("prd.json"))
    row = plan["agents"]["speaker"]
    plan["agents"]["speaker"] = {
        key: row[key] for key in ("like", "argv") if key in row
    }
    repo.write("prd.json", json.dumps(plan))
    code, said, paid = go_on(repo)
    assert (code, paid) == (2, []) and "network" in said
    del plan["network"]
    plan["branchName"] = plan.pop("branch")
    repo.write("prd.json", json.dumps(plan))
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, ["half", "open"]), said
    assert "attempt 2 of 3" in said and repo.passed() == ["one", "half", "open"]
    assert repo.has_landed("half.part", "ralph/keys"), "its unfinished work"
