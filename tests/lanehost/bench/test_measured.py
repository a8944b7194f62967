from dataclasses import replace

from lanehost.bench.measured import DEFINITIONS, Goals, decode_rate, is_good, measure
from tests.support.bench_client import reply

GOALS = Goals(ttft_s=1.0, itl_s=0.5)


def test_a_good_reply_has_its_first_token_in_time_and_no_wait_above_the_goal():
    assert is_good(reply(0.0, [1.0, 1.5, 2.0]), GOALS)
    assert not is_good(reply(0.0, [1.01, 1.5]), GOALS)
    assert not is_good(reply(0.0, [0.5, 1.0, 1.51]), GOALS)


def test_a_reply_that_failed_or_said_nothing_is_not_good():
    assert not is_good(reply(0.0, [0.5], failure="ServerBusy"), GOALS)
    assert not is_good(reply(0.0, ended_s=0.1), GOALS)


def test_goodput_counts_failed_requests_among_all():
    replies = [
        reply(0.0, [0.5, 1.0]),
        reply(0.0, [0.5, 2.0]),
        reply(0.0, [0.5, 1.0], failure="ServerBusy"),
        reply(0.0, [1.0], ended_s=4.0),
    ]
    found = measure(replies, GOALS, num_streams=None)
    assert found.good_share == 0.5
    assert found.good_per_s == 0.5
    assert found.failures == {"ServerBusy": 1}


def test_what_failed_has_no_part_in_the_times_and_the_tokens():
    replies = [reply(0.0, [0.5, 1.0]), reply(0.0, [9.0, 10.0], failure="ConnectionLost")]
    found = measure(replies, GOALS, num_streams=None)
    assert found.ttft is not None
    assert found.ttft.most == 0.5
    assert found.num_tokens == 2
    assert found.tokens_per_s == 0.2


def test_the_span_runs_from_the_first_due_to_the_last_end():
    replies = [reply(1.0, [2.0]), reply(0.0, [3.0], ended_s=5.0)]
    assert measure(replies, GOALS, num_streams=None).span_s == 5.0


def test_each_wait_counts_once_in_itl_and_each_reply_once_in_tpot():
    replies = [reply(0.0, [1.0, 2.0, 3.0]), reply(0.0, [1.0, 5.0])]
    found = measure(replies, GOALS, num_streams=None)
    assert found.itl is not None
    assert found.tpot is not None
    assert (found.itl.count, found.itl.most) == (3, 4.0)
    assert (found.tpot.count, found.tpot.most) == (2, 4.0)


def test_what_was_not_measured_is_none():
    found = measure([reply(0.0, ended_s=1.0, failure="ServerBusy")], GOALS, num_streams=1)
    assert (found.ttft, found.itl, found.decode_tokens_per_s) == (None, None, None)


def test_cached_tokens_are_summed():
    replies = [reply(0.0, [1.0], prompt_tokens=10, cached_tokens=4) for _ in range(2)]
    found = measure(replies, GOALS, num_streams=None)
    assert (found.cached_tokens, found.prompt_tokens) == (8, 20)


def test_the_longest_delay_of_the_client_itself_is_told():
    late = replace(reply(0.0, [2.0]), sent_s=0.25)
    found = measure([reply(0.0, [1.0]), late], GOALS, num_streams=None)
    assert found.sent_late_s == 0.25


def test_decode_tokens_count_only_while_every_stream_is_past_its_first():
    # Both run from 2 to 4: tokens at 3 and 4 of the one, 3.5 and 4.5 (too late) of the other.
    first = reply(0.0, [1.0, 2.0, 3.0, 4.0])
    second = reply(0.0, [2.0, (3.5, 2), 4.5])
    assert decode_rate([first, second], 2) == (2 + 2) / 2.0


def test_streams_that_never_run_together_have_no_decode_rate():
    assert decode_rate([reply(0.0, [1.0, 2.0]), reply(0.0, [3.0, 4.0])], 2) is None


def test_the_decode_rate_of_one_stream_is_its_tokens_after_the_first_over_their_time():
    assert decode_rate([reply(0.0, [5.0, 6.0, 7.0])], 1) == 1.0


def test_two_replies_of_one_stream_leave_out_the_time_between_them():
    replies = [reply(0.0, [1.0, 2.0]), reply(2.0, [9.0, 10.0])]
    assert decode_rate(replies, 1) == 1.0


def test_every_definition_says_something():
    assert all(len(meaning) > 20 for meaning in DEFINITIONS.values())
