from lanehost.bench.load import LongRound
from lanehost.bench.long_prompt import disturbed
from tests.support.bench_client import reply

# Sent at 10, first token at 20.
LONG = reply(10.0, [20.0])


def round_of(*running, long=LONG):
    return LongRound(running=running, long=long)


def test_waits_before_the_long_prompt_are_told_from_those_that_it_falls_into():
    running = reply(0.0, [7.0, 8.0, 9.5, 12.0, 19.0, 23.0, 24.0])
    found = disturbed([round_of(running)])
    assert found.before is not None
    assert found.during is not None
    assert (found.before.count, found.before.most) == (2, 1.5)
    # From 9.5 to 12 and from 19 to 23 it is in part.
    assert (found.during.count, found.during.most) == (3, 7.0)
    assert found.during.p50 == 4.0


def test_waits_before_all_streams_have_their_first_token_do_not_count():
    early = reply(0.0, [1.0, 4.0, 6.0, 21.0])
    late = reply(0.0, [5.0, 6.0, 21.0])
    found = disturbed([round_of(early, late)])
    assert found.before is not None
    assert found.before.count == 1


def test_a_stream_that_ended_before_the_long_prompt_spoke_is_told():
    assert disturbed([round_of(reply(0.0, [1.0, 19.0]))]).num_ended_early == 1
    assert disturbed([round_of(reply(0.0, [1.0, 20.5]))]).num_ended_early == 0


def test_a_round_whose_long_prompt_failed_is_left_out():
    failed = round_of(reply(0.0, [1.0, 2.0, 3.0]), long=reply(10.0, failure="TooLong"))
    found = disturbed([failed, round_of(reply(0.0, [1.0, 2.0, 21.0]))])
    assert found.num_rounds == 1
    assert found.long_ttft is not None
    assert (found.long_ttft.count, found.long_ttft.most) == (1, 10.0)
    assert disturbed([failed]).before is None


def test_a_round_in_which_nobody_spoke_has_no_waits():
    found = disturbed([round_of(reply(0.0, failure="ServerBusy"))])
    assert (found.before, found.during, found.num_ended_early) == (None, None, 0)
