"""News of a run, for the command that a person named with --notify."""

from __future__ import annotations

import json
import os

from _ralph.errors import Stop
from _ralph.loop.run import Run
from _ralph.process.process import run_process
from _ralph.state.facts import summary
from _ralph.text import last_line

DEADLINE = 30.0
"""Seconds that the command may take."""


def notify(run: Run, stop: Stop | None) -> None:
    """Give the summary to --notify's command. Its failure changes nothing. It is the person's own, and not
    part of an attempt: it may call `ralph tell`, `retry` or `stop`."""
    if run.options.notify:
        payload = json.dumps(summary(run.plan, run.history, stop, run.seconds)).encode()
        env = {name: value for name, value in os.environ.items() if name != "RALPH_RUN_ID"}
        told = run_process(
            ["/bin/sh", "-c", run.options.notify], cwd=run.paths.root, env=env, timeout=DEADLINE,
            control=run.control, stdin=payload, out=run.log("notify.log"), spare=run.pool.children,
        )  # fmt: skip
        if told.exit != 0:
            run.view.line(f"! --notify ended with exit {told.exit}: {last_line(told.tail)}")
