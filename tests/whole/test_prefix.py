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
import tempfile
import time
from collections.abc import Iterator
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
    hook = repo.program(".git/hooks/pre-commit", "test -f T1.txt")
    repo.plan(OWN, wrap=words(box), setup="true", checks=[["test", "-d", "."]])
    keeps = f'P("{repo.outside}/env").write_text(json.dumps(dict(os.environ)))\n'
    code, _, printed = repo.run(repo.agent(keeps + MAKES))
    assert (code, repo.verdicts()) == (0, ["T1 passed"]), printed
    ran = [" ".join(entry) for entry in log(box) if entry[0] == "run"]
    for wanted in (
        "sh -c true",
        "agent.py",
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
    ("word", "time"),
    [("agent.py", 1), ("-f T1.txt", 1), ("-f T1.txt", 2), ("-f T1.txt", 3)],
)
def test_one_that_breaks_down_in_the_night_fails_no_task(
    repo: Repo, box: Path, word: str, time: int
) -> None:
    """From the time when such a command comes, the agent, or the check before the work,
    of the candidate or in the last look, nothing runs behind it."""
    down, seen = repo.outside / "down", repo.outside / "seen"
    dies = f"""
import os, sys
if {word!r} in " ".join(sys.argv):
    open({str(seen)!r}, "a").write("x")
if os.path.exists({str(seen)!r}) and os.path.getsize({str(seen)!r}) == {time}:
    open({str(down)!r}, "w")
if os.path.exists({str(down)!r}):
    sys.exit("cannot connect to the daemon")
"""
    box.write_text(dies + BOX)
    repo.plan(OWN, wrap=words(box))
    agent = repo.agent(f'open("{repo.outside}/paid", "a").write("x")\n{MAKES}')
    code, summary, printed = repo.run(agent, "--max-wait", "0")
    assert code == 75 and "does not answer: cannot connect to the daemon" in printed, (
        printed
    )
    assert {*repo.verdicts()} <= {"T1 limited", "T1 passed"}
    assert (summary["passed"] == 1) is (time == 3)
    down.unlink()
    seen.write_text("xxxx")
    assert repo.run(agent)[0] == 0
    assert (repo.outside / "paid").read_text() == "x"


def test_the_agents_own_events_are_read_through_it(repo: Repo, box: Path) -> None:
    script = f"{MAKES}\nprint('''{RESULT}''')"
    plan(repo, OWN, wrap=words(box))
    code, summary, printed = repo.run(speaker(repo, script), "--full-permissions")
    assert code == 0 and summary["usd"] == 0.25, printed


def test_a_banner_of_its_own_on_stdout_confuses_nobody(repo: Repo) -> None:
    repo.program(
        "../banner",
        'echo "pulling..."; echo \'{"status": "Pulling", "type": 1}\'; exec "$@"',
    )
    plan(repo, OWN, setup="true")
    script = f"{MAKES}\nprint('''{RESULT}''')"
    code, summary, printed = repo.run(
        speaker(repo, script), "--wrap", f"{repo.outside}/banner"
    )
    assert code == 0 and summary["usd"] == 0.25, printed


@pytest.mark.parametrize(
    "wrap, said",
    {
        "{image} -w {place}": "{image} is unknown; {place}, {objects}, {id} are filled in",
        "'open": "No closing quotation",
        "no-such-program": "No such file or directory",
        "sh -c 'exit 125'": "failed with exit 125",
        "sh -c 'echo no such image >&2; exit 126'": "failed with exit 126 (0.0 s): no such image",
        "sh -c 'exec \"$@\" < /dev/null' sh": "no prompt would; a container needs: -i",
        "sh -c 'cd /; exec \"$@\"' sh": "it does not see the place",
        "sh -c 'rm -rf .git/objects .git/HEAD; exec \"$@\"' sh": "git does not work there",
        "env PATH=/nowhere": "failed with exit 127",
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


def test_an_agent_that_is_not_on_the_other_side_ends_with_5(
    repo: Repo, box: Path
) -> None:
    repo.plan(OWN, wrap=words(box))
    done = repo.ralph("run", "--agent", "no-such-coder")
    assert (
        done.returncode == 5 and "does not see the agent 'no-such-coder'" in done.stderr
    ), done.stderr


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


def test_what_a_kill_of_everything_left_is_ended_by_the_next_start(
    repo: Repo, box: Path
) -> None:
    night_that_dies(repo, box)
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 0, printed
    assert running(box) == []


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


def test_what_could_not_be_ended_is_said(repo: Repo, box: Path) -> None:
    night_that_dies(repo, box)
    repo.env["END_FAILS"] = "3"
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (
        code == 0
        and "what a killed run left behind the prefix could not be ended" in printed
    )


def test_doctor_looks_at_the_other_side(repo: Repo, box: Path) -> None:
    repo.plan(OWN, wrap=words(box))
    assert repo.ralph("doctor", "--agent", repo.agent(MAKES)).returncode == 0
    done = repo.ralph(
        "doctor", "--agent", repo.agent(MAKES), "--wrap", "sh -c 'exit 126'"
    )
    assert (
        done.returncode == 2
        and "the prefix \"sh -c 'exit 126'\": failed with exit 126" in done.stdout
    ), done.stdout


def test_doctor_looks_for_a_login_on_the_other_side(repo: Repo) -> None:
    repo.tool("claude", "echo 2.1.330")
    repo.plan(OWN)
    there = repo.outside / "there"
    (there / ".claude").mkdir(parents=True)
    repo.env["ANTHROPIC_API_KEY"] = "only-here"
    words = ("doctor", "-v", "--agent", "claude", "--full-permissions", "--wrap")
    wrap = f"env -u ANTHROPIC_API_KEY HOME={there} IS_SANDBOX=1"
    assert "warning places: no login found" in repo.ralph(*words, wrap).stdout
    (there / ".claude/.credentials.json").touch()
    assert "logged in (.claude/.credentials.json)" in repo.ralph(*words, wrap).stdout
    assert (
        "ANTHROPIC_API_KEY is billed instead"
        in repo.ralph(*words, f"env HOME={there}").stdout
    )


PAGE = (ROOT / "docs/containers.md").read_text("utf-8")
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


def test_a_project_goes_from_init_to_a_task_that_passes_in_a_container(
    repo: Repo, contained: dict[str, str]
) -> None:
    repo.write(
        "test_shop.py",
        "import unittest\nclass Shop(unittest.TestCase):\n    def test(self): pass\n",
    )
    repo.commit("a project")
    assert repo.ralph("init").returncode == 0
    top = {
        key: value
        for key, value in json.loads(repo.read("prd.json")).items()
        if key != "userStories"
    }
    repo.plan(
        OWN,
        **{
            **top,
            "project": "p",
            "checks": ["python3 -m unittest -q"],
            "wrap": contained,
        },
    )
    repo.program(".git/hooks/pre-commit", "test -e /run/.containerenv")
    agent = coder(repo, "open('T1.txt', 'w').write(open('/run/.containerenv').name)")
    done = repo.ralph("doctor", "--agent", agent)
    assert done.returncode == 0, done.stdout
    code, _, printed = repo.run(agent)
    assert code == 0 and "containerenv" in repo.landed("T1.txt", "ralph/p"), printed
    assert containers(repo) == []


def test_what_is_over_time_in_a_container_is_ended(
    repo: Repo, contained: dict[str, str]
) -> None:
    repo.plan(OWN, wrap=contained)
    agent = coder(
        repo,
        "print('on it', flush=True); os.system('setsid sleep 600 &'); time.sleep(600)",
    )
    code, _, printed = repo.run(agent, "--once", "--agent-timeout", "2s")
    assert (code, repo.verdicts()) == (3, ["T1 timed-out"]), printed
    assert containers(repo) == []


@pytest.mark.parametrize("with_it", [False, True])
def test_a_container_that_outlived_a_kill_of_everything_is_ended_by_the_next_start(
    repo: Repo, contained: dict[str, str], with_it: bool
) -> None:
    """Also where its own processes were killed `with_it`, and podman does not know."""
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
    kill_all(repo, set() if with_it else inside)
    process.wait(10)
    if process.stdout:
        process.stdout.close()
    assert len(containers(repo)) == 1
    code, _, printed = repo.run(coder(repo, "open('T1.txt', 'w').close()"))
    assert code == 0 and containers(repo) == [], printed


NOBODY = 65534
# In the process that becomes ralph: all that it may import later is there before it
# gives up its rights.
AS_NOBODY = f"""
import importlib, os, pkgutil, _ralph
for module in pkgutil.walk_packages(_ralph.__path__, "_ralph."):
    importlib.import_module(module.name)
for name in ("psutil", "jsonschema", "jinja2", "filelock", "defusedxml.ElementTree", "encodings.idna"):
    importlib.import_module(name)
os.setgroups([])
os.setgid({NOBODY})
os.setuid({NOBODY})
"""


@pytest.fixture
def ordinary() -> Iterator[Repo]:
    """A repository for another user than root, beside a program `as-root`, which is to
    them what a container is: what runs behind it makes files of root."""
    if os.getuid() or not shutil.which("setpriv"):
        pytest.skip("only root can be two users, with setpriv")
    words = ["setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups"]
    if subprocess.run(
        [*words, "sh", "-c", "git --version"], capture_output=True
    ).returncode:
        pytest.skip("another user cannot run git from this PATH")
    repo = Repo(Path(tempfile.mkdtemp(dir="/var/tmp")))
    as_root = repo.outside / "as-root"
    shutil.copy(str(shutil.which("setpriv")), as_root)
    as_root.chmod(0o4755)
    yield repo
    repo.kill()
    shutil.rmtree(repo.outside)


def night_of_another_user(repo: Repo, agent: str, wrap: str) -> tuple[int, str]:
    for path in (repo.outside, *repo.outside.rglob("*")):
        if path.name != "as-root":
            os.chown(path, NOBODY, NOBODY, follow_symlinks=False)
    done = repo.ralph("run", "--agent", agent, "--wrap", wrap, first=AS_NOBODY)
    os.chown(repo.path, 0, 0)
    os.chown(repo.path / ".git", 0, 0)
    return done.returncode, done.stdout + done.stderr


def as_root(repo: Repo) -> str:
    return f"{repo.outside}/as-root --reuid=0 --regid=0 --clear-groups"


def test_what_another_user_makes_behind_it_is_read_reset_and_removed(
    ordinary: Repo,
) -> None:
    repo = ordinary
    repo.write(".gitignore", "deps/\nprd.json\nprogress.txt\n")
    repo.commit("ignore")
    repo.plan(
        OWN,
        setup="mkdir -p deps/inner && echo x > deps/inner/x",
        checks=["test -f deps/inner/x"],
    )
    agent = repo.agent(
        """
        os.umask(0o077)
        os.makedirs(f"junk-{attempt}/inner")
        P(f"junk-{attempt}/inner/file").write_text("x")
        sh("git log -1 && git add -A && git commit -qm mine").returncode == 0 or sys.exit(1)
        os.makedirs("made", exist_ok=True)
        P("made/secret.txt").write_text("good")
        if attempt == 2: P("T1.txt").write_text("good")
        """
    )
    code, printed = night_of_another_user(repo, agent, as_root(repo))
    assert (code, repo.verdicts()) == (0, ["T1 failed", "T1 passed"]), printed
    assert repo.landed("made/secret.txt") == "good"
    assert {path.lstat().st_uid for path in repo.places.rglob("*")} == {NOBODY}


def test_another_user_who_can_do_nothing_there_is_told_which_one_could(
    ordinary: Repo,
) -> None:
    ordinary.plan(OWN)
    wrap = f"{as_root(ordinary)} setpriv --reuid={NOBODY - 1} --regid={NOBODY - 1} --clear-groups"
    code, printed = night_of_another_user(ordinary, "true", wrap)
    assert code == 2 and f"--user {NOBODY}:{NOBODY}" in printed, printed
