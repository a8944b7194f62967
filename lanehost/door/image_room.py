"""The memory that images of requests may take, counted before it is taken.

Law: what is held is never more than the limit, and no scope keeps the others from their share of
it; what cannot be had is refused at once, and taken from nobody.
"""

from collections.abc import Mapping

from lanehost.admission.shares import Shares
from lanehost.errors import ImageRefused, Overloaded


class ImageRoom:
    """Counts the bytes that files and pixels of images take, by scope."""

    def __init__(self, limit: int, weights: Mapping[str, int], *, retry_after_s: float) -> None:
        """Begin with nothing held.

        Args:
            limit: The most bytes.
            weights: The known scopes, for their shares.
            retry_after_s: When who is refused may come again.
        """
        self._limit = limit
        self._shares = Shares(limit, weights)
        self._retry_after_s = retry_after_s

    def __repr__(self) -> str:
        return f"<ImageRoom {self.num_bytes}/{self._limit} bytes>"

    @property
    def num_bytes(self) -> int:
        """What all scopes hold together."""
        return self._shares.num_taken

    def take(self, scope: str, num_bytes: int) -> None:
        """Count so much more as held.

        Raises:
            ImageRefused: it is more than there is for everybody.
            Overloaded: it is not to be had now.
        """
        if num_bytes > self._limit:
            message = f"take {num_bytes} bytes, limit {self._limit} (--max-held-images)"
            raise ImageRefused("images", message)
        if not self._shares.may_take(scope, num_bytes):
            reason = self._shares.refusal(scope, "bytes of images would be held", num_bytes)
            raise Overloaded(f"{reason} (--max-held-images)", retry_after_s=self._retry_after_s)
        self._shares.take(scope, num_bytes)

    def give_back(self, scope: str, num_bytes: int) -> None:
        """Count so much less as held."""
        self._shares.give_back(scope, num_bytes)
