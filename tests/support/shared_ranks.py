"""Ranks that share memory: as threads of this process, and as processes that can be killed.

As a process: `python -m tests.support.shared_ranks RANK STORE_FILE TIMEOUT_S`. It joins a
group of two, says "joined", and then does an all-reduce for each line that it reads.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed import FileStore

from ranks.abort import Abort
from ranks.native.library import NoLibrary, open_library
from ranks.shards import Place
from ranks.shared_group import SharedGroup, form_shared_group

ROOT = Path(__file__).parents[2]


def has_library() -> bool:
    try:
        open_library()
    except NoLibrary:
        return False
    return True


def on_shared_ranks(act, *, world_size=2, timeout_s=10.0):
    """Run `act(group, rank)` on each rank of a group of threads; returns all results."""
    store = dist.HashStore()

    def live(rank):
        place = Place(epoch=1, rank=rank, world_size=world_size)
        group = form_shared_group(store, place, timeout_s=timeout_s, abort=Abort())
        try:
            return act(group, rank)
        finally:
            group.leave()

    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(live, range(world_size)))


@contextmanager
def beside_a_process(
    folder: Path, *, timeout_s: float, abort: Abort | None = None
) -> Iterator[tuple[SharedGroup, subprocess.Popen[str]]]:
    """Rank 0 of a group whose rank 1 is a process that takes lines."""
    store_file = folder / "store"
    fellow = subprocess.Popen(
        [sys.executable, "-m", "tests.support.shared_ranks", "1", str(store_file), str(timeout_s)],
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        group = join(0, str(store_file), timeout_s, abort)
        assert fellow.stdout is not None
        assert fellow.stdout.readline() == "joined\n"
        yield group, fellow
        group.leave()
    finally:
        fellow.send_signal(signal.SIGKILL)
        fellow.communicate()


def join(rank: int, store_file: str, timeout_s: float, abort: Abort | None = None) -> SharedGroup:
    """Join a group of two, with time for the other to start."""
    store = FileStore(store_file, 2)
    store.set_timeout(dist.default_pg_timeout)
    store.set(f"up/{rank}", "")
    store.wait([f"up/{1 - rank}"])
    return form_shared_group(
        store,
        Place(epoch=1, rank=rank, world_size=2),
        timeout_s=timeout_s,
        abort=abort or Abort(),
    )


def ask(fellow: subprocess.Popen[str]) -> None:
    """Let the other rank begin an all-reduce."""
    assert fellow.stdin is not None
    fellow.stdin.write("\n")
    fellow.stdin.flush()


def main(rank: int, store_file: str, timeout_s: float) -> None:
    group = join(rank, store_file, timeout_s)
    print("joined", flush=True)
    for _ in sys.stdin:
        group.all_reduce(torch.ones(3))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
