"""Open what must be a regular file, in a folder that somebody may have changed.

Laws: a link is not followed, a pipe is not waited for, and nothing but a regular file is opened;
no more is read than a bound.
"""

import errno
import os
import stat
from pathlib import Path

_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_regular(path: Path, flags: int = os.O_RDONLY) -> int:
    """Open a file, for this user alone if it is made here; the caller closes the descriptor.

    Raises:
        OSError: It cannot be opened, or is no regular file.
    """
    file = os.open(path, flags | _FLAGS, 0o600)
    mode = os.fstat(file).st_mode
    if stat.S_ISREG(mode):
        return file
    os.close(file)
    number = errno.EISDIR if stat.S_ISDIR(mode) else errno.ENXIO
    raise OSError(number, "it is no regular file", str(path))


def read_regular(path: Path, max_bytes: int) -> bytes:
    """Read a file from its beginning, no more than so many bytes of it.

    Raises:
        OSError: It cannot be read, or is no regular file.
    """
    with os.fdopen(open_regular(path), "rb") as source:
        return source.read(max_bytes)
