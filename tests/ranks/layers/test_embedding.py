import torch

from ranks.layers.embedding import Embedding, Head
from ranks.shards import NoCollective
from ranks.tiles import row_multiple
from ranks.weights.row_table import TensorRows

CPU = torch.device("cpu")


class Follower(NoCollective):
    def gather_columns(self, tensor):
        return None


def test_ids_become_rows_of_the_table():
    table = torch.randn(7, 4)
    rows = TensorRows(table, torch.float32)
    assert torch.equal(Embedding(rows)(torch.tensor([3, 0, 3])), table[[3, 0, 3]])


def test_logits_are_products_with_all_rows_of_the_table_in_float32():
    table, x = torch.randn(301, 32), torch.randn(3, 32)
    logits = Head(table)(x, NoCollective())
    torch.testing.assert_close(logits, x @ table.T)
    low = Head(table.bfloat16())(x.bfloat16(), NoCollective())
    assert low.dtype == torch.float32


def test_a_row_has_the_same_logits_alone():
    head, x = Head(torch.randn(301, 96)), torch.randn(16, 96)
    together = head(x, NoCollective())
    for row in range(16):
        assert torch.equal(head(x[row : row + 1], NoCollective())[0], together[row])


def test_rows_are_padded_to_whole_tiles_before_the_product_and_cut_after_it():
    """Three rows may run in another kernel than four: the law holds for padded rows only."""
    head, seen = Head(torch.randn(301, 32)), []
    product = head._linear
    head._linear = lambda x: seen.append(x) or product(x)

    logits = head(torch.ones(row_multiple(CPU) + 1, 32), NoCollective())

    assert logits.shape == (row_multiple(CPU) + 1, 301)
    assert seen[0].shape[0] == 2 * row_multiple(CPU)
    assert not seen[0][row_multiple(CPU) + 1 :].any()


def test_a_follower_has_no_logits():
    assert Head(torch.randn(301, 32))(torch.randn(3, 32), Follower()) is None
