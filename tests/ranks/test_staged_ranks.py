"""Images and passes of a tiny Gemma 3 on one rank and on two: the same bits, in any slices."""

import threading

import pytest
import torch

from ranks.executor import Executor, Held
from ranks.images.encoder import Encoder
from ranks.lane_table import Limits
from ranks.plan import Chunk, ChunkImage
from ranks.shards import NoCollective
from ranks.wire.image_messages import EncodeImage
from tests.support.model_wrappers import WatchedModel
from tests.support.staged_plans import StagedWriter
from tests.support.tiny_gemma3 import (
    IMAGE_SIZE,
    IMAGE_TOKENS,
    TOKEN_ID,
    VOCAB_SIZE,
    write_tiny_gemma3,
)
from tests.support.tiny_worlds import Meeting, ThreadCollective, load_models

NUM_BLOCKS, BLOCK_SIZE, NUM_LAYERS = 32, 16, 6
SOFT = TOKEN_ID["<image_soft_token>"]
TEXT = (40, 300, 77, 51, 19, 222, 101, 90)
PROMPT = [2, *TEXT]
CUTS = ([1, 2, 3, 4, 5, 6], [2, 6], [4, 5, 6])


def pictured(lane_id, image_ids):
    """A prompt with text before, between and behind its images."""
    token_ids, images = [2, *TEXT[:3]], []
    for image_id in image_ids:
        images.append(ChunkImage(image_id=image_id, start=len(token_ids), num_tokens=IMAGE_TOKENS))
        token_ids += [*[SOFT] * IMAGE_TOKENS, 60 + image_id]
    token_ids += TEXT
    return Chunk(
        lane_id=lane_id, start=0, token_ids=tuple(token_ids), draws=True, images=tuple(images)
    )


CHUNKS = (pictured(0, (1, 2)), pictured(3, (3,)))


def image(image_id):
    generator = torch.Generator().manual_seed(image_id)
    shape = (IMAGE_SIZE, IMAGE_SIZE, 3)
    pixels = torch.randint(0, 256, shape, generator=generator, dtype=torch.uint8)
    return EncodeImage(
        image_id=image_id,
        digest="00" * 32,
        width=IMAGE_SIZE,
        height=IMAGE_SIZE,
        pixels=pixels.numpy().tobytes(),
    )


class Ranks:
    """Executors of one rank, or of two that are threads; the same plans to all."""

    def __init__(self, models):
        self.models = [WatchedModel(model) for model in models]
        self.encoded = [
            {number: Encoder(model).encode(image(number)) for number in (1, 2, 3)}
            for model in models
        ]
        self.stores = [model.new_kv_store(NUM_BLOCKS, BLOCK_SIZE) for model in models]
        meeting = Meeting()
        self.executors = [
            self._executor(rank, meeting, world_size=len(models)) for rank in range(len(models))
        ]
        self.writer = StagedWriter(block_size=BLOCK_SIZE, num_layers=NUM_LAYERS)

    def _executor(self, rank, meeting, *, world_size):
        rows = {number: one.rows for number, one in self.encoded[rank].items()}
        alone = world_size == 1
        return Executor(
            model=self.models[rank],
            held=Held(kv=self.stores[rank], image_rows=rows.get),
            collective=NoCollective() if alone else ThreadCollective(meeting, rank),
            world_size=world_size,
            limits=Limits(
                epoch=1,
                num_lanes=4,
                num_blocks=NUM_BLOCKS,
                block_size=BLOCK_SIZE,
                max_step_tokens=32,
                vocab_size=VOCAB_SIZE,
                context_length=1024,
                num_layers=NUM_LAYERS,
                max_staged_tokens=64,
            ),
            clock_ns=lambda: 0,
        )

    def run(self, **asked):
        """Run a plan on all; what they say must be equal."""
        plan = self.writer.plan(**asked)
        said = {}

        def act(rank):
            said[rank] = self.executors[rank].run(plan)

        threads = [
            threading.Thread(target=act, args=(rank,)) for rank in range(1, len(self.models))
        ]
        for thread in threads:
            thread.start()
        act(0)
        for thread in threads:
            thread.join()
        assert all(one == said[0] for one in said.values())
        self.writer.ran_well(plan)
        return said[0]

    def reply(self, stops, num_tokens=5):
        """Tokens of a text stream beside a pass, then of all lanes together."""
        drawn = [self.run(prompts={1: PROMPT}).drawn]
        slices = self.writer.slices(CHUNKS, stops)
        drawn += [self.run(staged=staged, decodes=(1,)).drawn for staged in slices]
        drawn += [self.run(decodes=(0, 1, 3)).drawn for _ in range(num_tokens)]
        return {lane: [one[lane] for one in drawn if lane in one] for lane in (0, 1, 3)}


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    folder = write_tiny_gemma3(tmp_path_factory.mktemp("checkpoint"))
    return {size: load_models(folder, size) for size in (1, 2)}


@pytest.fixture(autouse=True)
def one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_images_have_the_same_digest_on_two_ranks_and_on_one(models):
    found = [
        [encoded[number].digest for number in (1, 2, 3)]
        for size in (1, 2)
        for encoded in Ranks(models[size]).encoded
    ]
    assert found[0] == found[1] == found[2]
    assert len(set(found[0])) == 3


@pytest.mark.parametrize("world_size", [1, 2])
@pytest.mark.parametrize("stops", CUTS)
def test_a_pass_in_slices_has_the_bits_of_a_whole_one(models, world_size, stops):
    whole, sliced = Ranks(models[world_size]), Ranks(models[world_size])
    expected, found = whole.reply([NUM_LAYERS]), sliced.reply(stops)
    assert [found[lane] for lane in (0, 3)] == [expected[lane] for lane in (0, 3)]
    both = zip(whole.models, sliced.models, strict=True)
    for one, other in both:
        assert torch.equal(one.hidden[0], other.hidden[0])
    assert torch.equal(whole.models[0].finished[0], sliced.models[0].finished[0])


def test_two_ranks_have_the_bits_of_one(models):
    alone, both = Ranks(models[1]), Ranks(models[2])
    assert alone.reply([2, 4, 6]) == both.reply([2, 4, 6])
    assert torch.equal(alone.models[0].finished[0], both.models[0].finished[0])
    assert both.models[1].finished == [None]


def test_a_text_stream_beside_a_pass_draws_what_it_draws_alone(models):
    beside = Ranks(models[1]).reply([1, 2, 3, 4, 5, 6])[1]
    alone = Ranks(models[1])
    expected = [alone.run(prompts={1: PROMPT}).drawn[1]]
    expected += [alone.run(decodes=(1,)).drawn[1] for _ in range(len(beside) - 1)]
    assert beside == expected


def test_another_image_gives_another_reply_and_each_prompt_its_own_in_any_company(models):
    together = Ranks(models[1]).reply([3, 6])
    alone = Ranks(models[1])
    passes = alone.writer.slices(CHUNKS[:1], [6])
    drawn = [alone.run(staged=passes[0]).drawn[0]]
    drawn += [alone.run(decodes=(0,)).drawn[0] for _ in range(5)]
    assert drawn == together[0]
    other = Ranks(models[1])
    swapped = pictured(0, (2, 1))
    other.run(staged=other.writer.slices((swapped,), [6])[0])
    assert not torch.equal(other.models[0].finished[0], alone.models[0].finished[0])
