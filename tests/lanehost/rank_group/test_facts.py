"""Facts of the group."""

import dataclasses

from pydantic import TypeAdapter

from lanehost.rank_group.facts import GroupFacts
from tests.support.rank_facts import facts


def test_the_pool_in_tokens_is_blocks_times_their_size():
    assert facts(num_blocks=3, block_size=16).kv_tokens == 48


def test_facts_from_before_the_bytes_of_a_block_were_told_are_read_as_not_known():
    """As the header of an old trail has them."""
    old = dataclasses.asdict(facts(kv_bytes_per_block=7))
    del old["kv_bytes_per_block"]
    assert TypeAdapter(GroupFacts).validate_python(old) == facts(kv_bytes_per_block=0)
