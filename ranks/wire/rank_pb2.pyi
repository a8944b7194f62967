from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class LaneFault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    LANE_FAULT_UNSPECIFIED: _ClassVar[LaneFault]
    LANE_FAULT_NAN: _ClassVar[LaneFault]

class RefusalKind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    REFUSAL_KIND_UNSPECIFIED: _ClassVar[RefusalKind]
    REFUSAL_KIND_MISMATCH: _ClassVar[RefusalKind]
    REFUSAL_KIND_FAILED: _ClassVar[RefusalKind]
    REFUSAL_KIND_SKIPPED: _ClassVar[RefusalKind]

class FileFault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    FILE_FAULT_UNSPECIFIED: _ClassVar[FileFault]
    FILE_FAULT_MISSING: _ClassVar[FileFault]
    FILE_FAULT_TORN: _ClassVar[FileFault]
    FILE_FAULT_CHECKSUM: _ClassVar[FileFault]
    FILE_FAULT_FOREIGN: _ClassVar[FileFault]
    FILE_FAULT_OLDER: _ClassVar[FileFault]
    FILE_FAULT_NEWER: _ClassVar[FileFault]
    FILE_FAULT_GEOMETRY: _ClassVar[FileFault]
    FILE_FAULT_TOKENS: _ClassVar[FileFault]
    FILE_FAULT_NO_SPACE: _ClassVar[FileFault]
    FILE_FAULT_DENIED: _ClassVar[FileFault]
    FILE_FAULT_IO: _ClassVar[FileFault]
    FILE_FAULT_GONE: _ClassVar[FileFault]
    FILE_FAULT_BUSY: _ClassVar[FileFault]
    FILE_FAULT_NO_ROOM: _ClassVar[FileFault]
    FILE_FAULT_UNCHECKED: _ClassVar[FileFault]

class ImageFault(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    IMAGE_FAULT_UNSPECIFIED: _ClassVar[ImageFault]
    IMAGE_FAULT_CANCELLED: _ClassVar[ImageFault]
    IMAGE_FAULT_OUT_OF_MEMORY: _ClassVar[ImageFault]
    IMAGE_FAULT_NOT_FINITE: _ClassVar[ImageFault]
    IMAGE_FAULT_SHAPE: _ClassVar[ImageFault]
    IMAGE_FAULT_BUSY: _ClassVar[ImageFault]
    IMAGE_FAULT_FAILED: _ClassVar[ImageFault]
LANE_FAULT_UNSPECIFIED: LaneFault
LANE_FAULT_NAN: LaneFault
REFUSAL_KIND_UNSPECIFIED: RefusalKind
REFUSAL_KIND_MISMATCH: RefusalKind
REFUSAL_KIND_FAILED: RefusalKind
REFUSAL_KIND_SKIPPED: RefusalKind
FILE_FAULT_UNSPECIFIED: FileFault
FILE_FAULT_MISSING: FileFault
FILE_FAULT_TORN: FileFault
FILE_FAULT_CHECKSUM: FileFault
FILE_FAULT_FOREIGN: FileFault
FILE_FAULT_OLDER: FileFault
FILE_FAULT_NEWER: FileFault
FILE_FAULT_GEOMETRY: FileFault
FILE_FAULT_TOKENS: FileFault
FILE_FAULT_NO_SPACE: FileFault
FILE_FAULT_DENIED: FileFault
FILE_FAULT_IO: FileFault
FILE_FAULT_GONE: FileFault
FILE_FAULT_BUSY: FileFault
FILE_FAULT_NO_ROOM: FileFault
FILE_FAULT_UNCHECKED: FileFault
IMAGE_FAULT_UNSPECIFIED: ImageFault
IMAGE_FAULT_CANCELLED: ImageFault
IMAGE_FAULT_OUT_OF_MEMORY: ImageFault
IMAGE_FAULT_NOT_FINITE: ImageFault
IMAGE_FAULT_SHAPE: ImageFault
IMAGE_FAULT_BUSY: ImageFault
IMAGE_FAULT_FAILED: ImageFault

class ConnectRequest(_message.Message):
    __slots__ = ("hello", "load_progress", "loaded", "ready", "result", "refused", "fatal", "heartbeat", "broken", "left", "file_done", "image_done")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    LOAD_PROGRESS_FIELD_NUMBER: _ClassVar[int]
    LOADED_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    REFUSED_FIELD_NUMBER: _ClassVar[int]
    FATAL_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    LEFT_FIELD_NUMBER: _ClassVar[int]
    FILE_DONE_FIELD_NUMBER: _ClassVar[int]
    IMAGE_DONE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    load_progress: LoadProgress
    loaded: Loaded
    ready: Ready
    result: StepResult
    refused: StepRefused
    fatal: Fatal
    heartbeat: Heartbeat
    broken: Broken
    left: Left
    file_done: FileDone
    image_done: ImageDone
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., load_progress: _Optional[_Union[LoadProgress, _Mapping]] = ..., loaded: _Optional[_Union[Loaded, _Mapping]] = ..., ready: _Optional[_Union[Ready, _Mapping]] = ..., result: _Optional[_Union[StepResult, _Mapping]] = ..., refused: _Optional[_Union[StepRefused, _Mapping]] = ..., fatal: _Optional[_Union[Fatal, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., broken: _Optional[_Union[Broken, _Mapping]] = ..., left: _Optional[_Union[Left, _Mapping]] = ..., file_done: _Optional[_Union[FileDone, _Mapping]] = ..., image_done: _Optional[_Union[ImageDone, _Mapping]] = ...) -> None: ...

class ConnectResponse(_message.Message):
    __slots__ = ("load", "form", "plan", "shutdown", "leave", "file_order", "image_order")
    LOAD_FIELD_NUMBER: _ClassVar[int]
    FORM_FIELD_NUMBER: _ClassVar[int]
    PLAN_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    FILE_ORDER_FIELD_NUMBER: _ClassVar[int]
    IMAGE_ORDER_FIELD_NUMBER: _ClassVar[int]
    load: Load
    form: Form
    plan: StepPlan
    shutdown: Shutdown
    leave: Leave
    file_order: FileOrder
    image_order: ImageOrder
    def __init__(self, load: _Optional[_Union[Load, _Mapping]] = ..., form: _Optional[_Union[Form, _Mapping]] = ..., plan: _Optional[_Union[StepPlan, _Mapping]] = ..., shutdown: _Optional[_Union[Shutdown, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., file_order: _Optional[_Union[FileOrder, _Mapping]] = ..., image_order: _Optional[_Union[ImageOrder, _Mapping]] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("rank", "world_size", "pid", "build", "token")
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    rank: int
    world_size: int
    pid: int
    build: str
    token: str
    def __init__(self, rank: _Optional[int] = ..., world_size: _Optional[int] = ..., pid: _Optional[int] = ..., build: _Optional[str] = ..., token: _Optional[str] = ...) -> None: ...

class Load(_message.Message):
    __slots__ = ("model_path", "dtype", "device", "num_threads", "block_size", "max_step_tokens", "num_lanes", "weights", "max_staged_tokens", "image_cache_tokens", "encoder_device")
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    NUM_THREADS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    MAX_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    NUM_LANES_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    MAX_STAGED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CACHE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ENCODER_DEVICE_FIELD_NUMBER: _ClassVar[int]
    model_path: str
    dtype: str
    device: str
    num_threads: int
    block_size: int
    max_step_tokens: int
    num_lanes: int
    weights: str
    max_staged_tokens: int
    image_cache_tokens: int
    encoder_device: str
    def __init__(self, model_path: _Optional[str] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., num_threads: _Optional[int] = ..., block_size: _Optional[int] = ..., max_step_tokens: _Optional[int] = ..., num_lanes: _Optional[int] = ..., weights: _Optional[str] = ..., max_staged_tokens: _Optional[int] = ..., image_cache_tokens: _Optional[int] = ..., encoder_device: _Optional[str] = ...) -> None: ...

class LoadProgress(_message.Message):
    __slots__ = ("done_bytes", "total_bytes")
    DONE_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    done_bytes: int
    total_bytes: int
    def __init__(self, done_bytes: _Optional[int] = ..., total_bytes: _Optional[int] = ...) -> None: ...

class Loaded(_message.Message):
    __slots__ = ("weights_digest", "config_digest", "geometry", "vocab_size", "context_length", "kv_bytes_per_block", "free_bytes", "dtype", "device", "collective", "step_bytes", "step_bytes_per_block", "weights", "kv_layout", "num_layers", "image_facts")
    WEIGHTS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    CONFIG_DIGEST_FIELD_NUMBER: _ClassVar[int]
    GEOMETRY_FIELD_NUMBER: _ClassVar[int]
    VOCAB_SIZE_FIELD_NUMBER: _ClassVar[int]
    CONTEXT_LENGTH_FIELD_NUMBER: _ClassVar[int]
    KV_BYTES_PER_BLOCK_FIELD_NUMBER: _ClassVar[int]
    FREE_BYTES_FIELD_NUMBER: _ClassVar[int]
    DTYPE_FIELD_NUMBER: _ClassVar[int]
    DEVICE_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_FIELD_NUMBER: _ClassVar[int]
    STEP_BYTES_FIELD_NUMBER: _ClassVar[int]
    STEP_BYTES_PER_BLOCK_FIELD_NUMBER: _ClassVar[int]
    WEIGHTS_FIELD_NUMBER: _ClassVar[int]
    KV_LAYOUT_FIELD_NUMBER: _ClassVar[int]
    NUM_LAYERS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_FACTS_FIELD_NUMBER: _ClassVar[int]
    weights_digest: str
    config_digest: str
    geometry: str
    vocab_size: int
    context_length: int
    kv_bytes_per_block: int
    free_bytes: int
    dtype: str
    device: str
    collective: str
    step_bytes: int
    step_bytes_per_block: int
    weights: str
    kv_layout: str
    num_layers: int
    image_facts: ImageFacts
    def __init__(self, weights_digest: _Optional[str] = ..., config_digest: _Optional[str] = ..., geometry: _Optional[str] = ..., vocab_size: _Optional[int] = ..., context_length: _Optional[int] = ..., kv_bytes_per_block: _Optional[int] = ..., free_bytes: _Optional[int] = ..., dtype: _Optional[str] = ..., device: _Optional[str] = ..., collective: _Optional[str] = ..., step_bytes: _Optional[int] = ..., step_bytes_per_block: _Optional[int] = ..., weights: _Optional[str] = ..., kv_layout: _Optional[str] = ..., num_layers: _Optional[int] = ..., image_facts: _Optional[_Union[ImageFacts, _Mapping]] = ...) -> None: ...

class ImageFacts(_message.Message):
    __slots__ = ("num_tokens", "token_id", "width", "height")
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    num_tokens: int
    token_id: int
    width: int
    height: int
    def __init__(self, num_tokens: _Optional[int] = ..., token_id: _Optional[int] = ..., width: _Optional[int] = ..., height: _Optional[int] = ...) -> None: ...

class Form(_message.Message):
    __slots__ = ("epoch", "num_blocks", "block_size", "num_lanes", "max_step_tokens", "collective_timeout_s", "disk_folder", "max_staged_tokens", "image_cache_tokens")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    NUM_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    BLOCK_SIZE_FIELD_NUMBER: _ClassVar[int]
    NUM_LANES_FIELD_NUMBER: _ClassVar[int]
    MAX_STEP_TOKENS_FIELD_NUMBER: _ClassVar[int]
    COLLECTIVE_TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    DISK_FOLDER_FIELD_NUMBER: _ClassVar[int]
    MAX_STAGED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    IMAGE_CACHE_TOKENS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    num_blocks: int
    block_size: int
    num_lanes: int
    max_step_tokens: int
    collective_timeout_s: float
    disk_folder: str
    max_staged_tokens: int
    image_cache_tokens: int
    def __init__(self, epoch: _Optional[int] = ..., num_blocks: _Optional[int] = ..., block_size: _Optional[int] = ..., num_lanes: _Optional[int] = ..., max_step_tokens: _Optional[int] = ..., collective_timeout_s: _Optional[float] = ..., disk_folder: _Optional[str] = ..., max_staged_tokens: _Optional[int] = ..., image_cache_tokens: _Optional[int] = ...) -> None: ...

class Ready(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Draw(_message.Message):
    __slots__ = ("temperature", "top_p", "top_k", "min_p", "seed")
    TEMPERATURE_FIELD_NUMBER: _ClassVar[int]
    TOP_P_FIELD_NUMBER: _ClassVar[int]
    TOP_K_FIELD_NUMBER: _ClassVar[int]
    MIN_P_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    seed: int
    def __init__(self, temperature: _Optional[float] = ..., top_p: _Optional[float] = ..., top_k: _Optional[int] = ..., min_p: _Optional[float] = ..., seed: _Optional[int] = ...) -> None: ...

class LaneJoin(_message.Message):
    __slots__ = ("lane_id", "draw", "num_cached_tokens")
    LANE_ID_FIELD_NUMBER: _ClassVar[int]
    DRAW_FIELD_NUMBER: _ClassVar[int]
    NUM_CACHED_TOKENS_FIELD_NUMBER: _ClassVar[int]
    lane_id: int
    draw: Draw
    num_cached_tokens: int
    def __init__(self, lane_id: _Optional[int] = ..., draw: _Optional[_Union[Draw, _Mapping]] = ..., num_cached_tokens: _Optional[int] = ...) -> None: ...

class LaneGrow(_message.Message):
    __slots__ = ("lane_id", "block_ids")
    LANE_ID_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    lane_id: int
    block_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lane_id: _Optional[int] = ..., block_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class Chunk(_message.Message):
    __slots__ = ("lane_id", "start", "token_ids", "draws", "images")
    LANE_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    DRAWS_FIELD_NUMBER: _ClassVar[int]
    IMAGES_FIELD_NUMBER: _ClassVar[int]
    lane_id: int
    start: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    draws: bool
    images: _containers.RepeatedCompositeFieldContainer[ChunkImage]
    def __init__(self, lane_id: _Optional[int] = ..., start: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ..., draws: bool = ..., images: _Optional[_Iterable[_Union[ChunkImage, _Mapping]]] = ...) -> None: ...

class ChunkImage(_message.Message):
    __slots__ = ("image_id", "start", "num_tokens")
    IMAGE_ID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    image_id: int
    start: int
    num_tokens: int
    def __init__(self, image_id: _Optional[int] = ..., start: _Optional[int] = ..., num_tokens: _Optional[int] = ...) -> None: ...

class StagedSlice(_message.Message):
    __slots__ = ("pass_id", "chunks", "first_layer", "stop_layer")
    PASS_ID_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    FIRST_LAYER_FIELD_NUMBER: _ClassVar[int]
    STOP_LAYER_FIELD_NUMBER: _ClassVar[int]
    pass_id: int
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    first_layer: int
    stop_layer: int
    def __init__(self, pass_id: _Optional[int] = ..., chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ..., first_layer: _Optional[int] = ..., stop_layer: _Optional[int] = ...) -> None: ...

class LaneDraft(_message.Message):
    __slots__ = ("lane_id", "token_ids")
    LANE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    lane_id: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lane_id: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class StepPlan(_message.Message):
    __slots__ = ("step_id", "epoch", "leaves", "joins", "grows", "chunks", "decodes", "digest", "drafts", "follows", "tells_parts", "staged")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    LEAVES_FIELD_NUMBER: _ClassVar[int]
    JOINS_FIELD_NUMBER: _ClassVar[int]
    GROWS_FIELD_NUMBER: _ClassVar[int]
    CHUNKS_FIELD_NUMBER: _ClassVar[int]
    DECODES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    DRAFTS_FIELD_NUMBER: _ClassVar[int]
    FOLLOWS_FIELD_NUMBER: _ClassVar[int]
    TELLS_PARTS_FIELD_NUMBER: _ClassVar[int]
    STAGED_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    epoch: int
    leaves: _containers.RepeatedScalarFieldContainer[int]
    joins: _containers.RepeatedCompositeFieldContainer[LaneJoin]
    grows: _containers.RepeatedCompositeFieldContainer[LaneGrow]
    chunks: _containers.RepeatedCompositeFieldContainer[Chunk]
    decodes: _containers.RepeatedScalarFieldContainer[int]
    digest: bytes
    drafts: _containers.RepeatedCompositeFieldContainer[LaneDraft]
    follows: int
    tells_parts: bool
    staged: StagedSlice
    def __init__(self, step_id: _Optional[int] = ..., epoch: _Optional[int] = ..., leaves: _Optional[_Iterable[int]] = ..., joins: _Optional[_Iterable[_Union[LaneJoin, _Mapping]]] = ..., grows: _Optional[_Iterable[_Union[LaneGrow, _Mapping]]] = ..., chunks: _Optional[_Iterable[_Union[Chunk, _Mapping]]] = ..., decodes: _Optional[_Iterable[int]] = ..., digest: _Optional[bytes] = ..., drafts: _Optional[_Iterable[_Union[LaneDraft, _Mapping]]] = ..., follows: _Optional[int] = ..., tells_parts: bool = ..., staged: _Optional[_Union[StagedSlice, _Mapping]] = ...) -> None: ...

class Drawn(_message.Message):
    __slots__ = ("lane_id", "token_id")
    LANE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_ID_FIELD_NUMBER: _ClassVar[int]
    lane_id: int
    token_id: int
    def __init__(self, lane_id: _Optional[int] = ..., token_id: _Optional[int] = ...) -> None: ...

class DraftAccepted(_message.Message):
    __slots__ = ("lane_id", "token_ids")
    LANE_ID_FIELD_NUMBER: _ClassVar[int]
    TOKEN_IDS_FIELD_NUMBER: _ClassVar[int]
    lane_id: int
    token_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, lane_id: _Optional[int] = ..., token_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class LaneFailure(_message.Message):
    __slots__ = ("lane_id", "fault")
    LANE_ID_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    lane_id: int
    fault: LaneFault
    def __init__(self, lane_id: _Optional[int] = ..., fault: _Optional[_Union[LaneFault, str]] = ...) -> None: ...

class StepResult(_message.Message):
    __slots__ = ("step_id", "epoch", "drawn", "failures", "digest", "compute_ns", "accepted", "parts")
    class PartsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    DRAWN_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_NS_FIELD_NUMBER: _ClassVar[int]
    ACCEPTED_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    epoch: int
    drawn: _containers.RepeatedCompositeFieldContainer[Drawn]
    failures: _containers.RepeatedCompositeFieldContainer[LaneFailure]
    digest: bytes
    compute_ns: int
    accepted: _containers.RepeatedCompositeFieldContainer[DraftAccepted]
    parts: _containers.ScalarMap[str, int]
    def __init__(self, step_id: _Optional[int] = ..., epoch: _Optional[int] = ..., drawn: _Optional[_Iterable[_Union[Drawn, _Mapping]]] = ..., failures: _Optional[_Iterable[_Union[LaneFailure, _Mapping]]] = ..., digest: _Optional[bytes] = ..., compute_ns: _Optional[int] = ..., accepted: _Optional[_Iterable[_Union[DraftAccepted, _Mapping]]] = ..., parts: _Optional[_Mapping[str, int]] = ...) -> None: ...

class StepRefused(_message.Message):
    __slots__ = ("step_id", "epoch", "reason", "kind")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    epoch: int
    reason: str
    kind: RefusalKind
    def __init__(self, step_id: _Optional[int] = ..., epoch: _Optional[int] = ..., reason: _Optional[str] = ..., kind: _Optional[_Union[RefusalKind, str]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("step_id", "num_stages")
    STEP_ID_FIELD_NUMBER: _ClassVar[int]
    NUM_STAGES_FIELD_NUMBER: _ClassVar[int]
    step_id: int
    num_stages: int
    def __init__(self, step_id: _Optional[int] = ..., num_stages: _Optional[int] = ...) -> None: ...

class Broken(_message.Message):
    __slots__ = ("epoch", "suspect", "reason")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SUSPECT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    suspect: int
    reason: str
    def __init__(self, epoch: _Optional[int] = ..., suspect: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Left(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class Fatal(_message.Message):
    __slots__ = ("message",)
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    message: str
    def __init__(self, message: _Optional[str] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ("epoch",)
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    def __init__(self, epoch: _Optional[int] = ...) -> None: ...

class FileName(_message.Message):
    __slots__ = ("layout", "key")
    LAYOUT_FIELD_NUMBER: _ClassVar[int]
    KEY_FIELD_NUMBER: _ClassVar[int]
    layout: bytes
    key: bytes
    def __init__(self, layout: _Optional[bytes] = ..., key: _Optional[bytes] = ...) -> None: ...

class FileHeader(_message.Message):
    __slots__ = ("name", "num_tokens", "tokens_digest")
    NAME_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    TOKENS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    name: FileName
    num_tokens: int
    tokens_digest: bytes
    def __init__(self, name: _Optional[_Union[FileName, _Mapping]] = ..., num_tokens: _Optional[int] = ..., tokens_digest: _Optional[bytes] = ...) -> None: ...

class SaveFile(_message.Message):
    __slots__ = ("header", "block_ids")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    header: FileHeader
    block_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, header: _Optional[_Union[FileHeader, _Mapping]] = ..., block_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class CheckFile(_message.Message):
    __slots__ = ("header",)
    HEADER_FIELD_NUMBER: _ClassVar[int]
    header: FileHeader
    def __init__(self, header: _Optional[_Union[FileHeader, _Mapping]] = ...) -> None: ...

class AdoptFile(_message.Message):
    __slots__ = ("header", "block_ids")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    BLOCK_IDS_FIELD_NUMBER: _ClassVar[int]
    header: FileHeader
    block_ids: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, header: _Optional[_Union[FileHeader, _Mapping]] = ..., block_ids: _Optional[_Iterable[int]] = ...) -> None: ...

class DropFile(_message.Message):
    __slots__ = ("name",)
    NAME_FIELD_NUMBER: _ClassVar[int]
    name: FileName
    def __init__(self, name: _Optional[_Union[FileName, _Mapping]] = ...) -> None: ...

class DeleteFiles(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedCompositeFieldContainer[FileName]
    def __init__(self, names: _Optional[_Iterable[_Union[FileName, _Mapping]]] = ...) -> None: ...

class SetAside(_message.Message):
    __slots__ = ("names",)
    NAMES_FIELD_NUMBER: _ClassVar[int]
    names: _containers.RepeatedCompositeFieldContainer[FileName]
    def __init__(self, names: _Optional[_Iterable[_Union[FileName, _Mapping]]] = ...) -> None: ...

class SweepFiles(_message.Message):
    __slots__ = ("known",)
    KNOWN_FIELD_NUMBER: _ClassVar[int]
    known: _containers.RepeatedCompositeFieldContainer[FileName]
    def __init__(self, known: _Optional[_Iterable[_Union[FileName, _Mapping]]] = ...) -> None: ...

class FileOrder(_message.Message):
    __slots__ = ("order_id", "epoch", "save", "check", "adopt", "drop", "delete", "set_aside", "sweep")
    ORDER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    CHECK_FIELD_NUMBER: _ClassVar[int]
    ADOPT_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    DELETE_FIELD_NUMBER: _ClassVar[int]
    SET_ASIDE_FIELD_NUMBER: _ClassVar[int]
    SWEEP_FIELD_NUMBER: _ClassVar[int]
    order_id: int
    epoch: int
    save: SaveFile
    check: CheckFile
    adopt: AdoptFile
    drop: DropFile
    delete: DeleteFiles
    set_aside: SetAside
    sweep: SweepFiles
    def __init__(self, order_id: _Optional[int] = ..., epoch: _Optional[int] = ..., save: _Optional[_Union[SaveFile, _Mapping]] = ..., check: _Optional[_Union[CheckFile, _Mapping]] = ..., adopt: _Optional[_Union[AdoptFile, _Mapping]] = ..., drop: _Optional[_Union[DropFile, _Mapping]] = ..., delete: _Optional[_Union[DeleteFiles, _Mapping]] = ..., set_aside: _Optional[_Union[SetAside, _Mapping]] = ..., sweep: _Optional[_Union[SweepFiles, _Mapping]] = ...) -> None: ...

class FileDone(_message.Message):
    __slots__ = ("order_id", "epoch", "fault", "message", "num_bytes", "took_ns")
    ORDER_ID_FIELD_NUMBER: _ClassVar[int]
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_BYTES_FIELD_NUMBER: _ClassVar[int]
    TOOK_NS_FIELD_NUMBER: _ClassVar[int]
    order_id: int
    epoch: int
    fault: FileFault
    message: str
    num_bytes: int
    took_ns: int
    def __init__(self, order_id: _Optional[int] = ..., epoch: _Optional[int] = ..., fault: _Optional[_Union[FileFault, str]] = ..., message: _Optional[str] = ..., num_bytes: _Optional[int] = ..., took_ns: _Optional[int] = ...) -> None: ...

class EncodeImage(_message.Message):
    __slots__ = ("image_id", "digest", "width", "height", "pixels")
    IMAGE_ID_FIELD_NUMBER: _ClassVar[int]
    DIGEST_FIELD_NUMBER: _ClassVar[int]
    WIDTH_FIELD_NUMBER: _ClassVar[int]
    HEIGHT_FIELD_NUMBER: _ClassVar[int]
    PIXELS_FIELD_NUMBER: _ClassVar[int]
    image_id: int
    digest: bytes
    width: int
    height: int
    pixels: bytes
    def __init__(self, image_id: _Optional[int] = ..., digest: _Optional[bytes] = ..., width: _Optional[int] = ..., height: _Optional[int] = ..., pixels: _Optional[bytes] = ...) -> None: ...

class CancelImage(_message.Message):
    __slots__ = ("image_id",)
    IMAGE_ID_FIELD_NUMBER: _ClassVar[int]
    image_id: int
    def __init__(self, image_id: _Optional[int] = ...) -> None: ...

class DropImage(_message.Message):
    __slots__ = ("image_id",)
    IMAGE_ID_FIELD_NUMBER: _ClassVar[int]
    image_id: int
    def __init__(self, image_id: _Optional[int] = ...) -> None: ...

class ImageOrder(_message.Message):
    __slots__ = ("epoch", "encode", "cancel", "drop")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    ENCODE_FIELD_NUMBER: _ClassVar[int]
    CANCEL_FIELD_NUMBER: _ClassVar[int]
    DROP_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    encode: EncodeImage
    cancel: CancelImage
    drop: DropImage
    def __init__(self, epoch: _Optional[int] = ..., encode: _Optional[_Union[EncodeImage, _Mapping]] = ..., cancel: _Optional[_Union[CancelImage, _Mapping]] = ..., drop: _Optional[_Union[DropImage, _Mapping]] = ...) -> None: ...

class ImageDone(_message.Message):
    __slots__ = ("epoch", "image_id", "fault", "message", "num_tokens", "rows_digest", "took_ns")
    EPOCH_FIELD_NUMBER: _ClassVar[int]
    IMAGE_ID_FIELD_NUMBER: _ClassVar[int]
    FAULT_FIELD_NUMBER: _ClassVar[int]
    MESSAGE_FIELD_NUMBER: _ClassVar[int]
    NUM_TOKENS_FIELD_NUMBER: _ClassVar[int]
    ROWS_DIGEST_FIELD_NUMBER: _ClassVar[int]
    TOOK_NS_FIELD_NUMBER: _ClassVar[int]
    epoch: int
    image_id: int
    fault: ImageFault
    message: str
    num_tokens: int
    rows_digest: bytes
    took_ns: int
    def __init__(self, epoch: _Optional[int] = ..., image_id: _Optional[int] = ..., fault: _Optional[_Union[ImageFault, str]] = ..., message: _Optional[str] = ..., num_tokens: _Optional[int] = ..., rows_digest: _Optional[bytes] = ..., took_ns: _Optional[int] = ...) -> None: ...

class Shutdown(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class StoreSetRequest(_message.Message):
    __slots__ = ("key", "value")
    KEY_FIELD_NUMBER: _ClassVar[int]
    VALUE_FIELD_NUMBER: _ClassVar[int]
    key: str
    value: bytes
    def __init__(self, key: _Optional[str] = ..., value: _Optional[bytes] = ...) -> None: ...

class StoreSetResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StoreGetRequest(_message.Message):
    __slots__ = ("key", "timeout_s")
    KEY_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    key: str
    timeout_s: float
    def __init__(self, key: _Optional[str] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class StoreGetResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class StoreAddRequest(_message.Message):
    __slots__ = ("key", "amount")
    KEY_FIELD_NUMBER: _ClassVar[int]
    AMOUNT_FIELD_NUMBER: _ClassVar[int]
    key: str
    amount: int
    def __init__(self, key: _Optional[str] = ..., amount: _Optional[int] = ...) -> None: ...

class StoreAddResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: int
    def __init__(self, value: _Optional[int] = ...) -> None: ...

class StoreCompareSetRequest(_message.Message):
    __slots__ = ("key", "expected", "desired")
    KEY_FIELD_NUMBER: _ClassVar[int]
    EXPECTED_FIELD_NUMBER: _ClassVar[int]
    DESIRED_FIELD_NUMBER: _ClassVar[int]
    key: str
    expected: bytes
    desired: bytes
    def __init__(self, key: _Optional[str] = ..., expected: _Optional[bytes] = ..., desired: _Optional[bytes] = ...) -> None: ...

class StoreCompareSetResponse(_message.Message):
    __slots__ = ("value",)
    VALUE_FIELD_NUMBER: _ClassVar[int]
    value: bytes
    def __init__(self, value: _Optional[bytes] = ...) -> None: ...

class StoreCheckRequest(_message.Message):
    __slots__ = ("keys",)
    KEYS_FIELD_NUMBER: _ClassVar[int]
    keys: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, keys: _Optional[_Iterable[str]] = ...) -> None: ...

class StoreCheckResponse(_message.Message):
    __slots__ = ("present",)
    PRESENT_FIELD_NUMBER: _ClassVar[int]
    present: bool
    def __init__(self, present: bool = ...) -> None: ...

class StoreDeleteRequest(_message.Message):
    __slots__ = ("key",)
    KEY_FIELD_NUMBER: _ClassVar[int]
    key: str
    def __init__(self, key: _Optional[str] = ...) -> None: ...

class StoreDeleteResponse(_message.Message):
    __slots__ = ("removed",)
    REMOVED_FIELD_NUMBER: _ClassVar[int]
    removed: bool
    def __init__(self, removed: bool = ...) -> None: ...

class FollowRequest(_message.Message):
    __slots__ = ("join", "child_spawned", "child_not_spawned", "child_exited", "child_sight")
    JOIN_FIELD_NUMBER: _ClassVar[int]
    CHILD_SPAWNED_FIELD_NUMBER: _ClassVar[int]
    CHILD_NOT_SPAWNED_FIELD_NUMBER: _ClassVar[int]
    CHILD_EXITED_FIELD_NUMBER: _ClassVar[int]
    CHILD_SIGHT_FIELD_NUMBER: _ClassVar[int]
    join: Join
    child_spawned: ChildSpawned
    child_not_spawned: ChildNotSpawned
    child_exited: ChildExited
    child_sight: ChildSight
    def __init__(self, join: _Optional[_Union[Join, _Mapping]] = ..., child_spawned: _Optional[_Union[ChildSpawned, _Mapping]] = ..., child_not_spawned: _Optional[_Union[ChildNotSpawned, _Mapping]] = ..., child_exited: _Optional[_Union[ChildExited, _Mapping]] = ..., child_sight: _Optional[_Union[ChildSight, _Mapping]] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("spawn_child", "stop_child", "dismiss")
    SPAWN_CHILD_FIELD_NUMBER: _ClassVar[int]
    STOP_CHILD_FIELD_NUMBER: _ClassVar[int]
    DISMISS_FIELD_NUMBER: _ClassVar[int]
    spawn_child: SpawnChild
    stop_child: StopChild
    dismiss: Dismiss
    def __init__(self, spawn_child: _Optional[_Union[SpawnChild, _Mapping]] = ..., stop_child: _Optional[_Union[StopChild, _Mapping]] = ..., dismiss: _Optional[_Union[Dismiss, _Mapping]] = ...) -> None: ...

class Join(_message.Message):
    __slots__ = ("rank", "world_size", "pid", "build", "node_id", "host", "model_path")
    RANK_FIELD_NUMBER: _ClassVar[int]
    WORLD_SIZE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    BUILD_FIELD_NUMBER: _ClassVar[int]
    NODE_ID_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    MODEL_PATH_FIELD_NUMBER: _ClassVar[int]
    rank: int
    world_size: int
    pid: int
    build: str
    node_id: str
    host: str
    model_path: str
    def __init__(self, rank: _Optional[int] = ..., world_size: _Optional[int] = ..., pid: _Optional[int] = ..., build: _Optional[str] = ..., node_id: _Optional[str] = ..., host: _Optional[str] = ..., model_path: _Optional[str] = ...) -> None: ...

class ChildSpawned(_message.Message):
    __slots__ = ("life", "pid")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    life: int
    pid: int
    def __init__(self, life: _Optional[int] = ..., pid: _Optional[int] = ...) -> None: ...

class ChildNotSpawned(_message.Message):
    __slots__ = ("life", "reason")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    life: int
    reason: str
    def __init__(self, life: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ChildExited(_message.Message):
    __slots__ = ("life", "exit_code")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    life: int
    exit_code: int
    def __init__(self, life: _Optional[int] = ..., exit_code: _Optional[int] = ...) -> None: ...

class ChildSight(_message.Message):
    __slots__ = ("life", "is_stopped", "cpu_ticks")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    IS_STOPPED_FIELD_NUMBER: _ClassVar[int]
    CPU_TICKS_FIELD_NUMBER: _ClassVar[int]
    life: int
    is_stopped: bool
    cpu_ticks: int
    def __init__(self, life: _Optional[int] = ..., is_stopped: bool = ..., cpu_ticks: _Optional[int] = ...) -> None: ...

class SpawnChild(_message.Message):
    __slots__ = ("life", "token")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    TOKEN_FIELD_NUMBER: _ClassVar[int]
    life: int
    token: str
    def __init__(self, life: _Optional[int] = ..., token: _Optional[str] = ...) -> None: ...

class StopChild(_message.Message):
    __slots__ = ("life", "timeout_s")
    LIFE_FIELD_NUMBER: _ClassVar[int]
    TIMEOUT_S_FIELD_NUMBER: _ClassVar[int]
    life: int
    timeout_s: float
    def __init__(self, life: _Optional[int] = ..., timeout_s: _Optional[float] = ...) -> None: ...

class Dismiss(_message.Message):
    __slots__ = ("reason", "is_failure")
    REASON_FIELD_NUMBER: _ClassVar[int]
    IS_FAILURE_FIELD_NUMBER: _ClassVar[int]
    reason: str
    is_failure: bool
    def __init__(self, reason: _Optional[str] = ..., is_failure: bool = ...) -> None: ...
