"""Images in the prompt cache: told apart by what they are, and never cut."""

from hypothesis import given
from hypothesis import strategies as st

from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import PromptCache, chain_keys
from lanehost.image_ids import ends_inside
from lanehost.job import IMAGE_ID_BASE
from tests.support.images import image_job

SIZE = 4


def cache_with(*kept):
    blocks = BlockPool(num_blocks=64, block_size=SIZE)
    cache = PromptCache(blocks)
    for ids in kept:
        taken = blocks.take(blocks.blocks_for(len(ids)))
        cache.keep("s", ids, taken)
        blocks.give_back(taken)
    return cache


def num_hit(cache, ids):
    borrow = cache.borrow("s", ids)
    if borrow is None:
        return 0
    cache.report(borrow)
    return borrow.num_tokens


def test_two_images_of_one_size_with_the_same_text_have_different_keys():
    cat, dog = (image_job((7, 8), number, (9, 9)) for number in (1, 2))
    assert cat.prompt_ids == dog.prompt_ids
    keys = [chain_keys("s", job.identity_ids, SIZE) for job in (cat, dog)]
    assert set(keys[0]).isdisjoint(keys[1])


def test_an_image_is_not_found_in_the_place_of_another():
    cat, dog = (image_job((7, 8), number, (9, 9, 9, 9)).identity_ids for number in (1, 2))
    cache = cache_with(cat)
    assert num_hit(cache, dog) == 0
    assert num_hit(cache, (*cat, 5)) == 8


def test_token_ids_have_the_keys_that_they_always_had():
    """What is on disk of them stays good, and tiers agree."""
    assert chain_keys("s", (1, 2, 3, 4), SIZE)[0].hex() == "6e6681ccf0d68c8db9babc385bef5333"


def test_a_hit_ends_before_the_image_that_it_would_end_in():
    ids = image_job((1, 2), 1, (3,), num_tokens=9).identity_ids
    cache = cache_with(ids)
    assert num_hit(cache, ids) == 0
    ids = image_job((1, 2, 3, 4, 5), 1, (3,) * 6, num_tokens=9).identity_ids
    cache = cache_with(ids)
    assert num_hit(cache, ids) == 16
    assert num_hit(cache, ids[:15]) == 4


@given(
    st.lists(st.one_of(st.integers(1, 3), st.tuples(st.integers(0, 1))), min_size=1, max_size=9),
    st.lists(st.one_of(st.integers(1, 3), st.tuples(st.integers(0, 1))), min_size=1, max_size=9),
)
def test_whatever_is_kept_a_hit_is_a_prefix_of_both_and_ends_inside_no_image(kept, asked):
    held, ids = image_job(*kept).identity_ids, image_job(*asked).identity_ids
    length = num_hit(cache_with(held), ids)
    assert held[:length] == ids[:length]
    assert not ends_inside(ids, length)
    longer = [
        more
        for more in range(length + SIZE, min(len(held), len(ids) - 1) + 1, SIZE)
        if held[:more] == ids[:more] and not ends_inside(ids, more)
    ]
    assert longer == []


def test_an_id_of_an_image_is_no_number_that_tokens_could_be():
    assert all(one >= IMAGE_ID_BASE for one in image_job(1).identity_ids)
