"""What an attempt cost: what its agent reported, and at least the dearest so far if it
was cut off before."""

from __future__ import annotations

import json
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from _ralph.agents.cli import PLAIN
from _ralph.agents.registry import BUILTIN, find_agent
from _ralph.agents.running import cut_off
from _ralph.agents.stream import Stream
from _ralph.model import Outcome
from tests.conftest import Repo, cases, sample
from tests.scripts import ROW

# ---------------------------------------------------------------- one attempt


# Events by their names; `result` and `step` with what differs from the first of them.
KINDS: dict[str, Any] = {
    "event": {},
    "result": {"type": "result", "is_error": False, "total_cost_usd": 0.5, "usage": {"input_tokens": 7}},
    "step": {"type": "step_finish"},
}  # fmt: skip
SAID = """
init     event   {"type": "system", "subtype": "init", "session_id": "s"}
silent   event   {"type": "system", "subtype": "api_retry", "error_status": 529}
asked    event   {"type": "assistant", "message": {"id": "m1", "usage": {"input_tokens": 900, "output_tokens": 20}, "content": [{"type": "text", "text": "hm"}]}}
more     event   {"type": "assistant", "message": {"id": "m2", "usage": {"input_tokens": 900, "output_tokens": 20}, "content": []}}
result   result  {"result": "done"}
dear     result  {"total_cost_usd": 4.0}
free     result  {"total_cost_usd": 0}
nothing  result  {"total_cost_usd": 0, "usage": {"input_tokens": 0}}
untold   result  {"usage": {}}
null     result  {"usage": {"input_tokens": 7, "cache_read_input_tokens": null}}
below    result  {"usage": {"input_tokens": 7, "output_tokens": -5}}
text     result  {"total_cost_usd": "0.5"}
none     result  {"total_cost_usd": null}
step     step    {"part": {"cost": 1}}
last     step    {"part": {"cost": 0.5, "reason": "stop", "tokens": {"input": 9, "output": 1}}}
nan      step    {"part": {"cost": NaN}}
less     step    {"part": {"cost": -1, "tokens": {"input": 1}}}
"""
EVENTS: dict[str, dict[str, Any]] = {}
for line in SAID.strip().splitlines():
    name, kind, fields = line.split(maxsplit=2)
    EVENTS[name] = {**KINDS[kind], **json.loads(fields)}


def parsed(name: str, *events: dict[str, Any], **left: Any) -> Stream:
    stream = Stream(BUILTIN.get(name, PLAIN), **left)
    for event in events:
        stream.line(json.dumps(event).encode())
    return stream


def parsed_as(name: str, said: str, **left: Any) -> Stream:
    return parsed(name, *(EVENTS[one] for one in said.split()), **left)


@cases("""
name      said                outcome      cut  why
claude    asked result            done         no
claude    asked result            interrupted  no   it had said its last word
claude    asked result init more  interrupted  yes
claude    asked                   interrupted  yes
claude    asked                   timed-out    yes
claude    asked                   failed       yes  it died
claude    init                    interrupted  yes  a request may be under way
claude    init silent             interrupted  no   the provider did not answer
claude    asked silent            interrupted  yes
claude    init                    timed-out    no   in all that time nothing came
claude    init                    failed       no
claude    asked                   limited      no
claude    asked                   unavailable  no
opencode  step                    interrupted  yes
plain     -                       interrupted  no   nobody knows what it costs
""")
def test_which_attempts_were_cut_off(
    name: str, said: str, outcome: str, cut: str, why: str
) -> None:
    found = parsed_as(name, said).was_cut_off(Outcome(outcome))
    assert found is (cut == "yes"), why


# The same, and which of dollars and tokens it should have reported.
@cases("""
name      said                    outcome      missing
claude    result                  done
claude    free                    done         dollars
claude    free                    failed       dollars
claude    nothing                 failed
claude    nothing                 done         dollars tokens
claude    untold                  done         tokens
claude    null                    done
claude    below                   done         tokens
claude    text                    failed       dollars
claude    none                    limited
claude    none                    unavailable
claude    asked                   interrupted
opencode  last                    done
opencode  nan last                done         dollars tokens
opencode  less                    interrupted  dollars
plain     -                       done
""")
def test_what_an_agent_should_have_reported(
    name: str, said: str, outcome: str, missing: str
) -> None:
    ended, found = Outcome(outcome), ""
    for limit, left in {"usd_left": 5.0, "tokens_left": 10**6}.items():
        found += f" {parsed_as(name, said, **{limit: left}).unreported(ended)}"
    assert " ".join(found.split()) == missing
    assert not parsed_as(name, said).unreported(ended), "nothing is limited"


# What its transcript has, and how that ends: cut off, or (`deep`) damaged. The last has
# none.
@cases("""
events                      end            usd  at_least
init asked result           -              0.5
init asked                  -              3.0  yes
init asked dear init more   {"type":"ass   4.0  yes
init silent                 -              -
-                           deep           3.0  yes
none                        -              -
""")
def test_what_an_agent_that_died_with_ralph_costs(
    tmp_path: Path, events: str, end: str, usd: str, at_least: str
) -> None:
    transcript = tmp_path / "0001-T1.out"
    if events != "none":
        lines = [json.dumps(EVENTS[name]) for name in events.split()]
        end = end.replace("deep", "[" * 50_000 + "\n\0\xff")
        transcript.write_text("\n".join([*lines, end]))
    agent = find_agent("claude", BUILTIN, "full")
    ended = cut_off(agent, transcript, 3.0, "it died")
    assert (ended.outcome, ended.reason) == ("interrupted", "it died")
    assert ended.usd == (float(usd) if usd else None)
    assert ended.at_least is bool(at_least)


# ---------------------------------------------------------------- a night

# Three requests an attempt, as Claude Code's stream tells them. The model counts each
# once it is asked; the agent names the price of all when it has ended.
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


def night(
    repo: Repo, ways: list[str], *words: str, first: str = "", **top: Any
) -> Night:
    """Whole nights, started again after each kill and Ctrl-C, in which every third
    attempt is cut off in one of `ways`: the last exit status, the verdicts, and what
    the model counted, in dollars."""
    tasks = [{"checks": [f"test -f T{n}.txt"]} for n in range(1, 30)]
    repo.plan(*tasks, agents={"speaker": ROW}, **top)
    agent = repo.agent(SPEAKER.replace("WAYS", repr(ways)), "speaker")
    speaker = repo.program("../speaker", f'exec {agent} "$@"')
    way, code = repo.outside / "way", -signal.SIGKILL
    while code in (-signal.SIGKILL, 130):
        agents = "--agent", str(speaker), "--agent-timeout", "3s"
        process = repo.start("run", "-q", *agents, *words, first=first)
        while process.poll() is None:
            if way.exists() and way.read_text() in ("kill", "ctrl-c"):
                end(process, way.read_text())
            time.sleep(0.02)
        way.unlink(missing_ok=True)
        code = process.returncode
        assert repo.gone_within(10)
    counted = sum(map(float, repo.read("../counted").split()))
    return code, repo.records("verdict"), counted


def end(process: Any, way: str) -> None:
    """kill -9, or Ctrl-C twice."""
    if way == "kill":
        process.kill()
    else:
        process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        process.send_signal(signal.SIGINT)
    process.wait(30)


def wrong(
    code: int, verdicts: list[dict[str, Any]], counted: float, wanted: int
) -> set[str]:
    """What is wrong with the books of a night that had a dollar."""
    found, dearest, total, cut_off = set(), 0.0, 0.0, 0
    if code != wanted:
        found.add("its end")
    for verdict in verdicts:
        if total >= 1:
            found.add("it went on")
        usd = verdict.get("usd", 0.0)
        cut = verdict["verdict"] in ("interrupted", "timed-out")
        cut_off += cut
        if cut and usd < dearest:
            found.add("below the dearest")
        if verdict.get("at_least", False) is not cut:
            found.add("not marked")
        dearest, total = max(dearest, usd), total + usd
    if total < 1 or cut_off < 3:
        found.add("ended before")
    if not counted - 1e-9 <= total <= 2 * counted:
        found.add("not what it was")
    return found


@cases("""
ways                  options      budget        code
kill deadline worker  --max-usd 1  {}            3
deadline ctrl-c kill  -            {"usd": 1}    4
""", of=2)  # fmt: skip
def test_a_night_in_which_every_third_attempt_is_cut_off_is_booked_for_what_it_cost(
    repo: Repo, ways: str, options: str, budget: str, code: str
) -> None:
    budgeted = json.loads(budget)
    found = night(repo, ways.split(), *options.split(), budget=budgeted)
    assert wrong(*found, wanted=int(code)) == set(), found
    shown = json.loads(repo.ralph("status", "--json").stdout)
    assert shown["usd"] == pytest.approx(sum(one["usd"] for one in found[1]))
    assert shown["at_least"] is True
    assert repo.read("progress.txt").count(", at least $") >= 2


# ---------------------------------------------------------------- the other roles

AGREED = '{"criteria": [{"criterion": "x", "met": true}]}'
AGREES = json.dumps({**EVENTS["result"], "total_cost_usd": 2.0, "result": AGREED})

DONE = json.dumps(EVENTS["result"])
TALKS = f"print({json.dumps(EVENTS['asked'])!r}, flush=True)\n"
WORKS = f"P(task + '.txt').touch(); print({DONE!r})"


def program(repo: Repo, place: str, script: str) -> str:
    """A program called `speaker`, for which the row is, that runs `script`; its
    path."""
    agent = repo.agent(script, place)
    return str(repo.program(f"../{place}/speaker", f'exec {agent} "$@"'))


@pytest.mark.parametrize("dies", sample(["all of ralph", "its loop"], 2))
def test_a_judge_that_dies_with_ralph_is_paid_as_much_as_the_dearest_and_asked_again(
    repo: Repo, dies: str
) -> None:
    tasks = [{"checks": [f"test -f T{n}.txt"]} for n in (1, 2)]
    repo.plan(*tasks, agents={"speaker": ROW})
    kills = "time.sleep(0.5); os.kill(os.getppid(), 9)" if dies == "its loop" else ""
    script = f"""
if task == 'T1' or (OUT / 'judging').exists(): print({AGREES!r}); sys.exit()
{TALKS}
(OUT / 'judging').touch(); {kills}
time.sleep(600)
"""
    agent, judge = program(repo, "agents", WORKS), program(repo, "judges", script)
    words = ("run", "-q", "--agent", agent, "--judge", judge)
    if dies == "all of ralph":
        process = repo.start(*words)
        repo.wait_for("../judging")
        process.kill()
        process.wait(10)
        assert repo.gone_within(10)
    assert repo.ralph(*words).returncode == 0
    first, second = repo.records("verdict")
    assert (first["usd"], second["judge"]["usd"], second["usd"]) == (2.5, 4.0, 4.5)
    assert second["at_least"] and "at_least" not in first
    assert ", at least $4.00" in repo.read("progress.txt")


def test_what_the_judge_of_an_earlier_feature_used_is_not_counted_again(
    repo: Repo,
) -> None:
    agent = program(repo, "agents", WORKS)
    judge = program(repo, "judges", f"print({AGREES!r})")
    for branch in ("ralph/one", "ralph/two"):
        task = {"checks": ["test -f T1.txt"]}
        repo.plan(task, branchName=branch, agents={"speaker": ROW})
        words = ("--agent", agent, "--judge", judge)
        assert repo.ralph("run", "-q", *words).returncode == 0
    for verdict in repo.records("verdict"):
        assert verdict["judge"]["usd"] == 2.0


def test_the_report_says_that_it_was_at_least_so_much(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, agents={"speaker": ROW}, limits={"attempts": 2})
    script = f"if attempt == 1: P('x').touch(); print({DONE!r}); sys.exit()\n{TALKS}time.sleep(600)"
    assert repo.run(program(repo, "agents", script), "--agent-timeout", "2s")[0] == 4
    assert repo.ralph("report").returncode == 0
    page = repo.read(".ralph/report.html")
    assert ", at least $1.00</p>" in page and ">at least $0.50<" in page
