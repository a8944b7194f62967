"""Works on files cross the wire, and nothing can name a file but hex digits."""

import pytest

from ranks.errors import BadMessage
from ranks.wire import rank_pb2 as pb
from ranks.wire.codec import (
    decode_master_message,
    decode_rank_message,
    encode_master_message,
    encode_rank_message,
)
from ranks.wire.file_messages import DropFile, FileDone, FileFault, FileName, FileOrder

D = bytes(32)
NAME = pb.FileName(layout=D, key=D)
HEADER = pb.FileHeader(name=NAME, num_tokens=1, tokens_digest=D)


@pytest.mark.parametrize("fault", [None, *FileFault])
def test_every_fault_has_a_number_of_its_own(fault):
    done = FileDone(order_id=1, epoch=1, fault=fault)
    assert decode_rank_message(encode_rank_message(done)) == done


@pytest.mark.parametrize("digest", ["ab", "../../" * 11, "zz" * 32, ""])
def test_what_is_no_digest_is_not_sent(digest):
    order = FileOrder(
        order_id=1, epoch=1, work=DropFile(name=FileName(layout="00" * 32, key=digest))
    )
    with pytest.raises(ValueError, match="hex"):
        encode_master_message(order)


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({}, "file_order.work is absent"),
        ({"drop": pb.DropFile(name=pb.FileName(key=D))}, "layout has 0 bytes"),
        ({"drop": pb.DropFile(name=pb.FileName(layout=D, key=b"x"))}, "key has 1 bytes"),
        ({"check": pb.CheckFile(header=pb.FileHeader(name=NAME))}, "num_tokens is 0"),
        ({"check": pb.CheckFile(header=pb.FileHeader(name=NAME, num_tokens=1))}, "tokens_digest"),
        ({"check": pb.CheckFile(header=HEADER), "order_id": 0}, "order_id is 0"),
        ({"check": pb.CheckFile(header=HEADER), "epoch": 0}, "epoch is 0"),
    ],
)
def test_a_broken_work_is_refused_by_field(fields, names):
    order = pb.FileOrder(**({"order_id": 1, "epoch": 1} | fields))
    with pytest.raises(BadMessage, match=names):
        decode_master_message(pb.ConnectResponse(file_order=order).SerializeToString())


@pytest.mark.parametrize(
    ("fields", "names"),
    [
        ({"order_id": 0}, "order_id is 0"),
        ({"epoch": 0}, "epoch is 0"),
        ({"fault": 99}, "file_done.fault is 99"),
    ],
)
def test_a_broken_answer_is_refused_by_field(fields, names):
    done = pb.FileDone(**({"order_id": 1, "epoch": 1} | fields))
    with pytest.raises(BadMessage, match=names):
        decode_rank_message(pb.ConnectRequest(file_done=done).SerializeToString())
