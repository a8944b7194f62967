"""The staged pass that is open: whose rows are in it, and at which layer it goes on; pure.

Prompts with images run in passes that go through the layers in slices, one a step (ADR 30).

Laws: one pass is open at a time, and its lanes run nothing else; its slices name the same rows,
and go on where the last one stopped; a pass that has begun goes to its end, whoever leaves, or is
dropped whole by a slice that failed. Ids of passes rise within an epoch.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from ranks.plan import Chunk, StagedSlice


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenPass:
    """A pass that some plan has begun, and none has ended."""

    pass_id: int
    chunks: tuple[Chunk, ...]
    next_layer: int

    @property
    def num_rows(self) -> int:
        """Rows that go through the layers."""
        return sum(len(chunk.token_ids) for chunk in self.chunks)


class Staging:
    """What plans so far have done of passes. Owned and changed by `LaneTable` alone."""

    def __init__(self, *, num_layers: int) -> None:
        """Begin without a pass; the model has so many layers."""
        self.num_layers = num_layers
        self._open: OpenPass | None = None
        self._last_pass_id = 0

    def __repr__(self) -> str:
        return f"<Staging {self._open!r} last {self._last_pass_id}>"

    @property
    def open(self) -> OpenPass | None:
        """The pass that goes on with the next slice."""
        return self._open

    def next_slice(self, chunks: tuple[Chunk, ...], num_layers: int) -> StagedSlice:
        """Return the next layers of the pass that is open, else the first of one over `chunks`."""
        begun = self._open or OpenPass(pass_id=self._last_pass_id + 1, chunks=chunks, next_layer=0)
        return StagedSlice(
            pass_id=begun.pass_id,
            chunks=begun.chunks,
            first_layer=begun.next_layer,
            stop_layer=min(begun.next_layer + num_layers, self.num_layers),
        )

    def advance(self, staged: StagedSlice) -> None:
        """Note a slice that is in a plan."""
        assert staged.first_layer == (self._open.next_layer if self._open else 0), f"{self!r}"
        self._last_pass_id = staged.pass_id
        self._open = None if self.ends(staged) else _behind(staged, staged.stop_layer)

    def undo(self, staged: StagedSlice) -> None:
        """Take a slice back that was not run; the newest first."""
        self._open = _behind(staged, staged.first_layer) if staged.first_layer else None

    def drop(self) -> Iterator[Chunk]:
        """Forget the pass of which a slice failed; yields the rows that it had so far."""
        dropped, self._open = self._open, None
        yield from dropped.chunks if dropped is not None else ()

    def ends(self, staged: StagedSlice) -> bool:
        """Say whether a slice is the last of its pass."""
        return staged.stop_layer == self.num_layers


def _behind(staged: StagedSlice, layer: int) -> OpenPass:
    return OpenPass(pass_id=staged.pass_id, chunks=staged.chunks, next_layer=layer)
