"""The collectives of a group of ranks: shared memory or gloo on CPUs, NCCL on CUDA devices.

Laws: which of them it is, is settled before the group is formed, and is the same on every
rank; nobody waits for work inside a collective; every collective has a time-out, and one that
fails names who did not do its part; who waits in one is woken by an abort from another thread
(ADR 20; not tried with NCCL). There is no default process group of the interpreter: this is
an object, handed down, and it can be left and made again at another epoch.

gloo is for ranks on hosts apart, and for those that cannot share memory; the log says why.
It is bound to one address, which on one machine is loopback: its traffic is not authenticated.
"""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any, Protocol

import structlog
import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import PrefixStore, Store

from ranks.abort import Abort
from ranks.errors import BadDevice, FellowLost, GivenUp, RankError, RendezvousTimedOut
from ranks.open_sockets import NewSockets
from ranks.shards import Collective, Exchange, NoCollective, Place
from ranks.shared_group import (
    OFFER_TIMEOUT_S,
    Offer,
    form_shared_group,
    make_offer,
    memory_bytes,
    why_not_shared,
)

log = structlog.get_logger()

LEADER = 0
_PAIR = 2
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


def offer_collective(
    store: Store, device: torch.device, *, rank: int, world_size: int
) -> Offer | None:
    """Tell the other ranks what this one can, before it loads; `choose_collective` waits for it.

    The offer must stay open for as long as the process lives: who replaces a fellow tries it.
    """
    return make_offer(store, rank=rank) if _may_share(device, world_size) else None


def choose_collective(store: Store, device: torch.device, *, rank: int, world_size: int) -> str:
    """Name how the ranks of this group speak: none, shm, gloo or nccl; the same on each of them.

    Raises:
        RankError: A rank has made no offer in time.
    """
    if world_size == 1:
        return "none"
    if not _may_share(device, world_size):
        return "nccl"
    reason = why_not_shared(store, rank=rank, world_size=world_size, timeout_s=OFFER_TIMEOUT_S)
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
    store: Store,
    place: Place,
    *,
    collective: str,
    device: torch.device,
    timeout_s: float,
    abort: Abort,
) -> Group:
    """Meet the other ranks at `store`, under the epoch; returns when all are there.

    Raises:
        BadDevice: This build of torch lacks what the device needs.
        FellowLost: The ranks did not meet within the time-out.
        GivenUp: There was an abort meanwhile.
    """
    if collective == "none":
        return LoneGroup()
    if collective == "shm":
        group: Group = form_shared_group(store, place, timeout_s=timeout_s, abort=abort)
    else:
        group = _form_torch_group(
            store,
            place,
            is_gloo=collective == "gloo",
            device=device,
            timeout=timedelta(seconds=timeout_s),
            abort=abort,
        )
    log.info("group_formed", collective=collective, epoch=place.epoch, world_size=place.world_size)
    return group


def _may_share(device: torch.device, world_size: int) -> bool:
    return world_size > 1 and device.type == "cpu"


def _form_torch_group(
    store: Store,
    place: Place,
    *,
    is_gloo: bool,
    device: torch.device,
    timeout: timedelta,
    abort: Abort,
) -> "TorchGroup":
    # torch holds the C++ half of a store only: what is made here must live as long as the group.
    held = (store, PrefixStore(f"epoch{place.epoch}", store))
    connect = partial(_make_gloo if is_gloo else _make_nccl, held[1], place, timeout)
    with ExitStack() as until_left:
        try:
            if is_gloo:
                backend = _connect_gloo(connect, abort, until_left)
            else:
                backend = connect()
                until_left.enter_context(abort.calling(backend.abort))
            group = TorchGroup(backend, held, place, device=device, abort=abort)
            # NCCL connects at the first collective: meet here, not in somebody's first step.
            group.all_reduce(torch.zeros(1, device=device))
        except (FellowLost, RendezvousTimedOut, RuntimeError) as err:
            name = "gloo" if is_gloo else "nccl"
            raise FellowLost(
                f"rank {place.rank} could not meet the others over {name}: {err}",
                suspect=_only_fellow(place),
            ) from err
        group.on_leave(until_left.pop_all())
    return group


def _connect_gloo(
    connect: Callable[[], Any],  # a Backend, see TorchGroup
    abort: Abort,
    until_left: ExitStack,
) -> Any:
    """Connect in a thread, which an abort leaves behind until the time-out of gloo ends it.

    Where gloo waits for a peer to connect, nothing wakes it.
    """
    sockets = NewSockets()
    until_left.enter_context(abort.calling(sockets.shut_down))
    made: Future[Any] = Future()
    over = threading.Event()

    def run() -> None:
        try:
            made.set_result(connect())
        except Exception as err:  # noqa: BLE001 - raised where the result is asked for
            made.set_exception(err)
        over.set()

    with abort.calling(over.set):
        threading.Thread(target=run, name="gloo", daemon=True).start()
        over.wait()
    if abort.is_set:
        raise GivenUp("this rank was told to leave, while it met the others")
    sockets.settle()
    return made.result()


def _only_fellow(place: Place) -> int | None:
    """The other rank, where there is one only: the backends do not say who failed."""
    return 1 - place.rank if place.world_size == _PAIR else None


class TorchGroup:
    """The ranks of a group, over one backend of torch.distributed."""

    def __init__(
        self,
        backend: Any,  # a Backend, which has no collectives in torch's stubs
        stores: tuple[Store, ...],
        place: Place,
        *,
        device: torch.device,
        abort: Abort,
    ) -> None:
        """Take a connected backend; the stores are kept alive because it uses them."""
        self._backend = backend
        self._stores = stores
        self._place = place
        self._device = device
        self._abort = abort
        self._until_left = ExitStack()
        self._widths: list[int] | None = None

    def lend_exchange(self) -> Exchange | None:
        """None: torch.distributed is called from Python."""
        return None

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum over all ranks, in place.

        Raises:
            FellowLost: Another rank did not do its part.
            GivenUp: There was an abort meanwhile.
        """
        self._do("allreduce", [tensor])
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
        if self._place.rank != LEADER:
            self._do("gather", [], [padded], options)
            return None
        parts = [torch.empty_like(padded) for _ in widths]
        self._do("gather", [parts], [padded], options)
        columns = [part[..., :width] for part, width in zip(parts, widths, strict=True)]
        return torch.cat(columns, dim=-1)

    def broadcast_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the leader's `ids`, int64 [n], on every rank; `n` must be the same."""
        options = dist.BroadcastOptions()
        options.rootRank = LEADER
        self._do("broadcast", [ids], options)
        return ids

    def leave(self) -> None:
        """Leave without waiting for the others."""
        # Nobody aborts any more behind this.
        self._until_left.close()
        self._backend.abort()
        # With it go its threads, and the connections by which the others hear of it.
        self._backend = None

    def on_leave(self, until_left: ExitStack) -> None:
        """Close this when the group is left."""
        self._until_left = until_left

    def _do(self, name: str, *arguments: object) -> None:
        """Do one collective, and wait for its end."""
        try:
            getattr(self._backend, name)(*arguments).wait()
        except RuntimeError as err:
            if self._abort.is_set:
                raise GivenUp("this rank was told to leave, in the middle of a step") from err
            suspect = _only_fellow(self._place)
            who = "a rank" if suspect is None else f"rank {suspect}"
            raise FellowLost(
                f"{who} did not do its part of a step: {err}", suspect=suspect
            ) from err

    def _agree_widths(self, width: int) -> list[int]:
        if self._widths is None:
            mine = torch.tensor([width], dtype=torch.int64, device=self._device)
            parts = [torch.empty_like(mine) for _ in range(self._place.world_size)]
            self._do("allgather", [parts], [mine])
            self._widths = [int(part.item()) for part in parts]
        rank = self._place.rank
        if self._widths[rank] != width:
            raise RankError(
                f"rank {rank} gathers {width} columns, it gathered {self._widths[rank]} before"
            )
        return self._widths


def _make_gloo(store: Store, place: Place, timeout: timedelta) -> Any:  # see TorchGroup
    # The only way to name the interface but the environment; absent from torch's stubs (Any).
    gloo: Any = dist.ProcessGroupGloo
    network = place.network
    where = (
        {"hostname": network.host}
        if network.interface is None
        else {"interface": network.interface}
    )
    options = gloo._Options()  # noqa: SLF001 - see above
    options._devices = [gloo.create_device(**where, lazy_init=False)]  # noqa: SLF001 - see above
    options._timeout = timeout  # noqa: SLF001 - torch sets it in the same way itself
    log.info("gloo_bound", host=network.host, interface=network.interface)
    return gloo(store, place.rank, place.world_size, options)


def _make_nccl(store: Store, place: Place, timeout: timedelta) -> Any:  # see TorchGroup
    if not dist.is_nccl_available():
        raise BadDevice("this build of torch has no NCCL, which ranks on CUDA devices need")
    options = dist.ProcessGroupNCCL.Options()
    options._timeout = timeout  # noqa: SLF001 - torch sets it in the same way itself
    return dist.ProcessGroupNCCL(store, place.rank, place.world_size, options)
