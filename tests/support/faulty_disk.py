"""A program that saves and checks files on a disk that a test has made small, closed or shaky.

`fill FOLDER COUNT` saves so many entries of 1.2 MB, deletes the first half of them, saves it
again, and checks all. `kill FOLDER COUNT SEED` kills a child so many times while it saves the
same entries again and again, and looks at what it left each time. One line of JSON says what
became of it.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from pathlib import Path
from typing import Any

from ranks.wire.file_messages import DeleteFiles, FileFault, SweepFiles
from tests.support.disk_files import Rank, blocks, disk_rank, named

BLOCKS, ELSEWHERE = (5, 0, 11), (3, 9, 4)
LARGE, SMALL = 1024, 64
NUM_KILLED_ENTRIES = 4
MOST_LIFE_S = 0.02


def fill(folder: Path, count: int) -> dict[str, Any]:
    rank = disk_rank(folder, seed=1, head_dim=LARGE)
    first = [_told(rank.save(BLOCKS, named(number)).fault) for number in range(count)]
    half = range(count // 2)
    deleted = rank.do(DeleteFiles(names=tuple(named(number).name for number in half)))
    return {
        "first": first,
        "deleted": _told(deleted.fault),
        "again": [_told(rank.save(BLOCKS, named(number)).fault) for number in half],
        "checked": [_told(_look(rank, number)) for number in range(count)],
        "left": [path.name for path in folder.rglob("*.tmp")],
    }


def _look(rank: Rank, number: int) -> FileFault | None:
    """Check an entry, and adopt it where it is whole."""
    fault = rank.check(named(number)).fault
    return fault or rank.adopt(ELSEWHERE, named(number)).fault


def _told(fault: FileFault | None) -> str | None:
    return None if fault is None else fault.value


def kill(folder: Path, count: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    rank = disk_rank(folder, seed=1, head_dim=SMALL)
    found: Counter[str] = Counter()
    for _ in range(count):
        _live_and_die(rank, rng)
        found["torn"] += len(list(folder.rglob("*.tmp")))
        names = [named(number).name for number in range(NUM_KILLED_ENTRIES)]
        rank.do(SweepFiles(known=tuple(names)))
        found["left"] += len(list(folder.rglob("*.tmp")))
        for number in range(NUM_KILLED_ENTRIES):
            rank.store.pool.zero_()
            fault = _look(rank, number)
            found[_told(fault) or "whole"] += 1
            if fault is None and len(blocks(rank.store, ELSEWHERE).unique()) != 1:
                found["mixed"] += 1
        rank.do(DeleteFiles(names=(rng.choice(names),)))
    return dict(found)


def _live_and_die(rank: Rank, rng: random.Random) -> None:
    """Save version after version in a child, each of one value, until it is killed."""
    life_s = rng.uniform(0, MOST_LIFE_S)
    child = os.fork()
    if child == 0:
        version = rng.randrange(1, 1000)
        while True:
            # By numpy: a forked process has none of torch's threads.
            rank.store.pool.numpy()[:] = version
            rank.save(BLOCKS, named(version % NUM_KILLED_ENTRIES))
            version += 1
    time.sleep(life_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    what, path, *numbers = sys.argv[1:]
    told = {"fill": fill, "kill": kill}[what](Path(path), *map(int, numbers))
    sys.stdout.write(json.dumps(told) + "\n")
