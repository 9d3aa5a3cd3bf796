"""A real Slurm for tests: a controller and three nodes on this host, from Debian's
packages, which are downloaded and unpacked once and not installed. No root, no munge,
no cgroups.

They go to ~/.cache/ralph-slurm, or where RALPH_TEST_SLURM says.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shlex
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libhwloc15", "libjson-c5",
    "liblz4-1", "libmunge2", "libnuma1", "libreadline8",
)  # fmt: skip
NODES = ("n1", "n2", "n3")
CONFIGURATION = """
ClusterName=ralph
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={port}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
MpiDefault=none
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
ReturnToService=2
InactiveLimit=0
KillWait=2
MinJobAge=3600
PartitionName=all Nodes=n[1-3] Default=YES State=UP
"""
NODE = "NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 Port={port} CPUs=4\n"


class CannotBeHad(Exception):
    """Why there is no Slurm here."""


def unpacked() -> Path:
    """The folder with Debian's packages, unpacked; downloaded where it is not there
    yet."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = Path(os.environ.get("RALPH_TEST_SLURM") or Path(cache) / "ralph-slurm")
    if (home / "usr/sbin/slurmctld-wlm").exists():
        return home
    for tool in ("apt-get", "dpkg"):
        if not shutil.which(tool):
            raise CannotBeHad(
                f"Slurm's packages are Debian's, and there is no {tool} here"
            )
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as made:
        download = ["apt-get", "download", "-q", *PACKAGES]
        done = subprocess.run(
            download, cwd=made, capture_output=True, text=True, timeout=300
        )
        if done.returncode:
            raise CannotBeHad(
                f"apt-get download: {(done.stderr.splitlines() or ['it failed'])[-1]}"
            )
        for package in Path(made).glob("*.deb"):
            subprocess.run(
                ["dpkg", "-x", str(package), f"{made}/root"], check=True, timeout=60
            )
        with contextlib.suppress(OSError):  # somebody else was quicker
            (Path(made) / "root").rename(home)
    return home


class Slurm:
    """A cluster of three nodes, which lives in `folder` and ends with `close`. `env` is
    what a program needs to talk to it: Slurm's programs on PATH."""

    def __init__(self, folder: Path) -> None:
        self.root, self.folder = unpacked(), folder.resolve()
        (self.folder / "state").mkdir(parents=True)
        (self.folder / "bin").mkdir()
        (plugins,) = (self.root / "usr/lib").glob("*/slurm-wlm")
        libraries = [plugins, plugins.parent, self.root / "lib" / plugins.parent.name]
        self._own = {
            "SLURM_CONF": str(self.folder / "slurm.conf"),
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        }
        for program in ("sbatch", "scancel", "scontrol", "squeue", "srun"):
            self._wrap(program)
        self.env = {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        self._configure(plugins)
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        try:
            self._start("slurmctld")
            for node in NODES:
                self.start_node(node)
            self.wait_until(
                lambda: set(self.nodes().values()) == {"IDLE"},
                30,
                "three nodes that are up",
            )
        except BaseException:
            self.close()
            raise

    def srun_prefix(self) -> str:
        """What stands before a command that is to run on some node."""
        return f"{self.folder}/bin/srun --ntasks=1 --nodes=1 --exact"

    def _wrap(self, program: str) -> None:
        """A script that runs one of Slurm's programs with what it needs, in any
        environment."""
        lines = [
            f"export {name}={shlex.quote(value)}" for name, value in self._own.items()
        ]
        script = self.folder / "bin" / program
        script.write_text(
            "\n".join(
                ["#!/bin/sh", *lines, f'exec {self.root}/usr/bin/{program} "$@"', ""]
            )
        )
        script.chmod(0o755)

    def _configure(self, plugins: Path) -> None:
        host = socket.gethostname().partition(".")[0]
        user = pwd.getpwuid(os.getuid()).pw_name
        port, *ports = free_ports(1 + len(NODES))
        said = CONFIGURATION.format(
            host=host, user=user, folder=self.folder, plugins=plugins, port=port
        )
        said += "".join(
            NODE.format(node=node, host=host, port=p)
            for node, p in zip(NODES, ports, strict=True)
        )
        (self.folder / "slurm.conf").write_text(said)

    def _start(self, name: str, *words: str, **env: str) -> None:
        """A daemon; `name` is also that of its log."""
        program = "slurmctld" if name == "slurmctld" else "slurmd"
        with (self.folder / f"{name}.log").open("ab") as log:
            self.daemons[name] = subprocess.Popen(
                [f"{self.root}/usr/sbin/{program}-wlm", "-D", *words],
                env={**os.environ, **self.env, **self._own, **env},
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True,
            )  # fmt: skip

    def start_node(self, node: str) -> None:
        self._start(
            node,
            "-N",
            node,
            "-d",
            f"{self.root}/usr/sbin/slurmstepd-wlm",
            SLURMD_NODENAME=node,
        )

    def kill_node(self, node: str) -> None:
        """End a node as a power cut does: its daemon, and all that runs there."""
        self._kill(node)

    def close(self) -> None:
        self._kill()

    def _kill(self, node: str | None = None) -> None:
        """Kill the daemons and all that they started, on one node or everywhere, until
        none is left."""
        end, looks = time.monotonic() + 10, 0
        while looks < 5:  # one that is just being started is not seen at once
            found = self.processes(node)
            assert time.monotonic() < end, f"cannot be ended: {found}"
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            for daemon in self.daemons.values():
                daemon.poll()
            looks = 0 if found else looks + 1
            time.sleep(0.05)

    def processes(self, node: str | None = None) -> list[psutil.Process]:
        """Everything of this cluster that runs, or all on one node."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                env = process.environ()
                ours = env.get("SLURM_CONF") == self._own["SLURM_CONF"]
                here = node in (None, env.get("SLURMD_NODENAME"))
                if ours and here and process.status() != psutil.STATUS_ZOMBIE:
                    found.append(process)
        return found

    def call(self, program: str, *words: str, **given: Any) -> str:
        """What one of Slurm's programs prints."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            [f"{self.folder}/bin/{program}", *words],
            env={"HOME": str(self.folder), **self.env}, capture_output=True, text=True, timeout=30, **given,
        )  # fmt: skip
        assert done.returncode == 0, (program, words, done.stderr, self.log())
        return done.stdout

    def log(self) -> str:
        """The ends of the daemons' logs."""
        return "\n".join(
            path.read_text("utf-8", "replace")[-700:]
            for path in self.folder.glob("*.log")
        )

    def nodes(self) -> dict[str, str]:
        """The state of each node."""
        return dict(
            re.findall(r"NodeName=(\S+)[^$]*?State=([A-Z]+)", self._show("node"))
        )

    def submit(self, script: str, *words: str, cwd: Path) -> str:
        """Hand a job file to sbatch, as a person does; the number of the job."""
        return self.call("sbatch", "--parsable", *words, input=script, cwd=cwd).strip()

    def job(self, number: str) -> dict[str, str]:
        """What Slurm says of a job, or of one element of an array."""
        return dict(re.findall(r"(\w+)=(\S*)", self._show("job", number)))

    def _show(self, *words: str) -> str:
        return self.call("scontrol", "show", "-o", *words)

    def wait_until(self, told: Callable[[], bool], seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        while not told():
            assert time.monotonic() < end, (
                f"waited {seconds:.0f} s for {what}\n{self.log()}"
            )
            time.sleep(0.2)

    def wait_for(self, number: str, state: str, seconds: float = 60) -> dict[str, str]:
        """Wait for a job's state, such as COMPLETED; what Slurm then says of it."""
        self.wait_until(
            lambda: self.job(number)["JobState"] == state,
            seconds,
            f"job {number} to be {state}",
        )
        return self.job(number)


def free_ports(number: int) -> list[int]:
    """Ports of this host that nobody listens on."""
    with contextlib.ExitStack() as open_ones:
        sockets = [open_ones.enter_context(socket.socket()) for _ in range(number)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in sockets]
