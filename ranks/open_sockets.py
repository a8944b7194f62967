"""The sockets that something has opened which cannot be told to stop waiting (Linux).

gloo waits for its peers until its time-out; what it was given to abort that does nothing. Its
connections are shut down under it instead, and its wait ends at once, whether the peer is
gone, stopped or well. Its listening socket is left alone: gloo ends the process if that fails.
"""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

_DESCRIPTORS = Path("/proc/self/fd")
_LINK = "socket:"


class NewSockets:
    """Those that were opened since; nothing else must open any until `settle`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._before = _open_sockets()
        self._found: set[tuple[int, str]] | None = None

    def settle(self) -> None:
        """No more come: what is opened from here on is somebody else's."""
        with self._lock:
            self._found = _open_sockets() - self._before

    def shut_down(self) -> None:
        """End all their connections, from any thread; descriptors stay open."""
        with self._lock:
            found = _open_sockets() - self._before
            # A number that was closed may be another's by now: the inode tells.
            for descriptor, _inode in found if self._found is None else found & self._found:
                _shut_down(descriptor)


def _open_sockets() -> set[tuple[int, str]]:
    found = set()
    for entry in _DESCRIPTORS.iterdir() if _DESCRIPTORS.exists() else ():
        # Between listing and looking it may have been closed.
        with suppress(OSError):
            link = str(entry.readlink())
            if link.startswith(_LINK):
                found.add((int(entry.name), link))
    return found


def _shut_down(descriptor: int) -> None:
    with suppress(OSError), socket.socket(fileno=os.dup(descriptor)) as same:
        if not same.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
            same.shutdown(socket.SHUT_RDWR)
