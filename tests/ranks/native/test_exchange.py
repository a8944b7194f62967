"""Rounds in shared memory, close to the library: their numbers wrap, their ends are seen."""

import os
import struct
import threading

import numpy as np
import pytest

from ranks.errors import FellowLost, GivenUp
from ranks.native.exchange import NativeExchange, can_exchange, exchange_bytes
from ranks.native.library import open_library
from ranks.shared_memory import make_memory
from tests.support.shared_ranks import has_library

pytestmark = pytest.mark.skipif(
    not has_library(), reason="there is no native library on this machine"
)
HEAD, LINE = 4096, 128
NO_WATCH = (-1, -1)


@pytest.fixture
def memory():
    made = make_memory(exchange_bytes(open_library(), 2))
    yield made.descriptor
    os.close(made.descriptor)


def pair(memory, *, watches=NO_WATCH, timeout_s=10.0):
    return [
        NativeExchange(open_library(), memory, rank=rank, watches=watches, timeout_s=timeout_s)
        for rank in (0, 1)
    ]


def add(exchange, values):
    exchange.all_reduce(values.ctypes.data, values.size)
    return values


def both(act, ends):
    """Run `act(end, rank)` on both ends at once."""
    found = [None, None]

    def run(rank):
        found[rank] = act(ends[rank], rank)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def said_by(memory, rank):
    return struct.unpack("=I", os.pread(memory, 4, HEAD + rank * LINE))[0]


def test_a_system_that_has_it_says_so():
    assert can_exchange(open_library())


def test_rounds_go_on_when_their_numbers_wrap(memory):
    for rank in (0, 1):
        os.pwrite(memory, struct.pack("=I", 2**32 - 5), HEAD + rank * LINE)
    ends = pair(memory)

    def act(end, rank):
        return [add(end, np.float32([n, rank])).tolist() for n in range(20)]

    assert both(act, ends) == [[[2 * n, 1] for n in range(20)]] * 2
    assert said_by(memory, 0) == 15


def test_a_sum_of_what_is_not_finite_has_the_same_bits_on_both(memory):
    nan, inf = np.float32("nan"), np.float32("inf")
    first = np.array([nan, inf, -inf, 1e-45, -0.0, 3e38], dtype=np.float32)
    second = np.array([1, -inf, -inf, 1e-45, -0.0, 3e38], dtype=np.float32)
    shares = (first, second)
    one, other = both(lambda end, rank: add(end, shares[rank].copy()), pair(memory))
    assert one.tobytes() == other.tobytes()
    with np.errstate(invalid="ignore", over="ignore"):
        expected = first + second
    assert np.array_equal(one, expected, equal_nan=True)
    assert np.signbit(one[4])


def test_a_rank_whose_process_has_ended_is_not_awaited(memory):
    # What can be read: the end of a process, or of a pipe.
    ended, writer = os.pipe()
    end = pair(memory, watches=(-1, ended), timeout_s=30)[0]
    os.close(writer)
    with pytest.raises(FellowLost, match="rank 1 has ended"):
        add(end, np.zeros(3, np.float32))
    os.close(ended)


def test_the_last_word_of_a_rank_that_has_left_counts(memory):
    first, second = pair(memory, timeout_s=0.1)
    with pytest.raises(FellowLost, match=r"rank 0 has said nothing for 0\.1 s"):
        add(second, np.ones(3, np.float32))
    second.leave()
    assert add(first, np.ones(3, np.float32)).tolist() == [2, 2, 2]
    with pytest.raises(FellowLost, match="rank 1 has left"):
        add(first, np.ones(3, np.float32))


def test_a_rank_that_has_given_up_says_nothing_more_even_when_the_other_comes(memory):
    first, second = pair(memory, timeout_s=0.1)
    values = np.ones(3, np.float32)
    with pytest.raises(FellowLost, match="rank 1 has said nothing"):
        add(first, values)
    add(second, np.ones(3, np.float32))
    with pytest.raises(FellowLost, match="rank 1 has said nothing"):
        add(first, values)
    assert said_by(memory, 0) == 1


@pytest.mark.parametrize("other", ["count", "kind", "root"])
def test_a_rank_that_does_other_work_is_named(memory, other):
    values = np.zeros(4, np.float32)
    first, second = pair(memory, timeout_s=0.1)

    def begin():
        match other:
            case "count":
                add(second, values[:3])
            case "kind":
                second.gather(values.ctypes.data, 1, (8, 8), None)
                add(second, values)
            case "root":
                second.broadcast(values.ctypes.data, 16, root=0)

    with pytest.raises(FellowLost, match="rank 0 has said nothing"):
        begin()
    begin = (
        (lambda: first.broadcast(values.ctypes.data, 16, root=1))
        if other == "root"
        else (lambda: add(first, values))
    )
    with pytest.raises(FellowLost, match="rank 1 does other work"):
        begin()


def test_memory_that_cannot_be_mapped_is_an_error():
    with pytest.raises(OSError, match="cannot be mapped"):
        NativeExchange(open_library(), -1, rank=0, watches=NO_WATCH, timeout_s=1)


def test_what_was_given_up_wakes_who_waits_and_fails_from_then_on(memory):
    waiting, _ = pair(memory, timeout_s=100)
    threading.Timer(0.2, waiting.give_up).start()
    for _ in range(2):
        with pytest.raises(GivenUp):
            add(waiting, np.ones(3, dtype=np.float32))


def test_giving_up_tells_the_other_nothing(memory):
    gone, other = pair(memory, timeout_s=0.3)
    gone.give_up()
    with pytest.raises(FellowLost, match="rank 0 has said nothing") as error:
        add(other, np.ones(3, dtype=np.float32))
    assert error.value.suspect == 0


def test_who_has_left_is_not_suspected(memory):
    gone, other = pair(memory)
    gone.leave()
    with pytest.raises(FellowLost, match="rank 0 has left") as error:
        add(other, np.ones(3, dtype=np.float32))
    assert error.value.suspect is None
