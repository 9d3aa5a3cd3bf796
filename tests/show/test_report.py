"""`ralph report`: the page is true, whole and small, and nothing that stands on it can
act."""

from __future__ import annotations

import html
import json
import re
import shlex
import subprocess
import time
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest

from _ralph.show import timeline
from _ralph.state.records import from_json
from tests.conftest import Repo

LARGEST = 30_000_000
SCRIPT = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>&lt;b&gt;"
VOID = {"meta", "br"}
ATTRIBUTES = {
    "class": r"[a-z -]+", "id": r"[a-z]+(-\d+)?", "open": "", "lang": "en", "charset": "utf-8", "href": r"#[a-z]+(-\d+)?",
    "style": r"left: [\d.]+%", "d": r"[MHVZ\d.,-]+", "value": r"[\d.e-]+", "viewbox": r"[\d ]+",
    "preserveaspectratio": "none", "role": "img", "tabindex": "0", "aria-hidden": "true",
    "aria-label": r"[^<>]*", "http-equiv": "Content-Security-Policy", "content": r"[^<>\"]*", "name": r"[a-z-]+",
    **dict.fromkeys(("x", "y", "x1", "x2", "y1", "y2", "width", "height"), r"[\d.-]+"),
}  # fmt: skip


class Page(HTMLParser):
    """A strict reader: tags balance, and there is no element or attribute that could
    act."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.words: list[str] = []
        self.data: dict[str, float] = {}
        self.headings: list[int] = []
        self.feed(source)
        self.close()
        assert self.open == []
        assert self.headings[0] == 1 and self.headings.count(1) == 1
        assert all(
            b - a <= 1 for a, b in zip(self.headings, self.headings[1:], strict=False)
        )

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in (
            "script",
            "img",
            "iframe",
            "object",
            "link",
            "form",
            "base",
            "b1",
        ), self.getpos()
        found = dict(attrs)
        assert len(found) == len(attrs)
        for name, value in found.items():
            assert re.fullmatch(ATTRIBUTES[name], value or "", re.DOTALL), (
                tag,
                name,
                value,
            )
        if re.fullmatch(r"h\d", tag):
            self.headings.append(int(tag[1]))
        if tag == "data":
            self.data[str(found["class"])] = float(found["value"] or "nan")
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in ("line", "rect", "path")
        self.handle_starttag(tag, attrs)
        self.handle_endtag(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open, self.getpos())
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] != "style":
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())

    def section(self, begin: str, end: str) -> str:
        return self.text.partition(f" {begin} ")[2].rpartition(f" {end} ")[0]


def report(repo: Repo, *words: str, token: str = "") -> str:
    done = repo.ralph("report", "-o", "-", *words, MY_API_TOKEN=token)
    assert (done.returncode, done.stderr) == (0, "")
    assert len(done.stdout.encode()) < LARGEST
    return done.stdout


def page(repo: Repo, *words: str) -> Page:
    return Page(report(repo, *words))


def numbers_are_those_of_status(repo: Repo, shown: Page, *words: str) -> None:
    told = json.loads(repo.ralph("status", "--json", *words).stdout)
    wanted = {key: told[key] for key in ("passed", "total", "iterations", "seconds")}
    if told["usd"]:
        wanted["usd"] = told["usd"]
    if any(told["tokens"].values()):
        wanted.update(input=told["tokens"]["input"], output=told["tokens"]["output"])
    assert shown.data == wanted


NIGHT = """
    if task == "T2":
        said("blocked on", "Which price table? Proposed: the new one.")
        P("half.txt").write_text("half")
    elif task == "T4":
        P("T4.txt").write_text("bad")
    else:
        plan = json.loads(P("prd.json").read_text())
        plan["userStories"][4]["passes"] = True
        P("prd.json").write_text(json.dumps(plan))
        P("T1.txt").write_text("good\\n" + "line\\n" * 400)
        said("decisions", "prices are kept in cents")
        said("learned", "- the tests need a locale\\n- migrations run by hand")
        said("found", "1. the footer is wrong\\n   on small screens\\n2. it's slow")
"""


def a_night(repo: Repo) -> None:
    """One task passes, one is blocked with a question, one waits for it, one has
    failed, one is open."""
    owns = [
        [{"name": "own", "run": f"cat T{i}.txt; grep -q good T{i}.txt"}]
        for i in range(7)
    ]
    tasks: list[dict[str, Any]] = [{"checks": own} for own in owns[1:]]
    tasks[2] |= {"dependsOn": ["T2"]}
    tasks[5] |= {"passes": True, "checks": ["test -f a.txt"]}
    repo.plan(*tasks, limits={"attempts": 2})
    repo.write("AGENTS.md", "- the tests need a locale\n")
    repo.commit("plan")
    code, _, err = repo.run(repo.agent(NIGHT), "--max-iterations", "4")
    assert code == 3, err
    assert repo.verdicts() == ["T1 passed", "T2 failed", "T2 failed", "T4 failed"]


@pytest.fixture(scope="module")
def one_night(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    made = Repo(tmp_path_factory.mktemp("night"))
    a_night(made)
    made.keep()
    return made


@pytest.fixture
def night(one_night: Repo) -> Repo:
    return one_night.again()


def record(
    event: str, at: float, run: str = "r1", plan: str = "p@", **fields: Any
) -> dict[str, Any]:
    return {"v": 2, "time": at, "event": event, "plan": plan, "run": run, **fields}


def attempt(
    number: int,
    at: float,
    task: str = "T1",
    verdict: str = "failed",
    took: float = 60,
    **fields: Any,
) -> list[dict[str, Any]]:
    """A start and its verdict, as ralph writes them."""
    same: dict[str, Any] = {
        "iteration": number,
        "attempt": 1,
        "task": task,
        "title": f"task {task[1:]}",
    }
    ended = {"verdict": verdict, "seconds": took, **same, **fields}
    by = {"run": fields["run"]} if "run" in fields else {}
    return [record("start", at, **same, **by), record("verdict", at + took, **ended)]


def write_records(repo: Repo, records: list[dict[str, Any]]) -> None:
    lines = [
        json.dumps(entry).replace("<", "\\u003c").replace(">", "\\u003e")
        for entry in records
    ]
    repo.write("progress.txt", "".join(f"<!-- ralph {line} -->\n" for line in lines))


# ---------------------------------------------------------------- what it says


def test_the_page_of_a_night(night: Repo) -> None:
    shown = page(night)
    numbers_are_those_of_status(night, shown)
    assert (
        "The last run stopped" in shown.text
        and "limit reached: 4 iterations" in shown.text
    )
    assert "2 of 6" in shown.text and "1 marked by hand" in shown.text
    needs = shown.section("Needs you", "Passed")
    assert (
        needs.count("Which price table? Proposed: the new one.") == 1
        and "it asks: Which" in needs
    )
    assert "ralph retry T2 --answer '...'" in needs
    (parked,) = re.findall(r"git cherry-pick (\S+)", needs)
    assert night.git("show", f"{parked}:half.txt") == "half"
    passed = shown.section("Passed", "Open")
    assert passed.index("T1") < passed.index("T6") and "marked by hand" in passed
    commit = night.git("log", "-1", "--format=%H", "--grep=^T1: ", "ralph/p").strip()
    assert (
        f"{commit[:12]} T1: task 1" in passed
        and "1 file changed, 401 insertions(+)" in passed
    )
    assert (
        "prices are kept in cents" in passed
        and "+good" in passed
        and "prd.json" not in passed
    )
    assert "104 more lines" in passed and f"git show {commit[:12]}" in passed
    left = shown.section("Open", "Put back")
    assert "First failure: own bad" in left and "waits for T2" in left and "T5" in left
    assert re.search(
        r"Put back 1 .* prd.json \(.*set to pass; what is changed in it does not count\)",
        shown.text,
    )
    assert (
        "1 commit of verified work on branch ralph/p, not in what is checked out here"
        in passed
    )
    assert "git diff HEAD...ralph/p" in passed and "ralph land ralph/p" in passed
    assert (
        "- migrations run by hand" in shown.text
        and "- the tests need a locale" not in shown.text
    )
    assert "ralph add 'the footer is wrong on small screens'" in shown.text
    assert """ralph add 'it'"'"'s slow'""" in shown.text
    assert "passed 1" in shown.text and "failed 3" in shown.text


def test_it_is_written_where_it_says(night: Repo) -> None:
    done = night.ralph("report")
    written = Path(done.stdout.strip())
    assert (done.returncode, written) == (0, night.path / ".ralph" / "report.html")
    assert Page(written.read_text()).text
    victim = night.write("../victim", "mine")
    written.unlink()
    written.symlink_to(victim)  # as an agent may have made it
    assert night.ralph("report").returncode == 0
    assert (victim.read_text(), written.is_symlink()) == ("mine", False)
    given = night.ralph("report", "--output", "../page.html")
    assert (given.returncode, given.stdout) == (0, "")
    assert Page((night.outside / "page.html").read_text()).text
    assert night.git("status", "--porcelain") == " M prd.json\n?? progress.txt\n"
    assert list(night.path.glob(".ralph/*.ralph-tmp")) == []


def test_a_page_that_cannot_be_made_leaves_the_last_one(repo: Repo) -> None:
    last = repo.write("../page.html", "last")
    repo.write("prd.json", "{")
    assert repo.ralph("report", "-o", "../page.html").returncode == 2
    assert last.read_text() == "last"


def test_it_needs_only_plan_and_notes(night: Repo, tmp_path: Path) -> None:
    bare = Repo(tmp_path)
    for name in ("prd.json", "progress.txt"):
        bare.write(name, night.read(name))
    shown = page(bare)
    numbers_are_those_of_status(bare, shown)
    assert "ralph retry T2 --answer '...'" in shown.text
    assert "Its commit was not found" in shown.text and "ralph land" not in shown.text
    (bare.path / "progress.txt").unlink()
    assert "No run yet" in page(bare).text


def test_another_plan_file_stands_in_the_commands(repo: Repo) -> None:
    repo.plan({"checks": ["false"], "blocked": "why?"})
    (repo.path / "prd.json").rename(repo.path / "my plan.json")
    assert (
        "ralph retry --prd 'my plan.json' T1 "
        in page(repo, "--prd", "my plan.json").text
    )


def test_the_commits_of_a_branch_that_was_merged_and_deleted(night: Repo) -> None:
    night.git("merge", "-q", "ralph/p", "--no-ff", "-m", "the night")
    assert "ralph land" not in page(night).text
    night.git("branch", "-qD", "ralph/p")
    assert "1 file changed, 401 insertions(+)" in page(night).text


def test_a_branch_in_notes_of_an_older_ralph(night: Repo) -> None:
    night.write(
        "progress.txt",
        night.read("progress.txt").replace('"branch": "', '"branch": "refs/heads/'),
    )
    shown = page(night).text
    assert (
        "ralph land ralph/p" in shown and "1 file changed, 401 insertions(+)" in shown
    )


def test_a_setup_that_failed_in_a_workspace_is_why_the_run_stopped(repo: Repo) -> None:
    setup = 'case "$PWD" in *work-1) echo nope; exit 3;; esac'
    repo.plan({"checks": ["test -f T1.txt"]}, setup=setup)
    assert repo.run("true", "--max-wait", "0")[0] == 75
    shown = page(repo).text
    assert f"setup failed with exit 3 (0.0 s): {setup}" in shown
    assert "the last run stopped at" in (
        said := repo.ralph("status", COLUMNS="300").stdout
    )
    assert "setup failed with exit 3" in said
    repo.plan({"checks": ["test -f T1.txt"]})
    assert (
        repo.run(repo.agent('P("T1.txt").touch()'))[0] == 0
    )  # nothing of it is in the way


def test_while_a_loop_runs(repo: Repo) -> None:
    repo.plan({"checks": ["test -f T1.txt"]})
    repo.commit("plan")
    up = repo.outside / "up"
    loop = repo.start(
        "run", "--agent", repo.agent(f"P({str(up)!r}).touch(); time.sleep(30)")
    )
    repo.wait_for("../up")
    shown = page(repo)
    loop.terminate()
    loop.communicate(timeout=30)
    assert all(
        words in shown.text
        for words in ("A loop is running since", "running 1", "still running")
    )


# ---------------------------------------------------------------- empty, small and large


def test_before_the_first_attempt(repo: Repo) -> None:
    repo.plan({"checks": ["false"]})
    shown = page(repo)
    numbers_are_those_of_status(repo, shown)
    assert "No run yet" in shown.text and "Nothing has passed yet." in shown.text
    assert (
        "Cost none Time" in shown.text
        and "Timeline" not in shown.text
        and "each passed" not in shown.text
    )


def test_nothing_passed_and_no_dollars(repo: Repo) -> None:
    repo.plan({"checks": ["false"]})
    write_records(
        repo,
        [
            record("run", 1000),
            *attempt(1, 1000, took=7200, tokens={"input": 900, "output": 100}),
        ],
    )
    shown = page(repo)
    numbers_are_those_of_status(repo, shown)
    assert "Cost unknown 900 tokens in 100 tokens out" in shown.text
    assert "each passed" not in shown.text and "$" not in shown.text
    assert "The last run was cut off" in shown.text


def test_dollars_hours_and_what_came_of_them(repo: Repo) -> None:
    repo.plan(
        {"checks": ["false"], "passes": True}, {"checks": ["false"], "passes": True}
    )
    tokens = {"input": 1200000, "output": 34567}
    write_records(repo, [
        record("run", 1000),
        *attempt(1, 1000, verdict="limited", took=600),
        record("wait", 1600, until=4600),
        *attempt(2, 4600, verdict="passed", took=3600, usd=1.234567, tokens=tokens, message="T1: x\n\nRalph-Iteration: 2\n"),
        record("stop", 8200, stop="complete", exit=0, reason="every task passes"),
        record("retry", 50_000, run="", task="T1", title="task 1"),
        record("run", 100_000, run="r2"),
        *attempt(3, 100_000, task="T2", verdict="passed", took=3600, usd=0.8, run="r2"),
    ])  # fmt: skip
    shown = page(repo)
    numbers_are_those_of_status(repo, shown)
    assert "$2.03 $1.02 for each passed task" in shown.text
    assert (
        "3 h 0 min 2 h 10 min of it in agents and checks 1 h 30 min for each passed task"
        in shown.text
    )
    assert (
        "1,200,000 tokens in 34,567 tokens out" in shown.text
        and "1 attempt without a price" in shown.text
    )
    assert "2 runs, 3 h 0 min" in shown.text and "waiting 1" in shown.text


def many(repo: Repo, number: int) -> None:
    """A plan and notes of so many attempts, two in three of them passed and
    committed."""
    repo.plan(
        *({"checks": ["false"], "passes": i % 3 != 1} for i in range(1, number + 1))
    )
    repo.commit("plan")
    head, at, records = repo.git("rev-parse", "HEAD").strip(), 1_700_000_000.0, []
    stream: list[str] = []
    for i in range(1, number + 1):
        passed, subject = i % 3 != 1, f"T{i}: task {i}"
        fields = {
            "message": f"{subject}\n\nRalph-Iteration: {i}\n", "usd": 0.1, "tokens": {"input": 1000, "output": 10},
            "handoff": {"learned": f"fact {i}", "decisions": "x" * 200, "found": f"bug {i}"},
        }  # fmt: skip
        failure = (
            None
            if passed
            else {
                "name": "own",
                "tail": "a line of output\n" * 300,
                "log": "",
                "others": [],
            }
        )
        pair = attempt(
            i,
            at,
            f"T{i}",
            "passed" if passed else "failed",
            300,
            failure=failure,
            **fields,
        )
        pair[0].update(base=head, branch="main")
        records += pair
        at += 300
        if passed:
            body = f"{subject}\n\nRalph-Iteration: {i}\n"
            content = "".join(f"line {n} of {i}\n" for n in range(60))
            stream.append(
                f"commit refs/heads/main\nmark :{i}\ncommitter T <t@example.invalid> {1700000000 + i} +0000\n"
                f"data {len(body)}\n{body}{f'from {head}' if not stream else ''}\n"
                f"M 100644 inline f{i}.py\ndata {len(content)}\n{content}\n"
            )
    words = ["git", "fast-import", "--quiet"]
    subprocess.run(
        words, input="".join(stream), text=True, cwd=repo.path, env=repo.env, check=True
    )
    write_records(repo, [record("run", 1_700_000_000.0), *records])


def side_by_side(repo: Repo) -> None:
    """A night of four workers with two agents, of which one has to wait for its
    provider; its end is cut off."""
    repo.plan(*({"checks": ["false"], "passes": i < 11} for i in range(1, 15)))
    repo.commit("plan")
    plan = [  # worker, from and to which minute, task, verdict
        (1, 0, 22, 1, "passed"), (2, 1, 9, 2, "passed"), (3, 2, 31, 3, "failed"), (4, 3, 14, 4, "limited"),
        (2, 9, 40, 5, "passed"), (1, 22, 35, 6, "passed"), (3, 31, 52, 3, "passed"), (1, 35, 41, 7, "no-op"),
        (2, 40, 44, 8, "passed"), (1, 41, 60, 9, "passed"), (4, 44, 70, 4, "passed"), (2, 44, 66, 10, "timed-out"),
        (3, 52, 75, 11, ""), (1, 60, 75, 12, ""), (2, 66, 75, 10, ""),
    ]  # fmt: skip
    began = 1_700_000_000.0
    found = [
        record("run", began),
        record("wait", began + 841, until=began + 2641, command="codex"),
    ]
    for number, (worker, start, end, task, word) in enumerate(plan, 1):
        agent = "codex" if worker == 4 else "claude --model opus"
        begins, ends = attempt(
            number, began + start * 60, f"T{task}", word or "failed", (end - start) * 60.0, command=agent,
            usd=0.4, weak=number == 9, reason="" if word in ("", "passed") else "npm test failed with exit 1 (11.0 s)",
        )  # fmt: skip
        found += [
            {**begins, "worker": worker, "command": agent},
            *([ends] if word else []),
        ]
    found.sort(key=lambda one: one["time"])
    write_records(repo, found)


def test_lanes_of_several_workers(repo: Repo) -> None:
    side_by_side(repo)
    source = report(repo)
    shown = Page(source)
    numbers_are_those_of_status(repo, shown)
    assert (
        "1 h 10 min 3 h 32 min of work in agents and checks, by 4 workers" in shown.text
    )
    lanes = re.findall(r'<svg class="lane".*?</svg>', source, re.DOTALL)
    assert [re.findall(r"worker (\d), (\d+):", lane) for lane in lanes] == [
        [("1", "1"), ("1", "6"), ("1", "8"), ("1", "10"), ("1", "14")],
        [("2", "2"), ("2", "5"), ("2", "9"), ("2", "12"), ("2", "15")],
        [("3", "3"), ("3", "7"), ("3", "13")],
        [("4", "4"), ("4", "11")],
        [],
    ]
    assert (
        "the provider of codex: waiting, 29 min 59 s" in lanes[-1]
        and "the provider" not in lanes[3]
    )
    assert "passed (weak)" in shown.text and "4 min 0 s, $0.40; weak" in shown.text
    assert (
        "No. Began Task Agent Verdict" in shown.text
        and shown.text.count("claude --model opus") > 12
    )


@pytest.mark.parametrize("number", [1, 200])
def test_one_and_200_iterations(repo: Repo, number: int) -> None:
    many(repo, number)
    source = report(repo)
    shown = Page(source)
    numbers_are_those_of_status(repo, shown)
    assert (
        source.count('<pre class="diff"') == source.count("git show") + number * 2 // 3
    )
    assert "Its commit was not found" not in shown.text


def test_hostile_sizes_are_cut(repo: Repo) -> None:
    repo.plan(
        *(
            {"checks": ["false"], "passes": i > 20, "title": "<&>" * 40}
            for i in range(1, 1001)
        )
    )
    repo.commit("plan")
    head = repo.git("rev-parse", "HEAD").strip()
    repo.write("one-line.txt", "'" * 900_000)
    repo.write("huge.txt", "<\n" * 500_000)
    for i in range(4):
        repo.write(f"quotes-{i}.txt", "'\"<&>'\n" * 100_000)
    repo.git("add", "-A")
    repo.git("commit", "-qm", "T150: big\n\nRalph-Iteration: 150")
    records: list[dict[str, Any]] = [record("run", 1)]
    for i in range(1, 151):
        records += attempt(
            i, i * 1000.0, f"T{i}", "passed" if i > 20 else "failed", title="<&>" * 40, reason="'" * 3000,
            handoff=dict.fromkeys(("learned", "found", "decisions", "risks", "blocked on"), "'\n" * 1000),
            failure={"name": "'" * 999, "tail": "'" * 20_000, "log": "'" * 999, "others": ["'" * 999] * 20},
            restored=["'" * 2000] * 9, denials=["'" * 2000] * 9, message="T150: big", usd=0.01,
        )  # fmt: skip
    records[1].update(base=head, branch="main")
    write_records(repo, records)
    source = report(repo)
    shown = Page(source)
    assert "and 480 more" in shown.text and "Open 20" in shown.text
    assert "more lines: git show" in shown.text


# ---------------------------------------------------------------- what others wrote


def poison(value: Any, key: str = "") -> Any:
    """Every text in a record made hostile, but for those that decide what the record
    is."""
    if isinstance(value, dict):
        return {
            k
            if key in ("", "handoff", "failure", "judge", "tokens")
            else f"{k}{SCRIPT}": poison(v, k)
            for k, v in value.items()
        }
    if isinstance(value, list):
        return [poison(entry, key) for entry in value]
    fixed = (
        "event",
        "plan",
        "verdict",
        "run",
        "branch",
        "base",
        "task",
        "title",
        "message",
    )
    return f"{value}{SCRIPT}" if isinstance(value, str) and key not in fixed else value


FIELDS = {"handoff": dict.fromkeys(("decisions", "learned", "found", "risks", "ruled out", "next step", "blocked on"), "words"),
          "judge": {"agent": "judge", "agrees": False, "objections": ["no"]}, "denials": ["rm"], "notices": ["odd"],
          "restored": ["a"], "reason": "because", "agent": "agent", "parked": "refs/ralph/parked/x",
          "failure": {"name": "check", "tail": "tail", "log": "log", "others": ["other"]}}  # fmt: skip


@pytest.fixture(scope="module")
def hostile(tmp_path_factory: pytest.TempPathFactory) -> Repo:
    made = Repo(tmp_path_factory.mktemp("hostile"))
    a_hostile_run(made)
    return made


def a_hostile_run(made: Repo) -> None:
    """Every name and word is hostile, and every field of the notes."""
    own = [{"name": f"own{SCRIPT}", "run": "test -f done || exit 1"}]
    tasks: list[dict[str, Any]] = [
        {
            "id": f"{n}{SCRIPT}",
            "title": f"{n}{SCRIPT}",
            "acceptanceCriteria": [SCRIPT],
            "checks": own,
        }
        for n in "ABCDE"
    ]
    tasks[3]["dependsOn"] = [tasks[2]["id"]]
    made.plan(
        *tasks, project=f"p{SCRIPT}", limits={"attempts": 1}, commit="{{ task.id }}"
    )
    made.commit("plan")
    works = """
        P("done").touch()
        P(sys.argv[-1].replace("/", "") + "\\n.txt").write_text(sys.argv[-1] + "\\n")
        P("x<script>").write_text(sys.argv[-1])
        said("learned", sys.argv[-1]); said("found", sys.argv[-1])
    """
    agent = made.agent(works)
    words = ["--max-iterations", "1", "--branch", "x<script>alert(3)<-script>"]
    assert made.run(f"{agent} {shlex.quote(SCRIPT)}", *words)[0] == 3
    records = [poison(entry) for entry in made.records()]
    plan, run = records[0]["plan"], records[0]["run"]
    for number, (task, verdict) in enumerate(
        [
            (tasks[1], "failed"),
            (tasks[2], "failed"),
            (tasks[4], "timed-out"),
            (tasks[4], "interrupted"),
        ],
        2,
    ):
        pair = attempt(
            number, 2e9 + number, task["id"], verdict, **poison(FIELDS), usd=1.0
        )
        for entry in pair:
            entry.update(plan=plan, run=run, title=task["title"])
        records += pair
    records += [
        poison(record("wait", 2e9 + 99, run, plan, until=2e9 + 100)),
        poison(record("stop", 2e9 + 100, run, plan, stop="x", reason="y")),
    ]
    write_records(made, records)
    data = json.loads(made.read("prd.json"))
    data["userStories"][2]["blocked"] = f"why{SCRIPT}"
    made.write("prd.json", json.dumps(data))
    made.git("symbolic-ref", "HEAD", "refs/heads/main")  # what landed is not merged yet


def test_nothing_that_others_wrote_can_act(hostile: Repo) -> None:
    source = report(hostile)
    shown = Page(source)
    numbers_are_those_of_status(hostile, shown)
    assert shown.text.count("<script>alert(1)</script>") > 40
    assert "<script" not in source.lower() and "<img" not in source.lower()
    headings = "First failure|The judge says|Put back|Denied|Learned|Found on|waits for|Branch x<script>"
    assert [words for words in headings.split("|") if words not in shown.text] == []
    (command,) = re.findall(
        r"^<pre class=\"cmd\">(ralph retry .*)</pre>", source, re.MULTILINE
    )
    assert shlex.split(html.unescape(command))[2] == f"C{SCRIPT}"
    (command,) = re.findall(
        r"^<pre class=\"cmd\">(ralph land .*)</pre>", source, re.MULTILINE
    )
    assert shlex.split(html.unescape(command))[2:] == ["x<script>alert(3)<-script>"]


MUTANTS = {
    "none": "",
    "nothing is escaped": "import jinja2, functools\njinja2.Environment = functools.partial(jinja2.Environment)\nreal = jinja2.Environment\njinja2.Environment = lambda **k: real(**{**k, 'autoescape': False})",
    "nothing is redacted": "from _ralph import text\ntext.redact = lambda words: words",
}


def mutant(repo: Repo, name: str, **env: Any) -> str:
    done = repo.ralph("report", "-o", "-", first=MUTANTS[name], **env)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_test_of_escaping_bites(hostile: Repo) -> None:
    assert Page(mutant(hostile, "none")).text
    with pytest.raises(AssertionError):
        Page(mutant(hostile, "nothing is escaped"))


def test_secrets_stay_out(repo: Repo) -> None:
    secret = "s3cr3t-value-of-this-test"
    repo.plan(
        {"title": f"use {secret}", "checks": ["test -f T1.txt"]},
        {"checks": ["false"], "blocked": f"{secret}?"},
    )
    repo.commit("plan")
    agent = repo.agent(
        f'P("T1.txt").write_text("x" * 390 + "{secret}")\nsaid("learned", "{secret}")\nsaid("found", "{secret}")'
    )
    repo.run(agent)
    assert secret in mutant(repo, "nothing is redacted", MY_API_TOKEN=secret)
    source = report(repo, token=secret)
    assert secret not in source and source.count("[MY_API_TOKEN]") > 3
    assert secret[:8] not in source


def test_a_damaged_record_is_one_clear_message(repo: Repo) -> None:
    """Which ones are damaged, tests of records say."""
    repo.plan({"checks": ["false"]})
    write_records(repo, [record("run", 1), *attempt(1, 2, failure={"others": [1]})])
    done, status = repo.ralph("report"), repo.ralph("status")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == status.stderr
    assert "is damaged" in done.stderr and len(done.stderr.splitlines()) == 1


def test_what_a_record_leaves_out_is_left_out(repo: Repo) -> None:
    repo.plan(
        {"checks": ["false"]},
        {"checks": ["false"], "blocked": "?"},
        {"checks": ["false"], "passes": True},
    )
    nothing: dict[str, Any] = {
        "failure": {"name": None, "tail": None, "others": None}, "handoff": {"blocked on": None, "found": None},
        "judge": {"objections": None}, "restored": None, "reason": None, "parked": None, "message": None, "usd": None,
    }  # fmt: skip
    records = [
        *attempt(1, 1, "T1", **nothing),
        *attempt(2, 2, "T2", **nothing),
        *attempt(3, 3, "T3", "passed", **nothing),
    ]
    write_records(repo, [{**entry, "branch": None, "time": None} for entry in records])
    assert "Open 1" in page(repo).text
    repo.write("progress.txt", "no records\n" * 9)
    assert "No run yet" in page(repo).text


@pytest.mark.parametrize(
    "branch",
    ["--output=stolen", "refs/heads/x --output=stolen", "refs/heads/none", "HEAD~99"],
)
def test_a_branch_that_is_none_is_no_option_of_git(repo: Repo, branch: str) -> None:
    repo.plan({"checks": ["false"], "passes": True})
    pair = attempt(1, 1, verdict="passed", message="T1: x")
    pair[0].update(branch=branch, base="--output=stolen")
    write_records(repo, pair)
    assert "Its commit was not found" in page(repo).text
    assert not (repo.path / "stolen").exists()


def test_settings_of_git_change_nothing(night: Repo) -> None:
    plain = page(night).section("Passed", "Open")
    for key, value in {
        "diff.external": "touch stolen;", "diff.noprefix": "true", "color.ui": "always", "log.showSignature": "true",
        "diff.wsErrorHighlight": "all", "format.pretty": "fuller", "core.pager": "touch stolen", "diff.algorithm": "patience",
        "i18n.logOutputEncoding": "UTF-16", "diff.x.textconv": "touch stolen;", "diff.suppressBlankEmpty": "true",
    }.items():  # fmt: skip
        night.git("config", key, value)
    night.write(".git/info/attributes", "* diff=x\n")
    shown = page(night).section("Passed", "Open")
    assert (
        shown.replace("diff --git T1.txt T1.txt", "diff --git a/T1.txt b/T1.txt")
        == plain
    )
    assert not (night.path / "stolen").exists()


# ---------------------------------------------------------------- what it cost, and where it led


def test_the_times_add_up(repo: Repo) -> None:
    """What a planner took is time, too, and a run that was killed lasted as long as its
    work."""
    repo.plan({"checks": ["false"]})
    opened, ended = attempt(1, 1100, took=300, verdict="interrupted")
    plan = record("add", 900, run="r0", seconds=600, usd=0.5)
    write_records(repo, [plan, record("run", 1000), opened, {**ended, "run": "r2"}])
    shown = page(repo)
    numbers_are_those_of_status(repo, shown)
    assert (
        "Time 15 min 0 s 15 min 0 s of it in agents and checks 10 min 0 s of it for the plan"
        in shown.text
    )


def test_a_chart_of_costs_and_links_to_the_attempts(repo: Repo) -> None:
    repo.plan(*[{"checks": ["false"]}] * 3)
    records = [
        *attempt(1, 1000, usd=0.1),
        *attempt(2, 1100, usd=0.3),
        *attempt(3, 1200, "T2", usd=0.1),
    ]
    write_records(repo, [record("run", 1000), *records])
    source = report(repo)
    costs = source[source.index('id="costs"') : source.index('id="timeline"')]
    assert re.findall(r'href="#task-(\d)">(T\d)<', costs) == [("0", "T1"), ("1", "T2")]
    assert re.findall(r'width="([\d.]+)" y="0"', costs) == ["1000.0", "250.0"]
    open_tasks = source[source.index('id="open"') : source.index('id="costs"')]
    assert re.findall(r'<a href="#(attempt-\d)">', open_tasks) == [
        "attempt-1",
        "attempt-2",
        "attempt-3",
    ]
    assert re.findall(r'<tr id="(attempt-\d)">', source) == [
        "attempt-3",
        "attempt-2",
        "attempt-1",
    ]


def test_after_a_retry_no_attempt_counts(repo: Repo) -> None:
    repo.plan({"checks": ["test -f x"]}, limits={"attempts": 1})
    assert repo.run(repo.agent("P('y').touch()"))[0] == 4
    assert repo.ralph("retry", "T1").returncode == 0
    (task,) = json.loads(repo.ralph("status", "--json").stdout)["tasks"]
    assert (task["state"], task["failures"], task["attempts"]) == ("open", 0, 1)
    shown = page(repo)
    assert (
        "failed 1 of 1" not in shown.text
        and "Needs you: 0 Passed: 0 Open: 1" in shown.text
    )


def test_advice_is_nothing_to_type(repo: Repo) -> None:
    repo.plan({"checks": ["test -f x"]})
    stop = record("stop", time.time(), stop="unavailable", exit=5, reason="no login")
    repo.write("progress.txt", f"<!-- ralph {json.dumps(stop)} -->\n")
    shown = re.findall('<pre class="cmd">(.*?)</pre>', report(repo))
    assert [line.split()[1] for line in shown] == ["doctor", "run"]


def test_what_blocks_a_task_without_a_question_is_to_be_fixed_and_not_answered(
    repo: Repo,
) -> None:
    repo.plan({"checks": ["no-such-program"]})
    assert repo.run("false")[0] == 4
    shown = page(repo).section("Needs you", "Passed")
    assert (
        "when what blocks it is fixed ralph retry T1" in shown and "answer" not in shown
    )
    assert shown.count("ralph retry") == 1 and "ralph run" in shown


def test_a_pass_that_changed_tests_stands_open(repo: Repo) -> None:
    repo.write("tests/test_a.py", "def test_a(): assert 1 == 1\n")
    repo.plan({"checks": ["test -f T1.txt"]}, {"checks": ["test -f T2.txt"]})
    repo.commit("plan")
    repo.run(repo.agent("""
        P(f"{task}.txt").touch()
        P("tests/test_new.py").write_text("def test_new(): pass")
        if task == "T1":
            P("tests/test_a.py").write_text("def test_nothing(): pass")
    """))  # fmt: skip
    assert repo.verdicts() == ["T1 passed", "T2 passed"]
    assert "- changed tests: tests/test_a.py\n" in repo.read("progress.txt")
    told = json.loads(repo.ralph("status", "--json").stdout)["tasks"]
    assert [task["changed_tests"] for task in told] == [["tests/test_a.py"], []]
    assert "(changed tests)" in repo.ralph("status").stdout.splitlines()[0]
    source = report(repo)
    assert re.findall(r'<details open>\n<summary>\n?<h3 id="task-(\d)">', source) == [
        "0"
    ]
    assert (
        "It changed tests, or what decides which of them run, that were there before: tests/test_a.py"
        in Page(source).text
    )


# ---------------------------------------------------------------- the axis


def axis(*found: dict[str, Any]) -> list[timeline.Place]:
    return timeline.axis([from_json(one) for one in found])


def test_the_axis_leaves_out_the_time_between_runs() -> None:
    places = axis(
        record("run", 100), *attempt(1, 110, took=50), record("stop", 170, reason="limit"),
        record("retry", 5000, run="", task="T1"), record("run", 9000, "r2"), *attempt(2, 9010, took=20, run="r2"),
    )  # fmt: skip
    assert [(run.start, run.seconds, run.attempts, run.word) for run in timeline.runs(places)] == [
        (0, 70, 1, "limit"), (70, 30, 1, "cut off"),
    ]  # fmt: skip
    assert places[-1][0] == 100


def test_an_attempt_that_was_cut_off_ends_with_its_run() -> None:
    opened, ended = attempt(1, 110, took=5000, verdict="interrupted")
    records = [
        record("run", 100),
        opened,
        {**ended, "run": "r2"},
        record("run", 5111, "r2"),
    ]
    bars = timeline.attempts(axis(*records))
    assert [(bar.start, bar.seconds, bar.word) for bar in bars] == [
        (10, 0, "interrupted")
    ]
    assert timeline.attempts(axis(*records[:2]))[0].word == "cut off"
    beside = [records[0], opened, *attempt(2, 115, took=30)]
    assert [bar.seconds for bar in timeline.attempts(axis(*beside))] == [35, 30]


@pytest.mark.parametrize(
    ("until", "after", "waited"),
    [(150, 160, 50), (150, 130, 30), (5000, 160, 60), (0, 160, 0)],
)
def test_waits(until: float, after: float, waited: float) -> None:
    places = axis(
        record("run", 100), record("wait", 100, until=until), record("stop", after)
    )
    assert [bar.seconds for bar in timeline.waits(places)] == [waited]


@pytest.mark.parametrize(
    ("waits_for", "begins", "waited"),
    [
        ("codex", "claude", 60),
        ("codex", "codex", 20),
        ("", "claude", 20),
        ("codex", "", 60),
    ],
)
def test_a_wait_goes_on_while_others_work(
    waits_for: str, begins: str, waited: float
) -> None:
    """It ends where an attempt with the same agent begins; a record of an older ralph
    names none."""
    work = [{**one, "command": begins} for one in attempt(2, 120, took=10)]
    wait = record("wait", 100, until=160, command=waits_for)
    places = axis(*attempt(1, 90, took=10), wait, *work, record("stop", 500))
    assert [bar.seconds for bar in timeline.waits(places)] == [waited]


def test_a_wait_ends_with_its_run_and_with_the_next_one_for_the_same_agent() -> None:
    waits = [
        record("wait", at, until=900, command=name)
        for at, name in ((100, "a"), (110, "b"), (150, "a"))
    ]
    places = axis(
        record("run", 100), *waits, record("run", 700, "r2"), record("stop", 800, "r2")
    )
    assert [bar.seconds for bar in timeline.waits(places)] == [50, 40, 0]


def test_a_run_of_several_says_its_time_and_their_work() -> None:
    side = [*attempt(1, 100, took=60), *attempt(2, 110, took=50)]
    places = axis(
        record("run", 100),
        *sorted(side, key=lambda one: one["time"]),
        record("stop", 170),
    )
    (run,) = timeline.runs(places)
    assert (run.seconds, run.worked) == (70, 110)


def test_a_clock_that_is_set_back_takes_nothing_away() -> None:
    records = [
        record("run", 100),
        *attempt(1, 150, took=50),
        *attempt(2, 20, took=10, verdict="passed"),
    ]
    places = axis(*records)
    assert [at for at, _ in places] == [0, 50, 100, 100, 110]


def test_a_pass_that_was_taken_back_is_one_less() -> None:
    broken = record("recheck", 300, ok=False, broken=["T1\ntask 1"])
    passed = [
        attempt(number, at, verdict="passed") for number, at in ((1, 10), (2, 310))
    ]
    places = axis(record("run", 0), *passed[0], broken, *passed[1])
    assert timeline.passes(places, {"T1\ntask 1"}) == [
        (0, 0),
        (70, 1),
        (300, 0),
        (370, 1),
    ]
    assert timeline.passes(places, {"T9\ntask 9"}) == [(0, 0)]
