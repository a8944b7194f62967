"""The sizes to which rows and positions are padded so that a row's bits are its own.

A product of a matrix library picks its kernel by the number of rows, and kernels add
in different orders. Measured (ADR 2): oneDNN with packed weights gives each row the
same bits for any number of rows from 2 on and any number of threads; MKL from 4 rows
per thread on. So steps are padded to a multiple of these. On CUDA nothing is promised
yet and nothing is padded.
"""

import torch

_MIN_ROWS = 4

# Positions are padded to a multiple of this: a softmax row then has no odd end.
POSITION_TILE = 64


def can_pack(device: torch.device, dtype: torch.dtype) -> bool:
    """Whether products on this device use oneDNN with packed weights."""
    return (
        device.type == "cpu"
        and dtype == torch.float32
        and torch.backends.mkldnn.is_available()
        and hasattr(torch.ops.mkldnn, "_linear_pointwise")
        and hasattr(torch.ops.mkldnn, "_reorder_linear_weight")
    )


def product_name(device: torch.device, dtype: torch.dtype) -> str:
    """Name how products are computed on this device: packed or plain."""
    return "packed" if can_pack(device, dtype) else "plain"


def row_multiple(device: torch.device) -> int:
    """The multiple to which the rows of a step are padded."""
    if device.type != "cpu":
        return 1
    if can_pack(device, torch.float32):
        return _MIN_ROWS
    return _MIN_ROWS * torch.get_num_threads()


def pad_count(count: int, multiple: int) -> int:
    """`count` rounded up to a multiple."""
    return -(-count // multiple) * multiple


def check_block_size(block_size: int) -> None:
    """Check that blocks and tiles of positions divide one another.

    Raises:
        ValueError: They do not.
    """
    if block_size < 1 or (POSITION_TILE % block_size and block_size % POSITION_TILE):
        raise ValueError(
            f"block_size is {block_size}: it must divide {POSITION_TILE} or be a multiple of it"
        )
