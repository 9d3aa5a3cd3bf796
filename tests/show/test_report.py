"""`ralph report`: the page says what happened, and nothing that stands on it can act."""

from __future__ import annotations

import html
import json
import re
import shlex
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import Repo
from tests.scripts import cost, plan, speaker

BLOCKS = {"h1", "h2", "h3", "p", "pre", "li", "tr", "summary"}
VOID = {"meta", "br"}
OTHERS = "html head title style body ul b span details div table th td"
TAGS = BLOCKS | VOID | {*OTHERS.split()}
ATTRIBUTES = {"lang", "charset", "name", "content", "http-equiv", "class", "open"}


class Page(HTMLParser):
    """A strict reader: tags balance, and no tag or attribute is there that could act.
    `lines` are the words, a line for each block."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.source = source
        self.path: list[str] = []
        self.lines: list[str] = []
        self.feed(source)
        self.close()
        assert self.path == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in TAGS, (tag, self.getpos())
        assert {name for name, _ in attrs} <= ATTRIBUTES, (attrs, self.getpos())
        if tag not in VOID:
            self.path.append(tag)
        if tag in BLOCKS:
            self.lines.append("")

    def handle_endtag(self, tag: str) -> None:
        assert self.path.pop() == tag, self.getpos()
        if tag in ("th", "td"):
            self.lines[-1] += " | "

    def handle_data(self, data: str) -> None:
        if BLOCKS & set(self.path):
            self.lines[-1] += data

    @property
    def text(self) -> str:
        lines = "\n".join(line.strip() for line in self.lines).splitlines()
        return "".join(f"{' '.join(line.split())}\n" for line in lines)


def page(repo: Repo, *words: str, token: str = "") -> Page:
    done = repo.ralph("report", "-o", "-", *words, MY_API_TOKEN=token)
    assert (done.returncode, done.stderr) == (0, "")
    return Page(done.stdout)


NIGHT = f"""
    if task == "T1":
        P("T1.txt").write_text("good\\n")
        P("test_prices.py").write_text("assert 2\\n")
        P("locked.txt").write_text("mine")
        said("learned", "- the tests need a locale\\n- migrations run by hand")
    elif task == "T2":
        said("question", "Which price table?")
        said("ruled out", "the old table has no currency")
        P("half.txt").write_text("half")
    else:
        P("T4.txt").write_text("bad\\n")
        print('{cost(0.5, permission_denials=[{"tool_name": "Bash", "tool_input": {"command": "npm test"}}])}')
        sys.exit()
    print('{cost(0.25)}')
"""

GOLDEN = """\
p
2 of 6 passed in 4 iterations; agents and checks took 0.1 s, $1.25
Branch ralph/p; the last run stopped at 2026-11-21 22:30: limit reached: 4 iterations
Needs you
T2: task 2
it asks: Which price table?
its work: git show refs/ralph/parked/c0ffee/0003-T2
ralph retry T2 --answer '...'
Ruled out: the old table has no currency
Red: own
cat: T2.txt: No such file or directory
grep: T2.txt: No such file or directory
All of it: ~/.ralph/log/0003-T2.log
Passed: 2
T1 task 1 (changed tests) 0.1 s, $0.25
It changed tests that were there before, or what decides which of them run: test_prices.py
c0ffee T1: task 1
---
T1.txt | 1 +
test_prices.py | 2 +-
2 files changed, 2 insertions(+), 1 deletion(-)

diff --git a/T1.txt b/T1.txt
new file mode 100644
index c0ffee..c0ffee
--- /dev/null
+++ b/T1.txt
@@ -0,0 +1 @@
+good
diff --git a/test_prices.py b/test_prices.py
index c0ffee..c0ffee 100644
--- a/test_prices.py
+++ b/test_prices.py
@@ -1 +1 @@
-assert 1
+assert 2
T6 task 6 marked by hand
Open: 3
T3: task 3 waits for T2
T4: task 4 failed
failed 1 of 2: own failed with exit 1 (0.1 s)
its agent was denied: Bash: npm test
Red: own
bad
All of it: ~/.ralph/log/0004-T4.log
T5: task 5 open
Put back before the checks ran
locked.txt (iteration 1, T1)
Noticed
it started clean; earlier work is parked at refs/ralph/parked/c0ffee/0003-T2-before (iteration 3, T2)
Denied by the agent's own permissions
Bash: npm test (iteration 4, T4)
Learned
- the tests need a locale
- migrations run by hand
Iterations: 4
No. | Ended | Task | Agent | Verdict | Took | Cost | Why |
4 | Sat 21 Nov, 22:30 | T4 | speaker | failed | 0.1 s | $0.50 | own failed with exit 1 (0.1 s) |
3 | Sat 21 Nov, 22:30 | T2 | speaker | failed | 0.1 s | $0.25 | own failed with exit 2 (0.1 s) |
2 | Sat 21 Nov, 22:30 | T2 | speaker | failed | 0.1 s | $0.25 | own failed with exit 2 (0.1 s) |
1 | Sat 21 Nov, 22:30 | T1 | speaker | passed | 0.1 s | $0.25 | |
"""


@pytest.fixture(scope="module")
def one_night(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    """One task passes, one is blocked with a question, one waits for it, one has
    failed, one is open, one was marked by hand."""
    made = Repo(tmp_path_factory.mktemp("night"))
    tasks: list[dict[str, Any]] = []
    for number in range(1, 6):
        check = f"cat T{number}.txt; grep -q good T{number}.txt"
        tasks.append({"checks": [{"name": "own", "run": check}]})
    tasks[2]["dependsOn"] = ["T2"]
    tasks.append({"passes": True, "checks": ["test -f a.txt"]})
    plan(made, *tasks, limits={"attempts": 2}, protect=["locked.txt"])
    made.sh("echo theirs > locked.txt; echo 'assert 1' > test_prices.py")
    made.commit("plan")
    speaker(made, NIGHT)
    made.env["PATH"] = f"{made.outside}:{made.env['PATH']}"
    assert made.run("speaker", "--max-iterations", "4")[0] == 3
    made.keep()
    return made


@pytest.fixture
def night(one_night: Repo) -> Repo:
    return one_night.again()


def test_the_page_of_a_night(night: Repo) -> None:
    assert alike(page(night).text, night) == GOLDEN


def alike(words: str, repo: Repo) -> str:
    """The words of a page without what is another each time."""
    words = words.replace(str(repo.path), "~")
    words = re.sub(r"(log/\d+-T\d)\S*", r"\1.log", words)
    words = re.sub(r"\w{3} \d\d \w{3}, \d\d:\d\d", "Sat 21 Nov, 22:30", words)
    words = re.sub(r"\d{4}-\d\d-\d\d \d\d:\d\d", "2026-11-21 22:30", words)
    words = re.sub(r"\b\d+\.\d s", "0.1 s", words)
    return re.sub(r"\b[0-9a-f]{7,40}\b", "c0ffee", words)


def test_it_is_written_where_it_says(night: Repo) -> None:
    done = night.ralph("report")
    written = Path(done.stdout.strip())
    assert done.returncode == 0
    assert written == night.path / ".ralph/report.html"
    assert "T2" in Page(written.read_text()).text
    night.sh("echo mine > ../victim; ln -sf ../../victim .ralph/report.html")
    assert night.ralph("report").returncode == 0  # an agent may have made the link
    assert night.read("../victim") == "mine\n"
    assert not written.is_symlink()
    assert night.git("status", "--porcelain") == " M prd.json\n?? progress.txt\n"


# ---------------------------------------------------------------- what others wrote

SCRIPT = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;b&gt;"
HOSTILE = """{
"handoff": {"learned": "X", "ruled out": "X", "next step": "X", "question": "X"},
"judge": {"agrees": false, "objections": ["X"]},
"failure": {"name": "X", "tail": "X", "log": "X", "others": ["X"]},
"denials": ["X"], "notices": ["X"], "restored": ["X"], "tests": ["X"], "flaky": ["X"],
"reason": "X", "command": "X", "parked": "X"}"""
HOSTILE = HOSTILE.replace('"X"', json.dumps(SCRIPT))


def log(repo: Repo, *records: dict[str, Any]) -> None:
    """Write a progress.txt of these records."""
    lines = ""
    for number, record in enumerate(records, 1):
        head = {"v": 2, "plan": "prd.json@", "run": "r", "time": number * 60.0}
        shown = json.dumps(head | record)
        shown = shown.replace("<", "\\u003c").replace(">", "\\u003e")
        lines += f"<!-- ralph {shown} -->\n"
    repo.write("progress.txt", lines)


def verdict(task: str, word: str = "failed", **fields: Any) -> dict[str, Any]:
    named = {"event": "verdict", "task": task, "title": task, "iteration": 1}
    return {**named, "verdict": word, **fields}


def passed(repo: Repo, **fields: Any) -> str:
    """Note that task 1 passed with the newest commit, which is given back."""
    repo.plan({"title": "T1", "passes": True})
    commit = repo.git("rev-parse", "HEAD").strip()
    log(repo, verdict("T1", "passed", **{"commit": commit, **fields}))
    return commit


def test_nothing_that_others_wrote_can_act(repo: Repo) -> None:
    names = [f"{letter}{SCRIPT}" for letter in "ABC"]
    first, blocked, done = ({"id": name, "title": name} for name in names)
    repo.plan(first, {**blocked, "blocked": SCRIPT}, {**done, "passes": True})
    repo.write(
        f"x{SCRIPT.replace('/', '')}\n.txt", f"{SCRIPT}\r+forged\r\n\x1b[2Jgone\n"
    )
    repo.commit(f"subject {SCRIPT}")
    hostile = json.loads(HOSTILE)
    records = [verdict(name, **hostile) for name in names]
    records[2] |= {"verdict": "passed", "commit": repo.git("rev-parse", "HEAD").strip()}
    stop = {"event": "stop", "stop": "budget", "exit": 4}
    log(repo, *records, {**stop, "reason": SCRIPT, "branch": SCRIPT})
    shown = page(repo)
    assert not re.search("<script|<img|\x1b|\r", shown.source)
    assert f"\n+{SCRIPT} +forged\n+gone\n" in shown.text
    assert shown.text.count(SCRIPT) > 40
    (command,) = re.findall("<pre>(ralph retry .*)</pre>", shown.source)
    assert shlex.split(html.unescape(command))[2] == names[1]


def test_secrets_stay_out(repo: Repo) -> None:
    secret = "s3cr3t-value-of-this-test"
    repo.plan({"title": secret, "passes": True}, {"blocked": f"{secret}?"})
    repo.write("x.txt", "x" * 3990 + secret)
    repo.commit("T1")
    commit = repo.git("rev-parse", "HEAD").strip()
    record = verdict("T1", "passed", commit=commit, notices=[secret])
    log(repo, record | {"title": secret})
    assert page(repo).source.count(secret) == 5
    source = page(repo, token=secret).source
    assert source.count("[MY_API_TOKEN]") == 5
    assert secret[:8] not in source


def test_a_large_change_is_cut(repo: Repo) -> None:
    repo.write("many.txt", "<\n" * 400_000)
    repo.commit("large")
    commit = passed(repo)
    shown = page(repo)
    assert len(shown.source) < 300_000
    assert f"[cut here; all of it: git show {commit[:12]}]" in shown.text


@pytest.mark.parametrize("commit", ["--output=stolen", "0" * 40])
def test_a_commit_that_is_none_is_no_option_of_git(repo: Repo, commit: str) -> None:
    passed(repo, commit=commit)
    assert f"\ngit show {commit}\n" in page(repo).text
    assert not (repo.path / "stolen").exists()


def test_settings_of_git_change_nothing(night: Repo) -> None:
    plain = page(night).text
    night.sh("""
        git config diff.external touch-stolen
        git config diff.mine.textconv touch-stolen
        git config color.ui always
        git config log.showSignature true
        echo '* diff=mine' > .git/info/attributes
    """)
    assert page(night).text == plain
