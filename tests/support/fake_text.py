"""A tokenizer of one token a character, for tests of the door."""

from collections.abc import Iterable

from lanehost.errors import InvalidRequest
from lanehost.images.placeholders import ImageText
from lanehost.images.processor import ImageProcessor, Resample
from lanehost.job import ChatMessage, TextPart
from lanehost.text.model_text import ModelText
from tests.support.jobs import WordDetokenizer


class LetterTokenizer:
    longest_token_bytes = 1

    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    encode_rendered = encode

    def decode(self, ids: Iterable[int], *, keep_special: bool = False) -> str:
        return "".join(chr(token_id) for token_id in ids) + ("!" if keep_special else "")

    def new_detokenizer(self) -> WordDetokenizer:
        return WordDetokenizer()


class PlainTemplate:
    def render(self, messages: tuple[ChatMessage, ...]) -> str:
        if any(message.content == "raise" for message in messages):
            raise InvalidRequest("chat", "the template says no")
        return "".join(f"<{message.role.value}>{_content(message)}" for message in messages)


def _content(message: ChatMessage) -> str:
    """Its text; a brace stands for an image, as in `IMAGES`."""
    if isinstance(message.content, str):
        return message.content
    return "".join(part.text if isinstance(part, TextPart) else "{" for part in message.content)


# An image is "{|||}" in a prompt, and 4 x 2 pixels.
IMAGES = ImageText(
    processor=ImageProcessor(
        width=4,
        height=2,
        resample=Resample.BILINEAR,
        mean=(0.5, 0.5, 0.5),
        std=(0.5, 0.5, 0.5),
    ),
    num_tokens=3,
    token_id=ord("|"),
    begin="{",
    soft="|",
    end="}",
    around="",
)


def make_text(*, has_template: bool = True, images: ImageText | None = None) -> ModelText:
    return ModelText(
        name="letters",
        tokenizer=LetterTokenizer(),
        template=PlainTemplate() if has_template else None,
        eos_token_ids=frozenset(),
        context_length=4096,
        vocab_size=251,
        images=images,
        no_template_reason="" if has_template else "this model has no chat template",
    )
