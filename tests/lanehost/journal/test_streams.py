"""What a journal knows: streams grow without a gap, end once, and are forgotten in time."""

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    initialize,
    invariant,
    rule,
)

from lanehost.errors import StepFailed
from lanehost.job import Failed
from lanehost.journal.records import Drawn, Ended, Ready
from lanehost.journal.streams import Streams
from tests.support.journals import accepted, drawn, ended, finished


def streams_of(*notes, **bounds):
    streams = Streams(**bounds)
    for note in notes:
        streams.apply(note)
    return streams


def test_tokens_stand_without_a_gap_and_what_follows_one_is_given_up():
    streams = streams_of(accepted(), drawn(1, 0, 5, 6), drawn(1, 3, 8), drawn(1, 4, 9))
    assert streams.find("job-1").token_ids == [5, 6]
    assert streams.num_given_up == 2
    streams.apply(drawn(1, 2, 7))
    assert streams.find("job-1").token_ids == [5, 6, 7]


@pytest.mark.parametrize(
    "note", [drawn(9, 0, 5), ended(9, 0), accepted(1, job_id="else"), accepted(9, job_id="job-1")]
)
def test_what_does_not_hang_together_changes_nothing(note):
    streams = streams_of(accepted(), drawn(1, 0, 5), note)
    assert [one.token_ids for one in streams.open] == [[5]]
    assert (streams.num_given_up, streams.num_kept) == (1, 0)


def test_more_tokens_than_were_asked_for_are_given_up():
    streams = streams_of(accepted(1, max_tokens=2), drawn(1, 0, 5), drawn(1, 1, 6, 7))
    assert streams.find("job-1").token_ids == [5]


def test_an_end_whose_tokens_are_lost_leaves_the_stream_open():
    streams = streams_of(accepted(), drawn(1, 0, 5), ended(1, 2))
    assert (streams.num_open, streams.num_given_up) == (1, 1)
    streams.apply(ended(1, 1))
    assert (streams.num_open, streams.num_kept) == (0, 1)


def test_one_that_failed_is_forgotten_on_disk_and_known_in_memory():
    streams = streams_of(accepted(), Ended(number=1, at_s=0.0, finished=None))
    assert streams.find("job-1") is None
    streams = streams_of(accepted(), drawn(1, 0, 5))
    failed = Failed(error=StepFailed("for a test"))
    streams.end("job-1", failed, 0.0)
    assert streams.find("job-1").ended is failed
    assert list(streams.records()) == []


def test_a_token_clears_the_count_of_recoveries_but_not_what_a_file_begins_with():
    begun = (accepted(1, num_recoveries=2), drawn(1, 0, 5), Ready())
    assert streams_of(*begun).find("job-1").num_recoveries == 2
    assert streams_of(*begun, drawn(1, 1, 6)).find("job-1").num_recoveries == 0


def test_ended_replies_are_bounded_in_number_and_in_age():
    notes = [note for n in (1, 2, 3) for note in (accepted(n), ended(n, 0, at_s=float(n)))]
    streams = streams_of(*notes, max_kept=2, kept_s=10.0)
    assert [one.accepted.number for one in streams.kept] == [2, 3]
    streams.forget_old(12.5)
    assert [one.accepted.number for one in streams.kept] == [3]
    assert streams.find("job-2") is None
    streams.forget_kept()
    assert streams.num_kept == 0


class StreamsMachine(RuleBasedStateMachine):
    """Whatever happens, what is known can be written down and read to the same."""

    numbers = Bundle("numbers")

    @initialize()
    def begin(self):
        self.streams = Streams(max_kept=3)
        self.tokens = {}
        self.kept = []
        self.last = 0

    @rule(target=numbers, count=st.integers(0, 3))
    def accept(self, count):
        self.last += 1
        self.streams.apply(accepted(self.last, num_recoveries=count))
        self.tokens[self.last] = []
        return self.last

    @rule(number=numbers, ids=st.lists(st.integers(0, 250), min_size=1, max_size=4))
    def draw(self, number, ids):
        if number in self.tokens:
            self.streams.apply(drawn(number, len(self.tokens[number]), *ids))
            if len(self.tokens[number]) + len(ids) <= 64:
                self.tokens[number] += ids

    @rule(number=numbers, others=st.lists(numbers, max_size=2))
    def draw_several(self, number, others):
        alive = [one for one in {number, *others} if one in self.tokens]
        alive = [one for one in alive if len(self.tokens[one]) < 64]
        self.streams.apply(Drawn(runs=tuple((n, len(self.tokens[n]), (n % 251,)) for n in alive)))
        for one in alive:
            self.tokens[one].append(one % 251)

    @rule(number=consumes(numbers))
    def end(self, number):
        if number in self.tokens:
            ids = self.tokens.pop(number)
            self.streams.apply(ended(number, len(ids)))
            self.kept = [*self.kept, (number, ids)][-3:]

    @rule(number=consumes(numbers))
    def fail(self, number):
        if self.tokens.pop(number, None) is not None:
            self.streams.apply(Ended(number=number, at_s=0.0, finished=None))

    @invariant()
    def is_what_was_told(self):
        open_now = {one.accepted.number: one.token_ids for one in self.streams.open}
        assert open_now == self.tokens
        assert [(one.accepted.number, one.token_ids) for one in self.streams.kept] == self.kept

    @invariant()
    def can_be_written_and_read_to_the_same(self):
        again = streams_of(*self.streams.records(), max_kept=3)
        assert list(again.records()) == list(self.streams.records())
        assert again.num_given_up == 0


TestStreamsMachine = StreamsMachine.TestCase
TestStreamsMachine.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


def test_an_end_is_found_with_its_event():
    streams = streams_of(accepted(), drawn(1, 0, 5))
    event = finished(1)
    streams.end("job-1", event, 3.0)
    assert (streams.find("job-1").ended, streams.find("job-1").ended_at_s) == (event, 3.0)
