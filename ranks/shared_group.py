"""The collectives of ranks of one host on CPUs, in memory that they share (ADR 16).

Laws: sums are added in the order of ranks, which is that of shards: the bits of one rank
(ADR 2). No wait is longer than the time-out, and a rank that has ended or left is noticed
within a moment. Ranks that do not do the same are told so, by name; what failed once fails
from then on.

Whether all ranks can share memory is settled while they load: each makes an offer, tries those
of the others, and tells what it found; all read the same and conclude the same. They meet through
the rendezvous store.
"""

import json
import math
import os
from contextlib import ExitStack
from datetime import timedelta

import torch
from torch.distributed.distributed_c10d import Store

from ranks.abort import Abort
from ranks.errors import FellowLost, RankError, RendezvousTimedOut
from ranks.native.exchange import NativeExchange, can_exchange, exchange_bytes
from ranks.native.library import NoLibrary, open_library
from ranks.shards import Place
from ranks.shared_memory import Address, NoMemory, make_memory, open_memory, why_no_memory
from ranks.wire.messages import FOUND_KEY, OFFER_KEY

LEADER = 0
# Ranks are started together, and make their offers before they load.
OFFER_TIMEOUT_S = 300.0
_PROBE_BYTES = 4096


class Offer:
    """A little memory that the others try to open; it is there until it is closed."""

    def __init__(self, descriptor: int | None) -> None:
        """Take the descriptor of the memory, None where there is none."""
        self._descriptor = descriptor

    def close(self) -> None:
        """Give the memory back; harmless when it is done already."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is not None:
            os.close(descriptor)


def make_offer(store: Store, *, rank: int) -> Offer:
    """Tell the others whether this rank can share memory, with some for them to try."""
    reason, made = _why_not_here(), None
    if reason is None:
        try:
            made = make_memory(_PROBE_BYTES)
        except NoMemory as err:
            reason = str(err)
    text = None if made is None else made.to_text()
    store.set(OFFER_KEY.format(rank=rank), json.dumps({"memory": text, "reason": reason}))
    return Offer(None if made is None else made.descriptor)


def why_not_shared(store: Store, *, rank: int, world_size: int, timeout_s: float) -> str | None:
    """Wait for the offers of all ranks; says what speaks against sharing, None when nothing does.

    Each rank opens what the others offer and reads the secret in it: that alone proves that
    they share a kernel, a space of process ids and a user, whatever hosts and containers are
    called. Each tells what it found, and all conclude the same from that.

    Raises:
        RankError: A rank has made no offer in time.
    """
    offers = [
        json.loads(_await(store, OFFER_KEY.format(rank=one), timeout_s, of=one))
        for one in range(world_size)
    ]
    for one, offer in enumerate(offers):
        if offer["reason"] is not None:
            return f"rank {one}: {offer['reason']}"
    found = [
        None if one == rank else _why_not_opened(offer["memory"])
        for one, offer in enumerate(offers)
    ]
    store.set(FOUND_KEY.format(rank=rank), json.dumps(found))
    for one in range(world_size):
        told = json.loads(_await(store, FOUND_KEY.format(rank=one), timeout_s, of=one))
        for other, reason in enumerate(told):
            if reason is not None:
                return f"rank {one} cannot open the memory of rank {other}: {reason}"
    return None


def _why_not_opened(text: str) -> str | None:
    try:
        os.close(open_memory(Address.from_text(text), _PROBE_BYTES))
    except NoMemory as err:
        return str(err)
    return None


def memory_bytes(world_size: int) -> int:
    """Bytes that the ranks of a group share."""
    return exchange_bytes(open_library(), world_size)


def form_shared_group(
    store: Store, place: Place, *, timeout_s: float, abort: Abort
) -> "SharedGroup":
    """Meet the other ranks in memory of their own; returns when all have mapped it.

    Raises:
        FellowLost: A rank did not come in time, or has ended.
        GivenUp: This rank was told to leave.
        RankError: This rank cannot share memory.
    """
    with ExitStack() as until_met:
        try:
            descriptor = _share_memory(store, place, timeout_s, until_met)
            group = SharedGroup(
                descriptor,
                place,
                pids=_tell_pids(store, place, timeout_s),
                timeout_s=timeout_s,
                abort=abort,
            )
        except (NoLibrary, NoMemory, OSError) as err:
            raise RankError(f"rank {place.rank} cannot share memory: {err}") from err
        # The leader's descriptor is where the others find the memory: it stays until they have.
        try:
            group.all_reduce(torch.zeros(1))
        except RankError:
            group.leave()
            raise
    return group


class SharedGroup:
    """The ranks of a group, each with a thread of its own in the same memory."""

    def __init__(
        self, descriptor: int, place: Place, *, pids: list[int], timeout_s: float, abort: Abort
    ) -> None:
        """Map the memory, whose descriptor may be closed afterwards.

        Raises:
            FellowLost: Another rank has ended already.
            NoLibrary: There is no native library.
            OSError: The memory cannot be mapped.
        """
        self._place = place
        self._widths: list[int] | None = None
        with ExitStack() as held:
            watches = []
            for rank, pid in enumerate(pids):
                watches.append(-1 if rank == place.rank else _watch(rank, pid))
                if rank != place.rank:
                    held.callback(os.close, watches[-1])
            self._exchange = NativeExchange(
                open_library(), descriptor, rank=place.rank, watches=watches, timeout_s=timeout_s
            )
            held.enter_context(abort.calling(self._exchange.give_up))
            self._held = held.pop_all()

    def lend_exchange(self) -> NativeExchange:
        """Lend the memory to native code, which adds there as `all_reduce` does."""
        return self._exchange

    def all_reduce(self, tensor: torch.Tensor) -> torch.Tensor:
        """Sum float32 values over all ranks, in place where they lie in one piece.

        Raises:
            FellowLost: Another rank did not do its part.
            RankError: The values are not float32.
        """
        if tensor.dtype != torch.float32:
            raise RankError(f"ranks that share memory add float32, not {tensor.dtype}")
        total = tensor.contiguous()
        self._exchange.all_reduce(total.data_ptr(), total.numel())
        return total

    def gather_columns(self, tensor: torch.Tensor) -> torch.Tensor | None:
        """Join the last dimension over ranks on the leader; None elsewhere.

        Args:
            tensor: [rows, width]; a rank's width is the same in every call.

        Raises:
            FellowLost: Another rank did not do its part.
            RankError: The width is another than in the first call.
        """
        widths = self._agree_widths(tensor.shape[-1])
        rows = tensor.shape[:-1]
        is_leader = self._place.rank == LEADER
        joined = torch.empty((*rows, sum(widths)), dtype=tensor.dtype) if is_leader else None
        mine = tensor.contiguous()
        self._exchange.gather(
            mine.data_ptr(),
            math.prod(rows),
            [width * tensor.itemsize for width in widths],
            None if joined is None else joined.data_ptr(),
        )
        return joined

    def broadcast_ids(self, ids: torch.Tensor) -> torch.Tensor:
        """Return the leader's `ids`, int64 [n], on every rank; `n` must be the same.

        Raises:
            FellowLost: Another rank did not do its part.
        """
        heard = ids.contiguous()
        self._exchange.broadcast(heard.data_ptr(), heard.nbytes, root=LEADER)
        return heard

    def leave(self) -> None:
        """Leave without waiting for the others; who waits for this rank hears of it."""
        self._exchange.leave()
        # Nobody aborts any more behind this.
        self._held.close()
        self._exchange.close()

    def _agree_widths(self, width: int) -> list[int]:
        rank = self._place.rank
        if self._widths is None:
            widths = torch.full((self._place.world_size,), width)
            for root in range(self._place.world_size):
                one = widths[root:]
                self._exchange.broadcast(one.data_ptr(), one.itemsize, root=root)
            self._widths = widths.tolist()
        if self._widths[rank] != width:
            raise RankError(
                f"rank {rank} gathers {width} columns, it gathered {self._widths[rank]} before"
            )
        return self._widths


def _why_not_here() -> str | None:
    try:
        library = open_library()
    except NoLibrary as err:
        return f"there is no native library: {err}"
    if not can_exchange(library):
        return "the native library cannot share memory on this system"
    return why_no_memory()


def _share_memory(store: Store, place: Place, timeout_s: float, until_met: ExitStack) -> int:
    """Make the memory on the leader, open it elsewhere; returns a descriptor."""
    key, num_bytes = f"epoch{place.epoch}/memory", memory_bytes(place.world_size)
    if place.rank == LEADER:
        made = make_memory(num_bytes)
        until_met.callback(os.close, made.descriptor)
        store.set(key, made.to_text())
        return made.descriptor
    told = Address.from_text(_await(store, key, timeout_s, of=LEADER))
    try:
        descriptor = open_memory(told, num_bytes)
    except NoMemory as err:
        # Both could share memory when they made their offers: now the leader has ended or left.
        raise FellowLost(
            f"rank {place.rank} cannot share memory with rank {LEADER}: {err}", suspect=None
        ) from err
    until_met.callback(os.close, descriptor)
    return descriptor


def _watch(rank: int, pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except ProcessLookupError as err:
        raise FellowLost(f"rank {rank} has ended, in the middle of forming", suspect=rank) from err


def _tell_pids(store: Store, place: Place, timeout_s: float) -> list[int]:
    keys = [f"epoch{place.epoch}/pids/{rank}" for rank in range(place.world_size)]
    store.set(keys[place.rank], str(os.getpid()))
    return [int(_await(store, key, timeout_s, of=rank)) for rank, key in enumerate(keys)]


def _await(store: Store, key: str, timeout_s: float, *, of: int) -> bytes:
    try:
        store.wait([key], timedelta(seconds=timeout_s))
        return store.get(key)
    # The second is what torch's own stores raise.
    except (RendezvousTimedOut, RuntimeError) as err:
        raise FellowLost(
            f"rank {of} has not set {key} within {timeout_s:g} s: {err}", suspect=of
        ) from err
