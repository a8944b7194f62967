import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.lanes.drafts import Drafter


def test_what_followed_before_is_guessed_again():
    assert Drafter((1, 2, 3, 4, 9, 1, 2, 3), max_depth=8).propose(8) == (4, 9, 1, 2)


def test_the_latest_of_several_matches_is_taken():
    assert Drafter((1, 2, 7, 1, 2, 8, 1, 2), max_depth=8).propose(1) == (8,)


def test_the_longest_match_wins():
    tokens = (5, 1, 2, 7, 6, 1, 2, 8, 5, 1, 2)
    assert Drafter(tokens, max_depth=8).propose(1) == (7,)


@pytest.mark.parametrize("tokens", [(), (1,), (1, 2), (1, 2, 3, 4)])
def test_without_a_match_nothing_is_guessed(tokens):
    assert Drafter(tokens, max_depth=8).propose(8) == ()


def test_a_guess_is_no_longer_than_asked_for():
    drafter = Drafter((1, 2, 3, 4, 9, 1, 2), max_depth=8)
    assert [len(drafter.propose(limit)) for limit in (0, 1, 3, 99)] == [0, 1, 3, 4]


def test_a_depth_of_zero_never_guesses():
    assert Drafter((1, 2, 3, 1, 2), max_depth=0).propose(8) == ()


def test_depth_doubles_when_all_was_right_up_to_the_most():
    drafter = Drafter((1, 2) * 30, max_depth=10)
    lengths = []
    for _ in range(4):
        lengths.append(len(drafter.propose(99)))
        drafter.judge(lengths[-1], lengths[-1])
    assert lengths[0] == 2 or lengths == sorted(lengths)
    assert repr(drafter) == "<Drafter depth 10, 60 tokens>"


def test_depth_halves_when_nothing_was_right():
    drafter = Drafter((1, 2, 3, 4, 5, 6, 1, 2), max_depth=8)
    drafter.judge(4, 0)
    assert drafter.propose(8) == (3, 4)


def test_after_misses_in_a_row_the_sequence_is_left_alone_for_a_while():
    drafter = Drafter((1, 2, 3, 1, 2), max_depth=8)
    drafter.judge(4, 0)
    drafter.judge(2, 0)
    assert drafter.propose(8) == ()
    for token in (3, 1, 2) * 8:
        drafter.append(token)
    assert drafter.propose(8) != ()


def test_a_partly_right_guess_ends_the_row_of_misses():
    drafter = Drafter((1, 2, 3, 1, 2), max_depth=8)
    for accepted in (0, 1, 0):
        drafter.judge(4, accepted)
    assert drafter.propose(8) != ()


@given(st.lists(st.integers(0, 2), max_size=40), st.integers(1, 8))
def test_a_guess_always_did_follow_the_last_tokens_before(tokens, limit):
    guess = Drafter(tuple(tokens), max_depth=8).propose(limit)
    assert len(guess) <= limit
    if guess:
        suffix = tokens[-2:]
        followed = [
            tuple(tokens[at + 2 : at + 2 + len(guess)])
            for at in range(len(tokens) - 2)
            if tokens[at : at + 2] == suffix
        ]
        assert guess in followed


@given(st.lists(st.integers(0, 3), max_size=30))
def test_learning_at_once_and_token_by_token_is_the_same(tokens):
    one = Drafter(tuple(tokens), max_depth=8)
    other = Drafter((), max_depth=8)
    for token in tokens:
        other.append(token)
    assert one.propose(8) == other.propose(8)
