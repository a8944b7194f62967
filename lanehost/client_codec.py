"""Protobuf ↔ what users of the Python client hold: options in, `Reply` and `Delta` out."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypedDict, TypeVar

from google.protobuf import message as protobuf
from google.protobuf.descriptor import FieldDescriptor

from lanehost.client_chat import Message, encode_chat
from lanehost.door.model_card import ImageCard, ModelCard
from lanehost.job import DiskUse, Priority, SamplingParams, Timing, Usage
from lanehost.settings import MAX_MESSAGE_BYTES
from lanehost.v1 import inference_pb2 as pb

_PING_AFTER_MS = 30_000
_PING_TIMEOUT_MS = 10_000
CHANNEL_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
    # A server that is stopped is noticed while a long reply is awaited.
    ("grpc.keepalive_time_ms", _PING_AFTER_MS),
    ("grpc.keepalive_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.http2.ping_timeout_ms", _PING_TIMEOUT_MS),
    ("grpc.http2.max_pings_without_data", 0),
)
_SAMPLING = ("temperature", "top_p", "top_k", "min_p", "seed")
_PRIORITIES = {one.value: pb.Priority.Value(f"PRIORITY_{one.name}") for one in Priority}
_DISK_CACHES = {
    use.value: pb.DiskCache.Value(f"DISK_CACHE_{use.name}")
    for use in (DiskUse.OFF, DiskUse.READ, DiskUse.FULL)
}
_REASONS = {
    pb.FINISH_REASON_EOS: "eos",
    pb.FINISH_REASON_STOP: "stop",
    pb.FINISH_REASON_LENGTH: "length",
}
_UNKNOWN_REASON = "unknown"
# What a user of the client calls a field that is inside another one on the wire.
_NAMES = {
    pb.TokenIds.DESCRIPTOR.fields_by_name["ids"].full_name: "token_ids",
    pb.StopParams.DESCRIPTOR.fields_by_name["strings"].full_name: "stop",
    pb.StopParams.DESCRIPTOR.fields_by_name["token_ids"].full_name: "stop_token_ids",
    **{
        kind.DESCRIPTOR.fields_by_name["text"].full_name: "prompt"
        for kind in (pb.GenerateRequest, pb.StreamGenerateRequest, pb.TokenizeRequest)
    },
}
_WANTED = {
    FieldDescriptor.TYPE_UINT32: f"a whole number from 0 to {(1 << 32) - 1}",
    FieldDescriptor.TYPE_UINT64: f"a whole number from 0 to {(1 << 64) - 1}",
    FieldDescriptor.TYPE_FLOAT: "a number",
    FieldDescriptor.TYPE_STRING: "text that has a form in UTF-8",
    FieldDescriptor.TYPE_BOOL: "True or False",
}
_MAX_SHOWN_CHARS = 40
_Word = TypeVar("_Word")
_Request = TypeVar("_Request", pb.GenerateRequest, pb.StreamGenerateRequest)


class Options(TypedDict, total=False):
    """How to generate; what is absent takes the server's default (see `model()`).

    `max_tokens` 0 makes no reply, and warms the prompt cache. `temperature` 0 is greedy.
    `stop` is one string or several. `priority` is foreground or background, `disk_cache` off,
    read or full. `timeout` is in seconds. `label` is your own name for the request, for the
    server's log.
    """

    max_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    stop: str | Iterable[str]
    stop_token_ids: Iterable[int]
    ignore_eos: bool
    priority: str
    disk_cache: str
    label: str
    timeout: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What to continue: exactly one of the three is not None."""

    text: str | None = None
    token_ids: Iterable[int] | None = None
    messages: Iterable[Message] | None = None

    def __post_init__(self) -> None:
        """Refuse none, more than one, and what is none of the three."""
        given = [name for name in self.__slots__ if getattr(self, name) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of prompt, token_ids, messages, not {len(given)}")
        if self.text is not None and not isinstance(self.text, str):
            raise TypeError(
                f"prompt is a {type(self.text).__name__}, should be text; "
                "ids go to token_ids=, a chat to messages="
            )
        for name, item in (("token_ids", "ids"), ("messages", "messages")):
            value = getattr(self, name)
            if isinstance(value, str | bytes | Mapping) or not isinstance(value, Iterable | None):
                raise TypeError(f"{name} is a {type(value).__name__}, should be a list of {item}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Delta:
    """New token ids, and the whole characters that they complete."""

    token_ids: tuple[int, ...]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """One whole reply; `matched` is the stop string or the id that ended it, if any.

    `finish_reason` is eos, stop or length; "unknown" if the server is newer and has others.
    Sending `seed` again, with the same request, gives the same reply.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    matched: str | int | None
    usage: Usage
    timing: Timing
    request_id: str
    seed: int


def encode_request(kind: type[_Request], prompt: Prompt, options: Options) -> _Request:
    """Write a request.

    Raises:
        TypeError: an option is unknown.
        ValueError: a value does not fit its field on the wire.
    """
    unknown = options.keys() - Options.__annotations__.keys()
    if unknown:
        known = ", ".join(Options.__annotations__)
        raise TypeError(f"unknown option {', '.join(sorted(unknown))}; known are {known}")
    message = kind()
    _fill(
        message,
        max_tokens=options.get("max_tokens"),
        label=options.get("label"),
        priority=_encode_word("priority", options.get("priority"), _PRIORITIES),
        disk_cache=_encode_word("disk_cache", options.get("disk_cache"), _DISK_CACHES),
    )
    _fill(message.sampling, **{name: options.get(name) for name in _SAMPLING})
    stop = options.get("stop")
    _fill(
        message.stop,
        strings=[stop] if isinstance(stop, str) else stop,
        token_ids=options.get("stop_token_ids"),
        ignore_eos=options.get("ignore_eos"),
    )
    if prompt.text is not None:
        _fill(message, text=prompt.text)
    elif prompt.token_ids is not None:
        message.token_ids.SetInParent()
        _fill(message.token_ids, ids=prompt.token_ids)
    else:
        message.chat.CopyFrom(encode_chat(prompt.messages or ()))
    return message


def _encode_word(name: str, value: object, words: Mapping[str, _Word]) -> _Word | None:
    if value is None:
        return None
    if not isinstance(value, str) or value not in words:
        raise ValueError(f"{name} is {_shown(value)}, should be one of {', '.join(words)}")
    return words[value]


def encode_tokenize(prompt: Prompt) -> pb.TokenizeRequest:
    """Write what to tokenize.

    Raises:
        ValueError: it is token ids, or does not fit its field on the wire.
    """
    if prompt.token_ids is not None:
        raise ValueError("token_ids are tokens already")
    message = pb.TokenizeRequest()
    if prompt.text is not None:
        _fill(message, text=prompt.text)
    else:
        message.chat.CopyFrom(encode_chat(prompt.messages or ()))
    return message


def encode_resumption(request_id: str, next_index: int) -> pb.ResumeStreamRequest:
    """Write which stream goes on, and where; raises as `encode_tokenize` does."""
    message = pb.ResumeStreamRequest()
    _fill(message, request_id=request_id, next_index=next_index)
    return message


def encode_detokenize(token_ids: Iterable[int], *, keep_special: bool) -> pb.DetokenizeRequest:
    """Write what to detokenize; raises as `encode_tokenize` does."""
    message = pb.DetokenizeRequest()
    _fill(message, token_ids=token_ids, keep_special=keep_special)
    return message


def decode_delta(message: pb.Delta) -> Delta:
    """Read new tokens."""
    return Delta(token_ids=tuple(message.token_ids), text=message.text)


def decode_reply(message: pb.GenerateResponse) -> Reply:
    """Read a whole reply."""
    tokens = Delta(token_ids=tuple(message.token_ids), text=message.text)
    return build_reply(message.accepted, [tokens], message.finished)


def build_reply(accepted: pb.Accepted, deltas: Iterable[Delta], finished: pb.Finished) -> Reply:
    """Put a reply together from what was streamed."""
    parts = list(deltas)
    matched = finished.WhichOneof("matched")
    usage, timing = finished.usage, finished.timing
    return Reply(
        text="".join(part.text for part in parts),
        token_ids=tuple(token_id for part in parts for token_id in part.token_ids),
        finish_reason=_REASONS.get(finished.reason, _UNKNOWN_REASON),
        matched=None if matched is None else getattr(finished, matched),
        usage=Usage(
            prompt_tokens=usage.prompt_tokens,
            cached_tokens=usage.cached_tokens,
            completion_tokens=usage.completion_tokens,
            disk_cached_tokens=usage.disk_cached_tokens,
            image_tokens=usage.image_tokens,
        ),
        timing=Timing(
            queue_s=timing.queue_s,
            prefill_s=timing.prefill_s,
            decode_s=timing.decode_s,
            encode_s=timing.encode_s,
        ),
        request_id=accepted.request_id,
        seed=accepted.seed,
    )


class ReplyBuilder:
    """Takes the events of a stream, and has the whole reply once the last one came."""

    def __init__(self) -> None:
        self._accepted: pb.Accepted | None = None
        self._deltas: list[Delta] = []
        self._finished: pb.Finished | None = None

    def take(self, event: pb.StreamGenerateResponse | pb.ResumeStreamResponse) -> Delta | None:
        """Keep an event, and return it if it is new tokens; a newer server's kinds are none."""
        match event.WhichOneof("event"):
            case "accepted":
                self._accepted = event.accepted
            case "delta":
                self._deltas.append(decode_delta(event.delta))
                return self._deltas[-1]
            case "finished":
                self._finished = event.finished
            case _:
                pass
        return None

    @property
    def has_begun(self) -> bool:
        """Whether any event came."""
        return self._accepted is not None

    @property
    def is_finished(self) -> bool:
        """Whether the last event came."""
        return self._finished is not None

    @property
    def request_id(self) -> str:
        """The server's name for the request; "" before the first event."""
        return "" if self._accepted is None else self._accepted.request_id

    @property
    def num_tokens(self) -> int:
        """Tokens so far."""
        return sum(len(delta.token_ids) for delta in self._deltas)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(delta.text for delta in self._deltas)

    def reply(self) -> Reply:
        """Return the whole reply.

        Raises:
            RuntimeError: it has not ended.
        """
        if self._accepted is None or self._finished is None:
            raise RuntimeError("the reply has not ended: iterate over the stream first")
        return build_reply(self._accepted, self._deltas, self._finished)


def decode_card(message: pb.GetModelResponse) -> ModelCard:
    """Read the model, its limits and defaults."""
    sampling = message.default_sampling
    return ModelCard(
        name=message.name,
        context_length=message.context_length,
        vocab_size=message.vocab_size,
        eos_token_ids=tuple(message.eos_token_ids),
        weights_digest=message.weights_digest,
        world_size=message.world_size,
        num_lanes=message.num_lanes,
        kv_tokens=message.kv_tokens,
        max_waiting=message.max_waiting,
        max_waiting_tokens=message.max_waiting_tokens,
        default_sampling=SamplingParams(
            **{name: getattr(sampling, name) for name in _SAMPLING if sampling.HasField(name)}
        ),
        default_max_tokens=message.default_max_tokens,
        dtype=message.dtype,
        weights=message.weights,
        version=message.version,
        config_digest=message.config_digest,
        max_streams=message.max_streams,
        has_prompt_cache=message.has_prompt_cache,
        images=_decode_images(message.images) if message.HasField("images") else None,
    )


def _decode_images(facts: pb.ImageFacts) -> ImageCard:
    return ImageCard(
        num_tokens=facts.num_tokens,
        width=facts.width,
        height=facts.height,
        max_images=facts.max_images,
        max_image_bytes=facts.max_image_bytes,
        max_image_pixels=facts.max_image_pixels,
    )


def _fill(message: protobuf.Message, **fields: object) -> None:
    """Set the fields that are not None, one at a time, so that an error can name its field."""
    for name, given in fields.items():
        if given is None:
            continue
        is_list = message.DESCRIPTOR.fields_by_name[name].is_repeated
        # A list can be read twice, should something be wrong with it.
        value = list(given) if is_list and isinstance(given, Iterable) else given
        try:
            message.MergeFrom(type(message)(**{name: value}))
        except (TypeError, ValueError):
            raise ValueError(_explain(message, name, value)) from None


def _explain(message: protobuf.Message, name: str, value: object) -> str:
    """Say which value does not fit its field on the wire, and what would."""
    field = message.DESCRIPTOR.fields_by_name[name]
    known_as = _NAMES.get(field.full_name, name)
    if not field.is_repeated:
        return f"{known_as} is {_shown(value)}, should be {_WANTED[field.type]}"
    if not isinstance(value, list):
        return f"{known_as} is {_shown(value)}, should be a list, each {_WANTED[field.type]}"
    wrong = next(one for one in value if not _fits(message, name, one))
    return f"{known_as} has {_shown(wrong)}, should be {_WANTED[field.type]}"


def _fits(message: protobuf.Message, name: str, value: object) -> bool:
    try:
        type(message)(**{name: [value]})
    except (TypeError, ValueError):
        return False
    return True


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= _MAX_SHOWN_CHARS else f"a {type(value).__name__}"
