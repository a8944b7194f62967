"""How much of a staged pass shares a step with streams that wait for their next token.

Steered by time: the pause that a slice puts between two tokens of a stream is the step that
both of them share, so a step with a slice shall take no longer than the operator allows. How
long steps take is measured on the ranks: those of streams alone, and those with slices. What is
left of the time is for layers, by what a layer took of a row; where one layer takes too long, the
next pass has fewer rows.

Laws: a slice has one layer at least, so a pass always ends; without a limit it has all of them;
the first has one, and none is more than twice the last in layers and rows, so nothing that was
measured wrongly makes a long one. Pure: told what was measured, it says the same again.
"""

_NS_PER_MS = 1_000_000


class StallBudget:
    """Owned by the engine loop."""

    def __init__(self, *, num_layers: int, max_stall_ms: int) -> None:
        """Begin with one layer: what it takes is not known yet.

        Args:
            num_layers: Of the model.
            max_stall_ms: The longest step with a slice that streams wait for; 0 for no limit.
        """
        self._num_layers = num_layers
        self._limit_ns = max_stall_ms * _NS_PER_MS
        # What the step takes without a slice, and a layer of a row.
        self._beside_ns = 0.0
        self._layer_row_ns: float | None = None
        self._last_work = 0
        self._max_rows: int | None = None

    def __repr__(self) -> str:
        return (
            f"<StallBudget {self._limit_ns} ns, {self._beside_ns} ns beside it, "
            f"{self._layer_row_ns} ns a layer and row>"
        )

    def num_layers(self, num_rows: int) -> int:
        """Return how many layers of a pass of so many rows go into a step that streams wait for."""
        if self._limit_ns == 0:
            return self._num_layers
        if self._layer_row_ns is None:
            return 1
        most = min(self._num_layers, 2 * self._last_work // num_rows)
        layer_ns = self._layer_row_ns * num_rows
        left_ns = max(self._limit_ns - self._beside_ns, 0.0)
        if layer_ns * most > left_ns:
            most = int(left_ns / layer_ns)
        return max(1, most)

    def num_rows(self, limit: int) -> int:
        """Return how many rows the next pass may have beside streams, of at most `limit`."""
        return limit if self._max_rows is None else min(limit, self._max_rows)

    def note_beside(self, compute_ns: int) -> None:
        """Learn what a step of streams took without a slice."""
        self._beside_ns = _follow(self._beside_ns, compute_ns)

    def note(self, *, compute_ns: int, num_rows: int, num_layers: int) -> None:
        """Learn what a step took that streams waited for, with so many layers of so many rows."""
        if self._limit_ns == 0:
            return
        self._last_work = num_layers * num_rows
        measured = max(compute_ns - self._beside_ns, 0.0) / self._last_work
        before = self._layer_row_ns
        # What takes longer counts at once: one quick step is no proof.
        self._layer_row_ns = (
            measured if before is None else max(measured, _follow(before, measured))
        )
        if num_layers == 1:
            self._note_rows(compute_ns, num_rows)

    def _note_rows(self, compute_ns: int, num_rows: int) -> None:
        if compute_ns > self._limit_ns:
            self._max_rows = max(1, num_rows * self._limit_ns // compute_ns)
        elif self._max_rows is not None and 2 * compute_ns <= self._limit_ns:
            self._max_rows *= 2


def _follow(before: float, now: float) -> float:
    """Go half of the way."""
    return (before + now) / 2 if before else float(now)
