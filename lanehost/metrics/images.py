"""The metrics of images: what became of them, read off the engine, and how staged passes go."""

from lanehost.metrics.family import Family, Kind, by_one, counter, gauge
from lanehost.metrics.seen import Sight
from lanehost.metrics.tally import Tally

# Read off the engine when somebody asks.
IMAGES: tuple[Family[Sight], ...] = (
    gauge(
        "lanehost_held_image_bytes",
        "Bytes of files and pixels of images that open requests and uploads hold.",
        lambda sight: 0 if sight.held is None else sight.held.num_held_bytes,
    ),
    gauge(
        "lanehost_uploads_kept",
        "Uploaded images that are kept.",
        lambda sight: 0 if sight.held is None else sight.held.num_uploads,
    ),
    gauge(
        "lanehost_image_rows",
        "Rows of encoded images that the ranks keep, or will once they are encoded.",
        lambda sight: sight.engine.images.num_rows,
    ),
    gauge(
        "lanehost_images_encoding",
        "Images that are ordered and not encoded yet.",
        lambda sight: sight.engine.images.num_ordered,
    ),
    counter(
        "lanehost_images_encoded_total",
        "Images that the ranks encoded.",
        lambda sight: sight.engine.images.counters.encoded,
    ),
    counter(
        "lanehost_images_cached_total",
        "Images of requests that took a lane and were encoded, or ordered, already.",
        lambda sight: sight.engine.images.counters.cached,
    ),
    counter(
        "lanehost_images_cancelled_total",
        "Images that were not encoded, since nobody wanted them any more.",
        lambda sight: sight.engine.images.counters.cancelled,
    ),
    counter(
        "lanehost_images_failed_total",
        "Images that could not be encoded; their requests have failed.",
        lambda sight: sight.engine.images.counters.failed,
    ),
    counter(
        "lanehost_images_evicted_total",
        "Encoded images whose rows went to make room.",
        lambda sight: sight.engine.images.counters.evicted,
    ),
    counter(
        "lanehost_image_encode_seconds_total",
        "What the slowest rank took to encode each image, in sum.",
        lambda sight: sight.engine.images.counters.encode_s,
    ),
)

# Counted as things happen.
STAGED: tuple[Family[Tally], ...] = (
    Family(
        name="lanehost_image_tokens_total",
        kind=Kind.COUNTER,
        meaning="Of the prompt tokens of accepted requests, those that stand for images.",
        labels=("scope",),
        read=by_one(lambda tally: tally.image_tokens),
    ),
    counter(
        "lanehost_staged_passes_total",
        "Staged passes that were begun: prompts with images run in them.",
        lambda tally: tally.staged_passes,
    ),
    counter(
        "lanehost_staged_rows_total",
        "Rows of these passes.",
        lambda tally: tally.staged_rows,
    ),
    counter(
        "lanehost_staged_slices_total",
        "Slices of these passes: steps that ran some layers of one.",
        lambda tally: tally.staged_slices,
    ),
    Family(
        name="lanehost_staged_pause_seconds",
        kind=Kind.HISTOGRAM,
        meaning="Time between two tokens of a running reply, when slices ran in between.",
        read=lambda tally: [((), tally.staged_pause)],
    ),
    gauge(
        "lanehost_longest_stall_seconds",
        "The longest of these pauses since the start; see --max-stall-ms.",
        lambda tally: tally.longest_stall_s,
    ),
)
