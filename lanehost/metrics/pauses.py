"""How long running replies waited for their next token while slices of staged passes ran; pure.

Law: a pause counts if a slice came back in it, and from token to token of one reply in one lane.
"""

from collections.abc import Iterable


class Pauses:
    """When each lane had its last token, and when a slice came back last."""

    def __init__(self) -> None:
        """Begin with no token."""
        self._last_token_s: dict[int, float] = {}
        self._last_slice_s = float("-inf")

    def forget(self, lane_id: int | None = None) -> None:
        """Forget a lane that somebody else takes, or all of them."""
        if lane_id is None:
            self._last_token_s.clear()
        else:
            self._last_token_s.pop(lane_id, None)

    def note_slice(self, now_s: float) -> None:
        """Note that a slice came back."""
        self._last_slice_s = now_s

    def note_tokens(self, lane_ids: Iterable[int], now_s: float) -> list[float]:
        """Note who has a token; returns the pauses that slices were part of, in seconds."""
        pauses = []
        for lane_id in lane_ids:
            last_s = self._last_token_s.get(lane_id)
            if last_s is not None and self._last_slice_s > last_s:
                pauses.append(now_s - last_s)
            self._last_token_s[lane_id] = now_s
        return pauses
