"""The prompt: fifteen points in their order, within 48 KB, and nothing of a task is
rendered."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from _ralph.agents import prompt
from _ralph.agents.prompt import (
    BOUND,
    Briefing,
    compile_prompt,
    prompt_values,
    render_message,
    render_prompt,
)
from _ralph.errors import BadInput
from _ralph.files import resource
from _ralph.model import Conflict, Paths
from _ralph.state.history import History
from _ralph.state.prd import load
from _ralph.state.records import from_json
from tests.conftest import Repo, cases, within
from tests.scripts import MAKES, own

TEMPLATE = resource("templates/prompt.md")

PLAN = """{
  "project": "shop", "branchName": "b", "description": "A shop for tea.", "rules": ["no new dependencies"],
  "checks": ["npm run lint"], "setup": "npm ci",
  "userStories": [
    {"id": "US-001", "title": "first", "passes": true},
    {"id": "US-003", "title": "Add a priority selector", "description": "People want to sort.",
     "acceptanceCriteria": ["it sorts"], "checks": ["npm test -- priority"], "ourOwnKey": {"kept": true}}
  ]
}"""
FAILED = json.loads("""{
  "verdict": "failed", "reason": "tests failed with exit 1",
  "failure": {"name": "tests", "tail": "AssertionError: 1 != 2", "log": "/srv/me/shop/.ralph/log/0001.log", "others": ["lint", "types"]},
  "restored": ["prd.json (a copy)"], "denials": ["npm install"],
  "notices": ["dist/ is ignored by git and not part of the work"],
  "handoff": {"next step": "look at the reducer", "ruled out": "the URL", "learned": "use make"}
}""")


class Bench:
    """Everything that a prompt is made of."""

    def __init__(self, folder: Path, plan: str = PLAN) -> None:
        self.paths = Paths(
            root=folder, prd=folder / "prd.json", progress=folder / "progress.txt", rulebook=folder / "AGENTS.md",
            logs=folder / ".ralph/log", private=folder / ".git" / "ralph", places=folder / "places",
        )  # fmt: skip
        self.reads(plan)
        self.history = History()
        self.recent = ["abc123 first: it works"]
        self.red_before = ["npm run lint"]
        self.more: dict[str, Any] = {}

    def reads(self, plan: str) -> None:
        self.paths.prd.write_text(plan)
        self.plan = load(self.paths.prd)
        self.task = next(task for task in self.plan.tasks if not task.passed)

    def has(self, **task: Any) -> None:
        """Its task is this one."""
        self.paths.prd.write_text(json.dumps([{"title": "t", **task}]))
        (self.task,) = load(self.paths.prd).tasks

    def record(self, event: str, **fields: Any) -> None:
        task = {"task": self.task.id, "title": self.task.title}
        self.history.apply(
            from_json({"event": event, "iteration": 1, **task, **fields})
        )

    def failed(self, **fields: Any) -> None:
        self.record("start")
        self.record("verdict", **{**FAILED, **fields})

    def retried(self, answer: str = "") -> None:
        self.record("retry", answer=answer)

    def conflicts(self, **fields: Any) -> None:
        self.failed(verdict="conflict", reason="a.txt")
        self.says(conflict=Conflict(**fields))

    def has_rules(self, text: str) -> None:
        self.paths.rulebook.write_text(text)

    def learned(self, lines: list[str]) -> None:
        self.history.learned += lines

    def was_red(self, checks: list[str]) -> None:
        self.red_before += checks

    def plan_says(self, **top: Any) -> None:
        self.reads(json.dumps({**self.plan.data, **top}))

    def says(self, **more: Any) -> None:
        self.more |= more

    def does(self, deeds: str) -> None:
        """Methods of this class with what they are given, as JSON."""
        for deed in filter(None, deeds.split("; ")):
            name, _, given = deed.partition(" ")
            getattr(self, name)(**json.loads(given or "{}"))

    def values(self) -> dict[str, Any]:
        given = Briefing(
            plan=self.plan, task=self.task, history=self.history, paths=self.paths,
            checks=self.plan.checks_for(self.task), attempts=3, handoff=self.paths.handoff(),
            recent=self.recent, red_before=self.red_before, **self.more,
        )  # fmt: skip
        return prompt_values(given)

    def prompt(self, template: Path = TEMPLATE) -> str:
        return render_prompt(template, self.values())


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# ---------------------------------------------------------------- what it says

# DESIGN's fifteen points, and the phrases in which each is said.
POINTS = r"""
1: fresh session | The files in this repository are the only truth | re-read a file before | Nobody is there to answer
2: A shop for tea. | no new dependencies | Use make, never npm.
3: this one task and nothing else: **US-003: Add a priority selector** | (attempt 2 of 3) | smallest change
4: Search before you write. Never assume that something is missing
5: no stubs, no placeholders | wired in
6: Only what git would commit counts | in a fresh checkout that `npm ci` made ready | What git ignores | is not there
6: Write tests for what you build | Never delete, skip or loosen a test | already done, prove it
7: targeted tests | run all of them | run again after you, in that fresh checkout | npm run lint\nnpm test -- priority
8: first failure | root cause | minimal fix | run it once more | stop and explain
9: No commits, no branch switch, no push | prd.json and progress.txt are copies to read: do not edit them | no server
10: "id": "US-003" | "ourOwnKey": {\n    "kept": true\n  }
11: 1 of 2 tasks in prd.json are done | progress.txt | abc123 first: it works | use make | the URL
12: use the old table | Red before the work began | judged **failed**: tests failed with exit 1 | failing check was `tests`
12: AssertionError: 1 != 2 | lint, types | prd.json (a copy) | dist/ is ignored by git | npm install | look at the reducer
13: restating, in five lines
14: an unrelated bug, report it in the handoff and do not fix it
15: .ralph-handoff.md | learned: | ruled out: | question: | next step: | The goal, once more: **Add a priority selector**
"""


def phrases(*numbers: str) -> list[str]:
    """Those of some points, or of all."""
    found = []
    for line in POINTS.strip().splitlines():
        number, _, said = line.partition(": ")
        if number in (numbers or number):
            found += said.replace(r"\n", "\n").split(" | ")
    return found


def full(bench: Bench) -> str:
    bench.has_rules("Use make, never npm.\n")
    bench.retried("use the old table")
    bench.failed()
    return bench.prompt()


def test_the_fifteen_points_stand_in_their_order(bench: Bench) -> None:
    prompt, at = full(bench), 0
    for phrase in phrases():
        assert phrase in prompt[at:], phrase
        at = prompt.index(phrase, at) + len(phrase)


# What had happened, and phrases that are there and that are not.
@cases(r"""
deeds -> there -> absent
- -> attempt 1 of 3 | ## Before this attempt | Red before -> judged | Ruled out | answered the question
failed -> attempt 2 of 3 | Its changes are still in the working tree -> put aside
failed; failed; says {"clean_start": true} -> attempt 3 of 3 | Its changes were put aside | starts clean -> still in the working tree
failed; failed; says {"clean_start": true, "parked": "1a2b3c"} -> Take another way. What was put aside: `git show 1a2b3c`.\n
conflicts {"marked": ["a.txt"], "kept": ["uv.lock"], "own": "1a2b3c4d5e6f7"} -> attempt 1 of 3 | both must hold | in these files; resolve every one of them:\n- a.txt\n | `git show 1a2b3c4d5e6f:FILE`:\n- uv.lock\n | **conflict**: a.txt | still in the working tree -> Take another way
plan_says {"setup": null} -> checked in a fresh checkout. -> made ready
failed {"verdict": "no-op"} -> add a test that proves it
says {"failing_before": ["a::b: 1 != 2"]} -> each that passed must still pass:\n- a::b: 1 != 2\n
failed {"denials": ["Write: a.md"]} -> These were denied; find another way:\n- `Write: a.md`
failed {"failure": null, "restored": [], "denials": [], "notices": [], "handoff": {}} -> judged **failed** -> first failing check | put back | denied | next step: look
retried {"answer": "yes"} -> A person answered the question that was open: yes -> judged
failed; retried -> the URL -> judged | answered the question
has_rules {"text": "# R\n<!-- a\nb -->\n- Use make."} -> (AGENTS.md)\n# R | - Use make. -> <!-- | a\nb
has_rules {"text": "Use make."}; says {"reads_rulebook": true} -> stand in AGENTS.md. Follow them. -> Use make.
says {"beside": ["T7: Sort"]} -> Others work at the same time |   - T7: Sort\n
""")
def test_what_is_said_when(bench: Bench, deeds: str, there: str, absent: str) -> None:
    bench.does(deeds)
    prompt = bench.prompt().replace("\n", r"\n")
    assert [phrase for phrase in there.split(" | ") if phrase not in prompt] == []
    for phrase in filter(None, absent.split(" | ")):
        assert phrase not in prompt


def test_a_plan_in_a_folder_is_named_as_the_agent_has_it(tmp_path: Path) -> None:
    (tmp_path / "plans").mkdir()
    bench = Bench(tmp_path / "plans")
    bench.paths = bench.paths._replace(root=tmp_path)
    prompt = bench.prompt()
    assert "plans/prd.json and plans/progress.txt are copies to read" in prompt
    assert str(bench.paths.handoff()) in prompt and str(bench.paths.prd) not in prompt


@cases("""
allow       lifted
-           -
tests/x.py  ; except tests/x.py
""")
def test_what_a_task_may_change_is_no_longer_said_to_be_put_back(
    bench: Bench, allow: str, lifted: str
) -> None:
    task = {"title": "x", "checks": ["true"], "allow": allow.split()}
    bench.reads(json.dumps({"protect": ["tests/**", "conftest.py"], "tasks": [task]}))
    said = "existing files under these patterns is put back, and does not count"
    patterns = f"tests/**, conftest.py, .gitattributes, .gitmodules{lifted}."
    assert f"{said}: {patterns}" in bench.prompt()


# ---------------------------------------------------------------- nothing of a task is rendered

SYNTAX = "{{ 7*7 }} {% for x in y %} {# gone #} {{ task.id }} {% raw %} ${7*7} #{7*7}"


def test_template_syntax_in_texts_stays_as_it_is(bench: Bench) -> None:
    checks = [SYNTAX, f"echo {SYNTAX}"]
    task = {"id": SYNTAX, "title": SYNTAX, "steps": [SYNTAX], "checks": checks}
    top = {"project": SYNTAX, "description": SYNTAX, "checks": [SYNTAX]}
    bench.reads(json.dumps({**top, "tasks": [{**task, SYNTAX: SYNTAX}]}))
    bench.has_rules(SYNTAX)
    bench.recent, bench.red_before = [SYNTAX], [SYNTAX]
    bench.retried(SYNTAX)
    bench.failed(
        reason=SYNTAX, restored=[SYNTAX], denials=[SYNTAX], notices=[SYNTAX],
        failure={"name": SYNTAX, "tail": SYNTAX, "log": SYNTAX, "others": [SYNTAX]},
        handoff=dict.fromkeys(("learned", "ruled out", "next step"), SYNTAX),
    )  # fmt: skip
    prompt = bench.prompt()
    assert prompt.count(SYNTAX) >= 20
    assert "49" not in prompt.replace(str(bench.paths.root), "")


def test_what_strangers_wrote_is_cleaned(bench: Bench) -> None:
    hostile = "\x1b[31mred\x1b[0m \u202e\u2028\0 \ud800 end"
    bench.paths.rulebook.write_bytes(b"\xff\x1b[2J rules")
    bench.has(id=hostile, title=hostile, x=hostile)
    bench.retried(hostile)
    prompt = bench.prompt()
    assert all(c.isprintable() or c == "\n" for c in prompt)
    assert prompt.encode()


@cases(r"""
source                                        rules
<!-- a\n\nb -->\nUse make.\n<!-- c -->        Use make.\n
Use make.<!-- a --> a --> b\n                 Use make. a --> b\n
Use make.\nOPEN                               Use make.\nOPEN
<!-- a -->\nNo `<!--` in pages.\nUse make.\n  No `<!--` in pages.\nUse make.\n
OPEN-->\nUse make.\n                          Use make.\n
""")
def test_the_rules_are_what_stands_outside_of_comments(
    tmp_path: Path, source: str, rules: str
) -> None:
    many = "<!-- a\n" * 100_000
    (tmp_path / "AGENTS.md").write_text(source.replace("OPEN", many))
    with within(10):
        found = prompt.rules_of(tmp_path / "AGENTS.md")
    assert found == rules.replace("OPEN", many)


# ---------------------------------------------------------------- the bound


# MEGA is a megabyte of lines, MANY a list of 10,000.
@cases("""
deed
has {"x": "MEGA"}
has {"title": "MEGA"}
has_rules {"text": "MEGA"}
plan_says {"context": "MEGA"}
learned {"lines": MANY}
was_red {"checks": MANY}
failed {"failure": {"name": "n", "tail": "MEGA"}}
retried {"answer": "MEGA"}
has {"checks": ["echo MEGA"]}
failed {"restored": MANY}
""", of=2)  # fmt: skip
def test_whatever_is_huge_the_prompt_stays_within_its_bound_and_nothing_else_is_pushed_out(
    bench: Bench, deed: str
) -> None:
    many = json.dumps([f"é {number} {'x' * 200}" for number in range(10_000)])
    bench.does(deed.replace("MEGA", r"line é\n" * 150_000).replace("MANY", many))
    prompt = bench.prompt()
    assert len(prompt.encode()) <= BOUND == 48 * 1024
    kept = phrases("1", "4", "5", "6", "8", "9", "13", "14")
    assert [phrase for phrase in kept if phrase not in prompt] == []
    assert "next step:" in prompt
    assert prompt.rstrip().endswith("with every check green.")


# ---------------------------------------------------------------- templates of one's own


@cases(r"""
source                        line  said
one\n{% if x %}\nthree\n      3     endif
a\nb\n{{ task | nofilter }}   3     nofilter
one\n{{ nothing }}            2     'nothing' is undefined
one\ntwo\n{{ task.nothing }}  3     nothing
a\n{{ 1 + 'a' }}              2     int
""")
def test_an_error_in_a_template_names_file_and_line(
    bench: Bench, tmp_path: Path, source: str, line: str, said: str
) -> None:
    template = tmp_path / "PROMPT.md"
    template.write_text(source)
    with pytest.raises(BadInput, match=f"(?i)^{template}, line {line}: .*{said}"):
        bench.prompt(template)


def test_what_no_prompt_has_is_an_error_at_the_start(tmp_path: Path) -> None:
    template = tmp_path / "PROMPT.md"
    for source in "{{ nothing.x }}", "x{% if nothing %}{% endif %}":
        template.write_text(source)
        with pytest.raises(BadInput, match=f"^{template}: 'nothing' is unknown"):
            compile_prompt(template)


@cases(r"""
content  said
-        the rendered prompt is empty
\xff     cannot be read: expected a file in UTF-8
none     cannot be read: expected a file in UTF-8
""")
def test_a_template_that_is_none(
    bench: Bench, tmp_path: Path, content: str, said: str
) -> None:
    template = tmp_path / "PROMPT.md"
    if content != "none":
        template.write_bytes(content.encode().replace(rb"\xff", b"\xff"))
    with pytest.raises(BadInput, match=f"{template}.*{said}"):
        bench.prompt(template)


@cases(r"""
source                                           wanted
{{ task.id }}: {{ task.title }}                  T-1: Do it
feat: {{ task.title | lower }} ({{ iteration }})  feat: do it (7)
\n{{ task.title }}\n\n\nRefs: {{ task.id }}      Do it\n\nRefs: T-1
""")
def test_a_commit_message_from_a_template(source: str, wanted: str) -> None:
    values = {"task": {"id": "T-1", "title": "Do it"}, "iteration": 7}
    assert render_message(source, values, "prd.json: commit") == wanted


def test_an_answer_stands_in_the_next_prompt(repo: Repo) -> None:
    repo.plan(own("T1"))
    asks = 'said("question", "which colour? I propose red")'
    agent = repo.agent(f"{asks}; P('x').write_text(str(attempt))")
    code, summary, _ = repo.run(agent)
    assert (code, repo.verdicts()) == (4, ["T1 failed", "T1 failed"])
    assert "which colour?" in summary["tasks"][0]["reason"]
    repo.ralph("retry", "T1", "--answer", "blue, please")
    asked = 'the question that was open ("which colour? I propose red"): blue, please'
    assert asked in repo.ralph("prompt").stdout
    repo.run(repo.agent("(OUT / 'p').write_text(prompt)"))
    assert asked in repo.read("../p")


def test_templates_of_ones_own(repo: Repo) -> None:
    assert repo.ralph("init", "--eject").returncode == 0
    ejected = repo.read("PROMPT.md")
    mine = "Mine: {{ task.title }} / {{ task_json }}\n" + ejected
    repo.write("PROMPT.md", mine)
    repo.commit("prompt")
    message = "feat({{ task.id }}): {{ task.title }}"
    first = own("T1") | {"title": "{{ 7 * 7 }}"}
    repo.plan(first, own("T2"), prompt="PROMPT.md", commit=message)
    deeds = "(OUT / task).write_text(prompt); P('PROMPT.md').write_text('hacked')"
    assert repo.run(repo.agent(f"{MAKES}\n{deeds}"))[0] == 0
    assert repo.read("../T1").startswith("Mine: {{ 7 * 7 }} / {")
    assert repo.read("../T2").startswith("Mine: task 2 / {")
    assert repo.read("PROMPT.md") == mine
    assert repo.commits() == ["feat(T2): task 2", "feat(T1): {{ 7 * 7 }}"]


@cases("""
key     value
commit  {{ task.nope }}
commit  {{ task.raw.nope }}
prompt  NOPE.md
""")
def test_a_wrong_template_is_found_before_anything_is_paid_for(
    repo: Repo, key: str, value: str
) -> None:
    top: dict[str, Any] = {key: value}
    repo.plan({**own("T1"), "nope": "only here"}, own("T2"), **top)
    code, _, printed = repo.run(repo.agent(MAKES))
    assert code == 2 and "nope" in printed.lower()
    assert not (repo.path / "progress.txt").exists()
