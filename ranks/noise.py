"""What the noise of a drawn token is keyed by; integers only, the same everywhere.

Law: the key depends on the row's seed and on the position that its token will take, on nothing
else: not on who is beside it, nor on what was drawn before.
"""

from dataclasses import dataclass

from ranks.plan import Draw

MASK = (1 << 64) - 1
# SplitMix64 (Steele, Lea, Flood 2014): the step of its counter and its two multipliers.
STEP = 0x9E3779B97F4A7C15
FIRST, SECOND = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


@dataclass(frozen=True, slots=True, kw_only=True)
class DrawnRow:
    """One row of logits that draws, and the position that its token will take."""

    row: int
    draw: Draw
    position: int


def noise_key(seed: int, position: int) -> int:
    """What the noise of all tokens of a row is hashed with, 64 bits."""
    return _mix(_mix(seed & MASK) + position * STEP)


def _mix(value: int) -> int:
    """The finaliser of SplitMix64 over 64 bits."""
    value &= MASK
    value = ((value ^ (value >> 30)) * FIRST) & MASK
    value = ((value ^ (value >> 27)) * SECOND) & MASK
    return value ^ (value >> 31)
