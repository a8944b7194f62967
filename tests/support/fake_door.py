"""A door with a script: no engine, no ranks, every event as the test asks for it."""

import asyncio
from collections.abc import AsyncIterator, Iterable
from dataclasses import replace
from types import TracebackType
from typing import Self

from lanehost.door.model_card import DEFAULT_SAMPLING, ImageCard, ModelCard
from lanehost.door.uploads import Upload
from lanehost.errors import Cancelled, DeadlinePassed, InvalidRequest, Unauthenticated
from lanehost.job import (
    Accepted,
    ChatPrompt,
    Event,
    Failed,
    Finished,
    FinishReason,
    Prefilled,
    Request,
    Resumption,
    TextPrompt,
    Timing,
    Tokens,
    Usage,
)

SEED = 7
CARD = ModelCard(
    name="fake-model",
    context_length=128,
    vocab_size=1000,
    eos_token_ids=(2,),
    weights_digest="ab" * 16,
    config_digest="cd" * 16,
    world_size=1,
    num_lanes=4,
    kv_tokens=512,
    max_waiting=8,
    max_waiting_tokens=1024,
    max_streams=32,
    has_prompt_cache=True,
    default_sampling=DEFAULT_SAMPLING,
    default_max_tokens=16,
    dtype="float32",
    weights="stored",
    version="0.0.0",
)
SEEING = replace(
    CARD,
    images=ImageCard(
        num_tokens=4,
        width=28,
        height=28,
        max_images=3,
        max_image_bytes=1 << 20,
        max_image_pixels=1 << 20,
    ),
)
FINISHED = Finished(
    reason=FinishReason.EOS,
    matched=2,
    usage=Usage(prompt_tokens=5, cached_tokens=3, completion_tokens=3),
    timing=Timing(queue_s=0.25, prefill_s=0.5, decode_s=0.75),
)
REPLY = (
    Tokens(token_ids=(10,), text="Hel"),
    Tokens(token_ids=(11,), text=""),
    Tokens(token_ids=(12, 2), text="lo é"),
)


class FakeStream:
    """Events as scripted; without a last event it is held until cancelled or out of time."""

    def __init__(self, job_id: str, request: Request, events: Iterable[Event]) -> None:
        self.job_id = job_id
        self.cancelled = False
        self.ended = asyncio.Event()
        self._cancel = asyncio.Event()
        self._timeout_s = request.timeout_s
        self._events = events

    def cancel(self) -> None:
        if not self.ended.is_set():
            self.cancelled = True
            self._cancel.set()

    async def __aiter__(self) -> AsyncIterator[Event]:
        yield Accepted(job_id=self.job_id, seed=SEED, prompt_tokens=5)
        for event in self._events:
            await asyncio.sleep(0)
            if self.cancelled:
                break
            if isinstance(event, Finished | Failed):
                self.ended.set()
            yield event
            if self.ended.is_set():
                return
        yield Failed(error=await self._held())

    async def _held(self) -> Cancelled | DeadlinePassed:
        try:
            async with asyncio.timeout(self._timeout_s):
                await self._cancel.wait()
        except TimeoutError:
            self.ended.set()
            return DeadlinePassed("decode")
        self.ended.set()
        return Cancelled("cancelled")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.cancel()
        self.ended.set()


class FakeDoor:
    """Answers every request with `events`, or refuses it with `refusal`.

    With a `key` it lets in only who sends that one.
    """

    def __init__(
        self,
        events: Iterable[Event] = (Prefilled(cached_tokens=3), *REPLY, FINISHED),
        *,
        refusal: Exception | None = None,
        key: str | None = None,
        card: ModelCard = CARD,
    ) -> None:
        self.events = events
        self.card = card
        self.uploads: list[bytes] = []
        self.key = key
        self.refusal = refusal
        self.serving = True
        self.requests: list[Request] = []
        self.resumptions: list[Resumption] = []
        self.streams: list[FakeStream] = []
        self.submitted = asyncio.Event()

    async def submit(self, request: Request) -> FakeStream:
        self._check(request.key)
        self.requests.append(request)
        if self.refusal is not None:
            raise self.refusal
        stream = FakeStream(f"job-{len(self.requests)}", request, self.events)
        self.streams.append(stream)
        self.submitted.set()
        return stream

    async def resume_stream(self, resumption: Resumption) -> FakeStream:
        self._check(resumption.key)
        self.resumptions.append(resumption)
        if self.refusal is not None:
            raise self.refusal
        request = Request(prompt=TextPrompt(""), timeout_s=resumption.timeout_s)
        stream = FakeStream(resumption.job_id, request, self.events)
        self.streams.append(stream)
        self.submitted.set()
        return stream

    async def tokenize(self, prompt: TextPrompt | ChatPrompt, *, key: str | None) -> list[int]:
        self._check(key)
        if self.refusal is not None:
            raise self.refusal
        if isinstance(prompt, TextPrompt):
            return list(prompt.text.encode())
        return [len(message.text) for message in prompt.messages]

    async def detokenize(
        self, token_ids: tuple[int, ...], *, keep_special: bool, key: str | None
    ) -> str:
        self._check(key)
        if any(token_id >= CARD.vocab_size for token_id in token_ids):
            raise InvalidRequest("token_ids", f"an id is not below {CARD.vocab_size}")
        text = "".join(chr(token_id) for token_id in token_ids)
        return f"<s>{text}" if keep_special else text

    def model_card(self, key: str | None) -> ModelCard:
        self._check(key)
        return self.card

    async def upload_image(self, data: bytes, *, key: str | None) -> Upload:
        self._check(key)
        if self.refusal is not None:
            raise self.refusal
        self.uploads.append(data)
        return Upload(upload_id=f"upload-{len(self.uploads)}", lifetime_s=60.0)

    def is_serving(self) -> bool:
        return self.serving

    def _check(self, key: str | None) -> None:
        if self.key is not None and key != self.key:
            raise Unauthenticated("who is it?")
