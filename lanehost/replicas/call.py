"""What goes between the door of the replicas and one of them: a call, and its reply in parts.

A reply is one `ReplyHead`, then its body in bytes, whole events where it is a stream; a
`ReplyLost` in place of more says that the server is gone. Plain data: no error crosses.
"""

from collections.abc import Iterable
from dataclasses import dataclass

Headers = tuple[tuple[str, str], ...]

# Of the connection and not of the message, or made anew on each side.
_HOP_BY_HOP = frozenset(
    (
        "connection",
        "content-length",
        "date",
        "expect",
        "host",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "server",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    )
)
_EVENT_STREAM = "text/event-stream"


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """One HTTP request, and what it has in common with others."""

    key: bytes
    method: str
    target: str
    headers: Headers
    body: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyHead:
    """The status and the headers."""

    status: int
    headers: Headers

    @property
    def is_stream(self) -> bool:
        """Whether events follow, each to be sent on at once."""
        return any(
            name == "content-type" and value.startswith(_EVENT_STREAM)
            for name, value in self.headers
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplyLost:
    """The server of the replica is gone, or broke the connection."""

    reason: str


ReplyPart = ReplyHead | bytes | ReplyLost


def end_to_end(headers: Iterable[tuple[str, str]]) -> Headers:
    """Return the headers that are the message's own, with their names in lower case."""
    lowered = ((name.lower(), value) for name, value in headers)
    return tuple((name, value) for name, value in lowered if name not in _HOP_BY_HOP)


class WholeEvents:
    """Cuts the bytes of an event stream behind events, so that what breaks off is whole."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, chunk: bytes) -> bytes:
        """Return all that is whole now."""
        whole, mark, self._rest = (self._rest + chunk).rpartition(b"\n\n")
        return whole + mark

    def rest(self) -> bytes:
        """Return what no event has ended."""
        rest, self._rest = self._rest, b""
        return rest
