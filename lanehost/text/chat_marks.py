"""Where another chat is likely to part from this one: the marks in a chat's prompt.

Two places: where the first message behind the system prompt begins to say something, and
where the last message does. They are found by asking, not by knowing templates: the chat
up to there is rendered once more with other words in that message, and the mark is as
far as the token ids of both agree. So headers, a default system prompt and a system
prompt that the template puts inside the first turn all lie before the mark.

Laws: a mark is never behind the point where such a chat parts, also when the template
writes earlier turns anew; a chat costs at most two further renderings; when the template
refuses the other chat, there is no mark and no error. No reply depends on a mark.
"""

from dataclasses import replace
from itertools import takewhile

from lanehost.errors import InvalidRequest
from lanehost.job import ChatMessage, Role
from lanehost.text.chat_template import ChatTemplate
from lanehost.text.tokenizer import Tokenizer

_OTHER_WORDS = ("0", "1")


def chat_marks(
    messages: tuple[ChatMessage, ...],
    prompt_ids: list[int],
    *,
    template: ChatTemplate,
    tokenizer: Tokenizer,
) -> tuple[int, ...]:
    """Return the positions in a chat's prompt where another is likely to part, rising.

    Args:
        messages: The chat.
        prompt_ids: The ids of its prompt, as rendered and encoded by these two.
        template: The model's chat template.
        tokenizer: The model's tokenizer.
    """
    marks: set[int] = set()
    for place in _places(messages):
        other = (*messages[:place], _with_other_words(messages[place]))
        try:
            other_ids = tokenizer.encode_rendered(template.render(other))
        except InvalidRequest:
            continue
        marks.add(_num_alike(prompt_ids, other_ids))
    # A place at an end of the prompt parts nobody from it.
    return tuple(sorted(marks - {0, len(prompt_ids)}))


def _places(messages: tuple[ChatMessage, ...]) -> set[int]:
    """Return the first message that is no system prompt, if any, and the last message."""
    spoken = (n for n, message in enumerate(messages) if message.role is not Role.SYSTEM)
    last = len(messages) - 1
    return {next(spoken, last), last} if messages else set()


def _with_other_words(message: ChatMessage) -> ChatMessage:
    """Return the message with words that part from its own at the first letter."""
    first, second = _OTHER_WORDS
    is_taken = message.text.lstrip().startswith(first)
    return replace(message, content=second if is_taken else first)


def _num_alike(ours: list[int], theirs: list[int]) -> int:
    pairs = zip(ours, theirs, strict=False)
    return len(list(takewhile(lambda pair: pair[0] == pair[1], pairs)))
