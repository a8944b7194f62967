from hypothesis import given
from hypothesis import strategies as st

from ranks.noise import STEP, noise_key


def splitmix(state):
    """The next output of SplitMix64 from a state, as its authors wrote it."""
    state = (state + STEP) % 2**64
    value = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
    value = (value ^ value >> 27) * 0x94D049BB133111EB % 2**64
    return value ^ value >> 31


def test_the_first_outputs_are_those_that_are_published():
    # Of the state 1234567, as in Rosetta Code's task "Pseudo-random numbers/Splitmix64".
    assert splitmix(1234567) == 6457827717110365317
    assert splitmix(1234567 + STEP) == 3203168211198807973


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**40))
def test_a_key_is_an_output_of_the_seeds_own_generator(seed, position):
    own = splitmix((seed - STEP) % 2**64)
    assert noise_key(seed, position) == splitmix(own + (position - 1) * STEP)


def test_neighbouring_seeds_and_positions_share_no_key():
    keys = {noise_key(seed, position) for seed in range(100) for position in range(100)}
    assert len(keys) == 10_000
