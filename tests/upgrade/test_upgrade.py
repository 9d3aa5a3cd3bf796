"""A plan that version 0.2 has begun goes on with this one: no task is worked again that
was finished, nothing is lost, and no agent is paid twice for the same work. The plans
are recorded ones: see record.py."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path

import pytest

from _ralph import files
from _ralph.state.layout import RUNNING
from _ralph.state.lock import boot
from tests.conftest import Repo
from tests.scripts import COUNTS, RESULT
from tests.upgrade.record import HERE, RECORDED

FINISHES = f"{COUNTS}\nprint({RESULT!r})"
"""An agent that finishes every task, and notes for which it was paid."""


def laid_down(name: str, folder: Path) -> Repo:
    """A recorded plan of 0.2, as if it had been worked in `folder` since this machine
    started; its agent is one that `FINISHES`."""
    old, recorded = HERE / name, folder / "recorded"
    shutil.unpack_archive(RECORDED / f"{name}.tar.xz", recorded)
    was, now = (
        files.digest(os.fsencode(path / "repo/prd.json"))
        for path in (old, folder.resolve())
    )
    words = {str(old): str(folder.resolve()), was: now, was[:8]: now[:8]}
    for path in [
        path
        for path in recorded.rglob("*")
        if path.is_file() and "objects" not in path.parts
    ]:
        content = path.read_bytes()
        for before, after in words.items():
            if not path.name.endswith("index"):
                content = content.replace(before.encode(), after.encode())
        path.write_bytes(content)
    for path in sorted(recorded.rglob(f"*{was[:8]}*"), reverse=True):
        path.rename(
            path.with_name(path.name.replace(was, now).replace(was[:8], now[:8]))
        )
    for path in recorded.glob(f"repo/.git/ralph/*/{RUNNING}"):
        path.write_text(json.dumps(json.loads(path.read_text()) | {"boot": boot()}))
    (recorded / "repo/.git/refs/heads").mkdir(parents=True, exist_ok=True)
    repo = Repo(folder, like=recorded / "repo")
    shutil.move(recorded / "state", folder / "state")
    shutil.move(recorded / "speaker", folder / "speaker")
    repo.agent(FINISHES)
    return repo


def go_on(repo: Repo, *words: str) -> tuple[int, str, list[str]]:
    """Run with this version: the exit status, what was printed, and the tasks for which
    an agent was paid."""
    files.clear(repo.outside / "ran")
    done = repo.ralph("run", "--agent", str(repo.outside / "speaker"), *words)
    ran = repo.outside / "ran"
    return (
        done.returncode,
        done.stdout + done.stderr,
        ran.read_text().split() if ran.exists() else [],
    )


def test_a_plan_in_the_middle_goes_on(tmp_path: Path) -> None:
    """Passed and weak tasks stay, also where the plan no longer marks them; attempts
    and money are counted on, what is blocked stays so until `retry`, unfinished work is
    parked or landed."""
    repo = laid_down("middle", tmp_path)
    before = json.loads(repo.ralph("status", "--json").stdout)
    states = {task["id"]: (task["state"], task["attempts"]) for task in before["tasks"]}
    assert states["one"][0] == states["weak"][0] == "passed" and states["stuck"] == (
        "blocked",
        3,
    )
    assert states["half"] == ("failed", 2) and states["asks"][1] == 1, states
    repo.write(
        "prd.json", repo.read("prd.json").replace('"passes": true', '"passes": false')
    )  # an old buffer
    log, tip = repo.read("progress.txt"), repo.git("rev-parse", "ralph/p").strip()

    code, said, paid = go_on(repo)

    assert (code, sorted(paid)) == (4, ["asks", "half", "open", "waits"]), said
    assert repo.read("progress.txt").startswith(log) and "attempt 3 of 3" in said
    assert (
        "one" in repo.passed()
        and "weak" in repo.passed()
        and "stuck" not in repo.passed()
    )
    repo.git("merge-base", "--is-ancestor", tip, "ralph/p")
    after = json.loads(repo.ralph("status", "--json").stdout)
    assert after["usd"] == before["usd"] + 4 * 0.25 > 2
    assert "half.part" in repo.git("log", "--all", "--name-only", "--format=")
    repo.ralph("retry", "stuck")
    assert go_on(repo)[::2] == (0, ["stuck"])
    assert len(repo.passed()) == 7 and "weak" in repo.commits()[-2]
    assert repo.ralph("land").returncode == 0 and repo.read("waits.txt") == "good\n"
    assert go_on(repo)[::2] == (0, [])


def test_what_landed_on_a_feature_branch_stays_there(tmp_path: Path) -> None:
    """Two jobs. ralph's own branch begins at the tip of that one, where the person
    stays."""
    repo = laid_down("feature", tmp_path)
    tip = repo.git("rev-parse", "feature").strip()
    code, said, paid = go_on(repo, "--jobs", "2")
    assert (code, paid) == (0, ["half"]), said
    assert repo.git("rev-parse", "feature").strip() == tip
    repo.git("merge-base", "--is-ancestor", tip, "ralph/p")
    assert sorted(repo.passed()) == ["half", "one", "open", "two"]
    assert repo.ralph("land").returncode == 0
    assert repo.read("open.txt") == repo.read("two.txt") == "good\n"


def test_finished_work_of_killed_agents_is_examined_first(tmp_path: Path) -> None:
    """With a `setup` that makes a file which git does not ignore: it does not land."""
    repo = laid_down("killed", tmp_path)
    code, said, paid = go_on(repo, "--jobs", "2")
    assert (code, paid) == (0, ["open"]), said
    assert sorted(repo.passed()) == ["cut", "cut-too", "one", "open"]
    landed = repo.git("ls-tree", "-r", "--name-only", "ralph/p").split()
    assert landed == ["cut-too.txt", "cut.txt", "one.txt", "open.txt", "suite.sh"]


def test_verified_work_that_had_not_landed_lands(tmp_path: Path) -> None:
    """0.2 wrote the verdict first, and was killed between the two."""
    repo = laid_down("verified", tmp_path)
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, ["open"]), said
    assert repo.passed() == ["one", "two", "open"] and repo.has_landed("two.txt")


def test_verified_work_that_an_edit_kept_from_landing_lands(tmp_path: Path) -> None:
    """A weak pass, too, and the edit stays: ralph's own branch is beside it."""
    repo = laid_down("in_the_way", tmp_path)
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, ["open"]), said
    assert (
        repo.passed() == ["one", "weak", "open"] and repo.landed("weak.txt") == "good\n"
    )
    assert repo.read("weak.txt") == "mine\n"


@pytest.mark.parametrize("name", ["launched", "sandbox"])
def test_work_behind_launch_or_in_a_sandbox_goes_on(tmp_path: Path, name: str) -> None:
    repo = laid_down(name, tmp_path)
    if name == "launched":
        code, said, paid = go_on(repo)
        assert (code, paid) == (2, []) and "--wrap" in said
        plan = json.loads(repo.read("prd.json"))
        plan["wrap"] = plan.pop("launch")
        repo.write("prd.json", json.dumps(plan))
    code, said, paid = go_on(repo)
    assert (code, paid) == (0, ["half", "open"]), said
    assert "attempt 2 of 3" in said and repo.passed() == ["one", "half", "open"]
    assert repo.has_landed("half.part"), "its unfinished work"


def test_a_suite_that_is_red_blocks_nobody(tmp_path: Path) -> None:
    repo = laid_down("red", tmp_path)
    code, said, paid = go_on(repo)
    assert (code, paid) == (4, ["two"]) and "sh suite.sh" in said, said
    assert repo.passed() == ["one", "two"]
