import dataclasses

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from ranks.plan import (
    Chunk,
    ChunkImage,
    ResolvedRows,
    StagedSlice,
    StepPlan,
    result_digest,
    rows_digest,
)

ids = st.integers(0, 2**32 - 1)
several = st.lists(ids, max_size=4).map(tuple)
rows = st.builds(
    ResolvedRows, lane_id=ids, start=ids, num_blocks=ids, gained_blocks=several,
    token_ids=st.none() | several,
)  # fmt: skip
images = st.lists(st.builds(ChunkImage, image_id=ids, start=ids, num_tokens=ids), max_size=3).map(
    tuple
)
staged_rows = st.builds(
    ResolvedRows, lane_id=ids, start=ids, num_blocks=ids, gained_blocks=several,
    token_ids=several, images=images,
)  # fmt: skip
slices = st.builds(StagedSlice, pass_id=ids, chunks=st.just(()), first_layer=ids, stop_layer=ids)


def test_the_tokens_of_a_plan_are_those_of_its_chunks_and_one_a_decode():
    chunk = Chunk(lane_id=0, start=0, token_ids=(1, 2, 3), draws=True)
    assert StepPlan(step_id=1, epoch=1, chunks=(chunk,), decodes=(1, 2)).num_tokens == 5


@given(st.lists(rows, max_size=4), st.lists(rows, max_size=4))
def test_other_rows_have_another_digest(plan_rows, others):
    assume(plan_rows != others)
    assert rows_digest(1, 1, plan_rows) != rows_digest(1, 1, others)


@given(st.lists(rows, min_size=1, max_size=4), st.data())
def test_any_changed_field_of_any_row_changes_the_digest(plan_rows, data):
    index = data.draw(st.integers(0, len(plan_rows) - 1))
    names = [f.name for f in dataclasses.fields(ResolvedRows) if f.name != "images"]
    field = data.draw(st.sampled_from(names))
    values = {"gained_blocks": several, "token_ids": st.none() | several}.get(field, ids)
    value = data.draw(values.filter(lambda one: one != getattr(plan_rows[index], field)))
    other = list(plan_rows)
    other[index] = dataclasses.replace(plan_rows[index], **{field: value})
    assert rows_digest(1, 1, plan_rows) != rows_digest(1, 1, other)


@given(slices, st.lists(staged_rows, max_size=4), st.lists(staged_rows, max_size=4))
def test_other_rows_of_a_slice_have_another_digest(staged, plan_rows, others):
    assume(plan_rows != others)
    assert rows_digest(1, 1, plan_rows, staged) != rows_digest(1, 1, others, staged)


@given(slices, slices, st.lists(staged_rows, max_size=2))
def test_another_pass_or_other_layers_are_another_digest(staged, other, plan_rows):
    assume(staged != other)
    assert rows_digest(1, 1, plan_rows, staged) != rows_digest(1, 1, plan_rows, other)


@given(slices, st.lists(rows, max_size=3), st.lists(rows, max_size=3))
def test_rows_with_a_slice_are_never_taken_for_rows_without(staged, plan_rows, others):
    assert rows_digest(1, 1, plan_rows, staged) != rows_digest(1, 1, others)


def test_an_image_ends_where_its_last_row_does():
    assert ChunkImage(image_id=1, start=3, num_tokens=4).stop == 7


def test_rows_of_a_slice_are_counted_apart():
    chunk = Chunk(lane_id=0, start=0, token_ids=(1, 2, 3), draws=True)
    staged = StagedSlice(pass_id=1, chunks=(chunk, chunk), first_layer=0, stop_layer=2)
    plan = StepPlan(step_id=1, epoch=1, decodes=(1,), staged=staged)
    assert (plan.num_tokens, staged.num_tokens) == (1, 6)


@pytest.mark.parametrize("other", [(2, 1), (1, 2)])
def test_another_step_or_epoch_is_another_digest(other):
    assert rows_digest(1, 1, []) != rows_digest(*other, [])


@given(st.dictionaries(ids, ids, max_size=6), st.randoms())
def test_the_order_in_which_lanes_drew_does_not_matter(drawn, random):
    shuffled = list(drawn.items())
    random.shuffle(shuffled)
    assert result_digest(b"p", [1], drawn) == result_digest(b"p", [1], dict(shuffled))


def test_what_was_fed_and_drawn_and_planned_each_matter():
    base = result_digest(b"plan", [1, 2], {0: 5})
    assert base != result_digest(b"nalp", [1, 2], {0: 5})
    assert base != result_digest(b"plan", [2, 1], {0: 5})
    assert base != result_digest(b"plan", [1, 2], {0: 6})
    assert base != result_digest(b"plan", [1, 2], {1: 5})
