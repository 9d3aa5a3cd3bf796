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
from tests.conftest import Repo
from tests.state.test_log import replay

AT = 1795291832.0
PLACES = Path("/s/shop-1")
Records = list[dict[str, Any]]


def complete(record: dict[str, Any], titles: dict[str, str]) -> dict[str, Any]:
    """A record of the plan, with a title and a time."""
    whole = {"plan": "prd.json@", "time": AT, **record}
    if "task" in record:
        whole["title"] = titles[record["task"]]
    return whole


def make(folder: Path, tasks: Records, records: Records, **top: Any) -> Status:
    """What would be shown of this plan after these records."""
    path = folder / "prd.json"
    path.write_text(json.dumps({"project": "shop", **top, "userStories": tasks}))
    plan = prd.load(path)
    titles = {task.id: task.title for task in plan.tasks}
    history = replay([from_json(complete(one, titles)) for one in records])
    return Status(plan, history)


def start(task: str, iteration: int) -> dict[str, Any]:
    return {"event": "start", "task": task, "iteration": iteration}


def worked(task: str, iteration: int, word: str, **more: Any) -> Records:
    """The records of an attempt."""
    ended = {
        "event": "verdict", "task": task, "iteration": iteration, "verdict": word,
        "seconds": 312.0, "usd": 0.42, "tokens": {"input": 18204, "output": 2110},
    }  # fmt: skip
    return [start(task, iteration), {**ended, **more}]


def shop(folder: Path) -> Status:
    """A plan with a task in every state."""
    tasks: Records = [
        {"id": "US-001", "title": "Add a price to every product", "passes": True},
        {"id": "US-002", "title": "Show the price on the product page, in the currency of the customer who looks at it", "passes": True},
        {"id": "US-003", "title": "Add a price filter"},
        {"id": "US-004", "title": "Sort by price", "dependsOn": ["US-003"]},
        {"id": "US-005", "title": "価格の一覧を書き出す", "blocked": "3 failed attempts, the last: npm test failed with exit 1 (12.0 s)"},
        {"id": "US-006", "title": "Remove the old price list"},
    ]  # fmt: skip
    records = [
        {"event": "run", "branch": "ralph/shop"},
        *worked("US-001", 1, "passed"),
        *worked("US-002", 2, "passed", weak=True, beside=["lint"]),
        *worked("US-003", 3, "failed", reason="npm test failed with exit 1 (12.0 s)"),
        *worked("US-003", 4, "failed", reason="npm test failed with exit 1 (11.0 s)", denials=["npm ci"], failure={"name": "npm test", "tail": "\n".join(map(str, range(12))) + "\n\n", "log": ".ralph/log/4.log"}),
        *worked("US-005", 5, "failed", blocked="x", usd=None, parked="refs/ralph/parked/0005-US-005", handoff={"question": "Which format?"}),
        {"event": "stop", "stop": "limit", "exit": 3, "reason": "limit reached: 5 iterations"},
    ]  # fmt: skip
    shown = make(folder, tasks, records, checks=["npm test"])
    return shown._replace(places=PLACES)


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


HOSTILE = ["価格" * 60, "\x1b[2J\x1b[31mred\x07\x00\u202e", "a\nb\r\nc\td \ud800 half"]


@pytest.mark.parametrize("words", HOSTILE)
def test_no_text_breaks_a_row_or_moves_a_column(tmp_path: Path, words: str) -> None:
    tasks: Records = [
        {"id": f"B{words}", "title": f"b{words}", "blocked": words},
        {"id": "C", "title": words + "c", "dependsOn": [f"B{words}"]},
    ]
    asks = {"blocked on": words}
    records = worked(f"B{words}", 1, "failed", handoff=asks, denials=[words])
    shown = make(tmp_path, tasks, records, project=f"p{words}")
    printed = status.lines(shown)
    assert all(text.clean(line) == line and "\n" not in line for line in printed)
    rows = [line for line in printed[: printed.index("")] if not line.startswith(" ")]
    assert [row[:9] for row in rows] == ["blocked  ", "waiting  "]


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


CUT_OFF = "the last run was cut off; the next one goes on from there"


@pytest.mark.parametrize(("records", "words"), [
    ([], "no run yet"),
    ([{"event": "run"}, start("A", 1)], CUT_OFF),
    ([start("A", 1), {"event": "stop", "stop": "asked", "reason": "as asked"}], "the last run stopped at 2026-11-21 20:10: as asked"),
    # another plan had the branch
    ([{"event": "stop", "stop": "red-checks", "reason": "red"}], "the last run stopped at 2026-11-21 20:10: red"),
])  # fmt: skip
def test_how_the_last_run_ended(tmp_path: Path, records: Records, words: str) -> None:
    shown = make(tmp_path, [{"id": "A", "title": "a"}], records)
    assert status.ending(shown) == words


# ---------------------------------------------------------------- what to do next

RETRY = "ralph retry B --answer '...'"


def stopped(word: str, status: int) -> dict[str, Any]:
    return {"event": "stop", "stop": word, "exit": status, "reason": word}


def asks(task: str) -> Records:
    return worked(task, 1, "failed", blocked="it asks", handoff={"question": "?"})


@pytest.mark.parametrize(("states", "records", "wanted"), [
    # the states of A, B and C: open, without a check, blocked, passed
    ("ooo", [], "ralph run"),
    ("opo", [stopped("limit", 3)], "ralph run"),
    ("bbo", [], "fix what blocks A, B; ralph retry A B; ralph run"),
    ("bbb", asks("B"), f"{RETRY}; ralph run"),
    ("obo", [{**worked("A", 1, "failed", denied=True, denials=["cp"])[1], "run": "r"}, stopped("unavailable", 5)], "ralph run --full-permissions"),
    ("ono", [], "nothing proves B; name a check: ralph run --check 'YOUR TEST COMMAND'"),
    ("ppp", [], "ralph report; ralph land"),
    # what no task can go on without comes before those that are blocked
    ("obo", [stopped("budget", 4)], "raise `budget` in prd.json; ralph run"),
    ("obo", [stopped("unavailable", 5)], "fix it; ralph doctor --probe; ralph run"),
    ("ooo", [{"event": "recheck", "red": ["lint failed with exit 1"]}, stopped("red-checks", 4)], "mend lint, or let a task do it: ralph add 'Mend lint' --check 'npm run lint'; ralph run"),
])  # fmt: skip
def test_what_to_do_next(
    tmp_path: Path, states: str, records: Records, wanted: str
) -> None:
    shown = three(tmp_path, states, records)
    last = shown.history.stopped
    assert "; ".join(status.next_steps(shown, last)) == wanted
    # while a loop runs, only what blocks a task is a person's
    loop = Running(1, "", False, False, [])
    steps = status.next_steps(shown._replace(running=loop), last)
    assert steps == [step for step in steps if "run" not in step]
    assert bool(steps) is ("b" in states)


GIVEN: dict[str, dict[str, Any]] = {
    "o": {"checks": ["x"]},
    "n": {},
    "b": {"checks": ["x"], "blocked": "why?"},
    "p": {"checks": ["x"], "passes": True},
}


def three(folder: Path, states: str, records: Records) -> Status:
    """A plan of A, B and C in these states."""
    tasks = []
    for name, state in zip("ABC", states, strict=True):
        tasks.append({"id": name, "title": name, **GIVEN[state]})
    lint = {"name": "lint", "run": "npm run lint"}
    checks = [] if "n" in states else [lint]
    return make(folder, tasks, records, checks=checks)._replace(to_land=True)


def test_what_to_do_next_names_the_plan(tmp_path: Path) -> None:
    shown = three(tmp_path, "obo", asks("B"))._replace(prd=Path("my plan.json"))
    assert status.next_steps(shown, None) == [
        "ralph retry --prd 'my plan.json' B --answer '...'",
        "ralph run --prd 'my plan.json'",
    ]


# ---------------------------------------------------------------- the object

OBJECT = {
    "stop": "limit", "exit": 3, "passed": 2, "total": 6, "iterations": 5, "usd": 1.68,
    "branch": "ralph/shop", "next": "US-003", "final_check_due": True, "running": None,
}  # fmt: skip
STATES = [
    "passed None", "passed None", "failed npm test failed", "waiting None",
    "blocked 3 failed attempts", "open None",
]  # fmt: skip


def test_the_object_of_a_plan_in_every_state(tmp_path: Path) -> None:
    found = json.loads(status.show(shop(tmp_path), "json"))
    assert {key: found[key] for key in OBJECT} == OBJECT
    tasks = found["tasks"]
    for task, said in zip(tasks, STATES, strict=True):
        assert f"{task['state']} {task['reason']}".startswith(said)
    assert [task["id"] for task in tasks if task["weak"]] == ["US-002"]
    assert tasks[3]["waits_for"] == ["US-003"]
    assert tasks[4]["question"] == "Which format?"
    assert tasks[4]["parked"] == "refs/ralph/parked/0005-US-005"
    counted = [tasks[2][key] for key in ("failures", "attempts", "seconds")]
    assert counted == [2, 2, 624.0]


LIMITED: Records = [
    {"run": "r", "event": "run", "limits": {"usd": 20, "hours": 1.5, "attempts": 2}},
    *({"run": "r", **one} for one in worked("A", 1, "failed", usd=1.5)),
    {"run": "r", **start("A", 2)},
    {"run": "r", **worked("A", 2, "timed-out", usd=1.7, at_least=True)[1], "time": AT + 120},
]  # fmt: skip


def test_what_is_used_of_each_limit(tmp_path: Path) -> None:
    """Those of a run, with what it was given, only while it goes on; those of the plan
    always."""
    tops: dict[str, Any] = {
        "budget": {"usd": 100, "tokens": 10**6},
        "limits": {"usd": 5, "tokens": 50_000},
    }
    tasks = [{"id": "A", "title": "a"}]
    told = make(tmp_path, tasks, LIMITED, **tops)
    plan = "the plan: at least $3.20 of $100.00, 40628 of 1000000 tokens"
    of_run = "this run: at least $3.20 of $20.00, 40628 of 50000 tokens, 2 of 50 iterations, 2 min 0 s of 1 h 30 min"
    printed = status.lines(told)
    assert f"{of_run}; {plan}" in printed
    assert printed[0] == "next     A  10 min 24 s, at least $3.20  a"
    used = json.loads(status.show(told, "json"))["limits"]
    assert used["run"]["usd"] == {"used": 3.2, "limit": 20, "at_least": True}
    ended = make(tmp_path, tasks, [*LIMITED, {"event": "stop"}], **tops)
    assert plan in status.lines(ended)


WAITS = """
(OUT / task).touch()
while not (OUT / "go").exists(): time.sleep(0.05)
P(f"{task}.txt").touch()
"""


def needs(name: str) -> dict[str, Any]:
    return {"checks": [f"test -f {name}.txt"]}


def look(repo: Repo) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(repo.ralph("status", "--json").stdout)
    return found


def test_the_object_before_during_and_after_a_run(repo: Repo) -> None:
    repo.plan(needs("T1"), {**needs("T2"), "dependsOn": ["T1"]})
    before = look(repo)
    assert (before["next"], before["running"], before["stop"]) == ("T1", None, None)
    assert before["branch"] is None
    agent = repo.agent(WAITS)
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../T1")
    during = look(repo)
    assert (during["running"]["pid"], during["stop"]) == (process.pid, None)
    (worker,) = during["running"]["workers"]
    wanted = {"task": "T1", "attempt": 1, "workspace": str(repo.workspace)}
    assert {key: worker[key] for key in wanted} == wanted
    shown = repo.ralph("status").stdout
    assert re.match(r"running  T1  \(attempt 1, \d+ s\) task 1\n", shown)
    assert f"\n         work-1: {agent[:40]}" in shown
    assert f"agents and checks work in {repo.places}\n" in shown
    repo.write("../go", "")
    assert process.wait(30) == 0
    after = look(repo)
    assert (after["stop"], after["exit"], after["next"]) == ("complete", 0, None)
    assert after["branch"] == "ralph/p" and after["running"] is None


# ---------------------------------------------------------------- reading


def test_it_only_reads(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, {}, limits={"attempts": 1}, checks=["true"])
    repo.run(repo.agent("P('T1.txt').touch()"), "--max-iterations", "1")

    def everything() -> list[tuple[str, int, int]]:
        found = []
        for path in sorted(repo.outside.rglob("*")):
            if path.is_file():
                found.append((str(path), path.stat().st_mtime_ns, path.stat().st_size))
        return found

    before = everything()
    for form in ("text", "md", "json"):
        done = repo.ralph("status", "--format", form, PYTHONDONTWRITEBYTECODE="1")
        assert done.returncode == 0
    assert everything() == before


def test_a_plan_that_cannot_be_read_is_named(repo: Repo) -> None:
    repo.write("prd.json", '{"userStories": [')
    done = repo.ralph("status")
    assert done.returncode == 2 and done.stderr.startswith("ralph: prd.json")
    assert done.stdout == ""


# ---------------------------------------------------------------- quick

HEAVY = {
    "jinja2", "jsonschema", "filelock", "psutil", "pathspec", "asyncio", "tempfile",
    "_ralph.loop.run", "email",
}  # fmt: skip


def test_what_it_does_not_need_is_not_imported(repo: Repo) -> None:
    repo.plan(*[{"passes": number < 55} for number in range(100)], checks=["true"])
    code = "import sys, ralph; sys.argv = ['ralph', 'status']\ntry: ralph.main()\nexcept SystemExit: print(*sys.modules)"
    words = [sys.executable, "-c", code]
    done = subprocess.run(words, cwd=repo.path, env=repo.env, stdout=subprocess.PIPE)
    said = done.stdout.decode()
    assert "55 of 100 passed" in said
    assert HEAVY & set(said.splitlines()[-1].split()) == set()


def test_the_failure_that_is_shown_is_the_one_that_binds(repo: Repo) -> None:
    lint = {"name": "lint", "run": "echo lint; exit 1"}
    repo.plan({"checks": ["echo own; exit 1"]}, checks=["true", lint])
    assert repo.run(repo.agent("P('x').touch()"), "--max-iterations", "1")[0] == 3
    shown = repo.ralph("status").stdout
    assert "\n         | own\n         all: " in shown and "| lint" not in shown


def test_what_is_red_in_the_end_is_shown_with_its_last_lines(repo: Repo) -> None:
    lint = {"name": "lint", "run": "seq 12; exit 1"}
    repo.plan({"checks": ["test -f x"]}, checks=["true", lint])
    assert repo.run(repo.agent("P('x').touch()"))[0] == 4
    shown = repo.ralph("status").stdout
    lines = "".join(f"| {number}\n" for number in range(5, 13))
    red = "not all checks are green: lint failed with exit 1 (0.0 s)"
    assert f"{red}\n{lines}all: " in shown
    assert "next: mend lint, or " in shown
