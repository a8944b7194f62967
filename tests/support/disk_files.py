"""A small pool, the state that it holds, and the works of a rank on a folder of its own."""

from dataclasses import dataclass, replace
from pathlib import Path

import torch

from ranks.disk.file_works import Done, FileWorks
from ranks.disk.folder import FileCalls, Folder
from ranks.disk.snapshot import PoolLoan, bind
from ranks.kv_store import KvStore
from ranks.models.state import StateTensor, kv_state
from ranks.wire.file_messages import (
    AdoptFile,
    CheckFile,
    FileHeader,
    FileName,
    FileOrder,
    FileWork,
    SaveFile,
)

BLOCK_SIZE = 16
NUM_BLOCKS = 12

NAME = FileName(layout="1a" * 32, key="2b" * 32)
HEADER = FileHeader(name=NAME, num_tokens=3 * BLOCK_SIZE, tokens_digest="3c" * 32)


def state_of(head_dim: int) -> tuple[StateTensor, ...]:
    """The state of a model of two layers."""
    return kv_state(num_layers=2, num_kv_heads=3, head_dim=head_dim, dtype=torch.float16)


STATE = state_of(8)


def named(number: int) -> FileHeader:
    """The header of another entry."""
    return replace(HEADER, name=replace(NAME, key=f"{number:064x}"))


def new_store(*, seed: int | None = None, head_dim: int = 8) -> KvStore:
    """A pool of zeros, or of what a seed gives."""
    store = KvStore(
        num_layers=2,
        num_kv_heads=3,
        head_dim=head_dim,
        num_blocks=NUM_BLOCKS,
        block_size=BLOCK_SIZE,
        like=torch.empty(0, dtype=torch.float16),
    )
    if seed is not None:
        store.pool.normal_(generator=torch.Generator().manual_seed(seed))
    return store


def blocks(store: KvStore, block_ids: tuple[int, ...]) -> torch.Tensor:
    """What blocks of the master hold, in order."""
    return store.pool[:, :, :, [block_id + 1 for block_id in block_ids]]


def nothing_between() -> None:
    """Look at nothing."""


@dataclass
class Rank:
    """One rank's works on a folder."""

    folder: Folder
    store: KvStore
    loan: PoolLoan
    works: FileWorks

    def do(self, work: FileWork) -> Done:
        return self.works.do(FileOrder(order_id=1, epoch=1, work=work), nothing_between)

    def save(self, block_ids: tuple[int, ...], header: FileHeader = HEADER) -> Done:
        return self.do(SaveFile(header=header, block_ids=block_ids))

    def check(self, header: FileHeader = HEADER) -> Done:
        return self.do(CheckFile(header=header))

    def adopt(self, block_ids: tuple[int, ...], header: FileHeader = HEADER) -> Done:
        return self.do(AdoptFile(header=header, block_ids=block_ids))

    @property
    def path(self) -> Path:
        """Of the one file."""
        return self.folder.path_of(NAME)


def disk_rank(
    path: Path,
    *,
    seed: int | None = None,
    rank: int = 0,
    world_size: int = 1,
    calls: FileCalls | None = None,
    head_dim: int = 8,
) -> Rank:
    folder = Folder(path, rank=rank, world_size=world_size, calls=calls)
    folder.make()
    store, state = new_store(seed=seed, head_dim=head_dim), state_of(head_dim)
    loan = PoolLoan(bind(state, store.pool), num_blocks=NUM_BLOCKS, block_size=BLOCK_SIZE)
    works = FileWorks(folder, state, loan, rank=rank, world_size=world_size)
    return Rank(folder=folder, store=store, loan=loan, works=works)
