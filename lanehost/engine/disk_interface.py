"""What the engine asks of the disk tier; without `--disk-cache` there is one that does nothing."""

from typing import Protocol

from lanehost.admission.fetcher import Fetcher, NoFetcher
from lanehost.cache.blocks import BlockPool
from lanehost.cache.lender import Lender, NoLender
from lanehost.cache.prompt_cache import Entry, PromptCache
from lanehost.disk_cache.interface import RankFiles
from lanehost.disk_cache.tier import DiskTier
from lanehost.engine.inbox import DiskWatch, FetchLate, FileNews
from lanehost.job import Job
from lanehost.lanes.lane import Lane
from lanehost.lanes.table import LaneTable


class Disk(Fetcher, Lender, Protocol):
    """The disk tier, as the engine's loop sees it; it returns at once."""

    @property
    def tier(self) -> DiskTier | None:
        """The tier, to look at and to ask; None: there is none."""
        ...

    @property
    def is_quiet(self) -> bool:
        """Whether nothing is on its way to or from the disk."""
        ...

    def begin(self, lanes: LaneTable, blocks: BlockPool, cache: PromptCache) -> None:
        """Go on with what the engine holds of an epoch; `ask` tells of its ranks."""
        ...

    def ask(self, files: RankFiles | None) -> None:
        """Ask the ranks of this epoch from here on; None: they have no files."""
        ...

    def end(self) -> None:
        """Forget the epoch: its blocks are gone, and nothing comes of what its ranks do."""
        ...

    def hear(self, news: FileNews | FetchLate | DiskWatch) -> None:
        """Take what became of a work, or that it is time to ask no longer."""
        ...

    def count_seated(self, lane: Lane) -> int:
        """Return how many of the cached tokens of a lane's job came from the disk for it."""
        ...

    def save(self, job: Job, token_ids: tuple[int, ...], entry: Entry | None) -> None:
        """Save of a job that has ended what is worth files; `entry` covers what it computed."""
        ...

    def forget(self, job_id: str) -> None:
        """Forget a job that has ended."""
        ...

    def close(self) -> None:
        """Have written what is not on disk yet: the engine has ended."""
        ...


class NoDisk(NoFetcher, NoLender):
    """Implements `Disk`: there is none."""

    @property
    def tier(self) -> DiskTier | None:
        """There is none."""
        return None

    @property
    def is_quiet(self) -> bool:
        """It always is."""
        return True

    def begin(self, lanes: LaneTable, blocks: BlockPool, cache: PromptCache) -> None:
        """Take no note."""

    def ask(self, files: RankFiles | None) -> None:
        """Take no note."""

    def end(self) -> None:
        """Take no note."""

    def hear(self, news: FileNews | FetchLate | DiskWatch) -> None:
        """Take no note."""

    def count_seated(self, lane: Lane) -> int:
        """Nothing comes from a disk."""
        del lane
        return 0

    def save(self, job: Job, token_ids: tuple[int, ...], entry: Entry | None) -> None:
        """Save nothing."""

    def forget(self, job_id: str) -> None:
        """Take no note."""

    def close(self) -> None:
        """Take no note."""
