"""The real Claude Code against a scripted model on loopback; skipped where they are not at hand."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import ROOT, Repo

RIG = Path(os.environ.get("RIG_ROOT", Path(tempfile.gettempdir()) / "rig"))
CLAUDE = RIG / "npm/claude/node_modules/.bin"
MODEL = ROOT.parent / "shared/rig/fake_llm.py"
pytestmark = pytest.mark.skipif(
    not (CLAUDE / "claude").exists() or not MODEL.exists(),
    reason="the real Claude Code is not installed here",
)
PLAN = """{
  "project": "MyApp",
  "branchName": "ralph/hello",
  "description": "A greeting",
  "userStories": [
    {
      "id": "US-001",
      "title": "Create hello.txt",
      "description": "As a user, I want a greeting. TASK-ID: T1",
      "acceptanceCriteria": ["hello.txt exists", "Typecheck passes"],
      "priority": 1,
      "passes": false,
      "notes": ""
    }
  ]
}
"""


@pytest.fixture
def model(repo: Repo) -> Iterator[str]:
    words = [sys.executable, str(MODEL), "--log", str(repo.outside / "llm.log")]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
    assert server.stdout is not None
    yield f"http://127.0.0.1:{int(server.stdout.readline())}"
    server.terminate()
    server.wait()


def test_a_snarktank_plan_passes_with_tokens_and_dollars(repo: Repo, model: str) -> None:
    repo.write("prd.json", PLAN)
    repo.env |= {
        "PATH": f"{CLAUDE}:{repo.env['PATH']}",
        "ANTHROPIC_BASE_URL": model,
        "ANTHROPIC_API_KEY": "sk-test",
        "IS_SANDBOX": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
        "DISABLE_AUTOUPDATER": "1",
        "DISABLE_TELEMETRY": "1",
    }
    words = ("--full-permissions", "--check", "test -f hello.txt", "--max-usd", "1")
    code, summary, printed = repo.run("claude", *words, timeout=120)
    assert code == 0, printed
    assert repo.read("hello.txt").startswith("hello")
    assert repo.read("prd.json") == PLAN.replace('"passes": false', '"passes": true')
    assert summary["usd"] > 0 and summary["tokens"]["input"] > 0 and summary["tokens"]["output"] > 0
    record = repo.records("verdict")[0]
    assert record["usd"] == pytest.approx(summary["usd"]) and record["session"]
    first = json.loads((repo.path / ".ralph/0001-US-001.out").read_text().splitlines()[0])
    assert first["session_id"] == record["session"]
    assert repo.git("status", "--porcelain") == ""
