"""Rendering, tokenizing, finding where chats part, and decoding, in threads off the event loop.

A few workers, and no more: a flood of long texts waits here, inside places that the line
has promised, and takes no more than its share of the machine (workers.py). What a prompt costs is
judged before it is paid: its text by its bytes, its images only once its ids are known to fit.
"""

from dataclasses import dataclass
from functools import partial
from typing import assert_never

from lanehost.door.accept import check_prompt_bytes
from lanehost.door.model_card import ModelCard
from lanehost.door.prompt_images import PromptImages
from lanehost.door.workers import Workers
from lanehost.errors import InvalidRequest
from lanehost.images.placeholders import EncodedChat, encode_chat
from lanehost.job import ChatMessage, ChatPrompt, Prompt, PromptImage, TextPrompt, TokenPrompt
from lanehost.text.chat_marks import chat_marks
from lanehost.text.chat_template import ChatTemplate
from lanehost.text.model_text import ModelText

MAX_WORKERS = 2

_Messages = tuple[ChatMessage, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedPrompt:
    """The ids of a prompt, its images, and where another chat is likely to part from it.

    See `Job.images` and `Job.marks`. One that is too long for the model has neither.
    """

    prompt_ids: tuple[int, ...]
    marks: tuple[int, ...] = ()
    images: tuple[PromptImage, ...] = ()


class Preparer:
    """Turns a prompt of any kind into token ids, and its images into pixels."""

    def __init__(
        self, text: ModelText, *, card: ModelCard, images: PromptImages | None = None
    ) -> None:
        """Prepare with the model's own tokenizer and template; without `images` there are none."""
        self._text = text
        self._card = card
        self._images = PromptImages(text) if images is None else images
        self._longest_token_bytes = text.tokenizer.longest_token_bytes
        self._workers = Workers(MAX_WORKERS, "prepare")

    async def prepare(self, prompt: Prompt, scope: str = "") -> PreparedPrompt:
        """Return the ids of a prompt of a scope, unchecked, its images, and the marks in it.

        Only a chat has any, and nobody looks for marks when nothing is kept.

        Raises:
            InvalidRequest: the template refuses the chat, or there is none, or an image is refused.
            DoesNotFit: the text is too long however it is tokenized.
            UnknownUpload: an image that it names is not there.
        """
        if not isinstance(prompt, ChatPrompt):
            return PreparedPrompt(prompt_ids=await self.prompt_ids(prompt, scope))
        chat = await self._encode(prompt, scope)
        fits = len(chat.prompt_ids) <= self._card.context_length
        marks: tuple[int, ...] = ()
        # One that is too long is refused by its length, and is not worth more work.
        if fits and self._card.has_prompt_cache:
            marks = await self._workers.run(scope, partial(self._marks, chat), prompt)
        images = await self._images.prepare(prompt, scope) if fits else ()
        return PreparedPrompt(
            prompt_ids=tuple(chat.prompt_ids),
            marks=marks,
            images=tuple(
                PromptImage(start=block.start, num_tokens=len(block), image=image)
                for block, image in zip(self._blocks(chat), images, strict=fits)
            ),
        )

    async def prompt_ids(self, prompt: Prompt, scope: str = "") -> tuple[int, ...]:
        """Return the ids of a prompt of a scope, unchecked; no image of it is decoded.

        Raises:
            InvalidRequest: the template refuses the chat, or there is none.
            DoesNotFit: the text is too long however it is tokenized.
            UnknownUpload: an image that it names is not there.
        """
        match prompt:
            case TokenPrompt(token_ids=token_ids):
                return token_ids
            case TextPrompt(text=text):
                self._check_bytes(text)
                return tuple(await self._workers.run(scope, self._text.tokenizer.encode, text))
            case ChatPrompt():
                return tuple((await self._encode(prompt, scope)).prompt_ids)
            case _:
                assert_never(prompt)

    async def _encode(self, prompt: ChatPrompt, scope: str) -> EncodedChat:
        num_images = self._images.check(prompt, scope)
        images = self._text.images
        num_image_tokens = 0 if images is None else num_images * images.num_tokens
        text = "".join(message.text for message in prompt.messages)
        self._check_bytes(text, num_image_tokens=num_image_tokens)
        return await self._workers.run(scope, self._encoded, prompt.messages)

    def _check_bytes(self, text: str, *, num_image_tokens: int = 0) -> None:
        check_prompt_bytes(
            len(text.encode("utf-8", errors="surrogatepass")),
            longest_token_bytes=self._longest_token_bytes,
            num_image_tokens=num_image_tokens,
            card=self._card,
        )

    def _encoded(self, messages: _Messages) -> EncodedChat:
        template, encode = self._template(), self._text.tokenizer.encode_rendered
        if self._text.images is None:
            return EncodedChat(prompt_ids=encode(template.render(messages)))
        return encode_chat(
            messages, images=self._text.images, render=template.render, encode=encode
        )

    def _marks(self, chat: EncodedChat, prompt: ChatPrompt) -> tuple[int, ...]:
        return chat_marks(
            prompt.messages,
            chat.prompt_ids,
            encode=lambda messages: self._encoded(messages).prompt_ids,
            blocks=self._blocks(chat),
        )

    def _blocks(self, chat: EncodedChat) -> tuple[range, ...]:
        num_tokens = 0 if self._text.images is None else self._text.images.num_tokens
        return tuple(range(start, start + num_tokens) for start in chat.starts)

    def _template(self) -> ChatTemplate:
        if self._text.template is None:
            message = f"{self._text.no_template_reason}; send text or token ids"
            raise InvalidRequest("chat", message)
        return self._text.template
