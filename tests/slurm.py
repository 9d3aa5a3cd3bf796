"""A real Slurm for tests: a controller and two nodes on this host, from Debian's
packages, which are downloaded and unpacked once, and not installed. It needs no root.

They go to ~/.cache/ralph-slurm, or where RALPH_TEST_SLURM says.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import re
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import psutil

PACKAGES = (
    "slurmctld", "slurmd", "slurm-client", "slurm-wlm-basic-plugins", "libhwloc15", "libjson-c5",
    "liblz4-1", "libmunge2", "libnuma1", "libreadline8",
)  # fmt: skip
# A node has one CPU, so that two jobs need two nodes.
CONFIGURATION = """
ClusterName=ralph
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
MpiDefault=none
SlurmdParameters=config_overrides
SlurmdTimeout=5
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
KillWait=2
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]} CPUs=1
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]} CPUs=1
PartitionName=all Nodes=n[1-2] Default=YES State=UP
"""


def unpacked() -> Path:
    """The folder with Debian's packages. OSError or CalledProcessError where they
    cannot be had."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    home = Path(os.environ.get("RALPH_TEST_SLURM") or Path(cache) / "ralph-slurm")
    if (home / "usr/sbin/slurmctld-wlm").exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as made:
        download = ["apt-get", "download", "-q", *PACKAGES]
        subprocess.run(download, cwd=made, check=True, timeout=300)
        for package in Path(made).glob("*.deb"):
            unpack = ["dpkg", "-x", str(package), f"{made}/root"]
            subprocess.run(unpack, check=True, timeout=60)
        with contextlib.suppress(OSError):  # somebody else was quicker
            shutil.move(f"{made}/root", home)
    return home


class Slurm:
    """A cluster of the nodes n1 and n2 in `folder`; `close` ends it. `env` is what a
    program needs to talk to it."""

    def __init__(self, folder: Path) -> None:
        self.root = unpacked()
        (plugins,) = self.root.glob("usr/lib/*/slurm-wlm")
        libraries = [plugins, plugins.parent, self.root / "lib" / plugins.parent.name]
        self.env = {
            "PATH": f"{self.root}/usr/bin:{os.environ['PATH']}",
            "SLURM_CONF": f"{folder}/slurm.conf",
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        }
        (folder / "state").mkdir()
        self.folder = folder
        host = socket.gethostname().partition(".")[0]
        user = pwd.getpwuid(os.getuid()).pw_name
        with contextlib.ExitStack() as stack:
            sockets = [stack.enter_context(socket.socket()) for _ in range(3)]
            for one in sockets:
                one.bind(("127.0.0.1", 0))
            ports = [one.getsockname()[1] for one in sockets]
        (folder / "slurm.conf").write_text(CONFIGURATION.format(**locals()))
        self.daemons: list[subprocess.Popen[bytes]] = []
        self._start("slurmctld")
        self.start_node("n1")
        self.start_node("n2")

    def _start(self, program: str, *words: str, **env: str) -> None:
        with (self.folder / f"{program}{''.join(words[1:2])}.log").open("ab") as log:
            daemon = subprocess.Popen(
                [f"{self.root}/usr/sbin/{program}-wlm", "-D", *words],
                env={**os.environ, **self.env, **env},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.daemons.append(daemon)

    def start_node(self, node: str) -> None:
        step = f"{self.root}/usr/sbin/slurmstepd-wlm"
        self._start("slurmd", "-N", node, "-d", step, SLURMD_NODENAME=node)

    def kill(self, node: str = "") -> None:
        """End a node as a power cut does, with all that runs there, or the cluster."""
        looks = 0
        while looks < 5:  # one that is just being started is not seen at once
            looks += 1
            for process in psutil.process_iter():
                with contextlib.suppress(psutil.Error, OSError):
                    env = process.environ()
                    ours = env.get("SLURM_CONF") == self.env["SLURM_CONF"]
                    here = not node or env.get("SLURMD_NODENAME") == node
                    if ours and here and process.status() != psutil.STATUS_ZOMBIE:
                        process.kill()
                        looks = 0
            for daemon in self.daemons:
                daemon.poll()
            time.sleep(0.05)

    def call(self, *words: str) -> str:
        """What one of Slurm's programs prints."""
        env = {**os.environ, **self.env}
        done = subprocess.run(
            words, env=env, capture_output=True, text=True, timeout=30
        )
        assert done.returncode == 0, (words, done.stderr, self.log())
        return done.stdout

    def log(self) -> str:
        ends = [
            path.read_text("utf-8", "replace")[-900:]
            for path in self.folder.glob("*.log")
        ]
        return "\n".join(ends)

    def job(self, number: str) -> dict[str, str]:
        """What Slurm says of a job."""
        return dict(
            re.findall(
                r"(\w+)=(\S*)", self.call("scontrol", "show", "-o", "job", number)
            )
        )

    def wait_until(self, told: Callable[[], bool], seconds: float, what: str) -> None:
        end = time.monotonic() + seconds
        while not told():
            assert time.monotonic() < end, (
                f"waited {seconds} s for {what}\n{self.log()}"
            )
            time.sleep(0.2)
