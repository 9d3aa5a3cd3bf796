"""Checks that would test something else than the work."""

from __future__ import annotations

import json
import venv
from pathlib import Path

import pytest

from _ralph.checks.elsewhere import above, require_own_files, shared_python
from _ralph.errors import BadInput
from _ralph.state import prd
from tests.conftest import cases

BARE = ["python3 -m pytest -q"]
ROOM = {"PATH": "/usr/bin:/bin", "RALPH_PLACE": "room-1"}


def executable(path: Path, script: str = "#!/bin/sh\n") -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(script)
    path.chmod(0o755)


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project with a virtual environment that is active."""
    home = tmp_path / "my home"
    for name in ("pytest", "python"):
        executable(home / ".venv/bin" / name)
    (home / ".venv/pyvenv.cfg").touch()
    return home


def refused(home: Path, check: str, person: str = "/somewhere", **top: object) -> str:
    """What is said of a plan with this check; nothing if it is fine."""
    source = json.dumps({"userStories": [{"title": "t", "checks": [check]}], **top})
    plan = prd.read(source, home / "prd.json")
    path = f"{home}/.venv/bin:/usr/bin:/bin"
    try:
        require_own_files(plan, home, {"PATH": path, "HOME": person, "PWD": str(home)})
    except BadInput as error:
        return str(error)
    return ""


@cases("""
check
pytest -q
CI=1 pytest
cd web && python -m pytest
true; ( pytest )
""")
def test_a_program_of_home_is_refused_where_no_setup_makes_it(
    home: Path, check: str
) -> None:
    said = refused(home, check)
    assert f"starts {home}/.venv/bin/py" in said
    assert '"setup": "python3 -m venv .venv' in said
    assert not refused(home, check, setup="make venv")


@cases("""
check
cd {0} && make
make -C {0}
x --root={0}/src
PYTHONPATH={0}:y z
""")
def test_home_s_path_is_refused_in_checks_and_in_setup(home: Path, check: str) -> None:
    command = check.format(home)
    assert refused(home, command).startswith("check ")
    assert f"names {home}, your working tree" in refused(home, command)
    assert refused(home, "make", setup=command).startswith("setup names ")
    # Where home holds the person's own home, all that they have is named so
    assert not refused(home, command, person=str(home))


@cases("""
check
make test
uv run pytest
echo pytest
/usr/bin/env true
'
cat {0}-2/a
cat {0}.bak
cat /other{0}
""")
def test_other_programs_and_other_paths_are_fine(home: Path, check: str) -> None:
    assert not refused(home, check.format(home))


# ---------------------------------------------------------------- a Python that all share


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Where the places are; the room has a virtual environment of its own."""
    places = tmp_path / "places"
    (places / "room-1/.venv/lib/python3/site-packages").mkdir(parents=True)
    (places / "work-1").mkdir()
    return places


# The file of an editable install, and what it says.
@cases(r"""
name                           content
shop.pth                       import x\nSOURCE/src\n
__editable___shop_1_finder.py  MAPPING = {'shop': 'SOURCE/src/shop'}\n
""")
def test_a_shared_python_that_leads_into_a_place_or_home(
    tmp_path: Path, home: Path, places: Path, name: str, content: str
) -> None:
    venv.create(tmp_path / "conda", symlinks=True)
    (site,) = (tmp_path / "conda").glob("lib/python*/site-packages")
    env = {**ROOM, "PATH": f"{tmp_path}/conda/bin:/usr/bin:/bin"}
    assert not shared_python(env, places, home, BARE)
    for source in (places / "work-1", places / "room-1", home):
        (site / name).write_text(content.replace("SOURCE", str(source)))
        said = shared_python(env, places, home, BARE)
        assert f"{site / name} leads to {source}" in said
    # `make` may use another Python, and setup did not do it; then it did
    assert not shared_python(env, places, home, ["make"])
    (site / name).write_text(content.replace("SOURCE", f"{places}/room-1"))
    assert shared_python(env, places, home, ["make"])
    (site / name).write_text(content.replace("SOURCE", f"{home}-2"))
    assert not shared_python(env, places, home, BARE)


# ---------------------------------------------------------------- above the places


@cases("""
name
node_modules
package.json
conftest.py
pyproject.toml
""")
def test_what_lies_above_the_places_is_named(tmp_path: Path, name: str) -> None:
    places = tmp_path / "a/state/ralph/shop-1"
    places.mkdir(parents=True)
    before = above(places)
    (tmp_path / "a" / name).touch()
    (places / name).touch()  # ralph's own folder is another matter
    (said,) = [line for line in above(places) if line not in before]
    assert said.startswith(f"{tmp_path}/a/{name} lies above ralph's checkouts")
