"""The sandbox: what programs in it can and cannot see, change, reach and leave
behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from _ralph.errors import BadInput
from _ralph.process.sandbox import bubblewrap
from tests.conftest import Repo, is_ralph

PYTHON = os.path.realpath(sys.executable)  # a .venv below /tmp is not seen inside


def works() -> str:
    """Why bubblewrap cannot be used here, or nothing."""
    try:
        with tempfile.TemporaryDirectory() as name, contextlib.ExitStack() as stack:
            folder = Path(name)
            wrap = stack.enter_context(
                bubblewrap([], [], {}, folder, True).started(folder, None)
            )
            tried = subprocess.run(wrap(["true"], {}), capture_output=True, text=True)
    except BadInput as error:
        return str(error)
    return f"bwrap does not work here: {tried.stderr}" if tried.returncode else ""


pytestmark = pytest.mark.skipif(bool(works()), reason=works())

HELPERS = '''
import json, os, pathlib, signal, socket, subprocess, sys, time
P = pathlib.Path
sys.stdin.read()
said = {}
def can(what, act):
    """Whether something can be done; what was seen counts only if there is something to see."""
    try: said[what] = act() is not False
    except BaseException as error: said[what] = False
def writes(path): P(path).open("a").write("x")
def sees(path): return bool(P(path).read_bytes() if P(path).is_file() else os.listdir(path))
'''


@pytest.fixture
def boxed() -> Iterator[Repo]:
    """A repository whose HOME holds things to steal, not below /tmp, which is another
    one inside; the agent is a script beside the repository."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    repo = Repo(folder)
    home = repo.outside / "home"
    secrets = (
        ".ssh/id_rsa",
        ".aws/credentials",
        ".netrc",
        ".config/gh/hosts.yml",
        ".claude/secret",
    )
    own = (".mine/config", ".mine/login", ".mine/projects/talk")
    for name in (
        *secrets,
        *own,
        ".cache/pip/x",
        "letters/x",
        ".local/bin/x",
        "tools/bin/x",
        "tools/lib/x",
    ):
        repo.write(f"../home/{name}", "secret")
    repo.write("../home/.gitconfig", "[user]\n\tnickname = me\n")
    (repo.outside / "neighbour.txt").write_text("a neighbour")
    repo.env["HOME"] = str(home)
    repo.env["PATH"] = f"{repo.env['PATH']}:{home}/tools/bin"
    repo.write("AGENTS.md", "rules\n")
    repo.plan({"checks": ["test -f said.json"]})
    yield repo
    repo.kill()
    shutil.rmtree(folder)


def mine(repo: Repo, script: str, **top: Any) -> str:
    """The agent `mine`, whose row stands in the plan: a script that says what it could
    do."""
    path = repo.write(
        "../agent.py", f"{HELPERS}\n{script}\njson.dump(said, open('said.json', 'w'))\n"
    )
    row = {"argv": ["mine", "{args}"], "config": [".mine"], "login": [".mine/login"]}
    repo.plan({"checks": ["test -f said.json"]}, agents={"mine": row}, **top)
    return str(repo.program("../mine", f"exec {PYTHON} {path.resolve()}"))


def inside(
    repo: Repo, script: str, hook: str = "", **top: Any
) -> tuple[int, dict[str, bool], str]:
    """Run an agent in the sandbox; what it says that it could do."""
    agent = mine(repo, script, **top)
    if hook:
        repo.program(".git/hooks/pre-commit", hook)
    code, _, printed = repo.run(agent, "--sandbox", "bwrap")
    made = (repo.workspace / "said.json").is_file()
    said = json.loads((repo.workspace / "said.json").read_text()) if made else {}
    return code, said, printed


def test_what_can_be_seen_and_changed(boxed: Repo) -> None:
    home, (_, neighbour) = boxed.env["HOME"], tempfile.mkstemp(dir="/tmp")
    Path(neighbour).write_text("somebody's")
    state = boxed.places.parent
    for name in ("other-plan/work-1/.env", "ralph-shop-1a2b3c.env"):
        (state / name).parent.mkdir(parents=True, exist_ok=True)
        (state / name).write_text("KEY=secret")
    script = f"""
can("edit a file", lambda: writes("a.txt"))
can("make a file", lambda: writes("new.txt"))
can("keep a handoff", lambda: writes(os.environ["RALPH_HANDOFF"]))
can("use its own /tmp", lambda: writes("/tmp/scratch"))
can("use its own settings", lambda: writes("{home}/.mine/config"))
can("use a home folder of its own", lambda: writes("{home}/x"))
can("use what is installed for the person", lambda: sees("{home}/.local/bin/x"))
can("use what is on PATH", lambda: sees("{home}/tools/bin/x") and sees("{home}/tools/lib/x"))
can("read the person's settings of git", lambda: subprocess.run(["git", "config", "user.nickname"], check=True, stdout=-3))
can("keep a cache", lambda: writes("{home}/.cache/x"))
can("see the person's cache", lambda: sees("{home}/.cache/pip/x"))
can("read git's history", lambda: subprocess.run(["git", "log"], check=True, stdout=-3))
can("run a shell", lambda: subprocess.run("true", shell=True, check=True))
can("commit in its own git", lambda: subprocess.run(["git", "commit", "-qam", "x"], check=True, stderr=-3))
can("see the plan at home", lambda: sees("{boxed.path}/prd.json"))
can("see a file at home", lambda: sees("{boxed.path}/a.txt"))
try: writes("{boxed.path}/a.txt")  # into a folder of its own
except OSError: pass
can("see home's git settings", lambda: sees("{boxed.path}/.git/config"))
can("add a hook", lambda: writes("{boxed.path}/.git/hooks/pre-commit"))
can("write an object", lambda: writes("{boxed.path}/.git/objects/x"))
can("see the private folder", lambda: sees("{boxed.path}/.git/ralph"))
can("write into the room", lambda: writes("{boxed.room}/a.txt"))
can("see another plan's workspace", lambda: sees("{state}/other-plan/work-1/.env"))
can("see the secrets of a job", lambda: sees("{state}/ralph-shop-1a2b3c.env"))
can("write beside the workspace", lambda: writes("{boxed.outside}/neighbour.txt"))
can("see what others have in /tmp", lambda: sees("{neighbour}"))
can("write where programs are", lambda: writes("{home}/.local/bin/x"))
can("see its past sessions", lambda: sees("{home}/.mine/projects"))
can("see the person's letters", lambda: sees("{home}/letters"))
can("see ssh keys", lambda: sees("{home}/.ssh"))
can("see aws keys", lambda: sees("{home}/.aws/credentials"))
can("see netrc", lambda: sees("{home}/.netrc"))
can("see gh", lambda: sees("{home}/.config/gh"))
can("see another agent's login", lambda: sees("{home}/.claude"))
can("write into the system", lambda: writes("/usr/x"))
can("see ralph's process", lambda: sees("/proc/{os.getpid()}/environ"))
can("signal ralph", lambda: os.kill({os.getpid()}, 0))
can("find an ssh agent", lambda: os.environ["SSH_AUTH_SOCK"])
"""
    boxed.env["SSH_AUTH_SOCK"] = "/run/agent.sock"
    code, said, printed = inside(boxed, script)
    assert code == 0, printed
    wanted = ["edit a file", "make a file", "keep a handoff", "use its own /tmp", "use its own settings",
              "use a home folder of its own", "use what is installed for the person", "use what is on PATH",
              "read the person's settings of git", "keep a cache", "read git's history", "run a shell",
              "commit in its own git"]  # fmt: skip
    assert [what for what, could in said.items() if could] == wanted
    assert len(said) == len(wanted) + 24
    assert not Path("/tmp/scratch").exists() and boxed.read("a.txt") == "a\n"
    assert (
        boxed.read("../home/.mine/config") == "secret" and not Path(home, "x").exists()
    )
    os.unlink(neighbour)


RENEWS = "P(f'{os.environ[\"HOME\"]}/.mine/login').write_text('renewed')"


def test_only_a_login_comes_back_from_the_copy_of_an_agent_s_configuration(
    boxed: Repo,
) -> None:
    code, _, printed = inside(boxed, RENEWS)
    assert code == 0, printed
    assert boxed.read("../home/.mine/login") == "renewed"
    assert not list(boxed.path.glob(".git/ralph/*/homes/*")), "the copies are removed"


def test_a_check_cannot_leave_a_login(boxed: Repo) -> None:
    forge = f"mkdir -p {boxed.env['HOME']}/.mine && echo forged > {boxed.env['HOME']}/.mine/login"
    code, _, printed = inside(boxed, "", checks=[forge])
    assert code == 0, printed
    assert boxed.read("../home/.mine/login") == "secret"


def test_a_login_that_was_renewed_before_a_kill_of_everything_comes_back(
    boxed: Repo,
) -> None:
    agent = mine(boxed, f"{RENEWS}\nP('hanging').touch(); time.sleep(600)")
    process = boxed.start("run", "--agent", agent, "--sandbox", "bwrap")
    boxed.wait_for(str(boxed.workspace / "hanging"))
    boxed.kill()
    process.wait(10)
    assert boxed.read("../home/.mine/login") == "secret"
    code, _, printed = inside(boxed, "")
    assert code == 0 and boxed.read("../home/.mine/login") == "renewed", printed


@pytest.mark.parametrize(
    ("network", "reached"), [({}, True), ({"network": False}, False)]
)
def test_the_network_can_be_cut(
    boxed: Repo, network: dict[str, Any], reached: bool
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        connect = f"can('connect', lambda: socket.create_connection(('127.0.0.1', {port}), 3))"
        code, said, printed = inside(boxed, connect, **network)
    assert (code, said) == (0, {"connect": reached}), printed


def test_a_cut_network_is_not_forgotten_without_the_sandbox(repo: Repo) -> None:
    repo.plan({"checks": ["true"]}, network=False)
    code, _, printed = repo.run("true")
    assert code == 2 and "network: false needs --sandbox bwrap" in printed


def test_checks_setup_and_hooks_are_inside_too(boxed: Repo) -> None:
    home = boxed.env["HOME"]
    # a path that is not seen to be home
    steal = f"test ! -e {home}/.ssh/id_rsa && test ! -e {home}/.mine && test ! -e {boxed.outside}/./repo/prd.json"
    hook = f"{steal} && echo formatted >> a.txt && git add a.txt"
    code, _, printed = inside(boxed, "", hook, setup=steal, checks=[steal])
    assert code == 0, printed
    assert boxed.landed("a.txt") == "a\nformatted\n"


@pytest.mark.parametrize("escape", ["subprocess.Popen(['sleep', '600'], start_new_session=True, env={})", "os.fork() or (os.setsid(), os.fork() or time.sleep(600))"])  # fmt: skip
def test_nothing_outlives_an_attempt_or_a_kill_of_loop_and_worker(
    boxed: Repo, escape: str
) -> None:
    code, _, printed = inside(boxed, escape)
    assert code == 0 and boxed.alive() == [], printed
    boxed.plan(
        {"checks": ["false"]}, agents=json.loads(boxed.read("prd.json"))["agents"]
    )
    boxed.write(
        "../agent.py", f"{HELPERS}\n{escape}\nP('hanging').touch(); time.sleep(600)"
    )
    process = boxed.start(
        "run", "--agent", str(boxed.outside / "mine"), "--sandbox", "bwrap"
    )
    boxed.wait_for(str(boxed.workspace / "hanging"))
    sleepers = [
        one
        for one in boxed.alive()
        if "sleep" in " ".join(one.cmdline()) or one.name() == "bwrap"
    ]
    assert sleepers
    for half in [process.pid, *(one.pid for one in boxed.alive() if is_ralph(one))]:
        os.kill(half, 9)
    process.wait(10)
    end = time.monotonic() + 10
    while (
        any(one.is_running() and one.status() != "zombie" for one in sleepers)
        and time.monotonic() < end
    ):
        time.sleep(0.05)
    assert not [
        one for one in sleepers if one.is_running() and one.status() != "zombie"
    ]


def test_an_agent_that_enforces_nothing_may_run_inside(boxed: Repo) -> None:
    pi = boxed.program("../pi", f"echo $* > args\nexec {PYTHON} -c 'print(1)'")
    assert boxed.run(str(pi))[0] == 5
    code, _, printed = boxed.run(str(pi), "--sandbox", "bwrap", "--once")
    assert code == 3 and (boxed.workspace / "args").read_text().startswith(
        "-p --mode json"
    ), printed


def test_a_virtual_environment_and_node_s_programs_work_inside(boxed: Repo) -> None:
    setup = f"{PYTHON} -m venv --without-pip .venv"
    checks = [".venv/bin/python -c 'import sys; assert sys.prefix != sys.base_prefix'"]
    if node := shutil.which("node"):
        checks.append(f'{node} -e \'require("fs").writeFileSync("/tmp/x", "y")\'')
    code, _, printed = inside(boxed, "", setup=setup, checks=checks)
    assert code == 0, printed


def test_a_linked_worktree_is_hidden_where_git_keeps_it_too(boxed: Repo) -> None:
    boxed.git("worktree", "add", "-q", str(boxed.outside / "tree"), "-b", "side")
    main, boxed.path = boxed.path, boxed.outside / "tree"
    script = f"can('read', lambda: sees('{main}/.git/config'))\ncan('see', lambda: sees('{boxed.path}/prd.json'))"
    code, _, printed = inside(boxed, script)
    assert code == 0, printed
    assert json.loads(boxed.landed("said.json")) == {"read": False, "see": False}


def test_an_agent_that_is_not_there_inside_is_refused(boxed: Repo) -> None:
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        mine = Path(folder, "mine")
        mine.write_text("#!/bin/sh\n")
        mine.chmod(0o755)
        code, _, printed = boxed.run(str(mine), "--sandbox", "bwrap")
    assert code == 5 and f"--sandbox bwrap does not see the agent '{mine}'" in printed


def test_without_bubblewrap_it_does_not_start(repo: Repo) -> None:
    repo.plan({"checks": ["true"]})
    tools = repo.outside / "tools"
    tools.mkdir()
    for program in ("git", "sh"):
        (tools / program).symlink_to(str(shutil.which(program)))
    repo.env["PATH"] = str(tools)
    code, _, printed = repo.run("sh -c true", "--sandbox", "bwrap")
    assert code == 2 and "needs bubblewrap, on Linux" in printed


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("sleep 9", "timed out"),
        ("echo no >&2; exit 1", "failed with exit 1 (0.0 s): no"),
    ],
)
def test_a_bubblewrap_that_hangs_or_fails_is_one_line(
    repo: Repo, body: str, said: str
) -> None:
    repo.plan({"checks": ["true"]})
    repo.tool("bwrap", body)
    first = "from _ralph.loop import behind; behind._PATIENCE = 0.5"
    done = repo.ralph("run", "--agent", "true", "--sandbox", "bwrap", first=first)
    assert (
        done.returncode == 2 and said in done.stderr and "unexpected" not in done.stderr
    ), done.stderr
