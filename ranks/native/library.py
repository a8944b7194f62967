"""The compiled kernels, through ctypes: a call leaves Python's lock to others.

Laws: a library made of other sources than those beside it is not used. The set of
instructions is chosen once, the widest that this processor has.
"""

import ctypes
from array import array
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from ranks.native.build import LIBRARY, source_digest
from ranks.native.packing import PackedMatrix
from ranks.native.parts import Floats, LayerParts, ModelShape, StepFrame, StepRows, StepWords
from ranks.native.structs import (
    POINTER,
    DrawStruct,
    LayerStruct,
    address,
    draw_struct,
    frame_struct,
    layer_struct,
    matrix_struct,
    shape_struct,
    step_struct,
)
from ranks.noise import DrawnRow
from ranks.shards import Exchange

INSTRUCTION_SETS = ("avx512", "avx2", "neon", "portable")
# `Part` of watch.h.
PART_NAMES = ("norm", "products", "rotate", "attention", "exchange", "head")


class NoLibrary(Exception):
    """There is no library to use; the message says why."""


class NativeLibrary:
    """The functions of one library, and the set of instructions that models of it use."""

    def __init__(self, path: Path, instruction_set: str) -> None:
        self.functions = ctypes.CDLL(str(path))
        self.instruction_set = instruction_set
        self.functions.lanehost_sources.restype = ctypes.c_char_p
        self.functions.lanehost_new_model.restype = POINTER
        self.functions.lanehost_num_stages.restype = ctypes.c_uint64

    def sources(self) -> str:
        """Digest of the sources that it was made of."""
        return bytes(self.functions.lanehost_sources()).decode()

    def can_run(self, instruction_set: str) -> bool:
        """Whether a set was built, and this processor has it."""
        return bool(self.functions.lanehost_can_run(instruction_set.encode()))


def open_library(instruction_set: str | None = None, path: Path = LIBRARY) -> NativeLibrary:
    """Open the library for a set of instructions; without one, for the widest there is.

    Raises:
        NoLibrary: It is absent, cannot be loaded, is stale, or lacks the set.
    """
    if not path.exists():
        raise NoLibrary("it was not built")
    try:
        library = NativeLibrary(path, instruction_set or "")
    except OSError as err:
        raise NoLibrary(f"it cannot be loaded: {err}") from err
    if library.sources() != source_digest():
        raise NoLibrary("it was built from other sources: python -m ranks.native.build")
    wanted = (instruction_set,) if instruction_set else INSTRUCTION_SETS
    for name in wanted:
        if library.can_run(name):
            library.instruction_set = name
            return library
    raise NoLibrary(f"this processor or this build has none of {', '.join(wanted)}")


def why_no_library(path: Path = LIBRARY) -> str | None:
    """Say why the library cannot be used, or None when it can."""
    try:
        open_library(path=path)
    except NoLibrary as err:
        return str(err)
    return None


class NativeEngine:
    """A model in the library; implements `Engine`."""

    can_exchange = True

    def __init__(
        self,
        library: NativeLibrary,
        shape: ModelShape,
        layers: Sequence[LayerParts],
        *,
        num_threads: int,
    ) -> None:
        self.name = library.instruction_set
        self._functions = library.functions
        self._layers = layers  # the library points into them
        self._logits = np.empty(0, dtype=np.float32)
        self._logits_at = address(self._logits)
        self._frame: StepFrame | None = None
        self._frame_at: object = None
        structs = (LayerStruct * len(layers))(*map(layer_struct, layers))
        self._model = POINTER(
            self._functions.lanehost_new_model(
                ctypes.byref(shape_struct(shape)),
                structs,
                len(layers),
                library.instruction_set.encode(),
                num_threads,
            )
        )
        assert self._model.value is not None

    def __del__(self) -> None:
        if getattr(self, "_model", None) is not None:
            self._functions.lanehost_end_model(self._model)

    def run(self, step: StepRows, x: Floats, exchange: Exchange | None = None) -> None:
        """Run all layers on x [rows, hidden], in place; the shares of ranks meet in `exchange`.

        Raises:
            FellowLost: Another rank did not do its part.
        """
        at = POINTER(None if exchange is None else exchange.address)
        code = self._functions.lanehost_run(self._model, step_struct(step), address(x), at)
        if exchange is not None:
            exchange.check(code)

    def attention_half(self, step: StepRows, layer: int, x: Floats) -> Floats:
        """This rank's share of the attention's sum over shards: [rows, hidden]."""
        share = np.empty_like(x)
        self._functions.lanehost_attention_half(
            self._model, step_struct(step), layer, address(x), address(share)
        )
        return share

    def mlp_half(self, layer: int, x: Floats) -> Floats:
        """This rank's share of the MLP's sum over shards: [rows, hidden]."""
        share = np.empty_like(x)
        self._functions.lanehost_mlp_half(self._model, layer, address(x), len(x), address(share))
        return share

    def add_total(self, total: Floats, bias: Floats | None, x: Floats) -> None:
        """Add what a half gave, summed over all ranks, to x [rows, hidden], in place."""
        self._functions.lanehost_add_total(
            self._model, address(total), address(bias), len(x), address(x)
        )

    def parts_ns(self) -> dict[str, int]:
        """Nanoseconds of each part of the last step."""
        found = np.zeros(len(PART_NAMES), dtype=np.int64)
        self._functions.lanehost_parts(self._model, address(found))
        return dict(zip(PART_NAMES, found.tolist(), strict=True))

    def num_stages(self) -> int:
        """Stages that were run so far; from any thread, also while one runs."""
        return int(self._functions.lanehost_num_stages(self._model))

    def forward(
        self, frame: StepFrame, words: StepWords, exchange: Exchange | None = None
    ) -> Floats:
        """All of a step in one call: token ids to logits [draws, outputs of the head].

        The next call of this or of `head` writes its own to the same place.

        Raises:
            FellowLost: Another rank did not do its part.
            ValueError: The words name what is not there.
        """
        if frame is not self._frame:
            self._frame, self._frame_at = frame, frame_struct(frame)
        flat = array("q", words.flat())
        logits = self._take_logits(len(words.draw_rows), frame.head.outputs)
        code = self._functions.lanehost_forward(
            self._model, self._frame_at, POINTER(flat.buffer_info()[0]), len(flat),
            POINTER(None if exchange is None else exchange.address), self._logits_at,
        )  # fmt: skip
        if code < 0:
            raise ValueError(f"a step of {len(words.positions)} rows names what is not there")
        if exchange is not None:
            exchange.check(code)
        return logits

    def head(self, x: Floats, norm: Floats, weight: PackedMatrix) -> Floats:
        """Norm and project [rows, hidden] → [rows, outputs of the weight].

        The next call writes its own to the same place.
        """
        logits = self._take_logits(len(x), weight.outputs)
        self._functions.lanehost_head(
            self._model, address(x), address(norm), ctypes.byref(matrix_struct(weight)), len(x),
            self._logits_at,
        )  # fmt: skip
        return logits

    def _take_logits(self, rows: int, width: int) -> Floats:
        """Where logits go. Pages new in every step would take as long as drawing from them."""
        if rows * width > self._logits.size:
            self._logits = np.empty(rows * width, dtype=np.float32)
            self._logits_at = address(self._logits)
        return self._logits[: rows * width].reshape(rows, width)

    def draw_rows(self, logits: Floats, drawn: Sequence[DrawnRow]) -> list[int]:
        """The token that each of some rows of logits [n, vocab] draws; see `Engine`."""
        count = len(drawn)
        rows, token_ids = array("i", [one.row for one in drawn]), array("q", bytes(8 * count))
        structs = (DrawStruct * count)()  # of zeros: the likeliest token
        for number, one in enumerate(drawn):
            if one.draw.temperature > 0:
                structs[number] = draw_struct(one)
        self._functions.lanehost_draw(
            self._model, address(logits), logits.shape[1], POINTER(rows.buffer_info()[0]), structs,
            count, POINTER(token_ids.buffer_info()[0]),
        )  # fmt: skip
        return token_ids.tolist()
