"""What a rank process is told at its start; the rest comes over the stream, in `Load` and `Form`.

Only `__main__` reads argv and the environment; it builds `RankSettings`.
"""

from dataclasses import dataclass, field
from pathlib import Path

MAX_WORLD_SIZE = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class RankSettings:
    """Whom to dial, and who dials.

    `master` is HOST:PORT, `death_fd` the read end of the death pipe, `token` the secret
    that the master gave; it is kept out of the repr, so that no log shows it. `log_json`
    writes the log for machines, as the master's own is.

    `tls` is the folder of this node's certificates, None on loopback. gloo is bound to
    `interface`, or, where none is named, to the address `bind_host`. `ranks_here` is how many
    ranks share this host.
    """

    master: str
    rank: int
    world_size: int
    death_fd: int
    token: str = field(repr=False)
    log_json: bool = False
    tls: Path | None = None
    bind_host: str = "127.0.0.1"
    interface: str | None = None
    ranks_here: int | None = None

    @property
    def num_ranks_here(self) -> int:
        """Ranks that share this host: all, where nothing else is said."""
        return self.ranks_here or self.world_size

    def __post_init__(self) -> None:
        """Refuse what cannot work.

        Raises:
            ValueError: Names the setting, its value and the limit.
        """
        if not 1 <= self.world_size <= MAX_WORLD_SIZE:
            raise ValueError(f"--world-size is {self.world_size}, allowed is 1 to {MAX_WORLD_SIZE}")
        if not 0 <= self.rank < self.world_size:
            raise ValueError(f"--rank is {self.rank}, allowed is 0 to {self.world_size - 1}")
        host, _, port = self.master.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"--master is {self.master!r}, it must be HOST:PORT")
        if self.death_fd < 0:
            raise ValueError(f"--death-fd is {self.death_fd}, the least is 0")
        if not 1 <= self.num_ranks_here <= self.world_size:
            raise ValueError(
                f"--ranks-here is {self.ranks_here}, allowed is 1 to {self.world_size}"
            )
        if not self.token:
            raise ValueError("the token is empty, the master sets it in the environment")
