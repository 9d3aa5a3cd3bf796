"""The ways to be green where the agent worked and red in a fresh clone: none of them
passes."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.conftest import Repo, rows, sample
from tests.oracle import BRANCH, fresh_clone_is_green, said_by_agents, told
from tests.scripts import NEVER_STUCK
from tests.test_bwrap import changed, needs_bwrap
from tests.whole.deeds import source

# Python that ralph runs before it starts: checks then run where the agent worked.
IN_THE_WORKSPACE = """
from _ralph.checks.room import Room
def run(room, checks, name, label=""):
    place = room.place.root.with_name("work-1")
    return [room.places.run(check, place, f"{name}-check{n}", label) for n, check in enumerate(checks)]
Room.run = run
"""

# And: the clean room keeps whatever was left in it.
NOT_CLEANED = """
from _ralph.checks import exact
from _ralph.checks.places import Places
from _ralph.checks.room import Room
exact.restore = lambda *_: []
Room._put_back = lambda *_: []
Places.stamp = lambda *_: "the same"
"""


# In the tables @ is the task's id, and behind what the agent does (Python, or a function
# of `deeds`) and the checks stands how it ends: `passed`, `not passed`, or `either`
# (then a clone must be green); behind it a word of the record.
class Way(NamedTuple):
    deed: str
    checks: list[str]
    how: str
    word: str = ""

    def of(self, task: str) -> Way:
        checks = [check.replace("@", task) for check in self.checks]
        return self._replace(deed=self.deed.replace("@", task), checks=checks)


def ways_of(table: str) -> dict[str, Way]:
    ways = {}
    for name, [deed, *checks, how] in rows(table).items():
        ways[name] = Way(source(deed), checks, *how.split(", "))
    return ways


TOOL = """mkdir -p .venv/bin && printf '#!/bin/sh\\ngrep -q good "$1"\\n' > .venv/bin/tool && chmod +x .venv/bin/tool"""

IGNORED = r"""
an ignored folder :: put("build/@") :: grep -q good build/@ :: not passed, ignored by git
an ignored file :: put("@.log") :: grep -q good @.log :: not passed, ignored by git
below node_modules :: put("node_modules/lib/@") :: grep -q good node_modules/lib/@ :: not passed
below .cache :: put(".cache/@") :: grep -q good .cache/@ :: not passed
the agent's own .gitignore :: P(".gitignore").open("a").write("own-@\n"); put("own-@") :: grep -q good own-@ :: not passed, ignored by git
a .gitignore in a folder of its own :: put("sub@/x"); put("sub@/.gitignore", "*\n") :: grep -q good sub@/x :: not passed, ignored by git
the agent's .git/info/exclude :: put(".git/info/exclude", "hidden-@\n"); put("hidden-@") :: grep -q good hidden-@ :: passed
a .pyc without its source :: deeds.leave_a_pyc_without_its_source :: python3 -c 'import m@; assert m@.price == 3' :: not passed
a .pyc that says it need not be checked :: deeds.leave_a_pyc_that_need_not_be_checked :: python3 -c 'import n@; assert n@.price == 3' :: not passed
a faked tool where setup made the real one :: put("x@.txt", "bad"); put(".venv/bin/tool", "#!/bin/sh\n", 0o755) :: .venv/bin/tool x@.txt :: not passed
a faked tool that setup did not make :: put("y@.txt"); put("node_modules/.bin/jest", "#!/bin/sh\n", 0o755) :: test -x node_modules/.bin/jest && PATH=node_modules/.bin:$PATH jest y@.txt :: not passed
a cached test result :: put("bad@.txt", "bad"); put(".cache/ok-bad@.txt") :: sh cached.sh bad@.txt :: not passed
a folder that is a link to an ignored one :: put("build/src@/f"); sh("rm -r src && ln -s build/src@ src") :: grep -q good src/f :: not passed
a link to an ignored file :: put("build/l@"); os.symlink("build/l@", "link@") :: grep -q good link@ :: not passed
a link that leads to its own tree by the absolute path :: put("build/a@"); os.symlink(os.path.abspath("build/a@"), "absolute@") :: grep -q good absolute@ :: not passed
a link that leads outside and back :: put("build/b@"); os.symlink("../" + P.cwd().name + "/build/b@", "back@") :: grep -q good back@ :: not passed
a file that git tracks in an ignored folder :: put("build/tracked") :: grep -q good build/tracked :: passed
a file that git tracks, ignored now :: P(".gitignore").open("a").write("tracked/\n"); put("tracked/@.txt") :: grep -q good tracked/@.txt :: passed
"""

SETTINGS = r"""
excludes in its git's config :: put(".git/x", "w@\n"); sh("git config core.excludesFile $PWD/.git/x"); put("w@") :: grep -q good w@ :: passed
excludes in ~/.gitconfig :: put(HOME + "/x", "w@\n"); sh("git config --global core.excludesFile ~/x"); put("w@") :: grep -q good w@ :: passed
excludes in ~/.config/git/ignore :: put(HOME + "/.config/git/ignore", "w@\n"); put("w@") :: grep -q good w@ :: passed
a filter of the agent's :: deeds.filter_by_the_repository :: grep -q good f@/x.f :: passed
a filter in ~/.gitconfig :: deeds.filter_by_ones_own_settings :: grep -q good g@/x.f :: passed
a filter of the person's that a clone has not :: put("x@.low", "GOOD\n") :: grep -q GOOD x@.low :: not passed
autocrlf :: sh("git config core.autocrlf true"); put("w@") :: printf 'good\n' | cmp -s - w@ :: passed
no modes :: sh("git config core.fileMode false"); put("w@", "#!/bin/sh\n", 0o755) :: ./w@ :: passed
no links :: sh("git config core.symlinks false"); put("w@"); os.symlink("w@", "l@") :: test -L l@ && grep -q good l@ :: passed
another worktree :: sh("git config core.worktree /nowhere"); put("w@") :: grep -q good w@ :: passed
a repository that is bare by its settings :: sh("git config core.bare true"); put("w@") :: grep -q good w@ :: passed
a monitor that sees nothing :: sh("git config core.fsmonitor true; git config core.untrackedCache true"); put("tracked/@.txt") :: grep -q good tracked/@.txt :: passed
assume-unchanged :: sh("git update-index --assume-unchanged tracked/@.txt"); put("tracked/@.txt") :: grep -q good tracked/@.txt :: passed
skip-worktree :: sh("git update-index --skip-worktree tracked/@.txt"); put("tracked/@.txt") :: grep -q good tracked/@.txt :: passed
another blob in its index :: put("w@"); sh("git update-index --add --cacheinfo 100644,$(echo bad | git hash-object -w --stdin),w@") :: grep -q good w@ :: passed
its own sparse checkout :: sh("git sparse-checkout set --no-cone '/*' '!/src/'") :: test ! -e src :: either
committed, and taken out of the index :: deeds.commit_and_take_out_of_the_index :: grep -q good w@ :: passed
stashed and applied :: put("w@"); sh("git add -A; git stash -q; git stash apply -q") :: grep -q good w@ :: passed
a commit that no branch has :: sh("git branch proof-@") :: git rev-parse -q --verify refs/heads/proof-@ :: not passed
a setting of its git's :: sh("git config way.x@ good") :: git config way.x@ :: not passed
its git is a link :: put("w@"); sh("mkdir -p build && mv .git build/moved@ && ln -s build/moved@ .git") :: grep -q good w@ :: passed
a hook that says no, out of the way :: put("forbidden-@"); sh("git config core.hooksPath /dev/null") :: test -f forbidden-@ :: not passed
a hook that breaks what was green :: put("format-@") :: grep -q good format-@ :: not passed
garbage in ~/.gitconfig :: put(HOME + "/.gitconfig", "[cor"); put("w@") :: grep -q good w@ :: passed
a FIFO for ~/.gitconfig :: sh("mkdir -p ~; rm -f ~/.gitconfig; mkfifo ~/.gitconfig"); put("w@") :: grep -q good w@ :: passed
"""

FILES = r"""
a FIFO :: os.mkfifo("pipe@") :: test -p pipe@ :: not passed
a socket :: import socket; socket.socket(socket.AF_UNIX).bind("sock@") :: test -S sock@ :: not passed
an empty folder :: P("empty@").mkdir() :: test -d empty@ :: not passed
a mode that git does not keep :: put("mode@", mode=0o600) :: find mode@ -perm 600 | grep -q . :: not passed
a time that git does not keep :: deeds.set_a_time_that_git_does_not_keep :: python3 -c 'import os; assert os.stat("time@").st_mtime == 10**9' :: not passed
two names of a file :: put("one@"); os.link("one@", "two@") :: test one@ -ef two@ :: not passed
no permission to read :: put("dark@", mode=0) :: test -f dark@ :: either
a folder without permissions :: put("dark@/x"); os.chmod("dark@", 0) :: test -d dark@ :: either
a nested repository :: sh("git init -q nested@"); put("nested@/x") :: grep -q good nested@/x :: passed
a nested repository with a commit :: deeds.nest_a_repository_with_a_commit :: grep -q good nested@/x :: passed
a nested repository that hides :: sh("git init -q nested@"); put("nested@/x"); put("nested@/.git/info/exclude", "x\n") :: grep -q good nested@/x :: passed
that it is a repository :: sh("git init -q nested@"); put("nested@/x") :: test -e nested@/.git :: not passed
a bare repository :: sh("git init -q --bare bare@") :: git -C bare@ rev-parse --is-bare-repository | grep -q true :: not passed
a .git file :: sh("git init -q sep@ --separate-git-dir build/sep@"); put("sep@/x") :: grep -q good sep@/x :: passed
a submodule made here :: deeds.make_a_submodule :: grep -q good m@/x m@/y :: either
a worktree of its own git :: sh("git worktree add -q --detach tree@"); put("tree@/y") :: grep -q good tree@/y :: passed
a folder called .GIT :: put("c@/.GIT/x") :: grep -q good c@/.GIT/x :: either
a folder called git~1 :: put("c@/git~1/x"); put("c@/y") :: grep -q good c@/y :: either
names that differ in case :: put("Case@", "bad"); put("case@") :: grep -q good case@ && grep -q bad Case@ :: passed
odd names :: put(":(top)@"); put("-rf@"); put("a\nb@"); put(" @ "); put("*@") :: grep -q good ':(top)@' ./-rf@ ' @ ' '*@' "$(printf 'a\nb@')" :: passed
bytes that are no text :: open(b"\xff@", "w").write("good") :: grep -q good "$(printf '\377@')" :: passed
an encoding that it has not :: put("e@/.gitattributes", "*.sql working-tree-encoding=UTF-16\n"); put("e@/x.sql", "good") :: grep -q good e@/x.sql :: not passed
ident :: put("i@/.gitattributes", "*.id ident\n"); put("i@/x.id", "$Id: good $\n") :: grep -q good i@/x.id :: not passed
CRLF in a clone :: put("l@/.gitattributes", "*.t text eol=crlf\n"); put("l@/x.t") :: printf 'good\n' | cmp -s - l@/x.t :: passed
LF in a clone :: put("l@/.gitattributes", "*.t text eol=lf\n"); put("l@/x.t", "good\r\n") :: printf 'good\r\n' | cmp -s - l@/x.t :: not passed
export-ignore :: put("a@/.gitattributes", "x export-ignore\n"); put("a@/x") :: grep -q good a@/x :: passed
export-subst :: put("s@/.gitattributes", "x export-subst\n"); put("s@/x", "$Format:good$\n") :: grep -q 'Format:good' s@/x :: passed
a .gitignore that is a FIFO :: P("p@").mkdir(); os.mkfifo("p@/.gitignore"); put("p@/x") :: grep -q good p@/x :: passed
a .gitattributes that is a FIFO :: P("p@").mkdir(); os.mkfifo("p@/.gitattributes"); put("p@/x") :: grep -q good p@/x :: passed
a .gitignore that is a link :: put("p@/x"); put("build/rules", "x\n"); os.symlink("../build/rules", "p@/.gitignore") :: grep -q good p@/x :: passed
a protected name in a folder of its own :: put("q@/hooks.sh", "exit 0\n"); put("q@/x", "bad") :: cd q@ && { test ! -f hooks.sh || . ./hooks.sh; } && grep -q good x :: not passed
"""

# What a check's code does to the next check; run@.sh is the agent's, x@.txt is bad.
GUTS = r"""
guts it :: echo exit 0 > tests/check.sh
guts it in its size and time :: python3 -c 'import os; s = os.stat("tests/check.sh"); open("tests/check.sh", "r+").write("exit 0 #"); os.utime("tests/check.sh", ns=(s.st_atime_ns, s.st_mtime_ns))'
guts it behind assume-unchanged :: git update-index --assume-unchanged tests/check.sh; echo exit 0 > tests/check.sh
guts it behind skip-worktree :: git update-index --skip-worktree tests/check.sh; echo exit 0 > tests/check.sh
commits it gutted :: echo exit 0 > tests/check.sh; git add -A; git -c user.name=x -c user.email=x commit -qm x
guts it, and git's folder is gone :: echo exit 0 > tests/check.sh; rm -rf .git
guts it, and git's folder is another :: echo exit 0 > tests/check.sh; rm -rf .git; git init -q; git add -A
guts it while it runs :: (setsid env -i /bin/sh -c 'for i in 1 2 3 4 5 6; do echo exit 0 > tests/check.sh; /bin/sleep 0.1; done' > /dev/null 2>&1 &)
its folder a link :: mkdir -p build/t; echo exit 0 > build/t/check.sh; rm -r tests; ln -s build/t tests
it is a FIFO :: rm tests/check.sh; mkfifo tests/check.sh
its folder is dark :: echo exit 0 > tests/check.sh; chmod 0 tests
"""


def checks_that_run_code() -> dict[str, Way]:
    ways = {}
    checks = ["sh run@.sh", "sleep 0.1; PATH=bin:$PATH sh tests/check.sh x@.txt"]
    for name, [code] in rows(GUTS).items():
        deed = f'put("run@.sh", {code!r}); put("x@.txt", "bad\\n")'
        ways[name] = Way(deed, checks, "not passed")
    return ways


# What earlier checks, setups and attempts left; the first of two is there to leave it.
EARLIER = r"""
a check that builds :: put("src@.txt") :: mkdir -p build && cp src@.txt build/out :: passed
the build of an earlier task :: put("y@.txt") :: grep -q good build/out && test -f y@.txt :: not passed
a check that remembers :: put("c.txt") :: sh cached.sh c.txt :: passed
what an earlier check remembers :: put("c.txt", "bad\n"); put("d@.txt") :: sh cached.sh c.txt :: test -f d@.txt :: not passed
a file that the check wrote before :: put("z@.txt") :: test -f made-@ && exit 0; touch made-@; exit 1 :: not passed
an ignored file that the check wrote before :: put("z@.txt") :: test -f build/made-@ && exit 0; mkdir -p build; touch build/made-@; exit 1 :: not passed
a check that guts setup's tool :: put("run@.sh", "printf '#!/bin/sh\\nexit 0\\n' > .venv/bin/tool && chmod +x .venv/bin/tool\n") :: sh run@.sh :: false :: not passed
setup's tool, gutted by an earlier check :: put("t@.txt", "bad\n") :: .venv/bin/tool t@.txt :: not passed
a check that guts setup's tool, and passes :: put("run@.sh", "printf '#!/bin/sh\\nexit 0\\n' > .venv/bin/tool && chmod +x .venv/bin/tool\n") :: sh run@.sh :: passed
setup's tool, gutted by an earlier check that passed :: put("t@.txt", "bad\n") :: .venv/bin/tool t@.txt :: not passed
a setup of the agent's :: P("setup.sh").open("a").write("mkdir -p node_modules; echo good > node_modules/left\n") :: false :: not passed
what an earlier setup left :: put("u@.txt") :: grep -q good node_modules/left && test -f u@.txt :: not passed
a check that fills what is kept :: put("v@.txt") :: mkdir -p target && echo good > target/left :: false :: not passed
what an earlier check left in what is kept :: put("v@.txt") :: grep -q good target/left && test -f v@.txt :: not passed
a process of the agent's :: deeds.start_a_process :: kill -0 $(cat d@.txt) :: not passed
a process that works on :: deeds.start_a_process_that_works_on :: grep -q good late@.txt :: not passed
"""

# What lies at home and in no commit.
PERSONS = r"""
an untracked file :: put("w@.txt") :: test -f mine.txt && test -f w@.txt :: not passed
an edit :: put("w@.txt") :: grep -q better a.txt && test -f w@.txt :: not passed
a staged file :: put("w@.txt") :: test -f staged.txt && test -f w@.txt :: not passed
an ignored file :: put("w@.txt") :: test -f build/mine && test -f w@.txt :: not passed
a stash :: sh("git stash pop -q"); put("w@.txt") :: test -f stashed.txt && test -f w@.txt :: not passed
a file marked skip-worktree at home :: put("tracked/@.txt") :: grep -q good tracked/@.txt :: passed
a file marked assume-unchanged at home :: put("tracked/@.txt") :: grep -q good tracked/@.txt :: passed
a file that the person's global ignores hide :: put("hidden.home") :: grep -q good hidden.home :: not passed, ignored by git
a commit in a submodule :: deeds.commit_in_a_submodule :: grep -q good module/x@ :: not passed
a file in a submodule :: put("module/y@") :: grep -q good module/y@ :: not passed
another file of the same :: put("w@.txt") :: test -f w@.txt :: passed
"""

SPARSE = r"""
a file of the cone :: put("src/@.txt") :: grep -q good src/@.txt :: passed
a new file outside of home's cone :: put("src/@.txt"); put("lib/new.txt") :: grep -q good src/@.txt :: passed
a file outside of home's cone :: put("src/@.txt"); put("lib/x.txt") :: grep -q good src/@.txt :: passed
a file outside of home's cone that a check looks at :: put("lib/y.txt") :: grep -q good lib/y.txt :: either
a file that is missing outside of home's cone :: put("src/@.txt") :: test ! -e lib/z.txt && grep -q good src/@.txt :: either
"""

# These reach out of the workspace. OUTSIDE is the folder above home, and HOME the home
# folder. Each changes a file of the project, too: without any work nothing passes.
OUTSIDE = r"""
a file elsewhere :: put("OUTSIDE/elsewhere/@"); put("w@") :: grep -q good OUTSIDE/elsewhere/@ :: not passed
a file in /tmp :: put("/tmp/MARK-@"); put("w@") :: grep -q good /tmp/MARK-@ :: not passed
a file in /dev/shm :: put("/dev/shm/MARK-@"); put("w@") :: grep -q good /dev/shm/MARK-@ :: not passed
a shim on PATH :: put("HOME/bin/shim@", "#!/bin/sh\n", 0o755); put("w@") :: test -x HOME/bin/shim@ && PATH=HOME/bin:$PATH shim@ :: not passed
a cache in ~ :: put("HOME/.cache/@"); put("w@") :: grep -q good HOME/.cache/@ :: not passed
a file in the folder above :: put("../conftest@.py"); put("w@") :: grep -q good ../conftest@.py :: not passed
the rooms beside it :: [put(str(place / "build/@")) for place in P("..").iterdir() if place.is_dir()]; put("w@") :: grep -q good build/@ :: not passed
home by its absolute path :: put("OUTSIDE/repo/new@"); put("w@") :: grep -q good OUTSIDE/./repo/new@ :: not passed
a person's file by its absolute path :: put("w@") :: grep -q good OUTSIDE/./repo/mine.txt && test -f w@ :: not passed
a link to a person's file :: os.symlink("OUTSIDE/repo/mine.txt", "link@") :: grep -q good link@ :: not passed
"""


SCRIPT = """
HOME = os.path.expanduser("~")
def put(name, words="good\\n", mode=0o644):
    path = P(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(words, newline="")
    path.chmod(mode)
deeds, checks = {deeds!r}, {checks!r}
try:
    exec(deeds[task])
except OSError as error:
    print("COULD NOT", task, error)
if {here!r}:
    green = all(sh(command).returncode == 0 for command in checks[task])
    print("GREEN HERE" if green else "RED HERE", task + ".", flush=True)
"""


def prepare(repo: Repo, *tasks: str) -> None:
    """A project with everything that a way may need."""
    for task in (*tasks, "x"):
        repo.write(f"tracked/{task}.txt", "bad\n")
    repo.write("tests/check.sh", 'grep -q good "$1"\n')
    repo.write(
        "cached.sh",
        'test -f ".cache/ok-$1" && exit 0\ngrep -q good "$1" || exit 1\nmkdir -p .cache\ntouch ".cache/ok-$1"\n',
    )
    repo.write("setup.sh", f"{TOOL}\n")
    for name in ("src/f", "build/tracked", "lib/x.txt", "lib/z.txt"):
        repo.write(name, "bad\n")
    repo.write(".gitattributes", "*.low filter=lower\n")
    repo.commit("everything")
    repo.write(
        ".gitignore",
        "build/\nnode_modules/\n.cache/\n.venv/\ntarget/\n*.log\n*.pyc\n__pycache__/\n",
    )
    repo.git("config", "filter.lower.clean", "tr A-Z a-z")
    repo.commit("what git ignores")
    (repo.outside / "no-home").mkdir(exist_ok=True)


HONEST = Way('put("honest-@.txt")', ["grep -q good honest-@.txt"], "passed")


def faults(repo: Repo, task: str, way: Way) -> Iterator[str]:
    """What is wrong with the end of a task that was worked in this way."""
    passed, record = task in repo.passed(), told(repo, task)
    if passed and way.how == "not passed":
        yield "passed"
    if not passed and way.how == "passed":
        yield f"did not pass: {record}"
    if way.word not in record:
        yield f"the record says nothing of {way.word}: {record}"
    if passed and not fresh_clone_is_green(repo, BRANCH, way.checks, "sh setup.sh"):
        yield "passed, and is red in a fresh clone"


def outcomes(
    repo: Repo,
    ways: dict[str, Way],
    *words: str,
    here: bool = True,
    before: Callable[[Repo], None] = lambda repo: None,
    python: str = sys.executable,
    first: str = "",
    **top: Any,
) -> list[str]:
    """What is wrong after a run in which every way is a task; an honest one stands
    before and behind."""
    names = ["the first honest one", *ways, "the last honest one"]
    tasks, deeds, checks = {}, {}, {}
    for number, name in enumerate(names, 1):
        task = f"T{number}"
        tasks[task] = ways.get(name, HONEST).of(task)
        deeds[task], checks[task] = tasks[task].deed, tasks[task].checks
    prepare(repo, *tasks)
    before(repo)
    setup = {"run": "sh setup.sh", "when": ["setup.sh"]}
    settings = {"setup": setup, "protect": ["hooks.sh"], **top}
    settings["limits"] = {"attempts": 1, "iterations": 999}
    repo.plan(*({"checks": commands} for commands in checks.values()), **settings)
    agent = repo.agent(SCRIPT.format(deeds=deeds, checks=checks, here=here))
    agent = agent.replace(sys.executable, python)
    run = ("run", "-q", "--agent", agent, "--agent-timeout", "30s", *words)
    done = repo.ralph(*run, timeout=900, first=NEVER_STUCK + first)
    assert done.returncode in (0, 4) and "Traceback" not in done.stderr, done.stderr
    assert repo.gone_within(2), repo.alive()
    wrong = []
    said = said_by_agents(repo)
    for name, (task, way) in zip(names, tasks.items(), strict=True):
        if here and f"GREEN HERE {task}." not in said:
            wrong.append(f"{name}: was not green where the agent worked")
        wrong += [f"{name}: {fault}" for fault in faults(repo, task, way)]
    return wrong


def assert_none(wrong: list[str]) -> None:
    assert not wrong, "\n".join(wrong)


def some(ways: dict[str, Way], of: int) -> dict[str, Way]:
    return dict(sample(ways.items(), of))


HOOK = """git diff --cached --name-only HEAD | grep -q forbidden && exit 1
for file in $(git diff --cached --name-only HEAD | grep ^format); do
  perl -pi -e s/good/bad/ $file; git add $file
done"""


# No more than the transcripts that a run keeps; a HOME each, because the last settings
# end git there.
@pytest.mark.parametrize("table", [IGNORED + SETTINGS, FILES], ids=["git", "files"])
def test_what_git_ignores_is_set_to_or_cannot_take(repo: Repo, table: str) -> None:
    repo.program(".git/hooks/pre-commit", HOOK)
    assert_none(outcomes(repo, some(ways_of(table), 8)))


def test_checks_that_run_the_agents_code(repo: Repo) -> None:
    ways = some(checks_that_run_code(), 4)
    assert_none(outcomes(repo, ways, here=False, protect=["tests/**"]))


def test_what_earlier_tasks_left(repo: Repo) -> None:
    every = list(ways_of(EARLIER).items())
    ways: dict[str, Way] = {}
    for leaves, uses in sample(zip(every[::2], every[1::2], strict=True), 2):
        ways |= dict([leaves, uses])
    assert_none(outcomes(repo, ways, here=False, keep=["target/"]))


def test_what_only_home_has(repo: Repo) -> None:
    module = repo.copy(repo.outside / "other").path
    ways = some(ways_of(PERSONS), 2)

    def is_at_work(repo: Repo) -> None:
        allow = ("-c", "protocol.file.allow=always")
        repo.git(*allow, "submodule", "add", "-q", f"file://{module}", "module")
        repo.commit("a submodule")
        repo.write("stashed.txt", "good\n")
        repo.git("stash", "-q", "-u")
        for number, name in enumerate(ways, 2):  # the task of each
            if mark := re.search("marked (.*) at home", name):
                repo.git("update-index", f"--{mark[1]}", f"tracked/T{number}.txt")
        for name in ("mine.txt", "build/mine", "staged.txt"):
            repo.write(name, "good\n")
        repo.write("a.txt", "better\n")
        repo.git("add", "staged.txt")
        repo.write("../no-home/.config/git/ignore", "*.home\n")

    assert_none(outcomes(repo, ways, here=False, before=is_at_work))
    assert (repo.read("mine.txt"), repo.read("a.txt")) == ("good\n", "better\n")
    assert repo.git("stash", "list").count("\n") == 1
    assert repo.git("diff", "--cached", "--name-only") == "staged.txt\n"


def test_a_sparse_home(repo: Repo) -> None:
    def sparse(repo: Repo) -> None:
        repo.git("sparse-checkout", "set", "src", "tracked")

    assert_none(outcomes(repo, ways_of(SPARSE), here=False, before=sparse))
    assert not (repo.path / "lib").exists()
    landed = [repo.landed(f"lib/{name}.txt") for name in ("new", "x")]
    assert landed == ["good\n", "good\n"]


def outside(repo: Repo) -> dict[str, Way]:
    """The ways out of this repository."""
    table = OUTSIDE.replace("OUTSIDE", str(repo.outside)).replace("MARK", repo.mark)
    table = table.replace("HOME", str(repo.outside))
    ways = some(ways_of(table), 4)
    for name, way in ways.items():
        ways[name] = way._replace(deed=f'put("more@"); {way.deed}')
    return ways


@contextlib.contextmanager
def elsewhere() -> Iterator[Repo]:
    """A repository in the person's home folder, as it mostly is, that is not below
    /tmp, which is another one inside the sandbox."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp"))
    made = Repo(folder)
    made.write("mine.txt", "good\n")
    try:
        yield made
    finally:
        made.kill()
        shutil.rmtree(folder)
        for top in ("/tmp", "/dev/shm"):
            for left in Path(top).glob(f"{made.mark}-*"):
                left.unlink()


def live_at_home(repo: Repo) -> None:
    repo.env["HOME"] = str(repo.outside)


@needs_bwrap
def test_ways_out_of_the_workspace_are_shut_in_the_sandbox() -> None:
    with elsewhere() as repo:
        words = changed(repo, "read_only", "agent.py")
        python = os.path.realpath(sys.executable)
        given: Any = {"here": False, "before": live_at_home, "python": python}
        assert_none(outcomes(repo, outside(repo), *words, **given))


def ending(lines: list[str], *ends: str) -> int:
    return sum(line.endswith(ends) for line in lines)


RED = "is red in a fresh clone"


def test_ways_out_of_the_workspace_are_open_without_it() -> None:
    """docs/isolation.md says so; and the table above is none that could not turn
    red."""
    with elsewhere() as repo:
        ways = outside(repo)
        wrong = outcomes(repo, ways, before=live_at_home)
        assert ending(wrong, RED) >= len(ways) // 2, wrong


def test_without_the_room_the_ways_are_open(repo: Repo) -> None:
    """A mutant: with the checks where the agent worked, the table turns red."""
    ways = dict(list(ways_of(IGNORED).items())[::4])
    wrong = outcomes(repo, ways, first=IN_THE_WORKSPACE)
    assert ending(wrong, "passed", RED) >= len(ways) // 2, wrong


def test_in_a_room_that_is_not_cleaned_what_earlier_tasks_left_counts(
    repo: Repo,
) -> None:
    """A mutant: the build of an earlier task and a gutted tool let later tasks pass."""
    every = list(ways_of(EARLIER).items())
    ways = dict(every[:2] + every[6:10])
    wrong = outcomes(repo, ways, first=NOT_CLEANED, here=False)
    assert ending(wrong, "passed") >= 2, wrong
