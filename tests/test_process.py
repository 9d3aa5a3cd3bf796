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

from _ralph.process import Control, ProcessResult, run_process
from _ralph.supervisor import kill_run
from tests.conftest import Repo

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
HANGS = "\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nP('../hanging').touch()\ntime.sleep(600)"


def sleepers(repo: Repo) -> list[int]:
    """Processes in the repository's folder: found by their cwd, for an environment can be cleared."""
    import psutil

    found = []
    for process in psutil.process_iter():
        try:
            if process.cwd() == str(repo.path) and process.status() != psutil.STATUS_ZOMBIE:
                found.append(process.pid)
        except (psutil.Error, OSError):
            continue
    return found


def gone(repo: Repo, within: float) -> bool:
    end = time.monotonic() + within
    while sleepers(repo):
        if time.monotonic() > end:
            return False
        time.sleep(0.05)
    return True


@pytest.mark.parametrize("kind", DESCENDANTS)
def test_after_a_normal_end_nothing_is_left(repo: Repo, kind: str) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent(f"P('T1.txt').touch()\n{DESCENDANTS[kind]}\ntime.sleep(0.2)")
    assert repo.run(agent)[0] == 0
    assert sleepers(repo) == []


def test_every_kind_at_once_at_the_deadline(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('T1.txt').touch()\n" + "\n".join(DESCENDANTS.values()) + HANGS)
    code, _, _ = repo.run(agent, "--agent-timeout", "2s")
    assert code == 0 and repo.verdicts() == ["T1 passed"]  # its own check went from red to green
    assert sleepers(repo) == []


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
    agent = repo.agent("\n".join([*kinds, "P('../hanging').touch()", "time.sleep(600)"]))
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../hanging")
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.3)
    assert process.wait(20) == code
    assert sleepers(repo) == []
    assert repo.verdicts() == ["T1 interrupted"]
    assert repo.records()[-1]["stop"] == stop
    assert repo.git("status", "--porcelain", "-uno") == ""


def test_a_loop_that_hears_no_term_is_killed_all_the_same(repo: Repo) -> None:
    """A git that hangs stands for any system call that does not come back."""
    repo.plan({"checks": ["false"]})
    fake = repo.tool("git", "touch ../hanging\nexec sleep 600")
    fake.chmod(0o644)
    script = repo.outside / "short.py"
    script.write_text(
        "from _ralph import supervisor\nsupervisor._STOP_DEADLINE = 1\nimport ralph\nralph.main()\n"
    )
    agent = repo.agent(f"P('../agent').touch(); time.sleep(1); os.chmod({str(fake)!r}, 0o755)")
    words = [sys.executable, str(script), "run", "-q", "--agent", agent]
    process = subprocess.Popen(words, cwd=repo.path, env=repo.env, stderr=subprocess.DEVNULL)
    repo.wait_for("../hanging")
    process.terminate()
    assert process.wait(15) == 1
    assert gone(repo, 2.0)


def test_the_first_sigint_finishes_the_attempt_the_second_stops_now(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent("P('../hanging').touch()\ntime.sleep(1.5)\nP(f'{task}.txt').touch()")
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../hanging")
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert repo.verdicts() == ["T1 passed"]

    (repo.outside / "hanging").unlink()
    process = repo.start("run", "--agent", repo.agent("P('../hanging').touch()\ntime.sleep(600)"))
    repo.wait_for("../hanging")
    process.send_signal(signal.SIGINT)
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(20) == 130
    assert repo.verdicts() == ["T1 passed", "T2 interrupted"]
    assert sleepers(repo) == []


@pytest.mark.parametrize("victim", ["supervisor", "loop"])
def test_kill_9_of_either_half_takes_everything_with_it_within_two_seconds(repo: Repo, victim: str) -> None:
    import psutil

    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("\n".join(DESCENDANTS.values()) + HANGS)
    process = repo.start("run", "--agent", agent)
    repo.wait_for("../hanging")
    loop = psutil.Process(process.pid).children()[0]
    os.kill(process.pid if victim == "supervisor" else loop.pid, signal.SIGKILL)
    assert gone(repo, 2.0), [psutil.Process(pid).cmdline() for pid in sleepers(repo)]
    assert process.wait(5) == (-9 if victim == "supervisor" else 1)
    code, _, printed = repo.run(repo.agent("P('T1.txt').touch()"))
    assert code == 0, printed
    assert repo.verdicts() == ["T1 interrupted", "T1 passed"]


def test_both_killed_the_next_start_ends_what_is_left(repo: Repo) -> None:
    import psutil

    repo.plan({"checks": ["test -f T1.txt"]})
    process = repo.start("run", "--agent", repo.agent("\n".join(DESCENDANTS.values()) + HANGS))
    repo.wait_for("../hanging")
    loop = psutil.Process(process.pid).children()[0]
    process.send_signal(signal.SIGSTOP)  # so that neither can act on the other's death
    loop.kill()
    process.kill()
    process.wait(5)
    assert len(sleepers(repo)) > len(DESCENDANTS)
    assert repo.run(repo.agent("P('T1.txt').touch()"))[0] == 0
    assert sleepers(repo) == []


def test_a_second_run_ends_at_once_with_75_and_status_works_meanwhile(repo: Repo) -> None:
    import json

    repo.plan({"checks": ["test -f T1.txt"]})
    process = repo.start(
        "run",
        "--agent",
        repo.agent(
            "P('../hanging').touch()\nwhile not P('../go').exists(): time.sleep(0.05)\nP('T1.txt').touch()"
        ),
    )
    repo.wait_for("../hanging")
    code, summary, printed = repo.run("true")
    assert (code, summary["exit"]) == (75, 75)
    assert str(process.pid) in printed
    status = json.loads(repo.ralph("status", "--json").stdout)
    assert status["running"]["pid"] == process.pid and status["running"]["task"] == "T1"
    assert f"pid {process.pid}" in repo.ralph("status").stdout
    assert repo.ralph("stop").returncode == 0
    (repo.path.parent / "go").touch()
    assert process.wait(20) in (0, 3)
    assert json.loads(repo.ralph("status", "--json").stdout)["running"] is None
    assert repo.ralph("stop").returncode == 2


def test_stop_and_retry_reach_a_running_loop(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, {"checks": ["test -f T2.txt"]}, limits={"attempts": 1})
    agent = repo.agent("P(f'{task}-runs').touch()\ntime.sleep(1)\nP('../p').write_text(prompt)")
    process = repo.start("run", "--agent", agent)
    repo.wait_for("T2-runs")
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
    assert run(talks, tmp_path, timeout=1.0, idle=0.6, on_line=lambda _: None).ended == "deadline"
    assert run(talks, tmp_path, timeout=9.0, idle=0.6, on_line=lambda _: "quiet").ended == "idle"
    assert run("import time; time.sleep(60)", tmp_path, timeout=9.0, idle=0.5).ended == "idle"


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
    forks = subprocess.Popen(
        ["sh", "-c", "while :; do sleep 600 & sleep 0.005; done"], cwd=repo.path, env=env
    )
    time.sleep(0.3)
    kill_run("hunted")
    forks.wait(20)
    assert sleepers(repo) == []


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
