"""Checks that would test something else than the work."""

from __future__ import annotations

import json
import venv
from pathlib import Path

import pytest

from _ralph.checks.elsewhere import require_own_files, shared_python
from _ralph.errors import BadInput
from _ralph.state import prd
from tests.conftest import Repo

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


STARTS = ["pytest -q", "python -m pytest", "CI=1 pytest", "cd web && pytest", "true; ( pytest )"]  # fmt: skip
OTHERS = ["make test", "uv run pytest", "sh -c pytest", "echo pytest", "/usr/bin/env true", "'"]  # fmt: skip
NAMES = ["cd {0} && make", "make -C {0}", "x --root={0}/src", "cat '{0}/a.txt'", "PYTHONPATH={0}:y z"]  # fmt: skip
ALIKE = ["cat {0}-2/a", "cat {0}.bak", "cat /other{0}", "cat {0}s"]


@pytest.mark.parametrize("check", STARTS)
def test_a_program_of_home_is_refused_where_no_setup_makes_it(
    home: Path, check: str
) -> None:
    said = refused(home, check)
    assert f"starts {home}/.venv/bin/py" in said
    assert '"setup": "python3 -m venv .venv' in said
    assert not refused(home, check, setup="make venv")


@pytest.mark.parametrize("check", NAMES)
def test_home_s_path_is_refused_in_checks_and_in_setup(home: Path, check: str) -> None:
    command = check.format(home)
    said = refused(home, command)
    assert said.startswith("check ")
    assert f"names {home}, your working tree" in said
    for setup in (command, {"run": command, "when": ["a"]}):
        assert refused(home, "make", setup=setup).startswith("setup names ")


@pytest.mark.parametrize("check", [*OTHERS, *ALIKE])
def test_other_programs_and_other_paths_are_fine(home: Path, check: str) -> None:
    assert not refused(home, check.format(home))


def test_where_home_holds_the_person_s_own_nothing_is_refused(home: Path) -> None:
    assert refused(home, f"cat {home}/.config/x")
    assert not refused(home, f"cat {home}/.config/x", person=str(home))


def test_it_is_said_before_anything_runs(repo: Repo) -> None:
    repo.plan({"checks": [f"cat {repo.path}/a.txt"]})
    code, summary, printed = repo.run(repo.agent("(OUT / 'ran').touch()"))
    assert (code, (repo.outside / "ran").exists()) == (2, False), printed
    assert "your working tree" in summary["reason"]


# ---------------------------------------------------------------- a Python that all share


@pytest.fixture
def places(tmp_path: Path) -> Path:
    """Where the places are; the room has a virtual environment of its own."""
    places = tmp_path / "places"
    (places / "room-1/.venv/lib/python3/site-packages").mkdir(parents=True)
    (places / "work-1").mkdir()
    return places


FORMS = {
    "a .pth": ("shop.pth", "import x\n{0}/src\n"),
    "a finder": ("__editable___shop_1_finder.py", "MAPPING = {{'shop': '{0}/src/shop'}}\n"),
    "an egg-link": ("shop.egg-link", "{0}\n../"),
    "what pip notes": ("shop-1.dist-info/direct_url.json", '{{"dir_info": {{"editable": true}}, "url": "file://{0}"}}'),
}  # fmt: skip


def install(site: Path, form: str, source: Path) -> Path:
    """An editable install of what lies at `source`; the file that leads there."""
    name, content = FORMS[form]
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_text(content.format(source))
    return site / name


@pytest.mark.parametrize("form", FORMS)
def test_a_shared_python_that_leads_into_a_place_or_home(
    tmp_path: Path, home: Path, places: Path, form: str
) -> None:
    venv.create(tmp_path / "conda", symlinks=True)
    (site,) = (tmp_path / "conda").glob("lib/python*/site-packages")
    env = {**ROOM, "PATH": f"{tmp_path}/conda/bin:/usr/bin:/bin"}
    assert not shared_python(env, places, home, BARE)
    for source in (places / "work-1", places / "room-1", home):
        link = install(site, form, source)
        said = shared_python(env, places, home, BARE)
        assert f"{link} leads to {source}" in said
    # `make` may use another Python, and setup did not do it; then it did
    assert not shared_python(env, places, home, ["make"])
    install(site, form, places / "room-1")
    assert shared_python(env, places, home, ["make"])
    for other in (Path(f"{home}-2"), tmp_path / "x", Path("/usr/src")):
        install(site, form, other)
        assert not shared_python(env, places, home, BARE)


@pytest.mark.parametrize("form", FORMS)
def test_the_place_s_own_python_may_lead_into_the_place(
    home: Path, places: Path, form: str
) -> None:
    site = places / "room-1/.venv/lib/python3/site-packages"
    install(site, form, places / "room-1")
    assert not shared_python(ROOM, places, home, BARE)
    for source in (places / "work-1", home):  # copied from there
        install(site, form, source)
        assert f"leads to {source}" in shared_python(ROOM, places, home, ["make"])


def test_places_behind_a_link_are_the_same_places(
    tmp_path: Path, home: Path, places: Path
) -> None:
    (tmp_path / "link").symlink_to(places)
    for here, other in ((places, tmp_path / "link"), (tmp_path / "link", places)):
        site = here / "room-1/.venv/lib/python3/site-packages"
        install(site, "a .pth", other / "room-1")
        assert not shared_python(ROOM, here, home, BARE)
        install(site, "a .pth", places / "work-1")
        assert shared_python(ROOM, here, home, BARE)


def test_a_copy_of_home_is_no_link(home: Path, places: Path) -> None:
    note = places / "room-1/.venv/lib/python3/site-packages/shop-1.dist-info"
    note.mkdir()
    plain = f'{{"dir_info": {{}}, "url": "file://{home}"}}'
    (note / "direct_url.json").write_text(plain)
    assert not shared_python({**ROOM, "PATH": ""}, places, home, BARE)


def test_a_python_in_the_place_is_not_started(home: Path, places: Path) -> None:
    bin = places / "room-1/bin"
    executable(bin / "python3", f"#!/bin/sh\ntouch {home}/ran\n")
    assert not shared_python({**ROOM, "PATH": str(bin)}, places, home, BARE)
    assert not (home / "ran").exists()
