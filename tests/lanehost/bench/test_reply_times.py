from dataclasses import replace

from tests.support.bench_client import reply


def test_the_first_token_counts_from_when_the_request_was_due_not_from_when_it_was_sent():
    late = replace(reply(10.0, [12.5]), sent_s=12.0)
    assert late.ttft_s == 2.5


def test_latency_ends_with_the_reply_and_not_with_its_last_token():
    assert reply(10.0, [11.0, 12.0], ended_s=12.5).latency_s == 2.5


def test_a_wait_lies_between_two_events_and_several_tokens_end_one():
    times = reply(0.0, [1.0, (1.5, 3), 3.5])
    assert [gap.length_s for gap in times.gaps] == [0.5, 2.0]


def test_time_per_output_token_spreads_what_follows_the_first_event_over_its_tokens():
    assert reply(0.0, [(1.0, 2), (2.0, 3), 3.0]).tpot_s == 0.5


def test_a_reply_of_one_event_has_no_time_per_output_token_and_no_waits():
    times = reply(0.0, [(1.0, 4)])
    assert times.tpot_s is None
    assert times.gaps == []


def test_a_reply_without_tokens_has_no_first_one():
    assert reply(0.0, ended_s=1.0).ttft_s is None
