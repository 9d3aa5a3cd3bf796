"""What an attempt costs that is cut off before its agent says so: an estimate that is marked as one."""

from __future__ import annotations

import json
import signal
import time
from typing import Any

import pytest

from _ralph.agents.events import StreamParser
from _ralph.agents.prices import book
from _ralph.agents.registry import find_agent, recovered
from _ralph.model import AgentResult, Outcome, Price, Tokens
from tests.conftest import ROOT, Repo, sample

ROWS = json.loads((ROOT / "templates/agents.json").read_text())
ROW = {**ROWS["claude"], "argv": ["speaker", "{args}"], "edit_needs": {}}
RATE = ROWS["claude"]["rate"]["usd"]
OWN = ROWS["claude"]["rate"]["tokens"]

# ---------------------------------------------------------------- one attempt


def asked(message: str = "m1", sent: int = 900, cached: int = 0, answered: int = 20) -> dict[str, Any]:
    """An answer as Claude's stream tells it: 1000 tokens of weight."""
    usage = {"input_tokens": sent, "cache_read_input_tokens": cached, "output_tokens": answered}
    return {
        "type": "assistant",
        "message": {"id": message, "usage": usage, "content": [{"type": "text", "text": "hm"}]},
    }


def calling(message: str = "m1") -> dict[str, Any]:
    """The same, with a call of a tool."""
    event = asked(message)
    event["message"]["content"] = [{"type": "tool_use", "name": "Bash", "input": {"command": "make test"}}]
    return event


def result(usd: float | None = 0.5) -> dict[str, Any]:
    return {"type": "result", "is_error": False, "total_cost_usd": usd, "usage": {"input_tokens": 7}}


ANSWERED: dict[str, Any] = {"type": "user", "message": {"content": [{"type": "tool_result"}]}}
STARTED: dict[str, Any] = {"type": "system", "subtype": "task_started"}
CLOSED: dict[str, Any] = {}  # the moment in which the process is told to end
INIT: dict[str, Any] = {"type": "system", "subtype": "init", "session_id": "s"}
SILENT: dict[str, Any] = {"type": "system", "subtype": "api_retry", "error_status": 529}
SEEN = Price(rate=0.001, request=3.0)
CHEAP = Price(rate=0.0001, request=0.1)


# The name of a row, what came, how it ended, what was known; the dollars and the part that was not told.
@pytest.mark.parametrize(
    ("name", "events", "outcome", "known", "usd", "estimated"),
    [
        ("claude", [asked(), result()], "done", SEEN, 0.5, 0),
        ("claude", [asked(), result()], "interrupted", SEEN, 0.5, 0),  # it had said its last word
        ("claude", [asked()], "interrupted", SEEN, 2.0, 2.0),  # what came, and one more that may be under way
        ("claude", [asked()], "timed-out", SEEN, 2.0, 2.0),
        ("claude", [calling()], "interrupted", SEEN, 1.0, 1.0),  # while the tool runs there is no other
        ("claude", [calling(), STARTED], "interrupted", SEEN, 1.0, 1.0),
        ("claude", [calling(), ANSWERED], "interrupted", SEEN, 2.0, 2.0),
        ("claude", [calling(), CLOSED, ANSWERED], "interrupted", SEEN, 1.0, 1.0),  # the answer of one that was ended
        ("claude", [calling(), ANSWERED, asked("m2")], "interrupted", SEEN, 3.0, 3.0),
        ("claude", [asked(), calling()], "timed-out", SEEN, 1.0, 1.0),
        ("claude", [asked()], "failed", SEEN, 1.0, 1.0),  # it ended by itself, without a last word
        ("claude", [asked()], "interrupted", Price(), 2000 * RATE, 2000 * RATE),
        ("claude", [asked(), asked("m2", 400, 0, 0)], "interrupted", SEEN, 2.4, 2.4),
        ("claude", [asked(), asked()], "interrupted", SEEN, 2.0, 2.0),  # two parts of one answer
        ("claude", [asked(cached=1000)], "interrupted", SEEN, 2.2, 2.2),
        ("claude", [asked(), result(), INIT, asked("m2")], "interrupted", SEEN, 2.5, 2.0),
        ("claude", [asked(), result(), INIT, asked("m2")], "interrupted", CHEAP, 1.5, 1.0),  # its own is dearer
        ("claude", [asked(), result(4.0), INIT, asked("m2")], "interrupted", CHEAP, 6.0, 2.0),  # no such price
        ("claude", [asked(), {**result(), "total_cost_usd": None, "usage": {}}], "interrupted", SEEN, 1.0, 1.0),
        ("claude", [INIT], "interrupted", SEEN, 3.0, 3.0),  # nothing came: the largest that was seen
        ("claude", [INIT], "interrupted", Price(), (OWN + 100) * RATE, (OWN + 100) * RATE),
        ("claude", [INIT], "timed-out", SEEN, None, 0),  # in all that time the provider did not answer
        ("claude", [asked(), SILENT], "timed-out", SEEN, 1.0, 1.0),
        ("claude", [INIT], "limited", SEEN, None, 0),
        ("claude", [INIT], "unavailable", SEEN, None, 0),
        ("claude", [asked(), result(0.0), INIT, asked("m2")], "interrupted", Price(), 0.0, 0),  # it knows no price
        ("codex", [{"type": "turn.completed", "usage": {"input_tokens": 900}}], "interrupted", SEEN, None, 0),
        ("plain", [], "interrupted", SEEN, None, 0),
        ("own", [], "interrupted", Price(), 10_100 * 0.00003, 10_100 * 0.00003),  # a plan's own, without a rate
    ],
)  # fmt: skip
def test_what_is_booked(
    name: str, events: list[dict[str, Any]], outcome: str, known: Price, usd: float | None, estimated: float
) -> None:
    row = {"own": {"events": [], "reports": ["dollars"]}, "plain": {"events": []}, **ROWS}[name]
    parser = StreamParser(row["events"])
    for event in events:
        parser.line(json.dumps(event).encode()) if event else parser.close()
    ended = AgentResult(Outcome(outcome), usd=parser.usd)
    booked = book(ended, parser, row, known, prompt=400)
    assert booked.usd == (None if usd is None else pytest.approx(usd))
    assert booked.estimated == pytest.approx(estimated)


def test_an_agent_that_was_killed_may_have_asked_once_more() -> None:
    parser = StreamParser(ROW["events"])
    parser.line(json.dumps(asked()).encode())
    assert book(AgentResult(Outcome.FAILED, exit=-9), parser, ROW, SEEN, 400).estimated == 2.0


@pytest.mark.parametrize(
    ("events", "outcome", "wanted"),
    [
        ([asked(), asked("m2", 2900), result(0.5)], "done", Price(rate=0.000126, request=0.375)),
        ([asked(sent=2900), result(0.5)], "done", Price(rate=0.000167, request=0.5)),
        ([asked(), result(0.5)], "failed", Price()),  # an error in the middle can have cost anything
        ([asked(), result(0.0)], "done", Price()),
        ([result(0.5)], "done", Price()),
    ],
)
def test_the_price_that_a_finished_attempt_shows(
    events: list[dict[str, Any]], outcome: str, wanted: Price
) -> None:
    parser = StreamParser(ROW["events"])
    for event in events:
        parser.line(json.dumps(event).encode())
    shown = book(AgentResult(Outcome(outcome), usd=parser.usd), parser, ROW, SEEN, 400)
    assert Price(rate=shown.rate, request=shown.request) == wanted


def test_the_weight_of_tokens() -> None:
    assert Tokens(1000, 10, 500).weight == 500 + 50 + 50
    assert Tokens(10, 0, 500).weight == 50  # more from the cache than was sent: nonsense, and no discount


def test_an_agent_that_had_not_begun_costs_nothing(repo: Repo) -> None:
    agent = find_agent("claude", ROWS, "full")
    told = recovered(agent, repo.path / ".ralph/log/0001-T1", repo.workspace, SEEN, "cut off")
    assert (told.outcome, told.reason, told.usd, told.estimated) == ("interrupted", "cut off", None, 0)


@pytest.mark.parametrize("name", [name for name, row in ROWS.items() if name])
def test_the_rows_that_report_dollars_say_what_a_token_can_cost_and_who_says_so(name: str) -> None:
    row = ROWS[name]
    assert ("rate" in row) == ("dollars" in row["reports"])
    if "rate" in row:
        assert 0 < row["rate"]["usd"] < 0.001 and row["rate"]["tokens"] > 0 and "20" in row["rate"]["source"]


# ---------------------------------------------------------------- a night

# Three requests an attempt, as Claude Code's stream tells them: the first fills the cache, the others read it,
# and the answers' tokens are partial until the result. The model counts each in full once it is asked.
SPEAKER = """
turn = len((OUT / "turns").read_text()) + 1 if (OUT / "turns").exists() else 1
(OUT / "turns").write_text("x" * turn)
ways = WAYS
way = ways[turn // 3 % len(ways)] if turn % 3 == 0 else ""
cut_in = {"kill": 1, "ctrl-c": 2, "worker": 2, "deadline": 3}.get(way, 4)
total, sums = 0.0, {}
def tell(event): print(json.dumps(event), flush=True)
tell({"type": "system", "subtype": "init", "session_id": "s"})
for number in (1, 2, 3):
    new, old = (10_000, 0) if number == 1 else (800, 10_000 + 800 * (number - 2))
    usage = {"input_tokens": 12, "cache_creation_input_tokens": new, "cache_read_input_tokens": old, "output_tokens": 300}
    usd = (12 * 4 + new * 5 + old * 0.2 + 300 * 20) / 1e6
    with (OUT / "counted").open("a") as counted: counted.write(f"{usd}\\n")
    if number == cut_in:
        if way == "worker": time.sleep(0.5); os.kill(os.getppid(), 9)  # once it has read what was told
        (OUT / "way").write_text(way)
        time.sleep(600)
    total, sums = total + usd, {key: sums.get(key, 0) + used for key, used in usage.items()}
    for part in ({"type": "text", "text": "I look."}, {"type": "tool_use", "name": "Bash", "input": {"command": "ls"}}):
        message = {"id": f"msg_{turn}_{number}", "role": "assistant", "content": [part], "usage": {**usage, "output_tokens": 2}}
        tell({"type": "assistant", "message": message})
    tell({"type": "user", "message": {"role": "user", "content": [{"type": "tool_result", "content": "a"}]}})
P(f"{task}.txt").touch()
tell({"type": "result", "subtype": "success", "is_error": False, "result": "done", "total_cost_usd": total, "usage": sums})
"""
Night = tuple[int, list[dict[str, Any]], float]


def night(repo: Repo, ways: list[str], *words: str, first: str = "", **top: Any) -> Night:
    """Whole nights, started again after each kill and Ctrl-C, in which every third attempt is cut off in one
    of `ways`: the last exit status, the verdicts, and what the model counted, in dollars."""
    repo.plan(*({"checks": [f"test -f T{n}.txt"]} for n in range(1, 30)), agents={"speaker": ROW}, **top)
    agent = repo.agent(SPEAKER.replace("WAYS", repr(ways)), "speaker")
    speaker = repo.program("../speaker", f'exec {agent} "$@"')
    way, code = repo.outside / "way", -signal.SIGKILL
    while code in (-signal.SIGKILL, 130):
        process = repo.start(
            "run", "-q", "--agent", str(speaker), "--agent-timeout", "3s", *words, first=first
        )
        while process.poll() is None:
            if way.exists() and way.read_text() in ("kill", "ctrl-c"):
                end(process, way.read_text())
            time.sleep(0.02)
        way.unlink(missing_ok=True)
        code = process.returncode
        assert repo.gone_within(10)
    return code, repo.records("verdict"), sum(map(float, repo.read("../counted").split()))


def end(process: Any, way: str) -> None:
    """kill -9, or Ctrl-C twice."""
    if way == "kill":
        process.kill()
    else:
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    process.wait(30)


def wrong(code: int, verdicts: list[dict[str, Any]], counted: float, wanted: int) -> set[str]:
    """What is wrong with the books of a night that had a dollar."""
    spent = [verdict.get("usd", 0.0) for verdict in verdicts]
    cut = [verdict["verdict"] in ("interrupted", "timed-out") for verdict in verdicts]
    found = {
        "its end": code != wanted,
        "below what it was": sum(spent) < counted - 1e-9,
        "twice what it was": sum(spent) > 2 * counted,
        "ended before": sum(spent) < 1 or sum(spent[:-1]) >= 1,
        "not marked": cut != [verdict.get("estimated", 0) > 0 for verdict in verdicts],
        "not cut off": sum(cut) < 3,
    }
    return {what for what, is_so in found.items() if is_so}


@pytest.mark.parametrize(
    ("ways", "words", "top", "code"),
    sample(
        [
            (["kill", "deadline", "worker"], ["--max-usd", "1"], {}, 3),
            (["deadline", "ctrl-c", "kill"], [], {"budget": {"usd": 1}}, 4),
        ],
        2,
    ),
)
def test_a_night_in_which_every_third_attempt_is_cut_off_is_booked_for_what_it_cost(
    repo: Repo, ways: list[str], words: list[str], top: dict[str, Any], code: int
) -> None:
    found = night(repo, ways, *words, **top)
    assert wrong(*found, wanted=code) == set(), found
    shown = json.loads(repo.ralph("status", "--json").stdout)
    assert shown["usd"] == pytest.approx(sum(one["usd"] for one in found[1]))
    assert shown["usd_estimated"] == pytest.approx(sum(one.get("estimated", 0) for one in found[1]))
    assert repo.read("progress.txt").count(", about $") >= 2


# ---------------------------------------------------------------- the other roles

JUDGE = f"print('''{json.dumps(asked())}''', flush=True)\n"
DONE = json.dumps({**result(), "result": "done"})


def program(repo: Repo, place: str, script: str) -> str:
    """A program called `speaker`, for which the row is, that runs `script`; its path."""
    return str(repo.program(f"../{place}/speaker", f'exec {repo.agent(script, place)} "$@"'))


def test_a_judge_that_dies_with_its_worker_is_booked(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, agents={"speaker": ROW}, limits={"attempts": 1})
    agent = program(repo, "agents", f"P('T1.txt').touch(); print('''{DONE}''')")
    judge = program(repo, "judges", JUDGE + "time.sleep(0.5); os.kill(os.getppid(), 9)\ntime.sleep(600)")
    repo.run(agent, "--judge", judge, "--max-iterations", "1")
    (record,) = repo.records("verdict")
    assert record["judge"]["usd"] == record["judge"]["estimated"] == 2000 * RATE
    assert (record["usd"], record["estimated"]) == (0.5 + 2000 * RATE, 2000 * RATE)
    assert f", about ${2000 * RATE:.2f}" in repo.read("progress.txt")


def test_a_judge_that_dies_with_all_of_ralph_is_booked(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, agents={"speaker": ROW})
    agent = program(repo, "agents", f"P('T1.txt').touch(); print('''{DONE}''')")
    judge = program(repo, "judges", JUDGE + "(OUT / 'judging').touch(); time.sleep(600)")
    words = ("--agent", agent, "--judge", judge)
    process = repo.start("run", "-q", *words)
    repo.wait_for("../judging")
    process.kill()
    process.wait(10)
    assert repo.gone_within(10)
    repo.ralph("run", "-q", *words, "--max-iterations", "1")
    record = repo.records("verdict")[0]
    assert (record["usd"], record["estimated"]) == (0.5 + 2000 * RATE, 2000 * RATE)


def test_a_planner_that_dies_with_its_worker_is_booked(repo: Repo) -> None:
    repo.plan({}, agents={"speaker": ROW})
    repo.write("../brief.md", "A greeting.")
    planner = repo.program("../speaker", f"echo '{json.dumps(asked())}'; sleep 0.5; kill -9 $PPID; sleep 600")
    done = repo.ralph("plan", "../brief.md", "--planner", str(planner), "--force")
    assert done.returncode == 1 and "the worker of this attempt was killed" in done.stderr
    (record,) = repo.records("add")
    assert record["usd"] == record["estimated"] == 2000 * RATE


def test_the_report_says_what_was_not_told(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, agents={"speaker": ROW}, limits={"attempts": 1})
    agent = program(repo, "agents", JUDGE + "time.sleep(600)")
    assert repo.run(agent, "--agent-timeout", "1s")[0] == 4
    assert repo.ralph("report").returncode == 0
    page = repo.read(".ralph/report.html")
    assert '<data class="estimated" value="0.04">$0.04</data> of it estimated' in page
    assert "about $0.04" in page
