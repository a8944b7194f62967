"""How fast the library reads memory and multiplies at best, with some threads at once.

Laws: of several tries the best counts, since other work can only slow one down. Threads try
at the same time; what they did is added.
"""

import ctypes
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

from ranks.native.library import NativeLibrary
from ranks.native.packing import PackedMatrix
from ranks.native.structs import address, matrix_struct

_TRIES = 5
_PRODUCT_S = 0.06
_WORD = 8


def measure_reading(library: NativeLibrary, num_bytes: int, num_threads: int) -> float:
    """Bytes a second: `num_bytes` of memory in equal parts, each read by a thread of its own."""
    words = max(8, num_bytes // _WORD // num_threads)
    parts = [np.ones(words, dtype=np.uint64) for _ in range(num_threads)]
    function = library.functions.lanehost_read_ns
    function.restype = ctypes.c_double

    def read(number: int) -> float:
        total = ctypes.c_uint64()
        part = parts[number]
        return float(function(address(part), ctypes.c_int64(words), ctypes.byref(total)))

    def read_all(pool: ThreadPoolExecutor) -> float:
        began = time.perf_counter()
        list(pool.map(read, range(num_threads)))
        return num_threads * words * _WORD / (time.perf_counter() - began)

    return _best(read_all, num_threads)


def measure_products(
    library: NativeLibrary, weight: PackedMatrix, num_threads: int, *, is_fine: bool = False
) -> float:
    """Multiplications and additions a second, of weights that stay in the cache.

    `is_fine`: by rows of fifteen bits, as the head does it.
    """
    function = library.functions.lanehost_hot_ops
    function.restype = ctypes.c_double
    struct, name = matrix_struct(weight), library.instruction_set.encode()

    def multiply(_number: int) -> float:
        return float(function(name, ctypes.byref(struct), is_fine, ctypes.c_double(_PRODUCT_S)))

    return _best(lambda pool: sum(pool.map(multiply, range(num_threads))), num_threads)


def _best(one_try: Callable[[ThreadPoolExecutor], float], num_threads: int) -> float:
    with ThreadPoolExecutor(num_threads) as pool:
        return max(one_try(pool) for _ in range(_TRIES))
