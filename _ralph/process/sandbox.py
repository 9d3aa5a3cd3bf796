"""The sandbox: what agents and checks may see and change, as a bubblewrap command line."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from _ralph.errors import BadInput
from _ralph.files import table

CACHE = "cache"
"""The folder in a plan's private one in which each place has a cache, by the place's name."""
_PROBE = 30.0
_KINDS = table("files.json")


@dataclass(frozen=True)
class Sandbox:
    """All but a command's place is read-only; /tmp and processes are its own, and end with ralph."""

    objects: Path  # git's, and the hooks beside them: read-only
    config: tuple[Path, ...]  # the agents' own: writable
    hidden: tuple[Path, ...]  # empty, home included
    caches: tuple[Path, ...]  # replaced by a folder below `cache` for each place: checks read no agent's
    cache: Path
    network: bool = True

    def sees(self, path: Path) -> bool:
        """Whether `path` is visible inside."""
        others = (Path("/tmp"), Path("/run"), *self.hidden, *self.caches)
        real = Path(os.path.realpath(path))
        return any(map(real.is_relative_to, self.config)) or not any(map(real.is_relative_to, others))

    def wrap(self, argv: Sequence[str], place: Path) -> list[str]:
        """`argv` inside the sandbox, in the folder `place`."""
        words = ["bwrap", "--die-with-parent", "--unshare-pid", "--unshare-ipc"]
        words += [] if self.network else ["--unshare-net"]
        words += ["--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc", "--tmpfs", "/run"]
        for kept in ("/run/systemd/resolve", "/run/current-system"):  # name servers; NixOS's programs
            words += ["--ro-bind-try", kept, kept]
        for path in _seen(self.hidden):
            words += ["--tmpfs", str(path)] if path.is_dir() else ["--ro-bind", "/dev/null", str(path)]
        cache = self.cache / place.name
        cache.mkdir(parents=True, exist_ok=True)
        for path in _seen(self.caches):
            words += ["--bind", str(cache), str(path), "--setenv", "npm_config_cache", f"{path}/npm"]
        words += ["--tmpfs", "/tmp"]  # before the workspace, which may lie there
        for path in _seen((*self.config, place)):
            words += ["--bind", str(path), str(path)]
        for shown in (self.objects, self.objects.with_name("hooks")):
            words += ["--ro-bind-try", str(shown), str(shown)]
        for name in _KINDS["doors"]:
            words += ["--unsetenv", name]
        words += ["--setenv", "TMPDIR", "/tmp", "--setenv", "IS_SANDBOX", "1"]  # Claude Code as root asks
        return [*words, "--chdir", str(place), "--", *argv]


def sandbox_for(
    home: Sequence[Path], common: Path, private: Path, rows: Mapping[str, Any], names: set[str], network: bool
) -> Sandbox:
    """The sandbox of a plan for the agents called `names`: of the folders that `rows` list, only theirs are
    visible, and nothing of `home`, which includes all places; its cache is in `private`. BadInput if
    bubblewrap is missing or does not work here."""
    if shutil.which("bwrap") is None:
        raise BadInput(
            "--sandbox bwrap needs bubblewrap, on Linux, and bwrap is not on PATH; install it or run without"
        )
    homes = {Path.home()}
    with contextlib.suppress(KeyError):  # a user without an entry
        homes.add(Path(pwd.getpwuid(os.getuid()).pw_dir))
    own = [place for name in names for place in rows.get(name, {}).get("config", [])]
    others = [place for row in rows.values() for place in row.get("config", [])]
    below = [place for place in (*_KINDS["credentials"], *others) if place not in own]
    hidden = (*_below(homes, below), *home, common)
    caches = _below(homes, [".cache"])
    private.mkdir(parents=True, exist_ok=True)
    cache = private / CACHE
    box = Sandbox(common / "objects", _below(homes, own), hidden, caches, cache, network)
    words = box.wrap(["true"], private)
    try:
        probe = subprocess.run(words, capture_output=True, text=True, timeout=_PROBE)
        failed = probe.returncode != 0 and (probe.stderr.strip() or "bwrap failed")
    except subprocess.TimeoutExpired:
        failed = f"bwrap did not start `true` within {_PROBE:g} s"
    if failed:
        raise BadInput(f"--sandbox bwrap does not work here: {failed}")
    return box


def _below(homes: set[Path], places: Sequence[str]) -> tuple[Path, ...]:
    """Paths below the home folders; one that begins with $ is the value of that variable."""
    by_variable = [
        Path(os.environ[place[1:]]) for place in places if place[:1] == "$" and os.environ.get(place[1:])
    ]
    return (*by_variable, *(home / place for home in sorted(homes) for place in places if place[:1] != "$"))


def _seen(paths: Sequence[Path]) -> list[Path]:
    """Those that exist, with links resolved, as bwrap needs them, each once."""
    return list(dict.fromkeys(Path(os.path.realpath(path)) for path in paths if path.exists()))
