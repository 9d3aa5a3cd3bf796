"""Workers elsewhere: jobs behind any pipe, with no folder shared."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from _ralph import __version__
from _ralph.errors import AgentUnavailable, NeedsPerson, TryLater
from _ralph.loop import launch
from _ralph.loop.jobs import Worked
from _ralph.loop.run import Run
from _ralph.loop.wire import PROTOCOL, Broken, Wire
from _ralph.loop.worker import WorkerDied
from _ralph.process.process import Control
from tests.conftest import ROOT, Repo, elsewhere, sample
from tests.git.test_branch import work_on
from tests.oracle import BRANCH, fresh_clone_is_green, nothing_runs_within, still_running
from tests.whole.test_real_agents import need_namespaces

WORKS = "P(f'{task}.txt').write_text('good')"
HELLO = json.dumps({"event": "hello", "ralph": __version__, "protocol": PROTOCOL})


def copy_of(repo: Repo, worker: int = 1) -> str:
    """The folder in which a worker elsewhere keeps what it has of this repository."""
    (found,) = (repo.outside / "elsewhere/.local/state/ralph/worker").glob(f"*-{worker}")
    return str(found)


def tasks(count: int) -> list[dict[str, object]]:
    return [{"checks": [f"grep -q good T{n}.txt"]} for n in range(1, count + 1)]


def test_tasks_are_worked_elsewhere_several_at_once_and_land_here(repo: Repo) -> None:
    repo.plan(*tasks(2), launch=elsewhere(repo))
    code, summary, printed = repo.run(repo.agent(f"time.sleep(0.5); {WORKS}"), "--jobs", "2")
    assert (code, summary["passed"]) == (0, 2), printed
    assert not repo.workspace.exists() and (repo.path / ".ralph/0001-T1.prompt.md").exists()
    assert fresh_clone_is_green(repo, BRANCH, ["grep -q good T1.txt", "grep -q good T2.txt"])
    assert copy_of(repo, 1) != copy_of(repo, 2)


def test_setup_carried_files_and_a_failed_attempt_go_along(repo: Repo) -> None:
    repo.write(".gitignore", ".env\nmade\n")
    repo.write(".worktreeinclude", ".env\n")
    repo.write("AGENTS.md", "Be brief.\n")
    repo.commit("ignore")
    repo.git("tag", "v1")
    (repo.path / ".env").symlink_to(repo.write("../shared.env", "KEY=1\n"))
    repo.plan(
        {"checks": ["grep -q 2 tries && test -f made"], "launch": elsewhere(repo)},
        setup="test -f .env && touch made",
    )
    agent = repo.agent(
        "assert P('.env').read_text() == 'KEY=1\\n' and P('made').exists()\n"
        "assert 'Be brief.' in prompt and sh('git describe --tags --exact-match').returncode in (0, 128)\n"
        "assert '\"T1\"' in P('prd.json').read_text() and 'test -d .git' in prompt\n"
        "before = P('tries').read_text() if P('tries').exists() else '0'\n"
        "P('tries').write_text(str(int(before) + 1))\nsaid('learned', 'it goes')"
    )
    code, _, printed = repo.run(agent, "--check", "test -d .git")
    assert code == 0, printed
    assert repo.verdicts() == ["T1 failed", "T1 passed"]
    assert repo.records("verdict")[-1]["handoff"] == {"learned": "it goes"}


def test_what_is_sent_for_a_second_attempt_is_little(repo: Repo) -> None:
    repo.path.joinpath("big").write_bytes(os.urandom(3_000_000))
    repo.commit("big")
    repo.plan(*tasks(2))
    counts = repo.outside / "sent"
    prefix = elsewhere(repo, f"tee -a {counts} |")
    assert (
        repo.run(
            repo.agent(f"(OUT / 'sizes').open('a').write(f'{{(OUT / \"sent\").stat().st_size}} '); {WORKS}"),
            "--launch",
            prefix,
        )[0]
        == 0
    )
    first, second = map(int, (repo.outside / "sizes").read_text().split())
    assert first > 3_000_000 and second - first < 100_000


def test_checks_run_elsewhere_and_nothing_here(repo: Repo) -> None:
    here = repo.outside / "elsewhere"
    repo.plan(*tasks(1), checks=[f'test "$HOME" = {here}'], setup=f'test "$HOME" = {here} && touch made')
    prefix = elsewhere(repo)
    code, summary, printed = repo.run(
        repo.agent(WORKS), "--launch", prefix, "--launch-checks", prefix, timeout=120
    )
    assert (code, summary["passed"]) == (0, 1), printed
    assert not repo.room.exists() and not repo.workspace.exists()
    assert not any(record.get("weak") for record in repo.records("verdict"))


@pytest.mark.parametrize("folder", ["hooks", ".git/hooks"])
def test_commit_hooks_go_along(repo: Repo, folder: str) -> None:
    if folder == "hooks":  # the candidate's own
        repo.git("config", "core.hooksPath", folder)
    repo.program(f"{folder}/pre-commit", "test ! -f T1.txt || echo formatted >> T1.txt")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "hooks", "--allow-empty")
    repo.plan(*tasks(1))
    code, _, printed = repo.run(repo.agent(WORKS), "--launch-checks", elsewhere(repo), timeout=120)
    assert code == 0 and repo.landed("T1.txt") == "goodformatted\n", printed
    pinned = repo.git("for-each-ref", "--format=%(objectname)", "refs/ralph/candidate")
    assert pinned == repo.git("rev-parse", "ralph/p")  # not only the commit before the hooks


def test_protected_files_and_state_stay_what_they_were(repo: Repo) -> None:
    repo.write("guarded.txt", "real\n")
    repo.commit("guarded")
    repo.plan({"checks": ["grep -q real guarded.txt"]}, protect=["guarded.txt"])
    agent = repo.agent(
        "P('guarded.txt').write_text('gutted'); P('prd.json').write_text('{}'); P('x').touch()"
    )
    assert repo.run(agent, "--launch", elsewhere(repo))[0] == 0
    assert repo.git("diff", "--name-only", "main", BRANCH) == "x\n"
    restored = repo.records("verdict")[0]["restored"]
    assert any("guarded.txt" in line for line in restored) and any("prd.json" in line for line in restored)


# ---------------------------------------------------------------- what goes wrong


@pytest.mark.parametrize(
    ("wrap", "said"),
    sample([
        (f"echo '{HELLO}'; echo '[1]'; exec sleep 600", "is not a message"),
        (f"echo '{HELLO}'; cat > /dev/null", "no usable answer"),
        (f"echo '{HELLO}'; read asked; echo '{{\"event\": \"has\", \"commits\": 7}}'; sleep 600", "no usable answer"),
        (f"echo '{HELLO}'; yes | tr -d '\\n' | head -c 40000000; sleep 600", "a line without an end"),
    ], 2),
)  # fmt: skip
def test_a_prefix_that_misbehaves_costs_that_attempt_and_not_the_night(
    repo: Repo, wrap: str, said: str
) -> None:
    """It does so once."""
    greeted, seen = repo.outside / "greeted", repo.outside / "seen"
    once = (
        f"if ! test -e {greeted}; then touch {greeted}; elif ! test -e {seen}; then touch {seen}; {wrap}; fi"
    )
    repo.plan({"checks": ["test -f T1.txt"]}, launch=elsewhere(repo, once))
    first = "from _ralph.loop import launch\nlaunch._HELLO = 2.0"
    done = repo.ralph("run", "--agent", repo.agent(WORKS), first=first, timeout=120)
    assert done.returncode == 0, done.stdout
    assert repo.verdicts() == ["T1 interrupted", "T1 passed"]
    assert said in repo.records("verdict")[0]["reason"]
    assert "Traceback" not in done.stdout + done.stderr and nothing_runs_within(repo, 1), still_running(repo)


@pytest.mark.parametrize(
    ("wrap", "said", "checks"),
    sample([
        ("exit 3", "it ended", False),
        ("exit 3", "it ended", True),
        ("echo no route to host >&2; exit 255", "no route to host", False),
        ("echo garbage; exec sleep 600", "did not answer", False),  # a banner, and then nothing
        ("yes 0123456789 | head -c 200000; exit 0", "is not a message", False),
    ], 2),
)  # fmt: skip
def test_where_no_worker_answers_it_is_tried_again_and_then_later(
    repo: Repo, wrap: str, said: str, checks: bool
) -> None:
    repo.plan(*tasks(1))
    prefix, down = elsewhere(repo, f"test -e {repo.outside}/up || {{ {wrap}; }}"), repo.outside / "up"
    words = (
        "run",
        "--agent",
        repo.agent(WORKS),
        "--max-wait",
        "1s",
        "--launch-checks" if checks else "--launch",
        prefix,
    )
    first = (
        "from _ralph.loop import launch\nlaunch._HELLO = launch._GREETING = 0.7; launch._PAUSES = (0.1,)\n"
        "from _ralph.state import limits\nlimits.FRUITLESS_WAITS = 1"
    )
    done = repo.ralph(*words, first=first, timeout=120)
    assert done.returncode == 75, done.stdout
    assert said in done.stdout + done.stderr and "trying again in 0.1 s" in done.stdout
    assert repo.verdicts() == ([] if checks else ["T1 limited"] * 2) and nothing_runs_within(repo, 1)
    down.touch()
    assert wrap != "exit 3" or repo.ralph(*words, timeout=120).returncode == 0


def test_a_banner_and_a_swallowed_exit_status_are_no_trouble(repo: Repo) -> None:
    repo.plan(*tasks(1))
    prefix = elsewhere(repo, "echo 'Welcome to node7'; echo; echo '{\"not\": \"ours\"}'")
    code, _, printed = repo.run(repo.agent(WORKS), "--launch", f"sh -c '\"$@\"; exit 0' - {prefix}")
    assert code == 0, printed


@pytest.mark.parametrize(
    ("prefix", "exit", "said"),
    [
        ("no-such-program -x", 2, "`no-such-program -x` cannot be started: No such file"),
        ("ssh 'node7", 2, "`ssh 'node7` cannot be started: No closing quotation"),
        ("sh -c 'echo {}' -".format(json.dumps(json.dumps({"event": "hello", "ralph": "9.9", "protocol": 9})).replace("'", "")), 2, "is ralph 9.9"),
    ],
)  # fmt: skip
def test_one_clear_line(repo: Repo, prefix: str, exit: int, said: str) -> None:
    repo.plan(*tasks(1))
    code, _, printed = repo.run(repo.agent(WORKS), "--launch", prefix)
    assert code == exit and said in printed and "Traceback" not in printed, printed


def hanging_elsewhere(repo: Repo) -> tuple[str, str]:
    """An agent that leaves a daemon and hangs, and a prefix to it."""
    agent = repo.agent(
        "import subprocess\n"
        "subprocess.Popen(['sleep', '601'], start_new_session=True, env={})\n"
        "(OUT / 'hanging').touch(); time.sleep(600)"
    )
    return agent, elsewhere(repo)


def test_the_end_of_stdin_ends_all_that_the_worker_started(repo: Repo) -> None:
    agent, prefix = hanging_elsewhere(repo)
    repo.plan(*tasks(1))
    process = repo.start("run", "--no-awake", "--agent", agent, "--launch", prefix)
    repo.wait_for("../hanging")
    process.kill()  # and with it its own worker, which closes the pipe
    began = time.monotonic()
    while any("sleep" in line for line in still_running(repo)) and time.monotonic() - began < 10:
        time.sleep(0.05)
    assert time.monotonic() - began < 4, still_running(repo)
    assert nothing_runs_within(repo, 2), still_running(repo)


def damages_once(repo: Repo, deed: str) -> str:
    """An agent that works, but first, in its first attempt, does a deed to the `.git` of its machine's `copy`
    of the repository."""
    copy = 'once.parent.glob("elsewhere/.local/state/ralph/worker/*/*/.git")'
    once = f"once = P({str(repo.outside)!r}, 'once')\nif not once.exists():\n    once.touch()"
    return repo.agent(f"{once}\n    (copy,) = {copy}{deed}\n{WORKS}")


def test_a_worker_elsewhere_that_is_killed_costs_its_attempt(repo: Repo) -> None:
    """Also where it leaves the locks of its git calls, as a node does that loses its power."""
    repo.plan(*tasks(1))
    agent = damages_once(
        repo,
        """
    for name in ("HEAD", "packed-refs", "refs/heads/ralph/p", "refs/ralph/answer"):
        (copy / f"{name}.lock").touch()
    os.kill(os.getppid(), 9)
    time.sleep(600)""",
    )
    code, _, printed = repo.run(agent, "--launch", elsewhere(repo))
    assert code == 0, printed
    assert repo.verdicts() == ["T1 interrupted", "T1 passed"]
    assert nothing_runs_within(repo, 1), still_running(repo)


def test_a_copy_that_a_power_cut_broke_is_made_anew(repo: Repo) -> None:
    repo.plan(*tasks(1))
    agent = damages_once(
        repo,
        """
    for path in [path for path in copy.glob("objects/**/*") if path.is_file()]:
        path.chmod(0o600)
        path.write_bytes(bytes(path.stat().st_size))""",
    )
    code, _, printed = repo.run(agent, "--launch", elsewhere(repo))
    assert code == 0, printed
    assert repo.verdicts() == ["T1 interrupted", "T1 passed"]


def test_term_to_the_loop_reaches_the_worker_elsewhere(repo: Repo) -> None:
    agent, prefix = hanging_elsewhere(repo)
    repo.plan(*tasks(1))
    process = repo.start("run", "--no-awake", "--agent", agent, "--launch", prefix)
    repo.wait_for("../hanging")
    process.send_signal(signal.SIGTERM)
    assert process.wait(15) == 143
    assert nothing_runs_within(repo, 1), still_running(repo)
    assert repo.verdicts() == ["T1 interrupted"]


def test_the_time_of_the_run_ends_an_agent_elsewhere(repo: Repo) -> None:
    repo.plan(*tasks(1))
    agent = repo.agent(f"time.sleep(600)\n{WORKS}")
    began = time.monotonic()
    code, summary, _ = repo.run(agent, "--max-hours", "6s", "--launch", elsewhere(repo))
    assert (code, summary["stop"]) == (3, "limit") and time.monotonic() - began < 30
    (ended,) = repo.records("verdict")
    assert (ended["verdict"], ended["reason"]) == ("interrupted", "the run's time was up")


# ---------------------------------------------------------------- what carries the bytes


@pytest.fixture
def node(repo: Repo) -> Iterator[str]:
    """The prefix to an sshd on loopback, whose user has another HOME and no path that leads here."""
    if not (sshd := shutil.which("sshd", path="/usr/sbin:/usr/bin")) or not shutil.which("ssh"):
        pytest.skip("ssh or sshd is not installed")
    folder = repo.outside / "ssh"
    folder.mkdir(mode=0o700)
    for name in ("host", "user"):
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / name], check=True)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    home = elsewhere(repo)
    lines = [
        f"Port {port}", "ListenAddress 127.0.0.1", f"HostKey {folder}/host", f"AuthorizedKeysFile {folder}/user.pub",
        "StrictModes no", "UsePAM no", f"PidFile {folder}/pid", f"ForceCommand exec {home} ralph worker",
    ]  # fmt: skip
    (folder / "config").write_text("\n".join(lines) + "\n")
    Path("/run/sshd").mkdir(exist_ok=True)
    server = subprocess.Popen([sshd, "-D", "-e", "-f", folder / "config"], stderr=subprocess.DEVNULL)
    options = [
        "StrictHostKeyChecking=no",
        f"UserKnownHostsFile={folder}/known",
        "BatchMode=yes",
        "LogLevel=ERROR",
    ]
    yield shlex.join(
        [
            "ssh",
            *(w for o in options for w in ("-o", o)),
            "-i",
            f"{folder}/user",
            "-p",
            str(port),
            "127.0.0.1",
        ]
    )
    server.terminate()
    server.wait()


def test_ssh_without_a_shared_folder(repo: Repo, node: str) -> None:
    repo.plan(*tasks(1))
    code, summary, printed = repo.run(
        repo.agent(WORKS), "--jobs", "2", "--launch", node, "--launch-checks", node, timeout=120
    )
    assert (code, summary["passed"]) == (0, 1), printed
    assert fresh_clone_is_green(repo, BRANCH, ["grep -q good T1.txt"])
    assert not repo.workspace.exists() and not repo.room.exists()


def test_nothing_is_left_behind_ssh_when_the_loop_is_killed(repo: Repo, node: str) -> None:
    agent, _ = hanging_elsewhere(repo)
    repo.plan(*tasks(1))
    process = repo.start("run", "--no-awake", "--agent", agent, "--launch", node)
    repo.wait_for("../hanging")
    process.kill()
    began = time.monotonic()
    while any("sleep" in line for line in still_running(repo)) and time.monotonic() - began < 10:
        time.sleep(0.05)
    assert time.monotonic() - began < 4, still_running(repo)


def test_a_root_of_its_own_without_home_as_a_container_is(repo: Repo) -> None:
    need_namespaces()
    folder = repo.outside / "elsewhere"
    prefix = elsewhere(repo)
    agent = Path(repo.agent(f"assert not P({str(repo.path)!r}).exists()\n{WORKS}").split()[-1])
    agent.rename(folder / "agent.py")
    binds = (
        "/usr",
        "/bin",
        "/lib",
        "/lib64",
        "/etc",
        str(ROOT),
        sys.base_prefix,
        str(Path(sys.prefix).resolve()),
    )
    words = [w for path in binds if Path(path).exists() for w in ("--ro-bind", path, path)]
    box = shlex.join(["bwrap", *words, "--proc", "/proc", "--dev", "/dev", "--bind", str(folder), str(folder),
                      "--unshare-pid", "--die-with-parent"])  # fmt: skip
    repo.plan(*tasks(1))
    code, summary, printed = repo.run(f"{sys.executable} {folder}/agent.py", "--launch", f"{box} {prefix}")
    assert (code, summary["passed"]) == (0, 1), printed


# ---------------------------------------------------------------- a worker that lies


@pytest.mark.parametrize(
    ("lie", "said"),
    sample([
        ("say(event='done', value={}, commit='', file=0)", "no result"),
        ("say(event='done', value=7, commit='', file=0)", "no usable answer"),
        ("say(event='done', value=GOOD, commit='0' * 40, file=10 ** 13)", "wants to send a file of"),
        ("say(event='done', value=GOOD, commit='0' * 40, file=7); sys.stdout.write('garbage'); sys.stdout.flush()", "other refs"),
        ("say(event='log', name='../../prd.json', at=0, data='e30=', file=0)", "not its own"),
        ("say(event='view', name='line', args=[{}, 3, 4, 5, 6], file=0)", "killed"),
        ("say(event='error', said='no', exit='x', file=0)", "no"),
        ("answer(tree({'evil': ('100644', 'x')}), parent='')", "is not on the commit"),
        ("answer(git('mktree', stdin='40000 tree ' + tree({'config': ('100644', 'x')}) + '\\t.git\\n'))", "git refuses"),
        ("answer(git('mktree', stdin='40000 tree ' + tree({'x': ('100644', 'x')}) + '\\tprd.json\\n'))", "in place of ralph's own"),
        ("answer(tree({'.ralph': ('120000', '/')}))", "in place of ralph's own"),
    ], 2),
)  # fmt: skip
def test_a_worker_that_lies_lands_nothing(repo: Repo, lie: str, said: str) -> None:
    good = {
        "result": {"outcome": "done", "tokens": {}},
        "said": "",
        "notices": [],
        "ignored": [],
        "restored": [],
    }
    script = f"""
import json, os, subprocess, sys, tempfile
VERSION, PROTOCOL, GOOD = {__version__!r}, {PROTOCOL!r}, {good!r}
FOLDER = tempfile.mkdtemp(dir={str(repo.outside)!r})
def say(**message): sys.stdout.write(json.dumps(message) + "\\n"); sys.stdout.flush()
def git(*words, stdin=None):
    return subprocess.run(["git", "-c", "user.name=x", "-c", "user.email=x@x", *words], cwd=FOLDER,
                          input=stdin, capture_output=True, text=True).stdout.strip()
def tree(files):
    lines = [f"{{mode}} blob {{git('hash-object', '-w', '--stdin', stdin=words)}}\\t{{name}}" for name, (mode, words) in files.items()]
    return git("mktree", stdin="\\n".join(lines) + "\\n")
def answer(tree, parent=None, more=False):
    base = job["attempt"]["base"] if parent is None else parent
    commit = git("commit-tree", tree, *(["-p", base] if base else []), "-m", "x")
    git("update-ref", "refs/heads/x", commit)
    if more: git("update-ref", "refs/heads/y", base)
    git("bundle", "create", "out", "refs/heads/x", *(["refs/heads/y"] if more else [f"^{{base}}"] if base else []))
    data = open(FOLDER + "/out", "rb").read()
    say(event="done", value=GOOD, commit=commit, file=len(data))
    sys.stdout.buffer.write(data); sys.stdout.flush()
git("init", "-q")
say(event="hello", ralph=VERSION, protocol=PROTOCOL)
sys.stdin.buffer.readline()
say(event="has", commits=[])
job = json.loads(sys.stdin.buffer.readline())
open(FOLDER + "/in", "wb").write(sys.stdin.buffer.read(job["file"]))
git("bundle", "unbundle", "in")
{lie}
sys.stdin.buffer.read()
"""
    path = repo.write("../liar.py", script)
    repo.plan({"checks": ["true"], "launch": f"{sys.executable} {path}"}, limits={"attempts": 1})
    tip = repo.git("rev-parse", "HEAD")
    first = "from _ralph.loop import launch\nlaunch._SLACK = launch.SETUP_TIMEOUT = 1.0"
    done = repo.ralph(
        "run", "--agent", repo.agent("pass"), "--max-iterations", "1", "--agent-timeout", "3s", first=first
    )
    assert done.returncode in (1, 3, 4), done.stdout + done.stderr
    assert "Traceback" not in done.stdout + done.stderr
    assert repo.passed() == [] and repo.git("rev-parse", BRANCH) == tip
    assert said in repo.read("progress.txt") + done.stdout + done.stderr
    assert repo.git("status", "--porcelain") == "?? prd.json\n?? progress.txt\n"


def test_what_git_ignores_there_is_named_here(repo: Repo) -> None:
    repo.write(".gitignore", "build/\n")
    repo.commit("ignore")
    repo.plan({"checks": ["test -f build/made"]}, limits={"attempts": 1})
    agent = repo.agent("P('build').mkdir(); P('build/made').touch(); P('x').touch()")
    repo.run(agent, "--launch", elsewhere(repo))
    assert "build is ignored by git and not part of the work" in repo.records("verdict")[0]["notices"]


def test_a_shallow_home(repo: Repo) -> None:
    for number in range(3):
        repo.write("n", str(number))
        repo.commit(f"n {number}")
    shallow = Repo(repo.outside / "clone", git=False)
    shutil.rmtree(shallow.path)
    repo.git("clone", "-q", "--depth", "2", f"file://{repo.path}", str(shallow.path))
    shallow.git("config", "user.name", "n")
    shallow.git("config", "user.email", "n@example.invalid")
    shallow.plan(*tasks(1))
    code, _, printed = shallow.run(shallow.agent(WORKS), "--launch", elsewhere(shallow))
    assert code == 0, printed


# ---------------------------------------------------------------- what a worker sends, taken or refused


def order_of(run: Run, commit: str) -> launch.Order[Worked]:
    return launch.Order(
        prefix="x", job={}, needs={commit}, name="0001-T1", result=Worked, parent=commit, copy="1", seconds=9
    )


@pytest.mark.parametrize(
    ("message", "said"),
    [
        ({"name": "0001-T1.out", "at": 0, "data": "YQ=="}, ""),
        ({"name": "0002-T1.out", "at": 0, "data": "YQ=="}, "a log that is not its own"),
        ({"name": "0001-T1/../../x", "at": 0, "data": "YQ=="}, "a log that is not its own"),
        ({"name": "0001-T1.out", "at": -1, "data": "YQ=="}, "a log that is not its own"),
        ({"name": "0001-T1.out", "at": 0, "data": "YWFhYQ=="}, "its logs are too long"),
    ],
)
def test_a_log_goes_into_the_scratch_folder_and_nowhere_else(
    repo: Repo,
    opened: Callable[..., Run],
    monkeypatch: pytest.MonkeyPatch,
    message: dict[str, Any],
    said: str,
) -> None:
    monkeypatch.setattr(launch, "_LOGS", 3)
    repo.plan({"checks": ["true"]})
    run = opened()
    before = sorted(run.log("x").parent.iterdir())
    if said:
        with pytest.raises(Broken, match=said):
            launch._save_log(run, order_of(run, run.tip), message)
        assert {path.name for path in run.paths.scratch.iterdir()} - {"0001-T1.out"} == {
            p.name for p in before
        }
    else:
        for at in (0, 1):
            launch._save_log(run, order_of(run, run.tip), {**message, "at": at})
        assert repo.read(".ralph/0001-T1.out") == "aa"


def test_a_bundle_holds_what_is_not_known_there(repo: Repo, opened: Callable[..., Run]) -> None:
    repo.git("tag", "v1")
    repo.plan({"checks": ["true"]})
    run = opened()
    work = work_on(repo, run.tip)
    for known, has in (([], True), ([run.tip], True), ([work], False), (["rubbish", 7, "0" * 40], True)):
        refs, bundle = launch._bundle(run, order_of(run, work), known)
        assert refs == {f"refs/ralph/known/{work}": work, "refs/tags/v1": run.tip}
        assert (bundle is not None) is has
    assert repo.git("for-each-ref", "refs/ralph/launch") == ""


def test_of_an_answer_only_one_commit_on_the_given_one_is_taken(
    repo: Repo, opened: Callable[..., Run]
) -> None:
    repo.plan({"checks": ["true"]})
    run = opened()
    work = work_on(repo, run.tip)
    other = work_on(repo, work, "more.txt")
    cases = {
        "": ([f"refs/x/a ^{run.tip}"], work),
        "other refs": ([f"refs/x/a refs/x/b ^{run.tip}"], work),
        "is not on the commit": ([f"refs/x/b ^{run.tip}"], other),
        "other refs than": ([f"refs/x/a ^{run.tip}"], other),
    }
    repo.git("update-ref", "refs/x/a", work)
    repo.git("update-ref", "refs/x/b", other)
    for said, ((words,), commit) in cases.items():
        bundle = repo.outside / "answer"
        repo.git("bundle", "create", "-q", str(bundle), *words.split())
        message = {"commit": commit, "file": 1}
        if said:
            with pytest.raises(Broken, match=said):
                launch._taken(run, order_of(run, run.tip), message, bundle)
        else:
            assert launch._taken(run, order_of(run, run.tip), message, bundle) == work
        assert not bundle.exists()
    assert launch._taken(run, order_of(run, run.tip), {"commit": "", "file": 0}, bundle) == ""


@pytest.mark.parametrize(
    ("code", "error"),
    [(4, NeedsPerson), (5, AgentUnavailable), (75, TryLater), (1, WorkerDied), (2, WorkerDied)],
)
def test_the_error_of_a_job_elsewhere(tmp_path: Path, code: int, error: type[Exception]) -> None:
    (tmp_path / "sent").write_text(json.dumps({"event": "error", "said": "why", "exit": code}) + "\n")
    with (tmp_path / "sent").open() as sent, pytest.raises(error, match="why"):
        launch._next(Wire(sent.fileno(), -1, Control()), 5.0)
