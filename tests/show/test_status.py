"""`ralph status`: a table that no terminal breaks, Markdown that no text breaks, an
object that stays."""

from __future__ import annotations

import json
import os
import pty
import re
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from markdown_it import MarkdownIt
from wcwidth import wcswidth

from _ralph import text
from _ralph.show import status
from _ralph.show.status import Status
from _ralph.state import prd
from _ralph.state.history import replay
from _ralph.state.records import from_json
from tests.conftest import Repo, steps

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def make(
    folder: Path, tasks: list[dict[str, Any]], records: list[dict[str, Any]], **top: Any
) -> Status:
    """What would be shown of this plan after these records; each gets the plan, a title
    and a time."""
    path = folder / "prd.json"
    path.write_text(json.dumps({"project": "shop", **top, "userStories": tasks}))
    plan = prd.load(path)
    titles = {task.id: task.title for task in plan.tasks}
    return Status(
        plan, replay([from_json(complete(r, plan.key, titles)) for r in records])
    )


def complete(
    record: dict[str, Any], key: str, titles: dict[str, str]
) -> dict[str, Any]:
    more = {"title": titles[record["task"]]} if "task" in record else {}
    return {"plan": key, "time": 1795291832.0, "tree": "", **more, **record}


def start(task: str, iteration: int) -> dict[str, Any]:
    return {"event": "start", "task": task, "iteration": iteration}


def verdict(task: str, iteration: int, word: str, **more: Any) -> dict[str, Any]:
    return {
        "event": "verdict",
        "task": task,
        "iteration": iteration,
        "verdict": word,
        **more,
    }


def worked(task: str, iteration: int, word: str, **more: Any) -> list[dict[str, Any]]:
    tokens = {"input": 18204, "output": 2110, "cached": 0}
    spent = {"seconds": 312.0, "usd": 0.42, "tokens": tokens}
    return [start(task, iteration), verdict(task, iteration, word, **{**spent, **more})]


def worker(
    task: str, number: int, lasted: float, attempt: int = 1, **used: Any
) -> dict[str, Any]:
    """A worker as `--json` has it."""
    since = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time.time() - lasted))
    row = {
        "worker": number,
        "task": task,
        "attempt": attempt,
        "agent": "",
        "since": since,
    }
    return {**row, "usd": 0.0, "usd_estimated": 0.0, "tokens": {}, "doing": "", **used}


HOME = "/s/shop-1"
PLACES = {
    "folder": HOME,
    "workspace": f"{HOME}/work-1",
    "room": f"{HOME}/room-1",
    "rooms": {f"{HOME}/room-1": 345_678},
    "bytes": 12_345_678,
}


def shop(folder: Path) -> Status:
    """A plan with a task in every state."""
    tasks: list[dict[str, Any]] = [
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
        *worked("US-002", 2, "passed", weak=True),
        *worked("US-003", 3, "failed", reason="npm test failed with exit 1 (12.0 s)", denials=["npm ci"]),
        *worked("US-003", 4, "failed", reason="npm test failed with exit 1 (11.0 s)"),
        *worked("US-005", 5, "failed", blocked="x", usd=None, parked="refs/ralph/parked/0005-US-005", handoff={"blocked on": "Which format?"}),
        {"event": "stop", "stop": "limit", "reason": "limit reached: 5 iterations"},
    ]  # fmt: skip
    return replace(make(folder, tasks, records), places=PLACES)


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()


# ---------------------------------------------------------------- the table

WIDE = """\
passed   US-001  Add a price to every product                                                 5 min 12 s, $0.42
passed   US-002  Show the price on the product page, in the currency of the... (weak)         5 min 12 s, $0.42
next     US-003  Add a price filter                                                          10 min 24 s, $0.84
         failed 2 of 3: npm test failed with exit 1 (11.0 s)
waiting  US-004  Sort by price (for US-003)
blocked  US-005  価格の一覧を書き出す                                                  5 min 12 s, 20.3k tokens
         3 failed attempts, the last: npm test failed with exit 1 (12.0 s)
         its work: git show refs/ralph/parked/0005-US-005
         it asks: Which format?
open     US-006  Remove the old price list

5 iterations so far, in agents and checks: 26 min 0 s, $1.68
the last run stopped at 2026-11-21 20:10: limit reached: 5 iterations
verified work lands on branch ralph/shop
the agent works in /s/shop-1/work-1
checks run in /s/shop-1/room-1; all places take 12.3 MB
next: ralph retry US-005 --answer '...'; ralph run
shop: 2 of 6 passed (1 weak), 1 failed, 1 blocked, 1 waiting, 1 open [########................]"""


def test_the_table(tmp_path: Path) -> None:
    """On a narrow terminal titles are cut, what is spent is left out, and sentences are
    broken."""
    shown = shop(tmp_path)
    assert "\n".join(status.lines(shown, 111, color=False)) == WIDE
    narrow = "\n".join(status.lines(shown, 50, color=False))
    assert (
        "\npassed   US-002  Show the price on the p... (weak)\nnext     US-003  Add a price filter\n"
        in narrow
    )
    assert (
        "\n         failed 2 of 3: npm test failed with exit\n         1 (11.0 s)\n"
        in narrow
    )
    assert "\n5 iterations so far, in agents and checks: 26 min\n0 s, $1.68\n" in narrow


HOSTILE = [
    "x" * 300, "word " * 60, "価格" * 60, "👨‍👩‍👧 family " * 9, "e\u0301" * 90, "\x1b[2J\x1b[31mred\x07\x00", "a\nb\r\nc\td",
    "\u202eevil", "<script>alert(1)</script>", " ", "\ud800 half",
]  # fmt: skip


@pytest.mark.parametrize("words", HOSTILE)
@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_no_text_is_wider_than_the_terminal_or_moves_a_column(
    tmp_path: Path, words: str, width: int
) -> None:
    tasks: list[dict[str, Any]] = [
        {"id": "A", "title": "a", "passes": True},
        {"id": f"B{words}", "title": f"b{words}", "blocked": words},
        {"id": "C", "title": words + "c", "dependsOn": [f"B{words}"]},
    ]
    records = worked(
        f"B{words}", 1, "failed", handoff={"blocked on": words}, denials=[words]
    )
    shown = make(tmp_path, tasks, records, project=f"p{words}")
    printed = status.lines(shown, width, color=False)
    assert max(wcswidth(line) for line in printed) <= width
    assert all(text.clean(line) == line and "\n" not in line for line in printed)
    rows = [line for line in printed[: printed.index("")] if not line.startswith(" ")]
    assert [row[:9] for row in rows] == ["passed   ", "blocked  ", "waiting  "]
    assert {row[7:9] for row in rows} == {"  "} and rows[0].split()[1] == "A"


NAME_A_CHECK = (
    "next: nothing proves A, B; name a check: ralph run --check 'YOUR TEST COMMAND'"
)


def test_a_plan_without_a_run_shows_neither_time_nor_cost(tmp_path: Path) -> None:
    shown = make(tmp_path, [{"id": "A", "title": "a"}, {"id": "B", "title": "b"}], [])
    assert status.lines(shown, 80, color=False) == [
        "next  A  a", "open  B  b", "", "no run yet", NAME_A_CHECK, "shop: 0 of 2 passed, 2 open [........................]",
    ]  # fmt: skip


def test_colors_only_add_to_what_is_there(tmp_path: Path) -> None:
    plain, colored = (
        status.lines(shop(tmp_path), 111, color) for color in (False, True)
    )
    assert [ESCAPE.sub("", line) for line in colored] == plain
    assert colored[0].startswith("\x1b[32mpassed") and colored[-1].startswith(
        "\x1b[31mshop"
    )


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


def test_color_is_for_terminals_that_want_it(repo: Repo) -> None:
    repo.plan({"passes": True}, {"title": "t" * 200}, checks=["true"])
    assert ESCAPE.search(on_a_terminal(repo))
    assert not ESCAPE.search(on_a_terminal(repo, NO_COLOR="1"))
    assert not ESCAPE.search(on_a_terminal(repo, TERM="dumb"))
    assert not ESCAPE.search(repo.ralph("status").stdout)
    assert (
        max(
            len(line)
            for line in on_a_terminal(repo, NO_COLOR="1", COLUMNS="60").splitlines()
        )
        == 60
    )


def test_what_a_loop_does_now(tmp_path: Path) -> None:
    now, tasks = time.time(), [{"id": "A", "title": "a"}]
    began = {**start("A", 1), "time": now - 125}
    at_work = make(tmp_path, tasks, [began])
    loop: dict[str, Any] = {"pid": 4711, "since": "2026-11-21 22:00:05"}

    def said(shown: Status, *workers: dict[str, Any]) -> list[str]:
        return status.lines(
            replace(shown, running={**loop, "workers": workers}), 120, color=False
        )

    used: dict[str, Any] = {
        "usd": 0.5,
        "tokens": {"input": 3000, "output": 30},
        "doing": "Bash pytest",
    }
    busy = said(at_work, worker("A", 1, 125, **used))
    assert busy[0].startswith("running  A") and busy[-1].startswith(
        "shop: 0 of 1 passed, 1 running ["
    )
    assert "a loop is running since 2026-11-21 22:00:05 (pid 4711)" in busy
    assert "A, attempt 1, 2 min 5 s, $0.50, 3.0k tokens; Bash pytest" in busy
    ended = [
        began,
        verdict("A", 1, "limited"),
        {"event": "wait", "until": round(now) + 3600, "time": now},
    ]
    waits = make(tmp_path, tasks, ended)
    clock = time.strftime("%H:%M", time.localtime(round(now) + 3600))
    assert f"the agent waits until {clock} for its provider's limit" in said(waits)
    assert "a loop is running since 2026-11-21 22:00:05 (pid 4711)" in said(
        make(tmp_path, tasks, [])
    )
    loop["rechecking"] = True
    assert said(waits)[-3].endswith(
        "(pid 4711), checking everything once more in a fresh checkout"
    )


def test_a_run_that_was_cut_off_is_named(tmp_path: Path) -> None:
    shown = make(
        tmp_path, [{"id": "A", "title": "a"}], [{"event": "run"}, start("A", 1)]
    )
    assert "the last run was cut off" in "\n".join(status.lines(shown, 80, color=False))


ASKS = worked("B", 1, "failed", blocked="it asks", handoff={"blocked on": "Which?"})
DEAR = [
    *worked("C", 1, "failed"),
    {
        "event": "stop",
        "stop": "limit",
        "exit": 3,
        "reason": "limit reached: $0.10 for this run (--max-usd)",
    },
]
LOGGED_OUT = [
    {
        "event": "stop",
        "stop": "unavailable",
        "exit": 5,
        "reason": "the agent cannot run",
    }
]
SPENT = [
    {
        "event": "stop",
        "stop": "budget",
        "exit": 4,
        "reason": "the plan's budget in dollars is spent",
    }
]


@pytest.mark.parametrize(
    ("blocked", "records", "wanted"),
    [
        ("B", [], "fix what blocks B; ralph retry B; ralph run"),
        # a question comes first, and the others are counted
        ("A B C", ASKS, "ralph retry B --answer '...'; 2 more blocked; ralph run"),
        ("A B", [], "fix what blocks A, B; ralph retry A B; ralph run"),
        ("", [], "ralph run"),
        # a limit that is less than an attempt
        ("", DEAR, "raise --max-usd: one attempt took $0.42"),
        ("", SPENT, "raise `budget` in prd.json; ralph run"),
        # what no task can go on without comes before blocked ones
        ("B", SPENT, "raise `budget` in prd.json; ralph run"),
        ("B", LOGGED_OUT, "fix it; ralph doctor --probe; ralph run"),
    ],
)
def test_what_to_type_next(
    tmp_path: Path,
    blocked: str,
    records: list[dict[str, Any]],
    wanted: str,
) -> None:
    """It has the name of the plan, and no options: the shell has these."""
    tasks: list[dict[str, Any]] = [
        {"id": name, "title": name, "checks": ["x"]} for name in "ABCP"
    ]
    tasks[3]["passes"] = True
    for task in tasks:
        task |= {"blocked": "why?"} if task["id"] in blocked.split() else {}
    shown = make(tmp_path, tasks, records)
    assert f"next: {wanted}" in status.lines(shown, 120, color=False)
    named = replace(shown, prd=Path("my plan.json"))
    again = re.sub(
        r"ralph (run|retry|doctor)", r"ralph \1 --prd 'my plan.json'", wanted
    )
    again = again.replace("in prd.json", "in my plan.json")
    assert f"next: {again}" in status.lines(named, 200, color=False)


@pytest.mark.parametrize("question", ["One?\nOr two?", "Which? " + "z" * 900])
def test_a_question_that_blocks_its_task_stands_once(repo: Repo, question: str) -> None:
    repo.plan({"checks": ["false"]})
    agent = repo.agent(
        f"P('x').write_text(str(time.time())); said('blocked on', {question!r})"
    )
    assert repo.run(agent)[0] == 4
    assert repo.ralph("status").stdout.count("it asks: ") == 2, (
        "once at the task, and once why the run ended"
    )


def several(folder: Path) -> Status:
    """A loop with four workers, one agent of which is limited."""
    now = time.time()
    tasks = [
        {"id": f"US-00{n}", "title": "Show the price on the product page"}
        for n in range(1, 7)
    ]
    opus = "claude --model opus"
    under_way = [
        (1, 125, 1, opus),
        (2, 12, 2, opus),
        (3, 3700, 1, "aider"),
        (4, 0, 3, ""),
    ]
    workers = [
        worker(f"US-00{n}", n, lasted, tries, agent=command)
        for n, lasted, tries, command in under_way
    ]
    starts = [{**start(one["task"], one["worker"]), "time": now} for one in workers]
    wait = {"event": "wait", "until": 4102448400.0, "time": now, "command": "codex"}
    shown = make(folder, tasks, [*starts, wait])
    running = {"pid": 4711, "since": "2026-11-21 22:00:05", "workers": workers}
    return replace(shown, running=running, places=PLACES)


SEVERAL = """\
running  US-001  Show the price on the product page (attempt 1, 2 min 5 s)
running  US-002  Show the price on the product page (attempt 2, 12 s)
running  US-003  Show the price on the product page (attempt 1, 1 h 1 min)
running  US-004  Show the price on the product page (attempt 3, 0 s)
open     US-005  Show the price on the product page
open     US-006  Show the price on the product page

4 iterations so far, in agents and checks: 0.0 s
a loop is running since 2026-11-21 22:00:05 (pid 4711)
worker 1: US-001, attempt 1, 2 min 5 s, claude --model opus
worker 2: US-002, attempt 2, 12 s, claude --model opus
worker 3: US-003, attempt 1, 1 h 1 min, aider
worker 4: US-004, attempt 3, 0 s
codex waits until Fri 01 Jan, 01:00 for its provider's limit
the agent works in /s/shop-1/work-1 to work-4
checks run in /s/shop-1/room-1; all places take 12.3 MB
shop: 0 of 6 passed, 4 running, 2 open [........................]"""


def test_several_workers_have_a_line_each(tmp_path: Path) -> None:
    shown = several(tmp_path)
    assert "\n".join(status.lines(shown, 120, color=False)) == SEVERAL
    narrow = status.lines(shown, 60, color=False)
    assert narrow[0] == "running  US-001  Show the price on... (attempt 1, 2 min 5 s)"
    assert [
        line for line in narrow if line.startswith("worker ")
    ] == SEVERAL.splitlines()[9:13]
    table = status.markdown(shown)
    assert (
        "| running | US-002 | Show the price on the product page | attempt 2, 12 s |"
        in table
    )
    assert "worker 2: US-002, attempt 2, 12 s, claude --model opus  \n" in table


# ---------------------------------------------------------------- Markdown

MARKDOWN = """\
## shop: 2 of 6 passed (1 weak), 1 failed, 1 blocked, 1 waiting, 1 open

| state | task | title | notes | spent |
|---|---|---|---|---:|
| passed | US-001 | Add a price to every product |  | 5 min 12 s, \\$0.42 |
| passed | US-002 | Show the price on the product page, in the currency of the customer who looks at it | weak | 5 min 12 s, \\$0.42 |
| next | US-003 | Add a price filter | failed 2 of 3: npm test failed with exit 1 (11.0 s) | 10 min 24 s, \\$0.84 |
| waiting | US-004 | Sort by price | waits for US-003 |  |
| blocked | US-005 | 価格の一覧を書き出す | 3 failed attempts, the last: npm test failed with exit 1 (12.0 s); its work: git show refs/ralph/parked/0005-US-005; it asks: Which format? | 5 min 12 s, 20.3k tokens |
| open | US-006 | Remove the old price list |  |  |

5 iterations so far, in agents and checks: 26 min 0 s, \\$1.68  
the last run stopped at 2026-11-21 20:10: limit reached: 5 iterations  
verified work lands on branch ralph/shop  
the agent works in /s/shop-1/work-1  
checks run in /s/shop-1/room-1; all places take 12.3 MB  
next: ralph retry US-005 --answer '...'; ralph run  """


def test_markdown(tmp_path: Path) -> None:
    assert status.markdown(shop(tmp_path)) == MARKDOWN


FOREIGN = [
    "a | b || c", "a \\| b \\", "``` x ```", "`", "one\n\n| two | three |\n\n# four", "<script>alert(1)</script>", "<!-- gone",
    "<img src=x onerror=y>", "@name and @org/team", "#1 owner/repo#2 GH-3", "![](http://x.invalid/a.png)", "[t](http://x.invalid)",
    "<http://x.invalid>", "[t]: http://x.invalid", "www.x.invalid a@x.invalid mailto:a@x.invalid", "**a** __b__ ~~c~~", "&lt;b&gt; &#64;name",
    "$x$", "- [ ] task", "1. one", "> quoted", "---", "\\", "*a* _b_ ~c~", "[t](javascript:x)", "owner/repo#1", "\x1b[31mred\u202e",
]  # fmt: skip
LINKED = re.compile(r"@\w|#\d|gh-\d|https?://|www\.|mailto:", re.IGNORECASE)
PLAIN = re.compile(
    r"(heading|table|thead|tbody|tr|th|td|paragraph)_(open|close)|inline"
)


def hostile(folder: Path, words: str) -> Status:
    """A plan with `words` wherever a stranger may write."""
    tasks: list[dict[str, Any]] = [
        {"id": f"A {words}", "title": f"a {words}", "blocked": f"why {words}"},
        {"id": "B", "title": f"b {words}", "dependsOn": [f"A {words}"]},
        {"id": "C", "title": "c"},
    ]
    records = [
        *worked(
            f"A {words}",
            1,
            "failed",
            handoff={"blocked on": f"which {words}"},
            denials=[f"ran {words}"],
        ),
        *worked("C", 2, "failed", reason=f"failed {words}"),
        {
            "event": "stop",
            "stop": "limit",
            "reason": f"limit {words}",
            "branch": f"branch {words}",
        },
    ]
    shown = make(folder, tasks, records, project=f"p {words}")
    return replace(shown, places={**PLACES, "workspace": f"place {words}"})


@pytest.mark.parametrize("words", FOREIGN)
def test_foreign_text_is_text_and_nothing_else(tmp_path: Path, words: str) -> None:
    source = status.markdown(hostile(tmp_path, words))
    tokens = MarkdownIt("commonmark").enable(["table", "strikethrough"]).parse(source)
    assert [token.type for token in tokens if not PLAIN.fullmatch(token.type)] == []
    inline = [child for token in tokens for child in token.children or []]
    assert {child.type for child in inline} <= {
        "text",
        "hardbreak",
        "strong_open",
        "strong_close",
    }
    cells = [token.type for token in tokens].count("td_open")
    assert cells == 3 * 5
    seen = "".join(child.content for child in inline)
    assert not LINKED.search(seen)
    for field in (
        "p",
        "A",
        "a",
        "why",
        "b",
        "which",
        "ran",
        "failed",
        "limit",
        "branch",
        "place",
    ):
        shown = (
            f"{field} {words}".splitlines()[0] if field in "ab" else f"{field} {words}"
        )
        assert text.one_line(shown) in seen.replace("\u200b", "")


# ---------------------------------------------------------------- the object

TASK = {
    "id": str, "title": str, "state": str, "weak": bool, "flaky": list, "changed_tests": list, "attempts": int, "failures": int, "seconds": float, "usd": float, "usd_estimated": float, "at_least": bool,
    "tokens": dict, "waits_for": list, "split": str, "reason": str, "question": str, "parked": str,
}  # fmt: skip
TOP = {
    "stop": str, "exit": int, "reason": str, "passed": int, "total": int, "iterations": int, "seconds": float, "usd": float, "usd_estimated": float, "at_least": bool,
    "tokens": dict, "tasks": list, "trouble": str, "agents": list, "limits": dict, "running": dict,
    "final_check_due": bool, "flaky": list, "branch": str, "places": dict, "next": str,
}  # fmt: skip
MAY_BE_NULL = {
    "stop", "exit", "reason", "trouble", "next", "running", "branch", "places", "split", "question", "parked",
}  # fmt: skip


def assert_shape(found: dict[str, Any]) -> None:
    for entry, kinds in [(found, TOP), *((task, TASK) for task in found["tasks"])]:
        assert list(entry) == list(kinds)
        for key, value in entry.items():
            assert type(value) is kinds[key] or (
                value is None and key in MAY_BE_NULL
            ), (key, value)
        assert {key: type(value) for key, value in entry["tokens"].items()} == {
            "input": int, "output": int, "cached": int
        }  # fmt: skip
    if found["running"]:
        assert list(found["running"]) == [
            "pid",
            "since",
            "stopping",
            "rechecking",
            "workers",
            "queue",
        ]
        keys = ["worker", "task", "attempt", "agent", "since", "launch", "workspace"]
        keys += ["usd", "usd_estimated", "tokens", "doing"]
        assert all(list(one) == keys for one in found["running"]["workers"])
    if found["places"]:
        assert list(found["places"]) == [
            "folder",
            "workspace",
            "room",
            "rooms",
            "bytes",
        ]
        assert type(found["places"]["bytes"]) is int


def test_the_object_of_a_plan_in_every_state(tmp_path: Path) -> None:
    found = status.as_object(shop(tmp_path))
    assert_shape(json.loads(json.dumps(found)))
    states = [task["state"] for task in found["tasks"]]
    assert states == ["passed", "passed", "failed", "waiting", "blocked", "open"]
    assert (found["next"], found["passed"], found["usd"]) == ("US-003", 2, 1.68)
    assert [task["weak"] for task in found["tasks"]] == [
        False,
        True,
        False,
        False,
        False,
        False,
    ]
    assert found["tasks"][3]["waits_for"] == ["US-003"]
    blocked = found["tasks"][4]
    assert (
        blocked["reason"].startswith("3 failed attempts")
        and blocked["question"] == "Which format?"
    )
    assert blocked["parked"] == "refs/ralph/parked/0005-US-005"
    failed = found["tasks"][2]
    assert (failed["failures"], failed["attempts"], failed["seconds"]) == (2, 2, 624.0)


LIMITED: list[dict[str, Any]] = [
    {"run": "r", **one}
    for one in (
        {"event": "run", "limits": {"usd": 20, "hours": 1.5, "attempts": 2}},
        *worked("A", 1, "failed", usd=1.5),
        *worked("A", 2, "timed-out", usd=1.7, at_least=True)[:1],
        {
            **worked("A", 2, "timed-out", usd=1.7, at_least=True)[1],
            "time": 1795291832.0 + 120,
        },
    )
]


def test_what_is_used_of_each_limit(tmp_path: Path) -> None:
    """Those of a run, with what it was given, only while it goes on; those of the plan
    always."""
    tops = {
        "budget": {"usd": 100, "tokens": 10**6},
        "limits": {"usd": 5, "tokens": 50_000},
    }
    told = make(tmp_path, [{"id": "A", "title": "a"}], LIMITED, **tops)
    shown = "\n".join(status.lines(told, 300, color=False))
    plan = "the plan: at least $3.20 of $100.00, 40628 of 1000000 tokens"
    assert (
        f"\nthis run: at least $3.20 of $20.00, 40628 of 50000 tokens, "
        f"2 of 50 iterations, 2 min 0 s of 1 h 30 min; {plan}\n"
    ) in shown
    assert (
        "2 iterations so far, in agents and checks: 10 min 24 s, at least $3.20\n"
        in shown
    )
    assert shown.splitlines()[0].endswith("  10 min 24 s, at least $3.20")
    used = status.as_object(told)["limits"]
    assert used["run"]["usd"] == {
        "used": 3.2,
        "limit": 20,
        "estimated": 0,
        "at_least": True,
    }
    assert used["plan"] == {
        "usd": {"used": 3.2, "limit": 100, "estimated": 0, "at_least": True},
        "tokens": {"used": 40628, "limit": 10**6, "estimated": 0, "at_least": False},
    }
    stopped = make(
        tmp_path, [{"id": "A", "title": "a"}], [*LIMITED, {"event": "stop"}], **tops
    )
    assert f"\n{plan}\n" in "\n".join(status.lines(stopped, 300, color=False))
    odd = make(tmp_path, [{"id": "A", "title": "a"}], [], budget={"usd": 0})
    assert status.as_object(odd)["limits"] == {"run": {}, "plan": {}}


def test_the_object_before_during_and_after_a_run(repo: Repo) -> None:
    repo.plan(
        {"checks": ["test -f T1.txt"]},
        {"dependsOn": ["T1"], "checks": ["test -f T2.txt"]},
    )
    repo.commit("plan")

    def look() -> dict[str, Any]:
        by_word, by_format = (
            json.loads(repo.ralph("status", *words).stdout)
            for words in (["--json"], ["--format", "json"])
        )
        seconds = [
            found["limits"]["run"].pop("seconds")["used"]
            for found in (by_word, by_format)
        ]
        assert seconds == sorted(seconds) and by_word == by_format
        assert_shape(by_word)
        return dict(by_word)

    before = look()
    assert (before["next"], before["running"], before["stop"]) == ("T1", None, None)
    assert (before["branch"], before["places"]) == (None, None)
    unused = {"used": 0, "limit": 50, "estimated": 0, "at_least": False}
    assert before["limits"] == {"run": {"iterations": unused}, "plan": {}}
    out = str(repo.outside)
    agent = repo.agent(
        f"P({out!r}, task).touch()\nwhile not P({out!r}, 'go').exists(): time.sleep(0.05)\nP(f'{{task}}.txt').touch()"
    )
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../T1")
    during = look()
    assert (during["running"]["pid"], during["stop"]) == (process.pid, None)
    assert [
        (one["task"], one["workspace"]) for one in during["running"]["workers"]
    ] == [("T1", str(repo.workspace))]
    shown = repo.ralph("status", COLUMNS="300").stdout
    assert (
        shown.startswith("running  T1")
        and f"the agent works in {repo.workspace}" in shown
    )
    assert during["branch"] == "ralph/p"
    places = {
        "folder": str(repo.places),
        "workspace": str(repo.workspace),
        "room": str(repo.room),
    }
    weights = {name: during["places"][name] for name in ("rooms", "bytes")}
    assert during["places"] == {**places, **weights} and [*weights["rooms"]] == [
        str(repo.room)
    ]
    (repo.outside / "go").touch()
    assert process.wait(30) == 0
    after = look()
    assert (after["stop"], after["exit"], after["next"]) == ("complete", 0, None)
    assert after["running"] is None and [task["state"] for task in after["tasks"]] == [
        "passed",
        "passed",
    ]


def test_what_the_agent_at_work_uses_and_does_and_the_last_check_are_shown(
    repo: Repo,
) -> None:
    wait = "while ! test -f {}; do sleep 0.05; done"
    again = f"case $PWD in */room-[2-9]) touch {repo.outside}/on; {wait.format(repo.outside / 'end')};; esac"
    repo.plan({"checks": [f"test -f T1.txt && {again}"]})
    usage = {"input_tokens": 3000, "output_tokens": 30}
    content = [{"type": "tool_use", "name": "Bash", "input": {"command": "pytest -q"}}]
    event = json.dumps(
        {
            "type": "assistant",
            "message": {"id": "m", "content": content, "usage": usage},
        }
    )
    result = json.dumps(
        {"type": "result", "is_error": False, "total_cost_usd": 0.1, "usage": usage}
    )
    script = f"""
        print({event!r}, '{{"type":"user"}}', sep="\\n", flush=True)
        P(OUT / "up").touch()
        while not P(OUT / "go").exists(): time.sleep(0.05)
        P("T1.txt").touch()
        print({result!r})
    """
    repo.tool("claude", f"exec {repo.agent(script)}")
    process = repo.start("run", "--full-permissions")
    repo.wait_for("../up")
    (worker,) = json.loads(repo.ralph("status", "--json").stdout)["running"]["workers"]
    assert (worker["tokens"]["input"], worker["doing"]) == (3000, "Bash pytest -q")
    assert worker["usd"] == 0, "it names its price when it ends"
    assert re.search(
        r"^T1, attempt 1, \d+ s, claude, .*3\.0k tokens; Bash",
        repo.ralph("status").stdout,
        re.M,
    )
    (repo.outside / "go").touch()
    repo.wait_for("../on")
    shown = repo.ralph("status").stdout
    assert (
        "checking everything once more in a fresh checkout" in shown
        and "1 of 1 passed [" in shown
    )
    (repo.outside / "end").touch()
    assert process.wait(30) == 0
    assert "checking everything" not in repo.ralph("status").stdout


def test_what_the_places_weigh(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    assert repo.run(repo.agent("P(f'{task}.txt').touch()"))[0] == 0

    def weight() -> int:
        return int(json.loads(repo.ralph("status", "--json").stdout)["places"]["bytes"])

    before = weight()
    (repo.room / "big").write_bytes(b"x" * 3_000_000)
    assert weight() - before == pytest.approx(3_000_000, abs=100_000)
    shutil.rmtree(repo.places)
    assert json.loads(repo.ralph("status", "--json").stdout)["places"] is None


# ---------------------------------------------------------------- reading, while others write


def test_it_only_reads(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, {}, limits={"attempts": 1}, checks=["true"])
    repo.run(repo.agent("P('T1.txt').touch()"), "--max-iterations", "1")

    def everything() -> dict[str, tuple[int, int]]:
        found = [
            Path(folder, name)
            for folder, _, names in os.walk(repo.outside)
            for name in names
        ]
        return {
            str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in found
        }

    before = everything()
    for form in ("text", "md", "json"):
        assert (
            repo.ralph(
                "status", "--format", form, PYTHONDONTWRITEBYTECODE="1"
            ).returncode
            == 0
        )
    assert everything() == before


# ---------------------------------------------------------------- quick

HEAVY = {"jinja2", "jsonschema", "filelock", "psutil", "asyncio", "tempfile", "_ralph.loop.run", "_ralph.loop.opening", "email", "ctypes.util"}  # fmt: skip


def hundred(repo: Repo) -> None:
    repo.plan(
        *[{"description": "words " * 50, "passes": i < 55} for i in range(100)],
        checks=["true"],
    )
    titles = {f"T{i}": f"task {i}" for i in range(1, 101)}
    records = [
        record
        for i in range(1, 66)
        for record in worked(f"T{i}", i, "passed" if i < 56 else "failed")
    ]
    whole = [complete(record, "p@", titles) for record in records]
    notes = "    | what the agent wrote in its handoff, line after line\n" * 12
    repo.write(
        "progress.txt",
        "".join(
            f"\n## x\n{notes}<!-- ralph {json.dumps({'v': 1, **record})} -->\n"
            for record in whole
        ),
    )


def test_what_it_does_not_need_is_not_imported(repo: Repo) -> None:
    hundred(repo)
    code = "import sys, ralph; sys.argv = ['ralph', 'status']\ntry: ralph.main()\nexcept SystemExit: print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=repo.path,
        env=repo.env,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert "55 of 100 passed" in done.stdout, done.stderr
    assert HEAVY & set(done.stdout.splitlines()[-1].split()) == set()


def test_ten_times_the_tasks_cost_ten_times_as_much(tmp_path: Path) -> None:
    def cost(many: int) -> int:
        tasks = [
            {"id": f"T{i}", "title": f"task {i}", "dependsOn": [f"T{i - 1}"] * (i > 0)}
            for i in range(many)
        ]
        shown = make(tmp_path, tasks, [])
        assert len(status.lines(shown, 80, color=False)) > many
        assert status.as_object(shown)["total"] == many
        return steps(
            lambda: (status.lines(shown, 80, color=False), status.as_object(shown))
        )

    assert cost(2000) < 12 * cost(200)


def test_how_often_a_task_may_fail_is_the_last_run_s_to_say_and_no_reason_to_show_nothing(
    repo: Repo,
) -> None:
    repo.plan({"checks": ["false"]})
    assert (
        repo.run(
            repo.agent("P('x').touch()"), "--max-attempts", "5", "--max-iterations", "1"
        )[0]
        == 3
    )
    assert "failed 1 of 5" in repo.ralph("status").stdout
    repo.plan({"checks": ["false"]}, limits={"attempts": 0})
    done = repo.ralph("status")
    assert done.returncode == 0 and "false failed with exit 1" in done.stdout, (
        done.stderr
    )


def test_a_fresh_plan_on_the_branch_of_a_finished_one_is_not_complete(
    repo: Repo,
) -> None:
    repo.plan(
        {"id": "A", "title": "one", "checks": ["test -f x"]}, branchName="ralph/shop"
    )
    assert repo.run(repo.agent("P('x').touch()"))[0] == 0
    done = json.loads(repo.ralph("status", "--json").stdout)
    assert (done["stop"], done["exit"]) == ("complete", 0)
    repo.plan(
        {"id": "B", "title": "two", "checks": ["test -f y"]}, branchName="ralph/shop"
    )
    fresh = json.loads(repo.ralph("status", "--json").stdout)
    assert [fresh[key] for key in ("stop", "exit", "reason", "next")] == [
        None,
        None,
        None,
        "B",
    ]
    assert "no run yet" in repo.ralph("status").stdout
