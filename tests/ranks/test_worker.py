"""What computes on a rank: orders in, facts out, and no order before its time."""

from dataclasses import replace

import grpc
import pytest
from gguf.constants import GGMLQuantizationType
from structlog.testing import capture_logs

from ranks.abort import Abort
from ranks.errors import BadCheckpoint, BadDevice, OutOfRoom, RankError
from ranks.plan import StepPlan, StepRefused, StepResult
from ranks.settings import RankSettings
from ranks.wire.messages import Form, Load
from ranks.worker import ModelWorker
from tests.support.plan_writer import PlanWriter
from tests.support.tiny_checkpoints import (
    CONTEXT_LENGTH,
    VOCAB_SIZE,
    write_gguf,
    write_hf_checkpoint,
)

FORM = Form(
    epoch=1, num_blocks=8, block_size=16, num_lanes=2, max_step_tokens=32, collective_timeout_s=5
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
    with pytest.raises(OutOfRoom, match=r"the KV pool needs \d+ bytes, this machine has \d+ free"):
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
