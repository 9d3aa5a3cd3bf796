"""`ralph doctor`: every trouble is one line, and what it prints starts a real night."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from pathlib import Path

import pytest

from tests.conftest import Repo, cases
from tests.scripts import cost, own, plan, speaker

OWN = {"checks": ["test -f T1.txt"]}
WORKS = "P(f'{task}.txt').touch()"


def found(done: subprocess.CompletedProcess[str]) -> list[tuple[str, str]]:
    """The findings: level and line of each."""
    assert "Traceback" not in done.stdout + done.stderr, done.stderr
    lines = re.findall(r"^(ok|now|warning|error) +(.*)$", done.stdout, re.MULTILINE)
    bad = any(level == "error" for level, _ in lines)
    assert done.returncode == (2 if bad else 0), done.stdout
    return lines


def says(done: subprocess.CompletedProcess[str], level: str, words: str) -> bool:
    return any(level == told and words in line for told, line in found(done))


def errors(done: subprocess.CompletedProcess[str]) -> list[str]:
    return [line for level, line in found(done) if level == "error"]


# ---------------------------------------------------------------- findings


# What is done to a good workspace, how doctor is called, and the one error.
@cases(
    """
    prepare                                                                                          words                            said
    -                                                                                                -                                -
    echo '{"tasks": [{"id": "A", "title": "a"}]}' > prd.json                                         -                                no checks
    mkdir progress.txt                                                                               -                                not a regular file
    rm -rf .git; git init -q; git config user.name x; git config user.email x                        -                                no commit yet
    git config --unset user.name; git config user.useConfigOnly true                                 -                                user.name
    true                                                                                             --agent no-such-agent            not on PATH
    true                                                                                             --judge no-such-judge            not on PATH
    true                                                                                             --check no-such-program          is not found there
    """,
    2,
)
def test_every_trouble_is_one_line_and_the_rest_is_still_looked_at(
    repo: Repo, prepare: str, words: str, said: str
) -> None:
    repo.plan(OWN, branchName="work")
    repo.write(".gitignore", "prd.json\nprogress.txt\n.ralph/\n")
    repo.commit("ignore")
    subprocess.run(["sh", "-ec", prepare], cwd=repo.path, env=repo.env, check=True)
    agent = [] if "--agent" in words else ["--agent", repo.agent(WORKS)]
    done = repo.ralph("doctor", "-v", *agent, *words.split())
    wrong = errors(done)
    assert len(wrong) == bool(said), done.stdout
    assert said in "".join(wrong) and says(done, "ok", "limits: ")
    assert ("\nevery night: " in done.stdout) == (not said)
    assert "mkdir" in prepare or not (repo.path / "progress.txt").exists()


@cases("""
    prepare                  said
    rm prd.json              prd.json; cd to your project
    echo noise > .git/HEAD   git cannot work here
    rm -rf .git              not in a git repository; cd to your project, or start one: git init
""")
def test_without_a_repository_or_a_plan_there_is_nothing_to_look_at(
    repo: Repo, prepare: str, said: str
) -> None:
    repo.plan(OWN)
    subprocess.run(["sh", "-ec", prepare], cwd=repo.path, check=True)
    done = repo.ralph("doctor", "-v", "--agent", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr and "Traceback" not in done.stderr


def test_a_check_that_was_begun_ends_with_doctor(repo: Repo) -> None:
    begun = f"touch {repo.outside}/begun; (setsid sleep 600 &); sleep 600"
    repo.plan({"checks": [begun]})
    process = repo.start("doctor", "-v", "--agent", "true")
    repo.wait_for("../begun")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 130 and "error" not in said
    assert repo.gone_within(3)


# The plan, and what is told of it.
@cases(
    """
    plan                                                                                            level     said
    {"checks": ["true"], "tasks": [{"checks": ["true"]}]}                                           warning   checks: own checks are green already, so they prove nothing: T1
    {"checks": ["true"], "tasks": [{}]}                                                             warning   tasks: no check of their own: T1
    {"openQuestions": ["Why?"]}                                                                     warning   tasks: 1 open question, the first: Why?
    {"setup": "echo begin; seq 5000; echo 'ERESOLVE no'; exit 7"}                                   error     checks: setup failed with exit 7
    {"agents": {"sh": {"argv": ["sh", "-c", "x"], "permissions": {"edit": []}}}, "agent": "sh"}     warning   the plan itself defines it; read what it runs: sh -c x
    {"tasks": [{"checks": ["test -f a.txt"]}]}                                                      now        1 check green
    """,
    2,
)
def test_what_is_told_of_a_plan(repo: Repo, plan: str, level: str, said: str) -> None:
    top = {"agent": "true", "tasks": [OWN], **json.loads(plan)}
    repo.plan(*top.pop("tasks"), **top)
    done = repo.ralph("doctor", "-v")
    assert says(done, level, said), done.stdout


def everything_at_home(repo: Repo) -> dict[str, bytes]:
    """All that is not ralph's own, the repository's state among it."""
    found: dict[str, bytes] = {}
    for folder, folders, names in os.walk(repo.path):
        folders[:] = [
            name
            for name in folders
            if name not in (".ralph", "objects", "info")
            and Path(folder, name) != repo.path / ".git/ralph"
        ]
        found |= {
            os.path.relpath(Path(folder, name), repo.path): Path(
                folder, name
            ).read_bytes()
            for name in names
        }
    found.pop(".git/info/exclude", None)  # where git is told of ralph's logs
    return found


def test_setup_and_checks_run_in_the_room(repo: Repo) -> None:
    seen = repo.outside / "seen"
    repo.plan(
        {"checks": [f"pwd >> {seen}; test -f made && test ! -f mine.txt"]},
        setup=f"echo setup in $PWD >> {seen}; touch made",
    )
    repo.write("mine.txt", "not committed")
    before = everything_at_home(repo)
    done = repo.ralph("doctor", "-v", "--agent", "true")
    assert says(done, "ok", f"checks run in {repo.room}; setup is green there")
    assert says(done, "now", "1 check green")
    assert says(done, "warning", "the agent will not see them: mine.txt")
    assert seen.read_text() == f"setup in {repo.room}\n{repo.room}\n"
    assert everything_at_home(repo) == before
    assert not (repo.path / "progress.txt").exists()


def test_a_loop_at_work_is_not_disturbed(repo: Repo) -> None:
    seen = repo.outside / "seen"
    checks = [f"echo check >> {seen}; test -f T1.txt"]
    repo.plan({"checks": checks}, setup=f"echo setup >> {seen}")
    waits = "(OUT / 'on').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.05)\n"
    process = repo.start("run", "--agent", repo.agent(waits + WORKS))
    repo.wait_for("../on")
    before = seen.read_text()
    done = repo.ralph("doctor", "-v", "--agent", "true")
    busy = f"`ralph run` is at work on this plan (pid {process.pid}"
    assert says(done, "error", busy) and seen.read_text() == before
    repo.write("../go", "")
    assert process.wait(30) == 0 and repo.passed() == ["T1"]


# ---------------------------------------------------------------- what a run would say at its start


def test_what_leads_home_is_refused_by_both(repo: Repo) -> None:
    for check, said in (
        (f"cd {repo.path} && test -f T1.txt", "names " + str(repo.path)),
        ("shop --test", f"starts {repo.path}/.venv/bin/shop, which no checkout has"),
    ):
        repo.write(".venv/pyvenv.cfg", "")
        repo.program(".venv/bin/shop", "true")
        repo.plan({"checks": [check]})
        path = f"{repo.path}/.venv/bin:{repo.env['PATH']}"
        (wrong,) = errors(repo.ralph("doctor", "--agent", "true", PATH=path))
        done = repo.ralph("run", "--agent", repo.agent(WORKS), PATH=path)
        assert said in wrong
        assert done.returncode == 2
        assert said in done.stderr


# ---------------------------------------------------------------- agents, and who pays


@cases("""
    words        key   billed   unbounded
    -            k     yes      yes
    -            -     -        -
    --max-usd=5  k     yes      -
""")
def test_a_key_that_is_billed_wants_a_bound(
    repo: Repo, words: str, key: str, billed: str, unbounded: str
) -> None:
    row = {"like": "claude", "argv": ["mine"], "permissions": {"edit": []}}
    repo.tool("mine", "true")
    repo.plan(OWN, agents={"mine": row}, agent="mine")
    done = repo.ralph("doctor", "-v", *words.split(), ANTHROPIC_API_KEY=key)
    assert ("ANTHROPIC_API_KEY is billed" in done.stdout) == bool(billed)
    said = "nothing limits what ANTHROPIC_API_KEY is billed; set --max-usd"
    assert says(done, "warning", said) == bool(unbounded)


def test_what_is_used_of_the_limits_and_a_budget_that_is_spent(repo: Repo) -> None:
    agent = speaker(repo, f"print({cost(0.5)!r})")
    plan(repo, {"checks": ["false"]}, budget={"usd": 1}, limits={"attempts": 9})
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    words = ["--agent", agent, "--max-usd", "5", "--max-hours", "2"]
    line = "limits: a run: $0.00 of $5.00, 0 of 50 iterations, 0 s of 2 h 0 min; the plan: $0.50 of $1.00"
    assert says(repo.ralph("doctor", "-v", *words), "ok", line)
    done = repo.ralph("run", "--agent", agent, "--max-usd", "0.5")
    way = (
        "the plan's budget in dollars is spent; to go on, raise budget.usd in prd.json"
    )
    assert done.returncode == 4 and way in done.stdout
    told = repo.ralph("doctor", "-v", "--agent", agent)
    assert says(told, "error", f"limits: {way}")
    assert says(told, "ok", "the plan: $1.00 of $1.00")


@pytest.mark.parametrize(
    "words", ["--task NO-SUCH", "--until 25:00", "--max-hours 90m"]
)
def test_what_a_run_refuses_doctor_refuses_and_no_branch_is_made(
    repo: Repo, words: str
) -> None:
    repo.plan(OWN)
    for command in ("run", "doctor"):
        done = repo.ralph(command, "--agent", "true", *words.split())
        assert done.returncode == 2 and "Traceback" not in done.stderr
    assert repo.git("for-each-ref", "--format=%(refname:short)") == "main\n"


@pytest.mark.parametrize(
    ("script", "said"),
    [("echo 1.2.3; sleep 100 &", "1.2.3"), ("exec sleep 100", "no version")],
)
def test_a_version_is_asked_with_a_deadline(repo: Repo, script: str, said: str) -> None:
    repo.plan(own("T1"))
    repo.tool("claude", script)
    soon = "from _ralph.commands import doctor; doctor._PATIENCE = 3.0"
    done = repo.ralph("doctor", "-v", "--full-permissions", first=soon)
    assert f"claude at {repo.outside}/bin/claude, {said}" in done.stdout, done.stderr
    assert repo.alive() == []


# ---------------------------------------------------------------- the probe


def test_a_probe_is_one_turn_in_cron_s_environment_that_leaves_nothing(
    repo: Repo,
) -> None:
    repo.plan(OWN)
    agent = repo.agent("""
        P("left").touch()
        subprocess.Popen(["sleep", "600"], start_new_session=True)
        (OUT / "seen").write_text(json.dumps([os.getcwd(), dict(os.environ)]))
    """)
    before = everything_at_home(repo)
    done = repo.ralph("doctor", "-v", "--agent", agent, "--probe", MY_KEY="secret")
    assert says(done, "ok", "as cron starts it, answered")
    folder, env = json.loads(repo.read("../seen"))
    assert folder == str(repo.places / "role")
    assert env["HOME"] == repo.env["HOME"]
    assert not {"MY_KEY", "PYTHONPATH", "XDG_STATE_HOME"} & env.keys()
    assert everything_at_home(repo) == before
    assert repo.alive() == []


# What the agent prints, and the level and the words of the finding.
@cases(
    """
    printed                                                                                       level     words
    {"type":"result","is_error":false,"total_cost_usd":0.5}                                       ok        s, $0.50
    {"type":"result","is_error":true,"result":"too much","terminal_reason":"api_error"}           warning   too much; a run waits
    {"type":"result","is_error":true,"result":"refused","api_error_status":401}                   error     refused; log it in as this user
    -                                                                                             error     without a final event (exit 0); log it in
    """,
    2,
)
def test_how_a_probe_ends(repo: Repo, printed: str, level: str, words: str) -> None:
    permissions = {"edit": ["--edit"], "read": ["--read"]}
    argv = ["mine", "{permissions}", "{args}"]
    row = {"like": "claude", "argv": argv, "permissions": permissions}
    repo.tool(
        "mine", f"echo $* >> {repo.outside}/words; cat > /dev/null; echo '{printed}'"
    )
    repo.plan(OWN, agents={"mine": row}, agent="mine")
    done = repo.ralph("doctor", "-v", "--probe")
    assert says(done, level, words), done.stdout
    assert repo.read("../words") == "--version\n--read\n"


def test_an_example_plan_is_looked_at_as_it_stands(repo: Repo) -> None:
    repo.write(".env", "SECRET=1")
    repo.write(".gitignore", ".ralph/\n.env\n")
    repo.commit("a project")
    assert repo.ralph("init").returncode == 0
    done = repo.ralph("doctor", "-v", "--agent", "true")
    assert done.returncode == 2
    assert "has only the example" in done.stdout
    assert "so no checkout has them" not in done.stdout
    (repo.path / ".worktreeinclude").unlink()
    said = repo.ralph("doctor", "-v").stdout
    assert "git ignores .env, so no checkout has them" in said


def test_the_line_for_cron_starts_the_night(repo: Repo) -> None:
    repo.plan(OWN)
    *_, line, _ = repo.ralph("doctor", "--agent", repo.agent(WORKS)).stdout.splitlines()
    command = line.removeprefix("30 22 * * 1-5 ").replace(r"\%", "%")
    env = {"HOME": str(repo.outside)}
    done = subprocess.run(["sh", "-c", command], env=env, cwd="/")
    assert (done.returncode, repo.passed()) == (0, ["T1"])


def test_it_fits_on_a_screen_trouble_first(repo: Repo) -> None:
    own = [f"test -f T{n}.txt" for n in range(40)]
    repo.plan({"checks": own}, limits={"jobs": 2}, checks=["true", "false"])
    done = repo.ralph("doctor", "--agent", "true")
    assert {level for level, _ in found(done)} == {"warning", "now"}
    assert len(done.stdout.splitlines()) < 24
    assert "trying  checks: setup and every check" in done.stdout
    assert "\nno errors, 1 warning (-v says what is fine)\n" in done.stdout
    (repo.path / "prd.json").rename(repo.path / "my plan.json")
    done = repo.ralph("doctor", "--agent", "true", "--prd", "my plan.json")
    assert "to start it: ralph run --agent true --prd 'my plan.json'\n" in done.stdout
