"""Two lines of work as one tree: merged by git, with its markers where it could not."""

from __future__ import annotations

import pytest

from _ralph.git.git import Git
from _ralph.git.merge import merge, still_marked
from tests.conftest import Repo
from tests.git.support import head, listing
from tests.git.test_branch import work_on

Files = dict[str, str]

LINES = "1\n2\n3\n4\n5\n6\n7\n8\n"
BASE: Files = {
    "text": LINES, "gone": "x\n", "uv.lock": "lock\n", "web/yarn.lock": "lock\n", "binary": "\0\1",
    "sub": "1" * 40, "link": "->a",
}  # fmt: skip


def mode_of(name: str, content: str) -> str:
    return (
        "160000"
        if name == "sub"
        else "120000"
        if content.startswith("->")
        else "100644"
    )


def commit_of(repo: Repo, files: Files, parent: str = "") -> str:
    """A commit with exactly these files on `parent`."""
    index = {"GIT_INDEX_FILE": str(repo.outside / "index")}
    (repo.outside / "index").unlink(missing_ok=True)
    before, repo.env = repo.env, {**repo.env, **index}
    try:
        for name, content in files.items():
            blob, mode = repo.outside / "blob", mode_of(name, content)
            blob.write_text(content)
            made = (
                content
                if name == "sub"
                else repo.git("hash-object", "-w", str(blob)).strip()
            )
            repo.git("update-index", "--add", "--cacheinfo", f"{mode},{made},{name}")
        parents = ["-p", parent] if parent else []
        return repo.git(
            "commit-tree", repo.git("write-tree").strip(), *parents, "-m", "x"
        ).strip()
    finally:
        repo.env = before


def without(*names: str) -> Files:
    return {name: content for name, content in BASE.items() if name not in names}


@pytest.mark.parametrize(("tip", "work", "marked", "kept", "stands"), [
    # beside each other
    ({**BASE, "text": "0\n2\n3\n4\n5\n6\n7\n8\n"}, {**BASE, "text": "1\n2\n3\n4\n5\n6\n7\n9\n"}, [], [],
     {"text": "0\n2\n3\n4\n5\n6\n7\n9\n"}),
    # the same lines
    ({**BASE, "text": "tip\n"}, {**BASE, "text": "work\n"}, ["text"], [], {"text": "<<<<<<< {tip}\ntip\n=======\nwork\n>>>>>>> {work}\n"}),
    # what a tool writes as a whole
    ({**BASE, "text": "tip\n", "uv.lock": "tip\n"}, {**BASE, "text": "work\n", "uv.lock": "work\n", "more": "w\n"},
     ["text"], ["uv.lock"], {"uv.lock": "tip\n", "more": "w\n"}),
    # what has no lines to mark
    ({**BASE, "binary": "\0tip"}, {**BASE, "binary": "\0work"}, [], ["binary"], {"binary": "\0tip"}),
    (without("gone"), {**BASE, "gone": "work\n"}, [], ["gone"], {"gone": None}),
    ({**BASE, "gone": "tip\n"}, without("gone"), [], ["gone"], {"gone": "tip\n"}),
    # a file here, a folder there
    ({**without("gone"), "gone/a": "tip\n"}, {**BASE, "gone": "work\n"}, [], ["gone"], {"gone/a": "tip\n", "gone": None}),
    ({**BASE, "gone": "tip\n"}, {**without("gone"), "gone/a": "work\n"}, [], ["gone"], {"gone": "tip\n", "gone/a": None}),
    # what is no file
    ({**BASE, "sub": "2" * 40}, {**BASE, "sub": "3" * 40}, [], ["sub"], {"sub": "2" * 40}),
    ({**BASE, "link": "->tip"}, {**BASE, "link": "->work"}, [], ["link"], {"link": "->tip"}),
    # renamed on one side, and on both
    ({**without("text"), "moved": LINES}, {**BASE, "text": LINES + "work\n"}, [], [], {"moved": LINES + "work\n", "text": None}),
    ({**without("text"), "moved": LINES + "tip\n"}, {**BASE, "text": LINES + "work\n"}, ["moved"], [],
     {"moved": LINES + "<<<<<<< {tip}:moved\ntip\n=======\nwork\n>>>>>>> {work}:text\n", "text": None}),
    # a name with a line feed
    ({**BASE, "a\nb": "tip\n"}, {**BASE, "a\nb": "work\n"}, ["a\nb"], [], {"a\nb": "<<<<<<< {tip}\ntip\n=======\nwork\n>>>>>>> {work}\n"}),
])  # fmt: skip
def test_a_merge_is_git_s_with_markers_or_with_the_tip_s_files(
    repo: Repo,
    tip: Files,
    work: Files,
    marked: list[str],
    kept: list[str],
    stands: dict[str, str | None],
) -> None:
    base = commit_of(repo, BASE)
    ours, theirs = commit_of(repo, tip, base), commit_of(repo, work, base)
    found = merge(Git.at(repo.path), ours, theirs)
    assert (found.marked, found.kept) == (marked, kept)
    there = {name: content for name, (_, content) in listing(repo, found.tree).items()}
    assert all(
        mode == mode_of(name, said)
        for name, (mode, said) in listing(repo, found.tree).items()
    )
    assert not [name for name in there if "~" in name]
    for name, content in stands.items():
        said = (
            content.replace("{tip}", ours).replace("{work}", theirs)
            if content
            else content
        )
        assert there.get(name) == said
    assert still_marked(Git.at(repo.path), found.tree, [*marked, *kept]) == marked


def test_a_mark_that_stood_there_before_is_no_conflict(repo: Repo) -> None:
    said = "<<<<<<< HEAD\nx\n=======\ny\n>>>>>>> feature\n"
    work = work_on(repo, head(repo), "doc.md", said)
    assert still_marked(Git.at(repo.path), work, ["doc.md"]) == []
    assert still_marked(Git.at(repo.path), work, []) == []


def test_histories_that_have_nothing_in_common_merge_all_the_same(repo: Repo) -> None:
    one, other = commit_of(repo, {"a": "1\n"}), commit_of(repo, {"b": "2\n"})
    found = merge(Git.at(repo.path), one, other)
    assert not found.conflicts and listing(repo, found.tree).keys() == {"a", "b"}
