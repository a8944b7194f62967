"""Addresses of this host and of its peers: which are loopback, which face a master, whose they are.

Nothing here waits for anybody but the resolver of names.
"""

import ipaddress
import os
import socket
from pathlib import Path

_TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
# In a line of those tables: the address of the owner's end, and the user.
_LOCAL, _UID = 1, 7


def addresses_of(host: str) -> list[str]:
    """Resolve a name; an address is itself.

    Raises:
        OSError: Nobody knows the name.
    """
    found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(one[4][0]) for one in found))


def is_loopback(host: str) -> bool:
    """Say whether a host is this one for certain: all that it resolves to is loopback.

    Raises:
        OSError: Nobody knows the name.
    """
    return all(ipaddress.ip_address(one).is_loopback for one in addresses_of(host))


def is_wildcard(host: str) -> bool:
    """Say whether a host stands for all addresses of this one."""
    try:
        return ipaddress.ip_address(host).is_unspecified
    except ValueError:
        return False


def interface_names() -> list[str]:
    """Name the network interfaces of this host."""
    return [name for _, name in socket.if_nameindex()]


def address_towards(host: str, port: int) -> str:
    """Give this host's own address on the way to another; nothing is sent.

    Raises:
        OSError: There is no way.
    """
    family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(address)
        return str(probe.getsockname()[0])


def is_same_user(peer: tuple[str, int]) -> bool:
    """Say whether the process at the other end of a loopback connection is this user's (Linux).

    Where the system does not tell, nobody is.
    """
    tables = [table.read_text() for table in _TCP_TABLES if table.exists()]
    return find_uid(tables, peer) in (0, os.geteuid())


def find_uid(tables: list[str], peer: tuple[str, int]) -> int | None:
    """Find whose socket is bound to this address, in texts like /proc/net/tcp."""
    wanted = ipaddress.ip_address(peer[0])
    for table in tables:
        for line in table.splitlines()[1:]:
            fields = line.split()
            host, port = fields[_LOCAL].split(":")
            if int(port, 16) == peer[1] and _is_address(host, wanted):
                return int(fields[_UID])
    return None


def _is_address(told: str, wanted: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Compare with what the kernel writes: words of 32 bits in the order of this machine."""
    words = [told[at : at + 8] for at in range(0, len(told), 8)]
    packed = b"".join(int(word, 16).to_bytes(4, "little") for word in words)
    found = ipaddress.ip_address(packed)
    mapped = getattr(found, "ipv4_mapped", None)
    return wanted in (found, mapped)
