"""Which checks a task must pass, and which run at the end."""

from __future__ import annotations

from pathlib import Path

from _ralph.state.prd import load
from tests.conftest import cases

PLAN = """{"checks": ["make", "make test"], "tasks": [
  {"id": "a", "title": "a", "checks": ["test -f a", "make test", {"run": "test ! -e b", "once": true}]},
  {"id": "b", "title": "b", "checks": ["make test", ["make", "test"], {"name": "x", "run": "test -f a"}]},
  {"id": "c", "title": "c"}]}"""


@cases("""
task  wanted
a     make; make test; test -f a; test ! -e b
b     make; make test; test -f a
c     make; make test
-     make; make test; test -f a
""")
def test_identical_checks_run_once_and_a_once_is_not_run_at_the_end(
    tmp_path: Path, task: str, wanted: str
) -> None:
    (tmp_path / "prd.json").write_text(PLAN)
    plan = load(tmp_path / "prd.json")
    found = plan.checks_for(plan.task(task)) if task else plan.every_check
    assert "; ".join(check.command for check in found) == wanted


def test_a_once_holds_for_its_own_task_alone(tmp_path: Path) -> None:
    plan = '[{"title": "a", "checks": [{"run": "x", "once": true}]}, {"title": "b", "checks": ["x"]}]'
    (tmp_path / "prd.json").write_text(plan)
    assert [check.command for check in load(tmp_path / "prd.json").every_check] == ["x"]


def test_a_check_of_both_is_the_task_s_in_the_plan_s_place(tmp_path: Path) -> None:
    own = '{"run": "x", "timeout": "1h"}'
    plan = f'{{"checks": ["x", "y"], "tasks": [{{"id": "a", "title": "a", "checks": [{own}]}}]}}'
    (tmp_path / "prd.json").write_text(plan)
    found = load(tmp_path / "prd.json")
    checks = found.checks_for(found.tasks[0])
    assert [(one.command, one.timeout) for one in checks] == [("x", 3600.0), ("y", 600.0)]  # fmt: skip
