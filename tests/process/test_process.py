"""Processes: deadlines, floods, signals, and nothing that outlives an attempt."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from _ralph.process.mark import kill_run
from _ralph.process.process import Control, ProcessResult, run_process
from tests.conftest import LITTLE_GRACE, Repo

# Each leaves a descendant behind in another way; all of them sleep for ten minutes.
DESCENDANTS = {
    "plain child": "subprocess.Popen(['sleep', '600'])",
    "holds stdout": "subprocess.Popen('sleep 600', shell=True, stdout=sys.stdout)",
    "own group": "subprocess.Popen(['sleep', '600'], process_group=0)",
    "own session": "subprocess.Popen(['sleep', '600'], start_new_session=True)",
    "double fork": "sh('(setsid sh -c \"sleep 600 & sleep 600\" >/dev/null 2>&1 &)')",
    "ignores TERM": "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; sleep 600; sleep 600'])",
    "cleared environment": "sh('(setsid env -i /bin/sleep 600 > /dev/null 2>&1 &)')",  # and no parent left
}
HANGS = "\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n(OUT / 'hanging').touch()\ntime.sleep(600)"


def worker_of(process: subprocess.Popen[Any]) -> int:
    """The worker of a loop's attempt: its one child, where nothing keeps the machine awake."""
    import psutil

    (child,) = psutil.Process(process.pid).children()
    return child.pid


def test_after_a_normal_end_nothing_is_left_of_any_kind(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("\n".join(("P('T1.txt').touch()", *DESCENDANTS.values(), "time.sleep(0.2)")))
    assert repo.run(agent, first=LITTLE_GRACE)[0] == 0
    assert repo.alive() == []


def test_at_the_deadline_nothing_is_left_of_any_kind(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('T1.txt').touch()\n" + "\n".join(DESCENDANTS.values()) + HANGS)
    code, _, _ = repo.run(agent, "--agent-timeout", "2s", first=LITTLE_GRACE)
    assert code == 0 and repo.verdicts() == ["T1 passed"]  # its own check went from red to green
    assert repo.alive() == []


def test_half_of_the_work_at_the_deadline_is_no_pass(repo: Repo) -> None:
    repo.plan({}, checks=["test -f a.txt"])
    code, _, _ = repo.run(
        repo.agent("P('half').touch()\ntime.sleep(600)"), "--agent-timeout", "1s", "--max-iterations", "1"
    )
    assert (code, repo.verdicts(), repo.passed()) == (3, ["T1 timed-out"], [])


@pytest.mark.parametrize(
    ("number", "times", "code", "stop"),
    [
        (signal.SIGTERM, 1, 143, "terminated"),
        (signal.SIGHUP, 1, 129, "hung-up"),
        (signal.SIGINT, 2, 130, "interrupted"),
    ],
)
def test_a_signal_stops_now_with_a_record_and_nothing_left(
    repo: Repo, number: int, times: int, code: int, stop: str
) -> None:
    repo.plan({"checks": ["false"]})
    kinds = [deed for kind, deed in DESCENDANTS.items() if kind != "ignores TERM" or number == signal.SIGTERM]
    agent = repo.agent("\n".join([*kinds, "(OUT / 'hanging').touch()", "time.sleep(600)"]))
    process = repo.start("run", "--agent", agent, first=LITTLE_GRACE)
    repo.wait_for("../hanging")
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.3)
    assert process.wait(20) == code
    assert repo.alive() == []
    assert repo.verdicts() == ["T1 interrupted"]
    assert repo.records()[-1]["stop"] == stop
    assert repo.git("status", "--porcelain", "-uno") == ""


def start_with(repo: Repo, first: str, agent: str) -> subprocess.Popen[bytes]:
    """`ralph run` in the background, with Python that it runs before."""
    words = [
        sys.executable,
        "-c",
        f"{first}\nimport ralph\nralph.main()",
        "run",
        "-q",
        "--no-awake",
        "--agent",
        agent,
    ]
    return subprocess.Popen(words, cwd=repo.path, env=repo.env, stderr=subprocess.DEVNULL)


@pytest.mark.parametrize("when", ["in the worker", "in the loop"])
def test_a_git_that_hangs_is_given_up_when_ralph_is_told_to_stop(repo: Repo, when: str) -> None:
    repo.plan({"checks": ["false"]})
    fake = repo.tool("git", "touch ../hanging ../../../hanging 2> /dev/null; touch $HANGS\nexec sleep 600")
    fake.chmod(0o644)
    repo.env["HANGS"] = str(repo.outside / "hanging")
    arm = f"os.chmod({str(fake)!r}, 0o755)"
    agent = repo.agent(arm if when == "in the worker" else "pass")
    first = "from _ralph.git import git\ngit._HURRY = 0.5"
    if when == "in the loop":
        first += f"\nimport os\nfrom _ralph.loop import attempt\nreal = attempt.examine\nasync def examine(run, one):\n    {arm}\n    await real(run, one)\nattempt.examine = examine"
    process = start_with(repo, first, agent)
    repo.wait_for("../hanging")
    fake.unlink()  # only the one call hangs
    process.terminate()
    assert process.wait(15) == 143
    assert repo.gone_within(2.0)


def test_a_worker_that_hears_no_term_is_killed_all_the_same(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt && test -f half"]})
    first = "from _ralph.loop import worker\nworker._STOP_DEADLINE = 1"
    process = start_with(repo, first, repo.agent("P('half').touch()" + HANGS))
    repo.wait_for("../hanging")
    os.kill(worker_of(process), signal.SIGSTOP)
    process.terminate()
    assert process.wait(20) == 143
    assert repo.alive() == []
    assert repo.run(repo.agent("P('T1.txt').touch()"))[0] == 0  # what it left was gone on with


def test_the_first_sigint_finishes_the_attempt_the_second_stops_now(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent("(OUT / 'hanging').touch()\ntime.sleep(1.5)\nP(f'{task}.txt').touch()")
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../hanging")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert repo.verdicts() == ["T1 passed"]

    (repo.outside / "hanging").unlink()
    process = repo.start("run", "--agent", repo.agent("(OUT / 'hanging').touch()\ntime.sleep(600)"))
    repo.wait_for("../hanging")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert repo.verdicts() == ["T1 passed", "T2 interrupted"]
    assert repo.alive() == []


def test_kill_9_of_the_loop_takes_everything_with_it_within_two_seconds(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    process = repo.start("run", "--agent", repo.agent("\n".join(DESCENDANTS.values()) + HANGS))
    repo.wait_for("../hanging")
    process.kill()
    assert repo.gone_within(2.0), [one.cmdline() for one in repo.alive()]
    assert process.wait(5) == -9
    code, _, printed = repo.run(repo.agent("P('T1.txt').touch()"))
    assert code == 0, printed
    assert repo.verdicts() == ["T1 interrupted", "T1 passed"]


@pytest.mark.parametrize("who", ["the agent", "somebody"])
def test_kill_9_of_the_worker_costs_the_attempt_and_the_night_goes_on(repo: Repo, who: str) -> None:
    """`kill -9 $PPID` by an agent, or a system that is short of memory."""
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    kills = "os.kill(os.getppid(), signal.SIGKILL)\n" if who == "the agent" else ""
    first = "\n".join(DESCENDANTS.values()) + f"\n{kills}{HANGS.strip()}"
    lines = "".join(f"    {line}\n" for line in first.splitlines())
    agent = repo.agent(
        f"if (task, attempt) == ('T1', 1) and not (OUT / 'hanging').exists():\n{lines}P(f'{{task}}.txt').touch()"
    )
    process = repo.start("run", "--no-awake", "--agent", agent)
    repo.wait_for("../hanging")
    if who == "somebody":
        os.kill(worker_of(process), signal.SIGKILL)
    assert process.wait(30) == 0
    assert repo.alive() == []
    assert repo.verdicts() == ["T1 interrupted", "T1 passed", "T2 passed"]
    assert "the worker of this attempt was killed" in repo.records("verdict")[0]["reason"]


def test_a_worker_that_is_killed_three_times_in_a_row_blocks_its_task(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent(
        "P('half').touch()\n"
        "if task == 'T1': os.kill(os.getppid(), signal.SIGKILL); time.sleep(600)\n"
        "P(f'{task}.txt').touch()"
    )
    assert repo.run(agent)[0] == 4
    assert repo.verdicts() == ["T1 interrupted"] * 3 + ["T2 passed"]
    last = repo.records("verdict")[2]
    assert "interrupted 3 times in a row" in last["blocked"]
    assert repo.git("show", f"{last['parked']}:half") == ""
    assert repo.passed() == ["T2"]


def test_loop_and_worker_killed_the_next_start_ends_what_is_left(repo: Repo) -> None:
    """But for what left its session, its parents and its environment: docs/isolation.md says so."""
    repo.plan({"checks": ["test -f T1.txt"]})
    deeds = [deed for kind, deed in DESCENDANTS.items() if kind != "cleared environment"]
    process = repo.start("run", "--no-awake", "--agent", repo.agent("\n".join(deeds) + HANGS))
    repo.wait_for("../hanging")
    worker = worker_of(process)
    process.send_signal(signal.SIGSTOP)  # so that neither can act on the other's death
    os.kill(worker, signal.SIGKILL)
    process.kill()
    process.wait(5)
    assert len(repo.alive()) > len(deeds)
    assert repo.run(repo.agent("P('T1.txt').touch()"))[0] == 0
    assert repo.alive() == []


def test_a_second_run_ends_at_once_with_75_and_status_works_meanwhile(repo: Repo) -> None:
    import json

    repo.plan({"checks": ["test -f T1.txt"]})
    process = repo.start(
        "run",
        "--agent",
        repo.agent(
            "(OUT / 'hanging').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.05)\nP('T1.txt').touch()"
        ),
    )
    repo.wait_for("../hanging")
    code, summary, printed = repo.run("true")
    assert (code, summary["exit"]) == (75, 75)
    assert str(process.pid) in printed
    status = json.loads(repo.ralph("status", "--json").stdout)
    assert status["running"]["pid"] == process.pid and status["running"]["workers"][0]["task"] == "T1"
    assert f"pid {process.pid}" in repo.ralph("status").stdout
    assert repo.ralph("stop").returncode == 0
    (repo.path.parent / "go").touch()
    assert process.wait(20) in (0, 3)
    assert json.loads(repo.ralph("status", "--json").stdout)["running"] is None
    assert repo.ralph("stop").returncode == 2


def test_stop_and_retry_reach_a_running_loop(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, {"checks": ["test -f T2.txt"]}, limits={"attempts": 1})
    agent = repo.agent("(OUT / f'{task}-runs').touch()\ntime.sleep(1)\n(OUT / 'p').write_text(prompt)")
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../T2-runs")
    assert repo.ralph("retry", "T1", "--answer", "forty-two").returncode == 0
    end = time.monotonic() + 20
    while [r["task"] for r in repo.records("start")].count("T1") < 2 and time.monotonic() < end:
        time.sleep(0.05)
    assert repo.ralph("stop").returncode == 0
    assert process.wait(20) == 3
    assert "forty-two" in (repo.outside / "p").read_text()
    assert repo.records()[-1]["stop"] == "asked"


# ---- run_process by itself


def run(script: str, tmp_path: Path, **given: Any) -> ProcessResult:
    options = {"timeout": 30.0, "out": tmp_path / "out", "err": tmp_path / "err", **given}
    words = [sys.executable, "-c", script]
    return run_process(words, cwd=tmp_path, env=dict(os.environ), control=Control(), **options)


def test_lines_of_any_length_and_bytes_of_any_kind_arrive_whole(tmp_path: Path) -> None:
    seen: list[bytes] = []
    script = (
        "import sys; w = sys.stdout.buffer.write; w(b'x' * 9_000_000 + b'\\n\\xff\\xfe\\n'); w(b'no newline')"
    )
    result = run(script, tmp_path, on_line=lambda line: seen.append(line))
    assert [len(seen[0]), *seen[1:]] == [9_000_000, b"\xff\xfe", b"no newline"]
    assert (result.exit, result.ended) == (0, "itself")


def test_a_flood_is_kept_as_head_and_tail(tmp_path: Path) -> None:
    script = "for i in range(400000): print(i)"
    run(script, tmp_path, cap=100_000)
    kept = (tmp_path / "out").read_text()
    assert kept.startswith("0\n1\n2\n") and kept.endswith("399998\n399999\n")
    assert len(kept) < 100_100 and "bytes cut here" in kept


def test_idle_and_total_deadlines(tmp_path: Path) -> None:
    talks = "import time\nfor _ in range(100): print('.', flush=True); time.sleep(0.1)"
    assert run(talks, tmp_path, timeout=1.0, idle=lambda: 0.6, on_line=lambda _: None).ended == "deadline"
    assert run(talks, tmp_path, timeout=9.0, idle=lambda: 0.6, on_line=lambda _: "quiet").ended == "idle"
    assert run("import time; time.sleep(60)", tmp_path, timeout=9.0, idle=lambda: 0.5).ended == "idle"


def test_a_clock_that_is_set_back_makes_no_wait_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    until, looks, real = time.time() + 0.3, iter([0.0]), time.time
    monkeypatch.setattr(time, "time", lambda: real() - next(looks, 3600.0))
    started = time.monotonic()
    Control().sleep(until, lambda: False)
    assert time.monotonic() - started < 60


def test_a_large_prompt_reaches_a_slow_reader_and_one_that_never_reads(tmp_path: Path) -> None:
    prompt = b"p" * 3_000_000
    script = "import sys, time; time.sleep(0.3); print(len(sys.stdin.buffer.read()))"
    assert run(script, tmp_path, stdin=prompt).tail.strip() == "3000000"
    assert run("print('hi')", tmp_path, stdin=prompt).exit == 0


def test_the_line_handler_can_end_it(tmp_path: Path) -> None:
    script = "import time; print('stop me', flush=True); time.sleep(60)"
    assert run(script, tmp_path, on_line=lambda line: "stop" if line == b"stop me" else None).ended == "stop"


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    result = run_process(["/no/such/program"], cwd=tmp_path, env={}, timeout=1, control=Control())
    assert result.ended == "missing" and result.exit == 127


def test_a_shortage_of_the_system_is_no_failed_command(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    control, taken = Control(), [os.open(os.devnull, os.O_RDONLY)]
    while len(os.listdir("/dev/fd")) < taken[-1] + 2:  # no number below it may be left
        taken.append(os.dup(taken[0]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 2, hard))
    try:
        with pytest.raises(OSError, match="Too many open files"):
            run_process(["true"], cwd=tmp_path, env={}, timeout=5, control=control)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


def test_what_forks_while_it_is_hunted_is_found_too(repo: Repo) -> None:
    env = {**repo.env, "RALPH_RUN_ID": "hunted"}
    endless = "for i in $(seq 4000); do sleep 60 & sleep 0.005; done"  # not for ever, if the test is killed
    forks = subprocess.Popen(["sh", "-c", endless], cwd=repo.path, env=env)
    time.sleep(0.3)
    kill_run("hunted")
    forks.wait(20)
    assert repo.alive() == []


def test_a_loop_is_seen_after_the_clock_was_set(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    process = repo.start("run", "--agent", repo.agent("P('T1.txt').touch()" + HANGS))
    repo.wait_for("../hanging")
    later = "import psutil._pslinux as p; real = p.boot_time; p.boot_time = lambda: real() + 3600"
    assert f"(pid {process.pid})" in repo.ralph_anew("status", first=later).stdout
    assert repo.ralph_anew("stop", first=later).returncode == 0
    process.kill()
    process.communicate(timeout=20)
    assert repo.gone_within(10)
