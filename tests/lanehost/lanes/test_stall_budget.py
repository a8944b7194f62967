from hypothesis import given
from hypothesis import strategies as st

from lanehost.lanes.stall_budget import StallBudget

MS = 1_000_000


def run_steps(budget, *, beside_ms, layer_row_us, num_rows=100, num_steps=40):
    """Run slices as the budget says; return what each step took, in milliseconds."""
    budget.note_beside(int(beside_ms * MS))
    took = []
    for _ in range(num_steps):
        num_layers = budget.num_layers(num_rows)
        step_ms = beside_ms + num_layers * num_rows * layer_row_us / 1000
        budget.note(compute_ns=int(step_ms * MS), num_rows=num_rows, num_layers=num_layers)
        took.append(step_ms)
    return took


def test_the_first_slice_has_one_layer():
    assert StallBudget(num_layers=26, max_stall_ms=100).num_layers(256) == 1


def test_without_a_limit_a_slice_has_all_layers_whatever_was_measured():
    budget = StallBudget(num_layers=26, max_stall_ms=0)
    budget.note(compute_ns=10**12, num_rows=256, num_layers=1)
    assert budget.num_layers(256) == 26
    assert budget.num_rows(256) == 256


@given(beside_ms=st.floats(0, 60), layer_row_us=st.floats(0.1, 300))
def test_no_step_is_longer_than_the_limit_where_one_layer_is_not(beside_ms, layer_row_us):
    budget = StallBudget(num_layers=26, max_stall_ms=100)
    took = run_steps(budget, beside_ms=beside_ms, layer_row_us=layer_row_us)
    assert max(took) <= max(100.001, beside_ms + 100 * layer_row_us / 1000)


@given(beside_ms=st.floats(0, 80), layer_row_us=st.floats(0.1, 300))
def test_slices_grow_until_one_layer_more_would_be_too_long(beside_ms, layer_row_us):
    budget = StallBudget(num_layers=26, max_stall_ms=100)
    last = run_steps(budget, beside_ms=beside_ms, layer_row_us=layer_row_us)[-1]
    layer_ms = 100 * layer_row_us / 1000
    is_whole = last >= beside_ms + 26 * layer_ms - 0.001
    assert is_whole or last + layer_ms > 99.99


def test_what_took_longer_counts_at_once():
    budget = StallBudget(num_layers=26, max_stall_ms=100)
    run_steps(budget, beside_ms=0, layer_row_us=100)
    assert budget.num_layers(100) == 10
    budget.note(compute_ns=200 * MS, num_rows=100, num_layers=10)
    assert budget.num_layers(100) == 5


def test_no_slice_is_more_than_twice_the_last():
    budget = StallBudget(num_layers=26, max_stall_ms=100)
    layers = []
    for _ in range(6):
        layers.append(budget.num_layers(100))
        budget.note(compute_ns=0, num_rows=100, num_layers=layers[-1])
    assert layers == [1, 2, 4, 8, 16, 26]
    assert budget.num_layers(10_000) == 1


def test_a_pass_of_more_rows_has_fewer_layers_in_a_slice():
    budget = StallBudget(num_layers=26, max_stall_ms=100)
    run_steps(budget, beside_ms=0, layer_row_us=100)
    assert budget.num_layers(200) == 5


def test_where_one_layer_takes_too_long_the_next_pass_has_fewer_rows_and_later_more_again():
    budget = StallBudget(num_layers=26, max_stall_ms=100)
    budget.note(compute_ns=400 * MS, num_rows=256, num_layers=1)
    assert budget.num_rows(256) == 64
    budget.note(compute_ns=40 * MS, num_rows=64, num_layers=1)
    assert budget.num_rows(256) == 128
    budget.note(compute_ns=80 * MS, num_rows=64, num_layers=1)
    assert budget.num_rows(256) == 128


@given(st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 1024), st.integers(1, 26))))
def test_whatever_is_measured_a_slice_has_a_layer_and_a_pass_a_row(measured):
    budget = StallBudget(num_layers=26, max_stall_ms=50)
    for compute_ns, num_rows, num_layers in measured:
        budget.note(compute_ns=compute_ns, num_rows=num_rows, num_layers=num_layers)
        assert 1 <= budget.num_layers(num_rows) <= 26
        assert 1 <= budget.num_rows(256) <= 256
