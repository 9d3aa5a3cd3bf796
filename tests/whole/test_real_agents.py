"""Whole runs with the agents' own programs against a scripted model on loopback: `make
test-agents`.

No key, no network; an environment built from nothing, so that no setting of this
machine counts. Plain `pytest` leaves these tests out; an agent that is not installed is
skipped.
"""

from __future__ import annotations

import json
import os
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
from tests.conftest import ROOT, Repo
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


def settings(name: str, home: Path, url: str) -> dict[str, str]:
    """Points an agent at the model: writes its files below HOME; its environment."""
    if name in FILES:
        file, content = FILES[name]
        write(home / file, content.replace("{URL}", url))
    words = ENV[name].replace("{URL}", url)
    if name == "codex":  # its sandbox is not set up from a HOME below TMPDIR
        (home.parent / "tmp").mkdir(exist_ok=True)
        words = words.replace("HERE", str(home.parent / "tmp"))
    env = dict(word.split("=", 1) for word in words.split())
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
    def stopped(self) -> str:
        return str(self.summary["reason"])


Runner = Callable[..., Night]


@pytest.fixture
def run(repo: Repo) -> Iterator[Runner]:
    """Runs ralph once; afterwards nothing that it started may be alive."""
    ran: list[Night] = []

    def runner(
        name: str,
        steps: Sequence[Step],
        *words: str,
        more: str = "",
        codex: Sequence[Step] = (),
        **env: str,
    ) -> Night:
        home = repo.outside / "home"
        repo.write("prd.json", PLAN)
        with ModelServer(steps, codex) as model:
            repo.env |= {"HOME": str(home), "NO_COLOR": "1"}
            for one in (name, *(["codex"] if codex else [])):
                if not install_agents.is_installed(one):
                    pytest.skip(f"{one} is not installed: make test-agents")
                repo.env["PATH"] = f"{install_agents.programs(one)}:{repo.env['PATH']}"
                repo.env |= settings(one, home, model.url)
            repo.env |= env
            begun = time.monotonic()
            agent = f"{CLIS[name]} {more}"
            code, summary, printed = repo.run(agent, *CHECK, *words, timeout=180)
            ran.append(
                Night(repo, model, code, summary, printed, time.monotonic() - begun)
            )
        return ran[-1]

    yield runner
    assert ran == [] or repo.alive() == []


def hello(repo: Repo) -> Write:
    return Write(repo.workspace / "hello.txt", "hello\n")


IN_AN_HOUR = Fail(429, {"retry-after": "3600"})


def limit_of(name: str) -> Fail:
    """How each one's provider says that the limit ends in an hour, where the agent
    passes it on."""
    at = int(time.time()) + 3600
    if name == "claude":
        window = {
            "status": "rejected",
            "reset": str(at),
            "representative-claim": "five_hour",
        }
        return Fail(
            429,
            {
                f"anthropic-ratelimit-unified-{key}": value
                for key, value in window.items()
            },
        )
    if name == "codex":
        return Fail(
            429,
            error={"type": "usage_limit_reached", "plan_type": "plus", "resets_at": at},
        )
    return IN_AN_HOUR


def need_namespaces() -> None:
    """Skip where the sandboxes of the agents cannot work: in many containers, for
    example."""
    if shutil.which("bwrap") is None:
        pytest.skip("bwrap is not on PATH")
    words = [
        "bwrap",
        "--unshare-all",
        "--ro-bind",
        "/",
        "/",
        "--proc",
        "/proc",
        "--dev",
        "/dev",
        "true",
    ]
    probe = subprocess.run(words, capture_output=True, text=True)
    if probe.returncode != 0:
        pytest.skip(f"bwrap cannot make namespaces here: {probe.stderr.strip()}")


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
    assert (
        night.summary["tokens"]["input"] > 0 and night.summary["tokens"]["output"] > 0
    )
    if name in DOLLARS:
        assert night.summary["usd"] > 0
        assert night.verdict["usd"] == pytest.approx(night.summary["usd"])


@every_agent
def test_what_it_leaves_as_a_habit_is_no_part_of_the_work_and_no_notice(
    name: str, repo: Repo, run: Runner
) -> None:
    repo.write(f".{name}/agent/tester.md", "---\ndescription: tests\n---\nTest it.\n")
    repo.commit("settings of the project's own")
    other = Write(repo.workspace / "other.txt", "x\n")
    more = "--map-tokens 1024" if name == "aider" else ""
    night = run(name, [other, Say("done")], "--full-permissions", "--once", more=more)
    assert (night.code, night.verdict["verdict"]) == (3, "failed"), night.printed
    assert not {"notices", "restored"} & night.verdict.keys()
    left = night.verdict["left"]
    assert repo.git("diff", "--name-only", night.verdict["base"], left) == "other.txt\n"


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
    if name == "claude" and shutil.which("socat") is None:
        pytest.skip("socat is not on PATH")
    handoff = Write(repo.workspace / HANDOFF, "learned: use make\n")
    night = run(name, [hello(repo), handoff, Say("Made it.")])
    assert (night.code, night.verdict["verdict"]) == (0, "passed")
    assert night.verdict["handoff"] == {"learned": "use make"}
    assert repo.git("ls-tree", "-r", "--name-only", "ralph/hello").split() == [
        "a.txt",
        "hello.txt",
    ]


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


@every_agent
def test_a_limit_is_not_an_attempt(name: str, repo: Repo, run: Runner) -> None:
    # OpenCode and Pi wait for the hour in silence: that is told from the deadline.
    night = run(
        name, [IN_AN_HOUR], "--full-permissions", "--once", "--agent-timeout", "40s"
    )
    assert (night.code, night.verdict["verdict"]) == (75, "limited"), night.printed
    assert (
        night.summary["tasks"][0]["state"] == "open"
    )  # `failed` once an attempt has counted
    assert night.model.asked


@pytest.mark.parametrize("name", ["claude", "codex", "gemini"])
def test_the_end_of_a_limit_is_read_where_it_is_told(
    name: str, repo: Repo, run: Runner
) -> None:
    env = SUBSCRIPTION if name == "claude" else {}
    night = run(
        name, [limit_of(name)], "--full-permissions", "--max-wait", "30m", **env
    )
    assert (night.code, night.verdict["verdict"]) == (75, "limited"), night.printed
    left = re.search(
        r"the provider's limit ends in (\d+) min.*, more than --max-wait allows",
        night.stopped,
    )
    assert left and 55 <= int(left[1]) <= 60, night.stopped


@every_agent
def test_a_refused_key_ends_the_run(name: str, repo: Repo, run: Runner) -> None:
    night = run(name, [Fail(401)], "--full-permissions", "--once")
    assert (night.code, night.verdict["verdict"]) == (5, "unavailable"), night.printed
    assert (
        night.summary["tasks"][0]["state"] == "open"
    )  # `failed` once an attempt has counted
    assert (
        name not in ("claude", "codex") or len(night.model.asked) < 5
    )  # of the ten that they try


NO_KEY = {
    "claude": {"ANTHROPIC_API_KEY": ""},
    "codex": {"SCRIPTED_KEY": ""},
    "gemini": {"GEMINI_API_KEY": ""},
    "opencode": {},  # its key stands in its settings, and is refused
    "pi": {"PI_CODING_AGENT_DIR": "/nowhere"},
    "aider": {"OPENAI_API_KEY": ""},
}


@every_agent
def test_no_such_model_and_a_wrong_address_end_the_run(
    name: str, repo: Repo, run: Runner
) -> None:
    night = run(name, [Page(404)], "--full-permissions")
    assert (night.code, night.verdict["verdict"]) == (5, "unavailable"), night.printed


@pytest.mark.parametrize(
    "name", ["claude", "codex", "gemini", "opencode", "pi"]
)  # Aider tries for a minute
def test_a_page_of_a_proxy_is_no_attempt(name: str, repo: Repo, run: Runner) -> None:
    night = run(name, [Page(200)], "--full-permissions", "--max-wait", "0")
    assert (night.code, night.verdict["verdict"]) == (75, "limited"), night.printed


@pytest.mark.parametrize(
    "name", ["claude", "codex", "pi", "aider"]
)  # the others do not print it
def test_that_the_provider_does_not_answer_is_shown(
    name: str, repo: Repo, run: Runner
) -> None:
    # until they have started, asked and tried again; Aider starts in up to 20 s
    limit = "60s" if name == "aider" else "40s"
    words = ("--full-permissions", "--once", "-v", "--agent-timeout", limit)
    night = run(name, [Fail(503)], *words)
    assert (night.code, night.verdict["verdict"]) == (75, "limited"), night.printed
    assert "the provider does not answer, " in night.printed


SUBSCRIPTION = {"ANTHROPIC_API_KEY": "", "CLAUDE_CODE_OAUTH_TOKEN": "sk-ant-oat01-test"}


def probe(name: str, repo: Repo, step: Step, **env: str) -> str:
    """The last finding of `ralph doctor --probe`."""
    if not install_agents.is_installed(name):
        pytest.skip(f"{name} is not installed: make test-agents")
    home = repo.outside / "home"
    with ModelServer([step]) as model:
        given = {"NO_COLOR": "1", **settings(name, home, model.url), **env}
        repo.plan(
            {"checks": ["true"]}, agents={name: {"like": name, "env": given}}
        )  # as cron has no such variables
        path = f"{install_agents.programs(name)}:{repo.env['PATH']}"
        words = ("doctor", "-v", "--full-permissions", "--probe", "--agent")
        done = repo.ralph(*words, CLIS[name], timeout=180, PATH=path, HOME=str(home))
    assert repo.alive() == [] and repo.git("status", "--porcelain") == "?? prd.json\n"
    return next(
        line for line in done.stdout.splitlines() if ", as cron starts it" in line
    )


@every_agent
def test_doctor_probes_it(name: str, repo: Repo) -> None:
    said = probe(name, repo, Say("ok"))
    assert said.startswith("ok ") and re.search(r"\$\d|[1-9][\d.]*k tokens$", said), (
        said
    )
    assert (" $0." in said) == (name in DOLLARS)


@every_agent
def test_it_plans(name: str, repo: Repo) -> None:
    if not install_agents.is_installed(name):
        pytest.skip(f"{name} is not installed: make test-agents")
    home = repo.outside / "home"
    task = {
        "id": "US-001",
        "title": "greet",
        "acceptanceCriteria": ["It says hello"],
        "checks": ["test -f hello"],
    }
    answer = {"questions": [], "description": "It greets.", "userStories": [task]}
    repo.write("../brief.md", "A program that greets.")
    with ModelServer([Say(f"I looked.\n{json.dumps(answer)}")]) as model:
        path = f"{install_agents.programs(name)}:{repo.env['PATH']}"
        env = {
            "HOME": str(home),
            "NO_COLOR": "1",
            **settings(name, home, model.url),
            "PATH": path,
        }
        done = repo.ralph(
            "plan", "../brief.md", "--planner", CLIS[name], timeout=180, **env
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(repo.read("prd.json"))["userStories"] == [
        {**task, "passes": False}
    ]
    assert repo.read("a.txt") == "a\n" and repo.alive() == []


@every_agent
def test_doctor_finds_that_nobody_is_logged_in(name: str, repo: Repo) -> None:
    said = probe(name, repo, Fail(401), **NO_KEY[name])
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
    repo.write(
        ".claude/settings.json", json.dumps({"hooks": {"Stop": [{"hooks": [hook]}]}})
    )
    repo.commit("a Stop hook")
    # Its own limit is nine times in a row, without a tool in between
    words = ("--full-permissions", "--once")
    night = run("claude", [Say("done")], *words, CLAUDE_CODE_STOP_HOOK_BLOCK_CAP="99")
    assert "run the tests first" in night.verdict["blocked"], night.printed
    assert 10 <= len(night.model.asked) < 20


@every_agent
def test_a_model_that_never_answers(name: str, repo: Repo, run: Runner) -> None:
    night = run(
        name, [Hang()], "--full-permissions", "--once", "--agent-timeout", "20s"
    )
    assert night.verdict["verdict"] in ("limited", "timed-out"), night.printed
    assert night.code == (75 if night.verdict["verdict"] == "limited" else 3)
    assert night.model.asked
    assert night.seconds >= 20


@every_agent
def test_what_it_leaves_running_is_ended(name: str, repo: Repo, run: Runner) -> None:
    leave = f"nohup sleep 600 > /dev/null 2>&1 & echo $! > {repo.outside}/pid"
    steps: list[Step] = [Run(leave), hello(repo), Say("done")]
    more = ""
    if (
        name == "aider"
    ):  # it runs no command that the model asks for, but this one of the person's
        steps, more = [hello(repo)], f"--auto-test --test-cmd '{leave}'"
    night = run(name, steps, "--full-permissions", more=more)
    assert night.code == 0, night.printed
    assert not psutil.pid_exists(int((repo.outside / "pid").read_text()))


# ---------------------------------------------------------------- Claude Code and Codex


def test_codex_takes_over_while_claude_is_limited(repo: Repo, run: Runner) -> None:
    other = ["--fallback", "codex", "--full-permissions"]
    night = run(
        "claude",
        [limit_of("claude")],
        *other,
        codex=[hello(repo), Say("done")],
        **SUBSCRIPTION,
    )
    assert night.code == 0 and not repo.records("wait"), night.printed
    worked = [
        (record["agent"], record["verdict"]) for record in repo.records("verdict")
    ]
    assert worked == [("claude", "limited"), ("codex", "passed")]
    assert night.seconds < 60


# ---------------------------------------------------------------- Claude Code alone


@pytest.fixture
def plugin(
    tmp_path: Path,
) -> tuple[Path, Callable[..., subprocess.CompletedProcess[str]]]:
    """A copy of the plugin, and Claude Code to call with words and the address of a
    model."""
    if not install_agents.is_installed("claude"):
        pytest.skip("claude is not installed: make test-agents")
    copied, home = tmp_path / "plugin", tmp_path / "home"
    for name in (".claude-plugin", "skills"):
        shutil.copytree(ROOT / name, copied / name)
    home.mkdir()

    def call(
        *words: str, url: str = "http://127.0.0.1:9"
    ) -> subprocess.CompletedProcess[str]:
        path = f"{install_agents.programs('claude')}:{os.environ['PATH']}"
        env = {"PATH": path, "HOME": str(home), **settings("claude", home, url)}
        return subprocess.run(
            ["claude", *words], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip

    return copied, call


def test_claude_finds_nothing_wrong_with_the_plugin_and_installs_it(
    plugin: Any,
) -> None:
    copied, call = plugin
    for part in (copied, copied / ".claude-plugin/plugin.json", copied / "skills"):
        done = call("plugin", "validate", "--strict", str(part))
        assert done.returncode == 0, done.stdout + done.stderr
    for words in (("marketplace", "add", str(copied)), ("install", "ralph@ralph")):
        done = call("plugin", *words)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (
        "Skills (3)  morning, night, plan" in call("plugin", "details", "ralph").stdout
    )
    (copied / "skills/night/SKILL.md").write_text("---\nname: [\n---\n")
    assert (
        call("plugin", "validate", "--strict", str(copied / "skills")).returncode != 0
    )


@pytest.mark.parametrize("skill", ["plan", "night", "morning"])
def test_claude_is_sent_a_skill_that_somebody_types(plugin: Any, skill: str) -> None:
    copied, call = plugin
    with (model := Reads([Say("ralph is not installed here.")])):
        done = call("-p", f"/ralph:{skill}", "--plugin-dir", str(copied), url=model.url)
    assert (
        done.returncode == 0 and done.stdout.strip() == "ralph is not installed here."
    ), done.stderr
    body = (copied / f"skills/{skill}/SKILL.md").read_text("utf-8").split("\n---\n")[1]
    assert json.dumps(body.strip())[1:-1] in model.read


class Reads(ModelServer):
    """Notes what it was sent."""

    read = ""

    def step(self, body: dict[str, Any], raw: bytes, path: str) -> Step:
        self.read += json.dumps(body.get("messages"))
        return super().step(body, raw, path)


def test_claude_keeps_its_dollar_limit_and_names_its_session(
    repo: Repo, run: Runner
) -> None:
    night = run(
        "claude", [hello(repo), Say("done")], "--full-permissions", "--max-usd", "1"
    )
    assert night.code == 0 and 0 < night.summary["usd"] < 1, night.printed
    first = json.loads(repo.read(".ralph/log/0001-US-001.out").splitlines()[0])
    assert first["session_id"] == night.verdict["session"]


@pytest.mark.parametrize(("last", "seconds"), [("600", 20.0), ("3", 0.0)])
def test_the_result_counts_of_a_claude_that_waits_for_a_task_of_its_own(
    repo: Repo, run: Runner, monkeypatch: pytest.MonkeyPatch, last: str, seconds: float
) -> None:
    """It says its result, and exits when its background task has ended; one that never
    does is ended."""
    monkeypatch.setattr(stream, "BACKGROUND", 20.0)
    steps = [hello(repo), Run(f"sleep {last}", background=True), Say("done")]
    night = run("claude", steps, "--full-permissions")
    assert (night.code, night.verdict["verdict"]) == (0, "passed"), night.printed
    said = [
        json.loads(line)
        for line in repo.read(".ralph/log/0001-US-001.out").splitlines()
    ]
    results = [event for event in said if event["type"] == "result"]
    assert len(results) == (1 if seconds else 2)
    assert seconds < night.verdict["seconds"] < 60
    assert night.verdict["usd"] == pytest.approx(results[-1]["total_cost_usd"])


def test_three_claudes_side_by_side_share_the_dollars_and_the_branch(
    repo: Repo,
) -> None:
    if not install_agents.is_installed("claude"):
        pytest.skip("claude is not installed: make test-agents")
    repo.plan(*({"checks": [f"grep -q T{n} T{n}.txt"]} for n in range(1, 7)))
    with ModelServer(
        [Run("sleep 1; echo $RALPH_TASK_ID > $RALPH_TASK_ID.txt"), Say("done")]
    ) as model:
        home = repo.outside / "home"
        repo.env |= {
            "HOME": str(home),
            "NO_COLOR": "1",
            **settings("claude", home, model.url),
        }
        repo.env["PATH"] = f"{install_agents.programs('claude')}:{repo.env['PATH']}"
        code, summary, printed = repo.run(
            "claude", "--jobs", "3", "--max-usd", "3", "--full-permissions", timeout=180
        )
    assert (code, summary["passed"]) == (0, 6), printed
    assert {start.get("worker", 1) for start in repo.records("start")} == {1, 2, 3}
    assert 0 < summary["usd"] < 3
    assert [repo.landed(f"T{n}.txt") for n in range(1, 7)] == [
        f"T{n}\n" for n in range(1, 7)
    ]
    assert repo.alive() == []


def on_extra_usage() -> Say:
    """An answer that a subscription no longer covers."""
    left = {
        "status": "rejected",
        "overage-status": "allowed",
        "reset": str(int(time.time()) + 3600),
    }
    left |= {"representative-claim": "five_hour"}
    return Say(
        "done",
        {f"anthropic-ratelimit-unified-{key}": value for key, value in left.items()},
    )


def test_claude_on_paid_extra_usage_begins_no_second_attempt(
    repo: Repo, run: Runner
) -> None:
    night = run(
        "claude",
        [on_extra_usage()],
        "--full-permissions",
        "--max-wait",
        "0",
        **SUBSCRIPTION,
    )
    assert (night.code, len(night.repo.records("start"))) == (75, 1), night.printed
    assert "--allow-overage" in night.stopped


def test_claude_runs_the_check_inside_its_own_sandbox(repo: Repo, run: Runner) -> None:
    need_namespaces()
    if shutil.which("socat") is None:
        pytest.skip("socat is not on PATH")
    outside = repo.outside / "outside.txt"
    look = "test -f hello.txt && echo green > seen.txt"
    night = run(
        "claude", [hello(repo), Run(look), Run(f"touch {outside}"), Say("done")]
    )
    assert night.code == 0, night.printed
    assert repo.landed("seen.txt", "ralph/hello") == "green\n"
    assert not outside.exists()
    assert "denials" not in night.verdict


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
