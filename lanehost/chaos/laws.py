"""Judge what was seen of a run: which laws were broken, and the times; pure.

Words: a fault is *seen* when its lag is known, which is when it met a group that served. A
*recovery* is from a fault to the first token that any stream got once the next group was formed;
faults that come before that group is formed share its recovery, from the first of them on.
"""

from collections import Counter
from collections.abc import Iterable

from lanehost.chaos.resources import Holding, Usage
from lanehost.chaos.seen import Done, Seen
from lanehost.chaos.table import Fault

# How long until health says so: at once, or once it is found out that nothing is heard any more.
HEALTH_WITHIN_S = {Fault.KILL: 1.0, Fault.STOP: 2.0, Fault.RAISE: 2.0, Fault.SHAPE: 2.0}
# Those that end no epoch, if the step can be refused.
_MAY_GO_ON = (Fault.OOM, Fault.NAN)
# What one request may end with for each such fault: for want of memory, if it ran alone.
_LAWFUL = {"ReplyCorrupt": Fault.NAN, "StepFailed": Fault.OOM}
# A server under load holds a little more than an idle one; a leak grows with every fault.
_MORE_FILES, _MORE_THREADS, _MORE_BYTES = 2, 4, 96 << 20


def recoveries_s(seen: Seen) -> list[float]:
    """Time from each first fault of an epoch to the first token of the next epoch."""
    formed = [one.at_s for one in seen.said if one.name == "epoch_formed"]
    found, recovered_s = [], 0.0
    for done in seen.done:
        if done.at_s < recovered_s or not done.was_serving:
            continue
        formed_s = next((at_s for at_s in formed if at_s > done.at_s), None)
        if formed_s is None or done.fault in _MAY_GO_ON:
            continue
        token_s = next((at_s for at_s in seen.arrivals_s if at_s > formed_s), None)
        if token_s is not None:
            found.append(token_s - done.at_s)
            recovered_s = formed_s
    return found


def lags_s(seen: Seen) -> list[tuple[Done, float]]:
    """Time from each fault that met a serving group to the word of health."""
    lags = [(done, seen.health.lag_s(done.at_s)) for done in seen.done if done.was_serving]
    return [(done, lag) for done, lag in lags if lag is not None and done.fault not in _MAY_GO_ON]


def broken_laws(seen: Seen) -> list[str]:
    """Say in a line each which laws did not hold."""
    return [
        *_requests(seen),
        *_health(seen),
        *_survivors(seen),
        *_resources(seen.before, seen.after),
        *_end(seen),
    ]


def _requests(seen: Seen) -> Iterable[str]:
    if seen.num_sent != len(seen.endings) or seen.num_never_ended:
        yield f"{seen.num_sent} requests were sent, {len(seen.endings)} ended"
    unequal = sum(one.is_equal is False for one in seen.endings)
    if unequal:
        yield f"{unequal} replies are not the undisturbed ones"
    counts = Counter(one.error for one in seen.endings if one.error is not None)
    for error, count in sorted(counts.items()):
        most = sum(done.fault is _LAWFUL.get(error) for done in seen.done)
        if count > most:
            yield f"{count} requests ended with {error}, at most {most} were to"


def _health(seen: Seen) -> Iterable[str]:
    if seen.never_served_again:
        yield "the server did not serve again after the last fault"
    for fault, bound_s in HEALTH_WITHIN_S.items():
        lags = [lag for done, lag in lags_s(seen) if done.fault is fault]
        late = [lag for lag in lags if lag > bound_s]
        if late:
            yield (
                f"{len(late)} of {len(lags)} times health did not dip within {bound_s:g} s of "
                f"{fault.value}; worst {max(late):.3f} s"
            )


def _survivors(seen: Seen) -> Iterable[str]:
    """A rank that nothing was done to keeps its process: each later spawn has its fault."""
    spawns = [one for one in seen.said if one.name == "rank_spawned"]
    num_ranks = len({one.fields["rank"] for one in spawns})
    for spawn in spawns[num_ranks:]:
        rank = spawn.fields["rank"]
        former = max(s.at_s for s in spawns if s.fields["rank"] == rank and s.at_s < spawn.at_s)
        if not any(d.rank == rank and former <= d.at_s <= spawn.at_s for d in seen.done):
            lost = [
                one.fields.get("cause")
                for one in seen.said
                if one.name == "rank_lost"
                and one.fields["rank"] == rank
                and former <= one.at_s <= spawn.at_s
            ]
            when = spawn.at_s - seen.loaded_s
            yield f"rank {rank} was replaced at {when:.1f} s without a fault of its own: {lost}"


def _resources(before: Holding | None, after: Holding | None) -> Iterable[str]:
    if before is None or after is None:
        return
    for role, was in before.usages.items():
        held = after.usages.get(role)
        if held is not None:
            yield from (f"{role} holds {more}" for more in _grown(was, held))
    if names := sorted(after.shared_names - before.shared_names):
        yield f"new names in shared memory: {', '.join(names)}"


def _grown(was: Usage, held: Usage) -> Iterable[str]:
    if held.num_files > was.num_files + _MORE_FILES:
        yield f"{held.num_files} files, {was.num_files} before"
    if held.num_threads > was.num_threads + _MORE_THREADS:
        yield f"{held.num_threads} threads, {was.num_threads} before"
    if held.rss_bytes > was.rss_bytes + _MORE_BYTES:
        yield f"{held.rss_bytes >> 20} MiB, {was.rss_bytes >> 20} before"


def _end(seen: Seen) -> Iterable[str]:
    if seen.num_equal_after != seen.num_asked_after:
        yield (
            f"after all, {seen.num_equal_after} of {seen.num_asked_after} requests gave the "
            "undisturbed reply"
        )
    if seen.exit_code != 0:
        yield f"the server exited with {seen.exit_code}, not with 0"
    if seen.pids_left:
        yield f"{len(seen.pids_left)} processes are left"
    if seen.shared_left:
        yield f"names in shared memory are left: {', '.join(sorted(seen.shared_left))}"
