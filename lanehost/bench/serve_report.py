"""A run against a server as lines for people and as an object for machines; pure.

The object holds every arrival of every reply, so that any figure can be made again from it.
"""

from dataclasses import asdict
from typing import Any

from lanehost.bench import long_prompt, measured
from lanehost.bench.long_prompt import Disturbed, disturbed
from lanehost.bench.measured import Measured, measure
from lanehost.bench.reply_times import ReplyTimes
from lanehost.bench.scenarios import ServeBench, Served
from lanehost.bench.spread import Spread
from lanehost.bench.tables import align, define, milliseconds
from lanehost.door.model_card import ModelCard

_MICROSECONDS = 6
_HEAD = ["ms", "count", "mean", "p50", "p90", "p99", "most"]


def report_lines(bench: ServeBench, served: Served, card: ModelCard) -> list[str]:
    """Write the figures of a run, and what they mean."""
    found = measure(served.replies, bench.goals, num_streams=bench.num_streams)
    rows = [
        _HEAD,
        _times("TTFT", found.ttft),
        _times("TPOT", found.tpot),
        _times("ITL", found.itl),
        _times("latency", found.latency),
    ]
    ranks = f"{card.world_size} rank{'s' if card.world_size > 1 else ''}"
    model = f"{card.name}, {card.dtype}, {ranks}, {card.num_lanes} lanes"
    lines = [f"{model}; lanehost {card.version}", _what(bench), ""]
    definitions = dict(measured.DEFINITIONS)
    if served.rounds:
        found_long = disturbed(served.rounds)
        rows += [
            _times("before", found_long.before),
            _times("during", found_long.during),
            _times("long TTFT", found_long.long_ttft),
        ]
        definitions |= long_prompt.DEFINITIONS
        lines += [*align(rows), *_long_lines(found_long), *_counts(found, bench)]
    else:
        lines += [*align(rows), *_counts(found, bench)]
    return lines + define(definitions)


def report_object(bench: ServeBench, served: Served, card: ModelCard) -> dict[str, Any]:
    """Give the figures of a run, what was asked for, and every arrival."""
    found = measure(served.replies, bench.goals, num_streams=bench.num_streams)
    model = asdict(card)
    model.pop("default_sampling")
    replies = [*served.replies, *(one.long for one in served.rounds)]
    begin_s = min(reply.due_s for reply in replies)
    return {
        "model": model,
        "bench": {**asdict(bench), "scenario": bench.scenario.value},
        "figures": asdict(found),
        "long_prompt": asdict(disturbed(served.rounds)) if served.rounds else None,
        "definitions": {
            **measured.DEFINITIONS,
            **(long_prompt.DEFINITIONS if served.rounds else {}),
        },
        "replies": [_reply_object(reply, begin_s) for reply in served.replies],
        "long_replies": [_reply_object(one.long, begin_s) for one in served.rounds],
    }


def _what(bench: ServeBench) -> str:
    prompt = "/".join(map(str, bench.lengths.prompt))
    reply = "/".join(map(str, bench.lengths.reply))
    usual = f"prompts of {prompt} tokens, replies of {reply}"
    how = {
        "closed": f"{bench.num_streams} streams, {usual}",
        "poisson": f"{bench.rate:g} requests/s at random, {usual}" if bench.rate else "",
        "shared-prefix": f"{bench.num_streams} streams, {bench.prefix_tokens} tokens before "
        f"every prompt, {usual}",
        "long-prompt": f"a prompt of {bench.long_tokens} tokens among {bench.num_streams} "
        f"streams, {usual}",
    }
    return f"{bench.scenario.value}: {how[bench.scenario.value]}; seed {bench.seed}"


def _times(name: str, spread: Spread | None) -> list[str]:
    if spread is None:
        return [name, "0", *["-"] * (len(_HEAD) - 2)]
    times = (spread.mean, spread.p50, spread.p90, spread.p99, spread.most)
    return [name, str(spread.count), *map(milliseconds, times)]


def _counts(found: Measured, bench: ServeBench) -> list[str]:
    decode = found.decode_tokens_per_s
    goals = bench.goals
    within = f"TTFT within {goals.ttft_s:g} s, every ITL within {goals.itl_s:g} s"
    failed = ", ".join(f"{count} {name}" for name, count in sorted(found.failures.items()))
    lines = [
        "",
        f"{found.num_requests} requests in {found.span_s:.2f} s, failed: {failed or 'none'}",
        f"{found.tokens_per_s:.1f} tokens/s"
        + ("" if decode is None else f", {decode:.1f} decode tokens/s"),
        f"goodput: {found.good_share:.1%}, {found.good_per_s:.2f} requests/s ({within})",
        f"cached: {found.cached_tokens} of {found.prompt_tokens} prompt tokens",
    ]
    if bench.rate is not None:
        lines.append(f"sent late: {milliseconds(found.sent_late_s)} ms at most")
    return lines


def _long_lines(found: Disturbed) -> list[str]:
    lines = [""]
    if found.before is not None and found.during is not None:
        ratio = found.during.p99 / found.before.p99 if found.before.p99 else float("inf")
        lines.append(
            f"ITL p99 {milliseconds(found.before.p99)} ms before, {milliseconds(found.during.p99)} "
            f"ms during a long prompt: {ratio:.2f} times"
        )
    if found.num_ended_early:
        lines.append(f"ended early: {found.num_ended_early} streams; raise --reply-tokens")
    return lines


def _reply_object(reply: ReplyTimes, begin_s: float) -> dict[str, Any]:
    return {
        "due_s": _rounded(reply.due_s - begin_s),
        "sent_s": _rounded(reply.sent_s - begin_s),
        "ended_s": _rounded(reply.ended_s - begin_s),
        "arrivals": [[_rounded(one.at_s - begin_s), one.num_tokens] for one in reply.arrivals],
        "prompt_tokens": reply.prompt_tokens,
        "cached_tokens": reply.cached_tokens,
        "failure": reply.failure,
    }


def _rounded(seconds: float) -> float:
    return round(seconds, _MICROSECONDS)
