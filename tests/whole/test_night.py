"""A night as a whole: what passes and what is blocked, the last check, tasks that
cannot be done."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import Repo, cases
from tests.scripts import (
    LIMIT,
    LOOKS_OFTEN,
    MAKES,
    RESULT,
    of_verdicts,
    own,
    plan,
    speaker,
)

PLACES = ("room-1", "work-1", "room-2")


def rechecks(repo: Repo) -> list[str]:
    """Each last check: how many attempts there were before it, and whether it was
    green or what it broke."""
    found, attempts = [], 0
    for record in repo.records():
        attempts += record["event"] == "verdict"
        if record["event"] == "recheck":
            broken = [key.split("\n")[0] for key in record.get("broken", [])]
            said = "green" if record.get("ok") else f"broke {' '.join(broken)}"
            found.append(f"{attempts}: {said}")
    return found


# ---------------------------------------------------------------- the last check


def test_the_last_check_is_in_a_place_made_anew(repo: Repo) -> None:
    """What setup made in the room, and what an earlier check left there, is not in
    it."""
    setups, checks = repo.outside / "setups", repo.outside / "checks"
    setup = f"echo x >> setup.log; (pwd; cat setup.log | wc -l) >> {setups}"
    repo.write(".gitignore", "*.log\n*.cache\n")
    repo.commit("ignore")
    check = f"test -f T1.txt && (pwd; ls *.cache; touch x.cache) >> {checks}"
    once = {"run": setup, "when": "package.json"}
    repo.plan({"checks": [check]}, setup=once, keep=["*.cache"])
    repo.ends("0: T1", repo.agent(MAKES))
    first, work, last = (f"{repo.places}/{name}" for name in PLACES)
    assert setups.read_text().split() == [first, "1", work, "1", last, "1"]
    assert checks.read_text().split() == [first, last]  # it found no cache
    assert not Path(first).exists()


MOVES = """
[ ! -e ../c ] || exit 0
git clone -q -b ralph/p HOME ../c && cd ../c && touch oops.txt && git add oops.txt
git -c user.name=x -c user.email=x commit -qm oops && git push -q origin ralph/p
"""


def test_a_branch_that_a_person_moves_meanwhile_is_checked_again(repo: Repo) -> None:
    moves = repo.outside / "moves.sh"
    moves.write_text(MOVES.replace("HOME", str(repo.path)))
    last = f"case $PWD in */room-2) sh {moves};; esac"
    repo.plan(own("T1"), checks=[f"{last}; test ! -e oops.txt"])
    repo.ends("4: T1", repo.agent(MAKES))
    assert rechecks(repo)[-1] == "1: broke "


# How a run ends after T2 broke T1: the exit status, the words it is started with, and
# what its agent does then, at T3 or before.
STOPS = """
stop         wanted  at  words                  then
limit        3       T3  --max-iterations 2     pass
once         3       T3  --once --task T2       pass
asked        3       T2  -                      [it] = P('HOME/.git/ralph').iterdir(); (it / 'stop').write_text(os.environ['RALPH_RUN_ID'])
stuck        4       T3  -                      P('x').touch()
unavailable  5       T3  -                      sys.exit('not logged in')
limited      75      T3  --max-wait 0           print(LIMIT); sys.exit(1)
"""


DEEDS = f"""
LIMIT = {LIMIT!r}
if task != 'T3': {MAKES}
if task == 'T2': P('T1.txt').unlink()
if task == 'T1': P('T3.txt').touch()
if task == 'AT': THEN
print({RESULT!r})
"""


SOON = f"""{LOOKS_OFTEN}
from _ralph.state import history
limits.STUCK, history.RETRY_LOGIN = 1, 0.5
"""


@cases(STOPS, of=4)
def test_before_every_ordinary_stop_what_no_longer_holds_is_set_back(
    repo: Repo, stop: str, wanted: str, at: str, words: str, then: str
) -> None:
    plan(repo, *map(own, ("T1", "T2", "T3")), limits={"attempts": 1})
    deeds = DEEDS.replace("AT", at).replace("THEN", then)
    agent = speaker(repo, deeds.replace("HOME", str(repo.path)))
    if stop == "once":
        assert repo.run(agent, "--once")[0] == 0
    summary, printed = repo.ends(f"{wanted}: T2", agent, *words.split(), first=SOON)
    assert summary["stop"] == stop
    # a stuck run may check what is left once more
    assert any(one.endswith(": broke T1") for one in rechecks(repo))
    assert "T1 passed at iteration 1, broken since" in printed
    assert repo.records()[-1]["event"] == "stop"


def test_nothing_is_checked_again_where_nothing_landed_since(repo: Repo) -> None:
    repo.plan(own("T1"), "false", limits={"attempts": 1})
    agent = repo.agent(MAKES)
    repo.ends("4: T1", agent)
    repo.ends("4: T1", agent)
    assert repo.ralph("retry", "T2").returncode == 0
    repo.ends("4: T1", agent)
    assert rechecks(repo) == ["2: green"]


# ---------------------------------------------------------------- tasks that cannot be done


@cases(
    """
red       stop     passed
T1 T2 T3  stuck    -
T3 T4 T5  blocked  T1 T2 T6 T7
""",
    of=2,
)
def test_three_impossible_tasks_in_the_middle_do_not_cost_those_behind_them(
    repo: Repo, red: str, stop: str, passed: str
) -> None:
    """Where something has passed in this run; else three in a row say that nothing
    will."""
    checks = {f"T{number}": f"grep -q good T{number}.txt" for number in range(1, 8)}
    for task in red.split():
        checks[task] = "false"
    repo.plan(*checks.values(), limits={"attempts": 1})
    summary = repo.ends(f"4: {passed}".strip(), repo.agent(MAKES)).summary
    assert summary["stop"] == stop


# ---------------------------------------------------------------- people meanwhile


def test_the_second_night_begins_with_what_was_merged_and_sees_the_new_task(
    repo: Repo,
) -> None:
    repo.plan(own("T1"))
    assert repo.run(repo.agent(MAKES))[0] == 0
    repo.git("merge", "--no-ff", "-m", "merged", "ralph/p")
    repo.write("people.txt", "theirs\n")
    repo.commit("the day")
    repo.ralph("add", "the second", "--check", "test -f second.txt")
    sees = "P('prd.json').read_text() + P('people.txt').read_text()"
    agent = repo.agent(f"(OUT / 'saw').write_text({sees}); P('second.txt').touch()")
    code, summary, printed = repo.run(agent)
    assert (code, summary["passed"], summary["total"]) == (0, 2, 2), printed
    assert "restarted from your HEAD" in printed and len(repo.commits()) == 1
    saw = repo.read("../saw")
    assert "the second" in saw and "theirs" in saw
    assert repo.has_landed("people.txt") and repo.has_landed("second.txt")


def test_every_task_ends_as_one_commit_on_a_branch_and_home_stays_as_it_was(
    repo: Repo,
) -> None:
    repo.plan(own("T1"), own("T2"), checks=["test -f a.txt"])
    agent = repo.agent(MAKES)
    summary = repo.ends("0: T1 T2", agent).summary
    assert summary["stop"] == "complete"
    assert repo.commits() == ["T2: task 2", "T1: task 1"]
    message = repo.git("log", "-1", "--format=%B", "ralph/p~1")
    assert "Ralph-Attempt: " in message and "Ralph-Agent: " in message
    assert repo.git("show", "--format=", "--name-only", "ralph/p") == "T2.txt\n"
    status = repo.git("status", "--porcelain", "--branch")
    assert status == "## main\n?? prd.json\n?? progress.txt\n"
    assert not (repo.path / "T1.txt").exists() and not repo.alive()
    refs, log = repo.git("for-each-ref"), repo.read("progress.txt")
    repo.ends("0: T1 T2", agent)  # a finished plan is left alone
    assert repo.git("for-each-ref") == refs
    assert repo.read("progress.txt") == log


def test_a_task_that_fails_three_times_is_blocked_and_its_work_is_parked(
    repo: Repo,
) -> None:
    first, waits = {**own("T1"), "priority": 1}, {"dependsOn": ["T1"], **own("T2")}
    repo.plan(first, waits, own("T3"))
    works = "P(f'{task}.txt').write_text('good' if task == 'T3' else f'bad {attempt}')"
    verdicts = "4: T1 failed, T1 failed, T1 failed, T3 passed"
    summary = repo.judges(verdicts, repo.agent(works)).summary
    states = [task["state"] for task in summary["tasks"]]
    assert states == ["blocked", "waiting", "passed"]
    assert '"blocked": "3 failed attempts' in repo.read("prd.json")
    assert not repo.has_landed("T1.txt") and repo.has_landed("T3.txt")
    parked = of_verdicts(repo, "parked")[2]
    assert repo.git("show", f"{parked}:T1.txt") == "bad 3"
    refs = "refs/ralph/parked/**/0003-T1-before"
    before = repo.git("for-each-ref", "--format=%(refname)", refs).strip()
    assert repo.git("show", f"{before}:T1.txt") == "bad 2"

    assert repo.ralph("retry", "T1", "--answer", "write good").returncode == 0
    repo.ends("0: T1 T2 T3", repo.agent(MAKES))
