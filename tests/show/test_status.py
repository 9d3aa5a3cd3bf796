"""`ralph status`: a text that any terminal shows, and an object whose fields stay."""

from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from _ralph import text
from _ralph.show import status
from _ralph.show.status import Status
from _ralph.state import prd
from _ralph.state.records import from_json
from _ralph.state.summary import Running
from tests.conftest import Repo, cases
from tests.scripts import MAKES, own
from tests.state.test_log import replay

AT = 1795291832.0
PLACES = Path("/s/shop-1")
Json = dict[str, Any]
Records = list[Json]


def make(folder: Path, tasks: Records, records: Records, **top: Any) -> Status:
    """What would be shown of this plan after these records."""
    path = folder / "prd.json"
    path.write_text(json.dumps({"project": "shop", **top, "userStories": tasks}))
    plan = prd.load(path)
    whole = []
    for record in records:
        given = {"plan": "prd.json@", "time": AT, **record}
        if "task" in record:
            given["title"] = plan.task(record["task"]).title
        whole.append(from_json(given))
    return Status(plan, replay(whole))


def table(lines: str) -> Records:
    """A JSON object a line."""
    return [json.loads(line) for line in lines.splitlines() if line]


def start(task: str, iteration: int) -> Json:
    return {"event": "start", "task": task, "iteration": iteration}


def worked(task: str, iteration: int, verdict: str, **more: Any) -> Records:
    """The records of an attempt."""
    began = start(task, iteration)
    ended = {**began, "event": "verdict", "verdict": verdict, **COST}
    return [began, {**ended, **more}]


COST: Json = json.loads(
    '{"seconds": 312.0, "usd": 0.42, "tokens": {"input": 18204, "output": 2110}}'
)
SHOP = table("""
{"id": "US-001", "title": "Add a price to every product", "passes": true}
{"id": "US-002", "title": "Show the price on the product page, in the currency of the customer who looks at it", "passes": true}
{"id": "US-003", "title": "Add a price filter"}
{"id": "US-004", "title": "Sort by price", "dependsOn": ["US-003"]}
{"id": "US-005", "title": "価格の一覧を書き出す", "blocked": "3 failed attempts, the last: npm test failed with exit 1 (12.0 s)"}
{"id": "US-006", "title": "Remove the old price list"}
""")
"""A task in every state."""
ATTEMPTS = table(r"""
{"task": "US-001", "verdict": "passed"}
{"task": "US-002", "verdict": "passed", "weak": true, "beside": ["lint"]}
{"task": "US-003", "verdict": "failed", "reason": "npm test failed with exit 1 (12.0 s)"}
{"task": "US-003", "verdict": "failed", "reason": "npm test failed with exit 1 (11.0 s)", "denials": ["npm ci"], "failure": {"name": "npm test", "tail": "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n11\n\n", "log": ".ralph/log/4.log"}}
{"task": "US-005", "verdict": "failed", "blocked": "x", "usd": null, "parked": "refs/ralph/parked/0005-US-005", "handoff": {"question": "Which format?"}}
""")
ENDED = '{"event": "stop", "stop": "limit", "exit": 3, "reason": "limit reached: 5 iterations"}'


def shop(folder: Path) -> Status:
    records: Records = [{"event": "run", "branch": "ralph/shop"}]
    for iteration, attempt in enumerate(ATTEMPTS, 1):
        records += worked(iteration=iteration, **attempt)
    records.append(json.loads(ENDED))
    return make(folder, SHOP, records, checks=["npm test"])._replace(places=PLACES)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


# ---------------------------------------------------------------- the text

TEXT = """\
passed   US-001         5 min 12 s, $0.42  Add a price to every product
passed   US-002         5 min 12 s, $0.42  (weak, beside red: lint) Show the price on the product page, in the currency ...
next     US-003        10 min 24 s, $0.84  Add a price filter
         failed 2 of 3: npm test failed with exit 1 (11.0 s)
         its agent was denied: npm ci
         | 4
         | 5
         | 6
         | 7
         | 8
         | 9
         | 10
         | 11
         all: .ralph/log/4.log
waiting  US-004                            (waits for US-003) Sort by price
blocked  US-005  5 min 12 s, 20.3k tokens  価格の一覧を書き出す
         3 failed attempts, the last: npm test failed with exit 1 (12.0 s)
         its work: git show refs/ralph/parked/0005-US-005
         it asks: Which format?
open     US-006                            Remove the old price list

shop: 2 of 6 passed, 1 failed, 1 waiting, 1 blocked, 1 open; 5 iterations, 26 min 0 s, $1.68
the last run stopped at 2026-11-21 20:10: limit reached: 5 iterations
passes are committed on branch ralph/shop; agents and checks work in /s/shop-1
next: ralph retry US-005 --answer '...'; ralph run"""


def test_the_text(tmp_path: Path) -> None:
    shown = shop(tmp_path)
    assert "\n".join(status.lines(shown)) == TEXT


def test_markdown_is_the_text_in_a_fence(tmp_path: Path) -> None:
    tasks = [{"id": "A", "title": "```\n# no `heading`", "passes": True}]
    shown = make(tmp_path, tasks, [], project="```` a")
    fence, *inside, end = status.show(shown, "md").split("\n")
    assert (fence, end) == ("`````text", "`````")
    assert inside == status.lines(shown)


def test_no_text_breaks_a_row_or_moves_a_column(tmp_path: Path) -> None:
    words = "価格" * 60 + "\x1b[2J\x1b[31mred\x07\x00\u202ea\nb\r\nc\td \ud800 half"
    tasks: Records = [
        {"id": f"B{words}", "title": words, "blocked": words},
        {"id": "C", "title": words, "dependsOn": [f"B{words}"]},
    ]
    records = worked(f"B{words}", 1, "failed", handoff={"blocked on": words})
    printed = status.lines(make(tmp_path, tasks, records, project=words))
    for line in printed:
        assert text.clean(line) == line
        assert "\n" not in line
    rows = [line[:9] for line in printed if line[:1] in ("b", "w")]
    assert rows == ["blocked  ", "waiting  "]


def on_a_terminal(repo: Repo, **env: str) -> str:
    """What `ralph status` prints on a terminal."""
    ours, theirs = pty.openpty()
    done = subprocess.run(
        [sys.executable, "-m", "ralph", "status"], cwd=repo.path, env={**repo.env, "TERM": "xterm", **env},
        stdin=subprocess.DEVNULL, stdout=theirs, timeout=30,
    )  # fmt: skip
    os.close(theirs)
    assert done.returncode == 0
    printed = os.read(ours, 100_000).decode()
    os.close(ours)
    return printed


def test_only_a_terminal_that_wants_colors_gets_them(repo: Repo) -> None:
    repo.plan({"passes": True}, checks=["true"])
    assert on_a_terminal(repo).startswith("\x1b[32mpassed")
    assert "\x1b" not in on_a_terminal(repo, TERM="dumb")
    assert "\x1b" not in on_a_terminal(repo, NO_COLOR="1")
    assert "\x1b" not in repo.ralph("status").stdout


@cases("""
    records                                                             words
    -                                                                   no run yet
    {"event": "run"}|START                                              the last run was cut off; the next one goes on from there
    START|{"event": "stop", "stop": "asked", "reason": "as asked"}      the last run stopped at 2026-11-21 20:10: as asked
    {"event": "stop", "stop": "red-checks", "reason": "red"}            the last run stopped at 2026-11-21 20:10: red
""")
def test_how_the_last_run_ended(tmp_path: Path, records: str, words: str) -> None:
    """The last one: another plan had the branch."""
    lines = records.replace("START", json.dumps(start("A", 1))).replace("|", "\n")
    shown = make(tmp_path, [{"id": "A", "title": "a"}], table(lines))
    assert status.ending(shown) == words


# ---------------------------------------------------------------- what to do next


LAST: dict[str, Records] = {
    "asks": worked("B", 1, "failed", blocked="it asks", handoff={"question": "?"}),
    "denied": [{**worked("A", 1, "failed", denied=True, denials=["cp"])[1], "run": "r"}],
    "red": [{"event": "recheck", "red": ["lint failed with exit 1"]}],
}  # fmt: skip


# The states of A, B and C: open, without a check, blocked, passed; what was last, the
# word and the status that the run stopped with, and what to do. What no task can go on
# without comes before those that are blocked.
@cases("""
    states  last    stop         exit  wanted
    ooo     -       -            -     ralph run
    opo     -       limit        3     ralph run
    bbo     -       -            -     fix what blocks A, B; ralph retry A B; ralph run
    bbb     asks    -            -     ralph retry B --answer '...'; ralph run
    obo     denied  unavailable  5     ralph run --full-permissions
    ono     -       -            -     nothing proves B; name a check: ralph run --check 'YOUR TEST COMMAND'
    ppp     -       -            -     ralph report; ralph land
    obo     -       budget       4     raise `budget` in prd.json; ralph run
    obo     -       unavailable  5     fix it; ralph doctor --probe; ralph run
    ooo     red     red-checks   4     mend lint, or let a task do it: ralph add 'Mend lint' --check 'npm run lint'; ralph run
""")
def test_what_to_do_next(
    tmp_path: Path, states: str, last: str, stop: str, exit: str, wanted: str
) -> None:
    records = [*LAST.get(last, [])]
    if stop:
        ended = {"event": "stop", "stop": stop, "exit": int(exit), "reason": stop}
        records.append(ended)
    shown = three(tmp_path, states, records)
    stopped = shown.history.stopped
    assert "; ".join(status.next_steps(shown, stopped)) == wanted
    # while a loop runs, only what blocks a task is a person's
    loop = Running(1, "", False, False, [])
    steps = "".join(status.next_steps(shown._replace(running=loop), stopped))
    assert bool(steps) is ("b" in states)
    assert "run" not in steps


def test_a_plan_of_another_name_is_named(tmp_path: Path) -> None:
    shown = three(tmp_path, "bbb", LAST["asks"])._replace(prd=Path("my plan.json"))
    steps = status.next_steps(shown, None)
    assert steps[0] == "ralph retry --prd 'my plan.json' B --answer '...'"


def three(folder: Path, states: str, records: Records) -> Status:
    """A plan of A, B and C in these states."""
    tasks = []
    for name, state in zip("ABC", states, strict=True):
        task: Json = {"id": name, "title": name, "passes": state == "p"}
        if state != "n":
            task["checks"] = ["x"]
        if state == "b":
            task["blocked"] = "why?"
        tasks.append(task)
    lint = [{"name": "lint", "run": "npm run lint"}] if "n" not in states else []
    return make(folder, tasks, records, checks=lint)._replace(to_land=True)


# ---------------------------------------------------------------- the object

OBJECT: Json = json.loads("""
{"stop": "limit", "exit": 3, "passed": 2, "total": 6, "iterations": 5, "usd": 1.68,
 "branch": "ralph/shop", "next": "US-003", "final_check_due": true, "running": null}
""")
STATES = """\
US-001 passed None
US-002 passed None, weak
US-003 failed npm test failed wi
US-004 waiting None
US-005 blocked 3 failed attempts
US-006 open None"""


def test_the_object_of_a_plan_in_every_state(tmp_path: Path) -> None:
    found = json.loads(status.show(shop(tmp_path), "json"))
    assert OBJECT.items() <= found.items()
    states = []
    for task in found["tasks"]:
        state = f"{task['state']} {task['reason']}"[:25]
        weak = ", weak" if task["weak"] else ""
        states.append(f"{task['id']} {state}{weak}")
    assert "\n".join(states) == STATES
    _, _, failed, waits, blocked, _ = found["tasks"]
    assert failed["failures"] == failed["attempts"] == 2
    assert failed["seconds"] == 624.0
    assert waits["waits_for"] == ["US-003"]
    assert blocked["question"] == "Which format?"
    assert blocked["parked"] == "refs/ralph/parked/0005-US-005"


LIMITED: Records = [
    {"event": "run", "limits": {"usd": 20, "hours": 1.5, "attempts": 2}},
    *worked("A", 1, "failed", usd=1.5),
    start("A", 2),
    {**worked("A", 2, "timed-out", usd=1.7, at_least=True)[1], "time": AT + 120},
]
LIMITED = [{"run": "r", **record} for record in LIMITED]


def test_what_is_used_of_each_limit(tmp_path: Path) -> None:
    """Those of a run, with what it was given, only while it goes on; those of the plan
    always."""
    budget = {"usd": 100, "tokens": 10**6}
    limits = {"usd": 5, "tokens": 50_000}
    tasks = [{"id": "A", "title": "a"}]
    told = make(tmp_path, tasks, LIMITED, budget=budget, limits=limits)
    plan = "the plan: at least $3.20 of $100.00, 40628 of 1000000 tokens"
    of_run = "this run: at least $3.20 of $20.00, 40628 of 50000 tokens, 2 of 50 iterations, 2 min 0 s of 1 h 30 min"
    printed = status.lines(told)
    assert f"{of_run}; {plan}" in printed
    assert printed[0] == "next     A  10 min 24 s, at least $3.20  a"
    used = json.loads(status.show(told, "json"))["limits"]["run"]["usd"]
    assert used == {"used": 3.2, "limit": 20, "at_least": True}
    ended = make(tmp_path, tasks, [*LIMITED, {"event": "stop"}], budget=budget)
    assert plan in status.lines(ended)


WAITS = f"""
(OUT / task).touch()
while not (OUT / "go").exists(): time.sleep(0.05)
{MAKES}
"""


def look(repo: Repo) -> Json:
    """What of the object changes with a run."""
    found = json.loads(repo.ralph("status", "--json").stdout)
    return {key: found[key] for key in ("next", "running", "stop", "branch")}


def test_the_object_before_during_and_after_a_run(repo: Repo) -> None:
    repo.plan(own("T1"), {**own("T2"), "dependsOn": ["T1"]})
    nothing = {"next": "T1", "running": None, "stop": None, "branch": None}
    assert look(repo) == nothing
    agent = repo.agent(WAITS)
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../T1")
    during = look(repo)["running"]
    assert during["pid"] == process.pid
    (worker,) = during["workers"]
    assert (worker["task"], worker["attempt"]) == ("T1", 1)
    assert worker["workspace"] == str(repo.workspace)
    shown = repo.ralph("status").stdout
    assert re.match(r"running  T1  \(attempt 1, \d+ s\) task 1\n", shown)
    assert f"\n         work-1: {agent[:40]}" in shown
    repo.write("../go", "")
    assert process.wait(30) == 0
    ended = {"next": None, "stop": "complete", "branch": "ralph/p"}
    assert look(repo) == {**nothing, **ended}


# ---------------------------------------------------------------- reading


def test_it_only_reads(repo: Repo) -> None:
    repo.plan("false", {}, limits={"attempts": 1}, checks=["true"])
    repo.run(repo.agent("P('T1.txt').touch()"), "--max-iterations", "1")

    def everything() -> list[str]:
        paths = sorted(repo.outside.rglob("*"))
        return [f"{path} {path.lstat().st_mtime_ns}" for path in paths]

    before = everything()
    for form in ("text", "md", "json"):
        done = repo.ralph("status", "--format", form, PYTHONDONTWRITEBYTECODE="1")
        assert done.returncode == 0
    assert everything() == before


def test_what_is_red_is_shown_with_its_last_lines(repo: Repo) -> None:
    """Of a failed attempt the check that binds, at the end of a run the plan's."""
    lint = {"name": "lint", "run": "seq 12; exit 1"}
    repo.plan("test -f x || { echo own; exit 1; }", checks=["true", lint])
    assert repo.run(repo.agent("P('y').touch()"), "--once")[0] == 3
    shown = repo.ralph("status").stdout
    assert "\n         | own\n         all: " in shown
    assert "| 12" not in shown
    assert repo.run(repo.agent("P('x').touch()"))[0] == 4
    shown = repo.ralph("status").stdout
    red = "not all checks are green: lint failed with exit 1 (0.0 s)"
    assert f"{red}\n| 5\n" in shown
    assert "| 12\nall: " in shown
    assert "next: mend lint, or " in shown


# ---------------------------------------------------------------- quick

HEAVY = (
    "jinja2 jsonschema filelock psutil pathspec asyncio tempfile _ralph.loop.run email"
)
LISTS = "import sys, ralph; sys.argv = ['ralph', 'status']\ntry: ralph.main()\nexcept SystemExit: print(*sys.modules)"


@pytest.mark.skipif(sys.platform != "linux", reason="what emulates it imports more")
def test_what_it_does_not_need_is_not_imported(repo: Repo) -> None:
    repo.plan(*[{"passes": number < 55} for number in range(100)], checks=["true"])
    words = [sys.executable, "-c", LISTS]
    done = subprocess.run(words, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE)
    *shown, modules = done.stdout.decode().splitlines()
    assert "55 of 100 passed" in "".join(shown)
    assert set(HEAVY.split()).isdisjoint(modules.split())
