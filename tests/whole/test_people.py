"""People: what they do to plan, notes and files while a plan is under way counts, and
is not lost."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import WHOLE, Repo, rows, sample
from tests.oracle import BRANCH, fresh_clone_is_green, told
from tests.scripts import (
    LIMIT,
    MAKES,
    RESULT,
    named,
    own,
    plan,
    speaker,
    wait_for_records,
)

EDITS = """
import json, pathlib, shutil, sys
P = pathlib.Path
d = json.loads(P('prd.json').read_text())
t = d['userStories']
CODE
P('prd.json').write_text(json.dumps(d))
"""

# T3 is blocked, T1 has passed, T2 has failed once and its half work lies in the tree.
# What a person then does, and the verdicts of a next run in which everything works; a
# clone is red for a pass that a person gives.
BETWEEN_RUNS = rows(r"""
nothing :: pass :: T2 passed
takes a pass back :: t[1].update(passes=False, checks=['grep -q again T1.txt']) :: T1 passed, T2 passed
gives a pass :: t[2]['passes'] = True :: T2 passed
takes a block away :: del t[0]['blocked'] :: T3 passed, T2 passed
adds a task :: t.append({'id': 'T4', 'title': 'x', 'checks': ['test -f T4.txt']}) :: T2 passed, T4 passed
deletes a task :: del t[2] :: none
turns the order :: del t[0]['blocked']; t.reverse() :: T2 passed, T3 passed
writes another plan with the same ids :: for n in t: n.update(title='new', passes=False, blocked=None, checks=['grep -q better ' + n['id'] + '.txt']) :: T3 failed, T3 passed, T1 failed, T1 passed, T2 failed, T2 passed
deletes progress.txt :: P('progress.txt').unlink() :: T1 passed, T2 passed
adds to progress.txt :: P('progress.txt').open('a').write('my own words\n') :: T2 passed
deletes .ralph :: shutil.rmtree('.ralph') :: T2 passed
deletes .git/ralph :: shutil.rmtree('.git/ralph') :: T2 passed
""")


@pytest.fixture(scope="module")
def under_way(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = Repo(tmp_path_factory.mktemp("night"))
    tasks = [{"id": task, **own(task)} for task in ("T3", "T1", "T2")]
    repo.plan(*tasks, limits={"attempts": 2})
    half = repo.agent("P(f'half-{task}.txt').touch()\nif task == 'T1': " + MAKES)
    verdicts = "3: T3 failed, T3 failed, T1 passed, T2 failed"
    repo.judges(verdicts, half, "--max-iterations", "4")
    repo.write("mine.txt", "mine\n")
    return repo


@pytest.mark.parametrize("deed", sample(BETWEEN_RUNS, 6))
def test_what_a_person_does_between_runs_counts(
    under_way: Repo, tmp_path: Path, deed: str
) -> None:
    code, wanted = BETWEEN_RUNS[deed]
    repo = under_way.copy(tmp_path)
    edit(repo, code)
    notes = repo.path / "progress.txt"
    already = len(repo.records("verdict")) if notes.exists() else 0
    works = "P(f'{task}.txt').write_text('good again' + ' and better' * (attempt == 2))"
    ended = repo.ralph("run", "-q", "--agent", repo.agent(works, "works"))
    verdicts = repo.verdicts()[already:] or ["none"]
    assert ", ".join(verdicts) == wanted, ended.stderr
    tasks = json.loads(repo.read("prd.json"))["userStories"]
    left = [task["id"] for task in tasks if not task["passes"]]
    assert left == (["T3"] if ended.returncode else []), ended.stderr
    assert repo.read("mine.txt") == "mine\n" and repo.has_landed("T1.txt")
    kept = "my own words" in repo.read("progress.txt")
    assert kept == (deed == "adds to progress.txt")


def edit(repo: Repo, code: str) -> None:
    """A person's Python at home, with the plan as `d` and its tasks as `t`."""
    repo.sh('$PYTHON -c "$CODE"', CODE=EDITS.replace("CODE", code))


def test_a_task_that_a_person_adds_while_the_loop_runs_is_worked(repo: Repo) -> None:
    repo.plan("false", limits={"attempts": 1})
    added = "t.append({'id': 'T2', 'title': 'x', 'checks': ['test -f T2.txt']}) if len(t) == 1 else 0"
    deed = repo.write("../deed.py", EDITS.replace("CODE", added))
    notify = f"{sys.executable} {deed}"
    repo.judges("4: T1 failed, T2 passed", repo.agent(MAKES), "--notify", notify)


# What people do while T2 is under way, in a shell at home; and, behind the arrows, what
# must then be seen there at the end.
AT_WORK = r"""
## edits, stages, stashes, commits, amends
echo stashed > c.txt; git stash -q
echo main > c.txt; git commit -qam first; git commit -q --amend -m mine
git gc -q --prune=now
echo mine > a.txt; echo mine > new.txt; echo mine > T2.txt
echo mine > b.txt; git add b.txt; echo more >> b.txt; git config user.name Mine; touch .git/index.lock
=> cat a.txt new.txt T2.txt b.txt => mine mine mine mine more
=> git show :b.txt => mine
=> ls .git/index.lock => .git/index.lock
=> git show -s --format=%s main => mine
=> git symbolic-ref HEAD => refs/heads/main
=> git show stash:c.txt => stashed
=> git diff --cached --name-only => b.txt
=> git config user.name => Mine
=> git stash list | wc -l => 1
## switches, and writes the plan
git switch -qc mine; echo mine > a.txt; git commit -qam mine; echo more > a.txt
$PYTHON ../deed.py 'd["mine"] = "mine"; of["T2"].update(description="mine", notes="mine"); of["T9"]["passes"] = True'
cp prd.json ../whole; head -c 100 ../whole > prd.json; sleep 0.7; cp ../whole prd.json
$PYTHON ../deed.py 't.append({"id": "T3", "title": "x", "checks": ["grep -q good T3.txt"]})'
=> git symbolic-ref HEAD => refs/heads/mine
=> git show -s --format=%s => mine
=> cat a.txt => more
=> git show ralph/p:T3.txt => good
=> grep -o mine prd.json | wc -l => 4
=> grep -o 'passes.: true' prd.json | wc -l => 4
=> grep -c '| T9 .*passed' progress.txt || true => 0
## switches to ralph's branch
git switch -q ralph/p; echo mine > a.txt; echo mine > new.txt
echo '(git show -s --format=%s; git status --porcelain) > ../seen; git switch -q -' > ../leave
=> cat ../seen => T1: task 1 M a.txt ?? new.txt
=> git symbolic-ref HEAD => refs/heads/main
=> cat a.txt new.txt => mine mine
=> git status --porcelain => M a.txt ?? new.txt
=> git diff --cached --name-only =>
## commits to ralph's branch in a worktree
git worktree add -q ../tree ralph/p; echo 'git -C ../tree switch -q --detach' > ../leave
cd ../tree; echo mine > mine.txt; git add -A; git commit -qm mine; echo mine > a.txt
=> git log --format=%s ralph/p | grep mine => mine
=> cat ../tree/mine.txt ../tree/a.txt => mine mine
=> ls ../tree/T2.txt || true => ls: cannot access '../tree/T2.txt': No such file or directory
=> git -C ../tree status --porcelain => M a.txt
=> git show ralph/p:mine.txt => mine
=> git symbolic-ref HEAD => refs/heads/main
## commits the same file to ralph's branch
commit mine.txt ralph/p '-p ralph/p'; commit T2.txt ralph/p '-p ralph/p'
=> git log --format=%s ralph/p | grep mine => mine T2.txt mine mine.txt
=> git show ralph/p:T2.txt | head -1 => mine
=> git show ralph/p:mine.txt => mine
## deletes ralph's branch
git branch -qD ralph/p
## rewrites ralph's branch
commit mine.txt main
=> git log --format=%s ralph/p | tail -1 => mine mine.txt
=> git show ralph/p:mine.txt => mine
## takes ralph's branch back
git update-ref refs/heads/ralph/p main
=> git merge-base main ralph/p => MAIN
"""
ENDS = (
    "deletes ralph's branch",
    "rewrites ralph's branch",
    "takes ralph's branch back",
)
WHENS = (
    "the agent works",
    "checks run",
    "it waits for the provider",
    "no attempt is under way",
    "it is dead",
)

AGENT = """
on, go = OUT / "on", OUT / "go"
if task == "T2" and not on.exists():
    if WHEN in ("the agent works", "it is dead"):
        on.touch()
        while not go.exists(): time.sleep(0.02)
    if WHEN == "it waits for the provider":
        on.touch()
        print(LIMIT, flush=True)
        sys.exit(1)
said = P(f"{task}.txt").read_text() if P(f"{task}.txt").exists() else ""
kept = [line for line in said.splitlines() if line[:7] not in ("<<<<<<<", "=======", ">>>>>>>", "good")]
P(f"{task}.txt").write_text("\\n".join([*kept, "good", ""]))
print(RESULT, flush=True)
"""
WAITS = "[ -e {0}/on ] || {{ touch {0}/on; while [ ! -e {0}/go ]; do sleep 0.02; done; exit; }}"
# Who is told that work waits for them to switch away from the branch does so.
LEAVES = "[ ! -e {0}/leave ] || {{ sh -e {0}/leave; rm {0}/leave; }}"


# What the table calls: a commit of this file on ralph's branch, on top of that tree.
COMMIT = """
commit() {
  export GIT_INDEX_FILE=../mine.index; git read-tree $2
  git update-index --add --cacheinfo 100644,$(echo mine | git hash-object -w --stdin),$1
  git update-ref refs/heads/ralph/p $(git commit-tree $3 -m "mine $1" $(git write-tree)); unset GIT_INDEX_FILE
}
"""


def at_work() -> dict[str, tuple[str, dict[str, str]]]:
    """Each deed's script, and what is seen, by command."""
    found = {}
    for block in AT_WORK.split("\n## ")[1:]:
        name, _, lines = block.partition("\n")
        script, *seen = re.split("^=> ", lines, flags=re.MULTILINE)
        looks = (look.rstrip("\n").split(" =>") for look in seen)
        found[name] = (script, {look: words.strip() for look, words in looks})
    return found


DEEDS = at_work()


def under_way_when(repo: Repo, when: str) -> list[str]:
    """A night that stops at T2 for a person, at that time; the words that start it."""
    for name in ("b.txt", "c.txt"):
        repo.write(name, "b\n")
    repo.write(".gitignore", "prd.json\nprogress.txt\n.ralph/\n")
    repo.commit("more")
    edits = EDITS.replace("CODE", "of = {x['id']: x for x in t}; exec(sys.argv[1])")
    repo.write("../deed.py", edits)
    waits, leaves = WAITS.format(repo.outside), LEAVES.format(repo.outside)
    in_check = waits if when == "checks run" else ""
    good = "grep -q good T2.txt"
    check = repo.program("../check", f"{good} || exit 1\n{in_check}\n{good}")
    first = "grep -q good T1.txt"
    checks = {"T1": first, "T0": "false", "T2": str(check), "T9": first}
    between = waits
    if when != "no attempt is under way":
        between = ""
        del checks["T0"]
    told = repo.program("../notify", f"{between}\n{leaves}")
    plan(repo, *named(checks), branchName=BRANCH, limits={"attempts": 1})
    names = {"WHEN": when, "LIMIT": LIMIT, "RESULT": RESULT}
    words = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    agent = speaker(repo, words + AGENT)
    return ["run", "--agent", agent, "--max-wait", "2s", "--notify", str(told)]


# One deed at each of these times; `make test-crash` does all of them at all times.
BOTH = [
    (deed, when)
    for d, deed in enumerate(DEEDS)
    for w, when in enumerate(WHENS)
    if WHOLE or (d + w) % len(DEEDS) == 0
]


@pytest.mark.parametrize(("deed", "when"), BOTH)
def test_nothing_is_lost_of_what_a_person_does_while(
    repo: Repo, deed: str, when: str
) -> None:
    words = under_way_when(repo, when)
    process = repo.start(*words)
    repo.wait_for("../on")
    if when == "it waits for the provider":
        wait_for_records(repo, "wait", 1)
    dead = when == "it is dead"
    if dead:
        repo.kill()
        process.communicate(timeout=30)
    main = repo.git("rev-parse", "main").strip()
    script, seen = DEEDS[deed]
    repo.sh(COMMIT + script)
    repo.write("../go", "")
    if dead:
        if (repo.outside / "leave").exists():
            refused = repo.ralph(*words)
            assert refused.returncode == 2 and "switch away: git" in refused.stderr
            repo.sh("sh -e ../leave; rm ../leave")
        process = repo.start(*words)
    said, _ = process.communicate(timeout=60)
    code = process.returncode
    assert "Traceback" not in said and repo.gone_within(2), said
    for command, wanted in seen.items():
        shown = repo.sh(f"({command}) || true").split()
        assert " ".join(shown) == wanted.replace("MAIN", main), (command, said)
    repo.git("fsck", "--no-dangling", "--connectivity-only")
    if deed in ENDS and not (dead and code == 0):
        assert code == 4 and BRANCH in said, said
        refs = ("refs/ralph/parked", "refs/heads/ralph")
        found = repo.git("for-each-ref", "--format=%(refname)", *refs).split()
        shows = "for ref; do git show $ref:T1.txt; done || true"
        assert "good" in repo.sh(f"set -- {' '.join(found)}; {shows}"), said
    else:
        assert code == (4 if when == "no attempt is under way" else 0), said
        assert {"T1", "T2"} <= {*repo.passed()}, said
        checks = ["grep -q good T1.txt", "grep -q good T2.txt"]
        assert fresh_clone_is_green(repo, BRANCH, checks)


def test_a_pass_that_appears_while_its_task_is_worked_is_set_back_and_named(
    repo: Repo,
) -> None:
    there = {"checks": ["test -f a.txt"]}
    repo.plan(own("T1"), there, limits={"attempts": 1})
    waits = "(OUT / 'on').touch()\nwhile not (OUT / 'go').exists(): time.sleep(0.02)"
    process = repo.start("run", "--agent", repo.agent(waits))
    repo.wait_for("../on")
    edit(repo, "t[0]['passes'] = t[1]['passes'] = True")
    repo.write("../go", "")
    said, _ = process.communicate(timeout=30)
    assert (process.returncode, repo.passed()) == (4, ["T2"]), said
    assert "T1" in told(repo, "T1") and "prd.json" in told(repo, "T1")


def test_a_persons_untracked_and_modified_files_stay_and_are_no_part_of_the_work(
    repo: Repo,
) -> None:
    repo.write("b.txt", "b\n")
    repo.commit("b")
    repo.git("update-index", "--assume-unchanged", "a.txt")
    repo.plan("grep -q good T1.txt && grep -qx a a.txt && grep -qx b b.txt")
    repo.sh("echo mine | tee a.txt b.txt > mine.txt")
    before = repo.git("status", "--porcelain")
    printed = repo.ends("0: T1", repo.agent(MAKES)).printed
    assert "the agent will not see them: b.txt, mine.txt" in printed
    assert repo.sh("cat a.txt b.txt mine.txt") == "mine\n" * 3
    assert repo.git("status", "--porcelain") == f"{before}?? progress.txt\n"
    assert repo.git("diff", "--name-only", "main", "ralph/p") == "T1.txt\n"


def test_a_persons_interrupts_block_no_task(repo: Repo) -> None:
    repo.plan("test -f x")
    agent = repo.agent("(OUT / 'begun').touch(); time.sleep(600)")
    for _ in range(4):
        loop = repo.start("run", "--agent", agent)
        repo.wait_for("../begun")
        repo.sh("rm ../begun")
        for _ in range(2):
            loop.send_signal(signal.SIGINT)
            time.sleep(0.2)
        loop.wait(30)
    assert "blocked" not in repo.read("prd.json")
