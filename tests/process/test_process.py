"""Processes: deadlines, floods, signals, and nothing that outlives an attempt."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from shutil import which
from typing import Any

import pytest

from _ralph.process import leftovers, process
from _ralph.process.process import (
    Command,
    Control,
    Ended,
    OutputHandler,
    ProcessResult,
    run_process,
)
from tests.conftest import LITTLE_GRACE, Repo, cases
from tests.scripts import (
    HANGS,
    MAKES,
    WAYS,
    kinds,
    own,
)

WAY = next(iter(WAYS))


@pytest.mark.parametrize("way", WAYS)
def test_after_a_normal_end_nothing_is_left_of_any_kind(repo: Repo, way: str) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    deeds = kinds(way)
    if sys.platform == "darwin":  # as README says
        del deeds["own session"]
    script = "\n".join(("P('T1.txt').touch()", *deeds.values(), "time.sleep(1)"))
    agent = repo.agent(script)
    assert repo.run(agent, first=WAYS[way] + LITTLE_GRACE)[0] == 0
    assert repo.alive() == []


@pytest.mark.parametrize("kind", ["", "process_group=0", "start_new_session=True"])
def test_a_server_that_an_agent_left_answers_no_check(repo: Repo, kind: str) -> None:
    """There is no work but this."""
    if sys.platform == "darwin" and "session" in kind:
        pytest.skip("as README says, a system program in a session of its own survives")
    asked, answer = repo.outside / "asked", repo.outside / "answer"
    asks = f"rm -f {asked} {answer}; touch {asked}"
    check = f"{asks}; sleep 0.4; test -e {answer}"
    repo.plan({"checks": [check]}, limits={"attempts": 1})
    server = f"while :; do [ -e {asked} ] && touch {answer}; sleep 0.05; done"
    starts = f"subprocess.Popen(['sh', '-c', {server!r}], {kind})"
    agent = repo.agent(f"{starts}\nP('x').touch()\ntime.sleep(0.2)")
    assert repo.run(agent, first=LITTLE_GRACE)[0] == 4
    assert repo.passed() == []


def test_news_ends_nothing_but_its_own(repo: Repo) -> None:
    """Neither the agent of another worker nor what that has started."""
    repo.plan(own("T1"), own("T2"), limits={"attempts": 1})
    works = f"child = subprocess.Popen(['sleep', '600'])\nwhile not (OUT / 'told').exists(): time.sleep(0.02)\ntime.sleep(0.5)\nassert child.poll() is None\n{MAKES}"
    agent = repo.agent(f"if task == 'T2':\n    exec({works!r})")
    told = f"sleep 600 & touch {repo.outside}/told"
    words = ("--jobs", "2", "--notify", told)
    code, _, printed = repo.run(agent, *words, first=LITTLE_GRACE)
    assert (code, repo.verdicts()) == (4, ["T1 failed", "T2 passed"]), printed
    assert repo.alive() == []


def test_at_the_deadline_nothing_is_left_of_any_kind(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('T1.txt').touch()\n" + "\n".join(kinds().values()) + HANGS)
    code, _, _ = repo.run(agent, "--agent-timeout", "2s", first=LITTLE_GRACE)
    # its own check went from red to green
    assert (code, repo.verdicts()) == (0, ["T1 passed"])
    assert repo.alive() == []


@cases(f"""
name     times  code  stop         way
SIGTERM  1      143   terminated   by session
SIGHUP   1      129   hung-up      {WAY}
SIGINT   2      130   interrupted  {WAY}
""")
def test_a_signal_stops_now_without_a_verdict_and_nothing_left(
    repo: Repo, name: str, times: str, code: str, stop: str, way: str
) -> None:
    repo.plan({"checks": ["false"]})
    deeds = kinds(way)
    if name != "SIGTERM":
        del deeds["ignores TERM"]
    hangs = "(OUT / 'hanging').touch(); time.sleep(600)"
    agent = repo.agent("\n".join([*deeds.values(), hangs]))
    process = repo.start("run", "--agent", agent, first=WAYS[way] + LITTLE_GRACE)
    repo.wait_for("../hanging")
    for _ in range(int(times)):
        process.send_signal(signal.Signals[name])
        time.sleep(0.3)
    assert process.wait(20) == int(code)
    assert repo.alive() == []
    assert repo.verdicts() == []  # the next start recovers it
    assert repo.records()[-1]["stop"] == stop
    assert repo.git("status", "--porcelain", "-uno") == ""


def start_with(repo: Repo, first: str, agent: str) -> subprocess.Popen[bytes]:
    """`ralph run` in the background, with Python that it runs before."""
    code = f"{first}\nimport ralph\nralph.main()"
    words = [sys.executable, "-c", code, "run", "-q", "--no-awake", "--agent", agent]
    return subprocess.Popen(
        words, cwd=repo.path, env=repo.env, stderr=subprocess.DEVNULL
    )


def test_a_git_that_hangs_is_given_up_when_ralph_is_told_to_stop(repo: Repo) -> None:
    repo.plan({"checks": ["false"]})
    hanging, due, git = repo.outside / "hanging", repo.outside / "due", which("git")
    repo.tool(
        "git",
        f'[ ! -e {due} ] || {{ touch {hanging}; exec sleep 600; }}; exec {git} "$@"',
    )
    first = "from _ralph.git import git\ngit._HURRY = 0.5"
    process = start_with(repo, first, repo.agent("(OUT / 'due').touch()"))
    repo.wait_for("../hanging")
    due.unlink()  # only the one call hangs
    process.terminate()
    assert process.wait(15) == 143
    assert repo.gone_within(2.0)


def test_a_loop_that_hears_no_term_is_killed_all_the_same(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt && test -f half"]})
    deaf = f"""
import time
from pathlib import Path
from _ralph.loop import examine, supervisor
supervisor._DEADLINE = 1
def hang(*_):
    Path({str(repo.outside)!r}, "hanging").touch()
    time.sleep(600)
examine.make_candidate = hang
"""
    process = start_with(repo, deaf, repo.agent("P('half').touch()"))
    repo.wait_for("../hanging")
    process.terminate()
    assert process.wait(20) == 143
    assert repo.alive() == [] and repo.verdicts() == []
    # what it left is gone on with
    assert repo.run(repo.agent("P('T1.txt').touch()"))[0] == 0


# ---- run_process by itself


def run(
    script: str, tmp_path: Path, handler: OutputHandler | None = None, **given: Any
) -> ProcessResult:
    words = [sys.executable, "-c", script]
    given = {"timeout": 30.0, "out": tmp_path / "out", "err": tmp_path / "err", **given}
    command = Command(words, tmp_path, dict(os.environ), **given)
    return run_process(command, Control(), handler)


def test_lines_of_any_length_and_bytes_of_any_kind_arrive_whole(tmp_path: Path) -> None:
    seen: list[bytes] = []
    script = "import sys; w = sys.stdout.buffer.write; w(b'x' * 9_000_000 + b'\\n\\xff\\xfe\\n'); w(b'no newline')"
    result = run(script, tmp_path, lambda line: seen.append(line))
    assert [len(seen[0]), *seen[1:]] == [9_000_000, b"\xff\xfe", b"no newline"]
    assert (result.exit, result.ended) == (0, Ended.ITSELF)


def test_a_flood_is_kept_as_head_and_tail(tmp_path: Path) -> None:
    script = "for i in range(400000): print(i)"
    run(script, tmp_path, cap=100_000)
    kept = (tmp_path / "out").read_text()
    assert kept.startswith("0\n1\n2\n") and kept.endswith("399998\n399999\n")
    assert len(kept) < 100_100 and "[cut here]" in kept


TALKS = "import time\nfor _ in range(100): print('.', flush=True); time.sleep(0.1)"
SLEEPS = "import time; time.sleep(60)"


@cases("""
does    answer  timeout  idle  ended
talks   -       1        0.6   deadline
talks   quiet   9        0.6   idle
talks   stop    9        -     stopped
sleeps  -       9        0.5   idle
""")
def test_deadlines_and_the_answers_of_a_handler(
    tmp_path: Path, does: str, answer: str, timeout: str, idle: str, ended: str
) -> None:
    script = TALKS if does == "talks" else SLEEPS
    quiet = float(idle or "inf")
    given = {"timeout": float(timeout), "idle": lambda: quiet}
    found = run(script, tmp_path, lambda _: answer or None, **given)
    assert found.ended is Ended[ended.upper()]


def test_a_large_prompt_reaches_a_slow_reader_and_one_that_never_reads(
    tmp_path: Path,
) -> None:
    prompt = b"p" * 3_000_000
    script = "import sys, time; time.sleep(0.3); print(len(sys.stdin.buffer.read()))"
    assert run(script, tmp_path, stdin=prompt).tail.strip() == "3000000"
    assert run("print('hi')", tmp_path, stdin=prompt).exit == 0


def test_a_program_that_is_not_there(tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_text("#!/bin/sh\r\n")
    script.chmod(0o755)
    for program, said in (("/no/such/program", "No such file"), (script, "first line")):
        command = Command([str(program)], tmp_path, {}, 1)
        result = run_process(command, Control())
        assert (result.ended, result.exit) == (Ended.MISSING, 127)
        assert said in result.tail


@pytest.mark.parametrize("way", WAYS)
def test_what_forks_while_it_is_hunted_is_found_too(
    repo: Repo, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    monkeypatch.setattr(leftovers, "ADOPTS", not WAYS[way])
    monkeypatch.setenv("RALPH_RUN_ID", "")
    leftovers.mark_run("hunted", repo.outside / "notes")
    forking = "sleep 60 & sleep 0.005; i=$((i + 1))"
    endless = f"i=0; while [ $i -lt 4000 ]; do {forking}; done"
    env = {**repo.env, "RALPH_RUN_ID": "hunted"}
    noted = partial(leftovers.note, os.getpid())
    given: dict[str, Any] = {"cwd": repo.path, "env": env, "preexec_fn": noted}
    forks = subprocess.Popen(["sh", "-c", endless], start_new_session=True, **given)
    time.sleep(0.3)
    left = leftovers.left_by_run("hunted", repo.outside / "notes")
    assert process.sweep(0.0, left=left) == []
    forks.wait(20)
    assert repo.alive() == []
