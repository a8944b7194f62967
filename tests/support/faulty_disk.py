"""A program that saves and checks files on a disk that a test has made small, closed or shaky.

`fill FOLDER COUNT` saves so many entries of 1.2 MB, deletes the first half of them, saves it
again, and checks all. `kill FOLDER COUNT SEED` kills a child so many times while it saves the
same entries again and again, and looks at what it left each time. One line of JSON says what
became of it.

`manifests FOLDER COUNT SEED` does that with a master's manifests.
"""

import json
import os
import random
import signal
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from lanehost.disk_cache.identity import scope_digest
from lanehost.disk_cache.manifest import Manifest
from lanehost.disk_cache.manifests import (
    find_manifests,
    remove_manifest,
    sweep_manifests,
    write_manifest,
)
from ranks.wire.file_messages import DeleteFiles, FileFault, SweepFiles
from tests.support.disk_entries import manifest_of
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


def manifests(folder: Path, count: int, seed: int) -> dict[str, Any]:
    rng = random.Random(seed)
    tokens = [rng.randrange(50_000) for _ in range(4_000)]
    scopes = [f"s{number}" for number in range(NUM_KILLED_ENTRIES)]
    right = {scope_digest(one): manifest_of(tokens, scope=one) for one in scopes}
    found: Counter[str] = Counter()
    for _ in range(count):
        before = {one.owner for one in find_manifests(folder).manifests}
        _write_and_die(folder, list(right.values()), rng)
        there = find_manifests(folder)
        found["lost"] += len(before - {one.owner for one in there.manifests})
        found["torn"] += len(list(folder.rglob("*.tmp")))
        found["broken"] += len(there.broken)
        found["whole"] += len(there.manifests)
        found["mixed"] += sum(
            one != replace(right[one.owner], hits=one.hits, used=one.hits)
            for one in there.manifests
        )
        sweep_manifests(folder, there)
        found["left"] += len(list(folder.rglob("*.tmp")))
        remove_manifest(folder, rng.choice(list(right.values())).header.name)
    return dict(found)


def _write_and_die(folder: Path, entries: list[Manifest], rng: random.Random) -> None:
    """Write version after version in a child until it is killed."""
    life_s, version = rng.uniform(0, MOST_LIFE_S), rng.randrange(1, 1000)
    child = os.fork()
    if child == 0:
        while True:
            entry = entries[version % len(entries)]
            write_manifest(folder, replace(entry, hits=version, used=version))
            version += 1
    time.sleep(life_s)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)


if __name__ == "__main__":
    what, path, *numbers = sys.argv[1:]
    ways = {"fill": fill, "kill": kill, "manifests": manifests}
    told = ways[what](Path(path), *map(int, numbers))
    sys.stdout.write(json.dumps(told) + "\n")
