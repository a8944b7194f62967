"""A disk tier over a fake disk, for tests."""

from dataclasses import replace
from itertools import count

from lanehost.disk_cache.fetches import Fetch
from lanehost.disk_cache.index import DiskIndex
from lanehost.disk_cache.saves import Save
from lanehost.disk_cache.tier import DiskTier
from tests.support.disk_entries import MODEL, SIZE, manifest_of
from tests.support.fake_files import BYTES_PER_TOKEN, FakeDisk, FakeFiles, FakeShelf


class TierRig:
    """A tier, its shelf, the ranks' files, and what became of saves and fetches."""

    def __init__(self, disk: FakeDisk | None = None, *, budget: int = 1000) -> None:
        self.disk = disk or FakeDisk()
        self.index = DiskIndex(MODEL.layout, block_size=SIZE, budget_bytes=budget)
        for manifest in self.disk.manifests.values():
            self.index.add(manifest)
        self.now_s = 100.0
        self.shelf = FakeShelf(self.disk)
        self.tier = DiskTier(self.index, self.shelf, clock=lambda: self.now_s)
        self.shelf.tell(self.tier.take)
        self.released: list[tuple[int, ...]] = []
        self.fetched: list[bool] = []
        self.rows: dict[int, tuple[int, ...]] = {}
        self._block_ids = count(1000)
        self.new_ranks()

    def new_ranks(self) -> None:
        self.files = FakeFiles(
            self.disk, read=lambda block: self.rows.get(block, ()), write=self.rows.__setitem__
        )
        self.files.tell(self.tier.take)
        self.tier.begin_epoch(self.files)

    def lose_ranks(self) -> None:
        self.files.lose()
        self.tier.end_epoch()

    def save(self, token_ids, *, scope="s") -> None:
        manifest = manifest_of(token_ids, scope=scope)
        blocks = tuple(next(self._block_ids) for _ in range(len(token_ids) // SIZE))
        for at, block in enumerate(blocks):
            self.rows[block] = tuple(token_ids[at * SIZE : (at + 1) * SIZE])
        self.tier.save(
            Save(
                manifest=replace(manifest, rank_bytes=(0,)),
                block_ids=blocks,
                num_bytes=len(token_ids) * BYTES_PER_TOKEN,
                release=lambda: self.released.append(tuple(token_ids)),
            )
        )

    def fetch(self, token_ids, *, scope="s", blocks=(50, 51, 52, 53)) -> bool:
        """Fetch what the disk has of a prompt; False when nothing begins."""
        entry = self.tier.find(scope, tuple(token_ids))
        if entry is None:
            return False
        held = None if blocks is None else blocks[: entry.num_tokens // SIZE]
        return self.tier.fetch(
            Fetch(entry=entry, take_blocks=lambda: held, on_done=self.fetched.append)
        )

    def settle(self) -> None:
        """Let all come back that is in flight, and what follows from it."""
        while self.files.waiting or self.shelf.waiting:
            self.files.let_all_back()
            self.shelf.let_all_back()

    def saved(self, token_ids, *, scope="s") -> None:
        self.save(token_ids, scope=scope)
        self.settle()
