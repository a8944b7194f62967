"""A GGUF file as a source of tensors: only the rows that are asked for are touched.

Laws: names and the order of values are those of a Hugging Face checkpoint. llama.cpp
stores q and k of the architecture `llama` with the two halves of each head
interleaved; that is undone here, so that one rotary code serves all (ADR 2).
"""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType
from gguf.quants import dequantize

from ranks.errors import BadCheckpoint
from ranks.gguf_header import GgufHeader, TensorInfo, map_gguf, read_gguf_header
from ranks.weights.row_table import RowTable, StoredRows

_TYPES = GGMLQuantizationType
SUPPORTED_TYPES = (
    _TYPES.F32, _TYPES.F16, _TYPES.BF16, _TYPES.Q8_0, _TYPES.Q4_0, _TYPES.Q4_1, _TYPES.Q5_0,
    _TYPES.Q5_1, _TYPES.Q4_K, _TYPES.Q5_K, _TYPES.Q6_K,
)  # fmt: skip

_NAMES = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "output": "lm_head",
    "rope_freqs": "rope_freqs",
}
_LAYER_NAMES = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# Gemma 3 has norms behind attention and MLP too.
_GEMMA_NAMES = _LAYER_NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_INTERLEAVED = ("self_attn.q_proj.", "self_attn.k_proj.")


class GgufFile:
    """The tensors of a GGUF file; implements `WeightSource`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._data = map_gguf(path)
        self.header: GgufHeader = read_gguf_header(path, self._data)
        self._infos: dict[str, TensorInfo] = {}
        self._name_all(_LAYER_NAMES)
        self._interleaved_head_dim: int | None = None

    def _name_all(self, layer_names: Mapping[str, str]) -> None:
        self._infos = {}
        for info in self.header.tensors.values():
            self._add(info, layer_names)

    def _add(self, info: TensorInfo, layer_names: Mapping[str, str]) -> None:
        name = _translate(info.name, layer_names)
        if name in self._infos:
            raise BadCheckpoint(
                f"{self._path}: tensors {self._infos[name].name!r} and {info.name!r} "
                f"are both {name!r}"
            )
        self._infos[name] = info

    def use_gemma_names(self) -> None:
        """Name tensors as a Hugging Face checkpoint of Gemma 3 does."""
        self._name_all(_GEMMA_NAMES)

    def undo_interleaving(self, head_dim: int) -> None:
        """Read q and k as llama.cpp stores them for the architecture `llama`."""
        self._interleaved_head_dim = head_dim

    def names(self) -> set[str]:
        """All tensors."""
        return set(self._infos)

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The whole tensor's shape, None when there is no such tensor."""
        info = self._infos.get(name)
        return None if info is None else info.shape

    def num_bytes(self, name: str) -> int:
        """Bytes that the whole tensor takes in the file."""
        return self._infos[name].num_bytes

    def read(self, name: str, *, rows: range, columns: range | None) -> torch.Tensor:
        """Read rows, and of those some columns, as float32.

        Raises:
            BadCheckpoint: The tensor's type is not supported, or heads are cut in two.
        """
        info = self._infos[name]
        kind = self._supported_type(info)
        if len(info.shape) == 1:
            values = self._read_groups(info, kind, rows=range(1), columns=rows)[0]
        else:
            values = self._read_groups(info, kind, rows=rows, columns=columns)
        tensor = torch.from_numpy(values)
        if self._interleaved_head_dim is not None and any(part in name for part in _INTERLEAVED):
            return self._join_halves(info.name, tensor, self._interleaved_head_dim)
        return tensor

    def kind_name(self, name: str) -> str:
        """The type of a tensor, as GGUF calls it: Q4_1."""
        return _TYPES(self._infos[name].type_id).name

    def read_raw(self, name: str, *, rows: range, columns: range) -> npt.NDArray[np.uint8]:
        """Read rows in the file's groups: uint8 [rows, bytes]; columns lie on whole groups.

        Raises:
            BadCheckpoint: Heads are cut in two.
        """
        info = self._infos[name]
        group, group_bytes = GGML_QUANT_SIZES[_TYPES(info.type_id)]
        assert columns.start % group == columns.stop % group == 0
        first, last = (at // group * group_bytes for at in (columns.start, columns.stop))
        raw = self._data[info.offset : info.offset + info.num_bytes].reshape(info.shape[0], -1)
        part = np.array(raw[rows.start : rows.stop, first:last])
        if self._interleaved_head_dim is None or not any(one in name for one in _INTERLEAVED):
            return part
        joined = self._join_halves(info.name, torch.from_numpy(part), self._interleaved_head_dim)
        return joined.numpy()

    def table(self, name: str, dtype: torch.dtype) -> RowTable:
        """All rows of a matrix, in the file's groups.

        Raises:
            BadCheckpoint: The tensor's type is not supported.
        """
        info = self._infos[name]
        kind = self._supported_type(info)
        stored = self._data[info.offset : info.offset + info.num_bytes]
        raw = torch.from_numpy(np.array(stored.reshape(info.shape[0], -1)))

        def to_values(rows: torch.Tensor) -> torch.Tensor:
            if not len(rows):  # the groups of no row have no size
                return torch.empty(0, info.shape[1])
            return torch.from_numpy(_to_float32(rows.numpy(), kind))

        return StoredRows(raw, to_values, dtype, is_q8_0=kind is _TYPES.Q8_0)

    def _supported_type(self, info: TensorInfo) -> GGMLQuantizationType:
        kind = _TYPES(info.type_id)
        if kind not in SUPPORTED_TYPES:
            known = ", ".join(one.name for one in SUPPORTED_TYPES)
            raise BadCheckpoint(
                f"{self._path}: tensor {info.name!r} has type {kind.name}, supported are {known}"
            )
        return kind

    def _read_groups(
        self,
        info: TensorInfo,
        kind: GGMLQuantizationType,
        *,
        rows: range,
        columns: range | None,
    ) -> npt.NDArray[np.float32]:
        """Dequantise whole groups around the columns, then cut the columns out."""
        group, group_bytes = GGML_QUANT_SIZES[kind]
        columns = range(info.shape[-1]) if columns is None else columns
        first, last = columns.start // group, -(-columns.stop // group)
        row_bytes = info.shape[-1] // group * group_bytes
        raw = self._data[info.offset : info.offset + info.num_bytes].reshape(-1, row_bytes)
        part = np.ascontiguousarray(
            raw[rows.start : rows.stop, first * group_bytes : last * group_bytes]
        )
        values = _to_float32(part, kind)
        start = columns.start - first * group
        return np.ascontiguousarray(values[:, start : start + len(columns)])

    def _join_halves(self, name: str, tensor: torch.Tensor, head_dim: int) -> torch.Tensor:
        if tensor.shape[0] % head_dim:
            raise BadCheckpoint(
                f"{self._path}: tensor {name!r}: {tensor.shape[0]} rows are not whole heads "
                f"of {head_dim}"
            )
        pairs = tensor.view(-1, head_dim // 2, 2, *tensor.shape[1:])
        return pairs.transpose(1, 2).reshape(tensor.shape)


def _translate(name: str, layer_names: Mapping[str, str]) -> str:
    """The Hugging Face name; what has none keeps its own and is refused as unknown later."""
    stem, _, suffix = name.rpartition(".")
    parts = stem.split(".")
    if len(parts) == 3 and parts[0] == "blk" and parts[2] in layer_names:  # noqa: PLR2004 (blk.0.attn_q)
        return f"layers.{parts[1]}.{layer_names[parts[2]]}.{suffix}"
    return f"{_NAMES[stem]}.{suffix}" if stem in _NAMES else name


_Q8_0 = np.dtype([("scale", "<f2"), ("quants", "i1", 32)])


def _to_float32(raw: npt.NDArray[np.uint8], kind: GGMLQuantizationType) -> npt.NDArray[np.float32]:
    if kind is _TYPES.F32:
        return raw.view("<f4").astype(np.float32)
    # A scale that is no number makes weights that are none; a warning would help nobody.
    with np.errstate(all="ignore"):
        if kind is _TYPES.Q8_0:  # as `dequantize`, in half the time: each step looks up a few rows
            groups = raw.view(_Q8_0)
            scales: npt.NDArray[np.float32] = groups["scale"].astype(np.float32)[..., None]
            q8_0: npt.NDArray[np.float32] = (scales * groups["quants"]).reshape(len(raw), -1)
            return q8_0
        if kind is _TYPES.F16:
            return raw.view("<f2").astype(np.float32)
        values: npt.NDArray[np.float32] = dequantize(raw, kind)
    return values
