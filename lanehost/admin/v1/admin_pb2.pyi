from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from typing import ClassVar as _ClassVar, Optional as _Optional

DESCRIPTOR: _descriptor.FileDescriptor

class GetCacheStatsRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class GetCacheStatsResponse(_message.Message):
    __slots__ = ("memory_entries", "memory_blocks", "disk_entries", "disk_bytes", "disk_budget_bytes", "disk_hits", "disk_misses", "disk_saves", "disk_dropped", "disk_faults")
    MEMORY_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    MEMORY_BLOCKS_FIELD_NUMBER: _ClassVar[int]
    DISK_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    DISK_HITS_FIELD_NUMBER: _ClassVar[int]
    DISK_MISSES_FIELD_NUMBER: _ClassVar[int]
    DISK_SAVES_FIELD_NUMBER: _ClassVar[int]
    DISK_DROPPED_FIELD_NUMBER: _ClassVar[int]
    DISK_FAULTS_FIELD_NUMBER: _ClassVar[int]
    memory_entries: int
    memory_blocks: int
    disk_entries: int
    disk_bytes: int
    disk_budget_bytes: int
    disk_hits: int
    disk_misses: int
    disk_saves: int
    disk_dropped: int
    disk_faults: int
    def __init__(self, memory_entries: _Optional[int] = ..., memory_blocks: _Optional[int] = ..., disk_entries: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., disk_budget_bytes: _Optional[int] = ..., disk_hits: _Optional[int] = ..., disk_misses: _Optional[int] = ..., disk_saves: _Optional[int] = ..., disk_dropped: _Optional[int] = ..., disk_faults: _Optional[int] = ...) -> None: ...

class FlushCacheRequest(_message.Message):
    __slots__ = ("scope",)
    SCOPE_FIELD_NUMBER: _ClassVar[int]
    scope: str
    def __init__(self, scope: _Optional[str] = ...) -> None: ...

class FlushCacheResponse(_message.Message):
    __slots__ = ("memory_entries", "disk_entries", "in_use")
    MEMORY_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DISK_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    IN_USE_FIELD_NUMBER: _ClassVar[int]
    memory_entries: int
    disk_entries: int
    in_use: int
    def __init__(self, memory_entries: _Optional[int] = ..., disk_entries: _Optional[int] = ..., in_use: _Optional[int] = ...) -> None: ...

class PruneCacheRequest(_message.Message):
    __slots__ = ("budget_bytes",)
    BUDGET_BYTES_FIELD_NUMBER: _ClassVar[int]
    budget_bytes: int
    def __init__(self, budget_bytes: _Optional[int] = ...) -> None: ...

class PruneCacheResponse(_message.Message):
    __slots__ = ("disk_entries", "disk_bytes", "left_bytes")
    DISK_ENTRIES_FIELD_NUMBER: _ClassVar[int]
    DISK_BYTES_FIELD_NUMBER: _ClassVar[int]
    LEFT_BYTES_FIELD_NUMBER: _ClassVar[int]
    disk_entries: int
    disk_bytes: int
    left_bytes: int
    def __init__(self, disk_entries: _Optional[int] = ..., disk_bytes: _Optional[int] = ..., left_bytes: _Optional[int] = ...) -> None: ...

class VerifyCacheRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class VerifyCacheResponse(_message.Message):
    __slots__ = ("whole", "broken", "skipped")
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    BROKEN_FIELD_NUMBER: _ClassVar[int]
    SKIPPED_FIELD_NUMBER: _ClassVar[int]
    whole: int
    broken: int
    skipped: int
    def __init__(self, whole: _Optional[int] = ..., broken: _Optional[int] = ..., skipped: _Optional[int] = ...) -> None: ...
