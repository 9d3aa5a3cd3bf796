"""The schedule: what starts this run every night, as a line for cron and as units for systemd."""

from __future__ import annotations

import os
import pwd
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from _ralph import files, text
from _ralph.ends import BadInput
from _ralph.files import resource
from _ralph.place import state_folder
from _ralph.prompt import render_prompt
from _ralph.session import Options

UNTIL = "07:00"
CRON_PATH = "/usr/bin:/bin"
"""The PATH of cron, unless the crontab names another."""
_LONGEST = 998  # bytes of a command that every cron takes
_SAFE = re.compile(r"[\w@+=:,./-]+", re.ASCII)


@dataclass(frozen=True)
class Schedule:
    """A run as it is started at night: `words` in `folder`, with `path` as its PATH, its output at the
    end of `log`; `name` tells this plan's units from those of others."""

    name: str
    folder: str
    words: tuple[str, ...]
    path: str
    log: str

    def crontab(self) -> str:
        """The command of a crontab line."""
        where, path, log = map(shlex.quote, (self.folder, self.path, self.log))
        line = f"cd {where} && PATH={path} {shlex.join(self.words)} >> {log} 2>&1"
        # In some crons a backslash also escapes another one; '' between them is nothing to the shell.
        return re.sub(r"\\(?=[\\%])", r"\\''", line).replace("%", r"\%")

    def units(self) -> dict[str, str]:
        """The systemd units by their file names: the service, and the timer that starts it."""
        program, *rest = self.words
        values = {
            "folder": self.folder.replace("%", "%%"),
            "log": self.log.replace("%", "%%"),
            "path": _unit_word(f"PATH={self.path}"),
            "command": " ".join(
                [_unit_word(program), *(_unit_word(word).replace("$", "$$") for word in rest)]
            ),
        }
        kinds = ("service", "timer")
        return {
            f"{self.name}.{kind}": render_prompt(resource(f"templates/ralph.{kind}"), values)
            for kind in kinds
        }

    def text(self) -> str:
        """What a person is told to do; systemd's part only where it can be."""
        service, timer = self.units().values() if sys.platform == "linux" else ("", "")
        values = {"name": self.name, "crontab": self.crontab(), "service": service, "timer": timer}
        return render_prompt(resource("templates/schedule.txt"), values).rstrip()

    def too_long(self) -> bool:
        return len(self.crontab().encode()) > _LONGEST

    def refused(self) -> str:
        """What systemd-analyze finds wrong with the units; nothing where there is none."""
        if sys.platform != "linux" or not shutil.which("systemd-analyze"):
            return ""
        with tempfile.TemporaryDirectory(prefix="ralph-") as folder:
            for name, unit in self.units().items():
                Path(folder, name).write_text(unit, encoding="utf-8")
            done = subprocess.run(
                ["systemd-analyze", "verify", "--user", *(str(Path(folder, name)) for name in self.units())],
                env={**os.environ, "XDG_RUNTIME_DIR": folder, "LC_ALL": "C"},
                stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8", errors="replace", timeout=30,
            )  # fmt: skip
        ours = [line for line in done.stderr.splitlines() if self.name in line]
        return "; ".join(ours) or (
            f"exit {done.returncode}: {text.last_line(done.stderr)}" if done.returncode else ""
        )


def schedule_for(options: Options, root: Path) -> Schedule:
    """The schedule that runs what `options` say, from this folder, as ralph was started now. Makes the
    folder of its log. BadInput for names that neither cron nor systemd can be told."""
    prd = options.prd.absolute()
    name = f"ralph-{text.slug(root.name).lower()}-{files.digest(str(prd).encode())[:6]}"
    log = (state_folder() / f"{name}.log").absolute()
    log.parent.mkdir(parents=True, exist_ok=True)
    found = Schedule(name, str(Path.cwd()), tuple(_command(options)), _path(), str(log))
    plain = all(word == word.strip() and not word.endswith("\\") for word in (found.folder, found.log))
    if not plain or not all(map(str.isprintable, (found.folder, found.log, found.path, *found.words))):
        raise BadInput("a name here has characters that cannot stand in a crontab or a unit; rename it")
    return found


def cron_environment(path: str) -> dict[str, str]:
    """What a program finds that cron starts with the PATH `path`; BadInput for a user without a home."""
    try:
        user = pwd.getpwuid(os.getuid())
    except KeyError:
        raise BadInput(f"cron has no user {os.getuid()}: there is none in the password file") from None
    own = {"HOME": user.pw_dir, "LOGNAME": user.pw_name, "SHELL": "/bin/sh"}
    return {**own, **_assigned(), "PATH": path}


def _assigned() -> Mapping[str, str]:
    """The variables that this user's crontab sets."""
    try:
        done = subprocess.run(
            ["crontab", "-l"], stdin=subprocess.DEVNULL, capture_output=True, encoding="utf-8",
            errors="replace", timeout=10,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return {}
    found = re.findall(
        r"""^[ \t]*(["']?)(\w+)\1[ \t]*=[ \t]*(["']?)(.*?)\3[ \t]*$""", done.stdout, re.MULTILINE
    )
    return {name: value for _, name, _, value in found}


def _command(options: Options) -> list[str]:
    """`ralph run` by absolute names, with the options that were examined."""
    started = os.path.abspath(sys.argv[0])
    program = [sys.executable, started] if started.endswith(".py") else [started]
    words = [*program, "run", "--until", UNTIL]
    given = {"--agent": options.agent, "--judge": options.judge, "--sandbox": options.sandbox}
    if options.prd != Path("prd.json"):
        words += ["--prd", str(options.prd)]
    words += [word for name, value in given.items() if value for word in (name, value)]
    words += [word for check in options.checks for word in ("--check", check)]
    words += ["--full-permissions"] * options.full_permissions
    return words + ["--no-git"] * (not options.git)


def _path() -> str:
    """The PATH of now: the folders that exist, each once."""
    entries = os.environ.get("PATH", "").split(os.pathsep)
    return os.pathsep.join(dict.fromkeys(e for e in entries if e.startswith("/") and os.path.isdir(e)))


def _unit_word(word: str) -> str:
    """One word of a unit's line, in quotes where it needs them."""
    if _SAFE.fullmatch(word):
        return word
    quoted = word.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")
    return f'"{quoted}"'
