"""What ranks of one host exchange within a step, through memory that all have mapped.

Laws: a call ends within the time-out, and within a moment once another rank has ended or
left, or this one was told to give up; what failed once fails at once from then on. Every rank
gives the same sums, added in the order of ranks. Where the memory comes from is not known here.

The work is done in the library, without Python's lock (`csrc/exchange.h` has the picture).
"""

import ctypes
from collections.abc import Sequence
from enum import IntEnum

from ranks.errors import FellowLost, GivenUp
from ranks.native.library import NativeLibrary

_POINTER = ctypes.c_void_p
_SIZE = ctypes.c_int64


class _Outcome(IntEnum):
    """`Outcome` of exchange.h."""

    DONE = 0
    TIMED_OUT = 1
    ENDED = 2
    LEFT = 3
    DISAGREES = 4
    GIVEN_UP = 5


def can_exchange(library: NativeLibrary) -> bool:
    """Whether the library was built for a system that it can do this on."""
    return hasattr(library.functions, "lanehost_new_exchange")


def exchange_bytes(library: NativeLibrary, world_size: int) -> int:
    """Bytes of the memory that so many ranks share."""
    function = library.functions.lanehost_exchange_bytes
    function.restype = _SIZE
    return int(function(world_size))


class NativeExchange:
    """One rank's end of the shared memory; implements `ranks.shards.Exchange`.

    Addresses are of plain memory, and the caller vouches for them and for all sizes.
    """

    def __init__(
        self,
        library: NativeLibrary,
        descriptor: int,
        *,
        rank: int,
        watches: Sequence[int],
        timeout_s: float,
    ) -> None:
        """Map the memory; its descriptor may be closed afterwards.

        Args:
            library: What does the work.
            descriptor: Of the memory, zeroed when the first rank comes.
            rank: Whose end this is.
            watches: By rank, a descriptor that can be read once its process has ended; -1
                for a rank that needs no watching. They must stay open as long as this lives.
            timeout_s: How long a call waits for another rank.

        Raises:
            OSError: The memory cannot be mapped.
        """
        self._functions = _typed(library)
        self._world_size = len(watches)
        self._timeout_s = timeout_s
        self._exchange: int | None = None
        self._memory: int | None = self._functions.lanehost_map_memory(descriptor, self._world_size)
        if not self._memory:
            raise OSError("the shared memory cannot be mapped")
        self._exchange = self._functions.lanehost_new_exchange(
            self._memory,
            rank,
            self._world_size,
            (ctypes.c_int * self._world_size)(*watches),
            timeout_s,
        )
        assert self._exchange

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the memory; nothing may be called afterwards, nor in another thread."""
        exchange, self._exchange = self._exchange, None
        memory, self._memory = self._memory, None
        if exchange is not None:
            self._functions.lanehost_end_exchange(exchange)
        if memory:
            self._functions.lanehost_unmap_memory(memory, self._world_size)

    def all_reduce(self, address: int, count: int) -> None:
        """Sum float32 values over ranks, in place.

        Raises:
            FellowLost: Another rank did not do its part.
        """
        self.check(self._functions.lanehost_all_reduce(self._end(), address, count))

    def gather(self, mine: int, num_rows: int, widths: Sequence[int], joined: int | None) -> None:
        """Join rows over ranks, in the order of ranks.

        Args:
            mine: Address of this rank's rows.
            num_rows: As many on every rank.
            widths: Bytes of a row, by rank; the same on every rank.
            joined: Where rank 0 wants whole rows; None on the others.

        Raises:
            FellowLost: Another rank did not do its part.
        """
        by_rank = (_SIZE * self._world_size)(*widths)
        self.check(self._functions.lanehost_gather(self._end(), mine, num_rows, by_rank, joined))

    def broadcast(self, address: int, num_bytes: int, *, root: int) -> None:
        """Overwrite bytes by those of one rank.

        Raises:
            FellowLost: Another rank did not do its part.
        """
        self.check(self._functions.lanehost_broadcast(self._end(), address, num_bytes, root))

    def leave(self) -> None:
        """Tell the others that nothing more comes; who waits for this rank stops waiting."""
        self._functions.lanehost_leave_exchange(self._end())

    def give_up(self) -> None:
        """End this rank's call that waits, from any thread, and each later one."""
        self._functions.lanehost_give_up_exchange(self._end())

    def _end(self) -> int:
        assert self._exchange is not None, "it was closed"
        return self._exchange

    @property
    def address(self) -> int:
        """Where the library's own object lies, for native code that exchanges by itself."""
        return self._end()

    def check(self, code: int) -> None:
        """Read how an exchange of native code ended.

        Raises:
            FellowLost: Another rank did not do its part.
        """
        outcome = _Outcome(code)
        if outcome is _Outcome.DONE:
            return
        if outcome is _Outcome.GIVEN_UP:
            raise GivenUp("this rank was told to leave, in the middle of a step")
        words = {
            _Outcome.TIMED_OUT: f"has said nothing for {self._timeout_s:g} s",
            _Outcome.ENDED: "has ended",
            _Outcome.LEFT: "has left",
            _Outcome.DISAGREES: "does other work than this one",
        }
        culprit = self._functions.lanehost_culprit(self._end())
        # Who left was told to, or has failed and will say so itself.
        suspect = None if outcome is _Outcome.LEFT else culprit
        raise FellowLost(
            f"rank {culprit} {words[outcome]}, in the middle of a step", suspect=suspect
        )


def _typed(library: NativeLibrary) -> ctypes.CDLL:
    """The functions, each with the types of its arguments: addresses are 64 bits wide."""
    integer = ctypes.c_int
    types: dict[str, tuple[list[type], type | None]] = {
        "map_memory": ([integer, integer], _POINTER),
        "unmap_memory": ([_POINTER, integer], None),
        "new_exchange": ([_POINTER, integer, integer, _POINTER, ctypes.c_double], _POINTER),
        "end_exchange": ([_POINTER], None),
        "leave_exchange": ([_POINTER], None),
        "give_up_exchange": ([_POINTER], None),
        "all_reduce": ([_POINTER, _POINTER, _SIZE], integer),
        "gather": ([_POINTER, _POINTER, _SIZE, _POINTER, _POINTER], integer),
        "broadcast": ([_POINTER, _POINTER, _SIZE, integer], integer),
        "culprit": ([_POINTER], integer),
    }
    for name, (arguments, result) in types.items():
        function = getattr(library.functions, f"lanehost_{name}")
        function.argtypes, function.restype = arguments, result
    return library.functions
