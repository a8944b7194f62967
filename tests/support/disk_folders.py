"""A folder of the prompt cache as servers leave it: manifests, and files that ranks wrote."""

from pathlib import Path

from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.manifests import write_manifest
from ranks.wire import file_messages as wire
from tests.support.disk_entries import manifest_of
from tests.support.disk_files import BLOCK_SIZE, disk_rank

BIG_BLOCKS = 3


def entry_in(folder: Path, *, first: int = 0, scope: str = "s", hits: int = 0) -> Manifest:
    """Write an entry of one rank, with its manifest."""
    token_ids = range(first, first + BIG_BLOCKS * BLOCK_SIZE)
    manifest = manifest_of(token_ids, scope=scope, hits=hits)
    header = manifest.header
    rank = disk_rank(folder, seed=first)
    done = rank.save(
        tuple(range(BIG_BLOCKS)),
        wire.FileHeader(
            name=wire.FileName(layout=header.layout, key=header.key),
            num_tokens=header.num_tokens,
            tokens_digest=header.tokens_digest,
        ),
    )
    assert done.fault is None
    write_manifest(folder, manifest)
    return manifest


def file_of(folder: Path, manifest: Manifest) -> Path:
    header = manifest.header
    return folder / header.layout / f"{header.key}.r0of1.safetensors"
