"""What admission asks of the disk tier; without one there is nothing to wait for."""

from typing import Protocol

from lanehost.lanes.sequence import Sequence


class Fetcher(Protocol):
    """Brings prefixes back from the disk."""

    def holds_up(self, head: Sequence, num_cached_tokens: int) -> bool:
        """Say whether a job waits for a prefix of it that is on its way into memory.

        Begins to bring it, if the disk has more of it than the tokens that memory has. A job
        is held up for one fetch at most, and for a bounded time.
        """
        ...


class NoFetcher:
    """Implements `Fetcher`: there is no disk."""

    def holds_up(self, head: Sequence, num_cached_tokens: int) -> bool:
        """Hold nobody up."""
        del head, num_cached_tokens
        return False


NO_FETCHER = NoFetcher()
