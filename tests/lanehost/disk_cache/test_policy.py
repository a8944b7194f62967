import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.disk_cache.policy import (
    DEFAULT_RECENT,
    MIN_BLOCKS,
    Computed,
    DiskMode,
    DiskPolicy,
    ModeKind,
    parse_mode,
)
from lanehost.errors import StartupFailed


def policy(mode: str) -> DiskPolicy:
    return DiskPolicy(parse_mode(mode), block_size=4)


def computed(token_ids, *, num_prompt=None, marks=(), scope="s") -> Computed:
    ids = tuple(token_ids)
    return Computed(
        scope=scope,
        token_ids=ids,
        num_prompt=len(ids) if num_prompt is None else num_prompt,
        marks=marks,
    )


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ("off", DiskMode(ModeKind.OFF)),
        ("full", DiskMode(ModeKind.FULL)),
        ("auto", DiskMode(ModeKind.AUTO, DEFAULT_RECENT)),
        ("auto:3", DiskMode(ModeKind.AUTO, 3)),
        ("512", DiskMode(ModeKind.EVERY, 512)),
    ],
)
def test_modes_are_read_and_said_again(text, mode):
    assert parse_mode(text) == mode
    assert parse_mode(str(mode)) == mode


@pytest.mark.parametrize("text", ["", "on", "auto:", "auto:0", "auto:4097", "0", "-1", "1048577"])
def test_another_mode_is_refused_with_what_is_allowed(text):
    with pytest.raises(StartupFailed, match="auto:N"):
        parse_mode(text)


def test_off_saves_nothing():
    assert policy("off").lengths(computed(range(100))) == ()


def test_full_saves_all_then_the_prompt_then_each_boundary_deepest_first():
    ended = computed(range(51), num_prompt=42, marks=(17, 30))
    assert policy("full").lengths(ended) == (48, 40, 28, 16)


def test_what_was_not_computed_is_not_saved():
    ended = computed(range(20), num_prompt=42, marks=(17, 30))
    assert policy("full").lengths(ended) == (20, 16)


def test_every_n_tokens_a_checkpoint():
    assert policy("20").lengths(computed(range(70))) == (60, 40, 20)


def test_auto_saves_what_is_shared_with_a_recent_one():
    auto = policy("auto")
    assert auto.lengths(computed(range(40))) == ()
    assert auto.lengths(computed((*range(30), 99, 98))) == (28,)


def test_auto_compares_within_a_scope_only():
    auto = policy("auto")
    auto.lengths(computed(range(40), scope="a"))
    assert auto.lengths(computed(range(40), scope="b")) == ()


def test_auto_forgets_all_but_the_last_n():
    auto = policy("auto:1")
    auto.lengths(computed(range(40)))
    auto.lengths(computed(range(100, 140)))
    assert auto.lengths(computed(range(40))) == ()


@given(st.lists(st.lists(st.integers(0, 1), max_size=30), max_size=8), st.integers(1, 4))
def test_auto_finds_the_most_whole_blocks_that_one_of_the_last_has_in_common(all_ids, number):
    auto = policy(f"auto:{number}")
    for at, ids in enumerate(all_ids):
        blocks = [
            next((n for n in range(len(ids) // 4, 0, -1) if ids[: n * 4] == other[: n * 4]), 0)
            for other in all_ids[max(0, at - number) : at]
        ]
        most = max(blocks, default=0)
        assert auto.lengths(computed(ids)) == ((most * 4,) if most >= MIN_BLOCKS else ())


def test_what_is_forgotten_takes_nothing_with_it_that_another_begins_with():
    auto = policy("auto:2")
    auto.lengths(computed((*range(20), 1, 2, 3, 4)))
    auto.lengths(computed((*range(20), 5, 6, 7, 8)))
    assert auto.lengths(computed((*range(100, 140),))) == ()
    assert auto.lengths(computed((*range(20), 1, 2, 3, 4))) == (20,)


def test_auto_remembers_within_a_bound_and_forgets_the_scope_that_was_here_longest_ago(
    monkeypatch,
):
    monkeypatch.setattr("lanehost.disk_cache.policy.MAX_RECENT_BLOCKS", 3 * 10)
    auto = policy("auto")
    for number in range(4):
        auto.lengths(computed(range(40), scope=str(number)))
    assert auto.lengths(computed(range(40), scope="3")) == (40,)
    assert auto.lengths(computed(range(40), scope="0")) == ()
    auto.lengths(computed(range(200), scope="too long for it"))
    assert auto.lengths(computed(range(200), scope="too long for it")) == ()
    assert auto.lengths(computed(range(40), scope="0")) == (40,)


@given(
    st.sampled_from(["full", "auto", "7"]),
    st.lists(st.lists(st.integers(0, 1), max_size=60), min_size=1, max_size=4),
    st.lists(st.integers(0, 80), max_size=3).map(sorted),
    st.integers(0, 80),
)
def test_prefixes_are_whole_blocks_of_what_is_there_and_long_enough(mode, all_ids, marks, prompt):
    saved = policy(mode)
    for ids in all_ids:
        lengths = saved.lengths(computed(ids, num_prompt=prompt, marks=tuple(marks)))
        assert list(lengths) == sorted(set(lengths), reverse=True)
        assert all(n % 4 == 0 and MIN_BLOCKS * 4 <= n <= len(ids) for n in lengths)
