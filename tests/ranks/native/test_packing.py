import numpy as np
import pytest
from gguf.constants import GGMLQuantizationType
from gguf.quants import dequantize, quantize

from ranks.native.packing import COLUMNS, GROUP, PACKABLE, MatrixKind, pack, read_groups, unpack


def file_rows(kind_name, outputs, inputs, scale=1.0):
    values = np.random.default_rng(3).normal(0, scale, (outputs, inputs)).astype(np.float32)
    return quantize(values, GGMLQuantizationType[kind_name])


def to_values(groups):
    shape = groups.quants.shape
    quants = groups.quants.reshape(shape[0], -1, GROUP).astype(np.float64)
    values = quants * groups.scales[:, :, None].astype(np.float64)
    if groups.minimums is not None:
        values += groups.minimums[:, :, None].astype(np.float64)
    return values.reshape(shape).astype(np.float32)


@pytest.mark.parametrize("kind_name", PACKABLE)
@pytest.mark.parametrize("scale", [1.0, 1e-5])  # scales below 2^-14 are subnormal
def test_groups_are_the_very_values_of_the_file(kind_name, scale):
    raw = file_rows(kind_name, 20, 96, scale)
    values = to_values(read_groups(kind_name, raw))
    expected = dequantize(raw, GGMLQuantizationType[kind_name])
    np.testing.assert_allclose(values, expected, rtol=2e-7, atol=2e-7 * scale)


@pytest.mark.parametrize("kind_name", PACKABLE)
@pytest.mark.parametrize("inputs", [32, 96, 576])
def test_packing_loses_nothing(kind_name, inputs):
    raw = file_rows(kind_name, 48, inputs)
    before, after = read_groups(kind_name, raw), unpack(pack(kind_name, raw, inputs))
    assert np.array_equal(before.quants, after.quants)
    assert np.array_equal(before.scales, after.scales)
    assert (before.minimums is None) == (after.minimums is None)
    if before.minimums is not None and after.minimums is not None:
        assert np.array_equal(before.minimums, after.minimums)


def test_more_rows_than_are_unpacked_at_once_lie_in_order():
    raw = file_rows("Q8_0", 4096 + 40, 32)
    after = unpack(pack("Q8_0", raw, 32))
    assert np.array_equal(after.quants[: len(raw)], read_groups("Q8_0", raw).quants)


@pytest.mark.parametrize("kind_name", PACKABLE)
def test_a_block_is_filled_up_with_zeros(kind_name):
    matrix = pack(kind_name, file_rows(kind_name, 21, 64), 64)
    assert matrix.outputs == 2 * COLUMNS
    assert not to_values(unpack(matrix))[21:].any()


def test_blocks_begin_on_a_line_of_the_cache():
    for kind_name in PACKABLE:
        matrix = pack(kind_name, file_rows(kind_name, 32, 96), 96)
        assert matrix.data.ctypes.data % 64 == 0
        assert matrix.data.shape[1] % 64 == 0


def test_four_bits_take_five_with_scale_and_minimum():
    matrix = pack("Q4_1", file_rows("Q4_1", 16, 64), 64)
    assert matrix.kind is MatrixKind.FOUR_BIT
    assert matrix.data.nbytes == 16 * 64 * 5 // 8


@pytest.mark.parametrize(("scale", "is_taken"), [(8188, True), (-8188, True), (8192, False)])
def test_a_scale_whose_minimum_no_half_can_hold_is_refused(scale, is_taken):
    raw = file_rows("Q4_0", 16, 32)
    raw[3, :2] = np.float16([scale]).view(np.uint8)
    if is_taken:
        assert pack("Q4_0", raw, 32).outputs == 16
    else:
        with pytest.raises(OverflowError, match=r"Q4_0 is 8192\.0, the limit is 8188"):
            pack("Q4_0", raw, 32)


@pytest.mark.parametrize("bits", [0x7C00, 0xFC00, 0x7E00, 0x7C01])
def test_a_scale_that_is_not_finite_makes_a_minimum_that_is_not(bits):
    raw = file_rows("Q4_0", 16, 32)
    raw[3, :2] = np.uint16([bits]).view(np.uint8)
    groups = read_groups("Q4_0", raw)
    assert not np.isfinite(groups.minimums[3]).any()
    assert np.isfinite(np.delete(groups.minimums, 3, axis=0)).all()
