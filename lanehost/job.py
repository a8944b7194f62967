"""What came over the wire, what was accepted, and what the client is told.

A `Request` is unchecked; the door turns it into a `Job` or refuses it, and nobody
behind the door checks again. An image comes as bytes of a file, or by the id of an upload, and
leaves the door as pixels with a digest; a job keeps its pixels until it ends, so that it can be
computed again from them. The events of a job come in this order: `Accepted`,
`Prefilled` once, `Tokens` any number of times, then `Finished` or `Failed`, once.
"""

from dataclasses import dataclass, field
from enum import Enum

from lanehost.errors import LanehostError
from ranks.plan import Draw


class Role(Enum):
    """Who speaks a chat message."""

    SYSTEM = "system"
    USER = "user"
    ASSISTANT = "assistant"


@dataclass(frozen=True, slots=True)
class TextPart:
    """Some text of a message."""

    text: str


@dataclass(frozen=True, slots=True)
class ImagePart:
    """An image of a message: the bytes of its file, as sent."""

    data: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class UploadedImage:
    """An image of a message that was uploaded before."""

    upload_id: str


ContentPart = TextPart | ImagePart | UploadedImage


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatMessage:
    """One message of a chat: text, or parts in their order."""

    role: Role
    content: str | tuple[ContentPart, ...]

    @property
    def text(self) -> str:
        """Its text; that of its text parts joined, when it has parts."""
        if isinstance(self.content, str):
            return self.content
        return "".join(part.text for part in self.content if isinstance(part, TextPart))

    @property
    def images(self) -> tuple[ImagePart | UploadedImage, ...]:
        """Its images, in their order."""
        if isinstance(self.content, str):
            return ()
        return tuple(part for part in self.content if not isinstance(part, TextPart))


@dataclass(frozen=True, slots=True)
class TextPrompt:
    """Plain text, tokenized by the server."""

    text: str


@dataclass(frozen=True, slots=True)
class TokenPrompt:
    """Token ids as they are; nothing is added."""

    token_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A chat, rendered by the model's own template."""

    messages: tuple[ChatMessage, ...]


Prompt = TextPrompt | TokenPrompt | ChatPrompt


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How tokens are drawn, as asked for; None takes the default of `DEFAULT_SAMPLING`."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StopParams:
    """When a reply ends before its most tokens."""

    strings: tuple[str, ...] = ()
    token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False


class Priority(Enum):
    """Who goes first: nobody in the background while somebody waits in the foreground."""

    FOREGROUND = "foreground"
    BACKGROUND = "background"


class DiskUse(Enum):
    """What a request lets the disk tier of the prompt cache do.

    DEFAULT: what the server does. OFF: nothing. READ: give what is there, save nothing. FULL:
    save all of it, whatever the server's mode.
    """

    DEFAULT = "default"
    OFF = "off"
    READ = "read"
    FULL = "full"


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What came over the wire, unchecked.

    `max_tokens` 0 asks for no reply: the prompt is computed and kept in the prompt cache.
    `key` is the secret that says who asks, None when none was sent. `timeout_s` is what
    the client still allows, None when it sets no deadline. `label` is the client's own
    name for the request, for logs only.
    """

    prompt: Prompt
    max_tokens: int | None = None
    sampling: SamplingParams = SamplingParams()
    stop: StopParams = StopParams()
    timeout_s: float | None = None
    label: str = ""
    priority: Priority = Priority.FOREGROUND
    disk_use: DiskUse = DiskUse.DEFAULT
    key: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Who wants a stream to go on: from the token with this index, that of the first is 0.

    `key` and `timeout_s` are as in `Request`.
    """

    job_id: str
    next_index: int
    timeout_s: float | None = None
    key: str | None = field(default=None, repr=False)


class FinishReason(Enum):
    """Why a reply ended."""

    EOS = "eos"
    STOP = "stop"
    LENGTH = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens of a request, counted.

    `disk_cached_tokens` of the cached ones came from the disk; `image_tokens` of the prompt's
    stand for images.
    """

    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    disk_cached_tokens: int = 0
    image_tokens: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Where the time of a request went, in seconds on the master's clock.

    `encode_s` is the longest wait for one of its images to be encoded.
    """

    queue_s: float
    prefill_s: float
    decode_s: float
    encode_s: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Accepted:
    """The request has a place in the line."""

    job_id: str
    seed: int
    prompt_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefilled:
    """The prompt was computed; `cached_tokens` of it came from the prompt cache."""

    cached_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tokens:
    """New token ids, and the whole characters that they complete."""

    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """The reply ended; `matched` is the stop string or the id that ended it, if any."""

    reason: FinishReason
    matched: str | int | None
    usage: Usage
    timing: Timing


@dataclass(frozen=True, slots=True, kw_only=True)
class Failed:
    """The job ended without a whole reply."""

    error: LanehostError


Event = Accepted | Prefilled | Tokens | Finished | Failed


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedImage:
    """An image as the model's encoder takes it.

    `pixels` are uint8 [height, width, 3], RGB, row by row. `digest` has 32 bytes, over the pixels,
    their size and how the model wants them: equal digests are equal images to the model.
    """

    digest: bytes
    width: int
    height: int
    pixels: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptImage:
    """An image and its block in a prompt: one token for each row that the encoder gives.

    `start` is the first position of the block. The prompt's ids there are all the model's one
    token for rows of images; what is around a block is no part of it.
    """

    start: int
    num_tokens: int
    image: PreparedImage

    @property
    def stop(self) -> int:
        """The first position behind the block."""
        return self.start + self.num_tokens


# Above every token id, and every other number that is packed in 64 bits.
IMAGE_ID_BASE = 1 << 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request that the door accepted; nothing of it is checked again.

    `arrived_s` and `deadline_s` are on the master's monotonic clock. `scope` is whose
    prompts may be shared with it, and whose share of the server it takes. `marks` are
    the positions in the prompt, rising, at which another request is likely to part from
    it: where the system prompt ends, where the last turn of a chat began. One that `is_cold`
    computes all of its prompt itself, whatever is kept of it. `images` stand in rising order,
    their blocks apart. `identity_ids` are what two prompts must share to share what was computed
    for them: the prompt's ids, and at each position of an image's block a number made of the
    image's digest, at least `IMAGE_ID_BASE`. They never go to a rank.
    """

    job_id: str
    prompt_ids: tuple[int, ...]
    max_tokens: int
    draw: Draw
    arrived_s: float
    deadline_s: float | None = None
    label: str = ""
    scope: str = ""
    priority: Priority = Priority.FOREGROUND
    marks: tuple[int, ...] = ()
    disk_use: DiskUse = DiskUse.DEFAULT
    is_cold: bool = False
    images: tuple[PromptImage, ...] = ()
    identity_ids: tuple[int, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        """Work the identity out once: caches ask for it again and again."""
        object.__setattr__(self, "identity_ids", _identity_ids(self.prompt_ids, self.images))

    @property
    def is_warm(self) -> bool:
        """Whether only its prompt is computed, to be kept for others that begin alike."""
        return self.max_tokens == 0

    @property
    def num_tokens(self) -> int:
        """The most tokens that the sequence can have, prompt and reply."""
        return len(self.prompt_ids) + self.max_tokens


def _identity_ids(prompt_ids: tuple[int, ...], images: tuple[PromptImage, ...]) -> tuple[int, ...]:
    """Return the prompt's ids with the images in the place of their blocks; see `Job`."""
    if not images:
        return prompt_ids
    ids: list[int] = []
    for image in images:
        assert len(ids) <= image.start < image.stop <= len(prompt_ids), "blocks cross or leave"
        ids += prompt_ids[len(ids) : image.start]
        ids += [IMAGE_ID_BASE + int.from_bytes(image.image.digest)] * image.num_tokens
    return (*ids, *prompt_ids[len(ids) :])
