"""What a rank and its master say to each other, as plain data; `codec` puts it on the wire.

A rank says Hello, LoadProgress, Loaded, Ready, then one StepResult or StepRefused for
each plan; Heartbeat all the while, Fatal at any time. The master says Load, Form, then plans;
Shutdown at any time. Beside the plans go works on files, FileOrder and FileDone, and on images,
ImageOrder and ImageDone, each of which the rank does and answers in an order of its own.

An epoch ends when a rank says Broken, or when the master sees that one is lost. Then the master
says Leave to those that live, each answers Left, whatever it was doing, and forgets the group,
its lanes and its KV; the weights stay. Form begins the next epoch.
"""

from dataclasses import dataclass, field

from ranks.plan import StepPlan, StepRefused, StepResult
from ranks.wire.file_messages import FileDone, FileOrder
from ranks.wire.image_messages import ImageDone, ImageFacts, ImageOrder

MAX_MESSAGE_BYTES = 64 * 1024 * 1024
TOKEN_VARIABLE = "LANEHOST_RANK_TOKEN"  # noqa: S105 - the name of a variable, not a secret
STORE_METADATA_KEY = "lanehost-rank-token"
SERVICE_NAME = "lanehost.rank.v1.RankService"
# Keys of the rendezvous store that belong to one life of a rank: what it offers to share
# memory, and what it found when it tried the offers of the others.
OFFER_KEY = "offers/{rank}"
FOUND_KEY = "found/{rank}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Hello:
    """Who dials; `build` is the version of the package.

    `token` is the master's secret; it is kept out of the repr, so that no log shows it.
    """

    rank: int
    world_size: int
    pid: int
    build: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """What to load; `num_threads` None lets the rank choose.

    `block_size` is in positions: the rank answers with the bytes of such a block, and
    with those of a step of at most `max_step_tokens` that draws for `num_lanes`. The latter
    hold what a staged pass of `max_staged_tokens` rows takes and the rows of images that are
    kept, `image_cache_tokens` of them; both 0 for no images. Images are encoded on
    `encoder_device`, where `auto` is the model's own.
    """

    model_path: str
    dtype: str
    device: str
    num_threads: int | None
    block_size: int
    max_step_tokens: int
    num_lanes: int
    weights: str
    max_staged_tokens: int = 0
    image_cache_tokens: int = 0
    encoder_device: str = "auto"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadProgress:
    """How far loading is."""

    done_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What a rank has loaded, and what it still has room for.

    `kv_bytes_per_block` is for blocks of the `block_size` of `Load`. The largest step
    takes `step_bytes`, and `step_bytes_per_block` for each block of its longest lane.
    `kv_layout` names what keys and values are and how they were computed: where it is equal,
    and model and cut are, they are equal bit for bit. A staged pass goes through `num_layers`;
    `image_facts` is None where the model takes no images.
    """

    weights_digest: str
    config_digest: str
    geometry: str
    vocab_size: int
    context_length: int
    kv_bytes_per_block: int
    step_bytes: int
    step_bytes_per_block: int
    free_bytes: int
    dtype: str
    device: str
    collective: str
    weights: str
    kv_layout: str
    num_layers: int
    image_facts: ImageFacts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Form:
    """All ranks agree: form the group; the numbers are the same on every rank.

    `disk_folder` is where the prompt cache has its files, on every host; None for nowhere.
    A staged pass has `max_staged_tokens` rows at most, and of images `image_cache_tokens` rows
    are kept at most.
    """

    epoch: int
    num_blocks: int
    block_size: int
    num_lanes: int
    max_step_tokens: int
    collective_timeout_s: float
    disk_folder: str | None = None
    max_staged_tokens: int = 0
    image_cache_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Ready:
    """The group is formed; plans may come."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """The rank's process runs; sent by a thread of its own, whatever the others do.

    `step_id` is the step that it computes, 0 for none. `num_stages` rises while it computes,
    and stands still when that hangs.
    """

    step_id: int
    num_stages: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Broken:
    """A collective of this epoch failed: the rank lives on, and waits for Leave.

    `suspect` is the rank that did not do its part, where that is known.
    """

    epoch: int
    suspect: int | None
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Left:
    """The rank has left the group of this epoch; its KV and its lanes are gone."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Fatal:
    """The rank cannot go on and will exit."""

    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Leave:
    """The epoch is over: give up what you compute, and wait for the next Form."""

    epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shutdown:
    """End now; `reason` is for the log."""

    reason: str


RankMessage = (
    Hello
    | LoadProgress
    | Loaded
    | Ready
    | StepResult
    | StepRefused
    | Heartbeat
    | Broken
    | Left
    | Fatal
    | FileDone
    | ImageDone
)
# What the rank's main thread takes, in its order; of images it takes DropImage alone.
MainMessage = Load | Form | StepPlan | Leave | Shutdown | ImageOrder
MasterMessage = MainMessage | FileOrder
