"""Money over a night: limits that hold whatever an agent reports, and however it
ends."""

from __future__ import annotations

import json
import time
from typing import Any

from tests.conftest import Repo, cases
from tests.scripts import RESULT, own, plan, speaker


def result(**fields: Any) -> str:
    """A final event with these fields changed."""
    return json.dumps({**json.loads(RESULT), **fields})


@cases("""
limit              said                                                unit
--max-usd=5        {"total_cost_usd": null}                            dollars
--max-tokens=5000  {"usage": {}}                                       tokens
--max-usd=5        {"result": "cannot be read", "total_cost_usd": 12}  dollars
""")
def test_a_limit_and_a_result_that_does_not_report_what_is_limited_end_the_run(
    repo: Repo, limit: str, said: str, unit: str
) -> None:
    plan(repo, {"checks": ["false"]}, {"checks": ["false"]})
    line = result(**json.loads(said)).replace('"cannot be read"', '"x')
    say = speaker(repo, f"P('x').write_text(str(time.time())); print('''{line}''')")
    code, summary, printed = repo.run(say, limit)
    assert (code, summary["stop"], summary["iterations"]) == (4, "no-price", 1), printed
    assert f"reported no {unit}" in summary["reason"]


def test_a_planner_that_names_no_price_ends_with_4_where_a_budget_is_set(
    repo: Repo,
) -> None:
    plan(repo, {"checks": ["false"]}, budget={"usd": 5})
    repo.write("../brief.md", "A greeting.")
    planner = str(repo.program("../speaker", f"echo '{result(total_cost_usd=None)}'"))
    done = repo.ralph("plan", "../brief.md", "--planner", planner, "--force")
    assert done.returncode == 4 and "reported no dollars" in done.stderr


SPENDS = (
    f"P('x').write_text(str(time.time())); print('''{result(total_cost_usd=1.5)}''')"
)


def test_a_task_with_a_limit_of_its_own_is_blocked_there_and_the_others_go_on(
    repo: Repo,
) -> None:
    plan(repo, {"id": "T1", "checks": ["false"], "limits": {"usd": 2}}, own("T2"))
    say = speaker(repo, SPENDS + "\nif task == 'T2': P('T2.txt').write_text('good')")
    code, summary, printed = repo.run(say, "--max-usd", "50")
    states = [task["state"] for task in summary["tasks"]]
    assert (code, states) == (4, ["blocked", "passed"]), printed
    assert summary["tasks"][0]["attempts"] == 2
    assert "its limit of $2.00 is spent" in summary["tasks"][0]["reason"]
    assert repo.ralph("retry", "T1").returncode == 0
    assert repo.run(say)[1]["iterations"] == 2  # it has the whole limit again


def test_the_agent_of_a_task_with_a_limit_in_minutes_is_ended(repo: Repo) -> None:
    plan(repo, {"id": "T1", "checks": ["false"], "limits": {"minutes": 0.05}})
    started = time.monotonic()
    code, summary, printed = repo.run(speaker(repo, "P('x').touch(); time.sleep(60)"))
    assert (code, summary["iterations"]) == (4, 1), printed
    assert time.monotonic() - started < 30
    assert "its limit of 0.05 minutes is used up" in summary["tasks"][0]["reason"]


def test_a_limit_of_a_task_needs_an_agent_that_reports_dollars(repo: Repo) -> None:
    repo.plan({"checks": ["false"], "limits": {"usd": 2}})
    done = repo.ralph("run", "--agent", repo.agent("pass"))
    assert done.returncode == 2
    assert "a limit in dollars cannot be enforced" in done.stderr
