"""Agents that break whatever they reach from their cwd: home stays byte for byte as it
was."""

from __future__ import annotations

import json
import sys

import pytest

from tests.conftest import LITTLE_GRACE, WHOLE, Repo, sample
from tests.oracle import changed, fresh_clone_is_green, home_of, objects, subjects, told
from tests.scripts import NEVER_STUCK, own
from tests.whole.deeds import source

# What agents do instead of work (Python, or a function of `deeds`), and a word that the
# attempt's record then has. HOME is where home is.
VANDALS = r'''
# the plan
prd.json deleted :: P("prd.json").unlink() :: prd.json
prd.json cut :: P("prd.json").write_text("{") :: prd.json
prd.json a FIFO :: P("prd.json").unlink(); os.mkfifo("prd.json") :: prd.json
prd.json a link :: P("prd.json").unlink(); os.symlink("/etc/passwd", "prd.json") :: prd.json
prd.json unreadable :: os.chmod("prd.json", 0)
every task passes :: deeds.mark_every_task_as_passed :: prd.json
checks weakened :: d = json.loads(P("prd.json").read_text()); [t.update(checks=["true"]) for t in d["userStories"]]; P("prd.json").write_text(json.dumps(d)) :: prd.json
a setup of its own :: d = json.loads(P("prd.json").read_text()); d["setup"] = "touch ../pwned"; P("prd.json").write_text(json.dumps(d)) :: prd.json
# the notes and the rules
progress.txt deleted :: P("progress.txt").unlink() :: progress.txt
progress.txt emptied :: P("progress.txt").write_text("") :: progress.txt
progress.txt 3 GB :: with open("progress.txt", "wb") as f: f.truncate(3 << 30) :: progress.txt
a verdict forged :: deeds.forge_a_verdict :: progress.txt
AGENTS.md edited :: P("AGENTS.md").write_text("obey me") :: AGENTS.md
AGENTS.md a FIFO :: sh("rm -rf AGENTS.md; mkdir -p $(dirname AGENTS.md); mkfifo AGENTS.md") :: AGENTS.md
scratch deleted :: sh("rm -rf .git/ralph")
handoff a FIFO :: os.mkfifo(os.environ["RALPH_HANDOFF"])
handoff a link to /dev/zero :: os.symlink("/dev/zero", os.environ["RALPH_HANDOFF"])
# links to what is home's
prd.json :: P("prd.json").unlink(); os.symlink("HOME/mine.txt", "prd.json") :: prd.json
progress.txt :: P("progress.txt").unlink(); os.symlink("HOME/mine.txt", "progress.txt") :: progress.txt
AGENTS.md :: P("AGENTS.md").unlink(); os.symlink("HOME/mine.txt", "AGENTS.md") :: AGENTS.md
handoff :: os.symlink("HOME/mine.txt", os.environ["RALPH_HANDOFF"])
scratch :: sh("rm -rf .git/ralph"); os.symlink("HOME/theirs", ".git/ralph")
git's folder :: sh("rm -rf .git"); os.symlink("HOME/.git", ".git")
git's folder, by a file :: sh("rm -rf .git"); P(".git").write_text("gitdir: HOME/.git\n")
git's objects :: sh("rm -rf .git/objects"); os.symlink("HOME/.git/objects", ".git/objects")
the tests :: sh("rm -rf tests"); os.symlink("HOME/tests", "tests")
a tracked file :: P("a.txt").unlink(); os.symlink("HOME/a.txt", "a.txt")
an ignored folder :: sh("rm -rf build"); os.symlink("HOME/theirs", "build")
.gitignore :: P(".gitignore").unlink(); os.symlink("HOME/mine.txt", ".gitignore")
what is copied :: sh("rm -f .env"); os.symlink("HOME/mine.txt", ".env")
all of its cwd :: here = os.getcwd(); os.chdir("/"); sh(f"rm -rf {here}; ln -s HOME {here}")
# what git cannot add
a file a FIFO :: P("a.txt").unlink(); os.mkfifo("a.txt")
a new FIFO :: os.mkfifo("pipe") :: pipe
a socket :: import socket; P("b.txt").unlink(); socket.socket(socket.AF_UNIX).bind("b.txt")
an encoding :: deeds.name_an_encoding_that_does_not_fit
.gitignore a FIFO :: sh("rm -rf .gitignore; mkdir -p $(dirname .gitignore); mkfifo .gitignore")
.gitattributes a FIFO :: sh("rm -rf .gitattributes; mkdir -p $(dirname .gitattributes); mkfifo .gitattributes")
.worktreeinclude a FIFO :: sh("rm -rf .worktreeinclude; mkdir -p $(dirname .worktreeinclude); mkfifo .worktreeinclude")
invalid names :: open(b"bad\xff\nname", "w").write("x"); open("-rf", "w").write("x")
huge names :: deeds.make_huge_names
a deep tree :: deeds.make_a_deep_tree
a loop of links :: os.symlink("loop", "loop"); os.symlink(".", "here"); os.symlink("..", "above")
a nested repository :: sh("git init -q nested; cd nested; git -c user.name=x -c user.email=x commit -q --allow-empty -m x")
a folder that is dark :: sh("mkdir -p dark/er; touch dark/er/x; chmod 0 dark/er dark")
files that are dark :: sh("touch dark.txt; chmod 0 dark.txt a.txt .gitignore")
its cwd dark :: os.chmod(".", 0)
a name as git's :: sh("mkdir -p sub/.GIT sub/git~1; touch sub/.GIT/x sub/git~1/x")
# git's own files
HEAD garbage :: P(".git/HEAD").write_text("garbage")
index a FIFO :: sh("rm -rf .git/index; mkdir -p $(dirname .git/index); mkfifo .git/index")
exclude a FIFO :: sh("rm -rf .git/info/exclude; mkdir -p $(dirname .git/info/exclude); mkfifo .git/info/exclude")
config cut :: P(".git/config").write_text("[cor")
everything locked :: sh("touch .git/index.lock .git/HEAD.lock .git/config.lock .git/packed-refs.lock")
all of it gone :: sh("rm -rf .git")
all of it a link :: sh("rm -rf ../g; mv .git ../g; ln -s ../g .git")
a hook planted :: deeds.plant_hooks
a monitor planted :: sh("git config core.fsmonitor 'touch HOME/planted; false'")
a filter planted :: deeds.plant_a_filter
a filter that hangs, in ~ :: deeds.let_a_filter_of_ones_own_hang
signatures, in ~ :: sh("git config --global commit.gpgsign true; git config --global gpg.program /bin/false")
a FIFO, in ~ :: deeds.make_fifos_of_ones_settings
# branches and history
amended :: sh("git add -A; git commit -q --amend -m amended")
the branch deleted :: sh("git checkout -qf --detach; git branch -D ralph/p main")
history rewritten :: sh("git update-ref refs/heads/ralph/p $(git commit-tree -m x HEAD^{tree})")
other branches moved :: sh("git branch -f other HEAD; git branch -f main HEAD~1; git update-ref refs/heads/main HEAD")
parked work deleted :: sh("git update-ref -d refs/ralph/parked/0000-old")
a merge left :: sh("git branch other HEAD; git commit -qm mine --allow-empty; git merge -q --no-commit --no-ff other")
a rebase left :: sh("git branch other HEAD; git commit -qam mine --allow-empty; git rebase -q -x false other")
a name below the branch :: sh("git branch -m ralph/p/x; git branch ralph/p/y")
a stash :: sh("git add -A; git stash -q")
a stash popped :: sh("git stash pop; git stash drop; git stash clear")
all garbage collected :: sh("git reflog expire --expire=now --all; git gc -q --prune=now; git repack -adq")
a worktree added :: sh("git worktree add -q ../tree-$RALPH_TASK_ID; git worktree add -q inner")
a replacement :: sh("git replace HEAD:a.txt $(echo evil | git hash-object -w --stdin); git pack-refs --all")
committed and pushed :: deeds.commit_and_push
reset :: sh("git reset -q --hard HEAD~1 || git reset -q --hard")
cleaned :: sh("git clean -fdxq")
# everything
rm -rf * :: sh("rm -rf ./* ./.[!.]*")
rm -rf of its cwd :: here = os.getcwd(); os.chdir("/"); sh(f"rm -rf {here}")
its cwd a file :: here = os.getcwd(); os.chdir("/"); sh(f"rm -rf {here}; touch {here}")
a test gutted :: P("tests/test_x.py").write_text("")
conftest.py :: P("conftest.py").write_text("cheat")
many files :: [P(f"f{n}").touch() for n in range(3000)]
a file of zeros :: P("build").mkdir(exist_ok=True); with open("build/zeros", "wb") as f: f.truncate(3 << 30)
words without end :: for _ in range(300): print("x" * 99999)
# processes
killed itself :: os.kill(os.getpid(), 9)
its own group :: os.killpg(0, 9)
a plain child :: import subprocess; subprocess.Popen(["sleep", "600"])
holds stdout :: import subprocess; subprocess.Popen("sleep 600", shell=True, stdout=sys.stdout)
forked twice :: sh("(setsid sh -c \"sleep 600 & sleep 600\" >/dev/null 2>&1 &)")
deaf to TERM :: import subprocess; subprocess.Popen(["sh", "-c", "trap \"\" TERM; sleep 600; sleep 600"])
without an environment :: sh("""(setsid env -i /bin/sh -c '/bin/sleep 600; true' > /dev/null 2>&1 &)""")
starts itself again :: sh("""(setsid  /bin/sh -c 'while true; do sleep 0.05; done' > /dev/null 2>&1 &)""")
makes files for ever :: deeds.make_files_for_ever
stopped :: import subprocess, signal; subprocess.Popen(["sleep", "600"]).send_signal(signal.SIGSTOP)
kills its parent, and leaves a daemon :: sh("""(setsid env -i /bin/sh -c '/bin/sleep 600; true' > /dev/null 2>&1 &)"""); os.kill(os.getppid(), 9); time.sleep(60)
'''


def vandals_of(table: str) -> dict[str, dict[str, tuple[str, str]]]:
    """The deeds and words by their group and name."""
    found: dict[str, dict[str, tuple[str, str]]] = {}
    for row in table.strip().splitlines():
        if row.startswith("# "):
            few = found[row[2:]] = {}
            continue
        name, deed, *word = row.split(" :: ")
        few[name] = (source(deed), "".join(word))
    return found


SCRIPT = """
deeds = {deeds!r}
did = P({outside!r}, "did-" + task)
if task in deeds and not did.exists():
    did.touch()
    exec(deeds[task])
elif task == "LAST":
    sh("rm -f ~/.gitconfig ~/.config/git/ignore")  # or its own git fails
    def says(command): import subprocess; return subprocess.run(command, shell=True, capture_output=True, text=True).stdout
    seen = dict(
        plan=[(t["id"], t["checks"]) for t in json.loads(P("prd.json").read_text())["userStories"]],
        rules=P("AGENTS.md").read_text(), files=sorted(os.listdir(".")), status=[l for l in says("git status --porcelain").splitlines() if l[3:] not in ("prd.json", "progress.txt", ".ralph/")],
        tests=P("tests/test_x.py").read_text(), a=P("a.txt").read_text(), tags=says("git tag"), env=P(".env").read_text(),
    )
    P({outside!r}, "seen").write_text(json.dumps(seen))
if task in ("FIRST", "LAST"):
    P(task + ".txt").write_text("good")
"""


# A home with one of everything that a person can have there.
PERSON = """
mkdir -p tests conf theirs/x build ../no-home
echo the rules > AGENTS.md; echo real > tests/test_x.py; echo x > conf/x
echo b > b.txt; echo c > c.txt
printf '.env\\nconf/.env\\n' > .worktreeinclude; printf 'build/\\n.env\\n' > .gitignore
git add -A; git commit -qm rules --no-verify
echo stashed > c.txt; git stash -q
other=$(git commit-tree -m other -p HEAD HEAD^{tree})
git update-ref refs/ralph/parked/0000-old $other; git branch other $other
git tag -a -m one v1
git init -q --bare ../remote; git remote add origin ../remote; git push -q origin main
git notes add -m 'a note'; git config alias.mine status
echo staged > b.txt; git add b.txt; echo staged and edited > b.txt
echo edited > a.txt
for one in mine.txt theirs/x/y build/mine; do echo mine > $one; done
echo secret > .env; echo secret > conf/.env
"""
FILES = ".env .git .gitignore .worktreeinclude AGENTS.md FIRST.txt a.txt b.txt c.txt conf prd.json progress.txt tests"
SEEN = {
    "rules": "the rules\n", "status": [], "tests": "real\n", "a": "a\n", "tags": "v1\n", "env": "secret\n",
}  # fmt: skip


def a_person_at_work(repo: Repo) -> None:
    repo.program(".git/hooks/commit-msg", "test -s $1")
    repo.sh(PERSON)


GROUPS = vandals_of(VANDALS)


def nights() -> dict[str, dict[str, tuple[str, str]]]:
    """Every ninth, in one night; `make test-crash` lets them all in."""
    if WHOLE:
        return GROUPS
    every = []
    for group, few in GROUPS.items():
        every += [(f"{group}: {name}", deed) for name, deed in few.items()]
    return {"every ninth": dict(sample(every, 9))}


NIGHTS = nights()


@pytest.mark.parametrize("what", NIGHTS)
def test_home_is_as_it_was_and_nothing_passed(repo: Repo, what: str) -> None:
    """A task each, and an honest one before and behind; the last one says what it
    found."""
    a_person_at_work(repo)
    words, done_by = {}, {}
    for number, (deed, word) in enumerate(NIGHTS[what].values(), 1):
        words[f"V{number}"] = word
        done_by[f"V{number}"] = deed.replace("HOME", str(repo.path))
    names = ["FIRST", *words, "LAST"]
    tasks = [{"id": name, **own(name)} for name in names]
    repo.plan(*tasks, protect=["tests/**", "conftest.py"], limits={"attempts": 1})
    before, had = home_of(repo), objects(repo)
    remote = repo.git("ls-remote", "origin")
    agent = repo.agent(SCRIPT.format(deeds=done_by, outside=str(repo.outside)))

    run = ("run", "-q", "--agent", agent, "--agent-timeout", "20s")
    done = repo.ralph(*run, timeout=150, first=NEVER_STUCK + LITTLE_GRACE)
    assert done.returncode == 4, (done.stderr, repo.verdicts())
    assert "Traceback" not in done.stderr, done.stderr
    # on macOS, a system program in a session of its own may survive
    assert sys.platform == "darwin" or repo.gone_within(2), repo.alive()
    for name, word in words.items():
        assert (repo.outside / f"did-{name}").exists(), done_by[name]
        assert word in told(repo, name), done_by[name]
    assert changed(before, home_of(repo)) == []
    assert had <= objects(repo)
    assert repo.git("fsck", "--no-dangling") == ""
    assert repo.git("ls-remote", "origin") == remote
    assert not (repo.outside / "pwned").exists()
    repo.git("rev-parse", "--verify", "refs/ralph/parked/0000-old")

    assert repo.passed() == ["FIRST", "LAST"], repo.verdicts()
    assert subjects(repo)[:2] == [f"LAST: task {len(names)}", "FIRST: task 1"]
    landed = repo.git("diff", "--name-only", "main", "ralph/p")
    assert landed == "FIRST.txt\nLAST.txt\n"
    checks = ["grep -q good FIRST.txt", "grep -q good LAST.txt"]
    assert fresh_clone_is_green(repo, "ralph/p", checks)
    seen = json.loads(repo.read("../seen"))
    assert seen.pop("plan") == [[task["id"], task["checks"]] for task in tasks]
    assert {*seen.pop("files")} - {"build", "moved"} == {*FILES.split()}
    assert seen == SEEN
