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

from tests.conftest import Repo, cases, sample
from tests.oracle import changed, home_of
from tests.scripts import MAKES, NEVER_STUCK, named

OWN = {"title": "caf\u00e9 \u2192 tea", "checks": ["test -f T1.txt"]}
NAMESPACE = ["unshare", "--user", "--map-root-user", "--mount"]


def can_unshare() -> bool:
    try:
        tried = subprocess.run([*NAMESPACE, "true"], capture_output=True, timeout=10)
    except OSError:
        return False
    return tried.returncode == 0


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
MACHINES = """
machine                                  code  said                          line
all that can be wrong and does no harm   0     -                             trap '' INT HUP QUIT PIPE CHLD ALRM; ulimit -n 24; mkdir ../own; echo 'raise RuntimeError' > ../own/json.py; export PYTHONPATH=$PWD/../own:$PYTHONPATH; PYTHONUTF8=0 PYTHONCOERCECLOCALE=0 LC_ALL=POSIX TMPDIR=/nowhere GIT_DIR=/nowhere GIT_INDEX_FILE=/nowhere exec RALPH
an empty environment                     0     -                             exec env -i PATH=$PATH PYTHONPATH=$PYTHONPATH RALPH
a user that nobody knows                 0     -                             unset HOME; exec unshare --user --map-user=54321 RALPH
places that may only be read             2     ro/                           mkdir ../ro; chmod 555 ../ro; RALPH_PLACES=$PWD/../ro exec unshare --user --map-user=54321 RALPH
no stdin                                 0     -                             exec RALPH <&-
no stream at all, nor for a summary      0     -                             exec RALPH --json <&- >&- 2>&-
a full disk under the log                0     -                             exec RALPH -v > /dev/full 2>&1
a full disk under the summary            0     summary could not be printed  exec RALPH --json -q > /dev/full
a folder that may only be read           2     Read-only file system         exec unshare --user --map-root-user --mount sh -c "mount --bind . . && mount -o remount,bind,ro . && cd $PWD && RALPH"
no /proc                                 0     -                             exec unshare --user --map-root-user --mount sh -c "mount -t tmpfs tmpfs /proc && RALPH"
a plan's folder that may only be read    2     you may not write to          touch progress.txt; mkdir -p .ralph/log; chmod 555 .; exec unshare --user --map-user=54321 RALPH
a file where the logs go                 2     Not a directory               touch .ralph; exec RALPH
a folder that is gone                    2     is gone; cd to your project   mkdir gone; cd gone; rmdir ../gone; exec RALPH
"""


@cases(MACHINES, of=2)
def test_it_works_on_a_bare_machine_or_says_why_not(
    repo: Repo, machine: str, code: str, said: str, line: str
) -> None:
    repo.plan(OWN)
    done = shell(repo, line)
    assert done.returncode == int(code), done.stderr
    assert said in done.stderr and done.stderr.count("ralph: ") == bool(said)
    assert repo.passed() == (["T1"] if code == "0" else [])
    if code == "0":
        assert repo.commits() == [f"T1: {OWN['title']}"] and repo.has_landed("T1.txt")
        assert repo.git("branch", "--show-current") == "main\n"


# What the table calls.
SHELL = """
conflict() { git switch -qc side; echo x > a.txt; git commit -qam x; git switch -q main; echo y > a.txt; git commit -qam y; }
submodule() {
  git init -q ../sub; git -C ../sub -c user.name=x -c user.email=x commit -q --allow-empty -m x
  git -c protocol.file.allow=always submodule --quiet add ../sub sub; git commit -qm sub
}
"""


# What a person did to the repository before, the exit status, and what is then said.
# None of it is touched: home is as it was, also where the work went well.
REPOSITORIES = r"""
name                                           code  said                           prepare
a detached HEAD                                0     -                              git checkout -q --detach
a merge not committed                          0     -                              conflict; git merge -q -s ours --no-commit side
a merge in conflict                            0     -                              conflict; git merge -q side
new files in a submodule                       0     -                              submodule; touch sub/new
a submodule whose commit is not here           2     its commit is not here         submodule; git update-index --cacheinfo 160000,1111111111111111111111111111111111111111,sub; git commit -qm pulled
a linked worktree                              0     -                              git worktree add -q --detach ../tree; cp prd.json ../tree; cd ../tree
a hook that fails                              2     pre-commit refuses             echo '#!/bin/sh' > .git/hooks/pre-commit; echo exit 1 >> .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit
signatures without a key, and a staged file    0     -                              touch new; git add new; git config commit.gpgsign true; git config user.signingkey nobody
locks                                          0     -                              touch .git/index.lock .git/HEAD.lock
nobody's name                                  2     user.name                      git config --unset user.name; git config user.useConfigOnly true
no commit                                      2     no commit yet                  rm -rf .git; git init -q; git config user.name x; git config user.email x
no repository                                  2     git init                       rm -rf .git
a plan that is ignored                         0     -                              echo prd.json > .gitignore; echo progress.txt >> .gitignore; git add .gitignore; git commit -qm i
a plan in a folder                             0     -                              mkdir plans; mv prd.json plans; cd plans
the branch checked out in another worktree     2     ralph/p is checked out in      git worktree add -q -b ralph/p ../tree
"""


@cases(REPOSITORIES, of=2)
def test_it_works_in_any_repository_or_says_why_not(
    repo: Repo, name: str, code: str, said: str, prepare: str
) -> None:
    repo.plan(OWN)
    home = repo.path
    # the plan's own files, and git's notes on a worktree that has ralph's branch
    own = ("plans", ".git/worktrees/")

    def state() -> dict[str, str]:
        where, repo.path = repo.path, home
        found = home_of(repo)
        repo.path = where
        return {path: what for path, what in found.items() if not path.startswith(own)}

    printed = shell(repo, f"{SHELL}\n{{ {prepare}; }} >&2; pwd").stdout
    repo.path = Path(printed.rstrip("\n"))
    before = state()
    done = repo.ralph("run", "-q", "--agent", worker(repo))
    assert done.returncode == int(code) and said in done.stderr, done.stderr
    assert done.stderr.count("ralph: ") <= 1
    assert not changed(before, state()), done.stderr
    if code == "0":
        assert repo.commits("ralph/p", "ralph/p^") == [f"T1: {OWN['title']}"]


@pytest.mark.parametrize(
    "name", sample(["sp ace 'quo\"te $HOME \u00e9", os.fsdecode(b"caf\xe9")], 2)
)
def test_a_path_of_any_characters(tmp_path: Path, name: str) -> None:
    repo = Repo(tmp_path / name)
    repo.plan(OWN, protect=["a.txt"])
    agent = tmp_path / "agent.sh"  # what the shell need not quote
    agent.write_text("cat > /dev/null; echo x > a.txt; touch T1.txt \u00e9'\n'.txt\n")
    repo.ends("0: T1", f"sh {agent}")
    assert repo.landed("a.txt") == "a\n"
    assert repo.has_landed("\u00e9\n.txt") and not repo.alive()
    words = [sys.executable, "-m", "ralph", "report"]
    env = {**repo.env, "PYTHONIOENCODING": "utf-8:strict"}
    report = subprocess.check_output(words, cwd=repo.path, env=env)
    assert os.fsencode(repo.path) in report


def test_once_from_cron_over_a_task_that_fails(repo: Repo) -> None:
    repo.plan("false", {"dependsOn": ["T1"], **OWN}, limits={"attempts": 2})
    agent = repo.agent("P('x').touch()")
    for code in (3, 3, 4, 4):
        assert repo.ralph("run", "-q", "--once", "--agent", agent).returncode == code
    assert repo.commits() == []
    assert repo.verdicts() == ["T1 failed", "T1 failed"]
    assert len(repo.records("stop")) == 2


HEEDS = """
os.kill(os.getppid(), signal.SIGHUP)
time.sleep(0.3)
hup, int = signal.getsignal(signal.SIGHUP), signal.getsignal(signal.SIGINT)
if hup == signal.SIG_DFL and int != signal.SIG_IGN: P("T1.txt").touch()
"""


def test_a_hang_up_that_the_parent_ignores_stops_nothing_and_reaches_agents_as_ever(
    repo: Repo,
) -> None:
    repo.plan(OWN)
    agent = repo.agent(HEEDS)
    line = f"trap '' HUP INT; exec {sys.executable} -m ralph run -q --agent '{agent}'"
    assert shell(repo, line).returncode == 0
    assert repo.verdicts() == ["T1 passed"]


@pytest.mark.parametrize("days", sample(["(-1) ** next(calls)", "1"], 2))
def test_a_clock_that_jumps_changes_no_verdict(repo: Repo, days: str) -> None:
    """Once in the middle of an attempt, or back and forth at every look at it."""
    jump = f"import itertools, os, time\ncalls, real = itertools.count(), time.time\ntime.time = lambda: real() + 86400 * ({days}) * os.path.exists('../jump')"
    repo.plan(OWN, "false", limits={"attempts": 1, "hours": 1})
    works = "P('../jump').touch(); P(f'{task}.txt').touch()"
    agent = repo.agent(f"{works}; task == 'T2' and time.sleep(60)")
    verdicts = "4: T1 passed, T2 timed-out"
    repo.judges(verdicts, agent, "--agent-timeout", "1s", first=jump)


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
    script = f"cd ..; exec {' '.join(NAMESPACE)} sh -c {shlex.quote(FULL_DISK)}"
    done = shell(repo, script)
    left = "?? prd.json\n?? progress.txt\nT1.txt\na.txt\n"
    assert (done.returncode, done.stdout) == (0, left), done.stderr
    now = json.loads(repo.read("../summary.json"))
    assert (now["stop"], now["passed"]) == ("complete", 1)
    was_lost = '"passes": false' in repo.read("../then.json")
    assert repo.read("../runs") == "\n" or was_lost


# An agent that closes something, a task each.
CLOSED = """
echo x >> a.txt; chmod 0 a.txt
chmod 0 d
mkdir e; echo x > e/n; chmod 0 e
echo x >> d/f; echo n > d/new; chmod 555 d
mkdir -m 0 .ralph-handoff.md
mkdir -p c/m; echo x > c/m/x; chmod -R a-w c
echo x > n; chmod 0 .
chmod -R 0 .git
"""


def test_what_an_agent_closes_to_its_user_costs_its_attempt_alone(repo: Repo) -> None:
    """One before and one behind them work."""
    for name in ("d/f", "mine/secret"):
        repo.write(name, "x\n")
    repo.write(".gitignore", "mine\n")
    repo.commit("folder")
    checks = {"FIRST": "test -f d/FIRST"}
    script = "cat > /dev/null; case $RALPH_TASK_ID in\n"
    wanted = ["FIRST passed"]
    for number, deed in enumerate(CLOSED.strip().splitlines()):
        checks[f"T{number}"] = "false"
        script += f"T{number}) {deed} ;;\n"
        wanted.append(f"T{number} failed")
    checks["LAST"] = "test -f d/LAST"
    repo.plan(*named(checks), limits={"attempts": 1})
    (repo.path / "mine").chmod(0)
    agent = repo.program("../closes.sh", f"{script}*) touch d/$RALPH_TASK_ID ;;\nesac")
    ralph = shlex.quote(f"{NEVER_STUCK}\nimport ralph; ralph.main()")
    before = home_of(repo)
    started = f"{sys.executable} -c {ralph} run -q --agent {agent}"
    done = shell(repo, f"unshare --user --map-user=54321 {started}")
    assert done.returncode == 4, done.stderr
    assert repo.verdicts() == [*wanted, "LAST passed"], done.stderr
    assert not changed(before, home_of(repo))
    assert (repo.path / "mine").stat().st_mode & 0o777 == 0  # a person had closed it
    assert repo.git("show", "--name-only", "--format=", "ralph/p") == "d/LAST\n"


def test_root_is_not_needed_and_environment_of_attempts(repo: Repo) -> None:
    told = repo.outside / "check-env"
    repo.plan(f"test -f T1.txt && env >> {told}")
    notes = "(OUT / 'env').write_text(json.dumps({**os.environ, 'cwd': os.getcwd()}))"
    agent = repo.agent(f"{MAKES}\n{notes}")
    here = str(repo.path)
    done = repo.ralph("run", "--agent", agent, PWD=here, OLDPWD=here)
    assert done.returncode == 0
    env = json.loads(repo.read("../env"))
    assert env["PWD"] == env["cwd"] == str(repo.workspace) and "OLDPWD" not in env
    assert env["RALPH_HANDOFF"] == str(repo.workspace / ".ralph-handoff.md")
    wanted = {"RALPH_TASK_ID=T1", "RALPH_ATTEMPT=1"}
    wanted |= {f"PWD={repo.places}/{room}" for room in ("room-1", "room-2")}
    wanted.add(f"RALPH_RUN_ID={env['RALPH_RUN_ID']}")
    assert wanted <= {*told.read_text().splitlines()}
