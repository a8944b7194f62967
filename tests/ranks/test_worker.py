"""What computes on a rank: orders in, facts out, and no order before its time."""

import queue
from dataclasses import replace

import grpc
import pytest
from gguf.constants import GGMLQuantizationType
from structlog.testing import capture_logs

from ranks.abort import Abort
from ranks.errors import BadCheckpoint, BadDevice, OutOfRoom, RankError
from ranks.plan import Chunk, ChunkImage, StepPlan, StepRefused, StepResult
from ranks.settings import RankSettings
from ranks.wire.image_messages import EncodeImage, ImageFacts, ImageFault, ImageOrder
from ranks.wire.messages import Form, Load
from ranks.worker import ModelWorker
from tests.support.plan_writer import PlanWriter
from tests.support.staged_plans import StagedWriter
from tests.support.tiny_checkpoints import (
    CONTEXT_LENGTH,
    VOCAB_SIZE,
    write_gguf,
    write_hf_checkpoint,
)
from tests.support.tiny_gemma3 import IMAGE_SIZE, IMAGE_TOKENS, TOKEN_ID, write_tiny_gemma3

FORM = Form(
    epoch=1, num_blocks=8, block_size=16, num_lanes=2, max_step_tokens=32, collective_timeout_s=5
)
IMAGE = EncodeImage(
    image_id=1,
    digest="00" * 32,
    width=IMAGE_SIZE,
    height=IMAGE_SIZE,
    pixels=bytes(3 * IMAGE_SIZE**2),
)
PICTURED = Chunk(
    lane_id=0,
    start=0,
    token_ids=(2, *[TOKEN_ID["<image_soft_token>"]] * IMAGE_TOKENS, 40),
    draws=True,
    images=(ChunkImage(image_id=1, start=1, num_tokens=IMAGE_TOKENS),),
)


@pytest.fixture(scope="module")
def order(tmp_path_factory):
    folder = tmp_path_factory.mktemp("checkpoint")
    write_hf_checkpoint(folder, "llama")
    return Load(
        model_path=str(folder), dtype="float32", weights="auto", device="cpu", num_threads=1,
        block_size=16, max_step_tokens=32, num_lanes=2,
    )  # fmt: skip


@pytest.fixture
def worker():
    settings = RankSettings(master="127.0.0.1:1", rank=0, world_size=1, death_fd=0, token="t")
    with grpc.insecure_channel(settings.master) as channel:
        worker = ModelWorker(settings, channel)
        yield worker
        worker.close()


def progress_into(told):
    return lambda done, total: told.append((done, total))


def test_a_load_tells_the_facts_of_the_model(worker, order):
    told = []
    loaded = worker.load(order, progress_into(told))
    assert (loaded.vocab_size, loaded.context_length) == (VOCAB_SIZE, CONTEXT_LENGTH)
    assert (loaded.dtype, loaded.device, loaded.collective) == ("float32", "cpu", "none")
    assert loaded.weights == "float32"
    assert len(loaded.weights_digest) == len(loaded.config_digest) == 64
    # 2 layers, keys and values, 3 heads of 16, float32.
    assert loaded.kv_bytes_per_block == 2 * 2 * 3 * 16 * 4 * order.block_size
    assert loaded.free_bytes > 0
    assert loaded.step_bytes > 32 * 96 * 4
    assert loaded.step_bytes_per_block > 2 * 3 * 16 * 4 * order.block_size
    assert told[-1][0] == told[-1][1]


def test_a_load_logs_how_products_are_computed_and_whether_rows_are_exact(worker, order):
    with capture_logs() as logs:
        worker.load(order, progress_into([]))
    (event,) = [log for log in logs if log["event"] == "model_loaded"]
    assert event["products"] in ("packed", "plain")
    assert event["row_exact"]
    assert not [log for log in logs if log["event"] == "rows_not_exact"]


def test_a_quantized_gguf_is_computed_natively_and_the_facts_say_so(worker, order, tmp_path):
    write_gguf(tmp_path / "m.gguf", GGMLQuantizationType.Q4_1)
    quantized = replace(order, model_path=str(tmp_path / "m.gguf"), dtype="auto")
    with capture_logs() as logs:
        loaded = worker.load(quantized, progress_into([]))
    assert (loaded.dtype, loaded.weights) == ("int8", "stored")
    # 2 layers, keys and values, 3 heads of 16, float16.
    assert loaded.kv_bytes_per_block == 2 * 2 * 3 * 16 * 2 * order.block_size
    (event,) = [log for log in logs if log["event"] == "model_loaded"]
    assert event["products"].startswith("native-")
    assert event["row_exact"]
    worker.form(FORM, Abort())
    result = worker.run(PlanWriter(block_size=16).plan(prompts={1: [1, 2, 3]}))
    assert isinstance(result, StepResult)


@pytest.mark.parametrize("weights", ["int8", "int4"])
def test_floats_that_are_rounded_at_load_are_another_model_and_the_facts_say_so(
    worker, order, tmp_path, weights
):
    write_gguf(tmp_path / "m.gguf", GGMLQuantizationType.F16)
    plain = replace(order, model_path=str(tmp_path / "m.gguf"), dtype="auto")
    expected = worker.load(plain, progress_into([]))
    told = []
    with capture_logs() as logs:
        loaded = worker.load(replace(plain, weights=weights), progress_into(told))
    assert (loaded.dtype, loaded.weights) == ("int8", weights)
    assert loaded.weights_digest == expected.weights_digest  # of the files
    assert loaded.config_digest != expected.config_digest
    assert told[-1][0] == told[-1][1]
    (event,) = [log for log in logs if log["event"] == "model_loaded"]
    assert event["weights"] == weights
    worker.form(FORM, Abort())
    result = worker.run(PlanWriter(block_size=16).plan(prompts={1: [1, 2, 3]}))
    assert isinstance(result, StepResult)


def test_a_formed_worker_runs_plans(worker, order):
    worker.load(order, progress_into([]))
    worker.form(FORM, Abort())
    writer = PlanWriter(block_size=16)
    result = worker.run(writer.plan(prompts={1: [1, 2, 3]}))
    assert isinstance(result, StepResult)
    assert list(result.drawn) == [1]
    refused = worker.run(writer.plan(prompts={2: [1]}))
    assert isinstance(refused, StepRefused)
    assert "there are lanes 0 to 1" in refused.reason


def test_a_pool_that_does_not_fit_is_refused_with_the_numbers(worker, order):
    worker.load(order, progress_into([]))
    with pytest.raises(OutOfRoom, match=r"the KV pool needs \d+ bytes, and images 0, this"):
        worker.form(replace(FORM, num_blocks=2**31), Abort())


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"model_path": "/no/such/model"}, BadCheckpoint),
        ({"device": "tpu"}, BadDevice),
        ({"dtype": "float8"}, ValueError),
        ({"weights": "int3"}, ValueError),
        ({"weights": "int4"}, BadCheckpoint),
    ],
)
def test_what_cannot_be_loaded_is_refused(worker, order, changes, error):
    with pytest.raises(error):
        worker.load(replace(order, **changes), progress_into([]))


def test_no_order_comes_before_its_time(worker):
    with pytest.raises(RankError, match="Form came before Load"):
        worker.form(FORM, Abort())
    with pytest.raises(RankError, match="a plan came before Form"):
        worker.run(StepPlan(step_id=1, epoch=1, digest=bytes(16)))


@pytest.fixture(scope="module")
def with_eyes(tmp_path_factory, order):
    folder = write_tiny_gemma3(tmp_path_factory.mktemp("eyes"))
    return replace(order, model_path=str(folder), max_staged_tokens=40, image_cache_tokens=64)


def test_a_model_that_takes_images_says_so_and_counts_their_room(worker, order, with_eyes):
    loaded = worker.load(with_eyes, progress_into([]))
    assert loaded.image_facts == ImageFacts(
        num_tokens=IMAGE_TOKENS,
        token_id=TOKEN_ID["<image_soft_token>"],
        width=IMAGE_SIZE,
        height=IMAGE_SIZE,
    )
    assert loaded.num_layers == 6
    less = worker.load(
        replace(with_eyes, max_staged_tokens=20, image_cache_tokens=32), progress_into([])
    )
    assert loaded.step_bytes - less.step_bytes >= 32 * 96 * 4
    assert loaded.step_bytes_per_block > less.step_bytes_per_block
    plain = worker.load(replace(order, max_staged_tokens=40), progress_into([]))
    assert (plain.image_facts, plain.num_layers) == (None, 2)


def test_room_for_images_is_claimed_with_the_pool_and_logged(worker, with_eyes, order):
    formed = replace(FORM, max_staged_tokens=40, image_cache_tokens=64)
    worker.load(with_eyes, progress_into([]))
    with capture_logs() as logs:
        worker.form(formed, Abort())
    (event,) = [log for log in logs if log["event"] == "staging_claimed"]
    assert (event["max_staged_tokens"], event["image_cache_tokens"]) == (40, 64)
    assert event["kept_bytes"] == (64 + IMAGE_TOKENS) * 96 * 4
    assert event["staged_bytes"] > 40 * 96 * 4
    worker.leave()
    worker.free()
    with pytest.raises(OutOfRoom, match=r"and images \d{12,}, this machine"):
        worker.form(replace(formed, image_cache_tokens=2**32 - 1), Abort())


def test_images_are_encoded_into_the_epoch_and_end_with_it(worker, with_eyes):
    worker.load(with_eyes, progress_into([]))
    answers = queue.Queue()
    writer = StagedWriter(block_size=16, num_layers=6)
    staged = writer.slices((PICTURED,), [6])[0]
    for epoch in (1, 2):
        formed = replace(FORM, epoch=epoch, max_staged_tokens=40, image_cache_tokens=64)
        worker.form(formed, Abort())
        writer = StagedWriter(block_size=16, num_layers=6, epoch=epoch)
        refused = worker.run(writer.plan(staged=staged))
        assert refused.reason == "image 1 is not here"
        worker.take_image(ImageOrder(epoch=epoch, work=IMAGE), answers.put)
        done = answers.get(timeout=10)
        assert (done.fault, done.num_tokens) == (None, IMAGE_TOKENS)
        writer = StagedWriter(block_size=16, num_layers=6, epoch=epoch)
        writer.step_id = 1
        writer.account.last_pass_id = 1
        plan = writer.plan(staged=replace(staged, pass_id=2))
        assert isinstance(worker.run(plan), StepResult)
        worker.leave()
        worker.free()


def test_a_model_that_takes_no_images_stages_nothing_and_answers_for_each(worker, order):
    worker.load(order, progress_into([]))
    with capture_logs() as logs:
        worker.form(replace(FORM, max_staged_tokens=40, image_cache_tokens=64), Abort())
    assert not [log for log in logs if log["event"] == "staging_claimed"]
    answers = queue.Queue()
    worker.take_image(ImageOrder(epoch=1, work=IMAGE), answers.put)
    assert answers.get(timeout=10).fault is ImageFault.SHAPE
    writer = StagedWriter(block_size=16, num_layers=2)
    chunk = replace(PICTURED, images=())
    refused = worker.run(writer.plan(staged=writer.slices((chunk,), [2])[0]))
    assert "limit 0" in refused.reason


@pytest.mark.parametrize("name", ["auto", "cpu"])
def test_images_are_encoded_where_the_model_computes_unless_told_otherwise(worker, with_eyes, name):
    with capture_logs() as logs:
        worker.load(replace(with_eyes, encoder_device=name), progress_into([]))
    placed = [log["device"] for log in logs if log["event"] == "encoder_placed"]
    assert placed == ([] if name == "auto" else ["cpu"])


def test_a_device_for_images_that_is_not_there_is_refused_where_images_are_taken(
    worker, with_eyes, order
):
    with pytest.raises(BadDevice, match="device is 'tpu'"):
        worker.load(replace(with_eyes, encoder_device="tpu"), progress_into([]))
    worker.load(replace(order, encoder_device="tpu"), progress_into([]))
