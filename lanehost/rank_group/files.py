"""The files of all ranks as one: a work goes to every rank, and has one outcome (ADR 25).

Laws: the same bytes go to every rank; an outcome is told once every rank has answered that
work, whatever became of others before it; it is done only if it is on all of them, else what
the lowest rank said counts. With the epoch all that is in flight is forgotten: of a work whose
epoch has ended nothing is told, and a late answer changes nothing.
"""

from collections.abc import Callable, Sequence
from typing import assert_never

import structlog

from lanehost.disk_cache import interface
from lanehost.errors import RankGroupLost
from lanehost.rank_group.link import RankLink
from ranks.wire import file_messages as wire
from ranks.wire.codec import encode_master_message

log = structlog.get_logger()

OnOutcome = Callable[[interface.FileOutcome], None]


class GroupFiles:
    """Of one epoch; implements `lanehost.disk_cache.interface.RankFiles`."""

    def __init__(self, *, epoch: int, links: Sequence[RankLink]) -> None:
        """Send to these streams, in rank order; whoever reads them calls `take_done`."""
        self._epoch = epoch
        self._links = links
        self._on_outcome: OnOutcome | None = None
        self._answers: dict[int, dict[int, wire.FileDone]] = {}
        self._lost: RankGroupLost | None = None

    def __repr__(self) -> str:
        """Show the epoch and the works in flight, or that it is over."""
        state = f"in flight {list(self._answers)}" if self._lost is None else "LOST"
        return f"<GroupFiles epoch {self._epoch} {state}>"

    def tell(self, on_outcome: OnOutcome) -> None:
        """Have every outcome told, from the event loop."""
        self._on_outcome = on_outcome

    def start(self, work: interface.FileWork) -> None:
        """Hand a work to every rank; returns at once.

        Raises:
            RankGroupLost: The epoch has ended.
        """
        if self._lost is not None:
            raise self._lost
        assert work.order_id not in self._answers, f"work {work.order_id} on top of {self!r}"
        order = wire.FileOrder(order_id=work.order_id, epoch=self._epoch, work=_to_wire(work))
        payload = encode_master_message(order)
        self._answers[work.order_id] = {}
        for link in self._links:
            link.send(payload)

    def take_done(self, rank: int, done: wire.FileDone) -> None:
        """Take what a rank said of a work."""
        answers = self._answers.get(done.order_id)
        if done.epoch != self._epoch or answers is None or rank in answers:
            # No file is worth a group: what nobody asked for is dropped.
            log.debug("file_answer_dropped", rank=rank, order_id=done.order_id, epoch=done.epoch)
            return
        answers[rank] = done
        if len(answers) < len(self._links):
            return
        del self._answers[done.order_id]
        if self._on_outcome is not None:
            self._on_outcome(_outcome_of(done.order_id, answers))

    def lose(self, error: RankGroupLost) -> None:
        """Forget all that is in flight; nothing more is begun."""
        self._lost = error
        self._answers.clear()


def _outcome_of(order_id: int, answers: dict[int, wire.FileDone]) -> interface.FileOutcome:
    in_order = sorted(answers.items())
    num_bytes = tuple(done.num_bytes for _, done in in_order)
    seconds = max(done.took_ns for done in answers.values()) / 1e9
    for rank, done in in_order:
        if done.fault is not None:
            return interface.FileOutcome(
                order_id=order_id,
                reason=interface.FileReason(done.fault.value),
                rank=rank,
                message=done.message,
                num_bytes=num_bytes,
                seconds=seconds,
            )
    return interface.FileOutcome(order_id=order_id, num_bytes=num_bytes, seconds=seconds)


def _to_wire(work: interface.FileWork) -> wire.FileWork:
    match work:
        case interface.SaveFile():
            return wire.SaveFile(header=_header(work.header), block_ids=work.block_ids)
        case interface.CheckFile():
            return wire.CheckFile(header=_header(work.header))
        case interface.AdoptFile():
            return wire.AdoptFile(header=_header(work.header), block_ids=work.block_ids)
        case _:
            return _names_to_wire(work)


def _names_to_wire(
    work: interface.DropFile | interface.DeleteFiles | interface.SetAside | interface.SweepFiles,
) -> wire.FileWork:
    match work:
        case interface.DropFile():
            return wire.DropFile(name=_name(work.name))
        case interface.DeleteFiles():
            return wire.DeleteFiles(names=tuple(map(_name, work.names)))
        case interface.SetAside():
            return wire.SetAside(names=tuple(map(_name, work.names)))
        case interface.SweepFiles():
            return wire.SweepFiles(known=tuple(map(_name, work.known)))
        case _:
            assert_never(work)


def _header(header: interface.FileHeader) -> wire.FileHeader:
    return wire.FileHeader(
        name=_name(header.name), num_tokens=header.num_tokens, tokens_digest=header.tokens_digest
    )


def _name(name: interface.FileName) -> wire.FileName:
    return wire.FileName(layout=name.layout, key=name.key)
