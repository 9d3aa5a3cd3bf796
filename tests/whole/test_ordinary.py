"""Ordinary repositories, each odd in one way: doing nothing is a no-op, and one changed
line is all that lands.

The oracle is git itself: the same edit and `git add` of that file in a fresh clone.
Where git would then do more than the edit says (turn the other lines' ends), ralph may
land the edited line alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, WHOLE, Repo, rows, sample
from tests.scripts import NEVER_STUCK, RESULT, of_verdicts, plan, speaker


@dataclass(frozen=True)
class Odd:
    """A repository that is odd in one way."""

    make: str = ""
    """How a person makes it, in a shell at home; where a `cd` leads is home then."""
    file: str = "odd.txt"
    """What a task changes, $FILE in the shell."""
    work: str = "change(FILE, OLD, NEW)"
    """How the task changes it, in Python."""
    green: str = "NEW in open(FILE, 'rb').read()"
    """What is true once it has."""
    old: bytes = b"two"
    new: bytes = b"TWO"
    plan: dict[str, Any] = field(default_factory=dict)


# What the tables call: `odd.txt` or $FILE with three lines, and more.txt beside it.
SHELL = r"""
lines() { printf 'one\ntwo\nthree\n' > "./$FILE"; }
crlf() { printf 'one\r\ntwo\r\nthree\r\n' > odd.txt; }
mixed() { printf 'one\r\ntwo\nthree\r\n' > odd.txt; }
commit() { git add -A; git commit -qm "${1:-odd}"; }
plain() { lines; cp a.txt more.txt; commit; }
program() { lines; chmod 755 odd.txt; commit; }
# committed as it is, before there are attributes for it
stored() { cp odd.txt more.txt; commit; echo "*.txt $1" > .gitattributes; commit; }
# added under these attributes
attributed() { echo "*.txt $1" > .gitattributes; lines; cp odd.txt more.txt; commit; }
# a filter of the person's, called f
global() { git config --global "$@"; }
behind() { global filter.f.clean "$1"; global filter.f.smudge "${2:-cat}"; }
# as git-lfs does it: what is in the repository names what lies elsewhere
lfs() {
  behind 'new=$LFS/$$; cat > $new; id=$(git hash-object --no-filters $new); mv $new $LFS/$id; echo oid $id' \
    'read word id; cat "$LFS/$id"'
}
settings() { for one in $SETTINGS; do global ${one%%=*} ${one#*=}; done; }
"""
SETTINGS = (
    "color.ui=always column.ui=always log.showSignature=true log.decorate=full log.date=relative format.pretty=oneline"
    " diff.noprefix=true diff.renames=copies status.short=true status.branch=true status.showUntrackedFiles=no"
    " status.relativePaths=false commit.verbose=true commit.cleanup=scissors rerere.enabled=true merge.ff=false"
    " merge.conflictStyle=diff3 pull.rebase=true core.quotePath=false core.abbrev=4 core.safecrlf=warn"
    " core.logAllRefUpdates=false core.ignoreStat=true grep.lineNumber=true grep.column=true grep.patternType=fixed gc.auto=1"
    " add.ignoreErrors=false checkout.guess=false transfer.hideRefs=refs/ralph alias.status=log"
)
# What a name is like, and the name; \ as in Python.
NAMES = r"""
a newline :: a\nb.txt
quotes :: it's "odd".txt
a tab :: a\tb.txt
bytes that are no text :: caf\udce9\udcff.txt
a leading dash :: -rf
pathspec magic :: :(top)*[x]
blanks ::  odd .txt
"""

MADE = r"""
no oddity :: plain
CRLF in a blob that is text :: crlf; stored text
CRLF in a blob, text=auto :: crlf; stored text=auto
CRLF in a blob, eol=crlf :: crlf; stored 'text eol=crlf'
LF, eol=crlf :: attributed 'text eol=crlf'
mixed line ends in a blob that is text :: mixed; stored text
autocrlf=true :: plain; global core.autocrlf true
autocrlf=true and CRLF :: crlf; commit; global core.autocrlf true
autocrlf=input :: crlf; commit; global core.autocrlf input
ident :: attributed ident; echo '$Id$' >> odd.txt; commit
clean sorts :: behind 'LC_ALL=C sort'; attributed filter=f
clean strips :: behind "grep -v '^#'"; lines; echo '# x' >> odd.txt; stored filter=f
smudge adds a line, and clean leaves it :: behind cat 'cat; echo added'; attributed filter=f
smudge adds a random line, and clean strips it :: behind "grep -v '^@'" 'cat; echo @$$'; attributed filter=f
pointers to large files :: lfs; attributed filter=f
large files that are no pointers :: lines; stored filter=f; lfs
a program :: program
a program, fileMode=false :: program; git config core.fileMode false
symlinks=false :: ln -s a.txt link; plain; git config core.symlinks false
ignorecase=true :: plain; git config core.ignorecase true
names in two cases :: echo x > ODD.txt; plain
empty folders :: plain; mkdir -p empty/deep
a submodule :: global protocol.file.allow always; git init -q ../sub; git -C ../sub commit -q --allow-empty -m x; git submodule --quiet add ../sub sub; plain
skip-worktree at home :: plain; git update-index --skip-worktree odd.txt more.txt; echo mine > odd.txt; rm more.txt
assume-unchanged at home :: plain; git update-index --assume-unchanged odd.txt; echo mine > odd.txt
edits at home, one of them staged :: plain; echo mine > odd.txt; git add odd.txt; echo more > odd.txt; echo mine > new.txt
tracked and ignored :: lines; commit; echo '*.txt' > .gitignore; commit
ignored everywhere :: plain; echo '*.txt' > ../excludes; global core.excludesFile $PWD/../excludes
.worktreeinclude over tracked names :: plain; echo '*.txt' > .gitignore; echo '*.txt' > .worktreeinclude; commit; echo mine > odd.txt; echo mine > more.txt; echo mine > own.txt
a sha256 repository :: rm -rf .git; git init -q --object-format=sha256; plain
a shallow clone :: plain; git clone -q --depth 1 file://$PWD ../shallow; cd ../shallow
a linked worktree :: plain; git worktree add -q --detach ../tree; cd ../tree
a detached HEAD :: plain; git checkout -q --detach
worktrees of a bare repository :: plain; git clone -q --bare . ../bare; cd ../bare; git config extensions.worktreeConfig true; git config --unset core.bare; git config --worktree core.bare true; git worktree add -q --detach ../tree; cd ../tree
a partial clone :: plain; git config uploadpack.allowFilter true; global protocol.file.allow always; git clone -q --filter=blob:none file://$PWD ../partial; cd ../partial
attributes of a person's own :: crlf; cp odd.txt more.txt; commit; mkdir -p .git/info; echo '*.txt text' > .git/info/attributes
settings of a person's own :: crlf; stored text; settings
an index that git splits :: plain; git config core.splitIndex true; git config feature.manyFiles true; git update-index --split-index --untracked-cache
tags with the names of branches :: plain; git tag main; git tag refs; git tag FETCH_HEAD
"""
SETUPS = """
setup touches a file that git would convert :: touch *.txt :: crlf; stored text
every file a program on disk :: chmod 755 more.txt :: plain
setup edits a file :: echo setup > more.txt :: plain
setup deletes a file :: rm -f more.txt :: plain
setup makes a file a link :: ln -sf a.txt more.txt :: plain
setup makes a file a folder :: rm -rf more.txt; mkdir more.txt; echo x > more.txt/x :: plain
setup makes files :: mkdir -p made; echo x > made/x; echo x > 'made one' :: plain
setup makes a repository :: git init -q nested; echo x > nested/x :: plain
"""
CHECKS = """
a check edits a file :: echo check >> more.txt; echo check >> odd.txt
a check makes files :: mkdir -p made; echo x > made/x; echo x > y
a check that wants a clean tree :: git diff --exit-code HEAD && test -z "$(git status --porcelain)"
"""
UTF_16 = r"echo '*.txt working-tree-encoding=UTF-16LE' > .gitattributes; printf 't\0w\0o\0\n\0' > odd.txt; commit"


# The same with the file that is changed, how, and what is true then.
WORKED = r"""
a tracked .ralph :: lines; echo '*' > .ralph/.gitignore; git add -f .ralph; commit :: .ralph/PROMPT.md
a sparse home :: mkdir out; echo x > out/x; lines; commit; git sparse-checkout set in :: in/odd.txt
a link :: ln -s a.txt link; ln -s nowhere broken; commit :: link :: os.unlink(FILE); os.symlink('odd', FILE) :: os.readlink(FILE) == 'odd'
a file that becomes a folder :: plain :: odd.txt :: os.unlink(FILE); os.mkdir(FILE); open(FILE + '/x', 'wb').write(NEW) :: os.path.isdir(FILE)
a folder that becomes a file :: mkdir odd.txt; FILE=odd.txt/x; plain :: odd.txt :: os.unlink(FILE + '/x'); os.rmdir(FILE); open(FILE, 'wb').write(NEW)
"""


def repositories() -> dict[str, Odd]:
    found = {}
    makes_folder = {"setup": "mkdir -p made; echo x > made/x"}
    writes = "open(FILE, 'wb').write(NEW)"
    made = Odd(file="made/odd.txt", work=writes, plan=makes_folder)
    found["setup makes the folder of the work"] = made
    two, larger = "two".encode("utf-16-le"), "TWO".encode("utf-16-le")
    found["an encoding of the working tree"] = Odd(UTF_16, old=two, new=larger)
    for name, [file] in rows(NAMES).items():
        file = file.encode("latin-1").decode("unicode_escape")
        found[f"a name with {name}"] = Odd("plain", file)
    cells: Any
    for name, cells in [*rows(WORKED).items(), *rows(MADE).items()]:
        found[name] = Odd(*cells)
    for name, [setup, make] in rows(SETUPS).items():
        found[name] = Odd(make, plan={"setup": setup})
    for name, [check] in rows(CHECKS).items():
        found[name] = Odd("plain", plan={"checks": [check]})
    return found


REPOSITORIES = repositories()


def made(repo: Repo, odd: Odd) -> str:
    """Make it, with settings of the person's own that hold for every repository; its
    newest commit."""
    user = "[user]\nname = Test\nemail = test@example.invalid\n"
    lfs = repo.outside / "lfs"
    lfs.mkdir()
    repo.env["GIT_CONFIG_GLOBAL"] = str(repo.write("../gitconfig", user).resolve())
    repo.env |= {"LFS": str(lfs), "FILE": odd.file, "SETTINGS": SETTINGS}
    script = f'{SHELL}mkdir -p "$(dirname "./$FILE")"\n{odd.make}\npwd'
    printed = subprocess.check_output(
        ["sh", "-ec", script], cwd=repo.path, env=repo.env, text=True
    )
    repo.path = Path(printed.splitlines()[-1])
    return repo.git("rev-parse", "HEAD").strip()


HANDS = """
def every_file():
    for folder, folders, names in os.walk("."):
        folders[:] = [name for name in folders if name != ".git"]
        yield from (os.path.join(folder, name) for name in names if name != ".git")
def write_again():
    for name in every_file():
        if os.path.islink(name):
            target = os.readlink(name)
            os.unlink(name)
            os.symlink(target, name)
        else:
            with open(name, "rb") as file: data, mode = file.read(), os.stat(name).st_mode
            os.unlink(name)
            with open(name, "wb") as file: file.write(data)
            os.chmod(name, mode)
def touch_again():
    for name in every_file(): os.utime(name, (1e9, 1e9), follow_symlinks=False)
def change(name, old, new):
    with open(name, "rb") as file: data = file.read()
    with open(name, "wb") as file: file.write(data.replace(old, new))
"""
SIGN_OF_LIFE = (
    '{"type":"assistant","message":{"content":[{"type":"text","text":"hm"}]}}'
)

WORKS = "works, and makes a new file"

# How an agent ends that has done nothing, and the verdict on it; a provider's limit
# ends the run.
ENDINGS = rows(rf"""
{WORKS} :: P('worked').touch(); print(RESULT) :: passed
ends well :: print(RESULT) :: no-op
ends with 3 :: print(SIGN_OF_LIFE); sys.exit(3) :: failed
kills itself :: print(SIGN_OF_LIFE, flush=True); os.kill(os.getpid(), signal.SIGKILL) :: failed
touches every file :: touch_again(); print(RESULT) :: no-op
hangs :: print(SIGN_OF_LIFE, flush=True); time.sleep(600) :: timed-out
writes every file again :: write_again(); print(RESULT) :: no-op
floods :: print('x' * 2_000_000); [print(SIGN_OF_LIFE) for _ in range(5_000)]; print(RESULT) :: no-op
runs setup again :: sh(SETUP); print(RESULT) :: no-op
commits :: sh('git add -A; git commit -qm x; git stash -qu'); print(RESULT) :: no-op
is limited :: print(LIMITED); sys.exit(1) :: limited
""")


def agent(repo: Repo, odd: Odd, script: str) -> str:
    """An agent that reports as Claude does, and has HANDS and these names at hand."""
    recorded = (ROOT / "tests/recordings/claude/sub_limit.txt").read_text()
    reset = f'"resetsAt":{int(time.time()) + 9000}'
    limited = re.sub(r'"resetsAt":\d+', reset, recorded)
    names = known(odd, RESULT=RESULT, SIGN_OF_LIFE=SIGN_OF_LIFE, LIMITED=limited)
    return speaker(repo, names + HANDS + script)


def known(odd: Odd, **names: object) -> str:
    names |= {"FILE": odd.file, "OLD": odd.old, "NEW": odd.new}
    names["SETUP"] = odd.plan.get("setup", "true")
    return "".join(f"{name} = {value!r}\n" for name, value in names.items())


def endings(number: int) -> list[str]:
    """How agents end in the repository of this number; `make test-crash` tries them all
    in each. What works is the second: where nothing passes, the third blocked task is
    the last."""
    every = [name for name in ENDINGS if name != WORKS]
    if not WHOLE:
        every = [name for at, name in enumerate(every) if (at - number) % 5 == 0]
    return [every[0], WORKS, *every[1:]]


@pytest.mark.parametrize("name", sample(REPOSITORIES, 8))
def test_doing_nothing_is_a_no_op(repo: Repo, name: str) -> None:
    odd = REPOSITORIES[name]
    base = made(repo, odd)
    tried = endings([*REPOSITORIES].index(name))
    deeds, verdicts = [], []
    for how in tried:
        deed, verdict = ENDINGS[how]
        deeds.append(deed)
        verdicts.append(verdict)
    tasks = [{"title": how} for how in tried]
    plan(repo, *tasks, **{"checks": ["true"], **odd.plan}, limits={"attempts": 1})
    does = agent(repo, odd, f"exec({deeds!r}[int(task[1:]) - 1])")
    words = ["--max-wait", "0"]
    if "hangs" in tried:
        words += ["--agent-timeout", "3s"]
    code = 75 if "is limited" in tried else 4
    said = repo.ends(f"{code}: T2", does, *words, first=NEVER_STUCK).printed
    assert of_verdicts(repo, "verdict") == verdicts, said
    assert repo.commits(since=base) == [f"T2: {WORKS}"]
    assert repo.git("diff-tree", "-r", "--name-only", base, "ralph/p") == "worked\n"


def as_git_has_it(repo: Repo, odd: Odd, base: str) -> str:
    """The tree with the task's edit as `git add` makes it in a fresh clone, which may
    turn the other lines as well."""
    clone = repo.outside / "clone"
    local = ("config", "--local", "--get-regexp")
    settings = []
    for line in repo.git(*local, r"^core\.(filemode|ignorecase|symlinks)$").split("\n"):
        if line:
            settings.append("-c" + line.replace(" ", "="))
    repo.git("clone", "-q", "--no-checkout", *settings, str(repo.path), str(clone))
    own = repo.path / repo.git("rev-parse", "--git-path", "info/attributes").strip()
    if own.exists():
        (clone / ".git/info").mkdir(exist_ok=True)
        shutil.copy(own, clone / ".git/info/attributes")
    git = ("--literal-pathspecs", "-C", str(clone))
    repo.git(*git, "checkout", "-q", "--detach", base)
    setup = odd.plan.get("setup", "true")
    edit = f"import os\n{known(odd)}{HANDS}{odd.work}"
    done: Any = {"cwd": clone, "env": repo.env, "check": True}
    subprocess.run(["sh", "-c", f"{setup}\ngit reset -q {base}"], **done)
    subprocess.run([sys.executable, "-c", edit], **done)
    repo.git(*git, "add", "-A", "--", odd.file)
    return repo.git(*git, "write-tree")


def is_that_line_alone(repo: Repo, odd: Odd, base: str) -> bool:
    """Whether in what is stored nothing but the edited line differs."""
    changed = repo.git("diff-tree", "-r", "--raw", "-z", base, "ralph/p").split("\0")
    if odd.work != Odd.work or len(changed) != 3 or changed[1] != odd.file:
        return False
    before, after, old, new, _ = changed[0].split()
    show = ["git", "cat-file", "blob"]
    stored = subprocess.check_output([*show, old], cwd=repo.path)
    landed = subprocess.check_output([*show, new], cwd=repo.path)
    return f":{after}" == before and landed == stored.replace(odd.old, odd.new)


@pytest.mark.parametrize("name", sample(REPOSITORIES, 8))
def test_a_change_of_one_line_lands_as_git_has_it_and_nothing_else_does(
    repo: Repo, name: str
) -> None:
    odd = REPOSITORIES[name]
    base = made(repo, odd)
    source = f"import os, sys\n{known(odd)}sys.exit(not ({odd.green}))\n"
    check = repo.write("../check.py", source).resolve()
    task = f"{sys.executable} -IS {check}"
    plan(repo, task, **{"checks": ["true"], **odd.plan})
    repo.ends("0: T1", agent(repo, odd, f"{odd.work}\nprint(RESULT)"))
    assert repo.commits(since=base) == ["T1: task 1"]
    tree = repo.git("rev-parse", "ralph/p^{tree}")
    alone = is_that_line_alone(repo, odd, base)
    assert alone or tree == as_git_has_it(repo, odd, base)
