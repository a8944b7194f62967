"""A chaos run as lines for people and as an object for machines; pure.

The object holds every fault, every ending and every change of health, in seconds from when the
load began, so that any figure can be made again from it.
"""

from collections import Counter
from dataclasses import asdict
from typing import Any

from lanehost.bench.spread import spread_of
from lanehost.bench.tables import align, define
from lanehost.chaos.laws import broken_laws, lags_s, recoveries_s
from lanehost.chaos.resources import Holding, Usage
from lanehost.chaos.seen import ChaosRun, Seen

_DEFINITIONS = {
    "recovery": "from a fault that met a group which served to the first token that any stream "
    "got once the next group was formed; faults in between share it, and oom and nan have none",
    "health": "from such a fault to the word of health's Watch that the server does not serve",
    "equal": "tokens, text and reason of the end are those that the same request gave by itself "
    "before the first fault",
    "held": "resident memory, open files and threads, idle before the load and idle after it; a "
    "rank that was replaced is a new process",
}


def report_lines(run: ChaosRun, seen: Seen) -> list[str]:
    """Write what was done, what was seen, and which laws were broken."""
    faults = Counter(done.fault.value for done in seen.done)
    recoveries, lags = recoveries_s(seen), [lag for _, lag in lags_s(seen)]
    took = f"{run.num_streams} streams over {seen.ended_s - seen.loaded_s:.0f} s"
    return [
        f"seed {run.seed}; {took}; lanehost serve {' '.join(run.serve_args)}",
        "faults: " + (", ".join(f"{num} {name}" for name, num in faults.items()) or "none"),
        *_requests(seen),
        f"epochs: {sum(one.name == 'epoch_formed' for one in seen.said)} formed anew",
        "",
        *align([["s", "count", "p50", "p99", "most"], _row("recovery", recoveries),
                _row("health", lags)]),
        "",
        *_held(seen.before, seen.after),
        "",
        *_verdict(seen),
        *define(_DEFINITIONS),
    ]  # fmt: skip


def report_object(run: ChaosRun, seen: Seen) -> dict[str, Any]:
    """Give all of it."""
    begin_s = seen.loaded_s
    return {
        "run": {**asdict(run), "faults": [fault.value for fault in run.faults]},
        "broken_laws": broken_laws(seen),
        "duration_s": seen.ended_s - begin_s,
        "requests": {
            "sent": seen.num_sent,
            "ended": len(seen.endings),
            "equal": sum(one.is_equal is True for one in seen.endings),
            "errors": Counter(one.error for one in seen.endings if one.error is not None),
            "after": {"asked": seen.num_asked_after, "equal": seen.num_equal_after},
        },
        "recoveries_s": recoveries_s(seen),
        "faults": [
            {
                "at_s": done.at_s - begin_s,
                "fault": done.fault.value,
                "rank": done.rank,
                "was_serving": done.was_serving,
                "health_s": seen.health.lag_s(done.at_s),
            }
            for done in seen.done
        ],
        "health": [(at_s - begin_s, is_serving) for at_s, is_serving in seen.health.changes],
        "endings": [
            asdict(one) | {"sent_s": one.sent_s - begin_s, "ended_s": one.ended_s - begin_s}
            for one in seen.endings
        ],
        "held": [
            {"at_s": at_s - begin_s, **{role: _held_by(use) for role, use in one.usages.items()}}
            for at_s, one in seen.samples
        ],
        "log": [
            {"at_s": one.at_s - begin_s, "event": one.name, **_told(one.fields)}
            for one in seen.said
            if one.name in _TOLD
        ],
        "exit_code": seen.exit_code,
    }


_TOLD = ("rank_lost", "epoch_ended", "epoch_formed", "rank_spawned", "rank_exited", "epoch_broken")


def _told(fields: Any) -> dict[str, Any]:
    return {key: fields[key] for key in fields if key not in ("event", "level", "timestamp")}


def _requests(seen: Seen) -> list[str]:
    equal = sum(one.is_equal is True for one in seen.endings)
    complete = sum(one.error is None for one in seen.endings)
    errors = Counter(one.error for one in seen.endings if one.error is not None)
    told = "".join(f", {num} {name}" for name, num in sorted(errors.items()))
    tokens = sum(one.num_tokens for one in seen.endings)
    counts = f"{seen.num_sent} sent, {complete} complete, {equal} equal{told}"
    return [f"requests: {counts}; {tokens} tokens"]


def _row(name: str, values: list[float]) -> list[str]:
    found = spread_of(values)
    if found is None:
        return [name, "0", "-", "-", "-"]
    return [name, str(found.count), *(f"{s:.3f}" for s in (found.p50, found.p99, found.most))]


def _held(before: Holding | None, after: Holding | None) -> list[str]:
    if before is None or after is None:
        return ["held: not seen to the end"]
    rows = [["held", "MiB", "files", "threads", "MiB after", "files", "threads"]]
    for role, was in before.usages.items():
        now = after.usages.get(role)
        rows.append([role, *_cells(was), *(["-"] * 3 if now is None else _cells(now))])
    names = len(before.shared_names), len(after.shared_names)
    return [*align(rows), f"names in shared memory: {names[0]} before, {names[1]} after"]


def _held_by(usage: Usage) -> dict[str, Any]:
    return asdict(usage) | {"shared_names": sorted(usage.shared_names)}


def _cells(usage: Usage) -> list[str]:
    return [str(usage.rss_bytes >> 20), str(usage.num_files), str(usage.num_threads)]


def _verdict(seen: Seen) -> list[str]:
    broken = broken_laws(seen)
    if not broken:
        return ["Every law held."]
    return ["Broken:", *(f"  {law}" for law in broken)]
