"""What ranks must agree on before they are a group; pure.

Laws: a rank that is not of this group is refused at Hello; a group whose ranks loaded
different things is refused before its first collective. Either by name, with both values.
"""

import hmac
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from lanehost.errors import StartupFailed
from lanehost.rank_group.facts import GroupFacts, ImageFacts
from lanehost.settings import RankGroupSettings
from ranks.wire.follow_messages import Join
from ranks.wire.messages import Form, Hello, Loaded

# The KV pool that the master chooses by itself: at least this much for every lane.
_TOKENS_PER_LANE = 512
# What is free is the reading of one moment. A pool that nobody asked for leaves 40 % of it
# to the other programs of the machine and to the pages of the weights that it caches; one
# that was asked for still leaves a tenth, because what a step takes is an estimate.
_UNASKED_OF_FREE = 0.6
_ASKED_OF_FREE = 0.9
# What every rank must have loaded alike; each is a field of Loaded.
_MUST_AGREE = (
    "weights_digest",
    "config_digest",
    "vocab_size",
    "context_length",
    "dtype",
    "device",
    "collective",
    "weights",
    "num_layers",
    "image_facts",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a rank must say at Hello; the token is kept out of the repr."""

    world_size: int
    build: str
    token: str = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a Hello was refused.

    `is_ours` tells a rank that was started for this group, and cannot join it, from a
    stranger: the start fails for the one, and goes on for the other.
    """

    reason: str
    is_ours: bool


def refuse_hello(hello: Hello, terms: Terms, expected: Collection[int]) -> Refusal | None:
    """Say why who dials is not of this group, or None when it is; `expected` may dial."""
    if not hmac.compare_digest(hello.token.encode(), terms.token.encode()):
        return Refusal(reason="the token is not this group's", is_ours=False)
    if hello.rank < terms.world_size and hello.rank not in expected:
        return Refusal(reason=f"rank {hello.rank} has dialled already", is_ours=False)
    if hello.build != terms.build:
        reason = f"rank {hello.rank} runs build {hello.build}, the master runs {terms.build}"
    elif hello.world_size != terms.world_size:
        reason = (
            f"rank {hello.rank} believes in {hello.world_size} ranks, "
            f"the master in {terms.world_size}"
        )
    elif hello.rank >= terms.world_size:
        reason = f"rank {hello.rank} dialled, there are ranks 0 to {terms.world_size - 1}"
    else:
        return None
    return Refusal(reason=reason, is_ours=True)


def refuse_join(
    join: Join, terms: Terms, *, followed: Collection[int], taken: Join | None
) -> str | None:
    """Say why an agent is not of this group, or None when it is.

    Args:
        join: What it said of itself.
        terms: What it must say.
        followed: The ranks that agents hold.
        taken: What the agent said that holds this rank already.
    """
    who = f"the agent of rank {join.rank} on {join.host}"
    if join.build != terms.build:
        return f"{who} runs build {join.build}, the master runs {terms.build}"
    if join.world_size != terms.world_size:
        return f"{who} believes in {join.world_size} ranks (--tp), the master in {terms.world_size}"
    if join.rank not in followed:
        return f"{who} is none of this group: agents hold rank {_names(followed)}"
    if taken is not None and taken.node_id != join.node_id:
        return (
            f"rank {join.rank} is followed on {taken.host} (pid {taken.pid}) already, "
            f"{join.host} (pid {join.pid}) asks for it too"
        )
    return None


def start_status(
    *,
    said_hello: Collection[int],
    loaded: Collection[int],
    world_size: int,
    unfollowed: Collection[int] = (),
) -> str:
    """Say who is awaited: "have 1 of 2 ranks, missing rank 1", or who still loads.

    `unfollowed` are the ranks of other hosts from which no agent has dialled.
    """
    missing = _names(set(range(world_size)) - set(said_hello))
    loading = _names(set(said_hello) - set(loaded))
    status = f"have {len(said_hello)} of {world_size} ranks"
    if missing:
        status += f", missing rank {missing}"
    if loading:
        status += f", rank {loading} still loads"
    if unfollowed:
        status += f"; no agent has dialled for rank {_names(unfollowed)} (lanehost follow)"
    return status


def check_agreement(loaded: Mapping[int, Loaded]) -> None:
    """Check that all ranks loaded the same model in the same way.

    Raises:
        StartupFailed: Two ranks differ; the message names the field and both values.
    """
    leader = loaded[0]
    for rank, other in sorted(loaded.items()):
        for name in _MUST_AGREE:
            mine, theirs = getattr(leader, name), getattr(other, name)
            if mine != theirs:
                raise StartupFailed(
                    f"ranks disagree on {name}: rank 0 has {mine!r}, rank {rank} has {theirs!r}"
                )


def check_replacement(first: Loaded, now: Loaded) -> str | None:
    """Say how a rank differs from what its number loaded for the first epoch, None if in nothing.

    Replies go on over it, so it must compute the very same.
    """
    for name in (*_MUST_AGREE, "geometry", "kv_bytes_per_block"):
        before, after = getattr(first, name), getattr(now, name)
        if before != after:
            return f"has {name} {after!r}, the first epoch had {before!r}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageRoom:
    """Rows that a staged pass may have, and rows of images that are kept; 0 for no images."""

    max_staged_tokens: int = 0
    image_cache_tokens: int = 0


def choose_image_room(settings: RankGroupSettings, loaded: Mapping[int, Loaded]) -> ImageRoom:
    """Choose the room for images of the group: what was asked, where the model takes any.

    Raises:
        StartupFailed: One image does not fit.
    """
    facts = loaded[0].image_facts
    if facts is None:
        return ImageRoom()
    for name, limit in (
        ("--staged-rows", settings.max_staged_tokens),
        ("--image-cache-tokens", settings.image_cache_tokens),
    ):
        if limit < facts.num_tokens:
            raise StartupFailed(
                f"{name} is {limit}: an image of this model has {facts.num_tokens} tokens"
            )
    return ImageRoom(
        max_staged_tokens=settings.max_staged_tokens,
        image_cache_tokens=settings.image_cache_tokens,
    )


def choose_num_blocks(settings: RankGroupSettings, loaded: Mapping[int, Loaded]) -> int:
    """Choose the KV blocks of the group: what was asked, or what fits the smallest rank.

    A rank must hold the pool and what its largest step takes.

    Raises:
        StartupFailed: What was asked, or a single block, does not fit.
    """
    asked = settings.kv_tokens
    if asked is None:
        return _choose_unasked(settings, loaded)
    num_blocks = asked // settings.block_size
    for rank, facts in sorted(loaded.items()):
        pool = num_blocks * facts.kv_bytes_per_block
        longest = min(num_blocks, -(-facts.context_length // settings.block_size))
        step = facts.step_bytes + longest * facts.step_bytes_per_block
        if pool + step > facts.free_bytes * _ASKED_OF_FREE:
            raise StartupFailed(
                f"--kv-tokens is {asked}: rank {rank} needs {pool} bytes for its KV pool and "
                f"{step} for a step, it has {facts.free_bytes} free and may take "
                f"{_ASKED_OF_FREE:.0%} of them"
            )
    return num_blocks


def _choose_unasked(settings: RankGroupSettings, loaded: Mapping[int, Loaded]) -> int:
    wanted = max(loaded[0].context_length, _TOKENS_PER_LANE * settings.num_lanes)
    fitting = {
        rank: (int(facts.free_bytes * _UNASKED_OF_FREE) - facts.step_bytes)
        // (facts.kv_bytes_per_block + facts.step_bytes_per_block)
        for rank, facts in loaded.items()
    }
    smallest = min(fitting, key=lambda rank: fitting[rank])
    if fitting[smallest] < 1:
        facts = loaded[smallest]
        raise StartupFailed(
            f"no KV block fits: rank {smallest} has {facts.free_bytes} bytes free, may take "
            f"{_UNASKED_OF_FREE:.0%} of them, and needs {facts.step_bytes} for a step and "
            f"{facts.kv_bytes_per_block + facts.step_bytes_per_block} for a block"
        )
    return min(fitting[smallest], -(-wanted // settings.block_size))


def group_facts(
    settings: RankGroupSettings, loaded: Mapping[int, Loaded], form: Form
) -> GroupFacts:
    """Join what all agreed on into the facts of the group."""
    leader = loaded[0]
    return GroupFacts(
        epoch=form.epoch,
        world_size=settings.tp,
        weights_digest=leader.weights_digest,
        config_digest=leader.config_digest,
        vocab_size=leader.vocab_size,
        context_length=leader.context_length,
        num_lanes=form.num_lanes,
        num_blocks=form.num_blocks,
        block_size=form.block_size,
        max_step_tokens=form.max_step_tokens,
        dtype=leader.dtype,
        device=leader.device,
        collective=leader.collective,
        kv_bytes_per_block=sum(facts.kv_bytes_per_block for facts in loaded.values()),
        weights=leader.weights,
        # Hosts of unlike processors may serve together.
        kv_layout=" | ".join(dict.fromkeys(loaded[rank].kv_layout for rank in sorted(loaded))),
        num_layers=leader.num_layers,
        images=_image_facts(leader),
        max_staged_tokens=form.max_staged_tokens,
        image_cache_tokens=form.image_cache_tokens,
    )


def _image_facts(leader: Loaded) -> ImageFacts | None:
    facts = leader.image_facts
    if facts is None:
        return None
    return ImageFacts(
        num_tokens=facts.num_tokens,
        token_id=facts.token_id,
        width=facts.width,
        height=facts.height,
    )


def _names(ranks: Collection[int]) -> str:
    return ", ".join(map(str, sorted(ranks)))
