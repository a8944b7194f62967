"""The collectives of a group of ranks: shared memory or gloo on CPUs, NCCL on CUDA devices.

Laws: which of them it is, is settled before the group is formed, and is the same on every
rank; nobody waits for work inside a collective; every collective has a time-out, and one
that fails ends the rank. There is no default process group of the interpreter: this is an
object, handed down, and it can be left and made again at another epoch.

gloo is for ranks on hosts apart, and for those that cannot share memory; the log says why.
On one machine gloo speaks over loopback only: its traffic is not authenticated.
"""

from datetime import timedelta
from typing import Any, Protocol

import structlog
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from ranks.errors import BadDevice, RankError
from ranks.shards import Collective, Exchange, NoCollective, Place
from ranks.shared_group import (
    OFFER_TIMEOUT_S,
    form_shared_group,
    make_offer,
    memory_bytes,
    why_not_shared,
)

log = structlog.get_logger()

LEADER = 0
_LOOPBACK = "127.0.0.1"
# NCCL allocates its channels when it connects, after the pool was chosen. Not measured
# here: a generous guess for two ranks of one machine.
_NCCL_BYTES = 1 << 30


class Group(Collective, Protocol):
    """A collective that can be left."""

    def leave(self) -> None:
        """Leave without waiting for the others."""
        ...


class LoneGroup(NoCollective):
    """The group of a world of one rank."""

    def leave(self) -> None:
        """There is nobody to leave."""


def offer_collective(store: Store, device: torch.device, *, rank: int, world_size: int) -> None:
    """Tell the other ranks what this one can, before it loads; `choose_collective` waits for it."""
    if _may_share(device, world_size):
        make_offer(store, rank=rank)


def choose_collective(store: Store, device: torch.device, *, world_size: int) -> str:
    """Name how the ranks of this group speak: none, shm, gloo or nccl; the same on each of them.

    Raises:
        RankError: A rank has made no offer in time.
    """
    if world_size == 1:
        return "none"
    if not _may_share(device, world_size):
        return "nccl"
    reason = why_not_shared(store, world_size=world_size, timeout_s=OFFER_TIMEOUT_S)
    if reason is None:
        return "shm"
    log.warning("memory_not_shared", reason=reason, instead="gloo")
    return "gloo"


def collective_bytes(collective: str, world_size: int) -> int:
    """Bytes that a collective takes on the device for its own buffers."""
    if collective == "shm":
        return memory_bytes(world_size)
    return _NCCL_BYTES if collective == "nccl" else 0


def form_group(
    store: Store, place: Place, *, collective: str, device: torch.device, timeout_s: float
) -> Group:
    """Meet the other ranks at `store`, under the epoch; returns when all are there.

    Raises:
        BadDevice: This build of torch lacks what the device needs.
        RankError: The ranks did not meet within the time-out.
    """
    if collective == "none":
        return LoneGroup()
    if collective == "shm":
        group: Group = form_shared_group(store, place, timeout_s=timeout_s)
    else:
        group = _form_torch_group(
            store, place, collective=collective, device=device, timeout_s=timeout_s
        )
    log.info("group_formed", collective=collective, epoch=place.epoch, world_size=place.world_size)
    return group


def _may_share(device: torch.device, world_size: int) -> bool:
    return world_size > 1 and device.type == "cpu"


def _form_torch_group(
    store: Store, place: Place, *, collective: str, device: torch.device, timeout_s: float
) -> "TorchGroup":
    rank, world_size = place.rank, place.world_size
    make = _make_nccl if collective == "nccl" else _make_gloo
    # torch holds the C++ half of a store only: what is made here must live as long as the group.
    held = (store, PrefixStore(f"epoch{place.epoch}", store))
    try:
        backend = make(held[1], rank, world_size, timedelta(seconds=timeout_s))
        group = TorchGroup(backend, held, rank=rank, world_size=world_size, device=device)
        # NCCL connects at the first collective: meet here, not in somebody's first step.
        group.all_reduce(torch.zeros(1, device=device))
    except RuntimeError as err:
        raise RankError(f"rank {rank} could not meet the others over {collective}: {err}") from err
    return group


class TorchGroup:
    """The ranks of a group, over one backend of torch.distributed."""

    def __init__(
        self,
        backend: Any,  # a Backend, which has no collectives in torch's stubs
        stores: tuple[Store, ...],
        *,
        rank: int,
        world_size: int,
        device: torch.device,
    ) -> None:
        """Take a connected backend; the stores are kept alive because it uses them."""
        self._backend = backend
        self._stores = stores
        self._rank = rank
        self._world_size = world_size
        self._device = device
        self._widths: list[int] | None = None

    def lend_exchange(self) -> Exchange | None:
        """None: torch.distributed is called from Python."""
        return None

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over all ranks, in place."""
        self._backend.allreduce([tensor]).wait()
        return tensor

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Join the last dimension over ranks on the leader; None elsewhere.

        Args:
            tensor: [rows, width]; a rank's width is the same in every call.

        Raises:
            RankError: The width is another than in the first call.
        """
        widths = self._agree_widths(tensor.shape[-1])
        # The backends gather equal shapes only, so all send as much as the widest.
        widest = max(widths)
        padded = torch.nn.functional.pad(tensor, (0, widest - tensor.shape[-1])).contiguous()
        options = dist.GatherOptions()
        options.rootRank = LEADER
        if self._rank != LEADER:
            self._backend.gather([], [padded], options).wait()
            return None
        parts = [torch.empty_like(padded) for _ in widths]
        self._backend.gather([parts], [padded], options).wait()
        columns = [part[..., :width] for part, width in zip(parts, widths, strict=True)]
        return torch.cat(columns, dim=-1)

    def broadcast_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the leader's `ids`, int64 [n], on every rank; `n` must be the same."""
        options = dist.BroadcastOptions()
        options.rootRank = LEADER
        self._backend.broadcast([ids], options).wait()
        return ids

    def leave(self) -> None:
        """Leave without waiting for the others."""
        self._backend.abort()

    def _agree_widths(self, width: int) -> list[int]:
        if self._widths is None:
            mine = torch.tensor([width], dtype=torch.int64, device=self._device)
            parts = [torch.empty_like(mine) for _ in range(self._world_size)]
            self._backend.allgather([parts], [mine]).wait()
            self._widths = [int(part.item()) for part in parts]
        if self._widths[self._rank] != width:
            raise RankError(
                f"rank {self._rank} gathers {width} columns, "
                f"it gathered {self._widths[self._rank]} before"
            )
        return self._widths


def _make_gloo(
    store: Store, rank: int, world_size: int, timeout: timedelta
) -> Any:  # a Backend, see TorchGroup
    # The only way to name the interface but the environment; absent from torch's stubs (Any).
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()  # noqa: SLF001 - see above
    options._devices = [  # noqa: SLF001 - see above
        gloo.create_device(hostname=_LOOPBACK, lazy_init=False)
    ]
    options._timeout = timeout  # noqa: SLF001 - torch sets it in the same way itself
    log.info("gloo_bound", host=_LOOPBACK)
    return gloo(store, rank, world_size, options)


def _make_nccl(
    store: Store, rank: int, world_size: int, timeout: timedelta
) -> Any:  # a Backend, see TorchGroup
    if not dist.is_nccl_available():
        raise BadDevice("this build of torch has no NCCL, which ranks on CUDA devices need")
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout  # noqa: SLF001 - torch sets it in the same way itself
    return dist.ProcessGroupNCCL(store, rank, world_size, options)
