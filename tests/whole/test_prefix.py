"""A prefix before every command: nights behind a small stand-in for a container, whose
processes outlive the command that started them, as those of podman and docker do."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

from tests.conftest import ROOT, Repo, cases
from tests.scripts import MAKES, RESULT, plan, speaker, until

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
    program = f"{sys.executable} -IS {box}"
    return {"run": f"{program} run {{id}}", "end": f"{program} end {{id}}"}


def log(box: Path) -> list[list[str]]:
    return [json.loads(line) for line in box.with_name("log").read_text().splitlines()]


def running(box: Path) -> list[str]:
    return os.listdir(box.with_name("running"))


def test_setup_agents_hooks_and_checks_run_behind_it(repo: Repo, box: Path) -> None:
    """Its own words on stdout and stderr confuse nobody, and the agent's events are
    read through it."""
    hook = repo.program(".git/hooks/pre-commit", "test -f a.txt")
    plan(repo, OWN, wrap=words(box), setup="true", checks=[["test", "-d", "."]])
    keeps = f'P("{repo.outside}/env").write_text(json.dumps(dict(os.environ)))\n'
    agent = speaker(repo, f"{keeps}{MAKES}\nprint({RESULT!r})")
    summary = repo.judges("0: T1 passed", agent).summary
    assert summary["usd"] == 0.25
    entries = log(box)
    ran = "\n".join(" ".join(command) for _, _, *command in entries)
    for wanted in ("sh -c true", "speaker", hook.name, "test -d .", "test -f T1.txt"):
        assert wanted in ran
    env = json.loads(repo.read("../env"))
    known = {"RALPH_TASK_ID": "T1", "RALPH_PLACE": "work-1", "UV_LINK_MODE": "copy"}
    assert known.items() <= env.items() and "HOME" not in env
    assert running(box) == []
    begun = {own for verb, own, *_ in entries if verb == "run"}
    assert begun == {own for verb, own, *_ in entries if verb == "end"}


@cases(r"""
wrap -> said
{image} -w {place} -> {image} is unknown; {place}, {objects}, {id}
'open -> No closing quotation
""")
def test_one_that_cannot_work_is_told_before_an_agent_is_paid(
    repo: Repo, wrap: str, said: str
) -> None:
    repo.plan(OWN)
    done = repo.ralph("run", "--agent", repo.agent(MAKES), "--wrap", wrap)
    assert done.returncode == 2 and said in done.stdout + done.stderr, done.stderr
    assert not (repo.path / "progress.txt").exists() or repo.records("start") == []


def at_work(repo: Repo, box: Path) -> tuple[subprocess.Popen[str], int]:
    """A run whose agent sleeps behind the prefix, and the process of that."""
    repo.plan(OWN, wrap=words(box))
    pid = "P(OUT, 'pid').write_text(str(os.getpid()))"
    agent = repo.agent(f"{pid}\ntime.sleep(60)", "slow")
    process = repo.start("run", "--agent", agent)
    until(lambda: repo.read("../pid"))
    return process, int(repo.read("../pid"))


def test_a_program_that_is_only_on_the_other_side_is_found_there(
    repo: Repo, box: Path
) -> None:
    there = repo.program("../there/coder", f"exec {repo.agent(MAKES)}")
    wrap = f"env PATH={there.parent}:{repo.env['PATH']}"
    repo.plan(OWN)
    code, _, printed = repo.run("coder", "--wrap", wrap)
    assert code == 0, printed


@pytest.mark.parametrize("end_fails", ["0", "3"])
def test_what_a_kill_of_everything_left_is_ended_by_the_next_start_or_said(
    repo: Repo, box: Path, end_fails: str
) -> None:
    """Killed with all that it started on this side, while its agent works on the
    other."""
    process, there = at_work(repo, box)
    here = [one for one in repo.alive() if one.pid != there]
    for number in (signal.SIGSTOP, signal.SIGKILL):  # none ends what it started
        for one in here:
            with contextlib.suppress(psutil.Error):
                one.send_signal(number)
    process.communicate(timeout=10)
    assert len(running(box)) == 1 and psutil.pid_exists(there)
    repo.env["END_FAILS"] = end_fails
    printed = repo.ends("0: T1", repo.agent(MAKES)).printed
    assert running(box) == []
    said = "what a killed run left behind the prefix could not be ended"
    assert (said in printed) == (end_fails != "0")


@cases("""
name     times
SIGINT   2
SIGTERM  1
""")
def test_a_stop_by_hand_ends_the_other_side_at_once(
    repo: Repo, box: Path, name: str, times: str
) -> None:
    process, there = at_work(repo, box)
    for _ in range(int(times)):
        process.send_signal(signal.Signals[name])
        time.sleep(0.5)
    process.communicate(timeout=20)
    assert not psutil.pid_exists(there) and running(box) == []
    assert "end" in [words[0] for words in log(box)]


def documented() -> dict[str, str]:
    """The prefixes that the docs show, by their programs."""
    plan = json.loads(PAGE.split("```json")[1].split("```")[0])
    lines = re.findall(r"--wrap '((?:devcontainer|srun).*)'$", PAGE, re.MULTILINE)
    lines.append(plan["wrap"]["run"])
    return {line.split()[0]: line for line in lines}


PAGE = (ROOT / "docs/isolation.md").read_text("utf-8")
# What stands for each program: it reads its own options, and runs the rest in the
# folder that they name.
STAND_INS = {
    "docker": """while :; do case "$1" in
      --name|-e) shift 2;; -w) cd "$2"; shift 2;; -v) test -e "${2%%:*}" || exit 125; shift 2;; -*|run) shift;; IMAGE) shift; break;; *) exit 125;;
    esac; done; exec "$@" """,
    "devcontainer": '[ "$1 $2" = "exec --workspace-folder" ] || exit 125; shift 3; cd / && exec "$@"',
    "srun": '[ "$1 $2 $3" = "-N1 -n1 --exact" ] || exit 125; cd "${4#--chdir=}" && shift 4 && exec "$@"',
}


@pytest.mark.parametrize("program", STAND_INS)
def test_the_lines_of_the_docs_are_right(repo: Repo, program: str) -> None:
    repo.tool(program, STAND_INS[program])
    repo.plan(OWN)
    repo.judges("0: T1 passed", repo.agent(MAKES), "--wrap", documented()[program])
