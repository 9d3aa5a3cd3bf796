"""Hostile bytes, made up by hypothesis: no traceback, no pass, and no byte lost that
was not ralph's."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from _ralph.state import prd

EXAMPLES = int(os.environ.get("HOSTILE_EXAMPLES", "40"))
hostile = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


KNOWN = {key for keys in prd.ALIASES.values() for key in keys}
KNOWN |= {"id", "status", "priority", "blocked", "checks", "allow", "agent"}
_OTHERS = [
    "run", "timeout", "agents", "limits", "protect", "setup", "commit", "task", "tokens", "handoff", "left",
    "base", "broken", "keep", "when",
]  # fmt: skip


names = st.sampled_from(
    [*sorted(KNOWN), *_OTHERS, "verdict", "iteration", "attempt"]
) | st.text(max_size=5)
numbers = st.sampled_from(
    [0, -1, 1, 2**63, 10**400, -(10**400), 1e308, 5e-324, 0.5]
) | st.floats(allow_nan=False, allow_infinity=False)


_words = st.sampled_from(
    ["T1", "passed", "done", "blocked", "true", "\ud800", "\x00", "\u2028", "P0", ""]
)
_leaves = st.none() | st.booleans() | numbers | _words | st.text(max_size=8)
values = st.recursive(
    _leaves,
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=4)
    ),
    max_leaves=12,
)
