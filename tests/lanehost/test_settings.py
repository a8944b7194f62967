from pathlib import Path

import pytest

from lanehost.errors import StartupFailed
from lanehost.keys import KeyRing, Scope
from lanehost.settings import EngineSettings, LineSettings, RankGroupSettings, ServeSettings

MODEL = Path("model")


def ranks(**values):
    return RankGroupSettings(model_path=MODEL, **values)


def serve(**values):
    return ServeSettings(ranks=ranks(), **values)


def line(**values):
    return LineSettings(**values)


def test_the_defaults_are_allowed():
    assert serve().http_port == 8000


@pytest.mark.parametrize(
    ("make", "field", "value", "option"),
    [
        (ranks, "tp", 0, "--tp"),
        (ranks, "tp", 3, "--tp"),
        (ranks, "num_lanes", 0, "--lanes"),
        (ranks, "num_lanes", 257, "--lanes"),
        (ranks, "max_step_tokens", 15, "--max-step-tokens"),
        (ranks, "load_timeout_s", 0.5, "--load-timeout"),
        (ranks, "num_threads", 0, "--threads"),
        (ranks, "kv_tokens", 15, "--kv-tokens"),
        (ranks, "dtype", "int3", "--dtype"),
        (ranks, "device", "tpu", "--device"),
        (line, "max_waiting", 0, "--max-waiting"),
        (line, "max_waiting_tokens", 0, "--max-waiting-tokens"),
        (line, "max_streams", 0, "--max-streams"),
        (EngineSettings, "max_drafts", -1, "--max-drafts"),
        (EngineSettings, "max_drafts", 65, "--max-drafts"),
        (serve, "port", -1, "--port"),
        (serve, "port", 65536, "--port"),
        (serve, "http_port", 65536, "--http-port"),
        (serve, "drain_timeout_s", -1, "--drain-timeout"),
    ],
)
def test_what_cannot_work_is_refused_by_option_and_value(make, field, value, option):
    with pytest.raises(StartupFailed, match=option) as caught:
        make(**{field: value})
    assert str(value) in str(caught.value)
    assert "allowed is" in str(caught.value)


def test_weights_are_those_of_the_keys_and_none_without():
    scopes = (Scope(name="a", key_digests=(), weight=3), Scope(name="b", key_digests=()))
    assert serve(keys=KeyRing(scopes=scopes)).weights == {"a": 3, "b": 1}
    assert serve().weights == {}


def test_every_lane_has_a_token_in_every_step():
    """Decode rows come first, so the step's budget must hold one of every lane."""
    assert ranks(num_lanes=64, max_step_tokens=64).max_step_tokens == 64
    with pytest.raises(StartupFailed, match="--max-step-tokens"):
        ranks(num_lanes=64, max_step_tokens=63)
