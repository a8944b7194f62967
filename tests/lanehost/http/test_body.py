import pytest
from pydantic import ValidationError

from lanehost.errors import InvalidRequest, NotBuilt
from lanehost.http.body import ChatBody, CompletionBody
from lanehost.http.errors import to_refusal
from lanehost.job import (
    ChatMessage,
    ChatPrompt,
    Request,
    Role,
    SamplingParams,
    StopParams,
    TextPrompt,
    TokenPrompt,
)

CHAT = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"model": "m", "prompt": "hi"}
NEUTRAL = [
    (body, base, field, value)
    for body, base in ((ChatBody, CHAT), (CompletionBody, COMPLETION))
    for field, values in body.not_built.items()
    for value in (*values, None)
]
NOT_BUILT = [
    (ChatBody, CHAT, "n", 2),
    (ChatBody, CHAT, "n", True),
    (ChatBody, CHAT, "presence_penalty", 0.5),
    (ChatBody, CHAT, "frequency_penalty", -1),
    (ChatBody, CHAT, "logit_bias", {"5": 1}),
    (ChatBody, CHAT, "logprobs", True),
    (ChatBody, CHAT, "top_logprobs", 3),
    (ChatBody, CHAT, "response_format", {"type": "json_object"}),
    (ChatBody, CHAT, "tools", [{"type": "function"}]),
    (ChatBody, CHAT, "tool_choice", "required"),
    (ChatBody, CHAT, "functions", [{}]),
    (ChatBody, CHAT, "modalities", ["text", "audio"]),
    (ChatBody, CHAT, "store", True),
    (ChatBody, CHAT, "service_tier", "flex"),
    (ChatBody, CHAT, "reasoning_effort", "low"),
    (ChatBody, CHAT, "prompt_cache_key", "k"),
    (CompletionBody, COMPLETION, "n", 2),
    (CompletionBody, COMPLETION, "best_of", 2),
    (CompletionBody, COMPLETION, "logprobs", 0),
    (CompletionBody, COMPLETION, "echo", True),
    (CompletionBody, COMPLETION, "suffix", "x"),
]
WRONG = [
    (ChatBody, {**CHAT, "nonsense": 1}, "nonsense"),
    (
        ChatBody,
        {**CHAT, "stream_options": {"nonsense": 1}, "stream": True},
        "stream_options.nonsense",
    ),
    (ChatBody, {"model": "m"}, "messages"),
    (ChatBody, {**CHAT, "messages": []}, "messages"),
    (ChatBody, {**CHAT, "messages": "hi"}, "messages"),
    (ChatBody, {**CHAT, "messages": ["hi"]}, "messages[0]"),
    (ChatBody, {**CHAT, "messages": [{"role": "user"}]}, "messages[0].content"),
    (ChatBody, {**CHAT, "messages": [{"role": "u", "content": "x"}]}, "messages[0].role"),
    (ChatBody, {**CHAT, "messages": [{"role": "user", "content": None}]}, "messages[0].content"),
    (
        ChatBody,
        {**CHAT, "messages": [{"role": "user", "content": [{"type": "text"}]}]},
        "messages[0].content[0].text",
    ),
    (ChatBody, {**CHAT, "messages": [{"role": "user", "content": "", "x": 1}]}, "messages[0].x"),
    (ChatBody, {**CHAT, "model": None}, "model"),
    (ChatBody, {**CHAT, "max_tokens": "5"}, "max_tokens"),
    (ChatBody, {**CHAT, "max_tokens": True}, "max_tokens"),
    (ChatBody, {**CHAT, "max_tokens": 1.5}, "max_tokens"),
    (ChatBody, {**CHAT, "max_tokens": -1}, "max_tokens"),
    (ChatBody, {**CHAT, "max_tokens": 1 << 32}, "max_tokens"),
    (ChatBody, {**CHAT, "max_tokens": 1, "max_completion_tokens": 2}, "max_completion_tokens"),
    (ChatBody, {**CHAT, "temperature": float("nan")}, "temperature"),
    (ChatBody, {**CHAT, "top_p": float("inf")}, "top_p"),
    (ChatBody, {**CHAT, "min_p": "0"}, "min_p"),
    (ChatBody, {**CHAT, "seed": -1}, "seed"),
    (ChatBody, {**CHAT, "seed": 1 << 64}, "seed"),
    (ChatBody, {**CHAT, "stop": 1}, "stop"),
    (ChatBody, {**CHAT, "stop": ["a", 1]}, "stop[1]"),
    (ChatBody, {**CHAT, "stop": ["a"] * 17}, "stop"),
    (ChatBody, {**CHAT, "stop_token_ids": [1, -1]}, "stop_token_ids[1]"),
    (ChatBody, {**CHAT, "stream": "yes"}, "stream"),
    (ChatBody, {**CHAT, "stream_options": {}}, "stream_options"),
    (ChatBody, {**CHAT, "metadata": {"a": 1}}, "metadata.a"),
    (ChatBody, {**CHAT, "metadata": {str(index): "x" for index in range(17)}}, "metadata"),
    (ChatBody, {**CHAT, "stop_token_ids": [1] * 1025}, "stop_token_ids"),
    (ChatBody, [], "body"),
    (CompletionBody, {"model": "m"}, "prompt"),
    (CompletionBody, {**COMPLETION, "prompt": {}}, "prompt"),
    (CompletionBody, {**COMPLETION, "prompt": [1, "x"]}, "prompt[1]"),
    (CompletionBody, {**COMPLETION, "prompt": [True]}, "prompt[0]"),
    (CompletionBody, {**COMPLETION, "messages": []}, "messages"),
]


def _refusal(body, value) -> InvalidRequest | NotBuilt:
    with pytest.raises(ValidationError) as caught:
        body.model_validate(value)
    return to_refusal(caught.value)


@pytest.mark.parametrize(("body", "base", "field", "value"), NEUTRAL)
def test_a_neutral_value_asks_for_nothing(body, base, field, value) -> None:
    assert body.model_validate({**base, field: value}) == body.model_validate(base)


@pytest.mark.parametrize(("body", "base", "field", "value"), NOT_BUILT)
def test_what_is_not_built_is_refused_by_name(body, base, field, value) -> None:
    refusal = _refusal(body, {**base, field: value})
    assert isinstance(refusal, NotBuilt)
    assert refusal.field == field
    assert "leave it out" in refusal.reason


@pytest.mark.parametrize(("body", "value", "field"), WRONG)
def test_what_is_wrong_is_refused_by_its_path(body, value, field) -> None:
    refusal = _refusal(body, value)
    assert isinstance(refusal, InvalidRequest)
    assert refusal.field == field


@pytest.mark.parametrize("kind", ["input_audio", "file"])
def test_a_part_that_is_neither_text_nor_image_is_not_built(kind: str) -> None:
    message = {"role": "user", "content": [{"type": kind, kind: {}}]}
    refusal = _refusal(ChatBody, {**CHAT, "messages": [message]})
    assert isinstance(refusal, NotBuilt)
    assert refusal.field == "messages[0].content[0].type"


@pytest.mark.parametrize("role", ["tool", "function"])
def test_the_roles_of_tools_are_not_built(role: str) -> None:
    refusal = _refusal(ChatBody, {**CHAT, "messages": [{"role": role, "content": "x"}]})
    assert isinstance(refusal, NotBuilt)
    assert refusal.field == "messages[0].role"


def test_several_prompts_are_not_built() -> None:
    refusal = _refusal(CompletionBody, {**COMPLETION, "prompt": ["a", "b"]})
    assert isinstance(refusal, NotBuilt)
    assert (refusal.field, refusal.reason) == (
        "prompt",
        "is a list of 2 prompts, only one is taken",
    )


def test_a_wrong_value_is_shown_with_the_limit() -> None:
    refusal = _refusal(ChatBody, {**CHAT, "max_tokens": -5})
    assert refusal.reason == "is -5, should be greater than or equal to 0"


def test_a_long_wrong_value_is_not_shown() -> None:
    refusal = _refusal(ChatBody, {**CHAT, "max_tokens": "x" * 1000})
    assert refusal.reason == "is a str, should be a valid integer"


def test_a_million_wrong_ids_give_one_error() -> None:
    with pytest.raises(ValidationError) as caught:
        CompletionBody.model_validate({**COMPLETION, "prompt": [-1] * 1_000_000})
    assert caught.value.error_count() == 1


def test_half_a_million_unknown_fields_give_one_error() -> None:
    with pytest.raises(ValidationError) as caught:
        ChatBody.model_validate({**CHAT, **{f"k{index}": 1 for index in range(500_000)}})
    assert caught.value.error_count() == 1
    assert to_refusal(caught.value).field == "k0"


def test_a_chat_without_messages_is_said_with_the_least() -> None:
    refusal = _refusal(ChatBody, {**CHAT, "messages": []})
    assert str(refusal) == "messages: has 0, at least 1 is needed"


def test_a_message_has_a_bounded_number_of_parts() -> None:
    parts = [{"type": "text", "text": ""}] * 1025
    refusal = _refusal(ChatBody, {**CHAT, "messages": [{"role": "user", "content": parts}]})
    assert "1024" in refusal.reason


def test_a_small_chat_takes_every_default() -> None:
    assert ChatBody.model_validate(CHAT).to_request() == Request(
        prompt=ChatPrompt((ChatMessage(role=Role.USER, content="hi"),))
    )


def test_a_full_chat_is_understood_whole() -> None:
    body = ChatBody.model_validate(
        {
            "model": "m",
            "messages": [
                {"role": "developer", "content": [{"type": "text", "text": "be "}]},
                {"role": "system", "content": "kind"},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}],
                },
                {"role": "assistant", "content": "c", "refusal": None, "tool_calls": []},
            ],
            "max_completion_tokens": 9,
            "temperature": 1,
            "top_p": 0.5,
            "top_k": 3,
            "min_p": 0.25,
            "seed": (1 << 64) - 1,
            "stop": ["x", "y"],
            "stop_token_ids": [7],
            "ignore_eos": True,
            "user": "u",
            "safety_identifier": "s",
            "metadata": {"k": "v"},
        }
    )
    assert body.to_request() == Request(
        prompt=ChatPrompt(
            (
                ChatMessage(role=Role.SYSTEM, content="be "),
                ChatMessage(role=Role.SYSTEM, content="kind"),
                ChatMessage(role=Role.USER, content="ab"),
                ChatMessage(role=Role.ASSISTANT, content="c"),
            )
        ),
        max_tokens=9,
        sampling=SamplingParams(
            temperature=1.0, top_p=0.5, top_k=3, min_p=0.25, seed=(1 << 64) - 1
        ),
        stop=StopParams(strings=("x", "y"), token_ids=(7,), ignore_eos=True),
        label="u s k=v",
    )


@pytest.mark.parametrize(
    ("prompt", "wanted"),
    [
        ("hi", TextPrompt("hi")),
        ("", TextPrompt("")),
        (["hi"], TextPrompt("hi")),
        ([1, 2], TokenPrompt((1, 2))),
        ([[1, 2]], TokenPrompt((1, 2))),
        ([], TokenPrompt(())),
    ],
)
def test_a_completion_takes_text_or_token_ids(prompt, wanted) -> None:
    body = CompletionBody.model_validate({**COMPLETION, "prompt": prompt, "max_tokens": 3})
    assert body.to_request() == Request(prompt=wanted, max_tokens=3)


def test_one_stop_string_needs_no_list() -> None:
    body = CompletionBody.model_validate({**COMPLETION, "stop": "x"})
    assert body.to_request().stop.strings == ("x",)


def test_both_limits_may_be_sent_when_they_agree() -> None:
    body = ChatBody.model_validate({**CHAT, "max_tokens": 4, "max_completion_tokens": 4})
    assert body.to_request().max_tokens == 4


def test_usage_is_included_when_asked_for() -> None:
    options = {"stream": True, "stream_options": {"include_usage": True}}
    assert ChatBody.model_validate({**CHAT, **options}).includes_usage
    assert not ChatBody.model_validate({**CHAT, "stream": True}).includes_usage
