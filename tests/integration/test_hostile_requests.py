"""Bad requests get the right status with the numbers, and their neighbours notice nothing."""

import threading

import grpc
import pytest

from lanehost import Client
from lanehost.v1 import inference_pb2 as pb
from lanehost.v1 import inference_pb2_grpc
from tests.support.served import serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
MIB = 1 << 20
NEIGHBOUR = {"prompt": "The history of the lighthouse", "max_tokens": 120, "ignore_eos": True}


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served")) as running:
        yield running


@pytest.fixture(scope="module")
def solo(served):
    with Client(served.grpc_address) as client:
        return client.generate(**NEIGHBOUR).token_ids


@pytest.fixture
def stub(served):
    options = [("grpc.max_send_message_length", 128 * MIB)]
    with grpc.insecure_channel(served.grpc_address, options) as channel:
        yield inference_pb2_grpc.InferenceServiceStub(channel)


@pytest.fixture
def neighbour(served, solo):
    """A reply that runs while the test sends its bad request; it must not change."""
    got = []

    def run():
        with Client(served.grpc_address) as client:
            got.append(client.generate(**NEIGHBOUR).token_ids)

    thread = threading.Thread(target=run)
    thread.start()
    yield
    thread.join()
    assert got == [solo]


def ids(*token_ids):
    return pb.TokenIds(ids=token_ids)


def bad_chat():
    message = pb.ChatMessage(role=pb.ROLE_UNSPECIFIED, content="x")
    return pb.GenerateRequest(chat=pb.Chat(messages=[message]))


BAD = {
    "never fits": (
        pb.GenerateRequest(token_ids=ids(*[5] * 9000)),
        grpc.StatusCode.OUT_OF_RANGE,
        "8192",
    ),
    "reply never fits": (
        pb.GenerateRequest(token_ids=ids(5), max_tokens=9000),
        grpc.StatusCode.OUT_OF_RANGE,
        "9001",
    ),
    "id outside the vocabulary": (
        pb.GenerateRequest(token_ids=ids(5, 49152)),
        grpc.StatusCode.INVALID_ARGUMENT,
        "49152",
    ),
    "empty ids": (
        pb.GenerateRequest(token_ids=ids()),
        grpc.StatusCode.INVALID_ARGUMENT,
        "prompt",
    ),
    "empty text": (pb.GenerateRequest(text=""), grpc.StatusCode.INVALID_ARGUMENT, "prompt"),
    "no prompt": (pb.GenerateRequest(), grpc.StatusCode.INVALID_ARGUMENT, "prompt"),
    "role not set": (bad_chat(), grpc.StatusCode.INVALID_ARGUMENT, "role"),
    "five MiB": (
        pb.GenerateRequest(text="word " * MIB),
        grpc.StatusCode.OUT_OF_RANGE,
        str(5 * MIB),
    ),
    "seventy MiB": (
        pb.GenerateRequest(text="x" * (70 * MIB)),
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        "larger than max",
    ),
}


@pytest.mark.parametrize("name", BAD)
@pytest.mark.usefixtures("neighbour")
def test_a_bad_request_gets_its_status_and_its_neighbour_the_same_reply(stub, name):
    request, code, detail = BAD[name]
    with pytest.raises(grpc.RpcError) as caught:
        stub.Generate(request)
    assert caught.value.code() is code
    assert detail in caught.value.details()
