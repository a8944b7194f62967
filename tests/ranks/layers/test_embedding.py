import torch

from ranks.layers.embedding import Embedding, Head
from ranks.shards import NoCollective


class Follower(NoCollective):
    def gather_columns(self, tensor):
        return None


def test_ids_become_rows_of_the_table():
    table = torch.randn(7, 4)
    assert torch.equal(Embedding(table)(torch.tensor([3, 0, 3])), table[[3, 0, 3]])


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


def test_a_follower_has_no_logits():
    assert Head(torch.randn(301, 32))(torch.randn(3, 32), Follower()) is None
