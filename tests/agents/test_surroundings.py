"""The environment of a place: what names home names the place, and places share
nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from _ralph.agents.surroundings import in_place, shared_caches
from tests.conftest import cases

HOME = Path("/srv/me/shop")
PLACE = Path("/srv/places/shop-1/work-2")
PERSON = {"HOME": "/srv/me", "PATH": "/usr/bin:/bin"}


def given(env: dict[str, str], home: Path = HOME) -> dict[str, str]:
    """What a command in the place gets from a person with these variables."""
    return in_place(PERSON | env, home, PLACE)


@cases("""
value                                 wanted
/srv/me/shop                          PLACE
/srv/me/shop/src:/opt/x:/srv/me/shop  PLACE/src:/opt/x:PLACE
-I/srv/me/shop/include                -I/srv/me/shop/include
--path=/srv/me/shop                   --path=PLACE
'/srv/me/shop'                        'PLACE'
/srv/me/shopping                      /srv/me/shopping
/srv/me/shop.bak                      /srv/me/shop.bak
/mnt/srv/me/shop                      /mnt/srv/me/shop
/srv/me                               /srv/me
\udcff:/srv/me/shop                   \udcff:PLACE
""")
def test_a_value_that_names_home_names_the_place(value: str, wanted: str) -> None:
    """Whole components alone, and not where bytes are no text."""
    for name in ("PYTHONPATH", "PATH", "MY_WORKSPACE"):
        assert given({name: value})[name] == wanted.replace("PLACE", str(PLACE))


# Some are not the project's; the rest is what keeps places apart, unless a person said
# so. An active environment elsewhere is left.
@cases("""
name                              value              wanted
TMPDIR                            HOME/x             HOME/x
SSH_AUTH_SOCK                     HOME/x             HOME/x
CLAUDE_CONFIG_DIR                 HOME/x             HOME/x
RALPH_HANDOFF                     HOME/x             HOME/x
CARGO_TARGET_DIR                  -                  -
CARGO_TARGET_DIR                  /big/target        PLACE/target
CARGO_TARGET_DIR                  build              build
UV_PROJECT_ENVIRONMENT            HOME/.venv-3.12    PLACE/.venv-3.12
UV_LINK_MODE                      hardlink           copy
pnpm_config_package_import_method  -                  copy
POETRY_VIRTUALENVS_IN_PROJECT     -                  1
BUN_INSTALL_CACHE_DIR             /mine              PLACE/node_modules/.cache/bun
PIP_REQUIRE_VIRTUALENV            -                  1
PIP_REQUIRE_VIRTUALENV            0                  0
COMPOSE_PROJECT_NAME              -                  shop-1-2
COMPOSE_PROJECT_NAME              mine               mine
VIRTUAL_ENV                       /venvs/x           -
VIRTUAL_ENV                       HOME/venv          PLACE/venv
""")
def test_what_a_variable_is_in_a_place(name: str, value: str, wanted: str) -> None:
    value = value.replace("HOME", str(HOME))
    wanted = wanted.replace("HOME", str(HOME)).replace("PLACE", str(PLACE))
    env = {name: value} if value else {}
    assert given(env).get(name, "") == wanted


def test_nothing_is_renamed_where_the_repository_holds_the_home_folder() -> None:
    path = "/srv/me/.local/bin:/usr/bin"
    for home in ("/srv/me", "/srv"):
        assert given({"PATH": path}, Path(home))["PATH"] == path


def test_home_is_known_by_the_name_that_the_person_typed(tmp_path: Path) -> None:
    (tmp_path / "real/sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    env = {"PYTHONPATH": f"{tmp_path}/link/src:{tmp_path}/real/src"}
    for pwd in ("link", "link/sub"):
        found = given(env | {"PWD": f"{tmp_path}/{pwd}"}, tmp_path / "real")
        assert found["PYTHONPATH"] == f"{PLACE}/src:{PLACE}/src"
    # cron has no PWD
    found = given(env, tmp_path / "real")
    assert found["PYTHONPATH"] == f"{tmp_path}/link/src:{PLACE}/src"


def test_path_has_no_program_of_an_environment_elsewhere() -> None:
    elsewhere = {"VIRTUAL_ENV": "/venvs/x", "PATH": "/venvs/x/bin"}
    assert given(elsewhere)["PATH"] == os.defpath
    elsewhere["PATH"] += ":/usr/bin"
    assert given(elsewhere)["PATH"] == "/usr/bin"


@pytest.mark.parametrize("active", ["", f"{HOME}/venv"])
def test_what_setup_made_is_active(tmp_path: Path, active: str) -> None:
    """As in a person's shell: else a check finds a global program of the same name."""
    env = {**PERSON, "VIRTUAL_ENV": active} if active else PERSON
    place = tmp_path / "work-1"
    assert ".venv" not in in_place(env, HOME, place, venv=True)["PATH"]
    (place / ".venv").mkdir(parents=True)
    (place / ".venv/pyvenv.cfg").touch()
    found = in_place(env, HOME, place, venv=True)
    assert found["VIRTUAL_ENV"] == f"{place}/.venv"
    assert found["PATH"] == f"{place}/.venv/bin:/usr/bin:/bin"
    assert ".venv" not in in_place(env, HOME, place)["PATH"]


def test_npm_is_told_nothing_of_pnpm_where_there_is_none(tmp_path: Path) -> None:
    """It warns of settings that it does not know, in every check."""
    name = "npm_config_package_import_method"
    assert name not in given({}, tmp_path)
    (tmp_path / "pnpm-lock.yaml").touch()
    assert given({}, tmp_path)[name] == "copy"


def test_setup_may_link_from_the_person_s_own_caches() -> None:
    """It gets copies of what it links, but nobody copies what agents and checks do."""
    name = "BUN_INSTALL_CACHE_DIR"
    assert shared_caches({name: "/mine"}) == {name: "/mine"}
    assert shared_caches({}) == {name: ""}  # its own default


@cases("""
name     slot
work-1   1
work-12  12
room-7   0
role     65
land-7   65
""")
def test_a_place_has_a_name_and_a_small_number(name: str, slot: str) -> None:
    found = in_place(PERSON, HOME, PLACE.with_name(name))
    assert (found["RALPH_PLACE"], found["RALPH_SLOT"]) == (name, slot)
