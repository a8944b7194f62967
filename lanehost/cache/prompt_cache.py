"""The memory tier of the prompt cache: KV blocks of prefixes, kept for who comes later.

An entry is a prefix: the ids that its state covers, in whole blocks, and the blocks that hold
it. They are identity ids (`lanehost.image_ids`): token ids, and for an image what it is. Blocks
are shared by holders (`BlockPool`), so an entry, the lane that made it and the lanes that go on
from it share bytes, and a restore copies nothing.

Laws: a prefix is used only if scope and every token agree, compared and not trusted to a
hash; a look-up borrows, and a borrowed entry is never a victim; an entry removed while
borrowed is dead: out of look-ups at once, its blocks held until its last borrower has
reported; a match leaves at least one token to run, and never ends inside an image. Every
eviction frees a block, so what longer entries share stays until they have gone: room is made
from the ends. Of those that free one, superseded entries go first, then the least lately used.
"""

from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from enum import Enum
from hashlib import blake2b
from heapq import heapify, heappop, heappush
from itertools import count, islice
from struct import pack
from typing import NamedTuple

from lanehost.cache.blocks import BlockPool
from lanehost.image_ids import ends_inside, has_images, pack_ids

_KEY_BYTES = 16
# Sets blocks with images apart from those of token ids, whatever their bytes are.
_WITH_IMAGES = b"with images"


class EntryState(Enum):
    """Whether look-ups see an entry."""

    VISIBLE = "visible"
    DEAD = "dead"


class EntryKind(Enum):
    """Why a prefix is kept.

    STATE is what a sequence had come to; a longer entry that covers it supersedes it. MARK
    is where others are likely to part; nothing supersedes it.
    """

    STATE = "state"
    MARK = "mark"


@dataclass(slots=True, kw_only=True, eq=False)
class Entry:
    """One kept prefix. Owned and changed by `PromptCache` alone.

    Attributes:
        scope: Whose it is; nobody else's look-up sees it.
        token_ids: The identity ids of all that the state covers: a whole number of blocks.
        block_ids: The blocks that hold it.
        keys: The chained key of each block's prefix; see `chain_keys`.
        kind: Why it is kept; a state can become a mark.
        num_borrowers: Look-ups that have not reported.
        last_used: Rises with every use.
    """

    scope: str
    token_ids: tuple[int, ...]
    block_ids: tuple[int, ...]
    keys: tuple[bytes, ...]
    kind: EntryKind
    state: EntryState = EntryState.VISIBLE
    num_borrowers: int = 0
    last_used: int = 0

    def __repr__(self) -> str:
        return (
            f"<Entry {self.state.name} {self.kind.name} {len(self.token_ids)} tokens, "
            f"{self.num_borrowers} borrowers>"
        )


@dataclass(frozen=True, slots=True, eq=False)
class Borrow:
    """A hit: the blocks of the longest prefix, held until `PromptCache.report`."""

    entry: Entry
    block_ids: tuple[int, ...]
    num_tokens: int


@dataclass(slots=True)
class CacheCounters:
    """What became of entries, since the start; those that a lost group took along count nowhere."""

    kept: int = 0
    refreshed: int = 0
    evicted: int = 0


class _Turn(NamedTuple):
    """When an entry is evicted: superseded ones first, then the least recently used."""

    is_current: bool
    last_used: int
    entry: Entry


@dataclass(slots=True)
class _Index:
    """Chained key → the visible entries that cover the prefix it stands for."""

    by_key: dict[bytes, dict[int, Entry]] = field(default_factory=dict)

    def add(self, entry: Entry) -> None:
        for key in entry.keys:
            self.by_key.setdefault(key, {})[id(entry)] = entry

    def remove(self, entry: Entry) -> None:
        for key in entry.keys:
            covering = self.by_key[key]
            del covering[id(entry)]
            if not covering:
                del self.by_key[key]

    def covering(self, key: bytes) -> Collection[Entry]:
        return self.by_key.get(key, {}).values()


def chain_keys(scope: str, token_ids: tuple[int, ...], block_size: int) -> tuple[bytes, ...]:
    """Return a key for the prefix that ends with each whole block of `token_ids`.

    Each key hashes the one before it and the block's tokens; the first hashes the scope,
    length first, so that no scope and no tokens can be taken for one another.
    """
    name = scope.encode()
    key = blake2b(pack("<Q", len(name)) + name, digest_size=_KEY_BYTES).digest()
    keys: list[bytes] = []
    is_mixed = has_images(token_ids)
    for start in range(0, len(token_ids) - block_size + 1, block_size):
        ids = token_ids[start : start + block_size]
        person = _WITH_IMAGES if is_mixed and has_images(ids) else b""
        key = blake2b(key + pack_ids(ids), digest_size=_KEY_BYTES, person=person).digest()
        keys.append(key)
    return tuple(keys)


class PromptCache:
    """All entries of the memory tier, over the blocks of one pool."""

    def __init__(
        self, blocks: BlockPool, *, is_on: bool = True, counters: CacheCounters | None = None
    ) -> None:
        """Begin empty; one that is not on keeps nothing.

        Args:
            blocks: The pool.
            is_on: Whether anything is kept.
            counters: Those of a cache that this one takes the place of.
        """
        self._blocks = blocks
        self._is_on = is_on
        self._entries: dict[Entry, None] = {}
        # Its last block → the visible entry: no two end in one block.
        self._ending_in: dict[int, Entry] = {}
        self._dead: list[Entry] = []
        self._index = _Index()
        # Block → how many entries hold it, dead ones included.
        self._num_keeping: Counter[int] = Counter()
        self._uses = count(1)
        self.counters = counters or CacheCounters()

    def __repr__(self) -> str:
        return f"<PromptCache {len(self._entries)} entries, {self.num_kept_blocks} blocks>"

    @property
    def is_on(self) -> bool:
        """Whether anything is kept."""
        return self._is_on

    @property
    def num_entries(self) -> int:
        """Entries that look-ups see."""
        return len(self._entries)

    @property
    def num_dead(self) -> int:
        """Entries that are gone but for their last borrowers."""
        return len(self._dead)

    @property
    def num_kept_blocks(self) -> int:
        """Blocks that entries hold, dead ones included, each counted once."""
        return len(self._num_keeping)

    @property
    def num_borrowed_blocks(self) -> int:
        """Blocks that borrowed entries hold, dead ones included, each counted once."""
        return len(self._borrowed_ids())

    @property
    def num_dead_blocks(self) -> int:
        """Blocks that dead entries hold, each counted once; visible ones may hold them too."""
        return len(_block_ids(self._dead))

    def borrow(self, scope: str, token_ids: tuple[int, ...]) -> Borrow | None:
        """Find the longest kept prefix of a prompt that leaves a token to run.

        Of the entries that cover it, the shortest is borrowed: a mark that prompts go on
        from stays fresh, while the tails of others age.

        What is returned must be reported once the blocks have holders of their own.
        """
        block_size = self._blocks.block_size
        usable = token_ids[: (len(token_ids) - 1) // block_size * block_size]
        keys = chain_keys(scope, usable, block_size)
        for num_blocks in range(len(keys), 0, -1):
            if ends_inside(token_ids, num_blocks * block_size):
                continue
            entry = self._shortest(scope, usable[: num_blocks * block_size], keys[num_blocks - 1])
            if entry is not None:
                self._touch(entry)
                entry.num_borrowers += 1
                return Borrow(entry, entry.block_ids[:num_blocks], num_blocks * block_size)
        return None

    def hold(self, entry: Entry, num_blocks: int) -> Borrow:
        """Borrow the beginning of an entry that is known; reported like any other."""
        assert entry.state is EntryState.VISIBLE, f"{entry!r} is gone"
        entry.num_borrowers += 1
        return Borrow(entry, entry.block_ids[:num_blocks], num_blocks * self._blocks.block_size)

    def report(self, borrow: Borrow) -> None:
        """Give a borrow back; the last one of a dead entry frees it."""
        entry = borrow.entry
        assert entry.num_borrowers > 0, f"{entry!r} has no borrower"
        entry.num_borrowers -= 1
        if entry.state is EntryState.DEAD and entry.num_borrowers == 0:
            self._dead.remove(entry)
            self._let_go(entry)

    def keep(
        self,
        scope: str,
        token_ids: tuple[int, ...],
        block_ids: tuple[int, ...],
        *,
        kind: EntryKind = EntryKind.STATE,
    ) -> Entry | None:
        """Keep the whole blocks of a state; returns None when it has none.

        Nothing is kept when the cache is off. What an entry covers already is a refresh,
        and holds nothing anew; a mark is an entry of its own all the same, in the blocks
        of the one that covers it. A state that is kept again as a mark becomes one.

        Args:
            scope: Whose it is.
            token_ids: Every token that the state covers.
            block_ids: The block table that holds it, from position 0 on.
            kind: Why it is kept.
        """
        block_size = self._blocks.block_size
        num_blocks = len(token_ids) // block_size
        if num_blocks == 0 or not self._is_on:
            return None
        covered = token_ids[: num_blocks * block_size]
        keys = chain_keys(scope, covered, block_size)
        existing = self._shortest(scope, covered, keys[-1])
        if existing is not None:
            is_same = len(existing.keys) == num_blocks
            if kind is EntryKind.STATE or is_same:
                self._refresh(existing, kind)
                return existing
            block_ids = existing.block_ids
        held = block_ids[:num_blocks]
        entry = Entry(scope=scope, token_ids=covered, block_ids=held, keys=keys, kind=kind)
        self._add(entry)
        return entry

    def make_room(self, num_blocks: int) -> bool:
        """Evict until `num_blocks` blocks are free; says whether they are.

        Evicts nothing when even all victims together would not free enough.
        """
        if self._blocks.num_free >= num_blocks:
            return True
        if not self._could_free(num_blocks - self._blocks.num_free):
            return False
        turns = [self._turn(entry) for entry in self._entries if self._would_free(entry)]
        heapify(turns)
        while self._blocks.num_free < num_blocks:
            self._evict_next(turns)
        return True

    def clear(self) -> None:
        """Forget every entry; borrowed ones are dead until reported."""
        self.flush(None)

    def flush(self, scope: str | None) -> int:
        """Forget the entries of a scope, all when it is None; returns how many."""
        chosen = [entry for entry in self._entries if scope in (None, entry.scope)]
        for entry in chosen:
            self._remove(entry)
        return len(chosen)

    def forget(self, entry: Entry) -> None:
        """Remove one entry, for instance because its state turned out to be unusable."""
        if entry.state is EntryState.VISIBLE:
            self._remove(entry)

    def _shortest(self, scope: str, prefix: tuple[int, ...], key: bytes) -> Entry | None:
        """Return the shortest entry that covers a prefix; of two, the one used last."""
        covering = sorted(
            self._index.covering(key), key=lambda entry: (len(entry.keys), -entry.last_used)
        )
        # The first one agrees, unless two prefixes have one hash.
        for entry in covering:
            if entry.scope == scope and entry.token_ids[: len(prefix)] == prefix:
                return entry
        return None

    def _could_free(self, num_blocks: int) -> bool:
        """Say whether so many blocks would be free if all entries without borrowers went."""
        borrowed = self._borrowed_ids()
        evictable = (
            block_id
            for block_id, num_keeping in self._num_keeping.items()
            if self._blocks.num_holders(block_id) == num_keeping and block_id not in borrowed
        )
        return sum(1 for _ in islice(evictable, num_blocks)) == num_blocks

    def _evict_next(self, turns: list[_Turn]) -> None:
        """Evict who is next, and give the entry that it had kept from being evicted its turn."""
        # Its turn is as it was: what supersedes an entry is evicted after it.
        entry = heappop(turns).entry
        self._remove(entry)
        self.counters.evicted += 1
        still_held = (
            block for block in reversed(entry.block_ids) if self._blocks.num_holders(block)
        )
        behind = self._ending_in.get(next(still_held, -1))
        if behind is not None and self._would_free(behind):
            heappush(turns, self._turn(behind))

    def _would_free(self, entry: Entry) -> bool:
        """Say whether evicting it frees a block.

        Whoever holds a block holds those before it in the table that it came from: so an
        entry whose last block has another holder frees none.
        """
        return entry.num_borrowers == 0 and self._blocks.num_holders(entry.block_ids[-1]) == 1

    def _turn(self, entry: Entry) -> _Turn:
        return _Turn(not self._is_superseded(entry), entry.last_used, entry)

    def _is_superseded(self, entry: Entry) -> bool:
        """Say whether a longer entry covers all of a state."""
        return entry.kind is EntryKind.STATE and len(self._index.covering(entry.keys[-1])) > 1

    def _borrowed_ids(self) -> set[int]:
        entries = (*self._entries, *self._dead)
        return _block_ids(entry for entry in entries if entry.num_borrowers)

    def _add(self, entry: Entry) -> None:
        self._blocks.share(entry.block_ids)
        self._num_keeping.update(entry.block_ids)
        self._entries[entry] = None
        self._ending_in[entry.block_ids[-1]] = entry
        self._index.add(entry)
        self._touch(entry)
        self.counters.kept += 1

    def _refresh(self, entry: Entry, kind: EntryKind) -> None:
        if kind is EntryKind.MARK:
            entry.kind = EntryKind.MARK
        self._touch(entry)
        self.counters.refreshed += 1

    def _remove(self, entry: Entry) -> None:
        del self._entries[entry]
        del self._ending_in[entry.block_ids[-1]]
        self._index.remove(entry)
        entry.state = EntryState.DEAD
        if entry.num_borrowers:
            self._dead.append(entry)
        else:
            self._let_go(entry)

    def _let_go(self, entry: Entry) -> None:
        self._blocks.give_back(entry.block_ids)
        for block_id in entry.block_ids:
            self._num_keeping[block_id] -= 1
            if self._num_keeping[block_id] == 0:
                del self._num_keeping[block_id]

    def _touch(self, entry: Entry) -> None:
        entry.last_used = next(self._uses)


def _block_ids(entries: Iterable[Entry]) -> set[int]:
    return {block_id for entry in entries for block_id in entry.block_ids}
