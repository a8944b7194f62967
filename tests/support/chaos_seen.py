"""A chaos run as it might have been seen: one rank killed at 10 s, a new group at 15 s."""

from lanehost.chaos.health import HealthSeen
from lanehost.chaos.resources import Holding, Usage
from lanehost.chaos.seen import ChaosRun, Done, Seen
from lanehost.chaos.served import Said
from lanehost.chaos.streams import Ending
from lanehost.chaos.table import Fault

RUN = ChaosRun(
    serve_args=("--tp", "2"),
    tp=2,
    faults=(Fault.KILL,),
    duration_s=30.0,
    max_faults=None,
    num_streams=2,
    num_asked=2,
    pause_s=1.0,
    seed=5,
)


def said(at_s, name, **fields):
    return Said(at_s=at_s, name=name, fields=fields)


def holding(*, rss_bytes=100 << 20, num_files=10, num_threads=10, names=frozenset()):
    usage = Usage(
        rss_bytes=rss_bytes, num_files=num_files, num_threads=num_threads, shared_names=names
    )
    return Holding(usages={"master": usage})


def seen_of() -> Seen:
    health = HealthSeen()
    health.changes = [(0.5, True), (10.5, False), (15.0, True)]
    return Seen(
        started_s=0.0,
        loaded_s=1.0,
        ended_s=31.0,
        done=[Done(at_s=10.0, fault=Fault.KILL, rank=0, was_serving=True)],
        health=health,
        said=[
            said(0.1, "rank_spawned", rank=0, pid=1),
            said(0.2, "rank_spawned", rank=1, pid=2),
            said(10.1, "rank_lost", rank=0, cause="exited"),
            said(10.2, "rank_spawned", rank=0, pid=3),
            said(15.0, "epoch_formed", epoch=2, recovery_s=4.5),
        ],
        endings=[
            Ending(number=number, sent_s=2.0, ended_s=20.0, num_tokens=8, is_equal=True)
            for number in range(2)
        ],
        arrivals_s=[2.0, 10.05, 15.5, 16.0, 20.0],
        samples=[(2.0, holding()), (4.0, holding())],
        num_sent=2,
        num_asked_after=2,
        num_equal_after=2,
        before=holding(),
        after=holding(num_files=11),
        exit_code=0,
    )
