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
    there, here = str(HERE / name), str(folder.resolve())
    was = files.digest(os.fsencode(f"{there}/repo/prd.json"))
    now = files.digest(os.fsencode(f"{here}/repo/prd.json"))
    for path in sorted(recorded.rglob("*"), reverse=True):
        if path.is_file() and "objects" not in path.parts and path.suffix != ".index":
            content = path.read_bytes()
            for old, new in ((there, here), (was, now), (was[:8], now[:8])):
                content = content.replace(old.encode(), new.encode())
            path.write_bytes(content)
        if was[:8] in path.name:
            renamed = path.name.replace(was, now).replace(was[:8], now[:8])
            path.rename(path.with_name(renamed))
    for path in recorded.glob("repo/.git/ralph/*/running.json"):
        holder = json.loads(path.read_text())
        holder["boot"] = boot()
        path.write_text(json.dumps(holder))
    (recorded / "repo/.git/refs/heads").mkdir(parents=True, exist_ok=True)
    repo = Repo(folder, like=recorded / "repo")
    for name in ("state", "speaker"):
        shutil.move(recorded / name, folder / name)
    repo.agent(FINISHES)
    return repo


def go_on(repo: Repo, *words: str) -> tuple[int, str, str]:
    """Run with this version: the exit status, what was printed, and the tasks for which
    an agent was paid, sorted."""
    ran = repo.write("../ran", "")
    agent = str(repo.outside / "speaker")
    done = repo.ralph("run", "--agent", agent, "--full-permissions", *words)
    paid = sorted(ran.read_text().split())
    return done.returncode, done.stdout + done.stderr, " ".join(paid)


def shown(repo: Repo) -> tuple[str, float]:
    """Every task with its state and its attempts, and what all of them cost."""
    found = json.loads(repo.ralph("status", "--json").stdout)
    states = [f"{one['id']} {one['state']} {one['attempts']}" for one in found["tasks"]]
    return "\n".join(states), found["usd"]


MIDDLE = """\
one passed 1
weak passed 1
stuck blocked 3
half failed 2
asks blocked 2
open open 0
waits open 0"""


def test_a_plan_in_the_middle_goes_on(tmp_path: Path) -> None:
    """What has passed stays so, also where the plan no longer marks it, and what is
    blocked until `retry`; attempts and money are counted on."""
    repo = laid_down("middle", tmp_path)
    states, usd = shown(repo)
    assert states == MIDDLE
    plan = repo.read("prd.json")
    repo.write("prd.json", plan.replace('"passes": true', '"passes": false'))
    log = repo.read("progress.txt")
    tip = repo.git("rev-parse", "ralph/p").strip()

    code, said, paid = go_on(repo)

    assert (code, paid) == (4, "half open waits"), said
    assert repo.read("progress.txt").startswith(log)
    assert "attempt 3 of 3" in said
    assert repo.passed() == ["one", "weak", "half", "open", "waits"]
    repo.git("merge-base", "--is-ancestor", tip, "ralph/p")
    assert shown(repo)[1] == usd + 3 * 0.25 == 3.0
    parked = repo.git("log", "--glob=refs/ralph", "--name-only", "--format=")
    assert {"asks.part", "half.part", "stuck.part"} <= {*parked.split()}

    repo.ralph("retry", "stuck")
    repo.ralph("retry", "asks", "--answer", "five percent")
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, "asks stuck"), said
    assert "five percent" in repo.read("../prompt-asks")
    assert repo.ralph("land").returncode == 0
    assert repo.read("waits.txt") == "good\n"
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, ""), said


def test_what_landed_without_a_verdict_is_a_pass(tmp_path: Path) -> None:
    """0.3 was killed between the two."""
    repo = laid_down("landed", tmp_path)
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, "open"), said
    assert repo.passed() == ["one", "two", "open"]
    assert [record["task"] for record in repo.records("verdict")] == repo.passed()


def test_a_plan_with_keys_that_went_goes_on(tmp_path: Path) -> None:
    """Once a person has taken out `network`, which confined agents and must not vanish
    by a warning, and how to read an agent, and has renamed `branch`."""
    repo = laid_down("keys", tmp_path)
    code, said, paid = go_on(repo)
    assert (code, paid) == (2, ""), said
    assert "agents.speaker: Additional properties" in said
    plan = json.loads(repo.read("prd.json"))
    row = plan["agents"]["speaker"]
    for key in row.keys() - {"like", "argv"}:
        del row[key]
    repo.write("prd.json", json.dumps(plan))
    code, said, paid = go_on(repo)
    assert (code, paid) == (2, ""), said
    assert "network" in said
    del plan["network"]
    plan["branchName"] = plan.pop("branch")
    repo.write("prd.json", json.dumps(plan))
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, "half open"), said
    assert "attempt 2 of 3" in said
    assert repo.passed() == ["one", "half", "open"]
    assert repo.has_landed("half.part", "ralph/keys"), "its unfinished work"
