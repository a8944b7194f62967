"""Images and staged passes in rank processes: over the wire, on one rank and two, over epochs."""

import time
from dataclasses import dataclass, field, replace

import pytest

from ranks.plan import Chunk, ChunkImage, RefusalKind, StepRefused, StepResult
from ranks.wire.image_messages import (
    CancelImage,
    DropImage,
    EncodeImage,
    ImageDone,
    ImageFault,
    ImageOrder,
)
from ranks.wire.messages import Form, Leave, Left, Load, Loaded, Ready, Shutdown
from tests.support.epoch_master import EpochMaster, epoch_master
from tests.support.staged_plans import StagedWriter
from tests.support.tiny_gemma3 import IMAGE_SIZE, IMAGE_TOKENS, TOKEN_ID, write_tiny_gemma3

pytestmark = [pytest.mark.ranks, pytest.mark.timeout(900)]
NUM_LAYERS, ROWS = 6, 64
SOFT = [TOKEN_ID["<image_soft_token>"]] * IMAGE_TOKENS
TEXT = [40, 300, 77, 51, 19]
PICTURED = Chunk(
    lane_id=0,
    start=0,
    token_ids=(2, *TEXT, *SOFT, 60, *SOFT, *TEXT),
    draws=True,
    images=(
        ChunkImage(image_id=1, start=6, num_tokens=IMAGE_TOKENS),
        ChunkImage(image_id=3, start=7 + IMAGE_TOKENS, num_tokens=IMAGE_TOKENS),
    ),
)


@pytest.fixture(scope="module")
def order(tmp_path_factory):
    folder = write_tiny_gemma3(tmp_path_factory.mktemp("checkpoint"))
    return Load(
        model_path=str(folder), dtype="float32", weights="auto", device="cpu", num_threads=1,
        block_size=16, max_step_tokens=32, num_lanes=4, max_staged_tokens=ROWS,
        image_cache_tokens=ROWS,
    )  # fmt: skip


def encode_of(image_id, side):
    return EncodeImage(
        image_id=image_id, digest="00" * 32, width=side, height=side, pixels=bytes(3 * side**2)
    )


def encode(image_id):
    pixels = bytes(number * image_id % 251 for number in range(3 * IMAGE_SIZE**2))
    return EncodeImage(
        image_id=image_id, digest="00" * 32, width=IMAGE_SIZE, height=IMAGE_SIZE, pixels=pixels
    )


@dataclass
class Group:
    """Ranks of an epoch, and who writes their plans."""

    master: EpochMaster
    ranks: tuple[int, ...]
    epoch: int = 0
    writer: StagedWriter = field(default_factory=lambda: StagedWriter(block_size=16, num_layers=6))

    def enter(self):
        self.epoch += 1
        self.writer = StagedWriter(block_size=16, num_layers=NUM_LAYERS, epoch=self.epoch)
        order = Form(
            epoch=self.epoch, num_blocks=16, block_size=16, num_lanes=4, max_step_tokens=32,
            collective_timeout_s=200, max_staged_tokens=ROWS, image_cache_tokens=ROWS,
        )  # fmt: skip
        self.master.say(order, *self.ranks)
        assert self.hear() == [Ready(epoch=self.epoch)] * len(self.ranks)

    def leave(self):
        self.master.say(Leave(epoch=self.epoch), *self.ranks)
        assert self.hear() == [Left(epoch=self.epoch)] * len(self.ranks)

    def hear(self):
        return [self.master.hear(rank) for rank in self.ranks]

    def order(self, *works):
        for work in works:
            self.master.say(ImageOrder(epoch=self.epoch, work=work), *self.ranks)

    def encoded(self, *image_ids):
        """Digests of images, the same on every rank."""
        found = []
        for image_id in image_ids:
            self.order(encode(image_id))
            answers = self.hear()
            assert all(isinstance(one, ImageDone) and one.fault is None for one in answers)
            digests = {one.rows_digest for one in answers}
            assert len(digests) == 1
            found.append(digests.pop())
        return found

    def run(self, **asked):
        plan = self.writer.plan(**asked)
        self.master.say(plan, *self.ranks)
        answers = self.hear()
        assert all(isinstance(one, StepResult) for one in answers), answers
        assert len({one.digest for one in answers}) == 1
        self.writer.ran_well(plan)
        return answers[0].drawn

    def reply(self, stops):
        """Tokens of a stream beside a pass and behind it, and of the pass's lane."""
        drawn = [self.run(prompts={1: [2, *TEXT]})]
        slices = self.writer.slices((PICTURED,), stops)
        drawn += [self.run(staged=one, decodes=(1,)) for one in slices]
        drawn += [self.run(decodes=(0, 1)) for _ in range(8 - len(stops))]
        return [one[1] for one in drawn], [one[0] for one in drawn if 0 in one][:3]


def start(master, order, ranks):
    for rank in ranks:
        master.start(rank)
    master.say(order, *ranks)
    told = [master.hear(rank) for rank in ranks]
    assert all(isinstance(one, Loaded) for one in told)
    assert {one.image_facts.num_tokens for one in told} == {IMAGE_TOKENS}
    group = Group(master, tuple(ranks))
    group.enter()
    return group


def test_one_rank_and_two_encode_and_stage_alike_in_any_slices_and_over_epochs(order):
    replies, digests = [], []
    for world_size in (1, 2):
        with epoch_master(world_size) as master:
            group = start(master, order, range(world_size))
            digests.append(group.encoded(1, 3))
            replies.append(group.reply([6]))
            group.leave()
            group.enter()
            # Rows end with their epoch.
            refused = group.writer.plan(staged=group.writer.slices((PICTURED,), [6])[0])
            master.say(refused, *group.ranks)
            answers = group.hear()
            assert all(isinstance(one, StepRefused) for one in answers)
            assert {(one.kind, one.reason) for one in answers} == {
                (RefusalKind.MISMATCH, "image 1 is not here")
            }
            group.leave()
            group.enter()
            digests.append(group.encoded(1, 3))
            replies.append(group.reply([1, 2, 3, 4, 5, 6]))
    assert digests[0] == digests[1] == digests[2] == digests[3]
    assert replies[0] == replies[1] == replies[2] == replies[3]


def test_a_plan_finds_the_rows_that_are_dropped_behind_it_and_a_cancel_is_answered(order):
    with epoch_master(1) as master:
        group = start(master, order, [0])
        group.encoded(1, 3)
        # Both are on their way before the step has run.
        plan = group.writer.plan(staged=group.writer.slices((PICTURED,), [6])[0])
        master.say(plan, 0)
        group.order(DropImage(image_id=1), DropImage(image_id=3))
        assert isinstance(master.hear(0), StepResult)
        group.writer.ran_well(plan)
        again = Chunk(
            lane_id=2,
            start=0,
            token_ids=PICTURED.token_ids,
            draws=True,
            images=PICTURED.images,
        )
        plan = group.writer.plan(staged=group.writer.slices((again,), [6])[0])
        master.say(plan, 0)
        assert master.hear(0).reason == "image 1 is not here"
        group.order(*(encode(image_id) for image_id in range(4, 34)), CancelImage(image_id=33))
        answers = [master.hear(0) for _ in range(30)]
        assert [one.image_id for one in answers] == list(range(4, 34))
        assert answers[-1].fault is ImageFault.CANCELLED
        assert all(one.fault is None for one in answers[:-1])


def test_a_rank_that_leaves_or_ends_while_it_encodes_does_so_at_once(order):
    with epoch_master(1) as master:
        group = start(master, order, [0])
        group.order(*(encode(image_id) for image_id in range(1, 60)))
        master.say(Leave(epoch=1), 0)
        told = []
        while not isinstance(told[-1] if told else None, Left):
            told.append(master.hear(0))
        while len(told) < 60:
            told.append(master.hear(0))
        done = [one for one in told if isinstance(one, ImageDone)]
        assert [one.image_id for one in done] == list(range(1, 60))
        group.enter()
        group.order(*(encode(image_id) for image_id in range(1, 60)))
        master.stream(0).out.put(None)
        master.processes[0].wait(timeout=20)


def test_a_rank_that_is_told_to_end_in_the_middle_of_an_image_does_so_in_order(tmp_path, order):
    """Its thread is in native code for seconds, and nobody waits for it or is hurt by it."""
    side = 448
    eyes = {"image_size": side, "num_hidden_layers": 12, "hidden_size": 192}
    slow = replace(order, model_path=str(write_tiny_gemma3(tmp_path, eyes=eyes)))
    for wait_s in (0.1, 0.4):
        with epoch_master(1) as master:
            group = start(master, slow, [0])
            group.order(encode_of(1, side))
            time.sleep(wait_s)
            began_s = time.monotonic()
            master.say(Shutdown(reason="enough"), 0)
            assert master.processes[0].wait(timeout=20) == 0
            assert time.monotonic() - began_s < 5
            assert master.hear(0) is None, "the image was done: it is not slow enough"
