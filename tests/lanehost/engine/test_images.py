"""What becomes of images, by what lanes want; the ranks are a list of what they were asked."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from lanehost.engine.images import MAX_ORDERED, EngineImages
from lanehost.lanes.lane import LaneEvent
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable
from lanehost.rank_group.image_interface import ImageOutcome, ImageReason
from ranks.images.encoder_thread import MAX_WAITING
from tests.support.images import image_job, prepared
from tests.support.jobs import make_job


class Asked:
    """Implements `RankImages`: notes what it is asked."""

    def __init__(self):
        self.works = []

    def tell(self, on_outcome):
        pass

    def encode(self, image_id, image):
        self.works.append(("encode", image_id))

    def cancel(self, image_id):
        self.works.append(("cancel", image_id))

    def drop(self, image_id):
        self.works.append(("drop", image_id))


class Rig:
    def __init__(self, *, room=8):
        self.now_s = 0.0
        self.lanes = LaneTable(4, block_size=4)
        self.asked = Asked()
        self.images = EngineImages(clock=lambda: self.now_s)
        self.images.begin(self.asked, room=room)

    def seat(self, *parts, **values):
        return self.lanes.seat(Sequence(image_job(*parts, **values)), tuple(range(20)))

    def see(self):
        """Look at the lanes; returns what was asked for."""
        before = len(self.asked.works)
        self.images.see(self.lanes)
        return self.asked.works[before:]

    def done(self, image_id, reason=None):
        return self.images.take(
            ImageOutcome(image_id=image_id, reason=reason, num_tokens=4, seconds=0.5)
        )

    def end(self, lane):
        lane.fire(LaneEvent.FINISHED)
        self.lanes.release(lane)

    def compute(self, lane, num_tokens):
        lane.num_planned_tokens = lane.num_computed_tokens = num_tokens


def test_images_are_ordered_as_lanes_sat_down_and_as_they_stand():
    rig = Rig(room=100)
    rig.seat((7,), 1, 2)
    rig.seat(3)
    assert rig.see() == [("encode", 1), ("encode", 2), ("encode", 3)]
    assert rig.see() == []


def test_an_image_is_ready_once_its_rows_are_there():
    rig = Rig()
    rig.seat(1)
    rig.see()
    assert rig.images.ready == {}
    rig.done(1)
    assert rig.images.ready == {prepared(1).digest: 1}


def test_equal_images_are_encoded_once():
    rig = Rig()
    first = rig.seat(1, (2,), 1)
    second = rig.seat(1)
    rig.images.note_seated(second)
    assert rig.see() == [("encode", 1)]
    rig.done(1)
    rig.images.note_seated(first)
    assert rig.images.counters.cached == 2
    assert rig.images.counters.encoded == 1


def test_no_more_is_ordered_than_there_is_room_for():
    rig = Rig(room=8)
    lane = rig.seat(1, 2, 3)
    assert rig.see() == [("encode", 1), ("encode", 2)]
    rig.done(1)
    rig.compute(lane, 4)
    assert rig.see() == [("drop", 1), ("encode", 3)]


def test_no_more_is_ordered_at_once_than_ranks_have_waiting():
    assert MAX_ORDERED < MAX_WAITING
    rig = Rig(room=1000)
    rig.seat(*range(MAX_ORDERED + 2))
    assert rig.see() == [("encode", number + 1) for number in range(MAX_ORDERED)]
    rig.done(1)
    assert rig.see() == [("encode", MAX_ORDERED + 1)]
    assert rig.see() == []


def test_nobody_is_served_before_who_waits_for_room():
    rig = Rig(room=8)
    rig.seat(1, 2, 3)
    rig.seat(4)
    assert rig.see() == [("encode", 1), ("encode", 2)]


def test_what_nobody_wants_is_kept_while_there_is_room_and_the_last_used_longest():
    rig = Rig(room=8)
    for number in (1, 2):
        lane = rig.seat(number)
        rig.see()
        rig.done(number)
        rig.end(lane)
    lane = rig.seat(1)
    assert rig.see() == []
    rig.end(lane)
    rig.seat(3)
    assert rig.see() == [("drop", 2), ("encode", 3)]


def test_what_is_no_longer_wanted_is_cancelled_once_and_takes_room_until_its_answer():
    rig = Rig(room=4)
    lane = rig.seat(1)
    rig.see()
    rig.end(lane)
    rig.seat(2)
    assert rig.see() == [("cancel", 1)]
    assert rig.see() == []
    rig.done(1, ImageReason.CANCELLED)
    assert rig.images.counters.cancelled == 1
    assert rig.see() == [("encode", 2)]


def test_what_was_cancelled_too_late_is_kept_like_any_other():
    rig = Rig()
    lane = rig.seat(1)
    rig.see()
    rig.end(lane)
    rig.see()
    rig.done(1)
    rig.seat(1)
    assert rig.see() == []
    assert prepared(1).digest in rig.images.ready


def test_what_is_wanted_again_after_its_cancel_is_ordered_anew():
    rig = Rig()
    lane = rig.seat(1)
    rig.see()
    rig.end(lane)
    rig.see()
    rig.seat(1)
    assert rig.see() == []
    assert rig.done(1, ImageReason.CANCELLED).failed_job_ids == ()
    assert rig.see() == [("encode", 2)]


def test_what_could_not_be_encoded_fails_those_who_want_it_and_nobody_else():
    rig = Rig()
    first, second, third = rig.seat(1), rig.seat(1), rig.seat(2)
    rig.see()
    failed = rig.done(1, ImageReason.NOT_FINITE).failed_job_ids
    assert set(failed) == {first.job.job_id, second.job.job_id}
    assert third.job.job_id not in failed
    assert rig.images.counters.failed == 1


def test_it_is_known_how_long_who_waited():
    rig = Rig()
    lane = rig.seat(1, 2)
    rig.see()
    rig.now_s = 2.0
    rig.done(1)
    rig.see()
    rig.now_s = 3.0
    assert rig.done(2).waited_s == {lane.job.job_id: 3.0}


def test_who_runs_out_holds_only_what_a_plan_may_read():
    rig = Rig(room=100)
    lane = rig.seat(1, 2)
    rig.see()
    rig.done(1)
    lane.num_planned_tokens, lane.is_in_pass = 4, True
    lane.fire(LaneEvent.FINISHED)
    assert rig.see() == [("cancel", 2)]
    assert rig.images.num_wanted == 1


def test_what_a_plan_in_flight_may_read_makes_no_room_for_others():
    rig = Rig(room=4)
    lane = rig.seat(1)
    rig.see()
    rig.done(1)
    lane.num_planned_tokens = 4
    rig.seat(2)
    assert rig.see() == []
    rig.compute(lane, 4)
    assert rig.see() == [("drop", 1), ("encode", 2)]


def test_what_is_computed_or_cached_is_not_wanted():
    rig = Rig()
    rig.compute(rig.seat(1, (2,)), 4)
    assert rig.see() == []
    assert rig.images.num_wanted == 0


def test_lanes_of_text_want_nothing():
    rig = Rig()
    rig.lanes.seat(Sequence(make_job((1, 2))), (0,))
    assert rig.see() == []


def test_what_the_oldest_needs_next_takes_the_place_of_what_is_needed_later():
    rig = Rig(room=4)
    lane = rig.seat(2)
    rig.see()
    rig.done(1)
    rig.end(lane)
    rig.seat(1, 2)
    assert rig.see() == [("drop", 1), ("encode", 2)]


def test_what_one_behind_needs_next_takes_nobodys_place():
    rig = Rig(room=8)
    rig.seat(1, 2)
    rig.seat(3)
    rig.see()
    rig.done(1)
    rig.done(2)
    assert rig.see() == []


def test_with_the_epoch_all_is_forgotten_and_late_answers_change_nothing():
    rig = Rig()
    rig.seat(1)
    rig.see()
    rig.images.end()
    assert rig.see() == []
    rig.done(1)
    assert rig.images.ready == {}
    rig.images.begin(rig.asked, room=8)
    assert rig.see() == [("encode", 2)]


class ImagesMachine(RuleBasedStateMachine):
    """Lanes come, go on, leave and end; ranks answer as they like."""

    def __init__(self):
        super().__init__()
        self.rig = Rig(room=8)
        self.waiting = {}
        self.kept = set()
        self.num_seen = 0

    def look(self):
        for kind, image_id in self.rig.see():
            if kind == "encode":
                self.waiting[image_id] = False
            elif kind == "cancel":
                assert image_id in self.waiting, "cancelled twice, or what was answered"
                self.waiting[image_id] = True
            else:
                self.kept.remove(image_id)

    @rule(numbers=st.lists(st.integers(1, 5), min_size=1, max_size=4))
    def seat(self, numbers):
        if self.rig.lanes.num_free:
            self.rig.seat(*numbers)
        self.look()

    @rule(which=st.integers(0, 3), is_in_pass=st.booleans())
    def leave(self, which, is_in_pass):
        lane = self.rig.lanes[which]
        if lane.is_running:
            lane.fire(LaneEvent.FINISHED)
            lane.is_in_pass = is_in_pass and lane.num_planned_tokens > lane.num_computed_tokens
        self.look()

    @rule(which=st.integers(0, 3))
    def go_on(self, which):
        """Plan the next image, or have what was planned computed; who has left then ends."""
        lane = self.rig.lanes[which]
        if lane.sequence is None:
            return
        if lane.num_planned_tokens > lane.num_computed_tokens:
            self.rig.compute(lane, lane.num_planned_tokens)
        elif lane.wants_staging and lane.images_left[0].image.digest in self.rig.images.ready:
            lane.num_planned_tokens += 4
        if not lane.is_running and lane.num_planned_tokens == lane.num_computed_tokens:
            lane.is_in_pass = False
            self.rig.lanes.release(lane)
        self.look()

    @rule(data=st.data())
    def answer(self, data):
        if not self.waiting:
            return
        image_id = data.draw(st.sampled_from(sorted(self.waiting)))
        reasons = [None, ImageReason.FAILED, *[ImageReason.CANCELLED] * self.waiting[image_id]]
        reason = data.draw(st.sampled_from(reasons))
        del self.waiting[image_id]
        for job_id in self.rig.done(image_id, reason).failed_job_ids:
            lane = self.rig.lanes.find(job_id)
            if lane.is_running:
                lane.fire(LaneEvent.FINISHED)
        if reason is None:
            self.kept.add(image_id)
        self.look()

    @invariant()
    def rows_never_pass_the_room(self):
        assert (len(self.waiting) + len(self.kept)) * 4 <= 8

    @invariant()
    def what_a_plan_may_read_is_ready(self):
        for lane in self.rig.lanes:
            for image in lane.job.images:
                if lane.num_computed_tokens <= image.start < lane.num_planned_tokens:
                    assert self.rig.images.ready[image.image.digest] in self.kept

    @invariant()
    def nothing_is_encoded_for_who_has_ended(self):
        wanted = {image.image.digest for lane in self.rig.lanes for image in lane.job.images}
        for known in self.rig.images._known.values():
            if not known.is_ready and not self.waiting[known.image_id]:
                assert known.digest in wanted

    @invariant()
    def the_oldest_that_waits_has_its_next_image_once_nothing_is_under_way(self):
        lanes = sorted(self.rig.lanes, key=lambda lane: lane.seat_number)
        waiting = [lane for lane in lanes if lane.wants_staging]
        is_one_out = any(lane.num_planned_tokens > lane.num_computed_tokens for lane in lanes)
        if waiting and not self.waiting and not is_one_out:
            assert waiting[0].images_left[0].image.digest in self.rig.images.ready


TestImagesMachine = ImagesMachine.TestCase
TestImagesMachine.settings = settings(max_examples=60, deadline=None)
