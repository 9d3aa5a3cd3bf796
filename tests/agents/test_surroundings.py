"""The environment of a place: what names home names the place, and places share
nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from _ralph.agents.surroundings import in_place, shared_caches

HOME = Path("/srv/me/shop")
PLACE = Path("/srv/places/shop-1/work-2")
ELSEWHERE = {"HOME": "/srv/me", "PATH": "/usr/bin:/bin"}


@pytest.mark.parametrize(("value", "wanted"), [
    ("/srv/me/shop", "{place}"),
    ("/srv/me/shop/", "{place}/"),
    ("/srv/me/shop/src", "{place}/src"),
    ("/srv/me/shop/src:/opt/x:/srv/me/shop", "{place}/src:/opt/x:{place}"),
    # no whole component begins here
    ("-I/srv/me/shop/include", "-I/srv/me/shop/include"),
    ("--path=/srv/me/shop", "--path={place}"),
    ("file:///srv/me/shop/a", "file:///srv/me/shop/a"),
    ("'/srv/me/shop'", "'{place}'"),
    ("/srv/me/shopping", "/srv/me/shopping"),
    ("/srv/me/shop-old", "/srv/me/shop-old"),
    ("/srv/me/shop.bak", "/srv/me/shop.bak"),
    ("/mnt/srv/me/shop", "/mnt/srv/me/shop"),
    ("/srv/me", "/srv/me"),
    ("", ""),
    ("a\udcffb:/srv/me/shop", "a\udcffb:{place}"),  # bytes that are no text
])  # fmt: skip
def test_a_value_that_names_home_names_the_place(value: str, wanted: str) -> None:
    for name in ("PYTHONPATH", "NODE_PATH", "PATH", "MY_WORKSPACE"):
        found = in_place({**ELSEWHERE, name: value}, HOME, PLACE)
        assert found[name] == wanted.replace("{place}", str(PLACE))


@pytest.mark.parametrize(
    "name",
    ["TMPDIR", "SSH_AUTH_SOCK", "SSL_CERT_FILE", "CLAUDE_CONFIG_DIR", "RALPH_HANDOFF"],
)
def test_some_variables_are_not_the_project_s(name: str) -> None:
    found = in_place({**ELSEWHERE, name: f"{HOME}/x"}, HOME, PLACE)
    assert found[name] == f"{HOME}/x"


def test_nothing_is_renamed_where_the_repository_holds_the_home_folder() -> None:
    env = {"HOME": "/srv/me", "PATH": "/srv/me/.local/bin:/usr/bin"}
    assert in_place(env, Path("/srv/me"), PLACE)["PATH"] == env["PATH"]
    assert in_place(env, Path("/srv"), PLACE)["PATH"] == env["PATH"]


def test_home_is_known_by_the_name_that_the_person_typed(tmp_path: Path) -> None:
    (tmp_path / "real/sub").mkdir(parents=True)
    (tmp_path / "link").symlink_to("real")
    env = {**ELSEWHERE, "PYTHONPATH": f"{tmp_path}/link/src:{tmp_path}/real/src"}
    for pwd in ("link", "link/sub"):
        found = in_place({**env, "PWD": f"{tmp_path}/{pwd}"}, tmp_path / "real", PLACE)
        assert found["PYTHONPATH"] == f"{PLACE}/src:{PLACE}/src"
    assert (
        f"{tmp_path}/link" in in_place(env, tmp_path / "real", PLACE)["PYTHONPATH"]
    )  # cron has no PWD


def test_the_active_environment_of_the_project_is_the_one_that_setup_makes() -> None:
    env = {
        **ELSEWHERE,
        "VIRTUAL_ENV": f"{HOME}/.venv",
        "PATH": f"{HOME}/.venv/bin:/usr/bin",
    }
    found = in_place(env, HOME, PLACE)
    assert (found["VIRTUAL_ENV"], found["PATH"]) == (
        f"{PLACE}/.venv",
        f"{PLACE}/.venv/bin:/usr/bin",
    )


@pytest.mark.parametrize(
    "path", ["/venvs/x/bin:/usr/bin", "/venvs/x/bin/:/usr/bin", "/usr/bin:/venvs/x/bin"]
)
def test_an_active_environment_elsewhere_is_left(path: str) -> None:
    found = in_place(
        {**ELSEWHERE, "VIRTUAL_ENV": "/venvs/x", "PATH": path}, HOME, PLACE
    )
    assert "VIRTUAL_ENV" not in found and found["PATH"] == "/usr/bin"


def test_a_path_of_nothing_but_that_environment_is_the_system_s_own() -> None:
    env = {**ELSEWHERE, "VIRTUAL_ENV": "/venvs/x", "PATH": "/venvs/x/bin"}
    assert in_place(env, HOME, PLACE)["PATH"] == os.defpath


def test_places_share_no_cache_of_installed_files_and_no_build_folder() -> None:
    shared = {
        "CARGO_TARGET_DIR": "/big/target",
        "UV_PROJECT_ENVIRONMENT": "/venvs/shop",
    }
    found = in_place({**ELSEWHERE, **shared, "UV_LINK_MODE": "hardlink"}, HOME, PLACE)
    assert (
        found["CARGO_TARGET_DIR"] == f"{PLACE}/target"
        and found["UV_LINK_MODE"] == "copy"
    )
    assert found["UV_PROJECT_ENVIRONMENT"] == f"{PLACE}/.venv"
    assert found["pnpm_config_package_import_method"] == "copy"
    assert found["CONDA_ALWAYS_COPY"] == found["MAMBA_ALWAYS_COPY"] == "true"
    assert (
        found["POETRY_VIRTUALENVS_IN_PROJECT"] == found["PIPENV_VENV_IN_PROJECT"] == "1"
    )
    assert "CARGO_TARGET_DIR" not in in_place(ELSEWHERE, HOME, PLACE)
    found = in_place({**ELSEWHERE, "CARGO_TARGET_DIR": "../target"}, HOME, PLACE)
    assert found["CARGO_TARGET_DIR"] == f"{PLACE}/target"
    own = {"CARGO_TARGET_DIR": "build", "UV_PROJECT_ENVIRONMENT": f"{HOME}/.venv-3.12"}
    found = in_place(
        {**ELSEWHERE, **own}, HOME, PLACE
    )  # these are a place's own already
    assert (
        found["CARGO_TARGET_DIR"] == "build"
        and found["UV_PROJECT_ENVIRONMENT"] == f"{PLACE}/.venv-3.12"
    )


def test_npm_is_told_nothing_of_pnpm_where_there_is_none(tmp_path: Path) -> None:
    """It warns of settings that it does not know, in every check."""
    assert not [
        name
        for name in in_place(ELSEWHERE, tmp_path, PLACE)
        if name.startswith("npm_config")
    ]
    (tmp_path / "pnpm-lock.yaml").touch()
    assert (
        in_place(ELSEWHERE, tmp_path, PLACE)["npm_config_package_import_method"]
        == "copy"
    )


def test_what_agents_and_checks_install_with_bun_comes_from_a_cache_of_the_place() -> (
    None
):
    """What `setup` links from the person's cache gets copies, but nobody copies what
    they link."""
    assert in_place(ELSEWHERE, HOME, PLACE)["BUN_INSTALL_CACHE_DIR"].startswith(
        f"{PLACE}/node_modules/"
    )
    assert shared_caches({"BUN_INSTALL_CACHE_DIR": "/mine"}) == {
        "BUN_INSTALL_CACHE_DIR": "/mine"
    }
    assert shared_caches({}) == {"BUN_INSTALL_CACHE_DIR": ""}  # its own default


def test_pip_installs_nothing_into_a_python_that_all_share_unless_a_person_said_so() -> (
    None
):
    assert in_place(ELSEWHERE, HOME, PLACE)["PIP_REQUIRE_VIRTUALENV"] == "1"
    own = {**ELSEWHERE, "PIP_REQUIRE_VIRTUALENV": "0"}
    assert in_place(own, HOME, PLACE)["PIP_REQUIRE_VIRTUALENV"] == "0"


@pytest.mark.parametrize(
    ("name", "slot"),
    [
        ("work-1", 1),
        ("work-12", 12),
        ("room-1", 0),
        ("room-7", 0),
        ("role", 65),
        ("land-7", 65),
    ],
)
def test_a_place_has_a_name_and_a_small_number(name: str, slot: int) -> None:
    found = in_place(ELSEWHERE, HOME, PLACE.with_name(name))
    assert (found["RALPH_PLACE"], found["RALPH_SLOT"]) == (name, str(slot))
    # Containers and volumes of two places are two projects of compose
    assert found["COMPOSE_PROJECT_NAME"] == f"shop-1-{slot}"
    own = in_place({**ELSEWHERE, "COMPOSE_PROJECT_NAME": "mine"}, HOME, PLACE)
    assert own["COMPOSE_PROJECT_NAME"] == "mine"


@pytest.mark.parametrize("active", ["", f"{HOME}/venv"])
def test_what_setup_made_is_active(tmp_path: Path, active: str) -> None:
    """As in a person's shell: else a check finds a global program of the same name."""
    env = {**ELSEWHERE, "VIRTUAL_ENV": active} if active else ELSEWHERE
    place = tmp_path / "work-1"
    assert ".venv" not in in_place(env, HOME, place, venv=True)["PATH"]
    (place / ".venv").mkdir(parents=True)
    (place / ".venv/pyvenv.cfg").touch()
    found = in_place(env, HOME, place, venv=True)
    assert found["VIRTUAL_ENV"] == f"{place}/.venv"
    assert found["PATH"] == f"{place}/.venv/bin:/usr/bin:/bin"
    assert ".venv" not in in_place(env, HOME, place)["PATH"]
