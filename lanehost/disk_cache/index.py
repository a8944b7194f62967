"""Which prefixes have files: all entries of the folder, in memory; pure.

An entry is found by the key of its whole prefix, and by nothing shorter: a state that goes
further than what a prompt shares with it is not this prompt's (`lanehost.cache.prompt_cache`
knows better for blocks in memory, which it can cut).

Law: a prefix is found only if scope and every token agree, compared and not trusted to a hash;
a match leaves at least one token to run and ends inside no image; an entry in use is never a
victim; what is kept never takes more than the budget, with what was moved aside; uses are
counted, and no clock is read, so none can make an entry old.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from heapq import heapify, heappop

from lanehost.disk_cache.identity import prefix_keys, scope_digest
from lanehost.disk_cache.interface import FileName
from lanehost.disk_cache.manifest import Manifest
from lanehost.image_ids import ends_inside

# After so many uses of others an entry that was not used itself is worth half.
_HALF_LIFE_USES = 256
# Ranks keep as many files each that were moved aside.
MAX_ASIDE = 2


@dataclass(slots=True, kw_only=True, eq=False)
class DiskEntry:
    """One entry. Owned and changed by `DiskIndex` alone.

    Attributes:
        manifest: What is on disk of it, hits and last use as of now.
        num_users: Who works with its files now.
        is_dirty: Whether hits and last use are not on disk yet.
    """

    manifest: Manifest
    num_users: int = 0
    is_dirty: bool = False

    def __repr__(self) -> str:
        header = self.manifest.header
        return f"<DiskEntry {header.key[:8]} {header.num_tokens} tokens, {self.num_users} users>"

    @property
    def name(self) -> FileName:
        """How its files are named."""
        return self.manifest.header.name

    @property
    def num_tokens(self) -> int:
        """Tokens that it covers."""
        return self.manifest.header.num_tokens


class DiskIndex:
    """All entries, and what they take of the budget."""

    def __init__(self, layout: str, *, block_size: int, budget_bytes: int) -> None:
        """Begin empty.

        Args:
            layout: Of the states that this server can use; entries of others only take room.
            block_size: Positions in a block.
            budget_bytes: The most that all files may take.
        """
        self._layout = layout
        self._block_size = block_size
        self._budget_bytes = budget_bytes
        self._entries: dict[FileName, DiskEntry] = {}
        self._by_key: dict[str, DiskEntry] = {}
        self._num_bytes = 0
        self._aside: deque[int] = deque(maxlen=MAX_ASIDE)
        self._uses = 0

    def __repr__(self) -> str:
        return f"<DiskIndex {len(self._entries)} entries, {self._num_bytes} bytes>"

    def __iter__(self) -> Iterator[DiskEntry]:
        return iter(self._entries.values())

    @property
    def num_entries(self) -> int:
        """Entries, those of other layouts included."""
        return len(self._entries)

    @property
    def num_bytes(self) -> int:
        """What their files take, on all ranks."""
        return self._num_bytes

    @property
    def aside_bytes(self) -> int:
        """What files take that were moved aside, at most."""
        return sum(self._aside)

    def note_aside(self, num_bytes: int) -> None:
        """Count files of an entry, on all ranks, that were moved aside; the oldest go for them."""
        self._aside.append(num_bytes)

    def forget_aside(self) -> None:
        """Count nothing any more that was moved aside: it is gone."""
        self._aside.clear()

    @property
    def budget_bytes(self) -> int:
        """The most that they may take."""
        return self._budget_bytes

    def add(self, manifest: Manifest) -> DiskEntry:
        """Take an entry in that is on disk; one of the same name has its place taken.

        The budget is not looked at: what is on disk is there. See `victims`.
        """
        if (before := self._entries.get(manifest.header.name)) is not None:
            self.remove(before)
        entry = DiskEntry(manifest=manifest)
        self._entries[entry.name] = entry
        self._num_bytes += manifest.num_bytes
        self._uses = max(self._uses, manifest.used)
        if manifest.header.layout == self._layout:
            self._by_key[manifest.header.key] = entry
        return entry

    def remove(self, entry: DiskEntry) -> None:
        """Forget an entry."""
        del self._entries[entry.name]
        self._num_bytes -= entry.manifest.num_bytes
        if self._by_key.get(entry.name.key) is entry:
            del self._by_key[entry.name.key]

    def find(self, scope: str, token_ids: tuple[int, ...]) -> DiskEntry | None:
        """Return the entry that covers most of a prompt, and leaves a token to run."""
        owner = scope_digest(scope)
        usable = token_ids[: (len(token_ids) - 1) // self._block_size * self._block_size]
        keys = prefix_keys(self._layout, owner, usable, block_size=self._block_size)
        for num_blocks in range(len(keys), 0, -1):
            entry = self._by_key.get(keys[num_blocks - 1])
            if entry is None or ends_inside(token_ids, num_blocks * self._block_size):
                continue
            prefix = usable[: num_blocks * self._block_size]
            if (entry.manifest.owner, entry.manifest.token_ids) == (owner, prefix):
                return entry
        return None

    def covers(self, name: FileName) -> bool:
        """Say whether there is an entry of this name."""
        return name in self._entries

    def note_hit(self, entry: DiskEntry) -> None:
        """Count a use."""
        self._uses += 1
        manifest = entry.manifest
        entry.manifest = replace(manifest, hits=manifest.hits + 1, used=self._uses)
        entry.is_dirty = True

    @property
    def uses(self) -> int:
        """Uses of all entries so far, those of earlier servers included."""
        return self._uses

    def victims(self, num_bytes: int) -> tuple[DiskEntry, ...] | None:
        """Return whose going makes room for so many bytes, least worth first; None: nobody's."""
        num_bytes += self.aside_bytes
        over = self._num_bytes + num_bytes - self._budget_bytes
        if num_bytes > self._budget_bytes or over <= 0:
            return () if over <= 0 else None
        chosen = self._least_worth(over)
        return chosen if sum(one.manifest.num_bytes for one in chosen) >= over else None

    def beyond(self, num_bytes: int) -> tuple[DiskEntry, ...]:
        """Return who must go, least worth first, for the files to take no more than so many bytes.

        What was moved aside counts with them; entries in use stay.
        """
        return self._least_worth(self._num_bytes + self.aside_bytes - num_bytes)

    def _least_worth(self, num_bytes: int) -> tuple[DiskEntry, ...]:
        """Return idle entries that take so many bytes, or all of them.

        Of several with one worth, who was used last goes last.
        """
        chosen: list[DiskEntry] = []
        # With a number: of entries nobody can say which is less.
        turns = [(self._worth(entry), at, entry) for at, entry in enumerate(self._idle())]
        heapify(turns)
        while num_bytes > 0 and turns:
            chosen.append(heappop(turns)[-1])
            num_bytes -= chosen[-1].manifest.num_bytes
        return tuple(chosen)

    def of_scope(self, scope: str) -> tuple[DiskEntry, ...]:
        """Return every entry that is this scope's."""
        owner = scope_digest(scope)
        return tuple(entry for entry in self if entry.manifest.owner == owner)

    def _idle(self) -> Iterable[DiskEntry]:
        return (entry for entry in self if entry.num_users == 0)

    def _worth(self, entry: DiskEntry) -> tuple[float, int]:
        """Hits times tokens by bytes, halved with age; one never hit counts as half a hit."""
        manifest = entry.manifest
        age = (self._uses - manifest.used) / _HALF_LIFE_USES
        hits = max(manifest.hits, 0.5) * 2.0 ** -min(age, 64.0)
        return hits * manifest.header.num_tokens / max(manifest.num_bytes, 1), manifest.used
