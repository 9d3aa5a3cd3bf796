"""Where ralph's branch is, as the run left it."""

from __future__ import annotations

from _ralph.errors import NeedsPerson
from _ralph.loop.loop import Loop


def tip_of(loop: Loop) -> str:
    """The commit that the branch is at now. NeedsPerson as for `require_kept`."""
    tip = loop.branch.tip()
    require_kept(loop, tip)
    return tip


def require_kept(loop: Loop, tip: str) -> None:
    """NeedsPerson if the branch, which is at `tip` now, was deleted or rewritten during
    the run: then it no longer contains what the run committed last."""
    branch = loop.branch
    last = loop.history.this_run.commit or loop.first_tip
    if tip == last:
        return
    if loop.first_tip and not branch.contains(loop.first_tip, last):
        last = loop.first_tip  # that was before the branch began again
    if tip == last or (tip and (not last or branch.contains(last, tip))):
        return
    kept = branch.park(last, "verified")
    what = "rewritten" if tip else "deleted"
    raise NeedsPerson(
        f"the branch {branch.name} was {what} during the run; its verified work is at "
        f"{kept}; set the branch to where ralph should continue, then run it again"
    )
