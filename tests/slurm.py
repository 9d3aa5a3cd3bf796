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
from pathlib import Path

import psutil

PACKAGES = """slurmctld slurmd slurm-client slurm-wlm-basic-plugins libhwloc15
libjson-c5 liblz4-1 libmunge2 libnuma1 libreadline8"""
CONFIGURATION = """
ClusterName=ralph
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmUser={user}
SlurmdUser={user}
AuthType=auth/none
AuthInfo=cred_expire=5
CredType=cred/none
SlurmdTimeout=5
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
PluginDir={plugins}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool-%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd-%n.pid
SchedulerParameters=sched_interval=1,batch_sched_delay=0,bf_interval=1
NodeName=n1 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[1]}
NodeName=n2 NodeHostname={host} NodeAddr=127.0.0.1 Port={ports[2]}
PartitionName=all Nodes=n[1-2] Default=YES State=UP
"""


def unpacked() -> Path:
    """The folder with Debian's packages. OSError or CalledProcessError where they
    cannot be had."""
    home = Path(os.environ.get("RALPH_TEST_SLURM", "~/.cache/ralph-slurm")).expanduser()
    if (home / "usr/sbin/slurmctld-wlm").exists():
        return home
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as made:
        download = ["apt-get", "download", "-q", *PACKAGES.split()]
        subprocess.run(download, cwd=made, check=True, timeout=300)
        for package in Path(made).glob("*.deb"):
            unpack = ["dpkg", "-x", str(package), f"{made}/root"]
            subprocess.run(unpack, check=True, timeout=60)
        with contextlib.suppress(OSError):  # somebody else was quicker
            shutil.move(f"{made}/root", home)
    return home


class Slurm:
    """A cluster of the nodes n1 and n2, from `start` to `kill`. `env` is what a program
    needs to talk to it."""

    def __init__(self, folder: Path) -> None:
        self.root = unpacked()
        (plugins,) = self.root.glob("usr/lib/*/slurm-wlm")
        libraries = [plugins, plugins.parent, self.root / "lib" / plugins.parent.name]
        self.env = {
            "PATH": f"{self.root}/usr/bin:{os.environ['PATH']}",
            "SLURM_CONF": f"{folder}/slurm.conf",
            "LD_LIBRARY_PATH": os.pathsep.join(map(str, libraries)),
        }
        (folder / "state").mkdir(parents=True)
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

    def start(self) -> None:
        step = f"{self.root}/usr/sbin/slurmstepd-wlm"
        self._start("slurmctld", "slurmctld")
        self._start("n1", "slurmd", "-N", "n1", "-d", step)
        self._start("n2", "slurmd", "-N", "n2", "-d", step)

    def _start(self, name: str, program: str, *words: str) -> None:
        """Start a daemon; `name` is that of its log."""
        env = {**os.environ, **self.env, "SLURMD_NODENAME": name}
        words = (f"{self.root}/usr/sbin/{program}-wlm", "-D", *words)
        with (self.folder / f"{name}.log").open("ab") as log:
            daemon = subprocess.Popen(
                words, env=env, stdout=log, stderr=log, start_new_session=True
            )
        self.daemons.append(daemon)

    def kill(self, node: str = "") -> None:
        """End a node as a power cut does, with all that runs there, or the cluster."""
        looks = 0
        while looks < 5:  # one that is just being started is not seen at once
            found = self.processes(node)
            # Nobody may report how another one ended.
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.suspend()
            for process in found:
                with contextlib.suppress(psutil.Error):
                    process.kill()
            for daemon in self.daemons:
                daemon.poll()
            looks = 0 if found else looks + 1
            time.sleep(0.05)

    def processes(self, node: str) -> set[psutil.Process]:
        """Everything that runs on a node; without a node, everywhere."""
        found = set()
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                env = process.environ()
                ours = env.get("SLURM_CONF") == self.env["SLURM_CONF"]
                here = node in ("", env.get("SLURMD_NODENAME"))
                if ours and here and process.status() != psutil.STATUS_ZOMBIE:
                    found.add(process)
                    parent = process.parent()
                    # It hides its environment.
                    if parent and parent.name().startswith("slurmstepd"):
                        found.add(parent)
        return found

    def wait_for(self, job: str, state: str, seconds: float) -> dict[str, str]:
        """Wait for a job's state; what Slurm then says of the job."""
        end = time.monotonic() + seconds
        show = ["scontrol", "show", "-o", "job", job]
        while True:
            line = subprocess.check_output(show, env=self.env, text=True, timeout=30)
            told = dict(re.findall(r"(\w+)=(\S*)", line))
            if told["JobState"] == state:
                return told
            assert time.monotonic() < end, line
            time.sleep(0.2)
