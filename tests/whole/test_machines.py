"""Cron and bad machines: ralph works, or ends with the right exit status and one clear
message."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Repo, sample
from tests.oracle import changed, home_of
from tests.scripts import MAKES, NEVER_STUCK, own

OWN = {"title": "caf\u00e9 \u2192 tea", "checks": ["test -f T1.txt"]}
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_unshare() -> bool:
    try:
        return (
            subprocess.run(
                [*NAMESPACE, "true"], capture_output=True, timeout=10
            ).returncode
            == 0
        )
    except OSError:
        return False


def worker(repo: Repo) -> str:
    """An agent that works, without Python."""
    script = f"cat > /dev/null; echo >> {repo.outside}/runs; touch $RALPH_TASK_ID.txt"
    return str(repo.program(str(repo.outside / "agent.sh"), script))


def shell(
    repo: Repo, line: str, timeout: float = 60
) -> subprocess.CompletedProcess[str]:
    """Run a line of shell in the repository; RALPH stands for `ralph run` with an agent
    that works."""
    if "unshare" in line and not can_unshare():
        pytest.skip("needs user namespaces")
    if "mount -" in line and not shutil.which("mount"):
        pytest.skip("not installed here: mount")
    ralph = f"{sys.executable} -m ralph run --agent {worker(repo)}"
    done = subprocess.run(
        ["sh", "-c", re.sub(r"\bRALPH\b", lambda _: ralph, line)],
        cwd=repo.path, env=repo.env, capture_output=True, text=True, timeout=timeout,
    )  # fmt: skip
    assert "Traceback" not in done.stderr, done.stderr
    return done


# How it is started, its exit status, and what it then says in its only message.
MACHINES = {
    "all that can be wrong and does no harm":
        ("trap '' INT HUP QUIT PIPE CHLD ALRM; ulimit -n 24; mkdir ../own; echo 'raise RuntimeError' > ../own/json.py; export PYTHONPATH=$PWD/../own:$PYTHONPATH; "
         "PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=POSIX TMPDIR=/nowhere GIT_DIR=/nowhere GIT_INDEX_FILE=/nowhere exec RALPH", 0, ""),
    "an empty environment": ("exec env -i PATH=$PATH PYTHONPATH=$PYTHONPATH RALPH", 0, ""),
    "a user that nobody knows": ("unset HOME; exec unshare --user --map-user=54321 RALPH", 0, ""),
    "places that may only be read": ("mkdir ../ro; chmod 555 ../ro; RALPH_PLACES=$PWD/../ro exec unshare --user --map-user=54321 RALPH", 2, "ro/"),
    "no stdin": ("exec RALPH <&-", 0, ""),
    "no stream at all, nor for a summary": ("exec RALPH --json <&- >&- 2>&-", 0, ""),
    "a full disk under the log": ("exec RALPH -v > /dev/full 2>&1", 0, ""),
    "a full disk under the summary": ("exec RALPH --json -q > /dev/full", 0, "summary could not be printed"),
    "a folder that may only be read": ("exec unshare --user --map-root-user --mount sh -c \"mount --bind . . && mount -o remount,bind,ro . && cd $PWD && RALPH\"", 2, "Read-only file system"),
    "no /proc": ("exec unshare --user --map-root-user --mount sh -c \"mount -t tmpfs tmpfs /proc && RALPH\"", 0, ""),
    "a folder that is gone": ("mkdir gone; cd gone; rmdir ../gone; exec RALPH", 2, "is gone; cd to your project"),
}  # fmt: skip


@pytest.mark.parametrize("machine", sample(MACHINES, 2))
def test_it_works_on_a_bare_machine_or_says_why_not(repo: Repo, machine: str) -> None:
    line, code, said = MACHINES[machine]
    repo.plan(OWN)
    done = shell(repo, line)
    assert done.returncode == code, done.stderr
    assert said in done.stderr and done.stderr.count("ralph: ") == bool(said)
    assert repo.passed() == (["T1"] if code == 0 else [])
    if code == 0:
        assert repo.commits() == [f"T1: {OWN['title']}"] and repo.has_landed("T1.txt")
        assert repo.git("branch", "--show-current") == "main\n"


CONFLICT = "git switch -qc side; echo x > a.txt; git commit -qam x; git switch -q main; echo y > a.txt; git commit -qam y; "
SUBMODULE = "git init -q ../sub; git -C ../sub -c user.name=x -c user.email=x commit -q --allow-empty -m x; git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub"
HOOK = (
    "printf '#!/bin/sh\\n{}\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit"
)

# What a person did to the repository before, the exit status, and what is then said.
# None of it is touched: home is as it was, also where the work went well.
REPOSITORIES = {
    "a detached HEAD": ("git checkout -q --detach", 0, ""),
    "a merge not committed": (f"{CONFLICT} git merge -q -s ours --no-commit side", 0, ""),
    "a merge in conflict": (f"{CONFLICT} git merge -q side", 0, ""),
    "new files in a submodule": (f"{SUBMODULE}; touch sub/new", 0, ""),
    "a linked worktree": ("git worktree add -q --detach ../tree; cp prd.json ../tree; cd ../tree", 0, ""),
    "a hook that fails": (HOOK.format("exit 1"), 2, "pre-commit refuses"),
    "signatures without a key, and a staged file": ("touch new; git add new; git config commit.gpgsign true; git config user.signingkey nobody", 0, ""),
    "locks": ("touch .git/index.lock .git/HEAD.lock", 0, ""),
    "nobody's name": ("git config --unset user.name; git config user.useConfigOnly true", 2, "user.name"),
    "no commit": ("rm -rf .git; git init -q; git config user.name x; git config user.email x", 2, "no commit yet"),
    "no repository": ("rm -rf .git", 2, "git init"),
    "a plan that is ignored": ("printf 'prd.json\\nprogress.txt\\n' > .gitignore; git add .gitignore; git commit -qm i", 0, ""),
    "a plan in a folder": ("mkdir plans; mv prd.json plans; cd plans", 0, ""),
    "the branch checked out in another worktree": ("git worktree add -q -b ralph/p ../tree", 2, "ralph/p is checked out in"),
}  # fmt: skip


@pytest.mark.parametrize("name", sample(REPOSITORIES, 2))
def test_it_works_in_any_repository_or_says_why_not(repo: Repo, name: str) -> None:
    prepare, code, said = REPOSITORIES[name]
    repo.plan(OWN)
    home = repo.path
    repo.path = Path(shell(repo, f"{{ {prepare}; }} >&2; pwd").stdout.rstrip("\n"))

    def state() -> dict[str, str]:
        where, repo.path = repo.path, home
        found, repo.path = home_of(repo), where
        # The plan's own files, and git's notes on another working tree that has ralph's
        # branch.
        return {
            name: what
            for name, what in found.items()
            if not name.startswith(("plans", ".git/worktrees/"))
        }

    before = state()
    done = repo.ralph("run", "-q", "--agent", worker(repo))
    assert (
        done.returncode == code
        and said in done.stderr
        and done.stderr.count("ralph: ") <= 1
    ), done.stderr
    assert not changed(before, state()), done.stderr
    if code == 0:
        assert repo.commits("ralph/p", "ralph/p^") == [f"T1: {OWN['title']}"]


@pytest.mark.parametrize(
    "name", sample(["sp ace 'quo\"te $HOME \u00e9", os.fsdecode(b"caf\xe9")], 2)
)
def test_a_path_of_any_characters(tmp_path: Path, name: str) -> None:
    repo = Repo(tmp_path / name)
    repo.plan(OWN, protect=["a.txt"])
    line = "P('a.txt').write_text('x'); P(f'{task}.txt').touch(); P('\u00e9 \\n.txt').touch()"
    agent = repo.outside.parent / "agent.py"  # what the shell need not quote
    agent.write_text(Path(repo.agent(line).split(" ", 2)[2]).read_text())
    code, _, printed = repo.run(f"{sys.executable} {agent}")
    assert (code, repo.passed(), repo.landed("a.txt")) == (0, ["T1"], "a\n"), printed
    assert repo.has_landed("\u00e9 \n.txt")
    assert not repo.alive()
    line = f"PYTHONIOENCODING=utf-8:strict exec {sys.executable} -m ralph report"
    done = subprocess.run(
        ["sh", "-c", line], cwd=repo.path, env=repo.env, capture_output=True
    )
    assert done.returncode == 0
    assert os.fsencode(repo.path) in done.stdout


def test_once_from_cron_over_a_task_that_fails(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, {"dependsOn": ["T1"], "checks": ["true"]})
    agent = repo.agent("P('x').write_text(str(attempt))")
    codes = []
    for _ in range(5):
        codes.append(repo.ralph("run", "-q", "--once", "--agent", agent).returncode)
    assert codes == [3, 3, 3, 4, 4]
    assert repo.verdicts() == ["T1 failed"] * 3
    assert len(repo.records("stop")) == 3
    assert repo.commits() == []
    assert len(repo.git("for-each-ref", "refs/ralph/parked").splitlines()) == 2


def test_a_hang_up_that_the_parent_ignores_stops_nothing_and_reaches_agents_as_ever(
    repo: Repo,
) -> None:
    repo.plan(OWN)
    agent = repo.agent(
        """
        os.kill(os.getppid(), signal.SIGHUP)
        usual = signal.getsignal(signal.SIGHUP) == signal.SIG_DFL, signal.getsignal(signal.SIGINT) != signal.SIG_IGN
        time.sleep(0.3)
        if all(usual): P("T1.txt").touch()
        """
    )
    line = f"trap '' HUP INT; exec {sys.executable} -m ralph run -q --agent '{agent}'"
    assert shell(repo, line).returncode == 0
    assert repo.verdicts() == ["T1 passed"]


@pytest.mark.parametrize("days", sample(["(-1) ** next(calls)", "1"], 2))
def test_a_clock_that_jumps_changes_no_verdict(repo: Repo, days: str) -> None:
    """Once in the middle of an attempt, or back and forth at every look at it."""
    jump = f"import itertools, os, time\ncalls, real = itertools.count(), time.time\ntime.time = lambda: real() + 86400 * ({days}) * os.path.exists('../jump')"
    repo.plan(OWN, {"checks": ["false"]}, limits={"attempts": 1, "hours": 1})
    agent = repo.agent(
        "P('../jump').touch(); P(f'{task}.txt').touch(); task == 'T2' and time.sleep(60)"
    )
    done = repo.ralph(
        "run", "-q", "--agent", agent, "--agent-timeout", "1s", first=jump
    )
    assert (done.returncode, repo.verdicts()) == (4, ["T1 passed", "T2 timed-out"]), (
        done.stderr
    )


# The disk has this many 4 kB pages left when ralph starts; a whole run writes about
# PAGES_OF_A_RUN.
PAGES_OF_A_RUN = 120
PAGES = sample([60, 0, *range(6, PAGES_OF_A_RUN, 6)], 30)
FULL_DISK = """
mkdir small && mount -t tmpfs -o size=64m tmpfs small && cp -r repo small && cd small/repo || exit 9
export XDG_STATE_HOME=$PWD/../state
used=$(du -sk .. | cut -f 1)
mount -o remount,size=$((used + 4 * $PAGES))k .. || exit 9
RALPH -q; first=$?
cp prd.json ../../then.json
mount -o remount,size=64m .. && RALPH -q --json > ../../summary.json
git status --porcelain; git ls-tree --name-only ralph/p
[ $first = 75 ] || [ $first = 0 ]
"""


@pytest.mark.parametrize("pages", PAGES)
def test_a_disk_that_fills_up_at_any_write_costs_a_second_start_and_nothing_else(
    repo: Repo, pages: int
) -> None:
    repo.plan(OWN)
    repo.env["PAGES"] = str(pages)
    done = shell(
        repo, f"cd ..; exec {' '.join(NAMESPACE)} sh -c {shlex.quote(FULL_DISK)}"
    )
    assert (done.returncode, done.stdout) == (
        0,
        "?? prd.json\n?? progress.txt\nT1.txt\na.txt\n",
    ), done.stderr
    then, now = (
        json.loads((repo.outside / name).read_text())
        for name in ("then.json", "summary.json")
    )
    assert (now["stop"], now["passed"]) == ("complete", 1)
    runs = (repo.outside / "runs").read_text().count("\n")
    assert runs == 1 or not then["userStories"][0]["passes"]


CLOSED = {
    "a file": "echo x >> a.txt; chmod 0 a.txt",
    "a folder": "chmod 0 d",
    "a folder with a new file": "mkdir e; echo x > e/n; chmod 0 e",
    "a folder whose files cannot go": "echo x >> d/f; echo n > d/new; chmod 555 d",
    "the place of the handoff": "mkdir -m 0 .ralph-handoff.md",
    "a cache": "mkdir -p c/m; echo x > c/m/x; chmod -R a-w c",
    "the whole workspace": "echo x > n; chmod 0 .",
    "its .git": "chmod -R 0 .git",
}


def test_what_an_agent_closes_to_its_user_costs_its_attempt_alone(repo: Repo) -> None:
    """A task each; one before and one behind them work."""
    repo.write("d/f", "f\n")
    repo.write("mine/secret", "s\n")
    repo.write(".gitignore", "mine\n")
    repo.commit("folder")
    tasks = [f"T{number}" for number in range(1, len(CLOSED) + 1)]
    first, last = (
        {"id": task, "checks": [f"test -f {task}.txt"]} for task in ("FIRST", "LAST")
    )
    closed = [{"id": task, "checks": ["false"]} for task in tasks]
    repo.plan(first, *closed, last, limits={"attempts": 1})
    (repo.path / "mine").chmod(0)
    closes = "\n".join(
        f"{task}) {deed} ;;" for task, deed in zip(tasks, CLOSED.values(), strict=True)
    )
    script = f"cat > /dev/null; case $RALPH_TASK_ID in\n{closes}\n*) test -f d/f && touch $RALPH_TASK_ID.txt ;;\nesac"
    agent = repo.program("../closes.sh", script)
    ralph = f"{NEVER_STUCK}\nimport ralph; ralph.main()"
    before = home_of(repo)
    done = shell(
        repo,
        f"unshare --user --map-user=54321 {sys.executable} -c {shlex.quote(ralph)} run -q --agent {agent}",
    )
    failed = [f"{task} failed" for task in tasks]
    assert (done.returncode, repo.verdicts()) == (
        4,
        ["FIRST passed", *failed, "LAST passed"],
    ), done.stderr
    assert not changed(before, home_of(repo))
    assert (repo.path / "mine").stat().st_mode & 0o777 == 0  # a person had closed it
    assert repo.git("show", "--name-only", "--format=", "ralph/p").split() == [
        "LAST.txt"
    ]


def test_output_that_is_not_text_and_a_closed_pipe_do_no_harm(repo: Repo) -> None:
    repo.plan({"title": "caf\u00e9 \u001b[31mred", **own("T1")})
    agent = repo.agent(
        MAKES
        + "\nsys.stdout.buffer.write(b'\\xff\\xfe\\x1b[2J' * 10000); sys.stderr.write('x' * 100000)"
    )
    command = f"{sys.executable} -m ralph run --agent '{agent}' -v | head -c 10"
    subprocess.run(
        ["/bin/sh", "-c", command], cwd=repo.path, env=repo.env, timeout=60, check=True
    )
    assert repo.passed() == ["T1"]
    done = repo.ralph("status")
    assert "\x1b" not in done.stdout


def test_a_reader_that_stopped_reading_does_not_stop_the_loop(repo: Repo) -> None:
    repo.plan(own("T1"))
    agent = repo.agent(
        "print('x' * 100 + '\\n', flush=True)\nfor _ in range(3000): print('y' * 100)\n"
        + MAKES
    )
    process = repo.start("run", "-v", "--agent", agent)  # nobody reads its output
    assert process.wait(40) == 0
    assert repo.passed() == ["T1"]


def test_root_is_not_needed_and_environment_of_attempts(repo: Repo) -> None:
    repo.plan({"checks": [f"test -f T1.txt && env >> {repo.outside}/check-env"]})
    agent = repo.agent(
        MAKES
        + "\n(OUT / 'env').write_text(json.dumps({**os.environ, 'cwd': os.getcwd()}))"
    )
    assert (
        repo.ralph(
            "run", "--agent", agent, PWD=str(repo.path), OLDPWD=str(repo.path)
        ).returncode
        == 0
    )
    env = json.loads(repo.read("../env"))
    assert (
        env["RALPH_TASK_ID"] == "T1"
        and env["GIT_TERMINAL_PROMPT"] == "0"
        and env["RALPH_RUN_ID"]
    )
    assert env["PWD"] == env["cwd"] == str(repo.workspace) and "OLDPWD" not in env
    assert env["RALPH_HANDOFF"] == str(repo.workspace / ".ralph-handoff.md")
    told = repo.read("../check-env").splitlines()
    for where in (repo.places / "room-1", repo.places / "room-2"):
        assert {f"RALPH_RUN_ID={env['RALPH_RUN_ID']}", f"PWD={where}"} <= set(told)
    assert {"RALPH_TASK_ID=T1", "RALPH_ATTEMPT=1"} <= set(told)
    assert os.environ.get("RALPH_RUN_ID") is None
