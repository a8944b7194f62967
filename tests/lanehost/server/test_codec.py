import contextlib
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.errors import DoesNotFit, InvalidRequest, NotBuilt
from lanehost.job import (
    Accepted,
    ChatMessage,
    ChatPrompt,
    ContentPart,
    DiskUse,
    Finished,
    FinishReason,
    ImagePart,
    Priority,
    Request,
    Role,
    SamplingParams,
    StopParams,
    TextPart,
    TextPrompt,
    Timing,
    TokenPrompt,
    Tokens,
    UploadedImage,
    Usage,
)
from lanehost.server import codec
from lanehost.v1 import inference_pb2 as pb
from tests.support.fake_door import CARD

ACCEPTED = Accepted(job_id="job-1", seed=(1 << 64) - 1, prompt_tokens=4)
COUNTS = {
    "prompt_tokens": 4,
    "cached_tokens": 2,
    "completion_tokens": 3,
    "disk_cached_tokens": 1,
    "image_tokens": 2,
}
USAGE = Usage(**COUNTS)
TIMING = Timing(queue_s=0.1, prefill_s=0.2, decode_s=0.3, encode_s=0.4)
_DISK_CACHES = {
    DiskUse.DEFAULT: pb.DISK_CACHE_UNSPECIFIED,
    DiskUse.OFF: pb.DISK_CACHE_OFF,
    DiskUse.READ: pb.DISK_CACHE_READ,
    DiskUse.FULL: pb.DISK_CACHE_FULL,
}

uint32 = st.integers(0, (1 << 32) - 1)
uint64 = st.integers(0, (1 << 64) - 1)
float32 = st.floats(width=32, allow_nan=False, allow_infinity=False)
text = st.text(st.characters(codec="utf-8"), max_size=8)
parts = st.lists(
    st.one_of(
        st.builds(TextPart, text),
        st.builds(ImagePart, st.binary(max_size=8)),
        st.builds(UploadedImage, text),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
prompts = st.one_of(
    st.builds(TextPrompt, text),
    st.builds(TokenPrompt, st.lists(uint32, max_size=4).map(tuple)),
    st.builds(
        ChatPrompt,
        st.lists(
            st.builds(ChatMessage, role=st.sampled_from(Role), content=text | parts),
            min_size=1,
            max_size=3,
        ).map(tuple),
    ),
)
requests = st.builds(
    Request,
    prompt=prompts,
    max_tokens=st.none() | uint32,
    sampling=st.builds(
        SamplingParams,
        temperature=st.none() | float32,
        top_p=st.none() | float32,
        top_k=st.none() | uint32,
        min_p=st.none() | float32,
        seed=st.none() | uint64,
    ),
    stop=st.builds(
        StopParams,
        strings=st.lists(text, max_size=3).map(tuple),
        token_ids=st.lists(uint32, max_size=3).map(tuple),
        ignore_eos=st.booleans(),
    ),
    timeout_s=st.none() | st.floats(0, 1e6),
    label=text,
    priority=st.sampled_from(Priority),
    disk_use=st.sampled_from(DiskUse),
)


def _write_part(part: ContentPart) -> pb.ContentPart:
    match part:
        case TextPart(text=text):
            return pb.ContentPart(text=text)
        case ImagePart(data=data):
            return pb.ContentPart(image=pb.Image(data=data))
        case UploadedImage(upload_id=upload_id):
            return pb.ContentPart(image=pb.Image(upload_id=upload_id))


def _write(request: Request) -> pb.GenerateRequest:
    """Write a request, field by field: what a client would send."""
    message = pb.GenerateRequest(
        max_tokens=request.max_tokens,
        sampling=pb.SamplingParams(
            temperature=request.sampling.temperature,
            top_p=request.sampling.top_p,
            top_k=request.sampling.top_k,
            min_p=request.sampling.min_p,
            seed=request.sampling.seed,
        ),
        stop=pb.StopParams(
            strings=request.stop.strings,
            token_ids=request.stop.token_ids,
            ignore_eos=request.stop.ignore_eos,
        ),
        label=request.label,
        priority=pb.Priority.Value(f"PRIORITY_{request.priority.name}"),
        disk_cache=_DISK_CACHES[request.disk_use],
    )
    match request.prompt:
        case TextPrompt(text=text):
            message.text = text
        case TokenPrompt(token_ids=ids):
            message.token_ids.SetInParent()
            message.token_ids.ids.extend(ids)
        case ChatPrompt(messages=messages):
            message.chat.SetInParent()
            for one in messages:
                role = pb.Role.Value(f"ROLE_{one.role.name}")
                if isinstance(one.content, str):
                    message.chat.messages.add(role=role, content=one.content)
                else:
                    parts = [_write_part(part) for part in one.content]
                    message.chat.messages.add(role=role, parts=parts)
    return message


@given(requests)
def test_a_request_comes_out_as_it_was_written(request: Request) -> None:
    message = codec.parse(pb.GenerateRequest, _write(request).SerializeToString())
    assert codec.decode_request(message, timeout_s=request.timeout_s, card=CARD) == request


@given(requests)
def test_a_streamed_request_is_read_as_the_unary_one(request: Request) -> None:
    message = codec.parse(pb.StreamGenerateRequest, _write(request).SerializeToString())
    assert codec.decode_request(message, timeout_s=request.timeout_s, card=CARD) == request


def test_what_is_absent_is_none() -> None:
    request = codec.decode_request(pb.GenerateRequest(text=""), timeout_s=None, card=CARD)
    assert request == Request(prompt=TextPrompt(""))


def test_a_missing_prompt_is_named() -> None:
    with pytest.raises(InvalidRequest, match="text, token_ids, chat") as caught:
        codec.decode_request(pb.GenerateRequest(), timeout_s=None, card=CARD)
    assert caught.value.field == "prompt"


def test_a_chat_without_messages_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="at least 1") as caught:
        codec.decode_request(pb.GenerateRequest(chat=pb.Chat()), timeout_s=None, card=CARD)
    assert caught.value.field == "chat.messages"


@pytest.mark.parametrize("role", [0, 4, 99, -1])
def test_a_role_that_is_not_one_is_named_with_its_place(role: int) -> None:
    chat = pb.Chat()
    chat.messages.add(role=pb.ROLE_USER, content="a")
    chat.messages.add(role=role, content="b")
    with pytest.raises(InvalidRequest, match=f"is {role},") as caught:
        codec.decode_request(pb.GenerateRequest(chat=chat), timeout_s=None, card=CARD)
    assert caught.value.field == "chat.messages[1].role"


@pytest.mark.parametrize("message", [{}, {"priority": pb.PRIORITY_UNSPECIFIED}])
def test_a_priority_that_is_not_set_is_the_foreground(message) -> None:
    request = codec.decode_request(
        pb.GenerateRequest(text="a", **message), timeout_s=None, card=CARD
    )
    assert request.priority is Priority.FOREGROUND


@pytest.mark.parametrize("disk_cache", [4, 99, -1])
def test_a_use_of_the_disk_that_is_none_is_named(disk_cache: int) -> None:
    message = pb.GenerateRequest(text="a", disk_cache=disk_cache)
    with pytest.raises(InvalidRequest, match=f"is {disk_cache}, allowed are off, read") as caught:
        codec.decode_request(message, timeout_s=None, card=CARD)
    assert caught.value.field == "disk_cache"


@pytest.mark.parametrize("priority", [3, 99, -1])
def test_a_priority_that_is_none_is_named(priority: int) -> None:
    message = pb.GenerateRequest(text="a", priority=priority)
    with pytest.raises(InvalidRequest, match=f"is {priority}, allowed are foreground") as caught:
        codec.decode_request(message, timeout_s=None, card=CARD)
    assert caught.value.field == "priority"


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["temperature", "top_p", "min_p"])
def test_a_float_that_is_not_a_number_is_named(name: str, value: float) -> None:
    message = pb.GenerateRequest(text="a", sampling=pb.SamplingParams(**{name: value}))
    with pytest.raises(InvalidRequest, match=str(value)) as caught:
        codec.decode_request(message, timeout_s=None, card=CARD)
    assert caught.value.field == f"sampling.{name}"


def _with_field_99(message: bytes) -> bytes:
    return message + bytes([0x98, 0x06, 0x01])  # field 99, varint 1


def test_a_field_that_is_not_known_is_refused_by_its_number() -> None:
    wire = _with_field_99(pb.GenerateRequest(text="a").SerializeToString())
    with pytest.raises(NotBuilt, match=r"^GenerateRequest: .* does not know: 99$"):
        codec.parse(pb.GenerateRequest, wire)


def test_a_field_that_is_not_known_is_refused_at_every_depth() -> None:
    sampling = _with_field_99(b"")
    wire = pb.GenerateRequest(text="a").SerializeToString() + bytes([0x2A, len(sampling)])
    with pytest.raises(NotBuilt, match="in a message within it"):
        codec.parse(pb.GenerateRequest, wire + sampling)


@pytest.mark.parametrize("wire", [b"\x0a\x02\xff\xfe", b"\xff", b"\x0a\x7fshort"])
def test_bytes_that_are_no_message_are_refused(wire: bytes) -> None:
    with pytest.raises(InvalidRequest, match=f"these {len(wire)} bytes") as caught:
        codec.parse(pb.GenerateRequest, wire)
    assert caught.value.field == "GenerateRequest"


@given(st.binary(max_size=40))
def test_any_bytes_are_a_message_or_refused(wire: bytes) -> None:
    with contextlib.suppress(InvalidRequest, NotBuilt):
        codec.decode_request(codec.parse(pb.GenerateRequest, wire), timeout_s=None, card=CARD)


def test_tokenize_takes_text() -> None:
    assert codec.decode_tokenize(pb.TokenizeRequest(text="a"), card=CARD) == TextPrompt("a")


def test_tokenize_takes_a_chat() -> None:
    chat = pb.Chat(messages=[pb.ChatMessage(role=pb.ROLE_SYSTEM, content="b")])
    assert codec.decode_tokenize(pb.TokenizeRequest(chat=chat), card=CARD) == ChatPrompt(
        (ChatMessage(role=Role.SYSTEM, content="b"),)
    )


def test_tokenize_names_a_missing_prompt() -> None:
    with pytest.raises(InvalidRequest, match=r"^prompt: is missing"):
        codec.decode_tokenize(pb.TokenizeRequest(), card=CARD)


def test_accepted_is_written_whole() -> None:
    message = codec.encode_event(ACCEPTED)
    assert message == pb.StreamGenerateResponse(
        accepted=pb.Accepted(request_id="job-1", seed=(1 << 64) - 1, prompt_tokens=4)
    )


def test_tokens_are_written_as_a_delta() -> None:
    message = codec.encode_event(Tokens(token_ids=(5, 6), text="é"))
    assert message == pb.StreamGenerateResponse(delta=pb.Delta(token_ids=[5, 6], text="é"))


@pytest.mark.parametrize(
    ("reason", "matched", "wire"),
    [
        (FinishReason.EOS, 2, {"reason": pb.FINISH_REASON_EOS, "stop_token_id": 2}),
        (FinishReason.STOP, "ab", {"reason": pb.FINISH_REASON_STOP, "stop_string": "ab"}),
        (FinishReason.STOP, 0, {"reason": pb.FINISH_REASON_STOP, "stop_token_id": 0}),
        (FinishReason.LENGTH, None, {"reason": pb.FINISH_REASON_LENGTH}),
    ],
)
def test_finished_says_why_and_what_matched(reason, matched, wire) -> None:
    event = Finished(reason=reason, matched=matched, usage=USAGE, timing=TIMING)
    assert codec.encode_event(event).finished == pb.Finished(
        usage=pb.Usage(
            prompt_tokens=4,
            cached_tokens=2,
            completion_tokens=3,
            disk_cached_tokens=1,
            image_tokens=2,
        ),
        timing=pb.Timing(queue_s=0.1, prefill_s=0.2, decode_s=0.3, encode_s=0.4),
        **wire,
    )


def test_a_reply_is_the_sum_of_its_events() -> None:
    finished = Finished(reason=FinishReason.LENGTH, matched=None, usage=USAGE, timing=TIMING)
    tokens = [Tokens(token_ids=(1, 2), text="a"), Tokens(token_ids=(3,), text="b")]
    assert codec.encode_reply(ACCEPTED, tokens, finished) == pb.GenerateResponse(
        accepted=codec.encode_event(ACCEPTED).accepted,
        text="ab",
        token_ids=[1, 2, 3],
        finished=codec.encode_event(finished).finished,
    )


def test_the_card_is_written_whole() -> None:
    message = codec.encode_card(CARD)
    for field in pb.GetModelResponse.DESCRIPTOR.fields:
        if field.name not in ("default_sampling", "images"):
            value = getattr(message, field.name)
            assert (tuple(value) if field.is_repeated else value) == getattr(CARD, field.name)


def test_a_default_that_is_none_is_absent() -> None:
    sampling = codec.encode_card(CARD).default_sampling
    assert (sampling.temperature, sampling.top_p, sampling.min_p) == (0.0, 1.0, 0.0)
    assert sampling.HasField("temperature")
    assert not sampling.HasField("top_k")
    assert not sampling.HasField("seed")


class _OnlyCounted:
    """A repeated field that may be counted and not read."""

    def __init__(self, count: int) -> None:
        self._count = count

    def __len__(self) -> int:
        return self._count

    def __iter__(self):
        raise AssertionError("something was built of it")


class _Message:
    """Stands for a message of which only what a test sets may be asked."""

    def __init__(self, **fields: object) -> None:
        self.__dict__.update(fields)

    def WhichOneof(self, name: str) -> str:  # noqa: N802 - the name is protobuf's
        return next(iter(self.__dict__))


MANY_IDS = _OnlyCounted(30_000_000)
TOO_MANY = [
    (
        codec.decode_request,
        _Message(token_ids=_Message(ids=MANY_IDS)),
        "30000000 tokens, limit 128",
    ),
    (codec.decode_request, _Message(chat=_Message(messages=MANY_IDS)), "30000000 messages"),
    (codec.decode_tokenize, _Message(chat=_Message(messages=MANY_IDS)), "30000000 messages"),
]


@pytest.mark.parametrize(("decode", "message", "said"), TOO_MANY)
def test_too_many_are_refused_by_their_count_before_anything_is_built(
    decode, message, said
) -> None:
    options = {"timeout_s": None} if decode is codec.decode_request else {}
    with pytest.raises(DoesNotFit, match=said) as caught:
        decode(message, card=CARD, **options)
    assert (caught.value.have, caught.value.limit) == (30_000_000, CARD.context_length)


def test_too_many_ids_to_detokenize_are_refused_by_their_count() -> None:
    with pytest.raises(InvalidRequest, match="30000000 ids, limit 128"):
        codec.decode_detokenize(_Message(token_ids=MANY_IDS), card=CARD)


@pytest.mark.parametrize("name", ["strings", "token_ids"])
def test_too_many_stops_are_refused_by_their_count(name: str) -> None:
    stop = {"strings": (), "token_ids": (), "ignore_eos": False, name: MANY_IDS}
    message = pb.GenerateRequest(text="a")
    with pytest.raises(InvalidRequest, match="has 30000000"):
        codec._decode_stop(_Message(**stop))
    assert codec.decode_request(message, timeout_s=None, card=CARD).stop == StopParams()


def test_unknown_fields_of_a_long_message_are_refused_without_naming_each() -> None:
    wire = pb.GenerateRequest(text="a").SerializeToString() + b"\x98\x06\x01" * 100_000
    with pytest.raises(NotBuilt, match="does not know"):
        codec.parse(pb.GenerateRequest, wire)
