"""Entries of the disk tier for tests."""

from lanehost.disk_cache.identity import ModelIdentity, prefix_keys, scope_digest, tokens_digest
from lanehost.disk_cache.interface import FileHeader
from lanehost.disk_cache.manifest import Manifest

SIZE = 4
MODEL = ModelIdentity(
    weights_digest="w",
    config_digest="c",
    text_digest="t",
    weights="float32",
    dtype="float32",
    device="cpu",
    kv_layout="fake",
    world_size=1,
    block_size=SIZE,
    build="1",
)


def manifest_of(token_ids, *, scope="s", model=MODEL, hits=0, used=0, num_bytes=100) -> Manifest:
    owner, layout = scope_digest(scope), model.layout
    keys = prefix_keys(layout, owner, token_ids, block_size=model.block_size)
    return Manifest(
        header=FileHeader(
            layout=layout,
            key=keys[-1],
            num_tokens=len(token_ids),
            tokens_digest=tokens_digest(token_ids),
        ),
        owner=owner,
        token_ids=tuple(token_ids),
        block_size=model.block_size,
        marks=(),
        rank_bytes=(num_bytes,) * model.world_size,
        hits=hits,
        used=used,
        created_s=0.0,
    )
