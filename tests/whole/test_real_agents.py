"""Whole runs with the agents' own programs against a scripted model on loopback: `make
test-agents`.

No key, no network; an environment built from nothing, so that no setting of this
machine counts. Plain `pytest` leaves these tests out; an agent that is not installed is
skipped.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from _ralph.agents import stream
from _ralph.model import HANDOFF
from tests import install_agents
from tests.conftest import ROOT, Repo, cases
from tests.model_server import (
    Fail,
    Hang,
    ModelServer,
    Page,
    Run,
    Say,
    Step,
    Write,
)
from tests.scripts import of_verdicts
from tests.test_bwrap import changed

pytestmark = pytest.mark.agents
PLAN = """{
  "project": "MyApp",
  "branchName": "ralph/hello",
  "description": "A greeting",
  "userStories": [
    {
      "id": "US-001",
      "title": "Create hello.txt",
      "description": "As a user, I want a greeting.",
      "acceptanceCriteria": ["hello.txt exists", "Typecheck passes"],
      "priority": 1,
      "passes": false,
      "notes": ""
    }
  ]
}
"""
CHECK = ("--check", "test -f hello.txt", "--starts-red")


# ---------------------------------------------------------------- the agents


CODEX = """
model = "gpt-5"
model_provider = "scripted"
check_for_update_on_startup = false
[analytics]
enabled = false
[model_providers.scripted]
name = "scripted"
base_url = "{URL}/v1"
env_key = "SCRIPTED_KEY"
wire_api = "responses"
"""
GEMINI = """{
  "security": {"auth": {"selectedType": "gemini-api-key"}},
  "privacy": {"usageStatisticsEnabled": false},
  "general": {"enableAutoUpdate": false, "enableAutoUpdateNotification": false}
}"""
OPENCODE = """{
  "model": "scripted/gpt-4o", "small_model": "scripted/gpt-4o", "autoupdate": false, "share": "disabled",
  "permission": {"edit": "allow", "bash": "allow", "webfetch": "deny"},
  "provider": {"scripted": {
    "npm": "@ai-sdk/openai-compatible", "name": "scripted",
    "options": {"baseURL": "{URL}/v1", "apiKey": "sk-test"},
    "models": {"gpt-4o": {
      "name": "gpt-4o", "limit": {"context": 128000, "output": 16000}, "cost": {"input": 2.5, "output": 10}
    }}
  }}
}"""
PI = """{"providers": {"scripted": {
  "baseUrl": "{URL}/v1", "api": "openai-completions", "apiKey": "sk-test",
  "models": [{
    "id": "gpt-4o", "name": "gpt-4o", "reasoning": false, "input": ["text"],
    "contextWindow": 128000, "maxTokens": 16000,
    "cost": {"input": 2.5, "output": 10, "cacheRead": 1.25, "cacheWrite": 0}
  }]
}}}"""
"""Two are told prices by their settings, in dollars for a million tokens."""
ENV = {
    "claude": "ANTHROPIC_BASE_URL={URL} ANTHROPIC_API_KEY=sk-test IS_SANDBOX=1 DISABLE_AUTOUPDATER=1 "
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC=1 DISABLE_TELEMETRY=1",
    "codex": "SCRIPTED_KEY=sk-test TMPDIR=HERE",
    "gemini": "GEMINI_API_KEY=sk-test GOOGLE_GEMINI_BASE_URL={URL} GEMINI_CLI_TRUST_WORKSPACE=true",
    "opencode": "OPENCODE_DISABLE_AUTOUPDATE=1 OPENCODE_DISABLE_MODELS_FETCH=1 "
    "OPENCODE_DISABLE_LSP_DOWNLOAD=1 OPENCODE_DISABLE_DEFAULT_PLUGINS=1",
    "pi": "PI_SKIP_VERSION_CHECK=1 PI_OFFLINE=1 PI_TELEMETRY=0",
    "aider": "OPENAI_API_KEY=sk-test OPENAI_API_BASE={URL}/v1 LITELLM_LOCAL_MODEL_COST_MAP=True",
}
FILES = {
    "codex": (".codex/config.toml", CODEX),
    "gemini": (".gemini/settings.json", GEMINI),
    "pi": (".pi/agent/models.json", PI),
}


def environment(words: str) -> dict[str, str]:
    return dict(word.split("=", 1) for word in words.split())


def settings(name: str, home: Path, url: str) -> dict[str, str]:
    """Points an agent at the model: writes its files below HOME; its environment."""
    if name in FILES:
        file, content = FILES[name]
        write(home / file, content.replace("{URL}", url))
    words = ENV[name].replace("{URL}", url)
    if name == "codex":  # its sandbox is not set up from a HOME below TMPDIR
        (home.parent / "tmp").mkdir(exist_ok=True)
        words = words.replace("HERE", str(home.parent / "tmp"))
    env = environment(words)
    if name == "opencode":
        env["OPENCODE_CONFIG_CONTENT"] = OPENCODE.replace("{URL}", url)
    if name == "aider":
        # It fetches a list of prices at every start, unless it has one of today
        prices = "model_prices_and_context_window"
        there = f"lib/python3*/site-packages/litellm/{prices}_backup.json"
        source = next(install_agents.folder("aider").glob(there))
        write(home / f".aider/caches/{prices}.json", source.read_text("utf-8"))
    return env


CLIS = {
    "claude": "claude",
    "codex": "codex",
    "gemini": "gemini -m gemini-2.5-pro",
    "opencode": "opencode",
    "pi": "pi --provider scripted --model gpt-4o",
    "aider": "aider --model openai/gpt-4o --edit-format diff --map-tokens 0",
}
DOLLARS = ("claude", "opencode", "pi", "aider")
"""Those that report dollars."""


def write(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content, "utf-8")


# ---------------------------------------------------------------- one run


@dataclass
class Night:
    """One run of ralph with a real agent, and what it left."""

    repo: Repo
    model: ModelServer
    code: int
    summary: dict[str, Any]
    printed: str
    seconds: float

    @property
    def verdict(self) -> dict[str, Any]:
        (only,) = self.repo.records("verdict")
        return only

    @property
    def ended(self) -> str:
        """The exit status and the only verdict."""
        return f"{self.code} {self.verdict['verdict']}"

    @property
    def stopped(self) -> str:
        return str(self.summary["reason"])


Runner = Callable[..., Night]


def needs(*names: str) -> None:
    for name in names:
        if not install_agents.is_installed(name):
            pytest.skip(f"{name} is not installed: make test-agents")


def surroundings(name: str, repo: Repo, url: str) -> dict[str, str]:
    """The environment in which an agent talks to the model and to nobody else."""
    home = repo.outside / "home"
    path = f"{install_agents.programs(name)}:{repo.env['PATH']}"
    env = {"HOME": str(home), "NO_COLOR": "1", "PATH": path}
    return {**env, **settings(name, home, url)}


@pytest.fixture
def run(repo: Repo) -> Iterator[Runner]:
    """Runs ralph once; afterwards nothing that it started may be alive."""

    def runner(
        name: str,
        steps: Sequence[Step],
        *words: str,
        more: str = "",
        codex: Sequence[Step] = (),
        **env: str,
    ) -> Night:
        repo.write("prd.json", PLAN)
        agents = [name, "codex"] if codex else [name]
        needs(*agents)
        with ModelServer(steps, codex) as model:
            for one in agents:
                repo.env |= surroundings(one, repo, model.url)
            repo.env |= env
            begun = time.monotonic()
            agent = f"{CLIS[name]} {more}"
            code, summary, printed = repo.run(agent, *CHECK, *words, timeout=180)
        took = time.monotonic() - begun
        return Night(repo, model, code, summary, printed, took)

    yield runner
    assert repo.alive() == []


def hello(repo: Repo) -> Write:
    return Write(repo.workspace / "hello.txt", "hello\n")


def limit_of(name: str) -> Fail:
    """How each one's provider says that the limit ends in an hour, where the agent
    passes it on."""
    at = int(time.time()) + 3600
    if name == "claude":
        head = "anthropic-ratelimit-unified"
        headers = {f"{head}-status": "rejected", f"{head}-reset": str(at)}
        return Fail(429, {**headers, f"{head}-representative-claim": "five_hour"})
    if name == "codex":
        error = {"type": "usage_limit_reached", "plan_type": "plus", "resets_at": at}
        return Fail(429, error=error)
    return Fail(429, LATER)


def events(repo: Repo) -> list[dict[str, Any]]:
    """What the agent of the first attempt said."""
    said = repo.read(".ralph/log/0001-US-001.out")
    return [json.loads(line) for line in said.splitlines()]


def need_namespaces() -> None:
    """Skip where the sandboxes of the agents cannot work: in many containers, for
    example."""
    probe = "bwrap --unshare-all --ro-bind / / --proc /proc --dev /dev true"
    if shutil.which("bwrap") is None or shutil.which("socat") is None:
        pytest.skip("bwrap or socat is not on PATH")
    done = subprocess.run(probe.split(), capture_output=True, text=True)
    if done.returncode != 0:
        pytest.skip(f"bwrap cannot make namespaces here: {done.stderr.strip()}")


# ---------------------------------------------------------------- the cases

every_agent = pytest.mark.parametrize("name", CLIS)


@every_agent
def test_a_task_passes(name: str, repo: Repo, run: Runner) -> None:
    night = run(name, [hello(repo), Say("done")], "--full-permissions")
    assert night.code == 0, night.printed
    assert repo.landed("hello.txt", "ralph/hello") == "hello\n"
    assert repo.read("prd.json") == PLAN.replace('"passes": false', '"passes": true')
    assert repo.commits("ralph/hello") == ["US-001: Create hello.txt"]
    assert repo.git("status", "--porcelain") == "?? prd.json\n?? progress.txt\n"
    tokens = night.summary["tokens"]
    assert tokens["input"] > 0 and tokens["output"] > 0
    if name in DOLLARS:
        assert night.verdict["usd"] == pytest.approx(night.summary["usd"])
        assert night.verdict["usd"] > 0


@every_agent
def test_what_it_leaves_as_a_habit_is_no_part_of_the_work_and_no_notice(
    name: str, repo: Repo, run: Runner
) -> None:
    repo.write(f".{name}/agent/tester.md", "---\ndescription: tests\n---\nTest it.\n")
    repo.commit("settings of the project's own")
    other = Write(repo.workspace / "other.txt", "x\n")
    more = "--map-tokens 1024" if name == "aider" else ""
    night = run(name, [other, Say("done")], "--full-permissions", "--once", more=more)
    assert night.ended == "3 failed", night.printed
    verdict = night.verdict
    assert "notices" not in verdict and "restored" not in verdict
    left = repo.git("diff", "--name-only", verdict["base"], verdict["left"])
    assert left == "other.txt\n"


@pytest.mark.parametrize("name", ["codex", "gemini", "aider"])
def test_a_task_passes_without_full_permissions(
    name: str, repo: Repo, run: Runner
) -> None:
    if name == "codex":
        need_namespaces()
    night = run(name, [hello(repo), Say("done")])
    assert night.code == 0, night.printed
    assert repo.landed("hello.txt", "ralph/hello") == "hello\n"


@pytest.mark.parametrize("name", ["claude", "codex"])
def test_the_handoff_is_written_with_its_own_tool_and_permissions(
    name: str, repo: Repo, run: Runner
) -> None:
    """Below `.git`, Claude asks a person first, and there is none."""
    need_namespaces()
    handoff = Write(repo.workspace / HANDOFF, "learned: use make\n")
    night = run(name, [hello(repo), handoff, Say("Made it.")])
    assert night.ended == "0 passed"
    assert night.verdict["handoff"] == {"learned": "use make"}
    names = repo.git("ls-tree", "-r", "--name-only", "ralph/hello")
    assert names == "a.txt\nhello.txt\n"


# What the provider does, how the run ends, and its words. OpenCode and Pi wait for an
# hour in silence: that a limit is none of theirs is told from the deadline; Aider tries
# a page for a minute.
FAILURES = """
what                               step      ended          words
a limit                            Fail 429  75 limited     --agent-timeout 40s
a refused key                      Fail 401  5 unavailable  -
no such model, or a wrong address  Page 404  5 unavailable  -
a page of a proxy                  Page 200  75 limited     --max-wait 0
no answer                          Fail 503  75 limited     -v --agent-timeout 60s
"""


# Who does not tell ralph of it.
SILENT = {"a page of a proxy": "aider", "no answer": "gemini opencode"}
LATER = {"retry-after": "3600"}


@cases(FAILURES)
@every_agent
def test_a_provider_that_fails_costs_no_attempt(
    name: str, what: str, step: str, ended: str, words: str, run: Runner
) -> None:
    if name in SILENT.get(what, "").split():
        pytest.skip(f"{name} does not tell it")
    kind, status = step.split()
    headers = LATER if what == "a limit" else {}
    fails = Page(int(status)) if kind == "Page" else Fail(int(status), headers)
    night = run(name, [fails], "--full-permissions", "--once", *words.split())
    assert night.ended == ended, night.printed
    # `failed` once an attempt has counted
    assert night.summary["tasks"][0]["state"] == "open" and night.model.asked
    if what == "a refused key" and name in ("claude", "codex"):
        assert len(night.model.asked) < 5  # of the ten that they try
    told = "the provider does not answer, " in night.printed
    assert told or what != "no answer"


@every_agent
def test_a_task_passes_inside_the_sandbox(name: str, repo: Repo, run: Runner) -> None:
    need_namespaces()
    if install_agents.folder(name).resolve().is_relative_to("/tmp"):
        pytest.skip(
            "it is installed below /tmp, which is another one inside the sandbox"
        )
    # its settings are below HOME, where a person would name them
    own = ".claude .claude.json .codex .gemini .config .local .pi"
    words = (*changed(repo, "writable", own), "--full-permissions")
    night = run(name, [hello(repo), Say("done")], *words)
    assert night.code == 0, night.printed
    assert repo.landed("hello.txt", "ralph/hello") == "hello\n"
    assert night.summary["tokens"]["input"] > 0


@pytest.mark.parametrize("name", ["opencode", "pi"])
def test_without_permissions_of_its_own_it_is_refused(
    name: str, repo: Repo, run: Runner
) -> None:
    night = run(name, [Say("never asked")])
    assert night.code == 5 and not night.model.asked
    assert "--full-permissions" in night.stopped


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_the_end_of_a_limit_is_read_where_it_is_told(name: str, run: Runner) -> None:
    env = SUBSCRIPTION if name == "claude" else {}
    words = ("--full-permissions", "--max-wait", "30m")
    night = run(name, [limit_of(name)], *words, **env)
    assert night.ended == "75 limited", night.printed
    said = r"the provider's limit ends in (\d+) min.*, more than --max-wait allows"
    left = re.search(said, night.stopped)
    assert left and 55 <= int(left[1]) <= 60, night.stopped


# OpenCode's key stands in its settings, and is refused
NO_KEY = {
    "claude": "ANTHROPIC_API_KEY=",
    "codex": "SCRIPTED_KEY=",
    "gemini": "GEMINI_API_KEY=",
    "opencode": "",
    "pi": "PI_CODING_AGENT_DIR=/nowhere",
    "aider": "OPENAI_API_KEY=",
}


SUBSCRIPTION = environment(
    "ANTHROPIC_API_KEY= CLAUDE_CODE_OAUTH_TOKEN=sk-ant-oat01-test"
)


def probe(name: str, repo: Repo, step: Step, **env: str) -> str:
    """The last finding of `ralph doctor --probe`."""
    needs(name)
    with ModelServer([step]) as model:
        given = {**surroundings(name, repo, model.url), **env}
        path, home = given.pop("PATH"), given.pop("HOME")
        # in the plan, as cron has no such variables
        row = {"like": name, "env": given}
        repo.plan("true", agents={name: row})
        words = ("doctor", "-v", "--full-permissions", "--probe", "--agent")
        done = repo.ralph(*words, CLIS[name], timeout=180, PATH=path, HOME=home)
    assert repo.alive() == [] and repo.git("status", "--porcelain") == "?? prd.json\n"
    (found,) = re.findall("^.*, as cron starts it.*$", done.stdout, re.MULTILINE)
    return str(found)


@every_agent
def test_doctor_probes_it(name: str, repo: Repo) -> None:
    said = probe(name, repo, Say("ok"))
    assert said.startswith("ok "), said
    assert re.search(r"\$\d|[1-9][\d.]*k tokens$", said), said
    assert (" $0." in said) == (name in DOLLARS)


@every_agent
def test_it_plans(name: str, repo: Repo) -> None:
    needs(name)
    task = {"id": "US-001", "title": "greet", "checks": ["test -f hello"]}
    task["acceptanceCriteria"] = ["It says hello"]
    answer = {"questions": [], "description": "It greets.", "userStories": [task]}
    repo.write("../brief.md", "A program that greets.")
    with ModelServer([Say(f"I looked.\n{json.dumps(answer)}")]) as model:
        env: Any = surroundings(name, repo, model.url)
        words = ("plan", "../brief.md", "--planner", CLIS[name])
        done = repo.ralph(*words, timeout=180, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    plan = json.loads(repo.read("prd.json"))
    assert plan["userStories"] == [{**task, "passes": False}]
    assert repo.read("a.txt") == "a\n" and repo.alive() == []


@every_agent
def test_doctor_finds_that_nobody_is_logged_in(name: str, repo: Repo) -> None:
    said = probe(name, repo, Fail(401), **environment(NO_KEY[name]))
    assert said.startswith("error "), said


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_doctor_finds_a_limit(name: str, repo: Repo) -> None:
    env = SUBSCRIPTION if name == "claude" else {}
    said = probe(name, repo, limit_of(name), **env)
    assert said.startswith("warning ") and "; a run waits until then" in said, said


def test_a_stop_hook_that_never_lets_claude_end_blocks_the_task(
    repo: Repo, run: Runner
) -> None:
    hook = {"type": "command", "command": "echo 'run the tests first' >&2; exit 2"}
    hooks = {"hooks": {"Stop": [{"hooks": [hook]}]}}
    repo.write(".claude/settings.json", json.dumps(hooks))
    repo.commit("a Stop hook")
    # Its own limit is nine times in a row, without a tool in between
    words = ("--full-permissions", "--once")
    night = run("claude", [Say("done")], *words, CLAUDE_CODE_STOP_HOOK_BLOCK_CAP="99")
    assert "run the tests first" in night.verdict["blocked"], night.printed
    assert 10 <= len(night.model.asked) < 20


@every_agent
def test_a_model_that_never_answers(name: str, run: Runner) -> None:
    words = ("--full-permissions", "--once", "--agent-timeout", "30s")
    night = run(name, [Hang()], *words)
    assert night.ended in ("75 limited", "3 timed-out"), night.printed
    assert night.model.asked and night.seconds >= 20


@every_agent
def test_what_it_leaves_running_is_ended(name: str, repo: Repo, run: Runner) -> None:
    leave = f"nohup sleep 600 > /dev/null 2>&1 & echo $! > {repo.outside}/pid"
    steps: list[Step] = [Run(leave), hello(repo), Say("done")]
    more = ""
    if name == "aider":  # it runs no command of the model's, but this of the person's
        steps, more = [hello(repo)], f"--auto-test --test-cmd '{leave}'"
    night = run(name, steps, "--full-permissions", more=more)
    assert night.code == 0, night.printed
    assert not psutil.pid_exists(int(repo.read("../pid")))


# ---------------------------------------------------------------- Claude Code and Codex


def test_codex_takes_over_while_claude_is_limited(repo: Repo, run: Runner) -> None:
    words = ("--fallback", "codex", "--full-permissions")
    codex = [hello(repo), Say("done")]
    night = run("claude", [limit_of("claude")], *words, codex=codex, **SUBSCRIPTION)
    assert night.code == 0 and not repo.records("wait"), night.printed
    assert of_verdicts(repo, "agent") == ["claude", "codex"]
    assert of_verdicts(repo, "verdict") == ["limited", "passed"]
    assert night.seconds < 60


# ---------------------------------------------------------------- Claude Code alone


def test_claude_finds_nothing_wrong_with_the_plugin_and_installs_it(
    repo: Repo,
) -> None:
    needs("claude")
    copied = repo.outside / "plugin"
    for name in (".claude-plugin", "skills"):
        shutil.copytree(ROOT / name, copied / name)
    env = surroundings("claude", repo, "http://127.0.0.1:9")
    for words in (
        f"validate --strict {copied}",
        f"validate --strict {copied}/.claude-plugin/plugin.json",
        f"validate --strict {copied}/skills",
        f"marketplace add {copied}",
        "install ralph@ralph",
    ):
        repo.sh(f"claude plugin {words}", **env)
    details = repo.sh("claude plugin details ralph", **env)
    assert "Skills (3)  morning, night, plan" in details
    (copied / "skills/night/SKILL.md").write_text("---\nname: [\n---\n")
    repo.sh(f"! claude plugin validate --strict {copied}/skills", **env)


def test_claude_keeps_its_dollar_limit_and_names_its_session(
    repo: Repo, run: Runner
) -> None:
    words = ("--full-permissions", "--max-usd", "1")
    night = run("claude", [hello(repo), Say("done")], *words)
    assert night.code == 0 and 0 < night.summary["usd"] < 1, night.printed
    assert events(repo)[0]["session_id"] == night.verdict["session"]


@pytest.mark.parametrize("ends", [False, True])
def test_the_result_counts_of_a_claude_that_waits_for_a_task_of_its_own(
    repo: Repo, run: Runner, monkeypatch: pytest.MonkeyPatch, ends: bool
) -> None:
    """It says its result, and exits when its background task has ended; one that never
    does is ended."""
    monkeypatch.setattr(stream, "BACKGROUND", 20.0)
    sleeps = Run("sleep 3" if ends else "sleep 600", background=True)
    night = run("claude", [hello(repo), sleeps, Say("done")], "--full-permissions")
    assert night.ended == "0 passed", night.printed
    results = [event for event in events(repo) if event["type"] == "result"]
    took = night.verdict["seconds"]
    if ends:
        assert len(results) == 2 and took < 60
    else:
        assert len(results) == 1 and 20 < took < 60
    assert night.verdict["usd"] == pytest.approx(results[-1]["total_cost_usd"])


def test_claude_runs_the_check_inside_its_own_sandbox(repo: Repo, run: Runner) -> None:
    need_namespaces()
    outside = repo.outside / "outside.txt"
    look = "test -f hello.txt && echo green > seen.txt"
    steps = [hello(repo), Run(look), Run(f"touch {outside}"), Say("done")]
    night = run("claude", steps)
    assert night.code == 0 and "denials" not in night.verdict, night.printed
    assert repo.landed("seen.txt", "ralph/hello") == "green\n"
    assert not outside.exists()


@pytest.mark.skipif(
    sys.platform != "linux", reason="elsewhere its sandbox comes with the system"
)
def test_claude_without_its_sandbox_is_refused(repo: Repo, run: Runner) -> None:
    tools = repo.outside / "tools"
    tools.mkdir()
    for program in ("git", "node", "sh"):
        if found := shutil.which(program):
            (tools / program).symlink_to(found)
    repo.env["PATH"] = str(tools)
    night = run("claude", [Say("never asked")])
    assert night.code == 5 and not night.model.asked
    assert "its own sandbox needs bwrap and socat" in night.stopped
    assert "--full-permissions" in night.stopped
