import pytest
import torch

from ranks.errors import BadCheckpoint
from ranks.weights.reader import TensorReader
from ranks.weights.row_table import TensorRows

CPU = torch.device("cpu")


class TableSource:
    """A `WeightSource` over tensors in memory."""

    def __init__(self, tensors):
        self.tensors = tensors

    def names(self):
        return set(self.tensors)

    def shape(self, name):
        return tuple(self.tensors[name].shape) if name in self.tensors else None

    def num_bytes(self, name):
        return self.tensors[name].nbytes

    def read(self, name, *, rows, columns):
        part = self.tensors[name][rows.start : rows.stop]
        return part if columns is None else part[:, columns.start : columns.stop]

    def table(self, name, dtype):
        return TensorRows(self.tensors[name], dtype)


def make_reader(tensors, on_progress=lambda done, total: None, dtype=torch.float32):
    return TensorReader(TableSource(tensors), device=CPU, dtype=dtype, on_progress=on_progress)


MATRIX = torch.arange(12.0).view(3, 4)


def test_parts_are_read_and_cast():
    reader = make_reader({"m": MATRIX, "v": torch.arange(5.0)}, dtype=torch.bfloat16)
    assert torch.equal(reader.matrix("m", (3, 4), rows=range(1, 3)).float(), MATRIX[1:3])
    assert torch.equal(reader.matrix("m", (3, 4), columns=range(2, 4)).float(), MATRIX[:, 2:])
    assert reader.vector("v", 5, part=range(1, 3)).tolist() == [1, 2]
    assert reader.vector("v", 5).dtype == reader.empty().dtype == torch.bfloat16


def test_a_table_counts_as_read_and_is_checked():
    told = []
    reader = make_reader({"m": MATRIX}, on_progress=lambda *counts: told.append(counts))
    assert torch.equal(reader.table("m", (3, 4)).look_up(torch.tensor([2])), MATRIX[2:])
    reader.finish()
    assert told == [(48, 48), (48, 48)]
    with pytest.raises(BadCheckpoint, match=r"'m' has shape \(3, 4\)"):
        reader.table("m", (4, 3))


def test_table_and_rows_share_memory_where_products_do_not_pack():
    source = TableSource({"m": MATRIX})
    for name, shares in (("meta", True), ("cpu", False)):
        reader = TensorReader(
            source, device=torch.device(name), dtype=torch.float16,
            on_progress=lambda done, total: None,
        )  # fmt: skip
        table, rows = reader.table_and_rows("m", (3, 4), range(1, 3))
        held = table._weight.untyped_storage()._cdata
        assert (held == rows.untyped_storage()._cdata) == shares
        assert rows.shape == (2, 4)
        assert rows.dtype == torch.float16


def test_a_missing_tensor_is_named_with_its_shape():
    with pytest.raises(BadCheckpoint, match=r"'m' is missing; the config needs it as \(3, 4\)"):
        make_reader({}).matrix("m", (3, 4))


@pytest.mark.parametrize("shape", [(3, 5), (4, 3), (12, 1)])
def test_a_misshapen_tensor_is_named_with_both_shapes(shape):
    with pytest.raises(BadCheckpoint, match=r"'m' has shape \(3, 4\), the config says"):
        make_reader({"m": MATRIX}).matrix("m", shape, rows=range(1))
    with pytest.raises(BadCheckpoint, match=r"'m' has shape \(3, 4\), the config says \(3,\)"):
        make_reader({"m": MATRIX}).vector("m", 3)


def test_a_tensor_that_nobody_reads_is_an_error():
    reader = make_reader({"m": MATRIX, "extra": MATRIX})
    reader.matrix("m", (3, 4))
    with pytest.raises(BadCheckpoint, match="'extra' and 0 more are not part of the model"):
        reader.finish()


def test_derived_buffers_and_skipped_tensors_need_no_reader():
    reader = make_reader({"layers.0.self_attn.rotary_emb.inv_freq": MATRIX, "lm_head": MATRIX})
    reader.skip("lm_head")
    reader.finish()


def test_progress_rises_to_the_total_and_counts_a_tensor_once():
    seen = []
    reader = make_reader(
        {"m": MATRIX, "v": torch.arange(5.0)}, lambda done, total: seen.append((done, total))
    )
    reader.matrix("m", (3, 4), rows=range(1))
    reader.matrix("m", (3, 4), rows=range(1, 3))
    reader.vector("v", 5)
    reader.finish()
    assert seen == [(48, 68), (68, 68), (68, 68)]
