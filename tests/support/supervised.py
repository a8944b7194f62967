"""Does what supervision decides, with ranks that a test moves; checks laws as it goes."""

from lanehost.rank_group.events import (
    ClearTimer,
    EndEpoch,
    Exited,
    FailStart,
    GiveUp,
    Kill,
    SaidHello,
    SaidLeft,
    SaidLoaded,
    SaidReady,
    Serve,
    SetTimer,
    Spawn,
    TellForm,
    TellLeave,
    TellLoad,
    TimerEnded,
)
from lanehost.rank_group.supervision import Patience, Supervision

MAX_RESTARTS = 3


class World:
    """Does what is decided, with ranks that the test moves; checks the laws as it goes."""

    def __init__(self, world_size, *, max_restarts=MAX_RESTARTS):
        patience = Patience(max_restarts=max_restarts)
        self.machine = Supervision(world_size=world_size, patience=patience)
        self.alive = dict.fromkeys(range(world_size), False)
        self.num_spawned = dict.fromkeys(range(world_size), 0)
        self.dying = set()
        self.timers = {}
        self.formed = []
        self.served = []
        self.ended = []
        self.end = None
        self.do(self.machine.begin())

    def tell(self, event):
        decisions = self.machine.take(event)
        self.do(decisions)
        return decisions

    def do(self, decisions):
        for decision in decisions:
            assert self.end is None, f"{decision} after {self.end}"
            if isinstance(decision, FailStart | GiveUp):
                self.end = decision
            self.do_with_rank(decision)
            self.do_with_epoch(decision)
            self.do_with_timer(decision)

    def do_with_rank(self, decision):
        match decision:
            case Spawn(rank=rank):
                assert not self.alive[rank], "spawned beside one that lives"
                self.alive[rank] = True
                self.num_spawned[rank] += 1
            case Kill(rank=rank):
                assert rank not in self.dying, "killed twice"
                self.dying.add(rank)
            case TellLoad(rank=rank) | TellLeave(rank=rank):
                assert self.alive[rank]
                assert rank not in self.dying

    def do_with_epoch(self, decision):
        match decision:
            case TellForm(epoch=epoch):
                assert epoch > max(self.formed, default=0)
                assert all(self.alive.values())
                assert not self.dying
                self.formed.append(epoch)
            case TellLeave(epoch=epoch):
                assert epoch == self.formed[-1]
            case Serve(epoch=epoch):
                assert epoch == self.formed[-1]
                self.served.append(epoch)
            case EndEpoch(epoch=epoch):
                assert epoch == self.served[-1]
                assert epoch not in self.ended
                self.ended.append(epoch)

    def do_with_timer(self, decision):
        match decision:
            case SetTimer(timer=timer, delay_s=delay_s):
                self.timers[timer] = delay_s
            case ClearTimer(timer=timer):
                self.timers.pop(timer, None)

    def exit(self, rank):
        self.alive[rank] = False
        self.dying.discard(rank)
        return self.tell(Exited(rank, f"rank {rank} ended"))

    def run_out(self, timer):
        del self.timers[timer]
        return self.tell(TimerEnded(timer))

    def load(self, *ranks):
        for rank in ranks:
            self.tell(SaidHello(rank))
            self.tell(SaidLoaded(rank))

    def ready(self, *ranks):
        for rank in ranks:
            self.tell(SaidReady(rank, self.machine.epoch))

    def left(self, *ranks):
        for rank in ranks:
            self.tell(SaidLeft(rank, self.machine.epoch))


def serving(world_size=2, **patience):
    world = World(world_size, **patience)
    world.load(*range(world_size))
    world.ready(*range(world_size))
    assert world.served == [1]
    return world
