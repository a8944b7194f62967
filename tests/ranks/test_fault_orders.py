from lanehost.chaos.table import AT_RANDOM
from ranks.fault_orders import VARIABLE, Act, order_file


def test_each_rank_has_a_file_of_its_own(tmp_path):
    assert order_file(tmp_path, 0) != order_file(tmp_path, 1)
    assert VARIABLE.startswith("LANEHOST_")


def test_whatever_the_kit_orders_is_known_to_ranks():
    assert {fault.value for fault in AT_RANDOM} <= {act.value for act in Act}
