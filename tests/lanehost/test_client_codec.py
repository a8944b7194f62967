import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.client_chat import encode_chat
from lanehost.client_codec import (
    Delta,
    Options,
    Prompt,
    ReplyBuilder,
    decode_card,
    decode_reply,
    encode_detokenize,
    encode_request,
    encode_tokenize,
)
from lanehost.job import (
    Accepted,
    ChatMessage,
    ChatPrompt,
    DiskUse,
    Finished,
    FinishReason,
    Priority,
    Request,
    Role,
    SamplingParams,
    StopParams,
    TextPrompt,
    Timing,
    TokenPrompt,
    Tokens,
    Usage,
)
from lanehost.server import codec
from lanehost.v1 import inference_pb2 as pb
from tests.support.fake_door import CARD

ACCEPTED = Accepted(job_id="job-1", seed=(1 << 64) - 1, prompt_tokens=4)
TOKENS = [Tokens(token_ids=(1, 2), text="a"), Tokens(token_ids=(3,), text="é")]
ENDS = [
    (FinishReason.EOS, 2),
    (FinishReason.STOP, "ab"),
    (FinishReason.STOP, 0),
    (FinishReason.LENGTH, None),
]


def _finished(reason: FinishReason, matched: str | int | None) -> Finished:
    return Finished(
        reason=reason,
        matched=matched,
        usage=Usage(prompt_tokens=4, cached_tokens=2, completion_tokens=3),
        timing=Timing(queue_s=0.1, prefill_s=0.2, decode_s=0.3),
    )


def _seen_by_the_server(prompt: Prompt, **options) -> Request:
    message = encode_request(pb.GenerateRequest, prompt, options)
    return codec.decode_request(
        codec.parse(pb.GenerateRequest, message.SerializeToString()), card=CARD, timeout_s=None
    )


def test_what_is_left_out_is_absent() -> None:
    assert _seen_by_the_server(Prompt(text="hi")) == Request(prompt=TextPrompt("hi"))


def test_every_option_reaches_the_server() -> None:
    seen = _seen_by_the_server(
        Prompt(token_ids=[1, 2]),
        max_tokens=3,
        temperature=0.5,
        top_p=0.25,
        top_k=4,
        min_p=0.125,
        seed=5,
        stop=["x", "y"],
        stop_token_ids=[6],
        ignore_eos=True,
        priority="background",
        disk_cache="read",
        label="me",
        timeout=9,
    )
    assert seen == Request(
        prompt=TokenPrompt((1, 2)),
        max_tokens=3,
        sampling=SamplingParams(temperature=0.5, top_p=0.25, top_k=4, min_p=0.125, seed=5),
        stop=StopParams(strings=("x", "y"), token_ids=(6,), ignore_eos=True),
        priority=Priority.BACKGROUND,
        disk_use=DiskUse.READ,
        label="me",
    )


@pytest.mark.parametrize("priority", Priority)
def test_every_priority_reaches_the_server(priority: Priority) -> None:
    assert _seen_by_the_server(Prompt(text=""), priority=priority.value).priority is priority


@pytest.mark.parametrize("priority", ["urgent", "", 1, ["background"]])
def test_a_priority_that_is_none_is_said_with_those_that_are(priority) -> None:
    with pytest.raises(ValueError, match=r"^priority is .*, should be one of foreground, back"):
        _seen_by_the_server(Prompt(text=""), priority=priority)


@pytest.mark.parametrize("use", [DiskUse.OFF, DiskUse.READ, DiskUse.FULL])
def test_every_use_of_the_disk_reaches_the_server(use: DiskUse) -> None:
    assert _seen_by_the_server(Prompt(text=""), disk_cache=use.value).disk_use is use


@pytest.mark.parametrize("use", ["default", "on", "", 1])
def test_a_use_of_the_disk_that_is_none_is_said_with_those_that_are(use) -> None:
    with pytest.raises(ValueError, match=r"^disk_cache is .*, should be one of off, read, full"):
        _seen_by_the_server(Prompt(text=""), disk_cache=use)


def test_a_request_of_no_tokens_reaches_the_server() -> None:
    assert _seen_by_the_server(Prompt(text=""), max_tokens=0).max_tokens == 0


@given(st.floats(width=32, min_value=0, max_value=100), st.integers(0, (1 << 64) - 1))
def test_values_are_not_changed_on_the_way(temperature: float, seed: int) -> None:
    seen = _seen_by_the_server(Prompt(text=""), temperature=temperature, seed=seed)
    assert (seen.sampling.temperature, seen.sampling.seed) == (temperature, seed)


def test_a_chat_reaches_the_server() -> None:
    messages = [{"role": role.value, "content": role.name} for role in Role]
    assert _seen_by_the_server(Prompt(messages=messages)).prompt == ChatPrompt(
        tuple(ChatMessage(role=role, content=role.name) for role in Role)
    )


def test_one_stop_string_is_not_its_letters() -> None:
    assert _seen_by_the_server(Prompt(text=""), stop="xyz").stop.strings == ("xyz",)


def test_no_token_ids_are_still_token_ids() -> None:
    assert _seen_by_the_server(Prompt(token_ids=[])).prompt == TokenPrompt(())


@pytest.mark.parametrize(
    "prompt", [{}, {"text": "a", "token_ids": [1]}, {"messages": [], "text": ""}]
)
def test_there_is_exactly_one_prompt(prompt) -> None:
    with pytest.raises(ValueError, match="exactly one of prompt, token_ids, messages"):
        Prompt(**prompt)


def test_an_unknown_option_is_named() -> None:
    with pytest.raises(TypeError, match="unknown option heat; known are max_tokens, temperature"):
        encode_request(pb.GenerateRequest, Prompt(text=""), {"heat": 1})


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"max_tokens": -1}, "max_tokens"),
        ({"max_tokens": 1 << 32}, "max_tokens"),
        ({"max_tokens": 1.5}, "max_tokens"),
        ({"temperature": "hot"}, "temperature"),
        ({"seed": -1}, "seed"),
        ({"stop": [1]}, "stop"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"label": "\ud800"}, "label"),
    ],
)
def test_a_value_that_does_not_fit_the_wire_is_named(options: Options, field: str) -> None:
    with pytest.raises(ValueError, match=f"^{field} (is|has) .*, should be "):
        encode_request(pb.GenerateRequest, Prompt(text=""), options)


@pytest.mark.parametrize("prompt", [Prompt(text="\ud800"), Prompt(token_ids=[-1])])
def test_a_prompt_that_does_not_fit_the_wire_is_refused(prompt: Prompt) -> None:
    with pytest.raises(ValueError, match=r"^(prompt|token_ids) (is|has) .*, should be "):
        encode_request(pb.GenerateRequest, prompt, {})


@pytest.mark.parametrize(
    "message", [{"role": "user"}, {"role": "user", "content": "x", "name": "y"}, {}]
)
def test_a_message_that_is_none_is_named_by_its_place(message) -> None:
    with pytest.raises(ValueError, match=r"messages\[1\] is not"):
        encode_chat([{"role": "user", "content": "a"}, message])


def test_a_role_that_is_none_is_named_by_its_place() -> None:
    with pytest.raises(ValueError, match=r"messages\[0\].role is 'tool', allowed are system"):
        encode_chat([{"role": "tool", "content": "a"}])


def test_text_and_chats_can_be_tokenized() -> None:
    chat = encode_chat([{"role": "user", "content": "a"}])
    assert encode_tokenize(Prompt(text="a")) == pb.TokenizeRequest(text="a")
    assert encode_tokenize(
        Prompt(messages=[{"role": "user", "content": "a"}])
    ) == pb.TokenizeRequest(chat=chat)


def test_token_ids_are_not_tokenized() -> None:
    with pytest.raises(ValueError, match="tokens already"):
        encode_tokenize(Prompt(token_ids=[1]))


@pytest.mark.parametrize(("reason", "matched"), ENDS)
def test_a_reply_says_what_the_server_said(reason, matched) -> None:
    finished = _finished(reason, matched)
    reply = decode_reply(codec.encode_reply(ACCEPTED, TOKENS, finished))
    assert (reply.text, reply.token_ids) == ("aé", (1, 2, 3))
    assert (reply.finish_reason, reply.matched) == (reason.value, matched)
    assert (reply.usage, reply.timing) == (finished.usage, finished.timing)
    assert (reply.request_id, reply.seed) == ("job-1", (1 << 64) - 1)


@pytest.mark.parametrize(("reason", "matched"), ENDS)
def test_a_streamed_reply_is_the_whole_one(reason, matched) -> None:
    finished = _finished(reason, matched)
    builder = ReplyBuilder()
    deltas = [builder.take(codec.encode_event(event)) for event in (ACCEPTED, *TOKENS, finished)]
    assert deltas == [
        None,
        *(Delta(token_ids=event.token_ids, text=event.text) for event in TOKENS),
        None,
    ]
    assert builder.reply() == decode_reply(codec.encode_reply(ACCEPTED, TOKENS, finished))


def test_a_reply_that_has_not_ended_is_not_given() -> None:
    builder = ReplyBuilder()
    builder.take(codec.encode_event(ACCEPTED))
    builder.take(codec.encode_event(TOKENS[0]))
    assert (builder.is_finished, builder.text) == (False, "a")
    with pytest.raises(RuntimeError, match="has not ended"):
        builder.reply()


def test_the_card_comes_back_whole() -> None:
    assert decode_card(codec.encode_card(CARD)) == CARD


def test_a_reason_that_a_newer_server_has_is_unknown() -> None:
    reply = decode_reply(pb.GenerateResponse(finished=pb.Finished(reason=99)))
    assert reply.finish_reason == "unknown"


def test_an_event_that_a_newer_server_sends_is_let_pass() -> None:
    builder = ReplyBuilder()
    wire = bytes([0x9A, 0x06, 0x00])  # field 99, an empty message
    assert builder.take(pb.StreamGenerateResponse.FromString(wire)) is None
    assert (builder.is_finished, builder.has_begun) == (False, False)
    builder.take(codec.encode_event(ACCEPTED))
    assert builder.has_begun


@pytest.mark.parametrize(
    ("prompt", "said"),
    [
        ({"text": 5}, "prompt is a int, should be text; ids go to token_ids=, a chat to messages="),
        ({"text": [{}]}, "prompt is a list, .* a chat to messages="),
        ({"token_ids": "1,2"}, "token_ids is a str, should be a list of ids"),
        ({"token_ids": 5}, "token_ids is a int, should be a list of ids"),
        ({"messages": "hi"}, "messages is a str, should be a list of messages"),
        ({"messages": {"role": "user"}}, "messages is a dict, should be a list of messages"),
    ],
)
def test_a_prompt_of_the_wrong_kind_is_said_with_the_right_one(prompt, said: str) -> None:
    with pytest.raises(TypeError, match=said):
        Prompt(**prompt)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_tokens": -1}, "^max_tokens is -1, should be a whole number from 0 to 4294967295$"),
        ({"temperature": "hot"}, "^temperature is 'hot', should be a number$"),
        ({"stop": [1]}, "^stop has 1, should be text"),
        ({"stop_token_ids": iter([1, -1])}, "^stop_token_ids has -1, should be a whole number"),
        ({"stop_token_ids": 5}, "^stop_token_ids is 5, should be a list, each a whole number"),
        ({"label": ["x" * 100]}, "^label is a list, should be text"),
    ],
)
def test_a_value_that_does_not_fit_is_said_with_what_would(options, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        encode_request(pb.GenerateRequest, Prompt(text=""), options)


def test_an_id_that_does_not_fit_is_said_by_its_own_name() -> None:
    with pytest.raises(ValueError, match=r"^token_ids has -1, should be a whole number"):
        encode_request(pb.GenerateRequest, Prompt(token_ids=[1, -1]), {})
    with pytest.raises(ValueError, match=r"^token_ids has -1, should be a whole number"):
        encode_detokenize([-1], keep_special=False)


def test_a_message_whose_content_is_no_text_is_named_by_its_place() -> None:
    with pytest.raises(ValueError, match=r"messages\[0\].content is a int, should be text"):
        encode_chat([{"role": "user", "content": 1}])
    with pytest.raises(ValueError, match=r"messages\[0\] is not an object"):
        encode_chat([5])
