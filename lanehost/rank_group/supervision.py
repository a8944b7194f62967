"""What becomes of the ranks and of their group: events in, decisions out; pure (ADR 20).

Laws: a rank is told to form only when all have loaded, and nobody is told twice for one epoch;
epochs only rise; who answered Left keeps its process; who is lost is killed before its number
is spawned again; ranks that are lost together end one epoch once; what goes wrong before the
first epoch fails the start; at one restart too many in a row the group is given up, for good.

It knows no clock: it asks for timers, and hears when one has run out.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import assert_never

from lanehost.rank_group.events import (
    ClearTimer,
    Decision,
    EndEpoch,
    EpochLost,
    Event,
    Exited,
    FailStart,
    GiveUp,
    Kill,
    KillFailed,
    LossCause,
    NoteLost,
    RankLost,
    SaidHello,
    SaidLeft,
    SaidLoaded,
    SaidReady,
    Serve,
    SetTimer,
    Spawn,
    StepFinished,
    TellForm,
    TellLeave,
    TellLoad,
    Timer,
    TimerEnded,
    Word,
)
from lanehost.rank_group.life import (
    IN_GROUP,
    LIVING,
    RANK_TRANSITIONS,
    GroupEvent,
    GroupState,
    RankEvent,
    RankState,
    next_group_state,
    next_rank_state,
)

_FIRST_BACK_OFF_S = 0.5
_MAX_BACK_OFF_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """What the machine puts up with.

    `max_restarts` losses in a row are answered with a new epoch; a row ends with a step that
    the ranks finished, or when they have served for `row_s` without a loss.
    """

    max_restarts: int
    leave_s: float = 2.0
    row_s: float = 60.0


class Supervision:
    """The machine; whoever carries its decisions out tells it all that happens."""

    def __init__(self, *, world_size: int, patience: Patience) -> None:
        """Have nothing yet; `begin` starts all ranks."""
        self._patience = patience
        self.ranks = dict.fromkeys(range(world_size), RankState.GONE)
        self.group = GroupState.STARTING
        self.epoch = 0
        self.num_in_row = 0
        self._has_served = False
        self._is_backing_off = False
        # Whose process is known to be gone, while its loss is taken: it need not be killed.
        self._exited: int | None = None
        self._decided: list[Decision] = []

    def __repr__(self) -> str:
        """Show the epoch, the group's state and each rank's."""
        ranks = ", ".join(f"{rank} {state.name}" for rank, state in self.ranks.items())
        return f"<Supervision epoch {self.epoch} {self.group.name}: {ranks}>"

    def begin(self) -> tuple[Decision, ...]:
        """Start every rank."""
        self._spawn_gone()
        return self._take_decided()

    def take(self, event: Event) -> tuple[Decision, ...]:
        """Take what happened, and say what to do, in order."""
        if self.group is not GroupState.GIVEN_UP:
            self._take(event)
        return self._take_decided()

    def _take(self, event: Event) -> None:
        match event:
            case SaidHello() | SaidLoaded() | SaidReady() | SaidLeft():
                self._take_word(event)
            case RankLost() | EpochLost() | Exited() | KillFailed():
                self._take_loss(event)
            case StepFinished():
                self.num_in_row = 0
            case TimerEnded(timer=timer):
                self._run_out(timer)
            case _:
                assert_never(event)

    def _take_word(self, event: Word) -> None:
        match event:
            case SaidHello(rank=rank):
                self._heard(rank, RankEvent.SAID_HELLO, lambda: self._decide(TellLoad(rank)))
            case SaidLoaded(rank=rank):
                self._heard(rank, RankEvent.SAID_LOADED, self._form_if_all_loaded)
            case SaidReady(rank=rank, epoch=epoch):
                self._heard(rank, RankEvent.SAID_READY, self._serve_if_all_ready, epoch)
            case SaidLeft(rank=rank, epoch=epoch):
                self._heard(rank, RankEvent.SAID_LEFT, self._form_if_all_loaded, epoch)
            case _:
                assert_never(event)

    def _take_loss(self, event: RankLost | EpochLost | Exited | KillFailed) -> None:
        match event:
            case RankLost(rank=rank, cause=cause, reason=reason):
                self._lose_ranks([rank], cause, reason)
            case EpochLost(epoch=epoch, cause=cause, reason=reason, rank=suspect):
                if epoch == self.epoch and self.group is not GroupState.RECOVERING:
                    self._end_epoch(cause, reason, rank=suspect)
            case Exited(rank=rank, reason=reason):
                self._exited = rank
                self._lose_ranks([rank], LossCause.EXITED, reason)
                self._exited = None
                self._exit(rank)
            case KillFailed(rank=rank):
                self._give_up(f"rank {rank} cannot be killed", rank)
            case _:
                assert_never(event)

    def _heard(
        self, rank: int, event: RankEvent, then: Callable[[], None], epoch: int | None = None
    ) -> None:
        """Move a rank by what it said; what it cannot say now loses it."""
        state = self.ranks[rank]
        if state not in LIVING:
            return
        if (state, event) not in RANK_TRANSITIONS or epoch not in (None, self.epoch):
            of_epoch = "" if epoch is None else f" of epoch {epoch}, due is {self.epoch},"
            reason = f"rank {rank} {event.value}{of_epoch} while it was {state.value}"
            self._lose_ranks([rank], LossCause.OUT_OF_STEP, f"out of step: {reason}")
            return
        self._fire(rank, event)
        then()

    def _form_if_all_loaded(self) -> None:
        if self._is_backing_off or self._is_any_other_than(RankState.LOADED):
            return
        self._fire_group(GroupEvent.ALL_LOADED)
        self.epoch += 1
        for rank in self.ranks:
            self._fire(rank, RankEvent.TOLD_TO_FORM)
        self._decide(ClearTimer(Timer.LEAVE), TellForm(self.epoch))

    def _serve_if_all_ready(self) -> None:
        if self._is_any_other_than(RankState.READY):
            return
        self._fire_group(GroupEvent.ALL_READY)
        self._has_served = True
        self._decide(
            ClearTimer(Timer.RECOVER),
            SetTimer(Timer.NEW_ROW, self._patience.row_s),
            Serve(self.epoch),
        )

    def _lose_ranks(self, ranks: Iterable[int], cause: LossCause, reason: str) -> None:
        """Kill ranks that live; the epoch ends, unless their loss belongs to one that has."""
        lost = {rank: self.ranks[rank] for rank in ranks if self.ranks[rank] in LIVING}
        for rank in lost:
            self._fire(rank, RankEvent.LOST)
            self._decide(NoteLost(rank, cause, reason))
            if rank != self._exited:
                self._decide(Kill(rank))
        is_known = self.group is GroupState.RECOVERING and set(lost.values()) <= {RankState.LEAVING}
        if lost and not is_known:
            self._end_epoch(cause, reason, rank=min(lost))

    def _end_epoch(self, cause: LossCause, reason: str, *, rank: int | None) -> None:
        if not self._has_served:
            self._fire_group(GroupEvent.GIVEN_UP)
            self._decide(FailStart(reason))
            return
        if self.group is GroupState.SERVING:
            self._decide(EndEpoch(self.epoch, cause, reason, rank), ClearTimer(Timer.NEW_ROW))
        self.num_in_row += 1
        if self.num_in_row > self._patience.max_restarts:
            num = self._patience.max_restarts
            self._give_up(f"{reason}; the limit is {num} restarts without a step between", rank)
            return
        self._fire_group(GroupEvent.LOST)
        self._leave_all()
        self._decide(SetTimer(Timer.RECOVER, None))
        delay_s = back_off_s(self.num_in_row)
        self._is_backing_off = delay_s > 0
        if self._is_backing_off:
            self._decide(SetTimer(Timer.BACK_OFF, delay_s))
        else:
            self._go_on()

    def _give_up(self, reason: str, rank: int | None) -> None:
        self._fire_group(GroupEvent.GIVEN_UP)
        self._decide(GiveUp(reason, rank))

    def _leave_all(self) -> None:
        in_group = [rank for rank, state in self.ranks.items() if state in IN_GROUP]
        for rank in in_group:
            self._fire(rank, RankEvent.TOLD_TO_LEAVE)
            self._decide(TellLeave(rank, self.epoch))
        if in_group:
            self._decide(SetTimer(Timer.LEAVE, self._patience.leave_s))

    def _exit(self, rank: int) -> None:
        if self.ranks[rank] is RankState.LOST and self.group is not GroupState.GIVEN_UP:
            self._fire(rank, RankEvent.EXITED)
            if not self._is_backing_off:
                self._spawn_gone()

    def _run_out(self, timer: Timer) -> None:
        match timer:
            case Timer.LEAVE:
                reason = f"said no Left within {self._patience.leave_s} s"
                self._lose_all_that({RankState.LEAVING}, LossCause.STUCK, reason)
            case Timer.BACK_OFF:
                self._is_backing_off = False
                self._go_on()
            case Timer.RECOVER:
                late = LIVING - {RankState.LOADED, RankState.READY}
                self._lose_all_that(late, LossCause.LATE, "is not ready within --load-timeout")
            case Timer.NEW_ROW:
                self.num_in_row = 0
            case _:
                assert_never(timer)

    def _lose_all_that(self, are: Iterable[RankState], cause: LossCause, reason: str) -> None:
        ranks = [rank for rank, state in self.ranks.items() if state in are]
        names = ", ".join(map(str, ranks))
        self._lose_ranks(ranks, cause, f"rank {names} {reason}")

    def _go_on(self) -> None:
        self._spawn_gone()
        self._form_if_all_loaded()

    def _spawn_gone(self) -> None:
        for rank, state in self.ranks.items():
            if state is RankState.GONE:
                self._fire(rank, RankEvent.SPAWNED)
                self._decide(Spawn(rank))

    def _is_any_other_than(self, wanted: RankState) -> bool:
        return any(state is not wanted for state in self.ranks.values())

    def _fire(self, rank: int, event: RankEvent) -> None:
        self.ranks[rank] = next_rank_state(self.ranks[rank], event)

    def _fire_group(self, event: GroupEvent) -> None:
        self.group = next_group_state(self.group, event)

    def _decide(self, *decisions: Decision) -> None:
        self._decided.extend(decisions)

    def _take_decided(self) -> tuple[Decision, ...]:
        decided, self._decided = tuple(self._decided), []
        return decided


def back_off_s(num_in_row: int) -> float:
    """How long to wait before the answer to so many losses in a row: 0, 0.5, 1, 2, 4, ... 30."""
    if num_in_row <= 1:
        return 0.0
    return min(_MAX_BACK_OFF_S, _FIRST_BACK_OFF_S * 2.0 ** (num_in_row - 2))
