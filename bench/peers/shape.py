"""What every side runs, and the goals; pure.

All columns are tokens per second: of a prompt of 256 tokens that runs alone, and of so many
lanes that decode together, each behind a prompt of 256 tokens.
"""

from dataclasses import dataclass

PREFILL = "prefill"


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """The work of one round; the same for each side."""

    prompt_tokens: int = 256
    lane_counts: tuple[int, ...] = (1, 4, 8, 16)
    num_steps: int = 24
    num_prefills: int = 3
    num_threads: int = 2

    @property
    def columns(self) -> tuple[str, ...]:
        """The names of what is measured."""
        return (PREFILL, *map(decode, self.lane_counts))


def decode(num_lanes: int) -> str:
    """Name the column of so many lanes.

    >>> decode(4)
    'decode 4'
    """
    return f"decode {num_lanes}"


# Ratios to the fastest type of llama.cpp in each column, from the least that will do upward.
_GOAL_COLUMNS = (PREFILL, *map(decode, (1, 4, 8, 16)))
GOALS = {
    name: dict(zip(_GOAL_COLUMNS, ratios, strict=True))
    for name, ratios in (
        ("must", (1.7, 2.0, 3.0, 2.8, 2.6)),
        ("goal", (2.3, 2.6, 4.0, 3.7, 3.6)),
        ("beyond", (3.3, 3.2, 5.0, 5.0, 5.0)),
    )
}
FIRST_TOKEN_GOAL = 0.4
MEAN_KL_GOAL = 0.0034
SAME_TOP_GOAL = 0.97
