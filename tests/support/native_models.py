"""Native models again, with another engine than the loader chose."""

from ranks.models.native_llama import NativeLlama
from ranks.native.library import NativeEngine, open_library
from ranks.native.parts import Engine
from ranks.native.reference_engine import ReferenceEngine
from ranks.shards import cut_shards


def with_engine(model: NativeLlama, engine: Engine) -> NativeLlama:
    """The same weights of a rank that holds all shards, run by `engine`."""
    return NativeLlama(
        model.config,
        shards=cut_shards(model.config.num_heads, rank=0, world_size=1),
        parts=model._parts,
        engine=engine,
        num_threads=1,
    )


def in_numpy(model: NativeLlama) -> NativeLlama:
    """Run by numpy."""
    return with_engine(model, ReferenceEngine(model._parts.shape, model._parts.layers))


def in_library(model: NativeLlama, instruction_set: str, num_threads: int = 1) -> NativeLlama:
    """Run by the library, with a set of instructions."""
    parts = model._parts
    return with_engine(
        model,
        NativeEngine(
            open_library(instruction_set), parts.shape, parts.layers, num_threads=num_threads
        ),
    )
