"""`ralph doctor`: every trouble is one line, and what it prints starts a real night."""

from __future__ import annotations

import json
import re
import signal
from pathlib import Path

import pytest

from tests.conftest import Repo, captured, cases
from tests.oracle import home_of
from tests.scripts import cost, own, plan, speaker

OWN = {"checks": ["test -f T1.txt"]}
WORKS = "P(f'{task}.txt').touch()"


def doctor(repo: Repo, *words: str, first: str = "", **env: str) -> str:
    """What it prints; it ends with 2 if there is an error, else with 0."""
    done = repo.ralph("doctor", "-v", *words, timeout=60, first=first, **env)
    assert "Traceback" not in done.stdout + done.stderr
    assert done.returncode == (2 if errors(done.stdout) else 0), done.stderr
    return done.stdout


def errors(printed: str) -> list[str]:
    return re.findall("^error +(.*)$", printed, re.MULTILINE)


def says(printed: str, level: str, words: str) -> bool:
    """Whether there is a finding of this level with these words."""
    return bool(re.search(f"^{level} .*{re.escape(words)}", printed, re.MULTILINE))


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
    of=2,
)
def test_every_trouble_is_one_line_and_the_rest_is_still_looked_at(
    repo: Repo, prepare: str, words: str, said: str
) -> None:
    repo.plan(OWN, branchName="work")
    repo.write(".gitignore", "prd.json\nprogress.txt\n.ralph/\n")
    repo.commit("ignore")
    repo.sh(prepare)
    agent = [] if "--agent" in words else ["--agent", repo.agent(WORKS)]
    printed = doctor(repo, *agent, *words.split())
    wrong = errors(printed)
    assert len(wrong) == bool(said), printed
    assert said in "".join(wrong)
    assert says(printed, "ok", "limits: ")
    assert ("\nevery night: " in printed) == (not said)
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
    repo.sh(prepare)
    done = repo.ralph("doctor", "-v", "--agent", "true")
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_check_that_was_begun_ends_with_doctor(repo: Repo) -> None:
    begun = f"touch {repo.outside}/begun; (setsid sleep 600 &); sleep 600"
    repo.plan(begun)
    process = repo.start("doctor", "-v", "--agent", "true")
    repo.wait_for("../begun")
    process.send_signal(signal.SIGINT)
    said, _ = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "error" not in said
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
    of=2,
)
def test_what_is_told_of_a_plan(repo: Repo, plan: str, level: str, said: str) -> None:
    top = {"agent": "true", "tasks": [OWN], **json.loads(plan)}
    repo.plan(*top.pop("tasks"), **top)
    assert says(doctor(repo), level, said)


def test_setup_and_checks_run_in_the_room(repo: Repo) -> None:
    seen = repo.outside / "seen"
    check = f"pwd >> {seen}; test -f made && test ! -f mine.txt"
    setup = f"echo setup in $PWD >> {seen}; touch made"
    repo.plan(check, setup=setup)
    repo.write("mine.txt", "not committed")
    before = home_of(repo), repo.read("prd.json"), repo.git("for-each-ref")
    printed = doctor(repo, "--agent", "true")
    assert says(printed, "ok", f"checks run in {repo.room}; setup is green there")
    assert says(printed, "now", "1 check green")
    assert says(printed, "warning", "the agent will not see them: mine.txt")
    assert seen.read_text() == f"setup in {repo.room}\n{repo.room}\n"
    after = home_of(repo), repo.read("prd.json"), repo.git("for-each-ref")
    assert after == before
    assert not (repo.path / "progress.txt").exists()


def test_a_loop_at_work_is_not_disturbed(repo: Repo) -> None:
    seen = repo.outside / "seen"
    checks = [f"echo check >> {seen}; test -f T1.txt"]
    repo.plan({"checks": checks}, setup=f"echo setup >> {seen}")
    waits = "(OUT / 'on').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.05)\n"
    process = repo.start("run", "--agent", repo.agent(waits + WORKS))
    repo.wait_for("../on")
    before = seen.read_text()
    busy = f"`ralph run` is at work on this plan (pid {process.pid}"
    assert says(doctor(repo, "--agent", "true"), "error", busy)
    assert seen.read_text() == before
    repo.write("../go", "")
    assert process.wait(30) == 0
    assert repo.passed() == ["T1"]


# ---------------------------------------------------------------- what a run would say at its start


@cases("""
    check                      said
    cd $HOME/repo && test -f T1.txt  names $HOME/repo
    shop --test                starts $HOME/repo/.venv/bin/shop, which no checkout has
""")
def test_what_leads_home_is_refused_by_both(repo: Repo, check: str, said: str) -> None:
    said = said.replace("$HOME", str(repo.outside))
    repo.write(".venv/pyvenv.cfg", "")
    repo.program(".venv/bin/shop", "true")
    repo.plan(check.replace("$HOME", str(repo.outside)))
    repo.env["PATH"] = f"{repo.path}/.venv/bin:{repo.env['PATH']}"
    (wrong,) = errors(doctor(repo, "--agent", "true"))
    assert said in wrong
    done = repo.ralph("run", "--agent", repo.agent(WORKS))
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
    printed = doctor(repo, *words.split(), ANTHROPIC_API_KEY=key)
    assert ("ANTHROPIC_API_KEY is billed" in printed) == bool(billed)
    said = "nothing limits what ANTHROPIC_API_KEY is billed; set --max-usd"
    assert says(printed, "warning", said) == bool(unbounded)


def test_what_is_used_of_the_limits_and_a_budget_that_is_spent(repo: Repo) -> None:
    agent = speaker(repo, f"print({cost(0.5)!r})")
    plan(repo, "false", budget={"usd": 1}, limits={"attempts": 9})
    assert repo.run(agent, "--max-iterations", "1")[0] == 3
    printed = doctor(repo, "--agent", agent, "--max-usd", "5", "--max-hours", "2")
    line = "limits: a run: $0.00 of $5.00, 0 of 50 iterations, 0 s of 2 h 0 min; the plan: $0.50 of $1.00"
    assert says(printed, "ok", line)
    done = repo.ralph("run", "--agent", agent, "--max-usd", "0.5")
    way = (
        "the plan's budget in dollars is spent; to go on, raise budget.usd in prd.json"
    )
    assert done.returncode == 4
    assert way in done.stdout
    printed = doctor(repo, "--agent", agent)
    assert says(printed, "error", f"limits: {way}")
    assert says(printed, "ok", "the plan: $1.00 of $1.00")


@pytest.mark.parametrize(
    "words", ["--task NO-SUCH", "--until 25:00", "--max-hours 90m", "--max-usd nan"]
)
def test_what_a_run_refuses_doctor_refuses_and_no_branch_is_made(
    repo: Repo, words: str
) -> None:
    repo.plan(OWN)
    for command in ("run", "doctor"):
        done = repo.ralph(command, "--agent", "true", *words.split())
        assert done.returncode == 2
        assert "Traceback" not in done.stderr
    assert repo.git("for-each-ref", "--format=%(refname:short)") == "main\n"


@cases("""
    script                       said
    echo 1.2.3; sleep 100 &      1.2.3
    exec sleep 100               no version
""")
def test_a_version_is_asked_with_a_deadline(repo: Repo, script: str, said: str) -> None:
    repo.plan(own("T1"))
    repo.tool("claude", script)
    soon = "from _ralph.commands import doctor; doctor._PATIENCE = 3.0"
    printed = doctor(repo, "--full-permissions", first=soon)
    assert f"claude at {repo.outside}/bin/claude, {said}" in printed
    assert repo.alive() == []


# ---------------------------------------------------------------- the probe


def test_a_probe_is_one_turn_in_cron_s_environment_that_leaves_nothing(
    repo: Repo,
) -> None:
    repo.plan(OWN)
    agent = repo.agent("""
        P("left").touch()
        sleeps = [sys.executable, "-c", "import time; time.sleep(600)"]
        subprocess.Popen(sleeps, start_new_session=True)
        (OUT / "seen").write_text(json.dumps([os.getcwd(), dict(os.environ)]))
    """)
    before = home_of(repo)
    printed = doctor(repo, "--agent", agent, "--probe", MY_KEY="secret")
    assert says(printed, "ok", "as cron starts it, answered")
    folder, env = json.loads(repo.read("../seen"))
    assert folder == str(repo.places / "role")
    assert env["HOME"] == repo.env["HOME"]
    assert not {"MY_KEY", "PYTHONPATH", "XDG_STATE_HOME"} & env.keys()
    assert home_of(repo) == before
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
    of=2,
)
def test_how_a_probe_ends(repo: Repo, printed: str, level: str, words: str) -> None:
    row = {"like": "claude", "argv": ["mine", "{permissions}", "{args}"]}
    permissions = {"edit": ["--edit"], "read": ["--read"]}
    notes = f"echo $* >> {repo.outside}/words; cat > /dev/null"
    repo.tool("mine", f"{notes}; echo '{printed}'")
    repo.plan(OWN, agents={"mine": {**row, "permissions": permissions}}, agent="mine")
    assert says(doctor(repo, "--probe"), level, words)
    assert repo.read("../words") == "--version\n--read\n"


def test_an_example_plan_is_looked_at_as_it_stands(repo: Repo) -> None:
    repo.write(".env", "SECRET=1")
    repo.write(".gitignore", ".ralph/\n.env\n")
    repo.commit("a project")
    assert repo.ralph("init").returncode == 0
    printed = doctor(repo, "--agent", "true")
    assert says(printed, "error", "has only the example")
    assert "so no checkout has them" not in printed
    (repo.path / ".worktreeinclude").unlink()
    assert "git ignores .env, so no checkout has them" in doctor(repo)


def test_the_line_for_cron_starts_the_night(repo: Repo) -> None:
    repo.plan(OWN)
    *_, line, _ = repo.ralph("doctor", "--agent", repo.agent(WORKS)).stdout.splitlines()
    command = line.removeprefix("30 22 * * 1-5 ").replace(r"\%", "%")
    env = {"HOME": str(repo.outside)}
    done = captured(["sh", "-c", command], Path("/"), env)
    assert done.returncode == 0, done.stderr
    assert repo.passed() == ["T1"]


def test_it_fits_on_a_screen_trouble_first(repo: Repo) -> None:
    own = [f"test -f T{n}.txt" for n in range(40)]
    repo.plan({"checks": own}, limits={"jobs": 2}, checks=["true", "false"])
    done = repo.ralph("doctor", "--agent", "true")
    assert not re.search("^(error|ok) ", done.stdout, re.MULTILINE)
    assert says(done.stdout, "now", "")
    assert len(done.stdout.splitlines()) < 24
    assert "trying  checks: setup and every check" in done.stdout
    assert "\nno errors, 1 warning (-v says what is fine)\n" in done.stdout
    (repo.path / "prd.json").rename(repo.path / "my plan.json")
    done = repo.ralph("doctor", "--agent", "true", "--prd", "my plan.json")
    assert "to start it: ralph run --agent true --prd 'my plan.json'\n" in done.stdout
