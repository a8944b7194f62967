"""Staged passes of the fake ranks: every rule of one is checked."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from ranks.plan import Chunk, StagedSlice

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.support.fake_images import FakeImages


@dataclass
class _Open:
    pass_id: int
    chunks: tuple[Chunk, ...]
    next_layer: int
    # Lane → what its cells hold once the pass has ended.
    cells: dict[int, tuple[int, ...]]


class FakePasses:
    """The open pass of a rank; what it writes is there only with its end."""

    def __init__(self, *, num_layers: int, max_rows: int) -> None:
        self.num_layers, self.max_rows = num_layers, max_rows
        self._open: _Open | None = None
        self._last_pass_id = 0

    @property
    def lanes(self) -> set[int]:
        """Lanes that are in the open pass: nothing else may be done with them."""
        return set() if self._open is None else {chunk.lane_id for chunk in self._open.chunks}

    def run(self, staged: StagedSlice, images: "FakeImages") -> "Mapping[int, tuple[int, ...]]":
        """Run a slice; returns what its lanes' cells hold, by lane: of the last slice alone."""
        if staged.first_layer == 0:
            assert self._open is None, "a pass on top of the open one"
            assert staged.pass_id > self._last_pass_id, "ids of passes rise"
            assert 0 < staged.num_tokens <= self.max_rows, "more rows than a pass may have"
            self._last_pass_id = staged.pass_id
            cells = {chunk.lane_id: _cells(chunk, images) for chunk in staged.chunks}
            assert len(cells) == len(staged.chunks), "a lane twice in a pass"
            self._open = _Open(staged.pass_id, staged.chunks, 0, cells)
        begun = self._open
        assert begun is not None, "goes on with a pass that is not open"
        assert (staged.pass_id, staged.chunks) == (begun.pass_id, begun.chunks), "another pass"
        assert staged.first_layer == begun.next_layer, "goes on where the pass is not"
        assert staged.first_layer < staged.stop_layer <= self.num_layers, "no layers"
        begun.next_layer = staged.stop_layer
        if staged.stop_layer < self.num_layers:
            return {}
        self._open = None
        return begun.cells

    def drop(self) -> None:
        """A slice failed: nothing of its pass is left."""
        self._open = None


def _cells(chunk: Chunk, images: "FakeImages") -> tuple[int, ...]:
    cells = list(chunk.token_ids)
    for image in chunk.images:
        at = image.start - chunk.start
        rows = images.rows[image.image_id]
        assert len(rows) == image.num_tokens
        assert 0 <= at <= len(cells) - image.num_tokens, "a part of an image"
        cells[at : at + image.num_tokens] = rows
    return tuple(cells)
