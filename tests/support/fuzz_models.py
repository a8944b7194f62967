"""Spoil model files for some time; ends at the first that neither loads nor is refused.

`python -m tests.support.fuzz_models --seconds 300`. Guided by what is covered where the
package `atheris` is installed, else over seeds that are numbered: `--first 17 --seconds 0` runs
number 17 again. Says how many files were tried.
"""

import argparse
import contextlib
import resource
import sys
import tempfile
import time
from pathlib import Path
from random import Random

import structlog

with contextlib.suppress(ImportError):
    import atheris

_GUIDED_BY = (
    "ranks.gguf_header",
    "ranks.weights.gguf_config",
    "ranks.weights.gguf_file",
    "ranks.weights.model_config",
    "ranks.weights.reader",
    "ranks.models.registry",
    "ranks.models.native_loader",
    "ranks.native.packing",
    "lanehost.text.gguf_fields",
    "lanehost.text.gguf_tokenizer",
    "lanehost.text.model_text",
    "lanehost.text.chat_template",
)
# Of address space, beyond what a loaded torch has: nothing that is asked for may be as large.
_SPACE = 8 << 30
_NUM_BEGINNINGS = 300


class _ReplayedRandom(Random):
    """Chooses as the bytes say, which a fuzzer can change bit by bit; behind them the first."""

    def __init__(self, raw: bytes) -> None:
        super().__init__()
        self._raw, self._at = raw, 0

    def getrandbits(self, k: int) -> int:
        size = -(-k // 8)
        taken = self._raw[self._at : self._at + size].ljust(size, b"\0")
        self._at += size
        return int.from_bytes(taken, "little") & ((1 << k) - 1)

    def random(self) -> float:
        return self.getrandbits(53) / (1 << 53)


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=int, default=300)
    parser.add_argument("--first", type=int, default=None)
    args = parser.parse_args()
    structlog.configure(processors=[_drop])
    if "atheris" in globals() and args.first is None:
        with atheris.instrument_imports(include=list(_GUIDED_BY)):
            from tests.support import hostile_models  # noqa: PLC0415 (once it is watched)
    else:
        from tests.support import hostile_models  # noqa: PLC0415
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        spoiler = hostile_models.Spoiler(folder)
        _limit_space()
        if "atheris" in globals() and args.first is None:
            return _guided(spoiler, folder, args.seconds)
        return _by_number(spoiler, args.first or 0, args.seconds)


def _by_number(spoiler, first: int, seconds: int) -> int:
    ends_at, number = time.monotonic() + seconds, first
    while number == first or time.monotonic() < ends_at:
        try:
            spoiler.try_one(Random(number))
        except BaseException:
            print(f"number {number}")
            raise
        number += 1
    print(f"Done {number - first} runs, from {first} on")
    return 0


def _guided(spoiler, folder: Path, seconds: int) -> int:
    corpus = folder / "corpus"
    corpus.mkdir()
    for number in range(_NUM_BEGINNINGS):
        (corpus / str(number)).write_bytes(Random(number).randbytes(64))
    options = (f"-max_total_time={seconds}", "-timeout=20", "-rss_limit_mb=4096", "-max_len=256",
               f"-artifact_prefix={folder}/", "-print_final_stats=1")  # fmt: skip
    atheris.Setup(
        [sys.argv[0], *options, str(corpus)], lambda raw: spoiler.try_one(_ReplayedRandom(raw))
    )
    atheris.Fuzz()
    return 0


def _limit_space() -> None:
    size = Path("/proc/self/statm").read_text().split()[0]
    limit = int(size) * resource.getpagesize() + _SPACE
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _drop(*_: object) -> None:
    raise structlog.DropEvent


if __name__ == "__main__":
    sys.exit(main())
