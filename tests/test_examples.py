"""What the docs tell people to run is run, word for word."""

from __future__ import annotations

import http.server
import json
import re
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.conftest import ROOT, Repo

WORK = "P(f'{task}.txt').touch()"


def block(document: str, words: str) -> str:
    """The shell block of docs/`document` that holds `words`."""
    source = (ROOT / "docs" / document).read_text("utf-8")
    (found,) = [
        code
        for code in re.findall(r"```sh\n(.*?)```", source, re.DOTALL)
        if words in code
    ]
    return str(found)


def line(document: str, words: str) -> str:
    """The indented line of docs/`document` that holds `words`."""
    source = (ROOT / "docs" / document).read_text("utf-8")
    (found,) = [
        code
        for code in re.findall(r"^    (.*)$", source, re.MULTILINE)
        if words in code
    ]
    return str(found)


def shell(
    repo: Repo, script: str, agent: str = "", **env: str
) -> subprocess.CompletedProcess[str]:
    """`script` as a person would run it, with `ralph` on the PATH; each run has the
    `agent`, if one is given."""
    path = repo.outside / "bin"
    path.mkdir(exist_ok=True)
    words = shlex.join(["--no-awake", *(["--agent", agent] if agent else [])])
    (path / "ralph").write_text(
        f'#!/bin/sh\n[ "$1" != run ] || {{ shift; set -- run {words} "$@"; }}\n'
        f'exec {sys.executable} -m ralph "$@"\n'
    )
    (path / "ralph").chmod(0o755)
    return subprocess.run(
        ["/bin/sh", "-c", script], cwd=repo.path, timeout=120, capture_output=True, text=True,
        env={**repo.env, "PATH": f"{path}:{repo.env['PATH']}", **env}, stdin=subprocess.DEVNULL,
    )  # fmt: skip


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    return pytest.mark.skipif(
        bool(missing), reason=f"not installed here: {', '.join(missing)}"
    )


# ---------------------------------------------------------------- examples/check-page.sh


@needs("curl")
def test_a_check_that_starts_and_stops_its_own_server(repo: Repo) -> None:
    repo.write("checks/page.sh", (ROOT / "examples/check-page.sh").read_text())
    repo.write("public/index.html", "<h1>Shop</h1>\n")
    repo.plan({"checks": ["sh checks/page.sh"]}, protect=["checks/**"])
    repo.commit("plan")
    red = shell(repo, "sh checks/page.sh")
    assert red.returncode == 1 and red.stdout.startswith("no price on the page:")
    agent = repo.agent(
        "P('public/index.html').write_text('<h1>Shop</h1> Price: 19.90')"
    )
    assert repo.run(agent)[0] == 0
    assert repo.passed() == ["T1"] and not repo.records("verdict")[0].get("weak")
    assert repo.alive() == []


# ---------------------------------------------------------------- docs/concepts.md


def test_the_refs_that_keep_work_and_the_way_back(repo: Repo) -> None:
    """After a failed attempt its files, which had not to wait for the room; once the
    task is blocked a commit, which can be brought back."""
    page = (ROOT / "docs" / "concepts.md").read_text("utf-8")
    listed = {
        name: re.escape(name)
        for name in re.findall(r"^- `(refs/ralph/\S+)`", page, re.MULTILINE)
    }
    forms = [
        re.compile(re.sub("<[a-z]+>", "[^/]+", form) + "$") for form in listed.values()
    ]
    assert len(forms) == 4
    repo.plan({"id": "US-003", "checks": ["test -f answer"]}, limits={"attempts": 2})
    repo.commit("plan")
    agent = repo.agent(
        "P('half').touch()\nif 'price table' in prompt: P('answer').touch()"
    )
    assert repo.run(agent, "--once")[0] == 3
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/ralph").split()
    assert [bool([ref for ref in refs if form.match(ref)]) for form in forms] == [
        True,
        False,
        True,
        False,
    ]
    assert repo.run(agent)[0] == 4
    refs = repo.git("for-each-ref", "--format=%(refname)", "refs/ralph").split()
    assert [ref for ref in refs if not any(form.match(ref) for form in forms)] == []
    parked = max(ref for ref in refs if forms[3].match(ref))

    assert parked in shell(repo, line("concepts.md", "for-each-ref")).stdout
    repo.git("switch", "-q", "-c", "look")
    told = line("concepts.md", "git cherry-pick")
    assert shell(repo, re.sub(r"refs/\S+", parked, told)).returncode == 0
    assert (repo.path / "half").exists()
    assert shell(repo, line("concepts.md", "ralph retry")).returncode == 0
    assert repo.run(agent)[0] == 0


# ---------------------------------------------------------------- docs/plan.md


def test_a_plan_is_changed_by_commands(repo: Repo) -> None:
    repo.plan({"id": "US-003", "checks": ["test -f x"]})
    for words in ("ralph add", "ralph tell US-003", "ralph tell 'no new"):
        done = shell(repo, line("plan.md", words))
        assert done.returncode == 0, done.stderr
    plan = json.loads((repo.path / "prd.json").read_text())
    tasks = plan[next(key for key in ("userStories", "tasks") if key in plan)]
    assert "src/prices.py" in str(tasks[0]["notes"]) and "no new dependencies" in str(
        plan["notes"]
    )
    assert tasks[1]["checks"] == ["npm test -- sort"]
    assert tasks[1]["acceptanceCriteria"] == ["EUR before USD"]


# ---------------------------------------------------------------- docs/setup.md


def test_ignored_files_are_copied_where_worktreeinclude_names_them(repo: Repo) -> None:
    page = (
        (ROOT / "docs" / "setup.md")
        .read_text("utf-8")
        .partition("## `.worktreeinclude`")[2]
    )
    repo.write(
        ".worktreeinclude",
        "\n".join(re.findall(r"^    (.*)$", page, re.MULTILINE)) + "\n",
    )
    repo.write(".gitignore", ".env\n.claude/\n*.log\n")
    for name in (".env", ".claude/settings.local.json", "own.log"):
        repo.write(name, "secret\n")
    checks = [
        "test -f .env",
        "test -f .claude/settings.local.json",
        "test ! -e own.log",
        "test -f T1.txt",
    ]
    repo.plan({"checks": checks})
    repo.commit("plan")
    assert repo.run(repo.agent(WORK))[0] == 0
    branch = repo.git(
        "for-each-ref", "--format=%(refname:short)", "refs/heads/ralph"
    ).strip()
    assert repo.git("diff", "--name-only", "main", branch).split() == ["T1.txt"]


# ---------------------------------------------------------------- docs/night.md


class Hook(http.server.BaseHTTPRequestHandler):
    """A webhook that keeps the path and the body of what it is sent."""

    got: ClassVar[list[tuple[str, str]]]

    def do_POST(self) -> None:
        self.got.append(
            (self.path, self.rfile.read(int(self.headers["Content-Length"])).decode())
        )
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Where it listens, and what it got."""

    class Mine(Hook):
        got: ClassVar[list[tuple[str, str]]] = []

    server = http.server.HTTPServer(("127.0.0.1", 0), Mine)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}", Mine.got
    server.shutdown()
    thread.join()
    server.server_close()


SAID = "p: stopped: every task passes, and all checks are green | 1 of 1 passed"


def told(repo: Repo, recipe: str, **env: str) -> subprocess.CompletedProcess[str]:
    """A run of one task that passes, with this recipe; its project has a name that
    shells and pages take for something else."""
    repo.plan(
        {"checks": ["test -f T1.txt"]}, project="a <!channel> $(touch x) 'b' \"c\" p"
    )
    done = shell(repo, recipe, agent=repo.agent(WORK), **env)
    assert done.returncode == 0 and "! --notify" not in done.stdout, (
        done.stdout + done.stderr
    )
    assert not (repo.path / "x").exists()
    return done


@needs("curl", "jq")
def test_a_phone_is_told(repo: Repo, hook: tuple[str, list[tuple[str, str]]]) -> None:
    where, got = hook
    told(repo, line("night.md", "https://ntfy.sh").replace("https://ntfy.sh", where))
    asked, body = got[-1]  # it was told of the pass first
    assert asked == "/ralph-x7Qw2k9"
    assert body == f"a <!channel> $(touch x) 'b' \"c\" {SAID}\n"


@needs("curl", "jq")
@pytest.mark.parametrize("chat", ["Slack", "Discord"])
def test_a_chat_is_told(
    repo: Repo, hook: tuple[str, list[tuple[str, str]]], chat: str
) -> None:
    where, got = hook
    script = (ROOT / "examples/notify-chat.sh").read_text()
    script = script.replace("https://hooks.slack.com", where)
    name, fields = "a !channel", {"text"}
    if chat == "Discord":
        (other,) = re.findall(r"Discord: (.*)", script)
        script = re.sub("message=.*", lambda _: f"message='{other}'", script)
        name, fields = "a <!channel>", {"content", "allowed_mentions"}
    repo.write("notify-chat.sh", script)
    told(repo, line("night.md", "notify-chat.sh"))
    asked, body = got[-1]  # it was told of the pass first
    sent = json.loads(body)
    words = sent.get("text") or sent["content"]
    assert asked == "/services/T0/B0/x" and set(sent) == fields
    assert " ".join(words.split()) == f"{name} $(touch x) 'b' \"c\" {SAID}"


@needs("jq")
@pytest.mark.parametrize("tool", ["notify-send", "osascript"])
def test_the_desktop_is_told(repo: Repo, tool: str) -> None:
    repo.tool(tool, f'printf "%s\\n" "$@" > {repo.outside / "shown"}')
    told(repo, line("night.md", f"'{tool} "))
    *_, shown = repo.read("../shown").splitlines()
    assert shown == f"a <!channel> $(touch x) 'b' \"c\" {SAID}"


@needs("jq")
def test_a_file_is_told_of_every_event(repo: Repo) -> None:
    told(repo, line("night.md", "news.txt"))
    first, last = repo.read("news.txt").splitlines()
    assert first.endswith("p: T1 passed | 1 of 1 passed") and last.endswith(SAID)


@needs("jq")
def test_a_mail_is_sent(repo: Repo) -> None:
    repo.write("told.sh", (ROOT / "examples/notify-mail.sh").read_text())
    repo.plan({"checks": ["false"]}, limits={"attempts": 1})
    repo.commit("plan")
    repo.tool("mail", f'(echo "$*"; cat) >> {repo.outside / "sent"}')
    agent = repo.agent("said('blocked on', 'Which format?')\nP('x').touch()")
    assert shell(repo, "ralph run --notify 'sh told.sh'", agent=agent).returncode == 4
    sent = (repo.outside / "sent").read_text()
    assert "-s p: T1 blocked: 1 failed attempt" in sent
    assert re.search(
        r"-s p: stopped: 1 left, and a person is needed: .* you@example.org\n", sent
    )
    assert "T1 task 1\n  1 failed attempt" in sent and "  Which format?\n" in sent


@needs("jq")
def test_the_first_block_ends_the_run(repo: Repo) -> None:
    repo.plan(
        {"checks": ["false"]}, {"checks": ["test -f T2.txt"]}, limits={"attempts": 1}
    )
    command = line("night.md", "= blocked ]")
    assert shell(repo, command, agent=repo.agent(WORK)).returncode == 3
    assert repo.verdicts() == ["T1 failed"]


# ---------------------------------------------------------------- docs/many.md


def summaries(folder: Path, pattern: str) -> dict[str, dict[str, Any]]:
    return {
        path.stem: json.loads(path.read_text()) for path in sorted(folder.glob(pattern))
    }


def test_an_evening_with_three_plans_and_a_morning_with_one_command(repo: Repo) -> None:
    """The third is green alone, and red beside the other two: it stays out, and so do
    its places."""
    for name in ("prices", "search", "stock"):
        task = {"id": name, "title": "t", "checks": [f"test -f {name}.txt"]}
        plan: dict[str, Any] = {"project": name, "userStories": [task]}
        if name == "stock":
            plan["checks"] = ["test ! -e prices.txt || test ! -e stock.txt"]
        repo.write(f"plans/{name}/prd.json", json.dumps(plan))
    repo.commit("plans")
    done = shell(
        repo,
        block("many.md", "for plan in prices search stock"),
        agent=repo.agent(WORK),
    )
    assert done.returncode == 0, done.stderr
    found = summaries(repo.outside, "*.json")
    assert {name: told["exit"] for name, told in found.items()} == {
        "prices": 0,
        "search": 0,
        "stock": 0,
    }
    done = shell(
        repo,
        "set -x; "
        + block("many.md", "ralph land").replace("ralph clean", "echo $?; ralph clean"),
    )
    said = done.stdout
    assert "! ralph/stock did not land on main: " in said and "\n4\n" in said, (
        said + done.stderr
    )
    assert said.count("removed ") == 3
    assert sorted(path.name for path in repo.path.glob("*.txt")) == [
        "a.txt",
        "prices.txt",
        "search.txt",
    ]
    subjects = repo.git("log", "--first-parent", "--format=%s").splitlines()
    assert subjects == ["Merge branch 'ralph/search'", "prices: t", "plans", "start"]
