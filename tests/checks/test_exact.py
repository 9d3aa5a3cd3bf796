"""The list of a room: whatever a check or hook did to what setup made is undone, or
seen."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from _ralph.checks import exact
from tests.conftest import cases

TRACKED = {"a.py", "pkg/b.py", "pkg/inner/c.py"}
MAKE = """
mkdir -p pkg/inner/__pycache__ pkg/__pycache__ __pycache__ deps/bin deps/__pycache__ deps/empty target .git
for file in a.py pkg/b.py pkg/inner/c.py deps/x.js deps/bin/tool pkg/made.txt target/old .git/HEAD; do
  echo $file > $file
done
for file in __pycache__/a pkg/__pycache__/b deps/__pycache__/x; do echo made > $file.pyc; done
ln -s x.js deps/link
"""
MADE = [
    "deps",
    "deps/__pycache__",
    "deps/__pycache__/x.pyc",
    "deps/bin",
    "deps/bin/tool",
    "deps/empty",
    "deps/link",
    "deps/x.js",
    "pkg/made.txt",
]


def sh(folder: Path, script: str) -> None:
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True)


def keeps(name: str) -> bool:
    return name == "target" or name.startswith("target/")


def listed(room: Path) -> exact.Listing:
    return exact.listing(room, TRACKED, keeps)


@pytest.fixture
def room(tmp_path: Path) -> Path:
    sh(tmp_path, MAKE)
    assert sorted(listed(tmp_path)) == MADE
    return tmp_path


@cases("""
deed
touch -r deps/x.js .git/t; echo evil/x.js > deps/x.js; touch -r .git/t deps/x.js
rm deps/x.js
chmod +x deps/x.js
ln -sf other deps/link
rm -r deps/bin; touch deps/bin
rm -r deps/bin; ln -s /usr/bin deps/bin
rmdir deps/empty
echo x > pkg/made.txt
""")
def test_what_setup_made_is_not_changed_unseen(room: Path, deed: str) -> None:
    wanted = listed(room)
    sh(room, deed)
    assert exact.restore(room, TRACKED, keeps, wanted)


# What is kept, and git's own folder, are nobody's business; the same bytes under another
# time are the same.
@cases(r"""
deed
touch new
touch deps/new.js
cp -R deps pkg/copy
touch "$(printf "\377")"
mkfifo pipe
mkdir pkg/.git
mkdir -m 0 locked
echo evil > pkg/__pycache__/b.pyc
touch target/new .git/new
touch deps/bin/tool; cp deps/x.js .git/x; mv .git/x deps/x.js
""")
def test_what_is_new_goes(room: Path, deed: str) -> None:
    wanted = listed(room)
    sh(room, deed)
    assert exact.restore(room, TRACKED, keeps, wanted) == []
    assert sorted(listed(room)) == MADE
    assert not (room / "pkg/__pycache__").exists()
    for kept in ("target/new", ".git/new"):
        assert (room / kept).exists() is (kept in deed)


def test_files_with_several_names_get_copies_of_their_own(room: Path) -> None:
    sh(room, "chmod 755 deps/x.js; ln deps/x.js cache; ln deps/x.js deps/two")
    before = sorted(os.listdir(room / "deps"))
    exact.unshare(room / "deps")
    sh(room, "echo edited > deps/x.js; test -x deps/x.js -a -L deps/link")
    sh(room, "for name in cache deps/two; do grep -qx deps/x.js $name; done")
    assert sorted(os.listdir(room / "deps")) == before
