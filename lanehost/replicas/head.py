"""The head of a prompt: what is likely to be shared with others, read from a JSON body; pure.

    /v1/chat/completions     the first messages, up to the first that is no system prompt
    /v1/completions          the first characters of the text, or the first of the ids

An image is in it by a digest of its URL. Both end after `head_chars` characters, or a quarter
as many ids. A chat has the same head at each of its turns, since what comes later is behind it.
Two chats with one long system prompt have the same head, too; with a short one they have not,
and are spread, which costs little: each replica computes a short one once.

Law: a body that is no request of that form has a head all the same, so that a replica
refuses it in its own words.
"""

from hashlib import blake2b
from typing import Any

from pydantic_core import from_json

DEFAULT_HEAD_CHARS = 512
MAX_HEAD_CHARS = 1 << 16
_CHARS_PER_TOKEN = 4
_MAX_ID = (1 << 32) - 1
_SYSTEM_ROLES = ("system", "developer")
_END_OF_MESSAGE = "\x00"


def prompt_head(body: bytes, *, head_chars: int = DEFAULT_HEAD_CHARS) -> bytes:
    """Return the head of the prompt in a body; the first bytes of what holds none."""
    try:
        value = from_json(body, allow_inf_nan=False)
    except ValueError:
        return body[:head_chars]
    if isinstance(value, dict):
        head = _chat_head(value.get("messages"), head_chars)
        if head is None:
            head = _text_head(value.get("prompt"), head_chars)
        if head is not None:
            return head.encode(errors="surrogatepass")
    return body[:head_chars]


def _chat_head(messages: Any, head_chars: int) -> str | None:
    if not isinstance(messages, list) or not messages:
        return None
    parts: list[str] = []
    for message in messages:
        role, content = _message(message)
        parts.append(f"{role}{_END_OF_MESSAGE}{content}{_END_OF_MESSAGE}")
        if role not in _SYSTEM_ROLES or sum(map(len, parts)) >= head_chars:
            break
    return "".join(parts)[:head_chars]


def _message(message: Any) -> tuple[str, str]:
    if not isinstance(message, dict):
        return "", ""
    role, content = message.get("role"), message.get("content")
    if isinstance(content, list):
        content = "".join(_part(part) for part in content if isinstance(part, dict))
    return role if isinstance(role, str) else "", content if isinstance(content, str) else ""


def _part(part: dict[str, Any]) -> str:
    """Return a text, or what tells an image from others: their files begin alike."""
    image = part.get("image_url")
    url = image.get("url") if isinstance(image, dict) else None
    if isinstance(url, str):
        return blake2b(url.encode(errors="surrogatepass"), digest_size=16).hexdigest()
    text = part.get("text")
    return text if isinstance(text, str) else ""


def _text_head(prompt: Any, head_chars: int) -> str | None:
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]  # a list of one prompt is that prompt
    if isinstance(prompt, str):
        return prompt[:head_chars]
    if isinstance(prompt, list) and prompt:
        ids = prompt[: max(1, head_chars // _CHARS_PER_TOKEN)]
        if all(isinstance(one, int) and 0 <= one <= _MAX_ID for one in ids):
            return " ".join(str(int(one)) for one in ids)
    return None
