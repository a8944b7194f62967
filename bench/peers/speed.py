"""Run the sides in turn, round after round."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from bench.peers.children import ChildFailed
from bench.peers.outputs import UnknownOutput
from bench.peers.shape import Shape
from bench.peers.sides import Side
from bench.peers.tools import Absent

Say = Callable[[str], None]


@dataclass(slots=True)
class Speed:
    """What came of all rounds; a side without figures is in `without`, with the reason."""

    rounds: list[dict[str, dict[str, float]]] = field(
        default_factory=list[dict[str, dict[str, float]]]
    )
    peak_bytes: dict[str, int] = field(default_factory=dict[str, int])
    notes: dict[str, str] = field(default_factory=dict[str, str])
    without: dict[str, str] = field(default_factory=dict[str, str])


def run_rounds(sides: Sequence[Side], shape: Shape, num_rounds: int, say: Say) -> Speed:
    """Prepare all sides, then run each once a round; every other round goes backwards."""
    found = Speed()
    ready = [side for side in sides if _is_ready(side, found, say)]
    for number in range(num_rounds):
        one: dict[str, dict[str, float]] = {}
        for side in ready if number % 2 == 0 else reversed(ready):
            say(f"round {number + 1} of {num_rounds}: {side.name}")
            try:
                measured = side.measure(shape)
            except (ChildFailed, UnknownOutput) as err:
                found.without[side.name] = f"failed in round {number + 1}: {err}"
                say(f"{side.name} failed: {err}")
                continue
            one[side.name] = measured.speeds
            peak = max(measured.peak_bytes, found.peak_bytes.get(side.name, 0))
            found.peak_bytes[side.name] = peak
        found.rounds.append(one)
    return found


def _is_ready(side: Side, found: Speed, say: Say) -> bool:
    say(f"preparing {side.name}")
    try:
        found.notes[side.name] = side.prepare()
    except Absent as err:
        found.without[side.name] = f"absent: {err}"
    except ChildFailed as err:
        found.without[side.name] = f"cannot be made ready: {err}"
    if side.name in found.without:
        say(f"{side.name} {found.without[side.name]}")
    return side.name in found.notes
