import numpy as np
import pytest
import torch
from gguf.constants import GGMLQuantizationType as Kind

from ranks.models.registry import open_checkpoint
from ranks.weights.reader import TensorReader
from ranks.weights.row_table import TensorRows
from tests.support.tiny_checkpoints import VOCAB_SIZE, write_gguf, write_hf_checkpoint

CPU = torch.device("cpu")
IDS = torch.tensor([3, 300, 0, 3, 299])


def make_reader(path, dtype=torch.float32):
    source = open_checkpoint(path).source
    return TensorReader(source, device=CPU, dtype=dtype, on_progress=lambda done, total: None)


@pytest.mark.parametrize("kind", [Kind.F32, Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_1])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_rows_that_are_looked_up_have_the_bits_of_rows_that_are_read(tmp_path, kind, dtype):
    write_gguf(tmp_path / "a.gguf", kind)
    reader = make_reader(tmp_path / "a.gguf", dtype)
    table = reader.table("embed_tokens.weight", (VOCAB_SIZE, 96))
    whole = reader.matrix("embed_tokens.weight", (VOCAB_SIZE, 96))
    found = table.look_up(IDS)
    assert found.dtype == dtype
    assert np.array_equal(found.float().numpy(), whole[IDS].float().numpy())
    assert torch.equal(table.look_up(torch.arange(VOCAB_SIZE)), whole)
    assert table.look_up(torch.empty(0, dtype=torch.int64)).shape == (0, 96)


def test_a_table_takes_the_bytes_that_it_takes_in_the_file(tmp_path):
    write_gguf(tmp_path / "a.gguf", Kind.Q8_0)
    table = make_reader(tmp_path / "a.gguf").table("embed_tokens.weight", (VOCAB_SIZE, 96))
    assert table.num_bytes == VOCAB_SIZE * 96 // 32 * 34


def test_a_table_of_safetensors_is_held_in_its_type_and_cast_row_by_row(tmp_path):
    write_hf_checkpoint(tmp_path, "llama")
    reader = make_reader(tmp_path, torch.bfloat16)
    table = reader.table("embed_tokens.weight", (VOCAB_SIZE, 96))
    assert table.num_bytes == VOCAB_SIZE * 96 * 4
    whole = reader.matrix("embed_tokens.weight", (VOCAB_SIZE, 96))
    assert torch.equal(table.look_up(IDS), whole[IDS])


def test_rows_of_a_tensor_are_those_of_the_tensor():
    weight = torch.randn(7, 4).half()
    assert torch.equal(
        TensorRows(weight, torch.float32).look_up(torch.tensor([3, 0, 3])),
        weight[[3, 0, 3]].float(),
    )
