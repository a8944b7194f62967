"""Between the disk tier and what the engine holds: which job waits for a fetch, what is saved.

A fetched prefix becomes an entry of the memory tier, in blocks that were taken for it; the job
that waited finds it there like any other. A save holds the entry that it reads.

Laws: a job is held up for one fetch an epoch, and for `FETCH_TIMEOUT_S` at most: then it goes on
without, and while a disk is that late nobody waits for it, nor for the blocks of its fetch: lanes
park as if these were not there; blocks that ranks may still write are nobody else's, however late;
saves hold a quarter of the blocks at most, or those of one, and give them up to lanes and jobs
that have none left.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from itertools import count

from lanehost.cache.blocks import BlockPool
from lanehost.cache.prompt_cache import Entry, PromptCache
from lanehost.disk_cache.fetches import Fetch
from lanehost.disk_cache.identity import prefix_keys, scope_digest, tokens_digest
from lanehost.disk_cache.index import DiskEntry
from lanehost.disk_cache.interface import FileHeader, FileName, RankFiles
from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.policy import Computed, DiskPolicy
from lanehost.disk_cache.saves import Save
from lanehost.disk_cache.tier import DiskTier
from lanehost.engine.inbox import DiskWatch, FetchLate, FileNews, Inbox
from lanehost.job import DiskUse, Job
from lanehost.lanes.lane import Lane
from lanehost.lanes.sequence import Sequence
from lanehost.lanes.table import LaneTable

FETCH_TIMEOUT_S = 10.0
# Where nothing has come back for so long, nobody waits for it at the end.
STUCK_AFTER_S = 10.0
# Of the blocks, what saves may hold together.
_SAVED_PART = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskParts:
    """What the disk side is made of.

    Attributes:
        tier: Files and manifests.
        policies: What is worth files, by what the request says.
        layout: The layout fingerprint of this server's states.
        bytes_per_block: What a block takes on all ranks.
    """

    tier: DiskTier
    policies: dict[DiskUse, DiskPolicy]
    layout: str
    bytes_per_block: int


@dataclass(frozen=True, slots=True)
class Flushed:
    """How many prefixes left memory and disk, and how many leave it once nobody works with them."""

    num_in_memory: int
    num_on_disk: int
    num_in_use: int


@dataclass(slots=True, eq=False)
class _Waiting:
    """What is known of a job that was looked up: tokens in memory then, tokens fetched since."""

    is_held_up: bool = False
    num_in_memory: int = 0
    num_fetched: int = 0


@dataclass(slots=True, eq=False)
class _Fetching:
    """A fetch that has not ended: who waited for it, whether it has blocks, whether it is late."""

    known: _Waiting
    is_filling: bool = False
    is_late: bool = False


@dataclass(frozen=True, slots=True)
class _Held:
    """What the engine holds of one epoch."""

    lanes: LaneTable
    blocks: BlockPool
    cache: PromptCache


class EngineDisk:
    """Implements `lanehost.engine.disk_interface.Disk`; owned by the engine's loop."""

    def __init__(
        self,
        parts: DiskParts,
        inbox: Inbox,
        *,
        call_later: Callable[[float, Callable[[], None]], object],
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin without an epoch.

        Args:
            parts: What it is made of.
            inbox: Where the engine hears of what is late.
            call_later: Has something called after so many seconds.
            wall_clock: Seconds since 1970, for what people read.
        """
        self._parts = parts
        self._tier = parts.tier
        self._inbox = inbox
        self._call_later = call_later
        self._wall_clock = wall_clock
        self._held: _Held | None = None
        self._jobs: dict[str, _Waiting] = {}
        # Block → how many saves read it.
        self._saved: Counter[int] = Counter()
        self._fetching: dict[int, _Fetching] = {}
        self._fetch_ids = count()
        self._num_news = 0
        self._is_watched = self._is_stuck = False

    def __repr__(self) -> str:
        return f"<EngineDisk {self._tier!r} {len(self._jobs)} jobs>"

    @property
    def tier(self) -> DiskTier:
        """The tier, to look at and to ask."""
        return self._tier

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way to or from the disk, or all that is has got stuck."""
        return self._is_stuck or self._tier.is_quiet

    @property
    def is_lending(self) -> bool:
        """Whether a fetch fills blocks now, and is not late."""
        return any(one.is_filling and not one.is_late for one in self._fetching.values())

    @property
    def is_late(self) -> bool:
        """Whether a fetch is late that fills blocks."""
        return any(one.is_filling and one.is_late for one in self._fetching.values())

    def recall(self) -> bool:
        """Give up all saves; says whether there was one."""
        return self._tier.recall_saves()

    def begin(self, lanes: LaneTable, blocks: BlockPool, cache: PromptCache) -> None:
        """Go on with what the engine holds of an epoch."""
        self._held = _Held(lanes, blocks, cache)

    def ask(self, files: RankFiles | None) -> None:
        """Ask the ranks of this epoch from here on."""
        if files is not None:
            files.tell(self._inbox.put_file_news)
            self._tier.begin_epoch(files)
            self._watch()

    def end(self) -> None:
        """Forget the epoch."""
        self._tier.end_epoch()
        self._jobs.clear()

    def hear(self, news: FileNews | FetchLate | DiskWatch) -> None:
        """Take what became of a work, or that it is time to ask no longer."""
        match news:
            case FileNews(outcome=outcome):
                self._num_news, self._is_stuck = self._num_news + 1, False
                self._tier.take(outcome)
            case DiskWatch(num_news=num_news):
                self._is_watched = False
                self._is_stuck = num_news == self._num_news and not self._tier.is_quiet
                self._watch()
            case FetchLate(fetch_id=fetch_id):
                if (fetching := self._fetching.get(fetch_id)) is not None:
                    fetching.is_late, fetching.known.is_held_up = True, False
                    self._tier.note_late()

    def holds_up(self, head: Sequence, num_cached_tokens: int) -> bool:
        """Say whether a job waits for a prefix that is on its way; begin to bring it."""
        known = self._jobs.get(head.job.job_id)
        if known is None:
            known = self._jobs[head.job.job_id] = _Waiting(num_in_memory=num_cached_tokens)
            if head.job.disk_use is not DiskUse.OFF:
                known.is_held_up = self._look_up(head, known)
        return known.is_held_up

    def count_seated(self, lane: Lane) -> int:
        """Return how many of the cached tokens of a lane's job came from the disk for it."""
        known = self._jobs.get(lane.job.job_id)
        if known is None:
            return 0
        return max(min(known.num_fetched, lane.num_cached_tokens) - known.num_in_memory, 0)

    def forget(self, job_id: str) -> None:
        """Forget a job that has ended."""
        self._jobs.pop(job_id, None)

    def distrust(self, scope: str, token_ids: tuple[int, ...]) -> None:
        """Forget all that these tokens begin with, in memory too: it drew something else."""
        self._tier.distrust(scope, token_ids)
        cache = self.cache
        # With one token more: a look-up leaves one to run.
        prompt = (*token_ids, 0)
        while cache is not None and (borrow := cache.borrow(scope, prompt)) is not None:
            cache.forget(borrow.entry)
            cache.report(borrow)

    @property
    def cache(self) -> PromptCache | None:
        """The memory tier of this epoch."""
        return None if self._held is None else self._held.cache

    def flush(self, scope: str | None) -> Flushed:
        """Forget the prompts of a scope, of all when it is None, in memory and on disk."""
        num_on_disk, num_in_use = self._tier.flush(scope)
        num_in_memory = 0 if self.cache is None else self.cache.flush(scope)
        return Flushed(num_in_memory, num_on_disk, num_in_use)

    def verify(self, entry: DiskEntry, then: Callable[[bool], None]) -> bool:
        """Have all ranks verify an entry; says whether that has begun.

        `then` is called with whether it is whole; one that is not is moved aside.
        """
        is_whole = False

        def note_whole() -> None:
            nonlocal is_whole
            is_whole = True

        is_ours = entry.name.layout == self._parts.layout
        return is_ours and self._tier.fetch(
            Fetch(
                entry=entry,
                take_blocks=note_whole,
                on_done=lambda _: then(is_whole),
                gives_way=True,
            )
        )

    def close(self) -> None:
        """Have written how often entries were used: the engine has ended."""
        self._tier.write_uses()

    def save(self, job: Job, token_ids: tuple[int, ...], entry: Entry | None) -> None:
        """Save of a job that has ended what is worth files."""
        policy = self._parts.policies.get(job.disk_use)
        if entry is None or policy is None:
            return
        covered = token_ids[: len(entry.token_ids)]
        lengths = policy.lengths(
            Computed(
                scope=job.scope,
                token_ids=covered,
                num_prompt=len(job.prompt_ids),
                marks=job.marks,
            )
        )
        if lengths:
            self._save_all(job, covered, entry, lengths)

    def _watch(self) -> None:
        """Have it looked, after a while, whether anything comes back of what is on its way."""
        if self._is_watched or self._tier.is_quiet:
            return
        self._is_watched, seen = True, self._num_news
        self._call_later(STUCK_AFTER_S, lambda: self._inbox.put(DiskWatch(seen)))

    def _look_up(self, head: Sequence, known: _Waiting) -> bool:
        assert self._held is not None
        entry = self._tier.find(head.job.scope, head.identity_ids)
        if entry is None:
            return False
        if entry.num_tokens <= known.num_in_memory:
            self._tier.note_use(entry)
            return False
        if any(one.is_late for one in self._fetching.values()):
            return False
        fetch_id, fetching = next(self._fetch_ids), _Fetching(known)
        if not self._tier.fetch(self._fetch(head.job.scope, entry, fetch_id, fetching)):
            return False
        self._fetching[fetch_id] = fetching
        self._watch()
        self._call_later(FETCH_TIMEOUT_S, lambda: self._inbox.put(FetchLate(fetch_id)))
        return True

    def _fetch(self, scope: str, entry: DiskEntry, fetch_id: int, fetching: _Fetching) -> Fetch:
        assert self._held is not None
        held, known = self._held, fetching.known
        block_ids: tuple[int, ...] | None = None

        def take_blocks() -> tuple[int, ...] | None:
            nonlocal block_ids
            num_blocks = held.blocks.blocks_for(entry.num_tokens)
            # Each lane that runs may need its next one meanwhile.
            headroom = sum(lane.is_running for lane in held.lanes)
            if held.cache.make_room(num_blocks + headroom):
                block_ids = held.blocks.take(num_blocks)
                fetching.is_filling = True
            else:
                self._tier.counters.faults["no_blocks"] += 1
            return block_ids

        def end(is_done: bool) -> None:  # noqa: FBT001 - a callback's one argument
            known.is_held_up = False
            del self._fetching[fetch_id]
            if block_ids is None:
                return
            if is_done:
                held.cache.keep(scope, entry.manifest.token_ids, block_ids)
                known.num_fetched = entry.num_tokens
            held.blocks.give_back(block_ids)

        return Fetch(entry=entry, take_blocks=take_blocks, on_done=end)

    def _save_all(
        self, job: Job, token_ids: tuple[int, ...], entry: Entry, lengths: tuple[int, ...]
    ) -> None:
        assert self._held is not None
        size = self._held.blocks.block_size
        owner = scope_digest(job.scope)
        keys = prefix_keys(self._parts.layout, owner, token_ids[: lengths[0]], block_size=size)
        for num_tokens in lengths:
            key = keys[num_tokens // size - 1]
            # There may be very many, and each costs what it is long: asked before it is made.
            if not self._tier.takes(FileName(layout=self._parts.layout, key=key)):
                continue
            prefix = token_ids[:num_tokens]
            header = FileHeader(
                layout=self._parts.layout,
                key=key,
                num_tokens=num_tokens,
                tokens_digest=tokens_digest(prefix),
            )
            manifest = Manifest(
                header=header,
                owner=owner,
                token_ids=prefix,
                block_size=size,
                marks=tuple(mark for mark in job.marks if mark <= num_tokens),
                rank_bytes=(0,),
                hits=0,
                used=0,
                created_s=self._wall_clock(),
            )
            self._save(manifest, entry, self._held)

    def _save(self, manifest: Manifest, entry: Entry, held: _Held) -> None:
        num_blocks = manifest.header.num_tokens // held.blocks.block_size
        block_ids = entry.block_ids[:num_blocks]
        limit = held.blocks.num_blocks // _SAVED_PART
        # One that is larger than that may have it for itself.
        if self._saved and len(self._saved.keys() | set(block_ids)) > limit:
            self._tier.counters.dropped["memory"] += 1
            return
        borrow = held.cache.hold(entry, num_blocks)
        self._saved.update(block_ids)

        def release() -> None:
            # Those without a save go, so that what is left can be counted.
            self._saved = +(self._saved - Counter(block_ids))
            held.cache.report(borrow)

        self._tier.save(
            Save(
                manifest=manifest,
                block_ids=block_ids,
                num_bytes=num_blocks * self._parts.bytes_per_block,
                release=release,
            )
        )
        self._watch()
