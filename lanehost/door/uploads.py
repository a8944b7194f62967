"""Images that were uploaded once, for any number of requests of their scope.

What is kept are the pixels that the model takes, and not the file: each is checked and decoded
when it comes, and takes the same memory.

Laws: an upload is known to the scope that made it alone, and to all others it is as unknown as
one that never was; none is kept longer than its lifetime; there are never more than the bound,
and never more bytes than the room for images has; none is dropped before its time to make place.
"""

import secrets
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from lanehost.admission.shares import Shares
from lanehost.door.image_room import ImageRoom
from lanehost.errors import Overloaded, UnknownUpload
from lanehost.job import PreparedImage

MAX_ID_CHARACTERS = 128
_ID_BYTES = 12
_new_id = partial(secrets.token_hex, _ID_BYTES)


@dataclass(frozen=True, slots=True, kw_only=True)
class Upload:
    """What a client is told of its upload: the name for requests, and how long it is good for."""

    upload_id: str
    lifetime_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    scope: str
    image: PreparedImage
    until_s: float


class Uploads:
    """The uploads of all scopes; the event loop owns it."""

    def __init__(
        self, room: ImageRoom, *, max_uploads: int, lifetime_s: float, weights: Mapping[str, int]
    ) -> None:
        """Begin with none.

        Args:
            room: What their pixels are counted in.
            max_uploads: The most of them.
            lifetime_s: How long each is kept.
            weights: The known scopes, for their shares.
        """
        self._room = room
        self._lifetime_s = lifetime_s
        self._counts = Shares(max_uploads, weights)
        # In the order of their ends, for all live equally long.
        self._kept: OrderedDict[str, _Kept] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Uploads {len(self._kept)}>"

    @property
    def num_kept(self) -> int:
        """How many there are, those that are to go at the next look included."""
        return len(self._kept)

    def check(self, scope: str, now_s: float) -> None:
        """See that one more may be kept.

        Raises:
            Overloaded: there are as many as may be.
        """
        self._drop_old(now_s)
        if not self._counts.may_take(scope):
            reason = self._counts.refusal(scope, "uploads would be kept")
            raise Overloaded(f"{reason} (--max-uploads)", retry_after_s=self._wait_s(scope, now_s))

    def keep(self, scope: str, image: PreparedImage, now_s: float) -> Upload:
        """Keep an image.

        Raises:
            Overloaded: there are as many as may be, or no room for its pixels.
        """
        self.check(scope, now_s)
        self._room.take(scope, len(image.pixels))
        self._counts.take(scope)
        upload_id = _new_id()
        self._kept[upload_id] = _Kept(scope=scope, image=image, until_s=now_s + self._lifetime_s)
        return Upload(upload_id=upload_id, lifetime_s=self._lifetime_s)

    def find(self, scope: str, upload_id: str, now_s: float) -> PreparedImage:
        """Return the image of an upload.

        Raises:
            UnknownUpload: the scope has none of this id.
        """
        self._drop_old(now_s)
        kept = self._kept.get(upload_id)
        if kept is None or kept.scope != scope:
            shown = upload_id[:MAX_ID_CHARACTERS]
            raise UnknownUpload(
                f"no upload {shown!r} is known to you; each is kept {self._lifetime_s:g} s "
                "(--upload-lifetime)"
            )
        return kept.image

    def _drop_old(self, now_s: float) -> None:
        while self._kept:
            upload_id, kept = next(iter(self._kept.items()))
            if kept.until_s > now_s:
                return
            del self._kept[upload_id]
            self._counts.give_back(kept.scope)
            self._room.give_back(kept.scope, len(kept.image.pixels))

    def _wait_s(self, scope: str, now_s: float) -> float:
        """Return when the next place is there: the scope's own, or anybody's."""
        own = (kept.until_s for kept in self._kept.values() if kept.scope == scope)
        first = next(own, None)
        if first is None:
            first = next(iter(self._kept.values())).until_s
        return max(0.0, first - now_s)
