"""Make the disk tier of a server from its settings and what its ranks agreed on."""

import asyncio
import time
from collections.abc import Callable

from lanehost.disk_cache.folder import Folder
from lanehost.disk_cache.identity import ModelIdentity
from lanehost.disk_cache.index import DiskIndex
from lanehost.disk_cache.policy import DiskMode, DiskPolicy, ModeKind
from lanehost.disk_cache.tier import DiskTier
from lanehost.engine.disk import DiskParts, EngineDisk
from lanehost.engine.inbox import Inbox
from lanehost.job import DiskUse
from lanehost.rank_group.facts import GroupFacts
from lanehost.settings import DiskSettings


def model_identity(facts: GroupFacts, *, text_digest: str, build: str) -> ModelIdentity:
    """Return all that a state's bytes depend on, of the model that these ranks have loaded.

    How ranks add is no part of it: it changes no bit.
    """
    return ModelIdentity(
        weights_digest=facts.weights_digest,
        config_digest=facts.config_digest,
        text_digest=text_digest,
        weights=facts.weights,
        dtype=facts.dtype,
        device=facts.device,
        kv_layout=facts.kv_layout,
        world_size=facts.world_size,
        block_size=facts.block_size,
        build=build,
    )


def build_disk(
    folder: Folder,
    settings: DiskSettings,
    facts: GroupFacts,
    identity: ModelIdentity,
    inbox: Inbox,
    *,
    clock: Callable[[], float] = time.monotonic,
) -> EngineDisk:
    """Make the engine's side of it, with what the folder holds."""
    size, layout = facts.block_size, identity.layout
    index = DiskIndex(layout, block_size=size, budget_bytes=settings.budget_bytes)
    for manifest in folder.found.manifests:
        index.add(manifest)
    index.note_aside(folder.found.aside_bytes)
    tier = DiskTier(index, folder, clock=clock)
    tier.counters.misses.update(folder.found.misses)
    folder.tell(inbox.put_file_news)
    parts = DiskParts(
        tier=tier,
        policies={
            DiskUse.DEFAULT: DiskPolicy(settings.mode, block_size=size),
            DiskUse.FULL: DiskPolicy(DiskMode(ModeKind.FULL), block_size=size),
        },
        layout=layout,
        bytes_per_block=facts.kv_bytes_per_block,
    )
    return EngineDisk(
        parts,
        inbox,
        call_later=lambda delay_s, call: asyncio.get_running_loop().call_later(delay_s, call),
    )
