"""HOST:PORT, written and read in one place: an IPv6 host stands in brackets."""

import errno
import os

_FORM = "should be HOST:PORT, like 127.0.0.1:50051 or [::1]:50051"
_MAX_PORT = 65535


def format_address(host: str, port: int) -> str:
    """Write an address.

    >>> format_address("localhost", 80), format_address("::1", 80)
    ('localhost:80', '[::1]:80')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def parse_address(address: str) -> tuple[str, int]:
    """Read an address into its host, without brackets, and its port.

    Raises:
        ValueError: it is not HOST:PORT; a scheme, a path or a bare IPv6 host is none.
    """
    host, _, port = address.rpartition(":")
    is_bracketed = host.startswith("[") and host.endswith("]")
    bare = host[1:-1] if is_bracketed else host
    is_host = bool(bare) and "/" not in bare and (":" in bare) == is_bracketed
    is_port = port.isascii() and port.isdecimal() and 0 < int(port) <= _MAX_PORT
    if not (is_host and is_port):
        raise ValueError(f"the address is {address!r}, {_FORM}")
    return bare, int(port)


def explain(error: OSError) -> str:
    """Say why an address cannot be had, in the system's words, without the address again."""
    if error.errno is not None and error.errno in errno.errorcode:
        return os.strerror(error.errno)
    return error.strerror or str(error)  # of a name that is not found
