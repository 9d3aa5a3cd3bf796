"""Several at once: loops side by side, one room, one branch."""

from __future__ import annotations

import signal
import time
from typing import Any

import pytest

from tests.conftest import Repo, cases
from tests.oracle import fresh_clone_is_green
from tests.scripts import (
    MAKES,
    MEET,
    NEVER_STUCK,
    RESULT,
    ROW,
    SOON,
    limited_for,
    own,
    speaker,
    wait_for_records,
)


def tasks(count: int) -> list[dict[str, Any]]:
    return [own(f"T{n}") for n in range(1, count + 1)]


def most_at_once(repo: Repo) -> int:
    """How many attempts the records have open at once."""
    steps = {"start": 1, "verdict": -1}
    most = now = 0
    for record in repo.records():
        now += steps.get(record["event"], 0)
        most = max(most, now)
    return most


def test_tasks_are_worked_side_by_side_and_land_one_after_the_other(repo: Repo) -> None:
    """As many as the plan says; the command line goes before it."""
    agent = repo.agent(f"time.sleep(0.3); {MAKES}")
    repo.plan(*tasks(4), limits={"jobs": 2})
    repo.ends("0: T1 T2 T3 T4", agent)
    assert most_at_once(repo) == 2
    six = tasks(6)
    repo.plan(*six, limits={"jobs": 2}, project="other")
    repo.write("progress.txt", "")
    repo.ends("0: T1 T2 T3 T4 T5 T6", agent, "--jobs", "3")
    assert most_at_once(repo) == 3 and len(repo.verdicts()) == 6
    workers = {start.get("worker", 0) for start in repo.records("start")}
    assert workers == {0, 2, 3}
    checks = [task["checks"][0] for task in six]
    assert fresh_clone_is_green(repo, "ralph/other", checks)


# ---------------------------------------------------------------- the line before the room


ALONE = f"""{MEET}
import subprocess
begun("T1", "T2")
first = number() == 1
if task == "T2" and first: wait(lambda: has_landed("T1"))
{MAKES}
if first: P(f"alone-{{task}}").touch()
elif P("alone-T2").exists(): os.unlink("alone-T2")
"""


def test_what_is_green_alone_and_red_together_does_not_land(repo: Repo) -> None:
    repo.plan(*tasks(2), checks=["test $(ls | grep -c ^alone) != 2"])
    verdicts = "0: T1 passed, T2 failed, T2 passed"
    repo.judges(verdicts, repo.agent(ALONE), "--jobs", "2")


def test_a_check_may_hold_what_there_is_only_once(repo: Repo) -> None:
    """A fixed port, a database: one candidate at a time is in the room, also when a
    base is looked at."""
    port = repo.outside / "port"
    holds = f"mkdir {port} && sleep 0.1 && rmdir {port}"
    repo.plan(*tasks(6), checks=[holds], limits={"attempts": 1})
    repo.ends("0: T1 T2 T3 T4 T5 T6", repo.agent(MAKES), "--jobs", "6")


# ---------------------------------------------------------------- who takes up what


def test_iterations_are_those_of_all_loops(repo: Repo) -> None:
    repo.plan(*tasks(5))
    agent = repo.agent(f"time.sleep(0.2); {MAKES}")
    code, summary, _ = repo.run(agent, "--jobs", "4", "--max-iterations", "3")
    assert code == 3 and summary["stop"] == "limit"
    assert len(repo.passed()) == len(repo.records("start")) == 3


# ---------------------------------------------------------------- how it ends


@cases("""
how     exit
stop    3
SIGINT  130
""")
def test_those_under_way_finish_when_it_is_asked_to_stop(
    repo: Repo, how: str, exit: str
) -> None:
    repo.plan(*tasks(4))
    agent = repo.agent(f"{MEET}\nwait((OUT / 'go').exists)\n{MAKES}")
    process = repo.start("run", "--agent", agent, "--jobs", "2")
    wait_for_records(repo, "start", 2)
    if how == "stop":
        assert repo.ralph("stop").returncode == 0
    else:
        process.send_signal(signal.SIGINT)
    time.sleep(0.5)
    repo.write("../go", "")
    printed = process.communicate(timeout=30)[0]
    assert process.returncode == int(exit), printed
    assert sorted(repo.verdicts()) == ["T1 passed", "T2 passed"]
    assert len(repo.records("start")) == 2 and repo.gone_within(0.5)


LIMITED = f"""
if not (OUT / 'limited').exists():
    (OUT / 'limited').touch()
    print({limited_for(4)}); sys.exit(1)
{MAKES}
print({RESULT!r})
"""


# ---------------------------------------------------------------- money, providers, people


def test_a_providers_limit_holds_back_its_own_tasks_and_no_others(repo: Repo) -> None:
    some = tasks(6)
    some[0]["agent"] = some[2]["agent"] = speaker(repo, LIMITED)
    other = repo.agent(f"time.sleep(0.3); {MAKES}", "other")
    repo.plan(*some, agents={"speaker": ROW}, agent=other)
    done = repo.ralph("run", "--jobs", "2", first=SOON)
    assert done.returncode == 0, done.stdout
    assert repo.verdicts()[0] == "T1 limited"
    (wait,) = repo.records("wait")
    times = {one["task"]: one["time"] for one in repo.records("verdict")}
    held = min(times.pop("T1"), times.pop("T3"))
    assert held >= wait["until"] - 1
    assert max(times.values()) < wait["until"], repo.verdicts()


PAYS = {**ROW, "argv": ["speaker", "{budget}", "{args}"]}
SPENDS = f"""
# As Claude: it keeps to its own limit, as far as it is told one; each request costs 10
# cents.
allowed = float(sys.argv[sys.argv.index("--max-budget-usd") + 1])
wanted, usd = 0.4, 0.0
while usd < wanted - 0.001 and usd + 0.1 <= allowed + 0.001:
    usd += 0.1
    time.sleep(0.05)
(OUT / "spent").open("a").write(f"{{usd:.1f}} of {{allowed:.2f}}\\n")
result = json.loads('''{RESULT}''')
if usd < wanted - 0.001:
    print(json.dumps({{**result, "is_error": True, "subtype": "error_max_budget_usd", "total_cost_usd": usd}}))
else:
    {MAKES}
    print(json.dumps({{**result, "total_cost_usd": usd}}))
"""


@cases(
    """
limit
1.9
0.9
3.0
""",
    of=3,
)
def test_four_loops_never_spend_more_than_the_limit(repo: Repo, limit: str) -> None:
    repo.plan(*tasks(8), agents={"speaker": PAYS}, limits={"attempts": 9})
    words = ("--jobs", "4", "--max-usd", limit)
    code, summary, printed = repo.run(speaker(repo, SPENDS), *words, first=NEVER_STUCK)
    assert code in (3, 4), printed
    spent = [float(line.split()[0]) for line in repo.read("../spent").splitlines()]
    assert summary["usd"] == pytest.approx(sum(spent))
    assert sum(spent) <= float(limit) + 1e-6
    assert min(spent[:-1]) > 0  # nobody is sent with next to nothing
