"""Take a reply of an earlier master up again: from its journal to a job that goes on.

Laws: it goes on from its prompt and the tokens on record, as after a parking; what is on record
is checked as a request is; one that masters died with again and again, and that never got a token
further, is given up.
"""

from collections.abc import Callable
from dataclasses import asdict

from lanehost.door.accept import accept_length, accept_sampling, check_label, check_prompt_ids
from lanehost.door.model_card import ModelCard
from lanehost.engine.reply import Reply, ReplyStep
from lanehost.engine.stops import check_stop
from lanehost.engine.stream import UnreadStream
from lanehost.engine.ticket import Ticket
from lanehost.errors import InvalidRequest, PoisonedRequest
from lanehost.job import (
    Finished,
    Job,
    PreparedImage,
    PromptImage,
    SamplingParams,
    StopParams,
    Timing,
    Usage,
)
from lanehost.journal.records import Accepted
from lanehost.journal.streams import KnownStream
from lanehost.lanes.sequence import Sequence

MAX_RECOVERIES = 3
BYTES_PER_PIXEL = 3


def readmit(
    known: KnownStream,
    *,
    card: ModelCard,
    new_reply: Callable[[StopParams, int], Reply],
    now_s: float,
) -> Ticket | Finished:
    """Return the job as it goes on, or its end, if only the word of it was lost.

    Raises:
        PoisonedRequest: too many masters have ended with it.
        InvalidRequest: it is no request to this model.
        DoesNotFit: it does not fit this server's limits.
    """
    accepted, num_recoveries = known.accepted, known.num_recoveries
    if num_recoveries > MAX_RECOVERIES:
        raise PoisonedRequest(f"{num_recoveries} masters have ended with it since its last token")
    _check(accepted, card)
    token_ids = known.token_ids
    if token_ids:
        check_prompt_ids(tuple(token_ids), vocab_size=card.vocab_size)
    reply = new_reply(accepted.stop, accepted.max_tokens)
    for token_id in token_ids:
        step = reply.push(token_id)
        if step.reason is not None:
            return _finished(accepted, step, num_tokens=reply.num_tokens)
    return Ticket(
        sequence=Sequence(_job(accepted, now_s), generated_ids=list(token_ids)),
        reply=reply,
        stream=UnreadStream(accepted.job_id),
        num_given=len(token_ids),
    )


def _check(accepted: Accepted, card: ModelCard) -> None:
    check_label(accepted.label)
    check_stop(accepted.stop, card.vocab_size)
    sampling = SamplingParams(**asdict(accepted.draw))
    accept_sampling(sampling, vocab_size=card.vocab_size, fresh_seed=0)
    check_prompt_ids(accepted.prompt_ids, vocab_size=card.vocab_size)
    accept_length(len(accepted.prompt_ids), accepted.max_tokens, card=card)
    _check_images(accepted)


def _check_images(accepted: Accepted) -> None:
    """See that images stand in the prompt, one behind the other, with all their pixels."""
    position = 0
    for number, image in enumerate(accepted.images, start=1):
        stop = image.start + image.num_tokens
        if not position <= image.start < stop <= len(accepted.prompt_ids):
            raise InvalidRequest(
                f"images[{number}]", f"its block is {image.start} to {stop}, behind {position}"
            )
        num_bytes = image.height * image.width * BYTES_PER_PIXEL
        if len(image.pixels) != num_bytes:
            raise InvalidRequest(
                f"images[{number}]", f"{len(image.pixels)} bytes of pixels, of {num_bytes}"
            )
        position = stop


def _job(accepted: Accepted, now_s: float) -> Job:
    """Return the job; the deadline went with the call that had it."""
    return Job(
        job_id=accepted.job_id,
        prompt_ids=accepted.prompt_ids,
        max_tokens=accepted.max_tokens,
        draw=accepted.draw,
        arrived_s=now_s,
        label=accepted.label,
        scope=accepted.scope,
        priority=accepted.priority,
        marks=accepted.marks,
        disk_use=accepted.disk_use,
        images=tuple(
            PromptImage(
                start=one.start,
                num_tokens=one.num_tokens,
                image=PreparedImage(
                    digest=one.digest, width=one.width, height=one.height, pixels=one.pixels
                ),
            )
            for one in accepted.images
        ),
    )


def _finished(accepted: Accepted, step: ReplyStep, *, num_tokens: int) -> Finished:
    assert step.reason is not None
    usage = Usage(
        prompt_tokens=len(accepted.prompt_ids),
        cached_tokens=0,
        completion_tokens=num_tokens,
        image_tokens=sum(one.num_tokens for one in accepted.images),
    )
    return Finished(
        reason=step.reason,
        matched=step.matched,
        usage=usage,
        timing=Timing(queue_s=0.0, prefill_s=0.0, decode_s=0.0),
    )
