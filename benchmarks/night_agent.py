"""The agent of `night.py`, as `claude`: it does to each task what the task is called
after. Below ralph it works on the task that it is given; below a shell loop on the
first open one, commits, and marks it in the plan."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

HERE, OUT = Path.cwd(), Path(os.environ["NIGHT"])
RALPH = "RALPH_TASK_ID" in os.environ
LIMIT = "You've hit your session limit"
RESET = 3.0


def tell(**event: object) -> None:
    """An event of Claude Code's stream; below a shell loop its words alone."""
    words = str(event.get("result", ""))
    print(json.dumps(event) if "stream-json" in sys.argv else words, flush=True)


def plan() -> list[dict[str, object]]:
    tasks: list[dict[str, object]] = json.loads((HERE / "prd.json").read_text())[
        "userStories"
    ]
    return tasks


def mark(task: str) -> None:
    """Mark a task in the plan that lies here."""
    text = json.loads((HERE / "prd.json").read_text())
    for one in text["userStories"]:
        one["passes"] = one["passes"] or one["id"] == task
    (HERE / "prd.json").write_text(json.dumps(text, indent=2))


def sh(words: str) -> None:
    subprocess.run(
        words,
        shell=True,
        cwd=HERE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


def write(name: str, answer: int = 42) -> None:
    (HERE / f"{name}.py").parent.mkdir(exist_ok=True)
    (HERE / f"{name}.py").write_text(f"def answer() -> int:\n    return {answer}\n")


def limited() -> None:
    if call > 2:
        write(task)
        return
    info = {"status": "rejected", "resetsAt": int(time.time() + RESET)}
    tell(type="rate_limit_event", rate_limit_info=info)
    failed = {"is_error": True, "terminal_reason": "api_error", "api_error_status": 429}
    tell(type="result", **failed, result=LIMIT, total_cost_usd=0, usage={})
    sys.exit(1)


def hangs() -> None:
    if call == 1:
        tell(
            type="assistant",
            message={
                "id": "m",
                "content": [{"type": "text", "text": "I look around."}],
            },
        )
        time.sleep(3600)
    write(task)


def dies() -> None:
    if call == 1:
        (HERE / "dies.py").write_text("def answer() -> int:\n    return")
        os.kill(os.getpid(), signal.SIGKILL)
    write(task)


def floods() -> None:
    write(task)
    line = json.dumps(
        {"type": "assistant", "message": {"content": []}, "text": "x" * 1000}
    )
    for _ in range(100_000):
        print(line)


def server() -> None:
    write(task)
    subprocess.Popen(
        ["sleep", "3600"], start_new_session=True, stdout=subprocess.DEVNULL
    )


def second() -> None:
    write(task, 42 if call > 1 else 41)
    if call == 1 and not RALPH:  # it has seen that the test is red
        sys.exit(0)


def resets() -> None:
    if call == 1:
        sh("git reset -q --hard start; git clean -qfdx")
    write(task)


def breaks() -> None:
    write(task)
    write("honest", 0)


def stash() -> None:
    sh("git stash pop")
    write(task)


DEEDS: dict[str, Callable[[], object]] = {
    "honest": lambda: write("honest"),
    "liar": lambda: None,
    "second": second,
    "server": server,
    "floods": floods,
    "marks": lambda: mark("marks"),
    "breaks": breaks,
    "hangs": hangs,
    "limited": limited,
    "dies": dies,
    "ignored": lambda: write("build/ignored"),
    "resets": resets,
    "guts": lambda: (HERE / "tests/test_guts.py").write_text(""),
    "stash": stash,
}

if "--version" in sys.argv:
    print("2.1.330 (Claude Code)")
    sys.exit()
if RALPH:
    sys.stdin.read()
task = os.environ.get("RALPH_TASK_ID") or str(
    next((one["id"] for one in plan() if not one["passes"]), "")
)
if task:
    with (OUT / "calls").open("a") as log:
        log.write(f"{task}\n")
    call = (OUT / "calls").read_text().split().count(task)
    DEEDS[task]()
    if not RALPH:
        mark(task)
        sh(f"git add -A; git commit -qm {task}")
done = not RALPH and all(one["passes"] for one in plan())
tell(type="result", subtype="success", is_error=False, result="COMPLETE" if done else "done",
     session_id="s", total_cost_usd=0.1, usage={"input_tokens": 1000, "output_tokens": 100})  # fmt: skip
