"""What a long prompt does to streams that were running when it came; pure."""

from collections.abc import Sequence
from dataclasses import dataclass

from lanehost.bench.load import LongRound
from lanehost.bench.reply_times import Gap
from lanehost.bench.spread import Spread, spread_of

DEFINITIONS = {
    "before": "ITL of the running streams, of waits that began when all had their first token "
    "and ended before the long prompt was sent",
    "during": "ITL of the running streams, of waits that any part of the time falls into "
    "from when the long prompt was sent until its first token came",
    "long TTFT": "time to the first token of the long prompt itself",
    "ended early": "running streams that ended before the long prompt's first token: when "
    "there are any, raise --reply-tokens",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbed:
    """Waits of running streams before a long prompt and during it, over all rounds."""

    num_rounds: int
    before: Spread | None
    during: Spread | None
    long_ttft: Spread | None
    num_ended_early: int


def disturbed(rounds: Sequence[LongRound]) -> Disturbed:
    """Compare the waits; rounds whose long prompt failed are left out."""
    whole = [one for one in rounds if one.long.ttft_s is not None]
    return Disturbed(
        num_rounds=len(whole),
        before=spread_of([gap.length_s for one in whole for gap in gaps_before(one)]),
        during=spread_of([gap.length_s for one in whole for gap in gaps_during(one)]),
        long_ttft=spread_of([one.long.ttft_s for one in whole if one.long.ttft_s is not None]),
        num_ended_early=sum(
            reply.arrivals[-1].at_s < one.long.arrivals[0].at_s
            for one in whole
            for reply in one.running
            if reply.arrivals
        ),
    )


def gaps_before(one: LongRound) -> list[Gap]:
    """Return the waits that the long prompt had no part in."""
    begun_s = [reply.arrivals[0].at_s for reply in one.running if reply.arrivals]
    return [
        gap
        for reply in one.running
        for gap in reply.gaps
        if gap.start_s >= max(begun_s) and gap.end_s <= one.long.sent_s
    ]


def gaps_during(one: LongRound) -> list[Gap]:
    """Return the waits that overlap the time from the long prompt to its first token."""
    return [
        gap
        for reply in one.running
        for gap in reply.gaps
        if gap.end_s > one.long.sent_s and gap.start_s < one.long.arrivals[0].at_s
    ]
