"""Facts of the group."""

from tests.support.rank_facts import facts


def test_the_pool_in_tokens_is_blocks_times_their_size():
    assert facts(num_blocks=3, block_size=16).kv_tokens == 48
