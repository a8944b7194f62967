import contextlib
import dataclasses
import enum
import types
import typing

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.frames import NotARecord
from lanehost.job import Priority
from lanehost.recorder import records
from lanehost.recorder.records import (
    REDACTED_ID,
    GroupWasLost,
    Header,
    JobArrived,
    JobSeated,
    Redactor,
    StepReturned,
    StepSubmitted,
    StepTurnedDown,
    pack,
    unpack,
)
from ranks.plan import Chunk, Draw, LaneDraft, RefusalKind, StepPlan
from tests.support.trails import header

# What every number of a record may be; some may be 0, and times more.
NUMBERS = st.integers(1, 2**32 - 1)
PLAIN = {
    int: NUMBERS,
    str: st.text(),
    bytes: st.binary(max_size=64),
    bool: st.booleans(),
    float: st.floats(allow_nan=False),
    type(None): st.none(),
}
KINDS = (Header, *records.Note.__args__)


def strategy(kind):  # noqa: PLR0911 - one for each kind of type
    """Whatever a field may hold: a field that is new is covered, and must pack."""
    if kind in PLAIN:
        return PLAIN[kind]
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{name: strategy(hint) for name, hint in hints.items()})
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return st.sampled_from(kind)
    parts = typing.get_args(kind)
    match typing.get_origin(kind):
        case typing.Literal:
            return st.sampled_from(parts)
        case types.UnionType | typing.Union:
            return st.one_of(map(strategy, parts))
        case _ if parts[-1] is Ellipsis:
            return st.lists(strategy(parts[0]), max_size=3).map(tuple)
        case _:
            return st.tuples(*map(strategy, parts))


def names_lanes_once(record):
    if not isinstance(record, StepReturned):
        return True
    ends = [lane_id for lane_id, _ in (*record.drawn, *record.failures)]
    guessed = [lane_id for lane_id, _ in record.accepted]
    return len(set(ends)) == len(ends) and len(set(guessed)) == len(guessed)


def draw_record(data, kind):
    return data.draw(strategy(kind).filter(names_lanes_once))


@pytest.mark.parametrize("kind", KINDS)
@given(data=st.data())
def test_what_is_packed_unpacks_to_an_equal_record(kind, data):
    record = draw_record(data, kind)
    assert unpack(pack(record)) == record


@given(st.binary(max_size=200))
def test_any_bytes_are_a_record_or_a_typed_error(payload):
    with contextlib.suppress(NotARecord):
        unpack(payload)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.text() | st.binary(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(kind=st.sampled_from(KINDS), fields=st.dictionaries(st.text(max_size=8), VALUES))
def test_any_map_is_a_record_or_a_typed_error(kind, fields):
    known = {name: fields.get(name, 0) for name in kind.__dataclass_fields__}
    known["kind"] = kind.__dataclass_fields__["kind"].default
    with contextlib.suppress(NotARecord):
        unpack(msgpack.packb(known))


def test_an_error_does_not_quote_what_was_in_the_record():
    fields = {"kind": "job_arrived", "prompt_ids": "secret", "job_id": 1}
    with pytest.raises(NotARecord) as raised:
        unpack(msgpack.packb(fields))
    assert "secret" not in str(raised.value)


def test_a_deeply_nested_value_is_a_typed_error():
    with pytest.raises(NotARecord):
        unpack(b"\x91" * 100_000 + b"\xc0")


def test_keys_that_are_no_text_are_refused():
    with pytest.raises(NotARecord):
        unpack(msgpack.packb({1: 2}))


def redacted(note):
    return Redactor(bytes(32)).redact(note)


def arrived(prompt_ids, **changes):
    usual = {"at_ns": 1, "job_id": "j", "label": "", "max_tokens": 1, "draw": Draw()}
    return JobArrived(prompt_ids=prompt_ids, **(usual | changes))


def test_redacted_a_job_keeps_its_length_and_no_id():
    note = redacted(arrived((77, 78)))
    assert note.prompt_ids == (REDACTED_ID, REDACTED_ID)
    assert b"\x4d" not in pack(note).split(b"prompt_ids")[1].split(b"prompt_digest")[0]
    assert note.prompt_digest == redacted(arrived((77, 78))).prompt_digest
    assert note.prompt_digest != redacted(arrived((77, 79))).prompt_digest


def test_another_key_gives_other_digests():
    other = Redactor(bytes([1]) * 32).redact(arrived((77,)))
    assert other.prompt_digest != redacted(arrived((77,))).prompt_digest


def test_redacted_a_plan_keeps_its_shape_and_no_id():
    plan = StepPlan(
        step_id=1,
        epoch=1,
        chunks=(Chunk(lane_id=0, start=0, token_ids=(77, 78), draws=True),),
        decodes=(1,),
        drafts=(LaneDraft(lane_id=1, token_ids=(79,)),),
        digest=b"of the tokens",
    )
    note = redacted(StepSubmitted(at_ns=1, plan=plan))
    assert note.plan.num_tokens == plan.num_tokens
    assert [chunk.token_ids for chunk in note.plan.chunks] == [(REDACTED_ID, REDACTED_ID)]
    assert [draft.token_ids for draft in note.plan.drafts] == [(REDACTED_ID,)]
    assert b"of the tokens" not in pack(note)
    assert len(note.chunk_digests) == 1


def test_redacted_a_result_keeps_the_reply_and_not_the_digest_of_what_was_fed():
    note = StepReturned(
        at_ns=1, step_id=1, epoch=1, drawn=((0, 5),), failures=(), digest=b"fed", compute_ns=0
    )
    assert redacted(note).drawn == note.drawn
    assert redacted(note).digest != b"fed"


@pytest.mark.parametrize(
    "note",
    [
        StepTurnedDown(at_ns=1, step_id=1, epoch=1, reason="token id 77"),
        GroupWasLost(at_ns=1, epoch=1, rank=0, reason="token id 77"),
    ],
)
def test_redacted_no_reason_of_a_rank_is_kept(note):
    assert "77" not in redacted(note).reason


def test_redacted_a_refusal_keeps_its_kind():
    note = StepTurnedDown(at_ns=1, step_id=1, epoch=1, refusal=RefusalKind.SKIPPED, reason="77")
    assert redacted(note).refusal is RefusalKind.SKIPPED


def test_what_an_older_record_does_not_say_has_its_default():
    fields = msgpack.unpackb(pack(StepTurnedDown(at_ns=1, step_id=1, epoch=1, reason="x")))
    del fields["refusal"]
    assert unpack(msgpack.packb(fields)).refusal is RefusalKind.MISMATCH
    fields = msgpack.unpackb(pack(arrived((1,))))
    del fields["scope"], fields["priority"]
    assert unpack(msgpack.packb(fields)) == arrived((1,), scope="", priority=Priority.FOREGROUND)


def test_what_holds_no_prompt_is_kept_as_it_is():
    note = JobSeated(at_ns=1, job_id="j", lane_id=1, num_cached_tokens=4)
    assert redacted(note) is note
    assert header() == unpack(pack(header()))


RETURNED = StepReturned(
    at_ns=1, step_id=1, epoch=1, drawn=((0, 5),), failures=(), digest=b"d", compute_ns=1
)


@pytest.mark.parametrize(
    "record",
    [
        dataclasses.replace(RETURNED, epoch=1 << 40),
        dataclasses.replace(RETURNED, drawn=((0, 1 << 61),)),
        dataclasses.replace(RETURNED, drawn=((-1, 5),)),
        dataclasses.replace(RETURNED, drawn=((0, 1), (0, 2))),
        dataclasses.replace(RETURNED, accepted=((0, (1,)), (0, (2,)))),
        dataclasses.replace(header(), facts=dataclasses.replace(header().facts, block_size=0)),
        dataclasses.replace(
            header(), facts=dataclasses.replace(header().facts, vocab_size=1 << 62)
        ),
    ],
)
def test_numbers_that_no_run_has_are_refused(record):
    with pytest.raises(NotARecord):
        unpack(pack(record))


def test_times_and_seeds_may_be_wide():
    wide = dataclasses.replace(RETURNED, at_ns=(1 << 63), compute_ns=(1 << 63))
    assert unpack(pack(wide)) == wide
