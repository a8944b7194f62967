"""What a spare hears: one line, whole, or nothing."""

import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ranks.spare import MAX_ORDERS_BYTES, Orders, encode_orders, read_orders

ORDERS = st.builds(Orders, argv=st.lists(st.text(max_size=40)).map(tuple), token=st.text())


@given(ORDERS)
def test_a_spare_hears_what_it_was_told_and_reads_no_further(orders):
    stream = io.BytesIO(encode_orders(orders) + b"rest")
    assert read_orders(stream) == orders
    assert stream.read() == b"rest"


@given(ORDERS, st.data())
def test_a_line_that_is_cut_off_is_none(orders, data):
    line = encode_orders(orders)
    assert read_orders(io.BytesIO(line[: data.draw(st.integers(0, len(line) - 1))])) is None


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"{}\n",
        b"[]\n",
        b'{"argv": "--rank", "token": "t"}\n',
        b'{"argv": [], "token": 1}\n',
        b'{"argv": []}\n',
        b"\xff\n",
    ],
)
def test_a_line_that_is_no_orders_is_refused(line):
    with pytest.raises(ValueError, match=r"orders|Expecting|decode"):
        read_orders(io.BytesIO(line))


def test_a_line_without_end_is_read_no_further_than_the_limit():
    stream = io.BytesIO(b"x" * (4 * MAX_ORDERS_BYTES))
    with pytest.raises(ValueError, match=str(MAX_ORDERS_BYTES)):
        read_orders(stream)
    assert stream.tell() == MAX_ORDERS_BYTES + 1
