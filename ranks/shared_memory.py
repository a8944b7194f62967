"""Memory that processes of one user on one host share, without a name in any file system.

Laws: when its last process has ended, however it ended, the memory is gone; nobody but the
user can open it; its size never changes, so that a fellow cannot pull it away; what is
opened is what was meant, or the opening fails.

One process makes it and tells its `Address`; the others open it through /proc (ADR 16).
"""

import fcntl
import hmac
import json
import os
import secrets
import stat
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path

MEMORY_NAME = "lanehost-collectives"
# The kernel gives memory until nothing is left for anybody.
MAX_BYTES = 64 << 20
_LINK = f"/memfd:{MEMORY_NAME} "
_TOKEN_BYTES = 16
_OWNER_ONLY = stat.S_IRUSR | stat.S_IWUSR


class NoMemory(Exception):
    """Memory cannot be shared; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Where memory lies: a descriptor of a process; the token, in hex, is in the memory too."""

    pid: int
    descriptor: int
    token: str = field(repr=False)

    def to_text(self) -> str:
        """Write it down."""
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str | bytes) -> "Address":
        """Read what `to_text` wrote."""
        fields = json.loads(text)
        return cls(
            pid=int(fields["pid"]),
            descriptor=int(fields["descriptor"]),
            token=str(fields["token"]),
        )


def make_memory(num_bytes: int) -> Address:
    """Make zeroed memory that begins with a token; the caller closes the descriptor.

    Raises:
        NoMemory: This system gives none, or it is too much.
    """
    if num_bytes > MAX_BYTES:
        raise NoMemory(f"{num_bytes} bytes of shared memory, limit {MAX_BYTES}")
    if sys.platform != "linux":
        raise NoMemory(f"{sys.platform} has no memory without a name")
    token = secrets.token_bytes(_TOKEN_BYTES)
    try:
        descriptor = os.memfd_create(MEMORY_NAME, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as err:
        raise NoMemory(f"memfd_create: {err.strerror}") from err
    try:
        os.fchmod(descriptor, _OWNER_ONLY)
        # What is not there must fail here, and not at somebody's first write.
        os.posix_fallocate(descriptor, 0, num_bytes)
        os.pwrite(descriptor, token, 0)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, _seals())
    except OSError as err:
        os.close(descriptor)
        raise NoMemory(f"{num_bytes} bytes of shared memory: {err.strerror}") from err
    return Address(pid=os.getpid(), descriptor=descriptor, token=token.hex())


def open_memory(address: Address, num_bytes: int) -> int:
    """Open memory that another process made; the caller closes the descriptor.

    Raises:
        NoMemory: It cannot be opened, or is not what the address says.
    """
    path = Path(f"/proc/{address.pid}/fd/{address.descriptor}")
    try:
        # Looked at first: opening what is no memory might have effects.
        if not str(path.readlink()).startswith(_LINK):
            raise NoMemory(f"{path} is no shared memory")
        descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC)
    except OSError as err:
        raise NoMemory(f"{path}: {err.strerror}") from err
    wrong = _find_wrong(descriptor, address, num_bytes)
    if wrong is not None:
        os.close(descriptor)
        raise NoMemory(f"{path}: {wrong}")
    return descriptor


def why_no_memory() -> str | None:
    """Say why this process cannot share memory with others; None when it can."""
    try:
        made = make_memory(_TOKEN_BYTES)
    except NoMemory as err:
        return str(err)
    try:
        # Through /proc, as a fellow would; that shows the owner of a process that may not be
        # looked into.
        if os.lstat(f"/proc/{made.pid}/fd/{made.descriptor}").st_uid != os.geteuid():
            return "other processes may not look into this one"
        os.close(open_memory(made, _TOKEN_BYTES))
        os.close(os.pidfd_open(made.pid))
    except (NoMemory, OSError) as err:
        return str(err)
    finally:
        os.close(made.descriptor)
    return None


def _find_wrong(descriptor: int, address: Address, num_bytes: int) -> str | None:
    facts = os.fstat(descriptor)
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) != _OWNER_ONLY:
        return f"it belongs to user {facts.st_uid} with mode {stat.S_IMODE(facts.st_mode):o}"
    if facts.st_size != num_bytes:
        return f"it has {facts.st_size} bytes, expected are {num_bytes}"
    if fcntl.fcntl(descriptor, fcntl.F_GET_SEALS) & _seals() != _seals():
        return "its size is not fixed"
    token = os.pread(descriptor, _TOKEN_BYTES, 0)
    if not hmac.compare_digest(token.hex().encode(), address.token.encode()):
        return "it is another group's"
    return None


def _seals() -> int:
    return fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
