"""ralph's own branch, on which nobody sits: the landed commit is the commit point, log and marks follow from it."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.conftest import Repo, sample
from tests.loop.test_waits import LOOKS_OFTEN
from tests.oracle import changed, end, home_of
from tests.whole.test_loop import MAKES, own

COUNTS = f"(OUT / 'ran').open('a').write(f'{{task}} ')\n{MAKES}"
"""An agent that works, and notes for which task it was paid."""


def tip(repo: Repo, name: str = "ralph/p") -> str:
    return repo.git("rev-parse", name).strip()


def sh(repo: Repo, script: str) -> None:
    """What a person does in a shell at home."""
    done = subprocess.run(["sh", "-ec", script], cwd=repo.path, env=repo.env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


# ---------------------------------------------------------------- a person at work


def test_on_a_feature_branch_files_branch_and_edits_of_a_person_stay_until_they_land_it(repo: Repo) -> None:
    sh(repo, "git switch -qc feature; echo mine > a.txt; echo mine > T2.txt")
    repo.plan(*map(own, ("T1", "T2", "T3")))
    feature, before = tip(repo, "feature"), home_of(repo)
    edits = f"{MAKES}\nif task == 'T1': P('a.txt').write_text('theirs\\n')"
    code, _, said = repo.run(repo.agent(edits))
    assert (code, repo.passed()) == (0, ["T1", "T2", "T3"]), said
    assert repo.commits(since="feature") == ["T3: task 3", "T2: task 2", "T1: task 1"]
    assert (tip(repo, "feature"), changed(before, home_of(repo))) == (feature, [])
    refused = repo.ralph("land")
    assert (refused.returncode, tip(repo, "feature")) == (4, feature) and "T2.txt" in refused.stdout
    assert [repo.read(name) for name in ("a.txt", "T2.txt")] == ["mine\n", "mine\n"]
    sh(repo, "rm T2.txt; git checkout -q a.txt")
    landed = repo.ralph("land")
    assert landed.returncode == 0, landed.stderr
    assert tip(repo, "feature") == tip(repo) and repo.read("a.txt") == "theirs\n"


SEATS = {
    "the branch of an option": ("git switch -qc mine", ["--branch", "mine"], {}),
    "the branch of the plan": ("git switch -qc mine", [], {"branchName": "mine"}),
    "ralph's own branch": ("git switch -qc ralph/p", [], {}),
    "ralph's own branch in another worktree": ("git worktree add -qb ralph/p ../tree", [], {}),
}


@pytest.mark.parametrize("seat", sample(SEATS, 2))
def test_a_branch_that_somebody_has_checked_out_is_refused_at_the_start(repo: Repo, seat: str) -> None:
    script, words, top = SEATS[seat]
    sh(repo, script)
    repo.plan(own("T1"), **top)
    before = home_of(repo)
    done = repo.ralph("run", "--agent", repo.agent(COUNTS), *words)
    assert done.returncode == 2 and "git switch" in done.stderr and "Traceback" not in done.stderr
    assert not changed(before, home_of(repo)) and not (repo.outside / "ran").exists()


def test_a_worktree_whose_folder_is_gone_is_nobodys_seat(repo: Repo) -> None:
    sh(repo, "git worktree add -qb ralph/p ../tree; rm -r ../tree")
    repo.plan(own("T1"))
    code, _, said = repo.run(repo.agent(MAKES))
    assert (code, repo.passed(), repo.has_landed("T1.txt")) == (0, ["T1"], True), said


WAITS = f"(OUT / 'on').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)\n{COUNTS}"


# What ends the wait for a free branch, and the run's exit status.
ENDS: dict[str, tuple[Callable[[Repo, subprocess.Popen[str]], object], int]] = {
    "they switch away": (lambda repo, night: sh(repo, "git switch -q -"), 0),
    "the run's time is up": (lambda repo, night: None, 4),
    "ralph stop": (lambda repo, night: repo.ralph("stop"), 3),
    "a signal": (lambda repo, night: night.terminate(), 143),
    "kill -9": (lambda repo, night: end(repo), -9),
}


@pytest.mark.parametrize(("how", "jobs"), sample(itertools.product(ENDS, ("1", "3")), 3))
def test_verified_work_waits_while_somebody_sits_on_the_branch(repo: Repo, how: str, jobs: str) -> None:
    """Nothing lands under their hands, and nobody is paid twice for it, whatever ends the wait."""
    ends, exit = ENDS[how]
    repo.plan(*map(own, ("T1", "T2", "T3")))
    limit = ["--max-hours", "5s"] if exit == 4 else []
    told = f"cat >> {repo.outside}/told"
    words = ("run", "--agent", repo.agent(WAITS), "--jobs", jobs, "--notify", told, *limit)
    night = repo.start(*words, first=LOOKS_OFTEN)
    repo.wait_for("../on")
    sh(repo, "git switch -q ralph/p; echo mine > a.txt")
    repo.write("../go", "")
    repo.wait_for("../told")
    work = repo.git("for-each-ref", "--format=%(objectname)", "refs/ralph").split()
    assert any(
        repo.git("ls-tree", "--name-only", commit, "--", "T1.txt", "T2.txt", "T3.txt") for commit in work
    )
    assert (tip(repo), repo.passed(), repo.read("a.txt")) == (tip(repo, "main"), [], "mine\n")
    ends(repo, night)
    said, _ = night.communicate(timeout=60)
    assert night.returncode == exit and "git switch -" in said and "! ;" not in said, said
    if exit:
        assert (tip(repo), repo.passed()) == (tip(repo, "main"), [])
        sh(repo, "git switch -q -")
        code, _, said = repo.run(repo.agent(WAITS))
        assert code == 0, said
    assert (repo.passed(), repo.read("a.txt")) == (["T1", "T2", "T3"], "mine\n"), said
    assert sorted(repo.read("../ran").split()) == ["T1", "T2", "T3"], said


def test_a_branch_with_an_equals_sign_in_its_name_lands(repo: Repo) -> None:
    repo.plan(own("T1"), branchName="ralph/a=b")
    code, _, said = repo.run(repo.agent(MAKES))
    assert (code, repo.passed(), repo.has_landed("T1.txt", "ralph/a=b")) == (0, ["T1"], True), said


# ---------------------------------------------------------------- marks that got lost

LOSES = {
    "checks the plan out": "git checkout -q prd.json",
    "stashes": "git stash -q",
    "saves an old buffer": "git show HEAD:prd.json > prd.json",
    "pulls another plan": "git show HEAD:prd.json > prd.json; git commit -qam x || true",
}


@pytest.mark.parametrize("deed", LOSES.values())
def test_a_pass_whose_commit_is_on_the_branch_stays_one_whatever_happens_to_the_plan(
    repo: Repo, deed: str
) -> None:
    repo.plan(own("T1"), own("T2"))
    repo.commit("plan")
    agent = repo.agent(COUNTS)
    assert repo.run(agent)[0] == 0
    sh(repo, deed)
    assert repo.passed() == []
    code, _, said = repo.run(agent)
    assert (code, repo.passed(), repo.read("../ran")) == (0, ["T1", "T2"], "T1 T2 "), said
    assert said.count("marked again") == 2


def test_a_pass_that_an_old_buffer_takes_back_at_night_is_marked_again(repo: Repo) -> None:
    repo.plan(own("T1"), own("T2"), own("T3"))
    home = str(repo.path / "prd.json")
    deed = f"old = P({home!r}).read_text().replace('true', 'false')\nif task == 'T2': P({home!r}).write_text(old)"
    code, _, said = repo.run(repo.agent(f"{COUNTS}\n{deed}"))
    assert (code, repo.passed(), repo.read("../ran")) == (0, ["T1", "T2", "T3"], "T1 T2 T3 "), said


def test_retry_opens_a_pass_for_good(repo: Repo) -> None:
    repo.plan(own("T1"))
    agent = repo.agent(COUNTS)
    assert repo.run(agent)[0] == 0
    assert repo.ralph("retry", "T1", "--answer", "once more").returncode == 0
    assert repo.passed() == []
    repo.run(agent, "--max-iterations", "1")
    assert repo.read("../ran") == "T1 T1 "


# ---------------------------------------------------------------- a branch that moves


def test_a_branch_that_was_squashed_into_main_begins_again_there_and_its_commits_stay(repo: Repo) -> None:
    repo.plan(own("T1"))
    agent = repo.agent(COUNTS)
    assert repo.run(agent)[0] == 0
    work = tip(repo)
    sh(
        repo,
        "git merge -q --squash ralph/p; git commit -qm squashed; echo later > a.txt; git commit -qam later",
    )
    assert repo.ralph("add", "T2", "--check", "grep -q good T2.txt").returncode == 0
    (added,) = [task["id"] for task in json.loads(repo.read("prd.json"))["userStories"] if task["id"] != "T1"]
    repo.write("prd.json", repo.read("prd.json").replace("T2.txt", f"{added}.txt"))
    code, _, said = repo.run(agent)
    assert (code, repo.read("../ran").split()) == (0, ["T1", added]), said
    assert tip(repo, "ralph/p^") == tip(repo, "main")
    assert work in repo.git("for-each-ref", "--format=%(objectname)", "refs/ralph/parked").split()


MOVES = {
    "reset": "git update-ref refs/heads/ralph/p main",
    "amended": "git update-ref refs/heads/ralph/p $(git commit-tree -p ralph/p^ -m mine ralph/p^{tree})",
    "rebased": "git commit -q --allow-empty -m main; git worktree add -q ../tree ralph/p; git -C ../tree rebase -q main; git worktree remove ../tree",
    "deleted": "git branch -qD ralph/p",
}


@pytest.mark.parametrize("how", sample(MOVES, 2))
def test_a_branch_that_lost_what_this_run_landed_ends_it_with_4_and_the_old_tip_is_parked(
    repo: Repo, how: str
) -> None:
    repo.plan(own("T1"), own("T2"))
    agent = repo.agent(f"if task == 'T2':\n    {WAITS.replace(chr(10), chr(10) + '    ')}\n{MAKES}")
    night = repo.start("run", "--agent", agent)
    repo.wait_for("../on")
    landed = tip(repo)
    sh(repo, MOVES[how])
    repo.write("../go", "")
    said, _ = night.communicate(timeout=60)
    assert night.returncode == 4 and "ralph/p" in said, said
    assert landed in repo.git("for-each-ref", "--format=%(objectname)", "refs/ralph/parked").split(), said


# ---------------------------------------------------------------- conflicts

ADDS_A_LINE = """
lines = P("deps.txt").read_text().splitlines()
if task not in lines:
    lines.append(task)
    (OUT / f"on-{task}").touch()
    while sum(name.startswith("on-") for name in os.listdir(OUT)) < JOBS: time.sleep(0.02)
elif MENDS:
    (OUT / f"conflict-{task}").write_text(prompt)
    lines = [line for line in lines if not line.startswith(("<<<<<<<", "=======", ">>>>>>>"))]
P("deps.txt").write_text("".join(f"{line}\\n" for line in lines))
(OUT / "ran").open("a").write(f"{task} ")
"""


def depends(*tasks: str) -> list[dict[str, object]]:
    return [{"id": task, "checks": [f"grep -qx {task} deps.txt"]} for task in tasks]


@pytest.mark.parametrize("jobs", [3, 8])
def test_tasks_at_once_that_add_a_line_to_one_file_take_at_most_one_more_session_each(
    repo: Repo, jobs: int
) -> None:
    repo.git("config", "merge.conflictStyle", "zdiff3")  # for a person's own merges
    repo.write("deps.txt", "first\n")
    repo.commit("dependencies")
    names = [f"T{number + 1}" for number in range(jobs)]
    repo.plan(*depends(*names))
    agent = repo.agent(f"MENDS, JOBS = True, {jobs}\n{ADDS_A_LINE}")
    code, _, said = repo.run(agent, "--jobs", str(jobs))
    assert (code, repo.passed()) == (0, names), said
    assert len(repo.read("../ran").split()) <= 2 * jobs
    assert sorted(repo.landed("deps.txt").split()) == [*names, "first"]
    asked = [path.read_text() for path in repo.outside.glob("conflict-*")]
    assert asked and all("deps.txt" in prompt and "conflict markers" in prompt for prompt in asked)


def test_markers_that_an_agent_leaves_are_red_and_cost_no_run_of_the_checks(repo: Repo) -> None:
    repo.write("deps.txt", "first\n")
    repo.commit("dependencies")
    repo.plan(*depends("T1", "T2", "T3"), limits={"attempts": 2})
    code, _, said = repo.run(
        repo.agent(f"MENDS, JOBS = attempt > 1, 3\n{ADDS_A_LINE}"), "--jobs", "3", timeout=90
    )
    assert (code, repo.passed()) == (0, ["T1", "T2", "T3"]), said
    red = [record for record in repo.records("verdict") if record["verdict"] == "failed"]
    assert red and all(
        "conflict markers" in json.dumps(record) and not record.get("checks") for record in red
    ), red
    assert sorted(repo.landed("deps.txt").split()) == ["T1", "T2", "T3", "first"]


KEPT = {
    "a lock file": ("uv.lock", b"a = 1\n"),
    "a lock file in a folder": ("packages/web/package-lock.json", b"{}\n"),
    "a file that has no lines": ("logo.png", b"\0\1"),
}


@pytest.mark.parametrize("what", sample(KEPT, 3))
def test_what_git_cannot_mark_stands_as_the_branch_has_it_and_the_prompt_says_so(
    repo: Repo, what: str
) -> None:
    name, first = KEPT[what]
    repo.write(name, "").write_bytes(first)
    repo.commit("made by a tool")
    repo.plan(*({"id": task, "checks": [f"grep -q {task} {name}"]} for task in ("T1", "T2")))
    makes = f"""
        (OUT / f"on-{{task}}").touch()
        while not (OUT / "on-T1").exists() or not (OUT / "on-T2").exists(): time.sleep(0.02)
        with open({name!r}, "rb") as file: found = file.read()
        if found != {first!r}:
            (OUT / "second").write_text(prompt)
            (OUT / "found").write_text(repr(found))
        with open({name!r}, "wb") as file: file.write(found + task.encode() + b"\\n")
    """
    code, _, said = repo.run(repo.agent(makes), "--jobs", "2")
    assert (code, repo.passed(), len(repo.records("start"))) == (0, ["T1", "T2"], 3), said
    assert repo.read("../found") == repr(first + repo.records("verdict")[0]["task"].encode() + b"\n")
    assert name in repo.read("../second") and "git show" in repo.read("../second")


# ---------------------------------------------------------------- a plan that breaks at night

SEES = "(OUT / f'on-{task}').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)\n"


# How a person leaves the plan, `whole` being how it was.
BREAKS = {
    "cut off": "head -c 100 ../whole > prd.json",
    "gone": "rm prd.json",
    "a FIFO": "rm prd.json; mkfifo prd.json",
    "a merge under way": "{ echo '<<<<<<< HEAD'; cat ../whole; echo =======; cat ../whole; } > prd.json",
    "two tasks with one id": "sed s/T3/T1/ ../whole > prd.json",
    "no tasks": """echo '{"userStories": []}' > prd.json""",
}


@pytest.mark.parametrize(("how", "mended"), [("cut off", False), *((how, True) for how in sample(BREAKS, 4))])
def test_a_plan_that_breaks_at_night_is_waited_for(repo: Repo, how: str, mended: bool) -> None:
    repo.plan(*map(own, ("T1", "T2", "T3")))
    limit = [] if mended else ["--max-hours", "5s"]
    words = ("run", "--jobs", "2", "--agent", repo.agent(f"{SEES}{COUNTS}"), *limit)
    night = repo.start(*words, "--notify", f"cat >> {repo.outside}/told", first=LOOKS_OFTEN)
    for task in ("T1", "T2"):
        repo.wait_for(f"../on-{task}")
    sh(repo, f"cp prd.json ../whole; {BREAKS[how]}")
    repo.write("../go", "")
    repo.wait_for("../told")
    until = time.monotonic() + 20
    while len(repo.commits()) < 2:  # those under way land
        assert time.monotonic() < until
        time.sleep(0.02)
    status = repo.ralph("status")
    for word in ("prd.json", "T1", "T3", "task 3"):
        assert word in status.stdout + status.stderr
    assert not (repo.outside / "on-T3").exists()
    if mended:
        sh(repo, "rm -f prd.json; mv ../whole prd.json")
    said, _ = night.communicate(timeout=60)
    assert "prd.json" in said and "Traceback" not in said
    assert night.returncode == (0 if mended else 3), said
    if not mended:
        assert repo.read("prd.json") == repo.read("../whole")[:100]
        assert repo.ralph("run", "--agent", "true").returncode == 2
        sh(repo, "mv ../whole prd.json")
        assert repo.run(repo.agent(COUNTS))[0] == 0
    assert repo.passed() == ["T1", "T2", "T3"] and sorted(repo.read("../ran").split()) == repo.passed()


# ---------------------------------------------------------------- scripts that hear of it


@pytest.mark.parametrize(
    ("words", "code", "seen"),
    [
        ("tell 'hello from afar'", 4, "hello from afar"),
        ("retry T1 --answer 'once more'", 4, "once more"),
        ("stop", 3, "stop"),
    ],
)
def test_a_notify_script_may_steer_the_run(repo: Repo, words: str, code: int, seen: str) -> None:
    """It does so once, when T1 is blocked."""
    repo.plan({"checks": ["false"]}, own("T2"), limits={"attempts": 1})
    ralph = f"{sys.executable} -m ralph {words} >> {repo.outside}/heard 2>&1"
    script = repo.program(
        "../notify",
        f"test -e {repo.outside}/heard || {{ {ralph}; echo ended with $?; }} >> {repo.outside}/heard 2>&1",
    )
    agent = repo.agent(f"(OUT / f'prompt-{{task}}-{{attempt}}').write_text(prompt)\n{MAKES}")
    ended, summary, said = repo.run(agent, "--notify", str(script))
    assert "ended with 0" in repo.read("../heard"), repo.read("../heard")
    assert ended == code, said
    assert seen in repo.read("progress.txt") + repo.read("prd.json") + said + json.dumps(summary)
