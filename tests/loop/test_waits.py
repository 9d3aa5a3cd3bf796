"""Limits of providers, of the run and of the agent's own stream, with an agent that
speaks JSON."""

from __future__ import annotations

import json
import signal

from tests.conftest import Repo, cases
from tests.scripts import (
    LIMIT,
    LOOKS_OFTEN,
    RESULT,
    cost,
    limited_for,
    overage,
    plan,
    speaker,
    wait_for_records,
)


def test_tokens_dollars_and_session_stand_in_record_status_and_summary(
    repo: Repo,
) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]})
    say = speaker(repo, f"P('T1.txt').touch(); print('''{RESULT}''')")
    code, summary, _ = repo.run(say)
    tokens = {"input": 15, "output": 7, "cached": 5}
    assert (code, summary["usd"], summary["tokens"]) == (0, 0.25, tokens)
    (record,) = repo.records("verdict")
    assert (record["usd"], record["session"]) == (0.25, "s-1")
    assert record["tokens"]["input"] == 15
    assert json.loads(repo.ralph("status", "--json").stdout)["usd"] == 0.25
    assert "$0.25, ended well" in repo.read("progress.txt")


@cases("""
script
sys.exit('not logged in')
print('{"type":"system","subtype":"api_retry","error_status":401}', flush=True); time.sleep(3600)
""")
def test_a_login_failure_stops_with_5_at_once(repo: Repo, script: str) -> None:
    plan(repo, {"checks": ["false"]})
    code, summary, printed = repo.run(speaker(repo, script))
    assert (code, summary["stop"]) == (5, "unavailable")
    assert repo.verdicts() == ["T1 unavailable"] and "does not answer" not in printed


def test_an_attempt_may_finish_on_paid_extra_usage_and_the_next_does_not_begin(
    repo: Repo,
) -> None:
    plan(repo, {"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    work = "P(os.environ['RALPH_TASK_ID'] + '.txt').touch()"
    say = speaker(repo, f"{work}; print('''{overage(3600)}'''); print('''{RESULT}''')")
    code, summary, printed = repo.run(say, "--max-wait", "0")
    assert (code, summary["stop"], repo.passed()) == (75, "limited", ["T1"])
    assert "the provider bills extra usage" in printed
    assert "--allow-overage" in summary["reason"]
    # a run that begins anew knows it from the notes
    code, summary, _ = repo.run(say, "--once")
    assert (code, repo.passed(), len(repo.records("start"))) == (75, ["T1"], 1)
    code, summary, _ = repo.run(say, "--max-wait", "10m")
    assert code == 75 and "more than --max-wait allows" in summary["reason"]
    assert repo.run(say, "--allow-overage")[0] == 0


def test_a_limit_costs_no_attempt_and_ends_with_75_when_not_waiting(repo: Repo) -> None:
    plan(repo, {"checks": ["false"]}, limits={"attempts": 1})
    say = speaker(repo, f"print('''{LIMIT}''')")
    for words in (["--max-wait", "0"], ["--once"]):
        code, summary, _ = repo.run(say, *words)
        assert (code, summary["stop"]) == (75, "limited")
        assert summary["tasks"][0]["state"] == "open"
    late = speaker(repo, f"print({limited_for(90000)})")
    code, summary, _ = repo.run(late)
    assert (code, summary["stop"]) == (75, "limited")
    assert "--max-wait" in summary["reason"]


def test_a_wait_is_a_record_and_ends_with_the_runs_time_or_a_signal(repo: Repo) -> None:
    plan(repo, {"checks": ["false"]})
    say = speaker(repo, f"print('''{LIMIT}''')")
    words = ("--max-hours", "0.0014", "--notify", f"cat >> {repo.outside}/told")
    code, summary, _ = repo.run(say, *words)
    assert (code, summary["stop"]) == (3, "limit")
    assert len(repo.records("wait")) == 1
    assert repo.read("../told").count('"stop"') == 2

    process = repo.start("run", "--agent", say, first=LOOKS_OFTEN)
    wait_for_records(repo, "wait", 2)
    process.send_signal(signal.SIGINT)
    assert process.wait(10) == 130

    process = repo.start("run", "--agent", say, first=LOOKS_OFTEN)
    wait_for_records(repo, "wait", 3)
    assert repo.ralph("stop").returncode == 0
    assert process.wait(10) == 3


def test_a_deadline_in_silence_is_a_limit_and_one_with_words_is_an_attempt(
    repo: Repo,
) -> None:
    plan(repo, {"checks": ["false"]})
    silent = speaker(repo, "time.sleep(3600)")
    assert repo.run(silent, "--agent-timeout", "1s", "--max-wait", "0")[0] == 75
    assert repo.run(silent, "--idle-timeout", "1s", "--max-iterations", "1")[0] == 75
    said = {"content": [{"type": "text", "text": "thinking"}]}
    event = json.dumps({"type": "assistant", "message": said})
    talker = speaker(repo, f"print('''{event}''', flush=True); time.sleep(3600)")
    words = "--idle-timeout 1s --max-wait 0 --max-iterations 1"
    assert repo.run(talker, *words.split())[0] == 3
    assert repo.verdicts() == ["T1 limited", "T1 limited", "T1 timed-out"]


def test_work_that_its_own_limit_cut_off_is_no_attempt(repo: Repo) -> None:
    plan(repo, {"checks": ["false"]}, limits={"attempts": 1})
    ended = cost(1.0001, is_error=True, subtype="error_max_budget_usd")
    say = speaker(repo, f"P('x').touch(); print('''{ended}''')")
    code, summary, _ = repo.run(say, "--max-usd", "1")
    assert (code, summary["stop"], summary["tasks"][0]["attempts"]) == (3, "limit", 0)
    assert repo.verdicts() == ["T1 interrupted"]


def test_one_task_that_is_denied_does_not_end_the_run_and_three_in_a_row_do(
    repo: Repo,
) -> None:
    """T1 is denied, T2 works, then T3 to T5 are denied: T6 is not tried."""
    tasks = [{"checks": [f"test -f T{i}.txt"]} for i in range(1, 7)]
    plan(repo, *tasks, limits={"attempts": 1})
    denials = [{"tool_name": "Bash", "tool_input": {"command": "make x"}}]
    denied = json.loads(RESULT) | {"permission_denials": denials}
    says = f"print({json.dumps(denied)!r})"
    say = speaker(repo, f"if task == 'T2': P('T2.txt').touch()\n{says}")
    code, summary, _ = repo.run(say)
    assert (code, summary["stop"]) == (5, "unavailable")
    assert "make x" in summary["reason"]
    verdicts = "T1 failed, T2 passed, T3 failed, T4 failed, T5 failed"
    assert ", ".join(repo.verdicts()) == verdicts
    assert repo.read("progress.txt").count("- denied: Bash: make x") == 5
    assert "make x" in summary["tasks"][0]["reason"]


# What is run behind the prefix the first time, before it is lost for two calls: the
# agent that dies with it, or that has done its work.
@cases("""
ends         verdicts
sys.exit(1)  T1 limited, T1 limited, T1 passed
pass         T1 passed
""")
def test_a_prefix_that_starts_nothing_is_waited_for_and_no_attempt_is_counted(
    repo: Repo, ends: str, verdicts: str
) -> None:
    down = repo.outside / "down"
    dies = 'echo "no daemon" >&2; exit 125'
    lost = f"if [ -s {down} ]; then sed -i 1d {down}; {dies}; fi"
    wrap = repo.tool("wrap", f'{lost}\nexec "$@"')
    task = {"checks": ["test -f T1.txt"]}
    repo.plan(task, checks=["true"], limits={"attempts": 1}, wrap=str(wrap))
    deeds = f"""
if not (OUT / 'was').exists():
    (OUT / 'was').touch(); P({str(down)!r}).write_text('1\\n' * 3)
    {ends}
P('T1.txt').touch()
"""
    soon = f"{LOOKS_OFTEN}\nlimits.BACKOFF = (0.5,)\n"
    code, _, printed = repo.run(repo.agent(deeds), first=soon)
    assert code == 0, printed
    assert ", ".join(repo.verdicts()) == verdicts
    assert "starts nothing at all: no daemon" in printed
