"""The JSON bodies of the OpenAI door, each field checked for its type.

Law: no option is accepted and ignored. A field is one of these:

    understood       the fields of the classes below
    a label          user, safety_identifier, metadata: they go to the log line of the job
    known, not built in a class's `not_built`: its neutral values, and null, ask for nothing and
                     are taken; any other value is refused by name
    unknown          refused by name

    field of the request               neutral values taken (null always is)
    n, best_of                         1
    presence_penalty, frequency_penalty 0
    logit_bias                         {}
    logprobs                           false for a chat; null alone for a completion, where 0 asks
    top_logprobs                       0
    echo                               false
    suffix                             ""
    response_format                    {"type": "text"}
    tools, functions                   []
    tool_choice, function_call         "none", "auto": without tools both mean none
    parallel_tool_calls                true, false: there are no calls
    modalities                         ["text"]
    store                              false
    service_tier                       "auto", "default"
    audio, prediction, reasoning_effort, verbosity, web_search_options,
    prompt_cache_key, prompt_cache_retention             null alone
    stream_options.include_obfuscation false
    messages[].name, audio, function_call, refusal       null alone
    messages[].tool_calls, annotations []
    messages[].content[].image_url.detail               "auto"

Images are data URLs (data_url.py): their bytes are in the object that a body becomes.

Extensions: top_k, min_p, stop_token_ids, ignore_eos, priority ("foreground", "background"),
disk_cache ("off", "read", "full"), a max_tokens of 0, which warms the prompt cache, and up to 16
stop strings. The first unknown field is refused at once, and no list is read beyond its bound: a
body that is wrong in a million places costs what one fault costs. What is absent takes the
defaults of GetModel, which are not OpenAI's: greedy, and the server's max_tokens.
Ranges that depend on the model are the door's to judge; nothing is ever clamped.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    Tag,
    model_validator,
)

from lanehost.door.limits import MAX_PARTS
from lanehost.engine.stops import MAX_STOP_IDS, MAX_STOP_STRINGS
from lanehost.http.parts import PartBody
from lanehost.http.strict_object import Body, Neutral, not_built, refusal
from lanehost.job import (
    ChatMessage,
    ChatPrompt,
    DiskUse,
    Priority,
    Prompt,
    Request,
    Role,
    SamplingParams,
    StopParams,
    TextPrompt,
    TokenPrompt,
)

MAX_METADATA_PAIRS = 16
_UINT32 = Field(ge=0, le=(1 << 32) - 1)
_ROLES = {
    "system": Role.SYSTEM,
    "developer": Role.SYSTEM,
    "user": Role.USER,
    "assistant": Role.ASSISTANT,
}

Uint32 = Annotated[int, _UINT32]
Uint64 = Annotated[int, Field(ge=0, le=(1 << 64) - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
# A body may hold millions of wrong ids: the first is enough.
TokenIds = Annotated[list[Uint32], Field(fail_fast=True)]


def _text_or_list(value: object) -> str:
    # Tags with a tilde are steps of pydantic's path that are not in the client's JSON.
    return "~text" if isinstance(value, str) else "~list"


def _one_prompt(value: object) -> object:
    """Take a list of one prompt as that prompt."""
    if not isinstance(value, list) or not value or isinstance(value[0], int):
        return value
    if len(value) > 1:
        raise not_built("", f"is a list of {len(value)} prompts, only one is taken")
    return value[0]


def _few_pairs(value: object) -> object:
    if isinstance(value, dict) and len(value) > MAX_METADATA_PAIRS:
        message = f"has {len(value)} pairs, at most {MAX_METADATA_PAIRS} are allowed"
        raise refusal(message)
    return value


def _some_messages(value: object) -> object:
    if value == []:
        raise refusal("has 0, at least 1 is needed")
    return value


class StreamOptions(Body):
    """How a stream is sent."""

    not_built: ClassVar[Neutral] = {"include_obfuscation": (False,)}
    include_usage: bool | None = None


class GenerateBody(Body):
    """What a chat and a completion share."""

    model: str
    max_tokens: Uint32 | None = None
    temperature: Finite | None = None
    top_p: Finite | None = None
    top_k: Uint32 | None = None
    min_p: Finite | None = None
    seed: Uint64 | None = None
    stop: (
        Annotated[
            Annotated[str, Tag("~text")]
            | Annotated[list[str], Field(max_length=MAX_STOP_STRINGS), Tag("~list")],
            Discriminator(_text_or_list),
        ]
        | None
    ) = None
    stop_token_ids: (
        Annotated[list[Uint32], Field(fail_fast=True, max_length=MAX_STOP_IDS)] | None
    ) = None
    ignore_eos: bool | None = None
    priority: Literal["foreground", "background"] | None = None
    disk_cache: Literal["off", "read", "full"] | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    user: str | None = None

    @model_validator(mode="after")
    def _options_need_a_stream(self) -> "GenerateBody":
        if self.stream_options is not None and not self.stream:
            raise refusal("is set, but stream is not true", "stream_options")
        return self

    @property
    def names(self) -> Mapping[str, str]:
        """The door's names of fields → the client's, where they are not the usual ones."""
        return {}

    @property
    def includes_usage(self) -> bool:
        """Whether a stream ends with a chunk of usage."""
        return self.stream_options is not None and bool(self.stream_options.include_usage)

    def _request(self, prompt: Prompt, max_tokens: int | None, label: str) -> Request:
        strings = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return Request(
            prompt=prompt,
            max_tokens=max_tokens,
            sampling=SamplingParams(
                temperature=self.temperature,
                top_p=self.top_p,
                top_k=self.top_k,
                min_p=self.min_p,
                seed=self.seed,
            ),
            stop=StopParams(
                strings=tuple(strings),
                token_ids=tuple(self.stop_token_ids or ()),
                ignore_eos=bool(self.ignore_eos),
            ),
            label=label,
            priority=Priority(self.priority or Priority.FOREGROUND),
            disk_use=DiskUse(self.disk_cache or DiskUse.DEFAULT),
        )


class CompletionBody(GenerateBody):
    """The body of /v1/completions."""

    not_built: ClassVar[Neutral] = {
        "n": (1,),
        "best_of": (1,),
        "presence_penalty": (0, 0.0),
        "frequency_penalty": (0, 0.0),
        "logit_bias": ({},),
        "logprobs": (),
        "echo": (False,),
        "suffix": ("",),
    }
    prompt: Annotated[
        Annotated[str, Tag("~text")] | Annotated[TokenIds, Tag("~list")],
        Discriminator(_text_or_list),
        BeforeValidator(_one_prompt),
    ]

    def to_request(self) -> Request:
        """Return what the door is asked."""
        prompt: Prompt
        if isinstance(self.prompt, str):
            prompt = TextPrompt(self.prompt)
        else:
            prompt = TokenPrompt(tuple(self.prompt))
        return self._request(prompt, self.max_tokens, self.user or "")


class MessageBody(Body):
    """One message; the texts of its parts are joined as they are where there is no image."""

    not_built: ClassVar[Neutral] = {
        "name": (),
        "audio": (),
        "function_call": (),
        "refusal": (),
        "tool_calls": ([],),
        "annotations": ([],),
    }
    role: Literal["system", "developer", "user", "assistant"]
    content: Annotated[
        Annotated[str, Tag("~text")]
        | Annotated[list[PartBody], Field(fail_fast=True, max_length=MAX_PARTS), Tag("~list")],
        Discriminator(_text_or_list),
    ]

    @model_validator(mode="before")
    @classmethod
    def _no_tools(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("role") in ("tool", "function"):
            raise not_built("role", f"is {value['role']!r}, tools are not built")
        return value

    def to_message(self) -> ChatMessage:
        """Return the message in the door's words."""
        role, parts = _ROLES[self.role], self.content
        if isinstance(parts, str):
            return ChatMessage(role=role, content=parts)
        message = ChatMessage(role=role, content=tuple(part.to_part() for part in parts))
        return message if message.images else replace(message, content=message.text)


class ChatBody(GenerateBody):
    """The body of /v1/chat/completions."""

    not_built: ClassVar[Neutral] = {
        "n": (1,),
        "presence_penalty": (0, 0.0),
        "frequency_penalty": (0, 0.0),
        "logit_bias": ({},),
        "logprobs": (False,),
        "top_logprobs": (0,),
        "response_format": ({"type": "text"},),
        "tools": ([],),
        "tool_choice": ("none", "auto"),
        "parallel_tool_calls": (True, False),
        "functions": ([],),
        "function_call": ("none", "auto"),
        "modalities": (["text"],),
        "store": (False,),
        "service_tier": ("auto", "default"),
        "audio": (),
        "prediction": (),
        "reasoning_effort": (),
        "verbosity": (),
        "web_search_options": (),
        "prompt_cache_key": (),
        "prompt_cache_retention": (),
    }
    messages: Annotated[list[MessageBody], Field(fail_fast=True), BeforeValidator(_some_messages)]
    max_completion_tokens: Uint32 | None = None
    safety_identifier: str | None = None
    metadata: Annotated[dict[str, str], BeforeValidator(_few_pairs)] | None = None

    @model_validator(mode="after")
    def _one_limit(self) -> "ChatBody":
        both = (self.max_tokens, self.max_completion_tokens)
        if None not in both and both[0] != both[1]:
            message = f"is {both[1]}, but max_tokens is {both[0]}; send one of them"
            raise refusal(message, "max_completion_tokens")
        return self

    @property
    def names(self) -> Mapping[str, str]:
        """The door's names of fields → the client's, where they are not the usual ones."""
        labels = self._labels()
        longest = max(labels, key=lambda field: len(labels[field]))
        limit = "max_tokens" if self.max_completion_tokens is None else "max_completion_tokens"
        return {"label": longest, "max_tokens": limit}

    def to_request(self) -> Request:
        """Return what the door is asked."""
        limit = self.max_completion_tokens
        return self._request(
            ChatPrompt(tuple(message.to_message() for message in self.messages)),
            self.max_tokens if limit is None else limit,
            " ".join(filter(None, self._labels().values())),
        )

    def _labels(self) -> dict[str, str]:
        pairs = (f"{key}={value}" for key, value in (self.metadata or {}).items())
        return {
            "user": self.user or "",
            "safety_identifier": self.safety_identifier or "",
            "metadata": " ".join(pairs),
        }
