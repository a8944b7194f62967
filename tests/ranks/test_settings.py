"""Rank settings refuse what cannot work, by name, value and limit."""

import pytest

from ranks.settings import RankSettings

GOOD = {"master": "127.0.0.1:5000", "rank": 1, "world_size": 2, "death_fd": 5, "token": "secret"}


def test_good_settings_are_taken():
    assert RankSettings(**GOOD).rank == 1


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("rank", 2, "--rank is 2, allowed is 0 to 1"),
        ("rank", -1, "--rank is -1"),
        ("world_size", 0, "--world-size is 0, allowed is 1 to 64"),
        ("master", "nowhere", "--master is 'nowhere'"),
        ("master", ":80", "--master is ':80'"),
        ("death_fd", -1, "--death-fd is -1"),
        ("token", "", "token is empty"),
    ],
)
def test_what_cannot_work_is_refused_by_name(name, value, says):
    with pytest.raises(ValueError, match=says):
        RankSettings(**{**GOOD, name: value})


def test_the_token_is_in_no_repr():
    assert "secret" not in repr(RankSettings(**GOOD))
