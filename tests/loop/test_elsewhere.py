"""Checks that would test something else than the work."""

from __future__ import annotations

import json
import venv
from pathlib import Path

import pytest
from _ralph.loop.elsewhere import require_own_files, shared_python

from _ralph.errors import BadInput
from _ralph.state import prd

BARE = ["python3 -m pytest -q"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A project with a virtual environment that is active."""
    home = tmp_path / "my home"
    (home / ".venv/bin").mkdir(parents=True)
    (home / ".venv/pyvenv.cfg").touch()
    for name in ("pytest", "python"):
        (home / ".venv/bin" / name).write_text("#!/bin/sh\n")
        (home / ".venv/bin" / name).chmod(0o755)
    return home


def refused(home: Path, check: str, **top: object) -> str:
    """What is said of a plan with this check; nothing if it is fine."""
    plan = prd.read(
        json.dumps({"userStories": [{"title": "t", "checks": [check]}], **top}),
        home / "prd.json",
    )
    env = {
        "PATH": f"{home}/.venv/bin:/usr/bin:/bin",
        "HOME": "/somewhere",
        "PWD": str(home),
    }
    try:
        require_own_files(plan, home, env)
    except BadInput as error:
        return str(error)
    return ""


@pytest.mark.parametrize(
    "check",
    [
        "pytest -q",
        "python -m pytest",
        "CI=1 pytest",
        "cd web && pytest",
        "true; ( pytest )",
    ],
)
def test_a_program_of_home_is_refused_where_no_setup_makes_it(
    home: Path, check: str
) -> None:
    said = refused(home, check)
    assert (
        f"starts {home}/.venv/bin/py" in said
        and '"setup": "python3 -m venv .venv' in said
    )
    assert not refused(home, check, setup="make venv")


@pytest.mark.parametrize(
    "check",
    [
        "make test",
        "uv run pytest",
        "sh -c pytest",
        "echo pytest",
        "/usr/bin/env true",
        "'",
    ],
)
def test_other_programs_are_no_matter(home: Path, check: str) -> None:
    assert not refused(home, check)


@pytest.mark.parametrize(
    "form",
    [
        "cd {0} && make",
        "make -C {0}",
        "x --root={0}/src",
        "cat '{0}/a.txt'",
        "PYTHONPATH={0}:y z",
    ],
)
def test_home_s_path_is_refused_in_checks_and_in_setup(home: Path, form: str) -> None:
    command = form.format(home)
    said = refused(home, command)
    assert f"names {home}, your working tree" in said and said.startswith("check ")
    assert refused(home, "make", setup=command).startswith("setup names ")
    assert refused(home, "make", setup={"run": command, "when": ["a"]}).startswith(
        "setup names "
    )


@pytest.mark.parametrize(
    "form", ["cat {0}-2/a", "cat {0}.bak", "cat /other{0}", "cat {0}s"]
)
def test_names_that_begin_like_home_are_no_matter(home: Path, form: str) -> None:
    assert not refused(home, form.format(home))


def test_where_home_holds_the_person_s_own_nothing_is_refused(home: Path) -> None:
    plan = prd.read(
        json.dumps([{"title": "t", "checks": [f"cat {home}/.config/x"]}]),
        home / "prd.json",
    )
    require_own_files(plan, home, {"PATH": "/bin", "HOME": str(home)})


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


def lay(site: Path, form: str, led: Path) -> Path:
    name, content = FORMS[form]
    (site / name).parent.mkdir(exist_ok=True)
    (site / name).write_text(content.format(led))
    return site / name


@pytest.mark.parametrize("form", FORMS)
def test_a_shared_python_that_leads_into_a_place_or_home(
    tmp_path: Path, home: Path, places: Path, form: str
) -> None:
    venv.create(tmp_path / "conda", symlinks=True)
    (site,) = (tmp_path / "conda").glob("lib/python*/site-packages")
    env = {"PATH": f"{tmp_path}/conda/bin:/usr/bin:/bin", "RALPH_PLACE": "room-1"}
    assert not shared_python(env, places, home, BARE)
    for led in (places / "work-1", places / "room-1", home):
        link = lay(site, form, led)
        assert f"{link} leads to {led}" in shared_python(env, places, home, BARE)
    assert not shared_python(env, places, home, ["make"]), (
        "it may use another Python, and setup did not do it"
    )
    lay(site, form, places / "room-1")
    assert shared_python(env, places, home, ["make"]), "setup did it"
    for other in (Path(f"{home}-2"), tmp_path / "x", Path("/usr/src")):
        lay(site, form, other)
        assert not shared_python(env, places, home, BARE)


@pytest.mark.parametrize("form", FORMS)
def test_the_place_s_own_python_may_lead_into_the_place(
    home: Path, places: Path, form: str
) -> None:
    site, env = (
        places / "room-1/.venv/lib/python3/site-packages",
        {"PATH": "/usr/bin:/bin", "RALPH_PLACE": "room-1"},
    )
    lay(site, form, places / "room-1")
    assert not shared_python(env, places, home, BARE)
    for led in (places / "work-1", home):  # copied from there
        lay(site, form, led)
        assert f"leads to {led}" in shared_python(env, places, home, ["make"])


def test_places_behind_a_link_are_the_same_places(
    tmp_path: Path, home: Path, places: Path
) -> None:
    (tmp_path / "link").symlink_to(places)
    env = {"PATH": "/usr/bin:/bin", "RALPH_PLACE": "room-1"}
    for here, other in ((places, tmp_path / "link"), (tmp_path / "link", places)):
        site = here / "room-1/.venv/lib/python3/site-packages"
        lay(site, "a .pth", other / "room-1")
        assert not shared_python(env, here, home, BARE)
        lay(site, "a .pth", places / "work-1")
        assert shared_python(env, here, home, BARE)


def test_a_copy_of_home_is_no_link(home: Path, places: Path) -> None:
    site, env = (
        places / "room-1/.venv/lib/python3/site-packages",
        {"PATH": "", "RALPH_PLACE": "room-1"},
    )
    (site / "shop-1.dist-info").mkdir()
    (site / "shop-1.dist-info/direct_url.json").write_text(
        f'{{"dir_info": {{}}, "url": "file://{home}"}}'
    )
    assert not shared_python(env, places, home, BARE)


def test_a_python_in_the_place_is_not_started(home: Path, places: Path) -> None:
    bin = places / "room-1/bin"
    bin.mkdir()
    (bin / "python3").write_text(f"#!/bin/sh\ntouch {home}/ran\n")
    (bin / "python3").chmod(0o755)
    assert not shared_python(
        {"PATH": str(bin), "RALPH_PLACE": "room-1"}, places, home, BARE
    )
    assert not (home / "ran").exists()
