"""Supervision: any events in any order, and what must hold."""

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from lanehost.rank_group.events import (
    EpochLost,
    FailStart,
    GiveUp,
    LossCause,
    RankLost,
    SaidHello,
    SaidLeft,
    SaidLoaded,
    SaidReady,
    StepFinished,
    Timer,
)
from lanehost.rank_group.life import GroupState, RankState
from lanehost.rank_group.supervision import back_off_s
from tests.support.supervised import MAX_RESTARTS, World


class AnyEvents(RuleBasedStateMachine):
    """Ranks that keep to the wire, and ones that do not; kills at any time; timers run out."""

    def __init__(self):
        super().__init__()
        self.world = World(2)

    @property
    def machine(self):
        return self.world.machine

    @rule(rank=st.sampled_from([0, 1]))
    def next_word(self, rank):
        """A rank says what is due from it; one that was told to leave leaves."""
        word = {
            RankState.STARTING: SaidHello(rank),
            RankState.LOADING: SaidLoaded(rank),
            RankState.FORMING: SaidReady(rank, self.machine.epoch),
            RankState.LEAVING: SaidLeft(rank, self.machine.epoch),
        }.get(self.machine.ranks[rank])
        if word is not None:
            self.world.tell(word)

    @rule(
        rank=st.sampled_from([0, 1]),
        make=st.sampled_from(
            [
                lambda rank, _: SaidHello(rank),
                lambda rank, _: SaidLoaded(rank),
                SaidReady,
                SaidLeft,
            ]
        ),
        epoch=st.integers(0, 4),
    )
    def any_word(self, rank, make, epoch):
        self.world.tell(make(rank, epoch))

    @rule(rank=st.sampled_from([0, 1]), cause=st.sampled_from(LossCause))
    def lose(self, rank, cause):
        self.world.tell(RankLost(rank, cause, "why"))

    @rule(rank=st.sampled_from([0, 1]))
    def exit(self, rank):
        if self.world.alive[rank]:
            self.world.exit(rank)

    @rule(behind=st.integers(0, 1))
    def lose_epoch(self, behind):
        epoch = self.machine.epoch - behind
        self.world.tell(EpochLost(epoch, LossCause.OUT_OF_STEP, "why"))

    @rule()
    def finish_step(self):
        if self.machine.group is GroupState.SERVING:
            self.world.tell(StepFinished())

    @precondition(lambda self: self.world.timers)
    @rule(data=st.data())
    def run_out(self, data):
        self.world.run_out(data.draw(st.sampled_from(sorted(self.world.timers, key=str))))

    @invariant()
    def epochs_rise_and_end_once(self):
        assert self.world.formed == sorted(set(self.world.formed))
        assert self.world.ended == self.world.served[: len(self.world.ended)]

    @invariant()
    def serving_only_when_all_are_ready(self):
        if self.machine.group is GroupState.SERVING:
            assert set(self.machine.ranks.values()) == {RankState.READY}
            assert self.world.served[-1] == self.machine.epoch

    @invariant()
    def what_is_lost_is_being_killed_and_what_lives_is_not(self):
        for rank, state in self.machine.ranks.items():
            assert (state is RankState.LOST) == (rank in self.world.dying) or self.world.end

    @invariant()
    def it_ends_before_the_first_epoch_or_at_the_limit_only(self):
        if isinstance(self.world.end, FailStart):
            assert self.world.served == []
        if isinstance(self.world.end, GiveUp):
            assert self.machine.num_in_row == MAX_RESTARTS + 1
            assert self.world.ended == self.world.served
        assert self.machine.num_in_row <= MAX_RESTARTS or self.world.end

    def teardown(self):
        """Whatever happened, ranks that behave from here on serve, unless it was given up."""
        world = self.world
        for _ in range(20):
            if world.end or self.machine.group is GroupState.SERVING:
                return
            for rank in sorted(world.dying):
                world.exit(rank)
            if Timer.BACK_OFF in world.timers:
                world.run_out(Timer.BACK_OFF)
            for rank in self.machine.ranks:
                self.next_word(rank)
        raise AssertionError(f"never serves again: {self.machine!r}")


TestAnyEvents = AnyEvents.TestCase


def test_the_back_off_doubles_up_to_half_a_minute():
    assert [back_off_s(n) for n in range(1, 10)] == [0, 0.5, 1, 2, 4, 8, 16, 30, 30]
