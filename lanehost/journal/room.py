"""What is written of an accepted request, and the room that its reply can ever take. Pure."""

from lanehost.job import Job, StopParams
from lanehost.journal.records import Accepted, JournalImage
from lanehost.journal.streams import KnownStream

# What a token can take at most, in a record of its own; and an end without its stop string.
TOKEN_ROOM_BYTES = 64
END_ROOM_BYTES = 512
# An accepted request, without its lists and texts.
RECORD_ROOM_BYTES = 1024
# An image, without its pixels.
IMAGE_ROOM_BYTES = 256


def accepted_of(job: Job, stop: StopParams, number: int) -> Accepted:
    """Return the record of an accepted job; `number` stands for it in those behind."""
    return Accepted(
        number=number,
        job_id=job.job_id,
        scope=job.scope,
        label=job.label,
        priority=job.priority,
        prompt_ids=job.prompt_ids,
        marks=job.marks,
        max_tokens=job.max_tokens,
        draw=job.draw,
        stop=stop,
        disk_use=job.disk_use,
        images=tuple(
            JournalImage(
                start=one.start,
                num_tokens=one.num_tokens,
                digest=one.image.digest,
                width=one.image.width,
                height=one.image.height,
                pixels=one.image.pixels,
            )
            for one in job.images
        ),
    )


def record_room_of(job: Job, stop: StopParams) -> int:
    """Return what the record of an accepted job can take at most."""
    numbers = len(job.prompt_ids) + len(job.marks) + len(stop.token_ids)
    texts = sum(4 * len(one) for one in (*stop.strings, job.label, job.scope, job.job_id))
    images = sum(IMAGE_ROOM_BYTES + len(one.image.pixels) for one in job.images)
    return 9 * numbers + texts + images + RECORD_ROOM_BYTES


def reply_room_of(job: Job, stop: StopParams) -> int:
    """Return what the reply of an accepted job can ever append."""
    return job.max_tokens * TOKEN_ROOM_BYTES + _end_room_of(stop)


def room_left_of(stream: KnownStream) -> int:
    """Return what an open reply can still append."""
    left = stream.accepted.max_tokens - len(stream.token_ids)
    return left * TOKEN_ROOM_BYTES + _end_room_of(stream.accepted.stop)


def _end_room_of(stop: StopParams) -> int:
    return END_ROOM_BYTES + max((len(one.encode()) for one in stop.strings), default=0)
