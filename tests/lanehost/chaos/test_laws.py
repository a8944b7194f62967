from dataclasses import replace

import pytest

from lanehost.chaos.laws import broken_laws, lags_s, recoveries_s
from lanehost.chaos.seen import Done
from lanehost.chaos.streams import Ending
from lanehost.chaos.table import Fault
from tests.support.chaos_seen import holding, said, seen_of


def test_a_run_in_which_everything_held_breaks_nothing():
    assert broken_laws(seen_of()) == []


def test_a_recovery_is_from_the_fault_to_the_first_token_behind_the_next_group():
    assert recoveries_s(seen_of()) == [5.5]
    assert [lag for _, lag in lags_s(seen_of())] == [0.5]


def test_faults_that_come_before_the_group_is_formed_share_its_recovery():
    seen = seen_of()
    seen.done.append(Done(at_s=12.0, fault=Fault.KILL, rank=1, was_serving=False))
    assert recoveries_s(seen) == [5.5]


def unequal(seen):
    seen.endings[0] = replace(seen.endings[0], is_equal=False)


def failed(seen):
    seen.endings[0] = replace(seen.endings[0], is_equal=None, error="ServerFault")


def corrupt(seen):
    seen.endings[0] = replace(seen.endings[0], is_equal=None, error="ReplyCorrupt")


def unended(seen):
    seen.num_sent += 1


def late(seen):
    seen.health.changes[1] = (11.5, False)


def survivor_lost(seen):
    seen.said.append(said(13.0, "rank_lost", rank=1, cause="stuck"))
    seen.said.append(said(13.0, "rank_spawned", rank=1, pid=9))


def more_files(seen):
    seen.after = holding(num_files=40)


def more_threads(seen):
    seen.after = holding(num_threads=40)


def more_memory(seen):
    seen.after = holding(rss_bytes=1 << 30)


def more_names(seen):
    seen.after = holding(names=frozenset({"x"}))


def bad_exit(seen):
    seen.exit_code = 3


def processes_left(seen):
    seen.pids_left = [7]


def never_again(seen):
    seen.never_served_again = True


def unequal_after(seen):
    seen.num_asked_after, seen.num_equal_after = 2, 1


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        (unequal, "1 replies are not the undisturbed ones"),
        (failed, "1 requests ended with ServerFault, at most 0 were to"),
        (corrupt, "1 requests ended with ReplyCorrupt, at most 0 were to"),
        (unended, "3 requests were sent, 2 ended"),
        (late, "1 of 1 times health did not dip within 1 s of kill; worst 1.500 s"),
        (survivor_lost, "rank 1 was replaced at 12.0 s without a fault of its own: ['stuck']"),
        (more_files, "master holds 40 files, 10 before"),
        (more_threads, "master holds 40 threads, 10 before"),
        (more_memory, "master holds 1024 MiB, 100 before"),
        (more_names, "new names in shared memory: x"),
        (bad_exit, "the server exited with 3, not with 0"),
        (processes_left, "1 processes are left"),
        (never_again, "the server did not serve again after the last fault"),
        (unequal_after, "after all, 1 of 2 requests gave the undisturbed reply"),
    ],
)
def test_each_law_that_is_broken_is_said_alone_and_with_its_numbers(breaks, words):
    seen = seen_of()
    breaks(seen)
    assert broken_laws(seen) == [words]


def test_a_corrupt_reply_is_lawful_where_logits_were_made_corrupt():
    seen = seen_of()
    corrupt(seen)
    seen.done.append(Done(at_s=20.0, fault=Fault.NAN, rank=0, was_serving=True))
    assert broken_laws(seen) == []


def test_endings_of_requests_that_are_equal_count_whatever_their_number():
    seen = seen_of()
    seen.endings.append(Ending(number=1, sent_s=1, ended_s=2, num_tokens=3, is_equal=True))
    seen.num_sent += 1
    assert broken_laws(seen) == []
