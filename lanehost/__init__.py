"""An LLM server whose replies depend on the request alone: the part that decides.

Users write `from lanehost import Client`, so this package says what its public names
are: the one exception to "`__init__` holds a docstring only". It is a plain import, as a
lazy one would hide the names from type checkers and editors. What it costs is grpc,
which nearly every process of lanehost loads anyway; it loads no torch, no server and
nothing of the master.
"""

from lanehost.client import AsyncClient, Client
from lanehost.client_codec import Delta, Reply
from lanehost.client_errors import ClientError
from lanehost.client_stream import AsyncReplyStream, ReplyStream

__all__ = [
    "AsyncClient",
    "AsyncReplyStream",
    "Client",
    "ClientError",
    "Delta",
    "Reply",
    "ReplyStream",
]
