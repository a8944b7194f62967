"""From the times of replies to the figures of a run, and what each figure means; pure.

Laws: only replies that ended well have times, and one that failed is never good. A figure
that nothing was measured for is None, not 0.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from lanehost.bench.reply_times import ReplyTimes
from lanehost.bench.spread import Spread, spread_of

DEFINITIONS = {
    "due": "when a request should be sent: at its arrival (open loop), or when its stream is "
    "free for it (closed loop); every time below begins there, so a client that is late "
    "does not make the server look good",
    "TTFT": "time to first token: from due until the first event with tokens is there",
    "TPOT": "time per output token: from the first event with tokens to the last, over the "
    "tokens that came after the first event; one value for each reply",
    "ITL": "inter-token latency: the wait between two events with tokens of one reply, as its "
    "reader feels it; one value for each wait. An event with several tokens ends one wait; events "
    "that come at once, as drafts make them, have waits of about 0 between them",
    "latency": "from due until the reply has ended",
    "p50, p90, p99": "the least measured value that 50, 90, 99 % of all values do not exceed",
    "tokens/s": "tokens of all replies over the span: from the first due to the last end",
    "decode tokens/s": "closed loop only: tokens that came while every stream was between its "
    "first token and its last, over the time for which that was so",
    "goodput": "requests whose TTFT is within --ttft-slo and that have no ITL above --itl-slo: "
    "as a share of all counted requests, and per second of the span; a request that failed "
    "is not good",
    "cached": "prompt tokens that the server took from its prompt cache",
    "sent late": "the longest time from due until the request was given to the client library",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Goals:
    """What a good reply keeps within."""

    ttft_s: float
    itl_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The figures of a run; DEFINITIONS says what they mean."""

    num_requests: int
    failures: dict[str, int]
    span_s: float
    num_tokens: int
    tokens_per_s: float
    decode_tokens_per_s: float | None
    ttft: Spread | None
    tpot: Spread | None
    itl: Spread | None
    latency: Spread | None
    good_share: float
    good_per_s: float
    prompt_tokens: int
    cached_tokens: int
    sent_late_s: float


def measure(replies: Sequence[ReplyTimes], goals: Goals, *, num_streams: int | None) -> Measured:
    """Measure a run of at least one request; `num_streams` is None in an open loop."""
    ended = [reply for reply in replies if reply.failure is None]
    failures = Counter(reply.failure for reply in replies if reply.failure is not None)
    span_s = max(one.ended_s for one in replies) - min(one.due_s for one in replies)
    num_good = sum(is_good(reply, goals) for reply in replies)
    num_tokens = sum(reply.num_tokens for reply in ended)
    return Measured(
        num_requests=len(replies),
        failures=dict(failures),
        span_s=span_s,
        num_tokens=num_tokens,
        tokens_per_s=num_tokens / span_s,
        decode_tokens_per_s=None if num_streams is None else decode_rate(ended, num_streams),
        ttft=spread_of(_known(reply.ttft_s for reply in ended)),
        tpot=spread_of(_known(reply.tpot_s for reply in ended)),
        itl=spread_of([gap.length_s for reply in ended for gap in reply.gaps]),
        latency=spread_of([reply.latency_s for reply in ended]),
        good_share=num_good / len(replies),
        good_per_s=num_good / span_s,
        prompt_tokens=sum(reply.prompt_tokens for reply in ended),
        cached_tokens=sum(reply.cached_tokens for reply in ended),
        sent_late_s=max(reply.sent_s - reply.due_s for reply in replies),
    )


def is_good(reply: ReplyTimes, goals: Goals) -> bool:
    """Say whether a reply kept within the goals; one without tokens had no first one."""
    return (
        reply.failure is None
        and reply.ttft_s is not None
        and reply.ttft_s <= goals.ttft_s
        and all(gap.length_s <= goals.itl_s for gap in reply.gaps)
    )


def decode_rate(replies: Iterable[ReplyTimes], num_streams: int) -> float | None:
    """Tokens per second while `num_streams` replies were past their first token.

    None when that was never so.
    """
    spoken = [reply for reply in replies if len(reply.arrivals) > 1]
    edges = sorted(
        [(reply.arrivals[0].at_s, 1) for reply in spoken]
        + [(reply.arrivals[-1].at_s, -1) for reply in spoken]
    )
    full: list[tuple[float, float]] = []
    num_running = 0
    for (at_s, change), (next_s, _) in pairwise(edges):
        num_running += change
        if num_running >= num_streams and next_s > at_s:
            full.append((at_s, next_s))
    num_tokens = sum(
        arrival.num_tokens
        for reply in spoken
        for arrival in reply.arrivals[1:]
        if any(start_s < arrival.at_s <= end_s for start_s, end_s in full)
    )
    full_s = sum(end_s - start_s for start_s, end_s in full)
    return num_tokens / full_s if full_s else None


def _known(values: Iterable[float | None]) -> list[float]:
    return [value for value in values if value is not None]
