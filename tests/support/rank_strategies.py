"""Hypothesis strategies for what goes over the wire between master and ranks."""

from hypothesis import strategies as st

from ranks.plan import (
    Chunk,
    ChunkImage,
    Draw,
    LaneDraft,
    LaneFault,
    LaneGrow,
    LaneJoin,
    RefusalKind,
    StagedSlice,
    StepPlan,
    StepRefused,
    StepResult,
)
from ranks.wire.file_messages import (
    AdoptFile,
    CheckFile,
    DeleteFiles,
    DropFile,
    FileDone,
    FileFault,
    FileHeader,
    FileName,
    FileOrder,
    SaveFile,
    SetAside,
    SweepFiles,
)
from ranks.wire.image_messages import (
    CancelImage,
    DropImage,
    EncodeImage,
    ImageDone,
    ImageFacts,
    ImageFault,
    ImageOrder,
)
from ranks.wire.messages import (
    Broken,
    Fatal,
    Form,
    Heartbeat,
    Hello,
    Leave,
    Left,
    Load,
    Loaded,
    LoadProgress,
    Ready,
    Shutdown,
)

u32 = st.integers(0, 2**32 - 1)
u64 = st.integers(0, 2**64 - 1)
ids = st.lists(u32, max_size=5).map(tuple)
lane = st.integers(0, 300)
text = st.text(max_size=20)
digest = st.binary(min_size=16, max_size=16)
positive = st.integers(1, 2**32 - 1)


def unit(low: float) -> st.SearchStrategy[float]:
    return st.floats(low, 1.0, width=32, exclude_min=low == 0.0)


draw = st.builds(
    Draw,
    temperature=st.floats(0, 1e6, width=32),
    top_p=unit(0.0),
    top_k=st.none() | positive,
    min_p=st.floats(0, 1, width=32),
    seed=u64,
)
image_id = st.integers(1, 2**64 - 1)
images = st.lists(
    st.builds(ChunkImage, image_id=image_id, start=u32, num_tokens=positive), max_size=3
).map(tuple)
chunks = st.lists(
    st.builds(Chunk, lane_id=u32, start=u32, token_ids=ids, draws=st.booleans(), images=images),
    max_size=4,
).map(tuple)
staged = st.builds(
    StagedSlice,
    pass_id=st.integers(1, 2**64 - 1),
    chunks=chunks,
    first_layer=u32,
    stop_layer=positive,
)
plan = st.builds(
    StepPlan,
    step_id=st.integers(1, 2**64 - 1),
    epoch=positive,
    follows=u64,
    leaves=ids,
    joins=st.lists(
        st.builds(LaneJoin, lane_id=u32, draw=draw, num_cached_tokens=u32), max_size=4
    ).map(tuple),
    grows=st.lists(st.builds(LaneGrow, lane_id=u32, block_ids=ids), max_size=4).map(tuple),
    chunks=chunks,
    decodes=ids,
    drafts=st.lists(st.builds(LaneDraft, lane_id=u32, token_ids=ids), max_size=3).map(tuple),
    digest=digest,
    tells_parts=st.booleans(),
    staged=st.none() | staged,
)


@st.composite
def results(pick) -> StepResult:
    lanes = pick(st.lists(lane, unique=True, max_size=6))
    num_failed = pick(st.integers(0, len(lanes)))
    return StepResult(
        step_id=pick(st.integers(1, 2**64 - 1)),
        epoch=pick(positive),
        drawn={lane_id: pick(u32) for lane_id in lanes[num_failed:]},
        failures=dict.fromkeys(lanes[:num_failed], LaneFault.NAN),
        accepted={lane_id: pick(ids) for lane_id in lanes[num_failed:][::2]},
        digest=pick(digest),
        compute_ns=pick(u64),
        parts=pick(st.dictionaries(text, u64, max_size=3)),
    )


hex_digest = st.binary(min_size=32, max_size=32).map(bytes.hex)
file_name = st.builds(FileName, layout=hex_digest, key=hex_digest)
file_header = st.builds(FileHeader, name=file_name, num_tokens=positive, tokens_digest=hex_digest)
file_names = st.lists(file_name, max_size=3).map(tuple)
file_order = st.builds(
    FileOrder,
    order_id=st.integers(1, 2**64 - 1),
    epoch=positive,
    work=st.one_of(
        st.builds(SaveFile, header=file_header, block_ids=ids),
        st.builds(CheckFile, header=file_header),
        st.builds(AdoptFile, header=file_header, block_ids=ids),
        st.builds(DropFile, name=file_name),
        st.builds(DeleteFiles, names=file_names),
        st.builds(SetAside, names=file_names),
        st.builds(SweepFiles, known=file_names),
    ),
)
file_done = st.builds(
    FileDone,
    order_id=st.integers(1, 2**64 - 1),
    epoch=positive,
    fault=st.none() | st.sampled_from(FileFault),
    message=text,
    num_bytes=u64,
    took_ns=u64,
)


@st.composite
def encodes(pick) -> EncodeImage:
    width, height = pick(st.integers(1, 6)), pick(st.integers(1, 6))
    num_bytes = 3 * width * height
    return EncodeImage(
        image_id=pick(image_id),
        digest=pick(hex_digest),
        width=width,
        height=height,
        pixels=pick(st.binary(min_size=num_bytes, max_size=num_bytes)),
    )


image_order = st.builds(
    ImageOrder,
    epoch=positive,
    work=st.one_of(
        encodes(),
        st.builds(CancelImage, image_id=image_id),
        st.builds(DropImage, image_id=image_id),
    ),
)
image_done = st.one_of(
    st.builds(
        ImageDone,
        epoch=positive,
        image_id=image_id,
        message=text,
        num_tokens=positive,
        rows_digest=digest,
        took_ns=u64,
    ),
    st.builds(
        ImageDone,
        epoch=positive,
        image_id=image_id,
        fault=st.sampled_from(ImageFault),
        message=text,
        took_ns=u64,
    ),
)
image_facts = st.builds(
    ImageFacts, num_tokens=positive, token_id=u32, width=positive, height=positive
)
master_messages = st.one_of(
    image_order,
    file_order,
    plan,
    st.builds(
        Load,
        model_path=text,
        dtype=text,
        device=text,
        num_threads=st.none() | u32,
        block_size=positive,
        max_step_tokens=positive,
        num_lanes=positive,
        weights=text,
        max_staged_tokens=u32,
        image_cache_tokens=u32,
        encoder_device=text,
    ),
    st.builds(
        Form,
        epoch=positive,
        num_blocks=positive,
        block_size=positive,
        num_lanes=positive,
        max_step_tokens=positive,
        collective_timeout_s=st.floats(0.001, 86400),
        disk_folder=st.none() | text,
        max_staged_tokens=u32,
        image_cache_tokens=u32,
    ),
    st.builds(Leave, epoch=positive),
    st.builds(Shutdown, reason=text),
)
rank_messages = st.one_of(
    file_done,
    image_done,
    results(),
    st.builds(
        StepRefused,
        step_id=positive,
        epoch=positive,
        kind=st.sampled_from(RefusalKind),
        reason=text,
    ),
    st.builds(Hello, rank=u32, world_size=positive, pid=u32, build=text, token=text),
    st.builds(Heartbeat, step_id=u64, num_stages=u64),
    st.builds(Broken, epoch=positive, suspect=st.none() | u32, reason=text),
    st.builds(Left, epoch=positive),
    st.builds(LoadProgress, done_bytes=u64, total_bytes=u64),
    st.builds(
        Loaded,
        weights_digest=text,
        config_digest=text,
        geometry=text,
        vocab_size=positive,
        context_length=positive,
        kv_bytes_per_block=st.integers(1, 2**64 - 1),
        step_bytes=u64,
        step_bytes_per_block=u64,
        free_bytes=u64,
        dtype=text,
        device=text,
        collective=text,
        weights=text,
        kv_layout=text,
        num_layers=positive,
        image_facts=st.none() | image_facts,
    ),
    st.builds(Ready, epoch=positive),
    st.builds(Fatal, message=text),
)
