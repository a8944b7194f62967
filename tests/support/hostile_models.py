"""What becomes of a model file, however broken: it loads and runs, or a typed error names it."""

from pathlib import Path
from random import Random

import gguf
import numpy as np
import torch
from gguf.constants import GGMLQuantizationType
from gguf.quants import quantize

from lanehost.errors import StartupFailed
from lanehost.text.model_text import load_model_text
from ranks.errors import BadCheckpoint
from ranks.models.registry import Checkpoint, choose_products, load_model, open_checkpoint
from ranks.shards import cut_shards
from tests.support.gguf_pieces import spoil, take_apart
from tests.support.text_models import byte_level_fields, spm_fields
from tests.support.tiny_worlds import CPU, Lane, World

# Longer ones tell nobody anything, and go over the wire and into the log.
MAX_MESSAGE = 20_000
# What a file may cost in memory: so much for each of its bytes, and for anything at all.
BYTES_PER_BYTE, BYTES_FREE = 64, 48 << 20
_WIDTH, _INNER, _HEADS, _KV_HEADS, _HEAD_DIM = 64, 64, 4, 2, 16

KINDS = {
    "llama": ("llama", "Q4_0", byte_level_fields),
    "qwen2": ("qwen2", "Q4_1", spm_fields),
    "qwen3": ("qwen3", "Q8_0", spm_fields),
    "gemma3": ("gemma3", "Q8_0", spm_fields),
}


def write_small(path: Path, kind: str) -> bytes:
    """Write a whole model of one layer, with its tokenizer; the bytes of its file."""
    architecture, stored, text_fields = KINDS[kind]
    fields = text_fields()
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_block_count(1)
    writer.add_context_length(128)
    writer.add_embedding_length(_WIDTH)
    writer.add_feed_forward_length(_INNER)
    writer.add_head_count(_HEADS)
    writer.add_head_count_kv(_KV_HEADS)
    writer.add_key_length(_HEAD_DIM)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_sliding_window(7 if architecture == "gemma3" else 128)
    adders = {str: writer.add_string, bool: writer.add_bool, int: writer.add_uint32}
    for key, value in fields.items():
        if key != "llama.context_length":
            adders.get(type(value), writer.add_array)(key, value)
    random = np.random.default_rng(3)
    for name, shape in _shapes(architecture, len(fields["tokenizer.ggml.tokens"])).items():
        values = random.normal(0, 0.2, shape).astype(np.float32)
        type_of = GGMLQuantizationType[stored if len(shape) > 1 else "F32"]
        raw = quantize(values, type_of) if len(shape) > 1 else 1 + np.abs(values)
        writer.add_tensor(name, raw, raw_dtype=type_of)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path.read_bytes()


def _shapes(architecture: str, vocab: int) -> dict[str, tuple[int, ...]]:
    heads, kv_heads = _HEADS * _HEAD_DIM, _KV_HEADS * _HEAD_DIM
    shapes: dict[str, tuple[int, ...]] = {
        "token_embd.weight": (vocab, _WIDTH),
        "output_norm.weight": (_WIDTH,),
        "blk.0.attn_norm.weight": (_WIDTH,),
        "blk.0.ffn_norm.weight": (_WIDTH,),
        "blk.0.attn_q.weight": (heads, _WIDTH),
        "blk.0.attn_k.weight": (kv_heads, _WIDTH),
        "blk.0.attn_v.weight": (kv_heads, _WIDTH),
        "blk.0.attn_output.weight": (_WIDTH, heads),
        "blk.0.ffn_gate.weight": (_INNER, _WIDTH),
        "blk.0.ffn_up.weight": (_INNER, _WIDTH),
        "blk.0.ffn_down.weight": (_WIDTH, _INNER),
    }
    if architecture == "llama":
        shapes["rope_freqs.weight"] = (_HEAD_DIM // 2,)
    if architecture == "qwen2":
        shapes |= {f"blk.0.attn_{x}.bias": (n,) for x, n in (("q", heads), ("k", kv_heads))}
        shapes["blk.0.attn_v.bias"] = (kv_heads,)
    if architecture in ("qwen3", "gemma3"):
        shapes |= {f"blk.0.attn_{x}_norm.weight": (_HEAD_DIM,) for x in "qk"}
    if architecture == "qwen3":
        shapes["output.weight"] = (vocab, _WIDTH)
    if architecture == "gemma3":
        names = ("post_attention_norm", "post_ffw_norm")
        shapes |= {f"blk.0.{name}.weight": (_WIDTH,) for name in names}
    return shapes


def load_and_run(path: Path) -> set[str]:
    """Load what a file or folder holds, on a rank and in the master, and run steps of it.

    Returns what was had of it. Anything but a model or a typed error that names the file is
    raised.
    """
    had = set()
    try:
        checkpoint = open_checkpoint(path)
        for name in ("int8", "float32"):
            had |= _run(checkpoint, name)
    except BadCheckpoint as err:
        _check(err, path)
    try:
        text = load_model_text(path)
        text.tokenizer.encode("the cat sat")
        had.add("text")
    except StartupFailed as err:
        _check(err, path)
    return had


def _run(checkpoint: Checkpoint, products: str) -> set[str]:
    try:
        dtype = choose_products(products, CPU, checkpoint)
    except BadCheckpoint as err:
        if "--dtype int8 cannot be had" not in str(err):
            raise
        return set()
    config = checkpoint.config
    model = load_model(
        checkpoint,
        shards=cut_shards(config.num_heads, rank=0, world_size=1),
        device=CPU,
        dtype=dtype,
        on_progress=lambda done, total: None,
    )
    if model.images is not None:
        model.encode_image(torch.zeros(model.images.height, model.images.width, 3).byte())
    world = World([model], num_blocks=4, block_size=8)
    lane = Lane(0, [token % config.vocab_size for token in range(1, 13)], [3, 1])
    for count in (9, None):
        logits = world.step([lane.rows(count)])
    assert logits.shape == (1, config.vocab_size)
    assert logits.dtype == torch.float32
    return {products}


def _check(error: Exception, path: Path) -> None:
    assert str(path) in str(error), f"does not name the file: {error}"
    assert len(str(error)) <= MAX_MESSAGE, f"{len(str(error))} characters"


def resident_bytes(what: str) -> int:
    """VmRSS, what this process holds, or VmHWM, the most since `forget_peak`."""
    status = Path("/proc/self/status").read_text()
    return int(status.split(f"{what}:")[1].split()[0]) << 10


def forget_peak() -> None:
    """Let VmHWM begin anew."""
    Path("/proc/self/clear_refs").write_text("5")


def run_bounded(path: Path) -> set[str]:
    """`load_and_run`, and what it held at most is bounded by the size of the file."""
    size = sum(p.stat().st_size for p in (path.iterdir() if path.is_dir() else [path]))
    before = resident_bytes("VmRSS")
    forget_peak()
    had = load_and_run(path)
    held = resident_bytes("VmHWM") - before
    assert held <= BYTES_FREE + BYTES_PER_BYTE * size, f"held {held} bytes for {size}"
    return had


class Spoiler:
    """Spoils the small models of all kinds, one after the other, in a folder."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / "spoilt.gguf"
        self._whole = {kind: take_apart(write_small(self._path, kind)) for kind in KINDS}

    def try_one(self, random: Random) -> set[str]:
        """Write a file and load it; what was had of it."""
        kind = random.choice(sorted(KINDS))
        self._path.write_bytes(spoil(self._whole[kind], random))
        return run_bounded(self._path)
