"""Records of a journal: what is packed is what is unpacked, and nothing else is a record."""

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lanehost.frames import NotARecord
from lanehost.job import DiskUse, FinishReason, Priority, StopParams
from lanehost.journal import records
from lanehost.journal.records import Closed, Drawn, Ended, Ready, pack, unpack
from ranks.plan import Draw
from tests.support.journals import HEADER, accepted, drawn, ended, finished

RECORDS = [
    HEADER,
    Ready(),
    Closed(),
    accepted(),
    accepted(
        7,
        label="mine",
        scope="team-a",
        priority=Priority.BACKGROUND,
        prompt_ids=(0, (1 << 32) - 1),
        marks=(1, 2),
        draw=Draw(temperature=0.8, top_p=0.5, top_k=3, min_p=0.1, seed=(1 << 64) - 1),
        stop=StopParams(strings=("é", "\n\n"), token_ids=(5,), ignore_eos=True),
        disk_use=DiskUse.READ,
        num_recoveries=2,
    ),
    drawn(1, 0, 5, 6),
    Drawn(runs=((1, 0, (5,)), (2, 70000, (1, 2, 3)))),
    ended(1, 4, at_s=1.5),
    Ended(number=1, at_s=2.0, finished=None),
    Ended(number=1, at_s=2.0, finished=finished(3, reason=FinishReason.STOP, matched="END")),
    Ended(number=1, at_s=2.0, finished=finished(3, reason=FinishReason.EOS, matched=2)),
]


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: record.kind)
def test_what_is_packed_unpacks_to_an_equal_record(record):
    assert unpack(pack(record)) == record


def test_one_of_a_build_before_the_disk_has_the_default():
    fields = msgpack.unpackb(pack(accepted()))
    del fields["disk_use"]
    assert unpack(msgpack.packb(fields)) == accepted()


@given(st.sampled_from(RECORDS), st.data())
def test_any_bytes_are_a_record_or_not_one(record, data):
    payload = bytearray(pack(record))
    at = data.draw(st.integers(0, len(payload) - 1))
    payload[at] ^= data.draw(st.integers(1, 255))
    try:
        unpack(bytes(payload))
    except NotARecord:
        return


@pytest.mark.parametrize(
    ("record", "field", "value"),
    [
        (accepted(), "number", -1),
        (accepted(), "prompt_ids", [1, 1 << 32]),
        (accepted(), "max_tokens", 1 << 48),
        (accepted(), "draw", {"seed": "seven"}),
        (drawn(1, 0, 5), "runs", [[1, -1, [5]]]),
        (drawn(1, 0, 5), "runs", [[1, 0, [-5]]]),
        (ended(1, 1), "at_s", float("inf")),
        (ended(1, 1), "kind", "else"),
    ],
)
def test_numbers_that_no_journal_has_are_refused_without_their_value(record, field, value):
    fields = msgpack.unpackb(pack(record), use_list=True) | {field: value}
    with pytest.raises(NotARecord) as refused:
        unpack(msgpack.packb(fields))
    assert repr(value) not in str(refused.value)


def test_a_record_above_the_bound_is_not_packed():
    wide = records.MAX_RECORD_BYTES // 5 + 1
    with pytest.raises(ValueError, match="bytes, limit"):
        pack(drawn(1, 0, *([(1 << 32) - 1] * wide)))
