"""Keys against the real server: who is let in, and that scopes share nothing."""

from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from lanehost import Client
from lanehost.client_errors import KeyRefused
from lanehost.keys_file import scope_table
from lanehost.v1 import inference_pb2 as pb
from lanehost.v1 import inference_pb2_grpc
from tests.support.served import Served, serving

pytestmark = [pytest.mark.model, pytest.mark.ranks, pytest.mark.timeout(300)]
KEYS = {"team-a": "key-of-team-a-0123456789", "team-b": "key-of-team-b-0123456789"}
PROMPT = list(range(1000, 1100))
REQUEST = {"token_ids": PROMPT, "max_tokens": 4}
STRANGERS = (None, "key-of-nobody")
GRPC_CALLS = {
    "Generate": pb.GenerateRequest(text="hi"),
    "StreamGenerate": pb.StreamGenerateRequest(text="hi"),
    "Tokenize": pb.TokenizeRequest(text="hi"),
    "Detokenize": pb.DetokenizeRequest(token_ids=[65]),
    "GetModel": pb.GetModelRequest(),
}
HTTP_CALLS = [
    ("POST", "/v1/chat/completions"),
    ("POST", "/v1/completions"),
    ("GET", "/v1/models"),
    ("GET", "/v1/models/any"),
]


def _keys_file(folder: Path) -> str:
    path = folder / "keys.toml"
    path.write_text("".join(scope_table(name, key, 1) for name, key in KEYS.items()))
    return str(path)


def _check_strangers_over_grpc(served: Served) -> None:
    with grpc.insecure_channel(served.grpc_address) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        for method, message in GRPC_CALLS.items():
            for key in STRANGERS:
                metadata = () if key is None else (("authorization", f"Bearer {key}"),)
                with pytest.raises(grpc.RpcError) as caught:
                    list(_events(getattr(stub, method)(message, metadata=metadata)))
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED
        health = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest())
        assert health.status == health_pb2.HealthCheckResponse.SERVING


def _events(answer):
    return answer if isinstance(answer, grpc.Call) else [answer]


def _check_strangers_over_http(served: Served) -> None:
    with httpx.Client(base_url=f"http://{served.http_address}") as client:
        for method, path in HTTP_CALLS:
            for key in STRANGERS:
                headers = {} if key is None else {"authorization": f"Bearer {key}"}
                answer = client.request(method, path, headers=headers, content=b"{}")
                assert (path, answer.status_code) == (path, 401)
        assert client.get("/health").status_code == 200


def _cached_over_http(served: Served, key: str) -> int:
    with httpx.Client(base_url=f"http://{served.http_address}", timeout=60) as client:
        client.headers["authorization"] = f"Bearer {key}"
        name = client.get("/v1/models").json()["data"][0]["id"]
        body = {"model": name, "prompt": PROMPT, "max_tokens": 4}
        usage = client.post("/v1/completions", json=body).json()["usage"]
    return usage["prompt_tokens_details"]["cached_tokens"]


def test_only_keys_are_let_in_and_scopes_share_no_prompt_and_no_key_is_logged(tmp_path) -> None:
    with serving(tmp_path, "--keys", _keys_file(tmp_path)) as served:
        _check_strangers_over_grpc(served)
        _check_strangers_over_http(served)
        cached, replies = [], set()
        for name in ("team-a", "team-a", "team-b", "team-b"):
            with Client(served.grpc_address, key=KEYS[name]) as client:
                reply = client.generate(**REQUEST)
            cached.append(reply.usage.cached_tokens)
            replies.add(reply.token_ids)
        over_http = [_cached_over_http(served, key) for key in KEYS.values()]
        with Client(served.grpc_address) as client, pytest.raises(KeyRefused):
            client.generate(**REQUEST)
        seen = served.log_text()
    assert (cached, len(replies)) == ([0, 96, 0, 96], 1)
    assert over_http == [96, 96]
    assert not [key for key in (*KEYS.values(), "key-of-nobody") if key in seen]
