r"""From a chat with images to the ids of its prompt, and where each image's rows go.

The model's template writes one word for each image; the reference puts the image's whole block in
its place, with a line of its own, and tokenizes the whole. So is it here:

    rendered    … look at <start_of_image> this
    expanded    … look at \n\n<start_of_image><soft><soft>…<end_of_image>\n\n this
    ids         … 9 9 5 8 8 8 … 6 9 9 …      the image's rows go where the 8s are

Laws: there are as many blocks as images, in their order, or the chat is refused; what a client's
text spells is text, also where it spells one of these words: it is hidden from the template and
from the count, and encoded in two pieces, neither of which is a word; without such a text the
whole is encoded at once, as the reference does.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from lanehost.errors import InvalidRequest
from lanehost.images.processor import ImageProcessor
from lanehost.job import ChatMessage, ContentPart, TextPart

# Of the private use area, which no template writes and no tokenizer composes.
_OPEN, _CLOSE = "\ue000", "\ue001"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageText:
    """How images stand in a model's prompts, and how their pixels are made.

    `begin`, `soft` and `end` are the texts of special tokens: around a block, and its rows, of
    which there are `num_tokens`, each with the id `token_id`. The template writes `begin` alone.
    `around` is what stands before and behind a block.
    """

    processor: ImageProcessor
    num_tokens: int
    token_id: int
    begin: str
    soft: str
    end: str
    around: str

    @property
    def words(self) -> tuple[str, str, str]:
        """What no text of a client may be taken for."""
        return self.begin, self.soft, self.end

    @property
    def block(self) -> str:
        """What stands in the place of the template's word."""
        return f"{self.around}{self.begin}{self.soft * self.num_tokens}{self.end}{self.around}"


@dataclass(frozen=True, slots=True, kw_only=True)
class EncodedChat:
    """The ids of a chat's prompt; `starts` are the first positions of its images' rows."""

    prompt_ids: list[int]
    starts: tuple[int, ...] = ()


def encode_chat(
    messages: tuple[ChatMessage, ...],
    *,
    images: ImageText,
    render: Callable[[tuple[ChatMessage, ...]], str],
    encode: Callable[[str], list[int]],
) -> EncodedChat:
    """Render and encode a chat to a model that takes images; it may have none.

    Args:
        messages: The chat.
        images: How images stand in the model's prompts.
        render: The model's template.
        encode: The model's tokenizer, for what a template wrote.

    Raises:
        InvalidRequest: the template refuses the chat, or has not one place for each image.
    """
    num_images = sum(len(message.images) for message in messages)
    hidden = _hide(messages, images.words)
    rendered = render(hidden.messages)
    num_places = rendered.count(images.begin)
    if num_places != num_images:
        raise InvalidRequest(
            "chat", f"the model's chat template has {num_places} places for {num_images} images"
        )
    expanded = rendered.replace(images.begin, images.block)
    prompt_ids = [one for text in hidden.shown(expanded) for one in encode(text)]
    return EncodedChat(
        prompt_ids=prompt_ids, starts=_starts(prompt_ids, images, num_images=num_images)
    )


def _starts(prompt_ids: list[int], images: ImageText, *, num_images: int) -> tuple[int, ...]:
    """Return where each run of the images' id begins; each is one image's."""
    starts: list[int] = []
    position = 0
    wanted = [images.token_id] * images.num_tokens
    num_soft = prompt_ids.count(images.token_id)
    while len(starts) < num_images and num_soft == num_images * images.num_tokens:
        position = prompt_ids.index(images.token_id, position)
        if prompt_ids[position : position + images.num_tokens] != wanted:
            break
        starts.append(position)
        position += images.num_tokens
    if len(starts) != num_images or num_soft != num_images * images.num_tokens:
        raise InvalidRequest(
            "chat",
            f"its prompt has {num_soft} places for rows of images, "
            f"{num_images} images have {num_images * images.num_tokens}",
        )
    return tuple(starts)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Hidden:
    """A chat whose texts spell no word: `marks` stand for those that they did spell."""

    messages: tuple[ChatMessage, ...]
    marks: dict[str, str]

    def shown(self, text: str) -> Iterator[str]:
        """Give the pieces of a text with the words in it again, each cut in two."""
        for mark, word in self.marks.items():
            text = text.replace(mark, f"{word[0]}{mark}{word[1:]}")
        pieces = [text]
        for mark in self.marks:
            pieces = [part for piece in pieces for part in piece.split(mark)]
        return (piece for piece in pieces if piece)


def _hide(messages: tuple[ChatMessage, ...], words: tuple[str, ...]) -> _Hidden:
    texts = [message.text for message in messages]
    if not any(word in text for word in words for text in texts):
        return _Hidden(messages=messages, marks={})
    number = 0
    while any(f"{_OPEN}{number}." in text for text in texts):
        number += 1
    marks = {f"{_OPEN}{number}.{index}{_CLOSE}": word for index, word in enumerate(words)}

    def hide(text: str) -> str:
        for mark, word in marks.items():
            text = text.replace(word, mark)
        return text

    def hide_part(part: ContentPart) -> ContentPart:
        return TextPart(hide(part.text)) if isinstance(part, TextPart) else part

    hidden = tuple(
        replace(
            message,
            content=hide(message.content)
            if isinstance(message.content, str)
            else tuple(hide_part(part) for part in message.content),
        )
        for message in messages
    )
    return _Hidden(messages=hidden, marks=marks)
