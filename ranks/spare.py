"""A spare rank: a process that has all its code loaded, and waits to hear which rank it is.

Loading torch takes longer than loading a model, so a rank that is lost is sooner replaced by a
process that has done so already (ADR 23). What it hears is one line of JSON on its standard
input: the arguments of `python -m ranks`, and the token, which so is in no environment.
"""

import json
from dataclasses import dataclass
from typing import BinaryIO

# Far above what any set of arguments takes.
MAX_ORDERS_BYTES = 64 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """What a spare becomes: the arguments of a rank without `--death-fd`, and the token."""

    argv: tuple[str, ...]
    token: str


def encode_orders(orders: Orders) -> bytes:
    """Return the line that a spare waits for."""
    return json.dumps({"argv": orders.argv, "token": orders.token}).encode() + b"\n"


def read_orders(stream: BinaryIO) -> Orders | None:
    """Wait for the line; None when the stream ends without one: nobody needs this process.

    Raises:
        ValueError: It is no such line.
    """
    line = stream.readline(MAX_ORDERS_BYTES + 1)
    if not line.endswith(b"\n"):
        if len(line) > MAX_ORDERS_BYTES:
            raise ValueError(f"the orders are longer than {MAX_ORDERS_BYTES} bytes")
        return None
    match json.loads(line):
        case {"argv": [*argv], "token": str(token)}:
            return Orders(argv=tuple(map(str, argv)), token=token)
        case _:
            raise ValueError("the orders are not the arguments of a rank and a token")
