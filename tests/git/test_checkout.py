"""A checkout of ralph's own: whatever was done in it, its files are those of a commit
again, what it holds becomes a tree, and home is as it was."""

from __future__ import annotations

import copy
import os
from pathlib import Path

import pytest

from _ralph import files
from _ralph.errors import BadInput
from _ralph.git import checkout as checkouts
from _ralph.git import snapshot as snapshots
from _ralph.git.checkout import Checkout, hide, remove_unusable
from _ralph.git.git import Git, freeze_settings
from _ralph.git.litter import ignored_since
from _ralph.git.notes import Start
from _ralph.git.snapshot import restore, settle, snapshot
from _ralph.git.submodules import lacking
from _ralph.git.throwaway import NO_PUSH
from tests.conftest import Repo, cases
from tests.git.support import (
    changed,
    checked_out,
    head,
    in_it,
    listing,
    on_disk,
    place_of,
    places_of,
    seen,
    taken,
    tree_of,
    with_lib,
    write,
)

FILE, LINK, PROGRAM = "100644", "120000", "100755"


@pytest.fixture(autouse=True)
def settings_of_ones_own(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """git here reads settings of the test, and one that waits for a FIFO is killed."""
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(tmp_path / "gitconfig"))
    for module in (checkouts, snapshots):
        monkeypatch.setattr(module, "BULK", 20.0)


@pytest.fixture
def project(repo: Repo) -> Repo:
    """A few files of every kind that git knows."""
    repo.write("src/main.py", "print(1)\n")
    repo.write("src/deep/er/x.txt", "x\n")
    repo.program("run.sh", "true")
    (repo.path / "link").symlink_to("src/main.py")
    repo.write(".gitignore", "*.log\nbuild/\n/kept\n")
    repo.commit("project")
    return repo


# ---------------------------------------------------------------- checked out again

NESTED = "git init -q {0} && cd {0} && echo inner > inner.txt && git add . && git -c user.name=x -c user.email=x commit -qm x"
SAME_SIZE = "touch -r a.txt ../then; echo b > a.txt; touch -r ../then a.txt"
HIDDEN = "git update-index --assume-unchanged a.txt; echo new > a.txt"
FILTER = "git config filter.x.clean 'echo EVIL'; echo '* filter=x' > .git/info/attributes; echo new > a.txt"
SCRIPTS = {"SAME_SIZE": SAME_SIZE, "HIDDEN": HIDDEN, "FILTER": FILTER}
SCRIPTS["NESTED"] = NESTED.format("sub")


def do(place: Checkout, script: str) -> None:
    """What an agent does in a place, a script or by the names of some."""
    for name, known in SCRIPTS.items():
        script = script.replace(name, known)
    in_it(place, "sh", "-c", f"INDEX='{place.index}'; {script}", check=False)


@cases("""
what                              -> deed
edited, same size, times set back -> SAME_SIZE
the folder deleted                -> rm -rf "$PWD"
the folder a link                 -> rm -rf "$PWD"; ln -s elsewhere "$PWD"
a folder in the place of a file   -> rm a.txt; mkdir -p a.txt/x
a link in the place of a folder   -> rm -r src; ln -s ../elsewhere src
a FIFO that git would read        -> rm .gitignore; mkfifo .gitignore src/.gitattributes
a repository inside               -> NESTED
a closed folder                   -> chmod 0 src
.git that leads elsewhere         -> rm -rf .git; echo gitdir: /tmp > .git
files hidden from the index       -> HIDDEN
a filter of its own               -> FILTER
history rewritten                 -> git rm -rq src; git commit -qam x; git gc -q --prune=now
a lock left                       -> touch $INDEX.lock
""")
def test_whatever_was_done_the_files_are_those_of_the_commit_again(
    project: Repo, what: str, deed: str
) -> None:
    elsewhere = project.outside / "places/elsewhere/main.py"
    elsewhere.parent.mkdir(parents=True)
    elsewhere.write_text("theirs")
    before, wanted = seen(project), listing(project, "HEAD")
    place, tree = checked_out(project), tree_of(project)
    assert on_disk(place.root) == wanted
    do(place, deed)
    remove_unusable(place, tree)
    place.reset(tree)
    assert settle(place, tree) == tree
    places_of(project).add_git_and_settings(place, head(project))
    assert on_disk(place.root) == wanted
    assert in_it(place, "git", "status", "--porcelain") == ""
    assert elsewhere.read_text() == "theirs"
    assert seen(project) == before


def test_a_place_goes_from_one_commit_to_another(project: Repo) -> None:
    place, first = place_of(project), head(project)
    place.open()
    # as a first checkout leaves it that was killed
    place.index.with_name(f"{place.index.name}.lock").write_bytes(b"DIRC")
    place.reset(first)
    project.git("rm", "-rq", "src")
    project.write("src", "a file now\n")
    project.commit("another")
    for commit in (head(project), first, tree_of(project)):
        place.reset(commit)
        assert on_disk(place.root) == listing(project, commit)


def test_a_place_that_git_cannot_read_is_made_anew(project: Repo) -> None:
    place = checked_out(project)
    place.index.write_bytes(b"garbage")
    assert place.reset(head(project)) is True
    assert snapshot(place, head(project)) == (tree_of(project), [])


def test_a_filter_that_is_not_installed_is_named(project: Repo) -> None:
    project.write(".gitattributes", "*.bin filter=lfs\n")
    project.write("a.bin", "pointer\n")
    project.commit("a large file")
    project.git("config", "filter.lfs.process", "no-such-lfs filter-process")
    project.git("config", "filter.lfs.required", "true")
    with pytest.raises(BadInput, match=r"git cannot work here; .*no-such-lfs"):
        checked_out(project)


@pytest.mark.parametrize("name", ["[id].ts", "\\a*? ", "#1"])
def test_a_reset_keeps_what_setup_made_whatever_its_name(
    project: Repo, name: str
) -> None:
    place = place_of(project)
    place.reset(tree_of(project))
    write(place, name)
    assert place.untracked() == [name]
    hide(place, [name])
    write(place, "left")
    place.reset(tree_of(project))
    assert settle(place, tree_of(project)) == tree_of(project)
    assert (place.root / name).exists() and not (place.root / "left").exists()


# ---------------------------------------------------------------- work


def shown(entry: tuple[str, str] | None) -> str:
    """An entry of a tree as the table has it."""
    mode, content = entry or ("", "")
    sign = {LINK: "->", PROGRAM: "*"}.get(mode, "")
    return sign + content.removesuffix("\n")


def begun(repo: Repo, place: Checkout) -> Start:
    """A place with the files of HEAD, as an agent finds it."""
    tree = tree_of(repo)
    place.reset(tree)
    places_of(repo).add_git_and_settings(place, head(repo))
    hide(place, [])
    return Start("x", tree, snapshot(place, tree)[0])


# What is done, how the tree differs from the commit's (`name: content`; `->` a link, `*`
# a program, nothing where it is gone), and a word of what is said.
@cases(r"""
deed                                                  wanted                          word
SAME_SIZE                                             a.txt: b
chmod +x a.txt                                        a.txt: *a
ln -s a.txt out                                       out: ->a.txt
rm -r src; echo new > src                             src: new; src/deep/er/x.txt: ; src/main.py:
echo new > '-x :(top)*\n"é'                           -x :(top)*\n"é: new
echo build/ > .gitignore; echo new > x.log            .gitignore: build/; x.log: new
mkfifo src/fifo                                       -                               git cannot add src/fifo; it was removed
NESTED                                                sub/inner.txt: inner            sub was a git repository of its own; its files are part of the work
mkdir build; cd build; NESTED
mkdir n; echo new > n/x; chmod 0 n                    n/x: new
HIDDEN                                                a.txt: new
echo '*' > .git/info/exclude; echo new > a.txt        a.txt: new
FILTER                                                a.txt: new
echo new > a.txt; git stash -q
echo new > a.txt; git add -A; rm -rf .git/objects     a.txt: new
""")
def test_a_snapshot_is_what_stands_there_and_git_does_not_ignore(
    project: Repo, deed: str, wanted: str, word: str
) -> None:
    before = seen(project)
    place = place_of(project)
    start = begun(project, place)
    do(place, deed)
    tree, said = taken(place, start)
    there = listing(project, tree)
    found = [f"{name}: {shown(there.get(name))}" for name in changed(project, tree)]
    assert "; ".join(found).strip() == wanted
    assert len(said) == bool(word) and word in "".join(said)
    assert seen(project) == before


def test_a_person_s_settings_are_read_once_and_what_tools_leave_is_no_work(
    project: Repo, tmp_path: Path
) -> None:
    project.write("tracked.egg-info/x", "theirs\n")
    project.git("add", "-f", "tracked.egg-info")
    project.git("commit", "-qm", "tracked all the same")
    ignore, config = tmp_path / "ignore", tmp_path / "gitconfig"
    ignore.write_text("*.mine\n")
    config.write_text(f"[core]\n\texcludesFile = {ignore}\n")
    place = place_of(project)
    place.index.parent.mkdir(parents=True)
    freeze_settings(place.home, place.index.parent)
    start = begun(project, place)
    ignore.write_text("*\n")
    config.write_text("[core]\n\texcludesFile = /dev/null\n\tworktree = /nowhere\n")
    for name in ("src/__pycache__/m.pyc", "node_modules/x.js", ".DS_Store", "x.mine"):
        write(place, name)
    write(place, "tracked.egg-info/x")
    write(place, "src/new.py")
    tree, _ = taken(place, start)
    found = changed(project, tree)
    assert found == ["src/new.py", "tracked.egg-info/x"]


def test_files_to_carry_over_are_copied_and_never_committed(project: Repo) -> None:
    project.write(".gitignore", ".env*\n/secrets/\n*.log\n")
    project.write(".env.branch", "the branch's\n")
    project.git("add", "-f", ".env.branch")
    project.commit("ignore")
    project.write(".env.branch", "mine\n")
    project.write(".env", "KEY=1\n").chmod(0o600)
    project.write("secrets/deep/key", "k\n")
    project.write(".env.prod", "no\n")
    project.write("loose.txt", "not ignored\n")
    project.write("../shared/env", "LINKED=1\n")
    (project.path / ".env.link").symlink_to("../shared/env")
    project.write(".worktreeinclude", ".env*\n!.env.prod\nsecrets/\nloose.txt\na.txt\n")
    place = place_of(project)
    start = begun(project, place)
    assert place.carried == [".env", ".env.link", "secrets/deep/key"]
    assert on_disk(place.root)[".env.branch"][1] == "the branch's\n"
    assert on_disk(place.root)[".env.link"] == (FILE, "LINKED=1\n")
    copied = place.root / ".env"
    assert (copied.read_text(), copied.stat().st_mode & 0o777) == ("KEY=1\n", 0o600)
    copied.write_text("EVIL")
    write(place, ".gitignore", "")
    write(place, "a.txt", "KEY=1\n")
    write(place, "moved", "k\n")
    tree, said = taken(place, start)
    assert changed(project, tree) == [".gitignore"]
    assert said == [
        "a.txt (a copy of .env, which git ignores; left out)",
        "moved (a copy of secrets/deep/key, which git ignores; left out)",
    ]
    assert project.read(".env") == "KEY=1\n"
    places_of(project).add_git_and_settings(place, head(project))
    assert copied.read_text() == "KEY=1\n"


def test_what_is_ignored_and_new_is_named_and_caches_are_not(project: Repo) -> None:
    ignored = ["build/", "node_modules/", "*.log", "__pycache__/", ".aider*"]
    project.write(".gitignore", "\n".join(ignored) + "\n")
    project.commit("ignore")
    place = checked_out(project)
    write(place, "build/old")
    write(place, "node_modules/old/x")
    moment = (place.root / "node_modules/old/x").stat().st_ctime + 0.001
    write(place, "x.log")
    while (place.root / "x.log").stat().st_ctime < moment:
        write(place, "x.log")  # until the clock of this file system has gone on
    for name in ("build/new", "src/__pycache__/m.pyc", "build/.cache/x", "d.log"):
        write(place, name)
    write(place, ".aider.chat.history.md")
    found = sorted(ignored_since(place, moment))
    assert found == ["build", "d.log", "x.log"]


def test_changes_name_the_files(repo: Repo) -> None:
    before = head(repo)
    repo.write("a.txt", "b\nc\n")
    repo.write("é\n", "x\n")
    (repo.path / "blob").write_bytes(b"\0\1")
    repo.commit("work")
    git, names = Git.at(repo.path), ["a.txt", "blob", "é\n"]
    assert [*git.difference(before, head(repo))] == names


# ---------------------------------------------------------------- protected files


# The work, and what is put back of it, with what is new and stays: an existing file, a
# file for a folder and the reverse, a new file, one with a plain name, one whose path is
# a pattern, one that is lifted, and state files.
@cases("""
protect              allow       deed                                              back                        new
tests/**             -           echo x > tests/a.py; echo y > a.txt               tests/a.py
tests/**             -           rm tests/a.py; mkdir tests/a.py; touch tests/a.py/x  tests/a.py               tests/a.py/x
tests/**             -           rm -r tests; touch tests                          tests/a.py tests/deep/b.py
tests/**             -           touch tests/new.py                                -                           tests/new.py
conftest.py          -           touch src/conftest.py                             src/conftest.py
/.cargo/config.toml  -           mkdir .cargo; cd .cargo; touch config.toml audit.toml  .cargo/config.toml
tests/**             tests/a.py  echo x > tests/a.py; echo x > tests/deep/b.py     tests/deep/b.py
-                    prd.json    echo x > prd.json; echo x > progress.txt          prd.json progress.txt
""")
def test_protected_files_are_put_back_as_an_edit_of_the_tree(
    project: Repo, protect: str, allow: str, deed: str, back: str, new: str
) -> None:
    for path in ("tests/a.py", "tests/deep/b.py", "prd.json"):
        project.write(path, "real\n")
    project.commit("files")
    place = checked_out(project)
    do(place, deed)
    left, _ = snapshot(place, head(project))
    state = ["prd.json", "progress.txt"]
    given = (place.git, head(project), left, protect.split(), allow.split(), state)
    tree, restored, stays = restore(*given)
    assert (sorted(restored), sorted(stays)) == (back.split(), new.split())
    was, worked, now = (listing(project, one) for one in ("HEAD", left, tree))
    for path in worked.keys() | was.keys():
        wanted = was if path in back.split() else worked
        if "rm " not in deed:  # there is no room for both
            assert now.get(path) == wanted.get(path)


CAFE = "caf\u00e9"


# Another case, another form, one of ralph's own; and one that is lifted.
@cases(f"""
protect      allow        new          stays
conftest.py  -            Conftest.py  out
{CAFE}.py    -            cafe\u0301.py  out
tests/**     -            PRD.json     out
conftest.py  CONFTEST.py  Conftest.py  in
""")
def test_names_that_the_disk_does_not_tell_apart_are_protected_as_one(
    repo: Repo, protect: str, allow: str, new: str, stays: str
) -> None:
    line = f"100644 {repo.git('hash-object', 'a.txt').strip()}\t{new}"
    git = Git.at(repo.path)
    tree = git.edited(head(repo), [line])
    given = (git, head(repo), tree, [protect], allow.split(), ["prd.json"])
    _, back, _ = restore(*given)
    assert [*back] == ([new] if stays == "out" else [])


# ---------------------------------------------------------------- kinds of repository


@pytest.fixture
def modular(repo: Repo) -> Repo:
    return with_lib(repo)


def test_submodules_come_from_home_s_own_copies_the_nested_ones_too(
    modular: Repo,
) -> None:
    place = place_of(modular)
    for _ in range(2):
        place.reset(head(modular))
        found = on_disk(place.root)
        assert found["vendor/lib/lib.txt"] == (FILE, "lib\n")
        assert found["vendor/lib/deps/leaf/leaf.txt"] == (FILE, "leaf\n")
        write(place, "vendor/lib/deps/leaf/leaf.txt", "EVIL")
        write(place, "vendor/lib/new.txt")
        files.clear(place.root / "vendor/lib/lib.txt")
    assert modular.git("status", "--porcelain", "--ignore-submodules=none") == ""


@cases("""
deed
echo EVIL > vendor/lib/lib.txt
rm -r vendor; ln -s HOME/vendor vendor
""")
def test_what_is_changed_in_a_submodule_is_named_and_is_no_part_of_the_work(
    modular: Repo, deed: str
) -> None:
    place = checked_out(modular)
    before = seen(modular)
    do(place, f"{deed}; echo work > a.txt".replace("HOME", str(modular.path)))
    tree, (said,) = snapshot(place, head(modular))
    assert changed(modular, tree) == ["a.txt"]
    what = "what was changed in it is not part of the work"
    assert said == f"vendor/lib is a submodule; {what}"
    place.reset(head(modular))
    assert on_disk(place.root)["vendor/lib/lib.txt"] == (FILE, "lib\n")
    assert seen(modular) == before


def test_a_submodule_without_its_commit_at_home_is_named_and_empty(
    modular: Repo,
) -> None:
    modular.git("update-index", "--cacheinfo", f"160000,{'1' * 40},vendor/lib")
    modular.git("commit", "-qm", "pulled")
    place = place_of(modular)
    assert lacking(place.home, head(modular)) == ["vendor/lib"]
    place.reset(head(modular))
    assert "vendor/lib/lib.txt" not in on_disk(place.root)


def kind_of(repo: Repo, kind: str) -> Repo:
    """A repository of this kind, made of `repo`."""
    if kind == "sha256":
        made = Repo(repo.outside / "new", git=False)
        made.git("init", "-q", "-b", "main", "--object-format=sha256", "--template=")
        for name, value in {"name": "Test", "email": "test@example.invalid"}.items():
            made.git("config", f"user.{name}", value)
        made.commit("start")
        return made
    if kind == "a hidden file":
        repo.git("update-index", "--skip-worktree", "a.txt")
        return repo
    made = copy.copy(repo)
    made.path = repo.outside / "beside"
    if kind == "a linked worktree":
        repo.git("worktree", "add", "-q", "-b", "side", str(made.path))
    else:
        repo.write("b.txt", "b\n")
        repo.commit("second")
        repo.git("clone", "-q", "--depth=1", f"file://{repo.path}", str(made.path))
    return made


@pytest.mark.parametrize(
    "kind", ["sha256", "a hidden file", "a linked worktree", "a shallow clone"]
)
def test_work_in_every_kind_of_repository(repo: Repo, kind: str) -> None:
    made = kind_of(repo, kind)
    place = checked_out(made)
    assert in_it(place, "git", "log", "-1", "--format=%H").strip() == head(made)
    assert in_it(place, "git", "fsck", "--connectivity-only") == ""
    do(place, "echo new > a.txt; git commit -qam 'of an agent'")
    tree, said = snapshot(place, head(made))
    assert (said, listing(made, tree)["a.txt"]) == ([], (FILE, "new\n"))


# ---------------------------------------------------------------- the throwaway .git


REFS = """\
refs/heads/feature/é-x:
refs/remotes/origin/HEAD:refs/remotes/origin/main
refs/remotes/origin/a\u2028b:
refs/remotes/origin/main:
refs/remotes/up/ralph/p:
refs/tags/v1.0:
refs/tags/v1.1:
"""


def test_the_throwaway_git_is_as_if_somebody_had_cloned(project: Repo) -> None:
    project.git("tag", "v1.0", "HEAD~1")
    project.git("tag", "-a", "v1.1", "-m", "annotated")
    project.git("branch", "main-of-mine")
    project.git("config", "credential.helper", "store")
    project.git("config", "alias.x", "!touch /tmp/x")
    project.program(".git/hooks/pre-commit", "exit 1")
    for name in ("origin/main", "origin/a\u2028b", "up/ralph/p"):
        project.git("update-ref", f"refs/remotes/{name}", "HEAD~1")
    project.git("symbolic-ref", "refs/remotes/origin/HEAD", "refs/remotes/origin/main")
    project.git("symbolic-ref", "refs/remotes/up/HEAD", "refs/remotes/up/unborn")
    place = checked_out(project, branch="feature/é-x")
    refs = in_it(place, "git", "for-each-ref", "--format=%(refname):%(symref)")
    assert refs == REFS
    assert in_it(place, "git", "describe").strip() == "v1.1"
    assert in_it(place, "git", "symbolic-ref", "HEAD") == "refs/heads/feature/é-x\n"
    changed = ".gitignore link run.sh src/deep/er/x.txt src/main.py"
    for base in ("origin/main...", "origin", "v1.0"):  # as turbo and nx ask
        found = in_it(place, "git", "diff", "--name-only", base)
        assert " ".join(found.split()) == changed
    in_it(place, "git", "checkout", "-q", "main-of-mine", check=False)
    assert in_it(place, "git", "symbolic-ref", "HEAD") == "refs/heads/feature/é-x\n"
    assert os.listdir(place.root / ".git/hooks") == []
    # GitPython, which Aider has, refuses a header without `peeled`
    assert "#" not in in_it(place, "cat", ".git/packed-refs")
    settings = in_it(place, "git", "config", "--list", "--local")
    assert "user.email=test@example.invalid" in settings
    assert not any(word in settings for word in ("credential.", "alias.", "hookspath"))
    assert in_it(place, "git", "fsck", "--full") == ""


def test_origin_is_home_s_and_cannot_be_pushed_to(project: Repo) -> None:
    outer = project.path.parent / "outer"
    project.git("clone", "-q", "--bare", str(project.path), str(outer))
    project.git("remote", "add", "origin", str(outer))
    place = checked_out(project)
    asked = in_it(place, "git", "remote", "get-url", "origin").strip()
    assert asked == str(outer)
    in_it(place, "git", "fetch", "-q", "origin")
    pushed = in_it(place, "git", "remote", "get-url", "--push", "origin").strip()
    assert pushed == NO_PUSH
    do(place, "git commit -q --allow-empty -m x; git push -q origin HEAD:main")
    assert project.git("-C", str(outer), "rev-parse", "main").strip() == head(project)


def test_an_agent_commits_under_the_person_s_name(
    project: Repo, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("user.name", "user.email"):
        project.git("config", "--unset", name)
    for who in ("AUTHOR", "COMMITTER"):
        monkeypatch.setenv(f"GIT_{who}_NAME", 'Zo\u00eb "Z" O\'Neill')
        monkeypatch.setenv(f"GIT_{who}_EMAIL", "zoe@example.invalid")
    place = checked_out(project)
    in_it(place, "git", "commit", "-q", "--allow-empty", "-m", "x")
    who = in_it(place, "git", "log", "-1", "--format=%an <%ae>, %cn <%ce>").strip()
    assert who == ", ".join(['Zo\u00eb "Z" O\'Neill <zoe@example.invalid>'] * 2)


def test_nothing_that_is_done_to_the_throwaway_git_reaches_home(project: Repo) -> None:
    project.git("tag", "v1")
    project.git("branch", "mine")
    place = checked_out(project)
    before = seen(project)
    objects = len(list(files.walk(project.path / ".git/objects")))
    deeds = """git commit -q --allow-empty -m x; git tag -d v1; git tag v9; git branch other
        git update-ref refs/heads/mine HEAD; git config core.hooksPath /tmp; touch x; git stash -qu
        git reflog expire --expire=now --all; git gc -q --prune=now; git repack -adq
        git worktree add -q ../wt; git checkout -q --orphan new"""
    do(place, deeds)
    assert in_it(place, "git", "tag").split() == ["v9"]
    assert seen(project) == before
    assert len(list(files.walk(project.path / ".git/objects"))) == objects
    place = checked_out(project)
    assert in_it(place, "git", "tag").split() == ["v1"]
    assert in_it(place, "git", "branch", "--format=%(refname:short)") == "ralph/p\n"
    assert in_it(place, "git", "stash", "list") == ""
