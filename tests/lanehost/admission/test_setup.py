"""What a job holds when it takes a lane: seen through `take_job`, which calls `set_up`."""

from lanehost.admission.setup import AlreadyKept, Wait
from lanehost.admission.take_job import take_job
from lanehost.cache.prompt_cache import EntryKind
from lanehost.lanes.lane import Lane, LaneEvent
from lanehost.lanes.sequence import Sequence
from tests.support.images import image_job
from tests.support.jobs import make_sequence
from tests.support.rooms import join, keep, make_rooms

PROMPT = tuple(range(10))


def test_a_new_job_gets_the_blocks_of_its_prompt_and_of_its_first_token():
    line, *_ = rooms = make_rooms()
    join(line, make_sequence((1,) * 4, max_tokens=9))
    assert len(take_job(*rooms).block_ids) == 2


def test_a_job_never_gets_more_blocks_than_it_can_ever_need():
    line, *_ = rooms = make_rooms()
    join(line, make_sequence((1,) * 3, max_tokens=1))
    assert len(take_job(*rooms).block_ids) == 1


def test_a_block_is_left_free_for_each_lane_that_runs():
    line, _, blocks, _ = rooms = make_rooms(num_lanes=3, num_blocks=4)
    for _ in range(3):
        join(line, make_sequence((1,), max_tokens=9))
    assert isinstance(take_job(*rooms), Lane)
    assert isinstance(take_job(*rooms), Lane)
    assert take_job(*rooms) is Wait.BLOCKS
    assert blocks.num_free == 2


def test_a_job_that_had_to_park_gets_all_that_it_can_ever_need_or_waits_on():
    line, _, blocks, _ = rooms = make_rooms(num_lanes=3, num_blocks=6)
    parked = make_sequence((1,) * 4, max_tokens=8)
    parked.generated_ids += [5, 6]
    parked.was_parked = True
    line.rejoin(parked)
    held = blocks.take(4)
    assert take_job(*rooms) is Wait.BLOCKS
    blocks.give_back(held)
    assert len(take_job(*rooms).block_ids) == 3


def test_nobody_waits_for_what_ends_inside_an_image():
    """No hit may end there: there is nothing to wait for."""
    line, *_ = rooms = make_rooms(num_blocks=16)
    for tail in ((5,), (6,)):
        join(line, Sequence(image_job((7, 8), 1, tail, num_tokens=9, max_tokens=1)))
    assert isinstance(take_job(*rooms), Lane)
    assert isinstance(take_job(*rooms), Lane)


def test_two_images_under_the_same_text_share_no_prefix():
    line, *_ = rooms = make_rooms(num_blocks=16)
    for number in (1, 2):
        join(line, Sequence(image_job(number, (5,) * 4, max_tokens=1)))
    assert isinstance(take_job(*rooms), Lane)
    assert isinstance(take_job(*rooms), Lane)


def test_kept_blocks_are_shared_and_not_computed_again():
    line, _, blocks, _ = rooms = make_rooms(num_blocks=8)
    kept = keep(rooms, PROMPT)
    join(line, make_sequence(PROMPT, max_tokens=2))
    lane = take_job(*rooms)
    assert lane.block_ids[:2] == kept[:2]
    assert (lane.num_cached_tokens, lane.num_planned_tokens, lane.num_computed_tokens) == (8, 8, 8)
    assert [blocks.num_holders(block) for block in lane.block_ids] == [2, 2, 1]


def test_what_another_scope_kept_is_not_seen():
    line, *_ = rooms = make_rooms(num_blocks=8)
    keep(rooms, PROMPT, scope="theirs")
    join(line, make_sequence(PROMPT, max_tokens=2))
    assert take_job(*rooms).num_cached_tokens == 0


def test_kept_prefixes_make_room_for_a_job_that_needs_it():
    line, _, _, cache = rooms = make_rooms(num_blocks=4)
    keep(rooms, (7,) * 12)
    join(line, make_sequence((*PROMPT, 10, 11), max_tokens=6))
    assert len(take_job(*rooms).block_ids) == 4
    assert cache.num_entries == 0


def test_a_long_entry_never_locks_out_the_job_that_shares_its_beginning():
    """Sharing pins only what is shared: the rest of the entry may go."""
    line, _, blocks, _ = rooms = make_rooms(num_blocks=4)
    keep(rooms, PROMPT[:4] + (7,) * 12)
    join(line, make_sequence((*PROMPT, 50, 51, 52, 53, 54), max_tokens=1))
    lane = take_job(*rooms)
    assert lane.num_cached_tokens == 4
    assert (len(lane.block_ids), blocks.num_free) == (4, 0)


def test_a_head_that_must_wait_on_holds_nothing():
    line, _, blocks, cache = rooms = make_rooms(num_lanes=2, num_blocks=6)
    join(line, make_sequence((9,) * 9, max_tokens=3))
    take_job(*rooms)
    keep(rooms, PROMPT[:4])
    join(line, make_sequence(PROMPT, max_tokens=6))
    assert take_job(*rooms) is Wait.BLOCKS
    assert (blocks.num_free, cache.num_kept_blocks) == (2, 1)


def test_a_prompt_waits_for_the_cut_that_another_lane_is_computing():
    line, lanes, _, cache = rooms = make_rooms(num_blocks=16)
    join(line, make_sequence(PROMPT, max_tokens=2))
    join(line, make_sequence((*PROMPT[:9], 77, 78), max_tokens=2))
    filling = take_job(*rooms)
    assert take_job(*rooms) is Wait.PREFIX
    filling.num_computed_tokens = 8
    second = take_job(*rooms)
    assert second.num_cached_tokens == 8
    assert second.block_ids[:2] == filling.block_ids[:2]
    assert lanes.num_free == 0
    assert [entry.kind for entry in cache._entries] == [EntryKind.MARK]


def test_nobody_waits_for_a_lane_that_was_given_up():
    line, *_ = rooms = make_rooms(num_blocks=16)
    for tail in (1, 2):
        join(line, make_sequence((*PROMPT, tail), max_tokens=2))
    filling = take_job(*rooms)
    assert take_job(*rooms) is Wait.PREFIX
    filling.fire(LaneEvent.FINISHED)
    assert take_job(*rooms).num_cached_tokens == 0


def test_a_prompt_of_another_scope_waits_for_nobody():
    line, *_ = rooms = make_rooms(num_blocks=16)
    join(line, make_sequence(PROMPT, max_tokens=2))
    join(line, make_sequence(PROMPT, max_tokens=2, scope="other"))
    take_job(*rooms)
    assert take_job(*rooms).num_cached_tokens == 0


def test_without_the_cache_nobody_waits_and_nothing_is_shared():
    line, _, blocks, cache = rooms = make_rooms(num_blocks=16, is_on=False)
    for _ in range(2):
        join(line, make_sequence(PROMPT, max_tokens=2))
        assert take_job(*rooms).num_cached_tokens == 0
    assert (blocks.num_free, cache.num_entries) == (10, 0)


def test_a_warm_job_computes_what_is_not_kept_yet():
    line, *_ = rooms = make_rooms(num_blocks=8)
    keep(rooms, PROMPT[:4])
    join(line, make_sequence(PROMPT, max_tokens=0))
    lane = take_job(*rooms)
    assert (lane.num_cached_tokens, len(lane.block_ids), lane.is_warm) == (4, 3, True)


def test_a_warm_job_too_short_for_a_block_has_nothing_to_keep():
    line, *_ = rooms = make_rooms()
    warm = join(line, make_sequence((1, 2), max_tokens=0))
    assert take_job(*rooms) == AlreadyKept(warm, 0)


def test_a_warm_job_that_waited_for_a_prefix_has_nothing_left_to_do():
    line, lanes, *_ = rooms = make_rooms(num_blocks=16)
    join(line, make_sequence(PROMPT, max_tokens=2))
    warm = join(line, make_sequence(PROMPT[:9], max_tokens=0))
    filling = take_job(*rooms)
    assert take_job(*rooms) is Wait.PREFIX
    filling.num_computed_tokens = filling.num_planned_tokens = 8
    assert take_job(*rooms) == AlreadyKept(warm, 8)
    assert lanes.num_free == 1
