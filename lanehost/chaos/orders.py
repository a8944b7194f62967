"""Orders to ranks to fail: files in a folder that ranks of this server alone look into.

The other end is `ranks/faults.py`, which says what an order may be. A rank takes an order once,
at the point that it names, and says `fault_injected` in its log as it does.
"""

from pathlib import Path

from ranks.fault_orders import VARIABLE, order_file


class Orders:
    """The folder of one server."""

    def __init__(self, folder: Path) -> None:
        """Take an empty folder."""
        self._folder = folder

    @property
    def environment(self) -> dict[str, str]:
        """What a server needs in its environment for its ranks to look there."""
        return {VARIABLE: str(self._folder)}

    def give(self, rank: int, fault: str, point: str) -> None:
        """Order a rank to fail once, at a point."""
        path = order_file(self._folder, rank)
        fresh = path.with_suffix(".new")
        fresh.write_text(f"{fault} {point}", encoding="utf-8")
        fresh.rename(path)

    def is_open(self, rank: int) -> bool:
        """Whether the rank has not taken its order yet."""
        return order_file(self._folder, rank).exists()

    def withdraw(self, rank: int) -> bool:
        """Take an order back; says whether it was still there."""
        path = order_file(self._folder, rank)
        was_there = path.exists()
        path.unlink(missing_ok=True)
        return was_there
