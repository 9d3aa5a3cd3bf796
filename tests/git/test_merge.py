"""Two lines of work as one tree: merged by git, with its markers where it could not."""

from __future__ import annotations

from _ralph.git.git import Git
from _ralph.git.merge import merge, still_marked
from tests.conftest import Repo, cases
from tests.git.support import head, listing
from tests.git.test_branch import index_beside, work_on

Files = dict[str, str]

LINES = "1\n2\n3\n4\n5\n6\n7\n8\n"
BASE: Files = {
    "text": LINES, "gone": "x\n", "uv.lock": "lock\n", "web/yarn.lock": "lock\n", "binary": "\0b",
    "sub": "1" * 40, "link": "->a",
}  # fmt: skip


def mode_of(name: str, content: str) -> str:
    if name == "sub":
        return "160000"
    return "120000" if content.startswith("->") else "100644"


def commit_of(repo: Repo, files: Files, parent: str = "") -> str:
    """A commit with exactly these files on `parent`."""
    blob = repo.outside / "blob"
    with index_beside(repo):
        for name, content in files.items():
            mode = mode_of(name, content)
            blob.write_text(content)
            made = repo.git("hash-object", "-w", str(blob)).strip()
            made = content if name == "sub" else made
            repo.git("update-index", "--add", "--cacheinfo", f"{mode},{made},{name}")
        tree = repo.git("write-tree").strip()
    parents = ["-p", parent] if parent else []
    return repo.git("commit-tree", tree, *parents, "-m", "x").strip()


def edited(edits: str) -> Files:
    """The base with other files: `name: content` each, `name:` for one that is gone."""
    files = dict(BASE)
    for edit in edits.split("; "):
        name, _, content = edit.partition(":")
        files[name] = content.strip(" ").replace("LINES", LINES)
    return {name: content for name, content in files.items() if content}


# What tip and work have in place of the base's files, the names that are marked and
# kept, and what stands there then. The last: a name with a line feed.
@cases(r"""
tip                    work                  marked  kept     stands
text: 0\n2\n3\n4\n5\n6\n7\n8\n  text: 1\n2\n3\n4\n5\n6\n7\n9\n  -  -  text: 0\n2\n3\n4\n5\n6\n7\n9\n
text: t\n              text: w\n             text    -        text: <<<<<<< TIP\nt\n=======\nw\n>>>>>>> WORK\n
text: t\n; uv.lock: t  text: w\n; uv.lock: w; more: w  text  uv.lock  text: <<<<<<< TIP\nt\n=======\nw\n>>>>>>> WORK\n; uv.lock: t; more: w
binary: \0t            binary: \0w           -       binary   binary: \0t
gone:                  gone: w               -       gone     gone:
gone: t                gone:                 -       gone     gone: t
gone: ; gone/a: t      gone: w               -       gone     gone/a: t; gone:
gone: t                gone: ; gone/a: w     -       gone     gone: t; gone/a:
sub: 2222222222222222222222222222222222222222  sub: 3333333333333333333333333333333333333333  -  sub  sub: 2222222222222222222222222222222222222222
link: ->t              link: ->w             -       link     link: ->t
text: ; moved: LINES   text: LINESw\n        -       -        moved: LINESw\n; text:
text: ; moved: LINESt\n  text: LINESw\n      moved   -        moved: LINES<<<<<<< TIP:moved\nt\n=======\nw\n>>>>>>> WORK:text\n; text:
a\nb: t\n              a\nb: w\n             a\nb    -        a\nb: <<<<<<< TIP\nt\n=======\nw\n>>>>>>> WORK\n
""")
def test_a_merge_is_git_s_with_markers_or_with_the_tip_s_files(
    repo: Repo, tip: str, work: str, marked: str, kept: str, stands: str
) -> None:
    repo.git("config", "color.ui", "always")
    base = commit_of(repo, BASE)
    ours = commit_of(repo, edited(tip), base)
    theirs = commit_of(repo, edited(work), base)
    found = merge(Git.at(repo.path), ours, theirs)
    assert ("".join(found.marked), "".join(found.kept)) == (marked, kept)
    wanted = edited(stands.replace("TIP", ours).replace("WORK", theirs))
    there = {name: (mode_of(name, said), said) for name, said in wanted.items()}
    assert listing(repo, found.tree) == there
    names = [*found.marked, *found.kept]
    assert still_marked(Git.at(repo.path), found.tree, names) == found.marked


def test_a_mark_that_stood_there_before_is_no_conflict(repo: Repo) -> None:
    said = "<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> feature\n"
    work = work_on(repo, head(repo), "doc.md", said)
    assert still_marked(Git.at(repo.path), work, ["doc.md"]) == []
    assert still_marked(Git.at(repo.path), work, []) == []


def test_histories_that_have_nothing_in_common_merge_all_the_same(repo: Repo) -> None:
    one, other = commit_of(repo, {"a": "1\n"}), commit_of(repo, {"b": "2\n"})
    found = merge(Git.at(repo.path), one, other)
    assert not found.conflicts and listing(repo, found.tree).keys() == {"a", "b"}
