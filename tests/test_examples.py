"""What the docs tell people to run is run, word for word."""

from __future__ import annotations

import http.server
import json
import re
import shutil
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.conftest import ROOT, Repo, captured

WORK = "P(f'{task}.txt').touch()"


def block(document: str, words: str) -> str:
    """The shell block of docs/`document` that holds `words`."""
    return shown(r"```sh\n(.*?)```", document, words)


def line(document: str, words: str) -> str:
    """The indented line of docs/`document` that holds `words`."""
    return shown(r"^    ([^\n]*)$", document, words)


def shown(pattern: str, document: str, words: str) -> str:
    source = (ROOT / "docs" / document).read_text("utf-8")
    parts = re.findall(pattern, source, re.DOTALL | re.MULTILINE)
    (found,) = [code for code in parts if words in code]
    return str(found)


def shell(repo: Repo, script: str, agent: str = "", exit: int = 0, **env: str) -> str:
    """What `script` prints, as a person would run it, with `ralph` on the PATH; each
    run has the `agent`, if one is given. It ends with `exit`."""
    options = f"--no-awake --agent '{agent}'" if agent else "--no-awake"
    run = f'[ "$1" != run ] || {{ shift; set -- run {options} "$@"; }}'
    repo.program("../bin/ralph", f'{run}\nexec {sys.executable} -m ralph "$@"')
    path = f"{repo.outside}/bin:{repo.env['PATH']}"
    given = {**repo.env, "PATH": path, **env}
    done = captured(["/bin/sh", "-c", f"exec 2>&1; {script}"], repo.path, given)
    assert done.returncode == exit, done.stdout
    return done.stdout


def needs(*tools: str) -> pytest.MarkDecorator:
    missing = [tool for tool in tools if shutil.which(tool) is None]
    reason = f"not installed here: {', '.join(missing)}"
    return pytest.mark.skipif(bool(missing), reason=reason)


# ---------------------------------------------------------------- examples/check-page.sh


@needs("curl")
def test_a_check_that_starts_and_stops_its_own_server(repo: Repo) -> None:
    repo.write("checks/page.sh", (ROOT / "examples/check-page.sh").read_text())
    repo.write("public/index.html", "<h1>Shop</h1>\n")
    repo.plan("sh checks/page.sh", protect=["checks/**"])
    repo.commit("plan")
    red = shell(repo, "sh checks/page.sh", exit=1)
    assert red.startswith("no price on the page:")
    page = "<h1>Shop</h1> Price: 19.90"
    agent = repo.agent(f"P('public/index.html').write_text('{page}')")
    repo.judges("0: T1 passed", agent)
    assert not repo.records("verdict")[0].get("weak")
    assert repo.alive() == []


# ---------------------------------------------------------------- docs/concepts.md


def test_checks_run_in_one_order_even_after_one_has_failed(repo: Repo) -> None:
    log = repo.outside / "log"
    first = f"echo first >> {log}; test -f never"
    second = f"echo second >> {log}; test -f T1.txt"
    plan = f"echo plan >> {log}"
    repo.plan({"checks": [first, second]}, checks=[plan], setup=f"echo setup >> {log}")
    repo.commit("plan")
    assert repo.run(repo.agent(WORK), "--once")[0] == 3
    ran = log.read_text().split()
    assert ran[-4:] == ["setup", "plan", "first", "second"]


def test_the_refs_that_keep_work_and_the_way_back(repo: Repo) -> None:
    """After a failed attempt its files, which had not to wait for the room; once the
    task is blocked a commit, which can be brought back."""
    page = (ROOT / "docs/concepts.md").read_text("utf-8")
    forms = re.findall(r"^- `(refs/ralph/\S+)`", page, re.MULTILINE)
    forms = [re.sub("<[a-z]+>", "[^/]+", form) for form in forms]
    work, _, candidate, parked = forms

    def refs() -> dict[str, str]:
        """The newest of each form; there are no others."""
        found = {}
        listed = repo.git("for-each-ref", "--format=%(refname)", "refs/ralph")
        for ref in listed.split():
            (form,) = [form for form in forms if re.fullmatch(form, ref)]
            found[form] = ref
        return found

    repo.plan({"id": "US-003", "checks": ["test -f answer"]}, limits={"attempts": 2})
    repo.commit("plan")
    answers = "if 'price table' in prompt: P('answer').touch()"
    agent = repo.agent(f"P('half').touch()\n{answers}")
    assert repo.run(agent, "--once")[0] == 3
    assert refs().keys() == {work, candidate}
    assert repo.run(agent)[0] == 4
    newest = refs()[parked]

    assert newest in shell(repo, line("concepts.md", "for-each-ref"))
    repo.git("switch", "-q", "-c", "look")
    pick = re.sub(r"refs/\S+", newest, line("concepts.md", "git cherry-pick"))
    shell(repo, pick)
    assert (repo.path / "half").exists()
    shell(repo, line("concepts.md", "ralph retry"))
    assert repo.run(agent)[0] == 0


# ---------------------------------------------------------------- docs/night.md


@dataclass
class Hook:
    """A webhook: where it listens, and the paths and bodies of what it was sent."""

    address: str
    got: list[tuple[str, str]] = field(default_factory=list)


@pytest.fixture
def hook() -> Iterator[Hook]:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            length = int(self.headers["Content-Length"])
            listening.got.append((self.path, self.rfile.read(length).decode()))
            self.send_response(204)
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    listening = Hook(f"http://127.0.0.1:{server.server_port}")
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield listening
    server.shutdown()
    thread.join()
    server.server_close()


PROJECT = "a <!channel> $(touch x) 'b' \"c\" p"
"""A name that shells and pages take for something else."""
ENDED = "stopped: every task passes, and all checks are green | 1 of 1 passed"


def run_with(repo: Repo, command: str) -> None:
    """A run of one task that passes, with a `--notify` of the docs."""
    repo.plan("test -f T1.txt", project=PROJECT)
    assert "! --notify" not in shell(repo, command, repo.agent(WORK))
    assert not (repo.path / "x").exists()


@needs("curl", "jq")
def test_a_phone_is_told(repo: Repo, hook: Hook) -> None:
    command = line("night.md", "https://ntfy.sh")
    run_with(repo, command.replace("https://ntfy.sh", hook.address))
    assert len(hook.got) == 2  # of the pass, and of the end
    assert hook.got[1] == ("/ralph-x7Qw2k9", f"{PROJECT}: {ENDED}\n")


@needs("curl", "jq")
def test_a_chat_is_told(repo: Repo, hook: Hook) -> None:
    script = (ROOT / "examples/notify-chat.sh").read_text()
    repo.write("chat.sh", script.replace("https://hooks.slack.com", hook.address))
    run_with(repo, "ralph run --notify 'sh chat.sh'")
    path, body = hook.got[1]
    assert path == "/services/T0/B0/x"
    sent = json.loads(body)["text"]
    assert "a !channel $(touch x)" in " ".join(sent.split())


@needs("jq")
@pytest.mark.parametrize("tool", ["notify-send", "osascript"])
def test_the_desktop_is_told(repo: Repo, tool: str) -> None:
    repo.tool(tool, f'printf "%s\\n" "$@" > {repo.outside / "shown"}')
    run_with(repo, line("night.md", f"'{tool} "))
    assert repo.read("../shown").splitlines()[-1] == f"{PROJECT}: {ENDED}"


@needs("jq")
def test_a_mail_is_sent(repo: Repo) -> None:
    repo.write("told.sh", (ROOT / "examples/notify-mail.sh").read_text())
    repo.plan("false", limits={"attempts": 1})
    repo.commit("plan")
    repo.tool("mail", f'(echo "$*"; cat) >> {repo.outside / "sent"}')
    agent = repo.agent("said('question', 'Which format?')\nP('x').touch()")
    shell(repo, "ralph run --notify 'sh told.sh'", agent, exit=4)
    sent = repo.read("../sent")
    assert "-s p: T1 blocked: 1 failed attempt" in sent
    assert "-s p: stopped: 1 left, and a person is needed: " in sent
    assert "you@example.org\n" in sent
    assert "T1 task 1\n  1 failed attempt" in sent
    assert "  Which format?\n" in sent


@needs("jq")
def test_the_first_block_ends_the_run(repo: Repo) -> None:
    other = {"checks": ["test -f T2.txt"]}
    repo.plan("false", other, limits={"attempts": 1})
    command = line("night.md", "= blocked ]")
    shell(repo, command, repo.agent(WORK), exit=3)
    assert repo.verdicts() == ["T1 failed"]


# ---------------------------------------------------------------- docs/many.md


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
    shell(repo, block("many.md", "wait\n"), repo.agent(WORK))
    assert repo.sh("grep -h '\"exit\": 0' ../*.json | wc -l").strip() == "3"
    said = shell(repo, block("many.md", "ralph clean"))
    assert "ralph/stock did not land on main: " in said
    assert said.count("removed ") == 3
    assert repo.sh("ls *.txt").split() == ["a.txt", "prices.txt", "search.txt"]
    subjects = repo.git("log", "--first-parent", "--format=%s").splitlines()
    assert subjects == ["Merge branch 'ralph/search'", "prices: t", "plans", "start"]
