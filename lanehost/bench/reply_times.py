"""When the parts of one reply came, by the client's one clock; pure."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """An event with new tokens came."""

    at_s: float
    num_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A wait between two events with tokens of one reply."""

    start_s: float
    end_s: float

    @property
    def length_s(self) -> float:
        """How long it was."""
        return self.end_s - self.start_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyTimes:
    """One request: when it was due, sent and ended, and each arrival in between.

    A request is due when its arrival comes (open loop), or when its stream is free for it
    (closed loop). `failure` names the error that ended it; None when it ended well.
    """

    due_s: float
    sent_s: float
    ended_s: float
    arrivals: tuple[Arrival, ...] = ()
    prompt_tokens: int = 0
    cached_tokens: int = 0
    disk_cached_tokens: int = 0
    failure: str | None = None

    @property
    def num_tokens(self) -> int:
        """Tokens that came."""
        return sum(arrival.num_tokens for arrival in self.arrivals)

    @property
    def latency_s(self) -> float:
        """From when it was due to its end."""
        return self.ended_s - self.due_s

    @property
    def ttft_s(self) -> float | None:
        """From when it was due to its first token; None when none came."""
        return self.arrivals[0].at_s - self.due_s if self.arrivals else None

    @property
    def tpot_s(self) -> float | None:
        """Time for each token after the first event with tokens; None when none came after."""
        num_later = sum(arrival.num_tokens for arrival in self.arrivals[1:])
        if not num_later:
            return None
        return (self.arrivals[-1].at_s - self.arrivals[0].at_s) / num_later

    @property
    def gaps(self) -> list[Gap]:
        """The waits between its events with tokens."""
        return [
            Gap(start_s=before.at_s, end_s=after.at_s)
            for before, after in zip(self.arrivals, self.arrivals[1:], strict=False)
        ]
