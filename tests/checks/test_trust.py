"""A place trusts what home trusts, by the bytes. With mise and direnv themselves where
they are installed, and with scripts that answer as they do."""

from __future__ import annotations

import json
import shutil
import subprocess
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from _ralph.checks.trust import ask_home, granted, trusted_kinds
from _ralph.git.git import Git
from tests.conftest import Repo
from tests.git.support import checked_out
from tests.scripts import RESULT

# As mise: what is trusted at home is noted by its folder, a variable names more.
MISE = """
noted="$HOME/trusted"
case "$1 $2" in
  "trust --show")
    echo asked >> "$HOME/asked"
    grep -qxF "$PWD" "$noted" 2> /dev/null && echo "$PWD: trusted" || echo "$PWD: untrusted" ;;
  "trust ") mkdir -p "$HOME"; echo "$PWD" >> "$noted" ;;
  "env -s")
    for file in mise.toml .config/mise/conf.d/*.toml; do
      test -e "$file" || continue
      case ":$MISE_TRUSTED_CONFIG_PATHS:" in
        *":$PWD/$file:"*) ;;
        *) grep -qxF "$PWD" "$noted" 2> /dev/null || { echo "mise ERROR Config files in $PWD/$file are not trusted." >&2; exit 1; } ;;
      esac
      sed -n 's/^\\(RATE\\) = /export \\1=/p' "$file"
    done ;;
esac
"""
# As direnv: what is allowed is noted by the path and the bytes.
DIRENV = """
hash() { { echo "$1"; cat "$1"; } | cksum; }
case $1 in
  allow) mkdir -p "$HOME"; hash "${2:-$PWD/.envrc}" >> "$HOME/allowed" ;;
  status)
    echo asked >> "$HOME/asked"
    echo "Found RC path $PWD/.envrc"
    grep -qxF "$(hash "$PWD/.envrc")" "$HOME/allowed" 2> /dev/null && echo "Found RC allowed true" || echo "Found RC allowed false" ;;
  exec)
    grep -qxF "$(hash "$PWD/.envrc")" "$HOME/allowed" 2> /dev/null || { echo "direnv: error $PWD/.envrc is blocked." >&2; exit 1; }
    . "$PWD/.envrc"; shift 2; exec "$@" ;;
esac
"""


@dataclass(frozen=True)
class Tool:
    """The file that is trusted, where `7` stands; how a person trusts it; a check that
    is green where that says $1; what the tool says where it is not trusted."""

    script: str
    file: str
    content: str
    trust: str
    check: str
    refuses: str

    def says(self, rate: int) -> str:
        return self.check.replace("$1", str(rate))


TOOLS = {
    "mise": Tool(
        MISE,
        "mise.toml",
        '[env]\nRATE = "7"\n',
        "mise trust",
        'env=$(mise env -s bash) && eval "$env" && test "$RATE" = $1',
        "not trusted",
    ),
    "direnv": Tool(
        DIRENV,
        ".envrc",
        "export RATE=7\n",
        "direnv allow",
        "direnv exec . sh -c 'test \"$RATE\" = $1'",
        "is blocked",
    ),
}
CASES = [(name, real) for name in TOOLS for real in (False, True)]
both = pytest.mark.parametrize(("name", "real"), CASES)
fakes = pytest.mark.parametrize("name", TOOLS)


def project(repo: Repo, name: str, real: bool = False) -> Tool:
    """A project with the file of a tool that is installed, and trusts nothing yet."""
    tool = TOOLS[name]
    if real and shutil.which(name) is None:
        pytest.skip(f"not installed here: {name}")
    if not real:
        repo.tool(name, tool.script)
    repo.write(tool.file, tool.content)
    repo.commit("project")
    return tool


def trust(repo: Repo, tool: Tool) -> None:
    words = ["sh", "-c", tool.trust]
    subprocess.run(words, cwd=repo.path, env=repo.env, check=True, capture_output=True)


def agent_of(repo: Repo, tool: Tool, script: str) -> str:
    """An agent that does `script` with `change()`, which edits the file that is
    trusted, and `says(rate)` at hand, and its work."""
    head = f"""\
def change():
    path = P({tool.file!r})
    path.write_text(path.read_text().replace("7", "8"))
def says(rate): return sh({tool.check!r}.replace("$1", str(rate))).returncode == 0
"""
    return repo.agent(f"{head}\n{textwrap.dedent(script)}\nP(task).touch()\n")


def own(name: str, *checks: str, **more: object) -> dict[str, Any]:
    return {"id": name, "checks": [f"test -f {name}", *checks], **more}


def shown(printed: str) -> str:
    return " ".join(printed.split())


@both
def test_what_home_trusts_every_place_trusts(repo: Repo, name: str, real: bool) -> None:
    """Setup, the agent, checks and the final check; home is asked once for all."""
    tool = project(repo, name, real)
    trust(repo, tool)
    repo.plan(own("T1", tool.says(7)), own("T2"), setup=tool.says(7))
    # Two loops use one room, each in a process of its own
    code, _, printed = repo.run(agent_of(repo, tool, "assert says(7)"), "--jobs", "2")
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    assert "does not trust" not in shown(printed)
    if not real:
        assert Path(repo.env["HOME"], "asked").read_text() == "asked\n"


@both
def test_what_home_does_not_trust_no_place_trusts(
    repo: Repo, name: str, real: bool
) -> None:
    tool = project(repo, name, real)
    refuses = f"! {{ {tool.says(7)}; }} 2> said; grep -q '{tool.refuses}' said"
    repo.plan(own("T1"), checks=[refuses])
    code, _, printed = repo.run(agent_of(repo, tool, "assert not says(7)"))
    assert code == 0, printed
    said = f"{name} does not trust {tool.file} at home, so no checkout does"
    assert said in shown(printed)
    assert said in shown(repo.ralph("doctor", "--agent", "true").stdout)


@fakes
def test_bytes_that_an_agent_changed_are_never_trusted(repo: Repo, name: str) -> None:
    """They are left out, and named, the agent was told so; new files of that kind,
    too."""
    tool = project(repo, name)
    trust(repo, tool)
    repo.plan(own("T1"), checks=[tool.says(7)])
    more = ".config/mise/conf.d/x.toml"
    script = f"""
    assert "and does not count: {tool.file}." in prompt
    change()
    os.makedirs(os.path.dirname({more!r}))
    P({more!r}).write_text('[env]\\nRATE = "9"\\n')
    """
    code, _, printed = repo.run(agent_of(repo, tool, script))
    assert (code, repo.passed()) == (0, ["T1"]), printed
    assert repo.landed(tool.file) == tool.content
    assert repo.has_landed(more) is (name == "direnv")  # which has no such file
    assert tool.file in str(repo.records("verdict")[0]["restored"])


@fakes
def test_bytes_that_a_task_was_allowed_to_change_are_trusted_anew(
    repo: Repo, name: str
) -> None:
    """In the room that examines them, in the next attempt, which goes on from them, in
    every later place, and where they are landed."""
    tool = project(repo, name)
    trust(repo, tool)
    second = own("T1", "test -f T1.2", tool.says(8), allow=[tool.file])
    setup = {"run": "true", "when": [tool.file]}
    repo.plan(second, own("T2", tool.says(8)), setup=setup)
    script = """
    assert says(8 if (task, attempt) != ("T1", 1) else 7)
    change()
    P(f"{task}.{attempt}").touch()
    """
    code, _, printed = repo.run(agent_of(repo, tool, script))
    assert (code, repo.passed()) == (0, ["T1", "T2"]), printed
    landed = repo.ralph("land")
    assert landed.returncode == 0, landed.stdout
    assert repo.read(tool.file) == tool.content.replace("7", "8")


@fakes
def test_a_copy_of_an_ignored_file_is_trusted_also_behind_a_prefix(
    repo: Repo, name: str
) -> None:
    tool = TOOLS[name]
    repo.write(".gitignore", f"{tool.file}\n")
    repo.write(".worktreeinclude", f"{tool.file}\n")
    project(repo, name)
    trust(repo, tool)
    repo.plan(own("T1"), setup=tool.says(7), checks=[tool.says(7)])
    agent = agent_of(repo, tool, "assert says(7)")
    wrap = f"env -i PATH={repo.env['PATH']} HOME={repo.env['HOME']}"
    code, _, printed = repo.run(agent, "--wrap", wrap)
    assert code == 0, printed


def test_mise_in_all_its_file_names(repo: Repo) -> None:
    """And not where home does not trust one of them."""
    known = """mise.toml .mise.toml mise/config.toml .mise/config.toml .config/mise.toml
        .config/mise/mise.toml .config/mise/config.toml .config/mise/conf.d/a.toml
        a/b/mise.toml a/.config/mise/config.toml mise.ci.toml .tool-versions"""
    names = {*known.split()}
    others = {"mise.py", "mise.toml.md", "config.toml", "mise/a.toml", "a.mise.toml"}
    root = repo.path.resolve()
    script = f"echo '{root}: trusted'; echo '{root}/sub: untrusted'"
    repo.tool("mise", script)
    for name in names | others | {"sub/mise.toml"}:
        repo.write(name, "")
    repo.commit("files")
    (answer,) = answers = ask_home(Git.at(repo.path), [], repo.env)
    assert ({*answer.trusted}, answer.refused) == (names, ["sub/mise.toml"])
    assert trusted_kinds(answers, names | others) == names
    place = checked_out(repo)
    there = {place.root / name for name in names}
    assert {*granted(answers, place)["mise"]} == there


SETTINGS = '{"permissions": {"allow": ["Bash(make)"]}}'


@pytest.mark.parametrize("trusted", [False, True])
def test_claude_is_told_what_the_settings_that_home_trusts_allow(
    repo: Repo, trusted: bool
) -> None:
    """And never what it wrote there itself."""
    repo.write(".claude/settings.json", SETTINGS)
    repo.commit("settings")
    script = f"""
    (OUT / "argv").open("a").write(" ".join(sys.argv) + "\\n")
    os.makedirs(".claude", exist_ok=True)
    for name in ("settings.json", "settings.local.json"):
        P(".claude", name).write_text('{{"permissions": {{"allow": ["Bash(rm)"]}}}}')
    P(f"T1.{{attempt}}").touch()
    print({RESULT!r})
    """
    claude = repo.agent(script, "claude")
    repo.tool("claude", f'exec {claude} "$@"')
    for program in ("bwrap", "socat"):
        repo.tool(program, "exit 0")
    if trusted:
        known = {str(repo.path.resolve()): {"hasTrustDialogAccepted": True}}
        repo.write("../no-home/.claude.json", json.dumps({"projects": known}))
    repo.plan({"checks": ["test -f T1.2"]})
    code, _, printed = repo.run("claude")
    assert code == 0, printed
    said = "claude does not trust .claude/settings.json at home, so no checkout does"
    assert (said in shown(printed)) is not trusted
    argv = (repo.outside / "argv").read_text().splitlines()
    told = ["--allowedTools Bash(make)" in line for line in argv]
    assert told == [trusted] * 2
    assert not any("Bash(rm)" in line for line in argv)
