from pathlib import Path

import pytest

from lanehost.errors import StartupFailed
from lanehost.images.limits import ImageLimits
from lanehost.keys import KeyRing, Scope
from lanehost.settings import (
    EngineSettings,
    ImageSettings,
    JournalSettings,
    LineSettings,
    RankGroupSettings,
    ServeSettings,
)

MODEL = Path("model")


def ranks(**values):
    return RankGroupSettings(model_path=MODEL, **values)


def serve(**values):
    return ServeSettings(ranks=ranks(), **values)


def line(**values):
    return LineSettings(**values)


def journal(**values):
    return JournalSettings(folder=Path("kept"), **values)


def limits(**values):
    return ImageSettings(limits=ImageLimits(**values))


def test_the_defaults_are_allowed():
    assert journal().max_file_bytes == 512 << 20
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
        (ranks, "heartbeat_timeout_s", 0.5, "--heartbeat-timeout"),
        (ranks, "stall_timeout_s", 0, "--stall-timeout"),
        (ranks, "max_restarts", -1, "--max-restarts"),
        (ranks, "num_threads", 0, "--threads"),
        (ranks, "kv_tokens", 15, "--kv-tokens"),
        (ranks, "dtype", "int3", "--dtype"),
        (ranks, "device", "tpu", "--device"),
        (ranks, "weights", "int3", "--weights"),
        (line, "max_waiting", 0, "--max-waiting"),
        (line, "max_waiting_tokens", 0, "--max-waiting-tokens"),
        (line, "max_streams", 0, "--max-streams"),
        (journal, "max_mib", 1, "--journal-mib"),
        (journal, "max_mib", (1 << 20) + 1, "--journal-mib"),
        (EngineSettings, "max_drafts", -1, "--max-drafts"),
        (EngineSettings, "max_drafts", 65, "--max-drafts"),
        (limits, "max_image_bytes", 1023, "--max-image-bytes"),
        (limits, "max_image_bytes", (32 << 20) + 1, "--max-image-bytes"),
        (limits, "max_image_pixels", 0, "--max-image-pixels"),
        (limits, "max_image_pixels", (1 << 26) + 1, "--max-image-pixels"),
        (limits, "max_images", 0, "--max-images"),
        (limits, "max_images", 257, "--max-images"),
        (ImageSettings, "max_held_bytes", 1, "--max-held-images"),
        (ImageSettings, "max_uploads", 0, "--max-uploads"),
        (ImageSettings, "upload_lifetime_s", 0, "--upload-lifetime"),
        (serve, "port", -1, "--port"),
        (serve, "port", 65536, "--port"),
        (serve, "http_port", 65536, "--http-port"),
        (serve, "drain_grace_s", -1, "--drain-grace"),
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


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"dtype": "float32"}, "--dtype is 'float32', with --weights int4 allowed is 'auto' or"),
        ({"device": "cuda"}, "--device is 'cuda', with --weights int4 allowed is 'auto' or 'cpu'"),
        (
            {"weights": "float32", "dtype": "int8"},
            "--dtype is 'int8', with --weights float32 allowed is 'auto' or 'float32'",
        ),
    ],
)
def test_weights_that_contradict_what_is_computed_with_are_refused_at_the_door(changes, said):
    with pytest.raises(StartupFailed) as failed:
        RankGroupSettings(**({"model_path": Path("m"), "weights": "int4"} | changes))
    assert said in str(failed.value)


@pytest.mark.parametrize(
    ("weights", "dtype", "device"),
    [
        ("int4", "int8", "cpu"),
        ("int8", "auto", "auto"),
        ("float32", "float32", "cuda"),
        ("auto", "int8", "cpu"),
    ],
)
def test_weights_that_fit_are_taken(weights, dtype, device):
    settings = RankGroupSettings(model_path=Path("m"), weights=weights, dtype=dtype, device=device)
    assert settings.weights == weights
