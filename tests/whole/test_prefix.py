"""A prefix before every command: nights behind a small stand-in for a container, whose
processes outlive the command that started them, as those of podman and docker do; and
behind podman itself, where there is one."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.conftest import ROOT, Repo
from tests.scripts import RESULT, plan, speaker

MAKES = 'P(f"{task}.txt").write_text("good\\n")'
OWN = {"checks": ["test -f T1.txt"]}

# box run ID -- COMMAND: in a session of its own, with nothing of the environment but
# PATH, and a banner.
BOX = r"""
import json, os, subprocess, sys
here = os.path.dirname(os.path.abspath(__file__))
verb, own, *words = sys.argv[1:]
note = os.path.join(here, "running", own)
with open(os.path.join(here, "log"), "a") as log:
    log.write(json.dumps([verb, own, *words]) + "\n")
if verb == "end":
    if os.path.exists(note):
        try:
            os.killpg(int(open(note).read()), 9)
        except OSError:  # it has ended
            pass
        os.unlink(note)
    sys.exit(int(os.environ.get("END_FAILS", 0)))
print("pulling the image...", file=sys.stderr, flush=True)
print('{"status": "Pulling", "type": 1}', flush=True)
child = subprocess.Popen(words, env={"PATH": os.environ["PATH"]}, start_new_session=True)
with open(note, "w") as file:
    file.write(str(child.pid))
code = child.wait()
os.unlink(note)
sys.exit(code)
"""


@pytest.fixture
def box(repo: Repo) -> Path:
    """The stand-in; behind it a program called `coder` is there."""
    (repo.outside / "running").mkdir()
    path = repo.outside / "box.py"
    path.write_text(BOX)
    return path


def words(box: Path) -> dict[str, str]:
    return {
        "run": f"{sys.executable} -IS {box} run {{id}}",
        "end": f"{sys.executable} -IS {box} end {{id}}",
    }


def log(box: Path) -> list[list[str]]:
    return [json.loads(line) for line in box.with_name("log").read_text().splitlines()]


def noted(box: Path) -> list[Path]:
    return sorted(box.with_name("running").iterdir())


def running(box: Path) -> list[str]:
    return [path.name for path in noted(box)]


def test_setup_agents_hooks_and_checks_run_behind_it(repo: Repo, box: Path) -> None:
    """Its own words on stdout and stderr confuse nobody, and the agent's events are
    read through it."""
    hook = repo.program(".git/hooks/pre-commit", "test -f a.txt")
    plan(repo, OWN, wrap=words(box), setup="true", checks=[["test", "-d", "."]])
    keeps = f'P("{repo.outside}/env").write_text(json.dumps(dict(os.environ)))\n'
    agent = speaker(repo, f"{keeps}{MAKES}\nprint({RESULT!r})")
    code, summary, printed = repo.run(agent)
    assert (code, repo.verdicts()) == (0, ["T1 passed"]), printed
    assert summary["usd"] == 0.25
    ran = [" ".join(entry) for entry in log(box) if entry[0] == "run"]
    for wanted in (
        "sh -c true",
        "speaker",
        f"hook run {hook.name}",
        "test -d .",
        "sh -c test -f T1.txt",
    ):
        assert [line for line in ran if line.endswith(wanted) or wanted in line], wanted
    env = json.loads((repo.outside / "env").read_text())
    assert (
        env["RALPH_TASK_ID"] == "T1"
        and env["RALPH_PLACE"] == "work-1"
        and env["UV_LINK_MODE"] == "copy"
    )
    assert "HOME" not in env
    assert running(box) == []
    assert {entry[1] for entry in log(box) if entry[0] == "run"} == {
        entry[1] for entry in log(box) if entry[0] == "end"
    }


@pytest.mark.parametrize(
    "wrap, said",
    {
        "{image} -w {place}": "{image} is unknown; {place}, {objects}, {id} are filled in",
        "'open": "No closing quotation",
    }.items(),
)
def test_one_that_cannot_work_is_told_before_an_agent_is_paid(
    repo: Repo, wrap: str, said: str
) -> None:
    repo.plan(OWN)
    done = repo.ralph("run", "--agent", repo.agent(MAKES), "--wrap", wrap)
    assert done.returncode == 2 and said in done.stdout + done.stderr, done.stderr
    assert "Traceback" not in done.stderr
    assert not (repo.path / "progress.txt").exists() or repo.records("start") == []


def test_a_program_that_is_only_on_the_other_side_is_found_there(
    repo: Repo, box: Path
) -> None:
    there = repo.program("../there/coder", f"exec {repo.agent(MAKES)}")
    wrap = f"env PATH={there.parent}:{repo.env['PATH']}"
    repo.plan(OWN)
    code, _, printed = repo.run("coder", "--wrap", wrap)
    assert code == 0, printed


def wait_for(seen: Any, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not seen():
        assert time.monotonic() < end
        time.sleep(0.05)


def kill_all(repo: Repo, but: set[int]) -> None:
    """Kill all that a run started on this side, `but` these."""
    for number in (
        signal.SIGSTOP,
        signal.SIGKILL,
    ):  # stopped first: none has time to end what it started
        for one in repo.alive():
            if one.pid not in but:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one.pid, number)


def night_that_dies(repo: Repo, box: Path) -> None:
    """A night that is killed with all that it started on this side, while its agent
    works on the other."""
    repo.plan(OWN, wrap=words(box))
    begun = repo.outside / "begun"
    process = repo.start(
        "run",
        "--agent",
        repo.agent(f"P('{begun}').touch()\nif attempt: time.sleep(60)", "slow"),
    )
    wait_for(
        lambda: begun.exists() and [path for path in noted(box) if path.read_text()]
    )
    mine = {int(path.read_text()) for path in noted(box)}
    kill_all(repo, mine)
    process.wait(10)
    if process.stdout:
        process.stdout.close()
    assert len(running(box)) == 1


@pytest.mark.parametrize("end_fails", [False, True])
def test_what_a_kill_of_everything_left_is_ended_by_the_next_start_or_said(
    repo: Repo, box: Path, end_fails: bool
) -> None:
    night_that_dies(repo, box)
    repo.env["END_FAILS"] = "3" if end_fails else "0"
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, running(box)) == (0, []), printed
    said = "what a killed run left behind the prefix could not be ended"
    assert (said in printed) == end_fails


@pytest.mark.parametrize(("number", "times"), [(signal.SIGINT, 2), (signal.SIGTERM, 1)])
def test_a_stop_by_hand_ends_the_other_side_at_once(
    repo: Repo, box: Path, number: int, times: int
) -> None:
    repo.plan(OWN, wrap=words(box))
    pid = repo.outside / "pid"
    agent = repo.agent(
        f"P('{pid}').write_text(str(os.getpid()))\ntime.sleep(60)", "slow"
    )
    process = repo.start("run", "--agent", agent)
    wait_for(lambda: pid.exists() and pid.read_text())
    for _ in range(times):
        process.send_signal(number)
        time.sleep(0.5)
    process.communicate(timeout=20)
    assert not psutil.pid_exists(int(pid.read_text())) and running(box) == []
    own = next(
        words[1]
        for words in log(box)
        if words[0] == "run" and agent.split()[-1] in words
    )
    assert ["end", own] in log(box)


PAGE = (ROOT / "docs/isolation.md").read_text("utf-8")
DOCUMENTED = {
    "docker": json.loads(PAGE.split("```json")[1].split("```")[0])["wrap"]["run"],
    **{
        line.split(maxsplit=1)[0]: line
        for line in re.findall(
            r"--wrap '((?:devcontainer|srun).*)'$", PAGE, re.MULTILINE
        )
    },
}
# What stands for each program: it reads its own options, and runs the rest in the
# folder that they name.
STAND_INS = {
    "docker": """while :; do case "$1" in
      --name|-e) shift 2;; -w) cd "$2"; shift 2;; -v) test -e "${2%%:*}" || exit 125; shift 2;; -*|run) shift;; IMAGE) shift; break;; *) exit 125;;
    esac; done; exec "$@" """,
    "devcontainer": '[ "$1 $2" = "exec --workspace-folder" ] || exit 125; shift 3; cd / && exec "$@"',
    "srun": '[ "$1 $2 $3" = "-N1 -n1 --exact" ] || exit 125; cd "${4#--chdir=}" && shift 4 && exec "$@"',
}


@pytest.mark.parametrize("program", ["docker", "devcontainer", "srun"])
def test_the_lines_of_the_docs_are_right(repo: Repo, program: str) -> None:
    repo.tool(program, STAND_INS[program])
    repo.plan(OWN)
    code, _, printed = repo.run(repo.agent(MAKES), "--wrap", DOCUMENTED[program])
    assert (code, repo.verdicts()) == (0, ["T1 passed"]), printed


PODMAN = "podman --runtime runc"  # crun refuses the cgroups of some virtual machines
LIMITS = "--network=none --ulimit=nofile=1024:1024 --ulimit=nproc=4096:4096"
IMAGE = "ralph-test"
"""An image with git and Python, made once by `mmdebstrap --variant=apt
--include=git,python3 bookworm root.tar` and `podman import root.tar ralph-test`."""


def podman(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*PODMAN.split(), *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
    )


def no_container() -> str:
    """Why nothing can run in a container here; empty if it can."""
    if not shutil.which("podman"):
        return "podman is not on PATH"
    tried = podman("run", "--rm", *LIMITS.split(), IMAGE, "git", "--version")
    return tried.stderr.strip()[-300:] if tried.returncode else ""


@pytest.fixture
def contained(repo: Repo) -> dict[str, str]:
    """The words that run a command in a container, in which the folder `coder` is seen,
    and end it."""
    if why := no_container():
        pytest.skip(why)
    coder = repo.outside / "coder"
    coder.mkdir()
    mounts = f"-v {{place}}:{{place}} -v {{objects}}:{{objects}}:ro -v {coder}:{coder} -w {{place}}"
    return {
        "run": f"{PODMAN} run --rm -i --init --name {{id}} {LIMITS} --label of={repo.outside} {mounts} {IMAGE}",
        "end": f"{PODMAN} rm -f -i -t 0 {{id}}",
    }


def containers(repo: Repo) -> list[str]:
    return podman("ps", "-aq", "--filter", f"label=of={repo.outside}").stdout.split()


def coder(repo: Repo, script: str) -> str:
    path = repo.write(
        "../coder/coder.py", f"import sys, time, os\nsys.stdin.read()\n{script}\n"
    )
    return f"python3 {path.resolve()}"


def test_a_container_that_outlived_a_kill_of_everything_is_ended_by_the_next_start(
    repo: Repo, contained: dict[str, str]
) -> None:
    repo.plan(OWN, wrap=contained)
    begun = repo.outside / "coder/begun"
    agent = coder(repo, f"open('{begun}', 'w').close(); time.sleep(600)")
    process = repo.start("run", "--agent", agent)
    wait_for(begun.exists)
    inside = {
        one.pid
        for one in repo.alive()
        if os.readlink(f"/proc/{one.pid}/ns/pid") != os.readlink("/proc/self/ns/pid")
    }
    assert inside
    kill_all(repo, inside)
    process.wait(10)
    if process.stdout:
        process.stdout.close()
    assert len(containers(repo)) == 1
    repo.program(".git/hooks/pre-commit", "test -e /run/.containerenv")
    works = "open('T1.txt', 'w').write(open('/run/.containerenv').name)"
    code, _, printed = repo.run(coder(repo, works))
    assert (code, containers(repo)) == (0, []), printed
    assert "containerenv" in repo.landed("T1.txt", "ralph/p")
