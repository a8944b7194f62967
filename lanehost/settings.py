"""Frozen settings; each checks itself once, and is handed down in the smallest piece.

Only `cli.py` reads argv and the environment; it builds `ServeSettings`.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from lanehost.disk_cache.policy import DiskMode
from lanehost.errors import StartupFailed
from lanehost.images.limits import ImageLimits
from lanehost.keys import KeyRing

DTYPES = ("auto", "float32", "int8")
DEVICES = ("auto", "cpu", "cuda")
WEIGHTS = ("auto", "float32", "int8", "int4")
# What --dtype may be with them, beside auto: 4- and 8-bit weights are computed in int8.
_DTYPE_OF_WEIGHTS = {"float32": "float32", "int8": "int8", "int4": "int8"}
MAX_TP = 2
MAX_LANES = 256
MAX_PORT = 65535
MAX_DRAFTS = 64
# Rows of a step up to which a draft is worth its place: beyond, decodes fill the step.
CHEAP_ROWS = 16
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
# Below what makes Pillow itself warn.
MAX_IMAGE_PIXELS = 1 << 26
BLOCK_SIZE = 16
DEFAULT_DISK_BUDGET = 8 << 30
DEFAULT_STAGED_ROWS = 256
# Rows of a staged pass that nobody waits for, unless passes beside others have more.
IDLE_STAGED_ROWS = 1024


def _check(name: str, value: float, low: float, high: float) -> None:
    if not low <= value <= high:
        raise StartupFailed(f"{name} is {value}, allowed is {low} to {high}")


def check_numerics(*, dtype: str, weights: str, device: str) -> None:
    """See that what ranks are to compute with is known, and fits together.

    Raises:
        StartupFailed: Names the option, its value and what is allowed.
    """
    for name, value, allowed in (
        ("--dtype", dtype, DTYPES),
        ("--weights", weights, WEIGHTS),
        ("--device", device, DEVICES),
    ):
        if value not in allowed:
            raise StartupFailed(f"{name} is {value!r}, allowed is one of {allowed}")
    if weights == "auto":
        return
    own = _DTYPE_OF_WEIGHTS[weights]
    if dtype not in ("auto", own):
        raise StartupFailed(
            f"--dtype is {dtype!r}, with --weights {weights} allowed is 'auto' or {own!r}"
        )
    if own == "int8" and device == "cuda":
        raise StartupFailed(
            f"--device is {device!r}, with --weights {weights} allowed is 'auto' or 'cpu'"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RankPortSettings:
    """Where agents and ranks of other hosts dial the master, and how they prove themselves.

    On the master `host` is one of its own addresses and `port` 0 takes a free one; elsewhere
    both are what is dialled. `tls` is the folder of this node's certificates. Off loopback it
    must be given, unless `is_open` says that whoever reaches the port may join. gloo and NCCL
    speak over `interface`, or where none is named over the address that faces the master.
    `ranks_here` is how many ranks share this host, where that is known.
    """

    host: str
    port: int
    tls: Path | None = None
    is_open: bool = False
    interface: str | None = None
    ranks_here: int | None = None

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        _check("--master's port", self.port, 0, MAX_PORT)
        if self.tls is not None and self.is_open:
            raise StartupFailed(
                f"--insecure-rank-port and --rank-tls {self.tls} contradict each other: give one"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class FollowSettings:
    """All that `lanehost follow` needs; the master tells the rest.

    `master_timeout_s` is the longest time without a master, at the start and later.
    """

    rank: int
    tp: int
    master: RankPortSettings
    model_path: Path
    master_timeout_s: float = 300.0
    log_json: bool = False
    keeps_spare: bool = True

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        _check("--tp", self.tp, 2, MAX_TP)
        _check("--rank", self.rank, 1, self.tp - 1)
        _check("--master's port", self.master.port, 1, MAX_PORT)
        _check("--master-timeout", self.master_timeout_s, 1, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class RankGroupSettings:
    """What the rank group needs: the model, the cut, the KV pool.

    `kv_tokens` None lets the master choose from the model and the lanes;
    `num_threads` None divides the cores of the machine among the ranks. `max_restarts` is
    how many losses in a row are answered with a new epoch; 0 makes the first one the last.
    `keeps_spare` has a process at hand that becomes the next rank that is started here.

    With a `rank_port` only rank 0 is this host's: the others are those of agents, which dial it.
    `disk_folder` is where the prompt cache has its files, the same path on every host.

    A model that takes images runs their prompts in passes of at most `max_staged_tokens` rows,
    encodes them on `encoder_device`, and keeps `image_cache_tokens` rows of them.
    """

    model_path: Path
    tp: int = 1
    dtype: str = "auto"
    weights: str = "auto"
    device: str = "auto"
    num_threads: int | None = None
    num_lanes: int = 16
    max_step_tokens: int = 512
    kv_tokens: int | None = None
    block_size: int = BLOCK_SIZE
    load_timeout_s: float = 600.0
    collective_timeout_s: float = 30.0
    stop_timeout_s: float = 5.0
    heartbeat_timeout_s: float = 5.0
    stall_timeout_s: float = 30.0
    max_restarts: int = 8
    keeps_spare: bool = True
    rank_port: RankPortSettings | None = None
    disk_folder: Path | None = None
    max_staged_tokens: int = IDLE_STAGED_ROWS
    image_cache_tokens: int = 8192
    encoder_device: str = "auto"

    @property
    def followed_ranks(self) -> range:
        """The ranks that agents hold on other hosts."""
        return range(self.tp if self.rank_port is None else 1, self.tp)

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        if self.rank_port is not None:
            _check("--tp with --master", self.tp, 2, MAX_TP)
        _check("--tp", self.tp, 1, MAX_TP)
        _check("--lanes", self.num_lanes, 1, MAX_LANES)
        _check("--max-step-tokens", self.max_step_tokens, self.num_lanes, 1 << 16)
        _check("--load-timeout", self.load_timeout_s, 1, 86400)
        _check("--heartbeat-timeout", self.heartbeat_timeout_s, 1, 3600)
        _check("--stall-timeout", self.stall_timeout_s, 1, 86400)
        _check("--max-restarts", self.max_restarts, 0, 1000)
        if self.num_threads is not None:
            _check("--threads", self.num_threads, 1, 1024)
        if self.kv_tokens is not None:
            _check("--kv-tokens", self.kv_tokens, self.block_size, 1 << 31)
        _check("--staged-rows", self.max_staged_tokens, 1, 1 << 16)
        _check("--image-cache-tokens", self.image_cache_tokens, 1, 1 << 24)
        if self.encoder_device not in DEVICES:
            raise StartupFailed(
                f"--encoder-device is {self.encoder_device!r}, allowed is one of {DEVICES}"
            )
        check_numerics(dtype=self.dtype, weights=self.weights, device=self.device)


@dataclass(frozen=True, slots=True, kw_only=True)
class LineSettings:
    """Bounds of the waiting line and of the streams that are open at once.

    `max_streams` counts requests that were accepted and whose last event has not
    been taken: it bounds what slow readers can keep in memory.
    """

    max_waiting: int = 256
    max_waiting_tokens: int = 1 << 20
    max_streams: int = 1024
    retry_after_s: float = 1.0

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        _check("--max-waiting", self.max_waiting, 1, 1 << 20)
        _check("--max-waiting-tokens", self.max_waiting_tokens, 1, 1 << 31)
        _check("--max-streams", self.max_streams, 1, 1 << 20)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordSettings:
    """Where a trail of the run goes, whether the token ids of prompts are in it, and images."""

    folder: Path
    keeps_prompts: bool = False
    keeps_images: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalSettings:
    """Where the journal of open streams is, and the most that it takes of the disk.

    A file is written anew into another one, so each has half of it.
    """

    folder: Path
    max_mib: int = 1024

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        _check("--journal-mib", self.max_mib, 2, 1 << 20)

    @property
    def max_file_bytes(self) -> int:
        """The most bytes of one file."""
        return self.max_mib << 19


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskSettings:
    """Where the prompt cache has its files, what is worth them, and the most that they take.

    Of `self_check` replies that hit there one is computed again, and compared; 0: none is.
    """

    folder: Path
    mode: DiskMode
    budget_bytes: int = DEFAULT_DISK_BUDGET
    self_check: int = 0

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        _check("--disk-cache-budget", self.budget_bytes, 1 << 20, 1 << 50)
        _check("--cache-self-check", self.self_check, 0, 1 << 30)


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSettings:
    """How replies are made; none of this changes a token of one.

    `prompt_cache` keeps what was computed of prompts; `max_drafts` is the most tokens
    that a reply may guess at once, 0 guesses none; `max_fill_tokens` is the most prompt
    tokens of a step that running replies wait for; `max_pass_prompts` is the most prompts
    that share one. Beside others a staged pass has `staged_rows` rows, and goes so many layers
    a step that running replies wait `max_stall_ms` for it, where one layer takes no longer; 0:
    it goes through all of them.
    """

    prompt_cache: bool = True
    max_drafts: int = 8
    max_fill_tokens: int = 64
    max_pass_prompts: int = 16
    staged_rows: int = DEFAULT_STAGED_ROWS
    max_stall_ms: int = 100

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        _check("--max-drafts", self.max_drafts, 0, MAX_DRAFTS)
        _check("--max-fill-tokens", self.max_fill_tokens, 1, 1 << 16)
        _check("--max-pass-prompts", self.max_pass_prompts, 1, MAX_LANES)
        _check("--staged-rows", self.staged_rows, 1, 1 << 16)
        _check("--max-stall-ms", self.max_stall_ms, 0, 3_600_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageSettings:
    """What images of requests may be, and what all of them together may take.

    `max_held_bytes` counts the files of requests that are prepared, the pixels of open ones and
    those of uploads. An upload is kept `upload_lifetime_s`, whether a request names it or not.
    """

    limits: ImageLimits = field(default_factory=ImageLimits)
    max_held_bytes: int = 512 << 20
    max_uploads: int = 256
    upload_lifetime_s: float = 600.0

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        _check("--max-image-bytes", self.limits.max_image_bytes, 1 << 10, MAX_MESSAGE_BYTES // 2)
        _check("--max-image-pixels", self.limits.max_image_pixels, 1, MAX_IMAGE_PIXELS)
        _check("--max-images", self.limits.max_images, 1, 256)
        _check("--max-held-images", self.max_held_bytes, 1 << 20, 1 << 40)
        _check("--max-uploads", self.max_uploads, 1, 1 << 16)
        _check("--upload-lifetime", self.upload_lifetime_s, 1, 86400)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSettings:
    """All that `lanehost serve` needs; a port of 0 takes a free one, None opens no HTTP door.

    Without `keys` everybody is let in, as the one scope "".
    """

    ranks: RankGroupSettings
    line: LineSettings = field(default_factory=LineSettings)
    engine: EngineSettings = field(default_factory=EngineSettings)
    keys: KeyRing | None = None
    model_name: str = ""
    host: str = "127.0.0.1"
    port: int = 50051
    http_port: int | None = 8000
    reflection: bool = False
    drain_grace_s: float = 1.0
    drain_timeout_s: float = 30.0
    log_json: bool = False
    record: RecordSettings | None = None
    journal: JournalSettings | None = None
    disk: DiskSettings | None = None
    images: ImageSettings = field(default_factory=ImageSettings)

    @property
    def weights(self) -> Mapping[str, int]:
        """The weight of every scope; none without keys, when nobody is told from anybody."""
        return {} if self.keys is None else self.keys.weights

    def __post_init__(self) -> None:
        """Refuse what cannot work, with the value and the limit."""
        _check("--port", self.port, 0, MAX_PORT)
        if self.http_port is not None:
            _check("--http-port", self.http_port, 0, MAX_PORT)
        _check("--drain-grace", self.drain_grace_s, 0, 3600)
        _check("--drain-timeout", self.drain_timeout_s, 0, 86400)
