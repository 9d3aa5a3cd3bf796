"""Odd repositories: what git converts, and what stood there before the agent came, is
never work; what the agent did is, and nothing else of the file."""

from __future__ import annotations

import itertools
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import pytest

from _ralph.git import snapshot
from _ralph.git.checkout import Checkout, hide, remove_unusable
from _ralph.git.notes import Start, note_setup, noted_setup
from _ralph.git.throwaway import copy_state
from _ralph.model import HANDOFF
from tests.conftest import Repo, sample
from tests.git.support import head, place_of, places_of, tree_of, write

LF, CRLF, MIXED = (
    b"one\ntwo\nthree\n",
    b"one\r\ntwo\r\nthree\r\n",
    b"one\r\ntwo\nthree\r\n",
)
RANDOM = "sed 's/ *#.*//' | sed \"s/$/ #$(date +%N)/\""


@dataclass(frozen=True)
class Odd:
    """A repository in which `odd.txt` has these bytes, whatever git makes of them: with
    what attributes, settings, and what `setup` does in a place. `lines` are those that
    an edit of one line changes; 0 stands for what differs at each run."""

    blob: bytes = LF
    attributes: str = ""
    config: tuple[str, ...] = ()
    setup: str = ""
    lines: int = 1


def filtered(clean: str, smudge: str = "cat") -> tuple[str, ...]:
    return (f"filter.x.clean={clean}", f"filter.x.smudge={smudge}")


REPOSITORIES = {
    "plain": Odd(),
    "line ends by eol": Odd(attributes="eol=crlf"),
    "CRLF stored, text": Odd(CRLF, "text", lines=3),
    "mixed ends stored, text": Odd(MIXED, "text", lines=3),
    "CRLF stored, eol=lf": Odd(CRLF, "text eol=lf", lines=3),
    "CRLF stored, eol=crlf": Odd(CRLF, "text eol=crlf", lines=3),
    "mixed ends stored, eol=crlf": Odd(MIXED, "text eol=crlf", lines=3),
    "CRLF stored, text=auto": Odd(CRLF, "text=auto"),
    "autocrlf": Odd(config=("core.autocrlf=true",)),
    "CRLF stored, autocrlf=input": Odd(CRLF, config=("core.autocrlf=input",)),
    "ident": Odd(b"$Id$\n" + LF, "ident"),
    "ident, an old one stored": Odd(b"$Id: x $\n" + LF, "ident", lines=2),
    "UTF-16": Odd(attributes="text working-tree-encoding=UTF-16"),
    "UTF-16 stored": Odd("one\ntwo\nthree\n".encode("utf-16"), "text working-tree-encoding=UTF-16", lines=0),
    "a filter that strips what it adds": Odd(
        attributes="filter=x", config=filtered("sed /^rnd/d", "sed \"1i rnd $(date +%N)\"")
    ),
    "a filter that sorts": Odd(b"a\nb\nc\n", "filter=x", filtered("sort")),
    "a filter that sorts, not so stored": Odd(LF, "filter=x", filtered("sort"), lines=0),
    "a filter that only adds": Odd(attributes="filter=x", config=filtered("cat", "sed '$a more'"), lines=0),
    "a filter that is random": Odd(b"a #1\nb #2\n", "filter=x", filtered(RANDOM), lines=0),
    "no modes": Odd(config=("core.fileMode=false",)),
    "no links": Odd(config=("core.symlinks=false",)),
    "setup rewrites it": Odd(setup="echo made >> odd.txt", lines=0),
    "setup rewrites it, CRLF stored": Odd(CRLF, "text", setup="echo made >> odd.txt", lines=0),
    "setup makes files": Odd(setup="mkdir -p gen/sub; echo made | tee gen/a > 'gen/sub/[b] c'"),
    "setup makes a repository": Odd(setup="git init -q gen; echo made > gen/a"),
    "setup removes other files": Odd(setup="rm a.txt; mkdir a.txt; echo x > a.txt/x"),
    "setup makes what is asked to be tracked": Odd(setup="echo '!*.made' > .gitignore; echo x > it.made"),
}  # fmt: skip


def made(repo: Repo, kind: str) -> Repo:
    """The repository, with files of every kind beside the odd one."""
    odd = REPOSITORIES[kind]
    repo.write(".ralph/specs/plan.md", "of another tool\n")
    repo.write("tracked.log", "tracked and ignored\n")
    repo.write("Two", "names\n")
    repo.write("two", "in two cases\n")
    repo.write('-x :(top)*\n"é\t[1]', "strange\n")
    repo.program("run.sh", "true")
    (repo.path / "link").symlink_to("a.txt")
    repo.git("add", "-A")
    repo.write(".gitignore", "*.log\n")
    (repo.path / "odd.txt").write_bytes(odd.blob)
    blob = repo.git("hash-object", "-w", "--no-filters", "odd.txt").strip()
    if odd.attributes:
        repo.write(".gitattributes", f"odd.txt {odd.attributes}\n")
        repo.git("add", ".gitattributes")
    for setting in odd.config:
        repo.git("config", *setting.split("=", 1))
    repo.git("add", ".gitignore")
    repo.git("update-index", "--add", "--cacheinfo", f"100644,{blob},odd.txt")
    repo.git("commit", "-qm", kind)
    return repo


def begun(repo: Repo, kind: str, tree: str, aged: bool) -> tuple[Checkout, Start]:
    """A place as an agent finds it after a checkout and `setup`. If it is `aged`, that
    took more than a second: git then believes that what has the same times is the
    same."""
    place = place_of(repo)
    new = place.reset(tree)
    places = places_of(repo, REPOSITORIES[kind].setup)
    places.add_git_and_settings(place, head(repo))
    made = [*noted_setup(place)[1]]
    if new and (result := places.set_up(place, "x")):
        assert result.ok
        made = [*place.untracked()]
    note_setup(place, "x", dict.fromkeys(made))
    hide(place, made)
    remove_unusable(place, tree)
    if aged:
        later(place.index, 2)
    return place, Start("x", tree, snapshot.snapshot(place, tree)[0])


def entries(repo: Repo, tree: str) -> dict[str, str]:
    """What a tree holds: mode and blob by name."""
    listed = (
        entry.split("\t", 1)
        for entry in repo.git("ls-tree", "-r", "-z", tree).split("\0")[:-1]
    )
    return {name: meta for meta, name in listed}


def later(path: Path, seconds: float) -> None:
    os.utime(
        path, (time.time() + seconds, time.time() + seconds), follow_symlinks=False
    )


def work(place: Checkout, start: Start) -> str:
    remove_unusable(place, start.tree)
    after, said = snapshot.snapshot(place, start.tree)
    assert said == []
    found = snapshot.work(place, start.tree, start.snapshot, after)
    return snapshot.with_work(place, start.tree, start.snapshot, after, found)


def nothing(place: Checkout) -> None: ...


def touch_all(place: Checkout) -> None:
    """Write every file again, with the same bytes."""
    for name in place.git.names("ls-files", "-z"):
        path = place.root / name
        if path.is_file() and not path.is_symlink():
            path.write_bytes(path.read_bytes())
            later(path, 5)


@pytest.mark.parametrize(
    ("kind", "aged"), sample(itertools.product(REPOSITORIES, (True, False)), 3)
)
def test_doing_nothing_is_no_work(repo: Repo, kind: str, aged: bool) -> None:
    made(repo, kind)
    for deed in (nothing, touch_all, nothing):
        place, start = begun(repo, kind, tree_of(repo), aged)
        deed(place)
        assert entries(repo, work(place, start)) == entries(repo, "HEAD")


def changed_lines(repo: Repo, tree: str, name: str) -> set[str]:
    """What git says of the change of a file in a tree."""
    return {
        line
        for line in repo.git("diff", "--numstat", "HEAD", tree).splitlines()
        if line.endswith(name)
    }


@pytest.mark.parametrize(
    ("kind", "aged"), sample(itertools.product(REPOSITORIES, (True, False)), 3)
)
def test_what_an_agent_does_is_work_and_nothing_else(
    repo: Repo, kind: str, aged: bool
) -> None:
    """An edit of one line, a new file beside those of `setup`, one removed, one made a
    program."""
    made(repo, kind)
    place, start = begun(repo, kind, tree_of(repo), aged)
    touch_all(place)
    odd, path = REPOSITORIES[kind], place.root / "odd.txt"
    words = path.read_bytes()
    for old, new in (
        (b"two", b"2wo"),
        (b"t\0w", b"2\0w"),
        (b"b\n", b"B\n"),
        (b"b #", b"B #"),
    ):
        words = words.replace(old, new)
    path.write_bytes(words)
    later(path, 6)
    mine = (
        "mine" if "git init" in odd.setup else "gen/mine"
    )  # what is in such a repository is nobody's
    write(place, mine, "mine\n")
    (place.root / "run.sh").unlink()
    (place.root / "two").rename(place.root / "three")
    (place.root / "Two").chmod(0o755)
    left = work(place, start)
    was, now = entries(repo, "HEAD"), entries(repo, left)
    assert now.pop("odd.txt") != was.pop("odd.txt")
    assert repo.git("show", f"{left}:{mine}") == "mine\n" and now.pop(mine)
    assert now.pop("three") == was.pop("two") and was.pop("run.sh")
    assert (now.pop("Two") == was.pop("Two")) is ("core.fileMode=false" in odd.config)
    assert now == was
    if odd.lines:
        assert changed_lines(repo, left, "odd.txt") == {
            f"{odd.lines}\t{odd.lines}\todd.txt"
        }
    now = entries(repo, left)
    for deed in (nothing, touch_all):  # the next attempt goes on from there
        place, start = begun(repo, kind, left, aged)
        deed(place)
        assert entries(repo, work(place, start)) == now


def test_a_program_is_made_of_a_file_that_git_would_convert(repo: Repo) -> None:
    made(repo, "CRLF stored, text")
    place, start = begun(repo, "CRLF stored, text", tree_of(repo), aged=True)
    touch_all(place)
    (place.root / "odd.txt").chmod(0o755)
    assert repo.git("diff", "--raw", "HEAD", work(place, start)).startswith(
        ":100644 100755"
    )
    assert changed_lines(repo, work(place, start), "odd.txt") == {"0\t0\todd.txt"}


@pytest.mark.parametrize("before", ["* -text\n", "* text\n"])
def test_an_agent_that_changes_the_attributes_changes_nothing_else(
    repo: Repo, before: str
) -> None:
    repo.git("config", "core.autocrlf", "false")
    for name in ("a.txt", "b.txt"):
        (repo.path / name).write_bytes(CRLF)
    repo.commit("stored as they are")
    repo.write(".gitattributes", before)
    repo.git("add", ".gitattributes")
    repo.git("commit", "-qm", "attributes")
    place, start = begun(repo, "plain", tree_of(repo), aged=True)
    files = entries(repo, "HEAD")
    was = files.pop(".gitattributes")
    write(place, ".gitattributes", "* text\n" if "-" in before else "")
    touch_all(place)
    now = entries(repo, work(place, start))
    assert now.pop(".gitattributes") != was and now == files


@pytest.mark.parametrize("aged", [True, False])
def test_a_file_that_a_required_filter_refuses_stays_as_it_is(
    repo: Repo, aged: bool
) -> None:
    for name in ("bad.bin", "good.bin"):
        repo.write(name, f"{name}\n")
    repo.write(".gitattributes", "*.bin filter=x\n")
    repo.commit("filtered")
    repo.git(
        "config",
        "filter.x.clean",
        'f=$(cat); case $f in bad*) exit 1;; *) echo "$f";; esac',
    )
    repo.git("config", "filter.x.required", "true")
    repo.git("config", "filter.x.smudge", "cat")
    place, start = begun(repo, "plain", tree_of(repo), aged)
    touch_all(place)
    write(place, "a.txt", "edited\n")
    write(place, "good.bin", "edited\n")
    later(place.root / "good.bin", 6)
    after, said = snapshot.snapshot(place, start.tree)
    assert said == ["git cannot add bad.bin; it is not part of the work"]
    found = snapshot.work(place, start.tree, start.snapshot, after)
    tree = snapshot.with_work(place, start.tree, start.snapshot, after, found)
    assert repo.git("diff", "--name-only", "HEAD", tree).split() == [
        "a.txt",
        "good.bin",
    ]


def test_an_edit_of_the_same_size_in_the_same_second_is_work(repo: Repo) -> None:
    for number in range(20):
        repo.write(f"{number}.txt", "0\n")
    repo.commit("files")
    place, start = begun(repo, "plain", tree_of(repo), aged=False)
    for number in range(20):
        path = place.root / f"{number}.txt"
        was = path.stat()
        path.write_text("1\n")
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert len(place.git.difference(start.tree, work(place, start)).entries) == 20


def test_what_setup_made_is_not_written_into_the_person_s_repository(
    repo: Repo,
) -> None:
    kind = "setup makes files"
    place, start = begun(made(repo, kind), kind, tree_of(repo), aged=False)
    assert start.snapshot == start.tree
    hide(place, [])
    assert "gen/a" in entries(repo, snapshot.snapshot(place, start.tree)[0])


@pytest.mark.skipif(sys.platform != "linux", reason="the file system knows one case")
def test_a_file_that_is_renamed_in_case_alone_is_not_lost(repo: Repo) -> None:
    repo.git(
        "config", "core.ignorecase", "true"
    )  # as a repository has it that came from another machine
    place, start = begun(repo, "plain", tree_of(repo), aged=True)
    (place.root / "a.txt").rename(place.root / "A.txt")
    assert [*entries(repo, work(place, start))] == ["A.txt"]


def test_a_person_may_let_git_ignore_the_plan(repo: Repo) -> None:
    repo.write(".gitignore", "prd.json\n*.md\n")
    repo.commit("ignored")
    repo.write("prd.json", "{}\n")
    place = place_of(repo, "prd.json", "progress.txt")
    place.reset(tree_of(repo))
    copy_state(place)
    write(place, HANDOFF, "status: done\n")
    assert snapshot.snapshot(place, tree_of(repo)) == (tree_of(repo), [])
    write(place, "new.txt", "new\n")
    made, said = snapshot.snapshot(place, tree_of(repo))
    assert said == [] and entries(repo, made).keys() == {
        *entries(repo, "HEAD"),
        "new.txt",
    }
