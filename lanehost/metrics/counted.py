"""The metrics that are counted as things happen; they are there from the start."""

from collections.abc import Callable, Mapping

from lanehost.job import Priority
from lanehost.metrics.family import Family, Kind, Samples, by_one, counter
from lanehost.metrics.tally import Histogram, Tally


def _by_priority(
    read: Callable[[Tally], Mapping[Priority, Histogram]],
) -> Callable[[Tally], Samples]:
    return lambda tally: [((one.value,), values) for one, values in read(tally).items()]


def _step_tokens(tally: Tally) -> Samples:
    return [
        (("prompt",), tally.chunk_tokens),
        (("decode",), tally.decode_tokens),
        (("draft",), tally.draft_tokens),
    ]


REQUESTS: tuple[Family[Tally], ...] = (
    Family(
        name="lanehost_requests_accepted_total",
        kind=Kind.COUNTER,
        meaning="Requests that got a place in the line.",
        labels=("priority", "scope"),
        read=lambda tally: tally.accepted.items(),
    ),
    Family(
        name="lanehost_requests_refused_total",
        kind=Kind.COUNTER,
        meaning="Requests, and other calls, that the door refused, by class of error.",
        labels=("error",),
        read=by_one(lambda tally: tally.refused),
    ),
    Family(
        name="lanehost_requests_ended_total",
        kind=Kind.COUNTER,
        meaning="Accepted requests that ended: eos, stop or length, or the class of an error.",
        labels=("ending",),
        read=by_one(lambda tally: tally.ended),
    ),
    Family(
        name="lanehost_prompt_tokens_total",
        kind=Kind.COUNTER,
        meaning="Prompt tokens of accepted requests.",
        labels=("scope",),
        read=by_one(lambda tally: tally.prompt_tokens),
    ),
    Family(
        name="lanehost_cached_tokens_total",
        kind=Kind.COUNTER,
        meaning="Prompt tokens that came from the prompt cache when a request left the line.",
        labels=("scope",),
        read=by_one(lambda tally: tally.cached_tokens),
    ),
    Family(
        name="lanehost_generated_tokens_total",
        kind=Kind.COUNTER,
        meaning="Tokens of replies, counted when the reply ends.",
        labels=("scope",),
        read=by_one(lambda tally: tally.generated_tokens),
    ),
    Family(
        name="lanehost_queue_seconds",
        kind=Kind.HISTOGRAM,
        meaning="Time from a request's arrival until it left the line for the first time.",
        labels=("priority",),
        read=_by_priority(lambda tally: tally.queue),
    ),
    Family(
        name="lanehost_time_to_first_token_seconds",
        kind=Kind.HISTOGRAM,
        meaning="Time from a request's arrival to the first token of its reply.",
        labels=("priority",),
        read=_by_priority(lambda tally: tally.first_token),
    ),
    Family(
        name="lanehost_time_per_output_token_seconds",
        kind=Kind.HISTOGRAM,
        meaning="Mean time between the tokens of a reply, one value for each reply that ended.",
        labels=("priority",),
        read=_by_priority(lambda tally: tally.output_token),
    ),
    counter(
        "lanehost_jobs_parked_total",
        "Times that a request gave its lane back for want of KV blocks.",
        lambda tally: tally.jobs_parked,
    ),
    counter(
        "lanehost_jobs_yielded_total",
        "Times that a request gave its lane to another that goes first.",
        lambda tally: tally.jobs_yielded,
    ),
    counter(
        "lanehost_jobs_carried_total",
        "Times that a request lost its lane with the rank group; it goes on in the next epoch.",
        lambda tally: tally.jobs_carried,
    ),
)

STEPS: tuple[Family[Tally], ...] = (
    counter(
        "lanehost_epochs_lost_total",
        "Times that the rank group was lost.",
        lambda tally: tally.epochs_lost,
    ),
    counter(
        "lanehost_steps_total",
        "Steps that the ranks ran.",
        lambda tally: tally.steps,
    ),
    Family(
        name="lanehost_step_tokens_total",
        kind=Kind.COUNTER,
        meaning="Tokens that steps ran: of prompts, one for each reply, and guessed ones.",
        labels=("kind",),
        read=_step_tokens,
    ),
    Family(
        name="lanehost_step_compute_seconds",
        kind=Kind.HISTOGRAM,
        meaning="Time that rank 0 computed a step.",
        read=lambda tally: [((), tally.step_compute)],
    ),
    counter(
        "lanehost_passes_total",
        "Steps that ran two or more prompts together.",
        lambda tally: tally.passes,
    ),
    counter(
        "lanehost_pass_prompts_total",
        "Prompts, or parts of one, in steps that ran two or more together.",
        lambda tally: tally.pass_prompts,
    ),
    Family(
        name="lanehost_steps_refused_total",
        kind=Kind.COUNTER,
        meaning="Steps that did not run: failed, skipped behind one that failed, or a mismatch.",
        labels=("kind",),
        read=by_one(lambda tally: tally.steps_refused),
    ),
    counter(
        "lanehost_lanes_alone_total",
        "Lanes that ran their next step alone, after a step of several had failed.",
        lambda tally: tally.lanes_alone,
    ),
    counter(
        "lanehost_draft_tokens_total",
        "Tokens that replies guessed.",
        lambda tally: tally.draft_tokens,
    ),
    counter(
        "lanehost_draft_tokens_accepted_total",
        "Guessed tokens that were right.",
        lambda tally: tally.accepted_draft_tokens,
    ),
)

RANKS: tuple[Family[Tally], ...] = (
    Family(
        name="lanehost_ranks_lost_total",
        kind=Kind.COUNTER,
        meaning="Ranks that were lost, by how that was seen.",
        labels=("cause",),
        read=by_one(lambda tally: tally.ranks_lost),
    ),
    counter(
        "lanehost_epochs_formed_total",
        "Times that the ranks formed a group: 1 when none was ever lost.",
        lambda tally: tally.epochs_formed,
    ),
    Family(
        name="lanehost_recovery_seconds",
        kind=Kind.HISTOGRAM,
        meaning="Time from the end of one rank group to the next.",
        read=lambda tally: [((), tally.recovery)],
    ),
)

COUNTED = REQUESTS + STEPS + RANKS
