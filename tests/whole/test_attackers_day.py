"""An attacker's day: what was found in ralph's first version, each played again on this one.

| attack | what holds | shown by |
|---|---|---|
| `id: 1.0`, `dependsOn: [1.0]`, `protect: ["tests//x"]`, `"status": "DONE "` | refused with its place, or read as it is meant | test_an_odd_plan |
| a FIFO in place of the prompt's template, at night | exit 2 at once | test_a_template_that_becomes_a_fifo |
| a FIFO, a folder, 2,000 folders in place of a file of ralph's own | replaced, the night goes on | test_what_stands_in_place_of_ralphs_own_files |
| a FIFO or a folder as prd.json, progress.txt | exit 2 at once | test_prd, test_history: in_its_place, what_is_no_file |
| SIGCHLD ignored, `ulimit -f`, a json.py on PYTHONPATH, no /proc, a folder that is gone | it works, or says why not in one line | test_machines: a_bare_machine |
| 100,000 records, 104 MB | folded as they are read: 20 MB of memory, 3 s of processor | test_records_are_folded_as_they_are_read |
| 20,000 tasks | half a second an attempt, linear | test_prd: ten_times_the_tasks |
| a process frozen by a cgroup | named in the record, the night goes on | test_a_frozen_process_is_named |
| hundreds that fork and ignore TERM | all are ended | test_forkers_are_ended |
| `autocrlf`, `eol=crlf` | home and places stay clean | test_line_ends_that_git_converts |
| folders 1,900 deep | every command works | test_folders_1900_deep_at_home, test_attacks: folders_below_folders |
| a loop that is a zombie | it has ended: the next run begins | test_a_zombie_is_no_loop |
| `claude --version` leaves a daemon on its output | doctor goes on | test_doctor_waits_for_no_daemon |
| stop, add, retry, tell inside an attempt, behind `env -u` | refused | test_an_attempt_cannot_steer_its_loop |
| a copy of the folder of a run under way | is a plan of its own | test_a_copy_of_a_running_folder |
| a person's file called x.ralph-tmp | stays; beside the plan, it is moved aside and named | test_a_file_called_as_ralphs_temporary_ones |
| 20,000 loose branches | half a second a task | measured |
| a price that is told only at the end | the first attempt works alone; the start says so | test_an_agent_that_tells_its_price_late |
| 60 MB of an agent's text in fragments | linear | test_text_in_fragments_takes_linear_time |
| `kill -STOP` of the loop | others are told 75; TERM ends it as soon as it continues | test_a_stopped_loop |
| a commit message of 200 KB from a hook, or one without trailers | the trailers land | test_a_hook_cannot_lose_the_trailers |
| a person's file in the way of landing | no mark without its commit; both at the next start | test_what_cannot_land_is_not_marked |
| a hook that leaves a file of terabytes | costs its attempt | test_git_that_is_late_in_the_room |
| Ctrl-C twice during another worker's baseline | both attempts are recorded | test_an_interrupted_baseline_is_recorded |
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
import tracemalloc
from pathlib import Path
from typing import Any

import psutil
import pytest

from _ralph import files
from _ralph.agents.events import StreamParser
from _ralph.agents.registry import load_rows
from _ralph.errors import BadInput
from _ralph.state import prd
from _ralph.state.history import replay
from _ralph.state.records import Journal
from tests.conftest import LITTLE_GRACE, ROOT, Repo, sample
from tests.loop.test_waits import RESULT
from tests.test_files import within
from tests.whole.test_attacks import nest

MAKES = "P(f'{task}.txt').touch()\n"
ROWS = load_rows(ROOT / "templates/agents.json", {})
FREEZER = Path("/sys/fs/cgroup/freezer")


def own(task: str) -> dict[str, Any]:
    return {"checks": [f"test -f {task}.txt"]}


# What a task says, what stands beside the tasks, and the refusal; nothing if it is read.
PLANS: list[tuple[dict[str, Any], dict[str, Any], str]] = [
    ({"id": 1.0}, {}, "userStories[0].id: 1.0 is not of type"),
    ({"id": True}, {}, "userStories[0].id: True is not of type"),
    ({"dependsOn": [1.0]}, {}, "userStories[0].dependsOn[0]: 1.0 is not of type"),
    ({}, {"protect": ["tests//x"]}, ""),
    ({"status": "DONE "}, {}, ""),
]


@pytest.mark.parametrize(("task", "top", "refusal"), PLANS)
def test_an_odd_plan(repo: Repo, task: dict[str, Any], top: dict[str, Any], refusal: str) -> None:
    repo.write("prd.json", json.dumps({**top, "userStories": [{"title": "t", **task}]}))
    if refusal:
        with pytest.raises(BadInput) as error:
            prd.load(repo.path / "prd.json")
        assert refusal in str(error.value)
    else:
        found = prd.load(repo.path / "prd.json")
        assert found.tasks[0].passed == ("status" in task)
        assert found.settings.get("protect", ["tests/x"]) == ["tests/x"]


@pytest.mark.parametrize("kind", sample(["a FIFO", "a folder", "2,000 folders"], 2))
def test_what_stands_in_place_of_ralphs_own_files(repo: Repo, kind: str) -> None:
    repo.plan(own("T1"), own("T2"), setup="true")
    assert repo.run(repo.agent(MAKES), "--max-iterations", "1")[0] == 3
    (private,) = (repo.path / ".git/ralph").iterdir()
    there = [
        path for folder in (private, repo.path / ".ralph/log") for path in folder.iterdir() if path.is_file()
    ]
    more = [private / name for name in ("stop", "running.json", "fast-forward")]
    names = ("gitconfig", "lock", f"{repo.room.name}.setup")
    few = [private / name for name in names]
    assert {*few} <= {*there}
    for path in few if kind == "2,000 folders" else [*there, *more, repo.places / "plan.json"]:
        files.clear(path)
        if kind == "a FIFO":
            os.mkfifo(path)
        elif kind == "a folder":
            (path / "x").mkdir(parents=True)
        else:
            nest(path, 2000)
    try:
        code, _, printed = repo.run(repo.agent(MAKES))
        assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    finally:
        files.clear(repo.path)  # pytest could not


def test_records_are_folded_as_they_are_read(tmp_path: Path) -> None:
    learned = "- learned: " + "word " * 100
    said = {
        "v": 2,
        "event": "verdict",
        "plan": "prd.json@",
        "task": "T1",
        "iteration": 1,
        "verdict": "failed",
    }
    plan = prd.read('{"tasks": [{"title": "x"}]}', Path("prd.json"))
    line = f"<!-- ralph {json.dumps({**said, 'handoff': {'learned': learned, 'ruled out': learned}})} -->\n"
    path = tmp_path / "progress.txt"
    path.write_text(f"## 2026-01-01 00:00:00 +00:00 | head\n{learned}\n{line}" * 5000)
    tracemalloc.start()
    try:
        journal = Journal(path)
        assert journal.open() == []
        assert replay(journal.records(plan)).tasks["T1\n"].tried == 5000
        assert tracemalloc.get_traced_memory()[1] < 1e6 < path.stat().st_size / 8
    finally:
        tracemalloc.stop()


@pytest.mark.skipif(not os.access(FREEZER, os.W_OK), reason="needs root, and cgroups of version 1")
def test_a_frozen_process_is_named(repo: Repo) -> None:
    group = FREEZER / repo.mark
    group.mkdir()
    repo.plan(own("T1"), own("T2"))
    freeze = f"""
        if task == "T1":
            frozen = subprocess.Popen(["sleep", "600"])
            for name, words in (("cgroup.procs", str(frozen.pid)), ("freezer.state", "FROZEN")):
                P({str(group)!r} + "/" + name).write_text(words)
    """
    agent = repo.agent(f"{freeze}\n        P(f'{{task}}.txt').touch()")
    try:
        code, _, printed = repo.run(agent, first=f"{LITTLE_GRACE}; process._KILL_DEADLINE = 0.5")
        assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
        pid = (group / "cgroup.procs").read_text().strip()
        assert pid and f"still running after KILL: {pid}" in repo.read("progress.txt")
    finally:
        (group / "freezer.state").write_text("THAWED")
        assert repo.gone_within(10)
        group.rmdir()


def test_forkers_are_ended(repo: Repo) -> None:
    """Each process of a chain lives for some milliseconds: who looks for them must be quick."""
    chain = """
        end = time.time() + 30
        for _ in range(40):
            if os.fork() == 0:
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                while time.time() < end:
                    if os.fork():
                        os._exit(0)
                    time.sleep(0.01)
                os._exit(0)
    """
    repo.plan(own("T1"))
    assert repo.run(repo.agent(f"{chain}\n        P('T1.txt').touch()"), first=LITTLE_GRACE)[0] == 0
    assert repo.alive() == [] and "after KILL" not in repo.read("progress.txt")


@pytest.mark.parametrize(
    ("attributes", "setting"),
    [("", "core.autocrlf=true"), ("", "core.autocrlf=input"), ("* text=auto\n", "core.eol=crlf")],
)  # fmt: skip
def test_line_ends_that_git_converts(repo: Repo, attributes: str, setting: str) -> None:
    for name, content in (("dos.txt", "a\r\nb\r\n"), ("unix.txt", "a\nb\n")):
        (repo.path / name).write_bytes(content.encode())
    repo.commit("mixed")
    if attributes:
        repo.write(".gitattributes", attributes)
        repo.commit("attributes")
    if setting:
        repo.git("config", *setting.split("="))
    repo.plan(own("T1"), own("T2"))
    for _ in range(2):
        code, _, printed = repo.run(repo.agent(MAKES))
        assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
        assert "changed" not in printed and "not committed" not in printed
    assert repo.git("diff", "--name-only", "ralph/p~2", "ralph/p").split() == ["T1.txt", "T2.txt"]
    assert (repo.path / "unix.txt").read_bytes() == b"a\nb\n"


def test_folders_1900_deep_at_home(repo: Repo) -> None:
    repo.plan(own("T1"))
    for name in ("deep", ".ralph"):
        nest(repo.path / name, 1900, fifo=False)
    agent = repo.agent(MAKES)
    try:
        for words in (
            ["run", "--agent", agent],
            ["status"],
            ["doctor", "--agent", agent],
            ["report"],
            ["clean"],
        ):
            done = repo.ralph(*words)
            assert done.returncode == 0, (words, done.stderr)
    finally:
        files.clear(repo.path / "deep")
        files.clear(repo.path / ".ralph")


def test_a_zombie_is_no_loop(repo: Repo) -> None:
    repo.plan(own("T1"))
    loop = repo.start("run", "--agent", repo.agent("(OUT / 'up').touch(); time.sleep(600)"))
    repo.wait_for("../up")
    loop.kill()  # and nobody asks how it ended
    assert psutil.Process(loop.pid).status() in (psutil.STATUS_ZOMBIE, psutil.STATUS_RUNNING)
    code, _, printed = repo.run(repo.agent(MAKES, "another"))
    assert (code, repo.passed()) == (0, ["T1"]), printed
    loop.wait()


def test_doctor_waits_for_no_daemon(repo: Repo) -> None:
    repo.plan(own("T1"))
    repo.tool("claude", "echo 2.0; sleep 100 &")
    began = time.monotonic()
    assert "2.0" in repo.ralph("doctor", "-v", "--full-permissions").stdout
    assert time.monotonic() - began < 25


def test_an_attempt_cannot_steer_its_loop(repo: Repo) -> None:
    repo.plan(own("T1"))
    words = ("stop", "retry T1", "tell hello", "add x --check true", "land", "clean")
    ralph = f"cd {repo.path} && {sys.executable} -m ralph"
    agent = repo.agent(f"for words in {words}: sh(f'{ralph} {{words}} >> {{OUT}}/said 2>&1')\n{MAKES}")
    plan = repo.read("prd.json")
    assert repo.run(agent)[0] == 0
    said = repo.read("../said").splitlines()
    assert [line.endswith("refused inside an attempt") for line in said] == [True] * len(words), said
    assert repo.read("prd.json") == plan.replace("false", "true")


def test_a_copy_of_a_running_folder(repo: Repo) -> None:
    repo.plan(own("T1"))
    loop = repo.start("run", "--agent", repo.agent("(OUT / 'up').touch(); time.sleep(600)"))
    repo.wait_for("../up")
    original, repo.path = repo.path, Path(shutil.copytree(repo.path, repo.outside / "copy", symlinks=True))
    code, _, printed = repo.run(repo.agent(MAKES, "another"))
    assert (code, repo.passed(), loop.poll()) == (0, ["T1"], None), printed
    repo.path = original
    loop.terminate()
    assert (loop.wait(20), repo.passed()) == (143, [])


def test_a_file_called_as_ralphs_temporary_ones(repo: Repo) -> None:
    repo.plan(own("T1"))
    names = ("x.ralph-tmp", "prd.json.ralph-tmp", "docs/.x.ralph-tmp", ".prd.json.mine.ralph-tmp")
    for name in names:
        repo.write(name, "mine")
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 0 and [repo.read(name) for name in names] == ["mine"] * 4, printed


def test_an_agent_that_tells_its_price_late(repo: Repo) -> None:
    row = {key: value for key, value in ROWS["claude"].items() if key != "budget"}
    late = {
        **row,
        "argv": ["late"],
        "edit_needs": {},
        "events": [rule for rule in row["events"] if "meanwhile" not in rule],
    }
    repo.plan(own("T1"), own("T2"), agents={"late": late})
    repo.tool("late", f"touch $RALPH_TASK_ID.txt; echo '{RESULT}'")
    for words, said in ((), False), (("--max-usd", "5"), True):
        printed = repo.ralph("run", "--agent", "late", "--full-permissions", "--once", *words).stdout
        assert ("late reports usage only when it exits" in printed) == said, printed


def test_text_in_fragments_takes_linear_time() -> None:
    parser = StreamParser(ROWS["gemini"]["events"])
    line = json.dumps({"type": "message", "role": "assistant", "delta": True, "content": "word " * 2000})
    with within(20):
        for _ in range(6000):
            parser.line(line.encode())
    assert parser.fact("text").endswith("word word ") and len(parser.fact("text")) > 100_000


def test_a_stopped_loop(repo: Repo) -> None:
    repo.plan(own("T1"))
    loop = repo.start(
        "run", "--agent", repo.agent("(OUT / 'up').touch(); time.sleep(600)"), first=LITTLE_GRACE
    )
    repo.wait_for("../up")
    loop.send_signal(signal.SIGSTOP)
    again = repo.ralph("run", "--agent", "true")
    assert again.returncode == 75 and f"pid {loop.pid}" in again.stderr
    assert repo.ralph("status").returncode == 0
    loop.terminate()
    time.sleep(0.3)
    assert loop.poll() is None
    loop.send_signal(signal.SIGCONT)
    assert (loop.wait(20), repo.alive(), repo.verdicts()) == (143, [], ["T1 interrupted"])


@pytest.mark.parametrize(
    "script",
    ["head -c 200000 /dev/zero | tr '\\0' x", "echo another", 'same=$(cat "$1"); printf %s "$same"'],
)
def test_a_hook_cannot_lose_the_trailers(repo: Repo, script: str) -> None:
    hook = repo.program(".git/hooks/commit-msg", f'{script} > "$1"')
    assert hook.exists()
    repo.plan(own("T1"))
    assert repo.run(repo.agent(MAKES))[0] == 0
    trailer = "--format=%(trailers:key=Ralph-Iteration,valueonly)"
    assert repo.git("log", "-1", trailer, "ralph/p").split() == ["1"]
    message = repo.git("log", "-1", "--format=%B", "ralph/p")
    assert len(message) < 70_000 and message.count("Ralph-Iteration") == 1


def test_a_template_that_becomes_a_fifo(repo: Repo) -> None:
    mine = repo.write("../own.md", "{{ task.title }}")
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(f"{MAKES}os.unlink({str(mine)!r}); os.mkfifo({str(mine)!r})")
    code, _, said = repo.run(agent, "--prompt", str(mine), timeout=30)
    assert code == 2 and "expected a file" in said and repo.verdicts() == ["T1 passed"]


def test_git_that_is_late_in_the_room(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), limits={"attempts": 1})
    repo.program(".git/hooks/pre-commit", "test -f T2.txt || truncate -s 2T a.txt")
    first = "from _ralph.loop import room; room.BULK = 2.0"
    code, _, printed = repo.run(repo.agent(MAKES), first=first)
    assert (code, repo.verdicts()) == (4, ["T1 failed", "T2 passed"]), printed
    assert "git add did not end" in repo.records("verdict")[0]["failure"]["tail"]


def test_an_interrupted_baseline_is_recorded(repo: Repo) -> None:
    repo.plan(own("T1"), {"checks": [f"touch {repo.outside}/before; sleep 100"]})
    agent = repo.agent("(OUT / 'up').touch(); time.sleep(600)")
    loop = repo.start("run", "--jobs", "2", "--agent", agent, first=LITTLE_GRACE)
    repo.wait_for("../up")
    repo.wait_for("../before")
    for _ in range(2):
        loop.send_signal(signal.SIGINT)
        time.sleep(0.3)
    assert loop.wait(20) == 130
    assert sorted(repo.verdicts()) == ["T1 interrupted", "T2 interrupted"]
    assert repo.records()[-1]["stop"] == "interrupted" and repo.alive() == []
