"""What saving costs those who are served meanwhile, and what a saved token takes.

Law: with and without files is measured in turn, round after round, on one server whose requests say
what the disk does for them: of two servers one is faster by where its memory happens to lie, by
more than is looked for here. A ratio is one of two neighbours in time; those of two that both do
without say what a ratio means.
"""

import json
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

from lanehost.bench.cache_tiers import CacheBench, NewSide, Side
from lanehost.bench.workload import Lengths, make_asks

LENGTHS = Lengths(prompt=(256,), reply=(64,))
_LENGTH_BYTES = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Tokens per second, round after round, and what was written in that time."""

    without: tuple[float, ...]
    saving: tuple[float, ...]
    again: tuple[float, ...]
    files: "FilesSeen"

    @property
    def ratios(self) -> list[float]:
        """Saving over without, by round."""
        return [one / other for one, other in zip(self.saving, self.without, strict=True)]

    @property
    def noise(self) -> list[float]:
        """Without once more over without, by round."""
        return [one / other for one, other in zip(self.again, self.without, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class FilesSeen:
    """What ranks have written: files, their bytes, and the positions that each covers."""

    num_files: int
    num_bytes: int
    num_tokens: int

    def bytes_per_token(self, num_ranks: int) -> float | None:
        """Bytes of a token on all ranks together; None when there are no files."""
        return num_ranks * self.num_bytes / self.num_tokens if self.num_tokens else None


async def measure_cost(bench: CacheBench, new_side: NewSide, folder: Path) -> Cost:
    """Serve the same load with files and without, in turn.

    Raises:
        StartupFailed: The server does not start.
        ClientError: A request failed.
    """
    options = (
        *("--lanes", str(bench.num_streams), "--max-drafts", "0"),
        *("--disk-cache", str(folder), "--disk-cache-mode", "off"),
    )
    figures: dict[str, list[float]] = {"without": [], "saving": [], "again": []}
    names = list(figures)
    async with new_side(options) as side:
        for number in range(-1, bench.num_rounds):
            # Who goes second finds the machine as the first has left it.
            for name in names[number % 3 :] + names[: number % 3]:
                disk_cache = "full" if name == "saving" else "off"
                seed = f"{bench.seed} {number} {name}"
                rate = await _tokens_per_s(bench, side, seed=seed, disk_cache=disk_cache)
                # The first round is to get warm.
                figures[name] += [rate] if number >= 0 else []
    return Cost(**{name: tuple(rates) for name, rates in figures.items()}, files=see_files(folder))


async def _tokens_per_s(bench: CacheBench, side: Side, *, seed: str, disk_cache: str) -> float:
    asks = make_asks(LENGTHS, vocab_size=side.vocab_size, seed=seed)
    wanted = [replace(ask, disk_cache=disk_cache) for ask in islice(asks, bench.num_requests)]
    replies = await side.load.closed(wanted, num_streams=bench.num_streams)
    if side.load.first_error is not None:
        raise side.load.first_error
    first_s, last_s = min(r.sent_s for r in replies), max(r.ended_s for r in replies)
    return sum(r.prompt_tokens + r.num_tokens for r in replies) / (last_s - first_s)


def see_files(folder: Path) -> FilesSeen:
    """Read what the files of a folder say of themselves."""
    files = sorted(folder.glob("*/*.safetensors"))
    return FilesSeen(
        num_files=len(files),
        num_bytes=sum(path.stat().st_size for path in files),
        num_tokens=sum(map(_num_tokens, files)),
    )


def _num_tokens(path: Path) -> int:
    with path.open("rb") as file:
        length = int.from_bytes(file.read(_LENGTH_BYTES), "little")
        said = json.loads(file.read(length))
    return int(said["__metadata__"]["num_tokens"])
