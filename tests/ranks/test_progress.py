"""Progress: the step that runs, and a count that rises with it."""

import pytest

from ranks.progress import Progress


def test_a_step_is_known_while_it_is_computed_and_its_ends_count():
    progress = Progress(lambda: 0)
    assert (progress.step_id, progress.num_stages) == (0, 0)
    with progress.step(7):
        assert (progress.step_id, progress.num_stages) == (7, 1)
    assert (progress.step_id, progress.num_stages) == (0, 2)


def test_what_the_model_computes_counts():
    done = [5]
    progress = Progress(lambda: done[0])
    with progress.step(1):
        before = progress.num_stages
        done[0] += 3
        assert progress.num_stages == before + 3


def test_a_step_that_raises_is_over():
    progress = Progress(lambda: 0)
    with pytest.raises(ZeroDivisionError), progress.step(1):
        raise ZeroDivisionError
    assert progress.step_id == 0
