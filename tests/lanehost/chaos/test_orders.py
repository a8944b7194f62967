from lanehost.chaos.orders import Orders
from ranks.fault_orders import VARIABLE, order_file


def test_an_order_lies_where_its_rank_looks_until_it_is_withdrawn(tmp_path):
    orders = Orders(tmp_path)
    orders.give(1, "oom", "decode")
    assert orders.environment == {VARIABLE: str(tmp_path)}
    assert order_file(tmp_path, 1).read_text() == "oom decode"
    assert (orders.is_open(0), orders.is_open(1)) == (False, True)
    assert (orders.withdraw(1), orders.withdraw(1)) == (True, False)
    assert list(tmp_path.iterdir()) == []
