"""How the process of a rank is started on this host: its command and its environment."""

import os
from dataclasses import dataclass

from lanehost.rank_group.network import is_loopback
from lanehost.rank_group.process import RankProcess
from lanehost.settings import RankPortSettings
from ranks.wire.messages import TOKEN_VARIABLE

# A rank's idle threads spin briefly and then sleep: they share the cores with the master
# (docs/performance.md has the figures). An operator's own values win.
WAIT_POLICY = {"OMP_WAIT_POLICY": "PASSIVE", "GOMP_SPINCOUNT": "1000"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Doorway:
    """What a rank of this host dials, and where its fellows of other hosts reach it."""

    master: str
    bind_host: str
    is_encrypted: bool


class RankStarter:
    """Starts ranks of one group on this host."""

    def __init__(
        self, command: tuple[str, ...], *, world_size: int, port: RankPortSettings | None
    ) -> None:
        """Take what starts a rank, and how the group speaks between hosts, if it does."""
        self._command = command
        self._world_size = world_size
        self._port = port

    async def start(self, rank: int, doorway: Doorway, *, token: str) -> RankProcess:
        """Start a process.

        Raises:
            OSError: The command cannot be started.
        """
        # A rank needs what its master was given (paths, devices), and the token.
        environment = {**WAIT_POLICY, **os.environ, TOKEN_VARIABLE: token}
        who = ("--rank", str(rank), "--world-size", str(self._world_size))
        where = ("--master", doorway.master, *self._network(doorway))
        port = self._port
        if port is not None and port.interface is not None:
            environment["NCCL_SOCKET_IFNAME"] = port.interface
        return await RankProcess.spawn(
            rank=rank, command=(*self._command, *where, *who), environment=environment
        )

    def _network(self, doorway: Doorway) -> tuple[str, ...]:
        port = self._port
        if port is None:
            return ()
        here = ranks_here(port, self._world_size)
        words = ["--bind-host", doorway.bind_host, "--ranks-here", str(here)]
        if port.interface is not None:
            words += ["--interface", port.interface]
        if doorway.is_encrypted and port.tls is not None:
            words += ["--tls", str(port.tls)]
        return tuple(words)


def ranks_here(port: RankPortSettings, world_size: int) -> int:
    """Say how many ranks share this host: what was told, or all where the master is on loopback."""
    if port.ranks_here is not None:
        return port.ranks_here
    return world_size if is_loopback(port.host) else 1
