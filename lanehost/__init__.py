"""An LLM server whose replies depend on the request alone: the part that decides.

Users write `from lanehost import Client`, so this package says what its public names
are: the one exception to "`__init__` holds a docstring only". They are loaded when they
are first asked for, since they load grpc, and the command line has to say first what
grpc may log (cli_quiet.py). Type checkers and editors see plain imports.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lanehost.client import AsyncClient, Client
    from lanehost.client_chat import Image
    from lanehost.client_codec import Delta, Reply
    from lanehost.client_errors import ClientError
    from lanehost.client_stream import AsyncReplyStream, ReplyStream
else:

    def __getattr__(name: str) -> object:
        if name in __all__:
            for home in _HOMES:
                module = import_module(f"lanehost.{home}")
                if name in vars(module):
                    return vars(module)[name]
        raise AttributeError(f"module 'lanehost' has no attribute {name!r}")


__all__ = [
    "AsyncClient",
    "AsyncReplyStream",
    "Client",
    "ClientError",
    "Delta",
    "Image",
    "Reply",
    "ReplyStream",
]
_HOMES = ("client", "client_chat", "client_codec", "client_errors", "client_stream")
