"""Where another chat is likely to part from this one: the marks in a chat's prompt.

Two places: where the first message behind the system prompt begins to say something, and
where the last message does. They are found by asking, not by knowing templates: the chat
up to there is rendered once more with other words in that message, and the mark is as
far as the token ids of both agree. So headers, a default system prompt and a system
prompt that the template puts inside the first turn all lie before the mark.

A last message with images is asked twice: once with other words in the place of all of it, and
once with its images kept, for many questions are asked about one picture.

Laws: a mark is never behind the point where such a chat parts, also when the template
writes earlier turns anew, and never within an image's block; a chat costs at most three further
renderings; when the template refuses the other chat, there is no mark and no error. No reply
depends on a mark.
"""

from collections.abc import Callable
from dataclasses import replace
from itertools import takewhile

from lanehost.errors import InvalidRequest
from lanehost.job import ChatMessage, Role, TextPart

_OTHER_WORDS = ("0", "1")


def chat_marks(
    messages: tuple[ChatMessage, ...],
    prompt_ids: list[int],
    *,
    encode: Callable[[tuple[ChatMessage, ...]], list[int]],
    blocks: tuple[range, ...] = (),
) -> tuple[int, ...]:
    """Return the positions in a chat's prompt where another is likely to part, rising.

    Args:
        messages: The chat.
        prompt_ids: The ids of its prompt, as `encode` gives them.
        encode: Renders a chat and gives its ids.
        blocks: The positions of each image's rows.
    """
    marks: set[int] = set()
    for other in _others(messages):
        try:
            other_ids = encode(other)
        except InvalidRequest:
            continue
        marks.add(_num_alike(prompt_ids, other_ids))
    # Two images have the same ids: what is alike may end within one that is not the same.
    marks = {_before(mark, blocks) for mark in marks}
    # A place at an end of the prompt parts nobody from it.
    return tuple(sorted(marks - {0, len(prompt_ids)}))


def _others(messages: tuple[ChatMessage, ...]) -> list[tuple[ChatMessage, ...]]:
    """Return the chats that part from this one: each up to where it has other words."""
    others = [
        (*messages[:place], _with_other_words(messages[place]))
        for place in sorted(_places(messages))
    ]
    if messages and messages[-1].images:
        others.append((*messages[:-1], _with_another_question(messages[-1])))
    return others


def _places(messages: tuple[ChatMessage, ...]) -> set[int]:
    """Return the first message that is no system prompt, if any, and the last message."""
    spoken = (n for n, message in enumerate(messages) if message.role is not Role.SYSTEM)
    last = len(messages) - 1
    return {next(spoken, last), last} if messages else set()


def _with_other_words(message: ChatMessage) -> ChatMessage:
    """Return the message with words that part from its own at the first letter."""
    return replace(message, content=_other_words(message.text))


def _with_another_question(message: ChatMessage) -> ChatMessage:
    """Return the message with the images that it begins with, and other words behind them."""
    parts = message.content if isinstance(message.content, tuple) else ()
    first = tuple(takewhile(lambda part: not isinstance(part, TextPart), parts))
    words = TextPart(_other_words(message.text))
    return replace(message, content=(*first, words))


def _other_words(text: str) -> str:
    first, second = _OTHER_WORDS
    return second if text.lstrip().startswith(first) else first


def _before(mark: int, blocks: tuple[range, ...]) -> int:
    return next((block.start for block in blocks if block.start < mark < block.stop), mark)


def _num_alike(ours: list[int], theirs: list[int]) -> int:
    pairs = zip(ours, theirs, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
