"""The images of prompts: judged, found or decoded, counted, and made what the model takes.

One worker decodes, one image at a time, so that what decoding takes at most is what one picture
does; scopes take turns at each image, and not at each request (workers.py).

Laws: a request is refused by its counts before a byte of its images is read; an image is named by
its number in the prompt; what a request holds is counted from before it is prepared until its
stream is closed.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from time import monotonic
from types import MappingProxyType

from lanehost.door.image_room import ImageRoom
from lanehost.door.model_card import ImageCard
from lanehost.door.uploads import Upload, Uploads
from lanehost.door.workers import Workers
from lanehost.errors import ImageRefused, StartupFailed
from lanehost.images.decode import decode_image, field_of
from lanehost.images.limits import ImageLimits
from lanehost.images.placeholders import ImageText
from lanehost.job import ChatPrompt, ImagePart, PreparedImage, Prompt, UploadedImage
from lanehost.rank_group.facts import ImageFacts
from lanehost.settings import ImageSettings
from lanehost.text.image_text import NO_IMAGES
from lanehost.text.model_text import ModelText

_RETRY_AFTER_S = 1.0
_NO_WEIGHTS: Mapping[str, int] = MappingProxyType({})


@dataclass(slots=True)
class Held:
    """What a request holds of the room for images."""

    room: ImageRoom
    scope: str
    file_bytes: int = 0
    pixel_bytes: int = 0

    def let_files_go(self) -> None:
        """Count its files no more: its images are prepared."""
        self.room.give_back(self.scope, self.file_bytes)
        self.file_bytes = 0

    def close(self) -> None:
        """Count nothing of it any more."""
        self.let_files_go()
        self.room.give_back(self.scope, self.pixel_bytes)
        self.pixel_bytes = 0


def image_card(images: ImageText | None, limits: ImageLimits) -> ImageCard | None:
    """Describe how a model takes images within these limits; None where it takes none."""
    if images is None:
        return None
    return ImageCard(
        num_tokens=images.num_tokens,
        width=images.processor.width,
        height=images.processor.height,
        max_images=limits.max_images,
        max_image_bytes=limits.max_image_bytes,
        max_image_pixels=limits.max_image_pixels,
    )


def known_to_ranks(text: ModelText, facts: ImageFacts | None) -> ModelText:
    """Return the text side of a model as far as its ranks compute it: they may encode no images.

    Raises:
        StartupFailed: both take images, and not the same ones.
    """
    images = text.images
    if images is None:
        return text
    if facts is None:
        return replace(text, images=None, no_images_reason=f"{NO_IMAGES}: its ranks encode none")
    ours = ImageFacts(
        num_tokens=images.num_tokens,
        token_id=images.token_id,
        width=images.processor.width,
        height=images.processor.height,
    )
    if ours != facts:
        raise StartupFailed(
            f"the model's files say of images {_told(ours)}, its weights {_told(facts)}: "
            "config.json and preprocessor_config.json are not of one model"
        )
    return text


def _told(facts: ImageFacts) -> str:
    size = f"{facts.width} x {facts.height} pixels"
    return f"{size} in {facts.num_tokens} tokens of id {facts.token_id}"


class PromptImages:
    """Prepares the images of requests, and keeps those that were uploaded."""

    def __init__(
        self,
        text: ModelText,
        *,
        settings: ImageSettings | None = None,
        weights: Mapping[str, int] = _NO_WEIGHTS,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Begin with nothing held.

        Args:
            text: Says how the model takes images, if it does.
            settings: The bounds; None takes the defaults.
            weights: The known scopes, for their shares.
            clock: Seconds that only rise.
        """
        self._text = text
        settings = ImageSettings() if settings is None else settings
        self._limits = settings.limits
        self._clock = clock
        self._room = ImageRoom(settings.max_held_bytes, weights, retry_after_s=_RETRY_AFTER_S)
        self._uploads = Uploads(
            self._room,
            max_uploads=settings.max_uploads,
            lifetime_s=settings.upload_lifetime_s,
            weights=weights,
        )
        self._workers = Workers(1, "images")

    def __repr__(self) -> str:
        return f"<PromptImages {self._room!r} {self._uploads!r}>"

    @property
    def num_held_bytes(self) -> int:
        """What files and pixels of all requests and uploads take."""
        return self._room.num_bytes

    @property
    def num_uploads(self) -> int:
        """Uploads that are kept."""
        return self._uploads.num_kept

    def check(self, prompt: ChatPrompt, scope: str) -> int:
        """Judge a prompt's images by their counts, and return how many there are.

        Raises:
            ImageRefused: the model takes none, there are too many, or one is too long.
            UnknownUpload: an upload that it names is not there.
        """
        parts = _parts(prompt)
        if not parts:
            return 0
        self._image_text(1)
        if len(parts) > self._limits.max_images:
            limit = f"limit {self._limits.max_images} (--max-images)"
            raise ImageRefused("images", f"are {len(parts)}, {limit}")
        for number, part in enumerate(parts, start=1):
            if isinstance(part, UploadedImage):
                self._uploads.find(scope, part.upload_id, self._clock())
            elif len(part.data) > self._limits.max_image_bytes:
                limit = f"limit {self._limits.max_image_bytes} (--max-image-bytes)"
                raise ImageRefused(field_of(number), f"has {len(part.data)} bytes, {limit}")
        return len(parts)

    def hold(self, prompt: Prompt, scope: str) -> Held:
        """Count what a prompt's images take.

        Raises:
            ImageRefused: it is more than there is for everybody.
            Overloaded: it is not to be had now.
        """
        parts = _parts(prompt)
        file_bytes = sum(len(part.data) for part in parts if isinstance(part, ImagePart))
        pixel_bytes = len(parts) * self._pixel_bytes()
        self._room.take(scope, file_bytes + pixel_bytes)
        return Held(self._room, scope, file_bytes, pixel_bytes)

    async def prepare(self, prompt: ChatPrompt, scope: str) -> tuple[PreparedImage, ...]:
        """Return a prompt's images as the model takes them, in their order.

        Raises:
            ImageRefused: one is no picture that is taken.
            UnknownUpload: an upload that it names is not there.
        """
        return tuple(
            [
                self._uploads.find(scope, part.upload_id, self._clock())
                if isinstance(part, UploadedImage)
                else await self._prepared(part.data, number, scope)
                for number, part in enumerate(_parts(prompt), start=1)
            ]
        )

    async def upload(self, data: bytes, scope: str) -> Upload:
        """Prepare an image and keep it for requests to come.

        Raises:
            ImageRefused: it is no picture that is taken, or the model takes none.
            Overloaded: there are as many uploads as may be, or no room for it.
        """
        self._image_text(1)
        self._uploads.check(scope, self._clock())
        self._room.take(scope, len(data))
        try:
            image = await self._prepared(data, 1, scope)
        finally:
            self._room.give_back(scope, len(data))
        return self._uploads.keep(scope, image, self._clock())

    async def _prepared(self, data: bytes, number: int, scope: str) -> PreparedImage:
        processor = self._image_text(number).processor

        def work(data: bytes) -> PreparedImage:
            return processor.prepare(decode_image(data, number, self._limits))

        return await self._workers.run(scope, work, data)

    def _image_text(self, number: int) -> ImageText:
        if self._text.images is None:
            raise ImageRefused(field_of(number), self._text.no_images_reason)
        return self._text.images

    def _pixel_bytes(self) -> int:
        return 0 if self._text.images is None else self._text.images.processor.num_bytes


def _parts(prompt: Prompt) -> list[ImagePart | UploadedImage]:
    if not isinstance(prompt, ChatPrompt):
        return []
    return [part for message in prompt.messages for part in message.images]
