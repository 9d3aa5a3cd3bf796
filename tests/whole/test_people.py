"""People: what they do to plan, notes and files while a plan is under way counts, and
is not lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import WHOLE, Repo, sample
from tests.oracle import BRANCH, fresh_clone_is_green, told
from tests.scripts import LIMIT, MAKES, RESULT, plan, speaker

WORKS = 'P(f"{task}.txt").write_text("good")'
EDIT = "import json, pathlib, shutil\nP = pathlib.Path\nd = json.loads(P('prd.json').read_text())\nt = d['userStories']\n"
SAVE = "\nP('prd.json').write_text(json.dumps(d))"

# T3 is blocked, T1 has passed, T2 has failed once and its half work lies in the tree.
# What a person then does, and the verdicts of a next run in which everything works.
BETWEEN_RUNS = {
    "nothing": ("", "T2 passed"),
    "takes a pass back": ("t[1].update(passes=False, checks=['grep -q again T1.txt'])" + SAVE, "T1 passed, T2 passed"),
    # a clone is red for it
    "gives a pass": ("t[2]['passes'] = True" + SAVE, "T2 passed"),
    "takes a block away": ("del t[0]['blocked']" + SAVE, "T3 passed, T2 passed"),
    "adds a task": ("t.append({'id': 'T4', 'title': 'x', 'checks': ['test -f T4.txt']})" + SAVE, "T2 passed, T4 passed"),
    "deletes a task": ("del t[2]" + SAVE, ""),
    "turns the order": ("del t[0]['blocked']; t.reverse()" + SAVE, "T2 passed, T3 passed"),
    "writes another plan with the same ids": ("for n in t: n.update(title='new', passes=False, blocked=None, checks=['grep -q better ' + n['id'] + '.txt'])" + SAVE, "T3 failed, T3 passed, T1 failed, T1 passed, T2 failed, T2 passed"),
    "deletes progress.txt": ("P('progress.txt').unlink()", "T1 passed, T2 passed"),
    "adds to progress.txt": ("P('progress.txt').open('a').write('my own words\\n')", "T2 passed"),
    "deletes .ralph": ("shutil.rmtree('.ralph')", "T2 passed"),
    "deletes .git/ralph": ("shutil.rmtree('.git/ralph')", "T2 passed"),
}  # fmt: skip


@pytest.fixture(scope="module")
def under_way(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    repo = Repo(tmp_path_factory.mktemp("night"))
    tasks = [
        {"id": task, "checks": [f"grep -q good {task}.txt"]}
        for task in ("T3", "T1", "T2")
    ]
    repo.plan(*tasks, limits={"attempts": 2})
    half = repo.agent("P(f'half-{task}.txt').touch()\nif task == 'T1': " + WORKS)
    assert repo.run(half, "--max-iterations", "4")[0] == 3
    assert repo.verdicts() == ["T3 failed", "T3 failed", "T1 passed", "T2 failed"]
    repo.write("mine.txt", "mine\n")
    return repo


@pytest.mark.parametrize("deed", sample(BETWEEN_RUNS, 6))
def test_what_a_person_does_between_runs_counts(
    under_way: Repo, tmp_path: Path, deed: str
) -> None:
    code, wanted = BETWEEN_RUNS[deed]
    repo = under_way.copy(tmp_path)
    repo.write("../deed.py", EDIT + code)
    assert repo.python("../deed.py") == 0
    already = (
        len(repo.records("verdict")) if (repo.path / "progress.txt").exists() else 0
    )
    works = "P(f'{task}.txt').write_text('good again' + ' and better' * (attempt == 2))"
    ended = repo.ralph("run", "-q", "--agent", repo.agent(works, "works"))
    assert ended.returncode in (0, 4), ended.stderr
    assert ", ".join(repo.verdicts()[already:]) == wanted, ended.stderr
    left = [
        task
        for task in json.loads(repo.read("prd.json"))["userStories"]
        if not task["passes"]
    ]
    assert [task["id"] for task in left] == (["T3"] if ended.returncode else [])
    assert repo.read("mine.txt") == "mine\n"
    assert ("my own words" in repo.read("progress.txt")) == (
        deed == "adds to progress.txt"
    )
    assert "T1.txt" in repo.git("ls-tree", "--name-only", BRANCH).split()


def test_a_task_that_a_person_adds_while_the_loop_runs_is_worked(repo: Repo) -> None:
    repo.plan({"checks": ["false"]}, limits={"attempts": 1})
    added = "t.append({'id': 'T2', 'title': 'x', 'checks': ['test -f T2.txt']}) if len(t) == 1 else 0"
    repo.write("../deed.py", EDIT + added + SAVE)
    code, _, _ = repo.run(repo.agent(WORKS), "--notify", f"{sys.executable} ../deed.py")
    assert (code, repo.verdicts()) == (4, ["T1 failed", "T2 passed"])


# What people do while T2 is under way, in a shell at home; and what must then be seen
# there at the end.
COMMIT = """
export GIT_INDEX_FILE=../mine.index; git read-tree ralph/p
git update-index --add --cacheinfo 100644,$(echo mine | git hash-object -w --stdin),{0}
git update-ref refs/heads/ralph/p $(git commit-tree -p ralph/p -m 'mine {0}' $(git write-tree)); unset GIT_INDEX_FILE
"""
REWRITE = (
    COMMIT.format("mine.txt")
    .replace("read-tree ralph/p", "read-tree main")
    .replace("-p ralph/p -m 'mine mine.txt'", "-m mine")
)
AT_WORK: dict[str, tuple[str, dict[str, str]]] = {
    "edits, stages, stashes, commits, amends": (
        """
        echo stashed > c.txt; git stash -q
        echo main > c.txt; git commit -qam first; git commit -q --amend -m mine
        git gc -q --prune=now
        echo mine > a.txt; echo mine > new.txt; echo mine > T2.txt
        echo mine > b.txt; git add b.txt; echo more >> b.txt; git config user.name Mine; touch .git/index.lock
        """,
        {"cat a.txt new.txt T2.txt b.txt": "mine mine mine mine more", "git show :b.txt": "mine", "ls .git/index.lock": ".git/index.lock",
         "git show -s --format=%s main": "mine", "git symbolic-ref HEAD": "refs/heads/main", "git show stash:c.txt": "stashed",
         "git diff --cached --name-only": "b.txt", "git config user.name": "Mine", "git stash list | wc -l": "1"},
    ),
    "switches, and writes the plan": (
        """
        git switch -qc mine; echo mine > a.txt; git commit -qam mine; echo more > a.txt
        $PYTHON ../deed.py 'd["mine"] = "mine"; of["T2"].update(title="mine", notes="mine"); of["T9"]["passes"] = True'
        cp prd.json ../whole; head -c 100 ../whole > prd.json; sleep 0.7; cp ../whole prd.json
        $PYTHON ../deed.py 't.append({"id": "T3", "title": "x", "checks": ["grep -q good T3.txt"]})'
        """,
        {"git symbolic-ref HEAD": "refs/heads/mine", "git show -s --format=%s": "mine", "cat a.txt": "more", "git show ralph/p:T3.txt": "good",
         "grep -o mine prd.json | wc -l": "4", "grep -o 'passes.: true' prd.json | wc -l": "4", "grep -c '| T9 .*passed' progress.txt || true": "0"},
    ),
    "switches to ralph's branch": (
        """
        git switch -q ralph/p; echo mine > a.txt; echo mine > new.txt
        echo '(git show -s --format=%s; git status --porcelain) > ../seen; git switch -q -' > ../leave
        """,
        {"cat ../seen": "T1: task 1 M a.txt ?? new.txt", "git symbolic-ref HEAD": "refs/heads/main", "cat a.txt new.txt": "mine mine",
         "git status --porcelain": "M a.txt ?? new.txt", "git diff --cached --name-only": ""},
    ),
    "commits to ralph's branch in a worktree": (
        """
        git worktree add -q ../tree ralph/p; echo 'git -C ../tree switch -q --detach' > ../leave
        cd ../tree; echo mine > mine.txt; git add -A; git commit -qm mine; echo mine > a.txt
        """,
        {"git log --format=%s ralph/p | grep mine": "mine", "cat ../tree/mine.txt ../tree/a.txt": "mine mine", "ls ../tree/T2.txt || true": "ls: cannot access '../tree/T2.txt': No such file or directory",
         "git -C ../tree status --porcelain": "M a.txt", "git show ralph/p:mine.txt": "mine", "git symbolic-ref HEAD": "refs/heads/main"},
    ),
    "commits the same file to ralph's branch": (
        COMMIT.format("mine.txt") + COMMIT.format("T2.txt"),
        {"git log --format=%s ralph/p | grep mine": "mine T2.txt mine mine.txt", "git show ralph/p:T2.txt | head -1": "mine", "git show ralph/p:mine.txt": "mine"},
    ),
    "deletes ralph's branch": ("git branch -qD ralph/p", {}),
    "rewrites ralph's branch": (
        REWRITE, {"git log --format=%s ralph/p | tail -1": "mine", "git show ralph/p:mine.txt": "mine"}
    ),
    "takes ralph's branch back": ("git update-ref refs/heads/ralph/p main", {"git merge-base main ralph/p": "MAIN"}),
}  # fmt: skip
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
on, go = P(OUT, "on"), P(OUT, "go")
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


def under_way_when(repo: Repo, when: str) -> list[str]:
    """A night that stops at T2 for a person, at that time; the words that start it."""
    for name in ("b.txt", "c.txt"):
        repo.write(name, "b\n")
    repo.write(".gitignore", "prd.json\nprogress.txt\n.ralph/\n")
    repo.commit("more")
    (repo.path / "../deed.py").write_text(
        EDIT + "import sys\nof = {x['id']: x for x in t}\nexec(sys.argv[1])" + SAVE
    )
    waits = WAITS.format(repo.outside)
    repo.program(
        "../check",
        f"grep -q good T2.txt || exit 1\n{waits if when == 'checks run' else ''}\ngrep -q good T2.txt",
    )
    leaves = LEAVES.format(repo.outside)
    repo.program(
        "../notify",
        f"{waits}\n{leaves}" if when == "no attempt is under way" else leaves,
    )
    tasks = [
        {"id": "T1", "checks": ["grep -q good T1.txt"]},
        *(
            [{"id": "T0", "checks": ["false"]}]
            if when == "no attempt is under way"
            else []
        ),
        {"id": "T2", "checks": [f"{repo.outside}/check"]},
        {"id": "T9", "checks": ["grep -q good T1.txt"]},
    ]
    plan(repo, *tasks, branchName=BRANCH, limits={"attempts": 1})
    names = {"OUT": str(repo.outside), "WHEN": when, "LIMIT": LIMIT, "RESULT": RESULT}
    words = "".join(f"{name} = {value!r}\n" for name, value in names.items())
    agent = speaker(repo, words + AGENT)
    return [
        "run",
        "--agent",
        agent,
        "--max-wait",
        "2s",
        "--notify",
        f"{repo.outside}/notify",
    ]


# One deed at each of these times; `make test-crash` does all of them at all times.
BOTH = [
    (deed, when)
    for d, deed in enumerate(AT_WORK)
    for w, when in enumerate(WHENS)
    if WHOLE or (d + w) % len(AT_WORK) == 0
]


@pytest.mark.parametrize(("deed", "when"), BOTH)
def test_nothing_is_lost_of_what_a_person_does_while(
    repo: Repo, deed: str, when: str
) -> None:
    words = under_way_when(repo, when)
    process = repo.start(*words)
    repo.wait_for("../on")
    deadline = time.monotonic() + 20
    while when == "it waits for the provider" and not repo.records("wait"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    if when == "it is dead":
        repo.kill()
        process.communicate(timeout=30)
    main = repo.git("rev-parse", "main").strip()
    script, seen = AT_WORK[deed]
    done = subprocess.run(
        ["sh", "-ec", script],
        cwd=repo.path,
        env={**repo.env, "PYTHON": sys.executable},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    repo.write("../go", "")
    if when == "it is dead":
        if (repo.outside / "leave").exists():
            refused = repo.ralph(*words)
            assert (
                refused.returncode == 2
                and "switch away: git switch -" in refused.stderr
            ), refused.stderr
            left = "sh -e ../leave; rm ../leave"
            assert (
                subprocess.run(
                    ["sh", "-ec", left], cwd=repo.path, env=repo.env
                ).returncode
                == 0
            )
        process = repo.start(*words)
    said, _ = process.communicate(timeout=60)
    assert "Traceback" not in said and repo.gone_within(2), said

    def shows(command: str) -> str:
        shown = subprocess.run(
            ["sh", "-c", command],
            cwd=repo.path,
            env=repo.env,
            capture_output=True,
            text=True,
        )
        return " ".join((shown.stdout + shown.stderr).split())

    assert {command: shows(command) for command in seen} == {
        k: v.replace("MAIN", main) for k, v in seen.items()
    }, said
    repo.git("fsck", "--no-dangling", "--connectivity-only")
    if deed in ENDS:
        assert process.returncode == 4 or (
            when == "it is dead" and process.returncode == 0
        ), said
        assert BRANCH in said, said
        refs = repo.git(
            "for-each-ref",
            "--format=%(refname)",
            "refs/ralph/parked",
            "refs/heads/ralph",
        ).split()
        assert "good" in [shows(f"git show {ref}:T1.txt") for ref in refs], (refs, said)
    if process.returncode == 0 or deed not in ENDS:
        assert process.returncode == (4 if when == "no attempt is under way" else 0), (
            said
        )
        tasks = {"T1": "T1.txt", "T2": "T2.txt"}
        assert {*tasks} <= {*repo.passed()}, said
        assert fresh_clone_is_green(
            repo, BRANCH, [f"grep -q good {name}" for name in tasks.values()]
        )


def test_a_pass_that_appears_while_its_task_is_worked_is_set_back_and_named(
    repo: Repo,
) -> None:
    repo.plan(
        {"checks": ["test -f T1.txt"]},
        {"checks": ["test -f a.txt"]},
        limits={"attempts": 1},
    )
    waits = f"P({str(repo.outside)!r}, 'on').touch()\nwhile not P({str(repo.outside)!r}, 'go').exists(): time.sleep(0.02)"
    process = repo.start(
        "run",
        "--agent",
        repo.agent(f"if task == 'T1':\n    {waits.replace(chr(10), chr(10) + '    ')}"),
    )
    repo.wait_for("../on")
    repo.write("../deed.py", EDIT + "t[0]['passes'] = t[1]['passes'] = True" + SAVE)
    assert repo.python("../deed.py") == 0
    repo.write("../go", "")
    said, _ = process.communicate(timeout=30)
    assert (process.returncode, repo.passed()) == (4, ["T2"]), said
    assert "T1" in told(repo, "T1") and "prd.json" in told(repo, "T1")


def test_a_persons_untracked_and_modified_files_stay_and_are_no_part_of_the_work(
    repo: Repo,
) -> None:
    repo.git("update-index", "--assume-unchanged", "a.txt")
    repo.write("b.txt", "b\n")
    repo.git("add", "b.txt")
    repo.git("commit", "-qm", "b")
    repo.plan(
        {"checks": ["grep -q good T1.txt && grep -qx a a.txt && grep -qx b b.txt"]}
    )
    for name in ("a.txt", "b.txt", "mine.txt"):
        repo.write(name, "mine\n")
    before = repo.git("status", "--porcelain")
    code, _, printed = repo.run(repo.agent(MAKES))
    assert (code, repo.passed()) == (0, ["T1"]), printed
    said = next(
        line for line in printed.splitlines() if "the agent will not see" in line
    )
    assert "b.txt" in said and "mine.txt" in said and "prd.json" not in said
    assert [repo.read(name) for name in ("a.txt", "b.txt", "mine.txt")] == [
        "mine\n"
    ] * 3
    assert repo.git("status", "--porcelain") == before.replace(
        "?? prd.json\n", "?? prd.json\n?? progress.txt\n"
    )
    assert repo.git("diff", "--name-only", "main", "ralph/p").split() == ["T1.txt"]


def test_a_persons_interrupts_block_no_task(repo: Repo) -> None:
    repo.plan({"checks": ["test -f x"]})
    agent = repo.agent("(OUT / 'begun').touch(); time.sleep(600)")
    for _ in range(4):
        (repo.outside / "begun").unlink(missing_ok=True)
        loop = repo.start("run", "--agent", agent)
        repo.wait_for("../begun")
        for _ in range(2):
            loop.send_signal(signal.SIGINT)
            time.sleep(0.3)
        loop.wait(30)
    assert "blocked" not in repo.read("prd.json")
