"""Slices of a pass beside decodes: the bits of a whole pass, all or nothing, images by number."""

from dataclasses import replace

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from ranks.errors import StepBroken
from ranks.executor import Executor, Held
from ranks.lane_table import Limits
from ranks.pass_runner import no_images
from ranks.plan import (
    Chunk,
    ChunkImage,
    Draw,
    LaneFault,
    RefusalKind,
    StepRefused,
    result_digest,
)
from ranks.shards import NoCollective
from tests.support.model_wrappers import WatchedModel
from tests.support.staged_plans import StagedWriter
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_hf_checkpoint
from tests.support.tiny_worlds import load_models

NUM_BLOCKS, BLOCK_SIZE, NUM_LAYERS = 64, 16, 5
NOISY = Draw(temperature=1.5, seed=9)
# Every way to cut five layers.
CUTS = [
    [stop for stop in range(1, NUM_LAYERS) if mask >> (stop - 1) & 1] + [NUM_LAYERS]
    for mask in range(2 ** (NUM_LAYERS - 1))
]
PICTURED = (
    Chunk(
        lane_id=0,
        start=0,
        token_ids=(1, 2, 9, 9, 9, 3),
        draws=True,
        images=(ChunkImage(image_id=4, start=2, num_tokens=3),),
    ),
    Chunk(
        lane_id=2,
        start=0,
        token_ids=(9, 9, 8, 7),
        draws=True,
        images=(ChunkImage(image_id=6, start=0, num_tokens=2),),
    ),
)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama_deep")
    return load_models(folder, 1)[0]


class Rig:
    """A rank of five layers that knows two images, and who writes its plans."""

    def __init__(self, model, collective=None, *, world_size=1):
        self.model = WatchedModel(model)
        noise = torch.Generator().manual_seed(3)
        width = model.config.hidden_size
        self.images = {
            image_id: torch.randn(count, width, generator=noise)
            for image_id, count in ((4, 3), (6, 2))
        }
        self.kv = self.model.new_kv_store(NUM_BLOCKS, BLOCK_SIZE)
        self.executor = Executor(
            model=self.model,
            held=Held(kv=self.kv, image_rows=self.images.get),
            collective=collective or NoCollective(),
            world_size=world_size,
            limits=Limits(
                epoch=1,
                num_lanes=8,
                num_blocks=NUM_BLOCKS,
                block_size=BLOCK_SIZE,
                max_step_tokens=64,
                vocab_size=VOCAB_SIZE,
                context_length=1024,
                num_layers=NUM_LAYERS,
                max_staged_tokens=32,
            ),
            clock_ns=iter(range(0, 10**6, 7)).__next__,
        )
        self.writer = StagedWriter(block_size=BLOCK_SIZE, num_layers=NUM_LAYERS)

    def run(self, **asked):
        """Run a plan that must run."""
        plan = self.writer.plan(**asked)
        result = self.executor.run(plan)
        assert not isinstance(result, StepRefused), result.reason
        self.writer.ran_well(plan)
        return result

    def refuse(self, **asked):
        """Run a plan that must not run."""
        plan = self.writer.plan(**asked)
        refused = self.executor.run(plan)
        assert isinstance(refused, StepRefused)
        if refused.kind is RefusalKind.FAILED:
            self.writer.account.fail(plan)
        return refused

    def stage(self, stops, *, beside=(), chunks=PICTURED, draw=None):
        """Run a pass in slices, with decodes of these lanes beside each; results in order."""
        slices = self.writer.slices(chunks, stops)
        return [self.run(staged=one, decodes=beside, draw=draw) for one in slices]


@pytest.fixture
def rig(model):
    return Rig(model)


@pytest.mark.parametrize("draw", [None, NOISY])
def test_a_pass_in_any_slices_gives_the_bits_of_a_whole_one(model, draw):
    whole = Rig(model)
    drawn = whole.stage([NUM_LAYERS], draw=draw)[-1].drawn
    for stops in CUTS[1:]:
        sliced = Rig(model)
        assert sliced.stage(stops, draw=draw)[-1].drawn == drawn
        assert torch.equal(sliced.model.finished[0], whole.model.finished[0])
        assert torch.equal(sliced.kv.pool, whole.kv.pool)


def test_streams_draw_beside_slices_what_they_draw_alone_and_the_pass_what_it_draws_alone(model):
    alone, together = Rig(model), Rig(model)
    passed = Rig(model).stage([2, 5])[-1].drawn
    expected = [alone.run(prompts={1: [5, 6, 7]}).drawn[1]]
    expected += [alone.run(decodes=(1,)).drawn[1] for _ in range(5)]
    drawn = [together.run(prompts={1: [5, 6, 7]}).drawn[1]]
    results = together.stage([1, 2, 3, 4, 5], beside=(1,))
    drawn += [result.drawn[1] for result in results]
    assert drawn == expected
    assert {lane: results[-1].drawn[lane] for lane in passed} == passed
    assert all(set(result.drawn) == {1} for result in results[:-1])


def test_after_its_pass_a_lane_decodes_as_one_whose_pass_was_whole(model):
    replies = []
    for stops in ([5], [1, 3, 5]):
        rig = Rig(model)
        rig.stage(stops)
        replies.append([rig.run(decodes=(0, 2)).drawn for _ in range(4)])
    assert replies[0] == replies[1]


def test_other_rows_of_an_image_give_other_logits_and_token_ids_there_do_not_matter(model):
    first, other, retold = Rig(model), Rig(model), Rig(model)
    other.images[4] = other.images[4] + 1
    changed = replace(PICTURED[0], token_ids=(1, 2, 8, 7, 6, 3))
    for rig, chunks in ((first, PICTURED), (other, PICTURED), (retold, (changed, PICTURED[1]))):
        rig.stage([5], chunks=chunks)
    logits = [rig.model.finished[0] for rig in (first, other, retold)]
    assert not torch.equal(logits[0][0], logits[1][0])
    assert torch.equal(logits[0][1], logits[1][1])
    assert torch.equal(logits[0], logits[2])


def test_rows_are_read_by_the_first_slice_only(rig):
    first, *others = rig.writer.slices(PICTURED, [1, 4, 5])
    rig.run(staged=first)
    rig.images.clear()
    drawn = [rig.run(staged=one) for one in others][-1].drawn
    assert set(drawn) == {0, 2}
    assert rig.model.slices == [(0, 1), (1, 4), (4, 5)]
    assert not rig.executor._passes.is_open


def test_every_slice_says_by_digest_what_was_fed(rig):
    rig.run(prompts={1: [5, 6]})
    first, last = rig.writer.slices(PICTURED, [2, 5])
    fed = [1, 2, 9, 9, 9, 3, 9, 9, 8, 7]
    plan = rig.writer.plan(staged=first)
    assert rig.executor.run(plan).digest == result_digest(plan.digest, fed, {})
    rig.writer.ran_well(plan)
    plan = rig.writer.plan(staged=last)
    result = rig.executor.run(plan)
    assert result.digest == result_digest(plan.digest, fed, result.drawn)


def test_a_step_tells_its_slice_as_a_part_and_the_parts_add_up(rig):
    rig.run(prompts={1: [5, 6]})
    first, last = rig.writer.slices(PICTURED, [2, 5])
    for staged, names in (
        (first, {"forward", "exchange", "sampling", "staged", "other"}),
        (last, {"forward", "exchange", "sampling", "staged", "other"}),
    ):
        plan = replace(rig.writer.plan(staged=staged, decodes=(1,)), tells_parts=True)
        result = rig.executor.run(plan)
        rig.writer.ran_well(plan)
        assert set(result.parts) == names
        assert sum(result.parts.values()) == result.compute_ns


@pytest.mark.parametrize(
    ("images", "says"),
    [({}, "image 4 is not here"), ({4: torch.zeros(2, 1)}, "image 4 has 3 rows in the plan, 2")],
)
def test_an_image_that_is_not_here_is_a_mismatch_before_anything_runs(rig, images, says):
    rig.images.clear()
    rig.images.update(images)
    refused = rig.refuse(staged=rig.writer.slices(PICTURED, [5])[0])
    assert refused.kind is RefusalKind.MISMATCH
    assert says in refused.reason
    assert not rig.model.begun


def test_without_images_none_is_here():
    assert no_images(1) is None


def test_a_slice_that_fails_drops_the_pass_and_another_gives_the_same_bits(model):
    expected = Rig(model)
    expected.stage([5])
    rig = Rig(model)
    first, second, _ = rig.writer.slices(PICTURED, [1, 3, 5])
    rig.run(staged=first)
    rig.model.raise_in_slice = RuntimeError("on purpose")
    with capture_logs() as logs:
        assert rig.refuse(staged=second).kind is RefusalKind.FAILED
    assert logs[0]["num_staged_tokens"] == 10
    assert not rig.executor._passes.is_open  # its memory is free
    refused = rig.refuse(staged=second)
    assert refused.kind is RefusalKind.MISMATCH
    assert "no pass is open" in refused.reason
    rig.stage([2, 5])
    assert torch.equal(rig.model.finished[0], expected.model.finished[0])


def test_a_pass_whose_text_failed_beside_its_slice_is_dropped_and_one_without_a_slice_is_not(rig):
    rig.run(prompts={1: [5, 6]})
    first, second, last = rig.writer.slices(PICTURED, [1, 3, 5])
    rig.run(staged=first)
    rig.model.raise_before = RuntimeError("on purpose")
    assert rig.refuse(decodes=(1,)).kind is RefusalKind.FAILED
    rig.run(staged=second, decodes=(1,))
    rig.model.raise_behind = RuntimeError("on purpose")
    assert rig.refuse(staged=last, decodes=(1,)).kind is RefusalKind.FAILED
    assert "no pass is open" in rig.refuse(staged=last).reason


def test_rows_of_a_pass_that_are_no_numbers_fail_their_lane_alone(rig):
    rig.images[6] = torch.full_like(rig.images[6], float("nan"))
    result = rig.stage([2, 5])[-1]
    assert result.failures == {2: LaneFault.NAN}
    assert set(result.drawn) == {0}
    assert set(rig.run(decodes=(0, 2)).drawn) >= {0}


def test_a_slice_that_ends_no_prompt_draws_nothing(rig):
    part = replace(PICTURED[0], draws=False)
    assert rig.stage([5], chunks=(part,))[-1].drawn == {}
    rest = Chunk(lane_id=0, start=6, token_ids=(4, 5), draws=True)
    assert set(rig.stage([3, 5], chunks=(rest,))[-1].drawn) == {0}


class Fellow(NoCollective):
    """The collective of a leader with a fellow that adds nothing."""

    def all_reduce(self, tensor):
        return tensor


def test_among_several_ranks_a_slice_that_fails_in_its_collectives_breaks_the_epoch(model):
    rig = Rig(model, Fellow(), world_size=2)
    rig.model.raise_in_slice = MemoryError()
    with pytest.raises(StepBroken, match="MemoryError"):
        rig.executor.run(rig.writer.plan(staged=rig.writer.slices(PICTURED, [2, 5])[0]))


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    stops=st.sampled_from(CUTS),
    fails=st.lists(st.sampled_from([None, "raise_in_slice", "raise_before"]), max_size=5),
)
def test_whatever_fails_a_pass_is_whole_or_nothing_and_gives_the_same_bits(model, stops, fails):
    expected = Rig(model)
    expected.stage([NUM_LAYERS])
    rig, faults = Rig(model), iter(fails)
    rig.run(prompts={1: [5, 6, 7]})
    left = rig.writer.slices(PICTURED, stops)
    while left:
        fault = next(faults, None)
        if fault is None:
            rig.run(staged=left.pop(0), decodes=(1,))
            continue
        setattr(rig.model, fault, RuntimeError("on purpose"))
        assert rig.refuse(staged=left[0], decodes=(1,)).kind is RefusalKind.FAILED
        left = rig.writer.slices(PICTURED, stops)
    assert torch.equal(rig.model.finished[-1], expected.model.finished[0])
