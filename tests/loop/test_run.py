"""A run: who works a task, what stands in its plan, and what it keeps."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
from _ralph.loop.run import Run

from _ralph.errors import BadInput
from _ralph.loop import settings as module
from _ralph.state import edit
from _ralph.state.layout import logs_folder, new_log, trim_logs
from _ralph.state.options import Options, load_plan
from tests.conftest import Repo

Opened = Callable[..., Run]


@pytest.mark.parametrize("where", ["plan", "task"])
def test_a_plan_whose_agents_would_work_elsewhere_does_not_run_here(
    repo: Repo, where: str
) -> None:
    """Versions before 0.3 ran agents behind the prefix `launch`."""
    launch = {"launch": "ssh node7"}
    repo.plan(
        {"checks": ["true"], **(launch if where == "task" else {})},
        **(launch if where == "plan" else {}),
    )
    for command in ("run", "doctor"):
        done = repo.ralph(command, "--agent", repo.agent("(OUT / 'began').touch()"))
        said = done.stdout + done.stderr
        assert (
            done.returncode == 2
            and "prd.json: `launch` is gone since version 0.3: --wrap" in said
        ), said
    assert not (repo.outside / "began").exists()


@pytest.mark.parametrize("option", ["--launch", "--launch-checks"])
def test_nor_does_a_run_that_is_told_to_work_elsewhere(repo: Repo, option: str) -> None:
    repo.plan({"checks": ["true"]})
    typed = repo.ralph("run", "--agent", "true", option, "ssh node7")
    repo.env[f"RALPH_RUN_{option[2:].replace('-', '_').upper()}"] = "ssh node7"
    for done in (typed, repo.ralph("run", "--agent", "true")):
        assert (
            done.returncode == 2
            and f"{option} is gone since version 0.3: --wrap" in done.stderr
        )


@pytest.mark.parametrize(
    ("plan", "options", "said"),
    [
        (
            {"tasks": [{"title": "a"}]},
            {},
            "there are no checks, so nothing could prove",
        ),
        ({"tasks": [{"title": "a"}]}, {"checks": ("true",)}, ""),
        ({"tasks": [{"title": "a"}], "judge": "claude"}, {}, ""),
        (
            {"tasks": [{"title": "a", "checks": ["true"]}], "network": False},
            {},
            "needs --sandbox",
        ),
        (
            {"tasks": [{"id": "a", "title": "a", "checks": ["true"]}]},
            {"task": "b"},
            "there is no task 'b'",
        ),
        (
            {"tasks": [{"id": 1.5, "title": "a", "checks": ["true"]}]},
            {},
            r"tasks\[0\].id",
        ),
    ],
)
def test_which_plans_a_run_takes(
    repo: Repo, opened: Opened, plan: dict[str, Any], options: dict[str, Any], said: str
) -> None:
    repo.plan({"checks": ["true"]})
    run = opened()
    repo.write("prd.json", json.dumps(plan))
    given = Options(prd=repo.path / "prd.json", **options)
    if said:
        with pytest.raises(BadInput, match=said):
            load_plan(run.paths, given)
    else:
        assert load_plan(run.paths, given).tasks


def test_a_mark_for_a_plan_that_is_broken_is_kept_until_it_can_be_written(
    repo: Repo, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.1)
    repo.plan({"checks": ["true"]})
    run, whole = opened(), repo.read("prd.json")
    repo.write("prd.json", whole[:-9])
    run.edit(edit.set_passed, run.plan.tasks[0], True)
    assert (
        run.plan.tasks[0].passed
        and run.settings.unmade
        and repo.read("prd.json") == whole[:-9]
    )
    run.read_plan()
    assert run.settings.trouble and run.plan.tasks[0].passed
    repo.write("prd.json", whole)
    run.read_plan()
    assert repo.passed() == ["T1"] and not (run.settings.trouble or run.settings.unmade)


def test_a_plan_that_an_editor_is_replacing_ends_no_run(
    repo: Repo, opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.0)
    repo.plan({"checks": ["true"]})
    run = opened()
    renames = "while True: os.rename('prd.json', 'prd.json~'); os.rename('prd.json~', 'prd.json')"
    editor = subprocess.Popen(
        [sys.executable, "-c", f"import os\n{renames}"], cwd=repo.path
    )
    try:
        end = time.monotonic() + 0.7
        while time.monotonic() < end:
            run.read_plan()
    finally:
        editor.kill()
        editor.wait()
    assert run.plan.tasks


def test_a_plan_under_another_name_stays_the_same_plan_for_this_run(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({"checks": ["true"]})
    run = opened()
    key = run.plan.key
    repo.write(
        "prd.json", repo.read("prd.json").replace('"project": "p"', '"project": "q"')
    )
    run.read_plan()
    assert run.plan.key == key and '"q"' in run.plan.text
    run.edit(edit.set_passed, run.plan.tasks[0], True)
    assert repo.passed() == ["T1"] and run.plan.key == key


def test_the_folder_of_logs_is_ignored_and_holds_the_newest_attempts(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({"checks": ["true"]})
    run = opened()
    for number in range(1, 6):
        new_log(run.paths, f"{number:04}-T1.out").touch()
    new_log(run.paths, "notify.log").touch()
    trim_logs(run.paths, under_way=[1], keep=2)
    left = sorted(path.name for path in run.paths.logs.iterdir())
    assert left == ["0001-T1.out", "0004-T1.out", "0005-T1.out", "notify.log"]
    assert ".ralph" not in repo.git("status", "--porcelain")


def test_what_else_a_person_keeps_in_the_same_folder_stays_as_it_is(
    repo: Repo, opened: Opened
) -> None:
    """Other tools that loop over agents commit a folder of this name."""
    (repo.path / ".git/info").mkdir(exist_ok=True)
    repo.write(".git/info/exclude", "*.mine")
    for name in (
        ".ralph/.gitignore",
        ".ralph/0001-notes.md",
        "plans/.ralph/specs/a.md",
    ):
        repo.write(name, "# theirs\n")
    repo.commit("theirs")
    repo.plan({"checks": ["true"]})
    for _ in range(2):
        trim_logs(opened().paths, keep=0)
    repo.run(repo.agent("P('x').touch()"))
    assert repo.ralph("report").returncode == 0
    repo.write(".ralph/new.md", "new")
    assert repo.git("status", "--porcelain", "-uall").splitlines() == [
        "?? .ralph/new.md", "?? prd.json", "?? progress.txt",
    ]  # fmt: skip
    assert (
        repo.read(".git/info/exclude")
        == "*.mine\n**/.ralph/log/\n**/.ralph/report.html\n"
    )


def test_a_file_in_the_place_of_the_folder_of_logs_is_said(
    repo: Repo, opened: Opened
) -> None:
    repo.plan({"checks": ["true"]})
    run = opened()
    repo.write(".ralph", "mine")
    with pytest.raises(BadInput, match=r"\.ralph is not a folder"):
        logs_folder(run.paths)
    assert repo.read(".ralph") == "mine"


def test_limits_that_a_person_lowers_during_the_run_hold_at_once(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, limits={"attempts": 9})
    home = str(repo.path / "prd.json")
    less = repo.read("prd.json").replace(
        '"attempts": 9', '"attempts": 9, "iterations": 2'
    )
    code, summary, _ = repo.run(repo.agent(f"P({home!r}).write_text({less!r})"))
    assert (code, summary["stop"], summary["iterations"]) == (3, "limit", 2)
