"""Two hosts on one machine: each with a network and a space of process ids of its own.

They lie in a user namespace, so no rights are needed where the kernel lets users make those. A
pair of virtual interfaces joins them; it can be taken down, or made to lose every packet.
"""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
ADDRESSES = ("10.9.0.1", "10.9.0.2")
LINKS = ("lanehost0", "lanehost1")
NOBODY = "02:00:00:00:00:99"
_ENTER = ("nsenter", "--user", "--preserve-credentials", "--net")
_HOLD = ("--net", "--pid", "--fork", "--mount-proc", "--kill-child", "sleep", "infinity")


def has_namespaces() -> bool:
    """Say whether this machine can play two hosts."""
    if not all(map(shutil.which, ("ip", "unshare", "nsenter"))):
        return False
    made = subprocess.run(
        ["unshare", "--user", "--map-root-user", "--net", "--pid", "--fork", "--mount-proc",
         "ip", "link", "add", "name", "a0", "type", "veth", "peer", "name", "a1"],
        check=False, capture_output=True,
    )  # fmt: skip
    return made.returncode == 0


def child_of(pid: int) -> int:
    """The one child of a process, as soon as it has one."""
    until_s = time.monotonic() + 30
    while not (children := Path(f"/proc/{pid}/task/{pid}/children").read_text().split()):
        assert time.monotonic() < until_s, f"process {pid} has no child"
        time.sleep(0.01)
    return int(children[0])


class Running:
    """A command on one of the hosts."""

    def __init__(self, process: "subprocess.Popen[str]", log: Path) -> None:
        self.process = process
        self._log = log

    @property
    def pid(self) -> int:
        """Its process id, as it is seen from outside."""
        return child_of(self.process.pid)

    def log(self) -> str:
        return self._log.read_text()

    def wait_log(self, text: str, *, count: int = 1, timeout_s: float = 120) -> None:
        """Wait until its log has this so often."""
        until_s = time.monotonic() + timeout_s
        while self.log().count(text) < count:
            assert self.process.poll() is None, self.log()
            assert time.monotonic() < until_s, f"{count} times {text} is not in: {self.log()}"
            time.sleep(0.05)

    def signal(self, number: int) -> None:
        os.kill(self.pid, number)

    def ended(self, timeout_s: float = 60) -> int:
        return self.process.wait(timeout_s)

    def close(self) -> None:
        if self.process.poll() is None:
            self.signal(signal.SIGKILL)
            self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


class TwoHosts:
    """Hosts 0 and 1; a block that leaves nothing behind."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._holders: list[subprocess.Popen[bytes]] = []
        self._inner: list[int] = []
        self._running: list[Running] = []

    def __enter__(self) -> Self:
        self._hold("unshare", "--user", "--map-root-user", *_HOLD)
        self._hold(*_ENTER, "--target", str(self._inner[0]), "unshare", *_HOLD)
        self.ip(0, "link", "add", "name", LINKS[0], "type", "veth", "peer", "name", LINKS[1])
        self.ip(0, "link", "set", LINKS[1], "netns", str(self._inner[1]))
        for host, (address, link) in enumerate(zip(ADDRESSES, LINKS, strict=True)):
            self.ip(host, "address", "add", f"{address}/24", "dev", link)
            self.ip(host, "link", "set", link, "up")
            self.ip(host, "link", "set", "lo", "up")
        return self

    def __exit__(self, *_exc: object) -> None:
        for running in reversed(self._running):
            running.close()
        for holder in reversed(self._holders):
            holder.kill()
            holder.wait()

    def _hold(self, *command: str) -> None:
        holder = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        self._holders.append(holder)
        pid = holder.pid
        # Until it is `sleep`: what unshares is itself still outside.
        until_s = time.monotonic() + 30
        while Path(f"/proc/{pid}/comm").read_text() != "sleep\n":
            assert time.monotonic() < until_s
            pid = child_of(holder.pid)
            time.sleep(0.01)
        self._inner.append(pid)

    def ip(self, host: int, *args: str) -> None:
        """Run `ip` on a host; process ids are those of outside."""
        command = (*_ENTER, "--target", str(self._inner[host]), "ip", *args)
        subprocess.run(command, check=True, capture_output=True, text=True)

    def run(self, host: int, *args: str) -> Running:
        """Start `lanehost` on a host; its log goes to a file."""
        log = self._folder / f"{len(self._running)}-{args[0]}.log"
        command = (*_ENTER, "--pid", "--mount", "--target", str(self._inner[host]))
        with log.open("wb") as file:
            process = subprocess.Popen(
                [*command, "--wd=.", sys.executable, "-m", "lanehost", *args],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=file,
                text=True,
                cwd=ROOT,
            )
        self._running.append(Running(process, log))
        return self._running[-1]

    def take_down(self) -> None:
        """Unplug the cable."""
        self.ip(1, "link", "set", LINKS[1], "down")

    def bring_up(self) -> None:
        """Plug it in again."""
        self.ip(1, "link", "set", LINKS[1], "up")

    def lose_packets(self) -> None:
        """Let every packet get lost, both ways, with both ends up: it is sent to nobody."""
        for host, other in ((0, 1), (1, 0)):
            self.ip(
                host, "neighbour", "replace", ADDRESSES[other], "lladdr", NOBODY,
                "dev", LINKS[host], "nud", "permanent",
            )  # fmt: skip

    def find_packets(self) -> None:
        """Let them arrive again."""
        for host, other in ((0, 1), (1, 0)):
            self.ip(host, "neighbour", "delete", ADDRESSES[other], "dev", LINKS[host])
