"""examples/bwrap.sh: what a command in it can see and change, and a whole run behind
it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Repo

SCRIPT = ROOT / "examples" / "bwrap.sh"
WRAP = ("--wrap", f"{SCRIPT} {{place}}")
PYTHON = os.path.realpath(sys.executable)  # a .venv below /tmp is not seen inside


def missing() -> str:
    """Why bubblewrap cannot be used here, or nothing."""
    if shutil.which("bwrap") is None:
        return "bwrap is not on PATH"
    words = ["bwrap", "--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc"]
    probe = [*words, "--unshare-pid", "--tmpfs", "/tmp", "true"]
    tried = subprocess.run(probe, capture_output=True, text=True)
    return f"bwrap does not work here: {tried.stderr}" if tried.returncode else ""


needs_bwrap = pytest.mark.skipif(bool(missing()), reason=missing())


def changed(repo: Repo, line: str, value: str) -> tuple[str, str]:
    """The option that runs a copy of the script, in which `line` has another value."""
    source = SCRIPT.read_text("utf-8")
    copy, times = re.subn(f"^{line}=.*", f"{line}='{value}'", source, flags=re.M)
    assert times == 1
    path = repo.write("../bwrap.sh", copy).resolve()
    path.chmod(0o755)
    return "--wrap", f"{path} {{place}}"


HELPERS = '''
import json, os, pathlib, subprocess, sys
P, said = pathlib.Path, {}
def can(what, act):
    """Whether something can be done; what was seen counts only if there is something to see."""
    try: said[what] = act() is not False
    except BaseException: said[what] = False
def writes(path): P(path).open("a").write("x")
def sees(path): return bool(P(path).read_bytes() if P(path).is_file() else os.listdir(path))
def runs(*words): subprocess.run(words, check=True, stdout=-3, stderr=-3)
'''


@pytest.fixture
def boxed() -> Iterator[Repo]:
    """A repository in a HOME that holds things to steal, and not below /tmp, which is
    another one inside."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp")).resolve()
    home = folder / "home"
    home.mkdir()
    repo = Repo(home)
    repo.env["HOME"] = str(home)
    names = (".ssh/id_rsa", ".netrc", "letters/x", ".local/bin/x", ".claude/login")
    for name in names:
        repo.write(f"../{name}", "secret")
    repo.write("../.gitconfig", "[user]\n\tnickname = me\n")
    (folder / "neighbour").write_text("a neighbour")
    yield repo
    repo.kill()
    shutil.rmtree(folder)


def agent(repo: Repo, script: str, name: str = "mine") -> str:
    """An agent in ~/.local/bin that says in its workspace what it could do."""
    ends = "json.dump(said, open('said.json', 'w'))"
    path = repo.write(f"../.local/bin/{name}.py", f"{HELPERS}\n{script}\n{ends}\n")
    program = repo.program(f"../.local/bin/{name}", f"exec {PYTHON} {path.resolve()}")
    return str(program)


# What an agent tries: what it is to be able to, and what not.
TRIES = """\
can("edit a file", lambda: writes("a.txt"))
can("make a file", lambda: writes("new.txt"))
can("use its own /tmp", lambda: writes("/tmp/scratch"))
can("use a home folder of its own", lambda: writes(HOME + "/x"))
can("use what is installed for the person", lambda: sees(HOME + "/.local/bin/x"))
can("change its own login", lambda: writes(HOME + "/.claude/login"))
can("read the person's settings of git", lambda: runs("git", "config", "user.nickname"))
can("read git's history", lambda: runs("git", "log", "--stat"))
can("commit in its own git", lambda: runs("git", "commit", "-qam", "x"))

can("see the plan at home", lambda: sees(REPO + "/prd.json"))
can("see home's git settings", lambda: sees(REPO + "/.git/config"))
can("write an object", lambda: writes(REPO + "/.git/objects/x"))
can("see the clean room", lambda: sees(ROOM))
can("see another plan's workspace", lambda: sees(STATE + "/other"))
can("see ssh keys", lambda: sees(HOME + "/.ssh"))
can("see netrc", lambda: sees(HOME + "/.netrc"))
can("see letters", lambda: sees(HOME + "/letters"))
can("write where programs are", lambda: writes(HOME + "/.local/bin/x"))
can("write beside home", lambda: writes(BESIDE))
can("write into the system", lambda: writes("/usr/x"))
can("see what others have in /tmp", lambda: sees(OTHERS))
can("see ralph's process", lambda: sees(RALPH))
"""


@needs_bwrap
def test_home_is_hidden_and_only_the_checkout_can_be_written(boxed: Repo) -> None:
    home, state = boxed.outside, boxed.places.parent
    _, theirs = tempfile.mkstemp(dir="/tmp")
    Path(theirs).write_text("somebody's")
    boxed.write(f"{state}/other/work-1/.env", "KEY=secret")
    boxed.plan("test -f said.json")
    script = f"""
HOME, REPO, STATE, ROOM = "{home}", "{boxed.path}", "{state}", "{boxed.room}"
RALPH, OTHERS, BESIDE = "/proc/{os.getpid()}/environ", "{theirs}", "{home.parent}/neighbour"
{TRIES}"""
    boxed.ends("0: T1", agent(boxed, script), *WRAP)
    said = json.loads(boxed.landed("said.json"))
    able, unable = (re.findall(r'can\("(.*?)"', part) for part in TRIES.split("\n\n"))
    assert said == {**dict.fromkeys(able, True), **dict.fromkeys(unable, False)}
    assert boxed.read("a.txt") == "a\n"
    assert not (home / "x").exists()
    assert boxed.read("../.claude/login") == "secretx"
    os.unlink(theirs)


@needs_bwrap
def test_setup_checks_and_hooks_are_inside_too(boxed: Repo) -> None:
    inside = (
        f"test ! -e {boxed.outside}/.ssh && test ! -e {boxed.outside}/./repo/prd.json"
    )
    hook = f"{inside} && echo formatted >> a.txt && git add a.txt"
    boxed.program(".git/hooks/pre-commit", hook)
    boxed.plan(f"{inside} && test -f said.json", setup=inside)
    boxed.ends("0: T1", agent(boxed, ""), *WRAP)
    assert boxed.landed("a.txt") == "a\nformatted\n"


@needs_bwrap
def test_a_name_of_objects_that_an_agent_wrote_shows_nothing(boxed: Repo) -> None:
    keys = boxed.outside / ".ssh"
    (keys.parent / "objects").symlink_to(keys)
    for name in (keys, keys.parent / "objects"):
        names = boxed.write("place/.git/objects/info/alternates", f"{name}\n")
        place = names.resolve().parents[3]
        words = [str(SCRIPT), str(place), "cat", f"{name}/id_rsa"]
        done = subprocess.run(words, env=boxed.env, capture_output=True, text=True)
        assert "No such file" in done.stderr, done
        assert not done.stdout
