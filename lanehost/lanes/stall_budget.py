"""How much of a staged pass shares a step with streams that wait for their next token.

Steered by time: the pause that a slice puts between two tokens of a stream is the step that
both of them share, so a step with a slice shall take no longer than the operator allows. How
long it takes is measured on the ranks, of the whole step, as what runs beside the slice counts,
too: from one layer on, layers are added while there is time left, and taken away at once
where there was not. Where one layer takes too long, the next pass has fewer rows.

Laws: a slice has one layer at least, so a pass always ends; without a limit it has all of them;
the next slice is never longer than the last one measured says that it may be. Pure: told what
was measured, it says the same again.
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
        # What a layer took of a row, with its share of all else in the step.
        self._ns_per_layer_row: float | None = None
        self._max_rows: int | None = None

    def __repr__(self) -> str:
        return f"<StallBudget {self._limit_ns} ns, {self._ns_per_layer_row} ns a layer and row>"

    def num_layers(self, num_rows: int) -> int:
        """Return how many layers of a pass of so many rows go into a step that streams wait for."""
        if self._limit_ns == 0:
            return self._num_layers
        if self._ns_per_layer_row is None:
            return 1
        layer_ns = self._ns_per_layer_row * num_rows
        if layer_ns * self._num_layers <= self._limit_ns:
            return self._num_layers
        return max(1, int(self._limit_ns / layer_ns))

    def num_rows(self, limit: int) -> int:
        """Return how many rows the next pass may have beside streams, of at most `limit`."""
        return limit if self._max_rows is None else min(limit, self._max_rows)

    def note(self, *, compute_ns: int, num_rows: int, num_layers: int) -> None:
        """Learn what a step took that streams waited for, with so many layers of so many rows."""
        if self._limit_ns == 0:
            return
        measured = compute_ns / (num_layers * num_rows)
        before = self._ns_per_layer_row
        # What takes longer counts at once, what takes less in halves: one quick step is no proof.
        self._ns_per_layer_row = (
            measured if before is None else max(measured, (measured + before) / 2)
        )
        if num_layers == 1:
            self._note_rows(compute_ns, num_rows)

    def _note_rows(self, compute_ns: int, num_rows: int) -> None:
        if compute_ns > self._limit_ns:
            self._max_rows = max(1, num_rows * self._limit_ns // compute_ns)
        elif self._max_rows is not None and 2 * compute_ns <= self._limit_ns:
            self._max_rows *= 2
