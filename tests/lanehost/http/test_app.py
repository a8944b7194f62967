import pytest

from lanehost.errors import Starting, Unauthenticated
from tests.support.fake_door import FakeDoor
from tests.support.http_served import CREATED_S, http_client


class _StartingDoor(FakeDoor):
    def model_card(self, key):
        raise Starting("the model is still loading")


async def test_models_lists_the_one_model_with_its_limits() -> None:
    async with http_client(FakeDoor()) as client:
        answer = (await client.get("/v1/models")).json()
    assert answer["object"] == "list"
    (model,) = answer["data"]
    assert (model["id"], model["object"], model["created"]) == ("fake-model", "model", CREATED_S)
    assert model["context_length"] == 128
    assert (model["weights_digest"], model["config_digest"]) == ("ab" * 16, "cd" * 16)


async def test_models_report_the_default_of_every_option() -> None:
    async with http_client(FakeDoor()) as client:
        (model,) = (await client.get("/v1/models")).json()["data"]
    assert model["default_max_tokens"] == 16
    assert model["default_sampling"] == {
        "temperature": 0.0,
        "top_p": 1.0,
        "top_k": None,
        "min_p": 0.0,
        "seed": None,
    }


async def test_a_model_is_found_by_name() -> None:
    async with http_client(FakeDoor()) as client:
        found = await client.get("/v1/models/fake-model")
        missing = await client.get("/v1/models/org/other")
    assert found.json()["id"] == "fake-model"
    assert missing.status_code == 404
    assert missing.json()["error"]["code"] == "model_not_found"


async def test_models_say_that_the_model_is_still_loading() -> None:
    async with http_client(_StartingDoor()) as client:
        for path in ("/v1/models", "/v1/models/x"):
            answer = await client.get(path)
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            assert answer.json()["error"]["code"] == "starting"


async def test_health_follows_the_door() -> None:
    door = FakeDoor()
    async with http_client(door) as client:
        assert (await client.get("/health")).status_code == 200
        door.serving = False
        assert (await client.get("/health")).status_code == 503


async def test_metrics_are_told_to_everybody_in_the_form_that_is_asked_for() -> None:
    async with http_client(FakeDoor(refusal=Unauthenticated("no key"))) as client:
        text = await client.get("/metrics")
        openmetrics = await client.get(
            "/metrics", headers={"accept": "application/openmetrics-text;version=1.0.0"}
        )
    assert text.status_code == openmetrics.status_code == 200
    assert text.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert openmetrics.headers["content-type"].startswith("application/openmetrics-text;")
    assert "\nlanehost_serving 0.0\n" in text.text
    assert openmetrics.text.endswith("# EOF\n")


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("POST", "/metrics", 405),
        ("GET", "/v1/completions", 405),
        ("GET", "/v1/chat/completions", 405),
        ("POST", "/v1/models", 405),
        ("GET", "/nowhere", 404),
        ("POST", "/v1/embeddings", 404),
        ("GET", "/", 404),
        ("GET", "/models", 404),
        ("POST", "/v1/completions/", 404),
        ("GET", "/health/", 404),
    ],
)
async def test_a_wrong_path_or_method_is_said_in_openais_form(method, path, status) -> None:
    async with http_client(FakeDoor()) as client:
        answer = await client.request(method, path)
    assert answer.status_code == status
    assert path in answer.json()["error"]["message"]
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    if status == 404:
        assert "/v1/chat/completions" in answer.json()["error"]["message"]
        assert "/health" in answer.json()["error"]["message"]
    else:
        takes = answer.headers["allow"]
        assert answer.json()["error"]["message"].endswith(f"; it takes {takes}")
