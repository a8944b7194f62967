"""Events → OpenAI's JSON: one form for chats, one for completions.

    chat         {"message": {"role", "content"}}     chunks {"delta": {"content"}}
    completion   {"text"}                             chunks {"text"}

A chat's stream begins with a chunk that holds the role alone; the last chunk of a
choice holds the finish_reason alone. With `include_usage` one more chunk holds the
usage and no choice, and the others say `"usage": null`.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from lanehost.http.body import ChatBody, CompletionBody
from lanehost.job import FinishReason, Usage

_REASONS = {
    FinishReason.EOS: "stop",
    FinishReason.STOP: "stop",
    FinishReason.LENGTH: "length",
}


class Form(Protocol):
    """The JSON of one endpoint."""

    @property
    def body(self) -> type[ChatBody | CompletionBody]:
        """What the client sends."""
        ...

    @property
    def id_prefix(self) -> str:
        """What ids begin with."""
        ...

    @property
    def reply_object(self) -> str:
        """The `object` of a whole reply."""
        ...

    @property
    def chunk_object(self) -> str:
        """The `object` of a chunk."""
        ...

    def opening(self) -> dict[str, Any] | None:
        """Return what the first chunk's choice holds, or None when there is no such chunk."""
        ...

    def reply(self, text: str) -> dict[str, Any]:
        """Return what a whole reply's choice holds."""
        ...

    def chunk(self, text: str) -> dict[str, Any]:
        """Return what a chunk's choice holds."""
        ...

    def closing(self) -> dict[str, Any]:
        """Return what the last chunk's choice holds."""
        ...


class ChatForm:
    """The JSON of /v1/chat/completions."""

    body = ChatBody
    id_prefix = "chatcmpl-"
    reply_object = "chat.completion"
    chunk_object = "chat.completion.chunk"

    def opening(self) -> dict[str, Any]:
        """Say who speaks."""
        return {"delta": {"role": "assistant", "content": ""}}

    def reply(self, text: str) -> dict[str, Any]:
        """Hold the whole message."""
        return {"message": {"role": "assistant", "content": text, "refusal": None}}

    def chunk(self, text: str) -> dict[str, Any]:
        """Hold new text."""
        return {"delta": {"content": text}}

    def closing(self) -> dict[str, Any]:
        """Hold nothing new."""
        return {"delta": {}}


class CompletionForm:
    """The JSON of /v1/completions."""

    body = CompletionBody
    id_prefix = "cmpl-"
    reply_object = "text_completion"
    chunk_object = "text_completion"

    def opening(self) -> None:
        """Send nothing before the text."""

    def reply(self, text: str) -> dict[str, Any]:
        """Hold the whole text."""
        return {"text": text}

    def chunk(self, text: str) -> dict[str, Any]:
        """Hold new text."""
        return {"text": text}

    def closing(self) -> dict[str, Any]:
        """Hold nothing new."""
        return {"text": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What every object of one reply says alike."""

    form: Form
    job_id: str
    created_s: int
    model: str
    fingerprint: str

    def whole(self, text: str, reason: FinishReason, usage: Usage) -> dict[str, Any]:
        """Return a whole reply."""
        choice = _choice(self.form.reply(text), reason)
        return {**self._head(self.form.reply_object, [choice]), "usage": usage_json(usage)}

    def chunk(self, holds: dict[str, Any], *, reason: FinishReason | None = None) -> dict[str, Any]:
        """Return a chunk of a streamed reply."""
        return self._head(self.form.chunk_object, [_choice(holds, reason)])

    def usage_chunk(self, usage: Usage) -> dict[str, Any]:
        """Return the chunk that holds the usage alone."""
        return {**self._head(self.form.chunk_object, []), "usage": usage_json(usage)}

    def _head(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        return {
            "id": f"{self.form.id_prefix}{self.job_id}",
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


def usage_json(usage: Usage) -> dict[str, Any]:
    """Return OpenAI's form of the tokens, counted."""
    return {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        "prompt_tokens_details": {
            "cached_tokens": usage.cached_tokens,
            "disk_cached_tokens": usage.disk_cached_tokens,
            "image_tokens": usage.image_tokens,
        },
    }


def _choice(holds: dict[str, Any], reason: FinishReason | None) -> dict[str, Any]:
    finish_reason = None if reason is None else _REASONS[reason]
    return {"index": 0, **holds, "logprobs": None, "finish_reason": finish_reason}
