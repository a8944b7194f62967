"""Which families there are, and how a checkpoint becomes a model on this rank."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Protocol

import structlog
import torch

from ranks.errors import BadCheckpoint
from ranks.gguf_header import shortened
from ranks.kv_store import KvStore
from ranks.models.gemma_loader import load_gemma
from ranks.models.llama import ImageEncoder
from ranks.models.llama_loader import load_llama
from ranks.models.native_llama import NativeLlama
from ranks.models.native_loader import load_native
from ranks.models.native_weights import MatrixReader, Weights, why_not_native, why_not_rounded
from ranks.models.passes import ImageFacts, PassState
from ranks.models.siglip import load_siglip
from ranks.models.state import StateTensor
from ranks.models.step_memory import StepLimits
from ranks.native.build import LIBRARY
from ranks.native.library import why_no_library
from ranks.noise import DrawnRow
from ranks.shards import Collective, Shards
from ranks.step_inputs import LaneRows
from ranks.weights.digests import digest_files
from ranks.weights.gguf_config import read_gguf_config
from ranks.weights.gguf_file import GgufFile
from ranks.weights.hf_config import read_hf_config
from ranks.weights.model_config import ModelConfig
from ranks.weights.reader import TensorReader, WeightSource
from ranks.weights.safetensors_folder import SafetensorsFolder

log = structlog.get_logger()

OnProgress = Callable[[int, int], None]


class CausalLM(Protocol):
    """This rank's part of a model."""

    config: ModelConfig
    geometry: str
    device: torch.device
    dtype: torch.dtype
    products: str
    weights: str
    kv_layout: str
    state: tuple[StateTensor, ...]
    images: ImageFacts | None

    @property
    def num_layers(self) -> int:
        """Layers of a pass."""
        ...

    def kv_bytes_per_block(self, block_size: int) -> int:
        """Bytes that one KV block needs on this rank, all layers together."""
        ...

    def step_bytes(self, limits: StepLimits) -> int:
        """Bytes that the largest step takes, whatever the length of its lanes."""
        ...

    def step_bytes_per_block(self, block_size: int, limits: StepLimits) -> int:
        """Bytes that the largest step takes for each block of its longest lane."""
        ...

    def new_kv_store(self, num_blocks: int, block_size: int) -> KvStore:
        """Make the KV store; the pool is zeroed."""
        ...

    def are_rows_exact(self) -> bool:
        """Whether a row has the same bits in any step, on this machine (ADR 2)."""
        ...

    def forward(
        self, rows: Sequence[LaneRows], kv: KvStore, collective: Collective
    ) -> torch.Tensor | None:
        """Run one step: float32 logits [num_draws, vocab] on the leader, None on followers.

        What is returned holds until the next forward. It is `begin`, `run_layers` of all
        layers and `finish`.
        """
        ...

    def begin(self, rows: Sequence[LaneRows], kv: KvStore) -> PassState:
        """Open a pass: its blocks, its masks, its embedding with the rows of images in place.

        Raises:
            ValueError: Rows do not fit their blocks, or the model runs no passes in slices.
        """
        ...

    def run_layers(
        self, state: PassState, first: int, stop: int, kv: KvStore, collective: Collective
    ) -> None:
        """Run the layers from `first` to before `stop`; slices give the bits of the whole.

        When it raises, `state` is as it was, and the same slice may be run again.

        Raises:
            ValueError: The slice does not go on where the pass stopped.
        """
        ...

    def finish(self, state: PassState, collective: Collective) -> torch.Tensor | None:
        """End a pass of which all layers were run: logits as `forward`.

        Raises:
            ValueError: Some layers were not run.
        """
        ...

    def encode_image(self, pixels: torch.Tensor) -> torch.Tensor:
        """Make an image's rows: uint8 [height, width, 3] → [tokens, hidden], in the model's dtype.

        They depend on the image alone: the same bits on every rank, for any number of threads.
        It may be called beside a step, from another thread.

        Raises:
            ValueError: The size is not that of `images`, or the family takes none.
        """
        ...

    def use_encoder(self, encoder: ImageEncoder) -> None:
        """Encode images with another encoder of the same weights, wherever it lies."""
        ...

    def draw_rows(self, logits: torch.Tensor, drawn: Sequence[DrawnRow]) -> list[int]:
        """The token that each of some rows of its logits draws, as `ranks.sampler.draw_rows`."""
        ...

    def parts_ns(self) -> dict[str, int]:
        """Nanoseconds of the parts of the last forward, by name, as far as they are known."""
        ...

    def num_stages(self) -> int:
        """Count what was computed so far; rises within `forward`, and from any thread."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A model's files: facts at once, tensors when asked."""

    path: Path
    config: ModelConfig
    source: WeightSource
    weight_files: tuple[Path, ...]

    def weights_digest(self, on_progress: Callable[[int], None] = lambda _done_bytes: None) -> str:
        """BLAKE2b over the bytes of all weight files, in hex; reads them whole.

        `on_progress` hears how many bytes are done.
        """
        return digest_files(list(self.weight_files), on_progress)

    def num_bytes(self) -> int:
        """Bytes of all weight files.

        Raises:
            BadCheckpoint: A file is gone.
        """
        try:
            return sum(path.stat().st_size for path in self.weight_files)
        except OSError as err:
            raise BadCheckpoint(f"{err.filename}: cannot be read: {err}") from err

    def config_digest(self, weights: Weights = Weights.AUTO) -> str:
        """BLAKE2b over the parsed config, and what its weights are rounded to, in hex.

        Weights that were rounded at load are another model's: with the digest of the files it
        names what was computed.
        """
        digest = self.config.digest()
        if not weights.is_rounded:
            return digest
        return blake2b(f"{digest} {weights}".encode(), digest_size=32).hexdigest()


def open_checkpoint(path: Path) -> Checkpoint:
    """Open a GGUF file or a folder with config.json and safetensors; loads no tensor.

    Raises:
        BadCheckpoint: The files cannot be used; the message names file and field.
    """
    with _naming(path):
        if path.is_dir():
            folder = SafetensorsFolder(path)
            config = read_hf_config(path / "config.json")
            files = tuple(folder.paths)
            return Checkpoint(path=path, config=config, source=folder, weight_files=files)
        if not path.is_file():
            raise BadCheckpoint(f"{path}: no such file or folder")
        file = GgufFile(path)
        config = read_gguf_config(path, file)
        return Checkpoint(path=path, config=config, source=file, weight_files=(path,))


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Name the files in an error of who knows a tensor or a field only, and bound its length."""
    try:
        yield
    except BadCheckpoint as err:
        message = shortened(str(err))
        if str(path) not in message:
            message = f"{path}: {message}"
        raise BadCheckpoint(message) from err


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    """Map `auto` or `float32` to the type to compute with.

    `auto` is bfloat16 on cuda and float32 elsewhere.

    Raises:
        ValueError: The name is not known.
    """
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    if name == "float32":
        return torch.float32
    raise ValueError(f"dtype is {name!r}, known are auto, float32 and int8")


def choose_products(
    name: str,
    device: torch.device,
    checkpoint: Checkpoint,
    *,
    weights: Weights = Weights.AUTO,
    library: Path = LIBRARY,
) -> torch.dtype:
    """Map what was asked for to the type to compute with, going by what the files hold.

    `int8` computes quantized weights as they are; without the native library in numpy, the
    same bits at a hundredth of the speed. `auto` is int8 where it can be had at speed, else
    as `choose_dtype`. Weights that are rounded at load are computed in int8, others that were
    asked for in their own type.

    Raises:
        ValueError: The name is not known.
        BadCheckpoint: What was asked for cannot be had of these weights or this device.
    """
    if weights is not Weights.AUTO:
        return _products_of(weights, name, device, checkpoint)
    if name not in ("auto", "int8"):
        return choose_dtype(name, device)
    reason = _why_not_cpu(device) or why_not_native(checkpoint.config, checkpoint.source)
    if name == "int8" and reason is not None:
        raise BadCheckpoint(f"--dtype int8 cannot be had: {reason}")
    if name == "auto" and reason is None:
        reason = why_no_library(library)
    if reason is None:
        return NativeLlama.dtype
    chosen = choose_dtype("auto", device)
    log.info("native_not_used", reason=reason, instead=str(chosen).removeprefix("torch."))
    return chosen


def _products_of(
    weights: Weights, name: str, device: torch.device, checkpoint: Checkpoint
) -> torch.dtype:
    chosen = torch.float32 if weights is Weights.FLOAT32 else NativeLlama.dtype
    own = str(chosen).removeprefix("torch.")
    if name not in ("auto", own):
        raise BadCheckpoint(f"--dtype is {name}, with --weights {weights} allowed is auto or {own}")
    if weights.is_rounded:
        reason = _why_not_cpu(device) or why_not_rounded(checkpoint.config, checkpoint.source)
        if reason is not None:
            raise BadCheckpoint(f"--weights {weights} cannot be had: {reason}")
    return chosen


def _why_not_cpu(device: torch.device) -> str | None:
    return None if device.type == "cpu" else f"the device is {device.type}, not the CPU"


def load_model(
    checkpoint: Checkpoint,
    *,
    shards: Shards,
    device: torch.device,
    dtype: torch.dtype,
    on_progress: OnProgress,
    weights: Weights = Weights.AUTO,
) -> CausalLM:
    """Load this rank's part; `dtype` is what `choose_products` gave for `weights`.

    `on_progress(done_bytes, total_bytes)` counts the checkpoint's tensors as they are
    done with, whole, whatever part of them this rank read.

    Raises:
        BadCheckpoint: A tensor is missing, unknown, misshapen or of an unsupported type.
    """
    config, source = checkpoint.config, checkpoint.source
    with torch.inference_mode(), _naming(checkpoint.path):
        if dtype == NativeLlama.dtype:
            # Norms and biases stay what they are in the file.
            reader = TensorReader(
                source, device=device, dtype=torch.float32, on_progress=on_progress
            )
            matrices = MatrixReader(source, reader, weights=weights, head_dim=config.head_dim)
            num_threads = torch.get_num_threads()
            return load_native(config, shards, reader, matrices, num_threads=num_threads)
        reader = TensorReader(source, device=device, dtype=dtype, on_progress=on_progress)
        load = load_llama if config.gemma is None else load_gemma
        return load(config, shards, reader)


def move_encoder(model: CausalLM, checkpoint: Checkpoint, device: torch.device) -> None:
    """Have a model that takes images encode them on another device than its own.

    There they are computed in the type that is `auto` for it; the rows are cast to the model's.

    Raises:
        BadCheckpoint: A tensor is missing, misshapen or of an unsupported type.
    """
    gemma = checkpoint.config.gemma
    assert gemma is not None, "a family without images"
    assert gemma.vision is not None, "a model without images"
    reader = TensorReader(
        checkpoint.source,
        device=device,
        dtype=choose_dtype("auto", device),
        on_progress=lambda _done_bytes, _total_bytes: None,
    )
    with torch.inference_mode(), _naming(checkpoint.path):
        model.use_encoder(load_siglip(gemma.vision, checkpoint.config.hidden_size, reader))
