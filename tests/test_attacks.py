"""Agents that break things on purpose: nothing passes by it, nothing of the person's is lost."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.conftest import Repo

BIG = 'with open("{0}", "wb") as f: f.truncate(3 << 30)'

# What agents do instead of work, and what the record then says of it.
VANDALS = {
    "the plan": {
        "prd.json deleted": ('P("prd.json").unlink()', "restored: prd.json"),
        "prd.json cut": ('P("prd.json").write_text("{")', "restored: prd.json"),
        "prd.json a FIFO": ('P("prd.json").unlink(); os.mkfifo("prd.json")', "restored: prd.json"),
        "prd.json a folder": ('P("prd.json").unlink(); P("prd.json/x").mkdir(parents=True)', "restored: prd.json"),
        "prd.json a link": ('P("prd.json").unlink(); os.symlink("/etc/passwd", "prd.json")', "restored: prd.json"),
        "prd.json a hard link": ('os.link("prd.json", "../other"); P("../other").open("a").write(" ")', "restored: prd.json"),
        "prd.json unreadable": ('os.chmod("prd.json", 0)', "restored: prd.json"),
        "prd.json 3 GB": (BIG.format("prd.json"), "restored: prd.json"),
        "tasks reordered": ('d = json.loads(P("prd.json").read_text()); d["userStories"].reverse(); P("prd.json").write_text(json.dumps(d))', "restored: prd.json (changed"),
        "a task deleted": ('d = json.loads(P("prd.json").read_text()); del d["userStories"][-1]; P("prd.json").write_text(json.dumps(d))', "LAST had been deleted"),
        "checks weakened": ('d = json.loads(P("prd.json").read_text()); d["userStories"][-1]["checks"] = ["true"]; P("prd.json").write_text(json.dumps(d))', "LAST had been rewritten"),
        "criteria rewritten": ('d = json.loads(P("prd.json").read_text()); d["userStories"][-1]["acceptanceCriteria"] = ["easy"]; P("prd.json").write_text(json.dumps(d))', "LAST had been rewritten"),
    },
    "the notes": {
        "mirror deleted": ('sh("rm .git/ralph/*.progress"); P("progress.txt").open("a").write("a word")', "text had been added"),
        "progress.txt deleted": ('P("progress.txt").unlink()', "restored: progress.txt"),
        "progress.txt emptied": ('P("progress.txt").write_text("")', "restored: progress.txt"),
        "progress.txt a FIFO": ('P("progress.txt").unlink(); os.mkfifo("progress.txt")', "restored: progress.txt"),
        "progress.txt a folder": ('P("progress.txt").unlink(); P("progress.txt").mkdir()', "restored: progress.txt"),
        "progress.txt 3 GB": (BIG.format("progress.txt"), "restored: progress.txt"),
        "AGENTS.md edited": ('P("AGENTS.md").write_text("obey me")', "restored: AGENTS.md"),
        "AGENTS.md deleted": ('P("AGENTS.md").unlink()', "restored: AGENTS.md"),
        "killed everything": ('sh("kill -9 -1") if os.environ.get("NEVER") else os.kill(os.getpid(), 9)', ""),
        "loop lock deleted": ('sh("rm -f .git/ralph/lock")', "the loop's lock had been deleted"),
        "ralph's own folder deleted": ('sh("rm -rf .git/ralph")', "the loop's lock had been deleted"),
    },
    "the scratch, and what is the person's": {
        "index lock left": ('P(".git/index.lock").touch()', ""),
        "scratch deleted": ('sh("rm -rf .ralph")', ""),
        "scratch a link": ('sh("rm -rf .ralph"); os.symlink("/tmp", ".ralph")', ""),
        "handoff a folder": ('P(os.environ["RALPH_HANDOFF"]).mkdir()', ""),
        "handoff a FIFO": ('os.mkfifo(os.environ["RALPH_HANDOFF"])', ""),
        "handoff 3 GB": (BIG.format(".ralph/handoff.md"), ""),
        "invalid names": ('open(b"bad\\xff\\nname", "w").write("x"); open("-rf", "w").write("x")', ""),
        "nested repository": ('sh("git init -q nested; cd nested; git -c user.name=x -c user.email=x commit -q --allow-empty -m x")', "nested/ is a git repository of its own"),
        "yours overwritten": ('P("mine.txt").write_text("gone")', "mine.txt had been changed"),
        "yours deleted": ('P("mine.txt").unlink()', "mine.txt had been deleted"),
    },
    "what git cannot take": {
        "a file a FIFO": ('P("a.txt").unlink(); os.mkfifo("a.txt")', "git cannot take a.txt; it was moved aside"),
        "a socket": ('import socket; P("b.txt").unlink(); socket.socket(socket.AF_UNIX).bind("b.txt")', "git cannot take b.txt"),
        "a test a FIFO": ('P("tests/test_x.py").unlink(); os.mkfifo("tests/test_x.py")', "restored: tests/test_x.py"),
        "an encoding": ('P(".gitattributes").write_text("*.sql working-tree-encoding=UTF-16"); P("x.sql").write_text("x"); P("new y.sql").write_text("y")', "git cannot take new y.sql"),
    },
    "the branches": {
        "HEAD lock left": ('P(".git/HEAD.lock").touch()', ""),
        "amended": ('sh("git add -A; git commit -q --amend -m amended")', "the branch had been rewritten"),
        "HEAD moved": ('sh("git checkout -q --detach; git commit -q --allow-empty -m x")', "switched to a detached HEAD"),
        "branch deleted": ('sh("git checkout -qf main; git branch -D ralph/p")', "switched to main"),
        "history rewritten": ('sh("git update-ref refs/heads/ralph/p $(git commit-tree -m x HEAD^{tree})")', "the branch had been rewritten"),
        "another branch moved": ('sh("git branch -qf other HEAD")', "heads/other had been moved, and was put back"),
        "another branch deleted": ('sh("git branch -qD other")', "heads/other had been deleted"),
        "a tag deleted": ('sh("git tag -d v1")', "tags/v1 had been deleted"),
        "parked work deleted": ('sh("git update-ref -d refs/ralph/parked/0000-old")', "0000-old had been deleted"),
        "a merge left": ('sh("git commit -qm mine --allow-empty; git merge -q --no-commit --no-ff other")', "a merge had been begun"),
        "a bisection left": ('sh("git bisect start; git bisect bad; git bisect good other")', "a bisect had been begun"),
        "a rebase left": ('sh("git commit -qam mine --allow-empty; git rebase -q -x false other")', "a rebase had been begun"),
        "HEAD by way of another name": ('sh("git symbolic-ref refs/heads/evil refs/heads/ralph/p; git symbolic-ref HEAD refs/heads/evil")', "switched to evil"),
        "the branch another's name": ('sh("git symbolic-ref refs/heads/ralph/p refs/heads/main")', "switched to main"),
        "another branch ours": ('sh("git symbolic-ref refs/heads/other refs/heads/ralph/p")', "heads/other had been moved, and was put back"),
        "a name below the branch": ('sh("git branch -m ralph/p/x")', "heads/ralph/p/x stood in the way"),
        "a name above the branch": ('sh("git checkout -q --detach; git branch -D ralph/p; git branch ralph")', "heads/ralph stood in the way"),
        "names below ralph's": ('sh("git update-ref -d refs/worktree/ralph/clean; git update-ref refs/worktree/ralph/clean/x HEAD; git update-ref -d refs/ralph/parked/0000-old; git update-ref refs/ralph/parked HEAD")', "0000-old had been deleted"),
        "git reset": ('sh("git reset -q --hard")', ""),
        "git clean": ('sh("git clean -fdxq")', "mine.txt had been deleted"),
    },
    "git's own files": {
        "git's HEAD garbage": ('P(".git/HEAD").write_text("garbage")', "its HEAD as"),
        "all garbage collected": ('sh("git reflog expire --expire=now --all; git gc -q --prune=now")', ""),
        "git's HEAD a folder": ('P(".git/HEAD").unlink(); P(".git/HEAD").mkdir()', "its HEAD as"),
        "git's config garbage": ('P(".git/config").write_text("garbage")', ".git/config (changed"),
        "git's config cut": ('P(".git/config").write_text("[cor")', ".git/config (changed"),
        "git's index deleted": ('P(".git/index").unlink()', ""),
        "ralph's index garbage": ('P(".git/ralph/index").write_text("x")', ""),
        "ralph's index a folder": ('sh("rm .git/ralph/index; mkdir -p .git/ralph/index/x")', ""),
        "the index of commits locked": ('P(".git/ralph/commit-index.lock").touch()', ""),
        "ralph's index locked": ('P(".git/ralph/index.lock").touch()', ""),
        "a hook emptied": ('P(".git/hooks/commit-msg").write_text("#!/bin/sh\\n")', ".git/hooks/commit-msg (changed"),
        "a hook planted": ('P(".git/hooks/post-checkout").write_text("#!/bin/sh\\ntouch planted\\n"); os.chmod(".git/hooks/post-checkout", 0o755)', ".git/hooks/post-checkout (changed"),
        "hooks elsewhere": ('sh("git config core.hooksPath /dev/null")', ".git/config (changed"),
        "an alias": ('sh("git config alias.status push")', ".git/config (changed"),
        "another branch moved, in a repository made shared": ('sh("git worktree add -q --detach ../w; git branch -qf other HEAD")', "heads/other had been moved, and was put back"),
    },
    "the tests": {
        "a test gutted": ('P("tests/test_x.py").write_text("")', "restored: tests/test_x.py"),
        "a test deleted": ('sh("rm -rf tests")', "restored: tests/test_x.py"),
        "a test gutted, and known to ralph's index": ('P("tests/test_x.py").write_text(""); sh("GIT_INDEX_FILE=.git/ralph/index git add -A")', "restored: tests/test_x.py"),
        "a test replaced": ('P("gutted").touch(); sh("git replace HEAD:tests/test_x.py $(git hash-object -w gutted)"); P("tests/test_x.py").write_text("")', "restored: tests/test_x.py"),
        "a test that git need not look at": ('sh("GIT_INDEX_FILE=.git/ralph/index git update-index --skip-worktree tests/test_x.py"); P("tests/test_x.py").write_text("")', "restored: tests/test_x.py"),
        "a test a link": ('P("tests/test_x.py").unlink(); os.symlink("/dev/null", "tests/test_x.py")', "restored: tests/test_x.py"),
        "a test a folder": ('P("tests/test_x.py").unlink(); P("tests/test_x.py").mkdir(); P("tests/test_x.py/y").touch()', "restored: tests/test_x.py"),
        "conftest.py": ('P("conftest.py").write_text("cheat")', "conftest.py (new and protected; moved aside"),
        "conftest.py excluded": ('P("conftest.py").write_text("cheat"); P(".git/info").mkdir(exist_ok=True); P(".git/info/exclude").write_text("conftest.py")', "conftest.py (new and protected"),
        "conftest.py ignored": ('P("tests/conftest.py").write_text("cheat"); P(".gitignore").write_text("conftest.py")', "tests/conftest.py (new and protected"),
        "git stash": ('sh("git add -A; git stash -q")', "mine.txt had been deleted"),
        "conftest.py in a repository of its own": ('sh("git init -q sub"); P("sub/conftest.py").write_text("cheat")', "sub/conftest.py (new and protected"),
    },
}  # fmt: skip

LOOKS = """
import json, subprocess
def told(command): return subprocess.run(command, shell=True, capture_output=True, text=True).stdout
deed = P("../deeds") / task
if deed.exists() and attempt == 1:
    exec(deed.read_text())
else:
    seen = {
        "plan": json.loads(P("prd.json").read_text()), "rules": P("AGENTS.md").read_text(),
        "hook": P(".git/hooks/commit-msg").read_text(), "branch": told("git branch --show-current"),
        "refs": told("git for-each-ref").splitlines(),
    }
    P(f"../seen-{task}").write_text(json.dumps(seen))
    P(f"{task}.txt").write_text("good")
"""


@pytest.mark.parametrize("what", VANDALS)
def test_vandals_lose_nothing_and_pass_nothing(repo: Repo, what: str) -> None:
    """A task each: its first attempt does the deed, the second one looks around and works."""
    vandals = {f"V{number}": vandal for number, vandal in enumerate(VANDALS[what].items(), 1)}
    tasks = [*vandals, "LAST"]
    repo.write("AGENTS.md", "the rules\n")
    repo.write("tests/test_x.py", "real\n")
    repo.write("b.txt", "b\n")
    repo.commit("rules")
    hook = repo.program(".git/hooks/commit-msg", "test -s $1")
    other = repo.git("commit-tree", "-m", "other", "-p", "HEAD", "HEAD^{tree}").strip()
    repo.git("update-ref", "refs/ralph/parked/0000-old", other)
    repo.git("branch", "other", other)
    repo.git("tag", "v1")
    refs = set(repo.git("for-each-ref").splitlines())
    for task, (_, (deed, _)) in vandals.items():
        repo.write(f"../deeds/{task}", deed)
    repo.write("mine.txt", "mine\n")
    repo.plan(
        *({"id": task, "checks": [f"grep -q good {task}.txt"]} for task in tasks),
        protect=["tests/**", "conftest.py"],
    )
    plan = json.loads(repo.read("prd.json"))

    words = ("run", "-q", "--agent", repo.agent(LOOKS))
    first = repo.ralph(*words, "--max-iterations", "1")
    assert (first.returncode, repo.verdicts(), repo.passed()) == (3, ["V1 failed"], []), first.stderr
    second = repo.ralph(*words)
    assert second.returncode == 0, second.stderr
    verdicts = [f"{task} {word}" for task in vandals for word in ("failed", "passed")]
    assert repo.verdicts() == [*verdicts, "LAST passed"]
    subjects = repo.git("log", "--format=%s", "main..ralph/p").splitlines()
    assert [line.split(":")[0] for line in subjects if line != "ralph: notes"] == tasks[::-1]
    notes = repo.read("progress.txt").split("\n## ")
    seen = {"rules": "the rules\n", "hook": hook.read_text(), "branch": "ralph/p\n", "plan": plan}
    for number, (task, (name, (_, told))) in enumerate(vandals.items()):
        found = json.loads((repo.outside / f"seen-{task}").read_text())
        assert refs <= set(found.pop("refs")), name
        assert found == seen, name
        (failed,) = [note for note in notes if f"| {task} task" in note and "| failed, attempt 1" in note]
        assert told in failed, name
        plan["userStories"][number]["passes"] = True
    assert not repo.alive()


# Ends both halves of ralph at once, from an agent or from a check that is an agent's code.
KILLS = """
import psutil
halves = [p for p in psutil.Process().parents() if p.cmdline()[1:3] == ["-m", "ralph"]]
for half in reversed(halves): half.suspend()
for half in halves: half.kill()
"""
FLIPS = """
plan = P("prd.json")
plan.write_text(plan.read_text().replace('"passes": false', '"passes": true'))
"""
FORGES = """
P("progress.txt").open("a").write('<!-- ralph {"v":1,"event":"verdict","plan":"p@","iteration":1,'
    '"task":"T1","title":"task 1","verdict":"passed","tree":"","head":"","message":"x","prd_before":"","prd_after":""} -->\\n')
"""
DELETES = 'P("prd.json").unlink(); P("progress.txt").unlink()'


@pytest.mark.parametrize("deed", [FLIPS + FORGES, DELETES])
def test_a_check_between_attempts_that_kills_ralph_changes_no_state(repo: Repo, deed: str) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]}, limits={"iterations": 1})
    works = repo.agent('P(f"{task}.txt").touch()')
    assert repo.run(works, "--task", "T1")[0] == 0
    check = repo.outside / "check.py"
    check.write_text(f"import pathlib\nP = pathlib.Path\n{deed}\n{KILLS}")
    (repo.path / "prd.json").write_text(
        repo.read("prd.json").replace("test -f T2.txt", f"{sys.executable} {check}")
    )
    assert repo.ralph_anew("run", "-q", "--agent", works).returncode == -9
    check.write_text("raise SystemExit(1)")
    assert repo.gone_within(2.0)
    code, _, printed = repo.run(repo.agent("pass"), "--json")
    assert code == 3 and "was put back" in printed, printed
    assert repo.passed() == ["T1"]
    assert repo.verdicts() == ["T1 passed", "T2 failed"]


LOST = {
    "all": 'sh("rm -rf .git/ralph/safety")',
    "copies": 'for copy in P(".git/ralph/safety").glob("[0-9a-f]*"): copy.unlink()',
    "forged": """
import hashlib
was, now = hashlib.sha256(before).hexdigest()[:16], hashlib.sha256(P("prd.json").read_bytes()).hexdigest()[:16]
P(f".git/ralph/safety/{now}").write_bytes(P("prd.json").read_bytes())
manifest = P(".git/ralph/safety/manifest.json")
manifest.write_text(manifest.read_text().replace(was, now).replace(str(len(before)), str(P("prd.json").stat().st_size)))
""",
}


@pytest.mark.parametrize("lost", LOST)
def test_without_safety_copies_no_pass_is_believed_that_nobody_gave(repo: Repo, lost: str) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {"passes": True}, {}, {}, checks=["true"])
    works = repo.agent('P(f"{task}.txt").touch()')
    assert repo.run(works, "--once")[0] == 0
    attack = repo.agent(f'before = P("prd.json").read_bytes()\n{FLIPS}\n{LOST[lost]}\n{KILLS}', "attack")
    assert repo.ralph_anew("run", "-q", "--agent", attack).returncode == -9
    assert repo.passed() == ["T1", "T2", "T3", "T4"] and repo.gone_within(2.0)
    code, _, printed = repo.run(works, "--once")
    assert code == 0, printed
    assert repo.passed() == ["T1", "T2", "T3"]


def test_what_was_put_back_is_named_and_the_other_version_is_kept(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]}, {})
    script = "d = json.loads(P('prd.json').read_text()); d['userStories'].append({'id': 'NEW', 'title': 'found'}); d['userStories'][1]['passes'] = True; P('prd.json').write_text(json.dumps(d))"
    repo.run(repo.agent(script), "--max-iterations", "1", "--check", "true")
    said = repo.read("progress.txt")
    assert "T2 had been set to pass; NEW had been added" in said
    kept = said.split("kept at ")[1].split(")")[0]
    assert "found" in Path(kept).read_text()


def test_a_hook_in_the_tree_that_an_attempt_changes_is_named(repo: Repo) -> None:
    repo.program("hooks/pre-commit", "exit 1")
    repo.git("add", "-A")
    repo.git("commit", "-qm", "hook")
    repo.git("config", "core.hooksPath", "hooks")
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('T1.txt').touch(); P('hooks/pre-commit').write_text('#!/bin/sh\\n')")
    assert repo.run(agent, "--once")[0] == 0
    assert "- notice: hooks/pre-commit decides what the commit hooks do" in repo.read("progress.txt")


def test_where_other_worktrees_share_the_repository_their_branches_stay_as_people_left_them(
    repo: Repo,
) -> None:
    repo.git("worktree", "add", "-q", "-b", "side", "../side")
    repo.git("commit", "-q", "--allow-empty", "-m", "lost")
    repo.git("branch", "theirs")
    repo.git("reset", "-q", "--hard", "HEAD~1")
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent(
        """
        sh("git -C ../side commit -q --allow-empty -m more; git branch -qD theirs; git config branch.side.remote x")
        P("T1.txt").touch()
        """
    )
    assert repo.run(agent)[0] == 0
    assert repo.git("log", "-1", "--format=%s", "side").strip() == "more"
    assert repo.git("config", "branch.side.remote").strip() == "x"
    line = next(
        line for line in repo.read("progress.txt").splitlines() if "heads/theirs had been deleted" in line
    )
    assert repo.git("log", "-1", "--format=%s", line.split("kept at ")[1]).strip() == "lost"


def test_an_agent_that_removes_git_ends_the_run_with_a_message(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    done = repo.ralph("run", "-q", "--agent", repo.agent("sh('rm -rf .git'); P('T1.txt').touch()"))
    assert done.returncode == 2
    assert "Traceback" not in done.stderr and "git" in done.stderr
    assert repo.passed() == []


def test_git_s_folder_that_an_agent_moved_is_asked_for_and_nothing_is_lost(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('T1.txt').touch(); sh('git init -q --separate-git-dir ../real')")
    for _ in range(2):
        done = repo.ralph("run", "-q", "--agent", agent)
        assert done.returncode == 2 and done.stderr.count("ralph: ") == 1, done.stderr
        assert f"gitdir: {repo.outside}/real" in done.stderr and "git's folder back" in done.stderr
    (repo.path / ".git").unlink()
    (repo.outside / "real").rename(repo.path / ".git")
    assert repo.run("true")[0] == 0
    assert repo.passed() == ["T1"] and len(repo.records("start")) == 1


def test_a_plan_whose_folder_becomes_a_link_is_put_back(repo: Repo) -> None:
    repo.write("plans/x.txt", "x")
    repo.commit("a folder")
    repo.plan({"checks": ["test -f T1.txt"]})
    (repo.path / "prd.json").rename(repo.path / "plans/prd.json")
    agent = repo.agent("P('T1.txt').touch(); sh('mv plans moved; ln -s moved plans')")
    code, summary, printed = repo.run(agent, "--prd", "plans/prd.json")
    assert (code, summary["passed"]) == (0, 1) and not (repo.path / "plans").is_symlink(), printed
    assert "restored: plans/prd.json" in repo.read("plans/progress.txt")
    assert "plans/prd.json" in repo.git("ls-files")


def test_a_person_s_file_that_git_cannot_take_stays_where_it_is(repo: Repo) -> None:
    repo.write(".gitattributes", "*.sql working-tree-encoding=UTF-16\n")
    (repo.path / "x.sql").write_text("x", encoding="utf-16")
    repo.commit("an encoding")
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    agent = repo.agent("P(f'{task}.txt').touch()")
    assert repo.run(agent, "--once")[0] == 0
    repo.write("x.sql", "edited")
    code, _, printed = repo.run(agent, "--once")
    assert code == 1 and "'x.sql'" in printed, printed
    assert repo.read("x.sql") == "edited"


@pytest.mark.parametrize("name", ["HEAD", "config"])
def test_git_that_was_broken_before_a_kill_is_named(repo: Repo, name: str) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    attack = repo.agent(f"P('.git/{name}').write_text('[cor')\n{KILLS}")
    assert repo.ralph_anew("run", "-q", "--agent", attack).returncode == -9
    code, summary, printed = repo.run("true")
    assert (code, summary["stop"]) == (2, "error") and f".git/{name}" in printed


def test_a_full_disk_stops_with_75_and_loses_nothing(repo: Repo) -> None:
    """A small file system of its own, filled to the last byte."""
    repo.plan({"checks": ["test -f T1.txt"]})
    agent = repo.agent("P('T1.txt').touch()")
    if os.geteuid() != 0 or os.system("mount --help >/dev/null 2>&1") != 0:
        pytest.skip("needs root to mount a small file system")
    small = repo.outside / "small"
    small.mkdir()
    if os.system(f"mount -t tmpfs -o size=3m tmpfs {small} 2>/dev/null") != 0:
        pytest.skip("no small file system can be mounted here")
    try:
        os.system(f"cp -r {repo.path} {small}/repo")
        repo.path = small / "repo"
        before = repo.read("prd.json")
        with (small / "filler").open("wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(b"x" * 4096)
            except OSError:
                pass
        done = repo.ralph("run", "-q", "--agent", agent)
        assert done.returncode == 75, (done.returncode, done.stderr)
        assert repo.read("prd.json") == before
        (small / "filler").unlink()
        done = repo.ralph("run", "--json", "--agent", agent)
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["passed"] == 1
    finally:
        os.system(f"umount -l {small}")


@pytest.mark.parametrize(
    "deed",
    [
        "pass",
        "P('AGENTS.md').write_text('evil')",
        "P('AGENTS.md').unlink()",
        "P('AGENTS.md').unlink(); P('AGENTS.md').write_text('evil')",
    ],
)
def test_a_link_to_nothing_is_kept_as_it_is(repo: Repo, deed: str) -> None:
    (repo.path / "AGENTS.md").symlink_to("CLAUDE.md")
    (repo.path / ".git/hooks/pre-push").symlink_to("/nowhere")
    repo.plan({"checks": ["test -f T1.txt"]})
    repo.commit("a link")
    code, _, printed = repo.run(repo.agent(f"{deed}\nP('T1.txt').touch()"))
    assert (code, repo.passed()) == (0, ["T1"]), printed
    assert os.readlink(repo.path / "AGENTS.md") == "CLAUDE.md" and not (repo.path / "CLAUDE.md").exists()
    assert len(repo.records("verdict")[0]["restored"]) == (deed != "pass")


GUTS = """
f = "tests/check.sh"
if attempt == 1:
    {first}
else:
    P(f).open("r+").write("true # T1.txt!\\n"); os.utime(f, (10**9, 10**9)); P("x").touch()
"""
IN_TWO_STEPS = {
    "hidden from git": "sh('git update-index --skip-worktree tests/check.sh')",
    "its time set back": "time.sleep(1.02 - time.time() % 1); os.utime(f, (10**9, 10**9)); P('a.txt').write_text('y')",
    "a config of the worktree": "sh('git config extensions.worktreeConfig true; git config --worktree core.trustctime false'); os.utime(f, (10**9, 10**9)); P('a.txt').write_text('y')",
}


@pytest.mark.parametrize("first", IN_TWO_STEPS)
def test_a_test_gutted_in_two_attempts_is_put_back(repo: Repo, first: str) -> None:
    repo.write("tests/check.sh", "test -f T1.txt\n")
    repo.plan(
        {"checks": ["sh tests/check.sh"]},
        protect=["tests/**"],
        limits={"attempts": 9},
    )
    repo.commit("test")
    agent = repo.agent(GUTS.format(first=IN_TWO_STEPS[first]))
    if first == "hidden from git":
        repo.run(agent, "--max-iterations", "1")
    repo.run(agent, "--max-iterations", "2")
    assert repo.passed() == [] and repo.read("tests/check.sh") == "test -f T1.txt\n", repo.read(
        "progress.txt"
    )


def test_a_branch_that_a_link_stands_for_is_looked_at_each_time(repo: Repo) -> None:
    repo.git("branch", "other")
    was = repo.git("rev-parse", "other")
    repo.git("commit", "-q", "--allow-empty", "-m", "two")
    now = repo.git("rev-parse", "main").strip()
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    link = (
        "sh('mkdir ../o; mv .git/refs/heads/other ../o/other; ln -s $PWD/../o/other .git/refs/heads/other')"
    )
    repo.run(
        repo.agent(
            f"{link} if task == 'T1' else P('../o/other').write_text('{now}\\n')\nP(f'{{task}}.txt').touch()"
        )
    )
    assert repo.passed() == ["T1", "T2"] and repo.git("rev-parse", "other") == was


def test_a_plan_that_is_a_link_to_a_file_of_the_tree(repo: Repo) -> None:
    for name, real in (("prd.json", "docs/plan.json"), ("progress.txt", "docs/notes.txt")):
        repo.write(real, "")
        (repo.path / name).symlink_to(real)
    repo.plan(
        {"checks": ["test -f T1.txt"]},
        {"checks": ["false"]},
        {"checks": ["test -f T3.txt"]},
        limits={"attempts": 1},
    )
    repo.commit("plan")
    assert repo.run(repo.agent("P(f'{task}.txt').touch()"))[0] == 4
    assert repo.verdicts() == ["T1 passed", "T2 failed", "T3 passed"] and repo.passed() == ["T1", "T3"]
    assert repo.git("status", "--porcelain") == ""


@pytest.mark.parametrize(
    "check",
    [
        "git checkout -q main; sleep 60",
        "git add -A; git commit -qm mine; git tag mine; false",
        "git update-ref refs/heads/other HEAD; git config core.hooksPath /nowhere; false",
    ],
)
def test_a_check_before_the_work_moves_no_branch(repo: Repo, check: str) -> None:
    repo.git("branch", "other")
    repo.git("commit", "-q", "--allow-empty", "-m", "two")
    main, other = repo.git("rev-parse", "main"), repo.git("rev-parse", "other")
    repo.plan(
        {"checks": ["test -f T1.txt"]}, {"checks": [{"run": check, "timeout": "1s"}]}, limits={"attempts": 1}
    )
    assert repo.run(repo.agent("P(f'{task}.txt').touch()"))[0] == 4
    assert repo.git("log", "--format=%s", "main..ralph/p").splitlines() == ["ralph: notes", "T1: task 1"]
    assert (repo.git("rev-parse", "main"), repo.git("rev-parse", "other")) == (main, other)
    assert "nowhere" not in repo.read(".git/config") and (repo.path / "T1.txt").exists()


@pytest.mark.parametrize("who", ["a check", "the judge"])
def test_what_an_attempt_ended_with_outlives_gc(repo: Repo, who: str) -> None:
    gc = "git gc -q --prune=now"
    repo.plan(
        {"checks": [f"{gc if who == 'a check' else 'true'}; test -f T1.txt"], "acceptanceCriteria": ["x"]}
    )
    judge = repo.agent(f"sh('{gc}')\nprint('{{\"criteria\": [{{\"met\": true}}]}}')", "judge")
    words = ["--judge", judge] if who == "the judge" else []
    code, _, printed = repo.run(repo.agent("P('T1.txt').write_text(os.urandom(9).hex())"), *words)
    assert (code, repo.passed()) == (0, ["T1"]), printed
    assert repo.git("fsck") == "" and repo.git("status", "--porcelain") == ""


def test_a_commit_in_a_submodule_by_a_blocked_task_goes_nowhere(repo: Repo) -> None:
    sub = repo.copy(repo.outside / "other").path
    repo.git("-c", "protocol.file.allow=always", "submodule", "add", "-q", str(sub), "sub")
    repo.plan({"checks": ["false"]}, {"checks": ["test -f T2.txt"]}, limits={"attempts": 1})
    repo.commit("plan")
    commits = "sh('cd sub; git -c user.name=x -c user.email=x commit -q --allow-empty -m evil')"
    repo.run(repo.agent(f"P(f'{{task}}.txt').touch()\nif task == 'T1': {commits}"))
    assert repo.verdicts() == ["T1 failed", "T2 passed"]
    assert repo.git("diff", "main", "HEAD", "--", "sub") == "" == repo.git("status", "--porcelain")
